/* write_index.c - INDEX and SCATTER as ONNX nodes.
 *
 *      INDEX     Gather where one coordinate is computed and the others are their axes' own places;
 *                else GatherND
 *      SCATTER   ScatterND
 *
 * ONNX leaves places outside of a tensor open, and runtimes refuse them; the uops read 0 there, and
 * store nothing. Where a coordinate may be outside, it is clamped and the result chosen by Where;
 * SCATTER then stores along the flat tensor with one more element, which is cut off.
 */
#include "frontend/onnx/write.h"

/* x is 0, 1, ... n - 1 along `axis` of its own, n being its size; looks through RESHAPE of ones and
 * EXPAND. Sets *axis. */
static bool is_own_place(const struct uop *x, const struct uop *n, int *axis)
{
    int at = -1;
    uint32_t ones = 0;                   /* axes of x along which it does not change */
    const struct uop *u = x;
    while (u->op == OP_EXPAND || u->op == OP_RESHAPE) {
        const struct uop *s = u->src[0];
        if (u->op == OP_EXPAND)
            for (int a = 0; a < u->ndim; a++)
                ones |= s->dim[a] != u->dim[a] ? 1u << a : 0;
        else if (s->op != OP_IOTA)
            return false;
        u = s;
    }
    if (u->op != OP_IOTA || u->src[0] != n || !x->ndim)
        return false;
    for (int a = 0; a < x->ndim; a++)
        if (!(ones >> a & 1) && !uop_is_int(x->dim[a], 1)) {
            if (at >= 0)
                return false;
            at = a;
        }
    *axis = at;
    return at >= 0 && x->dim[at] == n;
}

static bool is_inside(const struct uop *i, const struct uop *n)
{
    int axis;
    return (i->vmin >= 0 && i->vmax < n->vmin) || is_own_place(i, n, &axis);
}

/* A size that broadcasts to what it is compared with. */
static struct written *size_for(struct onnx_writer *w, const struct written *at, struct uop *n)
{
    struct written *size = write_size(w, n);
    return at->ndim ? size : write_reshaped(w, size, NULL, 0);
}

/* A coordinate, in i64, and whether it is inside; inside: NULL where it always is. */
struct place_along { struct written *at, *inside; };

static struct place_along place_along(struct onnx_writer *w, struct uop *i, struct uop *n)
{
    struct place_along p = {write_as(w, write_exact(w, i), DTYPE_I64), NULL};
    if (is_inside(i, n))
        return p;
    struct written *zero = write_scalar_int(w, DTYPE_I64, 0);
    struct written *below = write_compare(w, "Less", p.at, size_for(w, p.at, n));
    p.inside = i->vmin >= 0
                   ? below
                   : write_compare(w, "And",
                                   write_compare(w, "GreaterOrEqual", p.at, zero), below);
    p.at = write_where(w, p.inside, p.at, zero);
    return p;
}

static struct written *both(struct onnx_writer *w, struct written *a, struct written *b)
{
    return !a ? b : !b ? a : write_compare(w, "And", a, b);
}

/* The one coordinate that is computed; -1: the others are not their axes' own places in order, with
 * the computed one's axes between them. *begin, *end: these axes of the result. */
static int find_gathered(const struct uop *u, int *begin, int *end)
{
    const struct uop *x = u->src[0];
    int gathered = -1, axis, last = -1;
    for (int a = 0; a < x->ndim; a++)
        if (!is_own_place(u->src[1 + a], x->dim[a], &axis)) {
            if (gathered >= 0)
                return -1;
            gathered = a;
        }
    if (gathered < 0)
        return -1;
    *begin = gathered;
    *end = u->ndim - (x->ndim - 1 - gathered);
    for (int a = 0; a < x->ndim; a++) {
        int want = a < gathered ? a : u->ndim - (x->ndim - a);
        if (a == gathered)
            continue;
        if (!is_own_place(u->src[1 + a], x->dim[a], &axis) || axis != want || axis <= last)
            return -1;
        last = axis;
    }
    return *end >= *begin ? gathered : -1;
}

