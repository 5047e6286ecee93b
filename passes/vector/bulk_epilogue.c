/* bulk_epilogue.c - BULK_EPILOGUE: an engine stores the epilogue tile from shared memory as boxes
 * (TMA), while the block's threads go on.
 *
 *      barrier                          wait until boxes have left the tile
 *      tile[..] = sum                   barrier
 *      barrier                          tile[..] = sum
 *      first thread: for i, j           publish
 *        y[..] = tile[..]               barrier
 *      barrier                          first thread: start a box of y
 *
 * After the last iteration the threads wait until all boxes are in their tensor. Each thread waits
 * for its own boxes, and only one has any. The last barrier is dropped: the tile has been read when
 * the first barrier of the next iteration is passed. */
#include "passes/analysis/box.h"
#include "passes/vector/pipeline.h"

/* The store that becomes boxes: the position of its outermost loop, its loops, outermost first, and
 * its condition. */
struct bulk_store {
    int begin, end, last;
    struct uop *store, *item, *valid, *loop[STEP_LOOPS];
    int nloop;
};

static bool stores_tile(const struct uop *u)
{
    return u->op == OP_STORE && uop_buffer_of(u->src[0])->scratch.is_bulk_stored;
}

static bool reads_tile(const struct uop *u)
{
    const struct uop *load = u->op == OP_STORE ? u->src[2] : NULL;
    load = load && load->op == OP_BITCAST ? load->src[0] : load;
    return load && load->op == OP_LOAD && uop_buffer_of(load->src[0])->scratch.is_bulk_stored;
}

/* Reads the nest of the store at `at`. last: after which position all boxes must be in their
 * tensors. */
static void read_nest(struct expander *e, int at, struct bulk_store *x)
{
    *x = (struct bulk_store){.store = e->in[at], .begin = -1, .last = -1};
    for (int i = 0; i < at; i++) {
        struct uop *u = e->in[i];
        bool opens = u->op == OP_RANGE || u->op == OP_GUARD;
        if (!opens || expand_find_end(e, i) < at || (u->op == OP_GUARD && x->begin < 0) ||
            range_is_grid(u))
            continue;
        if (x->last < 0)
            x->last = expand_find_end(e, i);
        if (range_is(u, AXIS_BAND))
            continue;
        if (x->begin < 0)
            x->begin = i, x->end = expand_find_end(e, i);
        if (u->op == OP_GUARD)
            x->valid = x->valid ? sym_and(e->t, x->valid, u->src[0]) : u->src[0];
        else if (range_is_item(u))
            x->item = u;
        else if (x->nloop < STEP_LOOPS)
            x->loop[x->nloop++] = u;
    }
}

static void write_box(struct expander *e, const struct box *b, const struct buffer *memory,
                      struct uop *local, int64_t panel)
{
    struct tgc *t = e->t;
    struct uop *src[BULK_AXES + BULK_AXIS * BULK_RANK];
    int64_t row =
        memory->scratch.panel ? PANEL_ROW_NBYTES / (int64_t)dtype_nbytes(memory->dtype) : b->row;
    int n = 0;
    src[n++] = local;
    src[n++] = uop_int(t, panel * memory->scratch.panel);
    src[n++] = b->memory;
    src[n++] = uop_int(t, b->first);
    for (int a = 0; a < b->rank; a++) {
        src[n++] = a ? b->axis[a].coordinate : sym_addi(t, b->axis[a].coordinate, panel * row);
        src[n++] = uop_int(t, b->axis[a].size);
        src[n++] = uop_int(t, b->axis[a].stride);
        src[n++] = uop_int(t, a ? b->axis[a].extent : row);
    }
    for (int k = 0; k < n; k++)
        if (!op_takes_memory(OP_BULK_STORE, k))
            expand_need(e, src[k]);
    expand_push(
        e,
        uop_intern(t, OP_BULK_STORE, DTYPE_VOID, src, n,
                   (union arg){.i = ARG_PACK(BULK, memory->scratch.panel ? PANEL_ROW_NBYTES : 0)}));
}

