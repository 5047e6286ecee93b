/* registers.c - how many 32-bit registers a thread of a device's kernel takes: an estimate.
 *
 * The device's compiler, which has not run, decides. It unrolls what stack_find_kept() does not
 * keep a loop: each element of a tile's sums is a register then, and the loads of such a nest are
 * made together, before what waits for them. Counted is what is live at once, where most is; and a
 * fixed number for addresses and indices, which compilers recompute when they need the room.
 */
#include "passes/place/stack.h"
#include "ir/device_ops.h"
#include "passes/analysis/access.h"
#include "passes/target/target.h"

enum {
    WORD = 4,
    TRIPS_UNROLLED = 32,   /* of a loop that compilers unroll completely */
    HELD_MOST = 12,        /* words of loads that are made together */
    BESIDE = 8,            /* addresses, indices, what an instruction needs meanwhile */
    REGISTERS_LEAST = 16
};

struct pressure {
    struct stack s;
    const bool *kept;
    int *end;
};

static bool is_unrolled(const struct pressure *p, int loop)
{
    int64_t trips;
    const struct uop *r = p->s.u[loop];
    return r->op == OP_RANGE && !p->kept[loop] && RANGE_WORKER(r->arg.i) == WORKER_EACH &&
           uop_const_int(r->src[0], &trips) && trips <= TRIPS_UNROLLED;
}

/* Words of one value; those of truth values are predicates. */
static int64_t words_of(const struct pressure *p, int at)
{
    const struct uop *u = p->s.u[at];
    int factor = 0;
    bool may_be = u->op == OP_LOAD || u->op == OP_ACC;
    const struct uop *by = may_be ? matrix_of_tile(p->s.u, p->s.n, u, &factor) : NULL;
    if (by) {
        const struct matrix_row *row = matrix_row(MATRIX_ROW(by->arg.i));
        enum matrix_part part = factor ? MATRIX_B : MATRIX_A;
        return matrix_in_shared(row, part) ? 0 : matrix_words(row, part);
    }
    if (u->dtype == DTYPE_BOOL)
        return 0;
    int64_t nbytes = u->dtype == DTYPE_INDEX ? WORD : stack_value_nbytes(u);
    return (nbytes + WORD - 1) / WORD;
}

/* How many instances of it there are once loops are unrolled; *nest: the outermost unrolled loop
 * around it, else its own position. */
static int64_t instances_of(const struct pressure *p, int at, int *nest)
{
    struct uop *u = p->s.u[at];
    int64_t n = 1, trips;
    *nest = at;
    for (int r = stack_around(&p->s, at); r >= 0 && is_unrolled(p, r); r = stack_around(&p->s, r)) {
        *nest = r;
        if (uop_depends_on(p->s.t, u, p->s.u[r]) && uop_const_int(p->s.u[r]->src[0], &trips))
            n = sat_mul(n, trips);
    }
    return n;
}

static bool takes_none(const struct uop *u)
{
    return op_class(u->op) == CLASS_LEAF || stack_is_closer(u) || op_is_statement(u->op);
}

/* Adds the words of a value where it is live. */
static void add_value(const struct pressure *p, int at, int64_t *sum, int64_t *held)
{
    const struct uop *u = p->s.u[at];
    int64_t words = words_of(p, at), n = 1;
    int nest = at, end = p->end[at];
    if (u->op == OP_ACC) {
        for (int k = 1; k < u->nsrc; k++)
            n = sat_mul(n, u->src[k]->src[0]->vmax);
    } else if (u->op == OP_LOAD) {
        n = instances_of(p, at, &nest);
        end = nest < at && p->s.close[nest] > end ? p->s.close[nest] : end;
    } else if (u->op == OP_RANGE) {
        words = is_unrolled(p, at) ? 0 : 1;
        end = p->s.close[at];
    }
    words = sat_mul(words, n);
    int64_t *to = nest < at ? held : sum;
    to[nest] += words;
    to[end + 1] -= words;
}

static int64_t program_registers(struct tgc *t, enum isa isa, struct uop *const *u, int n)
{
    struct pressure p = {.s = {.t = t, .u = u, .n = n, .at = {.t = t, .scratch = true}},
                         .kept = stack_find_kept(t, isa, u, n)};
    int64_t *sum = scratch_array(t, (size_t)n + 2, sizeof *sum), live = 0, held = 0, most = 0;
    int64_t *loads = scratch_array(t, (size_t)n + 2, sizeof *loads);
    stack_find_loops(&p.s);
    p.end = stack_find_ends(&p.s);
    for (int i = 0; i < n; i++)
        if (!takes_none(u[i]) || u[i]->op == OP_RANGE || u[i]->op == OP_ACC)
            add_value(&p, i, sum, loads);
    for (int i = 0; i < n; i++) {
        live += sum[i];
        held += loads[i];
        int64_t all = live + (held < HELD_MOST ? held : HELD_MOST);
        most = all > most ? all : most;
    }
    return most + BESIDE;
}

int64_t kernel_registers(struct tgc *t, const struct kernel *k)
{
    const struct device_row *d = t->device;
    struct mem_mark mark = scratch_mark(t);
    const struct variant *v = k->nvariant ? &k->variant[0] : NULL;
    int64_t n = v && v->linear ? program_registers(t, v->isa, v->linear, v->nlinear)
                               : program_registers(t, isa_portable(), k->linear, k->nlinear);
    for (int i = 0; i < k->nscratch; i++)
        n += k->scratch[i]->scratch.is_register ? (int64_t)k->scratch[i]->nbytes / WORD : 0;
    int64_t own = device_registers(d, k->block ? (int64_t)kernel_threads(k) : d->group);
    scratch_release(t, mark);
    return n < REGISTERS_LEAST ? REGISTERS_LEAST : n < own ? n : own;
}
