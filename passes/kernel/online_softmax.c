/* online_softmax.c - attention by blocks of keys: a running maximum instead of whole rows of
 * scores.
 *
 *      for head, 32 queries                     band
 *        q[e][r] = the queries, m = -inf, l = 0, a = 0
 *        for block of keys                      band, of the keys that the queries may see
 *          s[j][r] = sum over e  q[e][r] * k[j, e]
 *          n[r]    = max(m[r], max over j  s[j][r])
 *          s[j][r] = exp(s[j][r] - n[r])
 *          c[r]    = exp(m[r] - n[r]), m[r] = n[r]
 *          l[r]    = c[r] * l[r] + sum over j  s[j][r]
 *          a[r][f] = c[r] * a[r][f] + sum over j  s[j][r] * v[j, f]
 *        y[r, f] = a[r][f] / l[r]
 *
 * (Milakov, Gimelshein: Online normalizer calculation for softmax; Dao et al.: FlashAttention.)
 *
 * Scratch holds one block, however long the rows are. Vectors run along the queries, which are
 * copied once for all keys; keys are not copied. The loop over blocks excludes keys that a mask
 * hides from all queries of a tile (mask_bounds.c). Keys hidden from some queries are masked by
 * float comparisons with one bound for each query.
 *
 * A maximum of -inf counts as 0 where it is subtracted. So rows without a visible key so far are
 * zeros. Rows that never have one are 0 / 0, as without blocks, or what the model chose for them.
 *
 * needs: the AST of one segment, whose stages hold rows of scores and of their exponentials */
#include "passes/analysis/access.h"
#include "passes/kernel/online_softmax.h"
#include "passes/kernel/tile.h"

#include <math.h>

enum { BLOCK_MOST = 256 };

/* --------------------------------------------------------------------------------- what is made */

struct buffer *online_new_scratch(struct online *x, enum dtype d, int64_t n, const char *word)
{
    struct uop *dim = uop_int(x->t, n);
    struct buffer *b = buffer_new(x->t, BUFFER_SCRATCH, d, &dim, 1, NULL);
    b->scratch.word = word;
    return b;
}

struct uop *online_range(struct online *x, struct uop *size, const char *name)
{
    if (uop_is_int(size, 1))
        return uop_int(x->t, 0);
    struct uop *r = uop_range(x->t, size, x->t->next_range++);
    uop_name_axes(x->t, r, name);
    return r;
}

struct uop *online_rows(struct online *x) { return online_range(x, uop_int(x->t, x->rows), "row"); }

struct uop *online_load(struct online *x, struct buffer *b, struct uop *at)
{
    struct uop *src[2] = {uop_buffer(x->t, b), at};
    return uop_intern(x->t, OP_LOAD, b->dtype, src, 2, (union arg){0});
}

/* Stores value to b at `at`, over all of the ranges. */
void online_put(struct online *x, enum level level, struct buffer *b, struct uop *at,
                struct uop *value, struct uop *const *range, int nrange)
{
    struct uop *src[2 * MAX_RANK + 4];
    int n = 0;
    src[n++] = uop_buffer(x->t, b);
    src[n++] = at;
    src[n++] = value;
    if ((level == BEHIND || level == KEYS) && x->valid)
        src[n++] = x->valid;
    for (int k = 0; k < x->nband - (level == HEAD && x->has_tiles); k++)
        src[n++] = x->band[k];
    if ((level == PASS || level == KEYS) && x->pass)
        src[n++] = x->pass;
    if (level == KEYS && x->block->op == OP_RANGE)
        src[n++] = x->block;
    for (int k = 0; k < nrange; k++)
        if (range[k]->op == OP_RANGE)
            src[n++] = range[k];
    struct uop *store = uop_intern(x->t, OP_STORE, value->dtype, src, n, (union arg){0});
    struct stores *to = &x->out[level];
    VEC_PUSH(x->t, to->u, to->n, to->cap, store);
}

struct uop *online_band(struct online *x, struct uop *size, const struct uop *like)
{
    if (uop_is_int(size, 1))
        return uop_int(x->t, 0);
    struct uop *r = uop_axis(x->t, size, AXIS_BAND, WORKER_EACH);
    if (like && uop_get_axes(x->t, like))
        uop_name_axes(x->t, r, uop_get_axes(x->t, like));
    return r;
}

