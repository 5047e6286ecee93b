/* verify_linear.c - checks the invariants of linear programs. A violation is a bug of the pass that
 * ran last.
 *
 * One walk over the array with a stack of open loops and guards.
 *   - A value is read only while the loop that it was computed in is open; a RANGE only while it is
 *     open itself.
 *   - An accumulator is unfinished wherever a loop is open that was opened after its declaration
 *     and holds one of its ASSIGNs. What is computed from an unfinished accumulator may flow into
 *     ASSIGNs (its own update, or an online algorithm's), never into memory, a condition or another
 *     initialization. So one that is declared too far inside is read out of scope after its loop,
 *     and one that is declared too far outside is unfinished where it is stored: initialization,
 *     updates and uses dominate correctly, or this fails.
 *   - An accumulator with lanes is an array, which is read and updated where its lanes are open;
 *     loops over its own lanes leave it finished or not as it was, since each of their iterations
 *     has its own element. A lane that it does not have must not update it.
 *   - Scratch is loaded only after it was stored to; verify_scratch.c proves it element by element.
 */
#include "ir/verify.h"
#include "ir/device_ops.h"

/* A loop or guard, opened at u[at]; 0 is the whole program. */
struct region { const struct uop *opener; int parent; bool open; int at; };
/* The region in which a uop was last computed. */
struct defined { int region; bool unfinished; };
struct linear_verifier {
    struct verifier v;
    struct uop *const *u; int n, at;       /* the program, and where the check is */
    struct region *region; int nregion; size_t cap_region;
    int current;
    struct defined *def; int ndef; size_t cap_def;
    struct uop_map where;        /* uop -> index in def[] + 1 */
    struct update { const struct uop *acc; int region; } *update; int nupdate; size_t cap_update;
    const struct buffer **stored; int nstored; size_t cap_stored;
};

static struct defined *find_def(struct linear_verifier *l, const struct uop *u)
{
    uintptr_t i = (uintptr_t)map_get(&l->where, u);
    return i ? &l->def[i - 1] : NULL;
}

static void define(struct linear_verifier *l, const struct uop *u, bool unfinished)
{
    struct defined *d = find_def(l, u);
    if (!d) {
        SCRATCH_PUSH(l->v.t, l->def, l->ndef, l->cap_def, ((struct defined){0, false}));
        map_set(&l->where, u, (void *)(uintptr_t)l->ndef);
        d = &l->def[l->ndef - 1];
    } else if (u->op != OP_ACC && l->region[d->region].open) {
        bool of_acc = u->op == OP_CAST && u->src[0]->op == OP_ACC;       /* it may have changed */
        bool again = u->op == OP_LOAD && uop_is_tile(u);     /* for it there are few registers */
        if ((op_is_pointwise(u->op) && !of_acc) || (u->op == OP_LOAD && !again) ||
            u->op == OP_SPLAT || u->op == OP_RAMP || u->op == OP_FOLD || u->op == OP_INTRINSIC ||
            u->op == OP_NEAREST || u->op == OP_LANE ||
            u->op == OP_LANES || u->op == OP_NARROW || u->op == OP_GATHER)
            verify_violation(&l->v, u, "is computed again where it is known");
        d->unfinished = unfinished;
        return;
    }
    *d = (struct defined){l->current, unfinished};
}

static bool has_lane(const struct uop *acc, const struct uop *range)
{
    for (int k = 1; k < acc->nsrc; k++)
        if (acc->src[k] == range)
            return true;
    return false;
}

/* Whether an open region, opened after acc's declaration, holds one of its updates. */
static bool is_unfinished(const struct linear_verifier *l, const struct uop *acc, int declared_in)
{
    for (int r = l->current; r != declared_in && r > 0; r = l->region[r].parent)
        for (int k = 0; k < l->nupdate && !has_lane(acc, l->region[r].opener); k++)
            if (l->update[k].acc == acc && l->update[k].region == r)
                return true;
    return false;
}

/* Checks that `by` may read u here; returns whether u is the partial sum of an unfinished
 * accumulator. */
static bool check_read(struct linear_verifier *l, const struct uop *by, const struct uop *u)
{
    if (op_class(u->op) == CLASS_LEAF)
        return false;
    const struct defined *d = find_def(l, u);
    require(&l->v, by, d != NULL, "reads what is not computed before it");
    require(&l->v, by, l->region[d->region].open,
            "reads what was computed inside a loop that is closed");
    if (u->op == OP_RANGE)
        return false;
    for (int k = 1; k < u->nsrc && u->op == OP_ACC; k++)
        require(&l->v, by,
                (by->op == OP_MATRIX && range_is(u->src[k], AXIS_ELEMENT)) ||
                    by->op == OP_MATRIX_BEGIN || by->op == OP_MATRIX_WAIT ||
                    (find_def(l, u->src[k]) && l->region[find_def(l, u->src[k])->region].open),
                "uses an accumulator outside its lanes");
    return u->op == OP_ACC ? is_unfinished(l, u, d->region) : d->unfinished;
}

