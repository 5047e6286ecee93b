/* SPDX-License-Identifier: 0BSD */
/* build.c - kernels' text to code that runs here: clang compiles it with calls before each access,
 * ld links it to this library, which is what it calls.
 *
 *      KEY.cl     the text, unmodified
 *      KEY.all    #include "KEY.cl", and a function for each kernel that calls it
 *      KEY.so     kept, for the next build of this text
 *
 * Where TGC_EMULATOR_OBJECT names a file, the kernels are in that object, made by the test from
 * LLVM's text of them; of their own text only the heads count then.
 */
#define _GNU_SOURCE
#include "emulator.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH = 4096 - 64 };
extern char **environ;

/* ---------------------------------------------------------------------------------------- files */

void text_add(struct text *t, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    char *more = NULL;
    const int n = vasprintf(&more, format, list);
    va_end(list);
    if (n < 0)
        return;
    if (t->n + (size_t)n + 1 > t->size) {
        const size_t size = 2 * (t->n + (size_t)n + 1);
        char *s = realloc(t->s, size);
        if (s) {
            t->s = s;
            t->size = size;
        }
    }
    if (t->n + (size_t)n + 1 <= t->size) {
        memcpy(t->s + t->n, more, (size_t)n + 1);
        t->n += (size_t)n;
    }
    free(more);
}

static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    struct stat stat;
    if (!file || fstat(fileno(file), &stat) != 0) {
        if (file)
            fclose(file);
        return NULL;
    }
    char *s = malloc((size_t)stat.st_size + 1);
    *size = s ? fread(s, 1, (size_t)stat.st_size, file) : 0;
    if (s)
        s[*size] = '\0';
    fclose(file);
    return s;
}

/* Whole or not at all: other processes may read it. */
static bool write_file(const char *path, const void *s, size_t n)
{
    char part[PATH + 64];
    snprintf(part, sizeof part, "%s.%ld", path, (long)getpid());
    FILE *file = fopen(part, "wb");
    bool done = file && fwrite(s, 1, n, file) == n;
    if (file)
        done &= fclose(file) == 0;
    return done && rename(part, path) == 0;
}

/* Where this library is, and where modules are kept. */
static const char *library_path(void)
{
    Dl_info info;
    return dladdr((const void *)(uintptr_t)build_module, &info) ? info.dli_fname : "libOpenCL.so.1";
}

static void folder(char *path)
{
    const char *said = getenv("TGC_EMULATOR_CACHE"), *library = library_path();
    const char *slash = strrchr(library, '/');
    if (said)
        snprintf(path, PATH, "%s", said);
    else
        snprintf(path, PATH, "%.*s/kernels", slash ? (int)(slash - library) : 1,
                 slash ? library : ".");
    mkdir(path, 0777);
}

static uint64_t hash(uint64_t h, const char *s)
{
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3;
    return (h ^ 0xff) * 0x100000001b3;
}

/* ------------------------------------------------------------------------------------- programs */

