/* nvrtc.c - CUDA C to PTX and to machine code by NVRTC, NVIDIA's compiler as a library, which is
 * opened when it is asked for: TGC_NVRTC's file, the system's, or that of the CUDA toolkit. Its
 * functions' prototypes are here, so that tgc needs no header of it. No device is needed.
 */
#include "backends/cuda/cuda.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* An nvrtcResult is an int, 0 for success, an nvrtcProgram a pointer. The order is that of bind(). */
struct nvrtc {
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
    struct tgc *t;
    void *library;
    const char *version;
};

/* The first function that is missing; NULL: none is. */
static const char *bind(struct nvrtc *c)
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

/* It keeps state of the process, and does not survive to be unloaded and loaded again: it stays. */
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

static struct nvrtc *open_quietly(struct tgc *t, const char **why)
{
    struct nvrtc *c = MEM_NEW(t, struct nvrtc);
    int major = 0, minor = 0;
    c->t = t;
    c->library = open_library();
    const char *missing = c->library ? bind(c) : NULL;
    *why = missing ? mem_printf(t, "has no %s", missing) : NULL;
    if (!c->library || missing)
        return NULL;
    if (c->get_version(&major, &minor) != 0 || major < 11 || (major == 11 && minor < 2)) {
        *why = mem_printf(t, "is version %d.%d", major, minor);
        dlclose(c->library);
        return NULL;
    }
    c->version = mem_printf(t, "%d.%d", major, minor);
    return c;
}

const char *cuda_found(struct tgc *t)
{
    const char *why;
    struct nvrtc *c = open_quietly(t, &why);
    if (!c)
        return NULL;
    nvrtc_close(c);
    return c->version;
}

struct nvrtc *nvrtc_open(struct tgc *t)
{
    const char *why, *wanted = nvrtc_wanted();
    struct nvrtc *c = open_quietly(t, &why);
    if (c)
        return c;
    if (why)
        diag_error(t, NULL, "%s%s %s: --target=cuda needs NVRTC 11.2 or newer, or TGC_NVRTC=none, by which libLLVM compiles",
                   wanted ? "TGC_NVRTC=" : "", wanted ? wanted : "libnvrtc.so", why);
    else if (wanted)
        diag_error(t, NULL, "TGC_NVRTC=%s: %s", wanted, dlerror());
    else
        diag_error(t, NULL,
                   "--target=cuda needs NVRTC, NVIDIA's compiler as a library, or libLLVM, and neither is installed: "
                   "Debian's package is libnvrtc11.2 (non-free), PyPI's is nvidia-cuda-nvrtc-cu12, whose file "
                   "nvidia/cuda_nvrtc/lib/libnvrtc.so.12 TGC_NVRTC names; libLLVM is Debian's libllvm19; -o NAME.cu needs no compiler");
    return NULL;
}

void nvrtc_close(struct nvrtc *c) { dlclose(c->library); }

const char *nvrtc_version(const struct nvrtc *c) { return c->version; }

/* What the compiler has said: its first lines. */
static bool complain(struct nvrtc *c, void *program, const struct cuda_image *image)
{
    enum { MOST = 2000 };
    size_t n = 0;
    char *log = c->get_log_size(program, &n) == 0 && n > 0 ? mem_array(c->t, n + 1, 1) : NULL;
    if (log && c->get_log(program, log) != 0)
        log = NULL;
    return diag_error(c->t, NULL, "NVRTC %s does not compile the kernels for %s: %.*s", c->version,
                      image->arch.text, MOST, log && *log ? log : "it does not say why");
}

static bool read_image(struct nvrtc *c, void *program, struct cuda_image *image)
{
    size_t n = 0;
    if ((image->is_ptx ? c->get_ptx_size : c->get_cubin_size)(program, &n) != 0 || n == 0)
        return false;
    char *code = mem_array(c->t, n + 1, 1);
    if ((image->is_ptx ? c->get_ptx : c->get_cubin)(program, code) != 0)
        return false;
    image->code = (const unsigned char *)code;
    image->nbytes = image->is_ptx ? strlen(code) : n;
    return true;
}

bool nvrtc_compile(struct nvrtc *c, const char *text, const char *name, struct cuda_image *image)
{
    const char *arch = mem_printf(c->t, "--gpu-architecture=%s_%d%s", image->is_ptx ? "compute" : "sm",
                                  image->arch.number, image->arch.exact ? "a" : "");
    /* legalize.c decides what is rounded once: see there. */
    const char *const option[] = {arch, "--std=c++17", "--disable-warnings", "--fmad=false"};
    void *program = NULL;
    if (c->create(&program, text, name, 0, NULL, NULL) != 0)
        return diag_error(c->t, NULL, "NVRTC %s does not take the kernels' text", c->version);
    bool done = c->compile(program, sizeof option / sizeof *option, option) == 0 &&
                read_image(c, program, image);
    if (!done)
        complain(c, program, image);
    c->destroy(&program);
    return done;
}
