/* example.c - the example at the head of NAME.h, which compiles as the body of a function, and the
 * macros of each tensor, which it uses.
 *
 *      #define MNIST_IMAGE_SIZE 784           elements, at the dimensions' upper bounds
 *      #define MNIST_IMAGE_BYTES 3136
 *      #define MNIST_IMAGE_RANK 4
 *      #define MNIST_IMAGE_DIMS {1, 1, 28, 28}
 *      #define MNIST_IMAGE_DTYPE MNIST_F32    of enum mnist_dtype
 *      #define MNIST_IMAGE_SCALE 0.0078125f   of quantized tensors: (x - zero point) * scale
 *      #define MNIST_IMAGE_ZERO_POINT 128
 */
#include "backends/program/program.h"

#include <string.h>

static void name_macros(struct program *p, bool output)
{
    static const struct macro_form form[] = {
        {"", "_SIZE"}, {"", "_BYTES"}, {"", "_RANK"},      {"", "_DIMS"},
        {"", "_DTYPE"}, {"", "_SCALE"}, {"", "_ZERO_POINT"}};
    const struct schedule *s = p->s;
    for (int i = 0; i < (output ? s->noutput : s->ninput); i++) {
        const struct buffer *b = output ? s->output[i] : s->input[i];
        int entry = output ? entry_of_output(s, i) : entry_of_input(s, i);
        const char *wanted = p->buffer_name[b->id];
        if (training_target(p) == b)
            wanted = "targets";
        else if (entry >= 0 && !program_training(s))
            wanted = mem_printf(p->t, "%s_%s", s->graph->entry[entry].name, b->name);
        p->macro_name[b->id] =
            program_name_macros(p, wanted, output ? "OUTPUT" : "INPUT", form, sizeof form / sizeof *form);
    }
}

void example_name_macros(struct program *p)
{
    p->macro_name = mem_array(p->t, (size_t)p->nbuffer_id + 1, sizeof *p->macro_name);
    name_macros(p, false);
    name_macros(p, true);
}

static size_t count_elements(const struct buffer *b)
{
    size_t n = 1;
    for (int a = 0; a < b->ndim; a++)
        n *= (size_t)dim_bound(b->dim[a]);
    return n;
}

static void write_macros_of(struct program *p, const struct buffer *b,
                            const struct quantization *q, struct text *out)
{
    const char *name = mem_printf(p->t, "%s_%s", p->upper, p->macro_name[b->id]);
    text_printf(out, "#define %s_SIZE %zu\n#define %s_BYTES %zu\n#define %s_RANK %d\n", name,
                count_elements(b), name, count_elements(b) * dtype_nbytes(b->dtype), name, b->ndim);
    if (b->ndim > 0) {
        text_printf(out, "#define %s_DIMS {", name);
        for (int a = 0; a < b->ndim; a++)
            text_printf(out, "%s%lld", a ? ", " : "", (long long)dim_bound(b->dim[a]));
        text_puts(out, "}\n");
    }
    text_printf(out, "#define %s_DTYPE %s_%s\n", name, p->upper,
                name_upper(p->t, dtype_name(b->dtype)));
    if (!q)
        return;
    text_printf(out, "#define %s_SCALE ", name);
    text_float(out, (float)q->scale);
    text_printf(out, "\n#define %s_ZERO_POINT %lld\n", name, (long long)q->zero);
}

void example_write_macros(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    const struct buffer *target = training_target(p);
    int ninput = program_count_inputs(s), noutput = program_count_outputs(s);
    if (ninput + noutput > 0)
        text_puts(out, "/* Of each tensor, where every dimension is at its upper bound. */\n");
    for (int i = 0; i < ninput; i++)
        write_macros_of(p, s->input[i], s->input[i]->port.quantization, out);
    for (int i = 0; i < noutput; i++)
        write_macros_of(p, s->output[i],
                        s->graph && i < s->graph->noutput ? s->graph->output[i].quantization : NULL,
                        out);
    if (target)
        write_macros_of(p, target, NULL, out);
}

/* ---------------------------------------------------------------------------------- the example */

enum { MARGIN = 7 };             /* " *     " */

/* Code, as lines of the header's comment. */
static void write_as_comment(const char *code, struct text *out)
{
    while (*code) {
        int n = (int)strcspn(code, "\n");
        text_printf(out, " *     %.*s\n", n, code);
        code += n + (code[n] == '\n');
    }
}

