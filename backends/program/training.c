/* training.c - programs whose parameters train: NAME_train(), NAME_gradients(), NAME_update(),
 * NAME_evaluate(), and NAME_run() over the same parameters.
 *
 *      the caller's blocks       parameters | gradients | the optimizer's state: runtime/train.c
 *      NAME_run, NAME_train ...  check the blocks, and fill the structs of all entries for
 *      run_entry()               NAME_run() of other programs, which runs one of the entries
 *
 * frontend/train/step.c makes the entries; states are in blocks, not in the arena (state.c).
 */
#include "backends/program/program.h"

#include <string.h>

enum { VERSION = 1 };

/* The weights of the loss: of each sample, or one of the run where the loss is the model's own. */
static const struct buffer *weights_of(const struct schedule *s)
{
    return s->input[program_training(s)->train.weight];
}

/* The pointers to blocks, and what aligns the numbers; of a device the head of the parameters. */
enum { OPTIONS = 64, DEVICE = 128 };

size_t training_head_bytes(const struct schedule *s)
{
    if (!program_training(s))
        return 0;
    const struct buffer *b = weights_of(s);
    return ((size_t)OPTIONS + (s->on_device ? DEVICE : 0) +
            (size_t)dim_bound(b->dim[0]) * dtype_nbytes(b->dtype) + 63) / 64 * 64;
}

size_t training_fields_at(const struct program *p)
{
    return p->head_bytes - training_head_bytes(p->s) + OPTIONS;
}

void training_write_fields(struct program *p, struct text *out)
{
    if (!program_training(p->s))
        return;
    if (p->backend->device)
        text_printf(out,
                    "    unsigned char head[%d];         /* that of the parameters */\n"
                    "    unsigned uploaded;              /* a bit for each block that the device "
                    "has */\n",
                    BLOCK_HEAD_BYTES);
    const struct buffer *b = weights_of(p->s);
    size_t start = out->n;
    text_printf(out, "    %s even[%lld];", dtype_ctype(b->dtype), (long long)dim_bound(b->dim[0]));
    text_pad(out, start, 36);
    text_puts(out, "/* sample_weight where it is NULL */\n");
}

/* ---------------------------------------------------------------------------------- the header */

const struct buffer *training_target(const struct program *p)
{
    const struct graph_training *x = program_training(p->s);
    return x && x->train.target >= 0 ? p->s->input[x->train.target] : NULL;
}

static const char *target_type(const struct program *p)
{
    return training_target(p) ? dtype_ctype(training_target(p)->dtype) : "void";
}

static const char *loss_type(const struct program *p)
{
    return dtype_ctype(p->s->output[program_training(p->s)->train.loss]->dtype);
}

static const char *weight_type(const struct program *p)
{
    return dtype_ctype(weights_of(p->s)->dtype);
}

void training_write_blocks(struct program *p, struct text *out)
{
    program_write_text(
        p, out,
        "static alignas(MODEL_PARAMS_ALIGN) unsigned char params[MODEL_PARAMS_BYTES];\n"
        "static alignas(MODEL_OPTIMIZER_ALIGN) unsigned char optimizer[MODEL_OPTIMIZER_BYTES];\n"
        "model_options options = {.params = params, .optimizer = optimizer};\n");
}

void training_write_steps(struct program *p, const char *targets, struct text *out)
{
    static const char steps_text[] =
        "model_train_inputs train = {.data = in, .learning_rate = MODEL_LEARNING_RATE,\n"
        "                            .weight_decay = MODEL_WEIGHT_DECAY};\n"
        "if (status == MODEL_OK)\n"
        "    status = model_params_init(model, 0);\n"
        "for (train.step = 1; train.step <= 10 && status == MODEL_OK; train.step++) {\n";
    program_write_text(p, out, steps_text);
    text_printf(out, "    %s loss;\n    status = %s_train(model, &train, %s, &loss);\n}\n",
                loss_type(p), p->name, targets);
    if (p->backend->device)
        program_write_text(p, out,
                           "if (status == MODEL_OK)\n    status = model_download(model);\n");
}

