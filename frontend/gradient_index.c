/* gradient_index.c - the adjoint of an INDEX is a SCATTER that adds, that of a SCATTER an INDEX.
 *
 * One thread does such a SCATTER. Where the coordinates are known at compile time, each element of
 * x is a sum over those of the result that read it, so that nothing is scattered: axes of x with
 * coordinates of their own are inverted one after the other, by a table of the elements that read
 * each of their places:
 *
 *      u[o] = x[index[o]]      dx[i] = sum over m of d[readers[i, m]]
 */
#include <string.h>

#include "frontend/gradient.h"
#include "ir/oracle.h"

enum { TABLE_ELEMENTS = 1 << 16, TABLE_BUDGET = 1 << 24 };

/* Axes of x whose coordinates depend on common axes of u, or one that is an axis of u as it is. */
struct part {
    uint32_t of_x, of_u;
    bool is_axis;
    /* i64 [places, most readers]; where there is no reader: a place outside */
    struct uop *readers;
    struct uop *size;                    /* of the axes of u, as one */
};

static struct uop *size_of(const struct gradient *g, const struct uop *u, uint32_t axes)
{
    struct uop *n = uop_int(g->t, 1);
    for (int a = 0; a < u->ndim; a++)
        if (axes >> a & 1)
            n = sym_mul(g->t, n, u->dim[a]);
    return n;
}

/* Divides x's axes into parts; returns how many. */
static int divide(struct gradient *g, const struct uop *u, struct part *part)
{
    const struct uop *x = u->src[0];
    int n = 0;
    for (int k = 0; k < x->ndim; k++) {
        struct part p = {1u << k, gradient_axes_of(g, u->src[1 + k])};
        for (int a = 0; a < u->ndim && !p.is_axis; a++)
            if (u->src[1 + k] == tensor_iota(g->t, u->dim, u->ndim, a) &&
                sym_equal(g->t, x->dim[k], u->dim[a]))
                p = (struct part){p.of_x, 1u << a, .is_axis = true};
        for (int i = 0; i < n;) { /* joins those that it has axes in common with */
            if (!(part[i].of_u & p.of_u)) {
                i++;
                continue;
            }
            p.of_x |= part[i].of_x;
            p.of_u |= part[i].of_u;
            p.is_axis = false;
            part[i] = part[--n];
        }
        part[n++] = p;
    }
    for (int i = 0; i < n; i++)
        part[i].size = size_of(g, u, part[i].of_u);
    return n;
}

/* Adds to place[] the coordinate along axis k of x of each element of the part, times x's size
 * there; -1: outside of x. */
static bool add_coordinates(const struct gradient *g, const struct uop *u, const struct part *p,
                            int k, int64_t *place, int64_t n)
{
    struct tgc *t = g->t;
    struct uop *size[MAX_RANK], *zero[MAX_RANK];
    struct eval_env env = {.budget = TABLE_BUDGET};
    struct tensor *v;
    int64_t dim;
    for (int a = 0; a < u->ndim; a++) {
        zero[a] = uop_int(t, 0);
        size[a] = p->of_u >> a & 1 ? u->dim[a] : uop_int(t, 1);
    }
    struct uop *index = uop_shrink(t, u->src[1 + k], zero, size);
    if (!uop_const_int(u->src[0]->dim[k], &dim) || !eval_graph(t, &index, 1, &env, &v) ||
        v->nelem != n)
        return false;
    for (int64_t i = 0; i < n; i++) {
        int64_t c = ((const int64_t *)v->data)[i];
        place[i] = place[i] < 0 || c < 0 || c >= dim ? -1 : place[i] * dim + c;
    }
    return true;
}

/* The readers of each place, given the place that each of n elements reads. NULL: too many. */
static struct uop *invert(const struct gradient *g, const int64_t *place, int64_t n, int64_t nplace)
{
    struct tgc *t = g->t;
    int64_t most = 1, *count = mem_array(t, (size_t)nplace, sizeof *count);
    for (int64_t i = 0; i < n; i++)
        if (place[i] >= 0 && ++count[place[i]] > most)
            most = count[place[i]];
    if (sat_mul(nplace, most) > 4 * (int64_t)TABLE_ELEMENTS)
        return NULL;
    int32_t *table = mem_array(t, (size_t)(nplace * most), sizeof *table);
    for (int64_t i = 0; i < nplace * most; i++)
        table[i] = (int32_t)n;
    memset(count, 0, (size_t)nplace * sizeof *count);
    for (int64_t i = 0; i < n; i++)
        if (place[i] >= 0)
            table[place[i] * most + count[place[i]]++] = (int32_t)i;
    int64_t dim[2] = {nplace, most};
    return uop_cast(t, DTYPE_I64,
                    tensor_from_data(t, DTYPE_I32, dim, 2, table,
                                     (size_t)(nplace * most) * sizeof *table, NULL));
}

