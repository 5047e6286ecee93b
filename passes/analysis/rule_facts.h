/* rule_facts.h - what guards of named sets of rules ask for. */
#ifndef TGC_RULE_FACTS_H
#define TGC_RULE_FACTS_H

#include "passes/analysis/bounds.h"

/* For uops of one memory. Set bounds.t and most.t, and most.most. lo() and hi() are by `bounds`,
 * which later passes find again, so that a clamp may go for it; the other facts by `most`. */
struct rule_facts {
    struct bounds_memo bounds, most;
};

#endif
