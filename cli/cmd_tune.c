/* cmd_tune.c - tgc tune: measures the best candidates of the cost models on this machine, and
 * writes the fastest to a file.
 *
 * First each convolution's Winograd tiles, all layers at once, one side a round; then lists of opts
 * of the nests: packed keys, rows together, tiles, which loops threads share. A round compiles the
 * whole model with another candidate for every nest at once, as long as no kernel has two that
 * differ from the model's choice. It then times every kernel. So the longest list of candidates
 * determines the number of rounds.
 *
 * Where nothing says what compiles, LLVM in this process searches, which takes a fraction of a C
 * compiler's time; then the C compiler, whose code is what will run, compiles the best of each list
 * again, and only its times count. Winners are measured again, alternating with the model's
 * choices, and have to win again.
 *
 * Every round's results are added to OUT.part; an interrupted search continues from there.
 */
#include "cli/tuner.h"

#include "backends/program/program.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 8, CONFIRMATIONS = 2, FINALISTS = 3 };
/* Each has times of its own, since two compilers' times say nothing about each other. */
enum phase { SEARCH, FINAL, NPHASE };
/* A finalist takes at most this many times as long as the best of the search. */
static const double least_gain = 0.03, least_us = 0.05, most_behind = 1.1;

/* A choice to be searched: its candidates, each with its least time in a phase; 0: not measured
 * yet. */
struct unit {
    enum tune_kind kind;
    uint64_t key;
    enum isa isa;
    struct tuned candidate[TUNE_WIDTH_MAX];
    double us[NPHASE][TUNE_WIDTH_MAX];
    bool tried[NPHASE][TUNE_WIDTH_MAX];    /* in a round, even if that had no time of it */
    bool is_finalist[TUNE_WIDTH_MAX];
    int n, model;                /* candidates; the model's */
    int kernel[KERNELS_MAX], nkernel;
    int now;                     /* the candidate of this round */
    int best;
    bool is_written;             /* has a line of the file */
    char title[TITLE_NBYTES];
};

struct search {
    struct tgc *t;
    const struct options *o;
    const struct model *model;
    /* what compiles in each phase; one phase is enough where the same compiler does */
    struct options by[NPHASE];
    char maker[NPHASE][MAKER_NBYTES];
    enum phase phase, last;
    struct unit *unit; int nunit; size_t cap_unit;
    int width, done, ncandidate; /* rounds; candidates with a time in them */
    const char *journal;
    bool is_begun;               /* the journal by this search, with no line of an earlier one */
    uint64_t identity;
    double started, before_us, after_us;
};

/* ---------------------------------------------------------------------------------------- units */

static struct unit *find_unit(struct search *s, const struct tuned *e)
{
    for (int i = 0; i < s->nunit; i++) {
        struct unit *u = &s->unit[i];
        if (u->kind == e->kind && u->key == e->key &&
            (!tune_has_isa(e->kind) || u->isa == e->isa))
            return u;
    }
    return NULL;
}

static int candidate_of(const struct unit *u, const struct tuned *e)
{
    for (int i = 0; i < u->n; i++)
        if (tuned_are_equal(&u->candidate[i], e))
            return i;
    return -1;
}

/* The line of a tune file for a candidate. */
static struct tuned entry_of(const struct unit *u, enum phase phase, int candidate)
{
    struct tuned e = u->candidate[candidate];
    e.us = u->us[phase][candidate];
    e.model_us = candidate == u->model ? 0 : u->us[phase][u->model];
    return e;
}

/* Adds the choices of one kind that a compile makes. */
static void add_units(struct search *s, const struct round *r, enum tune_kind kind)
{
    for (int i = 0; i < r->n; i++) {
        const struct record *from = &r->record[i];
        if (from->taken.kind != kind)
            continue;
        struct unit *u = find_unit(s, &from->taken);
        if (!u) {
            struct unit fresh = {.kind = kind, .key = from->taken.key, .isa = from->taken.isa,
                                 .n = from->n, .model = from->model};
            memcpy(fresh.candidate, from->candidate, sizeof fresh.candidate);
            memcpy(fresh.title, from->title, sizeof fresh.title);
            fresh.best = fresh.now = fresh.model;
            VEC_PUSH(s->t, s->unit, s->nunit, s->cap_unit, fresh);
            u = &s->unit[s->nunit - 1];
        }
        if (u->nkernel < KERNELS_MAX)
            u->kernel[u->nkernel++] = from->kernel;
    }
}

/* -------------------------------------------------------------------------------------- journal */

