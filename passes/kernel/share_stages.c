/* share_stages.c - processes several rows of a kernel together in its stages: attention's queries.
 *
 *      for head                                for head
 *        for i < 197                             for io < 16                       i = 12*io + r
 *          score[j] = sum over e                   for r < 12  score[r][j] = sum over e
 *                       q[i, e] * keys[e, j]                     q[i, e] * keys[e, j]
 *          p[j] = softmax(score)                   for r < 12  p[r][j] = softmax(score[r])
 *          for f  y[i, f] = sum over j             for r < 12, f  y[i, f] = sum over j
 *                       p[j] * v[j, f]                           p[r][j] * v[j, f]
 *
 * Each stage holds its value for all of these rows, so its contraction has rows for a tile, and so
 * has the store's: keys and values are loaded once for several rows. Remainder rows are a store of
 * their own. This is FlashAttention's blocking of queries (Dao et al.), with whole rows of scores
 * instead of blocks of them. */
#include "passes/kernel/tile.h"

enum {
    ROWS_MIN = 4,
    ROWS_MAX = 16,
    ROWS_USUAL = 12,
    MANY = 256,
    MAX_STAGES = 16
};

struct rows {
    struct tgc *t;
    struct kernel *k;
    struct uop *range, *outer;   /* i and io */
    int64_t rows;
    struct uop_map by;           /* a stage of one row -> that of several */
};

/* ------------------------------------------------------------------------------- is it worth it */

static int64_t stage_nelem(const struct uop *stage)
{
    const struct buffer *b = stage->arg.p;
    int64_t n = 1, d;
    for (int a = 0; a < b->ndim; a++)
        n = uop_const_int(b->dim[a], &d) && n >= 0 ? sat_mul(n, d) : -1;
    return n;
}

/* A sum of products with a factor that is invariant along the rows. */
static bool is_shared_product(const struct nest *m, const struct uop *r)
{
    enum role role = nest_axis(m, r).role;
    return m->contraction && (role == ROLE_ROW || role == ROLE_COLUMN);
}

/* The stages that depend on r; how many, or 0 if they do not qualify. *nbytes: of one row. */
static int find_stages(struct tgc *t, struct uop *store, const struct uop *r, struct uop **stage,
                       int64_t *nbytes)
{
    int n, found = 0;
    struct nest m;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    bool product = nest_find(t, store, &m) && is_shared_product(&m, r);
    *nbytes = 0;
    for (int i = 0; i < n; i++) {
        int64_t nelem;
        if (order[i]->op != OP_STAGE || !uop_depends_on(t, order[i], r))
            continue;
        if (found == MAX_STAGES || order[i]->nsrc > MAX_RANK || (nelem = stage_nelem(order[i])) < 1)
            return 0;
        product |= nest_find(t, stage_as_store(t, order[i]), &m) && is_shared_product(&m, r);
        *nbytes += sat_mul(nelem, (int64_t)dtype_nbytes(order[i]->dtype));
        stage[found++] = order[i];
    }
    return product ? found : 0;
}

/* The rows of a tile: a divisor of n, unless that is small. Long rows have two tiles of six, which
 * read shared operands from the L2 less often than four of four. */
static int64_t choose_rows(const struct machine *m, int64_t n, int64_t nbytes)
{
    int64_t most = (int64_t)cost_fit(m, FIT_OPERAND) / nbytes;
    most = most > ROWS_MAX ? ROWS_MAX : most;
    if (n <= most)
        return n;
    if (n >= MANY && (double)nbytes >= cost_fit(m, FIT_ROW_LONG) && most >= ROWS_USUAL)
        return ROWS_USUAL;
    for (int64_t rows = most; rows >= ROWS_USUAL / 2; rows--)
        if (n % rows == 0)
            return rows;
    return most > ROWS_USUAL ? ROWS_USUAL : most;
}

/* ------------------------------------------------------------------------------ sums of a row */

/* Another sum of the store that is invariant along its columns, as a softmax's divisor: staged per
 * row, it leaves a nest with one sum. NULL: none. */
