/* program_use.c - what a device takes for a schedule that was not chosen: the passes after
 * kernel/grid.c make a program of the kernel's copy, and device_cost.c reads it. The program is no
 * part of the output. Bulk copies' rounding (round_boxes) and images are left out. */
#include "passes/passes.h"

#include "passes/analysis/kernel_cost.h"

bool program_use(struct tgc *t, const struct schedule *s, struct kernel *k, struct device_use *use)
{
    struct schedule alone = *s;
    struct passing p = {.schedule = &alone,
                        .facts = 1u << FACT_AST | 1u << FACT_TILED | 1u << FACT_SIZES |
                                 1u << FACT_PLACED};
    struct tuning *tuning = t->tuning;
    int debug = t->debug;
    alone.kernel = &k, alone.nkernel = 1;
    t->tuning = NULL;
    t->debug = 0;
    bool done = passes_run_rows(t, &p, "thread", "legalize") &&
                passes_run_rows(t, &p, "join_stores", "join_stores");
    t->tuning = tuning;
    t->debug = debug;
    if (done)
        *use = device_use(t, k);
    return done;
}
