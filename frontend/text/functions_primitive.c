/* functions_primitive.c - the ops of ir/ops.def as functions of the text format: what the writer
 * writes.
 *
 * Elementwise ops broadcast here, which printed graphs never need. Dimensions are attributes:
 * reshape(%x) {shape=[N, 4]}.
 */
#include "frontend/text/reader.h"

#include <math.h>
#include <string.h>

/* The operand whose dtype bare numbers take: the first that has one. For where it is a choice, not
 * the condition. */
static const struct uop *typed_operand(struct call *c, int from)
{
    for (int k = from; k < c->narg; k++)
        if (!c->arg[k].untyped && c->arg[k].value)
            return c->arg[k].value;
    return NULL;
}

/* exp1, and exp2 of f64, are written by other ops: 1 + e^-x and e^(x ln 2). Late passes alone make
 * these ops, for the targets and dtypes that have them. */
static struct uop *unary(const struct call *c, enum op op, struct uop *x)
{
    const struct lib *l = c->l;
    if (op == OP_EXP1)
        return lib_binaryf(l, OP_ADD, lib_unary(l, OP_EXP, lib_unary(l, OP_NEG, x)), 1);
    if (op == OP_EXP2 && x->dtype == DTYPE_F64)
        return lib_unary(l, OP_EXP, lib_binaryf(l, OP_MUL, x, log(2)));
    return lib_unary(l, op, x);
}

static void run_elementwise(struct call *c)
{
    enum op op;
    op_parse(c->name, &op);
    int from = op == OP_WHERE ? 1 : 0;
    const struct uop *like = typed_operand(c, from);
    struct uop *x[3] = {NULL};
    for (int k = 0; k < c->narg; k++)
        if (!(x[k] = k < from ? call_arg(c, k) : call_arg_like(c, k, like))) {
            if (!c->failed)
                call_fail(c, "an operand is missing");
            return;
        }
    if (op == OP_CAST || op == OP_BITCAST) {
        enum dtype d = attr_required(c, "to") ? attr_dtype(c, "to", x[0]->dtype) : x[0]->dtype;
        if (op == OP_CAST)
            call_result(c, lib_cast(c->l, d, x[0]));
        else if (dtype_bits(d) != dtype_bits(x[0]->dtype))
            call_fail(c, "the dtypes differ in width");
        else
            call_result(
                c, d == x[0]->dtype ? x[0] : uop_new(c->r->t, OP_BITCAST, d, x, 1, (union arg){0}));
    } else if (op == OP_MULACC) {
        if (x[0]->dtype != x[1]->dtype || x[0]->dtype != x[2]->dtype || x[0]->ndim != x[1]->ndim ||
            x[0]->ndim != x[2]->ndim)
            call_fail(c, "the operands must have one dtype and rank");
        else
            call_result(c, uop_new(c->r->t, op, x[0]->dtype, x, 3, (union arg){0}));
    } else {
        call_result(c, c->narg == 1   ? unary(c, op, x[0])
                       : c->narg == 2 ? lib_binary(c->l, op, x[0], x[1])
                                      : lib_where(c->l, x[0], x[1], x[2]));
    }
}

static void run_stack(struct call *c)
{
    struct uop **x = mem_array(c->r->t, (size_t)c->narg, sizeof *x), *r;
    const struct uop *like = typed_operand(c, 1);
    for (int k = 0; k < c->narg; k++)
        x[k] = k ? call_arg_like(c, k, like) : call_arg(c, k);
    if (c->failed)
        return;
    if (x[0]->dtype != DTYPE_INDEX) {
        call_fail(c, "the index must be i64");
        return;
    }
    for (int k = 2; k < c->narg; k++)
        if (x[k]->dtype != x[1]->dtype) {
            call_fail(c, "the operands behind the index must have one dtype");
            return;
        }
    if ((r = tensor_stack(c->r->t, x[0], x + 1, c->narg - 1)) != NULL)
        call_result(c, r);
    else
        call_fail(c, "the operands' shapes do not broadcast");
}

static void run_iota(struct call *c)
{
    struct uop *n = call_arg(c, 0);
    if (!n || n->ndim || n->dtype != DTYPE_INDEX || n->vmax < 0)
        call_fail(c, "the operand must be a dimension");
    else
        call_result(c, uop_iota(c->r->t, n));
}

static void run_reshape(struct call *c)
{
    struct uop *dim[MAX_RANK];
    int n = attr_required(c, "shape") ? attr_dims(c, "shape", dim, MAX_RANK) : -1;
    for (int a = 0; a < n; a++)
        if (uop_is_int(dim[a], -1))
            dim[a] = NULL;
        else if (dim[a]->vmax < 0)
            call_fail(c, "a negative dimension; -1 stands for the one to infer");
    if (!c->failed)
        call_result(c, lib_reshape(c->l, call_arg(c, 0), dim, n));
}

