/* samples.c - which sample of a batch an element of a graph's tensor depends on.
 *
 * The results for one sample must not depend on the others in the batch: a rewrite that adds two
 * rows and subtracts one again (strassen.c) has to know that they are of one sample. A batch is the
 * first axis of an input whose rows never meet. Every value then has a row for each of its
 * elements, an expression of its coordinates:
 *
 *      x[b, s, k]              b
 *      permuted to [s, b, k]   b, the second axis
 *      reshape to [n, k]       n // S
 *      a sum over k; windows   as before
 *      a weight                none
 *
 * Two rows may meet somewhere, in a sum or in an elementwise operation of values whose rows differ.
 * Then the axis is something else (the words of one text), and there is no batch. What cannot be
 * followed (a data-dependent index, the results of loops) is unknown. */
#include "passes/analysis/samples.h"
#include "passes/analysis/access.h"

#include <string.h>

/* A value's row as a function of its coordinates, which are the ranges of struct samples; NULL:
 * none. */
struct row { bool known; struct uop *at; };

struct samples {
    struct tgc *t;
    int first;                   /* ids of ranges: of a value's axes, then of its source's */
    struct uop_map row;          /* by value */
    bool meet;                   /* two rows of an input meet */
};

static struct uop *range_of(const struct samples *s, struct uop *dim, int id)
{
    return uop_is_int(dim, 1) ? uop_int(s->t, 0) : uop_range(s->t, dim, s->first + id);
}

/* --------------------------------------------------------------------------------- substitution */

struct renaming { int first; struct uop *const *to; };

static struct uop *rename_range(struct tgc *t, void *ctx, struct uop *u)
{
    const struct renaming *r = ctx;
    (void)t;
    if (u->op != OP_RANGE || u->arg.i < r->first || u->arg.i >= r->first + MAX_RANK)
        return NULL;
    return r->to[u->arg.i - r->first];
}

/* v's row at the coordinates at[], which may be expressions of the same ranges. */
static struct uop *row_at(struct samples *s, const struct uop *v, struct uop *row,
                          struct uop *const *at)
{
    struct uop *apart[MAX_RANK];
    for (int a = 0; a < v->ndim; a++)
        apart[a] = range_of(s, v->dim[a], MAX_RANK + a);
    uop_rewrite(s->t, &row, 1, rename_range, &(struct renaming){s->first, apart});
    uop_rewrite(s->t, &row, 1, rename_range, &(struct renaming){s->first + MAX_RANK, at});
    return row;
}

/* ---------------------------------------------------------------------------------------- rules */

/* Whether two rows are proved to differ for some coordinates. */
static bool differ(struct samples *s, const struct uop *v, struct uop *a, struct uop *b)
{
    int64_t apart;
    for (int i = 0; i < v->ndim; i++) {
        const struct uop *r = range_of(s, v->dim[i], i);
        if (r->op == OP_RANGE && uop_depends_on(s->t, a, r) != uop_depends_on(s->t, b, r))
            return true;
    }
    return uop_const_int(sym_sub(s->t, a, b), &apart) && apart != 0;
}

static void join(struct samples *s, const struct uop *v, struct row *to, struct row from)
{
    if (to->known && from.known && to->at && from.at && !sym_equal(s->t, to->at, from.at)) {
        s->meet |= differ(s, v, to->at, from.at);
        to->known = false;
    }
    to->known &= from.known;
    to->at = to->at ? to->at : from.at;
}

static struct row known_row(const struct samples *s, const struct uop *v)
{
    const struct row *r = map_get(&s->row, v);
    return r ? *r : (struct row){true, NULL};
}

