/* blocks.c - where nodes run: IF and LOOP regions.
 *
 * The graph is one DAG; the consumers of a node determine where it runs. A node's block is the
 * innermost one that contains all its consumers, moved out of every loop in which the node is
 * invariant. The operands of an IF live in its THEN and ELSE blocks, those of a LOOP's body in its
 * BODY. So only the taken side of an IF runs, values that both sides share are computed once
 * before it, and invariant work leaves the loop. Within a block the order is the graph's
 * topological order.
 */
#include "passes/plan/plan.h"

/* Whether n depends on loop i of the plan. */
static bool node_depends(const struct node *n, int i)
{
    return n->loops[i / 64] >> (i % 64) & 1;
}

static struct block *block_new(struct plan *p, enum block_kind kind, struct block *parent,
                               struct uop *owner)
{
    struct block *b = MEM_NEW(p->t, struct block);
    *b = (struct block){
        .kind = kind, .parent = parent, .depth = parent ? parent->depth + 1 : 0, .owner = owner};
    return b;
}

static struct block *block_join(struct block *a, struct block *b)
{
    if (!a || !b)
        return a ? a : b;
    while (a != b) {
        if (a->depth < b->depth)
            b = b->parent;
        else
            a = a->parent;
    }
    return a;
}

/* Moves the block out of every loop in which n is invariant. */
static struct block *block_hoist(const struct plan *p, const struct node *n, struct block *b)
{
    struct block *place = b;
    for (struct block *c = b; c; c = c->parent)
        if (c->kind == BLOCK_BODY) {
            if (node_depends(n, plan_loop_number(p, c->owner->arg.p)))
                break;
            place = c->parent;
        }
    return place;
}

static void join_into(struct plan *p, struct uop *u, struct block *b)
{
    struct node *n = plan_node(p, u);
    n->block = block_join(n->block, b);
}

/* The block of output or host call i of the graph. */
struct block *plan_block_of_output(const struct plan *p, int i)
{
    const struct graph *g = p->graph;
    int part = i - graph_count_outputs(g);
    if (part >= 0)
        return g->part[part]->entry < 0 ? p->top : p->entry[g->part[part]->entry];
    for (int e = 0; e < g->nentry; e++)
        if (i >= g->entry[e].output && i < g->entry[e].output + g->entry[e].noutput)
            return p->entry[e];
    return p->top;
}

static struct block *block_of_host(const struct plan *p, int i)
{
    const struct graph *g = p->graph;
    for (int e = 0; e < g->nentry; e++)
        if (i >= g->entry[e].host && i < g->entry[e].host + g->entry[e].nhost)
            return p->entry[e];
    return p->top;
}

void plan_blocks(struct plan *p)
{
    p->top = block_new(p, BLOCK_TOP, NULL, NULL);
    p->entry = mem_array(p->t, (size_t)p->graph->nentry + 1, sizeof *p->entry);
    for (int e = 0; e < p->graph->nentry; e++)
        p->entry[e] = block_new(p, BLOCK_ENTRY, p->top, NULL);
    for (int i = 0; i < p->graph->noutput; i++)
        join_into(p, p->graph->output[i].value, plan_block_of_output(p, i));
    for (int i = 0; i < p->graph->nhost; i++)
        if (uop_is_check(p->graph->host[i]))
            join_into(p, p->graph->host[i], block_of_host(p, i));
    for (int i = p->nnode - 1; i >= 0; i--) {
        struct node *n = &p->node[i];
        struct uop *u = n->u;
        n->block = block_hoist(p, n, n->block);
        if (u->op == OP_IF) {
            int64_t half = u->arg.i;
            n->side[0] = block_new(p, BLOCK_THEN, n->block, u);
            n->side[1] = block_new(p, BLOCK_ELSE, n->block, u);
            join_into(p, u->src[0], n->block);
            for (int k = 1; k < u->nsrc; k++)
                join_into(p, u->src[k], n->side[k > half]);
        } else if (u->op == OP_LOOP) {
            int head = 2 + ((const struct loop *)u->arg.p)->ncarried;
            n->side[0] = block_new(p, BLOCK_BODY, n->block, u);
            for (int k = 0; k < u->nsrc; k++)
                join_into(p, u->src[k], k < head ? n->block : n->side[0]);
        } else {
            struct uop *c;
            for (int k = 0; (c = plan_child(p, u, k)); k++)
                join_into(p, c, n->block);
        }
    }
}
