/* compile.c - the system's C compiler on an emitted file: .o, .so, .a, or the -DNAME_MAIN program.
 *
 * The compiler is $CC or cc. It runs in the folder of the emitted file, so that it finds the header
 * and the weights; no shell is involved.
 */
#include "backends/backend.h"

#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct command { struct tgc *t; const char **word; int n; size_t cap; };

static void add(struct command *c, const char *word)
{
    VEC_PUSH(c->t, c->word, c->n, c->cap, word);
}

/* $CC may hold options, split at blanks. */
static void add_compiler(struct command *c, const char *compiler)
{
    const char *s = compiler ? compiler : getenv("CC");
    if (!s || !s[strspn(s, " ")])
        s = "cc";
    while (*(s += strspn(s, " "))) {
        size_t n = strcspn(s, " ");
        add(c, mem_printf(c->t, "%.*s", (int)n, s));
        s += n;
    }
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

/* A path that holds from another folder too. */
static const char *absolute(struct tgc *t, const char *path)
{
    char cwd[PATH_MAX];
    if (*path == '/' || !getcwd(cwd, sizeof cwd))
        return path;
    return mem_printf(t, "%s/%s", cwd, path);
}

/* Runs a command in a folder, its stderr into `errors`. Returns the exit status, or -errno if it
 * could not be started. */
static int run_in(struct command *c, const char *folder, FILE *errors)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status, failed;
    add(c, NULL);
    if (posix_spawn_file_actions_init(&actions) != 0)
        return -ENOMEM;
    posix_spawn_file_actions_addchdir_np(&actions, folder);
    posix_spawn_file_actions_adddup2(&actions, fileno(errors), STDERR_FILENO);
    failed = posix_spawnp(&pid, c->word[0], &actions, NULL, (char *const *)(uintptr_t)c->word,
                          environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return -failed;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool run(struct tgc *t, struct command *c, const char *folder, const char *what)
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
        return diag_error(
            t, &at,
            "cannot run '%s': %s; install a C compiler (Debian: apt-get install gcc) or set CC",
            c->word[0], strerror(-status));
    return diag_error(t, &at, "'%s' failed with status %d:\n%s", c->word[0], status, text);
}

bool compile_c(struct tgc *t, const struct compile_request *r)
{
    struct command c = {.t = t}, archive = {.t = t};
    const char *folder = folder_of(t, r->c_path), *out = absolute(t, r->out_path);
    const char *object = r->kind == BINARY_ARCHIVE ? mem_printf(t, "%s.o", out) : out;
    add_compiler(&c, r->compiler);
    add(&c, "-O2");
    add(&c, "-std=c11");
    for (int i = 0; i < r->nflag; i++)
        add(&c, r->flags[i]);
    if (r->define)
        add(&c, mem_printf(t, "-D%s", r->define));
    if (r->kind == BINARY_SHARED) {
        add(&c, "-shared");
        add(&c, "-fPIC");
    } else if (r->kind != BINARY_PROGRAM) {
        add(&c, "-c");
        add(&c, "-fPIC");
    }
    add(&c, base_of(r->c_path));
    for (int i = 0; i < r->nlibrary; i++)
        add(&c, r->library[i]);
    add(&c, "-o");
    add(&c, object);
    if (!run(t, &c, folder, r->out_path))
        return false;
    if (r->kind != BINARY_ARCHIVE)
        return true;
    add(&archive, getenv("AR") && *getenv("AR") ? getenv("AR") : "ar");
    add(&archive, "rcsD");                                       /* D: no times or owners in it */
    add(&archive, out);
    add(&archive, object);
    unlink(out);
    bool ok = run(t, &archive, folder, r->out_path);
    unlink(object);
    return ok;
}
