/* tile.h - private to kernel/: a loop nest with one reduction, and its
 * tiling.
 *
 * Vectors run along columns, rows reuse them:
 *
 *      range r of n columns = panel q · part s · block b · lane v      P = columns of a panel
 *      range of rows        = tile · row
 *
 * If a panel has more lanes than there are columns, loads and the store are conditional on the
 * column.
 *
 *      for q  for s  for tile             acc[row][b] = 0
 *                      for k              acc[row][b] += a[tile, row, k] * w[q, k, s, b, v]
 *
 * A weight is packed panel by panel, in the order in which it is read. Variants of a kernel have
 * different tiles but the same panel, so that they share the packed weight.
 */
#ifndef TGC_TILE_H
#define TGC_TILE_H

#include "passes/analysis/access.h"
#include "passes/analysis/nest.h"
#include "passes/passes.h"
#include "passes/target/tune.h"

enum { VECTOR_STRIDE_MAX = 1 << 30 };
/* The least number of contiguous rows for which storing by columns pays, see transpose_store.c. */
enum { CROSS_ROWS_MIN = 4 };

/* pack.c: whether a load's weight could be packed in the order of the loops. */
bool nest_is_packable(const struct nest *m, const struct uop *load);

/* Whether it can be loaded as vectors: floats, and dtypes that are cast to floats on the way. */
bool tile_is_vector_dtype(enum dtype d);
/* Whether u compares coordinates that are invariant or of stride 1 along r, which vectors can
 * do. */
bool tile_compares_places(struct tgc *t, const struct uop *u, struct uop *r);
/* Whether vectors have this operation. */
bool tile_is_vector_op(const struct uop *u);

/* choose_tile.c */
/* Whether r can be vectorized: everything that varies along it is a float, is accessed
 * contiguously, and has an operation on vectors; r itself occurs in offsets only. */
bool nest_vectors_fit(const struct nest *m, struct uop *r);
/* Whether r's size is the run's, and a contraction's columns may run along it all the same: pixels
 * of a layer of few channels. Whole vectors of them, and a last one that overlaps (opt overlap). */
bool nest_columns_are_open(const struct nest *m, const struct uop *r);
/* Columns of the portable kernel's smallest tile along such a loop. */
enum { OPEN_COLUMNS = 8 };
/* Whether an unconditional store of floats has a stride along r that only the run knows: planes of
 * an image of open height. Such lanes are stored by columns (transpose_store.c). */
bool store_is_apart_by_run(struct tgc *t, const struct uop *store, struct uop *r);
/* Whether a load that varies along r is conditional already, or has small elements: it cannot be
 * loaded partially. */
bool nest_has_gates(const struct nest *m, const struct uop *r);
/* The tile number `pick` of those that the cost model ranks highest, 0 the best; column_axis -1:
 * there is none. `like`: a variant's tile, whose panel is kept, or NULL. exact: without remainder
 * columns in a store of their own. */
struct tile tile_choose_vectors(const struct nest *m, enum isa isa,
                                const struct tile *like, bool exact, int pick);
/* The tile of a kernel's nest: of vectors, or the portable kernel's if vectors do not fit. */
struct tile tile_choose(const struct nest *m, enum isa isa, const struct tile *like, int pick);

/* Whether u is the value of the store, a float that is cast to a byte. */
bool tile_stores_small(const struct uop *store, const struct uop *u);
/* Whether the store's value can be stored as vectors: floats, i32, floats that become bytes. */
bool tile_stores_vectors(const struct uop *store);

/* The remainder columns of whole tiles; more, if partial vectors of them cannot be loaded: then
 * some columns are stored twice, so that all vectors are whole. */
int64_t tile_columns_left(const struct nest *m, const struct tile *tile);
/* Whether a tile's panels should be outside the rows or inside. */
enum panels tile_place_panels(const struct nest *m, const struct tile *tile);
/* Lists the opts of a nest's tile, at most OPTS_OF_TILE; like: whose loops they name. Returns their
 * number. */
enum { OPTS_OF_TILE = 80 };
int tile_opts(const struct nest *m, const struct tile *tile, const struct opt *like,
              struct opt *opt);
