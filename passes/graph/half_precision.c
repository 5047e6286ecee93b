/* half_precision.c - models in f16 are computed in f32.
 *
 *      f16(f16(a + b) * c)          ->     f16((f32(a) + f32(b)) * f32(c))
 *
 * Arithmetic on halves is done in f32 anyway, and then rounded. Here a value is rounded only where
 * it leaves the model, or where it has to be a half: weights that are read once or twice a run,
 * which take half the memory traffic, inputs, carried values of loops. C calls this excess
 * precision: results are nearer to the exact ones than those of the model's own ops. As in C, it
 * ends where the model asks for a half, by a Cast: values rounded there stay rounded, unless
 * --fast-math allows otherwise; nor are sizes that a model computes in halves computed otherwise.
 * (Not for bf16, since onnx's tests expect the rounding of each op; but by --math=bf16 for
 * attention's softmax on a device that multiplies matrices of bf16, whose kernel keeps its scores
 * in f32.)
 *
 * Weights that a sum of products reuses are stored as f32: there the products take the time, and
 * Winograd's transforms and lookup tables need floats. For a device with an instruction for
 * products of halves (passes/target/matrix.def) factors stay halves, as the model has them: the sum
 * is in f32. What is a factor and is read elsewhere, too, is rounded once for both, and so are the
 * results of two layers that are added: one of them is stored. Factors that are halves times
 * numbers (attention's queries and keys times the root of its scale) stay those halves, and the sum
 * is multiplied. Quantized weights whose scales are halves (MatMulNBits) are halves as factors,
 * too, where they are read again.
 */
#include "passes/analysis/contraction.h"
#include "passes/analysis/softmax.h"
#include "passes/analysis/stationary.h"
#include "passes/analysis/value.h"
#include "passes/target/target.h"

#include <string.h>

enum { REUSE_MIN = 8, MOVES_MAX = 8 };

struct excess {
    struct tgc *t;
    struct uop_map asked;        /* casts to halves from the model, rewritten */
    struct uop **order; int next;   /* the model's uops, in the order in which they are rewritten */
    struct uop_map factor;       /* casts of halves, among them, that an instruction multiplies */
    struct uop_map dequantized;  /* weights, among them, that are halves for an instruction */
    struct uop_map stored;       /* halves, among them, that are stored as such */
    struct uop_map softmax;      /* what is between two sums of products of bf16 that an
                                  * instruction computes */
    bool of_softmax;             /* the one that is rewritten is of these */
};

/* bf16: where the uop that is rewritten is a part of attention's softmax. */
static bool is_half(const struct excess *x, enum dtype d)
{
    return d == DTYPE_F16 || (d == DTYPE_BF16 && x->of_softmax);
}

static bool is_rounding(const struct uop *u)
{
    return u->op == OP_CAST && dtype_is_half(u->dtype) && u->src[0]->dtype == DTYPE_F32;
}

/* The f32 from which u was only rounded; NULL: there is none. */
static struct uop *unrounded(const struct excess *x, struct uop *u)
{
    return is_rounding(u) && is_half(x, u->dtype) && !map_get(&x->asked, u) ? u->src[0] : NULL;
}

/* Whether the node from which u was lowered is a cast. A derivative's rounding is not asked for. */
static bool is_asked_for(struct tgc *t, const struct uop *u)
{
    const struct origin *o = uop_get_origin(t, u);
    return is_rounding(u) && o && !uop_is_adjoint(t, u) && !t->fast_math &&
           (!strcmp(o->op_type, "Cast") || !strcmp(o->op_type, "CastLike") ||
            !strcmp(o->op_type, "cast"));
}

/* A half as f32. An operand of a window is converted once, before the window. */
static struct uop *converted(struct tgc *t, struct uop *u)
{
    struct uop *move[MOVES_MAX], *x = u;
    int n = 0, nbelow = 0;
    while (n < MOVES_MAX && op_class(x->op) == CLASS_MOVE && x->nsrc > 0 && x->op != OP_CONCAT) {
        move[n++] = x;
        if (x->op == OP_WINDOW || (x->op == OP_PAD && nbelow))
            nbelow = n;
        x = x->src[0];
    }
    x = nbelow ? move[nbelow - 1]->src[0] : u;
    if (nbelow && value_is_stationary(x))
        return uop_cast(t, DTYPE_F32, u);
    x = uop_cast(t, DTYPE_F32, x);
    while (nbelow-- > 0) {
        const struct uop *m = move[nbelow];
        struct uop **src = mem_copy(t, m->src, (size_t)m->nsrc * sizeof *src);
        src[0] = x;
        if (m->op == OP_PAD)
            src[1] = uop_cast(t, DTYPE_F32, src[1]);
        x = uop_new(t, m->op, DTYPE_F32, src, m->nsrc, m->arg);
    }
    return x;
}

