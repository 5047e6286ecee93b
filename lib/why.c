/* why.c - tgc info --why: the choices of a compile, their alternatives, and the reasons. */
#include "lib/lib.h"

#include "backends/program/program.h"
#include "passes/analysis/kernel_cost.h"

#include <math.h>
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
    const int *side = c->taken.winograd;
    if (c->taken.apart)
        text_puts(x, "one product for each tap");
    else if (side[0] == side[1] && side[0] > 0)
        text_printf(x, "Winograd, tiles of %d", side[0]);
    else if (side[0] || side[1])
        text_printf(x, "Winograd, tiles of %d x %d", side[0] ? side[0] : 1, side[1] ? side[1] : 1);
    else
        text_puts(x, "sums of products");
    text_puts(x, "; estimated us:");
    for (int i = 0; i < c->n; i++) {
        const int *of = c->candidate[i].winograd;
        if (c->candidate[i].apart)
            text_puts(x, ", apart");
        else
            text_printf(x, "%s %d", i ? "," : "", of[0]);
        if (of[1] != of[0])
            text_printf(x, "x%d", of[1]);
        text_printf(x, ": %.3g", c->cost[i] / 1000);
    }
    if (c->by)
        put_measured(x, s, c->by);
    if (c->refused)
        text_puts(x, ", but --error leaves no room for that");
    text_printf(x, c->share < 0.1 ? "; %.1f %% of the error\n" : "; %.0f %% of the error\n",
                100 * c->share);
}

/* A list is told by its tile, as far as the cost model knows that. */
static void put_tiles(struct text *x, const struct tuning *s, const struct choice *c)
{
    enum { OTHERS = 3 };
    int own = 0, n = 0;
    while (own < c->n && !tuned_are_equal(&c->candidate[own], &c->taken))
        own++;
    const struct tile *tile = c->tile && own < c->n ? &c->tile[own] : NULL;
    text_printf(x, "    %s: ", isa_table[c->taken.isa].text);
    if (tile && tile->column_axis >= 0) {
        put_tile(x, tile);
        if (tile->vector)
            text_printf(x, "; estimated %.1f lanes a cycle",
                        tile->gain * machine_of(x->t)->ns_cycle);
        else
            text_printf(x, "; estimated %.1f multiply-adds a load", tile->gain);
    } else {
        text_puts(x, c->by ? "the opts below" : "no tile of its own");
    }
    if (c->by)
        put_measured(x, s, c->by);
    text_putc(x, '\n');
    for (int i = 0; i < c->n && n < OTHERS && c->tile; i++) {
        if (i == own || c->tile[i].column_axis < 0 ||
            (own < c->n && tiles_are_equal(&c->tile[i], &c->tile[own])))
            continue;
        text_printf(x, "        %.0f %% of the best: ", 100 * c->tile[i].gain / c->tile[0].gain);
        put_tile(x, &c->tile[i]);
        text_putc(x, '\n');
        n++;
    }
}

static void put_opt_list(struct text *x, const struct opts *opts)
{
    for (int i = 0; i < opts->n; i++) {
        text_puts(x, i ? "; " : " ");
        opt_print(x, &opts->v[i]);
    }
    text_puts(x, opts->n ? "\n" : " no opts\n");
}

/* A choice for all instruction sets: its list. */
static void put_list(struct text *x, const struct tuning *s, const struct choice *c)
{
    text_printf(x, "    %s", tune_kind_name(c->taken.kind));
    if (c->by)
        put_measured(x, s, c->by);
    text_putc(x, ':');
    put_opt_list(x, &c->taken.opts);
}

static void put_threads(struct text *x, const struct tuning *s, const struct choice *c)
{
    text_printf(x, "    %s: threads share loop %d", isa_table[c->taken.isa].text,
                c->taken.opts.v[0].axis);
    if (c->by)
        put_measured(x, s, c->by);
    for (int i = 0, n = 0; i < c->n; i++)
        if (!tuned_are_equal(&c->candidate[i], &c->taken))
            text_printf(x, "%s%d", n++ ? ", " : "; they could share ",
                        c->candidate[i].opts.v[0].axis);
    text_putc(x, '\n');
}

/* What was done to the kernel's loops for one instruction set, from its lowered AST on. */
static void put_opts(struct text *x, enum isa isa, const struct opts *opts)
{
    text_printf(x, "    %s:", isa_table[isa].text);
    put_opt_list(x, opts);
}

/* "grid: 12 x 4 blocks of 128 threads, 3.2 KB of local memory; 1.2 MB asked for, 0.9 MB in all;
 * limited by memory" */
