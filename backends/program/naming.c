/* naming.c - the names of everything in a program: kernels, symbols, inputs, outputs, weights, and
 * the locals of NAME_run().
 *
 *      reserved words ── p->visible: what a kernel may name at file scope ── a kernel's locals
 *                     └─ p->file: all of file scope ── p->run: the locals of NAME_run()
 *
 * Names are decided once, before anything is written. names.c turns a name from the model into an
 * identifier.
 */
#include "backends/program/program.h"

#include <string.h>

/* ---------------------------------------------------------------------------------- names given */

bool schedule_passes_var(const struct schedule *s, const struct var *v)
{
    if (v->is_counter || state_is_length(s->graph, v))
        return false;
    for (int i = 0; i < s->nstep; i++)
        for (int j = 0; s->step[i].host && j < s->step[i].host->nresult; j++)
            if (s->step[i].host->result[j] == v)
                return false;
    return true;
}

const struct host_call *schedule_next_external(const struct schedule *s, int *step)
{
    for (; *step < s->nstep; ++*step) {
        const struct host_call *h = s->step[*step].kind == STEP_HOST ? s->step[*step].host : NULL;
        bool seen = !h || !h->external;
        for (int i = 0; i < *step && !seen; i++)
            seen = s->step[i].kind == STEP_HOST && s->step[i].host->external &&
                   !strcmp(s->step[i].host->external->symbol, h->external->symbol);
        if (!seen) {
            ++*step;
            return h;
        }
    }
    return NULL;
}

bool program_is_field(const struct program *p, const struct var *v)
{
    return schedule_passes_var(p->s, v);
}

bool program_is_shared_field(const struct program *p, const struct var *v)
{
    return program_is_field(p, v) && !(p->s->graph && v == p->s->graph->entry_number);
}

const char *program_kernel_name(const struct program *p, const struct kernel *k)
{
    if (k->index >= p->s->nkernel || p->s->kernel[k->index] != k)
        TGC_BUG(p->t, "kernel %s is not in the schedule", k->name);
    return p->kernel_name[p->twin[k->index]->index];
}

bool program_is_twin(const struct program *p, const struct kernel *k)
{
    return p->twin[k->index] != k;
}

const char *program_var(const struct program *p, const struct var *v)
{
    if (v->id < 0 || v->id >= p->nvar_id || !p->var_name[v->id])
        TGC_BUG(p->t, "symbol %s is not in the schedule", v->name);
    return p->var_name[v->id];
}

const char *program_var_in_run(const struct program *p, const struct var *v)
{
    const char *name = program_var(p, v);
    return program_is_field(p, v) ? mem_printf(p->t, "in->dim_%s", name) : name;
}

/* ---------------------------------------------------------------------------------- names taken */

/* What the text of emitted files defines: made from it by runtime/taken.c. */
enum taken { MACRO, OF_FILE, OF_MAIN, OF_DRIVER, OWN };
static const struct { enum taken kind; const char *word; } taken_words[] = {
#define TAKEN(word) {MACRO, #word},
#define TAKEN_FILE(word) {OF_FILE, #word},
#define TAKEN_MAIN(word) {OF_MAIN, #word},
#define TAKEN_CALL(word) {OF_DRIVER, #word},
#define TAKEN_OWN(word) {OWN, #word},
#define STATUS(name, value, text) {OWN, #name},
#define DTYPE(name, text, ctype, bits, kind, onnx) {OWN, #name},
#include "ir/dtypes.def"
#undef DTYPE
#include "backends/taken.inc"
#include "backends/program/statuses.def"
#undef TAKEN
#undef TAKEN_FILE
#undef TAKEN_MAIN
#undef TAKEN_CALL
#undef TAKEN_OWN
#undef STATUS
};
/* Of which there is one for each input, output or state, with its number. */
static const char *const tables[] = {"input_dim",      "output_dim",      "state_dim",
                                     "param_dim",      "feed_rule",       "selftest_output"};
#define COUNT(table) (sizeof(table) / sizeof *(table))

static void add_taken(struct names *names, enum taken kind)
{
    for (size_t i = 0; i < COUNT(taken_words); i++)
        if (taken_words[i].kind == kind)
            names_add(names, taken_words[i].word);
}

/* No name of the model is one of these: reserved words and macros. */
static struct names *names_of_macros(struct program *p)
{
    struct names *taken = names_reserved(p->t);
    taken->macros = mem_printf(p->t, "%s_", p->upper);
    add_taken(taken, MACRO);
    return taken;
}

