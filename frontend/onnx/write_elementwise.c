/* write_elementwise.c - elementwise ops and reductions as ONNX nodes: the table of written.def, and
 * what ONNX has no operator for.
 *
 * Operands broadcast as ONNX has it: an EXPAND, and a RESHAPE that only adds axes of size 1 at the
 * front, are looked through. Small integers, bf16 and floats of 8 bits are computed in i32, i64 or
 * f32 and cast back, which wraps and rounds as the uop says: runtimes have few operators for them.
 *
 * A CAST of a float beyond an integer's range saturates; a Cast is what the runtime makes of it,
 * since ONNX leaves that open.
 */
#include "frontend/onnx/write.h"

#include <string.h>

static const struct written_row { enum op op; const char *type; char kinds; } rows[] = {
#define WRITTEN(op, type, kinds) {OP_##op, type, kinds},
#include "frontend/onnx/written.def"
};
static const struct written_row reduced_rows[] = {
#define REDUCED(op, type) {OP_##op, type, 'A'},
#include "frontend/onnx/written.def"
};

static const struct written_row *find_row(const struct written_row *row, size_t n, enum op op)
{
    for (size_t i = 0; i < n; i++)
        if (row[i].op == op)
            return &row[i];
    return NULL;
}

static enum dtype working_of(char kinds, enum dtype d)
{
    return (kinds == 'B' && d == DTYPE_BOOL) || kinds == 'L' ? d : write_working(d);
}

/* ------------------------------------------------------------------------------------- operands */

/* Number of sizes after those that are 1 at the front. */
static int strip_ones(struct uop *const **dim, int ndim)
{
    while (ndim && uop_is_int(**dim, 1)) {
        ++*dim;
        ndim--;
    }
    return ndim;
}

static bool same_after_ones(struct uop *const *a, int na, struct uop *const *b, int nb)
{
    na = strip_ones(&a, na);
    nb = strip_ones(&b, nb);
    return write_same_dims(a, na, b, nb);
}

/* x, or what it broadcasts, in a shape that differs from the uop's by ones at the front. */
static struct written *operand(struct onnx_writer *w, struct uop *x)
{
    while (x->op == OP_EXPAND)
        x = x->src[0];
    struct written *v = write_value(w, x);
    for (struct written *f = v->first; f; f = f->form)
        if (same_after_ones(f->dim, f->ndim, x->dim, x->ndim))
            return f;
    return write_reshaped(w, v, x->dim, x->ndim);
}

/* Operands of u, which broadcast to its shape, but for ones at the front. */
static void operands(struct onnx_writer *w, struct uop *u, struct written **v)
{
    struct written all = {0};
    bool fits = true;
    for (int k = 0; k < u->nsrc; k++) {
        struct written next = {0};
        v[k] = operand(w, u->src[k]);
        fits = fits && write_broadcast(&all, v[k], next.dim, &next.ndim);
        all = next;
    }
    if (fits && (same_after_ones(all.dim, all.ndim, u->dim, u->ndim)))
        return;
    for (int k = 0; k < u->nsrc; k++)
        if (u->src[k]->ndim)
            v[k] = write_exact(w, u->src[k]);
}

/* -------------------------------------------------------------- what has no operator of its own */

static struct written *number(struct onnx_writer *w, const struct written *like, int64_t i)
{
    return write_scalar_int(w, like->dtype, i);
}

/* Integers: x / 0 = 0. May y be 0? */
static bool may_be_zero(const struct uop *y) { return y->vmin <= 0 && y->vmax >= 0; }

struct division { struct written *is_zero, *divisor; };

static struct division divide_by(struct onnx_writer *w, const struct uop *divisor,
                                 struct written *y)
{
    struct division d = {NULL, y};
    if (!may_be_zero(divisor))
        return d;
    d.is_zero = write_compare(w, "Equal", y, number(w, y, 0));
    d.divisor = write_where(w, d.is_zero, number(w, y, 1), y);
    return d;
}

static struct written *unless_zero(struct onnx_writer *w, struct division d, struct written *x)
{
    return d.is_zero ? write_where(w, d.is_zero, number(w, x, 0), x) : x;
}

static struct written *modulo(struct onnx_writer *w, struct written *x, struct written *y, bool c)
{
    struct written *v = write_binary(w, "Mod", x, y);
    if (c)
        write_int(w, v, "fmod", 1);
    return v;
}

