/* header.c - NAME.h: the macros, structs and functions that callers see, in C99 and C++. */
#include "backends/program/program.h"

#include <string.h>

static void write_tensor_comment(struct text *out, const struct buffer *b, const char *field)
{
    text_printf(out, " /* %s", dtype_name(b->dtype));
    text_dims(out, b->dim, b->ndim, "[", "]");
    if (b->name && strcmp(b->name, field) != 0) {
        text_puts(out, "  \"");
        text_comment(out, b->name);
        text_putc(out, '"');
    }
    text_puts(out, " */\n");
}

/* Whether the caller passes the size; not the number of an entry of a training. */
static bool is_field(const struct program *p, const struct var *v)
{
    return program_training(p->s) ? program_is_shared_field(p, v) : program_is_field(p, v);
}

static void write_inputs(struct program *p, bool of_all, struct text *out)
{
    const struct schedule *s = p->s;
    int ninput = of_all ? s->ninput : program_count_inputs(s), nfield = ninput;
    text_puts(out, of_all ? "/* What the entries take: each of them its own. */\n"
                          : "/* In the order of the model; run-time dimensions follow the tensors. "
                            "*/\n");
    text_printf(out, "typedef struct %s_%sinputs {\n", p->name, of_all ? "all_" : "");
    for (int i = 0; i < ninput; i++) {
        const struct buffer *b = s->input[i];
        size_t start = out->n;
        text_printf(out, "    %s%s;", const_pointer(b->dtype), p->buffer_name[b->id]);
        text_pad(out, start, 32);
        write_tensor_comment(out, b, p->buffer_name[b->id]);
    }
    for (int i = 0; i < s->nvar; i++) {
        const struct var *v = s->var[i];
        if (of_all ? !program_is_field(p, v) : !is_field(p, v))
            continue;
        size_t start = out->n;
        text_printf(out, "    int64_t dim_%s;", p->var_name[v->id]);
        text_pad(out, start, 32);
        text_printf(out, " /* %lld to %lld */\n", (long long)v->min, (long long)v->max);
        nfield++;
    }
    if (nfield == 0)
        text_puts(out, "    const void *unused;             /* this model has no inputs */\n");
    text_printf(out, "} %s_%sinputs;\n\n", p->name, of_all ? "all_" : "");
}

static void write_outputs(struct program *p, bool of_all, struct text *out)
{
    const struct schedule *s = p->s;
    int noutput = of_all ? s->noutput : program_count_outputs(s);
    if (!of_all)
        text_puts(out, "/* Memory of the caller. Where a dimension is known only at run time the "
                       "memory must hold the\n"
                       " * bound, and the run writes the shape beside the pointer. Inputs and "
                       "outputs must not overlap. */\n");
    text_printf(out, "typedef struct %s_%soutputs {\n", p->name, of_all ? "all_" : "");
    for (int i = 0; i < noutput; i++) {
        const struct buffer *b = s->output[i];
        const char *field = p->buffer_name[b->id], *type = dtype_ctype(b->dtype);
        size_t start = out->n;
        text_printf(out, "    %s%s*%s;", type, b->dtype == DTYPE_STRING ? "" : " ", field);
        text_pad(out, start, 32);
        write_tensor_comment(out, b, field);
        if (program_has_shape_field(b))
            text_printf(out, "    int64_t %s_shape[%d];\n", field, b->ndim);
    }
    if (noutput == 0)
        text_puts(out, "    void *unused;                   /* this model has no outputs */\n");
    text_printf(out, "} %s_%soutputs;\n\n", p->name, of_all ? "all_" : "");
}

void header_write_all_structs(struct program *p, struct text *out)
{
    if (!program_training(p->s))
        return;
    const struct var *v = p->s->graph->entry_number;
    text_printf(out, "#define %s_MAX_%s %lld\n\n", p->upper,
                name_upper(p->t, p->var_name[v->id]), (long long)v->max);
    write_inputs(p, true, out);
    write_outputs(p, true, out);
}

