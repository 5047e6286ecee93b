/* api.c - tgc.h: compilers.
 *
 * A call makes a compile (struct tgc) of its own, and frees it, or hands it to what it returns. Its
 * diagnostics are copied before: a compiler has them in an arena that the next call frees. Whatever
 * ends a compile, ends in api_call().
 */
#include "lib/lib.h"

#include <stdlib.h>
#include <string.h>

struct tgc_compiler {
    /* the words of the options that are set; NULL: none */
    struct tgc *settings; const char **word; size_t nword, cap_word;
    char *path;                     /* NULL: no model, or one in memory */
    const void *bytes; size_t nbytes; bool is_text;
    struct { void (*f)(void *user, const char *what); void *user; } progress;
    struct { int (*f)(void *user); void *user; } cancel;
    struct tgc *said; const tgc_message *message; size_t nmessage;
    struct tgc *report;             /* tgc_info_json()'s */
    bool is_misused;                /* by the present call */
};

const char *tgc_version(void) { return TGC_VERSION; }

const char *tgc_status_text(tgc_status status)
{
    switch (status) {
    case TGC_OK:
        return "done";
    case TGC_FAILED:
        return "failed";
    case TGC_MISUSE:
        return "a parameter or an option is wrong";
    case TGC_NO_MEMORY:
        return "out of memory";
    case TGC_CANCELLED:
        return "cancelled";
    case TGC_DEFECT:
        return "a defect of tgc";
    }
    return "no status";
}

/* ------------------------------------------------------------------------------------- messages */

static tgc_message message_of(struct tgc *t, const struct diag *d)
{
    return (tgc_message){.severity = (tgc_severity)d->severity,
                         .file = d->at.file ? mem_str(t, d->at.file) : NULL,
                         .line = d->at.line,
                         .column = d->at.column,
                         .place = d->at.text ? mem_str(t, d->at.text) : NULL,
                         .text = mem_str(t, d->message)};
}

static const tgc_message no_memory = {TGC_ERROR, NULL, 0, 0, NULL,
                                      "out of memory; the option max-memory sets the limit"};

static void forget_messages(tgc_compiler *c)
{
    tgc_free(c->said);
    tgc_free(c->report);
    c->said = c->report = NULL;
    c->message = NULL;
    c->nmessage = 0;
}

/* Those of t, as far as there is memory for them. A copy may end the arena that it is made in. */
static void take_messages(tgc_compiler *c, const struct tgc *t)
{
    forget_messages(c);
    struct tgc *said = c->said = tgc_new(0);
    if (!said || setjmp(said->stop) != 0)
        return;
    tgc_message *message = mem_array(said, (size_t)t->ndiag + 1, sizeof *message);
    c->message = message;
    for (int i = 0; i < t->ndiag; i++) {
        message[i] = message_of(said, &t->diag[i]);
        c->nmessage++;
    }
}

static bool has_error(const tgc_compiler *c)
{
    for (size_t i = 0; i < c->nmessage; i++)
        if (c->message[i].severity == TGC_ERROR)
            return true;
    return false;
}

size_t tgc_message_count(const tgc_compiler *c)
{
    return c ? c->nmessage : 0;
}

const tgc_message *tgc_message_get(const tgc_compiler *c, size_t index)
{
    return c && index < c->nmessage ? &c->message[index] : NULL;
}

/* ---------------------------------------------------------------------------------------- calls */

tgc_status api_status(const struct tgc *t)
{
    return t->cancelled   ? TGC_CANCELLED
           : t->bug       ? TGC_DEFECT
           : t->exhausted ? TGC_NO_MEMORY
           : t->nerror    ? TGC_FAILED
                          : TGC_OK;
}

/* Without the memory for a message there is one all the same. */
static void say_no_memory(tgc_compiler *c)
{
    forget_messages(c);
    c->message = &no_memory;
    c->nmessage = 1;
}

static void on_progress(void *user, const char *what)
{
    const tgc_compiler *c = user;
    c->progress.f(c->progress.user, what);
}

static bool go_on(void *user)
{
    const tgc_compiler *c = user;
    return c->cancel.f(c->cancel.user) == 0;
}

static const struct listener *listen(struct tgc *t, tgc_compiler *c)
{
    struct listener *l = MEM_NEW(t, struct listener);
    l->user = c;
    l->on_progress = c->progress.f ? on_progress : NULL;
    l->go_on = c->cancel.f ? go_on : NULL;
    return l;
}

static void work(tgc_compiler *c, struct tgc *t, api_work *f, void *arg)
{
    if (setjmp(t->stop) != 0)
        return;
    t->listener = listen(t, c);
    f(t, c, arg);
}