static struct uop *find_row_sum(struct tgc *t, struct uop *store)
{
    struct uop *last = store->src[store->nsrc - 1], *sum = NULL;
    bool stage = false, product = false;
    int n;
    struct uop **order = nest_order(t, store->src[2], &n);
    if (last->op != OP_RANGE)
        return NULL;
    for (int i = 0; i < n; i++) {
        stage |= order[i]->op == OP_STAGE;
        if (order[i]->op != OP_REDUCE)
            continue;
        if (uop_depends_on(t, order[i], last))
            product |= !sum || !uop_depends_on(t, order[i], sum);
        else
            sum = order[i];
    }
    return stage && product ? sum : NULL;
}

/* ------------------------------------------------------------------------------------- applying */

/* u for row `row` of several. */
static struct uop *for_row(struct rows *x, struct uop *u, struct uop *row)
{
    struct tgc *t = x->t;
    int n;
    struct uop **order = nest_order(t, u, &n), *src[MAX_RANK + 4];
    struct uop_map by = {.t = t, .scratch = true};
    map_set(&by, x->range, sym_add(t, sym_muli(t, x->outer, x->rows), row));
    for (int i = 0; i < n; i++) {
        struct uop *v = order[i], *stage = map_get(&x->by, v);
        bool changed = false;
        if (stage || v == x->range) {
            if (stage)
                map_set(&by, v, stage);
            continue;
        }
        for (int k = 0; k < v->nsrc; k++) {
            struct uop *now = map_get(&by, v->src[k]);
            changed |= now != NULL;
            src[k] = now ? now : v->src[k];
        }
        if (!changed || v->op == OP_STAGE)
            continue;
        if (v->op == OP_LOAD && map_get(&x->by, v->src[0]))
            src[1] = sym_add(t, sym_muli(t, row, scratch_pitch(t, stage_nelem(v->src[0]))), src[1]);
        struct uop *now = uop_replace_src(t, v, src);
        uop_set_origin(t, now, v);
        map_set(&by, v, now);
    }
    struct uop *now = map_get(&by, u);
    return now ? now : u;
}

static struct uop *new_row(struct rows *x)
{
    struct uop *row = uop_range(x->t, uop_int(x->t, x->rows), x->t->next_range++);
    uop_name_axes(x->t, row, "row");
    return row;
}

static struct uop *stage_of_rows(struct rows *x, const struct uop *stage)
{
    struct tgc *t = x->t;
    struct uop *row = new_row(x), *src[MAX_RANK + 4];
    int64_t pitch = scratch_pitch(t, stage_nelem(stage));
    int n = 3;
    src[0] = for_row(x, stage->src[0], row);
    src[1] = sym_add(t, sym_muli(t, row, pitch), for_row(x, stage->src[1], row));
    src[2] = row;
    for (int k = 2; k < stage->nsrc; k++)
        src[n++] = stage->src[k];
    struct buffer *b = kernel_new_scratch(t, x->k, stage->dtype, sat_mul(pitch, x->rows));
    return uop_intern(t, OP_STAGE, stage->dtype, src, n, (union arg){.p = b});
}

/* The store with its range `axis` in steps of `rows`, which divides it. */
static struct uop *take_rows(struct tgc *t, struct kernel *k, struct uop *store, int axis,
                             int64_t rows, struct uop *const *stage, int nstage)
{
    struct uop *r = store->src[axis], *src[80];
    struct rows x = {.t = t, .k = k, .range = r, .rows = rows};
    int64_t size = r->src[0]->arg.i / rows;
    int last = axis, n = 3;
    x.by = (struct uop_map){.t = t, .scratch = true};
    x.outer = size == 1 ? uop_int(t, 0) : uop_range(t, uop_int(t, size), t->next_range++);
    if (size > 1 && uop_get_axes(t, r))
        uop_name_axes(t, x.outer, uop_get_axes(t, r));
    /* the loop over rows goes inside every range on which a stage depends */
    for (int i = 3; i < store->nsrc; i++)
        for (int j = 0; j < nstage; j++)
            if (i > last && uop_depends_on(t, stage[j], store->src[i]))
                last = i;
    for (int j = 0; j < nstage; j++)
        map_set(&x.by, stage[j], stage_of_rows(&x, stage[j]));
    struct uop *row = new_row(&x);
    for (int i = 0; i < 3; i++)
        src[i] = for_row(&x, store->src[i], row);
    for (int i = 3; i < store->nsrc; i++) {
        if (i != axis)
            src[n++] = store->src[i];
        else if (size > 1)
            src[n++] = x.outer;
        if (i == last)
            src[n++] = row;
    }
    return uop_intern(t, OP_STORE, store->dtype, src, n, (union arg){0});
}

