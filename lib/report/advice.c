/* advice.c - what is most worth doing next, in words, each from the compiler's own numbers: the
 * estimates by which schedules are chosen, the choices' candidates and the memory plan.
 *
 * Every finding has a gain: microseconds of the run, or bytes. Where kernels were measured, a
 * kernel's part of a gain is scaled by its measured over its estimated time, and no gain is more
 * than what was measured. Findings about time come first, the larger gain before the smaller one;
 * below TIME_LEAST of the run none is said. At -O0 there is one, without a gain: how much -O2 would
 * save nobody has estimated.
 */
#include "lib/report/report.h"

#include "backends/program/program.h"
#include "passes/analysis/kernel_cost.h"
#include "passes/analysis/stationary.h"

#include <string.h>

enum { FINDINGS = 3, SOME_THREADS = 4, LARGE_WEIGHTS = 1 << 20 };
static const double time_least = 0.02, peak_share = 0.5;

struct finding { const char *text, *option; const struct kernel *kernel; double us, nbytes; };
struct findings {
    struct tgc *t;
    const struct options *o;
    const struct schedule *s;
    double total;               /* ns of the run: the sum of ns[] */
    struct kernel_cost *cost;   /* by kernel, estimated */
    double *ns;                 /* by kernel: measured, else estimated */
    bool measured;
    struct finding v[FINDINGS];
    int n;
};

static bool is_before(const struct finding *a, const struct finding *b)
{
    return (a->us > 0) != (b->us > 0) ? a->us > 0
           : a->us != b->us           ? a->us > b->us
                                      : a->nbytes > b->nbytes;
}

/* Keeps the best FINDINGS. */
static void add(struct findings *f, struct finding one)
{
    int at = f->n < FINDINGS ? f->n++ : FINDINGS;
    for (; at > 0 && is_before(&one, &f->v[at - 1]); at--)
        if (at < FINDINGS)
            f->v[at] = f->v[at - 1];
    if (at < FINDINGS)
        f->v[at] = one;
}

static bool is_worth(const struct findings *f, double ns) { return ns > time_least * f->total; }

static double share(const struct findings *f, double ns) { return 100 * ns / f->total; }

/* What the kernel takes, of an estimated part of its estimated time. */
static double scaled(const struct findings *f, int kernel, double ns)
{
    double estimate = f->cost[kernel].ns;
    return estimate > 0 ? ns * f->ns[kernel] / estimate : 0;
}

/* Of times in a text: how they are known. */
static const char *known(const struct findings *f) { return f->measured ? "measured" : "estimated"; }

/* ns that reading its f32 weights as bytes would save: a quarter of the traffic, but never less
 * than the arithmetic. */
static double narrowing_gain(const struct findings *f, const struct kernel *k)
{
    const struct kernel_cost *c = &f->cost[k->index];
    double weights = 0, most = c->ns - c->compute_ns;
    for (int i = k->noutput; i < k->nbuffer; i++)
        if (buffer_is_stationary(k->buffer[i]) && k->buffer[i]->dtype == DTYPE_F32)
            weights += buffer_most_nbytes(k->buffer[i]);
    if (c->limit == LEVEL_L1 || !(c->nbytes[c->limit] > 0) || !(most > 0))
        return 0;
    double part = weights / c->nbytes[c->limit];
    double gain = 0.75 * (part < 1 ? part : 1) * c->ns;
    return gain < most ? gain : most;
}

/* Kernels that wait for their weights. */
static void find_weights(struct findings *f)
{
    double gain = 0, best = 0;
    const struct kernel *k = NULL;
    if (f->o->weight_dtype != DTYPE_VOID)
        return;
    for (int i = 0; i < f->s->nkernel; i++) {
        double one = scaled(f, i, narrowing_gain(f, f->s->kernel[i]));
        gain += one;
        if (one > best) {
            best = one;
            k = f->s->kernel[i];
        }
    }
    if (!k || !is_worth(f, gain))
        return;
    const struct kernel_cost *c = &f->cost[k->index];
    add(f, (struct finding){
               mem_printf(f->t,
                          "%s waits for its weights: its arithmetic takes an estimated %.0f %% of "
                          "its time, the rest is traffic from %s. --weight-type=int8 reads a quarter "
                          "of those bytes, and would save about %s of %s %s in all kernels, at some "
                          "loss of accuracy.",
                          k->name, 100 * c->compute_ns / c->ns, kernel_limit_name(f->t, k, c),
                          view_time(f->t, gain / 1000), known(f), view_time(f->t, f->total / 1000)),
               "--weight-type=int8", k, gain / 1000, 0});
}

