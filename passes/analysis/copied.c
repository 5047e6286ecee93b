/* copied.c - which copies to shared memory an asynchronous copy instruction can make.
 *
 *      stage(%local, load(x, a*32 + v, lt(a, n), 0), b*40 + v, ..., v < 8)    8 elements, or zeros
 */
#include "passes/analysis/copied.h"
#include "passes/analysis/nest.h"

/* Compares two numbers, x < y, that are multiples of n, except for the range's part, which is less
 * than n. */
static struct uop *compared(struct tgc *t, struct uop *x, struct uop *y, const struct uop *r,
                            int64_t n)
{
    struct uop *with = uop_depends_on(t, x, r) ? x : y,
               *other = with == x ? sym_addi(t, y, 0) : sym_addi(t, x, 1);
    int64_t stride;
    if (uop_depends_on(t, other, r) || !index_stride(t, with, r, &stride) || stride < 1)
        return NULL;
    struct uop *rest = sym_sub(t, with, sym_muli(t, (struct uop *)(uintptr_t)r, stride));
    if (index_divisor(t, rest) % (stride * n) || index_divisor(t, other) % (stride * n))
        return NULL;
    return with == x ? sym_lt(t, rest, y) : sym_lt(t, x, rest);
}

struct uop *condition_of_first(struct tgc *t, struct uop *cond, const struct uop *r, int64_t n)
{
    struct uop *x, *y;
    if (!uop_depends_on(t, cond, r))
        return cond;
    if (cond->op == OP_LT && cond->src[0]->dtype == DTYPE_INDEX)
        return compared(t, cond->src[0], cond->src[1], r, n);
    if (cond->op != OP_AND)
        return NULL;
    x = condition_of_first(t, cond->src[0], r, n);
    y = condition_of_first(t, cond->src[1], r, n);
    return x && y ? sym_and(t, x, y) : NULL;
}

/* The ranges over contiguous elements, innermost first: the bytes of a group, then a vector's
 * lanes. */
static int neighbours(struct uop *const *range, int n, struct uop **of)
{
    int found = 0;
    for (int i = 0; i < n; i++)
        if (range[i]->op == OP_RANGE && range_is(range[i], AXIS_GROUP))
            of[found++] = range[i];
    for (int i = 0; i < n; i++)
        if (range[i]->op == OP_RANGE && range_is(range[i], AXIS_VECTOR))
            of[found++] = range[i];
    return found;
}

bool copied_read(struct tgc *t, struct uop *value, struct uop *at, struct uop *const *range, int n,
                 struct copied *c)
{
    struct uop *of[MAX_RANK], *load = value->op == OP_BITCAST ? value->src[0] : value;
    int64_t stride;
    if (load->op != OP_LOAD || load->arg.i || load->src[0]->op != OP_BUFFER || n > MAX_RANK ||
        (load->nsrc > 2 && !load_is_zero_elsewhere(load)))
        return false;
    const struct buffer *b = uop_buffer_of(load->src[0]);
    *c = (struct copied){.memory = load->src[0],
                         .from = load->src[1],
                         .at = at,
                         .valid = load->nsrc > 2 ? load->src[2] : NULL,
                         .lanes = 1};
    for (int i = 0, all = neighbours(range, n, of); i < all; i++) {
        bool next = index_stride(t, c->from, of[i], &stride) && stride == c->lanes &&
                    index_stride(t, at, of[i], &stride) && stride == c->lanes;
        c->valid = c->valid && next
                       ? condition_of_first(t, c->valid, of[i], range_fixed_size(of[i]))
                       : c->valid;
        if (!next || (load->nsrc > 2 && !c->valid))
            return false;
        struct uop *lane = sym_muli(t, of[i], c->lanes);
        c->from = sym_sub(t, c->from, lane);
        c->at = sym_sub(t, c->at, lane);
        c->lanes *= (int)range_fixed_size(of[i]);
    }
    c->nbytes = c->lanes * (int64_t)dtype_nbytes(b->dtype);
    return (c->nbytes == 4 || c->nbytes == 8 || c->nbytes == 16) &&
           dtype_bits(b->dtype) == 8 * (int)dtype_nbytes(b->dtype) &&
           dtype_nbytes(value->dtype) == dtype_nbytes(b->dtype) &&
           index_divisor(t, c->from) % c->lanes == 0 && index_divisor(t, c->at) % c->lanes == 0 &&
           buffer_is_aligned(t, b, c->lanes);
}
