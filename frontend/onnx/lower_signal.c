/* lower_signal.c - Fourier transforms, mel weights, determinants.
 *
 * A transform of length N is a product with a table of cos and sin of 2 pi (j k mod N) / N. j k is
 * reduced modulo N as an integer, so that the angles are exact. That is O(N^2), but one contraction
 * like any other. It is in f64: a sum of N products in f32 would lose precision that an FFT keeps.
 */
#include <math.h>
#include <string.h>

#include "frontend/onnx/lower.h"

static const double two_pi = 6.283185307179586476925;

/* f(2 pi j k / period) for j < rows, k < cols. */
static struct uop *trig_table(const struct node *n, enum op f, enum dtype d, struct uop *rows,
                              struct uop *cols, struct uop *period)
{
    const struct lib *l = &n->lib;
    struct uop *dim[2] = {rows, cols};
    struct uop *turn =
        lib_binary(l, OP_FLOORMOD,
                   lib_mul(l, tensor_iota(n->t, dim, 2, 0), tensor_iota(n->t, dim, 2, 1)), period);
    struct uop *angle = lib_div(l, lib_binaryf(l, OP_MUL, lib_cast(l, d, turn), two_pi),
                                lib_float_of(l, d, period));
    return lib_unary(l, f, angle);
}

/* The second to last axis of x with size `length`, truncated or padded with 0. */
static struct uop *fit_length(const struct node *n, struct uop *x, struct uop *length)
{
    struct uop *lo[MAX_RANK], *hi[MAX_RANK];
    int axis = x->ndim - 2;
    for (int a = 0; a < x->ndim; a++)
        lo[a] = hi[a] = uop_int(n->t, 0);
    hi[axis] = sym_sub(n->t, length, x->dim[axis]);
    return lib_pad(&n->lib, x, PAD_MODE_CONSTANT, NULL, lo, hi);
}

struct transform {
    struct uop *length;
    bool inverse, onesided;
};

/* x [..., j, 1 or 2] -> [..., k, 1 or 2] */
static struct uop *transform(const struct node *n, struct uop *x, const struct transform *f)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    bool complex = uop_is_int(x->dim[x->ndim - 1], 2), to_real = f->inverse && f->onesided;
    enum dtype d = x->dtype, acc = DTYPE_F64;
    struct uop *half = sym_addi(t, sym_div(t, f->length, uop_int(t, 2)), 1);
    struct uop *in = to_real ? half : f->length,
               *out = f->onesided && !f->inverse ? half : f->length;
    if (!(x = fit_length(n, lib_cast(l, acc, x), in)))
        return NULL;
    struct uop *cosine = trig_table(n, OP_COS, acc, in, out, f->length),
               *sine = trig_table(n, OP_SIN, acc, in, out, f->length);
    /* every frequency except the first and, for even lengths, the last counts twice */
    if (to_real) {
        struct uop *k = uop_iota(t, in), *mirrored = sym_sub(t, f->length, uop_int(t, 0));
        struct uop *single =
            lib_binary(l, OP_OR, lib_binaryf(l, OP_EQ, k, 0),
                       lib_binary(l, OP_EQ, lib_binaryf(l, OP_MUL, k, 2), mirrored));
        struct uop *weight = lib_where(l, single, uop_constf(t, acc, 1), uop_constf(t, acc, 2));
        weight = weight ? tensor_insert_axis(t, weight, 1) : NULL;
        cosine = lib_mul(l, cosine, weight);
        sine = lib_mul(l, sine, weight);
    }
    int last = x->ndim - 1;
    struct uop *re = node_slice_at(n, x, last, uop_int(t, 0)),
               *im = complex ? node_slice_at(n, x, last, uop_int(t, 1)) : NULL;
    struct uop *y_re = lib_matmul(l, re, cosine), *y_im = lib_matmul(l, re, sine);
    y_im = f->inverse ? y_im : lib_unary(l, OP_NEG, y_im);
    if (im) { /* (re + i im)(cos -+ i sin) */
        struct uop *s = lib_matmul(l, im, sine);
        y_re = f->inverse ? lib_sub(l, y_re, s) : lib_add(l, y_re, s);
        y_im = lib_add(l, y_im, lib_matmul(l, im, cosine));
    }
    if (!y_re || !y_im)
        return NULL;
    struct uop *part[2] = {tensor_insert_axis(t, y_re, last), tensor_insert_axis(t, y_im, last)};
    struct uop *y = to_real ? part[0] : lib_concat(l, part, 2, last);
    y = f->inverse ? lib_div(l, y, lib_float_of(l, acc, f->length)) : y;
    return lib_cast(l, d, y);
}

