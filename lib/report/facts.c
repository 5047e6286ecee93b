/* facts.c - a compile as one JSON document. What other commands print as JSON is taken from them:
 * tensors, kernels, buffers and steps (backends/dump.c), choices (why.c), weights (info_weights.c),
 * passes (info.c), a measurement (tgc bench). Added here: the machine, the model's nodes, sources.
 */
#include "lib/report/report.h"

#include "backends/program/program.h"
#include "passes/analysis/error.h"
#include "passes/analysis/kernel_cost.h"

#include <string.h>

void report_prepare(struct options *o) { o->why = o->passes = o->records = true; }

/* ,"machine":{...}: the row by which times are estimated */
static void put_machine(struct text *out, struct tgc *t)
{
    static const char *const level[] = {"L1", "L2", "L3", "memory"};
    const struct machine *m = machine_of(t);
    const struct device_row *d = device_has_grid(t) ? t->device : NULL;
    text_puts(out, ",\n\"machine\":{\"name\":");
    text_json(out, d ? d->text : m->text);
    text_puts(out, ",\"title\":");
    text_json(out, d ? d->title : m->title);
    text_printf(out, ",\"gflops\":%.4g,\"gbytes_per_second\":%.4g",
                d ? d->gflops : 2 * m->fma_cycle * m->flop_lanes / m->ns_cycle,
                d ? d->gbytes : m->level[LEVEL_MEMORY].bytes_cycle / m->ns_cycle);
    if (!d) {
        text_puts(out, ",\"levels\":[");
        for (int i = 0; i < LEVEL_COUNT; i++)
            text_printf(out, "%s{\"name\":\"%s\",\"bytes\":%.0f,\"gbytes_per_second\":%.4g}",
                        i ? "," : "", level[i], m->level[i].nbytes,
                        m->level[i].bytes_cycle / m->ns_cycle);
        text_putc(out, ']');
    }
    text_putc(out, '}');
}

