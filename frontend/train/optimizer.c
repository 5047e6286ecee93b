/* optimizer.c - one step of each optimizer, as tensor uops over a whole parameter.
 *
 * Biases and norms, tensors of rank 1 and 0, have no weight decay. A mean m of decay b, which
 * begins with 0, is divided by 1 - b^step, the sum of its weights so far.
 * source: Kingma and Ba, Adam, 2015; Loshchilov and Hutter, Decoupled Weight Decay, 2019; You et
 * al., LAMB, 2020; Jordan et al., Muon, 2024
 */
#include "frontend/train/train.h"

#include <math.h>

struct step {
    const struct lib *l;
    const struct optimizer_options *o;
    const struct step_inputs *in;
    struct uop *x, *g, **state;
};

static double setting(const struct step *s, enum optimizer_setting which)
{
    return s->o->setting[which];
}

static struct uop *scaled(const struct step *s, struct uop *x, double by)
{
    return lib_binaryf(s->l, OP_MUL, x, by);
}

static struct uop *plus(const struct step *s, struct uop *x, double v)
{
    return lib_binaryf(s->l, OP_ADD, x, v);
}

static bool decays(const struct step *s) { return s->x->ndim >= 2; }

/* v = b v + (1 - b) y */
static struct uop *mean(const struct step *s, struct uop *v, struct uop *y, double b)
{
    return lib_add(s->l, scaled(s, v, b), scaled(s, y, 1 - b));
}

static struct uop *unbiased(const struct step *s, struct uop *v, double b)
{
    struct uop *power = lib_binary(s->l, OP_POW, lib_scalar(s->l, s->in->number, b),
                                   s->in->number);
    return lib_div(s->l, v, lib_sub(s->l, lib_scalar(s->l, power, 1), power));
}

static void move(struct step *s, struct uop *by)
{
    s->x = lib_sub(s->l, s->x, lib_mul(s->l, s->in->learning_rate, by));
}

/* x shrinks by the learning rate times the decay. */
static void shrink(struct step *s)
{
    const struct lib *l = s->l;
    struct uop *share = lib_mul(l, s->in->learning_rate, s->in->weight_decay);
    if (decays(s))
        s->x = lib_mul(l, s->x, lib_sub(l, lib_scalar(l, share, 1), share));
}

static void add_decay(struct step *s)
{
    if (decays(s))
        s->g = lib_add(s->l, s->g, lib_mul(s->l, s->in->weight_decay, s->x));
}

/* m = momentum m + y: what the step is then */
static struct uop *with_momentum(const struct step *s, struct uop **m, struct uop *y)
{
    double momentum = setting(s, SETTING_MOMENTUM);
    if (momentum == 0)
        return y;
    *m = lib_add(s->l, scaled(s, *m, momentum), y);
    return setting(s, SETTING_NESTEROV) != 0 ? lib_add(s->l, y, scaled(s, *m, momentum)) : *m;
}

static void sgd(struct step *s)
{
    add_decay(s);
    move(s, with_momentum(s, &s->state[0], s->g));
}

static struct uop *over_root(const struct step *s, struct uop *y, struct uop *v)
{
    return lib_div(s->l, y, plus(s, lib_unary(s->l, OP_SQRT, v), setting(s, SETTING_EPSILON)));
}

static struct uop *adam_direction(struct step *s)
{
    double b1 = setting(s, SETTING_BETA1), b2 = setting(s, SETTING_BETA2);
    s->state[0] = mean(s, s->state[0], s->g, b1);
    s->state[1] = mean(s, s->state[1], lib_mul(s->l, s->g, s->g), b2);
    return over_root(s, unbiased(s, s->state[0], b1), unbiased(s, s->state[1], b2));
}

static void adam(struct step *s)
{
    add_decay(s);
    move(s, adam_direction(s));
}

static void adamw(struct step *s)
{
    shrink(s);
    move(s, adam_direction(s));
}

static void rmsprop(struct step *s)
{
    add_decay(s);
    s->state[1] = mean(s, s->state[1], lib_mul(s->l, s->g, s->g), setting(s, SETTING_BETA2));
    move(s, with_momentum(s, &s->state[0], over_root(s, s->g, s->state[1])));
}

