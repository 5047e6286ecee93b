/* index_values.c - evaluates index arithmetic (index_values.h) at each index of a grid, as
 * scalar_apply() does, or at some thousands of them if there are more. */
#include "passes/analysis/nest.h"
#include "passes/analysis/index_values.h"

enum { VALUES_MOST = 1 << 18, BLOCKS_MOST = 1 << 15, UNITS_MOST = 1024 };

static bool is_read(const struct uop *u)
{
    return u->op == OP_CONST || u->op == OP_RANGE || (op_is_elementwise(u->op) && u->nsrc <= 3);
}

/* The uops below u, but for the sizes of loops, whose counters are known. */
static struct uop **order_of(struct tgc *t, struct uop *u, int *n)
{
    int all;
    struct uop **order = uop_toposort(t, &u, 1, &all),
               **kept = scratch_array(t, (size_t)all, sizeof *kept);
    bool *needed = scratch_array(t, (size_t)all, sizeof *needed);
    for (int i = all - 1; i >= 0; i--) {
        needed[i] = i == all - 1 || needed[i];
        for (int k = 0; needed[i] && order[i]->op != OP_RANGE && k < order[i]->nsrc; k++)
            for (int j = 0; j < i; j++)
                needed[j] |= order[j] == order[i]->src[k];
    }
    *n = 0;
    for (int i = 0; i < all; i++)
        if (needed[i])
            kept[(*n)++] = order[i];
    return kept;
}

bool index_read(struct tgc *t, struct uop *u, struct index_code *c)
{
    *c = (struct index_code){.n = 0};
    c->u = order_of(t, u, &c->n);
    c->src = scratch_array(t, (size_t)c->n, sizeof *c->src);
    c->value = scratch_array(t, (size_t)c->n, sizeof *c->value);
    for (int i = 0; i < c->n; i++) {
        const struct uop *of = c->u[i];
        if (!is_read(of) || of->lanes > 1 || dtype_is_float(of->dtype) ||
            (of->op == OP_RANGE && c->ncounter == COUNTERS_MAX))
            return false;
        c->value[i] = of->op == OP_CONST ? of->arg.i : 0;
        if (of->op == OP_RANGE)
            c->counter[c->ncounter] = of, c->place[c->ncounter++] = i;
        for (int k = 0; of->op != OP_RANGE && k < of->nsrc; k++)
            for (int j = 0; j < i; j++)
                c->src[i][k] = c->u[j] == of->src[k] ? j : c->src[i][k];
    }
    return true;
}

void index_set(struct index_code *c, const struct uop *r, int64_t value)
{
    for (int i = 0; i < c->ncounter; i++)
        if (c->counter[i] == r)
            c->value[c->place[i]] = value;
}

int64_t index_value(struct index_code *c)
{
    for (int i = 0; i < c->n; i++) {
        const struct uop *u = c->u[i];
        union scalar src[3], r = {.i = 0};
        if (!op_is_elementwise(u->op) || u->op == OP_CONST)
            continue;
        for (int k = 0; k < u->nsrc; k++)
            src[k].i = c->value[c->src[i][k]];
        c->value[i] = scalar_apply(u->op, u->dtype, u->src[u->nsrc - 1]->dtype, src, &r) ? r.i : 0;
    }
    return c->value[c->n - 1];
}

static double count_places(const struct places *p)
{
    double n = 1;
    for (int i = 0; i < p->n; i++)
        n *= (double)range_fixed_size(p->range[i]);
    return n;
}

/* Sets the counters for the grid index with this number; the last loop varies fastest. */
static void set_place(struct index_code *c, const struct places *p, int64_t number)
{
    for (int i = p->n - 1; i >= 0; i--) {
        int64_t size = range_fixed_size(p->range[i]);
        index_set(c, p->range[i], number % size);
        number /= size;
    }
}

/* Whether u depends only on loops of the grid and on `loop`. *of: the grid loops that it, or the
 * end of `loop`, depends on. */
static bool find_places(struct tgc *t, const struct index_code *c, struct uop *end,
                        const struct places *p, const struct uop *loop, struct places *of)
{
    int found = 0;
    *of = (struct places){.n = 0};
    for (int i = 0; i < p->n; i++) {
        bool own = false;
        for (int k = 0; k < c->ncounter; k++)
            own |= c->counter[k] == p->range[i];
        found += own;
        if (own || (end && uop_depends_on(t, end, p->range[i])))
            of->range[of->n++] = p->range[i];
        if ((own || of->n) && range_fixed_size(p->range[i]) == 0)
            return false;
    }
    for (int k = 0; k < c->ncounter; k++)
        found += c->counter[k] == loop;
    return found == c->ncounter;
}

bool index_mean(struct tgc *t, struct uop *u, const struct places *p, const struct uop *loop,
                double *mean)
{
    struct index_code c, end;
    struct places of;
    if (!index_read(t, u, &c) || !find_places(t, &c, loop ? loop->src[0] : NULL, p, loop, &of) ||
        (loop && (!index_read(t, loop->src[0], &end) || loop->src[0]->vmax <= 0)))
        return false;
    double places = count_places(&of), each = loop ? (double)loop->src[0]->vmax : 1, sum = 0, n = 0;
    if (places * each > INT32_MAX)
        return false;
    int64_t step = 1 + (int64_t)(places * each / VALUES_MOST);
    for (int64_t at = 0; at < (int64_t)places; at += step) {
        set_place(&c, &of, at);
        if (loop)
            set_place(&end, &of, at);
        int64_t iterations = loop ? index_value(&end) : 1;
        for (int64_t k = 0; k < iterations; k++) {
            index_set(&c, loop, k);
            sum += (double)index_value(&c);
        }
        n += (double)(iterations > 0 ? iterations : 0);
    }
    *mean = n > 0 ? sum / n : 0;
    return true;
}

/* Gives the next block to the unit that is done first: a heap of finishing times. */
static void begin_block(double *done, int units, double takes)
{
    int at = 0;
    done[0] += takes;
    for (int child = 1; child < units; child = 2 * at + 1) {
        child += child + 1 < units && done[child + 1] < done[child];
        if (done[at] <= done[child])
            return;
        double later = done[at];
        done[at] = done[child];
        done[child] = later;
        at = child;
    }
}

double blocks_rounds(const double *ns, int64_t n, int units)
{
    double done[UNITS_MOST] = {0}, sum = 0, last = 0;
    if (units > UNITS_MOST || n > BLOCKS_MOST)
        return 0;
    for (int64_t i = 0; i < n; i++) {
        sum += ns[i];
        begin_block(done, units, ns[i]);
    }
    for (int i = 0; i < units; i++)
        last = done[i] > last ? done[i] : last;
    return sum > 0 ? last / (sum / (double)n) : 0;
}

double index_rounds(struct tgc *t, struct uop *u, const struct places *p, int units)
{
    struct index_code c;
    double blocks = count_places(p);
    if (blocks > BLOCKS_MOST || blocks < 1 || !index_read(t, u, &c))
        return 0;
    double *ns = scratch_array(t, (size_t)blocks, sizeof *ns);
    for (int64_t at = 0; at < (int64_t)blocks; at++) {
        set_place(&c, p, at);
        ns[at] = (double)index_value(&c);
    }
    return blocks_rounds(ns, (int64_t)blocks, units);
}
