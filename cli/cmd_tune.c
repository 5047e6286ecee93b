/* cmd_tune.c - tgc tune: measures the best candidates of the cost models on this machine, and writes
 * down which are fastest.
 *
 * First each convolution's Winograd tiles, all layers at once, one side a round; then the tiles of
 * the nests. A round compiles the whole model with another candidate for every nest at once, as long as
 * no kernel has two that differ from the model's choice, and times every kernel: so there are as
 * many rounds as the widest list has candidates, not as many as there are candidates. What has won
 * is measured once more, beside the model's choices, and has to win again.
 *
 * Every round's results are added to OUT.part; a search that was interrupted goes on from there.
 */
#include "cli/tuner.h"

#include "backends/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 8, SIDES = 4, CONFIRMATIONS = 2 };
static const double least_gain = 0.03, least_us = 0.05;

/* A choice that is searched: candidates, and the least time of each; 0: not yet measured. */
struct unit {
    enum tune_kind kind;
    uint64_t key;
    enum isa isa;
    int n, model;                /* candidates; the model's */
    struct tile tile[TUNE_WIDTH_MAX];
    double us[TUNE_WIDTH_MAX];
    int kernel[KERNELS_MAX], nkernel;
    int now;                     /* the candidate of this round */
    int best;
    char title[TITLE_NBYTES];
};

struct search {
    struct tgc *t;
    const struct options *o;
    const struct model *model;
    struct unit *unit; int nunit; size_t cap_unit;
    int width, done;             /* rounds */
    const char *journal;
    uint64_t identity;
    double started, before_us, after_us;
};

/* ----------------------------------------------------------------------------------------- units */

static struct unit *find_unit(struct search *s, const struct tuned *e)
{
    for (int i = 0; i < s->nunit; i++) {
        struct unit *u = &s->unit[i];
        if (u->kind == e->kind && u->key == e->key && (e->kind != TUNE_TILE || u->isa == e->isa))
            return u;
    }
    return NULL;
}

static int candidate_of(const struct unit *u, const struct tuned *e)
{
    if (u->kind == TUNE_WINOGRAD)
        return e->winograd / 2;
    for (int i = 0; i < u->n; i++)
        if (tiles_are_equal(&u->tile[i], &e->tile))
            return i;
    return -1;
}

static struct tuned entry_of(const struct unit *u, int candidate)
{
    struct tuned e = {.kind = u->kind, .key = u->key, .isa = u->isa};
    if (u->kind == TUNE_WINOGRAD)
        e.winograd = 2 * candidate;
    else
        e.tile = u->tile[candidate];
    e.us = u->us[candidate];
    e.model_us = candidate == u->model ? 0 : u->us[u->model];
    return e;
}

/* The choices of one kind that a compile makes. */
static void add_units(struct search *s, const struct round *r, enum tune_kind kind)
{
    for (int i = 0; i < r->n; i++) {
        const struct record *from = &r->record[i];
        struct unit *u = from->entry.kind == kind ? find_unit(s, &from->entry) : NULL;
        if (from->entry.kind != kind)
            continue;
        if (!u) {
            struct unit fresh = {.kind = kind, .key = from->entry.key, .isa = from->entry.isa,
                                 .n = kind == TUNE_WINOGRAD ? SIDES : from->ncandidate,
                                 .model = from->model_side / 2};
            memcpy(fresh.tile, from->candidate, sizeof fresh.tile);
            memcpy(fresh.title, from->title, sizeof fresh.title);
            fresh.best = fresh.now = fresh.model;
            VEC_PUSH(s->t, s->unit, s->nunit, s->cap_unit, fresh);
            u = &s->unit[s->nunit - 1];
        }
        if (u->nkernel < KERNELS_MAX)
            u->kernel[u->nkernel++] = from->kernel;
    }
}

/* --------------------------------------------------------------------------------------- journal */

static void hash_text(uint64_t *h, const char *text)
{
    for (; *text; text++)
        *h = tune_key_of_numbers((int64_t[]){(int64_t)*h, *text}, 2);
}

