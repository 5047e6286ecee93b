/* train_finite.c - what is not finite in a training: weights, and by --detect-nan the kernel where
 * it began.
 *
 *      states noted, none unsound                   the loss of step n is NaN
 *        │                                            │
 *      ──┴── step ── step ── step ── ... ── step n ───┘
 *        └──> the same steps again, by the same code, with a look at the results of each kernel
 *
 * A training costs the same until then: states are noted every few seconds, for a hundredth of the
 * time at most. The steps are the same, since what they draw depends on the seed and their number.
 *
 * Infinities may be meant, as those of a mask are. So a state is unsound if more of its elements
 * are not finite than before the first step. A kernel counts only if its results were finite in
 * those of the repeated steps after which all states were sound.
 */
#include "backends/program/program.h"
#include "lib/train.h"

#include <math.h>
#include <string.h>

/* ----------------------------------------------------------------------------------- the states */

static enum dtype dtype_of(const char *name)
{
    enum dtype d;
    return dtype_parse(name, &d) ? d : DTYPE_VOID;
}

/* Elements of state i of a block that are not finite. */
static size_t count_special(const struct trainer *r, const unsigned char *block, int i)
{
    const struct program_tensor *x = &r->program.info->states[i].input;
    size_t n = 1;
    for (int a = 0; a < x->rank; a++)
        n *= (size_t)x->dim[a].size;
    return array_count_special(dtype_of(x->dtype), block + x->offset, n);
}

/* The first unsound one of a block's states, of which n are looked at; -1: none is. */
static int find_unsound(const struct trainer *r, const unsigned char *block, int n)
{
    for (int i = 0; i < n; i++)
        if (count_special(r, block, i) > r->special[i])
            return i;
    return -1;
}

static void note_state(struct trainer *r, double since)
{
    unsigned char *oldest = r->noted[0].state;
    double now = clock_seconds();
    memcpy(oldest, r->state, r->program.info->state_bytes);
    r->noted[0] = r->noted[1];
    r->noted[1] = (struct noted){oldest, r->step, r->seen, r->epoch, now, now - since};
}

bool train_begin_checks(struct trainer *r)
{
    const struct program_info *info = r->program.info;
    double start = clock_seconds();
    r->special = mem_array(r->t, (size_t)info->state_count + 1, sizeof *r->special);
    if (!train_save_state(r, r->state))
        return false;
    for (int i = 0; i < info->state_count; i++)
        r->special[i] = count_special(r, r->state, i);
    if (!r->o.training.detect_nan)
        return true;
    for (int i = 0; i < 2; i++) {
        r->noted[0].state = pages_allocate(r->t, info->state_bytes, "the states of --detect-nan");
        if (!r->noted[0].state)
            return false;
        note_state(r, start);
    }
    return true;
}

bool train_note_state(struct trainer *r)
{
    const double seconds = 5, share = 0.01;
    double now = clock_seconds(), since = now - r->noted[1].at;
    if (!r->noted[1].state || since < seconds || since * share < r->noted[1].seconds)
        return true;
    if (!train_save_state(r, r->state))
        return false;
    if (find_unsound(r, r->state, r->program.info->state_count) < 0)
        note_state(r, now);
    return true;
}

/* ----------------------------------------------------------------------------------- the errors */

static const char *advice(const struct trainer *r)
{
    return mem_printf(r->t, "a lower --lr, --clip=1 or --schedule=...,warmup=N may help; inputs "
                            "may be far from 0 to 1%s",
                      r->o.training.detect_nan ? ""
                                               : "; --detect-nan names the kernel where it begins");
}

bool train_check_weights(struct trainer *r)
{
    int i = find_unsound(r, r->state, r->graph.nparam + r->graph.nstatistic);
    if (i < 0)
        return true;
    r->lost = LOST_IN_STEPS;
    r->lost_step = r->step;
    return diag_error(r->t, NULL,
                      "after step %lld, in epoch %d, %zu elements of the weight '%.100s' are NaN "
                      "or infinite: %s",
                      (long long)r->step, r->epoch + 1, count_special(r, r->state, i),
                      r->program.info->states[i].input.name, advice(r));
}