static void open_region(struct linear_verifier *l, const struct uop *u)
{
    SCRATCH_PUSH(l->v.t, l->region, l->nregion, l->cap_region,
                 ((struct region){u, l->current, true, l->at}));
    l->current = l->nregion - 1;
}

static void close_region(struct linear_verifier *l, const struct uop *u)
{
    require(&l->v, u, l->current > 0 && l->region[l->current].opener == u->src[0],
            "closes what is not the innermost open one");
    l->region[l->current].open = false;
    l->current = l->region[l->current].parent;
}

/* Which regions hold updates of which accumulators; regions are numbered as in the check. */
static void find_updates(struct linear_verifier *l, struct uop *const *u, int n)
{
    for (int i = 0; i < n; i++) {
        if (u[i]->op == OP_RANGE || u[i]->op == OP_GUARD)
            open_region(l, u[i]);
        else if (u[i]->op == OP_END || u[i]->op == OP_ENDGUARD)
            close_region(l, u[i]);
        else if (u[i]->op == OP_ASSIGN || u[i]->op == OP_SHUFFLE || u[i]->op == OP_MATRIX)
            for (int r = l->current; r > 0; r = l->region[r].parent) {
                bool known = false;
                for (int k = 0; k < l->nupdate && !known; k++)
                    known = l->update[k].acc == u[i]->src[0] && l->update[k].region == r;
                if (!known)
                    SCRATCH_PUSH(l->v.t, l->update, l->nupdate, l->cap_update,
                                 ((struct update){u[i]->src[0], r}));
            }
    }
    if (l->current)
        verify_violation(&l->v, l->region[l->current].opener, "is not closed");
    l->nregion = 1;
}

/* An offset or a size: i64, or i32 after the last pass. */
static bool is_place(const struct uop *u)
{
    return (u->dtype == DTYPE_INDEX || u->dtype == DTYPE_I32) && u->ndim == 0 && u->lanes == 1;
}

/* Whether a guard stands around whose TICKET hands the memory over. */
static bool is_handed_over(const struct linear_verifier *l, const struct uop *memory)
{
    bool is = false;
    for (int r = l->current; r > 0; r = l->region[r].parent) {
        const struct uop *opener = l->region[r].opener,
                         *cond = opener->op == OP_GUARD ? opener->src[0] : opener;
        is |= cond->op == OP_TICKET && cond->src[TICKET_MEMORY] == memory;
    }
    return is;
}

static void check_load(struct linear_verifier *l, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    require(&l->v, u, b && (u->nsrc == 2 || u->nsrc == 4), "wrong sources");
    require(&l->v, u, is_place(u->src[1]) && u->dtype == b->dtype,
            "offset or result of another dtype");
    require(&l->v, u,
            !b->scratch.counts &&
                (b->scratch.space != SPACE_GLOBAL || is_handed_over(l, u->src[0])),
            "reads what other blocks store without a ticket");
    if (u->nsrc == 4)
        require(&l->v, u, u->src[2]->dtype == DTYPE_BOOL && u->src[3]->dtype == u->dtype,
                "condition or alternative of another dtype");
    bool stored = b->kind != BUFFER_SCRATCH;
    for (int k = 0; k < l->nstored && !stored; k++)
        stored = l->stored[k] == b;
    require(&l->v, u, stored, "reads scratch that nothing was stored to");
}

static void check_gather(struct linear_verifier *l, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    require(&l->v, u, b && (u->nsrc == 3 || u->nsrc == 5), "wrong sources");
    require(&l->v, u, is_place(u->src[1]) && u->src[2]->dtype == DTYPE_I32 && u->lanes > 1 &&
                          u->dtype == b->dtype,
            "offset, places or result of another dtype");
    if (u->nsrc == 5)
        require(&l->v, u, u->src[3]->dtype == DTYPE_BOOL && u->src[3]->lanes == u->lanes &&
                              u->src[4]->dtype == u->dtype && u->src[4]->lanes == u->lanes,
                "condition or alternative of another dtype, or of other lanes");
}

static void note_stored(struct linear_verifier *l, const struct buffer *b)
{
    for (int k = 0; k < l->nstored; k++)
        if (l->stored[k] == b)
            return;
    SCRATCH_PUSH(l->v.t, l->stored, l->nstored, l->cap_stored, b);
}

