/* fit_parameters.c - kernels with more tensors than a device's kernels take as arguments.
 *
 * They become several kernels, each of as many nests as fit: a concat of hundreds of parts is one
 * such kernel.
 */
#include "passes/kernel/tile.h"

/* Counts the nest's arguments that are not in `seen`, and adds them. */
static int count_arguments(struct tgc *t, struct uop *store, struct uop_map *seen)
{
    int n, count = 0;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++) {
        bool is_argument =
            order[i]->op == OP_VAR ||
            (order[i]->op == OP_BUFFER && uop_buffer_of(order[i])->kind != BUFFER_SCRATCH);
        if (is_argument && !map_get(seen, order[i])) {
            map_set(seen, order[i], order[i]);
            count++;
        }
    }
    return count;
}

/* How many of the nests from store[0] on fit one kernel's arguments; at least one. */
static int nests_that_fit(struct tgc *t, struct uop *const *store, int n)
{
    struct mem_mark mark = scratch_mark(t);
    struct uop_map seen = {.t = t, .scratch = true};
    int fit = 0, count = 0, most = device_operands(t);
    while (fit < n && (count += count_arguments(t, store[fit], &seen)) <= most)
        fit++;
    scratch_release(t, mark);
    return fit ? fit : 1;
}

bool pass_fit_parameters(struct tgc *t, struct schedule *s)
{
    struct kernel **kernel = NULL;
    struct step *step = NULL;
    int nkernel = 0, nstep = 0, most = device_operands(t);
    size_t cap_kernel = 0, cap_step = 0;
    bool any = false;
    for (int i = 0; i < s->nstep; i++)
        any |= s->step[i].kernel && s->step[i].kernel->nbuffer + s->step[i].kernel->nvar > most;
    for (int i = 0; i < s->nstep && any; i++) {
        struct step st = s->step[i];
        struct kernel *k = st.kernel;
        int all = k ? k->ast->nsrc : 0, number = 0;
        bool whole = !k || kernel_is_band(k) || k->nbuffer + k->nvar <= most;
        for (int at = 0, n; at < all || (at == 0 && !k); at += n) {
            n = !k ? 1 : whole ? all : nests_that_fit(t, k->ast->src + at, all - at);
            if (k && n < all)
                st.kernel = kernel_of_nests(t, k, k->ast->src + at, n, number++);
            if (k) {
                st.kernel->index = nkernel;
                VEC_PUSH(t, kernel, nkernel, cap_kernel, st.kernel);
            }
            VEC_PUSH(t, step, nstep, cap_step, st);
        }
    }
    if (any) {
        s->kernel = kernel, s->nkernel = nkernel;
        s->step = step, s->nstep = nstep;
    }
    return true;
}
