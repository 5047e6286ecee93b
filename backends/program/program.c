/* program.c - the whole of NAME.c: its contents, in order; NAME_init() and NAME_close().
 *
 *      comment · includes · struct NAME · pieces of runtime/ · kernels · tables · init, run, close
 *      · weights · main
 *
 * Kernels are rendered first, into a text of their own, since they decide which pieces of runtime/
 * the program carries.
 */
#include "backends/program/program.h"
#include "passes/analysis/kernel_cost.h"

#include <string.h>

/* ------------------------------------------------------------------------ init, close, strerror */

static const char struct_text[] =
    "struct model_self {\n"
    "    const model_self *opened;       /* itself, from model_init to model_close */\n"
    "    model_options options;\n"
    "FIELDS"
    "};\n"
    "static_assert(sizeof(struct model_self) <= HEAD_BYTES, \"the intermediates begin behind the "
    "struct\");\n\n";

static const char team_fields_text[] =
    "    int parts;                      /* of the work of a kernel that threads share */\n"
    "    struct team team;\n";

static const char share_text[] =
    "/* Runs body(context, 0) ... body(context, parts - 1), each in a thread. saves: nanoseconds\n"
    " * that this saves, roughly. */\n"
    "static void share(model_self *self, void (*body)(void *context, int part), void *context,\n"
    "                  long saves)\n"
    "{\n"
    "    if (self->parts == 1)\n"
    "        body(context, 0);\n"
    "    else if (self->options.parallel_for)\n"
    "        self->options.parallel_for(self->options.user, self->parts, body, context);\n"
    "    else\n"
    "        team_run(&self->team, body, context, saves);\n"
    "}\n\n";

static const char team_open_text[] =
    "    self->parts = MODEL_THREADS;\n"
    "    if (self->options.threads > 0 && self->options.threads < MODEL_THREADS)\n"
    "        self->parts = self->options.threads;\n"
    "    if (self->parts > 1 && !self->options.parallel_for &&\n"
    "        team_open(&self->team, self->parts - 1) != 0)\n"
    "        return MODEL_NO_THREADS;\n";

static const char team_close_text[] =
    "    if (self && self->opened == self && self->parts > 1 && !self->options.parallel_for)\n"
    "        team_close(&self->team);\n";

static const char step_text[] =
    "/* Tells the caller's hook which kernel comes now; -1: the run ends. */\n"
    "static void step(const model_self *self, int index)\n"
    "{\n"
    "    if (self->options.on_kernel)\n"
    "        self->options.on_kernel(self->options.user, index < 0 ? KERNEL_COUNT : index,\n"
    "                                index < 0 ? NULL : KERNEL_NAME);\n"
    "}\n\n";

static const char init_text[] =
    "int model_init(model_self **made, void *arena, size_t arena_bytes, const model_options "
    "*options)\n"
    "{\n"
    "    if (made)\n"
    "        *made = NULL;\n"
    "    if (!made || !arena)\n"
    "        return MODEL_NULL_ARGUMENT;\n"
    "    if ((uintptr_t)arena % MODEL_ARENA_ALIGN != 0)\n"
    "        return MODEL_ARENA_MISALIGNED;\n"
    "    if (arena_bytes < MODEL_ARENA_BYTES)\n"
    "        return MODEL_ARENA_TOO_SMALL;\n"
    "    if (options && options->threads < 0)\n"
    "        return MODEL_BAD_OPTIONS;\n"
    "CHECK_WEIGHTS"
    "    model_self *self = (model_self *)arena;\n"
    "    memset(CASTself, 0, sizeof *self);\n"
    "    if (options)\n"
    "        self->options = *options;\n"
    "PICK"
    "    self->opened = self;\n"
    "    *made = self;\n"
    "    return MODEL_OK;\n"
    "}\n\n";

static const char weights_check_text[] =
    "    if (!options || !options->weights || options->weights_bytes < MODEL_WEIGHTS_BYTES ||\n"
    "        (uintptr_t)options->weights % 64 != 0)\n"
    "        return MODEL_MISSING_WEIGHTS;\n";

