/* lower_control.c - If, Loop, Scan.
 *
 * Subgraphs are lowered into the same graph of uops, in a scope that looks into the enclosing one;
 * laziness is the scheduler's: what only one branch uses runs only there. A condition that is known
 * now leaves one branch. A loop whose values change shape, or are sequences, is unrolled where its
 * trip count is known.
 */
#include <math.h>
#include <string.h>

#include "frontend/onnx/lower.h"

enum { MAX_UNROLL = 1024 };

static const GraphProto *graph_attr(const struct node *n, const char *name)
{
    const GraphProto *g = onnx_attr_graph(lower_model(n->lower), n->proto, name);
    if (!g)
        node_error(n, -1, "needs the attribute '%s', a graph", name);
    return g;
}

/* ------------------------------------------------------------------------------------------- If */

static bool same_shape(struct tgc *t, const struct uop *a, const struct uop *b)
{
    if (a->dtype != b->dtype || a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (!sym_equal(t, a->dim[i], b->dim[i]))
            return false;
    return true;
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
    const GraphProto *branch[2] = {graph_attr(n, "else_branch"), graph_attr(n, "then_branch")};
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

/* ----------------------------------------------------------------------------------------- Loop */

/* What a loop starts from. */
struct loop_start {
    const GraphProto *body;
    struct uop *trip; /* i64 scalar; NULL: no limit */
    struct uop *cond; /* bool scalar; NULL: true */
    struct value **init;
    int ncarried, nscan;
    int64_t known_trip; /* -1: not known now */
};

static bool stack_scan(struct node *n, int k, struct uop *const *part, int count)
{
    if (!count)
        return node_error(n, -1,
                          "the shape of output %d is not known, for the loop has no iteration", k);
    struct uop **row = mem_array(n->t, (size_t)count, sizeof *row);
    for (int i = 0; i < count; i++) {
        if (part[i]->ndim >= MAX_RANK)
            return node_error(n, -1, "output %d would have a rank above %d", k, MAX_RANK);
        row[i] = tensor_insert_axis(n->t, part[i], 0);
    }
    return node_set(n, k, lib_concat(&n->lib, row, count, 0));
}

/* One iteration after the other, as nodes. */
static bool unroll_loop(struct node *n, const struct loop_start *s)
{
    struct tgc *t = n->t;
    int nout = 1 + s->ncarried + s->nscan;
    struct value **args = mem_array(t, (size_t)s->ncarried + 2, sizeof *args),
                 **out = mem_array(t, (size_t)nout, sizeof *out);
    struct uop **part = mem_array(t, (size_t)s->known_trip * (size_t)s->nscan + 1, sizeof *part);
    int done = 0;
    memcpy(args + 2, s->init, (size_t)s->ncarried * sizeof *args);
    for (int64_t i = 0; i < s->known_trip; i++) {
        args[0] = value_tensor(t, uop_int(t, i));
        args[1] = value_tensor(t, uop_bool(t, true));
        if (!lower_subgraph(n, s->body, args, s->ncarried + 2, out))
            return false;
        memcpy(args + 2, out + 1, (size_t)s->ncarried * sizeof *args);
        for (int k = 0; k < s->nscan; k++) {
            if (out[1 + s->ncarried + k]->kind != VALUE_TENSOR)
                return node_error(n, -1, "output %d stacks what is no tensor", s->ncarried + k);
            part[k * s->known_trip + i] = out[1 + s->ncarried + k]->tensor;
        }
        done++;
        int64_t zero[MAX_RANK] = {0}, go_on;
        struct uop *cond =
            out[0]->kind == VALUE_TENSOR ? tensor_element(t, out[0]->tensor, zero) : NULL;
        if (!cond || !uop_const_int(cond, &go_on))
            return node_error(n, -1,
                              "its values change shape and its end depends on run-time data; such "
                              "a loop is not supported");
        if (!go_on)
            break;
    }
    for (int k = 0; k < s->ncarried; k++)
        n->value_out[k] = args[2 + k];
    for (int k = 0; k < s->nscan; k++)
        if (!stack_scan(n, s->ncarried + k, part + k * s->known_trip, done))
            return false;
    return true;
}

/* As a loop in the program. *unfit: its values change shape or are no tensors, which only unrolling
 * can do. */
static bool build_loop(struct node *n, const struct loop_start *s, bool *unfit)
{
    struct tgc *t = n->t;
    int nout = 1 + s->ncarried + s->nscan;
    struct value **args = mem_array(t, (size_t)s->ncarried + 2, sizeof *args),
                 **out = mem_array(t, (size_t)nout, sizeof *out);
    struct uop **init = mem_array(t, (size_t)nout, sizeof *init),
               **next = mem_array(t, (size_t)nout, sizeof *next);
    for (int k = 0; k < s->ncarried; k++) {
        *unfit |= s->init[k]->kind != VALUE_TENSOR;
        init[k] = s->init[k]->tensor;
    }
    if (*unfit)
        return node_error(n, -1,
                          "it carries sequences or optionals, and its trip count is not known when "
                          "the model is compiled");
    struct uop *trip = s->trip ? s->trip : uop_int(t, INT64_MAX);
    struct lib_loop *loop = lib_loop_begin(&n->lib, trip, s->cond, init, s->ncarried);
    if (!loop)
        return false;
    args[0] = value_tensor(t, loop->counter);
    args[1] = value_tensor(t, uop_bool(t, true));
    for (int k = 0; k < s->ncarried; k++)
        args[2 + k] = value_tensor(t, loop->param[k]);
    if (!lower_subgraph(n, s->body, args, s->ncarried + 2, out)) {
        *unfit = true;
        return false;
    }
    for (int k = 0; k < nout; k++) {
        *unfit |= out[k]->kind != VALUE_TENSOR;
        next[k] = out[k]->tensor;
    }
    if (*unfit)
        return node_error(n, -1,
                          "its body makes sequences or optionals, and its trip count is not known "
                          "when the model is compiled");
    for (int k = 0; k < s->ncarried; k++)
        if (!same_shape(t, init[k], next[1 + k])) {
            *unfit = true;
            return node_error(
                n, -1, "carried value %d starts as %s and becomes %s; it must keep its shape", k,
                shape_text(n, init[k]), shape_text(n, next[1 + k]));
        }
    struct uop *cond = uop_reshape(t, next[0], NULL, 0);
    struct uop *known = tensor_element(t, cond, NULL);
    bool ends_early = !known || !uop_is_int(known, 1) || s->cond;
    struct uop *length = tensor_element(t, trip, NULL);
    *unfit = s->nscan && (ends_early || !length || !s->trip);
    if (*unfit)
        return node_error(n, -1,
                          "it stacks outputs, but how often it runs is not known before the run");
    struct uop *all = lib_loop_end(&n->lib, loop, ends_early ? cond : NULL, next + 1,
                                   next + 1 + s->ncarried, s->nscan, length);
    for (int k = 0; all && k < s->ncarried + s->nscan; k++)
        n->out[k] = lib_get(&n->lib, all, k);
    return all != NULL;
}

static bool loop_operands(struct node *n, struct loop_start *s)
{
    int64_t known;
    s->body = graph_attr(n, "body");
    s->known_trip = -1;
    if (!s->body)
        return false;
    if (n->in[0]) {
        if (!(s->trip = node_scalar(n, 0)))
            return false;
        if (!dtype_is_int(s->trip->dtype))
            return node_error(n, 0, "an integer is expected, found %s", shape_text(n, s->trip));
        s->trip = uop_cast(n->t, DTYPE_INDEX, s->trip);
        if (uop_const_int(s->trip, &known))
            s->known_trip = known < 0 ? 0 : known;
    }
    if (n->nin > 1 && n->in[1]) {
        if (!(s->cond = node_scalar(n, 1)))
            return false;
        if (s->cond->dtype != DTYPE_BOOL)
            return node_error(n, 1, "a bool is expected, found %s", shape_text(n, s->cond));
        if (uop_const_int(s->cond, &known)) {
            if (!known) {
                s->trip = uop_int(n->t, 0);
                s->known_trip = 0;
            }
            s->cond = NULL;
        }
    }
    s->ncarried = n->nin > 2 ? n->nin - 2 : 0;
    s->nscan = (int)s->body->n_output - 1 - s->ncarried;
    s->init = n->value_in + 2;
    if (s->nscan < 0 || n->nout > s->ncarried + s->nscan ||
        (int)s->body->n_input != s->ncarried + 2)
        return node_error(
            n, -1,
            "its body has %zu inputs and %zu outputs, which does not go with %d carried values",
            s->body->n_input, s->body->n_output, s->ncarried);
    for (int k = 0; k < s->ncarried; k++)
        if (!s->init[k])
            return node_error(n, k + 2, "input %d is missing", k + 2);
    return true;
}

/* The row of results may be longer than the node writes. */
static void widen_outputs(struct node *n, int count)
{
    if (count <= MIN_SLOTS || count <= n->nout)
        return;
    n->out = mem_array(n->t, (size_t)count, sizeof *n->out);
    n->value_out = mem_array(n->t, (size_t)count, sizeof *n->value_out);
}

/* Trip count and first condition where they are told; false: neither. */
static bool know_loop(const struct node *n, struct loop_start *s)
{
    struct uop **elem;
    int count;
    int64_t v;
    if (s->known_trip < 0 && n->in[0] && node_is_known(n, 0) &&
        node_elements(n, 0, &elem, &count) && count == 1 && uop_const_int(elem[0], &v)) {
        s->known_trip = v < 0 ? 0 : v;
        s->trip = uop_int(n->t, s->known_trip);
    }
    if (s->cond && node_is_known(n, 1) && node_elements(n, 1, &elem, &count) && count == 1 &&
        uop_const_int(elem[0], &v)) {
        s->cond = NULL;
        if (!v) {
            s->known_trip = 0;
            s->trip = uop_int(n->t, 0);
        }
    }
    return s->known_trip >= 0 && !s->cond;
}

bool lower_loop(struct node *n)
{
    struct loop_start s = {0};
    bool unfit = false;
    if (!loop_operands(n, &s))
        return false;
    widen_outputs(n, s.ncarried + s.nscan);
    struct attempt start = attempt_begin(n);
    if (build_loop(n, &s, &unfit))
        return true;
    if (!unfit)
        return false;
    if ((s.known_trip < 0 || s.cond) &&
        know_loop(n, &s)) { /* again with what the caller told of the inputs */
        attempt_undo(n, start);
        unfit = false;
        if (build_loop(n, &s, &unfit))
            return true;
    }
    if (!unfit || s.known_trip < 0 || s.known_trip > MAX_UNROLL || s.cond)
        return false;
    attempt_undo(n, start);
    return unroll_loop(n, &s);
}

/* ----------------------------------------------------------------------------------------- Scan */

static bool scan_ints(const struct node *n, const char *name, int count, int64_t *v)
{
    const int64_t *list;
    int have = node_ints(n, name, &list);
    for (int i = 0; i < count; i++)
        v[i] = have > i ? list[i] : 0;
    return have < 0 || have == count ||
           node_error(n, -1, "attribute '%s' has %d values; %d are expected", name, have, count);
}

/* Axis 0, along which results were stacked, to where it belongs. */
static struct uop *move_first_axis(const struct node *n, struct uop *x, int to)
{
    int64_t perm[MAX_RANK];
    for (int a = 0; a < x->ndim; a++)
        perm[a] = a < to ? a + 1 : a == to ? 0 : a;
    return lib_permute(&n->lib, x, perm, x->ndim);
}

bool lower_scan(struct node *n)
{
    struct tgc *t = n->t;
    const GraphProto *body = graph_attr(n, "body");
    int nscan_in = (int)node_int(n, "num_scan_inputs", 0), nstate = n->nin - nscan_in;
    if (!body)
        return false;
    int nscan = (int)body->n_output - nstate;
    if (nscan_in < 1 || nstate < 0 || nscan < 0 || n->nout > (int)body->n_output ||
        (int)body->n_input != n->nin)
        return node_error(n, -1,
                          "num_scan_inputs %d does not go with %d inputs and a body of %zu inputs "
                          "and %zu outputs",
                          nscan_in, n->nin, body->n_input, body->n_output);
    int64_t *in_axis = mem_array(t, (size_t)nscan_in, 8),
            *in_reverse = mem_array(t, (size_t)nscan_in, 8);
    int64_t *out_axis = mem_array(t, (size_t)nscan + 1, 8),
            *out_reverse = mem_array(t, (size_t)nscan + 1, 8);
    if (!scan_ints(n, "scan_input_axes", nscan_in, in_axis) ||
        !scan_ints(n, "scan_input_directions", nscan_in, in_reverse) ||
        !scan_ints(n, "scan_output_axes", nscan, out_axis) ||
        !scan_ints(n, "scan_output_directions", nscan, out_reverse))
        return false;
    struct value **args = mem_array(t, (size_t)n->nin + 1, sizeof *args),
                 **out = mem_array(t, body->n_output + 1, sizeof *out);
    struct uop *trip = NULL, **next = mem_array(t, body->n_output + 1, sizeof *next);
    int axis[64];
    for (int k = 0; k < n->nin; k++)
        if (!n->in[k])
            return node_error(n, k, "input %d is missing", k);
    if (nscan_in > 64)
        return node_error(n, -1, "more than 64 scan inputs");
    for (int k = 0; k < nscan_in; k++) {
        struct uop *x = n->in[nstate + k];
        if (!node_axis(n, in_axis[k], x->ndim, &axis[k]))
            return false;
        if (trip && !sym_equal(t, trip, x->dim[axis[k]]))
            return node_error(n, nstate + k,
                              "its scanned axis has another length than that of input %d", nstate);
        trip = trip ? trip : x->dim[axis[k]];
    }
    struct lib_loop *loop = lib_loop_begin(&n->lib, trip, NULL, n->in, nstate);
    if (!loop)
        return false;
    for (int k = 0; k < nstate; k++)
        args[k] = value_tensor(t, loop->param[k]);
    for (int k = 0; k < nscan_in; k++) {
        struct uop *at =
            in_reverse[k] ? sym_sub(t, sym_addi(t, trip, -1), loop->counter) : loop->counter;
        struct uop *x = node_slice_at(n, n->in[nstate + k], axis[k], at);
        if (!x)
            return false;
        args[nstate + k] = value_tensor(t, x);
    }
    if (!lower_subgraph(n, body, args, n->nin, out))
        return false;
    for (int k = 0; k < nstate + nscan; k++) {
        if (out[k]->kind != VALUE_TENSOR)
            return node_error(n, -1, "output %d of its body is no tensor", k);
        next[k] = out[k]->tensor;
        if (k < nstate && !same_shape(t, n->in[k], next[k]))
            return node_error(n, k, "state %d starts as %s and becomes %s; it must keep its shape",
                              k, shape_text(n, n->in[k]), shape_text(n, next[k]));
    }
    struct uop *all = lib_loop_end(&n->lib, loop, NULL, next, next + nstate, nscan, trip);
    if (!all)
        return false;
    widen_outputs(n, nstate + nscan);
    for (int k = 0; k < nstate + nscan; k++) {
        struct uop *r = lib_get(&n->lib, all, k);
        int to;
        if (k >= nstate) {
            if (!node_axis(n, out_axis[k - nstate], r->ndim, &to))
                return false;
            r = out_reverse[k - nstate] ? uop_flip(t, r, 1u) : r;
            r = move_first_axis(n, r, to);
        }
        n->out[k] = r;
    }
    return true;
}