static void write_macros(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    text_printf(
        out, "#define %s_ARENA_BYTES %zu      /* scratch and state, which the caller provides */\n",
        p->upper, program_arena_bytes(p->t, p->s));
    text_printf(out, "#define %s_ARENA_ALIGN 64\n", p->upper);
    text_printf(out,
                "/* the most that a run takes of its caller's stack%s */\n"
                "#define %s_STACK_BYTES %zu\n",
                p->backend->kernel ? ": gcc, clang, -O1 to -O3 and -Os" : "", p->upper,
                program_stack_bytes(p->t, p->s));
    state_write_macro(p, out);
    if (p->backend->device)
        text_printf(out, "#define %s_DEVICE_BYTES %zu     /* of the device's memory, beside the "
                         "weights */\n", p->upper, p->device_nbytes);
    if (p->threads > 1 && !p->backend->device)
        text_printf(out, "#define %s_THREADS %d      /* of a run, the caller's among them */\n",
                    p->upper, p->threads);
    for (int i = 0; i < s->nvar; i++)
        if (!s->var[i]->is_counter &&
            (is_field(p, s->var[i]) || !program_is_field(p, s->var[i]))) {
            text_printf(out, "#define %s_MAX_%s %lld", p->upper,
                        name_upper(p->t, p->var_name[s->var[i]->id]), (long long)s->var[i]->max);
            text_puts(out, program_is_field(p, s->var[i])
                               ? "      /* bound of a run-time dimension: \""
                           : state_is_length(s->graph, s->var[i])
                               ? "      /* bound to which states grow: \""
                               : "      /* bound of what the run finds: \"");
            text_comment(out, s->var[i]->name);
            text_puts(out, "\" */\n");
            if (program_is_field(p, s->var[i]) && s->var[i]->min > 0)
                text_printf(out, "#define %s_MIN_%s %lld\n", p->upper,
                            name_upper(p->t, p->var_name[s->var[i]->id]),
                            (long long)s->var[i]->min);
        }
    example_write_macros(p, out);
    slices_write_macros(p, out);
    training_write_macros(p, out);
    if (p->weights == WEIGHTS_FILE && s->nweight > 0)
        text_printf(out, "#define %s_WEIGHTS_BYTES %zu    /* the size of %s.weights */\n", p->upper,
                    s->weight_nbytes, p->name);
    if (p->weights != WEIGHTS_FILE && s->nweight > 0 && p->backend->kernel)
        text_printf(
            out,
            "/* %s_WEIGHTS_SECTION, defined for %s.c as a string (\".flash\"), is the section "
            "that\n * the weights lie in. */\n",
            p->upper, p->name);
    text_putc(out, '\n');
}

static void write_statuses(struct program *p, struct text *out)
{
    struct { const char *name, *text; int value; bool occurs; } table[] = {
#define STATUS(name, value, text) {#name, text, value, true},
#define TRAINING_STATUS(name, value, text) {#name, text, value, program_training(p->s) != NULL},
#define DEVICE_STATUS(name, value, text) {#name, text, value, p->backend->device != NULL},
#include "backends/program/statuses.def"
#undef STATUS
    };
    int n = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].occurs)
            table[n++] = table[i];
    text_printf(out, "/* What %s_init and %s_run return. */\nenum %s_status {\n", p->name, p->name,
                p->name);
    for (int i = 0; i < n; i++) {
        size_t start = out->n;
        text_printf(out, "    %s_%s = %d%s", p->upper, table[i].name, table[i].value,
                    i + 1 < n ? "," : "");
        text_pad(out, start, 32 + strlen(p->upper));
        text_printf(out, " /* %s */\n", table[i].text);
    }
    text_puts(out, "};\n\n");
}

static const char options_text[] =
    "typedef struct model_options {\n"
    "    int threads;                    /* of a run, at most as compiled; 0: as compiled */\n"
    "    const void *weights;            /* --weights=file: what model_.weights holds, 64-byte "
    "aligned */\n"
    "    size_t weights_bytes;\n"
    "    /* Your thread pool, instead of threads of the model's own: calls body(context, 0) ...\n"
    "     * body(context, count - 1), at once or in any order, and returns when all are done; "
    "count "
    "is\n"
    "     * `threads`. A model compiled for one thread does not call it. */\n"
    "    void (*parallel_for)(void *user, int count, void (*body)(void *context, int index),\n"
    "                         void *context);\n"
    "    /* Called before each kernel, and once with index == kernel_count and NULL when a run "
    "ends. */\n"
    "    void (*on_kernel)(void *user, int index, const char *kernel);\n"
    "    void *user;                     /* handed to the two functions above */\n";

