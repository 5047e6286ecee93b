/* write_move.c - movement ops as ONNX nodes.
 *
 *      RESHAPE          none: its operand's value has its own dimensions
 *      EXPAND           Expand; elementwise ops look through it
 *      PERMUTE          Transpose; none where only axes of size 1 move
 *      PAD              Pad
 *      SHRINK, FLIP     Slice
 *      WINDOW           Slice with a step for a kernel of 1, else Gather along the axis, at
 *                       stride * o + dilation * k
 *      CONCAT, IOTA     Concat, Range
 */
#include "frontend/onnx/write.h"

#include <inttypes.h>

/* A movement in a dtype that runtimes have it for. */
static struct written *moved(struct onnx_writer *w, struct uop *u, const char *type,
                             struct written *x, struct written *const *more, int nmore)
{
    struct written *in[NODE_INPUTS] = {x};
    for (int k = 0; k < nmore; k++)
        in[k + 1] = more[k];
    return write_node(w, type, x->dtype, u->dim, u->ndim, in, nmore + 1);
}

/* --------------------------------------------------------------------------------- each of them */

static struct written *expand(struct onnx_writer *w, struct uop *u)
{
    struct uop *x = u->src[0], *size[MAX_RANK];
    for (int a = 0; a < u->ndim; a++)
        size[a] = x->dim[a] == u->dim[a] ? uop_int(w->t, 1) : u->dim[a];
    struct written *to = write_sizes(w, size, u->ndim);
    return moved(w, u, "Expand", write_exact(w, x), &to, 1);
}

static struct written *permute(struct onnx_writer *w, struct uop *u)
{
    int64_t perm[MAX_RANK];
    int last = -1;
    bool stays = true;
    for (int a = 0; a < u->ndim; a++) {
        perm[a] = PERM_GET(u->arg.i, a);
        if (uop_is_int(u->dim[a], 1))
            continue;
        stays = stays && perm[a] > last;
        last = (int)perm[a];
    }
    if (stays)
        return write_value(w, u->src[0]);
    struct written *v = moved(w, u, "Transpose", write_exact(w, u->src[0]), NULL, 0);
    write_ints(w, v, "perm", perm, u->ndim);
    return v;
}

static struct written *pad(struct onnx_writer *w, struct uop *u)
{
    struct uop *size[2 * MAX_RANK];
    int n = u->ndim;
    enum dtype d = u->dtype == DTYPE_BOOL ? DTYPE_BOOL : write_working(u->dtype);
    for (int a = 0; a < n; a++) {
        size[a] = u->src[2 + 2 * a];
        size[n + a] = u->src[3 + 2 * a];
    }
    struct written *one[2] = {write_sizes(w, size, n), write_sizes(w, size + n, n)};
    struct uop *count = uop_int(w->t, 2 * n);
    struct written *pads;
    int64_t value[2 * MAX_RANK];
    int nknown = 0;
    while (nknown < 2 * n && uop_const_int(size[nknown], &value[nknown]))
        nknown++;
    if (nknown == 2 * n) {
        pads = write_vector(w, value, 2 * n);
    } else {
        pads = write_node(w, "Concat", DTYPE_I64, &count, 1, one, 2);
        write_int(w, pads, "axis", 0);
    }
    struct written *fill = write_as(w, write_exact(w, u->src[1]), d);
    struct written *more[2] = {pads, fill};
    return moved(w, u, "Pad", write_as(w, write_exact(w, u->src[0]), d), more, 2);
}

/* Slice along these axes. */
struct slice {
    struct uop *begin[MAX_RANK], *end[MAX_RANK];
    int64_t axis[MAX_RANK], step[MAX_RANK];
    int n;
};

static struct written *slice(struct onnx_writer *w, struct uop *u, struct written *x,
                             const struct slice *s)
{
    bool steps = false;
    for (int i = 0; i < s->n; i++)
        steps |= s->step[i] != 1;
    struct written *more[4] = {write_sizes(w, s->begin, s->n), write_sizes(w, s->end, s->n),
                               write_vector(w, s->axis, s->n), NULL};
    if (steps)
        more[3] = write_vector(w, s->step, s->n);
    return moved(w, u, "Slice", x, more, steps ? 4 : 3);
}

static void slice_along(struct slice *s, int axis, struct uop *begin, struct uop *end, int64_t step)
{
    s->axis[s->n] = axis;
    s->begin[s->n] = begin;
    s->end[s->n] = end;
    s->step[s->n++] = step;
}

static struct written *shrink(struct onnx_writer *w, struct uop *u)
{
    struct slice s = {.n = 0};
    struct uop *x = u->src[0];
    for (int a = 0; a < u->ndim; a++) {
        struct uop *begin = u->src[1 + 2 * a], *size = u->src[2 + 2 * a];
        if (uop_is_int(begin, 0) && size == x->dim[a])
            continue;
        slice_along(&s, a, begin, sym_add(w->t, begin, size), 1);
    }
    return s.n ? slice(w, u, write_exact(w, x), &s) : write_value(w, x);
}