static void hash_text(uint64_t *h, const char *text)
{
    for (; *text; text++)
        *h = tune_key_of_numbers((int64_t[]){(int64_t)*h, *text}, 2);
}

/* A hash of everything on which times depend, except for the machine. */
static uint64_t identity_of(const struct search *s, const struct round *r)
{
    const struct options *o = s->o;
    int64_t numbers[] = {o->threads,
                         o->isa,
                         (int64_t)o->weight_dtype,
                         (int64_t)o->math,
                         o->fast_math,
                         o->no_winograd,
                         o->strassen,
                         o->image,
                         o->half_storage,
                         o->no_locals,
                         (int64_t)fmin(o->error * 1e12, 1e18),
                         s->width,
                         (int64_t)options_host_isa(),
                         (int64_t)o->cache,
                         o->any_target,
                         s->last};
    uint64_t h = tune_key_of_numbers(numbers, sizeof numbers / sizeof *numbers);
    hash_text(&h, TGC_VERSION);
    hash_text(&h, o->machine ? o->machine->text : "");
    hash_text(&h, target_name(o->target));
    hash_text(&h, getenv("CC") ? getenv("CC") : "");
    hash_text(&h, getenv("TGC_CLANG") ? getenv("TGC_CLANG") : "");
    hash_text(&h, s->maker[SEARCH]);
    for (int i = 0; i < o->nunrounded; i++)
        hash_text(&h, o->unrounded[i]);
    for (int i = 0; i < r->n; i++)
        h = tune_key_of_numbers((int64_t[]){(int64_t)h, (int64_t)r->record[i].taken.key}, 2);
    return h;
}

static void put_times(struct search *s, enum phase phase, const struct tuned *e)
{
    struct unit *u = find_unit(s, e);
    int k = u ? candidate_of(u, e) : -1;
    if (k >= 0 && e->us > 0 && (u->us[phase][k] == 0 || e->us < u->us[phase][k]))
        u->us[phase][k] = e->us;
}

static const char *journal_head(struct search *s)
{
    return mem_printf(s->t, "# %016llx, an unfinished search of tgc tune\n",
                      (unsigned long long)s->identity);
}

/* Appends measurements; the first line identifies the search. */
static bool write_journal(struct search *s, const struct text *lines, bool anew)
{
    FILE *f = fopen(s->journal, anew ? "we" : "ae");
    bool ok = f && fwrite(lines->s ? lines->s : "", 1, lines->n, f) == lines->n;
    ok = f && fclose(f) == 0 && ok;
    return ok || diag_error(s->t, &(struct place){.file = s->journal}, "cannot be written: %s",
                            strerror(errno));
}

/* A line of the search begins with this word; those of the last phase are as in a tune file. */
static const char search_word[] = "search ";

static void read_line(struct search *s, const char *at, const char *end)
{
    enum phase phase = s->last;
    if (strncmp(at, search_word, strlen(search_word)) == 0) {
        at += strlen(search_word);
        phase = SEARCH;
    }
    const char *line = mem_printf(s->t, "%s\n%.*s", tune_head, (int)(end - at), at);
    struct tuning one = {0};
    if (at[0] != '#' && tune_read(s->t, s->journal, line, strlen(line), &one) && one.nentry)
        put_times(s, phase, &one.entry[0]);
}

/* Reads what an earlier search has left: lines of a tune file, several for a key, the last one
 * perhaps truncated. Only for units known so far. */
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
    for (const char *at = x.s, *end; ours && at && (end = strchr(at, '\n')); at = end + 1)
        read_line(s, at, end);
    if (ours && x.s[x.n - 1] == '\n')
        return true;
    struct text kept = {.t = s->t};                   /* without a truncated line */
    if (ours)
        text_write(&kept, x.s, (size_t)(strrchr(x.s, '\n') + 1 - x.s));
    else
        text_puts(&kept, head);
    s->is_begun |= !ours;
    return write_journal(s, &kept, true);
}

/* ------------------------------------------------------------------------------------- progress */

static bool is_open(const struct search *s, const struct unit *u, int candidate)
{
    return u->us[s->phase][candidate] == 0 && !u->tried[s->phase][candidate] &&
           (s->phase == SEARCH || u->is_finalist[candidate]);
}

