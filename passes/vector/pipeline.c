/* pipeline.c - copies in local memory that have several parts (PIPELINE): those of later steps come while
 * a block's threads compute with this one's, and there is one barrier a step.
 *
 *      for k                                  copy[0] = x of step 0
 *        barrier                              for k
 *        copy = x of step k                     barrier
 *        barrier                                next = x of step k + 1        registers
 *        sum += copy ...                        sum += copy[k % 2] ...
 *                                               copy[(k + 1) % 2] = next
 *
 *      asynchronously, of n parts:            copy[0], commit, ... copy[n - 2], commit
 *                                             for k
 *                                               wait until n - 2 groups are left: that of step k is there
 *                                               barrier
 *                                               if k + n - 1 is a step: copy[(k + n - 1) % n]
 *                                               commit
 *                                               sum += copy[k % n] ...
 *
 *      in bulk, see also opts_cluster.c:      thread 0: of steps 0 .. n - 2: expect their bytes, copy boxes
 *                                             for k
 *                                               wait until the bytes of part k % n are there: it is full
 *                                               sum += copy[k % n] ...
 *                                               release part (k + n - 1) % n, which step k - 1 has read
 *                                               thread 0, if k + n - 1 is a step:
 *                                                 wait until all waves have released it: it is empty
 *                                                 expect, copy boxes
 *
 *      of whole operands, asynchronously:     copy[0], commit, ... copy[n - 2], commit
 *      for block (a band)                     for block
 *        barrier, copy, barrier                 wait, barrier
 *        sum += copy ...                        if block + n - 1 is one: copy[(block + n - 1) % n]
 *        barrier, copy', barrier                commit
 *        sum' += copy' ...                      sum += copy[block % n] ..., sum' += copy'[block % n] ...
 *
 * Software pipelining (Lam, PLDI 1988). The part that is stored was read last before the barrier, which
 * also says that the other threads' copies are there: each of them has waited for its own. Each thread
 * copies its own elements, so that its registers hold them meanwhile. In bulk no thread waits for all others: barriers in
 * memory tell of each part when it is full, and when it is empty. A part is released a step late, so that products that
 * are added behind the threads' backs go on meanwhile (products.c). Through registers the last
 * step loads itself again, so that no thread has a branch of its own. Behind the last steps groups are empty, so
 * that each step waits for as many. Steps that are several nested loops are numbered in their order, by k.
 * opts_pipeline.c has the conditions.
 */
#include "passes/analysis/box.h"
#include "passes/analysis/copied.h"
#include "passes/analysis/nest.h"
#include "passes/vector/expand.h"
#include "ir/device_ops.h"

enum { LOOPS = 8 };

/* A loop over steps in e->in: of `loop`, outermost first, the body from `begin` to `end`, the copies up
 * to `second`, the second barrier. */
struct steps {
    struct expander *e;
    struct uop *loop[LOOPS]; int nloop;
    int first, begin, end, second;
    int64_t count;
    int parts; enum transfer how;
    int cluster;                 /* blocks that share copies; 1: each has its own */
    struct uop_map now;          /* of the program -> of the new one */
    struct uop *thread;          /* number in its block */
    struct of_step { struct uop *store, *acc, *at, *turn[LOOPS], *own[LOOPS], *thread; int nturn; } copy[LOOPS];
    int ncopy;
    struct kernel *kernel;
    struct uop *full, *empty;    /* in bulk: barriers of each part: its bytes are there; all waves have read it */
    struct box box[LOOPS];       /* by copy */
};

static bool has_parts(const struct uop *u)
{
    return (u->op == OP_LOAD || u->op == OP_STORE) && uop_buffer_of(u->src[0])->ring;
}

static int64_t part_of(const struct uop *memory)
{
    const struct buffer *b = uop_buffer_of(memory);
    return b->dim[0]->vmax / b->ring;
}

static bool is_step(const struct uop *u)
{
    return u->op == OP_RANGE && RANGE_WORKER(u->arg.i) == WORKER_EACH && !range_is_lane(u);
}

