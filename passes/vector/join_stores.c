/* join_stores.c - vectorizes a device's element-wise stores: contiguous elements are kept in
 * registers and stored by one transaction. Contiguous loads on the way become vectors, too. Moves
 * from shared memory need no registers.
 *
 *      for e < 8                                x'[0] = x[8*j ..8]
 *          y[i*n + 8*j + e] = f(x[8*j + e])     for e < 8
 *                                                   part[e] = f(x'[e])
 *                                               y[i*n + 8*j ..8] = part[0]
 *
 *      for e < 8                                x'[0 ..8] = 0
 *          sum[e] := k < n ? x[8*j + e] : 0     if (k < n) x'[0] = x[8*j ..8]
 *                                               for e < 8
 *                                                   sum[e] := x'[e]
 *
 * Strided stores to shared memory, which transpose there, stay scalar, but their contiguous loads
 * become vectors.
 *
 * The loops are the innermost lanes of a tile, above all a fragment's elements (ir/matrix.def),
 * if they are 4, 8 or 16 aligned bytes, which the offset's form proves (index_divisor()). The
 * condition of a store or load must hold for all elements or for none. Registers that hold what
 * is stored later (pipeline.c) are loaded so, too: one condition and one load replace those of
 * each element. This is the last pass of a device's kernels except for widths: no other one
 * reads PUT. */
#include "passes/analysis/copied.h"
#include "passes/kernel/tile.h"
#include "passes/target/target.h"
#include "passes/vector/expand.h"

enum { KINDS_MAX = 8, LOADS_MAX = 8 };

struct joining {
    struct expander *e;
    struct kernel *k;
    struct uop *part[KINDS_MAX]; int npart;
    int64_t next_guard;
    bool changed;
};

/* Contiguous loads of the loop's iterations, from element `at` on, n in one transaction. valid: the
 * condition under which they are not zeros; NULL: always. */
struct row_load { struct uop *load, *at, *valid; int64_t n; };
/* A loop that does nothing but one store or assignment per iteration. at: where the first iteration
 * stores; valid: under which condition; apart: strided, in shared memory. */
struct row {
    int begin, end;
    bool apart;
    const struct uop *store;
    struct uop *at, *guard, *valid;
    int64_t n;
    struct row_load load[LOADS_MAX];
    int nload;
};

static bool keeps(const struct row *r) { return r->store->op == OP_ASSIGN; }
static bool stores_neighbours(const struct row *r) { return !keeps(r) && !r->apart; }

/* Finds the loop's only store or assignment, and its only condition, around the store. */
static bool find_store(const struct expander *e, struct row *r)
{
    for (int i = r->begin + 1; i < r->end; i++) {
        struct uop *u = e->in[i];
        bool effect = u->op == OP_STORE || u->op == OP_ASSIGN;
        if (effect && !r->store && u->src[u->nsrc - 1]->lanes == 1)
            r->store = u;
        else if (u->op == OP_GUARD && !r->guard)
            r->guard = u;
        else if (effect || (!op_is_elementwise(u->op) && u->op != OP_LOAD && u->op != OP_ENDGUARD))
            return false;
        else if (r->guard && u->op == OP_ENDGUARD && !r->store)
            return false;
    }
    return r->store != NULL;
}

/* Whether the value contains a sum's present value. */
static bool reads_sum(struct tgc *t, struct uop *value)
{
    struct mem_mark mark = scratch_mark(t);
    int n;
    bool found = false;
    struct uop **order = uop_toposort(t, &value, 1, &n);
    for (int i = 0; i < n && !found; i++)
        found = order[i]->op == OP_ACC;
    scratch_release(t, mark);
    return found;
}

static bool nbytes_fit(const struct tgc *t, const struct buffer *b, int64_t n)
{
    int64_t nbytes = n * (int64_t)dtype_nbytes(b->dtype);
    return n > 1 && dtype_bits(b->dtype) == 8 * (int)dtype_nbytes(b->dtype) &&
           nbytes >= COPY_NBYTES_LEAST && !(nbytes & (nbytes - 1)) && device_stores(t, nbytes);
}

