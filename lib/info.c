/* info.c - a report on a model, or on a compiled one, as text or JSON. */
#include "lib/lib.h"
#include "backends/program/program.h"
#include "passes/analysis/error.h"
#include "passes/analysis/kernel_cost.h"

#include <stdlib.h>
#include <string.h>

struct tally { const char *name; int n; };
struct report {
    const char *name;
    struct text inputs, outputs, states, entries, slices, meta;    /* JSON lists, or lines */
    struct text functions;          /* C functions of the user's that it calls, likewise */
    size_t state_bytes;
    struct tally *tally; size_t ntally, cap_tally;
    /* dimensions without a bound: what depends on them is unknown */
    struct text open;
    struct text why;                /* --why: lines */
    struct text opts, compared;     /* --why --json: the elements of JSON lists */
    struct text passes;             /* --passes: lines, or the elements of a JSON list */
    struct text table;              /* a line for each kernel, or the elements of a JSON list */
    struct text device;             /* of a run on a device: lines, or a JSON object */
    struct text runs;               /* of each entry's run: a line */
    struct text training;           /* of --train: lines, or a JSON object */
    struct text weights;            /* that are stored otherwise: lines, or JSON's keys */
    const char **open_dim; int nopen; size_t cap_open;
    size_t arena_bytes, stack_bytes, weight_bytes;
    size_t tensor_bytes;            /* between kernels, in a device's memory */
    size_t live_bytes;              /* the largest live set; unknown for a compiled model */
    double error_estimate, error_limit; /* of a model: the error that --error limits */
    enum dtype math;                /* what products multiply */
    const char *unrounded;          /* but for nodes, in words */
    struct narrowing narrowing;     /* of a model: the effect of --weight-type */
    bool is_artefact;
    int kernels;
    double flop;
};

static void put_tensor(struct text *x, bool json, bool first, const char *name, const char *dtype,
                       const struct text *shape)
{
    if (json) {
        text_puts(x, first ? "{\"name\":" : ",{\"name\":");
        text_json(x, name);
        text_puts(x, ",\"dtype\":");
        text_json(x, dtype);
        text_printf(x, ",\"shape\":[%s]}", shape->s ? shape->s : "");
    } else {
        text_printf(x, "    %s: %s[%s]\n", name, dtype, shape->s ? shape->s : "");
    }
}

static void put_dim(struct text *shape, bool json, const char *symbol, int64_t size)
{
    text_puts(shape, shape->n ? "," : "");
    if (!symbol)
        text_printf(shape, "%lld", (long long)size);
    else if (json)
        text_json(shape, symbol);
    else
        text_puts(shape, symbol);
}

void info_put_passes(struct text *x, bool json, bool timed, const struct pass_record *record)
{
    const struct pass *p;
    for (int i = 0; (p = pass_at(i)) != NULL; i++) {
        bool counts = p->graph || p->kernel;
        if (json)
            text_printf(x,
                        "%s{\"name\":\"%s\",\"text\":\"%s\",\"stage\":\"%s\",\"runs\":%d,"
                        "\"changes\":%s,%s\"uops\":%zu}",
                        i ? "," : "", p->name, p->text, stage_name(p->stage), record[i].runs,
                        counts ? mem_printf(x->t, "%d", record[i].changes) : "null",
                        timed ? mem_printf(x->t, "\"seconds\":%.6f,\"bytes\":%zu,",
                                           record[i].seconds, record[i].nbytes)
                              : "",
                        record[i].uops);
        else
            text_printf(x, "    %-8s %-17s %5d %5s %9.3f %6zu %8zu  %s\n", stage_name(p->stage),
                        p->name, record[i].runs,
                        counts ? mem_printf(x->t, "%d", record[i].changes) : "-",
                        record[i].seconds * 1e3, record[i].nbytes >> 20, record[i].uops, p->text);
    }
}

/* A part of an output. */
static void put_slice(struct text *x, bool json, const char *output, const char *name, size_t begin,
                      size_t size)
{
    if (!json) {
        text_printf(x, "    %s.%s: %zu elements from %zu on\n", output, name, size, begin);
        return;
    }
    text_puts(x, x->n ? ",{\"output\":" : "{\"output\":");
    text_json(x, output);
    text_puts(x, ",\"name\":");
    text_json(x, name);
    text_printf(x, ",\"begin\":%zu,\"size\":%zu}", begin, size);
}

