/* stack.c - an upper bound of the stack that a kernel takes, as compilers translate its linear
 * program.
 *
 * What is certain: the arrays that it declares (small scratch, accumulators of the portable tile)
 * and the registers that it saves: 160 bytes on aarch64, so no kernel has a smaller bound. What
 * compilers decide is how many values are live at once. For vectors these are the following, and
 * each one without a register takes two slots, in straight-line code without functions one:
 *   - the linear program's values, most of them sums of a tile, or the values that straight-line
 *     code (Winograd's transforms) has loaded; beyond the registers, early loads are added;
 *   - constants of the functions that are inlined, such as tanh, a dozen or two each; a quarter of
 *     the program's own, since instructions take most of them from memory;
 *   - values of several functions in one block, which are interleaved as far as there are
 *     registers;
 *   - small scratch, once the loops over it are unrolled.
 * Portable kernels: elements of small arrays without registers, several times, since loops over
 * them are unrolled; scalars beyond the registers; a fixed number for the largest function that is
 * inlined. Lanes that are loaded one by one have an address each.
 * The numbers were fitted to what gcc 12, clang 14 and 19 take for small models of every kind
 * (tests/lib/small.py): the bound is an estimate, not a proof.
 *
 * Loops that would take much are not unrolled at all (unroll.c). tests/exec/stack_test.py holds the
 * bound against -fstack-usage.
 */
#include "passes/analysis/access.h"
#include "passes/place/stack.h"

enum {
    SAVED = 160,      /* registers that a kernel saves: x19 to x30 and d8 to d15 on aarch64 */
    SAVED_NEON = 176, /* ... and padding */
    SAVED_X86 = 120,  /* ... seven of 8 bytes, and alignment to 64 */
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
    CALLS_KEPT = 3,      /* calls of a function in one block that share its constants */
    ARRAY_HELD = 64,      /* bytes of an array that registers hold, next to its operands */
    ARRAY_UNHELD = 128,   /* ... all registers of a Cortex-M4 */
    SLOTS = 4,            /* of an element beyond these: its value, a product, two addresses */
    SLOTS_TAPS = 7,       /* ... in a window, whose taps have addresses, too */
    HALVES_APART = 5,     /* see called_halves() */
    ARRAY_MORE = 640,     /* ... the most that is kept beside it: addresses, next products */
    CALL_LONG = 6,       /* ... of erf, which has many polynomials */
    DOT_WIDENED = 320,   /* bytes of temporaries where there is no instruction for them */
    ROWS_TWICE = 24,     /* vectors of a table by AVX2: each row twice in one, and temporaries */
    ROWS_MORE = 3,       /* ... by other instruction sets, in addition to the table */
    TABLE = 256,         /* bytes of a table */
    KINDS_MORE = 3,      /* vectors, if there are functions of several kinds */
    SPILLED = 2          /* slots of a spilled value */
};

int64_t stack_value_nbytes(const struct uop *u)
{
    return (int64_t)u->lanes * (int64_t)dtype_nbytes(u->dtype);
}

static bool is_opener(const struct uop *u) { return u->op == OP_RANGE || u->op == OP_GUARD; }
bool stack_is_closer(const struct uop *u) { return u->op == OP_END || u->op == OP_ENDGUARD; }

