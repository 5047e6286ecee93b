/* options.c - the command line, files of options and the environment, parsed into a struct options.
 *
 * Two steps: words are matched against options.def into one list of (option, value), then each
 * value is read by its type (option_values.c). A word @FILE is replaced by the words of that file
 * (blanks separate, '...' "..." and \ quote, # starts a comment line), which may name further
 * files. "--" ends the options. Every mistake is recorded, so that one run shows them all.
 */
#include "lib/parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILE_DEPTH = 8, MAX_OPTION_FILE = 1 << 20 };

static const struct { enum option_id id; const char *spelling; } aliases[] = {
#define ALIAS(id, spelling) {OPTION_##id, spelling},
#include "lib/options.def"
};

static bool is_apart(enum option_id id)
{
    switch (id) {
#define APART(id) case OPTION_##id: return true;
#include "lib/options.def"
    default: return false;
    }
}

bool usage(struct parser *p, const char *format, ...)
{
    char message[600];
    va_list ap;
    va_start(ap, format);
    vsnprintf(message, sizeof message, format, ap);
    va_end(ap);
    return diag_error(p->t, NULL, "%s", message);
}

/* ---------------------------------------------------------------------------------------- words */

bool split_words(struct parser *p, const char *s, const char ***word, size_t *n)
{
    size_t cap = 0;
    *word = NULL;
    *n = 0;
    for (;;) {
        s += strspn(s, " \t\r\n\f\v");
        if (*s == '#') {
            s += strcspn(s, "\n");
            continue;
        }
        if (!*s)
            return true;
        struct text x = {.t = p->t};
        text_puts(&x, "");
        for (char quote = 0; *s && (quote || !strchr(" \t\r\n\f\v", *s)); s++) {
            if (quote && *s == quote)
                quote = 0;
            else if (!quote && (*s == '\'' || *s == '"'))
                quote = *s;
            else if (*s == '\\' && quote != '\'' && s[1])
                text_putc(&x, *++s);
            else
                text_putc(&x, *s);
            if (quote && !s[1])
                return false;
        }
        VEC_PUSH(p->t, *word, *n, cap, x.s);
    }
}

static bool add_words(struct parser *p, const char *const *word, size_t n, int depth);

static bool add_file(struct parser *p, const char *path, int depth)
{
    if (depth >= MAX_FILE_DEPTH)
        return usage(p, "@%s: files of options name each other more than %d deep", path,
                     MAX_FILE_DEPTH);
    struct held *held;
    FILE *f = held_fopen(p->t, path, "re", &held);
    if (!f)
        return usage(p, "@%s: the file of options cannot be opened: %s", path, strerror(errno));
    char *s = mem_alloc(p->t, MAX_OPTION_FILE + 1);
    size_t n = fread(s, 1, MAX_OPTION_FILE + 1, f);
    bool bad = ferror(f);
    held_release(held);
    if (bad || n > MAX_OPTION_FILE || memchr(s, 0, n))
        return usage(
            p, "@%s: the file of options cannot be read, is longer than 1 MiB, or holds a NUL",
            path);
    s[n] = 0;
    VEC_PUSH(p->t, p->o->word_file, p->o->nword_file, p->o->cap_word_file, path);
    const char **word;
    size_t nword;
    if (!split_words(p, s, &word, &nword))
        return usage(p, "@%s: a quote in the file of options is not closed", path);
    return add_words(p, word, nword, depth + 1);
}

/* Recursion is bounded by MAX_FILE_DEPTH. */
static bool add_words(struct parser *p, const char *const *word, size_t n, int depth)
{
    bool ok = true;
    for (size_t i = 0; i < n; i++) {
        if (word[i][0] == '@' && word[i][1])
            ok = add_file(p, word[i] + 1, depth) && ok;
        else
            VEC_PUSH(p->t, p->word, p->nword, p->cap_word, word[i]);
    }
    return ok;
}

struct match { enum option_id id; size_t length; const char *value; };