bool train_check_loss(struct trainer *r, enum lost in, double loss)
{
    const char *what = isnan(loss) ? "nan" : loss > 0 ? "inf" : "-inf";
    static const char *const of[] = {[LOST_IN_DATA] = "all samples", [LOST_IN_VALID] = "--valid"};
    if (isfinite(loss))
        return true;
    r->lost = in;
    r->lost_step = r->step + 1;
    if (in == LOST_IN_STEPS)
        return diag_error(r->t, NULL, "the loss of step %lld, in epoch %d, is %s: %s",
                          (long long)r->step + 1, r->epoch + 1, what, advice(r));
    return diag_error(r->t, NULL, "the loss of %s, after step %lld, is %s: %s", of[in],
                      (long long)r->step, what, advice(r));
}

/* ---------------------------------------------------------------------------------- the kernels */

/* A tensor of floats that a kernel stores. */
struct result { const struct buffer *buffer; const unsigned char *data; size_t nbytes; };
/* nan: at least one of the n elements is NaN, not only infinite. reads: what else is not finite,
 * among what the kernel reads. */
struct finding { const struct kernel *kernel; size_t n; bool nan; const char *reads; };
/* What a kernel's results had in sound steps. */
enum special { SPECIAL_NONE, SPECIAL_INFINITE, SPECIAL_NAN };
struct watch {
    struct trainer *r;
    const struct schedule *s;
    struct result *result;          /* of all kernels, in order */
    int *first;                     /* [nkernel + 1]: the first one of a kernel */
    unsigned char *before;          /* a kernel's results, before it runs */
    const struct kernel *running;   /* its results are looked at when the next one begins */
    enum special *meant, *seen;     /* [nkernel]: in sound steps; in this one */
    struct finding any, nan;        /* of this run: the first, and the first with NaN */
};

/* The name of an input, output, weight or state; NULL: it is an intermediate. */
static const char *name_of(const struct buffer *b)
{
    while (b->weight.of)
        b = b->weight.of;
    return b->port.state ? b->port.state->name : b->name;
}

/* A kernel of gradients or of the step computes no node of the model: what it stores, and what with
 * a name it reads: "f32[4,8] of 'x', 'w'". */
static const char *describe(struct tgc *t, const struct kernel *k)
{
    struct text out = {.t = t};
    if (*k->title)
        return k->title;
    for (int i = 0, n = 0; i < k->nbuffer; i++) {
        const struct buffer *b = buffer_root(k->buffer[i]);
        const char *name = name_of(b);
        const char *between = n == 0 ? "" : i < k->noutput || n > k->noutput ? ", " : " of ";
        if (name)
            text_printf(&out, "%s'%.100s'", between, name);
        else if (i < k->noutput)
            text_printf(&out, "%s%s", between, dtype_name(b->dtype));
        if (!name && i < k->noutput)
            text_dims(&out, b->dim, b->ndim, "[", "]");
        n += name || i < k->noutput;
    }
    return out.s;
}

/* The inputs, weights and states that a kernel reads and does not store, as far as elements of them
 * are not finite: "'x' has 3, 'w' has 1". */
static const char *find_operands(const struct watch *w, const struct kernel *k)
{
    const struct trainer *r = w->r;
    struct text out = {.t = r->t};
    text_puts(&out, "");
    for (int i = k->noutput; i < k->nbuffer; i++) {
        const struct buffer *b = buffer_root(k->buffer[i]);
        size_t n = 0, place[2];
        bool stored = false;
        for (int o = 0; o < k->noutput && b->port.state; o++)
            stored |= buffer_root(k->buffer[o])->port.state == b->port.state;
        if (b->port.state && !stored && program_arena_places(w->s, b, place))
            n = array_count_special(b->dtype, (const char *)r->program.arena + place[0],
                                    b->port.state->nbytes / dtype_nbytes(b->dtype));
        else if (b->kind == BUFFER_WEIGHT && b->weight.data && dtype_is_float(b->dtype))
            n = array_count_special(b->dtype, b->weight.data, b->nbytes / dtype_nbytes(b->dtype));
        for (int x = 0; x < w->s->ninput; x++)
            if (w->s->input[x] == b)
                n = array_count_special(b->dtype, r->program.input[x].data,
                                        r->program.input[x].nelem);
        const char *name = name_of(b);
        if (n)
            text_printf(&out, "%s'%.100s' has %zu", out.n ? ", " : "", name ? name : "a constant",
                        n);
    }
    return out.s;
}

