/* strassen.c - computes the product of a matrix and a weight by seven products of halves instead of
 * eight.
 *
 * Strassen, Gaussian Elimination is not Optimal (1969), one step of it. Rows, columns and the sum
 * are halved; A is the values, B the weight, C the result:
 *
 *      P1 = (A11 + A22) (B11 + B22)    P5 = (A11 + A12) B22         C11 = P1 + P4 - P5 + P7
 *      P2 = (A21 + A22)  B11           P6 = (A21 - A11) (B11 + B12) C12 = P3 + P5
 *      P3 =  A11        (B12 - B22)    P7 = (A12 - A22) (B21 + B22) C21 = P2 + P4
 *      P4 =  A22        (B21 - B11)                                 C22 = P1 - P2 + P3 + P6
 *
 * The sums of the weight's halves are computed here, in double, and rounded once: they take seven
 * quarters of its size. An odd number of rows gets a row of zeros. The factors are sums of two
 * values, so the error is about three times that of the plain product if values are of similar
 * magnitude (Higham, Accuracy and Stability of Numerical Algorithms, 23.2.2). The additional error
 * is taken from the budget of --error (error.h), first for the products that save most cycles for
 * it.
 *
 * Rows that are added must belong to one sample of a batch (samples.c): a value that is not finite,
 * or large, in one of them affects the other's result. If all samples' rows are one axis, it is
 * split in two. Rows of one sample do affect each other, which is why this is done only on request.
 *
 * It is a rewrite of the graph, like winograd.c, and the parts are STACKs, too. The pattern is a
 * sum of products with a weight. The other operand's elements are each used once per column and are
 * contiguous along the sum. (Convolutions with windows of one element are excluded: the order of
 * their axes is free, and bands suit them better.) */
#include "passes/analysis/contraction.h"
#include "ir/oracle.h"
#include "passes/analysis/error.h"
#include "passes/analysis/weight_budget.h"
#include "passes/analysis/samples.h"
#include "passes/analysis/access.h"
#include "passes/graph/conv/winograd.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PRODUCTS = 7, QUARTERS = 4 };

/* Quarters 11, 12, 21, 22: signs with which they enter P1 to P7, and P1 to P7 the results. */
static const signed char of_values[PRODUCTS][QUARTERS] = {
    {1, 0, 0, 1}, {0, 0, 1, 1}, {1, 0, 0, 0}, {0, 0, 0, 1},
    {1, 1, 0, 0}, {-1, 0, 1, 0}, {0, 1, 0, -1}};
static const signed char of_weight[PRODUCTS][QUARTERS] = {
    {1, 0, 0, 1}, {1, 0, 0, 0}, {0, 1, 0, -1}, {-1, 0, 1, 0},
    {0, 0, 0, 1}, {1, 1, 0, 0}, {0, 0, 1, 1}};
static const signed char of_result[QUARTERS][PRODUCTS] = {
    {1, 0, 0, 1, -1, 0, 1}, {0, 0, 1, 0, 1, 0, 0}, {0, 1, 0, 1, 0, 0, 0}, {1, -1, 1, 0, 0, 1, 0}};

/* A matrix product: its axes; one of each kind is halved. */
struct product {
    struct tgc *t;
    struct contraction c;
    const struct factor *values, *weight;
    struct uop *sample; /* the sample of a value as an expression of the axes' ranges; or NULL */
    int row, column, step;               /* the axes that are halved */
};

static int64_t size_of(const struct uop *dim) { return dim->op == OP_CONST ? dim->arg.i : 0; }

/* ---------------------------------------------------------------------------------- the product */

/* Whether the sample changes along an axis. */
static bool changes_sample(const struct product *p, int axis)
{
    return p->sample && p->c.range[axis]->op == OP_RANGE &&
           uop_depends_on(p->t, p->sample, p->c.range[axis]);
}