static bool is_signal(const struct node *n, int k)
{
    const struct uop *x = n->in[k];
    if (x->ndim >= 2 && (uop_is_int(x->dim[x->ndim - 1], 1) || uop_is_int(x->dim[x->ndim - 1], 2)))
        return true;
    return node_error(n, k, "the last axis must be 1 (real) or 2 (complex), found %s",
                      shape_text(n, x));
}

/* Moves axis `from` to position `to`, the others stay in order. */
static struct uop *move_axis(const struct node *n, struct uop *x, int from, int to)
{
    int64_t perm[MAX_RANK];
    int at = 0;
    for (int a = 0; a < x->ndim; a++) {
        if (at == from)
            at++;
        perm[a] = a == to ? from : at++;
    }
    return lib_permute(&n->lib, x, perm, x->ndim);
}

bool lower_dft(struct node *n)
{
    struct uop *x = n->in[0], **length;
    struct transform f = {.inverse = node_int(n, "inverse", 0) != 0,
                          .onesided = node_int(n, "onesided", 0) != 0};
    int axis, count;
    int64_t at = node_int(n, "axis", 1);
    if (!is_signal(n, 0))
        return false;
    if (n->opset >= 20) {
        at = -2;
        if (node_is_open(n, 2))
            return lower_by_cases(n, 2, x->ndim);
        if (n->in[2] && !node_known_int(n, 2, &at))
            return false;
    }
    if (!node_axis(n, at, x->ndim, &axis))
        return false;
    if (axis == x->ndim - 1)
        return node_error(n, -1, "the axis must not be the last one, of real and imaginary parts");
    f.length = f.inverse && f.onesided ? sym_muli(n->t, sym_addi(n->t, x->dim[axis], -1), 2)
                                       : x->dim[axis];
    if (n->in[1]) {
        if (!node_integers(n, 1, &length, &count))
            return false;
        if (count != 1)
            return node_error(n, 1, "one positive length is expected");
        f.length = node_symbol(n, 1, length[0], node_input_name(n, 1, 0, 1), 1, NULL);
        if (!f.length)
            return false;
    }
    if (f.length->vmin < 1)
        return node_error(n, 0, "the axis of %s is too short", shape_text(n, x));
    if (!(x = move_axis(n, x, axis, x->ndim - 2)))
        return false;
    struct uop *y = transform(n, x, &f);
    return node_set(n, 0, y ? move_axis(n, y, y->ndim - 2, axis) : NULL);
}

