/* agree.c - sizes that have to be equal for a model to work, but are not proved equal.
 *
 * A network that halves an image five times and doubles it again adds tensors of (H+15)//16 and of
 * (H+31)//32*2 rows: equal for multiples of 32. An exporter gives one length two names. Such sizes
 * are assumed equal, and the run checks that and returns a status if they are not. The decision is
 * made by trying values of the dimensions: if the sizes are equal for none of them, or for only
 * one, the model is wrong, or the user has to give the size; that is an error. If they differ for
 * some values, there is a warning. A size found only at run time (of an If's branches, of selected
 * elements) may be assumed equal if its bounds allow it.
 *
 * If sizes may be broadcast, and one of them is 1 wherever they differ, the run decides whether to
 * repeat: tensor_broadcast_to() handles both. The same holds for a size found only at run time and
 * a constant: the branches of an If may give one row or all of them.
 */
#include "frontend/onnx/lower.h"

#include <inttypes.h>

enum {
    SMALL_VALUES = 256, /* 1..this are tried, */
    STRIDE = 32,        /* then multiples of this */
    LARGE_VALUES = 16384,
    MIXED = 64, /* and different values for different dimensions */
    MAX_TERMS = 4096
};

/* Both sizes as one program over their terms, sources first. */
struct trial {
    struct tgc *t;
    struct uop **term;
    int n;
    struct uop_map place; /* of a term, + 1 */
    union scalar *value;
    const struct var **var; /* variables that occur */
    int nvar;
    bool is_found;
    int64_t *at; /* the values that are tried, by position in var[] */
};

static int place_of(const struct trial *r, const struct uop *u)
{
    return (int)((uintptr_t)map_get(&r->place, u)) - 1;
}

static bool is_dimension(const struct lower *l, const struct var *v)
{
    for (int i = 0; i < l->nvar; i++)
        if (l->var[i] == v)
            return true;
    return false;
}

/* false: a size depends on more than the model's dimensions. */
static bool trial_begin(struct trial *r, const struct lower *l, struct uop *const *size)
{
    r->term = uop_toposort(r->t, size, 2, &r->n);
    if (r->n > MAX_TERMS)
        return false;
    r->place = (struct uop_map){.t = r->t, .scratch = true};
    r->value = scratch_array(r->t, (size_t)r->n, sizeof *r->value);
    r->var = scratch_array(r->t, (size_t)r->n, sizeof(struct var *));
    r->at = scratch_array(r->t, (size_t)r->n, sizeof *r->at);
    for (int i = 0; i < r->n; i++) {
        const struct uop *u = r->term[i];
        map_set(&r->place, u, (void *)(uintptr_t)(i + 1));
        if (u->op == OP_VAR) {
            const struct var *v = u->arg.p;
            if (!is_dimension(l, v) && !v->is_found)
                return false;
            r->is_found |= v->is_found;
            r->var[r->nvar++] = v;
        } else if (u->op != OP_CONST &&
                   (!op_is_elementwise(u->op) || u->nsrc > 3)) {
            return false;
        }
    }
    return r->nvar > 0;
}

static bool trial_run(struct trial *r, const struct uop *a, const struct uop *b, int64_t value[2])
{
    for (int i = 0, var = 0; i < r->n; i++) {
        const struct uop *u = r->term[i];
        union scalar source[3] = {{0}};
        if (u->op == OP_CONST)
            r->value[i].i = u->arg.i;
        else if (u->op == OP_VAR)
            r->value[i].i = r->at[var++];
        else {
            for (int k = 0; k < u->nsrc; k++)
                source[k] = r->value[place_of(r, u->src[k])];
            if (!scalar_apply(u->op, u->dtype, u->src[u->op == OP_WHERE]->dtype, source,
                              &r->value[i]))
                return false;
        }
    }
    value[0] = r->value[place_of(r, a)].i;
    value[1] = r->value[place_of(r, b)].i;
    return true;
}

static int64_t within(const struct var *v, int64_t x)
{
    return x < v->min ? v->min : x > v->max ? v->max : x;
}

/* How often the sizes are equal and how often not; odd[]: the first values for which they are
 * not. */
struct verdict {
    int stretch;                /* which of them may be 1, as sym_must_broadcast() */
    int equal, different;
    int unlike;                 /* different, and none is 1 that may be */
    int64_t *odd;
};

static bool count(struct trial *r, const struct uop *a, const struct uop *b, struct verdict *v)
{
    int64_t value[2];
    if (!trial_run(r, a, b, value))
        return false;
    bool same = value[0] == value[1];
    for (int i = 0; !same && !v->different && i < r->nvar; i++)
        v->odd[i] = r->at[i];
    v->equal += same;
    v->different += !same;
    v->unlike += !same && !((v->stretch & 1) && value[0] == 1) &&
                 !((v->stretch & 2) && value[1] == 1);
    return true;
}

/* A size that is a dimension of its own can be as large as the other one, whatever that is: of
 * "past", "new" and "total" no values that are tried apart would agree. */
static bool try_equal(struct trial *r, const struct uop *a, const struct uop *b, struct verdict *v)
{
    for (int i = 0; i < r->nvar; i++) {
        int64_t value[2];
        bool of_a = a->op == OP_VAR && a->arg.p == r->var[i];
        if ((!of_a && !(b->op == OP_VAR && b->arg.p == r->var[i])) ||
            (of_a ? b : a)->op == OP_CONST)
            continue;
        if (!trial_run(r, a, b, value))
            return false;
        int64_t other = value[of_a], own = r->at[i];
        if (other == own || other < r->var[i]->min || other > r->var[i]->max)
            continue;                                /* equal values are counted already */
        r->at[i] = other;
        if (!count(r, a, b, v))
            return false;
        r->at[i] = own;
    }
    return true;
}