static struct uop *widened(const struct excess *e, struct uop *u)
{
    struct uop *x = unrounded(e, u);
    return !is_half(e, u->dtype) ? u : x ? x : converted(e->t, u);
}

/* ------------------------------------------------------------------------------------ the steps */

static struct uop *compute_wide(const struct excess *e, struct uop *u)
{
    struct tgc *t = e->t;
    struct uop *src[3];
    bool any = is_half(e, u->dtype);
    for (int k = 0; k < u->nsrc; k++) {
        any |= is_half(e, u->src[k]->dtype);
        src[k] = widened(e, u->src[k]);
    }
    if (!any || u->op == OP_BITCAST)
        return NULL;
    enum dtype d = is_half(e, u->dtype) ? DTYPE_F32 : u->dtype;
    struct uop *v = uop_new(t, u->op, d, src, u->nsrc, u->arg);
    uop_set_origin(t, v, u);
    return uop_cast(t, u->dtype, v);
}

/* Moves a rounded value as f32 and rounds it afterwards. */
static struct uop *move_wide(const struct excess *e, struct uop *u)
{
    struct tgc *t = e->t;
    struct uop **src = mem_copy(t, u->src, (size_t)u->nsrc * sizeof *src);
    int n = u->op == OP_CONCAT ? u->nsrc : u->op == OP_PAD ? 2 : 1;
    bool any = false;
    for (int k = 0; k < n; k++) {
        any |= unrounded(e, u->src[k]) != NULL;
        src[k] = widened(e, u->src[k]);
    }
    return any ? uop_cast(t, u->dtype, uop_new(t, u->op, DTYPE_F32, src, u->nsrc, u->arg)) : NULL;
}

/* The factor u, a half as f32: what it is a view of is rounded, once, before windows
 * repeat its elements. */
static struct uop *rounded_factor(const struct excess *e, struct uop *u)
{
    struct uop *x = unrounded(e, u->src[0]);
    if (!x)
        return NULL;
    struct path p = path_down(x, MOVES_VIEW | MOVES_ZEROS);
    return uop_cast(e->t, DTYPE_F32, path_up(e->t, &p, uop_cast(e->t, DTYPE_F16, p.base)));
}

/* The halves, as f32, that the factor u has been before it was multiplied by a number and rounded;
 * *by: times that. NULL: it is no such factor. */
static struct uop *before_scale(const struct excess *e, struct uop *u, double *by)
{
    struct path outer = path_down(u, MOVES_VIEW | MOVES_ZEROS);
    if (outer.base->op != OP_CAST || outer.base->dtype != DTYPE_F32 ||
        !is_half(e, outer.base->src[0]->dtype))
        return NULL;
    struct path inner = path_down(outer.base->src[0], MOVES_VIEW | MOVES_ZEROS);
    /* bf16 is not computed in f32 in front of the scores */
    bool is_wide = outer.base->src[0]->dtype == DTYPE_F16;
    struct uop *product = is_wide ? unrounded(e, inner.base) : inner.base;
    for (int k = 0; product && product->op == OP_MUL && k < 2; k++) {
        const struct uop *number = value_behind(product->src[1 - k], MOVES_SPREAD),
                         *half = value_behind(product->src[k], MOVES_ANY);
        if (number->op != OP_CONST ||
            (is_wide && (half->op != OP_CAST || half->src[0]->dtype != DTYPE_F16)))
            continue;
        *by *= number->arg.f;
        return path_up(
            e->t, &outer,
            path_up(e->t, &inner,
                    is_wide ? product->src[k] : uop_cast(e->t, DTYPE_F32, product->src[k])));
    }
    return NULL;
}