/* What the model says of itself. */
static void put_meta(struct text *x, bool json, const char *key, const char *value)
{
    if (!json) {
        text_printf(x, "    %s: %s\n", key, value);
        return;
    }
    text_puts(x, x->n ? "," : "");
    text_json(x, key);
    text_putc(x, ':');
    text_json(x, value);
}

/* An entry: which of the inputs and outputs are its own, and in JSON what its run is. */
static void put_entry(struct text *x, bool json, const struct schedule *s, int index)
{
    const struct graph *g = s->graph;
    const struct graph_entry *e = &g->entry[index];
    text_puts(x, json ? index ? ",{\"name\":" : "{\"name\":" : "    ");
    if (json)
        text_json(x, e->name);
    else
        text_printf(x, "%s: ", e->name);
    for (int output = 0; output < 2; output++) {
        text_puts(x, json ? output ? "],\"outputs\":[" : ",\"inputs\":[" : output ? " -> " : "");
        for (int i = 0; i < (output ? e->noutput : e->ninput); i++) {
            const char *name = output
                                   ? g->output[e->output + i].name
                                   : ((const struct buffer *)g->input[e->input + i]->arg.p)->name;
            text_puts(x, i ? json ? "," : ", " : "");
            if (json)
                text_json(x, name);
            else
                text_puts(x, name);
        }
    }
    text_puts(x, json ? "]," : "\n");
    if (json)
        info_run_write_json(x, s, index);
}

/* An output that is the next run's input; axis: the one along which it grows, or -1. */
static void put_state(struct text *x, bool json, bool first, const char *from, const char *name,
                      const char *dtype, const struct text *shape, int axis)
{
    if (!json) {
        text_printf(x, "    %s -> %s: %s[%s]%s\n", from, name, dtype, shape->s ? shape->s : "",
                    axis < 0 ? "" : mem_printf(x->t, ", grows along axis %d", axis));
        return;
    }
    text_puts(x, first ? "{\"output\":" : ",{\"output\":");
    text_json(x, from);
    text_puts(x, ",\"input\":");
    text_json(x, name);
    text_printf(x, ",\"dtype\":\"%s\",\"shape\":[%s],\"grows\":%s}", dtype,
                shape->s ? shape->s : "", axis < 0 ? "null" : mem_printf(x->t, "%d", axis));
}

/* A tensor of the graph. */
static void put_value(struct text *x, bool json, bool first, const char *name, const struct uop *u)
{
    struct text shape = {.t = x->t};
    for (int i = 0; i < u->ndim; i++) {
        struct text symbol = {.t = x->t};
        int64_t size = 0;
        if (!uop_const_int(u->dim[i], &size))
            uop_print(&symbol, u->dim[i]);
        put_dim(&shape, json, symbol.s, size);
    }
    put_tensor(x, json, first, name, dtype_name(u->dtype), &shape);
}

static int compare_names(const void *a, const void *b)
{
    const struct tally *x = a, *y = b;
    return strcmp(x->name, y->name);
}

struct op_names { struct tally *v; size_t n, cap; };

/* Names the operators of the model as written, subgraphs and functions included. */
static void name_operators(struct tgc *t, const struct onnx_model *m, struct op_names *all)
{
    for (size_t i = 0; i < m->nbody; i++) {
        for (size_t k = 0; k < m->body[i].n_node; k++) {
            const NodeProto *node = m->body[i].node[k];
            bool plain = !*node->domain || strcmp(node->domain, "ai.onnx") == 0;
            struct tally one = {
                plain ? node->op_type : mem_printf(t, "%s.%s", node->domain, node->op_type), 1};
            VEC_PUSH(t, all->v, all->n, all->cap, one);
        }
    }
}

