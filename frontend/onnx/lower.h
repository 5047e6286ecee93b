/* lower.h - the private header of the ONNX lowering: what a lowering function sees of its node, and
 * what it may call.
 *
 *      scope.c            names and values, messages, attempts: all others stand on it
 *      graph.c, inputs.c, border.c  walks nodes, subgraphs and functions; names -> values; symbols
 *      of dimensions; the options; sequences and optionals as inputs and outputs
 *      node.c, known.c    a node's inputs and attributes, read with checks; values known at compile
 *      time
 *      operators.def      one row an operator and opset range, with its lowering function
 *      schemas.def        its signatures: inputs, outputs, attributes
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

/* The kind of value of a name in the model. A sequence has a number of items that is known at
 * compile time. */
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
struct schema;

struct node {
    struct tgc *t;
    struct lib lib;              /* for the library: the compile and this node's place */
    struct place at;
    struct lower *lower;
    /* inside functions a copy whose attribute references are resolved */
    const NodeProto *proto;
    const struct operator *operator;
    const struct schema *schema;
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

/* A call of a local function, with which attribute references in its body are resolved. */
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
    /* kinds of the first input's dtype (see dtypes.def); S in front: takes sequences or optionals;
     * T: strings, in any input, t: in any but the first */
    const char *kinds;
    const char *limits;          /* what is not supported, for people; "" if nothing */
};
const struct operator*
    operator_find(const char *domain, const char *name, int opset, bool *known_elsewhere);
int operator_count(void);
const struct operator *operator_at(int i);
/* Whether it has a gradient: "yes", "zero" (it has steps), "no", "part"; "": not measured, or it has
 * no floats. */
const char *operator_gradient(const struct operator *op);

/* --------------------------------------------------------------------------------- schemas.def */
/* An operator's signature, in the notation of schemas.def. */
struct schema {
    const char *domain, *name;
    int since, until;
    const char *inputs, *outputs, *attributes;
};
const char *operator_domain(const char *domain);                 /* "ai.onnx" is "" */
/* NULL: no such operator at that version */
const struct schema *schema_find(const char *domain, const char *name, int opset);
/* Checks a node against its operator's schema: attributes and their types, required ones, numbers
 * of inputs and outputs. false: reported, with all that is wrong. */
bool schema_check_attributes(const struct onnx_model *m, const NodeProto *p, const struct schema *s,
                             int opset);
bool schema_check_counts(const struct onnx_model *m, const NodeProto *p, const struct schema *s,
                         int opset);
/* Every required input of the node has a value. */
bool schema_check_presence(const struct node *n, const struct schema *s);

/* --------------------------------------------------------------------------------------- node.c */
/* Attributes, as onnx_attr_*(); references into a function call are already followed. */
/* VOID: not a type we know */
enum dtype node_dtype(const struct node *n, const char *name, enum dtype otherwise);
bool node_has(const struct node *n, const char *name);
int64_t node_int(const struct node *n, const char *name, int64_t otherwise);
/* The same from least to most, which int holds; else an error. */
bool node_int_within(const struct node *n, const char *name, int64_t otherwise, int64_t least,
                     int64_t most, int *v);
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
/* The same, where an element that depends on run-time data becomes a symbol, at least 0, that the
 * run reads; see node_symbol(). */
bool node_symbols(const struct node *n, int k, struct uop ***elem, int *count);
/* The same, where an element that depends on run-time data is an i64 scalar that reads it: not a
 * dimension until node_symbol() makes it one. */
bool node_integers(const struct node *n, int k, struct uop ***elem, int *count);
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
/* Likewise; but a weight, which may have a gradient, is not replaced by its value. */
struct uop *node_variable(const struct node *n, int k);

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

/* ------------------------------------------------------------------------------------ runtime.c */
/* What only the run knows. The integer scalar e (which may read memory) as a dimension or a
 * position: e itself if it is known or an expression of symbols; a constant if the model or an
 * option gives its value (the run checks it); otherwise a symbol that a host step reads and checks.
 * At least lo, at most hi (an INDEX scalar; NULL: the model or an option must bound it). NULL:
 * reported, at input k. */
struct uop *node_symbol(const struct node *n, int k, struct uop *e, const char *name, int64_t lo,
                        struct uop *hi);
/* A symbol that a host call of the caller sets, at most `most`, with bounds min and max. NULL:
 * reported. */
