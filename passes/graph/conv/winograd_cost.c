/* winograd_cost.c - the cost of each choice of tiles for a convolution: computation, traffic and
 * weights, or the time in a tune file.
 */
#include "passes/analysis/error.h"
#include "passes/graph/conv/winograd.h"
#include "passes/target/tune.h"

#include <math.h>
#include <stdio.h>

struct extent { double in, out, groups, batch; };    /* channels of a group, groups, images */

/* most: a size known only at run time is its upper bound, else 1. */
static struct extent extent_of(const struct layer *l, bool most)
{
    struct extent e = {1, 1, 1, 1};
    for (int p = 0; p < l->product->ndim; p++) {
        const struct uop *dim = l->product->dim[p];
        double n = dim->op == OP_CONST || (most && dim->vmax > 0) ? (double)dim->vmax : 1;
        bool window = false;
        for (int i = 0; i < l->nwindow; i++)
            window |= p == l->window[i].tap || p == l->window[i].out;
        if (window)
            continue;
        switch (l->c.role[p]) {
        case ROLE_SUM: case ROLE_TAP: e.in *= n; break;
        case ROLE_BATCH: e.groups *= n; break;
        case ROLE_ROW: e.batch *= n; break;
        case ROLE_COLUMN: case ROLE_NONE: e.out *= n; break;
        }
    }
    return e;
}

/* places, outputs: of a tile. taps: of windows without tiles. tiles: their number. whole: no tile
 * has outputs that are cut off. */
struct count { double places, outputs, taps, tiles; bool whole; };

static struct count count_of(const struct layer *l, struct sides s)
{
    struct count c = {1, 1, 1, 1, true};
    for (int i = 0; i < l->nwindow; i++) {
        const struct window *w = &l->window[i];
        int m = 1;
        for (int k = 0; k < l->nside; k++)
            m = l->side[k] == w ? s.m[k] : m;
        if (m == 1) {
            c.taps *= (double)w->taps;
            c.tiles *= (double)w->size;
            continue;
        }
        c.places *= (double)(m + w->taps - 1);
        c.outputs *= m;
        c.tiles *= (double)window_tiles(w, m);
        c.whole &= w->open || window_tiles(w, m) * m == w->size;
    }
    return c;
}

/* Nanoseconds: the computation, the transforms' traffic, and the weights, read from memory each
 * time. */
static double cost_of(const struct layer *l, const struct extent *e, struct sides s)
{
    const struct machine *m = machine_of(l->t);
    struct count c = count_of(l, s);
    double tiles = c.tiles * e->batch, products = c.places * c.taps * e->in * e->out * e->groups;
    /* the longer one partly hides the shorter one */
    double flops = cost_of_flop(m, FLOP_TILES, products * tiles * 2);
    double weights = cost_of_bytes(m, LEVEL_MEMORY, products * (double)sizeof(float));
    double cost = flops > weights ? flops + RATIO_HIDDEN * weights : weights + RATIO_HIDDEN * flops;
    if (c.places == 1)
        return cost;
    /* V and M are written and read; inputs are read, outputs written and read */
    double values = (e->in + e->out) * e->groups * tiles * (double)sizeof(float);
    /* whole tiles can run in bands, so that they never leave the caches */
    bool far = values * c.places > cost_fit(m, FIT_FAR) && !c.whole;
    double moved = values * (c.places + RATIO_OUTPUTS * c.outputs);
    return cost + RATIO_TRANSFORM * cost_of_bytes(m, far ? LEVEL_MEMORY : LEVEL_L3, moved);
}

/* The same as a device's work. */
static struct conv_work work_of(const struct layer *l, const struct extent *e, struct sides s)
{
    struct count c = count_of(l, s);
    struct conv_work w = {.groups = e->groups,
                          .rows = c.tiles * e->batch,
                          .in = e->in,
                          .out = e->out,
                          .taps = c.taps,
                          .places = c.places,
                          .outputs = c.outputs,
                          .pixels = e->batch};
    for (int i = 0; i < l->nwindow; i++)
        w.pixels *= (double)l->window[i].size;
    return w;
}

/* The same tap by tap, for what the taps read inside the border: the results of all are stored
 * before they are read. */
static double cost_apart(const struct layer *l, const struct extent *e, double share)
{
    struct sides none = {.m = {1, 1}};
    struct count c = count_of(l, none);
    double stored =
        c.taps * share * c.tiles * e->batch * e->out * e->groups * (double)sizeof(float);
    return share * cost_of(l, e, none) +
           RATIO_TRANSFORM * cost_of_bytes(machine_of(l->t), LEVEL_L3, 2 * stored);
}

/* What that is weighed with; results are much more than what is read of a layer of few channels. */
static double worth_apart(const struct layer *l, const struct extent *e, double share, double cost)
{
    struct count c = count_of(l, (struct sides){.m = {1, 1}});
    return c.taps * share * e->out > RATIO_TAPS_STORED * e->in ? HUGE_VAL
                                                              : cost * RATIO_TAPS_WORTH;
}

static double weights_of(const struct layer *l, const struct extent *e, struct sides s)
{
    struct count c = count_of(l, s);
    return c.places * c.taps * e->in * e->out * e->groups * (double)sizeof(float);
}

