/* optimize.c - OptOps: how a kernel's loops are tiled. They are data (kernel.opt), chosen here, applied to the AST.
 *
 * UPCAST splits an output range r of size n into r' * amount + lane. A contraction (matmul, convolution) then keeps rows x columns
 * accumulators and uses each loaded value several times; the columns lie side by side in memory, so that a compiler makes vectors of
 * them. The choice: columns along the range in which the output is contiguous, 16 or the largest divisor near it, if the operands are
 * contiguous in it or do not depend on it; rows along the largest other range that one operand does not depend on. Only exact divisors:
 * no remainder code.
 *
 *      acc[4][16] = 0;  for k: for row: for column: acc[row][column] += a[i + row, k] * b[k, j + column]
 */
#include "passes/passes.h"

#include <string.h>

enum { VECTOR = 4, COLUMNS_MAX = 32, COLUMNS_STRIDED = 4, ROWS = 4, TILE_MAX = 64, MAX_LOADS = 32 };

struct nest {
    struct tgc *t;
    struct uop *store;
    int first;                   /* store->src[first..]: its ranges */
    struct uop *reduce;          /* the contraction */
    struct uop *load[MAX_LOADS]; int nload;     /* under it */
};

struct substitution { struct uop *from, *to; };

static struct uop *substitute(struct tgc *t, void *ctx, struct uop *u)
{
    (void)t;
    const struct substitution *s = ctx;
    return u == s->from ? s->to : NULL;
}

static struct uop *replace(struct tgc *t, struct uop *u, struct uop *from, struct uop *to)
{
    struct substitution s = {from, to};
    uop_rewrite(t, &u, 1, substitute, &s);
    return u;
}

/* By how much `offset` grows with r; false if that is no constant. */
static bool stride_in(struct tgc *t, struct uop *offset, struct uop *r, int64_t *stride)
{
    struct uop *next = replace(t, offset, r, sym_addi(t, r, 1));
    return uop_const_int(sym_sub(t, next, offset), stride);
}

static bool depends_on(struct tgc *t, struct uop *u, const struct uop *r)
{
    int n;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i] == r)
            return true;
    return false;
}

/* The one contraction of a store, directly under its ranges; false if there is none, or anything that lanes do not go through. */
static bool find_contraction(struct nest *m)
{
    int n;
    struct uop **order = uop_toposort(m->t, &m->store->src[2], 1, &n);
    for (int i = 0; i < n; i++) {
        if (order[i]->op == OP_STAGE || (order[i]->op == OP_LOAD && order[i]->src[0] == m->store->src[0]))
            return false;
        if (order[i]->op != OP_REDUCE)
            continue;
        if (m->reduce)
            return false;
        m->reduce = order[i];
    }
    if (!m->reduce || REDUCE_OP(m->reduce->arg.i) != OP_ADD)
        return false;
    order = uop_toposort(m->t, &m->reduce->src[0], 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOAD) {
            if (m->nload == MAX_LOADS)
                return false;
            m->load[m->nload++] = order[i];
        }
    return m->nload >= 2;
}

static int64_t largest_divisor(int64_t n, int64_t most)
{
    for (int64_t d = most; d > 1; d--)
        if (n % d == 0)
            return d;
    return 1;
}

/* How many columns along r; 1: it is no column range. */
static int64_t columns_along(const struct nest *m, struct uop *r)
{
    int64_t n, stride;
    bool contiguous = false, strided = false;
    if (!uop_const_int(r->src[0], &n) || !stride_in(m->t, m->store->src[1], r, &stride) || stride != 1)
        return 1;
    for (int i = 0; i < m->nload; i++) {
        if (m->load[i]->nsrc > 2 && depends_on(m->t, m->load[i]->src[2], r))
            return 1;
        if (!stride_in(m->t, m->load[i]->src[1], r, &stride))
            return 1;
        contiguous |= stride == 1;
        strided |= stride != 0 && stride != 1;
    }
    if (strided)
        return largest_divisor(n, COLUMNS_STRIDED);
    if (!contiguous)
        return largest_divisor(n, COLUMNS_STRIDED);
    if (n % (4 * VECTOR) == 0)
        return 4 * VECTOR;
    int64_t vectors = n % VECTOR == 0 ? largest_divisor(n / VECTOR, COLUMNS_MAX / VECTOR) : 0;
    return vectors ? vectors * VECTOR : largest_divisor(n, COLUMNS_MAX);   /* whole vectors, if the size has any */
}