/* Where the halved axis of this axis's role is noted; NULL: a matrix product has no such axis. */
static int *halved_of(struct product *p, int axis)
{
    switch (p->c.role[axis]) {
    case ROLE_ROW: return &p->row;
    case ROLE_COLUMN: return &p->column;
    case ROLE_SUM: case ROLE_TAP:
        return p->values->of & p->weight->of & 1u << axis ? &p->step : NULL;
    default: return NULL;
    }
}

/* Halves the largest axis of each kind; of equal ones the last, which is contiguous. */
static bool find_axes(struct product *p)
{
    p->row = p->column = p->step = -1;
    for (int a = 0; a < p->c.product->ndim; a++) {
        int64_t n = size_of(p->c.product->dim[a]);
        if (n < 1)
            return false;
        if (n == 1)
            continue;
        int *of = halved_of(p, a);
        if (!of)
            return false;
        if (of == &p->row && changes_sample(p, a))
            continue;
        if (*of < 0 || n >= size_of(p->c.product->dim[*of]))
            *of = a;
    }
    return p->row >= 0 && p->column >= 0 && p->step >= 0 &&
           size_of(p->c.product->dim[p->column]) % 2 == 0 &&
           size_of(p->c.product->dim[p->step]) % 2 == 0;
}

/* Whether the values contain rows of zeros from padding: their results would not be zero but a
 * rounding error of their neighbours', which a norm of the row (of a query that is compared by its
 * angle) amplifies. */
static bool has_padding(struct tgc *t, struct uop *values)
{
    struct mem_mark mark = scratch_mark(t);
    struct uop **stack = NULL;
    struct uop_map seen = {.t = t, .scratch = true};
    size_t cap = 0;
    int n = 0;
    bool found = false;
    SCRATCH_PUSH(t, stack, n, cap, values);
    while (n > 0 && !found) {
        struct uop *u = stack[--n];
        bool passes = op_is_pointwise(u->op) || u->op == OP_CONTIGUOUS ||
                      (op_class(u->op) == CLASS_MOVE && u->op != OP_WINDOW);
        found = u->op == OP_PAD;
        for (int k = 0; k < u->nsrc && passes; k++)
            if (!map_get(&seen, u->src[k])) {
                map_set(&seen, u->src[k], u);
                SCRATCH_PUSH(t, stack, n, cap, u->src[k]);
            }
    }
    scratch_release(t, mark);
    return found;
}

static double steps_of(const struct product *p)
{
    return contraction_extent(&p->c, ROLE_SUM) * contraction_extent(&p->c, ROLE_TAP);
}

/* Whether the values' innermost axis runs along the halved sum. */
static bool lies_along_steps(const struct product *p)
{
    int last = p->values->base->ndim - 1;
    return last >= 0 && (p->values->axes[last] >> p->step & 1);
}

static bool find_product(struct tgc *t, struct samples *samples, struct uop *u, struct product *p)
{
    *p = (struct product){.t = t};
    if (u->dtype != DTYPE_F32 || u->ndim > MAX_RANK - 3 ||
        !contraction_find(t, u, MOVES_VIEW, &p->c))
        return false;
    p->values = &p->c.factor[p->c.streamed];
    p->weight = &p->c.factor[p->c.stationary];
    if (!is_known_f32(p->weight->base) || is_known_f32(p->values->base) ||
        (samples && !samples_row(samples, p->values->value, p->c.range, &p->sample)))
        return false;
    if (!find_axes(p) || p->values->base->dtype != DTYPE_F32 || !lies_along_steps(p) ||
        has_padding(t, p->values->value))
        return false;
    double elements = 1;                                  /* windows read elements repeatedly */
    for (int a = 0; a < p->values->base->ndim; a++)
        elements *= (double)size_of(p->values->base->dim[a]);
    return contraction_extent(&p->c, ROLE_ROW) * steps_of(p) <= elements;
}

/* ------------------------------------------------------------------------------------- the cost */

