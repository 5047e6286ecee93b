/* grid_attention.c - attention on a device, without matrix instructions: a block has a tile of
 * queries and iterates over blocks of keys with an online softmax (online_softmax.c).
 *
 *    grid: (tile of queries, head)     a block
 *      q[e][r] = the queries             shared memory, as are m, l and a
 *      for block of keys                 s[j][r] = sum over e of q[e][r] * k[j, e]
 *        s, m, l, a as on processors     a[r][f] = c[r] * a[r][f] + sum over j of s[j][r] * v[j, f]
 *
 * m and l are the running maximum and sum, c rescales a, the result so far. All threads of the
 * block share each store of the kernel; a barrier follows it. In the two products each thread has a
 * tile of rows x columns in registers. k and v are staged some terms at a time. Shared memory holds
 * the scores of one block of keys, however many keys there are. All blocks of keys have one size:
 * after the last key nothing is read, and the scores are -inf.
 *
 * The model counts what a thread issues for a block of keys, as grid_tile.c does, and the
 * occupancy, which shared memory limits. The alternative is a block of threads for each query
 * (grid_rows.c), if a row's scores and partial sums fit shared memory. */
#include "passes/kernel/grid_attention.h"

enum { STEP_MOST = 16, STEP_LEAST = 4, SHAPES_MAX = 8, FEW = 8 };
/* Stores of a block of keys, and of a row with its trees; each is followed by a barrier. */
enum { STORES = 9, ROW_STORES = 4 };

/* A product's tile: items (threads) x lanes (per thread) of rows, the queries, and of columns.
 * tiles: how many such tiles cover the columns; step: terms staged at a time; 0: operands are not
 * staged. */
struct part { int64_t row_items, row_lanes, column_items, column_lanes, tiles, step; };
struct shape {
    struct online_shape of;
    int64_t threads;
    struct part scores, product;
    int64_t nelem;               /* of shared memory */
    double ns;
};
static int count_loads(struct tgc *t, struct uop *value)
{
    int n, count = 0;
    struct uop **order = uop_toposort(t, &value, 1, &n);
    for (int i = 0; i < n; i++)
        count += order[i]->op == OP_LOAD;
    return count;
}

/* A longer axis is of a tensor that fits nowhere, which pass sizes says. */
enum { AXIS_MOST = 1 << 30 };

static bool find_sizes(struct tgc *t, const struct kernel *k, struct attention *x)
{
    struct online o = {.t = t, .store = online_without_conditions(t, k->ast->src[0])};
    *x = (struct attention){.heads = 1,
                            .columns = 1,
                            .inner = 1,
                            .local_nbytes = device_local_nbytes(t),
                            .factor = DTYPE_F32};
    if (k->ast->nsrc != 1 || !online_parts(&o))
        return false;
    x->queries = o.nrow->vmax;
    x->keys = o.nkey->vmax;
    x->features = o.dot->src[1]->src[0]->vmax;
    x->factor = o.query->op == OP_CAST ? o.query->src[0]->dtype : o.query->dtype;
    for (int i = store_first_range(o.store); i < o.store->nsrc; i++) {
        struct uop *r = o.store->src[i];
        int64_t *of = uop_depends_on(t, o.scores, r) ? &x->heads : &x->columns;
        if (r == o.row)
            continue;
        *of = sat_mul(*of, r->src[0]->vmax);
        x->inner = of == &x->columns ? r->src[0]->vmax : x->inner;
    }
    if (x->queries > AXIS_MOST || x->keys > AXIS_MOST || x->features > AXIS_MOST ||
        x->columns > AXIS_MOST)
        return false;
    x->masks = count_loads(t, o.scores->src[0]) - count_loads(t, o.dot);
    visible_find(t, o.scores->src[0], o.key, o.dot, &o.visible);
    x->row = o.row;
    x->begin = o.visible.is_finite ? NULL : o.visible.begin;
    x->end = o.visible.is_finite ? NULL : o.visible.end;
    return true;
}

/* ------------------------------------------------------------------------------------- the cost */

/* The most terms whose staged copy of `columns` columns is shared evenly by the threads. */
static int64_t choose_step(int64_t terms, int64_t columns, int64_t threads)
{
    for (int64_t step = STEP_MOST; step >= STEP_LEAST; step--)
        if (terms % step == 0 && terms > step && step * columns % threads == 0)
            return step;
    return 0;
}

/* Issue cost of a thread for the sums over `terms`, in multiply-adds. */
static double work_of(const struct device_row *d, const struct part *p, int64_t terms,
                      int64_t threads)
{
    double columns = (double)(p->column_items * p->column_lanes);
    double each = (double)(p->row_lanes * p->column_lanes + p->row_lanes) + 1 +
                  (double)p->column_lanes * (p->step ? cost_grid_local(d) : cost_grid_load(d));
    if (p->step)
        each +=
            cost_grid_load(d) * columns / (double)threads + RATIO_GRID_BARRIER / (double)p->step;
    return (double)(p->tiles * terms) * each;
}

