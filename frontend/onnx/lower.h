/* lower.h - the private header of the ONNX lowering: what a lowering function sees of its node, and
 * what it may call.
 *
 *      graph.c, inputs.c, border.c  walks nodes, subgraphs and functions; names -> values; symbols
 *      of dimensions; the options; sequences and optionals as inputs and outputs
 *      node.c, known.c    a node's inputs and attributes, read with checks; values known at compile
 *      time
 *      operators.def      one row an operator and opset range, with its lowering function
 *      lower_FAMILY.c     the lowering functions
 *
 * A lowering function reads n->in[], builds uops, sets n->out[] and returns true; or reports with
 * node_error() and returns false. What comes from the model is checked before a builder of ir/ sees
 * it: a builder's complaint is a bug of ours.
 */
#ifndef TGC_ONNX_LOWER_H
#define TGC_ONNX_LOWER_H

#include "frontend/library.h"
#include "frontend/onnx/onnx.h"
#include "ir/ir.h"

/* What a name of the model stands for. A sequence has as many items as are known at compile
 * time. */
enum value_kind { VALUE_TENSOR, VALUE_SEQUENCE, VALUE_OPTIONAL };
struct value {
    enum value_kind kind;
    struct uop *tensor;          /* TENSOR */
    struct value **item;         /* SEQUENCE; an OPTIONAL has one item or none */
    int nitem;
    enum dtype dtype;            /* SEQUENCE: of its tensors, VOID if not known (it is empty) */
};

enum { MIN_SLOTS = 16 };
struct lower;                    /* one model under way, see graph.c */
struct scope;                    /* names of one graph; looks into the enclosing one */
struct operator;

struct node {
    struct tgc *t;
    struct lib lib;              /* for the library: the compile and this node's place */
    struct place at;
    struct lower *lower;
    /* inside functions a copy whose attribute references are resolved */
    const NodeProto *proto;
    const struct operator *operator;
    struct scope *scope;
    /* the function call whose body this node is in, NULL at top level */
    const struct call *call;
    /* of the operator's domain, as the model or the function imports it */
    int opset;
    int nin, nout;               /* as written; trailing absent ones included */
    struct value **value_in;     /* NULL: absent */
    /* the tensors among them, NULL: absent or no tensor; has at least MIN_SLOTS entries */
    struct uop **in;
    struct uop **out;            /* to be set; has at least MIN_SLOTS entries */
    struct value **value_out;    /* to be set instead of out[] for sequences and optionals */
};

/* One call of a local function: where the attribute references in its body are resolved. */
struct call {
    const NodeProto *caller;
    const FunctionProto *function;
};

/* -------------------------------------------------------------------------------- operators.def */
typedef bool (*lowering)(struct node *n);
struct operator {
    const char *domain, *name;
    /* first and last opset of the domain that this row serves; until 0: all later ones */
    int since, until;
    lowering lower;
    /* for the lowering function: an enum op or a variant of its family */
    int param;
    int min_in, max_in;          /* inputs that must be there, and may; max -1: any number */
    /* kinds of the first input's dtype (see dtypes.def); S in front: takes sequences or optionals;
     * T: strings, in any input, t: in any but the first */
    const char *kinds;
    const char *limits;          /* what is not supported, for people; "" if nothing */
};
const struct operator*
    operator_find(const char *domain, const char *name, int opset, bool *known_elsewhere);
int operator_count(void);
const struct operator *operator_at(int i);

