/* mask_tables.c - a mask table, each of whose rows is an interval, becomes comparisons of
 * coordinates.
 *
 *      1 0 0 0                                      1 1 1 0 0 0
 *      1 1 0 0   ->  j < i + 1                      1 1 1 0 0 0  ->  begin[i] <= j < end[i]
 *      1 1 1 0                                      0 0 0 1 1 1
 *
 * So a loop can be bounded by the row's interval, and the table takes no memory. Begins and ends
 * that are not affine (documents) become tables of one number a row, if the mask is of bools: a
 * choice by comparison then takes no longer than one by a loaded bool. A mask that is added stays a
 * table, since adding a loaded value is cheaper than comparing and choosing. A table with two
 * distinct values of any type is a mask. Tables that are read at data-dependent indices stay.
 */
#include "passes/analysis/stationary.h"
#include "passes/analysis/value.h"
#include "passes/graph/mask_tables.h"

#include <string.h>

struct table {
    const struct buffer *b;
    int64_t nrow, ncolumn;
    int64_t *begin, *end;        /* of each row's interval; 0, 0: empty */
    union scalar in, out;
};

static bool is_large(int64_t nrow, int64_t ncolumn)
{
    return nrow >= PLACES_ROWS && ncolumn >= PLACES_COLUMNS;
}

bool places_stay(const struct uop *u)
{
    int64_t size[2] = {0, 0};
    for (int a = 0, k = 0; a < u->ndim; a++) {
        int64_t n = u->dim[a]->vmax;
        if (n == 1)
            continue;
        if (k++ >= 2)
            size[0] = size[1];
        size[k > 1] = n;
    }
    return is_large(size[0], size[1]) && value_is_index_like(u);
}

/* Computed from coordinates alone; a constant does not count. */
static bool is_place(struct tgc *t, struct uop *u)
{
    int n;
    bool any = false;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    for (int i = 0; i < n; i++)
        any |= order[i]->op == OP_IOTA;
    return any && value_is_index_like(u);
}

bool places_compares(struct tgc *t, struct uop *u)
{
    int n;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    struct uop_map above = {.t = t, .scratch = true};    /* the sums below */
    map_set(&above, u, u);
    for (int i = n - 1; i >= 0; i--)
        for (int k = 0; k < order[i]->nsrc; k++)
            if (map_get(&above, order[i]) && order[i]->op != OP_REDUCE)
                map_set(&above, order[i]->src[k], order[i]);
    for (int i = 0; i < n; i++)
        if (map_get(&above, order[i]) && order[i]->op == OP_LT && order[i]->ndim > 0 &&
            order[i]->src[0]->dtype == DTYPE_INDEX &&
            (is_place(t, order[i]->src[0]) || is_place(t, order[i]->src[1])))
            return true;
    return false;
}

/* ------------------------------------------------------------------------------------ the table */

static bool find_table(const struct uop *u, struct table *x)
{
    int64_t n, leading = 1;
    const struct buffer *b = known_buffer(u);
    if (!b || b->ndim < 2 || b->dtype == DTYPE_STRING || dtype_bits(b->dtype) < 8)
        return false;
    for (int a = 0; a < b->ndim - 2; a++)
        leading = uop_const_int(b->dim[a], &n) ? sat_mul(leading, n) : 0;
    return leading == 1 && uop_const_int(b->dim[b->ndim - 2], &x->nrow) &&
           uop_const_int(b->dim[b->ndim - 1], &x->ncolumn) && is_large(x->nrow, x->ncolumn) &&
           (x->b = b);
}

/* Whether in each row the elements with these bytes are one interval, and all other elements are
 * equal. */
static bool find_intervals(struct table *x, const char *in, const char **out)
{
    size_t size = dtype_nbytes(x->b->dtype);
    const char *p = x->b->weight.data;
    *out = NULL;
    for (int64_t i = 0; i < x->nrow; i++) {
        int64_t begin = -1, end = -1;
        for (int64_t j = 0; j < x->ncolumn; j++, p += size) {
            bool inside = !memcmp(p, in, size);
            if (!inside && *out && memcmp(p, *out, size))
                return false;
            *out = inside ? *out : p;
            if (inside && end >= 0)
                return false;
            begin = inside && begin < 0 ? j : begin;
            end = !inside && begin >= 0 && end < 0 ? j : end;
        }
        x->begin[i] = begin < 0 ? 0 : begin;
        x->end[i] = begin < 0 ? 0 : end < 0 ? x->ncolumn : end;
    }
    x->in = scalar_load(x->b->dtype, in);
    if (*out)
        x->out = scalar_load(x->b->dtype, *out);
    return *out != NULL;
}

/* An affine function of the row's index, or a constant; or neither. */
struct line { int64_t slope, at; bool known; };

static struct line line_of(const struct table *x, const int64_t *edge, int64_t slope)
{
    struct line l = {slope, 0, false};
    for (int64_t i = 0; i < x->nrow && !l.known; i++) {
        bool bent = slope && (edge[i] == 0 || edge[i] == x->ncolumn);
        if (!bent && x->begin[i] < x->end[i])
            l = (struct line){slope, edge[i] - slope * i, true};
    }
    return l;
}