/* u of the AST for the query `row` of the tile, clamped to the last query. */
struct uop *online_for_row(struct online *x, struct uop *u, struct uop *row)
{
    struct uop *i = sym_add(x->t, x->tile, row);
    int64_t n;
    if (!uop_const_int(x->nrow, &n) || n % x->rows)
        i = sym_min(x->t, i, sym_addi(x->t, x->nrow, -1));
    return uop_substitute(x->t, u, x->row, i);
}

/* Later queries see more keys. On a device blocks with the most keys start first
 * (online_order.c). */
static struct uop *from_end(struct tgc *t, struct uop *r)
{
    return sym_sub(t, sym_addi(t, r->src[0], -1), r);
}

/* 0, n - 1, 1, n - 2 ...: balances the contiguous shares of threads. */
static struct uop *from_both_ends(struct tgc *t, struct uop *r)
{
    struct uop *half = sym_div(t, r, uop_int(t, 2)), *odd = sym_mod(t, r, uop_int(t, 2));
    struct uop *last = sym_sub(t, sym_addi(t, r->src[0], -1), half);
    return uop_where(t, uop_binary(t, OP_EQ, odd, uop_int(t, 0)), half, last);
}

/* The maximum or minimum over the tile of u, an expression of a query's index. */
static struct uop *in_tile(struct online *x, struct uop *u, bool most)
{
    struct tgc *t = x->t;
    struct uop *r = online_range(x, uop_int(t, x->rows), "row"), *i = sym_add(t, x->tile, r);
    struct uop *known = visible_extreme(t, uop_substitute(t, u, x->row, i), r, most);
    if (known)
        return known;
    /* u is not monotone: take it over all rows */
    struct buffer *b = online_new_scratch(x, DTYPE_INDEX, 1, "bound");
    struct uop *src[2] = {online_for_row(x, u, r), r};
    src[0] = sym_max(t, sym_min(t, src[0], x->nkey), uop_int(t, 0));
    online_put(x, TILE, b, uop_int(t, 0),
               uop_intern(t, OP_REDUCE, DTYPE_INDEX, src, 2,
                          (union arg){.i = ARG_PACK(REDUCE, most ? OP_MAX : OP_MIN, 0)}),
               NULL, 0);
    return online_load(x, b, uop_int(t, 0));
}

/* The condition that the block has keys that the bound hides from some queries of the tile; *seen:
 * the condition that a key is not hidden. NULL: the bound is equal for all queries, or its effect
 * is unknown. */
static struct uop *may_hide(struct online *x, struct bound *b, struct uop *row, struct uop *key,
                            struct uop **seen)
{
    struct tgc *t = x->t;
    int value = visible_value(t, x->scores->src[0], x->dot, b->cond);
    if (value < 0 || !uop_depends_on(t, b->at, x->row))
        return NULL;
    struct uop *r = online_rows(x), *at = online_for_row(x, b->at, r);
    struct buffer *kept = online_new_scratch(x, DTYPE_F32, x->rows, "bounds");
    at = sym_max(t, sym_min(t, at, x->nkey), uop_int(t, 0));
    online_put(x, TILE, kept, r, uop_cast(t, DTYPE_F32, at), &r, 1);
    *seen = uop_binary(t, OP_LT, uop_cast(t, DTYPE_F32, key), online_load(x, kept, row));
    bool is_end = b->below == (value == 1);
    if (!is_end)
        *seen = uop_not(t, *seen);
    struct uop *extreme = in_tile(x, is_end ? sym_min(t, b->at, x->nkey) : b->at, !is_end);
    return is_end ? sym_lt(t, extreme, sym_addi(t, x->at, x->step)) : sym_lt(t, x->at, extreme);
}

