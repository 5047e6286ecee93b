/* split.c - a schedule as several modules, so that threads can make code of them: kernels, the
 * largest first, each into the module that has least as yet; then the run, which calls them.
 *
 * How many modules there are depends on the schedule alone, so the code is the same on a machine
 * with more processors. A small program is one module: each has costs of its own, 3 to 6 ms. Those
 * of a second one pay early, since a program of one module is made by one thread.
 */
#include "backends/llvm/machine.h"

#include <stdlib.h>
#include <string.h>

/* Uops of linear programs: what a program of two modules has at least, and what each module of
 * more. */
enum { TWO_MODULES_UOPS = 700, MODULE_UOPS = 1500, MOST_MODULES = 32 };

struct share { const struct kernel *k; const struct variant *v; int nuop, module; };

static int compare_shares(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    return x->nuop != y->nuop ? (x->nuop < y->nuop) - (x->nuop > y->nuop)
                              : (x->k->index > y->k->index) - (x->k->index < y->k->index);
}

static int compare_order(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    return (x->k->index > y->k->index) - (x->k->index < y->k->index);
}

/* The kernels that have functions of their own, in their order, each with its module. Returns how
 * many modules there are. */
static int share_kernels(struct emit *e, struct share *share, int *n)
{
    int total = 0, load[MOST_MODULES] = {0};
    *n = 0;
    for (int i = 0; i < e->s->nkernel; i++) {
        const struct kernel *k = e->s->kernel[i];
        if (e->twin[i] != k)
            continue;
        const struct variant *v = variant_pick(e, k);
        share[*n] = (struct share){k, v, v ? v->nlinear : k->nlinear, 0};
        total += share[(*n)++].nuop;
    }
    int nmodule = total / MODULE_UOPS, least_modules = total < TWO_MODULES_UOPS ? 1 : 2;
    nmodule = nmodule < least_modules ? least_modules
              : nmodule > MOST_MODULES ? MOST_MODULES : nmodule;
    qsort(share, (size_t)*n, sizeof *share, compare_shares);
    for (int i = 0; i < *n; i++) {
        int least = 0;
        for (int m = 1; m < nmodule; m++)
            least = load[m] < load[least] ? m : least;
        share[i].module = least;
        load[least] += share[i].nuop;
    }
    qsort(share, (size_t)*n, sizeof *share, compare_order);
    return nmodule;
}

/* Names are unique among all modules: two kernels may have the same. */
static const char *symbol_of(const struct emit *e, const struct kernel *k)
{
    return mem_printf(e->t, "%s.%d", k->name, k->index);
}

static void export(const struct emit *e, value function)
{
    e->l->SetLinkage(function, LLVM_EXTERNAL);
    e->l->SetVisibility(function, LLVM_HIDDEN);
}

static void emit_group(struct emit *e, const struct share *share, int n, int module)
{
    for (int i = 0; i < n; i++) {
        if (share[i].module != module)
            continue;
        value f = emit_kernel(e, share[i].k, share[i].v);
        const char *name = symbol_of(e, share[i].k);
        e->l->SetValueName2(f, name, strlen(name));
        export(e, f);
    }
}

static value declare(const struct emit *e, const struct kernel *k)
{
    value f = e->l->AddFunction(e->module, symbol_of(e, k), kernel_type(e, k));
    export(e, f);
    return f;
}

static void emit_rest(struct emit *e, const struct share *share, int n, bool kernels_too,
                      const char *function)
{
    entry_strings(e);
    externals_declare(e);
    for (int i = 0; i < n; i++) {
        const struct kernel *k = share[i].k;
        e->kernel[k->index] = kernels_too ? emit_kernel(e, k, share[i].v) : declare(e, k);
        if (k->is_shared)
            emit_part(e, k, e->kernel[k->index]);
    }
    emit_run(e, function);
    if (e->s->nstate)
        emit_states(e);
}

struct emit *split_emit(struct tgc *t, struct llvm *l, const struct llvm_machine *m,
                        const struct schedule *s, const char *name, int *nmodule)
{
    struct emit first = {.t = t, .l = l, .s = s};
    module_begin(&first, l, m, name);
    module_tables(&first);
    struct share *share = mem_array(t, (size_t)s->nkernel + 1, sizeof *share);
    int n, ngroup = share_kernels(&first, share, &n);
    struct emit *e = mem_array(t, (size_t)ngroup + 1, sizeof *e);
    *nmodule = 0;
    for (int i = 0; i < ngroup && ngroup > 1; i++) {
        struct emit *group = &e[(*nmodule)++];
        *group = (struct emit){.t = t, .l = l, .s = s};
        module_begin(group, l, m, name);
        emit_group(group, share, n, i);
        pieces_emit(group);
        module_check(group);
    }
    emit_rest(&first, share, n, ngroup == 1, mem_printf(t, "%s_run", name));
    pieces_emit(&first);
    module_check(&first);
    e[(*nmodule)++] = first;
    return e;
}