static void match_spelling(struct match *m, enum option_id id, const char *spelling,
                           const char *word)
{
    size_t n = strlen(spelling);
    if (strncmp(word, spelling, n) != 0 || n <= m->length)
        return;
    bool is_long = spelling[1] == '-';
    bool joined = option_rows[id].value && (is_long ? word[n] == '=' : word[n] != 0);
    if (word[n] && !joined)
        return;
    m->id = id;
    m->length = n;
    m->value = joined ? word + n + (is_long || word[n] == '=') : NULL;
}

/* The option that a word begins with, and where its value begins in it (NULL: not in this word).
 * The longest spelling wins. */
static enum option_id match_option(const char *word, const char **value)
{
    struct match m = {.id = OPTION_COUNT};
    for (int i = 0; i < OPTION_COUNT; i++)
        match_spelling(&m, (enum option_id)i, option_rows[i].spelling, word);
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        match_spelling(&m, aliases[i].id, aliases[i].spelling, word);
    *value = m.value;
    return m.id;
}

/* "; is '--dim' meant?", or "". The word may be a prefix of an option ("--ext"), or misspelt. */
static const char *suggest_option(struct parser *p, const char *word)
{
    enum { LEAST_COMMON = 4 };                        /* "--" and two letters */
    const char *name = mem_printf(p->t, "%.*s", (int)strcspn(word, "="), word);
    struct nearest near = nearest_to(name);
    const char *begun = NULL;
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (strlen(name) >= LEAST_COMMON &&
            strncmp(option_rows[i].spelling, name, strlen(name)) == 0)
            begun = option_rows[i].spelling;
        nearest_offer(&near, option_rows[i].spelling);
    }
    const char *best = near.best ? near.best : begun;
    return best ? mem_printf(p->t, "; is '%s' meant?", best) : "";
}

static bool match_words(struct parser *p)
{
    bool ok = true, options_ended = false;
    for (size_t i = 0; i < p->nword; i++) {
        const char *word = p->word[i], *value = NULL;
        if (!options_ended && strcmp(word, "--") == 0) {
            options_ended = true;
            continue;
        }
        if (options_ended || word[0] != '-' || !word[1]) {
            if (p->noperand < 3)
                p->operand[p->noperand] = word;
            p->noperand++;
            continue;
        }
        enum option_id id = match_option(word, &value);
        if (id == OPTION_COUNT) {
            ok = usage(p, "unknown option '%.200s'%s", word, suggest_option(p, word));
            continue;
        }
        if (option_rows[id].value && !value) {
            if (i + 1 == p->nword) {
                ok = usage(p, "option %s needs a value, %s", option_rows[id].spelling,
                           option_rows[id].value);
                continue;
            }
            value = p->word[++i];
        }
        struct given g = {id, value};
        VEC_PUSH(p->t, p->given, p->ngiven, p->cap_given, g);
    }
    return ok;
}

/* ------------------------------------------------------------------------------------ the whole */

static enum command command_named(const char *word)
{
    int i = 0;
    while (i < COMMAND_COUNT && strcmp(word, command_rows[i].name) != 0)
        i++;
    return (enum command)i;
}

/* "; did you mean 'compile'?", or the commands. */
static const char *suggest_command(struct parser *p, const char *word)
{
    struct nearest near = nearest_to(word);
    struct text all = {.t = p->t};
    for (int i = 0; i < COMMAND_COUNT; i++) {
        nearest_offer(&near, command_rows[i].name);
        text_printf(&all, " %s", command_rows[i].name);
    }
    return near.best ? mem_printf(p->t, "; did you mean '%s'?", near.best)
                     : mem_printf(p->t, "; there are%s", all.s);
}

/* Whether the word is a model's file or -; unless it does not look like a file and none exists. */
static bool is_model(const char *word)
{
    return strpbrk(word, "./") || strcmp(word, "-") == 0 || access(word, F_OK) == 0;
}

