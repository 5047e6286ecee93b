/* onnx.h - the ONNX frontend's loader: from bytes of unknown origin to a checked, unpacked model.
 *
 *      file, stdin --wire.c: scan--> --protobuf-c: unpack--> ModelProto
 *                  --check.c: structure--> struct onnx_model
 *                  --graph.c, operators.def, lower_*.c: lowering--> struct graph
 *
 * What a loaded model promises (so that lowering need not look again):
 *   - there is a graph; ir_version and every opset import are present and sane; each node's domain
 *     is imported or is a function's
 *   - no name holds a NUL; no string is a null pointer (absent ones are ""); rank <= MAX_RANK
 *     wherever a shape is written
 *   - in every graph, subgraph and function body: nodes are in topological order; each name is
 *     defined once; each non-empty input of a node and each output of a graph is defined there,
 *     or, for subgraphs, in an enclosing graph
 *   - an attribute's `type` is known, and the message of that type is there (or ref_attr_name,
 *     inside functions only); names of a node's attributes differ
 *   - functions do not call themselves, directly or not
 *
 * It does not promise that an operator exists, that its inputs and attributes are the right ones,
 * or that tensors decode.
 *
 * Everything lives in the compile's arena. Errors are recorded with diag_error() and name the file
 * and the node.
 */
#ifndef TGC_FRONTEND_ONNX_ONNX_H
#define TGC_FRONTEND_ONNX_ONNX_H

#include "ir/ir.h"
#include "onnx.pb-c.h"

/* --------------------------------------------------------------------------------------- load.c */

struct onnx_load_options {
    const char *external_data_dir;  /* NULL: the directory that the model is in (for stdin: none) */
    bool no_external_data;
    /* what each byte of a mapped file adds to the compile's memory limit: weights may be copied */
    size_t budget_per_external_byte;
};

struct onnx_site;                   /* the place of a node, see site.c */
/* A list of nodes with a scope of names: the main graph, a function's body, or a subgraph in an
 * attribute of a node of these. */
struct onnx_body {
    const GraphProto *graph;        /* NULL: the body of `function` */
    const FunctionProto *function;  /* whose body it is, or stands in; NULL: the main graph's */
    NodeProto **node;
    size_t n_node;
    int outer;                      /* subgraphs: the index of the body around it; -1 otherwise */
    /* and the node there that holds it, by number in the file's order */
    int holder_index;
    const NodeProto *holder;
    const char *attribute;          /* the attribute of holder */
};
struct onnx_mapping;                /* an external data file, see external.c */
struct onnx_model {
    struct tgc *tgc;
    const char *path;               /* as given; "<stdin>" for "-" */
    ModelProto *proto;
    struct onnx_load_options options;
    /* all of them, outer ones before inner ones; [0] is the main graph */
    struct onnx_body *body;
    size_t nbody, cap_body;
    struct onnx_site *site;         /* every node of the model, by address */
    size_t nsite, cap_site;
    /* hash table of proto->functions by name: index + 1, 0 is free */
    int *function_slot;
    size_t nfunction_slot;
    struct onnx_mapping *mapping;
    struct onnx_mapping *missing;   /* external files that were reported, with no base */
    bool refused_external;          /* the refusal of all external files was reported */
    const char **assumed;           /* operator sets that are not imported, and were warned of */
    int nassumed; size_t cap_assumed;
};

/* Reads, scans, unpacks and checks a model. path "-": standard input. NULL: diagnostics were
 * recorded. options may be NULL. Weights with external data stay mapped as long as t. */
struct onnx_model *onnx_load(struct tgc *t, const char *path,
                             const struct onnx_load_options *options);
/* The same from memory; `path` is for messages and for finding external data (may be "<stdin>"). */
struct onnx_model *onnx_load_bytes(struct tgc *t, const char *path, const void *bytes,
                                   size_t nbytes, const struct onnx_load_options *options);
/* Unmaps external data: every buffer made from it is dead then. Optional at exit. m may be NULL. */

/* A file with one message of `type`, such as the data of ONNX's node tests
 * (tensor_proto__descriptor, ...). NULL: diagnostics. */
ProtobufCMessage *onnx_load_message(struct tgc *t, const char *path,
                                    const ProtobufCMessageDescriptor *type);
