/* grid.h - private to grid*.c: builds the list of opts that turns a store's loops into a device's
 * grid and blocks. */
#ifndef TGC_GRID_H
#define TGC_GRID_H

#include "passes/kernel/tile.h"
#include "passes/target/compared.h"

/* The opts chosen for one store, with the loops that the store has after them. A loop is known by
 * its tag; tags from LOOP_GIVEN on are the store's original loops, by number. */
enum { LOOPS_MAX = 24, LIST_MAX = 64, LOOP_GIVEN = 16, LOOP_INNER = 64 };
enum loop_tag {
    LOOP_ROWS = 0,
    LOOP_ROW_LANES,
    LOOP_ROW_ITEMS,
    LOOP_COLUMNS,
    LOOP_COLUMN_LANES,
    LOOP_COLUMN_ITEMS
};
struct opt_list {
    struct tgc *t;
    int store;
    struct opt opt[LIST_MAX + 1]; int n;
    int loop[LOOPS_MAX]; int nloop;          /* tags, outermost first; without lanes */
    bool failed;                             /* too many loops or opts */
};
void list_begin(struct opt_list *l, struct tgc *t, const struct uop *ast, int store);
struct opt *list_add(struct opt_list *l, enum opt_op op, int tag);
/* Position of the loop with this tag; -1: there is none. */
int list_position(const struct opt_list *l, int tag);
/* Forgets the loop, which has become others that the list does not track (lanes, for example). */
void list_remove(struct opt_list *l, int tag);
/* Divides the loop of `size` iterations: the inner loop has n and keeps the tag, the outer one gets
 * the tag `outer`. Does nothing if n is all of them. */
void list_divide(struct opt_list *l, int tag, int64_t size, int64_t n, int outer);
/* Covers the loop by blocks of items * lanes iterations (COVER). The tags name the loops that
 * result: blocks, lanes and items, in this order. lanes_inside: items come before lanes, so a
 * thread's lanes are contiguous. A loop of one block disappears. size: the iterations; 0 if only
 * the run knows. */
struct block_of { int64_t items, lanes; int tag_blocks, tag_lanes, tag_items; bool lanes_inside; };
void list_cover(struct opt_list *l, int64_t size, int tag, const struct block_of *b);
/* list_order() moves the loop to position `to`. list_flatten() merges the loop at `at` with the one
 * inside of it; the result keeps the outer tag. */
void list_order(struct opt_list *l, int tag, int to);
void list_flatten(struct opt_list *l, int at);
/* Gives blocks of n iterations to the worker (ITEM or GRID). size: the iterations, if `fixed`.
 * Returns the number of such blocks, which stay a loop of the same tag. */
int64_t list_take(struct opt_list *l, int64_t size, bool fixed, int64_t n, int tag,
                  enum opt_op worker);
/* n iterations of the loop become a lane of a tile's rows or columns. */
void list_lanes(struct opt_list *l, int tag, int64_t n, bool column);
/* Gives the largest of these loops to the grid, at most three. size: the iterations, by tag. */
void list_grid(struct opt_list *l, const int *tag, const int64_t *size, int n);

/* Vectorizes the loop: n contiguous iterations become one vector of a thread. Must precede all
 * other opts of the store. */
void list_vector(struct opt_list *l, int tag, int64_t size, int64_t n);

/* grid_vector.c. The vector width of the device's language, in elements; 1: it has no vectors. */
int grid_vector_lanes(const struct tgc *t);
/* Whether n iterations of the store's loop src[at] can be a vector: accesses along it are
 * contiguous and aligned, and all operations have vector forms. */
bool grid_vector_fits(struct tgc *t, struct uop *store, int at, int64_t n);
/* The last loop for which grid_vector_fits() holds; -1: there is none. */
int grid_vector_loop(struct tgc *t, struct uop *store, int64_t n);
/* The last loop whose whole vectors fit once the remaining iterations are cut off; -1: there is
 * none. */
int grid_vector_part(struct tgc *t, struct uop *store, int64_t n);

/* A kind of schedule of a store: applies it, or returns false and has changed nothing. shares: its
 * threads share memory. */
struct grid_schedule {
    enum schedule_kind kind;
    bool shares;
    bool (*apply)(struct tgc *t, struct kernel *k, int store);
};
/* Number i, in the order in which they are tried; NULL: there are fewer. */
const struct grid_schedule *grid_schedule_at(int i);
bool grid_schedule_apply(struct tgc *t, const struct grid_schedule *s, struct kernel *k, int store);
/* The store expected to take longest: the largest product of loop sizes, sums included. */
int grid_main_store(struct tgc *t, const struct kernel *k);
/* Whether the kernel is in bands or has scratch that stores share: it has no grid of its own. */
bool grid_has_bands(const struct kernel *k);
/* Notes the grid and the buffers now accessed. The variant in the device's vectors has the same
 * schedule. */