void stack_find_loops(struct stack *s)
{
    int open = -1;
    s->parent = scratch_array(s->t, (size_t)s->n + 1, sizeof *s->parent);
    s->close = scratch_array(s->t, (size_t)s->n + 1, sizeof *s->close);
    for (int i = 0; i < s->n; i++) {
        if (stack_is_closer(s->u[i])) {
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
        for (int k = 0; k < u->nsrc && !stack_is_closer(u); k++) {
            int def = (int)(uintptr_t)map_get(&s->at, u->src[k]) - 1, last;
            if (def >= 0 && (last = live_until(s, def, i)) > end[def])
                end[def] = last;
        }
        if (!stack_is_closer(u) && u->op != OP_STORE)
            map_set(&s->at, u, (void *)(uintptr_t)(i + 1));
    }
    for (int i = 0; i < s->n; i++) {
        const struct uop *u = s->u[i];
        if (op_class(u->op) == CLASS_LEAF || stack_is_closer(u) || u->op == OP_STORE)
            continue;
        int64_t size = uop_is_tile(u) ? 0 : u->lanes > 1 ? stack_value_nbytes(u) : 1;
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

int stack_around(const struct stack *s, int at)
{
    for (at = s->parent[at]; at >= 0 && s->u[at]->op != OP_RANGE;)
        at = s->parent[at];
    return at;
}

int64_t stack_array_nbytes(const struct uop *u)
{
    int64_t size = u->op == OP_ACC && u->nsrc > 1 ? (int64_t)dtype_nbytes(u->dtype) : 0;
    for (int k = 1; k < u->nsrc && size; k++)
        size = sat_mul(size, u->src[k]->src[0]->vmax);
    return size;
}

/* The arrays of accumulators that are live at once. Compilers unroll the loops over few elements,
 * so that each is a value of its own; larger arrays stay in memory. */
static void find_arrays(const struct stack *s, int64_t *values, int64_t *memory)
{
    *values = *memory = 0;
    for (int i = 0; i < s->n; i++) {
        int64_t total[2] = {0};
        for (int k = 0; k <= i && stack_array_nbytes(s->u[i]); k++) {
            int64_t size = stack_array_nbytes(s->u[k]);
            int in = stack_around(s, k);
            bool large = size > STACK_ARRAY_UNROLLED;
            if (size && (in < 0 || s->close[in] > i))
                total[large] = sat_add(total[large], size);
        }
        *values = total[0] > *values ? total[0] : *values;
        *memory = total[1] > *memory ? total[1] : *memory;
    }
}

static bool is_lookup(const struct uop *u)
{
    return uop_is_intrinsic(u, INTRINSIC_LOOKUP) || uop_is_intrinsic(u, INTRINSIC_LOOKUP_I8);
}

int64_t stack_widest_vector(struct uop *const *u, int n)
{
    int64_t widest = 0;
    for (int i = 0; i < n; i++)
        if (u[i]->lanes > 1 && !uop_is_tile(u[i]) &&
            (u[i]->dtype == DTYPE_F32 || u[i]->dtype == DTYPE_I32 || is_lookup(u[i])) &&
            stack_value_nbytes(u[i]) > widest)
            widest = stack_value_nbytes(u[i]);
    return widest;
}

bool stack_is_dot(const struct uop *u)
{
    return uop_is_intrinsic(u, INTRINSIC_DOT) || uop_is_intrinsic(u, INTRINSIC_DOT_CENTERED);
}

static bool is_byte(enum dtype d) { return dtype_nbytes(d) == 1; }

static bool is_scalar_function(const struct uop *u)
{
    return (u->op >= OP_EXP && u->op <= OP_EXP1) || u->op == OP_POW ||
           (u->op == OP_MOD && dtype_is_float(u->dtype));
}

/* How many other kinds of functions the loop around `at` calls before it, which are vectorized with
 * this one; an unrolled loop calls its function several times. */
static int count_beside(const struct stack *s, int at)
{
    int loop = stack_around(s, at), kinds = 0;
    int64_t trips;
    for (int i = loop + 1; i < at; i++) {
        bool first = stack_around(s, i) == loop && is_scalar_function(s->u[i]) &&
                     s->u[i]->op != s->u[at]->op;
        for (int k = loop + 1; k < i && first; k++)
            first = s->u[k]->op != s->u[i]->op || stack_around(s, k) != loop;
        kinds += first;
    }
    bool unrolled = loop >= 0 && stack_around(s, loop) >= 0 &&
                    uop_const_int(s->u[loop]->src[0], &trips) && trips > 1 &&
                    trips <= STACK_UNROLLED_TRIPS;
    return kinds + unrolled;
}

/* Bytes for the functions inlined in one line of a portable program. `arrays`: they are counted with
 * the arrays' elements (called_halves). */
static int64_t inlined_nbytes(const struct stack *s, bool arrays)
{
    int64_t most = 0;
    for (int i = 0; i < s->n; i++) {
        const struct uop *u = s->u[i];
        bool function = is_scalar_function(u), floats = u->dtype == DTYPE_F32;
        int beside = function && floats && !arrays ? count_beside(s, i) : 0;
        int64_t n = beside ? FUNCTION_LONG + (beside - 1) * FUNCTION
                    : function ? u->dtype == DTYPE_F64                ? FUNCTION_DOUBLE
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
        if (part && stack_around(s, i) >= 0)
            masked = 3 * widest;
        if (u->op == OP_GATHER && isa_lanes(isa) < 8)
            total += stack_value_nbytes(u) + STACK_WORD;
    }
    return total + masked + (total ? widest : 0); /* aligned */
}

static bool is_half(enum isa isa, const struct uop *u)
{
    return isa_computes_f16(isa) && u->op == OP_CAST && u->lanes > 1 &&
           (u->dtype == DTYPE_F16 || u->src[0]->dtype == DTYPE_F16);
}

/* How many vectors `op` is called for; in a loop, as many as it takes to keep its constants. */
static int count_calls(const struct stack *s, enum op op)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (s->u[i]->op == op && s->u[i]->lanes > 1)
            n += stack_around(s, i) >= 0 ? CALLS_KEPT : 1;
    return n;
}

/* Constants of the functions that the program calls, as vectors. They are read from memory where
 * they are needed if the function is called once or twice. */
int64_t stack_constants_nbytes(const struct stack *s, enum isa isa, int64_t widest)
{
    static const struct { enum op op; int constants; } function[] = {
        {OP_EXP, FEW_CONSTANTS}, {OP_EXP1, FEW1_CONSTANTS}, {OP_LOG, LOG_CONSTANTS},
        {OP_TANH, MANY_CONSTANTS}, {OP_ERF, MANY_CONSTANTS}};
    int64_t half = 0, rows = 0, total = 0;
    int kinds = 0;
    for (size_t i = 0; i < sizeof function / sizeof *function; i++)
        if (count_calls(s, function[i].op) >= CALLS_KEPT)
            total += function[i].constants, kinds++;
    for (int i = 0; i < s->n; i++) {
        half = is_half(isa, s->u[i]) ? HALF_CONSTANTS : half;
        if (is_lookup(s->u[i]))
            rows = isa_lanes(isa) == 8 ? ROWS_TWICE : TABLE / widest + ROWS_MORE;
    }
    kinds += (half > 0) + (rows > 0);
    return widest * (total + half + rows + (kinds > 1 ? KINDS_MORE : 0));
}

bool stack_is_function(enum isa isa, const struct uop *u)
{
    return (u->lanes > 1 && (u->op == OP_EXP || u->op == OP_EXP1 || u->op == OP_LOG ||
                             u->op == OP_TANH || u->op == OP_ERF)) ||
           is_half(isa, u);
}

/* Bytes for functions in one block, such as those of a tile's sums, beyond one of them. */
static int64_t calls_nbytes(const struct stack *s, enum isa isa, int64_t widest)
{
    int64_t most = 0, n = 0, first = STACK_CALL_VECTORS;
    for (int i = 0; i < s->n; i++) {
        int64_t keeps = s->u[i]->op == OP_ERF ? CALL_LONG : STACK_CALL_VECTORS;
        if (is_opener(s->u[i]) || stack_is_closer(s->u[i]))
            n = 0;
        else if (stack_is_function(isa, s->u[i]))
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
        total += stack_value_nbytes(u);
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
        bool acts = is_opener(u[i]) || stack_is_closer(u[i]) || u[i]->op == OP_STORE ||
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

/* Whether sums of integers multiply bytes that lie apart, as a group's four lie between those of
 * neighbouring columns: compilers vectorize them, and gather. */
static bool sums_bytes_apart(const struct stack *s)
{
    bool sums = false, apart = false;
    for (int i = 0; i < s->n; i++) {
        const struct uop *u = s->u[i];
        int around = u->op == OP_LOAD && is_byte(u->dtype) ? stack_around(s, i) : -1;
        int64_t stride;
        sums |= u->op == OP_ACC && u->dtype == DTYPE_I32;
        apart |= around >= 0 && index_stride(s->t, u->src[1], s->u[around], &stride) &&
                 stride != 0 && stride != 1;
    }
    return sums && apart;
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

/* Halves of slots for what an array's element needs in a portable program, once its loops are
 * unrolled: the element alone, or with values of a function, which are vectorized and interleaved, or
 * with bytes that are gathered. */
static int64_t called_halves(const struct stack *s)
{
    int64_t most = sums_bytes_apart(s) ? HALVES_APART : 2;
    for (int i = 0; i < s->n; i++) {
        const struct uop *u = s->u[i];
        int64_t halves = u->dtype == DTYPE_F64 ? 2
                         : u->op == OP_ERF     ? 6
                         : u->op == OP_TANH    ? 4
                         : u->op == OP_EXP1    ? 3
                                               : 2;
        most = halves > most ? halves : most;
    }
    return most;
}

/* Whether an array's sums run over several axes, as the taps of a window do. Integers are counted by
 * called_halves(). */
static bool has_taps(const struct stack *s)
{
    for (int i = 0; i < s->n; i++) {
        const struct uop *acc = s->u[i]->op == OP_ASSIGN ? s->u[i]->src[0] : NULL;
        int at = i, loops = 0;
        if (!acc || acc->dtype == DTYPE_I32 || stack_array_nbytes(acc) == 0)
            continue;
        while (s->u[at] != acc && at > 0)
            at--;
        for (int r = stack_around(s, i); r > at; r = stack_around(s, r))
            loops++;
        if (loops - (acc->nsrc - 1) > 1)
            return true;
    }
    return false;
}

/* Bytes for what products of bytes widen, and for their sums: gcc keeps a tile's in memory, too, at
 * -O1 or next to branches. */
static int64_t dots_nbytes(const struct stack *s, enum isa isa, int64_t vectors)
{
    for (int i = 0; i < s->n; i++)
        if (stack_is_dot(s->u[i]))
            return DOT_WIDENED + (vectors > isa_register_nbytes(isa) / 2 ? vectors / 4 * 3 : 0);
    return 0;
}

/* `locals`: bytes of small scratch. */
static int64_t program_nbytes(struct tgc *t, enum isa isa, struct uop *const *all,
                              int n, int64_t locals)
{
    struct uop **u = without_unread(t, all, &n);
    struct stack s = {.t = t, .u = u, .n = n, .at = {.t = t, .scratch = true}};
    int64_t vectors, scalars, widest = stack_widest_vector(u, n);
    stack_find_loops(&s);
    find_pressure(&s, &vectors, &scalars);
    int64_t constants = stack_constants_nbytes(&s, isa, widest), values, memory;
    find_arrays(&s, &values, &memory);
    int64_t more = scalars > WORDS_MANY ? (scalars - WORDS_MANY) * SCALAR_MORE : 0, loops = 0;
    bool copies = true;
    for (int i = 0; i < n; i++) {
        loops += u[i]->op == OP_RANGE;
        copies &= u[i]->op != OP_ACC;
    }
    more += copies && loops > LOOPS_FEW ? (loops - LOOPS_FEW) * LOOP_MORE : 0;
    int64_t words = scalars > WORDS_FEW ? scalars - WORDS_FEW : 0;
    if (widest == 0) {
        int64_t most = values + ARRAY_MORE;
        int64_t few = values > ARRAY_HELD ? (values - ARRAY_HELD) * 3 : 0;
        int64_t many = values > ARRAY_UNHELD ? values - ARRAY_UNHELD : 0;
        many *= has_taps(&s) ? SLOTS_TAPS : SLOTS;
        int64_t some = few > many ? few : many;
        some = (some < most ? some : most) * called_halves(&s) / 2;
        int64_t apart = words * STACK_WORD + more + some + inlined_nbytes(&s, values > 0) +
                        stack_vectorized_nbytes(&s);
        return SAVED + apart + apart / 4 + memory + locals;
    }
    int64_t splats = splats_nbytes(&s), calls = calls_nbytes(&s, isa, widest);
    /* functions of a tile's sums are interleaved as far as registers are left */
    int64_t file = isa_register_nbytes(isa), room = vectors < file ? file - vectors : 0;
    /* ... but larger tiles interleave more of them */
    room += has_long(u, n) && vectors > file / 4 * 3 ? (vectors - file / 4 * 3) * 5 / 2 : 0;
    int64_t alive =
        vectors + constants + splats / 4 + (calls < room ? calls : room) - isa_register_nbytes(isa);
    if (alive < widest && (alive > -2 * widest || constants || calls))
        alive = widest;
    /* loads of a tile are hoisted, more of them the fewer registers are left */
    int64_t excess = vectors - file, early = excess > 0 ? excess + excess / 4 + widest : 0;
    early += excess > file / 3 ? (excess - file / 3) / 4 * 5 : 0;
    early = early < file / 16 * 11 ? early : file / 16 * 11;
    int64_t dots = dots_nbytes(&s, isa, vectors);
    early = dots > early ? dots : early;
    int64_t saved = isa_lanes(isa) > 4 ? SAVED_X86 : SAVED_NEON;
    /* straight-line code computes each value once, and leaves constants in memory: one slot */
    bool straight = copies && constants == 0 && calls == 0;
    int64_t spilled = alive > 0 ? (straight ? 1 : SPILLED) * alive : 0;
    if (constants && vectors <= file / 4 * 3 && !locals) {
        /* the rest is read from memory, as the constants are; AVX-512 has operands for that, which
         * compilers use for all but a tile's functions */
        int64_t most = isa_lanes(isa) > 8 && copies ? alive : file / 2 * 5;
        spilled = spilled < most || most < 0 ? spilled : most;
    }
    int64_t apart = locals + early + spilled,
            promoted = locals && alive + locals > 0
                           ? SPILLED * (alive + locals) + (splats + locals) / 2
                           : 0;
    return saved + words * STACK_WORD + more + values + memory + apart_nbytes(&s, isa, widest) +
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
