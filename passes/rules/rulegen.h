/* rulegen.h - what the two halves of the rule compiler share: the syntax tree of a rule. Private to
 * rulegen*.c, a build-time program. */
#ifndef TGC_RULEGEN_H
#define TGC_RULEGEN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum node_kind {
    NODE_VAR,   /* x: any uop */
    NODE_CONST, /* c0: a CONST */
    NODE_INT,   /* 3 */
    NODE_FLOAT, /* 0.5, -0.0, inf */
    NODE_OP,    /* an op of ops.def */
    NODE_CALL,  /* a helper or a guard function */
    NODE_TEST   /* an operator of a guard */
};
enum { MAX_CHILD = 6, MAX_NODE = 64 };
enum { TYPE_BOOL, TYPE_INDEX, TYPE_FREE }; /* dtype variables; the first two are fixed */

struct node {
    enum node_kind kind;
    const char *name; /* VAR, CONST, CALL; TEST: the operator */
    int op, nchild;
    struct node *child[MAX_CHILD];
    bool rest; /* OP: "..." follows the children */
    bool moved;  /* "[x]": behind movement, which the right side's "[y]" repeats */
    uint32_t outer; /* CALL of a guard: the arguments that mean a "[x]" with its movement */
    bool spread; /* CONST, INT, FLOAT: "~", also where it is repeated over a tensor or a vector */
    int64_t i;
    double f;
    const char *class; /* annotation, or NULL */
    int type, id;      /* id: place in the rule's left side, kept by variants */
    const char *at;    /* in the source, for errors */
};

enum level { LEVEL_ALWAYS, LEVEL_OPTIMIZE, LEVEL_FAST_MATH };

struct rule {
    const char *name, *file;
    int line;
    enum level level;
    const char *class;              /* default class of the file at this point */
    const char *set;                /* NULL: fires when a uop is built */
    struct node *lhs, *rhs, *guard; /* guard may be NULL */
    int ntype, type_of[MAX_NODE];   /* union-find over dtype variables */
};

/* rulegen.c */
_Noreturn void rule_error(const char *at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *gen_op_name(int op);
const char *gen_op_id(int op); /* "ADD" */
bool gen_op_commutes(int op);
bool gen_op_compares(int op); /* a bool, whatever its operands are */
struct node *gen_new(enum node_kind kind, const char *at);
/* A letter for each argument of a guard function, see rules.def; NULL: there is none of the name */
const char *gen_guard_args(const char *name);
bool gen_guard_is_float(const char *name); /* computes a float */
bool gen_guard_asks(const char *name);     /* needs the facts of a pass */

/* rulegen_types.c */
int gen_type(struct rule *r, int type); /* representative of a dtype variable */
/* Infers dtypes; checks names, the guard, and that the right side's dtypes are known. */
void gen_check(struct rule *r);
/* The class of n's dtype, as far as the pattern `in` says it; NULL: it does not. The left side as
 * `in` always says it. */
const char *gen_class(struct rule *r, const struct node *n, const struct node *in);
bool gen_is_float(struct rule *r, const struct node *n);

/* rulegen_emit.c, rulegen_table.c */
void emit_matcher(FILE *f, struct rule *rule, int nrule, bool sets);
void emit_table(FILE *f, struct rule *rule, int nrule);
void emit_python(FILE *f, struct rule *rule, int nrule);

#endif