/* Of programs for devices. */
static const char device_options_text[] =
    "    int device;                     /* as `tgc devices` counts; 0: the first GPU, else the "
    "first */\n"
    "    /* The caller's HANDLES; NULL: the model's own. */\n"
    "    void *context, *queue;\n"
    "    /* Functions of yours, which get `user`, too, or NULL.\n"
    "     * A cache of programs that the driver has compiled, by a key that is a file's name. "
    "load_program\n"
    "     * copies a binary to `to` if it has no more than `size` bytes, and returns its size, or "
    "0CACHE_NOTE. */\n"
    "    size_t (*load_program)(void *user, const char *key, void *to, size_t size);\n"
    "    void (*save_program)(void *user, const char *key, const void *binary, size_t size);\n"
    "    /* Told each kernel's nanoseconds by the device's clock; kernels then wait for each "
    "other. */\n"
    "    void (*on_kernel_time)(void *user, int index, const char *kernel, double ns);\n"
    "    /* Told what is wrong with the device, in a sentence, when a call fails. */\n"
    "    void (*on_error)(void *user, const char *text);\n";

static const char image_options_text[] =
    "    /* How tensors become images: 1 images of two axes over the memory, 2 of one axis, 3 "
    "images that\n"
    "     * are filled by copies; 0: the first of these that the device has. */\n"
    "    int images;\n";

/* One text: it is read as a whole, to tell fields from other words. */
static void write_options(struct program *p, struct text *out)
{
    static const struct text_word none[] = {{NULL, NULL}};
    const char *text = mem_printf(p->t, "%s%s%s%s} model_options;\n\n", options_text,
                                  training_options(p),
                                  p->backend->device ? device_options_text : "",
                                  p->nimage > 0 ? image_options_text : "");
    program_write_words(p, out, text, p->backend->device ? p->backend->word : none);
}

static const char functions_text[] =
    "/* Makes a model in the caller's arena: at least MODEL_ARENA_BYTES at a multiple of\n"
    " * MODEL_ARENA_ALIGN, untouched until model_close. options may be NULL. Several models may "
    "run at\n"
    " * once, each in its own arena. */\n"
    "MODEL_API int model_init(model_self **made, void *arena, size_t arena_bytes, const model_options "
    "*options);\n"
    "MODEL_API int model_run(model_self *self, const model_inputs *in, model_outputs *out);\n"
    "MODEL_API void model_close(model_self *self);\n"
    "MODEL_API const char *model_strerror(int status);\n"
    "MODEL_API const struct model_info *model_describe(void);\n\n";

/* -Os */
static const char bare_text[] =
    "/* -DMODEL_STRINGS for model_.c, which takes some more memory: model_describe() is there, and\n"
    " * model_strerror() says more than \"\". */\n\n";

static const char selftest_text[] =
    "/* -DMODEL_SELFTEST for FILE_OF_IT: runs the model in this memory, a multiple of\n"
    " * MODEL_ARENA_ALIGN, on inputs that it draws, and compares with what tgc computed of them:\n"
    " * MODEL_OK, MODEL_WRONG_RESULT, MODEL_NO_REFERENCE, or what failed. options may be NULL. */\n"
    "#define MODEL_SELFTEST_BYTES NBYTES\n"
    "MODEL_API int model_selftest(void *memory, size_t memory_bytes, const model_options *options);\n\n";

static const char device_functions_text[] =
    "/* The run without waiting for its end: inputs and results must stay until then. event, "
    "unless NULL,\n"
    " * becomes the END_HANDLE. A run in which the host computes, too,\n"
    " * waits for what it reads. What runs find of their inputs meanwhile, such as an index out of "
    "range, model_wait\n"
    " * returns, once: MODEL_BAD_VALUE, of one or more runs since it was called last. Their "
    "results are not to be used,\n"
    " * states are as before them. If states grow, or have two places, model_enqueue waits for the "
    "run before, and\n"
    " * returns its MODEL_BAD_VALUE in place of a run. */\n"
    "MODEL_API int model_enqueue(model_self *self, const model_inputs *in, model_outputs *out, void "
    "**event);\n"
    "MODEL_API int model_wait(model_self *self);     /* for the end of all runs */\n"
    "/* Binds the input or output of this number in model_inputs or model_outputs to\n"
    " * BUFFER_HANDLE of the model's context, from byte `at` on, a multiple of 128. The\n"
    " * following runs use it in place of a pointer. It has room for an output's bound, or an\n"
    " * input's size in each run. NULL: a pointer again. */\n"
    "MODEL_API int model_bind_input(model_self *self, int input, void *buffer, size_t at);\n"
    "MODEL_API int model_bind_output(model_self *self, int output, void *buffer, size_t at);\n\n";

