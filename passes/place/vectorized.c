/* vectorized.c - the stack of a portable kernel whose loops compilers vectorize: scalars that
 * become vectors of equal lanes, what unrolled sums hoist, and taps that neighbours share.
 */
#include "passes/analysis/access.h"
#include "passes/place/stack.h"

enum {
    LANES_OF_SPLAT = 4, /* of a vector of 16 bytes */
    SPLATS_HELD = 128,  /* bytes of these in registers, half of SSE's */
    TAPS_UNROLLED = 64, /* taps of a window that gcc unrolls completely */
    TAPS_FEW = 32,      /* ... which are loaded where they are needed */
    TAPS_HELD = 256     /* bytes of others in registers: SSE's */
};

/* Whether a loop that has nothing to do with an array reads its elements: `at` is the reader, `def`
 * where the array begins. */
static bool is_repeated(const struct stack *s, int def, int at)
{
    const struct uop *acc = s->u[def];
    for (int r = stack_around(s, at); r > def; r = stack_around(s, r)) {
        bool own = false;
        for (int k = 1; k < acc->nsrc; k++)
            own |= acc->src[k] == s->u[r];
        if (!own)
            return true;
    }
    return false;
}

/* A sum of a few terms, one result of which is stored in each iteration of the loop around it.
 * Compilers unroll it completely and vectorize the loop around it. Returns that loop, and how many
 * terms there are; -1: the loop at `at` is none. */
static int loop_around_sum(const struct stack *s, int at, int64_t *terms)
{
    int outer = s->u[at]->op == OP_RANGE ? stack_around(s, at) : -1;
    bool sums = false;
    int64_t stride;
    if (outer < 0 || !uop_const_int(s->u[at]->src[0], terms) || *terms > STACK_UNROLLED_TRIPS)
        return -1;
    for (int i = at + 1; i < s->close[at]; i++) {
        if (s->u[i]->op == OP_RANGE)
            return -1;
        sums |= s->u[i]->op == OP_ASSIGN && s->u[i]->src[1]->op == OP_ADD;
    }
    for (int i = s->close[at]; i < s->close[outer] && sums; i++)
        if (s->u[i]->op == OP_STORE && stack_around(s, i) == outer &&
            index_stride(s->t, s->u[i]->src[1], s->u[outer], &stride) && stride == 1)
            return outer;
    return -1;
}

/* The operands of a short sum that are invariant in the loop around it. */
static int64_t operands_nbytes(const struct stack *s)
{
    int64_t most = 0, terms;
    for (int loop = 0; loop < s->n; loop++) {
        int outer = loop_around_sum(s, loop, &terms);
        int64_t size = 0;
        for (int i = loop + 1; outer >= 0 && i < s->close[loop]; i++)
            if (s->u[i]->op == OP_LOAD &&
                uop_depends_on(s->t, s->u[i]->src[1], s->u[loop]) &&
                !uop_depends_on(s->t, s->u[i]->src[1], s->u[outer]))
                size += terms * stack_value_nbytes(s->u[i]);
        most = size > most ? size : most;
    }
    return most;
}

/* Offsets of a short sum's operands whose stride is not constant. The multiples of the stride are
 * hoisted out of the loop around the sum. If an offset varies with an outer loop, what is added to
 * the multiples is hoisted, too. */
static int64_t offsets_nbytes(const struct stack *s)
{
    int64_t most = 0, terms, stride;
    for (int loop = 0; loop < s->n; loop++) {
        int outer = loop_around_sum(s, loop, &terms);
        int64_t words = 0;
        for (int i = loop + 1; outer >= 0 && i < s->close[loop]; i++) {
            struct uop *offset = s->u[i]->op == OP_LOAD ? s->u[i]->src[1] : NULL;
            bool varies = false;
            if (!offset || index_stride(s->t, offset, s->u[loop], &stride))
                continue;
            for (int r = stack_around(s, outer); r >= 0; r = stack_around(s, r))
                varies |= uop_depends_on(s->t, offset, s->u[r]);
            words += varies ? 2 * terms : terms;
        }
        most = words > most ? words : most;
    }
    return most * STACK_WORD;
}

/* Operands of short sums, and sums that a later loop reads in every iteration: vectorized along
 * that loop, each is a vector of equal lanes. */
static int64_t equal_lanes_nbytes(const struct stack *s)
{
    int64_t most = operands_nbytes(s);
    for (int def = 0; def < s->n; def++) {
        int64_t size = stack_array_nbytes(s->u[def]);
        int last = def;
        for (int i = def + 1; i < s->n && size && size <= STACK_ARRAY_UNROLLED; i++)
            if (s->u[i]->op == OP_ASSIGN && s->u[i]->src[0] == s->u[def])
                last = i;
        for (int i = last + 1; i < s->n && last > def; i++)
            for (int k = 0; k < s->u[i]->nsrc && !stack_is_closer(s->u[i]); k++)
                if (s->u[i]->src[k] == s->u[def] && is_repeated(s, def, i) && size > most)
                    most = size;
    }
    int64_t splats = LANES_OF_SPLAT * most;
    return splats > SPLATS_HELD ? splats - SPLATS_HELD : 0;
}

/* How many taps a load reads in the loops inside `around` if windows overlap along that one; 0:
 * they do not, or compilers do not unroll these loops. */
static int64_t count_taps(const struct stack *s, int load, int around)
{
    int64_t taps = 1, trips, step, stride;
    int inner = stack_around(s, load);
    struct uop *offset = s->u[load]->src[1];
    if (inner == around || s->u[load]->nsrc > 2 ||
        !index_stride(s->t, offset, s->u[inner], &step) || step == 0 ||
        !index_stride(s->t, offset, s->u[around], &stride) || stride != step)
        return 0;
    for (int r = inner; r > around; r = stack_around(s, r)) {
        if (!uop_const_int(s->u[r]->src[0], &trips))
            return 0;
        taps = sat_mul(taps, trips);
    }
    return taps > TAPS_FEW && taps <= TAPS_UNROLLED ? taps : 0;
}

/* A sum of a window, whose loops gcc unrolls: it vectorizes the loop over windows, and shares
 * what neighbouring ones have in common, so that each tap is a vector. */
static int64_t taps_nbytes(const struct stack *s)
{
    int64_t most = 0, n;
    for (int def = 0; def < s->n; def++) {
        int around = stack_around(s, def);
        bool sums = false;
        if (s->u[def]->op != OP_ACC || s->u[def]->nsrc > 1 || around < 0)
            continue;
        for (int i = def + 1; i < s->close[around]; i++)
            if (s->u[i]->op == OP_ASSIGN && s->u[i]->src[0] == s->u[def])
                sums |= s->u[i]->src[1]->op == OP_ADD;
        for (int i = def + 1; i < s->close[around] && sums; i++)
            if (s->u[i]->op == OP_LOAD && (n = count_taps(s, i, around)) > most)
                most = n;
    }
    int64_t size = most * LANES_OF_SPLAT * STACK_WORD / 2;
    return size > TAPS_HELD ? size - TAPS_HELD : 0;
}

int64_t stack_vectorized_nbytes(const struct stack *s)
{
    return equal_lanes_nbytes(s) + offsets_nbytes(s) + taps_nbytes(s);
}