static const char close_text[] =
    "void model_close(model_self *self)\n"
    "{\n"
    "CLOSE_TEAM"
    "    if (self)\n"
    "        self->opened = NULL;\n"
    "}\n\n"
    "const char *model_strerror(int status)\n"
    "{\n"
    "BARE"
    "    switch (status) {\n"
    "STATUS_CASES"
    "    default: return \"unknown status\";\n"
    "    }\n"
    "END_BARE"
    "}\n\n";

/* -Os */
static const char bare_text[] =
    "/* The names and texts, which take flash: model_describe(), and what model_strerror() and\n"
    " * on_kernel say. -DMODEL_STRINGS keeps them. */\n"
    "#if defined MODEL_STRINGS || defined MODEL_MAIN\n"
    "#define KERNEL_NAME(index) kernel_info[index].name\n\n";
static const char bare_end_text[] = "#else\n#define KERNEL_NAME(index) \"\"\n#endif\n\n";
static const char bare_status_text[] = "#if defined MODEL_STRINGS || defined MODEL_MAIN\n";
static const char bare_status_end_text[] = "#else\n    (void)status;\n    return \"\";\n#endif\n";

static void write_description(struct program *p, struct text *out)
{
    if (program_is_bare(p))
        program_write_text(p, out, bare_text);
    describe_write(p, out);
    if (program_is_bare(p))
        text_puts(out, bare_end_text);
}

/* Writes text up to a marker; returns the rest. */
static const char *write_up_to(const struct program *p, struct text *out, const char *text,
                               const char *marker)
{
    const char *at = strstr(text, marker);
    program_write_text(p, out, mem_printf(p->t, "%.*s", (int)(at - text), text));
    return at + strlen(marker);
}

