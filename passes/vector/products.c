/* products.c - begins and awaits asynchronous matrix products: rows of ir/matrix.def whose b is in
 * shared memory (CUDA's wgmma).
 *
 *      for k                                  for k
 *        copy[..] = x                           copy[..] = x
 *        barrier                                publish · barrier
 *                                               begin
 *        next = x of step k + 1                 for part: sum += a[..] b[..]
 *        for part: sum += a[..] b[..]           commit
 *                                               next = x of step k + 1
 *        copy[other] = next                     copy[other] = next
 *                                               wait
 *
 * Loops of nothing but products are one group, unrolled. A group begins as early as possible, after
 * the barrier. It is awaited as late as possible: before its sums are read, before a barrier, and
 * before the loop around it repeats. So the copies around it overlap the products. They cannot
 * overwrite what the group reads, since a barrier would then be between them: threads are not
 * assumed to be in step.
 *
 * Before a pipeline stage is released that all groups but the newest have read, those are awaited.
 * The newest one continues into the next iteration, and the last one is awaited after the loops:
 *
 *      for k                                  for k
 *        wait until stage k % n is full         wait until stage k % n is full
 *        for part: sum += a[..] b[..]           begin · for part: sum += a[..] b[..] · commit
 *                                               wait for all but the newest
 *        release stage (k - 1) % n              release stage (k - 1) % n
 *                                             wait
 *
 * What threads have stored to panels is published before the next barrier. */
#include "passes/analysis/nest.h"
#include "passes/passes.h"
#include "ir/device_ops.h"

struct products {
    struct tgc *t;
    struct uop *const *in; int nin;
    struct uop **out; int nout; size_t cap;
    int next_id;
    int nloop;                   /* open loops of a thread */
    struct uop **flying; int nflying;    /* sums whose newest group is still in flight; it is
                                          * awaited after the loops in which the sums are
                                          * accumulated */
    int around;                  /* loops around these sums */
};

static bool is_product(const struct uop *u)
{
    return u->op == OP_MATRIX && matrix_in_shared(matrix_row(MATRIX_ROW(u->arg.i)), MATRIX_B);
}

static bool stores_panels(const struct uop *u)
{
    /* bulk_epilogue.c publishes those */
    return (u->op == OP_STORE || u->op == OP_COPY) && uop_buffer_of(u->src[0])->scratch.panel &&
           !uop_buffer_of(u->src[0])->scratch.is_bulk_stored;
}

static bool opens(const struct uop *u) { return u->op == OP_RANGE || u->op == OP_GUARD; }
static bool closes(const struct uop *u) { return u->op == OP_END || u->op == OP_ENDGUARD; }

/* The position after what begins at `at`: after the loop's end, or the uop. */
static int behind(const struct products *p, int at)
{
    int depth = 0;
    do {
        depth += opens(p->in[at]);
        depth -= closes(p->in[at]);
        at++;
    } while (depth > 0 && at < p->nin);
    return at;
}

/* Whether from..to has products, and nothing else with an effect. */
static bool is_group(const struct products *p, int from, int to)
{
    bool any = false;
    for (int i = from; i < to; i++) {
        const struct uop *u = p->in[i];
        bool loop = u->op == OP_END || (u->op == OP_RANGE && RANGE_WORKER(u->arg.i) == WORKER_EACH);
        any |= is_product(u);
        if (!is_product(u) && !loop && !op_is_elementwise(u->op) &&
            !(u->op == OP_LOAD && TILE_IS(u->arg.i)))
            return false;
    }
    return any;
}

/* The end of the groups that directly follow the one up to `to`. */
static int last_group(const struct products *p, int to)
{
    for (int i = to; i < p->nin && !closes(p->in[i]);) {
        bool passes = op_is_elementwise(p->in[i]->op) ||
                      (p->in[i]->op == OP_LOAD && TILE_IS(p->in[i]->arg.i));
        if (passes)
            i++;
        else if (is_group(p, i, behind(p, i)))
            to = i = behind(p, i);
        else
            break;
    }
    return to;
}