/* Whether the condition follows from `all`. */
static bool is_implied(const struct uop *condition, const struct uop *all)
{
    return condition == all ||
           (all->op == OP_AND && all->dtype == DTYPE_BOOL &&
            (is_implied(condition, all->src[0]) || is_implied(condition, all->src[1])));
}

/* How many of n contiguous elements one transaction loads, aligned; 0: less than a word. */
static int64_t at_once(struct tgc *t, const struct buffer *b, const struct uop *at, int64_t n)
{
    int64_t most = COPY_NBYTES_MOST / (int64_t)dtype_nbytes(b->dtype);
    n = n < most ? n : most;
    while (n > 1 && (index_divisor(t, at) % n || !buffer_is_aligned(t, b, n)))
        n /= 2;
    return nbytes_fit(t, b, n) ? n : 0;
}

/* Whether all of the loop's elements of the load are valid together, or zero together. */
static bool are_valid_together(struct tgc *t, const struct row *r, struct row_load *of,
                               const struct uop *lane)
{
    const struct uop *load = of->load;
    if (load->nsrc == 2 || (r->guard && is_implied(load->src[2], r->guard->src[0])))
        return true;
    if (load_is_zero_elsewhere(load) && !uop_reads_memory(t, load->src[2]))
        of->valid = condition_of_first(t, load->src[2], lane, r->n);
    return of->valid != NULL;
}

/* Finds the loop's contiguous loads that are valid together. */
static void find_loads(const struct expander *e, struct row *r)
{
    struct tgc *t = e->t;
    struct uop *lane = e->in[r->begin];
    for (int i = r->begin + 1; i < r->end && r->nload < LOADS_MAX; i++) {
        struct uop *u = e->in[i];
        const struct buffer *b = u->op == OP_LOAD ? uop_buffer_of(u->src[0]) : NULL;
        int64_t stride;
        if (!b || b->scratch.is_register || (r->apart && b->scratch.space == SPACE_SHARED) ||
            (b->kind == BUFFER_SCRATCH && b->scratch.space != SPACE_SHARED) || u->lanes != 1 ||
            !index_stride(t, u->src[1], lane, &stride) || stride != 1)
            continue;
        struct row_load of = {u, sym_sub(t, u->src[1], lane), NULL, 0};
        if (are_valid_together(t, r, &of, lane) && (of.n = at_once(t, b, of.at, r->n)))
            r->load[r->nload++] = of;
    }
}

/* Whether the loop only copies: contiguous elements of shared memory are stored as they were
 * loaded. */
static bool is_move(const struct row *r)
{
    return stores_neighbours(r) && r->nload == 1 && !r->load[0].valid &&
           r->store->src[2] == r->load[0].load &&
           uop_buffer_of(r->load[0].load->src[0])->scratch.space == SPACE_SHARED &&
           r->load[0].load->dtype == uop_buffer_of(r->store->src[0])->dtype && r->load[0].n == r->n;
}

static bool find_row(const struct expander *e, int at, struct row *r)
{
    struct tgc *t = e->t;
    struct uop *lane = e->in[at];
    int64_t stride;
    if (lane->op != OP_RANGE || !range_is_lane(lane) || lane->src[0]->op != OP_CONST)
        return false;
    *r = (struct row){.begin = at, .end = expand_find_end(e, at), .n = range_fixed_size(lane)};
    if (!find_store(e, r))
        return false;
    if (keeps(r)) {
        if (!r->guard && !reads_sum(t, r->store->src[1]))
            find_loads(e, r);
        return r->nload > 0;
    }
    const struct buffer *b = uop_buffer_of(r->store->src[0]);
    if (b->scratch.is_register || !index_stride(t, r->store->src[1], lane, &stride))
        return false;
    r->apart = stride != 1 && b->scratch.space == SPACE_SHARED;
    if (stride != 1 && !r->apart)
        return false;
    r->at = sym_sub(t, r->store->src[1], lane);
    r->valid = r->guard ? condition_of_first(t, r->guard->src[0], lane, r->n) : NULL;
    if ((r->guard && !r->valid) ||
        (!r->apart && (!nbytes_fit(t, b, r->n) || index_divisor(t, r->at) % r->n ||
                       !buffer_is_aligned(t, b, r->n))))
        return false;
    find_loads(e, r);
    return !r->apart || r->nload > 0;
}

