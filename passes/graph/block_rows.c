/* block_rows.c - large values that lie between small ones are computed by blocks of rows, in a
 * loop, and none is stored as a whole.
 *
 *      P[q, k]  = softmax of sum over e  Q[q, e] K[k, e]
 *      dP[q, k] = sum over e dO[q, e] V[k, e]
 *      dS       = P (dP - sum over k of dP P)
 *      dV[k, e] = sum over q  P[q, k] dO[q, e]                for block < 32
 *      dK[k, e] = sum over q dS[q, k]  Q[q, e]          ->      P, dP, dS of 128 q
 *      dQ[q, e] = sum over k dS[q, k]  K[k, e]                  dV, dK += ...;  dQ of the block
 *
 * That is attention's gradient: for 4,096 tokens P and dS take 64 MB a head each, while all that
 * they are made of and all that is made of them takes 7. A forward pass computes P block by block
 * anyway (online softmax). So what is large is computed again, a block of rows at a time. A block
 * stays in the cache, and a step's memory is linear in the number of tokens.
 *
 * A region grows from a sum over rows of something large: upward through elementwise ops, sums of
 * products and statistics of rows (maxima, sums), until what is small. Other sums of the same
 * values join it, unless the region's operands depend on them, as on the forward product with the
 * values. Legality: no value of the region reduces the rows, but for the sums that leave it; each
 * axis of the rows stays an axis of its own; nothing else reads what would not be stored.
 * Where a mask hides keys by position, a block computes those alone that its rows can see
 * (block_rows_mask.c).
 * source: Dao, FlashAttention-2, 2023, 3.1; Griewank, Achieving logarithmic growth, 1992 */
#include "passes/graph/block_rows.h"
#include "passes/analysis/contraction.h"
#include "passes/analysis/value.h"

/* Elements of a large value, for each of the small ones that it is made of, and that are made of
 * it. With 8 heads of 64 features, on one core with AVX-512, 1,024 tokens take 6 % longer by blocks
 * (causal: 30 % less) in a seventh of the memory; 2,048 tokens 15 % less in a fourteenth. */
enum { LARGE_LEAST = 2 };
/* Values of a region. Those of attention's gradient have less than a hundred; one that goes on
 * through layers has no end, and is refused before it takes time. */
enum { VALUES_MOST = 512 };

static struct along nowhere(void)
{
    struct along p;
    for (int a = 0; a < MAX_RANK; a++)
        p.axis[a] = -1;
    return p;
}

static bool is_one(const struct uop *dim) { return uop_is_int(dim, 1); }

int place_axis(const struct uop *u, const struct along *at, int a)
{
    return is_one(u->dim[a]) ? -1 : at->axis[a];
}

/* ------------------------------------------------------------------------------------- places */

/* Places through a reshape from `from` to `to`, either way: axes of more than one element in order,
 * where sizes agree. Others that are joined or split are noted in r->merged. */
static bool reshape_place(struct region *r, const struct uop *from, const struct along *at,
                          const struct uop *to, struct along *out)
{
    int i = 0, k = 0;
    *out = nowhere();
    for (;;) {
        while (i < from->ndim && is_one(from->dim[i]))
            i++;
        while (k < to->ndim && is_one(to->dim[k]))
            k++;
        if (i == from->ndim || k == to->ndim)
            return i == from->ndim && k == to->ndim;
        int64_t a = 1, b = 1, n;
        if (from->dim[i] == to->dim[k]) {
            out->axis[k++] = at->axis[i++];
            continue;
        }
        for (int count = 0; count == 0 || a != b; count++) {     /* a group of axes */
            bool left = a <= b;
            const struct uop *u = left ? from : to;
            int *next = left ? &i : &k;
            if (*next == u->ndim || !uop_const_int(u->dim[*next], &n) || n < 1)
                return false;
            if (left && at->axis[*next] >= 0)
                r->merged |= 1u << at->axis[*next];
            *(left ? &a : &b) = sat_mul(left ? a : b, n);
            ++*next;
        }
    }
}

