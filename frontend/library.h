/* library.h - the one definition of every composite operation, for the .tg reader and the ONNX
 * lowering alike.
 *
 * Each function expands into elementwise, reduce and movement uops (and LOOP, INDEX, SCATTER, HOST
 * where those do not suffice), as tinygrad's Tensor methods do. Arguments and results are plain
 * tensor uops.
 *
 * Conventions
 *   - `l` carries the compile and the place of the user's node. A mistake of the user is recorded
 *     by diag_error() at that place and the function returns NULL (false where it returns bool).
 *     Messages name arguments as this header does.
 *   - A required operand that is NULL gives NULL silently: its error is recorded already. So calls
 *     nest: lib_add(l, lib_conv(...), b). An optional operand is marked as such, and may be NULL.
 *   - Dimensions, sizes, pads and begins are INDEX scalars (CONST, VAR, arithmetic); strides and
 *     dilations are constants.
 *   - `axis` arguments accept -ndim..ndim-1. `axes` are masks of normalized axes: see lib_axes().
 *   - dtypes: operands have the same dtype, and the result has it, too. f16, bf16 and narrower
 *     floats are computed and accumulated in f32 and rounded once at the end, in contractions,
 *     norms, reductions, and activations; softmax and attention round after each of their steps.
 *   - Contractions are one REDUCE(ADD) of one MUL whose axes have names: "n g oc oy ox ic ky kx",
 *     "b i j k".
 *   - Zero in a field of an attribute struct is its default: { 0 } is valid everywhere.
 */
#ifndef TGC_LIBRARY_H
#define TGC_LIBRARY_H

#include "ir/ir.h"

struct lib { struct tgc *t; const struct place *at; };

/* --------------------------------------------------------------------- library.c: small helpers */

