/* options.c - the command line, files of options and the environment, parsed into a struct options.
 *
 * Two steps: words are matched against options.def into one list of (option, value), then each
 * value is read by its type. A word @FILE is replaced by the words of that file (blanks separate,
 * '...' "..." and \ quote, # starts a comment line), which may name further files. "--" ends the
 * options. Every mistake is recorded, so that one run shows them all.
 */
#include "lib/lib.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { FLAG, VALUE, LIST };
#define TRIPLE_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-"
enum { MAX_FILE_DEPTH = 8, MAX_OPTION_FILE = 1 << 20 };

static const struct {
    const char *spelling, *value;
    enum kind kind;
    const char *commands;
} table[] = {
#define OPTION(id, spelling, value, kind, commands, text) {spelling, value, kind, commands},
#include "lib/options.def"
};
static const struct { const char *name; char letter; } commands[] = {
#define COMMAND(id, letter, name, operands, text) {name, letter},
#include "lib/options.def"
};
static const struct { enum option_id id; const char *spelling; } aliases[] = {
#define ALIAS(id, spelling) {OPTION_##id, spelling},
#include "lib/options.def"
};
static const struct { const char *extension, *text; bool built; } emits[] = {
#define EMIT(id, extension, text, built) {extension, text, built},
#include "lib/options.def"
};
static const struct { const char *name, *variable; bool built; } targets[] = {
#define TARGET(id, name, variable, built) {name, variable, built},
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

const char *option_spelling(enum option_id id) { return table[id].spelling; }
const char *target_name(enum target target) { return targets[target].name; }
const char *command_name(enum command c) { return commands[c].name; }
const char *emit_extension(enum emit e) { return emits[e].extension; }

bool option_fits(enum option_id id, enum command c)
{
    return strchr(table[id].commands, commands[c].letter) != NULL;
}

void option_put_choices(struct text *out, enum option_id id)
{
    const char *value = table[id].value;
    if (id == OPTION_CPU) {
        text_puts(out, "auto native");
        for (int i = 0; i < ISA_COUNT; i++)
            text_printf(out, " %s", isa_table[i].text);
    } else if (id == OPTION_MACHINE) {
        int n;
        const struct machine *m = machine_rows(&n);
        text_puts(out, "host");
        for (int i = 0; i < n; i++)
            text_printf(out, " %s", m[i].text);
    } else if (id == OPTION_EMIT) {
        for (int i = 0, n = 0; i < EMIT_COUNT; i++)
            if (emits[i].built)
                text_printf(out, "%s%s", n++ ? " " : "", emits[i].extension);
    } else if (id == OPTION_TARGET) {
        for (int i = 0, n = 0; i < TARGET_COUNT; i++)
            if (targets[i].built)
                text_printf(out, "%s%s", n++ ? " " : "", targets[i].name);
    } else if (id == OPTION_LEVEL) {
        text_puts(out, "0 1 2 3");
    } else if (value && strchr(value, '|') && !strpbrk(value, "=ABCDEFGHIJKLMNOPQRSTUVWXYZ")) {
        for (; *value; value++)
            text_putc(out, *value == '|' ? ' ' : *value);
    } else {
        text_puts(out, "");
    }
}

struct given { enum option_id id; const char *value; };
struct parser {
    struct tgc *t;
    const char *(*getenv_)(const char *);
    struct options *o;
    const char **word; size_t nword, cap_word;
    struct given *given; size_t ngiven, cap_given;
    const char *operand[3]; int noperand;
};

static bool usage(struct parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool usage(struct parser *p, const char *format, ...)
{
    char message[600];
    va_list ap;
    va_start(ap, format);
    vsnprintf(message, sizeof message, format, ap);
    va_end(ap);
    return diag_error(p->t, NULL, "%s", message);
}

/* ---------------------------------------------------------------------------------------- words */

/* Splits the text of a file of options. false: an open quote. */
static bool split_words(struct parser *p, const char *s, const char ***word, size_t *n)
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
    bool joined = table[id].value && (is_long ? word[n] == '=' : word[n] != 0);
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
        match_spelling(&m, (enum option_id)i, table[i].spelling, word);
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
        if (strlen(name) >= LEAST_COMMON && strncmp(table[i].spelling, name, strlen(name)) == 0)
            begun = table[i].spelling;
        nearest_offer(&near, table[i].spelling);
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
        if (table[id].value && !value) {
            if (i + 1 == p->nword) {
                ok = usage(p, "option %s needs a value, %s", table[id].spelling, table[id].value);
                continue;
            }
            value = p->word[++i];
        }
        struct given g = {id, value};
        VEC_PUSH(p->t, p->given, p->ngiven, p->cap_given, g);
    }
    return ok;
}

