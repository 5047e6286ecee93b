/* runtime_products.c - sums of products of two run-time bytes, attention's scores and its weighted
 * values, as sums of products of groups of bytes.
 *
 *      sum over k of (a[i,k] - za) * (w[k,j] - zw)
 *    = sum over k of a[i,k] * w[k,j]  -  zw * A[i]  -  za * W[j]  +  K * za * zw
 *
 * a as u8 (i8 where a device multiplies i8 alone), w as i8 (others are shifted by 128, and so are
 * their zero points); A and W are their sums over k, the correction terms, which small kernels
 * compute. Instruction sets multiply four neighbours along k by those of a whole vector of columns
 * (DOT_BYTES), so w is regrouped as [k / 4][j][k % 4]: that costs one pass over it, which pays if
 * there are several rows i. Products with few rows, other axes, or remainder columns are left to
 * exact_floats.c; with a long sum, such columns are padded with zeros, and the sums get a buffer. A
 * device's instruction for matrices takes both as they are, in any order, of any size, and of the
 * signs that it has a row for: nothing is regrouped for it.
 */
#include "passes/graph/quant/byte_sums.h"

#include <string.h>

enum { ROWS_MIN = 8, DEPTH_MIN = 8, DEPTH_OF_FILLED = 32, LANES = 8, LANES_FILLED = 16 };
/* products that never overflow a sum in i32, with any zero points */
static const double PRODUCTS_MAX = 1 << 14;

/* Two of the product's axes: the reduced one, and the columns, of w alone. */
struct shape {
    int k, column;
    int64_t size, ncolumn;       /* of k; of the columns, as stored */
};

static bool fill_columns(struct shape *shape)
{
    int64_t n = shape->ncolumn;
    if (n < LANES || (n % LANES && shape->size < DEPTH_OF_FILLED))
        return false;
    if (n % LANES)
        shape->ncolumn = (n + LANES_FILLED - 1) / LANES_FILLED * LANES_FILLED;
    return true;
}

/* Makes w the operand with the columns. false: a size is not fixed, or too small. */
static bool find_shape(struct sum_of_bytes *s, struct shape *shape)
{
    shape->k = shape->column = -1;
    if (s->weight != s->c.stationary) {
        struct operand a = s->a;
        s->a = s->w, s->w = a;
    }
    for (int p = s->product->ndim - 1; p >= 0; p--) {
        enum role role = s->c.role[p];
        if (role == ROLE_SUM || role == ROLE_TAP) {
            if (shape->k >= 0)
                return false;
            shape->k = p;
        }
        if (role == ROLE_COLUMN && shape->column < 0)
            shape->column = p;
    }
    return contraction_extent(&s->c, ROLE_ROW) >= ROWS_MIN && shape->k >= 0 && shape->column >= 0 &&
           uop_const_int(s->product->dim[shape->k], &shape->size) && shape->size >= DEPTH_MIN &&
           uop_const_int(s->product->dim[shape->column], &shape->ncolumn) &&
           fill_columns(shape);
}

static struct uop *to_buffer(struct tgc *t, struct uop *x)
{
    return uop_new(t, OP_CONTIGUOUS, x->dtype, &x, 1, (union arg){0});
}

/* The operand as i8 in its own buffer, with its zero point shifted. Its producer stores it under
 * its movements, which are applied later. */
static struct uop *as_i8(struct tgc *t, struct operand *w)
{
    if (w->q->dtype == DTYPE_I8)
        return w->q;
    struct path p = path_down(w->q, MOVES_VIEW);
    struct uop *x = p.base;
    bool leaf = x->op == OP_BUFFER;
    struct uop *shift = uop_consti(t, DTYPE_I32, -128);
    w->zero = w->zero ? uop_binary(t, OP_ADD, w->zero, shift) : shift;
    x = tensor_binary(t, OP_ADD, uop_cast(t, DTYPE_F32, x), uop_constf(t, DTYPE_F32, -128));
    x = uop_cast(t, DTYPE_I8, x);
    return path_up(t, &p, leaf ? x : to_buffer(t, x));
}