/* What is of the program around the functions alone: kernels are not called so,
 * dimensions may be. */
static void hold_names_of_main(struct program *p, bool held)
{
    for (size_t i = 0; i < COUNT(taken_words); i++)
        if (taken_words[i].kind == OF_MAIN)
            (held ? names_hold : names_release)(p->file, taken_words[i].word);
}

/* ---------------------------------------------------------------------------------- giving them */

/* Takes the words of these forms, if all of them are free. */
static bool take_macros(struct names *macros, const char *name, const struct macro_form *form,
                        size_t n)
{
    for (int take = 0; take < 2; take++)
        for (size_t i = 0; i < n; i++) {
            const char *word = mem_printf(macros->t, "%s%s%s", form[i].before, name, form[i].after);
            if (take)
                names_add(macros, word);
            else if (names_has(macros, word))
                return false;
        }
    return true;
}

const char *program_name_macros(struct program *p, const char *wanted, const char *fallback,
                                const struct macro_form *form, size_t n)
{
    const char *base = name_upper(p->t, name_mangle(p->t, wanted)), *name;
    base = *base ? base : fallback;
    name = base;
    for (int number = 2; !take_macros(p->macros, name, form, n); number++)
        name = mem_printf(p->t, "%s_%d", base, number);
    return name;
}

/* Macros are in capitals: names that differ in case alone would have one. */
static const char *name_var(struct program *p, struct names *names, const char *wanted)
{
    static const struct macro_form form[] = {{"MAX_", ""}, {"MIN_", ""}};
    const char *name;
    do
        name = names_unique(names, wanted, "n");
    while (!take_macros(p->macros, name_upper(p->t, name), form, COUNT(form)));
    return name;
}

static void name_vars(struct program *p)
{
    const struct schedule *s = p->s;
    struct names *names = names_new(p->t, p->file);              /* of NAME_run and of kernels */
    for (int i = 0; i < s->nvar; i++)
        p->nvar_id = s->var[i]->id >= p->nvar_id ? s->var[i]->id + 1 : p->nvar_id;
    for (int i = 0; i < s->nstep; i++)
        if (s->step[i].counter && s->step[i].counter->id >= p->nvar_id)
            p->nvar_id = s->step[i].counter->id + 1;
    p->var_name = mem_array(p->t, (size_t)p->nvar_id + 1, sizeof *p->var_name);
    for (int i = 0; i < s->nvar; i++)
        if (!p->var_name[s->var[i]->id]) {
            p->var_name[s->var[i]->id] = name_var(p, names, s->var[i]->name);
            names_add(p->run, p->var_name[s->var[i]->id]);
        }
    for (int i = 0; i < s->nstep; i++) {
        const struct var *v = s->step[i].counter;
        if (v && !p->var_name[v->id]) {
            p->var_name[v->id] = names_unique(names, v->name ? v->name : "step_number",
                                              "step_number");
            names_add(p->run, p->var_name[v->id]);
        }
    }
}

static void note_buffers(struct program *p, struct buffer *const *b, int n)
{
    for (int i = 0; i < n; i++)
        for (const struct buffer *c = b[i]; c; c = c->base)
            p->nbuffer_id = c->id >= p->nbuffer_id ? c->id + 1 : p->nbuffer_id;
}

/* The locals of NAME_run that point to intermediates are named after the kernel that writes them
 * first: stem[] by buffer id. */
static void note_stem(const char **stem, const struct buffer *b, const char *s)
{
    b = buffer_root(b);
    if (!stem[b->id])
        stem[b->id] = s;
}

static void name_intermediates(struct program *p)
{
    const struct schedule *s = p->s;
    const char **stem = mem_array(p->t, (size_t)p->nbuffer_id + 1, sizeof *stem);
    for (int i = 0; i < s->nkernel; i++) {
        for (int j = 0; j < s->kernel[i]->noutput; j++)
            note_stem(stem, s->kernel[i]->buffer[j], mem_printf(p->t, "%s_out", p->kernel_name[i]));
        for (int j = 0; j < s->kernel[i]->nscratch; j++)
            note_stem(stem, s->kernel[i]->scratch[j],
                      mem_printf(p->t, "%s_scratch", p->kernel_name[i]));
    }
    for (int i = 0; i < s->nstep; i++)
        for (int j = 0; s->step[i].kind == STEP_HOST && j < s->step[i].narg; j++)
            if (j >= s->step[i].narg - s->step[i].host->nout)
                note_stem(stem, s->step[i].arg[j],
                          mem_printf(p->t, "%s_out", s->step[i].host->function));
    for (int i = 0; i < s->nbuffer; i++) {
        const struct buffer *b = s->buffer[i];
        const char *name = b->name ? b->name : stem[b->id];
        if (!b->base && !p->buffer_name[b->id])
            p->buffer_name[b->id] = names_unique(p->run, name ? name : "buffer", "buffer");
    }
}