/* Of all that times depend on, but for the machine. */
static uint64_t identity_of(const struct search *s, const struct round *r)
{
    const struct options *o = s->o;
    int64_t numbers[] = {o->threads, o->isa, (int64_t)o->weight_dtype, o->fast_math,
                         o->no_winograd, s->width, (int64_t)options_host_isa()};
    uint64_t h = tune_key_of_numbers(numbers, sizeof numbers / sizeof *numbers);
    hash_text(&h, TGC_VERSION);
    hash_text(&h, getenv("CC") ? getenv("CC") : "");
    for (int i = 0; i < r->n; i++)
        h = tune_key_of_numbers((int64_t[]){(int64_t)h, (int64_t)r->record[i].entry.key}, 2);
    return h;
}

static void put_times(struct search *s, const struct tuned *e)
{
    struct unit *u = find_unit(s, e);
    int k = u ? candidate_of(u, e) : -1;
    if (k >= 0 && e->us > 0 && (u->us[k] == 0 || e->us < u->us[k]))
        u->us[k] = e->us;
}

static const char *journal_head(struct search *s)
{
    return mem_printf(s->t, "# %016llx, an unfinished search of tgc tune\n",
                      (unsigned long long)s->identity);
}

/* Appends what is measured; the first line says what it belongs to. */
static bool write_journal(struct search *s, const struct text *lines, bool anew)
{
    FILE *f = fopen(s->journal, anew ? "we" : "ae");
    bool ok = f && fwrite(lines->s ? lines->s : "", 1, lines->n, f) == lines->n;
    ok = f && fclose(f) == 0 && ok;
    return ok || diag_error(s->t, &(struct place){.file = s->journal}, "cannot be written: %s",
                            strerror(errno));
}

/* What an earlier search has left: lines of a tune file, several for a key, the last one perhaps
 * cut off. Read for the units that are known by now. */
static bool read_journal(struct search *s)
{
    FILE *f = fopen(s->journal, "re");
    struct text x = {.t = s->t};
    char part[4096];
    size_t n;
    bool ours = false;
    while (f && (n = fread(part, 1, sizeof part, f)) > 0)
        text_write(&x, part, n);
    if (f)
        fclose(f);
    const char *head = journal_head(s);
    ours = x.n && strncmp(x.s, head, strlen(head)) == 0;
    if (f && !ours)
        diag_warn(s->t, &(struct place){.file = s->journal},
                  "is of another model or of other options: the search begins anew");
    for (const char *at = x.s, *end; ours && at && (end = strchr(at, '\n')); at = end + 1) {
        const char *line = mem_printf(s->t, "tgc-tune 1\n%.*s", (int)(end - at), at);
        struct tuning one = {0};
        if (at[0] != '#' && tune_read(s->t, s->journal, line, strlen(line), &one) && one.nentry)
            put_times(s, &one.entry[0]);
    }
    if (ours && x.s[x.n - 1] == '\n')
        return true;
    struct text kept = {.t = s->t};                   /* without a line that was cut off */
    if (ours)
        text_write(&kept, x.s, (size_t)(strrchr(x.s, '\n') + 1 - x.s));
    else
        text_puts(&kept, head);
    return write_journal(s, &kept, true);
}

/* -------------------------------------------------------------------------------------- progress */

static int rounds_left(const struct search *s, enum tune_kind kind)
{
    int most = 0;
    for (int i = 0; i < s->nunit; i++) {
        int open = 0;
        for (int j = 0; j < s->nunit; j++) {             /* units of one kernel take turns */
            const struct unit *u = &s->unit[j];
            bool same = u->kind == kind && (kind == TUNE_WINOGRAD ? i == j
                                            : u->kernel[0] == s->unit[i].kernel[0]);
            for (int k = 0; k < u->n && same; k++)
                open += u->us[k] == 0;
        }
        most = open > most ? open : most;
    }
    return most;
}

static void show_progress(const struct search *s, const char *what, int left)
{
    enum { BAR = 24 };
    double each = (seconds_now() - s->started) / (s->done > 0 ? s->done : 1);
    int total = s->done + left, full = total ? BAR * s->done / total : BAR;
    bool live = isatty(STDERR_FILENO);
    fprintf(stderr, "%s[%.*s%.*s] %d/%d %s, %.0f s left%s", live ? "\r" : "", full,
            "########################", BAR - full, "........................", s->done, total,
            what, each * left, live ? "   " : "\n");
    fflush(stderr);
}