struct uop *online_hide(struct online *x, struct uop *scores, struct uop *row, struct uop *key,
                        struct uop **seen, struct uop **some)
{
    struct tgc *t = x->t;
    struct uop *is;
    *seen = *some = NULL;
    for (int k = 0; k < x->visible.nbound; k++) {
        struct bound *b = &x->visible.bound[k];
        struct uop *hides = may_hide(x, b, row, key, &is);
        if (!hides)
            continue;
        int value = visible_value(t, x->scores->src[0], x->dot, b->cond);
        scores = uop_substitute(t, scores, b->cond, uop_bool(t, value == 1));
        b->is_apart = true;
        *some = *some ? uop_binary(t, OP_OR, *some, hides) : hides;
        *seen = *seen ? uop_binary(t, OP_AND, *seen, is) : is;
    }
    return scores;
}

static struct uop *align_down(struct tgc *t, struct uop *u, int64_t n)
{
    return sym_muli(t, sym_div(t, u, uop_int(t, n)), n);
}

/* Opens the tile's queries, and finds the keys that they see. */
static void open_tile(struct online *x)
{
    struct tgc *t = x->t;
    struct uop *zero = uop_int(t, 0), *begin = NULL, *end = NULL, *most = NULL;
    for (int k = 3; k < x->store->nsrc; k++)
        if (range_is(x->store->src[k], AXIS_BAND))
            x->band[x->nband++] = x->store->src[k];
    struct uop *tile = online_band(x, sym_ceildiv(t, x->nrow, x->rows), x->row);
    visible_find(t, x->scores->src[0], x->key, x->dot, &x->visible);
    if (x->whole && x->visible.is_finite)     /* keys under a finite mask may count: no pass for
                                               * it */
        x->visible = (struct visible){0};
    bool even = !x->visible.end && !x->visible.begin;
    x->has_tiles = tile->op == OP_RANGE;
    if (x->has_tiles)
        x->band[x->nband++] = tile;
    if (x->has_tiles && x->heads_inside) {
        x->band[x->nband - 1] = x->band[x->nband - 2];
        x->band[x->nband - 2] = tile;
    }
    if (x->has_tiles && x->heads_inside)
        tile = from_end(t, tile);
    else if (x->has_tiles && t->threads > 1 && !even)
        tile = from_both_ends(t, tile);
    x->tile = sym_muli(t, tile, x->rows);
    if (x->visible.end)
        end = in_tile(x, x->visible.end, true);
    if (x->visible.begin)
        begin = in_tile(x, x->visible.begin, false);
    if (begin && end)
        most = sym_sub(t, end, begin);
    if (end && x->visible.is_finite)
        end = align_down(t, sym_addi(t, end, x->align - 1), x->align);
    x->end = end ? sym_max(t, sym_min(t, end, x->nkey), zero) : x->nkey;
    x->begin = begin ? align_down(t, sym_max(t, sym_min(t, begin, x->end), zero), x->align) : zero;
    int64_t keys = most ? most->vmax : INT64_MAX - x->group;
    keys = keys + x->group - 1 < x->nkey->vmax ? keys + x->group - 1 : x->nkey->vmax;
    keys = keys < x->group ? x->group : (keys + x->group - 1) / x->group * x->group;
    x->most_keys = x->whole ? x->step : keys <= BLOCK_MOST ? keys : x->step;
}

/* Opens the loop over blocks of the keys that the tile sees. If a mask is finite, its keys follow
 * in two more passes, unless all queries have seen scores that outweigh them. */
static void open_blocks(struct online *x, struct uop *outweighed)
{
    struct tgc *t = x->t;
    struct uop *begin = x->begin, *end = x->end, *zero = uop_int(t, 0);
    if (x->pass) {
        struct uop *first = sym_lt(t, x->pass, uop_int(t, 1)),
                   *second = sym_lt(t, x->pass, uop_int(t, 2));
        begin = uop_where(t, first, x->begin, uop_where(t, second, zero, x->end));
        end = uop_where(t, first, x->end, uop_where(t, second, x->begin, x->nkey));
    }
    struct uop *n = sym_max(t, sym_ceildiv(t, sym_sub(t, end, begin), x->most_keys), zero);
    if (x->pass)
        n = uop_where(t, uop_binary(t, OP_AND, outweighed, sym_lt(t, zero, x->pass)), zero, n);
    x->block = online_band(x, n, NULL);
    if (x->block->op == OP_RANGE)
        uop_name_axes(t, x->block, "span");
    x->at = sym_add(t, begin, sym_muli(t, x->block, x->most_keys));
    x->n = x->whole ? uop_int(t, x->most_keys)
                    : sym_min(t, sym_sub(t, end, x->at), uop_int(t, x->most_keys));
}