/* Registers of the thread for n elements of this dtype, number `number` of such a row; NULL: there
 * are too many kinds. */
static struct uop *part_of(struct joining *m, enum dtype d, int64_t n, int number)
{
    for (int i = 0; i < m->npart; i++) {
        const struct buffer *part = uop_buffer_of(m->part[i]);
        if (part->dtype == d && part->dim[0]->arg.i == n && number-- == 0)
            return m->part[i];
    }
    if (m->npart == KINDS_MAX)
        return NULL;
    struct buffer *part = kernel_new_scratch(m->e->t, m->k, d, n);
    part->scratch.is_register = part->scratch.is_own = true;
    part->nbytes = (size_t)n * dtype_nbytes(d);
    return m->part[m->npart++] = uop_buffer(m->e->t, part);
}

/* The next free registers of a dtype: those that the row's store and its loads before number `load`
 * do not use. */
static struct uop *next_part(struct joining *m, const struct row *r, enum dtype d, int load)
{
    int number = load >= 0 && stores_neighbours(r) && uop_buffer_of(r->store->src[0])->dtype == d;
    for (int i = 0; i < load; i++)
        number += r->load[i].load->dtype == d;
    return part_of(m, d, r->n, number);
}

static void put(struct joining *m, struct uop *to, struct uop *at, struct uop *from,
                struct uop *first, int64_t n)
{
    struct uop *src[4] = {to, at, from, first};
    expand_need(m->e, at);
    expand_need(m->e, first);
    expand_copy(m->e, uop_intern(m->e->t, OP_PUT, DTYPE_VOID, src, 4, (union arg){.i = n}));
}

static struct uop *open_guard(struct joining *m, struct uop *condition, int64_t id)
{
    expand_need(m->e, condition);
    struct uop *guard =
        uop_intern(m->e->t, OP_GUARD, DTYPE_VOID, &condition, 1, (union arg){.i = id});
    expand_copy(m->e, guard);
    return guard;
}

static void close_guard(struct joining *m, struct uop *guard)
{
    if (guard)
        expand_copy(m->e, uop_intern(m->e->t, OP_ENDGUARD, DTYPE_VOID, &guard, 1, (union arg){0}));
}

/* Zeros all n registers of the part. */
static void clear(struct joining *m, struct uop *part, enum dtype d, int64_t n)
{
    struct tgc *t = m->e->t;
    struct uop *lane = uop_axis(t, uop_int(t, n), AXIS_LANE, WORKER_EACH),
               *store[3] = {part, lane, uop_consti(t, d, 0)};
    expand_copy(m->e, lane);
    expand_need(m->e, store[2]);
    expand_copy(m->e, uop_intern(t, OP_STORE, DTYPE_VOID, store, 3, (union arg){0}));
    expand_copy(m->e, uop_intern(t, OP_END, DTYPE_VOID, &lane, 1, (union arg){0}));
}

/* Loads the loop's contiguous loads into registers. */
static void get_loads(struct joining *m, struct row *r, struct uop_map *now)
{
    struct tgc *t = m->e->t;
    for (int i = 0; i < r->nload; i++) {
        const struct row_load *of = &r->load[i];
        struct uop *load = of->load, *part = next_part(m, r, load->dtype, i),
                   *src[2] = {part, m->e->in[r->begin]}, *guard = NULL;
        if (part && of->valid) {
            clear(m, part, load->dtype, r->n);
            guard = open_guard(m, of->valid, m->next_guard++);
        }
        for (int64_t k = 0; k < r->n && part; k += of->n)
            put(m, part, uop_int(t, k), load->src[0], sym_addi(t, of->at, k), of->n);
        close_guard(m, guard);
        if (part)
            map_set(now, load, uop_intern(t, OP_LOAD, load->dtype, src, 2, (union arg){0}));
    }
}

