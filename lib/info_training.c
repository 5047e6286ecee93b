/* info_training.c - what a step of a training keeps of its forward pass for the gradients, and what
 * --train-memory has it compute again.
 *
 * A kernel is of the forward pass if the loss depends on it. What it stores is kept if another
 * kernel of the same run reads it, too. Values that a kernel of the gradients computes again from
 * what is kept, element by element, are no tensors, and are not counted.
 */
#include "backends/program/program.h"
#include "lib/lib.h"
#include "passes/analysis/kernel_cost.h"

/* The run of one entry. */
struct run {
    const struct schedule *s;
    const bool *takes;           /* by step: the run makes it */
    bool *is_forward;            /* by step */
    bool *is_needed;             /* by a buffer's id: the loss depends on it */
    const struct kernel **by;    /* by a buffer's id: the forward kernel that stores it */
};

/* Buffer k of a step, a part as the whole; *stored: the step writes it. NULL: there are no more. */
static const struct buffer *access_of(const struct step *step, int k, bool *stored)
{
    const struct kernel *kernel = step->kernel;
    int n = kernel ? kernel->nbuffer : step->narg;
    *stored = kernel ? k < kernel->noutput : step->host && k >= step->narg - step->host->nout;
    return k >= n ? NULL : buffer_root(kernel ? kernel->buffer[k] : step->arg[k]);
}

static bool stores_needed(const struct run *r, const struct step *step)
{
    const struct buffer *b;
    bool stored;
    for (int k = 0; (b = access_of(step, k, &stored)) != NULL; k++)
        if (stored && r->is_needed[b->id])
            return true;
    return false;
}

static void need_reads(struct run *r, const struct step *step)
{
    const struct buffer *b;
    bool stored;
    for (int k = 0; (b = access_of(step, k, &stored)) != NULL; k++) {
        r->is_needed[b->id] |= !stored;
        if (stored && step->kernel)
            r->by[b->id] = step->kernel;
    }
}

/* Again until nothing changes: iterations of a loop read what later steps have stored. */
static void find_forward(struct run *r, const struct buffer *loss)
{
    bool changes = true;
    r->is_needed[buffer_root(loss)->id] = true;
    while (changes) {
        changes = false;
        for (int i = r->s->nstep - 1; i >= 0; i--) {
            if (!r->takes[i] || r->is_forward[i] || !stores_needed(r, &r->s->step[i]))
                continue;
            r->is_forward[i] = changes = true;
            need_reads(r, &r->s->step[i]);
        }
    }
}

static struct run run_of(struct tgc *t, const struct schedule *s, const struct train_entry *e)
{
    size_t nbuffer = (size_t)t->next_buffer + 1;
    struct run r = {.s = s,
                    .takes = steps_of_entry(t, s, e->number),
                    .is_forward = scratch_array(t, (size_t)s->nstep + 1, sizeof(bool)),
                    .is_needed = scratch_array(t, nbuffer, sizeof(bool)),
                    .by = scratch_array(t, nbuffer, sizeof(struct kernel *))};
    find_forward(&r, s->output[e->loss]);
    return r;
}

static const char *shape_text(struct tgc *t, struct uop *const *dim, int ndim, bool json)
{
    struct text x = {.t = t};
    text_putc(&x, '[');
    for (int a = 0; a < ndim; a++) {
        bool is_symbol = json && dim[a]->op != OP_CONST;
        text_puts(&x, a ? "," : "");
        text_puts(&x, is_symbol ? "\"" : "");
        uop_print(&x, dim[a]);
        text_puts(&x, is_symbol ? "\"" : "");
    }
    text_putc(&x, ']');
    return x.s;
}

static void put_kept_tensor(struct text *x, bool json, const struct buffer *b,
                            const struct kernel *by)
{
    const char *shape = shape_text(x->t, b->dim, b->ndim, json);
    if (!json) {
        text_printf(x, "    %s%s, %zu bytes: %s%s%s\n", dtype_name(b->dtype), shape, b->nbytes,
                    by->name, by->title && *by->title ? ", " : "", by->title ? by->title : "");
        return;
    }
    text_printf(x, "%s{\"kernel\":\"%s\",\"title\":", x->n ? "," : "", by->name);
    text_json(x, by->title ? by->title : "");
    text_printf(x, ",\"dtype\":\"%s\",\"shape\":%s,\"bytes\":%zu}", dtype_name(b->dtype), shape,
                b->nbytes);
}