/* Of a line of options.key: what the output's name can say as well, which makes no difference. */
static bool is_said_by_output(const char *s)
{
    static const char *const words[] = {"--name ", "--emit "};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(s, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

/* ,"options":["--threads 2"]: those given that decide what is made */
static void put_options(struct text *out, const struct options *o)
{
    int n = 0;
    text_puts(out, ",\n\"options\":[");
    for (const char *s = o->key, *end; o->key && s < o->key + o->nkey; s = end + 1) {
        end = s + strcspn(s, "\n");
        const char *last = end > s && end[-1] == ' ' ? end - 1 : end;
        if (is_said_by_output(s))
            continue;
        text_puts(out, n++ ? "," : "");
        text_json(out, mem_printf(out->t, "%.*s", (int)(last - s), s));
    }
    text_putc(out, ']');
}

/* ,"kernel_nodes":[[3,4],...]: by kernel the nodes that it computes, its main one first */
static void put_kernel_nodes(struct text *out, const struct schedule *s, const int *number)
{
    text_puts(out, ",\n\"kernel_nodes\":[");
    for (int i = 0; i < s->nkernel; i++) {
        const struct kernel *k = s->kernel[i];
        text_puts(out, i ? ",[" : "[");
        for (int j = 0, n = 0; j < k->nnode; j++)
            if (number[k->node[j]->id] >= 0)
                text_printf(out, "%s%d", n++ ? "," : "", number[k->node[j]->id]);
        text_putc(out, ']');
    }
    text_putc(out, ']');
}

/* ,"entries":[{"name":"train","kernels":[0,1]}],"training":{...}: of a program of several runs
 * the kernels of each, in their order; of one that trains what it minimizes, and which run does. */
static void put_entries(struct text *out, struct tgc *t, const struct model *m)
{
    const struct schedule *s = m->schedule;
    const struct graph *g = s->graph;
    text_puts(out, ",\n\"entries\":[");
    for (int e = 0; e < g->nentry; e++) {
        struct mem_mark mark = scratch_mark(t);
        const bool *takes = steps_of_entry(t, s, e);
        text_puts(out, e ? ",\n{\"name\":" : "{\"name\":");
        text_json(out, g->entry[e].name);
        text_puts(out, ",\"kernels\":[");
        for (int i = 0, n = 0; i < s->nstep; i++)
            if (takes[i] && s->step[i].kernel)
                text_printf(out, "%s%d", n++ ? "," : "", s->step[i].kernel->index);
        text_puts(out, "]}");
        scratch_release(t, mark);
    }
    text_putc(out, ']');
    if (!g->training)
        return;
    text_puts(out, ",\n\"training\":");
    info_training_write(out, t, m, true);
}

/* ,"opts":{"merge":"..."}: what each kind of opt does */
static void put_opts(struct text *out)
{
    text_puts(out, ",\n\"opts\":{");
    for (int i = 0; i < OPT_COUNT; i++) {
        text_printf(out, "%s\"%s\":", i ? "," : "", opt_name((enum opt_op)i));
        text_json(out, opt_does((enum opt_op)i));
    }
    text_putc(out, '}');
}

/* The program's function of each kernel: what is portable, and what the machine would run. */
static bool is_shown(struct tgc *t, const struct program_source *f)
{
    const struct variant *v = kernel_cost_variant(machine_of(t), f->kernel);
    return f->isa == isa_portable() || (v && v->isa == f->isa) || device_has_grid(t);
}

static void put_list(struct text *out, const char *key, const struct text *elements)
{
    text_printf(out, ",\n\"%s\":[%s]", key, elements->s ? elements->s : "");
}

/* ,"schedules":[...]: what was done to the loops of what is shown */
static void put_schedules(struct text *out, struct tgc *t, const struct schedule *s)
{
    struct text opts = {.t = t};
    for (int i = 0; i < s->nkernel; i++)
        why_opts_json(&opts, s->kernel[i], kernel_cost_variant(machine_of(t), s->kernel[i]));
    put_list(out, "schedules", &opts);
}

/* ,"sources":[{"kernel":"conv_3","isa":"generic","text":"..."}]; where kernels were timed, the
 * assembly as well. A kernel that calls another one's function has none. The target llvm has no
 * text: C is shown. */
static bool put_sources(struct text *out, struct tgc *t, const struct options *o,
                        const struct model *m, const char *name, bool timed)
{
    struct program_sources sources = {0};
    struct text c = {.t = t}, h = {.t = t};
    bool beside;
    int n = 0;
    struct program_options po = model_program_options(o, m, name);
    po.backend = o->target == TARGET_LLVM ? backend_find("c") : po.backend;
    po.sources = &sources;
    po.no_main = po.only_kernels = true;
    po.weights = WEIGHTS_FILE;
    if (!program_write_c(t, m->schedule, &po, &c, &h, &beside))
        return false;
    struct program_source *shown = mem_array(t, sources.n + 1, sizeof *shown);
    text_puts(out, ",\n\"sources\":[");
    for (size_t i = 0; i < sources.n; i++) {
        const struct program_source *f = &sources.v[i];
        if (!is_shown(t, f))
            continue;
        text_puts(out, n ? ",\n{\"kernel\":" : "{\"kernel\":");
        text_json(out, f->kernel->name);
        text_printf(out, ",\"isa\":\"%s\",\"text\":", isa_table[f->isa].text);
        text_json(out, f->text);
        text_putc(out, '}');
        shown[n++] = *f;
    }
    text_putc(out, ']');
    bool assembles = timed && !backend_is_of_device(po.backend) && report_can_disassemble(t);
    return !assembles || report_assembly(out, t, name, &c, &h, shown, n);
}

/* ,"changes":[...],"rules":[...]: what passes changed, and which rules fired how often in which */
static void put_log(struct text *out, const struct pass_log *log)
{
    text_puts(out, ",\n\"changes\":[");
    for (size_t i = 0; i < log->n; i++) {
        const struct pass_change *c = &log->change[i];
        text_printf(out, "%s{\"pass\":%d,\"subject\":", i ? ",\n" : "", c->pass);
        text_json(out, c->subject);
        text_printf(out, ",\"whole\":%s,\"lines\":", c->whole ? "true" : "false");
        text_json(out, c->lines);
        text_putc(out, '}');
    }
    text_printf(out, "],\"changes_left_out\":%d,\n\"rules\":[", log->left_out);
    bool any = false;
    for (int pass = 0; pass <= pass_count(); pass++)
        for (int i = 0; i < rule_count(); i++) {
            unsigned n = log->fired[(size_t)pass * (size_t)rule_count() + (size_t)i];
            const struct rule_row *r = rule_row_at(i);
            if (!n)
                continue;
            text_printf(out, "%s{\"pass\":%d,\"name\":\"%s\",\"at\":\"%s:%d\",\"n\":%u}",
                        any ? "," : "", pass, r->name, r->file, r->line, n);
            any = true;
        }
    text_putc(out, ']');
}

bool report_facts(struct text *out, struct tgc *t, const struct options *o, const struct model *m,
                  const char *name, const char *bench)
{
    const struct schedule *s = m->schedule;
    struct text choices = {.t = t}, compared = {.t = t}, passes = {.t = t};
    int *number;
    text_printf(out, "{\n  \"format\": \"tgc-report\", \"version\": %d, \"producer\": \"tgc %s\",\n",
                REPORT_VERSION, TGC_VERSION);
    schedule_write_members(out, t, s, name);
    text_printf(out, ",\n\"model\":");
    text_json(out, m->base);
    text_printf(out, ",\n\"target\":\"%s\",\"threads\":%d,\"level\":%d", target_name(o->target),
                o->threads, o->level);
    put_machine(out, t);
    put_options(out, o);
    text_printf(out, ",\n\"error\":{\"estimate\":%.3g,\"limit\":%.3g}", error_estimate(t),
                t->error_limit);
    report_graph(out, t, m, &number);
    put_kernel_nodes(out, s, number);
    put_entries(out, t, m);
    text_putc(out, '\n');
    info_weights_write_json(out, t, s);
    why_write_json(&choices, t, true);
    why_compared_json(&compared, t, s);
    info_put_passes(&passes, true, false, m->record);
    put_list(out, "choices", &choices);
    put_schedules(out, t, s);
    put_list(out, "compared", &compared);
    put_list(out, "passes", &passes);
    put_opts(out);
    report_advice(out, t, o, s, bench);
    if (!put_sources(out, t, o, m, name, bench != NULL))
        return false;
    put_log(out, m->log);
    if (bench)
        text_printf(out, ",\n\"bench\":%s", bench);
    text_puts(out, "\n}\n");
    return true;
}

const char *report_path(struct tgc *t, const struct options *o, const char *name)
{
    bool beside = o->output && strcmp(o->output, "-") != 0;
    return beside ? path_sibling(t, o->output, "html") : mem_printf(t, "%s.html", name);
}

bool report_put_trace(struct tgc *t, const char *path, const char *file,
                      const struct text *document, struct outputs *files)
{
    struct text trace = {.t = t};
    return report_trace(&trace, t, file, document->s, document->n) &&
           outputs_put(files, path, &trace);
}

bool report_write(struct tgc *t, const struct options *o, const struct model *m, const char *name,
                  const char *bench, const char *path, struct outputs *files)
{
    struct text document = {.t = t}, page = {.t = t};
    if (!report_facts(&document, t, o, m, name, bench) ||
        (o->trace && !report_put_trace(t, o->trace, path, &document, files)))
        return false;
    if (!path)
        return true;
    if (o->emit == EMIT_JSON && strcmp(path, o->output) == 0)
        return outputs_put(files, path, &document);
    return report_page(&page, t, path, document.s, document.n) && outputs_put(files, path, &page);
}
