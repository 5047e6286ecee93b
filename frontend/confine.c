/* confine.c - opens files that a model names, without trusting the model about where they are.
 *
 * The location that a model gives is data of unknown origin: "../../etc/passwd", a symbolic link, a
 * hard link to another's file, a pipe that never ends (CVE-2022-25882, CVE-2024-27318 and what
 * followed). So the file is opened relative to the data directory by openat2(RESOLVE_BENEATH |
 * RESOLVE_NO_SYMLINKS); where the kernel lacks that, component by component with O_NOFOLLOW. It
 * must be a regular file with one link. It is mapped, never copied, read-only and private. (A file
 * that another process truncates meanwhile is beyond what a mapping can guard against.)
 */
#include "frontend/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The path as names between single slashes, without "." and empty components; NULL: it is absolute,
 * has "..", or ends in no name. */
static const char *plain_relative(struct tgc *t, const char *path)
{
    struct text x = {.t = t};
    if (path[0] == '/')
        return NULL;
    for (const char *s = path;; s++) {
        int n = (int)strcspn(s, "/");
        bool dot = n == 0 || (n == 1 && s[0] == '.');
        if ((dot && !s[n]) || (n == 2 && s[0] == '.' && s[1] == '.'))
            return NULL;
        if (!dot)
            text_printf(&x, "%s%.*s", x.n ? "/" : "", n, s);
        s += n;
        if (!*s)
            return x.s;
    }
}

enum { OPEN_FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

/* openat2 for kernels without it. needs: plain_relative(). */
static int open_by_component(int dir, const char *path)
{
    int at = dir;
    for (const char *s = path;;) {
        size_t n = strcspn(s, "/");
        char name[256];
        int fd = -1;
        if (n < sizeof name) {
            memcpy(name, s, n);
            name[n] = 0;
            fd = openat(at, name, OPEN_FLAGS | O_NOFOLLOW | (s[n] ? O_DIRECTORY : 0));
        } else {
            errno = ENAMETOOLONG;
        }
        int saved = errno;
        if (at != dir)
            close(at);
        errno = saved;
        if (fd < 0 || !s[n])
            return fd;
        at = fd;
        s += n + 1;
    }
}

static int open_beneath(int dir, const char *path)
{
    struct open_how how = {.flags = OPEN_FLAGS, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EINVAL))
        fd = open_by_component(dir, path);
    return fd;
}

size_t confine_stored(int fd, size_t nbytes)
{
    enum { PIECES_MAX = 1 << 12 };
    size_t sum = 0;
    off_t begin, end = 0;
    for (int i = 0; i < PIECES_MAX && (begin = lseek(fd, end, SEEK_DATA)) >= 0; i++) {
        end = lseek(fd, begin, SEEK_HOLE);
        if (end <= begin)
            return nbytes;
        sum += (size_t)(end - begin);
    }
    return end == 0 && begin < 0 && errno != ENXIO ? nbytes : sum < nbytes ? sum : nbytes;
}

/* Maps the open file; it is closed by the caller. */
static bool map_fd(struct tgc *t, const struct place *at, int fd, const char *location,
                   struct confined *file)
{
    struct stat st;
    struct held_map *map;
    if (fstat(fd, &st) != 0)
        return diag_error(t, at, "external data file '%.200s' cannot be examined: %s", location,
                          strerror(errno));
    if (!S_ISREG(st.st_mode))
        return diag_error(t, at, "external data '%.200s' is not a regular file", location);
    if (st.st_nlink != 1)
        return diag_error(t, at,
                          "external data file '%.200s' has other hard links, so it may be "
                          "another's file; copy it",
                          location);
    if ((uintmax_t)st.st_size > SIZE_MAX)
        return diag_error(t, at, "external data file '%.200s' is too large for this machine",
                          location);
    *file = (struct confined){.nbytes = (size_t)st.st_size};
    if (file->nbytes == 0)
        return true;
    file->stored = confine_stored(fd, file->nbytes);
    held_map(t, &map);
    void *p = mmap(NULL, file->nbytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return diag_error(t, at, "external data file '%.200s' cannot be mapped: %s", location,
                          strerror(errno));
    *map = (struct held_map){p, file->nbytes};
    file->base = p;
    return true;
}

/* The link dirname/path, if it leads into the directory of the model's own file: its
 * target is opened there by its name, so that nothing that changes meanwhile leads
 * elsewhere. -1: it does not. */
static int open_beside(struct tgc *t, const char *dirname, const char *path, const char *model)
{
    char *file = model ? realpath(model, NULL) : NULL,
         *target = file ? realpath(mem_printf(t, "%s/%s", dirname, path), NULL) : NULL;
    int fd = -1;
    if (target) {
        const char *home = confine_directory(t, file), *name = strrchr(target, '/') + 1;
        int dir = strcmp(home, confine_directory(t, target)) == 0
                      ? open(home, O_PATH | O_DIRECTORY | O_CLOEXEC)
                      : -1;
        fd = dir < 0 ? -1 : open_beneath(dir, name);
        if (dir >= 0)
            close(dir);
    }
    free(file);
    free(target);
    return fd;
}

bool confine_map(struct tgc *t, const struct place *at, const char *dirname, const char *location,
                 const char *model, struct confined *file)
{
    const char *path = plain_relative(t, location);
    if (!path)
        return diag_error(
            t, at,
            "external data location '%.200s' is not a path below the model's directory "
            "(no leading '/', no '..')",
            location);
    int *fd;
    struct held *held = held_fd(t, &fd);
    int dir = open(dirname, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return diag_error(t, at, "external data directory '%s' cannot be opened: %s", dirname,
                          strerror(errno));
    *fd = open_beneath(dir, path);
    int error = errno;
    close(dir);
    bool is_link = *fd < 0 && (error == ELOOP || error == EXDEV || error == ENOTDIR);
    if (is_link && (*fd = open_beside(t, dirname, path, model)) < 0)
        return diag_error(
            t, at,
            "external data '%.200s' is reached through a symbolic link that leads out of the "
            "directory in which the model's own file is, which is refused; copy the model and its "
            "data with 'cp -rL %.200s DIR', and give tgc the copy",
            location, dirname);
    if (*fd < 0)
        return diag_error(t, at,
                          "external data file '%.200s' cannot be opened in '%s': %s; "
                          "--external-data-dir names another directory",
                          location, dirname, strerror(error));
    bool ok = map_fd(t, at, *fd, location, file);
    held_release(held);
    return ok;
}

const char *confine_directory(struct tgc *t, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return ".";
    char *dir = mem_str(t, path);
    dir[slash == path ? 1 : slash - path] = 0;
    return dir;
}
