/* separate_twins.c - twins whose buffers share memory otherwise than the first kernel's cannot
 * share its function: they get programs of their own.
 */
#include "passes/analysis/stationary.h"
#include "passes/passes.h"

bool pass_separate_twins(struct tgc *t, struct schedule *s)
{
    for (int i = 0; i < s->nkernel; i++) {
        struct kernel *k = s->kernel[i];
        const struct kernel *first = k->like ? k->like->kernel : k;
        if (k->counts_down != first->counts_down || !kernel_buffers_agree(first, k))
            kernel_own_programs(t, k);
    }
    return true;
}