/* The tensor type inside a sequence or an optional; NULL if there is none. */
const TypeProto *onnx_element_type(const TypeProto *type, bool *is_optional, bool *is_sequence);

/* --------------------------------------------------------------------------------------- wire.c */

/* An error in some bytes, and its place. Strings are constants. */
struct onnx_wire_error {
    const char *problem;            /* "its length goes beyond its parent's end" */
    const char *message, *field;    /* "NodeProto", "input"; field NULL: none or unknown */
    size_t offset;
};
/* Walks the wire format of message `type` without unpacking it: nesting <= ONNX_MAX_DEPTH, every
 * length inside its parent, each field of its declared wire type, no NUL in a string, no groups.
 * *nbytes_unpacked: an upper bound of what protobuf-c will allocate. false: *error is set.
 * Allocates nothing, does not recurse. */
enum { ONNX_MAX_DEPTH = 100 };
bool onnx_scan_wire(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t nbytes,
                    size_t *nbytes_unpacked, struct onnx_wire_error *error);

/* -------------------------------------------------------------------------------------- check.c */

/* Establishes the promises above. false: diagnostics (the first 20 that were found, and how many
 * more there are). */
bool onnx_check(struct onnx_model *m);
/* Its last part, in order.c: names are defined once and before their use; nodes are sorted where
 * they are not. */
bool onnx_check_names(struct onnx_model *m);

/* The opset of `domain` for a node: as imported by the model, or by the function whose body
 * contains the node (f, may be NULL). "ai.onnx" is "". 0: not imported. */
int64_t onnx_opset(const struct onnx_model *m, const FunctionProto *f, const char *domain);
/* schema.c: the newest supported opset of the domain; 0: the domain is unknown. */
int onnx_newest_opset(const char *domain);
/* The model's own function that a node calls; NULL: none, it is an operator. */
const FunctionProto *onnx_find_function(const struct onnx_model *m, const NodeProto *node);

/* --------------------------------------------------------------------------------------- site.c */

/* Places for diagnostics. The text is made in the arena: call them when there is an error to report
 * (or keep them for a node), not per element. A node that is not of the loaded model (a copy made
 * by inlining) has no number: register it with onnx_site_copy(). */
/* the file alone */
struct place onnx_place_model(const struct onnx_model *m);
/* node 17 'conv_3' (Conv) */
struct place onnx_place_node(const struct onnx_model *m, const NodeProto *n);
/* ..., input 1 'w' */
struct place onnx_place_input(const struct onnx_model *m, const NodeProto *n, size_t k);
/* ..., output 0 'y' */
struct place onnx_place_output(const struct onnx_model *m, const NodeProto *n, size_t k);
/* ..., attribute 'pads' */
struct place onnx_place_attr(const struct onnx_model *m, const NodeProto *n, const char *name);
/* what: "graph input", "graph output", "initializer", ... : initializer 'conv1.w' */
struct place onnx_place_value(const struct onnx_model *m, const char *what, const char *name);
/* The node's number in its graph, as it was in the file (before sorting); -1: unknown. */
int onnx_node_index(const struct onnx_model *m, const NodeProto *n);
/* Finds every body and numbers every node; called by onnx_check(). */
void onnx_site_build(struct onnx_model *m);
/* Diagnostics about the copy name the `original`. */
void onnx_site_copy(struct onnx_model *m, const NodeProto *copy, const NodeProto *original);

/* --------------------------------------------------------------------------------------- attr.c */

/* Attributes of a node. A wrong type is a diagnostic, and the result is then what it would be were
 * the attribute absent: the compile has failed, but more errors can be found. Nothing is copied
 * except strings (made NUL-terminated). */
/* NULL: absent */
const AttributeProto *onnx_attr(const NodeProto *n, const char *name);
/* Records an error if the attribute is absent: "attribute 'axis' is required". */
bool onnx_attr_require(const struct onnx_model *m, const NodeProto *n, const char *name);
int64_t onnx_attr_int(const struct onnx_model *m, const NodeProto *n, const char *name,
                      int64_t otherwise);
/* The same, and an error if it is not in lo..hi (the result is clamped then). */
int64_t onnx_attr_int_in(const struct onnx_model *m, const NodeProto *n, const char *name,
                         int64_t otherwise, int64_t lo, int64_t hi);
/* `otherwise` is rounded to f32, as a schema's default is. */
double onnx_attr_float(const struct onnx_model *m, const NodeProto *n, const char *name,
                       double otherwise);
