/* fragment.c - sums of products of groups by a unit that multiplies tiles (AMX): which rows and
 * columns it takes at once, and the opt that makes a nest use it.
 *
 *      for tile                                for tile
 *        for row < 32                            acc[2][2] = 0, each of 16 x 16
 *          for block < 2, vector < 16            for k < 4
 *            acc = 0                               for group < 16, byte < 4
 *            for k < 64, byte < 4                    acc[i][j] += x[tile, i] * w[j]
 *              acc += x[tile, row] * w          scratch[32][32] = acc
 *            y = f(acc)                          for row < 32
 *                                                  for block < 2, vector < 16
 *                                                    y = f(scratch[row])
 *
 * The unit has its own registers, which vectors reach through memory only: a tile's sums are stored
 * once, after its last step, and read again by the vectors of the epilogue. Weights are packed as
 * for the vectors' variants, so that all variants share them. */
#include "passes/kernel/opts_work.h"
#include "passes/kernel/tile_cost.h"

/* A kernel's tile registers keep their shapes, so all its nests use one assignment: SUMS_MAX for
 * sums, one for values, the others for weights. */
enum { SUMS_MAX = 4, WIDE_MAX = TILE_REGISTERS - 1 - SUMS_MAX };

/* The parts of a nest's sum. */
struct factors {
    struct uop *values, *weights;        /* LOADs */
    struct uop *loop;                    /* over groups, the innermost one */
    int64_t groups;                      /* groups of a tile's row */
    int each;                            /* elements of a group */
};

static bool is_only_sum(const struct nest *m)
{
    int n;
    struct uop **order = nest_order(m->t, m->store->src[2], &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_REDUCE && order[i] != m->reduce)
            return false;
    return true;
}

/* Finds the factors; false: it is no sum of products of groups, or the values are not contiguous
 * over all groups. */
static bool find_factors(const struct nest *m, struct factors *f)
{
    int64_t stride, n;
    if (!m->grouped || m->reduce->nsrc < 3 || !nest_sums_groups(m, &f->values, &f->weights) ||
        !is_only_sum(m))
        return false;
    f->each = dtype_group(f->weights->dtype);
    f->loop = m->reduce->src[m->reduce->nsrc - 2];
    if (!range_is(f->loop, AXIS_LOOP) || !uop_const_int(f->loop->src[0], &n) ||
        !index_stride(m->t, f->values->src[1], f->loop, &stride) || stride != f->each)
        return false;
    f->groups = n < TILE_ROWS_MAX ? n : TILE_ROWS_MAX;
    while (n % f->groups)
        f->groups--;
    return f->groups > 1;
}

/* Whether rows can run along r: the values' rows are adjacent and share the weights. */
static bool rows_suit(const struct nest *m, const struct factors *f, struct uop *r)
{
    int64_t stride;
    return RANGE_AXIS(r->arg.i) == AXIS_LOOP && range_fixed_size(r) > 1 &&
           !nest_axis(m, r).stages && !uop_depends_on(m->t, f->weights->src[1], r) &&
           index_stride(m->t, f->values->src[1], r, &stride) && stride > 0;
}

/* Whether weights are packed: a column's elements are contiguous, columns adjacent, groups at one
 * stride. */
static bool columns_suit(const struct nest *m, const struct factors *f, const struct uop *column)
{
    int64_t stride;
    return !uop_depends_on(m->t, f->values->src[1], column) &&
           index_stride(m->t, f->weights->src[1], column, &stride) && stride == f->each &&
           index_stride(m->t, f->weights->src[1], f->loop, &stride) && stride > 0;
}

/* ------------------------------------------------------------------------------------- the cost */

static double steps_of(const struct nest *m)
{
    double steps = 1;
    for (int k = 1; k < m->reduce->nsrc - 1; k++)
        steps *= (double)m->reduce->src[k]->src[0]->vmax;
    return steps;
}

/* Results per ns. A step takes as long as its slowest resource: the unit, loads, decoding, latency
 * of a sum, or reading the panel from the L2. Sums are stored and read once. */
static double gain_of(const struct nest *m, const struct fragment *f)
{
    const struct machine *machine = machine_of(m->t);
    double high = (double)f->high, wide = (double)f->wide, rows = (double)f->rows,
           groups = (double)f->groups, steps = steps_of(m), stored = high * wide * rows;
    struct cost_body body = {.loads = high * rows + wide * groups,
                             .instructions = high + wide + high * wide + 2,
                             .chain = machine->tile_latency, .tile_rows = high * wide * rows};
    double cycles = cost_of_body(machine, &body);
    double panel =
        RATIO_PANEL * wide * groups * TILE_ROW_NBYTES / machine->level[LEVEL_L2].bytes_cycle;
    cycles = (cycles > panel ? cycles : panel) * steps / groups + machine->tile_latency + stored +
             stored / machine->loads_cycle;
    double gain = stored * (double)f->columns.vector * steps / cost_of_cycles(machine, cycles);
    return gain * tile_evenness(m, f->columns.column_axis, f->columns.columns, f->row_axis,
                                f->rows * f->high);
}

