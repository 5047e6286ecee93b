/* cuda.c - the CUDA target: what backends/device/ needs to know of CUDA C. NVRTC compiles the
 * kernels here, to PTX and, for named architectures, to machine code. Without NVRTC, LLVM compiles
 * them to PTX. NAME.c holds each image, and gives the driver the one that fits its device.
 */
#include "backends/cuda/cuda.h"
#include "backends/llvm/llvm.h"

#include <stdlib.h>
#include <string.h>

/* The oldest architecture that PTX is written for, unless --cpu names another. It is the first with
 * bf16, asynchronous copies and warp reductions in one instruction. Older cards, of before 2020,
 * are dropped by NVRTC 13. */
enum { OLDEST = 80, MOST_IMAGES = 16 };

struct cuda_code { struct cuda_image image[MOST_IMAGES]; int n; const char *version; };

bool cuda_arch_read(const char *text, size_t n, struct cuda_arch *a, struct tgc *t)
{
    char *end;
    if (n < 5 || strncmp(text, "sm_", 3) != 0)
        return false;
    *a = (struct cuda_arch){.text = mem_printf(t, "%.*s", (int)n, text)};
    a->number = (int)strtol(a->text + 3, &end, 10);
    a->exact = *end == 'a';
    return a->number >= 50 && a->number < 1000 && !end[a->exact];
}

/* --------------------------------------------------------------------------------- the language */

static bool has_local(const struct kernel *k)
{
    for (int i = 0; i < k->nscratch; i++)
        if (k->scratch[i]->scratch.space == SPACE_SHARED)
            return true;
    return false;
}

/* Blocks with a pipeline through shared memory need registers for the data in flight. Without a
 * launch bound of one block per multiprocessor, ptxas spills some to make room for another block.
 * Other kernels hide memory latency by occupancy. */
static void cuda_head(struct program *p, const struct kernel *k, const int block[GRID_RANK],
                      struct text *out)
{
    int cluster[GRID_RANK] = {1, 1, 1}, most = 1;
    for (int i = 0; i < k->nscratch; i++)
        if (k->scratch[i]->scratch.pipeline.cluster > 1)
            most = cluster[device_axis(p, k, k->scratch[i]->scratch.pipeline.multicast)] =
                k->scratch[i]->scratch.pipeline.cluster;
    text_puts(out, "extern \"C\" ");
    if (most > 1)
        text_printf(out, "__cluster_dims__(%d, %d, %d) ", cluster[0], cluster[1], cluster[2]);
    text_printf(out, "__global__ void __launch_bounds__(%d%s)\n", block[0] * block[1] * block[2],
                has_local(k) ? ", 1" : "");
}

static const char *cuda_place(struct program *p, const struct kernel *k, int d)
{
    const char axis = "xyz"[device_axis(p, k, d)], own = "xyz"[d];
    if (k->block)
        return mem_printf(p->t, "blockIdx.%c", axis);
    return mem_printf(p->t, "(blockIdx.%c * blockDim.%c + threadIdx.%c)", axis, own, own);
}

static const char *cuda_text(struct program *p, const char *pieces, const char *kernels)
{
    return mem_printf(p->t, "%s%s", pieces, kernels);
}

/* --------------------------------------------------------------------------------- the compiler */

/* Comments before PTX: which text it is made from. */
static const char *name_source(struct program *p, const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);          /* FNV-1a */
    for (const char *s = text; *s; s++)
        hash = (hash ^ (unsigned char)*s) * UINT64_C(1099511628211);
    return mem_printf(p->t, "// of %s.cu, %016llx\n", p->name, (unsigned long long)hash);
}

/* Compiles by LLVM, for the newest architecture that it knows and that is no
 * newer than asked for. */
static bool compile_by_llvm(struct program *p, struct cuda_code *code, struct cuda_image *image)
{
    struct llvm_gpu_code made = {0};
    if (!llvm_gpu_compile(p, mem_printf(p->t, "sm_%d", image->arch.number), &made, p->o->device_ir))
        return false;
    int number = atoi(made.architecture + 3);
    code->version = number == image->arch.number
                        ? made.made_by
                        : mem_printf(p->t, "%s, which knows %s, and not sm_%d,", made.made_by,
                                     made.architecture, image->arch.number);
    image->arch = (struct cuda_arch){mem_printf(p->t, "compute_%d", number), number, false};
    image->code = made.bytes ? made.bytes : (const unsigned char *)"";
    image->nbytes = made.nbytes;
    return true;
}

