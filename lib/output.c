/* output.c - files that appear whole or not at all.
 *
 * Every output is written under a temporary name in the directory it belongs to and renamed when
 * all are complete. Unfinished files are listed in a table that a signal handler can read: the one
 * piece of state in tgc outside a struct tgc, because a handler gets no argument. Only the main
 * thread writes it, and an entry is valid once `used` is set.
 */
#include "lib/lib.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PENDING = 1024 };

struct pending { char path[PATH_MAX]; bool is_directory; volatile sig_atomic_t used; };
static struct pending pending[MAX_PENDING];

static const int fatal_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT, SIGXCPU, SIGXFSZ};

/* Uses only what is safe in a handler: unlink and rmdir. */
void outputs_abandon(void)
{
    for (int directories = 0; directories < 2; directories++) { /* files first */
        for (int i = 0; i < MAX_PENDING; i++) {
            if (!pending[i].used || pending[i].is_directory != directories)
                continue;
            if (directories)
                rmdir(pending[i].path);
            else
                unlink(pending[i].path);
        }
    }
}

static void on_signal(int signal_number)
{
    outputs_abandon();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void catch_signals(void)
{
    for (size_t i = 0; i < sizeof fatal_signals / sizeof *fatal_signals; i++) {
        struct sigaction old, action = {.sa_handler = on_signal};
        sigemptyset(&action.sa_mask);
        if (sigaction(fatal_signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(fatal_signals[i], &action, NULL);
    }
}

static bool pending_add(struct tgc *t, const char *path, bool is_directory)
{
    catch_signals();
    size_t n = strlen(path) + 1;
    for (int i = 0; i < MAX_PENDING; i++) {
        if (pending[i].used || n > sizeof pending[i].path)
            continue;
        memcpy(pending[i].path, path, n);
        pending[i].is_directory = is_directory;
        pending[i].used = 1;
        return true;
    }
    return diag_error(t, &(struct place){.file = path},
                      "too many files are being written, or the path is too long");
}

static void pending_drop(const char *path)
{
    for (int i = 0; i < MAX_PENDING; i++)
        if (pending[i].used && strcmp(pending[i].path, path) == 0)
            pending[i].used = 0;
}

/* -------------------------------------------------------------------------------------- outputs */

struct output {
    const char *path;               /* as the user wrote it; "-" */
    const char *target;  /* the file to be replaced: path, or the target of the symbolic link */
    dev_t device;                   /* of target's directory */
    ino_t directory;
    const char *temporary;          /* NULL: written directly */
    FILE *file;                     /* NULL: another program writes it */
};
struct input { const char *path; dev_t device; ino_t inode; };
struct outputs {
    struct tgc *t;
    struct output *v; size_t n, cap;
    struct input *input; size_t ninput, cap_input;
};

struct outputs *outputs_new(struct tgc *t)
{
    struct outputs *s = MEM_NEW(t, struct outputs);
    s->t = t;
    return s;
}

static bool complain(struct tgc *t, const char *path, const char *what)
{
    return diag_error(t, &(struct place){.file = path}, "%s: %s", what, strerror(errno));
}

void outputs_protect(struct outputs *s, const char *path)
{
    struct stat st;
    if (!path || strcmp(path, "-") == 0 || stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return;
    struct input input = {path, st.st_dev, st.st_ino};
    VEC_PUSH(s->t, s->input, s->ninput, s->cap_input, input);
}

/* Checks that an output is not an input, under any path or link. */
static bool is_no_input(const struct outputs *s, const char *path, const struct stat *st)
{
    for (size_t i = 0; i < s->ninput; i++)
        if (s->input[i].device == st->st_dev && s->input[i].inode == st->st_ino)
            return diag_error(s->t, &(struct place){.file = path},
                              "is the input '%.200s', which would be lost; name another output (-o)",
                              s->input[i].path);
    return true;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Checks that no two outputs are the same file. needs: o->target. */
static bool is_no_other_output(const struct outputs *s, struct output *o)
{
    const char *base = base_name(o->target);
    struct stat st;
    const char *directory = base == o->target ? "."
                                              : mem_printf(s->t, "%.*s", (int)(base - o->target),
                                                           o->target);
    if (stat(directory, &st) != 0)
        return complain(s->t, o->path, "cannot be written");
    o->device = st.st_dev;
    o->directory = st.st_ino;
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].temporary && s->v[i].device == o->device &&
            s->v[i].directory == o->directory && strcmp(base_name(s->v[i].target), base) == 0)
            return diag_error(s->t, &(struct place){.file = o->path},
                              "is written as '%.200s' already; two outputs need two names",
                              s->v[i].path);
    return true;
}

static mode_t file_mode(void)
{
    mode_t mask = umask(022);
    umask(mask);
    return 0666 & ~mask;
}

/* Finds the file of a path. *direct: it exists and is not a regular file. */
static bool find_target(const struct outputs *s, struct output *o, bool *direct, mode_t *mode)
{
    struct tgc *t = s->t;
    struct stat st;
    *direct = false;
    *mode = file_mode();
    o->target = o->path;
    if (lstat(o->path, &st) != 0)
        return errno == ENOENT ? is_no_other_output(s, o)
                               : complain(t, o->path, "cannot be written");
    if (S_ISLNK(st.st_mode)) {
        char *real = realpath(o->path, NULL);
        if (!real || stat(real, &st) != 0) {
            free(real);
            return complain(t, o->path, "is a symbolic link that leads nowhere");
        }
        o->target = mem_str(t, real);
        free(real);
    }
    if (S_ISDIR(st.st_mode))
        return diag_error(t, &(struct place){.file = o->path},
                          "is a directory; a file to write is expected");
    *direct = !S_ISREG(st.st_mode);
    if (*direct)
        return true;
    *mode = st.st_mode & 07777;
    return is_no_input(s, o->path, &st) && is_no_other_output(s, o);
}

bool outputs_may_write(const struct outputs *s, const char *path)
{
    struct output o = {.path = path};
    bool direct;
    mode_t mode;
    return strcmp(path, "-") == 0 || find_target(s, &o, &direct, &mode);
}

/* Creates the temporary file next to the target; returns its descriptor or -1. */
static int make_temporary(struct tgc *t, struct output *o)
{
    const char *slash = strrchr(o->target, '/');
    char *name = mem_printf(t, "%.*s.tgc-XXXXXX", slash ? (int)(slash + 1 - o->target) : 0,
                            o->target);
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0) {
        complain(t, o->path, "cannot be written");
        return -1;
    }
    if (!pending_add(t, name, false)) {
        close(fd);
        unlink(name);
        return -1;
    }
    o->temporary = name;
    return fd;
}

FILE *outputs_open(struct outputs *s, const char *path)
{
    struct output o = {.path = path};
    bool direct = false;
    mode_t mode;
    if (strcmp(path, "-") == 0) {
        o.file = stdout;
        VEC_PUSH(s->t, s->v, s->n, s->cap, o);
        return o.file;
    }
    if (!find_target(s, &o, &direct, &mode))
        return NULL;
    int fd = direct ? open(o.target, O_WRONLY | O_CLOEXEC | O_NOCTTY) : make_temporary(s->t, &o);
    if (fd < 0 && direct)
        complain(s->t, path, "cannot be written");
    if (fd < 0)
        return NULL;
    if (!direct)
        fchmod(fd, mode);
    o.file = fdopen(fd, "w");
    if (!o.file) {
        close(fd);
        complain(s->t, path, "cannot be written");
        return NULL;
    }
    VEC_PUSH(s->t, s->v, s->n, s->cap, o);
    return o.file;
}

const char *outputs_reserve(struct outputs *s, const char *path)
{
    struct output o = {.path = path};
    bool direct;
    mode_t mode;
    if (!find_target(s, &o, &direct, &mode))
        return NULL;
    if (direct) {
        diag_error(s->t, &(struct place){.file = path},
                   "is no regular file; this kind of output cannot be written to it");
        return NULL;
    }
    int fd = make_temporary(s->t, &o);
    if (fd < 0)
        return NULL;
    close(fd);
    unlink(o.temporary); /* only the name is kept: ar refuses to add to an empty file */
    VEC_PUSH(s->t, s->v, s->n, s->cap, o);
    return o.temporary;
}

static bool finish(struct tgc *t, struct output *o)
{
    if (!o->file)
        return true;
    bool ok = fflush(o->file) == 0 && !ferror(o->file);
    if (o->file != stdout)
        ok = fclose(o->file) == 0 && ok;
    o->file = NULL;
    return ok ? true
              : complain(t, strcmp(o->path, "-") ? o->path : "standard output", "writing failed");
}

bool outputs_commit(struct outputs *s)
{
    bool ok = true;
    for (size_t i = 0; i < s->n; i++)
        ok = finish(s->t, &s->v[i]) && ok;
    for (size_t i = 0; i < s->n && ok; i++) {
        struct output *o = &s->v[i];
        if (!o->temporary)
            continue;
        if (rename(o->temporary, o->target) != 0)
            ok = complain(s->t, o->path, "cannot be replaced");
        else
            pending_drop(o->temporary);
        if (ok)
            o->temporary = NULL;
    }
    outputs_discard(s);
    return ok;
}

void outputs_discard(struct outputs *s)
{
    for (size_t i = 0; i < s->n; i++) {
        struct output *o = &s->v[i];
        if (o->file && o->file != stdout)
            fclose(o->file);
        if (o->temporary) {
            unlink(o->temporary);
            pending_drop(o->temporary);
        }
    }
    s->n = 0;
}

/* ---------------------------------------------------------------------------------- directories */

const char *directory_make(struct tgc *t)
{
    const char *base = getenv("TMPDIR");
    char *path = mem_printf(t, "%s/tgc-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(path)) {
        complain(t, path, "a temporary directory cannot be made (TMPDIR names another place)");
        return NULL;
    }
    return pending_add(t, path, true) ? path : NULL;
}

void directory_remove(const char *path)
{
    DIR *d = opendir(path);
    if (d) {
        for (struct dirent *e = readdir(d); e; e = readdir(d))
            if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
                unlinkat(dirfd(d), e->d_name, 0);
        closedir(d);
    }
    rmdir(path);
    pending_drop(path);
}

static bool copy_file(struct tgc *t, struct outputs *files, const char *from, const char *to)
{
    char piece[1 << 16];
    size_t n;
    FILE *in = fopen(from, "re"), *out = in ? outputs_open(files, to) : NULL;
    bool ok = out != NULL;
    while (ok && (n = fread(piece, 1, sizeof piece, in)) > 0)
        ok = fwrite(piece, 1, n, out) == n;
    ok = ok && !ferror(in);
    if (!in)
        return complain(t, from, "cannot be read");
    fclose(in);
    return ok || (out && complain(t, to, "cannot be written"));
}

void directory_keep(struct tgc *t, const char *from, const char *to, struct outputs *protect)
{
    struct outputs *files = outputs_new(t);
    DIR *d = opendir(from);
    bool ok = d != NULL;
    files->input = protect->input;
    files->ninput = protect->ninput;
    if (mkdir(to, 0777) != 0 && errno != EEXIST)
        ok = complain(t, to, "the directory cannot be made");
    for (struct dirent *e = ok ? readdir(d) : NULL; e && ok; e = readdir(d))
        if (e->d_type == DT_REG)
            ok = copy_file(t, files, mem_printf(t, "%s/%s", from, e->d_name),
                           mem_printf(t, "%s/%s", to, e->d_name));
    if (d)
        closedir(d);
    if (ok && outputs_commit(files))
        diag_note(t, &(struct place){.file = to}, "holds the files of the build that failed");
    outputs_discard(files);
}