static bool find_command(struct parser *p)
{
    enum command c = p->noperand ? command_named(p->operand[0]) : COMMAND_COUNT;
    p->o->command = COMMAND_COMPILE;
    p->o->topic = c;
    if (c != COMMAND_COUNT) {
        p->o->command = c;
        p->noperand--;
        p->operand[0] = p->operand[1];
        p->operand[1] = p->operand[2];
    } else if (p->noperand && !is_model(p->operand[0])) {
        return usage(p, "there is no command and no file '%.100s'%s", p->operand[0],
                     suggest_command(p, p->operand[0]));
    }
    if (c == COMMAND_HELP && p->noperand) {
        p->o->topic = command_named(p->operand[0]);
        if (p->o->topic == COMMAND_COUNT)
            return usage(p, "there is no command '%.100s'%s", p->operand[0],
                         suggest_command(p, p->operand[0]));
    } else if (c == COMMAND_HELP) {
        p->o->topic = COMMAND_COUNT;
    }
    p->o->model = p->noperand ? p->operand[0] : NULL;
    bool takes_two = p->o->command == COMMAND_VERIFY || p->o->command == COMMAND_REPORT;
    p->o->model2 = takes_two && p->noperand == 2 ? p->operand[1] : NULL;
    return true;
}

static bool find_emit(struct parser *p)
{
    const char *out = p->o->output;
    bool reports = p->o->command == COMMAND_BENCH || p->o->command == COMMAND_REPORT;
    if (p->o->emit != EMIT_COUNT || !out || (p->o->command != COMMAND_COMPILE && !reports))
        return true;
    if (strcmp(out, "-") == 0)
        return set_emit(p, reports ? "html" : "c", "-o");
    const char *slash = strrchr(out, '/'), *base = slash ? slash + 1 : out,
               *dot = strrchr(base, '.');
    if (!dot || dot == base || !dot[1])
        return usage(
            p,
            "-o %.200s: the extension says what to write, and there is none; --emit=c says it too",
            out);
    return set_emit(p, dot + 1, out);
}

/* What bench and report write. */
static bool check_reports(struct parser *p)
{
    const struct options *o = p->o;
    bool is_report = o->command == COMMAND_REPORT;
    if (is_report && !p->noperand)
        return usage(p, "tgc report needs a .json that tgc has written (-o m.json), or two");
    if (is_report && !o->output && !o->trace)
        return usage(p, "tgc report needs -o OUT.html, or --trace OUT.json");
    if (is_report && o->trace && o->model2)
        return usage(p, "--trace is of one report, and '%.200s' is a second one", o->model2);
    if (!is_report && o->emit != EMIT_COUNT && !o->output)
        return usage(p, "--emit=%s needs -o OUT", emit_extension(o->emit));
    if (o->emit == EMIT_HTML || o->emit == EMIT_COUNT || (o->emit == EMIT_JSON && !is_report))
        return true;
    return usage(p, "tgc %s writes .html%s, and not .%s", command_rows[o->command].name,
                 is_report ? "" : " or .json", emit_extension(o->emit));
}

/* A module is clang's, for one of two triples. */
static bool check_wasm(struct parser *p)
{
    struct options *o = p->o;
    if (o->target != TARGET_C && o->target != TARGET_CLANG)
        return usage(p, "'.wasm' is written by --target=clang, and not by --target=%s",
                     target_name(o->target));
    o->target = TARGET_CLANG;
    o->triple = o->triple ? o->triple : "wasm32-wasi";
    if (strcmp(o->triple, "wasm32-wasi") != 0 && strcmp(o->triple, "wasm32-unknown-unknown") != 0)
        return usage(
            p, "'.wasm' is for --triple=wasm32-wasi or wasm32-unknown-unknown, and not %.200s",
            o->triple);
    const isa_set its = 1u << ISA_GENERIC | 1u << ISA_SIMD128;
    if (o->processor || (o->isa && o->isa != isa_all() && (o->isa & ~its)))
        return usage(p, "--cpu=%.100s is no processor of '.wasm': auto, simd128 and generic are",
                     o->architectures);
    if (o->threads > 1)
        return usage(p, "'.wasm' has one thread; --threads=%d is for other outputs", o->threads);
    return true;
}

