/* print_plan.c - a plan as text, for DEBUG=4 and for tests: the state of each value, and the
 * kernels so far. There is no reader for it.
 *
 *      plan
 *      %0 : f32[4, 8] = exp(%input0), scratch of kernel 0
 *      %1 : f32[4, 1] = reduce(%0), in kernel 0                    computed where it is used
 *      %2 : f32[4, 8] = div(%0, %1), stored in %temp2 [4, 8] order [1, 0]
 *      kernel 0: %temp2 = %2 over r0 < 4, r1 < 8, inside r2 < 8    these range over sums and stages
 */
#include "passes/plan/plan.h"

struct printer {
    struct text *out;
    struct plan *p;
    int *number; /* by node: its number among those that are printed; -1: not printed */
};

/* Constants, coordinates and buffers are named where they are read. */
static bool is_shown(const struct uop *u) { return op_class(u->op) != CLASS_LEAF; }

static void print_value(const struct printer *x, const struct uop *u)
{
    const struct node *n = plan_node(x->p, u);
    if (n && x->number[n->pos] >= 0)
        text_printf(x->out, "%%%d", x->number[n->pos]);
    else
        uop_print(x->out, u);
}

static void print_list(const struct printer *x, const char *before, struct uop *const *u, int n)
{
    text_printf(x->out, "%s[", before);
    for (int i = 0; i < n; i++) {
        text_printf(x->out, i ? ", " : "");
        uop_print(x->out, u[i]);
    }
    text_printf(x->out, "]");
}

static void print_memory(const struct printer *x, struct buffer *b)
{
    uop_print(x->out, uop_buffer(x->p->t, b));
    print_list(x, " ", b->dim, b->ndim);
    for (int a = 0; b->order.is_set && a < b->ndim; a++)
        text_printf(x->out, "%s%d%s", a ? ", " : " order [", b->order.axis[a],
                    a == b->ndim - 1 ? "]" : "");
    if (b->storage)
        print_list(x, " strides ", b->storage->stride, b->storage->ndim);
}

/* The kernels that compute it or stage it. */
static void print_uses(const struct printer *x, const struct node *n)
{
    for (int scratch = 0; scratch < 2; scratch++) {
        int last = -1;
        for (const struct use *u = n->use; u; u = u->next) {
            if (!u->seg->value || u->root || (u->stage != NULL) != scratch || u->seg->at == last ||
                (n->buffer && !u->stage))
                continue;
            text_printf(x->out,
                        last >= 0 ? " %d"
                        : scratch ? ", scratch of kernel %d"
                                  : ", in kernel %d",
                        u->seg->at);
            last = u->seg->at;
        }
    }
}

static void print_node(const struct printer *x, const struct node *n)
{
    static const char *const block[] = {"top", "then", "else", "body", "entry"};
    text_printf(x->out, "%%%d : %s", x->number[n->pos], dtype_name(n->u->dtype));
    print_list(x, "", n->u->dim, n->u->ndim);
    text_printf(x->out, " = %s(", op_name(n->u->op));
    for (int k = 0, any = 0; k < n->u->nsrc; k++)
        if (op_class(n->u->op) != CLASS_MOVE || is_shown(n->u->src[k]) ||
            n->u->src[k]->op == OP_BUFFER) {
            text_printf(x->out, any++ ? ", " : "");
            print_value(x, n->u->src[k]);
        }
    text_printf(x->out, ")");
    if (n->block && n->block->owner) {
        text_printf(x->out, ", %s of ", block[n->block->kind]);
        print_value(x, n->block->owner);
    }
    text_printf(x->out, n->online ? ", by blocks of keys" : "");
    print_uses(x, n);
    if (n->buffer) {
        text_printf(x->out, ", stored in ");
        print_memory(x, n->buffer);
    }
    if (n->within) {
        text_printf(x->out, ", a part of ");
        print_value(x, n->within->u);
        print_list(x, " at ", n->at, n->u->ndim);
    }
    text_printf(x->out, "\n");
}

static void print_ranges(const struct printer *x, const struct segment *s, bool inner)
{
    for (int i = 0, any = 0; i < s->nrange; i++) {
        if ((s->inner >> i & 1) != inner)
            continue;
        text_printf(x->out, any++ ? ", " : inner ? ", inside " : " over ");
        uop_print(x->out, s->range[i]);
        text_printf(x->out, " < ");
        uop_print(x->out, s->range[i]->src[0]);
    }
}

static void print_segment(const struct printer *x, const struct segment *s)
{
    text_printf(x->out, s->absorbed ? "    and %d: " : "kernel %d: ", s->at);
    uop_print(x->out, uop_buffer(x->p->t, s->dest));
    if (s->start)
        print_list(x, " from ", s->start, s->value->ndim);
    text_printf(x->out, s->own ? " = " : " = a copy of ");
    print_value(x, s->value);
    print_ranges(x, s, false);
    print_ranges(x, s, true);
    for (int k = 0; k < s->nband; k++) {
        const struct band *b = &s->band[k];
        text_printf(x->out, ", band ");
        uop_print(x->out, b->range);
        text_printf(x->out, " < ");
        uop_print(x->out, b->range->src[0]);
        text_printf(x->out, ": %lld of axis %d from ", (long long)b->extent, b->axis);
        uop_print(x->out, b->start);
    }
    if (s->clip.rows) {
        text_printf(x->out, ", %lld rows of ", (long long)s->clip.rows);
        uop_print(x->out, s->clip.in);
    }
    text_printf(x->out, "%s%s\n", s->scatter ? ", scattered" : "",
                s->online ? ", by blocks of keys" : "");
}

void plan_print(struct text *out, struct plan *p)
{
    struct printer x = {out, p, mem_array(p->t, (size_t)p->nnode + 1, sizeof(int))};
    for (int i = 0, n = 0; i < p->nnode; i++)
        x.number[i] = is_shown(p->node[i].u) ? n++ : -1;
    text_printf(out, "plan\n");
    for (int i = 0; i < p->nnode; i++)
        if (x.number[i] >= 0)
            print_node(&x, &p->node[i]);
    for (int i = 0; i < p->nsegment; i++)
        for (const struct segment *s = p->segment[i];
             s && p->segment[i]->value && !p->segment[i]->absorbed; s = s->next)
            if (s->value)
                print_segment(&x, s);
}
