/* check.c - libclang, opened at run time, parses what was emitted before a compiler is called.
 *
 * The file is parsed from memory, for the triple, with the warnings that emitted C is to be free
 * of. Each diagnostic is reported at the model's node that the line belongs to (program_lines).
 */
#include "backends/clang/clang.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Where the files are for libclang alone: a folder that is not there, so that nothing else is found
 * in it. */
#define FOLDER "/tgc-emitted/"
enum { SEVERITY_OF_WARNING = 2, SEVERITY_OF_ERROR = 3 };       /* 4: fatal */

/* libclang's own layouts of CXUnsavedFile, CXString and CXSourceLocation. */
struct clang_file { const char *name, *contents; unsigned long nbytes; };
struct clang_string { const void *data; unsigned flags; };
struct clang_location { const void *pointer[2]; unsigned number; };

/* What is open of it may end with the compile, in the middle of a parse: see close_library(). */
struct libclang {
    struct held *held;
    void *library, *index, *unit, *diagnostic;
    struct clang_string string;
#define API(result, name, parameters) result (*name) parameters;
#include "backends/clang/api.def"
#undef API
};

static bool bind_functions(struct libclang *c)
{
    static const struct { const char *name; size_t offset; } table[] = {
#define API(result, name, parameters) {"clang_" #name, offsetof(struct libclang, name)},
#include "backends/clang/api.def"
#undef API
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        void *function = dlsym(c->library, table[i].name);
        if (!function)
            return false;
        memcpy((char *)c + table[i].offset, &function, sizeof function);
    }
    return true;
}

static void dispose_string(struct libclang *c)
{
    if (c->string.data)
        c->disposeString(c->string);
    c->string = (struct clang_string){0};
}

static void dispose_diagnostic(struct libclang *c)
{
    if (c->diagnostic)
        c->disposeDiagnostic(c->diagnostic);
    c->diagnostic = NULL;
}

/* Of a parse, and of what it has said. */
static void dispose_unit(struct libclang *c)
{
    if (c->unit)
        c->disposeTranslationUnit(c->unit);
    if (c->index)
        c->disposeIndex(c->index);
    c->unit = c->index = NULL;
}

static void close_library(void *what)
{
    struct libclang *c = what;
    if (!c->library)
        return;
    dispose_string(c);
    dispose_diagnostic(c);
    dispose_unit(c);
    dlclose(c->library);
    c->library = NULL;
}

static const char *take(struct tgc *t, struct libclang *c, struct clang_string s)
{
    c->string = s;
    const char *text = c->getCString(s), *copy = mem_str(t, text ? text : "");
    dispose_string(c);
    return copy;
}

/* Whether libclang has parsed a file, which dispose_unit() ends. */
static bool parse_unit(struct libclang *c, const char *const *word, int nword,
                       struct clang_file *file, int nfile)
{
    c->index = c->createIndex(0, 0);
    return c->parseTranslationUnit2(c->index, file->name, word, nword, file, (unsigned)nfile, 0,
                                    &c->unit) == 0;
}

/* "Debian clang version 19.1.7 (3~deb12u1)" -> "19.1.7" */
static const char *version_of(struct tgc *t, struct libclang *c)
{
    const char *s = take(t, c, c->getClangVersion());
    s += strcspn(s, "0123456789");
    return mem_printf(t, "%.*s", (int)strcspn(s, " ("), s);
}

/* Whether it parses a file that needs the headers that come with each libclang. */
static bool has_own_headers(struct libclang *c)
{
    static const char source[] = "#include <stddef.h>\n";
    struct clang_file file = {"tgc-probe.c", source, sizeof source - 1};
    static const char *const free_standing[] = {"-ffreestanding"};
    bool ok = parse_unit(c, free_standing, 1, &file, 1) && c->getNumDiagnostics(c->unit) == 0;
    dispose_unit(c);
    return ok;
}

static bool open_library(struct tgc *t, struct libclang *c, const char *name, int version)
{
    c->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!c->library)
        return false;
    if (bind_functions(c) && atoi(version_of(t, c)) == version && has_own_headers(c))
        return true;
    close_library(c);
    return false;
}

/* The program's version if there is a program, else the newest; held_release(c->held) closes it.
 * NULL: there is none. */
static struct libclang *find_library(struct tgc *t, int version)
{
    struct libclang *c = MEM_NEW(t, struct libclang);
    c->held = held_add(t, close_library, c);
    const char *wanted = getenv("TGC_CLANG");
    int only = version ? version : wanted ? atoi(wanted) : 0;
    for (int v = only ? only : CLANG_NEWEST; v >= (only ? only : CLANG_OLDEST); v--) {
        const char *name[] = {mem_printf(t, "libclang-%d.so.1", v),
                              mem_printf(t, "libclang.so.%d", v), "libclang.so.1", "libclang.so"};
        for (size_t i = 0; i < sizeof name / sizeof *name; i++)
            if (open_library(t, c, name[i], v))
                return c;
    }
    return NULL;
}

const char *clang_library_found(struct tgc *t, int version)
{
    struct libclang *c = find_library(t, version);
    if (!c)
        return NULL;
    const char *found = version_of(t, c);
    held_release(c->held);
    return found;
}

