/* emit_steps.c - from a plan's blocks and segments to an ordered list of steps: a kernel for each
 * segment, with its name and its buffers, host calls, IF and LOOP regions.
 *
 * Which block a node is in and which segment stores it is decided before (schedule.c, fuse.c). Here
 * the items of each block are brought into the graph's order, and written one after the other.
 */
#include "passes/plan/plan.h"

#include <string.h>

/* ---- kernels */

enum { TITLE_NODES = 8 };

static bool is_computation(const struct uop *u)
{
    return u->op == OP_REDUCE ||
           (op_is_elementwise(u->op) && u->dtype != DTYPE_INDEX && u->dtype != DTYPE_BOOL);
}

/* Marks conditions on values, as opposed to those on indices, which say where a value lies. */
static void note_conditions(struct uop_map *of_values, struct uop *const *order, int n)
{
    for (int i = 0; i < n; i++) {
        const struct uop *u = order[i];
        bool any = u->op == OP_LOAD;
        for (int s = 0; s < u->nsrc && u->dtype == DTYPE_BOOL && !any; s++)
            any = u->src[s]->dtype == DTYPE_BOOL ? map_get(of_values, u->src[s]) != NULL
                                                 : u->src[s]->dtype != DTYPE_INDEX;
        if (u->dtype == DTYPE_BOOL && any)
            map_set(of_values, u, order[i]);
    }
}

/* The first computation with a weight names the node that reads it. */
static void note_readers(struct tgc *t, const struct kernel *k)
{
    struct uop_map of = {.t = t};            /* a LOAD of a weight, and casts of it -> its buffer */
    int n;
    struct uop *root = k->ast, **order = uop_toposort(t, &root, 1, &n);
    for (int i = 0; i < n; i++)
        for (int s = 0; s < order[i]->nsrc; s++) {
            const struct uop *u = order[i], *from = u->src[s];
            struct buffer *b = from->op == OP_BUFFER ? (struct buffer *)(uintptr_t)from->arg.p
                                                     : map_get(&of, from);
            if (!b || b->kind != BUFFER_WEIGHT || b->weight.reader)
                continue;
            if (u->op == OP_LOAD || u->op == OP_CAST)
                map_set(&of, u, b);
            else
                b->weight.reader = uop_get_origin(t, u);
        }
}

static void add_node(struct tgc *t, struct kernel *k, bool *seen, const struct origin *o)
{
    if (!o || seen[o->id])
        return;
    seen[o->id] = true;
    VEC_PUSH(t, k->node, k->nnode, k->cap_node, o);
}

/* The model's nodes that a kernel computes, without those of its inputs, in their order. */
static void find_nodes(struct tgc *t, struct kernel *k, struct uop *const *order, int n)
{
    bool computes = false, *seen = scratch_array(t, t->norigin + 1, sizeof *seen);
    struct uop_map condition = {.t = t, .scratch = true};
    note_conditions(&condition, order, n);
    k->nnode = 0;
    k->cap_node = 0;
    k->node = NULL;
    for (int i = 0; i < n; i++)
        computes |= is_computation(order[i]);
    k->is_copy = !computes;
    for (int i = 0; i < n; i++) {
        bool counts = !computes || is_computation(order[i]) ||
                      (op_is_elementwise(order[i]->op) && map_get(&condition, order[i]));
        if (!counts)
            continue;
        for (const struct merged *m = computes ? uop_get_merged(t, order[i]) : NULL; m; m = m->next)
            add_node(t, k, seen, m->node);
        add_node(t, k, seen, uop_get_origin(t, order[i]));
    }
}

/* 'Conv "conv_3", Relu "relu_4"', 'gradient of Conv "conv_3"': the first `most` of them. */
static const char *list_nodes(struct tgc *t, const struct kernel *k, int most,
                              const char *separator)
{
    struct text list = {.t = t};
    if (k->is_adjoint && k->nnode)
        text_puts(&list, "gradient of ");
    for (int i = 0; i < k->nnode && i < most; i++)
        text_printf(&list, "%s%s", i ? separator : "", origin_title(t, k->node[i]));
    if (k->nnode > most)
        text_printf(&list, "%sand %d more", separator, k->nnode - most);
    return list.n ? list.s : "";
}

