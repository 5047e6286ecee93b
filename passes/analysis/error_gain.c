/* error_gain.c - computation on fields: elementwise ops and sums, forward and backward, where the
 * gains of a result are propagated to its operands.
 *
 * The gain of an entry is the derivative of the mean square error at the outputs by the variance of
 * the errors of the entry's elements. Errors of different elements are independent:
 *
 *      y = f(x)             gain of x += gain of y * mean of f'(x)^2 over the pixels.
 *      y = sum of w * x     gain of x += gain of y * w^2, of each term.
 */
#include "passes/analysis/error_field.h"

#include <math.h>
#include <string.h>

static const struct field *field_of(const struct pixels *p, const struct uop *u)
{
    return &p->field[p->at[u->id]];
}

static float confine(double v)
{
    const double most = 1e30;
    return v != v ? 0 : v > most ? (float)most : v < -most ? (float)-most : (float)v;
}

/* Allocates the result's own store, with the dims that fields_meet() has found. */
static void own_store(struct pixels *p, struct field *out, bool uniform)
{
    int64_t n = 1;
    for (int a = out->ndim - 1; a >= 0; a--) {
        out->stride[a] = n;
        n *= out->dim[a];
    }
    out->s = pixels_store(p, n, uniform);
}

/* ---------------------------------------------------------------------------------- elementwise */

static union scalar scalar_of(enum dtype d, double v)
{
    return dtype_is_float(d) ? (union scalar){.f = v} : (union scalar){.i = (int64_t)v};
}

static double apply(const struct uop *u, const double *v)
{
    union scalar x[3], r;
    for (int k = 0; k < u->nsrc; k++)
        x[k] = scalar_of(u->src[k]->dtype, v[k]);
    if (!scalar_apply(u->op, u->dtype, u->src[u->nsrc - 1]->dtype, x, &r))
        return 0;
    return dtype_is_float(u->dtype) ? r.f : (double)r.i;
}

static void each_values(const struct uop *u, float v[3][PIXELS], int n, float *y)
{
    switch (dtype_is_float(u->dtype) ? u->op : OP_COUNT) {
    case OP_ADD:
        for (int k = 0; k < n; k++)
            y[k] = v[0][k] + v[1][k];
        return;
    case OP_SUB:
        for (int k = 0; k < n; k++)
            y[k] = v[0][k] - v[1][k];
        return;
    case OP_MUL:
        for (int k = 0; k < n; k++)
            y[k] = confine((double)v[0][k] * v[1][k]);
        return;
    case OP_MAX:
        for (int k = 0; k < n; k++)
            y[k] = v[0][k] > v[1][k] ? v[0][k] : v[1][k];
        return;
    case OP_MIN:
        for (int k = 0; k < n; k++)
            y[k] = v[0][k] < v[1][k] ? v[0][k] : v[1][k];
        return;
    default:
        for (int k = 0; k < n; k++)
            y[k] = confine(apply(u, (double[]){v[0][k], v[1][k], v[2][k]}));
    }
}

/* For x + bias: by how much x is larger here than in a real run. A bias that cancels its channel's
 * mean, as those of normalizations do, tells the mean, so x is scaled to have it. Otherwise small
 * differences between the pixels and real images would accumulate over many layers. 1: the bias is
 * of another kind. */
static double scale_of(const struct field *in, int bias, const struct field *out)
{
    enum { CHANNELS_MIN = 16 };
    const double alike = 0.8;
    double mm = 0, mb = 0, bb = 0;
    int64_t at[MAX_RANK] = {0}, n = 0;
    do {
        int shift;
        float v[PIXELS];
        double mean = 0, b = in[bias].s->x[field_entry(&in[bias], at, &shift)];
        field_read(&in[1 - bias], field_entry(&in[1 - bias], at, &shift), 0, v);
        for (int k = 0; k < PIXELS; k++)
            mean += v[k] / PIXELS;
        mm += mean * mean;
        mb -= mean * b;
        bb += b * b;
    } while (n++, next_place(at, out->dim, out->ndim));
    return n >= CHANNELS_MIN && mb > alike * sqrt(mm * bb) ? sqrt(bb / mm) : 1;
}