/* Appends u of the program; a condition may have been computed for a guard already. */
static void copy(struct joining *m, struct uop *u)
{
    if (u->dtype == DTYPE_BOOL && op_is_elementwise(u->op) && !uop_reads_memory(m->e->t, u))
        expand_need(m->e, u);
    else
        expand_copy(m->e, u);
}

/* u with its operands' present forms. */
static struct uop *with_operands(struct tgc *t, struct uop *u, struct uop_map *now)
{
    struct uop **src = scratch_array(t, (size_t)u->nsrc + 1, sizeof *src), *by = map_get(now, u);
    bool changed = false;
    for (int k = 0; k < u->nsrc && !by; k++) {
        src[k] = map_get(now, u->src[k]);
        changed |= src[k] != NULL;
        src[k] = src[k] ? src[k] : u->src[k];
    }
    if (changed) {
        by = uop_intern(t, u->op, u->dtype, src, u->nsrc, u->arg);
        uop_set_origin(t, by, u);
        map_set(now, u, by);
    }
    return by ? by : u;
}

/* Writes the loop, with its store to the registers `part`; NULL: to where it was (assignments,
 * strided stores). */
static void put_loop(struct joining *m, struct row *r, struct uop *part)
{
    struct expander *e = m->e;
    struct uop_map now = {.t = e->t, .scratch = true};
    get_loads(m, r, &now);
    for (int i = r->begin; i <= r->end; i++) {
        struct uop *u = e->in[i], *src[3] = {part, e->in[r->begin], NULL};
        if (u == r->store && part) {
            src[2] = with_operands(e->t, u->src[2], &now);
            expand_copy(e, uop_intern(e->t, OP_STORE, u->dtype, src, 3, (union arg){0}));
        } else if (u != r->guard && u->op != OP_ENDGUARD) {
            copy(m, with_operands(e->t, u, &now));
        }
    }
}

static void put_row(struct joining *m, struct row *r, struct uop *part)
{
    struct expander *e = m->e;
    struct uop *guard = NULL;
    if (stores_neighbours(r))
        expand_need(e, r->at);
    if (r->guard)
        guard = open_guard(m, r->valid, r->guard->arg.i);
    if (is_move(r))
        put(m, r->store->src[0], r->at, r->load[0].load->src[0], r->load[0].at, r->n);
    else
        put_loop(m, r, part);
    if (part && !is_move(r))
        put(m, r->store->src[0], r->at, part, uop_int(e->t, 0), r->n);
    close_guard(m, guard);
    m->changed = true;
}

static void join_program(struct tgc *t, struct kernel *k, struct uop ***linear, int *nlinear)
{
    struct mem_mark mark = scratch_mark(t);
    struct expander *e = scratch_array(t, 1, sizeof *e);
    *e = (struct expander){.t = t, .in = *linear, .nin = *nlinear};
    e->scopes.known = (struct uop_map){.t = t, .scratch = true};
    struct joining m = {.e = e, .k = k};
    for (int i = 0; i < e->nin; i++)
        if (e->in[i]->op == OP_GUARD && e->in[i]->arg.i >= m.next_guard)
            m.next_guard = e->in[i]->arg.i + 1;
    for (int i = 0; i < e->nin; i++) {
        struct row r;
        bool found = find_row(e, i, &r);
        struct uop *part = found && stores_neighbours(&r)
                               ? next_part(&m, &r, uop_buffer_of(r.store->src[0])->dtype, -1)
                               : NULL;
        if (part || (found && !stores_neighbours(&r))) {
            put_row(&m, &r, part);
            i = r.end;
        } else {
            copy(&m, e->in[i]);
        }
    }
    if (m.changed) {
        *linear = mem_copy(t, e->out, (size_t)e->nout * sizeof *e->out);
        *nlinear = e->nout;
    }
    scratch_release(t, mark);
}

bool pass_join_stores(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    if (!device_stores(t, COPY_NBYTES_LEAST))
        return true;
    join_program(t, k, &k->linear, &k->nlinear);
    for (int i = 0; i < k->nvariant; i++)
        join_program(t, k, &k->variant[i].linear, &k->variant[i].nlinear);
    return true;
}
