/* relocate.c - relocations and stubs of x86-64 and AArch64: those of the small code model, which is
 * what LLVM writes for this process.
 *
 * source: System V ABI, its supplements for x86-64 and AArch64.
 */
#include "backends/llvm/relocate.h"

#include <elf.h>
#include <string.h>

#if defined __x86_64__
const int relocation_machine = EM_X86_64;
#elif defined __aarch64__
const int relocation_machine = EM_AARCH64;
#endif

enum form form_of(uint32_t type, unsigned *shift)
{
    *shift = 0;
#if defined __x86_64__
    switch (type) {
    case R_X86_64_64: return FORM_ABS64;
    case R_X86_64_PC32: return FORM_REL32;
    case R_X86_64_PC64: return FORM_REL64;
    case R_X86_64_PLT32: return FORM_CALL32;
    case R_X86_64_GOTPCREL: case R_X86_64_GOTPCRELX: case R_X86_64_REX_GOTPCRELX: return FORM_GOT32;
    default: return FORM_UNKNOWN;
    }
#else
    switch (type) {
    case R_AARCH64_ABS64: return FORM_ABS64;
    case R_AARCH64_PREL32: return FORM_REL32;
    case R_AARCH64_PREL64: return FORM_REL64;
    case R_AARCH64_CALL26: case R_AARCH64_JUMP26: return FORM_CALL26;
    case R_AARCH64_ADR_PREL_PG_HI21: case R_AARCH64_ADR_PREL_PG_HI21_NC: return FORM_PAGE21;
    case R_AARCH64_ADR_GOT_PAGE: return FORM_GOT_PAGE21;
    case R_AARCH64_LD64_GOT_LO12_NC: *shift = 3; return FORM_GOT_LOW12;
    case R_AARCH64_ADD_ABS_LO12_NC: case R_AARCH64_LDST8_ABS_LO12_NC: return FORM_LOW12;
    case R_AARCH64_LDST16_ABS_LO12_NC: *shift = 1; return FORM_LOW12;
    case R_AARCH64_LDST32_ABS_LO12_NC: *shift = 2; return FORM_LOW12;
    case R_AARCH64_LDST64_ABS_LO12_NC: *shift = 3; return FORM_LOW12;
    case R_AARCH64_LDST128_ABS_LO12_NC: *shift = 4; return FORM_LOW12;
    default: return FORM_UNKNOWN;
    }
#endif
}

bool form_reads_got(enum form f)
{
    return f == FORM_GOT32 || f == FORM_GOT_PAGE21 || f == FORM_GOT_LOW12;
}

bool form_calls(enum form f) { return f == FORM_CALL32 || f == FORM_CALL26; }

uint64_t form_nbytes(enum form f) { return f == FORM_ABS64 || f == FORM_REL64 ? 8 : 4; }

/* ------------------------------------------------------------------------------------- writing */

static const char too_far[] = "is out of a relocation's reach";

static bool fits_signed(int64_t v, int nbit)
{
    return v >= -((int64_t)1 << (nbit - 1)) && v < (int64_t)1 << (nbit - 1);
}

static void put32(uint64_t place, uint32_t v) { memcpy((void *)(uintptr_t)place, &v, sizeof v); }
static void put64(uint64_t place, uint64_t v) { memcpy((void *)(uintptr_t)place, &v, sizeof v); }

/* Replaces the bits of an instruction that the mask covers. */
static void put_bits(uint64_t place, uint32_t mask, uint32_t bits)
{
    uint32_t v;
    memcpy(&v, (void *)(uintptr_t)place, sizeof v);
    put32(place, (v & ~mask) | (bits & mask));
}

/* ADRP: pages from the place to v. */
static const char *put_page(uint64_t place, uint64_t v)
{
    int64_t pages = (int64_t)((v >> 12) - (place >> 12));
    if (!fits_signed(pages, 21))
        return too_far;
    put_bits(place, 0x60ffffe0u,
             ((uint32_t)pages & 3) << 29 | ((uint32_t)((uint64_t)pages >> 2) & 0x7ffff) << 5);
    return NULL;
}

static const char *put_low(unsigned shift, uint64_t place, uint64_t v)
{
    uint32_t low = v & 0xfff;
    if (low & ((1u << shift) - 1))
        return "is not aligned for the instruction that reads it";
    put_bits(place, 0x003ffc00u, low >> shift << 10);
    return NULL;
}

const char *form_put(enum form f, unsigned shift, uint64_t place, uint64_t v)
{
    int64_t distance = (int64_t)(v - place);
    switch (f) {
    case FORM_ABS64: put64(place, v); return NULL;
    case FORM_REL64: put64(place, (uint64_t)distance); return NULL;
    case FORM_REL32: case FORM_CALL32: case FORM_GOT32:
        if (!fits_signed(distance, 32))
            return too_far;
        put32(place, (uint32_t)distance);
        return NULL;
    case FORM_CALL26:
        if (!fits_signed(distance, 28) || distance & 3)
            return too_far;
        put_bits(place, 0x03ffffffu, (uint32_t)(distance >> 2));
        return NULL;
    case FORM_PAGE21: case FORM_GOT_PAGE21: return put_page(place, v);
    case FORM_LOW12: case FORM_GOT_LOW12: return put_low(shift, place, v);
    case FORM_UNKNOWN: break;
    }
    return "has a relocation of no form";
}

void stub_write(uint64_t place, uint64_t got)
{
    unsigned char *to = (unsigned char *)(uintptr_t)place;
#if defined __x86_64__
    static const unsigned char jump[] = {0xff, 0x25};         /* jmp *[rip + distance] */
    uint32_t distance = (uint32_t)(got - (place + sizeof jump + sizeof distance));
    memset(to, 0xcc, STUB_NBYTES);
    memcpy(to, jump, sizeof jump);
    memcpy(to + sizeof jump, &distance, sizeof distance);
#else
    uint64_t pages = (got >> 12) - (place >> 12);
    const uint32_t code[] = {                                 /* adrp x16; ldr x16, [x16]; br x16 */
        0x90000010u | ((uint32_t)pages & 3) << 29 | ((uint32_t)(pages >> 2) & 0x7ffff) << 5,
        0xf9400210u | (uint32_t)(got & 0xfff) >> 3 << 10, 0xd61f0200u, 0xd4200000u};
    memcpy(to, code, sizeof code);
#endif
}
