/* tables.c - the tables of a host call, which say where its function reads and where it goes on:
 * trees, n-grams, regular expressions, the vectors of classes. The functions follow them unchecked,
 * so they are weights, and every number in them is checked here. What ONNX's operators make is
 * right as it is made.
 */
#include "frontend/text/reader.h"

#include <math.h>
#include <string.h>

/* A call being checked; the number of the input that is wrong, and what is wrong with it. */
struct tables {
    struct reader *r;
    struct uop *const *in, *const *param;
    int wrong_input;
    const char *wrong;
};
struct table { int64_t n; const int64_t *v; };

/* What it has at least, and what a param is at least. */
static int64_t nelem_of(const struct uop *u)
{
    int64_t n = 1;
    for (int a = 0; a < u->ndim; a++)
        n = sat_mul(n, u->dim[a]->vmin > 0 ? u->dim[a]->vmin : 0);
    return n;
}

static int64_t input_size(const struct tables *c, int k) { return nelem_of(c->in[k]); }

static bool fail(struct tables *c, int k, const char *wrong)
{
    c->wrong_input = k;
    c->wrong = wrong;
    return false;
}

static bool in_range(int64_t v, int64_t least, int64_t end) { return v >= least && v < end; }

/* The numbers of input k, an i32 or i64 weight. */
static bool read_table(struct tables *c, int k, struct table *to)
{
    struct tgc *t = c->r->t;
    struct uop *u = c->in[k];
    size_t nbytes = dtype_nbytes(u->dtype);
    to->n = nelem_of(u);
    char *bytes = mem_array(t, (size_t)to->n, nbytes);
    int64_t *v = mem_array(t, (size_t)to->n, sizeof *v);
    if (!view_copy_weight(t, u, bytes))
        return fail(c, k, "is no weight: a run does not check it");
    for (int64_t i = 0; i < to->n; i++) {
        int32_t narrow;
        if (nbytes == sizeof *v) {
            memcpy(&v[i], bytes + (size_t)i * nbytes, sizeof *v);
        } else {
            memcpy(&narrow, bytes + (size_t)i * nbytes, sizeof narrow);
            v[i] = narrow;
        }
    }
    to->v = v;
    return true;
}

/* Every number of input k is from 0 to end - 1. */
static bool all_below(struct tables *c, int k, int64_t end, const char *wrong)
{
    struct table x;
    if (!read_table(c, k, &x))
        return false;
    for (int64_t i = 0; i < x.n; i++)
        if (!in_range(x.v[i], 0, end))
            return fail(c, k, wrong);
    return true;
}

/* ---------------------------------------------------------------------------------------- trees */

/* Each node has one parent or is one root, so that every walk ends. */
struct forest { unsigned char *reached; int64_t nnode; };

static bool forest_enter(struct tables *c, struct forest *f, int k, int64_t node)
{
    if (!in_range(node, 0, f->nnode) || f->reached[node])
        return fail(c, k, "names a node that is none, or that has a parent already");
    f->reached[node] = 1;
    return true;
}

static bool forest_roots(struct tables *c, struct forest *f, int64_t nnode)
{
    struct table root;
    f->nnode = nnode;
    f->reached = mem_array(c->r->t, (size_t)nnode + 1, 1);
    if (!read_table(c, 1, &root))
        return false;
    for (int64_t i = 0; i < root.n; i++)
        if (!forest_enter(c, f, 1, root.v[i]))
            return false;
    return true;
}

static const char feature_wrong[] = "tests a feature that rows do not have",
                  target_wrong[] = "names a target that there is not",
                  range_wrong[] = "has a range beyond the end of its list";

/* (test, feature, yes, no, a, b): runtime/host/tree.c */
static bool ensemble_fits(struct tables *c)
{
    enum { NUMBERS = 6, MEMBER = 6, LEAF = 7 };
    struct table node;
    struct forest f;
    if (!read_table(c, 2, &node))
        return false;
    int64_t nvalue = input_size(c, 3), nset = input_size(c, 4), ntarget = input_size(c, 5),
            nleaf = input_size(c, 6), nnode = node.n / NUMBERS;
    nleaf = ntarget < nleaf ? ntarget : nleaf;
    nnode = nvalue < nnode ? nvalue : nnode;
    if (!forest_roots(c, &f, nnode))
        return false;
    for (int64_t i = 0; i < nnode; i++) {
        const int64_t *p = node.v + NUMBERS * i, test = p[0] & 7;
        int64_t end = test == LEAF ? nleaf : nset;
        if (test >= MEMBER && (p[4] < 0 || p[5] > end || p[4] > p[5]))
            return fail(c, 2, range_wrong);
        if (test == LEAF)
            continue;
        if (!in_range(p[1], 0, c->param[1]->vmin))
            return fail(c, 2, feature_wrong);
        if (!forest_enter(c, &f, 2, p[2]) || !forest_enter(c, &f, 2, p[3]))
            return false;
    }
    return all_below(c, 5, c->param[3]->vmin, target_wrong);
}

