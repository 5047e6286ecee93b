/* run.c - see run.h */
#include "tests/ir/run.h"
#include "ir/oracle.h"

#include <math.h>

void spoil(struct tensor *x)
{
    for (int64_t i = 0; i < x->nelem; i++)
        if (dtype_is_float(x->dtype))
            ((double *)x->data)[i] = NAN;
        else
            ((int64_t *)x->data)[i] = INT64_MIN + 12345;
}

struct tensor *run_value_of(struct memory_of_run *m, struct buffer *b)
{
    const struct uop *u = uop_buffer(m->t, b);
    for (int i = 0; i < m->n; i++)
        if (m->leaf[i] == u)
            return m->value[i];
    if (m->n == (int)(sizeof m->leaf / sizeof *m->leaf))
        TGC_BUG(m->t, "more buffers than a test has");
    struct tensor *x = MEM_NEW(m->t, struct tensor);
    *x = (struct tensor){.dtype = b->dtype, .ndim = b->ndim, .nelem = 1};
    for (int a = 0; a < b->ndim; a++) {
        sym_eval(b->dim[a], m->var, m->nvar, &x->dim[a]);
        x->nelem *= x->dim[a];
    }
    x->data = mem_array(m->t, (size_t)x->nelem + 1, 8);
    spoil(x);
    m->leaf[m->n] = u;
    return m->value[m->n++] = x;
}

/* Blocks of a grid one by one, since they keep local memory from one phase to the next; its threads
 * in any parts. */
static int count_parts(struct memory_of_run *m, const struct schedule *s, const struct kernel *k)
{
    enum { PARTS = 3 };
    int64_t places = 1, n;
    for (int d = 0; d < k->ngrid; d++) {
        sym_eval(k->grid[d], m->var, m->nvar, &n);
        places *= n > 0 ? n : 1;
    }
    return k->ngrid && k->block ? (int)places
           : k->ngrid           ? PARTS
           : k->is_shared       ? s->threads
                                : 1;
}

/* Who has accessed which element of what all threads see. */
static struct touched **touched_of(struct memory_of_run *m)
{
    struct touched **touch = mem_array(m->t, (size_t)m->n + 1, sizeof *touch);
    for (int i = 0; i < m->n; i++)
        if (uop_buffer_of(m->leaf[i])->kind != BUFFER_SCRATCH ||
            uop_buffer_of(m->leaf[i])->scratch.space == SPACE_GLOBAL)
            touch[i] = mem_array(m->t, (size_t)m->value[i]->nelem + 1, sizeof **touch);
    return touch;
}

/* Whether all counters of TICKETs are 0; begins: they become so. */
static bool counters_are_0(struct memory_of_run *m, const struct kernel *k, bool begins)
{
    int64_t sum = 0;
    for (int i = 0; i < k->nscratch; i++) {
        const struct tensor *x =
            k->scratch[i]->scratch.counts ? run_value_of(m, k->scratch[i]) : NULL;
        for (int64_t j = 0; x && j < x->nelem; j++) {
            int64_t *counter = &((int64_t *)x->data)[j];
            *counter = begins ? 0 : *counter;
            sum |= *counter;
        }
    }
    return sum == 0;
}

static bool run_kernel(struct memory_of_run *m, const struct schedule *s, const struct kernel *k)
{
    struct uop *const *linear = k->nvariant ? k->variant[0].linear : k->linear;
    int n = k->nvariant ? k->variant[0].nlinear : k->nlinear;
    int parts = count_parts(m, s, k);
    bool ok = true;
    struct race race = {0};
    for (int i = 0; i < k->nbuffer; i++)
        if (k->buffer[i]->kind != BUFFER_WEIGHT)
            run_value_of(m, k->buffer[i]);
    for (int i = 0; i < k->nscratch; i++)
        if (!k->block ||
            k->scratch[i]->scratch.space != SPACE_SHARED) /* a block's local memory is its own */
            run_value_of(m, k->scratch[i]);
    struct touched **touch = k->ngrid || k->block ? touched_of(m) : NULL;
    counters_are_0(m, k, true);
    for (int part = parts - 1; part >= 0 && ok; part--) {
        for (int i = 0; i < k->nscratch; i++)
            if ((!k->block || k->scratch[i]->scratch.space != SPACE_SHARED) &&
                (k->scratch[i]->scratch.space != SPACE_GLOBAL ||
                 (part == parts - 1 && !k->scratch[i]->scratch.counts)))
                spoil(run_value_of(m, k->scratch[i]));
        struct eval_env env = {.leaf = m->leaf,
                               .value = m->value,
                               .n = m->n,
                               .var = m->var,
                               .nvar = m->nvar,
                               .budget = 1 << 28};
        env.parts = parts > 1 ? parts : 0;
        env.part = parts > 1 ? part : 0;
        env.block = k->block;
        env.race = touch ? &race : NULL;
        env.touch = touch;
        ok = eval_linear(m->t, linear, n, &env);
    }
    if (race.buffer)
        fprintf(stderr,
                "kernel %s: parts %d and %d, threads %d and %d meet at element %lld of buffer %d\n",
                k->name, race.part[0], race.part[1], race.thread[0], race.thread[1],
                (long long)race.element, race.buffer->id);
    return ok && !race.buffer && counters_are_0(m, k, false);
}

static int64_t scalar_of(struct memory_of_run *m, struct uop *u)
{
    int64_t v = 0;
    if (u->op == OP_LOAD)
        return ((int64_t *)run_value_of(m, (struct buffer *)(uintptr_t)u->src[0]->arg.p)->data)[0];
    sym_eval(u, m->var, m->nvar, &v);
    return v;
}

int region_end(const struct schedule *s, int i)
{
    for (int depth = 0;; i++) {
        enum step_kind k = s->step[i].kind;
        if (depth == 0 && (k == STEP_ELSE || k == STEP_ENDIF || k == STEP_ENDLOOP))
            return i;
        depth += (k == STEP_IF || k == STEP_LOOP) - (k == STEP_ENDIF || k == STEP_ENDLOOP);
    }
}

bool run_steps(struct memory_of_run *m, const struct schedule *s)
{
    struct {
        int at;
        int64_t trip;
    } loop[8];
    int nloop = 0;
    for (int i = 0; i < s->nkernel; i++)
        kernel_own_programs(m->t, s->kernel[i]);
    for (int i = 0; i < s->nstep; i++) {
        const struct step *step = &s->step[i];
        bool leave = step->kind == STEP_BREAK_UNLESS && !scalar_of(m, step->cond);
        if (step->kind == STEP_HOST || (step->kind == STEP_LOOP && nloop == 8) ||
            (step->kind == STEP_KERNEL && !run_kernel(m, s, step->kernel)))
            return false;
        if (step->kind == STEP_LOOP) {
            m->var[step->counter->id] = 0;
            loop[nloop].at = i;
            loop[nloop++].trip = scalar_of(m, step->trip);
            leave = loop[nloop - 1].trip <= 0;
        }
        if (step->kind == STEP_ENDLOOP) {
            const struct step *start = &s->step[loop[nloop - 1].at];
            if (++m->var[start->counter->id] < loop[nloop - 1].trip)
                i = loop[nloop - 1].at;
            else
                nloop--;
        }
        if (leave)
            nloop--;
        if (leave || step->kind == STEP_ELSE ||
            (step->kind == STEP_IF && !scalar_of(m, step->cond)))
            i = region_end(s, i + 1);
    }
    return true;
}