bool place_below(struct region *r, const struct uop *u, int k, const struct along *at,
                 struct along *below)
{
    const struct uop *x = u->src[k];
    *below = nowhere();
    if (op_is_elementwise(u->op)) {
        if (x->ndim > 0)
            *below = *at;
        return x->ndim == 0 || x->ndim == u->ndim;
    }
    switch (u->op) {
    case OP_RESHAPE: return reshape_place(r, u, at, x, below);
    case OP_PERMUTE:
        for (int a = 0; a < u->ndim; a++)
            below->axis[PERM_GET(u->arg.i, a)] = at->axis[a];
        return true;
    case OP_EXPAND: *below = *at; return true;
    case OP_REDUCE: *below = *at; return true;   /* of a reduced axis, the place that it had */
    default: return false;
    }
}

/* The place of what a move makes of a value at `at`. */
static bool place_above(struct region *r, const struct uop *u, const struct along *at,
                        struct along *above)
{
    const struct uop *x = u->src[0];
    *above = nowhere();
    switch (u->op) {
    case OP_RESHAPE: return reshape_place(r, x, at, u, above);
    case OP_PERMUTE:
        for (int a = 0; a < u->ndim; a++)
            above->axis[a] = at->axis[PERM_GET(u->arg.i, a)];
        return true;
    case OP_EXPAND:
        for (int a = 0; a < u->ndim; a++)
            above->axis[a] = place_axis(x, at, a);
        return true;
    case OP_CAST: *above = *at; return true;
    default: return false;
    }
}

static const struct along *place_of(const struct region *r, const struct uop *u)
{
    return map_get(&r->inside, u);
}

static int number_of(const struct region *r, const struct uop *u)
{
    return (int)(uintptr_t)map_get(r->number, u) - 1;
}

static void swap(int *a, int *b)
{
    int was = *a;
    *a = *b;
    *b = was;
}

static void push_open(struct region *r, int number)
{
    SCRATCH_PUSH(r->t, r->open, r->nopen, r->cap_open, number);
    for (int i = r->nopen - 1; i > 0 && r->open[(i - 1) / 2] < r->open[i]; i = (i - 1) / 2)
        swap(&r->open[i], &r->open[(i - 1) / 2]);
}

/* Takes the one that comes last in the order: all its consumers were taken before. */
static int pop_open(struct region *r)
{
    int last = r->open[0];
    r->open[0] = r->open[--r->nopen];
    for (int i = 0, next; (next = 2 * i + 1) < r->nopen; i = next) {
        next += next + 1 < r->nopen && r->open[next + 1] > r->open[next];
        if (r->open[next] <= r->open[i])
            break;
        swap(&r->open[i], &r->open[next]);
    }
    return last;
}

/* Adds what a consumer knows of u's place; false: two consumers disagree. */
static bool set_place(struct region *r, const struct uop *u, const struct along *at)
{
    struct along *now = map_get(&r->inside, u);
    if (!now) {
        now = scratch_array(r->t, 1, sizeof *now);
        *now = *at;
        map_set(&r->inside, u, now);
        push_open(r, number_of(r, u));
        return true;
    }
    for (int a = 0; a < u->ndim; a++) {
        if (now->axis[a] >= 0 && at->axis[a] >= 0 && now->axis[a] != at->axis[a])
            return false;
        now->axis[a] = at->axis[a] >= 0 ? at->axis[a] : now->axis[a];
    }
    return true;
}

/* ------------------------------------------------------------------------------ what is inside */

static bool is_large(const struct region *r, const struct uop *u)
{
    return value_nelem(u) >= value_nelem(r->frame);
}

static bool is_step(const struct uop *u)
{
    return (op_is_elementwise(u->op) && u->nsrc <= REGION_SOURCES) || u->op == OP_REDUCE;
}

/* Whether v, which is small, is computed of one number of each row: a reduction of a large value
 * along one axis of the frame, by elementwise ops. */
static bool is_statistic(const struct region *r, struct uop *v)
{
    enum { STEPS = 32 };
    struct uop *open[STEPS] = {v};
    for (int n = 1, step = 0; n > 0 && step < STEPS; step++) {
        struct uop *u = value_behind(open[--n], MOVES_SPREAD);
        if (u->op == OP_REDUCE && is_large(r, u->src[0]))
            for (int a = 0; a < r->frame->ndim; a++)
                if (!is_one(r->frame->dim[a]) &&
                    value_nelem(u) * dim_extent(r->frame->dim[a]) == value_nelem(r->frame))
                    return true;
        for (int k = 0; op_is_elementwise(u->op) && k < u->nsrc && n < STEPS; k++)
            open[n++] = u->src[k];
    }
    return false;
}