static struct finding look(const struct watch *w, const struct kernel *k)
{
    struct finding f = {.kernel = k};
    const unsigned char *before = w->before;
    for (int i = w->first[k->index]; i < w->first[k->index + 1]; i++) {
        const struct result *x = &w->result[i];
        size_t size = dtype_nbytes(x->buffer->dtype);
        for (size_t at = 0; at + size <= x->nbytes; at += size) {
            double v = scalar_load(x->buffer->dtype, x->data + at).f;
            /* what it has not stored may be another tensor's, whose place it shares */
            if (isfinite(v) || memcmp(x->data + at, before + at, size) == 0)
                continue;
            f.n++;
            f.nan |= isnan(v);
        }
        before += x->nbytes;
    }
    return f;
}

static void end_kernel(struct watch *w)
{
    if (!w->running)
        return;
    struct finding f = look(w, w->running);
    int k = w->running->index;
    enum special found = !f.n ? SPECIAL_NONE : f.nan ? SPECIAL_NAN : SPECIAL_INFINITE;
    w->running = NULL;
    if (found > w->seen[k])
        w->seen[k] = found;
    if (found <= w->meant[k])
        return;
    if (!w->any.kernel || (!w->nan.kernel && f.nan))
        f.reads = find_operands(w, f.kernel);
    if (!w->any.kernel)
        w->any = f;
    if (!w->nan.kernel && f.nan)
        w->nan = f;
}

static void on_kernel(void *user, int index, const char *kernel)
{
    struct watch *w = user;
    (void)kernel;
    end_kernel(w);
    if (index >= w->s->nkernel)
        return;
    w->running = w->s->kernel[index];
    unsigned char *to = w->before;
    for (int i = w->first[index]; i < w->first[index + 1]; i++) {
        memcpy(to, w->result[i].data, w->result[i].nbytes);
        to += w->result[i].nbytes;
    }
}

static void add_results(struct watch *w, const struct buffer *given, int *n, size_t *cap)
{
    const struct instance *p = &w->r->program;
    const struct buffer *b = buffer_root(given);
    size_t place[2], nbytes = b->port.state ? b->port.state->nbytes : b->nbytes;
    int nplace = program_arena_places(w->s, b, place);
    if (!dtype_is_float(b->dtype))
        return;
    for (int i = 0; i < nplace; i++)
        VEC_PUSH(w->r->t, w->result, *n, *cap,
                 ((struct result){b, (const unsigned char *)p->arena + place[i], nbytes}));
    for (int i = 0; i < w->s->noutput && !nplace; i++)
        if (w->s->output[i] == b)
            VEC_PUSH(w->r->t, w->result, *n, *cap,
                     ((struct result){b, p->output[i].data, p->output[i].nbytes}));
}

static bool list_results(struct watch *w)
{
    const struct schedule *s = w->s;
    int n = 0;
    size_t cap = 0, most = 0;
    w->first = mem_array(w->r->t, (size_t)s->nkernel + 1, sizeof *w->first);
    for (int k = 0; k < s->nkernel; k++) {
        size_t nbytes = 0;
        w->first[k] = n;
        for (int i = 0; i < s->kernel[k]->noutput; i++)
            add_results(w, s->kernel[k]->buffer[i], &n, &cap);
        for (int i = w->first[k]; i < n; i++)
            if (!size_add(nbytes, w->result[i].nbytes, &nbytes))
                TGC_BUG(w->r->t, "a kernel's results are larger than memory");
        most = nbytes > most ? nbytes : most;
    }
    w->first[s->nkernel] = n;
    w->before = pages_allocate(w->r->t, most, "the results of a kernel, for --detect-nan");
    return w->before;
}

/* The program again, whose kernels are watched, with the states of a block. Its arena and outputs
 * are cleared: they may hold what is not finite. */
