/* derive.c - derives a uop's shape, integer bounds and lanes from its operation and sources.
 *
 * Shapes are uops, built as they are needed. Bounds are intervals of 64-bit integers: each
 * operation maps those of its sources (Moore, Interval Analysis, 1966). Floats have them where they
 * follow from symbols.
 */
#include "ir/ir.h"

#include <math.h>

/* ---- shapes */

static void set_dims(struct tgc *t, struct uop *u, struct uop *const *dim, int n)
{
    if (n < 0 || n > MAX_RANK)
        TGC_BUG(t, "%s: rank %d", op_name(u->op), n);
    u->ndim = n;
    u->dim = n ? mem_copy(t, dim, (size_t)n * sizeof *dim) : NULL;
}

/* Elementwise: every source is a scalar or has the result's rank; dims were made equal by the
 * builder. */
static void elementwise_shape(struct tgc *t, struct uop *u)
{
    for (int i = 0; i < u->nsrc; i++) {
        const struct uop *s = u->src[i];
        if (s->ndim == 0)
            continue;
        if (u->ndim == 0) {
            u->ndim = s->ndim;
            u->dim = s->dim;
        } else if (s->ndim != u->ndim) {
            TGC_BUG(t, "%s: operands of rank %d and %d", op_name(u->op), u->ndim, s->ndim);
        }
    }
}

static void reduce_shape(struct tgc *t, struct uop *u)
{
    if (u->nsrc > 1)                                  /* kernel form */
        return;
    struct uop *dim[MAX_RANK];
    for (int a = 0; a < u->src[0]->ndim; a++)
        dim[a] = REDUCE_AXES(u->arg.i) >> a & 1 ? uop_int(t, 1) : u->src[0]->dim[a];
    set_dims(t, u, dim, u->src[0]->ndim);
}

static void window_shape(struct tgc *t, struct uop *u)
{
    const struct uop *x = u->src[0];
    struct uop *dim[MAX_RANK + 1];
    int axis = WINDOW_AXIS(u->arg.i), n = 0;
    for (int a = 0; a < x->ndim; a++) {
        dim[n++] = a == axis ? u->src[1] : x->dim[a];
        if (a == axis)
            dim[n++] = u->src[2];
    }
    set_dims(t, u, dim, n);
}

static void concat_shape(struct tgc *t, struct uop *u)
{
    const struct uop *x = u->src[0];
    struct uop *dim[MAX_RANK];
    for (int a = 0; a < x->ndim; a++)
        dim[a] = x->dim[a];
    for (int i = 1; i < u->nsrc; i++)
        dim[u->arg.i] = sym_add(t, dim[u->arg.i], u->src[i]->dim[u->arg.i]);
    set_dims(t, u, dim, x->ndim);
}

static void get_shape(struct tgc *t, struct uop *u)
{
    const struct uop *s = u->src[0];
    int k = (int)u->arg.i;
    if (s->op == OP_HOST) {
        const struct host_call *h = s->arg.p;
        set_dims(t, u, h->out[k].dim, h->out[k].ndim);
        return;
    }
    if (s->op == OP_IF) {
        set_dims(t, u, s->src[1 + k]->dim, s->src[1 + k]->ndim);
        return;
    }
    const struct loop *l = s->arg.p;
    if (k < l->ncarried) {
        set_dims(t, u, l->param[k].dim, l->param[k].ndim);
        return;
    }
    const struct uop *scan = s->src[3 + l->ncarried + k];
    struct uop *dim[MAX_RANK + 1] = {l->scan_length};
    for (int a = 0; a < scan->ndim; a++)
        dim[a + 1] = scan->dim[a];
    set_dims(t, u, dim, scan->ndim + 1);
}

