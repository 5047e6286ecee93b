/* nvrtc.c - compiles CUDA C to PTX and machine code by NVRTC, NVIDIA's compiler as a library. It
 * opens TGC_NVRTC's file, the system's library, or that of the CUDA toolkit. Its functions'
 * prototypes are here, so tgc needs no header of it. No device is needed. NVRTC aborts when memory
 * runs out, or asks for more and more, so a process of its own calls it (backends/child.c), whose
 * memory is limited:
 *
 *      tgc                                     the process
 *                                              opens the library
 *      nvrtc_open()     <-- answer, text --    its version, or why there is none
 *      nvrtc_compile()  -- request, text -->   create, compile
 *                       <-- answer, bytes --   the image, or the compiler's messages
 */
#include "backends/cuda/cuda.h"
#include "backends/child.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An nvrtcResult is an int, 0 for success; an nvrtcProgram is a pointer. bind() fills the
 * fields in this order. */
struct library {
    int (*get_version)(int *major, int *minor);
    int (*create)(void **program, const char *text, const char *name, int nheader,
                  const char *const *header, const char *const *include);
    int (*compile)(void *program, int noption, const char *const *option);
    int (*get_log_size)(void *program, size_t *size);
    int (*get_log)(void *program, char *log);
    int (*get_ptx_size)(void *program, size_t *size);
    int (*get_ptx)(void *program, char *ptx);
    int (*get_cubin_size)(void *program, size_t *size);
    int (*get_cubin)(void *program, char *cubin);
    int (*destroy)(void **program);
    void *library;
};

/* A request; the text and its name follow. */
struct request { int number, is_exact, is_ptx; size_t name, text; };
/* An answer, before its nbytes bytes. */
enum outcome { DONE, ABSENT, UNFIT, REFUSED, NO_CHILD_MEMORY };
struct answer { enum outcome outcome; size_t nbytes; };

/* Addresses that NVRTC 13 takes for small kernels (140 MB), rounded up. */
enum { LEAST_MB = 256 };
struct nvrtc { struct tgc *t; struct child *child; const char *version; size_t limit; };

/* ------------------------------------------------------------------------------- in the process */

/* The first function that is missing; NULL: none is. */
static const char *bind(struct library *c)
{
    static const char *const name[] = {
        "nvrtcVersion", "nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcGetProgramLogSize",
        "nvrtcGetProgramLog", "nvrtcGetPTXSize", "nvrtcGetPTX", "nvrtcGetCUBINSize",
        "nvrtcGetCUBIN", "nvrtcDestroyProgram"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        void *function = dlsym(c->library, name[i]);
        if (!function)
            return name[i];
        memcpy((unsigned char *)c + i * sizeof function, &function, sizeof function);
    }
    return NULL;
}

const char *nvrtc_wanted(void)
{
    const char *wanted = getenv("TGC_NVRTC");
    return wanted && *wanted ? wanted : NULL;
}

/* The library is never closed: it keeps process-wide state that does not survive an
 * unload and reload. */
