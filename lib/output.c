/* output.c - files that appear whole or not at all.
 *
 * Every output is written under a temporary name in the directory it belongs to and renamed when
 * all are complete. What is unfinished is held by the compile, so that it is removed with it; the
 * listener hears of it, for ends of the process that no tgc_free() sees.
 */
#include "lib/lib.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A file or a directory that is removed unless it is finished. path NULL: neither is there yet, or
 * it is finished. */
struct unfinished {
    struct tgc *t;
    const struct listener *listener;
    FILE *file;
    const char *path;
    bool is_directory;
};

static void tell(const struct unfinished *u, bool appears)
{
    if (u->listener && u->listener->on_temporary)
        u->listener->on_temporary(u->listener->user, u->path, u->is_directory, appears);
}

static void remove_unfinished(void *what)
{
    struct unfinished *u = what;
    if (u->file)
        fclose(u->file);
    u->file = NULL;
    if (!u->path)
        return;
    if (u->is_directory)
        directory_remove(u->path);
    else
        unlink(u->path);
    tell(u, false);
    u->path = NULL;
}

static struct unfinished *unfinished_new(struct tgc *t, bool is_directory, struct held **h)
{
    struct unfinished *u = MEM_NEW(t, struct unfinished);
    *u = (struct unfinished){.t = t, .listener = t->listener, .is_directory = is_directory};
    *h = held_add(t, remove_unfinished, u);
    return u;
}

/* Makes what u stands for: no signal ends the process between that and its note. mode: of a file.
 * Returns the file's descriptor, 0 of a directory, or -1. */
static int appear(struct unfinished *u, const char *path, mode_t mode)
{
    tgc_critical(u->t, true);
    int fd = u->is_directory ? mkdir(path, 0700)
                             : open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    int why = errno;
    if (fd >= 0) {
        u->path = path;
        tell(u, true);
    }
    tgc_critical(u->t, false);
    errno = why;
    return fd;
}

/* PREFIX and six letters that nobody is likely to have taken. */
static char *temporary_name(struct tgc *t, const char *prefix, int attempt)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uintptr_t seed[] = {(uintptr_t)now.tv_nsec, (uintptr_t)now.tv_sec, (uintptr_t)getpid(),
                        (uintptr_t)t, (uintptr_t)attempt};
    uint64_t h = hash_bytes(0xcbf29ce484222325u, seed, sizeof seed);
    char *name = mem_printf(t, "%sXXXXXX", prefix);
    for (char *s = name + strlen(prefix); *s; s++, h /= 26)
        *s = (char)('a' + h % 26);
    return name;
}

enum { ATTEMPTS = 100 };

/* An output in memory, as open_memstream() allocates it. from: the file that another program
 * writes, in a directory of its own. */
struct in_memory {
    FILE *file;
    char *bytes;
    size_t nbytes;
    const char *from;
    struct held *directory;
};

static void free_bytes(void *what)
{
    struct in_memory *m = what;
    if (m->file)
        fclose(m->file);
    free(m->bytes);
}

/* -------------------------------------------------------------------------------------- outputs */

struct output {
    const char *path;               /* as the user wrote it; "-" */
    const char *target;  /* the file to be replaced: path, or the target of the symbolic link */
    dev_t device;                   /* of target's directory */
    ino_t directory;
    struct unfinished *temporary;   /* NULL: standard output; its path NULL: written directly */
    struct held *held;              /* it */
    const char *made;               /* the file that replaces target: temporary's, or one inside of
                                     * it */
    bool replaces;                  /* an older file */
    const char *aside;              /* for what target is meanwhile; NULL: it is the
                                     * only one to be renamed */
    struct in_memory *bytes;        /* NULL: a file */
};
struct input { const char *path; dev_t device; ino_t inode; };
struct outputs {
    struct tgc *t;
    bool in_memory;
    struct output *v; size_t n, cap;
    struct input *input; size_t ninput, cap_input;
};

const char *path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *path_sibling(struct tgc *t, const char *path, const char *extension)
{
    const char *dot = strrchr(path_base(path), '.');
    return mem_printf(t, "%.*s.%s", (int)(dot ? dot - path : (ptrdiff_t)strlen(path)), path,
                      extension);
}

