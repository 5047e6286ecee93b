/* apart.c - memory for intermediates that lets independent kernels overlap.
 *
 *      a ── b ── c ──┐       The arena's plan gives d's result the bytes of b's, which is dead
 *      └─── d ── e ──┴─ f    after c in the schedule's order: then d would have to wait for c.
 *
 * Here two tensors share bytes only if each kernel that accesses one precedes, by data dependences,
 * each that accesses the other. Where that takes too much memory, kernels that fill the device by
 * themselves count as ordered as in the schedule: they would not finish earlier by overlapping.
 * Places are packed first fit, by decreasing size.
 */
#include "backends/device/device.h"
#include "passes/analysis/kernel_cost.h"
#include "passes/target/cost.h"

#include <stdlib.h>

enum { MOST_STEPS = 1024 };

struct touch { const struct buffer *root; const struct extent *extent; bool reads, writes; };
/* A step of the run. behind[i]: step i precedes it, by data dependences. */
struct node { struct touch *touch; int n; size_t cap; uint8_t *behind; bool fills; };
/* Tensors in one place; also a tensor that is stored over another, element by element. */
struct item { int *user; int n; size_t cap, nbytes, at; bool stays; };
struct web {
    struct program *p;
    struct node *node; int n;
    struct item *item; int nitem, *item_of;      /* by the root's id, from 1 */
};

/* --------------------------------------------------------------------------------- dependences */

/* The tensor that both places of a state stand for. */
static const struct buffer *root_of(const struct buffer *b)
{
    const struct buffer *root = buffer_root(b);
    return root->port.state ? root->port.state->in : root;
}

static void add_touch(struct tgc *t, struct node *node, const struct kernel *k,
                      const struct buffer *b, bool reads, bool writes)
{
    const struct buffer *root = root_of(b);
    if (root->kind == BUFFER_WEIGHT)
        return;
    const bool is_whole = !k || root->port.state || root->kind == BUFFER_SCRATCH;
    struct touch x = {root, is_whole ? NULL : device_extent(t, k, b), reads, writes};
    VEC_PUSH(t, node->touch, node->n, node->cap, x);
}

static bool needs(const struct node *later, const struct node *earlier)
{
    for (int i = 0; i < later->n; i++)
        for (int k = 0; k < earlier->n; k++) {
            const struct touch *x = &later->touch[i], *y = &earlier->touch[k];
            if (x->root == y->root && (x->writes || y->writes) &&
                (!x->extent || !y->extent || device_extents_meet(x->extent, y->extent)))
                return true;
        }
    return false;
}

static void add_loads(struct tgc *t, struct node *node, struct uop *u)
{
    struct mem_mark mark = scratch_mark(t);
    int n;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOAD)
            add_touch(t, node, NULL, uop_buffer_of(order[i]->src[0]), true, false);
    scratch_release(t, mark);
}

static void read_step(struct tgc *t, struct node *node, const struct step *step)
{
    const struct kernel *k = step->kernel;
    for (int i = 0; k && i < k->nbuffer; i++)
        add_touch(t, node, k, k->buffer[i], i >= k->noutput, i < k->noutput);
    for (int i = 0; k && i < k->nscratch; i++)
        if (!scratch_is_on_stack(k->scratch[i]))
            add_touch(t, node, k, k->scratch[i], true, true);
    for (int i = 0; i < step->narg; i++)
        add_touch(t, node, NULL, step->arg[i], true, true);
    for (int i = 0; step->host && i < step->host->nparam; i++)
        add_loads(t, node, step->host->param[i]);
    node->fills = k && device_use(t, k).threads >= cost_full_threads(t->device);
}

/* false: the steps have branches or loops, or are too many. A host step is ordered after all steps
 * before it and before all after it. */
static bool read_steps(struct web *w)
{
    struct tgc *t = w->p->t;
    const struct schedule *s = w->p->s;
    w->n = s->nstep;
    if (w->n > MOST_STEPS)
        return false;
    w->node = mem_array(t, (size_t)w->n + 1, sizeof *w->node);
    for (int i = 0; i < w->n; i++) {
        struct node *node = &w->node[i];
        if (s->step[i].kind != STEP_KERNEL && s->step[i].kind != STEP_HOST)
            return false;
        read_step(t, node, &s->step[i]);
        node->behind = mem_array(t, (size_t)w->n + 1, 1);
        for (int b = i - 1; b >= 0; b--) {
            const bool are_kernels = s->step[i].kernel && s->step[b].kernel;
            if (node->behind[b] || (are_kernels && !needs(node, &w->node[b])))
                continue;
            node->behind[b] = 1;
            for (int a = 0; a < b; a++)
                node->behind[a] |= w->node[b].behind[a];
        }
    }
    return true;
}

/* --------------------------------------------------------------------------------------- places */

static bool has_place(const struct buffer *b)
{
    return !b->base && !b->port.state && b->placed > 0 &&
           (b->kind == BUFFER_TEMP || b->kind == BUFFER_SCRATCH);
}

