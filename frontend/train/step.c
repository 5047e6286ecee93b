/* step.c - a model's graph becomes the graph of its training: see train.h.
 *
 *      weights ──> states                every float weight that the loss depends on; halves as
 *                                        f32, which the model reads rounded
 *      W ──> W + A B, states A and B     by --lora: W is a constant
 *      running means and variances       in "train" those of the batch, which the states follow;
 *                                        in "evaluate" the states
 *      inputs ──> a copy for each entry
 *      loss, gradients, the optimizer's steps
 *      loss x scale ──> gradients / scale        where halves would lose small gradients
 *
 * A dynamic scale is a state. A step whose gradients are not all finite changes no parameter and
 * halves it; after GOOD_STEPS without one it doubles.
 * source: Micikevicius et al., Mixed precision training, 2018; torch.amp.GradScaler, whose numbers
 * these are
 */
#include "frontend/train/train.h"

#include <math.h>
#include <string.h>

enum { FIRST_SCALE = 1 << 16, GOOD_STEPS = 2000 };

struct training {
    struct lib l;
    struct tgc *t;
    struct graph *g;
    const struct train_options *o;
    struct train_graph *made;
    struct uop *value;                              /* the output that the loss is of */
    struct uop *y;                                  /* value, with an axis of samples */
    bool has_halves;                                /* something that trains is f16 */
    struct uop *scale, *good, *skipped;             /* states of a dynamic scale of the loss */
    bool is_class;                                  /* the target is class numbers */
    int target_ndim; int64_t target_dim[MAX_RANK];
    struct uop **leaf; int nleaf; size_t cap_leaf;  /* weights, as they were, params' first */
    struct uop **instead; int ninstead; size_t cap_instead;     /* [nleaf]: what they are now */
    int nweight;                                    /* leaves of parameters */
    struct uop **state; int nstate; size_t cap_state;
    struct uop **input; int ninput; size_t cap_input;
    struct graph_output *output; int noutput; size_t cap_output;
    struct uop **host; int nhost; size_t cap_host;
    struct uop **next;                              /* [nstatistic], where the caller sums them */
    uint64_t identity;
    struct kept { struct graph_kept to; struct uop *value; } *kept; int nkept; size_t cap_kept;
    struct graph_entry *entry; int nentry; size_t cap_entry;
};

/* ------------------------------------------------------------------------------------- identity */

enum dtype train_dtype(enum dtype d) { return dtype_is_half(d) ? DTYPE_F32 : d; }

uint64_t train_key(const struct buffer *w)
{
    struct buffer trains = *w;
    trains.dtype = train_dtype(w->dtype);
    return buffer_key(&trains);
}

uint64_t train_identity(struct tgc *t, const struct graph *g, const uint64_t *key, int n)
{
    int nroot, norder;
    uint64_t sum = 0;
    struct uop **root = graph_roots(t, g, &nroot), **order = uop_toposort(t, root, nroot, &norder);
    for (int i = 0; i < norder; i++) {
        const struct buffer *b = order[i]->op == OP_BUFFER ? order[i]->arg.p : NULL;
        if (!b || b->kind != BUFFER_WEIGHT || !b->weight.is_named || !b->weight.data ||
            b->dtype == DTYPE_STRING)
            continue;
        uint64_t own = train_key(b);
        bool trains = false;
        for (int k = 0; k < n; k++)
            trains |= key[k] == own;
        sum += trains ? 0 : hash_bytes(own, b->weight.data, b->nbytes); /* in any order */
    }
    return sum;
}

/* ---------------------------------------------------------------------------- inputs and states */

static struct uop *new_input(struct training *s, enum dtype d, struct uop *const *dim, int ndim,
                             const char *name)
{
    struct buffer *b = buffer_new(s->t, BUFFER_INPUT, d, dim, ndim, name);
    struct uop *x = uop_buffer(s->t, b);
    VEC_PUSH(s->t, s->input, s->ninput, s->cap_input, x);
    return x;
}

/* first: its value in the first run; NULL: zeros. */
static struct uop *new_state(struct training *s, enum dtype d, struct uop *const *dim, int ndim,
                             const char *name, enum state_block block, struct buffer *first)
{
    struct buffer *b = buffer_new(s->t, BUFFER_INPUT, d, dim, ndim, name);
    b->port.first = first;
    b->port.block = s->o->blocks ? block : BLOCK_ARENA;
    struct uop *x = uop_buffer(s->t, b);
    VEC_PUSH(s->t, s->state, s->nstate, s->cap_state, x);
    return x;
}

static void new_output(struct training *s, const char *name, struct uop *value)
{
    VEC_PUSH(s->t, s->output, s->noutput, s->cap_output,
             ((struct graph_output){.name = name, .value = value}));
}

static void keep(struct training *s, struct uop *state, struct uop *next)
{
    VEC_PUSH(s->t, s->kept, s->nkept, s->cap_kept,
             ((struct kept){{state, s->nentry - 1}, next}));
}

static void begin_entry(struct training *s, const char *name, struct train_entry *e)
{
    VEC_PUSH(s->t, s->entry, s->nentry, s->cap_entry,
             ((struct graph_entry){
                 .name = name, .input = s->ninput, .output = s->noutput, .host = s->nhost}));
    *e = (struct train_entry){s->nentry - 1, s->ninput, -1, -1, -1, -1, -1, -1, -1, -1};
}

static void end_entry(struct training *s)
{
    struct graph_entry *e = &s->entry[s->nentry - 1];
    e->ninput = s->ninput - e->input;
    e->noutput = s->noutput - e->output;
    e->nhost = s->nhost - e->host;
}

