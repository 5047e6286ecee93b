/* opts_registers.c - KEEP_IN_REGISTERS: shared memory through which a block's threads pass elements
 * becomes registers, if each element is only one thread's.
 *
 *       keep_in_registers 5
 *
 *       rows of 64: i item 2, m item 8, e1 lane 2, t lane 8, n item 4, e0 lane 2
 *
 *       (i * 16 + e1 * 8 + m) * 64 + t * 8 + n * 2 + e0      of 2048, of the block
 *    -> e1 * 16 + t * 2 + e0                                 of 32, of each thread
 *
 * An offset is read as digits: each loop is one, with its stride and its number of iterations. All
 * loads and stores of the memory must have the same digits for threads, and no other digit or sum
 * of digits may reach into these. Then the threads' digits say which thread owns an element. In the
 * AST offsets stay those of the block's memory, which defines what is computed. The linear program
 * has the thread's own offsets (kernel_keep_registers()).
 *
 * Threads whose digit changes no offset (MMA_ROW_LAYOUT) each have a copy of the element and store
 * the same value, so the value must not vary with them. A matrix instruction's factor in such
 * registers is read by all lanes of a subgroup at once: each must hold what its lane supplies
 * (analysis/matrix.c). */
#include "passes/analysis/matrix.h"
#include "passes/kernel/opts_work.h"
#include "ir/device_ops.h"

enum { DIGITS_MAX = 16 };

/* item: the number of the ITEM loop. The part of an offset between two digits of threads is the
 * thread's own: part[i] is below digit i. */
struct digit {
    int64_t stride, n;
    int item;
};
struct digits {
    struct digit v[DIGITS_MAX];
    int n, nitem;
};

static int64_t below(const struct digits *d, int i)
{
    return i ? d->v[i - 1].stride * d->v[i - 1].n : 1;
}

static bool fail(const char **why, const char *text)
{
    *why = text;
    return false;
}

/* Finds the digits of the block's threads, lowest first. */
static bool find_digits(struct tgc *t, const struct uop *store, struct uop *offset,
                        struct digits *d, const char **why)
{
    static const char shared[] = "several threads access the same element";
    *d = (struct digits){.n = 0};
    for (int i = store_first_range(store); i < store->nsrc; i++) {
        int64_t stride;
        if (!range_is_item(store->src[i]))
            continue;
        int item = d->nitem++;
        if (!uop_depends_on(t, offset, store->src[i]))
            continue; /* these threads have copies of the same element */
        if (d->n == DIGITS_MAX || !index_stride(t, offset, store->src[i], &stride) || stride < 1)
            return fail(why, shared);
        int at = d->n++;
        for (; at > 0 && d->v[at - 1].stride > stride; at--)
            d->v[at] = d->v[at - 1];
        d->v[at] = (struct digit){stride, range_fixed_size(store->src[i]), item};
    }
    for (int i = 0; i < d->n; i++)
        if (d->v[i].stride % below(d, i))
            return fail(why, shared);
    return d->n > 0 || fail(why, "no threads of a block pass the elements on");
}

static bool digits_equal(const struct digits *a, const struct digits *b)
{
    bool same = a->n == b->n;
    for (int i = 0; i < a->n && same; i++)
        same = a->v[i].stride == b->v[i].stride && a->v[i].n == b->v[i].n &&
               a->v[i].item == b->v[i].item;
    return same;
}

/* The offset within the thread's own elements; NULL: it may be another thread's. nelem: of the
 * block's memory. */
static struct uop *own_offset(struct tgc *t, struct uop *offset, const struct digits *d,
                              int64_t nelem)
{
    int64_t used[DIGITS_MAX + 1] = {0}, iterations[DIGITS_MAX + 1] = {1}, constant;
    int n;
    struct uop *own = uop_int(t, 0), **order = uop_toposort(t, &offset, 1, &n);
    struct uop_map zero = {.t = t, .scratch = true};
    for (int i = 0; i < d->n; i++)
        iterations[i + 1] = iterations[i] * d->v[i].n;
    for (int i = 0; i < n; i++) {
        int64_t stride;
        int at = d->n;
        if (order[i]->op != OP_RANGE)
            continue;
        map_set(&zero, order[i], uop_int(t, 0));
        if (range_is_item(order[i]))
            continue;
        if (!index_stride(t, offset, order[i], &stride) || stride < 1 ||
            range_fixed_size(order[i]) < 1)
            return NULL;
        while (at > 0 && stride < below(d, at))
            at--;
        if (stride % below(d, at))
            return NULL;
        used[at] += stride * (range_fixed_size(order[i]) - 1);
        own = sym_add(t, own, sym_muli(t, order[i], stride / iterations[at]));
    }
    if (!uop_const_int(uop_substitute_all(t, offset, &zero), &constant) || constant < 0)
        return NULL;
    for (int i = 0; i <= d->n; i++) {
        int64_t end = i < d->n ? d->v[i].stride : nelem,
                part = constant % end / below(d, i) * below(d, i);
        if (used[i] + part >= end || (i < d->n && constant / end % d->v[i].n))
            return NULL;
        own = sym_addi(t, own, part / iterations[i]);
    }
    return own;
}

