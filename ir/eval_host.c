/* eval_host.c - what the host functions compute, for the evaluator.
 *
 * Independent of the functions that emitted programs carry (runtime/host/), and as simple as
 * possible: sorting is qsort(). An entry of the table stands for all dtypes of a function, "topk"
 * for topk_f32, topk_i64 and so on.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/eval.h"

struct host_args {
    struct tensor *const *in;
    int nin;
    struct tensor *const *out;
    int nout;
    const int64_t *param;
    int nparam;
    int64_t *result;
};

/* An element to be sorted, with all that its order depends on. */
struct item { union scalar v; int64_t at; enum dtype dtype; bool descending; };

/* -1, 0, 1. NaN is larger than every number. */
static int compare_scalars(enum dtype d, union scalar a, union scalar b)
{
    if (!dtype_is_float(d))
        return d == DTYPE_U64 ? ((uint64_t)a.i > (uint64_t)b.i) - ((uint64_t)a.i < (uint64_t)b.i)
                              : (a.i > b.i) - (a.i < b.i);
    bool an = isnan(a.f), bn = isnan(b.f);
    return an || bn ? an - bn : (a.f > b.f) - (a.f < b.f);
}

static int compare_items(const void *pa, const void *pb)
{
    const struct item *a = pa, *b = pb;
    int order = compare_scalars(a->dtype, a->v, b->v);
    if (order)
        return a->descending ? -order : order;
    return (a->at > b->at) - (a->at < b->at);
}

/* (x) outer, n, inner, k, largest, sorted -> values, indices [outer][k][inner] */
static bool host_topk(const struct host_args *h)
{
    if (h->nin != 1 || h->nout != 2 || h->nparam != 6)
        return false;
    const struct tensor *x = h->in[0];
    int64_t outer = h->param[0], n = h->param[1], inner = h->param[2], k = h->param[3], total,
            taken;
    if (outer < 0 || n < 0 || inner < 0 || k < 0 || k > n ||
        __builtin_mul_overflow(outer, inner, &total))
        return false;
    if (sat_mul(total, n) > x->nelem || __builtin_mul_overflow(total, k, &taken) ||
        taken > h->out[0]->nelem || taken > h->out[1]->nelem)
        return false;
    struct item *row = calloc((size_t)n + 1, sizeof *row);
    for (int64_t r = 0; row && r < total; r++) {
        for (int64_t i = 0; i < n; i++)
            row[i] = (struct item){
                ((union scalar *)x->data)[(r / inner * n + i) * inner + r % inner], i, x->dtype,
                h->param[4] != 0};
        qsort(row, (size_t)n, sizeof *row, compare_items);
        for (int64_t i = 0; i < k; i++) {
            int64_t to = (r / inner * k + i) * inner + r % inner;
            ((union scalar *)h->out[0]->data)[to] = row[i].v;
            ((union scalar *)h->out[1]->data)[to].i = row[i].at;
        }
    }
    free(row);
    return row != NULL;
}

static int64_t int_at(const struct tensor *x, int64_t i) { return ((union scalar *)x->data)[i].i; }

/* (ok) */
static bool host_require(const struct host_args *h)
{
    return h->nin == 1 && h->in[0]->nelem == 1 && int_at(h->in[0], 0);
}

/* a, b */
static bool host_match_dims(const struct host_args *h)
{
    return h->nparam == 2 && h->param[0] == h->param[1];
}

/* (x) at, lo, hi -> result x[at] */
static bool host_read_dim(const struct host_args *h)
{
    if (h->nin != 1 || h->nparam != 3 || h->param[0] < 0 || h->param[0] >= h->in[0]->nelem)
        return false;
    *h->result = int_at(h->in[0], h->param[0]);
    return *h->result >= h->param[1] && *h->result <= h->param[2];
}

/* (x) n, least, most -> positions of nonzero elements; result: how many */
static bool host_nonzero(const struct host_args *h)
{
    if (h->nin != 1 || h->nout != 1 || h->nparam != 3 || h->param[0] > h->in[0]->nelem)
        return false;
    *h->result = 0;
    for (int64_t i = 0; i < h->param[0]; i++)
        if (int_at(h->in[0], i)) {
            if (*h->result == h->param[2] || *h->result == h->out[0]->nelem)
                return false;
            ((union scalar *)h->out[0]->data)[(*h->result)++].i = i;
        }
    return *h->result >= h->param[1];
}

static double float_at(const struct tensor *x, int64_t i) { return ((union scalar *)x->data)[i].f; }

static int64_t *ints(struct tensor *x) { return &((union scalar *)x->data)->i; }

/* A box given by two corners, or by center and size, as ordered corners. */
static void corners(const struct tensor *boxes, int64_t i, bool center, double lo[2], double hi[2])
{
    for (int a = 0; a < 2; a++) {
        double p = float_at(boxes, 4 * i + a), q = float_at(boxes, 4 * i + 2 + a);
        lo[a] = center ? p - fabs(q) / 2 : fmin(p, q);
        hi[a] = center ? p + fabs(q) / 2 : fmax(p, q);
    }
}