static void adagrad(struct step *s)
{
    add_decay(s);
    s->state[0] = lib_add(s->l, s->state[0], lib_mul(s->l, s->g, s->g));
    move(s, over_root(s, s->g, s->state[0]));
}

static struct uop *norm(const struct step *s, struct uop *x)
{
    struct uop *squares = lib_mul(s->l, x, x);
    return lib_unary(s->l, OP_SQRT, x->ndim ? tensor_sum(s->l->t, squares, lib_all_axes(x), false)
                                            : squares);
}

static void lamb(struct step *s)
{
    const struct lib *l = s->l;
    struct uop *by = adam_direction(s), *one = lib_scalar(l, s->x, 1);
    if (decays(s))
        by = lib_add(l, by, lib_mul(l, s->in->weight_decay, s->x));
    struct uop *size = norm(s, s->x), *moved = norm(s, by);
    struct uop *none = lib_binary(l, OP_OR, lib_binaryf(l, OP_EQ, size, 0),
                                  lib_binaryf(l, OP_EQ, moved, 0));
    move(s, lib_mul(l, by, lib_where(l, none, one, lib_div(l, size, moved))));
}

/* The orthogonal factor of m [rows, cols], nearly: Newton-Schulz by a polynomial of degree 5 whose
 * slope at 0 is large. */
static struct uop *orthogonal(const struct step *s, struct uop *m)
{
    static const double a = 3.4445, b = -4.7750, c = 2.0315;
    const struct lib *l = s->l;
    int64_t rows, cols, swap[2] = {1, 0};
    bool is_tall = uop_const_int(m->dim[0], &rows) && uop_const_int(m->dim[1], &cols) &&
                   rows > cols;
    struct uop *x = is_tall ? lib_permute(l, m, swap, 2) : m;
    x = lib_div(l, x, plus(s, norm(s, x), 1e-7));
    for (int i = 0; i < (int)setting(s, SETTING_STEPS); i++) {
        struct uop *square = lib_matmul(l, x, lib_permute(l, x, swap, 2));
        struct uop *fourth = scaled(s, lib_matmul(l, square, square), c);
        struct uop *p = lib_add(l, scaled(s, square, b), fourth);
        x = lib_add(l, scaled(s, x, a), lib_matmul(l, p, x));
    }
    return is_tall ? lib_permute(l, x, swap, 2) : x;
}

static void muon(struct step *s)
{
    const struct lib *l = s->l;
    int64_t rows, n;
    struct uop *x = s->x;
    if (x->ndim < 2) {
        struct step_inputs slower = *s->in;
        slower.learning_rate = scaled(s, slower.learning_rate, 0.1);
        s->in = &slower;
        adamw(s);
        return;
    }
    struct uop *flat[2] = {x->dim[0], sym_prod(l->t, x->dim + 1, x->ndim - 1)};
    struct uop *by = with_momentum(s, &s->state[0], s->g);
    by = orthogonal(s, uop_reshape(l->t, by, flat, 2));
    bool is_tall = uop_const_int(flat[0], &rows) && uop_const_int(flat[1], &n) && rows > n && n > 0;
    if (is_tall)
        by = scaled(s, by, sqrt((double)rows / (double)n));
    shrink(s);
    move(s, uop_reshape(l->t, by, x->dim, x->ndim));
}

bool optimizer_step(const struct lib *l, const struct optimizer_options *o,
                    const struct step_inputs *in, struct uop **x, struct uop *g,
                    struct uop **state)
{
    static void (*const steps[])(struct step *) = {
        [OPTIMIZER_SGD] = sgd,         [OPTIMIZER_ADAM] = adam,       [OPTIMIZER_ADAMW] = adamw,
        [OPTIMIZER_RMSPROP] = rmsprop, [OPTIMIZER_ADAGRAD] = adagrad, [OPTIMIZER_LAMB] = lamb,
        [OPTIMIZER_MUON] = muon,
    };
    struct step s = {.l = l, .o = o, .in = in, .x = *x, .g = g, .state = state};
    steps[o->kind](&s);
    *x = s.x;
    return *x != NULL;
}