/* The file of the program around the model. */
static bool check_main(struct parser *p)
{
    const struct options *o = p->o;
    if (o->training.emits)
        return usage(p, "--main: the program of a training is a part of its C file");
    if (o->emit != EMIT_C || strcmp(o->output, "-") == 0)
        return usage(p, "--main: the program is for C in a file; -o NAME.c is expected");
    return strcmp(o->main, o->output) != 0 ||
           usage(p, "--main and -o name the same file, '%.200s'", o->main);
}

static bool check_operands(struct parser *p)
{
    const struct options *o = p->o;
    const char *command = command_rows[o->command].name;
    if ((o->command == COMMAND_REPORT || o->command == COMMAND_BENCH) && !check_reports(p))
        return false;
    if (o->command == COMMAND_OPS)
        return p->noperand <= 1 ||
               usage(p, "tgc ops takes one name, and '%.200s' is a second one", p->operand[1]);
    if (o->command == COMMAND_CACHE || o->command == COMMAND_DEVICES)
        return p->noperand == 0 ||
               usage(p, "tgc %s takes no operand, and '%.200s' is one", command, p->operand[0]);
    if (p->noperand == 0)
        return usage(p, "no model is given; tgc %s needs one: a file, or - and -x", command);
    if (p->noperand > 1 + (o->model2 != NULL))
        return usage(p, "one model is expected, and '%.200s' is a second operand", p->operand[1]);
    if (o->command == COMMAND_COMPILE && !o->output)
        return usage(p, "no output is named; -o OUT is required");
    if (o->command == COMMAND_TUNE && (!o->output || strcmp(o->output, "-") == 0))
        return usage(p, "tgc tune needs -o FILE, where it writes what it has measured");
    if (o->command == COMMAND_TRAIN && !options_check_training(p))
        return false;
    if (o->command == COMMAND_WEIGHTS && (!o->params || !o->output))
        return usage(p, "tgc weights needs --params BLOCK, a file of a program of --train, and -o "
                        "OUT, the model: a .onnx, .tg or .safetensors");
    bool emits = o->command == COMMAND_COMPILE || o->command == COMMAND_INFO;
    if (emits && !options_check_emitted_training(p))
        return false;
    if (o->main && !check_main(p))
        return false;
    if (o->command == COMMAND_TUNE && o->level == 0)
        return usage(p, "tgc tune measures choices, and -O0 makes none");
    if (o->command == COMMAND_TUNE && (o->beam < 0 || o->beam > TUNE_WIDTH_MAX))
        return usage(p, "BEAM=%d: the width of the search is 1 to %d", o->beam, TUNE_WIDTH_MAX);
    if (o->bisect && o->model2)
        return usage(p, "--bisect changes how both models are optimized: compare with --data, or "
                        "with the same model by --other=-O0");
    if (o->command == COMMAND_VERIFY && !o->data && !o->model2 && !o->nother && !o->bisect)
        return usage(p, "tgc verify needs --data DIR, where input_0.pb, output_0.pb, ... are, a "
                        "second model, or --other=OPTIONS");
    if (o->command == COMMAND_VERIFY && o->data &&
        (o->model2 || o->nother || o->ninput || o->nlayout || o->ninner))
        return usage(p, "--data holds inputs and outputs; %s is for comparing two models",
                     o->model2    ? "a second model"
                     : o->nother  ? "--other"
                     : o->ninner  ? "--value"
                     : o->ninput  ? "-i"
                                  : "--image-layout");
    bool on_device = backend_is_of_device(backend_find(target_name(o->target)));
    if (on_device && o->threads > 1 && !(o->device && o->device->is_processor))
        return usage(p, "--threads is for processors: a device decides itself how many it has");
    if (on_device && o->isa && o->isa != isa_all()) {
        struct text known = {.t = p->t};
        option_put_devices(&known, target_name(o->target));
        return usage(p, "--cpu names a processor, and --target=%s is for a device; known are%s",
                     target_name(o->target), known.s);
    }
    if (!on_device && o->device)
        return usage(p, "--cpu=%s is a device, and --target=%s is for a processor; try "
                        "--target=%s",
                     o->device->text, target_name(o->target), o->device->target);
    if (o->device && strcmp(o->device->target, target_name(o->target)) != 0) {
        struct text known = {.t = p->t};
        option_put_devices(&known, target_name(o->target));
        return usage(p, "--cpu=%s is a device of --target=%s; --target=%s has%s", o->device->text,
                     o->device->target, target_name(o->target), known.s);
    }
    if (o->nunrounded && o->math == DTYPE_VOID)
        return usage(p,
                     "--math=%.100s=f32 leaves a node of those that are rounded: add --math=bf16, "
                     "tf32 or f16",
                     o->unrounded[0]);
    if (o->strassen && o->math != DTYPE_VOID)
        return usage(p,
                     "--strassen multiplies sums of parts, and --math=%s rounds what the model "
                     "multiplies: one of them alone",
                     dtype_name(o->math));
    const char *of_devices = o->image          ? "--image"
                             : o->half_storage ? "--half-storage"
                             : o->no_locals    ? "--no-locals"
                                               : NULL;
    if (!on_device && of_devices)
        return usage(p,
                     "%s is for devices, and --target=%s is for a processor; try --target=opencl",
                     of_devices, target_name(o->target));
    if (o->target != TARGET_OPENCL && o->image)
        return usage(p, "--image is for --target=opencl, and --target=%s has no images",
                     target_name(o->target));
    bool by_llvm = o->emit == EMIT_LL || o->emit == EMIT_ASM || o->emit == EMIT_OBJECT;
    if (o->command == COMMAND_COMPILE && o->target == TARGET_LLVM && o->emit == EMIT_C)
        return usage(p,
                     "--target=llvm writes .o, .so, .a, .s and .ll: '.c' is written by --target=c");
    if (o->target != TARGET_LLVM && o->emit == EMIT_ASM)
        return usage(p, "'.s' is written by --target=llvm");
    if (o->target != TARGET_LLVM && o->target != TARGET_CUDA && o->target != TARGET_AMD &&
        o->emit == EMIT_LL)
        return usage(p, "'.ll' is written by --target=llvm, --target=cuda and --target=amd");
    if (o->command == COMMAND_COMPILE && o->target != TARGET_OPENCL && o->emit == EMIT_CL)
        return usage(p, "'.cl' is written by --target=opencl");
    if (o->command == COMMAND_COMPILE && o->target != TARGET_CUDA &&
        (o->emit == EMIT_CU || o->emit == EMIT_PTX))
        return usage(p, "'.%s' is written by --target=cuda", emit_extension(o->emit));
    if (o->command == COMMAND_COMPILE && o->target != TARGET_METAL && o->emit == EMIT_METAL)
        return usage(p, "'.metal' is written by --target=metal");
    if (o->command == COMMAND_COMPILE && o->target != TARGET_AMD &&
        (o->emit == EMIT_HIP || o->emit == EMIT_HSACO))
        return usage(p, "'.%s' is written by --target=amd", emit_extension(o->emit));
    if ((o->emit == EMIT_PTX || o->emit == EMIT_HSACO || (on_device && o->emit == EMIT_LL)) &&
        o->architectures && strchr(o->architectures, ','))
        return usage(p, "'.%s' is of one architecture, and --cpu=%s names several",
                     emit_extension(o->emit), o->architectures);
    if (o->emit == EMIT_WASM && !check_wasm(p))
        return false;
    if (o->triple && o->target != TARGET_CLANG && o->target != TARGET_LLVM)
        return usage(
            p, "--triple is for --target=clang and --target=llvm; with --target=c CC=TRIPLE-gcc "
               "compiles for another machine");
    if (o->triple && !by_llvm && o->emit != EMIT_C && o->emit != EMIT_SHARED &&
        o->emit != EMIT_ARCHIVE && o->emit != EMIT_WASM)
        return usage(p, "--triple is for what a compiler makes, .o, .so and .a, and for .c");
    if (o->target == TARGET_LLVM && o->debug_info && o->command != COMMAND_COMPILE)
        return usage(
            p, "-g is for files: code in this process has no debugging information yet; leave "
               "-g out, or take --target=c or --target=clang");
    if (strcmp(o->model, "-") == 0 && o->format == FORMAT_BY_NAME)
        return usage(p, "a model from standard input needs its format: -x onnx or -x tg");
    if (o->command == COMMAND_COMPILE && !o->depfile &&
        (o->depfile_name || o->depfile_target || o->depfile_phony))
        return usage(p, "%s says how the file of -MD is written, and -MD is not given",
                     o->depfile_name     ? "-MF"
                     : o->depfile_target ? "-MT"
                                         : "-MP");
    if (o->depfile && strcmp(o->output, "-") == 0 && !(o->depfile_name && o->depfile_target))
        return usage(p, "-MD with -o - needs -MF FILE and -MT TARGET");
    return true;
}

