/* test_schedule.c - fusion, lowering, control flow and linearization against the graph interpreter.
 *
 * Each graph is evaluated twice: as a graph by ir/eval.c, and as the schedule's linear kernels, run
 * step by step. Named cases also pin the number of kernels, which is what fusion is for; random
 * graphs look for what nobody thought of, with optimization and without.
 */
#include "tests/unit/schedules.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- named cases: the graph, and how many kernels it may take */

static struct uop *case_matmul_bias_gelu(struct fixture *f)
{
    struct uop *y = lib_add(&f->l, lib_matmul(&f->l, INPUT(f, 4, 8), INPUT(f, 8, 6)), INPUT(f, 6));
    return lib_mul(&f->l, y,
                   lib_binaryf(&f->l, OP_ADD,
                               lib_unary(&f->l, OP_ERF, lib_binaryf(&f->l, OP_MUL, y, 0.70710678)),
                               1.0));
}

/* the weight is transposed: packed, so that its columns are contiguous */
static struct uop *case_linear(struct fixture *f)
{
    return lib_linear(&f->l, INPUT(f, 6, 10), WEIGHT(f, 32, 10), INPUT(f, 32));
}

/* rows and columns that no tile divides: a part of a vector, stores of their own */
static struct uop *case_rests(struct fixture *f)
{
    return lib_linear(&f->l, INPUT(f, 37, 10), WEIGHT(f, 214, 10), INPUT(f, 214));
}

static struct uop *case_row(struct fixture *f)
{
    return lib_linear(&f->l, INPUT(f, 1, 20), WEIGHT(f, 214, 20), NULL);
}

/* twelve channels beside 62 columns: lanes that are stored apart */
static struct uop *case_apart(struct fixture *f)
{
    struct window_attr a = {.group = 1};
    return lib_conv(&f->l, INPUT(f, 1, 5, 9, 13), WEIGHT(f, 12, 5, 3, 3), NULL, &a);
}


/* a divisor that leaves most of a second one */

/* A weight of bytes. */
static struct uop *bytes(struct fixture *f, int n, const int *size)
{
    int64_t dim[MAX_RANK], nelem = 1;
    for (int a = 0; a < n; a++)
        nelem *= dim[a] = size[a];
    int8_t *data = mem_array(f->t, (size_t)nelem, sizeof *data);
    for (int64_t i = 0; i < nelem; i++)
        data[i] = (int8_t)(pick(f, 256) - 128);
    return tensor_from_data(f->t, DTYPE_I8, dim, n, data, (size_t)nelem, "w");
}

/* What a byte stands for. */
static struct uop *centered(struct fixture *f, struct uop *x, int zero)
{
    return lib_sub(&f->l, lib_cast(&f->l, DTYPE_I32, x), uop_consti(f->t, DTYPE_I32, zero));
}

static struct uop *case_bytes(struct fixture *f)
{
    struct uop *x = make_inputi(f, DTYPE_U8, 2, (int[]){13, 24});
    return lib_matmul(&f->l, centered(f, x, 3), centered(f, bytes(f, 2, (int[]){24, 35}), 0));
}

/* signed, and of a depth that is filled up */
static struct uop *case_bytes_signed(struct fixture *f)
{
    struct uop *x = make_inputi(f, DTYPE_I8, 2, (int[]){7, 21});
    return lib_matmul(&f->l, centered(f, x, -5), centered(f, bytes(f, 2, (int[]){21, 40}), 0));
}

static struct uop *case_bytes_conv(struct fixture *f)
{
    struct uop *p = uop_int(f->t, 1);
    struct window_attr a = {.group = 1, .lo = {p, p}, .hi = {p, p}};
    struct uop *x = make_inputi(f, DTYPE_U8, 4, (int[]){1, 3, 7, 6});
    return lib_conv(&f->l, centered(f, x, 9), centered(f, bytes(f, 4, (int[]){20, 3, 3, 3}), 0),
                    NULL, &a);
}

static struct uop *case_onehot(struct fixture *f)
{
    return lib_add(&f->l, onehot(f, DTYPE_I64, 0, WEIGHT(f, 9, 20)), INPUT(f, 20));
}

static struct uop *case_onehot_count(struct fixture *f)
{
    return onehot(f, DTYPE_I32, -3, WEIGHT(f, 9, 20));
}

static struct uop *case_grouped(struct fixture *f)
{
    struct window_attr a = {.group = 2};
    return lib_conv(&f->l, INPUT(f, 1, 6, 7, 9), WEIGHT(f, 16, 3, 3, 3), NULL, &a);
}

static struct uop *case_softmax(struct fixture *f) { return lib_softmax(&f->l, INPUT(f, 5, 9), 2); }
static struct uop *case_softmax_rows(struct fixture *f)
{
    return lib_softmax(&f->l, INPUT(f, 2, 5, 3), 2);
}

/* Layers of one shape, of which the last two are compiled like the first. */
static struct uop *case_twins(struct fixture *f)
{
    struct uop *x = lib_softmax(&f->l, INPUT(f, 6, 32), 1);
    for (int i = 0; i < 3; i++)
        x = lib_softmax(&f->l, lib_linear(&f->l, x, WEIGHT(f, 32, 32), WEIGHT(f, 32)), 1);
    return lib_linear(&f->l, x, WEIGHT(f, 5, 32), NULL);
}

static struct uop *case_linear_softmax(struct fixture *f)
{
    return lib_softmax(&f->l, lib_linear(&f->l, INPUT(f, 6, 10), WEIGHT(f, 12, 10), INPUT(f, 12)),
                       2);
}

static struct uop *layernorm(struct fixture *f, struct uop *x, int n)
{
    uint32_t last = 1u << (x->ndim - 1);
    struct uop *xc = lib_sub(&f->l, x,
                             lib_binaryf(&f->l, OP_MUL, tensor_sum(f->t, x, last, true), 1.0 / n));
    struct uop *var = lib_binaryf(&f->l, OP_MUL,
                                  tensor_sum(f->t, lib_mul(&f->l, xc, xc), last, true), 1.0 / n);
    return lib_div(&f->l, xc, lib_unary(&f->l, OP_SQRT, lib_binaryf(&f->l, OP_ADD, var, 1e-5)));
}

