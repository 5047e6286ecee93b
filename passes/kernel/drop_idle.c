/* drop_idle.c - variants for an instruction set with a matrix unit (AMX) that do not use it equal
 * the variant without the unit, and are dropped.
 */
#include "passes/kernel/tile.h"

/* Whether a tune file has chosen something for this instruction set. */
static bool is_tuned(const struct tgc *t, const struct kernel *k, enum isa isa)
{
    for (int i = 0; t->tuning && i < t->tuning->nchoice; i++) {
        const struct choice *c = &t->tuning->choice[i];
        if (c->kernel == k && c->by && c->taken.kind == TUNE_TILE && c->taken.isa == isa)
            return true;
    }
    return false;
}

/* Whether variant j multiplies tiles, and would be the one before it if it did not. */
static bool is_idle(struct tgc *t, const struct kernel *k, int j)
{
    const struct variant *v = &k->variant[j];
    return isa_has_tiles(v->isa) && j > 0 && isa_base(k->variant[j - 1].isa) == isa_base(v->isa) &&
           !sets_differ(t, k->ast, v->isa, k->variant[j - 1].isa, false) &&
           !fragments_are_used(t, v->ast) && !is_tuned(t, k, v->isa);
}

bool pass_drop_idle(struct tgc *t, struct schedule *s, struct kernel *k)
{
    int n = 0, all = k->nvariant;
    (void)s;
    for (int j = 0; j < all; j++)
        if (!is_idle(t, k, j))
            k->variant[n++] = k->variant[j];
    k->nvariant = n;
    if (n < all)
        kernel_collect_buffers(t, k);                 /* without its weights */
    return true;
}
