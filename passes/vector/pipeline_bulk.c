/* pipeline_bulk.c - pipelined steps with bulk copies: boxes that a copy engine transfers (TMA).
 * opts_cluster.c has what blocks share.
 *
 *      thread 0: of steps 0 .. n - 2: expect their bytes, copy boxes
 *      for k
 *        wait until the bytes of stage k % n are there: it is full
 *        sum += copy[k % n] ...
 *        release stage (k + n - 1) % n, which step k - 1 has read
 *        thread 0, if k + n - 1 is a step:
 *          wait until all subgroups have released it: it is empty
 *          expect, copy boxes
 *
 *      iterations of a band: first as above; then iteration k:
 *        wait until stage k % n is full
 *        ... copy[k % n] ...
 *        release stage k % n
 *        thread 0, if k + n - 1 is an iteration:
 *          wait until stage (k + n - 1) % n, of iteration k - 1, is empty
 *          expect, copy boxes
 *
 *      with producers (WARP_SPECIALIZE):
 *      consumers: for k                               one producer: for k
 *        wait until stage k % n is full                 wait until stage k % n is empty
 *        sum += copy[k % n] ...                         expect, copy boxes
 *        release stage (k + n - 1) % n
 *
 * The first release of stage n - 1 precedes its first fill, and nobody needs to wait for it. So for
 * the other stages a producer first waits for the phase before the first one, which counts as over.
 *
 * Blocks of a cluster release each other's stages, and a release that arrives at an ended block is
 * an error. So before a block ends, its copying thread waits for the last releases. (A cluster
 * barrier does not order them, except as a release to the whole cluster, which waits for memory.)
 *
 * No thread waits for all others: mbarriers track each stage as full or empty. A stage is released
 * one step late, so that asynchronous matrix products go on meanwhile (products.c). A band releases
 * at the end of the iteration, which waits for its products. */
#include "passes/analysis/nest.h"
#include "passes/target/target.h"
#include "passes/vector/pipeline.h"
#include "ir/device_ops.h"

static void push_statement(struct expander *e, enum op op, struct uop *const *src, int nsrc,
                           int64_t bits)
{
    for (int k = 0; k < nsrc; k++)
        if (!op_takes_memory(op, k))
            expand_need(e, src[k]);
    expand_push(e, uop_intern(e->t, op, DTYPE_VOID, src, nsrc, (union arg){.i = bits}));
}

/* Writes a copy of step n: its box, or one panel of it. */
static void write_box(struct steps *s, int i, struct uop *n, struct uop *stage, int64_t panel)
{
    struct tgc *t = s->e->t;
    const struct box *b = &s->box[i];
    struct uop_map by = {.t = t, .scratch = true};
    struct uop *memory = s->copy[i].store->src[0], *src[BULK_AXES + BULK_AXIS * BULK_RANK];
    const struct buffer *to = uop_buffer_of(memory);
    int64_t row = to->scratch.panel ? PANEL_ROW_NBYTES / (int64_t)dtype_nbytes(to->dtype) : b->row;
    steps_map(s, &by, n);
    src[BULK_TO] = memory;
    src[BULK_OFFSET] =
        sym_addi(t, sym_muli(t, stage, steps_stage_nelem(memory)), panel * to->scratch.panel);
    src[BULK_BARRIERS] = s->full;
    src[BULK_NUMBER] = stage;
    src[BULK_FROM] = b->memory;
    src[BULK_FIRST] = uop_int(t, b->first);
    for (int a = 0; a < b->rank; a++) {
        struct uop **axis = src + BULK_AXES + a * BULK_AXIS;
        axis[0] = uop_substitute_all(t, b->axis[a].coordinate, &by);
        axis[1] = uop_int(t, b->axis[a].size);
        axis[2] = uop_int(t, b->axis[a].stride);
        axis[3] = uop_int(t, b->axis[a].extent);
    }
    src[BULK_AXES] = sym_addi(t, src[BULK_AXES], panel * row);
    src[BULK_AXES + 3] = uop_int(t, row);
    push_statement(s->e, OP_BULK, src, BULK_AXES + b->rank * BULK_AXIS,
                   ARG_PACK(BULK, to->scratch.panel ? PANEL_ROW_NBYTES : 0,
                            to->scratch.pipeline.multicast,
                            to->scratch.pipeline.cluster ? to->scratch.pipeline.cluster : 1));
}

