/* online.h - private to online.c, online_find.c, visible.c: attention by blocks of keys. */
#ifndef TGC_ONLINE_H
#define TGC_ONLINE_H

#include "passes/plan.h"

/* visible.c. A condition of scores that compares the key's place with a bound: key < bound, where
 * `below`, otherwise key >= bound. */
struct bound { struct uop *cond, *at; bool below; };
enum { BOUNDS_MAX = 8 };
/* Which keys a row may see: begin <= key < end; NULL: no limit is known. Keys outside of it have
 * scores of -inf, whatever the operands are; or, where a mask is finite, of no more than its value
 * and `factor` times the largest product of a query and a key, in magnitude. */
struct visible {
    struct bound bound[BOUNDS_MAX]; int nbound;
    struct uop *begin, *end;
    bool is_finite;
    double value, factor;
};
/* Of the scores of a row, `key` being their range, and `dot` their sum of products. */
void visible_find(struct tgc *t, struct uop *scores, struct uop *key, const struct uop *dot,
                  struct visible *v);
/* A limit of what u is while r runs, the most or the least; NULL: none is known. */
struct uop *visible_extreme(struct tgc *t, struct uop *u, const struct uop *r, bool most);

#endif