struct var *node_count_symbol(const struct node *n, const char *name, int64_t most);
/* names for them: an element of input k, a dimension of output k */
const char *node_input_name(const struct node *n, int k, int64_t i, int64_t count);
const char *node_output_dim_name(const struct node *n, int k, int axis);
/* e as an INDEX scalar, with the symbols for what was found before */
struct uop *node_found(const struct node *n, struct uop *e);
/* element i (row-major) of x, whose shape is known, as a scalar */
struct uop *node_element(const struct node *n, struct uop *x, int64_t i);
/* cond, a bool tensor, has to be true everywhere: otherwise a status at run time, or an error now
 * (`rule`, at input k) if it is known to be false. */
bool node_require(const struct node *n, int k, struct uop *cond, const char *rule);
/* Likewise, of a condition that no size depends on: the status may come when all is computed. */
bool node_expect(const struct node *n, int k, struct uop *cond, const char *rule);
/* -dim <= index < dim everywhere. expect: of coordinates of INDEX or SCATTER, which stay within
 * tensors. require: of numbers that sizes depend on. */
bool node_expect_index(const struct node *n, int k, struct uop *index, struct uop *dim);
bool node_require_index(const struct node *n, int k, struct uop *index, struct uop *dim);
/* the AND of all elements */
struct uop *node_all(const struct node *n, struct uop *cond);
/* Takes the conditions since there were `mark` of them off the list, as one bool scalar, CONST true
 * if there are none. */
struct uop *lower_take_checks(struct lower *l, int mark);
/* The declared size of a name of g, or of output k of n; -1: none, or not fixed. */
int64_t lower_declared_dim(const GraphProto *g, const char *name, int axis);
int64_t node_declared_dim(const struct node *n, int k, int axis);
/* Output k will have these dimensions: learns the values of their symbols from its declaration.
 * true: something new was learned, and the model will be lowered again; any value will do for
 * now. */
bool node_learn_shape(const struct node *n, int k, struct uop *const *dim, int ndim);
/* The upper bound of a dimension of output k known only at run time: by an option or a
 * declaration, or `most` if that is a bound; -1: reported. */
int64_t node_bound(const struct node *n, int k, int axis, int64_t most);
/* Whether the value of u may change from one iteration of the loop to the next. */
bool lower_depends_on(struct lower *l, struct uop *u, const struct loop *loop);
/* Whether u may be output k, as far as its shape is declared. */
bool lower_fits_declared(const struct node *n, int k, const struct uop *u);

/* -------------------------------------------------------------------------------------- cases.c */
/* out[k] = then[k] if the bool scalar cond holds, else other[k]; only one of them is computed.
 * Shapes may differ: the result has the chosen one's. */
bool node_choose(const struct node *n, struct uop *cond, struct uop *const *then,
                 struct uop *const *other, int count, struct uop **out);
/* the corner of x with these dimensions */
struct uop *node_out_of_box(const struct node *n, struct uop *x, struct uop *const *dim);
/* Whether input k is a short list of integers known only at run time. */
bool node_is_open(const struct node *n, int k);
/* Lowers n by its own lowering function for every set of axes that input k may hold, for a tensor
 * of that rank, and chooses between the results. */
bool lower_by_cases(struct node *n, int k, int rank);

/* -------------------------------------------------------------------------------------- known.c */
/* A known integer scalar of any dtype as an INDEX scalar, computed without i32 and floats in
 * between where bounds allow it. */
struct uop *known_index(struct tgc *t, struct uop *e);

