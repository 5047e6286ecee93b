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

/* Whether there are sums of groups of bytes, in scratch or not. */
static bool has_bytes(struct tgc *t, struct uop *ast)
{
    int nuop;
    struct uop **order = uop_toposort(t, &ast, 1, &nuop);
    for (int i = 0; i < nuop; i++)
        if (range_is(order[i], AXIS_GROUP))
            return true;
    return false;
}

/* The instruction sets for which the kernel may have variants; those that differ only in sums of
 * bytes, if it has some. *widest: the first of them. */
isa_set kernel_variants_of(struct tgc *t, const struct schedule *s, const struct kernel *k,
                           enum isa *widest)
{
    isa_set isa = s->isa;
    bool bytes = has_bytes(t, k->ast);
    *widest = isa_last();
    for (enum isa a = *widest; !bytes && !isa_is_portable(a); a = isa_before(a))
        if (isa >> isa_base(a) & 1 && isa_base(a) != a)
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

/* The widest set first. A set that multiplies tiles follows the one that it extends, whose vector
 * tiles it keeps. */
bool pass_make_variants(struct tgc *t, struct schedule *s, struct kernel *k)
{
    enum isa widest, waits = isa_portable();
    isa_set isa = kernel_variants_of(t, s, k, &widest);
    for (enum isa a = widest; !isa_is_portable(a); a = isa_before(a)) {
        if (!(isa >> a & 1))
            continue;
        if (isa_has_tiles(a) && isa >> isa_before(a) & 1) {
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