bool lower_stft(struct node *n)
{
    struct tgc *t = n->t;
    struct uop *x = n->in[0], *window = n->in[2], **v, *length, *step;
    int count;
    if (x->ndim == 2) /* a real signal, as exporters and ONNX Runtime have it */
        x = tensor_insert_axis(t, x, 2);
    else if (!is_signal(n, 0) || !node_rank(n, 0, 3, 3))
        return false;
    if ( (window && !node_rank(n, 2, 1, 1)) ||
        !(step = node_scalar(n, 1)) ||
        !(step = node_symbol(n, 1, step, node_input_name(n, 1, 0, 1), 1, x->dim[1])))
        return false;
    length = window ? window->dim[0] : x->dim[1];
    if (n->in[3]) {
        if (!node_integers(n, 3, &v, &count))
            return false;
        if (count != 1)
            return node_error(n, 3, "one length is expected");
        if (!(length = node_symbol(n, 3, v[0], node_input_name(n, 3, 0, 1), 1, x->dim[1])))
            return false;
    }
    if (step->vmax > INT32_MAX >> 4 || length->vmin < 1 || x->dim[1]->vmax < length->vmin)
        return node_error(n, -1, "frames of the given length and step do not fit into %s",
                          shape_text(n, x));
    if (window && !sym_equal(t, window->dim[0], length) &&
        !node_require(n, 2, uop_binary(t, OP_EQ, window->dim[0], length),
                      "the window must be as long as a frame"))
        return false;
    if (window)
        length = window->dim[0];
    struct uop *frames = sym_addi(t, sym_div(t, sym_sub(t, x->dim[1], length), step), 1), *y;
    if (step->op == OP_CONST) {
        y = uop_window(t, x, 1, frames, length, step->arg.i, 1);
    } else {
        struct uop *dim[4] = {x->dim[0], frames, length, x->dim[2]};
        struct uop *start = uop_binary(t, OP_MUL, tensor_iota(t, dim, 4, 1), step);
        struct uop *index[3] = {tensor_iota(t, dim, 4, 0),
                                uop_binary(t, OP_ADD, start, tensor_iota(t, dim, 4, 2)),
                                tensor_iota(t, dim, 4, 3)};
        y = uop_index(t, x, index);
    }
    if (window)
        y = lib_mul(&n->lib, y, tensor_insert_axis(n->t, lib_cast(&n->lib, x->dtype, window), 1));
    struct transform f = {.length = length, .onesided = node_int(n, "onesided", 1) != 0};
    return y && node_set(n, 0, transform(n, y, &f));
}

/* Triangles over the bins of a spectrum, evenly spaced in mel = 2595 log10(1 + hz / 700). A
 * triangle without a left side is 1 at its peak. */
bool lower_mel_weights(struct node *n)
{
    struct tgc *t = n->t;
    const struct lib *l = &n->lib;
    struct uop *v[5], *dim[2], *edge[3], *one = uop_constf(t, DTYPE_F64, 1),
                                         *zero = uop_constf(t, DTYPE_F64, 0);
    enum dtype d = node_dtype(n, "output_datatype", DTYPE_F32);
    if (d == DTYPE_VOID || d == DTYPE_STRING)
        return node_error(n, -1, "attribute 'output_datatype' names no type that is supported");
    for (int k = 0; k < 5; k++) {
        if (!(v[k] = node_scalar(n, k)))
            return false;
        if (k < 2 && !(v[k] = node_symbol(n, k, v[k], node_input_name(n, k, 0, 1), 1, NULL)))
            return false;
        if (k == 2 &&
            !node_require(n, k, lib_binary(l, OP_LT, lib_scalar(l, v[k], 0), v[k]),
                          "the sample rate must be positive"))
            return false;
        v[k] = k == 1 ? v[k] : lib_cast(l, k ? DTYPE_F64 : DTYPE_INDEX, v[k]);
    }
    dim[0] = sym_addi(t, sym_div(t, v[1], uop_int(t, 2)), 1);
    dim[1] = v[0];
    struct uop *bins = lib_float_of(l, DTYPE_F64, dim[0]);
    struct uop *mel[2];
    for (int k = 0; k < 2; k++)
        mel[k] = lib_binaryf(
            l, OP_MUL,
            lib_unary(l, OP_LOG, lib_binaryf(l, OP_ADD, lib_binaryf(l, OP_DIV, v[3 + k], 700), 1)),
            2595 / log(10));
    struct uop *step = lib_div(l, lib_sub(l, mel[1], mel[0]),
                               lib_float_of(l, DTYPE_F64, sym_addi(t, v[0], 2)));
    struct uop *m = lib_cast(l, DTYPE_F64, tensor_iota(t, dim, 2, 1)),
               *j = lib_cast(l, DTYPE_F64, tensor_iota(t, dim, 2, 0));
    for (int k = 0; k < 3; k++) {
        struct uop *at = lib_add(l, lib_mul(l, lib_binaryf(l, OP_ADD, m, k), step), mel[0]);
        struct uop *power = lib_binary(l, OP_POW, uop_constf(t, DTYPE_F64, 10),
                                       lib_binaryf(l, OP_DIV, at, 2595));
        struct uop *hz = lib_binaryf(l, OP_MUL, lib_binaryf(l, OP_SUB, power, 1), 700);
        struct uop *length = lib_float_of(l, DTYPE_F64, sym_addi(t, v[1], 1));
        edge[k] = lib_unary(l, OP_FLOOR, lib_div(l, lib_mul(l, hz, length), v[2]));
        edge[k] = lib_binary(l, OP_MIN, lib_binaryf(l, OP_MAX, edge[k], 0), bins);
    }
    if (!edge[2])
        return false;
    struct uop *flat = lib_binary(l, OP_EQ, edge[0], edge[1]);
    struct uop *left = lib_div(l, lib_sub(l, j, edge[0]), lib_sub(l, edge[1], edge[0])),
               *right = lib_div(l, lib_sub(l, edge[2], j), lib_sub(l, edge[2], edge[1]));
    struct uop *before = lib_binary(l, OP_LT, j, edge[0]), *upto = lib_binary(l, OP_LT, edge[1], j);
    struct uop *rises =
        lib_binary(l, OP_AND, uop_not(t, flat), uop_not(t, lib_binary(l, OP_OR, before, upto)));
    struct uop *falls = lib_binary(l, OP_AND, uop_not(t, lib_binary(l, OP_LT, j, edge[1])),
                                   lib_binary(l, OP_LT, j, edge[2]));
    struct uop *peak = lib_binary(l, OP_AND, flat, lib_binary(l, OP_EQ, j, edge[1]));
    struct uop *w = lib_where(l, falls, right,
                              lib_where(l, rises, left, lib_where(l, peak, one, zero)));
    return node_set(n, 0, lib_cast(l, d, w ? lib_fold(l, w) : NULL));
}

