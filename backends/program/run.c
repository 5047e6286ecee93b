/* run.c - NAME_run(): the checks of its arguments, the places of the intermediates, a statement for
 * each step of the schedule, the shapes of the outputs.
 *
 *      int NAME_run(NAME *self, const NAME_inputs *in, const NAME_outputs *out)
 *      {
 *          if (!in->x ...)                        write_checks
 *          float *const conv1_out = arena + 64;   write_places
 *          conv1(conv1_out, in->x, w->conv1_w);   write_steps
 *          out->y_shape[0] = ...;                 write_shapes
 *      }
 *
 * Steps are rendered first, since they decide which places are declared.
 */
#include "backends/cstyle/cstyle.h"

#include <string.h>

/* "if (!in->a || !in->b)", wrapped; of an entry's, "if (in->dim_entry == 0 && (...))". */
static void write_missing_of(struct program *p, struct text *out, int entry, bool output)
{
    const struct schedule *s = p->s;
    struct buffer *const *b = output ? s->output : s->input;
    int n = output ? s->noutput : s->ninput, count = 0;
    struct text_list list = {
        .out = out, .separator = " ||", .line = out->n, .indent = 8, .tail = strlen("))")};
    for (int i = 0; i < n; i++) {
        if ((output ? entry_of_output(s, i) : entry_of_input(s, i)) != entry)
            continue;
        if (count++ == 0 && entry < 0)
            text_puts(out, "    if (");
        else if (count == 1)
            text_printf(out, "    if (%s && (", entry_condition(p, entry));
        const char *null =
            mem_printf(p->t, "!%s->%s", output ? "out" : "in", p->buffer_name[b[i]->id]);
        if (p->backend->device)
            null = mem_printf(p->t, "(%s%s)", null, p->backend->device->is_absent(p, b[i]));
        list_put(&list, null);
    }
    if (count > 0)
        text_printf(out, "%s)\n        return %s_%s;\n", entry < 0 ? "" : ")", p->upper,
                    output ? "MISSING_OUTPUT" : "MISSING_INPUT");
}

static void write_missing(struct program *p, struct text *out, bool output)
{
    for (int e = schedule_count_entries(p->s) ? 0 : -1; e < schedule_count_entries(p->s); e++)
        write_missing_of(p, out, e, output);
}

static void write_checks(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    text_printf(out, "    if (!self || !in || !out)\n        return %s_NULL_ARGUMENT;\n", p->upper);
    text_printf(out, "    if (self->opened != self)\n        return %s_NOT_INITIALIZED;\n",
                p->upper);
    write_missing(p, out, false);
    write_missing(p, out, true);
    for (int i = 0; i < s->nvar; i++) {
        const struct var *v = s->var[i];
        if (program_is_field(p, v))
            text_printf(out,
                        "    if (in->dim_%s < %lld || in->dim_%s > %s_MAX_%s)\n        return "
                        "%s_DIM_OUT_OF_RANGE;\n",
                        p->var_name[v->id], (long long)v->min, p->var_name[v->id], p->upper,
                        name_upper(p->t, p->var_name[v->id]), p->upper);
    }
    state_write_checks(p, out);
}

/* The places of the intermediates: one line each, so that the memory plan can be read here. */
static void write_places(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    bool any = false, stack = program_is_on_stack(s);
    for (int i = 0; i < s->nbuffer; i++) {
        const struct buffer *b = s->buffer[i];
        if (b->base || !p->buffer_used[b->id])
            continue;
        if (!any && stack)
            text_printf(
                out,
                "\n    /* few bytes; what is not needed at the same time may share a place */\n"
                "    alignas(64) unsigned char arena[%zu];\n",
                s->arena_nbytes ? s->arena_nbytes : 1);
        else if (!any)
            text_puts(
                out,
                "\n    /* the arena; what is not needed at the same time may share a place */\n"
                "    unsigned char *const arena = (unsigned char *)(void *)self;\n");
        any = true;
        size_t start = out->n;
        const char *type = dtype_ctype(b->dtype), *blank = b->dtype == DTYPE_STRING ? "" : " ";
        text_printf(out, "    %s%s*const %s = (%s%s*)(void *)(arena + %zu);", type, blank,
                    p->buffer_name[b->id], type, blank,
                    b->offset + (stack ? 0 : p->head_bytes + s->state_nbytes));
        text_pad(out, start, 72);
        text_printf(out, " /* %s", dtype_name(b->dtype));
        text_dims(out, b->dim, b->ndim, "[", "]");
        text_puts(out, " */\n");
    }
}