/* The number in the last two of a node's four. */
static double walk_value(const int64_t *p, bool wide)
{
    int32_t half[2] = {(int32_t)p[2], (int32_t)p[3]};
    float narrow;
    double value;
    memcpy(&narrow, half, sizeof narrow);
    memcpy(&value, half, sizeof value);
    return wide ? value : (double)narrow;
}

/* (feature, first child, value in two): a leaf is its own child, and no number is
 * greater than its value. */
static bool walk_fits(struct tables *c)
{
    enum { NUMBERS = 4 };
    struct table node;
    struct forest f;
    if (!read_table(c, 2, &node))
        return false;
    int64_t nnode = node.n / NUMBERS, ntarget = input_size(c, 4), nleaf = input_size(c, 5);
    nleaf = ntarget < nleaf ? ntarget : nleaf;
    nnode = input_size(c, 3) - 1 < nnode ? input_size(c, 3) - 1 : nnode;
    nnode = nnode < 0 ? 0 : nnode;
    if (!forest_roots(c, &f, nnode))
        return false;
    for (int64_t i = 0; i < nnode; i++) {
        const int64_t *p = node.v + NUMBERS * i;
        if (!in_range(p[0] & INT32_MAX, 0, c->param[1]->vmin))
            return fail(c, 2, feature_wrong);
        if (p[1] == i && p[0] >= 0 && !(walk_value(p, c->in[0]->dtype == DTYPE_F64) < HUGE_VAL))
            continue;
        if (!forest_enter(c, &f, 2, p[1]) || !forest_enter(c, &f, 2, p[1] + 1))
            return false;
    }
    return all_below(c, 3, nleaf + 1, range_wrong) &&
           all_below(c, 4, c->param[3]->vmin, target_wrong);
}

/* --------------------------------------------------------------------------------------- others */

/* gram[i]: where in the pool the i-th n-gram begins; place[i]: its column; first[n]: the first one
 * of n + 1 elements. */
static bool grams_fit(struct tables *c)
{
    struct table gram, place, first;
    int64_t pool = input_size(c, 1), shortest, longest;
    if (!uop_const_int(c->param[3], &shortest) || !uop_const_int(c->param[4], &longest) ||
        shortest < 1)
        return fail(c, 4, "goes with sizes of n-grams that are numbers from 1 on, params 4 and 5");
    if (!read_table(c, 2, &gram) || !read_table(c, 3, &place) || !read_table(c, 4, &first))
        return false;
    int64_t ngram = gram.n < place.n ? gram.n : place.n;
    for (int64_t n = shortest; n <= longest; n++) {
        if (n >= first.n || first.v[n - 1] < 0 || first.v[n] > ngram || first.v[n - 1] > first.v[n])
            return fail(c, 4, range_wrong);
        for (int64_t i = first.v[n - 1]; i < first.v[n]; i++)
            if (!in_range(gram.v[i], 0, pool - n + 1))
                return fail(c, 2, range_wrong);
    }
    return all_below(c, 3, c->param[2]->vmin, "names a column that the result does not have");
}

/* (operation, a, b): runtime/host/regex.c */
static bool expression_fits(struct tables *c)
{
    enum { MATCH, SPLIT, JUMP, RANGES, LAST = 7 };
    struct table code;
    int64_t n, nrange = input_size(c, 2) / 2;
    if (!uop_const_int(c->param[1], &n) || n < 1)
        return fail(c, 1, "goes with a number of instructions from 1 on, param 2");
    if (!read_table(c, 1, &code))
        return false;
    for (int64_t i = 0; i < n && i < code.n / 3; i++) {
        const int64_t *p = code.v + 3 * i;
        bool goes_on = p[0] != MATCH && p[0] != SPLIT && p[0] != JUMP;
        if (!in_range(p[0], MATCH, LAST + 1))
            return fail(c, 1, "has an operation that there is not");
        if ((p[0] == SPLIT && !in_range(i + p[2], 0, n)) ||
            ((p[0] == SPLIT || p[0] == JUMP) && !in_range(i + p[1], 0, n)) ||
            (goes_on && i + 1 >= n))
            return fail(c, 1, "goes on at an instruction that there is not");
        if (p[0] == RANGES && (p[1] < 0 || p[2] > nrange))
            return fail(c, 1, range_wrong);
    }
    return true;
}

static bool vectors_fit(struct tables *c)
{
    return all_below(c, 2, sat_add(c->param[1]->vmin, 1), range_wrong);
}

bool host_tables_fit(struct reader *r, const struct token *at, const struct host_function *f,
                     struct uop *const *in, struct uop *const *param)
{
    static const struct {
        const char *name;
        bool (*fits)(struct tables *c);
    } check[] = {{"tree_ensemble_", ensemble_fits},
                 {"tree_walk_", walk_fits},
                 {"tfidf_", grams_fit},
                 {"regex_full_match", expression_fits},
                 {"svm_decide", vectors_fit}};
    struct tables c = {.r = r, .in = in, .param = param};
    for (size_t i = 0; i < sizeof check / sizeof *check; i++)
        if (!strncmp(f->name, check[i].name, strlen(check[i].name)) && !check[i].fits(&c))
            return read_error(r, at, "input %d of '%s' %s", c.wrong_input + 1, f->name, c.wrong);
    return true;
}
