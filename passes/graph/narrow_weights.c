/* narrow_weights.c - stores weights in a smaller type than the model's, if the user asks for it.
 *
 * If every weight is used once or twice a run (a language model's next token), a run is bound by
 * the bandwidth of reading weights. Stored in 2 bytes or 1 they are read in half or a quarter of
 * the time; sums stay in f32.
 *
 *      bf16     w = (f32)h                         h: w rounded to 8 bits of mantissa, half to even
 *      int8     w = (f32)q * scale                 q: -127 .. 127; a scale for each output channel
 *
 *      sum over k  x[k] * w[k, n]     =     (sum over k  x[k] * (f32)q[k, n]) * scale[n]
 *
 * It is a rewrite of the graph. It narrows the large weights that sums of products read, through
 * any chain of movements; the channels are the weight's axes that no such sum reduces. The CAST
 * and the scale move after the movements and after INDEX (an embedding), so that no wide copy
 * exists in memory: kernels load the small elements. The errors of the weights are noted in
 * graph.narrowing, for the header and tgc info. Winograd's transforms run later and do not
 * recognize such a layer. */
#include "passes/analysis/contraction.h"
#include "passes/passes.h"

#include <math.h>
#include <string.h>

enum { NARROW_NELEM = 4096, INT8_MOST = 127 };

/* A weight; and the replacement of a uop that is computed from it by movements and INDEX alone. */
struct weight { struct uop *buffer; uint32_t kept; bool refused; };
struct pair { struct uop *value, *scale; };           /* scale NULL: none */

struct narrower {
    struct tgc *t;
    struct graph *graph;
    enum dtype dtype;
    struct uop **order; int n;
    struct weight *weight; int nweight; size_t cap_weight;
    struct uop_map of;           /* BUFFER -> index in weight[] + 1 */
    struct uop_map pair;         /* uop -> struct pair */
    struct uop_map by;           /* uop -> its replacement; none: itself */
    double error2, weight2, worst;
};

/* ------------------------------------------------------------------------------- what to narrow */

/* The weight that v is a view of, or NULL. */
static struct uop *base_of(struct uop *v)
{
    v = value_behind(v, MOVES_VIEW);
    const struct buffer *b = known_buffer(v);
    bool large = b && b->dtype == DTYPE_F32 && b->nbytes >= NARROW_NELEM * sizeof(float);
    for (int a = 0; large && a < v->ndim; a++)
        large = v->dim[a]->op == OP_CONST;
    return large ? v : NULL;
}

static bool is_contraction(const struct uop *u)
{
    return u->dtype == DTYPE_F32 && summed_product(u);
}

/* The axes of the factor's base that the sum does not reduce. */
static uint32_t kept_axes(const struct contraction *c, const struct factor *f)
{
    uint32_t kept = 0;
    for (int a = 0; a < f->base->ndim; a++)
        kept |= f->axes[a] & c->reduced ? 0 : 1u << a;
    return kept;
}

static struct weight *weight_of(const struct narrower *m, const struct uop *buffer)
{
    uintptr_t at = (uintptr_t)map_get(&m->of, buffer);
    return at ? &m->weight[at - 1] : NULL;
}

static void find_weight(struct narrower *m, struct uop *u, int k)
{
    struct contraction c;
    struct uop *base = base_of(u->src[0]->src[k]);
    if (!base || base_of(u->src[0]->src[1 - k]))
        return;
    struct mem_mark mark = scratch_mark(m->t);
    bool found = contraction_find(m->t, u, MOVES_VIEW, &c);
    uint32_t kept = found ? kept_axes(&c, &c.factor[k]) : 0;
    scratch_release(m->t, mark);
    if (!found)
        return;
    struct weight *w = weight_of(m, base);
    if (w) {
        w->kept &= kept;
        return;
    }
    VEC_PUSH(m->t, m->weight, m->nweight, m->cap_weight, ((struct weight){base, kept, false}));
    map_set(&m->of, base, (void *)(uintptr_t)m->nweight);
}

/* Whether u can read a narrowed weight without a wide copy in memory. */
static bool reads_elements(const struct uop *u, int k)
{
    return move_is(u, MOVES_VIEW) || op_is_elementwise(u->op) || u->op == OP_REDUCE ||
           (u->op == OP_INDEX && k == 0);
}

static void refuse(struct narrower *m, struct uop *value)
{
    struct uop *base = base_of(value);
    struct weight *w = base ? weight_of(m, base) : NULL;
    if (w)
        w->refused = true;
}

static void find_weights(struct narrower *m)
{
    for (int i = 0; i < m->n; i++)
        for (int k = 0; k < 2 && is_contraction(m->order[i]); k++)
            find_weight(m, m->order[i], k);
    for (int i = 0; i < m->n; i++)
        for (int k = 0; k < m->order[i]->nsrc; k++)
            if (!reads_elements(m->order[i], k))
                refuse(m, m->order[i]->src[k]);
    for (int i = 0; i < m->graph->noutput; i++)
        refuse(m, m->graph->output[i].value);
}

