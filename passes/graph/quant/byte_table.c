/* byte_table.c - a byte that is a function of one byte is looked up in a table of 256.
 *
 *      u8 y = saturate(round(gelu((x - zx) * sx) / sy) + zy)        u8 y = table[x]
 *
 * Quantized models surround each activation by conversions, so each - GELU, SiLU, a chain of
 * several - is a function of a byte, and the oracle computes it for all 256. A look-up takes a
 * cycle or two an element: more than a few cheap ops take with vectors, less than a transcendental
 * function or several divisions. Both bytes are stored, so that the ops before and after can be
 * vectorized.
 */
#include "passes/graph/quant/byte_sums.h"

enum { VALUES = 256, LOOK_MAX = 128, SOURCES_MAX = 4 };

struct chain {
    struct tgc *t;
    struct uop *root, *source;
    struct uop *node[LOOK_MAX]; int n;   /* the ops between them, operands first */
    double cost;                         /* additions per element */
};

bool reads_byte_table(const struct uop *v)
{
    const struct buffer *b = v->op == OP_INDEX && v->nsrc == 2 ? known_buffer(v->src[0]) : NULL;
    return b && b->nbytes == VALUES && dtype_is_byte(b->dtype);
}

static bool is_known(const struct chain *c, const struct uop *v)
{
    for (int i = 0; i < c->n; i++)
        if (c->node[i] == v)
            return true;
    return false;
}

/* The sources of v through which the chain continues; constants and the byte itself end it. -1: v
 * has other sources. */
static int sources_of(struct chain *c, struct uop *v, struct uop **src)
{
    int n = 0;
    for (int k = reads_byte_table(v) ? 1 : 0; k < v->nsrc; k++) {
        struct uop *s = v->src[k];
        if (value_behind(s, MOVES_VIEW)->op == OP_CONST)
            continue;
        bool goes_on = s->op == OP_RESHAPE || reads_byte_table(s);
        if (s->ndim == 0)
            return -1;
        if (dtype_is_byte(s->dtype) && !goes_on) {
            if (c->source && c->source != s)
                return -1;
            c->source = s;
            continue;
        }
        if (!goes_on && !op_is_elementwise(s->op))
            return -1;
        src[n++] = s;
    }
    return n;
}

/* Finds the ops between the root and the one byte on which it depends. Reshapes keep the order of
 * elements, so they are allowed anywhere. */
static bool find_chain(struct chain *c)
{
    const struct machine *m = machine_of(c->t);
    struct uop *stack[LOOK_MAX], *src[SOURCES_MAX];
    int n = 0;
    stack[n++] = c->root;
    while (n) {
        struct uop *v = stack[n - 1];
        bool ready = true;
        int nsrc = is_known(c, v) ? 0 : v->nsrc > SOURCES_MAX ? -1 : sources_of(c, v, src);
        if (nsrc < 0)
            return false;
        for (int k = 0; k < nsrc; k++)
            if (!is_known(c, src[k])) {
                if (n == LOOK_MAX)
                    return false;
                stack[n++] = src[k];
                ready = false;
            }
        if (!ready)
            continue;
        n--;
        if (is_known(c, v))
            continue;
        if (c->n == LOOK_MAX)
            return false;
        c->node[c->n++] = v;
        c->cost += reads_byte_table(v) ? m->lookup : cost_in_additions(m, v->op);
    }
    return c->source != NULL;
}

/* v for all 256 values of the byte; constants are scalars. */
static struct uop *tabulated(const struct chain *c, struct uop *const *now, struct uop *values,
                             struct uop *v)
{
    if (v == c->source)
        return values;
    for (int i = 0; i < c->n; i++)
        if (c->node[i] == v)
            return now[i];
    return value_behind(v, MOVES_VIEW);
}

/* v, an f32, as f32 and not in the interpreter's double: half a step more or less is another
 * byte. */
static struct uop *rounded(struct tgc *t, struct uop *v)
{
    return v->dtype == DTYPE_F32 ? uop_intern(t, OP_CAST, DTYPE_F32, &v, 1, (union arg){0}) : v;
}

static struct uop *make_table(const struct chain *c)
{
    struct tgc *t = c->t;
    struct uop *now[LOOK_MAX], *src[SOURCES_MAX];
    const int64_t size = VALUES, least = dtype_min(c->source->dtype);
    unsigned char data[VALUES];
    for (int i = 0; i < VALUES; i++)
        scalar_store(c->source->dtype, data + i, (union scalar){.i = least + i});
    struct uop *values = tensor_from_data(t, c->source->dtype, &size, 1,
                                          mem_copy(t, data, sizeof data), sizeof data, NULL);
    for (int i = 0; i < c->n; i++) {
        struct uop *v = c->node[i];
        bool reads = reads_byte_table(v);
        if (v->op == OP_RESHAPE) {
            now[i] = tabulated(c, now, values, v->src[0]);
            continue;
        }
        for (int k = 0; k < v->nsrc; k++)
            src[k] = reads && k == 0 ? v->src[0] : tabulated(c, now, values, v->src[k]);
        now[i] = rounded(t, uop_new(t, v->op, v->dtype, src, v->nsrc, v->arg));
    }
    return weights_evaluate(t, now[c->n - 1]);
}

struct uop *table_rewrite(struct tgc *t, struct uop *u)
{
    struct chain c = {.t = t, .root = u};
    if (u->ndim == 0 || u->op != OP_CAST || !dtype_is_byte(u->dtype) || !find_chain(&c) ||
        c.cost < machine_of(t)->lookup)
        return NULL;
    struct uop *table = make_table(&c), *at;
    if (!table || table->ndim != 1)
        return NULL;
    at = uop_cast(t, DTYPE_INDEX, c.source);
    if (c.source->dtype == DTYPE_I8)
        at = tensor_binary(t, OP_ADD, at, uop_int(t, -dtype_min(DTYPE_I8)));
    return uop_reshape(t, uop_index(t, table, &at), u->dim, u->ndim);
}
