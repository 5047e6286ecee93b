/* byte_table.c - a byte that is computed from one byte is read from a table of 256.
 *
 *      u8 y = saturate(round(gelu((x - zx) * sx) / sy) + zy)        u8 y = table[x]
 *
 * Quantized models surround each activation by conversions, so whatever it is - GELU, SiLU, a chain
 * of several - it is a function of a byte, and is computed for each of them by the oracle. Reading
 * takes a cycle or two an element: more than vectors need for a few cheap steps, less than they
 * need for a function of the transcendental kind, or for several divisions. Both bytes are stored, so
 * that vectors do all else.
 */
#include "passes/graph/quant/byte_sums.h"

enum { VALUES = 256, LOOK_MAX = 128, SOURCES_MAX = 4 };

struct chain {
    struct tgc *t;
    struct uop *root, *source;
    struct uop *node[LOOK_MAX]; int n;   /* what is between them, operands first */
    double cost;                         /* additions an element */
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

/* The sources of v that the chain goes through; constants and the byte itself are ends. -1: v has
 * others. */
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

/* All that is between the root and the one byte that it depends on. Reshapes keep the order of
 * elements, so they may stand anywhere. */
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

/* What stands for v where the byte has each of its values; constants are scalars. */
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
        now[i] = uop_new(t, v->op, v->dtype, src, v->nsrc, v->arg);
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
