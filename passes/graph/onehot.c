/* onehot.c - a one-hot row times a matrix is a row of the matrix.
 *
 *      sum over k  (x[i] == k ? 1 : 0) * w[k, j]  ->  w[x[i], j], or 0 if there is no such row
 *
 * Frameworks without a gather write embeddings in this way. All but one of the products are 0; what
 * remains is an INDEX, whose result outside its source is 0. The matrix has to be a weight without
 * infinities, which times 0 give NaN. The key is compared with a count that grows by one along the
 * sum: an IOTA, or a weight of such integers.
 *
 * This is checked on coordinates: those of the product, as ranges, are mapped through the movement
 * ops down to both operands of the comparison.
 */
#include "passes/analysis/contraction.h"
#include "passes/analysis/access.h"

#include <math.h>
#include <string.h>

enum { STEPS_MIN = 8 };

struct onehot {
    struct tgc *t;
    struct contraction c;
    int axis;                    /* of the sum */
    struct uop *hot, *matrix;    /* factors of the product */
    struct uop *flag, *equal;    /* the CAST under `hot`, its operand */
    struct uop *key;             /* the value that is compared with the count */
    int64_t first;               /* the first value of the count */
};

/* Element i of a weight of integers. */
static bool integer_at(const struct buffer *b, int64_t i, int64_t *v)
{
    const char *p = b->weight.data;
    int32_t narrow;
    if (i < 0 || (b->dtype != DTYPE_I32 && b->dtype != DTYPE_INDEX) ||
        (size_t)i >= b->nbytes / dtype_nbytes(b->dtype))
        return false;
    if (b->dtype == DTYPE_INDEX) {
        memcpy(v, p + 8 * i, 8);
        return true;
    }
    memcpy(&narrow, p + 4 * i, 4);
    *v = narrow;
    return true;
}

/* Whether u grows by one along the sum. */
static bool counts(struct onehot *h, struct uop *u, struct uop *const *coordinate)
{
    struct tgc *t = h->t;
    struct uop *at[MAX_RANK], *offset = uop_int(t, 0), *r = h->c.range[h->axis];
    int64_t from, n, v;
    ARRAY_COPY(at, coordinate, u->ndim);
    u = move_down(t, u, MOVES_SPREAD, at);
    while (u->op == OP_CAST && (u->dtype == DTYPE_I32 || u->dtype == DTYPE_INDEX) &&
           u->src[0]->vmin >= INT32_MIN && u->src[0]->vmax <= INT32_MAX)
        u = move_down(t, u->src[0], MOVES_SPREAD, at);
    for (int a = 0; a < u->ndim; a++)
        offset = sym_add(t, sym_mul(t, offset, u->dim[a]), at[a]);
    if (!uop_const_int(sym_sub(t, offset, r), &from) || !uop_const_int(r->src[0], &n))
        return false;
    h->first = from;
    if (u->op == OP_IOTA)
        return true;
    const struct buffer *b = known_buffer(u);
    if (!b || !integer_at(b, from, &h->first))
        return false;
    for (int64_t i = 1; i < n; i++)
        if (!integer_at(b, from + i, &v) || v != h->first + i)
            return false;
    return true;
}

static bool is_same_along(struct onehot *h, struct uop *u, struct uop *const *coordinate)
{
    struct uop *at[MAX_RANK];
    ARRAY_COPY(at, coordinate, u->ndim);
    u = move_down(h->t, u, MOVES_SPREAD, at);
    for (int a = 0; a < u->ndim; a++)
        if (uop_depends_on(h->t, at[a], h->c.range[h->axis]))
            return false;
    return true;
}

/* Finds the factor that is a comparison of a key with a count. */
static bool find_comparison(struct onehot *h)
{
    struct uop *at[MAX_RANK];
    memcpy(at, h->c.range, sizeof at);
    h->flag = move_down(h->t, h->hot, MOVES_SPREAD, at);
    h->equal = h->flag->op == OP_CAST ? h->flag->src[0] : h->flag;
    if (h->flag->op != OP_CAST || h->equal->op != OP_EQ ||
        (h->equal->src[0]->dtype != DTYPE_I32 && h->equal->src[0]->dtype != DTYPE_INDEX))
        return false;
    for (int k = 0; k < 2; k++) {
        h->key = h->equal->src[1 - k];
        if (h->key->ndim == h->equal->ndim && h->equal->src[k]->ndim == h->equal->ndim &&
            counts(h, h->equal->src[k], at) && is_same_along(h, h->key, at))
            return h->first == 0 || h->key->dtype == DTYPE_I32;   /* key - first is exact */
    }
    return false;
}

static bool is_finite_weight(const struct uop *u)
{
    u = value_behind(u, MOVES_SPREAD);
    const struct buffer *b = known_buffer(u);
    if (!b || b->dtype != DTYPE_F32)
        return false;
    for (size_t i = 0; i < b->nbytes / sizeof(float); i++) {
        float v;
        memcpy(&v, (const char *)b->weight.data + i * sizeof v, sizeof v);
        if (!isfinite(v))
            return false;
    }
    return true;
}

static bool find_onehot(struct tgc *t, struct uop *u, struct onehot *h)
{
    int64_t n;
    *h = (struct onehot){.t = t};
    if (u->dtype != DTYPE_F32 || !contraction_begin(t, u, &h->c))
        return false;
    uint32_t axes = h->c.reduced;
    const struct uop *product = h->c.product;
    if (!axes || (axes & (axes - 1)))
        return false;
    h->axis = __builtin_ctz(axes);
    if (!uop_const_int(product->dim[h->axis], &n) || n < STEPS_MIN)
        return false;
    for (int k = 0; k < 2; k++) {
        h->hot = product->src[k];
        h->matrix = product->src[1 - k];
        if (h->hot->ndim == product->ndim && h->matrix->ndim == product->ndim &&
            find_comparison(h) && is_finite_weight(h->matrix))
            return true;
    }
    return false;
}

/* The key at the product's coordinates, without the count's axis. */
static struct uop *move_key(const struct onehot *h)
{
    struct tgc *t = h->t;
    struct path p = path_down(h->hot, MOVES_SPREAD);
    if (p.base != h->flag)
        return NULL;
    struct uop *u = uop_cast(t, DTYPE_INDEX, h->key);
    u = tensor_binary(t, OP_SUB, u, uop_int(t, h->first));
    return axes_keep(t, path_up(t, &p, u), ~(1u << h->axis));
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    struct onehot h;
    struct uop *index[MAX_RANK];
    (void)ctx;
    struct mem_mark mark = scratch_mark(t);
    bool found = find_onehot(t, u, &h);
    scratch_release(t, mark);
    struct uop *key = found ? move_key(&h) : NULL;
    if (!key)
        return NULL;
    for (int a = 0; a < u->ndim; a++)
        index[a] = a == h.axis ? key : tensor_iota(t, u->dim, u->ndim, a);
    struct uop *row = uop_index(t, h.matrix, index);
    uop_set_origin(t, row, u);
    return row;
}

bool pass_onehot(struct tgc *t, struct graph *g)
{
    graph_rewrite(t, g, rewrite, NULL);
    return true;
}
