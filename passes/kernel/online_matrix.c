/* online_matrix.c - attention by blocks of keys whose sums of products are tiles of a device's
 * matrix instructions.
 *
 *      r < rows, e < features, j < keys of the block, n < columns of a tile of N
 *      q[r][e], m[r] = -inf, l[r][n] = 0, a[r][f] = 0
 *      for block of keys
 *        s[r][j]  = sum over e  q[r][e] * k[j, e]
 *        if the block has keys hidden from some of the queries:  s[r][j] = -inf, of these
 *        t[r]     = max(m[r], max over n  max over j = n, n + N ...  s[r][j])
 *        c[r]     = exp(m[r] - t[r]), m[r] = t[r]
 *        s[r][j]  = exp(s[r][j] - m[r])
 *        p[r][j]  = s[r][j], rounded to the instruction's dtype
 *        l[r][n]  = c[r] * l[r][n] + sum over j = n, n + N ...  s[r][j]
 *        a[r][f]  = c[r] * a[r][f] + sum over j  p[r][j] * v[j, f]
 *      y[r, f] = a[r][f] / sum over n  l[r][n]
 *
 * This is online_softmax.c's kernel with rows of queries outside. Rows of factors run along what is
 * summed, zero-padded to whole steps of the instruction. Scores, exponentials and results are
 * accessed by the threads to which the instruction gives their elements, so they can stay in
 * registers (opts_registers.c). Of a row's maximum and sum each thread has a partial result, a
 * column of the tile; finished values of a row all its threads have.
 *
 * The partial sums l are added once, after all keys. A common factor of the scores is left out of
 * s, m and t, and applied in the exponent, where there is a factor anyway. What is summed to l is
 * not rounded to the factors' dtype. If threads already hold what the instruction takes as a factor
 * (direct), there is no p. */
#include "passes/kernel/online_softmax.h"
#include "passes/kernel/tile.h"

#include <math.h>
#include <string.h>

struct tiles {
    struct online *x;
    struct uop *column;          /* of the result; NULL: it has none */
    int64_t columns, features;   /* in whole tiles, in whole steps */
    double factor;               /* a positive scale of all scores: applied in the
                                  * exponent, not to each score */
    struct buffer *query, *scores, *weights, *less, *now, *top, *parts, *product;
    bool is_weight;              /* scores have become weights in place */
};

/* The value in the instruction's dtype that makes u the factor of a product; NULL: u is not rounded
 * to that. */
static struct uop *factor_of(const struct online *x, struct uop *u)
{
    if (u->op == OP_CAST && u->src[0]->dtype == x->tiles->factor)
        u = u->src[0];
    return u->dtype == x->tiles->factor ? u : NULL;
}

static bool is_half(const struct online *x) { return dtype_bits(x->tiles->factor) == 16; }

static struct buffer *new_factor(struct online *x, int64_t rows, int64_t wide, const char *word)
{
    return online_new_scratch(x, is_half(x) ? DTYPE_U16 : x->tiles->factor,
                              rows * (wide + x->tiles->pad), word);
}

/* 16-bit floats are kept in shared memory as bits. */
static struct uop *as_stored(const struct online *x, struct uop *u)
{
    return is_half(x) ? uop_intern(x->t, OP_BITCAST, DTYPE_U16, &u, 1, (union arg){0}) : u;
}

static struct uop *load_factor(struct online *x, struct buffer *b, struct uop *at)
{
    struct uop *u = online_load(x, b, at);
    if (is_half(x))
        u = uop_intern(x->t, OP_BITCAST, x->tiles->factor, &u, 1, (union arg){0});
    return uop_cast(x->t, DTYPE_F32, u);
}

static int64_t whole(int64_t n, int64_t of) { return (n + of - 1) / of * of; }

static struct uop *row_at(struct online *x, struct uop *row, int64_t wide, struct uop *at)
{
    return sym_add(x->t, sym_muli(x->t, row, wide), at);
}