void training_write_macros(struct program *p, struct text *out)
{
    static const char *const upper[] = {"", "PARAMS", "GRADIENTS", "OPTIMIZER"};
    static const char *const what[] = {
        "", "the parameters", "sums of gradients", "what the optimizer keeps"};
    const struct graph_training *x = program_training(p->s);
    if (!x)
        return;
    for (int b = BLOCK_PARAMS; b < BLOCK_COUNT; b++)
        text_printf(out,
                    "#define %s_%s_BYTES %zu      /* of the block of %s */\n"
                    "#define %s_%s_ALIGN %d\n",
                    p->upper, upper[b], p->s->block_nbytes[b], what[b], p->upper, upper[b],
                    BLOCK_ALIGNMENT);
    text_printf(out, "#define %s_PARAMETERS %d      /* that train, and after them running "
                     "statistics: %d */\n",
                p->upper, x->nparam, x->nstatistic);
    text_printf(out, "#define %s_LEARNING_RATE ", p->upper);
    text_float(out, (float)x->learning_rate);
    text_puts(out, "      /* where you know no better one */\n");
    text_printf(out, "#define %s_WEIGHT_DECAY ", p->upper);
    text_float(out, (float)x->weight_decay);
    text_putc(out, '\n');
    if (x->nclass > 0 && x->nclass < INT64_MAX)
        text_printf(out, "#define %s_CLASSES %lld\n", p->upper, (long long)x->nclass);
}

static const char device_header_text[] =
    "/* The blocks are in the device's memory, where runs change them; yours are copies. These make\n"
    " * the device's those that you have, as model_init and model_params_init do with blocks that\n"
    " * are begun, and yours the device's: before a block is kept or looked at. */\n"
    "MODEL_API "
    "int model_upload(model_self *self);\n"
    "MODEL_API "
    "int model_download(model_self *self);\n"
    "/* Binds the input of this number in model_inputs, of all functions, to\n"
    " * BUFFER_HANDLE of the model's context, from byte `at` on, a multiple of 128: runs read it\n"
    " * in place of a pointer. NULL, and after a failure: a pointer again. */\n"
    "MODEL_API "
    "int model_bind_input(model_self *self, int input, void *buffer, size_t at);\n\n";

static const char options_text[] =
    "    /* Yours, at multiples of 64: parameters, which each run needs; sums of gradients, for\n"
    "     * model_gradients and model_update; what the optimizer keeps, for model_train and\n"
    "     * model_update. NULL: none. model_params_init fills all that are given. */\n"
    "    void *params, *gradients, *optimizer;\n"
    "    /* Several ranks that make each step together, of which this one has the number `rank`,\n"
    "     * from 0 on: sum_ranks makes x[n], f32, or f64 where element_bytes is 8, its sum over\n"
    "     * all of them, and returns 0. NULL: there is one. model_update calls it with the\n"
    "     * gradients, and model_train, which needs that block then, with the loss, too. */\n"
    "    int (*sum_ranks)(void *ranks_user, void *x, size_t n, size_t element_bytes);\n"
    "    void *ranks_user;\n"
    "    int ranks, rank;\n";

const char *training_options(const struct program *p)
{
    return program_training(p->s) ? options_text : "";
}

static const char header_text[] =
    "/* Training: LOSS_NAME, by OPTIMIZER_NAME. What a run takes beside the model's inputs. */\n"
    "typedef struct model_train_inputs {\n"
    "    model_inputs data;\n"
    "    const WEIGHT_TYPE *sample_weight;     /* WHAT_COUNTS */\n"
    "    float learning_rate, weight_decay;\n"
    "    int64_t step;                   /* the step's number, from 1 on */\n"
    "} model_train_inputs;\n\n"
    "/* Fills the block of parameters, and makes the other blocks those before the first step.\n"
    " * seed 0: the model's own weights; otherwise matrices and filters are drawn. Blocks that\n"
    " * are kept in a file and given again need no model_params_init: training goes on as without\n"
    " * the break.\n"
    " * A block of another model, or one that was not begun, is the status MODEL_BAD_STATE. */\n"
    "MODEL_API "
    "int model_params_init(model_self *self, uint64_t seed);\n"
    "/* One step. targets: TARGET_SHAPE. *loss is that before the step, of all ranks.\n"
    " * A target that is no class is MODEL_BAD_VALUE, and changes nothing. */\n"
    "MODEL_API "
    "int model_train(model_self *self, const model_train_inputs *in, const TARGET_TYPE *targets,\n"
    "                LOSS_TYPE *loss);\n"
    "/* Adds gradients to the block of these. Of several runs that make a step, sample_weight is\n"
    " * of all of them, and of all ranks: OF_RUNS is their mean.AND_SCALE */\n"
    "MODEL_API "
    "int model_gradients(model_self *self, const model_train_inputs *in,\n"
    "                    const TARGET_TYPE *targets, LOSS_TYPE *loss);\n"
    "/* The step by the sums of gradients, which are 0 then. Reads learning_rate, weight_decay\n"
    " * and step. */\n"
    "MODEL_API "
    "int model_update(model_self *self, const model_train_inputs *in);\n"
    "/* The loss, and nothing changes. *correct, unless correct is NULL: the samples whose class\n"
    " * is right, of those that count; -1: there are no classes. */\n"
    "MODEL_API "
    "int model_evaluate(model_self *self, const model_train_inputs *in, const TARGET_TYPE "
    "*targets,\n"
    "                   LOSS_TYPE *loss, LOSS_TYPE *correct);\n"
    "/* A parameter, from 0 on, then running statistics: name, dtype, shape, and the offset of\n"
    " * its data in the block. NULL: there are no more. */\n"
    "MODEL_API "
    "const struct model_tensor *model_parameter(int index);\n\n";