static struct written *flip(struct onnx_writer *w, struct uop *u)
{
    struct slice s = {.n = 0};
    for (int a = 0; a < u->ndim; a++)
        if (u->arg.i >> a & 1)
            slice_along(&s, a, uop_int(w->t, -1), uop_int(w->t, INT64_MIN), -1);
    return slice(w, u, write_exact(w, u->src[0]), &s);
}

/* scale * (0, 1, ... n - 1) as a tensor of these dimensions, all 1 but one. */
static struct written *steps(struct onnx_writer *w, struct uop *n, int64_t scale,
                             struct uop *const *dim, int ndim)
{
    struct uop *none[1] = {n};
    struct written *in[3] = {write_scalar_int(w, DTYPE_I64, 0), NULL,
                             write_scalar_int(w, DTYPE_I64, 1)};
    struct written *size = write_size(w, n);
    in[1] = write_reshaped(w, size, NULL, 0);
    struct written *v = write_node(w, "Range", DTYPE_I64, none, 1, in, 3);
    if (scale != 1)
        v = write_binary(w, "Mul", v, write_scalar_int(w, DTYPE_I64, scale));
    return ndim == 1 ? v : write_reshaped(w, v, dim, ndim);
}

/* The coordinates along the axis, [o, k]. */
static struct written *places(struct onnx_writer *w, struct uop *o, struct uop *k, int64_t stride,
                              int64_t dilation)
{
    enum { CONSTANT_MOST = 1 << 16 };
    int64_t no, nk, dim[2];
    struct uop *one = uop_int(w->t, 1);
    if (uop_const_int(o, &no) && uop_const_int(k, &nk) && no > 0 && nk > 0 &&
        no <= CONSTANT_MOST / nk) {
        int64_t *place = mem_array(w->t, (size_t)(no * nk), sizeof *place);
        for (int64_t i = 0; i < no * nk; i++)
            place[i] = stride * (i / nk) + dilation * (i % nk);
        dim[0] = no;
        dim[1] = nk;
        return write_tensor(w, DTYPE_I64, dim, 2, place, (size_t)(no * nk) * sizeof *place);
    }
    return write_binary(w, "Add", steps(w, o, stride, (struct uop *[]){o, one}, 2),
                        steps(w, k, dilation, (struct uop *[]){one, k}, 2));
}

static struct written *window(struct onnx_writer *w, struct uop *u)
{
    struct uop *x = u->src[0], *o = u->src[1], *k = u->src[2];
    int axis = WINDOW_AXIS(u->arg.i);
    int64_t stride = WINDOW_STRIDE(u->arg.i), dilation = WINDOW_DILATION(u->arg.i);
    if (!uop_is_int(k, 1)) {
        struct written *at = places(w, o, k, stride, dilation);
        struct written *v = moved(w, u, "Gather", write_exact(w, x), &at, 1);
        write_int(w, v, "axis", axis);
        return v;
    }
    struct slice s = {.n = 0};
    struct uop bare = *u;
    struct uop *last = sym_muli(w->t, sym_addi(w->t, o, -1), stride), *dim[MAX_RANK];
    for (int a = 0; a < x->ndim; a++)
        dim[a] = a == axis ? o : x->dim[a];
    bare.dim = dim;
    bare.ndim = x->ndim;
    /* of none, up to 0 */
    slice_along(&s, axis, uop_int(w->t, 0),
                sym_max(w->t, sym_addi(w->t, last, 1), uop_int(w->t, 0)), stride);
    return slice(w, &bare, write_exact(w, x), &s);
}

static struct written *concat(struct onnx_writer *w, struct uop *u)
{
    struct written **in = mem_array(w->t, (size_t)u->nsrc + 1, sizeof *in);
    for (int k = 0; k < u->nsrc; k++)
        in[k] = write_exact(w, u->src[k]);
    struct written *v = write_node(w, "Concat", u->dtype, u->dim, u->ndim, in, u->nsrc);
    write_int(w, v, "axis", u->arg.i);
    return v;
}

bool write_movement(struct onnx_writer *w, struct uop *u)
{
    struct written *v = NULL;
    switch (u->op) {
    case OP_IOTA: v = steps(w, u->src[0], 1, u->dim, 1); break;
    case OP_RESHAPE: case OP_CONTIGUOUS: case OP_STOP: v = write_value(w, u->src[0]); break;
    case OP_PERMUTE: v = permute(w, u); break;
    case OP_EXPAND: v = expand(w, u); break;
    case OP_PAD: v = pad(w, u); break;
    case OP_SHRINK: v = shrink(w, u); break;
    case OP_FLIP: v = flip(w, u); break;
    case OP_WINDOW: v = window(w, u); break;
    case OP_CONCAT: v = concat(w, u); break;
    default: TGC_BUG(w->t, "%s is no movement", op_name(u->op));
    }
    write_set(w, u, write_as(w, v, u->dtype));
    return true;
}
