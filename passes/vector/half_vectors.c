/* half_vectors.c - halves vectors whose upper lanes are never stored.
 *
 *      w1 = load.16 w[k*24]                      w1 = load.16 w[k*24]
 *      w2 = load.16, 8 of them, w[k*24 + 16]     w2 = load.8 w[k*24 + 16]
 *      v = splat.16 x[k]                         v = splat.16 x[k]
 *      sum1 := v * w1 + sum1                     sum1 := v * w1 + sum1
 *      sum2 := v * w2 + sum2                     sum2 := half v * w2 + sum2
 *      store.16, 8 of them, sum2                 store.8 sum2
 *
 * Where the processor's units are as wide as half a vector (AVX-512 on Zen 4), half a vector takes
 * half the time, elsewhere as long as a whole one. The remaining lanes are computed as before.
 *
 * The lanes that are needed are found backwards from the stores, up to a fixed point. Short loops
 * have half vectors already.
 */
#include "passes/vector/expand.h"

struct halves {
    struct tgc *t;
    int wide;
    struct uop *const *in; int nin;
    struct uop **out; int nout; size_t cap;
    struct uop_map whole;        /* uop of `in`: all its lanes are needed, or it cannot be halved */
    struct uop_map wanted;       /* a whole value whose lower half is needed, too */
    struct uop_map now;          /* uop of `in` -> uop of `out`, where they differ */
    struct scopes scopes;        /* halves of `out` */
};

/* Whether half of u can be computed instead of u. */
static bool can_be_half(const struct halves *h, const struct uop *u)
{
    int part = VECTOR_PART(u->arg.i);
    if (u->lanes != h->wide || (u->dtype != DTYPE_F32 && u->dtype != DTYPE_BOOL))
        return false;
    switch (u->op) {
    case OP_SPLAT: case OP_RAMP: return u->dtype == DTYPE_F32;
    case OP_ACC: return u->nsrc == 1;
    case OP_LOAD:
        return !VECTOR_IS_GROUPS(u->arg.i) && (part == 0 || part == h->wide / 2) && u->nsrc == 2;
    case OP_CAST: return false;
    default: return op_is_elementwise(u->op);
    }
}

/* A store of at most half the lanes. */
static bool stores_half(const struct halves *h, const struct uop *u)
{
    return u->op == OP_STORE && u->src[2]->lanes == h->wide && u->src[2]->dtype == DTYPE_F32 &&
           VECTOR_PART(u->arg.i) == h->wide / 2 && u->nsrc == 3;
}

static bool is_whole(struct halves *h, const struct uop *u)
{
    return map_get(&h->whole, u) != NULL;
}

/* Marks u as whole. true: it was not before. */
static bool keep_whole(struct halves *h, struct uop *u)
{
    if (u->lanes != h->wide || is_whole(h, u))
        return false;
    map_set(&h->whole, u, u);
    return true;
}

/* Propagates what is known of one uop to its sources. */
static bool look_at(struct halves *h, struct uop *u)
{
    bool news = false;
    if (u->op == OP_ASSIGN)  /* a whole value added to half a sum is read by its lower half */
        return is_whole(h, u->src[0]) && keep_whole(h, u->src[1]);
    if (u->op == OP_END || u->op == OP_ENDGUARD || stores_half(h, u))
        return false;
    if (!can_be_half(h, u))
        news |= keep_whole(h, u);
    /* half of an accumulator cannot be cached: it changes */
    for (int k = 0; k < u->nsrc && can_be_half(h, u); k++)
        if (u->src[k]->op == OP_ACC && is_whole(h, u->src[k]))
            news |= keep_whole(h, u);
    for (int k = 0; k < u->nsrc && (!can_be_half(h, u) || is_whole(h, u)); k++)
        news |= keep_whole(h, u->src[k]);
    return news;
}