struct outputs *outputs_new(struct tgc *t)
{
    struct outputs *s = MEM_NEW(t, struct outputs);
    s->t = t;
    return s;
}

struct outputs *outputs_new_in_memory(struct tgc *t)
{
    struct outputs *s = outputs_new(t);
    s->in_memory = true;
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
            return diag_error(
                s->t, &(struct place){.file = path},
                "is the input '%.200s', which would be lost; name another output (-o)",
                s->input[i].path);
    return true;
}

/* Checks that no two outputs are the same file. needs: o->target. */
static bool is_no_other_output(const struct outputs *s, struct output *o)
{
    const char *base = path_base(o->target);
    struct stat st;
    const char *directory = base == o->target ? "."
                                              : mem_printf(s->t, "%.*s", (int)(base - o->target),
                                                           o->target);
    if (stat(directory, &st) != 0)
        return complain(s->t, o->path, "cannot be written");
    o->device = st.st_dev;
    o->directory = st.st_ino;
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].temporary && s->v[i].temporary->path && s->v[i].device == o->device &&
            s->v[i].directory == o->directory && strcmp(path_base(s->v[i].target), base) == 0)
            return diag_error(s->t, &(struct place){.file = o->path},
                              "is written as '%.200s' already; two outputs need two names",
                              s->v[i].path);
    return true;
}

/* Finds the file of a path. *direct: it exists and is not a regular file. *mode: of the file that
 * it replaces; 0: of none. */
static bool find_target(const struct outputs *s, struct output *o, bool *direct, mode_t *mode)
{
    struct tgc *t = s->t;
    struct stat st;
    *direct = false;
    *mode = 0;
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
    o->replaces = true;
    return is_no_input(s, o->path, &st) && is_no_other_output(s, o);
}

bool outputs_may_write(const struct outputs *s, const char *path)
{
    struct output o = {.path = path};
    bool direct;
    mode_t mode;
    return s->in_memory || strcmp(path, "-") == 0 || find_target(s, &o, &direct, &mode);
}

bool outputs_replace(const struct outputs *s, const char *path)
{
    return !s->in_memory && access(path, F_OK) == 0;
}

/* "DIR/.tgc-" of the target's directory. */
static const char *prefix_beside(struct tgc *t, const struct output *o)
{
    const char *slash = strrchr(o->target, '/');
    return mem_printf(t, "%.*s.tgc-", slash ? (int)(slash + 1 - o->target) : 0, o->target);
}

/* Creates the temporary file or directory next to the target; returns its descriptor or -1. A new
 * file has the mode that the process gives new files. */
static int make_temporary(struct tgc *t, struct output *o, mode_t mode)
{
    const char *prefix = prefix_beside(t, o);
    int fd = -1;
    for (int i = 0; fd < 0 && i < ATTEMPTS && (i == 0 || errno == EEXIST); i++)
        fd = appear(o->temporary, temporary_name(t, prefix, i), mode ? 0600 : 0666);
    if (fd < 0) {
        complain(t, o->path, "cannot be written");
        return -1;
    }
    o->made = o->temporary->path;
    if (mode)
        fchmod(fd, mode);
    return fd;
}

static FILE *open_in_memory(struct outputs *s, const char *path)
{
    struct output o = {.path = path};
    o.bytes = MEM_NEW(s->t, struct in_memory);
    o.held = held_add(s->t, free_bytes, o.bytes);
    VEC_PUSH(s->t, s->v, s->n, s->cap, o);
    o.bytes->file = open_memstream(&o.bytes->bytes, &o.bytes->nbytes);
    if (!o.bytes->file)
        complain(s->t, path, "cannot be held in memory");
    return o.bytes->file;
}