/* --------------------------------------------------------------------------------------- values */

static bool bad_value(struct parser *p, const struct given *g)
{
    return usage(p, "option %s has the value '%.200s'; %s is expected", table[g->id].spelling,
                 g->value, table[g->id].value);
}

/* The index of a value in "a|b|c"; -1: it is not there. */
static int choice(const char *choices, const char *value)
{
    int k = 0;
    for (const char *s = choices;; k++) {
        size_t n = strcspn(s, "|");
        if (strlen(value) == n && strncmp(s, value, n) == 0)
            return k;
        s += n;
        if (!*s++)
            return -1;
    }
}

static bool read_int(const char *s, const char **end, int64_t lo, int64_t hi, int64_t *v)
{
    char *stop;
    errno = 0;
    long long n = *s >= '0' && *s <= '9' ? strtoll(s, &stop, 10) : -1;
    if (n < 0 || errno || n < lo || n > hi)
        return false;
    *end = stop;
    *v = n;
    return true;
}

static bool read_tolerance(const char *s, double *v)
{
    char *end;
    *v = strtod(s, &end);
    return *s && !*end && *v >= 0 && *v < 1e300;
}

static bool read_size(const char *s, int64_t least, size_t *v)
{
    int64_t n;
    const char *end;
    if (!read_int(s, &end, least, INT64_MAX, &n))
        return false;
    int shift = *end == 'K' || *end == 'k'   ? 10
                : *end == 'M' || *end == 'm' ? 20
                : *end == 'G' || *end == 'g' ? 30
                                             : 0;
    end += shift != 0;
    end += *end == 'B';
    *v = (size_t)n;
    return !*end && size_mul(*v, (size_t)1 << shift, v);
}

/* NAME=N, NAME=..N or NAME<=N; the last = splits, since names may contain some. The last option for
 * a name counts, as of options with one value. */
static bool read_dim(struct parser *p, const char *s)
{
    const char *equals = strrchr(s, '=');
    if (!equals || equals == s)
        return false;
    bool has_dots = strncmp(equals + 1, "..", 2) == 0;
    bool is_bound = has_dots || equals[-1] == '<';
    size_t n = (size_t)(equals - s) - (equals[-1] == '<');
    struct onnx_dim_option d = {.min = 0};
    const char *end;
    if (!n || !read_int(equals + (has_dots ? 3 : 1), &end, 0, INT32_MAX, &d.max) || *end ||
        (is_bound && d.max < 1))
        return false;
    if (!is_bound)
        d.min = d.max;
    char *name = mem_copy(p->t, s, n + 1);
    name[n] = 0;
    d.name = name;
    for (int i = 0; i < p->o->ndim; i++)
        if (strcmp(p->o->dim[i].name, name) == 0) {
            p->o->dim[i] = d;
            return true;
        }
    VEC_PUSH(p->t, p->o->dim, p->o->ndim, p->o->cap_dim, d);
    return true;
}

/* 1x3x?x224 up to the string's end or one of `ends`; empty for a scalar. */
static bool read_sizes(const char *d, const char *ends, const char **end,
                       struct onnx_shape_option *shape)
{
    while (!strchr(ends, *d)) {
        if (shape->ndim == MAX_RANK)
            return false;
        if (*d == '?') {
            shape->dim[shape->ndim++] = -1;
            d++;
        } else if (!read_int(d, &d, 0, INT32_MAX, &shape->dim[shape->ndim++])) {
            return false;
        }
        if (!strchr(ends, *d) && (*d != 'x' || strchr(ends, *++d)))
            return false;
    }
    *end = d;
    return true;
}

