/* prefetch.c - prefetches weights that come from memory.
 *
 *      for panel                            a panel: the weights of some columns, one stream
 *        for tile < 4
 *          for k
 *            wv = load w[panel, k]          the first tile waits for memory, the others do not
 *            prefetch w[panel + 1, k]       so they fetch the next panel meanwhile
 *            sum += x[tile, k] * wv
 *
 * Weights are packed in the order in which they are read, and placed in the order of the kernels:
 * the next kernel's weights follow a kernel's last panel. Where each weight is read once, the
 * hardware prefetcher does most of the work, but stops at pages. Where all of them may stay in a
 * cache between two runs, prefetching costs more than it gains (a fifth, for 4 MB in a cache of 32
 * MB). */
#include "passes/analysis/stationary.h"
#include "passes/vector/expand.h"

enum { LOOPS_MAX = 64, REREADS_MAX = 32 };

struct prefetching {
    struct tgc *t;
    bool far;                    /* weights that are read once come from memory, not from a cache */
    struct uop *loop[LOOPS_MAX]; int nloop;
    int64_t seen;                /* bytes of weights loaded in the innermost loop so far */
};

static bool is_large_weight(const struct machine *m, const struct uop *load)
{
    const struct buffer *b = load->src[0]->op == OP_BUFFER ? uop_buffer_of(load->src[0]) : NULL;
    return b && buffer_is_stationary(b) &&
           buffer_most_nbytes(b) >= cost_fit(m, FIT_WEIGHT_LEAST);
}

static bool weights_are_far(const struct tgc *t, const struct schedule *s)
{
    double n = 0;
    for (int i = 0; i < s->nweight; i++)
        n += buffer_most_nbytes(s->weight[i]);
    return n > cost_fit(machine_of(t), FIT_FAR);
}

/* How far ahead to prefetch a weight: the contiguous bytes that the loops read before they read
 * them again; 0: they are reused so often that nothing is gained. */
static int64_t distance(const struct prefetching *p, const struct uop *load)
{
    int64_t run = 0, reads = 1, stride, size;
    int64_t nbytes = (int64_t)dtype_nbytes(load->dtype);
    const struct machine *m = machine_of(p->t);
    for (int i = p->nloop - 1; i >= 0; i--) {
        if (!index_stride(p->t, load->src[1], p->loop[i], &stride) ||
            !uop_const_int(p->loop[i]->src[0], &size) || stride < 0)
            return 0;
        if (stride == 0 && run == 0)
            return 0;
        if (stride > 0 && reads > 1)
            break;
        if (stride == 0)
            reads = sat_mul(reads, size);
        else if (run == 0 || stride == run)
            run = sat_mul(stride, size);
        else
            return 0;
    }
    if (reads == 1)
        return p->far ? (int64_t)cost_fit(m, FIT_AHEAD) / nbytes : 0;
    return reads > REREADS_MAX || (double)(run * nbytes) > cost_fit(m, FIT_OPERAND) ? 0 : run;
}

/* Whether prefetch_panel.c has taken care of it. */
static bool is_prefetched(struct uop *const *linear, int n, const struct uop *load)
{
    for (int i = 0; i < n; i++)
        if (linear[i]->op == OP_PREFETCH && linear[i]->src[0] == load->src[0])
            return true;
    return false;
}

static void note_loops(struct prefetching *p, struct uop *u)
{
    if (u->op == OP_RANGE || u->op == OP_END)
        p->seen = 0;
    if (u->op == OP_RANGE && p->nloop < LOOPS_MAX)
        p->loop[p->nloop++] = u;
    else if (u->op == OP_END && p->nloop > 0 && p->loop[p->nloop - 1] == u->src[0])
        p->nloop--;
}

static void prefetch_weights(struct tgc *t, bool far, struct uop ***linear, int *nlinear)
{
    struct mem_mark mark = scratch_mark(t);
    struct prefetching p = {.t = t, .far = far};
    const struct machine *m = machine_of(t);
    struct expander *e = scratch_array(t, 1, sizeof *e);
    *e = (struct expander){.t = t, .in = *linear, .nin = *nlinear};
    e->scopes.known = (struct uop_map){.t = t, .scratch = true};
    for (int i = 0; i < *nlinear; i++) {
        struct uop *u = (*linear)[i];
        note_loops(&p, u);
        expand_copy(e, u);
        if (u->op != OP_LOAD || u->lanes == 1 || u->nsrc != 2 || p.nloop == 0 ||
            !is_large_weight(m, u) || is_prefetched(*linear, *nlinear, u))
            continue;
        int64_t before = p.seen, ahead = distance(&p, u);
        p.seen += (int64_t)dtype_nbytes(u->dtype) * u->lanes;
        if (!ahead || before % m->line)                  /* each cache line once */
            continue;
        struct uop *src[2] = {u->src[1], uop_int(t, ahead)};
        src[1] = uop_intern(t, OP_ADD, DTYPE_INDEX, src, 2, (union arg){0});
        src[0] = u->src[0];
        expand_need(e, src[1]);
        expand_push(e, uop_intern(t, OP_PREFETCH, DTYPE_VOID, src, 2, (union arg){0}));
    }
    if (e->nout > e->nin) {
        *linear = mem_copy(t, e->out, (size_t)e->nout * sizeof *e->out);
        *nlinear = e->nout;
    }
    scratch_release(t, mark);
}

bool pass_prefetch(struct tgc *t, struct schedule *s, struct kernel *k)
{
    bool far = weights_are_far(t, s);
    for (int i = 0; i < k->nvariant; i++)
        prefetch_weights(t, far, &k->variant[i].linear, &k->variant[i].nlinear);
    return true;
}