static struct uop *case_layernorm(struct fixture *f) { return layernorm(f, INPUT(f, 2, 3, 7), 7); }

static struct uop *case_attention(struct fixture *f) { return attention(f, 5, 5, INPUT(f, 5, 5)); }

/* keys are packed once for all rows, and padded to whole vectors */
static struct uop *case_attention_keys(struct fixture *f) { return attention(f, 9, 37, NULL); }

static struct uop *case_attention_masked(struct fixture *f)
{
    return attention(f, 10, 64, INPUT(f, 10, 64));
}

static struct uop *conv_relu(struct fixture *f, struct uop *x, int out, int in)
{
    struct uop *one = uop_int(f->t, 1);
    struct window_attr a = {.lo = {one, one}, .hi = {one, one}};
    return lib_binaryf(&f->l, OP_MAX,
                       lib_conv(&f->l, x, WEIGHT(f, out, in, 3, 3), INPUT(f, out), &a), 0);
}

static struct uop *case_conv_relu_pool(struct fixture *f)
{
    struct window_attr pool = {.kernel = {2, 2}, .stride = {2, 2}};
    return lib_pool(&f->l, POOL_MAX, conv_relu(f, INPUT(f, 1, 3, 8, 8), 16, 3), &pool);
}

/* channels last, whose number and that of the pixels leave rests of rests */
static struct uop *case_pool_rests(struct fixture *f)
{
    struct window_attr pool = {.kernel = {3, 3}, .stride = {2, 2}};
    struct uop *x = lib_permute(&f->l, INPUT(f, 1, 55, 55, 128), (int64_t[]){0, 3, 1, 2}, 4);
    return lib_permute(&f->l, lib_pool(&f->l, POOL_MAX, x, &pool), (int64_t[]){0, 2, 3, 1}, 4);
}

static struct uop *case_two_convs(struct fixture *f)
{
    return conv_relu(f, conv_relu(f, INPUT(f, 1, 2, 5, 5), 4, 2), 3, 4);
}

/* A pointwise layer stores into the depthwise one's halo; that one's products are never stored. */
static struct uop *case_depthwise(struct fixture *f)
{
    struct uop *one = uop_int(f->t, 1);
    struct window_attr plain = {0}, a = {.lo = {one, one}, .hi = {one, one}, .group = 12};
    struct uop *x = lib_conv(&f->l, INPUT(f, 1, 4, 6, 7), WEIGHT(f, 12, 4, 1, 1), INPUT(f, 12),
                             &plain);
    return lib_binaryf(&f->l, OP_MAX,
                       lib_conv(&f->l, lib_binaryf(&f->l, OP_MAX, x, 0), WEIGHT(f, 12, 1, 3, 3),
                                INPUT(f, 12), &a),
                       0);
}

static struct uop *case_concat(struct fixture *f)
{
    struct uop *x[2] = {INPUT(f, 2, 3, 4), lib_unary(&f->l, OP_EXP, INPUT(f, 2, 5, 4))};
    return lib_concat(&f->l, x, 2, 1);
}

static struct uop *case_argmax(struct fixture *f)
{
    struct uop *x = INPUT(f, 4, 9);
    struct uop *hit = lib_binary(&f->l, OP_EQ, x, tensor_max(f->t, x, 2, true));
    struct uop *i = tensor_iota(f->t, x->dim, 2, 1);
    return lib_sub(
        &f->l, uop_int(f->t, 9),
        tensor_max(f->t,
                   lib_where(&f->l, hit, lib_sub(&f->l, uop_int(f->t, 9), i), uop_int(f->t, 0)), 2,
                   false));
}

static struct uop *case_if(struct fixture *f)
{
    struct uop *x = INPUT(f, 3, 4), *c = make_inputi(f, DTYPE_BOOL, 0, NULL);
    struct uop *shared = lib_unary(&f->l, OP_EXP, x);
    struct uop *then[2] = {lib_softmax(&f->l, shared, 2), x},
               *other[2] = {lib_binaryf(&f->l, OP_MUL, shared, 3), lib_add(&f->l, shared, x)};
    struct uop *node = uop_if(f->t, c, then, other, 2);
    return lib_add(&f->l, uop_get(f->t, node, 0), uop_get(f->t, node, 1));
}

/* h' = tanh(x[t] @ w + h @ r), the states stacked: a recurrent network by LOOP. */
static struct uop *case_loop(struct fixture *f)
{
    struct tgc *t = f->t;
    struct uop *x = INPUT(f, 6, 3), *w = INPUT(f, 3, 4), *r = INPUT(f, 4, 4), *h0 = INPUT(f, 1, 4);
    struct loop *l = MEM_NEW(t, struct loop);
    *l = (struct loop){.id = t->next_loop++,
                       .ncarried = 1,
                       .nscan = 1,
                       .counter = var_new(t, "step", 0, 5),
                       .scan_length = uop_int(t, 6)};
    l->counter->is_counter = true;
    l->param = MEM_NEW(t, struct loop_param);
    *l->param = (struct loop_param){
        .loop = l, .dtype = DTYPE_F32, .ndim = 2, .dim = {h0->dim[0], h0->dim[1]}};
    struct uop *h = uop_param(t, l->param), *xw = lib_matmul(&f->l, x, w);
    struct uop *row = lib_narrow(&f->l, xw, 0, uop_var(t, l->counter), uop_int(t, 1));
    struct uop *next = lib_unary(&f->l, OP_TANH, lib_add(&f->l, row, lib_matmul(&f->l, h, r)));
    struct uop *loop = uop_loop(t, l, uop_int(t, 6), uop_bool(t, true), &h0, uop_bool(t, true),
                                &next, &next);
    struct uop *last = uop_reshape(
        t, uop_get(t, loop, 0), (struct uop *[]){uop_int(t, 1), uop_int(t, 1), uop_int(t, 4)}, 3);
    return lib_add(&f->l, uop_get(t, loop, 1), last);
}