/* [2x3,scalar], []: each item's shape is that of an input NAME[i]. */
static bool read_shape_list(struct parser *p, const char *name, const char *d)
{
    static const char scalar[] = "scalar";
    struct onnx_list_option list = {.input = name};
    bool empty = !strcmp(d, "[]");
    for (; !empty && (*d == '[' || *d == ','); list.count++) {
        struct onnx_shape_option item = {.input = mem_printf(p->t, "%s[%d]", name, list.count)};
        if (!strncmp(++d, scalar, sizeof scalar - 1))
            d += sizeof scalar - 1;
        else if (!read_sizes(d, ",]", &d, &item) || !item.ndim)
            return false;
        VEC_PUSH(p->t, p->o->shape, p->o->nshape, p->o->cap_shape, item);
    }
    VEC_PUSH(p->t, p->o->list, p->o->nlist, p->o->cap_list, list);
    return empty || !strcmp(d, "]");
}

/* NAME=1x3x?x224, NAME= for a scalar; NAME=[2x3,4] for a sequence, NAME=absent for an optional. */
static bool read_shape(struct parser *p, const char *s)
{
    const char *equals = strrchr(s, '='), *end;
    if (!equals || equals == s)
        return false;
    char *name = mem_copy(p->t, s, (size_t)(equals - s) + 1);
    name[equals - s] = 0;
    if (equals[1] == '[')
        return read_shape_list(p, name, equals + 1);
    if (!strcmp(equals + 1, "absent")) {
        VEC_PUSH(p->t, p->o->list, p->o->nlist, p->o->cap_list,
                 ((struct onnx_list_option){name, -1}));
        return true;
    }
    struct onnx_shape_option shape = {.input = name};
    if (!read_sizes(equals + 1, "", &end, &shape))
        return false;
    for (int i = 0; i < p->o->nshape; i++)
        if (strcmp(p->o->shape[i].input, name) == 0) {
            p->o->shape[i] = shape;
            return true;
        }
    VEC_PUSH(p->t, p->o->shape, p->o->nshape, p->o->cap_shape, shape);
    return true;
}

static bool read_input(struct parser *p, const char *s)
{
    const char *equals = strrchr(s, '=');
    if (!equals || equals == s || !equals[1])
        return false;
    char *name = mem_copy(p->t, s, (size_t)(equals - s) + 1);
    name[equals - s] = 0;
    struct input_file f = {name, equals + 1};
    VEC_PUSH(p->t, p->o->input, p->o->ninput, p->o->cap_input, f);
    return true;
}

static bool read_layout(struct parser *p, const struct given *g)
{
    struct image_layout v;
    if (!image_layout_read(p->t, g->value, &v))
        return bad_value(p, g);
    VEC_PUSH(p->t, p->o->layout, p->o->nlayout, p->o->cap_layout, v);
    return true;
}

/* "c, clang and llvm": the targets that are built. */
static const char *targets_built(struct parser *p)
{
    struct text x = {.t = p->t};
    int last = 0;
    for (int i = 0; i < TARGET_COUNT; i++)
        last = targets[i].built ? i : last;
    for (int i = 0; i <= last; i++)
        if (targets[i].built)
            text_printf(&x, "%s%s", !x.n ? "" : i == last ? " and " : ", ", targets[i].name);
    return x.s;
}

static bool set_target(struct parser *p, const char *name, const char *from)
{
    for (int i = 0; i < TARGET_COUNT; i++) {
        if (strcmp(targets[i].name, name) != 0)
            continue;
        p->o->target = (enum target)i;
        return targets[i].built
                   ? true
                   : usage(p, "%s: the target '%s' is not in this version of tgc; it has %s", from,
                           name, targets_built(p));
    }
    return usage(p, "%s: there is no target '%.100s'; %s are", from, name, targets_built(p));
}