/* ---------------------------------------------------------------------------------- what trains */

static bool is_frozen(const struct training *s, const char *name)
{
    for (int i = 0; i < s->o->nfreeze; i++)
        if (name_matches(s->o->freeze[i], name))
            return true;
    return false;
}

static void replace_leaf(struct training *s, struct uop *leaf, struct uop *by)
{
    VEC_PUSH(s->t, s->leaf, s->nleaf, s->cap_leaf, leaf);
    VEC_PUSH(s->t, s->instead, s->ninstead, s->cap_instead, by);
}

/* The weight as it begins to train. */
static struct buffer *first_of(struct training *s, struct buffer *b)
{
    enum dtype d = train_dtype(b->dtype);
    if (d == b->dtype)
        return b;
    struct buffer *wide = buffer_new(s->t, BUFFER_WEIGHT, d, b->dim, b->ndim, b->name);
    size_t from = dtype_nbytes(b->dtype), to = dtype_nbytes(d), n = b->nbytes / from;
    wide->nbytes = size_mul(n, to, &wide->nbytes) ? wide->nbytes : SIZE_MAX;
    char *data = mem_alloc(s->t, wide->nbytes);
    for (size_t i = 0; i < n; i++)
        scalar_store(d, data + i * to,
                     scalar_load(b->dtype, (const char *)b->weight.data + i * from));
    wide->weight.data = data;
    return wide;
}

/* What trains as the model reads the weight u: rounded by a Cast, which no pass leaves out. */
static struct uop *as_weight(struct training *s, const struct uop *u, struct uop *x)
{
    int outer = s->t->current_origin;
    if (x->dtype == u->dtype)
        return x;
    origin_new(s->t, uop_buffer_of(u)->name, "Cast", -1);
    x = lib_cast(&s->l, u->dtype, x);
    s->t->current_origin = outer;
    return x;
}

/* The weight's state, which replaces it. */
static struct uop *make_state(struct training *s, struct uop *u)
{
    struct buffer *b = (struct buffer *)(uintptr_t)uop_buffer_of(u);
    struct buffer *first = first_of(s, b);
    struct uop *state =
        new_state(s, first->dtype, u->dim, u->ndim, b->name, BLOCK_PARAMS, first);
    replace_leaf(s, u, as_weight(s, u, state));
    s->made->dtype[s->nstate - 1] = u->dtype;
    s->has_halves |= u->dtype == DTYPE_F16;
    return state;
}

static bool check_rank(struct training *s, const struct uop *w, const struct lora *o)
{
    const char *name = uop_buffer_of(w)->name;
    int64_t rows, cols;
    if (w->ndim != 2 || !uop_const_int(w->dim[0], &rows) || !uop_const_int(w->dim[1], &cols))
        return diag_error(s->t, s->l.at, "--lora=%.100s:%d: the weight '%.100s' is %s, and the sum "
                                         "of products is of a matrix: name matrices alone",
                          o->pattern, o->rank, name, lib_describe(&s->l, w));
    int64_t most = rows < cols ? rows : cols;
    return o->rank <= most ||
           diag_error(s->t, s->l.at, "--lora=%.100s:%d: the rank of the weight '%.100s', %s, is at "
                                     "most %lld",
                      o->pattern, o->rank, name, lib_describe(&s->l, w), (long long)most);
}

/* W + A B replaces W. needs: check_rank() */
static void make_adapter(struct training *s, struct uop *w, int rank)
{
    struct train_graph *made = s->made;
    const char *name = uop_buffer_of(w)->name;
    const char *a_name = mem_printf(s->t, "%s.lora_a", name);
    struct uop *r = uop_int(s->t, rank), *a_dim[2] = {w->dim[0], r}, *b_dim[2] = {r, w->dim[1]};
    enum dtype d = train_dtype(w->dtype);
    struct buffer *first = buffer_new(s->t, BUFFER_WEIGHT, d, a_dim, 2, a_name);
    struct uop *a = new_state(s, d, a_dim, 2, a_name, BLOCK_PARAMS, first);
    struct uop *b =
        new_state(s, d, b_dim, 2, mem_printf(s->t, "%s.lora_b", name), BLOCK_PARAMS, NULL);
    struct uop *sum = lib_add(&s->l, lib_cast(&s->l, d, w), lib_matmul(&s->l, a, b));
    replace_leaf(s, w, as_weight(s, w, sum));
    s->has_halves |= w->dtype == DTYPE_F16;
    made->adapter[made->nadapter++] =
        (struct adapter){name, w->dtype, uop_buffer_of(w)->weight.data, made->nparam};
    made->param[made->nparam++] = a;
    made->param[made->nparam++] = b;
}

/* What --lora says of a name; NULL: nothing. */
static const struct lora *find_lora(const struct training *s, const char *name)
{
    for (int i = 0; i < s->o->nlora; i++)
        if (name_matches(s->o->lora[i].pattern, name))
            return &s->o->lora[i];
    return NULL;
}

static bool check_lora_is_used(struct training *s)
{
    for (int i = 0; i < s->o->nlora; i++) {
        bool used = false;
        for (int k = 0; k < s->made->nadapter; k++)
            used |= find_lora(s, s->made->adapter[k].name) == &s->o->lora[i];
        if (!used)
            return diag_error(s->t, s->l.at, "--lora=%.100s:%d: no weight that could train has "
                                             "such a name; tgc info lists them",
                              s->o->lora[i].pattern, s->o->lora[i].rank);
    }
    return true;
}