static const char info_text[] =
    "/* What model_describe() returns, for tools. The layout does not depend on the model. */\n"
    "struct model_dim {\n"
    "    int64_t size;                   /* the size, or the upper bound of a run-time dimension "
    "*/\n"
    "    const char *symbol;             /* NULL: fixed; else a symbol or an expression of symbols "
    "*/\n"
    "};\n"
    "struct model_tensor {\n"
    "    const char *name, *dtype;       /* as in the model; \"f32\" */\n"
    "    size_t element_bytes;\n"
    "    int rank;\n"
    "    const struct model_dim *dim;    /* [rank] */\n"
    "    size_t offset;                  /* of the pointer in model_inputs or model_outputs */\n"
    "    size_t shape_offset;            /* of int64_t NAME_shape[rank] in model_outputs; "
    "(size_t)-1: none */\n"
    "};\n"
    "struct model_symbol {\n"
    "    const char *name;\n"
    "    int64_t min, max;\n"
    "    size_t offset;                  /* of int64_t dim_NAME in model_inputs; (size_t)-1: the "
    "run finds it */\n"
    "};\n"
    "struct model_kernel {\n"
    "    const char *name, *title;       /* the C function; the model's nodes */\n"
    "    double flop, bytes;             /* of one launch, at the dimensions' upper bounds */\n"
    "};\n"
    "struct model_state {\n"
    "    const char *from;               /* the output; its next run's input: */\n"
    "    struct model_tensor input;      /* sizes are bounds; offset: of its data in a block */\n"
    "    int axis;                       /* along which it grows; -1: none */\n"
    "    size_t length_offset;           /* of its length in a block; (size_t)-1: none */\n"
    "};\n"
    "struct model_entry {\n"
    "    const char *name;\n"
    "    int input, input_count, output, output_count;   /* those of all inputs and outputs that "
    "it has */\n"
    "};\n"
    "struct model_slice {                /* a part of an output that has a name */\n"
    "    const char *name;\n"
    "    int output;                     /* its number among all outputs */\n"
    "    size_t begin, size;             /* elements of its last axis */\n"
    "};\n"
    "struct model_meta {\n"
    "    const char *key, *value;\n"
    "};\n"
    "struct model_feed {                 /* what callers check of an input, and draw for it */\n"
    "    const char *const *rule;        /* [rank]: NULL: the size is fixed; else what it follows "
    "from, in postfix:\n"
    "                                     * \"$0 2 mul\" is twice symbols[0]; NULL for rank 0 */\n"
    "    int64_t least, most;            /* integers that its uses allow; least > most: it holds "
    "none */\n"
    "};\n"
    "struct model_info {\n"
    "    int version;                    /* of this layout: 5 */\n"
    "    const char *name, *producer, *target;\n"
    "    int input_count, output_count, symbol_count, kernel_count;\n"
    "    const struct model_tensor *inputs, *outputs;\n"
    "    const struct model_symbol *symbols;\n"
    "    const struct model_kernel *kernels;\n"
    "    size_t arena_bytes, arena_align;\n"
    "    size_t weights_bytes;\n"
    "    int weights_external;           /* 1: model_options.weights is needed */\n"
    "    double flop;                    /* of one run */\n"
    "    size_t inputs_bytes, outputs_bytes;\n"
    "    size_t stack_bytes;             /* MODEL_STACK_BYTES */\n"
    "    int state_count;\n"
    "    const struct model_state *states;\n"
    "    size_t state_bytes;             /* MODEL_STATE_BYTES; 0: no state */\n"
    "    int entry_count;                /* 0: the model is one run */\n"
    "    const struct model_entry *entries;\n"
    "    size_t entry_offset;            /* of an int64_t in model_inputs: the entry that "
    "model_run runs */\n"
    "    int slice_count, meta_count;\n"
    "    const struct model_slice *slices;\n"
    "    const struct model_meta *meta;  /* what the model says of itself */\n"
    "    const struct model_feed *feeds; /* [input_count + state_count]: of inputs, then of states "
    "*/\n"
    "};\n\n";