/* Notes the whole values whose lower half is read; false: no value is halved. */
static bool find_wanted(struct halves *h)
{
    bool any = false;
    for (int i = 0; i < h->nin; i++) {
        struct uop *u = h->in[i];
        bool value = op_is_elementwise(u->op) || u->op == OP_ACC;
        bool half = u->op == OP_ASSIGN ? u->src[0]->lanes == h->wide && !is_whole(h, u->src[0])
                    : value            ? u->lanes == h->wide && !is_whole(h, u)
                                       : stores_half(h, u);
        any |= half;
        for (int k = 0; k < u->nsrc && half; k++)
            if (is_whole(h, u->src[k]))
                map_set(&h->wanted, u->src[k], u);
    }
    return any;
}

static void push(struct halves *h, struct uop *u)
{
    if (map_get(&h->scopes.known, u))
        return;
    SCRATCH_PUSH(h->t, h->out, h->nout, h->cap, u);
    if (u->op == OP_END || u->op == OP_ENDGUARD) {
        scopes_leave(&h->scopes);
    } else if (u->op == OP_RANGE || u->op == OP_GUARD) {
        scopes_enter(&h->scopes);
    } else if (u->op == OP_STORE) {
        scopes_forget_loads(&h->scopes, u->src[0]);
    } else if (u->lanes == h->wide / 2 && u->op != OP_ACC && u->op != OP_ASSIGN) {
        scopes_learn(&h->scopes, u);
    }
}

/* The lower half of a whole value. */
static struct uop *half_of(struct halves *h, struct uop *u)
{
    return uop_intern(h->t, OP_INTRINSIC, u->dtype, &u, 1,
                      (union arg){.i = INTRINSIC_BITS(INTRINSIC_HALF, u->lanes / 2, 0, 0)});
}

static void rewrite(struct halves *h, struct uop *u)
{
    struct uop *src[64];
    union arg arg = u->arg;
    bool whole = is_whole(h, u), changed = false;
    if (u->nsrc > 64 || whole) {             /* sources of whole values are whole */
        push(h, u);
        if (whole && map_get(&h->wanted, u))
            push(h, half_of(h, u));
        return;
    }
    bool half_sum = u->op == OP_ASSIGN && u->src[0]->lanes == h->wide && !is_whole(h, u->src[0]);
    bool half = u->op == OP_ASSIGN ? half_sum : stores_half(h, u) || u->lanes == h->wide;
    for (int k = 0; k < u->nsrc; k++) {
        struct uop *now = map_get(&h->now, u->src[k]);
        src[k] = now ? now : half && is_whole(h, u->src[k]) ? half_of(h, u->src[k]) : u->src[k];
        changed |= src[k] != u->src[k];
    }
    if ((u->op == OP_SPLAT || u->op == OP_RAMP) && half)
        arg.i = h->wide / 2;
    else if ((u->op == OP_LOAD || u->op == OP_STORE) && half)
        arg.i = ARG_PACK(VECTOR, h->wide / 2, 0, VECTOR_STRIDE(u->arg.i));
    if (changed || arg.i != u->arg.i) {
        struct uop *now = uop_intern(h->t, u->op, u->dtype, src, u->nsrc, arg);
        map_set(&h->now, u, now);
        u = now;
    }
    push(h, u);
}

static void halve_vectors(struct tgc *t, const struct isa_info *isa, struct uop ***linear,
                          int *nlinear)
{
    struct mem_mark mark = scratch_mark(t);
    struct halves h = {.t = t, .wide = isa->lanes, .in = *linear, .nin = *nlinear};
    h.whole = h.wanted = h.now = h.scopes.known = (struct uop_map){.t = t, .scratch = true};
    bool parts = false;
    for (int i = 0; i < h.nin && 2 * isa->narrow == isa->lanes; i++)
        parts |= stores_half(&h, h.in[i]);
    for (bool news = parts; news;) {
        news = false;
        for (int i = h.nin - 1; i >= 0; i--)
            news |= look_at(&h, h.in[i]);
    }
    if (parts && find_wanted(&h)) {
        for (int i = 0; i < h.nin; i++)
            rewrite(&h, h.in[i]);
        *linear = mem_copy(t, h.out, (size_t)h.nout * sizeof *h.out);
        *nlinear = h.nout;
    }
    scratch_release(t, mark);
}

bool pass_half_vectors(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->nvariant; i++)
        halve_vectors(t, &isa_table[k->variant[i].isa], &k->variant[i].linear,
                      &k->variant[i].nlinear);
    return true;
}
