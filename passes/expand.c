/* expand.c - in the variants of kernels, lanes become vectors and straight-line code; lanes that are
 * choices do in all kernels.
 *
 * A linear program comes in with its lanes as loops. What is inside a lane's loop is written once
 * for each of its values, with that value in the place of the loop variable; inside a vector's lane
 * it is written once, its loads and stores along the lane becoming loads and stores of vectors:
 *
 *      acc[row, column] := 0                 acc0 := splat 0, acc1 := splat 0
 *      for k                                 for k
 *        for row                               w = load.16 b[k*16]
 *          for column                          acc0 := mulacc(splat a[k], w, acc0)
 *            acc := acc + a * b                acc1 := mulacc(splat a[k + K], w, acc1)
 *
 * A value that two lanes have in common is computed once. A product that is added is one MULACC.
 * needs: optimize.c has made sure that everything which varies along a vector's lane has an
 * operation on vectors, and is read and written with stride 1.
 */
#include "passes/tile.h"

#include <string.h>

/* An accumulator with lanes: one of its own for each of their values. */
struct accs { const struct uop *acc; struct uop **each; };

struct expander {
    struct tgc *t;
    struct uop *const *in; int nin;
    struct uop **out; int nout; size_t cap;
    struct uop_map value;        /* uop of `in` -> uop of `out`; a lane -> its value now */
    struct uop_map stride;       /* offset of `in` -> how it grows along the vector's lane, + 1 */
    struct uop_map known;        /* uop of `out` -> it is computed and in scope */
    struct uop **scope; int nscope; size_t cap_scope;   /* what is known, in order; NULL: a loop */
    struct accs *accs; int naccs; size_t cap_accs;
    struct uop *vector;          /* the vector's lane that is open, or NULL */
    bool lazy;                   /* values are computed where a store needs them */
    int lanes;
    int next_acc;
};

static void push(struct expander *e, struct uop *u)
{
    SCRATCH_PUSH(e->t, e->out, e->nout, e->cap, u);
}

static void enter(struct expander *e) { SCRATCH_PUSH(e->t, e->scope, e->nscope, e->cap_scope, NULL); }

static void leave(struct expander *e)
{
    while (e->nscope > 0 && e->scope[--e->nscope])
        map_set(&e->known, e->scope[e->nscope], NULL);
}

static void learn(struct expander *e, struct uop *u)
{
    push(e, u);
    map_set(&e->known, u, u);
    SCRATCH_PUSH(e->t, e->scope, e->nscope, e->cap_scope, u);
}

static bool is_named(const struct uop *u)
{
    return op_class(u->op) == CLASS_LEAF || u->op == OP_RANGE || u->op == OP_ACC ||
           u->op == OP_STAGE;
}

/* Computes u, and whatever it is made of that is not known yet: folding makes new sums. */
static void compute(struct expander *e, struct uop *u)
{
    int n;
    if (is_named(u) || map_get(&e->known, u))
        return;
    struct uop **order = uop_toposort(e->t, &u, 1, &n);
    bool *wanted = scratch_array(e->t, (size_t)n, sizeof *wanted);
    struct uop_map place = {.t = e->t, .scratch = true};
    for (int i = 0; i < n; i++)
        map_set(&place, order[i], (void *)(uintptr_t)(i + 1));
    wanted[n - 1] = true;
    for (int i = n - 1; i >= 0; i--)
        for (int k = 0; k < order[i]->nsrc && wanted[i]; k++)
            if (!is_named(order[i]->src[k]) && !map_get(&e->known, order[i]->src[k]))
                wanted[(uintptr_t)map_get(&place, order[i]->src[k]) - 1] = true;
    for (int i = 0; i < n; i++)
        if (wanted[i])
            learn(e, order[i]);
}

static void need(struct expander *e, struct uop *u)
{
    if (!e->lazy)
        compute(e, u);
}

static int accs_of(const struct expander *e, const struct uop *acc)
{
    for (int i = e->naccs - 1; i >= 0; i--)
        if (e->accs[i].acc == acc)
            return i;
    return -1;
}

/* Which of an accumulator's lanes is open: row-major, a vector counts as one. */
static int lane_index(const struct expander *e, const struct uop *acc)
{
    int64_t at = 0;
    for (int k = 1; k < acc->nsrc; k++)
        if (!RANGE_IS_VECTOR(acc->src[k]->arg.i)) {
            const struct uop *v = map_get(&e->value, acc->src[k]);
            at = at * acc->src[k]->src[0]->arg.i + (v ? v->arg.i : 0);
        }
    return (int)at;
}

static struct uop *value_of(struct expander *e, struct uop *u)
{
    int a = u->op == OP_ACC ? accs_of(e, u) : -1;
    if (a >= 0)
        return e->accs[a].each[lane_index(e, u)];
    struct uop *v = map_get(&e->value, u);
    if (!v && op_class(u->op) != CLASS_LEAF && u->op != OP_STAGE)
        TGC_BUG(e->t, "%s is used before it is expanded", op_name(u->op));
    return v ? v : u;
}

