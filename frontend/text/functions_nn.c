/* functions_nn.c - the library's layers as functions of the text format: contractions, pools,
 * norms, activations, attention, recurrence.
 *
 * Attributes have the names that PyTorch's users know; an axis list of windows may be one number
 * for all spatial axes.
 */
#include "frontend/text/reader.h"

#include <string.h>

/* ---- contractions */

static void run_matmul(struct call *c)
{
    call_result(c, lib_matmul(c->l, call_arg(c, 0), call_arg(c, 1)));
}
static void run_linear(struct call *c)
{
    call_result(c, lib_linear(c->l, call_arg(c, 0), call_arg(c, 1), call_arg(c, 2)));
}

static void run_gemm(struct call *c)
{
    double alpha = attr_float(c, "alpha", 1), beta = attr_float(c, "beta", 1);
    bool ta = attr_bool(c, "trans_a", false), tb = attr_bool(c, "trans_b", false);
    if (!c->failed)
        call_result(
            c, lib_gemm(c->l, call_arg(c, 0), call_arg(c, 1), call_arg(c, 2), alpha, beta, ta, tb));
}

static void run_einsum(struct call *c)
{
    const char *equation = attr_required(c, "equation") ? attr_string(c, "equation", "") : "";
    struct uop **x = mem_array(c->r->t, (size_t)c->narg, sizeof *x);
    for (int k = 0; k < c->narg; k++)
        x[k] = call_arg(c, k);
    if (!c->failed)
        call_result(c, lib_einsum(c->l, equation, x, c->narg));
}

/* ---- windows */

/* n integers, or one for all. */
static void spatial_ints(struct call *c, const char *name, int64_t *v, int n)
{
    int64_t read[MAX_RANK];
    int have = attr_ints(c, name, read, MAX_RANK);
    if (have < 0 || c->failed)
        return;
    if (have != 1 && have != n) {
        call_fail(c, "'%s' has %d entries for %d spatial axes", name, have, n);
        return;
    }
    for (int i = 0; i < n; i++)
        v[i] = read[have == 1 ? 0 : i];
}

/* padding: one for all, one an axis, or all lower ones and then all upper ones. */
static void spatial_pads(struct call *c, struct window_attr *a, int n)
{
    struct uop *v[2 * MAX_RANK];
    int have = attr_dims(c, "padding", v, 2 * MAX_RANK);
    if (have < 0 || c->failed)
        return;
    if (have != 1 && have != n && have != 2 * n) {
        call_fail(c, "'padding' has %d entries for %d spatial axes", have, n);
        return;
    }
    for (int i = 0; i < n; i++) {
        a->lo[i] = v[have == 1 ? 0 : i];
        a->hi[i] = v[have == 1 ? 0 : have == n ? i : n + i];
    }
}

/* rank 0: any. */
static bool window_attrs(struct call *c, const struct uop *x, int rank, struct window_attr *a)
{
    static const char *const auto_pads[] = {"none", "same_upper", "same_lower", "valid", NULL};
    *a = (struct window_attr){0};
    if (!x || x->ndim < 3 || x->ndim - 2 > MAX_SPATIAL || (rank && x->ndim != rank + 2)) {
        const char *dims = rank == 1   ? "[n, c, x]"
                           : rank == 2 ? "[n, c, y, x]"
                           : rank == 3 ? "[n, c, z, y, x]"
                                       : "[n, c, spatial...]";
        call_fail(c, "x is %s; it must be %s", x ? lib_describe(c->l, x) : "missing", dims);
        return false;
    }
    int n = x->ndim - 2;
    spatial_ints(c, "stride", a->stride, n);
    spatial_ints(c, "dilation", a->dilation, n);
    spatial_pads(c, a, n);
    a->auto_pad = (enum auto_pad)attr_choice(c, "auto_pad", auto_pads, 0);
    return !c->failed;
}

static int spatial_rank(const struct call *c)
{
    size_t n = strlen(c->name);
    return n > 2 && c->name[n - 1] == 'd' && c->name[n - 2] >= '1' && c->name[n - 2] <= '3'
               ? c->name[n - 2] - '0'
               : 0;
}