static void derive_shape(struct tgc *t, struct uop *u)
{
    struct uop *dim[MAX_RANK];
    const struct uop *x = u->nsrc ? u->src[0] : NULL;
    switch (u->op) {
    case OP_BUFFER: {
        const struct buffer *b = u->arg.p;
        set_dims(t, u, b->dim, b->ndim);
        break;
    }
    case OP_PARAM: {
        const struct loop_param *p = u->arg.p;
        set_dims(t, u, p->dim, p->ndim);
        break;
    }
    case OP_IOTA: set_dims(t, u, u->src, 1); break;
    case OP_RESHAPE: case OP_EXPAND: set_dims(t, u, u->src + 1, u->nsrc - 1); break;
    case OP_PERMUTE:
        for (int a = 0; a < x->ndim; a++)
            dim[a] = x->dim[PERM_GET(u->arg.i, a)];
        set_dims(t, u, dim, x->ndim);
        break;
    case OP_PAD:
        for (int a = 0; a < x->ndim; a++)
            dim[a] = sym_add(t, sym_add(t, x->dim[a], u->src[2 + 2 * a]), u->src[3 + 2 * a]);
        set_dims(t, u, dim, x->ndim);
        break;
    case OP_SHRINK:
        for (int a = 0; a < x->ndim; a++)
            dim[a] = u->src[2 + 2 * a];
        set_dims(t, u, dim, x->ndim);
        break;
    case OP_FLIP: case OP_CONTIGUOUS: case OP_STOP: case OP_AFTER: case OP_SCATTER:
        set_dims(t, u, x->dim, x->ndim);
        break;
    case OP_WINDOW: window_shape(t, u); break;
    case OP_CONCAT: concat_shape(t, u); break;
    case OP_REDUCE: reduce_shape(t, u); break;
    case OP_INDEX:
        if (u->nsrc > 1)
            set_dims(t, u, u->src[1]->dim, u->src[1]->ndim);
        break;
    case OP_GET: get_shape(t, u); break;
    case OP_STACK: elementwise_shape(t, u); break;
    default:
        if (op_is_elementwise(u->op))
            elementwise_shape(t, u);
    }
}

/* ---- bounds of integers
 *
 * Words wrap, so bounds that leave the dtype mean nothing: every value of the dtype is possible
 * then. A bound that overflows 64 bits itself is dropped, never saturated: INT64_MAX would look
 * like a known bound. */

static void set_bounds(struct uop *u, int64_t lo, int64_t hi)
{
    u->vmin = lo;
    u->vmax = hi;
}

static void set_all(struct uop *u) { set_bounds(u, dtype_min(u->dtype), dtype_max(u->dtype)); }

static void clip_bounds(struct uop *u)
{
    if (u->vmin < dtype_min(u->dtype) || u->vmax > dtype_max(u->dtype) || u->vmin > u->vmax)
        set_all(u);
}

static void add_bounds(struct uop *u, const struct uop *a, const struct uop *b)
{
    if (__builtin_add_overflow(a->vmin, b->vmin, &u->vmin) ||
        __builtin_add_overflow(a->vmax, b->vmax, &u->vmax))
        set_all(u);
}

static void sub_bounds(struct uop *u, const struct uop *a, const struct uop *b)
{
    if (__builtin_sub_overflow(a->vmin, b->vmax, &u->vmin) ||
        __builtin_sub_overflow(a->vmax, b->vmin, &u->vmax))
        set_all(u);
}

static void neg_bounds(struct uop *u, const struct uop *a)
{
    if (a->vmin == INT64_MIN)                         /* -INT64_MIN is INT64_MIN */
        set_all(u);
    else
        set_bounds(u, -a->vmax, -a->vmin);
}

static void mul_bounds(struct uop *u, const struct uop *a, const struct uop *b)
{
    const int64_t x[2] = {a->vmin, a->vmax}, y[2] = {b->vmin, b->vmax};
    int64_t lo = INT64_MAX, hi = INT64_MIN, p;
    for (int i = 0; i < 4; i++) {
        if (__builtin_mul_overflow(x[i / 2], y[i % 2], &p)) {
            set_all(u);
            return;
        }
        lo = p < lo ? p : lo;
        hi = p > hi ? p : hi;
    }
    set_bounds(u, lo, hi);
}

