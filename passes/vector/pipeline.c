/* pipeline.c - n-stage pipelines of copies to shared memory (PIPELINE): later steps are loaded
 * while the block computes with this one's, with one barrier a step.
 *
 *      for k                              copy[0] = x of step 0
 *        barrier                          for k
 *        copy = x of step k                 barrier
 *        barrier                            next = x of step k + 1        registers
 *        sum += copy ...                    sum += copy[k % 2] ...
 *                                           copy[(k + 1) % 2] = next
 *
 *      asynchronously, n stages:          copy[0], commit, ... copy[n - 2], commit
 *                                         for k
 *                                           wait until n - 2 groups are left: step k's is there
 *                                           barrier
 *                                           if k + n - 1 is a step: copy[(k + n - 1) % n]
 *                                           commit
 *                                           sum += copy[k % n] ...
 *
 *      whole operands, asynchronously     copy[0], commit, ... copy[n - 2], commit
 *      (bulk copies: pipeline_bulk.c)
 *      for block (a band)                 for block
 *        barrier, copy, barrier             wait, barrier
 *        sum += copy ...                    if block + n - 1 is one: copy[(block + n - 1) % n]
 *        barrier, copy', barrier            commit
 *        sum' += copy' ...                  sum += copy[block % n] ...
 *                                           sum' += copy'[block % n] ...
 *
 * Software pipelining (Lam, PLDI 1988). The stage that is overwritten was last read before the
 * barrier. The barrier also publishes the other threads' copies, since each thread has waited for
 * its own. Each thread copies its own elements, so its registers can hold them in between.
 *
 * Through registers the last step loads itself again, which avoids a branch. After the last
 * steps groups are empty, so that each step waits for the same number. Steps of several nested
 * loops are numbered in order, by k. opts_pipeline.c has the conditions; pipeline_bulk.c writes
 * bulk copies. */
#include "passes/analysis/copied.h"
#include "passes/analysis/nest.h"
#include "passes/vector/pipeline.h"
#include "ir/device_ops.h"

static bool has_parts(const struct uop *u)
{
    return (u->op == OP_LOAD || u->op == OP_STORE) &&
           uop_buffer_of(u->src[0])->scratch.pipeline.stages;
}

int64_t steps_stage_nelem(const struct uop *memory)
{
    const struct buffer *b = uop_buffer_of(memory);
    return b->dim[0]->vmax / b->scratch.pipeline.stages;
}

static bool is_step(const struct uop *u)
{
    return u->op == OP_RANGE && RANGE_WORKER(u->arg.i) == WORKER_EACH && !range_is_lane(u);
}

/* Finds the copies between the two barriers, each with its loops. */
static void find_copies(struct steps *s)
{
    struct uop *open[STEP_LOOPS];
    int depth = 0;
    for (int i = s->begin; i < s->second; i++) {
        struct uop *u = s->e->in[i];
        if (u->op == OP_RANGE && depth < STEP_LOOPS)
            open[depth++] = u;
        depth -= u->op == OP_END;
        if (u->op != OP_STORE)
            continue;
        struct of_step *c = &s->copy[s->ncopy++];
        *c = (struct of_step){.store = u};
        const int cluster = s->by.cluster;
        s->by = uop_buffer_of(u->src[0])->scratch.pipeline;
        s->by.cluster = s->by.cluster > cluster ? s->by.cluster : cluster;
        for (int k = 0; k < depth; k++)
            if (range_is_of_block(open[k]))
                c->thread = open[k];
            else
                c->loop[c->nloop++] = open[k];
    }
}

/* Whether the loop at `at` is the outermost of pipelined steps. A band inside another loop is not:
 * find_bands() distributes its copies over the threads anew. */
static bool find_steps(struct steps *s, int at)
{
    struct expander *e = s->e;
    bool any = false;
    s->first = at;
    s->second = -1;
    while (s->nloop < STEP_LOOPS && is_step(e->in[at]) &&
           !(s->nloop && range_is(e->in[at], AXIS_BAND))) {
        s->loop[s->nloop++] = e->in[at];
        any = true;
        s->end = expand_find_end(e, at);
        for (at++; op_is_elementwise(e->in[at]->op); at++)
            continue;
    }
    if (!any || e->in[at]->op != OP_BARRIER)
        return false;
    s->begin = at;
    bool copies = false;
    for (int i = at + 1; i < s->end && s->second < 0; i++) {
        copies |= e->in[i]->op == OP_STORE && has_parts(e->in[i]);
        s->second = e->in[i]->op == OP_BARRIER ? i : -1;
    }
    if (copies)
        find_copies(s);
    return copies;
}

