/* lower_control.c - If.
 *
 * Subgraphs are lowered into the same graph of uops, in a scope that looks into the enclosing one;
 * the scheduler makes branches lazy: what only one of them uses runs only there. With a constant
 * condition only one branch is lowered; otherwise cases.c joins both.
 */
#include "frontend/onnx/lower.h"

const GraphProto *node_graph(const struct node *n, const char *name)
{
    const GraphProto *g = onnx_attr_graph(lower_model(n->lower), n->proto, name);
    if (!g)
        node_error(n, -1, "needs the attribute '%s', a graph", name);
    return g;
}

/* The replacement of a branch that is impossible with the given dimensions: zeros in the shape of
 * the other branch. A run that takes it ends with a status. */
static bool impossible_branch(const struct node *n, int which, struct value *const *other,
                              struct value **out, const char *why)
{
    for (int k = 0; k < n->nout; k++) {
        struct uop *u = other[k]->tensor;
        if (!u)
            return node_error(n, -1, "its %s does not work with these dimensions (%s)",
                              which ? "then_branch" : "else_branch", why);
        out[k] =
            value_tensor(n->t, tensor_full(n->t, uop_consti(n->t, u->dtype, 0), u->dim, u->ndim));
    }
    diag_warn(n->t, &n->at,
              "its %s does not work with these dimensions; a run that takes it ends with a status "
              "(%s)",
              which ? "then_branch" : "else_branch", why);
    return true;
}

/* Both, if the condition is known only at run time. A model may have branches for different sizes
 * of its inputs, of which only one is valid for the given sizes. ok[i]: the conditions that branch
 * i assumes. */
static bool lower_branches(const struct node *n, const GraphProto *const *branch,
                           struct value **out[2], struct uop *ok[2])
{
    const char *why[2] = {NULL, NULL};
    struct attempt start = attempt_begin(n);
    for (int i = 0; i < 2; i++) {
        out[i] = mem_array(n->t, (size_t)n->nout + 1, sizeof(struct value *));
        struct attempt each = attempt_begin(n);
        if (!lower_subgraph(n, branch[i], NULL, 0, out[i]))
            why[i] = attempt_undo(n, each);
        ok[i] = lower_take_checks(n->lower, each.ncheck);
    }
    if (why[0] && why[1]) {
        attempt_undo(n, start);
        return node_error(
            n, -1, "neither branch works with these dimensions: then_branch: %s; else_branch: %s",
            why[1], why[0]);
    }
    for (int i = 0; i < 2; i++) {
        if (!why[i])
            continue;
        if (lower_hit_limit(n->lower))
            return node_error(n, -1, "its %s is not supported: %s",
                              i ? "then_branch" : "else_branch", why[i]);
        if (!impossible_branch(n, i, out[!i], out[i], why[i]))
            return false;
        ok[i] = uop_bool(n->t, false);
    }
    return true;
}

/* The value in an optional; any other value itself; NULL: an empty optional. */
static const struct value *held(const struct value *v)
{
    return v->kind != VALUE_OPTIONAL ? v : v->nitem ? v->item[0] : NULL;
}

/* Whether output k of both branches is of one kind, sequences of one length: they are chosen item
 * by item.
 */
static bool join_fits(const struct node *n, int k, const struct value *a, const struct value *b)
{
    bool same = a->kind == b->kind && !held(a) == !held(b);
    a = held(a);
    b = held(b);
    if (same &&
        (!a || (a->kind == b->kind &&
                (a->kind == VALUE_TENSOR || (a->kind == VALUE_SEQUENCE && a->nitem == b->nitem)))))
        return true;
    return node_error(n, -1,
                      "output %d is a sequence or an optional that the branches make of another "
                      "length, so the condition must be known when the model is compiled",
                      k);
}

struct tensor_list {
    struct uop **v;
    int n;
    size_t cap;
};

static void add_tensors(struct tgc *t, struct tensor_list *list, const struct value *v)
{
    v = held(v);
    for (int i = 0; v && v->kind == VALUE_SEQUENCE && i < v->nitem; i++)
        VEC_PUSH(t, list->v, list->n, list->cap, v->item[i]->tensor);
    if (v && v->kind == VALUE_TENSOR)
        VEC_PUSH(t, list->v, list->n, list->cap, v->tensor);
}

/* A value like v with the tensors from *x on. */
static struct value *like(struct tgc *t, const struct value *v, struct uop *const **x)
{
    const struct value *in = held(v);
    struct value *made = NULL;
    if (in && in->kind == VALUE_SEQUENCE) {
        struct value **item = mem_array(t, (size_t)in->nitem + 1, sizeof *item);
        for (int i = 0; i < in->nitem; i++)
            item[i] = value_tensor(t, *(*x)++);
        made = value_sequence(t, item, in->nitem, in->dtype);
    } else if (in) {
        made = value_tensor(t, *(*x)++);
    }
    return v->kind == VALUE_OPTIONAL ? value_optional(t, made) : made;
}

/* The results of both branches as one IF. */
static bool join_branches(struct node *n, struct uop *cond, struct value **const *out,
                          struct uop *const *ok)
{
    struct tensor_list side[2] = {{0}, {0}};
    for (int k = 0; k < n->nout; k++)
        if (!join_fits(n, k, out[0][k], out[1][k]))
            return false;
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < n->nout; k++)
            add_tensors(n->t, &side[i], out[i][k]);
        VEC_PUSH(n->t, side[i].v, side[i].n, side[i].cap, ok[i]);
    }
    struct uop **all = mem_array(n->t, (size_t)side[0].n, sizeof *all), *const *next = all;
    if (!node_choose(n, cond, side[1].v, side[0].v, side[0].n, all))
        return false;
    for (int k = 0; k < n->nout; k++)
        n->value_out[k] = like(n->t, out[0][k], &next);
    return node_require(n, -1, *next, "cannot work with these dimensions");
}

bool lower_if(struct node *n)
{
    const GraphProto *branch[2] = {node_graph(n, "else_branch"), node_graph(n, "then_branch")};
    struct uop *cond = node_scalar(n, 0);
    struct value **out[2];
    int64_t known;
    if (!branch[0] || !branch[1] || !cond)
        return false;
    if (cond->dtype != DTYPE_BOOL)
        return node_error(n, 0, "a bool is expected, found %s", shape_text(n, n->in[0]));
    for (int i = 0; i < 2; i++)
        if ((int)branch[i]->n_output != n->nout)
            return node_error(n, -1, "the %s has %zu outputs, but the node has %d",
                              i ? "then_branch" : "else_branch", branch[i]->n_output, n->nout);
    if (uop_const_int(cond, &known))
        return lower_subgraph(n, branch[known != 0], NULL, 0, n->value_out);
    struct attempt start = attempt_begin(n);
    struct uop *ok[2], **told;
    int count;
    if (lower_branches(n, branch, out, ok) && join_branches(n, cond, out, ok))
        return true;
    if (!node_is_known(n, 0) || !node_elements(n, 0, &told, &count) || count != 1 ||
        !uop_const_int(told[0], &known))
        return false;
    attempt_undo(n, start);
    return lower_subgraph(n, branch[known != 0], NULL, 0, n->value_out);
}

bool lower_same_shape(struct tgc *t, const struct uop *a, const struct uop *b)
{
    if (a->dtype != b->dtype || a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (!sym_equal(t, a->dim[i], b->dim[i]))
            return false;
    return true;
}
