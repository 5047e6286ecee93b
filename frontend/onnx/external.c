/* external.c - weights in external files: checks external_data, and maps each file once, however
 * many tensors it holds. frontend/confine.c keeps them beneath the external data directory.
 */
#include "frontend/confine.h"
#include "frontend/onnx/onnx.h"

#include <string.h>
#include <sys/mman.h>

struct onnx_mapping {
    struct onnx_mapping *next;
    const char *location;
    struct confined file;
    size_t used;                    /* bytes that tensors use of it */
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

/* Reported for the first tensor only: the same holds for all of a file's. */
static bool may_read(struct onnx_model *m, const struct place *at)
{
    bool from_stdin = strcmp(m->path, "<stdin>") == 0 && !m->options.external_data_dir;
    if (!m->options.no_external_data && !from_stdin)
        return true;
    if (!m->refused_external)
        diag_error(m->tgc, at, "the tensor's data is in another file, %s",
                   m->options.no_external_data
                       ? "and --no-external-data forbids to read it"
                       : "and the model came from standard input; "
                         "name its directory with --external-data-dir");
    m->refused_external = true;
    return false;
}

static int count_tensors_of(const struct onnx_model *m, const char *location)
{
    const GraphProto *g = m->proto->graph;
    int n = 0;
    for (size_t i = 0; g && i < g->n_initializer; i++)
        for (size_t k = 0; k < g->initializer[i]->n_external_data; k++) {
            const StringStringEntryProto *e = g->initializer[i]->external_data[k];
            n += e->key && e->value && !strcmp(e->key, "location") && !strcmp(e->value, location);
        }
    return n;
}

/* false: reported, now or before. */
static bool map_file(struct onnx_model *m, const struct place *at, const char *location,
                     struct onnx_mapping *map)
{
    for (const struct onnx_mapping *x = m->missing; x; x = x->next)
        if (strcmp(x->location, location) == 0)
            return false;
    map->location = location;
    if (confine_map(m->tgc, at, data_directory(m), location, m->path, &map->file))
        return true;
    int n = count_tensors_of(m, location);
    if (n > 1)
        diag_note(m->tgc, at, "%d tensors in all are in '%.200s'", n, location);
    map->next = m->missing;
    m->missing = map;
    return false;
}

/* A tensor's bytes raise the limit, however many tensors name them, and however many the file says
 * that it has: by no more than the file stores. */
static void allow_memory(struct onnx_model *m, struct onnx_mapping *map, size_t nbytes)
{
    size_t left = map->file.stored - map->used, more, *limit = &m->tgc->mem_limit;
    nbytes = nbytes < left ? nbytes : left;
    map->used += nbytes;
    if (!size_mul(nbytes, m->options.budget_per_external_byte, &more) ||
        !size_add(*limit, more, limit))
        *limit = SIZE_MAX;
}

bool onnx_map_external(struct onnx_model *m, const struct place *at, const TensorProto *p,
                       const void **data, size_t *nbytes)
{
    struct tgc *t = m->tgc;
    if (!may_read(m, at))
        return false;
    struct request r;
    if (!parse_request(t, at, p, &r))
        return false;
    struct onnx_mapping *map = m->mapping;
    while (map && strcmp(map->location, r.location) != 0)
        map = map->next;
    if (!map) {
        map = MEM_NEW(t, struct onnx_mapping);
        if (!map_file(m, at, r.location, map))
            return false;
        map->next = m->mapping;
        m->mapping = map;
    }
    size_t end;
    if (!r.has_length && r.offset <= map->file.nbytes)
        r.length = map->file.nbytes - r.offset;
    if (!size_add(r.offset, r.length, &end) || end > map->file.nbytes)
        return diag_error(
            t, at,
            "external data '%.200s' has %zu bytes; offset %zu and length %zu go beyond its end",
            r.location, map->file.nbytes, r.offset, r.length);
    allow_memory(m, map, r.length);
    *data = map->file.base ? (const char *)map->file.base + r.offset : NULL;
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