/* Whether the loop at `at` is one of steps or contains one: then steps are counted through all its
 * iterations. */
static bool find_counted(struct steps *s, int at)
{
    const struct steps none = *s;
    struct expander *e = s->e;
    int end = expand_find_end(e, at);
    bool found = find_steps(s, at);
    for (int i = at + 1; i < end && !found; i++) {
        bool opens = e->in[i]->op == OP_RANGE || e->in[i]->op == OP_GUARD;
        *s = none;
        s->loop[s->nloop++] = e->in[at];
        found = is_step(e->in[i]) && find_steps(s, i);
        i = opens && !range_is_item(e->in[i]) ? expand_find_end(e, i) : i;
    }
    s->start = at;
    return found;
}

/* How many steps there are. */
static struct uop *count_steps(const struct steps *s)
{
    struct uop *n = uop_int(s->e->t, 1);
    for (int i = 0; i < s->nloop; i++)
        n = sym_mul(s->e->t, n, s->loop[i]->src[0]);
    return n;
}

struct uop *steps_number(const struct steps *s)
{
    struct tgc *t = s->e->t;
    struct uop *n = uop_int(t, 0);
    for (int i = 0; i < s->nloop; i++)
        n = sym_add(t, sym_muli(t, n, range_fixed_size(s->loop[i])), s->loop[i]);
    return n;
}

/* Maps the loops' variables to their values in step n. */
void steps_map(const struct steps *s, struct uop_map *by, struct uop *n)
{
    struct tgc *t = s->e->t;
    for (int i = s->nloop - 1; i >= 0; i--) {
        struct uop *size = s->loop[i]->src[0];
        map_set(by, s->loop[i], i ? sym_mod(t, n, size) : n);
        n = sym_div(t, n, size);
    }
}

/* The thread's number in the open loops. Registers belong to a thread, so a copy's loop over the
 * block's threads becomes this number. */
static struct uop *thread_number(const struct steps *s)
{
    struct tgc *t = s->e->t;
    struct uop *n = uop_int(t, 0);
    for (int i = 0; i < s->first; i++)
        if (range_is_item(s->e->in[i]) && expand_find_end(s->e, i) > s->first)
            n = sym_add(t, sym_muli(t, n, range_fixed_size(s->e->in[i])), s->e->in[i]);
    return n;
}

static struct uop *open_loop(struct expander *e, struct uop *r)
{
    expand_push(e, r);
    expand_enter(e);
    return r;
}

static void close_loop(struct expander *e, struct uop *r)
{
    expand_push(e, uop_intern(e->t, OP_END, DTYPE_VOID, &r, 1, (union arg){0}));
    expand_leave(e);
}

/* Gives a copy's loops ranges of their own: lanes, for each thread's elements, so that registers
 * can hold them. */
static void own_loops(struct steps *s, struct of_step *c)
{
    struct tgc *t = s->e->t;
    for (int k = 0; k < c->nloop; k++) {
        struct uop *r = c->loop[k];
        bool vector = range_is_lane(r) || range_is(r, AXIS_GROUP);
        c->own[k] = uop_axis(t, r->src[0], vector ? RANGE_AXIS(r->arg.i) : AXIS_LANE, WORKER_EACH);
    }
}

enum phase { COPY, LOAD, STORE };