/* Weights that are running statistics of the graph's values, in the order of those. */
static void find_statistics(struct training *s, struct uop *const *order, int n)
{
    struct uop **u = mem_array(s->t, (size_t)n + 1, sizeof *u);
    int count = 0;
    s->made->statistic = mem_array(s->t, (size_t)n + 1, sizeof *u);
    for (int i = 0; i < n; i++) {
        const struct buffer *b = order[i]->op == OP_BUFFER ? order[i]->arg.p : NULL;
        if (b && b->weight.statistic && b->weight.statistic->of && !is_frozen(s, b->name))
            u[count++] = order[i];
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < count; k++)
            if (uop_buffer_of(u[k])->weight.statistic->of == order[i])
                s->made->statistic[s->made->nstatistic++] = make_state(s, u[k]);
}

/* Constants of nodes do not, nor numbers, which are bounds and factors more often than weights. */
static bool may_train(const struct buffer *b)
{
    return b->kind == BUFFER_WEIGHT && b->weight.is_named && b->weight.data &&
           !b->weight.statistic && dtype_is_float(b->dtype) && !dtype_is_f8(b->dtype) &&
           (b->ndim > 0 || b->weight.is_param);
}

/* The params of a text, or where there are none, as in ONNX, all weights. */
static bool find_parameters(struct training *s)
{
    int n;
    struct train_graph *made = s->made;
    struct uop **order = uop_toposort(s->t, &s->value, 1, &n);
    struct uop **copy = mem_array(s->t, (size_t)n + 1, sizeof *copy);
    bool has_params = false;
    ARRAY_COPY(copy, order, n);
    made->param = mem_array(s->t, 2 * (size_t)n + 1, sizeof *copy);
    made->dtype = mem_array(s->t, 3 * (size_t)n + 1, sizeof *made->dtype);
    made->adapter = mem_array(s->t, (size_t)n + 1, sizeof *made->adapter);
    for (int i = 0; i < n; i++)
        has_params |= copy[i]->op == OP_BUFFER && uop_buffer_of(copy[i])->weight.is_param;
    for (int i = 0; i < n; i++) {
        const struct buffer *b = copy[i]->op == OP_BUFFER ? copy[i]->arg.p : NULL;
        if (!b || !may_train(b) || has_params != b->weight.is_param)
            continue;
        const struct lora *lora = find_lora(s, b->name);
        if (is_frozen(s, b->name) || (s->o->nlora && !lora))
            made->nfrozen++;
        else if (!lora)
            made->param[made->nparam++] = make_state(s, copy[i]);
        else if (check_rank(s, copy[i], lora))
            make_adapter(s, copy[i], lora->rank);
        else
            return false;
    }
    if (!check_lora_is_used(s))
        return false;
    s->nweight = s->nleaf;
    find_statistics(s, copy, n);
    return made->nparam > 0 ||
           diag_error(s->t, s->l.at, "nothing trains: %s",
                      made->nfrozen
                          ? "all weights match --freeze"
                          : "the loss depends on no weight of f16, bf16, f32 or f64; weights are "
                            "the initializers of an ONNX model, or weight and param of a .tg");
}

/* ---------------------------------------------------------------------------------- the forward */

/* The mean, or the variance, of x over all axes but the channels', in the accumulation dtype. */
static struct uop *measure(struct training *s, const struct statistic *k, struct uop *x,
                           const struct uop *like)
{
    const struct lib *l = &s->l;
    uint32_t axes = lib_all_axes(x) & ~2u;
    struct uop *wide = lib_cast(l, lib_acc_dtype(x->dtype), x);
    struct uop *v = lib_reduce(l, REDUCE_MEAN, wide, axes, true);
    if (k->is_variance) {
        struct uop *off = lib_sub(l, wide, v);
        v = lib_reduce(l, REDUCE_MEAN, lib_mul(l, off, off), axes, true);
    }
    return v ? uop_reshape(s->t, v, like->dim, like->ndim) : NULL;
}

/* What a run computes, root[0] the output, with the entry's own inputs and, in training, with the
 * statistics of the batch, which the running ones follow. root: outputs and host calls, [nroot],
 * with room for a root for each statistic. */
static bool run_forward(struct training *s, struct train_entry *e, struct uop **root, int nroot,
                        bool is_training)
{
    const struct train_graph *made = s->made;
    struct uop_map to = {.t = s->t};
    int first = s->nweight;
    for (int i = 0; i < s->g->ninput; i++) {
        const struct uop *u = s->g->input[i];
        map_set(&to, u, new_input(s, u->dtype, u->dim, u->ndim, uop_buffer_of(u)->name));
    }
    if (s->o->draw && is_training) {
        e->draw = s->ninput;
        map_set(&to, s->o->draw, new_input(s, DTYPE_I64, NULL, 0, "draw"));
    } else if (s->o->draw) {
        map_set(&to, s->o->draw, uop_consti(s->t, DTYPE_I64, -1));
    }
    for (int i = 0; i < s->nleaf; i++)
        if (i < first || !is_training)
            map_set(&to, s->leaf[i], s->instead[i]);
    for (int i = 0; i < made->nstatistic && is_training; i++)
        root[nroot + i] =
            (struct uop *)(uintptr_t)uop_buffer_of(s->leaf[first + i])->weight.statistic->of;
    int nof = is_training ? made->nstatistic : 0;
    if (!lib_copy(s->t, root, nroot + nof, NULL, &to))
        return diag_error(s->t, s->l.at, "a run of this model finds sizes of its values, and what "
                          "has no size beforehand does not train; fix them by --shape");
    for (int i = 0; i < nof; i++) { /* earlier layers first: a statistic is of what is rewritten */
        struct uop *leaf = s->leaf[first + i], *old = made->statistic[i];
        const struct statistic *k = uop_buffer_of(leaf)->weight.statistic;
        struct uop *now = measure(s, k, root[nroot + i], leaf);
        struct uop_map one = {.t = s->t};
        map_set(&one, leaf, lib_cast(&s->l, leaf->dtype, now));
        if (!lib_copy(s->t, root, nroot + nof, NULL, &one))
            return false;
        now = lib_cast(&s->l, old->dtype, now);
        struct uop *follow = lib_binaryf(&s->l, OP_MUL, now, 1 - k->momentum);
        struct uop *next = lib_add(&s->l, lib_binaryf(&s->l, OP_MUL, old, k->momentum), follow);
        if (s->o->is_summed_outside)
            s->next[i] = next;
        else
            keep(s, old, next);
    }
    return true;
}

