/* lower_rnn.c - LSTM, GRU, RNN: attributes and operands for lib_rnn(). */
#include <string.h>
#include <strings.h>

#include "frontend/onnx/lower.h"

bool activation_by_name(const char *name, enum activation *a)
{
    static const struct {
        const char *name;
        enum activation a;
    } names[] = {
        {"Relu", ACTIVATION_RELU},
        {"Tanh", ACTIVATION_TANH},
        {"Sigmoid", ACTIVATION_SIGMOID},
        {"Affine", ACTIVATION_AFFINE},
        {"LeakyRelu", ACTIVATION_LEAKY_RELU},
        {"ThresholdedRelu", ACTIVATION_THRESHOLDED_RELU},
        {"ScaledTanh", ACTIVATION_SCALED_TANH},
        {"HardSigmoid", ACTIVATION_HARD_SIGMOID},
        {"Elu", ACTIVATION_ELU},
        {"Selu", ACTIVATION_SELU},             /* of fused nodes alone */
        {"Softsign", ACTIVATION_SOFTSIGN},
        {"Softplus", ACTIVATION_SOFTPLUS},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcasecmp(name, names[i].name)) {
            *a = names[i].a;
            return true;
        }
    return false;
}

/* alpha and beta are lists for those activations that take them, in order. */
static bool rnn_activations(const struct node *n, struct rnn_attr *a, int ndirection)
{
    static const int each[] = {[RNN_LSTM] = 3, [RNN_GRU] = 2, [RNN_PLAIN] = 1};
    const char *const *name;
    const float *alpha, *beta;
    int count = onnx_attr_strings(lower_model(n->lower), n->proto, "activations", &name),
        used_alpha = 0, used_beta = 0;
    int nalpha = node_floats(n, "activation_alpha", &alpha),
        nbeta = node_floats(n, "activation_beta", &beta);
    if (count <= 0)
        return true;
    if (count != each[a->kind] * ndirection)
        return node_error(n, -1, "%d activations are expected, found %d",
                          each[a->kind] * ndirection, count);
    a->nactivation = count;
    for (int i = 0; i < count; i++) {
        struct rnn_activation *r = &a->activation[i];
        if (!activation_by_name(name[i], &r->kind))
            return node_error(n, -1, "activation '%s' is not supported", name[i]);
        const struct activation_info *info = lib_activation_info(r->kind);
        r->alpha =
            info->nparam > 0 && used_alpha < nalpha ? (double)alpha[used_alpha++] : info->alpha;
        r->beta = info->nparam > 1 && used_beta < nbeta ? (double)beta[used_beta++] : info->beta;
    }
    return true;
}

bool rnn_attributes(const struct node *n, enum rnn_kind kind, struct rnn_attr *a)
{
    static const char *const directions[] = {[RNN_FORWARD] = "forward",
                                             [RNN_REVERSE] = "reverse",
                                             [RNN_BIDIRECTIONAL] = "bidirectional"};
    const char *direction = node_string(n, "direction", "forward");
    bool found = false;
    *a = (struct rnn_attr){.kind = kind};
    for (int i = 0; i < 3; i++)
        if (!strcmp(direction, directions[i])) {
            a->direction = (enum rnn_direction)i;
            found = true;
        }
    if (!found)
        return node_error(n, -1,
                          "direction '%s' is not supported; forward, reverse and bidirectional are",
                          direction);
    a->clip = node_float(n, "clip", 0);
    a->input_forget = node_int(n, "input_forget", 0) != 0;
    a->linear_before_reset = node_int(n, "linear_before_reset", 0) != 0;
    a->batch_first = node_int(n, "layout", 0) != 0;
    return rnn_activations(n, a, a->direction == RNN_BIDIRECTIONAL ? 2 : 1);
}

/* hidden_size only repeats what R says. */
static bool check_hidden_size(const struct node *n, const struct uop *r)
{
    int64_t want = node_int(n, "hidden_size", -1), have;
    if (want < 0 || r->ndim != 3 || !uop_const_int(r->dim[2], &have) || have == want)
        return true;
    return node_error(n, 2, "hidden_size is %lld, but the weights are %s", (long long)want,
                      shape_text(n, r));
}

bool lower_rnn(struct node *n)
{
    struct rnn_attr a;
    struct rnn_operands in = {.x = n->in[0],
                              .w = n->in[1],
                              .r = n->in[2],
                              .bias = n->in[3],
                              .seq_lens = n->in[4],
                              .h0 = n->in[5]};
    if (n->operator->param == RNN_LSTM) {
        in.c0 = n->in[6];
        in.peephole = n->in[7];
    }
    return rnn_attributes(n, (enum rnn_kind)n->operator->param, &a) &&
           check_hidden_size(n, n->in[2]) && lib_rnn(&n->lib, &a, &in, n->out);
}

/* ------------------------------------------------------------ com.microsoft.DynamicQuantizeLSTM */

/* Row d of a [directions, ...] operand, without that axis; NULL if it is absent. */
static struct uop *of_direction(const struct node *n, int k, int d)
{
    return n->in[k] ? node_slice_at(n, n->in[k], 0, uop_int(n->t, d)) : NULL;
}

