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

int isa_step_registers(enum isa isa, enum dtype group, int blocks)
{
    enum { EMULATED = 4 };
    return group != DTYPE_VOID && !isa_adds(isa, group) ? 2 * blocks + EMULATED : blocks + 1;
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

/* Whether an intrinsic sums products of groups with such weights; tiles: of tiles. */
static bool is_dot(enum intrinsic of, enum dtype weights, bool tiles)
{
    if (tiles)
        return of == (weights == DTYPE_BF16 ? INTRINSIC_TILE_DOT_BF16 : INTRINSIC_TILE_DOT);
    if (weights == DTYPE_BF16)
        return of == INTRINSIC_DOT_BF16;
    return of == INTRINSIC_DOT || of == INTRINSIC_DOT_CENTERED;
}

/* The set's own row; NULL: there is none. */
static const struct has *find_own(enum isa isa, enum dtype weights, bool tiles)
{
    for (int i = 0; i < NHAS; i++)
        if (has[i].isa == isa && is_dot(has[i].of, weights, tiles))
            return &has[i];
    return NULL;
}

/* The set's row, or that of the widest set before it. */
static const struct has *find(enum isa isa, enum dtype weights, bool tiles)
{
    const struct has *h = find_own(isa, weights, tiles);
    for (enum isa base = isa_base(isa); !h && isa != base;)
        h = find_own(isa = isa_before(isa), weights, tiles);
    return h;
}

static const struct has *find_dot(enum isa isa, enum dtype weights)
{
    return find(isa, weights, false);
}

static const struct has *find_tiles(enum isa isa, enum dtype weights)
{
    return find(isa, weights, true);
}

bool isa_has_tiles(enum isa isa) { return isa_function(isa, INTRINSIC_TILE_DOT) != NULL; }

enum intrinsic isa_dot(enum isa isa, enum dtype weights)
{
    const struct has *h = find_dot(isa, weights);
    return h ? h->of : weights == DTYPE_BF16 ? INTRINSIC_DOT_BF16 : INTRINSIC_DOT;
}

bool isa_adds(enum isa isa, enum dtype weights)
{
    const struct has *h = find_dot(isa, weights);
    return h && h->one;
}

bool isa_differs(enum isa a, enum isa b, enum dtype weights, bool tiles)
{
    enum intrinsic dot = isa_dot(a, weights);
    const char *x = isa_function(a, dot), *y = isa_function(b, dot);
    return dot != isa_dot(b, weights) || !x != !y || (x && strcmp(x, y) != 0) ||
           (tiles && !find_tiles(a, weights) != !find_tiles(b, weights));
}

bool isa_centers_bytes(enum isa isa)
{
    return isa_dot(isa, DTYPE_I8) == INTRINSIC_DOT_CENTERED;
}
bool isa_computes_f16(enum isa isa) { return isa == ISA_AVX2; }
