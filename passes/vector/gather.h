/* gather.h - private to gather.c and strip.c: data-dependent indices in a loop that is
 * vectorized. */
#ifndef TGC_GATHER_H
#define TGC_GATHER_H

#include "passes/vector/expand.h"

struct gather {
    struct expander *e;
    struct uop *range;
    bool any;                    /* a load has an index that is not affine along the loop */
    int64_t limit;               /* the bound to which an index from data is clamped in a lane */
    struct uop_map index;        /* uop of `in` -> what is known of it in the lanes */
    struct uop_map load;         /* those that become GATHER */
};

/* Looks for such loads in the loop at `begin`; if there are none, the other functions do
 * nothing. */
void gather_find(struct expander *e, int begin, int end, struct gather *g);
/* Whether a load whose offset is not affine along the loop can become a GATHER; varies: the values
 * that vary by lane. */
bool gather_load(struct gather *g, struct uop *u, const struct uop_map *varies);
/* Whether lanes can hold a value that is an index, or is computed from one. */
bool gather_value(struct gather *g, struct uop *u);
/* Expands one uop of the loop along the vector's lane; false: as any other loop's. */
bool gather_expand(struct gather *g, struct uop *u);

#endif
