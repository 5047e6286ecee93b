/* compile.c - runs a C compiler on an emitted file: .o, .so, .a, or the -DNAME_MAIN program.
 *
 * The compiler is what the request names, else $CC or cc. It runs in the emitted file's folder, so that
 * it finds the header and the weights; no shell is involved.
 */
#include "backends/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

/* In the child: only calls that are safe after fork(). Failures are reported through the pipe. */
static _Noreturn void become(char *const *word, const char *folder, int errors, int pipe_end)
{
    if (chdir(folder) == 0 && dup2(errors, STDERR_FILENO) >= 0)
        execvp(word[0], word);
    int why = errno;
    ssize_t written = write(pipe_end, &why, sizeof why);
    _exit(written == (ssize_t)sizeof why ? 127 : 126);
}

/* Runs a command in a folder, with stderr to `errors`. Returns the exit status, or -errno if it
 * could not be started. (posix_spawn() can change the folder only from glibc 2.29 on.) */
static int run_in(struct command *c, const char *folder, FILE *errors)
{
    int ends[2], status, why = 0;
    add(c, NULL);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0)
        become((char *const *)(uintptr_t)c->word, folder, fileno(errors), ends[1]);
    if (pid < 0)
        why = errno;
    close(ends[1]);
    ssize_t n = pid < 0 ? 0 : read(ends[0], &why, sizeof why);
    close(ends[0]);
    if (pid < 0)
        return -why;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    if (n == (ssize_t)sizeof why)
        return -why;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* cure: of a command that is not there */
static bool run(struct tgc *t, struct command *c, const char *folder, const char *what,
                const char *cure)
{
    struct place at = {.file = what};
    FILE *errors = tmpfile();
    if (!errors)
        return diag_error(t, &at, "no temporary file for the compiler's messages: %s",
                          strerror(errno));
    int status = run_in(c, folder, errors);
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

static bool compile(struct tgc *t, const struct compile_request *r, const char *object)
{
    struct command c = {.t = t};
    bool joins = r->kind == BINARY_JOINED || (r->kind == BINARY_ARCHIVE && r->nlibrary);
    bool is_shared = r->kind == BINARY_SHARED, is_program = r->kind == BINARY_PROGRAM;
    add_compiler(&c, r->compiler);
    add_default(&c, "-O2", "-O");
    add_default(&c, "-std=c11", "-std=");
    if (!is_program)
        add_default(&c, "-fPIC", is_shared ? "-fPIC" : "-fno-pic");
    for (int i = 0; i < r->nflag; i++)
        add(&c, r->flags[i]);
    if (r->define)
        add(&c, mem_printf(t, "-D%s", r->define));
    if (joins)
        add(&c, "-nostdlib");
    if (!is_program)
        add(&c, is_shared ? "-shared" : joins ? "-r" : "-c");
    if ((is_program || is_shared || joins) && r->compiler && r->compiler->linker)
        add(&c, r->compiler->linker);
    add(&c, base_of(r->source));
    for (int i = 0; i < r->nlibrary; i++)
        add(&c, r->library[i]);
    add(&c, "-o");
    add(&c, object);
    return run(t, &c, folder_of(t, r->source), r->subject,
               "install a C compiler (Debian: apt-get install gcc) or set CC");
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
    return run(t, &c, folder_of(t, r->source), r->subject,
               "install an archiver (Debian: apt-get install binutils) or set AR");
}

bool compile_c(struct tgc *t, const struct compile_request *given)
{
    struct compile_request r = *given;
    const char *out = absolute(t, r.out_path);
    r.subject = r.subject ? r.subject : r.out_path;
    if (r.kind != BINARY_ARCHIVE)
        return compile(t, &r, out);
    const char *object = member_of(t, r.source);
    bool ok = (is_object(r.source) || compile(t, &r, object)) && archive(t, &r, object, out);
    unlink(object);
    return ok;
}
