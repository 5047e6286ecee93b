/* lower_training.c - ai.onnx.preview.training: one step of an optimizer, for any number of tensors.
 *
 * Inputs: the learning rate r, the number t of the update, then for each role (the tensor x, its
 * gradient g, its states) all tensors of that role. Outputs: the new x of each tensor, then the new
 * states, by role. g' stands for the gradient with its regularization, norm_coefficient * x + g.
 */
#include <string.h>

#include "frontend/onnx/lower.h"

enum { MAX_STATES = 2 };
/* What one tensor's update starts from and makes. */
struct update { struct uop *r, *t, *x, *g, *state[MAX_STATES]; };

static struct uop *scaled(const struct node *n, struct uop *x, double by)
{
    return lib_binaryf(&n->lib, OP_MUL, x, by);
}

/* Whether this is not the first update. */
static struct uop *is_later(const struct node *n, const struct update *u)
{
    return uop_binary(n->t, OP_LT, uop_consti(n->t, u->t->dtype, 0), u->t);
}

static struct uop *regularized(const struct node *n, const struct update *u)
{
    return lib_add(&n->lib, scaled(n, u->x, node_float(n, "norm_coefficient", 0)), u->g);
}

/* h' = h + g'^2; x' = x - r / (1 + t * decay) * g' / (sqrt(h') + epsilon) */
static void adagrad(const struct node *n, struct update *u)
{
    const struct lib *l = &n->lib;
    struct uop *t = uop_cast(n->t, u->x->dtype, u->t), *g = regularized(n, u);
    struct uop *decay = scaled(n, t, node_float(n, "decay_factor", 0));
    struct uop *rate = lib_div(l, u->r, lib_binaryf(l, OP_ADD, decay, 1));
    struct uop *h = lib_add(l, u->state[0], lib_mul(l, g, g));
    struct uop *root = lib_binaryf(l, OP_ADD, lib_unary(l, OP_SQRT, h),
                                   node_float(n, "epsilon", 1e-6));
    u->x = lib_sub(l, u->x, lib_div(l, lib_mul(l, rate, g), root));
    u->state[0] = h;
}

/* v' = alpha v + (1 - alpha) g'; h' = beta h + (1 - beta) g'^2; x moves by r' v' / (sqrt(h') +
 * epsilon), where r' = r sqrt(1 - beta^t) / (1 - alpha^t) after the first update. */
static void adam(const struct node *n, struct update *u)
{
    const struct lib *l = &n->lib;
    double alpha = node_float(n, "alpha", 0.9), beta = node_float(n, "beta", 0.999);
    struct uop *g = regularized(n, u), *t = uop_cast(n->t, u->x->dtype, u->t);
    struct uop *one = lib_scalar(l, u->x, 1);
    struct uop *v = lib_add(l, scaled(n, u->state[0], alpha), scaled(n, g, 1 - alpha));
    struct uop *h = lib_add(l, scaled(n, u->state[1], beta),
                            scaled(n, lib_mul(l, g, g), 1 - beta));
    struct uop *root = lib_binaryf(l, OP_ADD, lib_unary(l, OP_SQRT, h),
                                   node_float(n, "epsilon", 1e-6));
    struct uop *alpha_t = lib_binary(l, OP_POW, lib_scalar(l, u->x, alpha), t);
    struct uop *beta_t = lib_binary(l, OP_POW, lib_scalar(l, u->x, beta), t);
    struct uop *unbias = lib_div(l, lib_unary(l, OP_SQRT, lib_sub(l, one, beta_t)),
                                 lib_sub(l, one, alpha_t));
    struct uop *rate = lib_where(l, is_later(n, u), lib_mul(l, u->r, unbias), u->r);
    struct uop *x = lib_sub(l, u->x, lib_mul(l, rate, lib_div(l, v, root)));
    u->x = scaled(n, x, 1 - node_float(n, "norm_coefficient_post", 0));
    u->state[0] = v;
    u->state[1] = h;
}

/* v' = alpha v + beta g', beta 1 at the first update; x' = x - r v', or by Nesterov x - r (g' +
 * alpha v'). */
static void momentum(const struct node *n, struct update *u, bool nesterov)
{
    const struct lib *l = &n->lib;
    double alpha = node_float(n, "alpha", 0);
    struct uop *g = regularized(n, u), *one = lib_scalar(l, u->x, 1);
    struct uop *beta = lib_where(l, is_later(n, u),
                                 lib_scalar(l, u->x, node_float(n, "beta", 0)), one);
    struct uop *v = lib_add(l, scaled(n, u->state[0], alpha), lib_mul(l, beta, g));
    struct uop *move = nesterov ? lib_add(l, g, scaled(n, v, alpha)) : v;
    u->x = lib_sub(l, u->x, lib_mul(l, u->r, move));
    u->state[0] = v;
}

bool lower_optimizer(struct node *n)
{
    enum onnx_optimizer kind = (enum onnx_optimizer)n->operator->param;
    int nstate = kind == ONNX_ADAM ? 2 : 1, nrole = 2 + nstate, count = (n->nin - 2) / nrole;
    const char *mode = node_string(n, "mode", "standard");
    bool nesterov = !strcmp(mode, "nesterov");
    if (kind == ONNX_MOMENTUM && !nesterov && strcmp(mode, "standard"))
        return node_error(n, -1, "mode must be standard or nesterov, found '%s'", mode);
    if ((n->nin - 2) % nrole || n->nout > count * (nrole - 1))
        return node_error(n, -1, "has %d inputs and %d outputs; expected R, T, %d tensors for each "
                          "tensor to update, and %d results", n->nin, n->nout, nrole, nrole - 1);
    for (int i = 0; i < count; i++) {
        struct update u = {.t = node_scalar(n, 1)};
        struct uop *rate = node_scalar(n, 0);
        for (int role = 0; role < nrole; role++) {
            int k = 2 + role * count + i;
            if (!n->in[k])
                return node_error(n, k, "input %d is missing", k);
            if (!node_same_dtype(n, 2, k))
                return false;
            *(role == 0 ? &u.x : role == 1 ? &u.g : &u.state[role - 2]) = n->in[k];
        }
        if (!rate || !u.t)
            return false;
        u.r = lib_cast(&n->lib, u.x->dtype, rate);
        switch (kind) {
        case ONNX_ADAGRAD: adagrad(n, &u); break;
        case ONNX_ADAM: adam(n, &u); break;
        case ONNX_MOMENTUM: momentum(n, &u, nesterov); break;
        }
        for (int role = 0; role <= nstate; role++) {
            int k = role * count + i;
            if (k < n->nout && !node_set(n, k, role ? u.state[role - 1] : u.x))
                return false;
        }
    }
    return true;
}