struct uop *rows_take(struct tgc *t, struct kernel *k, struct uop *store, int axis, int64_t rows)
{
    struct uop *stage[MAX_STAGES];
    int64_t nbytes;
    int nstage = find_stages(t, store, store->src[axis], stage, &nbytes);
    return nstage ? take_rows(t, k, store, axis, rows, stage, nstage) : store;
}

/* The first range from inside of which several rows share stages, and how many; -1: there is
 * none. */
static int find_rows(struct tgc *t, struct uop *store, int64_t *size, int64_t *rows)
{
    struct uop *stage[MAX_STAGES];
    int64_t nbytes;
    if (store->nsrc > 64 || (store->nsrc > 3 && store->src[3]->op != OP_RANGE))
        return -1;
    for (int axis = store->nsrc - 1; axis >= 3; axis--) {
        /* a band's loop is the same range in all its stores, so it cannot be split in one of
         * them */
        if (!uop_const_int(store->src[axis]->src[0], size) || *size < ROWS_MIN ||
            range_is(store->src[axis], AXIS_BAND))
            continue;
        int nstage = find_stages(t, store, store->src[axis], stage, &nbytes);
        *rows = nstage ? choose_rows(machine_of(t), *size, nbytes) : 0;
        if (*rows >= ROWS_MIN)
            return axis;
    }
    return -1;
}

/* Several rows share the stages of store number `at`, in up to two stores; returns their number.
 * The kernel gets new scratch. want: how many rows, 0: none, -1: as the cost model says. */
static int rows_share_stages(struct tgc *t, struct kernel *k, int at, int want)
{
    struct uop *store = k->ast->src[at], *sum = find_row_sum(t, store);
    int64_t size, rows;
    struct opt stage = {.op = OPT_STAGE, .store = at, .of = OF_SUM, .space = SPACE_SCRATCH,
                        .axis = store->nsrc - store_first_range(store)};
    if (sum) {                       /* one that changes in another sum's loops stays */
        stage.number = opt_number(t, store, sum);
        (void)opt_apply(t, k, NULL, &stage, 1, NULL);
    }
    int axis = find_rows(t, k->ast->src[at], &size, &rows);
    rows = want < 0 ? rows : want < size ? want : size;
    if (axis < 0 || rows == 0)
        return 1;
    int64_t left = size % rows;
    struct opt opt = {.op = OPT_CUT, .store = at, .axis = axis - 3, .n = size - left,
                      .from = size - left, .to = at + 1};
    if (left)
        opt_must(t, k, NULL, &opt, 1);
    for (int i = 0; i < 1 + (left > 1); i++) {           /* of one row, the axis is gone */
        opt = (struct opt){.op = OPT_ROWS, .store = at + i, .axis = axis - 3,
                           .n = i ? left : rows};
        (void)opt_apply(t, k, NULL, &opt, 1, NULL);
    }
    return 1 + (left > 0);
}

/* The number of rows, as a choice that a tune file may make. */
static int tune_rows(struct tgc *t, struct kernel *k, int at)
{
    static const int others[] = {0, 4, 6, 8, 12, 16};
    struct opts_choice c;
    struct tile none = {.column_axis = -1};
    int end, model = -1;
    if (!t->tuning)
        return at + rows_share_stages(t, k, at, model);
    opts_choice_begin(&c, t, k, NULL, TUNE_ROWS, at, at, 0);
    for (int i = -1; i < (int)(sizeof others / sizeof *others) && opts_choice_width(&c); i++) {
        struct kernel trial = *k;
        (void)rows_share_stages(t, &trial, at, i < 0 ? model : others[i]);
        opts_choice_add(&c, &trial, NULL, &none);
    }
    if (!opts_choice_replay(&c, &end))
        end = at + rows_share_stages(t, k, at, model);
    opts_choice_end(&c);
    return end;
}

bool pass_share_stages(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->ast->nsrc;)
        i = tune_rows(t, k, i);
    return true;
}
