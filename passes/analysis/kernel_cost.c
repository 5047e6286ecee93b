/* kernel_cost.c - estimates a kernel's time by a walk through its linear program.
 *
 *      for r < 605                    one iteration: its own operations, as long as the slowest of
 *        for k < 64                   units, ports, decoder and the latency of a sum takes
 *          ... 10 loads, 20 MULACC    (cost_of_body()), and the loops inside
 *        ... 5 stores
 *
 * The traffic is estimated separately. The footprint of a loop is what one of its iterations
 * accesses. A cache that holds the footprint of a loop reuses what its iterations share; loops
 * outside it read that again. Data that this kernel has not read before comes from the level where
 * it was left: weights from the smallest cache that holds all of the program's, values from the
 * smallest that holds what this kernel accesses, since they were stored shortly before.
 *
 * Computation and traffic overlap: the longest counts, the others partly (RATIO_HIDDEN). A loop
 * whose length depends on other loops counts with its mean. Data-dependent indices and guards are
 * counted as if all iterations ran.
 */
#include "passes/analysis/kernel_cost.h"

#include "passes/analysis/access.h"
#include "passes/analysis/footprint.h"
#include "passes/analysis/stationary.h"
#include "passes/target/cost.h"

enum { DEPTH_MAX = 64 };

struct iterations {
    const struct uop *range;     /* NULL: the kernel itself */
    int outer;                   /* index of the surrounding loop; -1: none */
    double trips, footprint;
    struct cost_body body;       /* of one iteration, without the loops inside */
    double inside;               /* cycles of the loops inside */
};

/* Loads or stores within `depth` loops whose offsets differ by constants (the unrolled taps of a
 * window mostly overlap). Bit d of `moves`: their addresses vary with the loop at depth d. */
struct access {
    int group;                   /* of the footprint */
    double nbytes;               /* of one execution of all of them */
    double one, low, high;       /* bytes of the widest one; offsets of the first and the last
                                  * one */
    int loop[DEPTH_MAX], depth;
    uint64_t moves;
    double span[DEPTH_MAX];      /* by depth: bytes from the first to the last iteration's offset */
};

struct walk {
    struct tgc *t;
    const struct machine *m;
    struct iterations *loop;
    int nloop;
    size_t cap_loop;
    struct access *access; int naccess; size_t cap_access;
    struct footprint footprint;
    const struct buffer **buffer; int nbuffer; size_t cap_buffer;
    int open[DEPTH_MAX], depth;
};

/* ------------------------------------------------------------------------------------ computing */

/* The number of the machine's vectors in u. */
static double vectors_of(const struct machine *m, const struct uop *u)
{
    double lanes = (double)u->lanes * (double)dtype_nbytes(u->dtype) / (double)sizeof(float);
    return lanes > m->lanes ? lanes / m->lanes : 1;
}

static bool is_product(const struct uop *u)
{
    return u->op == OP_MUL && dtype_is_float(u->dtype);
}

bool linear_is_index(const struct uop *u)
{
    if (u->dtype != DTYPE_I32 || u->lanes > 1)
        return u->dtype == DTYPE_INDEX;
    while (op_is_elementwise(u->op) && u->dtype == DTYPE_I32)
        u = u->src[u->op == OP_WHERE];
    return u->op == OP_RANGE || u->op == OP_VAR || u->dtype == DTYPE_INDEX;
}

/* Vector operations. An addition with a product costs nothing, nor does address arithmetic. */
static double work_of(const struct machine *m, const struct uop *u)
{
    double vectors = vectors_of(m, u);
    switch (u->op) {
    case OP_ADD: case OP_SUB:
        return linear_is_index(u) || is_product(u->src[0]) || is_product(u->src[1]) ? 0 : vectors;
    case OP_SPLAT:
        return u->src[0]->op == OP_LOAD ? 0 : 1;
    case OP_GATHER:
        return m->lookup * vectors;
    case OP_FOLD:
        return (double)u->src[0]->lanes / 2;
    case OP_INTRINSIC:
        return intrinsic_shape(u->arg.i, 0).memory ? m->lookup * vectors : vectors;
    case OP_RAMP: case OP_NARROW: case OP_NEAREST:
        return vectors;
    default:
        if (!op_is_elementwise(u->op) || linear_is_index(u) || u->op == OP_CONST)
            return 0;
        return cost_in_additions(m, u->op) * vectors;
    }
}