void online_open_blocks(struct online *x) { open_blocks(x, NULL); }

/* Whether keys under a finite mask have exponentials of 0 for all of the tile's queries, given what
 * these have seen: e^-110 is 0 in f32. A dot product of a query and a key is at most the sum of the
 * query's magnitudes times the largest magnitude over all keys. */
static struct uop *outweighs_mask(struct online *x, struct buffer *query, struct buffer *seen)
{
    enum { NONE = 110 };
    const double rounding = 1.001;
    struct tgc *t = x->t;
    struct uop *e = x->dot->src[1], *row = online_range(x, uop_int(t, x->rows), "row"), *src[2],
               *gap;
    union arg add = {.i = ARG_PACK(REDUCE, OP_ADD, 0)}, max = {.i = ARG_PACK(REDUCE, OP_MAX, 0)};
    struct buffer *least = online_new_scratch(x, DTYPE_F32, 1, "least");
    gap = uop_binary(t, OP_ADD, online_load(x, seen, row),
                     uop_constf(t, DTYPE_F32, -x->visible.value));
    if (x->visible.factor > 0) {
        struct buffer *keys = online_new_scratch(x, DTYPE_F32, e->src[0]->arg.i, "key_max"),
                      *reach = online_new_scratch(x, DTYPE_F32, x->rows, "reach");
        struct uop *j = online_range(x, x->nkey, "j"), *f = online_range(x, e->src[0], "e"),
                   *r = online_rows(x);
        src[0] = uop_substitute(t, uop_substitute(t, x->keys, x->key, j), e, f);
        src[0] = uop_unary(t, OP_ABS, src[0]);
        src[1] = j;
        /* threads that share tiles each have their own */
        online_put(x, t->threads > 1 ? TILE : HEAD, keys, f,
                   uop_intern(t, OP_REDUCE, DTYPE_F32, src, 2, max), &f, 1);
        src[1] = f = online_range(x, e->src[0], "e");
        src[0] =
            uop_unary(t, OP_ABS, online_load(x, query, sym_add(t, sym_muli(t, f, x->rows), r)));
        src[0] = uop_binary(t, OP_MUL, src[0], online_load(x, keys, f));
        src[0] = uop_intern(t, OP_REDUCE, DTYPE_F32, src, 2, add);
        online_put(x, TILE, reach, r,
                   uop_binary(t, OP_MUL, src[0],
                              uop_constf(t, DTYPE_F32, x->visible.factor * rounding)), &r, 1);
        gap = uop_binary(t, OP_SUB, gap, online_load(x, reach, row));
    }
    src[0] = gap;
    src[1] = row;
    x->pass = uop_axis(t, uop_int(t, 3), AXIS_BAND, WORKER_EACH);
    uop_name_axes(t, x->pass, "pass");
    online_put(
        x, PASS, least, uop_int(t, 0),
        uop_intern(t, OP_REDUCE, DTYPE_F32, src, 2, (union arg){.i = ARG_PACK(REDUCE, OP_MIN, 0)}),
        NULL, 0);
    return uop_binary(t, OP_LT, uop_constf(t, DTYPE_F32, NONE),
                      online_load(x, least, uop_int(t, 0)));
}

/* Compares a key's index with a bound that depends on the query, as floats, so that vectors run
 * along the queries. */