static void check_store(struct linear_verifier *l, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    require(&l->v, u, b && u->nsrc == 3, "wrong sources");
    require(&l->v, u, is_place(u->src[1]) && u->src[2]->dtype == b->dtype,
            "offset or value of another dtype");
    require(&l->v, u, b->kind != BUFFER_WEIGHT && b->kind != BUFFER_INPUT && !b->scratch.counts,
            "writes to an input, a weight or counters");
    note_stored(l, b);
}

/* PUT: contiguous elements unconverted, of a total size that a device loads or stores at once; one
 * side is a thread's own, or shared memory. */
static void check_put(struct linear_verifier *l, const struct uop *u)
{
    const struct buffer *to = uop_buffer_of(u->src[0]), *from = uop_buffer_of(u->src[2]);
    require(&l->v, u,
            u->nsrc == 4 && to && from && to != from && to->dtype == from->dtype &&
                dtype_bits(to->dtype) == 8 * (int)dtype_nbytes(to->dtype),
            "no store of elements as they are");
    size_t nbytes = (size_t)COPY_LANES(u->arg.i) * dtype_nbytes(to->dtype);
    require(&l->v, u,
            from->scratch.is_register != to->scratch.is_register ||
                (from->scratch.space == SPACE_SHARED && !to->scratch.is_register),
            "neither of a thread's own elements nor of shared memory");
    bool stored = from->kind != BUFFER_SCRATCH;
    for (int k = 0; k < l->nstored && !stored; k++)
        stored = l->stored[k] == from;
    require(&l->v, u, stored, "reads scratch that nothing was stored to");
    require(&l->v, u,
            nbytes >= COPY_NBYTES_LEAST && nbytes <= COPY_NBYTES_MOST && !(nbytes & (nbytes - 1)),
            "stores other than 4, 8 or 16 bytes");
    require(&l->v, u, is_place(u->src[1]) && is_place(u->src[3]), "an offset of another dtype");
    note_stored(l, to);
}

/* COPY: contiguous elements of global memory to shared memory, of a total size that a
 * device copies at once. */
static void check_copy(struct linear_verifier *l, const struct uop *u)
{
    require(&l->v, u, u->nsrc == 4 || u->nsrc == 5, "wrong sources");
    const struct buffer *to = uop_buffer_of(u->src[0]), *from = uop_buffer_of(u->src[2]);
    require(&l->v, u,
            to && from && dtype_bits(to->dtype) == dtype_bits(from->dtype) &&
                dtype_bits(to->dtype) == 8 * (int)dtype_nbytes(to->dtype),
            "no copy of elements as they are");
    size_t nbytes = (size_t)COPY_LANES(u->arg.i) * dtype_nbytes(to->dtype);
    require(&l->v, u, buffer_space(to) == SPACE_SHARED && from->kind != BUFFER_SCRATCH,
            "no copy from global to shared memory");
    require(&l->v, u,
            nbytes >= COPY_NBYTES_LEAST && nbytes <= COPY_NBYTES_MOST && !(nbytes & (nbytes - 1)),
            "copies other than 4, 8 or 16 bytes");
    require(&l->v, u,
            is_place(u->src[1]) && is_place(u->src[3]) &&
                (u->nsrc == 4 || u->src[4]->dtype == DTYPE_BOOL),
            "offset or condition of another dtype");
    note_stored(l, to);
}

static void check_acc_init(struct linear_verifier *l, const struct uop *u)
{
    require(&l->v, u, u->nsrc >= 1 && u->src[0]->dtype == u->dtype,
            "its initial value has another dtype");
    for (int k = 1; k < u->nsrc; k++)
        require(&l->v, u, u->src[k]->op == OP_RANGE && u->src[k]->src[0]->op == OP_CONST,
                "a lane is no range of known size");
    const struct defined *d = find_def(l, u);
    require(&l->v, u, !d || !l->region[d->region].open || d->region == l->current,
            "declared again inside its own scope");
}

static void check_assign(struct linear_verifier *l, const struct uop *u)
{
    const struct uop *acc = u->src[0];
    require(&l->v, u, acc->op == OP_ACC && u->src[1]->dtype == acc->dtype,
            "no accumulator, or of another dtype");
    for (int r = l->current; r > 0 && r != find_def(l, acc)->region; r = l->region[r].parent) {
        const struct uop *opener = l->region[r].opener;
        bool lane = range_is_lane(opener);
        require(&l->v, u, !lane || has_lane(acc, opener), "lanes share one accumulator");
    }
}

