/* stems.c - what the parameters, tiles, accumulators and temporaries of a kernel are called.
 *
 * The first of these that says something is a name's stem, which a number follows if it is taken:
 *
 *      a word that the frontend or a pass gave the value (uop_name_value)      row_max, gate_i
 *      the model's own name of the tensor, if it is short                      q, bias
 *      the op, or the kind of the reduction                                    sum, largest, e
 *      what it is for the kernel                                               x, y, w, b, tile, t
 */
#include "backends/cstyle/cstyle.h"

#include <string.h>

/* -------------------------------------------------------------------------------------- buffers */

/* "bias" of "encoder.layer.0.attention.bias". NULL: no word that a person would call it. */
static const char *model_word(struct tgc *t, const struct buffer *b)
{
    enum { LONGEST = 8 };
    const char *s = NULL, *letters = "abcdefghijklmnopqrstuvwxyz_";
    for (; b; b = b->weight.of)
        s = b->name && *b->name ? b->name : s;
    for (const char *c = s; c && *c; c++)
        if (strchr("./:", *c))
            s = c + 1;
    size_t n = s ? strspn(s, letters) : 0, all = s ? strlen(s) : 0;
    bool is_word = n > 0 && *s != '_' && all <= LONGEST && n + strspn(s + n, "0123456789") == all &&
                   all - n <= 1;
    return is_word ? mem_printf(t, "%s", s) : NULL;
}

/* The word of parameter i, if all kernels that share the function have the same; NULL in languages
 * of devices, of which some reserve words that no list here has. */
static const char *shared_word(const struct function *f, int i)
{
    const struct program *p = f->p;
    const char *word = p->backend->device ? NULL : model_word(p->t, f->k->buffer[i]), *other;
    for (int j = 0; j < p->s->nkernel && word; j++) {
        const struct kernel *k = p->s->kernel[j];
        if (p->twin[j] != f->k || k == f->k)
            continue;
        other = model_word(p->t, k->buffer[i]);
        word = other && strcmp(other, word) == 0 ? word : NULL;
    }
    return word;
}

const char *stem_of_parameter(const struct function *f, int i)
{
    const struct buffer *b = f->k->buffer[i];
    const char *word = shared_word(f, i);
    return word && !names_has(f->names, word) ? word
           : i < f->k->noutput                ? "y"
           : b->kind != BUFFER_WEIGHT         ? "x"
           : b->ndim > 1                      ? "w"
                                              : "b";
}

/* --------------------------------------------------------------------------------- accumulators */

/* The op that updates an accumulator, from its first ASSIGN; a dot product of words adds. */
static enum op acc_op(struct uop *const *linear, int n, const struct uop *acc)
{
    for (int i = 0; i < n; i++) {
        const struct uop *u = linear[i];
        if (u->op == OP_ASSIGN && u->src[0] == acc && u->lanes == 1 &&
            uop_is_intrinsic(u->src[1], INTRINSIC_DOT))
            return OP_ADD;
        if (u->op == OP_ASSIGN && u->src[0] == acc)
            return (u->src[1]->op == OP_CAST ? u->src[1]->src[0] : u->src[1])->op;
    }
    return OP_ASSIGN;
}

const char *stem_of_acc(struct tgc *t, struct uop *const *linear, int n, const struct uop *acc)
{
    bool is_bool = acc->dtype == DTYPE_BOOL;
    if (uop_get_word(t, acc))
        return uop_get_word(t, acc);
    switch (acc_op(linear, n, acc)) {
    case OP_ADD: case OP_MULACC: return is_bool ? "any" : "sum";
    case OP_MUL: return is_bool ? "all" : "product";
    case OP_MAX: return is_bool ? "any" : "largest";
    case OP_MIN: return is_bool ? "all" : "smallest";
    case OP_OR: return "any";
    case OP_AND: return "all";
    default: return "acc";
    }
}

/* ---------------------------------------------------------------------------------------- tiles */

/* The value that is stored there first; NULL: none is. */
static const struct uop *stored_value(struct uop *const *linear, int n, const struct buffer *b)
{
    for (int i = 0; i < n; i++)
        if (linear[i]->op == OP_STORE && uop_buffer_of(linear[i]->src[0]) == b)
            return linear[i]->src[2];
    return NULL;
}

/* "x_tile" of a copy of elements of x. */
static const char *copy_of(const struct function *f, const struct buffer *b)
{
    for (int i = 0; i < f->k->nbuffer; i++)
        if (f->k->buffer[i] == b)
            return mem_printf(f->p->t, "%s_tile", f->buffer_name[i]);
    return "tile";
}

const char *stem_of_tile(const struct function *f, const struct buffer *b)
{
    struct uop *const *linear = f->v ? f->v->linear : f->k->linear;
    int n = f->v ? f->v->nlinear : f->k->nlinear;
    const struct uop *v = stored_value(linear, n, b);
    while (v && !uop_get_word(f->p->t, v) &&
           (v->op == OP_CAST || v->op == OP_SPLAT ||
            (v->op == OP_MUL && v->src[1]->op == OP_CONST)))
        v = v->src[0];
    if (b->scratch.counts || b->scratch.space == SPACE_GLOBAL || b->scratch.word || !v)
        return b->scratch.counts                  ? "counter"
               : b->scratch.space == SPACE_GLOBAL ? "part"
               : b->scratch.word                  ? b->scratch.word
                                                  : "tile";
    if (uop_get_word(f->p->t, v))
        return uop_get_word(f->p->t, v);
    if (v->op == OP_LOAD)
        return copy_of(f, uop_buffer_of(v->src[0]));
    if (v->op != OP_ACC)
        return v->op == OP_EXP ? "exps" : "tile";
    switch (acc_op(linear, n, v)) {
    case OP_ADD: case OP_MULACC: return "sums";
    case OP_MUL: return "products";
    case OP_MAX: return "maxima";
    case OP_MIN: return "minima";
    default: return "tile";
    }
}

/* ---------------------------------------------------------------------------------- temporaries */

const char *stem_of_value(struct tgc *t, const struct uop *u, const char *loaded, bool is_index)
{
    if (u->op == OP_TICKET)
        return "last";
    /* a cast to a narrow format only rounds or wraps a value */
    if (u->op == OP_CAST && dtype_bits(u->dtype) < 32 && u->src[0]->op != OP_LOAD)
        u = u->src[0];
    if (u->dtype != DTYPE_BOOL && uop_get_word(t, u))
        return uop_get_word(t, u);
    if (loaded)
        return mem_printf(t, strlen(loaded) > 2 ? "%s_v" : "%sv", loaded);
    if (u->dtype == DTYPE_BOOL)
        return "inside";
    if (u->dtype == DTYPE_INDEX || is_index)
        return "at";
    bool difference = u->op == OP_SUB ||
                      (u->op == OP_ADD && (u->src[1]->op == OP_NEG || u->src[1]->op == OP_MUL));
    return u->op == OP_EXP     ? "e"
           : u->op == OP_RECIP ? "inverse"
           : u->op == OP_SQRT  ? "root"
           : difference        ? "d"
                               : "t";
}
