/* grid_compare.c - tgc info --why of devices: records what the choosers of a kernel's schedule
 * compare, on copies of the kernel, before the schedule is chosen.
 *
 *      attention ........ its kinds, if the kernel is attention
 *      matrix, tiles .... each compares candidates by cost_of_grid(), the first also with tiles
 *      slices to each ... tried by rules, in that order; no times are compared
 *
 * What is applied by a rule has no estimate before it is a program. So a copy of it is kept, which
 * lib/why_device.c compiles and reads. That is also done with the kinds after the one that is
 * chosen. The record decides nothing: the pass chooses again, as if nobody asked. */
#include "passes/analysis/matrix.h"
#include "passes/analysis/value.h"
#include "passes/kernel/grid_compare.h"
#include "passes/kernel/grid_matrix.h"
#include "passes/target/target.h"

static enum schedule_kind kind_of(const struct wave_tile *w)
{
    return w->split > 1                  ? SCHEDULE_MATRIX_SPLIT
           : w->by.how == TRANSFER_BULK  ? SCHEDULE_MATRIX_BULK
           : w->by.how == TRANSFER_ASYNC ? SCHEDULE_MATRIX_ASYNC
                                         : SCHEDULE_MATRIX_COPIES;
}

static const char *wave_text(struct tgc *t, const struct wave_tile *w)
{
    const struct matrix_choice *c = w->of;
    struct text x = {.t = t};
    text_printf(&x, "%s, %lld x %lld tile, %lld threads, %d stage%s", c->row->text,
                (long long)wave_side(c, w, 0), (long long)wave_side(c, w, 1),
                (long long)wave_threads(c, w), w->by.n, w->by.n > 1 ? "s" : "");
    if (w->split > 1)
        text_printf(&x, ", split-K of %lld", (long long)w->split);
    if (wave_cluster(w) > 1)
        text_printf(&x, ", cluster of %lld", (long long)wave_cluster(w));
    if (w->producers)
        text_puts(&x, ", producer warps");
    if (w->blocks > 0)
        text_puts(&x, ", persistent");
    if (w->staged)
        text_puts(&x, w->boxes ? ", epilogue as boxes" : ", staged epilogue");
    return x.s;
}

static void describe(const struct tgc *t, const struct wave_tile *w, struct candidate *to)
{
    if (!to)
        return;
    to->parts = wave_parts(t, w->of, w);
    to->parts.ns[PART_BIAS] = to->ns - cost_sum_parts(&to->parts);
    to->text = wave_text(compared(t)->t, w);
}

void compare_wave(const struct tgc *t, const struct wave_tile *w)
{
    describe(t, w, compare_candidate(t, kind_of(w), w->ns));
}

void compare_applied(const struct tgc *t, const struct wave_tile *w, bool done)
{
    if (!compared(t))
        return;
    double ns = choice_flat_ns(w->of, wave_ns(t, w->of, w));
    describe(t, w, done ? compare_chosen(t, kind_of(w), ns) : compare_refused(t, kind_of(w), ns));
}

void compare_no_matrix(struct tgc *t, const struct product *x)
{
    enum matrix_unit of;
    double gflops;
    bool any = false;
    if (!compared(t))
        return;
    enum dtype a = x->m.load[0]->dtype, b = x->m.load[x->m.nload > 1]->dtype;
    for (int i = 0; device_matrix(t, i, &of, &gflops); i++)
        any |= matrix_row(of)->dtype[MATRIX_A] == a && matrix_row(of)->dtype[MATRIX_B] == b;
    compare_refuse(t, SCHEDULE_MATRIX,
                   !device_matrix(t, 0, &of, &gflops) ? "the device has none"
                   : any ? "no tile fits the sum's terms, the loops, or registers"
                         : mem_printf(t, "none of the device multiplies %s by %s%s", dtype_name(a),
                                      dtype_name(b),
                                      a == DTYPE_F32 && b == a ? " (--math rounds them)" : ""));
}

/* A copy of the kernel by the schedule, whose program says what it takes. Its lists are its own:
 * other trials append to those of the kernel. */
static void keep(struct tgc *t, const struct kernel *by, struct candidate *to)
{
    struct kernel *k = to->made = mem_copy(t, by, sizeof *by);
    k->opts.v = mem_copy(t, k->opts.v, (size_t)k->opts.n * sizeof *k->opts.v);
    k->packed = mem_copy(t, k->packed, (size_t)k->npacked * sizeof *k->packed);
    k->scratch = mem_copy(t, k->scratch, (size_t)k->nscratch * sizeof *k->scratch);
    k->opts.cap = (size_t)k->opts.n, k->cap_packed = (size_t)k->npacked;
    grid_note_schedule(t, k);
}

/* Kinds that choosers compare with estimates come first, and have theirs. */
static bool is_by_rule(const struct grid_schedule *s)
{
    return s->kind != SCHEDULE_MATRIX && s->kind != SCHEDULE_TILES;
}

/* Estimates that would have won: what was to be applied before them was refused, and then another
 * kind was taken. */
static void explain_faster(struct comparison *c)
{
    const struct candidate *chosen = c->chosen < 0 ? NULL : &c->best[c->chosen];
    for (int k = 0; chosen && k < SCHEDULE_COUNT; k++) {
        struct candidate *x = &c->best[k];
        if (k != c->chosen && x->ns > 0 && (chosen->ns <= 0 || x->ns < chosen->ns))
            x->why = "not tried: better ones were refused";
    }
}

/* Tries each kind on a copy of the kernel; the first that applies is chosen. */
static void compare_stores(struct tgc *t, const struct kernel *k)
{
    struct comparison *c = compared(t);
    const struct grid_schedule *s, *chosen = NULL;
    int store = grid_main_store(t, k);
    bool sums = value_contains(t, k->ast->src[store], OP_REDUCE, OP_REDUCE);
    for (int i = 0; (s = grid_schedule_at(i)); i++) {
        struct kernel trial = *k;
        c->why = NULL;
        if (!sums && s->kind != SCHEDULE_TRANSPOSED && s->kind != SCHEDULE_EACH)
            compare_refuse(t, s->kind, "it has no sum");
        if ((chosen && !is_by_rule(s)) || !grid_schedule_apply(t, s, &trial, store))
            continue;
        struct candidate *x = &c->best[s->kind];
        if (!chosen && is_by_rule(s))
            c->chosen = (int)s->kind;
        else if (chosen && x->ns <= 0) {
            x->why = mem_printf(t, "by rule, after %s", schedule_text(chosen->kind));
            keep(t, &trial, x);
        }
        chosen = chosen ? chosen : s;
    }
}

void grid_compare(struct tgc *t, const struct kernel *k)
{
    struct kernel trial = *k;
    int debug = t->debug;
    if (t->limit || !compare_begin(t, k))
        return;
    t->debug = 0;
    if (!grid_attention(t, &trial) && !grid_has_bands(&trial))
        compare_stores(t, &trial);
    explain_faster(compared(t));
    compare_end(t);
    t->debug = debug;
}