/* How often a block stalls on copies, or on its loads. */
static double steps_of(const struct part *p, int64_t terms)
{
    return p->step ? (double)(p->tiles * ceil_div(terms, p->step)) : 1;
}

/* The cheapest tile of rows x columns for `threads`; false: none fits the registers. */
static bool choose_part(const struct device_row *d, int64_t rows, int64_t columns, int64_t terms,
                        int64_t threads, struct part *best)
{
    double least = 0;
    for (int64_t items = 1; items <= threads && items <= rows; items *= 2)
        for (int64_t lanes = 1; lanes <= FEW; lanes *= 2) {
            struct part p = {items, rows / items, threads / items, lanes, 0, 0};
            int64_t wide = p.column_items * lanes;
            p.tiles = ceil_div(columns, wide);
            p.step = choose_step(terms, wide, threads);
            if (p.row_lanes > FEW || wide / 2 >= columns ||
                4 * (p.row_lanes * lanes + p.row_lanes + lanes) > 3 * d->registers)
                continue;
            double work = work_of(d, &p, terms, threads);
            if (least > 0 && work >= least)
                continue;
            least = work;
            *best = p;
        }
    return least > 0;
}

static int64_t local_nelem(const struct shape *s, const struct attention *x)
{
    enum { PER_ROW = 5 };        /* maxima, sums, and a mask's bound */
    int64_t rows = s->of.rows;
    return rows * (x->features + s->of.keys + x->columns + 2 * s->of.groups + PER_ROW) +
           s->scores.step * (s->of.keys + 1) +
           s->product.step * (s->product.column_items * s->product.column_lanes + 1);
}

double attention_nbytes(const struct attention *x)
{
    double width = (double)(x->features + x->columns);
    return (double)dtype_nbytes(x->factor) * (double)x->heads * (double)(x->keys + x->queries) *
           width;
}

static struct grid_work shape_work(struct tgc *t, const struct shape *s, const struct attention *x)
{
    const struct device_row *d = t->device;
    struct attention_iterations through = attention_iterations(t, x, s->of.rows, s->of.keys);
    double tiles = (double)x->heads * (double)ceil_div(x->queries, s->of.rows),
           passes = (double)(x->columns / x->inner), iterations = through.all,
           threads = (double)s->threads;
    double elements = (double)s->of.rows * s->of.keys / threads;
    double issued = work_of(d, &s->scores, x->features, s->threads) +
                    passes * work_of(d, &s->product, s->of.keys, s->threads) +
                    STORES * RATIO_GRID_BARRIER / 2 + elements * (ATTENTION_EXPONENTIAL + 2) +
                    2 * (double)s->of.groups * __builtin_ceil(s->of.rows / threads);
    double steps = steps_of(&s->scores, x->features) + passes * steps_of(&s->product, s->of.keys);
    return (struct grid_work){
        .blocks = tiles,
        .threads = threads,
        .rounds = through.rounds,
        .issued = iterations * issued,
        .steps = iterations * steps,
        .local_nbytes = 4 * (double)s->nelem,
        .cache_nbytes = (double)dtype_nbytes(x->factor) * tiles * iterations * s->of.keys *
                        (double)(x->features + x->columns),
        .memory_nbytes = attention_nbytes(x),
    };
}

/* Time of one block per query, whose threads share its keys and load all factors from memory. 0:
 * two rows of scores and their partial sums do not fit shared memory. */
static double rows_ns(const struct tgc *t, const struct attention *x)
{
    const struct device_row *d = t->device;
    double blocks = (double)x->heads * (double)x->queries,
           threads = grid_row_threads(d, blocks, (double)x->keys);
    double factors = (double)(x->features + x->columns), keys = (double)x->keys / threads;
    struct grid_work work = {
        .blocks = blocks,
        .threads = threads,
        .issued = keys * (factors * (1 + 2 * cost_grid_load(d)) + ATTENTION_EXPONENTIAL + 2) +
                  ROW_STORES * (RATIO_GRID_BARRIER / 2 + d->wave),
        .cache_nbytes = (double)dtype_nbytes(x->factor) * blocks * (double)x->keys * factors,
        .memory_nbytes = attention_nbytes(x),
    };
    if (sat_mul(x->keys, 3 * (int64_t)sizeof(float)) > x->local_nbytes) {
        compare_refuse(t, SCHEDULE_ROWS, "a row's scores exceed shared memory");
        return 0;
    }
    double ns = cost_of_grid(d, &work, NULL);
    compare_work(t, compare_candidate(t, SCHEDULE_ROWS, ns), &work);
    return ns;
}