/* c: NULL, PTX is LLVM's */
static bool add_image(struct program *p, struct cuda_code *code, struct nvrtc *c, const char *text,
                      struct cuda_arch arch, bool is_ptx)
{
    struct cuda_image *image = &code->image[code->n];
    *image = (struct cuda_image){.arch = arch, .is_ptx = is_ptx};
    if (!(c ? nvrtc_compile(c, text, mem_printf(p->t, "%s.cu", p->name), image)
            : compile_by_llvm(p, code, image)))
        return false;
    if (is_ptx) {
        struct text ptx = {.t = p->t};
        text_puts(&ptx, name_source(p, text));
        text_write(&ptx, (const char *)image->code, image->nbytes);
        image->code = (const unsigned char *)ptx.s;
        image->nbytes = ptx.n;
    }
    code->n++;
    return true;
}

static bool has_image(const struct cuda_code *code, struct cuda_arch arch)
{
    for (int i = 0; i < code->n; i++)
        if (strcmp(code->image[i].arch.text, arch.text) == 0)
            return true;
    return false;
}

/* Compiles machine code for each architecture that --cpu names (LLVM makes none), and PTX for the
 * oldest of them, which covers all later ones. PTX alone (-o NAME.ptx) of one architecture is for
 * that one, with its architecture-specific instructions. */
static bool compile_all(struct program *p, struct cuda_code *code, struct nvrtc *c,
                        const char *text)
{
    struct cuda_arch oldest = {.text = "compute_80", .number = OLDEST}, arch;
    bool any = false, alone = false;
    for (const char *s = p->o->architectures; s && *s;) {
        size_t n = strcspn(s, ",");
        if (!cuda_arch_read(s, n, &arch, p->t))
            return diag_error(p->t, NULL, "--cpu=%.*s is no architecture of CUDA, such as sm_80",
                              (int)n, s);
        if (code->n == MOST_IMAGES - 1)
            return diag_error(p->t, NULL, "--cpu names more than %d architectures",
                              MOST_IMAGES - 1);
        if (c && !p->o->device_code && !has_image(code, arch) &&
            !add_image(p, code, c, text, arch, false))
            return false;
        if (!any || arch.number < oldest.number)
            oldest =
                (struct cuda_arch){mem_printf(p->t, "compute_%d", arch.number), arch.number, false};
        alone = !any && arch.exact && p->o->device_code && c;
        any = true;
        s += n + (s[n] == ',');
    }
    if (alone)
        oldest =
            (struct cuda_arch){mem_printf(p->t, "compute_%da", arch.number), arch.number, true};
    return add_image(p, code, c, text, oldest, true);
}

/* A grid's second and third sizes have 16 bits. */
static const int64_t most_blocks[GRID_RANK] = {INT32_MAX, 65535, 65535};

/* Does LLVM compile? It does if TGC_NVRTC=none or its text is asked for, or if NVRTC is missing. */
static bool cuda_by_llvm(struct tgc *t, bool as_text)
{
    const char *wanted = nvrtc_wanted();
    if (as_text || (wanted && strcmp(wanted, "none") == 0))
        return true;
    return !wanted && !cuda_found(t) && llvm_found(t);
}

static bool cuda_compile(struct program *p, const char *text)
{
    if (!device_check_grids(p, "CUDA"))
        return false;
    if (p->o->only_kernels)
        return true;
    struct cuda_code *code = MEM_NEW(p->t, struct cuda_code);
    bool by_llvm = cuda_by_llvm(p->t, p->o->device_ir != NULL);
    struct nvrtc *c = by_llvm ? NULL : nvrtc_open(p->t);
    if (!c && !by_llvm)
        return false;
    code->version = c ? mem_printf(p->t, "NVRTC %s", nvrtc_version(c)) : NULL;
    bool done = compile_all(p, code, c, text);
    if (c)
        nvrtc_close(c);
    p->device_code = code;
    if (done && p->o->device_code)
        text_write(p->o->device_code, (const char *)code->image[code->n - 1].code,
                   code->image[code->n - 1].nbytes);
    return done;
}

