/* stack.c - an upper bound of the stack that a kernel takes, as compilers translate its linear
 * program.
 *
 * What is certain: the arrays that it declares (small scratch, accumulators of the portable tile)
 * and the registers that it saves: 160 bytes on aarch64, so no kernel has a smaller bound. What
 * compilers decide is how many values are live at once. For vectors these are the following, and
 * each one without a register takes two slots:
 *   - the linear program's values, most of them sums of a tile, or the values that straight-line
 *     code (Winograd's transforms) has loaded; beyond the registers, early loads are added;
 *   - constants of the functions that are inlined, such as tanh, a dozen or two each; a quarter of
 *     the program's own, since instructions take most of them from memory;
 *   - values of several functions in one block, which are interleaved as far as there are
 *     registers;
 *   - small scratch, once the loops over it are unrolled.
 * Portable kernels: array elements without registers, two or three times; scalars beyond the
 * registers; a fixed number for the largest function that is inlined. Lanes that are loaded one by
 * one have an address each.
 * The numbers were fitted to what gcc 12, clang 14 and 19 take for small models of every kind
 * (tests/lib/small.py): the bound is an estimate, not a proof.
 *
 * stack_find_kept() says which loops the compiler is asked not to unroll at any -O, since that
 * takes more than registers: their invariant loads are hoisted, they pass values on in memory, they
 * gather, or they call functions, which would be interleaved. tests/exec/stack_test.py holds the
 * bound against -fstack-usage.
 */
#include "passes/passes.h"

enum {
    SAVED = 160,      /* registers that a kernel saves: x19 to x30 and d8 to d15 on aarch64 */
    SAVED_NEON = 176, /* ... and padding */
    SAVED_X86 = 120,  /* ... seven of 8 bytes, and alignment to 64 */
    WORD = 8,
    WORDS_FEW = 11,  /* counters and scalars in registers */
    WORDS_MANY = 24, /* scalars beyond these are kept twice */
    SCALAR_MORE = 20,
    LOOPS_FEW = 4,
    LOOP_MORE = 28, /* bytes, for each further loop of a copying kernel: addresses, unrolled */
    FUNCTION = 64,  /* bytes, for an inlined function of a float */
    FUNCTION_DOUBLE = 160,  /* ... of a double: pairs of registers on thumbv7em */
    FUNCTION_LONG = 320,    /* ... that clang vectorizes, and that consists of two: sinh */
    BYTES_OF_DOUBLES = 160, /* gcc makes a vector of bytes from eight vectors of doubles */
    LANE_APART = 12,        /* each lane's address and its index in an array */
    FEW_CONSTANTS = 11,     /* of a vector's exp */
    FEW1_CONSTANTS = 12,    /* ... of 1 + exp(-x) */
    MANY_CONSTANTS = 20,    /* ... tanh or erf */
    LOG_CONSTANTS = 16,
    /* of a conversion from or to f16 by AVX2, which has no instruction for it */
    HALF_CONSTANTS = 22,
    CALL_SIZE = 32,      /* operations of a function */
    ARRAY_HELD = 64,     /* bytes of an array that registers hold */
    ARRAY_MORE = 192,    /* ... the most that is spilled in addition */
    CALL_VECTORS = 3,    /* of a function next to others in one block: they are interleaved */
    CALL_LONG = 6,       /* ... of erf, which has many polynomials */
    ROWS_TWICE = 24,     /* vectors of a table by AVX2: each row twice in one, and temporaries */
    ROWS_MORE = 3,       /* ... by other instruction sets, in addition to the table */
    TABLE = 256,         /* bytes of a table */
    KINDS_MORE = 3,      /* vectors, if there are functions of several kinds */
    SPILLED = 2,         /* slots of a spilled value */
    UNROLLED_MAX = 1024  /* operations of a loop that compilers unroll completely */
};