/* The product at one node of the graph, as pass_strassen() weighed it. */
struct weighed_product {
    struct uop *sum;                     /* NULL: not a product of a matrix and a weight */
    double rows, steps, columns;
    double saved, all;                   /* ns saved; ns of the plain product */
    double longer;                       /* bytes that the weight becomes longer by */
    bool pays, taken;
    double gain;                         /* see error.h */
};

/* The time saved, less that of the added traffic: the sums of values and the seven products are
 * stored and read again, the weight is larger. */
static void weigh(const struct machine *m, const struct product *p, struct weighed_product *w)
{
    double rows = contraction_extent(&p->c, ROLE_ROW), steps = steps_of(p),
           columns = contraction_extent(&p->c, ROLE_COLUMN);
    double half = (double)size_of(p->c.product->dim[p->row]) / 2;
    double all = cost_of_flop(m, FLOP_TILES, 2 * rows * columns * steps);
    double filled = __builtin_ceil(half) / half;
    /* seven products of halves instead of eight, each of a quarter's size */
    double parts = (double)PRODUCTS / QUARTERS, less = parts / 2;
    double moved = parts * (rows * steps + rows * columns) * 2 * sizeof(float);
    /* read while products are made */
    double longer = (parts - 1) * columns * steps * sizeof(float);
    w->rows = rows, w->steps = steps, w->columns = columns, w->all = all, w->longer = longer;
    w->saved = all - less * filled * all - cost_of_bytes(m, LEVEL_L3, moved) -
               RATIO_HIDDEN * cost_of_bytes(m, LEVEL_MEMORY, longer);
    w->pays = rows >= RATIO_SEVEN_ROWS && w->saved >= RATIO_SEVEN_GAIN * all;
}

/* ------------------------------------------------------------------------------------ the error */

/* The variance of a result's error relative to the sum of the squares of its terms, for independent
 * values and weights, averaged over the four quarters. Each of the seven products in a quarter has
 * half of the terms, each a product of sums. It is a running sum whose steps round the partial
 * sums: a random walk, so its deviation is about so much of one rounding times the root of the
 * number of steps, as measured for 64 to 4,096 of them. */
static double noise_of(const struct weighed_product *w)
{
    const double step = 0.3 / (1 << 24);
    double sum = 0;
    for (int q = 0; q < QUARTERS; q++)
        for (int k = 0; k < PRODUCTS; k++) {
            int values = 0, weights = 0;
            for (int i = 0; i < QUARTERS && of_result[q][k]; i++) {
                values += of_values[k][i] != 0;
                weights += of_weight[k][i] != 0;
            }
            sum += values * weights / 2.0;
        }
    return step * step * w->steps / 2 * sum / QUARTERS;
}

static double variance_of(const struct weighed_product *w) { return w->gain * noise_of(w); }

