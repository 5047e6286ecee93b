/* round_bytes.c - of machines without vectors: requantization ends in integers.
 *
 *      (i8)min(max(round(x) + -128, -128), 127)
 *
 * Adding 1.5 * 2^23 to an x of less than 2^22 leaves no room for a fraction: the bits of the sum
 * are those of 1.5 * 2^23, plus x rounded half to even. Zero point and clamps then are integers',
 * and the clamp to a byte is one instruction (SSAT, USAT):
 *
 *      (i8)min(max((i32)bits(x + 0x1.8p23) + (-0x4b400000 - 128), -128), 127)
 *
 * The result is the same, bit for bit: sums of whole numbers up to 2^24 are exact in both.
 */
#include "passes/analysis/bounds.h"
#include "passes/kernel/tile.h"
#include "passes/target/target.h"

enum { STEPS_MAX = 16, MAGIC_BITS = 0x4b400000 };
static const double magic = 0x1.8p23; /* its bits are MAGIC_BITS */

/* The constant operand of a chain's step; false: it has none that is a small whole number. */
static bool whole_constant(const struct uop *u, int64_t *c)
{
    const double most = 1 << 20;
    if (u->nsrc != 2 || u->src[1]->op != OP_CONST)
        return false;
    double v = u->src[1]->arg.f;
    if (!(v >= -most && v <= most) || v != (double)(int64_t)v)
        return false;
    *c = (int64_t)v;
    return true;
}

/* x rounded, as i32. */
static struct uop *round_to_int(struct tgc *t, struct uop *x)
{
    struct uop *src[2] = {x, uop_constf(t, DTYPE_F32, magic)};
    struct uop *sum = uop_new(t, OP_ADD, DTYPE_F32, src, 2, (union arg){0});
    struct uop *bits = uop_new(t, OP_BITCAST, DTYPE_I32, &sum, 1, (union arg){0});
    src[0] = bits;
    src[1] = uop_consti(t, DTYPE_I32, -MAGIC_BITS);
    return uop_new(t, OP_ADD, DTYPE_I32, src, 2, (union arg){0});
}

/* Whether u is a product, perhaps negated or chosen: compilers would add to it without rounding it
 * first. */
static bool is_product(const struct uop *u)
{
    while (u->op == OP_NEG)
        u = u->src[0];
    return u->op == OP_MUL ||
           (u->op == OP_WHERE && (is_product(u->src[1]) || is_product(u->src[2])));
}

/* u, a chain of clamps and additions of constants on a rounding, as i32; NULL: it is none. */
static struct uop *to_integers(struct tgc *t, struct bounds_memo *memo, struct uop *u)
{
    const double most = 1 << 22;
    struct uop *step[STEPS_MAX];
    int n = 0;
    int64_t c;
    for (; u->op == OP_ADD || u->op == OP_MAX || u->op == OP_MIN; u = u->src[0]) {
        if (u->dtype != DTYPE_F32 || n == STEPS_MAX || !whole_constant(u, &c))
            return NULL;
        step[n++] = u;
    }
    if (u->op != OP_ROUND || u->dtype != DTYPE_F32 || is_product(u->src[0]))
        return NULL;
    struct bounds b = bounds_of(memo, u->src[0]);
    if (!b.known || !(b.lo > -most && b.hi < most))
        return NULL;
    struct uop *v = round_to_int(t, u->src[0]);
    while (n-- > 0) {
        (void)whole_constant(step[n], &c);
        struct uop *src[2] = {v, uop_consti(t, DTYPE_I32, c)};
        v = uop_new(t, step[n]->op, DTYPE_I32, src, 2, (union arg){0});
    }
    return v;
}

static struct uop *round_store(struct tgc *t, struct uop *store)
{
    struct uop *v = store->src[2];
    if (v->op != OP_CAST || !dtype_is_byte(v->dtype))
        return store;
    struct bounds_memo memo = {.t = t};
    struct uop *whole = to_integers(t, &memo, v->src[0]);
    if (!whole)
        return store;
    /* a cast to a byte saturates floats, and wraps integers */
    struct uop *end[2] = {whole, uop_consti(t, DTYPE_I32, dtype_min(v->dtype))};
    end[0] = uop_new(t, OP_MAX, DTYPE_I32, end, 2, (union arg){0});
    end[1] = uop_consti(t, DTYPE_I32, dtype_max(v->dtype));
    whole = uop_new(t, OP_MIN, DTYPE_I32, end, 2, (union arg){0});
    struct uop *by = uop_cast(t, v->dtype, whole);
    uop_set_origin(t, by, v);
    return store_of_value(t, store, by);
}

bool pass_round_bytes(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    bool applies = machine_of(t)->registers && !device_has_grid(t);
    return !applies || kernel_each_store(t, k, round_store);
}