static void div_bounds(struct uop *u, const struct uop *a, const struct uop *b)
{
    if (b->vmin == 0 && a->vmin >= 0) {
        set_bounds(u, 0, a->vmax);                    /* a // 0 = 0 */
        return;
    }
    if (b->vmin <= 0)
        return;                                       /* keep the dtype's range */
    int64_t p[4] = {int_floordiv(a->vmin, b->vmin), int_floordiv(a->vmin, b->vmax),
                    int_floordiv(a->vmax, b->vmin), int_floordiv(a->vmax, b->vmax)};
    if (u->op == OP_DIV)
        for (int i = 0; i < 4; i++)
            p[i] = (i < 2 ? a->vmin : a->vmax) / (i % 2 ? b->vmax : b->vmin);
    int64_t lo = p[0], hi = p[0];
    for (int i = 1; i < 4; i++) {
        lo = p[i] < lo ? p[i] : lo;
        hi = p[i] > hi ? p[i] : hi;
    }
    set_bounds(u, lo, hi);
}

static void mod_bounds(struct uop *u, const struct uop *a, const struct uop *b)
{
    if (b->vmin < 0 || (b->vmin == 0 && u->op != OP_FLOORMOD))
        return;
    int64_t top = b->vmax > 0 ? b->vmax - 1 : 0;          /* a % 0 = 0 */
    if (a->vmin >= 0 && a->vmax < b->vmin)
        set_bounds(u, a->vmin, a->vmax);
    else if (u->op == OP_FLOORMOD || a->vmin >= 0)
        set_bounds(u, 0, a->vmin >= 0 && a->vmax < top ? a->vmax : top);
    else
        set_bounds(u, -top, top);
}

static uint64_t unsigned_least(const struct uop *u)
{
    return u->op == OP_CONST ? (uint64_t)u->arg.i : 0;
}

static uint64_t unsigned_most(const struct uop *u)
{
    bool truth = u->op == OP_CAST && u->src[0]->dtype == DTYPE_BOOL;
    return u->op == OP_CONST ? (uint64_t)u->arg.i : truth ? 1 : UINT64_MAX;
}

/* u64 has no bounds, but constants and casts of bools are known. */
static void compare_unsigned(struct uop *u, const struct uop *a, const struct uop *b)
{
    bool below = unsigned_most(a) < unsigned_least(b), above = unsigned_least(a) > unsigned_most(b);
    if (u->op == OP_LT && below)
        set_bounds(u, 1, 1);
    else if (u->op == OP_LT && (a == b || unsigned_least(a) >= unsigned_most(b)))
        set_bounds(u, 0, 0);
    else if (u->op != OP_LT && (a == b || below || above))
        u->vmin = u->vmax = (u->op == OP_EQ) == (a == b);
}

/* Bounds of floats are of numbers: NaN is none. */
static void compare_floats(struct uop *u, const struct uop *a, const struct uop *b)
{
    double x[2], y[2];
    if (!uop_float_bounds(a, &x[0], &x[1]) || !uop_float_bounds(b, &y[0], &y[1]))
        return;
    bool below = x[1] < y[0], above = x[0] > y[1];
    if (u->op == OP_LT && (below || x[0] >= y[1]))
        u->vmin = u->vmax = below;
    else if (u->op != OP_LT && (below || above))
        u->vmin = u->vmax = u->op == OP_NE;
}

static void compare_bounds(struct uop *u, const struct uop *a, const struct uop *b)
{
    set_bounds(u, 0, 1);
    if (a->dtype == DTYPE_U64)
        compare_unsigned(u, a, b);
    if (dtype_is_float(a->dtype))
        compare_floats(u, a, b);
    if (dtype_is_float(a->dtype) || a->dtype == DTYPE_U64 || a->dtype == DTYPE_STRING)
        return;
    bool disjoint = a->vmax < b->vmin || b->vmax < a->vmin;
    bool equal = a == b || (a->vmin == a->vmax && b->vmin == b->vmax && a->vmin == b->vmin);
    if (u->op == OP_LT && (a->vmax < b->vmin))
        set_bounds(u, 1, 1);
    else if (u->op == OP_LT && (a->vmin >= b->vmax || a == b))
        set_bounds(u, 0, 0);
    else if (u->op != OP_LT && (disjoint || equal))
        u->vmin = u->vmax = (u->op == OP_EQ) == equal;
}

