/* stack.c - how much of the stack a kernel takes: an upper bound for what compilers make of its
 * linear program.
 *
 * What is certain: the arrays that it declares (small scratch, accumulators of the portable tile)
 * and its counters and addresses. What compilers decide is how many values they keep apart. Of
 * vectors, these are alive at once, and what is more than the registers is spilled, about twice:
 *   - the linear program's values where most of them are alive, such as a tile's sums, or what
 *     straight-line code (Winograd's transforms) has loaded early;
 *   - constants, which are moved out of all loops: those of the program, and those of functions such
 *     as tanh, a dozen or two each;
 *   - small scratch, once the loops over it are unrolled.
 * The terms are for the ways in which they need more than that, each seen in gcc and clang:
 *   - clang unrolls loops of few iterations, and moves what they load out of the loop around them:
 *     where that is more than there are registers, it is asked to leave the loop alone, since each
 *     of those loads would become one from the stack.
 * tests/exec/stack_test.py holds the bound against -fstack-usage.
 */
#include "passes/passes.h"

enum {
    FRAME = 64,                  /* saved registers, the return address, alignment */
    WORD = 8,
    WORDS_MANY = 24,             /* counters and scalars beyond these are kept twice */
    SCALAR_MORE = 20,
    FEW_SCALARS = 16,            /* bytes, of a portable exp that is inlined */
    MANY_SCALARS = 96,           /* ... tanh */
    FEW_CONSTANTS = 14,          /* of a vector's exp */
    MANY_CONSTANTS = 20,         /* of a vector's log, tanh or erf */
    CALL_VECTORS = 3,            /* of a function beside others in one block: they are interleaved */
    SPILLED = 2,                 /* slots of a value that has no register */
    UNROLLED_MAX = 1024          /* operations of a loop that is unrolled altogether */
};

/* Positions in the program; loops and guards by that of their opener. */
struct stack {
    struct tgc *t;
    struct uop *const *u; int n;
    int *parent, *close;
    struct uop_map at;           /* uop -> position + 1 */
};

static int64_t value_nbytes(const struct uop *u)
{
    return (int64_t)u->lanes * (int64_t)dtype_nbytes(u->dtype);
}

static bool is_opener(const struct uop *u) { return u->op == OP_RANGE || u->op == OP_GUARD; }
static bool is_closer(const struct uop *u) { return u->op == OP_END || u->op == OP_ENDGUARD; }

static void find_loops(struct stack *s)
{
    int open = -1;
    s->parent = scratch_array(s->t, (size_t)s->n + 1, sizeof *s->parent);
    s->close = scratch_array(s->t, (size_t)s->n + 1, sizeof *s->close);
    for (int i = 0; i < s->n; i++) {
        if (is_closer(s->u[i])) {
            s->close[open] = i;
            open = s->parent[open];
        }
        s->parent[i] = open;
        if (is_opener(s->u[i]))
            open = i;
    }
}

/* The last position at which the value computed at `def` must still be there, if one at `use` reads
 * it: the end of the outermost loop around the use that the definition is not in. */
static int live_until(const struct stack *s, int def, int use)
{
    int end = use;
    for (int r = s->parent[use]; r > def; r = s->parent[r])
        if (s->u[r]->op == OP_RANGE)
            end = s->close[r];
    return end;
}

/* The most bytes of vectors, and the most scalars, that are alive at once. */
static void find_pressure(struct stack *s, int64_t *vectors, int64_t *scalars)
{
    int *end = scratch_array(s->t, (size_t)s->n + 1, sizeof *end);
    int64_t *by = scratch_array(s->t, 2 * ((size_t)s->n + 2), sizeof *by), sum[2] = {0};
    for (int i = 0; i < s->n; i++) {
        const struct uop *u = s->u[i];
        end[i] = i;
        for (int k = 0; k < u->nsrc && !is_closer(u); k++) {
            int def = (int)(uintptr_t)map_get(&s->at, u->src[k]) - 1, last;
            if (def >= 0 && (last = live_until(s, def, i)) > end[def])
                end[def] = last;
        }
        if (!is_closer(u) && u->op != OP_STORE)
            map_set(&s->at, u, (void *)(uintptr_t)(i + 1));
    }
    for (int i = 0; i < s->n; i++) {
        const struct uop *u = s->u[i];
        if (op_class(u->op) == CLASS_LEAF || is_closer(u) || u->op == OP_STORE)
            continue;
        int64_t size = u->lanes > 1 ? value_nbytes(u) : 1;
        by[2 * i + (u->lanes == 1)] += size;
        by[2 * (end[i] + 1) + (u->lanes == 1)] -= size;
    }
    *vectors = *scalars = 0;
    for (int i = 0; i < s->n; i++) {
        sum[0] += by[2 * i];
        sum[1] += by[2 * i + 1];
        *vectors = sum[0] > *vectors ? sum[0] : *vectors;
        *scalars = sum[1] > *scalars ? sum[1] : *scalars;
    }
}