static void write_boxes(struct steps *s, struct uop *n, struct uop *stage)
{
    struct uop *src[2] = {s->full, stage};
    int64_t nbytes = 0;
    for (int i = 0; i < s->ncopy; i++)
        nbytes +=
            s->box[i].nelem * (int64_t)dtype_nbytes(uop_buffer_of(s->copy[i].store->src[0])->dtype);
    push_statement(s->e, OP_MBAR_ARRIVE, src, 2, nbytes);
    for (int i = 0; i < s->ncopy; i++) {
        const struct buffer *to = uop_buffer_of(s->copy[i].store->src[0]);
        for (int64_t p = 0;
             p == 0 || (to->scratch.panel && p < s->box[i].nelem / to->scratch.panel); p++)
            write_box(s, i, n, stage, p);
    }
}

static void read_boxes(struct steps *s)
{
    for (int i = 0; i < s->ncopy; i++) {
        struct of_step *c = &s->copy[i];
        struct uop *loop[STEP_LOOPS + 1] = {c->thread};
        const char *why;
        for (int k = 0; k < c->nloop; k++)
            loop[1 + k] = c->loop[k];
        if (!box_read(s->e->t, c->store->src[2], c->store->src[1], loop, 1 + c->nloop,
                      (struct box_to){uop_buffer_of(c->store->src[0]), true}, &s->box[i],
                      &why))
            TGC_BUG(s->e->t, "what comes in bulk is no box: %s", why);
    }
}

static struct uop *new_barriers(struct steps *s)
{
    struct buffer *b = kernel_new_scratch(s->e->t, s->kernel, DTYPE_U64, s->by.stages);
    b->scratch.space = SPACE_SHARED;
    /* only this program uses it; no AST has it */
    b->nbytes = (size_t)s->by.stages * dtype_nbytes(DTYPE_U64);
    return uop_buffer(s->e->t, b);
}

/* The block's threads: those of the open loops, or all of the kernel's. */
static int64_t count_threads(const struct steps *s)
{
    int64_t n = 1;
    if (range_is(s->loop[s->nloop - 1], AXIS_BAND))
        return s->kernel->block;
    for (int i = 0; i < s->first; i++)
        if (range_is_item(s->e->in[i]) && expand_find_end(s->e, i) > s->first)
            n = sat_mul(n, range_fixed_size(s->e->in[i]));
    return n;
}

/* Lanes of a subgroup, if subgroups are whole; else 1. */
static int wave_lanes(const struct steps *s)
{
    int64_t lanes = s->e->t->device ? s->e->t->device->wave : 1;
    return count_threads(s) % lanes ? 1 : (int)lanes;
}

/* Initializes the barriers. One thread arrives at `full`; each subgroup arrives at `empty`. */
static void begin_barriers(struct steps *s)
{
    struct expander *e = s->e;
    s->full = new_barriers(s);
    s->empty = new_barriers(s);
    push_statement(e, OP_MBAR_INIT, &s->full, 1, ARG_PACK(MBAR, 1, 1));
    push_statement(e, OP_MBAR_INIT, &s->empty, 1,
                   ARG_PACK(MBAR, count_threads(s) / wave_lanes(s), s->by.cluster));
    steps_push(e, OP_BARRIER, e->next_acc++);
    if (s->by.cluster > 1)
        steps_push(e, OP_CLUSTER_BARRIER, e->next_acc++);
}

/* A loop over the block's threads. */
static struct uop *open_threads(struct steps *s)
{
    struct uop *thread =
        uop_axis(s->e->t, uop_int(s->e->t, s->kernel->block), AXIS_LOOP, WORKER_BLOCK);
    expand_push(s->e, thread);
    expand_enter(s->e);
    return thread;
}

static void close_threads(struct steps *s, struct uop *thread)
{
    expand_push(s->e, uop_intern(s->e->t, OP_END, DTYPE_VOID, &thread, 1, (union arg){0}));
    expand_leave(s->e);
}

/* Emits the copies of step n's boxes (TMA), which the block's first thread starts if n is less than
 * the number of steps. Placed outside of loops over threads. waits: emits a wait for the barrier
 * that says the stage is empty before them. */