static bool lines_fit(const struct table *x, struct line begin, struct line end)
{
    for (int64_t i = 0; i < x->nrow && begin.known && end.known; i++) {
        int64_t from = begin.at + begin.slope * i, to = end.at + end.slope * i;
        from = from < 0 ? 0 : from;
        to = to > x->ncolumn ? x->ncolumn : to;
        bool empty = x->begin[i] == x->end[i];
        if (empty ? from < to : from != x->begin[i] || to != x->end[i])
            return false;
    }
    return begin.known && end.known;
}

static bool find_lines(const struct table *x, struct line *begin, struct line *end)
{
    for (int slopes = 3; slopes >= 0; slopes--) {
        *begin = line_of(x, x->begin, slopes & 1);
        *end = line_of(x, x->end, slopes >> 1);
        if (lines_fit(x, *begin, *end))
            return true;
    }
    return false;
}

/* ------------------------------------------------------------------------------ the comparisons */

/* Where each row's interval begins or ends: of the shape of the table, or broadcast to it. */
static struct uop *edge_of(struct tgc *t, const struct table *x, struct line l, bool is_line,
                           const int64_t *edge)
{
    int rank = x->b->ndim;
    int64_t dim[MAX_RANK];
    if (is_line && l.slope == 0)
        return uop_int(t, l.at);
    if (is_line)
        return tensor_binary(t, OP_ADD, tensor_iota(t, x->b->dim, rank, rank - 2),
                             uop_int(t, l.at));
    for (int a = 0; a < rank; a++)
        dim[a] = a == rank - 2 ? x->nrow : 1;
    size_t nbytes = (size_t)x->nrow * sizeof *edge;
    return tensor_from_data(t, DTYPE_INDEX, dim, rank, mem_copy(t, edge, nbytes), nbytes,
                            x->b->name);
}

static struct uop *as_comparisons(struct tgc *t, const struct table *x)
{
    struct line begin, end;
    bool lines = find_lines(x, &begin, &end), any = false;
    if (!lines && x->b->dtype != DTYPE_BOOL)
        return NULL;
    struct uop *key = tensor_iota(t, x->b->dim, x->b->ndim, x->b->ndim - 1), *in = NULL;
    for (int64_t i = 0; i < x->nrow; i++)
        any |= x->begin[i] > 0;
    if (any)
        in = uop_not(t, tensor_binary(t, OP_LT, key, edge_of(t, x, begin, lines, x->begin)));
    any = false;
    for (int64_t i = 0; i < x->nrow; i++)
        any |= x->end[i] < x->ncolumn;
    if (any) {
        struct uop *less = tensor_binary(t, OP_LT, key, edge_of(t, x, end, lines, x->end));
        in = in ? uop_binary(t, OP_AND, in, less) : less;
    }
    if (!in)
        return NULL;
    if (x->b->dtype == DTYPE_BOOL)
        return x->in.i ? in : uop_not(t, in);
    return tensor_where(t, in, uop_const(t, x->b->dtype, x->in), uop_const(t, x->b->dtype, x->out));
}

static struct uop *expression_of(struct tgc *t, const struct uop *u)
{
    struct table x = {0};
    const char *out;
    if (!find_table(u, &x))
        return NULL;
    struct mem_mark mark = scratch_mark(t);
    struct uop *by = NULL;
    size_t size = dtype_nbytes(x.b->dtype);
    const char *first = x.b->weight.data;
    x.begin = scratch_array(t, (size_t)x.nrow, sizeof *x.begin);
    x.end = scratch_array(t, (size_t)x.nrow, sizeof *x.end);
    /* the first element, or the first one of the other value */
    int64_t at = 0, n = x.nrow * x.ncolumn;
    while (at < n && !memcmp(first + (size_t)at * size, first, size))
        at++;
    if (at < n && (find_intervals(&x, first, &out) ||
                   find_intervals(&x, first + (size_t)at * size, &out)))
        by = as_comparisons(t, &x);
    scratch_release(t, mark);
    return by;
}

/* --------------------------------------------------------------------------------- who reads it */

/* Tables that something other than an elementwise op reads, through any movement. */
static void find_kept(struct tgc *t, struct graph *g, struct uop_map *kept)
{
    int n, nroot;
    struct uop **root = graph_roots(t, g, &nroot), **order = uop_toposort(t, root, nroot, &n);
    struct uop_map table = {.t = t};
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i], *below = u->nsrc > 0 ? map_get(&table, u->src[0]) : NULL;
        bool moves = op_class(u->op) == CLASS_MOVE && u->op != OP_CONCAT && u->op != OP_PAD;
        if (u->op == OP_BUFFER)
            map_set(&table, u, u);
        if (moves && below) {
            map_set(&table, u, below);
            continue;
        }
        for (int k = 0; k < u->nsrc && !op_is_elementwise(u->op); k++)
            if (map_get(&table, u->src[k]))
                map_set(kept, map_get(&table, u->src[k]), u);
    }
    for (int i = 0; i < nroot; i++)
        if (map_get(&table, root[i]))
            map_set(kept, map_get(&table, root[i]), root[i]);
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    return u->op == OP_BUFFER && !map_get(ctx, u) ? expression_of(t, u) : NULL;
}

bool pass_mask_tables(struct tgc *t, struct graph *g)
{
    struct uop_map kept = {.t = t};
    find_kept(t, g, &kept);
    graph_rewrite(t, g, rewrite, &kept);
    return true;
}