static struct uop *case_scatter(struct fixture *f)
{
    struct uop *x = INPUT(f, 5), *v = INPUT(f, 7), *i = make_inputi(f, DTYPE_I64, 1, (int[]){7});
    return uop_scatter(f->t, OP_ADD, x, v, &i);
}

static struct uop *case_gather(struct fixture *f)
{
    struct uop *x = lib_unary(&f->l, OP_EXP, INPUT(f, 6)),
               *i = make_inputi(f, DTYPE_I64, 1, (int[]){7});
    return uop_index(f->t, x, &i);
}

/* Where an index lies outside, there is 0, not the padding. */
static struct uop *case_gather_padding(struct fixture *f)
{
    struct uop *two = uop_int(f->t, 2), *zero = uop_int(f->t, 0),
               *i = make_inputi(f, DTYPE_I64, 1, (int[]){20});
    struct uop *lo[2] = {two, zero}, *hi[2] = {zero, zero},
               *at[2] = {i, uop_binary(f->t, OP_AND, i, uop_int(f->t, 3))};
    return uop_index(f->t, uop_pad(f->t, INPUT(f, 1, 3), uop_constf(f->t, DTYPE_F32, 2), lo, hi),
                     at);
}

/* The load under the padding stays within its buffer whatever is known about the value. */
static struct uop *case_integer_padding(struct fixture *f)
{
    struct var *n = var_new(f->t, "n", 1, 6);
    f->var[n->id] = 4;
    struct uop *dim[2] = {uop_var(f->t, n), uop_var(f->t, n)}, *zero = uop_int(f->t, 0),
               *lo[2] = {zero, uop_int(f->t, 2)}, *hi[2] = {zero, zero};
    return uop_cast(f->t, DTYPE_F32, uop_pad(f->t, make_input(f, DTYPE_I64, dim, 2), zero, lo, hi));
}

/* Few enough rows of padding that a row's softmax is staged under it. */
static struct uop *case_softmax_padding(struct fixture *f)
{
    struct uop *zero = uop_int(f->t, 0), *lo[2] = {uop_int(f->t, 2), zero}, *hi[2] = {zero, zero};
    return uop_pad(f->t, lib_softmax(&f->l, INPUT(f, 300, 3), 2), uop_constf(f->t, DTYPE_F32, 0),
                   lo, hi);
}

/* A loop of no iteration: its stacked results are empty, and nothing is loaded from them. */
static struct uop *case_empty_scan(struct fixture *f)
{
    struct uop *x = INPUT(f, 2);
    struct lib_loop *l = lib_loop_begin(&f->l, uop_int(f->t, 0), NULL, &x, 1);
    struct uop *next = lib_unary(&f->l, OP_EXP, l->param[0]),
               *sum = tensor_sum(f->t, l->param[0], 1, false);
    return uop_get(f->t, lib_loop_end(&f->l, l, NULL, &next, &sum, 1, NULL), 1);
}

/* The value that a loop starts with is needed once more, inside and after it. */
static struct uop *case_loop_start(struct fixture *f)
{
    struct uop *x = lib_unary(&f->l, OP_EXP, INPUT(f, 3));
    struct lib_loop *l = lib_loop_begin(&f->l, uop_int(f->t, 3), NULL, &x, 1);
    struct uop *next = lib_sub(&f->l, lib_add(&f->l, l->param[0], l->param[0]),
                               lib_binaryf(&f->l, OP_MUL, x, 0.5));
    return lib_mul(&f->l, x, uop_get(f->t, lib_loop_end(&f->l, l, NULL, &next, NULL, 0, NULL), 0));
}

static struct uop *case_dynamic(struct fixture *f)
{
    struct var *n = var_new(f->t, "n", 1, 8);
    f->var[n->id] = 5;
    struct uop *x = make_input(f, DTYPE_F32, (struct uop *[]){uop_var(f->t, n), uop_int(f->t, 6)},
                               2);
    struct uop *y = uop_reshape(
        f->t, x,
        (struct uop *[]){sym_mul(f->t, uop_var(f->t, n), uop_int(f->t, 3)), uop_int(f->t, 2)}, 2);
    return lib_softmax(&f->l, lib_permute(&f->l, y, NULL, 0), 2);
}

/* Stages whose ranges have a computed size. */
static struct uop *case_dynamic_stages(struct fixture *f)
{
    struct var *n = var_new(f->t, "n", 1, 8);
    f->var[n->id] = 5;
    struct uop *x = make_input(f, DTYPE_F32, (struct uop *[]){uop_var(f->t, n), uop_int(f->t, 6)},
                               2),
               *whole = sym_prod(f->t, x->dim, 2);
    return lib_softmax(&f->l, lib_softmax(&f->l, uop_reshape(f->t, x, &whole, 1), 1), 1);
}

/* Nothing is computed for elements that are not there, and nothing is read. */
static struct uop *case_empty_rows(struct fixture *f)
{
    struct uop *x = INPUT(f, 0, 0, 3, 4), *dim[2] = {uop_int(f->t, 0), uop_int(f->t, 12)};
    return uop_reshape(f->t, lib_softmax(&f->l, uop_reshape(f->t, x, dim, 2), 2), x->dim, 4);
}

static struct uop *conv3(struct fixture *f, struct uop *x, int out, int in, int group, int pad)
{
    int bias[] = {out};
    struct uop *p = uop_int(f->t, pad);
    struct window_attr a = {.group = group, .lo = {p, p}, .hi = {p, p}};
    return lib_conv(&f->l, x, WEIGHT(f, out, in, 3, 3), make_weight(f, 1, bias), &a);
}

/* tiles that fill the image */
static struct uop *case_winograd_exact(struct fixture *f)
{
    return lib_binaryf(&f->l, OP_MAX, conv3(f, INPUT(f, 1, 8, 12, 12), 16, 8, 1, 1), 0.0);
}

/* a batch, a border of tiles that is cut off, no padding, channels that no vector divides */
static struct uop *case_winograd_rest(struct fixture *f)
{
    return conv3(f, INPUT(f, 2, 3, 9, 15), 5, 3, 1, 0);
}