/* A table: constant data of the dtype that is read. */
static void check_table(struct linear_verifier *l, const struct uop *u, int k, int64_t nelem)
{
    const struct buffer *b = uop_buffer_of(u->src[k]);
    require(&l->v, u, b && b->kind == BUFFER_WEIGHT && b->dtype == u->dtype &&
                          b->nbytes == (size_t)nelem * dtype_nbytes(b->dtype),
            "no table of as many elements as its row says");
}

/* Operands and result are as the row says. */
static void check_intrinsic(struct linear_verifier *l, const struct uop *u)
{
    require(&l->v, u, INTRINSIC_ROW(u->arg.i) < INTRINSIC_COUNT, "no row of intrinsics.def");
    int n = intrinsic_nsrc(INTRINSIC_ROW(u->arg.i));
    require(&l->v, u, u->nsrc == n, "not as many operands as its row has");
    for (int k = 0; k <= n; k++) {
        struct intrinsic_shape shape = intrinsic_shape(u->arg.i, k);
        const struct uop *x = k < n ? u->src[k] : u;
        enum dtype want = shape.dtype == DTYPE_VOID ? u->dtype : shape.dtype;
        require(&l->v, u, !shape.byte || dtype_is_byte(want), "no bytes");
        if (shape.memory) {
            check_table(l, u, k, shape.lanes);
            continue;
        }
        require(&l->v, u, x->dtype == want, "an operand or a result of another dtype");
        require(&l->v, u, x->lanes == shape.lanes && shape.lanes > 0,
                "an operand or a result of another shape");
    }
}

/* No more than a tile's register holds, and rows that follow each other. */
static void check_tile(struct linear_verifier *l, const struct uop *u)
{
    int64_t bits = u->arg.i;
    int size = (int)dtype_nbytes(uop_buffer_of(u->src[0])->dtype);
    if (uop_buffer_of(u->src[0])->scratch.panel) {
        require(&l->v, u,
                TILE_ROWS(bits) >= 1 && TILE_STRIDE(bits) * size == PANEL_ROW_NBYTES &&
                    u->op == OP_LOAD && u->nsrc == 2,
                "no tile of rows of a panel");
        return;
    }
    /* of shared memory: a matrix of matrix.def, in no register as such */
    int most =
        buffer_space(uop_buffer_of(u->src[0])) == SPACE_SHARED ? 2 * TILE_ROWS_MAX : TILE_ROWS_MAX;
    require(&l->v, u, TILE_ROWS(bits) >= 1 && TILE_ROWS(bits) <= most &&
                          TILE_COLUMNS(bits) * size >= DOT_BYTES &&
                          TILE_COLUMNS(bits) * size <= TILE_ROW_NBYTES && TILE_STRIDE(bits) > 0,
            "a tile of more than its register holds, or without rows");
    require(&l->v, u, u->nsrc == (u->op == OP_STORE ? 3 : 2), "a tile under a condition");
}

/* All operands have as many lanes as the result; only a condition may be a scalar. */
static void check_lanes(struct linear_verifier *l, const struct uop *u)
{
    if (u->op == OP_SPLAT)
        require(&l->v, u,
                u->src[0]->lanes == 1 ? u->arg.i > 1
                                      : (dtype_is_byte(u->dtype) || u->dtype == DTYPE_BF16) &&
                                            u->src[0]->lanes == dtype_group(u->dtype) &&
                                            u->arg.i % dtype_group(u->dtype) == 0,
                "neither a scalar nor a group to a vector");
    if (u->op == OP_RAMP)
        require(&l->v, u, u->src[0]->lanes == 1 && u->dtype == DTYPE_F32 && u->arg.i > 1,
                "no scalar to a vector of floats");
    if (u->op == OP_FOLD)
        require(&l->v, u, u->src[0]->lanes > 1, "no vector to a scalar");
    if (u->op == OP_LANE)
        require(&l->v, u, u->arg.i >= 0 && u->arg.i < u->src[0]->lanes,
                "the vector has no such lane");
    for (int k = u->op == OP_WHERE && u->src[0]->lanes == 1; k < u->nsrc; k++)
        if (op_is_elementwise(u->op) || u->op == OP_ASSIGN)
            require(&l->v, u, u->src[k]->lanes == u->lanes, "operands of different lanes");
    if (u->op == OP_LOAD || u->op == OP_STORE)
        require(&l->v, u, u->src[1]->lanes == 1, "the offset is a vector");
    if (u->op == OP_STORE)
        require(&l->v, u, u->src[2]->lanes == access_lanes(u->arg.i),
                "the value has other lanes");
    if ((u->op == OP_LOAD || u->op == OP_STORE) && TILE_IS(u->arg.i))
        check_tile(l, u);
    else if (u->op == OP_LOAD || u->op == OP_STORE)
        require(&l->v, u, VECTOR_PART(u->arg.i) < VECTOR_LANES(u->arg.i) || !u->arg.i,
                "more in memory than there are lanes");
    if ((u->op == OP_LOAD || u->op == OP_STORE) && !TILE_IS(u->arg.i) &&
        VECTOR_IS_ALIGNED(u->arg.i))
        require(&l->v, u, VECTOR_PART(u->arg.i) == 0 && VECTOR_STRIDE(u->arg.i) == 1,
                "only whole vectors of neighbours are aligned");
    if ((u->op == OP_LOAD || u->op == OP_STORE) && !TILE_IS(u->arg.i) && u->arg.i >> 48 == 1)
        require(&l->v, u,
                VECTOR_IS_IMAGE(u->arg.i) && u->op == OP_LOAD && u->src[0]->op == OP_BUFFER &&
                    VECTOR_PART(u->arg.i) == 0 && VECTOR_STRIDE(u->arg.i) == 1 &&
                    !VECTOR_IS_GROUPS(u->arg.i),
                "a pixel is four neighbours of a buffer");
    if (u->op == OP_LOAD && u->nsrc == 4)
        require(&l->v, u, u->src[2]->lanes == 1 && u->src[3]->lanes == u->lanes,
                "the alternative has other lanes");
}

