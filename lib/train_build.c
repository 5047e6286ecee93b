/* train_build.c - from the model's file to code of its training in this process. */
#include "lib/train.h"

#include <math.h>
#include <string.h>

/* The shape of the target in a run. */
static void set_target(struct trainer *r)
{
    const struct dataset_array *a = dataset_find(&r->data, "target");
    if (r->as.loss == LOSS_OUTPUT)
        return;
    r->as.target_ndim = a->rank;
    for (int i = 0; i < a->rank; i++)
        r->as.target_dim[i] = i == 0 ? r->micro : a->dim[i];
}

void training_draw(struct tgc *t, struct buffer *b, uint64_t seed)
{
    int64_t n = 1, fan = buffer_fan(b);
    if (fan == 0)
        return;
    for (int a = 0; a < b->ndim; a++)
        n *= b->dim[a]->vmax;
    size_t size = dtype_nbytes(b->dtype);
    char *data = mem_array(t, (size_t)n, size);
    for (int64_t i = 0; i < n; i++) {
        double u = 2 * lib_random_uniform_at(seed, (uint64_t)i) - 1;
        scalar_store(b->dtype, data + (size_t)i * size,
                     (union scalar){.f = u / sqrt((double)fan)});
    }
    b->weight.data = data;
    b->nbytes = (size_t)n * size;
}

void training_draw_adapters(struct tgc *t, const struct train_graph *g, uint64_t seed)
{
    for (int i = 0; i < g->nadapter; i++) {
        int a = g->adapter[i].param;
        training_draw(t, uop_buffer_of(g->param[a])->port.first, seed + (uint64_t)a);
    }
}

/* training_lowering, of the trainer `user` */
static bool lower(struct tgc *t, void *user, int nsegment, struct model *m,
                  struct compute_again *again)
{
    struct trainer *r = user;
    r->draw = NULL;
    m->draw = &r->draw;
    if (!model_lower(t, &r->o, m))
        return false;
    struct place at = {.file = r->o.model};
    const struct training_options *train = &r->o.training;
    r->as = (struct train_options){.loss = train->loss,
                                   .output = train->output,
                                   .optimizer = train->optimizer,
                                   .freeze = train->freeze,
                                   .nfreeze = train->nfreeze,
                                   .lora = train->lora,
                                   .nlora = train->nlora,
                                   .clip = train->clip,
                                   .loss_scale = training_loss_scale(&r->o),
                                   .draw = r->draw,
                                   .is_one = r->is_one,
                                   .nsegment = nsegment,
                                   .accumulate = r->in_parts || r->micro < r->batch,
                                   .is_summed_outside = r->in_parts};
    set_target(r);
    if (!train_lower(t, &at, m->graph, &r->as, &r->graph))
        return false;
    *again = r->graph.again;
    for (int i = 0; i < r->graph.nparam && train->has_init; i++)
        training_draw(t, uop_buffer_of(r->graph.param[i])->port.first, train->init + (uint64_t)i);
    training_draw_adapters(t, &r->graph, train->seed);
    return true;
}

static bool compile(struct trainer *r)
{
    const char *name = program_name(r->t, r->model.stem);
    if (!training_fit(r->t, &r->o, name, &r->model, lower, r))
        return false;
    r->model.schedule->in_arena = r->o.training.detect_nan;
    if (!instance_build(r->t, &r->o, &r->model, &r->program))
        return false;
    if (r->watch)
        r->watch->built(r->watch->user, r->t, &r->program);
    return true;
}

/* The loss has a weight for each sample of a run. */
static bool check_weights(struct trainer *r)
{
    const struct train_entry *e = &r->graph.train;
    return r->as.loss == LOSS_OUTPUT ||
           (int64_t)r->program.input[e->weight].nelem == r->micro ||
           diag_error(r->t, &(struct place){.file = r->o.model},
                      "the output's first axis has %lld elements in a run of %lld samples: the "
                      "loss is of an output whose first axis counts the samples, or output:NAME",
                      (long long)r->program.input[e->weight].nelem, (long long)r->micro);
}

bool train_build(struct trainer *r)
{
    return train_match_data(r) && compile(r) && train_check_classes(r) && train_start_ranks(r) &&
           instance_allocate_inputs(r->t, &r->program) &&
           instance_prepare(r->t, &r->o, &r->program) && check_weights(r) && train_begin_ranks(r);
}