/* The remainder with the divisor's sign, of floats. */
static struct written *floor_modulo(struct onnx_writer *w, struct written *x, struct written *y)
{
    struct written *zero = number(w, x, 0), *r = modulo(w, x, y, true);
    struct written *rest = write_node(w, "Not", DTYPE_BOOL, r->dim, r->ndim,
                                      (struct written *[]){write_compare(w, "Equal", r, zero)}, 1);
    struct written *apart = write_compare(w, "Xor", write_compare(w, "Less", r, zero),
                                          write_compare(w, "Less", y, zero));
    return write_where(w, write_compare(w, "And", rest, apart), write_binary(w, "Add", r, y), r);
}

static struct written *divide(struct onnx_writer *w, const struct uop *u, struct written *x,
                              struct written *y)
{
    bool modulus = u->op == OP_MOD || u->op == OP_FLOORMOD;
    if (dtype_is_float(x->dtype)) {
        if (u->op == OP_DIV)
            return write_binary(w, "Div", x, y);
        if (u->op == OP_FLOORMOD)
            return floor_modulo(w, x, y);
        if (u->op == OP_MOD)
            return modulo(w, x, y, true);
        return write_unary(w, "Floor", write_binary(w, "Div", x, y));
    }
    struct division d = divide_by(w, u->src[1], y);
    bool positive = u->src[0]->vmin >= 0 && u->src[1]->vmin >= 0;
    if (modulus)
        return unless_zero(w, d, modulo(w, x, d.divisor, u->op == OP_MOD));
    if (u->op == OP_FLOORDIV && !positive)
        x = write_binary(w, "Sub", x, modulo(w, x, d.divisor, false));
    return unless_zero(w, d, write_binary(w, "Div", x, d.divisor));
}

static struct written *truncate(struct onnx_writer *w, struct written *x)
{
    return write_where(w, write_compare(w, "Less", x, number(w, x, 0)), write_unary(w, "Ceil", x),
                       write_unary(w, "Floor", x));
}

/* Shifts are of unsigned integers in ONNX. For a negative x, x >> y is
 * ~(~x >> y). */
static struct written *shift(struct onnx_writer *w, const struct uop *u, struct written *x,
                             struct written *y)
{
    int bits = dtype_bits(u->dtype);
    bool left = u->op == OP_SHL;
    struct written *far = NULL, *sign = NULL, *v = write_as(w, x, DTYPE_I64);
    y = write_as(w, y, DTYPE_I64);
    if (u->src[1]->vmax >= bits || u->src[1]->vmin < 0) {
        struct written *last = write_scalar_int(w, DTYPE_I64, bits - 1);
        far = write_compare(w, "Less", last, y);
        y = write_where(w, far, last, y);
    }
    if (!left && dtype_kind(u->dtype) == 'I') {
        struct written *less = write_compare(w, "Less", v, number(w, v, 0));
        sign = write_unary(w, "Neg", write_as(w, less, DTYPE_I64));
        v = write_binary(w, "BitwiseXor", v, sign);
    }
    v = write_binary(w, "BitShift", write_as(w, v, DTYPE_U64), write_as(w, y, DTYPE_U64));
    write_string(w, v, "direction", left ? "LEFT" : "RIGHT");
    v = write_as(w, v, DTYPE_I64);
    if (sign)
        v = write_binary(w, "BitwiseXor", v, sign);
    return far && left ? write_where(w, far, number(w, v, 0), v) : v;
}

static struct written *logic(struct onnx_writer *w, const struct uop *u, struct written **v)
{
    bool is_bool = u->dtype == DTYPE_BOOL;
    switch (u->op) {
    case OP_NOT: return write_unary(w, is_bool ? "Not" : "BitwiseNot", v[0]);
    case OP_AND: return write_binary(w, is_bool ? "And" : "BitwiseAnd", v[0], v[1]);
    case OP_OR: return write_binary(w, is_bool ? "Or" : "BitwiseOr", v[0], v[1]);
    default: return write_binary(w, is_bool ? "Xor" : "BitwiseXor", v[0], v[1]);
    }
}

/* STACK: the last choice whose number the index reaches. */
static struct written *choose(struct onnx_writer *w, const struct uop *u, struct written **v)
{
    struct written *index = write_as(w, v[0], DTYPE_I64);
    enum dtype d = write_working(u->dtype);
    struct written *r = write_as(w, v[1], d);
    for (int k = 2; k < u->nsrc; k++) {
        struct written *below =
            write_compare(w, "Less", index, write_scalar_int(w, DTYPE_I64, k - 1));
        r = write_where(w, below, r, write_as(w, v[k], d));
    }
    return r;
}

/* max(x, 0) */
static bool is_relu(const struct uop *u)
{
    return u->op == OP_MAX && dtype_is_float(u->dtype) && uop_is_constf(u->src[1], 0.0);
}