tgc_status api_call(tgc_compiler *c, api_work *f, void *arg, struct tgc **kept)
{
    if (kept)
        *kept = NULL;
    if (!c)
        return TGC_MISUSE;
    struct tgc *t = tgc_new(0);
    if (!t) {
        say_no_memory(c);
        return TGC_NO_MEMORY;
    }
    c->is_misused = false;
    work(c, t, f, arg);
    if (t->listener && api_status(t) != TGC_OK)
        progress_end(t);             /* of a stage that was not finished */
    t->listener = NULL;
    tgc_status status = api_status(t);
    if (status == TGC_FAILED && c->is_misused)
        status = TGC_MISUSE;
    take_messages(c, t);
    if (status != TGC_OK && status != TGC_CANCELLED && !has_error(c))
        say_no_memory(c);
    if (kept && status == TGC_OK)
        *kept = t;
    else
        tgc_free(t);
    return status;
}

/* -------------------------------------------------------------------------------------- options */

static const char *no_variable(const char *name)
{
    (void)name;
    return NULL;
}

/* "-" and "@" mean something else where a word of a command line begins with them. */
static const char *plain_path(struct tgc *t, const char *path)
{
    return path[0] == '-' || path[0] == '@' ? mem_printf(t, "./%s", path) : path;
}

bool api_options(struct tgc *t, tgc_compiler *c, enum command command, const char *output,
                 const char *first, struct options *o)
{
    const char **word = mem_array(t, c->nword + 9, sizeof *word);
    int n = 0;
    c->is_misused = true;
    if (!c->path && !c->bytes)
        return diag_error(t, NULL,
                          "no model is named; tgc_source_file() or tgc_source_memory() does");
    word[n++] = "tgc";
    word[n++] = command_name(command);
    if (first)
        word[n++] = first;
    for (size_t i = 0; i < c->nword; i++)
        if (option_word_fits(t, c->word[i], command))
            word[n++] = c->word[i];
    if (c->bytes)
        word[n++] = c->is_text ? "-xtg" : "-xonnx";
    if (output) {
        word[n++] = "-o";
        word[n++] = plain_path(t, output);
    }
    word[n++] = "--";
    word[n++] = c->bytes ? "./<memory>" : plain_path(t, c->path);
    if (!options_parse(t, n, word, no_variable, o))
        return false;
    c->is_misused = false;
    if (c->bytes)
        o->model = "<memory>";
    o->subject = o->model;
    o->bytes = c->bytes;
    o->nbytes = c->nbytes;
    limits_set(t, o);
    return true;
}

/* Ends a compile since memory for something beside it is exhausted. */
static _Noreturn void exhausted(struct tgc *t)
{
    t->exhausted = true;
    t->nerror++;
    tgc_stop(t);
}

static void keep_words(struct tgc *t, tgc_compiler *c, const char *const *word, size_t n)
{
    c->is_misused = !word;
    if (!word)
        return;
    if (!c->settings && !(c->settings = tgc_new(0)))
        exhausted(t);
    if (setjmp(c->settings->stop) != 0)
        exhausted(t);
    for (size_t i = 0; i < n; i++)
        VEC_PUSH(c->settings, c->word, c->nword, c->cap_word, mem_str(c->settings, word[i]));
}

struct setting { const char *name, *value; };

static void set(struct tgc *t, tgc_compiler *c, void *arg)
{
    const struct setting *s = arg;
    const char *word = option_word(t, s->name, s->value);
    keep_words(t, c, word ? &word : NULL, 1);
}

tgc_status tgc_set(tgc_compiler *c, const char *name, const char *value)
{
    struct setting s = {name, value};
    return name ? api_call(c, set, &s, NULL) : TGC_MISUSE;
}

struct words { const char *const *word; size_t n; };

static void set_words(struct tgc *t, tgc_compiler *c, void *arg)
{
    const struct words *given = arg;
    size_t n;
    const char *const *word = option_words(t, given->word, given->n, &n);
    keep_words(t, c, word, n);
}

tgc_status tgc_set_words(tgc_compiler *c, const char *const *word, size_t n)
{
    struct words words = {word, n};
    for (size_t i = 0; word && i < n; i++)
        if (!word[i])
            return TGC_MISUSE;
    return word ? api_call(c, set_words, &words, NULL) : TGC_MISUSE;
}

void tgc_set_defaults(tgc_compiler *c)
{
    if (!c)
        return;
    tgc_free(c->settings);
    c->settings = NULL;
    c->word = NULL;
    c->nword = c->cap_word = 0;
}

void tgc_on_progress(tgc_compiler *c, void (*f)(void *user, const char *what), void *user)
{
    if (c) {
        c->progress.f = f;
        c->progress.user = user;
    }
}