static bool fill_shape(struct tgc *t, struct shape *s, const struct attention *x)
{
    const struct device_row *d = t->device;
    int64_t most = d->group < THREADS_MOST ? d->group : THREADS_MOST;
    if (s->threads < d->wave || s->threads > most || s->of.keys < s->of.groups ||
        !choose_part(d, s->of.rows, s->of.keys, x->features, s->threads, &s->scores) ||
        !choose_part(d, s->of.rows, x->inner, s->of.keys, s->threads, &s->product))
        return false;
    s->nelem = local_nelem(s, x);
    struct grid_work work = shape_work(t, s, x);
    s->ns = cost_of_grid(d, &work, NULL);
    return 4 * s->nelem <= x->local_nbytes;
}

/* For tgc info --why. to: NULL: it does not ask. */
static void describe(struct tgc *t, const struct shape *s, const struct attention *x,
                     struct candidate *to)
{
    if (!to)
        return;
    struct grid_work work = shape_work(t, s, x);
    compare_work(t, to, &work);
    to->text = mem_printf(t, "%d queries x %d keys a block, %lld threads", s->of.rows, s->of.keys,
                          (long long)s->threads);
}

/* Lists the cheapest shapes, best first. */
static int list_shapes(struct tgc *t, const struct attention *x, struct shape *best)
{
    int n = 0;
    for (int rows = 4; rows <= 64; rows *= 2)
        for (int keys = 8; keys <= 128; keys *= 2)
            for (int64_t threads = 16; threads <= THREADS_MOST; threads *= 2) {
                int groups = threads > rows ? (int)(threads / rows) : 1;
                struct shape s = {.of = {rows, groups < 2 * FEW ? groups : 2 * FEW, keys, true},
                                  .threads = threads};
                bool wide = rows / 2 >= x->queries || keys / 2 >= x->keys;
                if (wide || !fill_shape(t, &s, x))
                    continue;
                describe(t, &s, x, compare_candidate(t, SCHEDULE_ATTENTION_TILES, s.ns));
                n = KEEP_BEST(best, n, SHAPES_MAX, &s);
            }
    return n;
}

/* ------------------------------------------------------------------------------------- the opts */

int attention_common(const struct uop *ast)
{
    int n = 0, first = store_first_range(ast->src[0]);
    for (;; n++)
        for (int i = 0; i < ast->nsrc; i++) {
            const struct uop *s = ast->src[i];
            int at = store_first_range(s) + n;
            if (at >= s->nsrc || s->src[at] != ast->src[0]->src[first + n] ||
                !range_is(s->src[at], AXIS_BAND))
                return n;
        }
}

int attention_bands(const struct uop *store)
{
    int n = 0;
    for (int i = store_first_range(store); i < store->nsrc; i++)
        n += range_is(store->src[i], AXIS_BAND);
    return n;
}

void attention_places(struct opt_list *l, const struct uop *store, int common)
{
    int tag[LOOPS_MAX], n = 0, first = store_first_range(store);
    int64_t size[LOOPS_MAX];
    for (int i = common - 1; i >= 0 && n < LOOPS_MAX; i--) {
        tag[n] = LOOP_GIVEN + i;
        size[n++] = store->src[first + i]->src[0]->vmax;
    }
    list_grid(l, tag, size, n);
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

int64_t attention_threads(struct opt_list *l, const struct uop *store, int64_t threads)
{
    int first = store_first_range(store), outer = attention_bands(store), n = store->nsrc - first;
    int64_t left = threads,
            iterations = n > outer ? range_fixed_size(store->src[first + outer]) : 1;
    if (n == outer)
        list_add(l, OPT_FIRST, -1)->n = threads;
    for (int i = n - 1; i >= outer && left > 1; i--) {
        int64_t size = range_fixed_size(store->src[first + i]),
                items = i > outer ? common_divisor(size, left) : left;
        if (items > 1)
            size = list_take(l, size, true, items, LOOP_GIVEN + i, OPT_ITEM);
        iterations = i == outer ? size : iterations;
        left /= items;
    }
    return iterations;
}

int attention_operand(struct tgc *t, struct uop *sum)
{
    int n, operand = 0;
    struct uop **order = nest_order(t, sum->src[0], &n);
    for (int i = 0; i < n; i++) {
        if (order[i]->op != OP_LOAD)
            continue;
        if (uop_buffer_of(order[i]->src[0])->kind != BUFFER_SCRATCH &&
            uop_depends_on(t, order[i], sum->src[1]))
            return operand;
        operand++;
    }
    return -1;
}

struct uop *attention_product(struct tgc *t, struct uop *store)
{
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_REDUCE && REDUCE_OP(order[i]->arg.i) == OP_ADD &&
            order[i]->nsrc == 2 && uop_buffer_of(store->src[0])->kind == BUFFER_SCRATCH &&
            attention_operand(t, order[i]) >= 0)
            return order[i];
    return NULL;
}