/* Bytes of the weights and of what the layer reads and stores. Tiles store V and M, too; taps apart
 * their results. */
static double memory_of(const struct layer *l, const struct extent *e, struct sides s)
{
    struct count c = count_of(l, s), plain = count_of(l, (struct sides){.m = {1, 1}});
    double pixels = plain.tiles * e->batch, values = (e->in + e->out) * pixels;
    if (c.places > 1)
        values += (e->in + e->out) * c.tiles * e->batch * c.places;
    if (s.apart)
        values += c.taps * taps_share(l) * pixels * e->out;
    return weights_of(l, e, s) + values * e->groups * (double)sizeof(float);
}

/* What the time is multiplied by where memory is scarce: what a microcontroller's program takes
 * more of flash and RAM, it has to save of time. */
static double weight_of_memory(const struct layer *l, const struct extent *e, struct sides s)
{
    double thrift = machine_of(l->t)->thrift;
    struct sides none = {.m = {1, 1}};
    return thrift > 0 ? pow(memory_of(l, e, s) / memory_of(l, e, none), thrift) : 1;
}

bool sides_fit(const struct layer *l, struct sides s)
{
    int64_t places = 1;
    for (int i = 0; i < l->nside; i++) {
        int64_t n = s.m[i] + l->side[i]->taps - 1;
        if (s.m[i] == 1)
            continue;
        if (n > SIDE_MAX || n < 4 || n % 2)              /* see cook_toom.c */
            return false;
        places *= n;
    }
    return places > 1 && places <= PLACES_MAX;
}

/* A penalty: larger tiles have larger errors, so they have to save more. Taps that stay in the sums
 * read V repeatedly, which the estimate leaves out. Tiles that are not squares turn out worse than
 * they look: they have more weights, which are read while products are computed. */
static double doubt(const struct layer *l, struct sides s)
{
    const double worth[SIDE_MAX + 1] = {[4] = RATIO_PLACES_4, [6] = RATIO_PLACES_6,
                                        [8] = RATIO_PLACES_8, [10] = RATIO_PLACES_10};
    double product = 1;
    for (int i = 0; i < l->nside; i++)
        product *= s.m[i] == 1 ? RATIO_AGAIN_READ * RATIO_AGAIN_READ
                               : worth[s.m[i] + l->side[i]->taps - 1];
    return sqrt(product) * (l->nside == 2 && s.m[0] != s.m[1] ? RATIO_OBLONG : 1);
}

/* The error at a tile's positions, about 3.1 roundings for any tiles and any number of channels, as
 * measured; the transforms amplify it. */
static double noise_of(const struct layer *l, struct sides s)
{
    const double place = 3.1 / (1 << 24);
    double noise = place * place;
    for (int i = 0; i < l->nside; i++) {
        struct transform f;
        if (s.m[i] < 2)
            continue;
        transform_make(&f, s.m[i], (int)l->side[i]->taps);
        noise *= transform_noise(&f);
    }
    return noise;
}

/* All pairs of sizes that fit, after the choice of no tiles; last, taps apart. */
static int list_sides(const struct layer *l, struct sides *list)
{
    int n = 0;
    list[n++] = (struct sides){.m = {1, 1}};
    for (int i = 1; i <= TILE_SIDE_MAX; i++)
        for (int k = 1; k <= (l->nside == 2 ? TILE_SIDE_MAX : 1); k++) {
            struct sides s = {.m = {i, k}};
            if (sides_fit(l, s))
                list[n++] = s;
        }
    if (taps_share(l) < 1)
        list[n++] = (struct sides){.m = {1, 1}, .apart = true};
    return n;
}

/* The first of the candidates with the least time. */
static int least_worth(const struct weighed *w)
{
    int best = 0;
    for (int i = 1; i < w->n; i++)
        best = w->worth[i] < w->worth[best] ? i : best;
    return best;
}

/* The tiles as text: one number for one window, or for two with equal tiles. */
static const char *sides_text(const struct layer *l, struct sides s)
{
    if (s.apart)
        return "apart";
    int a = s.m[0] > 1 ? s.m[0] : 0, b = s.m[1] > 1 ? s.m[1] : 0;
    return l->nside == 1 || a == b ? mem_printf(l->t, "%d", a)
                                   : mem_printf(l->t, "%dx%d", a, b);
}

void sides_report(const struct layer *l, const struct weighed *w)
{
    const struct origin *o = uop_get_origin(l->t, l->reduce);
    struct extent e = extent_of(l, false);
    fprintf(stderr, "winograd: %s %s: %g x %g channels,", o ? o->op_type : "", o ? o->node : "",
            e.in, e.out);
    for (int i = 0; i < l->nwindow; i++)
        fprintf(stderr, " %lld by %lld;", (long long)l->window[i].size,
                (long long)l->window[i].taps);
    fprintf(stderr, " us");
    for (int i = 0; i < w->n; i++)
        fprintf(stderr, " %s: %.0f,", sides_text(l, w->list[i]), w->ns[i] / 1000);
    fprintf(stderr, " error %.2g, taken: %s\n",
            ERROR_DEVIATIONS * sqrt(w->gain * w->noise[w->taken]),
            sides_text(l, w->list[w->taken]));
}