/* i without axes along which it does not change: those before begin, and from end on. NULL: it
 * changes along another one. */
static struct written *without_others(struct onnx_writer *w, struct uop *i, int begin, int end)
{
    struct uop *dim[MAX_RANK], *x = i;
    int n = 0;
    while (x->op == OP_EXPAND)
        x = x->src[0];
    if (x->ndim != i->ndim)
        return NULL;
    for (int a = 0; a < i->ndim; a++) {
        bool inside = a >= begin && a < end;
        if (inside ? x->dim[a] != i->dim[a] : !uop_is_int(x->dim[a], 1))
            return NULL;
        if (inside)
            dim[n++] = x->dim[a];
    }
    return write_reshaped(w, write_value(w, x), dim, n);
}

static struct written *gather(struct onnx_writer *w, struct uop *u)
{
    int begin, end, axis = find_gathered(u, &begin, &end);
    struct uop *x = u->src[0], *i = axis < 0 ? NULL : u->src[1 + axis];
    struct written *bare = i ? without_others(w, i, begin, end) : NULL;
    if (!bare)
        return NULL;
    struct written *zero = write_scalar_int(w, DTYPE_I64, 0), *inside = NULL;
    struct written *at = write_as(w, bare, DTYPE_I64);
    if (!is_inside(i, x->dim[axis])) {
        struct written *below = write_compare(w, "Less", at, size_for(w, at, x->dim[axis]));
        inside = i->vmin >= 0 ? below
                              : write_compare(w, "And",
                                              write_compare(w, "GreaterOrEqual", at, zero), below);
        at = write_where(w, inside, at, zero);
    }
    struct written *in[2] = {write_exact(w, x), at};
    struct written *v = write_node(w, "Gather", x->dtype, u->dim, u->ndim, in, 2);
    write_int(w, v, "axis", axis);
    if (!inside)
        return v;
    struct uop *dim[MAX_RANK];
    for (int a = 0; a < u->ndim; a++)
        dim[a] = a >= begin && a < end ? u->dim[a] : uop_int(w->t, 1);
    inside = write_reshaped(w, inside, dim, u->ndim);
    enum dtype d = write_working(x->dtype);
    v = write_where(w, inside, write_as(w, v, d), write_scalar_int(w, d, 0));
    return write_as(w, v, x->dtype);
}

/* Coordinates as the last axis of one tensor; *inside: NULL where all are inside. */
static struct written *coordinates(struct onnx_writer *w, struct uop *x, struct uop *const *i,
                                   struct uop *const *dim, int ndim, struct written **inside)
{
    struct written *in[MAX_RANK];
    struct uop *each[MAX_RANK + 1];
    *inside = NULL;
    for (int a = 0; a < ndim; a++)
        each[a] = dim[a];
    for (int a = 0; a < x->ndim; a++) {
        struct place_along p = place_along(w, i[a], x->dim[a]);
        *inside = both(w, *inside, p.inside);
        each[ndim] = uop_int(w->t, 1);
        in[a] = write_reshaped(w, p.at, each, ndim + 1);
    }
    each[ndim] = uop_int(w->t, x->ndim);
    struct written *v = write_node(w, "Concat", DTYPE_I64, each, ndim + 1, in, x->ndim);
    write_int(w, v, "axis", ndim);
    return v;
}

bool write_index(struct onnx_writer *w, struct uop *u)
{
    struct uop *x = u->src[0];
    struct written *inside = NULL, *v = gather(w, u);
    if (v) {
        write_set(w, u, v);
        return true;
    }
    if (!x->ndim) {
        write_set(w, u, write_value(w, x));
        return true;
    }
    if (u->ndim == MAX_RANK)
        return write_refuse(w, u, "has too many axes for coordinates along one more");
    struct written *at = coordinates(w, x, u->src + 1, u->dim, u->ndim, &inside);
    struct written *in[2] = {write_exact(w, x), at};
    v = write_node(w, "GatherND", x->dtype, u->dim, u->ndim, in, 2);
    if (inside) {
        enum dtype d = write_working(x->dtype);
        v = write_as(w, write_where(w, inside, write_as(w, v, d), write_scalar_int(w, d, 0)),
                     x->dtype);
    }
    write_set(w, u, v);
    return true;
}

