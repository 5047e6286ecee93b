/* train_keep.c - what outlives a training: its log, and checkpoints from which it goes on.
 *
 * A checkpoint is DIR/checkpoint, which appears by rename, so that a kill at any moment leaves the
 * older one: a head with the sums of the present epoch, the program's states, and those of the best
 * epoch. The head's digest names the model, the data's sizes and the options that decide the steps.
 */
#include "lib/train.h"
#include "lib/digest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------------------------------ log */

void train_put_json(struct text *x, const struct train_epoch *e)
{
    text_printf(x, "{\"epoch\": %d, \"step\": %lld, \"loss\": %.9g, \"seconds\": %.3f", e->epoch,
                (long long)e->step, e->loss, e->seconds);
    if (e->has_valid)
        text_printf(x, ", \"valid_loss\": %.9g", e->valid_loss);
    if (e->has_accuracy)
        text_printf(x, ", \"accuracy\": %.6f", e->accuracy);
    if (e->has_accuracy && e->has_valid)
        text_printf(x, ", \"valid_accuracy\": %.6f", e->valid_accuracy);
    text_puts(x, "}\n");
}

static void put_csv(struct text *x, const struct train_epoch *e, bool is_first)
{
    if (is_first)
        text_printf(x, "epoch,step,loss,seconds%s%s%s\n", e->has_valid ? ",valid_loss" : "",
                    e->has_accuracy ? ",accuracy" : "",
                    e->has_accuracy && e->has_valid ? ",valid_accuracy" : "");
    text_printf(x, "%d,%lld,%.9g,%.3f", e->epoch, (long long)e->step, e->loss, e->seconds);
    if (e->has_valid)
        text_printf(x, ",%.9g", e->valid_loss);
    if (e->has_accuracy)
        text_printf(x, ",%.6f", e->accuracy);
    if (e->has_accuracy && e->has_valid)
        text_printf(x, ",%.6f", e->valid_accuracy);
    text_puts(x, "\n");
}

/* The log begins anew with a training, and goes on with one that is resumed. */
bool train_log(struct trainer *r, const struct train_epoch *e)
{
    const char *path = r->o.training.log;
    struct text x = {.t = r->t};
    if (!path)
        return true;
    struct held *held;
    FILE *f = held_fopen(r->t, path, r->logged ? "ae" : "we", &held);
    const char *dot = strrchr(path, '.');
    if (dot && strcmp(dot, ".csv") == 0)
        put_csv(&x, e, !r->logged);
    else
        train_put_json(&x, e);
    bool ok = f && fwrite(x.s, 1, x.n, f) == x.n && fflush(f) == 0;
    r->logged = true;
    if (f)
        held_release(held);
    return ok || diag_error(r->t, &(struct place){.file = path}, "cannot be written: %s",
                            strerror(errno));
}

/* ----------------------------------------------------------------------------------- the states */

static bool is_done(struct trainer *r, const char *what, int status)
{
    return status == PROGRAM_OK || diag_error(r->t, NULL, "the compiled model's %s reports: %s",
                                              what, r->program.strerror(status));
}

bool train_save_state(struct trainer *r, unsigned char *block)
{
    return is_done(r, "save", r->program.save(r->program.model, block));
}

bool train_restore_state(struct trainer *r, const unsigned char *block)
{
    return is_done(r, "restore", r->program.restore(r->program.model, block));
}

/* ---------------------------------------------------------------------------------- checkpoints */

struct head {
    char magic[16];
    unsigned char identity[DIGEST_NBYTES];
    int64_t step, epoch, seen, best_epoch, nbytes, has_best;
    double loss_sum, correct_sum, seconds, total_seconds, best;
    struct train_epoch best_line, last;
};
static const char magic[16] = "tgc training 1";