/* The steps of a node's computation that are in a kernel, in their order. */
static const char *kernel_steps(struct tgc *t, struct uop *const *order, int n)
{
    enum { MOST = 8 };
    const char *seen[MOST], *s;
    int nseen = 0;
    struct text x = {.t = t};
    for (int i = 0; i < n && nseen < MOST; i++) {
        int j = 0;
        if (!is_computation(order[i]) || (s = uop_get_step(t, order[i])) == NULL)
            continue;
        while (j < nseen && strcmp(seen[j], s) != 0)
            j++;
        if (j == nseen) {
            seen[nseen++] = s;
            text_printf(&x, "%s%s", nseen > 1 ? "\n" : "", s);
        }
    }
    return x.s;
}

/* Whether it computes derivatives, and sums of nodes as well. */
static void find_adjoints(struct tgc *t, struct kernel *k, struct uop *const *order, int n)
{
    bool sums = false;
    k->is_adjoint = false;
    for (int i = 0; i < n; i++) {
        k->is_adjoint |= is_computation(order[i]) && uop_is_adjoint(t, order[i]);
        sums |= order[i]->op == OP_REDUCE && uop_get_origin(t, order[i]) &&
                !uop_is_adjoint(t, order[i]);
    }
    k->is_again = k->is_adjoint && sums;
}

/* The node that names the kernel: that of the first reduction, else the last; of a kernel that
 * computes derivatives, one of those. NULL: none. */
static const struct origin *main_node(struct tgc *t, const struct kernel *k,
                                      struct uop *const *order, int n)
{
    const struct origin *last = NULL;
    for (int i = 0; i < n; i++) {
        const struct origin *o = uop_get_origin(t, order[i]);
        if (k->is_adjoint && !uop_is_adjoint(t, order[i]))
            continue;
        if (o && order[i]->op == OP_REDUCE)
            return o;
        last = o ? o : last;
    }
    return last;
}

/* Moves the node to the front, if it is one of the kernel's. */
static void put_first(struct kernel *k, const struct origin *o)
{
    int at = 0;
    while (at < k->nnode && k->node[at] != o)
        at++;
    for (; at > 0 && at < k->nnode; at--) {
        const struct origin *before = k->node[at - 1];
        k->node[at - 1] = o;
        k->node[at] = before;
    }
}

