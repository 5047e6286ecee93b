/* why.c - tgc info --why: the choices of a compile, what else there was, and what decided. */
#include "cli/cli.h"

#include "backends/program.h"

#include <string.h>

static void put_tile(struct text *x, const struct tile *v)
{
    static const char *const order[] = {"", ", panels outside", ", panels inside"};
    if (v->rows > 1)
        text_printf(x, "%lld rows (loop %d) x ", (long long)v->rows, v->row_axis);
    text_printf(x, "%lld columns (loop %d)", (long long)v->columns, v->column_axis);
    if (v->vector)
        text_printf(x, " in vectors of %d", v->vector);
    text_puts(x, order[v->panels]);
}

static void put_measured(struct text *x, const struct tuning *s, const struct tuned *e)
{
    text_printf(x, "; %s, line %d", s->file, e->line);
    if (e->us > 0)
        text_printf(x, ": measured %.4g us", e->us);
    if (e->model_us > 0)
        text_printf(x, ", %.4g us as the model chooses", e->model_us);
}

static void put_winograd(struct text *x, const struct tuning *s, const struct choice *c)
{
    text_printf(x, "    %s: ", c->title);
    if (c->side)
        text_printf(x, "Winograd, tiles of %d x %d", c->side, c->side);
    else
        text_puts(x, "sums of products");
    text_printf(x, "; estimated kilocycles: %.0f, with tiles of 2: %.0f, 4: %.0f, 6: %.0f",
                c->cost[0], c->cost[1], c->cost[2], c->cost[3]);
    if (c->by)
        put_measured(x, s, c->by);
    text_putc(x, '\n');
}

static void put_tiles(struct text *x, const struct tuning *s, const struct choice *c)
{
    double best = c->ncandidate ? c->candidate[0].gain : 0;
    text_printf(x, "    %s: ", isa_table[c->isa].text);
    put_tile(x, &c->tile);
    if (c->by)
        put_measured(x, s, c->by);
    else
        text_printf(x, "; estimated %.1f lanes a cycle", best);
    text_puts(x, ". Of the model's best it does ");
    text_printf(x, "%.0f %%\n", best > 0 ? 100 * c->tile.gain / best : 100);
    for (int i = 0, n = 0; i < c->ncandidate && n < 3; i++) {
        if (i == c->chosen)
            continue;
        text_printf(x, "        %.0f %%: ", 100 * c->candidate[i].gain / best);
        put_tile(x, &c->candidate[i]);
        text_putc(x, '\n');
        n++;
    }
}

/* What threads share, and what became of kernels that there was nothing to choose for. */
static void put_opts(struct text *x, const struct kernel *k)
{
    for (int i = 0; i < k->nopt; i++)
        if (k->opt[i].op == OPT_THREAD)
            text_printf(x, "    loop %d shared by %lld threads\n", k->opt[i].axis,
                        (long long)k->opt[i].amount);
}

void why_write(struct text *out, struct tgc *t, const struct schedule *s)
{
    const struct tuning *tuning = t->tuning;
    const struct origin *before = NULL;
    for (int i = 0; i < tuning->nchoice; i++) {
        const struct choice *c = &tuning->choice[i];
        if (c->kind != TUNE_WINOGRAD)
            continue;
        if (!before || c->origin != before)
            text_printf(out, "%s %s\n", c->origin ? c->origin->op_type : "layer",
                        c->origin ? c->origin->node : "");
        before = c->origin;
        put_winograd(out, tuning, c);
    }
    for (int k = 0; k < s->nkernel; k++) {
        bool any = false;
        text_printf(out, "%s: %s\n", s->kernel[k]->name, s->kernel[k]->title);
        for (int i = 0; i < tuning->nchoice; i++) {
            const struct choice *c = &tuning->choice[i];
            if (c->kind != TUNE_TILE || c->kernel != s->kernel[k])
                continue;
            any = true;
            put_tiles(out, tuning, c);
        }
        if (!any)
            text_puts(out, "    no tile suits: vectors along its innermost loops, where they fit\n");
        put_opts(out, s->kernel[k]);
    }
}
