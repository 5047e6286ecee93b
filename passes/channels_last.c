/* channels_last.c - on devices, copies an input of the model, with its border of zeros, before
 * windows or sums over channels read it, if that is faster. A kernel's result may have any order of
 * axes (plan/layout.c), an input has the model's.
 *
 *      x[n, c, y, x]                                        pixels are contiguous
 *      y[n, oc, oy, ox] = sum over ic, ky, kx
 *                         pad(x)[n, ic, oy + ky, ox + kx] * w
 *  ->  t[n, y, x, c]    = pad(x)[n, c, y, x]                a kernel of its own
 *      y[n, oc, oy, ox] = sum over ic, ky, kx               channels are contiguous, and
 *                         t[n, oy + ky, ox + kx, ic] * w    no condition is left
 *
 * A window's pixels begin anywhere. In the model's order a device copies them one by one, in the
 * other order by 16 bytes, or as boxes. The device's cost model compares both forms by the kernels
 * as they would be compiled: the sum with its elementwise epilogue is a graph of its own, planned
 * and scheduled both ways. So the layout is the one that plan/layout.c gives the copy, and nothing
 * about the kernels' schedules is guessed. No trial is made if two launches and the copy's bytes
 * alone would take longer.
 *
 * Few channels are joined with the pixels, if that is faster (graph/conv/join_channels.c).
 *
 * The order of additions may change, as by any other layout; the values that are added do not. */
#include "passes/analysis/contraction.h"
#include "passes/analysis/kernel_cost.h"
#include "passes/analysis/value.h"
#include "passes/graph/conv/join_channels.h"
#include "passes/passes.h"
#include "passes/target/cost.h"

#include <math.h>

/* How a sum reads the input: the operand, and the path down to it; for products the whole
 * contraction. */
struct reader {
    struct uop *sum, *operand;
    struct path path;
    bool is_product;
    struct contraction product;
};
struct changing {
    struct graph *g;
    struct uop **order; int n;
    struct uop_map user;         /* a uop -> the only one that has it as a source, or itself if
                                  * there are several */
    struct uop_map is_root;
    struct uop_map changed;       /* a sum -> its form that reads the copy */
    bool any;
};

/* Moves down to an input. Zeros of a border are stored with it. */
enum { MOVES_READ = MOVES_VIEW | MOVES_ZEROS | MOVES_CAST };

static bool is_input(const struct uop *v)
{
    return v->op == OP_BUFFER && ((const struct buffer *)v->arg.p)->kind == BUFFER_INPUT &&
           dtype_is_float(v->dtype);
}

/* Whether u sums over axes of an input other than its innermost, or over a window along that one: a
 * thread's terms are then not contiguous. In products the other factor must be a weight. */
static bool find_reader(struct tgc *t, struct uop *u, struct reader *r)
{
    const struct contraction *c = &r->product;
    bool product = r->is_product =
        u->op == OP_REDUCE && contraction_find(t, u, MOVES_READ, &r->product);
    r->sum = u;
    if (u->op != OP_REDUCE || (product && (c->factor[c->streamed].standing != STREAMED ||
                                           c->factor[c->stationary].standing == STREAMED)))
        return false;
    r->operand = product ? c->factor[c->streamed].value : u->src[0];
    r->path = path_down(r->operand, MOVES_READ);
    const struct uop *x = r->path.base;
    bool windows = false;
    for (int i = 0; i < r->path.n; i++)
        windows |= r->path.move[i]->op == OP_WINDOW;
    if (!is_input(x) || x->ndim < 3 || (!windows && !product))
        return false;
    for (int a = 1; a < x->ndim; a++)
        if (x->dim[a]->op != OP_CONST)
            return false;
    int last = x->ndim - 1;
    return x->dim[last]->arg.i > 1 &&
           !(product && (c->factor[c->streamed].axes[last] & ~c->reduced) == 0);
}

/* The move, or cast, of x. */
static struct uop *move_up(struct tgc *t, struct uop *m, struct uop *x)
{
    struct path one = {.move = {m}, .n = 1};
    return m->op == OP_CAST ? uop_cast(t, m->dtype, x) : path_up(t, &one, x);
}

static bool widens(const struct uop *m)
{
    return m->op == OP_CAST && dtype_nbytes(m->dtype) > dtype_nbytes(m->src[0]->dtype);
}

/* The sum that reads a copy: the input with its border, rounded to the dtype that is multiplied. A
 * value that is only widened stays narrow in memory. */
static struct uop *channels_last(struct tgc *t, const struct reader *r)
{
    const struct path *p = &r->path;
    struct uop *x = p->base, *wide = NULL;
    bool padded = false;
    int i = p->n - 1;
    for (; i >= 0; i--) {
        struct uop *m = p->move[i];
        if ((m->op != OP_PAD || padded) && (m->op != OP_CAST || wide))
            break;
        padded |= m->op == OP_PAD;
        if (widens(m))
            wide = m;
        else
            x = move_up(t, m, x);
    }
    x = uop_new(t, OP_CONTIGUOUS, x->dtype, &x, 1, (union arg){0});
    x = wide ? move_up(t, wide, x) : x;
    for (; i >= 0; i--)
        x = move_up(t, p->move[i], x);
    return uop_substitute(t, r->sum, r->operand, x);
}

