/* lane_places.c - conditions on coordinates along a vector's lane. A comparison becomes one of
 * floats, lane by lane. The condition of a load or store becomes the number of leading lanes for
 * which it holds. */
#include "passes/vector/expand.h"

/* The present value of an expression of `in`, whose parts may not all be expanded yet. */
static struct uop *value_now(struct expander *e, struct uop *u)
{
    int n;
    struct uop **order = uop_toposort(e->t, &u, 1, &n), *src[4];
    struct uop_map now = {.t = e->t, .scratch = true};
    for (int i = 0; i < n; i++) {
        struct uop *x = order[i], *known = map_get(&e->value, x);
        for (int k = 0; k < x->nsrc && k < 4 && !known; k++)
            src[k] = map_get(&now, x->src[k]);
        bool made = known || op_class(x->op) == CLASS_LEAF || x->op == OP_RANGE;
        map_set(&now, x, known ? known : made ? x
                               : uop_new(e->t, x->op, x->dtype, src, x->nsrc, x->arg));
    }
    return map_get(&now, u);
}

bool expand_places(struct expander *e, struct uop *u)
{
    enum { DISTANCE_MAX = 1 << 20 };          /* such integers are exact as floats */
    struct tgc *t = e->t;
    int64_t along;
    if (!e->vector || u->dtype != DTYPE_BOOL || !tile_compares_places(t, u, e->vector))
        return false;
    struct uop *apart = sym_sub(t, u->src[1], u->src[0]), *src[2], *v;
    if (!index_stride(t, apart, e->vector, &along) || along == 0)
        return false;
    apart = value_now(e, apart);
    apart = along > 0 ? apart : sym_muli(t, apart, -1);
    apart = sym_max(t, sym_min(t, apart, uop_int(t, DISTANCE_MAX)), uop_int(t, -DISTANCE_MAX));
    apart = uop_cast(t, DTYPE_F32, apart);
    expand_need(e, apart);
    struct uop *ramp = uop_intern(t, OP_RAMP, DTYPE_F32, &apart, 1, (union arg){.i = e->lanes});
    expand_need(e, ramp);
    struct uop *zero = expand_splat(e, uop_constf(t, DTYPE_F32, 0), e->lanes);
    bool swapped = u->op == OP_LT && along > 0;
    src[0] = swapped ? zero : ramp;
    src[1] = swapped ? ramp : zero;
    v = uop_intern(t, u->op, DTYPE_BOOL, src, 2, u->arg);
    expand_need(e, v);
    map_set(&e->value, u, v);
    return true;
}

/* The value of u in one lane of the vector. */
static struct uop *value_at(struct expander *e, struct uop *u, int64_t lane)
{
    int n;
    struct uop **order = uop_toposort(e->t, &u, 1, &n), *src[4];
    struct uop_map at = {.t = e->t, .scratch = true};
    map_set(&at, e->vector, uop_int(e->t, lane));
    for (int i = 0; i < n; i++) {
        struct uop *x = order[i];
        bool varies = false;
        for (int k = 0; k < x->nsrc && k < 4; k++) {
            struct uop *now = map_get(&at, x->src[k]);
            varies |= now != NULL;
            src[k] = now ? now : expand_value_of(e, x->src[k]);
        }
        if (varies)
            map_set(&at, x, uop_new(e->t, x->op, x->dtype, src, x->nsrc, x->arg));
    }
    struct uop *now = map_get(&at, u);
    return now ? now : expand_value_of(e, u);
}

int expand_count_lanes(struct expander *e, struct uop **cond)
{
    struct uop *all = *cond;
    int n = 0;
    for (; n < e->lanes; n++) {
        struct uop *now = value_at(e, all, n);
        if (uop_is_int(now, 0))
            break;
        if (n > 0 && now != *cond)
            TGC_BUG(e->t, "a condition differs from lane to lane");
        *cond = now;
    }
    return n;
}
