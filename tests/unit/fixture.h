/* fixture.h - what the tests of the oracle share: arrays that plain loops work on, as inputs of
 * graphs and of linear programs, and what the evaluator makes of them.
 */
#ifndef TGC_TEST_FIXTURE_H
#define TGC_TEST_FIXTURE_H

#include "ir/eval.h"
#include "ir/oracle.h"

enum { MAX_LEAF = 256, NVAR = 16 };

struct fixture {
    struct tgc *t;
    const struct uop *leaf[MAX_LEAF];
    struct tensor *value[MAX_LEAF];
    int nleaf;
    int64_t var[NVAR];
    int nvar;
    int64_t budget;
    uint64_t seed;
};

/* An array with a shape, row-major: what the plain loops here work on. */
struct array { int ndim; int64_t dim[MAX_RANK], n; union scalar *v; };

#define DIMS(...)                                                                                  \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

/* A bug that no test expects. */
void stopped(struct fixture *f);
int setup(void **state);
int teardown(void **state);
/* A number below n, the same ones in every run. */
int64_t draw(struct fixture *f, int64_t n);

struct array array_new(struct fixture *f, int ndim, const int64_t *dim);
void unflatten(const struct array *a, int64_t flat, int64_t *at);
union scalar *element(const struct array *a, const int64_t *at);

/* n sizes as uops, in dim; the first of them */
struct uop *dims_of(struct fixture *f, const int64_t *v, int n, struct uop **dim);
struct uop *input_of(struct fixture *f, enum dtype d, const struct array *a);
/* A new input of small integers, which every sum and product here holds exactly. */
struct uop *input(struct fixture *f, enum dtype d, struct array *a, int ndim, const int64_t *dim);
/* A buffer of n elements that a linear program stores to. */
struct uop *output_of(struct fixture *f, enum dtype d, struct array *a, int64_t n);

bool try_eval(struct fixture *f, struct uop *u, struct tensor **x);
struct tensor *eval_one(struct fixture *f, struct uop *u);
void check_array(struct fixture *f, struct uop *u, const struct array *want);

#endif
