/* write.h - private to the writer of ONNX models: values, nodes, and what makes them of uops.
 *
 *      write.c              the graph in order, inputs, outputs, the file's messages
 *      write_value.c        nodes, constants, shapes
 *      write_name.c         names, once it is known what is used
 *      write_elementwise.c  elementwise ops, reductions
 *      write_move.c         movement ops
 *      write_index.c        INDEX and SCATTER
 *      write_contract.c     sums of products as MatMul, as Conv; pools
 *      write_loop.c         LOOP and IF
 *      write_idiom.c        softmax, sigmoid and others that have an operator of their own
 *
 * Every uop gets a value as if it were used. A pattern that reaches over several uops leaves those
 * between without a user, and what has none is dropped in the end.
 *
 * A RESHAPE makes no node: its value is its operand's, which has its own dimensions. Who needs a
 * uop's exact shape asks for it by write_exact(); elementwise ops broadcast what they find.
 */
#ifndef TGC_ONNX_WRITE_H
#define TGC_ONNX_WRITE_H

#include "frontend/onnx/onnx.h"

struct written_node;
struct written {
    enum dtype dtype;
    int ndim;
    struct uop *dim[MAX_RANK];
    struct written_node *node;      /* that makes it; NULL: an input or an initializer */
    const TensorProto *tensor;      /* an initializer; NULL: none */
    const char *name;               /* the model's, or what the writer says; NULL: not yet */
    const struct uop *of;           /* the uop for which it was made; NULL: none */
    struct written *form;           /* the same elements with other dimensions; a list from the
                                     * first one on */
    struct written *first;          /* of that list */
    int region;                     /* the loop in which it is computed, from 1 on; 0: none */
    bool used;
};
enum { NODE_INPUTS = 6 };
struct written_node {
    const char *type;
    struct written **in;
    int nin;
    struct written *out;
    /* Loop: its other results; the body's inputs and results, and its region */
    struct written **also, **body_in, **body_out;
    int nalso, nbody_in, nbody_out, body;
    AttributeProto **attribute;
    int nattribute;
    size_t cap_attribute;
};
struct onnx_writer {
    struct tgc *t;
    const struct graph *g;
    struct uop **order;
    int norder;
    struct uop_map value, used_by_others;
    struct written_node **node;
    int nnode;
    size_t cap_node;
    struct written **constant;      /* initializers, weights among them */
    int nconstant;
    size_t cap_constant;
    struct dict constant_by_text;
    /* in: the counter, the condition and the carried values inside of it; around: the
     * region of the loop itself */
    struct written_loop {
        const struct loop *loop;
        int depth, around;
        struct written **in;
    } *loop;
    int nloop;
    const struct uop *now;          /* the uop whose nodes are made */
    bool (*elementwise)(struct onnx_writer *w, struct uop *u); /* for sizes that are computed */
    /* a symbol that no input has as a dimension, and its value, which must not be used */
    const struct uop *unsourced_symbol;
    struct written *unsourced;
};

/* -------------------------------------------------------------------------------- write_value.c */

/* What cannot be written: `what` says why, and what to do. Returns false. */
bool write_refuse(struct onnx_writer *w, const struct uop *u, const char *what);
/* The dtype in which ONNX's arithmetic, as runtimes have it, computes what is of dtype d. */
enum dtype write_working(enum dtype d);
/* Is `a` computed in a loop inside of that of b? */
bool write_is_deeper(const struct onnx_writer *w, int a, int b);
/* The loop of a counter or a carried value, by index; and its value inside. */
int write_loop_of(const struct onnx_writer *w, const struct uop *u);
struct written *write_inside(struct onnx_writer *w, const struct uop *u);
/* The value of a uop that comes before, in whatever shape it is. */
struct written *write_value(struct onnx_writer *w, struct uop *u);
void write_set(struct onnx_writer *w, const struct uop *u, struct written *v);
/* Its value in the uop's own shape. */
struct written *write_exact(struct onnx_writer *w, struct uop *u);
/* The same elements with these dimensions, row-major. */
struct written *write_reshaped(struct onnx_writer *w, struct written *v, struct uop *const *dim,
                               int ndim);
