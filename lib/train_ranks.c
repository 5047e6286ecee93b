/* train_ranks.c - one training by several processes, each of which computes a part of each step.
 *
 *      batch   | part 0 | part 1 | part 2 | part 3 |        rows of each step
 *                rank 0            rank 1                   runs, whose results are added up:
 *                 (0    +    1)  +  (2    +    3)           by ranks_tree, then ranks_sum()
 *                        every rank: the update
 *
 * The sum has f64 first, then f32: the loss and what is right, gradients, running statistics times
 * the samples' share. All ranks have the same states at every step: rank 0's at first, checked
 * after each epoch. Rank 0 writes.
 */
#include "lib/digest.h"
#include "lib/tgc.h"
#include "lib/train.h"

#include <string.h>
#include <unistd.h>

static const double default_timeout = 300;
enum { LOSS, CORRECT, NUMBERS };               /* at the beginning of the sum */

static bool failed(struct trainer *r) { return diag_error(r->t, NULL, "%s", r->ranks.error); }

/* ---------------------------------------------------------------------------- who takes part */

bool train_join(struct trainer *r)
{
    const struct training_options *o = &r->o.training;
    int launched = ranks_launched();
    r->ranks.size = 1;
    r->ranks.timeout = o->timeout > 0 ? o->timeout : default_timeout;
    if (launched > 1 && o->devices > 1)
        return diag_error(r->t, NULL,
                          "--devices=%d starts processes of its own, and a launcher has started "
                          "%d: leave out one of the two",
                          o->devices, launched);
    if (launched > 1 && !ranks_join_mpi(&r->ranks, launched))
        return failed(r);
    if (r->ranks.rank > 0)
        train_be_quiet(r);
    r->nrank = launched > 1 ? r->ranks.size : o->devices > 1 ? o->devices : 1;
    r->nparts = o->parts ? o->parts : r->nrank;
    r->in_parts = r->nparts > 1;
    if (r->nparts % r->nrank)
        return diag_error(r->t, NULL, "--parts=%d does not divide by %d processes", o->parts,
                          r->nrank);
    return !r->in_parts || !o->detect_nan ||
           diag_error(r->t, NULL, "--detect-nan looks at one process's kernels: leave out %s",
                      o->parts         ? "--parts"
                      : launched > 1   ? "mpirun"
                                       : "--devices");
}

void train_be_quiet(struct trainer *r)
{
    struct listener *quiet = MEM_NEW(r->t, struct listener);
    if (r->t->listener)
        *quiet = *r->t->listener;
    quiet->on_progress = NULL;
    quiet->on_stage = NULL;
    quiet->on_text = NULL;
    r->t->listener = quiet;
}

bool train_divide(struct trainer *r)
{
    r->part = r->batch / r->nparts;
    if (r->part * r->nparts == r->batch)
        return true;
    int64_t below = r->part * r->nparts, above = below + r->nparts;
    return diag_error(r->t, NULL,
                      "a batch of %lld samples does not divide by %d %s: give --batch=%lld",
                      (long long)r->batch, r->nparts, r->o.training.parts ? "parts" : "processes",
                      (long long)(below && r->batch - below < above - r->batch ? below : above));
}

/* ------------------------------------------------------------------------------- the beginning */

/* The values that a run gives, gradients and statistics, in order. */
static int count_values(const struct trainer *r)
{
    return r->graph.nparam + r->graph.nstatistic;
}

static bool allocate_sum(struct trainer *r)
{
    struct ranks_tree *x = &r->tree;
    int64_t own = r->nparts / r->nrank;
    x->n64 = NUMBERS;
    for (int i = 0; i < count_values(r); i++) {
        const struct array *v = &r->program.output[r->graph.given + i];
        if (v->dtype != DTYPE_F32 && v->dtype != DTYPE_F64)
            TGC_BUG(r->t, "a gradient of %s", dtype_name(v->dtype));
        *(v->dtype == DTYPE_F64 ? &x->n64 : &x->n32) += v->nelem;
    }
    for (int k = 0; k < ranks_tree_levels(own); k++)
        if (!(x->level[k] = pages_allocate(r->t, ranks_tree_nbytes(x), "sums of gradients")))
            return false;
    size_t wide = ranks_sum_scratch(&r->ranks, x->n64, true);
    size_t narrow = ranks_sum_scratch(&r->ranks, x->n32, false);
    r->scratch = pages_allocate(r->t, (wide > narrow ? wide : narrow) + 64, "sums of gradients");
    return r->scratch != NULL;
}

