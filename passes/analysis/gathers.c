/* gathers.c - the cost of reading a tensor at data-dependent indices.
 *
 *      x[c, place[p]]     for 16 p: one gather, 16 loads            pixels innermost
 *      t[place[p], c]     for 16 c: one load                        channels innermost
 */
#include "passes/analysis/gathers.h"
#include "passes/target/cost.h"

void gather_count(struct gathered *g, double nread, double nplace, double nresult)
{
    g->nread += nread;
    g->nplace = nplace > g->nplace ? nplace : g->nplace;
    g->nresult = nresult > g->nresult ? nresult : g->nresult;
}

double gather_gain(const struct tgc *t, const struct gathered *g, double nelem)
{
    double cycles = (RATIO_GATHERED - RATIO_GATHERED_ROW) * g->nread - RATIO_TURNED * nelem -
                    RATIO_TURNED_NEAR * g->nresult - RATIO_PLACE * g->nplace;
    return cost_of_cycles(machine_of(t), cycles);
}