/* Runs a program; what it says is in the file `said`. */
static bool run(const char *const *words, const char *said)
{
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, said, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    const int error = posix_spawnp(&child, words[0], &actions, NULL, (char *const *)words, environ);
    posix_spawn_file_actions_destroy(&actions);
    while (error == 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return error == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The object that has the kernels; NULL: their text has. */
static const char *given_object(void)
{
    const char *path = getenv("TGC_EMULATOR_OBJECT");
    return path && *path ? path : NULL;
}

/* Of a device that contracts. Without optimization clang has no values in which it could. */
static const char *const contracting[] = {"-O1", "-Xclang", "-ffp-contract=fast-honor-pragmas",
#ifdef __x86_64__
                                          "-mfma",
#endif
                                          NULL};

static bool compile(const struct language *language, const char *key, const char *const *flags)
{
    enum { MOST = 64 };
    char source[PATH + 64], object[PATH + 64], made[PATH + 64], shared[PATH + 64], said[PATH + 64];
    char common[PATH + 64], header[PATH + 64];
    snprintf(source, sizeof source, "%s.all", key);
    snprintf(object, sizeof object, "%s.%ld.o", key, (long)getpid());
    snprintf(made, sizeof made, "%s.%ld.so", key, (long)getpid());
    snprintf(shared, sizeof shared, "%s.so", key);
    snprintf(said, sizeof said, "%s.log", key);
    snprintf(common, sizeof common, "@%s/%s.flags", TGC_EMULATOR_SOURCES, language->file);
    snprintf(header, sizeof header, "%s/%s.h", TGC_EMULATOR_SOURCES, language->file);
    const char *clang = getenv("TGC_EMULATOR_CLANG");
    const char *words[MOST] = {
        clang ? clang : "clang", common, "-include", header, "-c", "-o", object};
    int n = 7;
    for (int i = 0; flags[i] && n < MOST - 2; i++)
        words[n++] = flags[i];
    for (int i = 0; contracting[i] && device_facts()->contracts && n < MOST - 2; i++)
        words[n++] = contracting[i];
    words[n] = source;
    const char *given = given_object();
    const char *const link[] = {"ld", "-shared", "-o", made, object, library_path(), given, NULL};
    const bool done = run(words, said) && run(link, said) && rename(made, shared) == 0;
    unlink(object);
    return done;
}

/* ------------------------------------------------------------------------------------- modules */

/* Of a type that kernels' arrays have. */
static size_t type_nbytes(const char *name)
{
    static const struct { const char *name; size_t nbytes; } type[] = {
        {"unsigned char", 1}, {"bool", 1},     {"int8_t", 1},  {"uint8_t", 1},
        {"int16_t", 2},       {"uint16_t", 2}, {"int32_t", 4}, {"uint32_t", 4},
        {"float", 4},         {"int64_t", 8},  {"uint64_t", 8}, {"double", 8}};
    for (size_t i = 0; i < sizeof type / sizeof *type; i++)
        if (strcmp(type[i].name, name) == 0)
            return type[i].nbytes;
    report("BLOCK_ARRAY(%s, ...) is of a type that the emulator does not know", name);
    return 0;
}

/* The kernel's arrays in the memory that its launches name, by its text: BLOCK_ARRAY(type, name,
 * count, at). Each has its bounds there, and shares no byte with another one. false: it has not, or
 * no memory. */
static bool place_arrays(struct module *m, const char *kernel, const char *body)
{
    const char *end = strstr(body, "\n}\n");
    const int first = m->nlocal;
    for (const char *s = body; (s = strstr(s, "BLOCK_ARRAY(")) && s < end; s++) {
        struct local_array found;
        char type[64];
        size_t count = 0, at = 0;
        snprintf(found.kernel, sizeof found.kernel, "%s", kernel);
        int read = sscanf(s, "BLOCK_ARRAY(%63[^,], %255[^,], %zu, %zu)", type, found.name, &count,
                          &at);
        if (read != 4)
            return false;
        const size_t nbytes = count * type_nbytes(type);
        for (int i = first; i < m->nlocal; i++) {
            const size_t other = (size_t)(m->local[i].memory->at - m->placed);
            if (at < other + m->local[i].memory->nbytes && other < at + nbytes) {
                report("%s: arrays '%s' and '%s' share bytes", kernel, m->local[i].name,
                       found.name);
                return false;
            }
        }
        if (nbytes == 0 || at + nbytes > m->nplaced ||
            !module_add_local(m, &found, m->placed + at, nbytes))
            return false;
    }
    return true;
}

/* Bytes of its arrays: of those in the launch's memory, up to the last one's end. */
static size_t local_nbytes(const struct module *m, const char *kernel)
{
    size_t all = 0, end = 0;
    for (int i = 0; i < m->nlocal; i++) {
        const struct memory *a = m->local[i].memory;
        const bool is_placed =
            m->placed && a->at >= m->placed && a->at < m->placed + m->nplaced;
        if (strcmp(m->local[i].kernel, kernel) != 0)
            continue;
        const size_t behind = is_placed ? (size_t)(a->at - m->placed) + a->nbytes : 0;
        all += is_placed ? 0 : a->nbytes;
        end = behind > end ? behind : end;
    }
    return all + end;
}

static bool find_kernels(struct module *m, const struct language *language, const char *text)
{
    struct signature s;
    while (signature_next(language->word, &text, &s)) {
        struct kernel_code *more = realloc(m->kernel, sizeof *more * (size_t)(m->nkernel + 1));
        if (!more)
            return false;
        m->kernel = more;
        char name[MAX_NAME + 16];
        struct kernel_code *k = &more[m->nkernel];
        memset(k, 0, sizeof *k);
        k->signature = s;
        snprintf(name, sizeof name, "%s_call", s.name);
        *(void **)(void *)&k->call = dlsym(m->library, name);
        snprintf(name, sizeof name, "%s_nbytes", s.name);
        k->nbytes = dlsym(m->library, name);
        if (m->placed && !place_arrays(m, s.name, text))
            return false;
        k->local = local_nbytes(m, s.name);
        if (!k->call || !k->nbytes)
            return false;
        m->nkernel++;
    }
    return true;
}

static struct module *load(const struct language *language, const char *key, const char *text,
                           char *log, size_t size)
{
    struct module *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    snprintf(m->path, sizeof m->path, "%s.so", key);
    m->library = dlopen(m->path, RTLD_NOW | RTLD_LOCAL);
    if (m->library && elf_read(m) && find_kernels(m, language, text))
        return m;
    const char *why = m->library ? "error: a kernel cannot be called" : dlerror();
    snprintf(log, size, "%s", why);
    module_close(m);
    return NULL;
}

void module_close(struct module *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->nlocal; i++) {
        memory_release(m->local[i].memory);
        free(m->local[i].memory);
    }
    free(m->local);
    free(m->kernel);
    if (m->library)
        dlclose(m->library);
    free(m);
}

/* The file that is compiled. */
static bool write_source(const struct language *language, const char *key, const char *text)
{
    struct text all = {NULL, 0, 0};
    struct signature s;
    if (given_object())
        for (const char *at = text; signature_next(language->word, &at, &s);) {
            text_add(&all, "extern \"C\" void %s(", s.name);
            for (int i = 0; i < s.n; i++)
                text_add(&all, "%s%s", i ? ", " : "", s.parameter[i].type);
            text_add(&all, ");\n");
        }
    else if (language->linkage)
        text_add(&all, "%s{\n#include \"%s.cl\"\n}\n", language->linkage, key);
    else
        text_add(&all, "#include \"%s.cl\"\n", key);
    for (const char *at = text; signature_next(language->word, &at, &s);)
        language->wrap(&s, &all);
    char path[PATH + 64];
    snprintf(path, sizeof path, "%s.all", key);
    const bool done = all.s && write_file(path, all.s, all.n);
    free(all.s);
    return done;
}

static void make_key(char *key, const char *text, const char *const *flags)
{
    const char *clang = getenv("TGC_EMULATOR_CLANG");
    uint64_t a = hash(hash(0xcbf29ce484222325, text), clang ? clang : ""), b = hash(1, text);
    size_t n = 0;
    char *object = given_object() ? read_file(given_object(), &n) : NULL;
    for (size_t i = 0; object && i < n; i++)
        a = (a ^ (unsigned char)object[i]) * 0x100000001b3;
    free(object);
    for (int i = 0; flags[i]; i++)
        a = hash(a, flags[i]);
    a = device_facts()->contracts ? hash(a, "contracts") : a;
    char path[PATH];
    folder(path);
    snprintf(key, PATH, "%.3900s/%016llx%016llx", path, (unsigned long long)a,
             (unsigned long long)b);
}

struct module *build_module(const struct language *language, const char *text,
                            const char *const *flags, char *log, size_t size)
{
    char key[PATH], path[PATH + 64];
    make_key(key, text, flags);
    *log = '\0';
    snprintf(path, sizeof path, "%s.so", key);
    if (access(path, R_OK) != 0) {
        snprintf(path, sizeof path, "%s.cl", key);
        if (!write_file(path, text, strlen(text)) || !write_source(language, key, text)) {
            snprintf(log, size, "%s cannot be written", path);
            return NULL;
        }
        if (!compile(language, key, flags)) {
            size_t n;
            snprintf(path, sizeof path, "%s.log", key);
            char *said = read_file(path, &n);
            snprintf(log, size, "%s", said ? said : "the compiler cannot be started");
            free(said);
            return NULL;
        }
    }
    return load(language, key, text, log, size);
}

/* ------------------------------------------------------------------------------------- binaries */

/* What stands before a binary: whose it is. */
static void write_head(struct text *out)
{
    const struct device_facts *d = device_facts();
    text_add(out, "emulator %s %s\n", d->name, d->version);
}

unsigned char *build_binary(const struct module *m, size_t *nbytes)
{
    char path[sizeof m->path];
    size_t ntext = 0, ncode = 0;
    snprintf(path, sizeof path, "%.*s.cl", (int)strlen(m->path) - 3, m->path);
    char *text = read_file(path, &ntext), *code = read_file(m->path, &ncode);
    struct text head = {NULL, 0, 0};
    write_head(&head);
    text_add(&head, "%zu %zu\n", ntext, ncode);
    unsigned char *all = text && code && head.s ? malloc(head.n + ntext + ncode) : NULL;
    if (all) {
        memcpy(all, head.s, head.n);
        memcpy(all + head.n, text, ntext);
        memcpy(all + head.n + ntext, code, ncode);
        *nbytes = head.n + ntext + ncode;
    }
    free(head.s);
    free(text);
    free(code);
    return all;
}

struct module *build_from_binary(const struct language *language, const unsigned char *binary,
                                 size_t nbytes)
{
    struct text head = {NULL, 0, 0};
    char sizes[64], key[PATH], path[PATH + 64], log[PATH];
    size_t ntext = 0, ncode = 0;
    int n = 0;
    write_head(&head);
    const bool ours =
        head.s && nbytes > head.n + sizeof sizes && memcmp(binary, head.s, head.n) == 0;
    const size_t at = head.n;
    free(head.s);
    if (!ours)
        return NULL;
    memcpy(sizes, binary + at, sizeof sizes - 1);
    sizes[sizeof sizes - 1] = '\0';
    if (sscanf(sizes, "%zu %zu\n%n", &ntext, &ncode, &n) != 2 || ntext > nbytes || ncode > nbytes ||
        at + (size_t)n + ntext + ncode != nbytes)
        return NULL;
    char *text = strndup((const char *)binary + at + n, ntext);
    if (!text)
        return NULL;
    const char *const flags[] = {"binary", NULL};
    make_key(key, text, flags);
    snprintf(path, sizeof path, "%s.cl", key);
    bool done = write_file(path, text, ntext);
    snprintf(path, sizeof path, "%s.so", key);
    done = done && write_file(path, binary + at + n + ntext, ncode);
    struct module *m = done ? load(language, key, text, log, sizeof log) : NULL;
    free(text);
    return m;
}
