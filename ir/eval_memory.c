/* eval_memory.c - the memory of an interpreted kernel, as an AST or as a linear program. */
#include <math.h>
#include <stdlib.h>

#include "ir/eval.h"

static bool buffer_nelem(const struct eval_env *env, const struct buffer *b, int64_t *nelem)
{
    *nelem = 1;
    for (int a = 0; a < b->ndim; a++) {
        int64_t d;
        if (!sym_eval(b->dim[a], env->var, env->nvar, &d) || d < 0 ||
            __builtin_mul_overflow(*nelem, d, nelem))
            return false;
    }
    return true;
}

/* Given by the caller, a weight, or scratch that lives for this run. */
static bool find_memory(const struct eval_env *env, struct memory *m)
{
    const struct buffer *b = m->buffer;
    for (int i = 0; i < env->n; i++)
        if (env->leaf[i]->arg.p == b) {
            m->data = env->value[i]->data;
            m->nelem = env->value[i]->nelem;
            m->touch = env->race ? env->touch[i] : NULL;
            return env->value[i]->dtype == b->dtype;
        }
    size_t nbytes;
    if (!buffer_nelem(env, b, &m->nelem))
        return false;
    if (b->kind == BUFFER_WEIGHT) {
        m->raw = b->weight.data ? view_stored_bytes(b, &m->packed) : NULL;
        return m->raw && size_mul((size_t)m->nelem, dtype_nbytes(b->dtype), &nbytes) &&
               nbytes <= b->nbytes;
    }
    if (b->kind != BUFFER_SCRATCH || !size_mul((size_t)m->nelem + 1, sizeof *m->data, &nbytes))
        return false;
    m->data = malloc(nbytes);
    m->own = true;
    if (env->race && (buffer_space(b) == SPACE_SHARED || b->scratch.space == SPACE_GLOBAL)) {
        m->touch = calloc((size_t)m->nelem + 1, sizeof *m->touch);
        m->owns_touch = true;
        if (!m->touch)
            return false;
    }
    union scalar poison = {.i = INT64_MIN + 12345};
    if (dtype_is_float(b->dtype))
        poison.f = NAN;
    if (b->scratch.counts)
        poison.i = 0;
    for (int64_t i = 0; m->data && i < m->nelem; i++)
        m->data[i] = poison;
    return m->data != NULL;
}

int eval_memory_of(struct eval_memory *m, const struct buffer *b)
{
    if (!b)
        TGC_BUG(m->t, "memory access through what is no memory");
    for (int i = 0; i < m->n; i++)
        if (m->v[i].buffer == b)
            return i;
    if ((size_t)m->n == m->cap) {
        size_t cap = m->cap ? 2 * m->cap : 16;
        struct memory *v = realloc(m->v, cap * sizeof *v);
        if (!v) {
            *m->failed = true;
            return 0;
        }
        m->v = v;
        m->cap = cap;
    }
    if (m->block && (buffer_space(b) == SPACE_SHARED || b->scratch.space == SPACE_GLOBAL)) {
        int first = eval_memory_of(m->block, b);
        m->v[m->n] = m->block->v[first];
        m->v[m->n].own = m->v[m->n].owns_touch = false;
        return m->n++;
    }
    m->v[m->n] = (struct memory){.buffer = b};
    *m->failed |= !find_memory(m->env, &m->v[m->n]);
    return m->n++;
}

union scalar eval_memory_get(const struct memory *m, int64_t at)
{
    enum dtype d = m->buffer->dtype;
    return m->raw ? scalar_load(d, m->raw + (size_t)at * dtype_nbytes(d)) : m->data[at];
}

void eval_memory_free(struct eval_memory *m)
{
    for (int i = 0; i < m->n; i++) {
        free(m->v[i].packed);
        if (m->v[i].own)
            free(m->v[i].data);
        if (m->v[i].owns_touch)
            free(m->v[i].touch);
    }
    free(m->v);
}