struct uop *online_compare_bounds(struct online *x, struct uop *scores, struct uop *row,
                                  struct uop *key)
{
    struct tgc *t = x->t;
    for (int k = 0; k < x->visible.nbound; k++) {
        const struct bound *b = &x->visible.bound[k];
        if (!uop_depends_on(t, b->at, x->row) || b->is_apart)
            continue;
        struct uop *r = online_rows(x), *at = online_for_row(x, b->at, r);
        struct buffer *kept = online_new_scratch(x, DTYPE_F32, x->rows, "bounds");
        /* clamping to the range of keys changes no comparison, and is exact in a float */
        at = sym_max(t, sym_min(t, at, x->nkey), uop_int(t, 0));
        online_put(x, TILE, kept, r, uop_cast(t, DTYPE_F32, at), &r, 1);
        struct uop *less =
            uop_binary(t, OP_LT, uop_cast(t, DTYPE_F32, key), online_load(x, kept, row));
        scores = uop_substitute(t, scores, b->cond, b->below ? less : uop_not(t, less));
    }
    return scores;
}

/* Whether a mask that depends on the query hides keys after the last one, which the last group may
 * include. */
bool online_ends_by_mask(const struct online *x)
{
    return x->visible.end && !x->visible.is_finite && uop_depends_on(x->t, x->visible.end, x->row);
}

/* q[e][r] */
static struct buffer *put_query(struct online *x)
{
    struct tgc *t = x->t;
    struct uop *e = x->dot->src[1], *copy[2] = {online_rows(x), online_range(x, e->src[0], "e")};
    struct buffer *query = online_new_scratch(x, DTYPE_F32, x->rows * e->src[0]->arg.i, "queries");
    struct uop *q = uop_substitute(t, online_for_row(x, x->query, copy[0]), e, copy[1]);
    online_put(x, TILE, query, sym_add(t, sym_muli(t, copy[1], x->rows), copy[0]), q, copy, 2);
    return query;
}

/* Whether all blocks, or groups, are whole. */
bool online_is_whole(const struct online *x)
{
    int64_t n;
    return uop_const_int(x->nkey, &n) && n % x->align == 0;
}

/* u, computed in the AST for a key and a query, for those of the block and the tile. */
struct uop *online_for_key(struct online *x, struct uop *u, struct uop *place, struct uop *row)
{
    struct tgc *t = x->t;
    struct uop *key = sym_add(t, x->at, place), *last = sym_addi(t, x->nkey, -1);
    if (online_is_whole(x))
        return online_for_row(x, uop_substitute(t, u, x->key, key), row);
    if (x->whole)                /* nothing is read after the last key, nor is that read twice */
        return loads_if(t, online_for_row(x, uop_substitute(t, u, x->key, key), row),
                        sym_lt(t, key, x->nkey), place, place);
    return online_for_row(x, uop_substitute(t, u, x->key, sym_min(t, key, last)), row);
}

/* s[j][r], a group of keys at a time. */
static struct buffer *put_scores(struct online *x, struct buffer *query)
{
    struct tgc *t = x->t;
    struct buffer *scores = online_new_scratch(x, DTYPE_F32, x->rows * x->most_keys, "scores");
    struct uop *range[3] = {online_range(x, sym_ceildiv(t, x->n, x->align), "j"),
                            online_range(x, uop_int(t, x->align), "key"), online_rows(x)};
    struct uop *place = sym_add(t, sym_muli(t, range[0], x->align), range[1]),
               *key = sym_add(t, x->at, place);
    struct uop *e = x->dot->src[1];
    struct uop *factor = online_load(x, query, sym_add(t, sym_muli(t, e, x->rows), range[2]));
    struct uop *product[2] = {uop_binary(t, OP_MUL, factor, x->keys), e};
    struct uop *dot = uop_intern(t, OP_REDUCE, x->dot->dtype, product, 2, x->dot->arg);
    struct uop *value = online_compare_bounds(x, x->scores->src[0], range[2], key);
    value = uop_substitute(t, value, x->dot, dot);
    value = online_for_key(x, value, place, range[2]);
    if (!online_is_whole(x) && !online_ends_by_mask(x))
        value = uop_where(t, sym_lt(t, key, x->nkey), value,
                          uop_constf(t, DTYPE_F32, -(double)INFINITY));
    online_put(x, KEYS, scores, sym_add(t, sym_muli(t, place, x->rows), range[2]), value, range, 3);
    return scores;
}

/* Reduces by `op` over the block's keys, in groups whose results are combined where they are
 * used. */
