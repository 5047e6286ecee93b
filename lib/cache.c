/* cache.c - a directory of files that are found by name, checked when they are read, and never too
 * large in all.
 *
 *      magic · digest · bytes of head · bytes of tail | head | zeros up to a page | tail
 *
 * Several processes may use it at once: a file appears whole, by rename(), and one that is replaced
 * or removed stays what it is for whoever has mapped it. The digest is of the name and the
 * contents, by a random secret of the directory. Weights may be secret, so all is for the owner
 * alone. Its files are run: a directory that others can change, or put another one in the place of,
 * is not used, nor a file that is another's, a link or no file. So nothing that lies there can make
 * tgc wait.
 */
#include "lib/cache.h"
#include "lib/lib.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SECRET_NBYTES = 32, PAGE = 4096, TEMPORARY_SECONDS = 3600 };
static const uint64_t default_limit = (uint64_t)1 << 30;
static const char secret_name[] = "secret", temporary[] = "new-";

struct header {
    char magic[8];
    unsigned char digest[DIGEST_NBYTES];
    uint64_t head_nbytes, tail_nbytes;
};
static const char magic[8] = {'t', 'g', 'c', 'k', 'e', 'p', 't', '1'};

struct cache {
    struct tgc *t;
    const char *path;
    int fd;
    struct held *held;
    uint64_t limit;
    struct digest_key key;
};

/* -------------------------------------------------------------------------------- the directory */

/* "" : there is no place for it */
static const char *directory_path(struct tgc *t, const char **base)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (xdg && xdg[0] == '/')                         /* others are to be ignored */
        *base = xdg;
    else if (home && home[0] == '/')
        *base = mem_printf(t, "%s/.cache", home);
    else
        return NULL;
    return mem_printf(t, "%s/tgc", *base);
}

const char *cache_refuse(struct tgc *t, const struct stat *st, const char *path)
{
    if (st->st_uid != geteuid())
        return mem_printf(t, "%s belongs to another user", path);
    if (st->st_mode & (S_IWGRP | S_IWOTH))
        return mem_printf(t, "others may write into %s (chmod 700)", path);
    return NULL;
}

/* In a directory where everyone may rename everything (no sticky bit) ours can be exchanged. */
static const char *refuse_parents(struct tgc *t, const char *path)
{
    struct stat st;
    char *real = realpath(path, NULL), *slash;
    const char *copy = real ? mem_str(t, real) : NULL, *why = NULL;
    for (; real && !why && (slash = strrchr(real, '/')) && slash[1]; ) {
        slash[slash == real] = 0;
        if (stat(real, &st) != 0 || ((st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX)))
            why = mem_printf(
                t, "anyone may exchange what is in %s, and so %s (chmod o-w, or chmod +t)", real,
                copy);
    }
    free(real);
    return copy ? why : mem_printf(t, "%s: %s", path, strerror(errno));
}

static const char *open_directory(struct cache *c)
{
    struct stat st;
    const char *base;
    c->path = directory_path(c->t, &base);
    if (!c->path)
        return "neither XDG_CACHE_HOME nor HOME names a directory";
    mkdir(base, 0700);
    mkdir(c->path, 0700);
    c->fd = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->fd < 0 || fstat(c->fd, &st) != 0)
        return mem_printf(c->t, "%s: %s", c->path, strerror(errno));
    const char *why = cache_refuse(c->t, &st, c->path);
    return why ? why : refuse_parents(c->t, c->path);
}