static struct uop *case_winograd_grouped(struct fixture *f)
{
    return conv3(f, INPUT(f, 1, 16, 7, 9), 32, 8, 2, 1);
}

/* One axis of windows; a layer's input is not padded to whole tiles. */
static struct uop *case_winograd_line(struct fixture *f)
{
    struct window_attr a = {.group = 1};
    return lib_conv(&f->l, INPUT(f, 2, 8, 25), WEIGHT(f, 16, 8, 5), NULL, &a);
}

/* An even number of taps, and as many as there can be. */
static struct uop *case_winograd_even(struct fixture *f)
{
    struct window_attr a = {.group = 1};
    return lib_conv(&f->l, INPUT(f, 1, 8, 9, 13), WEIGHT(f, 16, 8, 2, 4), NULL, &a);
}

static struct uop *case_winograd_nine(struct fixture *f)
{
    struct window_attr a = {.group = 1};
    return lib_conv(&f->l, INPUT(f, 1, 8, 27), WEIGHT(f, 16, 8, 9), NULL, &a);
}

/* Taps of two counts; of one axis every third element is a filter's. */
static struct uop *case_winograd_dilated(struct fixture *f)
{
    struct uop *hi = uop_int(f->t, 1);
    struct window_attr a = {.group = 1, .dilation = {3, 1}, .lo = {uop_int(f->t, 7), hi},
                            .hi = {uop_int(f->t, 9), hi}};
    return lib_conv(&f->l, INPUT(f, 1, 5, 16, 9), WEIGHT(f, 8, 5, 7, 3), NULL, &a);
}

/* One of the windows' axes stays in the sums, since it has a stride. */
static struct uop *case_winograd_strided(struct fixture *f)
{
    struct uop *one = uop_int(f->t, 1);
    struct window_attr a = {.group = 2, .stride = {1, 2}, .lo = {one, one}, .hi = {one, one}};
    return lib_conv(&f->l, INPUT(f, 1, 6, 11, 14), WEIGHT(f, 16, 3, 3, 3), NULL, &a);
}

/* Neighbouring outputs are channels of one convolution, without zeros between the inputs. */
static struct uop *case_transposed(struct fixture *f)
{
    struct window_attr a = {.group = 1, .stride = {2, 2}};
    return lib_conv_transpose(&f->l, INPUT(f, 1, 8, 5, 4), WEIGHT(f, 8, 16, 2, 2), NULL, &a);
}

static struct uop *case_transposed_cut(struct fixture *f)
{
    struct uop *one = uop_int(f->t, 1);
    struct window_attr a = {.group = 2, .stride = {2, 3}, .lo = {one, one}, .hi = {one, one}};
    return lib_conv_transpose(&f->l, INPUT(f, 1, 8, 5, 4), WEIGHT(f, 8, 6, 4, 5), NULL, &a);
}

/* A residual block: the second layer's epilogue adds what the first one read. */
static struct uop *case_winograd_block(struct fixture *f)
{
    struct uop *x = INPUT(f, 1, 8, 10, 6);
    struct uop *y = lib_unary(&f->l, OP_TANH, conv3(f, x, 8, 8, 1, 1));
    return lib_add(&f->l, x, conv3(f, y, 8, 8, 1, 1));
}

/* The depthwise layer's result is needed row by row, that of the layer before it with two more. */
static struct uop *case_chain(struct fixture *f)
{
    struct window_attr plain = {.group = 1}, depthwise = {.group = 12};
    struct uop *x = lib_conv(&f->l, INPUT(f, 1, 6, 12, 9), WEIGHT(f, 12, 6, 1, 1), NULL, &plain);
    x = lib_conv(&f->l, lib_binaryf(&f->l, OP_MAX, x, 0.0), WEIGHT(f, 12, 1, 3, 3), NULL,
                 &depthwise);
    return lib_conv(&f->l, lib_unary(&f->l, OP_TANH, x), WEIGHT(f, 5, 12, 1, 1), NULL, &plain);
}

/* Both matrices are what the sum reads, the second one transposed: a band of its columns. */
static struct uop *case_band_transposed(struct fixture *f)
{
    int perm[] = {1, 0};
    struct uop *a = lib_matmul(&f->l, INPUT(f, 12, 6), INPUT(f, 6, 12));
    struct uop *b = uop_permute(f->t, lib_matmul(&f->l, INPUT(f, 12, 6), INPUT(f, 6, 12)), perm);
    return lib_matmul(&f->l, lib_add(&f->l, a, b), INPUT(f, 12, 8));
}

/* A stride, a border of two on one side, and a dilated window over it. */
static struct uop *case_halos(struct fixture *f)
{
    struct uop *one = uop_int(f->t, 1), *two = uop_int(f->t, 2);
    struct window_attr a = {.group = 1, .lo = {one, two}, .hi = {one, one}},
                       b = {.group = 1, .stride = {2, 1}, .lo = {one, two}, .hi = {two, two},
                            .dilation = {1, 2}};
    struct uop *x = lib_conv(&f->l, INPUT(f, 1, 3, 13, 9), WEIGHT(f, 8, 3, 3, 3), NULL, &a);
    x = lib_binaryf(&f->l, OP_MAX, lib_add(&f->l, x, INPUT(f, 8, 1, 1)), 0.0);
    return lib_conv(&f->l, x, WEIGHT(f, 6, 8, 3, 3), INPUT(f, 6), &b);
}

/* What a layer reads with a border is added to its result. */
static struct uop *case_border_read(struct fixture *f)
{
    struct uop *one = uop_int(f->t, 1);
    struct window_attr plain = {.group = 1}, a = {.group = 1, .lo = {one, one}, .hi = {one, one}};
    struct uop *x =
        lib_conv(&f->l, INPUT(f, 1, 4, 8, 7), WEIGHT(f, 8, 4, 1, 1), INPUT(f, 8), &plain);
    x = lib_binaryf(&f->l, OP_MAX, x, 0.0);
    return lib_add(&f->l, lib_conv(&f->l, x, WEIGHT(f, 8, 8, 3, 3), INPUT(f, 8), &a), x);
}