static void bitwise_bounds(struct uop *u, const struct uop *a, const struct uop *b)
{
    if (u->dtype == DTYPE_BOOL) {
        int64_t lo = u->op == OP_AND ? a->vmin & b->vmin : u->op == OP_OR ? a->vmin | b->vmin : 0;
        int64_t hi = u->op == OP_AND ? a->vmax & b->vmax : u->op == OP_OR ? a->vmax | b->vmax : 1;
        set_bounds(u, lo, hi);
    } else if (u->op == OP_AND && (a->vmin >= 0 || b->vmin >= 0)) {
        int64_t hi = a->vmin < 0         ? b->vmax
                     : b->vmin < 0       ? a->vmax
                     : a->vmax < b->vmax ? a->vmax
                                         : b->vmax;
        set_bounds(u, 0, hi);
    } else if (u->op == OP_XOR && a->vmin >= 0 && b->vmin >= 0) {
        int64_t hi = a->vmax | b->vmax;
        for (int shift = 1; shift < 64; shift *= 2)
            hi |= hi >> shift;
        set_bounds(u, 0, hi);                   /* all bits below the highest one of either */
    }
}

static void cast_bounds(struct uop *u, const struct uop *a)
{
    double lo, hi;
    if (u->dtype != DTYPE_BOOL && uop_float_bounds(a, &lo, &hi))
        set_bounds(u, scalar_cast(u->dtype, a->dtype, (union scalar){.f = lo}).i,
                   scalar_cast(u->dtype, a->dtype, (union scalar){.f = hi}).i);
    else if (u->dtype == DTYPE_BOOL)
        set_bounds(u, a->dtype == DTYPE_BOOL ? a->vmin : 0, a->dtype == DTYPE_BOOL ? a->vmax : 1);
    else if (!dtype_is_float(a->dtype) && a->dtype != DTYPE_U64 && a->vmin >= u->vmin &&
             a->vmax <= u->vmax)
        set_bounds(u, a->vmin, a->vmax);
}

/* A loop that may run zero times has no single value, not even 0: otherwise what depends on it
 * would be hoisted, as loads of an empty buffer. */
static void range_bounds(struct uop *u, const struct uop *size)
{
    int64_t last = size->vmax > 0 ? size->vmax - 1 : 0;
    set_bounds(u, 0, last == 0 && size->vmin < 1 ? 1 : last);
}

/* Bounds of a small weight's integers, so that constant indices are known to be in range. Not where
 * all are equal: bounds of a single value would fold the weight to a constant. */
static void weight_bounds(struct uop *u, const struct buffer *b)
{
    enum { LOOK_MAX = 1 << 14 };
    struct element_bounds e;
    if (buffer_bounds(b, LOOK_MAX, &e) && e.lo.i < e.hi.i)
        set_bounds(u, e.lo.i, e.hi.i);
}

/* Whether v is c - x, also spelled x * -1 + c. */
static bool is_less(const struct uop *v, const struct uop *x, int64_t *c)
{
    if (v->op == OP_SUB)
        return v->src[1] == x && uop_const_int(v->src[0], c);
    const struct uop *m = v->op == OP_ADD ? v->src[0] : v;
    return m != v && m->op == OP_MUL && m->src[0] == x && uop_is_int(m->src[1], -1) &&
           uop_const_int(v->src[1], c);
}

/* The largest value of min(x, c - x), a reflection at c / 2; INT64_MAX: it is none, or may wrap. */
static int64_t turn_of(const struct uop *a, const struct uop *b)
{
    int64_t c;
    bool is_signed = dtype_min(a->dtype) < 0;
    bool mirrors = is_signed && ((a->vmin >= 0 && is_less(b, a, &c)) ||
                                 (b->vmin >= 0 && is_less(a, b, &c)));
    return mirrors && c >= 0 ? c / 2 : INT64_MAX;
}