/* Whether u varies with the range, sums over it excepted. */
static bool changes_with(struct tgc *t, struct uop *u, const struct uop *r)
{
    int n;
    struct mem_mark mark = scratch_mark(t);
    struct uop **order = uop_toposort(t, &u, 1, &n);
    struct uop_map changes = {.t = t, .scratch = true};
    for (int i = 0; i < n; i++) {
        bool is = order[i] == r, bound = false;
        for (int k = 0; k < order[i]->nsrc && order[i] != r; k++) {
            bound |= order[i]->op == OP_REDUCE && order[i]->src[k] == r;
            is |= map_get(&changes, order[i]->src[k]) != NULL;
        }
        if (is && !bound)
            map_set(&changes, order[i], order[i]);
    }
    bool found = map_get(&changes, u) != NULL;
    scratch_release(t, mark);
    return found;
}

/* Whether threads with copies of one element store the same value: nothing but sums varies with
 * them. */
static bool stores_the_same(struct tgc *t, const struct uop *store, const struct digits *d)
{
    int item = 0;
    for (int i = store_first_range(store); i < store->nsrc; i++) {
        bool is_digit = false;
        if (!range_is_item(store->src[i]))
            continue;
        for (int k = 0; k < d->n; k++)
            is_digit |= d->v[k].item == item;
        item++;
        for (int k = 2; k < store_first_range(store) && !is_digit; k++)
            if (changes_with(t, store->src[k], store->src[i]))
                return false;
    }
    return true;
}

/* The matrix product that the load is a factor of, and which factor; NULL: there is none. */
static struct uop *product_of(struct tgc *t, struct uop *store, const struct uop *load,
                              enum matrix_part *part)
{
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n), *factor[2];
    for (int i = 0; i < n; i++) {
        if (order[i]->op != OP_REDUCE || !REDUCE_MATRIX(order[i]->arg.i))
            continue;
        const struct matrix_row *row =
            matrix_row((enum matrix_unit)(REDUCE_MATRIX(order[i]->arg.i) - 1));
        for (int exchanged = 0; exchanged < 2; exchanged++)
            for (int k = 0; matrix_factors(order[i], row, exchanged, factor) && k < 2; k++)
                if ((factor[k] == load ||
                     (factor[k]->op == OP_CAST && factor[k]->src[0] == load)) &&
                    uop_depends_on(t, factor[k], order[i]->src[order[i]->nsrc - 1])) {
                    *part = k ? MATRIX_B : MATRIX_A;
                    return order[i];
                }
    }
    return NULL;
}

/* Reads an access of the kept memory: the threads' digits, and the thread's own offset. NULL: some
 * element is another thread's. */
static struct uop *find_own(struct tgc *t, struct uop *store, const struct uop *u, int64_t nelem,
                            struct digits *d, const char **why)
{
    enum matrix_part part;
    struct matrix_axis element[MATRIX_BITS_MAX];
    struct uop *offset = u->src[1], *sum = u->op == OP_LOAD ? product_of(t, store, u, &part) : NULL,
               *k = sum ? sum->src[sum->nsrc - 1] : NULL;
    int n = 0;
    if (sum)
        offset = matrix_own_terms(t, store,
                                  matrix_row((enum matrix_unit)(REDUCE_MATRIX(sum->arg.i) - 1)),
                                  part, offset, k, element, &n);
    if (!offset || !find_digits(t, store, offset, d, why))
        return NULL;
    struct uop *own = own_offset(t, offset, d, nelem);
    for (int i = 0; i < n && own; i++)
        own =
            uop_substitute(t, own, element[i].range,
                           sym_mod(t, sym_div(t, k, uop_int(t, element[i].scale)), uop_int(t, 2)));
    return own;
}

static struct uop *store_at(struct tgc *t, const struct uop *store, struct uop *memory,
                            struct uop *place)
{
    struct uop **src = mem_copy(t, store->src, (size_t)store->nsrc * sizeof *src);
    src[0] = memory, src[1] = place;
    return uop_intern(t, OP_STORE, store->dtype, src, store->nsrc, store->arg);
}

/* Replaces `memory` by `own` in the AST; own_places: and offsets by those within a thread's part.
 * NULL, with *why: a thread accesses an element of another one's part. */