/* Writes one phase of the copy of step n; stage: the stage that it stores to. */
static void write_copy(struct steps *s, struct of_step *c, enum phase phase, struct uop *n,
                       struct uop *stage)
{
    struct expander *e = s->e;
    struct uop_map by = {.t = e->t, .scratch = true};
    steps_map(s, &by, n);
    map_set(&by, c->thread, s->thread);
    for (int k = 0; k < c->nloop; k++)
        map_set(&by, c->loop[k], open_loop(e, c->own[k]));
    struct uop *value = phase == STORE ? c->acc : uop_substitute_all(e->t, c->store->src[2], &by);
    struct uop *place = sym_add(e->t, uop_substitute_all(e->t, c->store->src[1], &by),
                                sym_muli(e->t, stage, steps_stage_nelem(c->store->src[0])));
    if (phase != STORE)
        expand_need(e, value);
    if (phase != LOAD)
        expand_need(e, place);
    struct uop *store[3] = {c->store->src[0], place, value}, *assign[2] = {c->acc, value};
    expand_push(e, phase == LOAD
                       ? uop_intern(e->t, OP_ASSIGN, value->dtype, assign, 2, (union arg){0})
                       : uop_intern(e->t, OP_STORE, c->store->dtype, store, 3, (union arg){0}));
    for (int k = c->nloop - 1; k >= 0; k--)
        close_loop(e, c->own[k]);
}

/* Declares registers for the copy's loads, one for each of a thread's elements. */
static void declare_registers(struct steps *s, struct of_step *c)
{
    struct expander *e = s->e;
    struct uop *src[STEP_LOOPS + 1] = {uop_consti(e->t, c->store->src[2]->dtype, 0)};
    for (int k = 0; k < c->nloop; k++)
        src[k + 1] = c->own[k];
    c->acc = uop_intern(e->t, OP_ACC, c->store->src[2]->dtype, src, 1 + c->nloop,
                        (union arg){.i = e->next_acc++});
    expand_push(e, c->acc);
}

void steps_copy(struct expander *e, struct uop *u)
{
    if (op_is_elementwise(u->op) && (u->dtype == DTYPE_INDEX || u->dtype == DTYPE_BOOL))
        expand_need(e, u);
    else
        expand_copy(e, u);
}

void steps_write(struct steps *s, struct uop *u, struct uop *stage)
{
    struct expander *e = s->e;
    struct uop **src = scratch_array(e->t, (size_t)u->nsrc + 1, sizeof *src);
    bool changed = has_parts(u);
    for (int k = 0; k < u->nsrc; k++) {
        struct uop *now = map_get(&s->now, u->src[k]);
        src[k] = now ? now : u->src[k];
        changed |= now != NULL;
    }
    if (!changed) {
        steps_copy(e, u);
        return;
    }
    if (has_parts(u)) {
        src[1] = sym_add(e->t, src[1], sym_muli(e->t, stage, steps_stage_nelem(u->src[0])));
        expand_need(e, src[1]);
    }
    struct uop *now = uop_intern(e->t, u->op, u->dtype, src, u->nsrc, u->arg);
    uop_set_origin(e->t, now, u);
    map_set(&s->now, u, now);
    steps_copy(e, now);
}

/* ------------------------------------------------------------------------------- asynchronously */

void steps_push(struct expander *e, enum op op, int64_t bits)
{
    expand_push(e, uop_intern(e->t, op, DTYPE_VOID, NULL, 0, (union arg){.i = bits}));
}

struct uop *steps_open(struct expander *e, struct uop *condition)
{
    expand_need(e, condition);
    struct uop *guard =
        uop_intern(e->t, OP_GUARD, DTYPE_VOID, &condition, 1, (union arg){.i = e->next_acc++});
    expand_push(e, guard);
    expand_enter(e);
    return guard;
}

void steps_close(struct expander *e, struct uop *guard)
{
    expand_push(e, uop_intern(e->t, OP_ENDGUARD, DTYPE_VOID, &guard, 1, (union arg){0}));
    expand_leave(e);
}

/* Writes the copies of step n to stage `stage`. */
static void write_transfers(struct steps *s, struct uop *n, struct uop *stage)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    for (int i = 0; i < s->ncopy; i++) {
        struct of_step *c = &s->copy[i];
        struct uop_map by = {.t = t, .scratch = true};
        struct copied x;
        if (!copied_read(t, c->store->src[2], c->store->src[1], c->loop, c->nloop, &x))
            TGC_BUG(t, "what comes asynchronously is no copy");
        own_loops(s, c);
        steps_map(s, &by, n);
        map_set(&by, c->thread, s->thread);
        for (int k = 0; k < c->nloop; k++)
            if (!range_is_lane(c->loop[k]) && !range_is(c->loop[k], AXIS_GROUP))
                map_set(&by, c->loop[k], open_loop(e, c->own[k]));
        struct uop *src[5] = {c->store->src[0], uop_substitute_all(t, x.at, &by), x.memory,
                              uop_substitute_all(t, x.from, &by),
                              x.valid ? uop_substitute_all(t, x.valid, &by) : NULL};
        src[1] = sym_add(t, src[1], sym_muli(t, stage, steps_stage_nelem(src[0])));
        for (int k = 1; k < 5; k++)
            if (src[k] && k != 2)
                expand_need(e, src[k]);
        expand_push(
            e, uop_intern(t, OP_COPY, DTYPE_VOID, src, x.valid ? 5 : 4, (union arg){.i = x.lanes}));
        for (int k = c->nloop - 1; k >= 0; k--)
            if (!range_is_lane(c->loop[k]) && !range_is(c->loop[k], AXIS_GROUP))
                close_loop(e, c->own[k]);
    }
}