static void run_conv(struct call *c)
{
    struct window_attr a;
    struct uop *x = call_arg(c, 0);
    if (!window_attrs(c, x, spatial_rank(c), &a))
        return;
    a.group = attr_int(c, "groups", 1);
    if (!c->failed)
        call_result(c, lib_conv(c->l, x, call_arg(c, 1), call_arg(c, 2), &a));
}

static void run_conv_transpose(struct call *c)
{
    struct window_attr a;
    struct uop *x = call_arg(c, 0);
    if (!window_attrs(c, x, spatial_rank(c), &a))
        return;
    a.group = attr_int(c, "groups", 1);
    spatial_ints(c, "output_padding", a.output_padding, x->ndim - 2);
    int n = attr_dims(c, "output_size", a.output_size, MAX_SPATIAL);
    if (!c->failed && n >= 0 && n != x->ndim - 2)
        call_fail(c, "'output_size' needs one entry for each spatial axis");
    if (!c->failed)
        call_result(c, lib_conv_transpose(c->l, x, call_arg(c, 1), call_arg(c, 2), &a));
}

static void run_pool(struct call *c)
{
    struct window_attr a;
    struct uop *x = call_arg(c, 0);
    enum pool_kind kind = c->name[0] == 'm' ? POOL_MAX : c->name[0] == 'a' ? POOL_AVERAGE : POOL_LP;
    if (!window_attrs(c, x, spatial_rank(c), &a) || !attr_required(c, "kernel"))
        return;
    spatial_ints(c, "kernel", a.kernel, x->ndim - 2);
    a.ceil_mode = attr_bool(c, "ceil_mode", false);
    if (!attr_given(c, "stride"))
        memcpy(a.stride, a.kernel, sizeof a.stride);
    if (kind == POOL_AVERAGE)
        a.count_include_pad = attr_bool(c, "count_include_pad", false);
    if (kind == POOL_LP)
        a.p = attr_float(c, "p", 2);
    if (c->failed)
        return;
    call_result(c, lib_pool(c->l, kind, x, &a));
    if (kind == POOL_MAX && c->nwanted > 1 && !c->failed)
        call_result(c, lib_max_pool_indices(c->l, x, &a, false));
}

static void run_global_pool(struct call *c)
{
    call_result(c, lib_global_pool(c->l, strstr(c->name, "max") ? POOL_MAX : POOL_AVERAGE,
                                   call_arg(c, 0), 2));
}

/* ---- softmax and norms */

static void run_softmax(struct call *c)
{
    struct uop *x = call_arg(c, 0);
    int64_t axis = attr_int(c, "axis", -1);
    int a;
    if (c->failed || !x || !lib_axis(c->l, axis, x->ndim, &a)) {
        c->failed = true;
        return;
    }
    call_result(c, c->name[0] == 's'   ? lib_softmax(c->l, x, 1u << a)
                   : c->name[0] == 'l' ? lib_log_softmax(c->l, x, 1u << a)
                                       : lib_hardmax(c->l, x, a));
}

static void run_norm(struct call *c)
{
    struct uop *x = call_arg(c, 0), *scale = call_arg_like(c, 1, x), *bias = call_arg_like(c, 2, x),
               *y = NULL;
    double eps = attr_float(c, "eps", 1e-5);
    if (!strcmp(c->name, "layer_norm"))
        y = lib_layer_norm(c->l, x, scale, bias, attr_int(c, "axis", -1), eps, NULL, NULL);
    else if (!strcmp(c->name, "rms_norm"))
        y = bias ? lib_error(c->l, "rms_norm takes no bias")
                 : lib_rms_norm(c->l, x, scale, attr_int(c, "axis", -1), eps);
    else if (!strcmp(c->name, "instance_norm"))
        y = lib_instance_norm(c->l, x, scale, bias, eps);
    else
        y = attr_required(c, "groups")
                ? lib_group_norm(c->l, x, scale, bias, attr_int(c, "groups", 1), eps)
                : NULL;
    call_result(c, y);
}

static void run_batch_norm(struct call *c)
{
    double eps = attr_float(c, "eps", 1e-5);
    struct uop *x = call_arg(c, 0), *mean = call_arg(c, 3), *var = call_arg(c, 4);
    if (x && mean && var)
        lib_note_statistics(c->l, x, mean, var, 0.9);
    call_result(c, lib_batch_norm(c->l, x, call_arg(c, 1), call_arg(c, 2), mean, var, eps));
}