static void run_permute(struct call *c)
{
    int64_t perm[MAX_RANK];
    int n = attr_required(c, "perm") ? attr_ints(c, "perm", perm, MAX_RANK) : -1;
    if (!c->failed)
        call_result(c, lib_permute(c->l, call_arg(c, 0), perm, n));
}

static void run_expand(struct call *c)
{
    struct uop *dim[MAX_RANK];
    int n = attr_required(c, "shape") ? attr_dims(c, "shape", dim, MAX_RANK) : -1;
    if (!c->failed)
        call_result(c, lib_broadcast_to(c->l, call_arg(c, 0), dim, n));
}

/* One entry an axis of x. */
static bool per_axis(struct call *c, const char *name, const struct uop *x, struct uop **v)
{
    if (!x || !attr_required(c, name))
        return false;
    int n = attr_dims(c, name, v, MAX_RANK);
    if (!c->failed && n != x->ndim)
        call_fail(c, "'%s' has %d entries for a tensor of rank %d", name, n, x->ndim);
    return !c->failed;
}

static void run_pad(struct call *c)
{
    struct uop *x = call_arg(c, 0), *lo[MAX_RANK], *hi[MAX_RANK], *value = call_arg_like(c, 1, x);
    if (!per_axis(c, "lo", x, lo) || !per_axis(c, "hi", x, hi) || c->failed)
        return;
    bool grows = value && value->dtype == x->dtype && !value->ndim;
    for (int a = 0; a < x->ndim; a++)
        grows &= lo[a]->vmin >= 0 && hi[a]->vmin >= 0;
    call_result(c, grows ? uop_pad(c->r->t, x, value, lo, hi)
                         : lib_pad(c->l, x, PAD_MODE_CONSTANT, value, lo, hi));
}

static void run_shrink(struct call *c)
{
    struct uop *x = call_arg(c, 0), *begin[MAX_RANK], *size[MAX_RANK];
    if (!per_axis(c, "begin", x, begin) || !per_axis(c, "size", x, size))
        return;
    for (int a = 0; a < x->ndim; a++)
        if (begin[a]->vmax < 0 || size[a]->vmax < 0 ||
            sat_add(begin[a]->vmin, size[a]->vmin) > x->dim[a]->vmax) {
            call_fail(c, "the part lies outside axis %d of %s", a, lib_describe(c->l, x));
            return;
        }
    call_result(c, uop_shrink(c->r->t, x, begin, size));
}

static void run_flip(struct call *c)
{
    struct uop *x = call_arg(c, 0);
    uint32_t axes = attr_axes(c, "axes", x);
    if (!c->failed)
        call_result(c, lib_flip(c->l, x, axes));
}

static void run_window(struct call *c)
{
    struct uop *x = call_arg(c, 0), *out = attr_required(c, "out") ? attr_dim(c, "out") : NULL;
    struct uop *kernel = attr_required(c, "kernel") ? attr_dim(c, "kernel") : NULL;
    int64_t stride = attr_int(c, "stride", 1), dilation = attr_int(c, "dilation", 1);
    int axis;
    if (c->failed || !x || !lib_axis(c->l, attr_int(c, "axis", 0), x->ndim, &axis) || c->failed) {
        c->failed = true;
        return;
    }
    if (x->ndim == MAX_RANK || stride < 0 || dilation < 0 || stride >> 28 || dilation >> 28 ||
        out->vmax < 0 || kernel->vmax < 0) {
        call_fail(c, "sizes must not be negative, strides and dilations below 2^28");
        return;
    }
    int64_t reach = sat_add(sat_mul(stride, out->vmin - 1), sat_mul(dilation, kernel->vmin - 1));
    if (out->vmin > 0 && kernel->vmin > 0 && reach >= x->dim[axis]->vmax) {
        call_fail(c, "the windows reach beyond axis %d of %s", axis, lib_describe(c->l, x));
        return;
    }
    call_result(c, uop_window(c->r->t, x, axis, out, kernel, stride, dilation));
}

static void run_concat(struct call *c)
{
    struct uop **x = mem_array(c->r->t, (size_t)c->narg, sizeof *x);
    int64_t axis = attr_int(c, "axis", 0);
    for (int k = 0; k < c->narg; k++)
        x[k] = call_arg(c, k);
    if (!c->failed)
        call_result(c, lib_concat(c->l, x, c->narg, axis));
}