/* Whether all threads of a block run a loop's iterations equally often: each of them one, or as
 * many as no thread's number and no data says. */
static bool is_uniform(const struct linear_verifier *l, const struct uop *range)
{
    struct mem_mark mark = scratch_mark(l->v.t);
    struct uop *size = range->src[0];
    int n;
    bool uniform = true;
    struct uop **order = uop_toposort(l->v.t, &size, 1, &n);
    for (int i = 0; i < n && !range_is_item(range); i++)
        uniform &=
            order[i]->op != OP_LOAD && !range_is_item(order[i]) && !range_is_of_block(order[i]);
    scratch_release(l->v.t, mark);
    return uniform;
}

/* The guard's role, if it stands in all of the loops that are open: ROLE_COUNT: it is another
 * condition's. */
static enum thread_role role_of(const struct uop *opener)
{
    bool is_role = opener && opener->op == OP_GUARD && opener->src[0]->op == OP_ROLE;
    return is_role ? ROLE_OF(opener->src[0]->arg.i) : ROLE_COUNT;
}

/* All threads of a block come here; where the op is a wave's own, or a role's, all those of a
 * role. */
static void check_meeting(struct linear_verifier *l, const struct uop *u)
{
    bool of_role = u->op == OP_BARRIER && BARRIER_THREADS(u->arg.i) > 0,
         of_wave = u->op == OP_MATRIX || u->op == OP_MATRIX_BEGIN || u->op == OP_MATRIX_COMMIT ||
                   u->op == OP_MATRIX_WAIT || u->op == OP_MBAR_RELEASE || u->op == OP_REGISTERS ||
                   u->op == OP_PUBLISH;
    for (int r = l->current; r > 0; r = l->region[r].parent) {
        const struct uop *opener = l->region[r].opener;
        enum thread_role role = role_of(opener);
        bool whole = role == ROLE_CONSUMERS || role == ROLE_PRODUCERS;
        require(&l->v, u, of_wave || of_role || !whole,
                "a barrier of the whole block where only threads of a role come");
        require(&l->v, u,
                whole ||
                    (opener->op == OP_RANGE && !range_is_of_block(opener) && is_uniform(l, opener)),
                "not all threads of a block come here equally often");
    }
}

/* All of the block's threads come here, after their stores. */
static void check_ticket(struct linear_verifier *l, const struct uop *u)
{
    bool stored = false;
    verify_ticket(&l->v, u);
    check_meeting(l, u);
    for (int k = 0; k < l->nstored; k++)
        stored |= l->stored[k] == uop_buffer_of(u->src[TICKET_MEMORY]);
    require(&l->v, u, stored && is_place(u->src[TICKET_NUMBER]),
            "hands over what nobody has stored, or its counter's number is no integer");
}

/* A barrier of a part of the block must be of all consumers, and in their guard. */
static void check_barrier(struct linear_verifier *l, const struct uop *u)
{
    const int n = BARRIER_THREADS(u->arg.i);
    bool are = n == 0;
    check_meeting(l, u);
    for (int r = l->current; r > 0 && !are; r = l->region[r].parent)
        are = role_of(l->region[r].opener) == ROLE_CONSUMERS &&
              ROLE_CONSUMERS_OF(l->region[r].opener->src[0]->arg.i) == n;
    require(&l->v, u, are, "a barrier of so many threads where no role has as many");
}

