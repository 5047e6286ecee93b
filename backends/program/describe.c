/* describe.c - the tables behind NAME_describe(), and the -DNAME_MAIN program with its reference
 * vectors. */
#include "backends/program/program.h"
#include "passes/analysis/kernel_cost.h"

#include <string.h>

static void write_tensors(struct program *p, struct text *out, const char *table,
                          struct buffer *const *b, int n, bool is_output)
{
    for (int i = 0; i < n; i++)
        describe_write_dims(p, out, table, b[i], i);
    if (n == 0)
        return;
    text_printf(out, "static const struct %s_tensor %s_info[] = {\n", p->name, table);
    for (int i = 0; i < n; i++) {
        const char *field = p->buffer_name[b[i]->id];
        text_puts(out, "    {");
        text_string(out, b[i]->name ? b[i]->name : "");
        text_printf(out, ", \"%s\", %zu, %d, ", dtype_name(b[i]->dtype), dtype_nbytes(b[i]->dtype),
                    b[i]->ndim);
        text_puts(out, b[i]->ndim ? mem_printf(p->t, "%s_dim_%d", table, i) : "NULL");
        text_printf(out, ", offsetof(%s_%ss, %s), ", p->name, table, field);
        if (is_output && program_has_shape_field(b[i]))
            text_printf(out, "offsetof(%s_outputs, %s_shape)", p->name, field);
        else
            text_puts(out, "(size_t)-1");
        text_puts(out, "},\n");
    }
    text_puts(out, "};\n");
}

static int write_symbols(struct program *p, struct text *out)
{
    int n = 0;
    for (int i = 0; i < p->s->nvar; i++) {
        const struct var *v = p->s->var[i];
        if (v->is_counter || (program_training(p->s) && v == p->s->graph->entry_number))
            continue;
        if (n++ == 0)
            text_printf(out, "static const struct %s_symbol symbol_info[] = {\n", p->name);
        text_puts(out, "    {");
        text_string(out, v->name);
        text_printf(out, ", %lld, %lld, ", (long long)v->min, (long long)v->max);
        if (program_is_field(p, v))
            text_printf(out, "offsetof(%s_inputs, dim_%s)", p->name, p->var_name[v->id]);
        else
            text_puts(out, "(size_t)-1");
        text_puts(out, "},\n");
    }
    if (n > 0)
        text_puts(out, "};\n");
    return n;
}

static void write_kernels(struct program *p, struct text *out)
{
    text_printf(out, "static const struct %s_kernel kernel_info[] = {\n", p->name);
    for (int i = 0; i < p->s->nkernel; i++) {
        const struct kernel *k = p->s->kernel[i];
        text_printf(out, "    {\"%s\", ", p->kernel_name[i]);
        text_string(out, k->title ? k->title : "");
        text_printf(out, ", %.0f, %.0f},\n", k->flop, k->nbytes);
    }
    if (p->s->nkernel == 0)
        text_puts(out, "    {NULL, NULL, 0, 0}\n");
    text_puts(out, "};\n");
}

/* Of the input or state of this number among all of them. */
static void write_rules(struct text *out, const struct program_feed *feed, int rank, int index)
{
    if (rank == 0)
        return;
    text_printf(out, "static const char *const feed_rule_%d[] = {", index);
    for (int a = 0; a < rank; a++)
        text_printf(out, feed->rule[a] ? "%s\"%s\"" : "%sNULL", a > 0 ? ", " : "", feed->rule[a]);
    text_puts(out, "};\n");
}

/* Returns whether there are any. */
static bool write_feeds(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    int n = program_training(s) ? program_count_inputs(s) : s->ninput + s->nstate;
    const struct program_feed *feed = feeds_describe(p->t, s);
    for (int i = 0; i < n; i++)
        write_rules(out, &feed[i], feeds_buffer(s, i)->ndim, i);
    if (n > 0)
        text_printf(out, "static const struct %s_feed feed_info[] = {\n", p->name);
    for (int i = 0; i < n; i++)
        text_printf(out, "    {%s, %lld, %lld},\n",
                    feeds_buffer(s, i)->ndim ? mem_printf(p->t, "feed_rule_%d", i) : "NULL",
                    (long long)feed[i].least, (long long)feed[i].most);
    text_puts(out, n > 0 ? "};\n" : "");
    return n > 0;
}

void describe_write(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    int ninput = program_count_inputs(s), noutput = program_count_outputs(s);
    bool trains = program_training(s) != NULL;
    int nstate = trains ? 0 : s->nstate, nentry = trains ? 0 : schedule_count_entries(s);
    write_tensors(p, out, "input", s->input, ninput, false);
    write_tensors(p, out, "output", s->output, noutput, true);
    int nsymbol = write_symbols(p, out);
    write_kernels(p, out);
    if (nstate)
        state_write_info(p, out);
    if (nentry)
        entries_write_info(p, out);
    int nslice = slices_write_info(p, out), nmeta = meta_write_info(p, out);
    bool feeds = write_feeds(p, out);
    double flop = run_use(p->t, s, -1).flop;
    text_printf(
        out,
        "\nconst struct %s_info *%s_describe(void)\n{\n    static const struct %s_info info = {\n",
        p->name, p->name, p->name);
    text_printf(out, "        %d, \"%s\", ", PROGRAM_INFO_VERSION, p->name);
    text_string(out, p->o->producer);
    text_printf(out, ", \"%s\",\n        %d, %d, %d, %d, %s, %s, %s, kernel_info,\n",
                p->backend->name, ninput, noutput, nsymbol, s->nkernel,
                ninput ? "input_info" : "NULL", noutput ? "output_info" : "NULL",
                nsymbol ? "symbol_info" : "NULL");
    text_printf(out,
                "        %s_ARENA_BYTES, %s_ARENA_ALIGN, %zu, %d, %.0f,\n        "
                "sizeof(%s_inputs), sizeof(%s_outputs), %s_STACK_BYTES,\n",
                p->upper, p->upper, s->weight_nbytes, p->weights == WEIGHTS_FILE && s->nweight > 0,
                flop, p->name, p->name, p->upper);
    text_printf(out, "        %d, %s, %zu,\n", nstate, nstate ? "state_info" : "NULL",
                nstate ? program_state_bytes(p->t, s) : 0);
    text_printf(out, "        %d, %s, %s,\n", nentry, nentry ? "entry_info" : "NULL",
                nentry ? mem_printf(p->t, "offsetof(%s_inputs, dim_%s)", p->name,
                                                       p->var_name[s->graph->entry_number->id])
                                          : "(size_t)-1");
    text_printf(out, "        %d, %d, %s, %s, %s,\n", nslice, nmeta, nslice ? "slice_info" : "NULL",
                nmeta ? "meta_info" : "NULL", feeds ? "feed_info" : "NULL");
    text_puts(out, "    };\n    return &info;\n}\n\n");
}