/* records; NULL */
struct uop *lib_error(const struct lib *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "f32[N, 3, 224, 224]", for messages */
const char *lib_describe(const struct lib *l, const struct uop *x);
/* error: "axis 4 of a tensor of rank 3 ..." */
bool lib_axis(const struct lib *l, int64_t axis, int ndim, int *normalized);
/* error also on a repeated axis */
bool lib_axes(const struct lib *l, const int64_t *axis, int naxis, int ndim, uint32_t *mask);
uint32_t lib_all_axes(const struct uop *x);
/* f32 for narrower floats, else d */
enum dtype lib_acc_dtype(enum dtype d);
struct uop *lib_cast(const struct lib *l, enum dtype d, struct uop *x);
struct uop *lib_dim(const struct lib *l, const struct uop *x, int64_t axis);
/* an INDEX scalar as a scalar of dtype d */
struct uop *lib_float_of(const struct lib *l, enum dtype d, struct uop *dim);
/* a constant of like's dtype, rank 0 */
struct uop *lib_scalar(const struct lib *l, const struct uop *like, double v);
/* element i (row-major) of x, if it is known at compile time */
bool lib_known_int(const struct lib *l, struct uop *x, int64_t i, int64_t *v);

/* ------------------------------------------------------------- library.c: elementwise, movement */

/* tensor_binary() and tensor_where() with messages: broadcast; dtypes must agree. */
struct uop *lib_binary(const struct lib *l, enum op op, struct uop *a, struct uop *b);
struct uop *lib_unary(const struct lib *l, enum op op, struct uop *x);
struct uop *lib_where(const struct lib *l, struct uop *cond, struct uop *a, struct uop *b);
/* x op v, v of x's dtype */
struct uop *lib_binaryf(const struct lib *l, enum op op, struct uop *x, double v);
struct uop *lib_add(const struct lib *l, struct uop *a, struct uop *b);
struct uop *lib_sub(const struct lib *l, struct uop *a, struct uop *b);
struct uop *lib_mul(const struct lib *l, struct uop *a, struct uop *b);
struct uop *lib_div(const struct lib *l, struct uop *a, struct uop *b);
/* lo, hi: scalars, optional */
struct uop *lib_clip(const struct lib *l, struct uop *x, struct uop *lo, struct uop *hi);
/* slope broadcasts to x */
struct uop *lib_prelu(const struct lib *l, struct uop *x, struct uop *slope);

struct uop *lib_broadcast_to(const struct lib *l, struct uop *x, struct uop *const *dim, int ndim);
/* One dim may be NULL: it is inferred. Error if the numbers of elements are known to differ. */
struct uop *lib_reshape(const struct lib *l, struct uop *x, struct uop *const *dim, int ndim);
/* -> 2-D, split before axis (may be ndim) */
struct uop *lib_flatten(const struct lib *l, struct uop *x, int64_t axis);
/* perm NULL: reversed */
struct uop *lib_permute(const struct lib *l, struct uop *x, const int64_t *perm, int nperm);
struct uop *lib_squeeze(const struct lib *l, struct uop *x, uint32_t axes);
/* axes of the result */
struct uop *lib_unsqueeze(const struct lib *l, struct uop *x, const int64_t *axis, int naxis);
struct uop *lib_concat(const struct lib *l, struct uop *const *x, int n, int64_t axis);
/* begin..begin+size */
struct uop *lib_narrow(const struct lib *l, struct uop *x, int64_t axis, struct uop *begin,
                       struct uop *size);
/* x[start:end:step] on one axis, numpy's rules: negative counts from the end, out of range is
 * clamped; step may be negative, not 0. start, end NULL: the whole axis in the direction of step.
 * INT64_MAX and INT64_MIN are valid. */
struct uop *lib_slice(const struct lib *l, struct uop *x, int64_t axis, struct uop *start,
                      struct uop *end, int64_t step);
struct uop *lib_tile(const struct lib *l, struct uop *x, struct uop *const *repeat, int nrepeat);
struct uop *lib_flip(const struct lib *l, struct uop *x, uint32_t axes);
enum pad_mode { PAD_MODE_CONSTANT, PAD_MODE_REFLECT, PAD_MODE_EDGE, PAD_MODE_WRAP };
/* lo, hi: [ndim]; negative ones cut. value: scalar of x's dtype, optional (0). */
struct uop *lib_pad(const struct lib *l, struct uop *x, enum pad_mode mode, struct uop *value,
                    struct uop *const *lo, struct uop *const *hi);
/* The same to a given shape: lo are i64 scalars, which may be read at run time; dim are the
 * dimensions of the result. */
struct uop *lib_pad_to(const struct lib *l, struct uop *x, enum pad_mode mode, struct uop *value,
                       struct uop *const *lo, struct uop *const *dim);
struct uop *lib_depth_to_space(const struct lib *l, struct uop *x, int64_t block, bool crd);
struct uop *lib_space_to_depth(const struct lib *l, struct uop *x, int64_t block);
/* k: i64 scalar, optional (0) */
struct uop *lib_trilu(const struct lib *l, struct uop *x, struct uop *k, bool upper);

/* -------------------------------------------------------------------------- library.c: creation */

struct uop *lib_full(const struct lib *l, enum dtype d, double v, struct uop *const *dim, int ndim);
struct uop *lib_eye(const struct lib *l, enum dtype d, struct uop *rows, struct uop *cols,
                    int64_t k);
/* start + i * delta for i < n; start and delta scalars of one dtype. */
struct uop *lib_arange(const struct lib *l, struct uop *start, struct uop *delta, struct uop *n);
/* The number of elements of range(start, limit, delta), as a dimension; error if it is not known at
 * compile time. */
struct uop *lib_arange_count(const struct lib *l, struct uop *start, struct uop *limit,
                             struct uop *delta);
/* values: [2] off, on. depth: a dimension. axis: of the result. Negative indices count from the
 * end; indices out of range give all off. */
struct uop *lib_one_hot(const struct lib *l, struct uop *indices, struct uop *depth,
                        struct uop *values, int64_t axis);

/* --------------------------------------- library_contract.c, library_einsum.c, library_window.c */

/* numpy.matmul: 1-D operands, batch broadcasting. */
struct uop *lib_matmul(const struct lib *l, struct uop *a, struct uop *b);
struct uop *lib_gemm(const struct lib *l, struct uop *a, struct uop *b,
                     struct uop *c /* optional */, double alpha, double beta, bool trans_a,
                     bool trans_b);
struct uop *lib_linear(const struct lib *l, struct uop *x, struct uop *w /* [out, in] */,
                       struct uop *b /* optional, [out] */);
struct uop *lib_einsum(const struct lib *l, const char *equation, struct uop *const *x, int n);

enum { MAX_SPATIAL = 6 };
enum auto_pad { AUTO_PAD_NONE, AUTO_PAD_SAME_UPPER, AUTO_PAD_SAME_LOWER, AUTO_PAD_VALID };
struct window_attr {                     /* per spatial axis; of convolutions and pools */
    int64_t kernel[MAX_SPATIAL];         /* pools only */
    int64_t stride[MAX_SPATIAL], dilation[MAX_SPATIAL];
    struct uop *lo[MAX_SPATIAL], *hi[MAX_SPATIAL];      /* NULL: 0; may be negative (they cut) */
    enum auto_pad auto_pad;              /* other than NONE: lo and hi are ignored */
    int64_t group;                       /* convolutions; 0: 1 */
    bool ceil_mode;                      /* pools: the output's size is rounded up */
    bool count_include_pad;              /* average: counts padding, too */
    double p;                            /* lp pool; 0: 2 */
    int64_t output_padding[MAX_SPATIAL]; /* conv_transpose */
    struct uop *output_size[MAX_SPATIAL];/* conv_transpose, optional: pads are then derived */
};
/* x [n, c, spatial...], w [m, c/group, k...], b [m] optional. */
struct uop *lib_conv(const struct lib *l, struct uop *x, struct uop *w, struct uop *b,
                     const struct window_attr *a);
/* x [n, c, spatial...], w [c, m/group, k...], b [m] optional. */
struct uop *lib_conv_transpose(const struct lib *l, struct uop *x, struct uop *w, struct uop *b,
                               const struct window_attr *a);

enum pool_kind { POOL_MAX, POOL_AVERAGE, POOL_LP };
struct uop *lib_pool(const struct lib *l, enum pool_kind kind, struct uop *x,
                     const struct window_attr *a);
/* i64: the index of each maximum in the flattened input (the first one of equals), n and c
 * included; -1 if a window is all padding; column_major: the spatial part of the index is. */
struct uop *lib_max_pool_indices(const struct lib *l, struct uop *x, const struct window_attr *a,
                                 bool column_major);
struct uop *lib_global_pool(const struct lib *l, enum pool_kind kind, struct uop *x, double p);

/* --------------------------------------------------- library_norm.c: softmax, norms, reductions */

enum reduction {
#define REDUCTION(name, text) REDUCE_##name,
#include "frontend/reductions.def"
#undef REDUCTION
    REDUCTION_COUNT
};
const char *lib_reduction_name(enum reduction r);
struct uop *lib_reduce(const struct lib *l, enum reduction r, struct uop *x, uint32_t axes,
                       bool keep);
/* i64. NaN counts as the extreme, as in numpy. */
struct uop *lib_argmax(const struct lib *l, struct uop *x, int64_t axis, bool keep, bool last);
struct uop *lib_argmin(const struct lib *l, struct uop *x, int64_t axis, bool keep, bool last);
/* op ADD or MUL. Blocks of 32, so that it takes O(n) operations of depth log n; deterministic. */
struct uop *lib_cumulative(const struct lib *l, enum op op, struct uop *x, int64_t axis,
                           bool exclusive, bool reverse);

/* In x's own dtype, step by step, as the ONNX function bodies are. */
struct uop *lib_softmax(const struct lib *l, struct uop *x, uint32_t axes);
/* The sum of a softmax, in x's dtype. As in the ONNX reference, f16 accumulates in f32, bf16 and
 * fp8 round at every addition; the latter only if the axes have at most 32 elements, since such a
 * sum soon stops growing (bf16: 256 + 1 is 256). */
struct uop *lib_row_sum(const struct lib *l, struct uop *x, uint32_t axes);
struct uop *lib_log_softmax(const struct lib *l, struct uop *x, uint32_t axes);
struct uop *lib_hardmax(const struct lib *l, struct uop *x, int64_t axis);

/* (x - mean) / sqrt(var + eps) over `axes`, in the accumulation dtype; optionally also mean and
 * inv_std (axes kept, accumulation dtype). */
struct uop *lib_normalize(const struct lib *l, struct uop *x, uint32_t axes, double eps,
                          struct uop **mean, struct uop **inv_std);
/* Over axis..ndim-1. scale and bias (optional) broadcast to x. */
struct uop *lib_layer_norm(const struct lib *l, struct uop *x, struct uop *scale, struct uop *bias,
                           int64_t axis, double eps, struct uop **mean, struct uop **inv_std);
struct uop *lib_rms_norm(const struct lib *l, struct uop *x, struct uop *scale, int64_t axis,
                         double eps);
/* x [n, c, ...]; scale and bias [c], optional. groups = c: instance norm. */
struct uop *lib_group_norm(const struct lib *l, struct uop *x, struct uop *scale, struct uop *bias,
                           int64_t groups, double eps);
struct uop *lib_instance_norm(const struct lib *l, struct uop *x, struct uop *scale,
                              struct uop *bias, double eps);
struct uop *lib_batch_norm(const struct lib *l, struct uop *x, struct uop *scale, struct uop *bias,
                           struct uop *mean, struct uop *var, double eps);
/* Notes that these weights are the running statistics of x, for training. Others are left alone. */
void lib_note_statistics(const struct lib *l, struct uop *x, struct uop *mean, struct uop *var,
                         double momentum);
/* p 1 or 2; 0/0 is 0 */
struct uop *lib_lp_normalize(const struct lib *l, struct uop *x, int64_t axis, int p);
struct uop *lib_lrn(const struct lib *l, struct uop *x, int64_t size, double alpha, double beta,
                    double bias);

/* -------------------------------------------------------------------- library_nn.c: activations */

enum activation {
#define ACTIVATION(name, text, nparam, alpha, beta) ACTIVATION_##name,
#include "frontend/activations.def"
#undef ACTIVATION
    ACTIVATION_COUNT
};
struct activation_info { const char *name; int nparam; double alpha, beta; };
const struct activation_info *lib_activation_info(enum activation a);
/* "gelu_tanh" */
bool lib_activation_parse(const char *name, enum activation *a);
struct uop *lib_activate(const struct lib *l, enum activation a, struct uop *x, double alpha,
                         double beta);
/* alpha, beta as in activations.def */
struct uop *lib_activate_default(const struct lib *l, enum activation a, struct uop *x);

/* ---------------------------------------------------------------------- library_nn.c: attention */

struct attention_attr {
    double scale;                        /* 0: 1/sqrt(E) */
    bool causal;
    /* causal, except for the last query, which sees every key (com.microsoft.MultiHeadAttention) */
    bool last_sees_all;
    /* query i is at position i + offset of the keys, NULL: 0 */
    struct uop *offset;
    /* a query sees the last `window` keys, its own included; 0: all. Needs causal */
    int64_t window;
    double softcap;                      /* 0: none */
    enum dtype precision;                /* of the softmax; VOID: the operands' */
    struct uop *nkeys;  /* [batch] i64: the number of keys that are not padding; optional */
};
/* q [b, h, l, e], k [b, hk, s, e], v [b, hk, s, ev], h a multiple of hk; or all 3-D without heads.
 * mask: optional, broadcasts to [b, h, l, s]; bool: true is visible; float: added. Rows without any
 * key give 0, not NaN. */
struct uop *lib_attention(const struct lib *l, struct uop *q, struct uop *k, struct uop *v,
                          struct uop *mask, const struct attention_attr *a);
/* x [..., e]; cos, sin broadcast to [..., rotary/2] (rotary: 2 * their last dimension; the rest of
 * x passes through). */
struct uop *lib_rope(const struct lib *l, struct uop *x, struct uop *cos, struct uop *sin,
                     bool interleaved);
/* positions i64 [...] -> cos and sin [..., rotary/2] of dtype d: position * base^(-2i/rotary) */
bool lib_rope_table(const struct lib *l, enum dtype d, struct uop *positions, int64_t rotary,
                    double base, struct uop **cos, struct uop **sin);

/* ------------------------------------------------------------- library_index.c: gather, scatter */

/* i64; negative ones count from the end */
struct uop *lib_wrap(const struct lib *l, struct uop *indices, struct uop *n);
/* computed once, not in each consumer */
struct uop *lib_contiguous(const struct lib *l, struct uop *x);
/* x as a weight, if its elements are known at compile time and few; else x. */
struct uop *lib_fold(const struct lib *l, struct uop *x);
/* Constant indices with a constant step become a slice. */
struct uop *lib_gather(const struct lib *l, struct uop *x, struct uop *indices, int64_t axis);
struct uop *lib_gather_elements(const struct lib *l, struct uop *x, struct uop *indices,
                                int64_t axis);
struct uop *lib_gather_nd(const struct lib *l, struct uop *x, struct uop *indices,
                          int64_t batch_dims);
/* op: CONST overwrites; ADD MUL MAX MIN. */
struct uop *lib_scatter_elements(const struct lib *l, enum op op, struct uop *x,
                                 struct uop *indices, struct uop *updates, int64_t axis);
struct uop *lib_scatter_nd(const struct lib *l, enum op op, struct uop *x, struct uop *indices,
                           struct uop *updates);

/* --------------------------------------------------------------------------- library_gradient.c */

/* How the calls of a C function are differentiated (frontend/text/expand.c): from the adjoints of
 * its results, dy[k] of output k (NULL: it has none, or it is no float), those of its inputs, dx[],
 * NULL where an input is no float. false: reported. */
struct external_gradient {
    const char *name;            /* of the operator that computes it */
    bool (*run)(const struct external_gradient *by, const struct lib *l, const struct uop *host,
                struct uop *const *dy, struct uop **dx);
};
/* dx[k]: the gradient of the sum of y with respect to x[k], on which y depends; zeros if it does
 * not. needs: no rule has simplified through x[k]; a BUFFER is safe. false: something has no
 * derivative (loops that a condition ends, host calls that compute); reported. */
bool lib_gradient(const struct lib *l, struct uop *y, struct uop *const *x, int n,
                  struct uop **dx);

/* gradient_control.c: puts what `by` has in place of leaves of the graph between these and the
 * roots. Loops and host calls that change are new ones, since a loop's inside belongs to one LOOP.
 * bound: NULL, or the loop to which the leaves belong, which stays where it is read. false: a call
 * that finds a size would change. */
bool lib_copy(struct tgc *t, struct uop **root, int nroot, const struct uop *bound,
              struct uop_map *by);

/* ----------------------------------------------------------------------------- library_resize.c */

enum resize_mode { RESIZE_NEAREST, RESIZE_LINEAR, RESIZE_CUBIC };
enum resize_coordinates {                /* ONNX coordinate_transformation_mode */
    RESIZE_HALF_PIXEL, RESIZE_HALF_PIXEL_SYMMETRIC, RESIZE_PYTORCH_HALF_PIXEL,
    RESIZE_ALIGN_CORNERS, RESIZE_ASYMMETRIC, RESIZE_TF_CROP, RESIZE_TF_HALF_PIXEL
};
enum resize_rounding {
    RESIZE_ROUND_PREFER_FLOOR, RESIZE_ROUND_PREFER_CEIL, RESIZE_FLOOR, RESIZE_CEIL,
    RESIZE_CEIL_IF_SMALLER               /* down along an axis that grows */
};
struct resize_attr {
    enum resize_mode mode;
    enum resize_coordinates coordinates;
    enum resize_rounding rounding;       /* nearest */
    double cubic_a;                      /* 0: -0.75 */
    bool exclude_outside, antialias;
    double extrapolation;                /* tf_crop_and_resize */
    struct uop *size[MAX_RANK];          /* of the result, every axis */
    double scale[MAX_RANK];              /* as the model states it; 0: size / input size */
    double roi_lo[MAX_RANK], roi_hi[MAX_RANK];          /* tf_crop_and_resize */
    /* f64 scalars known only at run time, instead of those; NULL: none */
    struct uop *scale_at_run[MAX_RANK], *roi_at_run[2][MAX_RANK];
};
struct uop *lib_resize(const struct lib *l, struct uop *x, const struct resize_attr *a);
/* floor(dim * scale), exactly */
struct uop *lib_scaled_dim(const struct lib *l, struct uop *dim, double scale);

/* ------------------------------------------------------- library_loop.c: regions; library_rnn.c */

/* A loop is built in three steps: lib_loop_begin(), the body from the returned params and counter,
 * lib_loop_end(). */
struct lib_loop {
    struct loop *loop;
    struct uop *counter;                 /* i64 scalar: 0, 1, ... */
    struct uop **param;                  /* [n] the carried values inside */
    struct uop *trip, *cond, **init;
};
/* trip: i64 scalar (INT64_MAX: until the condition fails); cond: bool scalar, NULL: true. */
struct lib_loop *lib_loop_begin(const struct lib *l, struct uop *trip, struct uop *cond,
                                struct uop *const *init, int n);
/* next: [n], same dtypes and shapes as init. scan: [nscan] stacked along a new first axis of
 * scan_length (NULL: trip). Returns the LOOP. */
struct uop *lib_loop_end(const struct lib *l, struct lib_loop *loop, struct uop *cond_next,
                         struct uop *const *next, struct uop *const *scan, int nscan,
                         struct uop *scan_length);
/* of IF, LOOP, HOST */
struct uop *lib_get(const struct lib *l, struct uop *node, int k);
/* cond: one bool. then[k] and other[k] have one dtype and shape. Returns the IF; lib_get() its
 * results. */
struct uop *lib_if(const struct lib *l, struct uop *cond, struct uop *const *then,
                   struct uop *const *other, int n);

enum rnn_kind { RNN_LSTM, RNN_GRU, RNN_PLAIN };
enum rnn_direction { RNN_FORWARD, RNN_REVERSE, RNN_BIDIRECTIONAL };
struct rnn_activation { enum activation kind; double alpha, beta; };
struct rnn_attr {
    enum rnn_kind kind;
    enum rnn_direction direction;
    /* 0: the defaults; else per direction 3 (lstm f g h), 2 (gru f g), 1 (plain) */
    int nactivation;
    struct rnn_activation activation[6];
    double clip;                         /* 0: none */
    bool input_forget, linear_before_reset, batch_first;
};
/* ONNX layouts. Operands: x [t, b, i], w [d, G*h, i], r [d, G*h, h], bias [d, 2*G*h], seq_lens [b];
 * h0 and c0 [d, b, h], peephole [d, 3*h] (gates i o f c; z r h). Those after r are optional.
 * Results in out: Y [t, d, b, h], Y_h [d, b, h], Y_c [d, b, h] (LSTM; else NULL). With batch_first:
 * x [b, t, i], h0 and c0 [b, d, h], Y [b, t, d, h]; Y_h and Y_c [b, d, h]. Input projections run
 * outside the loop. */
struct rnn_operands {
    struct uop *x, *w, *r, *bias, *seq_lens, *h0, *c0, *peephole;
    /* LSTM, NULL: x w^T and h r^T. Else these products of direction d, whatever w and r hold. */
    struct uop *(*product)(void *ctx, struct uop *x, bool is_recurrent, int d);
    void *ctx;
};
bool lib_rnn(const struct lib *l, const struct rnn_attr *a, const struct rnn_operands *in,
             struct uop *out[3]);

/* ----------------------------------------------------------- library_loop.c: host steps, random */

/* A call of `function` (see runtime/host/). Returns the HOST uop; lib_get() its results. params:
 * INDEX scalars. */
struct uop *lib_host(const struct lib *l, const char *function, struct uop *const *in, int nin,
                     const struct host_output *out, int nout, struct uop *const *param, int nparam,
                     struct var *const *result, int nresult);
/* HOST "topk_f32", "topk_f64", "topk_i64" or "topk_u64" (narrower dtypes are cast): in x; out
 * values, indices i64; params outer, n, inner, k, largest, sorted, where x is [outer, n, inner] and
 * the results [outer, k, inner]. NaN is the largest; of equal values the one with the lower index
 * comes first. k: a dimension. */
bool lib_topk(const struct lib *l, struct uop *x, struct uop *k, int64_t axis, bool largest,
              bool sorted, struct uop **values, struct uop **indices);

/* Counter-based numbers: element i of a tensor is Threefry-2x32, 20 rounds (Salmon et al. 2011), of
 * counter (i mod 2^32, i / 2^32) under key (seed mod 2^32, seed / 2^32), which gives two words a,
 * b.
 * uniform: (a >> 8) * 2^-24, in [0, 1).  normal: sqrt(-2 ln(1 - (a >> 8) * 2^-24)) * cos(2 pi (b >>
 * 8) * 2^-24). */
struct uop *lib_random_uniform(const struct lib *l, enum dtype d, uint64_t seed, double lo,
                               double hi, struct uop *const *dim, int ndim);
/* Others in each run: the low word of `run`, an i64 scalar or NULL, changes the seed's high one by
 * XOR. */
struct uop *lib_random_uniform_of_run(const struct lib *l, enum dtype d, uint64_t seed,
                                      struct uop *run, double lo, double hi,
                                      struct uop *const *dim, int ndim);
struct uop *lib_random_normal(const struct lib *l, enum dtype d, uint64_t seed, double mean,
                              double std, struct uop *const *dim, int ndim);
/* The same numbers at compile time, into a double each. */
void lib_random_words(uint64_t seed, uint64_t counter, uint32_t word[2]);
double lib_random_uniform_at(uint64_t seed, uint64_t i);
double lib_random_normal_at(uint64_t seed, uint64_t i);

/* --------------------------------------------------------------------------- gradient_outputs.c */

/* x, through which no derivative passes; x itself if it is of integers. */
struct uop *lib_stop_gradient(const struct lib *l, struct uop *x);
/* x as a variable of lib_gradient(): no rule simplifies through it, and it is no other uop, even if
 * that is made of x. */
struct uop *lib_variable(const struct lib *l, struct uop *x);
/* Removes variables, and weights of rank 0 become constants, unless they are params; all: those,
 * too, and STOPs. Before a graph's first pass all must be gone. */
void graph_settle(struct tgc *t, struct graph *g, bool all);

struct gradient_options {
    const char *const *of; int n;        /* names of outputs */
    const char *const *state; int nstate;/* OUT=IN: no output of the caller's, and no input */
    const char *file;                    /* for messages */
};
/* Adds outputs after the model's own, before those of expose_values(): for each OUT grad.NAME, the
 * gradient of the sum of OUT by the float input or weight NAME that OUT depends on; grad.OUT.NAME
 * if there are several OUTs. In a graph with entries they are the entry's. needs: a graph as a
 * reader made it, with weights of rank 0 as buffers. false: reported. */
bool gradient_outputs(struct tgc *t, struct graph *g, const struct gradient_options *o);

/* ------------------------------------------------------------------------------------- expose.c */

/* A name that a user may ask for. value NULL: it can be no output, and why; from: what makes it. */
struct named_value { const char *name; struct uop *value; const char *refusal, *from; };
/* Makes the wanted values further outputs of g, in the order of value[], after its own ones and
 * before what states keep. A name
 * with '*' in it that no value has stands for all that match it, but for those that are the same in
 * all runs. What is an output already stays one. false: diagnostics at `at`. */
bool expose_values(struct tgc *t, const struct place *at, struct graph *g,
                   const struct named_value *value, int nvalue, const char *const *wanted,
                   int nwanted);

#endif