/* Options that determine how mistakes are printed are read first. */
static bool is_early(enum option_id id) { return id == OPTION_DIAGNOSTICS || id == OPTION_COLOR; }

/* The options that decide what code a model has, as they were given. */
static void make_key(struct parser *p)
{
    struct text x = {.t = p->t};
    text_puts(&x, "");
    for (size_t i = 0; i < p->ngiven; i++)
        if (!is_apart(p->given[i].id))
            text_printf(&x, "%s %s\n", option_rows[p->given[i].id].spelling,
                        p->given[i].value ? p->given[i].value : "");
    p->o->key = x.s;
    p->o->nkey = x.n;
}

static void set_defaults(struct options *o)
{
    *o = (struct options){.emit = EMIT_COUNT,
                          .opt_limit = -1,
                          .level = 2,
                          .cache = CACHE_OF_MACHINE,
                          .threads = 1,
                          .steps = 1,
                          .isa = 0,
                          .error = ERROR_LIMIT,
                          .training = {.optimizer = optimizer_default(OPTIMIZER_ADAM),
                                       .epochs = 10,
                                       .learning_rate = -1},
                          .rtol = -1,
                          .atol = -1,
                          .print = OPTION_COUNT};
}

/* Options of compile, run and info, but for those that say what is printed and those that the
 * library's functions have parameters for. */