static bool read_all(int fd, void *to, size_t nbytes)
{
    for (size_t n = 0; n < nbytes;) {
        ssize_t got = read(fd, (char *)to + n, nbytes - n);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        n += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static bool write_all(int fd, const void *from, size_t nbytes)
{
    for (size_t n = 0; n < nbytes;) {
        ssize_t put = write(fd, (const char *)from + n, nbytes - n);
        if (put < 0 && errno != EINTR)
            return false;
        n += put > 0 ? (size_t)put : 0;
    }
    return true;
}

static int open_file(const struct cache *c, const char *name)
{
    struct stat st;
    int fd = openat(c->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
                    (st.st_mode & (S_IWGRP | S_IWOTH)))) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool read_secret(const struct cache *c, unsigned char *secret)
{
    int fd = open_file(c, secret_name);
    bool ok = fd >= 0 && read_all(fd, secret, SECRET_NBYTES);
    if (fd >= 0)
        close(fd);
    return ok;
}

static const char *temporary_name(const struct cache *c, int *fd)
{
    for (int i = 0; i < 100; i++) {
        const char *name = mem_printf(c->t, "%s%ld-%d", temporary, (long)getpid(), i);
        *fd = openat(c->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (*fd >= 0 || errno != EEXIST)
            return name;
    }
    return NULL;
}

/* Of two processes one makes it, by link(), which replaces nothing. What is there and is no secret
 * is replaced. */
static void make_secret(const struct cache *c)
{
    unsigned char secret[SECRET_NBYTES];
    int random = open("/dev/urandom", O_RDONLY | O_CLOEXEC), fd = -1;
    bool ok = random >= 0 && read_all(random, secret, sizeof secret);
    if (random >= 0)
        close(random);
    const char *name = ok ? temporary_name(c, &fd) : NULL;
    if (fd < 0)
        return;
    ok = write_all(fd, secret, sizeof secret);
    ok = close(fd) == 0 && ok;
    if (ok && linkat(c->fd, name, c->fd, secret_name, 0) != 0 && !read_secret(c, secret))
        (void)!renameat(c->fd, name, c->fd, secret_name);
    unlinkat(c->fd, name, 0);
}

static const char *explain_secret(const struct cache *c)
{
    struct stat st;
    if (fstatat(c->fd, secret_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return mem_printf(c->t, "%s/%s is no file of tgc's and cannot be replaced; remove it",
                          c->path, secret_name);
    return mem_printf(c->t, "%s: files cannot be written there", c->path);
}

static const char *open_secret(struct cache *c)
{
    unsigned char secret[SECRET_NBYTES];
    if (!read_secret(c, secret)) {
        make_secret(c);
        if (!read_secret(c, secret))
            return explain_secret(c);
    }
    digest_key(&c->key, secret, sizeof secret);
    return NULL;
}

static void close_directory(void *what)
{
    struct cache *c = what;
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static struct cache *cache_new(struct tgc *t)
{
    struct cache *c = MEM_NEW(t, struct cache);
    *c = (struct cache){.t = t, .fd = -1, .limit = default_limit};
    c->held = held_add(t, close_directory, c);
    return c;
}

static const char *read_environment(struct cache *c)
{
    const char *wanted = getenv("TGC_CACHE"), *most = getenv("TGC_CACHE_BYTES");
    size_t limit;
    if (wanted && strcmp(wanted, "0") == 0)
        return "TGC_CACHE=0";
    if (!most || !*most)
        return NULL;
    if (!read_size(most, 0, &limit))
        return mem_printf(
            c->t, "TGC_CACHE_BYTES has the value '%.100s'; a number of bytes is expected", most);
    c->limit = limit;
    return NULL;
}

struct cache *cache_open(struct tgc *t, const char **why)
{
    struct cache *c = cache_new(t);
    *why = read_environment(c);
    if (!*why)
        *why = open_directory(c);
    if (!*why)
        *why = open_secret(c);
    if (!*why)
        return c;
    cache_close(c);
    return NULL;
}

int cache_fd(const struct cache *c) { return c->fd; }

struct tgc *cache_owner(const struct cache *c) { return c->t; }

void cache_close(struct cache *c) { held_release(c->held); }

const char *cache_path(const struct cache *c) { return c->path; }

const struct digest_key *cache_digest_key(const struct cache *c) { return &c->key; }

/* -------------------------------------------------------------------------------------- reading */

static size_t tail_offset(uint64_t head_nbytes)
{
    return (size_t)((sizeof(struct header) + head_nbytes + PAGE - 1) / PAGE * PAGE);
}

static void digest_file(const struct cache *c, const char *name, const struct cache_file *f,
                        unsigned char out[DIGEST_NBYTES])
{
    struct digest d;
    digest_begin(&d, &c->key);
    digest_add_string(&d, name);
    digest_add(&d, f->head, f->head_nbytes);
    digest_add(&d, f->tail, f->tail_nbytes);
    digest_end(&d, out);
}

static bool are_zeros(const unsigned char *from, const unsigned char *to)
{
    while (from < to && *from == 0)
        from++;
    return from == to;
}

/* needs: f->map */
static bool check_file(const struct cache *c, const char *name, struct cache_file *f)
{
    struct header h;
    unsigned char digest[DIGEST_NBYTES];
    if (f->map_nbytes < sizeof h)
        return false;
    memcpy(&h, f->map, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.head_nbytes > f->map_nbytes ||
        tail_offset(h.head_nbytes) > f->map_nbytes ||
        h.tail_nbytes != f->map_nbytes - tail_offset(h.head_nbytes))
        return false;
    f->head = (const unsigned char *)f->map + sizeof h;
    f->head_nbytes = (size_t)h.head_nbytes;
    f->tail = (const unsigned char *)f->map + tail_offset(h.head_nbytes);
    f->tail_nbytes = (size_t)h.tail_nbytes;
    digest_file(c, name, f, digest);
    return memcmp(digest, h.digest, sizeof digest) == 0 &&
           are_zeros(f->head + f->head_nbytes, f->tail);
}

bool cache_read(struct cache *c, const char *name, struct cache_file *f)
{
    struct stat st;
    *f = (struct cache_file){0};
    int fd = open_file(c, name);
    if (fd < 0)
        return false;
    int flags = MAP_PRIVATE;
#ifdef MAP_POPULATE
    flags |= MAP_POPULATE;                       /* all of it is read: one system call, no faults */
#endif
    if (fstat(fd, &st) == 0 && st.st_size > 0 && (uintmax_t)st.st_size < SIZE_MAX) {
        f->map_nbytes = (size_t)st.st_size;
        f->map = mmap(NULL, f->map_nbytes, PROT_READ, flags, fd, 0);
    }
    if (f->map == MAP_FAILED)
        f->map = NULL;
    bool ok = f->map && check_file(c, name, f);
    if (ok)
        futimens(fd, NULL);
    else
        cache_unmap(f);
    close(fd);
    return ok;
}

void cache_unmap(struct cache_file *f)
{
    if (f->map)
        munmap(f->map, f->map_nbytes);
    *f = (struct cache_file){0};
}

/* --------------------------------------------------------------------------------------- limits */

struct listed { const char *name; uint64_t nbytes; struct timespec used; bool is_temporary; };

static int compare_used(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec)
        return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* The files that tgc has written, but for the secret; those used longest ago first. */
static struct listed *list_files(const struct cache *c, int *n)
{
    struct listed *list = NULL;
    size_t cap = 0;
    *n = 0;
    int fd = openat(c->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        struct stat st;
        size_t length = strspn(e->d_name, "0123456789abcdef");
        bool is_temporary = strncmp(e->d_name, temporary, sizeof temporary - 1) == 0;
        if ((!is_temporary && (length != 2 * DIGEST_NBYTES || e->d_name[length] != '.')) ||
            fstatat(c->fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(st.st_mode))
            continue;
        struct listed item = {mem_str(c->t, e->d_name), (uint64_t)st.st_size, st.st_mtim,
                              is_temporary};
        VEC_PUSH(c->t, list, *n, cap, item);
    }
    if (dir)
        closedir(dir);
    if (*n)
        qsort(list, (size_t)*n, sizeof *list, compare_used);
    return list;
}

struct cache_size cache_measure(struct cache *c)
{
    struct cache_size size = {0};
    int n;
    const struct listed *list = list_files(c, &n);
    for (int i = 0; i < n; i++) {
        size.nfile += !list[i].is_temporary;
        size.nbytes += list[i].nbytes;
    }
    return size;
}

/* Removes files until there is room for nbytes, and leftovers of a process that ended. */
static void make_room(struct cache *c, uint64_t nbytes)
{
    struct timespec now;
    int n;
    const struct listed *list = list_files(c, &n);
    uint64_t total = nbytes;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < n; i++)
        total += list[i].nbytes;
    for (int i = 0; i < n; i++) {
        bool is_left = list[i].is_temporary && now.tv_sec - list[i].used.tv_sec > TEMPORARY_SECONDS;
        if (!is_left && (total <= c->limit || list[i].is_temporary))
            continue;
        if (unlinkat(c->fd, list[i].name, 0) == 0)
            total -= list[i].nbytes;
    }
}

static void clear_file(const struct cache *c, const char *name, const char **why)
{
    if (unlinkat(c->fd, name, 0) != 0 && errno != ENOENT && !*why)
        *why = mem_printf(c->t, "%s/%s: %s", c->path, name, strerror(errno));
}

bool cache_clear(struct tgc *t, const char **why)
{
    struct cache *c = cache_new(t);
    int n;
    *why = open_directory(c);
    const struct listed *list = *why ? NULL : list_files(c, &n);
    for (int i = 0; list && i < n; i++)
        clear_file(c, list[i].name, why);
    if (c->fd >= 0 && !*why)
        clear_file(c, secret_name, why);
    cache_close(c);
    return !*why;
}

/* -------------------------------------------------------------------------------------- writing */

static bool write_file(int fd, const struct header *h, const struct cache_file *f)
{
    static const char zeros[PAGE];
    size_t end = sizeof *h + f->head_nbytes;
    return write_all(fd, h, sizeof *h) && write_all(fd, f->head, f->head_nbytes) &&
           write_all(fd, zeros, tail_offset(f->head_nbytes) - end) &&
           write_all(fd, f->tail, f->tail_nbytes);
}

bool cache_write(struct cache *c, const char *name, const struct text *head, const void *tail,
                 size_t tail_nbytes)
{
    struct cache_file f = {(const unsigned char *)head->s, tail, head->n, tail_nbytes, NULL, 0};
    struct header h = {.head_nbytes = head->n, .tail_nbytes = tail_nbytes};
    uint64_t nbytes = tail_offset(head->n) + (uint64_t)tail_nbytes;
    int fd = -1;
    if (nbytes > c->limit)
        return false;
    memcpy(h.magic, magic, sizeof magic);
    digest_file(c, name, &f, h.digest);
    make_room(c, nbytes);
    const char *new = temporary_name(c, &fd);
    if (fd < 0)
        return false;
    bool ok = write_file(fd, &h, &f);
    ok = close(fd) == 0 && ok && renameat(c->fd, new, c->fd, name) == 0;
    if (!ok)
        unlinkat(c->fd, new, 0);
    return ok;
}
