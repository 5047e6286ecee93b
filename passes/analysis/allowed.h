/* allowed.h - which integers an input may hold, as far as the graph says. */
#ifndef TGC_ALLOWED_H
#define TGC_ALLOWED_H

#include "passes/passes.h"

/* least > most: the input holds no integers. */
struct allowed { int64_t least, most; };

/* By input, in the graph's order: integers whose uses allow all of them, in each element, whatever
 * the run-time dimensions are. They are what self-tests and benchmarks draw, so they are small
 * where nothing limits them. Indices of tables lie inside of these, and what the run checks holds,
 * but for conditions on several inputs. */
struct allowed *allowed_integers(struct tgc *t, const struct graph *g);

#endif
