/* cases.c - choices made at run time: between two values, perhaps of different shapes,
 * and between the interpretations of a list of axes.
 *
 * A choice is an IF, so only the chosen side is computed. If the shapes differ, both sides are put
 * into a box that is large enough for either; the IF also returns the dimensions, which become
 * symbols, and the result is the corner of the box.
 *
 * For a list of axes known only at run time, the operator is lowered for each possible set of
 * axes; those that fail, or do not have the declared shape, are dropped, and IFs choose between the
 * rest. A declared shape often leaves one.
 */
#include "frontend/onnx/lower.h"

#include <string.h>

enum { MAX_CASES = 64 };

struct uop *node_out_of_box(const struct node *n, struct uop *x, struct uop *const *dim)
{
    struct uop *begin[MAX_RANK];
    for (int a = 0; a < x->ndim; a++)
        begin[a] = uop_int(n->t, 0);
    return uop_shrink(n->t, x, begin, dim);
}

/* The two sides of a choice as they go into the IF, side[0] where the condition holds. */
struct choice {
    struct uop *cond, **side[2];
    int count;
    size_t cap[2];
};

static int choice_add(const struct node *n, struct choice *c, struct uop *then, struct uop *other)
{
    int at = c->count;
    VEC_PUSH(n->t, c->side[0], c->count, c->cap[0], then);
    c->count = at;
    VEC_PUSH(n->t, c->side[1], c->count, c->cap[1], other);
    return at;
}

/* The index of result k in the IF, and its dimensions: NULL: those of its shape there, else the
 * index of a scalar that holds it. */
struct chosen { int at, dim_at[MAX_RANK]; };

static bool has_one_element(const struct uop *x)
{
    for (int a = 0; a < x->ndim; a++)
        if (!uop_is_int(x->dim[a], 1))
            return false;
    return true;
}

/* Ranks are known at compile time; of two ranks with a single element, the higher one is taken. */
static bool add_result(const struct node *n, struct choice *c, int k, struct uop *a, struct uop *b,
                       struct chosen *r)
{
    struct tgc *t = n->t;
    struct uop *box[MAX_RANK];
    bool same = true;
    if (a->ndim != b->ndim && has_one_element(a) && has_one_element(b)) {
        struct uop **one = a->ndim > b->ndim ? a->dim : b->dim;
        int rank = a->ndim > b->ndim ? a->ndim : b->ndim;
        a = uop_reshape(t, a, one, rank);
        b = uop_reshape(t, b, one, rank);
    }
    if (a->dtype != b->dtype || a->ndim != b->ndim)
        return node_error(n, -1,
                          "output %d is %s if the condition holds and %s otherwise; dtype and rank "
                          "must be the same where the condition depends on run-time data",
                          k, shape_text(n, a), shape_text(n, b));
    for (int i = 0; i < a->ndim; i++) {
        bool equal = sym_equal(t, a->dim[i], b->dim[i]);
        int64_t most = a->dim[i]->vmax > b->dim[i]->vmax ? a->dim[i]->vmax : b->dim[i]->vmax;
        box[i] = equal ? a->dim[i] : uop_int(t, most);
        r->dim_at[i] = equal ? -1 : choice_add(n, c, a->dim[i], b->dim[i]);
        same &= equal;
    }
    if (!same && (!(a = tensor_fit(n->t, a, box)) || !(b = tensor_fit(n->t, b, box))))
        return false;
    r->at = choice_add(n, c, a, b);
    return true;
}

bool node_choose(const struct node *n, struct uop *cond, struct uop *const *then,
                 struct uop *const *other, int count, struct uop **out)
{
    struct tgc *t = n->t;
    struct choice c = {.cond = cond};
    struct chosen *r = mem_array(t, (size_t)count + 1, sizeof *r);
    for (int k = 0; k < count; k++)
        if (then[k] != other[k] && !add_result(n, &c, k, then[k], other[k], &r[k]))
            return false;
    struct uop *all = c.count ? uop_if(t, cond, c.side[0], c.side[1], c.count) : NULL;
    for (int k = 0; k < count; k++) {
        if (then[k] == other[k]) {
            out[k] = then[k];
            continue;
        }
        struct uop *x = uop_get(t, all, r[k].at), *dim[MAX_RANK];
        for (int a = 0; a < x->ndim; a++) {
            dim[a] = x->dim[a];
            if (r[k].dim_at[a] < 0)
                continue;
            const struct uop *p = then[k]->dim[a], *q = other[k]->dim[a];
            int64_t least = p->vmin < q->vmin ? p->vmin : q->vmin;
            dim[a] = node_symbol(n, -1, uop_get(t, all, r[k].dim_at[a]),
                                 node_output_dim_name(n, k, a), least < 0 ? 0 : least, x->dim[a]);
            if (!dim[a])
                return false;
        }
        out[k] = node_out_of_box(n, x, dim);
    }
    return true;
}

