/* host_isa.c - the instruction sets of the processor that tgc runs on: --cpu=native, and what tgc
 * tune measures.
 *
 * A set is there if emitted programs would find it. On x86 CPUID must have it, and the system must
 * save its registers. On ARM, Linux's list of capabilities must have it. For AMX, has_amx() of
 * runtime/ also asks the system to save the tile registers. __builtin_cpu_supports() is not asked,
 * since zig's, by which wheels are compiled, knows of nothing.
 */
#include "lib/lib.h"

#include <string.h>
#if defined __aarch64__ && defined __linux__
#include <sys/auxv.h>
#endif
#if defined __x86_64__
#include <cpuid.h>
#endif
#if defined __x86_64__ && (defined __clang__ ? __clang_major__ >= 12 : __GNUC__ >= 11)
#pragma GCC diagnostic ignored "-Wunused-function"
#include "runtime/vector_amx.c"
#define HAS_AMX has_amx()
#else
#define HAS_AMX false
#endif

isa_set options_with_base(enum isa isa)
{
    return 1u << isa | 1u << isa_base(isa);
}

#if defined __aarch64__
static enum isa native_neon(void)
{
#if defined __linux__
    enum { DOTPROD = 20, I8MM = 13, BF16 = 14 };
    bool dot = getauxval(AT_HWCAP) >> DOTPROD & 1, i8mm = getauxval(AT_HWCAP2) >> I8MM & 1,
         bf16 = getauxval(AT_HWCAP2) >> BF16 & 1;
    return dot && i8mm && bf16 ? ISA_NEONBF16
           : dot && i8mm       ? ISA_NEONI8MM
           : dot               ? ISA_NEONDOT
                               : ISA_NEON;
#elif defined __ARM_FEATURE_MATMUL_INT8 && defined __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
    return ISA_NEONBF16;
#elif defined __ARM_FEATURE_MATMUL_INT8
    return ISA_NEONI8MM;
#elif defined __ARM_FEATURE_DOTPROD
    return ISA_NEONDOT;
#else
    return ISA_NEON;
#endif
}
#endif

#if defined __x86_64__
/* Whether it has AVX512_BF16, a bit of leaf 7's first subleaf; a: how many subleaves there are. */
static bool has_pairs(unsigned a)
{
    enum { BIT_AVX512BF16 = 1 << 5 };
    unsigned b, c, d;
    return a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & BIT_AVX512BF16);
}

static isa_set native_x86(void)
{
    enum { STATE_AVX = 0x6, STATE_AVX512 = 0xe6 };     /* of XCR0 */
    const unsigned wide = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    unsigned a, b, c, d, first, kept, high;
    if (!__get_cpuid(1, &a, &b, &first, &d) || !(first & bit_OSXSAVE) ||
        !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return 1u << ISA_GENERIC;
    __asm__ volatile("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
    (void)high;
    if ((kept & STATE_AVX512) == STATE_AVX512 && (b & wide) == wide)
        return options_with_base(!(c & bit_AVX512VNNI) ? ISA_AVX512
                                 : !has_pairs(a)       ? ISA_AVX512VNNI
                                 : HAS_AMX             ? ISA_AMX
                                                       : ISA_AVX512BF16);
    bool has_avx2 = (kept & STATE_AVX) == STATE_AVX && (b & bit_AVX2) && (first & bit_FMA);
    return 1u << (has_avx2 ? ISA_AVX2 : ISA_GENERIC);
}
#endif

isa_set options_native_isa(void)
{
#if defined __aarch64__
    return options_with_base(native_neon());
#elif defined __x86_64__
    return native_x86();
#else
    return 1u << ISA_GENERIC;
#endif
}

isa_set options_host_isa(void)
{
    isa_set set = options_native_isa() | 1u << ISA_GENERIC;
    /* a wider one includes the narrower ones */
    for (int isa = ISA_COUNT - 2; isa > ISA_GENERIC; isa--)
        if ((set >> (isa + 1) & 1) && strcmp(isa_table[isa].arch, isa_table[isa + 1].arch) == 0)
            set |= 1u << isa;
    return set;
}