/* A role is no part of another one, but for one thread of all that copy. */
static void check_role(struct linear_verifier *l, const struct uop *u)
{
    require(&l->v, u, u->dtype == DTYPE_BOOL, "a role that is no condition");
    for (int r = l->current; r > 0; r = l->region[r].parent) {
        enum thread_role around = role_of(l->region[r].opener);
        require(&l->v, u,
                around == ROLE_COUNT ||
                    (around == ROLE_PRODUCERS && ROLE_OF(u->arg.i) == ROLE_PRODUCER),
                "a role inside of another one");
    }
}

/* Waves have registers in multiples of 8, as their role says. */
static void check_registers(struct linear_verifier *l, const struct uop *u)
{
    bool of_role = false;
    require(&l->v, u, REGISTERS_OF(u->arg.i) % ROLE_REGISTERS_STEP == 0,
            "no number of registers that a thread may have");
    check_meeting(l, u);
    for (int r = l->current; r > 0; r = l->region[r].parent)
        of_role |= role_of(l->region[r].opener) != ROLE_COUNT;
    require(&l->v, u, of_role, "registers of no role");
}

/* Whether the threads of a wave load the same tile: its offset depends on no thread within it. */
static bool is_of_wave(const struct linear_verifier *l, const struct uop *load, int lanes)
{
    struct mem_mark mark = scratch_mark(l->v.t);
    struct uop *offset = load->src[1];
    int n;
    bool same = true;
    struct uop **order = uop_toposort(l->v.t, &offset, 1, &n);
    for (int r = l->current; r > 0; r = l->region[r].parent) {
        const struct uop *opener = l->region[r].opener;
        int64_t inner;
        if (opener->op != OP_RANGE || !range_is_item(opener))
            continue;
        (void)linear_inner_workers(l->u, l->n, l->region[r].at, &inner);
        for (int i = 0; i < n && inner % lanes; i++)
            same &= order[i] != opener;
    }
    scratch_release(l->v.t, mark);
    return same;
}

/* Sums with the elements of the row, by two tiles of its sizes and dtypes. */
static void check_matrix(struct linear_verifier *l, const struct uop *u)
{
    const struct uop *acc = u->src[0];
    int64_t elements = 1;
    require(&l->v, u, u->nsrc == 3, "no two factors");
    const struct matrix_row *row = matrix_row(MATRIX_ROW(u->arg.i));
    for (int k = acc->nsrc - 1; acc->op == OP_ACC && k > 0 && range_is(acc->src[k], AXIS_ELEMENT);
         k--)
        elements *= acc->src[k]->src[0]->vmax;
    require(&l->v, u,
            acc->op == OP_ACC && acc->lanes == 1 && acc->dtype == row->dtype[MATRIX_SUM] &&
                elements == matrix_elements(row, MATRIX_SUM),
            "the sums are not those of the row");
    for (int f = 0; f < 2; f++) {
        const struct uop *kept = matrix_kept_tile(l->u, l->n, u->src[1 + f]),
                         *x = kept ? kept : u->src[1 + f];
        int side = row->size[f ? MATRIX_N : MATRIX_M], k = row->size[MATRIX_K];
        bool along = MATRIX_ALONG_K(u->arg.i, f);
        if (x->op == OP_LOAD && uop_buffer_of(x->src[0])->scratch.is_own) {
            require(&l->v, u,
                    x->dtype == DTYPE_F32 &&
                        x->lanes == matrix_elements(row, f ? MATRIX_B : MATRIX_A),
                    "a factor in registers has other elements than the row's");
            continue;
        }
        require(&l->v, u,
                x->op == OP_LOAD && TILE_IS(x->arg.i) &&
                    (uop_buffer_of(x->src[0])->scratch.panel > 0) ==
                        matrix_in_shared(row, f ? MATRIX_B : MATRIX_A) &&
                    (x->dtype == row->dtype[f] || x->dtype == dtype_as_bits(row->dtype[f])) &&
                    TILE_ROWS(x->arg.i) == (along ? side : k) &&
                    TILE_COLUMNS(x->arg.i) == (along ? k : side),
                "a factor is no tile of the row's size and dtype");
        require(&l->v, u, is_of_wave(l, x, row->lanes), "a wave's threads load different tiles");
    }
}

