/* fold_index.h - index expressions as sums of monomials; what the files fold_*.c share. Private to
 * passes/.
 *
 *      (N*r0 + 3*r1 - 7)   is   { N*r0 : 1,  r1 : 3,  constant -7 }
 *
 * A base is an atom (RANGE, VAR, LOAD, a division ...) or a product of atoms; never a constant, a
 * sum, or a product with a constant. Coefficients wrap modulo 2^64, as the dtype does, so that
 * adding and multiplying sums is always right. Comparison and division need the sum's value as an
 * integer: sum_bounds() says whether the machine computes that value.
 */
#ifndef TGC_FOLD_INDEX_H
#define TGC_FOLD_INDEX_H

#include "passes/rules/rules.h"

enum { MAX_TERM = 24 };
struct term {
    struct uop *base;
    int64_t coef;
};
struct sum {
    int n;
    bool overfull, wrapped;
    int64_t c;
    struct term term[MAX_TERM];
}; /* wrapped: a coefficient overflowed int64 */

/* Adds coef * u. Sets overfull if there are too many terms: the sum is unusable then. */
void sum_add(struct sum *s, struct uop *u, int64_t coef);
void sum_add_sum(struct sum *s, const struct sum *b, int64_t coef);
void sum_term(struct sum *s, struct uop *base, int64_t coef);
/* s * (coef * base), base NULL for 1. */
bool sum_scale(struct tgc *t, const struct sum *s, struct uop *base, int64_t coef, struct sum *r);
void sum_sort(struct sum *s); /* into the order of the normal form */
/* The uop in normal form. needs: !overfull */
struct uop *sum_build(struct tgc *t, struct sum *s);
/* The sum of x; one opaque atom if the machine's value may differ from the integer one. */
void sum_collect(struct sum *s, struct uop *x);
/* y > 0 wherever s has a value: by y's bounds, or since a RANGE of s has a size that is 0
 * otherwise. */
bool sum_above_0(struct tgc *t, struct uop *y, const struct sum *s);
/* Bounds; false if the sum, or a part of it, may overflow int64. */
bool sum_bounds(const struct sum *s, int64_t *lo, int64_t *hi);
/* s >= 0 for every value of its ranges and symbols: by bounds, or with RANGE(n) replaced by 0 or n
 * - 1. Not complete. */
bool sum_nonnegative(struct tgc *t, const struct sum *s);
/* Whether x + y, x * y are in normal form already, for x and y in normal form: the common cases,
 * without collecting. */
bool sum_ends_with(struct uop *x, struct uop *y);
bool product_is_term(const struct uop *x, const struct uop *y);
/* The product of two bases in normal form; NULL: too many factors. */
struct uop *base_mul(struct tgc *t, struct uop *a, struct uop *b);
/* a / b if the factors of b are among those of a: *r is the rest, NULL for 1. */
bool base_div(struct tgc *t, struct uop *a, struct uop *b, struct uop **r);
/* fold_index.c: x op y, of ADD, SUB and MUL of scalars, in normal form; NULL: rules decide. */
struct uop *index_normal(struct tgc *t, enum op op, struct uop *x, struct uop *y);
/* Interns a uop that is in normal form by construction. */
struct uop *intern_normal(struct tgc *t, enum op op, enum dtype d, struct uop *a, struct uop *b);

#endif