static void write_iteration(struct steps *s, struct uop *n, bool waits)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    struct uop *stages = uop_int(t, s->by.stages), *stage = sym_mod(t, n, stages),
               *before = sym_addi(t, sym_div(t, n, stages), 1);
    struct uop *until_empty[3] = {s->empty, stage, sym_mod(t, before, uop_int(t, 2))};
    struct uop *thread = open_threads(s),
               *guard = steps_open(
                   e, sym_and(t, sym_lt(t, thread, uop_int(t, 1)), sym_lt(t, n, s->count)));
    if (waits)
        push_statement(e, OP_MBAR_WAIT, until_empty, 3, 0);
    write_boxes(s, n, stage);
    steps_close(e, guard);
    close_threads(s, thread);
}

/* Writes a consumer's step: waits for its stage, computes, and releases the stage that the step
 * before has read. */
static void write_consumed(struct steps *s, struct uop *step, int lanes)
{
    struct tgc *t = s->e->t;
    struct uop *stages = uop_int(t, s->by.stages), *stage = sym_mod(t, step, stages),
               *parity = sym_mod(t, sym_div(t, step, stages), uop_int(t, 2)),
               *until_full[3] = {s->full, stage, parity},
               *release[2] = {s->empty, sym_mod(t, sym_addi(t, step, s->by.stages - 1), stages)};
    for (int i = s->start; i < s->begin; i++)
        steps_copy(s->e, s->e->in[i]);
    push_statement(s->e, OP_MBAR_WAIT, until_full, 3, 0);
    for (int i = s->second + 1; i < s->end; i++)
        steps_write(s, s->e->in[i], stage);
    push_statement(s->e, OP_MBAR_RELEASE, release, 2, ARG_PACK(RELEASE, lanes, 1, s->by.cluster));
}

/* Waits as if there were more steps, until all released stages are empty. After that no block of
 * the cluster signals this one's barriers, so it may end. */
static void write_tail(struct steps *s)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    struct uop *more = uop_axis(t, uop_int(t, s->by.stages - 1), AXIS_LOOP, WORKER_EACH),
               *step = sym_add(t, more, s->count), *stages = uop_int(t, s->by.stages),
               *before = sym_addi(t, sym_div(t, sym_addi(t, step, 1), stages), 1),
               *until_empty[3] = {s->empty, sym_mod(t, step, stages),
                                  sym_mod(t, before, uop_int(t, 2))};
    expand_need(e, s->count);
    expand_push(e, more);
    expand_enter(e);
    push_statement(e, OP_MBAR_WAIT, until_empty, 3, 0);
    expand_push(e, uop_intern(t, OP_END, DTYPE_VOID, &more, 1, (union arg){0}));
    expand_leave(e);
}

void steps_end_cluster(struct steps *s)
{
    struct tgc *t = s->e->t;
    /* a band is outside of loops over the block's threads */
    struct uop *own = range_is(s->loop[0], AXIS_BAND) ? open_threads(s) : NULL,
               *guard = steps_open(s->e, sym_lt(t, own ? own : s->thread, uop_int(t, 1)));
    write_tail(s);
    steps_close(s->e, guard);
    if (own)
        close_threads(s, own);
}

void steps_in_bulk(struct steps *s)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    struct uop *step = steps_number(s), *stages = uop_int(t, s->by.stages),
               *ahead = sym_addi(t, step, s->by.stages - 1),
               *first = sym_lt(t, s->thread, uop_int(t, 1)), *other = sym_mod(t, ahead, stages),
               *parity = sym_mod(t, sym_div(t, step, stages), uop_int(t, 2));
    read_boxes(s);
    begin_barriers(s);
    struct uop *until_empty[3] = {s->empty, other, parity}, *guard;
    if (range_is(s->loop[0], AXIS_BAND)) {               /* outside of loops over the block's
                                                          * threads */
        for (int k = 0; k < s->by.stages - 1; k++)
            write_iteration(s, uop_int(t, k), false);
    } else {
        guard = steps_open(e, first);
        for (int k = 0; k < s->by.stages - 1; k++)
            write_boxes(s, uop_int(t, k), uop_int(t, k));
        steps_close(e, guard);
    }
    write_consumed(s, step, wave_lanes(s));
    guard = steps_open(e, sym_and(t, first, sym_lt(t, ahead, s->count)));
    push_statement(e, OP_MBAR_WAIT, until_empty, 3, 0);
    write_boxes(s, ahead, other);
    steps_close(e, guard);
}