/* q[r][e] */
static bool put_query(struct tiles *y)
{
    struct online *x = y->x;
    struct tgc *t = x->t;
    int64_t n = x->dot->src[1]->src[0]->arg.i, wide = y->features + x->tiles->pad;
    struct uop *r[2] = {online_rows(x), online_range(x, uop_int(t, y->features), "e")},
               *q = factor_of(x, x->query);
    if (!q)
        return false;
    y->query = new_factor(x, x->rows, y->features, "queries");
    q = uop_substitute(t, online_for_row(x, q, r[0]), x->dot->src[1], r[1]);
    if (n < y->features) {
        struct uop *some = sym_lt(t, r[1], uop_int(t, n));
        q = uop_where(t, some, loads_if(t, q, some, r[1], r[1]), uop_constf(t, q->dtype, 0));
    }
    online_put(x, TILE, y->query, row_at(x, r[0], wide, r[1]), as_stored(x, q), r, 2);
    return true;
}

static void put_first(struct tiles *y, struct uop *low)
{
    struct online *x = y->x;
    struct tgc *t = x->t;
    struct uop *zero = uop_constf(t, DTYPE_F32, 0), *r[2];
    online_put_rows(x, TILE, y->top, x->rows, low);
    r[0] = online_rows(x), r[1] = online_range(x, uop_int(t, x->tiles->n), "part");
    online_put(x, TILE, y->parts, row_at(x, r[0], x->tiles->n, r[1]), zero, r, 2);
    r[0] = online_rows(x), r[1] = online_range(x, uop_int(t, y->columns), "column");
    online_put(x, TILE, y->product, row_at(x, r[0], y->columns, r[1]), zero, r, 2);
}

static bool is_hidden(const struct uop *u)
{
    return u->op == OP_CONST && u->arg.f == -(double)INFINITY;
}

/* The scores without a positive factor of all that is visible, which *factor is multiplied by. */
static struct uop *without_factor(struct tgc *t, struct uop *u, const struct uop *dot,
                                  double *factor)
{
    struct uop *src[3];
    double by =
        (u->op == OP_MUL || u->op == OP_DIV) && u->src[1]->op == OP_CONST ? u->src[1]->arg.f : 0;
    if (by > 0 && isfinite(by) && uop_depends_on(t, u->src[0], dot)) {
        *factor *= u->op == OP_DIV ? 1 / by : by;
        return without_factor(t, u->src[0], dot, factor);
    }
    if (u->op != OP_WHERE || !(is_hidden(u->src[1]) || is_hidden(u->src[2])) ||
        uop_depends_on(t, u->src[0], dot))
        return u;
    int seen = is_hidden(u->src[1]) ? 2 : 1;
    memcpy(src, u->src, sizeof src);
    src[seen] = without_factor(t, u->src[seen], dot, factor);
    return uop_where(t, src[0], src[1], src[2]);
}

/* s[r][j] */
static void put_scores(struct tiles *y)
{
    struct online *x = y->x;
    struct tgc *t = x->t;
    int64_t n = x->dot->src[1]->src[0]->arg.i;
    struct uop *r[2] = {online_rows(x), online_range(x, uop_int(t, x->step), "key")},
               *key = sym_add(t, x->at, r[1]), *e = online_range(x, uop_int(t, y->features), "e"),
               *src[2];
    struct uop *keys = uop_substitute(t, x->keys, x->dot->src[1], e);
    if (n < y->features)
        keys = loads_if(t, keys, sym_lt(t, e, uop_int(t, n)), e, e);
    src[0] = uop_binary(
        t, OP_MUL, load_factor(x, y->query, row_at(x, r[0], y->features + x->tiles->pad, e)), keys);
    src[1] = e;
    struct uop *dot = uop_intern(t, OP_REDUCE, x->dot->dtype, src, 2, x->dot->arg);
    struct uop *seen, *some, *low = uop_constf(t, DTYPE_F32, -(double)INFINITY), *hidden[2];
    hidden[0] = online_rows(x), hidden[1] = online_range(x, uop_int(t, x->step), "key");
    struct uop *value =
        online_hide(x, x->scores->src[0], hidden[0], sym_add(t, x->at, hidden[1]), &seen, &some);
    value = online_compare_bounds(x, value, r[0], key);
    value = is_half(x) ? without_factor(t, value, x->dot, &y->factor) : value;
    value = online_for_key(x, uop_substitute(t, value, x->dot, dot), r[1], r[0]);
    if (!online_is_whole(x) && !online_ends_by_mask(x))
        value = uop_where(t, sym_lt(t, key, x->nkey), value, low);
    online_put(x, KEYS, y->scores, row_at(x, r[0], x->step, r[1]), value, r, 2);
    if (!seen)
        return;
    struct uop *at = row_at(x, hidden[0], x->step, hidden[1]);
    x->valid = some;
    online_put(x, KEYS, y->scores, at, uop_where(t, seen, online_load(x, y->scores, at), low),
               hidden, 2);
    x->valid = NULL;
}

