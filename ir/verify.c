/* verify.c - checks the invariants of each dialect of the IR. A violation is a bug of the pass that
 * ran last.
 *
 * Graph: every op belongs to the dialect and has its number of sources, dtypes that go together,
 * and a shape that follows from its sources; dimensions that are symbols are held to what can be
 * decided about them. What a LOOP carries is seen only inside it.
 *
 * Linear program: one walk over the array with a stack of open loops and guards.
 *   - A value is read only while the loop that it was computed in is open; a RANGE only while it is
 *     open itself.
 *   - An accumulator is unfinished wherever a loop is open that was opened after its declaration
 *     and holds one of its ASSIGNs. What is computed from an unfinished accumulator may flow into
 *     ASSIGNs (its own update, or an online algorithm's), never into memory, a condition or another
 *     initialization. So one that is declared too far inside is read out of scope after its loop,
 *     and one that is declared too far outside is unfinished where it is stored: initialization,
 *     updates and uses dominate correctly, or this fails.
 *   - An accumulator with lanes is an array, which is read and updated where its lanes are open;
 *     loops over its own lanes leave it finished or not as it was, since each of their iterations
 *     has its own element. A lane that it does not have must not update it.
 *   - Scratch is loaded only after it was stored to; verify_scratch.c proves it element by element.
 */
#include <string.h>

#include "ir/verify.h"

_Noreturn void verify_violation(const struct verifier *v, const struct uop *u, const char *what)
{
    if (v->found) {
        *v->found = (struct violation){u, what};
        longjmp(*v->back, 1);
    }
    struct text line = {.t = v->t};
    const struct origin *o = uop_get_origin(v->t, u);
    uop_print(&line, u);
    TGC_BUG(v->t, "after %s: %s %%%u%s%s%s: %s; it is %.200s", v->after, op_name(u->op), u->id,
            o ? " of node '" : "", o ? o->node : "", o ? "'" : "", what, line.s ? line.s : "");
}

/* --------------------------------------------------------------------- what both dialects share */

static bool is_compare(enum op op) { return op == OP_LT || op == OP_EQ || op == OP_NE; }

static bool is_float_only(enum op op)
{
    return op == OP_SQRT || op == OP_RECIP || (op >= OP_EXP && op <= OP_EXP1) || op == OP_ATAN2;
}

static bool is_int_only(enum op op) { return op == OP_SHL || op == OP_SHR || op == OP_FLOORDIV; }
static bool is_bitwise(enum op op)
{
    return op == OP_AND || op == OP_OR || op == OP_XOR || op == OP_NOT;
}

void verify_elementwise(const struct verifier *v, const struct uop *u)
{
    enum dtype d = u->src[u->nsrc - 1]->dtype;
    if (u->op == OP_CAST)
        return;
    if (u->op == OP_BITCAST) {
        require(v, u, dtype_bits(u->dtype) == dtype_bits(d), "the dtypes differ in width");
        return;
    }
    for (int k = u->op == OP_WHERE; k < u->nsrc; k++)
        require(v, u, u->src[k]->dtype == d, "operands of different dtypes");
    if (u->op == OP_WHERE)
        require(v, u, u->src[0]->dtype == DTYPE_BOOL, "the condition is not bool");
    bool to_bool = is_compare(u->op) || u->op == OP_ISNAN;
    require(v, u, u->dtype == (to_bool ? DTYPE_BOOL : d),
            "the result's dtype does not follow from the operands'");
    require(v, u, !is_float_only(u->op) || dtype_is_float(d), "the operands are not floats");
    require(v, u, !is_int_only(u->op) || dtype_is_int(d), "the operands are not integers");
    require(v, u, !is_bitwise(u->op) || dtype_is_int(d) || d == DTYPE_BOOL,
            "the operands are neither integers nor bools");
}

void verify_stack(const struct verifier *v, const struct uop *u)
{
    require(v, u, u->nsrc > 1, "chooses among nothing");
    require(v, u, u->src[0]->dtype == DTYPE_INDEX, "the index is no i64");
    for (int k = 1; k < u->nsrc; k++)
        require(v, u, u->src[k]->dtype == u->dtype, "operands of different dtypes");
}

bool verify_is_reduction(enum op op)
{
    return op == OP_ADD || op == OP_MUL || op == OP_MAX || op == OP_MIN || op == OP_AND ||
           op == OP_OR || op == OP_XOR;
}

void verify_bounds(const struct verifier *v, const struct uop *u)
{
    if (dtype_is_int(u->dtype) || u->dtype == DTYPE_BOOL)
        require(v, u, u->vmin <= u->vmax, "its bounds are empty");
    if (u->op == OP_CONST && (dtype_is_int(u->dtype) || u->dtype == DTYPE_BOOL)) {
        union scalar wrapped = scalar_cast(u->dtype, DTYPE_I64, (union scalar){.i = u->arg.i});
        require(v, u, wrapped.i == u->arg.i, "the constant is not representable in its dtype");
    }
}

/* --------------------------------------------------------------------------------------- shapes */

/* Not proved different. Symbols that the compiler cannot compare are left to the run's checks. */
static bool may_equal(const struct uop *a, const struct uop *b)
{
    return a == b || (a->vmin <= b->vmax && b->vmin <= a->vmax);
}

bool verify_is_size(const struct uop *d) { return d->dtype == DTYPE_INDEX && d->ndim == 0; }

static void check_same_dims(const struct verifier *v, const struct uop *u, const struct uop *a)
{
    require(v, u, a->ndim == u->ndim, "ranks differ");
    for (int k = 0; k < u->ndim; k++)
        require(v, u, may_equal(a->dim[k], u->dim[k]), "dimensions differ");
}

static void check_reshape(const struct verifier *v, const struct uop *u)
{
    int64_t lo[2] = {1, 1}, hi[2] = {1, 1};
    const struct uop *side[2] = {u, u->src[0]};
    for (int s = 0; s < 2; s++)
        for (int a = 0; a < side[s]->ndim; a++) {
            int64_t min = side[s]->dim[a]->vmin, max = side[s]->dim[a]->vmax;
            lo[s] = sat_mul(lo[s], min < 0 ? 0 : min);
            hi[s] = sat_mul(hi[s], max < 0 ? 0 : max);
        }
    require(v, u, lo[0] <= hi[1] && lo[1] <= hi[0], "the number of elements changes");
}

