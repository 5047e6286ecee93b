/* opts.h - OptOps: what is done to a kernel's loops between lowering and linearization. Passes
 * choose them, opt_apply() does them, and a kernel keeps those that it was made by. */
#ifndef TGC_OPTS_H
#define TGC_OPTS_H

#include "ir/ir.h"

enum opt_op {
#define OPT(name, text, fields) OPT_##name,
#include "passes/opts.def"
    OPT_COUNT
};
/* The loops that an opt is about: of a store, of the STAGE or of the REDUCE number `number` of
 * those that the store is made of. */
enum opt_of { OF_STORE, OF_STAGE, OF_SUM };
/* opts.def says what the fields of each are; the others are 0. */
struct opt {
    enum opt_op op;
    int store;                   /* of the AST */
    enum opt_of of;
    int number;
    int axis;
    int64_t n, from;
    int to;
    int operand;                 /* PACK: which load of the sum's, sources first */
    enum space space;            /* PACK, STAGE: of the copy, of the sums */
    enum axis kind;              /* LANES: of the lane */
    bool column;                 /* LANES: it runs along a tile's columns, not its rows */
    enum matrix_unit by;         /* MATRIX: a row of ir/matrix.def */
    enum transfer how;           /* PIPELINE: a row of ir/transfers.def */
};
struct opts { struct opt *v; int n; size_t cap; };

struct kernel;
struct variant;
/* Does these opts, one after the other, to the AST of the variant, or of the kernel if that is
 * NULL, and notes them there. false: one of them is not legal, *why says for what reason, and
 * nothing is changed. Substitutions of neighbours are done at once, so a list costs less than its
 * opts alone. needs: a verified AST, not linearized. breaks: the kernel's list of buffers. */
bool opt_apply(struct tgc *t, struct kernel *k, struct variant *v, const struct opt *opt, int n,
               const char **why);
/* The same of what has been chosen because it is legal. */
void opt_must(struct tgc *t, struct kernel *k, struct variant *v, const struct opt *opt, int n);
/* How many of the store's uops of the part's op come before it, sources first: `number`. */
int opt_number(struct tgc *t, struct uop *store, const struct uop *part);

/* opts_text.c: one opt as text, `lanes 0 axis=2 n=16 kind=vector as=column`, without a newline. */
void opt_print(struct text *out, const struct opt *o);
/* A text of opts, one a line, or several with `;` between; `#` begins a remark. line: the number of
 * its first one. false: a diagnostic says where it is wrong. */
bool opts_read(struct tgc *t, const char *file, int line, const char *bytes, size_t nbytes,
               struct opts *list);
bool opts_are_equal(const struct opts *a, const struct opts *b);

#endif
