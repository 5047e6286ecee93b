/* train_run.c - one step, one evaluation.
 *
 * A run takes `micro` samples. Where there are fewer, the others repeat those that are there, with
 * weight 0: the loss does not see them, and the statistics of batch normalization are still those
 * of real samples.
 */
#include "lib/train.h"

#include <math.h>
#include <string.h>

static void set_f32(struct trainer *r, int input, double v)
{
    *(float *)r->program.input[input].data = (float)v;
}

static double output_of(const struct trainer *r, int output)
{
    const struct array *v = &r->program.output[output];
    return scalar_load(v->dtype, v->data).f;
}

/* Runs an entry on n samples of a batch, from sample `at` on, each of which counts 1 / total. */
static bool run_samples(struct trainer *r, const struct train_entry *e,
                        const struct stream_batch *b, int64_t at, int64_t n, double total)
{
    for (int k = 0; k < r->nfed; k++) {
        struct array *in = train_input(r, e, k);
        size_t row = in->nbytes / (size_t)r->micro;
        const char *from = (const char *)b->data[k] + (size_t)at * row;
        for (int64_t i = 0; i < r->micro; i += n)
            memcpy((char *)in->data + (size_t)i * row, from,
                   (size_t)(r->micro - i < n ? r->micro - i : n) * row);
    }
    const struct array *w = &r->program.input[e->weight];
    bool is_own = r->as.loss == LOSS_OUTPUT;        /* one weight, of the run */
    for (int64_t i = 0; i < (is_own ? 1 : r->micro); i++)
        scalar_store(w->dtype, (char *)w->data + (size_t)i * dtype_nbytes(w->dtype),
                     (union scalar){.f = i < n ? (is_own ? (double)n : 1) / total : 0});
    r->program.entry = e->number;
    return instance_run(r->t, &r->program);
}

/* warmup: rises from 0; then by the schedule to 0 after the last step. */
static double learning_rate(const struct trainer *r)
{
    const struct training_options *o = &r->o.training;
    double rate = o->learning_rate > 0 ? o->learning_rate : o->optimizer.learning_rate;
    double done = (double)r->step, rest = (double)(r->steps - o->warmup);
    if (r->step < o->warmup)
        return rate * (done + 1) / o->warmup;
    double x = rest > 0 ? (done - o->warmup) / rest : 0;
    return o->schedule == RATE_LINEAR   ? rate * (1 - x)
           : o->schedule == RATE_COSINE ? rate * (1 + cos(acos(-1) * x)) / 2
                                            : rate;
}

static void set_step_inputs(struct trainer *r, const struct train_entry *e)
{
    const struct optimizer_options *o = &r->o.training.optimizer;
    int64_t number = r->step + 1;
    set_f32(r, e->learning_rate, learning_rate(r));
    set_f32(r, e->weight_decay, o->setting[SETTING_WEIGHT_DECAY]);
    memcpy(r->program.input[e->step].data, &number, sizeof number);
}

/* The number by which a run drops elements: of the run and of --seed, not negative. */
static void set_draw(struct trainer *r, const struct train_entry *e, int64_t run)
{
    uint32_t word[2];
    lib_random_words(r->o.training.seed, (uint64_t)run, word);
    int64_t draw = word[0] & INT32_MAX;
    memcpy(r->program.input[e->draw].data, &draw, sizeof draw);
}

bool train_run(struct trainer *r, int64_t run, const struct stream_batch *b, int64_t at, int64_t n,
               double *loss, double *correct)
{
    const struct train_entry *e = &r->graph.train;
    if (e->draw >= 0)
        set_draw(r, e, run);
    if (!run_samples(r, e, b, at, n, (double)b->n))
        return false;
    *loss = output_of(r, e->loss);
    *correct = e->correct >= 0 ? output_of(r, e->correct) : 0;
    return true;
}

/* The runs of a batch, one after the other; what they have in common is in states. */
static bool run_batch(struct trainer *r, const struct stream_batch *b, double *loss,
                      double *correct)
{
    int64_t run = r->step * ((r->batch + r->micro - 1) / r->micro);
    *loss = *correct = 0;
    for (int64_t at = 0; at < b->n; at += r->micro, run++) {
        double own_loss, own_correct;
        if (!train_run(r, run, b, at, b->n - at < r->micro ? b->n - at : r->micro, &own_loss,
                       &own_correct))
            return false;
        *loss += own_loss;
        *correct += own_correct;
    }
    return true;
}

bool train_step(struct trainer *r, const struct stream_batch *b, double *loss)
{
    double correct;
    if (!r->as.accumulate)
        set_step_inputs(r, &r->graph.train);
    if (!(r->in_parts ? train_sum_parts : run_batch)(r, b, loss, &correct))
        return false;
    if (!isfinite(*loss))
        return true;
    if (r->as.accumulate) {
        set_step_inputs(r, &r->graph.update);
        r->program.entry = r->graph.update.number;
        if (!instance_run(r->t, &r->program))
            return false;
    }
    r->step++;
    r->seen += b->n;
    r->loss_sum += *loss * (double)b->n;
    r->correct_sum += correct;
    return true;
}

bool train_evaluate(struct trainer *r, bool is_valid, double *loss, double *accuracy)
{
    const struct train_entry *e = &r->graph.evaluate;
    struct stream_options o = {
        .batch = r->micro * r->nrank, .epochs = 1, .in_order = true, .evaluates = true};
    struct stream s;
    struct stream_batch b;
    enum { LOSS, CORRECT, TOTAL, NUMBERS };
    double sum[NUMBERS] = {0};
    enum stream_status status;
    train_own_rows(r, r->micro, &o);
    if (!train_stream(r, is_valid, &o, &s))
        return false;
    while ((status = dataset_stream_next(&s, &b)) == STREAM_BATCH) {
        int64_t left = b.n - o.first_row, n = left < r->micro ? left : r->micro;
        if (n <= 0)
            continue;
        if (!run_samples(r, e, &b, o.first_row, n, 1))
            break;
        sum[LOSS] += output_of(r, e->loss);
        sum[CORRECT] += e->correct >= 0 ? output_of(r, e->correct) : 0;
        sum[TOTAL] += (double)n;
    }
    if (status == STREAM_FAILED)
        diag_error(r->t, NULL, "%s", s.error);
    dataset_stream_stop(&s);
    if (status != STREAM_ENDED || !train_sum_numbers(r, sum, NUMBERS))
        return false;
    *loss = sum[LOSS] / sum[TOTAL];
    *accuracy = e->correct >= 0 ? sum[CORRECT] / sum[TOTAL] : -1;
    return true;
}
