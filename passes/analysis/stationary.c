/* stationary.c - whether a value is known at compile time, or the same in all runs, or neither.
 *
 * Three different questions depend on it: only KNOWN data can be computed with (constants are
 * folded, weights transformed); an operand can be packed in the order of a kernel's loops if it is
 * STATIONARY; and STREAMED values change with the batch or the next token.
 */
#include "passes/analysis/stationary.h"

bool buffer_is_stationary(const struct buffer *b) { return b->kind == BUFFER_WEIGHT; }

bool load_is_stationary(const struct uop *load)
{
    const struct buffer *b = uop_buffer_of(load->src[0]);
    return b && buffer_is_stationary(b);
}

const struct buffer *known_buffer(const struct uop *v)
{
    const struct buffer *b = v->op == OP_BUFFER ? v->arg.p : NULL;
    return b && buffer_is_stationary(b) && b->weight.data && !b->storage && !b->order.is_set ? b
                                                                                             : NULL;
}

const struct buffer *known_behind(const struct uop *v)
{
    return known_buffer(value_behind(v, MOVES_VIEW));
}

bool is_known_f32(const struct uop *v)
{
    const struct buffer *b = known_buffer(v);
    return b && b->dtype == DTYPE_F32;
}

/* How many sources of v have to be stationary for v to be; -1: v never is. */
static int sources_of(const struct uop *v)
{
    if (v->op == OP_BUFFER)
        return buffer_is_stationary(v->arg.p) ? 0 : -1;
    if (move_is(v, MOVES_ANY))
        return 1;
    bool linear = v->op == OP_CAST || v->op == OP_ADD || v->op == OP_MUL || v->op == OP_NEG;
    return v->op == OP_CONST ? 0 : linear ? v->nsrc : -1;
}

static bool is_stationary(const struct uop *v, int depth)
{
    int n = sources_of(v);
    if (n <= 0 || depth == 0)
        return n == 0;
    for (int k = 0; k < n; k++)
        if (!is_stationary(v->src[k], depth - 1))
            return false;
    return true;
}

bool value_is_stationary(const struct uop *v)
{
    enum { DEPTH = 12 };
    return is_stationary(v, DEPTH);
}

enum standing value_standing(const struct uop *v)
{
    if (known_behind(v) || value_behind(v, MOVES_VIEW)->op == OP_CONST)
        return KNOWN;
    return value_is_stationary(v) ? STATIONARY : STREAMED;
}