/* The sums of the products in from..to. */
static int find_sums(const struct products *p, int from, int to, struct uop **sum)
{
    int n = 0;
    for (int i = from; i < to; i++) {
        bool new = is_product(p->in[i]);
        for (int k = 0; k < n && new; k++)
            new = sum[k] != p->in[i]->src[0];
        if (new)
            sum[n++] = p->in[i]->src[0];
    }
    return n;
}

/* Whether u may run while the products are in flight: it neither reads the sums nor
 * synchronizes. */
static bool passes(const struct uop *u, struct uop *const *sum, int n)
{
    bool may = op_is_elementwise(u->op) || opens(u) || closes(u) || u->op == OP_LOAD ||
               u->op == OP_STORE || u->op == OP_ACC || u->op == OP_ASSIGN || u->op == OP_COPY ||
               u->op == OP_COMMIT;
    for (int k = 0; k < n; k++)
        may &= u != sum[k];
    for (int s = 0; s < u->nsrc; s++)
        for (int k = 0; k < n; k++)
            may &= u->src[s] != sum[k];
    return may;
}

static bool may_pass(const struct products *p, int from, int to, struct uop *const *sum, int n)
{
    for (int i = from; i < to; i++)
        if (!passes(p->in[i], sum, n))
            return false;
    return true;
}

static void push(struct products *p, struct uop *u) { VEC_PUSH(p->t, p->out, p->nout, p->cap, u); }

static void put(struct products *p, enum op op, struct uop *const *sum, int n)
{
    push(p, uop_intern(p->t, op, DTYPE_VOID, sum, n, (union arg){.i = p->next_id++}));
}

static int loop_step(const struct uop *u)
{
    const struct uop *r = u->op == OP_END ? u->src[0] : u;
    return r->op != OP_RANGE || RANGE_WORKER(r->arg.i) != WORKER_EACH ? 0
           : u->op == OP_END                                          ? -1
                                                                      : 1;
}

/* Loops of a thread around the sum. */
static int loops_around(const struct products *p, const struct uop *sum)
{
    int n = p->nloop;
    for (int i = p->nout; i > 0 && p->out[i - 1] != sum; i--)
        n -= loop_step(p->out[i - 1]);
    return n;
}

/* Waits for all groups of these sums' products but the `left` newest. */
static void put_wait(struct products *p, struct uop **sum, int n, int left)
{
    push(p, uop_intern(p->t, OP_MATRIX_WAIT, DTYPE_VOID, sum, n,
                       (union arg){.i = ARG_PACK(WAIT, p->next_id++, left)}));
    p->flying = left ? sum : NULL;
    p->nflying = left ? n : 0;
    for (int i = 0; i < p->nflying; i++)
        p->around =
            i == 0 || loops_around(p, sum[i]) > p->around ? loops_around(p, sum[i]) : p->around;
}

/* Counts a thread's open loops. After the outermost loop that accumulates the sums nothing is in
 * flight. */
static void count_loops(struct products *p, const struct uop *u)
{
    p->nloop += loop_step(u);
    if (u->op == OP_END && p->nflying && p->nloop == p->around)
        put_wait(p, p->flying, p->nflying, 0);
}

/* Whether threads have stored to panels since the last barrier before `at`, in this iteration of
 * its loops or the previous one. */
static bool has_stored(const struct products *p, int at)
{
    for (int i = at - 1; i >= 0; i--) {
        if (stores_panels(p->in[i]))
            return true;
        if (p->in[i]->op == OP_BARRIER)
            return false;
        int end = opens(p->in[i]) ? behind(p, i) : 0;
        for (int k = end - 1; k > at && p->in[k]->op != OP_BARRIER; k--)
            if (stores_panels(p->in[k]))
                return true;
    }
    return false;
}

/* Writes the group's uops. Its loops become straight-line code, as lanes do: across a loop's back
 * edge the sums would have to move. */
static void push_group(struct products *p, int from, int to)
{
    enum { UNROLLED_MOST = 16 };
    struct uop_map now = {.t = p->t, .scratch = true};
    for (int i = from; i < to; i++) {
        struct uop *u = p->in[i], *by = u,
                   **src = scratch_array(p->t, (size_t)u->nsrc + 1, sizeof *src);
        bool changed = false;
        for (int k = 0; k < u->nsrc; k++) {
            src[k] = map_get(&now, u->src[k]);
            changed |= src[k] != NULL;
            src[k] = src[k] ? src[k] : u->src[k];
        }
        if (u->op == OP_RANGE && !range_is_lane(u) && range_fixed_size(u) > 1 &&
            range_fixed_size(u) <= UNROLLED_MOST)
            by = uop_axis(p->t, u->src[0], AXIS_LANE, WORKER_EACH);
        else if (changed)
            by = uop_intern(p->t, u->op, u->dtype, src, u->nsrc, u->arg);
        if (by != u)
            map_set(&now, u, by);
        push(p, by);
    }
}

