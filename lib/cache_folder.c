/* cache_folder.c - folders below the cache's directory that another program fills, the Python
 * module's: whether nobody else can have changed what is in them.
 *
 * The file "seal" holds a digest, by the directory's secret, of the folder's name and of the names,
 * lengths and contents of its files. Files are regular, the owner's, and not writable for others;
 * there are no folders inside of a sealed one. Each step down goes by a descriptor and follows no
 * link.
 */
#include "lib/cache.h"
#include "lib/lib.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char seal_name[] = "seal";

static void close_fd(void *what)
{
    int *fd = what;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* A folder below the one that is open, in its place. */
static const char *step_down(struct tgc *t, int *fd, const char *part, bool make)
{
    struct stat st;
    if (make)
        mkdirat(*fd, part, 0700);
    int next = openat(*fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const char *why = next < 0 || fstat(next, &st) != 0
                          ? mem_printf(t, "%s: %s", part, strerror(errno))
                          : cache_refuse(t, &st, part);
    close(*fd);
    *fd = next;
    return why;
}

static const char *open_folder(struct cache *c, struct tgc *t, const char *name, bool make, int *fd)
{
    const char *why = NULL;
    *fd = fcntl(cache_fd(c), F_DUPFD_CLOEXEC, 0);
    for (const char *s = name; *fd >= 0 && !why; s++) {
        size_t n = strcspn(s, "/");
        if (!n || *s == '.')
            return "expected NAME or NAME/NAME, below the cache's folder";
        why = step_down(t, fd, mem_printf(t, "%.*s", (int)n, s), make);
        if (!*(s += n))
            break;
    }
    return *fd < 0 && !why ? strerror(errno) : why;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char **list_names(struct tgc *t, int folder, int *n)
{
    const char **list = NULL;
    size_t cap = 0;
    *n = 0;
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strcmp(e->d_name, seal_name) != 0)
            VEC_PUSH(t, list, *n, cap, mem_str(t, e->d_name));
    if (dir)
        closedir(dir);
    if (*n)
        qsort(list, (size_t)*n, sizeof *list, compare_names);
    return list;
}

/* take: what a compiler has made by a umask for groups becomes the owner's alone */
static int open_own_file(struct tgc *t, int folder, const char *name, bool take, uint64_t *nbytes,
                         const char **why)
{
    struct stat st;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (take && fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid())
        fchmod(fd, st.st_mode & 0755);
    *why = fd < 0 || fstat(fd, &st) != 0 ? mem_printf(t, "%s: %s", name, strerror(errno))
           : !S_ISREG(st.st_mode)        ? mem_printf(t, "%s is no file", name)
                                         : cache_refuse(t, &st, name);
    if (*why && fd >= 0)
        close(fd);
    *nbytes = *why ? 0 : (uint64_t)st.st_size;
    return *why ? -1 : fd;
}

static bool read_whole(int fd, unsigned char *to, size_t nbytes)
{
    for (size_t n = 0; n < nbytes;) {
        ssize_t got = read(fd, to + n, nbytes - n);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        n += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static const char *add_file(struct tgc *t, struct digest *d, int folder, const char *name,
                            bool take)
{
    static const size_t nbytes_part = 1 << 20;
    const char *why;
    uint64_t nbytes, left;
    int fd = open_own_file(t, folder, name, take, &nbytes, &why);
    if (fd < 0)
        return why;
    unsigned char *part = malloc(nbytes_part);
    digest_add_string(d, name);
    digest_add_number(d, nbytes);
    for (left = nbytes; part && left;) {
        size_t n = left < nbytes_part ? (size_t)left : nbytes_part;
        if (!read_whole(fd, part, n))
            break;
        digest_add(d, part, n);
        left -= n;
    }
    free(part);
    close(fd);
    return left ? mem_printf(t, "%s cannot be read", name) : NULL;
}

static const char *digest_of(struct cache *c, struct tgc *t, int folder, const char *name,
                             bool take, unsigned char out[DIGEST_NBYTES])
{
    struct digest d;
    int n;
    const char *why = NULL, *const *file = list_names(t, folder, &n);
    digest_begin(&d, cache_digest_key(c));
    digest_add_string(&d, "folder");
    digest_add_string(&d, name);
    digest_add_number(&d, (uint64_t)n);
    for (int i = 0; i < n && !why; i++)
        why = add_file(t, &d, folder, file[i], take);
    digest_end(&d, out);
    return why;
}

static const char *write_seal(struct tgc *t, int folder, const unsigned char digest[DIGEST_NBYTES])
{
    unlinkat(folder, seal_name, 0);
    int fd = openat(folder, seal_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, digest, DIGEST_NBYTES) == DIGEST_NBYTES;
    ok = fd >= 0 && close(fd) == 0 && ok;
    return ok ? NULL : mem_printf(t, "%s cannot be written: %s", seal_name, strerror(errno));
}

static const char *check_seal(struct tgc *t, int folder, const unsigned char digest[DIGEST_NBYTES])
{
    unsigned char was[DIGEST_NBYTES];
    uint64_t nbytes;
    const char *why;
    int fd = open_own_file(t, folder, seal_name, false, &nbytes, &why);
    if (fd < 0)
        return why;
    bool ok = nbytes == DIGEST_NBYTES && read_whole(fd, was, sizeof was);
    close(fd);
    return ok && memcmp(was, digest, sizeof was) == 0 ? NULL
                                                      : "its files are not as they were sealed";
}

/* The path without links; needs: c is open, so that nobody can exchange what is on the way. */
static const char *real_path(struct cache *c, struct tgc *t, const char *name, const char **why)
{
    char *real = realpath(mem_printf(t, "%s/%s", cache_path(c), name), NULL);
    const char *copy = real ? mem_str(t, real) : NULL;
    *why = real ? NULL : strerror(errno);
    free(real);
    return copy;
}

static const char *use(struct cache *c, const char *name, bool make, bool seal, const char **why)
{
    struct tgc *t = cache_owner(c);
    unsigned char digest[DIGEST_NBYTES];
    int *fd = MEM_NEW(t, int);
    *fd = -1;
    struct held *held = held_add(t, close_fd, fd);
    *why = open_folder(c, t, name, make, fd);
    if (!*why && !make)
        *why = digest_of(c, t, *fd, name, seal, digest);
    if (!*why && !make)
        *why = seal ? write_seal(t, *fd, digest) : check_seal(t, *fd, digest);
    held_release(held);
    return *why ? NULL : real_path(c, t, name, why);
}

const char *cache_folder_make(struct cache *c, const char *name, const char **why)
{
    return use(c, name, true, false, why);
}

const char *cache_folder_seal(struct cache *c, const char *name, const char **why)
{
    return use(c, name, false, true, why);
}

const char *cache_folder_check(struct cache *c, const char *name, const char **why)
{
    return use(c, name, false, false, why);
}
