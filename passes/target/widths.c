/* widths.c - gives every integer of a linear program its width, and marks every operation that may
 * be written plainly. It is the last pass: index arithmetic is i64 in all others.
 *
 *      for r0 < 24                             for r0 < i32(24)
 *      %0 : i64 = mul(r0, 6)                   %0 : i32 = mul(r0, i32(6)) {plain=1}
 *      %1 : i64 = add(%0, 'N')                 %1 : i64 = cast(%0)
 *                                              %2 : i64 = add(%1, 'N') {plain=1}
 *
 * An i64 becomes an i32 if its operands are and its exact result, by its bounds, fits. What is read
 * from memory, summed or stored as an i64 stays one: a cast converts at the border. `plain`: the
 * language's operator suffices, although it may be undefined where the IR is not. There is no
 * overflow, no division by 0, no lossy cast; a maximum's first operand is no NaN, so it is the
 * instruction a > b ? a : b. */
#include "passes/passes.h"
#include "passes/target/legal.h"

struct widths {
    struct tgc *t;
    bool in_kernel;              /* else symbols are i64, and there are no statements */
    struct uop **out; int n; size_t cap;
    struct uop_map now;          /* uop before -> its present form */
    struct scopes scopes;        /* values cast to i64 */
    struct scopes computed;      /* values computed in scope */
};

/* Appends u; what was derived from its earlier value is forgotten. */
static void push(struct widths *w, struct uop *u)
{
    map_set(&w->scopes.known, u, NULL);
    VEC_PUSH(w->t, w->out, w->n, w->cap, u);
}

static bool fits_i32(const struct uop *u) { return u->vmin >= INT32_MIN && u->vmax <= INT32_MAX; }

static struct uop *retyped_range(struct widths *w, struct uop *r);

/* The i64 scalar u as an i32; NULL: it is wider. */
static struct uop *as_i32(struct widths *w, struct uop *u)
{
    if (u->dtype != DTYPE_I64 || u->lanes > 1)
        return NULL;
    if (u->op == OP_CONST)
        return fits_i32(u) ? uop_consti(w->t, DTYPE_I32, u->arg.i) : NULL;
    if (u->op == OP_VAR)
        return w->in_kernel && fits_i32(u) ? uop_intern(w->t, OP_VAR, DTYPE_I32, NULL, 0, u->arg)
                                           : NULL;
    struct uop *by = u->op == OP_RANGE ? retyped_range(w, u) : map_get(&w->now, u);
    return by && by->dtype == DTYPE_I32 ? by : NULL;
}

/* u in its original dtype: a cast if it is narrower now. */
static struct uop *as_before(struct widths *w, struct uop *u)
{
    struct uop *by = as_i32(w, u);
    if (by && u->op == OP_CONST)
        return u;
    if (!by) {
        by = map_get(&w->now, u);
        return by ? by : u;
    }
    struct uop *cast = uop_intern(w->t, OP_CAST, DTYPE_I64, &by, 1, (union arg){.i = ARG_PLAIN});
    if (w->in_kernel && !map_get(&w->scopes.known, by)) {
        scopes_learn(&w->scopes, by);
        VEC_PUSH(w->t, w->out, w->n, w->cap, cast);
    }
    return cast;
}

/* u in either width. */
static struct uop *as_place(struct widths *w, struct uop *u)
{
    struct uop *by = u->op == OP_CONST ? u : as_i32(w, u);
    return by ? by : as_before(w, u);
}

/* An accumulator's lanes are named before they are opened. */
static struct uop *retyped_range(struct widths *w, struct uop *r)
{
    struct uop *by = map_get(&w->now, r), *size = by ? NULL : as_i32(w, r->src[0]);
    if (by)
        return by;
    by = r;
    if (size || (size = map_get(&w->now, r->src[0]))) {
        by = uop_intern(w->t, OP_RANGE, size->dtype, &size, 1, r->arg);
        if (uop_get_axes(w->t, r))
            uop_name_axes(w->t, by, uop_get_axes(w->t, r));
    }
    map_set(&w->now, r, by);
    return by;
}

static bool is_comparison(enum op op) { return op == OP_LT || op == OP_EQ || op == OP_NE; }

/* Whether the operation on i64 can be done in 32 bits. */
static bool is_narrow(struct widths *w, struct uop *u)
{
    for (int k = u->op == OP_WHERE; k < u->nsrc; k++)
        if (!as_i32(w, u->src[k]))
            return false;
    return is_comparison(u->op) ||
           (u->op != OP_POW && legal_is_plain(u, 32) && legal_fits(u, INT32_MIN, INT32_MAX));
}

static int64_t arg_of(const struct uop *u, int bits)
{
    return legal_is_conditional(u) && legal_is_plain(u, bits) ? ARG_PLAIN : 0;
}

static struct uop *rebuilt(struct widths *w, struct uop *u, enum dtype d, struct uop **src,
                           int64_t arg)
{
    struct uop *r = uop_intern(w->t, u->op, d, src, u->nsrc, (union arg){.i = arg});
    uop_set_origin(w->t, r, u);
    return r;
}

/* A cast to i64 of a narrower integer becomes that integer as an i32; a cast to its operand's
 * present dtype becomes the operand. */