/* The sum of products of halves, times what its factors were multiplied by. NULL: they were not. */
static struct uop *scaled_sum(const struct excess *e, struct uop *u)
{
    struct tgc *t = e->t;
    struct path p = path_down(u->src[0], MOVES_VIEW);
    double by = 1;
    if (p.base->op != OP_MUL || u->dtype != DTYPE_F32 || REDUCE_OP(u->arg.i) != OP_ADD)
        return NULL;
    struct uop *x = before_scale(e, p.base->src[0], &by), *y = before_scale(e, p.base->src[1], &by);
    if (!x && !y)
        return NULL;
    struct uop *product = uop_binary(t, OP_MUL, x ? x : p.base->src[0], y ? y : p.base->src[1]);
    struct uop *sum = uop_reduce(t, OP_ADD, path_up(t, &p, product), REDUCE_AXES(u->arg.i));
    uop_set_origin(t, sum, u);
    return tensor_binary(t, OP_MUL, sum, uop_constf(t, DTYPE_F32, by));
}

static struct uop *rewrite_one(struct tgc *t, struct excess *e, const struct uop *was,
                               struct uop *u)
{
    e->of_softmax = map_get(&e->softmax, was) != NULL;
    if (map_get(&e->factor, was))
        return rounded_factor(e, u);
    if (map_get(&e->dequantized, was))
        return uop_cast(t, DTYPE_F32, uop_cast(t, DTYPE_F16, u));
    bool is_size = is_half(e, u->dtype) && uop_is_of_symbols(u);
    if (is_asked_for(t, u) || (is_size && u->op == OP_CAST))
        map_set(&e->asked, u, u);
    if (is_size)
        return NULL;
    if (u->op == OP_CAST)
        return u->dtype == DTYPE_F32 && is_half(e, u->src[0]->dtype) ? widened(e, u->src[0]) : NULL;
    if (op_is_elementwise(u->op))
        return compute_wide(e, u);
    if (u->op == OP_REDUCE && device_multiplies(t, DTYPE_F16) && u->dtype == DTYPE_F32)
        return scaled_sum(e, u);
    if (!is_half(e, u->dtype) || u->nsrc == 0)
        return NULL;
    if (u->op == OP_REDUCE)
        return uop_cast(t, u->dtype, uop_reduce(t, REDUCE_OP(u->arg.i), widened(e, u->src[0]),
                                                REDUCE_AXES(u->arg.i)));
    bool moves = op_class(u->op) == CLASS_MOVE && u->op != OP_IOTA;
    moves |= u->op == OP_CONTIGUOUS || u->op == OP_AFTER || u->op == OP_INDEX;
    return moves ? move_wide(e, u) : NULL;
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    struct excess *e = ctx;
    const struct uop *was = e->order[e->next++];
    struct uop *now = rewrite_one(t, e, was, u), *value = now ? now : u;
    if (map_get(&e->stored, was) && is_rounding(value))
        map_set(&e->asked, value, value);
    return now;
}

/* ---------------------------------------------------------------------------------- the weights */

struct weights { struct uop_map again; };

/* Finds the weights under sums of products that read each element at least REUSE_MIN times. */
static void find_reused(struct tgc *t, struct graph *g, struct weights *w)
{
    int n, nroot;
    struct uop **root = graph_roots(t, g, &nroot), **order = uop_toposort(t, root, nroot, &n);
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        const struct uop *m = u->op == OP_REDUCE ? value_behind(u->src[0], MOVES_OPERAND) : u;
        for (int k = 0; u->op == OP_REDUCE && m->op == OP_MUL && k < 2; k++) {
            const struct uop *v = value_behind(m->src[k], MOVES_OPERAND);
            if (v->op == OP_BUFFER && v->dtype == DTYPE_F16 &&
                value_nelem(m) >= REUSE_MIN * value_nelem(v))
                map_set(&w->again, v, u);
        }
    }
}

