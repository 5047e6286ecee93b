/* kept.c - a model that was compiled before runs without its graph, without a schedule and without
 * LLVM.
 *
 *      model's file, options, this tgc, this machine ──> KEY.facts: what reading the inputs
 *                                                        needs, which files have more weights
 *      KEY, those files' bytes, shapes of the inputs ──> KEY.code: the program and its weights
 *
 * Two steps, since shapes may come from the files of -i, and these are read by what the model
 * declares. A compile that has warned of something is not kept: the next one shall warn, too. So a
 * program that depends on an input's values is none that is found here.
 */
#include "lib/kept.h"

#include "backends/llvm/bytes.h"
#include "passes/analysis/kernel_cost.h"

#include <string.h>
#include <sys/stat.h>

/* The least bytes that a record takes. */
enum { FILE_NBYTES = 16, INPUT_NBYTES = 32, BORDER_NBYTES = 32, LINE_NBYTES = 8 };
enum { NAME_NBYTES = 2 * DIGEST_NBYTES + 8 };

struct kept {
    struct tgc *t;
    struct cache *cache;
    const char *name;                      /* of the program */
    struct stat model;                     /* its file */
    unsigned char key[DIGEST_NBYTES];      /* of the first step */
    char facts[NAME_NBYTES], code[NAME_NBYTES];
};

static void name_file(char *name, const unsigned char digest[DIGEST_NBYTES], const char *extension)
{
    for (int i = 0; i < DIGEST_NBYTES; i++)
        snprintf(name + 2 * i, 3, "%02x", digest[i]);
    snprintf(name + 2 * DIGEST_NBYTES, 8, ".%s", extension);
}

static void say(const struct kept *k, const struct options *o, const char *what)
{
    if (o->verbose)
        report_text(k->t, mem_printf(k->t, "cache: %s\n", what));
}

/* ----------------------------------------------------------------------------------------- keys */

/* What is always compiled anew: what DEBUG shows is seen in a compile, standard input is read once,
 * and functions of --link are at addresses of this process. */
static bool may_keep(const struct options *o)
{
    return (o->target == TARGET_LLVM || o->any_target) && !o->no_code_cache && !o->debug &&
           !o->nlink && strcmp(o->model, "-") != 0 && (o->command != COMMAND_VERIFY || o->data);
}

/* The contents, wherever they are; false: the file cannot be read. */
static bool add_model(struct kept *k, const struct options *o, struct digest *d)
{
    digest_add_number(d, o->bytes != NULL);
    if (o->bytes)
        digest_add(d, o->bytes, o->nbytes);
    return o->bytes || (stat(o->model, &k->model) == 0 && identity_add_file(d, o->model));
}

static bool make_key(struct kept *k, const struct options *o)
{
    struct digest d;
    digest_begin(&d, cache_digest_key(k->cache));
    digest_add_string(&d, "facts");
    if (!identity_add(&d) || !add_model(k, o, &d) || (o->tune && !identity_add_file(&d, o->tune)))
        return false;
    digest_add_string(&d, k->name);
    digest_add(&d, o->key, o->nkey);
    digest_add_number(&d, (uint64_t)o->level);      /* the environment may say it, and the target */
    digest_add_number(&d, (uint64_t)o->target);
    digest_end(&d, k->key);
    name_file(k->facts, k->key, "facts");
    return true;
}

/* needs: the inputs have settled the shapes */
static bool make_code_key(struct kept *k, const struct options *o, const struct model_facts *facts)
{
    struct digest d;
    unsigned char digest[DIGEST_NBYTES];
    digest_begin(&d, cache_digest_key(k->cache));
    digest_add_string(&d, "code");
    digest_add(&d, k->key, sizeof k->key);
    for (int i = 0; i < facts->nfile; i++)
        if (!identity_add_file(&d, facts->file[i]))
            return false;
    for (int i = 0; i < o->nshape; i++) {
        digest_add_string(&d, o->shape[i].input);
        digest_add(&d, o->shape[i].dim, (size_t)o->shape[i].ndim * sizeof *o->shape[i].dim);
    }
    for (int i = 0; i < o->nlist; i++) {
        digest_add_string(&d, o->list[i].input);
        digest_add_number(&d, (uint64_t)(int64_t)o->list[i].count);
    }
    digest_end(&d, digest);
    name_file(k->code, digest, "code");
    return true;
}

/* Is the model that was compiled the one that the key was made of? The file may have been
 * written meanwhile. */
static bool is_same_model(const struct kept *k, const struct options *o)
{
    struct stat now, then = k->model;
    if (o->bytes)
        return true;                              /* they stay what they are while it is compiled */
    return stat(o->model, &now) == 0 && now.st_ino == then.st_ino && now.st_size == then.st_size &&
           now.st_mtim.tv_sec == then.st_mtim.tv_sec && now.st_mtim.tv_nsec == then.st_mtim.tv_nsec;
}

/* ---------------------------------------------------------------------------------------- facts */

