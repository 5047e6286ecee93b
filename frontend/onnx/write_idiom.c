/* write_idiom.c - what several uops compute together as the one ONNX operator that is named so.
 *
 *      softmax    exp(x - max(x)) / sum(exp(x - max(x)))            Softmax
 *      sigmoid    1 / (exp(-x) + 1)                                 Sigmoid
 */
#include "frontend/onnx/write.h"

/* REDUCE of x along one axis, the same in all of u; NULL: it is none. */
static const struct uop *expanded_reduction(const struct uop *u, enum op op, int *axis)
{
    const struct uop *r = u->op == OP_EXPAND ? u->src[0] : u;
    if (r->op != OP_REDUCE || REDUCE_OP(r->arg.i) != op)
        return NULL;
    uint32_t axes = REDUCE_AXES(r->arg.i);
    if (!axes || (axes & (axes - 1)))
        return NULL;
    *axis = 0;
    while (!(axes >> *axis & 1))
        ++*axis;
    return r;
}

static bool softmax(struct onnx_writer *w, struct uop *u)
{
    int axis, of_max;
    const struct uop *e = u->src[0];
    const struct uop *sum = expanded_reduction(u->src[1], OP_ADD, &axis);
    if (!sum || sum->src[0] != e || e->op != OP_EXP || e->src[0]->op != OP_SUB)
        return false;
    struct uop *x = e->src[0]->src[0];
    const struct uop *max = expanded_reduction(e->src[0]->src[1], OP_MAX, &of_max);
    if (!max || max->src[0] != x || of_max != axis || !dtype_is_float(u->dtype))
        return false;
    enum dtype d = write_working(u->dtype);
    struct written *v = write_unary(w, "Softmax", write_as(w, write_exact(w, x), d));
    write_int(w, v, "axis", axis);
    write_set(w, u, write_as(w, v, u->dtype));
    return true;
}

static bool sigmoid(struct onnx_writer *w, struct uop *u)
{
    const struct uop *sum = u->src[0];
    if (sum->op != OP_ADD || !uop_is_constf(sum->src[1], 1.0) || sum->src[0]->op != OP_EXP ||
        sum->src[0]->src[0]->op != OP_NEG || !dtype_is_float(u->dtype))
        return false;
    struct uop *x = sum->src[0]->src[0]->src[0];
    enum dtype d = write_working(u->dtype);
    struct written *v = write_unary(w, "Sigmoid", write_as(w, write_exact(w, x), d));
    write_set(w, u, write_as(w, v, u->dtype));
    return true;
}

bool write_idiom(struct onnx_writer *w, struct uop *u)
{
    switch (u->op) {
    case OP_DIV: return softmax(w, u);
    case OP_RECIP: return sigmoid(w, u);
    default: return false;
    }
}
