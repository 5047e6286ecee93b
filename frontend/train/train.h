/* train.h - from a model's graph to one whose entries are the steps of its training.
 *
 *      graph of the model             graph of its training
 *        inputs ──> outputs             "train":     inputs, target, weight of each sample, rate,
 *        weights                                     decay, number of the step -> loss, correct;
 *                                                    keeps parameters, the optimizer's states
 *                                       "evaluate":  inputs, target, weights -> loss, correct
 *
 * A program whose parameters are blocks of its caller has "train", "gradients", "update",
 * "evaluate", and before them "run": the model's inputs -> its outputs. In this process, where
 * several runs make one step (accumulate), "train" is two entries: "gradients" adds to
 * states, "update" makes the step and clears them. Where several processes make one step, their
 * gradients leave and reach these entries as outputs and inputs (is_summed_outside).
 *
 * Parameters are states: their first values are the model's weights. The loss of a run is the sum
 * over its samples of weight times loss. So 1/n for each of n samples gives their mean, and a
 * sample of weight 0 only fills the batch. A loss that is an output of the model has one weight
 * for the run: the samples that it has of the step's n, over n.
 *
 * All of it is tensor uops made before any pass: a step fuses, is tiled and threaded as inference
 * is.
 */
#ifndef TGC_FRONTEND_TRAIN_H
#define TGC_FRONTEND_TRAIN_H

#include "frontend/library.h"

enum loss {
#define LOSS(id, name) LOSS_##id,
#include "frontend/train/train.def"
    LOSS_COUNT
};
enum optimizer {
#define OPTIMIZER(id, name, learning_rate) OPTIMIZER_##id,
#include "frontend/train/train.def"
    OPTIMIZER_COUNT
};
enum optimizer_setting {
#define SETTING(id, name, least, most) SETTING_##id,
#include "frontend/train/train.def"
    SETTING_COUNT
};
struct optimizer_options { enum optimizer kind; double learning_rate, setting[SETTING_COUNT]; };

/* ------------------------------------------------------------------------------------ options.c */

/* "adamw:weight_decay=0.01,beta2=0.95"; a setting without a value is 1. false: *why says what is
 * wrong, and what there is. */
bool optimizer_parse(struct tgc *t, const char *s, struct optimizer_options *o, const char **why);
/* With the optimizer's own settings. */
struct optimizer_options optimizer_default(enum optimizer kind);
/* "cross_entropy", "mse:NAME": the loss, and the output that it is of; NULL: the first. */
bool loss_parse(struct tgc *t, const char *s, enum loss *loss, const char **output,
                const char **why);
const char *loss_name(enum loss loss);
const char *optimizer_name(enum optimizer kind);

/* ---------------------------------------------------------------------------------- optimizer.c */

/* What the steps of all parameters have in common: f32 scalars. */
struct step_inputs { struct uop *learning_rate, *weight_decay, *number; };
enum { OPTIMIZER_STATES = 2 };
/* One step of parameter *x with gradient g; *x and state[] become their next values, but for states
 * that the optimizer does not need. All are tensors of one shape and dtype. source: train.def */
bool optimizer_step(const struct lib *l, const struct optimizer_options *o,
                    const struct step_inputs *in, struct uop **x, struct uop *g,
                    struct uop **state);

/* --------------------------------------------------------------------------------------- loss.c */

/* The loss of each sample, [n], the mean over its elements; *correct: NULL, or of each sample the
 * share of its classes that are right. y: [n, ...]; target: y's shape, or for cross_entropy without
 * the class axis and i64. NULL: reported. */
struct uop *loss_of_samples(const struct lib *l, enum loss loss, struct uop *y, struct uop *target,
                            struct uop **correct);
/* The axis of the classes among y's: the one without which its shape is target's; -1: there is
 * none. The second one, if several are. */
int loss_class_axis(const struct uop *y, const int64_t *target_dim, int target_ndim);
/* What a softmax over the axis was taken of, if y is one; else NULL. */
struct uop *loss_logits_below(const struct uop *y, int axis);

/* -------------------------------------------------------------------------------------- again.c */

/* What is computed again in a step: values that need not stay, their bytes, operations (2 for each
 * product of a sum), and those of the whole forward part. */
