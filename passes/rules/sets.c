/* sets.c - named sets of rules, which passes run: rules that need what a pass knows about its uops,
 * or that build what only later stages accept, and that therefore must not fire when a uop is
 * built. Their guards ask passes/analysis/rule_facts.h.
 */
#include "passes/rules/rules.h"

#include <math.h>

struct uop *rule_intern2(struct tgc *t, enum op op, enum dtype d, struct uop *a, struct uop *b)
{
    struct uop *src[2] = {a, b};
    return uop_intern(t, op, d, src, 2, (union arg){0});
}

#include "rule_sets.inc"

typedef struct uop *(*rule_matcher)(struct tgc *, struct rule_facts *, struct uop *, int *);

struct uop *rules_match(struct tgc *t, enum rule_set set, struct rule_facts *facts, struct uop *u,
                        int *rule)
{
    static const rule_matcher *const matchers[] = {
#define RULE_SET(name, equal, build, text) [RULES_##name] = rule_##name,
#include "passes/rules/rules.def"
    };
    rule_matcher match = matchers[set][u->op];
    return match ? match(t, facts, u, rule) : NULL;
}

/* u with operands in normal form. */
static struct uop *walk_operands(struct rule_walk *w, struct uop *u)
{
    struct uop *src[MAX_RANK];
    bool changed = false;
    if (u->nsrc == 0 || u->nsrc > MAX_RANK || !w->enter(u))
        return u;
    for (int k = 0; k < u->nsrc; k++) {
        src[k] = rules_walk(w, u->src[k]);
        changed |= src[k] != u->src[k];
    }
    return changed ? uop_new(w->t, u->op, u->dtype, src, u->nsrc, u->arg) : u;
}

/* The replacement of u is walked again: its operands or it are new, and another rule may match. */
struct uop *rules_walk(struct rule_walk *w, struct uop *u)
{
    int rule = -1;
    struct uop *known = map_get(&w->done, u);
    if (known)
        return known;
    if (--w->steps < 0)
        return u;
    w->done.t = w->t;
    w->done.scratch = true;
    struct uop *r = walk_operands(w, u);
    if (r == u)
        r = rules_match(w->t, w->set, w->facts, u, &rule);
    if (rule >= 0 && w->t->fired)
        w->t->fired[rule]++;
    r = r && r != u ? rules_walk(w, r) : u;
    map_set(&w->done, u, r);
    return r;
}
