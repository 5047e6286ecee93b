/* opts.h - OptOps: what is done to a kernel's loops between lowering and linearization. Passes
 * choose opts, opt_apply() applies them, and a kernel keeps the list that made it. */
#ifndef TGC_OPTS_H
#define TGC_OPTS_H

#include "ir/ir.h"

enum opt_op {
#define OPT(name, text, fields, does) OPT_##name,
#include "passes/opts.def"
    OPT_COUNT
};
/* Whose loops an opt changes: the store's, or those of the STAGE or REDUCE number `number` under
 * it. */
enum opt_of { OF_STORE, OF_STAGE, OF_SUM };
/* opts.def lists the fields that each opt uses; the others are 0. */
struct opt {
    enum opt_op op;
    int store;                   /* number of the store in the AST */
    enum opt_of of;
    int number;
    int axis;
    int64_t n, from;
    int to;
    int operand;             /* which load of the sum, sources first */
    enum space space;            /* PACK, STAGE: where the copy or the sums are kept */
    enum axis kind;              /* LANES: the kind of lane */
    bool column;                 /* LANES: along a tile's columns, not its rows */
    enum matrix_unit by;         /* MMA and its layouts: a row of ir/matrix.def */
    enum transfer how;           /* PIPELINE: a row of ir/transfers.def */
};
struct opts { struct opt *v; int n; size_t cap; };

struct kernel;
struct variant;
/* Why a list of opts is not legal. op: of the one that was refused; OPT_COUNT: the list as a
 * whole. */
struct refusal { enum opt_op op; const char *why; };
/* Applies the opts in order to the AST of the variant, or of the kernel if v is NULL, and appends
 * them to its list. false: they are not legal; *refusal says why, and nothing has changed.
 * Neighbouring opts of one nest are one substitution, so a list costs less than its opts one by
 * one. needs: a verified AST, not linearized. breaks: the kernel's list of buffers. */
bool opt_apply(struct tgc *t, struct kernel *k, struct variant *v, const struct opt *opt, int n,
               struct refusal *refusal);
/* Applies opts that are known to be legal; a refusal is a bug of tgc. */
void opt_must(struct tgc *t, struct kernel *k, struct variant *v, const struct opt *opt, int n);
/* The `number` of a part: how many uops of its op the store has before it, sources first. */
int opt_number(struct tgc *t, struct uop *store, const struct uop *part);

/* opts_text.c: one opt as text, `lanes 0 axis=2 n=16 kind=vector as=column`, without a newline. */
void opt_print(struct text *out, const struct opt *o);
/* Its first word there, and a sentence that says what it does. */
const char *opt_name(enum opt_op op);
const char *opt_does(enum opt_op op);
/* Reads opts from text: one a line, or several separated by `;`; `#` begins a comment. line: the
 * number of the first line. false: a diagnostic says where the text is wrong. */
bool opts_read(struct tgc *t, const char *file, int line, const char *bytes, size_t nbytes,
               struct opts *list);
bool opts_are_equal(const struct opts *a, const struct opts *b);

#endif