/* Names the ops into which a text graph's functions expand. */
static void name_ops(struct tgc *t, const struct graph *g, struct op_names *all)
{
    struct uop **root = mem_array(t, (size_t)g->noutput, sizeof *root);
    int n;
    for (int i = 0; i < g->noutput; i++)
        root[i] = g->output[i].value;
    struct uop **u = uop_toposort(t, root, g->noutput, &n);
    for (int i = 0; i < n; i++) {
        struct tally one = {op_name(u[i]->op), 1};
        if (op_class(u[i]->op) != CLASS_LEAF)
            VEC_PUSH(t, all->v, all->n, all->cap, one);
    }
}

static void count_operators(struct tgc *t, struct op_names all, struct report *r)
{
    if (all.n)
        qsort(all.v, all.n, sizeof *all.v, compare_names);
    for (size_t i = 0; i < all.n; i++) {
        if (r->ntally && strcmp(r->tally[r->ntally - 1].name, all.v[i].name) == 0)
            r->tally[r->ntally - 1].n++;
        else
            VEC_PUSH(t, r->tally, r->ntally, r->cap_tally, all.v[i]);
    }
}

static void name_open(struct report *r, const char *symbol)
{
    for (int i = 0; i < r->nopen; i++)
        if (strcmp(r->open_dim[i], symbol) == 0)
            return;
    VEC_PUSH(r->open.t, r->open_dim, r->nopen, r->cap_open, symbol);
    text_printf(&r->open, "%s%s", r->open.n ? ", " : "", symbol);
}

static void put_declared(struct report *r, struct text *x, bool json, bool first,
                         const struct model_input *v)
{
    struct text shape = {.t = x->t};
    for (int a = 0; a < v->ndim; a++) {
        const char *symbol = v->symbol[a] ? v->symbol[a] : mem_printf(x->t, "%s_dim%d", v->name, a);
        put_dim(&shape, json, v->dim[a] < 0 ? symbol : NULL, v->dim[a]);
        if (v->dim[a] < 0 && x == &r->inputs)
            name_open(r, symbol);
    }
    put_tensor(x, json, first, v->name, dtype_name(v->dtype), &shape);
}

static bool is_open(const struct model_input *v, int n)
{
    for (int i = 0; i < n; i++)
        for (int a = 0; a < v[i].ndim; a++)
            if (v[i].dim[a] < 0)
                return true;
    return false;
}

static size_t declared_nbytes(const TensorProto *p)
{
    size_t nbytes = dtype_nbytes(dtype_from_onnx(p->data_type));
    for (size_t a = 0; a < p->n_dims; a++)
        if (!size_mul(nbytes, (size_t)p->dims[a], &nbytes))
            return 0;
    return nbytes;
}

/* Some exporters write weights as constants. */
static bool is_constant(const NodeProto *node)
{
    return strcmp(node->op_type, "Constant") == 0;
}

/* A model as its file declares it, if dimensions are open and no option bounds them: its inputs,
 * outputs and weights. */
static bool report_declared(struct tgc *t, const struct options *o, const struct model *m,
                            struct report *r)
{
    int nin, nout;
    struct model_input *in = model_inputs(t, o, m, &nin),
                       *out = model_declared_outputs(t, m, &nout);
    if (!m->onnx || o->ndim || o->nshape || !is_open(in, nin))
        return false;
    for (int i = 0; i < nin; i++)
        put_declared(r, &r->inputs, o->json, i == 0, &in[i]);
    for (int i = 0; i < nout; i++)
        put_declared(r, &r->outputs, o->json, i == 0, &out[i]);
    const GraphProto *g = m->onnx->proto->graph;
    for (size_t i = 0; i < g->n_initializer; i++)
        r->weight_bytes += declared_nbytes(g->initializer[i]);
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_attribute && is_constant(g->node[i]); k++)
            if (g->node[i]->attribute[k]->t)
                r->weight_bytes += declared_nbytes(g->node[i]->attribute[k]->t);
    return true;
}

static const char *buffer_text(struct tgc *t, const struct buffer *b)
{
    struct text x = {.t = t};
    text_printf(&x, "%s[", dtype_name(b->dtype));
    for (int a = 0; a < b->ndim; a++) {
        text_puts(&x, a ? "," : "");
        uop_print(&x, b->dim[a]);
    }
    text_putc(&x, ']');
    return x.s;
}