static void write_lifetime(struct program *p, struct text *out)
{
    state_write_functions(p, out);
    if (program_training(p->s) && p->backend->device)
        program_write_text(p, out, "static int upload(model_self *self);\n\n");
    const char *rest = write_up_to(p, out, init_text, "CHECK_WEIGHTS");
    if (p->weights == WEIGHTS_FILE && p->s->nweight > 0)
        program_write_text(p, out, weights_check_text);
    program_write_text(p, out, training_init_check(p));
    if (p->backend->device)
        p->backend->device->check(p, out);
    rest = write_up_to(p, out, rest, "CAST");
    /* in C++ a pointer to an atomic counter does not convert to void * by itself */
    text_puts(out, p->threads > 1 ? "(void *)" : "");
    rest = write_up_to(p, out, rest, "PICK");
    if (program_has_variants(p))
        text_puts(out, "    self->kernels = pick_kernels();\n");
    if (p->backend->device)
        p->backend->device->open(p, out);
    else if (p->threads > 1)
        program_write_text(p, out, team_open_text);
    if (p->s->nstate > 0 && !p->backend->device && !program_training(p->s))
        text_puts(out, "    begin_states(self);\n");
    program_write_text(p, out, rest);
    run_write(p, out);
    rest = write_up_to(p, out, close_text, "CLOSE_TEAM");
    if (p->backend->device)
        p->backend->device->close(p, out);
    else if (p->threads > 1)
        program_write_text(p, out, team_close_text);
    rest = write_up_to(p, out, rest, "BARE");
    program_write_text(p, out, program_is_bare(p) ? bare_status_text : "");
    rest = write_up_to(p, out, rest, "STATUS_CASES");
#define STATUS(name, value, text)                                                                  \
    text_printf(out, "    case %s_" #name ": return \"%s\";\n", p->upper, text);
#define TRAINING_STATUS(name, value, text)                                                         \
    if (program_training(p->s))                                                                    \
        STATUS(name, value, text)
#define DEVICE_STATUS(name, value, text)                                                           \
    if (p->backend->device)                                                                        \
        STATUS(name, value, text)
#include "backends/program/statuses.def"
#undef STATUS
    rest = write_up_to(p, out, rest, "END_BARE");
    text_puts(out, program_is_bare(p) ? bare_status_end_text : "");
    program_write_text(p, out, rest);
}

/* ------------------------------------------------------------------------------------- the file */

/* Of --main; -Os leaves out what it reads of the model. */
static void write_main_command(const struct program *p, const char *pthread, struct text *out)
{
    const char *strings =
        program_is_bare(p) ? mem_printf(p->t, " -D%s_STRINGS", p->upper) : "";
    text_printf(out, " *     cc -O2%s%s %s.c %s -o %s     a program, see %s --help\n", pthread,
                strings, p->name, p->o->main_name, p->name, p->name);
}

static void write_title(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    text_printf(out, "/* %s.c - ", p->name);
    text_comment(out, p->o->model ? p->o->model : p->name);
    text_puts(out, " in C, by ");
    text_comment(out, p->o->producer);
    text_puts(out, ".");
    if (s->graph && s->graph->producer && *s->graph->producer) {
        text_puts(out, " The model was made by ");
        text_comment(out, s->graph->producer);
        text_putc(out, '.');
    }
    text_puts(out, "\n *");
    struct {
        struct buffer *const *b;
        int n;
        const char *title;
    } side[2] = {{s->input, program_count_inputs(s), "input "},
                 {s->output, program_count_outputs(s), "output"}};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < side[k].n; i++) {
            const struct buffer *b = side[k].b[i];
            text_printf(out, "\n *   %s %s", side[k].title, p->buffer_name[b->id]);
            text_printf(out, " %s", dtype_name(b->dtype));
            text_dims(out, b->dim, b->ndim, "[", "]");
        }
    text_printf(out, "\n *\n * %d kernel%s, %s a run, arena ", s->nkernel,
                s->nkernel == 1 ? "" : "s", text_si(p->t, run_use(p->t, s, -1).flop, "FLOP"));
    text_bytes(out, (double)program_arena_bytes(p->t, p->s));
    text_puts(out, ", weights ");
    text_bytes(out, (double)s->weight_nbytes);
    if (s->graph && s->graph->narrowing.nweight > 0) {
        text_puts(out, ":\n * ");
        text_narrowing(out, &s->graph->narrowing);
    }
    if (p->t->math != DTYPE_VOID)
        text_printf(out, ";\n * factors of products are rounded to %s (--math), sums are f32",
                    dtype_name(p->t->math));
    const char *pthread = p->threads > 1 && !p->backend->device ? " -pthread" : "";
    text_printf(out, ".\n *\n *     cc -O2%s -c %s.c                     a library, see %s.h\n",
                pthread, p->name, p->name);
    if (p->o->main)
        write_main_command(p, pthread, out);
    else if (!p->o->no_main && (!program_training(s) || training_has_main(p)))
        text_printf(out, " *     cc -O2%s -D%s_MAIN %s.c -o %s     a program, see %s --help\n",
                    pthread, p->upper, p->name, p->name, p->name);
    /* no SPDX line: it would speak for the weights, too */
    text_puts(
        out, " *\n * What tgc has written here, the parts of its runtime included, is its user's "
             "without obligation\n * (0BSD). The model and its weights keep their own terms. */\n");
}

static const char long_strings[] =
    "#ifdef __GNUC__\n#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n#endif\n\n";

/* Whether describe() holds a name longer than the string literal that every C compiler has to
 * accept. */
static bool has_long_names(const struct schedule *s)
{
    enum { C99_STRING_MAX = 4095 };
    bool is_long = false;
    for (int i = 0; i < s->ninput; i++)
        is_long |= s->input[i]->name && strlen(s->input[i]->name) > C99_STRING_MAX;
    for (int i = 0; i < s->noutput; i++)
        is_long |= s->output[i]->name && strlen(s->output[i]->name) > C99_STRING_MAX;
    for (int i = 0; i < s->nvar; i++)
        is_long |= s->var[i]->name && strlen(s->var[i]->name) > C99_STRING_MAX;
    for (int i = 0; i < s->nkernel; i++)
        is_long |= s->kernel[i]->title && strlen(s->kernel[i]->title) > C99_STRING_MAX;
    return is_long;
}

static void put_section(struct text *out, const char *title)
{
    text_puts(out, "/* ");
    for (size_t i = strlen(title); i < 90; i++)
        text_putc(out, '-');
    text_printf(out, " %s */\n\n", title);
}