static bool begin(struct watch *w, const unsigned char *block)
{
    struct instance *p = &w->r->program;
    size_t n = (size_t)w->s->nkernel + 1;
    w->meant = mem_array(w->r->t, n, sizeof *w->meant);
    w->seen = mem_array(w->r->t, n, sizeof *w->seen);
    if (!list_results(w))
        return false;
    p->on_kernel = on_kernel;
    p->user = w;
    instance_close(p);
    memset(p->arena, 0, p->info->arena_bytes);
    for (int i = 0; i < p->info->output_count; i++)
        memset(p->output[i].data, 0, p->output[i].nbytes);
    return instance_restart(w->r->t, &w->r->o, p) && train_restore_state(w->r, block);
}

/* -------------------------------------------------------------------------------------- telling */

static void tell(const struct watch *w, const char *when, const struct finding *f, const char *what)
{
    diag_note(w->r->t, NULL, "%s: the first kernel whose result is %s is %s (%.300s); elements "
                             "of its result that are not finite: %zu%s%s",
              when, what, f->kernel->name, describe(w->r->t, f->kernel), f->n,
              *f->reads ? "; of what it reads: " : "", f->reads);
}

/* What was found in a run. */
static void tell_all(const struct watch *w, const char *when)
{
    if (!w->any.kernel)
        diag_note(w->r->t, NULL, "%s: no kernel's result became NaN or infinite in a second run",
                  when);
    else
        tell(w, when, &w->any, w->any.nan ? "NaN" : "infinite");
    if (w->nan.kernel && w->nan.kernel != w->any.kernel)
        tell(w, when, &w->nan, "NaN");
}

/* ----------------------------------------------------------------------------------- the search */

static void begin_run(struct watch *w)
{
    w->running = NULL;
    w->any = w->nan = (struct finding){0};
    memset(w->seen, 0, (size_t)w->s->nkernel * sizeof *w->seen);
}

/* One of the steps again. *sound: it is not the one. false: diagnostics */
static bool repeat_step(struct watch *w, bool *sound)
{
    struct trainer *r = w->r;
    struct stream_batch b;
    double loss;
    if (dataset_stream_next(&r->stream, &b) != STREAM_BATCH)
        return diag_error(r->t, NULL, "%s", r->stream.error);
    begin_run(w);
    if (!train_step(r, &b, &loss) || !train_save_state(r, r->state))
        return false;
    *sound = isfinite(loss) && find_unsound(r, r->state, r->program.info->state_count) < 0;
    for (int k = 0; k < w->s->nkernel && *sound; k++)
        w->meant[k] = w->seen[k] > w->meant[k] ? w->seen[k] : w->meant[k];
    if (b.is_last)
        r->epoch++, r->seen = 0;
    return true;
}

/* The steps from the older states on, so that sound ones are among them. The last one is known to
 * be lost. */
static bool repeat_steps(struct watch *w, int64_t last)
{
    struct trainer *r = w->r;
    const struct noted *from = &r->noted[0];
    bool sound = true;
    int64_t step = from->step;
    r->step = step, r->seen = from->seen, r->epoch = from->epoch;
    if (!begin(w, from->state) || !train_start_stream(r))
        return false;
    while (sound && step < last) {
        step++;
        progress(r->t, "--detect-nan: step %lld again", (long long)step);
        if (!repeat_step(w, &sound))
            return false;
    }
    progress_end(r->t);
    tell_all(w, mem_printf(r->t, "step %lld", (long long)step));
    return true;
}

static bool repeat_evaluation(struct watch *w)
{
    struct trainer *r = w->r;
    double loss, accuracy;
    if (!train_save_state(r, r->state) || !begin(w, r->state))
        return false;
    begin_run(w);
    if (!train_evaluate(r, r->lost == LOST_IN_VALID, &loss, &accuracy))
        return false;
    tell_all(w, "the loss measured anew");
    return true;
}

void train_find_kernel(struct trainer *r)
{
    struct watch w = {.r = r, .s = r->model.schedule};
    if (!r->noted[0].state || r->lost == LOST_NOWHERE)
        return;
    dataset_stream_stop(&r->stream);
    if (r->lost == LOST_IN_STEPS)
        repeat_steps(&w, r->lost_step);
    else
        repeat_evaluation(&w);
    dataset_stream_stop(&r->stream);     /* its thread reads data that end with the training */
    instance_close(&r->program);
    r->program.on_kernel = NULL;
}