static void abs_bounds(struct uop *u, const struct uop *a)
{
    if (a->vmin >= 0)
        set_bounds(u, a->vmin, a->vmax);
    else if (a->vmin > INT64_MIN)
        set_bounds(u, a->vmax < 0 ? -a->vmax : 0, a->vmax > -a->vmin ? a->vmax : -a->vmin);
}

static void shift_bounds(struct uop *u, const struct uop *a, const struct uop *b)
{
    if (a->vmin >= 0 && b->vmin >= 0 && b->vmax < 63)
        set_bounds(u, a->vmin >> b->vmax, a->vmax >> b->vmin);
}

/* ---- bounds of floats
 *
 * A size may be computed in floats: int(f32(h) * 1.3). So floats that follow from symbols alone
 * have bounds. Each operation, with its rounding to the dtype, is monotone in each operand, so
 * those of its results are results: at corners, by the arithmetic that constants are folded with.
 * Functions of a library are not, and have a margin. Other floats have none: 0, 0 in vmin, vmax. */

bool uop_float_bounds(const struct uop *u, double *lo, double *hi)
{
    if (!dtype_is_float(u->dtype) || u->ndim)
        return false;
    bool is_const = u->op == OP_CONST;
    *lo = is_const ? u->arg.f : u->fmin;
    *hi = is_const ? u->arg.f : u->fmax;
    return is_const ? u->arg.f == u->arg.f : u->vmin || u->vmax;
}

/* Recursion ends with the steps. Floats with bounds need none. */
static bool is_of_symbols(const struct uop *u, int *steps)
{
    double lo, hi;
    bool is_leaf = u->op == OP_CONST || u->op == OP_VAR;
    if (--*steps < 0 || u->ndim || (!is_leaf && !op_is_elementwise(u->op)))
        return false;
    if (uop_float_bounds(u, &lo, &hi))
        return true;
    for (int k = 0; k < u->nsrc; k++)
        if (!is_of_symbols(u->src[k], steps))
            return false;
    return true;
}

bool uop_is_of_symbols(const struct uop *u)
{
    int steps = 64;
    return is_of_symbols(u, &steps);
}

static void set_floats(struct uop *u, double lo, double hi)
{
    if (lo <= hi) {
        u->fmin = lo == 0 ? -0.0 : lo;               /* never the bits of "none" */
        u->fmax = hi;
    }
}

/* Of the results at the corners of the operands' bounds. */
static void float_corners(struct uop *u, double (*v)[2])
{
    double lo = INFINITY, hi = -INFINITY;
    for (int corner = 0; corner < 1 << u->nsrc; corner++) {
        union scalar at[3], r;
        for (int k = 0; k < u->nsrc; k++)
            at[k].f = v[k][corner >> k & 1];
        if (!scalar_apply(u->op, u->dtype, u->dtype, at, &r) || r.f != r.f)
            return;
        lo = r.f < lo ? r.f : lo;
        hi = r.f > hi ? r.f : hi;
    }
    set_floats(u, lo, hi);
}

static void widen_floats(struct uop *u)
{
    double part = u->dtype == DTYPE_F64 ? 0x1p-40 : 0x1p-8;
    if (u->vmin || u->vmax)
        set_floats(u, u->fmin - fabs(u->fmin) * part - part, u->fmax + fabs(u->fmax) * part + part);
}

static void cast_floats(struct uop *u, const struct uop *a)
{
    double v[2];
    if (dtype_is_float(a->dtype)) {
        if (uop_float_bounds(a, &v[0], &v[1]))
            set_floats(u, scalar_cast(u->dtype, a->dtype, (union scalar){.f = v[0]}).f,
                       scalar_cast(u->dtype, a->dtype, (union scalar){.f = v[1]}).f);
    } else if ((dtype_is_int(a->dtype) || a->dtype == DTYPE_BOOL) && a->dtype != DTYPE_U64 &&
               uop_is_of_symbols(a)) {
        set_floats(u, scalar_cast(u->dtype, a->dtype, (union scalar){.i = a->vmin}).f,
                   scalar_cast(u->dtype, a->dtype, (union scalar){.i = a->vmax}).f);
    }
}

