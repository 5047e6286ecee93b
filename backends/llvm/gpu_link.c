/* gpu_link.c - AMD's drivers load linked code objects: ld.lld, which LLVM has as a program alone, makes one
 * of an object. It reads and writes files without names, so nothing is left behind.
 */
#include "backends/llvm/machine.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Debian's packages have the version in the name; that of LLVM itself is the best, a newer one does. NULL: there
 * is none. */
static const char *find_linker(struct tgc *t, int version)
{
    enum { NEWEST = 30 };
    const char *own = mem_printf(t, "ld.lld-%d", version);
    if (program_is_on_path(t, own))
        return own;
    for (int i = NEWEST; i > version; i--)
        if (program_is_on_path(t, mem_printf(t, "ld.lld-%d", i)))
            return mem_printf(t, "ld.lld-%d", i);
    return program_is_on_path(t, "ld.lld") ? "ld.lld" : NULL;
}

static bool spawn(const char *linker, FILE *from, FILE *to, FILE *said, int *status)
{
    const char *const word[] = {linker, "-shared", "/dev/stdin", "-o", "-", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(from), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(to), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(said), STDERR_FILENO);
    int error = posix_spawnp(&child, linker, &actions, NULL, (char *const *)(uintptr_t)word, environ);
    posix_spawn_file_actions_destroy(&actions);
    while (error == 0 && waitpid(child, status, 0) < 0)
        if (errno != EINTR)
            return false;
    return error == 0;
}

/* The whole of a file. */
static struct text read_all(struct tgc *t, FILE *file)
{
    struct text s = {.t = t};
    char part[4096];
    rewind(file);
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;)
        text_write(&s, part, n);
    return s;
}

static bool link_by(struct tgc *t, const char *linker, struct llvm_gpu_code *code, FILE *from, FILE *to, FILE *said)
{
    int status = 0;
    if (fwrite(code->bytes, 1, code->nbytes, from) != code->nbytes || fflush(from) != 0 ||
        fseek(from, 0, SEEK_SET) != 0)
        return diag_error(t, NULL, "no room for a temporary file: %s", strerror(errno));
    if (!spawn(linker, from, to, said, &status))
        return diag_error(t, NULL, "cannot run '%s': %s", linker, strerror(errno));
    struct text made = read_all(t, to);
    if (status != 0 || made.n == 0)
        return diag_error(t, NULL, "'%s' does not link the kernels: %.2000s", linker,
                          read_all(t, said).n ? read_all(t, said).s : "it does not say why");
    code->bytes = (const unsigned char *)made.s;
    code->nbytes = made.n;
    return true;
}

bool gpu_link(struct tgc *t, struct llvm_gpu_code *code, int version)
{
    const char *linker = find_linker(t, version);
    if (!linker)
        return diag_error(t, NULL, "code objects for AMD's devices are linked by ld.lld, and no directory of PATH "
                                   "has one: install lld (Debian: apt-get install lld-%d)", version);
    FILE *from = tmpfile(), *to = tmpfile(), *said = tmpfile();
    bool done = from && to && said ? link_by(t, linker, code, from, to, said)
                                   : diag_error(t, NULL, "no temporary file for ld.lld: %s", strerror(errno));
    FILE *const opened[] = {from, to, said};
    for (size_t i = 0; i < sizeof opened / sizeof *opened; i++)
        if (opened[i])
            fclose(opened[i]);
    return done;
}
