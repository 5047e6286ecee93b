/* SPDX-License-Identifier: 0BSD */
/* vector_amx.c - products of tiles of bytes and of bf16 for AMX; all else is in
 * vector_avx512bf16.c and before.
 *
 * TGC_AMX_MODEL, if defined, names a header with the same functions in C, for machines without AMX.
 */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

//@ has_amx
#if defined TGC_AMX_MODEL
static inline bool has_amx(void) { return true; }
#else
#include <cpuid.h>
/* Does the processor multiply tiles of bytes and of bf16, does the system save their registers, and
 * may this process use them? Linux requires a request. */
static inline bool has_amx(void)
{
    unsigned a, b, c, d;
    unsigned long mask = 0;
    long wrong = -1;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1) ||
        !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 22 & 13) != 13)
        return false;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    if ((a >> 17 & 3) != 3)
        return false;
#if defined __linux__ && defined __LP64__
    enum { ARCH_PRCTL = 158, GET = 0x1022, ASK = 0x1023, TILES = 18 };
    __asm__ volatile("syscall" : "=a"(wrong) : "0"((long)ARCH_PRCTL), "D"((long)ASK),
                     "S"((long)TILES) : "rcx", "r11", "memory");
    if (wrong == 0)
        __asm__ volatile("syscall" : "=a"(wrong) : "0"((long)ARCH_PRCTL), "D"((long)GET),
                         "S"(&mask) : "rcx", "r11", "memory");
#endif
    return wrong == 0 && (mask >> 18 & 1);
}
#endif

//@ amx f32x16
#if defined TGC_AMX_MODEL
#define IN_amx                                                                                     \
    __attribute__((                                                                                \
        target("avx512bf16,avx512vnni,avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#include TGC_AMX_MODEL
#else
#define IN_amx                                                                                     \
    __attribute__((target("amx-tile,amx-int8,amx-bf16,avx512bf16,avx512vnni,avx512f,avx512vl,"     \
                          "avx512dq,avx512bw,avx2,fma")))
/* Tiles, by the numbers of their registers. They are compiler barriers: gcc 12 would move stores
 * across a load of a tile. */
#define zero_tile(to) _tile_zero(to)
#define load_tile(to, from, stride)                                                                \
    do {                                                                                           \
        __asm__ volatile("" : : : "memory");                                                       \
        _tile_loadd(to, from, stride);                                                             \
        __asm__ volatile("" : : : "memory");                                                       \
    } while (0)
#define store_tile(from, to, stride) _tile_stored(from, to, stride)
/* sum += a * b, of bytes: a's 0..255, b's -128..127 */
#define tile_dot(sum, a, b) _tile_dpbusd(sum, a, b)
/* sum += a * b, of bf16 */
#define tile_dot_bf16(sum, a, b) _tile_dpbf16ps(sum, a, b)
/* shape: the rows of each register, and the bytes of a row */
static inline IN_amx void begin_tiles(const unsigned char *shape)
{
    unsigned char config[64] = {1};
    for (int i = 0; i < 8; i++) {
        config[48 + i] = shape[2 * i];
        config[16 + 2 * i] = shape[2 * i + 1];
    }
    _tile_loadconfig(config);
}
static inline IN_amx void end_tiles(void) { _tile_release(); }
#endif
