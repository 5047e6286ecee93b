/* unroll.c - which loops the compiler is asked not to unroll, at any -O: unrolled, their bodies
 * would need more registers than there are, and spill. Such loops hoist invariant loads, share
 * loads with neighbouring iterations, pass values on through memory, gather, multiply matrices
 * between barriers, or inline functions, whose instructions would be interleaved. And in which
 * programs gcc is not to carry loads on. stack.c bounds the stack of those that may be unrolled.
 */
#include "passes/analysis/access.h"
#include "passes/analysis/nest.h"
#include "passes/place/stack.h"
#include "passes/target/target.h"
#include "ir/device_ops.h"

enum {
    SCALARS_FEW = 32, /* registers for floats of the smallest processor with an FPU, a Cortex-M4 */
    WORD_FEW = 4,
    CARRIED_MAX = 8,    /* iterations in which gcc keeps what it has loaded */
    CALL_SIZE = 32,     /* operations of a function */
    UNROLLED_MAX = 1024 /* operations of a loop that compilers unroll completely */
};

/* The memory that is loaded, by a LOAD or by a PUT of contiguous elements. */
static struct uop *memory_of(const struct uop *u) { return u->src[u->op == OP_PUT ? 2 : 0]; }
static struct uop *place_of(const struct uop *u) { return u->src[u->op == OP_PUT ? 3 : 1]; }
static bool is_load(const struct uop *u) { return u->op == OP_LOAD || u->op == OP_PUT; }

/* How often a load runs in all iterations of `loop`, each time at another offset; 0: unknown. */
static int64_t places_within(const struct stack *s, int load, int loop)
{
    int64_t places = 1, trips;
    for (int r = stack_around(s, load); r >= loop; r = stack_around(s, r)) {
        if (device_has_grid(s->t) && RANGE_WORKER(s->u[r]->arg.i) != WORKER_EACH)
            continue;                                 /* a thread runs one of its iterations, or
                                                       * few */
        if (!uop_const_int(s->u[r]->src[0], &trips))
            return 0;
        if (uop_depends_on(s->t, place_of(s->u[load]), s->u[r]))
            places = sat_mul(places, trips);
    }
    return places > 1 ? places : 0;
}

/* Whether another loop inside `outer` loads the same elements: unrolled, both loops share the
 * loaded values. */
static bool is_read_again(const struct stack *s, int load, int loop, int outer)
{
    for (int i = outer + 1; i < s->close[outer]; i++)
        if ((i < loop || i > s->close[loop]) && is_load(s->u[i]) &&
            memory_of(s->u[i]) == memory_of(s->u[load]) && stack_around(s, i) > outer)
            return true;
    return false;
}

/* The bytes of registers that a loaded value takes: a scalar, or a group, is splat to
 * a vector's lanes. */
static int64_t loaded_nbytes(const struct uop *load, int64_t widest)
{
    if (load->op == OP_PUT)
        return load->arg.i * (int64_t)dtype_nbytes(uop_buffer_of(load->src[0])->dtype);
    bool group = VECTOR_IS_GROUPS(load->arg.i) && load->lanes == dtype_group(load->dtype);
    return widest && (load->lanes == 1 || group) ? widest : stack_value_nbytes(load);
}

/* Whether compilers may keep the value of a load: shared memory changes at each barrier. */
static bool is_lasting(const struct uop *u)
{
    const struct buffer *b = is_load(u) ? uop_buffer_of(memory_of(u)) : NULL;
    return b && buffer_space(b) != SPACE_SHARED && !(u->op == OP_PUT && b->scratch.is_register);
}

/* The bytes that a loop loads in all iterations and that are invariant in the loop around it, or
 * that another loop in it loads again: unrolled, they would be kept. */
