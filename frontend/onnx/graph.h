/* ----------------------------------------------------------------------------------------------------- graph.c */

/* What the command line says of dimensions. A dimension's name is its dim_param, or INPUT_dimK where the model has none. */
struct onnx_dim_option { const char *name; int64_t min, max; };       /* --dim n=3: both 3; --dim n<=8: 1 and 8 */
struct onnx_shape_option { const char *input; int ndim; int64_t dim[MAX_RANK]; };   /* -1: as the model says */
struct onnx_graph_options {
    const struct onnx_dim_option *dim; int ndim;
    const struct onnx_shape_option *shape; int nshape;
    int64_t default_max;         /* for dimensions that nothing bounds; 0: that is an error, which prints the options to add */
};

/* The tensor graph of a model. Every node of it is lowered; functions are inlined; names of outputs are the model's.
 * NULL: diagnostics were recorded. options may be NULL. */
struct graph *onnx_lower(struct tgc *t, struct onnx_model *m, const struct onnx_graph_options *options);
