/* make_variants.c - the kernel once more for each instruction set that could gain.
 *
 * The portable kernel's lanes stay loops, which compilers vectorize. A variant's lanes become
 * vectors of its instruction set; which variant runs is decided when the program starts.
 */
#include "passes/kernel/tile.h"

struct variant kernel_variant(struct tgc *t, const struct kernel *k, enum isa isa)
{
    struct variant v = {.isa = isa, .ast = k->ast};
    for (int i = 0; i < k->opts.n; i++)
        VEC_PUSH(t, v.opts.v, v.opts.n, v.opts.cap, k->opts.v[i]);
    return v;
}

/* Whether there are sums of groups of those weights, in scratch or not: groups of as many. */
static bool has_groups(struct tgc *t, struct uop *ast, enum dtype weights)
{
    int nuop;
    struct uop **order = uop_toposort(t, &ast, 1, &nuop);
    for (int i = 0; i < nuop; i++)
        if (range_is(order[i], AXIS_GROUP) &&
            uop_is_int(order[i]->src[0], dtype_group(weights)))
            return true;
    return false;
}

/* The next narrower one of the sets, of the same width; the same set: there is none. */
static enum isa extended_by(isa_set isa, enum isa a)
{
    for (enum isa b = a; b != isa_base(a);)
        if (isa >> (b = isa_before(b)) & 1)
            return b;
    return a;
}

bool sets_differ(struct tgc *t, struct uop *ast, enum isa a, enum isa b, bool tiles)
{
    static const enum dtype weights[] = {DTYPE_I8, DTYPE_BF16};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        if (isa_differs(a, b, weights[i], tiles) && has_groups(t, ast, weights[i]))
            return true;
    return false;
}

/* The instruction sets for which the kernel may have variants; those that differ only in sums of
 * groups, if it has some of theirs. *widest: the first of them. */
isa_set kernel_variants_of(struct tgc *t, const struct schedule *s, const struct kernel *k,
                           enum isa *widest)
{
    isa_set isa = s->isa;
    *widest = isa_last();
    for (enum isa a = *widest; !isa_is_portable(a); a = isa_before(a))
        if (isa >> a & 1 && extended_by(isa, a) != a &&
            !sets_differ(t, k->ast, a, extended_by(isa, a), true))
            isa &= ~(1u << a);
    while (!isa_is_portable(*widest) && !(isa >> *widest & 1))
        *widest = isa_before(*widest);
    return isa;
}

static void push_variant(struct tgc *t, struct kernel *k, enum isa isa)
{
    struct variant v = kernel_variant(t, k, isa);
    VEC_PUSH(t, k->variant, k->nvariant, k->cap_variant, v);
}

/* The widest set first. A set that differs from the one that it extends by multiplying tiles
 * follows it, since it keeps its vector tiles. */
bool pass_make_variants(struct tgc *t, struct schedule *s, struct kernel *k)
{
    enum isa widest, waits = isa_portable();
    isa_set isa = kernel_variants_of(t, s, k, &widest);
    for (enum isa a = widest; !isa_is_portable(a); a = isa_before(a)) {
        if (!(isa >> a & 1))
            continue;
        enum isa b = extended_by(isa, a);
        if (b != a && !sets_differ(t, k->ast, a, b, false)) {
            waits = a;
            continue;
        }
        push_variant(t, k, a);
        if (!isa_is_portable(waits))
            push_variant(t, k, waits);
        waits = isa_portable();
    }
    return true;
}