/* Removes from the program what precedes the group, after the barrier, and can run while it is in
 * flight. Values, which the group may need, stay. Returns the number of uops removed. */
static int take_passing(struct products *p, struct uop *const *sum, int n, struct uop ***taken)
{
    int first = p->nout, depth = 0, nkept, ntaken = 0;
    for (int i = p->nout; i > 0; i--) {
        const struct uop *u = p->out[i - 1];
        depth += closes(u);
        if ((opens(u) && depth-- == 0) || !passes(u, sum, n))
            break;
        first = depth == 0 ? i - 1 : first;
    }
    *taken = scratch_array(p->t, (size_t)(p->nout - first) + 1, sizeof **taken);
    nkept = first;
    for (int i = first; i < p->nout; i++) {
        struct uop *u = p->out[i];
        depth += opens(u);
        if (depth == 0 && (op_is_elementwise(u->op) || u->op == OP_LOAD))
            p->out[nkept++] = u;
        else
            (*taken)[ntaken++] = u;
        depth -= closes(u);
    }
    p->nout = nkept;
    return ntaken;
}

/* Writes the group in from..to. Returns where the program continues, after what runs before the
 * group is awaited. */
static int put_group(struct products *p, int from, int to)
{
    struct uop **sum = scratch_array(p->t, (size_t)(to - from), sizeof *sum);
    int n = find_sums(p, from, to, sum), next = to;
    struct uop **taken;
    int ntaken = take_passing(p, sum, n, &taken);
    put(p, OP_MATRIX_BEGIN, sum, n);
    push_group(p, from, to);
    put(p, OP_MATRIX_COMMIT, NULL, 0);
    for (int i = 0; i < ntaken; i++)
        push(p, taken[i]);
    while (next < p->nin && !closes(p->in[next]) && may_pass(p, next, behind(p, next), sum, n))
        for (int end = behind(p, next); next < end; next++)
            push(p, p->in[next]);
    bool released = next < p->nin && p->in[next]->op == OP_MBAR_RELEASE && p->nloop > 0;
    put_wait(p, sum, n, released ? RELEASE_GROUPS(p->in[next]->arg.i) : 0);
    return next;
}

static void place_products(struct tgc *t, struct uop ***linear, int *nlinear)
{
    struct products p = {.t = t, .in = *linear, .nin = *nlinear};
    bool any = false;
    for (int i = 0; i < p.nin; i++) {
        const struct uop *u = p.in[i];
        any |= is_product(u);
        if ((u->op == OP_ACC || u->op == OP_GUARD || u->op == OP_BARRIER) &&
            BARRIER_ID(u->arg.i) >= p.next_id)
            p.next_id = BARRIER_ID(u->arg.i) + 1;
    }
    for (int i = 0; i < p.nin && any;) {
        int to = behind(&p, i);
        if (!closes(p.in[i]) && !op_is_elementwise(p.in[i]->op) && is_group(&p, i, to)) {
            i = put_group(&p, i, last_group(&p, to));
            continue;
        }
        if (p.in[i]->op == OP_BARRIER && has_stored(&p, i))
            put(&p, OP_PUBLISH, NULL, 0);
        push(&p, p.in[i]);
        count_loops(&p, p.in[i++]);
    }
    if (any)
        *linear = p.out, *nlinear = p.nout;
}

bool pass_products(struct tgc *t, struct schedule *s, struct kernel *k)
{
    struct mem_mark mark = scratch_mark(t);
    (void)s;
    place_products(t, &k->linear, &k->nlinear);
    for (int i = 0; i < k->nvariant; i++)
        place_products(t, &k->variant[i].linear, &k->variant[i].nlinear);
    scratch_release(t, mark);
    return true;
}
