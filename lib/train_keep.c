/* train_keep.c - what outlives a training: its log, and checkpoints from which it goes on.
 *
 * A checkpoint is DIR/checkpoint, which appears by rename, so that a kill at any moment leaves the
 * older one: a head with the sums of the present epoch, the epochs so far, the program's states,
 * those of the best epoch, and a digest of all that. The head's identity is of the model, the
 * data's sizes and the options that decide the steps.
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
    if (e->has_scale)
        text_printf(x, ", \"loss_scale\": %.9g, \"skipped\": %lld", e->loss_scale,
                    (long long)e->skipped);
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
        text_printf(x, "epoch,step,loss,seconds%s%s%s%s\n",
                    e->has_scale ? ",loss_scale,skipped" : "", e->has_valid ? ",valid_loss" : "",
                    e->has_accuracy ? ",accuracy" : "",
                    e->has_accuracy && e->has_valid ? ",valid_accuracy" : "");
    text_printf(x, "%d,%lld,%.9g,%.3f", e->epoch, (long long)e->step, e->loss, e->seconds);
    if (e->has_scale)
        text_printf(x, ",%.9g,%lld", e->loss_scale, (long long)e->skipped);
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
    int64_t step, epoch, seen, best_epoch, nbytes, nhistory;
    double loss_sum, correct_sum, seconds, total_seconds, best;
};
static const char magic[16] = "tgc training 4";

/* Sums of gradients are 0 between two steps, and the number of runs, or of processes, decides
 * whether there are any. */
static bool is_kept(const struct trainer *r, int state)
{
    int sum = r->graph.sum;
    return sum < 0 || state < sum || state >= sum + r->graph.nparam;
}

static size_t state_nbytes(const struct program_tensor *x)
{
    size_t n = x->element_bytes;
    for (int a = 0; a < x->rank; a++)
        n *= (size_t)x->dim[a].size;
    return n;
}

static void add_states(const struct trainer *r, struct digest *d)
{
    const struct program_info *info = r->program.info;
    digest_add_number(d, r->graph.identity);
    for (int i = 0; i < info->state_count; i++) {
        const struct program_tensor *x = &info->states[i].input;
        if (!is_kept(r, i))
            continue;
        digest_add_string(d, x->name);
        digest_add_string(d, x->dtype);
        for (int a = 0; a < x->rank; a++)
            digest_add_number(d, (uint64_t)x->dim[a].size);
    }
}