static void name_buffers(struct program *p)
{
    const struct schedule *s = p->s;
    note_buffers(p, s->buffer, s->nbuffer);
    note_buffers(p, s->weight, s->nweight);
    note_buffers(p, s->input, s->ninput);
    note_buffers(p, s->output, s->noutput);
    for (int i = 0; i < s->nstate; i++) {
        note_buffers(p, &s->state[i]->in, 1);
        note_buffers(p, &s->state[i]->out, 1);
    }
    for (int i = 0; i < s->npart; i++)
        note_buffers(p, &s->part[i]->out, 1);
    for (int i = 0; i < s->nkernel; i++)
        note_buffers(p, s->kernel[i]->scratch, s->kernel[i]->nscratch);
    p->buffer_name = mem_array(p->t, (size_t)p->nbuffer_id + 1, sizeof *p->buffer_name);
    p->buffer_used = mem_array(p->t, (size_t)p->nbuffer_id + 1, sizeof *p->buffer_used);
    struct names *reserved = names_of_macros(p), *field = names_new(p->t, reserved);
    for (int i = 0; i < s->nvar; i++)
        if (program_is_field(p, s->var[i]))
            names_add(field, mem_printf(p->t, "dim_%s", p->var_name[s->var[i]->id]));
    for (int i = 0; i < s->ninput; i++)
        p->buffer_name[s->input[i]->id] = names_unique(field, s->input[i]->name, "input");
    field = names_new(p->t, reserved);
    for (int i = 0; i < s->noutput; i++) {
        /* two names at a time: of the pointer and of its shape */
        const char *name = names_unique(field, s->output[i]->name, "output");
        while (names_has(field, mem_printf(p->t, "%s_shape", name)))
            name = names_unique(field, s->output[i]->name, "output");
        names_add(field, mem_printf(p->t, "%s_shape", name));
        p->buffer_name[s->output[i]->id] = name;
    }
    /* fields of one struct and, with _data appended, file-scope objects */
    field = names_new(p->t, p->file);
    for (int i = 0; i < s->nweight; i++) {
        const char *name = names_unique(field, s->weight[i]->name, "weight");
        while (names_has(p->file, mem_printf(p->t, "%s_data", name)))
            name = names_unique(field, s->weight[i]->name, "weight");
        names_add(p->file, mem_printf(p->t, "%s_data", name));
        p->buffer_name[s->weight[i]->id] = name;
    }
    for (int i = 0; i < s->nstate; i++) {
        const struct state *st = s->state[i];
        p->buffer_name[st->in->id] = names_unique(p->run, st->name, "state");
        p->buffer_name[st->out->id] = names_unique(p->run, st->from, "state");
    }
    for (int i = 0; i < s->npart; i++) {
        const struct buffer *out = s->part[i]->out;
        if (!p->buffer_name[out->id])
            p->buffer_name[out->id] = names_unique(p->run, s->part[i]->state->from, "state");
    }
    name_intermediates(p);
}

/* Takes the names that the entry's structs and functions have, if all of them are free. */
static bool take_names(struct program *p, const char *base)
{
    static const char *const of[] = {"inputs",  "outputs",    "run",
                                     "enqueue", "bind_input", "bind_output"};
    for (int take = 0; take < 2; take++)
        for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
            const char *name = mem_printf(p->t, "%s_%s", base, of[i]);
            if (take)
                names_add(p->file, name);
            else if (names_has(p->file, name))
                return false;
        }
    return true;
}

static void name_entries(struct program *p)
{
    const struct graph *g = p->s->graph;
    int n = g ? g->nentry : 0;
    p->entry_name = mem_array(p->t, (size_t)n + 1, sizeof *p->entry_name);
    for (int e = 0; e < n; e++) {
        const char *word = name_mangle(p->t, g->entry[e].name);
        const char *base = mem_printf(p->t, "%s_%s", p->name, *word ? word : "entry");
        p->entry_name[e] = base;
        for (int number = 2; !take_names(p, p->entry_name[e]); number++)
            p->entry_name[e] = mem_printf(p->t, "%s_%d", base, number);
    }
}

