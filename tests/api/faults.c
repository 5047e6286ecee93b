/* faults.c - every allocation of a compile fails once, and everything is freed.
 *
 *      faults MODEL KIND [DENSITY]
 *
 * KIND c, tg, json, ...: a file of that kind. KIND cuda, amd, llvm: what --target=KIND writes, also
 * the allocations of the process that compiles. KIND cancel: instead of that, opening the model by
 * LLVM is cancelled wherever it can be. KIND open: it is opened, KIND kept: from a cache that has
 * it. DENSITY d: after the first d, the k-th allocation and then the one k/d further on.
 *
 * The allocator of the C library is called by its inner names (glibc), so that this program's can
 * stand in front of it: it counts the blocks that are there, and fails the call whose turn it is,
 * or all from there on.
 */
#include "check.h"

#include <tgc_target.h>

#include <errno.h>
#include <limits.h>
#include <sys/mman.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void __libc_free(void *p);

static long live, fails_at = -1;
static int goes_on;
/* of this process and of those that it starts */
static long first_calls, *calls = &first_calls;

static int fails(void)
{
    long k = __atomic_add_fetch(calls, 1, __ATOMIC_RELAXED);
    return fails_at > 0 && (goes_on ? k >= fails_at : k == fails_at);
}

static void count(int blocks) { __atomic_add_fetch(&live, blocks, __ATOMIC_RELAXED); }

void *malloc(size_t n)
{
    void *p = fails() ? NULL : __libc_malloc(n);
    count(p != NULL);
    return p;
}

void *calloc(size_t n, size_t size)
{
    void *p = fails() ? NULL : __libc_calloc(n, size);
    count(p != NULL);
    return p;
}

void *realloc(void *old, size_t n)
{
    void *p = fails() ? NULL : __libc_realloc(old, n);
    count(p && !old);
    return p;
}

void *aligned_alloc(size_t align, size_t n)
{
    void *p = fails() ? NULL : __libc_memalign(align, n);
    count(p != NULL);
    return p;
}

int posix_memalign(void **p, size_t align, size_t n)
{
    *p = aligned_alloc(align, n);
    return *p ? 0 : ENOMEM;
}

void free(void *p)
{
    count(-(p != NULL));
    __libc_free(p);
}

/* A model as a program for another target, with its weights: a call without a
 * compiler for messages. */
static tgc_status open_program(tgc_compiler *c)
{
    static const tgc_target any = {TGC_TARGET_VERSION, "any", NULL, NULL};
    const tgc_program *p;
    tgc_status status = tgc_program_open(c, &any, &p);
    CHECK(status == TGC_OK || tgc_message_count(c) > 0);
    void *weights = status == TGC_OK ? __libc_malloc(p->weights_bytes) : NULL;
    if (status == TGC_OK)
        status = tgc_program_weights(p, weights);
    __libc_free(weights);
    tgc_program_free(p);
    return status;
}

static int has_target(const char *kind)
{
    return strcmp(kind, "cuda") == 0 || strcmp(kind, "amd") == 0 || strcmp(kind, "llvm") == 0;
}

static tgc_status use(const char *model, const char *kind)
{
    tgc_compiler *c = tgc_compiler_new();
    tgc_files *files = NULL;
    tgc_status status = c ? tgc_source_file(c, model) : TGC_NO_MEMORY;
    int is_program = strcmp(kind, "program") == 0;
    const int is_llvm = strcmp(kind, "llvm") == 0;
    const int is_target = has_target(kind);
    if (status == TGC_OK && is_target)
        status = tgc_set(c, "target", kind);
    else if (status == TGC_OK && !is_program)
        status = tgc_set(c, "cpu", "avx2");
    tgc_model *m = NULL;
    if (status == TGC_OK && is_program)
        status = open_program(c);
    else if (status == TGC_OK && (strcmp(kind, "open") == 0 || strcmp(kind, "kept") == 0))
        status = tgc_open(c, &m);
    else if (status == TGC_OK)
        status = strcmp(kind, "json") == 0 ? tgc_info_json(c, &(const char *){NULL})
                                           : tgc_compile_memory(c, is_llvm     ? "o"
                                                                 : is_target ? "c"
                                                                             : kind,
                                                              &files);
    if (c && status != TGC_OK && !is_program && tgc_message_count(c) == 0) {
        fprintf(stderr, "status %d without a message\n", (int)status);
        exit(1);
    }
    tgc_files_free(files);
    tgc_model_free(m);
    tgc_compiler_free(c);
    return status;
}

struct patience { long asked, limit; };

static int is_cancelled(void *user)
{
    struct patience *p = user;
    return ++p->asked > p->limit;
}

static void cancel_everywhere(const char *model)
{
    struct patience p = {0};
    for (tgc_status status = TGC_CANCELLED; status == TGC_CANCELLED; p.limit++) {
        tgc_compiler *c = tgc_compiler_new();
        tgc_model *m;
        p.asked = 0;
        CHECK(c && tgc_source_file(c, model) == TGC_OK);
        tgc_on_cancel(c, is_cancelled, &p);
        status = tgc_open(c, &m);
        CHECK(status == TGC_CANCELLED || status == TGC_OK);
        tgc_model_free(m);
        tgc_compiler_free(c);
    }
    CHECK(p.limit > 20);
}

static int cancel(const char *model)
{
    cancel_everywhere(model);
    long before = live;
    cancel_everywhere(model);
    const long left = live - before;             /* printf allocates, too */
    printf("%ld blocks are left\n", left);
    return left != 0;
}

int main(int argc, char **argv)
{
    long ndone = 0, nfailed = 0;
    CHECK(argc == 3 || argc == 4);
    const long density = argc == 4 ? atol(argv[3]) : LONG_MAX;
    calls = mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(calls != MAP_FAILED);
    if (strcmp(argv[2], "cancel") == 0)
        return cancel(argv[1]);
    CHECK(use(argv[1], argv[2]) == TGC_OK);
    long before = live, start = *calls;
    CHECK(use(argv[1], argv[2]) == TGC_OK && live == before);
    long n = *calls - start;
    for (goes_on = 0; goes_on < 2; goes_on++) {
        for (long k = 1; k <= n; k += 1 + k / density) {
            *calls = 0;
            fails_at = k;
            tgc_status status = use(argv[1], argv[2]);
            fails_at = -1;
            ndone += status == TGC_OK;
            nfailed += status != TGC_OK;
            if (status != TGC_OK && status != TGC_NO_MEMORY && status != TGC_FAILED) {
                fprintf(stderr, "allocation %ld of %ld: status %d\n", k, n, (int)status);
                return 1;
            }
            if (live != before) {
                fprintf(stderr, "allocation %ld of %ld: %ld blocks are left\n", k, n,
                        live - before);
                return 1;
            }
        }
    }
    printf("%ld allocations: %ld calls failed, %ld did without\n", n, nfailed, ndone);
    return nfailed == 0;
}