/* The classes' axis of y; -1: the loss has none. */
static int axis_of_classes(const struct training *s)
{
    return s->o->loss != LOSS_CROSS_ENTROPY ? -1
           : s->is_class ? loss_class_axis(s->y, s->target_dim, s->target_ndim)
                         : 1;
}

static struct uop *add_target(struct training *s, struct uop *y)
{
    struct uop *dim[MAX_RANK];
    int axis = s->is_class ? axis_of_classes(s) : MAX_RANK;
    for (int a = 0; a < s->target_ndim; a++)
        dim[a] = a == 0 || s->target_dim[a] < 0 ? y->dim[a < axis ? a : a + 1]
                                                : uop_int(s->t, s->target_dim[a]);
    return new_input(s, s->is_class ? DTYPE_I64 : y->dtype, dim, s->target_ndim, "target");
}

/* The value with an axis of samples, where the model takes one and has none. */
static struct uop *with_samples(const struct training *s, struct uop *value)
{
    int64_t first = 0;
    bool adds = s->o->is_one && s->o->loss != LOSS_OUTPUT && value->ndim < MAX_RANK;
    return adds ? lib_unsqueeze(&s->l, value, &first, 1) : value;
}

/* What the loss is taken of: [n, ...] in the accumulation dtype. */
static struct uop *loss_operand(struct training *s, struct uop *value)
{
    int axis = axis_of_classes(s);
    struct uop *below = axis >= 1 ? loss_logits_below(value, axis - s->o->is_one) : NULL;
    s->made->from_softmax |= below != NULL;
    struct uop *y = with_samples(s, below ? below : value);
    return lib_cast(&s->l, lib_acc_dtype(y->dtype), y);
}

/* Of the result y, by samples; a node of its own, "loss". NULL: reported. */
static struct uop *sum_losses(struct training *s, struct train_entry *e, struct uop *y,
                              struct uop **correct)
{
    const struct lib *l = &s->l;
    int outer = s->t->current_origin;
    e->target = s->ninput;
    struct uop *target = add_target(s, y), *n = y->dim[0];
    e->weight = s->ninput;
    struct uop *weight = new_input(s, y->dtype, &n, 1, "sample_weight");
    origin_new(s->t, "loss", loss_name(s->o->loss), -1);
    struct uop *loss = loss_of_samples(l, s->o->loss, y, target, correct);
    if (loss) {
        loss = tensor_sum(s->t, lib_mul(l, weight, loss), 1, false);
        struct uop *counts = lib_cast(l, y->dtype, lib_binaryf(l, OP_NE, weight, 0));
        if (*correct)
            *correct = tensor_sum(s->t, lib_mul(l, counts, *correct), 1, false);
    }
    s->t->current_origin = outer;
    return loss;
}

/* The model's own loss, which has one weight: the share of the step that is this run's. */
static struct uop *weigh_loss(struct training *s, struct train_entry *e, struct uop *y)
{
    int outer = s->t->current_origin;
    struct uop *one = uop_int(s->t, 1);
    e->weight = s->ninput;
    struct uop *weight = new_input(s, y->dtype, &one, 1, "sample_weight");
    origin_new(s->t, "loss", loss_name(s->o->loss), -1);
    struct uop *loss = lib_mul(&s->l, weight, uop_reshape(s->t, y, &one, 1));
    s->t->current_origin = outer;
    return uop_reshape(s->t, loss, NULL, 0);
}

/* Inputs, forward, loss. NULL: reported. */
static struct uop *add_loss(struct training *s, struct train_entry *e, bool is_training)
{
    int nroot = 1 + s->g->nhost;
    struct uop **root = mem_array(s->t, (size_t)(nroot + s->made->nstatistic), sizeof *root);
    root[0] = s->value;
    ARRAY_COPY(root + 1, s->g->host, s->g->nhost);
    if (!run_forward(s, e, root, nroot, is_training))
        return NULL;
    for (int i = 1; i < nroot; i++)
        VEC_PUSH(s->t, s->host, s->nhost, s->cap_host, root[i]);
    struct uop *y = loss_operand(s, root[0]), *correct = NULL, *loss, *one = uop_int(s->t, 1);
    loss = s->o->loss == LOSS_OUTPUT ? weigh_loss(s, e, y) : sum_losses(s, e, y, &correct);
    if (!loss)
        return NULL;
    e->loss = s->noutput;
    new_output(s, "loss", uop_reshape(s->t, loss, &one, 1));
    if (correct) {
        e->correct = s->noutput;
        new_output(s, "correct", uop_reshape(s->t, correct, &one, 1));
    }
    return loss;
}