/* Barriers that were begun, and places among them. */
static void check_barriers(struct linear_verifier *l, const struct uop *u, int memory)
{
    const struct buffer *b = uop_buffer_of(u->src[memory]);
    bool begun = u->op == OP_MBAR_INIT;
    require(&l->v, u, b && b->dtype == DTYPE_U64 && buffer_space(b) == SPACE_SHARED,
            "barriers that are no u64 of shared memory");
    for (int k = 0; k < l->nstored && !begun; k++)
        begun = l->stored[k] == b;
    require(&l->v, u, begun, "of barriers that have not begun");
    note_stored(l, b);
    for (int k = memory + 1; k < (u->op == OP_BULK ? memory + 2 : u->nsrc); k++)
        require(&l->v, u, is_place(u->src[k]), "a number that is no integer");
}

/* Whether a condition stands around that is none of all threads of a role. */
static bool is_of_one(const struct linear_verifier *l)
{
    bool of_one = false;
    for (int r = l->current; r > 0; r = l->region[r].parent) {
        enum thread_role role = role_of(l->region[r].opener);
        of_one |=
            l->region[r].opener->op == OP_GUARD && role != ROLE_CONSUMERS && role != ROLE_PRODUCERS;
    }
    return of_one;
}

/* What the engine copies, and that one thread tells it to. */
static void check_bulk(struct linear_verifier *l, const struct uop *u)
{
    const char *what = bulk_check(u);
    if (what)
        verify_violation(&l->v, u, what);
    check_barriers(l, u, BULK_BARRIERS);
    require(&l->v, u, is_place(u->src[BULK_OFFSET]), "an offset that is no integer");
    for (int a = 0; a < bulk_rank(u); a++)
        require(&l->v, u, is_place(bulk_axis(u, a).coordinate), "a coordinate that is no integer");
    require(&l->v, u, is_of_one(l), "each thread copies the same box");
    note_stored(l, uop_buffer_of(u->src[BULK_TO]));
}

/* A box that leaves: of memory that has been stored to, told by one thread. */
static void check_bulk_store(struct linear_verifier *l, const struct uop *u)
{
    const char *what = bulk_check(u);
    const struct buffer *from = uop_buffer_of(u->src[BULK_TO]);
    bool stored = false;
    if (what)
        verify_violation(&l->v, u, what);
    for (int k = 0; k < l->nstored; k++)
        stored |= l->stored[k] == from;
    require(&l->v, u, stored, "a box of memory that nobody has stored to");
    require(&l->v, u, is_place(u->src[BULK_OFFSET]), "an offset that is no integer");
    for (int a = 0; a < bulk_rank(u); a++)
        require(&l->v, u, is_place(bulk_axis(u, a).coordinate), "a coordinate that is no integer");
    require(&l->v, u, is_of_one(l), "each thread stores the same box");
    note_stored(l, uop_buffer_of(u->src[bulk_source(u, BULK_FROM)]));
}

