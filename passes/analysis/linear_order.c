/* linear_order.c - from a kernel AST to a linear program: opens and closes loops around stores
 * (linear_values.c places what they store).
 *
 * Stores whose leading loops are the same RANGEs are parts of one store: their nests share those
 * loops, and the values computed there. So do the stores of bands, which may nest: some stores may
 * be in an inner band that others of the same band are not in. A barrier follows a store to
 * shared memory if later stores read it or store it again, or if a loop over bands begins or ends
 * there. */
#include "passes/analysis/linear.h"
#include "passes/analysis/matrix.h"

#include <string.h>

/* Whether a store's condition is around its loops: it is known before they open, and not all
 * threads have to enter them. */
static bool is_condition_of_all(struct linear *l, struct uop *store, const struct linear_part *all)
{
    bool alone = store_first_range(store) == 4 && map_get(&l->made, store->src[3]) &&
                 store->src[3]->op != OP_CONST;
    for (int i = 0; i < all->n && alone; i++)
        alone = all->u[i]->op != OP_REDUCE && all->u[i]->op != OP_STAGE;
    return alone;
}

static struct uop *open_guard(struct linear *l, struct uop *cond)
{
    struct uop *guard =
        uop_intern(l->t, OP_GUARD, DTYPE_VOID, &cond, 1, (union arg){.i = l->next_acc++});
    linear_push(l, guard);
    return guard;
}

/* The TICKET in the store's condition, with the rest of the condition (NULL: nothing); NULL: there
 * is none. It is around the store's loops, since what it hands over is read after it. */
static struct uop *ticket_of(struct tgc *t, const struct uop *store, struct uop **rest)
{
    int n = 0;
    struct uop *valid = store_first_range(store) == 4 ? store->src[3] : NULL, *ticket = NULL,
               **order = valid ? uop_toposort(t, &valid, 1, &n) : NULL;
    for (int i = 0; i < n; i++)
        ticket = order[i]->op == OP_TICKET ? order[i] : ticket;
    *rest = valid == ticket ? NULL : valid;
    for (int k = 0; k < 2 && ticket && *rest == valid && valid && valid->op == OP_AND; k++)
        *rest = valid->src[k] == ticket ? valid->src[!k] : valid;
    return ticket;
}

/* Writes the nest of a store, whose first `nshared` loops are open and stay open. */
static void emit_store(struct linear *l, struct uop *store, int nshared)
{
    struct tgc *t = l->t;
    struct uop *src[4], *guard = NULL, *last = NULL, *rest, *ticket = ticket_of(t, store, &rest);
    int nvalue = store_first_range(store);
    struct linear_part all = linear_under(l, store->src, store->nsrc),
                outside = linear_outside(l, store->src, nvalue);
    l->nest = store;
    linear_emit(l, 0, &all);
    bool around = !ticket && is_condition_of_all(l, store, &all);
    if (ticket)
        last = open_guard(l, linear_made(l, ticket));
    if (around)
        guard = open_guard(l, linear_made(l, store->src[3]));
    bool over = uop_buffer_of(store->src[0])->scratch.is_alias ||
                uop_buffer_of(store->src[0])->scratch.is_bulk_stored;
    for (int k = nvalue + nshared; k < store->nsrc; k++) {
        if (over && range_is_lane(store->src[k])) {
            linear_barrier(l);         /* all threads have read the copies that the memory
                                        * aliases; boxes have left it */
            over = false;
        }
        linear_open(l, store->src[k], range_is_lane(store->src[k]) ? &outside : &all);
    }
    if (over)
        linear_barrier(l);
    for (int k = 0; k < nvalue; k++)
        src[k] = linear_made(l, store->src[k]);
    if (nvalue == 4 && !around && (!ticket || rest))
        guard = open_guard(l, ticket ? linear_made(l, rest) : src[3]);
    linear_push(l, uop_intern(t, OP_STORE, store->dtype, src, 3, (union arg){0}));
    if (guard && !around)
        linear_push(l, uop_intern(t, OP_ENDGUARD, DTYPE_VOID, &guard, 1, (union arg){0}));
    for (int k = store->nsrc - 1; k >= nvalue + nshared; k--)
        linear_close(l, store->src[k]);
    if (around)
        linear_push(l, uop_intern(t, OP_ENDGUARD, DTYPE_VOID, &guard, 1, (union arg){0}));
    if (last)
        linear_push(l, uop_intern(t, OP_ENDGUARD, DTYPE_VOID, &last, 1, (union arg){0}));
}

/* Prepares for stores that share loops, none of which is open. */
static void enter_group(struct linear *l, struct uop *const *store, int nstore)
{
    l->store = store;
    l->nstore = nstore;
    l->nest = store[0];
    l->bit = l->place = (struct uop_map){.t = l->t, .scratch = true};
    l->order = uop_toposort(l->t, store, nstore, &l->n);
    l->deps = scratch_array(l->t, (size_t)l->n, sizeof *l->deps);
    l->wait = scratch_array(l->t, (size_t)l->n, sizeof *l->wait);
    linear_find_deps(l);
    l->open = 0;
    l->trips = 1;
}