static const char scale_text[] =
    "\n * The loss is scaled, by what is in the optimizer's block: it needs that, too";

static const char counts_of_samples[] =
    "[samples]: what each counts in the loss; NULL: their mean";
static const char counts_of_run[] =
    "[1]: what the run counts in the loss of the step;\n"
    "                                     * NULL: as much as other ranks' runs";

static const char *targets_text(struct program *p)
{
    struct text x = {.t = p->t};
    const struct buffer *b = training_target(p);
    if (!b)
        return "NULL, for the loss is an output of the model";
    text_puts(&x, dtype_name(b->dtype));
    text_dims(&x, b->dim, b->ndim, "[", "]");
    if (program_training(p->s)->nclass > 0)
        text_puts(&x, ", class numbers");
    return x.s;
}

static const struct text_word *words_of(struct program *p)
{
    const struct graph_training *x = program_training(p->s);
    const struct text_word word[] = {{"LOSS_NAME", x->loss},
                                     {"OPTIMIZER_NAME", x->optimizer},
                                     {"WEIGHT_TYPE", weight_type(p)},
                                     {"TARGET_SHAPE", targets_text(p)},
                                     {"TARGET_TYPE", target_type(p)},
                                     {"LOSS_TYPE", loss_type(p)},
                                     {"WHAT_COUNTS", training_target(p) ? counts_of_samples
                                                                        : counts_of_run},
                                     {"OF_RUNS", training_target(p)
                                                     ? "1 / (runs x samples x ranks)"
                                                     : "1 / (runs x ranks)"},
                                     {"AND_SCALE", x->scales ? scale_text : ""},
                                     {NULL, NULL}};
    struct text_word *copy = mem_array(p->t, sizeof word / sizeof *word, sizeof *word);
    memcpy(copy, word, sizeof word);
    return copy;
}

void training_write_header(struct program *p, struct text *out)
{
    if (program_training(p->s))
        program_write_words(p, out, header_text, words_of(p));
    if (program_training(p->s) && p->backend->device)
        program_write_words(p, out, device_header_text, p->backend->word);
}

/* ---------------------------------------------------------------------------------- the blocks */

static uint64_t identity_of(const struct program *p, enum state_block block)
{
    const struct graph_training *x = program_training(p->s);
    return block == BLOCK_OPTIMIZER ? hash_bytes(x->identity, x->optimizer, strlen(x->optimizer))
                                    : x->identity;
}

static void write_rows(struct program *p, enum state_block block, struct text *out)
{
    int n = 0;
    for (int i = 0; i < p->s->nstate; i++) {
        const struct state *st = p->s->state[i];
        if (st->in->port.block != block)
            continue;
        if (n++ == 0)
            text_printf(out, "static const struct block_row %s_rows[] = {\n", training_block(block));
        size_t start = out->n;
        text_printf(out, "    {UINT64_C(0x%016llx), %zu},", (unsigned long long)buffer_key(st->in),
                    training_place_in_block(p->s, st));
        text_pad(out, start, 44);
        text_puts(out, " /* ");
        text_comment(out, st->name);
        text_printf(out, " %s", dtype_name(st->in->dtype));
        text_dims(out, st->in->dim, st->in->ndim, "[", "]");
        text_puts(out, " */\n");
    }
    text_puts(out, n ? "};\n" : "");
}

static int count_states(const struct schedule *s, enum state_block block)
{
    int n = 0;
    for (int i = 0; i < s->nstate; i++)
        n += s->state[i]->in->port.block == block;
    return n;
}

