/* SPDX-License-Identifier: 0BSD */
/* train.c - the blocks of a program that trains, and the numbers that it draws.
 *
 *      block   struct block_head | a struct block_row for each tensor | tensors, at multiples of 64
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef float T;
enum { MODEL_OK, MODEL_BAD_OPTIONS = 7, MODEL_BAD_STATE = 18, MODEL_RANK_FAILED = 28 };

//@ random_words
/* Two random words of a seed and a counter. source: Salmon et al., Parallel random numbers: as easy
 * as 1, 2, 3 (2011), Threefry-2x32 with 20 rounds */
static void random_words(uint64_t seed, uint64_t counter, uint32_t word[2])
{
    static const unsigned char rotation[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    const uint32_t low = (uint32_t)seed, high = (uint32_t)(seed >> 32),
                   key[3] = {low, high, UINT32_C(0x1BD11BDA) ^ low ^ high};
    uint32_t a = (uint32_t)counter + low, b = (uint32_t)(counter >> 32) + high;
    for (uint32_t i = 0; i < 20; i++) {
        const unsigned r = rotation[i % 8];
        a += b;
        b = (b << r | b >> (32 - r)) ^ a;
        if (i % 4 == 3) {
            const uint32_t group = i / 4 + 1;
            a += key[group % 3];
            b += key[(group + 1) % 3] + group;
        }
    }
    word[0] = a;
    word[1] = b;
}

//@ train_blocks
/* How a block begins, in the machine's byte order. */
struct block_head {
    char magic[8];                  /* "tgcblock" */
    uint32_t version, kind;         /* 1; 1 parameters, 2 gradients, 3 the optimizer's state */
    uint64_t identity;              /* of the model, and of 3 the optimizer */
    uint64_t nbytes;                /* of the whole block */
    int64_t runs;                   /* of training so far, by which elements drop: of 1 */
    char name[24];                  /* of the model, for messages */
};
struct block_row { uint64_t key, offset; };   /* of a tensor's name, dtype and shape; its place */
struct block_info { struct block_head head; const struct block_row *row; size_t n; };

static void begin_block(void *block, const struct block_info *b)
{
    memset(block, 0, (size_t)b->head.nbytes);
    memcpy(block, &b->head, sizeof b->head);
    if (b->n > 0) /* otherwise row is NULL */
        memcpy((char *)block + sizeof b->head, b->row, b->n * sizeof *b->row);
}

/* Whether the block is of this model, and was begun. */
static int check_block(const void *block, const struct block_info *b)
{
    if (!block)
        return MODEL_BAD_OPTIONS;
    return memcmp(block, &b->head, offsetof(struct block_head, runs)) != 0 ||
                   (b->n > 0 && memcmp((const char *)block + sizeof b->head, b->row,
                                       b->n * sizeof *b->row) != 0)
               ? MODEL_BAD_STATE
               : MODEL_OK;
}

//@ next_draw train_blocks random_words
/* The number by which the next run of this rank drops elements, not negative. */
static int64_t next_draw(const void *params, uint64_t seed, int rank, int ranks)
{
    struct block_head head;
    uint32_t word[2];
    memcpy(&head, params, sizeof head);
    random_words(seed, (uint64_t)head.runs * (uint64_t)(ranks > 0 ? ranks : 1) + (uint64_t)rank,
                 word);
    return (int64_t)(word[0] & INT32_MAX);
}

static void count_run(void *params)
{
    struct block_head head;
    memcpy(&head, params, sizeof head);
    head.runs++;
    memcpy(params, &head, sizeof head);
}

//@ sum_segments
/* Elements of a block that follow each other: their sum over all ranks, or their mean. */
struct ranks_segment { int block, is_mean; size_t at, n, element_bytes; };

static int sum_segments(void *const *block, const struct ranks_segment *s, size_t count,
                        int (*sum)(void *user, void *x, size_t n, size_t element_bytes), void *user,
                        int ranks)
{
    for (; count > 0; count--, s++) {
        void *const x = (unsigned char *)block[s->block] + s->at;
        for (size_t i = 0; i < s->n && s->is_mean; i++)
            if (s->element_bytes == sizeof(double))
                ((double *)x)[i] /= ranks;
            else
                ((float *)x)[i] /= (float)ranks;
        if (sum(user, x, s->n, s->element_bytes) != 0)
            return MODEL_RANK_FAILED;
    }
    return MODEL_OK;
}

//@for f32:float f64:double
//@ draw_T random_words
/* n elements, uniform with variance 1/3 over the fan-in.
 * source: He et al., Delving Deep into Rectifiers, 2015 */
static void draw_T(void *x, size_t n, uint64_t seed, double fan)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t word[2];
        random_words(seed, i, word);
        const double u = 2 * ((double)(word[0] >> 8) * 0x1p-24) - 1;
        ((T *)x)[i] = (T)(u / sqrt(fan));
    }
}