/* ----------------------------------------------------------------------------------- the values */

static struct uop *new_weight(struct narrower *m, enum dtype d, const struct uop *like,
                              uint32_t axes, const void *data, const char *name)
{
    int64_t dim[MAX_RANK], nelem = 1;
    for (int a = 0; a < like->ndim; a++) {
        dim[a] = axes >> a & 1 ? like->dim[a]->arg.i : 1;
        nelem *= dim[a];
    }
    return tensor_from_data(m->t, d, dim, like->ndim, data, (size_t)nelem * dtype_nbytes(d), name);
}

/* Adds an element's error to the statistics; that of one value is relative to the largest of its
 * channel. */
static void note_error(struct narrower *m, double want, double have, double largest)
{
    double error = fabs(have - want);
    m->error2 += error * error;
    m->weight2 += want * want;
    if (largest > 0 && error / largest > m->worst)
        m->worst = error / largest;
}

/* scalar_store() for many finite numbers; false: memory for none, or one is too large. */
static bool store_bf16(const float *from, uint16_t *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        bits += 0x7fff + (bits >> 16 & 1);
        if ((bits >> 23 & 0xff) == 0xff || !isfinite(from[i]))
            return false;
        to[i] = (uint16_t)(bits >> 16);
    }
    return true;
}

static bool round_bf16(struct narrower *m, const struct weight *w, struct pair *p)
{
    const struct buffer *b = w->buffer->arg.p;
    size_t n = b->nbytes / sizeof(float);
    const float *from = b->weight.data;
    uint16_t *to = mem_array(m->t, n, sizeof *to);
    if (!store_bf16(from, to, n))
        return false;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)to[i] << 16;
        float have;
        memcpy(&have, &bits, sizeof have);
        note_error(m, from[i], have, fabs(from[i]));
    }
    p->value = tensor_made_of(new_weight(m, DTYPE_BF16, w->buffer, ~0u, to, b->name), b,
                              "bf16 (--weight-type)");
    return true;
}

/* Walks a row-major tensor, with the offset in a tensor that has only the axes in `kept`. */
struct walker { int ndim; int64_t dim[MAX_RANK], step[MAX_RANK], at[MAX_RANK]; size_t channel; };

static struct walker walk_channels(const struct uop *u, uint32_t kept, size_t *nchannel)
{
    struct walker s = {.ndim = u->ndim};
    int64_t step = 1;
    for (int a = u->ndim - 1; a >= 0; a--) {
        s.dim[a] = u->dim[a]->arg.i;
        s.step[a] = kept >> a & 1 ? step : 0;
        step *= kept >> a & 1 ? s.dim[a] : 1;
    }
    *nchannel = (size_t)step;
    return s;
}

static void next_element(struct walker *s)
{
    for (int a = s->ndim - 1; a >= 0; a--) {
        s->channel += (size_t)s->step[a];
        if (++s->at[a] < s->dim[a])
            return;
        s->channel -= (size_t)(s->step[a] * s->dim[a]);
        s->at[a] = 0;
    }
}

static bool round_int8(struct narrower *m, const struct weight *w, struct pair *p)
{
    const struct buffer *b = w->buffer->arg.p;
    const float *from = b->weight.data;
    size_t n = b->nbytes / sizeof(float), nchannel;
    struct walker start = walk_channels(w->buffer, w->kept, &nchannel), at = start;
    float *largest = mem_array(m->t, nchannel, sizeof *largest),
          *scale = mem_array(m->t, nchannel, sizeof *scale);
    int8_t *to = mem_array(m->t, n, sizeof *to);
    for (size_t i = 0; i < n; i++, next_element(&at)) {
        if (!isfinite(from[i]))
            return false;
        largest[at.channel] = fmaxf(largest[at.channel], fabsf(from[i]));
    }
    for (size_t c = 0; c < nchannel; c++)
        scale[c] = largest[c] / (float)INT8_MOST;
    at = start;
    for (size_t i = 0; i < n; i++, next_element(&at)) {
        float s = scale[at.channel], q = s > 0 ? rintf(from[i] / s) : 0;
        to[i] = (int8_t)fminf(fmaxf(q, -(float)INT8_MOST), (float)INT8_MOST);
        note_error(m, from[i], (double)to[i] * s, largest[at.channel]);
    }
    struct uop *by = tensor_made_of(new_weight(m, DTYPE_F32, w->buffer, w->kept, scale, NULL),
                                    b, "its scales");
    p->value = tensor_made_of(new_weight(m, DTYPE_I8, w->buffer, ~0u, to, b->name), b,
                              "int8 (--weight-type)");
    p->scale = uop_expand(m->t, by, w->buffer->dim);
    return true;
}