/* One column of Gaussian elimination with partial pivoting: in a [.., size, width] row k and the
 * row of the largest element at or below it change places; *pivot [.., 1, 1] is that element,
 * *row_k the row, *exchanged whether they differed. */
static struct uop *exchange_rows(const struct node *n, struct uop *a, int64_t k, struct uop **row_k,
                                 struct uop **pivot, struct uop **exchanged)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    int r = a->ndim;
    struct uop *row = tensor_insert_axis(t, uop_iota(t, a->dim[r - 2]), 1); /* [size, 1] */
    struct uop *column = lib_narrow(l, a, r - 1, uop_int(t, k), uop_int(t, 1)); /* [.., size, 1] */
    struct uop *open = uop_not(t, lib_binaryf(l, OP_LT, row, (double)k));
    struct uop *p =
        lib_argmax(l, lib_where(l, open, lib_unary(l, OP_ABS, column), lib_scalar(l, a, -1)), r - 2,
                   true, false);
    struct uop *is_p = lib_binary(l, OP_EQ, row, p),
               *is_k = lib_binaryf(l, OP_EQ, row, (double)k);
    struct uop *old = lib_narrow(l, a, r - 2, uop_int(t, k), uop_int(t, 1));
    *row_k = lib_reduce(l, REDUCE_SUM, lib_where(l, is_p, a, lib_scalar(l, a, 0)), 1u << (r - 2),
                        true);
    *exchanged = uop_not(t, lib_binaryf(l, OP_EQ, p, (double)k));
    *pivot = lib_narrow(l, *row_k, r - 1, uop_int(t, k), uop_int(t, 1));
    return lib_where(l, is_k, *row_k, lib_where(l, is_p, old, a));
}

