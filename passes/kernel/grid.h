/* grid.h - private to grid.c, grid_tile.c, grid_attention.c, grid_rows.c: a list of opts that makes
 * a store's loops a device's grid and blocks. */
#ifndef TGC_GRID_H
#define TGC_GRID_H

#include "passes/kernel/tile.h"

/* Opts for one store, and what its loops are behind them: LOOP_GIVEN and more are those of the
 * store as it was, by number. */
enum { LOOPS_MAX = 24, LIST_MAX = 64, LOOP_GIVEN = 16, LOOP_INNER = 64 };
enum loop_tag {
    LOOP_ROWS = 0,
    LOOP_ROW_LANES,
    LOOP_ROW_ITEMS,
    LOOP_COLUMNS,
    LOOP_COLUMN_LANES,
    LOOP_COLUMN_ITEMS
};
struct place_list {
    struct tgc *t;
    int store;
    struct opt opt[LIST_MAX + 1]; int n;
    int loop[LOOPS_MAX]; int nloop;          /* tags, outermost first; without lanes */
    bool failed;                             /* too many loops or opts */
};
void list_begin(struct place_list *l, struct tgc *t, const struct uop *ast, int store);
struct opt *list_add(struct place_list *l, enum opt_op op, int tag);
/* The number of the loop of this tag; -1: there is none. */
int list_position(const struct place_list *l, int tag);
/* The loop has become others, which stand behind those of the list. */
void list_remove(struct place_list *l, int tag);
/* The loop of `size` turns becomes two, of which the inner one has n and keeps the tag; one, if
 * that is all. */
void list_divide(struct place_list *l, int tag, int64_t size, int64_t n, int outer);
/* The loop becomes blocks of items * lanes turns: `blocks`, `lanes` and `items` are the tags of the
 * loops that come of it, in this order; lanes_inside: a thread's lanes are neighbours, and items
 * are before them. One block has no loop. size: its turns; 0: only the run knows. */
struct block_of { int64_t items, lanes; int tag_blocks, tag_lanes, tag_items; bool lanes_inside; };
void list_cover(struct place_list *l, int64_t size, int tag, const struct block_of *b);
/* The loop becomes number `to`; the loop of that number and the one inside of it become one, with
 * the outer one's tag. */
void list_order(struct place_list *l, int tag, int to);
void list_flatten(struct place_list *l, int at);
/* The loop's first n turns are the worker's, or so many at a time; size: as above. Returns how many
 * such blocks are left, as a loop of the same tag. */
int64_t list_take(struct place_list *l, int64_t size, bool fixed, int64_t n, int tag,
                  enum opt_op worker);
/* n turns of the loop are a lane of a tile's rows or columns. */
void list_lanes(struct place_list *l, int tag, int64_t n, bool column);
/* Gives these loops to the grid, at most three: the largest of them. size: by tag. */
void list_grid(struct place_list *l, const int *tag, const int64_t *size, int n);

/* The last n turns of the loop become a vector of each thread's; before all other
 * opts of the store. */
void list_vector(struct place_list *l, int tag, int64_t size, int64_t n);

/* grid_vector.c. The elements of a vector of the device's language; 1: it has none. */
int grid_vector_lanes(const struct tgc *t);
/* Whether n turns of the store's loop src[at] could be a vector: what is read and stored along it
 * are aligned neighbours, and all operations have vectors. */
bool grid_vector_fits(struct tgc *t, struct uop *store, int at, int64_t n);
/* The last loop of which that holds; -1: there is none. */
int grid_vector_loop(struct tgc *t, struct uop *store, int64_t n);
/* The last loop of which it holds, but for turns that are left behind the last n;
 * -1: there is none. */
int grid_vector_part(struct tgc *t, struct uop *store, int64_t n);

/* Of a block, at most. */
enum { THREADS_MOST = 256 };
/* Whether a sum or a stage outside of all others would be computed for each turn of r again. */
bool grid_repeats(struct tgc *t, struct uop *store, const struct uop *r);

/* Applies the list to its store; the kernel's other stores, all if it is NULL, become places of the
 * grid, in blocks of so many threads if the list makes some, in vectors of so many lanes where they
 * fit. false: refused, and nothing is changed. */
bool grid_apply(struct tgc *t, struct kernel *k, const struct place_list *of, int threads,
                int lanes);

/* grid_tile.c: a sum of products by blocks of tiles, by the `first` best or, if that is refused,
 * the next one that the cost model finds; false: there is none. k: is changed if true. */
bool grid_tile(struct tgc *t, struct kernel *k, int store, int first);
/* grid_matrix.c: the same by an instruction of ir/matrix.def, if the device has one for the
 * factors' values and it is faster. */
bool grid_matrix(struct tgc *t, struct kernel *k, int store, int first);
/* grid_raster.c: of a product's blocks, or clusters of them, of rows, whose loop is the outer one,
 * and of columns, how many there are, and what one reads of its operand; how many run at once. */
struct raster { int64_t n[2], at_once; double nbytes[2]; };
/* How many rows of blocks are a group, so that blocks that run at once read least of memory; 1:
 * their order does not matter. */
int64_t grid_raster(const struct device_row *d, const struct raster *r);
/* The loop over n rows of blocks becomes one over groups, of the tag `tag`, and that over a group's
 * rows, inside of the columns'. */
void list_raster(struct place_list *l, int rows, int columns, int64_t n, int64_t group, int tag);
/* grid_attention.c: attention that plan_online_find() found by blocks of queries and of keys, if that is
 * cheaper than rows. */
bool grid_attention(struct tgc *t, struct kernel *k);
/* grid_slice.c: few results with long sums, whose columns or terms are neighbours in memory, by
 * blocks of columns whose threads share the sums. */
bool grid_slices(struct tgc *t, struct kernel *k, int store);
/* grid_window.c: a sum over windows of channels that are neighbours, several outputs of each thread
 * along one of them. */
bool grid_windows(struct tgc *t, struct kernel *k, int store);
/* grid_turn.c: a store without sums whose neighbours lie apart where they are loaded goes through
 * local memory, if that takes less by the model. false: nothing has changed. */
bool grid_turned(struct tgc *t, struct kernel *k, int store);
/* grid_rows.c: rows by blocks whose threads share sums. */
bool grid_rows(struct tgc *t, struct kernel *k, int store);
/* Threads of a row's block: as many as a row of so many turns has work for, in waves, and no more
 * than fill the device. */
int grid_row_threads(const struct device_row *d, double rows, double turns);
/* Stages of rows are shared in local memory; those without a sum in them are computed where they
 * are read. Before opts of loops. */
void grid_place_stages(struct place_list *l, struct tgc *t, struct uop *store);
/* The block's threads share each sum that is the same for all of them. */
void grid_share_sums(struct tgc *t, struct kernel *k, int store, int threads);
/* Turns of a sum; of all that is computed once for the turns of the store's loop r: stages, and
 * sums that do not change along it. */
double grid_sum_turns(const struct uop *sum);
double grid_row_turns(struct tgc *t, struct uop *store, const struct uop *r);
/* Whether a sum's terms along the loop are read as aligned neighbours, words or halves, so that so
 * many of them are one transaction. */
bool grid_reads_vectors(struct tgc *t, struct uop *sum, const struct uop *r, int lanes);
/* How many of the sum's terms along its loop `axis` are loaded at once, as aligned neighbours; 1:
 * each by itself. */
int grid_sum_lanes(struct tgc *t, struct uop *sum, int axis);
/* Which of a sum's loops its threads share: the longest. */
int grid_longest_loop(const struct uop *sum);
#endif