/* Returns their number. */
static int put_kept(struct text *x, bool json, const struct run *r, size_t *nbytes)
{
    bool *told = scratch_array(x->t, (size_t)x->t->next_buffer + 1, sizeof *told), stored;
    const struct buffer *b;
    int n = 0;
    for (int i = 0; i < r->s->nstep; i++)
        for (int k = 0; (b = access_of(&r->s->step[i], k, &stored)) != NULL; k++) {
            bool is_own = b->kind == BUFFER_TEMP || b->kind == BUFFER_STATE;
            if (!r->takes[i] || r->is_forward[i] || stored || !is_own || told[b->id] ||
                !r->by[b->id])
                continue;
            told[b->id] = true;
            *nbytes += b->nbytes;
            n++;
            put_kept_tensor(x, json, b, r->by[b->id]);
        }
    return n;
}

static void put_again(struct text *x, bool json, const struct compute_again *again)
{
    for (int i = 0; i < again->nvalue; i++) {
        const struct uop *u = again->value[i].u;
        const struct origin *o = uop_get_origin(x->t, u);
        const char *shape = shape_text(x->t, u->dim, u->ndim, json);
        if (!json) {
            text_printf(x, "    %s%s, %.0f bytes", dtype_name(u->dtype), shape,
                        again->value[i].nbytes);
            text_printf(x, o ? ": node '%.100s' (%.50s)\n" : "\n", o ? o->node : "",
                        o ? o->op_type : "");
            continue;
        }
        text_printf(x, "%s{\"node\":", i ? "," : "");
        text_json(x, o ? o->node : "");
        text_puts(x, ",\"operator\":");
        text_json(x, o ? o->op_type : "");
        text_printf(x, ",\"dtype\":\"%s\",\"shape\":%s,\"bytes\":%.0f}", dtype_name(u->dtype),
                    shape, again->value[i].nbytes);
    }
}

static void put_lines(struct text *x, const struct training_fit *fit, int nkept, size_t kept,
                      const struct text *tensors, const struct text *values)
{
    const struct compute_again *again = &fit->again;
    text_printf(x, "a step: %zu bytes beside parameters and states", fit->nbytes);
    if (again->nvalue)
        text_printf(x, ", %zu where nothing is computed again", fit->whole);
    text_printf(x, "\nkept for the gradients: %d tensors, %zu bytes\n%s", nkept, kept,
                tensors->s ? tensors->s : "");
    if (again->nvalue)
        text_printf(x, "computed again: %d values, %.0f bytes, %.0f %% of the forward pass's "
                       "operations\n%s",
                    again->nvalue, again->nbytes, 100 * again->flop / again->all, values->s);
}

void info_training_write(struct text *x, struct tgc *t, const struct model *m, bool json)
{
    const struct graph_training *train = m->graph->training;
    const struct compute_again *again = &m->fit.again;
    struct mem_mark mark = scratch_mark(t);
    struct text tensors = {.t = t}, values = {.t = t};
    struct run r = run_of(t, m->schedule, &train->train);
    size_t kept = 0;
    int nkept = put_kept(&tensors, json, &r, &kept);
    put_again(&values, json, again);
    scratch_release(t, mark);
    if (!json) {
        put_lines(x, &m->fit, nkept, kept, &tensors, &values);
        return;
    }
    text_printf(x, "{\"entry\":%d,\"loss\":", train->train.number);
    text_json(x, train->loss);
    text_puts(x, ",\"optimizer\":");
    text_json(x, train->optimizer);
    text_printf(x, ",\"step_bytes\":%zu,\"step_bytes_kept\":%zu,\"kept_bytes\":%zu,\"kept\":[%s]",
                m->fit.nbytes, m->fit.whole, kept, tensors.s ? tensors.s : "");
    text_printf(x, ",\"again_bytes\":%.0f,\"again_share\":%.4g,\"again\":[%s]}", again->nbytes,
                again->all > 0 ? again->flop / again->all : 0, values.s ? values.s : "");
}
