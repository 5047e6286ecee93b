/* bounds.c - bounds of floats, from integers that are cast, from weights, and from arithmetic on
 * them.
 *
 * Scalars and vectors in a kernel have intervals. Tensors in the graph, whose reductions are still
 * one op, have two facts: whether all elements are integers, and an upper bound of their magnitude.
 *
 * Rounding is monotone, so rounding an interval's ends is enough; the interval of a product, which
 * may be fused with a sum, is widened by more than a rounding.
 */
#include "passes/analysis/bounds.h"
#include "passes/analysis/stationary.h"

#include <math.h>

/* limits of the depth of values, and of the elements of weights, that are examined */
enum { DEPTH_MAX = 64, ELEMENTS_MAX = 1 << 14, WHOLE_ELEMENTS_MAX = 1 << 16 };
static const double largest = 0x1p100;
static const double exact = 0x1p24;      /* below this all integers are exact floats */

static const struct bounds unknown = {0, 0, false};

static struct bounds between(double lo, double hi)
{
    if (!(lo >= -largest && hi <= largest))
        return unknown;
    return (struct bounds){(float)lo, (float)hi, true};
}

static struct bounds of_weight(const struct buffer *b)
{
    struct element_bounds e;
    return buffer_bounds(b, ELEMENTS_MAX, &e) ? between(e.lo.f, e.hi.f) : unknown;
}

static struct bounds of_product(const struct bounds *a)
{
    const double slack = 1e-6;
    double p[4] = {a[0].lo * a[1].lo, a[0].lo * a[1].hi, a[0].hi * a[1].lo, a[0].hi * a[1].hi};
    double lo = fmin(fmin(p[0], p[1]), fmin(p[2], p[3])),
           hi = fmax(fmax(p[0], p[1]), fmax(p[2], p[3]));
    return between(lo - slack * fabs(lo), hi + slack * fabs(hi));
}

/* Bounds of a[0] / a[1] for a positive divisor. Devices round quotients less exactly than by half a
 * step; the slack covers that. */
static struct bounds of_quotient(const struct bounds *a)
{
    struct bounds by[2] = {a[0], {1 / a[1].hi, 1 / a[1].lo, true}};
    return a[1].lo > 0 ? of_product(by) : unknown;
}

/* a: bounds of the operands */
static struct bounds of_operation(const struct uop *u, const struct bounds *a)
{
    struct bounds p;
    switch (u->op) {
    case OP_ADD: return between(a[0].lo + a[1].lo, a[0].hi + a[1].hi);
    case OP_SUB: return between(a[0].lo - a[1].hi, a[0].hi - a[1].lo);
    case OP_MUL: return of_product(a);
    case OP_DIV: return of_quotient(a);
    case OP_MULACC:
        p = of_product(a);
        return p.known ? between(p.lo + a[2].lo, p.hi + a[2].hi) : unknown;
    case OP_NEG: return (struct bounds){-a[0].hi, -a[0].lo, true};
    case OP_MAX: return (struct bounds){fmax(a[0].lo, a[1].lo), fmax(a[0].hi, a[1].hi), true};
    case OP_MIN: return (struct bounds){fmin(a[0].lo, a[1].lo), fmin(a[0].hi, a[1].hi), true};
    case OP_ROUND: return (struct bounds){rint(a[0].lo), rint(a[0].hi), true};
    case OP_SPLAT: return a[0];
    default: return unknown;
    }
}

static struct bounds find(struct bounds_memo *m, const struct uop *u, int depth);

/* A maximum or minimum of at least one element: the result is one of them. */
static bool is_most(const struct uop *u)
{
    bool most =
        u->op == OP_REDUCE && (REDUCE_OP(u->arg.i) == OP_MAX || REDUCE_OP(u->arg.i) == OP_MIN);
    for (int k = 1; k < u->nsrc && most; k++)
        most = u->src[k]->op == OP_RANGE && u->src[k]->src[0]->vmin > 0;
    return most;
}

/* Of an integer's sums: terms of a reduction, the elements of weights. What may wrap is bounded by
 * its type alone. */
static struct bounds of_integer(const struct uop *u, int depth)
{
    struct bounds all = {(double)u->vmin, (double)u->vmax, true}, a[2], v = all;
    struct element_bounds e;
    double terms = 1;
    if (depth == DEPTH_MAX || u->dtype != DTYPE_I32)
        return all;
    switch (u->op) {
    case OP_LOAD:
        if (u->nsrc == 2 && buffer_bounds(uop_buffer_of(u->src[0]), ELEMENTS_MAX, &e))
            v = (struct bounds){(double)e.lo.i, (double)e.hi.i, true};
        break;
    case OP_ADD: case OP_SUB:
        a[0] = of_integer(u->src[0], depth + 1);
        a[1] = of_integer(u->src[1], depth + 1);
        v = u->op == OP_ADD ? (struct bounds){a[0].lo + a[1].lo, a[0].hi + a[1].hi, true}
                            : (struct bounds){a[0].lo - a[1].hi, a[0].hi - a[1].lo, true};
        break;
    case OP_REDUCE:
        if (REDUCE_OP(u->arg.i) != OP_ADD)
            break;
        for (int k = 1; k < u->nsrc; k++)
            terms *= u->src[k]->op == OP_RANGE ? (double)u->src[k]->src[0]->vmax : largest;
        a[0] = of_integer(u->src[0], depth + 1);
        v = (struct bounds){fmin(0, terms * a[0].lo), fmax(0, terms * a[0].hi), true};
        break;
    default:
        break;
    }
    return v.lo >= all.lo && v.hi <= all.hi ? v : all;
}