/* The call's signature must be the function's: the C compiler would notice wrong counts, but not
 * wrong arguments. */
static void check_host_call(struct program *p, const struct step *step)
{
    const struct host_call *h = step->host;
    const struct host_function *f = host_function_find(h->function);
    if (!f)
        TGC_BUG(p->t, "ir/host.def has no function '%s'", h->function);
    if (step->narg != f->nin + f->nout || h->nout != f->nout || h->nparam != f->nparam ||
        h->nresult != f->nresult)
        TGC_BUG(p->t, "the call of '%s' does not match ir/host.def", h->function);
}

static void write_host_call(struct program *p, struct text *out, const struct step *step)
{
    const struct host_call *h = step->host;
    if (h->external) {
        external_write_call(p, out, step);
        return;
    }
    check_host_call(p, step);
    snippet_use(&p->snippets, h->function);
    struct text call = {.t = p->t};
    text_printf(&call, "status = %s(", h->function);
    bool first = true;
    for (int i = 0; i < step->narg; i++, first = false)
        text_printf(&call, "%s%s", first ? "" : ", ", program_buffer(p, step->arg[i]));
    for (int i = 0; i < h->nparam; i++, first = false)
        text_printf(&call, "%s%s", first ? "" : ", ", program_scalar(p, h->param[i]));
    for (int i = 0; i < h->nresult; i++, first = false)
        text_printf(&call, "%s&%s", first ? "" : ", ", program_var(p, h->result[i]));
    text_printf(out, "%s);\nif (status != %s_OK)\n    return status;\n", call.s, p->upper);
    for (int i = 0; i < h->nresult; i++) {
        const char *name = program_var(p, h->result[i]);
        text_printf(out, "if (%s < 0 || %s > %s_MAX_%s)\n    return %s_TOO_MANY_RESULTS;\n", name,
                    name, p->upper, name_upper(p->t, name), p->upper);
    }
}

/* Whether the host itself accesses intermediates in this step. */
static bool is_of_host(struct tgc *t, const struct step *step)
{
    return step->kind == STEP_HOST || uop_reads_memory(t, step->cond) ||
           uop_reads_memory(t, step->trip);
}

static void write_steps(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    int indent = 1;
    for (int i = 0; i < s->nstep; i++) {
        const struct step *step = &s->step[i];
        struct text line = {.t = p->t};
        if (p->backend->device && is_of_host(p->t, step))
            p->backend->device->to_host(p, step, &line);
        if (step->node) {
            text_puts(&line, "/* ");
            text_comment(&line, origin_title(p->t, step->node));
            text_puts(&line, " */\n");
        }
        switch (step->kind) {
        case STEP_KERNEL:
            if (p->backend->device) {
                i += p->backend->device->launches(p, i, &line) - 1;
                text_printf(&line, "if (status != %s_OK)\n    return status;\n", p->upper);
                break;
            }
            text_printf(&line, "step(self, %d);\n", step->kernel->index);
            p->backend->call(p, step->kernel, &line);
            break;
        case STEP_HOST: write_host_call(p, &line, step); break;
        case STEP_IF: text_printf(&line, "if (%s) {\n", program_scalar(p, step->cond)); break;
        case STEP_ELSE: text_puts(&line, "} else {\n"); break;
        case STEP_LOOP: {
            const char *n = program_var(p, step->counter), *trip = program_scalar(p, step->trip);
            /* the loop may change the buffer from which the number was read */
            if (step->trip->op != OP_CONST) {
                const char *end = names_unique(p->run, mem_printf(p->t, "%s_end", n), "end");
                text_printf(&line, "const int64_t %s = %s;\n", end, trip);
                trip = end;
            }
            text_printf(&line, "for (int64_t %s = 0; %s < %s; %s++) {\n", n, n, trip, n);
            break;
        }
        case STEP_BREAK_UNLESS:
            text_printf(&line, "if (!(%s))\n    break;\n", program_scalar(p, step->cond));
            break;
        case STEP_ENDIF: case STEP_ENDLOOP: text_puts(&line, "}\n"); break;
        }
        if (step->kind == STEP_ENDIF || step->kind == STEP_ELSE || step->kind == STEP_ENDLOOP)
            indent--;
        size_t from = out->n;
        text_lines(out, line.s, indent);
        if (step->kernel || step->host)
            lines_mark(p, out, from, step->kernel ? step->kernel->title : step->host->function);
        if (step->kind == STEP_IF || step->kind == STEP_ELSE || step->kind == STEP_LOOP)
            indent++;
    }
}