/* Tests for NaN, masks of -INFINITY, sums of a number's high and low part, and rounding by adding
 * and subtracting a large number need IEEE 754's rules. -ffinite-math-only cannot be undone in a
 * file: clang from version 17 on marks parameters as never NaN, and x86's gcc chooses comparisons
 * by the command line. Reassociation can be undone (gcc for 32-bit ARM then does not use NEON,
 * which it uses for unsafe math only). Types with more digits than a float's (the x87's) are
 * refused, since two computations of the same number differ if one of them was stored. */
static const char arithmetic_text[] =
    "/* These flags change what the numbers below are. */\n"
    "#if defined __FINITE_MATH_ONLY__ && __FINITE_MATH_ONLY__\n"
    "#error \"NaN and infinity are lost by -ffast-math, -Ofast, -ffinite-math-only: "
    "add -fno-finite-math-only\"\n"
    "#elif defined __i386__ && !defined __SSE2_MATH__\n"
    "#error \"the x87's numbers have more digits than float: compile with -msse2 -mfpmath=sse\"\n"
    "#elif defined __FLT_EVAL_METHOD__ && (__FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2)\n"
    "#error \"float is computed in more digits than it has (FLT_EVAL_METHOD is not 0)\"\n"
    "#elif defined __clang__\n"
    "#pragma clang fp reassociate(off)\n"
    "#elif defined __FAST_MATH__ || defined __ASSOCIATIVE_MATH__ || defined __RECIPROCAL_MATH__\n"
    "#pragma GCC optimize(\"no-fast-math\", \"no-unsafe-math-optimizations\", "
    "\"no-associative-math\", \\\n"
    "                     \"no-reciprocal-math\", \"signed-zeros\")\n"
    "#endif\n\n";

/* clang contracts by default, and gcc does without -std=c11. Steps amplify a last bit. */
static const char no_contraction[] =
    "/* No contraction: a step has one result by any compiler. */\n"
    "#ifdef __clang__\n"
    "#pragma clang fp contract(off)\n"
    "#elif defined __GNUC__\n"
    "#pragma GCC optimize(\"fp-contract=off\")\n"
    "#endif\n\n";

static void write_includes(struct program *p, struct text *out)
{
    text_puts(out, arithmetic_text);
    if (program_training(p->s))
        text_puts(out, no_contraction);
    program_include_header(p, out);
    text_puts(out, "\n#include <assert.h>\n#include <math.h>\n#include <stdalign.h>\n#include "
                   "<stdbool.h>\n#include <string.h>\n\n");
    text_puts(out, "#ifdef __cplusplus\n#define restrict __restrict\n#endif\n\n");
}

static void write_run_types(struct program *p, struct text *out)
{
    const char *all = program_training(p->s) ? "all_" : "";
    text_printf(out, "/* What a run takes and gives. */\ntypedef %s_%sinputs run_inputs;\n"
                     "typedef %s_%soutputs run_outputs;\n\n",
                p->name, all, p->name, all);
}

/* Of programs that start processes. */
static const char system_text[] =
    "#if defined MODEL_MAIN && !defined _GNU_SOURCE\n"
    "#define _GNU_SOURCE /* fork(), sockets, clocks, where -std=c11 hides them */\n"
    "#endif\n\n";

static void write_prelude(struct program *p, struct text *out)
{
    write_title(p, out);
    if (program_training(p->s) && training_has_main(p))
        program_write_text(p, out, system_text);
    write_includes(p, out);
    if (has_long_names(p->s))
        text_puts(out, long_strings);
    if (p->backend->device) {
        p->backend->device->types(p, out);
    } else if (p->threads > 1) {
        program_write_text(p, out, snippet_find("team")->text);
        text_putc(out, '\n');
    }
    const char *rest = write_up_to(p, out, struct_text, "FIELDS");
    if (program_has_variants(p))
        text_puts(out, "    const struct kernels *kernels;  /* for this processor */\n");
    if (p->backend->device)
        p->backend->device->fields(p, out);
    else if (p->threads > 1)
        program_write_text(p, out, team_fields_text);
    state_write_fields(p, out);
    training_write_fields(p, out);
    rest = write_up_to(p, out, rest, "HEAD_BYTES");
    text_printf(out, "%zu", p->head_bytes);
    program_write_text(p, out, rest);
    weights_write_declaration(p, out);
    header_write_all_structs(p, out);
    if (p->backend->device)
        write_run_types(p, out);
}

