/* allowed.c - which integers an input may hold: an interval for each value, from its uses back to
 * what it is made of.
 *
 *      index(table[10], x + 1)         x + 1 in 0..9          x in -1..8; 0..8 is drawn
 *      host "require" (all(x < 4))     x < 4 holds            x in ..3
 *      x == iota(5)                    x in 0..4 meets one    x in 0..4, a preference
 *
 * Uops are visited users first, so each has all that its users say when its operands are told. An
 * interval that would leave nothing of another one is dropped: both are of different elements, or
 * one is a preference. Bodies of loops are looked at where they use an input itself, not what the
 * loop carries. */
#include "passes/analysis/allowed.h"

#include <math.h>
#include <string.h>

/* truth: 1 the condition has to hold, -1 it must not; 0: either. as_number: a float or a condition
 * is made of it, as of masks, rather than integers. */
struct interval { double lo, hi; int truth; bool as_number; };

struct visit { struct tgc *t; struct uop_map of; };

static struct interval *interval_of(struct visit *v, const struct uop *u)
{
    struct interval *i = map_get(&v->of, u);
    if (!i) {
        i = scratch_array(v->t, 1, sizeof *i);
        *i = (struct interval){.lo = -INFINITY, .hi = INFINITY};
        map_set(&v->of, u, i);
    }
    return i;
}

static void narrow(struct visit *v, const struct uop *u, double lo, double hi)
{
    struct interval *i = interval_of(v, u);
    lo = fmax(lo, i->lo);
    hi = fmin(hi, i->hi);
    if (lo <= hi) {
        i->lo = lo;
        i->hi = hi;
    }
}

/* What the other operand can be. */
static struct interval range_of(const struct uop *u)
{
    struct interval r = {.lo = -INFINITY, .hi = INFINITY};
    while (u->nsrc > 0 && (u->op == OP_RESHAPE || u->op == OP_EXPAND || u->op == OP_PERMUTE))
        u = u->src[0];
    if (dtype_is_int(u->dtype) && u->vmax > u->vmin - 1 && u->vmax != INT64_MAX &&
        u->vmin != INT64_MIN)
        r = (struct interval){.lo = (double)u->vmin, .hi = (double)u->vmax};
    else if (u->op == OP_CONST && dtype_is_float(u->dtype) && isfinite(u->arg.f))
        r = (struct interval){.lo = u->arg.f, .hi = u->arg.f};
    return r;
}

/* For a run-time size that a value is compared with: if it is 0, nothing is allowed. */
static struct interval size_of(const struct uop *u)
{
    struct interval r = range_of(u);
    if (u->ndim == 0 && u->dtype == DTYPE_INDEX && r.lo == 0 && r.hi > 0)
        r.lo = 1;
    return r;
}

/* A range that is no more than its dtype's says. */
static bool is_known(struct interval r)
{
    return r.lo <= r.hi && r.hi - r.lo < 0x1p31;
}

/* x + y within the interval. */
static void tell_sum(struct visit *v, const struct uop *x, const struct uop *y, struct interval i)
{
    struct interval r = range_of(y);
    if (is_known(r))
        narrow(v, x, i.lo - r.lo, i.hi - r.hi);
    else
        narrow(v, x, i.lo / 2, floor(i.hi / 2));
}

static void tell_product(struct visit *v, const struct uop *x, const struct uop *y,
                         struct interval i)
{
    struct interval r = range_of(y);
    if (is_known(r) && r.lo > 0)
        narrow(v, x, i.lo / (i.lo > 0 ? r.lo : r.hi), i.hi / (i.hi < 0 ? r.lo : r.hi));
    else if (is_known(r) && r.lo == r.hi && r.lo < 0)
        narrow(v, x, i.hi / r.lo, i.lo / r.lo);
}

static void tell_truth(struct visit *v, const struct uop *u, int truth)
{
    struct interval *i = interval_of(v, u);
    i->truth = i->truth ? i->truth : truth;
}

/* A comparison that has to hold, or must not; or one with positions, which it shall meet. */
static void tell_comparison(struct visit *v, const struct uop *u, int truth)
{
    const struct uop *a = u->src[0], *b = u->src[1];
    struct interval x = size_of(a), y = size_of(b);
    if (truth && u->op == OP_LT && truth > 0) {
        narrow(v, a, -INFINITY, is_known(y) ? y.lo - 1 : INFINITY);
        narrow(v, b, is_known(x) ? x.hi + 1 : -INFINITY, INFINITY);
    } else if (truth && u->op == OP_LT) {
        narrow(v, a, is_known(y) ? y.hi : -INFINITY, INFINITY);
        narrow(v, b, -INFINITY, is_known(x) ? x.lo : INFINITY);
    } else if (truth == (u->op == OP_EQ ? 1 : -1)) {
        narrow(v, a, is_known(y) ? y.lo : -INFINITY, is_known(y) ? y.hi : INFINITY);
        narrow(v, b, is_known(x) ? x.lo : -INFINITY, is_known(x) ? x.hi : INFINITY);
    } else if (!truth) {
        if (is_known(y) && y.hi > y.lo)
            narrow(v, a, y.lo, y.hi);
        if (is_known(x) && x.hi > x.lo)
            narrow(v, b, x.lo, x.hi);
    }
}

