/* link.c - the C functions of the user's that a model calls (docs/custom-operators.md), in this
 * process: what --link names is opened where the model's code finds it, by its names alone.
 *
 *      FILE.so                 dlopen
 *      FILE.c, FILE.o, FILE.a  all of them, by the C compiler, one library in a directory of ours,
 *                              where a .c finds NAME.h; dlopen
 */
#include "lib/lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void close_library(void *what)
{
    void **handle = what;
    if (*handle)
        dlclose(*handle);
}

void *library_open(struct tgc *t, const char *path, int flags, const char *subject)
{
    void **handle = MEM_NEW(t, void *);
    held_add(t, close_library, handle);
    *handle = dlopen(path, flags);
    if (!*handle)
        diag_error(t, &(struct place){.file = subject}, "cannot be opened: %s", dlerror());
    return *handle;
}

void libraries_pass(struct tgc *from, struct tgc *to)
{
    held_pass(from, to, close_library, sizeof(void *));
}

struct opened { void **handle; int n; size_t cap; };

/* The names become visible to all that is opened later. */
static bool open_library(struct tgc *t, struct opened *all, const char *path, const char *subject)
{
    void *handle = library_open(t, path, RTLD_NOW | RTLD_GLOBAL, subject);
    if (handle)
        VEC_PUSH(t, all->handle, all->n, all->cap, handle);
    return handle != NULL;
}

static bool is_shared(const char *path)
{
    const char *slash = strrchr(path, '/'), *so = strstr(slash ? slash : path, ".so");
    return so && (!so[3] || so[3] == '.');
}

static const char *absolute_path(struct tgc *t, const char *path)
{
    char *s = realpath(path, NULL);
    const char *copy = s ? mem_str(t, s) : NULL;
    if (!s)
        diag_error(t, &(struct place){.file = path}, "cannot be opened: %s", strerror(errno));
    free(s);
    return copy;
}

const char *const *externals_files(struct tgc *t, const struct options *o)
{
    const char **file = mem_array(t, (size_t)o->nlink + 1, sizeof *file);
    for (int i = 0; i < o->nlink; i++)
        if (!(file[i] = absolute_path(t, o->link[i])))
            return NULL;
    return file;
}

/* NAME.h, with the prototypes. */
static bool write_header(struct tgc *t, const struct options *o, const struct model *m,
                         const char *dir)
{
    const char *name = o->name ? o->name : program_name(t, m->stem);
    struct program_options po = model_program_options(o, m, name);
    struct text h = {.t = t};
    program_write_header(t, m->schedule, &po, &h);
    return file_write(t, mem_printf(t, "%s/%s.h", dir, name), &h);
}

/* Sources, objects and archives as one library. Of archives the linker takes what is asked for. */
static bool build_library(struct tgc *t, const struct options *o, const struct model *m,
                          const char *const *file, int n, struct opened *all)
{
    const struct schedule *s = m->schedule;
    struct held *held;
    const struct host_call *h;
    const char *dir = directory_make(t, &held), **flag = NULL;
    int nflag = 0;
    size_t cap = 0;
    if (!dir || !write_header(t, o, m, dir))
        return false;
    VEC_PUSH(t, flag, nflag, cap, "-pthread");
    VEC_PUSH(t, flag, nflag, cap, mem_printf(t, "-I%s", dir));
    for (int step = 0; (h = schedule_next_external(s, &step));)
        VEC_PUSH(t, flag, nflag, cap, mem_printf(t, "-Wl,-u,%s", h->external->symbol));
    const char **library = mem_array(t, (size_t)n + 1, sizeof *library);
    for (int i = 1; i < n; i++)
        library[i - 1] = file[i];
    library[n - 1] = "-lm";
    struct compile_request r = {.kind = BINARY_SHARED,
                                .source = file[0],
                                .temporary = dir,
                                .out_path = mem_printf(t, "%s/link.so", dir),
                                .subject = file[0],
                                .flags = flag,
                                .nflag = nflag,
                                .library = library,
                                .nlibrary = n};
    bool ok = compile_c(t, &r) && open_library(t, all, r.out_path, file[0]);
    held_release(held);
    return ok;
}

static bool has_function(const struct opened *all, const char *symbol)
{
    for (int i = 0; i < all->n; i++)
        if (dlsym(all->handle[i], symbol))
            return true;
    return false;
}

bool externals_link(struct tgc *t, const struct options *o, const struct model *m)
{
    const struct schedule *s = m->schedule;
    struct opened all = {0};
    const struct host_call *h;
    int n = 0, step = 0;
    if (!schedule_next_external(s, &step))
        return true;
    const char *const *path = externals_files(t, o);
    const char **file = mem_array(t, (size_t)o->nlink + 1, sizeof *file);
    if (!path)
        return false;
    for (int i = 0; i < o->nlink; i++) {
        if (!is_shared(path[i]))
            file[n++] = path[i];
        else if (!open_library(t, &all, path[i], o->link[i]))
            return false;
    }
    if (n && !build_library(t, o, m, file, n, &all))
        return false;
    bool ok = true;
    for (step = 0; (h = schedule_next_external(s, &step));)
        if (!has_function(&all, h->external->symbol))
            ok = diag_error(t, &(struct place){.file = o->model},
                            "the operator '%s' is the C function %s(), which %s; give what has it: "
                            "%s FILE.c (or .o, .a, .so)",
                            h->external->name, h->external->symbol,
                            o->nlink ? "no file of --link defines" : "is not in this program",
                            option_spelling(OPTION_LINK));
    return ok;
}