static void check_permute(const struct verifier *v, const struct uop *u)
{
    uint32_t seen = 0;
    for (int a = 0; a < u->ndim; a++)
        seen |= 1u << PERM_GET(u->arg.i, a);
    require(v, u, seen == (1u << u->ndim) - 1, "not a permutation of the axes");
    for (int a = 0; a < u->ndim; a++)
        require(v, u, u->dim[a] == u->src[0]->dim[PERM_GET(u->arg.i, a)],
                "the shape is not the permuted one");
}

static void check_window(const struct verifier *v, const struct uop *u)
{
    const struct uop *x = u->src[0];
    int axis = WINDOW_AXIS(u->arg.i);
    require(v, u, axis < x->ndim && u->ndim == x->ndim + 1, "axis or rank is wrong");
    for (int a = 0; a < x->ndim; a++)
        if (a != axis)
            require(v, u, u->dim[a + (a > axis)] == x->dim[a],
                    "an axis changed that is not windowed");
    require(v, u, u->dim[axis] == u->src[1] && u->dim[axis + 1] == u->src[2],
            "the new axes are not what was asked for");
    int64_t o = u->src[1]->vmin, k = u->src[2]->vmin;
    int64_t last = sat_add(sat_mul(o - 1, WINDOW_STRIDE(u->arg.i)),
                           sat_mul(k - 1, WINDOW_DILATION(u->arg.i)));
    require(v, u, o < 1 || k < 1 || last < x->dim[axis]->vmax, "the last window leaves the tensor");
}

static void check_concat(const struct verifier *v, const struct uop *u)
{
    int axis = (int)u->arg.i;
    int64_t lo = 0, hi = 0;
    require(v, u, u->nsrc > 0 && axis >= 0 && axis < u->ndim, "axis or number of sources is wrong");
    for (int k = 0; k < u->nsrc; k++) {
        const struct uop *x = u->src[k];
        require(v, u, x->ndim == u->ndim && x->dtype == u->dtype,
                "a source differs in rank or dtype");
        for (int a = 0; a < u->ndim; a++)
            require(v, u, a == axis || may_equal(x->dim[a], u->dim[a]),
                    "a source differs in another axis");
        lo = sat_add(lo, x->dim[axis]->vmin);
        hi = sat_add(hi, x->dim[axis]->vmax);
    }
    require(v, u, lo <= u->dim[axis]->vmax && u->dim[axis]->vmin <= hi,
            "the joined axis is not the sum of the sources'");
}

static void check_pad_shrink(const struct verifier *v, const struct uop *u)
{
    const struct uop *x = u->src[0];
    bool pad = u->op == OP_PAD;
    require(v, u, u->nsrc == 1 + pad + 2 * x->ndim && u->ndim == x->ndim,
            "sources and rank do not go together");
    if (pad)
        require(v, u, u->src[1]->ndim == 0 && u->src[1]->dtype == u->dtype,
                "the value is no scalar of this dtype");
    for (int a = 0; a < u->ndim; a++) {
        const struct uop *p = u->src[1 + pad + 2 * a], *q = u->src[2 + pad + 2 * a];
        require(v, u, verify_is_size(p) && verify_is_size(q), "an amount is no i64 scalar");
        if (pad) {
            int64_t lo = sat_add(x->dim[a]->vmin, sat_add(p->vmin, q->vmin)),
                    hi = sat_add(x->dim[a]->vmax, sat_add(p->vmax, q->vmax));
            require(v, u, p->vmax >= 0 && q->vmax >= 0, "a negative amount");
            require(v, u, u->dim[a]->vmin <= hi && lo <= u->dim[a]->vmax,
                    "the size is not that of source and amounts");
        } else {
            require(v, u, u->dim[a] == q && p->vmax >= 0,
                    "the size is not the one asked for, or begins before the source");
            require(v, u, sat_add(p->vmin, q->vmin) <= x->dim[a]->vmax || q->vmin <= 0,
                    "it ends behind the source");
        }
    }
}

static void check_move(const struct verifier *v, const struct uop *u)
{
    const struct uop *x = u->src[0];
    if (u->op == OP_IOTA) {
        require(v, u, u->dtype == DTYPE_INDEX && u->ndim == 1 && u->dim[0] == x, "not i64[n]");
        return;
    }
    require(v, u, u->dtype == x->dtype, "a movement changes the dtype");
    switch (u->op) {
    case OP_RESHAPE:
        check_reshape(v, u);
        break;
    case OP_EXPAND:
        require(v, u, u->ndim == x->ndim, "the rank changes");
        for (int a = 0; a < u->ndim; a++)
            require(v, u, x->dim[a]->vmin <= 1 || may_equal(x->dim[a], u->dim[a]),
                    "an axis that is not 1 changes");
        break;
    case OP_PERMUTE:
        check_permute(v, u);
        break;
    case OP_FLIP:
        require(v, u, u->arg.i >> u->ndim == 0, "an axis beyond the rank");
        check_same_dims(v, u, x);
        break;
    case OP_WINDOW:
        check_window(v, u);
        break;
    case OP_CONCAT:
        check_concat(v, u);
        break;
    default:
        check_pad_shrink(v, u);
    }
    if (u->op == OP_RESHAPE || u->op == OP_EXPAND)
        for (int a = 0; a < u->ndim; a++)
            require(v, u, u->dim[a] == u->src[1 + a] && verify_is_size(u->dim[a]),
                    "the shape is not the one asked for");
}

/* ----------------------------------------------------------------------------- graph: other ops */

static void check_reduce(const struct verifier *v, const struct uop *u)
{
    const struct uop *x = u->src[0];
    uint32_t axes = REDUCE_AXES(u->arg.i);
    require(v, u, u->nsrc == 1 && verify_is_reduction(REDUCE_OP(u->arg.i)),
            "not a reduction of one tensor");
    require(v, u, u->dtype == x->dtype && u->ndim == x->ndim && axes && axes >> x->ndim == 0,
            "dtype, rank or axes are wrong");
    for (int a = 0; a < u->ndim; a++)
        require(v, u, axes >> a & 1 ? uop_is_int(u->dim[a], 1) : u->dim[a] == x->dim[a],
                "the shape is not the source's with 1 at the axes");
}