/* Shapes: of the outputs and, after the arrow, of the inputs. */
static void put_kernels(struct text *x, struct tgc *t, const struct schedule *s)
{
    int width = 0;
    for (int i = 0; i < s->nkernel; i++)
        if ((int)strlen(s->kernel[i]->name) > width)
            width = (int)strlen(s->kernel[i]->name);
    for (int i = 0; i < s->nkernel; i++) {
        const struct kernel *k = s->kernel[i];
        text_printf(x, "    %-*s %9.3g FLOP %9.3g bytes  %s:", width, k->name, k->flop, k->nbytes,
                    k->title ? k->title : "");
        for (int j = 0; j < k->nbuffer; j++)
            text_printf(x, "%s %s", j == k->noutput ? " <-" : "", buffer_text(t, k->buffer[j]));
        text_putc(x, '\n');
    }
}

/* The C functions that the model calls, which its user defines. */
static void put_functions(struct text *x, bool json, const struct schedule *s)
{
    const struct host_call *h;
    for (int step = 0; (h = schedule_next_external(s, &step));) {
        int calls = 0;
        for (int i = 0; i < s->nstep; i++)
            calls += s->step[i].host && s->step[i].host->external == h->external;
        if (!json) {
            text_printf(x, "    %s: %s, %d call%s\n", h->external->symbol, h->external->name, calls,
                        calls == 1 ? "" : "s");
            continue;
        }
        text_printf(x, "%s{\"function\":\"%s\",\"operator\":", x->n ? "," : "",
                    h->external->symbol);
        text_json(x, h->external->name);
        text_printf(x, ",\"calls\":%d}", calls);
    }
}

static bool report_model(struct tgc *t, const struct options *given, struct report *r)
{
    struct options told = *given;
    const struct options *o = &told;
    struct model m;
    struct feed f;
    struct op_names all = {0};
    if (!model_load(t, o, &m) || (told.ninput && !feed_read(t, &told, &m, &f)))
        return false;
    if (m.onnx)
        name_operators(t, m.onnx, &all);
    else
        name_ops(t, m.graph, &all);
    count_operators(t, all, r);
    r->name = o->name ? o->name : program_name(t, m.stem);
    if (!o->training.emits && report_declared(t, o, &m, r))
        return true;
    if (!(o->training.emits ? training_schedule(t, o, r->name, &m)
                            : model_schedule(t, o, r->name, &m)))
        return false;
    if (o->training.emits)
        info_training_write(&r->training, t, &m, o->json);
    for (int i = 0; i < m.schedule->ninput; i++)
        put_value(&r->inputs, o->json, i == 0,
                  ((const struct buffer *)m.graph->input[i]->arg.p)->name, m.graph->input[i]);
    for (int i = 0; i < m.schedule->nstate; i++) {
        const struct state *st = m.schedule->state[i];
        struct text shape = {.t = t};
        for (int a = 0; a < st->in->ndim; a++) {
            struct text symbol = {.t = t};
            int64_t size = 0;
            if (!uop_const_int(st->in->dim[a], &size))
                uop_print(&symbol, st->in->dim[a]);
            put_dim(&shape, o->json, symbol.s, size);
        }
        put_state(&r->states, o->json, i == 0, st->from, st->name, dtype_name(st->in->dtype),
                  &shape, st->length ? st->axis : -1);
    }
    for (int i = 0; i < m.graph->nentry; i++)
        put_entry(&r->entries, o->json, m.schedule, i);
    for (int i = 0; i < m.graph->nentry && !o->json; i++)
        info_run_write(&r->runs, m.schedule, i);
    for (int i = 0; i < m.schedule->noutput; i++)
        for (int k = 0; k < m.graph->output[i].nslice; k++) {
            const struct graph_slice *s = &m.graph->output[i].slice[k];
            put_slice(&r->slices, o->json, m.graph->output[i].name, s->name, (size_t)s->begin,
                      (size_t)s->size);
        }
    for (int i = 0; i < m.graph->nmeta; i++)
        put_meta(&r->meta, o->json, m.graph->meta[i].key, m.graph->meta[i].value);
    put_functions(&r->functions, o->json, m.schedule);
    r->state_bytes = program_state_bytes(t, m.schedule);
    for (int i = 0; i < m.schedule->noutput; i++)
        put_value(&r->outputs, o->json, i == 0, m.graph->output[i].name, m.graph->output[i].value);
    r->arena_bytes = program_arena_bytes(t, m.schedule);
    r->stack_bytes = program_stack_bytes(t, m.schedule);
    r->tensor_bytes = budget_arena_nbytes(t, m.schedule);
    r->live_bytes = m.schedule->live_nbytes;
    for (int i = 0; i < m.schedule->nweight; i++)
        if (!m.schedule->weight[i]->weight.same)
            r->weight_bytes += m.schedule->weight[i]->nbytes;
    if (o->json)
        info_weights_write_json(&r->weights, t, m.schedule);
    else
        info_weights_write(&r->weights, t, m.schedule, o->why);
    r->narrowing = m.graph->narrowing;
    r->error_estimate = error_estimate(t);
    r->error_limit = t->error_limit;
    if (o->passes)
        info_put_passes(&r->passes, o->json, true, m.record);
    if (o->why && o->json) {
        why_write_json(&r->why, t, false);
        for (int i = 0; i < m.schedule->nkernel; i++)
            why_opts_json(&r->opts, m.schedule->kernel[i], NULL);
        why_compared_json(&r->compared, t, m.schedule);
    } else if (o->why)
        why_write(&r->why, t, m.schedule);
    if (o->json)
        schedule_kernels_json(&r->table, t, m.schedule);
    else
        put_kernels(&r->table, t, m.schedule);
    if (t->device && o->json)
        info_run_write_device_json(&r->device, m.schedule, -1);
    else if (t->device)
        info_run_write_device(&r->device, m.schedule, -1);
    r->kernels = m.schedule->nkernel;
    r->flop = run_use(t, m.schedule, -1).flop;
    return true;
}