/* The copies between the two barriers, each with its loops. */
static void find_copies(struct steps *s)
{
    struct uop *open[LOOPS];
    int depth = 0;
    for (int i = s->begin; i < s->second; i++) {
        struct uop *u = s->e->in[i];
        if (u->op == OP_RANGE && depth < LOOPS)
            open[depth++] = u;
        depth -= u->op == OP_END;
        if (u->op != OP_STORE)
            continue;
        struct of_step *c = &s->copy[s->ncopy++];
        *c = (struct of_step){.store = u};
        s->parts = uop_buffer_of(u->src[0])->ring;
        s->how = uop_buffer_of(u->src[0])->transfer;
        if (uop_buffer_of(u->src[0])->cluster > s->cluster)
            s->cluster = uop_buffer_of(u->src[0])->cluster;
        for (int k = 0; k < depth; k++)
            if (range_is_of_block(open[k]))
                c->thread = open[k];
            else
                c->turn[c->nturn++] = open[k];
    }
}

/* Whether the loop at `at` is the outermost one of steps whose copies have parts. */
static bool find_steps(struct steps *s, int at)
{
    struct expander *e = s->e;
    s->first = at;
    s->count = 1;
    s->second = -1;
    while (s->nloop < LOOPS && is_step(e->in[at])) {
        s->loop[s->nloop++] = e->in[at];
        s->count = sat_mul(s->count, range_fixed_size(e->in[at]));
        s->end = expand_find_end(e, at);
        for (at++; op_is_elementwise(e->in[at]->op); at++)
            continue;
    }
    if (s->nloop == 0 || e->in[at]->op != OP_BARRIER)
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

/* The number of the step: through all loops. */
static struct uop *step_number(const struct steps *s)
{
    struct tgc *t = s->e->t;
    struct uop *n = uop_int(t, 0);
    for (int i = 0; i < s->nloop; i++)
        n = sym_add(t, sym_muli(t, n, range_fixed_size(s->loop[i])), s->loop[i]);
    return n;
}

/* The loops' variables in step number n. */
static void map_step(const struct steps *s, struct uop_map *by, struct uop *n)
{
    struct tgc *t = s->e->t;
    for (int i = s->nloop - 1; i >= 0; i--) {
        struct uop *size = s->loop[i]->src[0];
        map_set(by, s->loop[i], i ? sym_mod(t, n, size) : n);
        n = sym_div(t, n, size);
    }
}

/* The number of a thread in the loops that are open: its registers are not another one's, so the loop that a
 * block shares in a copy becomes the thread's own place. */
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

/* A copy's loops, with ranges of their own: a thread's turns are lanes, so that registers hold them. */
static void own_loops(struct steps *s, struct of_step *c)
{
    struct tgc *t = s->e->t;
    for (int k = 0; k < c->nturn; k++) {
        struct uop *r = c->turn[k];
        bool vector = range_is_lane(r) || range_is(r, AXIS_GROUP);
        c->own[k] = uop_axis(t, r->src[0], vector ? RANGE_AXIS(r->arg.i) : AXIS_LANE, WORKER_EACH);
    }
}

enum phase { COPY, LOAD, STORE };

/* What the copy does in this phase of step n; part: where it is stored. */
static void write_copy(struct steps *s, struct of_step *c, enum phase phase, struct uop *n, struct uop *part)
{
    struct expander *e = s->e;
    struct uop_map by = {.t = e->t, .scratch = true};
    map_step(s, &by, n);
    map_set(&by, c->thread, s->thread);
    for (int k = 0; k < c->nturn; k++)
        map_set(&by, c->turn[k], open_loop(e, c->own[k]));
    struct uop *value = phase == STORE ? c->acc : uop_substitute_all(e->t, c->store->src[2], &by);
    struct uop *place = sym_add(e->t, uop_substitute_all(e->t, c->store->src[1], &by),
                                sym_muli(e->t, part, part_of(c->store->src[0])));
    if (phase != STORE)
        expand_need(e, value);
    if (phase != LOAD)
        expand_need(e, place);
    struct uop *store[3] = {c->store->src[0], place, value}, *assign[2] = {c->acc, value};
    expand_push(e, phase == LOAD ? uop_intern(e->t, OP_ASSIGN, value->dtype, assign, 2, (union arg){0})
                                 : uop_intern(e->t, OP_STORE, c->store->dtype, store, 3, (union arg){0}));
    for (int k = c->nturn - 1; k >= 0; k--)
        close_loop(e, c->own[k]);
}

/* Registers for what the copy loads: one for each of a thread's turns. */
static void declare_registers(struct steps *s, struct of_step *c)
{
    struct expander *e = s->e;
    struct uop *src[LOOPS + 1] = {uop_consti(e->t, c->store->src[2]->dtype, 0)};
    for (int k = 0; k < c->nturn; k++)
        src[k + 1] = c->own[k];
    c->acc = uop_intern(e->t, OP_ACC, c->store->src[2]->dtype, src, 1 + c->nturn, (union arg){.i = e->next_acc++});
    expand_push(e, c->acc);
}

/* u of the program; coordinates and conditions may be known already, from a copy's. */
static void copy(struct expander *e, struct uop *u)
{
    if (op_is_elementwise(u->op) && (u->dtype == DTYPE_INDEX || u->dtype == DTYPE_BOOL))
        expand_need(e, u);
    else
        expand_copy(e, u);
}

/* u with operands as they are now; a load from a copy is of this step's part. */
static void write_other(struct steps *s, struct uop *u, struct uop *part)
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
        copy(e, u);
        return;
    }
    if (has_parts(u)) {
        src[1] = sym_add(e->t, src[1], sym_muli(e->t, part, part_of(u->src[0])));
        expand_need(e, src[1]);
    }
    struct uop *now = uop_intern(e->t, u->op, u->dtype, src, u->nsrc, u->arg);
    uop_set_origin(e->t, now, u);
    map_set(&s->now, u, now);
    copy(e, now);
}

