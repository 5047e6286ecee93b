/* rules.h - what compiled rules call: dtype classes, guard functions, builders, and the helpers of
 * right sides; and how passes run named sets of rules. Private to passes/.
 *
 * A helper gets the uop that matched and the operands named in the rule; it returns an equal uop in
 * normal form, or NULL: not this rule. */
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

static inline bool rule_is_f32(const struct uop *u) { return u->dtype == DTYPE_F32; }
static inline bool rule_is_byte(const struct uop *u) { return dtype_is_byte(u->dtype); }

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
/* compared with constants of floats, too; exact but for the greatest of 64 bits */
static inline double rule_least(const struct uop *u) { return (double)dtype_min(u->dtype); }
static inline double rule_greatest(const struct uop *u) { return (double)dtype_max(u->dtype); }
static inline bool rule_same_dtype(const struct uop *a, const struct uop *b)
{
    return a->dtype == b->dtype;
}
static inline bool rule_scalar(const struct uop *u) { return u->ndim == 0; }
bool rule_exact(
    const struct uop *u); /* ADD SUB MUL NEG: no operands within their bounds overflow the dtype */
/* x may be a float constant, too: an integer that is not -0 fits if the dtype holds it. */
bool rule_fits(const struct uop *to, const struct uop *x);
bool rule_integral(const struct uop *c);
bool rule_moderate(const struct uop *x); /* fold_cast.c */
bool rule_widens(const struct uop *to, const struct uop *x);
bool rule_power_of_two(const struct uop *c);
bool rule_same_shape(const struct uop *a, const struct uop *b);
bool rule_implies(const struct uop *a, const struct uop *b);
bool rule_is_nan(const struct uop *u);
/* The element that a tensor or a vector repeats, as far as its ops show; else u. */
struct uop *rule_element(struct uop *u);
bool rule_is_number(const struct uop *u,
                    int64_t v); /* CONST of any dtype equal to v; -0.0 is not 0 */

/* ---- right sides */

struct uop *rule_number(struct tgc *t, enum dtype d, int64_t i, double f);
struct uop *rule_build1(struct tgc *t, enum op op, enum dtype d, struct uop *a);
struct uop *rule_build2(struct tgc *t, enum op op, enum dtype d, struct uop *a, struct uop *b);
struct uop *rule_build3(struct tgc *t, enum op op, enum dtype d, struct uop *a, struct uop *b,
                        struct uop *c);
struct uop *rule_build4(struct tgc *t, enum op op, enum dtype d, struct uop *a, struct uop *b,
                        struct uop *c, struct uop *e);
/* The same, not simplified. */
struct uop *rule_intern2(struct tgc *t, enum op op, enum dtype d, struct uop *a, struct uop *b);
/* r, with u's shape if u is a tensor and r a scalar. */
struct uop *rule_result(struct tgc *t, const struct uop *u, struct uop *r);

/* ---- helpers */

#define RULE_ARGS0
#define RULE_ARGS1 , struct uop *
#define RULE_ARGS2 , struct uop *, struct uop *
#define RULE_ARGS3 , struct uop *, struct uop *, struct uop *
#define RULE_ARGS4 , struct uop *, struct uop *, struct uop *, struct uop *
#define RULE_HELPER(name, nargs) struct uop *name(struct tgc *t, struct uop *u RULE_ARGS##nargs);
#include "passes/rules/rules.def"

/* ---- named sets: rules that passes run */

enum rule_set {
#define RULE_SET(name, equal, build, text) RULES_##name,
#include "passes/rules/rules.def"
    RULE_SETS
};

/* What guards ask for: passes/analysis/rule_facts.h. */
struct rule_facts;
#define RULE_FACT(name, type, text) type fact_##name(struct rule_facts *facts, const struct uop *u);
#include "passes/rules/rules.def"

/* sets.c: the result of the first rule of the set that matches u; NULL: none does. *rule: its
 * number in order of the files. */
struct uop *rules_match(struct tgc *t, enum rule_set set, struct rule_facts *facts, struct uop *u,
                        int *rule);

/* A walk that brings values into a set's normal form. */
struct rule_walk {
    struct tgc *t;
    enum rule_set set;
    struct rule_facts *facts;
    bool (*enter)(const struct uop *u); /* whether operands of u are rewritten first */
    int steps;                          /* how many uops may be visited */
    struct uop_map done;
};
struct uop *rules_walk(struct rule_walk *w, struct uop *u);

/* rewrite.c, for the rules' tests: the first rule that applies to an interned uop, without the
 * folding of constants and bounds that precedes the rules. Its number in *rule; NULL: none. */
/* passes.h has rule_row_at(), for reports. */
struct uop *rewrite_match(struct tgc *t, struct uop *u, int *rule);

/* fold_index.c, for fold_valid.c */
bool index_provably_less(struct tgc *t, struct uop *a, struct uop *b);

#endif