static struct uop *store_wide(struct tgc *t, void *ctx, struct uop *u)
{
    const struct weights *w = ctx;
    const struct buffer *b = u->dtype == DTYPE_F16 ? known_buffer(u) : NULL;
    int64_t dim[MAX_RANK], nelem = 1;
    if (!b || !map_get(&w->again, u))
        return NULL;
    for (int a = 0; a < u->ndim; a++) {
        if (!uop_const_int(u->dim[a], &dim[a]))
            return NULL;
        nelem = sat_mul(nelem, dim[a]);
    }
    float *to = mem_array(t, (size_t)nelem, sizeof *to);
    for (int64_t i = 0; i < nelem; i++)
        to[i] = (float)scalar_load(u->dtype, (const char *)b->weight.data + 2 * i).f;
    struct uop *wide =
        tensor_from_data(t, DTYPE_F32, dim, u->ndim, to, (size_t)nelem * sizeof *to, b->name);
    return uop_cast(t, u->dtype, tensor_made_of(wide, b, "widened to f32, read often"));
}

/* Whether v is made of integers and halves: known numbers less others, times scales;
 * *scaled: of a half. */
static bool is_dequantized(struct uop *v, int depth, bool *scaled)
{
    v = value_behind(v, MOVES_ANY);
    bool half = v->op == OP_CAST && v->src[0]->dtype == DTYPE_F16;
    *scaled |= half;
    if (v->op == OP_CONST || (v->op == OP_CAST && (half || dtype_is_int(v->src[0]->dtype))))
        return value_is_stationary(v);
    return depth > 0 && (v->op == OP_MUL || v->op == OP_SUB) &&
           is_dequantized(v->src[0], depth - 1, scaled) &&
           is_dequantized(v->src[1], depth - 1, scaled);
}

/* Quantized weights with scales of halves, times halves, each read so often that an instruction for
 * matrices of halves may multiply them. */
static void find_dequantized(struct excess *e, const struct uop *product)
{
    enum { DEPTH = 3 };
    for (int k = 0; k < 2; k++) {
        const struct uop *other = value_behind(product->src[1 - k], MOVES_ANY);
        struct uop *v = value_behind(product->src[k], MOVES_ANY);
        bool scaled = false;
        if (other->op == OP_CAST && other->src[0]->dtype == DTYPE_F16 && v->op == OP_MUL &&
            v->dtype == DTYPE_F32 && is_dequantized(v, DEPTH, &scaled) && scaled &&
            value_nelem(product) >= REUSE_MIN * value_nelem(v))
            map_set(&e->dequantized, v, v);
    }
}

/* Casts from which the factors of a sum of products are made by movement, and
 * dequantized weights. */
static void find_factors(struct excess *e, int n)
{
    for (int i = 0; i < n && device_multiplies(e->t, DTYPE_F16); i++) {
        const struct uop *m =
            e->order[i]->op == OP_REDUCE ? value_behind(e->order[i]->src[0], MOVES_VIEW) : NULL;
        if (m && m->op == OP_MUL && REDUCE_OP(e->order[i]->arg.i) == OP_ADD)
            find_dequantized(e, m);
        for (int k = 0; m && m->op == OP_MUL && REDUCE_OP(e->order[i]->arg.i) == OP_ADD && k < 2;
             k++) {
            struct uop *v = value_behind(m->src[k], MOVES_ANY);
            if (v->op == OP_CAST && v->dtype == DTYPE_F32 && v->src[0]->dtype == DTYPE_F16)
                map_set(&e->factor, v, v);
        }
    }
}

/* How many of the model's uops read each, in e->order. */
struct reads { int n; };

static struct uop_map count_reads(const struct excess *e, int n)
{
    struct uop_map reads = {.t = e->t, .scratch = true};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < e->order[i]->nsrc; k++) {
            struct reads *of = map_get(&reads, e->order[i]->src[k]);
            if (!of) {
                of = scratch_array(e->t, 1, sizeof *of);
                map_set(&reads, e->order[i]->src[k], of);
            }
            of->n++;
        }
    return reads;
}

static bool is_read_again(const struct uop_map *reads, const struct uop *u)
{
    const struct reads *of = map_get(reads, u);
    return of && of->n > 1;
}