static struct uop *splat(struct expander *e, struct uop *u, int lanes)
{
    if (lanes == 1 || u->lanes == lanes)
        return u;
    struct uop *v = uop_intern(e->t, OP_SPLAT, u->dtype, &u, 1, (union arg){.i = lanes});
    need(e, v);
    return v;
}

/* a*b + c, and c + a*b. */
static struct uop *fuse_product(struct expander *e, struct uop *u)
{
    for (int k = 0; k < 2 && u->op == OP_ADD && u->dtype == DTYPE_F32; k++) {
        const struct uop *m = u->src[k];
        struct uop *src[3];
        if (m->op != OP_MUL)
            continue;
        src[0] = m->src[0], src[1] = m->src[1], src[2] = u->src[1 - k];
        return uop_intern(e->t, OP_MULACC, u->dtype, src, 3, (union arg){0});
    }
    return u;
}

static void expand_value(struct expander *e, struct uop *u)
{
    struct uop *src[4], *v;
    int lanes = 1;
    for (int k = 0; k < u->nsrc; k++) {
        src[k] = value_of(e, u->src[k]);
        lanes = src[k]->lanes > lanes ? src[k]->lanes : lanes;
    }
    if (lanes == 1) {
        v = uop_new(e->t, u->op, u->dtype, src, u->nsrc, u->arg);
    } else {
        bool uniform = u->op == OP_WHERE && src[0]->lanes == 1;
        for (int k = uniform; k < u->nsrc; k++)
            src[k] = splat(e, src[k], lanes);
        v = fuse_product(e, uop_intern(e->t, u->op, u->dtype, src, u->nsrc, u->arg));
    }
    need(e, v);
    map_set(&e->value, u, v);
}

static bool runs_along(struct expander *e, struct uop *offset)
{
    int64_t stride = 0;
    if (!e->vector)
        return false;
    uintptr_t memo = (uintptr_t)map_get(&e->stride, offset);
    if (memo)
        return memo == 2;
    if (!nest_stride(e->t, offset, e->vector, &stride) || (stride != 0 && stride != 1))
        TGC_BUG(e->t, "a vector's lane has no stride of 0 or 1");
    map_set(&e->stride, offset, (void *)(uintptr_t)(stride + 1));
    return stride == 1;
}

static void expand_load(struct expander *e, struct uop *u)
{
    struct uop *src[4];
    int lanes = runs_along(e, u->src[1]) ? e->lanes : 1;
    for (int k = 0; k < u->nsrc; k++)
        src[k] = value_of(e, u->src[k]);
    if (u->nsrc == 4)
        src[3] = splat(e, src[3], lanes);
    struct uop *v = uop_intern(e->t, OP_LOAD, u->dtype, src, u->nsrc,
                               (union arg){.i = lanes > 1 ? lanes : 0});
    need(e, v);
    map_set(&e->value, u, v);
}

/* What a load may now read again is no longer known. */
static void forget_loads(struct expander *e, const struct uop *place)
{
    for (int i = 0; i < e->nscope; i++)
        if (e->scope[i] && e->scope[i]->op == OP_LOAD && e->scope[i]->src[0] == place)
            map_set(&e->known, e->scope[i], NULL);
}

static void expand_store(struct expander *e, struct uop *u)
{
    struct uop *src[3] = {u->src[0], value_of(e, u->src[1]), value_of(e, u->src[2])};
    if (runs_along(e, u->src[1]))
        src[2] = splat(e, src[2], e->lanes);
    else if (src[2]->lanes > 1)
        TGC_BUG(e->t, "a vector is stored to one place");
    for (int k = 1; k < 3 && e->lazy; k++)
        compute(e, src[k]);
    forget_loads(e, u->src[0]);
    push(e, uop_intern(e->t, OP_STORE, u->dtype, src, 3, (union arg){0}));
}

static void expand_acc(struct expander *e, struct uop *u)
{
    struct uop *init = value_of(e, u->src[0]);
    int64_t n = 1, lanes = 1;
    for (int k = 1; k < u->nsrc; k++) {
        if (RANGE_IS_VECTOR(u->src[k]->arg.i))
            lanes = u->src[k]->src[0]->arg.i;
        else
            n *= u->src[k]->src[0]->arg.i;
    }
    init = splat(e, init, (int)lanes);
    struct accs a = {u, mem_array(e->t, (size_t)n, sizeof *a.each)};
    for (int64_t i = 0; i < n; i++) {
        a.each[i] = uop_intern(e->t, OP_ACC, u->dtype, &init, 1,
                               (union arg){.i = e->next_acc++});
        push(e, a.each[i]);
    }
    SCRATCH_PUSH(e->t, e->accs, e->naccs, e->cap_accs, a);
}

static void expand_assign(struct expander *e, struct uop *u)
{
    struct uop *acc = value_of(e, u->src[0]), *src[2] = {acc, value_of(e, u->src[1])};
    src[1] = splat(e, src[1], acc->lanes);
    struct uop *v = uop_intern(e->t, OP_ASSIGN, u->dtype, src, 2, (union arg){0});
    push(e, v);
    map_set(&e->value, u, acc);
}

