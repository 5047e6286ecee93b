/* error.c - how errors of single layers propagate to the outputs of a network.
 *
 * Rounding is a noise: errors of different elements are independent. An error of variance v in a
 * layer's results x has the variance v sum |dy/dx|^2 at the outputs y. A product of the layers'
 * norms would not give that sum. It depends on which activations are active, and on how much of a
 * value is the mean that the next layer subtracts.
 *
 * So the network is run, not on an image, but on PIXELS representative pixels, linked into a ring
 * by the same windows (error_field.h). Axes along which weights vary (channels) are computed in
 * full; of the others, PIXELS positions are sampled. That costs as much as a layer of 8x8 pixels
 * wherever there is one. Then one walk back gives every layer's gain, as reverse accumulation gives
 * gradients, but of squares.
 *
 *      x = noise    ->  conv  ->  relu  ->  conv  ->  mean  ->  y         values, on pixels
 *      gain         <-  w^2   <-  0, 1  <-  w^2   <-  1/n   <-  1 / max y^2
 *
 * Inputs are slightly smooth noise of variance 1 (integers: 0 to 255). Opaque ops (host calls,
 * control, scatters) pass relative errors on unchanged; a comparison, and a choice by it, passes
 * none. */
#include "passes/analysis/error.h"
#include "passes/analysis/error_field.h"
#include "passes/analysis/contraction.h"
#include "passes/target/target.h"

#include <math.h>
#include <string.h>

const double ERROR_DEVIATIONS = 3;

/* --------------------------------------------------------------------------------------- leaves */

/* Roughly normal: the sum of four uniform numbers. */
static double noise(uint32_t a, uint32_t b)
{
    double sum = 0;
    for (uint32_t i = 0; i < 4; i++)
        sum += (double)pixels_hash(a * 4 + i, b) / 4294967296.0 - 0.5;
    return sum * 1.7320508075688772;
}

/* A tensor of noise, with no axis in full. */
static struct field make_noise(struct pixels *p, const struct uop *u, double deviation)
{
    struct field f = {.s = pixels_store(p, 1, false), .ndim = u->ndim};
    uint32_t seed = u->op == OP_BUFFER ? (uint32_t)((const struct buffer *)u->arg.p)->id : 1;
    for (int a = 0; a < u->ndim; a++) {
        f.dim[a] = 1;
        f.shift[a] = uop_is_int(u->dim[a], 1) ? 0
                     : a == u->ndim - 1       ? 1
                     : a == u->ndim - 2       ? ROW
                                              : 11 + 2 * a;
    }
    enum { WAVES = 8 };
    static const uint32_t slow[WAVES] = {1, 2, 3, 5, 7, 8, 9, 16};
    for (uint32_t k = 0; k < PIXELS; k++) {
        double v = 0.3 * noise(seed, k + WAVES), turn = 6.283185307179586 / PIXELS;
        for (uint32_t i = 0; i < WAVES; i++)     /* slow along rows and along columns */
            v += noise(seed, i) * cos(turn * (slow[i] * k + 10 * i)) / sqrt(WAVES / 2.0);
        f.s->x[k] = (float)(v * deviation);
        if (u->dtype == DTYPE_BOOL)
            f.s->x[k] = v > 0;
        else if (!dtype_is_float(u->dtype))
            f.s->x[k] = (float)(pixels_hash(seed, k) % 256);
    }
    return f;
}

/* A weight in full; a large one that is not f32 is noise, too. */
static struct field make_weight(struct pixels *p, const struct uop *u)
{
    const struct buffer *b = u->arg.p;
    struct field f = {.ndim = u->ndim};
    int64_t n = 1;
    for (int a = u->ndim - 1; a >= 0; a--) {
        f.dim[a] = u->dim[a]->op == OP_CONST ? u->dim[a]->arg.i : 0;
        f.stride[a] = n;
        n = sat_mul(n, f.dim[a]);
    }
    bool plain = b->weight.data && !b->storage && n > 0;
    if (plain && b->dtype == DTYPE_F32) {
        f.s = scratch_array(p->t, 1, sizeof *f.s);
        *f.s = (struct store){.x = (float *)b->weight.data, .nentry = n, .uniform = true};
        return f;
    }
    if (!plain || dtype_kind(b->dtype) == 'S' || n > 16 * ENTRIES_MAX)
        return make_noise(p, u, 1);
    f.s = pixels_store(p, n, true);
    for (int64_t i = 0; i < f.s->nentry; i++) {
        union scalar v = scalar_load(b->dtype, (const char *)b->weight.data +
                                                   (size_t)i * dtype_nbytes(b->dtype));
        f.s->x[i] = dtype_is_float(b->dtype) ? (float)v.f : (float)v.i;
    }
    return f;
}

