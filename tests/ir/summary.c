/* summary.c - see summary.h
 *
 *      error of conv "y": 0.71                how its roundings reach the outputs;
 *      "y" is a matter of input 0's rows      samples of a batch;
 *      rewritten by places, winograd          graph passes that changed the graph;
 *      graph: add 3, mul 2                    its ops after them;
 *      schedule: arena 192, ...               steps and places, by place/print_schedule.c;
 *      conv_0: 2.1 us, 12 bytes of L2, 300 of the stack
 *      avx2: lanes 0 axis=2 n=8 ...; 8.1, 7.9, 4
 *          load 3, load x8 12, store x8 3
 *
 * Figures are short enough that a rounding of the last digits changes nothing.
 */
#include "tests/ir/summary.h"

#include "passes/analysis/contraction.h"
#include "passes/analysis/error.h"
#include "passes/analysis/kernel_cost.h"
#include "passes/analysis/samples.h"
#include "passes/target/tune.h"

#include <string.h>

enum { MAX_SUMS = 64, MAX_LANES = 128, CANDIDATES = 4 };

/* How often each op of the list occurs, by its number of lanes. */
static void put_ops(struct text *out, struct uop *const *u, int n)
{
    int count[OP_COUNT][MAX_LANES + 1] = {{0}}, nput = 0;
    for (int i = 0; i < n; i++) {
        const int lanes = u[i]->ndim || u[i]->lanes < 1 ? 1 : u[i]->lanes;
        count[u[i]->op][lanes < MAX_LANES ? lanes : MAX_LANES]++;
    }
    for (int op = 0; op < OP_COUNT; op++)
        for (int lanes = 0; lanes <= MAX_LANES; lanes++) {
            if (!count[op][lanes])
                continue;
            text_printf(out, "%s%s", nput++ ? ", " : "", op_name((enum op)op));
            if (lanes > 1)
                text_printf(out, " x%d", lanes);
            text_printf(out, " %d", count[op][lanes]);
        }
    text_putc(out, '\n');
}

static struct uop **graph_order(struct tgc *t, const struct graph *g, int *n)
{
    struct uop **root = mem_array(t, (size_t)g->noutput + 1, sizeof *root);
    for (int i = 0; i < g->noutput; i++)
        root[i] = g->output[i].value;
    return uop_toposort(t, root, g->noutput, n);
}

static void put_errors(struct text *out, struct tgc *t, const struct graph *g)
{
    struct uop *sum[MAX_SUMS];
    double gain[MAX_SUMS];
    int n, nsum = 0;
    struct uop **u = graph_order(t, g, &n);
    for (int i = 0; i < n && nsum < MAX_SUMS; i++)
        if (summed_product(u[i]))
            sum[nsum++] = u[i];
    if (nsum == 0)
        return;
    text_puts(out,
              error_gains(t, g, sum, nsum, gain) ? "errors of sums:" : "errors are not known:");
    for (int i = 0; i < nsum; i++)
        text_printf(out, " %.4g", gain[i]);
    text_putc(out, '\n');
}

static void put_samples(struct text *out, struct tgc *t, const struct graph *g)
{
    struct samples *s = samples_find(t, g);
    for (int i = 0; s && i < g->noutput; i++) {
        struct uop *at[MAX_RANK], *row = NULL;
        axes_range(t, g->output[i].value, at);
        text_printf(out, "rows of \"%s\": ", g->output[i].name);
        if (!samples_row(s, g->output[i].value, at, &row))
            text_puts(out, "of several samples");
        else if (row)
            uop_print(out, row);
        else
            text_puts(out, "of none");
        text_putc(out, '\n');
    }
}

static void put_passes(struct text *out, const struct pass_record *record, bool graph)
{
    int nput = 0;
    for (int i = 0; i < pass_count(); i++)
        if (record[i].changes && (pass_at(i)->stage == STAGE_GRAPH) == graph)
            text_printf(out, "%s%s", nput++ ? ", " : "changed by ", pass_at(i)->name);
    if (nput)
        text_putc(out, '\n');
}

static void put_choices(struct text *out, struct tgc *t, const struct kernel *k, enum isa isa)
{
    const struct tuning *tuning = t->tuning;
    for (int i = 0; i < tuning->nchoice; i++) {
        const struct choice *c = &tuning->choice[i];
        bool layer = c->taken.kind == TUNE_WINOGRAD, tile = c->tile && c->tile->column_axis >= 0;
        if (c->kernel != k || (k && c->taken.isa != isa) ||
            (!layer && !tile && c->taken.kind != TUNE_THREADS))
            continue;
        if (layer && c->taken.apart)
            text_printf(out, "layer %s: taps apart;", c->title);
        else if (layer)
            text_printf(out, "layer %s: tiles of %d x %d%s;", c->title, c->taken.winograd[0],
                        c->taken.winograd[1], c->refused ? ", refused" : "");
        else if (c->taken.kind == TUNE_THREADS)
            text_printf(out, "    threads share loop %d\n", c->taken.opts.v[0].axis);
        else
            text_puts(out, "    by gain:");
        for (int j = 0; j < c->n && j < CANDIDATES && c->taken.kind != TUNE_THREADS; j++)
            if (!k || c->tile[j].column_axis >= 0)
                text_printf(out, " %.4g", k ? c->tile[j].gain : c->cost[j]);
        if (c->taken.kind != TUNE_THREADS)
            text_putc(out, '\n');
    }
}

