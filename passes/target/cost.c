/* cost.c - costs on a machine: its facts, scaled by the shares of cost.def. */
#include "passes/target/cost.h"
#include "ir/device_ops.h"

static const double flop_share[] = {
#define FLOP(name, share, text) share,
#include "passes/target/cost.def"
};
static const struct { enum memory_level level; double share; } fit[] = {
#define FIT(name, level, share, text) {LEVEL_##level, share},
#include "passes/target/cost.def"
};

static const char *const limit_name[] = {
#define LIMIT(name, text) text,
#include "passes/target/cost.def"
};

static const struct { const char *name, *text; } part[] = {
#define PART(name, word, text) {word, text},
#include "passes/target/cost.def"
};

const char *cost_limit_name(enum grid_limit of) { return limit_name[of]; }
const char *cost_part_name(enum grid_part of) { return part[of].name; }
const char *cost_part_text(enum grid_part of) { return part[of].text; }

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
    case OP_EXP: case OP_EXP2: case OP_LOG: case OP_SIN: case OP_COS: case OP_TAN: case OP_ASIN:
    case OP_ACOS: case OP_ATAN: case OP_SINH: case OP_COSH: case OP_TANH: case OP_ASINH:
    case OP_ACOSH: case OP_ATANH: case OP_ERF: case OP_POW: case OP_ATAN2:
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

/* Cycles of the busiest resource: multiply-add units, latency of a sum, load and store ports, the
 * decoder, the tile unit. */
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

/* The body, two instructions of the loop, the L2's bandwidth, spills. */
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

double cost_grid_load(const struct device_row *d)
{
    return d->load > 0 ? d->load : RATIO_GRID_LOAD;
}
double cost_grid_local(const struct device_row *d) { return cost_grid_load(d) / 2; }
double cost_grid_power(const struct device_row *d)
{
    return d->power > 0 ? d->power : RATIO_GRID_POWER;
}

double cost_of_matrix(const struct device_row *d, enum matrix_unit of, double gflops)
{
    const struct matrix_row *r = matrix_row(of);
    double nbytes = (double)dtype_nbytes(r->dtype[MATRIX_A]) * r->size[MATRIX_K], read = 0;
    read += matrix_in_shared(r, MATRIX_A) ? nbytes * r->size[MATRIX_M] : 0;
    read += matrix_in_shared(r, MATRIX_B) ? nbytes * r->size[MATRIX_N] : 0;
    double fetched = read / (d->gflops * RATIO_GRID_LOCAL),
           arithmetic = 2.0 * r->size[MATRIX_M] * r->size[MATRIX_N] * r->size[MATRIX_K] / gflops;
    return arithmetic > fetched ? arithmetic : fetched;
}

double cost_grid_groups(const struct device_row *d, double threads)
{
    double groups = threads / d->wave / RATIO_GRID_FILL;
    return groups > 1 ? groups : 1;
}

static double at_most(double a, double most) { return a < most ? a : most; }
static double at_least(double a, double least) { return a > least ? a : least; }

/* Resident blocks of the unit with most of them: limited by threads, shared memory and
 * registers. */
static double held_blocks(const struct device_row *d, const struct grid_work *w)
{
    double held = at_most(__builtin_ceil(w->blocks / d->units),
                          __builtin_floor(d->unit_threads / (w->threads + w->producers)));
    if (w->local_nbytes > 0)
        held = at_most(held, __builtin_floor((double)d->unit_local_nbytes / w->local_nbytes));
    if (w->registers > 0)
        held = at_most(held, __builtin_floor((double)(d->registers * d->group) /
                                             ((w->threads + w->producers) * w->registers)));
    return at_least(held, 1);
}

double cost_grid_at_once(const struct device_row *d, const struct grid_work *w)
{
    return d->units * held_blocks(d, w);
}

/* Rounds of blocks that a unit runs, in the time of an average block. */
static double rounds_of(const struct device_row *d, const struct grid_work *w)
{
    return w->rounds > 0 ? w->rounds : __builtin_ceil(w->blocks / d->units);
}

/* Latency of a unit's first copies, which nothing precedes. With several resident blocks only the
 * first round exposes it. Without a pipeline the first copies are those of the first step, whose
 * exposed latency `of_steps` already counts. */