static struct uop *cast_of(struct widths *w, struct uop *u)
{
    struct uop *x = u->src[0], *src = as_place(w, x);
    bool narrow = u->dtype == DTYPE_I64 && u->lanes == 1 && x->dtype != DTYPE_I64 &&
                  (dtype_is_int(x->dtype) || x->dtype == DTYPE_BOOL) && fits_i32(x) &&
                  x->dtype != DTYPE_U32 && x->dtype != DTYPE_U64;
    enum dtype d = narrow ? DTYPE_I32 : u->dtype;
    bool is_same = src->dtype == d && (narrow || x->dtype == DTYPE_I64);
    return is_same ? src : rebuilt(w, u, d, &src, arg_of(u, 64));
}

static struct uop *elementwise(struct widths *w, struct uop *u)
{
    struct uop *src[3];
    bool wide = u->src[u->nsrc - 1]->dtype == DTYPE_I64 && u->lanes == 1;
    bool narrow = wide && u->op != OP_BITCAST && is_narrow(w, u);
    if (u->op == OP_CAST)
        return cast_of(w, u);
    for (int k = 0; k < u->nsrc; k++) {
        struct uop *by = narrow ? as_i32(w, u->src[k]) : NULL;
        src[k] = by ? by : as_before(w, u->src[k]);
    }
    if (legal_is_extreme(u) && !legal_is_number(u->src[0]) && legal_is_number(u->src[1])) {
        struct uop *first = src[0];
        src[0] = src[1];
        src[1] = first;
    }
    return rebuilt(w, u, narrow && u->dtype == DTYPE_I64 ? DTYPE_I32 : u->dtype, src,
                   arg_of(u, wide && !narrow ? 64 : 32));
}

/* Statements, and what is read from memory. */
static struct uop *other(struct widths *w, struct uop *u)
{
    bool at_place = u->op == OP_LOAD || u->op == OP_STORE || u->op == OP_PREFETCH ||
                    u->op == OP_GATHER || u->op == OP_COPY || u->op == OP_PUT || u->op == OP_TICKET,
         places = u->op == OP_MBAR_ARRIVE || u->op == OP_MBAR_RELEASE || u->op == OP_MBAR_WAIT ||
                  u->op == OP_BULK || u->op == OP_BULK_STORE;
    struct uop **src = scratch_array(w->t, (size_t)u->nsrc + 1, sizeof *src);
    if (u->op == OP_RANGE)
        return retyped_range(w, u);
    if (u->op == OP_STAGE || u->op == OP_SINK)
        return u;
    for (int k = 0; k < u->nsrc; k++)
        src[k] =
            u->src[k]->op == OP_RANGE && (u->op == OP_END || u->op == OP_ACC || u->op == OP_TICKET)
                ? retyped_range(w, u->src[k])
            : (at_place && (k == 1 || ((u->op == OP_COPY || u->op == OP_PUT) && k == 3))) || places
                ? as_place(w, u->src[k])
                : as_before(w, u->src[k]);
    struct uop *r = uop_intern(w->t, u->op, u->dtype, src, u->nsrc, u->arg);
    uop_set_origin(w->t, r, u);
    return r;
}

static struct uop *with_widths(struct widths *w, struct uop *u)
{
    struct uop *r = op_class(u->op) == CLASS_LEAF ? u
                    : op_is_elementwise(u->op)    ? elementwise(w, u)
                                                  : other(w, u);
    if (r != u && op_class(u->op) != CLASS_LEAF)
        map_set(&w->now, u, r);
    return r;
}

/* Whether r is computed already. Operations on an i64 and on the same value as an i32 may both have
 * become one on i32. An accumulator's value may have changed since. */
static bool is_computed(struct widths *w, struct uop *r)
{
    if (!op_is_pointwise(r->op) || (r->op == OP_CAST && r->src[0]->op == OP_ACC))
        return false;
    bool known = map_get(&w->computed.known, r) != NULL;
    if (!known)
        scopes_learn(&w->computed, r);
    return known;
}

static void choose_widths(struct tgc *t, struct uop ***linear, int *n)
{
    struct mem_mark mark = scratch_mark(t);
    struct widths w = {.t = t, .in_kernel = true};
    w.now = w.scopes.known = w.computed.known = (struct uop_map){.t = t, .scratch = true};
    for (int i = 0; i < *n; i++) {
        struct uop *u = (*linear)[i], *r = with_widths(&w, u);
        bool is_there = u->op == OP_CAST &&
                        (r->op != OP_CAST || r == u->src[0] || r == map_get(&w.now, u->src[0]));
        if (!is_there && !is_computed(&w, r))
            push(&w, r);
        if (r->op == OP_RANGE || r->op == OP_GUARD) {
            scopes_enter(&w.scopes);
            scopes_enter(&w.computed);
        } else if (r->op == OP_END || r->op == OP_ENDGUARD) {
            scopes_leave(&w.scopes);
            scopes_leave(&w.computed);
        }
    }
    *linear = w.out;
    *n = w.n;
    scratch_release(t, mark);
}

bool pass_widths(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    choose_widths(t, &k->linear, &k->nlinear);
    for (int i = 0; i < k->nvariant; i++)
        choose_widths(t, &k->variant[i].linear, &k->variant[i].nlinear);
    return true;
}

struct uop *legal_scalar(struct tgc *t, struct uop *root)
{
    int n;
    struct mem_mark mark = scratch_mark(t);
    struct widths w = {.t = t, .now = {.t = t, .scratch = true}};
    root = legal_formats(t, root);
    struct uop **order = uop_toposort(t, &root, 1, &n);
    for (int i = 0; i < n; i++)
        (void)with_widths(&w, order[i]);
    struct uop *r = as_place(&w, root);
    scratch_release(t, mark);
    return r;
}