static void write_asynchronous(struct steps *s)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    struct uop *step = steps_number(s), *stages = uop_int(t, s->by.stages),
               *ahead = sym_addi(t, step, s->by.stages - 1);
    for (int k = 0; k < s->by.stages - 1; k++) {
        write_transfers(s, uop_int(t, k), uop_int(t, k));
        steps_push(e, OP_COMMIT, e->next_acc++);
    }
    for (int i = s->start; i < s->begin; i++)
        steps_copy(e, e->in[i]);
    steps_push(e, OP_WAIT, ARG_PACK(WAIT, e->next_acc++, s->by.stages - 2));
    steps_copy(e, e->in[s->begin]);
    struct uop *guard = steps_open(e, sym_lt(t, ahead, s->count));
    write_transfers(s, ahead, sym_mod(t, ahead, stages));
    steps_close(e, guard);
    steps_push(e, OP_COMMIT, e->next_acc++);
    for (int i = s->second + 1; i < s->end; i++)
        steps_write(s, e->in[i], sym_mod(t, step, stages));
}

/* ---------------------------------------------------------------------------- through registers */

static void write_through_registers(struct steps *s)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    struct uop *step = steps_number(s), *zero = uop_int(t, 0), *one = uop_int(t, 1),
               *next = sym_min(t, sym_addi(t, step, 1), sym_addi(t, s->count, -1)),
               *stage = sym_mod(t, step, uop_int(t, 2)), *other = sym_sub(t, one, stage);
    for (int k = 0; k < s->ncopy; k++) {
        own_loops(s, &s->copy[k]);
        write_copy(s, &s->copy[k], COPY, zero, zero);
    }
    for (int i = s->start; i <= s->begin; i++)
        steps_copy(e, e->in[i]);              /* the loops, and the barrier */
    for (int k = 0; k < s->ncopy; k++) {
        own_loops(s, &s->copy[k]);
        declare_registers(s, &s->copy[k]);
    }
    for (int k = 0; k < s->ncopy; k++)
        write_copy(s, &s->copy[k], LOAD, next, zero);
    for (int i = s->second + 1; i < s->end; i++)
        steps_write(s, e->in[i], stage);
    for (int k = 0; k < s->ncopy; k++)
        write_copy(s, &s->copy[k], STORE, next, other);
}

/* ------------------------------------------------------------------ of the iterations of a band */

/* The end of the copy loop that begins at `at`; -1: none begins there. */
static int copy_begins(const struct expander *e, int at)
{
    if (e->in[at]->op != OP_RANGE || range_is(e->in[at], AXIS_BAND))
        return -1;
    for (int i = at, end = expand_find_end(e, at); i < end; i++)
        if (e->in[i]->op == OP_STORE && has_parts(e->in[i]))
            return end;
    return -1;
}

static bool find_bands(struct steps *s, int at)
{
    struct expander *e = s->e;
    if (!range_is(e->in[at], AXIS_BAND))
        return false;
    s->loop[0] = e->in[at];
    s->nloop = 1;
    s->first = s->begin = at;
    s->second = s->end = expand_find_end(e, at);
    for (int i = at + 1; i < s->end; i++)
        if (range_is(e->in[i], AXIS_BAND))
            return false;
    for (int i = at + 1, last; i < s->end; i++)
        if (range_is_item(e->in[i]))
            i = expand_find_end(e, i);        /* copies in it are of steps of sums */
        else if ((last = copy_begins(e, i)) > 0) {
            s->begin = i;
            s->second = last;
            find_copies(s);
            i = last;
        }
    return s->ncopy > 0;
}

