/* entries.c - the runs of a graph with several entries: NAME_ENTRY_run() with structs of its own,
 * over NAME_run(), whose structs have the tensors of all entries, and dim_entry, which says which
 * one runs.
 */
#include "backends/program/program.h"

/* The entry of input or output i; -1: the graph has none. */
static int entry_of(const struct graph *g, bool output, int i)
{
    for (int e = 0; g && e < g->nentry; e++) {
        const struct graph_entry *x = &g->entry[e];
        int from = output ? x->output : x->input, n = output ? x->noutput : x->ninput;
        if (i >= from && i < from + n)
            return e;
    }
    return -1;
}

int entry_of_input(const struct schedule *s, int i) { return entry_of(s->graph, false, i); }
int entry_of_output(const struct schedule *s, int i) { return entry_of(s->graph, true, i); }

int program_entry_of(const struct program_info *info, bool output, int i)
{
    for (int e = 0; e < info->entry_count; e++) {
        const struct program_entry *x = &info->entries[e];
        int from = output ? x->output : x->input, n = output ? x->output_count : x->input_count;
        if (i >= from && i < from + n)
            return e;
    }
    return -1;
}

int schedule_count_entries(const struct schedule *s) { return s->graph ? s->graph->nentry : 0; }

/* "lenet_warp" */
static const char *function_of(const struct program *p, int entry) { return p->entry_name[entry]; }

struct struct_fields entries_fields(struct program *p, int entry, bool output)
{
    const struct graph_entry *x = entry < 0 ? NULL : &p->s->graph->entry[entry];
    int from = !x ? 0 : output ? x->output : x->input;
    int n = x ? (output ? x->noutput : x->ninput)
            : output ? program_count_outputs(p->s) : program_count_inputs(p->s);
    struct names *names = names_new(p->t, names_reserved(p->t));
    struct struct_fields f = {mem_array(p->t, (size_t)n + 1, sizeof *f.b),
                       mem_array(p->t, (size_t)n + 1, sizeof *f.name), n};
    for (int i = 0; i < n; i++) {
        f.b[i] = output ? p->s->output[from + i] : p->s->input[from + i];
        if (!x) {
            f.name[i] = p->buffer_name[f.b[i]->id];
            continue;
        }
        f.name[i] = names_unique(names, f.b[i]->name, output ? "output" : "input");
        while (output && names_has(names, mem_printf(p->t, "%s_shape", f.name[i])))
            f.name[i] = names_unique(names, f.b[i]->name, "output");
        names_add(names, mem_printf(p->t, "%s_shape", f.name[i]));
    }
    return f;
}

static void write_struct(struct program *p, int entry, bool output, struct text *out)
{
    const struct schedule *s = p->s;
    struct struct_fields f = entries_fields(p, entry, output);
    int n = f.n;
    text_printf(out, "typedef struct %s_%s {\n", function_of(p, entry),
                output ? "outputs" : "inputs");
    for (int i = 0; i < f.n; i++) {
        size_t start = out->n;
        const char *type = output ? mem_printf(p->t, "%s *", dtype_ctype(f.b[i]->dtype))
                                  : const_pointer(f.b[i]->dtype);
        text_printf(out, "    %s%s;", type, f.name[i]);
        text_pad(out, start, 32);
        text_printf(out, " /* %s", dtype_name(f.b[i]->dtype));
        text_dims(out, f.b[i]->dim, f.b[i]->ndim, "[", "]");
        text_puts(out, " */\n");
        if (output && program_has_shape_field(f.b[i]))
            text_printf(out, "    int64_t %s_shape[%d];\n", f.name[i], f.b[i]->ndim);
    }
    for (int i = 0; i < s->nvar && !output; i++)
        if (program_is_shared_field(p, s->var[i])) {
            text_printf(out, "    int64_t dim_%s;\n", p->var_name[s->var[i]->id]);
            n++;
        }
    if (n == 0)
        text_puts(out, "    const void *unused;\n");
    text_printf(out, "} %s_%s;\n", function_of(p, entry), output ? "outputs" : "inputs");
}

static void write_signature(struct program *p, int entry, bool enqueue, struct text *out)
{
    const char *f = function_of(p, entry);
    text_printf(out, "int %s_%s(%s *self, const %s_inputs *in, %s_outputs *out%s)", f,
                enqueue ? "enqueue" : "run", p->name, f, f, enqueue ? ", void **event" : "");
}

/* Whether the entry has inputs or outputs that buffers of the caller's can be. */
static bool has_bind(const struct program *p, int entry, bool output)
{
    const struct graph_entry *x = &p->s->graph->entry[entry];
    return p->backend->device && (output ? x->noutput : x->ninput) > 0;
}

static void write_bind_signature(struct program *p, int entry, bool output, struct text *out)
{
    const char *which = output ? "output" : "input";
    text_printf(out, "int %s_bind_%s(%s *self, int %s, void *buffer, size_t at)",
                function_of(p, entry), which, p->name, which);
}