/* The number of elements that a sum adds. */
static double count_summed(const struct uop *u)
{
    double n = 1;
    for (int a = 0; a < u->src[0]->ndim; a++)
        if (REDUCE_AXES(u->arg.i) >> a & 1)
            n *= u->src[0]->dim[a]->vmax > 0 ? (double)u->src[0]->dim[a]->vmax : 1;
    return n;
}

static void tell_reduction(struct visit *v, const struct uop *u, struct interval i)
{
    switch (REDUCE_OP(u->arg.i)) {
    case OP_ADD: narrow(v, u->src[0], i.lo / count_summed(u), floor(i.hi / count_summed(u))); break;
    case OP_MAX: case OP_MIN: narrow(v, u->src[0], i.lo, i.hi); break;
    case OP_AND: tell_truth(v, u->src[0], i.truth > 0); break;
    case OP_OR: tell_truth(v, u->src[0], i.truth < 0 ? -1 : 0); break;
    default: break;
    }
}

/* In `where(x < 0, x + n, x)` the last operand is the value that is drawn. */
static bool is_negative(const struct uop *cond)
{
    int64_t limit;
    while (cond->nsrc > 0 &&
           (cond->op == OP_RESHAPE || cond->op == OP_EXPAND || cond->op == OP_PERMUTE))
        cond = cond->src[0];
    return cond->op == OP_LT && uop_const_int(cond->src[1], &limit) && limit <= 0;
}

/* Coordinates of x, from operand `first` on. */
static void tell_indices(struct visit *v, const struct uop *u, int first)
{
    const struct uop *x = u->src[0];
    for (int a = 0; a < x->ndim && first + a < u->nsrc; a++)
        narrow(v, u->src[first + a], 0, x->dim[a]->vmin > 1 ? (double)x->dim[a]->vmin - 1 : 0);
}

static void tell_elementwise(struct visit *v, const struct uop *u, struct interval i)
{
    const struct uop *a = u->nsrc > 0 ? u->src[0] : NULL, *b = u->nsrc > 1 ? u->src[1] : NULL;
    double divisor = b ? range_of(b).lo : 0;
    switch (u->op) {
    case OP_CAST: case OP_FLOOR: case OP_CEIL: case OP_TRUNC: case OP_ROUND:
        narrow(v, a, i.lo, i.hi);
        break;
    case OP_NEG: narrow(v, a, -i.hi, -i.lo); break;
    case OP_ADD:
        tell_sum(v, a, b, i);
        tell_sum(v, b, a, i);
        break;
    case OP_SUB:
        if (is_known(range_of(b)))
            narrow(v, a, i.lo + range_of(b).hi, i.hi + range_of(b).lo);
        else
            narrow(v, a, i.lo, i.hi);
        if (is_known(range_of(a)))
            narrow(v, b, range_of(a).hi - i.hi, range_of(a).lo - i.lo);
        break;
    case OP_MUL:
        tell_product(v, a, b, i);
        tell_product(v, b, a, i);
        break;
    case OP_DIV: case OP_FLOORDIV:
        if (is_known(range_of(b)) && divisor >= 1)
            narrow(v, a, i.lo * divisor, i.hi * divisor + divisor - 1);
        break;
    case OP_MIN:
        narrow(v, a, i.lo, range_of(b).hi <= i.hi ? INFINITY : i.hi);
        narrow(v, b, i.lo, range_of(a).hi <= i.hi ? INFINITY : i.hi);
        break;
    case OP_MAX:
        narrow(v, a, range_of(b).lo >= i.lo ? -INFINITY : i.lo, i.hi);
        narrow(v, b, range_of(a).lo >= i.lo ? -INFINITY : i.lo, i.hi);
        break;
    case OP_WHERE:
        if (!is_negative(a))
            narrow(v, b, i.lo, i.hi);
        narrow(v, u->src[2], i.lo, i.hi);
        break;
    case OP_NOT: tell_truth(v, a, -i.truth); break;
    case OP_AND:
        if (u->dtype == DTYPE_BOOL && i.truth > 0) {
            tell_truth(v, a, 1);
            tell_truth(v, b, 1);
        }
        break;
    case OP_OR: tell_truth(v, b, i.truth); break;            /* one of both suffices */
    case OP_LT: case OP_EQ: case OP_NE: tell_comparison(v, u, i.truth); break;
    default: break;
    }
}

