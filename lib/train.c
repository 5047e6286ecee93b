/* train.c - tgc train: epochs of steps in this process.
 *
 *      files ──> data sets ─┐
 *      model ──> code ──────┴──> epoch 1, 2, ... ──> the trained model
 *                                  │ steps, in an order that seed and epoch decide
 *                                  │ --valid, --log, --checkpoint
 */
#include "lib/train.h"

#include <math.h>
#include <string.h>

static const double seconds_between_checkpoints = 30;

static bool is_first_rank(const struct trainer *r) { return r->ranks.rank == 0; }

static void show_progress(struct trainer *r)
{
    enum { WIDTH = 24 };
    char bar[WIDTH + 1];
    int64_t n = r->data.nsample;
    int done = (int)((double)r->seen / (double)n * WIDTH);
    memset(bar, '.', WIDTH);
    memset(bar, '=', (size_t)done);
    bar[WIDTH] = 0;
    progress(r->t, "epoch %d/%d [%s] %lld/%lld  loss %.4f  %.0f samples/s", r->epoch + 1,
             r->o.training.epochs, bar, (long long)r->seen, (long long)n,
             r->loss_sum / (double)r->seen, (double)r->seen / r->seconds);
}

bool train_start_stream(struct trainer *r)
{
    struct stream_options o = {.batch = r->batch,
                               .seed = r->o.training.seed,
                               .epoch = r->epoch,
                               .step = r->seen / r->batch,
                               .epochs = r->o.training.epochs};
    train_own_rows(r, r->batch / r->nrank, &o);
    return train_stream(r, false, &o, &r->stream);
}

static bool run_epoch(struct trainer *r)
{
    double start = clock_seconds(), shown = start, kept = start, before = r->seconds;
    struct stream_batch b;
    double loss;
    do {
        enum stream_status status = dataset_stream_next(&r->stream, &b);
        if (status != STREAM_BATCH)
            return diag_error(r->t, NULL, "%s", r->stream.error);
        if (r->watch)
            r->watch->begin_step(r->watch->user);
        if (!train_step(r, &b, &loss) || !train_check_loss(r, LOST_IN_STEPS, loss))
            return false;
        if (r->watch)
            r->watch->end_step(r->watch->user);
        double now = clock_seconds();
        r->seconds = before + now - start;
        if (now - shown > 0.1) {
            show_progress(r);
            shown = now;
        }
        if (b.is_last)
            return true;
        if (is_first_rank(r) && now - kept > seconds_between_checkpoints) {
            if (!train_write_checkpoint(r))
                return false;
            kept = now;
        }
        if (!train_note_state(r))
            return false;
    } while (true);
}

static void report_epoch(struct trainer *r, const struct train_epoch *e)
{
    struct text x = {.t = r->t};
    text_printf(&x, "epoch %d/%d  loss %.4f", e->epoch, r->o.training.epochs, e->loss);
    if (e->has_accuracy)
        text_printf(&x, "  accuracy %.4f", e->accuracy);
    if (e->has_valid)
        text_printf(&x, "  valid_loss %.4f", e->valid_loss);
    if (e->has_valid && e->has_accuracy)
        text_printf(&x, "  valid_accuracy %.4f", e->valid_accuracy);
    if (e->has_scale)
        text_printf(&x, "  loss_scale %g, skipped %lld", e->loss_scale, (long long)e->skipped);
    text_printf(&x, "  %.2f s\n", e->seconds);
    progress_end(r->t);
    report_text(r->t, x.s);
}

static bool is_over(const struct trainer *r)
{
    const struct training_options *o = &r->o.training;
    return r->epoch >= o->epochs ||
           (o->early_stop && r->best_epoch && r->epoch - r->best_epoch >= o->early_stop);
}

static bool evaluate(struct trainer *r, bool is_valid, double *loss, double *accuracy)
{
    return train_evaluate(r, is_valid, loss, accuracy) &&
           train_check_loss(r, is_valid ? LOST_IN_VALID : LOST_IN_DATA, *loss);
}