static void check_indexed(const struct verifier *v, const struct uop *u)
{
    bool scatter = u->op == OP_SCATTER;
    const struct uop *x = u->src[0], *shape = scatter ? u->src[1] : u;
    require(v, u, u->nsrc == 1 + scatter + x->ndim && u->dtype == x->dtype,
            "the sources do not go with the tensor's rank or dtype");
    if (scatter) {
        require(v, u, shape->dtype == u->dtype, "values of another dtype");
        check_same_dims(v, u, x);
        require(v, u, u->arg.i == OP_CONST || verify_is_reduction((enum op)u->arg.i),
                "no such way to combine");
    }
    for (int k = 1 + scatter; k < u->nsrc; k++) {
        require(v, u, u->src[k]->dtype == DTYPE_INDEX && u->src[k]->ndim == shape->ndim,
                "a coordinate is not i64 of the right rank");
        for (int a = 0; a < shape->ndim; a++)
            require(v, u, may_equal(u->src[k]->dim[a], shape->dim[a]),
                    "a coordinate has another shape");
    }
}

static void check_loop(const struct verifier *v, const struct uop *u)
{
    const struct loop *l = u->arg.p;
    require(v, u, u->nsrc == 3 + 2 * l->ncarried + l->nscan,
            "the number of sources is not that of its values");
    require(v, u, verify_is_size(u->src[0]), "the trip count is no i64 scalar");
    require(v, u, u->src[1]->dtype == DTYPE_BOOL && u->src[1]->ndim == 0,
            "the condition is no bool scalar");
    const struct uop *next = u->src[2 + l->ncarried];
    require(v, u, next->dtype == DTYPE_BOOL && next->ndim == 0,
            "the next condition is no bool scalar");
    for (int k = 0; k < l->ncarried; k++)
        for (int side = 0; side < 2; side++) {
            const struct uop *x = u->src[side ? 3 + l->ncarried + k : 2 + k];
            require(v, u, x->dtype == l->param[k].dtype && x->ndim == l->param[k].ndim,
                    "a carried value changes its dtype or rank");
            for (int a = 0; a < x->ndim; a++)
                require(v, u, may_equal(x->dim[a], l->param[k].dim[a]),
                        "a carried value changes its shape");
        }
}

static void check_if(const struct verifier *v, const struct uop *u)
{
    int n = (int)u->arg.i;
    require(v, u, n >= 0 && u->nsrc == 1 + 2 * n,
            "the number of sources is not that of its values");
    require(v, u, u->src[0]->dtype == DTYPE_BOOL && u->src[0]->ndim == 0,
            "the condition is no bool scalar");
    for (int k = 1; k <= n; k++) {
        const struct uop *a = u->src[k], *b = u->src[n + k];
        require(v, u, a->dtype == b->dtype && a->ndim == b->ndim,
                "the branches differ in dtype or rank");
        for (int x = 0; x < a->ndim; x++)
            require(v, u, may_equal(a->dim[x], b->dim[x]), "the branches differ in shape");
    }
}

static void check_get(const struct verifier *v, const struct uop *u)
{
    const struct uop *s = u->src[0];
    int64_t k = u->arg.i;
    enum dtype d = DTYPE_VOID;
    if (s->op == OP_IF && k >= 0 && k < s->arg.i) {
        d = s->src[1 + k]->dtype;
    } else if (s->op == OP_LOOP) {
        const struct loop *l = s->arg.p;
        if (k >= 0 && k < l->ncarried)
            d = l->param[k].dtype;
        else if (k >= 0 && k < l->ncarried + l->nscan)
            d = s->src[3 + l->ncarried + k]->dtype;
    } else if (s->op == OP_HOST) {
        const struct host_call *h = s->arg.p;
        if (k >= 0 && k < h->nout)
            d = h->out[k].dtype;
    }
    require(v, u, d != DTYPE_VOID && d == u->dtype, "no such result, or of another dtype");
}

static void check_buffer(const struct verifier *v, const struct uop *u)
{
    const struct buffer *b = u->arg.p;
    size_t nbytes = dtype_nbytes(b->dtype);
    require(v, u, u->dtype == b->dtype && u->ndim == b->ndim,
            "dtype or rank is not that of its memory");
    for (int a = 0; a < u->ndim; a++)
        require(v, u, verify_is_size(u->dim[a]) && u->dim[a]->vmax >= 0,
                "a dimension is negative or no i64 scalar");
    if (b->kind != BUFFER_WEIGHT)
        return;
    for (int a = 0; a < u->ndim; a++) {
        int64_t n;
        require(v, u, uop_const_int(u->dim[a], &n), "a weight whose shape is not known");
        require(v, u, size_mul(nbytes, (size_t)n, &nbytes), "a weight too large for memory");
    }
    require(v, u, nbytes == 0 || b->data, "a weight without data");
    require(v, u, b->nbytes >= nbytes, "a weight with less data than its shape needs");
}

static void check_graph_uop(const struct verifier *v, const struct uop *u)
{
    require(v, u, op_nsrc(u->op) < 0 || op_nsrc(u->op) == u->nsrc, "wrong number of sources");
    require(v, u, u->ndim >= 0 && u->ndim <= MAX_RANK, "rank out of range");
    verify_bounds(v, u);
    if (op_is_pointwise(u->op)) {
        if (u->op == OP_STACK)
            verify_stack(v, u);
        else
            verify_elementwise(v, u);
        for (int k = 0; k < u->nsrc; k++)
            if (u->src[k]->ndim)
                check_same_dims(v, u, u->src[k]);
        return;
    }
    if (op_class(u->op) == CLASS_MOVE) {
        check_move(v, u);
        return;
    }
    switch (u->op) {
    case OP_CONST: case OP_VAR: case OP_PARAM: case OP_HOST:
        break;
    case OP_BUFFER:
        check_buffer(v, u);
        break;
    case OP_REDUCE:
        check_reduce(v, u);
        break;
    case OP_INDEX: case OP_SCATTER:
        check_indexed(v, u);
        break;
    case OP_CONTIGUOUS:
        require(v, u, u->dtype == u->src[0]->dtype, "the dtype changes");
        check_same_dims(v, u, u->src[0]);
        break;
    case OP_LOOP:
        check_loop(v, u);
        break;
    case OP_IF:
        check_if(v, u);
        break;
    case OP_GET:
        check_get(v, u);
        break;
    default:
        verify_violation(v, u, "a kernel op in a graph");
    }
}