/* Whether the loop passes on values in shared memory other than the copies. */
static bool passes_on(const struct steps *s)
{
    for (int i = s->first; i < s->end; i++) {
        const struct uop *u = s->e->in[i];
        if (u->op == OP_STORE && !has_parts(u) &&
            buffer_space(uop_buffer_of(u->src[0])) == SPACE_SHARED)
            return true;
    }
    return false;
}

/* Writes the copies of iteration n, if there is one. */
static void write_iteration(struct steps *s, struct uop *n, struct uop *stage)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    struct uop *is = sym_lt(t, n, s->loop[0]->src[0]),
               *guard = uop_is_int(is, 1) ? NULL : steps_open(e, is);
    s->thread = open_loop(e, uop_axis(t, uop_int(t, s->kernel->block), AXIS_LOOP, WORKER_BLOCK));
    write_transfers(s, n, stage);
    close_loop(e, s->thread);
    if (guard)
        steps_close(e, guard);
    steps_push(e, OP_COMMIT, e->next_acc++);
}

static void begin_bands(struct steps *s)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    struct uop *ahead = sym_addi(t, s->loop[0], s->by.stages - 1);
    for (int k = 0; k < s->by.stages - 1; k++)
        write_iteration(s, uop_int(t, k), uop_int(t, k));
    steps_copy(e, s->loop[0]);
    steps_push(e, OP_WAIT, ARG_PACK(WAIT, e->next_acc++, s->by.stages - 2));
    steps_push(e, OP_BARRIER, e->next_acc++);
    write_iteration(s, ahead, sym_mod(t, ahead, uop_int(t, s->by.stages)));
}

static void write_bands(struct steps *s)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    struct uop *iteration = s->loop[0], *stages = uop_int(t, s->by.stages);
    bool passes = passes_on(s), bulk = s->by.transfer == TRANSFER_BULK;
    if (bulk)
        bands_begin_in_bulk(s);
    else
        begin_bands(s);
    for (int i = s->first + 1, last; i < s->end; i++) {
        if ((last = copy_begins(e, i)) > 0)
            i = last;
        else if (passes || e->in[i]->op != OP_BARRIER)
            steps_write(s, e->in[i], sym_mod(t, iteration, stages));
    }
    if (bulk)
        bands_end_in_bulk(s);
}

/* Writes the pipelined steps; returns where the program continues. */
static int write_steps(struct steps *s)
{
    s->thread = thread_number(s);
    s->count = count_steps(s);
    switch (s->by.transfer) {
    case TRANSFER_REGISTERS: write_through_registers(s); break;
    case TRANSFER_ASYNC: write_asynchronous(s); break;
    case TRANSFER_BULK:
        if (s->by.producers)
            steps_of_consumers(s);
        else
            steps_in_bulk(s);
        break;
    case TRANSFER_COUNT: break;
    }
    return s->end;
}

static struct steps *new_steps(struct expander *e, struct kernel *kernel)
{
    struct steps *s = scratch_array(e->t, 1, sizeof *s);
    *s = (struct steps){
        .e = e, .kernel = kernel, .by.cluster = 1, .now = {.t = e->t, .scratch = true}};
    return s;
}

/* The pipeline of the persistent tile loop, a band, that begins at `at`, if it has producers; else
 * NULL. Before the loop, threads branch into producers and consumers. */
static struct steps *find_roles_of_band(struct expander *e, struct kernel *kernel, int at)
{
    struct steps *s =
        is_step(e->in[at]) && range_is(e->in[at], AXIS_BAND) ? new_steps(e, kernel) : NULL;
    if (!s || !find_counted(s, at) || !s->by.producers)
        return NULL;
    s->count = count_steps(s);
    return s;
}

/* Likewise if `at` is the innermost loop of a block's threads, with the steps inside of it. */
static struct steps *find_roles(struct expander *e, struct kernel *kernel, int at)
{
    int next = at + 1;
    if (!range_is_item(e->in[at]))
        return NULL;
    while (op_is_elementwise(e->in[next]->op))
        next++;
    for (int end = expand_find_end(e, at); next < end && !range_is_item(e->in[next]); next++) {
        struct steps *s = is_step(e->in[next]) ? new_steps(e, kernel) : NULL;
        if (s && find_counted(s, next) && s->by.producers) {
            s->count = count_steps(s);
            return s;
        }
    }
    return NULL;
}

