/* schedules.h - what the tests of schedules share: graphs of random values, which are evaluated
 * twice, as graphs by ir/eval.c and as a schedule's linear kernels, run step by step. Each kernel's
 * ASTs are run beside it, as lowered and as tiled, and read again from their text.
 */
#ifndef TGC_TEST_SCHEDULES_H
#define TGC_TEST_SCHEDULES_H

#include "frontend/library.h"
#include "ir/oracle.h"
#include "passes/passes.h"

enum { MAX_LEAF = 512 };

struct fixture {
    struct tgc *t;
    struct lib l;
    struct graph g;
    struct uop *input[16];
    struct graph_output output[16];
    const struct uop *leaf[MAX_LEAF]; struct tensor *value[MAX_LEAF]; int nleaf;
    int64_t var[64];
    uint64_t seed;
    const struct schedule *schedule; /* shown if it is wrong */
    enum isa isa;                    /* whose kernels run */
    int nvariant;                    /* kernels that ran with vectors */
    int tile;                        /* Winograd's, for all convolutions that it suits; 0: none */
    int threads, nshared;            /* 0: one thread; kernels that threads shared */
    bool bands;                      /* wherever there can be some, not only where they pay */
    int nband;                       /* nests within bands */
    int ntwin;                       /* kernels that are like an earlier one */
    struct uop **lowered;            /* by kernel: its AST before it was tiled */
};

/* Whether TGC_CASES says so: "quick", as mutants ask for, or "all", as make check-all does. */
bool cases_are(const char *how);
int pick(struct fixture *f, int n);
struct fixture *fixture_new(uint64_t seed);
void fixture_free(struct fixture *f);
struct uop *make_input(struct fixture *f, enum dtype d, struct uop *const *dim, int ndim);
struct uop *make_inputi(struct fixture *f, enum dtype d, int n, const int *size);
struct uop *make_weight(struct fixture *f, int n, const int *size);
void add_output(struct fixture *f, struct uop *u);
int check(struct fixture *f, bool noopt);
struct uop *onehot(struct fixture *f, enum dtype d, int first, struct uop *matrix);
struct uop *attention(struct fixture *f, int rows, int keys, struct uop *mask);
struct uop *digits(struct fixture *f, int columns, int rows, int size);
struct uop *case_digits(struct fixture *f);
struct uop *case_digits_rest(struct fixture *f);
struct tensor *value_of(struct fixture *f, struct buffer *b);
uint64_t next_random(struct fixture *f);
bool equal(const struct tensor *want, const struct tensor *got, double tolerance);
void show(struct fixture *f, bool noopt);
int64_t extent(const struct fixture *f, const struct uop *d);

#define INPUT(f, ...)                                                                              \
    make_inputi((f), DTYPE_F32, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)),                 \
                (int[]){__VA_ARGS__})
#define WEIGHT(f, ...)                                                                             \
    make_weight((f), (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__})

#endif