/* What threads would share, if they had an equal part each and were woken for each kernel. */
static void find_threads(struct findings *f)
{
    double gain = 0;
    int n = 0;
    for (int i = 0; i < f->s->nkernel && f->o->threads <= 1; i++) {
        double one = f->ns[i] * (1 - 1.0 / SOME_THREADS) - machine_of(f->t)->wake_ns;
        if (f->s->kernel[i]->is_serial || one <= 0)
            continue;
        gain += one;
        n++;
    }
    if (is_worth(f, gain))
        add(f, (struct finding){
                   mem_printf(f->t,
                              "One thread does all of it. %d of %d kernels are long enough to be "
                              "shared: with --threads=%d a run could take %s less than the "
                              "%s %s of its kernels, where that many cores are free.",
                              n, f->s->nkernel, SOME_THREADS, view_time(f->t, gain / 1000),
                              known(f), view_time(f->t, f->total / 1000)),
                   mem_printf(f->t, "--threads=%d", SOME_THREADS), NULL, gain / 1000, 0});
}

/* FLOP in a ns that the kernel could reach: of one thread, which estimates are of; a measured
 * kernel may have had several. */
static double peak_of(const struct findings *f, const struct kernel *k)
{
    const struct machine *m = machine_of(f->t);
    int threads = f->measured && k->is_shared && f->o->threads > 1 ? f->o->threads : 1;
    return threads * 2 * m->fma_cycle * m->flop_lanes / m->ns_cycle;
}

/* Of the kernels that arithmetic limits, the one that loses most against half of the peak. */
static void find_slow(struct findings *f)
{
    double best = 0;
    const struct kernel *k = NULL;
    for (int i = 0; i < f->s->nkernel; i++) {
        double half = f->s->kernel[i]->flop / (peak_share * peak_of(f, f->s->kernel[i]));
        double lost = f->ns[i] - half;
        if (f->cost[i].limit != LEVEL_L1 || lost <= best || f->s->kernel[i]->flop <= 0)
            continue;
        best = lost;
        k = f->s->kernel[i];
    }
    if (!k || !is_worth(f, best) || f->o->tune)
        return;
    double ns = f->ns[k->index];
    add(f, (struct finding){
               mem_printf(f->t,
                          "%s takes %s, %s, which is %.0f %% of the time, and reaches %.2g of the "
                          "machine's %.3g GFLOP/s; at half of these it would take %s less. tgc tune "
                          "measures its other tiles.",
                          k->name, view_time(f->t, ns / 1000), known(f), share(f, ns), k->flop / ns,
                          peak_of(f, k), view_time(f->t, best / 1000)),
               "tgc tune", k, best / 1000, 0});
}

/* Weights that were transformed take more memory than the model's. */
static void find_winograd(struct findings *f)
{
    const struct tuning *tuning = f->t->tuning;
    double model = 0, saved = 0, more;
    int n = 0;
    for (int i = 0; i < tuning->nchoice; i++) {
        const struct choice *c = &tuning->choice[i];
        if (c->taken.kind != TUNE_WINOGRAD || !(c->taken.winograd[0] || c->taken.winograd[1]))
            continue;
        n++;
        for (int k = 0; k < c->n && k < TUNE_SIDES_MAX; k++)
            if (tuned_are_equal(&c->candidate[k], &c->taken))
                saved += c->cost[0] - c->cost[k];
    }
    model = info_model_weight_bytes(f->t, f->s);
    more = (double)f->s->weight_nbytes - model;
    if (n && more > 0.05 * model)
        add(f, (struct finding){
                   mem_printf(f->t,
                              "%d convolution%s by Winograd's tiles, which saves an estimated %s; "
                              "their weights take %s more than the model's %s. --no-winograd gives "
                              "that memory back.",
                              n, n == 1 ? " goes" : "s go", view_time(f->t, saved / 1000),
                              view_bytes(f->t, more), view_bytes(f->t, model)),
                   "--no-winograd", NULL, 0, more});
}

/* Weights that bytes would hold. */
static void find_weight_memory(struct findings *f)
{
    double nbytes = 0;
    for (int i = 0; i < f->s->nweight && f->o->weight_dtype == DTYPE_VOID; i++)
        if (!f->s->weight[i]->weight.same && f->s->weight[i]->dtype == DTYPE_F32)
            nbytes += (double)f->s->weight[i]->nbytes;
    if (nbytes > LARGE_WEIGHTS)
        add(f, (struct finding){
                   mem_printf(f->t,
                              "%s of weights are f32. --weight-type=int8 stores them in about %s, "
                              "--weight-type=bf16 in %s; tgc verify --other=--weight-type=int8 "
                              "shows what that costs in accuracy.",
                              view_bytes(f->t, nbytes), view_bytes(f->t, nbytes / 4),
                              view_bytes(f->t, nbytes / 2)),
                   "--weight-type=int8", NULL, 0, 0.75 * nbytes});
}