/* Reads what another program has written. */
static bool take_bytes(struct tgc *t, const char *path, struct in_memory *m)
{
    struct stat st;
    struct held *held;
    FILE *f = held_fopen(t, m->from, "re", &held);
    bool ok = f && fstat(fileno(f), &st) == 0;
    m->nbytes = ok ? (size_t)st.st_size : 0;
    m->bytes = ok ? malloc(m->nbytes + 1) : NULL;
    ok = m->bytes && fread(m->bytes, 1, m->nbytes, f) == m->nbytes;
    held_release(held);
    held_release(m->directory);
    m->from = NULL;
    return ok ? true : complain(t, path, "cannot be read into memory");
}

FILE *outputs_open(struct outputs *s, const char *path)
{
    struct output o = {.path = path};
    bool direct = false;
    mode_t mode;
    if (s->in_memory)
        return open_in_memory(s, path);
    if (strcmp(path, "-") == 0) {
        VEC_PUSH(s->t, s->v, s->n, s->cap, o);
        return stdout;
    }
    if (!find_target(s, &o, &direct, &mode))
        return NULL;
    o.temporary = unfinished_new(s->t, false, &o.held);
    int fd = direct ? open(o.target, O_WRONLY | O_CLOEXEC | O_NOCTTY)
                    : make_temporary(s->t, &o, mode);
    if (fd < 0 && direct)
        complain(s->t, path, "cannot be written");
    if (fd < 0)
        return NULL;
    o.temporary->file = fdopen(fd, "w");
    if (!o.temporary->file) {
        close(fd);
        held_release(o.held);
        complain(s->t, path, "cannot be written");
        return NULL;
    }
    VEC_PUSH(s->t, s->v, s->n, s->cap, o);
    return o.temporary->file;
}

static const char *reserve_in_memory(struct outputs *s, const char *path)
{
    struct output o = {.path = path};
    o.bytes = MEM_NEW(s->t, struct in_memory);
    o.held = held_add(s->t, free_bytes, o.bytes);
    const char *directory = directory_make(s->t, &o.bytes->directory);
    if (!directory)
        return NULL;
    o.bytes->from = mem_printf(s->t, "%s/%s", directory, path_base(path));
    VEC_PUSH(s->t, s->v, s->n, s->cap, o);
    return o.bytes->from;
}

const char *outputs_reserve(struct outputs *s, const char *path)
{
    struct output o = {.path = path};
    bool direct;
    mode_t mode;
    if (s->in_memory)
        return reserve_in_memory(s, path);
    if (!find_target(s, &o, &direct, &mode))
        return NULL;
    if (direct) {
        diag_error(s->t, &(struct place){.file = path},
                   "is no regular file; this kind of output cannot be written to it");
        return NULL;
    }
    o.temporary = unfinished_new(s->t, true, &o.held);
    if (make_temporary(s->t, &o, 0) < 0)
        return NULL;
    o.made = mem_printf(s->t, "%s/%s", o.temporary->path, path_base(o.target));
    VEC_PUSH(s->t, s->v, s->n, s->cap, o);
    return o.made;
}

static bool finish_in_memory(struct tgc *t, const struct output *o)
{
    struct in_memory *m = o->bytes;
    FILE *f = m->file;
    m->file = NULL;
    if (!f)
        return !m->from || take_bytes(t, o->path, m);
    bool ok = !ferror(f);
    return (fclose(f) == 0 && ok) || complain(t, o->path, "cannot be held in memory");
}

/* What replaces a file is on the disk before it does: a crash loses neither. A new file need not
 * be, which saves builds some 10 ms each. Some file systems cannot say that it is. */
static bool is_on_disk(const struct output *o, int fd)
{
    return fd >= 0 && (!o->replaces || fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP);
}

static bool finish_file(const struct output *o)
{
    FILE *f = o->temporary->file;
    bool ok = fflush(f) == 0 && !ferror(f) && (!o->temporary->path || is_on_disk(o, fileno(f)));
    o->temporary->file = NULL;
    return fclose(f) == 0 && ok;
}

/* What another program has written. */
static bool finish_reserved(const struct output *o)
{
    int fd = open(o->made, O_RDONLY | O_CLOEXEC);
    bool ok = is_on_disk(o, fd);
    if (fd >= 0)
        close(fd);
    return ok;
}