static bool find_readers(const struct gradient *g, const struct uop *u, struct part *p)
{
    const struct uop *x = u->src[0];
    int64_t n, nplace;
    if (p->is_axis)
        return true;
    if (!uop_const_int(p->size, &n) || !uop_const_int(size_of(g, x, p->of_x), &nplace) || n < 1 ||
        n > TABLE_ELEMENTS || nplace < 1 || nplace > TABLE_ELEMENTS)
        return false;
    int64_t *place = mem_array(g->t, (size_t)n, sizeof *place);
    for (int k = 0; k < x->ndim; k++)
        if (p->of_x >> k & 1 && !add_coordinates(g, u, p, k, place, n))
            return false;
    return (p->readers = invert(g, place, n, nplace)) != NULL;
}

/* [.. n ..] -> [.. nplace ..]: the sum of each place's readers. */
static struct uop *sum_readers(const struct gradient *g, struct uop *d, struct uop *readers,
                               int axis)
{
    struct tgc *t = g->t;
    struct uop *dim[MAX_RANK], *one[MAX_RANK], *index[MAX_RANK];
    int ndim = d->ndim + 1;
    for (int a = 0; a < ndim; a++) {
        bool own = a == axis || a == axis + 1;
        dim[a] = own ? readers->dim[a - axis] : d->dim[a - (a > axis)];
        one[a] = own ? dim[a] : uop_int(t, 1);
    }
    for (int a = 0; a < d->ndim; a++)
        index[a] = a == axis ? uop_expand(t, uop_reshape(t, readers, one, ndim), dim)
                             : tensor_iota(t, dim, ndim, a + (a > axis));
    return gradient_sum(g, uop_index(t, d, index), 1u << (axis + 1), false);
}

/* The adjoint of u's source if all coordinates are known, else NULL. */
static struct uop *by_readers(struct gradient *g, const struct uop *u, struct uop *d)
{
    struct tgc *t = g->t;
    const struct uop *x = u->src[0];
    struct part part[MAX_RANK];
    struct uop *dim[2 * MAX_RANK];
    int perm[MAX_RANK], at[MAX_RANK], nperm = 0, nsplit = 0, n = divide(g, u, part);
    uint32_t rest = lib_all_axes(u);
    for (int i = 0; i < n; i++) {
        if (!find_readers(g, u, &part[i]))
            return NULL;
        for (int a = 0; a < u->ndim; a++)
            if (part[i].of_u >> a & 1)
                perm[nperm++] = a;
        rest &= ~part[i].of_u;
        dim[i] = part[i].size;
    }
    int ndim = n;
    for (int a = 0; a < u->ndim; a++) /* axes along which the same elements are read */
        if (rest >> a & 1)
            perm[nperm++] = a, dim[ndim++] = u->dim[a];
    if (ndim >= MAX_RANK)
        return NULL;
    d = uop_reshape(t, uop_permute(t, d, perm), dim, ndim);
    if (ndim > n)
        d = gradient_sum(g, d, ((1u << ndim) - 1) & ~((1u << n) - 1), false);
    for (int i = 0; i < n; i++) {
        if (part[i].readers)
            d = sum_readers(g, d, part[i].readers, i);
        for (int k = 0; k < x->ndim; k++)
            if (part[i].of_x >> k & 1)
                at[k] = nsplit, dim[nsplit++] = x->dim[k];
    }
    return uop_permute(t, uop_reshape(t, d, dim, x->ndim), at);
}

/* ---- scatter */

static struct uop *scatter(const struct gradient *g, enum op op, const struct uop *u,
                           struct uop *x, struct uop *v)
{
    return uop_scatter(g->t, op, x, v, u->src + 2);
}

static struct uop *at_index(const struct gradient *g, const struct uop *u, struct uop *x)
{
    return uop_index(g->t, x, u->src + 2);
}