/* a less what makes column k zero in the rows of `which` [size, 1] (a bool). */
static struct uop *eliminate(const struct node *n, struct uop *a, int64_t k, struct uop *which,
                             struct uop *row_k, struct uop *pivot)
{
    const struct lib *l = &n->lib;
    struct uop *column = lib_narrow(l, a, a->ndim - 1, uop_int(n->t, k), uop_int(n->t, 1));
    struct uop *scale = lib_where(l, which, lib_div(l, column, pivot), lib_scalar(l, a, 0));
    return lib_sub(l, a, lib_mul(l, scale, row_k));
}

/* A square matrix of a fixed size in the accumulation dtype; NULL: reported. */
static struct uop *square_matrix(const struct node *n, int64_t *size)
{
    struct uop *a = lib_cast(&n->lib, lib_acc_dtype(n->in[0]->dtype), n->in[0]);
    int r = a->ndim;
    if (!node_rank(n, 0, 2, MAX_RANK - 1))
        return NULL;
    if (uop_const_int(a->dim[r - 1], size) && uop_is_int(a->dim[r - 2], *size) && *size <= 64)
        return a;
    node_error(n, 0, "square matrices of a fixed size up to 64 are expected, found %s",
               shape_text(n, a));
    return NULL;
}

/* The product of the pivots; the sign flips with each exchange of rows. */
bool lower_det(struct node *n)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    struct uop *det = NULL, *row_k, *pivot, *exchanged;
    int64_t size;
    struct uop *a = square_matrix(n, &size);
    if (!a)
        return false;
    struct uop *one = uop_constf(t, a->dtype, 1), *count = uop_int(t, size);
    struct uop *row = tensor_insert_axis(t, uop_iota(t, count), 1);
    for (int64_t k = 0; k < size; k++) {
        if (!(a = exchange_rows(n, a, k, &row_k, &pivot, &exchanged)))
            return false;
        struct uop *factor =
            lib_mul(l, pivot, lib_where(l, exchanged, lib_unary(l, OP_NEG, one), one));
        det = det ? lib_mul(l, det, factor) : factor;
        struct uop *safe = lib_where(l, lib_binaryf(l, OP_EQ, pivot, 0), one, pivot);
        a = eliminate(n, a, k, lib_binary(l, OP_LT, uop_int(t, k), row), row_k, safe);
        if (!(a = lib_contiguous(l, a)) || !det) /* each step reads the last one many times */
            return false;
    }
    if (!det)
        det = tensor_full(t, one, (struct uop *[]){uop_int(t, 1), uop_int(t, 1)}, 2);
    det = lib_reshape(l, det, n->in[0]->dim, n->in[0]->ndim - 2);
    return node_set(n, 0, lib_cast(l, n->in[0]->dtype, det));
}

/* com.microsoft.Inverse: Gauss-Jordan; [a | 1] becomes [1 | inverse]. A singular matrix gives
 * infinities and NaNs. */
bool lower_inverse(struct node *n)
{
    const struct lib *l = &n->lib;
    struct tgc *t = n->t;
    struct uop *row_k, *pivot, *exchanged;
    int64_t size;
    struct uop *a = square_matrix(n, &size);
    if (!a)
        return false;
    int r = a->ndim;
    struct uop *count = uop_int(t, size), *row = tensor_insert_axis(t, uop_iota(t, count), 1);
    struct uop *unit = lib_broadcast_to(l, lib_eye(l, a->dtype, count, count, 0), a->dim, r);
    a = lib_concat(l, (struct uop *[]){a, unit}, 2, r - 1);
    for (int64_t k = 0; k < size && a; k++) {
        if (!(a = exchange_rows(n, a, k, &row_k, &pivot, &exchanged)))
            return false;
        struct uop *here = lib_binaryf(l, OP_EQ, row, (double)k);
        struct uop *rest = eliminate(n, a, k, uop_not(t, here), row_k, pivot);
        a = lib_contiguous(l, lib_where(l, here, lib_div(l, row_k, pivot), rest));
    }
    return node_set(n, 0, lib_cast(l, n->in[0]->dtype, lib_narrow(l, a, r - 1, count, count)));
}