/* --------------------------------------------------------------------------------------- node.c */
/* Reports at the node, or at its input k if k >= 0; returns false. */
bool node_error(const struct node *n, int input, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Attributes, as onnx_attr_*(); references into a function call are already followed. */
/* VOID: not a type we know */
enum dtype node_dtype(const struct node *n, const char *name, enum dtype otherwise);
bool node_has(const struct node *n, const char *name);
int64_t node_int(const struct node *n, const char *name, int64_t otherwise);
double node_float(const struct node *n, const char *name, double otherwise);
const char *node_string(const struct node *n, const char *name, const char *otherwise);
/* -1: absent */
int node_ints(const struct node *n, const char *name, const int64_t **v);
int node_floats(const struct node *n, const char *name, const float **v);

int node_strings(const struct node *n, const char *name, const char *const **v);
/* A list of strings as a tensor of rank 1; empty if absent. */
struct uop *node_string_weight(const struct node *n, const char *name);

/* axis + rank if negative; error if it is out of -rank .. rank - 1. */
bool node_axis(const struct node *n, int64_t axis, int rank, int *result);
/* A set of axes from attribute `name`, or from input k where k >= 0; *given false and *mask 0 if
 * neither is there. */
bool node_axes(const struct node *n, const char *name, int k, int rank, uint32_t *mask,
               bool *given);

/* Integers that are known when the program is compiled, from constants and dimensions. elem[i] is
 * an INDEX scalar: a CONST, or an expression of symbols. Input k must have rank 0 or 1. Error if an
 * element depends on run-time data. */
bool node_known(const struct node *n, int k, struct uop ***elem, int *count);
/* of any rank and dtype, row-major */
bool node_elements(const struct node *n, int k, struct uop ***elem, int *count);
/* constants only */
bool node_known_ints(const struct node *n, int k, int64_t **v, int *count);
bool node_known_floats(const struct node *n, int k, double **v, int *count);
/* of one element */
bool node_known_int(const struct node *n, int k, int64_t *v);
/* no error */
bool node_is_known(const struct node *n, int k);
/* The only element of a tensor as a rank 0 tensor; NULL and an error at input k if it has
 * several. */
struct uop *node_scalar(const struct node *n, int k);

bool node_same_dtype(const struct node *n, int a, int b);
bool node_rank(const struct node *n, int k, int min, int max);
/* Output k is u; false if u is NULL: the library has reported then. */
bool node_set(struct node *n, int k, struct uop *u);
/* "f32[1, n, 3]" */
const char *shape_text(const struct node *n, const struct uop *x);
/* x at position i of an axis, without that axis. */
struct uop *node_slice_at(const struct node *n, struct uop *x, int axis, struct uop *i);
/* i64[n] of INDEX scalars */
struct uop *index_vector(struct tgc *t, struct uop *const *elem, int n);

/* -------------------------------------------------------------------------------------- known.c */
/* A known integer scalar of any dtype as an INDEX scalar, computed without the detours through i32
 * and floats where bounds allow it. */
struct uop *known_index(struct tgc *t, struct uop *e);

/* -------------------------------------------------------------------------------------- graph.c */
struct onnx_model *lower_model(const struct lower *l);
struct value *value_tensor(struct tgc *t, struct uop *u);
struct value *value_sequence(struct tgc *t, struct value *const *item, int nitem, enum dtype dtype);
struct value *value_optional(struct tgc *t, struct value *item);          /* NULL: absent */
/* An attribute's tensor as a constant; NULL: reported. */
struct uop *lower_tensor(const struct node *n, const char *attribute, const TensorProto *p);
struct uop *lower_sparse_tensor(const struct node *n, const char *attribute,
                                const SparseTensorProto *p);
/* Lowers a graph attribute of n with `nargs` values for its inputs; results in out[] as many as the
 * graph has outputs. needs: nargs equal to the graph's inputs. */
bool lower_subgraph(const struct node *n, const GraphProto *g, struct value *const *args, int nargs,
                    struct value **out);

/* x with the inputs whose values the caller told replaced by those values; x itself if it depends
 * on none. */
struct uop *lower_assume(struct lower *l, struct uop *x);
/* An attempt that may fail without failing the compile: begin, try, and where it failed undo. The
 * message is that of its first error. */
struct attempt { int ndiag, nerror, depth; };
struct attempt attempt_begin(const struct node *n);
const char *attempt_undo(const struct node *n, struct attempt a);
/* Something was refused that a run could do: values that only the run knows. It must not pass for a
 * mistake of the model. */
void lower_note_limit(struct lower *l);
bool lower_hit_limit(const struct lower *l);

/* --------------------------------------------- shared by graph.c, inputs.c and operators.c only */
struct scope_entry { const char *name; struct value *value; };
struct scope {
    const struct scope *parent;
    struct scope_entry *entry;   /* open addressing; power of two */
    size_t cap, n;
};

/* A dimension that the model leaves open; dim NULL: nothing bounds it yet. */
struct symbol { const char *name; struct uop *dim; const char *input; int axis; };

struct told_input { struct uop *input, *value; bool used; };

struct lower {
    struct tgc *t;
    struct onnx_model *model;
    const struct onnx_graph_options *options;
    struct symbol *symbol; int nsymbol; size_t cap_symbol;
    struct var **var; int nvar; size_t cap_var;
    struct told_input *told; int ntold; size_t cap_told;
    int depth, nnode;
    bool hinted, limit;
};

/* border.c: a graph input as the tensors that stand for it, and the way back. */
struct border_input {
    const char *name;
    ValueInfoProto **tensor; int count;
    bool is_optional, is_sequence, is_absent;
    enum dtype dtype;            /* of a sequence's tensors */
};
bool border_open(struct lower *l, ValueInfoProto *in, struct border_input *b);
struct value *border_value(struct tgc *t, const struct border_input *b, struct uop *const *x);
/* The graph's outputs into `out`. */
bool border_outputs(struct lower *l, const struct scope *s, const GraphProto *g, struct graph *out);

void scope_set(struct tgc *t, struct scope *s, const char *name, struct value *v);
/* NULL for "" and for a function's parameter that its caller left out. */
struct value *scope_get(const struct scope *s, const char *name);
bool lower_initializers(struct lower *l, struct scope *s, const GraphProto *g);
bool lower_inputs(struct lower *l, struct scope *s, const GraphProto *g, struct graph *out);
void lower_report_assumptions(struct lower *l);
/* Every node of the model, subgraphs and called functions included: reports all operators that no
 * row serves. */
bool lower_check_operators(struct lower *l);
const char *operator_domain(const char *domain);                 /* "ai.onnx" is "" */
/* opens the quote; the caller closes it */
void shell_quote(struct text *x, const char *s);

/* ------------------------------------------------------------------------------- lower_FAMILY.c */
/* Where each element of x stands among the keys, `count` where it is none of them. keys: int64_t,
 * double or const char *, as x is. */
struct uop *node_find(const struct node *n, struct uop *x, const void *keys, int64_t count);
enum optimizer { OPTIMIZER_ADAGRAD, OPTIMIZER_ADAM, OPTIMIZER_MOMENTUM };
bool window_attributes(const struct node *n, const struct uop *x, struct window_attr *a);
bool rnn_attributes(const struct node *n, enum rnn_kind kind, struct rnn_attr *a);
bool quantize_dynamically(const struct node *n, struct uop *x, struct uop **y, struct uop **scale,
                          struct uop **zero);
#define OPERATOR(domain, name, since, until, function, param, min_in, max_in, kinds, limits) bool function(struct node *n);
#include "frontend/onnx/operators.def"
#undef OPERATOR

#endif