static void put_program(struct text *out, struct tgc *t, const struct kernel *k, enum isa isa,
                        const struct opts *opts, struct uop *const *linear, int nlinear)
{
    bool *kept = stack_find_kept(t, isa, linear, nlinear);
    int nkept = 0;
    text_printf(out, "  %s:", isa_table[isa].text);
    for (int i = 0; i < opts->n; i++) {
        text_puts(out, i ? "; " : " ");
        opt_print(out, &opts->v[i]);
    }
    text_putc(out, '\n');
    put_choices(out, t, k, isa);
    for (int i = 0; kept && i < nlinear; i++)
        nkept += kept[i];
    if (nkept)
        text_printf(out, "    %d loops stay loops\n", nkept);
    text_puts(out, "    ");
    put_ops(out, linear, nlinear);
}

static void put_kernel(struct text *out, struct tgc *t, const struct schedule *s,
                       const struct kernel *k)
{
    struct kernel_cost cost = kernel_cost(t, s, k);
    struct kernel portable = *k;
    portable.nvariant = 0;
    text_printf(out, "%s: %s: %.4g us, %.4g computing, %.4g flop, %.4g bytes", k->name, k->title,
                cost.ns / 1000, cost.compute_ns / 1000, k->flop, k->nbytes);
    for (int l = LEVEL_L2; l < LEVEL_COUNT; l++)
        text_printf(out, ", %.4g", cost.nbytes[l]);
    text_printf(out, "; %zu bytes of stack, %zu portable; %.4g us by threads\n",
                kernel_stack_nbytes(t, k), kernel_stack_nbytes(t, &portable), k->shared_ns / 1000);
    for (int i = 0; i < k->nvariant; i++)
        put_program(out, t, k, k->variant[i].isa, &k->variant[i].opts, k->variant[i].linear,
                    k->variant[i].nlinear);
    put_program(out, t, k, isa_portable(), &k->opts, k->linear, k->nlinear);
}

static void put_states(struct text *out, const struct graph *g)
{
    if (g->nstate)
        text_printf(out, "states' hash %016llx\n", (unsigned long long)g->state_hash);
    for (int i = 0; i < g->nstate; i++) {
        const struct state *st = g->state[i];
        text_printf(out, "state \"%s\" from \"%s\": %zu bytes at %zu, %zu%s", st->name, st->from,
                    st->nbytes, st->place[0], st->place[1], st->is_updated ? ", updated" : "");
        if (st->length)
            text_printf(out, ", grows along axis %d in %d parts", st->axis, st->npart);
        text_putc(out, '\n');
    }
}

bool summary_print(struct text *out, struct tgc *t, struct graph *g,
                   const struct summary_options *o)
{
    const char *before = NULL, *behind = NULL;
    struct tuning tuning = {.width = CANDIDATES};
    struct passing p = {.graph = g, .isa = o->isa, .threads = o->threads,
                        .thread_gain_ns = machine_of(t)->wake_ns,
                        .facts = 1u << FACT_TENSORS};
    int n;
    for (int i = 0; i < pass_count(); i++)
        if (pass_at(i)->stage == STAGE_GRAPH)
            before = pass_at(i)->name;
        else
            behind = behind ? behind : pass_at(i)->name;
    p.record = mem_array(t, (size_t)pass_count(), sizeof *p.record);
    t->tuning = &tuning;
    put_errors(out, t, g);
    put_samples(out, t, g);
    if (!passes_run_rows(t, &p, pass_at(0)->name, before))
        return false;
    put_passes(out, p.record, true);
    put_choices(out, t, NULL, isa_portable());
    text_printf(out, "error %.4g, layers take %.0f bytes\n", error_estimate(t), g->layers_nbytes);
    struct uop **u = graph_order(t, g, &n);
    text_puts(out, "graph: ");
    put_ops(out, u, n);
    if (!passes_run_rows(t, &p, behind, pass_at(pass_count() - 1)->name))
        return false;
    put_passes(out, p.record, false);
    put_states(out, g);
    text_puts(out, "symbols:");
    for (int i = 0; i < p.schedule->nvar; i++)
        text_printf(out, " %s", p.schedule->var[i]->name);
    text_putc(out, '\n');
    schedule_print(out, t, p.schedule);
    for (int i = 0; i < p.schedule->nkernel; i++)
        put_kernel(out, t, p.schedule, p.schedule->kernel[i]);
    return true;
}