static int64_t accumulators_nbytes(const struct stack *s)
{
    int64_t total = 0;
    for (int i = 0; i < s->n; i++) {
        const struct uop *u = s->u[i];
        int64_t size = u->op == OP_ACC && u->nsrc > 1 ? (int64_t)dtype_nbytes(u->dtype) : 0;
        for (int k = 1; k < u->nsrc && size; k++)
            size = sat_mul(size, u->src[k]->src[0]->vmax);
        total = sat_add(total, size);
    }
    return total;
}

static bool depends_on(const struct stack *s, struct uop *u, const struct uop *range)
{
    struct mem_mark mark = scratch_mark(s->t);
    int n;
    bool found = false;
    struct uop **order = uop_toposort(s->t, &u, 1, &n);
    for (int i = 0; i < n && !found; i++)
        found = order[i] == range;
    scratch_release(s->t, mark);
    return found;
}

static int around(const struct stack *s, int at)
{
    for (at = s->parent[at]; at >= 0 && s->u[at]->op != OP_RANGE;)
        at = s->parent[at];
    return at;
}

/* How often a load runs in all iterations of `loop`, each time at another place; 0: unknown. */
static int64_t places_within(const struct stack *s, int load, int loop)
{
    int64_t places = 1, trips;
    for (int r = around(s, load); r >= loop; r = around(s, r)) {
        if (!uop_const_int(s->u[r]->src[0], &trips))
            return 0;
        if (depends_on(s, s->u[load]->src[1], s->u[r]))
            places = sat_mul(places, trips);
    }
    return places > 1 ? places : 0;
}

/* Whether another loop inside of `outer` loads from there, too: what both load stays, once both are
 * unrolled. */
static bool is_read_again(const struct stack *s, int load, int loop, int outer)
{
    for (int i = outer + 1; i < s->close[outer]; i++)
        if ((i < loop || i > s->close[loop]) && s->u[i]->op == OP_LOAD &&
            s->u[i]->src[0] == s->u[load]->src[0] && around(s, i) > outer)
            return true;
    return false;
}

/* What a loop loads in all its iterations that the loop around it does not change, or that a loop
 * beside it loads again: unrolled, it would be kept from one to the other. */
static int64_t invariant_nbytes(const struct stack *s, int loop, int64_t widest)
{
    int outer = around(s, loop);
    int64_t trips, total = 0;
    if (outer < 0 || !uop_const_int(s->u[loop]->src[0], &trips) || trips < 2)
        return 0;
    bool small = sat_mul(trips, s->close[loop] - loop) <= UNROLLED_MAX;
    for (int i = loop + 1; i < s->close[loop]; i++) {
        const struct uop *u = s->u[i];
        if (u->op != OP_LOAD || (depends_on(s, u->src[1], s->u[outer]) &&
                                 !(small && is_read_again(s, i, loop, outer))))
            continue;
        /* a scalar is one for a vector's lanes */
        int64_t size = u->lanes == 1 && widest ? widest : value_nbytes(u);
        total = sat_add(total, sat_mul(size, places_within(s, i, loop)));
    }
    return total;
}

static int64_t widest_vector(struct uop *const *u, int n)
{
    int64_t widest = 0;
    for (int i = 0; i < n; i++)
        if (u[i]->lanes > 1 && u[i]->dtype == DTYPE_F32 && value_nbytes(u[i]) > widest)
            widest = value_nbytes(u[i]);
    return widest;
}

static int64_t register_nbytes(const struct isa_info *isa)
{
    return (int64_t)isa->registers * isa->lanes * (int64_t)sizeof(float);
}

/* Whether a loop reads what one beside it has written: unrolled, both of them keep it in registers,
 * beside the constants of what stands between. */
static bool passes_on(const struct stack *s, int loop, int64_t registers)
{
    int outer = around(s, loop);
    int64_t trips, total = 0;
    if (outer < 0 || !uop_const_int(s->u[loop]->src[0], &trips) ||
        sat_mul(trips, s->close[loop] - loop) > UNROLLED_MAX)
        return false;
    for (int i = loop + 1; i < s->close[loop]; i++) {
        const struct uop *u = s->u[i];
        for (int k = outer + 1; u->op == OP_LOAD && u->lanes > 1 && k < loop; k++)
            if (s->u[k]->op == OP_STORE && s->u[k]->src[0] == u->src[0] && around(s, k) > outer) {
                total = sat_add(total, sat_mul(value_nbytes(u), places_within(s, i, loop)));
                break;
            }
    }
    return total >= registers / 2;
}

/* A loop of vectors from an address of its own in each iteration, which would be computed, and kept,
 * beforehand. */
static bool loop_gathers(const struct stack *s, int loop)
{
    int64_t trips;
    if (!uop_const_int(s->u[loop]->src[0], &trips))
        return false;
    for (int i = loop + 1; i < s->close[loop]; i++)
        if (s->u[i]->op == OP_GATHER && around(s, i) == loop)
            return true;
    return false;
}