static struct uop *replace_memory(struct tgc *t, struct uop *ast, struct uop *memory,
                                  struct uop *own, bool own_places, const char **why)
{
    struct uop **now = scratch_array(t, (size_t)ast->nsrc, sizeof *now);
    struct digits first = {.n = 0}, here;
    int64_t nelem = uop_buffer_of(memory)->dim[0]->arg.i;
    for (int i = 0; i < ast->nsrc; i++) {
        struct uop_map by = {.t = t, .scratch = true};
        struct uop *place = NULL, **order;
        int n;
        order = uop_toposort(t, &ast->src[i], 1, &n);
        for (int j = 0; j < n; j++) {
            struct uop *u = order[j], *src[RANGES_MAX + 8], *v;
            if ((u->op != OP_LOAD && u->op != OP_STORE) || u->src[0] != memory)
                continue;
            here.n = 0;
            v = u->nsrc > RANGES_MAX + 8 ? NULL : find_own(t, ast->src[i], u, nelem, &here, why);
            first = first.n ? first : here;
            if (!v || !digits_equal(&first, &here) ||
                (u->op == OP_STORE && !stores_the_same(t, u, &here))) {
                *why = *why ? *why : "a thread reads or stores another one's element";
                return NULL;
            }
            place = own_places ? v : u->src[1]; /* the store comes last in order[] */
            for (int k = 2; k < u->nsrc; k++)
                src[k] = u->src[k];
            src[0] = own, src[1] = place;
            if (u->op == OP_LOAD)
                map_set(&by, u, uop_intern(t, OP_LOAD, u->dtype, src, u->nsrc, u->arg));
        }
        now[i] = by.used ? uop_substitute_all(t, ast->src[i], &by) : ast->src[i];
        if (now[i]->src[0] == memory)
            now[i] = store_at(t, now[i], own, place);
    }
    return uop_intern(t, OP_SINK, DTYPE_VOID, now, ast->nsrc, ast->arg);
}

/* Elements of the memory that each thread has; 0: they do not divide evenly. */
static int64_t own_elements(struct tgc *t, const struct uop *store)
{
    struct digits d;
    const char *why = NULL;
    int64_t nelem = uop_buffer_of(store->src[0])->dim[0]->arg.i, threads = 1;
    if (!find_digits(t, store, store->src[1], &d, &why))
        return 0;
    for (int i = 0; i < d.n; i++)
        threads = sat_mul(threads, d.v[i].n);
    return nelem % threads ? 0 : nelem / threads;
}

bool apply_keep_in_registers(struct work *w, const struct opt *opt)
{
    enum { REGISTERS_NBYTES = 1024 };
    work_close(w);
    struct uop *store = w->ast->src[opt->store], *memory = store->src[0];
    const struct buffer *was = uop_buffer_of(memory);
    if (opt->of != OF_STORE || was->kind != BUFFER_SCRATCH || was->scratch.space != SPACE_SHARED ||
        was->ndim != 1 || was->dim[0]->op != OP_CONST)
        return work_refuse(w, "the store writes no scratch in shared memory");
    int64_t nelem = own_elements(w->t, store);
    if (!nelem)
        return work_refuse(w, "several threads access the same element");
    if (nelem * (int64_t)dtype_nbytes(was->dtype) > REGISTERS_NBYTES)
        return work_refuse(w, "a thread's elements do not fit its registers");
    struct buffer *b = work_new_memory(w, was->dtype, was->dim[0]->arg.i, SPACE_SCRATCH);
    b->scratch.is_register = true;
    w->why = NULL;
    struct uop *ast = replace_memory(w->t, w->ast, memory, uop_buffer(w->t, b), false, &w->why);
    w->ast = ast ? ast : w->ast;
    return ast != NULL;
}

static struct uop *first_store(const struct uop *ast, const struct buffer *b)
{
    int i = 0;
    while (i + 1 < ast->nsrc && uop_buffer_of(ast->src[i]->src[0]) != b)
        i++;
    return ast->src[i];
}

void kernel_keep_registers(struct tgc *t, struct kernel *k)
{
    const char *why = NULL;
    int n = k->nscratch;
    for (int i = 0; i < n; i++) {
        struct buffer *was = k->scratch[i];
        if (!was->scratch.is_register || was->scratch.is_own)
            continue;
        struct buffer *own =
            kernel_new_scratch(t, k, was->dtype, own_elements(t, first_store(k->ast, was)));
        own->scratch.is_register = own->scratch.is_own = true;
        k->scratch[i] = k->scratch[--k->nscratch];
        for (int v = -1; v < k->nvariant; v++) {
            struct uop **ast = v < 0 ? &k->ast : &k->variant[v].ast;
            *ast = replace_memory(t, *ast, uop_buffer(t, was), uop_buffer(t, own), true, &why);
            if (!*ast)
                TGC_BUG(t, "%s: registers: %s", k->name, why);
        }
    }
}