static struct tuned entry_of(const struct weighed *w, int i)
{
    struct tuned e = {.kind = TUNE_WINOGRAD, .key = w->key, .apart = w->list[i].apart};
    for (int k = 0; k < 2; k++)
        e.winograd[k] = w->list[i].m[k] > 1 ? w->list[i].m[k] : 0;
    if (w->list[i].m[1] == 0)                        /* one window */
        e.winograd[1] = e.winograd[0];
    return e;
}

/* "64 to 64 channels, 56x56 outputs of windows of 3x3" */
static const char *title_of(const struct layer *l, const struct extent *e)
{
    struct text title = {.t = l->t};
    text_printf(&title, "%g to %g channels", e->in, e->out);
    if (e->groups > 1)
        text_printf(&title, " in each of %g groups", e->groups);
    for (int i = 0; i < l->nwindow; i++)
        text_printf(&title, i ? "x%lld" : ", %lld", (long long)l->window[i].size);
    for (int i = 0; i < l->nwindow; i++)
        text_printf(&title, i ? "x%lld" : " outputs of windows of %lld",
                    (long long)l->window[i].taps);
    if (e->batch > 1)
        text_printf(&title, ", %g images", e->batch);
    return title.s;
}

/* Takes the choice of a tune file for layers of these extents. */
static void ask_file(const struct layer *l, const struct extent *e, struct weighed *w)
{
    struct tgc *t = l->t;
    int64_t shape[4 + 4 * MAX_RANK] = {(int64_t)e->in, (int64_t)e->out, (int64_t)e->groups,
                                       (int64_t)e->batch};
    int nshape = 4;
    for (int i = 0; i < l->nwindow; i++) {
        const struct window *v = &l->window[i];
        int64_t of[] = {v->size, v->taps, v->stride, v->dilation};
        for (int k = 0; k < 4; k++)
            shape[nshape++] = of[k];
    }
    w->title = title_of(l, e);
    w->key = tune_key_of_numbers(shape, nshape);
    w->by = tune_find(t, TUNE_WINOGRAD, w->key, isa_portable());
    bool fits = false;
    for (int i = 0; i < w->n && w->by; i++) {
        struct tuned is = entry_of(w, i);
        if (tuned_are_equal(w->by, &is))
            w->asked = i, fits = true;
    }
    if (w->by && !fits)
        tune_misfit(t, w->by, "the convolution of this key has no such tiles");
}

/* ns by the device's model; taps apart are the machine's alone. */
static double device_cost(const struct layer *l, const struct extent *e, struct sides s,
                          conv_cost *cost, double beside)
{
    struct conv_work w = work_of(l, e, s);
    w.beside = beside;
    return s.apart ? HUGE_VAL : cost(l->t, &w);
}

void sides_weigh(const struct layer *l, struct weighed *w, conv_cost *by, double beside)
{
    *w = (struct weighed){.sum = l->reduce};
    w->n = list_sides(l, w->list);
    struct extent e = extent_of(l, by != NULL);
    bool few = e.in < RATIO_FEW_CHANNELS || e.out < RATIO_FEW_CHANNELS;
    for (int i = 0; i < w->n; i++) {
        bool apart = w->list[i].apart, tiles = i > 0 && !apart;
        double share = apart ? taps_share(l) : 1;
        double cost = by      ? device_cost(l, &e, w->list[i], by, beside)
                      : apart ? cost_apart(l, &e, share)
                              : cost_of(l, &e, w->list[i]);
        w->ns[i] = cost;
        w->worth[i] = apart          ? worth_apart(l, &e, share, cost)
                      : !tiles       ? cost
                      : few          ? HUGE_VAL
                                     : cost * doubt(l, w->list[i]);
        w->worth[i] *= by ? 1 : weight_of_memory(l, &e, w->list[i]);
        w->noise[i] = tiles ? noise_of(l, w->list[i]) : 0;
        w->bytes[i] = weights_of(l, &e, w->list[i]) - weights_of(l, &e, w->list[0]);
        if (l->nside == 1)
            w->list[i].m[1] = 0;
    }
    w->model = least_worth(w);
    if (l->t->tuning)
        ask_file(l, &e, w);
}

void sides_price(struct weighed *w, double price)
{
    for (int i = 0; i < w->n; i++)
        w->worth[i] += price * w->bytes[i];
    w->model = least_worth(w);
}

void sides_note(struct tgc *t, const struct weighed *w, double share)
{
    struct choice c = {.taken = entry_of(w, w->taken), .by = w->by, .model = w->model, .n = w->n,
                       .origin = uop_get_origin(t, w->sum), .title = w->title,
                       .candidate = mem_array(t, (size_t)w->n, sizeof *c.candidate),
                       .share = share, .refused = w->by && w->taken != w->asked};
    for (int i = 0; i < w->n; i++) {
        c.candidate[i] = entry_of(w, i);
        c.cost[i] = w->ns[i];
    }
    tune_note(t, c);
}
