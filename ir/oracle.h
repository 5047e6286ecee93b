/* oracle.h - the interpreter (eval.c and eval_*.c): passes compute constants by it, and tests
 * judge by it what was compiled.
 *
 * Graph uops: floats in double (rounded to the dtype after each op where that is narrower than f32;
 * f32 stays in double), integers exactly. Independent of views, rules and lowering.
 */
#ifndef TGC_ORACLE_H
#define TGC_ORACLE_H

#include "ir/ir.h"

struct tensor {
    enum dtype dtype;
    int ndim;
    int64_t dim[MAX_RANK];
    int64_t nelem;
    void *data; /* double[] for floats, int64_t[] otherwise */
};
/* Which part wrote and read an element: part + 1; 0: none; reader -1: several. */
struct touched { int writer, reader, write_phase, read_phase; };
/* An element that one thread writes and another one accesses; buffer NULL: no race. By part, and by
 * thread of a block in one phase, which is the code between two barriers; -1: several. */
struct race { const struct buffer *buffer; int64_t element; int part[2], thread[2]; };
struct eval_env {
    const struct uop **leaf; struct tensor **value; int n;        /* BUFFER uops -> values */
    const int64_t *var; int nvar;                                  /* by var->id */
    /* element operations left; -1: no limit */
    int64_t budget;
    /* the graph's: they give symbols their values; pure checks run first, and one that fails ends
     * the evaluation */
    struct uop *const *host; int nhost;
    /* eval_linear(): the part of the shared loops to run, of `parts`; parts 0: all iterations */
    int part, parts;
    int block;                   /* eval_linear(): how many threads a block has; 0 as 1 */
    /* eval_linear(): NULL, or where the first race among all parts is noted. touched: what each
     * part has accessed of a leaf, [nelem], zeros before the first part; NULL for memory that each
     * part has for itself */
    struct race *race;
    struct touched **touch;
};
/* Values of roots, in fresh tensors. false: it depends on something not given, or exceeds the
 * budget (no diagnostic). */
bool eval_graph(struct tgc *t, struct uop *const *root, int nroot, const struct eval_env *env,
                struct tensor **result);
/* The value of one root as a weight stores it: rounded to its dtype, row-major, in data, which has
 * room for nelem elements. left: NULL, or receives what remains of the budget; an evaluation that
 * runs out of budget has done no more work than that. */
bool eval_store(struct tgc *t, struct uop *root, int64_t nelem, const struct eval_env *env,
                void *data, int64_t *left);
/* The values of one root, not rounded to its dtype, in value, which has room for nelem. */
bool eval_values(struct tgc *t, struct uop *root, int64_t nelem, const struct eval_env *env,
                 union scalar *value);
/* eval_kernel.c: runs a kernel's AST on buffers, store after store. */
bool eval_kernel(struct tgc *t, const struct uop *ast, const struct eval_env *env);
/* Runs a linear program on buffers. */
bool eval_linear(struct tgc *t, struct uop *const *u, int n, const struct eval_env *env);

#endif
