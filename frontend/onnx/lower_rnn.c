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

/* hidden_size has to agree with R. */
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

/* x [.., i] or h [.., h] times the u8 or i8 weights of direction d. Activations are quantized at
 * every step, by the range of the step's whole batch. */
static struct uop *quantized_gates(void *ctx, struct uop *x, bool is_recurrent, int d)
{
    const struct node *n = ctx;
    int k = is_recurrent;
    struct uop *w = of_direction(n, 1 + k, d), *scale = of_direction(n, 8 + 2 * k, d),
               *zero = of_direction(n, 9 + 2 * k, d);
    return w && scale && zero ? quantized_product(n, x, w, scale, zero) : NULL;
}

/* An LSTM with w [d, i, 4h] and r [d, h, 4h] in bytes; scales and zero points [d] or [d, 4h]. */
bool lower_dynamic_quantize_lstm(struct node *n)
{
    static const int swap[3] = {0, 2, 1};
    struct rnn_attr a;
    if (!rnn_attributes(n, RNN_LSTM, &a) || !node_rank(n, 0, 3, 3) || !node_rank(n, 1, 3, 3) ||
        !node_rank(n, 2, 3, 3))
        return false;
    int count = a.direction == RNN_BIDIRECTIONAL ? 2 : 1;
    for (int k = 8; k < 12; k++)
        if (!node_rank(n, k, 1, 2) || !uop_is_int(n->in[k]->dim[0], count))
            return node_error(n, k, "a scale or zero point for each of %d directions is expected, "
                                    "found %s", count, shape_text(n, n->in[k]));
    struct rnn_operands in = {.x = n->in[0],
                              .w = uop_permute(n->t, n->in[1], swap),
                              .r = uop_permute(n->t, n->in[2], swap),
                              .bias = n->in[3],
                              .seq_lens = n->in[4],
                              .h0 = n->in[5],
                              .c0 = n->in[6],
                              .peephole = n->in[7],
                              .product = quantized_gates,
                              .ctx = n};
    return check_hidden_size(n, in.r) && lib_rnn(&n->lib, &a, &in, n->out);
}
