/* cost.c - costs on a machine: its facts, scaled by the shares of cost.def. */
#include "passes/target/cost.h"

static const double flop_share[] = {
#define FLOP(name, share, text) share,
#include "passes/target/cost.def"
};
static const struct { enum memory_level level; double share; } fit[] = {
#define FIT(name, level, share, text) {LEVEL_##level, share},
#include "passes/target/cost.def"
};

double cost_of_cycles(const struct machine *m, double cycles) { return cycles * m->ns_cycle; }
double cost_to_cycles(const struct machine *m, double ns) { return ns / m->ns_cycle; }

double cost_of_flop(const struct machine *m, enum flop of, double flop)
{
    double peak = 2 * m->fma_cycle * m->flop_lanes;
    return cost_of_cycles(m, flop / (peak * flop_share[of]));
}

double cost_of_bytes(const struct machine *m, enum memory_level from, double nbytes)
{
    return cost_of_cycles(m, nbytes / m->level[from].bytes_cycle);
}

enum cost_class cost_class_of(enum op op)
{
    switch (op) {
    case OP_EXP: case OP_LOG: case OP_SIN: case OP_COS: case OP_TAN: case OP_ASIN: case OP_ACOS:
    case OP_ATAN: case OP_SINH: case OP_COSH: case OP_TANH: case OP_ASINH: case OP_ACOSH:
    case OP_ATANH: case OP_ERF: case OP_POW: case OP_ATAN2:
        return COST_FUNCTION;
    case OP_DIV: case OP_MOD: case OP_FLOORDIV: case OP_FLOORMOD: case OP_SQRT: case OP_RECIP:
        return COST_DIVISION;
    default:
        return COST_STEP;
    }
}

double cost_in_additions(const struct machine *m, enum op op)
{
    enum cost_class of = cost_class_of(op);
    return of == COST_FUNCTION ? m->function : of == COST_DIVISION ? m->division : 1;
}

double cost_of_addition(const struct machine *m) { return cost_of_flop(m, FLOP_LOOP, 1); }

/* The cost of the slowest resource: multiply-add units, latency of a sum, load and store ports, the
 * decoder, the unit for tiles. */
double cost_of_body(const struct machine *m, const struct cost_body *b)
{
    double cycles = b->work / m->fma_cycle;
    if (cycles < b->chain)
        cycles = b->chain;
    if (cycles < b->loads / m->loads_cycle)
        cycles = b->loads / m->loads_cycle;
    if (cycles < b->stores)
        cycles = b->stores;
    if (cycles < b->tile_rows * m->tile_cycles / TILE_ROWS_MAX)
        cycles = b->tile_rows * m->tile_cycles / TILE_ROWS_MAX;
    if (cycles < b->instructions / m->decoded_cycle)
        cycles = b->instructions / m->decoded_cycle;
    return cycles;
}

/* A body (with two instructions for the loop), and the L2. */
double cost_of_step(const struct machine *m, const struct cost_step *s)
{
    double halves = s->lanes > m->lanes ? (double)s->lanes / m->lanes : 1;
    struct cost_body body = {s->work * halves, s->loads * halves, 0, s->work + s->loads + 2,
                             s->reduces ? m->fma_latency : 0, 0};
    double cycles = cost_of_body(m, &body);
    double panel = RATIO_PANEL * s->panel * (double)s->lanes * (double)sizeof(float) /
                   m->level[LEVEL_L2].bytes_cycle;
    if (s->reduces && cycles < panel)
        cycles = panel;
    struct cost_body spill = {.loads = s->spilled * halves, .stores = s->spilled * halves,
                              .instructions = 2 * s->spilled};
    return cost_of_cycles(m, cycles + RATIO_LOADS * s->loads + cost_of_body(m, &spill));
}

double cost_fit(const struct machine *m, enum fit of)
{
    return m->level[fit[of].level].nbytes * fit[of].share;
}

int64_t cost_fit_nelem(const struct machine *m, enum fit of)
{
    return (int64_t)cost_fit(m, of) / (int64_t)sizeof(float);
}

int64_t cost_alias_nbytes(const struct machine *m)
{
    return (int64_t)((double)machine_way_nbytes(m, LEVEL_L1) * RATIO_ALIASED);
}

double cost_cache_nbytes(const struct tgc *t)
{
    return t->cache_nbytes == CACHE_OF_MACHINE ? machine_of(t)->level[LEVEL_L2].nbytes
                                               : (double)t->cache_nbytes;
}

double cost_full_threads(const struct device_row *d)
{
    return (double)d->units * d->wave * RATIO_GRID_WAVES;
}

double cost_tile_threads(const struct device_row *d) { return (double)d->units * d->wave * RATIO_GRID_FILL; }

double cost_sum_ns(const struct device_row *d, double results, double terms, double nbytes, double parts, double each, bool tiled)
{
    double busy = results * parts * each / (tiled ? cost_tile_threads(d) : cost_full_threads(d));
    double compute = 2 * results * terms / d->gflops, memory = nbytes / d->gbytes;
    double added = 2 * 4 * results * parts / (d->gbytes * RATIO_GRID_CACHE) + RATIO_GRID_LAUNCH;
    return (compute > memory ? compute : memory) / (busy < 1 ? busy : 1) + (parts > 1 ? added : 0);
}