static struct uop *fold_keys(struct online *x, enum op op, struct buffer *scores, struct uop *row)
{
    struct tgc *t = x->t;
    struct buffer *parts = online_new_scratch(x, DTYPE_F32, x->group * x->rows,
                                              op == OP_MAX ? "max_parts" : "sum_parts");
    struct uop *range[2] = {online_range(x, uop_int(t, x->group), "key"), online_rows(x)};
    struct uop *j = online_range(x, sym_ceildiv(t, x->n, x->group), "j"), *src[2];
    struct uop *place = sym_add(t, sym_muli(t, j, x->group), range[0]);
    union arg arg = {.i = ARG_PACK(REDUCE, op, 0)};
    src[0] = online_load(x, scores, sym_add(t, sym_muli(t, place, x->rows), range[1]));
    src[1] = j;
    online_put(x, KEYS, parts, sym_add(t, sym_muli(t, range[0], x->rows), range[1]),
               j->op == OP_RANGE ? uop_intern(t, OP_REDUCE, DTYPE_F32, src, 2, arg) : src[0], range,
               2);
    src[1] = online_range(x, uop_int(t, x->group), "key");
    src[0] = online_load(x, parts, sym_add(t, sym_muli(t, src[1], x->rows), row));
    return uop_intern(t, OP_REDUCE, DTYPE_F32, src, 2, arg);
}

/* The store's columns, on which the scores do not depend. */
int online_columns(const struct online *x, struct uop **column, int64_t *n)
{
    int ncolumn = 0;
    *n = 1;
    for (int k = 3; k < x->store->nsrc; k++) {
        struct uop *r = x->store->src[k];
        if (r == x->row || range_is(r, AXIS_BAND))
            continue;
        if (r->src[0]->op != OP_CONST || ncolumn == MAX_RANK)
            return -1;
        column[ncolumn++] = r;
        *n *= r->src[0]->arg.i;
    }
    return ncolumn;
}

static struct uop *column_place(struct online *x, struct uop *const *column, int n)
{
    struct uop *at = uop_int(x->t, 0);
    for (int k = 0; k < n; k++)
        at = sym_add(x->t, sym_mul(x->t, at, column[k]->src[0]), column[k]);
    return at;
}

/* y[r, f]; nothing is stored for queries after the last one. */
static void put_result(struct online *x, struct uop *const *column, int n, struct buffer *sum,
                       struct buffer *product, struct buffer *most)
{
    struct tgc *t = x->t;
    struct uop *range[MAX_RANK + 1], *rest = sym_sub(t, x->nrow, x->tile), *to = x->store->src[0];
    int64_t ncolumns, nrow;
    (void)online_columns(x, range, &ncolumns);
    struct uop *row = x->whole ? online_rows(x)
                               : online_range(x, sym_min(t, rest, uop_int(t, x->rows)), "row");
    bool some = x->whole && !(uop_const_int(x->nrow, &nrow) && nrow % x->rows == 0);
    range[0] = row;
    for (int k = 0; k < n; k++)
        range[k + 1] = column[k];
    struct uop *at = sym_add(t, sym_muli(t, row, ncolumns), column_place(x, column, n));
    struct uop *value = x->store->src[2];
    value = uop_substitute(t, value, x->product, online_load(x, product, at));
    value = uop_substitute(t, value, x->sum, online_load(x, sum, row));
    value = uop_substitute(t, value, x->most, online_load(x, most, row));
    value = x->whole ? online_for_row(x, value, row)
                     : uop_substitute(t, value, x->row, sym_add(t, x->tile, row));
    x->valid = some ? sym_lt(t, row, rest) : NULL;
    online_put(x, BEHIND, (struct buffer *)(uintptr_t)uop_buffer_of(to),
               uop_substitute(t, x->store->src[1], x->row, sym_add(t, x->tile, row)), value, range,
               n + 1);
}

/* What a tile keeps of each query from block to block. most: the maximum without the present
 * block's scores; now: with them. less: the factor of what was summed before. sum: of exponentials;
 * product: with the values. seen: a copy of the maximum for reads outside the loop that updates it,
 * if a mask is finite. */