void entries_write_header(struct program *p, struct text *out)
{
    int n = schedule_count_entries(p->s);
    if (n == 0)
        return;
    text_printf(out,
                "/* The model's entries: runs over one context and its states. %s_run() is all of "
                "them, for tools:\n"
                " * in.dim_entry is the number of the one that runs, and pointers of the others "
                "may be NULL.%s */\n",
                p->name,
                p->backend->device
                    ? " The bind functions\n * count the inputs and outputs of their entry."
                    : "");
    for (int e = 0; e < n; e++) {
        text_printf(out, "\n/* %d: ", e);
        text_comment(out, p->s->graph->entry[e].name);
        text_puts(out, " */\n");
        write_struct(p, e, false, out);
        write_struct(p, e, true, out);
        for (int enqueue = 0; enqueue < 1 + (p->backend->device != NULL); enqueue++) {
            text_printf(out, "%s_API ", p->upper);
            write_signature(p, e, enqueue, out);
            text_puts(out, ";\n");
        }
        for (int output = 0; output < 2; output++)
            if (has_bind(p, e, output)) {
                text_printf(out, "%s_API ", p->upper);
                write_bind_signature(p, e, output, out);
                text_puts(out, ";\n");
            }
    }
    text_putc(out, '\n');
}

static void write_function(struct program *p, int entry, bool enqueue, struct text *out)
{
    const struct schedule *s = p->s;
    struct struct_fields in = entries_fields(p, entry, false);
    struct struct_fields results = entries_fields(p, entry, true);
    write_signature(p, entry, enqueue, out);
    text_printf(
        out,
        "\n{\n    %s_inputs all_in;\n    %s_outputs all_out;\n"
        "    if (!in || !out)\n        return %s_NULL_ARGUMENT;\n"
        "    memset(&all_in, 0, sizeof all_in);\n    memset(&all_out, 0, sizeof all_out);\n",
        p->name, p->name, p->upper);
    for (int i = 0; i < in.n; i++)
        text_printf(out, "    all_in.%s = in->%s;\n", p->buffer_name[in.b[i]->id], in.name[i]);
    for (int i = 0; i < s->nvar; i++)
        if (program_is_shared_field(p, s->var[i]))
            text_printf(out, "    all_in.dim_%s = in->dim_%s;\n", p->var_name[s->var[i]->id],
                        p->var_name[s->var[i]->id]);
    text_printf(out, "    all_in.dim_%s = %d;\n", p->var_name[s->graph->entry_number->id], entry);
    for (int i = 0; i < results.n; i++)
        text_printf(out, "    all_out.%s = out->%s;\n", p->buffer_name[results.b[i]->id],
                    results.name[i]);
    text_printf(out, "    int status = %s_%s(self, &all_in, &all_out%s);\n", p->name,
                enqueue ? "enqueue" : "run", enqueue ? ", event" : "");
    for (int i = 0; i < results.n; i++)
        if (program_has_shape_field(results.b[i]))
            text_printf(out, "    memcpy(out->%s_shape, all_out.%s_shape, sizeof out->%s_shape);\n",
                        results.name[i], p->buffer_name[results.b[i]->id], results.name[i]);
    text_puts(out, "    return status;\n}\n\n");
}

static void write_bind_function(struct program *p, int entry, bool output, struct text *out)
{
    const struct graph_entry *x = &p->s->graph->entry[entry];
    const char *which = output ? "output" : "input";
    write_bind_signature(p, entry, output, out);
    text_printf(out,
                "\n{\n    return %s < 0 || %s >= %d ? %s_BAD_OPTIONS\n               : "
                "%s_bind_%s(self, %d + %s, buffer, at);\n}\n\n",
                which, which, output ? x->noutput : x->ninput, p->upper, p->name, which,
                output ? x->output : x->input, which);
}

void entries_write_functions(struct program *p, struct text *out)
{
    for (int e = 0; e < schedule_count_entries(p->s); e++) {
        for (int enqueue = 0; enqueue < 1 + (p->backend->device != NULL); enqueue++)
            write_function(p, e, enqueue, out);
        for (int output = 0; output < 2; output++)
            if (has_bind(p, e, output))
                write_bind_function(p, e, output, out);
    }
}

void entries_write_info(struct program *p, struct text *out)
{
    int n = schedule_count_entries(p->s);
    if (n > 0)
        text_printf(out, "static const struct %s_entry entry_info[] = {\n", p->name);
    for (int e = 0; e < n; e++) {
        const struct graph_entry *x = &p->s->graph->entry[e];
        text_puts(out, "    {");
        text_string(out, x->name);
        text_printf(out, ", %d, %d, %d, %d},\n", x->input, x->ninput, x->output, x->noutput);
    }
    if (n > 0)
        text_puts(out, "};\n");
}

const char *entry_condition(struct program *p, int entry)
{
    return mem_printf(p->t, "in->dim_%s == %d", p->var_name[p->s->graph->entry_number->id], entry);
}
