/* library_rnn.c - LSTM, GRU and the plain recurrent layer. source: ONNX LSTM, GRU, RNN 22.
 *
 * What does not depend on the state is one contraction over the whole sequence, before the loop:
 *
 *      xw [t, b, gates*h] = x w^T + bias
 *      loop over t:  z = xw[t] + h r^T;  (h, c) = cell(z, h, c);  scan h
 *
 * The reverse direction reads xw from its end and reverses the scanned result; with sequence
 * lengths each row is reversed within its own length, and a row that has ended keeps its state and
 * scans zeros.
 */
#include "frontend/library.h"

#include <string.h>

struct cell {                            /* one direction of one layer, in the accumulation dtype */
    const struct lib *l;
    const struct rnn_attr *a;
    const struct rnn_activation *act;
    struct uop *r;                       /* [gates*h, h] */
    /* [h]: recurrent bias of GRU's h gate, for linear_before_reset; NULL */
    struct uop *rbias;
    struct uop *peephole;                /* [3*h] or NULL */
    struct uop *h;                       /* size of the state */
    const struct rnn_operands *in;
    int direction;
};

static int gate_count(enum rnn_kind kind) { return kind == RNN_LSTM ? 4 : kind == RNN_GRU ? 3 : 1; }

static struct uop *clipped(const struct cell *c, struct uop *x)
{
    if (c->a->clip <= 0)
        return x;
    return lib_binaryf(c->l, OP_MIN, lib_binaryf(c->l, OP_MAX, x, -c->a->clip), c->a->clip);
}

static struct uop *act(const struct cell *c, int i, struct uop *x, const char *word)
{
    x = lib_activate(c->l, c->act[i].kind, clipped(c, x), c->act[i].alpha, c->act[i].beta);
    uop_name_value(c->l->t, x, word);
    return x;
}

/* Gate i of [.., gates*h]. */
static struct uop *gate(const struct cell *c, struct uop *z, int i)
{
    return z ? lib_narrow(c->l, z, -1, sym_muli(c->l->t, c->h, i), c->h) : NULL;
}

static struct uop *with_peephole(const struct cell *c, struct uop *z, struct uop *state, int i)
{
    return c->peephole ? lib_add(c->l, z, lib_mul(c->l, gate(c, c->peephole, i), state)) : z;
}

static struct uop *of_state(const struct cell *c, struct uop *h)
{
    return c->in->product ? c->in->product(c->in->ctx, h, true, c->direction)
                          : lib_linear(c->l, h, c->r, NULL);
}

/* One step: z [b, gates*h] is the input's contribution. state: h, c -> next state. */
static void lstm_step(const struct cell *c, struct uop *x, struct uop *const *state,
                      struct uop **next)
{
    const struct lib *l = c->l;
    struct uop *z = lib_add(l, x, of_state(c, state[0]));
    struct uop *in = act(c, 0, with_peephole(c, gate(c, z, 0), state[1], 0), "gate_i");
    struct uop *forget = c->a->input_forget
                             ? (in ? lib_sub(l, lib_scalar(l, in, 1), in) : NULL)
                             : act(c, 0, with_peephole(c, gate(c, z, 2), state[1], 2), "gate_f");
    struct uop *cell = lib_add(l, lib_mul(l, forget, state[1]),
                               lib_mul(l, in, act(c, 1, gate(c, z, 3), "gate_c")));
    uop_name_value(l->t, cell, "cell");
    struct uop *out = act(c, 0, with_peephole(c, gate(c, z, 1), cell, 1), "gate_o");
    next[0] = lib_mul(l, out,
                      lib_activate(l, c->act[2].kind, cell, c->act[2].alpha, c->act[2].beta));
    next[1] = cell;
}