static void write_step_hook(struct program *p, struct text *out)
{
    const struct text_word word[] = {
        {"KERNEL_COUNT", mem_printf(p->t, "%d", p->s->nkernel)},
        {"KERNEL_NAME", program_is_bare(p) ? "KERNEL_NAME(index)" : "kernel_info[index].name"},
        {NULL, NULL}};
    program_write_words(p, out, step_text, word);
}

/* Inlined, all kernels' frames would be one, on the stack even while another kernel runs. */
static const char own_frame[] =
    "/* A kernel's variables are on the stack while it runs, and no longer. */\n"
    "#ifdef __GNUC__\n#define OWN_FRAME __attribute__((noinline))\n#else\n#define "
    "OWN_FRAME\n#endif\n"
    "/* A loop that is not to be unrolled: what it loads would be kept, and there are fewer "
    "registers. "
    "*/\n"
    "#ifdef __clang__\n#define KEEP_LOOP _Pragma(\"clang loop unroll(disable)\")\n"
    "#elif defined __GNUC__\n#define KEEP_LOOP _Pragma(\"GCC unroll 1\")\n"
    "#else\n#define KEEP_LOOP\n#endif\n\n";

static const char unroll[] =
    "/* A tile's loop, which is to become straight-line code: then its sums are registers. */\n"
    "#ifdef __clang__\n#define UNROLL _Pragma(\"clang loop unroll(full)\")\n"
    "#elif defined __GNUC__ && __GNUC__ >= 8\n#define UNROLL _Pragma(\"GCC unroll 32\")\n"
    "#else\n#define UNROLL\n#endif\n\n";

/* Its "unroll 1" permits gcc to copy a body once. */
static const char kept_twice[] = "/* How often such a loop runs, hidden from gcc, which unrolls "
                                 "loops of two iterations always. */\n"
                                 "#if defined __GNUC__ && !defined __clang__\n"
                                 "static inline int kept_twice(void)\n{\n    int n = 2;\n"
                                 "    __asm__(\"\" : \"+r\"(n));\n    return n;\n}\n"
                                 "#define " PROGRAM_KEPT_TWICE " kept_twice()\n"
                                 "#else\n#define " PROGRAM_KEPT_TWICE " 2\n#endif\n\n";

/* Predictive commoning (with -O2 since gcc 12, as part of vectorization) may load elements beyond a
 * loop's last iteration and store them back unchanged, which C11 forbids: 5.1.2.4p27. */
static const char no_invented_stores[] =
    "/* Elements that another thread writes must not even be stored back unchanged, as gcc's\n"
    " * predictive commoning does. */\n"
    "#if defined __GNUC__ && !defined __clang__\n"
    "#pragma GCC optimize(\"no-predictive-commoning\")\n"
    "#endif\n\n";

/* With few registers, kernels load elements again instead. */
static const char load_again[] =
    "/* A kernel whose loops' iterations share more elements than there are registers: each loads "
    "its\n"
    " * own. gcc's predictive commoning would keep them. */\n"
    "#if defined __GNUC__ && !defined __clang__\n"
    "#define " PROGRAM_LOAD_AGAIN " __attribute__((optimize(\"no-predictive-commoning\")))\n"
    "#else\n#define " PROGRAM_LOAD_AGAIN "\n#endif\n\n";

/* The processor's code: kernels, and how threads share them. */
static void write_kernels(struct program *p, const struct text *kernels, struct text *out)
{
    if (p->backend->device) {
        text_puts(out, "#ifdef __GNUC__\n#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n"
                       "#endif\n\n");
        p->backend->device->kernels(p, kernels->s, out);
        return;
    }
    text_puts(out, own_frame);
    if (p->threads > 1)
        text_puts(out, no_invented_stores);
    if (kernels->s && strstr(kernels->s, PROGRAM_LOAD_AGAIN))
        text_puts(out, load_again);
    if (kernels->s && strstr(kernels->s, PROGRAM_KEPT_TWICE))
        text_puts(out, kept_twice);
    if (kernels->s && strstr(kernels->s, PROGRAM_UNROLL))
        text_puts(out, unroll);
    text_puts(out, kernels->s ? kernels->s : "");
    lines_move(p, kernels, out);
}