struct field pixels_each(struct pixels *p, struct uop *u)
{
    struct field in[3], out = {.ndim = u->ndim};
    bool uniform = true;
    for (int k = 0; k < u->nsrc; k++) {
        in[k] = *field_of(p, u->src[k]);
        uniform &= in[k].s->uniform;
    }
    fields_meet(p, in, u->nsrc, 0, &out);
    own_store(p, &out, uniform);
    struct pixel_step *s = pixels_step(p, STEP_EACH, u, in, u->nsrc);
    s->out = out;
    int64_t at[MAX_RANK] = {0}, entry = 0;
    float v[3][PIXELS] = {{0}};
    int bias = u->op == OP_ADD && in[0].s->uniform ? 0 : 1;
    double scale = u->op == OP_ADD && !uniform && in[bias].s->uniform && !p->full
                       ? scale_of(in, bias, &out)
                       : 1;
    do {
        for (int k = 0; k < u->nsrc; k++) {
            int shift;
            int64_t from = field_entry(&in[k], at, &shift);
            field_read(&in[k], from, shift, v[k]);
        }
        for (int k = 0; k < PIXELS && scale != 1; k++)
            v[1 - bias][k] *= (float)scale;
        if (!p->full)
            each_values(u, v, uniform ? 1 : PIXELS, out.s->x + entry * (uniform ? 1 : PIXELS));
    } while (entry++, !p->full && next_place(at, out.dim, out.ndim));
    return out;
}

/* The derivative by operand k; ops that round count as the identity. */
static double slope(const struct uop *u, const double *v, int k)
{
    switch (u->op) {
    case OP_CAST: return u->dtype != DTYPE_BOOL;
    case OP_FLOOR: case OP_CEIL: case OP_TRUNC: case OP_ROUND: case OP_ADD: case OP_SUB:
    case OP_NEG: return 1;
    case OP_MUL: return v[1 - k];
    case OP_MAX: return v[k] >= v[1 - k];
    case OP_MIN: return v[k] <= v[1 - k];
    case OP_WHERE: return k > 0 && (v[0] != 0) == (k == 1);
    default: break;
    }
    if (!dtype_is_float(u->dtype) || !dtype_is_float(u->src[k]->dtype))
        return 0;
    double lo[3] = {v[0], v[1], v[2]}, hi[3] = {v[0], v[1], v[2]};
    double h = 1e-3 * fabs(v[k]) + 1e-6;
    lo[k] -= h;
    hi[k] += h;
    return confine((apply(u, hi) - apply(u, lo)) / (2 * h));
}

/* The most that one op amplifies relative errors: beyond that it divides by almost nothing, or is
 * near a pole, where a few pixels say nothing. */
static const double AMPLIFICATION_MAX = 32;