/* ---------------------------------------------------------------------------------- asynchronously */

static void push_id(struct expander *e, enum op op, int64_t bits)
{
    expand_push(e, uop_intern(e->t, op, DTYPE_VOID, NULL, 0, (union arg){.i = bits}));
}

static struct uop *open_guard(struct expander *e, struct uop *condition)
{
    expand_need(e, condition);
    struct uop *guard = uop_intern(e->t, OP_GUARD, DTYPE_VOID, &condition, 1, (union arg){.i = e->next_acc++});
    expand_push(e, guard);
    expand_enter(e);
    return guard;
}

static void close_guard(struct expander *e, struct uop *guard)
{
    expand_push(e, uop_intern(e->t, OP_ENDGUARD, DTYPE_VOID, &guard, 1, (union arg){0}));
    expand_leave(e);
}

/* The copies of step n to a part of their own. */
static void write_transfers(struct steps *s, struct uop *n, struct uop *part)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    for (int i = 0; i < s->ncopy; i++) {
        struct of_step *c = &s->copy[i];
        struct uop_map by = {.t = t, .scratch = true};
        struct copied x;
        if (!copied_read(t, c->store->src[2], c->store->src[1], c->turn, c->nturn, &x))
            TGC_BUG(t, "what comes asynchronously is no copy");
        own_loops(s, c);
        map_step(s, &by, n);
        map_set(&by, c->thread, s->thread);
        for (int k = 0; k < c->nturn; k++)
            if (!range_is_lane(c->turn[k]) && !range_is(c->turn[k], AXIS_GROUP))
                map_set(&by, c->turn[k], open_loop(e, c->own[k]));
        struct uop *src[5] = {c->store->src[0], uop_substitute_all(t, x.at, &by), x.memory, uop_substitute_all(t, x.from, &by),
                              x.valid ? uop_substitute_all(t, x.valid, &by) : NULL};
        src[1] = sym_add(t, src[1], sym_muli(t, part, part_of(src[0])));
        for (int k = 1; k < 5; k++)
            if (src[k] && k != 2)
                expand_need(e, src[k]);
        expand_push(e, uop_intern(t, OP_COPY, DTYPE_VOID, src, x.valid ? 5 : 4, (union arg){.i = x.lanes}));
        for (int k = c->nturn - 1; k >= 0; k--)
            if (!range_is_lane(c->turn[k]) && !range_is(c->turn[k], AXIS_GROUP))
                close_loop(e, c->own[k]);
    }
}