static struct uop *pointwise(struct fixture *f, struct uop *x, int in, int out)
{
    struct window_attr plain = {.group = 1};
    x = lib_conv(&f->l, x, WEIGHT(f, out, in, 1, 1), INPUT(f, out), &plain);
    return lib_binaryf(&f->l, OP_MAX, x, 0.0);
}

static struct uop *join(struct fixture *f, struct uop **part, int n)
{
    return lib_concat(&f->l, part, n, 1);
}

/* A dense block: each layer reads all before it. */
static struct uop *case_growing_concat(struct fixture *f)
{
    struct uop *part[3] = {pointwise(f, INPUT(f, 1, 3, 5, 6), 3, 16)};
    part[1] = pointwise(f, pointwise(f, part[0], 16, 4), 4, 8);
    part[2] = pointwise(f, pointwise(f, join(f, part, 2), 24, 4), 4, 8);
    return pointwise(f, join(f, part, 3), 32, 5);
}

/* A layer does not store to what it reads: one of the two is copied. */
static struct uop *case_concat_of_source(struct fixture *f)
{
    struct uop *part[2] = {pointwise(f, INPUT(f, 1, 3, 5, 6), 3, 16)};
    part[1] = pointwise(f, part[0], 16, 8);
    return pointwise(f, join(f, part, 2), 24, 5);
}

static const struct {
    const char *name;
    struct uop *(*build)(struct fixture *);
    int kernels, tile;
    int nests;                       /* not 0: bands wherever they can be, and the nests in them */
} cases[] = {
    {"matmul+bias+gelu", case_matmul_bias_gelu, 1},
    {"linear", case_linear, 1},
    {"rests of rows and columns", case_rests, 1},
    {"row times matrix", case_row, 1},
    {"lanes apart", case_apart, 1},
    {"digits of an index", case_digits, 1},
    {"digits of an index, rest", case_digits_rest, 1},
    {"bytes", case_bytes, 1},
    {"bytes, signed and filled up", case_bytes_signed, 2},
    {"bytes under a window", case_bytes_conv, 2},
    {"one-hot rows", case_onehot, 1},
    {"one-hot rows, counted", case_onehot_count, 1},
    {"grouped convolution", case_grouped, 1},
    {"softmax", case_softmax, 1},
    {"softmax, middle axis", case_softmax_rows, 1},
    {"linear+softmax", case_linear_softmax, 2},
    {"layernorm", case_layernorm, 1},
    {"attention", case_attention, 1},
    {"attention, packed keys", case_attention_keys, 1},
    {"attention, masked", case_attention_masked, 1},
    {"conv+bias+relu+pool", case_conv_relu_pool, 2},
    {"pooling leaves rests", case_pool_rests, 1},
    {"two convolutions", case_two_convs, 3},
    {"pointwise+depthwise", case_depthwise, 2},
    {"concat", case_concat, 1},
    {"a growing concat", case_growing_concat, 6},
    {"a concat of what it reads", case_concat_of_source, 3},
    {"with a border and without", case_border_read, 2},
    {"argmax", case_argmax, 1},
    {"if", case_if, 6},
    {"loop", case_loop, 6},
    {"scatter", case_scatter, 1},
    {"gather", case_gather, 2},
    {"dynamic", case_dynamic, 1},
    {"gather of padding", case_gather_padding, 1},
    {"padding of integers", case_integer_padding, 1},
    {"empty scan", case_empty_scan, 5},
    {"start of a loop", case_loop_start, 6},
    {"softmax under padding", case_softmax_padding, 1},
    {"stages of computed size", case_dynamic_stages, 1},
    {"empty rows", case_empty_rows, 1},
    {"transposed", case_transposed, 1},
    {"transposed, cut", case_transposed_cut, 6},
    {"winograd, F2", case_winograd_exact, 5, 2},
    {"winograd, F4", case_winograd_exact, 5, 4},
    {"winograd, F6", case_winograd_exact, 5, 6},
    {"winograd, F2, rest", case_winograd_rest, 5, 2},
    {"winograd, F4, rest", case_winograd_rest, 5, 4},
    {"winograd, F6, rest", case_winograd_rest, 5, 6},
    {"winograd, F4, groups", case_winograd_grouped, 5, 4},
    {"winograd, F2, line", case_winograd_line, 5, 2},
    {"winograd, F6, line", case_winograd_line, 5, 6},
    {"winograd, F2, dilated", case_winograd_dilated, 5, 2},
    {"winograd, F4, dilated", case_winograd_dilated, 5, 4},
    {"winograd, F6, dilated", case_winograd_dilated, 5, 6},
    {"winograd, F3, even", case_winograd_even, 5, 3},
    {"winograd, F5, even", case_winograd_even, 5, 5},
    {"winograd, F2, nine", case_winograd_nine, 5, 2},
    {"winograd, F4, strided", case_winograd_strided, 5, 4},
    {"winograd, F4, block", case_winograd_block, 9, 4},
    {"bands, winograd, F4", case_winograd_exact, 1, 4, 9},
    {"bands, winograd, F6", case_winograd_exact, 1, 6, 9},
    {"bands, winograd, rest", case_winograd_rest, 1, 4, 7},
    {"bands, winograd, block", case_winograd_block, 2, 2, 17},
    {"bands, halo", case_depthwise, 1, 0, 6},
    {"bands, two halos", case_halos, 1, 0, 11},
    {"twins", case_twins, 8},
    {"bands, chain", case_chain, 1, 0, 3},
    {"bands, transposed", case_band_transposed, 1, 0, 2},
};

static int run_case(struct fixture *f, size_t i, bool noopt)
{
    if (setjmp(f->t->stop)) {
        print_message("%s: %s\n", cases[i].name, f->t->ndiag ? f->t->diag[0].message : "stopped");
        fail();
    }
    f->g.name = cases[i].name;
    f->tile = cases[i].tile;
    f->bands = cases[i].nests > 0;
    add_output(f, cases[i].build(f));
    return check(f, noopt);
}