void pixels_each_back(const struct pixel_step *s)
{
    const struct uop *u = s->u;
    const struct store *y = s->out.s;
    int64_t at[MAX_RANK] = {0}, entry = 0, from[3] = {0};
    double most[3] = {0}, by;
    bool needed = false;
    if (y->uniform || u->dtype == DTYPE_BOOL)
        return;
    for (int64_t i = 0; i < y->nentry; i++)
        needed |= y->gain[i] > 0;
    if (!needed)
        return;
    for (int k = 0; k < u->nsrc; k++) {
        double x2 = s->in[k].s->uniform ? 0 : pixels_mean_square(s->in[k].s);
        most[k] = x2 > 0 ? AMPLIFICATION_MAX * AMPLIFICATION_MAX * pixels_mean_square(y) / x2 : 0;
    }
    bool plain = u->op == OP_ADD || u->op == OP_SUB || u->op == OP_NEG;
    do {
        float v[3][PIXELS] = {{0}};
        for (int k = 0; k < u->nsrc; k++) {
            int shift;
            from[k] = field_entry(&s->in[k], at, &shift);
            if (!plain)
                field_read(&s->in[k], from[k], shift, v[k]);
        }
        for (int k = 0; k < u->nsrc; k++) {
            if (s->in[k].s->uniform || u->src[k]->dtype == DTYPE_BOOL)
                continue;
            by = plain ? PIXELS : 0;
            for (int i = 0; i < PIXELS && !plain; i++) {
                double d = slope(u, (double[]){v[0][i], v[1][i], v[2][i]}, k);
                by += d * d;
            }
            by /= PIXELS;
            s->in[k].s->gain[from[k]] += y->gain[entry] * (plain || by < most[k] ? by : most[k]);
        }
    } while (entry++, next_place(at, s->out.dim, s->out.ndim));
}

/* ----------------------------------------------------------------------------------------- sums */

/* The terms of a result: positions in two fields, relative to those of the result's own
 * coordinates. Each stands for `each` elements with independent errors, and for `equal` equal
 * ones. */
struct terms {
    int64_t n, *entry[2];
    int *shift[2];
    double each, equal;
    double places;               /* the sampled elements over which it sums */
};

static struct terms terms_of(struct tgc *t, const struct field *in, int nin, const struct uop *u)
{
    uint32_t axes = REDUCE_AXES(u->arg.i);
    const struct uop *x = u->src[0];
    struct terms m = {.n = 1, .each = 1, .equal = 1};
    int64_t dim[MAX_RANK], at[MAX_RANK] = {0}, pixels = 1;
    int varying[MAX_RANK] = {0};
    for (int a = 0; a < x->ndim; a++) {
        dim[a] = 1;
        bool apart = false;
        for (int k = 0; k < nin; k++) {
            apart |= in[k].dim[a] > 1;
            dim[a] = in[k].dim[a] > dim[a] ? in[k].dim[a] : dim[a];
            varying[a] |= in[k].shift[a];
        }
        dim[a] = axes >> a & 1 ? dim[a] : 1;
        int64_t size = x->dim[a]->vmax > 1 ? x->dim[a]->vmax : 1;
        if (!(axes >> a & 1) || apart || size == 1)
            varying[a] = 0;
        else if (varying[a])
            pixels = sat_mul(pixels, size);
        else
            m.equal *= (double)size;
    }
    /* more elements than pixels: all pixels, in any order */
    bool all = pixels > PIXELS;
    for (int a = 0; a < x->ndim; a++) {
        if (varying[a] && !all)
            dim[a] = x->dim[a]->vmax;
        m.n *= dim[a];
    }
    int64_t iterations = all ? PIXELS : 1, i = 0;
    m.each = all ? (double)pixels / PIXELS : 1;
    m.places = (double)pixels;
    m.n *= iterations;
    for (int k = 0; k < nin; k++) {
        m.entry[k] = scratch_array(t, (size_t)m.n, sizeof *m.entry[k]);
        m.shift[k] = scratch_array(t, (size_t)m.n, sizeof *m.shift[k]);
    }
    do
        for (int iteration = 0; iteration < iterations; iteration++, i++)
            for (int k = 0; k < nin; k++) {
                bool moves = false;
                for (int a = 0; a < x->ndim; a++)
                    moves |= varying[a] && in[k].shift[a];
                m.entry[k][i] = field_entry(&in[k], at, &m.shift[k][i]) - in[k].offset;
                m.shift[k][i] += moves ? iteration : 0;
            }
    while (next_place(at, dim, x->ndim));
    return m;
}

/* The terms' factors of operand k, from an entry on: [n][PIXELS]. */
static void read_terms(const struct field *f, const struct terms *m, int k, int64_t base,
                       float *x)
{
    for (int64_t i = 0; i < m->n; i++)
        field_read(f, base + m->entry[k][i], m->shift[k][i], x + i * PIXELS);
}