static void write_asynchronous(struct steps *s)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    struct uop *step = step_number(s), *parts = uop_int(t, s->parts), *ahead = sym_addi(t, step, s->parts - 1);
    for (int k = 0; k < s->parts - 1; k++) {
        write_transfers(s, uop_int(t, k), uop_int(t, k));
        push_id(e, OP_COMMIT, e->next_acc++);
    }
    for (int i = s->first; i < s->begin; i++)
        copy(e, e->in[i]);
    push_id(e, OP_WAIT, WAIT_BITS(s->parts - 2, e->next_acc++));
    copy(e, e->in[s->begin]);
    struct uop *guard = open_guard(e, sym_lt(t, ahead, uop_int(t, s->count)));
    write_transfers(s, ahead, sym_mod(t, ahead, parts));
    close_guard(e, guard);
    push_id(e, OP_COMMIT, e->next_acc++);
    for (int i = s->second + 1; i < s->end; i++)
        write_other(s, e->in[i], sym_mod(t, step, parts));
}

/* ----------------------------------------------------------------------------------------- in bulk */

static void push_statement(struct expander *e, enum op op, struct uop *const *src, int nsrc, int64_t bits)
{
    for (int k = 0; k < nsrc; k++)
        if (!op_takes_memory(op, k))
            expand_need(e, src[k]);
    expand_push(e, uop_intern(e->t, op, DTYPE_VOID, src, nsrc, (union arg){.i = bits}));
}

/* A copy in step n: its box, or of that a panel's columns. */
static void write_box(struct steps *s, int i, struct uop *n, struct uop *part, int64_t panel)
{
    struct tgc *t = s->e->t;
    const struct box *b = &s->box[i];
    struct uop_map by = {.t = t, .scratch = true};
    struct uop *memory = s->copy[i].store->src[0], *src[BULK_AXES + BULK_AXIS * BULK_RANK];
    const struct buffer *to = uop_buffer_of(memory);
    int64_t row = to->panel ? PANEL_ROW_NBYTES / (int64_t)dtype_nbytes(to->dtype) : b->row;
    map_step(s, &by, n);
    src[BULK_TO] = memory;
    src[BULK_OFFSET] = sym_addi(t, sym_muli(t, part, part_of(memory)), panel * to->panel);
    src[BULK_BARRIERS] = s->full;
    src[BULK_NUMBER] = part;
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
    push_statement(s->e, OP_BULK, src, BULK_AXES + b->rank * BULK_AXIS, BULK_BITS(to->panel ? PANEL_ROW_NBYTES : 0, to->cluster ? to->cluster : 1, to->cluster_of));
}

static void write_boxes(struct steps *s, struct uop *n, struct uop *part)
{
    struct uop *src[2] = {s->full, part};
    int64_t nbytes = 0;
    for (int i = 0; i < s->ncopy; i++)
        nbytes += s->box[i].nelem * (int64_t)dtype_nbytes(uop_buffer_of(s->copy[i].store->src[0])->dtype);
    push_statement(s->e, OP_MBAR_ARRIVE, src, 2, nbytes);
    for (int i = 0; i < s->ncopy; i++) {
        const struct buffer *to = uop_buffer_of(s->copy[i].store->src[0]);
        for (int64_t p = 0; p == 0 || (to->panel && p < s->box[i].nelem / to->panel); p++)
            write_box(s, i, n, part, p);
    }
}

static void read_boxes(struct steps *s)
{
    for (int i = 0; i < s->ncopy; i++) {
        struct of_step *c = &s->copy[i];
        struct uop *loop[LOOPS + 1] = {c->thread};
        const char *why;
        for (int k = 0; k < c->nturn; k++)
            loop[1 + k] = c->turn[k];
        if (!box_read(s->e->t, c->store->src[2], c->store->src[1], loop, 1 + c->nturn, uop_buffer_of(c->store->src[0])->panel,
                      &s->box[i], &why))
            TGC_BUG(s->e->t, "what comes in bulk is no box: %s", why);
    }
}

static struct uop *new_barriers(struct steps *s)
{
    struct buffer *b = kernel_new_scratch(s->e->t, s->kernel, DTYPE_U64, s->parts);
    b->is_local = true;
    b->nbytes = (size_t)s->parts * dtype_nbytes(DTYPE_U64);      /* what only this program has is in no AST */
    return uop_buffer(s->e->t, b);
}

/* The block's threads. */
static int64_t count_threads(const struct steps *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->first; i++)
        if (range_is_item(s->e->in[i]) && expand_find_end(s->e, i) > s->first)
            n = sat_mul(n, range_fixed_size(s->e->in[i]));
    return n;
}

