/* SPDX-License-Identifier: 0BSD */
/* stream.c - batches of a data set, made one ahead by a thread.
 *
 *      slot 0  made | read by the caller | made ...
 *      slot 1         made               | read by the caller ...
 *
 * Two slots take turns. The thread fills a slot that is free, and the caller takes one that is
 * ready and gives back the one that it had. Only the one that fills a slot, or has taken it, looks
 * into it. What a slot is filled with depends on its position (epoch, step) alone, so the bytes are
 * the same without the thread.
 */
#include "runtime/loader/parts.h"

//@ loader_stream loader_augment
#if defined _WIN32 && !defined __MINGW32__ && !defined MODEL_NO_PTHREADS
#define MODEL_NO_PTHREADS
#endif
#ifndef MODEL_NO_PTHREADS
#include <pthread.h>
#endif

struct stream_slot {
    enum stream_status status;
    bool is_ready;
    struct stream_batch batch;
    int64_t *index;
    uint8_t **data;
    char error[LOADER_ERROR_NBYTES];
};

struct stream_state {
    const struct dataset *d;
    struct stream_options options;
    struct dataset_array *source;    /* [nfield] */
    struct stream_array *array;      /* [nfield] */
    struct loader_augment **augment; /* [nfield]; NULL: rows as they are */
    int64_t nstep, epoch, step;      /* of the batch that is made next */
    int64_t *order, order_epoch;
    struct stream_slot slot[2];
    int taken, next; /* slots: the caller's, -1: none; and the one that it takes next */
    bool has_ended, has_thread, is_stopping;
    struct loader_decoder decoder;
    struct dataset memory; /* of which only memory is used, and its limit */
#ifndef MODEL_NO_PTHREADS
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
#endif
};

static bool stream_fill_rows(struct stream_state *s, struct stream_slot *slot, int field)
{
    const struct dataset_array *a = &s->source[field];
    const struct loader_augment *g = s->augment[field];
    enum loader_type type = s->array[field].type;
    size_t nbytes = (size_t)s->array[field].row_nelem * loader_type_nbytes(type);
    const struct stream_options *o = &s->options;
    const int64_t n = slot->batch.n, first = o->nrow ? o->first_row : 0;
    const int64_t end = o->nrow && o->nrow < n - first ? first + o->nrow : n;
    for (int64_t i = first; i < end; i++) {
        int64_t sample = slot->index[i];
        uint8_t *to = slot->data[field] + (size_t)i * nbytes;
        const uint8_t *row = loader_row(a, sample, &s->decoder, slot->error);
        if (!row || !(g ? loader_augment_row(g, a, &s->options, slot->batch.epoch, sample, row, to,
                                             type, slot->error)
                        : loader_convert(a, sample, row, to, type, slot->error)))
            return false;
    }
    return true;
}

/* The batch at the position, which moves on. */
static enum stream_status stream_fill(struct stream_state *s, struct stream_slot *slot)
{
    const struct stream_options *o = &s->options;
    if (o->epochs && s->epoch >= o->epochs)
        return STREAM_ENDED;
    if (s->epoch > (int64_t)UINT32_MAX) {
        loader_fail(slot->error, "the stream: epochs end at 2^32; begin at an earlier one");
        return STREAM_FAILED;
    }
    if (!o->in_order && s->order_epoch != s->epoch) {
        dataset_order(o->seed, s->epoch, s->d->nsample, s->order);
        s->order_epoch = s->epoch;
    }
    int64_t first = s->step * o->batch, left = s->d->nsample - first;
    struct stream_batch *b = &slot->batch;
    b->epoch = s->epoch;
    b->step = s->step;
    b->n = left < o->batch ? left : o->batch;
    b->is_last = s->step == s->nstep - 1;
    for (int64_t i = 0; i < b->n; i++)
        slot->index[i] = o->in_order ? first + i : s->order[first + i];
    for (int k = 0; k < o->nfield; k++)
        if (!stream_fill_rows(s, slot, k))
            return STREAM_FAILED;
    s->epoch += b->is_last;
    s->step = b->is_last ? 0 : s->step + 1;
    return STREAM_BATCH;
}

