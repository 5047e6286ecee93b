/* softmax.h - how a softmax is recognized, among tensors and in a kernel's AST alike. */
#ifndef TGC_SOFTMAX_H
#define TGC_SOFTMAX_H

#include "passes/passes.h"

/* An exponential e^(from - most) * scale of a softmax; `most` is a maximum, or 0 where that is
 * -inf. In a kernel's AST `from` and the maximum's operand are loads; the caller knows whether they
 * are equal. */
struct softmax {
    struct uop *exp;             /* the exponential without its factor */
    struct uop *from, *most;     /* most: the OP_REDUCE */
    double scale;                /* a constant factor, see defer_division.c; 1: none */
};

/* Whether u is such a power. */
bool softmax_match(struct uop *u, struct softmax *s);
/* Whether the factor of a product is a softmax, divided by its sum or not yet, rounded or not:
 * weights of attention. */
bool softmax_is_weight(struct uop *factor);

#endif