static void test_cases(void **state)
{
    (void)state;
    int shared = 0, twins = 0;
    bool quick = cases_are("quick"), all = cases_are("all");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k <= 2 * ISA_COUNT; k++) {
            /* each case once, with all sets in turn; or portably, without optimization, and with
             * every fourth set in turn, threads in turn; or with all sets */
            bool is_turn =
                quick ? k == (int)(i % (2 * ISA_COUNT + 1))
                      : all || k == 0 || k == 2 * ISA_COUNT || (k / 2 + (int)i) % 8 == 4 * (k % 2);
            if (!is_turn)
                continue;
            bool noopt = k == 2 * ISA_COUNT;
            struct fixture *f = fixture_new(i + 1);
            f->isa = noopt ? ISA_GENERIC : (enum isa)(k / 2);
            f->threads = k % 2 ? 3 : 1;
            int n = run_case(f, i, noopt);
            print_message(
                "%-24s %-8s: %d kernels, %d with vectors, %d shared, %d nests in bands, %d twins\n",
                cases[i].name, noopt ? "-O0" : isa_table[f->isa].text, n, f->nvariant, f->nshared,
                f->nband, f->ntwin);
            /* nests that meet are kernels of their own where threads share them */
            if (!noopt && f->threads == 1)
                assert_int_equal(n, cases[i].kernels);
            if (!noopt && f->bands && f->isa == ISA_GENERIC)
                assert_int_equal(f->nband, cases[i].nests);
            shared += f->nshared;
            twins += f->ntwin;
            fixture_free(f);
        }
    assert_true(shared > (quick ? 10 : all ? 100 : 50));
    assert_true(twins > (quick ? 4 : all ? 40 : 20));
}

/* ---- random graphs */

enum { POOL = 48 };

static struct uop *random_view(struct fixture *f, struct uop *x)
{
    struct tgc *t = f->t;
    struct uop *a[MAX_RANK], *b[MAX_RANK];
    int perm[MAX_RANK], axis = x->ndim ? pick(f, x->ndim) : 0;
    if (x->ndim == 0)
        return tensor_insert_axis(t, x, 0);
    for (int i = 0; i < x->ndim; i++) {
        a[i] = b[i] = uop_int(t, 0);
        perm[i] = i;
    }
    /* a symbol's size is not known: its axis is not cut */
    int64_t n = 1;
    uop_const_int(x->dim[axis], &n);
    switch (pick(f, 8)) {
    case 0:
        for (int i = x->ndim - 1; i > 0; i--) {
            int j = pick(f, i + 1), swap = perm[i];
            perm[i] = perm[j];
            perm[j] = swap;
        }
        return uop_permute(t, x, perm);
    case 1:
        a[axis] = uop_int(t, pick(f, 3));
        b[axis] = uop_int(t, pick(f, 3));
        return uop_pad(t, x, uop_consti(t, x->dtype, pick(f, 3)), a, b);
    case 2:
        for (int i = 0; i < x->ndim; i++)
            b[i] = x->dim[i];
        if (n > 1) {
            a[axis] = uop_int(t, pick(f, (int)n));
            b[axis] = uop_int(t, 1 + pick(f, (int)(n - a[axis]->arg.i)));
        }
        return uop_shrink(t, x, a, b);
    case 3: return uop_flip(t, x, (uint32_t)pick(f, 1 << x->ndim));
    case 4: {
        struct uop *whole = sym_prod(t, x->dim, x->ndim);
        return uop_reshape(t, x, &whole, 1);
    }
    case 5: return x->ndim < 4 ? tensor_insert_axis(t, x, pick(f, x->ndim + 1)) : x;
    case 6:
        if (x->ndim > 3 || n < 2)
            return x;
        return uop_window(t, x, axis, uop_int(t, n - 1), uop_int(t, 2), 1, 1);
    default:
        for (int i = 2; i < n; i++)
            if (n % i == 0 && x->ndim < 4) {
                int m = 0;
                for (int k = 0; k < x->ndim; k++) {
                    if (k == axis)
                        a[m++] = uop_int(t, i);
                    a[m++] = k == axis ? uop_int(t, n / i) : x->dim[k];
                }
                return uop_reshape(t, x, a, m);
            }
        return x;
    }
}

static bool same_dims(const struct uop *x, const struct uop *y, int from)
{
    bool same = x->ndim == y->ndim && x->ndim >= from;
    for (int a = from; same && a < x->ndim; a++)
        same = x->dim[a] == y->dim[a];
    return same;
}

static int64_t size_of(struct fixture *f, const struct uop *x)
{
    int64_t size = 1;
    for (int a = 0; a < x->ndim; a++)
        size *= extent(f, x->dim[a]);
    return size;
}

static struct uop *random_cast(struct fixture *f, struct uop *x)
{
    static const enum dtype ints[] = {DTYPE_I64, DTYPE_I32, DTYPE_U8,
                                      DTYPE_I8,  DTYPE_U32, DTYPE_F32};
    /* rounded, so that sums in another order still agree */
    if (x->dtype == DTYPE_F32)
        return uop_cast(f->t, DTYPE_F32, uop_unary(f->t, OP_NEG, uop_cast(f->t, DTYPE_F16, x)));
    return uop_cast(f->t, ints[pick(f, 6)], x);
}

static struct uop *random_arithmetic(struct fixture *f, struct uop *x, struct uop *y)
{
    static const enum op unary[] = {OP_EXP, OP_NEG, OP_ABS, OP_TANH, OP_FLOOR},
                         binary[] = {OP_ADD, OP_SUB, OP_MUL, OP_MAX, OP_MIN};
    static const enum op words[] = {OP_DIV, OP_MOD, OP_FLOORDIV, OP_FLOORMOD, OP_AND, OP_OR,
                                    OP_XOR, OP_ADD, OP_SUB,      OP_MUL,      OP_MAX, OP_MIN};
    bool real = dtype_is_float(x->dtype);
    if (pick(f, 4) == 0)
        return uop_unary(f->t, unary[real ? pick(f, 5) : 1 + pick(f, 2)], x);
    if (x->dtype == y->dtype && pick(f, 3))
        return tensor_binary(f->t, real ? binary[pick(f, 5)] : words[pick(f, 12)], x, y);
    if (!real)
        return uop_binary(f->t, words[pick(f, 12)], x, uop_consti(f->t, x->dtype, pick(f, 9) - 4));
    return dtype_is_float(y->dtype) ? tensor_binary(f->t, OP_ADD, x, y)
                                    : tensor_binary(f->t, OP_MUL, x, uop_cast(f->t, x->dtype, y));
}

