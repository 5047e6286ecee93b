/* vectors.c - the stack of a program of vectors: how many are live at once, and how many of these
 * have no register. Each of these has one slot:
 *   - the linear program's own values, most of them sums of a tile, or what straight-line code
 *     (Winograd's transforms) has loaded;
 *   - what comes early: as soon as values are without registers, compilers no longer keep to the
 *     program's order, and load about as many as there are registers before they are needed;
 *   - constants, the program's own and those of functions that are inlined, such as tanh: hoisted
 *     out of all loops, they are live next to a tile's sums;
 *   - values of several functions in one block, which are interleaved: all of them on aarch64, else
 *     as far as there are registers;
 *   - small scratch, which is there twice if compilers unroll the loops over it: what was stored is
 *     kept for the loads, and the array remains.
 */
#include "passes/analysis/access.h"
#include "passes/place/stack.h"

enum {
    SAVED_NEON = 176,  /* registers that a kernel saves on aarch64, and padding */
    SAVED_X86 = 120,   /* ... seven of 8 bytes, and alignment to 64 */
    LANE_APART = 12,   /* each lane's address and its index in an array */
    FROM_HALF = 5,     /* constants of a conversion by AVX2, which has no instruction for it */
    TO_HALF = 22,      /* ... and temporaries */
    CALLS_KEPT = 3,    /* calls of a function in one block that share its constants */
    CALL_LONG = 6,     /* vectors of erf, which has many polynomials */
    DOT_WIDENED = 320, /* bytes of temporaries where there is no instruction for them */
    ROWS_TWICE = 34,   /* vectors of a table by AVX2: each row twice in one, and temporaries */
    ROWS_MORE = 3,     /* ... by other instruction sets, in addition to the table */
    TABLE = 256,       /* bytes of a table */
    KINDS_MORE = 3,    /* vectors, if there are functions of several kinds */
    EARLY = 6          /* loads that come early, for each value without a register */
};

static bool is_opener(const struct uop *u) { return u->op == OP_RANGE || u->op == OP_GUARD; }

static bool is_lookup(const struct uop *u)
{
    return uop_is_intrinsic(u, INTRINSIC_LOOKUP) || uop_is_intrinsic(u, INTRINSIC_LOOKUP_I8);
}

bool stack_is_tile(const struct tgc *t, const struct uop *u)
{
    return uop_is_tile(u) && (!t->device || u->dtype != DTYPE_F32 || u->op == OP_LOAD);
}

int64_t stack_widest_vector(const struct tgc *t, struct uop *const *u, int n)
{
    int64_t widest = 0;
    for (int i = 0; i < n; i++)
        if (u[i]->lanes > 1 && !stack_is_tile(t, u[i]) &&
            (u[i]->dtype == DTYPE_F32 || u[i]->dtype == DTYPE_I32 || is_lookup(u[i])) &&
            stack_value_nbytes(u[i]) > widest)
            widest = stack_value_nbytes(u[i]);
    return widest;
}

bool stack_is_dot(const struct uop *u)
{
    return uop_is_intrinsic(u, INTRINSIC_DOT) || uop_is_intrinsic(u, INTRINSIC_DOT_CENTERED) ||
           uop_is_intrinsic(u, INTRINSIC_DOT_BF16);
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
        bool part =
            u->op == OP_LOAD && u->lanes == 8 && VECTOR_PART(u->arg.i) && isa_lanes(isa) == 8;
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

/* How many vectors `op` is called for; in a loop, as many as it takes to keep its constants.
 * `scalars`: clang vectorizes loops of scalars, too. */
static int count_calls(const struct stack *s, enum op op, bool scalars)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (s->u[i]->op == op && (s->u[i]->lanes > 1 || (scalars && s->u[i]->dtype == DTYPE_F32)))
            n += stack_around(s, i) >= 0 ? CALLS_KEPT : 1;
    return n;
}

/* Constants of the functions that the program calls: those worth a register, or all that compilers
 * hoist out of loops. They are read from memory where they are needed if the function is called
 * once or twice. */