/* Stages the operand in global memory, `step` terms at a time. */
static void list_copy(struct opt_list *l, struct uop *store, struct uop *sum, int64_t step)
{
    struct opt divide = {.op = OPT_DIVIDE,
                         .store = l->store,
                         .of = OF_SUM,
                         .number = opt_number(l->t, store, sum),
                         .n = step},
               local = divide;
    local.op = OPT_STAGE_OPERAND;
    local.operand = attention_operand(l->t, sum);
    local.n = local.to = 1;
    *list_add(l, OPT_DIVIDE, -1) = divide;
    *list_add(l, OPT_STAGE_OPERAND, -1) = local;
}

/* Makes a tile of a product's loops of rows and columns. */
static void list_part(struct opt_list *l, struct uop *store, struct uop *sum,
                      const struct part *p, int row, int column)
{
    struct block_of rows = {p->row_items, p->row_lanes, LOOP_ROWS, LOOP_ROW_LANES, LOOP_ROW_ITEMS},
                    columns = {p->column_items, p->column_lanes, LOOP_COLUMNS, LOOP_COLUMN_LANES,
                               LOOP_COLUMN_ITEMS};
    int first = store_first_range(store);
    list_cover(l, range_fixed_size(store->src[first + row]), LOOP_GIVEN + row, &rows);
    list_cover(l, range_fixed_size(store->src[first + column]), LOOP_GIVEN + column, &columns);
    if (rows.items > 1)
        list_add(l, OPT_ITEM, LOOP_ROW_ITEMS);
    if (columns.items > 1)
        list_add(l, OPT_ITEM, LOOP_COLUMN_ITEMS);
    list_lanes(l, LOOP_ROW_LANES, rows.lanes, false);
    list_lanes(l, LOOP_COLUMN_LANES, columns.lanes, true);
    if (p->step)
        list_copy(l, store, sum, p->step);
}

static bool apply_shape(struct tgc *t, struct kernel *k, const struct shape *x)
{
    struct kernel trial = *k;
    struct opt_list l;
    int n = 1, common, products = 0;
    struct refusal refusal;
    trial.ast = online_blocks(t, k->ast, &x->of);
    if (!trial.ast || (common = attention_common(trial.ast)) == 0)
        return false;
    kernel_describe(t, &trial);
    struct opt *opt = scratch_array(t, (size_t)trial.ast->nsrc * LIST_MAX + 1, sizeof *opt);
    opt[0] = (struct opt){.op = OPT_SHARE_SCRATCH};
    for (int i = 0; i < trial.ast->nsrc; i++) {
        struct uop *store = trial.ast->src[i], *sum = attention_product(t, store);
        int outer = attention_bands(store), last = store->nsrc - store_first_range(store) - 1;
        list_begin(&l, t, trial.ast, i);
        attention_places(&l, store, common);
        products += sum != NULL;
        if (sum && last > outer)         /* s[j][r], then a[r][f] */
            list_part(&l, store, sum, products == 1 ? &x->scores : &x->product,
                      products == 1 ? last : outer, products == 1 ? last - 1 : last);
        else
            attention_threads(&l, store, x->threads);
        if (l.failed)
            return false;
        for (int j = 0; j < l.n; j++)
            opt[n++] = l.opt[j];
    }
    bool ok = opt_apply(t, &trial, NULL, opt, n, &refusal);
    if (!ok && t->debug >= 3)
        fprintf(stderr, "grid: %s: not by blocks of keys: %s\n", k->name, refusal.why);
    if (ok)
        *k = trial;
    return ok;
}

bool grid_attention(struct tgc *t, struct kernel *k)
{
    struct attention x;
    struct shape best[SHAPES_MAX] = {{.ns = 0}};
    if (!k->by_blocks)
        return false;
    if (t->no_locals || !find_sizes(t, k, &x))
        return compare_refuse(t, SCHEDULE_ATTENTION,
                              t->no_locals ? "--no-locals"
                                           : "its parts are not those of attention");
    double rows = rows_ns(t, &x);
    int n = list_shapes(t, &x, best);
    if (attention_by_tiles(t, k, &x, n && (rows == 0 || best[0].ns < rows) ? best[0].ns : rows))
        return true;
    for (int i = 0; i < n && (rows == 0 || best[i].ns < rows); i++) {
        bool done = apply_shape(t, k, &best[i]);
        describe(t, &best[i], &x,
                 done ? compare_chosen(t, SCHEDULE_ATTENTION_TILES, best[i].ns)
                      : compare_refused(t, SCHEDULE_ATTENTION_TILES, best[i].ns));
        if (done)
            return true;
    }
    return false;
}