/* The rounds left: the candidates left of the kernel with the most. */
static int rounds_left(const struct search *s, enum tune_kind kind)
{
    int most = 0;
    for (int i = 0; i < s->nunit; i++) {
        int open = 0;
        for (int j = 0; j < s->nunit && s->unit[i].kind == kind; j++) {
            const struct unit *u = &s->unit[j];
            bool same = u->kind == kind && u->kernel[0] == s->unit[i].kernel[0] &&
                        (kind != TUNE_WINOGRAD || i == j);
            for (int k = 0; k < u->n && same; k++)
                open += is_open(s, u, k);
        }
        most = open > most ? open : most;
    }
    return most;
}

static void show_progress(const struct search *s, const char *what, int left)
{
    enum { BAR = 24 };
    double each = (clock_seconds() - s->started) / (s->done > 0 ? s->done : 1);
    int total = s->done + left, full = total ? BAR * s->done / total : BAR;
    progress(s->t, "[%.*s%.*s] %d/%d %s, %.0f s left", full, "########################", BAR - full,
             "........................", s->done, total, what, each * left);
}

/* --------------------------------------------------------------------------------------- rounds */

/* The first round says what the whole search is compiled by: LLVM or not. */
static void note_maker(struct search *s, const struct round *r)
{
    struct options *by = &s->by[s->phase];
    memcpy(s->maker[s->phase], r->maker, sizeof r->maker);
    if (!by->any_target)
        return;
    by->any_target = false;
    by->target = r->is_here ? TARGET_LLVM : TARGET_C;
    if (!r->is_here)
        s->phase = s->last = SEARCH;
}

/* A round with every unit's candidate `now`; the times are added to the units of the kind, and to
 * the journal. */
static bool measure(struct search *s, enum tune_kind kind, double *us)
{
    struct tuning tuning = {.width = 1};
    struct text lines = {.t = s->t};
    struct round r;
    for (int i = 0; i < s->nunit; i++)
        if (s->unit[i].now != s->unit[i].model)
            VEC_PUSH(s->t, tuning.entry, tuning.nentry, tuning.cap_entry,
                     s->unit[i].candidate[s->unit[i].now]);
    if (!round_run(s->t, &s->by[s->phase], s->model, &tuning, true, &r))
        return false;
    note_maker(s, &r);
    for (int i = 0; i < s->nunit; i++) {
        struct unit *u = &s->unit[i];
        struct tuned e = u->candidate[u->now];
        u->tried[s->phase][u->now] = true;
        e.us = e.model_us = 0;
        for (int k = 0; k < r.n && u->kind == kind; k++) /* twins count together */
            if (r.record[k].taken.kind == kind && r.record[k].taken.key == u->key)
                e.us += r.record[k].taken.us;
        if (e.us <= 0)
            continue;
        s->ncandidate += s->phase == SEARCH && u->us[SEARCH][u->now] == 0;
        put_times(s, s->phase, &e);
        text_puts(&lines, s->phase == s->last ? "" : search_word);
        tune_write(&lines, &e);
        text_putc(&lines, '\n');
    }
    if (us)
        *us = *us == 0 || r.us < *us ? r.us : *us;
    s->done++;
    return write_journal(s, &lines, false);
}

static void choose_best(struct search *s, enum tune_kind kind)
{
    for (int i = 0; i < s->nunit; i++) {
        struct unit *u = &s->unit[i];
        if (u->kind != kind)
            continue;
        const double *us = u->us[s->phase];
        double model = us[u->model], least = model;
        u->best = u->model;
        for (int k = 0; k < u->n; k++)
            if (us[k] > 0 && us[k] < least) {
                u->best = k;
                least = us[k];
            }
        if (least > model * (1 - least_gain) || model - least < least_us)
            u->best = u->model;
        u->now = u->best;
    }
}

static bool shares_kernel(const struct unit *u, const bool *taken)
{
    for (int k = 0; k < u->nkernel; k++)
        if (taken[u->kernel[k]])
            return true;
    return false;
}

/* Gives each unit of the kind a candidate that is not measured yet, as long as its kernels have
 * none. Convolutions change together: all layers get tiles of the same side. false: there is
 * none. */
static bool assign(struct search *s, enum tune_kind kind)
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
        int open = is_open(s, u, u->model) ? u->model : 0;
        if (u->kind != kind)
            continue;
        while (open < u->n && !is_open(s, u, open))
            open++;
        u->now = u->model;
        if (open == u->n || (kind != TUNE_WINOGRAD && shares_kernel(u, taken)))
            continue;
        u->now = open;
        any = true;
        for (int k = 0; k < u->nkernel; k++)
            taken[u->kernel[k]] = true;
    }
    scratch_release(s->t, mark);
    return any;
}