/* i o f g = sigmoid sigmoid sigmoid tanh of four parts of z [b, 4h]; c = f c + i g; h = o tanh(c)
 */
static bool lstm_cell(const struct node *n, struct uop *z, struct uop **h, struct uop **c)
{
    const struct lib *l = &n->lib;
    struct uop *size = (*h)->dim[1], *gate[4];
    for (int k = 0; k < 4; k++) {
        gate[k] = lib_narrow(l, z, 1, sym_muli(n->t, size, k), size);
        gate[k] = lib_activate(l, k == 3 ? ACTIVATION_TANH : ACTIVATION_SIGMOID, gate[k], 0, 0);
    }
    *c = lib_add(l, lib_mul(l, gate[2], *c), lib_mul(l, gate[0], gate[3]));
    *h = lib_mul(l, gate[1], lib_activate(l, ACTIVATION_TANH, *c, 0, 0));
    return *h != NULL;
}

static bool quantized_direction(const struct node *n, int d, bool reverse, struct uop **y,
                                struct uop **last_h, struct uop **last_c)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    struct uop *x = n->in[0], *bias = of_direction(n, 3, d), *w[2], *scale[2], *zero[2];
    for (int i = 0; i < 2; i++) {
        w[i] = of_direction(n, 1 + i, d);
        scale[i] = of_direction(n, 8 + 2 * i, d);
        zero[i] = of_direction(n, 9 + 2 * i, d);
        if (!w[i] || !scale[i] || !zero[i])
            return false;
    }
    struct uop *size = w[1]->dim[0], *dim[2] = {x->dim[1], size}, *four = sym_muli(t, size, 4);
    struct uop *xw = quantized_product(n, x, w[0], scale[0], zero[0]);
    if (bias)
        xw = lib_add(l, xw,
                     lib_add(l, lib_narrow(l, bias, 0, uop_int(t, 0), four),
                             lib_narrow(l, bias, 0, four, four)));
    struct uop *h0 = of_direction(n, 5, d), *c0 = of_direction(n, 6, d);
    struct uop *init[2] = {h0 ? h0 : lib_full(l, x->dtype, 0, dim, 2),
                           c0 ? c0 : lib_full(l, x->dtype, 0, dim, 2)};
    struct lib_loop *loop = xw ? lib_loop_begin(l, x->dim[0], NULL, init, 2) : NULL;
    if (!loop)
        return false;
    struct uop *h = loop->param[0], *c = loop->param[1];
    struct uop *at =
        reverse ? sym_sub(t, sym_addi(t, x->dim[0], -1), loop->counter) : loop->counter;
    struct uop *z =
        lib_add(l, node_slice_at(n, xw, 0, at), quantized_product(n, h, w[1], scale[1], zero[1]));
    if (!z || !lstm_cell(n, z, &h, &c))
        return false;
    struct uop *all = lib_loop_end(l, loop, NULL, (struct uop *[]){h, c}, &h, 1, x->dim[0]);
    if (!all)
        return false;
    *last_h = lib_get(l, all, 0);
    *last_c = lib_get(l, all, 1);
    *y = lib_get(l, all, 2);
    *y = reverse ? uop_flip(t, *y, 1u) : *y;
    return true;
}

/* x [t, b, i], w [d, i, 4h], r [d, h, 4h]; scales and zero points [d] or [d, 4h]. Activations are
 * quantized at every step, by the range of the step's whole batch. */
bool lower_dynamic_quantize_lstm(struct node *n)
{
    struct rnn_attr a;
    struct uop *part[3][2];
    if (!rnn_attributes(n, RNN_LSTM, &a) || !node_rank(n, 0, 3, 3) || !node_rank(n, 1, 3, 3) ||
        !node_rank(n, 2, 3, 3))
        return false;
    if (a.nactivation || a.clip != 0 || a.input_forget || n->in[4] || n->in[7])
        return node_error(n, -1,
                          "activations, clip, input_forget, sequence_lens and P are not supported");
    for (int k = 8; k < 12; k++)
        if (!n->in[k] || n->in[k]->ndim < 1)
            return node_error(n, k, "a scale or zero point for each direction is expected");
    int count = a.direction == RNN_BIDIRECTIONAL ? 2 : 1;
    if (!uop_is_int(n->in[1]->dim[0], count) || !uop_is_int(n->in[2]->dim[0], count))
        return node_error(n, 1, "%d directions are expected, found %s", count,
                          shape_text(n, n->in[1]));
    for (int d = 0; d < count; d++)
        if (!quantized_direction(n, d, a.direction == RNN_REVERSE || d == 1, &part[0][d],
                                 &part[1][d], &part[2][d]))
            return false;
    for (int k = 0; k < 3; k++) {
        int axis = k == 0 ? 1 : 0;
        for (int d = 0; d < count; d++)
            part[k][d] = tensor_insert_axis(n->t, part[k][d], axis);
        if (!node_set(n, k, lib_concat(&n->lib, part[k], count, axis)))
            return false;
    }
    return true;
}
