/* legalize.c - a linear program with no operation but those that every language has; what becomes of
 * the others are the rules of the set `legal` (passes/rules/legal.rules).
 *
 * What is written plainly, and what by a function, a renderer asks legal.h.
 */
#include "passes/passes.h"
#include "passes/rules/rules.h"

/* u with operands as they are now, and legal; u itself if nothing changes. */
static struct uop *legal_uop(struct tgc *t, const struct uop_map *now, struct uop *u)
{
    bool changed = false;
    int rule;
    struct uop **src = scratch_array(t, (size_t)u->nsrc + 1, sizeof *src), *r = u;
    for (int k = 0; k < u->nsrc; k++) {
        struct uop *by = map_get(now, u->src[k]);
        src[k] = by ? by : u->src[k];
        changed |= by != NULL;
    }
    if (changed) {
        r = uop_intern(t, u->op, u->dtype, src, u->nsrc, u->arg);
        uop_set_origin(t, r, u);
        if (u->op == OP_RANGE && uop_get_axes(t, u))
            uop_name_axes(t, r, uop_get_axes(t, u));
    }
    struct uop *by = r->lanes == 1 ? rules_match(t, RULES_legal, NULL, r, &rule) : NULL;
    if (by)
        uop_set_origin(t, by, r);
    return by ? by : r;
}

static void legalize(struct tgc *t, struct uop **linear, int n)
{
    struct mem_mark mark = scratch_mark(t);
    struct uop_map now = {.t = t, .scratch = true};
    for (int i = 0; i < n; i++) {
        struct uop *r = legal_uop(t, &now, linear[i]);
        if (r != linear[i])
            map_set(&now, linear[i], r);
        linear[i] = r;
    }
    scratch_release(t, mark);
}

bool pass_legalize(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    legalize(t, k->linear, k->nlinear);
    for (int i = 0; i < k->nvariant; i++)
        legalize(t, k->variant[i].linear, k->variant[i].nlinear);
    return true;
}