static bool set_emit(struct parser *p, const char *kind, const char *from)
{
    for (int i = 0; i < EMIT_COUNT; i++) {
        if (strcmp(emits[i].extension, kind) != 0)
            continue;
        p->o->emit = (enum emit)i;
        return emits[i].built ? true
                              : usage(p, "%s: to write .%s (%s) is not in this version of tgc",
                                      from, kind, emits[i].text);
    }
    struct text x = {.t = p->t};
    for (int i = 0; i < EMIT_COUNT; i++)
        if (emits[i].built)
            text_printf(&x, " .%s", emits[i].extension);
    return usage(p, "%s: '%.100s' is no kind of output; known are%s", from, kind, x.s);
}

static bool read_cpu(struct parser *p, const struct given *g)
{
    struct text known = {.t = p->t};
    if (strcmp(g->value, "auto") == 0)
        p->o->isa = (1u << ISA_COUNT) - 1;
    else if (strcmp(g->value, "native") == 0)
        p->o->isa = options_native_isa();
    for (int i = 0; i < ISA_COUNT; i++) {
        text_printf(&known, " %s", isa_table[i].text);
        if (strcmp(g->value, isa_table[i].text) == 0)
            p->o->isa = options_with_base((enum isa)i);
    }
    if (p->o->isa == 0)
        return usage(p, "--cpu=%.100s is not known; known are auto native%s", g->value, known.s);
    return true;
}

static bool read_machine(struct parser *p, const struct given *g)
{
    int n;
    const struct machine *rows = machine_rows(&n);
    struct text known = {.t = p->t};
    p->o->machine = strcmp(g->value, "host") == 0 ? host_machine(p->t) : machine_find(g->value);
    for (int i = 0; i < n; i++)
        text_printf(&known, " %s", rows[i].text);
    return p->o->machine ||
           usage(p, "--machine: '%.100s' is not known; known are host%s", g->value, known.s);
}

static bool read_other(struct parser *p, const char *s)
{
    struct options *o = p->o;
    const char **word;
    size_t n;
    if (!split_words(p, s, &word, &n))
        return usage(p, "--other=%.200s: a quote is not closed", s);
    const char **all = mem_array(p->t, o->nother + n + 1, sizeof *all);
    memcpy(all, o->other, o->nother * sizeof *all);
    memcpy(all + o->nother, word, n * sizeof *all);
    o->other = all;
    o->nother += n;
    return true;
}