static void run_lp_normalize(struct call *c)
{
    int64_t axis = attr_int(c, "axis", -1), p = attr_int(c, "p", 2);
    call_result(c, lib_lp_normalize(c->l, call_arg(c, 0), axis, p == 1 ? 1 : p == 2 ? 2 : 0));
}

static void run_lrn(struct call *c)
{
    int64_t size = attr_required(c, "size") ? attr_int(c, "size", 1) : 1;
    double alpha = attr_float(c, "alpha", 1e-4), beta = attr_float(c, "beta", 0.75),
           bias = attr_float(c, "bias", 1);
    if (!c->failed)
        call_result(c, lib_lrn(c->l, call_arg(c, 0), size, alpha, beta, bias));
}

static void run_activation(struct call *c)
{
    enum activation a;
    lib_activation_parse(c->name, &a);
    const struct activation_info *info = lib_activation_info(a);
    double alpha = info->nparam > 0 ? attr_float(c, "alpha", info->alpha) : 0,
           beta = info->nparam > 1 ? attr_float(c, "beta", info->beta) : 0;
    if (!c->failed)
        call_result(c, lib_activate(c->l, a, call_arg(c, 0), alpha, beta));
}

static void run_prelu(struct call *c)
{
    struct uop *x = call_arg(c, 0);
    call_result(c, lib_prelu(c->l, x, call_arg_like(c, 1, x)));
}

/* ---- attention */

static void run_attention(struct call *c)
{
    struct attention_attr a = {.scale = attr_float(c, "scale", 0),
                               .causal = attr_bool(c, "causal", false),
                               .offset = attr_dim(c, "offset"),
                               .window = attr_int(c, "window", 0),
                               .softcap = attr_float(c, "softcap", 0),
                               .nkeys = call_arg(c, 4)};
    if (!c->failed)
        call_result(c, lib_attention(c->l, call_arg(c, 0), call_arg(c, 1), call_arg(c, 2),
                                     call_arg(c, 3), &a));
}

/* With tables, or by position along the last axis but one. */
static void run_rope(struct call *c)
{
    struct uop *x = call_arg(c, 0), *cos = call_arg(c, 1), *sin = call_arg(c, 2);
    int64_t e;
    bool interleaved = attr_bool(c, "interleaved", false);
    if (x && c->narg == 1) {
        double base = attr_float(c, "base", 10000);
        struct uop *offset = attr_dim(c, "offset");
        if (x->ndim < 2 || !uop_const_int(x->dim[x->ndim - 1], &e)) {
            call_fail(c, "x must be [..., positions, size], the size a constant");
            return;
        }
        struct uop *at = uop_iota(c->r->t, x->dim[x->ndim - 2]);
        at = offset ? lib_add(c->l, at, offset) : at;
        if (!lib_rope_table(c->l, lib_acc_dtype(x->dtype), at, attr_int(c, "rotary", e), base, &cos,
                            &sin))
            c->failed = true;
    }
    if (!c->failed)
        call_result(c, lib_rope(c->l, x, cos, sin, interleaved));
}

static void run_rope_table(struct call *c)
{
    struct uop *cos, *sin;
    int64_t rotary = attr_required(c, "rotary") ? attr_int(c, "rotary", 0) : 0;
    double base = attr_float(c, "base", 10000);
    enum dtype d = attr_dtype(c, "dtype", DTYPE_F32);
    if (c->failed || !lib_rope_table(c->l, d, call_arg(c, 0), rotary, base, &cos, &sin)) {
        c->failed = true;
        return;
    }
    call_result(c, cos);
    call_result(c, sin);
}

/* ---- reductions */

static void run_reduce(struct call *c)
{
    struct uop *x = call_arg(c, 0);
    const char *name = c->name + strlen("reduce_");
    enum reduction r = REDUCE_SUM;
    for (int i = 0; i < REDUCTION_COUNT; i++)
        if (!strcmp(lib_reduction_name((enum reduction)i), name))
            r = (enum reduction)i;
    uint32_t axes = attr_axes(c, "axes", x);
    bool keep = attr_bool(c, "keep", false);
    if (!c->failed)
        call_result(c, lib_reduce(c->l, r, x, axes, keep));
}