static void gru_step(const struct cell *c, struct uop *x, struct uop *const *state,
                     struct uop **next)
{
    const struct lib *l = c->l;
    struct uop *h = state[0], *two = sym_muli(l->t, c->h, 2), *zero = uop_int(l->t, 0), *wide;
    struct uop *r_zr = lib_narrow(l, c->r, 0, zero, two), *r_h = lib_narrow(l, c->r, 0, two, c->h);
    wide = lib_linear(l, h, c->a->linear_before_reset ? c->r : r_zr, NULL);
    struct uop *update = act(c, 0, lib_add(l, gate(c, x, 0), gate(c, wide, 0)), "gate_z");
    struct uop *reset = act(c, 0, lib_add(l, gate(c, x, 1), gate(c, wide, 1)), "gate_r"), *inner;
    if (c->a->linear_before_reset) {
        inner = gate(c, wide, 2);
        inner = lib_mul(l, reset, c->rbias ? lib_add(l, inner, c->rbias) : inner);
    } else {
        inner = lib_linear(l, lib_mul(l, reset, h), r_h, NULL);
    }
    struct uop *fresh = act(c, 1, lib_add(l, gate(c, x, 2), inner), "gate_h");
    struct uop *keep = update ? lib_sub(l, lib_scalar(l, update, 1), update) : NULL;
    next[0] = lib_add(l, lib_mul(l, keep, fresh), lib_mul(l, update, h));
}

static void rnn_step(const struct cell *c, struct uop *x, struct uop *const *state,
                     struct uop **next)
{
    if (c->a->kind == RNN_LSTM)
        lstm_step(c, x, state, next);
    else if (c->a->kind == RNN_GRU)
        gru_step(c, x, state, next);
    else
        next[0] = act(c, 0, lib_add(c->l, x, lib_linear(c->l, state[0], c->r, NULL)), "state");
}

/* x [t, b, n] with time reversed: each row within its own length, if there are lengths. It is its
 * own inverse. */
static struct uop *turned(const struct lib *l, struct uop *x, struct uop *lens)
{
    struct tgc *t = l->t;
    if (!x || !lens)
        return x ? uop_flip(t, x, 1) : NULL;
    struct uop *index[3], *dim[3] = {uop_int(t, 1), x->dim[1], uop_int(t, 1)};
    for (int a = 0; a < 3; a++)
        index[a] = tensor_iota(t, x->dim, 3, a);
    struct uop *n = tensor_broadcast_to(t, uop_reshape(t, lens, dim, 3), x->dim, 3);
    struct uop *back = uop_binary(t, OP_SUB, uop_binary(t, OP_ADD, n, uop_int(t, -1)), index[0]);
    index[0] = uop_where(t, uop_binary(t, OP_LT, index[0], n), back, index[0]);
    return uop_index(t, x, index);
}

/* One direction: xw [t, b, gates*h], states [b, h]. out: y [t, b, h] and the final states. */
static bool run_direction(const struct cell *c, struct uop *xw, struct uop *lens, bool reverse,
                          struct uop *const *init, struct uop **out)
{
    const struct lib *l = c->l;
    struct tgc *t = l->t;
    int nstate = c->a->kind == RNN_LSTM ? 2 : 1;
    if (xw && uop_is_int(xw->dim[0], 0)) { /* no step: the initial state is the final one */
        struct uop *dim[3] = {xw->dim[0], xw->dim[1], c->h};
        out[0] = lib_full(l, xw->dtype, 0, dim, 3);
        out[1] = init[0];
        out[2] = nstate == 2 ? init[1] : NULL;
        return true;
    }
    if (reverse)
        xw = turned(l, xw, lens);
    struct lib_loop *loop = xw ? lib_loop_begin(l, xw->dim[0], NULL, init, nstate) : NULL;
    if (!loop)
        return false;
    struct uop *next[2] = {NULL, NULL}, *scan;
    struct uop *x = tensor_drop_axes(t, lib_narrow(l, xw, 0, loop->counter, uop_int(t, 1)), 1);
    rnn_step(c, x, loop->param, next);
    scan = next[0];
    if (lens && next[0]) {
        struct uop *dim[2] = {lens->dim[0], uop_int(t, 1)};
        struct uop *live = uop_binary(t, OP_LT, loop->counter, uop_reshape(t, lens, dim, 2));
        scan = lib_where(l, live, next[0], lib_scalar(l, next[0], 0));
        for (int k = 0; k < nstate; k++)
            next[k] = lib_where(l, live, next[k], loop->param[k]);
    }
    struct uop *end = lib_loop_end(l, loop, NULL, next, &scan, 1, xw->dim[0]);
    out[0] = lib_get(l, end, nstate);
    if (reverse)
        out[0] = turned(l, out[0], lens);
    for (int k = 0; k < nstate; k++)
        out[1 + k] = lib_get(l, end, k);
    return out[0] != NULL;
}

/* ---- operands */

static bool has_dims(const struct lib *l, const struct uop *x, int ndim, struct uop *const *dim)
{
    bool same = x->ndim == ndim;
    for (int a = 0; same && a < ndim; a++)
        same = sym_equal(l->t, x->dim[a], dim[a]);
    return same;
}