static struct field make_scalar(struct pixels *p, double v)
{
    struct field f = {.s = pixels_store(p, 1, true)};
    f.s->x[0] = v == v ? (float)v : 0;
    return f;
}

static struct field make_iota(struct pixels *p, const struct uop *u)
{
    enum { APART = 4096 };
    int64_t n = u->dim[0]->op == OP_CONST ? u->dim[0]->arg.i : 0;
    struct field f = {.ndim = 1, .dim = {1}, .stride = {1}, .shift = {1}};
    bool apart = n >= 1 && n <= APART;
    if (apart)
        f.dim[0] = n, f.shift[0] = 0;
    f.s = pixels_store(p, f.dim[0], apart);
    int64_t most = u->dim[0]->vmax > 0 ? u->dim[0]->vmax : 1;
    for (int64_t i = 0; i < f.s->nentry * (apart ? 1 : PIXELS); i++)
        f.s->x[i] = (float)(apart ? i : pixels_hash(1, (uint32_t)i) % most);
    return f;
}

/* -------------------------------------------------------------------------------------- opaque */

static bool carries(const struct pixels *p, const struct uop *v)
{
    return dtype_is_float(v->dtype) && p->has[p->at[v->id]] &&
           p->field[p->at[v->id]].s->gain != NULL;
}

/* Has the magnitude of its operands. */
static struct field make_opaque(struct pixels *p, struct uop *u)
{
    double largest = 0;
    int n = 0;
    struct field *in = scratch_array(p->t, (size_t)u->nsrc + 1, sizeof *in);
    for (int k = 0; k < u->nsrc; k++) {
        if (!carries(p, u->src[k]))
            continue;
        in[n++] = p->field[p->at[u->src[k]->id]];
        double size = pixels_mean_square(in[n - 1].s);
        largest = size > largest ? size : largest;
    }
    struct field out = make_noise(p, u, largest > 0 ? sqrt(largest) : 1);
    pixels_step(p, STEP_OPAQUE, u, in, n)->out = out;
    return out;
}

static void opaque_back(const struct pixel_step *s)
{
    const struct store *y = s->out.s;
    double size = pixels_mean_square(y);
    for (int k = 0; k < s->nin; k++) {
        struct store *x = s->in[k].s;
        double of = pixels_mean_square(x);
        for (int64_t i = 0; i < x->nentry && of > 0; i++)
            x->gain[i] += y->gain[0] * size / of / (double)x->nentry;
    }
}

static void pick_back(const struct pixel_step *s)
{
    const struct store *y = s->out.s;
    for (int64_t i = 0; s->entry && i < y->nentry * PIXELS; i++) {
        struct store *x = s->which[i] < 0 ? NULL : s->in[s->which[i]].s;
        if (x && x->gain)
            x->gain[s->entry[i]] += y->gain[i / PIXELS] / PIXELS;
    }
}

/* ----------------------------------------------------------------------------------------- runs */

static bool sums_products(const struct uop *u)
{
    return dtype_is_float(u->dtype) && summed_product(u);
}

static struct field compute(struct pixels *p, struct uop *u)
{
    const struct buffer *b = u->arg.p;
    enum opclass class = op_class(u->op);
    switch (u->op) {
    case OP_CONST:
        return make_scalar(p, dtype_is_float(u->dtype) ? u->arg.f : (double)u->arg.i);
    case OP_VAR: return make_scalar(p, (double)((const struct var *)u->arg.p)->max);
    case OP_BUFFER: return buffer_is_stationary(b) ? make_weight(p, u) : make_noise(p, u, 1);
    case OP_PARAM: return make_noise(p, u, 1);
    case OP_IOTA: return make_iota(p, u);
    case OP_CONTIGUOUS: case OP_AFTER: return p->field[p->at[u->src[0]->id]];
    case OP_INDEX: return u->nsrc > 1 ? field_index(p, u) : p->field[p->at[u->src[0]->id]];
    case OP_STACK: return field_stack(p, u);
    case OP_REDUCE:
        return sums_products(u) ? pixels_contract(p, u) : pixels_fold(p, u);
    default:
        return class == CLASS_MOVE     ? field_move(p, u)
               : op_is_elementwise(u->op) ? pixels_each(p, u)
                                          : make_opaque(p, u);
    }
}

