/* train_emit.c - --train: from a model to the graph of a program that trains it. */
#include "lib/lib.h"

#include <string.h>

enum { BATCH = 32 };             /* samples of a run where nobody says */

static bool has_shape(const struct options *o, const char *input)
{
    for (int i = 0; i < o->nshape; i++)
        if (strcmp(o->shape[i].input, input) == 0)
            return true;
    return false;
}

static bool has_dim(const struct options *o, const char *symbol)
{
    for (int i = 0; i < o->ndim && symbol; i++)
        if (strcmp(o->dim[i].name, symbol) == 0)
            return true;
    return false;
}

/* An open first axis is the batch's, unless --shape or --dim say what it is. */
static bool set_batch(struct tgc *t, struct options *o, const struct model_input *in)
{
    int64_t batch = o->training.batch;
    bool is_open = in->has_shape && in->ndim > 0 && in->dim[0] < 0;
    if (!in->has_shape || in->ndim == 0 || has_shape(o, in->name) || has_dim(o, in->symbol[0]))
        return true;
    if (!is_open)
        return !batch || batch == in->dim[0] ||
               diag_error(t, &(struct place){.file = o->model},
                          "--batch=%lld: the first axis of the input '%.100s' is %lld; leave out "
                          "--batch, and let NAME_gradients() add up several runs of a step",
                          (long long)batch, in->name, (long long)in->dim[0]);
    struct onnx_shape_option shape = {.input = in->name, .ndim = in->ndim};
    for (int a = 0; a < in->ndim; a++)
        shape.dim[a] = a == 0 ? (batch ? batch : BATCH) : -1;
    VEC_PUSH(t, o->shape, o->nshape, o->cap_shape, shape);
    return true;
}

/* --shape target=..., which no input of the model has. */
static void take_target(struct options *o, const struct model_input *input, int n,
                        struct train_options *as)
{
    as->target_ndim = -1;
    for (int i = 0; i < n; i++)
        if (strcmp(input[i].name, "target") == 0)
            return;
    for (int i = 0; i < o->nshape; i++) {
        if (strcmp(o->shape[i].input, "target") != 0)
            continue;
        as->target_ndim = o->shape[i].ndim;
        memcpy(as->target_dim, o->shape[i].dim, sizeof as->target_dim);
        o->shape[i--] = o->shape[--o->nshape];
    }
}

/* Options whose --shape can be changed. */
static struct options with_own_shapes(struct tgc *t, const struct options *given)
{
    struct options o = *given;
    o.cap_shape = (size_t)o.nshape + 1;
    o.shape = mem_array(t, o.cap_shape, sizeof *o.shape);
    for (int i = 0; i < o.nshape; i++)
        o.shape[i] = given->shape[i];
    return o;
}

double training_loss_scale(const struct options *o)
{
    double given = o->training.loss_scale;
    return given == 0 && o->math == DTYPE_F16 ? -1 : given;
}

bool training_lower_model(struct tgc *t, const struct options *given, struct model *m)
{
    struct options o = with_own_shapes(t, given);
    int n;
    const struct model_input *input = model_inputs(t, &o, m, &n);
    for (int i = 0; i < n; i++)
        if (!set_batch(t, &o, &input[i]))
            return false;
    return model_lower(t, &o, m);
}

/* training_lowering, of the options `user` */
static bool lower(struct tgc *t, void *user, int nsegment, struct model *m,
                  struct compute_again *again)
{
    const struct options *given = user;
    struct options o = with_own_shapes(t, given);
    const struct training_options *train = &o.training;
    struct place at = {.file = o.model};
    struct uop *draw = NULL;
    struct train_graph made = {0};
    int n;
    const struct model_input *input = model_inputs(t, &o, m, &n);
    struct train_options as = {.loss = train->loss,
                               .output = train->output,
                               .optimizer = train->optimizer,
                               .freeze = train->freeze,
                               .nfreeze = train->nfreeze,
                               .lora = train->lora,
                               .nlora = train->nlora,
                               .clip = train->clip,
                               .loss_scale = training_loss_scale(given),
                               .seed = train->seed,
                               .learning_rate = train->learning_rate > 0
                                                    ? train->learning_rate
                                                    : train->optimizer.learning_rate,
                               .nsegment = nsegment,
                               .blocks = true};
    take_target(&o, input, n, &as);
    m->draw = &draw;
    bool ok = training_lower_model(t, &o, m);
    m->draw = NULL;
    as.draw = draw;
    if (!ok || !train_lower(t, &at, m->graph, &as, &made))
        return false;
    training_draw_adapters(t, &made, train->seed);
    *again = made.again;
    return true;
}

bool training_schedule(struct tgc *t, const struct options *o, const char *name, struct model *m)
{
    struct options own = *o;
    return training_fit(t, o, name, m, lower, &own);
}