/* ------------------------------------------------------------------------------------- the step */

static struct step_inputs add_step_inputs(struct training *s, struct train_entry *e)
{
    struct step_inputs in;
    e->learning_rate = s->ninput;
    in.learning_rate = new_input(s, DTYPE_F32, NULL, 0, "learning_rate");
    e->weight_decay = s->ninput;
    in.weight_decay = new_input(s, DTYPE_F32, NULL, 0, "weight_decay");
    e->step = s->ninput;
    in.number = lib_cast(&s->l, DTYPE_F32, new_input(s, DTYPE_I64, NULL, 0, "step"));
    return in;
}

/* ---------------------------------------------------------------------------- the loss's scale */

/* A state of one number, which lies with the optimizer's. */
static struct uop *new_number(struct training *s, enum dtype d, const char *name, double v)
{
    struct buffer *first = buffer_new(s->t, BUFFER_WEIGHT, d, NULL, 0, name);
    void *data = mem_alloc(s->t, dtype_nbytes(d));
    union scalar number = {.f = v}, whole = {.i = (int64_t)v};
    scalar_store(d, data, dtype_is_float(d) ? number : whole);
    first->weight.data = data;
    first->nbytes = dtype_nbytes(d);
    return new_state(s, d, NULL, 0, name, BLOCK_OPTIMIZER, first);
}

static bool scales_dynamically(const struct training *s)
{
    return s->o->loss_scale < 0 || (s->o->loss_scale == 0 && s->has_halves);
}

static void add_scale(struct training *s)
{
    s->made->scale = -1;
    if (!scales_dynamically(s))
        return;
    s->made->scale = s->nstate;
    s->scale = new_number(s, DTYPE_F32, "loss_scale", FIRST_SCALE);
    s->skipped = new_number(s, DTYPE_I64, "loss_scale.skipped", 0);
    s->good = new_number(s, DTYPE_I64, "loss_scale.good", 0);
}

/* What the loss is multiplied by; NULL: nothing. */
static struct uop *scale_of(const struct training *s)
{
    return s->scale              ? s->scale
           : s->o->loss_scale > 0 ? uop_constf(s->t, DTYPE_F32, s->o->loss_scale)
                                  : NULL;
}

/* How many elements of the gradients are NaN or infinite: f32. */
static struct uop *count_special(const struct training *s, struct uop *const *dx)
{
    const struct lib *l = &s->l;
    struct uop *n = NULL;
    for (int i = 0; i < s->made->nparam; i++) {
        struct uop *is_finite =
            lib_binaryf(l, OP_LT, lib_unary(l, OP_ABS, dx[i]), (double)INFINITY);
        struct uop *other = lib_cast(l, DTYPE_F32, lib_unary(l, OP_NOT, is_finite));
        other = other->ndim ? tensor_sum(s->t, other, lib_all_axes(other), false) : other;
        n = n ? lib_add(l, n, other) : other;
    }
    return n;
}

/* The next scale, and its counts. */
static void keep_scale(struct training *s, struct uop *is_good)
{
    const struct lib *l = &s->l;
    struct uop *none = uop_consti(s->t, DTYPE_I64, 0), *one = uop_consti(s->t, DTYPE_I64, 1);
    struct uop *good = lib_where(l, is_good, lib_add(l, s->good, one), none);
    struct uop *is_due = lib_binary(l, OP_EQ, good, uop_consti(s->t, DTYPE_I64, GOOD_STEPS));
    struct uop *twice = lib_binaryf(l, OP_MUL, s->scale, 2);
    struct uop *may_grow = lib_binaryf(l, OP_LT, twice, (double)INFINITY);
    struct uop *grown =
        lib_where(l, lib_binary(l, OP_AND, is_due, may_grow), twice, s->scale);
    keep(s, s->scale, lib_where(l, is_good, grown, lib_binaryf(l, OP_MUL, s->scale, 0.5)));
    keep(s, s->skipped, lib_where(l, is_good, s->skipped, lib_add(l, s->skipped, one)));
    keep(s, s->good, lib_where(l, is_due, none, good));
}

/* Gradients of the loss itself. *is_good: whether all are finite; NULL: that does not matter. */
static void unscale(struct training *s, struct uop **dx, struct uop **is_good)
{
    const struct lib *l = &s->l;
    struct uop *by = scale_of(s);
    *is_good = s->scale ? lib_binaryf(l, OP_EQ, count_special(s, dx), 0) : NULL;
    by = by ? lib_div(l, lib_scalar(l, by, 1), by) : NULL;
    for (int i = 0; i < s->made->nparam && by; i++)
        dx[i] = lib_mul(l, dx[i], lib_cast(l, dx[i]->dtype, by));
}

/* ----------------------------------------------------------------------------------- the update */

/* All gradients, no longer than `clip` together. */
static void clip(struct training *s, struct uop **dx)
{
    const struct lib *l = &s->l;
    struct uop *sum = NULL;
    for (int i = 0; i < s->made->nparam; i++) {
        struct uop *squares = lib_mul(l, dx[i], dx[i]);
        squares = lib_cast(l, DTYPE_F32, tensor_sum(s->t, squares, lib_all_axes(dx[i]), false));
        sum = sum ? lib_add(l, sum, squares) : squares;
    }
    struct uop *norm = lib_binaryf(l, OP_ADD, lib_unary(l, OP_SQRT, sum), 1e-6);
    struct uop *by = lib_div(l, lib_scalar(l, norm, s->o->clip), norm);
    by = lib_where(l, lib_binaryf(l, OP_LT, by, 1), by, lib_scalar(l, by, 1));
    for (int i = 0; i < s->made->nparam; i++)
        dx[i] = lib_mul(l, dx[i], lib_cast(l, dx[i]->dtype, by));
}