/* Results that are sums of the same terms x, each with weights of its own. */
enum { ALIKE = 16 };
struct sums { const float *w[ALIKE]; float *y[ALIKE]; int n; };

/* Functions below are compiled once more for vectors of eight floats; what they compute
 * has the same bits. */
#if defined __x86_64__ && defined __GNUC__
#define HAS_WIDE __builtin_cpu_supports("avx2")
#define IN_WIDE __attribute__((target("avx2")))
#define IN_BOTH inline __attribute__((always_inline))
#else
#define HAS_WIDE false
#define IN_WIDE
#define IN_BOTH inline
#endif

/* y += the sum of the products of 8 terms, so that y is stored less often. */
static IN_BOTH void add_eight(const float *w, const int64_t *at, const float *x, float *restrict y)
{
    float a = w[at[0]], b = w[at[1]], c = w[at[2]], d = w[at[3]];
    float e = w[at[4]], f = w[at[5]], g = w[at[6]], h = w[at[7]];
    for (int k = 0; k < PIXELS; k++)
        y[k] += ((a * x[k] + b * x[PIXELS + k]) +
                 (c * x[2 * PIXELS + k] + d * x[3 * PIXELS + k])) +
                ((e * x[4 * PIXELS + k] + f * x[5 * PIXELS + k]) +
                 (g * x[6 * PIXELS + k] + h * x[7 * PIXELS + k]));
}

/* Adds n terms to all of s. Eight terms stay in the first cache for all of them. */
static IN_BOTH void add_terms(const struct sums *s, const int64_t *at, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int o = 0; o < s->n; o++)
            add_eight(s->w[o], at + i, x + i * PIXELS, s->y[o]);
    for (; i < n; i++)
        for (int o = 0; o < s->n; o++)
            for (int k = 0; k < PIXELS; k++)
                s->y[o][k] += s->w[o][at[i]] * x[i * PIXELS + k];
}

static IN_WIDE void add_terms_wide(const struct sums *s, const int64_t *at, const float *x,
                                   int64_t n)
{
    add_terms(s, at, x, n);
}

/* Adds the terms to all of s, and empties s. */
static void add_products(struct sums *s, const int64_t *at, const float *x, int64_t n)
{
    if (HAS_WIDE)
        add_terms_wide(s, at, x, n);
    else
        add_terms(s, at, x, n);
    s->n = 0;
}

static int weight_of(const struct pixel_step *s)
{
    return s->in[1].s->uniform ? 1 : s->in[0].s->uniform ? 0 : -1;
}

struct field pixels_contract(struct pixels *p, struct uop *u)
{
    struct uop *product = u->src[0];
    struct field in[2] = {*field_of(p, product->src[0]), *field_of(p, product->src[1])};
    struct field out = {.ndim = u->ndim};
    uint32_t axes = REDUCE_AXES(u->arg.i);
    fields_meet(p, in, 2, axes, &out);
    for (int a = 0; a < u->ndim; a++)
        if (axes >> a & 1)
            out.dim[a] = 1, out.shift[a] = 0;
    own_store(p, &out, false);
    struct pixel_step *s = pixels_step(p, STEP_CONTRACT, u, in, 2);
    s->out = out;
    if (p->full)
        return out;
    struct mem_mark mark = scratch_mark(p->t);
    struct terms m = terms_of(p->t, in, 2, u);
    int w = weight_of(s), v = w == 0;
    float *x = scratch_array(p->t, (size_t)m.n * PIXELS, sizeof *x), other[PIXELS];
    int64_t at[MAX_RANK] = {0}, entry = 0, have = -1, base[2];
    struct sums sums = {.n = 0};
    do {
        int shift;
        float *y = out.s->x + entry * PIXELS;
        for (int k = 0; k < 2; k++)
            base[k] = field_entry(&in[k], at, &shift);
        if (sums.n == ALIKE || (sums.n && base[v] != have))
            add_products(&sums, m.entry[w], x, m.n);
        if (base[v] != have)
            read_terms(&in[v], &m, v, have = base[v], x);
        if (w >= 0) {
            sums.w[sums.n] = in[w].s->x + base[w];
            sums.y[sums.n++] = y;
            continue;
        }
        for (int64_t i = 0; i < m.n; i++) {
            field_read(&in[1], base[1] + m.entry[1][i], m.shift[1][i], other);
            for (int k = 0; k < PIXELS; k++)
                y[k] += x[i * PIXELS + k] * other[k];
        }
    } while (entry++, next_place(at, out.dim, out.ndim));
    if (sums.n)
        add_products(&sums, m.entry[w], x, m.n);
    for (int64_t i = 0; i < entry * PIXELS; i++)
        out.s->x[i] = confine(m.each * m.equal * (double)out.s->x[i]);
    scratch_release(p->t, mark);
    return out;
}