static void derive_float_bounds(struct uop *u)
{
    double v[3][2], least;
    u->vmin = u->vmax = 0;
    if (!op_is_elementwise(u->op) || u->ndim)
        return;
    if (u->op == OP_CAST) {
        cast_floats(u, u->src[0]);
        return;
    }
    for (int k = u->op == OP_WHERE; k < u->nsrc; k++)
        if (!uop_float_bounds(u->src[k], &v[k][0], &v[k][1]))
            return;
    bool finite = true;
    for (int k = 0; k < u->nsrc && u->op != OP_WHERE; k++)
        finite &= isfinite(v[k][0]) && isfinite(v[k][1]);
    switch (u->op) {
    case OP_ADD: case OP_SUB: case OP_MUL:
        if (!finite)
            return;                                  /* inf - inf */
        float_corners(u, v);
        break;
    case OP_NEG:
    case OP_FLOOR:
    case OP_CEIL:
    case OP_TRUNC:
    case OP_ROUND:
        float_corners(u, v);
        break;
    case OP_ABS:
        least = v[0][0] > 0 ? v[0][0] : v[0][1] < 0 ? -v[0][1] : 0;
        set_floats(u, least, fmax(fabs(v[0][0]), fabs(v[0][1])));
        break;
    case OP_DIV: case OP_RECIP:
        if (finite && (v[u->nsrc - 1][0] > 0 || v[u->nsrc - 1][1] < 0))
            float_corners(u, v);
        break;
    case OP_MOD: case OP_FLOORMOD:
        if (finite && v[0][0] >= 0 && v[1][0] > 0)
            set_floats(u, 0, fmin(v[0][1], v[1][1]));
        break;
    case OP_SQRT:
        if (v[0][0] >= 0)
            float_corners(u, v);
        break;
    case OP_MAX: set_floats(u, fmax(v[0][0], v[1][0]), fmax(v[0][1], v[1][1])); break;
    case OP_MIN: set_floats(u, fmin(v[0][0], v[1][0]), fmin(v[0][1], v[1][1])); break;
    case OP_WHERE: set_floats(u, fmin(v[1][0], v[2][0]), fmax(v[1][1], v[2][1])); break;
    case OP_EXP: case OP_EXP2: case OP_LOG: case OP_POW:
        if (finite && (v[0][0] > 0 || u->op == OP_EXP || u->op == OP_EXP2))
            float_corners(u, v);
        widen_floats(u);
        break;
    default: break;
    }
}