/* What depends on the counter or a PARAM of a loop is used inside it and by its LOOP alone. */
static void check_loop_scope(const struct verifier *v, struct uop *const *order, int n,
                             const struct uop *loop, const struct graph *g)
{
    const struct loop *l = loop->arg.p;
    uint32_t inside = ++v->t->mark;
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        bool dep = (u->op == OP_PARAM && ((const struct loop_param *)u->arg.p)->loop == l) ||
                   (u->op == OP_VAR && u->arg.p == l->counter);
        for (int k = 0; k < u->nsrc && u != loop; k++)
            dep |= u->src[k]->mark == inside;
        if (dep)
            u->mark = inside;
    }
    for (int k = 0; k < 2 + l->ncarried; k++)
        require(v, loop, loop->src[k]->mark != inside,
                "what it starts with depends on its own iteration");
    for (int i = 0; i < g->noutput; i++)
        require(v, g->output[i].value, g->output[i].value->mark != inside,
                "an output depends on the inside of a loop");
}

static void check_param_bound(const struct verifier *v, struct uop *const *order, int n,
                              const struct uop *param)
{
    const struct loop *l = ((const struct loop_param *)param->arg.p)->loop;
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOOP && order[i]->arg.p == l)
            return;
    verify_violation(v, param, "its loop is not in the graph");
}

bool graph_verify(struct tgc *t, const struct graph *g, const char *after_pass)
{
    enum { SCOPE_STEPS = 1 << 26 };
    struct verifier v = {.t = t, .after = after_pass};
    int n, nroot, nloop = 0, nparam = 0;
    struct uop **root = graph_roots(t, g, &nroot);
    for (int i = 0; i < g->noutput; i++)
        if (!root[i])
            TGC_BUG(t, "after %s: output %d '%s' has no value", after_pass, i,
                    g->output[i].name ? g->output[i].name : "");
    for (int i = 0; i < g->nhost; i++)
        require(&v, g->host[i], g->host[i]->op == OP_HOST, "no host call among the graph's");
    struct uop **order = uop_toposort(t, root, nroot, &n);
    for (int i = 0; i < n; i++) {
        check_graph_uop(&v, order[i]);
        nloop += order[i]->op == OP_LOOP;
        nparam += order[i]->op == OP_PARAM;
    }
    for (int i = 0; i < n && (int64_t)(nloop + nparam) * n < SCOPE_STEPS; i++) {
        if (order[i]->op == OP_LOOP)
            check_loop_scope(&v, order, n, order[i], g);
        if (order[i]->op == OP_PARAM)
            check_param_bound(&v, order, n, order[i]);
    }
    return true;
}

/* ------------------------------------------------------------------------------ linear programs */

/* A loop or guard, opened at u[at]; 0 is the whole program. */
struct region { const struct uop *opener; int parent; bool open; int at; };
/* The region in which a uop was last computed. */
struct defined { int region; bool unfinished; };
struct linear_verifier {
    struct verifier v;
    struct uop *const *u; int n, at;       /* the program, and where the check is */
    struct region *region; int nregion; size_t cap_region;
    int current;
    struct defined *def; int ndef; size_t cap_def;
    struct uop_map where;        /* uop -> index in def[] + 1 */
    struct update { const struct uop *acc; int region; } *update; int nupdate; size_t cap_update;
    const struct buffer **stored; int nstored; size_t cap_stored;
};

static struct defined *find_def(struct linear_verifier *l, const struct uop *u)
{
    uintptr_t i = (uintptr_t)map_get(&l->where, u);
    return i ? &l->def[i - 1] : NULL;
}

static void define(struct linear_verifier *l, const struct uop *u, bool unfinished)
{
    struct defined *d = find_def(l, u);
    if (!d) {
        SCRATCH_PUSH(l->v.t, l->def, l->ndef, l->cap_def, ((struct defined){0, false}));
        map_set(&l->where, u, (void *)(uintptr_t)l->ndef);
        d = &l->def[l->ndef - 1];
    } else if (u->op != OP_ACC && l->region[d->region].open) {
        bool of_acc = u->op == OP_CAST && u->src[0]->op == OP_ACC;       /* it may have changed */
        bool again = u->op == OP_LOAD && uop_is_tile(u);     /* for it there are few registers */
        if ((op_is_pointwise(u->op) && !of_acc) || (u->op == OP_LOAD && !again) ||
            u->op == OP_SPLAT || u->op == OP_RAMP || u->op == OP_FOLD || u->op == OP_INTRINSIC ||
            u->op == OP_NEAREST || u->op == OP_LANE ||
            u->op == OP_LANES || u->op == OP_NARROW || u->op == OP_GATHER)
            verify_violation(&l->v, u, "is computed again where it is known");
        d->unfinished = unfinished;
        return;
    }
    *d = (struct defined){l->current, unfinished};
}

static bool has_lane(const struct uop *acc, const struct uop *range)
{
    for (int k = 1; k < acc->nsrc; k++)
        if (acc->src[k] == range)
            return true;
    return false;
}

/* Whether an open region, opened after acc's declaration, holds one of its updates. */
static bool is_unfinished(const struct linear_verifier *l, const struct uop *acc, int declared_in)
{
    for (int r = l->current; r != declared_in && r > 0; r = l->region[r].parent)
        for (int k = 0; k < l->nupdate && !has_lane(acc, l->region[r].opener); k++)
            if (l->update[k].acc == acc && l->update[k].region == r)
                return true;
    return false;
}

/* Checks that `by` may read u here; returns whether u is the partial sum of an unfinished
 * accumulator. */