static void run_argmax(struct call *c)
{
    struct uop *x = call_arg(c, 0);
    int64_t axis = attr_int(c, "axis", -1);
    bool keep = attr_bool(c, "keep", false), last = attr_bool(c, "last", false);
    if (!c->failed)
        call_result(c, !strcmp(c->name, "argmax") ? lib_argmax(c->l, x, axis, keep, last)
                                                  : lib_argmin(c->l, x, axis, keep, last));
}

static void run_cumulative(struct call *c)
{
    int64_t axis = attr_int(c, "axis", -1);
    bool exclusive = attr_bool(c, "exclusive", false), reverse = attr_bool(c, "reverse", false);
    if (!c->failed)
        call_result(c, lib_cumulative(c->l, !strcmp(c->name, "cumsum") ? OP_ADD : OP_MUL,
                                      call_arg(c, 0), axis, exclusive, reverse));
}

static void run_topk(struct call *c)
{
    struct uop *k = attr_required(c, "k") ? attr_dim(c, "k") : NULL, *values, *indices;
    int64_t axis = attr_int(c, "axis", -1);
    bool largest = attr_bool(c, "largest", true), sorted = attr_bool(c, "sorted", true);
    if (c->failed || !lib_topk(c->l, call_arg(c, 0), k, axis, largest, sorted, &values, &indices)) {
        c->failed = true;
        return;
    }
    call_result(c, values);
    call_result(c, indices);
}

/* ---- recurrent layers */

static void run_rnn(struct call *c)
{
    static const char *const directions[] = {"forward", "reverse", "bidirectional", NULL};
    struct rnn_attr a = {.kind = !strcmp(c->name, "lstm")  ? RNN_LSTM
                                 : !strcmp(c->name, "gru") ? RNN_GRU
                                                           : RNN_PLAIN};
    struct rnn_operands in = {call_arg(c, 0), call_arg(c, 1), call_arg(c, 2), call_arg(c, 3),
                              call_arg(c, 4), call_arg(c, 5), NULL,           NULL};
    struct uop *out[3];
    if (a.kind == RNN_LSTM) {
        in.c0 = call_arg(c, 6);
        in.peephole = call_arg(c, 7);
        a.input_forget = attr_bool(c, "input_forget", false);
    } else if (c->narg > 6) {
        call_fail(c, "takes 3 to 6 operands: x, w, r, bias, seq_lens, h0");
        return;
    }
    if (a.kind == RNN_GRU)
        a.linear_before_reset = attr_bool(c, "linear_before_reset", false);
    a.direction = (enum rnn_direction)attr_choice(c, "direction", directions, 0);
    a.batch_first = attr_bool(c, "batch_first", false);
    a.clip = attr_float(c, "clip", 0);
    if (c->failed || !lib_rnn(c->l, &a, &in, out)) {
        c->failed = true;
        return;
    }
    for (int k = 0; k < (a.kind == RNN_LSTM ? 3 : 2); k++)
        call_result(c, out[k]);
}

#define WINDOW(stride)                                                                             \
    "stride=" stride ", padding=0, dilation=1, auto_pad=none|same_upper|same_lower|valid"
#define RECURRENT "direction=forward|reverse|bidirectional, batch_first=false, clip=0"
#define ACTIVATION_0(alpha, beta) ""
#define ACTIVATION_1(alpha, beta) "alpha=" #alpha
#define ACTIVATION_2(alpha, beta) "alpha=" #alpha ", beta=" #beta