static void check_linear_uop(struct linear_verifier *l, const struct uop *u)
{
    bool unfinished = false;
    require(&l->v, u, op_nsrc(u->op) < 0 || op_nsrc(u->op) == u->nsrc, "wrong number of sources");
    require(&l->v, u, arg_is_valid(u->op, u->arg.i), "an argument that it may not have");
    if (u->op == OP_END || u->op == OP_ENDGUARD) {
        close_region(l, u);
        return;
    }
    /* an accumulator's lanes, as a store's ranges, are named, not read: they open later, and
     * repeatedly */
    for (int k = 0; k < (u->op == OP_ACC ? 1 : u->nsrc); k++)
        unfinished |= !op_takes_memory(u->op, k) && check_read(l, u, u->src[k]);
    verify_bounds(&l->v, u);
    check_lanes(l, u);
    switch (u->op) {
    case OP_CONST: case OP_VAR: case OP_BUFFER:
        return;
    case OP_SPLAT: case OP_RAMP: case OP_FOLD: case OP_LANE:
        require(&l->v, u, u->dtype == u->src[0]->dtype, "the dtype changes");
        break;
    case OP_LANES:
        require(&l->v, u, u->dtype == DTYPE_I32 && u->arg.i > 1, "no vector of i32");
        break;
    case OP_NARROW:
        require(&l->v, u, u->dtype == DTYPE_I32 && u->arg.i > 0 && u->lanes > 1 &&
                              (u->src[0]->dtype == DTYPE_F32 || u->src[0]->dtype == DTYPE_INDEX),
                "no vector to i32");
        break;
    case OP_GATHER:
        check_gather(l, u);
        break;
    case OP_NEAREST:
        require(&l->v, u, u->src[0]->dtype == DTYPE_F32 && dtype_is_byte(u->dtype) && u->lanes > 1,
                "no vector of floats to bytes");
        break;
    case OP_INTRINSIC:
        check_intrinsic(l, u);
        break;
    case OP_RANGE:
        require(&l->v, u, is_place(u->src[0]) && u->dtype == u->src[0]->dtype && !unfinished,
                "the size is no integer of its dtype, or not yet known");
        require(&l->v, u, !find_def(l, u) || !l->region[find_def(l, u)->region].open,
                "opened inside itself");
        open_region(l, u);
        break;
    case OP_GUARD:
        require(&l->v, u, u->src[0]->dtype == DTYPE_BOOL && !unfinished,
                "the condition is no bool, or not yet known");
        open_region(l, u);
        break;
    case OP_SHUFFLE:
        require(&l->v, u, u->src[0]->op == OP_ACC && u->src[0]->dtype == DTYPE_F32 &&
                              u->src[0]->lanes == 1, "exchanges what is no sum of f32");
        check_meeting(l, u);
        break;
    case OP_MATRIX:
        check_matrix(l, u);
        check_meeting(l, u);
        break;
    case OP_MATRIX_BEGIN: case OP_MATRIX_WAIT:
        for (int k = 0; k < u->nsrc; k++)
            require(&l->v, u, u->src[k]->op == OP_ACC, "of what are no sums");
        check_meeting(l, u);
        return;
    case OP_BARRIER:
        check_barrier(l, u);
        return;
    case OP_CLUSTER_BARRIER: case OP_PUBLISH: case OP_MATRIX_COMMIT:
        check_meeting(l, u);
        return;
    case OP_MBAR_RELEASE:
        check_meeting(l, u);
        check_barriers(l, u, 0);
        return;
    case OP_MBAR_INIT:
        check_meeting(l, u);
        check_barriers(l, u, 0);
        return;
    case OP_MBAR_ARRIVE: case OP_MBAR_WAIT:
        check_barriers(l, u, 0);
        return;
    case OP_ROLE:
        check_role(l, u);
        break;
    case OP_TICKET:
        check_ticket(l, u);
        break;
    case OP_REGISTERS:
        check_registers(l, u);
        return;
    case OP_BULK:
        check_bulk(l, u);
        return;
    case OP_BULK_STORE:
        check_bulk_store(l, u);
        return;
    case OP_BULK_WAIT:
        return;
    case OP_ACC:
        require(&l->v, u, !unfinished, "starts from a sum that is still under way");
        check_acc_init(l, u);
        break;
    case OP_ASSIGN:
        check_assign(l, u);
        break;
    case OP_LOAD:
        check_load(l, u);
        break;
    case OP_COPY:
        require(&l->v, u, !unfinished, "copies where a sum says that is still under way");
        check_copy(l, u);
        return;
    case OP_PUT:
        require(&l->v, u, !unfinished, "stores where a sum says that is still under way");
        check_put(l, u);
        return;
    case OP_COMMIT: case OP_WAIT:
        return;
    case OP_PREFETCH:
        require(&l->v, u, uop_buffer_of(u->src[0]) && is_place(u->src[1]), "wrong sources");
        return;
    case OP_STORE:
        require(&l->v, u, !unfinished, "stores a sum that is still under way");
        check_store(l, u);
        break;
    case OP_STACK:
        verify_stack(&l->v, u);
        require(&l->v, u, range_is_lane(u->src[0]), "chooses by what is no lane");
        break;
    default:
        require(&l->v, u, op_is_elementwise(u->op) && u->ndim == 0,
                "a graph op in a linear program");
        verify_elementwise(&l->v, u);
    }
    define(l, u, unfinished);
}

static bool verify_linear(struct verifier v, struct uop *const *u, int n)
{
    struct tgc *t = v.t;
    struct mem_mark mark = scratch_mark(t);
    struct linear_verifier l = {.v = v, .u = u, .n = n, .where = {.t = t, .scratch = true}};
    open_region(&l, NULL);
    find_updates(&l, u, n);
    for (l.at = 0; l.at < n; l.at++)
        check_linear_uop(&l, u[l.at]);
    scratch_release(t, mark);
    return true;
}

bool linear_verify(struct tgc *t, struct uop *const *u, int n, const char *after_pass)
{
    return verify_linear((struct verifier){.t = t, .after = after_pass}, u, n);
}

bool linear_check(struct tgc *t, struct uop *const *u, int n, struct violation *found)
{
    jmp_buf back;
    struct mem_mark mark = scratch_mark(t);
    if (setjmp(back)) {
        scratch_release(t, mark);
        return false;
    }
    return verify_linear((struct verifier){.t = t, .found = found, .back = &back}, u, n);
}