static bool check_read(struct linear_verifier *l, const struct uop *by, const struct uop *u)
{
    if (op_class(u->op) == CLASS_LEAF)
        return false;
    const struct defined *d = find_def(l, u);
    require(&l->v, by, d != NULL, "reads what is not computed before it");
    require(&l->v, by, l->region[d->region].open,
            "reads what was computed inside a loop that is closed");
    if (u->op == OP_RANGE)
        return false;
    for (int k = 1; k < u->nsrc && u->op == OP_ACC; k++)
        require(&l->v, by,
                (by->op == OP_MATRIX && range_is(u->src[k], AXIS_ELEMENT)) ||
                    by->op == OP_MATRIX_BEGIN || by->op == OP_MATRIX_WAIT ||
                    (find_def(l, u->src[k]) && l->region[find_def(l, u->src[k])->region].open),
                "uses an accumulator outside its lanes");
    return u->op == OP_ACC ? is_unfinished(l, u, d->region) : d->unfinished;
}

static void open_region(struct linear_verifier *l, const struct uop *u)
{
    SCRATCH_PUSH(l->v.t, l->region, l->nregion, l->cap_region,
                 ((struct region){u, l->current, true, l->at}));
    l->current = l->nregion - 1;
}

static void close_region(struct linear_verifier *l, const struct uop *u)
{
    require(&l->v, u, l->current > 0 && l->region[l->current].opener == u->src[0],
            "closes what is not the innermost open one");
    l->region[l->current].open = false;
    l->current = l->region[l->current].parent;
}

/* Which regions hold updates of which accumulators; regions are numbered as in the check. */
static void find_updates(struct linear_verifier *l, struct uop *const *u, int n)
{
    for (int i = 0; i < n; i++) {
        if (u[i]->op == OP_RANGE || u[i]->op == OP_GUARD)
            open_region(l, u[i]);
        else if (u[i]->op == OP_END || u[i]->op == OP_ENDGUARD)
            close_region(l, u[i]);
        else if (u[i]->op == OP_ASSIGN || u[i]->op == OP_SHUFFLE || u[i]->op == OP_MATRIX)
            for (int r = l->current; r > 0; r = l->region[r].parent) {
                bool known = false;
                for (int k = 0; k < l->nupdate && !known; k++)
                    known = l->update[k].acc == u[i]->src[0] && l->update[k].region == r;
                if (!known)
                    SCRATCH_PUSH(l->v.t, l->update, l->nupdate, l->cap_update,
                                 ((struct update){u[i]->src[0], r}));
            }
    }
    if (l->current)
        verify_violation(&l->v, l->region[l->current].opener, "is not closed");
    l->nregion = 1;
}

/* An offset or a size: i64, or i32 after the last pass. */
static bool is_place(const struct uop *u)
{
    return (u->dtype == DTYPE_INDEX || u->dtype == DTYPE_I32) && u->ndim == 0 && u->lanes == 1;
}

static void check_load(struct linear_verifier *l, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    require(&l->v, u, b && (u->nsrc == 2 || u->nsrc == 4), "wrong sources");
    require(&l->v, u, is_place(u->src[1]) && u->dtype == b->dtype,
            "offset or result of another dtype");
    if (u->nsrc == 4)
        require(&l->v, u, u->src[2]->dtype == DTYPE_BOOL && u->src[3]->dtype == u->dtype,
                "condition or alternative of another dtype");
    bool stored = b->kind != BUFFER_SCRATCH;
    for (int k = 0; k < l->nstored && !stored; k++)
        stored = l->stored[k] == b;
    require(&l->v, u, stored, "reads scratch that nothing was stored to");
}

static void check_gather(struct linear_verifier *l, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    require(&l->v, u, b && (u->nsrc == 3 || u->nsrc == 5), "wrong sources");
    require(&l->v, u, is_place(u->src[1]) && u->src[2]->dtype == DTYPE_I32 && u->lanes > 1 &&
                          u->dtype == b->dtype,
            "offset, places or result of another dtype");
    if (u->nsrc == 5)
        require(&l->v, u, u->src[3]->dtype == DTYPE_BOOL && u->src[3]->lanes == u->lanes &&
                              u->src[4]->dtype == u->dtype && u->src[4]->lanes == u->lanes,
                "condition or alternative of another dtype, or of other lanes");
}

static void note_stored(struct linear_verifier *l, const struct buffer *b)
{
    for (int k = 0; k < l->nstored; k++)
        if (l->stored[k] == b)
            return;
    SCRATCH_PUSH(l->v.t, l->stored, l->nstored, l->cap_stored, b);
}

static void check_store(struct linear_verifier *l, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    require(&l->v, u, b && u->nsrc == 3, "wrong sources");
    require(&l->v, u, is_place(u->src[1]) && u->src[2]->dtype == b->dtype,
            "offset or value of another dtype");
    require(&l->v, u, b->kind != BUFFER_WEIGHT && b->kind != BUFFER_INPUT,
            "writes to an input or a weight");
    note_stored(l, b);
}

/* Neighbours of global memory to neighbours of local memory, as many bytes as a device copies at once. */
static void check_copy(struct linear_verifier *l, const struct uop *u)
{
    require(&l->v, u, u->nsrc == 4 || u->nsrc == 5, "wrong sources");
    const struct buffer *to = uop_buffer_of(u->src[0]), *from = uop_buffer_of(u->src[2]);
    require(&l->v, u, to && from && dtype_bits(to->dtype) == dtype_bits(from->dtype) && dtype_bits(to->dtype) == 8 * (int)dtype_nbytes(to->dtype),
            "no copy of elements as they are");
    size_t nbytes = (size_t)COPY_LANES(u->arg.i) * dtype_nbytes(to->dtype);
    require(&l->v, u, buffer_space(to) == SPACE_LOCAL && from->kind != BUFFER_SCRATCH, "no copy from global to local memory");
    require(&l->v, u, nbytes >= COPY_NBYTES_LEAST && nbytes <= COPY_NBYTES_MOST && !(nbytes & (nbytes - 1)),
            "copies other than 4, 8 or 16 bytes");
    require(&l->v, u, is_place(u->src[1]) && is_place(u->src[3]) && (u->nsrc == 4 || u->src[4]->dtype == DTYPE_BOOL),
            "offset or condition of another dtype");
    note_stored(l, to);
}