/* Bytes of a path up to the last slash, and that. */
static size_t folder_nbytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Files beside the model are noted from there, so that both may move. */
static void put_file(struct text *out, const char *path, const char *model)
{
    size_t n = folder_nbytes(model);
    bool is_beside = strncmp(path, model, n) == 0 && path[n] != '/' && path[0] != '/';
    bytes_put(out, is_beside);
    bytes_put_string(out, is_beside ? path + n : path);
}

static const char *get_file(struct byte_reader *r, const char *model)
{
    bool is_beside = bytes_get(r) != 0;
    const char *path = bytes_get_string(r);
    r->is_bad |= !path;
    return is_beside && path ? mem_printf(r->t, "%.*s%s", (int)folder_nbytes(model), model, path)
                             : path;
}

static void put_facts(struct text *out, const struct model_facts *f, const char *model)
{
    bytes_put(out, (uint64_t)f->nfile);
    for (int i = 0; i < f->nfile; i++)
        put_file(out, f->file[i], model);
    bytes_put(out, (uint64_t)f->ninput);
    for (int i = 0; i < f->ninput; i++) {
        const struct model_input *v = &f->input[i];
        bytes_put_string(out, v->name);
        bytes_put(out, (uint64_t)v->dtype);
        bytes_put(out, v->has_shape);
        bytes_put(out, (uint64_t)v->ndim);
        for (int a = 0; a < v->ndim; a++) {
            bytes_put(out, (uint64_t)v->dim[a]);
            bytes_put_string(out, v->symbol[a]);
        }
    }
    for (int side = 0; side < 2; side++) {
        bytes_put(out, (uint64_t)f->nborder[side]);
        for (int i = 0; i < f->nborder[side]; i++) {
            const struct model_value *v = &f->border[side][i];
            bytes_put_string(out, v->name);
            bytes_put(out, v->is_optional);
            bytes_put(out, v->is_sequence);
            bytes_put(out, (uint64_t)v->dtype);
        }
    }
}

static struct model_input get_input(struct byte_reader *r)
{
    struct model_input v = {.name = bytes_get_string(r)};
    v.dtype = (enum dtype)bytes_get_int(r, 0, DTYPE_COUNT - 1);
    v.has_shape = bytes_get(r) != 0;
    v.ndim = bytes_get_int(r, 0, MAX_RANK);
    for (int a = 0; a < v.ndim; a++) {
        v.dim[a] = (int64_t)bytes_get(r);
        v.symbol[a] = bytes_get_string(r);
    }
    r->is_bad |= !v.name;
    return v;
}

static struct model_value *get_border(struct byte_reader *r, int *n)
{
    *n = bytes_get_count(r, BORDER_NBYTES);
    struct model_value *v = mem_array(r->t, (size_t)*n + 1, sizeof *v);
    for (int i = 0; i < *n; i++) {
        v[i].name = bytes_get_string(r);
        v[i].is_optional = bytes_get(r) != 0;
        v[i].is_sequence = bytes_get(r) != 0;
        v[i].dtype = (enum dtype)bytes_get_int(r, 0, DTYPE_COUNT - 1);
        r->is_bad |= !v[i].name;
    }
    return v;
}

/* NULL: they are not kept. */
static const struct model_facts *find_facts(struct kept *k, const char *model)
{
    struct cache_file file;
    struct model_facts *f = MEM_NEW(k->t, struct model_facts);
    if (!cache_read(k->cache, k->facts, &file))
        return NULL;
    struct byte_reader r = {.t = k->t, .at = file.head, .end = file.head + file.head_nbytes};
    f->nfile = bytes_get_count(&r, FILE_NBYTES);
    const char **path = mem_array(k->t, (size_t)f->nfile + 1, sizeof *path);
    for (int i = 0; i < f->nfile; i++)
        path[i] = get_file(&r, model);
    f->file = path;
    f->ninput = bytes_get_count(&r, INPUT_NBYTES);
    f->input = mem_array(k->t, (size_t)f->ninput + 1, sizeof *f->input);
    for (int i = 0; i < f->ninput; i++)
        f->input[i] = get_input(&r);
    for (int side = 0; side < 2; side++)
        f->border[side] = get_border(&r, &f->nborder[side]);
    bool ok = !r.is_bad && r.at == r.end;
    cache_unmap(&file);
    return ok ? f : NULL;
}

/* ----------------------------------------------------------------------------------------- code */

static void digest_library(const struct kept *k, const char *path, unsigned char out[DIGEST_NBYTES])
{
    struct digest d;
    digest_begin(&d, cache_digest_key(k->cache));
    identity_add_library(&d, path);
    digest_end(&d, out);
}

static void put_code(struct text *out, const struct kept *k, const struct model *m,
                     const struct instance *p)
{
    unsigned char digest[DIGEST_NBYTES];
    digest_library(k, p->library, digest);
    bytes_put_string(out, p->made_by);
    bytes_put_string(out, p->library);
    bytes_put_data(out, digest, sizeof digest);
    bytes_put(out, (uint64_t)m->schedule->nkernel);
    for (int i = 0; i < m->schedule->nkernel; i++)
        bytes_put_real(out, kernel_cost(k->t, m->schedule, m->schedule->kernel[i]).ns);
    llvm_program_pack(out, p->code);
}

