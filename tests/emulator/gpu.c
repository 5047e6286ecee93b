/* SPDX-License-Identifier: 0BSD */
/* gpu.c - what kernels in LLVM's text ask of their device (backends/llvm/emit.h, gpu_language.c),
 * by the functions of builtins.c. In tests they are these instead of a device's own.
 */
#include "emulator.h"

#include <string.h>

API uint64_t emulator_place(uint32_t what, uint32_t d);
API void emulator_barrier(uint32_t flags);
API uint32_t emulator_subgroup(uint32_t what);
API void emulator_give(const void *value, uint32_t nbytes);
API void emulator_matrix(const char *row, void *sum, const void *a, const void *b);
API void emulator_take(void *value, uint32_t nbytes, uint32_t lane);

enum { THREAD = 2, BLOCK = 4, LANE = 2, BOTH_MEMORIES = 3 };

#define PLACE(name, symbol, what, axis)                                                            \
    API uint32_t name(void) __asm__(symbol);                                                       \
    uint32_t name(void) { return (uint32_t)emulator_place(what, axis); }
PLACE(gpu_thread_x, "gpu.thread.x", THREAD, 0)
PLACE(gpu_thread_y, "gpu.thread.y", THREAD, 1)
PLACE(gpu_thread_z, "gpu.thread.z", THREAD, 2)
PLACE(gpu_block_x, "gpu.block.x", BLOCK, 0)
PLACE(gpu_block_y, "gpu.block.y", BLOCK, 1)
PLACE(gpu_block_z, "gpu.block.z", BLOCK, 2)

API void gpu_barrier(void) __asm__("gpu.barrier");
void gpu_barrier(void) { emulator_barrier(BOTH_MEMORIES); }

API float gpu_exp2(float x) __asm__("gpu.exp2");
float gpu_exp2(float x) { return __builtin_exp2f(x); }

#define SHUFFLE(mask)                                                                              \
    API float gpu_shuffle_##mask(float x) __asm__("gpu.shuffle." #mask);                           \
    float gpu_shuffle_##mask(float x)                                                              \
    {                                                                                              \
        emulator_give(&x, sizeof x);                                                               \
        emulator_take(&x, sizeof x, emulator_subgroup(LANE) ^ mask);                               \
        return x;                                                                                  \
    }
SHUFFLE(1)
SHUFFLE(2)
SHUFFLE(4)
SHUFFLE(8)
SHUFFLE(16)
SHUFFLE(32)

#define DOT(name, symbol)                                                                          \
    API uint32_t name(uint32_t sum, uint32_t a, uint32_t b) __asm__(symbol);                       \
    uint32_t name(uint32_t sum, uint32_t a, uint32_t b)                                            \
    {                                                                                              \
        for (int bit = 0; bit < 32; bit += 8)                                                      \
            sum += (uint32_t)((int32_t)(a >> bit & 255) * (int8_t)(uint8_t)(b >> bit));           \
        return sum;                                                                                \
    }
DOT(gpu_dot, "gpu.dot")
DOT(gpu_dot_gfx9, "gpu.dot.gfx9")

/* Asynchronous copies: the addresses as numbers, and how many bytes are no zeros. */
API void emulator_copy(void *to, const void *from, uint32_t nbytes, uint32_t valid);
API void emulator_commit(void);
API void emulator_wait(uint32_t n);
#define COPY(nbytes)                                                                               \
    API void gpu_copy_##nbytes(uint64_t to, uint64_t from,                                         \
                               uint32_t read) __asm__("gpu.copy." #nbytes);                        \
    void gpu_copy_##nbytes(uint64_t to, uint64_t from, uint32_t read)                              \
    {                                                                                              \
        emulator_copy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, nbytes, read > 0);     \
    }
COPY(4)
COPY(8)
COPY(16)
API void gpu_commit(void) __asm__("gpu.commit");
void gpu_commit(void) { emulator_commit(); }
#define WAIT(n)                                                                                    \
    API void gpu_wait_##n(void) __asm__("gpu.wait." #n);                                           \
    void gpu_wait_##n(void) { emulator_wait(n); }
WAIT(0)
WAIT(1)
WAIT(2)
WAIT(3)
WAIT(4)
WAIT(5)
WAIT(6)

/* An instruction of ir/matrix.def: the words of both factors and of the sums one by one, then the
 * row, then the sums. Between the row and the last sum the item does not wait, so no other one's
 * come between. */
enum { WORDS = 16, SUMS = 2 };
static _Thread_local uint32_t given[SUMS + 1][WORDS];
static const char *const row[] = {
#define MATRIX(name, text, lanes, m, n, k, a, b, sum, of_a, of_b, of_sum) text,
#include "../../ir/matrix.def"
#undef MATRIX
};
API void gpu_matrix_word(uint32_t part, uint32_t i, uint32_t word);
API void gpu_matrix(uint32_t of);
API uint32_t gpu_matrix_sum(uint32_t i);

void gpu_matrix_word(uint32_t part, uint32_t i, uint32_t word) { given[part][i] = word; }

void gpu_matrix(uint32_t of)
{
    uint32_t own[SUMS + 1][WORDS];
    memcpy(own, given, sizeof own);
    emulator_matrix(row[of], own[SUMS], own[0], own[1]);
    memcpy(given, own, sizeof own);
}

uint32_t gpu_matrix_sum(uint32_t i) { return given[SUMS][i]; }

/* Rows of tiles, likewise: the words one by one. */
API void emulator_rows(uint32_t *words, const void *row, uint32_t n, uint32_t across);
API void gpu_rows(uint64_t row, uint32_t n, uint32_t across);
API uint32_t gpu_rows_word(uint32_t i);

void gpu_rows(uint64_t at, uint32_t n, uint32_t across)
{
    uint32_t own[4];
    emulator_rows(own, (const void *)(uintptr_t)at, n, across);
    memcpy(given[0], own, sizeof own);
}

uint32_t gpu_rows_word(uint32_t i) { return given[0][i]; }