static bool is_state(const struct training *s, const struct uop *u)
{
    for (int i = 0; i < s->nstate; i++)
        if (s->state[i] == u)
            return true;
    return false;
}

/* A state of the optimizer for parameter x: that of an entry before, or a new one, which becomes a
 * state if the optimizer needs it. */
static struct uop *optimizer_state(struct training *s, const struct uop *x, const char *name)
{
    for (int i = 0; i < s->nstate; i++) {
        const struct buffer *b = uop_buffer_of(s->state[i]);
        if (b->port.block == BLOCK_OPTIMIZER && strcmp(b->name, name) == 0)
            return s->state[i];
    }
    struct buffer *b = buffer_new(s->t, BUFFER_INPUT, x->dtype, x->dim, x->ndim, name);
    b->port.block = s->o->blocks ? BLOCK_OPTIMIZER : BLOCK_ARENA;
    return uop_buffer(s->t, b);
}

/* The state's next value, unless the step is skipped. */
static void keep_if(struct training *s, struct uop *is_good, struct uop *state, struct uop *next)
{
    keep(s, state, is_good ? lib_where(&s->l, is_good, next, state) : next);
}

static bool add_update(struct training *s, const struct step_inputs *given, struct uop **dx)
{
    static const char *const suffix[OPTIMIZER_STATES] = {"m", "v"};
    const struct lib *l = &s->l;
    struct step_inputs now = *given, *in = &now;
    struct uop *is_good;
    unscale(s, dx, &is_good);
    if (is_good) { /* a skipped step is none */
        now.number = lib_sub(l, now.number, lib_cast(l, DTYPE_F32, s->skipped));
        keep_scale(s, is_good);
    }
    if (s->o->clip > 0)
        clip(s, dx);
    for (int i = 0; i < s->made->nparam; i++) {
        struct uop *old = s->made->param[i], *x = old, *state[OPTIMIZER_STATES];
        struct uop *before[OPTIMIZER_STATES];
        struct step_inputs typed = {lib_cast(l, x->dtype, in->learning_rate),
                                    lib_cast(l, x->dtype, in->weight_decay),
                                    lib_cast(l, x->dtype, in->number)};
        for (int k = 0; k < OPTIMIZER_STATES; k++) {
            const char *name =
                mem_printf(s->t, "%s.%s", uop_buffer_of(old)->name, suffix[k]);
            before[k] = state[k] = optimizer_state(s, old, name);
        }
        if (!optimizer_step(l, &s->o->optimizer, &typed, &x, dx[i], state))
            return false;
        keep_if(s, is_good, old, x);
        for (int k = 0; k < OPTIMIZER_STATES; k++) {
            if (state[k] == before[k])
                continue;
            if (!is_state(s, before[k]))
                VEC_PUSH(s->t, s->state, s->nstate, s->cap_state, before[k]);
            keep_if(s, is_good, before[k], state[k]);
        }
    }
    return true;
}

/* Begins an entry that computes the loss and the gradients of all parameters. */
static bool begin_gradients(struct training *s, const char *name, struct train_entry *e,
                            struct uop **dx)
{
    begin_entry(s, name, e);
    struct uop *loss = add_loss(s, e, true), *by = scale_of(s);
    if (loss && by)
        loss = lib_mul(&s->l, loss, lib_cast(&s->l, loss->dtype, by));
    int n = s->made->nparam;
    s->made->again = (struct compute_again){0};
    return loss && lib_gradient(&s->l, loss, s->made->param, n, dx) &&
           (s->o->nsegment < 2 ||
            train_compute_again(&s->l, loss, dx, n, s->o->nsegment, &s->made->again));
}

/* The entry that makes a step by itself. */
static bool add_step(struct training *s, struct train_entry *e)
{
    struct uop **dx = mem_array(s->t, (size_t)s->made->nparam + 1, sizeof *dx);
    if (!begin_gradients(s, "train", e, dx))
        return false;
    struct step_inputs in = add_step_inputs(s, e);
    bool ok = add_update(s, &in, dx);
    end_entry(s);
    return ok;
}

/* The two entries of a step of several runs. */
static bool add_steps_of_runs(struct training *s, struct train_entry *e)
{
    struct train_graph *made = s->made;
    int n = made->nparam;
    struct uop **dx = mem_array(s->t, (size_t)n + 1, sizeof *dx);
    struct uop **sum = mem_array(s->t, (size_t)n + 1, sizeof *sum);
    if (!begin_gradients(s, "gradients", e, dx))
        return false;
    made->sum = s->nstate;
    for (int i = 0; i < n; i++) {
        const char *name = uop_buffer_of(made->param[i])->name;
        name = mem_printf(s->t, "%s.gradient", name);
        sum[i] = new_state(s, dx[i]->dtype, dx[i]->dim, dx[i]->ndim, name, BLOCK_GRADIENTS, NULL);
        keep(s, sum[i], lib_add(&s->l, sum[i], dx[i]));
    }
    end_entry(s);
    begin_entry(s, "update", &made->update);
    struct step_inputs in = add_step_inputs(s, &made->update);
    ARRAY_COPY(dx, sum, n);
    if (!add_update(s, &in, dx))
        return false;
    for (int i = 0; i < n; i++)
        keep(s, sum[i], lib_full(&s->l, sum[i]->dtype, 0, sum[i]->dim, sum[i]->ndim));
    end_entry(s);
    return true;
}