void tgc_on_cancel(tgc_compiler *c, int (*f)(void *user), void *user)
{
    if (c) {
        c->cancel.f = f;
        c->cancel.user = user;
    }
}

/* -------------------------------------------------------------------------------------- sources */

static void forget_source(tgc_compiler *c)
{
    free(c->path);
    c->path = NULL;
    c->bytes = NULL;
    c->nbytes = 0;
}

tgc_status tgc_source_file(tgc_compiler *c, const char *path)
{
    if (!c || !path || !*path)
        return TGC_MISUSE;
    char *copy = strdup(path);
    if (!copy) {
        say_no_memory(c);
        return TGC_NO_MEMORY;
    }
    forget_messages(c);
    forget_source(c);
    c->path = copy;
    return TGC_OK;
}

tgc_status tgc_source_memory(tgc_compiler *c, const char *format, const void *bytes, size_t nbytes)
{
    bool is_text = format && strcmp(format, "tg") == 0;
    if (!c || !bytes || !format || (!is_text && strcmp(format, "onnx") != 0))
        return TGC_MISUSE;
    forget_messages(c);
    forget_source(c);
    c->bytes = bytes;
    c->nbytes = nbytes;
    c->is_text = is_text;
    return TGC_OK;
}

tgc_compiler *tgc_compiler_new(void) { return calloc(1, sizeof(tgc_compiler)); }

void tgc_compiler_free(tgc_compiler *c)
{
    if (!c)
        return;
    forget_source(c);
    forget_messages(c);
    tgc_set_defaults(c);
    free(c);
}

/* ------------------------------------------------------------------------------------ compiling */

static void compile_file(struct tgc *t, tgc_compiler *c, void *arg)
{
    struct options o;
    if (api_options(t, c, COMMAND_COMPILE, arg, NULL, &o))
        compile_model(t, &o, outputs_new(t));
}

tgc_status tgc_compile_file(tgc_compiler *c, const char *path)
{
    return path && *path ? api_call(c, compile_file, (void *)(uintptr_t)path, NULL) : TGC_MISUSE;
}

/* It is in its compile's arena. */
struct tgc_files { struct tgc *t; struct outputs *outputs; size_t n; };
struct in_memory { const char *kind; tgc_files *files; };

static const char *stem_of(struct tgc *t, const tgc_compiler *c)
{
    struct model m;
    if (!c->path)
        return "model";
    model_name(t, c->path, &m);
    return program_name(t, m.stem);
}

static void compile_memory(struct tgc *t, tgc_compiler *c, void *arg)
{
    struct in_memory *in = arg;
    struct options o;
    tgc_files *files = MEM_NEW(t, tgc_files);
    const char *output = mem_printf(t, "%s.%s", stem_of(t, c), in->kind);
    *files = (tgc_files){.t = t, .outputs = outputs_new_in_memory(t)};
    if (!api_options(t, c, COMMAND_COMPILE, output, mem_printf(t, "--emit=%s", in->kind), &o))
        return;
    if (o.name)
        o.output = mem_printf(t, "%s.%s", o.name, in->kind);
    if (!compile_model(t, &o, files->outputs))
        return;
    while (outputs_in_memory(files->outputs, files->n).path)
        files->n++;
    in->files = files;
}

tgc_status tgc_compile_memory(tgc_compiler *c, const char *kind, tgc_files **files)
{
    struct in_memory in = {.kind = kind};
    struct tgc *kept;
    if (!kind || !files)
        return TGC_MISUSE;
    tgc_status status = api_call(c, compile_memory, &in, &kept);
    *files = kept ? in.files : NULL;
    return status;
}

size_t tgc_files_count(const tgc_files *files) { return files ? files->n : 0; }

tgc_file tgc_files_get(const tgc_files *files, size_t index)
{
    struct memory_file f = {0};
    if (files && index < files->n)
        f = outputs_in_memory(files->outputs, index);
    return (tgc_file){f.path, f.bytes, f.nbytes};
}

void tgc_files_free(tgc_files *files)
{
    if (files)
        tgc_free(files->t);
}

/* ---------------------------------------------------------------------------------------- facts */

static void write_info(struct tgc *t, tgc_compiler *c, void *arg)
{
    struct options o;
    struct text x = {.t = t};
    if (!api_options(t, c, COMMAND_INFO, NULL, "--json", &o) || !info_write(&x, t, &o))
        return;
    *(char **)arg = x.s;
}

tgc_status tgc_info_json(tgc_compiler *c, const char **json)
{
    char *report = NULL;
    struct tgc *kept;
    if (!json)
        return TGC_MISUSE;
    tgc_status status = api_call(c, write_info, &report, &kept);
    if (kept)
        c->report = kept;
    *json = kept ? report : NULL;
    return status;
}
