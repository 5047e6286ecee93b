/* isa.c - the rows of isa.def, and questions about them. */
#include "passes/target/target.h"

#include <string.h>

const struct isa_info isa_table[ISA_COUNT] = {
#define ISA(name, text, lanes, narrow, registers, title, arch, compilers, header, features,        \
            attribute, dot, centered)                                                              \
    {text, arch, lanes, narrow, registers, title, attribute, dot, centered},
#include "passes/target/isa.def"
#undef ISA
};

enum isa isa_portable(void) { return ISA_GENERIC; }
bool isa_is_portable(enum isa isa) { return isa == ISA_GENERIC; }
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

bool isa_adds_bytes(enum isa isa) { return strcmp(isa_table[isa].dot, "dot") != 0; }
bool isa_centers_bytes(enum isa isa) { return isa_table[isa].centered; }
bool isa_computes_f16(enum isa isa) { return isa == ISA_AVX2; }