/* Writes stores that share loops, the first `nband` of which are open. */
static void emit_group(struct linear *l, struct uop *const *store, int nstore, int nshared,
                       int nband)
{
    int first = store_first_range(store[0]);
    nshared = nshared > nband ? nshared : nband;
    enter_group(l, store, nstore);
    for (int k = first; k < first + nband; k++) {
        map_set(&l->made, store[0]->src[k], store[0]->src[k]);
        l->open |= linear_bit(l, store[0]->src[k]);
        l->trips *= (double)store[0]->src[k]->src[0]->vmax;
    }
    struct linear_part all;
    /* values invariant in all loops are computed before the shared loops, not in one of them */
    for (int i = nshared > nband ? nstore - 1 : 0; i >= 0; i--) {
        l->nest = store[i];
        all = linear_under(l, store[i]->src, store[i]->nsrc);
        linear_emit(l, 0, &all);
    }
    for (int k = nband; k < nshared; k++)
        linear_open(l, store[0]->src[first + k], &all);
    for (int i = 0; i < nstore; i++)
        emit_store(l, store[i], nshared);
    for (int k = nshared - 1; k >= nband; k--)
        linear_close(l, store[0]->src[first + k]);
}

/* Sums and stages that are invariant in all bands (the norm of a whole image) are computed before
 * their loop. */
static void emit_invariants(struct linear *l)
{
    int nshared, nstore;
    for (int i = 0; i < l->nbanded; i += nstore) {
        nstore = linear_find_group(l->t, l->banded + i, l->nbanded - i, &nshared);
        enter_group(l, l->banded + i, nstore);
        for (int k = 0; k < l->n; k++) {
            struct uop *u = l->order[k];
            if ((u->op != OP_REDUCE && u->op != OP_STAGE) || l->deps[k] || map_get(&l->made, u))
                continue;
            struct linear_part all = linear_under(l, &u, 1);
            linear_emit(l, 0, &all);
        }
    }
}

/* How many stores are in the outermost band that store[0] opens. */
static int count_banded(struct uop *const *store, int n)
{
    int found = 1, first = store_first_range(store[0]);
    while (found < n && linear_count_bands(store[found]) &&
           store[found]->src[store_first_range(store[found])] == store[0]->src[first])
        found++;
    return found;
}

static struct uop_map copy_map(const struct uop_map *m)
{
    struct uop_map copy = *m;
    if (m->size) {
        copy.slot = scratch_array(m->t, m->size, sizeof *m->slot);
        ARRAY_COPY(copy.slot, m->slot, m->size);
    }
    return copy;
}

/* Ends a region in which threads pass on shared memory: it may be read and stored after this. */
static void end_passing(struct linear *l)
{
    if (l->passed.n)
        linear_barrier(l);
    l->passed.n = 0;
}

/* The open loops of bands, and what was known when each opened: values computed in a band are
 * forgotten after it. */
struct bands { struct uop *range[MAX_RANK]; struct uop_map known[MAX_RANK]; int n; };

static void close_bands(struct linear *l, struct bands *b, int n)
{
    while (b->n > n) {
        b->n--;
        if (!range_is_grid(b->range[b->n]))
            end_passing(l);
        linear_push(l, uop_intern(l->t, OP_END, DTYPE_VOID, &b->range[b->n], 1, (union arg){0}));
        l->made = b->known[b->n];
    }
}

/* Computes the size of a band's loop, which may depend on outer loops. */
static void emit_size(struct linear *l, struct uop *size)
{
    int n;
    struct uop **order = uop_toposort(l->t, &size, 1, &n);
    for (int i = 0; i < n; i++) {
        bool known = op_class(order[i]->op) == CLASS_LEAF || order[i]->op == OP_RANGE;
        if (known || map_get(&l->made, order[i]))
            continue;
        linear_push(l, order[i]);
        map_set(&l->made, order[i], order[i]);
    }
}

/* Closes the bands that the store is not in, and opens those of its bands that are not open. */
static void enter_bands(struct linear *l, struct bands *b, struct uop *const *store, int nleft)
{
    int first = store_first_range(*store), nband = linear_count_bands(*store), same = 0;
    if (nband > MAX_RANK)
        TGC_BUG(l->t, "%d bands in each other", nband);
    while (same < b->n && same < nband && (*store)->src[first + same] == b->range[same])
        same++;
    close_bands(l, b, same);
    l->nbanded = b->n ? l->nbanded : 0;
    for (int k = b->n; k < nband; k++) {
        b->range[k] = (*store)->src[first + k];
        b->known[k] = copy_map(&l->made);
        b->n = k + 1;
        if (k == 0) {
            l->banded = store;
            l->nbanded = count_banded(store, nleft);
            emit_invariants(l);
        }
        emit_size(l, b->range[k]->src[0]);
        if (!range_is_grid(b->range[k]))
            end_passing(l);
        linear_push(l, b->range[k]);
    }
}

struct uop **linearize(struct tgc *t, const struct uop *ast, int *n, double *flop)
{
    struct mem_mark mark = scratch_mark(t);
    struct linear l = {.t = t, .made = {.t = t, .scratch = true}};
    struct bands bands = {.n = 0};
    int nshared, nstore;
    ast = matrix_linear_ast(t, ast);
    for (int i = 0; i < ast->nsrc; i += nstore) {
        struct uop *const *store = &ast->src[i];
        nstore = linear_find_group(t, store, ast->nsrc - i, &nshared);
        enter_bands(&l, &bands, store, ast->nsrc - i);
        if (passed_meets(t, &l.passed, store, nstore))
            end_passing(&l);
        emit_group(&l, store, nstore, nshared, linear_count_bands(*store));
        passed_note(t, &l.passed, store, nstore);
    }
    close_bands(&l, &bands, 0);
    struct uop **program = mem_copy(t, l.program, (size_t)l.nprogram * sizeof *l.program);
    *n = l.nprogram;
    *flop = l.flop;
    scratch_release(t, mark);
    return program;
}
