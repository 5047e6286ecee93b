/* isa.c - the rows of isa.def, and questions about them. */
#include "passes/target/target.h"

#include <string.h>

const struct isa_info isa_table[ISA_COUNT] = {
#define ISA(name, text, lanes, narrow, registers, title, arch, compilers, header, features,        \
            attribute)                                                                             \
    {text, arch, lanes, narrow, registers, title, attribute},
#include "passes/target/isa.def"
#undef ISA
};

static const struct has {
    enum isa isa;
    enum intrinsic of;
    const char *function;
    bool one;
} has[] = {
#define INTRINSIC_OF(isa, of, function, one) {ISA_##isa, INTRINSIC_##of, #function, one},
#include "passes/target/intrinsics.def"
#undef INTRINSIC_OF
};
enum { NHAS = sizeof has / sizeof *has };

enum isa isa_portable(void) { return ISA_GENERIC; }
bool isa_is_portable(enum isa isa) { return isa == ISA_GENERIC; }
bool isa_is_of_device(enum isa isa)
{
    return strcmp(isa_table[isa].arch, "opencl") == 0 || strcmp(isa_table[isa].arch, "lanes") == 0;
}

isa_set isa_all(void)
{
    isa_set all = 0;
    for (int isa = 0; isa < ISA_COUNT; isa++)
        if (!isa_is_of_device((enum isa)isa) && isa != ISA_SIMD128)
            all |= 1u << isa;
    return all;
}

isa_set isa_of_triple(const char *triple, isa_set asked)
{
    bool wasm = triple && strncmp(triple, "wasm", 4) == 0;
    return wasm && asked == isa_all() ? 1u << ISA_SIMD128 | 1u << ISA_GENERIC : asked;
}

const char *isa_pieces(enum isa isa) { return isa == ISA_SIMD128 ? "simd128" : NULL; }

enum isa isa_last(void) { return (enum isa)(ISA_COUNT - 1); }

enum isa isa_before(enum isa isa)
{
    return isa > ISA_GENERIC ? (enum isa)(isa - 1) : ISA_GENERIC;
}

enum isa isa_base(enum isa isa)
{
    while (isa > ISA_GENERIC && isa_table[isa - 1].lanes == isa_table[isa].lanes &&
           strcmp(isa_table[isa - 1].arch, isa_table[isa].arch) == 0)
        isa = (enum isa)(isa - 1);
    return isa;
}

bool isa_find(const char *text, enum isa *isa)
{
    for (int i = 0; i < ISA_COUNT; i++)
        if (strcmp(text, isa_table[i].text) == 0) {
            *isa = (enum isa)i;
            return true;
        }
    return false;
}

const char *isa_name(enum isa isa) { return isa_table[isa].text; }
int isa_lanes(enum isa isa) { return isa_table[isa].lanes; }
int isa_half_lanes(enum isa isa) { return isa_table[isa].narrow; }
int isa_registers(enum isa isa) { return isa_table[isa].registers; }

int isa_step_registers(enum isa isa, bool bytes, int blocks)
{
    enum { EMULATED = 4 };
    return bytes && !isa_adds_bytes(isa) ? 2 * blocks + EMULATED : blocks + 1;
}

int64_t isa_register_nbytes(enum isa isa)
{
    return (int64_t)isa_table[isa].registers * isa_table[isa].lanes * (int64_t)sizeof(float);
}

const char *isa_function(enum isa isa, enum intrinsic of)
{
    for (enum isa base = isa_base(isa);; isa = isa_before(isa)) {
        for (int i = 0; i < NHAS; i++)
            if (has[i].isa == isa && has[i].of == of)
                return has[i].function;
        if (isa == base)
            return NULL;
    }
}

static const struct has *find_dot(enum isa isa)
{
    for (enum isa base = isa_base(isa);; isa = isa_before(isa)) {
        for (int i = 0; i < NHAS; i++)
            if (has[i].isa == isa &&
                (has[i].of == INTRINSIC_DOT || has[i].of == INTRINSIC_DOT_CENTERED))
                return &has[i];
        if (isa == base)
            return NULL;
    }
}

bool isa_has_tiles(enum isa isa) { return isa_function(isa, INTRINSIC_TILE_DOT) != NULL; }

enum intrinsic isa_dot(enum isa isa)
{
    const struct has *h = find_dot(isa);
    return h ? h->of : INTRINSIC_DOT;
}

bool isa_adds_bytes(enum isa isa)
{
    const struct has *h = find_dot(isa);
    return h && h->one;
}

bool isa_centers_bytes(enum isa isa) { return isa_dot(isa) == INTRINSIC_DOT_CENTERED; }
bool isa_computes_f16(enum isa isa) { return isa == ISA_AVX2; }