/* The two entries of a step whose runs' results the caller adds up. */
static bool add_steps_of_ranks(struct training *s, struct train_entry *e)
{
    struct train_graph *made = s->made;
    int n = made->nparam, nstatistic = made->nstatistic;
    struct uop **dx = mem_array(s->t, (size_t)n + 1, sizeof *dx);
    s->next = mem_array(s->t, (size_t)nstatistic + 1, sizeof *s->next);
    if (!begin_gradients(s, "gradients", e, dx))
        return false;
    made->given = s->noutput;
    for (int i = 0; i < n + nstatistic; i++) {
        const struct uop *of = i < n ? made->param[i] : made->statistic[i - n];
        const char *what = i < n ? "gradient" : "next";
        new_output(s, mem_printf(s->t, "%s.%s", uop_buffer_of(of)->name, what),
                   i < n ? dx[i] : s->next[i - n]);
    }
    end_entry(s);
    begin_entry(s, "update", &made->update);
    made->taken = s->ninput;
    for (int i = 0; i < n + nstatistic; i++) {
        struct uop *of = i < n ? made->param[i] : made->statistic[i - n];
        const char *name = mem_printf(s->t, "%s.sum", uop_buffer_of(of)->name);
        struct uop *sum = new_input(s, of->dtype, of->dim, of->ndim, name);
        if (i < n)
            dx[i] = sum;
        else
            keep(s, of, sum);
    }
    struct step_inputs in = add_step_inputs(s, &made->update);
    bool ok = add_update(s, &in, dx);
    end_entry(s);
    return ok;
}

/* The model as it is, with the parameters as they are. */
static bool add_run(struct training *s)
{
    const struct graph *g = s->g;
    int nroot = g->noutput + g->nhost;
    struct uop **root = mem_array(s->t, (size_t)nroot + 1, sizeof *root);
    for (int i = 0; i < nroot; i++)
        root[i] = i < g->noutput ? g->output[i].value : g->host[i - g->noutput];
    begin_entry(s, "run", &s->made->run);
    if (!run_forward(s, &s->made->run, root, nroot, false))
        return false;
    for (int i = 0; i < g->noutput; i++) {
        struct graph_output output = g->output[i];
        output.value = root[i];
        VEC_PUSH(s->t, s->output, s->noutput, s->cap_output, output);
    }
    for (int i = g->noutput; i < nroot; i++)
        VEC_PUSH(s->t, s->host, s->nhost, s->cap_host, root[i]);
    end_entry(s);
    return true;
}

static bool add_training(struct training *s)
{
    struct train_graph *made = s->made;
    made->update.number = -1;
    made->sum = -1;
    made->identity = s->identity;
    add_scale(s);
    if (s->o->blocks)
        return add_run(s) && add_step(s, &made->train) && add_steps_of_runs(s, &made->gradients);
    return !s->o->accumulate         ? add_step(s, &made->train)
           : s->o->is_summed_outside ? add_steps_of_ranks(s, &made->train)
                                     : add_steps_of_runs(s, &made->train);
}

/* ------------------------------------------------------------------------------------- exported */

static bool choose_output(struct training *s)
{
    const struct graph *g = s->g;
    struct text names = {.t = s->t};
    for (int i = 0; i < g->noutput; i++) {
        if (s->o->output ? strcmp(g->output[i].name, s->o->output) == 0 : i == 0)
            s->value = g->output[i].value;
        text_printf(&names, "%s'%.60s'", i ? ", " : "", g->output[i].name);
    }
    if (!s->value)
        return diag_error(s->t, s->l.at, "there is no output '%.100s' for the loss; there is %s",
                          s->o->output ? s->o->output : "", names.s ? names.s : "none");
    if (!dtype_is_float(s->value->dtype))
        return diag_error(s->t, s->l.at, "the loss is of a float; the output is %s",
                          lib_describe(&s->l, s->value));
    int64_t n;
    for (int a = 0; a < s->value->ndim && s->o->loss == LOSS_OUTPUT; a++)
        if (!uop_const_int(s->value->dim[a], &n) || n != 1)
            return diag_error(s->t, s->l.at,
                              "a loss that is an output of the model is a scalar; it is %s",
                              lib_describe(&s->l, s->value));
    return true;
}

/* The target where nobody says its shape. */
static void choose_target(struct training *s)
{
    bool is_class = s->o->loss == LOSS_CROSS_ENTROPY && s->y->ndim > 1;
    s->target_ndim = 0;
    for (int a = 0; a < s->y->ndim; a++)
        if (!is_class || a != 1)
            if (!uop_const_int(s->y->dim[a], &s->target_dim[s->target_ndim++]))
                s->target_dim[s->target_ndim - 1] = -1;
}

/* What the target is, by its shape and the output's: class numbers have no class axis; numbers [n]
 * fit an output of [n, 1]. */
