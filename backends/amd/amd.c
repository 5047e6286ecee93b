/* amd.c - the AMD target: what backends/device/ needs to know of HIP C. LLVM, or clang from HIP C,
 * compiles the kernels here to a code object for each architecture. NAME.c holds all of them, and
 * gives the driver its device's.
 *
 * Kernels need no header of HIP: runtime/amd.c defines the macros that are missing, and thread and
 * block numbers are compiler built-ins. A wave has 64 lanes on gfx9 and 32 on gfx11 and gfx12.
 * Threads that exchange sums are one wave of the machine row that kernels are tiled for.
 */
#include "backends/amd/amd.h"
#include "backends/llvm/llvm.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_IMAGES = 16 };

struct amd_images { struct amd_code code[MOST_IMAGES]; int n; };

/* --------------------------------------------------------------------------------- the language */

static void amd_head(struct program *p, const struct kernel *k, const int block[GRID_RANK],
                     struct text *out)
{
    (void)p, (void)k;
    text_printf(out, "extern \"C\" __global__ void __launch_bounds__(%d)\n",
                block[0] * block[1] * block[2]);
}

static const char *amd_place(struct program *p, const struct kernel *k, int d)
{
    const char axis = "xyz"[device_axis(p, k, d)], own = "xyz"[d];
    if (k->block)
        return mem_printf(p->t, "__builtin_amdgcn_workgroup_id_%c()", axis);
    return mem_printf(
        p->t, "(__builtin_amdgcn_workgroup_id_%c() * %du + __builtin_amdgcn_workitem_id_%c())",
        axis, d < k->ngrid ? k->group[d] : 1, own);
}

static const char *amd_text(struct program *p, const char *pieces, const char *kernels)
{
    return mem_printf(p->t, "%s%s", pieces, kernels);
}

/* --------------------------------------------------------------------------------- the compiler */

/* Does clang compile, from HIP C? It does if TGC_AMD=clang asks for it, or if
 * libLLVM is missing. */
static bool is_by_clang(struct program *p)
{
    const char *wanted = getenv("TGC_AMD");
    if (p->o->device_ir || (wanted && strcmp(wanted, "llvm") == 0))
        return false;
    return (wanted && strcmp(wanted, "clang") == 0) || !llvm_found(p->t);
}

static bool compile_by_llvm(struct program *p, struct amd_code *code)
{
    struct llvm_gpu_code made = {0};
    if (!llvm_gpu_compile(p, code->arch, &made, p->o->device_ir))
        return false;
    *code = (struct amd_code){code->arch, made.bytes, made.nbytes, made.made_by};
    return true;
}

static bool add_image(struct program *p, struct amd_images *all, const char *arch, const char *text)
{
    for (int i = 0; i < all->n; i++)
        if (strcmp(all->code[i].arch, arch) == 0)
            return true;
    if (all->n == MOST_IMAGES)
        return diag_error(p->t, NULL, "--cpu names more than %d architectures", MOST_IMAGES);
    struct amd_code *code = &all->code[all->n++];
    code->arch = arch;
    return is_by_clang(p) ? amd_clang_compile(p->t, text, code) : compile_by_llvm(p, code);
}

/* Threads that exchange sums must be one wave. A device whose waves are narrower than the machine
 * row's cannot run them. */
static bool check_wave(struct program *p, const char *arch)
{
    const struct device_row *row = device_find(arch), *cut = p->t->device;
    if (!row || row->wave >= cut->wave)
        return true;
    return diag_error(p->t, NULL,
                      "--cpu=%s: waves of %s have %d lanes, and the kernels, as %s comes first, "
                      "are cut for %d: name %s first",
                      p->o->architectures, arch, row->wave, cut->text, cut->wave, arch);
}

static bool compile_all(struct program *p, struct amd_images *all, const char *text)
{
    if (!p->o->architectures)
        return add_image(p, all, (p->t->device ? p->t->device : device_default("amd"))->text, text);
    for (const char *s = p->o->architectures; *s;) {
        size_t n = strcspn(s, ",");
        const char *arch = mem_printf(p->t, "%.*s", (int)n, s);
        if (!check_wave(p, arch) || !add_image(p, all, arch, text))
            return false;
        s += n + (s[n] == ',');
    }
    return true;
}

/* A grid's second and third sizes have 16 bits; each size times the block's threads has 32. */
static const int64_t most_blocks[GRID_RANK] = {INT32_MAX, 65535, 65535};

