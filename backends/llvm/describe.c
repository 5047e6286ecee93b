/* describe.c - what NAME_describe() returns: the tables of tensors, symbols and kernels, by the
 * same layout of inputs and outputs as in an emitted program. */
#include "backends/llvm/emit.h"
#include "passes/analysis/kernel_cost.h"

static struct program_dim *describe_dims(struct tgc *t, const struct buffer *b)
{
    struct program_dim *dim = mem_array(t, (size_t)b->ndim + 1, sizeof *dim);
    for (int a = 0; a < b->ndim; a++) {
        struct text symbol = {.t = t};
        if (b->dim[a]->op == OP_VAR)
            text_puts(&symbol, ((const struct var *)b->dim[a]->arg.p)->name);
        else if (b->dim[a]->op != OP_CONST)
            uop_print(&symbol, b->dim[a]);
        dim[a] = (struct program_dim){dim_bound(b->dim[a]), symbol.s};
    }
    return dim;
}

/* *nbytes: of the struct that has their pointers. */
static struct program_tensor *describe_tensors(struct tgc *t, struct buffer *const *b, int n,
                                               bool outputs, size_t *nbytes)
{
    struct program_tensor *x = mem_array(t, (size_t)n + 1, sizeof *x);
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        bool shape = outputs && program_has_shape_field(b[i]);
        x[i] = (struct program_tensor){
            .name = b[i]->name ? b[i]->name : "", .dtype = dtype_name(b[i]->dtype),
            .element_bytes = dtype_nbytes(b[i]->dtype), .rank = b[i]->ndim,
            .dim = b[i]->ndim ? describe_dims(t, b[i]) : NULL, .offset = at,
            .shape_offset = shape ? at + 8 : PROGRAM_NO_OFFSET};
        at += 8 + (shape ? 8 * (size_t)b[i]->ndim : 0);
    }
    *nbytes = at;
    return x;
}

static void describe_symbols(struct tgc *t, const struct schedule *s, struct program_info *info)
{
    struct program_symbol *x = mem_array(t, (size_t)s->nvar + 1, sizeof *x);
    for (int i = 0; i < s->nvar; i++) {
        const struct var *v = s->var[i];
        if (v->is_counter)
            continue;
        x[info->symbol_count] =
            (struct program_symbol){v->name, v->min, v->max, PROGRAM_NO_OFFSET};
        if (s->graph && s->graph->nentry && v == s->graph->entry_number)
            info->entry_offset = info->inputs_bytes;
        if (schedule_passes_var(s, v)) {
            x[info->symbol_count].offset = info->inputs_bytes;
            info->inputs_bytes += 8;
        }
        info->symbol_count++;
    }
    info->symbols = x;
}

static void describe_entries(struct tgc *t, const struct schedule *s, struct program_info *info)
{
    int n = schedule_count_entries(s);
    struct program_entry *x = mem_array(t, (size_t)n + 1, sizeof *x);
    for (int e = 0; e < n; e++) {
        const struct graph_entry *from = &s->graph->entry[e];
        x[e] = (struct program_entry){from->name, from->input, from->ninput, from->output,
                                      from->noutput};
    }
    info->entry_count = n;
    info->entries = n ? x : NULL;
}

static void describe_slices(struct tgc *t, const struct schedule *s, struct program_info *info)
{
    const struct graph *g = s->graph;
    struct program_slice *x = NULL;
    struct program_meta *meta = mem_array(t, (size_t)(g ? g->nmeta : 0) + 1, sizeof *meta);
    size_t cap = 0;
    for (int i = 0; g && i < s->noutput; i++)
        for (int k = 0; k < g->output[i].nslice; k++) {
            const struct graph_slice *from = &g->output[i].slice[k];
            struct program_slice one = {from->name, i, (size_t)from->begin, (size_t)from->size};
            VEC_PUSH(t, x, info->slice_count, cap, one);
        }
    info->slices = x;
    for (int i = 0; g && i < g->nmeta; i++)
        meta[info->meta_count++] = (struct program_meta){g->meta[i].key, g->meta[i].value};
    info->meta = info->meta_count ? meta : NULL;
}

static void describe_states(struct tgc *t, const struct schedule *s, struct program_info *info)
{
    struct program_state *x = mem_array(t, (size_t)s->nstate + 1, sizeof *x);
    const struct var **v = state_vars(t, s);
    for (int i = 0; i < s->nstate; i++) {
        const struct state *st = s->state[i];
        const struct buffer *b = st->in;
        int length = state_var_position(v, st->length);
        x[i] = (struct program_state){.from = st->from,
                                      .axis = st->length ? st->axis : -1,
                                      .input = {.name = st->name,
                                                .dtype = dtype_name(b->dtype),
                                                .element_bytes = dtype_nbytes(b->dtype),
                                                .rank = b->ndim,
                                                .dim = b->ndim ? describe_dims(t, b) : NULL,
                                                .offset = state_block_offset(t, s, i),
                                                .shape_offset = PROGRAM_NO_OFFSET},
                                      .length_offset = length < 0
                                                           ? PROGRAM_NO_OFFSET
                                                           : STATE_BLOCK_HEAD + 8 * (size_t)length};
    }
    info->state_count = s->nstate;
    info->states = s->nstate ? x : NULL;
    info->state_bytes = program_state_bytes(t, s);
}

void describe_program(struct tgc *t, const struct schedule *s, const char *name,
                      const char *producer, struct program_info *info)
{
    struct program_kernel *kernel = mem_array(t, (size_t)s->nkernel + 1, sizeof *kernel);
    *info = (struct program_info){.version = PROGRAM_INFO_VERSION, .name = name,
                                  .producer = producer, .target = "llvm",
                                  .input_count = s->ninput, .output_count = s->noutput,
                                  .kernel_count = s->nkernel, .arena_align = 64,
                                  .weights_bytes = s->weight_nbytes};
    for (int i = 0; i < s->nkernel; i++)
        kernel[i] = (struct program_kernel){s->kernel[i]->name,
                                            s->kernel[i]->title ? s->kernel[i]->title : "",
                                            s->kernel[i]->flop, s->kernel[i]->nbytes};
    info->kernels = kernel;
    info->inputs = describe_tensors(t, s->input, s->ninput, false, &info->inputs_bytes);
    info->outputs = describe_tensors(t, s->output, s->noutput, true, &info->outputs_bytes);
    info->entry_offset = PROGRAM_NO_OFFSET;
    describe_symbols(t, s, info);
    describe_entries(t, s, info);
    describe_slices(t, s, info);
    describe_states(t, s, info);
    info->feeds = feeds_describe(t, s);
    info->flop = run_use(t, s, -1).flop;
    info->arena_bytes = program_arena_bytes(t, s);
    info->stack_bytes = program_stack_bytes(t, s);
}