/* Whether a serial loop of each thread is open at `at`, as over several heads; grid loops have one
 * iteration. */
static bool is_in_loop(const struct expander *e, int at)
{
    for (int i = 0; i < at; i++)
        if (is_step(e->in[i]) && !range_is_grid(e->in[i]) && expand_find_end(e, i) > at)
            return true;
    return false;
}

/* Writes the steps that begin at `at`, if any; returns what is copied next. *shared, *last: steps
 * with multicast copies, and the end of their loops. *band: the end of a band that needs a barrier:
 * the outer loop's next iteration overwrites what these sums read, and the copies' barriers are
 * gone. */
static int write_steps_at(struct expander *e, struct kernel *kernel, struct steps *of_roles, int at,
                          struct steps **shared, int *last, int *band)
{
    struct steps *s = of_roles && at == of_roles->start ? of_roles : new_steps(e, kernel),
                 *of_band = new_steps(e, kernel);
    if (s != of_roles && find_bands(of_band, at)) {
        *band = is_in_loop(e, at) ? of_band->end : -1;
        write_bands(of_band);
        return of_band->end;
    }
    if (s != of_roles && !find_counted(s, at))
        return at;
    if (s->by.cluster > 1 && s != of_roles)
        *shared = s, *last = expand_find_end(e, at);
    return write_steps(s);
}

static void write_program(struct expander *e, struct kernel *kernel)
{
    struct steps *of_roles = NULL, *shared = NULL, *found;
    struct uop *role = NULL;
    int last = -1, band = -1, roles_end = -1;
    for (int i = 0; i < e->nin; i++) {
        if (!of_roles && (found = find_roles_of_band(e, kernel, i)) != NULL) {
            of_roles = found;
            roles_end = expand_find_end(e, i) + 1;
            role = steps_begin_roles(found);
        }
        i = is_step(e->in[i]) ? write_steps_at(e, kernel, of_roles, i, &shared, &last, &band) : i;
        if (i == roles_end)
            steps_close(e, role);
        steps_copy(e, i < roles_end && e->in[i]->op == OP_BARRIER
                          ? steps_barrier(of_roles, e->in[i])
                          : e->in[i]);
        if (i == band)
            steps_push(e, OP_BARRIER, e->next_acc++);
        if (i == last)
            steps_end_cluster(shared);
        if (!of_roles && (found = find_roles(e, kernel, i)) != NULL) {
            of_roles = found;
            roles_end = expand_find_end(e, i);
            role = steps_begin_roles(found);
        }
    }
}

static void pipeline_program(struct tgc *t, struct kernel *kernel, struct uop ***linear,
                             int *nlinear)
{
    struct mem_mark mark = scratch_mark(t);
    struct expander *e = scratch_array(t, 1, sizeof *e);
    *e = (struct expander){.t = t, .in = *linear, .nin = *nlinear};
    e->scopes.known = (struct uop_map){.t = t, .scratch = true};
    for (int i = 0; i < e->nin; i++)                 /* ids of registers start after all
                                                      * accumulators */
        if ((e->in[i]->op == OP_ACC || e->in[i]->op == OP_BARRIER || e->in[i]->op == OP_GUARD) &&
            BARRIER_ID(e->in[i]->arg.i) >= e->next_acc)
            e->next_acc = BARRIER_ID(e->in[i]->arg.i) + 1;
    write_program(e, kernel);
    *linear = mem_copy(t, e->out, (size_t)e->nout * sizeof *e->out);
    *nlinear = e->nout;
    scratch_release(t, mark);
}

bool pass_pipeline(struct tgc *t, struct schedule *s, struct kernel *k)
{
    bool any = false;
    (void)s;
    for (int i = 0; i < k->nscratch; i++)
        any |= k->scratch[i]->scratch.pipeline.stages != 0;
    if (!any)
        return true;
    pipeline_program(t, k, &k->linear, &k->nlinear);
    for (int i = 0; i < k->nvariant; i++)
        pipeline_program(t, k, &k->variant[i].linear, &k->variant[i].nlinear);
    return true;
}