static void put_grid(struct text *x, const struct kernel *k)
{
    const struct device_use use = device_use(x->t, k);
    text_puts(x, "    grid:");
    for (int d = 0; d < k->ngrid; d++) {
        text_puts(x, d ? " x " : " ");
        uop_print(x, k->grid[d]);
    }
    text_puts(x, k->ngrid ? "" : k->is_shared ? " parts of one loop" : " one place");
    if (k->block)
        text_printf(x, ", blocks of %d threads", k->block);
    if (kernel_threads(k) > k->block)
        text_printf(x, " and %d that copy", kernel_threads(k) - k->block);
    if (k->block)
        text_printf(x, ", %.4g KB of local memory", use.local_nbytes / 1024);
    text_printf(x, "; threads ask for %.4g KB, blocks for %.4g KB, of %.4g KB; limited by %s\n",
                use.asked / 1024, use.cached / 1024, k->nbytes / 1024, cost_limit_name(use.limit));
}

static void put_kernel(struct text *x, const struct schedule *program, const struct tuning *s,
                       const struct kernel *k)
{
    bool any = false;
    text_printf(x, "%s: %s; predicted %.4g us\n", k->name, k->title,
                kernel_cost(x->t, program, k).ns / 1000);
    for (int i = 0; i < s->nchoice; i++) {
        const struct choice *c = &s->choice[i];
        if (c->kernel != k)
            continue;
        bool tile = c->taken.kind == TUNE_TILE && (c->by || (c->tile && c->tile->column_axis >= 0));
        any |= tile;
        switch (c->taken.kind) {
        case TUNE_TILE:
            if (tile)
                put_tiles(x, s, c);
            break;
        case TUNE_THREADS: put_threads(x, s, c); break;
        case TUNE_GRID:              /* put_grid() has what was done */
            if (c->by)
                put_list(x, s, c);
            break;
        default: put_list(x, s, c); break;
        }
    }
    if (device_has_grid(x->t)) {
        put_grid(x, k);
        why_compared(x, program, k);
    } else if (!any)
        text_puts(x, "    no tile suits: vectors along its innermost loops, where they fit\n");
    for (int i = 0; i < k->nvariant; i++)
        put_opts(x, k->variant[i].isa, &k->variant[i].opts);
    put_opts(x, isa_portable(), &k->opts);
}

static bool has_kind(const struct tuning *s, enum tune_kind kind)
{
    for (int i = 0; i < s->nchoice; i++)
        if (s->choice[i].taken.kind == kind)
            return true;
    return false;
}

static void put_words(struct text *x, const char *title, const char *const (*row)[2], size_t n)
{
    text_printf(x, "%s\n", title);
    for (size_t i = 0; i < n; i++)
        text_printf(x, "    %-22s  %s\n", row[i][0], row[i][1]);
}

/* What the words mean that were used. The guide (debugging.md) says more of each. */
static void put_legend(struct text *x, const struct tuning *s)
{
    static const char *const layers[][2] = {
        {"Winograd, tiles of 4", "4 outputs along each axis of the windows by fewer products"},
        {"tiles of 4 x 1", "the same along the first axis alone"},
        {"one product for each tap", "of a window that reads mostly its border; 'apart' below"},
        {"sums of products", "as the model says it"},
        {"us: 0: A, 4: B", "the time by size of tile, in microseconds; 0: without tiles"},
        {"E % of the error", "of what all tiles together add, see the line 'error'"},
    };
    static const char *const kernels[][2] = {
        {"predicted N us", "what the cost model expects of the kernel as it was compiled"},
        {"avx512, ..., generic", "the variant for that instruction set; generic: portable C"},
        {"4 rows x 32 columns", "so many neighbouring results at once, kept in registers"},
        {"(loop N)", "that lie along this loop over the results; 0 is the outermost"},
        {"in vectors of 16", "elements of a vector; if it is not said, the C compiler chooses"},
        {"panels outside, inside", "the loop over columns stands around that over rows, or in it"},
        {"lanes a cycle", "estimated steps of results in a cycle: more is faster"},
        {"multiply-adds a load", "the same measure for portable C"},
        {"P % of the best", "another tile, by the same estimate"},
        {"no tile suits", "one vector, or one element, after the other"},
    };
    static const char *const threads[][2] = {
        {"threads share loop N", "each thread takes a part of it"},
    };
    static const char *const grid[][2] = {
        {"grid: A x B", "places along the innermost loops, then those around them"},
        {"blocks of N threads", "each place is a block that shares local memory"},
        {"threads ask for N KB", "what all threads load and store"},
        {"blocks for N KB, of M KB",
         "what the blocks need of the cache, and the size of the kernel's tensors"},
        {"limited by", "what takes longest: see guide/devices.md"},
    };
    static const char *const tuned[][2] = {
        {"FILE, line N", "that line of the tune file says so; times are measured ones"},
    };
    if (has_kind(s, TUNE_WINOGRAD))
        put_words(x, "legend: convolutions", layers, sizeof layers / sizeof *layers);
    put_words(x, "legend: kernels", kernels, sizeof kernels / sizeof *kernels);
    if (device_has_grid(x->t))
        put_words(x, "legend: devices", grid, sizeof grid / sizeof *grid);
    why_compared_legend(x);
    if (has_kind(s, TUNE_THREADS))
        put_words(x, "legend: threads", threads, sizeof threads / sizeof *threads);
    if (s->file)
        put_words(x, "legend: tuned", tuned, sizeof tuned / sizeof *tuned);
}