static void tally(const struct machine *m, const struct uop *u, struct cost_body *b)
{
    if (uop_is_tile(u)) {
        bool product = u->op == OP_INTRINSIC, memory = u->op == OP_LOAD || u->op == OP_STORE;
        b->tile_rows += product ? (double)INTRINSIC_PARAM(u->arg.i, 0) : 0;
        if (memory)
            *(u->op == OP_STORE ? &b->stores : &b->loads) += TILE_ROWS(u->arg.i);
        b->instructions += product || memory;
        return;
    }
    if (u->op == OP_LOAD || u->op == OP_STORE) {
        const struct uop *value = u->op == OP_STORE ? u->src[2] : u;
        bool strided = value->lanes > 1 && VECTOR_STRIDE(u->arg.i) != 1;
        double each = u->op == OP_STORE ? m->strided_cycles : 1;
        *(u->op == OP_STORE ? &b->stores : &b->loads) +=
            strided ? value->lanes * each : vectors_of(m, value);
        b->instructions += strided ? value->lanes : 1;
        return;
    }
    if (u->op == OP_ASSIGN)
        b->chain = m->fma_latency;
    double work = work_of(m, u);
    b->work += work;
    b->instructions += work > 0 ? work / vectors_of(m, u) : 0;
}

/* ------------------------------------------------------------------------------------- the walk */

static double most_trips(const struct uop *range)
{
    return range->src[0]->vmax > 0 ? (double)range->src[0]->vmax : 1;
}

/* Sample number i of a sequence that fills the unit cube evenly, along dimension d (Roberts, "The
 * Unreasonable Effectiveness of Quasirandom Sequences"). */
static double sample_at(int i, int d)
{
    double step = 1, x;
    for (int k = 0; k <= d % 4; k++)
        step *= 0.8566748838545029;                  /* 1 / phi of four dimensions */
    x = 0.5 + i * step;
    return x - (double)(int64_t)x;
}

/* The value of index arithmetic at a sample of the loops that it depends on, symbols at their upper
 * bounds; *iterations: the product of these loops' sizes there. false: it reads data. */
static bool value_at(struct tgc *t, struct uop *u, int sample, double *value, double *iterations)
{
    struct mem_mark mark = scratch_mark(t);
    int n, nrange = 0;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    struct uop_map place = {.t = t, .scratch = true};
    union scalar *of = scratch_array(t, (size_t)n, sizeof *of);
    bool ok = true;
    *iterations = 1;
    for (int i = 0; i < n && ok; i++) {
        const struct uop *x = order[i];
        union scalar v[3] = {{0}};
        map_set(&place, x, (void *)(uintptr_t)(i + 1));
        for (int k = 0; k < x->nsrc && k < 3; k++)
            v[k] = of[(uintptr_t)map_get(&place, x->src[k]) - 1];
        if (x->op == OP_CONST || x->op == OP_VAR) {
            of[i].i = x->op == OP_CONST ? x->arg.i : x->vmax;
            continue;
        }
        if (x->op == OP_RANGE) {
            double size = v[0].i > 0 ? (double)v[0].i : 0;
            of[i].i = (int64_t)(sample_at(sample, nrange++) * size);
            *iterations *= size;
            continue;
        }
        ok = op_is_elementwise(x->op) && x->nsrc > 0 && x->nsrc <= 3 && !dtype_is_float(x->dtype);
        ok = ok && scalar_apply(x->op, x->dtype, x->src[x->op == OP_WHERE]->dtype, v, &of[i]);
    }
    *value = ok ? (double)of[n - 1].i : 0;
    scratch_release(t, mark);
    return ok;
}

/* The mean over the iterations of the outer loops: under a mask each row of scores has as many keys
 * as it sees. */
static double trips_of(struct tgc *t, const struct uop *range)
{
    enum { SAMPLES = 64 };
    double sum = 0, all = 0, value, iterations;
    if (range->src[0]->op == OP_CONST)
        return most_trips(range);
    for (int i = 0; i < SAMPLES; i++) {
        if (!value_at(t, range->src[0], i, &value, &iterations))
            return most_trips(range);
        sum += value > 0 ? value * iterations : 0;
        all += iterations;
    }
    return all > 0 ? sum / all : 0;
}

static void open_loop(struct walk *w, const struct uop *range)
{
    struct iterations l = {.range = range,
                           .outer = w->depth ? w->open[w->depth - 1] : -1,
                           .trips = range ? trips_of(w->t, range) : 1,
                           .body.instructions = range ? 2 : 0};
    if (w->depth == DEPTH_MAX)
        TGC_BUG(w->t, "more than %d loops in each other", w->depth);
    w->open[w->depth++] = w->nloop;
    SCRATCH_PUSH(w->t, w->loop, w->nloop, w->cap_loop, l);
}