static double square_of(const struct field *f, int64_t entry)
{
    if (f->s->uniform)
        return (double)f->s->x[entry] * f->s->x[entry];
    double sum = 0;
    for (int k = 0; k < PIXELS; k++) {
        double v = f->s->x[entry * PIXELS + k];
        sum += v * v;
    }
    return sum / PIXELS;
}

/* The squares of operand k's terms, from an entry on. */
static void square_terms(const struct field *f, const struct terms *m, int k, int64_t base,
                         double *square)
{
    const int64_t *at = m->entry[k];
    if (!f->s->uniform) {
        for (int64_t i = 0; i < m->n; i++)
            square[i] = square_of(f, base + at[i]);
        return;
    }
    for (int64_t i = 0; i < m->n; i++) {
        double v = f->s->x[base + at[i]];
        square[i] = v * v;
    }
}

/* Walks all results and terms. give: adds to operand k's gain that of the result times the other
 * factor's square; otherwise returns the sum of these, each times the operand's own square. */
static double walk_terms(const struct pixels *p, const struct pixel_step *s, int k, bool give)
{
    const struct field *x = &s->in[k], *w = &s->in[1 - k];
    struct mem_mark mark = scratch_mark(p->t);
    struct terms m = terms_of(p->t, s->in, 2, s->u);
    double total = 0;
    int64_t at[MAX_RANK] = {0}, entry = 0, have = -1;
    double *square = scratch_array(p->t, (size_t)m.n, sizeof *square);
    double *other = scratch_array(p->t, (size_t)m.n, sizeof *other);
    do {
        int shift;
        int64_t xbase = field_entry(x, at, &shift), wbase = field_entry(w, at, &shift);
        double gain = s->out.s->gain[entry] * m.each * m.equal * m.equal;
        if (gain == 0)
            continue;
        if (!give && xbase != have)
            square_terms(x, &m, k, xbase, square);
        have = xbase;
        square_terms(w, &m, 1 - k, wbase, other);
        double *to = give ? x->s->gain + xbase : NULL;
        for (int64_t i = 0; i < m.n && give; i++)
            to[m.entry[k][i]] += gain * other[i];
        for (int64_t i = 0; i < m.n && !give; i++)
            total += gain * other[i] * square[i];
    } while (entry++, next_place(at, s->out.dim, s->out.ndim));
    scratch_release(p->t, mark);
    return total;
}

void pixels_contract_back(const struct pixels *p, const struct pixel_step *s)
{
    for (int k = 0; k < 2; k++)
        if (!s->in[k].s->uniform)
            walk_terms(p, s, k, true);
}

double pixels_contract_terms(const struct pixels *p, const struct pixel_step *s)
{
    return walk_terms(p, s, weight_of(s) == 0, false);
}