static struct row row_of_move(struct samples *s, struct uop *v)
{
    struct uop *at[MAX_RANK], *below[MAX_RANK], *valid;
    struct row row = {true, NULL};
    for (int a = 0; a < v->ndim; a++)
        at[a] = range_of(s, v->dim[a], a);
    for (int k = 0; k < (v->op == OP_CONCAT ? v->nsrc : 1); k++) {
        struct row from = known_row(s, v->src[k]);
        if (from.known && from.at) {
            move_index(s->t, v, k, at, below, &valid);
            from.at = row_at(s, v->src[k], from.at, below);
            /* rows of several values, concatenated */
            from.known = v->op != OP_CONCAT || uop_is_int(valid, 1) ||
                         !uop_depends_on(s->t, from.at, at[v->arg.i]);
        }
        join(s, v, &row, from);
    }
    return row;
}

static struct row row_of_reduce(struct samples *s, const struct uop *v)
{
    const struct uop *x = v->src[0];
    struct row row = known_row(s, x);
    for (int a = 0; a < x->ndim && row.known && row.at; a++) {
        const struct uop *r = range_of(s, x->dim[a], a);
        s->meet |= (REDUCE_AXES(v->arg.i) >> a & 1) && r->op == OP_RANGE &&
                   uop_depends_on(s->t, row.at, r);
    }
    return row;
}

static struct row row_of_input(const struct samples *s, const struct uop *v)
{
    const struct buffer *b = v->arg.p;
    bool batch = b->kind == BUFFER_INPUT && v->ndim > 0 && !uop_is_int(v->dim[0], 1);
    return (struct row){true, batch ? range_of(s, v->dim[0], 0) : NULL};
}

static struct row find_row(struct samples *s, struct uop *v)
{
    struct row row = {true, NULL};
    switch (v->op) {
    case OP_BUFFER: return row_of_input(s, v);
    case OP_PARAM: return (struct row){false, NULL};
    case OP_CONST: case OP_VAR: case OP_IOTA: return row;
    case OP_REDUCE: return row_of_reduce(s, v);
    case OP_INDEX:
        for (int k = 0; k < v->nsrc; k++)
            join(s, v, &row, known_row(s, v->src[k]));
        row.known &= known_row(s, v->src[0]).at == NULL;  /* data-dependent coordinates */
        return row;
    default: break;
    }
    if (op_class(v->op) == CLASS_MOVE)
        return row_of_move(s, v);
    bool plain = op_is_pointwise(v->op) || v->op == OP_CONTIGUOUS;
    for (int k = 0; k < v->nsrc; k++) {
        struct row from = known_row(s, v->src[k]);
        from.known &= plain || !from.at;
        join(s, v, &row, from);
    }
    return row;
}

/* Finds the rows of all values below the roots. */
static void find_rows(struct samples *s, struct uop *const *root, int nroot)
{
    int n;
    struct mem_mark mark = scratch_mark(s->t);
    struct uop **order = uop_toposort(s->t, root, nroot, &n);
    for (int i = 0; i < n && !s->meet; i++) {
        if (map_get(&s->row, order[i]))
            continue;
        struct row *row = MEM_NEW(s->t, struct row);
        *row = find_row(s, order[i]);
        map_set(&s->row, order[i], row);
    }
    scratch_release(s->t, mark);
}

struct samples *samples_find(struct tgc *t, const struct graph *g)
{
    bool any = false;
    int nroot;
    for (int i = 0; i < g->ninput; i++)
        any |= g->input[i]->ndim > 0 && !uop_is_int(g->input[i]->dim[0], 1);
    if (!any)
        return NULL;
    struct samples *s = MEM_NEW(t, struct samples);
    *s = (struct samples){.t = t, .first = t->next_range, .row = {.t = t}};
    t->next_range += 2 * MAX_RANK;
    struct uop **root = graph_roots(t, g, &nroot);
    find_rows(s, root, nroot);
    return s->meet ? NULL : s;
}

bool samples_row(struct samples *s, struct uop *v, struct uop *const *at, struct uop **row)
{
    find_rows(s, &v, 1);
    struct row r = known_row(s, v);
    *row = r.known && r.at ? row_at(s, v, r.at, at) : NULL;
    return r.known;
}