static bool apply(struct parser *p, const struct given *g)
{
    struct options *o = p->o;
    const char *end;
    int64_t n;
    int k = 0;
    switch (g->id) {
    case OPTION_FORMAT:
        k = choice(table[g->id].value, g->value);
        o->format = k == 0 ? FORMAT_ONNX : FORMAT_TG;
        return k >= 0 || bad_value(p, g);
    case OPTION_SHAPE:
        return read_shape(p, g->value) || bad_value(p, g);
    case OPTION_DIM:
        return read_dim(p, g->value) || bad_value(p, g);
    case OPTION_STATE:
        VEC_PUSH(p->t, o->state, o->nstate, o->cap_state, g->value);
        return (strchr(g->value, '=') && g->value[0] != '=' &&
                g->value[strlen(g->value) - 1] != '=') ||
               bad_value(p, g);
    case OPTION_VALUE:
        VEC_PUSH(p->t, o->inner, o->ninner, o->cap_inner, g->value);
        return *g->value || bad_value(p, g);
    case OPTION_LIBRARY:
        VEC_PUSH(p->t, o->library, o->nlibrary, o->cap_library, g->value);
        return (*g->value && strcmp(g->value, "-") != 0) || bad_value(p, g);
    case OPTION_LINK:
        VEC_PUSH(p->t, o->link, o->nlink, o->cap_link, g->value);
        return *g->value || bad_value(p, g);
    case OPTION_STEPS:
        if (!read_int(g->value, &end, 1, INT32_MAX, &n) || *end)
            return bad_value(p, g);
        o->steps = (int)n;
        return true;
    case OPTION_EXTERNAL_DIR:
        o->load.external_data_dir = g->value;
        return true;
    case OPTION_NO_EXTERNAL:
        o->load.no_external_data = true;
        return true;
    case OPTION_OUTPUT:
        o->output = g->value;
        return *g->value || usage(p, "option -o has an empty name; a path or - is expected");
    case OPTION_EMIT:
        return set_emit(p, g->value, "--emit");
    case OPTION_NAME:
        o->name = program_name(p->t, g->value);
        return strcmp(o->name, g->value) == 0 ||
               usage(p, "--name=%.100s is not a C identifier that can be used; '%s' could be",
                     g->value, o->name);
    case OPTION_WEIGHTS:
        k = choice(table[g->id].value, g->value);
        o->weights = (enum weights_mode)(WEIGHTS_STRING + k);
        return k >= 0 || bad_value(p, g);
    case OPTION_VECTORS:
        k = choice(table[g->id].value, g->value);
        o->vectors = (enum vectors_mode)(VECTORS_AUTO + k);
        return k >= 0 || bad_value(p, g);
    case OPTION_WEIGHT_TYPE:
        k = choice(table[g->id].value, g->value);
        o->weight_dtype = k == 1 ? DTYPE_BF16 : k == 2 ? DTYPE_I8 : DTYPE_VOID;
        return k >= 0 || bad_value(p, g);
    case OPTION_DEPFILE:
        o->depfile = true;
        return true;
    case OPTION_DEPFILE_NAME:
        o->depfile_name = g->value;
        return true;
    case OPTION_DEPFILE_TARGET:
    case OPTION_DEPFILE_QUOTED:
        VEC_PUSH(p->t, o->depfile_target, o->ndepfile_target, o->cap_depfile_target,
                 ((struct depfile_target){g->value, g->id == OPTION_DEPFILE_QUOTED}));
        return *g->value || usage(p, "option %s has an empty name; a target is expected",
                                  table[g->id].spelling);
    case OPTION_DEPFILE_PHONY:
        o->depfile_phony = true;
        return true;
    case OPTION_TARGET:
        return set_target(p, g->value, "--target");
    case OPTION_CPU:
        return read_cpu(p, g);
    case OPTION_MACHINE:
        return read_machine(p, g);
    case OPTION_TRIPLE:
        o->triple = g->value;
        return (strspn(g->value, TRIPLE_LETTERS) == strlen(g->value) && strchr(g->value, '-') &&
                g->value[0] != '-') ||
               usage(p, "--triple=%.200s: a machine like aarch64-linux-gnu is expected", g->value);
    case OPTION_LEVEL:
        if (!read_int(g->value, &end, 0, 3, &n) || *end)
            return bad_value(p, g);
        o->level = (int)n;
        return true;
    case OPTION_NCHWC_BLOCK:
        k = choice(table[g->id].value, g->value);
        o->nchwc_block = k == 0 ? 8 : 16;
        return k >= 0 || bad_value(p, g);
    case OPTION_THREADS:
        if (!read_int(g->value, &end, 1, MOST_THREADS, &n) || *end)
            return usage(p, "option --threads has the value '%.200s'; a number from 1 to %d is "
                            "expected", g->value, MOST_THREADS);
        o->threads = (int)n;
        return true;
    case OPTION_FAST_MATH:
        o->fast_math = true;
        return true;
    case OPTION_NO_WINOGRAD:
        o->no_winograd = true;
        return true;
    case OPTION_STRASSEN:
        o->strassen = true;
        return true;
    case OPTION_ERROR:
        return read_tolerance(g->value, &o->error) || bad_value(p, g);
    case OPTION_TUNE:
        o->tune = g->value;
        return *g->value || usage(p, "option --tune has an empty name; a file is expected");
    case OPTION_PASSES:
        o->passes = true;
        return true;
    case OPTION_WHY:
        o->why = true;
        return true;
    case OPTION_DEBUG_INFO:
        o->debug_info = true;
        return true;
    case OPTION_INPUT:
        return read_input(p, g->value) || bad_value(p, g);
    case OPTION_IMAGE_LAYOUT:
        return read_layout(p, g);
    case OPTION_OUT_DIR:
        o->out_dir = g->value;
        return true;
    case OPTION_DATA:
        o->data = g->value;
        return true;
    case OPTION_KEEP:
        o->keep = g->value;
        return *g->value || usage(p, "option --keep has an empty name; a directory is expected");
    case OPTION_OTHER:
        return read_other(p, g->value);
    case OPTION_TG:
        o->tg = true;
        return true;
    case OPTION_CLEAR:
        o->clear = true;
        return true;
    case OPTION_RTOL:
        return read_tolerance(g->value, &o->rtol) || bad_value(p, g);
    case OPTION_ATOL:
        return read_tolerance(g->value, &o->atol) || bad_value(p, g);
    case OPTION_JSON:
        o->json = true;
        return true;
    case OPTION_CACHE:
        return read_size(g->value, 0, &o->cache) || bad_value(p, g);
    case OPTION_STACK:
        return read_size(g->value, 1, &o->stack) || bad_value(p, g);
    case OPTION_MAX_MEMORY:
        return read_size(g->value, 1, &o->max_memory) || bad_value(p, g);
    case OPTION_DIAGNOSTICS:
        k = choice(table[g->id].value, g->value);
        o->diagnostics_json = k == 1;
        return k >= 0 || bad_value(p, g);
    case OPTION_COLOR:
        k = choice(table[g->id].value, g->value);
        o->color = k == 1 || (k == 0 && o->color);
        return k >= 0 || bad_value(p, g);
    case OPTION_VERBOSE:
        o->verbose = true;
        return true;
    case OPTION_COMPLETION:
        if (choice(table[g->id].value, g->value) < 0)
            return bad_value(p, g);
        o->shell = g->value;
        o->print = g->id;
        return true;
    case OPTION_HELP:
    case OPTION_VERSION:
    case OPTION_MAN:
        o->print = g->id;
        return true;
    case OPTION_COUNT:
        break;
    }
    TGC_BUG(p->t, "option %d is not applied", (int)g->id);
}