static void write_pieces(struct program *p, struct text *out)
{
    if (snippets_any(&p->snippets, "number") || snippets_any(&p->snippets, "math")) {
        put_section(out, "arithmetic");
        snippets_write(p, out, "number", NULL);
        snippets_write(p, out, "math", NULL);
    }
    if (snippets_any(&p->snippets, "host")) {
        put_section(out, "what is not tensor algebra");
        snippets_write(p, out, "host", NULL);
    }
}

/* Its kernels are no text: backends/llvm/ makes the program. */
const struct backend backend_llvm = {.name = "llvm"};

const struct backend *backend_find(const char *target)
{
    static const struct { const char *target; const struct backend *backend; } all[] = {
        {"c", &backend_c},
        {"clang", &backend_c},   /* the same C */
        {"llvm", &backend_llvm},
        {"opencl", &backend_opencl},
        {"cuda", &backend_cuda},
        {"metal", &backend_metal},
        {"amd", &backend_amd},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].target, target) == 0)
            return all[i].backend;
    return NULL;
}

bool backend_is_of_device(const struct backend *backend) { return backend->device != NULL; }

bool backend_is_by_llvm(const struct backend *backend, struct tgc *t, bool as_text)
{
    return backend->by_llvm && backend->by_llvm(t, as_text);
}

static struct program *program_new(struct tgc *t, const struct schedule *s,
                                   const struct program_options *o)
{
    struct program *p = MEM_NEW(t, struct program);
    p->t = t;
    p->s = s;
    p->o = o;
    p->backend = o->backend ? o->backend : &backend_c;
    p->name = o->name;
    p->upper = name_upper(t, o->name);
    p->weights = program_weights_mode(s, o->weights);
    p->snippets.t = t;
    p->snippets.family = variants_pieces(p);
    if (p->backend->driver)
        p->snippets.language = mem_printf(t, "%s_driver", p->backend->name);
    if (p->backend->interface)
        p->snippets.family = mem_printf(t, "%s_driver", p->backend->interface);
    p->device_snippets =
        (struct snippet_set){.t = t, .language = p->backend->name, .family = p->backend->vectors};
    p->threads = program_threads(s);
    p->head_bytes = program_head_bytes(s);
    p->tasks.t = t;
    program_name_all(p);
    example_name_macros(p);
    return p;
}

void program_write_header(struct tgc *t, const struct schedule *s, const struct program_options *o,
                          struct text *h)
{
    header_write(program_new(t, s, o), h);
}

const char *const *program_entry_names(struct tgc *t, const struct schedule *s,
                                       const struct program_options *o)
{
    return program_new(t, s, o)->entry_name;
}

const char *program_piece_symbol(struct tgc *t, const char *name, const char *piece)
{
    return mem_printf(t, "%s_piece_%s", name, piece);
}

static const char training_struct_text[] =
    "\nstruct model_self {\n"
    "    const model_self *opened;       /* itself, from model_init to model_close */\n"
    "    model_options options;\n"
    "    unsigned char rest[FIELDS_AT - sizeof(void *) - sizeof(model_options)];   "
    "/* the kernels' own */\n";

static const char run_entry_text[] =
    "extern int RUN_ENTRY(model_self *self, const model_all_inputs *in, model_all_outputs *out)\n"
    "    __attribute__((visibility(\"hidden\")));\n"
    "#define run_entry RUN_ENTRY\n\n";

/* The functions of a training whose kernels, weights and NAME_init() are another object's. */
static void write_training(struct program *p, struct text *out)
{
    const struct text_word word[] = {
        {"FIELDS_AT", mem_printf(p->t, "%zu", training_fields_at(p))},
        {"RUN_ENTRY", program_piece_symbol(p->t, p->name, "run_entry")}, {NULL, NULL}};
    struct text functions = {.t = p->t};
    if (p->weights != WEIGHTS_FILE)
        p->weights = WEIGHTS_OBJECT;
    training_write_functions(p, &functions);
    program_write_words(p, out, training_struct_text, word);
    training_write_fields(p, out);
    text_puts(out, "};\n\n");
    weights_write_declaration(p, out);
    header_write_all_structs(p, out);
    program_write_words(p, out, run_entry_text, word);
    describe_write(p, out);
    snippets_write(p, out, "train", NULL);
    text_puts(out, functions.s);
    weights_write_data(p, out);
}