/* The values of all operands, except for products that only sums read. */
static void run_forward(struct pixels *p, struct uop *const *root, int nroot)
{
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->order[i]->nsrc; k++)
            if (k > 0 || !sums_products(p->order[i]))
                p->has[p->at[p->order[i]->src[k]->id]] = true;
    for (int i = 0; i < nroot; i++)
        p->has[p->at[root[i]->id]] = true;
    for (int i = 0; i < p->n && !p->full; i++)
        if (p->has[i])
            p->field[i] = compute(p, p->order[i]);
}

static void run_backward(struct pixels *p)
{
    for (int i = p->nstep - 1; i >= 0; i--) {
        const struct pixel_step *s = &p->step[i];
        if (s->out.s->uniform)
            continue;
        switch (s->kind) {
        case STEP_PICK: pick_back(s); break;
        case STEP_EACH: pixels_each_back(s); break;
        case STEP_CONTRACT: pixels_contract_back(p, s); break;
        case STEP_FOLD: pixels_fold_back(p, s); break;
        case STEP_OPAQUE: opaque_back(s); break;
        }
    }
}

/* Errors at an output are relative to its largest element. */
static void seed(const struct pixels *p, const struct uop *u)
{
    const struct field *f = &p->field[p->at[u->id]];
    if (!dtype_is_float(u->dtype) || f->s->uniform)
        return;
    double largest = 0;
    int64_t at[MAX_RANK] = {0};
    int shift;
    do {
        float v[PIXELS];
        field_read(f, field_entry(f, at, &shift), 0, v);
        for (int k = 0; k < PIXELS; k++)
            largest = fabs((double)v[k]) > largest ? fabs((double)v[k]) : largest;
    } while (next_place(at, f->dim, f->ndim));
    memset(at, 0, sizeof at);
    do
        if (largest > 0)
            f->s->gain[field_entry(f, at, &shift)] +=
                1 / (largest * largest) / (double)field_nentry(f);
    while (next_place(at, f->dim, f->ndim));
}

bool error_gains(struct tgc *t, const struct graph *g, struct uop *const *sum, int n,
                 double *gain)
{
    struct pixels p = {.t = t, .most = SIZE_MAX};
    struct mem_mark mark = scratch_mark(t);
    int nroot;
    struct uop **root = graph_roots(t, g, &nroot);
    if (t->mem_limit)
        p.most = mem_room(t) / 3;
    p.order = uop_toposort(t, root, nroot, &p.n);
    p.at = scratch_array(t, t->nuop + 1, sizeof *p.at);
    p.field = scratch_array(t, (size_t)p.n, sizeof *p.field);
    p.has = scratch_array(t, (size_t)p.n, sizeof *p.has);
    for (int i = 0; i < p.n; i++)
        p.at[p.order[i]->id] = i;
    run_forward(&p, root, nroot);
    for (int i = 0; i < g->noutput && !p.full; i++)
        seed(&p, g->output[i].value);
    if (!p.full)
        run_backward(&p);
    for (int i = 0; i < n; i++)
        gain[i] = p.full ? 1 : 0;
    for (int i = 0; i < p.nstep && !p.full; i++)
        for (int k = 0; k < n && p.step[i].kind == STEP_CONTRACT; k++)
            if (p.step[i].u == sum[k])
                gain[k] = pixels_contract_terms(&p, &p.step[i]);
    bool known = !p.full;
    scratch_release(t, mark);
    return known;
}

/* --------------------------------------------------------------------------------------- budget */

double error_left(const struct tgc *t)
{
    double most = t->error_limit / ERROR_DEVIATIONS;
    double left = most * most - t->error_variance;
    return left > 0 ? left : 0;
}

bool error_spend(struct tgc *t, double variance)
{
    if (!(variance <= error_left(t)))
        return false;
    t->error_variance += variance;
    return true;
}

double error_estimate(const struct tgc *t)
{
    return ERROR_DEVIATIONS * sqrt(t->error_variance);
}

/* ------------------------------------------------------------------------------------- rounding */

double error_unit(enum dtype d)
{
    double unit = 1;
    while (scalar_cast(d, DTYPE_F64, (union scalar){.f = 1 + unit}).f != 1)
        unit /= 2;
    return unit;
}