struct parse {
    struct clang *l;
    struct libclang *c;
    const struct clang_source *s;
    int nerror;
};

/* The diagnostic that is open. */
static void report(struct parse *p)
{
    struct libclang *c = p->c;
    void *diagnostic = c->diagnostic;
    struct tgc *t = p->l->t;
    unsigned line = 0, column = 0, offset = 0;
    void *file = NULL;
    int severity = c->getDiagnosticSeverity(diagnostic);
    if (severity < SEVERITY_OF_WARNING)
        return;
    c->getExpansionLocation(c->getDiagnosticLocation(diagnostic), &file, &line, &column, &offset);
    const char *name = file ? take(t, c, c->getFileName(file)) : "";
    if (strncmp(name, FOLDER, strlen(FOLDER)) == 0)
        name += strlen(FOLDER);
    const char *what = take(t, c, c->getDiagnosticSpelling(diagnostic));
    const char *flag = take(t, c, c->getDiagnosticOption(diagnostic, NULL));
    bool is_own = strcmp(name, p->s->c_name) == 0;
    struct place at = {.file = p->s->subject,
                       .text = is_own ? program_line_title(p->s->lines, line) : NULL};
    const char *message = mem_printf(t, "%s:%u:%u: %s%s%s%s", *name ? name : p->s->c_name, line,
                                     column, what, *flag ? " [" : "", flag, *flag ? "]" : "");
    if (severity < SEVERITY_OF_ERROR) {
        diag_warn(t, &at, "%s", message);
    } else {
        diag_error(t, &at, "%s", message);
        p->nerror++;
    }
}

/* Parses a file; false: it has errors, which are reported unless `silent`. */
static bool parse_file(struct parse *p, const struct clang_file *file, int nfile, bool silent)
{
    static const char *const own[] = {"-std=c11",    "-Wall",  "-Wextra", "-pedantic",
                                      "-Wconversion", "-Wshadow", "-Wvla",   "-Wundef"};
    struct libclang *c = p->c;
    int nown = sizeof own / sizeof *own, n = p->l->nword + nown;
    const char **word = mem_array(p->l->t, (size_t)n + 3, sizeof *word);
    ARRAY_COPY(word, p->l->word, p->l->nword);
    memcpy(word + p->l->nword, own, sizeof own);
    if (p->s->flag)
        word[n++] = p->s->flag;
    if (p->l->resources && *p->l->resources) {
        word[n++] = "-resource-dir";      /* which libclang may look for in another place */
        word[n++] = p->l->resources;
    }
    struct clang_file *files = mem_array(p->l->t, (size_t)nfile, sizeof *files);
    ARRAY_COPY(files, file, nfile);
    bool ok = parse_unit(c, word, n, files, nfile);
    for (unsigned i = 0; ok && i < c->getNumDiagnostics(c->unit); i++) {
        c->diagnostic = c->getDiagnostic(c->unit, i);
        if (silent)
            p->nerror += c->getDiagnosticSeverity(c->diagnostic) >= SEVERITY_OF_ERROR;
        else
            report(p);
        dispose_diagnostic(c);
    }
    dispose_unit(c);
    return ok && p->nerror == 0;
}

static bool parse_source(struct parse *p)
{
    static const char empty[] = "typedef int nothing;\n";
    static const char headers[] = "#include <assert.h>\n#include <math.h>\n#include <stdint.h>\n"
                                  "#include <string.h>\ntypedef int nothing;\n";
    struct clang *l = p->l;
    const struct clang_source *s = p->s;
    struct clang_file none = {"tgc-probe.c", empty, sizeof empty - 1},
                      libc = {"tgc-probe.c", headers, sizeof headers - 1},
                      own[] = {{mem_printf(l->t, FOLDER "%s", s->c_name), s->c->s, s->c->n},
                       {mem_printf(l->t, FOLDER "%s", s->h_name), s->h->s, s->h->n}};
    if (!parse_file(p, &none, 1, true))
        return clang_refuse_machine(l, "libclang", s->subject);
    if (!parse_file(p, &libc, 1, true))
        return clang_refuse_headers(l, s->subject);
    return parse_file(p, own, 2, false) || p->nerror > 0 ||
           diag_error(l->t, &(struct place){.file = s->subject}, "libclang cannot parse %s",
                      s->c_name);
}

bool clang_check(struct clang *l, const struct clang_source *s)
{
    struct parse p = {.l = l, .s = s, .c = find_library(l->t, l->version)};
    if (p.c) {
        bool ok = parse_source(&p) && p.nerror == 0;
        held_release(p.c->held);
        return ok;
    }
    if (!l->driver)
        return diag_error(
            l->t, NULL,
            "neither clang nor libclang is here, of version %d to %d (Debian: apt-get "
            "install clang libclang1); --target=c writes the same C unchecked",
            CLANG_OLDEST, CLANG_NEWEST);
    if (l->t->debug >= 1)
        diag_note(l->t, NULL, "the C is not parsed before it is compiled: there is no libclang %d "
                              "(Debian: apt-get install libclang1-%d)", l->version, l->version);
    return true;
}