/* ---------------------------------------------------------------------------------- environment */

static int read_variable(struct parser *p, const char *name)
{
    const char *s = p->getenv_(name);
    return s && *s ? atoi(s) : 0;
}

static bool runs_model(enum command c)
{
    return c == COMMAND_RUN || c == COMMAND_VERIFY || c == COMMAND_BENCH || c == COMMAND_TUNE;
}

static bool apply_environment(struct parser *p, bool has_target, bool has_level)
{
    struct options *o = p->o;
    o->debug = read_variable(p, "DEBUG");
    if (!has_level && read_variable(p, "NOOPT"))
        o->level = 0;
    o->beam = read_variable(p, "BEAM");
    if (o->beam && o->command != COMMAND_TUNE)
        diag_warn(p->t, NULL,
                  "BEAM is set in the environment; it is for tgc tune, whose result --tune reads");
    if (read_variable(p, "VIZ"))
        diag_warn(p->t, NULL,
                  "VIZ is set in the environment; what it asks for is not in this version of tgc");
    for (int i = 0; i < TARGET_COUNT && !has_target; i++)
        if (read_variable(p, targets[i].variable))
            return set_target(p, targets[i].name, targets[i].variable);
    const char *cc = p->getenv_("CC");
    o->any_target = !has_target && runs_model(o->command) && !(cc && cc[strspn(cc, " ")]);
    return true;
}

/* ------------------------------------------------------------------------------------ the whole */

static enum command command_named(const char *word)
{
    int i = 0;
    while (i < COMMAND_COUNT && strcmp(word, commands[i].name) != 0)
        i++;
    return (enum command)i;
}