static double begun(const struct device_row *d, const struct grid_work *w, double of_steps)
{
    double rounds = rounds_of(d, w), first = held_blocks(d, w) > 1 ? 1 : rounds;
    if (w->steps <= 0)
        return 0;
    return first *
           (w->ahead ? d->latency : at_least(d->latency - of_steps / (w->steps * rounds), 0));
}

/* Extra time of steps whose copies the computing threads issue. With several resident blocks others
 * compute meanwhile. */
static double handed_over(const struct device_row *d, const struct grid_work *w)
{
    return held_blocks(d, w) > 1
               ? 0
               : rounds_of(d, w) * w->handovers * RATIO_GRID_HANDOVER * d->latency;
}

/* Time for a unit to receive one step's copies from the cache, where that traffic is counted. */
static double sent_ns(const struct device_row *d, const struct grid_work *w)
{
    return w->received_nbytes / w->blocks / w->steps * d->units /
           (device_cache_gbytes(d) * RATIO_GRID_TAKEN);
}

/* The factor, at least 1, by which latency that nothing hides makes a block's time longer than what
 * it issues and multiplies. Only subgroups on the same scheduler hide each other's stalls; a unit
 * has RATIO_GRID_FILL schedulers, each with subgroups of its own:
 *
 *      scheduler 0   subgroup of block a: waits  steps  waits  steps
 *      scheduler 1   subgroup of block b: waits  steps  waits  steps
 *
 * Here a and b run on different schedulers: both stall at the same time. */
static double waited(const struct device_row *d, const struct grid_work *w, double busy)
{
    double held = held_blocks(d, w), waves = held * w->threads / d->wave;
    if (w->steps <= 0)
        return 1 / at_most(waves / RATIO_GRID_WAVES, 1);
    double step = busy * d->units / w->steps;
    double near = w->cache_nbytes > 0 ? 1 - at_most(w->memory_nbytes / w->cache_nbytes, 1) : 0;
    double latency = d->latency * (1 - near * RATIO_GRID_NEAR);
    if (!w->ahead)                   /* what registers do not hold at once waits again */
        latency *= at_least(
            w->cache_nbytes / w->blocks / w->steps / (w->threads * RATIO_GRID_FLIGHT_MOST), 1);
    /* fewer subgroups than schedulers leave some idle */
    double alone = step * at_least(RATIO_GRID_FILL * d->wave / w->threads, 1);
    /* resident blocks that share a scheduler */
    double turns = at_most(held, at_least(waves / RATIO_GRID_FILL, 1));
    double waits = w->ahead ? (latency + sent_ns(d, w)) / w->ahead * (w->steps - 1) / w->steps
                            : latency + alone;
    double together = at_least(waits, turns * alone);
    return together / (held * step);
}

/* Share of the memory's bandwidth that the threads in flight can use. Few threads that stage much
 * per step use what one latency's worth of copies needs. */
static double share_of_memory(const struct device_row *d, const struct grid_work *w)
{
    double blocks = at_most(w->blocks, d->units * held_blocks(d, w)),
           waves = blocks * w->threads / d->wave / d->units;
    if (w->steps <= 0)
        return at_most(waves / RATIO_GRID_WAVES, 1);
    double step =
        at_most(w->cache_nbytes / w->blocks / w->steps, w->threads * RATIO_GRID_FLIGHT_MOST) *
        at_least(w->ahead, 1);
    return at_most(at_least(waves / RATIO_GRID_FILL, blocks * step / (d->gbytes * d->latency)), 1);
}

/* Time of cache traffic: what the cache sends, or what units receive. A cluster receives a
 * multicast once per block. */
static double cache_ns(const struct device_row *d, const struct grid_work *w)
{
    double taken = w->received_nbytes > 0 ? w->received_nbytes : w->cache_nbytes,
           gbytes = device_cache_gbytes(d);
    return at_least(
        w->cache_nbytes / gbytes,
        taken / (gbytes * at_most(RATIO_GRID_TAKEN * w->blocks / d->units, RATIO_GRID_TAKEN)));
}

/* A block's time if all units shared it and memory never stalled it: the longest of issue, the 2^x
 * unit and matrix products. Or the serial time of one group of subgroups (issue, then products),
 * while other groups overlap. */