static void check_acc_init(struct linear_verifier *l, const struct uop *u)
{
    require(&l->v, u, u->nsrc >= 1 && u->src[0]->dtype == u->dtype,
            "its initial value has another dtype");
    for (int k = 1; k < u->nsrc; k++)
        require(&l->v, u, u->src[k]->op == OP_RANGE && u->src[k]->src[0]->op == OP_CONST,
                "a lane is no range of known size");
    const struct defined *d = find_def(l, u);
    require(&l->v, u, !d || !l->region[d->region].open || d->region == l->current,
            "declared again inside its own scope");
}

static void check_assign(struct linear_verifier *l, const struct uop *u)
{
    const struct uop *acc = u->src[0];
    require(&l->v, u, acc->op == OP_ACC && u->src[1]->dtype == acc->dtype,
            "no accumulator, or of another dtype");
    for (int r = l->current; r > 0 && r != find_def(l, acc)->region; r = l->region[r].parent) {
        const struct uop *opener = l->region[r].opener;
        bool lane = range_is_lane(opener);
        require(&l->v, u, !lane || has_lane(acc, opener), "lanes share one accumulator");
    }
}

/* A table: constant data of the dtype that is read. */
static void check_table(struct linear_verifier *l, const struct uop *u, int k, int64_t nelem)
{
    const struct buffer *b = uop_buffer_of(u->src[k]);
    require(&l->v, u, b && b->kind == BUFFER_WEIGHT && b->dtype == u->dtype &&
                          b->nbytes == (size_t)nelem * dtype_nbytes(b->dtype),
            "no table of as many elements as its row says");
}

/* Operands and result are as the row says. */
static void check_intrinsic(struct linear_verifier *l, const struct uop *u)
{
    require(&l->v, u, INTRINSIC_ROW(u->arg.i) < INTRINSIC_COUNT, "no row of intrinsics.def");
    int n = intrinsic_nsrc(INTRINSIC_ROW(u->arg.i));
    require(&l->v, u, u->nsrc == n, "not as many operands as its row has");
    for (int k = 0; k <= n; k++) {
        struct intrinsic_shape shape = intrinsic_shape(u->arg.i, k);
        const struct uop *x = k < n ? u->src[k] : u;
        enum dtype want = shape.dtype == DTYPE_VOID ? u->dtype : shape.dtype;
        require(&l->v, u, !shape.byte || dtype_is_byte(want), "no bytes");
        if (shape.memory) {
            check_table(l, u, k, shape.lanes);
            continue;
        }
        require(&l->v, u, x->dtype == want, "an operand or a result of another dtype");
        require(&l->v, u, x->lanes == shape.lanes && shape.lanes > 1,
                "an operand or a result of another shape");
    }
}

/* No more than a tile's register holds, and rows that follow each other. */
static void check_tile(struct linear_verifier *l, const struct uop *u)
{
    int64_t bits = u->arg.i;
    int size = (int)dtype_nbytes(uop_buffer_of(u->src[0])->dtype);
    if (uop_buffer_of(u->src[0])->panel) {
        require(&l->v, u, TILE_ROWS(bits) >= 1 && TILE_STRIDE(bits) * size == PANEL_ROW_NBYTES && u->op == OP_LOAD && u->nsrc == 2,
                "no tile of rows of a panel");
        return;
    }
    /* of local memory: a matrix of matrix.def, in no register as such */
    int most = buffer_space(uop_buffer_of(u->src[0])) == SPACE_LOCAL ? 2 * TILE_ROWS_MAX : TILE_ROWS_MAX;
    require(&l->v, u, TILE_ROWS(bits) >= 1 && TILE_ROWS(bits) <= most &&
                          TILE_COLUMNS(bits) * size >= DOT_BYTES &&
                          TILE_COLUMNS(bits) * size <= TILE_ROW_NBYTES && TILE_STRIDE(bits) > 0,
            "a tile of more than its register holds, or without rows");
    require(&l->v, u, u->nsrc == (u->op == OP_STORE ? 3 : 2), "a tile under a condition");
}

/* All operands have as many lanes as the result; only a condition may be a scalar. */
static void check_lanes(struct linear_verifier *l, const struct uop *u)
{
    if (u->op == OP_SPLAT)
        require(&l->v, u,
                u->src[0]->lanes == 1 ? u->arg.i > 1
                                      : u->src[0]->lanes == DOT_BYTES && dtype_is_byte(u->dtype) &&
                                            u->arg.i % DOT_BYTES == 0,
                "neither a scalar nor a group of bytes to a vector");
    if (u->op == OP_RAMP)
        require(&l->v, u, u->src[0]->lanes == 1 && u->dtype == DTYPE_F32 && u->arg.i > 1,
                "no scalar to a vector of floats");
    if (u->op == OP_FOLD)
        require(&l->v, u, u->src[0]->lanes > 1, "no vector to a scalar");
    if (u->op == OP_LANE)
        require(&l->v, u, u->arg.i >= 0 && u->arg.i < u->src[0]->lanes, "the vector has no such lane");
    for (int k = u->op == OP_WHERE && u->src[0]->lanes == 1; k < u->nsrc; k++)
        if (op_is_elementwise(u->op) || u->op == OP_ASSIGN)
            require(&l->v, u, u->src[k]->lanes == u->lanes, "operands of different lanes");
    if (u->op == OP_LOAD || u->op == OP_STORE)
        require(&l->v, u, u->src[1]->lanes == 1, "the offset is a vector");
    if (u->op == OP_STORE)
        require(&l->v, u, u->src[2]->lanes == access_lanes(u->arg.i),
                "the value has other lanes");
    if ((u->op == OP_LOAD || u->op == OP_STORE) && TILE_IS(u->arg.i))
        check_tile(l, u);
    else if (u->op == OP_LOAD || u->op == OP_STORE)
        require(&l->v, u, VECTOR_PART(u->arg.i) < VECTOR_LANES(u->arg.i) || !u->arg.i,
                "more in memory than there are lanes");
    if ((u->op == OP_LOAD || u->op == OP_STORE) && !TILE_IS(u->arg.i) && VECTOR_IS_ALIGNED(u->arg.i))
        require(&l->v, u, VECTOR_PART(u->arg.i) == 0 && VECTOR_STRIDE(u->arg.i) == 1,
                "only whole vectors of neighbours are aligned");
    if ((u->op == OP_LOAD || u->op == OP_STORE) && !TILE_IS(u->arg.i) && u->arg.i >> 48 == 1)
        require(&l->v, u, VECTOR_IS_IMAGE(u->arg.i) && u->op == OP_LOAD && u->src[0]->op == OP_BUFFER &&
                              VECTOR_PART(u->arg.i) == 0 && VECTOR_STRIDE(u->arg.i) == 1 &&
                              !VECTOR_IS_GROUPS(u->arg.i),
                "a pixel is four neighbours of a buffer");
    if (u->op == OP_LOAD && u->nsrc == 4)
        require(&l->v, u, u->src[2]->lanes == 1 && u->src[3]->lanes == u->lanes,
                "the alternative has other lanes");
}