const char *onnx_attr_string(const struct onnx_model *m, const NodeProto *n, const char *name,
                             const char *otherwise);
/* Lists: the number of elements, 0 for an empty list, -1 if absent (*v is NULL then). */
int onnx_attr_ints(const struct onnx_model *m, const NodeProto *n, const char *name,
                   const int64_t **v);
int onnx_attr_floats(const struct onnx_model *m, const NodeProto *n, const char *name,
                     const float **v);
int onnx_attr_strings(const struct onnx_model *m, const NodeProto *n, const char *name,
                      const char *const **v);
/* Exactly `count` integers into v[]; all `otherwise` if absent. false: absent, or another number of
 * them (an error is recorded). */
bool onnx_attr_ints_n(const struct onnx_model *m, const NodeProto *n, const char *name, int count,
                      int64_t *v, int64_t otherwise);
/* NULL if absent. */
const TensorProto *onnx_attr_tensor(const struct onnx_model *m, const NodeProto *n,
                                    const char *name);
const SparseTensorProto *onnx_attr_sparse_tensor(const struct onnx_model *m, const NodeProto *n,
                                                 const char *name);
const GraphProto *onnx_attr_graph(const struct onnx_model *m, const NodeProto *n, const char *name);
const TypeProto *onnx_attr_type(const struct onnx_model *m, const NodeProto *n, const char *name);

/* ------------------------------------------------------------------------------------- tensor.c */

/* A decoded tensor. data: nelem elements, little-endian, row-major, in tgc's storage format (one
 * byte each for sub-byte kinds and bool; `const char *` for strings), aligned for its dtype. It is
 * the model's own memory where that can be used in place. */
struct onnx_tensor {
    const char *name;
    enum dtype dtype;
    int ndim;
    int64_t dim[MAX_RANK];
    size_t nelem, nbytes;
    const void *data;
};
/* A hint about a TensorProto.DataType that is not supported, or "". */
const char *onnx_dtype_hint(int data_type);
/* false: a diagnostic at `at` was recorded (dtype unknown, bytes and shape disagree, external data
 * refused, ...). */
bool onnx_decode_tensor(struct onnx_model *m, const struct place *at, const TensorProto *p,
                        struct onnx_tensor *out);
/* Densified; at most 1 GiB of zeros. */
bool onnx_decode_sparse_tensor(struct onnx_model *m, const struct place *at,
                               const SparseTensorProto *p, struct onnx_tensor *out);

/* ----------------------------------------------------------------------------------- external.c */

/* The bytes that p's external_data names, mapped read-only. Confined to the external data
 * directory: see external.c. */
bool onnx_map_external(struct onnx_model *m, const struct place *at, const TensorProto *p,
                       const void **data, size_t *nbytes);
/* The paths of the files mapped so far, in order; for depfiles. */
const char *const *onnx_external_files(const struct onnx_model *m, int *n);

/* -------------------------------------------------------------------------------------- graph.c */

/* Dimensions on the command line. A dimension's name is its dim_param, or INPUT_dimK if the model
 * has none: "?" does not count. */
bool onnx_dim_is_named(const TensorShapeProto__Dimension *d);

/* A dimension whose name is a sum ("past_sequence_length + 1") has that sum's size, if each name in
 * it is another dimension of the model and no --dim gives the whole name. Returns the first term in
 * *rest, without blanks; *rest is then what follows its +. */
const char *onnx_next_term(struct tgc *t, const char **rest);
/* --dim n=3: both 3; --dim n<=8: 0 and 8; --dim n=2..8 */
struct onnx_dim_option { const char *name; int64_t min, max; };
/* " --dim NAME=VALUE", quoted where a shell needs it */
void put_dim_option(struct text *x, const char *name, const char *value);
/* -1: as the model says */
struct onnx_shape_option { const char *input; int ndim; int64_t dim[MAX_RANK]; };
/* The value that an input will have. It stays an input. The value is used only if the shape of
 * something depends on it (a list of axes, the length of a range). The program is then valid for
 * that value alone: a warning says so. */
struct onnx_value_option {
    const char *input;
    enum dtype dtype;
    int ndim;
    int64_t dim[MAX_RANK];
    const void *data;
    size_t nbytes;
};
/* --shape x=[2x3,4]: a sequence of two tensors, whose shapes are those of inputs x[0] and x[1];
 * x=absent: count -1, an optional without a value. */