/* Reduces by `op` over the block's keys of one column of the tiles. */
static struct uop *fold_tiles(struct tiles *y, enum op op, struct uop *row, struct uop *part)
{
    struct online *x = y->x;
    struct uop *at = row_at(x, row, x->step, part), *all = NULL;
    for (int64_t j = 0; j < x->step; j += x->tiles->n) {
        struct uop *s = online_load(x, y->scores, sym_addi(x->t, at, j));
        all = all ? uop_binary(x->t, op, all, s) : s;
    }
    return all;
}

/* Reduces by `op` over a row's partial results, combined by shuffles. */
static struct uop *fold_parts(struct tiles *y, enum op op, struct uop *value, struct uop *part)
{
    struct uop *src[2] = {value, part};
    return uop_intern(y->x->t, OP_REDUCE, DTYPE_F32, src, 2,
                      (union arg){.i = ARG_PACK(REDUCE, op, 0)});
}

/* A maximum in the form that is subtracted. */
static struct uop *subtrahend(struct tgc *t, struct uop *top, struct uop *low)
{
    return uop_where(t, uop_binary(t, OP_EQ, top, low), uop_constf(t, DTYPE_F32, 0), top);
}

/* e^(x - top), where top is the whole row's maximum; by the hardware 2^x if the result is rounded
 * to 16 bits. The difference is taken before the scaling. For a row of hidden keys (a large
 * negative number) it is then exactly 0; a difference of products would leave rounding errors, or
 * infinity minus infinity. */
static struct uop *power_of(const struct tiles *y, struct uop *score, struct uop *top)
{
    struct tgc *t = y->x->t;
    const double log2e = 1.4426950408889634;
    if (!is_half(y->x))
        return uop_unary(t, OP_EXP, uop_binary(t, OP_SUB, score, top));
    struct uop *times = uop_constf(t, DTYPE_F32, log2e * y->factor);
    return uop_unary(t, OP_EXP2, uop_binary(t, OP_MUL, uop_binary(t, OP_SUB, score, top), times));
}

/* t[r], c[r], m[r] */
static void put_maximum(struct tiles *y, struct uop *low)
{
    struct online *x = y->x;
    struct tgc *t = x->t;
    struct uop *row = online_rows(x), *part = online_range(x, uop_int(t, x->tiles->n), "part");
    struct uop *most = fold_parts(y, OP_MAX, fold_tiles(y, OP_MAX, row, part), part);
    online_put(x, KEYS, y->now, row, uop_binary(t, OP_MAX, online_load(x, y->top, row), most), &row,
               1);
    row = online_rows(x);
    struct uop *less =
        power_of(y, online_load(x, y->top, row), subtrahend(t, online_load(x, y->now, row), low));
    online_put(x, KEYS, y->less, row, less, &row, 1);
    row = online_rows(x);
    online_put(x, KEYS, y->top, row, online_load(x, y->now, row), &row, 1);
}