/* ----------------------------------------------------------------------------------------- axes */

/* One interpretation of the list. */
struct reading { uint32_t axes; struct uop **out, *cond, *ok; };

/* The axes are those of the mask, in any order. */
static struct uop *reads_as(const struct node *n, struct uop *const *elem, int count, uint32_t axes,
                            int rank)
{
    struct tgc *t = n->t;
    struct uop *mask = uop_int(t, 0);
    for (int i = 0; i < count; i++) {
        struct uop *axis = uop_where(t, uop_binary(t, OP_LT, elem[i], uop_int(t, 0)),
                                     uop_binary(t, OP_ADD, elem[i], uop_int(t, rank)), elem[i]);
        mask = uop_binary(t, OP_OR, mask, uop_binary(t, OP_SHL, uop_int(t, 1), axis));
    }
    return uop_binary(t, OP_EQ, mask, uop_int(t, (int64_t)axes));
}

static bool try_reading(struct node *n, int k, uint32_t axes, struct reading *r)
{
    struct lower *l = n->lower;
    struct attempt start = attempt_begin(n);
    struct uop *saved = n->in[k], *elem[MAX_RANK], *one = uop_int(n->t, 1);
    int count = 0, mark = l->ncheck;
    for (int a = 0; a < MAX_RANK; a++)
        if (axes >> a & 1)
            elem[count++] = uop_int(n->t, a);
    n->in[k] = saved->ndim || count != 1 ? index_vector(n->t, elem, count) : elem[0];
    if (saved->ndim == 1 && count == 1)
        n->in[k] = uop_reshape(n->t, elem[0], &one, 1);
    memset(n->out, 0, (size_t)n->nout * sizeof *n->out);
    bool ok = n->operator->lower(n);
    n->in[k] = saved;
    if (!ok) {
        attempt_undo(n, start);
        return false;
    }
    r->axes = axes;
    r->ok = lower_take_checks(l, mark);
    r->out = mem_copy(n->t, n->out, (size_t)n->nout * sizeof *n->out);
    for (int i = 0; i < n->nout; i++)
        if (!lower_fits_declared(n, i, r->out[i]))
            return false;
    return true;
}

bool node_is_open(const struct node *n, int k)
{
    int64_t total = 1;
    struct uop *x = k < n->nin ? n->in[k] : NULL;
    for (int a = 0; x && a < x->ndim; a++)
        if (!uop_const_int(x->dim[a], &total) || total > MAX_RANK)
            return false;
    return x && x->ndim <= 1 && dtype_is_int(x->dtype) && !node_is_known(n, k);
}

bool lower_by_cases(struct node *n, int k, int rank)
{
    struct tgc *t = n->t;
    struct uop **elem, *any = uop_bool(t, false), *fine = uop_bool(t, true);
    struct reading reading[MAX_CASES];
    int count, ncase = 0;
    if (!node_integers(n, k, &elem, &count))
        return false;
    if (rank > MAX_RANK || count > rank)
        return node_error(n, k, "%d axes for a tensor of rank %d", count, rank);
    for (uint32_t axes = 0; axes < UINT32_C(1) << rank; axes++) {
        if (__builtin_popcount(axes) != count)
            continue;
        if (ncase == MAX_CASES)
            return node_error(n, k,
                              "is known only at run time, and could be too many sets of axes");
        ncase += try_reading(n, k, axes, &reading[ncase]);
    }
    if (!ncase)
        return node_error(n, k, "no axes that it could hold go with the input and the declared "
                                "shape of the result");
    struct uop **out = reading[ncase - 1].out;
    for (int i = 0; i < ncase; i++) {
        reading[i].cond = reads_as(n, elem, count, reading[i].axes, rank);
        any = uop_binary(t, OP_OR, any, reading[i].cond);
        fine = uop_binary(t, OP_AND, fine,
                          uop_binary(t, OP_OR, uop_not(t, reading[i].cond), reading[i].ok));
    }
    for (int i = ncase - 2; i >= 0; i--) {
        struct uop **next = mem_array(t, (size_t)n->nout + 1, sizeof *next);
        if (!node_choose(n, reading[i].cond, reading[i].out, out, n->nout, next))
            return false;
        out = next;
    }
    ARRAY_COPY(n->out, out, n->nout);
    return node_require(n, k, any, "the axes do not go with the input and the declared result") &&
           node_require(n, k, fine, "the axes do not go with the input");
}