/* The item of the input that the plan has the kernel overwrite with its result; 0: none. */
static int find_under(const struct web *w, const struct kernel *k, const struct buffer *out)
{
    for (int i = k ? k->noutput : 0; k && i < k->nbuffer; i++) {
        const struct buffer *in = buffer_root(k->buffer[i]);
        if (in != out && has_place(in) && in->offset == out->offset && in->placed == out->placed &&
            w->item_of[in->id])
            return w->item_of[in->id];
    }
    return 0;
}

/* In the schedule's order, so that a tensor that is overwritten comes first. */
static void find_items(struct web *w)
{
    struct tgc *t = w->p->t;
    w->item = mem_array(t, (size_t)w->p->s->nbuffer + 1, sizeof *w->item);
    w->item_of = mem_array(t, (size_t)w->p->nbuffer_id + 1, sizeof *w->item_of);
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < w->node[i].n; k++) {
            const struct buffer *b = w->node[i].touch[k].root;
            if (!has_place(b))
                continue;
            int *of = &w->item_of[b->id];
            if (!*of)
                *of = find_under(w, w->p->s->step[i].kernel, b);
            if (!*of)
                *of = ++w->nitem;
            struct item *item = &w->item[*of - 1];
            item->nbytes = b->placed;
            item->stays |= b->kept || b->scratch.counts;
            if (!item->n || item->user[item->n - 1] != i)
                VEC_PUSH(t, item->user, item->n, item->cap, i);
        }
}

/* Do all users of a precede all users of b by dependences, so that nobody waits? */
static bool is_before(const struct web *w, const struct item *a, const struct item *b, bool fills)
{
    if (a->user[a->n - 1] >= b->user[0])
        return false;
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++) {
            const struct node *x = &w->node[a->user[i]], *y = &w->node[b->user[k]];
            if (!y->behind[a->user[i]] && !(fills && (x->fills || y->fills)))
                return false;
        }
    return true;
}

static bool may_share(const struct web *w, const struct item *a, const struct item *b, bool fills)
{
    return !a->stays && !b->stays && (is_before(w, a, b, fills) || is_before(w, b, a, fills));
}

/* Does the plan let two tensors share bytes although that makes a kernel wait? */
static bool makes_wait(const struct web *w)
{
    const struct schedule *s = w->p->s;
    for (int i = 0; i < s->nbuffer; i++)
        for (int k = 0; k < i; k++) {
            const struct buffer *a = s->buffer[i], *b = s->buffer[k];
            const int x = has_place(a) ? w->item_of[a->id] : 0,
                      y = has_place(b) ? w->item_of[b->id] : 0;
            if (x && y && x != y && a->offset < b->offset + b->placed &&
                b->offset < a->offset + a->placed &&
                !may_share(w, &w->item[x - 1], &w->item[y - 1], false))
                return true;
        }
    return false;
}

struct rank { const struct item *item; int number; };

static int compare(const void *pa, const void *pb)
{
    const struct rank *a = pa, *b = pb;
    return a->item->nbytes != b->item->nbytes ? (a->item->nbytes < b->item->nbytes ? 1 : -1)
                                              : a->number - b->number;
}

/* The first gap that the item fits in, among the placed items rank[0 .. n - 1]. */
static size_t find_gap(const struct web *w, const struct item *item, const struct rank *rank, int n,
                       bool fills)
{
    size_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n; i++) {
            const struct item *other = rank[i].item;
            size_t end = other->at + other->nbytes;
            if (at < end && other->at < at + item->nbytes && !may_share(w, item, other, fills)) {
                at = (end + 127) / 128 * 128;
                moved = true;
            }
        }
    }
    return at;
}

static size_t pack(struct web *w, bool fills)
{
    struct rank *rank = mem_array(w->p->t, (size_t)w->nitem + 1, sizeof *rank);
    size_t total = 0;
    for (int i = 0; i < w->nitem; i++)
        rank[i] = (struct rank){&w->item[i], i};
    qsort(rank, (size_t)w->nitem, sizeof *rank, compare);
    for (int i = 0; i < w->nitem; i++) {
        struct item *item = &w->item[rank[i].number];
        item->at = find_gap(w, item, rank, i, fills);
        total = item->at + item->nbytes > total ? item->at + item->nbytes : total;
    }
    return total;
}

bool device_place_apart(struct program *p, size_t most, size_t *nbytes)
{
    struct web w = {.p = p};
    if (!device_has_grid(p->t) || p->nimage > 0 || !read_steps(&w))
        return false;
    find_items(&w);
    if (!makes_wait(&w))
        return false;
    *nbytes = pack(&w, false);
    if (*nbytes > most)
        *nbytes = pack(&w, true);
    if (*nbytes > most)
        return false;
    for (int i = 0; i < p->s->nbuffer; i++) {
        const struct buffer *b = p->s->buffer[i];
        if (has_place(b) && w.item_of[b->id])
            p->place[b->id] = w.item[w.item_of[b->id] - 1].at;
    }
    return true;
}