static void write_shapes(struct program *p, struct text *out)
{
    for (int i = 0; i < p->s->noutput; i++) {
        const struct buffer *b = p->s->output[i];
        if (program_has_shape_field(b))
            for (int a = 0; a < b->ndim; a++)
                text_printf(out, "    out->%s_shape[%d] = %s;\n", p->buffer_name[b->id], a,
                            program_scalar(p, b->dim[a]));
    }
}

void run_write(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    struct text body = {.t = p->t};
    write_steps(p, &body);
    struct text begin = {.t = p->t}, end = {.t = p->t};
    if (p->backend->device) {
        p->backend->device->begin_run(p, &begin);
        p->backend->device->end_run(p, &end);
        text_lines(&body, end.s, 1);
    }
    write_shapes(p, &body);
    bool of_device = p->backend->device != NULL;
    const char *all = program_training(s) ? "all_" : "";
    text_printf(out, "%s(%s *self, const %s_%sinputs *in, %s_%soutputs *out%s)\n{\n",
                of_device              ? "static int enqueue_list"
                : program_training(s) ? "/* One of the entries. */\nstatic int run_entry"
                                       : mem_printf(p->t, "int %s_run", p->name),
                p->name, p->name, all, p->name, all, of_device ? ", void **event" : "");
    write_checks(p, out);
    bool reads = false; /* states' initial values may be the only weights */
    for (int i = 0; i < s->nweight; i++)
        reads |= p->buffer_used[s->weight[i]->id];
    if (reads && p->weights == WEIGHTS_FILE)
        text_puts(out, "\n    const struct weights table = place_weights((const unsigned char "
                       "*)self->options.weights);\n"
                       "    const struct weights *const w = &table;\n");
    else if (reads)
        text_puts(out, "\n    const struct weights *const w = get_weights();\n");
    bool host = false;
    for (int i = 0; i < s->nstep; i++) {
        host |= s->step[i].kind == STEP_HOST;
        for (int j = 0; s->step[i].host && j < s->step[i].host->nresult; j++)
            text_printf(out, "    int64_t %s = 0;\n", program_var(p, s->step[i].host->result[j]));
    }
    if (host || of_device)
        text_puts(out, "    int status;\n");
    write_places(p, out);
    state_write_places(p, out);
    text_putc(out, '\n');
    if (begin.s)
        text_lines(out, begin.s, 1);
    text_puts(out, body.s ? body.s : "");
    lines_move(p, &body, out);
    if (of_device)
        text_printf(
            out,
            "    status = mark(self, event);\n    if (status != %s_OK)\n        return status;\n",
            p->upper);
    state_write_end(p, out);
    text_printf(out, "    step(self, -1);\n    return %s_OK;\n}\n\n", p->upper);
    if (program_training(s))
        training_write_functions(p, out);
    else
        entries_write_functions(p, out);
}