void why_write(struct text *out, struct tgc *t, const struct schedule *s)
{
    const struct tuning *tuning = t->tuning;
    const struct origin *before = NULL;
    for (int i = 0; i < tuning->nchoice; i++) {
        const struct choice *c = &tuning->choice[i];
        if (c->taken.kind != TUNE_WINOGRAD)
            continue;
        if (!before || c->origin != before)
            text_printf(out, "%s %s\n", c->origin ? c->origin->op_type : "layer",
                        c->origin ? c->origin->node : "");
        before = c->origin;
        put_winograd(out, tuning, c);
    }
    for (int k = 0; k < s->nkernel; k++)
        put_kernel(out, s, tuning, s->kernel[k]);
    put_legend(out, tuning);
}

static void put_json_line(struct text *out, struct tgc *t, const struct tuned *e)
{
    struct text line = {.t = t};
    tune_write(&line, e);
    text_json(out, line.s);
}

/* ,"tiles":[...]: each candidate's tile in words, and its rate as a share of the best one's */
static void put_tiles_json(struct text *out, const struct choice *c)
{
    text_puts(out, ",\"tiles\":[");
    for (int i = 0; i < c->n; i++) {
        struct text x = {.t = out->t};
        if (c->tile[i].column_axis >= 0)
            put_tile(&x, &c->tile[i]);
        text_printf(out, "%s{\"taken\":%s,\"share\":%.3g,\"text\":", i ? "," : "",
                    tuned_are_equal(&c->candidate[i], &c->taken) ? "true" : "false",
                    c->tile[0].gain > 0 ? c->tile[i].gain / c->tile[0].gain : 0);
        text_json(out, x.n ? x.s : "no tile");
        text_putc(out, '}');
    }
    text_putc(out, ']');
}

/* ,"us":[...]: each candidate's time by the cost model; null: it cannot be */
static void put_costs_json(struct text *out, const struct choice *c)
{
    text_puts(out, ",\"us\":[");
    for (int i = 0; i < c->n && i < TUNE_SIDES_MAX; i++)
        text_printf(out, isfinite(c->cost[i]) ? "%s%.4g" : "%snull", i ? "," : "",
                    c->cost[i] / 1000);
    text_puts(out, "]");
}

/* A tile of a variant that the machine would not run. */
static bool is_of_another(struct tgc *t, const struct choice *c)
{
    if (c->taken.kind != TUNE_TILE || !c->kernel || c->taken.isa == isa_portable())
        return false;
    const struct variant *v = kernel_cost_variant(machine_of(t), c->kernel);
    return !v || v->isa != c->taken.isa;
}

void why_write_json(struct text *out, struct tgc *t, bool in_words)
{
    const struct tuning *tuning = t->tuning;
    for (int i = 0; i < tuning->nchoice; i++) {
        const struct choice *c = &tuning->choice[i];
        bool has_tiles = c->taken.kind == TUNE_TILE && c->tile;
        if (in_words && is_of_another(t, c))
            continue;
        text_puts(out, out->n ? ",{\"kernel\":" : "{\"kernel\":");
        if (c->kernel)
            text_json(out, c->kernel->name);
        else
            text_puts(out, "null");
        text_puts(out, ",\"node\":");
        if (c->origin)
            text_json(out, c->origin->node);
        else
            text_puts(out, "null");
        text_printf(out, ",\"line\":%d,", c->by ? c->by->line : 0);
        if (c->taken.kind == TUNE_WINOGRAD)
            text_printf(out, "\"error_share\":%.3g,", c->share);
        text_puts(out, "\"taken\":");
        put_json_line(out, t, &c->taken);
        text_puts(out, ",\"candidates\":[");
        for (int k = 0; k < c->n && !(in_words && has_tiles); k++) {
            text_puts(out, k ? "," : "");
            put_json_line(out, t, &c->candidate[k]);
        }
        text_puts(out, "]");
        if (has_tiles)
            put_tiles_json(out, c);
        if (c->taken.kind == TUNE_WINOGRAD)
            put_costs_json(out, c);
        text_putc(out, '}');
    }
}

static void put_opts_json(struct text *out, const struct kernel *k, enum isa isa,
                          const struct opts *opts)
{
    if (out->n)
        text_putc(out, ',');
    text_puts(out, "{\"kernel\":");
    text_json(out, k->name);
    text_printf(out, ",\"isa\":\"%s\",\"opts\":[", isa_table[isa].text);
    for (int i = 0; i < opts->n; i++) {
        text_puts(out, i ? ",\"" : "\"");
        opt_print(out, &opts->v[i]);
        text_putc(out, '"');
    }
    text_puts(out, "]}");
}

void why_opts_json(struct text *out, const struct kernel *k, const struct variant *only)
{
    for (int j = 0; j < k->nvariant; j++)
        if (!only || only == &k->variant[j])
            put_opts_json(out, k, k->variant[j].isa, &k->variant[j].opts);
    put_opts_json(out, k, isa_portable(), &k->opts);
}
