/* lower_tree.c - ensembles of decision trees: TreeEnsemble, and the TreeEnsembleRegressor and
 * -Classifier before it.
 *
 * Both forms become the tables of runtime/host/tree.c, checked here: every child exists and has one
 * parent, so that each walk ends; features lie within a row, targets within the result. The rest
 * (base values, averages, labels, transforms) is tensor algebra.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/onnx/ml.h"

enum { LEAF = 7, MISSING_IS_TRUE = 8, NODE_NUMBERS = 6, MAX_TREE_NODES = 1 << 27 };
enum aggregate { AGGREGATE_SUM, AGGREGATE_MIN, AGGREGATE_MAX };

struct forest {
    enum dtype dtype;                /* of thresholds, weights and the computation */
    int64_t nnode, ntree, nleaf, nset, ntarget;
    int32_t *node;                   /* [nnode][NODE_NUMBERS] */
    int32_t *root, *target;
    double *value, *weight, *set;
    enum aggregate aggregate;
    bool average;
};

/* --------------------------------------------------------------------------------------- checks */

static bool check_forest(const struct node *n, const struct forest *f, int64_t features)
{
    unsigned char *reached = mem_array(n->t, (size_t)f->nnode + 1, 1);
    int64_t *open = mem_array(n->t, (size_t)f->nnode + (size_t)f->ntree + 1, sizeof *open),
            count = 0;
    for (int64_t t = 0; t < f->ntree; t++) {
        if (f->root[t] < 0 || f->root[t] >= f->nnode || reached[f->root[t]])
            return node_error(n, -1, "the root of tree %lld is no node, or one of another tree",
                              (long long)t);
        reached[f->root[t]] = 1;
        open[count++] = f->root[t];
    }
    while (count > 0) {
        int64_t at = open[--count];
        const int32_t *p = f->node + NODE_NUMBERS * at;
        if ((p[0] & 7) == LEAF)
            continue;
        if (p[1] < 0 || p[1] >= features)
            return node_error(n, 0, "node %lld tests feature %d, but rows have %lld",
                              (long long)at, p[1], (long long)features);
        for (int k = 2; k < 4; k++) {
            if (p[k] < 0 || p[k] >= f->nnode || reached[p[k]])
                return node_error(n, -1, "node %lld: its child %d is no node, or has two parents",
                                  (long long)at, p[k]);
            reached[p[k]] = 1;
            open[count++] = p[k];
        }
    }
    for (int64_t i = 0; i < f->nleaf; i++)
        if (f->target[i] < 0 || f->target[i] >= f->ntarget)
            return node_error(n, -1, "a leaf's target is %d; there are %lld", f->target[i],
                              (long long)f->ntarget);
    return true;
}

/* ----------------------------------------------------------- TreeEnsembleRegressor, -Classifier */

static bool same_count(const struct node *n, const char *name, int64_t count, int64_t wanted)
{
    return count == wanted || node_error(n, -1, "attribute '%s' has %lld elements, expected %lld",
                                         name, (long long)count, (long long)wanted);
}

static bool ints_of(const struct node *n, const char *name, int64_t wanted, const int64_t **v)
{
    return same_count(n, name, node_ints(n, name, v), wanted);
}

/* Nodes and leaves in the order of (tree, node); `leaf`: sorted after the node of the same name. */
struct place_in_tree { int64_t tree, node, index; bool leaf; };

static int compare_places(const void *a, const void *b)
{
    const struct place_in_tree *x = a, *y = b;
    if (x->tree != y->tree)
        return x->tree < y->tree ? -1 : 1;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return x->leaf != y->leaf ? x->leaf - y->leaf : (x->index > y->index) - (x->index < y->index);
}