/* ---------------------------------------------------------------------------------------- rounds */

/* A round with every unit's candidate `now`; what it took goes to units and journal. */
static bool measure(struct search *s, enum tune_kind kind, double *us)
{
    struct tuning tuning = {.width = 1};
    struct text lines = {.t = s->t};
    struct round r;
    for (int i = 0; i < s->nunit; i++) {
        struct tuned e = entry_of(&s->unit[i], s->unit[i].now);
        if (s->unit[i].kind == TUNE_WINOGRAD || s->unit[i].now != s->unit[i].model)
            VEC_PUSH(s->t, tuning.entry, tuning.nentry, tuning.cap_entry, e);
    }
    if (!round_run(s->t, s->o, s->model, &tuning, true, &r))
        return false;
    for (int i = 0; i < s->nunit; i++) {
        struct unit *u = &s->unit[i];
        struct tuned e = entry_of(u, u->now);
        e.us = e.model_us = 0;
        for (int k = 0; k < r.n && u->kind == kind; k++) /* twins together */
            if (r.record[k].entry.kind == kind && r.record[k].entry.key == u->key)
                e.us += r.record[k].entry.us;
        if (e.us <= 0)
            continue;
        put_times(s, &e);
        tune_write(&lines, &e);
        text_putc(&lines, '\n');
    }
    *us = r.us;
    s->done++;
    return write_journal(s, &lines, false);
}

static void choose_best(struct unit *u)
{
    double model = u->us[u->model];
    u->best = u->model;
    for (int k = 0; k < u->n; k++)
        if (u->us[k] > 0 && u->us[k] < u->us[u->best])
            u->best = k;
    if (u->us[u->best] > model * (1 - least_gain) || model - u->us[u->best] < least_us)
        u->best = u->model;
    u->now = u->best;
}

static bool search_winograd(struct search *s)
{
    double us;
    for (int side = 0; side < SIDES; side++) {
        bool open = false;
        for (int i = 0; i < s->nunit; i++) {
            s->unit[i].now = side;
            open |= s->unit[i].us[side] == 0;
        }
        if (open) {
            show_progress(s, "convolutions", rounds_left(s, TUNE_WINOGRAD));
            if (!measure(s, TUNE_WINOGRAD, &us))
                return false;
        }
    }
    for (int i = 0; i < s->nunit; i++)
        choose_best(&s->unit[i]);
    return true;
}

static bool shares_kernel(const struct unit *u, const bool *taken, int n)
{
    for (int k = 0; k < u->nkernel; k++)
        if (u->kernel[k] < n && taken[u->kernel[k]])
            return true;
    return false;
}

/* For each unit a candidate that is not yet measured, as far as kernels are free. false: there is
 * none. */
static bool assign(struct search *s)
{
    int nkernel = 0;
    bool any = false;
    for (int i = 0; i < s->nunit; i++)
        for (int k = 0; k < s->unit[i].nkernel; k++)
            nkernel = s->unit[i].kernel[k] >= nkernel ? s->unit[i].kernel[k] + 1 : nkernel;
    struct mem_mark mark = scratch_mark(s->t);
    bool *taken = scratch_array(s->t, (size_t)nkernel + 1, sizeof *taken);
    for (int i = 0; i < s->nunit; i++) {
        struct unit *u = &s->unit[i];
        int open = 0;
        if (u->kind != TUNE_TILE)
            continue;
        while (open < u->n && u->us[open] > 0)
            open++;
        u->now = u->model;
        if (open == u->n || shares_kernel(u, taken, nkernel))
            continue;
        u->now = open;
        any = true;
        for (int k = 0; k < u->nkernel; k++)
            taken[u->kernel[k]] = true;
    }
    scratch_release(s->t, mark);
    return any;
}

