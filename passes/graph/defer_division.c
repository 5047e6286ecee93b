/* defer_division.c - divides a sum of products once instead of dividing each of its terms.
 *
 *      y[i, f] = sum over j  e[i, j] / s[i] * v[j, f]
 * -> y[i, f] = (sum over j e[i, j] * v[j, f]) / s[i]
 *
 * That is attention: with 200 keys of 64 features there are a third as many divisions, and no row
 * of quotients is stored. It is done for softmax alone, whose exponentials are at most 1, so the
 * sum of products grows at most by a factor of n, the number of keys. To be finite wherever the
 * original sum is, the exponentials are scaled down by a power of two of at least 2 n: no partial
 * sum exceeds half the largest |v|, and results are rounded as without the scale, since a power of
 * two is exact. (Except for exponentials below 2^-126 times that power, 1e-35 of the row's largest
 * for 500 keys.) Values with a small range, such as halves, need no scale.
 */
#include "passes/analysis/contraction.h"
#include "passes/passes.h"
#include "passes/analysis/softmax.h"

#include <math.h>

static bool is_stored_weight(const struct uop *v)
{
    v = value_behind(v, MOVES_SPREAD);
    return v->op == OP_BUFFER && buffer_is_stationary(v->arg.p);
}

/* e^(x - max x), which is at most 1 */
static bool is_softmax_power(struct uop *e)
{
    struct softmax s;
    return softmax_match(e, &s) && s.scale == 1 && s.most->src[0] == s.from;
}

/* A sum that is not a valid divisor is replaced by a number: s == none ? number : s. */
static struct uop *without_choice(struct uop *u)
{
    bool chosen = u->op == OP_WHERE && u->src[0]->op == OP_EQ && u->src[0]->src[0] == u->src[2];
    return chosen ? value_behind(u->src[2], MOVES_SPREAD) : u;
}

/* Whether v is the quotient of a softmax. */
static bool is_quotient(const struct uop *v)
{
    if (v->op != OP_DIV || v->dtype != DTYPE_F32 || !is_softmax_power(v->src[0]))
        return false;
    const struct uop *sum = without_choice(value_behind(v->src[1], MOVES_SPREAD));
    return sum->op == OP_REDUCE && REDUCE_OP(sum->arg.i) == OP_ADD && sum->src[0] == v->src[0];
}

/* The divisor with the sum's axes, if it is invariant along the reduced ones. *may_be_empty: there
 * may be no terms. NULL: it is not invariant, or there are no terms. */
static struct uop *common_divisor(struct tgc *t, const struct uop *sum, struct uop *divisor,
                                  bool *may_be_empty)
{
    uint32_t reduced = REDUCE_AXES(sum->arg.i);
    *may_be_empty = false;
    for (int a = 0; a < divisor->ndim; a++) {
        if ((reduced >> a & 1) && divisor->dim[a]->vmax < 1)
            return NULL;
        *may_be_empty |= (reduced >> a & 1) && divisor->dim[a]->vmin < 1;
    }
    return axes_of_base(t, divisor, MOVES_SPREAD) & reduced ? NULL
                                                            : axes_keep(t, divisor, ~reduced);
}

/* 1, if a sum of exponentials times v cannot overflow, or a power of two that prevents it. */
static double scale_of_powers(const struct tgc *t, const struct uop *sum, struct uop *v)
{
    const double exponent_max = 64;                       /* the scale stays a normal number */
    int64_t n = 1;
    v = value_behind(v, MOVES_SPREAD);
    if (t->math == DTYPE_F16)                /* values become halves, and small powers would be 0 */
        return 1;
    if (v->op == OP_CAST && v->src[0]->dtype != DTYPE_F64 && v->src[0]->dtype != DTYPE_BF16)
        return 1;
    for (int a = 0; a < sum->src[0]->ndim; a++)
        if (REDUCE_AXES(sum->arg.i) >> a & 1)
            n = sat_mul(n, sum->src[0]->dim[a]->vmax);
    return n < 2 ? 1 : ldexp(1, -(int)fmin(ceil(log2((double)n)) + 1, exponent_max));
}

/* A factor that is a quotient, by movement; half: the dtype to which the model rounds it, VOID: to
 * none. What is rounded then are the exponentials, by as much. */
struct weight { struct path outer, half_path, inner; enum dtype half; };

static bool find_weight(struct uop *factor, struct weight *w)
{
    *w = (struct weight){.outer = path_down(factor, MOVES_SPREAD), .half = DTYPE_VOID};
    struct uop *v = w->outer.base;
    if (v->op == OP_CAST && dtype_is_half(v->src[0]->dtype)) {
        w->half_path = path_down(v->src[0], MOVES_SPREAD);
        v = w->half_path.base;
        if (v->op != OP_CAST)
            return false;
        w->half = v->dtype;
        v = v->src[0];
    }
    w->inner = path_down(v, MOVES_SPREAD);
    return is_quotient(w->inner.base);
}

/* u in place of the quotient; rounded after the movement, so that the exponentials are what is kept
 * of a row. */
static struct uop *in_weight(struct tgc *t, const struct weight *w, struct uop *u, bool round)
{
    u = path_up(t, &w->inner, u);
    if (w->half == DTYPE_VOID)
        return path_up(t, &w->outer, u);
    u = path_up(t, &w->outer, path_up(t, &w->half_path, u));
    return round ? uop_cast(t, DTYPE_F32, uop_cast(t, w->half, u)) : u;
}

/* The quotient's exponentials and their sum, both times `scale`. */
static void scale_quotient(struct tgc *t, const struct uop *q, double scale, struct uop **power,
                           struct uop **divisor)
{
    struct path p = path_down(q->src[1], MOVES_SPREAD);
    *power = q->src[0];
    *divisor = q->src[1];
    if (scale == 1 || p.base->op != OP_REDUCE)
        return;
    *power = tensor_binary(t, OP_MUL, q->src[0], uop_constf(t, DTYPE_F32, scale));
    *divisor = path_up(t, &p, uop_reduce(t, OP_ADD, *power, REDUCE_AXES(p.base->arg.i)));
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    (void)ctx;
    struct uop *product = summed_product(u);
    for (int k = 0; k < 2 && product; k++) {
        struct weight w;
        /* the operand of a layer with weights is stored anyway, as quotients or as exponentials */
        if (!find_weight(product->src[k], &w) || is_stored_weight(product->src[1 - k]))
            continue;
        struct uop *power, *divisor;
        double scale = scale_of_powers(t, u, product->src[1 - k]);
        bool may_be_empty;
        scale_quotient(t, w.inner.base, scale, &power, &divisor);
        power = in_weight(t, &w, power, true);
        divisor = common_divisor(t, u, in_weight(t, &w, divisor, false), &may_be_empty);
        if (!divisor)
            continue;
        /* an empty sum is 0, not 0 / 0; otherwise the largest exponential is the scale itself */
        if (may_be_empty)
            divisor = tensor_binary(t, OP_MAX, divisor, uop_constf(t, DTYPE_F32, scale));
        return tensor_binary(t, OP_DIV, contraction_like(t, u, power, product->src[1 - k]),
                             divisor);
    }
    return NULL;
}

bool pass_defer_division(struct tgc *t, struct graph *g)
{
    graph_rewrite(t, g, rewrite, NULL);
    return true;
}
