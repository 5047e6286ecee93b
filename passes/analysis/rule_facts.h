/* rule_facts.h - the facts for which guards of named sets of rules ask. */
#ifndef TGC_RULE_FACTS_H
#define TGC_RULE_FACTS_H

#include "passes/analysis/bounds.h"

/* For uops of one memory. Set bounds.t and most.t, and most.most. lo() and hi() use `bounds`, which
 * later passes can derive again, so a clamp may be removed because of them; the other facts use
 * `most`. */
struct rule_facts {
    struct bounds_memo bounds, most;
};

#endif