static bool try_values(struct trial *r, const struct uop *a, const struct uop *b, struct verdict *v)
{
    int64_t most = 0;
    for (int i = 0; i < r->nvar; i++)
        most = r->var[i]->max > most ? r->var[i]->max : most;
    most = most > LARGE_VALUES ? LARGE_VALUES : most;
    for (int64_t x = 1; x <= most; x += x < SMALL_VALUES ? 1 : STRIDE) {
        bool moved = x == 1;
        for (int i = 0; i < r->nvar; i++) {
            int64_t next = within(r->var[i], x);
            moved |= next != r->at[i];
            r->at[i] = next;
        }
        if (moved && !(count(r, a, b, v) && try_equal(r, a, b, v)))
            return false;
    }
    uint32_t random = 1;
    for (int64_t k = 0; r->nvar > 1 && k < MIXED; k++) {
        for (int i = 0; i < r->nvar; i++) {
            random = random * 1664525 + 1013904223;
            r->at[i] = within(r->var[i], (int64_t)(random >> 16) % (2 * STRIDE) * (1 + k % STRIDE));
        }
        if (!count(r, a, b, v))
            return false;
    }
    return true;
}

/* Only the first warning about the same dimensions is given. */
static bool warned_before(struct lower *l, const struct trial *r)
{
    uint64_t seen = 0;
    for (int i = 0; i < r->nvar; i++)
        for (int k = 0; k < l->nvar && k < 64; k++)
            if (l->var[k] == r->var[i])
                seen |= (uint64_t)1 << k;
    for (int i = 0; i < l->nwarned; i++)
        if (l->warned[i] == seen)
            return true;
    VEC_PUSH(l->t, l->warned, l->nwarned, l->cap_warned, seen);
    return false;
}

static void warn(struct lower *l, const struct trial *r, const struct uop *a, const struct uop *b,
                 const int64_t *odd)
{
    struct text x = {.t = l->t};
    if (warned_before(l, r))
        return;
    text_puts(&x, "the sizes ");
    uop_print(&x, a);
    text_puts(&x, " and ");
    uop_print(&x, b);
    text_puts(&x, " must be equal, which they are not for");
    for (int i = 0; i < r->nvar; i++)
        text_printf(&x, "%s '%s' = %" PRId64, i ? "," : "", r->var[i]->name, odd[i]);
    diag_warn(l->t, &l->node->at, "%s; a run with such sizes returns a status", x.s);
}

static bool may_be_one(const struct uop *u) { return u->vmin <= 1 && u->vmax >= 1; }

static struct uop *is_one(struct tgc *t, struct uop *u)
{
    return uop_binary(t, OP_EQ, u, uop_int(t, 1));
}

/* One size is broadcast to the other: the run checks that one is 1, or both are equal. */
static bool decide_stretch(struct lower *l, struct uop *a, struct uop *b, const struct trial *r,
                           const struct verdict *v)
{
    struct tgc *t = l->t;
    bool one_a = (v->stretch & 1) && may_be_one(a), one_b = (v->stretch & 2) && may_be_one(b);
    bool is_choice = r->is_found && (a->op == OP_CONST || b->op == OP_CONST);
    if (!(one_a || one_b) || (v->unlike && !is_choice))
        return false;
    struct uop *fits = uop_binary(t, OP_EQ, a, b);
    fits = one_a ? uop_binary(t, OP_OR, fits, is_one(t, a)) : fits;
    fits = one_b ? uop_binary(t, OP_OR, fits, is_one(t, b)) : fits;
    return node_require(l->node, -1, fits, "sizes differ");
}

static enum agreement decide(struct lower *l, struct uop *a, struct uop *b, int stretch)
{
    struct uop *size[2] = {a, b};
    struct trial r = {.t = l->t};
    struct verdict v = {.stretch = stretch};
    if (!trial_begin(&r, l, size))
        return SIZES_DIFFER;
    v.odd = scratch_array(l->t, (size_t)r.nvar, sizeof *v.odd);
    if (!try_values(&r, a, b, &v))
        return SIZES_DIFFER;
    if (stretch && v.different && decide_stretch(l, a, b, &r, &v))
        return SIZES_STRETCH;
    if ((v.equal < 2 && !r.is_found) || a->vmin > b->vmax || b->vmin > a->vmax)
        return SIZES_DIFFER;
    struct uop *same = uop_binary(l->t, OP_EQ, a, b);
    int before = l->ncheck;
    if (!node_require(l->node, -1, same, "sizes differ"))
        return SIZES_DIFFER;
    if (v.different && l->ncheck > before)
        warn(l, &r, a, b, v.odd);
    return SIZES_EQUAL;
}

enum agreement lower_agree(struct tgc *t, void *ctx, struct uop *a, struct uop *b, int stretch)
{
    struct lower *l = ctx;
    if (!l->node || (!stretch && (a->vmin > b->vmax || b->vmin > a->vmax)))
        return SIZES_DIFFER;
    struct mem_mark mark = scratch_mark(t);
    enum agreement found = decide(l, a, b, stretch);
    scratch_release(t, mark);
    return found;
}