void program_write_pieces(struct tgc *t, const struct schedule *s, const struct program_options *o,
                          const char *const *piece, int n, struct text *c)
{
    struct program *p = program_new(t, s, o);
    for (int i = 0; i < n; i++)
        snippet_use(&p->snippets, piece[i]);
    write_includes(p, c);
    if (snippets_any(&p->snippets, "threads")) {
        snippets_write(p, c, "threads", NULL);
        text_printf(
            c,
            "static_assert(sizeof(struct team) <= %zu, \"the intermediates begin behind the "
            "threads\");\n\n",
            program_team_bytes(s));
    }
    write_pieces(p, c);
    variants_write_pieces(p, c);
    for (int i = 0; i < n; i++) {
        struct text word = {.t = t};
        program_write_text(p, &word, piece[i]);
        text_printf(c, "extern __typeof__(%s) %s __attribute__((alias(\"%s\"), "
                       "visibility(\"hidden\")));\n",
                    word.s, program_piece_symbol(t, p->name, piece[i]), word.s);
    }
    if (program_training(s))
        write_training(p, c);
}

bool program_write_c(struct tgc *t, const struct schedule *s, const struct program_options *o,
                     struct text *c, struct text *h, bool *weights_beside)
{
    struct program *p = program_new(t, s, o);
    *weights_beside = s->nweight > 0 &&
                      (p->weights == WEIGHTS_INCBIN || p->weights == WEIGHTS_FILE);
    if (p->backend->device && !p->backend->device->begin(p))
        return false;

    struct text kernels = {.t = t}, lifetime = {.t = t};
    p->parameters = mem_array(t, (size_t)s->nkernel + 1, sizeof *p->parameters);
    p->casts = mem_array(t, (size_t)s->nkernel + 1, sizeof *p->casts);
    for (int i = 0; i < s->nkernel; i++)
        if (!program_is_twin(p, s->kernel[i]))
            lines_write_kernel(p, s->kernel[i], program_variant_on_device(p, s->kernel[i]),
                               &kernels);
    variants_write(p, &kernels);
    if (p->tasks.n > 0) {
        text_printf(&kernels, "/* The kernels' parts, as threads call them. */\n%s", p->tasks.s);
        lines_move(p, &p->tasks, &kernels);
    }
    if (p->backend->device) {
        const char *text = p->backend->device->text(p, kernels.s ? kernels.s : "");
        if (!p->backend->device->compile(p, text))
            return false;
        kernels = (struct text){.t = t};
        text_puts(&kernels, text);
    }
    write_lifetime(p, &lifetime);

    header_write(p, h);
    write_prelude(p, c);
    /* the model's type has the name of a local below, which C allows */
    if (snippets_mention(p->name))
        text_puts(c, "#ifdef __GNUC__\n#pragma GCC diagnostic ignored \"-Wshadow\"\n#endif\n\n");
    write_pieces(p, c);
    put_section(c, "kernels");
    nodes_write_others(p, c);
    write_kernels(p, &kernels, c);
    if (o->kernels)
        text_puts(o->kernels, kernels.s ? kernels.s : "");
    put_section(c, "the model");
    /* names, weights and reference vectors are string literals of any length */
    text_puts(
        c, "#ifdef __GNUC__\n#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n#endif\n\n");
    write_description(p, c);
    snippets_write(p, c, "train", NULL);
    write_step_hook(p, c);
    if (p->backend->device)
        p->backend->device->functions(p, c);
    if (p->threads > 1 && !p->backend->device) {
        program_write_text(p, c, snippet_find("team_run")->text);
        text_putc(c, '\n');
        program_write_text(p, c, share_text);
    }
    text_puts(c, lifetime.s);
    lines_move(p, &lifetime, c);
    weights_write_data(p, c);
    if (!o->no_main && program_training(s))
        training_write_main(p, c);
    else if (o->main)
        selftest_write_apart(p, o->vectors, o->main);
    else if (!o->no_main)
        selftest_write(p, o->vectors, c);
    if (!p->backend->device)
        lines_finish(p, c);
    return true;
}
