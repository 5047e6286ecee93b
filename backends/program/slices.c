/* slices.c - the names of parts of outputs, and what the model says of itself, in NAME.h and in the
 * tables of NAME_describe().
 *
 *      #define PILOT_AT_POLICY_PLAN 0             out.policy + PILOT_AT_POLICY_PLAN
 *      #define PILOT_SIZE_POLICY_PLAN 990
 */
#include "backends/program/program.h"

static const struct graph_output *output_at(const struct program *p, int i)
{
    static const struct graph_output none;
    return p->s->graph ? &p->s->graph->output[i] : &none;
}

void slices_write_macros(struct program *p, struct text *out)
{
    static const struct macro_form form[] = {{"AT_", ""}, {"SIZE_", ""}};
    for (int i = 0; i < p->s->noutput; i++) {
        const struct graph_output *o = output_at(p, i);
        for (int k = 0; k < o->nslice; k++) {
            const struct graph_slice *s = &o->slice[k];
            const char *word =
                mem_printf(p->t, "%s_%s", p->buffer_name[p->s->output[i]->id], s->name);
            const char *name = program_name_macros(p, word, "PART", form, 2);
            text_printf(out, "#define %s_AT_%s %lld\n#define %s_SIZE_%s %lld\n", p->upper, name,
                        (long long)s->begin, p->upper, name, (long long)s->size);
        }
    }
}

int slices_write_info(struct program *p, struct text *out)
{
    int n = 0;
    for (int i = 0; i < p->s->noutput; i++) {
        const struct graph_output *o = output_at(p, i);
        for (int k = 0; k < o->nslice; k++) {
            if (n++ == 0)
                text_printf(out, "static const struct %s_slice slice_info[] = {\n", p->name);
            text_puts(out, "    {");
            text_string(out, o->slice[k].name);
            text_printf(out, ", %d, %lld, %lld},\n", i, (long long)o->slice[k].begin,
                        (long long)o->slice[k].size);
        }
    }
    text_puts(out, n ? "};\n" : "");
    return n;
}

int meta_write_info(struct program *p, struct text *out)
{
    const struct graph *g = p->s->graph;
    int n = g ? g->nmeta : 0;
    if (n > 0)
        text_printf(out, "static const struct %s_meta meta_info[] = {\n", p->name);
    for (int i = 0; i < n; i++) {
        text_puts(out, "    {");
        text_string(out, g->meta[i].key);
        text_puts(out, ", ");
        text_string(out, g->meta[i].value);
        text_puts(out, "},\n");
    }
    text_puts(out, n ? "};\n" : "");
    return n;
}