static bool is_for_library(enum option_id id)
{
    static const enum option_id others[] = {OPTION_FORMAT,
                                            OPTION_OUTPUT,
                                            OPTION_EMIT,
                                            OPTION_DEPFILE,
                                            OPTION_DEPFILE_NAME,
                                            OPTION_DEPFILE_TARGET,
                                            OPTION_DEPFILE_QUOTED,
                                            OPTION_DEPFILE_PHONY,
                                            OPTION_INPUT,
                                            OPTION_IMAGE_LAYOUT,
                                            OPTION_STEPS,
                                            OPTION_OUT_DIR,
                                            OPTION_JSON,
                                            OPTION_DIAGNOSTICS,
                                            OPTION_COLOR,
                                            OPTION_VERBOSE,
                                            OPTION_HELP,
                                            OPTION_VERSION,
                                            OPTION_MAN,
                                            OPTION_COMPLETION};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i] == id)
            return false;
    return option_fits(id, COMMAND_COMPILE) || option_fits(id, COMMAND_RUN) ||
           option_fits(id, COMMAND_INFO);
}

/* One word for an option whose value is valid; NULL: it is not. */
static const char *checked_word(struct parser *p, const struct given *g)
{
    const char *spelling = option_rows[g->id].spelling, *value = g->value;
    set_defaults(p->o);
    if (!option_apply(p, g))
        return NULL;
    return mem_printf(p->t, "%s%s%s", spelling, value && spelling[1] == '-' ? "=" : "",
                      value ? value : "");
}