/* Whether all threads of a block run a loop's iterations equally often: each of them one, or as many
 * as no thread's number and no data says. */
static bool is_uniform(const struct linear_verifier *l, const struct uop *range)
{
    struct mem_mark mark = scratch_mark(l->v.t);
    struct uop *size = range->src[0];
    int n;
    bool uniform = true;
    struct uop **order = uop_toposort(l->v.t, &size, 1, &n);
    for (int i = 0; i < n && !range_is_item(range); i++)
        uniform &= order[i]->op != OP_LOAD && !range_is_item(order[i]) && !range_is_of_block(order[i]);
    scratch_release(l->v.t, mark);
    return uniform;
}

/* All threads of a block come here. */
static void check_meeting(struct linear_verifier *l, const struct uop *u)
{
    for (int r = l->current; r > 0; r = l->region[r].parent)
        require(&l->v, u,
                l->region[r].opener->op == OP_RANGE && !range_is_of_block(l->region[r].opener) &&
                    is_uniform(l, l->region[r].opener),
                "not all threads of a block come here equally often");
}

/* Whether the threads of a wave load the same tile: its offset depends on no thread within it. */
static bool is_of_wave(const struct linear_verifier *l, const struct uop *load, int lanes)
{
    struct mem_mark mark = scratch_mark(l->v.t);
    struct uop *offset = load->src[1];
    int n;
    bool same = true;
    struct uop **order = uop_toposort(l->v.t, &offset, 1, &n);
    for (int r = l->current; r > 0; r = l->region[r].parent) {
        const struct uop *opener = l->region[r].opener;
        int64_t inner;
        if (opener->op != OP_RANGE || !range_is_item(opener))
            continue;
        (void)linear_inner_workers(l->u, l->n, l->region[r].at, &inner);
        for (int i = 0; i < n && inner % lanes; i++)
            same &= order[i] != opener;
    }
    scratch_release(l->v.t, mark);
    return same;
}

/* Sums with the elements of the row, by two tiles of its sizes and dtypes. */
static void check_matrix(struct linear_verifier *l, const struct uop *u)
{
    const struct uop *acc = u->src[0];
    int64_t elements = 1;
    require(&l->v, u, u->nsrc == 3 && MATRIX_ROW(u->arg.i) < MATRIX_COUNT, "no row of matrix.def");
    const struct matrix_row *row = matrix_row(MATRIX_ROW(u->arg.i));
    for (int k = acc->nsrc - 1; acc->op == OP_ACC && k > 0 && range_is(acc->src[k], AXIS_ELEMENT); k--)
        elements *= acc->src[k]->src[0]->vmax;
    require(&l->v, u, acc->op == OP_ACC && acc->lanes == 1 && acc->dtype == row->dtype[MATRIX_SUM] &&
                          elements == matrix_elements(row, MATRIX_SUM),
            "the sums are not those of the row");
    for (int f = 0; f < 2; f++) {
        const struct uop *x = u->src[1 + f];
        int side = row->size[f ? MATRIX_N : MATRIX_M], k = row->size[MATRIX_K];
        bool along = MATRIX_ALONG_K(u->arg.i, f);
        require(&l->v, u, x->op == OP_LOAD && TILE_IS(x->arg.i) &&
                              (uop_buffer_of(x->src[0])->panel > 0) == matrix_is_local(row, f ? MATRIX_B : MATRIX_A) &&
                              (x->dtype == row->dtype[f] || (x->dtype == DTYPE_U16 && dtype_bits(row->dtype[f]) == 16)) &&
                              TILE_ROWS(x->arg.i) == (along ? side : k) && TILE_COLUMNS(x->arg.i) == (along ? k : side),
                "a factor is no tile of the row's size and dtype");
        require(&l->v, u, is_of_wave(l, x, row->lanes), "a wave's threads load different tiles");
    }
}

/* Barriers that were begun, and places among them. */
static void check_barriers(struct linear_verifier *l, const struct uop *u, int memory)
{
    const struct buffer *b = uop_buffer_of(u->src[memory]);
    bool begun = u->op == OP_MBAR_INIT;
    require(&l->v, u, b && b->dtype == DTYPE_U64 && buffer_space(b) == SPACE_LOCAL, "barriers that are no u64 of local memory");
    for (int k = 0; k < l->nstored && !begun; k++)
        begun = l->stored[k] == b;
    require(&l->v, u, begun, "of barriers that have not begun");
    note_stored(l, b);
    for (int k = memory + 1; k < (u->op == OP_BULK ? memory + 2 : u->nsrc); k++)
        require(&l->v, u, is_place(u->src[k]), "a number that is no integer");
}

/* What the engine copies, and that one thread tells it to. */
static void check_bulk(struct linear_verifier *l, const struct uop *u)
{
    const char *what = bulk_check(u);
    bool of_one = false;
    if (what)
        verify_violation(&l->v, u, what);
    check_barriers(l, u, BULK_BARRIERS);
    require(&l->v, u, is_place(u->src[BULK_OFFSET]), "an offset that is no integer");
    for (int a = 0; a < bulk_rank(u); a++)
        require(&l->v, u, is_place(bulk_axis(u, a).coordinate), "a coordinate that is no integer");
    for (int r = l->current; r > 0; r = l->region[r].parent)
        of_one |= l->region[r].opener->op == OP_GUARD;
    require(&l->v, u, of_one, "each thread copies the same box");
    note_stored(l, uop_buffer_of(u->src[BULK_TO]));
}