struct running { struct buffer *most, *now, *less, *sum, *product, *seen; };

void online_put_rows(struct online *x, enum level level, struct buffer *b, int64_t n,
                     struct uop *value)
{
    struct uop *row = online_range(x, uop_int(x->t, n), "row");
    online_put(x, level, b, row, value, &row, 1);
}

static struct running put_first(struct online *x, int64_t ncolumns, struct uop *low)
{
    int64_t rows = x->rows;
    struct running b = {.most = online_new_scratch(x, DTYPE_F32, rows, "row_max"),
                        .now = online_new_scratch(x, DTYPE_F32, rows, "new_max"),
                        .less = online_new_scratch(x, DTYPE_F32, rows, "rescale"),
                        .sum = online_new_scratch(x, DTYPE_F32, rows, "row_sum"),
                        .product = online_new_scratch(x, DTYPE_F32, rows * ncolumns, "acc")};
    struct uop *zero = uop_constf(x->t, DTYPE_F32, 0);
    online_put_rows(x, TILE, b.most, rows, low);
    online_put_rows(x, TILE, b.sum, rows, zero);
    online_put_rows(x, TILE, b.product, rows * ncolumns, zero);
    return b;
}

/* The maximum of a query including this block's scores, in the form that is subtracted. */
static struct uop *load_top(struct online *x, const struct running *b, struct uop *row,
                            struct uop *low)
{
    struct tgc *t = x->t;
    struct uop *top = online_load(x, b->now, row);
    return uop_where(t, uop_binary(t, OP_EQ, top, low), uop_constf(t, DTYPE_F32, 0), top);
}

/* n[r], c[r], m[r] */
static void put_maximum(struct online *x, const struct running *b, struct buffer *scores,
                        struct uop *low)
{
    struct tgc *t = x->t;
    struct uop *row = online_rows(x);
    struct uop *all =
        uop_binary(t, OP_MAX, online_load(x, b->most, row), fold_keys(x, OP_MAX, scores, row));
    online_put(x, KEYS, b->now, row, all, &row, 1);
    row = online_rows(x);
    struct uop *gap = uop_binary(t, OP_SUB, online_load(x, b->most, row), load_top(x, b, row, low));
    online_put(x, KEYS, b->less, row, uop_unary(t, OP_EXP, gap), &row, 1);
    row = online_rows(x);
    online_put(x, KEYS, b->most, row, online_load(x, b->now, row), &row, 1);
    row = online_rows(x);
    if (b->seen)
        online_put(x, KEYS, b->seen, row, online_load(x, b->now, row), &row, 1);
}

/* What was summed before this block, rescaled, plus this block's sum. */
static struct uop *add_block(struct online *x, struct uop *before, const struct running *b,
                             struct uop *row, struct uop *more)
{
    struct tgc *t = x->t;
    return uop_binary(t, OP_ADD, uop_binary(t, OP_MUL, before, online_load(x, b->less, row)), more);
}

/* The exponentials in place of the scores; l[r] */
static void put_powers(struct online *x, const struct running *b, struct buffer *scores,
                       struct uop *low)
{
    struct tgc *t = x->t;
    struct uop *range[2] = {
        online_range(x, sym_muli(t, sym_ceildiv(t, x->n, x->group), x->group), "j"),
        online_rows(x)};
    struct uop *at = sym_add(t, sym_muli(t, range[0], x->rows), range[1]),
               *top = load_top(x, b, range[1], low);
    struct uop *e = uop_unary(t, OP_EXP, uop_binary(t, OP_SUB, online_load(x, scores, at), top));
    if (x->scale != 1)
        e = uop_binary(t, OP_MUL, e, uop_constf(t, DTYPE_F32, x->scale));
    online_put(x, KEYS, scores, at, e, range, 2);
    struct uop *row = online_rows(x), *more = fold_keys(x, OP_ADD, scores, row);
    online_put(x, KEYS, b->sum, row, add_block(x, online_load(x, b->sum, row), b, row, more), &row,
               1);
}