/* The axis of the operand's bytes that is the product's axis k; -1: it is merged with others. */
static int axis_of_bytes(struct tgc *t, const struct operand *o, int k)
{
    for (int axis = o->q->ndim - 1; axis >= 0; axis--) {
        int at = axis;
        if (!uop_is_int(o->q->dim[axis], 1) && move_again(t, o, o->q, &at) && at == k)
            return axis;
    }
    return -1;
}

static int64_t round_up(int64_t n) { return (n + DOT_BYTES - 1) / DOT_BYTES * DOT_BYTES; }

/* The values, padded to groups along k; NULL: that is impossible. */
static struct uop *fill_values(struct tgc *t, const struct operand *a, struct uop *values, int axis,
                               const struct shape *shape)
{
    struct uop *x = fill_axis(t, values, axis, uop_consti(t, values->dtype, 0));
    /* groups are contiguous: a buffer of its own can have such a layout */
    if (x != values || (axis < x->ndim - 1 && value_behind(x, MOVES_VIEW)->op == OP_BUFFER))
        x = to_buffer(t, x);
    x = move_again(t, a, x, &axis);
    /* an axis of which k is only a part cannot be padded */
    return x && axis == shape->k && x->dim[axis]->arg.i == round_up(shape->size) ? x : NULL;
}

/* x with its axis padded to n elements. */
static struct uop *fill_to(struct tgc *t, struct uop *x, int axis, int64_t n)
{
    struct uop *lo[MAX_RANK], *hi[MAX_RANK];
    for (int a = 0; a < x->ndim; a++) {
        lo[a] = uop_int(t, 0);
        hi[a] = uop_int(t, a == axis ? n - x->dim[a]->arg.i : 0);
    }
    return uop_pad(t, x, uop_consti(t, x->dtype, 0), lo, hi);
}

/* The dimensions of the product with k and the columns padded. */
static void filled_dims(const struct sum_of_bytes *s, const struct shape *shape, struct uop **dim)
{
    ARRAY_COPY(dim, s->product->dim, s->product->ndim);
    dim[shape->k] = uop_int(s->t, round_up(shape->size));
    dim[shape->column] = uop_int(s->t, shape->ncolumn);
}

/* w, as the product has it, stored as [..., k / 4][column][k % 4] and viewed in its old shape; k
 * and the columns are padded with zeros. */
static struct uop *store_groups(const struct sum_of_bytes *s, struct uop *w,
                                const struct shape *shape)
{
    struct tgc *t = s->t;
    struct uop *dim[MAX_RANK];
    int perm[MAX_RANK], back[MAX_RANK], n = 0, k = shape->k;
    w = fill_to(t, axes_keep(t, w, s->w.of), k, round_up(shape->size));
    w = fill_to(t, w, shape->column, shape->ncolumn);
    int ndim = w->ndim + 1;
    for (int p = 0; p < w->ndim; p++)
        dim[p + (p > k)] = w->dim[p];
    dim[k] = uop_int(t, w->dim[k]->arg.i / DOT_BYTES);
    dim[k + 1] = uop_int(t, DOT_BYTES);
    int column = shape->column + (shape->column > k);
    for (int p = 0; p < ndim; p++)
        if (p != k && p != k + 1 && p != column)
            perm[n++] = p;
    perm[n++] = k;
    perm[n++] = column;
    perm[n++] = k + 1;
    for (int p = 0; p < ndim; p++)
        back[perm[p]] = p;
    struct uop *groups = to_buffer(t, uop_permute(t, uop_reshape(t, w, dim, ndim), perm));
    groups = uop_reshape(t, uop_permute(t, groups, back), w->dim, w->ndim);
    filled_dims(s, shape, dim);
    return uop_expand(t, groups, dim);
}

/* The sums without the padded columns. */
static struct uop *without_filling(const struct sum_of_bytes *s, const struct shape *shape,
                                   struct uop *sum)
{
    struct uop *begin[MAX_RANK], *size[MAX_RANK];
    if (s->product->dim[shape->column]->arg.i == shape->ncolumn)
        return sum;
    sum = to_buffer(s->t, sum);
    for (int p = 0; p < sum->ndim; p++) {
        begin[p] = uop_int(s->t, 0);
        size[p] = p == shape->column ? s->product->dim[p] : sum->dim[p];
    }
    return uop_shrink(s->t, sum, begin, size);
}