/* p[r][j], as the instruction takes it; NULL: weights are not rounded to that. */
static struct uop *weight_of(struct tiles *y, struct uop *row, struct uop *key)
{
    struct online *x = y->x;
    struct uop *power = online_load(x, y->scores, row_at(x, row, x->step, key));
    return y->is_weight ? uop_cast(x->t, x->tiles->factor, power)
                        : factor_of(x, uop_substitute(x->t, x->weight, x->read, power));
}

static bool put_weights(struct tiles *y)
{
    struct online *x = y->x;
    struct uop *r[2] = {online_rows(x), online_range(x, uop_int(x->t, x->step), "key")},
               *weight = weight_of(y, r[0], r[1]);
    if (!weight)
        return false;
    struct uop *value = weight->op == OP_CAST ? weight->src[0] : weight;
    if (x->tiles->direct && value->op == OP_LOAD)
        return true;
    if (x->tiles->direct && dtype_is_float(value->dtype) && dtype_bits(value->dtype) <= 32) {
        /* conditionally rounded: a thread's own weights replace the powers, whose sums are taken by
         * now */
        online_put(x, KEYS, y->scores, row_at(x, r[0], x->step, r[1]),
                   uop_cast(x->t, DTYPE_F32, value), r, 2);
        y->is_weight = true;
        return true;
    }
    if (x->tiles->own)
        return false;
    y->weights = new_factor(x, x->rows, x->step, "weights");
    online_put(x, KEYS, y->weights, row_at(x, r[0], x->step + x->tiles->pad, r[1]),
               as_stored(x, weight), r, 2);
    return true;
}

/* s[r][j], l[r][n] */
static void put_powers(struct tiles *y, struct uop *low)
{
    struct online *x = y->x;
    struct tgc *t = x->t;
    struct uop *r[2] = {online_rows(x), online_range(x, uop_int(t, x->step), "key")};
    struct uop *at = row_at(x, r[0], x->step, r[1]),
               *top = subtrahend(t, online_load(x, y->top, r[0]), low);
    struct uop *e = power_of(y, online_load(x, y->scores, at), top);
    if (x->scale != 1)
        e = uop_binary(t, OP_MUL, e, uop_constf(t, DTYPE_F32, x->scale));
    online_put(x, KEYS, y->scores, at, e, r, 2);
    r[0] = online_rows(x), r[1] = online_range(x, uop_int(t, x->tiles->n), "part");
    at = row_at(x, r[0], x->tiles->n, r[1]);
    struct uop *before =
        uop_binary(t, OP_MUL, online_load(x, y->parts, at), online_load(x, y->less, r[0]));
    online_put(x, KEYS, y->parts, at,
               uop_binary(t, OP_ADD, before, fold_tiles(y, OP_ADD, r[0], r[1])), r, 2);
}

/* Whether a column beyond the last one would be in a tile; *some: the condition that it is not. */
static bool has_more(const struct tiles *y, struct uop *column, struct uop **some)
{
    struct uop *n = y->column->src[0];
    *some = sym_lt(y->x->t, column, n);
    return n->arg.i < y->columns;
}

/* a[r][f] */
static void put_products(struct tiles *y)
{
    struct online *x = y->x;
    struct tgc *t = x->t;
    struct uop *r[2] = {online_rows(x), online_range(x, uop_int(t, y->columns), "column")}, *some,
               *src[2];
    struct uop *at = row_at(x, r[0], y->columns, r[1]),
               *j = online_range(x, uop_int(t, x->step), "key"), *key = sym_add(t, x->at, j);
    struct uop *values =
        uop_substitute(t, uop_substitute(t, x->values, x->product->src[1], key), y->column, r[1]);
    if (!online_is_whole(x))
        values = loads_if(t, values, sym_lt(t, key, x->nkey), j, j);
    if (has_more(y, r[1], &some))
        values = loads_if(t, values, some, r[1], r[1]);
    struct uop *weight =
        y->weights ? load_factor(x, y->weights, row_at(x, r[0], x->step + x->tiles->pad, j))
                   : uop_cast(t, DTYPE_F32, weight_of(y, r[0], j));
    src[0] = uop_binary(t, OP_MUL, weight, values);
    src[1] = j;
    struct uop *more = uop_intern(t, OP_REDUCE, DTYPE_F32, src, 2, x->product->arg);
    struct uop *before =
        uop_binary(t, OP_MUL, online_load(x, y->product, at), online_load(x, y->less, r[0]));
    online_put(x, KEYS, y->product, at, uop_binary(t, OP_ADD, before, more), r, 2);
}