/* Whether u consists of inputs, weights and known values alone, so that a kernel gets it for
 * free. */
static bool is_given(struct tgc *t, struct uop *u)
{
    struct mem_mark mark = scratch_mark(t);
    int n;
    bool given = true;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    for (int i = 0; i < n; i++)
        given &= order[i]->op != OP_REDUCE && order[i]->op != OP_CONTIGUOUS &&
                 order[i]->op != OP_GET && order[i]->op != OP_PARAM;
    scratch_release(t, mark);
    return given;
}

/* The sum with its kernel's epilogue: its only user, if that is elementwise, and so on. */
static struct uop *with_epilogue(struct tgc *t, const struct changing *s, struct uop *sum)
{
    struct uop *v = sum, *user;
    while (!map_get(&s->is_root, v) && (user = map_get(&s->user, v)) && user != v &&
           (op_is_pointwise(user->op) || move_is(user, MOVES_SPREAD | MOVES_CAST))) {
        for (int k = 0; k < user->nsrc; k++)
            if (user->src[k] != v && !is_given(t, user->src[k]))
                return v;
        v = user;
    }
    return v;
}

/* The reader of v's buffer, whose axes may have any order: then v is stored in that order, without
 * a copy. */
static struct uop *reader_of(struct tgc *t, struct uop *v)
{
    return tensor_unary(t, OP_NEG, uop_new(t, OP_CONTIGUOUS, v->dtype, &v, 1, (union arg){0}));
}

/* ns of the value's kernels. free: it is no result of the model, so its axes may have any order;
 * the copy to what then is a result is not counted. */
static double value_ns(struct tgc *t, const struct graph *g, struct uop *v, bool is_free)
{
    struct uop *value = is_free ? reader_of(t, v) : v;
    struct graph_output output = {.name = "y", .value = value};
    struct graph alone = {.name = "trial",
                          .ninput = g->ninput,
                          .input = g->input,
                          .noutput = 1,
                          .output = &output,
                          .nvar = g->nvar,
                          .var = g->var};
    struct passing p = {.graph = &alone,
                        .isa = 1u << isa_portable() | 1u << t->device->isa,
                        .threads = t->threads,
                        .on_device = true,
                        .facts = 1u << FACT_TENSORS | 1u << FACT_CONSTANTS};
    struct tuning *tuning = t->tuning;
    int debug = t->debug;
    double ns = 0;
    t->tuning = NULL;
    t->debug = 0;
    bool done = pass_fold_constants(t, &alone) && passes_run_rows(t, &p, "nodes", "join_stores");
    t->tuning = tuning;
    t->debug = debug;
    for (int i = 0; done && i < p.schedule->nstep; i++) {
        const struct kernel *k = p.schedule->step[i].kernel;
        ns += !k || (is_free && k->buffer[0]->kind == BUFFER_OUTPUT) ? 0 : device_use(t, k).ns;
    }
    return done ? ns : HUGE_VAL;
}

static double nbytes_of(const struct uop *v)
{
    return value_nelem(v) * (double)dtype_nbytes(v->dtype);
}

/* The least that the copy and what reads it take. */
static double least_ns(const struct tgc *t, const struct reader *r, const struct uop *v)
{
    return 2 * RATIO_GRID_LAUNCH + (3 * nbytes_of(r->path.base) + nbytes_of(v)) / t->device->gbytes;
}

static void weigh(struct tgc *t, struct changing *s, const struct reader *r)
{
    struct uop *v = with_epilogue(t, s, r->sum);
    bool is_free = !map_get(&s->is_root, v);
    double ns = value_ns(t, s->g, v, is_free), least = least_ns(t, r, v);
    for (int k = 0; k < 2 && ns > least; k++) {
        struct uop *by = k == 0          ? channels_last(t, r)
                         : r->is_product ? channels_join(t, &r->product)
                                         : NULL;
        double other = by ? value_ns(t, s->g, uop_substitute(t, v, r->sum, by), is_free) : ns;
        if (other < ns) {
            map_set(&s->changed, r->sum, by);
            s->any = true;
            ns = other;
        }
    }
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    (void)t;
    return map_get(&((struct changing *)ctx)->changed, u);
}

bool pass_channels_last(struct tgc *t, struct graph *g)
{
    if (!device_has_grid(t) || t->image)
        return true;
    int nroot;
    struct uop **root = graph_roots(t, g, &nroot);
    struct changing s = {.g = g, .user = {.t = t}, .is_root = {.t = t}, .changed = {.t = t}};
    s.order = uop_toposort(t, root, nroot, &s.n);
    for (int i = 0; i < nroot; i++)
        map_set(&s.is_root, root[i], root[i]);
    for (int i = 0; i < s.n; i++)
        for (int k = 0; k < s.order[i]->nsrc; k++) {
            struct uop *of = s.order[i]->src[k];
            map_set(&s.user, of,
                    map_get(&s.user, of) && map_get(&s.user, of) != s.order[i] ? of : s.order[i]);
        }
    struct reader r;
    for (int i = 0; i < s.n; i++)
        if (find_reader(t, s.order[i], &r)) {
            int before = t->nerror;
            weigh(t, &s, &r);
            if (t->nerror != before)
                return false;
        }
    if (s.any)
        graph_rewrite(t, g, rewrite, &s);
    return !s.any || pass_fold_constants(t, g);      /* weights in another order */
}
