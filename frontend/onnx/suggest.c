/* suggest.c - which --dim a message proposes: sizes that were tried, and for which the model can be
 * lowered.
 *
 * A size that a model leaves open is often not free: a network halves an image five times, a
 * detector needs a grid, a signal's window has to fit. What a model asks of its dimensions is in
 * its nodes, so the model is lowered with some sizes, smallest first: fixed, one dimension after
 * the other and then several, then open up to a bound. If no size works, the message says why the
 * last one does not.
 */
#include "frontend/onnx/lower.h"

#include <inttypes.h>
#include <string.h>

static const int64_t sizes[] = {1,   2,   4,   8,   16,  32,  64,   128, 224,
                                256, 384, 512, 640, 960, 1024, 2048, 4096};
enum {
    NSIZES = sizeof sizes / sizeof *sizes,
    FEW = 8,
    LARGEST = 4096,
    TRIED_NODES = 30000, /* by all trials together, */
    TRIALS_LEAST = 4,    /* at least this many trials */
    TRIALS_MOST = 100
};

struct trials {
    struct lower *l;
    struct onnx_dim_option *dim; int ndim;           /* those that are chosen are the first */
    bool *is_first, *is_few;     /* of them: the first axis of an input; that are not tried with
                                  * many */
    int nchosen, left;
    const char *why;             /* the last one that did not work */
    bool warned;                 /* the last one: a part of the model does not work, as a branch */
};

void put_dim_option(struct text *x, const char *name, const char *value)
{
    bool plain = *name && !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                             "0123456789_-./:@%+,")];
    text_puts(x, plain ? " --dim " : " --dim '");
    for (const char *s = name; *s; s++)
        if (*s == '\'')
            text_puts(x, "'\\''");
        else
            text_putc(x, *s);
    text_printf(x, plain ? "=%s" : "=%s'", value);
}

static bool is_tried(struct trials *r)
{
    struct tgc *t = r->l->t;
    struct onnx_graph_options options = r->l->options ? *r->l->options
                                                      : (struct onnx_graph_options){0};
    int ndiag = t->ndiag, nerror = t->nerror, origin = t->current_origin;
    if (r->left-- <= 0)
        return false;
    options.dim = r->dim;
    options.ndim = r->ndim;
    options.default_max = FEW;                       /* of sizes known only at run time */
    options.is_trial = true;
    t->nerror = 0;
    bool ok = r->l->again(t, r->l->model, &options) != NULL;
    t->current_origin = origin;
    bool warned = t->ndiag > ndiag;
    const char *why = diag_take_back(t, ndiag);
    t->nerror = nerror;
    r->why = ok ? r->why : why;
    r->warned = warned;
    return ok;
}

static void choose(struct trials *r, int64_t min, int64_t max)
{
    for (int i = 0; i < r->nchosen; i++) {
        bool few = r->is_few[i] && (min == max || max > FEW);
        r->dim[i].min = few && min == max ? 1 : few ? 0 : min;
        r->dim[i].max = few && min == max ? 1 : few ? FEW : max;
    }
}

static struct text chosen_text(const struct trials *r)
{
    struct text x = {.t = r->l->t};
    for (int i = 0; i < r->nchosen; i++) {
        const struct onnx_dim_option *d = &r->dim[i];
        const char *value = d->min == d->max ? mem_printf(x.t, "%" PRId64, d->max)
                            : d->min ? mem_printf(x.t, "%" PRId64 "..%" PRId64, d->min, d->max)
                                     : mem_printf(x.t, "..%" PRId64, d->max);
        put_dim_option(&x, d->name, value);
    }
    return x;
}

/* Those that are not few in way number `way`: one of them, then those of other axes than the first,
 * then all; false: there is no such way, or it is another one's. */
static bool choose_few(struct trials *r, int way)
{
    int many = 0;
    for (int i = 0; i < r->nchosen; i++) {
        bool is_many = way < r->nchosen ? i == way : way > r->nchosen || !r->is_first[i];
        r->is_few[i] = !is_many;
        many += is_many;
    }
    return way < r->nchosen || (many > 1 && (way > r->nchosen || many < r->nchosen));
}