static void write_blocks(struct program *p, struct text *out)
{
    enum { NAME_BYTES = 24 };
    for (int b = BLOCK_PARAMS; b < BLOCK_COUNT; b++)
        write_rows(p, (enum state_block)b, out);
    text_puts(out, "static const struct block_info block_info[] = {\n");
    for (int b = BLOCK_PARAMS; b < BLOCK_COUNT; b++) {
        int n = count_states(p->s, (enum state_block)b);
        text_printf(out,
                    "    {{{'t', 'g', 'c', 'b', 'l', 'o', 'c', 'k'}, %d, %d, "
                    "UINT64_C(0x%016llx), %zu, 0, \"%.*s\"},\n     %s, %d},\n",
                    VERSION, b, (unsigned long long)identity_of(p, (enum state_block)b),
                    p->s->block_nbytes[b], NAME_BYTES - 1, p->name,
                    n ? mem_printf(p->t, "%s_rows", training_block((enum state_block)b)) : "NULL", n);
    }
    text_puts(out, "};\n\n");
}

/* The functions that copy blocks. restart: states are in their first places. */
static void write_copies(struct program *p, struct text *out)
{
    static const char *const need[] = {"device_run", "device_bind", "to_device", "write", "read"};
    const struct graph_training *x = program_training(p->s);
    const bool two = states_have_two_places(p->s);
    struct text second = {.t = p->t};
    for (size_t i = 0; i < sizeof need / sizeof *need; i++)
        snippet_use(&p->snippets, need[i]);
    for (int i = 0; i < p->s->nstate; i++) {
        const struct state *st = p->s->state[i];
        const int block = (int)st->in->port.block - BLOCK_PARAMS;
        if (state_has_two_places(st) && st->nbytes > 0)
            text_printf(&second,
                        "\n    if (status == %s_OK && (%s) && (self->uploaded >> %d & 1) &&\n"
                        "        !download(self, STATES_AT + %zu, block[%d] + %zu, %zu))\n"
                        "        status = %s_DEVICE_FAILED;",
                        p->upper, state_is_odd(p, st), block, st->place[1], block,
                        training_place_in_block(p->s, st), st->nbytes, p->upper);
    }
    text_printf(out, "/* Where states and blocks begin in the device's memory. */\n"
                     "#define STATES_AT ((size_t)%zu)\n"
                     "static const size_t block_at[] = {", p->device_states);
    for (int b = BLOCK_PARAMS; b < BLOCK_COUNT; b++)
        text_printf(out, "%sSTATES_AT + %zu", b > BLOCK_PARAMS ? ", " : "", p->s->block_at[b]);
    text_puts(out, "};\n\n");
    const struct text_word word[] = {{"RESTART", two ? "\n    self->odd = 0;" : ""},
                                     {"SECOND_PLACES", second.s ? second.s : ""},
                                     {"FIRST_INPUTS",
                                      mem_printf(p->t, "%d, %d, %d, %d", x->run.input,
                                                 x->train.input, x->gradients.input,
                                                 x->evaluate.input)},
                                     {"COUNT_OF_INPUTS", mem_printf(p->t, "%d", x->ninput)},
                                     {NULL, NULL}};
    program_write_words(p, out, snippet_find("device_blocks")->text, word);
}

static const char init_text[] =
    "int model_params_init(model_self *self, uint64_t seed)\n"
    "{\n"
    "    if (!self)\n"
    "        return MODEL_NULL_ARGUMENT;\n"
    "    if (self->opened != self)\n"
    "        return MODEL_NOT_INITIALIZED;\n"
    "TABLE"
    "    unsigned char *const params = (unsigned char *)self->options.params;\n"
    "    begin_block(params, &block_info[0]);\n"
    "    if (self->options.gradients)\n"
    "        begin_block(self->options.gradients, &block_info[1]);\n"
    "    if (self->options.optimizer)\n"
    "        begin_block(self->options.optimizer, &block_info[2]);\n"
    "COPIES"
    "DRAWS"
    "    return DONE;\n"
    "}\n\n";

