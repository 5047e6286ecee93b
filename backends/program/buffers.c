/* buffers.c - questions about buffers: their declarations, their places, which share memory. */
#include "backends/program/program.h"

bool program_has_shape_field(const struct buffer *b)
{
    for (int a = 0; a < b->ndim; a++)
        if (b->dim[a]->op != OP_CONST)
            return true;
    return false;
}

int64_t dim_bound(const struct uop *dim) { return dim->vmax > 0 ? dim->vmax : 0; }

const char *const_pointer(enum dtype d)
{
    static const char *const pointer[] = {
#define DTYPE(name, text, ctype, bits, kind, onnx) "const " ctype " *",
#include "ir/dtypes.def"
#undef DTYPE
    };
    return d == DTYPE_STRING ? "const char *const *" : pointer[d];
}

/* (Strings that a run returns must outlive it.) */
bool program_is_on_stack(const struct schedule *s)
{
    for (int i = 0; i < s->nbuffer; i++)
        if (s->buffer[i]->kept)
            return false;
    return !s->on_device && !s->in_arena && s->arena_nbytes <= STACK_RUN_NBYTES;
}

void describe_write_dims(struct program *p, struct text *out, const char *table,
                         const struct buffer *b, int index)
{
    if (b->ndim == 0)
        return;
    text_printf(out, "static const struct %s_dim %s_dim_%d[] = {", p->name, table, index);
    for (int a = 0; a < b->ndim; a++) {
        struct text symbol = {.t = p->t};
        if (b->dim[a]->op == OP_VAR)
            text_puts(&symbol, ((const struct var *)b->dim[a]->arg.p)->name);
        else if (b->dim[a]->op != OP_CONST)
            uop_print(&symbol, b->dim[a]);
        text_printf(out, "%s{%lld, ", a > 0 ? ", " : "", (long long)dim_bound(b->dim[a]));
        if (symbol.s)
            text_string(out, symbol.s);
        else
            text_puts(out, "NULL");
        text_putc(out, '}');
    }
    text_puts(out, "};\n");
}

const struct graph_training *program_training(const struct schedule *s)
{
    return s->graph ? s->graph->training : NULL;
}

static const struct graph_entry *run_entry_of(const struct schedule *s)
{
    const struct graph_training *x = program_training(s);
    return x ? &s->graph->entry[x->run.number] : NULL;
}

int program_count_inputs(const struct schedule *s)
{
    const struct graph_entry *e = run_entry_of(s);
    return e ? e->ninput : s->ninput;
}

int program_count_outputs(const struct schedule *s)
{
    const struct graph_entry *e = run_entry_of(s);
    return e ? e->noutput : s->noutput;
}

bool program_is_bare(const struct program *p)
{
    return p->o->small && !p->backend->device && !program_training(p->s);
}

bool program_has_selftest(const struct program *p)
{
    return !p->o->no_main && !program_training(p->s);
}

void program_include_header(const struct program *p, struct text *out)
{
    text_printf(out, "#include \"%s\"\n",
                p->o->header ? p->o->header : mem_printf(p->t, "%s.h", p->name));
}
