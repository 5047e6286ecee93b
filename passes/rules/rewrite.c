/* rewrite.c - the fold hook, through which every uop goes once, when it is built.
 *
 * In order: tensors that repeat a scalar become scalars; constants fold; a uop with equal bounds
 * becomes a constant. Then the first matching rule of passes/rules/ (compiled by rulegen into
 * rules.inc) replaces the uop. A right side is built through uop_new(), hence in normal form
 * already, so nothing is iterated here (the design of LuaJIT's fold engine). Rules that undo each
 * other would recurse: a depth that no sound set of rules reaches stops the compile. */
#include "passes/passes.h"
#include "passes/rules/fold_index.h"

#include <math.h>
#include <string.h>

#include "rules.inc"

int rule_count(void) { return (int)(sizeof rule_rows / sizeof *rule_rows); }

const struct rule_row *rule_row_at(int i) { return &rule_rows[i]; }

enum { FOLD_DEPTH = 400 };

/* ---- guards */

bool rule_exact(const struct uop *u)
{
    const struct uop *a = u->src[0], *b = u->src[u->nsrc - 1];
    int64_t lo = 0, hi = 0, corner[4];
    bool overflow = false;
    switch (u->op) {
    case OP_ADD:
        overflow = __builtin_add_overflow(a->vmin, b->vmin, &lo) ||
                   __builtin_add_overflow(a->vmax, b->vmax, &hi);
        break;
    case OP_SUB:
        overflow = __builtin_sub_overflow(a->vmin, b->vmax, &lo) ||
                   __builtin_sub_overflow(a->vmax, b->vmin, &hi);
        break;
    case OP_NEG:
        overflow = __builtin_sub_overflow((int64_t)0, a->vmax, &lo) ||
                   __builtin_sub_overflow((int64_t)0, a->vmin, &hi);
        break;
    default:
        for (int i = 0; i < 4; i++)
            overflow |= __builtin_mul_overflow(i < 2 ? a->vmin : a->vmax, i % 2 ? b->vmin : b->vmax,
                                               &corner[i]);
        lo = hi = corner[0];
        for (int i = 1; i < 4; i++) {
            lo = corner[i] < lo ? corner[i] : lo;
            hi = corner[i] > hi ? corner[i] : hi;
        }
    }
    return !overflow && lo >= dtype_min(u->dtype) && hi <= dtype_max(u->dtype);
}

/* The largest n such that the float dtype holds all integers of n bits exactly; 0 for other
 * dtypes. */
static int float_precision(enum dtype d)
{
    switch (d) {
    case DTYPE_F64: return 53;
    case DTYPE_F32: return 24;
    case DTYPE_F16: case DTYPE_TF32: return 11;
    case DTYPE_BF16: return 8;
    default: return 0;
    }
}

bool rule_integral(const struct uop *c)
{
    double v = c->arg.f;
    return c->op == OP_CONST && dtype_is_float(c->dtype) && fabs(v) <= 0x1p53 &&
           v == (double)(int64_t)v && !(v == 0 && signbit(v));
}

bool rule_fits(const struct uop *to, const struct uop *x)
{
    if (dtype_is_float(x->dtype))
        return rule_integral(x) && rule_is_int(to) && x->arg.f >= (double)dtype_min(to->dtype) &&
               x->arg.f <= (double)dtype_max(to->dtype);
    if (!rule_is_int(x) && x->dtype != DTYPE_BOOL)
        return false;
    if (dtype_is_float(to->dtype)) {
        int64_t most = (int64_t)1 << float_precision(to->dtype);
        return most > 1 && x->vmin >= -most && x->vmax <= most;
    }
    return dtype_is_int(to->dtype) && x->vmin >= dtype_min(to->dtype) &&
           x->vmax <= dtype_max(to->dtype);
}

/* Whether every value of x's dtype is a value of `to`'s, so that a cast through `to` loses nothing.
 */
bool rule_widens(const struct uop *to, const struct uop *x)
{
    enum dtype d = to->dtype, s = x->dtype;
    if (d == s || s == DTYPE_BOOL)
        return dtype_is_int(d) || dtype_is_float(d) || d == DTYPE_BOOL;
    if (dtype_is_int(s)) {
        bool sign = dtype_kind(s) == 'I';
        if (dtype_is_float(d))
            return dtype_bits(s) - sign <= float_precision(d);
        return dtype_is_int(d) && (dtype_kind(d) == 'I' ? dtype_bits(s) + !sign <= dtype_bits(d)
                                                        : !sign && dtype_bits(s) <= dtype_bits(d));
    }
    if (d == DTYPE_F64)
        return dtype_is_float(s);
    return d == DTYPE_F32 && dtype_is_float(s) && s != DTYPE_F64;
}

bool rule_power_of_two(const struct uop *c)
{
    int e;
    double f = c->arg.f;
    if (!dtype_is_float(c->dtype) || !isfinite(f) || f == 0 || fabs(frexp(f, &e)) != 0.5)
        return false;
    union scalar inverse = scalar_cast(c->dtype, DTYPE_F64, (union scalar){.f = 1 / f});
    return inverse.f == 1 / f && e > -100 && e < 100;
}