static void check_linear_uop(struct linear_verifier *l, const struct uop *u)
{
    bool unfinished = false;
    require(&l->v, u, op_nsrc(u->op) < 0 || op_nsrc(u->op) == u->nsrc, "wrong number of sources");
    if (u->op == OP_END || u->op == OP_ENDGUARD) {
        close_region(l, u);
        return;
    }
    /* an accumulator's lanes, as a store's ranges, are named, not read: they open later, and
     * repeatedly */
    for (int k = 0; k < (u->op == OP_ACC ? 1 : u->nsrc); k++)
        unfinished |= !op_takes_memory(u->op, k) && check_read(l, u, u->src[k]);
    verify_bounds(&l->v, u);
    check_lanes(l, u);
    switch (u->op) {
    case OP_CONST: case OP_VAR: case OP_BUFFER:
        return;
    case OP_SPLAT: case OP_RAMP: case OP_FOLD: case OP_LANE:
        require(&l->v, u, u->dtype == u->src[0]->dtype, "the dtype changes");
        break;
    case OP_LANES:
        require(&l->v, u, u->dtype == DTYPE_I32 && u->arg.i > 1, "no vector of i32");
        break;
    case OP_NARROW:
        require(&l->v, u, u->dtype == DTYPE_I32 && u->arg.i > 0 && u->lanes > 1 &&
                              (u->src[0]->dtype == DTYPE_F32 || u->src[0]->dtype == DTYPE_INDEX),
                "no vector to i32");
        break;
    case OP_GATHER:
        check_gather(l, u);
        break;
    case OP_NEAREST:
        require(&l->v, u, u->src[0]->dtype == DTYPE_F32 && dtype_is_byte(u->dtype) && u->lanes > 1,
                "no vector of floats to bytes");
        break;
    case OP_INTRINSIC:
        check_intrinsic(l, u);
        break;
    case OP_RANGE:
        require(&l->v, u, is_place(u->src[0]) && u->dtype == u->src[0]->dtype && !unfinished,
                "the size is no integer of its dtype, or not yet known");
        require(&l->v, u, !find_def(l, u) || !l->region[find_def(l, u)->region].open,
                "opened inside itself");
        open_region(l, u);
        break;
    case OP_GUARD:
        require(&l->v, u, u->src[0]->dtype == DTYPE_BOOL && !unfinished,
                "the condition is no bool, or not yet known");
        open_region(l, u);
        break;
    case OP_SHUFFLE:
        require(&l->v, u, u->src[0]->op == OP_ACC && u->src[0]->nsrc == 1 && u->src[0]->dtype == DTYPE_F32 &&
                              u->src[0]->lanes == 1, "exchanges what is no sum of f32");
        check_meeting(l, u);
        break;
    case OP_MATRIX:
        check_matrix(l, u);
        check_meeting(l, u);
        break;
    case OP_MATRIX_BEGIN: case OP_MATRIX_WAIT:
        for (int k = 0; k < u->nsrc; k++)
            require(&l->v, u, u->src[k]->op == OP_ACC, "of what are no sums");
        check_meeting(l, u);
        return;
    case OP_BARRIER: case OP_PUBLISH: case OP_MATRIX_COMMIT:
        check_meeting(l, u);
        return;
    case OP_MBAR_INIT: case OP_MBAR_ARRIVE: case OP_MBAR_WAIT:
        check_barriers(l, u, 0);
        return;
    case OP_BULK:
        check_bulk(l, u);
        return;
    case OP_ACC:
        require(&l->v, u, !unfinished, "starts from a sum that is still under way");
        check_acc_init(l, u);
        break;
    case OP_ASSIGN:
        check_assign(l, u);
        break;
    case OP_LOAD:
        check_load(l, u);
        break;
    case OP_COPY:
        require(&l->v, u, !unfinished, "copies where a sum says that is still under way");
        check_copy(l, u);
        return;
    case OP_COMMIT: case OP_WAIT:
        return;
    case OP_PREFETCH:
        require(&l->v, u, uop_buffer_of(u->src[0]) && is_place(u->src[1]), "wrong sources");
        return;
    case OP_STORE:
        require(&l->v, u, !unfinished, "stores a sum that is still under way");
        check_store(l, u);
        break;
    case OP_STACK:
        verify_stack(&l->v, u);
        require(&l->v, u, range_is_lane(u->src[0]), "chooses by what is no lane");
        break;
    default:
        require(&l->v, u, op_is_elementwise(u->op) && u->ndim == 0,
                "a graph op in a linear program");
        require(&l->v, u, (u->arg.i & ~(int64_t)ARG_PLAIN) == 0, "an argument that it has not");
        verify_elementwise(&l->v, u);
    }
    define(l, u, unfinished);
}

static bool verify_linear(struct verifier v, struct uop *const *u, int n)
{
    struct tgc *t = v.t;
    struct mem_mark mark = scratch_mark(t);
    struct linear_verifier l = {.v = v, .u = u, .n = n, .where = {.t = t, .scratch = true}};
    open_region(&l, NULL);
    find_updates(&l, u, n);
    for (l.at = 0; l.at < n; l.at++)
        check_linear_uop(&l, u[l.at]);
    scratch_release(t, mark);
    return true;
}

bool linear_verify(struct tgc *t, struct uop *const *u, int n, const char *after_pass)
{
    return verify_linear((struct verifier){.t = t, .after = after_pass}, u, n);
}

bool linear_check(struct tgc *t, struct uop *const *u, int n, struct violation *found)
{
    jmp_buf back;
    struct mem_mark mark = scratch_mark(t);
    if (setjmp(back)) {
        scratch_release(t, mark);
        return false;
    }
    return verify_linear((struct verifier){.t = t, .found = found, .back = &back}, u, n);
}
