/* external.c - weights in files beside the model, without trusting the model about where they are.
 *
 * The location that a model gives is data of unknown origin: "../../etc/passwd", a symbolic link, a hard link to another's file, a pipe
 * that never ends (CVE-2022-25882, CVE-2024-27318 and what followed). So the file is opened relative to the external data directory by
 * openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS); where the kernel lacks that, component by component with O_NOFOLLOW. It must be a
 * regular file with one link, and offset + length must lie inside. It is mapped, once however many tensors it holds, never copied:
 * the mapping is read-only and private. (A file that another process truncates meanwhile is beyond what a mapping can guard against.)
 */
#include "frontend/onnx/onnx.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct onnx_mapping {
    struct onnx_mapping *next;
    const char *location;
    void *base;                     /* NULL: an empty file */
    size_t nbytes;
};

/* What external_data says, parsed. */
struct request { const char *location; size_t offset, length; bool has_length; };

static bool parse_size(const char *s, size_t *v)
{
    *v = 0;
    if (!*s)
        return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9' || !size_mul(*v, 10, v) || !size_add(*v, (size_t)(*s - '0'), v))
            return false;
    }
    return true;
}

static bool parse_request(struct tgc *t, const struct place *at, const TensorProto *p, struct request *r)
{
    *r = (struct request){0};
    for (size_t i = 0; i < p->n_external_data; i++) {
        const char *key = p->external_data[i]->key, *value = p->external_data[i]->value;
        bool ok = true;
        if (strcmp(key, "location") == 0) {
            r->location = value;
        } else if (strcmp(key, "offset") == 0) {
            ok = parse_size(value, &r->offset);
        } else if (strcmp(key, "length") == 0) {
            ok = parse_size(value, &r->length);
            r->has_length = true;
        } else if (strcmp(key, "checksum") != 0) {
            return diag_error(t, at, "external_data has the key '%.100s'; known are location, offset, length and checksum", key);
        }
        if (!ok)
            return diag_error(t, at, "external_data has %s '%.100s'; a number of bytes is expected", key, value);
    }
    return r->location && r->location[0] ? true : diag_error(t, at, "external_data names no location; the file name is required");
}

/* Each component a name: not absolute, no "..", no "." and no empty one. */
static bool is_plain_relative(const char *path)
{
    for (const char *s = path;; s++) {
        size_t n = strcspn(s, "/");
        if (n == 0 || (n == 1 && s[0] == '.') || (n == 2 && s[0] == '.' && s[1] == '.'))
            return false;
        s += n;
        if (!*s)
            return true;
    }
}

enum { OPEN_FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

/* What openat2 does, for kernels without it. path is_plain_relative(). */
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

static const char *data_directory(const struct onnx_model *m)
{
    if (m->options.external_data_dir)
        return m->options.external_data_dir;
    const char *slash = strrchr(m->path, '/');
    if (!slash)
        return ".";
    char *dir = mem_str(m->tgc, m->path);
    dir[slash == m->path ? 1 : slash - m->path] = 0;
    return dir;
}

/* Maps the open file; it is closed by the caller. */
static bool map_fd(struct tgc *t, const struct place *at, int fd, struct onnx_mapping *map)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return diag_error(t, at, "external data file '%.200s' cannot be examined: %s", map->location, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return diag_error(t, at, "external data '%.200s' is not a regular file", map->location);
    if (st.st_nlink != 1)
        return diag_error(t, at, "external data file '%.200s' has other hard links, so it may be another's file; copy it", map->location);
    if ((uintmax_t)st.st_size > SIZE_MAX)
        return diag_error(t, at, "external data file '%.200s' is too large for this machine", map->location);
    map->nbytes = (size_t)st.st_size;
    if (map->nbytes == 0)
        return true;
    void *base = mmap(NULL, map->nbytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED)
        return diag_error(t, at, "external data file '%.200s' cannot be mapped: %s", map->location, strerror(errno));
    map->base = base;
    return true;
}

static bool open_mapping(struct onnx_model *m, const struct place *at, const char *location, struct onnx_mapping *map)
{
    struct tgc *t = m->tgc;
    if (!is_plain_relative(location))
        return diag_error(t, at, "external data location '%.200s' is not a plain path below the model's directory "
                                 "(no leading '/', no '.' or '..')", location);
    const char *dirname = data_directory(m);
    map->location = location;
    int dir = open(dirname, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return diag_error(t, at, "external data directory '%s' cannot be opened: %s", dirname, strerror(errno));
    int fd = open_beneath(dir, location);
    int error = errno;
    close(dir);
    if (fd < 0 && (error == ELOOP || error == EXDEV || error == ENOTDIR))
        return diag_error(t, at, "external data '%.200s' is reached through a symbolic link, which is refused; "
                                 "copy the file, or name its real directory with --external-data-dir", location);
    if (fd < 0)
        return diag_error(t, at, "external data file '%.200s' cannot be opened in '%s': %s; --external-data-dir names another directory",
                          location, dirname, strerror(error));
    bool ok = map_fd(t, at, fd, map);
    close(fd);
    return ok;
}

bool onnx_map_external(struct onnx_model *m, const struct place *at, const TensorProto *p, const void **data, size_t *nbytes)
{
    struct tgc *t = m->tgc;
    if (m->options.no_external_data)
        return diag_error(t, at, "the tensor's data is in another file, and --no-external-data forbids to read it");
    if (strcmp(m->path, "<stdin>") == 0 && !m->options.external_data_dir)
        return diag_error(t, at, "the tensor's data is in another file, and the model came from standard input; "
                                 "name its directory with --external-data-dir");
    struct request r;
    if (!parse_request(t, at, p, &r))
        return false;
    struct onnx_mapping *map = m->mapping;
    while (map && strcmp(map->location, r.location) != 0)
        map = map->next;
    if (!map) {
        map = MEM_NEW(t, struct onnx_mapping);
        if (!open_mapping(m, at, r.location, map))
            return false;
        map->next = m->mapping;
        m->mapping = map;
        size_t more;
        if (!size_mul(map->nbytes, m->options.budget_per_external_byte, &more) || !size_add(t->mem_limit, more, &t->mem_limit))
            t->mem_limit = SIZE_MAX;
    }
    size_t end;
    if (!r.has_length && r.offset <= map->nbytes)
        r.length = map->nbytes - r.offset;
    if (!size_add(r.offset, r.length, &end) || end > map->nbytes)
        return diag_error(t, at, "external data '%.200s' has %zu bytes; offset %zu and length %zu go beyond its end", r.location, map->nbytes,
                          r.offset, r.length);
    *data = map->base ? (const char *)map->base + r.offset : NULL;
    *nbytes = r.length;
    return true;
}

const char *const *onnx_external_files(const struct onnx_model *m, int *n)
{
    size_t count = 0;
    for (const struct onnx_mapping *map = m->mapping; map; map = map->next)
        count++;
    const char **path = mem_array(m->tgc, count, sizeof *path);
    const char *dir = data_directory(m);
    size_t i = count;
    for (const struct onnx_mapping *map = m->mapping; map; map = map->next) /* the latest is first */
        path[--i] = strcmp(dir, ".") == 0 ? map->location : mem_printf(m->tgc, "%s/%s", dir, map->location);
    *n = (int)count;
    return path;
}

void onnx_close(struct onnx_model *m)
{
    for (struct onnx_mapping *map = m ? m->mapping : NULL; map; map = map->next)
        if (map->base)
            munmap(map->base, map->nbytes);
    if (m)
        m->mapping = NULL;
}