struct compute_again {
    struct again_value { struct uop *u; double nbytes; } *value; int nvalue; size_t cap_value;
    double nbytes, flop, all;
};
/* Makes the gradients dx[n] of the loss need less of its values: those of all but the last of about
 * nsegment segments of the forward part are computed again. Adds to *made. false: diagnostics */
bool train_compute_again(const struct lib *l, struct uop *loss, struct uop **dx, int n,
                         int nsegment, struct compute_again *made);

/* --------------------------------------------------------------------------------------- step.c */

/* The matrices of these names stay as they are, and in the place of each, W [n, m], W + A B trains:
 * A [n, rank], drawn by the caller, B [rank, m], 0 at first. source: Hu et al., LoRA, 2021, with
 * alpha = rank */
struct lora { const char *pattern; int rank; };
struct train_options {
    enum loss loss;
    const char *output;             /* the loss is of; NULL: the first one */
    struct optimizer_options optimizer;
    const char *const *freeze; int nfreeze;    /* patterns of names that do not train */
    const struct lora *lora; int nlora;        /* if there are any, nothing else trains */
    double clip;                    /* the largest norm of all gradients; 0: any */
    /* what the loss is multiplied by before it is differentiated; -1: a dynamic scale; 0: that
     * where weights of f16 train, otherwise none */
    double loss_scale;
    struct uop *draw;               /* the number of a run, by which it drops elements; or NULL */
    uint64_t seed; double learning_rate;    /* blocks: what the program has of them */
    bool accumulate;                /* several runs make a step */
    /* with accumulate: gradients and the next running statistics are outputs of a run, and what the
     * caller makes of those of all runs is inputs of the update */
    bool is_summed_outside;
    int nsegment;                   /* of the forward part, for train_compute_again(); 0: one */
    bool blocks;                    /* of a program with the caller's blocks: all entries */
    bool is_one;                    /* the model takes one sample, and has no axis for them */
    /* the target's shape in a run, the samples' axis included; -1: numbers of the output's shape,
     * or for cross_entropy class numbers */
    int target_ndim;
    int64_t target_dim[MAX_RANK];
};
/* A matrix of struct lora, with its values; param: the number of A's state, B's is the next one. */
struct adapter { const char *name; enum dtype dtype; const void *data; int param; };
struct train_graph {
    int ninput;                     /* of the model, in each entry that runs it, from `input` on */
    /* update.number -1: train makes the step. blocks: all of them, and train makes the step */
    struct train_entry run, train, gradients, update, evaluate;
    /* is_summed_outside: the first of the outputs of a run, and of the inputs of the update, each
     * [nparam] gradients and [nstatistic] running statistics */
    int given, taken;
    int sum;                        /* accumulate: the first of [nparam] states; -1: none */
    uint64_t identity;              /* train_identity() of what does not train */
    int nparam; struct uop **param; /* states, in the order of first use */
    int nadapter; struct adapter *adapter;
    int nstatistic; struct uop **statistic;    /* states: running means and variances */
    enum dtype *dtype;              /* [nparam + nstatistic] of the model's weights; not by lora */
    int nfrozen;                    /* tensors that could train, but for `freeze` or `lora` */
    int64_t nclass;                 /* targets are class numbers, i64, below it; 0: they are not */
    /* the number of the state "loss_scale" f32, after which "loss_scale.skipped" i64 comes, the
     * steps that were skipped; -1: the scale is not dynamic */
    int scale;
    struct compute_again again;     /* in one run */
    bool from_softmax;              /* the loss takes what the output's softmax was of */
};
/* The dtype in which a weight trains: f32 for halves, else its own. */
enum dtype train_dtype(enum dtype d);
/* buffer_key() of the parameter that a weight becomes. */
uint64_t train_key(const struct buffer *w);
/* Of the weights of g, with their values, but for those of the n keys: of train_key(). */
uint64_t train_identity(struct tgc *t, const struct graph *g, const uint64_t *key, int n);
/* Makes *g, a lowered model with inputs, the graph of its training. false: diagnostics at `at`. */
bool train_lower(struct tgc *t, const struct place *at, struct graph *g,
                 const struct train_options *o, struct train_graph *made);

#endif