struct onnx_list_option { const char *input; int count; };
struct onnx_graph_options {
    const struct onnx_value_option *value; int nvalue;
    const struct onnx_dim_option *dim; int ndim;
    const struct onnx_shape_option *shape; int nshape;
    const struct onnx_list_option *list; int nlist;
    /* OUT=IN: kept from run to run. An initializer of such an input's name is not a constant, but
     * the buffer's `first`. */
    const char *const *state; int nstate;
    /* values inside of the main graph that are outputs, too; see expose_values() */
    const char *const *inner; int ninner;
    /* float initializers of one element are weights, too, for derivatives by them; they are
     * constants otherwise */
    bool keep_scalars;
    /* for dimensions that nothing bounds; 0: that is an error, which prints the options to add */
    int64_t default_max;
    bool is_trial;               /* of suggest.c: its messages are not reported */
    /* Weights are to be changed: those of one element are no constants, and an Identity of a weight
     * whose elements are all equal is a weight of its own: exporters merge what is equal before a
     * training, all zeros or ones, in this way. */
    bool trains;
    /* NULL, or where a Dropout puts the i64 scalar by which it draws, an input named "draw": those
     * of inference, too, drop elements where it is not negative. */
    struct uop **draw;
    struct tg_library *library;  /* of --library; NULL: none (frontend/text/text.h) */
    /* of the domain com.microsoft.nchwc: 8 or 16; 0: as the model shows */
    int nchwc_block;
};

/* The tensor graph of a model. Every node of it is lowered; functions are inlined; names of outputs
 * are the model's. NULL: diagnostics were recorded. options may be NULL. */
struct graph *onnx_lower(struct tgc *t, struct onnx_model *m,
                         const struct onnx_graph_options *options);

/* --------------------------------------------------------------------------------------- save.c */

/* Every tensor of a model: of its graphs, its functions and the attributes of their nodes. */
TensorProto **onnx_tensors(struct tgc *t, const ModelProto *p, size_t *n);
/* Tensors that are changed, and what they were. */
struct onnx_edits {
    struct onnx_edit { TensorProto *tensor, before; } *edit;
    size_t n, cap;
};
/* Before p is changed. */
void onnx_edit(struct tgc *t, struct onnx_edits *e, TensorProto *p);
void onnx_edits_undo(struct onnx_edits *e);
/* p's elements are these bytes, in the model's own file. */
void onnx_set_raw(TensorProto *p, const void *data, size_t nbytes);

/* Where a model is written to. */
struct onnx_sink {
    FILE *file;
    const char *path;               /* its name, for messages */
    size_t most;                    /* bytes of it; 0: protobuf's 2 GB */
    /* Opens the second file, of path data_path, which the model names as `location`; NULL from it:
     * reported. NULL: there can be none. */
    FILE *(*open_data)(void *user, const char *path);
    void *user;
    const char *data_path, *location;
};
/* Writes p. from: what p was loaded as, whose tensors may have external data; NULL: p has none.
 * Tensors beyond `most` go into the second file. false: a diagnostic. */
bool onnx_save(struct tgc *t, struct onnx_model *from, const ModelProto *p,
               const struct onnx_sink *to);

/* -------------------------------------------------------------------------------------- write.c */

enum { ONNX_WRITTEN_OPSET = 21, ONNX_WRITTEN_IR = 10 };
/* A tensor graph as a model of standard operators of that opset, for onnx_save(); weights point
 * into the graph. Symbols are dim_params. producer: "tgc", "1.0". NULL: a diagnostic: it has what
 * ONNX has not, such as entries, states, loops and calls of functions. */
ModelProto *onnx_write(struct tgc *t, const struct graph *g, const char *producer,
                       const char *version);

/* ------------------------------------------------------------------------------------ replace.c */

/* New values of a weight, in the storage format. */
struct onnx_replacement {
    const char *name;
    enum dtype dtype;
    int ndim;
    const int64_t *dim;
    const void *data;
    size_t nbytes;
};
/* Writes a loaded model with these weights, and all else as it was read. A weight without a tensor
 * of its name, dtype and shape is an error. */
bool onnx_save_replaced(struct onnx_model *m, const struct onnx_replacement *r, int n,
                        const struct onnx_sink *to);

#endif
