/* half_storage.c - keeps intermediate values and weights as halves in memory (--half-storage).
 *
 *      y[i] = x[i] * w[i]          ->      y[i] = (f16)((f32)x[i] * (f32)w[i])
 *
 * A value is rounded where it is stored, half to even. Sums, and what a kernel keeps in scratch,
 * stay f32. Half as many bytes are moved. Numbers beyond 65504 become infinite, below 6e-8 they
 * become 0. Inputs, outputs and states keep their types, as does what the host accesses: operands
 * of host functions, conditions, numbers of iterations. A sum of many elements that is not yet
 * divided by their number (a stored mean or variance) keeps its floats: it may exceed the largest
 * half although the mean does not. */
#include "passes/kernel/opts_work.h"
#include "passes/passes.h"

struct halves {
    struct tgc *t;
    bool *is_of_host;            /* by buffer id, of roots */
    bool *is_sum;                /* likewise */
    int nbuffer;
    struct buffer **half;        /* by buffer id: the buffer of halves, which for
                                  * intermediates is the same */
};

static void note_host(struct halves *h, struct uop *u)
{
    int n;
    struct uop **order = u ? uop_toposort(h->t, &u, 1, &n) : NULL;
    for (int i = 0; u && i < n; i++)
        if (order[i]->op == OP_BUFFER)
            h->is_of_host[buffer_root(order[i]->arg.p)->id] = true;
}

static void note_steps(struct halves *h, const struct schedule *s)
{
    for (int i = 0; i < s->nstep; i++) {
        const struct step *step = &s->step[i];
        for (int k = 0; k < step->narg; k++)
            h->is_of_host[buffer_root(step->arg[k])->id] = true;
        note_host(h, step->cond);
        note_host(h, step->trip);
    }
}

/* A sum of values, or of their squares, but not of products of two tensors, as a layer's. */
static bool is_bare_sum(const struct uop *v)
{
    if (v->op != OP_REDUCE || REDUCE_OP(v->arg.i) != OP_ADD)
        return false;
    const struct uop *x = v->src[0];
    return x->op != OP_MUL || x->src[0] == x->src[1];
}

static void note_sums(struct halves *h, const struct kernel *k)
{
    int n;
    struct uop *const *order = uop_toposort(h->t, &k->ast, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_STORE && is_bare_sum(order[i]->src[2]))
            h->is_sum[buffer_root(uop_buffer_of(order[i]->src[0]))->id] = true;
}

static bool may_be_half(const struct halves *h, const struct buffer *b)
{
    const struct buffer *root = buffer_root(b);
    return b->dtype == DTYPE_F32 && !root->port.state && !root->kept &&
           (root->dtype == DTYPE_F32 || h->half[root->id]) &&
           (root->kind == BUFFER_TEMP || root->kind == BUFFER_WEIGHT) && !h->is_of_host[root->id] &&
           !h->is_sum[root->id];
}

/* The weight as halves; the graph keeps it as it is. */
static struct buffer *rounded_weight(struct halves *h, const struct buffer *b)
{
    size_t n = b->nbytes / sizeof(float), size = dtype_nbytes(DTYPE_F16);
    const unsigned char *from = b->weight.data;
    unsigned char *to = mem_array(h->t, n + 1, size);
    struct buffer *made = mem_copy(h->t, b, sizeof *b);
    bool is_beyond = false;
    for (size_t i = 0; i < n; i++) {
        union scalar v = scalar_load(DTYPE_F32, from + i * sizeof(float));
        scalar_store(DTYPE_F16, to + i * size, v);
        is_beyond |=
            !__builtin_isinf(v.f) && __builtin_isinf(scalar_load(DTYPE_F16, to + i * size).f);
    }
    if (is_beyond)
        diag_warn(h->t, NULL,
                  "--half-storage: weight '%.100s' has an element beyond 65504, the largest half: "
                  "it becomes infinite",
                  b->name ? b->name : "of the model");
    made->id = h->t->next_buffer++;
    made->dtype = DTYPE_F16;
    made->weight.data = to;
    made->nbytes = n * size;
    return made;
}

