/* tune_opts.c - a pass's treatment of a store's nest as a choice: a list of opts, which a tune file
 * may replace.
 *
 *      keys, rows    once for all instruction sets, before the others
 *      tile          a list for each instruction set: tiles, packed weights, remainders, fragments
 *
 * In such a list the nest's first store is store 0, whichever it is of its kernel. Candidates are
 * made by applying them to copies of kernel and variant. opt_apply() applies a line of a file as it
 * is. The line is refused if opt_apply() refuses, if it is about other nests, or if it makes
 * vectors that the instruction set lacks. */
#include "passes/kernel/tile.h"

enum { LANES_MAX = 4096 };               /* elements of one tile */

static const struct opts *noted(const struct kernel *k, const struct variant *v)
{
    return v ? &v->opts : &k->opts;
}

static struct uop *ast_of(const struct opts_choice *c) { return c->v ? c->v->ast : c->k->ast; }

void opts_choice_begin(struct opts_choice *c, struct tgc *t, struct kernel *k, struct variant *v,
                       enum tune_kind kind, int at, int nest, uint64_t more)
{
    *c = (struct opts_choice){.t = t, .k = k, .v = v, .at = at, .of.kernel = k, .of.nest = nest};
    c->of.taken.kind = kind;
    c->of.taken.isa = v ? v->isa : isa_portable();
    c->of.taken.key = tune_mix(tune_key_of_store(t, ast_of(c)->src[at]), more);
    c->first = noted(k, v)->n;
    c->debug = t->debug;
    t->debug = 0;
}

int opts_choice_width(const struct opts_choice *c)
{
    int width = c->t->tuning->width;
    return width > 1 ? width : 0;
}

static bool makes_store(enum opt_op op) { return op == OPT_CUT || op == OPT_ROUND; }
static bool names_store(enum opt_op op) { return makes_store(op) || op == OPT_JOIN; }

/* A list with its stores counted from `by` on. */
static struct opts moved(struct tgc *t, const struct opt *from, int n, int by)
{
    struct opts list = {.v = mem_array(t, (size_t)n + 1, sizeof *list.v), .n = n};
    for (int i = 0; i < n; i++) {
        list.v[i] = from[i];
        list.v[i].store += by;
        list.v[i].to += names_store(from[i].op) ? by : 0;
    }
    return list;
}

static struct opts list_since(const struct opts_choice *c, const struct opts *all)
{
    return moved(c->t, all->v + c->first, all->n - c->first, -c->at);
}

void opts_choice_add(struct opts_choice *c, const struct kernel *k, const struct variant *v,
                     const struct tile *tile)
{
    struct choice *of = &c->of;
    int most = 4 * opts_choice_width(c) + 4 * FRAGMENTS_MAX;
    struct tuned e = of->taken;
    e.opts = list_since(c, noted(k, v));
    for (int i = 0; i < of->n; i++)
        if (tuned_are_equal(&of->candidate[i], &e))
            return;
    if (of->n == most)
        return;
    if (!of->candidate) {
        of->candidate = mem_array(c->t, (size_t)most, sizeof *of->candidate);
        of->tile = mem_array(c->t, (size_t)most, sizeof *of->tile);
    }
    of->tile[of->n] = *tile;
    of->candidate[of->n++] = e;
}

/* --------------------------------------------------------------------------------------- replay */

/* Why the pass may not apply this opt for this instruction set, to its nest's stores, *n of them by
 * now. NULL: it may. */
static const char *forbids(const struct opts_choice *c, const struct opt *o, int *n)
{
    enum isa isa = c->of.taken.isa;
    bool fits = c->of.taken.kind == TUNE_GRID ? o->n == isa_lanes(c->t->device->isa)
                : isa_is_portable(isa)        ? false
                                       : o->n == isa_lanes(isa) || o->n == isa_half_lanes(isa);
    if (o->op == OPT_THREAD || o->op == OPT_ALONE || o->op == OPT_BLOCK)
        return "threads are another choice";
    if (o->op == OPT_FRAGMENT && !isa_has_tiles(isa))
        return "the instruction set multiplies no tiles";
    if (o->op == OPT_LANES && o->kind == AXIS_VECTOR && !fits)
        return "the instruction set has no such vectors";
    if (o->op == OPT_FILL && !fits)
        return "the instruction set has no such vectors";
    if (o->store >= *n || (o->op == OPT_JOIN && o->to >= *n) || (makes_store(o->op) && o->to > *n))
        return "that is another nest";
    *n += makes_store(o->op);
    return NULL;
}