/* Whether all ranks have the same bytes; where they do not, rank 0's are right. */
static bool same_in_all(struct trainer *r, const unsigned char digest[DIGEST_NBYTES], int *other)
{
    unsigned char *all = mem_alloc(r->t, (size_t)r->ranks.size * DIGEST_NBYTES);
    *other = 0;
    if (!ranks_gather(&r->ranks, digest, DIGEST_NBYTES, all))
        return failed(r);
    for (int i = 1; i < r->ranks.size && !*other; i++)
        if (memcmp(all, all + (size_t)i * DIGEST_NBYTES, DIGEST_NBYTES) != 0)
            *other = i;
    return true;
}

/* Of all that decides which calls the ranks make together, and what they compute. */
static bool agree(struct trainer *r)
{
    const struct training_options *o = &r->o.training;
    unsigned char digest[DIGEST_NBYTES];
    struct digest_key key;
    struct digest d;
    int other;
    digest_key(&key, "tgc ranks", 9);
    digest_begin(&d, &key);
    train_identify(r, digest);
    digest_add(&d, digest, sizeof digest);
    digest_add_string(&d, TGC_VERSION);
    digest_add_number(&d, r->model.graph->state_hash);
    digest_add_number(&d, r->program.info->state_bytes);
    digest_add_number(&d, (uint64_t)r->nparts);
    digest_add_number(&d, (uint64_t)r->micro);
    digest_add_number(&d, (uint64_t)o->epochs);
    digest_add_number(&d, (uint64_t)o->early_stop);
    digest_add_number(&d, (uint64_t)o->resume);
    digest_add_number(&d, o->nvalid ? (uint64_t)r->valid.nsample : 0);
    digest_end(&d, digest);
    if (!same_in_all(r, digest, &other))
        return false;
    return !other ||
           diag_error(r->t, NULL,
                      "rank %d has another training than rank 0: another tgc, model, data, or "
                      "options that decide the steps",
                      other);
}

bool train_start_ranks(struct trainer *r)
{
    if (!r->in_parts || r->nrank == 1 || r->ranks.own)
        return true;
    if (!ranks_fork(&r->ranks, r->nrank))
        return failed(r);
    if (r->ranks.rank > 0)
        train_be_quiet(r);
    return true;
}

bool train_begin_ranks(struct trainer *r)
{
    return !r->in_parts || (allocate_sum(r) && (r->nrank == 1 || agree(r)));
}

bool train_share_start(struct trainer *r)
{
    struct { int64_t step, seen, epoch, best_epoch, nhistory, logged; double loss_sum, correct_sum,
             seconds, total_seconds, best; } x;
    if (r->nrank == 1)
        return true;
    memset(&x, 0, sizeof x);
    x.step = r->step, x.seen = r->seen, x.epoch = r->epoch, x.best_epoch = r->best_epoch;
    x.nhistory = r->nhistory, x.logged = r->logged;
    x.loss_sum = r->loss_sum, x.correct_sum = r->correct_sum;
    x.seconds = r->seconds, x.total_seconds = r->total_seconds, x.best = r->best;
    if (!ranks_share(&r->ranks, &x, sizeof x))
        return failed(r);
    r->step = x.step, r->seen = x.seen, r->epoch = (int)x.epoch, r->best_epoch = (int)x.best_epoch;
    r->loss_sum = x.loss_sum, r->correct_sum = x.correct_sum, r->logged = x.logged;
    r->seconds = x.seconds, r->total_seconds = x.total_seconds, r->best = x.best;
    if (r->ranks.rank > 0 && x.nhistory) {
        r->history = mem_array(r->t, (size_t)x.nhistory + 1, sizeof *r->history);
        r->nhistory = (int)x.nhistory, r->cap_history = (size_t)x.nhistory + 1;
    }
    size_t nbytes = r->program.info->state_bytes;
    if (x.best_epoch && !r->best_state &&
        !(r->best_state = pages_allocate(r->t, nbytes, "the best epoch's states")))
        return false;
    if (!ranks_share(&r->ranks, r->history, (size_t)x.nhistory * sizeof *r->history) ||
        (x.best_epoch && !ranks_share(&r->ranks, r->best_state, nbytes)))
        return failed(r);
    if (!train_save_state(r, r->state))
        return false;
    return ranks_share(&r->ranks, r->state, nbytes) ? train_restore_state(r, r->state) : failed(r);
}

/* ------------------------------------------------------------------------------------ the steps */

/* Adds what a run gives to the level that is being filled. share: of the step's samples, by which
 * the loss and its gradients are weighed already, and running statistics are not. */