/* The buffer, and what it is a part of, if nothing asks for floats. */
static void make_half(struct halves *h, struct buffer *b)
{
    if (!may_be_half(h, b))
        return;
    for (; b && !h->half[b->id]; b = b->base) {
        h->half[b->id] = b->kind == BUFFER_WEIGHT ? rounded_weight(h, b) : b;
        h->half[b->id]->dtype = DTYPE_F16;
    }
}

/* Whether a half holds the constant. */
static bool is_exact(const struct uop *u)
{
    return u->op == OP_CONST &&
           scalar_cast(DTYPE_F16, DTYPE_F32, (union scalar){.f = u->arg.f}).f == u->arg.f;
}

static struct uop *half_load(struct halves *h, const struct uop *u, struct buffer *b)
{
    struct tgc *t = h->t;
    struct uop *src[4] = {uop_buffer(t, b), u->src[1]};
    bool fits = u->nsrc < 4 || is_exact(u->src[3]);
    if (u->nsrc > 2)
        src[2] = u->src[2];
    if (u->nsrc > 3)
        src[3] = fits ? uop_constf(t, DTYPE_F16, u->src[3]->arg.f) : uop_constf(t, DTYPE_F16, 0);
    struct uop *v = uop_cast(t, DTYPE_F32, uop_intern(t, OP_LOAD, DTYPE_F16, src, u->nsrc, u->arg));
    return fits ? v : uop_where(t, u->src[2], v, u->src[3]);
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    struct halves *h = ctx;
    const struct buffer *of =
        u->op == OP_LOAD || u->op == OP_STORE ? uop_buffer_of(u->src[0]) : NULL;
    struct buffer *b = (struct buffer *)(uintptr_t)of;
    struct uop *src[RANGES_MAX + 8];
    if (!b || u->src[0]->op != OP_BUFFER || b->id >= h->nbuffer || !h->half[b->id])
        return NULL;
    if (u->op == OP_LOAD)        /* halves: a cast back of what was rewritten has
                                  * become that load itself */
        return u->dtype == DTYPE_F32 ? half_load(h, u, h->half[b->id]) : NULL;
    for (int i = 0; i < u->nsrc; i++)
        src[i] = u->src[i];
    src[0] = uop_buffer(t, b);
    src[2] = uop_cast(t, DTYPE_F16, u->src[2]);
    return uop_intern(t, OP_STORE, u->dtype, src, u->nsrc, u->arg);
}

bool pass_half_storage(struct tgc *t, struct schedule *s)
{
    struct halves h = {.t = t, .nbuffer = t->next_buffer};
    if (!t->half_storage)
        return true;
    h.is_of_host = mem_array(t, (size_t)t->next_buffer + 1, sizeof *h.is_of_host);
    h.half = mem_array(t, (size_t)t->next_buffer + 1, sizeof *h.half);
    h.is_sum = mem_array(t, (size_t)t->next_buffer + 1, sizeof *h.is_sum);
    note_steps(&h, s);
    for (int i = 0; i < s->nkernel; i++)
        note_sums(&h, s->kernel[i]);
    for (int i = 0; i < s->nkernel; i++)
        for (int k = 0; k < s->kernel[i]->nbuffer; k++)
            make_half(&h, s->kernel[i]->buffer[k]);
    for (int i = 0; i < s->nkernel; i++) {
        struct kernel *k = s->kernel[i];
        uop_rewrite(t, &k->ast, 1, rewrite, &h);
        for (int j = 0; j < k->nbuffer; j++)
            if (h.half[k->buffer[j]->id])
                k->buffer[j] = h.half[k->buffer[j]->id];
    }
    schedule_collect_buffers(t, s);
    return true;
}