static bool check_operand(const struct lib *l, const char *name, const struct uop *x, enum dtype d,
                          struct uop *a, struct uop *b, struct uop *c, const char *expected)
{
    struct uop *dim[3] = {a, b, c};
    if (!x || (x->dtype == d && has_dims(l, x, c ? 3 : b ? 2 : 1, dim)))
        return true;
    lib_error(l, "recurrent layer: %s is %s; it must be %s %s", name, lib_describe(l, x),
              dtype_name(d), expected);
    return false;
}

static bool check_operands(const struct lib *l, const struct rnn_attr *a,
                           const struct rnn_operands *in, struct uop *h)
{
    struct tgc *t = l->t;
    int gates = gate_count(a->kind), ndir = a->direction == RNN_BIDIRECTIONAL ? 2 : 1;
    struct uop *d = uop_int(t, ndir), *gh = sym_muli(t, h, gates),
               *b = in->x->dim[a->batch_first ? 0 : 1];
    enum dtype f = in->x->dtype, weight = in->product ? in->w->dtype : f;
    struct uop *s0 = a->batch_first ? b : d, *s1 = a->batch_first ? d : b;
    const char *state = a->batch_first ? "[batch, directions, hidden]"
                                       : "[directions, batch, hidden]";
    return check_operand(l, "w", in->w, weight, d, gh, in->x->dim[2],
                         "[directions, gates * hidden, input]") &&
           check_operand(l, "r", in->r, weight, d, gh, h, "[directions, gates * hidden, hidden]") &&
           check_operand(l, "the bias", in->bias, f, d, sym_muli(t, gh, 2), NULL,
                         "[directions, 2 * gates * hidden]") &&
           check_operand(l, "h0", in->h0, f, s0, s1, h, state) &&
           check_operand(l, "c0", in->c0, f, s0, s1, h, state) &&
           check_operand(l, "the peephole", in->peephole, f, d, sym_muli(t, h, 3), NULL,
                         "[directions, 3 * hidden]") &&
           (!in->seq_lens || check_operand(l, "seq_lens", in->seq_lens, in->seq_lens->dtype, b,
                                           NULL, NULL, "[batch]"));
}

/* Row i of the first axis, that axis dropped. */
static struct uop *row(const struct lib *l, struct uop *x, int i)
{
    return x ? tensor_drop_axes(l->t, lib_narrow(l, x, 0, uop_int(l->t, i), uop_int(l->t, 1)), 1)
             : NULL;
}

/* The bias that is added to the input's contribution: w's plus r's, except for GRU's inner one if
 * that stays inside. */
static struct uop *outer_bias(const struct cell *c, struct uop *bias, int gates)
{
    const struct lib *l = c->l;
    struct uop *gh = sym_muli(l->t, c->h, gates);
    struct uop *wb = lib_narrow(l, bias, 0, uop_int(l->t, 0), gh),
               *rb = lib_narrow(l, bias, 0, gh, gh);
    if (!c->rbias)
        return lib_add(l, wb, rb);
    struct uop *two = sym_muli(l->t, c->h, 2), *zero = uop_int(l->t, 0);
    struct uop *zr = lib_add(l, lib_narrow(l, wb, 0, zero, two), lib_narrow(l, rb, 0, zero, two));
    return lib_concat(l, (struct uop *[]){zr, lib_narrow(l, wb, 0, two, c->h)}, 2, 0);
}

static const struct rnn_activation *default_activations(enum rnn_kind kind)
{
    static const struct rnn_activation lstm[] = {
        {ACTIVATION_SIGMOID, 0, 0}, {ACTIVATION_TANH, 0, 0}, {ACTIVATION_TANH, 0, 0}};
    return kind == RNN_PLAIN ? lstm + 1 : lstm;
}

static struct uop *zero_state(const struct lib *l, struct uop *h0, int direction, enum dtype acc,
                              struct uop *batch, struct uop *h)
{
    struct uop *dim[2] = {batch, h};
    return h0 ? uop_cast(l->t, acc, row(l, h0, direction)) : lib_full(l, acc, 0, dim, 2);
}

static struct uop *swap_axes(const struct lib *l, struct uop *x, int a, int b)
{
    int perm[MAX_RANK];
    if (!x)
        return NULL;
    for (int i = 0; i < x->ndim; i++)
        perm[i] = i == a ? b : i == b ? a : i;
    return uop_permute(l->t, x, perm);
}