static bool finish(struct tgc *t, const struct output *o)
{
    if (o->bytes)
        return finish_in_memory(t, o);
    if (!o->temporary)
        return (fflush(stdout) == 0 && !ferror(stdout)) ||
               complain(t, "standard output", "writing failed");
    if (o->temporary->file ? finish_file(o) : !o->temporary->path || finish_reserved(o))
        return true;
    return complain(t, o->path, "writing failed");
}

/* The new names. What cannot be said is no reason to fail: the files are there. */
static void put_folder_on_disk(struct tgc *t, const struct output *o)
{
    const char *slash = o->made ? strrchr(o->target, '/') : NULL;
    const char *folder = slash ? mem_printf(t, "%.*s/", (int)(slash - o->target), o->target) : ".";
    int fd = o->made && o->replaces ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

/* Gives what a target is a second name; that name alone where there are no links, or where the file
 * is another user's, whose link could perhaps not be removed. */
static bool put_aside(const struct output *o)
{
    struct stat st;
    if (!o->aside || lstat(o->target, &st) != 0)
        return !o->aside || errno == ENOENT;
    bool is_own = st.st_uid == geteuid() || geteuid() == 0;
    return (is_own && link(o->target, o->aside) == 0) || rename(o->target, o->aside) == 0;
}

static void take_back(const struct output *o, bool renamed)
{
    if (o->aside && rename(o->aside, o->target) != 0 && renamed)
        unlink(o->target);                                   /* there was none before */
}

/* All or none; returns the first that cannot be, or n. needs: no allocation, since it is
 * critical. */
static int rename_all(struct output *const *o, int n)
{
    int naside = 0, nrenamed = 0;
    while (naside < n && put_aside(o[naside]))
        naside++;
    while (naside == n && nrenamed < n && rename(o[nrenamed]->made, o[nrenamed]->target) == 0)
        nrenamed++;
    int why = errno;
    for (int i = 0; i < naside && nrenamed < n; i++)
        take_back(o[i], i < nrenamed);
    for (int i = 0; i < naside; i++)
        if (o[i]->aside)
            unlink(o[i]->aside);
    errno = why;
    return nrenamed == n ? n : naside < n ? naside : nrenamed;
}

static void note_renamed(const struct output *o)
{
    if (o->temporary->is_directory)
        return;                                              /* is still there, and empty */
    tell(o->temporary, false);
    o->temporary->path = NULL;
}

static bool replace_targets(struct outputs *s)
{
    struct output **o = mem_array(s->t, s->n + 1, sizeof *o);
    int n = 0, nfine;
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].temporary && s->v[i].temporary->path)
            o[n++] = &s->v[i];
    for (int i = 0; i < n && n > 1; i++)
        o[i]->aside = mem_printf(s->t, "%s%s~", o[i]->temporary->path,
                                 o[i]->temporary->is_directory ? "/" : "");
    tgc_critical(s->t, true);
    nfine = rename_all(o, n);
    int why = errno;
    for (int i = 0; i < n && nfine == n; i++)
        note_renamed(o[i]);
    tgc_critical(s->t, false);
    errno = why;
    return nfine == n || complain(s->t, o[nfine]->path, "cannot be replaced");
}

bool outputs_put(struct outputs *s, const char *path, const struct text *x)
{
    FILE *f = outputs_open(s, path);
    if (!f)
        return false;
    return (!x->n || fwrite(x->s, 1, x->n, f) == x->n) || complain(s->t, path, "writing failed");
}

bool outputs_commit(struct outputs *s)
{
    bool ok = true;
    for (size_t i = 0; i < s->n; i++)
        ok = finish(s->t, &s->v[i]) && ok;
    ok = ok && replace_targets(s);
    for (size_t i = 0; i < s->n && ok; i++)
        put_folder_on_disk(s->t, &s->v[i]);
    if (!ok || !s->in_memory)
        outputs_discard(s);
    return ok;
}

struct memory_file outputs_in_memory(const struct outputs *s, size_t index)
{
    if (index >= s->n)
        return (struct memory_file){0};
    const struct in_memory *m = s->v[index].bytes;
    return (struct memory_file){s->v[index].path, m->bytes, m->nbytes};
}