/* fragment.c: sums of products of bytes by a unit that multiplies tiles. `high` x `wide` tiles at
 * once, each of `rows` of the loop store->src[row_axis] by a vector of columns. columns: the tile
 * without rows; groups: of bytes that one product sums. */
struct fragment {
    int row_axis;
    int64_t rows, high, wide, groups;
    struct tile columns;
    double gain;
};
/* Candidate number `pick` of those that the cost model ranks highest; false: there is none. ast:
 * all its tiles must have one shape, since a kernel configures its tile registers once. */
enum { FRAGMENTS_MAX = 4 };
bool fragment_choose(const struct nest *m, struct uop *ast, enum isa isa, const struct tile *tile,
                     int pick, struct fragment *best);
/* Lists the opts of a fragment, for a store whose columns have lanes and whose weights are packed.
 * row: its loop of rows; like: whose loops they name. Returns their number. */
enum { OPTS_OF_FRAGMENT = 3 };
int fragment_opts(const struct uop *store, const struct uop *row, const struct fragment *f,
                  const struct opt *like, struct opt *opt);
bool fragments_are_used(struct tgc *t, struct uop *ast);
/* decide_stacks.c: the first loop of a store that is to be unrolled for a STACK, as an index of
 * store->src; -1: there is none. needs: a nest without a reduction */
int stacks_axis(struct tgc *t, const struct uop *store);
/* The store, all of whose other STACKs have become decisions. */
struct uop *stacks_decide(struct tgc *t, struct uop *store);
/* The AST without STACKs for whose loops the passes that unroll them were left out
 * (TGC_OPT_LIMIT). */
struct uop *stacks_settle(struct tgc *t, struct uop *ast);
/* divide_ranges.c: the smallest constant by which r itself is divided below store; 0: none.
 * *reduces: there are sums. */
int64_t range_divisor(struct tgc *t, struct uop *store, const struct uop *r, bool *reduces);
/* divide_sums.c: splits the reduction ranges of store number `at` that an offset divides exactly.
 * stage: of the sums of this one of the store's stages alone, -1: of all. v: of a variant, or
 * NULL. */
void divide_sums(struct tgc *t, struct kernel *k, struct variant *v, int at, int stage);
/* tile_nest.c: the store's sum number `number`, sources first; the STORE instead if the sum is not
 * in the stage (-1: all are). NULL: there are no more. */
struct uop *store_sum(struct tgc *t, struct uop *store, int stage, int number);
/* group_bytes.c. Splits the innermost range of a sum of products of bytes or bf16 into groups of
 * DOT_BYTES bytes. */
struct uop *tile_group_bytes(struct tgc *t, struct uop *store);
/* order_gathers.c: which ranges of the store had best stand inside the innermost one, since its
 * gathered indices are invariant in them; first: index of its first range. Returns how many. */
int gathers_find_inner(struct tgc *t, const struct uop *store, int first, int *axis);
/* opts_device.c: u with the condition `valid` on all its loads that depend on q or p. */
struct uop *loads_if(struct tgc *t, struct uop *u, struct uop *valid, const struct uop *q,
                     const struct uop *p);
/* make_variants.c: the kernel as it is, for one instruction set. */
struct variant kernel_variant(struct tgc *t, const struct kernel *k, enum isa isa);
/* The instruction sets for which the kernel may have variants; those that differ only in sums of
 * groups, if it has some of theirs. *widest: the first of them. */
isa_set kernel_variants_of(struct tgc *t, const struct schedule *s, const struct kernel *k,
                           enum isa *widest);
/* Whether two sets of one width sum the AST's groups by different functions; tiles: or one of them
 * by tiles. */
bool sets_differ(struct tgc *t, struct uop *ast, enum isa a, enum isa b, bool tiles);
/* part.c: whether a nest stores to scratch for the others: a band's nests cannot be separated. */
bool kernel_is_band(const struct kernel *k);
/* A kernel of n of another one's nests. number: of this part, which its name has. */
struct kernel *kernel_of_nests(struct tgc *t, const struct kernel *from, struct uop *const *store,
                               int n, int number);