static int compare_price(const void *pa, const void *pb)
{
    const struct weighed_product *a = *(struct weighed_product *const *)pa,
                                 *b = *(struct weighed_product *const *)pb;
    double left = a->saved * variance_of(b), right = b->saved * variance_of(a);
    if (left != right)
        return left > right ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Takes the products that save most time for their error, within the budgets. */
static void choose(struct tgc *t, const struct graph *g, struct weighed_product *all, int n)
{
    struct weighed_product **list = mem_array(t, (size_t)n + 1, sizeof *list);
    struct uop **sum = mem_array(t, (size_t)n + 1, sizeof *sum);
    double *gain = mem_array(t, (size_t)n + 1, sizeof *gain);
    int nlist = 0;
    for (int i = 0; i < n; i++)
        if (all[i].sum && all[i].pays) {
            sum[nlist] = all[i].sum;
            list[nlist++] = &all[i];
        }
    if (nlist)
        error_gains(t, g, sum, nlist, gain);
    for (int i = 0; i < nlist; i++)
        list[i]->gain = gain[i];
    qsort(list, (size_t)nlist, sizeof *list, compare_price);
    double left = nlist ? weights_left(t, g) : 0;
    for (int i = 0; i < nlist; i++) {
        list[i]->taken = t->error_limit > 0 && list[i]->longer <= left &&
                         error_spend(t, variance_of(list[i]));
        if (!list[i]->taken)
            continue;
        left -= list[i]->longer;
        weights_spend(t, list[i]->longer);
    }
    for (int i = 0; i < n && t->debug >= 2; i++)
        if (all[i].sum)
            fprintf(stderr,
                    "strassen: %.0f x %.0f x %.0f: %.0f of %.0f us saved, %.2g of error, "
                    "%s\n",
                    all[i].rows, all[i].steps, all[i].columns, all[i].saved / 1000,
                    all[i].all / 1000,
                    ERROR_DEVIATIONS * sqrt(variance_of(&all[i])),
                    all[i].taken ? "taken" : "left");
}

/* ---------------------------------------------------------------------------------- the rewrite */

/* The quarter of x: half i along one axis and half j along the other. */
static struct uop *quarter_of(struct tgc *t, struct uop *x, const int *axis, int quarter)
{
    struct uop *begin[MAX_RANK], *size[MAX_RANK];
    for (int a = 0; a < x->ndim; a++) {
        bool halved = a == axis[0] || a == axis[1];
        int64_t half = size_of(x->dim[a]) / 2;
        int which = a == axis[0] ? quarter / 2 : quarter % 2;
        begin[a] = uop_int(t, halved ? which * half : 0);
        size[a] = halved ? uop_int(t, half) : x->dim[a];
    }
    return uop_shrink(t, x, begin, size);
}

/* The sum of the elements of x, with their signs, without those of sign 0. */
static struct uop *sum_of(struct tgc *t, struct uop *const *x, const signed char *sign, int n)
{
    struct uop *sum = NULL;
    for (int i = 0; i < n; i++)  /* starts with one that is added, not subtracted */
        if (sign[i] > 0)
            sum = sum ? tensor_binary(t, OP_ADD, sum, x[i]) : x[i];
    for (int i = 0; i < n; i++)
        if (sign[i] < 0)
            sum = tensor_binary(t, OP_SUB, sum, x[i]);
    return sum;
}

/* [7, the product's axes] */
static struct uop *sums_of_values(const struct product *p)
{
    struct tgc *t = p->t;
    struct uop *quarter[QUARTERS], *sum[PRODUCTS], *lo[MAX_RANK], *hi[MAX_RANK];
    struct uop *x = axes_keep(t, p->values->value, p->values->of);
    for (int a = 0; a < x->ndim; a++) {
        lo[a] = uop_int(t, 0);
        hi[a] = uop_int(t, a == p->row ? size_of(x->dim[a]) % 2 : 0);
    }
    x = uop_pad(t, x, uop_constf(t, DTYPE_F32, 0.0), lo, hi);
    for (int i = 0; i < QUARTERS; i++)
        quarter[i] = quarter_of(t, x, (int[]){p->row, p->step}, i);
    for (int k = 0; k < PRODUCTS; k++)
        sum[k] = tensor_insert_axis(t, sum_of(t, quarter, of_values[k], QUARTERS), 0);
    return tensor_stack_along(t, 0, sum, PRODUCTS);
}

/* [7, the product's axes], a weight; NULL: over the memory limit. */
static struct uop *sums_of_weight(const struct product *p)
{
    struct tgc *t = p->t;
    struct uop *w = axes_keep(t, p->weight->value, p->weight->of);
    int64_t size[MAX_RANK + 1] = {PRODUCTS}, stride[MAX_RANK + 1], nelem = 1;
    size_t nbytes, room = mem_room(t);
    for (int a = w->ndim - 1; a >= 0; a--) {
        stride[a] = nelem;
        nelem = sat_mul(nelem, size_of(w->dim[a]));
        size[a + 1] = size_of(w->dim[a]) / (a == p->step || a == p->column ? 2 : 1);
    }
    if (!size_mul((size_t)nelem, sizeof(float), &nbytes) || nbytes > room / 16)
        return NULL;
    struct eval_env env = {.budget = -1};
    float *data = mem_alloc(t, nbytes);
    if (!eval_store(t, w, nelem, &env, data, NULL))
        return NULL;
    int64_t each = nelem / QUARTERS, down = stride[p->step] * size[p->step + 1],
            right = stride[p->column] * size[p->column + 1];
    float *sum = mem_array(t, (size_t)each * PRODUCTS, sizeof *sum);
    for (int64_t i = 0; i < each; i++) {
        int64_t from = 0, rest = i;
        for (int a = w->ndim - 1; a >= 0; rest /= size[a + 1], a--)
            from += rest % size[a + 1] * stride[a];
        for (int k = 0; k < PRODUCTS; k++) {
            double v = 0;
            for (int q = 0; q < QUARTERS; q++)
                if (of_weight[k][q])
                    v += of_weight[k][q] * (double)data[from + q / 2 * down + q % 2 * right];
            sum[k * each + i] = (float)v;
        }
    }
    const struct buffer *of = known_buffer(p->weight->base);
    return tensor_made_of(tensor_from_data(t, DTYPE_F32, size, w->ndim + 1, sum,
                                           (size_t)each * PRODUCTS * sizeof *sum, of->name),
                          of, "Strassen, seven products");
}

static void name_product(const struct product *p, struct uop *product)
{
    const char *axes = uop_get_axes(p->t, p->c.product);
    if (axes)
        uop_name_axes(p->t, product, mem_printf(p->t, "part %s", axes));
}

/* Joins the result's quarters: halves become axes of their own, which are then merged. */
static struct uop *join_quarters(const struct product *p, struct uop *const *quarter)
{
    struct tgc *t = p->t;
    struct uop *part[QUARTERS], *row[2], *dim[MAX_RANK], *zero[MAX_RANK];
    int at[2] = {0}, n = 0;
    for (int a = 0; a < p->c.product->ndim; a++) {
        if (a == p->row || a == p->column)
            at[a == p->column] = n, dim[n++] = uop_int(t, 1);
        dim[n++] = quarter[0]->dim[a];
    }
    for (int i = 0; i < QUARTERS; i++)
        part[i] = uop_reshape(t, quarter[i], dim, n);
    for (int i = 0; i < 2; i++)
        row[i] = tensor_stack_along(t, at[1], part + 2 * i, 2);
    struct uop *r = tensor_stack_along(t, at[0], row, 2);
    for (int a = 0; a < p->c.product->ndim; a++) {
        bool halved = a == p->row || a == p->column;
        dim[a] = uop_int(t, size_of(quarter[0]->dim[a]) * (halved ? 2 : 1));
        zero[a] = uop_int(t, 0);
    }
    return uop_shrink(t, uop_reshape(t, r, dim, p->c.product->ndim), zero, p->c.sum->dim);
}

static struct uop *rewrite_product(const struct product *p)
{
    struct tgc *t = p->t;
    struct uop *weight = sums_of_weight(p), *part[PRODUCTS], *quarter[QUARTERS];
    if (!weight)
        return NULL;
    struct uop *product = tensor_binary(t, OP_MUL, sums_of_values(p), weight);
    name_product(p, product);
    struct uop *sums = uop_reduce(t, OP_ADD, product, REDUCE_AXES(p->c.sum->arg.i) << 1);
    sums = uop_new(t, OP_CONTIGUOUS, sums->dtype, &sums, 1, (union arg){0});
    for (int k = 0; k < PRODUCTS; k++)
        part[k] = place_part(t, sums, 1, &k, 0);
    for (int i = 0; i < QUARTERS; i++)
        quarter[i] = sum_of(t, part, of_result[i], PRODUCTS);
    return join_quarters(p, quarter);
}

/* The n of a sample that is range / n or range % n of the axis with all rows: n contiguous rows are
 * of one sample, or of n samples in turn. */
static int64_t samples_side_by_side(const struct uop *sample, const struct uop *range)
{
    int64_t n;
    bool divides = sample && (sample->op == OP_FLOORDIV || sample->op == OP_FLOORMOD) &&
                   sample->src[0] == range && range->op == OP_RANGE &&
                   uop_const_int(sample->src[1], &n);
    return divides && n > 1 && n < range->src[0]->arg.i && range->src[0]->arg.i % n == 0 ? n : 0;
}

/* The same sum with an axis over the rows of all samples split in two. */
static struct uop *part_samples(struct tgc *t, struct samples *samples, struct uop *u)
{
    struct contraction c;
    struct uop *dim[MAX_RANK], *sample, *x[2];
    if (u->ndim > MAX_RANK - 4 || !contraction_begin(t, u, &c))
        return u;
    const struct uop *product = c.product;
    for (int a = 0; a < u->ndim; a++)
        if (product->dim[a]->op != OP_CONST)
            return u;
    if (product->src[0]->ndim != u->ndim || product->src[1]->ndim != u->ndim ||
        !samples_row(samples, u->src[0], c.range, &sample))
        return u;
    for (int a = 0; a < u->ndim; a++) {
        int64_t n = samples_side_by_side(sample, c.range[a]);
        uint32_t below = (1u << a) - 1;
        if (!n || contraction_is_reduced(&c, a))
            continue;
        for (int b = 0; b <= u->ndim; b++)
            dim[b] = product->dim[b > a ? b - 1 : b];
        dim[a] = uop_int(t, size_of(product->dim[a]) / n);
        dim[a + 1] = uop_int(t, n);
        for (int k = 0; k < 2; k++)
            x[k] = uop_reshape(t, product->src[k], dim, u->ndim + 1);
        return uop_reduce(t, OP_ADD, tensor_binary(t, OP_MUL, x[0], x[1]),
                          (c.reduced & below) | (c.reduced & ~below) << 1);
    }
    return u;
}

/* ----------------------------------------------------------------------- keys of long attention */

static struct uop *base_of(const struct uop *v) { return value_behind(v, MOVES_VIEW); }

/* The weight of the layer from which v is computed elementwise, without slices; NULL: none. */
static struct uop *find_weight(struct uop *v)
{
    enum { STEPS = 16 };
    for (int i = 0; i < STEPS && v->op != OP_REDUCE; i++) {
        bool moves = move_is(v, MOVES_PLACES);
        if (!moves && (!op_is_elementwise(v->op) || v->nsrc > 2))
            return NULL;
        v = v->src[!moves && v->nsrc == 2 && base_of(v->src[1])->op == OP_REDUCE];
    }
    const struct uop *product = summed_product(v);
    for (int k = 0; k < 2 && product; k++)
        if (is_known_f32(base_of(product->src[k])))
            return base_of(product->src[k]);
    return NULL;
}

/* How an axis runs along a factor's base: not at all, along its innermost axis, or along another
 * one. */
enum motion { MOTION_NONE, MOTION_ALONG, MOTION_ACROSS };
static enum motion motion_of(const struct factor *f, int axis)
{
    bool along = true;
    for (int a = f->base->ndim - 1; a >= 0; a--) {
        if (f->axes[a] >> axis & 1)
            return along ? MOTION_ALONG : MOTION_ACROSS;
        along &= uop_is_int(f->base->dim[a], 1);
    }
    return MOTION_NONE;
}

/* The factor that is strided along the result's last axis, if the other one is invariant there.
 * NULL: there is none, or a head of it is small enough to be copied (FIT_OPERAND). */
static struct uop *find_keys(const struct contraction *c)
{
    struct uop *keys = NULL;
    int column = c->sum->ndim - 1;
    int64_t nelem = 1, copied = cost_fit_nelem(machine_of(c->t), FIT_OPERAND);
    while (column > 0 && uop_is_int(c->sum->dim[column], 1))
        column--;
    for (int a = 0; a < c->sum->ndim; a++)
        if (a == column || contraction_is_reduced(c, a))
            nelem = sat_mul(nelem, size_of(c->product->dim[a]));
    for (int k = 0; k < 2 && nelem > copied; k++) {
        enum motion motion = motion_of(&c->factor[k], column);
        if (motion == MOTION_ALONG || (motion == MOTION_ACROSS && keys))
            return NULL;
        keys = motion == MOTION_ACROSS ? c->factor[k].value : keys;
    }
    return keys;
}

/* of: in the order of the rewrite; `at` is the next one. */
struct rewriting {
    struct samples *samples;
    struct uop_map keys;
    struct weighed_product *of;
    int at;
};

/* Finds the weights of layers that compute keys of which one head reads too many to copy them in
 * its kernel. Such a layer should store them transposed, which it cannot if it joins halves of its
 * rows. */
static void find_long_keys(struct tgc *t, const struct graph *g, struct uop_map *keys)
{
    int n, nroot;
    struct uop **root = graph_roots(t, g, &nroot), **order = uop_toposort(t, root, nroot, &n);
    for (int i = 0; i < n; i++) {
        struct contraction c;
        if (order[i]->dtype != DTYPE_F32 || !contraction_find(t, order[i], MOVES_VIEW, &c))
            continue;
        struct uop *across = find_keys(&c), *weight = across ? find_weight(across) : NULL;
        if (weight)
            map_set(keys, weight, weight);
    }
}

/* The product of u, or of the same sum with split samples, which is written to *apart. */
static bool find_taken(struct tgc *t, struct rewriting *r, struct uop *u, struct uop **apart,
                       struct product *p)
{
    *apart = r->samples ? part_samples(t, r->samples, u) : u;
    return find_product(t, r->samples, *apart, p) && !map_get(&r->keys, p->weight->base);
}

/* Finds all products of the graph and decides which are rewritten. */
static void plan(struct tgc *t, const struct graph *g, struct rewriting *r)
{
    struct mem_mark mark = scratch_mark(t), inner;
    int n, nroot;
    struct uop **root = graph_roots(t, g, &nroot), **order = uop_toposort(t, root, nroot, &n),
               *apart;
    struct product p;
    r->of = mem_array(t, (size_t)n, sizeof *r->of);
    for (int i = 0; i < n; i++) {
        inner = scratch_mark(t);
        if (find_taken(t, r, order[i], &apart, &p)) {
            r->of[i].sum = order[i];
            weigh(machine_of(t), &p, &r->of[i]);
        }
        scratch_release(t, inner);
    }
    choose(t, g, r->of, n);
    scratch_release(t, mark);
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    struct product p;
    struct rewriting *r = ctx;
    struct uop *apart;
    if (!r->of[r->at++].taken)
        return NULL;
    int outer = t->current_origin;
    struct mem_mark mark = scratch_mark(t);
    t->current_origin = u->id < t->cap_uop_origin ? t->uop_origin[u->id] : 0;
    bool found = find_taken(t, r, u, &apart, &p);
    scratch_release(t, mark);
    if (found)
        origin_begin_step(t, "Strassen: seven products of sums of halves in place of eight");
    struct uop *by = found ? rewrite_product(&p) : NULL;
    t->current_origin = outer;
    return by && apart != u ? uop_reshape(t, by, u->dim, u->ndim) : by;
}

bool pass_strassen(struct tgc *t, struct graph *g)
{
    if (!t->strassen)
        return true;
    struct rewriting r = {.samples = samples_find(t, g), .keys = {.t = t}};
    find_long_keys(t, g, &r.keys);
    plan(t, g, &r);
    graph_rewrite(t, g, rewrite, &r);
    return true;
}