/* Host functions that end the run unless a value is as they require. */
static void tell_host(struct visit *v, const struct uop *u)
{
    const struct host_call *h = u->arg.p;
    if (h->external)
        return;
    if (!strcmp(h->function, "require") || !strcmp(h->function, "expect"))
        tell_truth(v, u->src[0], 1);
    else if (!strcmp(h->function, "read_dim"))
        narrow(v, u->src[0], (double)h->param[1]->vmax, (double)h->param[2]->vmin);
    else if (!strncmp(h->function, "roi_align", strlen("roi_align")))
        narrow(v, u->src[2], 0, h->param[0]->vmin > 1 ? (double)h->param[0]->vmin - 1 : 0);
}

/* Whether an operand is used for what it counts: as a float, or as a condition. */
static bool makes_number(const struct uop *u)
{
    return (u->op == OP_CAST && (dtype_is_float(u->dtype) || u->dtype == DTYPE_BOOL)) ||
           u->op == OP_EQ || u->op == OP_NE;
}

static void tell(struct visit *v, const struct uop *u)
{
    const struct interval i = *interval_of(v, u);
    for (int k = 0; k < u->nsrc; k++)
        if (dtype_is_int(u->src[k]->dtype) &&
            (makes_number(u) || (i.as_number && dtype_is_int(u->dtype))))
            interval_of(v, u->src[k])->as_number = true;
    if (u->op == OP_HOST)
        tell_host(v, u);
    else if (u->op == OP_INDEX || u->op == OP_SCATTER)
        tell_indices(v, u, u->op == OP_INDEX ? 1 : 2);
    else if (u->op == OP_REDUCE)
        tell_reduction(v, u, i);
    else if (op_is_elementwise(u->op))
        tell_elementwise(v, u, i);
    if (u->op == OP_INDEX || op_class(u->op) == CLASS_MOVE) {
        narrow(v, u->src[0], i.lo, i.hi);
        tell_truth(v, u->src[0], i.truth);
    }
    for (int k = 0; u->op == OP_GET && u->src[0]->op == OP_IF && k < 2; k++)
        narrow(v, u->src[0]->src[1 + k * u->src[0]->arg.i + u->arg.i], i.lo, i.hi);
    for (int k = 1; u->op == OP_CONCAT && k < u->nsrc; k++) {
        narrow(v, u->src[k], i.lo, i.hi);
        tell_truth(v, u->src[k], i.truth);
    }
}

/* The integers to draw, given what the uses allow. */
static struct allowed draw(const struct uop *u, struct interval i)
{
    const double few = 3, exact = 0x1p53;
    bool limited = i.lo > -INFINITY || i.hi < INFINITY;
    double least = 0, most = i.as_number ? 1 : few;
    if (u->dtype == DTYPE_BOOL)
        return (struct allowed){0, 1};
    if (!dtype_is_int(u->dtype))
        return (struct allowed){0, -1};
    if (u->dtype == DTYPE_U8 && !limited)
        return (struct allowed){0, 255};                     /* an image's pixels */
    if (u->dtype == DTYPE_I2)
        most = 1;
    if (limited) {
        least = i.hi < 0 ? fmax(ceil(i.lo), floor(i.hi) - few) : fmax(ceil(i.lo), 0);
        most = i.hi < INFINITY ? floor(i.hi) : least + few;
    }
    least = fmax(fmax(least, (double)dtype_min(u->dtype)), -exact);
    most = fmin(fmin(most, (double)dtype_max(u->dtype)), exact);
    return least <= most ? (struct allowed){(int64_t)least, (int64_t)most} : (struct allowed){0, 0};
}

struct allowed *allowed_integers(struct tgc *t, const struct graph *g)
{
    struct allowed *allowed = mem_array(t, (size_t)g->ninput + 1, sizeof *allowed);
    struct mem_mark mark = scratch_mark(t);
    struct uop **root = scratch_array(t, (size_t)g->noutput + (size_t)g->nhost + 1, sizeof *root);
    struct visit v = {.t = t, .of = {.t = t, .scratch = true}};
    int n = 0, count;
    for (int i = 0; i < g->noutput; i++)
        root[n++] = g->output[i].value;
    for (int i = 0; i < g->nhost; i++)
        root[n++] = g->host[i];
    struct uop **u = uop_toposort(t, root, n, &count);
    for (int i = count - 1; i >= 0; i--)
        tell(&v, u[i]);
    for (int i = 0; i < g->ninput; i++)
        allowed[i] = draw(g->input[i], *interval_of(&v, g->input[i]));
    scratch_release(t, mark);
    return allowed;
}