static void write_selftest(const struct program *p, struct text *out)
{
    const struct text_word word[] = {
        {"FILE_OF_IT", p->o->main ? p->o->main_name : mem_printf(p->t, "%s.c", p->name)},
        {"NBYTES", mem_printf(p->t, "%zu", selftest_bytes(p))}, {NULL, NULL}};
    program_write_words(p, out, selftest_text, word);
}

static const char api_text[] =
    "/* Of the tgc that wrote this file. */\n"
    "#define MODEL_TGC_VERSION \"NUMBER\"\n\n"
    "/* Stands before each function: define it as __declspec(dllexport) or the like. */\n"
    "#ifndef MODEL_API\n#define MODEL_API\n#endif\n\n";

/* "0.1.0" of "tgc 0.1.0" */
static const char *version_of(const char *producer)
{
    const char *blank = strrchr(producer, ' ');
    return blank ? blank + 1 : producer;
}

/* The numbers are ONNX's. */
static void write_dtypes(const struct program *p, struct text *out)
{
    static const struct { const char *name; int number; } row[] = {
#define DTYPE(name, text, ctype, bits, kind, onnx) {#name, onnx},
#include "ir/dtypes.def"
#undef DTYPE
    };
    text_printf(out,
                "/* What the _DTYPE of a tensor is: ONNX's numbers. */\nenum %s_dtype {\n    ",
                p->name);
    struct text_list list = {.out = out, .separator = ",", .line = out->n - 4, .indent = 4};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (row[i].number)
            list_put(&list, mem_printf(p->t, "%s_%s = %d", p->upper, row[i].name, row[i].number));
    text_puts(out, "\n};\n\n");
}

static void write_head(struct program *p, struct text *out)
{
    const char *n = p->name;
    text_printf(out, "/* %s.h - ", n);
    text_comment(out, p->o->model ? p->o->model : n);
    text_puts(out, " as a C library, by ");
    text_comment(out, p->o->producer);
    text_puts(out, ".\n *\n");
    example_write(p, out);
    if (program_training(p->s))
        text_puts(out, " *\n * No heap, no files, no global state: what changes is in the arena and "
                       "the blocks, and\n * what is learned in the blocks alone.\n");
    else if (program_is_on_stack(p->s) && p->s->arena_nbytes > 0)
        text_printf(out,
                    " *\n * No heap, no files, no global state: the arena holds the model, a run's "
                    "stack %zu bytes of\n * intermediates.\n",
                    p->s->arena_nbytes);
    else
        text_puts(out, " *\n * No heap, no files, no global state: the arena holds everything that "
                       "changes.\n");
}

void header_write(struct program *p, struct text *out)
{
    const char *n = p->name;
    write_head(p, out);
    text_puts(
        out,
        " *\n * This header is its user's without obligation. SPDX-License-Identifier: 0BSD */\n");
    text_printf(out, "#ifndef %s_H\n#define %s_H\n\n#include <stddef.h>\n#include <stdint.h>\n\n",
                p->upper, p->upper);
    text_puts(out, "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n");
    const struct text_word word[] = {{"NUMBER", version_of(p->o->producer)}, {NULL, NULL}};
    program_write_words(p, out, api_text, word);
    write_dtypes(p, out);
    write_macros(p, out);
    text_printf(out, "typedef struct %s %s;           /* lives at the start of the arena */\n\n", n,
                n);
    write_inputs(p, false, out);
    write_outputs(p, false, out);
    write_options(p, out);
    write_statuses(p, out);
    program_write_text(p, out, functions_text);
    if (program_is_bare(p))
        program_write_text(p, out, bare_text);
    if (program_has_selftest(p))
        write_selftest(p, out);
    if (p->backend->device && !program_training(p->s))
        program_write_words(p, out, device_functions_text, p->backend->word);
    if (!program_training(p->s))
        entries_write_header(p, out);
    externals_write_header(p, out);
    state_write_header(p, out);
    program_write_text(p, out, info_text);
    training_write_header(p, out);
    text_puts(out, "#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
}