static void settle_target(struct training *s)
{
    int64_t n;
    s->y = with_samples(s, s->value);
    s->target_ndim = s->o->target_ndim;
    memcpy(s->target_dim, s->o->target_dim, sizeof s->target_dim);
    if (s->target_ndim < 0)
        choose_target(s);
    bool is_short = s->target_ndim == s->y->ndim - 1;
    s->is_class = s->o->loss == LOSS_CROSS_ENTROPY && is_short;
    if (!s->is_class && is_short && uop_is_int(s->y->dim[s->target_ndim], 1))
        s->target_dim[s->target_ndim++] = 1;
    int axis = s->is_class ? axis_of_classes(s) : -1;
    if (axis > 0)
        s->made->nclass = uop_const_int(s->y->dim[axis], &n) ? n : INT64_MAX;
}

static bool target_fits(const struct training *s)
{
    const struct uop *y = s->y;
    if (s->is_class)
        return s->made->nclass > 0;
    bool fits = s->target_ndim == y->ndim && y->ndim > (s->o->loss == LOSS_CROSS_ENTROPY);
    for (int a = 0; a < y->ndim && fits; a++) {
        int64_t n;
        fits = !uop_const_int(y->dim[a], &n) || n == s->target_dim[a];
    }
    return fits;
}

static bool check_target(struct training *s)
{
    if (s->o->loss == LOSS_OUTPUT)
        return true;
    settle_target(s);
    if (target_fits(s))
        return true;
    struct text shape = {.t = s->t};
    text_puts(&shape, "");
    for (int a = 0; a < s->target_ndim; a++)
        text_printf(&shape, "%s%lld", a ? ", " : "", (long long)s->target_dim[a]);
    return diag_error(s->t, s->l.at, "the target is %s[%s], the output %s; %s takes %s",
                      s->is_class ? "class numbers " : "", shape.s, lib_describe(&s->l, s->value),
                      loss_name(s->o->loss),
                      s->o->loss == LOSS_CROSS_ENTROPY
                          ? "an integer for each row of classes, or a distribution of the "
                            "output's shape"
                          : "numbers of the output's shape");
}

/* What a program with the caller's blocks has to know. needs: the weights' values */
static const struct graph_training *describe(const struct training *s)
{
    const struct train_graph *made = s->made;
    struct graph_training *x = MEM_NEW(s->t, struct graph_training);
    *x = (struct graph_training){.ninput = made->ninput,
                                 .run = made->run,
                                 .train = made->train,
                                 .gradients = made->gradients,
                                 .update = made->update,
                                 .evaluate = made->evaluate,
                                 .nparam = made->nparam,
                                 .nstatistic = made->nstatistic,
                                 .nclass = made->nclass,
                                 .scales = s->scale != NULL,
                                 .identity = s->identity,
                                 .seed = s->o->seed,
                                 .learning_rate = s->o->learning_rate,
                                 .weight_decay = s->o->optimizer.setting[SETTING_WEIGHT_DECAY],
                                 .loss = loss_name(s->o->loss),
                                 .optimizer = optimizer_name(s->o->optimizer.kind)};
    return x;
}

static bool replaces_weight(const struct uop *u)
{
    while (u->nsrc == 1)                            /* halves are rounded states */
        u = u->src[0];
    return u->op == OP_BUFFER;
}

/* Of the model's weights that do not train, before they are other uops. */
static void identify(struct training *s)
{
    uint64_t *key = mem_array(s->t, (size_t)s->nleaf + 1, sizeof *key);
    int n = 0;
    for (int i = 0; i < s->nleaf; i++)
        if (replaces_weight(s->instead[i]))         /* a matrix beside A B stays */
            key[n++] = train_key(uop_buffer_of(s->leaf[i]));
    s->identity = train_identity(s->t, s->g, key, n);
}

static void finish(struct training *s)
{
    struct graph *g = s->g;
    g->ndeclared = s->nstate;
    for (int i = 0; i < s->nstate; i++)
        VEC_PUSH(s->t, s->input, s->ninput, s->cap_input, s->state[i]);
    g->kept = mem_array(s->t, (size_t)s->nkept + 1, sizeof *g->kept);
    for (int i = 0; i < s->nkept; i++) {
        g->kept[i] = s->kept[i].to;
        new_output(s, uop_buffer_of(s->kept[i].to.in)->name, s->kept[i].value);
    }
    g->nkept = s->nkept;
    g->ninput = s->ninput, g->input = s->input;
    g->noutput = s->noutput, g->output = s->output;
    g->nhost = s->nhost, g->host = s->host;
    g->nentry = s->nentry, g->entry = s->entry;
    g->ninner = 0;
    if (s->o->blocks)
        g->training = describe(s);
    g->entry_number = var_new(s->t, "entry", 0, s->nentry - 1);
    struct var **var = mem_array(s->t, (size_t)g->nvar + 1, sizeof *var);
    ARRAY_COPY(var, g->var, g->nvar);
    var[g->nvar++] = g->entry_number;
    g->var = var;
}

bool train_lower(struct tgc *t, const struct place *at, struct graph *g,
                 const struct train_options *o, struct train_graph *made)
{
    struct training s = {.l = {t, at}, .t = t, .g = g, .o = o, .made = made};
    *made = (struct train_graph){.ninput = g->ninput};
    if (g->nentry || g->ndeclared || g->nstate)
        return diag_error(t, at, "a model with entries or states does not train");
    if (!choose_output(&s) || !check_target(&s) || !find_parameters(&s))
        return false;
    identify(&s);
    if (!add_training(&s))
        return false;
    begin_entry(&s, "evaluate", &made->evaluate);
    if (!add_loss(&s, &made->evaluate, false))
        return false;
    end_entry(&s);
    finish(&s);
    return !t->nerror;
}
