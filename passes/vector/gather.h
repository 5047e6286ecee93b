/* gather.h - private to gather.c and strip.c: places that are data, in a loop that becomes vectors. */
#ifndef TGC_GATHER_H
#define TGC_GATHER_H

#include "passes/vector/expand.h"

struct gather {
    struct expander *e;
    struct uop *range;
    bool any;                    /* something is read at a place that does not go along the loop */
    int64_t limit;               /* how far from 0 an index out of data may be in a lane */
    struct uop_map index;        /* uop of `in` -> what is known of it in the lanes */
    struct uop_map load;         /* those that become GATHER */
};

/* Looks for such loads in the loop at `begin`; if there is none, the others do nothing. */
void gather_find(struct expander *e, int begin, int end, struct gather *g);
/* Whether a load, whose offset does not go along the loop, can be one of a vector; varies: what
 * differs from lane to lane. */
bool gather_load(struct gather *g, struct uop *u, const struct uop_map *varies);
/* Whether lanes can hold a value that is an index, or is made of one. */
bool gather_value(struct gather *g, struct uop *u);
/* One uop of the loop, along the vector's lane; false: it is expanded as any other. */
bool gather_expand(struct gather *g, struct uop *u);

#endif