static int count_constants(const struct stack *s, bool hoisted, int *kinds)
{
    static const struct {
        enum op op;
        int kept, hoisted;
    } function[] = {
        {OP_EXP, 11, 15}, {OP_EXP1, 12, 14}, {OP_LOG, 16, 23}, {OP_TANH, 20, 24}, {OP_ERF, 20, 29}};
    int total = 0;
    for (size_t i = 0; i < sizeof function / sizeof *function; i++)
        if (count_calls(s, function[i].op, hoisted) >= CALLS_KEPT) {
            total += hoisted ? function[i].hoisted : function[i].kept;
            *kinds += 1;
        }
    return total;
}

static int count_rows(const struct stack *s, enum isa isa, int64_t widest)
{
    for (int i = 0; i < s->n; i++)
        if (is_lookup(s->u[i]))
            return isa_lanes(isa) == 8 ? ROWS_TWICE : TABLE / (int)widest + ROWS_MORE;
    return 0;
}

static int count_half(const struct stack *s, enum isa isa)
{
    bool to = false, from = false;
    for (int i = 0; i < s->n; i++) {
        bool half = is_half(isa, s->u[i]);
        to |= half && s->u[i]->dtype == DTYPE_F16;
        from |= half && s->u[i]->dtype != DTYPE_F16;
    }
    return (to ? TO_HALF : 0) + (from ? FROM_HALF : 0);
}

int64_t stack_constants_nbytes(const struct stack *s, enum isa isa, int64_t widest)
{
    int kinds = 0, total = count_constants(s, false, &kinds);
    int half = count_half(s, isa) > 0 ? TO_HALF : 0, rows = count_rows(s, isa, widest);
    kinds += (half > 0) + (rows > 0);
    return widest * (total + half + rows + (kinds > 1 ? KINDS_MORE : 0));
}

bool stack_is_function(enum isa isa, const struct uop *u)
{
    return (u->lanes > 1 && (u->op == OP_EXP || u->op == OP_EXP1 || u->op == OP_LOG ||
                             u->op == OP_TANH || u->op == OP_ERF)) ||
           is_half(isa, u);
}

/* Bytes of the values of functions in one block, such as those of a tile's sums. */
static int64_t calls_nbytes(const struct stack *s, enum isa isa, int64_t widest)
{
    int64_t most = 0, n = 0;
    for (int i = 0; i < s->n; i++) {
        if (is_opener(s->u[i]) || stack_is_closer(s->u[i]))
            n = 0;
        else if (stack_is_function(isa, s->u[i]))
            n += s->u[i]->op == OP_ERF ? CALL_LONG : STACK_CALL_VECTORS;
        most = n > most ? n : most;
    }
    return most * widest;
}

/* Vectors of constants, each constant once. */
static int64_t splats_nbytes(const struct stack *s)
{
    int64_t total = 0;
    struct uop_map seen = {.t = s->t, .scratch = true};
    for (int i = 0; i < s->n; i++) {
        const struct uop *u = s->u[i];
        if (u->op != OP_SPLAT || u->src[0]->op != OP_CONST || map_get(&seen, u->src[0]) ||
            stack_is_tile(s->t, u))
            continue;
        map_set(&seen, u->src[0], (void *)(uintptr_t)1);
        total += stack_value_nbytes(u);
    }
    return total;
}