static bool overlap(const struct tensor *boxes, int64_t i, int64_t k, bool center, double threshold)
{
    double lo[2][2], hi[2][2], common = 1, all = 0;
    corners(boxes, i, center, lo[0], hi[0]);
    corners(boxes, k, center, lo[1], hi[1]);
    for (int a = 0; a < 2; a++)
        common *= fmax(0, fmin(hi[0][a], hi[1][a]) - fmax(lo[0][a], lo[1][a]));
    for (int b = 0; b < 2; b++)
        all += (hi[b][0] - lo[b][0]) * (hi[b][1] - lo[b][1]);
    return common > 0 && common / (all - common) > threshold;
}

/* (boxes, scores, most a class, iou threshold, score threshold) nbatch, nclass, nbox, center,
 * least, most -> selected. Takes the best remaining box repeatedly. */
static bool host_nms(const struct host_args *h)
{
    if (h->nin != 5 || h->nout != 2 || h->nparam != 6)
        return false;
    int64_t nclass = h->param[1], nbox = h->param[2], most = h->param[5], total = 0;
    int64_t nrow = h->param[0] * nclass;
    if (sat_mul(nrow, nbox) > h->in[1]->nelem || 3 * most > h->out[0]->nelem)
        return false;
    bool *gone = calloc((size_t)nbox + 1, sizeof *gone);
    bool ok = gone != NULL;
    for (int64_t row = 0; row < nrow && ok; row++) {
        int64_t first = row / nclass * nbox;
        for (int64_t i = 0; i < nbox; i++)
            gone[i] = !(float_at(h->in[1], row * nbox + i) > float_at(h->in[4], 0));
        for (int64_t taken = 0; taken < int_at(h->in[2], 0); taken++) {
            int64_t best = -1;
            for (int64_t i = 0; i < nbox; i++)
                if (!gone[i] && (best < 0 || float_at(h->in[1], row * nbox + i) >
                                                 float_at(h->in[1], row * nbox + best)))
                    best = i;
            if (best < 0)
                break;
            if (!(ok = total < most))
                break;
            union scalar *to = (union scalar *)h->out[0]->data + 3 * total++;
            to[0].i = row / nclass;
            to[1].i = row % nclass;
            to[2].i = best;
            for (int64_t i = 0; i < nbox; i++)
                gone[i] |= i == best || overlap(h->in[0], first + best, first + i, h->param[3] != 0,
                                                float_at(h->in[3], 0));
        }
    }
    free(gone);
    *h->result = total;
    return ok && total >= h->param[4];
}

static int compare_rows(const struct tensor *x, int64_t a, int64_t b, int64_t len)
{
    const union scalar *v = x->data;
    int order = 0;
    for (int64_t i = 0; i < len && !order; i++)
        order = compare_scalars(x->dtype, v[a * len + i], v[b * len + i]);
    return order;
}

/* (x) n, len, sorted, least, most -> first, inverse, counts. Compares a row with all groups. */
static bool host_unique(const struct host_args *h)
{
    if (h->nin != 1 || h->nout != 4 || h->nparam != 5)
        return false;
    const struct tensor *x = h->in[0];
    int64_t n = h->param[0], len = h->param[1], count = 0, most = h->param[4];
    int64_t *first = ints(h->out[0]), *inverse = ints(h->out[1]), *counts = ints(h->out[2]);
    if (sat_mul(n, len) > x->nelem || n > h->out[1]->nelem || most > h->out[0]->nelem ||
        most > h->out[2]->nelem)
        return false;
    for (int64_t i = 0; i < n; i++) {
        int64_t g = 0, order = 1;
        for (; g < count; g++)
            if ((order = compare_rows(x, i, first[g], len)) == 0 || (h->param[2] && order < 0))
                break;
        if (g == count || order) {
            if (count == most)
                return false;
            memmove(first + g + 1, first + g, (size_t)(count - g) * sizeof *first);
            memmove(counts + g + 1, counts + g, (size_t)(count - g) * sizeof *counts);
            for (int64_t k = 0; k < i; k++)
                inverse[k] += inverse[k] >= g;
            first[g] = i;
            counts[g] = 0;
            count++;
        }
        inverse[i] = g;
        counts[g]++;
    }
    *h->result = count;
    return count >= h->param[3];
}

bool eval_host(const char *function, struct tensor *const *in, int nin, struct tensor *const *out,
               int nout, const int64_t *param, int nparam, int64_t *result)
{
    static const struct { const char *name; bool (*run)(const struct host_args *); } table[] = {
        {"require", host_require},
        {"expect", host_require},
        {"match_dims", host_match_dims},
        {"read_dim", host_read_dim},
        {"nonzero", host_nonzero},
        {"nms", host_nms},
        {"unique_", host_unique},
        {"topk_", host_topk},
    };
    struct host_args h = {in, nin, out, nout, param, nparam, result};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strncmp(function, table[i].name, strlen(table[i].name)) == 0)
            return table[i].run(&h);
    return false;
}