/* The input's contribution to the gates, for all steps at once. */
static struct uop *of_input(const struct cell *c, struct uop *x, struct uop *bias)
{
    const struct lib *l = c->l;
    const struct rnn_operands *in = c->in;
    struct uop *outer = bias ? outer_bias(c, bias, gate_count(c->a->kind)) : NULL;
    if (!in->product)
        return lib_linear(l, x, uop_cast(l->t, x->dtype, row(l, in->w, c->direction)), outer);
    struct uop *y = in->product(in->ctx, x, false, c->direction);
    return outer ? lib_add(l, y, outer) : y;
}

bool lib_rnn(const struct lib *l, const struct rnn_attr *a, const struct rnn_operands *in,
             struct uop *out[3])
{
    struct tgc *t = l->t;
    out[0] = out[1] = out[2] = NULL;
    if (!in->x || !in->w || !in->r)
        return false;
    if (in->x->ndim != 3 || !dtype_is_float(in->x->dtype) || in->r->ndim != 3) {
        lib_error(l,
                  "recurrent layer: x is %s, r is %s; expected floating x [time, batch, input] and "
                  "r [directions, gates * hidden, hidden]",
                  lib_describe(l, in->x), lib_describe(l, in->r));
        return false;
    }
    int ndir = a->direction == RNN_BIDIRECTIONAL ? 2 : 1;
    int nact = a->kind == RNN_LSTM ? 3 : a->kind == RNN_GRU ? 2 : 1;
    struct uop *h = in->r->dim[2], *part[3][2];
    if (!check_operands(l, a, in, h))
        return false;
    if (a->nactivation && a->nactivation != nact * ndir) {
        lib_error(l, "recurrent layer: %d activations; it must be %d", a->nactivation, nact * ndir);
        return false;
    }
    enum dtype d = in->x->dtype, acc = lib_acc_dtype(d);
    struct uop *x = uop_cast(t, acc, a->batch_first ? swap_axes(l, in->x, 0, 1) : in->x);
    struct uop *h0 = a->batch_first ? swap_axes(l, in->h0, 0, 1) : in->h0,
               *c0 = a->batch_first ? swap_axes(l, in->c0, 0, 1) : in->c0;
    struct uop *lens = in->seq_lens ? uop_cast(t, DTYPE_I64, in->seq_lens) : NULL;
    for (int k = 0; k < ndir; k++) {
        struct cell c = {.l = l,
                         .a = a,
                         .h = h,
                         .in = in,
                         .direction = k,
                         .act = a->nactivation ? a->activation + k * nact
                                               : default_activations(a->kind)};
        struct uop *bias = in->bias ? uop_cast(t, acc, row(l, in->bias, k)) : NULL,
                   *one_out[3] = {NULL, NULL, NULL};
        c.r = uop_cast(t, acc, row(l, in->r, k));
        c.peephole = in->peephole ? uop_cast(t, acc, row(l, in->peephole, k)) : NULL;
        if (bias && a->kind == RNN_GRU && a->linear_before_reset)
            c.rbias = lib_narrow(l, bias, 0, sym_muli(t, h, 5), h);
        struct uop *xw = of_input(&c, x, bias);
        struct uop *init[2] = {zero_state(l, h0, k, acc, x->dim[1], h),
                               zero_state(l, c0, k, acc, x->dim[1], h)};
        bool reverse = a->direction == RNN_REVERSE || k == 1;
        if (!run_direction(&c, lib_contiguous(l, xw), lens, reverse, init, one_out))
            return false;
        part[0][k] = tensor_insert_axis(t, one_out[0], 1);
        for (int s = 1; s < 3; s++)
            part[s][k] = one_out[s] ? tensor_insert_axis(t, one_out[s], 0) : NULL;
    }
    for (int s = 0; s < 3; s++) {
        out[s] = part[s][0] ? lib_cast(l, d, lib_concat(l, part[s], ndir, s ? 0 : 1)) : NULL;
        /* [t, d, b, h] -> [b, t, d, h]; [d, b, h] -> [b, d, h] */
        if (a->batch_first && out[s])
            out[s] = s ? swap_axes(l, out[s], 0, 1) : uop_permute(t, out[s], (int[]){2, 0, 1, 3});
    }
    return out[0] && out[1];
}