static bool confirm(struct search *s)
{
    double us;
    for (int k = 0; k < CONFIRMATIONS; k++)
        for (int best = 0; best < 2; best++) {
            for (int i = 0; i < s->nunit; i++)
                if (s->unit[i].kind == TUNE_TILE)
                    s->unit[i].now = best ? s->unit[i].best : s->unit[i].model;
            show_progress(s, "winners", 2 * CONFIRMATIONS - 2 * k - best);
            if (!measure(s, TUNE_TILE, &us))
                return false;
            double *least = best ? &s->after_us : &s->before_us;
            *least = *least == 0 || us < *least ? us : *least;
        }
    for (int i = 0; i < s->nunit; i++)
        choose_best(&s->unit[i]);
    return true;
}

static bool search_tiles(struct search *s)
{
    double us;
    while (assign(s)) {
        show_progress(s, "kernels", rounds_left(s, TUNE_TILE) + 2 * CONFIRMATIONS);
        if (!measure(s, TUNE_TILE, &us))
            return false;
    }
    for (int i = 0; i < s->nunit; i++)
        if (s->unit[i].kind == TUNE_TILE)
            choose_best(&s->unit[i]);
    return confirm(s);
}

/* ------------------------------------------------------------------------------------- the result */

static bool write_result(struct search *s)
{
    struct text x = {.t = s->t};
    struct outputs *files = outputs_new(s->t);
    FILE *f = outputs_open(files, s->o->output);
    text_puts(&x, "tgc-tune 1\n# ");
    text_comment(&x, s->model->base);
    text_printf(&x, ": kernels as they ran fastest where tgc tune measured them, tgc " TGC_VERSION
                    ", %d thread%s, BEAM=%d.\n# A line a choice: its key, what was chosen, the "
                    "microseconds of its kernels, and those of the cost model's choice.\n",
                s->o->threads, s->o->threads == 1 ? "" : "s", s->width);
    for (int i = 0; i < s->nunit; i++) {
        struct tuned e = entry_of(&s->unit[i], s->unit[i].best);
        tune_write(&x, &e);
        text_printf(&x, "  # %s\n", s->unit[i].title);
    }
    bool ok = f && (fwrite(x.s, 1, x.n, f) == x.n ||
                    diag_error(s->t, &(struct place){.file = s->o->output}, "writing failed: %s",
                               strerror(errno)));
    ok = ok && outputs_commit(files);
    outputs_discard(files);
    return ok;
}

static void print_summary(const struct search *s)
{
    int changed = 0;
    for (int i = 0; i < s->nunit; i++)
        changed += s->unit[i].best != s->unit[i].model;
    if (isatty(STDERR_FILENO))
        fputc('\n', stderr);
    printf("%s: %d choices, %d unlike the cost model's", s->model->stem, s->nunit, changed);
    if (s->after_us > 0)
        printf("; %.3f ms a run, before %.3f ms", 1e-3 * s->after_us, 1e-3 * s->before_us);
    printf("; %d rounds in %.0f s\n", s->done, seconds_now() - s->started);
}

enum exit_status cmd_tune(struct tgc *t, const struct options *o)
{
    struct model m;
    struct round r;
    struct search s = {.t = t, .o = o, .model = &m, .width = o->beam ? o->beam : WIDTH,
                       .started = seconds_now()};
    struct tuning none = {.width = s.width}, layers = none;
    s.journal = mem_printf(t, "%s.part", o->output);
    if (!model_load(t, o, &m) || !round_run(t, o, &m, &none, false, &r))
        return EXIT_FAILED;
    s.identity = identity_of(&s, &r);
    add_units(&s, &r, TUNE_WINOGRAD);
    if (!read_journal(&s) || !search_winograd(&s))
        return EXIT_FAILED;
    for (int i = 0; i < s.nunit; i++)
        VEC_PUSH(t, layers.entry, layers.nentry, layers.cap_entry,
                 entry_of(&s.unit[i], s.unit[i].best));
    if (!round_run(t, o, &m, &layers, false, &r))
        return EXIT_FAILED;
    add_units(&s, &r, TUNE_TILE);
    if (!read_journal(&s) || (s.nunit > 0 && !search_tiles(&s)) || !write_result(&s))
        return EXIT_FAILED;
    unlink(s.journal);
    print_summary(&s);
    model_close(&m);
    return EXIT_DONE;
}