#ifndef MODEL_NO_PTHREADS
static void *stream_work(void *argument)
{
    struct stream_state *s = (struct stream_state *)argument;
    enum stream_status status = STREAM_BATCH;
    for (int at = 0; status == STREAM_BATCH; at = 1 - at) {
        struct stream_slot *slot = &s->slot[at];
        pthread_mutex_lock(&s->lock);
        while (!s->is_stopping && (slot->is_ready || s->taken == at))
            pthread_cond_wait(&s->changed, &s->lock);
        bool stops = s->is_stopping;
        pthread_mutex_unlock(&s->lock);
        if (stops)
            break;
        status = stream_fill(s, slot);
        pthread_mutex_lock(&s->lock);
        slot->status = status;
        slot->is_ready = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

/* Without a thread, batches are made when they are asked for. */
static void stream_begin(struct stream_state *s)
{
    if (s->options.no_thread)
        return;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->has_thread = pthread_create(&s->thread, NULL, stream_work, s) == 0;
    if (s->has_thread)
        return;
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
}

static void stream_await(struct stream_state *s)
{
    pthread_mutex_lock(&s->lock);
    s->taken = -1;
    pthread_cond_broadcast(&s->changed);
    while (!s->slot[s->next].is_ready)
        pthread_cond_wait(&s->changed, &s->lock);
    s->slot[s->next].is_ready = false;
    s->taken = s->next;
    pthread_mutex_unlock(&s->lock);
}

static void stream_end(struct stream_state *s)
{
    pthread_mutex_lock(&s->lock);
    s->is_stopping = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
}
#else
static void stream_begin(struct stream_state *s) { s->has_thread = false; }
static void stream_await(struct stream_state *s) { s->taken = s->next; }
static void stream_end(struct stream_state *s) { s->is_stopping = true; }
#endif

/* Zeroed memory for n elements, released with the stream. NULL: s->memory.error says why. */
static void *stream_take(struct stream_state *s, int64_t n, size_t size)
{
    size_t nbytes;
    if ((uint64_t)n > SIZE_MAX || !loader_mul((size_t)n, size, &nbytes)) {
        loader_fail(s->memory.error, "the stream: a batch of %lld samples is too large; take fewer",
                    (long long)s->options.batch);
        return NULL;
    }
    void *data = loader_take(&s->memory, "the stream", nbytes);
    return data ? memset(data, 0, nbytes) : NULL;
}

static bool stream_check(const struct stream_state *s, char *error)
{
    const struct stream_options *o = &s->options;
    if (o->batch < 1 || o->nfield < 1 || !s->d->narray)
        return loader_fail(error, "the stream: %s",
                           o->batch < 1    ? "a batch needs at least one sample"
                           : o->nfield < 1 ? "no array is asked for; name at least one"
                                           : "the data set is empty; open a file first");
    if (o->epoch < 0 || o->step < 0 || o->step > s->nstep || o->epochs < 0)
        return loader_fail(error,
                           "the stream: it cannot begin at step %lld of epoch %lld; an epoch "
                           "has %lld steps",
                           (long long)o->step, (long long)o->epoch, (long long)s->nstep);
    return true;
}

static bool stream_set_field(struct stream_state *s, int k)
{
    const struct stream_field *f = &s->options.field[k];
    const struct dataset_array *a = dataset_find(s->d, f->name);
    struct stream_array *to = &s->array[k];
    if (!a || (unsigned)f->type >= LOADER_NTYPE)
        return loader_fail(s->memory.error,
                           a ? "the stream: no type is given for '%s'"
                             : "the stream: no array is named '%s'; open its file",
                           f->name);
    s->source[k] = *a;
    to->type = f->type;
    to->rank = a->rank;
    to->row_nelem = a->row_nelem;
    memcpy(to->dim, a->dim, sizeof a->dim);
    if (f->augment || f->layout || f->to_layout) {
        s->augment[k] = loader_make_augment(&s->memory, a, f, to);
        if (!s->augment[k])
            return false;
    }
    to->dim[0] = s->options.batch;
    size_t row = 0;
    for (int i = 0; i < 2; i++) {
        if (!loader_mul((size_t)to->row_nelem, loader_type_nbytes(to->type), &row))
            return loader_fail(s->memory.error, "the stream: a sample of '%s' is too large",
                               f->name);
        s->slot[i].data[k] = (uint8_t *)stream_take(s, s->options.batch, row);
        if (!s->slot[i].data[k])
            return false;
    }
    return true;
}

static bool stream_set_up(struct stream_state *s)
{
    int64_t nfield = s->options.nfield;
    s->source = (struct dataset_array *)stream_take(s, nfield, sizeof *s->source);
    s->array = (struct stream_array *)stream_take(s, nfield, sizeof *s->array);
    s->augment = (struct loader_augment **)stream_take(s, nfield, sizeof(void *));
    if (!s->options.in_order)
        s->order = (int64_t *)stream_take(s, s->d->nsample, sizeof *s->order);
    if (!s->source || !s->array || !s->augment || (!s->order && !s->options.in_order))
        return false;
    for (int i = 0; i < 2; i++) {
        struct stream_slot *slot = &s->slot[i];
        slot->index = (int64_t *)stream_take(s, s->options.batch, sizeof *slot->index);
        slot->data = (uint8_t **)stream_take(s, nfield, sizeof *slot->data);
        if (!slot->index || !slot->data)
            return false;
        slot->batch.index = slot->index;
        slot->batch.data = (void *const *)slot->data;
    }
    for (int k = 0; k < nfield; k++)
        if (!stream_set_field(s, k))
            return false;
    return true;
}

LOADER_API bool dataset_stream_start(struct stream *stream, const struct dataset *d,
                                     const struct stream_options *options)
{
    struct stream_state *s = (struct stream_state *)calloc(1, sizeof *s);
    memset(stream, 0, sizeof *stream);
    if (!s)
        return loader_fail(stream->error, "the stream: no memory");
    s->d = d;
    s->options = *options;
    s->nstep = s->options.batch > 0 ? (d->nsample - 1) / s->options.batch + 1 : 0;
    s->memory.most_nbytes = loader_room(d) ? loader_room(d) : 1;
    s->order_epoch = s->taken = -1;
    if (!stream_check(s, stream->error) || !stream_set_up(s)) {
        if (!*stream->error)
            memcpy(stream->error, s->memory.error, sizeof stream->error);
        dataset_close(&s->memory);
        free(s);
        return false;
    }
    s->epoch = options->epoch + (options->step == s->nstep);
    s->step = options->step == s->nstep ? 0 : options->step;
    stream->nstep = s->nstep;
    stream->array = s->array;
    stream->state = s;
    stream_begin(s);
    return true;
}

LOADER_API enum stream_status dataset_stream_next(struct stream *stream, struct stream_batch *b)
{
    struct stream_state *s = stream->state;
    if (!s || s->has_ended)
        return *stream->error ? STREAM_FAILED : STREAM_ENDED;
    struct stream_slot *slot = &s->slot[s->next];
    if (s->has_thread)
        stream_await(s);
    else
        slot->status = stream_fill(s, slot);
    s->next = 1 - s->next;
    s->has_ended = slot->status != STREAM_BATCH;
    if (slot->status == STREAM_FAILED)
        memcpy(stream->error, slot->error, sizeof stream->error);
    if (slot->status == STREAM_BATCH)
        *b = slot->batch;
    return slot->status;
}

LOADER_API void dataset_stream_stop(struct stream *stream)
{
    struct stream_state *s = stream->state;
    if (!s)
        return;
    if (s->has_thread)
        stream_end(s);
    loader_free_decoder(&s->decoder);
    dataset_close(&s->memory);
    free(s);
    stream->state = NULL;
    stream->array = NULL;
}