/* What the dynamic scale has come to, of r->state. false: a diagnostic, nothing is left of it. */
static bool note_scale(struct trainer *r, struct train_epoch *e)
{
    const struct program_state *state = r->program.info->states + r->graph.scale;
    float scale;
    e->has_scale = r->graph.scale >= 0;
    if (!e->has_scale)
        return true;
    memcpy(&scale, r->state + state[0].input.offset, sizeof scale);
    memcpy(&e->skipped, r->state + state[1].input.offset, sizeof e->skipped);
    e->loss_scale = (double)scale;
    return scale > 0 ||
           diag_error(r->t, &(struct place){.file = r->o.model},
                      "no scale of the loss makes all gradients finite; %lld of %lld steps were "
                      "skipped: give a lower --lr, or --clip, and --detect-nan for where it begins",
                      (long long)e->skipped, (long long)r->step);
}

/* Notes what the epoch came to. */
static bool end_epoch(struct trainer *r)
{
    const struct training_options *o = &r->o.training;
    struct train_epoch e = {.epoch = r->epoch + 1,
                            .step = r->step,
                            .loss = r->loss_sum / (double)r->seen,
                            .seconds = r->seconds,
                            .has_accuracy = r->graph.train.correct >= 0,
                            .accuracy = r->correct_sum / (double)r->seen,
                            .has_valid = o->nvalid > 0};
    if (!train_save_state(r, r->state) || !train_check_weights(r) || !train_check_ranks(r) ||
        !note_scale(r, &e) ||
        (e.has_valid && !evaluate(r, true, &e.valid_loss, &e.valid_accuracy)))
        return false;
    report_epoch(r, &e);
    VEC_PUSH(r->t, r->history, r->nhistory, r->cap_history, e);
    if (o->early_stop && (!r->best_epoch || e.valid_loss < r->best)) {
        r->best = e.valid_loss, r->best_epoch = e.epoch;
        if (!train_save_state(r, r->best_state))
            return false;
    }
    r->epoch++;
    r->total_seconds += r->seconds;
    r->seen = 0, r->loss_sum = 0, r->correct_sum = 0, r->seconds = 0;
    if (is_first_rank(r) && !(train_log(r, &e) && train_plot(r, r->history, r->nhistory) &&
                              train_write_checkpoint(r)))
        return false;
    return train_note_state(r);
}

static bool allocate(struct trainer *r)
{
    const struct training_options *o = &r->o.training;
    size_t nbytes = r->program.info->state_bytes;
    r->steps = sat_mul((r->data.nsample + r->batch - 1) / r->batch, o->epochs);
    r->state = pages_allocate(r->t, nbytes, "the training's states");
    if (r->state && o->early_stop)
        r->best_state = pages_allocate(r->t, nbytes, "the best epoch's states");
    return r->state && (!o->early_stop || r->best_state);
}

/* The line of what is written: measured anew, on all samples. */
static bool measure(struct trainer *r, struct train_epoch *written)
{
    bool is_best = r->o.training.early_stop && r->best_epoch;
    *written = r->history[(is_best ? r->best_epoch : r->nhistory) - 1];
    written->seconds = r->total_seconds;
    if (is_best && !train_restore_state(r, r->best_state))
        return false;
    return evaluate(r, false, &written->loss, &written->accuracy) &&
           (!written->has_valid ||
            evaluate(r, true, &written->valid_loss, &written->valid_accuracy));
}

/* The value of a state of the graph, by its number: states are the program's in this order. */
static bool read_value(struct trainer *r, int number, const struct uop *state, struct array *w)
{
    const struct program_info *info = r->program.info;
    const struct program_tensor *from = &info->states[number].input;
    const char *name = uop_buffer_of(state)->name;
    if (number >= info->state_count || strcmp(from->name, name) != 0)
        TGC_BUG(r->t, "state %d of the program is not '%s'", number, name);
    *w = (struct array){.name = name, .dtype = state->dtype, .ndim = state->ndim};
    for (int a = 0; a < state->ndim; a++)
        w->dim[a] = from->dim[a].size;
    if (!array_allocate(r->t, w))
        return false;
    memcpy(w->data, r->state + from->offset, w->nbytes);
    return true;
}

/* In the model's dtype. */
static bool read_weight(struct trainer *r, int number, const struct uop *state, struct array *w)
{
    return read_value(r, number, state, w) && array_convert(r->t, w, r->graph.dtype[number]);
}

/* W + A B. */
static bool read_sum(struct trainer *r, const struct adapter *of, struct array *w)
{
    struct uop *const *param = r->graph.param + of->param;
    struct array a, b;
    if (!read_value(r, of->param, param[0], &a) || !read_value(r, of->param + 1, param[1], &b))
        return false;
    *w = (struct array){
        .name = of->name, .dtype = of->dtype, .ndim = 2, .dim = {a.dim[0], b.dim[1]}};
    if (!array_allocate(r->t, w))
        return false;
    lora_add(w, of->data, &a, &b);
    return true;
}

