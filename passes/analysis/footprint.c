/* footprint.c - groups of accesses whose offsets differ by constants, and what they cover together.
 *
 * Offsets are canonical sums with the constant as the last term: without it those of a group are
 * one uop. */
#include "passes/analysis/footprint.h"
#include "passes/analysis/access.h"

#include <math.h>

static const struct uop *without_constant(const struct uop *offset, int64_t *at)
{
    for (*at = 0; offset->op == OP_ADD && offset->src[1]->op == OP_CONST; offset = offset->src[0])
        *at += offset->src[1]->arg.i;
    return offset;
}

int footprint_find(struct footprint *f, const struct buffer *b, const struct uop *offset,
                   int64_t *at)
{
    const struct uop *begin = without_constant(offset, at);
    for (int i = 0; i < f->n; i++)
        if (f->group[i].b == b && f->group[i].begin == begin)
            return i;
    SCRATCH_PUSH(f->t, f->group, f->n, f->cap, ((struct footprint_group){b, begin}));
    return f->n - 1;
}

void cover_add(struct cover *c, double nelem, double span, int64_t at)
{
    bool first = c->sum <= 0;
    c->low = first || (double)at < c->low ? (double)at : c->low;
    c->high = first || (double)at > c->high ? (double)at : c->high;
    c->span = first || span > c->span ? span : c->span;
    c->sum += nelem;
}

double cover_nelem(const struct cover *c)
{
    double all = c->span + c->high - c->low;
    return c->sum < all ? c->sum : all;
}

double footprint_span(struct tgc *t, struct uop *offset, const struct uop *r, double n)
{
    int64_t stride;
    if (!uop_depends_on(t, offset, r))
        return 0;
    return index_stride(t, offset, r, &stride) ? fabs((double)stride) * (n - 1) : HUGE_VAL;
}
