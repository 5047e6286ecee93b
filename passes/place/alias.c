/* alias.c - which buffers share memory, and which kernels therefore cannot share a function. */
#include "passes/analysis/stationary.h"
#include "passes/passes.h"

static bool in_arena(const struct buffer *b)
{
    return b->kind == BUFFER_TEMP || b->kind == BUFFER_STATE ||
           (b->kind == BUFFER_SCRATCH && !scratch_is_on_stack(b));
}

bool buffers_may_alias(const struct buffer *a, const struct buffer *b)
{
    a = buffer_root(a);
    b = buffer_root(b);
    if (a == b)
        return true;
    bool states = a->port.state && b->port.state && a->port.block == b->port.block;
    return (states || (in_arena(a) && in_arena(b))) && a->offset < b->offset + b->nbytes &&
           b->offset < a->offset + a->nbytes;
}

bool kernel_buffers_agree(const struct kernel *a, const struct kernel *b)
{
    for (int i = 0; i < a->nbuffer; i++) {
        const struct buffer *x = a->buffer[i], *y = b->buffer[i];
        /* a caller's bool may be any byte */
        bool careful = x->dtype == DTYPE_BOOL;
        if (x->dtype != y->dtype ||
            (careful && (x->kind == BUFFER_INPUT) != (y->kind == BUFFER_INPUT)) ||
            buffer_is_stationary(x) != buffer_is_stationary(y))
            return false;
        for (int j = 0; j < a->nbuffer; j++)
            if (buffers_may_alias(x, a->buffer[j]) != buffers_may_alias(y, b->buffer[j]))
                return false;
        for (int j = 0; j < a->nscratch; j++)
            if (buffers_may_alias(x, a->scratch[j]) != buffers_may_alias(y, b->scratch[j]))
                return false;
    }
    for (int i = 0; i < a->nscratch; i++)
        if (a->scratch[i]->dtype != b->scratch[i]->dtype ||
            a->scratch[i]->nbytes != b->scratch[i]->nbytes ||
            buffer_space(a->scratch[i]) != buffer_space(b->scratch[i]))
            return false;
    for (int i = 0; i < a->nvar; i++)
        if (a->var[i] != b->var[i])
            return false;
    return true;
}