static void round_weights(struct narrower *m)
{
    struct narrowing *sum = &m->graph->narrowing;
    sum->dtype = m->dtype;
    for (int i = 0; i < m->nweight; i++) {
        const struct weight *w = &m->weight[i];
        struct pair p = {0};
        if (w->refused || !(m->dtype == DTYPE_I8 ? round_int8(m, w, &p) : round_bf16(m, w, &p)))
            continue;
        map_set(&m->pair, w->buffer, mem_copy(m->t, &p, sizeof p));
        const struct buffer *from = w->buffer->arg.p, *to = p.value->arg.p,
                            *scale = p.scale ? p.scale->src[0]->arg.p : NULL;
        sum->nweight++;
        sum->from_nbytes += from->nbytes;
        sum->to_nbytes += to->nbytes + (scale ? scale->nbytes : 0);
    }
    sum->rms_error = m->weight2 > 0 ? sqrt(m->error2 / m->weight2) : 0;
    sum->max_error = m->worst;
}

/* ---------------------------------------------------------------------------------- the rewrite */

static void keep_notes(struct tgc *t, struct uop *by, const struct uop *u)
{
    uop_set_origin(t, by, u);
    if (uop_get_axes(t, u) && !uop_get_axes(t, by) && by->ndim == u->ndim)
        uop_name_axes(t, by, uop_get_axes(t, u));
}

/* The present value of u, in f32. */
static struct uop *replacement(struct narrower *m, struct uop *u)
{
    struct uop *by = map_get(&m->by, u);
    const struct pair *p = by ? NULL : map_get(&m->pair, u);
    if (by || !p)
        return by ? by : u;
    by = uop_cast(m->t, DTYPE_F32, p->value);
    if (p->scale)
        by = uop_binary(m->t, OP_MUL, by, p->scale);
    keep_notes(m->t, by, u);
    map_set(&m->by, u, by);
    return by;
}

/* u, a movement or INDEX, applied to another tensor of the same shape. */
static struct uop *move_like(struct narrower *m, const struct uop *u, struct uop *x)
{
    struct uop **src = scratch_array(m->t, (size_t)u->nsrc, sizeof *src);
    src[0] = x;
    for (int k = 1; k < u->nsrc; k++)
        src[k] = replacement(m, u->src[k]);
    return uop_new(m->t, u->op, x->dtype, src, u->nsrc, u->arg);
}

/* The sum over q, times the scale; NULL: u is not such a sum. */
static struct uop *scale_behind(struct narrower *m, struct uop *u)
{
    struct tgc *t = m->t;
    if (!is_contraction(u))
        return NULL;
    struct uop *product = u->src[0], *src[2];
    int k = map_get(&m->pair, product->src[1]) ? 1 : 0;
    const struct pair *p = map_get(&m->pair, product->src[k]);
    if (!p || !p->scale || map_get(&m->pair, product->src[1 - k]) || !base_of(product->src[k]))
        return NULL;
    src[k] = uop_cast(t, DTYPE_F32, p->value);
    src[1 - k] = replacement(m, product->src[1 - k]);
    struct uop *by = contraction_like(t, u, src[0], src[1]);
    uop_set_origin(t, by->src[0], product);
    keep_notes(t, by, u);
    return uop_binary(t, OP_MUL, by, axes_keep(t, p->scale, ~REDUCE_AXES(u->arg.i)));
}

static void rewrite(struct narrower *m, struct uop *u)
{
    bool carries = move_is(u, MOVES_VIEW) || u->op == OP_INDEX;
    const struct pair *below = carries ? map_get(&m->pair, u->src[0]) : NULL;
    struct uop *by;
    bool changed = false;
    if (below) {
        struct pair p = {move_like(m, u, below->value),
                         below->scale ? move_like(m, u, below->scale) : NULL};
        map_set(&m->pair, u, mem_copy(m->t, &p, sizeof p));
        return;
    }
    if (!(by = scale_behind(m, u))) {
        struct uop **src = scratch_array(m->t, (size_t)u->nsrc + 1, sizeof *src);
        for (int k = 0; k < u->nsrc; k++) {
            src[k] = replacement(m, u->src[k]);
            changed |= src[k] != u->src[k];
        }
        if (!changed)
            return;
        by = uop_replace_src(m->t, u, src);
    }
    keep_notes(m->t, by, u);
    map_set(&m->by, u, by);
}

bool pass_narrow_weights(struct tgc *t, struct graph *g)
{
    struct narrower m = {.t = t, .graph = g, .dtype = t->weight_dtype, .of = {.t = t},
                         .pair = {.t = t}, .by = {.t = t}};
    int nroot;
    if (t->weight_dtype == DTYPE_VOID)
        return true;
    struct uop **root = graph_roots(t, g, &nroot);
    m.order = uop_toposort(t, root, nroot, &m.n);
    m.order = mem_copy(t, m.order, (size_t)m.n * sizeof *m.order);
    find_weights(&m);
    round_weights(&m);
    for (int i = 0; i < m.n; i++) {
        struct mem_mark mark = scratch_mark(t);
        rewrite(&m, m.order[i]);
        scratch_release(t, mark);
    }
    for (int i = 0; i < g->noutput; i++)
        g->output[i].value = replacement(&m, g->output[i].value);
    for (int i = 0; i < g->nhost; i++)
        g->host[i] = replacement(&m, g->host[i]);
    return true;
}
