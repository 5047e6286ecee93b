/* grid_attention.h - private to grid_attention*.c: attention by blocks of queries and of keys. */
#ifndef TGC_GRID_ATTENTION_H
#define TGC_GRID_ATTENTION_H

#include "passes/kernel/grid.h"
#include "passes/kernel/online_softmax.h"

/* Sizes are upper bounds. columns: of the result, for each query; inner: those of its innermost
 * loop. factor: the dtype to which queries are rounded. local_nbytes: shared memory that all
 * targeted machines have. masks: values loaded for each score. row: the loop over queries on which
 * the visible keys depend, begin <= key < end; NULL: all keys are visible. */
struct attention {
    int64_t heads, queries, keys, features, inner, columns, local_nbytes;
    enum dtype factor;
    int masks;
    const struct uop *row;
    struct uop *begin, *end;
};

/* Cost of an exponential, in multiply-adds of a thread. */
enum { ATTENTION_EXPONENTIAL = 12 };

/* Bytes of queries, keys, values and results, each counted once. */
double attention_nbytes(const struct attention *x);
/* Key blocks that a block of queries iterates over. all: the mean; cut: those of them that a mask
 * hides from only some queries; rounds: time of all blocks on the units, in that of an average
 * block (0: blocks are alike, or too many to simulate). */
struct attention_iterations { double all, cut, rounds; };
/* needs: queries, keys, row, begin and end of x, and a device. grid_attention_iterations.c */
struct attention_iterations attention_iterations(struct tgc *t, const struct attention *x,
                                                 int64_t rows, int64_t keys);
/* The number of leading loops that all stores share (bands), and a store's number of bands. */
int attention_common(const struct uop *ast);
int attention_bands(const struct uop *store);
/* Puts the bands that all stores share over the grid. */
void attention_places(struct opt_list *l, const struct uop *store, int common);
/* Distributes the store's loops over the block's threads, innermost first. Returns each thread's
 * iterations of the outermost one. */
int64_t attention_threads(struct opt_list *l, const struct uop *store, int64_t threads);
/* The store's product: queries by keys, or weights by values; NULL: it has none. */
struct uop *attention_product(struct tgc *t, struct uop *store);
/* Number, sources first, of the product's load from global memory; -1: there is none. */
int attention_operand(struct tgc *t, struct uop *sum);

/* grid_attention_matrix.c: by a matrix instruction, if expected to take less than `ns` (0:
 * regardless). false: it is not faster, or the device has none for these factors. Changes k only if
 * true. */
bool attention_by_tiles(struct tgc *t, struct kernel *k, const struct attention *x, double ns);
#endif