/* The array that a field points to. A string that was not set would be NULL. */
static const char *declare_array(struct program *p, const struct buffer *b, const char *wanted,
                                 struct names *names, struct text *code)
{
    bool is_own = strncmp(wanted, p->name, strlen(p->name)) == 0;     /* may hide a function */
    const char *name =
        names_unique(names, is_own ? mem_printf(p->t, "n_%s", wanted) : wanted, "tensor");
    const char *size = mem_printf(p->t, "%s_%s_SIZE", p->upper, p->macro_name[b->id]);
    bool text = b->dtype == DTYPE_STRING;
    text_printf(code, "static %s%s%s[%s];\n", dtype_ctype(b->dtype), text ? "" : " ", name,
                count_elements(b) ? size : "1");
    if (text)
        text_printf(code, "for (int i = 0; i < %s; i++)\n    %s[i] = \"\";\n", size, name);
    return name;
}

/* "model_inputs in = {.image = image, .dim_B = MODEL_MAX_B};" */
static void define_struct(struct program *p, int entry, bool output, const char *const *array,
                          struct text *code)
{
    const struct schedule *s = p->s;
    struct struct_fields f = entries_fields(p, entry, output);
    struct text_list list = {.out = code, .separator = ",", .line = code->n,
                             .tail = MARGIN + strlen("};")};
    text_printf(code, "%s_%s = {", entry < 0 ? p->name : p->entry_name[entry],
                output ? "outputs out" : "inputs in");
    list.indent = code->n - list.line;
    for (int i = 0; i < f.n; i++)
        list_put(&list, mem_printf(p->t, ".%s = %s", f.name[i], array[i]));
    for (int i = 0; i < s->nvar && !output; i++)
        if (program_is_shared_field(p, s->var[i])) {
            const char *name = p->var_name[s->var[i]->id];
            list_put(&list, mem_printf(p->t, ".dim_%s = %s_MAX_%s", name, p->upper,
                                       name_upper(p->t, name)));
        }
    text_puts(code, list.any ? "};\n" : "NULL};\n");
}

/* The names of an example of the first entry, or of the model's one run. */
static struct names *names_of_locals(struct program *p)
{
    static const char *const word[] = {"arena", "in",        "out",    "model",   "status",
                                       "i",     "train",     "params", "options", "loss",
                                       "step",  "optimizer", "weights", "puts"};
    struct names *names = names_reserved(p->t);
    names->macros = mem_printf(p->t, "%s_", p->upper);
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        names_add(names, word[i]);
    return names;
}

void example_write(struct program *p, struct text *out)
{
    int entry = schedule_count_entries(p->s) && !program_training(p->s) ? 0 : -1;
    const char *run = entry < 0 ? p->name : p->entry_name[entry], *targets = "NULL";
    struct names *names = names_of_locals(p);
    struct text code = {.t = p->t}, structs = {.t = p->t};
    bool apart = p->weights == WEIGHTS_FILE && p->s->nweight > 0;
    program_write_text(p, &code, "static alignas(MODEL_ARENA_ALIGN) unsigned char "
                                 "arena[MODEL_ARENA_BYTES];\n");
    for (int output = 0; output < 2; output++) {
        struct struct_fields f = entries_fields(p, entry, output);
        const char **array = mem_array(p->t, (size_t)f.n + 1, sizeof *array);
        for (int i = 0; i < f.n; i++)
            array[i] = declare_array(p, f.b[i], f.name[i], names, &code);
        define_struct(p, entry, output, array, &structs);
    }
    if (training_target(p))
        targets = declare_array(p, training_target(p), "targets", names, &code);
    text_puts(&code, structs.s);
    if (program_training(p->s))
        training_write_blocks(p, &code);
    else if (apart)
        program_write_text(p, &code, "model_options options = {.weights = weights, "
                                     ".weights_bytes = MODEL_WEIGHTS_BYTES};\n"
                                     "// weights: what model_.weights holds, 64-byte aligned\n");
    text_printf(&code, "%s *model;\nint status = %s_init(&model, arena, sizeof arena, %s);\n",
                p->name, p->name, apart || program_training(p->s) ? "&options" : "NULL");
    if (program_training(p->s))
        training_write_steps(p, targets, &code);
    text_printf(&code,
                "if (status == %s_OK)\n    status = %s_run(model, &in, &out);\n"
                "if (status != %s_OK)\n    puts(%s_strerror(status));\n%s_close(model);\n",
                p->upper, run, p->upper, p->name, p->name);
    write_as_comment(code.s, out);
}
