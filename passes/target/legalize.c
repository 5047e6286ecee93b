/* legalize.c - a linear program with only operations that every language has.
 *
 * Simple ones are the rules of the set `legal` (passes/rules/legal.rules). Narrow formats (f16,
 * bf16, f8, integers of less than 32 bits) have no arithmetic: what could leave such a format is
 * computed in f32 or i32, and a cast rounds or wraps it.
 *
 *    c : f16 = mul(a, b)     a' : f32 = cast(a)    c' : f32 = mul(a', b')    c : f16 = cast(c')
 *
 * What stays in its format (a maximum, a choice, a sum that bounds prove small) needs no cast: a
 * language computes it in the wide format, too. Renderers ask legal.h what may be written plainly,
 * and what needs a function.
 *
 * Compilers of devices' languages may contract a product and its sum into one rounding, wherever
 * they see both. A difference of equal values, each rounded, would then not be 0. So contraction
 * is turned off (`contract` in runtime/, nvrtc.c). Here a product that is added becomes the one
 * fused operation. A product from which something is subtracted, or which is subtracted, stays
 * rounded. */
#include "passes/passes.h"
#include "passes/rules/rules.h"
#include "passes/target/legal.h"

/* A program while it is legalized. */
struct legal {
    struct tgc *t;
    struct uop **linear; int n; size_t cap;
    struct uop_map now;          /* a uop of before -> what it is now */
    struct scopes scopes;        /* of elementwise uops */
    bool fuses;                  /* products that are added, of a device's threads */
};

/* Computes u here, unless it is known; returns it. */
static struct uop *push(struct legal *l, struct uop *u)
{
    if (map_get(&l->scopes.known, u))
        return u;
    if (op_is_elementwise(u->op))
        scopes_learn(&l->scopes, u);
    VEC_PUSH(l->t, l->linear, l->n, l->cap, u);
    return u;
}

/* u with its operands' present forms; u itself if they have not changed. */
static struct uop *with_operands(struct legal *l, struct uop *u)
{
    bool changed = false;
    struct uop **src = scratch_array(l->t, (size_t)u->nsrc + 1, sizeof *src);
    for (int k = 0; k < u->nsrc; k++) {
        struct uop *by = map_get(&l->now, u->src[k]);
        src[k] = by ? by : u->src[k];
        changed |= by != NULL;
    }
    if (!changed)
        return u;
    struct uop *r = uop_intern(l->t, u->op, u->dtype, src, u->nsrc, u->arg);
    uop_set_origin(l->t, r, u);
    if (u->op == OP_RANGE && uop_get_axes(l->t, u))
        uop_name_axes(l->t, r, uop_get_axes(l->t, u));
    return r;
}

/* The format in which d's arithmetic is done, if it has none of its own; else d. */
static enum dtype wide_format(enum dtype d)
{
    if (dtype_is_float(d))
        return d == DTYPE_F64 ? d : DTYPE_F32;
    return dtype_is_int(d) && dtype_bits(d) < 32 ? DTYPE_I32 : d;
}

/* Whether the op's result needs no rounding if its operands are values of a narrow float format. */
static bool is_exact(enum op op)
{
    switch (op) {
    case OP_NEG: case OP_ABS: case OP_MAX: case OP_MIN: case OP_WHERE: case OP_FLOOR: case OP_CEIL:
    case OP_TRUNC: case OP_ROUND: case OP_MOD:
        return true;
    default:
        return false;
    }
}

static bool may_leave_format(const struct uop *u)
{
    if (!op_is_elementwise(u->op) || u->op == OP_CAST || u->op == OP_BITCAST || u->lanes > 1 ||
        wide_format(u->dtype) == u->dtype)
        return false;
    return dtype_is_float(u->dtype) ? !is_exact(u->op)
                                    : !legal_fits(u, dtype_min(u->dtype), dtype_max(u->dtype));
}

static struct uop *cast(struct legal *l, enum dtype d, struct uop *x)
{
    return uop_intern(l->t, OP_CAST, d, &x, 1, (union arg){0});
}