static int64_t invariant_nbytes(const struct stack *s, int loop, int64_t widest)
{
    int outer = stack_around(s, loop);
    int64_t trips, total = 0;
    if (outer < 0 || !uop_const_int(s->u[loop]->src[0], &trips) || trips < 2)
        return 0;
    bool small = sat_mul(trips, s->close[loop] - loop) <= UNROLLED_MAX;
    if (!small && !widest)
        return 0;  /* compilers do not unroll a long loop of scalars */
    for (int i = loop + 1; i < s->close[loop]; i++) {
        const struct uop *u = s->u[i];
        if (!is_lasting(u) ||
            (uop_depends_on(s->t, place_of(u), s->u[outer]) &&
             !(small && is_read_again(s, i, loop, outer))))
            continue;
        total = sat_add(total, sat_mul(loaded_nbytes(u, widest), places_within(s, i, loop)));
    }
    return total;
}

static struct uop *without_constant(struct uop *offset, int64_t *constant)
{
    *constant = 0;
    if (offset->op == OP_ADD && uop_const_int(offset->src[1], constant))
        return offset->src[0];
    return uop_const_int(offset, constant) ? NULL : offset;
}

/* Whether another load in the loop reads, in another iteration, what this one does: taps of a
 * window, in a tile of pixels. */
static bool is_read_by_neighbour(const struct stack *s, int load, int loop, int64_t trips)
{
    int64_t stride, at, other;
    struct uop *base = without_constant(s->u[load]->src[1], &at);
    if (!index_stride(s->t, s->u[load]->src[1], s->u[loop], &stride) || stride == 0)
        return false;
    for (int i = loop + 1; i < s->close[loop]; i++)
        if (s->u[i]->op == OP_LOAD && s->u[i]->src[0] == s->u[load]->src[0] &&
            without_constant(s->u[i]->src[1], &other) == base && other != at &&
            (at - other) % stride == 0 && (at - other) / stride > 0 &&
            (at - other) / stride < trips)
            return true;
    return false;
}

/* The bytes that a loop's iterations share with the next ones, in all iterations of the loops
 * inside: unrolled, they would be kept from one to the other. */
static int64_t shared_nbytes(const struct stack *s, int loop, int64_t widest)
{
    int64_t trips, total = 0;
    if (!widest || !uop_const_int(s->u[loop]->src[0], &trips) || trips < 2 ||
        sat_mul(trips, s->close[loop] - loop) > UNROLLED_MAX)
        return 0;
    for (int i = loop + 1; i < s->close[loop]; i++) {
        const struct uop *u = s->u[i];
        if (!is_lasting(u) || stack_around(s, i) == loop ||
            !is_read_by_neighbour(s, i, loop, trips))
            continue;
        total = sat_add(total, sat_mul(loaded_nbytes(u, widest), places_within(s, i, loop + 1)));
    }
    return total;
}

/* Whether a loop reads what a neighbouring one has stored: unrolled, it stays in registers, next to
 * the constants of the code between them. */
static bool passes_on(const struct stack *s, int loop, int64_t registers)
{
    int outer = stack_around(s, loop);
    int64_t trips, total = 0;
    if (outer < 0 || !uop_const_int(s->u[loop]->src[0], &trips) ||
        sat_mul(trips, s->close[loop] - loop) > UNROLLED_MAX)
        return false;
    for (int i = loop + 1; i < s->close[loop]; i++) {
        const struct uop *u = s->u[i];
        for (int k = outer + 1; is_lasting(u) && u->lanes > 1 && k < loop; k++)
            if (s->u[k]->op == OP_STORE && s->u[k]->src[0] == u->src[0] &&
                stack_around(s, k) > outer) {
                total = sat_add(total, sat_mul(stack_value_nbytes(u), places_within(s, i, loop)));
                break;
            }
    }
    return total >= registers / 2;
}

/* A loop of vectors with a separate address in each iteration: the addresses would be computed, and
 * kept, before the loop. Those of two iterations may be. */
static bool loop_gathers(const struct stack *s, int loop)
{
    int64_t trips;
    if (!uop_const_int(s->u[loop]->src[0], &trips) || trips <= 2)
        return false;
    for (int i = loop + 1; i < s->close[loop]; i++)
        if (s->u[i]->op == OP_GATHER && stack_around(s, i) == loop)
            return true;
    return false;
}