/* Elements at places that depend on data, in the array or not. */
static struct uop *random_index(struct fixture *f, struct uop *x, struct uop *y)
{
    struct uop *index[MAX_RANK];
    if (x->ndim == 0 || x->ndim > 3 || dtype_is_float(y->dtype) || y->dtype == DTYPE_U64)
        return x;
    for (int a = 0; a < x->ndim; a++) {
        struct uop *i = uop_cast(f->t, DTYPE_I64, y);
        index[a] = pick(f, 2) ? i : uop_binary(f->t, OP_AND, i, uop_int(f->t, 3));
    }
    return uop_index(f->t, x, index);
}

static struct uop *random_scatter(struct fixture *f, struct uop *x, struct uop *y)
{
    static const enum op how[] = {OP_CONST, OP_ADD, OP_MUL, OP_MAX, OP_MIN};
    struct uop *index[MAX_RANK];
    if (x->ndim == 0 || x->ndim > 2 || dtype_is_float(y->dtype))
        return x;
    for (int a = 0; a < x->ndim; a++)
        index[a] = uop_binary(f->t, OP_AND, uop_cast(f->t, DTYPE_I64, y), uop_int(f->t, 3));
    return uop_scatter(f->t, how[pick(f, 5)], x, uop_cast(f->t, x->dtype, y), index);
}

enum { DEPTH = 2 };
static struct uop *random_op(struct fixture *f, struct uop **have, int n, int depth);

/* A few operations on what the pool holds; the last one with x's dtype and shape, kept small. */
static struct uop *random_chain(struct fixture *f, struct uop *const *have, int n, struct uop *x,
                                int depth)
{
    struct uop *pool[8], *r = x;
    int m = 0;
    pool[m++] = x;
    for (int i = 0; i < 2; i++)
        pool[m++] = have[pick(f, n)];
    for (int i = 0; i < 4; i++) {
        struct uop *u = random_op(f, pool, m, depth);
        if (!u)
            continue;
        pool[m++] = u;
        if (u->dtype == x->dtype && same_dims(u, x, 0))
            r = u;
    }
    return dtype_is_float(r->dtype) ? uop_unary(f->t, OP_TANH, r) : r;
}

static struct uop *random_condition(struct fixture *f)
{
    return make_inputi(f, DTYPE_BOOL, 0, NULL);
}

static struct uop *random_if(struct fixture *f, struct uop *const *have, int n, struct uop *x,
                             int depth)
{
    struct uop *then[2] = {random_chain(f, have, n, x, depth), x},
               *other[2] = {random_chain(f, have, n, x, depth), random_chain(f, have, n, x, depth)};
    struct uop *node = lib_if(&f->l, random_condition(f), then, other, 2);
    return node->op == OP_IF ? uop_get(f->t, node, pick(f, 2)) : node;
}

static struct uop *random_loop(struct fixture *f, struct uop *const *have, int n, struct uop *x,
                               int depth)
{
    struct uop *init[2] = {x, have[pick(f, n)]}, *next[2], *scan;
    struct lib_loop *l = lib_loop_begin(&f->l, uop_int(f->t, pick(f, 4)),
                                        pick(f, 3) ? NULL : random_condition(f), init, 2);
    struct uop *inside[4] = {l->param[0], l->param[1], have[pick(f, n)],
                             uop_cast(f->t, pick(f, 2) ? DTYPE_F32 : DTYPE_I64, l->counter)};
    for (int k = 0; k < 2; k++)
        next[k] = pick(f, 4) ? random_chain(f, inside, 4, l->param[k], depth) : l->param[1 - k];
    for (int k = 0; k < 2; k++)
        if (next[k]->dtype != init[k]->dtype || !same_dims(next[k], init[k], 0))
            next[k] = l->param[k];
    scan = random_chain(f, inside, 4, l->param[0], depth);
    return uop_get(f->t, lib_loop_end(&f->l, l, NULL, next, &scan, x->ndim < 4, NULL),
                   pick(f, x->ndim < 4 ? 3 : 2));
}

/* Positions along an axis with expressions of their own: all positions, or another number of them,
 * or those that data selects, also outside. */
static struct uop *random_stack(struct fixture *f, struct uop *x, struct uop *y)
{
    struct tgc *t = f->t;
    struct uop *dim[4], *index, *src[4] = {x, y, tensor_binary(t, OP_ADD, x, y), x};
    int axis = x->ndim ? pick(f, x->ndim) : 0, n = 2 + pick(f, 3);
    if (!src[2] || x->ndim > 4)
        return NULL;
    src[3] = tensor_binary(t, OP_MUL, src[2], x);
    for (int a = 0; a < x->ndim; a++)
        dim[a] = a == axis ? x->dim[a] : uop_int(t, 1);
    if (x->ndim && pick(f, 3))
        index = uop_reshape(t, uop_iota(t, x->dim[axis]), dim, x->ndim);
    else
        index = uop_cast(t, DTYPE_INDEX, x);
    return tensor_stack(t, index, src, n);
}