/* "; did you mean 'compile'?", or the commands. */
static const char *suggest_command(struct parser *p, const char *word)
{
    struct nearest near = nearest_to(word);
    struct text all = {.t = p->t};
    for (int i = 0; i < COMMAND_COUNT; i++) {
        nearest_offer(&near, commands[i].name);
        text_printf(&all, " %s", commands[i].name);
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
    p->o->model2 = p->o->command == COMMAND_VERIFY && p->noperand == 2 ? p->operand[1] : NULL;
    return true;
}

static bool find_emit(struct parser *p)
{
    const char *out = p->o->output;
    if (p->o->emit != EMIT_COUNT || !out || p->o->command != COMMAND_COMPILE)
        return true;
    if (strcmp(out, "-") == 0)
        return set_emit(p, "c", "-o");
    const char *slash = strrchr(out, '/'), *base = slash ? slash + 1 : out,
               *dot = strrchr(base, '.');
    if (!dot || dot == base || !dot[1])
        return usage(
            p,
            "-o %.200s: the extension says what to write, and there is none; --emit=c says it too",
            out);
    return set_emit(p, dot + 1, out);
}

static bool check_operands(struct parser *p)
{
    const struct options *o = p->o;
    const char *command = commands[o->command].name;
    if (o->command == COMMAND_OPS)
        return p->noperand <= 1 ||
               usage(p, "tgc ops takes one name, and '%.200s' is a second one", p->operand[1]);
    if (o->command == COMMAND_CACHE)
        return p->noperand == 0 ||
               usage(p, "tgc cache takes no operand, and '%.200s' is one", p->operand[0]);
    if (p->noperand == 0)
        return usage(p, "no model is given; tgc %s needs one: a file, or - and -x", command);
    if (p->noperand > 1 + (o->model2 != NULL))
        return usage(p, "one model is expected, and '%.200s' is a second operand", p->operand[1]);
    if (o->command == COMMAND_COMPILE && !o->output)
        return usage(p, "no output is named; -o OUT is required");
    if (o->command == COMMAND_TUNE && (!o->output || strcmp(o->output, "-") == 0))
        return usage(p, "tgc tune needs -o FILE, where it writes what it has measured");
    if (o->command == COMMAND_TUNE && o->level == 0)
        return usage(p, "tgc tune measures choices, and -O0 makes none");
    if (o->command == COMMAND_TUNE && (o->beam < 0 || o->beam > TUNE_WIDTH_MAX))
        return usage(p, "BEAM=%d: the width of the search is 1 to %d", o->beam, TUNE_WIDTH_MAX);
    if (o->command == COMMAND_VERIFY && !o->data && !o->model2 && !o->nother)
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
    if (on_device && o->threads > 1)
        return usage(p, "--threads is for processors: a device decides itself how many it has");
    if (on_device && o->isa && o->isa != (1u << ISA_COUNT) - 1)
        return usage(p, "--cpu names no device of --target=%s in this version",
                     target_name(o->target));
    bool by_llvm = o->emit == EMIT_LL || o->emit == EMIT_ASM || o->emit == EMIT_OBJECT;
    if (o->command == COMMAND_COMPILE && o->target == TARGET_LLVM && o->emit == EMIT_C)
        return usage(p, "--target=llvm writes .o, .so, .a, .s and .ll: '.c' is written by --target=c");
    if (o->target != TARGET_LLVM && (o->emit == EMIT_LL || o->emit == EMIT_ASM))
        return usage(p, "'.%s' is written by --target=llvm", emit_extension(o->emit));
    if (o->triple && o->target != TARGET_CLANG && o->target != TARGET_LLVM)
        return usage(p, "--triple is for --target=clang and --target=llvm; with --target=c CC=TRIPLE-gcc "
                        "compiles for another machine");
    if (o->triple && !by_llvm && o->emit != EMIT_C && o->emit != EMIT_SHARED &&
        o->emit != EMIT_ARCHIVE)
        return usage(p, "--triple is for what a compiler makes, .o, .so and .a, and for .c");
    if (o->target == TARGET_LLVM && o->debug_info && o->command != COMMAND_COMPILE)
        return usage(p, "-g is for files: code in this process has no debugging information yet; leave "
                        "-g out, or take --target=c or --target=clang");
    if (o->target == TARGET_LLVM && o->command == COMMAND_COMPILE && o->threads > 1)
        return usage(p, "--target=llvm writes programs of one thread yet: leave --threads out, or take "
                        "--target=c");
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
            text_printf(&x, "%s %s\n", table[p->given[i].id].spelling,
                        p->given[i].value ? p->given[i].value : "");
    p->o->key = x.s;
    p->o->nkey = x.n;
}

static void set_defaults(struct options *o)
{
    *o = (struct options){.emit = EMIT_COUNT,
                          .level = 2,
                          .cache = CACHE_OF_MACHINE,
                          .threads = 1,
                          .steps = 1,
                          .isa = 0,
                          .error = ERROR_LIMIT,
                          .rtol = 1e-3,
                          .atol = 1e-7,
                          .print = OPTION_COUNT};
}

/* Options of compile, run and info, but for those that say what is printed and those that the
 * library's functions have parameters for. */
static bool is_for_library(enum option_id id)
{
    static const enum option_id others[] = {
        OPTION_FORMAT, OPTION_OUTPUT, OPTION_EMIT, OPTION_DEPFILE, OPTION_DEPFILE_NAME, OPTION_DEPFILE_TARGET,
        OPTION_DEPFILE_QUOTED, OPTION_DEPFILE_PHONY, OPTION_INPUT, OPTION_IMAGE_LAYOUT,
        OPTION_STEPS, OPTION_OUT_DIR, OPTION_JSON, OPTION_DIAGNOSTICS, OPTION_COLOR,
        OPTION_VERBOSE, OPTION_HELP, OPTION_VERSION, OPTION_MAN, OPTION_COMPLETION};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i] == id)
            return false;
    return option_fits(id, COMMAND_COMPILE) || option_fits(id, COMMAND_RUN) ||
           option_fits(id, COMMAND_INFO);
}