/* -------------------------------------------------------------------------------------- scope.c */
struct onnx_model *lower_model(const struct lower *l);
/* Reports at the node, or at its input k if k >= 0; returns false. */
bool node_error(const struct node *n, int input, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
struct value *value_tensor(struct tgc *t, struct uop *u);
struct value *value_sequence(struct tgc *t, struct value *const *item, int nitem, enum dtype dtype);
struct value *value_optional(struct tgc *t, struct value *item);          /* NULL: absent */
/* inputs.c: an input of the model that --state makes of an output */
bool lower_is_state(const struct lower *l, const char *name);
/* An attribute's tensor as a constant; NULL: reported. */
struct uop *lower_tensor(const struct node *n, const char *attribute, const TensorProto *p);
struct uop *lower_sparse_tensor(const struct node *n, const char *attribute,
                                const SparseTensorProto *p);
/* Lowers a graph attribute of n with `nargs` values for its inputs. out[]: a result for each of the
 * graph's outputs. needs: nargs equal to the graph's inputs. */
bool lower_subgraph(const struct node *n, const GraphProto *g, struct value *const *args, int nargs,
                    struct value **out);

/* x with inputs replaced by the values that the caller gave for them; x itself if it depends on
 * none. */
struct uop *lower_assume(struct lower *l, struct uop *x);
/* An attempt that may fail without failing the compile: begin, try, and undo after a failure, with
 * the message of its first error. */
struct attempt { int ndiag, nerror, depth, ncheck; };
struct attempt attempt_begin(const struct node *n);
const char *attempt_undo(const struct node *n, struct attempt a);
/* Something was refused that the run could do with values that only it knows. It must not be
 * reported as a mistake of the model. */
bool lower_same_shape(struct tgc *t, const struct uop *a, const struct uop *b);
/* An attribute that must be there. */
const GraphProto *node_graph(const struct node *n, const char *name);
void lower_note_limit(struct lower *l);
bool lower_hit_limit(const struct lower *l);

/* --------------------------------------------- shared by graph.c, inputs.c and operators.c only */
struct scope {
    const struct scope *parent;
    const GraphProto *graph;     /* where its names are declared; NULL: a function's body */
    struct dict value;            /* name: struct value, NULL where a caller left it out */
};

/* A dimension that the model leaves open; dim NULL: nothing bounds it yet. */
struct symbol { const char *name; struct uop *dim; const char *input; int axis; };

struct told_input { struct uop *input, *value; bool used; };

/* What a declaration of the model says of a symbol that the run finds: its value (min .. max), that
 * it equals a dimension of an input, or a name. Outlives the lowering that found it. */
enum fact_kind { FACT_VALUE, FACT_SAME, FACT_ALIAS };
struct fact { const char *name; enum fact_kind kind; int64_t min, max; const char *dim; };
struct fact_list { struct fact *v; int n; size_t cap; };
/* A symbol that the run finds, and the scalar from which it is read. open: nothing bounds it
 * yet. */
struct found {
    struct uop *e, *hi, *symbol;
    int64_t lo;
    const char *stem, *name;
    bool open;
    struct place at;
};

/* A condition that has to hold. is_late: whatever it is, the rest of the run stays within its
 * tensors, so it may be looked at when all is computed. */
struct check { struct uop *cond; bool is_late; };

struct lower {
    struct tgc *t;
    struct onnx_model *model;
    const struct onnx_graph_options *options;
    struct symbol *symbol; int nsymbol; size_t cap_symbol;
    struct var **var; int nvar; size_t cap_var;
    struct told_input *told; int ntold; size_t cap_told;
    int depth, nnode;
    int nchwc_block;             /* lower_microsoft_nchwc.c: as the model shows it; 0: not looked */
    const struct node *node;     /* that is being lowered */
    bool hinted, limit;
    struct uop **host; int nhost; size_t cap_host;
    struct check *check; int ncheck; size_t cap_check;   /* of the block that is being lowered */
    uint64_t *warned; int nwarned; size_t cap_warned;    /* sets of var[]; agree.c */
    struct found *found; int nfound; size_t cap_found;
    struct fact_list *facts;
    bool learned;                /* a fact that was not known when this lowering began */
    bool *option_used;           /* by position in options->dim */
    /* graph.c: what lower_subgraph() does */
    bool (*subgraph)(const struct node *n, const GraphProto *g, struct value *const *args,
                     int nargs, struct value **out);
    /* onnx_lower() */
    struct graph *(*again)(struct tgc *t, struct onnx_model *m,
                           const struct onnx_graph_options *options);
};

/* border.c: a graph input as the tensors that represent it, and the way back. */
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
/* inner.c: those that the options ask for besides. */
bool inner_outputs(struct lower *l, const struct scope *top, const GraphProto *g,
                   struct graph *out);

void scope_set(struct tgc *t, struct scope *s, const char *name, struct value *v);
/* NULL for "" and for a parameter of a function that its caller left out. */
struct value *scope_get(const struct scope *s, const char *name);
bool lower_initializers(struct lower *l, struct scope *s, const GraphProto *g);
bool lower_inputs(struct lower *l, struct scope *s, const GraphProto *g, struct graph *out);
void lower_report_assumptions(struct lower *l);
/* The dimension of an input to which the model or an option gives this name; NULL: none. */
struct uop *lower_dim_named(const struct lower *l, const char *name);
bool lower_check_dim_options(struct lower *l);
/* agree.c: the agree hook, with the struct lower */
enum agreement lower_agree(struct tgc *t, void *ctx, struct uop *a, struct uop *b, int stretch);
/* runtime.c: learns from the declared shape of output `name` of a node, u */
void lower_learn(struct lower *l, const struct scope *s, const char *name, const struct uop *u);
void lower_add_host(struct lower *l, struct uop *host);
void lower_emit_checks(struct lower *l);
/* Host calls into the graph; an error if something needed has no bound. */
bool lower_close_found(struct lower *l, struct graph *g);
void lower_hint_found(struct lower *l);
/* Checks every node of the model, subgraphs and called functions included: reports all operators
 * without a row, and nodes that do not match their operator's schema. */
bool lower_check_operators(struct lower *l);
/* suggest.c: values of --dim that were tried, for l->symbol[i] where wanted[i]; NULL: none works,
 * and `why` the last one does not. */
struct suggestion { const char *fixed, *bound, *why; };
struct suggestion lower_suggest(struct lower *l, const bool *wanted);
/* A note with other sizes than the --dim that are given, with which the model failed. */
void lower_suggest_others(struct lower *l);

/* ------------------------------------------------------------------------------- lower_custom.c */
/* What a library defines for the node; NULL: nothing. */
struct custom;
const struct custom *lower_find_custom(const struct lower *l, const NodeProto *p);
bool lower_custom(struct node *n, const struct custom *custom);

/* ------------------------------------------------------------------------------- lower_FAMILY.c */
/* The position of each element of x among the keys, `count` if it is none of them. keys: int64_t,
 * double or const char *, as x is. */
struct uop *node_find(const struct node *n, struct uop *x, const void *keys, int64_t count);
/* Numbers to strings, and back: a run that reads an invalid number returns a status. */
struct uop *node_to_string(const struct node *n, struct uop *x);
struct uop *node_from_string(const struct node *n, enum dtype to, struct uop *x);
enum onnx_optimizer { ONNX_ADAGRAD, ONNX_ADAM, ONNX_MOMENTUM };
/* mode, coordinates, rounding and their parameters, of the node's attributes. */
bool resize_modes(const struct node *n, struct resize_attr *a);
/* Input 0 through a pool with the node's attributes. */
bool lower_pool_of(struct node *n, enum pool_kind kind);
bool window_attributes(const struct node *n, const struct uop *x, struct window_attr *a);
/* q k^T of each head [b, h, l, s], k's heads repeated, times scale, bounded by softcap unless 0. */
struct uop *attention_products(const struct node *n, struct uop *q, struct uop *k, double scale,
                               double softcap);
/* [b, s, h * e] -> [b, h, s, e], of input k or made from it, and back; NULL stays. */
struct uop *heads_unpack(const struct node *n, int k, struct uop *x, int64_t heads);
struct uop *heads_pack(const struct node *n, struct uop *x);
/* as ONNX writes it: "LeakyRelu" */
bool activation_by_name(const char *name, enum activation *a);
bool rnn_attributes(const struct node *n, enum rnn_kind kind, struct rnn_attr *a);
/* x as one of the 8-bit floats, with values beyond the largest number as infinity or NaN. */
struct uop *cast_without_saturation(const struct node *n, enum dtype to, struct uop *x);
/* saturate(round(x) + zero) as an integer of dtype d. zero: of dtype d, or NULL. x in a wide
 * float. */
struct uop *quantized(const struct node *n, struct uop *x, struct uop *zero, enum dtype d);
/* x - zero in i32. zero: a scalar, or a value for each index along `axis` of x; NULL: 0. */
struct uop *quantized_centered(const struct node *n, struct uop *x, struct uop *zero, int axis);
/* x [.., i] times quantized weights [i, j]: x becomes u8 by its own range, the sum is exact in i32,
 * then scaled. */
struct uop *quantized_product(const struct node *n, struct uop *x, struct uop *w,
                              struct uop *w_scale, struct uop *w_zero);
bool quantize_dynamically(const struct node *n, struct uop *x, struct uop **y, struct uop **scale,
                          struct uop **zero);
#define OPERATOR(domain, name, since, until, function, param, kinds, limits)                       \
    bool function(struct node *n);
#include "frontend/onnx/operators.def"
#undef OPERATOR

#endif
