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
int gen_type(struct rule *r, int type); /* representative of a dtype variable */
struct node *gen_new(enum node_kind kind, const char *at);
const char *gen_guard_args(const char *name); /* NULL: not a guard function */

/* rulegen_emit.c */
void emit_matcher(FILE *f, struct rule *rule, int nrule);
void emit_table(FILE *f, struct rule *rule, int nrule);
void emit_python(FILE *f, struct rule *rule, int nrule);

#endif
