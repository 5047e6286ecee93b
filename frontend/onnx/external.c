/* external.c - weights in files beside the model: what external_data says, checked, and the files
 * mapped once however many tensors they hold. frontend/confine.c keeps them beneath the external
 * data directory.
 */
#include "frontend/confine.h"
#include "frontend/onnx/onnx.h"

#include <string.h>
#include <sys/mman.h>

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

static bool parse_request(struct tgc *t, const struct place *at, const TensorProto *p,
                          struct request *r)
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
            return diag_error(t, at,
                              "external_data has the key '%.100s'; known are location, offset, "
                              "length and checksum",
                              key);
        }
        if (!ok)
            return diag_error(t, at, "external_data has %s '%.100s'; a number of bytes is expected",
                              key, value);
    }
    return r->location && r->location[0]
               ? true
               : diag_error(t, at, "external_data names no location; the file name is required");
}

static const char *data_directory(const struct onnx_model *m)
{
    return m->options.external_data_dir ? m->options.external_data_dir
                                        : confine_directory(m->tgc, m->path);
}

bool onnx_map_external(struct onnx_model *m, const struct place *at, const TensorProto *p,
                       const void **data, size_t *nbytes)
{
    struct tgc *t = m->tgc;
    if (m->options.no_external_data)
        return diag_error(
            t, at,
            "the tensor's data is in another file, and --no-external-data forbids to read it");
    if (strcmp(m->path, "<stdin>") == 0 && !m->options.external_data_dir)
        return diag_error(
            t, at,
            "the tensor's data is in another file, and the model came from standard input; "
            "name its directory with --external-data-dir");
    struct request r;
    if (!parse_request(t, at, p, &r))
        return false;
    struct onnx_mapping *map = m->mapping;
    while (map && strcmp(map->location, r.location) != 0)
        map = map->next;
    if (!map) {
        map = MEM_NEW(t, struct onnx_mapping);
        map->location = r.location;
        if (!confine_map(t, at, data_directory(m), r.location, &map->base, &map->nbytes))
            return false;
        map->next = m->mapping;
        m->mapping = map;
        size_t more;
        if (!size_mul(map->nbytes, m->options.budget_per_external_byte, &more) ||
            !size_add(t->mem_limit, more, &t->mem_limit))
            t->mem_limit = SIZE_MAX;
    }
    size_t end;
    if (!r.has_length && r.offset <= map->nbytes)
        r.length = map->nbytes - r.offset;
    if (!size_add(r.offset, r.length, &end) || end > map->nbytes)
        return diag_error(
            t, at,
            "external data '%.200s' has %zu bytes; offset %zu and length %zu go beyond its end",
            r.location, map->nbytes, r.offset, r.length);
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
    /* the latest is first */
    for (const struct onnx_mapping *map = m->mapping; map; map = map->next)
        path[--i] = strcmp(dir, ".") == 0 ? map->location
                                          : mem_printf(m->tgc, "%s/%s", dir, map->location);
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