/* A loop of functions whose iterations, unrolled, would be interleaved: each has its own vectors
 * next to the constants. */
static bool loop_calls(const struct stack *s, enum isa isa, int loop, int64_t widest)
{
    int64_t trips, n = 0;
    for (int i = loop + 1; i < s->close[loop]; i++)
        n += stack_around(s, i) == loop && stack_is_function(isa, s->u[i]);
    return n > 0 && uop_const_int(s->u[loop]->src[0], &trips) &&
           sat_mul(trips, s->close[loop] - loop + n * CALL_SIZE) <= UNROLLED_MAX &&
           stack_constants_nbytes(s, isa, widest) + trips * n * STACK_CALL_VECTORS * widest >
               isa_register_nbytes(isa);
}

/* The bytes of vectors that a loop adds to, next to what it loads. */
static int64_t sums_nbytes(const struct stack *s, int loop)
{
    int64_t total = 0;
    for (int i = loop + 1; i < s->close[loop]; i++)
        if (s->u[i]->op == OP_ASSIGN && s->u[i]->lanes > 1 && stack_around(s, i) == loop)
            total += stack_value_nbytes(s->u[i]);
    return total;
}

/* A loop of products of bytes: unrolled, gcc loads what they multiply, and widens it where there is
 * no instruction for them, before the first product. */
static bool loop_dots(const struct stack *s, int loop, int64_t widest, int64_t registers)
{
    int64_t trips, loaded = 0;
    bool dots = false;
    if (!uop_const_int(s->u[loop]->src[0], &trips))
        return false;
    for (int i = loop + 1; i < s->close[loop]; i++) {
        if (stack_around(s, i) != loop)
            continue;
        dots |= stack_is_dot(s->u[i]);
        loaded += s->u[i]->op == OP_LOAD ? loaded_nbytes(s->u[i], widest) : 0;
    }
    return dots && sums_nbytes(s, loop) + sat_mul(trips, loaded) > registers;
}

/* A loop around sums that take all registers: unrolled, each iteration has its own addresses. */
static bool holds_sums(const struct stack *s, int loop, int64_t registers)
{
    int64_t trips, size;
    if (!uop_const_int(s->u[loop]->src[0], &trips) || trips < 2)
        return false;
    for (int i = loop + 1; i < s->close[loop]; i++)
        if ((size = stack_array_nbytes(s->u[i])) >= registers && stack_around(s, i) == loop &&
            sat_mul(trips, size / (int64_t)dtype_nbytes(s->u[i]->dtype)) <= UNROLLED_MAX)
            return true;
    return false;
}

/* The iterations of an innermost loop in which gcc keeps what a load has read, for the other loads
 * of these elements; it reaches CARRIED_MAX iterations. 0: another load keeps it. */
static int64_t carried_trips(const struct stack *s, int load, int loop, int64_t trips)
{
    int64_t stride, at, other, most = 0;
    struct uop *base = without_constant(s->u[load]->src[1], &at);
    if (!index_stride(s->t, s->u[load]->src[1], s->u[loop], &stride) || stride == 0)
        return 0;
    for (int i = loop + 1; i < s->close[loop]; i++) {
        if (s->u[i]->op != OP_LOAD || s->u[i]->src[0] != s->u[load]->src[0] ||
            s->u[i]->lanes != s->u[load]->lanes ||
            without_constant(s->u[i]->src[1], &other) != base || (at - other) % stride != 0)
            continue;
        int64_t ahead = (at - other) / stride;
        if (ahead > most && ahead < trips && ahead <= CARRIED_MAX)
            most = ahead;
        if (ahead < 0 && -ahead < trips && -ahead <= CARRIED_MAX)
            return 0; /* it is carried from that one */
    }
    return most;
}

/* Whether an innermost loop's sums and what gcc carries from one iteration to the next ones are
 * more than the registers hold. */