/* Begins the barriers: of a full part one thread arrives, of an empty one each wave does. Returns a wave's threads. */
static int begin_barriers(struct steps *s)
{
    struct expander *e = s->e;
    int64_t threads = count_threads(s), lanes = e->t->device ? e->t->device->wave : 1;
    lanes = threads % lanes ? 1 : lanes;
    s->full = new_barriers(s);
    s->empty = new_barriers(s);
    push_statement(e, OP_MBAR_INIT, &s->full, 1, MBAR_BITS(1, 1));
    push_statement(e, OP_MBAR_INIT, &s->empty, 1, MBAR_BITS(threads / lanes, s->cluster));
    push_id(e, OP_BARRIER, e->next_acc++);
    if (s->cluster > 1)
        push_id(e, OP_CLUSTER_BARRIER, e->next_acc++);
    return (int)lanes;
}

static void write_in_bulk(struct steps *s)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    struct uop *step = step_number(s), *parts = uop_int(t, s->parts), *ahead = sym_addi(t, step, s->parts - 1),
               *first = sym_lt(t, s->thread, uop_int(t, 1)), *part = sym_mod(t, step, parts), *other = sym_mod(t, ahead, parts),
               *parity = sym_mod(t, sym_div(t, step, parts), uop_int(t, 2));
    read_boxes(s);
    int lanes = begin_barriers(s);
    struct uop *guard = open_guard(e, first);
    for (int k = 0; k < s->parts - 1; k++)
        write_boxes(s, uop_int(t, k), uop_int(t, k));
    close_guard(e, guard);
    for (int i = s->first; i < s->begin; i++)
        copy(e, e->in[i]);
    struct uop *until_full[3] = {s->full, part, parity}, *until_empty[3] = {s->empty, other, parity};
    push_statement(e, OP_MBAR_WAIT, until_full, 3, 0);
    for (int i = s->second + 1; i < s->end; i++)
        write_other(s, e->in[i], part);
    push_statement(e, OP_MBAR_RELEASE, until_empty, 2, RELEASE_BITS(1, lanes, s->cluster));
    guard = open_guard(e, sym_and(t, first, sym_lt(t, ahead, uop_int(t, s->count))));
    push_statement(e, OP_MBAR_WAIT, until_empty, 3, 0);
    write_boxes(s, ahead, other);
    close_guard(e, guard);
}

/* -------------------------------------------------------------------------------- through registers */

static void write_through_registers(struct steps *s)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    struct uop *step = step_number(s), *zero = uop_int(t, 0), *one = uop_int(t, 1),
               *next = sym_min(t, sym_addi(t, step, 1), uop_int(t, s->count - 1)),
               *part = sym_mod(t, step, uop_int(t, 2)), *other = sym_sub(t, one, part);
    for (int k = 0; k < s->ncopy; k++) {
        own_loops(s, &s->copy[k]);
        write_copy(s, &s->copy[k], COPY, zero, zero);
    }
    for (int i = s->first; i <= s->begin; i++)
        copy(e, e->in[i]);                    /* the loops, and the barrier */
    for (int k = 0; k < s->ncopy; k++) {
        own_loops(s, &s->copy[k]);
        declare_registers(s, &s->copy[k]);
    }
    for (int k = 0; k < s->ncopy; k++)
        write_copy(s, &s->copy[k], LOAD, next, zero);
    for (int i = s->second + 1; i < s->end; i++)
        write_other(s, e->in[i], part);
    for (int k = 0; k < s->ncopy; k++)
        write_copy(s, &s->copy[k], STORE, next, other);
}

/* -------------------------------------------------------------------------- of the turns of a band */

/* Where the outermost loop of each copy in the loop begins; -1: there is none at `at`. */
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
        if ((last = copy_begins(e, i)) > 0) {
            s->begin = i;
            s->second = last;
            find_copies(s);
            i = last;
        }
    return s->ncopy > 0;
}

/* Whether threads pass on in the loop what is none of the copies. */
static bool passes_on(const struct steps *s)
{
    for (int i = s->first; i < s->end; i++) {
        const struct uop *u = s->e->in[i];
        if (u->op == OP_STORE && !has_parts(u) && buffer_space(uop_buffer_of(u->src[0])) == SPACE_LOCAL)
            return true;
    }
    return false;
}