static void *open_library(void)
{
    static const char *const name[] = {
        "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so",
        "/usr/local/cuda/lib64/libnvrtc.so"};
    const char *wanted = nvrtc_wanted();
    if (wanted)
        return dlopen(wanted, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        void *library = dlopen(name[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (library)
            return library;
    }
    return NULL;
}

static void answer(int socket, enum outcome outcome, const void *bytes, size_t nbytes)
{
    const struct answer head = {outcome, nbytes};
    child_write(socket, &head, sizeof head);
    child_write(socket, bytes, nbytes);
}

static void say(int socket, enum outcome outcome, const char *words)
{
    answer(socket, outcome, words, strlen(words));
}

/* Answers with the version; false: no library is usable. */
static bool begin(struct library *c, int socket)
{
    char words[100];
    int major = 0, minor = 0;
    c->library = open_library();
    const char *missing = c->library ? bind(c) : NULL;
    const char *why = c->library ? NULL : dlerror();
    if (!c->library) {
        say(socket, ABSENT, why ? why : "");
        return false;
    }
    if (missing) {
        snprintf(words, sizeof words, "has no %s", missing);
        say(socket, UNFIT, words);
        return false;
    }
    const bool fits =
        c->get_version(&major, &minor) == 0 && (major > 11 || (major == 11 && minor >= 2));
    snprintf(words, sizeof words, fits ? "%d.%d" : "is version %d.%d", major, minor);
    say(socket, fits ? DONE : UNFIT, words);
    return fits;
}

/* Answers with the compiler's result or messages, from two of its functions: one for the size, one
 * for the bytes. */
static void pass(int socket, void *program, enum outcome outcome, int (*get_size)(void *, size_t *),
                 int (*get_bytes)(void *, char *), bool is_text)
{
    size_t n = 0;
    const bool any = get_size(program, &n) == 0 && n > 0;
    char *bytes = any ? calloc(n + 1, 1) : NULL;
    if (any && !bytes)
        answer(socket, NO_CHILD_MEMORY, "", 0);
    else if (!any || get_bytes(program, bytes) != 0)
        answer(socket, REFUSED, "", 0);
    else
        answer(socket, outcome, bytes, is_text ? strlen(bytes) : n);
    free(bytes);
}

static void compile(struct library *c, int socket, const struct request *r, const char *name,
                    const char *text)
{
    char arch[60];
    /* legalize.c decides what is rounded once: see there. */
    const char *const option[] = {arch, "--std=c++17", "--disable-warnings", "--fmad=false"};
    void *program = NULL;
    snprintf(arch, sizeof arch, "--gpu-architecture=%s_%d%s", r->is_ptx ? "compute" : "sm",
             r->number, r->is_exact ? "a" : "");
    if (c->create(&program, text, name, 0, NULL, NULL) != 0) {
        say(socket, REFUSED, "it does not take their text");
        return;
    }
    if (c->compile(program, sizeof option / sizeof *option, option) != 0)
        pass(socket, program, REFUSED, c->get_log_size, c->get_log, true);
    else if (r->is_ptx)
        pass(socket, program, DONE, c->get_ptx_size, c->get_ptx, true);
    else
        pass(socket, program, DONE, c->get_cubin_size, c->get_cubin, false);
    c->destroy(&program);
}

static void serve(int socket, void *user)
{
    struct library c = {0};
    (void)user;
    for (bool goes_on = begin(&c, socket); goes_on;) {
        struct request r;
        child_read(socket, &r, sizeof r);
        char *words = malloc(r.name + r.text + 2);
        if (!words) {
            answer(socket, NO_CHILD_MEMORY, "", 0);
            return;
        }
        memset(words, 0, r.name + r.text + 2);
        child_read(socket, words, r.name);
        child_read(socket, words + r.name + 1, r.text);
        compile(&c, socket, &r, words, words + r.name + 1);
        free(words);
    }
}

/* --------------------------------------------------------------------------------------- in tgc */

/* Receives the answer's bytes, terminated by a 0; NULL: the process has ended. */
static char *hear(struct nvrtc *c, struct answer *a)
{
    if (!child_hear(c->child, a, sizeof *a) || a->nbytes == SIZE_MAX)
        return NULL;
    char *bytes = mem_array(c->t, a->nbytes + 1, 1);
    return child_hear(c->child, bytes, a->nbytes) ? bytes : NULL;
}

static struct nvrtc *open_quietly(struct tgc *t, struct answer *a, const char **words)
{
    struct nvrtc *c = MEM_NEW(t, struct nvrtc);
    *a = (struct answer){UNFIT, 0};
    *words = NULL;
    c->t = t;
    c->limit = t->mem_limit > SIZE_MAX / 4 ? 0 : t->mem_limit + ((size_t)LEAST_MB << 20);
    c->child =
        child_start(t, &(struct child_work){.who = "NVRTC", .serve = serve, .limit = c->limit});
    if (!c->child)
        return NULL;
    const char *said = hear(c, a);
    if (!said) {
        a->outcome = UNFIT;
        *words =
            mem_printf(t, "does not open: %s, as where it gets no memory", child_why(c->child));
    } else
        *words = said;
    if (said && a->outcome == DONE) {
        c->version = said;
        return c;
    }
    child_end(c->child);
    return NULL;
}

const char *cuda_found(struct tgc *t)
{
    struct answer a;
    const char *words;
    struct nvrtc *c = open_quietly(t, &a, &words);
    if (!c)
        return NULL;
    nvrtc_close(c);
    return c->version;
}

struct nvrtc *nvrtc_open(struct tgc *t)
{
    struct answer a;
    const char *words, *wanted = nvrtc_wanted();
    struct nvrtc *c = open_quietly(t, &a, &words);
    if (c || !words)
        return c;
    if (a.outcome != ABSENT)
        diag_error(t, NULL,
                   "%s%s %s: --target=cuda needs NVRTC 11.2 or newer, or TGC_NVRTC=none, by which "
                   "libLLVM compiles",
                   wanted ? "TGC_NVRTC=" : "", wanted ? wanted : "libnvrtc.so", words);
    else if (wanted)
        diag_error(t, NULL, "TGC_NVRTC=%s: %s", wanted, words);
    else
        diag_error(t, NULL,
                   "--target=cuda needs NVRTC, NVIDIA's compiler as a library, or libLLVM, and "
                   "neither is installed: "
                   "Debian's package is libnvrtc11.2 (non-free), PyPI's is nvidia-cuda-nvrtc-cu12, "
                   "whose file "
                   "nvidia/cuda_nvrtc/lib/libnvrtc.so.12 TGC_NVRTC names; libLLVM is Debian's "
                   "libllvm19; -o NAME.cu needs no compiler");
    return NULL;
}

void nvrtc_close(struct nvrtc *c) { child_end(c->child); }

const char *nvrtc_version(const struct nvrtc *c) { return c->version; }

static bool lacks_memory(struct nvrtc *c, const struct cuda_image *image, const char *why)
{
    const char *own = c->limit ? mem_printf(c->t, "it may take %zu MB, raise --max-memory; or ",
                                            c->limit >> 20)
                               : "";
    return diag_error(c->t, NULL,
                      "NVRTC %s does not end compiling the kernels for %s: %s, as where it gets no "
                      "memory: %sfree some, or raise the process's limit (ulimit -v)",
                      c->version, image->arch.text, why, own);
}

bool nvrtc_compile(struct nvrtc *c, const char *text, const char *name, struct cuda_image *image)
{
    enum { MOST = 2000 };
    const struct request r = {image->arch.number, image->arch.exact, image->is_ptx, strlen(name),
                              strlen(text)};
    struct answer a = {DONE, 0};
    const char *bytes = child_ask(c->child, &r, sizeof r) && child_ask(c->child, name, r.name) &&
                                child_ask(c->child, text, r.text)
                            ? hear(c, &a)
                            : NULL;
    if (!bytes)
        return lacks_memory(c, image, child_why(c->child));
    if (a.outcome == NO_CHILD_MEMORY)
        return lacks_memory(c, image, "it has none for its result");
    if (a.outcome != DONE || a.nbytes == 0)
        return diag_error(c->t, NULL, "NVRTC %s does not compile the kernels for %s: %.*s",
                          c->version, image->arch.text, MOST,
                          *bytes ? bytes : "it does not say why");
    image->code = (const unsigned char *)bytes;
    image->nbytes = a.nbytes;
    return true;
}