static void derive_bounds(struct uop *u)
{
    if (dtype_is_float(u->dtype)) {
        derive_float_bounds(u);
        return;
    }
    if (!dtype_is_int(u->dtype) && u->dtype != DTYPE_BOOL)
        return;
    set_all(u);
    if (u->dtype == DTYPE_U64)
        u->vmin = INT64_MIN;                          /* as its bits */
    const struct uop *a = u->nsrc > 0 ? u->src[0] : NULL, *b = u->nsrc > 1 ? u->src[1] : NULL;
    switch (u->op) {
    case OP_CONST: set_bounds(u, u->arg.i, u->arg.i); return;
    case OP_VAR:
        set_bounds(u, ((const struct var *)u->arg.p)->min, ((const struct var *)u->arg.p)->max);
        return;
    case OP_IOTA: set_bounds(u, 0, a->vmax > 0 ? a->vmax - 1 : 0); return;
    case OP_RANGE: range_bounds(u, a); return;
    case OP_LT: case OP_EQ: case OP_NE: compare_bounds(u, a, b); return;
    default: break;
    }
    if (u->dtype == DTYPE_U64)
        return;
    switch (u->op) {
    case OP_BUFFER: weight_bounds(u, u->arg.p); break;
    case OP_LOAD:
        set_bounds(u, a->vmin, a->vmax);
        if (u->nsrc == 4 && u->src[3]->vmin < u->vmin)
            u->vmin = u->src[3]->vmin;
        if (u->nsrc == 4 && u->src[3]->vmax > u->vmax)
            u->vmax = u->src[3]->vmax;
        break;
    case OP_ADD: add_bounds(u, a, b); break;
    case OP_SUB: sub_bounds(u, a, b); break;
    case OP_NEG: neg_bounds(u, a); break;
    case OP_ABS: abs_bounds(u, a); break;
    case OP_SHR: shift_bounds(u, a, b); break;
    case OP_NOT:
        if (u->dtype == DTYPE_BOOL)
            set_bounds(u, !a->vmax, !a->vmin);
        break;
    case OP_MUL: mul_bounds(u, a, b); break;
    case OP_DIV: case OP_FLOORDIV: div_bounds(u, a, b); break;
    case OP_MOD: case OP_FLOORMOD: mod_bounds(u, a, b); break;
    case OP_MAX:
        set_bounds(u, a->vmin > b->vmin ? a->vmin : b->vmin, a->vmax > b->vmax ? a->vmax : b->vmax);
        break;
    case OP_MIN: {
        int64_t vmax = a->vmax < b->vmax ? a->vmax : b->vmax, turn = turn_of(a, b);
        set_bounds(u, a->vmin < b->vmin ? a->vmin : b->vmin, turn < vmax ? turn : vmax);
        break;
    }
    case OP_AND: case OP_OR: case OP_XOR: bitwise_bounds(u, a, b); break;
    case OP_CAST: cast_bounds(u, a); break;
    case OP_WHERE: {
        const struct uop *c = u->src[2];
        set_bounds(u, b->vmin < c->vmin ? b->vmin : c->vmin, b->vmax > c->vmax ? b->vmax : c->vmax);
        break;
    }
    case OP_RESHAPE: case OP_PERMUTE: case OP_EXPAND: case OP_SHRINK: case OP_FLIP: case OP_WINDOW:
    case OP_CONTIGUOUS: case OP_STOP: case OP_AFTER:
        set_bounds(u, a->vmin, a->vmax);
        break;
    case OP_PAD:
        set_bounds(u, a->vmin < b->vmin ? a->vmin : b->vmin, a->vmax > b->vmax ? a->vmax : b->vmax);
        break;
    case OP_CONCAT: case OP_STACK:
        a = u->src[u->op == OP_STACK];
        set_bounds(u, a->vmin, a->vmax);
        for (int i = 1; i < u->nsrc; i++) {
            u->vmin = u->src[i]->vmin < u->vmin ? u->src[i]->vmin : u->vmin;
            u->vmax = u->src[i]->vmax > u->vmax ? u->src[i]->vmax : u->vmax;
        }
        break;
    case OP_INDEX: set_bounds(u, a->vmin < 0 ? a->vmin : 0, a->vmax > 0 ? a->vmax : 0); break;
    default: break;
    }
    clip_bounds(u);
}

/* LOAD and SPLAT say how many lanes they have; other ops take those of their sources. */
static int derive_lanes(const struct uop *u)
{
    if (u->op == OP_SPLAT || u->op == OP_LANES || u->op == OP_RAMP)
        return (int)u->arg.i;
    if (u->op == OP_LOAD)
        return access_lanes(u->arg.i);
    if (u->op == OP_ACC || u->op == OP_ASSIGN || u->op == OP_SHUFFLE || u->op == OP_MATRIX ||
        u->op == OP_NEAREST || u->op == OP_NARROW)
        return u->src[0]->lanes;
    if (u->op == OP_INTRINSIC)
        return intrinsic_result(u->arg.i).lanes;
    if (u->op == OP_GATHER)
        return u->src[2]->lanes;
    int lanes = 1;
    for (int k = 0; k < u->nsrc && op_is_elementwise(u->op); k++)
        lanes = u->src[k]->lanes > lanes ? u->src[k]->lanes : lanes;
    return lanes;
}

void uop_derive(struct tgc *t, struct uop *u)
{
    derive_shape(t, u);
    derive_bounds(u);
    u->lanes = derive_lanes(u);
}
