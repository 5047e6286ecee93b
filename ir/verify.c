/* verify.c - checks the invariants of graphs, and what all dialects of the IR share. A violation is
 * a bug of the pass that ran last.
 *
 * Graph: every op belongs to the dialect and has its number of sources, dtypes that go together,
 * and a shape that follows from its sources; dimensions that are symbols are held to what can be
 * decided about them. What a LOOP carries is seen only inside it.
 */
#include "ir/verify.h"
#include "ir/device_ops.h"

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

void verify_ticket(const struct verifier *v, const struct uop *u)
{
    const struct buffer *counters = uop_buffer_of(u->src[TICKET_COUNTERS]),
                        *memory = uop_buffer_of(u->src[TICKET_MEMORY]);
    require(v, u,
            u->dtype == DTYPE_BOOL && counters && counters->scratch.counts &&
                counters->dtype == DTYPE_U32,
            "its counters are no u32 that count");
    require(v, u, memory && memory->scratch.space == SPACE_GLOBAL && !memory->scratch.counts,
            "what it hands over is no memory that all blocks share");
    require(v, u, u->src[TICKET_OF]->op == OP_RANGE && u->src[TICKET_OF]->src[0]->op == OP_CONST,
            "of no range of known size");
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

/* Not proved different. Symbols that the compiler cannot compare are checked at run time. */
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
    require(v, u, nbytes == 0 || b->weight.data, "a weight without data");
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
    case OP_CONTIGUOUS: case OP_STOP: case OP_AFTER:
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