static void set_now(struct search *s, enum tune_kind kind, bool best)
{
    for (int i = 0; i < s->nunit; i++)
        if (s->unit[i].kind == kind || kind == TUNE_KIND_COUNT)
            s->unit[i].now = best ? s->unit[i].best : s->unit[i].model;
}

/* The fastest candidate of the search that is no finalist yet; -1: none has a time. */
static int fastest_left(const struct unit *u)
{
    int best = -1;
    for (int k = 0; k < u->n; k++)
        if (u->us[SEARCH][k] > 0 && !u->is_finalist[k] &&
            (best < 0 || u->us[SEARCH][k] < u->us[SEARCH][best]))
            best = k;
    return best;
}

/* The fastest of the search, and the model's. */
static void choose_finalists(struct search *s, enum tune_kind kind)
{
    for (int i = 0; i < s->nunit; i++) {
        struct unit *u = &s->unit[i];
        double least = 0;
        if (u->kind != kind)
            continue;
        for (int n = 0; n < FINALISTS; n++) {
            int k = fastest_left(u);
            if (k < 0 || (n > 0 && u->us[SEARCH][k] > most_behind * least))
                break;
            least = n ? least : u->us[SEARCH][k];
            u->is_finalist[k] = true;
        }
        u->is_finalist[u->model] = true;
    }
}

/* Of a kind: finalists were measured twice, once in each phase. */
static int confirmations(const struct search *s)
{
    return s->last == FINAL ? CONFIRMATIONS - 1 : CONFIRMATIONS;
}

static bool measure_all(struct search *s, enum tune_kind kind, const char *what)
{
    while (assign(s, kind)) {
        show_progress(s, what, rounds_left(s, kind) + 2 * confirmations(s));
        if (!measure(s, kind, NULL))
            return false;
    }
    return true;
}

/* Measures the candidates one after the other, and the best of them by what compiles last; then the
 * winners and the model's choices alternately. */
static bool search_kind(struct search *s, enum tune_kind kind)
{
    static const char *const what[] = {"convolutions", "keys", "rows", "tiles", "threads"};
    int before = s->done;
    s->phase = SEARCH;
    if (!measure_all(s, kind, what[kind]))
        return false;
    s->phase = s->last;
    choose_finalists(s, kind);
    if (s->phase == FINAL && !measure_all(s, kind, what[kind]))
        return false;
    choose_best(s, kind);
    for (int k = 0; k < 2 * confirmations(s) && s->done > before; k++) {
        set_now(s, kind, k % 2 == 0);
        show_progress(s, what[kind], 2 * confirmations(s) - k);
        if (!measure(s, kind, NULL))
            return false;
    }
    choose_best(s, kind);
    return true;
}

/* The kinds in the order of the compile's choices: keys depend on earlier choices. */
static bool search_all(struct search *s)
{
    for (int i = 0; i < TUNE_KIND_COUNT; i++) {
        struct tuning known = {.width = s->width};
        struct round r;
        int before = s->nunit;
        for (int k = 0; k < s->nunit; k++)
            if (s->unit[k].best != s->unit[k].model)
                VEC_PUSH(s->t, known.entry, known.nentry, known.cap_entry,
                         s->unit[k].candidate[s->unit[k].best]);
        if (!round_run(s->t, &s->by[SEARCH], s->model, &known, false, &r))
            return false;
        if (i == 0)
            s->identity = identity_of(s, &r);
        add_units(s, &r, (enum tune_kind)i);
        if (!read_journal(s) || (s->nunit > before && !search_kind(s, (enum tune_kind)i)))
            return false;
    }
    return true;
}

/* Compares the whole model with all winners and with none. */
static bool compare(struct search *s)
{
    for (int k = 0; k < 2 * CONFIRMATIONS && s->done > 0; k++) {
        set_now(s, TUNE_KIND_COUNT, k % 2 == 0);
        show_progress(s, "the result", 2 * CONFIRMATIONS - k);
        if (!measure(s, TUNE_KIND_COUNT, k % 2 ? &s->before_us : &s->after_us))
            return false;
    }
    return true;
}

/* ----------------------------------------------------------------------------------- the result */

/* "compiled by LLVM 19, the best 3 of each list again by cc" */
static const char *compilers(const struct search *s)
{
    if (s->last == SEARCH)
        return mem_printf(s->t, "compiled by %s", s->maker[SEARCH]);
    return mem_printf(s->t, "compiled by %s, the best %d of each list again by %s",
                      s->maker[SEARCH], FINALISTS, s->maker[FINAL]);
}