/* Writes the boxes, started by the block's first thread, in place of the nest. */
static void write_boxes(struct expander *e, const struct bulk_store *x)
{
    struct box b;
    const char *why;
    const struct uop *load =
        x->store->src[2]->op == OP_BITCAST ? x->store->src[2]->src[0] : x->store->src[2];
    const struct buffer *memory = uop_buffer_of(load->src[0]);
    struct uop *item = x->item;
    if (!item || !box_read_store(e->t, x->store, x->valid, item, x->loop, x->nloop, true, &b, &why))
        TGC_BUG(e->t, "a bulk store is no box: %s", item ? why : "no thread starts it");
    expand_push(e, item);
    expand_enter(e);
    struct uop *guard = steps_open(e, sym_lt(e->t, item, uop_int(e->t, 1)));
    for (int64_t p = 0; p == 0 || (memory->scratch.panel && p < b.nelem / memory->scratch.panel);
         p++)
        write_box(e, &b, memory, load->src[0], p);
    steps_close(e, guard);
    expand_push(e, uop_intern(e->t, OP_END, DTYPE_VOID, &item, 1, (union arg){0}));
    expand_leave(e);
}

/* Whether the barrier at `at` is next to a store to the tile: between it and the following barrier,
 * or (by: -1) the preceding one. */
static bool is_beside(const struct expander *e, int at, int by)
{
    for (int i = at + by; i >= 0 && i < e->nin && e->in[i]->op != OP_BARRIER; i += by)
        if (stores_tile(e->in[i]))
            return true;
    return false;
}

static void write_program(struct expander *e, const struct bulk_store *x)
{
    for (int i = 0; i < e->nin; i++) {
        bool meets = e->in[i]->op == OP_BARRIER;
        if (meets && is_beside(e, i, 1))
            steps_push(e, OP_BULK_WAIT, 0);
        if (meets && is_beside(e, i, -1))
            steps_push(e, OP_PUBLISH, e->next_acc++);
        if (i == x->begin) {
            write_boxes(e, x);
            i = x->end;
            i += e->in[i + 1]->op == OP_BARRIER && i < x->last;
        } else {
            steps_copy(e, e->in[i]);
        }
        if (i == x->last)
            steps_push(e, OP_BULK_WAIT, 1);
    }
}

static void store_program(struct tgc *t, struct uop ***linear, int *nlinear)
{
    struct mem_mark mark = scratch_mark(t);
    struct expander *e = scratch_array(t, 1, sizeof *e);
    struct bulk_store x = {.begin = -1};
    *e = (struct expander){.t = t, .in = *linear, .nin = *nlinear};
    e->scopes.known = (struct uop_map){.t = t, .scratch = true};
    for (int i = 0; i < e->nin; i++) {
        const struct uop *u = e->in[i];
        if ((u->op == OP_ACC || u->op == OP_BARRIER || u->op == OP_GUARD) &&
            BARRIER_ID(u->arg.i) >= e->next_acc)
            e->next_acc = BARRIER_ID(u->arg.i) + 1;
        if (reads_tile(u))
            read_nest(e, i, &x);
    }
    if (x.begin < 0)
        TGC_BUG(t, "no store reads the epilogue tile");
    write_program(e, &x);
    *linear = mem_copy(t, e->out, (size_t)e->nout * sizeof *e->out);
    *nlinear = e->nout;
    scratch_release(t, mark);
}

bool pass_bulk_epilogue(struct tgc *t, struct schedule *s, struct kernel *k)
{
    bool any = false;
    (void)s;
    for (int i = 0; i < k->nscratch; i++)
        any |= k->scratch[i]->scratch.is_bulk_stored;
    if (!any)
        return true;
    store_program(t, &k->linear, &k->nlinear);
    for (int i = 0; i < k->nvariant; i++)
        store_program(t, &k->variant[i].linear, &k->variant[i].nlinear);
    return true;
}