void train_identify(const struct trainer *r, unsigned char *out)
{
    const struct training_options *o = &r->o.training;
    struct digest_key key;
    struct digest d;
    digest_key(&key, "tgc train", 9);
    digest_begin(&d, &key);
    add_states(r, &d);
    digest_add_number(&d, (uint64_t)r->data.nsample);
    digest_add_number(&d, (uint64_t)r->batch);
    digest_add_number(&d, o->seed);
    digest_add_number(&d, o->has_init ? o->init + 1 : 0);
    digest_add_number(&d, (uint64_t)o->loss);
    digest_add_string(&d, o->output);
    digest_add_number(&d, (uint64_t)o->optimizer.kind);
    digest_add(&d, o->optimizer.setting, sizeof o->optimizer.setting);
    digest_add(&d, &o->learning_rate, sizeof o->learning_rate);
    digest_add(&d, &o->clip, sizeof o->clip);
    digest_add(&d, &o->loss_scale, sizeof o->loss_scale);
    digest_add_number(&d, (uint64_t)r->o.math);
    for (int i = 0; i < r->o.nunrounded; i++)
        digest_add_string(&d, r->o.unrounded[i]);
    digest_add_number(&d, (uint64_t)o->memory);
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

/* What follows the head of a checkpoint, in order. */
struct part { void *data; size_t nbytes; };

static void list_states(const struct trainer *r, unsigned char *block, struct part *part, int *n)
{
    const struct program_info *info = r->program.info;
    for (int i = 0; i < info->state_count; i++) {
        const struct program_tensor *x = &info->states[i].input;
        if (is_kept(r, i))
            part[(*n)++] = (struct part){block + x->offset, state_nbytes(x)};
    }
}

/* Returns [*n] parts. */
static struct part *list_parts(const struct trainer *r, const struct head *h, int *n)
{
    size_t most = 2 * (size_t)r->program.info->state_count + 1;
    struct part *part = mem_array(r->t, most, sizeof *part);
    part[0] = (struct part){r->history, (size_t)h->nhistory * sizeof *r->history};
    *n = 1;
    list_states(r, r->state, part, n);
    if (h->best_epoch)
        list_states(r, r->best_state, part, n);
    return part;
}

static int64_t states_nbytes(const struct trainer *r)
{
    const struct program_info *info = r->program.info;
    size_t nbytes = 0;
    for (int i = 0; i < info->state_count; i++)
        nbytes += is_kept(r, i) ? state_nbytes(&info->states[i].input) : 0;
    return (int64_t)nbytes;
}

/* Of the whole checkpoint, which ends with it. */
static void digest_parts(const struct head *h, const struct part *part, int n,
                         unsigned char out[DIGEST_NBYTES])
{
    struct digest_key key;
    struct digest d;
    digest_key(&key, "tgc train", 9);
    digest_begin(&d, &key);
    digest_add(&d, h, sizeof *h);
    for (int i = 0; i < n; i++)
        digest_add(&d, part[i].data, part[i].nbytes);
    digest_end(&d, out);
}

static bool write_parts(const struct trainer *r, const struct head *h, FILE *f)
{
    int n;
    const struct part *part = list_parts(r, h, &n);
    unsigned char digest[DIGEST_NBYTES];
    digest_parts(h, part, n, digest);
    bool ok = fwrite(h, sizeof *h, 1, f) == 1;
    for (int i = 0; i < n && ok; i++)
        ok = !part[i].nbytes || fwrite(part[i].data, part[i].nbytes, 1, f) == 1;
    return ok && fwrite(digest, sizeof digest, 1, f) == 1;
}

bool train_write_checkpoint(struct trainer *r)
{
    const char *dir = r->o.training.checkpoint, *path;
    struct head h;
    if (!dir)
        return true;
    memset(&h, 0, sizeof h); /* the bytes between the fields are written, too */
    h.step = r->step, h.epoch = r->epoch, h.seen = r->seen, h.seconds = r->seconds;
    h.total_seconds = r->total_seconds;
    h.loss_sum = r->loss_sum, h.correct_sum = r->correct_sum;
    h.best = r->best, h.best_epoch = r->best_epoch;
    h.nhistory = r->nhistory;
    h.nbytes = states_nbytes(r);
    memcpy(h.magic, magic, sizeof magic);
    train_identify(r, h.identity);
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return diag_error(r->t, &(struct place){.file = dir}, "the directory cannot be made: %s",
                          strerror(errno));
    struct outputs *files = outputs_new(r->t);
    path = checkpoint_path(r);
    bool ok = train_save_state(r, r->state) && train_check_weights(r);
    FILE *f = ok ? outputs_open(files, path) : NULL;
    if (f && write_parts(r, &h, f))
        return outputs_commit(files);
    if (f)
        diag_error(r->t, &(struct place){.file = path},
                   "cannot be written: %s; an older checkpoint stays", strerror(errno));
    outputs_discard(files);
    return false;
}

/* needs: the head is of this training */
static bool read_parts(struct trainer *r, const struct head *h, FILE *f)
{
    enum { MOST_EPOCHS = 1 << 24 };
    int n;
    unsigned char digest[DIGEST_NBYTES], said[DIGEST_NBYTES];
    if (h->nhistory < 0 || h->nhistory > MOST_EPOCHS || h->best_epoch < 0 ||
        h->best_epoch > h->nhistory)
        return false;
    if (h->best_epoch && !r->best_state && /* --early-stop was given then, and is not now */
        !(r->best_state = pages_allocate(r->t, r->program.info->state_bytes,
                                         "the best epoch's states")))
        return false;
    if (!train_save_state(r, r->state)) /* which has a head, too */
        return false;
    if (h->best_epoch)
        memcpy(r->best_state, r->state, r->program.info->state_bytes);
    r->history = mem_array(r->t, (size_t)h->nhistory + 1, sizeof *r->history);
    r->nhistory = (int)h->nhistory, r->cap_history = (size_t)h->nhistory + 1;
    const struct part *part = list_parts(r, h, &n);
    for (int i = 0; i < n; i++)
        if (part[i].nbytes && fread(part[i].data, part[i].nbytes, 1, f) != 1)
            return false;
    digest_parts(h, part, n, digest);
    return fread(said, sizeof said, 1, f) == 1 && memcmp(said, digest, sizeof said) == 0 &&
           fgetc(f) == EOF;
}

bool train_read_checkpoint(struct trainer *r, bool *found)
{
    const char *path = checkpoint_path(r);
    struct place at = {.file = path};
    unsigned char identity[DIGEST_NBYTES];
    struct head h;
    struct held *held;
    FILE *f = held_fopen(r->t, path, "re", &held);
    *found = f != NULL;
    if (!f)
        return errno == ENOENT || diag_error(r->t, &at, "cannot be opened: %s", strerror(errno));
    bool ok = fread(&h, sizeof h, 1, f) == 1 && memcmp(h.magic, magic, sizeof magic) == 0;
    train_identify(r, identity);
    bool is_ours = ok && memcmp(h.identity, identity, sizeof identity) == 0 &&
                   h.nbytes == states_nbytes(r);
    bool is_whole = is_ours && read_parts(r, &h, f);
    held_release(held);
    if (ok && !is_ours)
        return diag_error(r->t, &at,
                          "is of another training: of another model, data, or options that decide "
                          "the steps; give those, or leave out --resume to begin anew");
    if (!is_whole)
        return diag_error(r->t, &at, "is no complete checkpoint; leave out --resume to begin anew");
    r->step = h.step, r->epoch = (int)h.epoch, r->seen = h.seen, r->seconds = h.seconds;
    r->total_seconds = h.total_seconds;
    r->loss_sum = h.loss_sum, r->correct_sum = h.correct_sum;
    r->best = h.best, r->best_epoch = (int)h.best_epoch;
    return train_restore_state(r, r->state);
}
