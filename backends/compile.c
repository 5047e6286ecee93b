/* compile.c - runs a C compiler on an emitted file: .o, .so, .a, or the -DNAME_MAIN program.
 *
 * The compiler is what the request names, else $CC or cc. It runs in the emitted file's folder, so
 * that it finds the header and the weights; no shell is involved.
 */
#include "backends/backend.h"
#include "backends/process.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct command { struct tgc *t; const char **word; int n; size_t cap; };

static void add(struct command *c, const char *word)
{
    VEC_PUSH(c->t, c->word, c->n, c->cap, word);
}

const char *compiler_of_environment(void)
{
    const char *s = getenv("CC");
    return s && s[strspn(s, " ")] ? s + strspn(s, " ") : NULL;
}

/* $CC may contain options, separated by blanks. */
static void add_compiler(struct command *c, const struct compiler *given)
{
    if (given) {
        add(c, given->command);
        for (int i = 0; i < given->nword; i++)
            add(c, given->word[i]);
        return;
    }
    const char *s = compiler_of_environment();
    for (s = s ? s : "cc"; *(s += strspn(s, " "));) {
        size_t n = strcspn(s, " ");
        add(c, mem_printf(c->t, "%.*s", (int)n, s));
        s += n;
    }
}

/* What $CC decides by a word that begins so is left to it. */
static void add_default(struct command *c, const char *flag, const char *decided_by)
{
    for (int i = 0; i < c->n; i++)
        if (strncmp(c->word[i], decided_by, strlen(decided_by)) == 0)
            return;
    add(c, flag);
}

static const char *folder_of(struct tgc *t, const char *path)
{
    const char *slash = strrchr(path, '/');
    return !slash ? "." : slash == path ? "/" : mem_printf(t, "%.*s", (int)(slash - path), path);
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A path that is valid from another folder, too. */
static const char *absolute(struct tgc *t, const char *path)
{
    char cwd[PATH_MAX];
    if (*path == '/' || !getcwd(cwd, sizeof cwd))
        return path;
    return mem_printf(t, "%s/%s", cwd, path);
}

static bool is_object(const char *path)
{
    size_t n = strlen(path);
    return n > 2 && strcmp(path + n - 2, ".o") == 0;
}

/* NAME.o beside NAME.c, or itself: an archive has its members' names. */
static const char *member_of(struct tgc *t, const char *source)
{
    const char *path = absolute(t, source);
    return mem_printf(t, "%.*s.o", (int)(strlen(path) - 2), path);
}

/* cure: of a command that is not there */
static bool run(struct tgc *t, struct command *c, const struct compile_request *r, const char *cure)
{
    struct place at = {.file = r->subject};
    FILE *errors = tmpfile();
    if (!errors)
        return diag_error(t, &at, "no temporary file for the compiler's messages: %s",
                          strerror(errno));
    add(c, NULL);
    int status = process_run(t, &(struct process){.word = c->word,
                                                  .folder = folder_of(t, r->source),
                                                  .temporary = r->temporary,
                                                  .file = {-1, -1, fileno(errors)}});
    char text[2048];
    rewind(errors);
    size_t n = fread(text, 1, sizeof text - 1, errors);
    text[n] = 0;
    fclose(errors);
    if (status == 0)
        return true;
    if (status < 0)
        return diag_error(t, &at, "cannot run '%s': %s; %s", c->word[0], strerror(-status), cure);
    return diag_error(t, &at, "'%s' failed with status %d:\n%s", c->word[0], status, text);
}

/* A program that says that all is well need not have done anything. */
static bool check_written(const struct command *c, const struct compile_request *r,
                          const char *path)
{
    struct stat st;
    return (stat(path, &st) == 0 && st.st_size > 0) ||
           diag_error(c->t, &(struct place){.file = r->subject},
                      "'%s' ended with status 0, but wrote nothing to %s; expected what -o names "
                      "to be there "
                      "then: set CC to a C compiler (and AR to an archiver)",
                      c->word[0], base_of(path));
}

/* What the header declares is exported (flags[] make it visible), libc's functions are not. The
 * stack lies below the data, so that its overflow traps. */
static void add_module(struct command *c, const struct compile_request *r)
{
    static const char *const words[] = {"-nostdlib",           "-fvisibility=hidden",
                                        "-Wl,--no-entry",      "-Wl,--export-dynamic",
                                        "-Wl,--stack-first"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        add(c, words[i]);
    add(c, mem_printf(c->t, "-Wl,-z,stack-size=%zu", r->stack));
}

static bool compile(struct tgc *t, const struct compile_request *r, const char *object)
{
    struct command c = {.t = t};
    bool joins = r->kind == BINARY_JOINED || (r->kind == BINARY_ARCHIVE && r->nlibrary);
    bool is_shared = r->kind == BINARY_SHARED, is_program = r->kind == BINARY_PROGRAM;
    bool is_module = r->kind == BINARY_WASM, is_wasm = r->compiler && r->compiler->libraries;
    add_compiler(&c, r->compiler);
    add_default(&c, r->small ? "-Os" : "-O2", "-O");
    add_default(&c, "-std=c11", "-std=");
    if (!is_program && !is_wasm)
        add_default(&c, "-fPIC", is_shared ? "-fPIC" : "-fno-pic");
    for (int i = 0; i < r->nflag; i++)
        add(&c, r->flags[i]);
    if (r->define)
        add(&c, mem_printf(t, "-D%s", r->define));
    if (joins)
        add(&c, "-nostdlib");
    if (is_module)
        add_module(&c, r);
    else if (!is_program)
        add(&c, is_shared ? "-shared" : joins ? "-r" : "-c");
    if ((is_program || is_shared || joins) && r->compiler && r->compiler->linker)
        add(&c, r->compiler->linker);
    add(&c, base_of(r->source));
    for (int i = 0; i < r->nlibrary; i++)
        add(&c, r->library[i]);
    if (is_module) {
        add(&c, r->compiler->libraries);
        add(&c, "-lc");
    }
    add(&c, "-o");
    add(&c, object);
    return run(t, &c, r, "install a C compiler (Debian: apt-get install gcc) or set CC") &&
           check_written(&c, r, object);
}

static bool archive(struct tgc *t, const struct compile_request *r, const char *object,
                    const char *out)
{
    struct command c = {.t = t};
    const char *ar = getenv("AR");
    add(&c, ar && *ar                               ? ar
            : r->compiler && r->compiler->archiver ? r->compiler->archiver
                                                   : "ar");
    add(&c, "rcsD");                                             /* D: without times or owners */
    add(&c, out);
    add(&c, object);
    unlink(out);
    return run(t, &c, r, "install an archiver (Debian: apt-get install binutils) or set AR") &&
           check_written(&c, r, out);
}

bool compile_c(struct tgc *t, const struct compile_request *given)
{
    struct compile_request r = *given;
    const char *out = absolute(t, r.out_path);
    r.subject = r.subject ? r.subject : r.out_path;
    r.temporary = r.temporary ? absolute(t, r.temporary) : NULL;
    if (r.kind != BINARY_ARCHIVE)
        return compile(t, &r, out);
    const char *object = member_of(t, r.source);
    bool ok = (is_object(r.source) || compile(t, &r, object)) && archive(t, &r, object, out);
    unlink(object);
    return ok;
}
