/* fold_cast.c - which floats are known not to be NaN when a uop is built: dequantized values that
 * stay floats then need no test for NaN (rules requantize).
 */
#include "passes/rules/rules.h"

#include <math.h>

/* An upper bound of |u|, in f32 as well; INFINITY: not known, or it may be NaN. *steps: how many
 * uops may still be visited. */
static double magnitude(const struct uop *u, int *steps)
{
    enum { LOOK_MAX = 8192 };
    struct element_bounds e;
    double v[3] = {0, 0, 0}, most;
    if (--*steps < 0 || u->dtype != DTYPE_F32)
        return INFINITY;
    if (u->op == OP_CONST)
        return u->arg.f == u->arg.f ? fabs(u->arg.f) : INFINITY;
    if (u->op == OP_LOAD)
        return buffer_bounds(uop_buffer_of(u->src[0]), LOOK_MAX, &e)
                   ? fmax(fabs(e.lo.f), fabs(e.hi.f))
                   : INFINITY;
    if (u->op == OP_CAST && dtype_is_int(u->src[0]->dtype) && u->src[0]->dtype != DTYPE_U64)
        return fmax(fabs((double)u->src[0]->vmin), fabs((double)u->src[0]->vmax));
    for (int k = u->op == OP_WHERE; k < u->nsrc && k < 3; k++)
        v[k] = magnitude(u->src[k], steps);
    switch (u->op) {
    case OP_ADD: case OP_SUB: most = v[0] + v[1]; break;
    case OP_MUL: most = v[0] * v[1]; break;
    case OP_MAX: case OP_MIN: case OP_WHERE: most = fmax(v[0], fmax(v[1], v[2])); break;
    case OP_NEG: case OP_ABS: most = v[0]; break;
    case OP_ROUND: case OP_TRUNC: most = v[0] + 1; break;
    default: return INFINITY;
    }
    return most < 1e38 ? most : INFINITY;            /* leaves room for the roundings on the way */
}

bool rule_moderate(const struct uop *x)
{
    int steps = 100;
    return magnitude(x, &steps) < INFINITY;
}