/* The sum of a row's partial results, in place of c[r]; y[r, f]. */
static void put_result(struct tiles *y)
{
    struct online *x = y->x;
    struct tgc *t = x->t;
    int64_t nrow;
    struct uop *r[2] = {online_rows(x), online_range(x, uop_int(t, x->tiles->n), "part")}, *some,
               *to = x->store->src[0];
    struct uop *sum =
        fold_parts(y, OP_ADD, online_load(x, y->parts, row_at(x, r[0], x->tiles->n, r[1])), r[1]);
    online_put(x, BEHIND, y->less, r[0], sum, r, 1);
    r[0] = online_rows(x), r[1] = online_range(x, uop_int(t, y->columns), "column");
    bool more = has_more(y, r[1], &some);
    struct uop *at = row_at(x, r[0], y->columns, r[1]), *offset, *value = x->store->src[2];
    value = uop_substitute(t, value, x->product, online_load(x, y->product, at));
    value = uop_substitute(t, value, x->sum, online_load(x, y->less, r[0]));
    struct uop *most = online_load(x, y->top, r[0]);
    most = y->factor != 1 ? uop_binary(t, OP_MUL, most, uop_constf(t, DTYPE_F32, y->factor)) : most;
    value = uop_substitute(t, value, x->most, most);
    value = uop_substitute(t, online_for_row(x, value, r[0]), y->column, r[1]);
    value = more ? loads_if(t, value, some, r[1], r[1]) : value;
    offset = uop_substitute(
        t, uop_substitute(t, x->store->src[1], x->row, sym_add(t, x->tile, r[0])), y->column, r[1]);
    if (!(uop_const_int(x->nrow, &nrow) && nrow % x->rows == 0))
        x->valid = sym_lt(t, r[0], sym_sub(t, x->nrow, x->tile));
    if (more)
        x->valid = x->valid ? uop_binary(t, OP_AND, x->valid, some) : some;
    online_put(x, BEHIND, (struct buffer *)(uintptr_t)uop_buffer_of(to), offset, value, r, 2);
}

bool online_put_tiles(struct online *x)
{
    const struct online_tiles *tile = x->tiles;
    struct uop *column[MAX_RANK], *low = uop_constf(x->t, DTYPE_F32, -(double)INFINITY);
    int64_t ncolumns, rows = x->rows;
    if (online_columns(x, column, &ncolumns) != 1 || ncolumns < 2 || x->step % tile->n ||
        x->step % tile->k)
        return false;
    struct tiles y = {.x = x,
                      .column = column[0],
                      .factor = 1,
                      .columns = whole(ncolumns, tile->columns),
                      .features = whole(x->dot->src[1]->src[0]->arg.i, tile->k)};
    y.top = online_new_scratch(x, DTYPE_F32, rows, "row_max");
    y.less = online_new_scratch(x, DTYPE_F32, rows, "rescale");
    y.now = online_new_scratch(x, DTYPE_F32, rows, "new_max");
    y.parts = online_new_scratch(x, DTYPE_F32, rows * tile->n, "parts");
    y.scores = online_new_scratch(x, DTYPE_F32, rows * x->step, "scores");
    y.product = online_new_scratch(x, DTYPE_F32, rows * y.columns, "acc");
    put_first(&y, low);
    if (!put_query(&y))
        return false;
    online_open_blocks(x);
    put_scores(&y);
    put_maximum(&y, low);
    put_powers(&y, low);
    if (!put_weights(&y))
        return false;
    put_products(&y);
    put_result(&y);
    return true;
}