/* zero * the operand's sums over k */
static struct uop *zero_times_sums(const struct sum_of_bytes *s, const struct operand *o,
                                   struct uop *bytes, struct uop *zero)
{
    const double exact = 0x1p24 / 255;
    struct tgc *t = s->t;
    enum dtype d = products_of(s) <= exact ? DTYPE_F32 : DTYPE_I32;
    struct uop *sum = uop_reduce(t, OP_ADD, uop_cast(t, d, axes_keep(t, bytes, o->of)),
                                 s->c.reduced);
    return tensor_binary(t, OP_MUL, uop_cast(t, DTYPE_I32, sum), zero);
}

/* The sum less the correction terms of zero points; these are in buffers, since a kernel with a sum
 * of products has no other sum. */
static struct uop *without_zeros(const struct sum_of_bytes *s, struct uop *sum, struct uop *a,
                                 struct uop *w)
{
    struct tgc *t = s->t;
    struct uop *za = s->a.zero && !uop_is_int(s->a.zero, 0) ? s->a.zero : NULL;
    struct uop *zw = s->w.zero && !uop_is_int(s->w.zero, 0) ? s->w.zero : NULL;
    struct uop *each = za ? zero_times_sums(s, &s->w, w, za) : NULL;
    if (za && zw) {
        struct uop *both = uop_binary(t, OP_MUL, za, zw);
        both = uop_binary(t, OP_MUL, both, uop_consti(t, DTYPE_I32, (int64_t)products_of(s)));
        each = tensor_binary(t, OP_SUB, each, both);
    }
    if (each)
        sum = tensor_binary(t, OP_SUB, sum, to_buffer(t, each));
    if (zw)
        sum = tensor_binary(t, OP_SUB, sum, to_buffer(t, zero_times_sums(s, &s->a, a, zw)));
    return sum;
}

/* For an instruction for matrices: both operands as they are, or as i8. */
static struct uop *rewrite_for_matrices(struct sum_of_bytes *s)
{
    struct tgc *t = s->t;
    int none[2] = {-1, -1};
    struct uop *a = s->a.q, *w = s->w.q;
    if (!device_multiplies_both(t, a->dtype, w->dtype)) {
        if (!device_multiplies_both(t, a->dtype, DTYPE_I8))
            a = as_i8(t, &s->a);
        if (!device_multiplies_both(t, a->dtype, w->dtype))
            w = as_i8(t, &s->w);
    }
    a = move_again(t, &s->a, a, &none[0]);
    w = move_again(t, &s->w, w, &none[1]);
    struct uop *sum =
        contraction_like(t, s->reduce, uop_cast(t, DTYPE_I32, a), uop_cast(t, DTYPE_I32, w));
    return bytes_scale_sum(s, without_zeros(s, sum, a, w));
}

struct uop *product_rewrite_sum(const struct sum_of_bytes *found)
{
    struct sum_of_bytes s = *found;
    struct tgc *t = s.t;
    struct shape shape;
    struct uop *dim[MAX_RANK];
    int none = -1;
    if (s.weighted || has_padding(&s.a) || has_padding(&s.w) || products_of(&s) > PRODUCTS_MAX ||
        s.product->ndim == MAX_RANK)
        return NULL;
    if (bytes_suit_matrices(&s))
        return rewrite_for_matrices(&s);
    if (!find_shape(&s, &shape))
        return NULL;
    int axis = axis_of_bytes(t, &s.a, shape.k);
    if (axis < 0)
        return NULL;
    struct uop *values = values_as_bytes(&s), *a = fill_values(t, &s.a, values, axis, &shape);
    if (!a)
        return NULL;
    struct uop *seen = move_again(t, &s.a, values, &none);
    none = -1;
    struct uop *w = move_again(t, &s.w, as_i8(t, &s.w), &none);
    filled_dims(&s, &shape, dim);
    a = uop_expand(t, axes_keep(t, a, s.a.of), dim);
    struct uop *sum = contraction_like(t, s.reduce, uop_cast(t, DTYPE_I32, a),
                                       uop_cast(t, DTYPE_I32, store_groups(&s, w, &shape)));
    sum = without_filling(&s, &shape, sum);
    return bytes_scale_sum(&s, without_zeros(&s, sum, seen, w));
}