static bool check_threads(struct program *p, const struct kernel *k)
{
    int block[GRID_RANK];
    device_block(k, block);
    for (int d = 0; d < GRID_RANK; d++)
        if (device_most_groups(p, k, d) > (int64_t)UINT32_MAX / block[d])
            return diag_error(p->t, NULL,
                              "kernel %s needs %lld threads along axis %d of its grid, and AMD's "
                              "devices count them in 32 bits: "
                              "give smaller bounds by --dim",
                              program_kernel_name(p, k),
                              (long long)device_most_groups(p, k, d) * block[d], d + 1);
    return true;
}

/* A word that is misspelt would choose the other compiler. */
static bool check_wanted(struct program *p)
{
    const char *wanted = getenv("TGC_AMD");
    if (!wanted || !*wanted || strcmp(wanted, "llvm") == 0 || strcmp(wanted, "clang") == 0)
        return true;
    return diag_error(p->t, NULL, "TGC_AMD has the value '%.100s'; llvm or clang is expected",
                      wanted);
}

static bool amd_compile(struct program *p, const char *text)
{
    if (!device_check_grids(p, "AMD") || !check_wanted(p))
        return false;
    for (int i = 0; i < p->s->nkernel; i++)
        if (!check_threads(p, p->s->kernel[i]))
            return false;
    if (p->o->only_kernels)
        return true;
    struct amd_images *all = MEM_NEW(p->t, struct amd_images);
    p->device_code = all;
    if (!compile_all(p, all, text))
        return false;
    if (p->o->device_code)
        text_write(p->o->device_code, (const char *)all->code[0].code, all->code[0].nbytes);
    return true;
}

/* ------------------------------------------------------------------------------------- the file */

static void amd_embed(struct program *p, const char *text, struct text *out)
{
    const struct amd_images *all = p->device_code;
    (void)text;
    if (!all)
        return;
    text_printf(out, "/* The kernels, which -o %s.hip writes, as %s has compiled them. */\n",
                p->name, all->code[0].made_by);
    for (int i = 0; i < all->n; i++) {
        text_printf(out, "alignas(4096) static const char image_%s[] =\n", all->code[i].arch);
        text_literal(out, all->code[i].code, all->code[i].nbytes);
        text_puts(out, ";\n\n");
    }
    text_puts(out, "static const struct binary binary_of[] = {\n");
    for (int i = 0; i < all->n; i++)
        text_printf(out, "    {\"%s\", image_%s},\n", all->code[i].arch, all->code[i].arch);
    text_puts(out, "};\n\n");
}

static const char *amd_open(struct program *p)
{
    return mem_printf(p->t, "%zu", p->s->weight_nbytes);
}

static const char *const file[] = {"amd", "amd_matrix", "number", "math", "vector_lanes", NULL};
static const struct driver driver = {
    .head = amd_head,
    .global = "",
    .local = "__shared__ ",
    .restrict_ = "__restrict__",
    .offset = "uint64_t",
    .symbol = "int64_t",
    .count = "unsigned",
    .thread = "__builtin_amdgcn_workitem_id_x()",
    .threads = "__builtin_amdgcn_workgroup_size_x()",
    .part = {"__builtin_amdgcn_workgroup_id_x()", "__builtin_amdgcn_workgroup_id_x()"},
    .parts = {"GROUPS_X", "GROUPS_X"},
    .file = file,
    .text = amd_text,
    .compile = amd_compile,
    .embed = amd_embed,
    .open = amd_open,
    .fields = device_graph_fields,
    .tables = device_graph_tables,
    .most_groups = most_blocks};
static const struct text_word word[] = {
    {"HANDLES", "hipCtx_t and hipStream_t"},
    {"END_HANDLE", "hipEvent_t of its end, which the caller destroys"},
    {"BUFFER_HANDLE", "device memory, a hipDeviceptr_t,"},
    {"CACHE_NOTE", ";\n     * not called: the kernels are compiled"},
    {NULL, NULL}};
const struct backend backend_amd = {.name = "amd",
                                    .kernel = device_kernel,
                                    .device = &device_hooks,
                                    .driver = &driver,
                                    .interface = "graphs",
                                    .vectors = "lanes",
                                    .word = word,
                                    .barrier = "wait_block();",
                                    .shuffle = "shuffle_f32",
                                    .unroll = "#pragma unroll",
                                    .place = amd_place};