static void put_described(struct text *x, bool json, const struct program_tensor *v, int n)
{
    for (int i = 0; i < n; i++) {
        struct text shape = {.t = x->t};
        for (int k = 0; k < v[i].rank; k++)
            put_dim(&shape, json, v[i].dim[k].symbol, v[i].dim[k].size);
        put_tensor(x, json, i == 0, v[i].name, v[i].dtype, &shape);
    }
}

static bool report_artefact(struct tgc *t, const struct options *o, struct report *r)
{
    struct instance p;
    if (!instance_open(t, o->model, o->name, &p))
        return false;
    r->name = p.info->name;
    r->is_artefact = true;
    put_described(&r->inputs, o->json, p.info->inputs, p.info->input_count);
    put_described(&r->outputs, o->json, p.info->outputs, p.info->output_count);
    for (int i = 0; i < p.info->state_count; i++) {
        const struct program_state *st = &p.info->states[i];
        struct text shape = {.t = t};
        for (int k = 0; k < st->input.rank; k++)
            put_dim(&shape, o->json, st->input.dim[k].symbol, st->input.dim[k].size);
        put_state(&r->states, o->json, i == 0, st->from, st->input.name, st->input.dtype, &shape,
                  st->axis);
    }
    for (int i = 0; i < p.info->slice_count; i++) {
        const struct program_slice *s = &p.info->slices[i];
        put_slice(&r->slices, o->json, p.info->outputs[s->output].name, s->name, s->begin, s->size);
    }
    for (int i = 0; i < p.info->meta_count; i++)
        put_meta(&r->meta, o->json, p.info->meta[i].key, p.info->meta[i].value);
    r->state_bytes = p.info->state_bytes;
    r->arena_bytes = p.info->arena_bytes;
    r->stack_bytes = p.info->stack_bytes;
    r->weight_bytes = p.info->weights_bytes;
    r->kernels = p.info->kernel_count;
    r->flop = p.info->flop;
    return true;
}