/* How many rows along r: an operand that does not depend on r is used for all of them. */
static int64_t rows_along(const struct nest *m, struct uop *r, int64_t columns)
{
    int64_t n;
    bool reuse = false;
    if (!uop_const_int(r->src[0], &n))
        return 1;
    for (int i = 0; i < m->nload; i++) {
        if (m->load[i]->nsrc > 2 && depends_on(m->t, m->load[i]->src[2], r))
            return 1;
        reuse |= !depends_on(m->t, m->load[i]->src[1], r);
    }
    return reuse ? largest_divisor(n, columns * ROWS <= TILE_MAX ? ROWS : TILE_MAX / columns) : 1;
}

/* UPCAST: the lane joins the store's ranges at the end, the quotient takes r's place. */
static struct uop *apply_upcast(struct tgc *t, struct uop *store, int first, const struct opt *o, const char *name)
{
    struct uop *r = store->src[o->axis], *src[4 + 64];
    if (store->nsrc >= 64)
        return store;
    struct uop *lane = uop_lane(t, uop_int(t, o->amount), t->next_range++);
    struct uop *outer = sym_div(t, r->src[0], uop_int(t, o->amount));
    bool whole = uop_is_int(outer, 1);
    struct uop *q = whole ? uop_int(t, 0) : uop_range(t, outer, t->next_range++);
    struct uop *by = sym_add(t, sym_muli(t, q, o->amount), lane);
    uop_name_axes(t, lane, name);
    if (uop_get_axes(t, r) && !whole)
        uop_name_axes(t, q, uop_get_axes(t, r));
    for (int k = 0; k < first; k++)
        src[k] = replace(t, store->src[k], r, by);
    int n = first;
    for (int k = first; k < store->nsrc; k++)
        if (k != o->axis)
            src[n++] = store->src[k];
        else if (!whole)
            src[n++] = q;
    src[n++] = lane;
    return uop_intern(t, OP_STORE, store->dtype, src, n, (union arg){0});
}

static struct uop *optimize_store(struct tgc *t, struct kernel *k, struct uop *store)
{
    struct nest m = {.t = t, .store = store, .first = store->nsrc > 3 && store->src[3]->op != OP_RANGE ? 4 : 3};
    struct opt columns = {OPT_UPCAST, 0, 1}, rows = {OPT_UPCAST, 0, 1};
    if (m.first == 4 || !find_contraction(&m))
        return store;
    for (int a = store->nsrc - 1; a >= m.first && columns.amount == 1; a--)
        columns = (struct opt){OPT_UPCAST, a, columns_along(&m, store->src[a])};
    for (int a = store->nsrc - 1; a >= m.first; a--) {
        int64_t n = a == columns.axis ? 1 : rows_along(&m, store->src[a], columns.amount);
        if (n > rows.amount)
            rows = (struct opt){OPT_UPCAST, a, n};
    }
    if (rows.amount > 1) {
        VEC_PUSH(t, k->opt, k->nopt, k->cap_opt, rows);
        int before = store->nsrc;
        store = apply_upcast(t, store, m.first, &rows, "row");
        if (columns.axis > rows.axis && store->nsrc == before)
            columns.axis--;                           /* the rows' range is gone whole, or its quotient stayed in place */
    }
    if (columns.amount > 1) {
        VEC_PUSH(t, k->opt, k->nopt, k->cap_opt, columns);
        store = apply_upcast(t, store, m.first, &columns, "column");
    }
    return store;
}

bool pass_optimize(struct tgc *t, struct schedule *s)
{
    for (int i = 0; i < s->nkernel; i++) {
        struct kernel *k = s->kernel[i];
        struct uop **store = mem_copy(t, k->ast->src, (size_t)k->ast->nsrc * sizeof *store);
        for (int j = 0; j < k->ast->nsrc; j++)
            store[j] = optimize_store(t, k, store[j]);
        k->ast = uop_intern(t, OP_SINK, DTYPE_VOID, store, k->ast->nsrc, (union arg){0});
    }
    return true;
}
