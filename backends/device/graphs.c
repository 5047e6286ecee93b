/* graphs.c - what drivers with CUDA's interface share (runtime/graphs.c): which parts of a run are
 * graphs, handles of kernels and graphs, and the largest grids.
 */
#include "backends/device/device.h"

static void write_local(struct program *p, struct text *out)
{
    struct text_list list = {.out = out, .separator = ",", .indent = 4, .tail = 1};
    text_puts(out, "/* By kernel: bytes of a block's memory that its launch names; 0: the kernel "
                   "declares what it has. */\n"
                   "static const unsigned local_of[] = {\n    ");
    list.line = out->n - 4;
    for (int i = 0; i < p->s->nkernel; i++)
        list_put(&list,
                 mem_printf(p->t, "%lld",
                            (long long)device_launched_local(p->backend->driver, p->s->kernel[i])));
    list_put(&list, "0");
    text_puts(out, "};\n\n");
}

/* The tables that say which kernels make a graph. */
void device_graph_tables(struct program *p, struct text *out)
{
    struct text_list list = {.out = out, .separator = ",", .line = out->n, .indent = 4, .tail = 1};
    text_puts(out,
              "/* By kernel: where the part of a run that begins with it ends; 0: none does. */\n"
              "static const int part_end[] = {\n    ");
    list.line = out->n - 4;
    for (int i = 0; i <= p->s->nkernel; i++)
        list_put(&list, mem_printf(p->t, "%d", p->device_part[i]));
    text_puts(out, "};\n\n");
    write_local(p, out);
    device_write_order(p, out);
}

void device_graph_fields(struct program *p, struct text *out)
{
    const int n = p->s->nkernel + 1;
    text_printf(out,
                "    void *kernel[%d], *node[%d], *list[%d], *graph[%d];\n    bool changed[%d];\n",
                n, n, n, n, n);
    if (device_write_maps(p, NULL) > 0)
        text_printf(out, "    struct maps maps;\n");
    text_printf(out, "    uint64_t value[%d];\n    void *parameter[%d];\n", p->device_arguments + 1,
                p->device_arguments + 1);
}

/* A kernel's grid along axis a. */
static bool check_axis(struct program *p, const struct kernel *k, int a, const char *title)
{
    const int64_t most = p->backend->driver->most_groups[a],
                  n = device_most_groups(p, k, device_axis(p, k, a));
    if (n <= most)
        return true;
    return diag_error(p->t, NULL,
                      "kernel %s needs a grid of %lld blocks along axis %d, and %s has at most "
                      "%lld there: give smaller "
                      "bounds by --dim, or another shape",
                      program_kernel_name(p, k), (long long)n, a + 1, title, (long long)most);
}

bool device_check_grids(struct program *p, const char *title)
{
    for (int i = 0; i < p->s->nkernel; i++)
        for (int a = 0; a < GRID_RANK; a++)
            if (!check_axis(p, p->s->kernel[i], a, title))
                return false;
    return true;
}