/* Whether the libLLVM that made it is still the one there. */
static bool library_is_same(const struct kept *k, struct byte_reader *r)
{
    unsigned char now[DIGEST_NBYTES];
    size_t n;
    const char *path = bytes_get_string(r);
    const void *then = bytes_get_data(r, &n);
    if (!path || n != sizeof now)
        return false;
    digest_library(k, path, now);
    return memcmp(now, then, sizeof now) == 0;
}

static bool open_code(struct kept *k, const struct cache_file *f, struct instance *p)
{
    struct byte_reader r = {.t = k->t, .at = f->head, .end = f->head + f->head_nbytes};
    const char *made_by = bytes_get_string(&r);
    if (!library_is_same(k, &r))
        return false;
    int n = bytes_get_count(&r, LINE_NBYTES);
    double *predicted = mem_array(k->t, (size_t)n + 1, sizeof *predicted);
    for (int i = 0; i < n; i++)
        predicted[i] = bytes_get_real(&r);
    struct llvm_program *code = r.is_bad ? NULL
                                         : llvm_program_unpack(k->t, r.at, (size_t)(r.end - r.at),
                                                               f->tail, f->tail_nbytes);
    if (!code || llvm_program_info(code)->kernel_count != n)
        return false;
    instance_adopt(k->t, p, code, made_by);
    p->predicted = predicted;
    return true;
}

static void unmap(void *what) { cache_unmap(what); }

/* The map is held by t, as the weights are in it. */
static bool find_code(struct kept *k, struct instance *p)
{
    struct cache_file *f = MEM_NEW(k->t, struct cache_file);
    struct held *held = held_add(k->t, unmap, f);
    if (cache_read(k->cache, k->code, f) && open_code(k, f, p))
        return true;
    held_release(held);
    return false;
}

static void keep(struct kept *k, const struct options *o, const struct model *m,
                 struct model_facts *facts, const struct instance *p)
{
    struct text head = {.t = k->t}, code = {.t = k->t};
    model_facts_add_files(facts, o, m);
    put_facts(&head, facts, o->model);
    put_code(&code, k, m, p);
    bool ok = make_code_key(k, o, facts) && is_same_model(k, o) &&
              cache_write(k->cache, k->facts, &head, "", 0) &&
              cache_write(k->cache, k->code, &code, llvm_program_weights(p->code),
                          p->info->weights_bytes);
    say(k, o, ok ? "kept for the next time" : "it cannot be kept");
}

/* ------------------------------------------------------------------------------------- exported */

static struct kept *kept_open(struct tgc *t, const struct options *o, const char *name)
{
    const char *why;
    struct kept *k = MEM_NEW(t, struct kept);
    *k = (struct kept){.t = t, .name = name};
    if (!may_keep(o))
        return NULL;
    k->cache = cache_open(t, &why);
    if (!k->cache) {
        say(k, o, mem_printf(t, "not used: %s", why));
        return NULL;
    }
    if (make_key(k, o))
        return k;
    cache_close(k->cache);
    return NULL;
}

enum found { FOUND, NOT_FOUND, FAILED };

/* FAILED: the inputs do not fit the model, diagnostics say so. */
static enum found look(struct kept *k, const struct options *given, struct options *o,
                       struct model *m, struct feed *f, feed_reader *read, struct instance *p)
{
    double start = clock_seconds();
    struct options tried = *given;
    m->facts = find_facts(k, given->model);
    if (!m->facts)
        return NOT_FOUND;
    if (!read(k->t, &tried, m, f))
        return FAILED;
    if (!make_code_key(k, &tried, m->facts) || !find_code(k, p))
        return NOT_FOUND;
    *o = tried;
    report_stage(k->t, "cache", start);
    return FOUND;
}

bool instance_obtain(struct tgc *t, struct options *o, struct model *m, struct feed *f,
                     feed_reader *read, struct instance *p)
{
    const struct options given = *o;
    int ndiag = t->ndiag;
    model_name(t, o->model, m);
    const char *name = o->name ? o->name : program_name(t, m->stem);
    struct kept *k = kept_open(t, o, name);
    enum found found = k ? look(k, &given, o, m, f, read, p) : NOT_FOUND;
    bool ok = found == FOUND;
    if (found == NOT_FOUND && model_load(t, o, m)) {     /* m is new then */
        struct model_facts *facts = k ? model_facts(t, m) : NULL;
        ok = read(t, o, m, f) && model_schedule(t, o, name, m) && instance_build(t, o, m, p);
        int step = 0;
        bool is_ours = ok && !schedule_next_external(m->schedule, &step) && m->graph->nentry == 0;
        if (is_ours && k && p->library && t->ndiag == ndiag)
            keep(k, o, m, facts, p);
    }
    if (k)
        cache_close(k->cache);
    return ok;
}