static double busy_ns(const struct device_row *d, const struct grid_work *w, double issue)
{
    double powers = 2 * w->threads * w->powers / d->gflops,
           busy = at_least(w->apart ? at_least(issue, w->matrix_ns) : issue + w->matrix_ns, powers);
    double alone = at_least(issue / RATIO_GRID_ALONE, powers) + w->matrix_ns;
    return w->groups > 0 && w->apart ? at_least(busy, alone / (w->groups * held_blocks(d, w)))
                                     : busy;
}

double cost_grid_last(const struct device_row *d, double tiles, double threads, double elements,
                      double parts)
{
    enum { LATENCIES = 3, WORD_NBYTES = 4 };           /* latencies: its partial sums are
                                                        * visible, its ticket is counted, its
                                                        * first loads arrive */
    double near = d->latency * RATIO_GRID_NEAR, nbytes = WORD_NBYTES * elements * parts,
           flight = at_most(parts * COPY_NBYTES_MOST, RATIO_GRID_FLIGHT_MOST);
    double issue = 2 * elements * parts * (1 + cost_grid_load(d)) * d->units / d->gflops;
    double taken = nbytes * d->units / (device_cache_gbytes(d) * RATIO_GRID_TAKEN),
           waits = nbytes / (threads * flight) * near;
    return LATENCIES * near +
           __builtin_ceil(tiles / d->units) * at_least(at_least(issue, taken), waits);
}

/* parts: NULL, or where all but OVERLAP, LAUNCH and BIAS are returned. */
static double time_of_grid(const struct device_row *d, const struct grid_work *w,
                           enum grid_limit *limit, struct grid_parts *parts)
{
    double issue = 2 * w->threads * w->issued / d->gflops, matrix = w->matrix_ns,
           rounds = rounds_of(d, w);
    double busy = busy_ns(d, w, issue), factor = busy > 0 ? waited(d, w, busy) : 1;
    factor *= w->cluster > 1 ? 1 + RATIO_GRID_CLUSTER * (w->cluster - 1) : 1;
    /* other resident blocks overlap the epilogue; a persistent block's overlaps only the next
     * tile's copies */
    double tail = rounds * d->units * 2 * w->threads * w->stored / (d->gflops * held_blocks(d, w));
    /* units idle in the last round */
    double compute =
        rounds * d->units * busy * factor + (w->persistent ? tail : 0) + handed_over(d, w);
    double cache = cache_ns(d, w), memory = w->memory_nbytes / (d->gbytes * share_of_memory(d, w));
    double most = at_least(at_least(compute, cache), memory),
           waits = rounds * d->units * busy * at_least(factor - 1, 0);
    double first = begun(d, w, most - at_least(at_least(compute - waits, cache), memory));
    if (limit)
        *limit = memory >= most   ? LIMIT_MEMORY
                 : cache >= most  ? LIMIT_CACHE
                 : factor > 2     ? LIMIT_WAIT
                 : matrix > issue ? LIMIT_MATRIX
                                  : LIMIT_ISSUE;
    if (parts) {
        double steps = rounds * d->units * busy * at_most(factor, 1);
        parts->ns[PART_ARITHMETIC] = steps + tail;
        parts->ns[PART_MEMORY] = at_least(cache, memory);
        parts->ns[PART_LATENCY] = waits + handed_over(d, w) + first;
    }
    return most + (w->persistent ? 0 : tail) + first;
}

double cost_of_grid(const struct device_row *d, const struct grid_work *w, enum grid_limit *limit)
{
    return time_of_grid(d, w, limit, NULL);
}

struct grid_parts cost_parts_of_grid(const struct device_row *d, const struct grid_work *w)
{
    struct grid_parts parts = {{0}};
    (void)time_of_grid(d, w, NULL, &parts);
    parts.ns[PART_LAUNCH] = RATIO_GRID_LAUNCH;
    return parts;
}

double cost_sum_parts(const struct grid_parts *p)
{
    double sum = 0;
    for (int i = 0; i < PART_COUNT; i++)
        sum += p->ns[i];
    return sum;
}

void cost_close_parts(struct grid_parts *p, double ns)
{
    p->ns[PART_OVERLAP] = 0;
    p->ns[PART_OVERLAP] = ns - cost_sum_parts(p);
}