const char *option_word(struct tgc *t, const char *name, const char *value)
{
    struct options o;
    struct parser p = {.t = t, .o = &o};
    struct nearest near = nearest_to(name);
    int id = 0;
    for (; id < OPTION_COUNT; id++) {
        const char *bare = option_rows[id].spelling + strspn(option_rows[id].spelling, "-");
        if (!is_for_library((enum option_id)id))
            continue;
        if (strcmp(bare, name) == 0)
            break;
        nearest_offer(&near, bare);
    }
    if (id == OPTION_COUNT)
        usage(&p, "there is no option '%.100s' here%s%s%s", name, near.best ? "; is '" : "",
              near.best ? near.best : "", near.best ? "' meant?" : "");
    else if (option_rows[id].value && !value)
        usage(&p, "option '%s' needs a value, %s", name, option_rows[id].value);
    else if (!option_rows[id].value && value)
        usage(&p, "option '%s' has no value, and '%.100s' is given", name, value);
    if (t->nerror)
        return NULL;
    return checked_word(&p, &(struct given){(enum option_id)id, value});
}

const char *const *option_words(struct tgc *t, const char *const *word, size_t n, size_t *count)
{
    struct options o;
    struct parser p = {.t = t, .o = &o};
    *count = 0;
    for (size_t i = 0; i < n; i++)
        VEC_PUSH(t, p.word, p.nword, p.cap_word, word[i]);
    bool ok = match_words(&p);
    const char **one = mem_array(t, p.ngiven + 1, sizeof *one);
    if (p.noperand)
        ok = usage(&p, "'%.200s' is no option", p.operand[0]);
    for (size_t i = 0; i < p.ngiven && ok; i++) {
        if (is_for_library(p.given[i].id))
            one[i] = checked_word(&p, &p.given[i]);
        else
            usage(&p, "option %s cannot be given here", option_rows[p.given[i].id].spelling);
        ok = one[i] != NULL;
    }
    *count = p.ngiven;
    return ok ? one : NULL;
}

bool option_word_fits(struct tgc *t, const char *word, enum command c)
{
    const char *value;
    enum option_id id = match_option(word, &value);
    if (id == OPTION_COUNT)
        TGC_BUG(t, "'%s' is no option's word", word);
    return option_fits(id, c);
}

/* Portable code alone, for a processor that has no name: such programs are small devices'. */
static bool is_portable(const struct options *o)
{
    return o->architectures && !o->processor && o->isa == 1u << ISA_GENERIC;
}

bool options_parse(struct tgc *t, int argc, const char *const *argv,
                   const char *(*getenv_)(const char *), struct options *o)
{
    struct parser p = {.t = t, .getenv_ = getenv_, .o = o};
    const char *no_color = getenv_("NO_COLOR");
    set_defaults(o);
    o->color = isatty(STDERR_FILENO) && !(no_color && *no_color);
    bool ok = add_words(&p, argv + 1, argc > 0 ? (size_t)argc - 1 : 0, 0);
    o->word = p.word;
    o->nword = p.nword;
    ok = match_words(&p) && ok;
    ok = find_command(&p) && ok;
    make_key(&p);
    bool has_target = false, has_level = false, has_threads = false;
    for (size_t i = 0; i < p.ngiven; i++)
        if (is_early(p.given[i].id))
            ok = option_apply(&p, &p.given[i]) && ok;
    for (size_t i = 0; i < p.ngiven; i++) {
        const struct given *g = &p.given[i];
        has_target |= g->id == OPTION_TARGET;
        has_level |= g->id == OPTION_LEVEL;
        has_threads |= g->id == OPTION_THREADS;
        if (!option_fits(g->id, o->command))
            ok = usage(&p, "tgc %s does not take %s", command_rows[o->command].name,
                       option_rows[g->id].spelling);
        else if (!is_early(g->id))
            ok = option_apply(&p, g) && ok;
    }
    if (o->processor && !o->machine)
        o->machine = machine_find(o->processor->machine);
    if (is_portable(o) && !o->machine)
        o->machine = machine_find("small");
    if (o->device && o->device->is_processor && !has_threads)
        o->threads = o->device->units;
    if (o->command == COMMAND_HELP && o->print == OPTION_COUNT)
        o->print = OPTION_HELP;
    if (o->print != OPTION_COUNT)
        return ok;
    ok = environment_apply(&p, has_target, has_level) && ok;
    ok = find_emit(&p) && ok;
    return ok && check_operands(&p);
}