/* u computed in the wide format. */
static struct uop *widen(struct legal *l, struct uop *u)
{
    struct uop *src[3];
    enum dtype wide = wide_format(u->dtype);
    for (int k = 0; k < u->nsrc; k++) {
        struct uop *x = u->src[k];
        src[k] = x->op != OP_CONST      ? push(l, cast(l, wide, x))
                 : dtype_is_float(wide) ? uop_constf(l->t, wide, x->arg.f)
                                        : uop_consti(l->t, wide, x->arg.i);
    }
    struct uop *r = push(l, uop_intern(l->t, u->op, wide, src, u->nsrc, u->arg));
    uop_set_origin(l->t, r, u);
    return cast(l, u->dtype, r);
}

/* Whether the factors are still what the product read: an accumulator may have changed since. */
static bool factors_stay(const struct legal *l, const struct uop *product)
{
    if (product->src[0]->op != OP_ACC && product->src[1]->op != OP_ACC)
        return true;
    int i = l->n - 1;
    while (i >= 0 && l->linear[i] != product &&
           (op_is_elementwise(l->linear[i]->op) || l->linear[i]->op == OP_LOAD))
        i--;
    return i >= 0 && l->linear[i] == product;
}

/* x*y + z, rounded once; NULL: u is no such sum. */
static struct uop *fuse_product(struct legal *l, struct uop *u)
{
    if (!l->fuses || u->op != OP_ADD || (u->dtype != DTYPE_F32 && u->dtype != DTYPE_F64))
        return NULL;
    for (int k = 0; k < 2; k++) {
        struct uop *x = u->src[k], *src[3] = {NULL, NULL, u->src[1 - k]};
        if (x->op != OP_MUL || x->lanes != u->lanes || !factors_stay(l, x))
            continue;
        src[0] = x->src[0], src[1] = x->src[1];
        return uop_intern(l->t, OP_MULACC, u->dtype, src, 3, (union arg){0});
    }
    return NULL;
}

static struct uop *legal_uop(struct legal *l, struct uop *u)
{
    int rule;
    struct uop *r = with_operands(l, u);
    struct uop *by = r->lanes == 1 ? rules_match(l->t, RULES_legal, NULL, r, &rule) : NULL;
    by = by ? by : fuse_product(l, r);
    if (!by && may_leave_format(r))
        by = widen(l, r);
    if (by)
        uop_set_origin(l->t, by, r);
    return by ? by : r;
}

static void legalize(struct tgc *t, struct uop ***linear, int *n)
{
    struct mem_mark mark = scratch_mark(t);
    struct legal l = {.t = t, .fuses = device_has_grid(t)};
    l.now = l.scopes.known = (struct uop_map){.t = t, .scratch = true};
    for (int i = 0; i < *n; i++) {
        struct uop *u = (*linear)[i], *r = push(&l, legal_uop(&l, u));
        if (r != u)
            map_set(&l.now, u, r);
        if (r->op == OP_RANGE || r->op == OP_GUARD)
            scopes_enter(&l.scopes);
        else if (r->op == OP_END || r->op == OP_ENDGUARD)
            scopes_leave(&l.scopes);
        else if (r->op == OP_ASSIGN && wide_format(r->dtype) != r->dtype)
            /* the accumulator is another value from here on */
            map_set(&l.scopes.known, cast(&l, wide_format(r->dtype), r->src[0]), NULL);
    }
    *linear = l.linear;
    *n = l.n;
    scratch_release(t, mark);
}

struct uop *legal_formats(struct tgc *t, struct uop *root)
{
    int n;
    struct mem_mark mark = scratch_mark(t);
    struct legal l = {.t = t};
    l.now = l.scopes.known = (struct uop_map){.t = t, .scratch = true};
    struct uop **order = uop_toposort(t, &root, 1, &n), *r = root;
    for (int i = 0; i < n; i++)
        if ((r = legal_uop(&l, order[i])) != order[i])
            map_set(&l.now, order[i], r);
    scratch_release(t, mark);
    return r;
}

bool pass_legalize(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    legalize(t, &k->linear, &k->nlinear);
    for (int i = 0; i < k->nvariant; i++)
        legalize(t, &k->variant[i].linear, &k->variant[i].nlinear);
    return true;
}