static struct written *by_row(struct onnx_writer *w, const struct written_row *row,
                              const struct uop *u, struct written **v)
{
    int first = u->op == OP_WHERE;
    enum dtype d = working_of(row->kinds, u->src[first]->dtype);
    if (dtype_kind(d) == 'U' && (u->op == OP_ADD || u->op == OP_SUB || u->op == OP_MUL ||
                                 u->op == OP_NEG || u->op == OP_WHERE || u->op == OP_POW))
        d = DTYPE_I64;                                      /* the same bits */
    for (int k = first; k < u->nsrc; k++)
        v[k] = write_as(w, v[k], d);
    if (is_relu(u))
        return write_unary(w, "Relu", v[0]);
    if (u->op == OP_WHERE)
        return write_where(w, v[0], v[1], v[2]);
    if (u->nsrc == 1 && u->op != OP_ISNAN)
        return write_unary(w, row->type, v[0]);
    if (u->nsrc == 1)
        return write_node(w, row->type, DTYPE_BOOL, v[0]->dim, v[0]->ndim, v, 1);
    return u->dtype == DTYPE_BOOL ? write_compare(w, row->type, v[0], v[1])
                                  : write_binary(w, row->type, v[0], v[1]);
}

static struct written *compute(struct onnx_writer *w, struct uop *u, struct written **v)
{
    const struct written_row *row = find_row(rows, sizeof rows / sizeof *rows, u->op);
    switch (u->op) {
    case OP_CAST: return write_as(w, v[0], u->dtype);
    case OP_NOT: case OP_AND: case OP_OR: case OP_XOR: return logic(w, u, v);
    case OP_NE: {
        struct written *same = write_compare(
            w, "Equal", write_as(w, v[0], working_of('B', v[0]->dtype)),
            write_as(w, v[1], working_of('B', v[1]->dtype)));
        return write_unary(w, "Not", same);
    }
    case OP_DIV: case OP_MOD: case OP_FLOORDIV: case OP_FLOORMOD: {
        enum dtype d = write_working(u->dtype);
        return divide(w, u, write_as(w, v[0], d), write_as(w, v[1], d));
    }
    case OP_TRUNC: return truncate(w, write_as(w, v[0], write_working(u->dtype)));
    case OP_SHL: case OP_SHR: return shift(w, u, v[0], v[1]);
    case OP_STACK: return choose(w, u, v);
    default: return row ? by_row(w, row, u, v) : NULL;
    }
}

bool write_elementwise(struct onnx_writer *w, struct uop *u)
{
    struct written **v = mem_array(w->t, (size_t)u->nsrc + 1, sizeof *v);
    operands(w, u, v);
    struct written *r = compute(w, u, v);
    if (!r)
        return write_refuse(w, u, "has no operator in ONNX; write the model as .tg, or compute "
                                  "this another way");
    write_set(w, u, write_as(w, r, u->dtype));
    return true;
}

/* ----------------------------------------------------------------------------------- reductions */

static struct written *reduce(struct onnx_writer *w, const char *type, struct written *x,
                              const struct uop *u)
{
    int64_t axis[MAX_RANK];
    int n = 0;
    for (int a = 0; a < u->ndim; a++)
        if (REDUCE_AXES(u->arg.i) >> a & 1)
            axis[n++] = a;
    struct written *in[2] = {x, write_vector(w, axis, n)};
    return write_node(w, type, x->dtype, u->dim, u->ndim, in, 2);
}

bool write_reduce(struct onnx_writer *w, struct uop *u)
{
    enum op op = REDUCE_OP(u->arg.i);
    struct written *x = write_exact(w, u->src[0]);
    bool is_bool = u->dtype == DTYPE_BOOL;
    if (is_bool && (op == OP_AND || op == OP_OR))
        op = op == OP_AND ? OP_MIN : OP_MAX;
    const struct written_row *row =
        find_row(reduced_rows, sizeof reduced_rows / sizeof *reduced_rows, op);
    if (is_bool && op == OP_XOR) {
        struct written *sum = reduce(w, "ReduceSum", write_as(w, x, DTYPE_I64), u);
        write_set(w, u, write_as(w, modulo(w, sum, number(w, sum, 2), false), DTYPE_BOOL));
        return true;
    }
    if (!row)
        return write_refuse(w, u, "combines bits, which no reduction of ONNX does; write the model "
                                  "as .tg, or compute this another way");
    enum dtype d = write_working(u->dtype);
    if (d == DTYPE_U64 && (op == OP_ADD || op == OP_MUL))
        d = DTYPE_I64;
    write_set(w, u, write_as(w, reduce(w, row->type, write_as(w, x, d), u), u->dtype));
    return true;
}
