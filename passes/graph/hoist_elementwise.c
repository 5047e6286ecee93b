/* hoist_elementwise.c - moves elementwise ops before padding, which adds elements, and after
 * gathers, which select some.
 *
 *      f(pad(x, c))         =  pad(f(x), f(c))            a halo, which no layer tests for
 *      f(w)[i]              =  i within w ? f(w[i]) : 0    a few rows of an embedding in bytes
 *
 * f are elementwise ops whose other operands are constants; after an INDEX of weights they may be
 * weights, too. Quantizers write both: between a Pad and its convolution there are QuantizeLinear
 * and DequantizeLinear, between a table of bytes and its Gather DequantizeLinear. */
#include "passes/analysis/stationary.h"
#include "passes/analysis/value.h"

enum { STEPS_MAX = 8 };

static struct uop *padded_alike(struct tgc *t, const struct uop *pad, struct uop *x,
                                struct uop *value)
{
    struct uop *lo[MAX_RANK], *hi[MAX_RANK];
    for (int a = 0; a < pad->ndim; a++) {
        lo[a] = pad->src[2 + 2 * a];
        hi[a] = pad->src[3 + 2 * a];
    }
    return uop_pad(t, x, value, lo, hi);
}

/* u, whose operand `at` is a PAD of a constant, with other operands constant: the PAD of u. */
static struct uop *pad_later(struct tgc *t, struct uop *u)
{
    struct uop *inside[3], *border[3];
    const struct uop *pad = NULL;
    for (int k = 0; k < u->nsrc; k++) {
        struct uop *s = u->src[k];
        bool is_pad = s->op == OP_PAD && s->src[1]->op == OP_CONST && (!pad || s == pad);
        if (!is_pad && s->op != OP_CONST)
            return NULL;
        pad = is_pad ? s : pad;
        inside[k] = is_pad ? s->src[0] : s;
        border[k] = is_pad ? s->src[1] : s;
    }
    struct uop *value = pad ? uop_new(t, u->op, u->dtype, border, u->nsrc, u->arg) : NULL;
    if (!value || value->op != OP_CONST)
        return NULL;
    struct uop *x = uop_new(t, u->op, u->dtype, inside, u->nsrc, u->arg);
    uop_set_origin(t, x, u);
    return padded_alike(t, pad, x, value);
}

/* The operand of u for which the others are only parameters; -1: none. */
static int spine_of(const struct uop *u)
{
    int at = -1;
    for (int k = 0; k < u->nsrc; k++) {
        if (u->src[k]->op == OP_CONST)
            continue;
        bool small = u->src[k]->op == OP_EXPAND;
        at = at < 0 || (u->src[at]->op == OP_EXPAND && !small) ? k : at;
    }
    return at;
}

/* Whether the indices are in range; index[]: clamped to it. */
static struct uop *within(struct tgc *t, const struct uop *u, struct uop **index)
{
    struct uop *valid = uop_consti(t, DTYPE_BOOL, 1);
    for (int a = 0; a < u->src[0]->ndim; a++) {
        struct uop *i = u->src[1 + a], *n = u->src[0]->dim[a];
        index[a] = tensor_binary(t, OP_MAX, i, uop_int(t, 0));
        index[a] = tensor_binary(t, OP_MIN, index[a], sym_addi(t, n, -1));
        struct uop *low = tensor_binary(t, OP_LT, i, uop_int(t, 0));
        struct uop *high = tensor_binary(t, OP_LT, i, n);
        valid = tensor_binary(t, OP_AND, valid, uop_unary(t, OP_NOT, low));
        valid = tensor_binary(t, OP_AND, valid, high);
    }
    return valid;
}

/* An INDEX of a value computed from weights: becomes the computation on an INDEX of the weights. */
static struct uop *index_earlier(struct tgc *t, struct uop *u)
{
    struct uop *step[STEPS_MAX], *v = u->src[0];
    int n = 0, at;
    while (n < STEPS_MAX && op_is_elementwise(v->op) && cost_class_of(v->op) == COST_STEP &&
           (at = spine_of(v)) >= 0) {
        step[n++] = v;
        v = v->src[at];
    }
    if (n == 0 || !value_is_stationary(u->src[0]) ||
        value_behind(v, MOVES_OPERAND)->op != OP_BUFFER ||
        value_nelem(u) * 2 > value_nelem(u->src[0]))
        return NULL;
    struct uop *index[MAX_RANK], *inside = within(t, u, index), *y = uop_index(t, v, index);
    while (n-- > 0) {
        struct uop *of = step[n], *src[3];
        at = spine_of(of);
        for (int k = 0; k < of->nsrc; k++)
            src[k] = k == at                        ? y
                     : of->src[k]->op == OP_CONST ? of->src[k]
                                                  : uop_index(t, of->src[k], index);
        y = uop_new(t, of->op, of->dtype, src, of->nsrc, of->arg);
        uop_set_origin(t, y, of);
    }
    return tensor_where(t, inside, y, uop_consti(t, y->dtype, 0));
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    (void)ctx;
    return u->op == OP_INDEX ? index_earlier(t, u)
           : op_is_elementwise(u->op) && u->ndim > 0 ? pad_later(t, u)
                                                    : NULL;
}

bool pass_hoist_elementwise(struct tgc *t, struct graph *g)
{
    graph_rewrite(t, g, rewrite, NULL);
    return true;
}
