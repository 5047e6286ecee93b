/* collect.c - which buffers and weights a kernel and the schedule use, after loops were tiled and
 * weights packed.
 */
#include "passes/kernel/tile.h"

void kernel_collect_buffers(struct tgc *t, struct kernel *k)
{
    struct buffer **b =
        mem_array(t, (size_t)(k->nbuffer + k->npacked) + 1, sizeof(struct buffer *));
    int n = 0;
    for (; n < k->noutput; n++)
        b[n] = k->buffer[n];
    for (int i = 0; i <= k->nvariant; i++) {
        int nuop;
        struct uop *root = i == 0 ? k->ast : k->variant[i - 1].ast;
        struct uop **order = uop_toposort(t, &root, 1, &nuop);
        for (int j = 0; j < nuop; j++) {
            bool known =
                order[j]->op != OP_BUFFER || uop_buffer_of(order[j])->kind == BUFFER_SCRATCH;
            for (int l = 0; l < n && !known; l++)
                known = b[l] == order[j]->arg.p;
            if (!known)
                b[n++] = (struct buffer *)(uintptr_t)order[j]->arg.p;
        }
    }
    k->buffer = b;
    k->nbuffer = n;
}

bool kernel_each_store(struct tgc *t, struct kernel *k, store_pass pass)
{
    struct uop **to = scratch_array(t, (size_t)k->ast->nsrc, sizeof *to);
    for (int i = 0; i < k->ast->nsrc; i++)
        to[i] = pass(t, k->ast->src[i]);
    k->ast = uop_intern(t, OP_SINK, DTYPE_VOID, to, k->ast->nsrc, (union arg){0});
    return true;
}

bool pass_collect(struct tgc *t, struct schedule *s)
{
    for (int i = 0; i < s->nkernel; i++)
        if (s->kernel[i]->like)
            twin_follow(t, s->kernel[i]);             /* whose program has changed before */
        else
            kernel_keep_registers(t, s->kernel[i]);
    schedule_collect_buffers(t, s);                   /* packed weights are new buffers */
    return true;
}