/* Of all that decides the steps to come. */
static void identify(const struct trainer *r, unsigned char out[DIGEST_NBYTES])
{
    const struct training_options *o = &r->o.training;
    struct digest_key key;
    struct digest d;
    digest_key(&key, "tgc train", 9);
    digest_begin(&d, &key);
    digest_add_number(&d, r->model.graph->state_hash);
    digest_add_number(&d, (uint64_t)r->data.nsample);
    digest_add_number(&d, (uint64_t)r->batch);
    digest_add_number(&d, o->seed);
    digest_add_number(&d, o->has_init ? o->init + 1 : 0);
    digest_add_number(&d, (uint64_t)o->loss);
    digest_add_number(&d, (uint64_t)o->optimizer.kind);
    digest_add(&d, o->optimizer.setting, sizeof o->optimizer.setting);
    digest_add(&d, &o->learning_rate, sizeof o->learning_rate);
    digest_add(&d, &o->clip, sizeof o->clip);
    digest_add_number(&d, (uint64_t)o->schedule);
    digest_add_number(&d, (uint64_t)o->warmup);
    digest_add_number(&d, o->schedule == RATE_CONSTANT ? 0 : (uint64_t)r->steps);
    digest_add_string(&d, o->augment);
    for (int i = 0; i < o->nfreeze; i++)
        digest_add_string(&d, o->freeze[i]);
    digest_end(&d, out);
}

static const char *checkpoint_path(const struct trainer *r)
{
    return mem_printf(r->t, "%s/checkpoint", r->o.training.checkpoint);
}

bool train_write_checkpoint(struct trainer *r)
{
    const char *dir = r->o.training.checkpoint;
    size_t nbytes = r->program.info->state_bytes;
    struct head h;
    if (!dir)
        return true;
    memset(&h, 0, sizeof h); /* the bytes between the fields are written, too */
    h.step = r->step, h.epoch = r->epoch, h.seen = r->seen, h.seconds = r->seconds;
    h.total_seconds = r->total_seconds;
    h.loss_sum = r->loss_sum, h.correct_sum = r->correct_sum;
    h.best = r->best, h.best_epoch = r->best_epoch, h.has_best = r->best_epoch > 0;
    h.best_line = r->best_line, h.last = r->last;
    h.nbytes = (int64_t)nbytes;
    memcpy(h.magic, magic, sizeof magic);
    identify(r, h.identity);
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return diag_error(r->t, &(struct place){.file = dir},
                          "the directory cannot be made: %s", strerror(errno));
    struct outputs *files = outputs_new(r->t);
    const char *path = checkpoint_path(r);
    FILE *f = train_save_state(r, r->state) ? outputs_open(files, path) : NULL;
    bool ok = f && fwrite(&h, sizeof h, 1, f) == 1 && fwrite(r->state, 1, nbytes, f) == nbytes &&
              (!h.has_best || fwrite(r->best_state, 1, nbytes, f) == nbytes);
    if (!ok) {
        if (f)
            diag_error(r->t, &(struct place){.file = path},
                       "cannot be written: %s; an older checkpoint stays", strerror(errno));
        outputs_discard(files);
        return false;
    }
    return outputs_commit(files);
}

bool train_read_checkpoint(struct trainer *r, bool *found)
{
    const char *path = checkpoint_path(r);
    struct place at = {.file = path};
    unsigned char identity[DIGEST_NBYTES];
    size_t nbytes = r->program.info->state_bytes;
    struct head h;
    struct held *held;
    FILE *f = held_fopen(r->t, path, "re", &held);
    *found = f != NULL;
    if (!f)
        return errno == ENOENT ||
               diag_error(r->t, &at, "cannot be opened: %s", strerror(errno));
    bool ok = fread(&h, sizeof h, 1, f) == 1 && memcmp(h.magic, magic, sizeof magic) == 0;
    identify(r, identity);
    if (ok && (memcmp(h.identity, identity, sizeof identity) != 0 || h.nbytes != (int64_t)nbytes)) {
        held_release(held);
        return diag_error(r->t, &at,
                          "is of another training: of another model, data, or options that decide "
                          "the steps; give those, or leave out --resume to begin anew");
    }
    ok = ok && fread(r->state, 1, nbytes, f) == nbytes &&
         (!h.has_best || fread(r->best_state, 1, nbytes, f) == nbytes) && fgetc(f) == EOF;
    held_release(held);
    if (!ok)
        return diag_error(r->t, &at, "is no complete checkpoint; leave out --resume to begin anew");
    r->step = h.step, r->epoch = (int)h.epoch, r->seen = h.seen, r->seconds = h.seconds;
    r->total_seconds = h.total_seconds;
    r->loss_sum = h.loss_sum, r->correct_sum = h.correct_sum;
    r->best = h.best, r->best_epoch = (int)h.best_epoch;
    r->best_line = h.best_line, r->last = h.last;
    return train_restore_state(r, r->state);
}