static void run_reduce(struct call *c)
{
    static const char *const names[] = {"add", "mul", "max", "min", "and", "or", "xor", NULL};
    static const enum op ops[] = {OP_ADD, OP_MUL, OP_MAX, OP_MIN, OP_AND, OP_OR, OP_XOR};
    struct uop *x = call_arg(c, 0);
    enum op op = ops[attr_choice(c, "op", names, 0)];
    uint32_t axes = attr_axes(c, "axes", x);
    bool bits = op == OP_AND || op == OP_OR || op == OP_XOR;
    if (c->failed || !x)
        return;
    bool boolean = x->dtype == DTYPE_BOOL;
    if (x->dtype == DTYPE_STRING ||
        (bits ? !boolean && !dtype_is_int(x->dtype) : boolean && (op == OP_ADD || op == OP_MUL))) {
        call_fail(c, "%s of %s", op_name(op), lib_describe(c->l, x));
        return;
    }
    call_result(c, uop_reduce(c->r->t, op, x, axes));
}

/* Operands from..narg-1 as coordinates of one shape; NULL dims: whatever they broadcast to. */
static bool coordinates(struct call *c, const struct uop *x, int from, struct uop **index,
                        struct uop **dim, int ndim)
{
    int n = c->narg - from;
    if (n != x->ndim) {
        call_fail(c, "%d coordinates for a tensor of rank %d", n, x->ndim);
        return false;
    }
    for (int k = 0; k < n; k++) {
        index[k] = call_arg(c, from + k);
        if (!index[k] || index[k]->dtype != DTYPE_INDEX) {
            if (!c->failed)
                call_fail(c, "coordinates must be i64");
            return false;
        }
    }
    bool ok = ndim >= 0 || tensor_broadcast_dims(c->r->t, index, n, dim, &ndim);
    for (int k = 0; ok && k < n; k++)
        ok = (index[k] = tensor_broadcast_to(c->r->t, index[k], dim, ndim)) != NULL;
    if (!ok)
        call_fail(c, "the coordinates' shapes do not broadcast");
    return ok;
}

static void run_index(struct call *c)
{
    struct uop *x = call_arg(c, 0), *index[MAX_RANK], *dim[MAX_RANK];
    if (x && coordinates(c, x, 1, index, dim, -1))
        call_result(c, uop_index(c->r->t, x, index));
}

static void run_scatter(struct call *c)
{
    static const char *const names[] = {"const", "add", "mul", "max", "min", NULL};
    static const enum op ops[] = {OP_CONST, OP_ADD, OP_MUL, OP_MAX, OP_MIN};
    struct uop *x = call_arg(c, 0), *value = call_arg_like(c, 1, x), *index[MAX_RANK];
    enum op op = ops[attr_choice(c, "op", names, 0)];
    if (c->failed || !x || !value)
        return;
    if (value->dtype != x->dtype) {
        call_fail(c, "the values must have the tensor's dtype");
        return;
    }
    if (coordinates(c, x, 2, index, value->dim, value->ndim))
        call_result(c, uop_scatter(c->r->t, op, x, value, index));
}

static void run_contiguous(struct call *c) { call_result(c, lib_contiguous(c->l, call_arg(c, 0))); }

/* clang-format off */
#define ELEMENTWISE_LEAF(id, text)
#define ELEMENTWISE_MOVE(id, text)
#define ELEMENTWISE_REDUCE(id, text)
#define ELEMENTWISE_MEMORY(id, text)
#define ELEMENTWISE_CONTROL(id, text)
#define ELEMENTWISE_CHOICE(id, text) {text, "i, x, more...", "", run_stack},
#define ELEMENTWISE_UNARY(id, text) \
    {text, "x", OP_##id == OP_CAST || OP_##id == OP_BITCAST ? "to" : "", run_elementwise},
#define ELEMENTWISE_BINARY(id, text) {text, "a, b", "", run_elementwise},
#define ELEMENTWISE_TERNARY(id, text) \
    {text, OP_##id == OP_WHERE ? "condition, a, b" : "a, b, c", "", run_elementwise},

const struct function primitive_functions[] = {
#define OP(id, text, class, nsrc, arg) ELEMENTWISE_##class(id, text)
#include "ir/ops.def"
#undef OP
    {"iota", "n", "", run_iota},
    {"reshape", "x", "shape", run_reshape},
    {"permute", "x", "perm", run_permute},
    {"expand", "x", "shape", run_expand},
    {"pad", "x, value?", "lo, hi", run_pad},
    {"shrink", "x", "begin, size", run_shrink},
    {"flip", "x", "axes?", run_flip},
    {"window", "x", "axis=0, out, kernel, stride=1, dilation=1", run_window},
    {"concat", "x, more...", "axis=0", run_concat},
    {"reduce", "x", "op=add|mul|max|min|and|or|xor, axes?", run_reduce},
    {"index", "x, i...", "", run_index},
    {"scatter", "x, values, i...", "op=const|add|mul|max|min", run_scatter},
    {"contiguous", "x", "", run_contiguous},
    {"stop_gradient", "x", "", run_stop_gradient},
    {"gradient", "y, x, more...", "", run_gradient},
    {NULL, NULL, NULL, NULL},
};
/* clang-format on */
