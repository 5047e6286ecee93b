/* device.c - the page's table of a device's kernels: blocks, shared memory, occupancy, and of what
 * the estimated time consists.
 *
 * Occupancy follows from the device's row: how many blocks a unit has room for by its threads, its
 * shared memory and its registers, at most its share of the grid; the least of these limits it.
 * Registers are decided by the device's compiler, which has not run: tgc's estimate is said
 * (passes/place/registers.c), and what a thread of such a block can have.
 */
#include "lib/report/report.h"

#include "backends/program/program.h"

#include <string.h>

/* The parts of a time as they are drawn, the first one leftmost. */
static const char *const drawn[] = {"launch", "latency", "memory", "arithmetic"};
enum { DRAWN = sizeof drawn / sizeof *drawn };

/* Memory and arithmetic overlap: the shorter one is drawn less what lies under the longer one. */
static void find_parts(const struct json *kernel, double us[DRAWN])
{
    const struct json *parts = json_get(kernel, "parts_us");
    for (int i = 0; i < DRAWN; i++)
        us[i] = json_number(parts, drawn[i]);
    int shorter = us[2] < us[3] ? 2 : 3;
    us[shorter] += json_number(parts, "overlap");
    us[shorter] = us[shorter] > 0 ? us[shorter] : 0;
}

static void put_parts(struct text *out, const double us[DRAWN], double most)
{
    double at = 0, sum = 0;
    for (int i = 0; i < DRAWN; i++)
        sum += us[i];
    text_printf(out, "<td data-v=\"%.6g\"><svg class=\"parts\" viewBox=\"0 0 200 10\" "
                     "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"", sum);
    for (int i = 0; i < DRAWN; i++)
        text_printf(out, "%s%s %.3g us", i ? ", " : "", drawn[i], us[i]);
    text_puts(out, "\">");
    for (int i = 0; i < DRAWN; i++) {
        double width = most > 0 ? 200 * us[i] / most : 0;
        text_printf(out, "<rect class=\"p%d\" x=\"%.2f\" width=\"%.2f\" height=\"10\"/>", i, at,
                    width);
        at += width;
    }
    text_puts(out, "</svg></td>");
}

static void put_kernel(struct text *out, const struct page *p, int i, double most)
{
    const struct json *k = p->kernel[i];
    double us[DRAWN], occupancy = json_number(k, "occupancy"), local = json_number(k, "local_bytes");
    bool has_block = json_get(k, "blocks") != NULL;
    find_parts(k, us);
    text_puts(out, "<tr><th scope=\"row\">");
    html_kernel(out, json_string(k, "name"));
    text_puts(out, "</th>");
    cell_number(out, json_number(k, "threads"), mem_printf(p->t, "%.0f", json_number(k, "threads")));
    static const char *const number[] = {"blocks", "block", "room"};
    for (size_t n = 0; n < sizeof number / sizeof *number; n++)
        cell_number(out, json_number(k, number[n]),
                    has_block ? mem_printf(p->t, "%.0f", json_number(k, number[n])) : "");
    cell_number(out, json_number(k, "registers"),
                has_block ? mem_printf(p->t, "%.0f of %.0f", json_number(k, "registers"),
                                       json_number(k, "registers_most"))
                          : "");
    cell_number(out, local, local > 0 ? view_bytes(p->t, local) : "");
    cell_number(out, occupancy, has_block ? mem_printf(p->t, "%.0f %%", 100 * occupancy) : "");
    cell_text(out, json_string(k, "occupancy_limit"));
    put_parts(out, us, most);
    cell_number(out, p->us[i], view_time(p->t, p->us[i]));
    text_puts(out, "</tr>\n");
}

void view_device(struct text *out, const struct page *p)
{
    enum { ROWS_MOST = 1000 };
    double most = 0, sum[DRAWN] = {0}, total = 0;
    bool any = false;
    for (int i = 0; i < p->nkernel; i++) {
        double us[DRAWN], all = 0;
        any |= json_get(p->kernel[i], "parts_us") != NULL;
        find_parts(p->kernel[i], us);
        for (int k = 0; k < DRAWN; k++) {
            sum[k] += us[k];
            all += us[k];
        }
        total += all;
        most = all > most ? all : most;
    }
    if (!any)
        return;
    table_begin(out, "device", "Launches of one queue, in their order: each begins when the one before it has ended",
                "Kernel|#Threads|#Blocks|#Per block|#Room for blocks|#Registers, estimated|#Shared "
                "memory|#Occupancy|Limited by|Parts of the estimate|#Time");
    for (int i = 0; i < p->nkernel && i < ROWS_MOST; i++)
        put_kernel(out, p, i, most);
    table_end(out);
    text_puts(out, "<p class=\"note\">Room is by threads, shared memory and registers. Occupancy is the "
                   "share of a unit&#39;s threads that are resident; beside it stands what limits it: one of "
                   "these, or too few blocks to fill the units. Of a thread&#39;s registers, of which the "
                   "device&#39;s compiler decides, stand an estimate by what is live at once, and as many as "
                   "it can have in such a block. Of all launches together: ");
    for (int i = 0; i < DRAWN; i++)
        text_printf(out, "%s<svg class=\"key\" viewBox=\"0 0 24 8\" aria-hidden=\"true\"><rect "
                         "class=\"p%d\" width=\"24\" height=\"8\"/></svg> %s %s (%.0f %%)",
                    i ? ", " : "", i, drawn[i], view_time(p->t, sum[i]),
                    total > 0 ? 100 * sum[i] / total : 0);
    text_puts(out, ".</p>\n");
}