void grid_note_schedule(struct tgc *t, struct kernel *k);

/* Threads of a block, at most. */
enum { THREADS_MOST = 256 };
/* Whether putting r over the grid would recompute something per iteration: a sum or stage that does
 * not depend on r. */
bool grid_repeats(struct tgc *t, struct uop *store, const struct uop *r);

/* Applies the list to its store. NULL: the main store gets one grid index per element. The kernel's
 * other stores follow into the same grid, in blocks of `threads` if that is not 0, with vectors of
 * `lanes` where they fit. false: refused, for the reason *refusal if that is not NULL; nothing has
 * changed. */
bool grid_apply(struct tgc *t, struct kernel *k, const struct opt_list *of, int threads, int lanes,
                struct refusal *refusal);

/* grid_tile.c: a sum of products as blocks of tiles, without matrix instructions. Tries the cost
 * model's tiles from number `first` on, best first, until one is not refused. false: none was
 * applied. Changes k only if true. */
bool grid_tile(struct tgc *t, struct kernel *k, int store, int first);
/* grid_matrix.c: as grid_tile(), by a matrix instruction of ir/matrix.def. false also if the device
 * has none for the factors' values, or if it is not faster. */
bool grid_matrix(struct tgc *t, struct kernel *k, int store, int first);
/* grid_raster.c: tile rasterization of a product's blocks (or clusters). Index 0 is the outer loop,
 * of rows, 1 that of columns. n: blocks; nbytes: what one block reads of that side's operand;
 * at_once: blocks that run concurrently. */
struct raster { int64_t n[2], at_once; double nbytes[2]; };
/* Rows of blocks to group so that concurrent blocks read least from memory; 1: the order does not
 * matter. */
int64_t grid_raster(const struct device_row *d, const struct raster *r);
/* Splits the loop over n rows of blocks into groups, with the tag `tag`, and moves the rows of a
 * group inside the loop over columns. */
void list_raster(struct opt_list *l, int rows, int columns, int64_t n, int64_t group, int tag);
/* grid_attention.c: attention (found by plan_online_find()) as blocks of queries and keys, if
 * cheaper than rows. */
bool grid_attention(struct tgc *t, struct kernel *k);
/* grid_slice.c: few results with long sums, contiguous along columns or terms: blocks of columns
 * whose threads share the sums. */
bool grid_slices(struct tgc *t, struct kernel *k, int store);
/* grid_window.c: a sum over windows of contiguous channels; each thread computes several outputs
 * along a window. */
bool grid_windows(struct tgc *t, struct kernel *k, int store);
/* grid_transpose.c: a transposing store without sums, whose loads are strided where its stores are
 * contiguous. Stages a tile in shared memory if the model finds that faster. false: nothing has
 * changed. */
bool grid_transposed(struct tgc *t, struct kernel *k, int store);
/* grid_rows.c: blocks of rows whose threads share the sums. */
bool grid_rows(struct tgc *t, struct kernel *k, int store);
/* Threads per block for rows of `iterations` iterations: a multiple of the subgroup, limited by the
 * work of a row and by what fills the device. */
int grid_row_threads(const struct device_row *d, double rows, double iterations);
/* Keeps stages of rows in shared memory, or computes them where they are read if they contain no
 * sum. Must precede opts of loops. */
void grid_place_stages(struct opt_list *l, struct tgc *t, struct uop *store);
/* Splits each sum that is invariant over the block among its threads. */
void grid_share_sums(struct tgc *t, struct kernel *k, int store, int threads);
/* Iterations of a sum, and of everything that is computed once for all iterations of the store's
 * loop r: stages, and sums invariant in r. */
double grid_sum_iterations(const struct uop *sum);
double grid_row_iterations(struct tgc *t, struct uop *store, const struct uop *r);
/* Whether `lanes` terms of the sum along r are one transaction: contiguous, aligned words or
 * halves. */
bool grid_reads_vectors(struct tgc *t, struct uop *sum, const struct uop *r, int lanes);
/* The vector width of the sum's loads along its loop `axis`; 1: scalar loads. */
int grid_sum_lanes(struct tgc *t, struct uop *sum, int axis);
/* The sum's loop that its threads share: the longest. */
int grid_longest_loop(const struct uop *sum);

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/* Adds a candidate to best[], a list of n, sorted by rising `ns`, of which the first `most` are
 * kept; returns how many there are. Equal ones stay in the order in which they came. size: of one;
 * ns: where its double `ns` is. */
int grid_keep_best(void *best, int n, int most, size_t size, size_t ns, const void *candidate);
#define KEEP_BEST(best, n, most, candidate)                                                        \
    grid_keep_best(best, n, most, sizeof *(candidate),                                             \
                   (size_t)((const char *)&(candidate)->ns - (const char *)(candidate)), candidate)

#endif