void outputs_discard(struct outputs *s)
{
    for (size_t i = 0; i < s->n; i++)
        held_release(s->v[i].held);
    s->n = 0;
}

/* ---------------------------------------------------------------------------------- directories */

const char *directory_make(struct tgc *t, struct held **h)
{
    const char *base = getenv("TMPDIR"), *path = NULL;
    const char *prefix = mem_printf(t, "%s/tgc-", base && *base ? base : "/tmp");
    struct unfinished *u = unfinished_new(t, true, h);
    bool made = false;
    for (int i = 0; !made && i < ATTEMPTS && (i == 0 || errno == EEXIST); i++)
        made = appear(u, path = temporary_name(t, prefix, i), 0) == 0;
    if (!made) {
        complain(t, path, "a temporary directory cannot be made (TMPDIR names another place)");
        return NULL;
    }
    return path;
}

/* Calls f for each name in the directory; safe in a handler. */
static void each_name(int fd, void (*f)(int fd, const char *name, int depth), int depth)
{
#ifdef SYS_getdents64
    struct { uint64_t number, next; unsigned short nbytes; unsigned char kind; char name[]; } *e;
    _Alignas(uint64_t) char part[2048];
    for (long n; (n = syscall(SYS_getdents64, fd, part, sizeof part)) > 0;)
        for (long at = 0; at < n; at += e->nbytes) {
            e = (void *)(part + at);
            f(fd, e->name, depth);
        }
#else
    int copy = dup(fd);                             /* not quite: it allocates */
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    for (struct dirent *e; d && (e = readdir(d));)
        f(fd, e->d_name, depth);
    if (d)
        closedir(d);
#endif
}

enum { MOST_NESTED = 16 };

static void remove_name(int folder, const char *name, int depth)
{
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || unlinkat(folder, name, 0) == 0)
        return;
    int fd = depth < MOST_NESTED
                 ? openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                 : -1;
    if (fd < 0)
        return;
    for (int i = 0; i < ATTEMPTS; i++) {            /* a listing may miss names while others go */
        each_name(fd, remove_name, depth + 1);
        if (unlinkat(folder, name, AT_REMOVEDIR) == 0 || errno != ENOTEMPTY ||
            lseek(fd, 0, SEEK_SET) != 0)
            break;
    }
    close(fd);
}

void directory_remove(const char *path) { remove_name(AT_FDCWD, path, 0); }

static bool copy_file(struct tgc *t, struct outputs *files, const char *from, const char *to)
{
    char piece[1 << 16];
    size_t n;
    struct held *held;
    FILE *in = held_fopen(t, from, "re", &held), *out = in ? outputs_open(files, to) : NULL;
    bool ok = out != NULL;
    while (ok && (n = fread(piece, 1, sizeof piece, in)) > 0)
        ok = fwrite(piece, 1, n, out) == n;
    if (!in)
        return complain(t, from, "cannot be read");
    ok = ok && !ferror(in);
    held_release(held);
    return ok || (out && complain(t, to, "cannot be written"));
}

static void close_directory(void *what)
{
    DIR **d = what;
    if (*d)
        closedir(*d);
}

void directory_keep(struct tgc *t, const char *from, const char *to, struct outputs *protect)
{
    struct outputs *files = outputs_new(t);
    DIR **list = MEM_NEW(t, DIR *);
    struct held *held = held_add(t, close_directory, list);
    DIR *d = *list = opendir(from);
    bool ok = d != NULL;
    files->input = protect->input;
    files->ninput = protect->ninput;
    if (mkdir(to, 0777) != 0 && errno != EEXIST)
        ok = complain(t, to, "the directory cannot be made");
    for (struct dirent *e = ok ? readdir(d) : NULL; e && ok; e = readdir(d))
        if (e->d_type == DT_REG)
            ok = copy_file(t, files, mem_printf(t, "%s/%s", from, e->d_name),
                           mem_printf(t, "%s/%s", to, e->d_name));
    held_release(held);
    if (ok && outputs_commit(files))
        diag_note(t, &(struct place){.file = to}, "holds the files of the build that failed");
    outputs_discard(files);
}