static bool belongs(const struct region *r, struct uop *u)
{
    return is_step(u) && u->ndim > 0 && !value_is_index_like(u) && !value_is_stationary(u) &&
           (is_large(r, u) || is_statistic(r, u));
}

static void add_input(struct region *r, struct uop *u)
{
    u = value_behind(u, MOVES_ANY);
    for (int i = 0; i < r->ninput; i++)
        if (r->input[i] == u)
            return;
    if (u->op != OP_CONST && !value_is_index_like(u))
        SCRATCH_PUSH(r->t, r->input, r->ninput, r->cap_input, u);
}

/* Gives u's sources their places, or notes them as operands. */
static bool go_below(struct region *r, struct uop *u)
{
    const struct along *at = place_of(r, u);
    int nsrc = op_class(u->op) == CLASS_MOVE || u->op == OP_REDUCE ? 1 : u->nsrc;
    for (int k = 0; k < nsrc; k++) {
        struct uop *x = u->src[k];
        struct along below;
        if (!belongs(r, value_behind(x, MOVES_SPREAD)))
            add_input(r, x);
        else if (!place_below(r, u, k, at, &below) || !set_place(r, x, &below))
            return false;
    }
    return true;
}

/* All that the sums are made of, consumers first, so that each value has its place before its
 * sources get theirs. */