void program_name_all(struct program *p)
{
    static const char *const own[] = {
        "init",         "run",        "close",       "strerror", "describe", "inputs",  "outputs",
        "options",      "info",       "tensor",      "dim",      "symbol",   "kernel",  "status",
        "weights_data", "reset",      "save",        "restore",  "state",    "enqueue", "entry",
        "wait",         "bind_input", "bind_output", "slice",    "meta",     "selftest",
        "dtype"};
    static const char *const of_training[] = {
        "params_init", "parameter", "train_inputs", "train", "gradients",
        "update",      "evaluate",  "all_inputs",   "all_outputs", "upload", "download"};
    static const char *const locals_of_training[] = {
        "all",  "results", "given", "data",    "samples", "ntarget", "targets",
        "draw", "right",   "loss",  "correct", "blocks",  "block",   "index",
        "params", "gradients", "optimizer"};
    const struct schedule *s = p->s;
    const struct host_call *h;
    p->file = names_of_files(p->t);
    p->file->macros = mem_printf(p->t, "%s_", p->upper);
    p->macros = names_new(p->t, NULL);
    add_taken(p->macros, OWN);
    p->visible = names_new(p->t, names_of_macros(p));
    for (int step = 0; (h = schedule_next_external(s, &step));) {
        names_add(p->file, h->external->symbol);
        names_add(p->visible, h->external->symbol);
    }
    names_add(p->file, p->name);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        names_add(p->file, mem_printf(p->t, "%s_%s", p->name, own[i]));
    for (size_t i = 0; i < COUNT(of_training) && program_training(s); i++)
        names_add(p->file, mem_printf(p->t, "%s_%s", p->name, of_training[i]));
    for (size_t i = 0; i < COUNT(locals_of_training) && program_training(s); i++)
        names_add(p->file, locals_of_training[i]);
    names_add(p->visible, p->name);
    snippets_reserve(p->visible);
    p->kernel_name = mem_array(p->t, (size_t)s->nkernel + 1, sizeof *p->kernel_name);
    add_taken(p->file, OF_FILE);
    for (int i = 0; i < s->ninput + s->noutput + s->nstate; i++) {
        for (size_t k = 0; k < COUNT(tables); k++)
            names_add(p->file, mem_printf(p->t, "%s_%d", tables[k], i));
    }
    hold_names_of_main(p, true);
    for (int i = 0; i < s->nkernel; i++)
        names_add(p->visible,
                  p->kernel_name[i] = names_unique(p->file, s->kernel[i]->name, "kernel"));
    p->twin = twins_find(p->t, s);
    p->task_name = mem_array(p->t, (size_t)s->nkernel + 1, sizeof *p->task_name);
    p->part_name = mem_array(p->t, (size_t)s->nkernel + 1, sizeof *p->part_name);
    for (int i = 0; i < s->nkernel; i++)
        if (s->kernel[i]->is_shared) {
            const char *name = p->kernel_name[i];
            p->task_name[i] = names_unique(p->file, mem_printf(p->t, "%s_task", name), "task");
            p->part_name[i] = names_unique(p->file, mem_printf(p->t, "%s_part", name), "part");
        }
    name_entries(p);
    hold_names_of_main(p, false);
    p->run = names_new(p->t, p->file);
    name_vars(p);
    name_buffers(p);
}

struct names *names_of_files(struct tgc *t)
{
    static const char *const word[] = {
#define WORD(name) #name,
#include "backends/program/words.def"
#undef WORD
    };
    struct names *taken = names_reserved(t);
    add_taken(taken, MACRO);
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        names_add(taken, word[i]);
    snippets_reserve(taken);
    return taken;
}

static bool is_table(const char *s)
{
    for (size_t k = 0; k < COUNT(tables); k++) {
        size_t n = strlen(tables[k]);
        if (strncmp(s, tables[k], n) == 0 && s[n] == '_' && s[n + 1] &&
            !s[n + 1 + strspn(s + n + 1, "0123456789")])
            return true;
    }
    return false;
}

const char *program_name(struct tgc *t, const char *stem)
{
    struct names *taken = names_of_files(t);
    const char *s = name_mangle(t, stem);
    add_taken(taken, OF_DRIVER);
    if (!*s)
        s = "model";
    if (names_has(taken, s) || is_table(s))
        s = mem_printf(t, "%s_model", s);
    return s;
}