static void write_params_init(struct program *p, struct text *out)
{
    const struct graph_training *x = program_training(p->s);
    struct text copies = {.t = p->t}, draws = {.t = p->t};
    const char *done = p->backend->device ? "upload(self)" : mem_printf(p->t, "%s_OK", p->upper);
    for (int i = 0; i < x->nparam + x->nstatistic; i++) {
        const struct state *st = p->s->state[i];
        const struct buffer *first = st->in->port.first;         /* NULL: zeros, B of --lora */
        int64_t fan = i < x->nparam && first ? buffer_fan(st->in) : 0;
        const size_t place = training_place_in_block(p->s, st);
        if (st->nbytes == 0 || !first)
            continue;
        text_printf(&copies, "    memcpy(params + %zu, w->%s, %zu);\n", place,
                    p->buffer_name[first->id], st->nbytes);
        if (fan == 0)
            continue;
        const char *draw = mem_printf(p->t, "draw_%s", dtype_name(st->in->dtype));
        snippet_use(&p->snippets, draw);
        text_printf(&draws, "    %s(params + %zu, %zu, seed + %d, %lld);\n", draw, place,
                    st->nbytes / dtype_nbytes(st->in->dtype), i, (long long)fan);
    }
    for (int i = x->nparam + x->nstatistic; i < p->s->nstate; i++) {
        const struct state *st = p->s->state[i];
        if (st->in->port.first)
            text_printf(
                &copies,
                "    if (self->options.optimizer)\n"
                "        memcpy((unsigned char *)self->options.optimizer + %zu, w->%s, %zu);\n",
                training_place_in_block(p->s, st), p->buffer_name[st->in->port.first->id],
                st->nbytes);
    }
    const struct text_word word[] = {
        {"TABLE", p->weights == WEIGHTS_FILE
                      ? "    const struct weights table = place_weights((const unsigned char "
                        "*)self->options.weights);\n"
                        "    const struct weights *const w = &table;\n"
                      : "    const struct weights *const w = get_weights();\n"},
        {"COPIES", copies.s ? copies.s : "    (void)w;\n"},
        {"DRAWS", draws.s ? mem_printf(p->t, "    if (seed == 0)\n        return %s;\n%s",
                                       done, draws.s)
                          : "    (void)seed;\n"},
        {"DONE", done},
        {NULL, NULL}};
    program_write_words(p, out, init_text, word);
}

static const char parameter_text[] =
    "const struct model_tensor *model_parameter(int index)\n"
    "{\n"
    "    return index >= 0 && index < COUNT ? &param_info[index] : NULL;\n"
    "}\n\n";

static void write_parameter(struct program *p, struct text *out)
{
    const struct graph_training *x = program_training(p->s);
    int n = x->nparam + x->nstatistic;
    for (int i = 0; i < n; i++)
        describe_write_dims(p, out, "param", p->s->state[i]->in, i);
    text_printf(out, "static const struct %s_tensor param_info[] = {\n", p->name);
    for (int i = 0; i < n; i++) {
        const struct state *st = p->s->state[i];
        text_puts(out, "    {");
        text_string(out, st->name);
        text_printf(out, ", \"%s\", %zu, %d, %s, %zu, (size_t)-1},\n", dtype_name(st->in->dtype),
                    dtype_nbytes(st->in->dtype), st->in->ndim,
                    st->in->ndim ? mem_printf(p->t, "param_dim_%d", i) : "NULL",
                    training_place_in_block(p->s, st));
    }
    text_puts(out, "};\n\n");
    const struct text_word word[] = {{"COUNT", mem_printf(p->t, "%d", n)}, {NULL, NULL}};
    program_write_words(p, out, parameter_text, word);
}

/* ------------------------------------------------------------------------------------- the runs */

static const char check_text[] =
    "/* What all runs of an entry check first. blocks: bits of those that it needs. */\n"
    "static int check_run(model_self *self, unsigned blocks)\n"
    "{\n"
    "    if (self->opened != self)\n"
    "        return MODEL_NOT_INITIALIZED;\n"
    "    const void *const block[] = {self->options.params, self->options.gradients, "
    "self->options.optimizer};\n"
    "    int status = MODEL_OK;\n"
    "    for (int i = 0; i < 3 && status == MODEL_OK; i++)\n"
    "        if (blocks >> i & 1)\n"
    "            status = CHECK;\n"
    "    return status;\n"
    "}\n\n";

/* Fills the struct of all entries for one of them; from: "in->", where the data are. */
static void write_data(struct program *p, const struct train_entry *e, const char *from,
                       struct text *out)
{
    const struct schedule *s = p->s;
    for (int i = 0; i < program_training(s)->ninput && e->input >= 0; i++)
        text_printf(out, "    all.%s = %s%s;\n", p->buffer_name[s->input[e->input + i]->id], from,
                    p->buffer_name[s->input[i]->id]);
    for (int i = 0; i < s->nvar; i++)
        if (program_is_shared_field(p, s->var[i]))
            text_printf(out, "    all.dim_%s = %sdim_%s;\n", p->var_name[s->var[i]->id], from,
                        p->var_name[s->var[i]->id]);
    text_printf(out, "    all.dim_%s = %d;\n", p->var_name[s->graph->entry_number->id], e->number);
}

