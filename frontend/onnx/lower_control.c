/* lower_control.c - If.
 *
 * Subgraphs are lowered into the same graph of uops, in a scope that looks into the enclosing one;
 * laziness is the scheduler's: what only one branch uses runs only there. A condition that is known
 * now leaves one branch; otherwise cases.c joins both.
 */
#include "frontend/onnx/lower.h"

const GraphProto *node_graph(const struct node *n, const char *name)
{
    const GraphProto *g = onnx_attr_graph(lower_model(n->lower), n->proto, name);
    if (!g)
        node_error(n, -1, "needs the attribute '%s', a graph", name);
    return g;
}

/* What stands for a branch that cannot work with the dimensions at hand: zeros in the shape of the
 * other branch. The run that takes it ends with a status. */
static bool impossible_branch(const struct node *n, int which, struct value *const *other,
                              struct value **out, const char *why)
{
    for (int k = 0; k < n->nout; k++) {
        struct uop *u = other[k]->tensor;
        if (!u)
            return node_error(n, -1, "its %s does not work with these dimensions (%s)",
                              which ? "then_branch" : "else_branch", why);
        out[k] = value_tensor(n->t, tensor_full(n->t, uop_consti(n->t, u->dtype, 0), u->dim, u->ndim));
    }
    diag_warn(n->t, &n->at,
              "its %s does not work with these dimensions; a run that takes it ends with a status "
              "(%s)",
              which ? "then_branch" : "else_branch", why);
    return true;
}

/* Both, if the condition is only known at run time. A model may have branches for different sizes
 * of its inputs, so that with the sizes at hand only one of them makes sense. ok[i]: the conditions
 * that branch i takes for granted. */
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

/* The results of both branches as one IF. */
static bool join_branches(struct node *n, struct uop *cond, struct value **const *out,
                          struct uop *const *ok)
{
    struct uop **side[2], **all = mem_array(n->t, (size_t)n->nout + 1, sizeof *all);
    for (int i = 0; i < 2; i++) {
        side[i] = mem_array(n->t, (size_t)n->nout + 1, sizeof **side);
        for (int k = 0; k < n->nout; k++)
            if (!(side[i][k] = out[i][k]->tensor))
                return node_error(n, -1,
                                  "output %d is no tensor, so the condition must be known when the "
                                  "model is compiled",
                                  k);
        side[i][n->nout] = ok[i];
    }
    if (!node_choose(n, cond, side[1], side[0], n->nout + 1, all))
        return false;
    for (int k = 0; k < n->nout; k++)
        n->value_out[k] = value_tensor(n->t, all[k]);
    return node_require(n, -1, all[n->nout], "cannot work with these dimensions");
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
