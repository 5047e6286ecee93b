/* grid_attention.h - private to grid_attention*.c: attention by blocks of queries and of keys. */
#ifndef TGC_GRID_ATTENTION_H
#define TGC_GRID_ATTENTION_H

#include "passes/kernel/grid.h"
#include "passes/kernel/online_softmax.h"

/* Sizes, at their upper bounds; columns of the result for each query, of its innermost loop and in
 * all; what the queries are rounded to. */
/* local_nbytes: what a block may have of all machines that are asked for; masks: values that are
 * loaded for each score */
/* row: the query, on which the keys that it may see depend: begin <= key < end; NULL:
 * there is no such limit */
struct attention {
    int64_t heads, queries, keys, features, inner, columns, local_nbytes;
    enum dtype factor;
    int masks;
    const struct uop *row;
    struct uop *begin, *end;
};

/* An exponential, in multiply-adds of a thread. */
enum { ATTENTION_EXPONENTIAL = 12 };

/* Of queries, keys, values and results, each once. */
double attention_nbytes(const struct attention *x);
/* What a block of so many queries goes through: blocks of so many keys on average, those of them of
 * which a mask hides keys from some queries alone; and what units take for all blocks, in the time
 * of an average one (0: blocks are alike, or very many). */
struct attention_turns { double all, cut, rounds; };
/* needs: queries, keys, row, begin and end of x, and a device. grid_attention_turns.c */
struct attention_turns attention_turns(struct tgc *t, const struct attention *x, int64_t rows,
                                       int64_t keys);
/* How many of its first loops all stores are in: bands. */
int attention_common(const struct uop *ast);
int attention_bands(const struct uop *store);
/* The bands in which all stores are become the grid. */
void attention_places(struct place_list *l, const struct uop *store, int common);
/* The block's threads share the store's loops, the innermost first. Returns each thread's turns of
 * the outermost one. */
int64_t attention_threads(struct place_list *l, const struct uop *store, int64_t threads);
/* The store's sum of queries by keys, or of scores by values; NULL: it is another store. */
struct uop *attention_product(struct tgc *t, struct uop *store);
/* The load, sources first, of a sum of products that reads other memory than the block's;
 * -1: there is none. */
int attention_operand(struct tgc *t, struct uop *sum);

/* grid_attention_matrix.c: by an instruction of matrix.def, if that is expected to take less than
 * `ns`; 0: than anything. false: it is not, or the device has none for the factors' values; k: is
 * changed if true. */
bool attention_by_tiles(struct tgc *t, struct kernel *k, const struct attention *x, double ns);
#endif
