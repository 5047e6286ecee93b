/* api.c - libLLVM, opened at run time: the newest of the versions that are known. */
#include "backends/llvm/emit.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { NEWEST = 19, OLDEST = 14 };
/* Addresses that the largest of them and what it needs take when they are loaded, rounded up. */
enum { LOADED_MB = 192 };

/* Debian's names for version 19; its packages' others follow the same pattern. */
static void *open_version(struct tgc *t, int version)
{
    static const char *const pattern[] = {"libLLVM.so.%d.1", "libLLVM-%d.so.1", "libLLVM-%d.so",
                                          "libLLVM.so.%d"};
    for (size_t i = 0; i < sizeof pattern / sizeof *pattern; i++) {
        const char *at = strchr(pattern[i], '%');
        const char *name = mem_printf(t, "%.*s%d%s", (int)(at - pattern[i]), pattern[i], version,
                                      at + 2);
        /* it registers functions for the ends of threads and of the process: it stays; lazily, as
         * a process needs a small part of its symbols */
        void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
        if (library)
            return library;
    }
    return NULL;
}

/* TGC_LLVM=15 asks for a version. */
static void *find_library(struct tgc *t, int *version)
{
    const char *wanted = getenv("TGC_LLVM");
    int only = wanted ? atoi(wanted) : 0;
    for (*version = NEWEST; *version >= OLDEST; --*version) {
        void *library = only && only != *version ? NULL : open_version(t, *version);
        if (library)
            return library;
    }
    return NULL;
}

static const char *bind_functions(struct llvm *l)
{
    static const struct { const char *name; size_t offset; } table[] = {
#define API(result, name, parameters) {"LLVM" #name, offsetof(struct llvm, name)},
#include "backends/llvm/api.def"
#undef API
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        void *function = dlsym(l->library, table[i].name);
        if (!function)
            return table[i].name;
        memcpy((char *)l + table[i].offset, &function, sizeof function);
    }
    return NULL;
}

/* Asked for before it is loaded: what the loader says of memory that ends is not what it says of a
 * library that is not there. */
static bool has_room(void)
{
    size_t nbytes = (size_t)LOADED_MB << 20;
    void *room = mmap(NULL, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return room != MAP_FAILED && munmap(room, nbytes) == 0;
}

struct llvm *llvm_load(struct tgc *t)
{
    struct llvm *l = MEM_NEW(t, struct llvm);
    l->t = t;
    if (!has_room()) {
        diag_error(t, NULL,
                   "out of memory: libLLVM takes %d MB of addresses, more than the process's limit "
                   "leaves (ulimit -v)",
                   LOADED_MB);
        return NULL;
    }
    l->library = find_library(t, &l->version);
    if (!l->library) {
        diag_error(t, NULL,
                   "libLLVM is not installed here, of version %d to %d (Debian: apt-get install "
                   "libllvm%d); without it --target=c runs the model by the C compiler",
                   OLDEST, NEWEST, NEWEST);
        return NULL;
    }
    const char *missing = bind_functions(l);
    if (missing) {
        diag_error(t, NULL, "libLLVM %d has no function %s", l->version, missing);
        return NULL;
    }
    return l;
}

const char *llvm_file(const struct llvm *l)
{
    Dl_info info;
    void *inside;
    memcpy(&inside, &l->ContextCreate, sizeof inside);
    return dladdr(inside, &info) ? info.dli_fname : NULL;
}