static int find_end(const struct expander *e, int at)
{
    for (int i = at + 1; i < e->nin; i++)
        if (e->in[i]->op == OP_END && e->in[i]->src[0] == e->in[at])
            return i;
    TGC_BUG(e->t, "a loop is not closed");
}

static void expand_one(struct expander *e, struct uop *u)
{
    struct uop *v;
    switch (u->op) {
    case OP_CONST: case OP_VAR: case OP_BUFFER: case OP_STAGE: case OP_SINK:
        break;
    case OP_RANGE:
        v = value_of(e, u->src[0]);
        v = uop_intern(e->t, OP_RANGE, u->dtype, &v, 1, u->arg);
        enter(e);
        push(e, v);
        map_set(&e->value, u, v);
        break;
    case OP_GUARD:
        v = value_of(e, u->src[0]);
        v = uop_intern(e->t, OP_GUARD, u->dtype, &v, 1, u->arg);
        enter(e);
        push(e, v);
        map_set(&e->value, u, v);
        break;
    case OP_END: case OP_ENDGUARD:
        v = value_of(e, u->src[0]);
        push(e, uop_intern(e->t, u->op, u->dtype, &v, 1, u->arg));
        leave(e);
        break;
    case OP_ACC: expand_acc(e, u); break;
    case OP_ASSIGN: expand_assign(e, u); break;
    case OP_LOAD: expand_load(e, u); break;
    case OP_STORE: expand_store(e, u); break;
    default: expand_value(e, u);
    }
}

/* Among choices, what is chosen follows from the lane: nothing else shall be computed, nor sooner
 * than it is stored. That holds where lanes have stores inside of them alone. */
static bool may_be_lazy(const struct expander *e, int begin, int end)
{
    bool choice = false;
    for (int i = begin; i < end; i++) {
        const struct uop *u = e->in[i];
        if (u->op == OP_ACC || u->op == OP_ASSIGN || u->op == OP_GUARD ||
            (u->op == OP_RANGE && !RANGE_IS_LANE(u->arg.i)))
            return false;
        choice |= u->op == OP_RANGE && RANGE_IS_UNROLL(u->arg.i);
    }
    return choice;
}

/* A lane's loop, and where in it we are; lanes nest as deep as tiles have kinds of them. */
struct lane { int begin, end; int64_t now, size; };

static void expand_all(struct expander *e)
{
    enum { DEPTH = 8 };
    struct lane lane[DEPTH];
    int depth = 0;
    for (int i = 0; i < e->nin; i++) {
        struct uop *u = e->in[i];
        if (u->op == OP_RANGE && RANGE_IS_LANE(u->arg.i)) {
            bool vector = RANGE_IS_VECTOR(u->arg.i);
            if (depth == DEPTH)
                TGC_BUG(e->t, "more than %d lanes", DEPTH);
            lane[depth++] = (struct lane){i, find_end(e, i), 0, vector ? 1 : u->src[0]->arg.i};
            map_set(&e->value, u, uop_int(e->t, 0));
            if (depth == 1)
                e->lazy = may_be_lazy(e, i, lane[0].end);
            if (vector) {
                e->vector = u;
                e->lanes = (int)u->src[0]->arg.i;
                e->stride = (struct uop_map){.t = e->t, .scratch = true};
            }
            continue;
        }
        if (depth == 0 || i != lane[depth - 1].end) {
            expand_one(e, u);
            continue;
        }
        struct lane *l = &lane[depth - 1];
        if (++l->now < l->size) {
            map_set(&e->value, e->in[l->begin], uop_int(e->t, l->now));
            i = l->begin;                             /* once more, with the next value */
            continue;
        }
        if (e->vector == e->in[l->begin])
            e->vector = NULL;
        if (--depth == 0)
            e->lazy = false;
    }
}

static void expand_program(struct tgc *t, struct uop ***linear, int *nlinear)
{
    struct mem_mark mark = scratch_mark(t);
    struct expander *e = scratch_array(t, 1, sizeof *e);
    *e = (struct expander){.t = t, .in = *linear, .nin = *nlinear};
    e->value = e->stride = e->known = (struct uop_map){.t = t, .scratch = true};
    expand_all(e);
    *linear = mem_copy(t, e->out, (size_t)e->nout * sizeof *e->out);
    *nlinear = e->nout;
    scratch_release(t, mark);
}

static bool has_choices(const struct kernel *k)
{
    for (int i = 0; i < k->nopt; i++)
        if (k->opt[i].op == OPT_UNROLL)
            return true;
    return false;
}

bool pass_expand(struct tgc *t, struct schedule *s)
{
    for (int i = 0; i < s->nkernel; i++) {
        struct kernel *k = s->kernel[i];
        for (int j = 0; j < k->nvariant; j++)
            expand_program(t, &k->variant[j].linear, &k->variant[j].nlinear);
        if (has_choices(k))
            expand_program(t, &k->linear, &k->nlinear);
    }
    return true;
}