static struct uop *random_op(struct fixture *f, struct uop **have, int n, int depth)
{
    static const enum op folds[] = {OP_ADD, OP_MAX, OP_MIN};
    struct uop *x = have[pick(f, n)], *y = have[pick(f, n)];
    if (size_of(f, y) > 4000)
        y = x;
    switch (size_of(f, x) > 4000 ? 5 : pick(f, depth < DEPTH && f->g.ninput < 12 ? 16 : 14)) {
    case 0: case 1: case 2: return random_arithmetic(f, x, y);
    case 3: case 4: return random_view(f, x);
    case 5:
        return x->ndim ? uop_reduce(f->t, folds[pick(f, 3)], x,
                                    1u + (uint32_t)pick(f, (1 << x->ndim) - 1))
                       : x;
    case 6:
        return x->ndim && dtype_is_float(x->dtype) ? lib_softmax(&f->l, x, 1u << pick(f, x->ndim))
                                                   : x;
    case 7:
    case 8:
        return x->dtype == y->dtype && x->ndim > 0 && same_dims(x, y, 1)
                   ? uop_concat(f->t, (struct uop *[]){x, y}, 2, 0)
                   : x;
    case 9:
        return x->dtype != y->dtype ? NULL
               : pick(f, 2)
                   ? random_stack(f, x, y)
                   : tensor_where(f->t, uop_binary(f->t, OP_LT, x, uop_consti(f->t, x->dtype, 1)),
                                  y, x);
    case 10: return random_cast(f, x);
    case 11: case 12: return random_index(f, x, y);
    case 13: return random_scatter(f, x, y);
    case 14: return random_if(f, have, n, x, depth + 1);
    default: return random_loop(f, have, n, x, depth + 1);
    }
}

/* Mostly floats; sizes are constants, and in one graph of three a symbol. A long axis is one where
 * padding repeats hardly any work. */
static struct uop *random_input(struct fixture *f, struct uop *symbol)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F32, DTYPE_F32,
                                        DTYPE_I64, DTYPE_I32, DTYPE_U8};
    static const int sizes[] = {1, 2, 3, 4, 6, 8, 16};
    struct uop *dim[4];
    int rank = pick(f, 4);
    for (int a = 0; a < rank; a++)
        dim[a] = symbol && !pick(f, 3) ? symbol
                                       : uop_int(f->t, pick(f, 12) ? sizes[pick(f, 7)] : 260);
    return make_input(f, dtypes[pick(f, 6)], dim, rank);
}

static void build_random(struct fixture *f, int seed)
{
    struct uop *have[POOL], *symbol = NULL;
    int n = 0;
    f->g.name = mem_printf(f->t, "seed %d", seed);
    f->t->noopt = seed % 8 == 0;
    if (seed % 3 == 0) {
        struct var *v = var_new(f->t, "n", 1, 6);
        f->var[v->id] = 1 + pick(f, 6);
        symbol = uop_var(f->t, v);
    }
    for (int i = 0; i < 4; i++)
        have[n++] = random_input(f, symbol);
    for (int i = 0; i < 14; i++) {
        struct uop *u = random_op(f, have, n, 0);
        if (u)
            have[n++] = u;
    }
    add_output(f, have[n - 1]);
    add_output(f, have[n - 2]);
}

/* Consecutive layers, which bands can hold. */
static struct uop *random_layer(struct fixture *f, struct uop *x)
{
    int in = (int)x->dim[1]->arg.i, kind = pick(f, 8), out = 4 * (1 + pick(f, 3)),
        perm[] = {0, 1, 3, 2};
    struct window_attr a = {.group = 1};
    bool small = x->dim[2]->arg.i < 5 || x->dim[3]->arg.i < 5;
    if (kind == 0)
        return uop_permute(f->t, x, perm);
    if (kind == 1 || small)
        return lib_unary(&f->l, OP_TANH, x);
    if (kind == 2)
        return lib_add(&f->l, x, lib_binaryf(&f->l, OP_MAX, x, 0.25));
    if (kind == 3)
        a.lo[0] = a.lo[1] = a.hi[0] = a.hi[1] = uop_int(f->t, 1);
    if (kind == 4)
        a.stride[0] = a.stride[1] = 2;
    if (kind == 5)
        return lib_conv(&f->l, x, WEIGHT(f, out, in, 1, 1), NULL, &a);
    if (kind == 6) {
        a.group = in;
        return lib_conv(&f->l, x, WEIGHT(f, in, 1, 3, 2), NULL, &a);
    }
    return lib_conv(&f->l, x, WEIGHT(f, out, in, 3, 3), NULL, &a);
}

static void build_layers(struct fixture *f, int seed)
{
    static const int size[] = {8, 9, 12, 16, 24};
    struct uop *x = INPUT(f, 1 + seed % 2, 4, size[pick(f, 5)], size[pick(f, 5)]), *y = NULL;
    f->g.name = mem_printf(f->t, "seed %d, layers", seed);
    for (int i = 0; i < 7; i++) {
        x = random_layer(f, x);
        if (i == 3 && seed % 5 == 0)
            y = x;
    }
    add_output(f, x);
    if (y)
        add_output(f, y);
    f->tile = 0;
}

static int run_random(struct fixture *f, int seed)
{
    if (setjmp(f->t->stop)) {
        print_message("seed %d: %s\n", seed, f->t->ndiag ? f->t->diag[0].message : "stopped");
        fail();
    }
    f->bands = seed % 7 < 4;
    if (seed % 7 < 3)
        build_layers(f, seed);
    else
        build_random(f, seed);
    f->isa = seed % 3 == 0   ? ISA_GENERIC
             : seed % 3 == 1 ? ISA_NEON
                             : ISA_AVX2;
    f->threads = seed % 5;
    return check(f, seed % 4 == 0);
}

static void test_random(void **state)
{
    (void)state;
    const char *count = getenv("TGC_RANDOM_GRAPHS");
    int total = count              ? atoi(count)
                : cases_are("all") ? 400
                                   : 200,
        kernels = 0, vectors = 0, shared = 0, bands = 0;
    for (int seed = 1; seed <= total; seed++) {
        struct fixture *f = fixture_new((uint64_t)seed);
        kernels += run_random(f, seed);
        vectors += f->nvariant;
        shared += f->nshared;
        bands += f->nband;
        fixture_free(f);
    }
    print_message("schedule: %d random graphs, %d kernels, %d runs with vectors, %d by threads, "
                  "%d nests in bands\n", total, kernels, vectors, shared, bands);
    assert_true(vectors > 0 && shared > 0 && bands > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