/* gain_of() over all rows, the last of which vectors compute. */
static double gain_of_all(const struct nest *m, const struct fragment *f, const struct tile *tile)
{
    int64_t size = range_fixed_size(m->store->src[f->row_axis]), rest = size % (f->rows * f->high);
    double gain = gain_of(m, f), time = (double)(size - rest) / gain + (double)rest / tile->gain;
    return (rest ? RATIO_REMAINDER : 1) * (double)size / time;
}

/* The shape of tiles that the AST uses; rows 0: it uses none. */
static void find_shape(struct tgc *t, struct uop *ast, int64_t *rows, int64_t *groups)
{
    int n;
    struct uop **order = uop_toposort(t, &ast, 1, &n);
    *rows = *groups = 0;
    for (int i = 0; i < n; i++) {
        const struct uop *u = order[i];
        if (range_is(u, AXIS_FRAGMENT))
            *rows = range_fixed_size(u);
        if (u->op == OP_REDUCE && u->nsrc > 2 && range_is(u->src[u->nsrc - 2], AXIS_GROUP))
            *groups = range_fixed_size(u->src[u->nsrc - 2]);
    }
}

bool fragments_are_used(struct tgc *t, struct uop *ast)
{
    int64_t rows, groups;
    find_shape(t, ast, &rows, &groups);
    return rows > 0;
}

/* The best candidates, best first; among equals the earliest. */
struct shortlist { struct fragment f[FRAGMENTS_MAX]; int n; };

static void insert(struct shortlist *s, const struct fragment *f)
{
    int at = s->n;
    while (at > 0 && s->f[at - 1].gain < f->gain)
        at--;
    if (at == FRAGMENTS_MAX)
        return;
    s->n += s->n < FRAGMENTS_MAX;
    for (int i = s->n - 1; i > at; i--)
        s->f[i] = s->f[i - 1];
    s->f[at] = *f;
}

/* Tries all numbers of rows of a tile and of tiles along an axis. */
static void try_rows(const struct nest *m, const struct tile *tile, int64_t shape,
                     struct fragment f, struct shortlist *s)
{
    int64_t size = range_fixed_size(m->store->src[f.row_axis]), lanes = f.columns.vector;
    for (f.rows = 2; f.rows <= TILE_ROWS_MAX; f.rows++)
        for (f.high = 1; f.high * f.rows <= size && f.high <= SUMS_MAX; f.high++)
            for (f.wide = 1; f.high * f.wide <= SUMS_MAX && f.wide <= WIDE_MAX; f.wide++) {
                f.columns.columns = f.wide * lanes;
                if ((shape && f.rows != shape) || tile->panel % f.columns.columns)
                    continue;
                f.gain = gain_of_all(m, &f, tile);
                insert(s, &f);
            }
}

bool fragment_choose(const struct nest *m, struct uop *ast, enum isa isa, const struct tile *tile,
                     int pick, struct fragment *best)
{
    struct factors of;
    struct shortlist s = {.n = 0};
    int64_t rows, groups, stride;
    int lanes = isa_lanes(isa);
    *best = (struct fragment){.gain = 0};
    if (machine_of(m->t)->tile_cycles == 0 || tile->vector != lanes || m->staged ||
        range_fixed_size(m->store->src[tile->column_axis]) % tile->panel || !find_factors(m, &of))
        return false;
    const struct uop *column = m->store->src[tile->column_axis];
    if (uop_depends_on(m->t, of.values->src[1], column) ||
        (!nest_is_packable(m, of.weights) && !columns_suit(m, &of, column)) ||
        !index_stride(m->t, m->store->src[1], column, &stride))
        return false;
    find_shape(m->t, ast, &rows, &groups);
    struct fragment f = {.columns = *tile, .groups = of.groups};
    f.columns.rows = 1;
    f.columns.row_axis = -1;
    for (int a = m->first; a < m->store->nsrc && (rows == 0 || groups == of.groups); a++)
        if (a != tile->column_axis && rows_suit(m, &of, m->store->src[a])) {
            f.row_axis = a;
            try_rows(m, tile, rows, f, &s);
        }
    if (pick < s.n)
        *best = s.f[pick];
    return pick < s.n;
}

/* ------------------------------------------------------------------------------------- the opts */

int fragment_opts(const struct uop *store, const struct uop *row, const struct fragment *f,
                  const struct opt *like, struct opt *opt)
{
    int first = store_first_range(store), axis = 0, last = 0, n = 0;
    int64_t rows = f->rows * f->high;
    while (store->src[first + axis] != row)
        axis++;
    while (!range_is_lane(store->src[first + last]))
        last++;
    for (int i = 0; i < OPTS_OF_FRAGMENT; i++)
        opt[i] = *like;
    if (range_fixed_size(row) > rows) {
        opt[n].op = OPT_DIVIDE;
        opt[n].axis = axis++;
        opt[n++].n = rows;
        last++;
    }
    if (axis < last - 1) {
        opt[n].op = OPT_ORDER;
        opt[n].axis = axis;
        opt[n++].to = last - 1;
    }
    opt[n].op = OPT_FRAGMENT;
    opt[n].axis = last - 1;
    opt[n++].n = f->rows;
    return n;
}