/* a[r][f] */
static void put_products(struct online *x, const struct running *b, struct buffer *scores,
                         struct uop *const *column, int n, int64_t ncolumns)
{
    struct tgc *t = x->t;
    struct uop *range[MAX_RANK + 1], *row = range[0] = online_rows(x);
    for (int k = 0; k < n; k++)
        range[k + 1] = column[k];
    struct uop *at = sym_add(t, sym_muli(t, row, ncolumns), column_place(x, column, n));
    struct uop *j = online_range(x, x->n, "j"), *key = sym_add(t, x->at, j), *src[2];
    struct uop *values = uop_substitute(t, x->values, x->product->src[1], key);
    if (x->whole && !online_is_whole(x))
        values = loads_if(t, values, sym_lt(t, key, x->nkey), j, j);
    struct uop *weight = online_load(x, scores, sym_add(t, sym_muli(t, j, x->rows), row));
    src[0] = uop_binary(t, OP_MUL, uop_substitute(t, x->weight, x->read, weight), values);
    src[1] = j;
    struct uop *more =
        j->op == OP_RANGE ? uop_intern(t, OP_REDUCE, DTYPE_F32, src, 2, x->product->arg) : src[0];
    online_put(x, KEYS, b->product, at, add_block(x, online_load(x, b->product, at), b, row, more),
               range, n + 1);
}

static void put_attention(struct online *x)
{
    struct uop *column[MAX_RANK], *low = uop_constf(x->t, DTYPE_F32, -(double)INFINITY);
    int64_t ncolumns;
    int n = online_columns(x, column, &ncolumns);
    struct running b = put_first(x, ncolumns, low);
    struct buffer *query = put_query(x);
    if (x->visible.is_finite) {
        b.seen = online_new_scratch(x, DTYPE_F32, x->rows, "seen_max");
        online_put_rows(x, TILE, b.seen, x->rows, low);
    }
    open_blocks(x, b.seen ? outweighs_mask(x, query, b.seen) : NULL);
    struct buffer *scores = put_scores(x, query);
    put_maximum(x, &b, scores, low);
    put_powers(x, &b, scores, low);
    put_products(x, &b, scores, column, n, ncolumns);
    put_result(x, column, n, b.sum, b.product, b.most);
}

struct uop *online_blocks(struct tgc *t, struct uop *ast, const struct online_shape *shape)
{
    struct uop *column[MAX_RANK];
    int64_t n;
    struct online x = {.t = t, .store = online_without_conditions(t, ast->src[0])};
    if (ast->nsrc != 1 || !online_parts(&x))
        return NULL;
    bool inside;
    struct uop *store = online_open_bands(&x, shape, &inside);
    struct online by = {.t = t,
                        .store = store,
                        .heads_inside = inside,
                        .rows = shape->rows,
                        .group = shape->groups,
                        .step = shape->keys,
                        .whole = shape->whole,
                        .align = shape->whole ? shape->keys : shape->groups,
                        .tiles = shape->tiles};
    if (!online_parts(&by) || online_columns(&by, column, &n) < 0)
        return NULL;
    open_tile(&by);
    if (!by.tiles)
        put_attention(&by);
    else if (!online_put_tiles(&by))
        return NULL;
    struct stores all = {0};
    for (int level = 0; level < LEVELS; level++)
        for (int k = 0; k < by.out[level].n; k++)
            VEC_PUSH(t, all.u, all.n, all.cap, by.out[level].u[k]);
    return uop_intern(t, OP_SINK, DTYPE_VOID, all.u, all.n, (union arg){0});
}

bool pass_online_softmax(struct tgc *t, struct schedule *s, struct kernel *k)
{
    static const struct online_shape shape = {.rows = 32, .groups = 8, .keys = 128};
    (void)s;
    struct uop *blocks = k->by_blocks ? online_blocks(t, k->ast, &shape) : NULL;
    k->by_blocks = blocks != NULL;
    if (!blocks)
        return true;
    const struct kernel was = *k;
    k->ast = blocks;
    kernel_describe(t, k);
    /* the same nodes, by other uops */
    k->name = was.name, k->title = was.title, k->nodes = was.nodes, k->steps = was.steps;
    k->node = was.node, k->nnode = was.nnode, k->cap_node = was.cap_node;
    return true;
}