static bool has_call(const struct stack *s, enum op op)
{
    for (int i = 0; i < s->n; i++)
        if (s->u[i]->lanes > 1 && s->u[i]->op == op)
            return true;
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

/* How many scalars a short loop loads under a condition, as a copy does that transposes and pads:
 * unrolled into a loop that clang vectorizes by AVX-512, each is a masked gather, whose places are
 * a vector of constants and an address. */
static int64_t count_gathered(const struct stack *s, enum isa isa)
{
    int64_t most = 0, trips, stride;
    for (int i = 0; i < s->n && isa_lanes(isa) > 8; i++) {
        const struct uop *u = s->u[i];
        int in = u->op == OP_LOAD && u->lanes == 1 && u->nsrc > 2 ? stack_around(s, i) : -1;
        int around = in >= 0 ? stack_around(s, in) : -1;
        if (around >= 0 && uop_const_int(s->u[in]->src[0], &trips) &&
            trips <= STACK_UNROLLED_TRIPS && trips > most &&
            uop_depends_on(s->t, u->src[1], s->u[in]) &&
            index_stride(s->t, u->src[1], s->u[around], &stride) && stride > 1)
            most = trips;
    }
    return most;
}

/* Constants of functions: hoisted out of the loops around a tile's; those in a loop of an
 * elementwise kernel that are not worth a register are read from memory. */
static int64_t constants_nbytes(const struct stack *s, enum isa isa, const struct stack_live *live)
{
    int kinds = 0, total = count_constants(s, !live->copies, &kinds), half = count_half(s, isa);
    int rows = count_rows(s, isa, live->widest);
    kinds += (half > 0) + (rows > 0);
    return live->widest * (total + half + rows + (kinds > 1 ? KINDS_MORE : 0));
}

/* What functions in one block keep next to the values that they are called for: by aarch64 all,
 * else three eighths of the registers, since a tile's sums are kept elsewhere; all registers of
 * tanh, whose division has a long latency; more of functions of many steps (erf, log) and
 * conversions. */
static int64_t interleaved_nbytes(const struct stack *s, enum isa isa,
                                  const struct stack_live *live)
{
    int64_t calls = calls_nbytes(s, isa, live->widest), file = isa_register_nbytes(isa);
    int64_t sums = calls / STACK_CALL_VECTORS, room = 0, least = file / 8 * 3;
    bool half = count_half(s, isa) > 0, steps = half || has_call(s, OP_ERF) || has_call(s, OP_LOG);
    sums = sums < live->vectors ? sums : live->vectors;
    if (isa_lanes(isa) <= 4)
        return calls;
    if (steps || has_call(s, OP_TANH))
        room = live->stages ? file : file - sums; /* those of other stages are not there */
    if (steps)
        least = half ? calls / 2 : calls / 8 * 3;
    room = room > least ? room : least;
    return calls < room ? calls : room;
}

/* Loads that come early, once the program's own values have more than the registers, less what
 * constants of other stages take. */
static int64_t early_nbytes(const struct stack *s, enum isa isa, const struct stack_live *live,
                            bool straight, int64_t splats)
{
    int64_t file = isa_register_nbytes(isa), widest = live->widest;
    int64_t excess = live->vectors + (live->stages ? splats : 0) - file;
    int64_t early = excess > 0 ? EARLY * excess + 2 * widest : 0, trips;
    int in = stack_around(s, live->peak);
    if (in >= 0 && excess < file / 4 && !live->stages &&
        !(uop_const_int(s->u[in]->src[0], &trips) && trips <= STACK_UNROLLED_TRIPS))
        return 0; /* the loop is not unrolled, and has few loads */
    int64_t most = straight ? file / 16 * 11 : file + 2 * widest;
    return early < most ? early : most;
}

int64_t stack_vectors_nbytes(const struct stack *s, enum isa isa, const struct stack_live *live)
{
    int64_t widest = live->widest, vectors = live->vectors, file = isa_register_nbytes(isa);
    int64_t constants = constants_nbytes(s, isa, live), splats = splats_nbytes(s);
    int64_t calls = interleaved_nbytes(s, isa, live), gathered = count_gathered(s, isa);
    int64_t alive = vectors + constants + splats + calls + gathered * widest - file;
    if (alive < widest && (alive > -2 * widest || constants || calls))
        alive = widest;
    /* hoisted out of a loop, constants are spilled around those of other stages */
    if (alive < constants && live->stages)
        alive = constants;
    /* straight-line code has its constants in memory */
    bool straight = live->copies && !constants;
    int64_t early = early_nbytes(s, isa, live, straight, splats),
            dots = dots_nbytes(s, isa, vectors);
    int64_t twice = alive + live->locals > 0 ? live->locals : 0;
    return (isa_lanes(isa) > 4 ? SAVED_X86 : SAVED_NEON) + apart_nbytes(s, isa, widest) +
           gathered * STACK_WORD + (dots > early ? dots : early) + (alive > 0 ? alive : 0) +
           live->locals + twice;
}