/* ------------------------------------------------------------------------------------- the file */

/* PTX as strings, a line each. */
static void write_lines(struct text *out, const char *s)
{
    while (*s) {
        size_t n = strcspn(s, "\n");
        struct text line = {.t = out->t};
        text_string(&line, mem_printf(out->t, "%.*s", (int)n, s));
        s += n + (s[n] == '\n');
        text_printf(out, "    %.*s\\n\"\n", (int)line.n - 1, line.s);
    }
}

static const char *image_name(struct program *p, const struct cuda_image *image)
{
    return mem_printf(p->t, "image_%s", image->arch.text);
}

static void cuda_embed(struct program *p, const char *text, struct text *out)
{
    const struct cuda_code *code = p->device_code;
    (void)text;
    if (!code)
        return;
    text_printf(out, "/* The kernels, which -o %s.cu writes, as %s has compiled them. */\n",
                p->name, code->version);
    for (int i = 0; i < code->n; i++) {
        const struct cuda_image *image = &code->image[i];
        text_printf(out, "alignas(64) static const char %s[] =\n", image_name(p, image));
        if (image->is_ptx)
            write_lines(out, (const char *)image->code);
        else
            text_literal(out, image->code, image->nbytes);
        text_puts(out, "    ;\n\n");
    }
    text_puts(out, "static const struct binary binary_of[] = {\n");
    for (int i = 0; i < code->n; i++) {
        const struct cuda_image *image = &code->image[i];
        text_printf(out, "    {%d, %s, %s, %s},\n", image->arch.number,
                    image->arch.exact ? "true" : "false", image->is_ptx ? "true" : "false",
                    image_name(p, image));
    }
    text_puts(out, "};\n\n");
}

static const char *cuda_open(struct program *p)
{
    return mem_printf(p->t, "%zu", p->s->weight_nbytes);
}

static const char *const file[] = {"cuda",      "cuda_matrix",  "cuda_wgmma",  "cuda_async",
                                   "cuda_bulk", "cuda_narrow",  "cuda_ticket", "number",
                                   "math",      "vector_lanes", NULL};
static const struct driver driver = {.head = cuda_head,
                                     .global = "",
                                     .local = "__shared__ ",
                                     .restrict_ = "__restrict__",
                                     .declared_local = 48 << 10,
                                     .map = "const __grid_constant__ tensor_map ",
                                     .offset = "uint64_t",
                                     .symbol = "int64_t",
                                     .count = "unsigned",
                                     .thread = "threadIdx.x",
                                     .threads = "blockDim.x",
                                     .part = {"blockIdx.x", "blockIdx.x"},
                                     .parts = {"gridDim.x", "gridDim.x"},
                                     .file = file,
                                     .text = cuda_text,
                                     .compile = cuda_compile,
                                     .embed = cuda_embed,
                                     .open = cuda_open,
                                     .fields = device_graph_fields,
                                     .tables = device_graph_tables,
                                     .most_groups = most_blocks};
static const struct text_word word[] = {
    {"HANDLES", "CUcontext and CUstream"},
    {"END_HANDLE", "CUevent of its end, which the caller destroys"},
    {"BUFFER_HANDLE", "device memory, a CUdeviceptr as a pointer,"},
    {"CACHE_NOTE",
     ";\n     * not called: the kernels are compiled, and the driver keeps what it makes of PTX"},
    {NULL, NULL}};
const struct backend backend_cuda = {.name = "cuda",
                                     .by_llvm = cuda_by_llvm,
                                     .kernel = device_kernel,
                                     .device = &device_hooks,
                                     .driver = &driver,
                                     .interface = "graphs",
                                     .vectors = "lanes",
                                     .word = word,
                                     .barrier = "__syncthreads();",
                                     .shuffle = "shuffle_f32",
                                     .unroll = "#pragma unroll",
                                     .place = cuda_place};