static const char *kernel_name(struct tgc *t, const struct kernel *k, const struct origin *o)
{
    const char *op = o ? o->op_type : k->nbuffer == k->noutput ? "fill" : "copy";
    char word[32];
    size_t n = 0;
    for (const char *c = op; *c && n < sizeof word - 1; c++) {
        char lower = *c >= 'A' && *c <= 'Z' ? (char)(*c - 'A' + 'a') : *c;
        if ((lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9' && n))
            word[n++] = lower;
    }
    word[n] = 0;
    return mem_printf(t, "%s_%d", n ? word : "kernel", k->index);
}

/* A copy's values have the origins of the nodes that computed them: those are not its nodes. */
static void forget_computed(struct tgc *t, const struct schedule *s)
{
    bool *computed = mem_array(t, t->norigin + 1, sizeof *computed);
    for (int i = 0; i < s->nkernel; i++)
        for (int j = 0; j < s->kernel[i]->nnode && !s->kernel[i]->is_copy; j++)
            computed[s->kernel[i]->node[j]->id] = true;
    for (int i = 0; i < s->nkernel; i++) {
        struct kernel *k = s->kernel[i];
        const char *title = mem_printf(t, "a copy of %s", k->title);
        int n = 0, all = k->is_copy ? k->nnode : 0;
        for (int j = 0; j < all; j++)
            if (!computed[k->node[j]->id])
                k->node[n++] = k->node[j];
        if (n == all)
            continue;
        k->nnode = n;
        k->name = kernel_name(t, k, n ? k->node[0] : NULL);
        k->title = n ? list_nodes(t, k, TITLE_NODES, ", ") : title;
        k->nodes = n ? list_nodes(t, k, n, "\n") : title;
    }
}

static void kernel_add_buffer(struct tgc *t, struct kernel *k, struct buffer *b, size_t *cap)
{
    for (int i = 0; i < k->nbuffer; i++)
        if (k->buffer[i] == b)
            return;
    VEC_PUSH(t, k->buffer, k->nbuffer, *cap, b);
}

static void kernel_add_scratch(struct tgc *t, struct kernel *k, struct buffer *b, size_t *cap)
{
    for (int i = 0; i < k->nscratch; i++)
        if (k->scratch[i] == b)
            return;
    VEC_PUSH(t, k->scratch, k->nscratch, *cap, b);
}

static void kernel_add_var(struct tgc *t, struct kernel *k, struct var *v, size_t *cap)
{
    for (int i = 0; i < k->nvar; i++)
        if (k->var[i] == v)
            return;
    VEC_PUSH(t, k->var, k->nvar, *cap, v);
}

void kernel_describe(struct tgc *t, struct kernel *k)
{
    size_t cap_buffer = 0, cap_var = 0, cap_scratch = 0;
    struct mem_mark mark = scratch_mark(t);
    int n;
    k->buffer = k->scratch = NULL;
    k->var = NULL;
    k->nbuffer = k->nscratch = k->nvar = 0;
    struct uop **order = uop_toposort(t, &k->ast, 1, &n);
    for (int i = 0; i < k->ast->nsrc; i++) {
        struct buffer *b = (struct buffer *)(uintptr_t)k->ast->src[i]->src[0]->arg.p;
        if (b->kind == BUFFER_SCRATCH)                /* passed on within a band */
            kernel_add_scratch(t, k, b, &cap_scratch);
        else
            kernel_add_buffer(t, k, b, &cap_buffer);
    }
    k->noutput = k->nbuffer;
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        void *arg = (void *)(uintptr_t)u->arg.p;
        if (u->op == OP_BUFFER && uop_buffer_of(u)->kind != BUFFER_SCRATCH)
            kernel_add_buffer(t, k, arg, &cap_buffer);
        else if (u->op == OP_VAR)
            kernel_add_var(t, k, arg, &cap_var);
        else if (u->op == OP_STAGE)
            VEC_PUSH(t, k->scratch, k->nscratch, cap_scratch, arg);
    }
    find_adjoints(t, k, order, n);
    const struct origin *first = main_node(t, k, order, n);
    find_nodes(t, k, order, n);
    k->title = list_nodes(t, k, TITLE_NODES, ", ");
    k->nodes = list_nodes(t, k, k->nnode, "\n");
    k->steps = kernel_steps(t, order, n);
    put_first(k, first);
    note_readers(t, k);
    k->name = kernel_name(t, k, first);
    scratch_release(t, mark);
}

static struct kernel *kernel_new(struct plan *p, struct segment *s, int number)
{
    struct kernel *k = MEM_NEW(p->t, struct kernel);
    k->index = number;
    k->ast = lower_kernel(p, s);
    k->by_blocks = s->online;
    kernel_describe(p->t, k);
    k->is_disjoint = true;
    for (const struct segment *part = s; part; part = part->next) {
        k->is_serial |= part->scatter && !device_has_grid(p->t);
        k->is_disjoint &= part->start || part->clip.rows || part->dest->kind == BUFFER_SCRATCH;
    }
    return k;
}

/* ---- steps */

static void block_add(struct plan *p, struct block *b, struct item it)
{
    VEC_PUSH(p->t, b->item, b->nitem, b->cap_item, it);
}

/* Stable insertion by position: items of one block arrive nearly sorted. */
static void block_sort(struct block *b)
{
    for (int i = 1; i < b->nitem; i++) {
        struct item it = b->item[i];
        int j = i;
        for (; j > 0 && b->item[j - 1].pos > it.pos; j--)
            b->item[j] = b->item[j - 1];
        b->item[j] = it;
    }
}

static void plan_items(struct plan *p)
{
    for (int i = 0; i < p->nsegment; i++) {
        struct segment *s = p->segment[i];
        if (s->value && !s->absorbed)
            block_add(p, s->block, (struct item){s->pos, s, NULL});
    }
    for (int i = 0; i < p->nnode; i++) {
        struct node *n = &p->node[i];
        if (n->u->op == OP_IF || n->u->op == OP_LOOP || n->u->op == OP_HOST)
            block_add(p, n->block, (struct item){n->pos, NULL, n->u});
    }
}

struct emission { struct plan *p; struct schedule *s; size_t cap_step, cap_kernel, cap_var; };

static void emit(struct emission *e, struct step st)
{
    VEC_PUSH(e->p->t, e->s->step, e->s->nstep, e->cap_step, st);
}

static void emit_kernel(struct emission *e, struct segment *s)
{
    struct kernel *k = kernel_new(e->p, s, e->s->nkernel);
    VEC_PUSH(e->p->t, e->s->kernel, e->s->nkernel, e->cap_kernel, k);
    emit(e, (struct step){.kind = STEP_KERNEL, .kernel = k});
}

/* Adds a symbol that the run computes, after those of the graph. */
static void add_var(struct emission *e, struct var *v)
{
    for (int i = 0; i < e->s->nvar; i++)
        if (e->s->var[i] == v)
            return;
    VEC_PUSH(e->p->t, e->s->var, e->s->nvar, e->cap_var, v);
}

/* A call without places of its own is noted by kernels (plan_verdict()). */
static void emit_host(struct emission *e, struct node *n)
{
    if (!n->host_arg)
        return;
    int narg = n->u->nsrc + n->nresult;
    struct buffer **arg = mem_array(e->p->t, (size_t)narg, sizeof *arg);
    for (int k = 0; k < n->u->nsrc; k++) {
        struct uop *u = n->u->src[k];
        while (!n->host_arg[k] && u->op == OP_RESHAPE)
            u = u->src[0];
        arg[k] = n->host_arg[k] ? (struct buffer *)(uintptr_t)n->host_arg[k]->arg.p
                                : lower_buffer_of(e->p, u);
    }
    ARRAY_COPY(arg + n->u->nsrc, n->result, n->nresult);
    const struct host_call *h = n->u->arg.p;
    for (int k = 0; k < h->nresult; k++)
        add_var(e, h->result[k]);
    emit(e, (struct step){.kind = STEP_HOST,
                          .node = uop_get_origin(e->p->t, n->u),
                          .host = (struct host_call *)(uintptr_t)n->u->arg.p,
                          .arg = arg,
                          .narg = narg});
}

/* Blocks nest as the model's subgraphs, whose depth the loader limits; so the recursion is
 * bounded. */
static void emit_block(struct emission *e, struct block *b)
{
    block_sort(b);
    for (int i = 0; i < b->nitem; i++) {
        struct item *it = &b->item[i];
        if (it->kernel) {
            emit_kernel(e, it->kernel);
            continue;
        }
        struct node *n = plan_node(e->p, it->node);
        if (it->node->op == OP_HOST) {
            emit_host(e, n);
        } else if (it->node->op == OP_IF) {
            emit(e, (struct step){.kind = STEP_IF,
                                  .node = uop_get_origin(e->p->t, n->u),
                                  .cond = lower_scalar(e->p, it->node->src[0])});
            emit_block(e, n->side[0]);
            if (n->side[1]->nitem) {
                emit(e, (struct step){.kind = STEP_ELSE});
                emit_block(e, n->side[1]);
            }
            emit(e, (struct step){.kind = STEP_ENDIF});
        } else {
            const struct loop *l = it->node->arg.p;
            struct buffer *cond = n->state[l->ncarried];
            emit(e, (struct step){.kind = STEP_LOOP,
                                  .node = uop_get_origin(e->p->t, n->u),
                                  .counter = l->counter,
                                  .trip = lower_scalar(e->p, it->node->src[0])});
            if (cond)
                emit(e, (struct step){.kind = STEP_BREAK_UNLESS,
                                      .cond = lower_scalar(e->p, uop_buffer(e->p->t, cond))});
            emit_block(e, n->side[0]);
            emit(e, (struct step){.kind = STEP_ENDLOOP, .counter = l->counter});
        }
    }
}

/* ---- buffers of the program */

void schedule_collect_buffers(struct tgc *t, struct schedule *s)
{
    s->nbuffer = s->nweight = 0;
    size_t cap_buffer = 0, cap_weight = 0;
    bool *seen = mem_array(t, (size_t)t->next_buffer, sizeof *seen);
    for (int i = 0; i < s->nstep; i++) {
        const struct step *st = &s->step[i];
        int nk = st->kernel ? st->kernel->nbuffer : 0, ns = st->kernel ? st->kernel->nscratch : 0;
        for (int k = 0; k < nk + ns + st->narg; k++) {
            struct buffer *b = k < nk        ? st->kernel->buffer[k]
                               : k < nk + ns ? st->kernel->scratch[k - nk]
                                             : st->arg[k - nk - ns];
            if (seen[b->id])
                continue;
            seen[b->id] = true;
            if (b->kind == BUFFER_WEIGHT)
                VEC_PUSH(t, s->weight, s->nweight, cap_weight, b);
            else if (b->kind == BUFFER_TEMP || b->kind == BUFFER_STATE || b->kind == BUFFER_SCRATCH)
                VEC_PUSH(t, s->buffer, s->nbuffer, cap_buffer, b);
        }
    }
    for (int i = 0; i < s->nstate; i++)
        if (s->state[i]->in->port.first)
            VEC_PUSH(t, s->weight, s->nweight, cap_weight, s->state[i]->in->port.first);
}

/* ---- updates of a training */

static bool kernel_reads(const struct kernel *k, const struct buffer *b)
{
    for (int i = k->noutput; i < k->nbuffer; i++)
        if (buffer_root(k->buffer[i]) == b)
            return true;
    return false;
}

/* The last of the kernels after step i, up to one that reads the new value, that reads the old one;
 * i: none does. */
static int last_reader(const struct schedule *s, int i, const struct state *st)
{
    int last = i;
    for (int j = i + 1; j < s->nstep && s->step[j].kind == STEP_KERNEL; j++) {
        if (kernel_reads(s->step[j].kernel, st->out))
            break;
        last = kernel_reads(s->step[j].kernel, st->in) ? j : last;
    }
    return last;
}

/* Updates that came before a kernel that still reads the old value follow it: nodes.c cannot know
 * which values its kernel computes. Else the state would have two places. */
static void delay_updates(struct schedule *s)
{
    for (int k = 0; k < s->nstate; k++)
        for (int i = 0; i < s->nstep; i++) {
            const struct kernel *own = s->step[i].kernel;
            if (!own || own->noutput != 1 || buffer_root(own->buffer[0]) != s->state[k]->out)
                continue;
            struct step update = s->step[i];
            int to = last_reader(s, i, s->state[k]);
            for (int j = i; j < to; j++)
                s->step[j] = s->step[j + 1];
            s->step[to] = update;
            i = to;
        }
}

void plan_emit_steps(struct plan *p)
{
    const struct graph *g = p->graph;
    struct schedule *s = p->schedule;
    plan_items(p);
    struct emission e = {.p = p, .s = s};
    e.cap_var = (size_t)g->nvar + 4;
    s->var = mem_array(p->t, e.cap_var, sizeof *s->var);
    ARRAY_COPY(s->var, g->var, g->nvar);
    emit_block(&e, p->top);
    int nshared = s->nstep;
    for (int i = 0; i < g->nentry; i++) {
        struct uop *is = uop_binary(p->t, OP_EQ, uop_var(p->t, g->entry_number), uop_int(p->t, i));
        emit(&e, (struct step){.kind = STEP_IF, .cond = is});
        emit_block(&e, p->entry[i]);
        emit(&e, (struct step){.kind = STEP_ENDIF});
    }
    if (g->nentry)
        plan_guard_shared(p->t, s, nshared);
    forget_computed(p->t, s);
    if (p->trains)
        delay_updates(s);
    schedule_collect_buffers(p->t, s);
}