/* Have both the same sizes but for those that are 1? Then each is a reshape of the other. */
bool write_same_but_ones(struct uop *const *a, int na, struct uop *const *b, int nb);
bool write_same_dims(struct uop *const *a, int na, struct uop *const *b, int nb);

/* A node with one output of this dtype and these dimensions. */
struct written *write_node(struct onnx_writer *w, const char *type, enum dtype d,
                           struct uop *const *dim, int ndim, struct written *const *in, int nin);
/* A node with the dtype and the dimensions of its operand. */
struct written *write_unary(struct onnx_writer *w, const char *type, struct written *x);
/* Broadcasts; the dtype is x's. */
struct written *write_binary(struct onnx_writer *w, const char *type, struct written *x,
                             struct written *y);
/* The same, of bools. */
struct written *write_compare(struct onnx_writer *w, const char *type, struct written *x,
                              struct written *y);
struct written *write_where(struct onnx_writer *w, struct written *c, struct written *x,
                            struct written *y);
void write_int(struct onnx_writer *w, struct written *v, const char *name, int64_t i);
void write_ints(struct onnx_writer *w, struct written *v, const char *name, const int64_t *i,
                int n);
void write_string(struct onnx_writer *w, struct written *v, const char *name, const char *s);
void write_float(struct onnx_writer *w, struct written *v, const char *name, float f);
void write_graph(struct onnx_writer *w, struct written *v, const char *name, GraphProto *g);
/* x as dtype d: itself, or a Cast. */
struct written *write_as(struct onnx_writer *w, struct written *x, enum dtype d);
/* Broadcast dimensions of two values; false: they do not fit together. */
bool write_broadcast(const struct written *x, const struct written *y, struct uop **dim, int *ndim);

struct written *write_scalar(struct onnx_writer *w, enum dtype d, union scalar v);
struct written *write_scalar_int(struct onnx_writer *w, enum dtype d, int64_t v);
struct written *write_vector(struct onnx_writer *w, const int64_t *v, int n);
/* An initializer of these elements. */
struct written *write_tensor(struct onnx_writer *w, enum dtype d, const int64_t *dim, int ndim,
                             const void *data, size_t nbytes);
struct written *write_weight(struct onnx_writer *w, const struct buffer *b);
/* Sizes as an i64 vector, of constants or of what a run knows. */
struct written *write_sizes(struct onnx_writer *w, struct uop *const *dim, int n);
/* One size, as a tensor of one element. */
struct written *write_size(struct onnx_writer *w, struct uop *u);

/* ------------------------------------------------------------------------- the files of the ops */

/* Each makes the value of w->now. false: a diagnostic. */
bool write_elementwise(struct onnx_writer *w, struct uop *u);
bool write_reduce(struct onnx_writer *w, struct uop *u);
bool write_movement(struct onnx_writer *w, struct uop *u);
bool write_index(struct onnx_writer *w, struct uop *u);
bool write_scatter(struct onnx_writer *w, struct uop *u);
/* Each: false if u is none, and has no value then. */
bool write_contraction(struct onnx_writer *w, struct uop *u);
bool write_idiom(struct onnx_writer *w, struct uop *u);

/* write_loop.c: the graph's loops, with what is known inside of them; false: a diagnostic. */
bool write_find_loops(struct onnx_writer *w);
/* LOOP; GET of it or of an IF. */
bool write_loop(struct onnx_writer *w, struct uop *u);
bool write_get(struct onnx_writer *w, struct uop *u);
/* --------------------------------------------------------------------------------- write_name.c */

/* Notes what outputs need, and gives names to that. output: each made by a node of its own. false:
 * a diagnostic. */
bool write_names(struct onnx_writer *w, struct written *const *output);

#endif