static struct bounds compute(struct bounds_memo *m, const struct uop *u, int depth)
{
    struct bounds a[3];
    if (u->op == OP_CAST && dtype_is_int(u->src[0]->dtype) && u->src[0]->dtype != DTYPE_U64) {
        a[0] = of_integer(u->src[0], depth);
        return between(a[0].lo, a[0].hi);
    }
    if (u->dtype != DTYPE_F32 || depth == DEPTH_MAX)
        return unknown;
    if (u->op == OP_CONST)
        return fabs(u->arg.f) <= largest ? (struct bounds){u->arg.f, u->arg.f, true} : unknown;
    if (u->op == OP_LOAD)
        return u->nsrc == 2 ? of_weight(uop_buffer_of(u->src[0])) : unknown;
    if (m->most && is_most(u))
        return find(m, u->src[0], depth + 1);
    if (u->op != OP_SPLAT && !op_is_elementwise(u->op))
        return unknown;
    for (int k = 0; k < u->nsrc; k++) {
        a[k] = find(m, u->src[k], depth + 1);
        if (!a[k].known)
            return unknown;
    }
    return of_operation(u, a);
}

static struct bounds find(struct bounds_memo *m, const struct uop *u, int depth)
{
    struct bounds *known = map_get(&m->of, u);
    m->of.t = m->t;
    m->of.scratch = true;
    if (!known) {
        known = scratch_array(m->t, 1, sizeof *known);
        *known = compute(m, u, depth);
        map_set(&m->of, u, known);
    }
    return *known;
}

struct bounds bounds_of(struct bounds_memo *m, const struct uop *u) { return find(m, u, 0); }

/* -------------------------------------------------------------------- whole numbers, in kernels */

/* Follows a chain of sums and clamps. */
bool bounds_is_whole(const struct uop *u)
{
    enum { STEPS_MAX = 16 };
    for (int i = 0; i < STEPS_MAX; i++) {
        const struct uop *c = u->nsrc == 2 ? u->src[1] : NULL;
        c = c && c->op == OP_SPLAT ? c->src[0] : c;
        if (u->op == OP_ROUND || u->op == OP_FLOOR || u->op == OP_CEIL || u->op == OP_TRUNC)
            return true;
        if (u->op == OP_CAST)
            return dtype_is_byte(u->src[0]->dtype);
        if (is_most(u)) {
            u = u->src[0];
            continue;
        }
        if ((u->op != OP_ADD && u->op != OP_MIN && u->op != OP_MAX) || !c || c->op != OP_CONST ||
            fabs(c->arg.f) > exact || c->arg.f != rint(c->arg.f))
            return false;
        u = u->src[0];
    }
    return false;
}

/* ------------------------------------------------------------------ whole numbers, in the graph */

bool value_is_whole(const struct uop *v, int *steps)
{
    struct element_bounds e;
    v = value_behind(v, MOVES_VIEW);
    if (--*steps < 0 || v->dtype != DTYPE_F32)
        return false;
    switch (v->op) {
    case OP_CONST:
        return fabs(v->arg.f) <= exact && v->arg.f == rint(v->arg.f);
    case OP_CAST:
        return dtype_is_byte(v->src[0]->dtype);
    case OP_ADD: case OP_SUB: case OP_MUL: case OP_MAX: case OP_MIN:
        return value_is_whole(v->src[0], steps) && value_is_whole(v->src[1], steps);
    case OP_REDUCE:
        return value_is_whole(v->src[0], steps);
    case OP_BUFFER:
        return buffer_bounds(known_buffer(v), WHOLE_ELEMENTS_MAX, &e) && e.whole &&
               e.lo.f >= -exact && e.hi.f <= exact;
    default:
        return false;
    }
}

double value_magnitude(const struct uop *v, int *steps)
{
    struct element_bounds e;
    v = value_behind(v, MOVES_VIEW);
    if (--*steps < 0)
        return INFINITY;
    switch (v->op) {
    case OP_CONST:
        return fabs(v->arg.f);
    case OP_CAST:
        return dtype_is_byte(v->src[0]->dtype) ? 255 : INFINITY;
    case OP_ADD: case OP_SUB:
        return value_magnitude(v->src[0], steps) + value_magnitude(v->src[1], steps);
    case OP_MUL:
        return value_magnitude(v->src[0], steps) * value_magnitude(v->src[1], steps);
    case OP_REDUCE: {
        double n = REDUCE_OP(v->arg.i) == OP_ADD ? 1 : INFINITY;
        for (int a = 0; a < v->ndim; a++)
            if (REDUCE_AXES(v->arg.i) >> a & 1)
                n *= v->src[0]->dim[a]->vmax < 0 ? INFINITY : (double)v->src[0]->dim[a]->vmax;
        return n * value_magnitude(v->src[0], steps);
    }
    case OP_BUFFER:
        if ((v->dtype != DTYPE_I32 && v->dtype != DTYPE_F32) ||
            !buffer_bounds(known_buffer(v), WHOLE_ELEMENTS_MAX, &e))
            return INFINITY;
        return v->dtype == DTYPE_F32 ? fmax(fabs(e.lo.f), fabs(e.hi.f))
                                     : fmax(fabs((double)e.lo.i), fabs((double)e.hi.i));
    default: return INFINITY;
    }
}