static void write_begin(struct program *p, const char *signature, const char *missing,
                        unsigned blocks, struct text *out)
{
    text_printf(out,
                "%s\n{\n    %s_all_inputs all;\n    %s_all_outputs results;\n"
                "    if (%s)\n        return %s_NULL_ARGUMENT;\n"
                "    int status = check_run(self, %u);\n"
                "    if (status != %s_OK)\n        return status;\n"
                "    memset(&all, 0, sizeof all);\n    memset(&results, 0, sizeof results);\n",
                signature, p->name, p->name, missing, p->upper, blocks, p->upper);
}

static void write_run(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    int n = program_count_outputs(s);
    write_begin(p, mem_printf(p->t, "int %s_run(%s *self, const %s_inputs *in, %s_outputs *out)",
                              p->name, p->name, p->name, p->name),
                "!self || !in || !out", 1, out);
    write_data(p, &program_training(s)->run, "in->", out);
    for (int i = 0; i < n; i++) {
        const char *name = p->buffer_name[s->output[i]->id];
        text_printf(out, "    results.%s = out->%s;\n", name, name);
    }
    text_puts(out, "    status = run_entry(self, &all, &results);\n");
    for (int i = 0; i < n; i++)
        if (program_has_shape_field(s->output[i])) {
            const char *name = p->buffer_name[s->output[i]->id];
            text_printf(out,
                        "    memcpy(out->%s_shape, results.%s_shape, sizeof out->%s_shape);\n",
                        name, name, name);
        }
    text_puts(out, "    return status;\n}\n\n");
}

/* Returns whether there are sizes that the caller passes. */
static bool write_dim_checks(struct program *p, struct text *out)
{
    bool any = false;
    for (int i = 0; i < p->s->nvar; i++) {
        const struct var *v = p->s->var[i];
        const char *name = p->var_name[v->id];
        if (!program_is_shared_field(p, v))
            continue;
        any = true;
        text_printf(out,
                    "    if (all.dim_%s < %lld || all.dim_%s > %s_MAX_%s)\n"
                    "        return %s_DIM_OUT_OF_RANGE;\n",
                    name, (long long)v->min, name, p->upper, name_upper(p->t, name), p->upper);
    }
    return any;
}

/* The number of a tensor's elements, of the run whose inputs are `all`. */
static const char *count_of(struct program *p, const struct buffer *b)
{
    struct uop *n = sym_prod(p->t, b->dim, b->ndim);
    return program_scalar(p, n);
}

/* Class numbers are checked, and what samples count is settled. */
static void write_samples(struct program *p, const struct train_entry *e, struct text *out)
{
    const struct schedule *s = p->s;
    const struct graph_training *x = program_training(s);
    text_printf(out, "    const int64_t samples = %s;\n",
                program_scalar(p, s->input[e->weight]->dim[0]));
    if (x->nclass > 0 && x->nclass < INT64_MAX)
        text_printf(out,
                    "    const int64_t ntarget = %s;\n"
                    "    for (int64_t i = 0; i < ntarget; i++)\n"
                    "        if (targets[i] < 0 || targets[i] >= %lld)\n"
                    "            return %s_BAD_VALUE;\n",
                    count_of(p, s->input[e->target]), (long long)x->nclass, p->upper);
    text_printf(out,
                "    for (int64_t i = 0; i < samples && !given->sample_weight; i++)\n"
                "        self->even[i] = 1 / (%s)%s;\n"
                "    all.%s = given->sample_weight ? given->sample_weight : self->even;\n",
                weight_type(p),
                e == &x->gradients
                    ? "(self->options.ranks > 1 ? samples * self->options.ranks : samples)"
                    : "samples",
                p->buffer_name[s->input[e->weight]->id]);
    if (e->target >= 0)
        text_printf(out, "    all.%s = targets;\n", p->buffer_name[s->input[e->target]->id]);
}

/* Where the number of runs is. */
static const char *params_head(const struct program *p)
{
    return p->backend->device ? "self->head" : "self->options.params";
}

static void write_scalars(struct program *p, const struct train_entry *e, struct text *out)
{
    const struct { int input; const char *value; } scalar[] = {
        {e->learning_rate, "given->learning_rate"},
        {e->weight_decay, "given->weight_decay"},
        {e->step, "given->step"},
        {e->draw, "draw"}};
    if (e->draw >= 0) {
        snippet_use(&p->snippets, "next_draw");
        text_printf(out,
                    "    const int64_t draw = next_draw(%s, UINT64_C(%llu), self->options.rank,\n"
                    "                                   self->options.ranks);\n",
                    params_head(p), (unsigned long long)program_training(p->s)->seed);
    }
    for (size_t i = 0; i < sizeof scalar / sizeof *scalar; i++)
        if (scalar[i].input >= 0)
            text_printf(out, "    all.%s = &%s;\n",
                        p->buffer_name[p->s->input[scalar[i].input]->id], scalar[i].value);
}