/* ---------------------------------------------------------------------------------------- roles */

static struct uop *open_role(struct steps *s, enum thread_role role)
{
    int64_t bits = ARG_PACK(ROLE, role, count_threads(s));
    return steps_open(s->e,
                      uop_intern(s->e->t, OP_ROLE, DTYPE_BOOL, NULL, 0, (union arg){.i = bits}));
}

/* Producers give most of their registers to consumers, where the device can do that. */
static void write_registers(struct steps *s, enum thread_role role)
{
    int64_t n = device_role_registers(s->e->t, count_threads(s), s->by.producers, role);
    if (n)
        steps_push(s->e, OP_REGISTERS, ARG_PACK(REGISTERS, n, role == ROLE_CONSUMERS));
}

static void write_produced(struct steps *s)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    struct uop *step = uop_axis(t, s->count, AXIS_LOOP, WORKER_EACH),
               *stages = uop_int(t, s->by.stages), *stage = sym_mod(t, step, stages),
               *iteration = sym_div(t, sym_addi(t, step, 1), stages),
               *parity = sym_mod(t, sym_addi(t, iteration, 1), uop_int(t, 2)),
               *until_empty[3] = {s->empty, stage, parity};
    expand_need(e, s->count);
    expand_push(e, step);
    expand_enter(e);
    push_statement(e, OP_MBAR_WAIT, until_empty, 3, 0);
    write_boxes(s, step, stage);
    expand_push(e, uop_intern(t, OP_END, DTYPE_VOID, &step, 1, (union arg){0}));
    expand_leave(e);
    if (s->by.cluster > 1)
        write_tail(s);
}

struct uop *steps_begin_roles(struct steps *s)
{
    struct expander *e = s->e;
    read_boxes(s);
    begin_barriers(s);
    struct uop *all = open_role(s, ROLE_PRODUCERS);
    write_registers(s, ROLE_PRODUCERS);
    struct uop *one = open_role(s, ROLE_PRODUCER);
    write_produced(s);
    steps_close(e, one);
    steps_close(e, all);
    all = open_role(s, ROLE_CONSUMERS);
    write_registers(s, ROLE_CONSUMERS);
    return all;
}

struct uop *steps_barrier(const struct steps *s, const struct uop *of_all)
{
    return uop_intern(
        s->e->t, OP_BARRIER, DTYPE_VOID, NULL, 0,
        (union arg){.i = ARG_PACK(BARRIER, BARRIER_ID(of_all->arg.i), count_threads(s))});
}

void steps_of_consumers(struct steps *s)
{
    if (!s->full)
        TGC_BUG(s->e->t, "threads have taken no roles");
    write_consumed(s, steps_number(s), wave_lanes(s));
}

/* ------------------------------------------------------------------ of the iterations of a band */

void bands_begin_in_bulk(struct steps *s)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    struct uop *iteration = s->loop[0], *stages = uop_int(t, s->by.stages),
               *stage = sym_mod(t, iteration, stages);
    struct uop *until_full[3] = {s->full, stage,
                                 sym_mod(t, sym_div(t, iteration, stages), uop_int(t, 2))};
    read_boxes(s);
    begin_barriers(s);
    until_full[0] = s->full;
    s->count = iteration->src[0];
    for (int k = 0; k < s->by.stages - 1; k++)
        write_iteration(s, uop_int(t, k), false);
    steps_copy(e, iteration);
    push_statement(e, OP_MBAR_WAIT, until_full, 3, 0);
}

void bands_end_in_bulk(struct steps *s)
{
    struct tgc *t = s->e->t;
    struct uop *read[2] = {s->empty, sym_mod(t, s->loop[0], uop_int(t, s->by.stages))};
    push_statement(s->e, OP_MBAR_RELEASE, read, 2, ARG_PACK(RELEASE, wave_lanes(s), 0));
    write_iteration(s, sym_addi(t, s->loop[0], s->by.stages - 1), true);
}