static void put_json(struct text *x, const struct options *o, const struct report *r)
{
    struct text live = {.t = x->t};
    text_puts(x, "{\"name\":");
    text_json(x, r->name);
    text_printf(x, ",\"inputs\":[%s],\"outputs\":[%s],\"weight_bytes\":%zu",
                r->inputs.s ? r->inputs.s : "", r->outputs.s ? r->outputs.s : "", r->weight_bytes);
    if (r->weights.n)
        text_puts(x, r->weights.s);
    /* known once --dim or --shape bounds the dimensions */
    if (r->open.n)
        text_puts(x, ",\"arena_bytes\":null,\"stack_bytes\":null,\"kernels\":null,\"flop\":null");
    else
        text_printf(x, ",\"arena_bytes\":%zu,\"stack_bytes\":%zu,\"kernels\":%d,\"flop\":%.17g",
                    r->arena_bytes, r->stack_bytes, r->kernels, r->flop);
    if (r->entries.n)
        text_printf(x, ",\"entries\":[%s]", r->entries.s);
    if (r->slices.n)
        text_printf(x, ",\"slices\":[%s]", r->slices.s);
    if (r->meta.n)
        text_printf(x, ",\"meta\":{%s}", r->meta.s);
    if (r->states.n)
        text_printf(x, ",\"states\":[%s],\"state_bytes\":%zu", r->states.s, r->state_bytes);
    if (!r->open.n && !r->is_artefact)
        text_printf(&live, "%zu", r->live_bytes);
    text_printf(x, ",\"live_bytes\":%s", live.n ? live.s : "null");
    if (r->device.n)
        text_printf(x, ",\"tensor_bytes\":%zu", r->tensor_bytes);
    if (!r->open.n && !r->is_artefact)
        text_printf(x, ",\"error_estimate\":%.3g,\"error_limit\":%.3g", r->error_estimate,
                    r->error_limit);
    else
        text_puts(x, ",\"error_estimate\":null");
    if (!r->is_artefact)
        text_printf(x, ",\"math\":\"%s\"", dtype_name(r->math));
    if (r->narrowing.nweight)
        text_printf(x,
                    ",\"narrowed\":{\"dtype\":\"%s\",\"weights\":%d,\"bytes\":%zu,"
                    "\"bytes_before\":%zu,\"rms_error\":%.3g,\"max_error\":%.3g}",
                    dtype_name(r->narrowing.dtype), r->narrowing.nweight, r->narrowing.to_nbytes,
                    r->narrowing.from_nbytes, r->narrowing.rms_error, r->narrowing.max_error);
    if (r->functions.n)
        text_printf(x, ",\"functions\":[%s]", r->functions.s);
    if (!r->open.n && !r->is_artefact)
        text_printf(x, ",\"kernel_list\":[%s]", r->table.s ? r->table.s : "");
    if (r->device.n)
        text_printf(x, ",\"device\":%s", r->device.s);
    if (r->training.n)
        text_printf(x, ",\"training\":%s", r->training.s);
    if (o->passes && !r->open.n && !r->is_artefact)
        text_printf(x, ",\"passes\":[%s]", r->passes.s ? r->passes.s : "");
    if (o->why && !r->open.n && !r->is_artefact)
        text_printf(x, ",\"choices\":[%s],\"schedules\":[%s],\"compared\":[%s]",
                    r->why.s ? r->why.s : "", r->opts.s ? r->opts.s : "",
                    r->compared.s ? r->compared.s : "");
    text_puts(x, ",\"operators\":{");
    for (size_t i = 0; i < r->ntally; i++) {
        text_puts(x, i ? "," : "");
        text_json(x, r->tally[i].name);
        text_printf(x, ":%d", r->tally[i].n);
    }
    text_puts(x, "}}\n");
}

static void put_lines(struct text *x, const char *title, const struct text *lines)
{
    text_printf(x, "%s:\n%s", title, lines->s ? lines->s : "");
}