static bool loop_carries(const struct stack *s, enum isa isa, int loop)
{
    int64_t carried = 0, trips;
    if (!uop_const_int(s->u[loop]->src[0], &trips))
        trips = INT64_MAX;
    for (int i = loop + 1; i < s->close[loop]; i++) {
        if (s->u[i]->op == OP_RANGE)
            return false;
        if (s->u[i]->op == OP_LOAD)
            carried += carried_trips(s, i, loop, trips) * stack_value_nbytes(s->u[i]);
    }
    return carried > 0 && sums_nbytes(s, loop) + carried > isa_register_nbytes(isa);
}

bool stack_carries(struct tgc *t, enum isa isa, struct uop *const *u, int n)
{
    struct mem_mark mark = scratch_mark(t);
    struct stack s = {.t = t, .u = u, .n = n};
    bool carries = false, widest = stack_widest_vector(t, u, n) > 0;
    stack_find_loops(&s);
    for (int i = 0; i < n && widest && !carries; i++)
        carries = u[i]->op == OP_RANGE && loop_carries(&s, isa, i);
    scratch_release(t, mark);
    return carries;
}

static bool is_of_memory(const struct buffer *b)
{
    enum space space = buffer_space(b);
    return space == SPACE_GLOBAL || space == SPACE_WEIGHTS;
}

/* Bytes that a loop loads from memory over all its iterations, kept inner loops apart. A device's
 * compiler hoists the loads of an unrolled loop, to expose memory latency once. */
static int64_t unrolled_nbytes(const struct stack *s, const bool *kept, int loop)
{
    int64_t trips, total = 0;
    if (!uop_const_int(s->u[loop]->src[0], &trips) ||
        sat_mul(trips, s->close[loop] - loop) > UNROLLED_MAX)
        return 0;
    for (int i = loop + 1; i < s->close[loop]; i++) {
        const struct uop *u = s->u[i];
        if (u->op == OP_RANGE && kept[i])
            i = s->close[i];
        else if (is_load(u) && is_of_memory(uop_buffer_of(memory_of(u))))
            total = sat_add(total, sat_mul(loaded_nbytes(u, 0), places_within(s, i, loop)));
    }
    return total;
}

/* The bytes of fragments that a product multiplies in all iterations of the loops up to `loop`. */
static int64_t fragments_nbytes(const struct stack *s, int product, int loop)
{
    const struct matrix_row *row = matrix_row(MATRIX_ROW(s->u[product]->arg.i));
    int64_t nbytes = 0, trips;
    for (int k = MATRIX_A; k <= MATRIX_B; k++)
        nbytes += matrix_elements(row, (enum matrix_part)k) * (int64_t)dtype_nbytes(row->dtype[k]);
    for (int r = stack_around(s, product); r >= loop; r = stack_around(s, r))
        if (uop_const_int(s->u[r]->src[0], &trips))
            nbytes = sat_mul(nbytes, trips);
    return nbytes;
}

/* Bytes of fragments that a loop with a barrier multiplies, kept inner loops apart; 0: it has no
 * barrier. Some compilers move products after the barriers of later iterations, to where the sums
 * are needed, and keep all fragments until then. */
static int64_t moved_nbytes(const struct stack *s, const bool *kept, int loop)
{
    int64_t total = 0;
    bool barrier = false;
    for (int i = loop + 1; i < s->close[loop]; i++) {
        barrier |= s->u[i]->op == OP_BARRIER;
        if (s->u[i]->op == OP_RANGE && kept[i])
            i = s->close[i];
        else if (s->u[i]->op == OP_MATRIX)
            total = sat_add(total, fragments_nbytes(s, i, loop));
    }
    return barrier && RANGE_WORKER(s->u[loop]->arg.i) == WORKER_EACH ? total : 0;
}

/* Keeps loops that a device's compiler would unroll to more loads than a thread has registers for.
 * In an innermost loop it may use twice the registers that leave full occupancy. Fragments of
 * products that it moves may use them once: they live beside the sums and the next iteration's
 * copies. */