/* The first sizes without a warning, if not all are 1; else the first that work. */
static bool find_fixed(struct trials *r, int64_t *size)
{
    struct onnx_dim_option *at = mem_array(r->l->t, (size_t)r->nchosen + 1, sizeof *at);
    bool *is_few = mem_array(r->l->t, (size_t)r->nchosen + 1, sizeof *is_few);
    int64_t first_size = 0;
    for (int i = 0; i < NSIZES; i++)
        for (int way = i ? 0 : r->nchosen + 1; way < r->nchosen + 2; way++) {
            if (!choose_few(r, way) && i)
                continue;
            choose(r, sizes[i], sizes[i]);
            *size = sizes[i];
            bool works = is_tried(r);
            if (works && (!r->warned || !i))
                return true;
            if (!works || first_size)
                continue;
            first_size = sizes[i];
            ARRAY_COPY(at, r->dim, r->nchosen);
            ARRAY_COPY(is_few, r->is_few, r->nchosen);
        }
    memcpy(r->dim, at, first_size ? (size_t)r->nchosen * sizeof *at : 0);
    memcpy(r->is_few, is_few, first_size ? (size_t)r->nchosen * sizeof *is_few : 0);
    *size = first_size;
    return first_size > 0;
}

/* All of them up to a bound; then from the size that works on; then the few alone, the others
 * fixed. */
static bool find_bound(struct trials *r, int64_t fixed)
{
    struct onnx_dim_option *at = mem_copy(r->l->t, r->dim, (size_t)r->nchosen * sizeof *at);
    for (int pass = 0; pass < 2 && (!pass || fixed > 1); pass++)
        for (int64_t most = FEW; most <= LARGEST; most *= 2) {
            choose(r, pass && fixed < most ? fixed : 0, most);
            if (most >= fixed && is_tried(r))
                return true;
        }
    ARRAY_COPY(r->dim, at, r->nchosen);
    bool any = false;
    for (int i = 0; i < r->nchosen; i++)
        if (r->is_few[i]) {
            r->dim[i] = (struct onnx_dim_option){r->dim[i].name, 0, FEW};
            any = true;
        }
    return any && is_tried(r);
}

/* Those of l->symbol for which `wanted`, by position, before the options that are given. */
static struct trials trials_of(struct lower *l, const bool *wanted)
{
    struct trials r = {.l = l};
    int given = l->options ? l->options->ndim : 0;
    size_t nnode = l->model->proto->graph->n_node;
    r.left = TRIED_NODES / (int)(nnode < TRIED_NODES ? nnode + 1 : TRIED_NODES);
    r.left = r.left < TRIALS_LEAST ? TRIALS_LEAST : r.left > TRIALS_MOST ? TRIALS_MOST : r.left;
    r.dim = mem_array(l->t, (size_t)(l->nsymbol + given) + 1, sizeof *r.dim);
    r.is_first = mem_array(l->t, (size_t)l->nsymbol + 1, sizeof *r.is_first);
    r.is_few = mem_array(l->t, (size_t)l->nsymbol + 1, sizeof *r.is_few);
    for (int i = 0; i < l->nsymbol; i++)
        if (wanted[i]) {
            r.is_first[r.nchosen] = l->symbol[i].axis == 0;
            r.dim[r.nchosen++].name = l->symbol[i].name;
        }
    r.ndim = r.nchosen;
    for (int k = 0; k < given; k++) {
        bool chosen = false;
        for (int i = 0; i < r.nchosen; i++)
            chosen |= !strcmp(r.dim[i].name, l->options->dim[k].name);
        if (!chosen)
            r.dim[r.ndim++] = l->options->dim[k];
    }
    return r;
}

struct suggestion lower_suggest(struct lower *l, const bool *wanted)
{
    struct suggestion s = {NULL, NULL, NULL};
    int64_t fixed = 0;
    if (l->options && l->options->is_trial)
        return s;
    struct trials r = trials_of(l, wanted);
    if (find_fixed(&r, &fixed)) {
        s.fixed = chosen_text(&r).s;
        if (find_bound(&r, fixed))
            s.bound = chosen_text(&r).s;
    }
    s.why = r.why;
    return s;
}

void lower_suggest_others(struct lower *l)
{
    bool *wanted = mem_array(l->t, (size_t)l->nsymbol + 1, sizeof *wanted), any = false;
    struct place at = onnx_place_model(l->model);
    bool all = true;
    for (int i = 0; i < l->nsymbol; i++) {
        all &= l->symbol[i].dim != NULL;             /* else those are what is missing */
        for (int k = 0; l->options && k < l->options->ndim; k++)
            any |= wanted[i] |= !strcmp(l->symbol[i].name, l->options->dim[k].name);
    }
    if (!any || !all)
        return;
    struct suggestion s = lower_suggest(l, wanted);
    if (s.fixed)
        diag_note(l->t, &at, "other sizes work:\n   %s%s%s", s.fixed, s.bound ? "\nor\n   " : "",
                  s.bound ? s.bound : "");
}
