/* lower_loop.c - Loop and Scan.
 *
 * A loop is one LOOP of the program: trip count and condition may be run-time data. The conditions
 * that the body assumes are one more carried value, a bool that the run checks after the loop.
 *
 * If a carried value changes its shape, a box of constant size is carried, together with the
 * dimensions in use; the body reads them as symbols. Scan outputs of a loop whose length only the
 * run knows are stacked in a box, too. The model's declarations or --dim give the sizes of boxes.
 * Loops over sequences, and those without a bound, are unrolled if the trip count is known.
 */
#include <string.h>

#include "frontend/onnx/lower.h"

enum { MAX_UNROLL = 1024, MAX_ROUNDS = 6 };

/* ----------------------------------------------------------------------------------------- Loop */

/* The initial values of a loop. */
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

/* Unrolls the loop: one iteration after the other, as nodes. */
static bool unroll_loop(struct node *n, const struct loop_start *s)
{
    struct tgc *t = n->t;
    int nout = 1 + s->ncarried + s->nscan;
    struct value **args = mem_array(t, (size_t)s->ncarried + 2, sizeof *args),
                 **out = mem_array(t, (size_t)nout, sizeof *out);
    struct uop **part = mem_array(t, (size_t)s->known_trip * (size_t)s->nscan + 1, sizeof *part);
    int done = 0;
    ARRAY_COPY(args + 2, s->init, s->ncarried);
    for (int64_t i = 0; i < s->known_trip; i++) {
        args[0] = value_tensor(t, uop_int(t, i));
        args[1] = value_tensor(t, uop_bool(t, true));
        if (!lower_subgraph(n, s->body, args, s->ncarried + 2, out))
            return false;
        ARRAY_COPY(args + 2, out + 1, s->ncarried);
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

/* The value stacked as output k: its shape must be the same in all iterations. If it changes, the
 * declaration of the output says which. */
static struct uop *loop_row(const struct node *n, const struct loop *loop, struct uop *x, int k)
{
    struct uop *dim[MAX_RANK];
    bool fits = true;
    for (int a = 0; a < x->ndim; a++) {
        dim[a] = x->dim[a];
        if (!lower_depends_on(n->lower, dim[a], loop))
            continue;
        int64_t declared = node_declared_dim(n, k, a + 1);
        if (declared < 0) {
            node_error(n, -1,
                       "what it stacks as output %d is %s, whose shape changes from one iteration "
                       "to the next; it must not, unless the model declares what it is",
                       k, shape_text(n, x));
            return NULL;
        }
        fits = false;
        dim[a] = uop_int(n->t, declared);
    }
    return fits ? x : tensor_fit(n->t, x, dim);
}

/* A carried value: which axes change, and the box for them. guess: the box has the size after the
 * first iteration, which has to suffice for the others. */
struct carried { bool open[MAX_RANK], guess[MAX_RANK]; struct uop *box[MAX_RANK]; };

/* One attempt to lower the body, with the present knowledge of shapes that change. */
struct building {
    const struct loop_start *s;
    struct carried *carried;
    struct lib_loop *loop;
    struct value **out;          /* of the body */
    struct uop **next;           /* values carried to the next iteration */
    struct uop *ok;              /* conditions that the body assumes */
    int ninit;                   /* carried values, dimensions of boxes, iterations done */
};

static bool is_boxed(const struct carried *c, int rank)
{
    for (int a = 0; a < rank; a++)
        if (c->open[a])
            return true;
    return false;
}

/* Carried value k has another shape than its initial value: its declaration settles it, or the axis
 * gets a box. false: reported. */
static bool settle_shape(const struct node *n, struct building *b, int k, struct uop **next,
                         bool *again)
{
    struct carried *c = &b->carried[k];
    struct uop *init = b->s->init[k]->tensor, *x = *next;
    if (x->dtype != init->dtype || x->ndim != init->ndim)
        return node_error(
            n, -1,
            "carried value %d starts as %s and becomes %s; it must keep its dtype and "
            "rank",
            k, shape_text(n, init), shape_text(n, x));
    for (int a = 0; a < x->ndim; a++) {
        struct uop *had = init->dim[a];
        if (c->guess[a] && x->dim[a]->vmax > c->box[a]->vmax) {
            int64_t most = node_bound(n, k, a, INT64_MAX);
            if (most < 0)
                return false;
            c->box[a] = uop_int(n->t, most < had->vmax ? had->vmax : most);
            c->guess[a] = false;
            *again = true;
        }
        if (c->open[a] || sym_equal(n->t, had, x->dim[a]))
            continue;
        const char *name = b->s->body->output[1 + k]->name;
        int64_t declared = lower_declared_dim(b->s->body, name, a);
        if (declared >= 0 && uop_is_int(had, declared)) {
            if (!node_require(n, -1, uop_binary(n->t, OP_EQ, x->dim[a], had),
                              "a carried value is not of the declared shape"))
                return false;
            continue;
        }
        int64_t most = node_bound(n, k, a, x->dim[a]->vmax);
        if (most < 0)
            return false;
        if (most < had->vmax)
            most = had->vmax;
        c->open[a] = true;
        c->guess[a] = most == x->dim[a]->vmax;
        c->box[a] = uop_int(n->t, most);
        *again = true;
    }
    if (*again)
        return true;
    struct uop *dim[MAX_RANK];
    for (int a = 0; a < x->ndim; a++)
        dim[a] = c->open[a] ? c->box[a] : init->dim[a];
    for (int a = 0; a < x->ndim; a++)
        if (c->open[a] &&
            !node_require(n, -1, uop_not(n->t, sym_lt(n->t, dim[a], x->dim[a])),
                          "a carried value grows beyond its bound"))
            return false;
    return (*next = tensor_fit(n->t, x, dim)) != NULL;
}

/* The loop's initial values: each in its box, then the dimensions in use. */
static struct uop **loop_init(const struct node *n, struct building *b)
{
    const struct loop_start *s = b->s;
    struct uop **init = mem_array(n->t, (size_t)(s->ncarried * (MAX_RANK + 1) + 2), sizeof *init);
    b->ninit = 0;
    for (int k = 0; k < s->ncarried; k++) {
        struct uop *x = s->init[k]->tensor, *dim[MAX_RANK];
        for (int a = 0; a < x->ndim; a++)
            dim[a] = b->carried[k].open[a] ? b->carried[k].box[a] : x->dim[a];
        if (!(init[b->ninit++] = tensor_fit(n->t, x, dim)))
            return NULL;
    }
    for (int k = 0; k < s->ncarried; k++)
        for (int a = 0; a < s->init[k]->tensor->ndim; a++)
            if (b->carried[k].open[a])
                init[b->ninit++] = s->init[k]->tensor->dim[a];
    init[b->ninit++] = uop_int(n->t, 0);
    init[b->ninit] = uop_bool(n->t, true);
    return init;
}

/* x[k] out of its box, by the dimensions that follow all carried values. */
static struct uop *unboxed(const struct node *n, const struct building *b, int k,
                           struct uop *const *x, bool after)
{
    const struct uop *init = b->s->init[k]->tensor;
    struct uop *dim[MAX_RANK];
    int at = b->s->ncarried;
    for (int i = 0; i < k; i++)
        for (int a = 0; a < b->s->init[i]->tensor->ndim; a++)
            at += b->carried[i].open[a];
    if (!is_boxed(&b->carried[k], init->ndim))
        return x[k];
    for (int a = 0; a < init->ndim; a++) {
        dim[a] = init->dim[a];
        if (!b->carried[k].open[a])
            continue;
        const char *name = after ? node_output_dim_name(n, k, a)
                                 : mem_printf(n->t, "%s_dim%d", b->s->body->input[2 + k]->name, a);
        if (!(dim[a] = node_symbol(n, -1, x[at++], name, 0, b->carried[k].box[a])))
            return NULL;
    }
    return node_out_of_box(n, x[k], dim);
}

static bool lower_body(struct node *n, struct building *b, bool *unfit)
{
    const struct loop_start *s = b->s;
    struct tgc *t = n->t;
    struct uop **init = loop_init(n, b);
    struct value **args = mem_array(t, (size_t)s->ncarried + 2, sizeof *args);
    struct uop *trip = s->trip ? s->trip : uop_int(t, INT64_MAX);
    if (!init || !(b->loop = lib_loop_begin(&n->lib, trip, s->cond, init, b->ninit + 1)))
        return false;
    args[0] = value_tensor(t, b->loop->counter);
    args[1] = value_tensor(t, uop_bool(t, true));
    int mark = n->lower->ncheck;
    for (int k = 0; k < s->ncarried; k++) {
        struct uop *x = unboxed(n, b, k, b->loop->param, false);
        if (!x)
            return false;
        args[2 + k] = value_tensor(t, x);
    }
    if (!lower_subgraph(n, s->body, args, s->ncarried + 2, b->out)) {
        *unfit = true;
        return false;
    }
    for (int k = 0; k < 1 + s->ncarried + s->nscan; k++)
        *unfit |= b->out[k]->kind != VALUE_TENSOR;
    b->ok = lower_take_checks(n->lower, mark);
    return !*unfit || node_error(n, -1,
                                 "its body makes sequences or optionals, and its trip count is not "
                                 "known when the model is compiled");
}

/* The lengths of the stacks of scan outputs: *length is their dimension in the program, *used the
 * part that the loop fills, NULL: all. A loop that may end early fills some of an upper bound; one
 * with a trip count known only at run time has a symbol. */
static bool stack_length(struct node *n, struct building *b, bool ends_early, struct uop **length,
                         bool *partly)
{
    const struct loop_start *s = b->s;
    struct tgc *t = n->t;
    int first = s->ncarried;
    *partly = ends_early || !s->trip;
    if (!*partly) {
        struct uop *count = uop_binary(t, OP_MAX, s->trip, uop_int(t, 0));
        *length = node_symbol(n, 0, count, node_output_dim_name(n, first, 0), 0, NULL);
        b->loop->trip = *length ? *length : b->loop->trip;
        return *length != NULL;
    }
    int64_t most = node_bound(n, first, 0, s->trip ? s->trip->vmax : INT64_MAX);
    if (most < 0)
        return false;
    *length = uop_int(t, most);
    b->loop->trip = uop_binary(t, OP_MIN, b->loop->trip, *length);
    return true;
}

/* Lowers the body repeatedly until the shapes of carried values are settled. */
static bool settle_body(struct node *n, struct building *b, bool *unfit)
{
    struct attempt start = attempt_begin(n);
    for (int round = 0;; round++) {
        bool again = false;
        int mark = n->lower->ncheck;
        if (!lower_body(n, b, unfit))
            return false;
        for (int k = 0; k < b->s->ncarried; k++) {
            b->next[k] = b->out[1 + k]->tensor;
            if (!settle_shape(n, b, k, &b->next[k], &again)) {
                *unfit = true;
                return false;
            }
        }
        b->ok = uop_binary(n->t, OP_AND, b->ok, lower_take_checks(n->lower, mark));
        if (!again)
            return true;
        if (round == MAX_ROUNDS)
            return node_error(n, -1, "the shapes of its carried values depend on each other");
        attempt_undo(n, start);
    }
}

/* The node's outputs from the loop's. at: the first carried value that is not the model's; partly:
 * it says how much of the stacks is filled. */
static bool give_results(struct node *n, struct building *b, struct uop *all, int at, bool partly,
                         struct uop *length)
{
    const struct loop_start *s = b->s;
    int ncarried = b->loop->loop->ncarried;
    struct uop **get = mem_array(n->t, (size_t)(ncarried + s->nscan) + 1, sizeof *get);
    for (int k = 0; k < ncarried + s->nscan; k++)
        get[k] = lib_get(&n->lib, all, k);
    for (int k = 0; k < s->ncarried; k++)
        if (!(n->out[k] = unboxed(n, b, k, get, true)))
            return false;
    for (int k = 0; k < s->nscan; k++) {
        struct uop *x = get[ncarried + k], *dim[MAX_RANK];
        for (int a = 0; a < x->ndim; a++)
            dim[a] = x->dim[a];
        const char *name = node_output_dim_name(n, s->ncarried, 0);
        if (partly && !(dim[0] = node_symbol(n, -1, get[at], name, 0, length)))
            return false;
        n->out[s->ncarried + k] = node_out_of_box(n, x, dim);
    }
    bool checked = ncarried == at + 2;
    return !checked || node_require(n, -1, get[at + 1], "its body cannot work with these values");
}

/* Builds a loop in the program. *unfit: it carries something other than tensors, or has no bound,
 * so it has to be unrolled. */
static bool build_loop(struct node *n, const struct loop_start *s, bool *unfit)
{
    struct tgc *t = n->t;
    int nout = 1 + s->ncarried + s->nscan;
    struct building b = {.s = s};
    b.out = mem_array(t, (size_t)nout, sizeof *b.out);
    b.carried = mem_array(t, (size_t)s->ncarried + 1, sizeof *b.carried);
    b.next = mem_array(t, (size_t)(nout + s->ncarried * MAX_RANK + 3), sizeof *b.next);
    for (int k = 0; k < s->ncarried; k++)
        *unfit |= s->init[k]->kind != VALUE_TENSOR;
    if (*unfit)
        return node_error(n, -1,
                          "it carries sequences or optionals, and its trip count is not known when "
                          "the model is compiled");
    if (!settle_body(n, &b, unfit))
        return false;
    int at = s->ncarried;
    for (int k = 0; k < s->ncarried; k++)
        for (int a = 0; a < s->init[k]->tensor->ndim; a++)
            if (b.carried[k].open[a])
                b.next[at++] = b.out[1 + k]->tensor->dim[a];
    struct uop *cond = uop_reshape(t, b.out[0]->tensor, NULL, 0);
    struct uop *known = tensor_element(t, cond, NULL);
    bool ends_early = !known || !uop_is_int(known, 1), partly = false;
    struct loop_start only = *s;
    if (!ends_early && s->cond && s->trip) { /* all iterations, or none */
        only.trip = b.loop->trip = uop_where(t, s->cond, s->trip, uop_int(t, 0));
        b.loop->cond = uop_bool(t, true);
        b.s = s = &only;
    }
    struct uop *length = s->trip ? tensor_element(t, s->trip, NULL) : NULL;
    if (s->nscan && (ends_early || !length) && !stack_length(n, &b, ends_early, &length, &partly)) {
        *unfit = true;
        return false;
    }
    /* if the loop would continue, had it room, one more iteration is counted, which fails the
     * check */
    struct uop *done = uop_binary(t, OP_ADD, b.loop->param[at], uop_int(t, 1));
    struct uop *wants = s->trip ? uop_binary(t, OP_LT, length ? length : done, s->trip)
                                : uop_bool(t, true);
    if (partly)
        done = uop_where(t, uop_binary(t, OP_AND, uop_binary(t, OP_EQ, done, length),
                                       uop_binary(t, OP_AND, wants, cond)),
                         sym_addi(t, length, 1), done);
    b.next[at] = done;
    b.next[at + 1] = uop_binary(t, OP_AND, b.loop->param[at + 1], b.ok);
    b.loop->loop->ncarried = !uop_is_int(b.ok, 1) ? at + 2 : partly ? at + 1 : at;
    struct uop **scan = mem_array(t, (size_t)s->nscan + 1, sizeof *scan);
    for (int k = 0; k < s->nscan; k++) {
        struct uop *row = b.out[1 + s->ncarried + k]->tensor;
        if (!(scan[k] = loop_row(n, b.loop->loop, row, s->ncarried + k)))
            return false;
    }
    struct uop *all = lib_loop_end(&n->lib, b.loop, ends_early ? cond : NULL, b.next, scan,
                                   s->nscan, length);
    return all && give_results(n, &b, all, at, partly, length);
}

static bool loop_operands(struct node *n, struct loop_start *s)
{
    int64_t known;
    s->body = node_graph(n, "body");
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

/* The row of results may be longer than the node's outputs. */
static void widen_outputs(struct node *n, int count)
{
    if (count <= MIN_SLOTS || count <= n->nout)
        return;
    n->out = mem_array(n->t, (size_t)count, sizeof *n->out);
    n->value_out = mem_array(n->t, (size_t)count, sizeof *n->value_out);
}

/* Trip count and first condition from the values that the caller gave; false: neither is known. */
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
        know_loop(n, &s)) { /* again with the values that the caller gave for inputs */
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

/* Moves axis 0, along which results were stacked, to its place. */
static struct uop *move_first_axis(const struct node *n, struct uop *x, int to)
{
    int64_t perm[MAX_RANK];
    for (int a = 0; a < x->ndim; a++)
        perm[a] = a < to ? a + 1 : a == to ? 0 : a;
    return lib_permute(&n->lib, x, perm, x->ndim);
}

/* What a Scan says of its inputs and outputs. */
struct scan {
    const GraphProto *body;
    int nstate, nin, nout;       /* states; scan inputs; scan outputs */
    int64_t *in_axis, *in_reverse, *out_axis, *out_reverse;
};

static bool scan_attributes(struct node *n, int first, struct scan *s)
{
    struct tgc *t = n->t;
    s->body = node_graph(n, "body");
    if (!s->body || !node_int_within(n, "num_scan_inputs", 0, 1, n->nin - first, &s->nin))
        return false;
    s->nstate = n->nin - first - s->nin;
    s->nout = (int)s->body->n_output - s->nstate;
    if (s->nout < 0 || n->nout > (int)s->body->n_output ||
        (int)s->body->n_input != n->nin - first)
        return node_error(n, -1,
                          "num_scan_inputs %d does not go with %d inputs and a body of %zu inputs "
                          "and %zu outputs",
                          s->nin, n->nin - first, s->body->n_input, s->body->n_output);
    s->in_axis = mem_array(t, (size_t)s->nin, 8);
    s->in_reverse = mem_array(t, (size_t)s->nin, 8);
    s->out_axis = mem_array(t, (size_t)s->nout + 1, 8);
    s->out_reverse = mem_array(t, (size_t)s->nout + 1, 8);
    for (int k = first; k < n->nin; k++)
        if (!n->in[k])
            return node_error(n, k, "input %d is missing", k);
    if (n->opset < 9)
        return scan_ints(n, "directions", s->nin, s->in_reverse);
    return scan_ints(n, "scan_input_axes", s->nin, s->in_axis) &&
           scan_ints(n, "scan_input_directions", s->nin, s->in_reverse) &&
           scan_ints(n, "scan_output_axes", s->nout, s->out_axis) &&
           scan_ints(n, "scan_output_directions", s->nout, s->out_reverse);
}

/* One scan over x[]: nstate states, then the inputs; out[] as the body's outputs. trip: NULL, or
 * how many steps there are. */
static bool run_scan(struct node *n, const struct scan *s, struct uop *const *x, struct uop *trip,
                     struct uop **out)
{
    struct tgc *t = n->t;
    int count = s->nstate + s->nin, nbody = s->nstate + s->nout;
    struct uop *length = NULL, **init = mem_array(t, (size_t)count + 2, sizeof *init),
               **next = mem_array(t, (size_t)nbody + 2, sizeof *next);
    struct value **args = mem_array(t, (size_t)count + 1, sizeof *args),
                 **made = mem_array(t, (size_t)nbody + 1, sizeof *made);
    int *axis = mem_array(t, (size_t)s->nin, sizeof *axis);
    for (int k = 0; k < s->nin; k++) {
        struct uop *in = x[s->nstate + k];
        if (!node_axis(n, s->in_axis[k], in->ndim, &axis[k]))
            return false;
        struct uop *dim = in->dim[axis[k]];
        length = length ? length : dim;
        if (!sym_equal(t, length, dim) &&
            !node_require(n, -1, uop_binary(t, OP_EQ, length, dim),
                          "the scanned axes of the inputs have different lengths"))
            return false;
    }
    ARRAY_COPY(init, x, s->nstate);
    init[s->nstate] = uop_bool(t, true);
    struct lib_loop *loop =
        lib_loop_begin(&n->lib, trip ? trip : length, NULL, init, s->nstate + 1);
    if (!loop)
        return false;
    for (int k = 0; k < s->nstate; k++)
        args[k] = value_tensor(t, loop->param[k]);
    for (int k = 0; k < s->nin; k++) {
        struct uop *last = sym_addi(t, trip ? trip : length, -1);
        struct uop *at = s->in_reverse[k] ? sym_sub(t, last, loop->counter) : loop->counter;
        struct uop *part = node_slice_at(n, x[s->nstate + k], axis[k], at);
        if (!part)
            return false;
        args[s->nstate + k] = value_tensor(t, part);
    }
    int mark = n->lower->ncheck;
    if (!lower_subgraph(n, s->body, args, count, made))
        return false;
    struct uop *ok = lower_take_checks(n->lower, mark);
    for (int k = 0; k < nbody; k++) {
        if (made[k]->kind != VALUE_TENSOR)
            return node_error(n, -1, "output %d of its body is no tensor", k);
        next[k] = made[k]->tensor;
        if (k < s->nstate && !lower_same_shape(t, x[k], next[k]))
            return node_error(n, -1,
                              "state %d starts as %s and becomes %s; it must keep its shape", k,
                              shape_text(n, x[k]), shape_text(n, next[k]));
        if (k >= s->nstate && !(next[k] = loop_row(n, loop->loop, next[k], k)))
            return false;
    }
    bool checked = !uop_is_int(ok, 1);
    struct uop **scan = mem_copy(t, next + s->nstate, (size_t)(s->nout + 1) * sizeof *scan);
    next[s->nstate] = uop_binary(t, OP_AND, loop->param[s->nstate], ok);
    loop->loop->ncarried = s->nstate + checked;
    struct uop *all = lib_loop_end(&n->lib, loop, NULL, next, scan, s->nout, length);
    for (int k = 0; all && k < nbody; k++) {
        int to;
        out[k] = lib_get(&n->lib, all, k < s->nstate ? k : k + checked);
        if (k < s->nstate)
            continue;
        if (!node_axis(n, s->out_axis[k - s->nstate], out[k]->ndim, &to))
            return false;
        out[k] = s->out_reverse[k - s->nstate] ? uop_flip(t, out[k], 1u) : out[k];
        out[k] = move_first_axis(n, out[k], to);
    }
    return all && (!checked || node_require(n, -1, lib_get(&n->lib, all, s->nstate),
                                            "its body cannot work with these values"));
}

bool lower_scan(struct node *n)
{
    struct scan s = {0};
    if (!scan_attributes(n, 0, &s))
        return false;
    widen_outputs(n, s.nstate + s.nout);
    return run_scan(n, &s, n->in, NULL, n->out);
}

/* Opset 8: axis 0 of everything is a batch, each of which has its own scan along what was axis 1;
 * sequence_lens may end it earlier. */
bool lower_scan_batched(struct node *n)
{
    struct tgc *t = n->t;
    struct scan s = {0};
    if (!scan_attributes(n, 1, &s))
        return false;
    int count = s.nstate + s.nin, nout = s.nstate + s.nout;
    struct uop **x = n->in + 1, **part = mem_array(t, (size_t)count + 1, sizeof *part),
               **out = mem_array(t, (size_t)nout + 1, sizeof *out), *ok = uop_bool(t, true);
    for (int k = 0; k < count; k++)
        if (x[k]->ndim < 1 + (k >= s.nstate) || !sym_equal(t, x[k]->dim[0], x[0]->dim[0]))
            return node_error(n, 1 + k, "a batch in axis 0 is expected, found %s",
                              shape_text(n, x[k]));
    if (n->in[0] && (!node_rank(n, 0, 1, 1) || n->in[0]->dtype != DTYPE_I64))
        return n->in[0]->dtype == DTYPE_I64 ? false
                                            : node_error(n, 0, "i64[batch] is expected, found %s",
                                                         shape_text(n, n->in[0]));
    struct lib_loop *loop = lib_loop_begin(&n->lib, x[0]->dim[0], NULL, &ok, 1);
    if (!loop)
        return false;
    for (int k = 0; k < count; k++)
        if (!(part[k] = node_slice_at(n, x[k], 0, loop->counter)))
            return false;
    int mark = n->lower->ncheck;
    struct uop *trip = NULL;
    if (n->in[0]) {
        trip = node_slice_at(n, n->in[0], 0, loop->counter);
        trip = trip ? node_symbol(n, 0, trip, node_input_name(n, 0, 0, 1), 0, x[s.nstate]->dim[1])
                    : NULL;
        if (!trip)
            return false;
    }
    if (!run_scan(n, &s, part, trip, out))
        return false;
    struct uop *fine = uop_binary(t, OP_AND, loop->param[0], lower_take_checks(n->lower, mark));
    struct uop *all = lib_loop_end(&n->lib, loop, NULL, &fine, out, nout, x[0]->dim[0]);
    widen_outputs(n, nout);
    for (int k = 0; all && k < nout; k++)
        n->out[k] = lib_get(&n->lib, all, 1 + k);
    return all && node_require(n, -1, lib_get(&n->lib, all, 0),
                               "its body cannot work with these values");
}