static int64_t find_place(const struct place_in_tree *p, int64_t count, int64_t tree, int64_t node)
{
    struct place_in_tree wanted = {tree, node, -1, false};
    int64_t lo = 0, hi = count;
    while (lo < hi) {
        int64_t middle = lo + (hi - lo) / 2;
        if (compare_places(&p[middle], &wanted) < 0)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < count && p[lo].tree == tree && p[lo].node == node && !p[lo].leaf ? p[lo].index : -1;
}

static bool read_mode(const struct node *n, const char *mode, int32_t *v)
{
    static const char *const names[] = {"BRANCH_LEQ", "BRANCH_LT",     "BRANCH_GTE", "BRANCH_GT",
                                        "BRANCH_EQ",  "BRANCH_NEQ",    "",           "LEAF"};
    for (int i = 0; i < 8; i++)
        if (*names[i] && !strcmp(names[i], mode)) {
            *v = i;
            return true;
        }
    return node_error(n, -1, "node mode '%s' is not one of the specification", mode);
}

/* Reads the weights of `kind` ("target", "class"), in the order of their leaves, and links each
 * leaf to its own. */
static bool read_leaves(const struct node *n, const char *kind, struct forest *f,
                        struct place_in_tree *place)
{
    const int64_t *tree, *node, *id;
    struct ml_list weight;
    const char *name = mem_printf(n->t, "%s_weights", kind);
    if (!ml_numbers(n, name, mem_printf(n->t, "%s_weights_as_tensor", kind), &weight))
        return false;
    f->nleaf = weight.count;
    if (!ints_of(n, mem_printf(n->t, "%s_treeids", kind), f->nleaf, &tree) ||
        !ints_of(n, mem_printf(n->t, "%s_nodeids", kind), f->nleaf, &node) ||
        !ints_of(n, mem_printf(n->t, "%s_ids", kind), f->nleaf, &id))
        return false;
    struct place_in_tree *leaf = mem_array(n->t, (size_t)f->nleaf + 1, sizeof *leaf);
    for (int64_t i = 0; i < f->nleaf; i++)
        leaf[i] = (struct place_in_tree){tree[i], node[i], i, true};
    qsort(leaf, (size_t)f->nleaf, sizeof *leaf, compare_places);
    f->target = mem_array(n->t, (size_t)f->nleaf + 1, sizeof *f->target);
    f->weight = mem_array(n->t, (size_t)f->nleaf + 1, sizeof *f->weight);
    for (int64_t i = 0; i < f->nleaf; i++) {
        int64_t from = leaf[i].index;
        int64_t at = find_place(place, f->nnode, leaf[i].tree, leaf[i].node);
        if (at < 0 || (f->node[NODE_NUMBERS * at] & 7) != LEAF)
            return node_error(n, -1,
                              "%s weight %lld belongs to node %lld of tree %lld, which is no "
                              "leaf",
                              kind, (long long)from, (long long)leaf[i].node,
                              (long long)leaf[i].tree);
        int32_t *p = f->node + NODE_NUMBERS * at;
        if (p[5] == 0)
            p[4] = (int32_t)i;
        p[5] = (int32_t)i + 1;
        f->target[i] = id[from] < 0 || id[from] > INT32_MAX ? -1 : (int32_t)id[from];
        f->weight[i] = ((const double *)weight.data)[from];
    }
    return true;
}

static bool read_nodes(const struct node *n, const char *kind, struct forest *f)
{
    const int64_t *tree, *node, *feature, *yes, *no, *missing;
    const char *const *mode;
    struct ml_list value;
    f->nnode = node_ints(n, "nodes_treeids", &tree);
    if (f->nnode < 1 || f->nnode > MAX_TREE_NODES)
        return node_error(n, -1, "needs the attribute 'nodes_treeids'");
    if (!ints_of(n, "nodes_nodeids", f->nnode, &node) ||
        !ints_of(n, "nodes_featureids", f->nnode, &feature) ||
        !ints_of(n, "nodes_truenodeids", f->nnode, &yes) ||
        !ints_of(n, "nodes_falsenodeids", f->nnode, &no) ||
        !same_count(n, "nodes_modes", node_strings(n, "nodes_modes", &mode), f->nnode) ||
        !ml_numbers(n, "nodes_values", "nodes_values_as_tensor", &value) ||
        !same_count(n, "nodes_values", value.count, f->nnode))
        return false;
    int nmissing = node_ints(n, "nodes_missing_value_tracks_true", &missing);
    if (nmissing > 0 && !same_count(n, "nodes_missing_value_tracks_true", nmissing, f->nnode))
        return false;
    f->dtype = value.dtype;
    f->value = value.data;
    struct place_in_tree *place = mem_array(n->t, (size_t)f->nnode, sizeof *place);
    f->node = mem_array(n->t, (size_t)f->nnode * NODE_NUMBERS, sizeof *f->node);
    f->root = mem_array(n->t, (size_t)f->nnode, sizeof *f->root);
    for (int64_t i = 0; i < f->nnode; i++)
        place[i] = (struct place_in_tree){tree[i], node[i], i, false};
    qsort(place, (size_t)f->nnode, sizeof *place, compare_places);
    for (int64_t i = 0; i < f->nnode; i++) { /* a tree's root is the node that comes first in it */
        int32_t *p = f->node + NODE_NUMBERS * i;
        if (!read_mode(n, mode[i], &p[0]))
            return false;
        if (p[0] != LEAF) {
            p[1] = feature[i] < 0 || feature[i] > INT32_MAX ? -1 : (int32_t)feature[i];
            p[2] = (int32_t)find_place(place, f->nnode, tree[i], yes[i]);
            p[3] = (int32_t)find_place(place, f->nnode, tree[i], no[i]);
            p[0] |= nmissing > 0 && missing[i] ? MISSING_IS_TRUE : 0;
        }
        if (i == 0 || tree[i] != tree[i - 1])
            f->root[f->ntree++] = (int32_t)i;
    }
    return read_leaves(n, kind, f, place);
}

/* --------------------------------------------------------------------------------- TreeEnsemble */

static bool child(const struct node *n, const struct forest *f, int64_t id, int64_t is_leaf,
                  int64_t branches, int32_t *at)
{
    int64_t place = is_leaf ? branches + id : id;
    *at = (int32_t)place;
    return (id >= 0 && place < (is_leaf ? f->nnode : branches)) ||
           node_error(n, -1, "a node's child %lld is not there", (long long)id);
}

static bool read_members(const struct node *n, struct forest *f, int64_t branches)
{
    struct ml_list members;
    if (!ml_numbers(n, NULL, "membership_values", &members))
        return false;
    f->set = members.data;
    f->nset = members.count;
    int64_t k = 0;
    for (int64_t i = 0; i < branches; i++) { /* the sets in the nodes' order, a NaN after each */
        int32_t *p = f->node + NODE_NUMBERS * i;
        if ((p[0] & 7) != 6)
            continue;
        p[4] = (int32_t)k;
        while (k < f->nset && f->set[k] == f->set[k])
            k++;
        p[5] = (int32_t)k;
        if (k >= f->nset && p[4] == p[5])
            return node_error(n, -1, "membership_values has no set for node %lld", (long long)i);
        k++;
    }
    return true;
}

static bool read_forest(const struct node *n, struct forest *f)
{
    const int64_t *root, *feature, *yes, *no, *yes_leaf, *no_leaf, *missing, *target;
    struct ml_list split, weight;
    const TensorProto *modes = onnx_attr_tensor(lower_model(n->lower), n->proto, "nodes_modes");
    struct place at = onnx_place_attr(lower_model(n->lower), n->proto, "nodes_modes");
    struct onnx_tensor mode;
    if (!modes || !onnx_decode_tensor(lower_model(n->lower), &at, modes, &mode))
        return modes ? false : node_error(n, -1, "needs the attribute 'nodes_modes'");
    int64_t branches = (int64_t)mode.nelem;
    if (!ml_numbers(n, NULL, "nodes_splits", &split) ||
        !ml_numbers(n, NULL, "leaf_weights", &weight) ||
        !same_count(n, "nodes_splits", split.count, branches) ||
        !ints_of(n, "nodes_featureids", branches, &feature) ||
        !ints_of(n, "nodes_truenodeids", branches, &yes) ||
        !ints_of(n, "nodes_falsenodeids", branches, &no) ||
        !ints_of(n, "nodes_trueleafs", branches, &yes_leaf) ||
        !ints_of(n, "nodes_falseleafs", branches, &no_leaf) ||
        !ints_of(n, "leaf_targetids", weight.count, &target))
        return false;
    int nmissing = node_ints(n, "nodes_missing_value_tracks_true", &missing);
    if (nmissing > 0 && !same_count(n, "nodes_missing_value_tracks_true", nmissing, branches))
        return false;
    f->ntree = node_ints(n, "tree_roots", &root);
    f->nleaf = weight.count;
    f->nnode = branches + f->nleaf;
    if (f->ntree < 1 || f->nnode > MAX_TREE_NODES)
        return node_error(n, -1, "needs the attribute 'tree_roots'");
    f->dtype = split.dtype;
    f->weight = weight.data;
    f->node = mem_array(n->t, (size_t)f->nnode * NODE_NUMBERS, sizeof *f->node);
    f->value = mem_array(n->t, (size_t)f->nnode, sizeof *f->value);
    f->root = mem_array(n->t, (size_t)f->ntree, sizeof *f->root);
    f->target = mem_array(n->t, (size_t)f->nleaf + 1, sizeof *f->target);
    ARRAY_COPY(f->value, split.data, branches);
    for (int64_t i = 0; i < branches; i++) {
        int32_t *p = f->node + NODE_NUMBERS * i;
        int64_t m = scalar_load(mode.dtype, (const char *)mode.data +
                                                (size_t)i * dtype_nbytes(mode.dtype)).i;
        if (m < 0 || m > 6)
            return node_error(n, -1, "nodes_modes[%lld] is %lld", (long long)i, (long long)m);
        p[0] = (int32_t)m | (nmissing > 0 && missing[i] ? MISSING_IS_TRUE : 0);
        p[1] = feature[i] < 0 || feature[i] > INT32_MAX ? -1 : (int32_t)feature[i];
        if (!child(n, f, yes[i], yes_leaf[i], branches, &p[2]) ||
            !child(n, f, no[i], no_leaf[i], branches, &p[3]))
            return false;
    }
    for (int64_t i = 0; i < f->nleaf; i++) {
        int32_t leaf[NODE_NUMBERS] = {LEAF, 0, 0, 0, (int32_t)i, (int32_t)i + 1};
        memcpy(f->node + NODE_NUMBERS * (branches + i), leaf, sizeof leaf);
        f->target[i] = target[i] < 0 || target[i] > INT32_MAX ? -1 : (int32_t)target[i];
    }
    for (int64_t t = 0; t < f->ntree; t++)
        f->root[t] = root[t] < 0 || root[t] > INT32_MAX ? -1 : (int32_t)root[t];
    return read_members(n, f, branches);
}

/* -------------------------------------------------------------------------------------- the run */

static struct uop *int_weight(const struct node *n, const int32_t *v, int64_t count)
{
    return tensor_from_data(n->t, DTYPE_I32, &count, 1, count ? (const void *)v : "",
                            4 * (size_t)count, NULL);
}

static struct uop *real_weight(const struct node *n, enum dtype d, double *v, int64_t count)
{
    return ml_weight(n, d, &(struct ml_list){d, v, count});
}

enum { WALK_NUMBERS = 4 };

/* The forest in the form of tree_walk in runtime/host/tree.c: nodes in order of depth, for each
 * tree; first[]: where a node's leaves begin. */
struct walk { int32_t *root, *node, *first, *target; double *weight; int64_t nnode, nleaf; };

/* Node number `at` of the walk: x > value leads to the second child. false: its test is of another
 * kind. */
static bool walk_node(const struct forest *f, const int32_t *p, int32_t *to)
{
    bool single = f->dtype != DTYPE_F64, missing = p[0] & MISSING_IS_TRUE;
    int test = p[0] & 7;
    double v = f->value[(p - f->node) / NODE_NUMBERS];
    float narrow;
    if (test > 3 || v != v || v == -HUGE_VAL)
        return false;
    if (test == 1 || test == 2)                          /* x >= v is x > the number before v */
        v = single ? (double)nextafterf((float)v, -HUGE_VALF) : nextafter(v, -HUGE_VAL);
    narrow = (float)v;
    bool to_second = test < 2 ? !missing : missing;      /* the branch for NaN */
    to[0] = p[1] | (to_second ? INT32_MIN : 0);
    memcpy(to + 2, single ? (const void *)&narrow : (const void *)&v, single ? 4 : 8);
    return true;
}

/* false: some test is not a comparison. */
static bool make_walk(struct tgc *t, const struct forest *f, struct walk *w)
{
    size_t n = (size_t)f->nnode;
    int32_t *from = mem_array(t, n + 1, sizeof *from); /* node of the forest, by that of the walk */
    w->root = mem_array(t, (size_t)f->ntree, sizeof *w->root);
    w->node = mem_array(t, n * WALK_NUMBERS, sizeof *w->node);
    w->first = mem_array(t, n + 1, sizeof *w->first);
    w->target = mem_array(t, (size_t)f->nleaf + 1, sizeof *w->target);
    w->weight = mem_array(t, (size_t)f->nleaf + 1, sizeof *w->weight);
    for (int64_t tree = 0; tree < f->ntree; tree++) {
        int64_t at = w->nnode;
        w->root[tree] = (int32_t)w->nnode;
        from[w->nnode++] = f->root[tree];
        for (; at < w->nnode; at++) {
            const int32_t *p = f->node + NODE_NUMBERS * (int64_t)from[at];
            int32_t *to = w->node + WALK_NUMBERS * at;
            bool leaf = (p[0] & 7) == LEAF, second = (p[0] & 7) == 2 || (p[0] & 7) == 3;
            float most = HUGE_VALF;
            double wide_most = HUGE_VAL;
            w->first[at] = (int32_t)w->nleaf;
            to[1] = leaf ? (int32_t)at : (int32_t)w->nnode;
            if (!leaf && !walk_node(f, p, to))
                return false;
            if (!leaf) {
                from[w->nnode++] = p[second ? 3 : 2];
                from[w->nnode++] = p[second ? 2 : 3];
                continue;
            }
            memcpy(to + 2, f->dtype == DTYPE_F64 ? (const void *)&wide_most : (const void *)&most,
                   f->dtype == DTYPE_F64 ? 8 : 4);
            for (int32_t k = p[4]; k < p[5]; k++, w->nleaf++) {
                w->target[w->nleaf] = f->target[k];
                w->weight[w->nleaf] = f->weight[k];
            }
        }
    }
    w->first[w->nnode] = (int32_t)w->nleaf;
    return true;
}

/* [rows, targets], in the forest's dtype */
static struct uop *run_forest(const struct node *n, const struct forest *f)
{
    int64_t features;
    struct uop *x = ml_rows(n, 0, f->dtype);
    if (!x)
        return NULL;
    if (!uop_const_int(x->dim[1], &features)) {
        node_error(n, 0, "rows of a fixed size are expected, found %s", shape_text(n, x));
        return NULL;
    }
    if (!check_forest(n, f, features))
        return NULL;
    struct uop *in[7] = {x,
                         int_weight(n, f->root, f->ntree),
                         int_weight(n, f->node, f->nnode * NODE_NUMBERS),
                         real_weight(n, f->dtype, f->value, f->nnode),
                         real_weight(n, f->dtype, f->set, f->nset),
                         int_weight(n, f->target, f->nleaf),
                         real_weight(n, f->dtype, f->weight, f->nleaf)};
    struct uop *param[5] = {x->dim[0], x->dim[1], uop_int(n->t, f->ntree),
                            uop_int(n->t, f->ntarget), uop_int(n->t, f->aggregate)};
    struct host_output out = {.dtype = f->dtype, .ndim = 2,
                              .dim = {x->dim[0], uop_int(n->t, f->ntarget)}};
    struct walk w = {0};
    bool walks = features > 0 && make_walk(n->t, f, &w);
    if (walks) {
        in[1] = int_weight(n, w.root, f->ntree);
        in[2] = int_weight(n, w.node, w.nnode * WALK_NUMBERS);
        in[3] = int_weight(n, w.first, w.nnode + 1);
        in[4] = int_weight(n, w.target, w.nleaf);
        in[5] = real_weight(n, f->dtype, w.weight, w.nleaf);
    }
    const char *name = mem_printf(n->t, "tree_%s_%s", walks ? "walk" : "ensemble",
                                  f->dtype == DTYPE_F64 ? "f64" : "f32");
    struct uop *host = lib_host(&n->lib, name, in, walks ? 6 : 7, &out, 1, param, 5, NULL, 0);
    struct uop *y = lib_get(&n->lib, host, 0);
    return f->average ? lib_binaryf(&n->lib, OP_DIV, y, (double)f->ntree) : y;
}

/* Adds base values, where there is one for each target. */
static struct uop *with_base(const struct node *n, struct uop *y, const struct ml_list *base)
{
    int64_t targets;
    if (!y || !base->count)
        return y;
    if (!uop_const_int(y->dim[1], &targets) || targets != base->count) {
        node_error(n, -1, "has %lld base values for %lld targets", (long long)base->count,
                   (long long)targets);
        return NULL;
    }
    return lib_add(&n->lib, y, ml_weight(n, y->dtype, base));
}

static bool set_aggregate(const struct node *n, struct forest *f)
{
    static const char *const names[] = {"SUM", "MIN", "MAX", "AVERAGE"};
    const char *name = node_string(n, "aggregate_function", "SUM");
    for (int i = 0; i < 4; i++)
        if (!strcmp(names[i], name)) {
            f->average = i == 3;
            f->aggregate = f->average ? AGGREGATE_SUM : (enum aggregate)i;
            return true;
        }
    return node_error(n, -1, "aggregate_function '%s' is not one of the specification", name);
}

bool lower_tree_regressor(struct node *n)
{
    struct forest f = {.ntarget = node_int(n, "n_targets", 1)};
    struct ml_list base;
    enum ml_transform t;
    if (f.ntarget < 1 || f.ntarget > INT32_MAX)
        return node_error(n, -1, "n_targets is %lld", (long long)f.ntarget);
    if (!set_aggregate(n, &f) || !ml_post_transform(n, &t) || !read_nodes(n, "target", &f) ||
        !ml_numbers(n, "base_values", "base_values_as_tensor", &base))
        return false;
    struct uop *y = with_base(n, run_forest(n, &f), &base);
    return node_set(n, 0, ml_transformed(n, lib_cast(&n->lib, DTYPE_F32, y), t));
}

/* Two classes with all weights for one of them: a score for the second class. */
static bool two_classes(struct node *n, const struct forest *f, struct uop *y,
                        const struct ml_list *base, enum ml_transform t)
{
    const struct lib *l = &n->lib;
    bool positive = true;
    for (int64_t i = 0; i < f->nleaf; i++)
        positive &= f->weight[i] >= 0;
    int32_t named = f->target[0];
    struct uop *score = lib_narrow(l, y, 1, uop_int(n->t, named), uop_int(n->t, 1));
    if (base->count > 2)
        return node_error(n, -1, "has %lld base values for two classes", (long long)base->count);
    if (score && base->count)
        score = lib_binaryf(l, OP_ADD, score,
                            ((const double *)base->data)[base->count == 1 ? 0 : named]);
    score = lib_cast(l, DTYPE_F32, score);
    if (!score)
        return false;
    struct uop *second = lib_binary(l, OP_LT, lib_scalar(l, score, positive ? 0.5 : 0), score);
    struct uop *number = lib_cast(l, DTYPE_I64, tensor_drop_axes(n->t, second, 2));
    return node_set(n, 0, ml_labels(n, number, "classlabels_int64s", "classlabels_strings")) &&
           node_set(n, 1, ml_both_classes(n, score, positive, t));
}

bool lower_tree_classifier(struct node *n)
{
    struct forest f = {.ntarget = ml_label_count(n, "classlabels_int64s", "classlabels_strings")};
    struct ml_list base;
    enum ml_transform t;
    if (f.ntarget < 1)
        return node_error(n, -1, "needs class labels");
    if (!ml_post_transform(n, &t) || !read_nodes(n, "class", &f) ||
        !ml_numbers(n, "base_values", "base_values_as_tensor", &base))
        return false;
    struct uop *y = run_forest(n, &f);
    bool one = f.ntarget == 2 && f.nleaf > 0;
    for (int64_t i = 0; i < f.nleaf; i++)
        one &= f.target[i] == f.target[0];
    if (!y)
        return false;
    if (one)
        return two_classes(n, &f, y, &base, t);
    y = lib_cast(&n->lib, DTYPE_F32, with_base(n, y, &base));
    return node_set(n, 0, ml_labels(n, lib_argmax(&n->lib, y, 1, false, false),
                                    "classlabels_int64s", "classlabels_strings")) &&
           node_set(n, 1, ml_transformed(n, y, t));
}

bool lower_tree_ensemble(struct node *n)
{
    static const enum aggregate aggregates[] = {AGGREGATE_SUM, AGGREGATE_SUM, AGGREGATE_MIN,
                                                AGGREGATE_MAX};
    int64_t how = node_int(n, "aggregate_function", 1), after = node_int(n, "post_transform", 0);
    static const enum ml_transform transforms[] = {ML_NONE, ML_SOFTMAX, ML_LOGISTIC,
                                                   ML_SOFTMAX_ZERO, ML_PROBIT};
    struct forest f = {.ntarget = node_int(n, "n_targets", 1)};
    if (how < 0 || how > 3 || after < 0 || after > 4 || f.ntarget < 1 || f.ntarget > INT32_MAX)
        return node_error(n, -1, "aggregate_function, post_transform or n_targets is out of range");
    f.average = how == 0;
    f.aggregate = aggregates[how];
    if (!read_forest(n, &f))
        return false;
    struct uop *y = run_forest(n, &f);
    return node_set(n, 0, ml_transformed(n, lib_cast(&n->lib, n->in[0]->dtype, y),
                                         transforms[after]));
}
