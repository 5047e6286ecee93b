/* rules.h - what compiled rules call: dtype classes, guard functions, builders, and the helpers
 * behind right sides. Private to passes/.
 *
 * A helper gets the uop that matched and the operands named in the rule; it returns an equal uop in
 * normal form, or NULL: not this rule.
 */
#ifndef TGC_RULES_H
#define TGC_RULES_H

#include "ir/ir.h"

/* ---- dtype classes (rules.def) */

static inline bool rule_is_bool(const struct uop *u) { return u->dtype == DTYPE_BOOL; }
static inline bool rule_is_integer(const struct uop *u)
{
    return u->dtype >= DTYPE_I2 && u->dtype <= DTYPE_U64;
}
static inline bool rule_is_int(const struct uop *u)
{
    return u->dtype >= DTYPE_I2 && u->dtype < DTYPE_U64;
}
static inline bool rule_is_logic(const struct uop *u)
{
    return u->dtype >= DTYPE_BOOL && u->dtype <= DTYPE_U64;
}
static inline bool rule_is_index(const struct uop *u)
{
    return u->dtype == DTYPE_INDEX && u->ndim == 0;
}
static inline bool rule_is_float(const struct uop *u)
{
    return u->dtype >= DTYPE_F4E2M1 && u->dtype <= DTYPE_F64;
}

/* ---- guards */

static inline int64_t rule_vmin(const struct uop *u) { return u->vmin; }
static inline int64_t rule_vmax(const struct uop *u) { return u->vmax; }
static inline int64_t rule_gcd(int64_t a, int64_t b) { return int_gcd(a, b); }
static inline bool rule_divides(int64_t a, int64_t b) { return a != 0 && int_floormod(b, a) == 0; }
static inline bool rule_within(int64_t a, int64_t b) { return (a & ~b) == 0; }
static inline int64_t rule_sub(int64_t a, int64_t b)
{
    return b == INT64_MIN ? sat_add(sat_add(a, INT64_MAX), 1) : sat_add(a, -b);
}
static inline bool rule_constant(const struct uop *u) { return u->op == OP_CONST; }
static inline int rule_width(const struct uop *u) { return dtype_bits(u->dtype); }
static inline bool rule_same_dtype(const struct uop *a, const struct uop *b)
{
    return a->dtype == b->dtype;
}
bool rule_exact(
    const struct uop *u); /* ADD SUB MUL NEG: no operands within their bounds overflow the dtype */
bool rule_fits(const struct uop *to, const struct uop *x);
bool rule_widens(const struct uop *to, const struct uop *x);
bool rule_power_of_two(const struct uop *c);
bool rule_same_shape(const struct uop *a, const struct uop *b);
bool rule_implies(const struct uop *a, const struct uop *b);
bool rule_is_nan(const struct uop *u);
bool rule_is_number(const struct uop *u,
                    int64_t v); /* CONST of any dtype equal to v; -0.0 is no 0 */

/* ---- right sides */

struct uop *rule_number(struct tgc *t, enum dtype d, int64_t i, double f);
struct uop *rule_build1(struct tgc *t, enum op op, enum dtype d, struct uop *a);
struct uop *rule_build2(struct tgc *t, enum op op, enum dtype d, struct uop *a, struct uop *b);
struct uop *rule_build3(struct tgc *t, enum op op, enum dtype d, struct uop *a, struct uop *b,
                        struct uop *c);
struct uop *rule_build4(struct tgc *t, enum op op, enum dtype d, struct uop *a, struct uop *b,
                        struct uop *c, struct uop *e);
/* r, with u's shape if u is a tensor and r a scalar. */
struct uop *rule_result(struct tgc *t, const struct uop *u, struct uop *r);

/* ---- helpers */

#define RULE_ARGS0
#define RULE_ARGS1 , struct uop *
#define RULE_ARGS2 , struct uop *, struct uop *
#define RULE_ARGS3 , struct uop *, struct uop *, struct uop *
#define RULE_ARGS4 , struct uop *, struct uop *, struct uop *, struct uop *
#define RULE_CLASS(name, text)
#define RULE_GUARD(name, args, python)
#define RULE_HELPER(name, nargs) struct uop *name(struct tgc *t, struct uop *u RULE_ARGS##nargs);
#include "passes/rules/rules.def"
#undef RULE_CLASS
#undef RULE_GUARD
#undef RULE_HELPER

/* rewrite.c, for the rules' tests: the first rule that applies to an interned uop, without the fold
 * by constants and bounds that comes before the rules. Its number in *rule; NULL: none. */
struct uop *rewrite_match(struct tgc *t, struct uop *u, int *rule);

/* fold_index.c, for fold_valid.c */
bool index_provably_less(struct tgc *t, struct uop *a, struct uop *b);

#endif