static int64_t lanes_of(struct uop *const *range, int n)
{
    int64_t lanes = 1;
    for (int i = 0; i < n; i++)
        if (range[i]->op == OP_RANGE && range_is_lane(range[i]))
            lanes = sat_mul(lanes, range_fixed_size(range[i]));
    return lanes;
}

/* Checks that need the whole list: a tile too large for any registers, or one that is no code. */
static const char *rejects(const struct opts_choice *c, int end)
{
    for (int i = c->at; i < end; i++) {
        struct uop *store = ast_of(c)->src[i];
        int n, first = store_first_range(store);
        struct uop **order = uop_toposort(c->t, &store, 1, &n);
        bool large = lanes_of(store->src + first, store->nsrc - first) > LANES_MAX;
        for (int j = 0; j < n; j++)
            large |= order[j]->op == OP_STAGE &&
                     lanes_of(order[j]->src + 2, order[j]->nsrc - 2) > LANES_MAX;
        if (large)
            return "the tile is larger than any registers";
        if (c->v && stacks_axis(c->t, store) >= 0)
            return "a loop that decides between values has to be unrolled";
    }
    return NULL;
}

bool opts_choice_replay(struct opts_choice *c, int *end)
{
    struct tgc *t = c->t;
    struct tuned *by = tune_find(t, c->of.taken.kind, c->of.taken.key, c->of.taken.isa);
    const char *why = NULL;
    struct refusal refusal;
    struct kernel k = *c->k;
    struct variant v = c->v ? *c->v : (struct variant){0};
    int n = 1, nstore = ast_of(c)->nsrc;
    t->debug = c->debug;
    if (!by)
        return false;
    struct opts list = moved(t, by->opts.v, by->opts.n, c->at);
    for (int i = 0; i < by->opts.n && !why; i++)
        why = forbids(c, &by->opts.v[i], &n);
    if (!why && !opt_apply(t, c->k, c->v, list.v, list.n, &refusal))
        why = refusal.why;
    if (!why) {
        *end = c->at + 1 + ast_of(c)->nsrc - nstore;
        why = rejects(c, *end);
        c->of.by = by;
    }
    if (!why)
        return true;
    *c->k = k;
    if (c->v)
        *c->v = v;
    c->of.by = NULL;
    return tune_misfit(t, by, mem_printf(t, "the kernel of this key refuses the list: %s", why));
}

void opts_choice_end(struct opts_choice *c)
{
    struct choice *of = &c->of;
    of->taken.opts = list_since(c, noted(c->k, c->v));
    if (of->n < 2 && of->taken.opts.n == 0 && !of->by)
        return;
    if (of->n == 0) {
        of->candidate = mem_copy(c->t, &of->taken, sizeof of->taken);
        of->n = 1;
    }
    tune_note(c->t, *of);
}

/* -------------------------------------------------------------------------------------- columns */

struct tile opts_columns(const struct uop *store, const struct opts *list)
{
    struct tile tile = {.column_axis = -1};
    int from[MAX_NEST_AXES + 8], n = 0, first = store_first_range(store);
    int64_t size[MAX_NEST_AXES + 8];
    for (int i = first; i < store->nsrc && n < MAX_NEST_AXES; i++) {
        size[n] = range_fixed_size(store->src[i]);
        from[n++] = i;
    }
    for (int i = 0; i < list->n && n < MAX_NEST_AXES; i++) {
        const struct opt *o = &list->v[i];
        int a = o->axis;
        if (o->store != 0 || o->of != OF_STORE || a < 0 || a >= n)
            continue;
        if (o->op == OPT_PANEL || (o->op == OPT_LANES && o->column)) {
            tile.column_axis = from[a];
            tile.panel = o->n;
            return tile;
        }
        if (o->op == OPT_CUT)
            size[a] = o->n;
        if (o->op == OPT_LANES)
            size[a] /= o->n;
        if (o->op == OPT_CUT ? o->n == 1 : o->op == OPT_LANES && size[a] == 1) {
            for (int k = a; k + 1 < n; k++)
                from[k] = from[k + 1], size[k] = size[k + 1];
            n--;
        }
        if (o->op != OPT_ORDER || o->to < 0 || o->to >= n)
            continue;
        int moving = from[a];
        int64_t length = size[a];
        for (int k = a; k != o->to; k += o->to > a ? 1 : -1) {
            int next = o->to > a ? k + 1 : k - 1;
            from[k] = from[next], size[k] = size[next];
        }
        from[o->to] = moving;
        size[o->to] = length;
    }
    return tile;
}