/* Adds a loop's total to the loop around it. A sum that ends here has its latency. */
static double close_loop(struct walk *w)
{
    struct iterations *l = &w->loop[w->open[--w->depth]];
    double cycles = l->trips * (cost_of_body(w->m, &l->body) + l->inside) + l->body.chain;
    if (l->outer >= 0)
        w->loop[l->outer].inside += cycles;
    return cycles;
}

static int find_buffer(struct walk *w, const struct buffer *b)
{
    for (int i = 0; i < w->nbuffer; i++)
        if (w->buffer[i] == b)
            return i;
    SCRATCH_PUSH(w->t, w->buffer, w->nbuffer, w->cap_buffer, b);
    return w->nbuffer - 1;
}

static const struct buffer *buffer_at(const struct walk *w, const struct access *a)
{
    return w->footprint.group[a->group].b;
}

/* The accesses of the group in the innermost loop that is open; new ones have no bytes yet. */
static struct access *find_access(struct walk *w, int group, struct uop *offset, double size)
{
    struct access a = {.group = group, .depth = w->depth};
    for (int i = 0; i < w->naccess; i++)
        if (w->access[i].group == group &&
            w->access[i].loop[w->access[i].depth - 1] == w->open[w->depth - 1])
            return &w->access[i];
    for (int d = 0; d < w->depth; d++) {
        const struct uop *r = w->loop[w->open[d]].range;
        a.loop[d] = w->open[d];
        a.moves |= (uint64_t)(r && uop_depends_on(w->t, offset, r)) << d;
        a.span[d] = r ? size * footprint_span(w->t, offset, r, w->loop[w->open[d]].trips) : 0;
    }
    SCRATCH_PUSH(w->t, w->access, w->naccess, w->cap_access, a);
    return &w->access[w->naccess - 1];
}

static void note_access(struct walk *w, const struct uop *u)
{
    const struct uop *value = u->op == OP_STORE ? u->src[2] : u;
    const struct buffer *b =
        u->src[0]->op == OP_BUFFER ? uop_buffer_of(u->src[0]) : u->src[0]->arg.p;
    double size = (double)dtype_nbytes(value->dtype), nbytes = (double)value->lanes * size;
    int64_t at;
    int group = footprint_find(&w->footprint, b, u->src[1], &at);
    struct access *a = find_access(w, group, u->src[1], size);
    double place = (double)at * size;
    a->low = a->nbytes <= 0 || place < a->low ? place : a->low;
    a->high = a->nbytes <= 0 || place > a->high ? place : a->high;
    a->one = nbytes > a->one ? nbytes : a->one;
    a->nbytes += nbytes;
    find_buffer(w, b);
}

static double walk_program(struct walk *w, struct uop *const *u, int n)
{
    open_loop(w, NULL);
    for (int i = 0; i < n; i++) {
        if (u[i]->op == OP_RANGE)
            open_loop(w, u[i]);
        else if (u[i]->op == OP_END)
            (void)close_loop(w);
        else
            tally(w->m, u[i], &w->loop[w->open[w->depth - 1]].body);
        if (u[i]->op == OP_LOAD || u[i]->op == OP_STORE || u[i]->op == OP_GATHER)
            note_access(w, u[i]);
    }
    return close_loop(w);
}

/* ------------------------------------------------------------------------------------ the bytes */

/* The bytes that the accesses cover within one iteration of the loop at depth d: at most those from
 * the first to the last one, and the whole buffer. */
static double touched_within(const struct walk *w, const struct access *a, int d)
{
    double n = a->nbytes, all = buffer_most_nbytes(buffer_at(w, a)),
           from_to = a->one + a->high - a->low;
    for (int k = d + 1; k < a->depth; k++) {
        n *= a->moves >> k & 1 ? w->loop[a->loop[k]].trips : 1;
        from_to += a->span[k];
    }
    n = n < from_to ? n : from_to;
    return n < all ? n : all;
}

/* The footprint of each loop; at most a buffer's size for each buffer. */
static void find_footprints(struct walk *w)
{
    double *of = scratch_array(w->t, (size_t)w->nbuffer + 1, sizeof *of);
    for (int l = 0; l < w->nloop; l++) {
        for (int i = 0; i < w->nbuffer; i++)
            of[i] = 0;
        for (int i = 0; i < w->naccess; i++)
            for (int d = 0; d < w->access[i].depth; d++)
                if (w->access[i].loop[d] == l)
                    of[find_buffer(w, buffer_at(w, &w->access[i]))] +=
                        touched_within(w, &w->access[i], d);
        for (int i = 0; i < w->nbuffer; i++) {
            double all = buffer_most_nbytes(w->buffer[i]);
            w->loop[l].footprint += of[i] < all ? of[i] : all;
        }
    }
}