static const char *signature_of(struct program *p, const char *name, bool evaluates)
{
    struct text x = {.t = p->t};
    text_printf(&x, "int %s_%s(", p->name, name);
    struct text_list list = {.out = &x, .separator = ",", .indent = x.n, .tail = strlen(")")};
    list_put(&list, mem_printf(p->t, "%s *self", p->name));
    list_put(&list, mem_printf(p->t, "const %s_train_inputs *given", p->name));
    list_put(&list, mem_printf(p->t, "const %s *targets", target_type(p)));
    list_put(&list, mem_printf(p->t, "%s *loss", loss_type(p)));
    if (evaluates)
        list_put(&list, mem_printf(p->t, "%s *correct", loss_type(p)));
    text_puts(&x, ")");
    return x.s;
}

/* One of the functions that know the loss. */
static void write_function(struct program *p, const char *name, const struct train_entry *e,
                           unsigned blocks, bool evaluates, struct text *out)
{
    const struct schedule *s = p->s;
    bool draws = e->draw >= 0;
    const char *value = loss_type(p);
    const char *missing =
        training_target(p) ? "!self || !given || !targets || !loss" : "!self || !given || !loss";
    write_begin(p, signature_of(p, name, evaluates), missing, blocks, out);
    if (!training_target(p))
        text_puts(out, "    (void)targets;\n");
    if (e == &program_training(s)->train)
        training_write_step_of_ranks(p, out);
    write_data(p, e, "given->data.", out);
    if (write_dim_checks(p, out))
        text_printf(out, "    const %s_all_inputs *const in = &all;\n    (void)in;\n", p->name);
    write_samples(p, e, out);
    write_scalars(p, e, out);
    text_printf(out, "    results.%s = loss;\n", p->buffer_name[s->output[e->loss]->id]);
    if (e->correct >= 0)
        text_printf(out, "    %s right = 0;\n    results.%s = &right;\n", value,
                    p->buffer_name[s->output[e->correct]->id]);
    text_puts(out, "    status = run_entry(self, &all, &results);\n");
    if (evaluates)
        text_printf(out, "    if (correct)\n        *correct = %s;\n",
                    e->correct >= 0 ? "right" : "-1");
    if (draws)
        text_printf(out, "    if (status == %s_OK)\n        count_run(%s);\n",
                    p->upper, params_head(p));
    text_puts(out, "    return status;\n}\n\n");
}

static void write_update(struct program *p, struct text *out)
{
    const struct graph_training *x = program_training(p->s);
    write_begin(p,
                mem_printf(p->t, "int %s_update(%s *self, const %s_train_inputs *given)", p->name,
                           p->name, p->name),
                "!self || !given", 7, out);
    training_write_sum_of_ranks(p, out);
    for (int i = 0; i < p->s->nvar; i++) {
        const struct var *v = p->s->var[i];
        if (program_is_shared_field(p, v))
            text_printf(out, "    all.dim_%s = %lld;\n", p->var_name[v->id], (long long)v->max);
    }
    text_printf(out, "    all.dim_%s = %d;\n", p->var_name[p->s->graph->entry_number->id],
                x->update.number);
    write_scalars(p, &x->update, out);
    text_puts(out, "    return run_entry(self, &all, &results);\n}\n\n");
}

/* Of a device; a processor's is run.c's. */
static const char run_entry_text[] =
    "/* One of the entries. */\n"
    "static int run_entry(model_self *self, const run_inputs *in, run_outputs *out)\n"
    "{\n"
    "    return run_whole(self, in, out);\n"
    "}\n\n";

void training_write_functions(struct program *p, struct text *out)
{
    const struct graph_training *x = program_training(p->s);
    if (!x)
        return;
    snippet_use(&p->snippets, "train_blocks");
    write_blocks(p, out);
    if (p->backend->device) {
        write_copies(p, out);
        program_write_text(p, out, run_entry_text);
    }
    write_params_init(p, out);
    write_parameter(p, out);
    const struct text_word check[] = {
        {"CHECK", p->backend->device ? "!block[i]                    ? MODEL_BAD_OPTIONS\n"
                                       "                     : self->uploaded >> i & 1 ? MODEL_OK\n"
                                       "                                               : "
                                       "MODEL_BAD_STATE"
                                     : "check_block(block[i], &block_info[i])"},
        {NULL, NULL}};
    program_write_words(p, out, check_text, check);
    write_run(p, out);
    training_write_segments(p, out);
    write_function(p, "train", &x->train, 5, false, out);
    write_function(p, "gradients", &x->gradients, x->scales ? 7 : 3, false, out);
    write_update(p, out);
    write_function(p, "evaluate", &x->evaluate, 1, true, out);
}