/* Positions in the program; loops and guards are named by their opener's position. */
struct stack {
    struct tgc *t;
    struct uop *const *u;
    int n;
    int *parent, *close;
    struct uop_map at; /* uop -> position + 1 */
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

/* The last position at which the value computed at `def` is live, if `use` reads it: the end of the
 * outermost loop around the use that does not contain the definition. */
static int live_until(const struct stack *s, int def, int use)
{
    int end = use;
    for (int r = s->parent[use]; r > def; r = s->parent[r])
        if (s->u[r]->op == OP_RANGE)
            end = s->close[r];
    return end;
}

/* The pressure: the most bytes of vectors, and the most scalars, that are live at once. */
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
        int64_t size = uop_is_tile(u) ? 0 : u->lanes > 1 ? value_nbytes(u) : 1;
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

/* How often a load runs in all iterations of `loop`, each time at another offset; 0: unknown. */
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

/* Whether another loop inside `outer` loads the same elements: unrolled, both loops share the
 * loaded values. */
static bool is_read_again(const struct stack *s, int load, int loop, int outer)
{
    for (int i = outer + 1; i < s->close[outer]; i++)
        if ((i < loop || i > s->close[loop]) && s->u[i]->op == OP_LOAD &&
            s->u[i]->src[0] == s->u[load]->src[0] && around(s, i) > outer)
            return true;
    return false;
}

/* The bytes that a loop loads in all iterations and that are invariant in the loop around it, or
 * that another loop in it loads again: unrolled, they would be kept. */
static int64_t invariant_nbytes(const struct stack *s, int loop, int64_t widest)
{
    int outer = around(s, loop);
    int64_t trips, total = 0;
    if (outer < 0 || !uop_const_int(s->u[loop]->src[0], &trips) || trips < 2)
        return 0;
    bool small = sat_mul(trips, s->close[loop] - loop) <= UNROLLED_MAX;
    if (!small && !widest)
        return 0;  /* compilers do not unroll a long loop of scalars */
    for (int i = loop + 1; i < s->close[loop]; i++) {
        const struct uop *u = s->u[i];
        if (u->op != OP_LOAD ||
            (depends_on(s, u->src[1], s->u[outer]) && !(small && is_read_again(s, i, loop, outer))))
            continue;
        /* a scalar is splat to a vector's lanes */
        int64_t size = u->lanes == 1 && widest ? widest : value_nbytes(u);
        total = sat_add(total, sat_mul(size, places_within(s, i, loop)));
    }
    return total;
}

static bool is_lookup(const struct uop *u)
{
    return uop_is_intrinsic(u, INTRINSIC_LOOKUP) || uop_is_intrinsic(u, INTRINSIC_LOOKUP_I8);
}

static int64_t widest_vector(struct uop *const *u, int n)
{
    int64_t widest = 0;
    for (int i = 0; i < n; i++)
        if (u[i]->lanes > 1 && (u[i]->dtype == DTYPE_F32 || is_lookup(u[i])) &&
            value_nbytes(u[i]) > widest)
            widest = value_nbytes(u[i]);
    return widest;
}

/* Whether a loop reads what a neighbouring one has stored: unrolled, it stays in registers, next to
 * the constants of the code between them. */
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

/* A loop of vectors with a separate address in each iteration: the addresses would be computed, and
 * kept, before the loop. */
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

static bool is_byte(enum dtype d) { return dtype_nbytes(d) == 1; }

/* Bytes for the functions inlined in one line of a portable program. */
static int64_t inlined_nbytes(const struct stack *s)
{
    int64_t most = 0;
    for (int i = 0; i < s->n; i++) {
        const struct uop *u = s->u[i];
        bool function = (u->op >= OP_EXP && u->op <= OP_EXP1) || u->op == OP_POW ||
                        (u->op == OP_MOD && dtype_is_float(u->dtype));
        int64_t n = function ? u->dtype == DTYPE_F64                ? FUNCTION_DOUBLE
                               : u->op == OP_SINH || u->op == OP_COSH ? FUNCTION_LONG
                                                                      : FUNCTION
                    : u->op == OP_CAST && is_byte(u->dtype) && u->src[0]->dtype == DTYPE_F64
                        ? BYTES_OF_DOUBLES
                        : 0;
        most = n > most ? n : most;
    }
    return most;
}

/* Vectors whose lanes are loaded one by one: they are in arrays, and gcc keeps the addresses of
 * indices that it narrows. */
static int64_t apart_nbytes(const struct stack *s, enum isa isa, int64_t widest)
{
    int64_t total = 0, masked = 0;
    for (int i = 0; i < s->n; i++) {
        const struct uop *u = s->u[i];
        if (u->op == OP_NARROW && u->src[0]->dtype == DTYPE_I64 &&
            VECTOR_STRIDE(u->src[0]->arg.i) != 1)
            total += u->lanes * LANE_APART;
        bool part = u->op == OP_LOAD && u->lanes == 8 && VECTOR_PART(u->arg.i) &&
                    isa_lanes(isa) == 8;
        if (part && around(s, i) >= 0)
            masked = 3 * widest;
        if (u->op == OP_GATHER && isa_lanes(isa) < 8)
            total += value_nbytes(u) + WORD;
    }
    return total + masked + (total ? widest : 0); /* aligned */
}

static bool is_half(enum isa isa, const struct uop *u)
{
    return isa_computes_f16(isa) && u->op == OP_CAST && u->lanes > 1 &&
           (u->dtype == DTYPE_F16 || u->src[0]->dtype == DTYPE_F16);
}

/* Constants of the functions that the program calls, as vectors. */
static int64_t constants_nbytes(const struct stack *s, enum isa isa, int64_t widest)
{
    int64_t exp = 0, exp1 = 0, log = 0, many = 0, half = 0, rows = 0;
    for (int i = 0; i < s->n; i++) {
        enum op op = s->u[i]->op;
        bool wide = s->u[i]->lanes > 1;
        exp = wide && op == OP_EXP ? FEW_CONSTANTS : exp;
        exp1 = wide && op == OP_EXP1 ? FEW1_CONSTANTS : exp1;
        many = wide && (op == OP_TANH || op == OP_ERF) ? MANY_CONSTANTS : many;
        log = wide && op == OP_LOG ? LOG_CONSTANTS : log;
        half = is_half(isa, s->u[i]) ? HALF_CONSTANTS : half;
        if (is_lookup(s->u[i]))
            rows = isa_lanes(isa) == 8 ? ROWS_TWICE : TABLE / widest + ROWS_MORE;
    }
    int kinds = (exp > 0) + (exp1 > 0) + (log > 0) + (many > 0) + (half > 0) + (rows > 0);
    return widest * (exp + exp1 + log + many + half + rows + (kinds > 1 ? KINDS_MORE : 0));
}

static bool is_function(enum isa isa, const struct uop *u)
{
    return (u->lanes > 1 && (u->op == OP_EXP || u->op == OP_EXP1 || u->op == OP_LOG ||
                             u->op == OP_TANH || u->op == OP_ERF)) ||
           is_half(isa, u);
}

/* A loop of functions whose iterations, unrolled, would be interleaved: each has its own vectors
 * next to the constants. */
static bool loop_calls(const struct stack *s, enum isa isa, int loop, int64_t widest)
{
    int64_t trips, n = 0;
    for (int i = loop + 1; i < s->close[loop]; i++)
        n += around(s, i) == loop && is_function(isa, s->u[i]);
    return n > 0 && uop_const_int(s->u[loop]->src[0], &trips) &&
           sat_mul(trips, s->close[loop] - loop + n * CALL_SIZE) <= UNROLLED_MAX &&
           constants_nbytes(s, isa, widest) + trips * n * CALL_VECTORS * widest >
               isa_register_nbytes(isa);
}

bool *stack_find_kept(struct tgc *t, enum isa isa, struct uop *const *u, int n)
{
    bool *kept = mem_array(t, (size_t)n + 1, sizeof *kept);
    struct mem_mark mark = scratch_mark(t);
    struct stack s = {.t = t, .u = u, .n = n};
    int64_t widest = widest_vector(u, n), registers = isa_register_nbytes(isa);
    find_loops(&s);
    for (int i = 0; i < n; i++)
        kept[i] = u[i]->op == OP_RANGE &&
                  (invariant_nbytes(&s, i, widest) > registers || passes_on(&s, i, registers) ||
                   loop_gathers(&s, i) || loop_calls(&s, isa, i, widest));
    scratch_release(t, mark);
    return kept;
}

/* Bytes for functions in one block, such as those of a tile's sums, beyond one of them. */
static int64_t calls_nbytes(const struct stack *s, enum isa isa, int64_t widest)
{
    int64_t most = 0, n = 0, first = CALL_VECTORS;
    for (int i = 0; i < s->n; i++) {
        int64_t keeps = s->u[i]->op == OP_ERF ? CALL_LONG : CALL_VECTORS;
        if (is_opener(s->u[i]) || is_closer(s->u[i]))
            n = 0;
        else if (is_function(isa, s->u[i]))
            n += keeps, first = keeps > first ? keeps : first;
        most = n > most ? n : most;
    }
    return most > first ? (most - first) * widest : 0;
}

/* Vectors of constants, each constant once. */
static int64_t splats_nbytes(struct stack *s)
{
    int64_t total = 0;
    struct uop_map seen = {.t = s->t, .scratch = true};
    for (int i = 0; i < s->n; i++) {
        const struct uop *u = s->u[i];
        if (u->op != OP_SPLAT || u->src[0]->op != OP_CONST || map_get(&seen, u->src[0]) ||
            uop_is_tile(u))
            continue;
        map_set(&seen, u->src[0], (void *)(uintptr_t)1);
        total += value_nbytes(u);
    }
    return total;
}

/* The program without dead values: fused operations have replaced them. */
static struct uop **without_unread(struct tgc *t, struct uop *const *u, int *n)
{
    struct uop **kept = scratch_array(t, (size_t)*n + 1, sizeof(struct uop *));
    struct uop_map read = {.t = t, .scratch = true};
    int first = *n;
    for (int i = *n - 1; i >= 0; i--) {
        bool acts = is_opener(u[i]) || is_closer(u[i]) || u[i]->op == OP_STORE ||
                    u[i]->op == OP_ASSIGN || u[i]->op == OP_PREFETCH;
        if (!acts && !map_get(&read, u[i]))
            continue;
        for (int k = 0; k < u[i]->nsrc; k++)
            map_set(&read, u[i]->src[k], (void *)(uintptr_t)1);
        kept[--first] = u[i];
    }
    *n -= first;
    return kept + first;
}

static bool has_double(struct uop *const *u, int n)
{
    for (int i = 0; i < n; i++)
        if (u[i]->dtype == DTYPE_F64)
            return true;
    return false;
}

/* Scalar sums of products of bytes: compilers vectorize them, with twice as many values. */
static bool sums_bytes(struct uop *const *u, int n)
{
    bool sums = false, bytes = false;
    for (int i = 0; i < n; i++) {
        sums |= u[i]->op == OP_ACC && u[i]->dtype == DTYPE_I32;
        bytes |= u[i]->op == OP_LOAD && is_byte(u[i]->dtype);
    }
    return sums && bytes;
}

/* Functions that are interleaved although a tile's sums take most registers: tanh, whose division
 * has a long latency, and erf, which has many polynomials. */
static bool has_long(struct uop *const *u, int n)
{
    for (int i = 0; i < n; i++)
        if (u[i]->lanes > 1 && (u[i]->op == OP_TANH || u[i]->op == OP_ERF))
            return true;
    return false;
}

/* `locals`: bytes of small scratch. */
static int64_t program_nbytes(struct tgc *t, enum isa isa, struct uop *const *all,
                              int n, int64_t locals)
{
    struct uop **u = without_unread(t, all, &n);
    struct stack s = {.t = t, .u = u, .n = n, .at = {.t = t, .scratch = true}};
    int64_t vectors, scalars, widest = widest_vector(u, n);
    find_loops(&s);
    find_pressure(&s, &vectors, &scalars);
    int64_t constants = constants_nbytes(&s, isa, widest), arrays = accumulators_nbytes(&s);
    int64_t more = scalars > WORDS_MANY ? (scalars - WORDS_MANY) * SCALAR_MORE : 0, loops = 0;
    bool copies = true;
    for (int i = 0; i < n; i++) {
        loops += u[i]->op == OP_RANGE;
        copies &= u[i]->op != OP_ACC;
    }
    more += copies && loops > LOOPS_FEW ? (loops - LOOPS_FEW) * LOOP_MORE : 0;
    int64_t words = scalars > WORDS_FEW ? scalars - WORDS_FEW : 0;
    if (widest == 0) {
        int64_t most = arrays + ARRAY_MORE * (has_double(u, n) || sums_bytes(u, n) ? 2 : 1),
                some = arrays > ARRAY_HELD ? (arrays - ARRAY_HELD) * 3 : 0;
        int64_t apart = words * WORD + more + (some < most ? some : most) + inlined_nbytes(&s);
        return SAVED + apart + apart / 4 + locals;
    }
    int64_t splats = splats_nbytes(&s), calls = calls_nbytes(&s, isa, widest);
    /* functions of a tile's sums are interleaved as far as registers are left */
    int64_t file = isa_register_nbytes(isa), room = vectors < file ? file - vectors : 0;
    /* ... but larger tiles interleave more of them */
    room += has_long(u, n) && vectors > file / 4 * 3 ? (vectors - file / 4 * 3) * 5 / 2 : 0;
    int64_t alive =
        vectors + constants + splats / 4 + (calls < room ? calls : room) - isa_register_nbytes(isa);
    if (alive > -2 * widest && alive < widest)
        alive = widest;
    /* loads of a tile are hoisted, more of them the fewer registers are left */
    int64_t excess = vectors - file, early = excess > 0 ? excess + excess / 4 + widest : 0;
    early += excess > file / 3 ? (excess - file / 3) / 4 * 5 : 0;
    early = early < file / 16 * 11 ? early : file / 16 * 11;
    for (int i = 0; i < n && excess > -file / 2; i++)
        if (uop_is_intrinsic(u[i], INTRINSIC_DOT) ||
            uop_is_intrinsic(u[i], INTRINSIC_DOT_CENTERED))
            /* products of bytes: the sums and what is computed from them; AVX2 has no instruction
             * for them and widens bytes to pairs, which gcc hoists */
            early = isa_lanes(isa) == 8 ? vectors / 2 * 7 : vectors / 4 * 3;
    int64_t saved = isa_lanes(isa) > 4 ? SAVED_X86 : SAVED_NEON;
    int64_t spilled = alive > 0 ? SPILLED * alive : 0;
    if (constants && vectors <= file / 4 * 3 && !locals && spilled > file / 2 * 5)
        spilled = file / 2 * 5; /* the rest is read from memory, as the constants are */
    int64_t apart = locals + early + spilled,
            promoted = locals && alive + locals > 0
                           ? SPILLED * (alive + locals) + (splats + locals) / 2
                           : 0;
    return saved + words * WORD + more + arrays + apart_nbytes(&s, isa, widest) +
           (apart > promoted ? apart : promoted);
}

size_t kernel_stack_nbytes(struct tgc *t, const struct kernel *k)
{
    struct mem_mark mark = scratch_mark(t);
    int64_t locals = 0;
    for (int i = 0; i < k->nscratch; i++)
        if (scratch_is_on_stack(k->scratch[i]))
            locals += (int64_t)k->scratch[i]->nbytes;
    int64_t most = program_nbytes(t, isa_portable(), k->linear, k->nlinear, locals);
    for (int i = 0; i < k->nvariant; i++) {
        const struct variant *v = &k->variant[i];
        int64_t n = program_nbytes(t, v->isa, v->linear, v->nlinear, locals);
        most = n > most ? n : most;
    }
    scratch_release(t, mark);
    return (size_t)most;
}