/* How often the access's bytes are loaded into a cache of this size: once for each iteration of the
 * loops whose footprint it does not hold. `depth`: of the outermost loop whose footprint it holds;
 * 0: the kernel. */
static double brought_to(const struct walk *w, const struct access *a, double cache, int *depth)
{
    int d = 0;
    double times = 1;
    while (d < a->depth - 1 && w->loop[a->loop[d]].footprint > cache)
        d++;
    *depth = d;
    for (int k = 1; k <= d; k++)
        times *= w->loop[a->loop[k]].trips;
    return times * touched_within(w, a, d);
}

static double weights_of(const struct schedule *s)
{
    double n = 0;
    for (int i = 0; i < s->nweight; i++)
        n += buffer_most_nbytes(s->weight[i]);
    return n;
}

static enum memory_level level_of(const struct machine *m, double nbytes)
{
    int level = LEVEL_L1;
    while (level < LEVEL_MEMORY && nbytes > m->level[level].nbytes)
        level++;
    return (enum memory_level)level;
}

/* Bytes from each level. All accesses to a buffer share its bytes: the first reads together are at
 * most its size. */
static void find_bytes(struct walk *w, const struct schedule *s, double *nbytes)
{
    double *first = scratch_array(w->t, (size_t)w->nbuffer + 1, sizeof *first);
    for (int i = 0; i < w->nbuffer; i++)
        first[i] = 0;
    enum memory_level weights = level_of(w->m, weights_of(s)),
                      values = level_of(w->m, w->loop[0].footprint);
    for (int i = 0; i < w->naccess; i++) {
        const struct access *a = &w->access[i];
        const struct buffer *b = buffer_at(w, a);
        enum memory_level home = buffer_is_stationary(b) ? weights : values;
        double once = touched_within(w, a, 0), left = buffer_most_nbytes(b);
        double *seen = &first[find_buffer(w, b)];
        left = left > *seen ? left - *seen : 0;
        *seen += once;
        once = once < left ? once : left;
        for (int level = LEVEL_L2; level < LEVEL_COUNT; level++) {
            int depth;
            double n = brought_to(w, a, w->m->level[level - 1].nbytes, &depth);
            if (depth == 0)
                n = (int)home >= level ? once : 0;
            nbytes[level] += n;
        }
    }
}

const struct variant *kernel_cost_variant(const struct machine *m, const struct kernel *k)
{
    const struct variant *best = NULL;
    for (int i = 0; i < k->nvariant; i++) {
        const struct variant *v = &k->variant[i];
        bool fits = isa_lanes(v->isa) <= m->lanes && (m->tile_cycles > 0 || !isa_has_tiles(v->isa));
        if (fits && (!best || v->isa > best->isa))
            best = v;
    }
    return best ? best : k->nvariant ? &k->variant[k->nvariant - 1] : NULL;
}

struct kernel_cost kernel_cost(struct tgc *t, const struct schedule *s, const struct kernel *k)
{
    struct mem_mark mark = scratch_mark(t);
    struct walk w = {.t = t, .m = machine_of(t), .footprint.t = t};
    struct kernel_cost c = {0};
    if (device_has_grid(t)) {
        c.ns = device_use(t, k).ns;
        return c;
    }
    const struct variant *v = kernel_cost_variant(w.m, k);
    double cycles = v ? walk_program(&w, v->linear, v->nlinear)
                      : walk_program(&w, k->linear, k->nlinear);
    double longest = c.compute_ns = cost_of_cycles(w.m, cycles), sum = c.compute_ns;
    find_footprints(&w);
    find_bytes(&w, s, c.nbytes);
    for (int level = LEVEL_L2; level < LEVEL_COUNT; level++) {
        double ns = cost_of_cycles(w.m, c.nbytes[level] / w.m->level[level].bytes_cycle);
        c.limit = ns > longest ? (enum memory_level)level : c.limit;
        longest = ns > longest ? ns : longest;
        sum += ns;
    }
    c.ns = longest + RATIO_HIDDEN * (sum - longest);
    scratch_release(t, mark);
    return c;
}

const char *kernel_limit_name(struct tgc *t, const struct kernel *k, const struct kernel_cost *c)
{
    static const char *const name[LEVEL_COUNT] = {"arithmetic", "L2", "L3", "memory"};
    return device_has_grid(t) ? cost_limit_name(device_use(t, k).limit) : name[c->limit];
}