/* The nest's rows and columns: its last loop, and its lanes. */
struct extent { struct uop *row, *block, *vector; };

static bool take_extent(const struct nest *m, int axis, struct extent *x)
{
    const struct uop *store = m->store;
    int at = store->nsrc - 1;
    *x = (struct extent){.vector = store->src[at--]};
    if (at >= m->first && range_is(store->src[at], AXIS_LANE))
        x->block = store->src[at--];
    x->row = at >= m->first ? store->src[at] : NULL;
    return x->row && range_is(x->vector, AXIS_VECTOR) && range_is(x->row, AXIS_LOOP) &&
           at == store_first_range(store) + axis &&
           range_fixed_size(x->vector) * (int64_t)sizeof(int32_t) <= TILE_ROW_NBYTES;
}

/* The STAGE of the sums of all rows and columns, with ranges of its own. */
static struct uop *stage_of(struct work *w, const struct nest *m, const struct factors *f,
                            const struct extent *x, int64_t rows)
{
    struct tgc *t = w->t;
    struct uop_map by = {.t = t, .scratch = true};
    int64_t lanes = range_fixed_size(x->vector), wide = x->block ? range_fixed_size(x->block) : 1;
    int64_t high = range_fixed_size(x->row) / rows;
    struct uop *i = work_new_range(t, high, AXIS_LANE), *j = work_new_range(t, wide, AXIS_LANE),
               *lane = work_new_range(t, rows, AXIS_FRAGMENT),
               *column = work_new_range(t, lanes, AXIS_VECTOR),
               *q = work_new_range(t, range_fixed_size(f->loop) / f->groups, AXIS_LOOP),
               *group = work_new_range(t, f->groups, AXIS_GROUP);
    uop_name_axes(t, lane, "row");
    uop_name_axes(t, column, "column");
    uop_name_axes(t, group, "group");
    work_name_like(t, q, f->loop);
    struct uop *row = sym_add(t, sym_muli(t, i, rows), lane);
    map_set(&by, x->row, row);
    map_set(&by, x->vector, column);
    map_set(&by, f->loop, sym_add(t, sym_muli(t, q, f->groups), group));
    if (x->block)
        map_set(&by, x->block, j);
    struct uop **sum = scratch_array(t, (size_t)m->reduce->nsrc + 1, sizeof *sum), *src[6];
    int n = 0, last = m->reduce->nsrc - 1;
    sum[n++] = uop_substitute_all(t, m->reduce->src[0], &by);
    for (int k = 1; k < last - 1; k++)
        sum[n++] = m->reduce->src[k];
    if (q->op == OP_RANGE)
        sum[n++] = q;
    sum[n++] = group;
    sum[n++] = m->reduce->src[last];
    const enum dtype d = m->reduce->dtype;
    src[0] = uop_intern(t, OP_REDUCE, d, sum, n, m->reduce->arg);
    uop_set_origin(t, src[0], m->reduce);
    src[1] = sym_add(t, sym_muli(t, row, wide * lanes),
                     sym_add(t, sym_muli(t, j, lanes), column));
    struct uop *range[4] = {i, j, lane, column};
    n = 2;
    for (int k = 0; k < 4; k++)
        if (range[k]->op == OP_RANGE)
            src[n++] = range[k];
    struct buffer *scratch =
        kernel_new_scratch(t, w->kernel, d, high * rows * wide * lanes);
    return uop_intern(t, OP_STAGE, d, src, n, (union arg){.p = scratch});
}

bool apply_fragment(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct nest m;
    struct factors f;
    struct extent x;
    work_close(w);
    struct uop *store = w->ast->src[opt->store];
    if (opt->of != OF_STORE || !nest_find(t, store, &m) || !find_factors(&m, &f) ||
        m.reduce->nsrc > MAX_RANK)
        return work_refuse(w, "there is no sum of products with contiguous groups");
    if (!take_extent(&m, opt->axis, &x))
        return work_refuse(w, "the rows must be the last loop before the tile's columns");
    if (opt->n < 2 || opt->n > TILE_ROWS_MAX || range_fixed_size(x.row) % opt->n)
        return work_refuse(w, "n must be 2 to 16 and divide the loop");
    if (!rows_suit(&m, &f, x.row) || !columns_suit(&m, &f, x.vector))
        return work_refuse(
            w,
            "values vary along columns, or weights along rows, or groups are not contiguous");
    struct uop *stage = stage_of(w, &m, &f, &x, opt->n);
    int64_t lanes = range_fixed_size(x.vector), wide = x.block ? range_fixed_size(x.block) : 1;
    struct uop *at = sym_add(t, sym_muli(t, x.row, wide * lanes), x.vector);
    if (x.block)
        at = sym_add(t, at, sym_muli(t, x.block, lanes));
    struct uop *src[2] = {stage, at};
    struct uop *load = uop_intern(t, OP_LOAD, m.reduce->dtype, src, 2, (union arg){0});
    struct uop *by = uop_substitute(t, store, m.reduce, load);
    work_put_stores(w, opt->store, &by, 1);
    return true;
}