/* ----------------------------------------------------------------------------- other reductions */

struct field pixels_fold(struct pixels *p, struct uop *u)
{
    struct field in = *field_of(p, u->src[0]), out = {.ndim = u->ndim};
    uint32_t axes = REDUCE_AXES(u->arg.i);
    enum op op = REDUCE_OP(u->arg.i);
    fields_meet(p, &in, 1, axes, &out);
    for (int a = 0; a < u->ndim; a++)
        if (axes >> a & 1)
            out.dim[a] = 1, out.shift[a] = 0;
    own_store(p, &out, false);
    struct pixel_step *s = pixels_step(p, STEP_FOLD, u, &in, 1);
    s->out = out;
    if (p->full)
        return out;
    struct mem_mark mark = scratch_mark(p->t);
    struct terms m = terms_of(p->t, &in, 1, u);
    int64_t at[MAX_RANK] = {0}, entry = 0;
    do {
        int shift;
        int64_t base = field_entry(&in, at, &shift);
        float *y = out.s->x + entry * PIXELS, v[PIXELS];
        for (int64_t i = 0; i < m.n; i++) {
            field_read(&in, base + m.entry[0][i], m.shift[0][i], v);
            for (int k = 0; k < PIXELS; k++)
                y[k] = i == 0           ? v[k]
                       : op == OP_ADD   ? y[k] + v[k]
                       : op == OP_MAX   ? (v[k] > y[k] ? v[k] : y[k])
                       : op == OP_MIN   ? (v[k] < y[k] ? v[k] : y[k])
                       : op == OP_MUL   ? confine((double)y[k] * v[k])
                                        : (float)((int64_t)y[k] | (int64_t)v[k]);
        }
        for (int k = 0; k < PIXELS && op == OP_ADD; k++)
            y[k] = confine(m.each * m.equal * (double)y[k]);
    } while (entry++, next_place(at, out.dim, out.ndim));
    scratch_release(p->t, mark);
    return out;
}

/* A maximum has the error of the element that it selects. */
static void give_chosen(const struct field *in, const struct terms *m, int64_t base, double gain,
                        const float *y)
{
    float v[PIXELS];
    bool found[PIXELS] = {false};
    for (int64_t i = 0; i < m->n; i++) {
        int n = 0;
        field_read(in, base + m->entry[0][i], m->shift[0][i], v);
        for (int k = 0; k < PIXELS; k++) {
            n += !found[k] && v[k] == y[k];
            found[k] |= v[k] == y[k];
        }
        in->s->gain[base + m->entry[0][i]] += gain * n / PIXELS;
    }
}

void pixels_fold_back(const struct pixels *p, const struct pixel_step *s)
{
    const struct field *in = &s->in[0];
    enum op op = REDUCE_OP(s->u->arg.i);
    if (in->s->uniform || (op != OP_ADD && op != OP_MAX && op != OP_MIN && op != OP_MUL))
        return;
    struct mem_mark mark = scratch_mark(p->t);
    struct terms m = terms_of(p->t, in, 1, s->u);
    int64_t at[MAX_RANK] = {0}, entry = 0;
    do {
        int shift;
        int64_t base = field_entry(in, at, &shift);
        double gain = s->out.s->gain[entry];
        if (gain == 0)
            continue;
        if (op == OP_MAX || op == OP_MIN) {
            give_chosen(in, &m, base, gain, s->out.s->x + entry * PIXELS);
            continue;
        }
        /* Values that passed windows share causes with their neighbours: the variance of a sum over
         * N positions is between N (independent) and N^2 (fully correlated); the geometric mean is
         * taken. */
        gain *= m.each * m.equal * m.equal * sqrt(m.places);
        for (int64_t i = 0; i < m.n; i++)
            in->s->gain[base + m.entry[0][i]] += gain;
    } while (entry++, next_place(at, s->out.dim, s->out.ndim));
    scratch_release(p->t, mark);
}
