/* train.h - tgc train: the private header of its parts.
 *
 *      train_data.c: files -> data sets, whose arrays fit the model's inputs
 *      train_build.c: model -> the graph of its training -> code in this process
 *      train_run.c: steps and evaluations of it
 *      train_ranks.c: processes that share each step
 *      train_finite.c: losses and weights that are NaN or infinite, and where that begins
 *      train_keep.c: checkpoints, the best state, the log
 *      train_plot.c: the curves as a picture
 *      train.c: epochs
 */
#ifndef TGC_LIB_TRAIN_H
#define TGC_LIB_TRAIN_H

#include "lib/lib.h"
#include "runtime/loader/loader.h"
#include "runtime/ranks/tree.h"

/* What feeds an input of an entry: the model's inputs in order, then the target. The names of its
 * arrays in the data sets, and for pictures what struct stream_field has. */
struct fed { const char *name, *source, *valid, *augment, *layout, *to_layout; };
/* What has a loss, or weights, that are not finite. */
enum lost { LOST_NOWHERE, LOST_IN_STEPS, LOST_IN_DATA, LOST_IN_VALID };
struct trainer {
    struct tgc *t;
    struct options o;               /* with the sizes that the data give the inputs */
    struct outputs *files;
    struct dataset data, valid;
    struct model model;
    struct train_options as;
    struct train_graph graph;
    struct instance program;
    const struct train_watch *watch;        /* NULL: nobody */
    struct uop *draw;               /* by which the model's Dropouts draw; NULL: it has none */
    struct fed *fed; int nfed;
    int64_t batch, micro;           /* samples of a step, and of a run */
    /* in_parts: a step is of nparts parts, whose results are added up here; each of nrank processes
     * takes as many of them. Samples of a part */
    bool in_parts; int nparts, nrank; int64_t part;
    struct ranks ranks;
    struct ranks_tree tree;
    void *scratch;                  /* of ranks_sum() */
    bool is_one;                    /* the model has no axis for samples: micro is 1 */
    int64_t step, steps;            /* done, and of all epochs */
    int epoch;                      /* the present one, from 0 */
    double loss_sum, correct_sum, seconds; int64_t seen;    /* of the present epoch */
    struct train_epoch *history; int nhistory; size_t cap_history;     /* the epochs so far */
    double best; int best_epoch;    /* the least loss of --valid */
    unsigned char *state, *best_state;         /* [program.info->state_bytes] */
    struct stream stream;           /* of the training set */
    double total_seconds;           /* of all epochs since the start or the checkpoint */
    bool logged;
    size_t *special;                /* [state_count]: elements that were not finite at first */
    enum lost lost; int64_t lost_step;
    /* --detect-nan: sound states, the older ones first, after which step they were, and when and
     * how long noting took */
    struct noted { unsigned char *state; int64_t step, seen; int epoch; double at, seconds; }
        noted[2];
};

/* --------------------------------------------------------------------------------- train_data.c */

/* Opens --data and --valid. needs: a loaded model. false: diagnostics. */
bool train_open_data(struct trainer *r);
/* Which arrays feed the model's inputs and the target; batch, micro, and the shapes of the inputs
 * among r->o. needs: a loaded model. */
bool train_match_data(struct trainer *r);
/* Whether targets that are class numbers are below nclass. */
bool train_check_classes(struct trainer *r);
/* Batches of what the model's inputs and the target take. false: a diagnostic. */
bool train_stream(struct trainer *r, bool is_valid, const struct stream_options *given,
                  struct stream *s);
/* The entry's input that an array feeds. */
struct array *train_input(struct trainer *r, const struct train_entry *e, int fed);

/* -------------------------------------------------------------------------------- train_build.c */

bool train_build(struct trainer *r);

/* ---------------------------------------------------------------------------------- train_run.c */

/* One step with a batch of the training set, which does not count if *loss is not finite. */
bool train_step(struct trainer *r, const struct stream_batch *b, double *loss);
/* One run of a step that several runs make: n samples from `at` on; `run` is its number since the
 * beginning, by which elements drop. */
bool train_run(struct trainer *r, int64_t run, const struct stream_batch *b, int64_t at, int64_t n,
               double *loss, double *correct);
/* The mean loss and the share of correct samples (-1: no classes) of a data set. */
bool train_evaluate(struct trainer *r, bool is_valid, double *loss, double *accuracy);

/* ------------------------------------------------------------------------------- train_finite.c */

/* Before the first step: what is not finite already is meant. */
bool train_begin_checks(struct trainer *r);
/* --detect-nan: keeps the states, now and then, if they are sound. needs: between two steps */
bool train_note_state(struct trainer *r);
/* Whether the loss of `in` is finite; the weights of r->state. false: a diagnostic, and r->lost */
bool train_check_loss(struct trainer *r, enum lost in, double loss);
bool train_check_weights(struct trainer *r);
/* --detect-nan: a note says which kernel's result was the first that is not finite. Nothing runs
 * after that. */
void train_find_kernel(struct trainer *r);

/* -------------------------------------------------------------------------------- train_ranks.c */

/* Which ranks there are; joins those of a launcher. false: a diagnostic */
bool train_join(struct trainer *r);
/* Nothing is printed but diagnostics: another rank tells. */
void train_be_quiet(struct trainer *r);
/* The samples of a part. needs: batch. false: they do not divide */
bool train_divide(struct trainer *r);
/* --devices: makes the other processes. needs: the program is built, and there are no threads */
bool train_start_ranks(struct trainer *r);
/* Memory for sums; whether all ranks do the same training. needs: the program is prepared */
bool train_begin_ranks(struct trainer *r);
/* All ranks get the states, and the place in the data, that rank 0 has. */
bool train_share_start(struct trainer *r);
/* in_parts: the runs of a batch, by all ranks, with their sums as the update's inputs. */
bool train_sum_parts(struct trainer *r, const struct stream_batch *b, double *loss,
                     double *correct);
/* Of batches of `each` rows for each rank, this rank's. */
void train_own_rows(const struct trainer *r, int64_t each, struct stream_options *o);
/* x[n], n <= 3, summed over all ranks. */
bool train_sum_numbers(struct trainer *r, double *x, int n);
/* Whether r->state is the same in all ranks. */
bool train_check_ranks(struct trainer *r);
/* Returns in rank 0, and in what a launcher has started; ends the copies of --devices. */
void train_end_ranks(struct trainer *r, bool ok);

/* ------------------------------------------------------------------------------------- train.c */

/* The batches from the present epoch and step on, to the end of all epochs. */
bool train_start_stream(struct trainer *r);

/* --------------------------------------------------------------------------------- train_keep.c */

/* Sets the digest of what decides the steps to come. */
void train_identify(const struct trainer *r, unsigned char *digest);
bool train_log(struct trainer *r, const struct train_epoch *e);
/* train_plot.c: the picture of --plot, of n epochs. */
bool train_plot(struct trainer *r, const struct train_epoch *e, int n);
/* Copies the program's states to r->state, or back. */
bool train_save_state(struct trainer *r, unsigned char *block);
bool train_restore_state(struct trainer *r, const unsigned char *block);
bool train_write_checkpoint(struct trainer *r);
/* *found: there is one, and it was read. */
bool train_read_checkpoint(struct trainer *r, bool *found);

#endif