bool rule_same_shape(const struct uop *a, const struct uop *b)
{
    if (a->ndim != b->ndim)
        return false;
    return a->ndim == 0 || !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim);
}

struct uop *rule_element(struct uop *u)
{
    u = value_behind(u, MOVES_VIEW);
    return u->op == OP_SPLAT ? u->src[0] : u;
}

bool rule_is_nan(const struct uop *u)
{
    return u->op == OP_CONST && dtype_is_float(u->dtype) && u->arg.f != u->arg.f;
}

bool rule_is_number(const struct uop *u, int64_t v)
{
    return dtype_is_float(u->dtype) ? uop_is_constf(u, (double)v) : uop_is_int(u, v);
}

/* ---- right sides */

struct uop *rule_number(struct tgc *t, enum dtype d, int64_t i, double f)
{
    return dtype_is_float(d) ? uop_constf(t, d, f) : uop_consti(t, d, i);
}

struct uop *rule_build1(struct tgc *t, enum op op, enum dtype d, struct uop *a)
{
    return op == OP_CAST ? uop_cast(t, d, a) : uop_new(t, op, d, &a, 1, (union arg){0});
}

struct uop *rule_build2(struct tgc *t, enum op op, enum dtype d, struct uop *a, struct uop *b)
{
    struct uop *src[2] = {a, b};
    return uop_new(t, op, d, src, 2, (union arg){0});
}

struct uop *rule_build3(struct tgc *t, enum op op, enum dtype d, struct uop *a, struct uop *b,
                        struct uop *c)
{
    struct uop *src[3] = {a, b, c};
    return uop_new(t, op, d, src, 3, (union arg){0});
}

struct uop *rule_build4(struct tgc *t, enum op op, enum dtype d, struct uop *a, struct uop *b,
                        struct uop *c, struct uop *e)
{
    struct uop *src[4] = {a, b, c, e};
    return uop_new(t, op, d, src, 4, (union arg){0});
}

struct uop *rule_result(struct tgc *t, const struct uop *u, struct uop *r)
{
    return r->ndim == 0 && u->ndim > 0 ? tensor_full(t, r, u->dim, u->ndim) : r;
}

/* ---- before the rules */

/* The scalar that a tensor repeats, or NULL. */
static struct uop *uniform_scalar(struct uop *u)
{
    if (u->op == OP_EXPAND)
        u = u->src[0];
    return u->op == OP_RESHAPE && u->src[0]->ndim == 0 ? u->src[0] : NULL;
}

/* Elementwise ops accept scalars next to tensors: op(x, full(s)) is op(x, s), and op(full(a),
 * full(b)) is full(op(a, b)). */
static struct uop *unwrap_scalars(struct tgc *t, struct uop *u)
{
    struct uop *src[3], *scalar;
    bool changed = false, tensor = false;
    for (int i = 0; i < u->nsrc; i++) {
        src[i] = u->src[i];
        if (src[i]->ndim && (scalar = uniform_scalar(src[i]))) {
            src[i] = scalar;
            changed = true;
        }
        tensor |= src[i]->ndim > 0;
    }
    if (!changed)
        return NULL;
    struct uop *r = uop_new(t, u->op, u->dtype, src, u->nsrc, u->arg);
    return tensor ? r : rule_result(t, u, r);
}

static bool all_constants(const struct uop *u)
{
    for (int i = 0; i < u->nsrc; i++)
        if (u->src[i]->op != OP_CONST)
            return false;
    return true;
}

static struct uop *fold_constants(struct tgc *t, struct uop *u)
{
    union scalar v[3], r;
    for (int i = 0; i < u->nsrc; i++)
        v[i].i = u->src[i]->arg.i;
    const struct uop *operand = u->src[u->op == OP_WHERE];
    return scalar_apply(u->op, u->dtype, operand->dtype, v, &r) ? uop_const(t, u->dtype, r) : NULL;
}

static struct uop *fold_bounds(struct tgc *t, struct uop *u)
{
    bool counted = rule_is_int(u) || u->dtype == DTYPE_BOOL;
    if (!counted || u->vmin != u->vmax)
        return NULL;
    return rule_result(t, u, uop_consti(t, u->dtype, u->vmin));
}

struct uop *rewrite_match(struct tgc *t, struct uop *u, int *rule)
{
    return rule_match[u->op] ? rule_match[u->op](t, u, rule) : NULL;
}

static struct uop *rewrite_fold(struct tgc *t, struct uop *u)
{
    struct uop *r = NULL;
    int rule = -1;
    if (t->fold_depth == FOLD_DEPTH)
        TGC_BUG(t, "folding of %s does not end", op_name(u->op));
    t->fold_depth++;
    if (op_is_elementwise(u->op)) {
        if (u->ndim && !t->noopt)
            r = unwrap_scalars(t, u);
        if (!r && all_constants(u))
            r = fold_constants(t, u);
        if (!r)
            r = fold_bounds(t, u);
    }
    if (!r)
        r = rewrite_match(t, u, &rule);
    if (rule >= 0 && t->fired)
        t->fired[rule]++;
    t->fold_depth--;
    return r ? r : u;
}

void passes_init(struct tgc *t)
{
    t->fold = rewrite_fold;
    t->fold_index = index_normal;
}
