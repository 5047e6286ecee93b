/* opencl.c - the OpenCL target: what backends/device/ needs to know of OpenCL C 1.2, which the
 * driver compiles, from strings in NAME.c. */
#include "backends/opencl/opencl.h"

#include <stdlib.h>

static void opencl_head(struct program *p, const struct kernel *k, const int block[GRID_RANK],
                        struct text *out)
{
    (void)p, (void)k;
    if (block[0] * block[1] * block[2] > 1)
        text_printf(out, "__attribute__((reqd_work_group_size(%d, %d, %d)))\n", block[0], block[1],
                    block[2]);
    text_puts(out, "kernel void ");
}

static const char *opencl_place(struct program *p, const struct kernel *k, int d)
{
    return mem_printf(p->t, "%s(%d)", k->block ? "get_group_id" : "get_global_id", d);
}

/* PoCL 3.1 is such a compiler. */
static const char *opencl_blocks(struct program *p, int d)
{
    return mem_printf(p->t, "get_num_groups(%d)", d);
}

static const char *opencl_text(struct program *p, const char *pieces, const char *kernels)
{
    return mem_printf(p->t, "%s%s%s",
                      p->device_doubles ? "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" : "",
                      pieces, kernels);
}

static void opencl_embed(struct program *p, const char *text, struct text *out)
{
    (void)p;
    text_puts(out, "/* The kernels in OpenCL C, and the functions that they call. */\n"
                   "static const char *const kernel_text[] = {\n");
    device_write_strings(out, text);
    text_puts(out, "};\n\n");
}

struct span { size_t begin, end; };

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* The begins of weights that share no bytes with another, and the end of the last one: a buffer has
 * whole weights. */
static void opencl_tables(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    struct text_list list = {.out = out, .separator = ",", .indent = 4, .tail = 1};
    struct span *span = mem_array(p->t, (size_t)s->nweight + 1, sizeof *span);
    size_t end = 0;
    for (int i = 0; i < s->nweight; i++)
        span[i] = (struct span){s->weight[i]->offset, s->weight[i]->offset + s->weight[i]->nbytes};
    span[s->nweight] = (struct span){s->weight_nbytes, s->weight_nbytes};
    qsort(span, (size_t)s->nweight + 1, sizeof *span, compare_spans);
    text_puts(out,
              "/* Where weights begin, and where the last one ends: a buffer has whole ones. */\n"
              "static const size_t weight_begin[] = {\n    ");
    list.line = out->n - 4;
    list_put(&list, "0");
    for (int i = 0; i <= s->nweight; i++) {
        if (span[i].begin > 0 && span[i].begin >= end &&
            (i == 0 || span[i].begin > span[i - 1].begin))
            list_put(&list, mem_printf(p->t, "%zu", span[i].begin));
        end = span[i].end > end ? span[i].end : end;
    }
    text_puts(out, "};\n\n");
}

static const char *opencl_open(struct program *p)
{
    return mem_printf(p->t,
                      "kernel_text, sizeof kernel_text / sizeof *kernel_text,\n"
                      "                             %s",
                      p->device_doubles ? "true" : "false");
}

static void opencl_fields(struct program *p, struct text *out)
{
    text_printf(out, "    void *kernel[%d];\n", p->s->nkernel + 1);
    if (p->nimage > 0)
        text_printf(out,
                    "    void *part[%d];               /* of the memory, by places */\n"
                    "    struct image image[%d];\n    int image_way;\n",
                    device_count_places(p), p->nimage);
    if (p->device_queues > 1)
        text_printf(out, "    void *done[%d];\n", p->s->nkernel + 1);
}

static const char *const file[] = {"opencl",        "number",      "math",
                                   "vector_opencl", "vector_math", NULL};
static const struct driver driver = {
    .head = opencl_head,
    .keeps_exchanged = true,
    .global = "global ", .local = "local ", .restrict_ = "restrict",
    .byte = "uchar", .offset = "ulong", .symbol = "long", .count = "uint",
    .thread = "(uint)get_local_id(0)", .threads = "(uint)get_local_size(0)",
    .part = {"(uint)get_global_id(0)", "(uint)get_group_id(0)"},
    .parts = {"(uint)get_global_size(0)", "(uint)get_num_groups(0)"},
    .file = file,
    .text = opencl_text, .embed = opencl_embed, .image = "read_only image2d_pixels ",
    .use_images = opencl_use_images, .image_tables = opencl_image_tables, .open = opencl_open,
    .fields = opencl_fields, .tables = opencl_tables, .has_queues = true};
static const struct text_word word[] = {
    {"HANDLES", "cl_context and cl_command_queue, which must be in order"},
    {"END_HANDLE", "cl_event of its end, which the caller releases"},
    {"BUFFER_HANDLE", "a cl_mem"},
    {"CACHE_NOTE", ""},
    {NULL, NULL}};
const struct backend backend_opencl = {.name = "opencl",
                                       .kernel = device_kernel,
                                       .device = &device_hooks,
                                       .driver = &driver,
                                       .word = word,
                                       .barrier = "barrier(CLK_LOCAL_MEM_FENCE);",
                                       .shuffle = "shuffle_f32",
                                       .unroll = "#pragma unroll",
                                       .place = opencl_place,
                                       .blocks = opencl_blocks};
