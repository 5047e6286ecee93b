/* stack.c - an upper bound of the stack that a kernel takes, as compilers translate its linear
 * program.
 *
 * What is certain: the arrays that it declares (small scratch, accumulators of the portable tile)
 * and the registers that it saves: 160 bytes on aarch64, so no kernel has a smaller bound. What
 * compilers decide is how many values are live at once. For vectors see vectors.c. Portable
 * kernels: elements of small arrays without registers, several times, since loops over them are
 * unrolled; scalars beyond the registers; a fixed number for the largest function that is inlined.
 * The numbers were fitted to what gcc 12, clang 14 and 19 take for small models of every kind
 * (tests/lib/small.py): the bound is an estimate, not a proof. tests/stack_table.py shows how near
 * it is.
 *
 * Loops that would take much are not unrolled at all (unroll.c). tests/exec/stack_test.py holds the
 * bound against -fstack-usage.
 */
#include "passes/analysis/access.h"
#include "passes/place/stack.h"

enum {
    SAVED = 160,     /* registers that a kernel saves: x19 to x30 and d8 to d15 on aarch64 */
    WORDS_FEW = 11,  /* counters and scalars in registers */
    WORDS_MANY = 24, /* scalars beyond these are kept twice */
    SCALAR_MORE = 20,
    LOOPS_FEW = 4,
    LOOP_MORE = 28,   /* bytes, for each further loop of a copying kernel: addresses, unrolled */
    LOOP_STAGES = 16, /* ... of several stages of vectors: a counter and an address */
    FUNCTION = 64,    /* bytes, for an inlined function of a float */
    FUNCTION_DOUBLE = 160,  /* ... of a double: pairs of registers on thumbv7em */
    FUNCTION_LONG = 320,    /* ... that clang vectorizes, and that consists of two: sinh */
    BYTES_OF_DOUBLES = 160, /* gcc makes a vector of bytes from eight vectors of doubles */
    ARRAY_HELD = 64,        /* bytes of an array that registers hold, next to its operands */
    ARRAY_UNHELD = 128,     /* ... all registers of a Cortex-M4 */
    SLOTS_INTEGER = 2,      /* of an element: its value and a product */
    SLOTS_FEW = 3,          /* ... and an operand */
    SLOTS = 4,              /* of an element beyond a Cortex-M4's registers: two addresses, too */
    SLOTS_TAPS = 6,         /* ... in a window, whose taps have addresses, too */
    HALVES_APART = 5,       /* see called_halves() */
    ARRAY_MORE = 640        /* ... the most that is kept beside it: addresses, next products */
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

int *stack_find_ends(struct stack *s)
{
    int *end = scratch_array(s->t, (size_t)s->n + 1, sizeof *end);
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
    return end;
}

/* The pressure: the most bytes of vectors, without those of constants, which vectors.c counts, and
 * the most scalars, that are live at once. */
static void find_pressure(struct stack *s, struct stack_live *live, int64_t *scalars)
{
    int *end = stack_find_ends(s);
    int64_t *by = scratch_array(s->t, 2 * ((size_t)s->n + 2), sizeof *by), sum[2] = {0};
    for (int i = 0; i < s->n; i++) {
        const struct uop *u = s->u[i];
        if (op_class(u->op) == CLASS_LEAF || stack_is_closer(u) || u->op == OP_STORE ||
            (u->op == OP_SPLAT && u->src[0]->op == OP_CONST))
            continue;
        int64_t size = stack_is_tile(s->t, u) ? 0 : u->lanes > 1 ? stack_value_nbytes(u) : 1;
        by[2 * i + (u->lanes == 1)] += size;
        by[2 * (end[i] + 1) + (u->lanes == 1)] -= size;
    }
    *scalars = 0;
    for (int i = 0; i < s->n; i++) {
        sum[0] += by[2 * i];
        sum[1] += by[2 * i + 1];
        if (sum[0] > live->vectors) {
            live->vectors = sum[0];
            live->peak = i;
        }
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

/* Bytes for the functions inlined in one line of a portable program. `arrays`: they are counted
 * with the arrays' elements (called_halves). */
static int64_t inlined_nbytes(const struct stack *s, bool arrays)
{
    int64_t most = 0;
    for (int i = 0; i < s->n; i++) {
        const struct uop *u = s->u[i];
        bool function = is_scalar_function(u), floats = u->dtype == DTYPE_F32;
        int beside = function && floats && !arrays ? count_beside(s, i) : 0;
        int64_t n = beside     ? FUNCTION_LONG + (beside - 1) * FUNCTION
                    : function ? u->dtype == DTYPE_F64                  ? FUNCTION_DOUBLE
                                 : u->op == OP_SINH || u->op == OP_COSH ? FUNCTION_LONG
                                                                        : FUNCTION
                    : u->op == OP_CAST && is_byte(u->dtype) && u->src[0]->dtype == DTYPE_F64
                        ? BYTES_OF_DOUBLES
                        : 0;
        most = n > most ? n : most;
    }
    return most;
}

/* The program without dead values: fused operations have replaced them. */
static struct uop **without_unread(struct tgc *t, struct uop *const *u, int *n)
{
    struct uop **kept = scratch_array(t, (size_t)*n + 1, sizeof(struct uop *));
    struct uop_map read = {.t = t, .scratch = true};
    int first = *n;
    for (int i = *n - 1; i >= 0; i--) {
        bool acts = is_opener(u[i]) || stack_is_closer(u[i]) || op_is_statement(u[i]->op);
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

/* Halves of slots for what an array's element needs in a portable program, once its loops are
 * unrolled: the element alone, or with values of a function, which are vectorized and interleaved,
 * or with bytes that are gathered. */
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

/* Whether an array's sums run over several axes, as the taps of a window do. Integers are counted
 * by called_halves(). */
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

/* Whether all that is added to an array's elements varies along its last axis. */
static bool adds_varying(const struct stack *s, int at)
{
    const struct uop *acc = s->u[at]->src[0];
    struct uop_map needed = {.t = s->t, .scratch = true};
    map_set(&needed, s->u[at]->src[1], (void *)(uintptr_t)1);
    for (int i = at - 1; i >= 0 && s->u[i] != acc; i--) {
        const struct uop *u = s->u[i];
        if (!map_get(&needed, u))
            continue;
        if (u->op == OP_LOAD && !uop_depends_on(s->t, u->src[1], acc->src[acc->nsrc - 1]))
            return false;
        for (int k = 0; k < u->nsrc && u->op != OP_LOAD; k++)
            map_set(&needed, u->src[k], (void *)(uintptr_t)1);
    }
    return true;
}

/* Whether the operands of all arrays' sums differ for neighbouring elements, as in a depthwise
 * convolution: each element has its own address, and none beside it. */
static bool sums_apart(const struct stack *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->u[i]->op == OP_ASSIGN && stack_array_nbytes(s->u[i]->src[0]) > 0 &&
            !adds_varying(s, i))
            return false;
    return true;
}

/* Whether arrays hold integers that are wider than bytes, which are multiplied one by one. */
static bool sums_integers(const struct stack *s)
{
    bool bytes = false, integers = true;
    for (int i = 0; i < s->n; i++) {
        bytes |= s->u[i]->op == OP_LOAD && is_byte(s->u[i]->dtype);
        integers &= stack_array_nbytes(s->u[i]) == 0 || s->u[i]->dtype == DTYPE_I32;
    }
    return integers && !bytes;
}

static bool is_accessed(struct uop *const *u, int n, const struct buffer *b)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < u[i]->nsrc; k++)
            if (uop_buffer_of(u[i]->src[k]) == b)
                return true;
    return false;
}

/* Scratch of the kernel that this program accesses; a variant that keeps a stage's values in
 * registers does not declare its array. */
static void find_scratch(const struct kernel *k, struct uop *const *u, int n,
                         struct stack_live *live)
{
    for (int i = 0; i < k->nscratch; i++) {
        const struct buffer *b = k->scratch[i];
        if (!is_accessed(u, n, b))
            continue;
        live->stages = true;
        if (scratch_is_on_stack(b))
            live->locals += (int64_t)b->nbytes;
    }
}

/* What elements of arrays without registers take, and functions of them. `values`: bytes of arrays
 * over which loops are unrolled. */
static int64_t elements_nbytes(const struct stack *s, int64_t values)
{
    int64_t few = values > ARRAY_HELD ? values - ARRAY_HELD : 0;
    int64_t many = values > ARRAY_UNHELD ? values - ARRAY_UNHELD : 0;
    few *= sums_integers(s) ? SLOTS_INTEGER : SLOTS_FEW;
    many *= sums_apart(s) ? 0 : has_taps(s) ? SLOTS_TAPS : SLOTS;
    int64_t size = few > many ? few : many;
    int64_t most = values + ARRAY_MORE;
    return (size < most ? size : most) * called_halves(s) / 2;
}

static int64_t program_nbytes(struct tgc *t, enum isa isa, const struct kernel *k,
                              struct uop *const *all, int n)
{
    struct uop **u = without_unread(t, all, &n);
    struct stack s = {.t = t, .u = u, .n = n, .at = {.t = t, .scratch = true}};
    struct stack_live live = {.widest = stack_widest_vector(t, u, n), .copies = true};
    int64_t scalars, values, memory, loops = 0;
    find_scratch(k, u, n, &live);
    stack_find_loops(&s);
    find_pressure(&s, &live, &scalars);
    find_arrays(&s, &values, &memory);
    for (int i = 0; i < n; i++) {
        loops += u[i]->op == OP_RANGE;
        live.copies &= u[i]->op != OP_ACC;
    }
    int64_t words = scalars > WORDS_FEW ? (scalars - WORDS_FEW) * STACK_WORD : 0;
    words += scalars > WORDS_MANY ? (scalars - WORDS_MANY) * SCALAR_MORE : 0;
    int64_t more = live.copies ? LOOP_MORE : live.stages && live.widest ? LOOP_STAGES : 0;
    words += loops > LOOPS_FEW ? (loops - LOOPS_FEW) * more : 0;
    if (live.widest > 0)
        return words + values + memory + stack_vectors_nbytes(&s, isa, &live);
    words +=
        elements_nbytes(&s, values) + inlined_nbytes(&s, values > 0) + stack_vectorized_nbytes(&s);
    return SAVED + words + words / 4 + memory + live.locals;
}

size_t kernel_stack_nbytes(struct tgc *t, const struct kernel *k)
{
    struct mem_mark mark = scratch_mark(t);
    int64_t most = program_nbytes(t, isa_portable(), k, k->linear, k->nlinear);
    for (int i = 0; i < k->nvariant; i++) {
        const struct variant *v = &k->variant[i];
        int64_t n = program_nbytes(t, v->isa, k, v->linear, v->nlinear);
        most = n > most ? n : most;
    }
    scratch_release(t, mark);
    return (size_t)most;
}
