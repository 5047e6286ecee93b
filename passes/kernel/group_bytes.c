/* group_bytes.c - sums of products of bytes, of quantized models, and of bf16 (--math=bf16): four
 * neighbours along the innermost range of the reduction, or two, become a group, which instruction
 * sets sum at once.
 *
 *      for k < 64                              for k < 16
 *        acc += (i32)x[k] * (i32)w[k]            for g < 4
 *                                                  acc += (i32)x[4k + g] * (i32)w[4k + g]
 *
 * x is u8 and contiguous along k. w is i8: a weight, which tile.c packs with its groups inside the
 * lanes, or a run-time value that runtime_products.c has regrouped in that order. expand.c turns a
 * group and a vector of columns into one dot product; in the portable kernel the group stays a
 * loop.
 *
 * Of bf16, w is a weight, and some instruction set of the program has an instruction for pairs:
 * otherwise they would only make kernels longer. */
#include "passes/kernel/tile.h"
#include "passes/target/target.h"

/* Whether r, of n values, is a group itself: the remainder of a range that was split. */
static bool is_group(const struct nest *m, struct uop *weights, struct uop *r, int64_t n)
{
    int64_t stride;
    return n == dtype_group(weights->dtype) &&
           index_stride(m->t, weights->src[1], r, &stride) && stride == 1;
}

/* The length of a sum of products of groups along its innermost range; 0: it is none, or its length
 * is unknown. */
static int64_t find_sum(struct tgc *t, struct uop *store, struct nest *m, struct uop **values,
                        struct uop **weights)
{
    int64_t n;
    bool found = nest_find(t, store, m) && !m->grouped && nest_sums_groups(m, values, weights) &&
                 m->reduce->nsrc <= MAX_RANK &&
                 uop_const_int(m->reduce->src[m->reduce->nsrc - 1]->src[0], &n);
    return found ? n : 0;
}

/* Whether the device has an instruction for matrices of bytes (grid_matrix.c), and the store's sum
 * is long enough for it: it groups bytes by itself. */
static bool bytes_are_for_matrices(struct tgc *t, struct uop *store)
{
    struct nest m;
    struct uop *values, *weights;
    int sides = 0;
    if (!device_multiplies(t, DTYPE_I8) ||
        find_sum(t, store, &m, &values, &weights) < BYTES_TERMS_LEAST)
        return false;
    for (int i = m.first; i < store->nsrc; i++)
        sides += store->src[i]->src[0]->vmax >= BYTES_SIDE_LEAST;
    return sides >= 2;
}

struct uop *tile_group_bytes(struct tgc *t, struct uop *store)
{
    struct nest m;
    struct uop *src[MAX_RANK + 2], *values, *weights;
    int64_t stride, n = find_sum(t, store, &m, &values, &weights);
    if (n == 0)
        return store;
    int last = m.reduce->nsrc - 1, group = dtype_group(weights->dtype);
    struct uop *r = m.reduce->src[last];
    if (n % group ||
        !index_stride(t, values->src[1], r, &stride) || stride != 1 ||
        (!is_group(&m, weights, r, n) && !nest_is_packable(&m, weights)))
        return store;
    struct uop *count = uop_int(t, n / group);
    struct uop *k = n == group ? uop_int(t, 0) : uop_range(t, count, t->next_range++);
    struct uop *g = uop_axis(t, uop_int(t, group), AXIS_GROUP, WORKER_EACH);
    if (uop_get_axes(t, r) && k->op == OP_RANGE)
        uop_name_axes(t, k, uop_get_axes(t, r));
    uop_name_axes(t, g, dtype_is_byte(weights->dtype) ? "byte" : "half");
    struct uop *by = sym_add(t, sym_muli(t, k, group), g);
    src[0] = uop_substitute(t, m.reduce->src[0], r, by);
    for (int i = 1; i < last; i++)
        src[i] = m.reduce->src[i];
    if (k->op == OP_RANGE)
        src[last++] = k;
    src[last] = g;
    struct uop *sum = uop_intern(t, OP_REDUCE, m.reduce->dtype, src, last + 1, m.reduce->arg);
    uop_set_origin(t, sum, m.reduce);
    return uop_substitute(t, store, m.reduce, sum);
}

static bool multiplies_pairs(isa_set sets)
{
    for (enum isa isa = isa_last(); !isa_is_portable(isa); isa = isa_before(isa))
        if ((sets >> isa & 1) && isa_adds(isa, DTYPE_BF16))
            return true;
    return false;
}

/* Whether the store's sum, if it is one of groups, is left as it is. */
static bool is_left(struct tgc *t, const struct schedule *s, struct uop *store)
{
    struct nest m;
    struct uop *values, *weights;
    return bytes_are_for_matrices(t, store) ||
           (find_sum(t, store, &m, &values, &weights) && weights->dtype == DTYPE_BF16 &&
            !multiplies_pairs(s->isa));
}

bool pass_group_bytes(struct tgc *t, struct schedule *s, struct kernel *k)
{
    for (int i = 0; i < k->ast->nsrc; i++) {
        struct opt group = {.op = OPT_GROUP, .store = i};
        if (!is_left(t, s, k->ast->src[i]))
            (void)opt_apply(t, k, NULL, &group, 1, NULL);    /* wherever it is legal */
    }
    return true;
}