/* clang-format off */
const struct function nn_functions[] = {
#define ACTIVATION(name, text, nparam, alpha, beta) \
    {text, "x", ACTIVATION_##nparam(alpha, beta), run_activation},
#include "frontend/activations.def"
#undef ACTIVATION
#define REDUCTION(name, text) {"reduce_" text, "x", "axes?, keep=false", run_reduce},
#include "frontend/reductions.def"
#undef REDUCTION
    {"prelu", "x, slope", "", run_prelu},
    {"matmul", "a, b", "", run_matmul},
    {"linear", "x, w, bias?", "", run_linear},
    {"gemm", "a, b, c?", "alpha=1, beta=1, trans_a=false, trans_b=false", run_gemm},
    {"einsum", "x, more...", "equation", run_einsum},
    {"conv", "x, w, bias?", WINDOW("1") ", groups=1", run_conv},
    {"conv1d", "x, w, bias?", WINDOW("1") ", groups=1", run_conv},
    {"conv2d", "x, w, bias?", WINDOW("1") ", groups=1", run_conv},
    {"conv3d", "x, w, bias?", WINDOW("1") ", groups=1", run_conv},
    {"conv_transpose", "x, w, bias?",
     WINDOW("1") ", groups=1, output_padding=0, output_size?", run_conv_transpose},
    {"conv_transpose1d", "x, w, bias?",
     WINDOW("1") ", groups=1, output_padding=0, output_size?", run_conv_transpose},
    {"conv_transpose2d", "x, w, bias?",
     WINDOW("1") ", groups=1, output_padding=0, output_size?", run_conv_transpose},
    {"conv_transpose3d", "x, w, bias?",
     WINDOW("1") ", groups=1, output_padding=0, output_size?", run_conv_transpose},
    {"max_pool", "x", "kernel, " WINDOW("kernel") ", ceil_mode=false", run_pool},
    {"max_pool1d", "x", "kernel, " WINDOW("kernel") ", ceil_mode=false", run_pool},
    {"max_pool2d", "x", "kernel, " WINDOW("kernel") ", ceil_mode=false", run_pool},
    {"max_pool3d", "x", "kernel, " WINDOW("kernel") ", ceil_mode=false", run_pool},
    {"avg_pool", "x",
     "kernel, " WINDOW("kernel") ", ceil_mode=false, count_include_pad=false", run_pool},
    {"avg_pool1d", "x",
     "kernel, " WINDOW("kernel") ", ceil_mode=false, count_include_pad=false", run_pool},
    {"avg_pool2d", "x",
     "kernel, " WINDOW("kernel") ", ceil_mode=false, count_include_pad=false", run_pool},
    {"avg_pool3d", "x",
     "kernel, " WINDOW("kernel") ", ceil_mode=false, count_include_pad=false", run_pool},
    {"lp_pool", "x", "kernel, " WINDOW("kernel") ", ceil_mode=false, p=2", run_pool},
    {"global_avg_pool", "x", "", run_global_pool},
    {"global_max_pool", "x", "", run_global_pool},
    {"softmax", "x", "axis=-1", run_softmax},
    {"log_softmax", "x", "axis=-1", run_softmax},
    {"hardmax", "x", "axis=-1", run_softmax},
    {"layer_norm", "x, scale?, bias?", "axis=-1, eps=1e-5", run_norm},
    {"rms_norm", "x, scale?", "axis=-1, eps=1e-5", run_norm},
    {"instance_norm", "x, scale?, bias?", "eps=1e-5", run_norm},
    {"group_norm", "x, scale?, bias?", "groups, eps=1e-5", run_norm},
    {"batch_norm", "x, scale, bias, mean, var", "eps=1e-5", run_batch_norm},
    {"lp_normalize", "x", "axis=-1, p=2", run_lp_normalize},
    {"lrn", "x", "size, alpha=1e-4, beta=0.75, bias=1", run_lrn},
    {"attention", "q, k, v, mask?, nkeys?",
     "scale?, causal=false, offset?, window=0, softcap=0", run_attention},
    {"rope", "x, cos?, sin?", "interleaved=false, base=10000, offset=0, rotary?", run_rope},
    {"rope_table", "positions", "rotary, base=10000, dtype=f32", run_rope_table},
    {"argmax", "x", "axis=-1, keep=false, last=false", run_argmax},
    {"argmin", "x", "axis=-1, keep=false, last=false", run_argmax},
    {"cumsum", "x", "axis=-1, exclusive=false, reverse=false", run_cumulative},
    {"cumprod", "x", "axis=-1, exclusive=false, reverse=false", run_cumulative},
    {"topk", "x", "k, axis=-1, largest=true, sorted=true", run_topk},
    {"lstm", "x, w, r, bias?, seq_lens?, h0?, c0?, peephole?",
     RECURRENT ", input_forget=false", run_rnn},
    {"gru", "x, w, r, bias?, seq_lens?, h0?", RECURRENT ", linear_before_reset=false", run_rnn},
    {"rnn", "x, w, r, bias?, seq_lens?, h0?", RECURRENT, run_rnn},
    {NULL, NULL, NULL, NULL},
};
/* clang-format on */