static bool write_model(struct trainer *r)
{
    const struct train_graph *g = &r->graph;
    int n = 0, nplain = g->nadapter ? 0 : g->nparam;
    struct array *weight = mem_array(r->t, (size_t)(g->nparam + g->nstatistic), sizeof *weight);
    if (!train_save_state(r, r->state))
        return false;
    for (int i = 0; i < nplain; i++, n++)
        if (!read_weight(r, i, g->param[i], &weight[n]))
            return false;
    for (int i = 0; i < g->nadapter; i++)
        if (!read_sum(r, &g->adapter[i], &weight[n++]))
            return false;
    for (int i = 0; i < g->nstatistic; i++, n++)
        if (!read_weight(r, g->nparam + i, g->statistic[i], &weight[n]))
            return false;
    r->model.draw = NULL; /* what is written drops nothing */
    return trained_write(r->t, &r->o, &r->model, weight, n, r->o.output, r->files) &&
           outputs_commit(r->files);
}

static void say_what_trains(struct trainer *r)
{
    struct text x = {.t = r->t};
    double nelem = 0;
    for (int i = 0; i < r->graph.nparam; i++)
        nelem += (double)sym_prod(r->t, r->graph.param[i]->dim, r->graph.param[i]->ndim)->vmax;
    text_printf(&x, "%d weights with %.0f elements train", r->graph.nparam, nelem);
    if (r->graph.nfrozen)
        text_printf(&x, ", %d are frozen", r->graph.nfrozen);
    if (r->graph.from_softmax)
        text_puts(&x, "; the loss takes what the output's softmax is of");
    if (r->graph.scale >= 0)
        text_puts(&x, "; the loss is scaled, dynamically");
    text_printf(&x, "; %lld samples, %lld steps an epoch", (long long)r->data.nsample,
                (long long)(r->steps / r->o.training.epochs));
    if (r->nrank > 1)
        text_printf(&x, "; %d processes", r->nrank);
    text_puts(&x, "\n");
    report_text(r->t, x.s);
}

static bool train(struct trainer *r, struct train_epoch *written)
{
    bool found = false;
    if (!train_join(r) || (is_first_rank(r) && !outputs_may_write(r->files, r->o.output)) ||
        !model_load(r->t, &r->o, &r->model) || !train_open_data(r) || !train_build(r) ||
        !allocate(r))
        return false;
    say_what_trains(r);
    if (r->o.training.resume && is_first_rank(r) && !train_read_checkpoint(r, &found))
        return false;
    r->logged = found;
    if (!train_share_start(r) || !train_begin_checks(r))
        return false;
    bool ok = is_over(r) || train_start_stream(r);
    while (ok && !is_over(r))
        ok = run_epoch(r) && end_epoch(r);
    dataset_stream_stop(&r->stream);
    progress_end(r->t);
    ok = ok && measure(r, written);
    if (!ok)
        train_find_kernel(r);
    return ok && (!is_first_rank(r) || write_model(r));
}

/* A compile that is stopped, for want of memory or by the listener, does not leave this function in
 * a copy of the process. */
static bool train_guarded(struct trainer *r, struct train_epoch *written, bool *stopped)
{
    jmp_buf outer;
    memcpy(&outer, &r->t->stop, sizeof outer);
    *stopped = setjmp(r->t->stop) != 0;
    bool ok = !*stopped && train(r, written);
    memcpy(&r->t->stop, &outer, sizeof outer);
    return ok;
}

bool train_model(struct tgc *t, const struct options *o, const struct train_watch *watch,
                 struct train_epoch *written)
{
    struct trainer *r = MEM_NEW(t, struct trainer);
    *r = (struct trainer){.t = t, .o = *o, .watch = watch, .files = outputs_new(t)};
    if (!outputs_may_write(r->files, o->output))
        return false;
    bool stopped, ok = train_guarded(r, written, &stopped);
    written->is_told = is_first_rank(r);
    train_end_ranks(r, ok);
    if (stopped)
        tgc_stop(t);
    if (!ok)
        outputs_discard(r->files);
    else if (watch && written->is_told)
        watch->done(watch->user, t, &r->model, &r->program);
    instance_close(&r->program);
    return ok;
}