/* One word for an option whose value is valid; NULL: it is not. */
static const char *checked_word(struct parser *p, const struct given *g)
{
    const char *spelling = table[g->id].spelling, *value = g->value;
    set_defaults(p->o);
    if (!apply(p, g))
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
        const char *bare = table[id].spelling + strspn(table[id].spelling, "-");
        if (!is_for_library((enum option_id)id))
            continue;
        if (strcmp(bare, name) == 0)
            break;
        nearest_offer(&near, bare);
    }
    if (id == OPTION_COUNT)
        usage(&p, "there is no option '%.100s' here%s%s%s", name, near.best ? "; is '" : "",
              near.best ? near.best : "", near.best ? "' meant?" : "");
    else if (table[id].value && !value)
        usage(&p, "option '%s' needs a value, %s", name, table[id].value);
    else if (!table[id].value && value)
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
            usage(&p, "option %s cannot be given here", table[p.given[i].id].spelling);
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
    bool has_target = false, has_level = false;
    for (size_t i = 0; i < p.ngiven; i++)
        if (is_early(p.given[i].id))
            ok = apply(&p, &p.given[i]) && ok;
    for (size_t i = 0; i < p.ngiven; i++) {
        const struct given *g = &p.given[i];
        has_target |= g->id == OPTION_TARGET;
        has_level |= g->id == OPTION_LEVEL;
        if (!option_fits(g->id, o->command))
            ok = usage(&p, "tgc %s does not take %s", commands[o->command].name,
                       table[g->id].spelling);
        else if (!is_early(g->id))
            ok = apply(&p, g) && ok;
    }
    if (o->command == COMMAND_HELP && o->print == OPTION_COUNT)
        o->print = OPTION_HELP;
    if (o->print != OPTION_COUNT)
        return ok;
    ok = apply_environment(&p, has_target, has_level) && ok;
    ok = find_emit(&p) && ok;
    return ok && check_operands(&p);
}