static void keep_loads(const struct stack *s, bool *kept)
{
    const struct device_row *d = s->t->device;
    for (int i = s->n - 1; i >= 0 && d && !d->is_processor; i--)
        kept[i] |= s->u[i]->op == OP_RANGE &&
                   (unrolled_nbytes(s, kept, i) > 2 * WORD_FEW * d->registers ||
                    (d->moves_products && moved_nbytes(s, kept, i) > WORD_FEW * d->registers));
}

bool stack_is_over_registers(struct tgc *t, struct uop *const *u, int n, int at)
{
    int64_t trips;
    if (!uop_const_int(u[at]->src[0], &trips) || RANGE_WORKER(u[at]->arg.i) != WORKER_EACH)
        return false;
    for (int i = at + 1; i < n && !(u[i]->op == OP_END && u[i]->src[0] == u[at]); i++)
        if ((u[i]->op == OP_LOAD || u[i]->op == OP_STORE) &&
            uop_buffer_of(u[i]->src[0])->scratch.is_register &&
            uop_depends_on(t, u[i]->src[1], u[at]))
            return true;
    return false;
}

bool loop_is_step(struct uop *const *u, int n, int loop)
{
    enum { ITERATIONS_LEAST = 8, BODY_MOST = 256 };
    bool local = false, adds = false;
    int i = loop + 1;
    if (range_is_lane(u[loop]) || RANGE_WORKER(u[loop]->arg.i) != WORKER_EACH ||
        range_fixed_size(u[loop]) < ITERATIONS_LEAST)
        return false;
    for (; i < n && u[i]->op != OP_END; i++) {
        if (u[i]->op != OP_LOAD && u[i]->op != OP_ASSIGN && u[i]->op != OP_SPLAT &&
            u[i]->op != OP_LANE && u[i]->op != OP_INTRINSIC && !op_is_elementwise(u[i]->op))
            return false;
        local |= u[i]->op == OP_LOAD && buffer_space(uop_buffer_of(u[i]->src[0])) == SPACE_SHARED;
        adds |= u[i]->op == OP_ASSIGN;
    }
    return local && adds && i - loop <= BODY_MOST;
}

bool *stack_find_kept(struct tgc *t, enum isa isa, struct uop *const *u, int n)
{
    bool *kept = mem_array(t, (size_t)n + 1, sizeof *kept);
    struct mem_mark mark = scratch_mark(t);
    struct stack s = {.t = t, .u = u, .n = n};
    int64_t widest = stack_widest_vector(t, u, n);
    int64_t registers = widest ? isa_register_nbytes(isa) : SCALARS_FEW * WORD_FEW;
    stack_find_loops(&s);
    for (int i = 0; i < n; i++) {
        if (u[i]->op != OP_RANGE)
            continue;
        int64_t shared = shared_nbytes(&s, i, widest), invariant = invariant_nbytes(&s, i, widest);
        /* a tile's sums stay in registers, next to few others */
        int64_t sums = widest ? sums_nbytes(&s, i) : 0;
        int64_t room = sums > registers / 2 ? registers - sums : registers;
        kept[i] |= invariant > room || shared > registers / 2 || passes_on(&s, i, registers) ||
                   loop_gathers(&s, i) || loop_calls(&s, isa, i, widest) ||
                   loop_dots(&s, i, widest, registers) ||
                   (widest ? loop_carries(&s, isa, i) : holds_sums(&s, i, registers));
        /* gcc carries loads to the next iteration of an innermost loop that is not unrolled, too */
        for (int k = i + 1; k < s.close[i] && shared > registers; k++)
            kept[k] |= u[k]->op == OP_RANGE;
    }
    keep_loads(&s, kept);
    for (int i = 0; i < n; i++)
        kept[i] &= u[i]->op == OP_RANGE && !stack_is_over_registers(t, u, n, i);
    scratch_release(t, mark);
    return kept;
}