/* The copies of turn n, if there is one. */
static void write_turn(struct steps *s, struct uop *n, struct uop *part)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    struct uop *is = sym_lt(t, n, s->loop[0]->src[0]), *guard = uop_is_int(is, 1) ? NULL : open_guard(e, is);
    s->thread = open_loop(e, uop_axis(t, uop_int(t, s->kernel->block), AXIS_LOOP, WORKER_BLOCK));
    write_transfers(s, n, part);
    close_loop(e, s->thread);
    if (guard)
        close_guard(e, guard);
    push_id(e, OP_COMMIT, e->next_acc++);
}

static void write_bands(struct steps *s)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    struct uop *turn = s->loop[0], *parts = uop_int(t, s->parts), *ahead = sym_addi(t, turn, s->parts - 1);
    bool passes = passes_on(s);
    for (int k = 0; k < s->parts - 1; k++)
        write_turn(s, uop_int(t, k), uop_int(t, k));
    copy(e, turn);
    push_id(e, OP_WAIT, WAIT_BITS(s->parts - 2, e->next_acc++));
    push_id(e, OP_BARRIER, e->next_acc++);
    write_turn(s, ahead, sym_mod(t, ahead, parts));
    for (int i = s->first + 1, last; i < s->end; i++) {
        if ((last = copy_begins(e, i)) > 0)
            i = last;
        else if (passes || e->in[i]->op != OP_BARRIER)
            write_other(s, e->in[i], sym_mod(t, turn, parts));
    }
}

/* The loops over steps, pipelined; returns where the program goes on. */
static int write_steps(struct steps *s)
{
    s->thread = thread_number(s);
    switch (s->how) {
    case TRANSFER_REGISTERS: write_through_registers(s); break;
    case TRANSFER_ASYNC: write_asynchronous(s); break;
    case TRANSFER_BULK: write_in_bulk(s); break;
    case TRANSFER_COUNT: break;
    }
    return s->end;
}

static void pipeline_program(struct tgc *t, struct kernel *kernel, struct uop ***linear, int *nlinear)
{
    struct mem_mark mark = scratch_mark(t);
    struct expander *e = scratch_array(t, 1, sizeof *e);
    bool changed = false;
    int last = -1;               /* where the loops end whose copies blocks share */
    *e = (struct expander){.t = t, .in = *linear, .nin = *nlinear};
    e->scopes.known = (struct uop_map){.t = t, .scratch = true};
    for (int i = 0; i < e->nin; i++)                 /* registers are behind all sums */
        if ((e->in[i]->op == OP_ACC || e->in[i]->op == OP_BARRIER || e->in[i]->op == OP_GUARD) && e->in[i]->arg.i >= e->next_acc)
            e->next_acc = (int)e->in[i]->arg.i + 1;
    for (int i = 0; i < e->nin; i++) {
        struct steps *s = scratch_array(t, 1, sizeof *s);
        *s = (struct steps){.e = e, .kernel = kernel, .cluster = 1, .now = {.t = t, .scratch = true}};
        if (is_step(e->in[i]) && find_bands(s, i)) {
            write_bands(s);
            i = s->end;
            changed = true;
        } else if (is_step(e->in[i]) && find_steps(s, i)) {
            if (s->cluster > 1)
                last = expand_find_end(e, i);
            i = write_steps(s);
            changed = true;
        }
        copy(e, e->in[i]);
        if (i == last)                               /* nobody copies to a block that has ended, nor tells its barriers */
            push_id(e, OP_CLUSTER_BARRIER, e->next_acc++);
    }
    if (changed) {
        *linear = mem_copy(t, e->out, (size_t)e->nout * sizeof *e->out);
        *nlinear = e->nout;
    }
    scratch_release(t, mark);
}

bool pass_pipeline(struct tgc *t, struct schedule *s, struct kernel *k)
{
    bool any = false;
    (void)s;
    for (int i = 0; i < k->nscratch; i++)
        any |= k->scratch[i]->ring != 0;
    if (!any)
        return true;
    pipeline_program(t, k, &k->linear, &k->nlinear);
    for (int i = 0; i < k->nvariant; i++)
        pipeline_program(t, k, &k->variant[i].linear, &k->variant[i].nlinear);
    return true;
}