/* -------------------------------------------------------------------------------------- scatter */

static const char *reduction_of(enum op op)
{
    return op == OP_ADD   ? "add"
           : op == OP_MUL ? "mul"
           : op == OP_MAX ? "max"
           : op == OP_MIN ? "min"
                          : "none";
}

static struct written *scatter_node(struct onnx_writer *w, enum op op, struct written *x,
                                    struct written *at, struct written *value)
{
    struct written *in[3] = {x, at, value};
    struct written *v = write_node(w, "ScatterND", x->dtype, x->dim, x->ndim, in, 3);
    if (op != OP_CONST)
        write_string(w, v, "reduction", reduction_of(op));
    return v;
}

/* The flat place of coordinates, and for those outside the place after the last one. */
static struct written *flat_places(struct onnx_writer *w, struct uop *u, struct uop *size)
{
    struct uop *x = u->src[0], *value = u->src[1], *one[MAX_RANK + 1];
    struct written *at = NULL, *inside = NULL;
    for (int a = 0; a < x->ndim; a++) {
        struct place_along p = place_along(w, u->src[2 + a], x->dim[a]);
        inside = both(w, inside, p.inside);
        if (at)
            at = write_binary(w, "Mul", at, size_for(w, at, x->dim[a]));
        at = at ? write_binary(w, "Add", at, p.at) : p.at;
    }
    if (inside)
        at = write_where(w, inside, at, size_for(w, at, size));
    for (int a = 0; a < value->ndim; a++)
        one[a] = value->dim[a];
    one[value->ndim] = uop_int(w->t, 1);
    return write_reshaped(w, at, one, value->ndim + 1);
}

static struct written *scatter_flat(struct onnx_writer *w, struct uop *u, struct written *x,
                                    struct written *value)
{
    struct uop *n = sym_prod(w->t, u->dim, u->ndim), *more = sym_addi(w->t, n, 1);
    struct written *flat = write_reshaped(w, x, &n, 1);
    struct written *in[2] = {flat, write_vector(w, (int64_t[]){0, 1}, 2)};
    struct written *longer = write_node(w, "Pad", x->dtype, &more, 1, in, 2);
    struct written *at = flat_places(w, u, n);
    struct written *v = scatter_node(w, (enum op)u->arg.i, longer, at, value);
    struct written *cut[3] = {v, write_vector(w, (int64_t[]){0}, 1),
                              write_vector(w, (int64_t[]){-1}, 1)};
    return write_node(w, "Slice", x->dtype, &n, 1, cut, 3);
}

bool write_scatter(struct onnx_writer *w, struct uop *u)
{
    struct uop *x = u->src[0];
    enum dtype d = u->arg.i == OP_CONST && u->dtype == DTYPE_BOOL ? DTYPE_BOOL
                                                                  : write_working(u->dtype);
    bool all = true;
    struct written *inside;
    if (d == DTYPE_F16 && u->arg.i != OP_CONST)
        d = DTYPE_F32;                                  /* ONNX Runtime does not reduce halves */
    for (int a = 0; a < x->ndim; a++)
        all = all && is_inside(u->src[2 + a], x->dim[a]);
    if (u->src[1]->ndim == MAX_RANK || !x->ndim)
        return write_refuse(w, u, "stores through coordinates that ONNX cannot have; write the "
                                  "model as .tg");
    struct written *to = write_as(w, write_exact(w, x), d),
                   *value = write_as(w, write_exact(w, u->src[1]), d), *v;
    if (all) {
        struct uop *s = u->src[1];
        struct written *at = coordinates(w, x, u->src + 2, s->dim, s->ndim, &inside);
        v = scatter_node(w, (enum op)u->arg.i, to, at, value);
    } else {
        v = scatter_flat(w, u, to, value);
    }
    write_set(w, u, write_as(w, v, u->dtype));
    return true;
}