/* The step at which most of the arena is alive, and what that is. */
static void find_peak(struct findings *f)
{
    const struct buffer *largest = NULL;
    for (int i = 0; i < f->s->nbuffer; i++)
        if (!largest || f->s->buffer[i]->nbytes > largest->nbytes)
            largest = f->s->buffer[i];
    if (!largest || !f->s->arena_nbytes)
        return;
    for (int i = 0; i < f->s->nkernel; i++)
        for (int j = 0; j < f->s->kernel[i]->noutput; j++)
            if (buffer_root(f->s->kernel[i]->buffer[j]) == largest) {
                double all = (double)f->s->arena_nbytes;
                add(f, (struct finding){
                           mem_printf(f->t,
                                      "Tensors between kernels take %s, of which the result of %s has %s. %s. A "
                                      "smaller input (--shape) lowers both.",
                                      view_bytes(f->t, all), f->s->kernel[i]->name,
                                      view_bytes(f->t, (double)largest->nbytes),
                                      largest->why ? mem_printf(f->t, "It is stored because %s",
                                                                largest->why)
                                                   : "It is stored as the model computes it"),
                           "--shape", f->s->kernel[i], 0, (double)largest->nbytes});
                return;
            }
}

/* Launches of a device, which cost the same however little a kernel does. */
static void find_launches(struct findings *f)
{
    double ns = 0;
    for (int i = 0; i < f->s->nkernel; i++)
        ns += scaled(f, i, device_use(f->t, f->s->kernel[i]).parts.ns[PART_LAUNCH]);
    if (is_worth(f, ns))
        add(f, (struct finding){
                   mem_printf(f->t,
                              "%d launches take an estimated %.0f %% of the %s time, %s. A larger "
                              "batch (--dim, --shape) shares them among more work.",
                              f->s->nkernel, share(f, ns), known(f), view_time(f->t, ns / 1000)),
                   "--shape", NULL, ns / 1000, 0});
}

static void put_finding(struct text *x, const struct finding *one, bool first)
{
    text_puts(x, first ? "{\"text\":" : ",\n{\"text\":");
    text_json(x, one->text);
    text_puts(x, ",\"option\":");
    text_json(x, one->option);
    text_puts(x, ",\"kernel\":");
    if (one->kernel)
        text_json(x, one->kernel->name);
    else
        text_puts(x, "null");
    text_printf(x, ",\"gain_us\":%.4g,\"gain_bytes\":%.0f}", one->us, one->nbytes);
}

/* Of each kernel what it takes, and what was estimated. */
static void find_times(struct findings *f, const char *bench)
{
    int ntime;
    const struct json *d = bench ? json_read(f->t, "bench", bench, strlen(bench)) : NULL;
    const struct json **time = json_elements(f->t, json_get(d, "kernel_times"), &ntime);
    f->measured = ntime > 0 && ntime == f->s->nkernel;
    f->cost = mem_array(f->t, (size_t)f->s->nkernel + 1, sizeof *f->cost);
    f->ns = mem_array(f->t, (size_t)f->s->nkernel + 1, sizeof *f->ns);
    for (int i = 0; i < f->s->nkernel; i++) {
        f->cost[i] = kernel_cost(f->t, f->s, f->s->kernel[i]);
        f->ns[i] = f->measured ? 1000 * json_number(time[i], "us") : f->cost[i].ns;
        f->total += f->ns[i];
    }
}

void report_advice(struct text *out, struct tgc *t, const struct options *o,
                   const struct schedule *s, const char *bench)
{
    struct findings f = {.t = t, .o = o, .s = s};
    find_times(&f, bench);
    if (o->level == 0) {                         /* nothing was chosen that could be otherwise */
        add(&f, (struct finding){"It is compiled at -O0, which stores every value and makes no "
                                 "tiles: -O2, the default, does both.",
                                 "-O2", NULL, 0, 0});
    } else if (device_has_grid(t)) {
        find_launches(&f);
    } else {
        find_weights(&f);
        find_threads(&f);
        find_slow(&f);
    }
    if (o->level > 0) {
        find_winograd(&f);
        find_weight_memory(&f);
        find_peak(&f);
    }
    text_puts(out, ",\n\"advice\":[");
    for (int i = 0; i < f.n; i++)
        put_finding(out, &f.v[i], i == 0);
    text_putc(out, ']');
}