/* Whether u is made of a layer's result, which nothing else reads on the way. */
static bool is_of_layer(const struct uop_map *reads, const struct uop *u)
{
    while ((op_is_elementwise(u->op) || op_class(u->op) == CLASS_MOVE) && u->nsrc > 0 &&
           !is_read_again(reads, u)) {
        int k = u->nsrc > 1 && value_is_stationary(u->src[0]) ? 1 : 0;
        if (u->nsrc > 1 && op_is_elementwise(u->op) && !value_is_stationary(u->src[1 - k]))
            return false;
        u = u->src[k];
    }
    const struct uop *product = summed_product_behind(u, MOVES_VIEW);
    return product && (value_is_stationary(value_behind(product->src[0], MOVES_OPERAND)) ||
                       value_is_stationary(value_behind(product->src[1], MOVES_OPERAND)));
}

/* What a pooling's windows are of. NULL: u is none. */
static struct uop *pooled(struct uop *u)
{
    bool windows = false;
    if (u->op != OP_REDUCE || u->dtype != DTYPE_F16)
        return NULL;
    for (u = u->src[0]; move_is(u, MOVES_ANY); u = u->src[0])
        windows |= u->op == OP_WINDOW;
    return windows ? u : NULL;
}

static void add_stored(struct excess *e, struct uop *u)
{
    if (u && u->dtype == DTYPE_F16)
        map_set(&e->stored, u, u);
}

/* Halves that a kernel stores for others: factors that are read elsewhere, too; what windows read
 * again; of two layers whose results are added, each. */
static void find_stored(struct excess *e, int n)
{
    struct uop_map reads = count_reads(e, n);
    for (int i = 0; i < n && device_multiplies(e->t, DTYPE_F16); i++) {
        struct uop *u = e->order[i];
        struct uop *base = map_get(&e->factor, u) ? value_behind(u->src[0], MOVES_ANY) : NULL;
        add_stored(e, base && is_read_again(&reads, base) ? base : pooled(u));
        for (int k = 0; k < 2 && u->nsrc == 2 && op_is_elementwise(u->op) &&
                        is_of_layer(&reads, u->src[0]) && is_of_layer(&reads, u->src[1]);
             k++)
            add_stored(e, u->src[k]);
    }
}

/* u and what it is computed from in bf16, down to sums of products, and these, whose factors may
 * have been multiplied by a number. */
static void add_softmax(struct excess *e, struct uop *u)
{
    struct uop **wait = scratch_array(e->t, 1, sizeof *wait);
    int n = 0;
    size_t cap = 0;
    SCRATCH_PUSH(e->t, wait, n, cap, u);
    while (n > 0) {
        u = wait[--n];
        bool ends = summed_product(u), inside = op_is_elementwise(u->op) ||
                                                op_class(u->op) == CLASS_MOVE ||
                                                (u->op == OP_REDUCE && !ends);
        if ((!inside && !(ends && u->dtype == DTYPE_F32)) || map_get(&e->softmax, u))
            continue;
        map_set(&e->softmax, u, u);
        for (int k = 0; k < u->nsrc && !ends; k++)
            SCRATCH_PUSH(e->t, wait, n, cap, u->src[k]);
    }
}

/* Attention's softmaxes of bf16, between two sums of products that an instruction computes: there
 * --math=bf16 lets factors alone be rounded. */
static void find_softmaxes(struct excess *e, int n)
{
    for (int i = 0; i < n && e->t->math == DTYPE_BF16 && device_multiplies(e->t, DTYPE_BF16); i++)
        for (int k = 0; k < 2; k++) {
            const struct uop *product = summed_product(e->order[i]);
            if (product && softmax_is_weight(product->src[k]))
                add_softmax(e, value_behind(product->src[k], MOVES_SPREAD | MOVES_CAST));
        }
}

bool pass_half_precision(struct tgc *t, struct graph *g)
{
    struct weights w = {.again = {.t = t}};
    struct excess e = {.t = t,
                       .asked = {.t = t},
                       .factor = {.t = t},
                       .dequantized = {.t = t},
                       .stored = {.t = t},
                       .softmax = {.t = t}};
    int nroot, n;
    if (!device_multiplies(t, DTYPE_F16)) {
        find_reused(t, g, &w);
        graph_rewrite(t, g, store_wide, &w);
    }
    struct uop **root = graph_roots(t, g, &nroot);
    e.order = uop_toposort(t, root, nroot, &n);
    find_factors(&e, n);
    find_stored(&e, n);
    find_softmaxes(&e, n);
    graph_rewrite(t, g, rewrite, &e);
    return true;
}
