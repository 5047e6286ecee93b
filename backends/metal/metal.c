/* metal.c - the Metal target: what backends/device/ needs to know of the Metal Shading Language,
 * which the system compiles, from strings in NAME.c.
 *
 * Kernels are written in MSL 2.4: every Mac with Apple silicon has it, from macOS 12 on, and
 * kernels need nothing of 3.0. bf16 matrices are of MSL 3.1, so programs that multiply them need
 * macOS 14. The text's first line names its version.
 */
#include "backends/device/device.h"
#include "ir/device_ops.h"

/* The language's version as in MTLCompileOptions: major << 16 | minor. */
enum { VERSION = 2 << 16 | 4, VERSION_OF_BF16 = 3 << 16 | 1 };
enum { MOST_BUFFERS = 31 };      /* in an argument buffer, on devices of tier 1 */

/* --------------------------------------------------------------------------------- the language */

static void metal_head(struct program *p, const struct kernel *k, const int block[GRID_RANK],
                       struct text *out)
{
    (void)p, (void)k;
    text_printf(out, "[[max_total_threads_per_threadgroup(%d)]]\nkernel void ",
                block[0] * block[1] * block[2]);
}

static const char *metal_slot(struct program *p, int i)
{
    return mem_printf(p->t, " [[id(%d)]]", i);
}

static const char *metal_place(struct program *p, const struct kernel *k, int d)
{
    const char axis = "xyz"[d];
    if (k->block)
        return mem_printf(p->t, "group_at.%c", axis);
    return mem_printf(p->t, "(group_at.%c * group_size.%c + item_at.%c)", axis, axis, axis);
}

/* Do kernels use SIMD-group matrices with factors of that dtype? DTYPE_VOID: of any. */
static bool has_matrices(const struct program *p, enum dtype of)
{
    for (int i = 0; i < p->s->nkernel; i++) {
        const struct kernel *k = p->s->kernel[i];
        for (int j = 0; j < k->nlinear; j++)
            if (k->linear[j]->op == OP_MATRIX &&
                (of == DTYPE_VOID ||
                 matrix_row(MATRIX_ROW(k->linear[j]->arg.i))->dtype[MATRIX_A] == of))
                return true;
    }
    return false;
}

static int version_of(const struct program *p)
{
    return has_matrices(p, DTYPE_BF16) ? VERSION_OF_BF16 : VERSION;
}

static const char *metal_text(struct program *p, const char *pieces, const char *kernels)
{
    return mem_printf(p->t, "// Metal Shading Language %d.%d\n%s%s", version_of(p) >> 16,
                      version_of(p) & 0xffff, pieces, kernels);
}

/* -------------------------------------------------------------------------------- what it lacks */

/* "kernel sin_0, of Sin "wave",", or of no node */
static const char *name_kernel(struct program *p, const struct kernel *k)
{
    const char *name = program_kernel_name(p, k);
    return k->title && *k->title ? mem_printf(p->t, "kernel %s, of %s,", name, k->title)
                                 : mem_printf(p->t, "kernel %s", name);
}

static bool check_kernel(struct program *p, const struct kernel *k)
{
    if (device_has_doubles(k))
        return diag_error(p->t, NULL,
                          "%s computes with 64-bit floats, which Metal does not have: change the "
                          "model to f32, or compile "
                          "with --target=c",
                          name_kernel(p, k));
    return true;
}

static bool metal_compile(struct program *p, const char *text)
{
    (void)text;
    for (int i = 0; i < p->s->nkernel; i++)
        if (!check_kernel(p, p->s->kernel[i]))
            return false;
    if (p->device_doubles)
        TGC_BUG(p->t, "a piece of runtime/ for Metal has 64-bit floats");
    return true;
}

/* ------------------------------------------------------------------------------------- the file */

static void metal_embed(struct program *p, const char *text, struct text *out)
{
    text_printf(out,
                "/* The kernels, which -o %s.metal writes. */\nstatic const char *const "
                "kernel_text[] = {\n",
                p->name);
    device_write_strings(out, text);
    text_puts(out, "};\n\n");
}

static const char *metal_open(struct program *p)
{
    return mem_printf(
        p->t,
        "kernel_text, sizeof kernel_text / sizeof *kernel_text,\n                             %zu",
        p->s->weight_nbytes);
}

static int most_arguments(struct program *p)
{
    int most = 0;
    for (int i = 0, n; i < p->s->nkernel; i++) {
        kernel_parameters(p->t, p->s->kernel[i], &n);
        most = n > most ? n : most;
    }
    return most;
}

static void metal_tables(struct program *p, struct text *out)
{
    const int width = p->t->device && !p->t->no_locals ? p->t->device->wave : 1;
    text_printf(
        out,
        "/* The language's version, the threads of a SIMD group (1: any number), whether it "
        "multiplies matrices, and whether argument\n"
        " * buffers have more than those of the first tier, as the kernels expect them. */\n"
        "enum { %s_MSL_VERSION = %d, %s_SIMD_WIDTH = %d, %s_SIMD_MATRICES = %d, %s_SECOND_TIER = "
        "%d };\n\n",
        p->upper, version_of(p), p->upper, width, p->upper, has_matrices(p, DTYPE_VOID), p->upper,
        most_arguments(p) > MOST_BUFFERS);
}

static void metal_fields(struct program *p, struct text *out)
{
    const int n = p->s->nkernel + 1;
    text_printf(
        out,
        "    void *kernel[%d], *encoder[%d];\n    struct told told[%d];\n    uint64_t value[%d];\n",
        n, n, n, p->device_arguments + 1);
}

static const char *const file[] = {"metal", "metal_matrix", "number", "math", "vector_lanes", NULL};
static const char *const places[] = {"uint3 group_at [[threadgroup_position_in_grid]]",
                                     "uint3 item_at [[thread_position_in_threadgroup]]",
                                     "uint3 group_size [[threads_per_threadgroup]]",
                                     "uint3 group_count [[threadgroups_per_grid]]", NULL};
static const char *const structure[] = {"constant ", " [[buffer(0)]]"};
static const struct driver driver = {.head = metal_head,
                                     .global = "device ",
                                     .local = "threadgroup ",
                                     .restrict_ = "",
                                     .has_alignas = true,
                                     .offset = "ulong",
                                     .symbol = "long",
                                     .count = "uint",
                                     .structure = structure,
                                     .slot = metal_slot,
                                     .places = places,
                                     .thread = "item_at.x",
                                     .threads = "group_size.x",
                                     .part = {"group_at.x", "group_at.x"},
                                     .parts = {"group_count.x", "group_count.x"},
                                     .file = file,
                                     .text = metal_text,
                                     .compile = metal_compile,
                                     .embed = metal_embed,
                                     .open = metal_open,
                                     .fields = metal_fields,
                                     .tables = metal_tables};
static const struct text_word word[] = {
    {"HANDLES", "MTLDevice and MTLCommandQueue"},
    {"END_HANDLE", "MTLCommandBuffer of its end, which the caller waits for and releases"},
    {"BUFFER_HANDLE", "an MTLBuffer"},
    {"CACHE_NOTE", ";\n     * not called: Metal keeps compiled kernels in files of its own, and "
                   "gives no program their bytes"},
    {NULL, NULL}};
const struct backend backend_metal = {.name = "metal",
                                      .kernel = device_kernel,
                                      .device = &device_hooks,
                                      .vectors = "lanes",
                                      .driver = &driver,
                                      .word = word,
                                      .barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);",
                                      .shuffle = "shuffle_f32",
                                      .unroll = "#pragma unroll",
                                      .place = metal_place};
