/* feeds.c - what NAME_describe() says of inputs beyond their types: of which symbols a run-time
 * size is made, so that tools find the symbols' values and compare, and which integers the model's
 * uses allow.
 *
 * A rule is the size in postfix: numbers, $K for symbols[K] of the description, and names of ops,
 * of which runtime/fit.c knows those of `known`.
 */
#include "backends/program/program.h"
#include "passes/analysis/allowed.h"

#include <string.h>

static bool is_known(enum op op)
{
    static const enum op known[] = {OP_ADD,      OP_SUB,      OP_MUL, OP_NEG,
                                    OP_FLOORDIV, OP_FLOORMOD, OP_MIN, OP_MAX};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (op == known[i])
            return true;
    return false;
}

static void put_word(struct text *out, const struct uop *u, symbol_numberer *number, void *user)
{
    struct tgc *t = out->t;
    if (out->n > 0)
        text_putc(out, ' ');
    if (u->op == OP_CONST)
        text_printf(out, "%lld", (long long)u->arg.i);
    else if (u->op == OP_VAR)
        text_printf(out, "$%d", number(user, u->arg.p));
    else if (is_known(u->op))
        text_puts(out, op_name(u->op));
    else
        TGC_BUG(t, "the size of an input has the op %s", op_name(u->op));
}

struct visit { const struct uop *u; int next; };

/* Post order by an explicit stack: sums are long chains. */
const char *size_rule(struct tgc *t, const struct uop *dim, symbol_numberer *number, void *user)
{
    struct text out = {.t = t};
    struct visit *stack = NULL;
    int n = 0;
    size_t cap = 0;
    if (dim->op == OP_CONST)
        return NULL;
    VEC_PUSH(t, stack, n, cap, ((struct visit){dim, 0}));
    while (n > 0) {
        struct visit *top = &stack[n - 1];
        if (top->next < top->u->nsrc) {
            const struct uop *source = top->u->src[top->next++];
            VEC_PUSH(t, stack, n, cap, ((struct visit){source, 0}));
        } else {
            put_word(&out, top->u, number, user);
            n--;
        }
    }
    return out.s;
}

/* Of v among the description's symbols. */
static int symbol_number(void *user, const struct var *v)
{
    const struct schedule *s = user;
    int n = 0;
    for (int i = 0; i < s->nvar && s->var[i] != v; i++)
        n += !s->var[i]->is_counter;
    return n;
}

const struct buffer *feeds_buffer(const struct schedule *s, int i)
{
    return i < s->ninput ? s->input[i] : s->state[i - s->ninput]->in;
}

/* allowed: by the graph's inputs, if the schedule has it. */
static struct allowed allowed_of(const struct schedule *s, const struct allowed *allowed,
                                 const struct buffer *b)
{
    bool counts = dtype_is_int(b->dtype) || b->dtype == DTYPE_BOOL;
    for (int i = 0; s->graph && i < s->graph->ninput; i++)
        if (s->graph->input[i]->arg.p == b)
            return allowed[i];
    return (struct allowed){0, counts ? 1 : -1};
}

const struct program_feed *feeds_describe(struct tgc *t, const struct schedule *s)
{
    int n = s->ninput + s->nstate;
    struct program_feed *feed = mem_array(t, (size_t)n + 1, sizeof *feed);
    const struct allowed *allowed = s->graph ? allowed_integers(t, s->graph) : NULL;
    for (int i = 0; i < n; i++) {
        const struct buffer *b = feeds_buffer(s, i);
        const char **rule = mem_array(t, (size_t)b->ndim + 1, sizeof *rule);
        for (int a = 0; a < b->ndim; a++)
            rule[a] = size_rule(t, b->dim[a], symbol_number, (void *)(uintptr_t)s);
        const struct allowed x = allowed_of(s, allowed, b);
        feed[i] = (struct program_feed){b->ndim ? rule : NULL, x.least, x.most};
    }
    return feed;
}