static void add_run(struct trainer *r, double loss, double correct, double share)
{
    double *wide = r->tree.level[r->tree.ndone];
    float *narrow = (float *)(wide + r->tree.n64);
    wide[LOSS] += loss;
    wide[CORRECT] += correct;
    wide += NUMBERS;
    for (int i = 0; i < count_values(r); i++) {
        const struct array *v = &r->program.output[r->graph.given + i];
        bool is_wide = v->dtype == DTYPE_F64, is_share = i >= r->graph.nparam;
        const double *d = v->data;
        const float *f = v->data;
        for (size_t k = 0; k < v->nelem && is_share; k++)
            if (is_wide)
                wide[k] += share * d[k];
            else
                narrow[k] += (float)share * f[k];
        if (!is_share)
            ranks_add(is_wide ? (void *)wide : narrow, v->data, v->nelem, is_wide);
        wide += is_wide ? v->nelem : 0;
        narrow += is_wide ? 0 : v->nelem;
    }
}

static void give_to_update(struct trainer *r)
{
    const double *wide = (const double *)r->tree.level[0] + NUMBERS;
    const float *narrow = (const float *)((const double *)r->tree.level[0] + r->tree.n64);
    for (int i = 0; i < count_values(r); i++) {
        struct array *v = &r->program.input[r->graph.taken + i];
        bool is_wide = v->dtype == DTYPE_F64;
        memcpy(v->data, is_wide ? (const void *)wide : narrow, v->nbytes);
        wide += is_wide ? v->nelem : 0;
        narrow += is_wide ? 0 : v->nelem;
    }
}

/* The runs of one part of a batch. */
static bool run_part(struct trainer *r, const struct stream_batch *b, int64_t part)
{
    int64_t from = part * r->part, end = from + r->part < b->n ? from + r->part : b->n;
    int64_t nrun = (r->part + r->micro - 1) / r->micro, run = (r->step * r->nparts + part) * nrun;
    memset(r->tree.level[r->tree.ndone], 0, ranks_tree_nbytes(&r->tree));
    for (int64_t at = from; at < end; at += r->micro, run++) {
        int64_t n = end - at < r->micro ? end - at : r->micro;
        double loss, correct;
        if (!train_run(r, run, b, at, n, &loss, &correct))
            return false;
        add_run(r, loss, correct, (double)n / (double)b->n);
    }
    ranks_tree_push(&r->tree);
    return true;
}

bool train_sum_parts(struct trainer *r, const struct stream_batch *b, double *loss, double *correct)
{
    int64_t own = r->nparts / r->nrank;
    struct ranks_tree *x = &r->tree;
    for (int64_t k = 0; k < own; k++)
        if (!run_part(r, b, r->ranks.rank * own + k))
            return false;
    ranks_tree_end(x);
    double *wide = x->level[0];
    if (!ranks_sum(&r->ranks, wide, x->n64, true, r->scratch) ||
        !ranks_sum(&r->ranks, wide + x->n64, x->n32, false, r->scratch))
        return failed(r);
    *loss = wide[LOSS];
    *correct = wide[CORRECT];
    give_to_update(r);
    return true;
}

void train_own_rows(const struct trainer *r, int64_t each, struct stream_options *o)
{
    if (r->nrank == 1)
        return;
    o->first_row = r->ranks.rank * each;
    o->nrow = each;
}

bool train_sum_numbers(struct trainer *r, double *x, int n)
{
    return ranks_sum(&r->ranks, x, (size_t)n, true, r->scratch) || failed(r);
}

bool train_check_ranks(struct trainer *r)
{
    unsigned char digest[DIGEST_NBYTES];
    int other;
    if (r->nrank == 1)
        return true;
    uint64_t hash = hash_bytes(0, r->state, r->program.info->state_bytes);
    memset(digest, 0, sizeof digest);
    memcpy(digest, &hash, sizeof hash);
    if (!same_in_all(r, digest, &other))
        return false;
    return !other ||
           diag_error(r->t, NULL,
                      "after step %lld rank %d has other weights than rank 0: their processors add "
                      "in another order; --cpu=NAME makes them compute alike",
                      (long long)r->step, other);
}

/* -------------------------------------------------------------------------------------- the end */

void train_end_ranks(struct trainer *r, bool ok)
{
    if (r->nrank == 1)
        return;
    bool is_copy = r->ranks.rank > 0 && r->o.training.devices > 1;
    if (!ok && r->t->ndiag)
        ranks_say(&r->ranks, r->t->diag[r->t->ndiag - 1].message);
    ranks_close(&r->ranks, ok);
    if (is_copy)                        /* of the process that goes on as rank 0, which cleans up */
        _exit(!ok);
}
