/* unroll_sums.c - unrolls a device's sums of contiguous terms by four.
 *
 *      for k < 32                           for q < 8
 *          sum += x[k] * w[k*64 + j]            sum += x[4*q]     * w[q*256 + j]
 *                                               sum += x[4*q + 1] * w[q*256 + 64 + j]   ...
 *
 * The terms are added in the same order. The four loads of x are contiguous and aligned, so they
 * become one transaction (aligned.c), or a pixel of an image (images.c). A loop is unrolled if one
 * of its loads gains, if it does nothing but add to its sums, and if four copies are not too much
 * code. */
#include "passes/vector/expand.h"

enum { ITERATIONS = 4, BODY_MOST = 96 };

struct unrolling {
    struct expander *e;
    struct uop_map now;          /* a uop of `in` -> what it is in `out`, where they differ */
    bool changed;
};

static bool reads_acc(const struct uop *u)
{
    for (int k = 0; k < u->nsrc; k++)
        if (u->src[k]->op == OP_ACC)
            return true;
    return false;
}

/* Whether the load is contiguous along r, from a multiple of four on. */
static bool gains(struct tgc *t, const struct uop *load, struct uop *r)
{
    int64_t stride;
    return load->op == OP_LOAD && load->lanes == 1 && load->src[0]->op == OP_BUFFER &&
           dtype_is_float(load->dtype) && index_stride(t, load->src[1], r, &stride) &&
           stride == 1 && index_divisor(t, sym_sub(t, load->src[1], r)) % ITERATIONS == 0 &&
           buffer_is_aligned(t, uop_buffer_of(load->src[0]), ITERATIONS);
}

/* Whether the loop at `at`, which ends at `end`, is such a sum. */
static bool may_unroll(struct unrolling *v, int at, int end)
{
    struct uop *r = v->e->in[at];
    int64_t n = range_fixed_size(r);
    bool any = false;
    if (n <= ITERATIONS || n % ITERATIONS || end - at > BODY_MOST ||
        RANGE_WORKER(r->arg.i) != WORKER_EACH || range_is_lane(r))
        return false;
    for (int i = at + 1; i < end; i++) {
        const struct uop *u = v->e->in[i];
        bool assigned =
            i + 1 < end && v->e->in[i + 1]->op == OP_ASSIGN && v->e->in[i + 1]->src[1] == u;
        if (u->op != OP_ASSIGN && (!(op_is_elementwise(u->op) || u->op == OP_LOAD ||
                                     u->op == OP_SPLAT || op_class(u->op) == CLASS_LEAF) ||
                                   (reads_acc(u) && !assigned)))
            return false;
        any |= gains(v->e->t, u, r);
    }
    return any;
}

static struct uop *rewritten(struct unrolling *v, struct uop *u, const struct uop_map *more)
{
    struct tgc *t = v->e->t;
    struct uop **src = scratch_array(t, (size_t)u->nsrc + 1, sizeof *src);
    bool changed = false;
    for (int k = 0; k < u->nsrc; k++) {
        struct uop *now = more ? map_get(more, u->src[k]) : NULL;
        now = now ? now : map_get(&v->now, u->src[k]);
        src[k] = now ? now : u->src[k];
        changed |= now != NULL;
    }
    if (!changed)
        return u;
    struct uop *now = u->op == OP_LOAD || reads_acc(u)
                          ? uop_intern(t, u->op, u->dtype, src, u->nsrc, u->arg)
                          : uop_replace_src(t, u, src);
    uop_set_origin(t, now, u);
    if (u->op == OP_RANGE && uop_get_axes(t, u))
        uop_name_axes(t, now, uop_get_axes(t, u));
    return now;
}

/* Writes one of the four iterations, with `by` for r. */
static void write_iteration(struct unrolling *v, int at, int end, struct uop *by)
{
    struct expander *e = v->e;
    struct uop_map now = {.t = e->t, .scratch = true};
    map_set(&now, e->in[at], by);
    for (int i = at + 1; i < end; i++) {
        struct uop *u = e->in[i], *x = rewritten(v, u, &now);
        if (x != u)
            map_set(&now, u, x);
        if (u->op != OP_ASSIGN && !reads_acc(u)) {
            expand_need(e, x);
            continue;
        }
        for (int k = 0; k < x->nsrc; k++)
            if (x->src[k]->op != OP_ACC && !reads_acc(x->src[k]))
                expand_need(e, x->src[k]);
        expand_copy(e, x);
    }
}

static void write_loop(struct unrolling *v, int at, int end)
{
    struct expander *e = v->e;
    struct tgc *t = e->t;
    struct uop *was = e->in[at], *iterations = uop_int(t, range_fixed_size(was) / ITERATIONS);
    struct uop *r = uop_axis(t, iterations, RANGE_AXIS(was->arg.i), WORKER_EACH);
    if (uop_get_axes(t, was))
        uop_name_axes(t, r, uop_get_axes(t, was));
    expand_copy(e, r);
    for (int k = 0; k < ITERATIONS; k++)
        write_iteration(v, at, end, sym_addi(t, sym_muli(t, r, ITERATIONS), k));
    expand_copy(e, uop_intern(t, OP_END, DTYPE_VOID, &r, 1, (union arg){0}));
    v->changed = true;
}

static void unroll_program(struct tgc *t, struct variant *p)
{
    struct mem_mark mark = scratch_mark(t);
    struct expander *e = scratch_array(t, 1, sizeof *e);
    *e = (struct expander){.t = t, .in = p->linear, .nin = p->nlinear};
    struct unrolling v = {.e = e};
    e->scopes.known = v.now = (struct uop_map){.t = t, .scratch = true};
    for (int i = 0; i < e->nin; i++) {
        int end = e->in[i]->op == OP_RANGE ? expand_find_end(e, i) : i;
        if (end > i && may_unroll(&v, i, end)) {
            write_loop(&v, i, end);
            i = end;
            continue;
        }
        struct uop *now = rewritten(&v, e->in[i], NULL);
        if (now != e->in[i])
            map_set(&v.now, e->in[i], now);
        expand_copy(e, now);
    }
    if (v.changed) {
        p->linear = mem_copy(t, e->out, (size_t)e->nout * sizeof *e->out);
        p->nlinear = e->nout;
    }
    scratch_release(t, mark);
}

bool pass_unroll_sums(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->nvariant && t->image; i++)
        unroll_program(t, &k->variant[i]);
    return true;
}