bool *stack_find_kept(struct tgc *t, enum isa isa, struct uop *const *u, int n)
{
    bool *kept = mem_array(t, (size_t)n + 1, sizeof *kept);
    struct mem_mark mark = scratch_mark(t);
    struct stack s = {.t = t, .u = u, .n = n};
    int64_t widest = widest_vector(u, n), registers = register_nbytes(&isa_table[isa]);
    find_loops(&s);
    for (int i = 0; i < n; i++)
        kept[i] = u[i]->op == OP_RANGE && (invariant_nbytes(&s, i, widest) > registers ||
                                           passes_on(&s, i, registers) || loop_gathers(&s, i));
    scratch_release(t, mark);
    return kept;
}

/* Constants of the functions that the program calls, in vectors or at all. */
static int64_t constants_nbytes(const struct stack *s, int64_t widest)
{
    bool few = false, many = false;
    for (int i = 0; i < s->n; i++) {
        enum op op = s->u[i]->op;
        bool wide = s->u[i]->lanes > 1 || widest == 0;
        few |= wide && op == OP_EXP;
        many |= wide && (op == OP_LOG || (op == OP_SIN && widest == 0) || op == OP_TANH || op == OP_ERF);
    }
    if (widest == 0)
        return many ? MANY_SCALARS : few ? FEW_SCALARS : 0;
    return widest * (many ? MANY_CONSTANTS : few ? FEW_CONSTANTS : 0);
}

static bool is_function(const struct uop *u)
{
    return u->lanes > 1 && (u->op == OP_EXP || u->op == OP_LOG || u->op == OP_TANH || u->op == OP_ERF);
}

/* What functions keep that stand in one block, such as those of a tile's sums, beyond one of them. */
static int64_t calls_nbytes(const struct stack *s, int64_t widest)
{
    int64_t most = 1, n = 0;
    for (int i = 0; i < s->n; i++) {
        n = is_opener(s->u[i]) || is_closer(s->u[i]) ? 0 : n + is_function(s->u[i]);
        most = n > most ? n : most;
    }
    return (most - 1) * CALL_VECTORS * widest;
}

/* Vectors of one constant each, every constant once. */
static int64_t splats_nbytes(struct stack *s)
{
    int64_t total = 0;
    struct uop_map seen = {.t = s->t, .scratch = true};
    for (int i = 0; i < s->n; i++) {
        const struct uop *u = s->u[i];
        if (u->op != OP_SPLAT || u->src[0]->op != OP_CONST || map_get(&seen, u->src[0]))
            continue;
        map_set(&seen, u->src[0], (void *)(uintptr_t)1);
        total += value_nbytes(u);
    }
    return total;
}

/* `locals`: bytes of small scratch. */
static int64_t program_nbytes(struct tgc *t, const struct isa_info *isa, struct uop *const *u, int n,
                              int64_t locals)
{
    struct stack s = {.t = t, .u = u, .n = n, .at = {.t = t, .scratch = true}};
    int64_t vectors, scalars, widest = widest_vector(u, n);
    find_loops(&s);
    find_pressure(&s, &vectors, &scalars);
    int64_t constants = constants_nbytes(&s, widest), arrays = accumulators_nbytes(&s);
    int64_t more = scalars > WORDS_MANY ? (scalars - WORDS_MANY) * SCALAR_MORE : 0;
    int64_t own = FRAME + scalars * WORD + more;
    if (widest == 0) {
        /* what compilers make vectors of is an array's elements */
        int64_t all = own + arrays / 4 * 7 + constants;
        return all + all / 4 + locals;
    }
    int64_t alive = vectors + constants + splats_nbytes(&s) + calls_nbytes(&s, widest) -
                    register_nbytes(isa);
    /* loads of a tile are moved up, more the fewer registers are left */
    int64_t excess = vectors - register_nbytes(isa), early = excess > 0 ? excess + excess / 4 : 0;
    for (int i = 0; i < n && excess > -register_nbytes(isa) / 2; i++)
        if (u[i]->op == OP_DOT)
            early = vectors / 4 * 3;     /* products of bytes: sums, and what is made of them */
    int64_t apart = locals + early + (alive > 0 ? SPILLED * alive : 0),
            promoted = alive + locals > 0 ? SPILLED * (alive + locals) : 0;
    return own + arrays + (apart > promoted ? apart : promoted);
}

size_t kernel_stack_nbytes(struct tgc *t, const struct kernel *k)
{
    struct mem_mark mark = scratch_mark(t);
    int64_t locals = 0;
    for (int i = 0; i < k->nscratch; i++)
        if (scratch_is_on_stack(k->scratch[i]))
            locals += (int64_t)k->scratch[i]->nbytes;
    int64_t most = program_nbytes(t, &isa_table[ISA_GENERIC], k->linear, k->nlinear, locals);
    for (int i = 0; i < k->nvariant; i++) {
        const struct variant *v = &k->variant[i];
        int64_t n = program_nbytes(t, &isa_table[v->isa], v->linear, v->nlinear, locals);
        most = n > most ? n : most;
    }
    scratch_release(t, mark);
    return (size_t)most;
}