static bool share_kernel(const struct unit *a, const struct unit *b)
{
    for (int i = 0; i < a->nkernel; i++)
        for (int k = 0; k < b->nkernel; k++)
            if (a->kernel[i] == b->kernel[k])
                return true;
    return false;
}

/* Whether the key of `later` may depend on what was chosen for u: convolutions say which kernels
 * there are, choices for a kernel what the next ones find there. */
static bool is_needed_by(const struct unit *u, const struct unit *later)
{
    return u->kind == TUNE_WINOGRAD ? later->kind != TUNE_WINOGRAD
                                    : u->kind <= later->kind && share_kernel(u, later);
}

/* Choices that gain have lines, and those that their keys depend on. All others stay the cost
 * model's, so that with another machine's facts they are that machine's. Returns how many gain. */
static int choose_lines(struct search *s)
{
    int ngain = 0;
    bool more = true;
    for (int i = 0; i < s->nunit; i++)
        ngain += s->unit[i].is_written = s->unit[i].best != s->unit[i].model;
    while (more) {
        more = false;
        for (int i = 0; i < s->nunit; i++)
            for (int k = 0; k < s->nunit && !s->unit[i].is_written; k++)
                if (s->unit[k].is_written && is_needed_by(&s->unit[i], &s->unit[k]))
                    s->unit[i].is_written = more = true;
    }
    return ngain;
}

static bool write_result(struct search *s, struct outputs *files)
{
    struct text x = {.t = s->t};
    FILE *f = outputs_open(files, s->o->output);
    text_printf(&x, "%s\n# ", tune_head);
    text_comment(&x, s->model->base);
    text_printf(&x, ": kernels as they ran fastest where tgc tune measured them, tgc " TGC_VERSION
                    ", %d thread%s, BEAM=%d, ",
                s->o->threads, s->o->threads == 1 ? "" : "s", s->width);
    text_comment(&x, compilers(s));
    text_puts(&x,
              ".\n# A line a choice: its key, what was chosen, the microseconds of its kernels, "
              "and those of the cost model's choice for this machine, which all others are.\n");
    tune_write_machine(&x, machine_of(s->t));
    for (int i = 0; i < s->nunit; i++) {
        if (!s->unit[i].is_written)
            continue;
        struct tuned e = entry_of(&s->unit[i], s->last, s->unit[i].best);
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

static void print_summary(const struct search *s, int ngain)
{
    progress_end(s->t);
    printf("%s: %d choices, %d unlike the cost model's", s->model->stem, s->nunit, ngain);
    if (s->after_us > 0)
        printf("; %.2f µs a run, before %.2f µs", s->after_us, s->before_us);
    printf("; %d candidates in %d rounds, %.0f s, ", s->ncandidate, s->done,
           clock_seconds() - s->started);
    print_escaped(stdout, compilers(s));
    putchar('\n');
}

/* Where nothing says what compiles: LLVM searches, and the C compiler has the last word, if both
 * are here. */
static void choose_compilers(struct search *s)
{
    struct tgc *t = s->t;
    const struct options *o = s->o;
    const char *llvm = o->any_target || o->target == TARGET_LLVM ? llvm_found(t) : NULL;
    s->by[SEARCH] = s->by[FINAL] = *o;
    s->by[FINAL].any_target = false;
    if (llvm)
        snprintf(s->maker[SEARCH], MAKER_NBYTES, "LLVM %s", llvm);
    if (llvm && o->any_target && program_is_on_path(t, "cc"))
        s->last = FINAL;
}

enum exit_status cmd_tune(struct tgc *t, const struct options *o)
{
    struct model m;
    struct search s = {.t = t, .o = o, .model = &m, .width = o->beam ? o->beam : WIDTH,
                       .journal = mem_printf(t, "%s.part", o->output), .started = clock_seconds()};
    struct outputs *files = outputs_new(t);
    if (!model_load(t, o, &m))
        return EXIT_FAILED;
    model_protect_files(o, &m, files);
    choose_compilers(&s);
    if (!outputs_may_write(files, o->output) || !outputs_may_write(files, s.journal) ||
        !search_all(&s) || !compare(&s)) {
        if (s.is_begun && s.done == 0)
            unlink(s.journal);
        return EXIT_FAILED;
    }
    int ngain = choose_lines(&s);
    if (!write_result(&s, files))
        return EXIT_FAILED;
    unlink(s.journal);
    print_summary(&s, ngain);
    return EXIT_DONE;
}