const char *training_init_check(const struct program *p)
{
    return program_training(p->s)
               ? "    if (!options || !options->params || (uintptr_t)options->params % 64 != 0 ||\n"
                 "        (uintptr_t)options->gradients % 64 != 0 ||\n"
                 "        (uintptr_t)options->optimizer % 64 != 0)\n"
                 "        return MODEL_BAD_OPTIONS;\n"
               : "";
}

/* --------------------------------------------------------------------------- the program itself */

/* The samples of a run, which the first axis of each input counts; 0: that cannot be told. */
static int64_t samples_of_inputs(const struct program *p)
{
    const struct schedule *s = p->s;
    int64_t n = training_target(p) ? dim_bound(weights_of(s)->dim[0]) : 0;
    for (int i = 0; i < program_count_inputs(s); i++) {
        const struct buffer *b = s->input[i];
        if (b->ndim == 0)
            return 0;
        n = n ? n : dim_bound(b->dim[0]);
        if (dim_bound(b->dim[0]) != n)
            return 0;
    }
    return n;
}

bool training_has_main(const struct program *p)
{
    return program_count_inputs(p->s) > 0 && samples_of_inputs(p) > 0;
}

/* The pieces of runtime/loader/ and runtime/ranks/, in the order of the table, but for those that
 * the model uses. */
static void write_loader(struct program *p, struct text *out)
{
    static const char *const files[] = {"host", "loader", "ranks"};
    struct program main = *p;
    main.snippets = (struct snippet_set){.t = p->t};
    snippet_use(&main.snippets, "train_main");
    snippets_leave_out(&main.snippets, &p->snippets);
    text_puts(out, "#define LOADER_API static inline\n#define RANKS_API static inline\n"
                   "#ifdef __cplusplus\n#define _Static_assert static_assert\n#endif\n\n");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        snippets_write(&main, out, files[i], NULL);
}

static size_t target_bytes(const struct program *p, int64_t samples)
{
    const struct buffer *b = training_target(p);
    size_t n = b ? dtype_nbytes(b->dtype) : 0;
    for (int a = 0; b && a < b->ndim; a++)
        n *= (size_t)dim_bound(b->dim[a]);
    return n / (size_t)samples;
}

void training_write_main(struct program *p, struct text *out)
{
    enum { BATCH = 32 };
    const int64_t n = samples_of_inputs(p);
    text_printf(out,
                "/* -------------------------------------------------------------------- the "
                "program: -D%s_MAIN */\n\n#ifdef %s_MAIN\n\n",
                p->upper, p->upper);
    if (!training_has_main(p)) {
        text_puts(out, "#error \"the first axis of an input or of the loss does not count samples: "
                       "write a loop of your own\"\n#endif\n");
        return;
    }
    write_loader(p, out);
    text_printf(out,
                "/* Samples of a run, and of a step where nobody says; bytes of a sample's target. "
                "*/\n"
                "enum {\n    MAIN_SAMPLES = %lld,\n    MAIN_BATCH = %lld,\n    MAIN_INPUTS = "
                "%d,\n    MAIN_TARGET_BYTES = %zu,\n    MAIN_HAS_CLASSES = %d\n};\n"
                "#define MAIN_TARGET_DTYPE \"%s\"\n"
                "typedef %s MAIN_TARGET;\ntypedef %s MAIN_VALUE;\ntypedef %s MAIN_LOSS;\n\n",
                (long long)n, (long long)(n > 1 ? n : BATCH), program_count_inputs(p->s),
                target_bytes(p, n), program_training(p->s)->evaluate.correct >= 0,
                training_target(p) ? dtype_name(training_target(p)->dtype) : "", target_type(p),
                weight_type(p), loss_type(p));
    const bool copies = p->backend->device != NULL;
    const struct text_word word[] = {
        {"MODEL_FILE", p->name},
        {"UPLOAD", copies ? "\n    check(model_upload(r->self), path);" : ""},
        {"GIVE_TO_DEVICE", copies ? "\n    check(model_upload(r->self), \"ranks\");" : ""},
        {"DOWNLOAD", copies ? "\n    check(model_download(r->self), r->output);" : ""},
        {NULL, NULL}};
    program_write_words(p, out, snippet_find("train_main")->text, word);
    text_puts(out, "\n#endif\n");
}