/* collect.c: replaces each store of the kernel; true. */
typedef struct uop *(*store_pass)(struct tgc *t, struct uop *store);
bool kernel_each_store(struct tgc *t, struct kernel *k, store_pass pass);
/* thread.c: whether the kernel reads what it writes, so that threads could meet. */
bool kernel_reads_results(struct tgc *t, const struct kernel *k);
/* The row stride, in elements, for rows of `nelem` in scratch. */
int64_t scratch_pitch(const struct tgc *t, int64_t nelem);
/* share_stages.c: the store with its range `axis` in steps of `rows`, which divides it, that share
 * the stages; the same store: none of these is worth it. */
struct uop *rows_take(struct tgc *t, struct kernel *k, struct uop *store, int axis, int64_t rows);
/* gather_rows.c: the store with n iterations of its range `point`, which they divide, taken at a
 * time; gathered rows are loaded along `row`. The store itself if it gathers no such rows. */
struct uop *points_take(struct tgc *t, struct kernel *k, struct uop *store, int point, int row,
                        int64_t n);
/* stage_places.c: stages gathered indices, and other values that are invariant along the row,
 * for all points at once; whether there is anything for which that pays. The kernel gets new
 * scratch. */
bool has_places(struct tgc *t, struct uop *value, struct uop *point, struct uop *row);
struct uop *stage_places(struct tgc *t, struct kernel *k, struct uop *value, struct uop *point,
                         struct uop *row);
/* opts_registers.c. Replaces memory that KEEP_IN_REGISTERS has put in registers by each thread's
 * own elements: for linear programs. */
void kernel_keep_registers(struct tgc *t, struct kernel *k);
/* New scratch of n elements for the kernel. */
struct buffer *kernel_new_scratch(struct tgc *t, struct kernel *k, enum dtype d, int64_t n);
/* A STAGE as the nest of a store to its scratch, and back. */
struct uop *stage_as_store(struct tgc *t, const struct uop *stage);
struct uop *store_as_stage(struct tgc *t, const struct uop *store);
/* tile_nest.c: tiles store `at` of the variant; returns the next store after its results. nest: its
 * number before all this; like: in and out, a tile whose panel is kept. */
int tile_nest(struct tgc *t, struct kernel *k, struct variant *v, int at, int nest,
               struct tile *like);
/* order_sums.c: the loops of the sums of the store, or of its stage of that number (-1: of none),
 * in the order of what they read. */
void order_sums(struct tgc *t, struct kernel *k, struct variant *v, int at, int stage);
/* tune_key.c: the key of choices about a store in a tune file. */
uint64_t tune_key_of_store(struct tgc *t, struct uop *store);
/* tune_opts.c: a pass's treatment of store `at` as a choice among lists of opts; of the variant, or
 * of the kernel if that is NULL. nest: the number of the store at the beginning. */
struct opts_choice {
    struct tgc *t;
    struct kernel *k;
    struct variant *v;
    int at, first;               /* first: of the noted opts, the list's */
    int debug;                   /* candidates are not reported: t->debug, until they are done */
    struct choice of;
};
void opts_choice_begin(struct opts_choice *c, struct tgc *t, struct kernel *k, struct variant *v,
                       enum tune_kind kind, int at, int nest, uint64_t more);
/* How many candidates are wanted of each kind. */
int opts_choice_width(const struct opts_choice *c);
/* A candidate: what was done to copies of kernel and variant. */
void opts_choice_add(struct opts_choice *c, const struct kernel *k, const struct variant *v,
                     const struct tile *tile);
/* After all candidates: applies the file's list, if it has a line for the choice. *end: the store
 * after the nest's. */
bool opts_choice_replay(struct opts_choice *c, int *end);
/* Notes what has been done since the beginning. */
void opts_choice_end(struct opts_choice *c);
/* The columns of the tile that a list of opts makes of the store: axis and panel; column_axis -1:
 * it makes none. */
struct tile opts_columns(const struct uop *store, const struct opts *list);

/* thread.c: whether threads would share the kernel's loops, if its nests did not
 * depend on each other. */
bool threads_may_share(struct tgc *t, const struct kernel *k, const struct schedule *s);

#endif