/* Of the elements of x, and of the values, those that are equal to the result share. */
static void give_to_extremes(struct gradient *g, struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    struct uop *x = u->src[0], *v = u->src[1];
    struct uop *of_x = lib_cast(l, x->dtype, lib_binary(l, OP_EQ, x, u)),
               *of_v = lib_cast(l, x->dtype, lib_binary(l, OP_EQ, v, at_index(g, u, u)));
    d = lib_div(l, d, scatter(g, OP_ADD, u, of_x, of_v));
    gradient_give(g, x, lib_mul(l, d, of_x));
    gradient_give(g, v, lib_mul(l, at_index(g, u, d), of_v));
}

/* The derivative of a product by x, one of its factors. product: of all factors that are not 0.
 * other: x, or 1 where x is 0. zeros: how many factors are 0. */
static struct uop *by_factor(const struct lib *l, struct uop *x, struct uop *other,
                             struct uop *product, struct uop *zeros)
{
    struct uop *zero = lib_scalar(l, x, 0), *none = lib_binaryf(l, OP_EQ, zeros, 0),
               *one = lib_binaryf(l, OP_EQ, zeros, 1);
    return lib_where(l, lib_binaryf(l, OP_EQ, x, 0), lib_where(l, one, product, zero),
                     lib_where(l, none, lib_div(l, product, other), zero));
}

/* Product and zeros are those of an element and all values that meet there. */
static void give_to_factors(struct gradient *g, const struct uop *u, struct uop *d)
{
    const struct lib *l = g->l;
    struct uop *of[2] = {u->src[0], u->src[1]}, *zero[2], *other[2];
    for (int k = 0; k < 2; k++) {
        struct uop *is_zero = lib_binaryf(l, OP_EQ, of[k], 0);
        zero[k] = lib_cast(l, d->dtype, is_zero);
        other[k] = lib_where(l, is_zero, lib_scalar(l, d, 1), of[k]);
    }
    struct uop *product = scatter(g, OP_MUL, u, other[0], other[1]),
               *zeros = scatter(g, OP_ADD, u, zero[0], zero[1]);
    for (int k = 0; k < 2; k++) {
        struct uop *p = k ? at_index(g, u, product) : product,
                   *z = k ? at_index(g, u, zeros) : zeros;
        struct uop *by = by_factor(l, of[k], other[k], p, z);
        gradient_give(g, of[k], lib_mul(l, k ? at_index(g, u, d) : d, by));
    }
}

static bool give_scattered(struct gradient *g, struct uop *u, struct uop *d)
{
    struct uop *x = u->src[0], *v = u->src[1];
    switch ((enum op)u->arg.i) {
    case OP_CONST: /* overwritten elements have no influence */
        gradient_give(g, x, scatter(g, OP_CONST, u, d, gradient_full_like(g, v, 0)));
        gradient_give(g, v, at_index(g, u, d));
        return true;
    case OP_ADD:
        gradient_give(g, x, d);
        gradient_give(g, v, at_index(g, u, d));
        return true;
    case OP_MAX:
    case OP_MIN: give_to_extremes(g, u, d); return true;
    case OP_MUL: give_to_factors(g, u, d); return true;
    default: return false;
    }
}

bool gradient_indexed(struct gradient *g, struct uop *u, struct uop *d)
{
    struct uop *x = u->src[0], *by;
    if (u->op == OP_SCATTER)
        return give_scattered(g, u, d);
    if (!gradient_wants(g, x))
        return true;
    by = x->ndim ? by_readers(g, u, d) : NULL;
    gradient_give(g, x, by ? by : uop_scatter(g->t, OP_ADD, gradient_full_like(g, x, 0), d,
                                              u->src + 1));
    return true;
}

/* A HOST that takes the largest, sorted or not, has as its second result where they were. */
bool gradient_selected(struct gradient *g, const struct uop *u, struct uop *d)
{
    struct uop *host = u->src[0], *x = host->nsrc ? host->src[0] : NULL;
    const struct host_call *h = host->arg.p;
    if (h->external || strncmp(h->function, "topk_", 5) != 0 || u->arg.i != 0)
        return false;
    for (int a = 0; a < x->ndim; a++)
        if (sym_equal(g->t, sym_prod(g->t, x->dim, a), h->param[0]) &&
            sym_equal(g->t, x->dim[a], h->param[1])) {
            gradient_give(g, x, lib_scatter_elements(g->l, OP_ADD, gradient_full_like(g, x, 0),
                                                     lib_get(g->l, host, 1), d, a));
            return true;
        }
    return false;
}