static bool fill(struct region *r)
{
    r->inside = (struct uop_map){.t = r->t, .scratch = true};
    r->input = NULL, r->ninput = 0, r->cap_input = 0;
    r->member = NULL, r->nmember = 0, r->cap_member = 0;
    r->open = NULL, r->nopen = 0, r->cap_open = 0;
    r->merged = 0;
    for (int i = 0; i < r->nsum; i++)
        if (!set_place(r, r->sum[i].sum->src[0], &r->sum[i].at))
            return false;
    while (r->nopen > 0) {
        int i = pop_open(r);
        SCRATCH_PUSH(r->t, r->member, r->nmember, r->cap_member, i);
        if (r->nmember > VALUES_MOST || !go_below(r, r->order[i]))
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------------- its sums */

/* A sum of products whose factor k is large; the factor's base. */
static struct uop *large_factor(const struct uop *u, int k)
{
    enum { TIMES = 2, LEAST = 1 << 10 };
    const struct uop *product = u->op == OP_REDUCE ? summed_product(u) : NULL;
    if (!product || u->src[0] != product || !dtype_is_float(u->dtype))
        return NULL;
    struct uop *v = value_behind(product->src[k], MOVES_SPREAD | MOVES_CAST);
    bool large = is_step(v) && value_nelem(v) >= LEAST && value_nelem(v) >= TIMES * value_nelem(u);
    return large && !value_is_index_like(v) && !value_is_stationary(v) ? v : NULL;
}

/* The place of the product, from that of the base of its factor k. */
static bool place_of_product(struct region *r, const struct uop *product, int k,
                             const struct along *base, struct along *at)
{
    const struct path p = path_down(product->src[k], MOVES_SPREAD | MOVES_CAST);
    *at = *base;
    for (int i = p.n - 1; i >= 0; i--) {
        struct along below = *at;
        if (!place_above(r, p.move[i], &below, at))
            return false;
    }
    return true;
}

/* The place of v, which is in the region, or is elementwise of values that are. */
static bool find_place(const struct region *r, struct uop *v, struct along *at)
{
    enum { STEPS = 32 };
    struct uop *open[STEPS] = {v};
    for (int n = 1, step = 0; n > 0 && step < STEPS; step++) {
        struct uop *u = open[--n];
        if (place_of(r, u)) {
            *at = *place_of(r, u);
            return true;
        }
        for (int k = 0; op_is_elementwise(u->op) && k < u->nsrc && n < STEPS; k++)
            if (u->src[k]->ndim == v->ndim)
                open[n++] = u->src[k];
    }
    return false;
}

/* Whether no operand of the region depends on one of its sums. What comes before all of them in the
 * order does not. */
static bool is_behind_operands(struct region *r)
{
    struct mem_mark mark = scratch_mark(r->t);
    struct uop_map seen = {.t = r->t, .scratch = true};
    struct uop **open = NULL;
    int n = 0, least = r->norder;
    size_t cap = 0;
    bool none = true;
    for (int i = 0; i < r->nsum; i++)
        least = number_of(r, r->sum[i].sum) < least ? number_of(r, r->sum[i].sum) : least;
    for (int i = 0; i < r->ninput; i++)
        SCRATCH_PUSH(r->t, open, n, cap, r->input[i]);
    while (n > 0 && none) {
        struct uop *u = open[--n];
        if (number_of(r, u) < least || map_get(&seen, u))
            continue;
        map_set(&seen, u, u);
        for (int i = 0; i < r->nsum; i++)
            none &= r->sum[i].sum != u;
        for (int k = 0; k < u->nsrc; k++)
            SCRATCH_PUSH(r->t, open, n, cap, u->src[k]);
    }
    scratch_release(r->t, mark);
    return none;
}

/* false: the region is as it was. */
static bool try_sum(struct region *r, struct uop *u, int k, const struct along *base)
{
    struct region before = *r;
    struct region_sum s = {.sum = u};
    if (r->nsum == MAX_SUMS || !place_of_product(r, u->src[0], k, base, &s.at)) {
        *r = before;
        return false;
    }
    struct mem_mark mark = scratch_mark(r->t);
    r->sum[r->nsum++] = s;
    if (fill(r) && !(r->merged >> r->row & 1) && is_behind_operands(r))
        return true;
    *r = before;
    scratch_release(r->t, mark);
    return false;
}

static bool has_sum(const struct region *r, const struct uop *u)
{
    for (int i = 0; i < r->nsum; i++)
        if (r->sum[i].sum == u)
            return true;
    return false;
}

/* A sum of products whose factor k has a large base. */
struct candidate { struct uop *sum, *base; int k; };
struct candidates { struct candidate *v; int n; size_t cap; };

/* Other sums of the region's values join. */
static void add_sums(struct region *r, const struct candidates *all)
{
    for (int i = 0; i < all->n; i++) {
        const struct candidate *c = &all->v[i];
        struct along base;
        if (!has_sum(r, c->sum) && is_large(r, c->base) && !is_statistic(r, c->sum) &&
            find_place(r, c->base, &base) && try_sum(r, c->sum, c->k, &base))
            i = -1;
    }
}

/* ------------------------------------------------------------------------------------- legality */

/* Axes of the frame that u, of a product at `at`, reduces. */
static uint32_t reduced_axes(const struct uop *u, const struct along *at)
{
    uint32_t axes = 0;
    for (int a = 0; a < u->ndim; a++)
        if ((REDUCE_AXES(u->arg.i) >> a & 1) && at->axis[a] >= 0)
            axes |= 1u << at->axis[a];
    return axes;
}

static uint32_t axes_of_place(const struct uop *u, const struct along *at)
{
    uint32_t axes = 0;
    for (int a = 0; a < u->ndim; a++)
        if (place_axis(u, at, a) >= 0)
            axes |= 1u << at->axis[a];
    return axes;
}

/* Finds the batch and the keys, which a statistic or a sum reduces; false: the rows are reduced
 * inside. */
static bool find_axes(struct region *r)
{
    uint32_t inside = 0, by_sums = 0, common = ~0u;
    for (int i = 0; i < r->nmember; i++) {
        const struct uop *u = r->order[r->member[i]];
        if (u->op == OP_REDUCE)
            inside |= reduced_axes(u, place_of(r, u->src[0]) ? place_of(r, u->src[0])
                                                             : place_of(r, u));
    }
    for (int i = 0; i < r->nsum; i++) {
        by_sums |= reduced_axes(r->sum[i].sum, &r->sum[i].at);
        common &= axes_of_place(r->sum[i].sum->src[0], &r->sum[i].at);
    }
    r->batch = common & ~(inside | by_sums | r->merged | 1u << r->row);
    r->key = -1;
    for (int a = 0; a < r->frame->ndim; a++)
        if (a != r->row && !(r->batch >> a & 1) && !is_one(r->frame->dim[a]) &&
            ((inside | by_sums) >> a & 1) &&
            (r->key < 0 || dim_extent(r->frame->dim[a]) > dim_extent(r->frame->dim[r->key])))
            r->key = a;
    return !(inside >> r->row & 1);
}

/* Whether nothing reads a large value but the region, its sums and what its operands are made of,
 * which would be stored anyway. */
static bool is_closed(struct region *r, struct graph *g)
{
    struct uop_map own = {.t = r->t, .scratch = true};
    int nroot, n;
    struct uop **below = uop_toposort(r->t, r->input, r->ninput, &n);
    for (int i = 0; i < n; i++)
        map_set(&own, below[i], r);
    struct uop **root = graph_roots(r->t, g, &nroot);
    for (int i = 0; i < nroot; i++)
        if (place_of(r, root[i]) && is_large(r, root[i]) && !map_get(&own, root[i]))
            return false;
    for (int i = 0; i < r->norder; i++) {
        struct uop *u = r->order[i];
        bool known = place_of(r, u) || has_sum(r, u) || map_get(&own, u);
        for (int k = 0; k < u->nsrc && !known; k++)
            if (place_of(r, u->src[k]) && is_large(r, u->src[k]))
                return false;
    }
    return true;
}

static bool is_known(const struct uop *dim)
{
    int64_t n;
    return uop_const_int(dim, &n);
}

/* Whether the large values come from sums of products of small ones. */
static bool has_products(const struct region *r)
{
    for (int i = 0; i < r->nmember; i++) {
        struct uop *u = r->order[r->member[i]];
        if (summed_product(u) && is_large(r, u))
            return true;
    }
    return false;
}

static bool is_worth_it(const struct region *r)
{
    double small = 0, large = value_nelem(r->frame);
    if (r->nsum < 2 || r->key < 0 || !is_known(r->frame->dim[r->row]) ||
        !is_known(r->frame->dim[r->key]) || !has_products(r))
        return false;
    for (int i = 0; i < r->ninput; i++)
        small += is_large(r, r->input[i]) ? 0 : value_nelem(r->input[i]);
    for (int i = 0; i < r->nsum; i++)
        small += value_nelem(r->sum[i].sum);
    return large >= LARGE_LEAST * small &&
           r->frame->dim[r->row]->arg.i > region_block_rows(r);
}

/* A region that grows from the sum of a candidate. */
static bool find_region(struct graph *g, const struct candidates *all, const struct candidate *c,
                        struct region *r)
{
    struct along base = nowhere();
    struct uop *u = c->sum;
    r->frame = c->base;
    for (int a = 0; a < r->frame->ndim; a++)
        base.axis[a] = is_one(r->frame->dim[a]) ? -1 : a;
    struct region_sum s = {.sum = u};
    if (!place_of_product(r, u->src[0], c->k, &base, &s.at))
        return false;
    r->row = -1;
    for (int a = 0; a < r->frame->ndim; a++)
        if ((reduced_axes(u, &s.at) >> a & 1) &&
            (r->row < 0 || dim_extent(r->frame->dim[a]) > dim_extent(r->frame->dim[r->row])))
            r->row = a;
    if (r->row < 0 || !try_sum(r, u, c->k, &base) || !find_axes(r))
        return false;
    add_sums(r, all);
    return find_axes(r) && is_worth_it(r) && is_closed(r, g);
}

static struct uop *replace(struct tgc *t, void *ctx, struct uop *u)
{
    (void)t;
    return map_get(ctx, u);
}

/* Computes one region by blocks; false: there is none. */
static bool block_one(struct tgc *t, struct graph *g)
{
    struct mem_mark mark = scratch_mark(t);
    int nroot, n;
    struct uop **root = graph_roots(t, g, &nroot), **order = uop_toposort(t, root, nroot, &n);
    struct uop_map number = {.t = t, .scratch = true}, by = {.t = t, .scratch = true};
    struct candidates all = {0};
    struct region r;
    bool found = false;
    for (int i = 0; i < n; i++) {
        map_set(&number, order[i], (void *)(uintptr_t)(i + 1));
        for (int k = 0; k < 2; k++) {
            struct uop *base = large_factor(order[i], k);
            if (base)
                SCRATCH_PUSH(t, all.v, all.n, all.cap, ((struct candidate){order[i], base, k}));
        }
    }
    for (int i = 0; i < all.n && !found; i++) {
        struct mem_mark own = scratch_mark(t);
        r = (struct region){.t = t, .order = order, .norder = n, .number = &number};
        found = find_region(g, &all, &all.v[i], &r);
        if (!found)
            scratch_release(t, own);
    }
    if (found) {
        struct uop **result = scratch_array(t, (size_t)r.nsum, sizeof *result);
        region_build(&r, region_block_rows(&r), result);
        for (int i = 0; i < r.nsum; i++)
            map_set(&by, r.sum[i].sum, result[i]);
        graph_rewrite(t, g, replace, &by);
    }
    scratch_release(t, mark);
    return found;
}

bool pass_block_rows(struct tgc *t, struct graph *g)
{
    while (block_one(t, g))
        ;
    return true;
}