/* How far two programs differ: relative deviations of values, by uop id. */
struct apart { struct tgc *t; double *deviation; };

/* The variance that rounding a value adds. Nearly equal values are rounded to equal ones, unless a
 * boundary lies between: so it is 2 unit times their deviation, at most that of two roundings. This
 * holds where an instruction takes values of the type, which may differ from the graph's
 * (attention's weights before the division, relative to a running maximum). */
static double added_by(const struct apart *a, enum dtype type, double deviation)
{
    const double unit = error_unit(type), two = 2 * unit * unit / 3;
    return deviation > 0 && device_multiplies(a->t, type) ? two : fmin(2 * unit * deviation, two);
}

/* The narrowest type through which the factor passes, and the value before it; VOID: it is not
 * rounded. */
static enum dtype type_of(const struct uop **factor)
{
    enum dtype narrowest = DTYPE_VOID;
    for (;; *factor = (*factor)->src[0]) {
        const enum dtype d = (*factor)->dtype;
        const bool is_narrow = dtype_is_float(d) && (dtype_bits(d) < 32 || d == DTYPE_TF32);
        if (is_narrow && (narrowest == DTYPE_VOID || error_unit(d) > error_unit(narrowest)))
            narrowest = d;
        if (!move_is(*factor, MOVES_OPERAND))
            return narrowest;
    }
}

/* What rounding the factors adds to a term's variance, relative to its square. Both programs round
 * where the graph does. Only one rounds where the device multiplies halves although one factor
 * alone is said to be such, or where memory holds halves. */
static double variance_of(const struct apart *a, const struct uop *sum)
{
    const struct uop *product = summed_product(sum),
                     *factor[2] = {product->src[0], product->src[1]};
    const enum dtype type[2] = {type_of(&factor[0]), type_of(&factor[1])};
    double variance = 0;
    for (int i = 0; i < 2; i++) {
        const enum dtype other = type[1 - i];
        double alone = a->t->half_storage ? error_unit(DTYPE_F16) : 0;
        if (type[i] == DTYPE_VOID && other != DTYPE_VOID && device_multiplies(a->t, other))
            alone = fmax(alone, error_unit(other));
        variance += alone * alone / 3;
        if (type[i] != DTYPE_VOID)
            variance += added_by(a, type[i], a->deviation[factor[i]->id]);
    }
    return variance;
}

/* The deviation of a value, from its operands'. */
static double deviation_of(const struct apart *a, const struct uop *u)
{
    static const double order_of_sum = 0x1p-20;      /* of f32, and functions of other libraries */
    double most = 0;
    for (int i = 0; i < u->nsrc; i++)
        most = fmax(most, a->deviation[u->src[i]->id]);
    if (u->op == OP_CAST && dtype_is_float(u->dtype) &&
        dtype_bits(u->dtype) < dtype_bits(u->src[0]->dtype))
        return sqrt(most * most + added_by(a, u->dtype, most));
    if (!dtype_is_float(u->dtype) || op_class(u->op) == CLASS_MOVE || u->nsrc == 0 ||
        u->op == OP_CAST)
        return most;
    const double added = u->op == OP_REDUCE && sums_products(u) ? variance_of(a, u) : 0;
    return fmax(order_of_sum, sqrt(most * most + added));
}

double error_of_rounding(struct tgc *t, const struct graph *g)
{
    struct mem_mark mark = scratch_mark(t);
    int nroot, norder, n = 0;
    struct uop **root = graph_roots(t, g, &nroot), **order = uop_toposort(t, root, nroot, &norder);
    struct uop **sum = mem_array(t, (size_t)norder + 1, sizeof *sum);
    double *added = mem_array(t, (size_t)norder + 1, sizeof *added), variance = 0;
    struct apart a = {t, scratch_array(t, t->nuop + 1, sizeof *a.deviation)};
    for (int i = 0; i < norder; i++) {
        a.deviation[order[i]->id] = deviation_of(&a, order[i]);
        if (order[i]->op == OP_REDUCE && sums_products(order[i]) &&
            (added[n] = variance_of(&a, order[i])) > 0)
            sum[n++] = order[i];
    }
    scratch_release(t, mark);
    double *gain = mem_array(t, (size_t)n + 1, sizeof *gain);
    if (n > 0)
        error_gains(t, g, sum, n, gain);
    for (int i = 0; i < n; i++)
        variance += added[i] * gain[i];
    return sqrt(variance);
}
