/* eval_host.c - what the host functions compute, for the evaluator.
 *
 * Written apart from the functions that emitted programs carry (runtime/host/), and as simply as it
 * goes: sorting is qsort(). An entry of the table stands for all dtypes of a function, "topk" for
 * topk_f32, topk_i64 and so on.
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

/* (x) n, least, most -> positions of what is not 0; result: how many */
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

bool eval_host(const char *function, struct tensor *const *in, int nin, struct tensor *const *out,
               int nout, const int64_t *param, int nparam, int64_t *result)
{
    static const struct { const char *name; bool (*run)(const struct host_args *); } table[] = {
        {"require", host_require},
        {"match_dims", host_match_dims},
        {"read_dim", host_read_dim},
        {"nonzero", host_nonzero},
        {"topk_", host_topk},
    };
    struct host_args h = {in, nin, out, nout, param, nparam, result};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strncmp(function, table[i].name, strlen(table[i].name)) == 0)
            return table[i].run(&h);
    return false;
}