static void put_text(struct text *x, const struct report *r)
{
    text_printf(x, "%s\n", r->name);
    put_lines(x, "inputs", &r->inputs);
    put_lines(x, "outputs", &r->outputs);
    if (r->entries.n)
        put_lines(x, "entries, with inputs and outputs of their own", &r->entries);
    if (r->slices.n)
        put_lines(x, "parts of outputs", &r->slices);
    if (r->meta.n)
        put_lines(x, "what it says of itself", &r->meta);
    if (r->states.n)
        put_lines(x, "states, from output to next input", &r->states);
    if (r->functions.n)
        put_lines(x, "C functions that it calls, which you define", &r->functions);
    for (size_t i = 0; i < r->ntally; i++)
        text_printf(x, "%s%s %d%s", i ? ", " : "operators: ", r->tally[i].name, r->tally[i].n,
                    i + 1 == r->ntally ? "\n" : "");
    text_printf(x, "weights: %zu bytes\n%s", r->weight_bytes, r->weights.n ? r->weights.s : "");
    if (r->states.n)
        text_printf(x, "states: %zu bytes saved\n", r->state_bytes);
    if (!r->is_artefact && r->math != DTYPE_F32)
        text_printf(x, "products: of factors rounded to %s (--math)%s\n", dtype_name(r->math),
                    r->unrounded);
    if (r->narrowing.nweight) {
        text_puts(x, "    ");
        text_narrowing(x, &r->narrowing);
        text_putc(x, '\n');
    }
    if (r->open.n) {
        text_printf(x, "kernels and arena: depend on %s; bound them with --dim or --shape\n",
                    r->open.s);
        return;
    }
    text_printf(x, "kernels: %d, %.4g FLOP a run\narena: %zu bytes", r->kernels, r->flop,
                r->arena_bytes);
    if (r->device.n)
        text_printf(x, " of the host's\ntensors on the device: %zu bytes", r->tensor_bytes);
    if (!r->is_artefact)
        text_printf(x, ", %zu of them alive at once at most", r->live_bytes);
    text_printf(x, "\nstack: %zu bytes at most\n", r->stack_bytes);
    if (r->device.n)
        text_puts(x, r->device.s);
    if (r->runs.n)
        put_lines(x, "of these in the run of each entry", &r->runs);
    text_puts(x, r->training.n ? r->training.s : "");
    if (r->error_estimate > 0)
        text_printf(x, "error: about %.2g of the largest output is added by Winograd's tiles, of "
                       "%.2g (--error)\n",
                    r->error_estimate, r->error_limit);
    if (r->table.n)
        put_lines(x, "each kernel, and its shapes", &r->table);
    if (r->passes.n)
        put_lines(x, "passes, how often they ran and changed something, milliseconds, MB, uops "
                     "made",
                  &r->passes);
    if (r->why.n)
        put_lines(x, "choices", &r->why);
}

/* ", but for a, b": the nodes that --math=NODE=f32 names. */
static const char *unrounded_by(struct tgc *t, const struct options *o)
{
    struct text x = {.t = t};
    for (int i = 0; i < o->nunrounded; i++)
        text_printf(&x, "%s%s", i ? ", " : ", but for ", o->unrounded[i]);
    return x.n ? x.s : "";
}

bool info_write(struct text *out, struct tgc *t, const struct options *o)
{
    struct report r = {.math = o->math == DTYPE_VOID ? DTYPE_F32 : o->math,
                       .unrounded = unrounded_by(t, o),
                       .open = {.t = t},
                       .states = {.t = t},
                       .entries = {.t = t},
                       .slices = {.t = t},
                       .meta = {.t = t},
                       .functions = {.t = t},
                       .why = {.t = t},
                       .opts = {.t = t},
                       .compared = {.t = t},
                       .passes = {.t = t},
                       .training = {.t = t},
                       .table = {.t = t},
                       .device = {.t = t},
                       .runs = {.t = t},
                       .weights = {.t = t},
                       .inputs = {.t = t},
                       .outputs = {.t = t}};
    const char *dot = strrchr(o->model, '.');
    bool is_artefact = dot && strcmp(dot, ".so") == 0;
    if (dot && (strcmp(dot, ".o") == 0 || strcmp(dot, ".a") == 0 || strcmp(dot, ".c") == 0))
        return diag_error(
            t, &(struct place){.file = o->model},
            "info reads models and .so artefacts; this one cannot be opened at run time");
    if (is_artefact && o->training.emits)
        return diag_error(t, &(struct place){.file = o->model},
                          "--train is of a model, and this is compiled; leave it out");
    if (is_artefact ? !report_artefact(t, o, &r) : !report_model(t, o, &r))
        return false;
    if (o->json)
        put_json(out, o, &r);
    else
        put_text(out, &r);
    return true;
}
