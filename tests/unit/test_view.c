/* test_view.c - movement ops against a brute-force oracle.
 *
 * Random chains of movement ops, with constant and symbolic dimensions. The oracle knows neither
 * indices nor strides: it materializes an array of element numbers op by op (-1 where padded). For
 * every element of the result, move_index() through the whole chain and tracker_index() of the
 * chain's tracker must name the same element, or say that there is none. Each chain is built with
 * the fold rules and without them. Then: chains that models are made of must be one view. */
#include "passes/passes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* --------------------------------------------------------------------------------------- oracle */

struct array {
    int ndim;
    int64_t dim[MAX_RANK], nelem, *v;
};

static struct array array_new(struct tgc *t, const struct uop *u, const int64_t *value)
{
    struct array r = {.ndim = u->ndim, .nelem = 1};
    for (int a = 0; a < u->ndim; a++) {
        assert_true(sym_eval(u->dim[a], value, t->next_var, &r.dim[a]));
        assert_true(r.dim[a] >= 0);
        r.nelem *= r.dim[a];
    }
    r.v = mem_array(t, (size_t)r.nelem + 1, sizeof *r.v);
    for (int64_t i = 0; i < r.nelem; i++)
        r.v[i] = -1;
    return r;
}

static void to_coords(const struct array *x, int64_t flat, int64_t *c)
{
    for (int a = x->ndim - 1; a >= 0; a--) {
        c[a] = flat % x->dim[a];
        flat /= x->dim[a];
    }
}

/* The element at c, or NULL outside. */
static int64_t *element(const struct array *x, const int64_t *c)
{
    int64_t flat = 0;
    for (int a = 0; a < x->ndim; a++) {
        if (c[a] < 0 || c[a] >= x->dim[a])
            return NULL;
        flat = flat * x->dim[a] + c[a];
    }
    return &x->v[flat];
}

static int64_t number(struct tgc *t, const struct uop *u, const int64_t *value)
{
    int64_t r;
    assert_true(sym_eval(u, value, t->next_var, &r));
    return r;
}

/* Copies every element of x to where op u puts it (all ops that place an element once). */
static void scatter_elements(struct tgc *t, const struct uop *u, int k, const struct array *x,
                             const int64_t *value, struct array *r)
{
    int64_t start = 0;
    for (int i = 0; u->op == OP_CONCAT && i < k; i++)
        start += number(t, u->src[i]->dim[u->arg.i], value);
    for (int64_t i = 0; i < x->nelem; i++) {
        int64_t c[MAX_RANK], to[MAX_RANK];
        to_coords(x, i, c);
        for (int a = 0; a < x->ndim; a++) {
            switch (u->op) {
            case OP_PERMUTE:
                for (int b = 0; b < u->ndim; b++) {
                    if (PERM_GET(u->arg.i, b) == a)
                        to[b] = c[a];
                }
                break;
            case OP_PAD:
                to[a] = c[a] + number(t, u->src[2 + 2 * a], value);
                break;
            case OP_SHRINK:
                to[a] = c[a] - number(t, u->src[1 + 2 * a], value);
                break;
            case OP_FLIP:
                to[a] = u->arg.i >> a & 1 ? x->dim[a] - 1 - c[a] : c[a];
                break;
            case OP_CONCAT:
                to[a] = c[a] + (a == u->arg.i ? start : 0);
                break;
            default:
                fail_msg("no scatter for %s", op_name(u->op));
            }
        }
        int64_t *p = element(r, to);
        if (p)
            *p = x->v[i];
    }
}

/* Ops that repeat elements: reads them from x. */
static void gather_elements(const struct uop *u, const struct array *x, struct array *r)
{
    int axis = u->op == OP_WINDOW ? WINDOW_AXIS(u->arg.i) : -1;
    for (int64_t i = 0; i < r->nelem; i++) {
        int64_t c[MAX_RANK], from[MAX_RANK];
        to_coords(r, i, c);
        for (int a = 0; a < x->ndim; a++) {
            if (u->op == OP_EXPAND)
                from[a] = x->dim[a] == 1 ? 0 : c[a];
            else if (a == axis)
                from[a] = WINDOW_STRIDE(u->arg.i) * c[a] + WINDOW_DILATION(u->arg.i) * c[a + 1];
            else
                from[a] = c[a < axis ? a : a + 1];
        }
        int64_t *p = element(x, from);
        assert_non_null(p); /* else the generator made an invalid window */
        r->v[i] = *p;
    }
}

static struct array materialize(struct tgc *t, const struct uop *u, const int64_t *value)
{
    struct array r = array_new(t, u, value);
    if (u->op == OP_BUFFER) {
        for (int64_t i = 0; i < r.nelem; i++)
            r.v[i] = i;
        return r;
    }
    int nsrc = u->op == OP_CONCAT ? u->nsrc : 1;
    for (int k = 0; k < nsrc; k++) {
        struct array x = materialize(t, u->src[k], value);
        if (u->op == OP_RESHAPE) {
            assert_int_equal(x.nelem, r.nelem);
            memcpy(r.v, x.v, (size_t)x.nelem * sizeof *x.v);
        } else if (u->op == OP_EXPAND || u->op == OP_WINDOW) {
            gather_elements(u, &x, &r);
        } else {
            scatter_elements(t, u, k, &x, value, &r);
        }
    }
    return r;
}

/* ------------------------------------------------------------------------------------ generator */

struct random {
    uint64_t state;
};

static int draw(struct random *g, int n)
{
    g->state = g->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((g->state >> 33) % (uint64_t)n);
}

struct generator {
    struct tgc *t;
    struct random *random;
    struct uop *n, *m; /* symbols, NULL: constants only */
    int nconcat;
};

static struct uop *random_dim(struct generator *g)
{
    static const int size[] = {0, 1, 1, 2, 2, 3, 3, 4, 5, 6};
    int k = draw(g->random, 14);
    if (g->n && k >= 10)
        return k < 12 ? g->n : g->m;
    return uop_int(g->t, size[k % 10]);
}

static struct uop *random_reshape_constant(struct generator *g, struct uop *x)
{
    struct uop *dim[MAX_RANK];
    int64_t rest = 1, d;
    int n = 0;
    for (int a = 0; a < x->ndim; a++) {
        if (!uop_const_int(x->dim[a], &d))
            return x;
        rest *= d;
    }
    while (n < 5 && (rest > 1 || draw(g->random, 3) == 0)) {
        int64_t factor = 1 + draw(g->random, rest > 1 && rest < 12 ? (int)rest : 6);
        if (rest % factor)
            continue;
        dim[n++] = uop_int(g->t, factor);
        rest /= factor;
    }
    dim[n++] = uop_int(g->t, rest);
    return uop_reshape(g->t, x, dim, n);
}

/* Merges, splits and inserts axes, which is all that can be known to fit with symbols. */
static struct uop *random_regroup(struct generator *g, struct uop *x)
{
    struct uop *dim[2 * MAX_RANK];
    int n = 0;
    for (int a = 0; a < x->ndim; a++) {
        int64_t d;
        int what = draw(g->random, 5);
        if (what == 0)
            dim[n++] = uop_int(g->t, 1);
        if (what == 1 && n) {
            dim[n - 1] = sym_mul(g->t, dim[n - 1], x->dim[a]);
        } else if (what == 2 && uop_const_int(x->dim[a], &d) && d > 2 && d % 2 == 0) {
            dim[n++] = uop_int(g->t, 2);
            dim[n++] = uop_int(g->t, d / 2);
        } else if (what == 3 && uop_is_int(x->dim[a], 1)) {
            continue;
        } else {
            dim[n++] = x->dim[a];
        }
    }
    return n <= 6 ? uop_reshape(g->t, x, dim, n) : x;
}

static struct uop *random_boxes(struct generator *g, struct uop *x, enum op op)
{
    struct uop *a[MAX_RANK], *b[MAX_RANK];
    for (int i = 0; i < x->ndim; i++) {
        int lo = draw(g->random, 3), hi = draw(g->random, 3);
        if (op == OP_PAD) {
            a[i] = g->n && draw(g->random, 8) == 0 ? g->n : uop_int(g->t, lo);
            b[i] = uop_int(g->t, hi);
        } else {
            if (lo + hi > x->dim[i]->vmin)
                lo = hi = 0;
            a[i] = uop_int(g->t, lo);
            b[i] = sym_addi(g->t, x->dim[i], -lo - hi);
        }
    }
    if (op == OP_PAD)
        return uop_pad(g->t, x, uop_constf(g->t, DTYPE_F32, 0), a, b);
    return uop_shrink(g->t, x, a, b);
}

/* A pad whose other end is cut off: the strides stay those of the source, only the mask tells. */
static struct uop *random_shift(struct generator *g, struct uop *x)
{
    struct uop *lo[MAX_RANK], *hi[MAX_RANK], *begin[MAX_RANK];
    for (int a = 0; a < x->ndim; a++) {
        int by = draw(g->random, 3) - 1;
        lo[a] = uop_int(g->t, by > 0);
        hi[a] = uop_int(g->t, by < 0);
        begin[a] = uop_int(g->t, by < 0);
    }
    struct uop *y = uop_pad(g->t, x, uop_constf(g->t, DTYPE_F32, 0), lo, hi);
    return uop_shrink(g->t, y, begin, x->dim);
}

/* One coordinate of some axes. */
static struct uop *random_pick(struct generator *g, struct uop *x)
{
    struct uop *begin[MAX_RANK], *size[MAX_RANK];
    for (int a = 0; a < x->ndim; a++) {
        bool pick = x->dim[a]->vmin > 0 && draw(g->random, 2);
        begin[a] = uop_int(g->t, pick ? draw(g->random, (int)x->dim[a]->vmin) : 0);
        size[a] = pick ? uop_int(g->t, 1) : x->dim[a];
    }
    return uop_shrink(g->t, x, begin, size);
}

static struct uop *random_window(struct generator *g, struct uop *x)
{
    if (!x->ndim || x->ndim > 5)
        return x;
    int axis = draw(g->random, x->ndim);
    int64_t k = 1 + draw(g->random, 3), s = 1 + draw(g->random, 3), d = 1 + draw(g->random, 2);
    struct uop *room = sym_addi(g->t, x->dim[axis], -d * (k - 1) - 1);
    if (room->vmin < 0)
        return x;
    struct uop *o = sym_addi(g->t, sym_div(g->t, room, uop_int(g->t, s)), 1);
    return uop_window(g->t, x, axis, o, uop_int(g->t, k), s, d);
}

static struct uop *random_concat(struct generator *g, struct uop *x)
{
    if (!x->ndim || g->nconcat++ >= 2)
        return x;
    struct uop *part[3] = {x, uop_flip(g->t, x, 1), x};
    return uop_concat(g->t, part, 2 + draw(g->random, 2), draw(g->random, x->ndim));
}

static struct uop *random_permute(struct generator *g, struct uop *x)
{
    int perm[MAX_RANK];
    for (int a = 0; a < x->ndim; a++) {
        int b = draw(g->random, a + 1);
        perm[a] = perm[b];
        perm[b] = a;
    }
    return uop_permute(g->t, x, perm);
}

static struct uop *random_expand(struct generator *g, struct uop *x)
{
    struct uop *dim[MAX_RANK];
    for (int a = 0; a < x->ndim; a++)
        dim[a] = uop_is_int(x->dim[a], 1) ? random_dim(g) : x->dim[a];
    return uop_expand(g->t, x, dim);
}

static struct uop *random_move(struct generator *g, struct uop *x)
{
    switch (draw(g->random, 11)) {
    case 0:
        return random_reshape_constant(g, x);
    case 1:
        return random_regroup(g, x);
    case 2:
        return random_permute(g, x);
    case 3:
        return random_expand(g, x);
    case 4:
        return random_boxes(g, x, OP_PAD);
    case 5:
        return random_boxes(g, x, OP_SHRINK);
    case 6:
        return uop_flip(g->t, x, (uint32_t)draw(g->random, 1 << x->ndim));
    case 7:
        return random_window(g, x);
    case 8:
        return random_shift(g, x);
    case 9:
        return random_pick(g, x);
    default:
        return random_concat(g, x);
    }
}

static int64_t nelem_max(const struct uop *u)
{
    int64_t n = 1;
    for (int a = 0; a < u->ndim; a++)
        n = sat_mul(n, u->dim[a]->vmax);
    return n;
}

static struct uop *random_chain(struct generator *g)
{
    struct uop *dim[MAX_RANK];
    int ndim = draw(g->random, 6);
    for (int a = 0; a < ndim; a++)
        dim[a] = random_dim(g);
    struct uop *x = uop_buffer(g->t, buffer_new(g->t, BUFFER_INPUT, DTYPE_F32, dim, ndim, "x"));
    for (int k = 1 + draw(g->random, 7); k > 0; k--) {
        struct uop *y = random_move(g, x);
        if (nelem_max(y) <= 3000)
            x = y;
    }
    return x;
}

/* ----------------------------------------------------------------------------------- comparison */

/* Where an element may come from: one path for each choice of concat sources. Exactly one may be
 * valid. */
struct route {
    struct uop *valid, *offset;
};

static void find_paths(struct tgc *t, const struct uop *u, struct uop *const *index,
                       struct uop *valid, struct route *path, int *npath)
{
    if (u->op == OP_BUFFER) {
        struct uop *offset = uop_int(t, 0);
        for (int a = 0; a < u->ndim; a++)
            offset = sym_add(t, sym_mul(t, offset, u->dim[a]), index[a]);
        assert_true(*npath < 32);
        path[(*npath)++] = (struct route){valid, offset};
        return;
    }
    for (int k = 0; k < (u->op == OP_CONCAT ? u->nsrc : 1); k++) {
        struct uop *src_index[MAX_RANK], *v;
        move_index(t, u, k, index, src_index, &v);
        find_paths(t, u->src[k], src_index, sym_and(t, valid, v), path, npath);
    }
}

static struct tracker *track(struct tgc *t, struct uop *u)
{
    if (u->op == OP_BUFFER)
        return tracker_contiguous(t, u->dim, u->ndim);
    struct tracker *tr = u->op == OP_CONCAT ? NULL : track(t, u->src[0]);
    return tr ? tracker_apply(t, tr, u) : NULL;
}

static int64_t expected_at(struct tgc *t, const struct route *path, int npath, const int64_t *value)
{
    int64_t found = -1;
    for (int k = 0; k < npath; k++) {
        if (!number(t, path[k].valid, value))
            continue;
        assert_int_equal(found, -1);
        found = number(t, path[k].offset, value);
    }
    return found;
}

static bool row_major_from(const struct array *r, int64_t first)
{
    for (int64_t i = 0; i < r->nelem; i++) {
        if (r->v[i] != first + i)
            return false;
    }
    return true;
}

struct totals {
    long chains, comparisons, views, one_view, tracked;
};

static void compare(struct tgc *t, const struct uop *u, const struct route *path, int npath,
                    const struct tracker *tr, const struct route *tracked, struct var *const *axis,
                    int64_t *value, struct totals *sum)
{
    struct array r = materialize(t, u, value);
    for (int64_t i = 0; i < r.nelem; i++) {
        int64_t c[MAX_RANK];
        to_coords(&r, i, c);
        for (int a = 0; a < u->ndim; a++)
            value[axis[a]->id] = c[a];
        int64_t got = expected_at(t, path, npath, value);
        if (got != r.v[i])
            fail_msg("move_index: element %lld is %lld, not %lld", (long long)i, (long long)r.v[i],
                     (long long)got);
        got = tr ? expected_at(t, tracked, 1, value) : r.v[i];
        if (got != r.v[i])
            fail_msg("tracker: element %lld is %lld, not %lld", (long long)i, (long long)r.v[i],
                     (long long)got);
        sum->comparisons += 1 + !!tr;
    }
    struct uop *offset;
    if (tr && r.nelem && tracker_is_alias(tr, &offset))
        assert_true(row_major_from(&r, number(t, offset, value)));
    if (tr && r.nelem && tracker_is_contiguous(tr))
        assert_true(row_major_from(&r, 0));
}

static void print_chain(const struct uop *u)
{
    for (; u->op != OP_BUFFER; u = u->src[0]) {
        print_message("  %s arg %lld ->", op_name(u->op), (long long)u->arg.i);
        for (int a = 0; a < u->ndim; a++)
            print_message(" [%lld..%lld]", (long long)u->dim[a]->vmin, (long long)u->dim[a]->vmax);
        print_message("\n");
    }
}

static void check_chain(struct generator *g, struct uop *u, struct totals *sum)
{
    struct tgc *t = g->t;
    struct uop *index[MAX_RANK];
    struct var *axis[MAX_RANK];
    for (int a = 0; a < u->ndim; a++) {
        axis[a] = var_new(t, "i", 0, u->dim[a]->vmax > 0 ? u->dim[a]->vmax - 1 : 0);
        index[a] = uop_var(t, axis[a]);
    }
    struct route path[32], tracked = {0};
    int npath = 0;
    find_paths(t, u, index, uop_bool(t, true), path, &npath);
    struct tracker *tr = track(t, u);
    if (tr) {
        tracker_index(t, tr, index, &tracked.offset, &tracked.valid);
        sum->tracked++;
        sum->views += tr->nview;
        sum->one_view += tr->nview == 1;
    }
    int64_t *value = mem_array(t, (size_t)t->next_var, sizeof *value);
    int64_t nmax = g->n ? g->n->vmax : 0, mmax = g->n ? g->m->vmax : 0;
    for (int64_t n = g->n ? g->n->vmin : 0; n <= nmax; n++) {
        for (int64_t m = g->n ? g->m->vmin : 0; m <= mmax; m++) {
            if (g->n) {
                value[((const struct var *)g->n->arg.p)->id] = n;
                value[((const struct var *)g->m->arg.p)->id] = m;
            }
            compare(t, u, path, npath, tr, &tracked, axis, value, sum);
        }
    }
    sum->chains++;
}

static struct tgc *compile_new(bool rules)
{
    struct tgc *t = tgc_new(0);
    assert_non_null(t);
    if (rules)
        passes_init(t);
    return t;
}

/* VIEW_CHAIN=k prints chain k, for who looks for a failure. */
static void run_chain(struct tgc *t, struct random *random, bool symbols, int k, struct totals *sum)
{
    struct generator g = {.t = t, .random = random};
    if (symbols) {
        g.n = uop_var(t, var_new(t, "N", 0, 3));
        g.m = uop_var(t, var_new(t, "M", 1, 3));
    }
    struct uop *u = random_chain(&g);
    const char *wanted = getenv("VIEW_CHAIN");
    if (wanted && atoi(wanted) == k)
        print_chain(u);
    check_chain(&g, u, sum);
}

static void guarded_chain(struct random *random, bool rules, bool symbols, int k,
                          struct totals *sum)
{
    struct tgc *t = compile_new(rules);
    if (setjmp(t->stop))
        fail_msg("chain %d: %s", k, t->ndiag ? t->diag[0].message : "stopped");
    run_chain(t, random, symbols, k, sum);
    tgc_free(t);
}

static void random_chains(bool rules, bool symbols, int nchain, uint64_t seed)
{
    struct random random = {seed};
    struct totals sum = {0};
    for (int k = 0; k < nchain; k++)
        guarded_chain(&random, rules, symbols, k, &sum);
    print_message("figure: views: %ld chains, %ld comparisons; %ld trackers, %ld views, "
                  "%ld of one view (%s, %s)\n",
                  sum.chains, sum.comparisons, sum.tracked, sum.views, sum.one_view,
                  rules ? "with rules" : "no rules", symbols ? "symbolic" : "constant");
    assert_true(sum.comparisons > 20L * nchain);
}

static void test_constant_chains(void **state)
{
    (void)state;
    random_chains(true, false, 3000, 1);
    random_chains(false, false, 1000, 2);
}

static void test_symbolic_chains(void **state)
{
    (void)state;
    const char *cases = getenv("TGC_CASES");
    int times = cases && strcmp(cases, "all") == 0 ? 2 : 1;
    random_chains(true, true, 750 * times, 3);
    random_chains(false, true, 250 * times, 4);
}

/* -------------------------------------------------------------------------------- common chains */

struct fixture {
    struct tgc *t;
    struct uop *n; /* 1..9 */
};

static void fixture_open(struct fixture *f)
{
    f->t = compile_new(true);
    f->n = uop_var(f->t, var_new(f->t, "N", 1, 9));
}

#define C(v) uop_int(f.t, (v))
#define DIMS(...) ((struct uop *[]){__VA_ARGS__})

static struct uop *input(struct tgc *t, struct uop *const *dim, int ndim)
{
    return uop_buffer(t, buffer_new(t, BUFFER_INPUT, DTYPE_F32, dim, ndim, "x"));
}

static struct uop *conv_windows(struct fixture f, struct uop *n, bool pad)
{
    struct uop *x = input(f.t, DIMS(n, C(8), C(14), C(14)), 4);
    if (pad)
        x = uop_pad(f.t, x, uop_constf(f.t, DTYPE_F32, 0), DIMS(C(0), C(0), C(1), C(1)),
                    DIMS(C(0), C(0), C(1), C(1)));
    int o = pad ? 14 : 12;
    x = uop_window(f.t, x, 3, C(o), C(3), 1, 1);
    x = uop_window(f.t, x, 2, C(o), C(3), 1, 1); /* n ic oy ky ox kx */
    x = uop_permute(f.t, x, (int[]){0, 2, 4, 1, 3, 5});
    x = uop_reshape(f.t, x, DIMS(n, C(1), C(o), C(o), C(8), C(3), C(3)), 7);
    return uop_expand(f.t, x, DIMS(n, C(16), C(o), C(o), C(8), C(3), C(3)));
}

static int count_views(struct tgc *t, struct uop *u)
{
    struct tracker *tr = track(t, u);
    assert_non_null(tr);
    return tr->nview;
}

static void test_convolution(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    assert_int_equal(count_views(f.t, conv_windows(f, C(2), false)), 1);
    assert_int_equal(count_views(f.t, conv_windows(f, f.n, false)), 1);
    /* a mask over oy + ky is no box: the pad keeps its own view */
    assert_int_equal(count_views(f.t, conv_windows(f, C(2), true)), 2);
    /* the inner part, where no window touches the padding, is one view again */
    struct uop *u = conv_windows(f, C(2), true);
    u = uop_shrink(f.t, u, DIMS(C(0), C(0), C(1), C(1), C(0), C(0), C(0)),
                   DIMS(C(2), C(16), C(12), C(12), C(8), C(3), C(3)));
    assert_int_equal(count_views(f.t, u), 1);
    tgc_free(f.t);
}

static void test_heads(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    for (int symbolic = 0; symbolic < 2; symbolic++) {
        struct uop *n = symbolic ? f.n : C(7);
        struct uop *x = input(f.t, DIMS(C(1), n, C(64)), 3);
        struct uop *y = uop_reshape(f.t, x, DIMS(C(1), n, C(8), C(8)), 4);
        y = uop_permute(f.t, y, (int[]){0, 2, 1, 3});
        assert_int_equal(count_views(f.t, y), 1);
        y = uop_reshape(f.t, y, DIMS(C(8), n, C(8)), 3);
        assert_int_equal(count_views(f.t, y), 1);
        y = uop_permute(f.t, y, (int[]){1, 0, 2});
        y = uop_reshape(f.t, y, DIMS(C(1), n, C(64)), 3); /* back: all of x again */
        assert_int_equal(count_views(f.t, y), 1);
        assert_true(tracker_is_contiguous(track(f.t, y)));
    }
    tgc_free(f.t);
}

static void test_transpose_and_back(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    struct uop *x = input(f.t, DIMS(C(4), C(6)), 2);
    struct uop *y = uop_permute(f.t, x, (int[]){1, 0});
    assert_int_equal(count_views(f.t, y), 1);
    assert_false(tracker_is_contiguous(track(f.t, y)));
    struct uop *flat = uop_reshape(f.t, y, DIMS(C(24)), 1);
    assert_int_equal(count_views(f.t, flat), 2);
    y = uop_reshape(f.t, flat, DIMS(C(6), C(4)), 2); /* the stack shrinks again */
    assert_int_equal(count_views(f.t, y), 1);
    y = uop_shrink(f.t, flat, DIMS(C(8)), DIMS(C(4))); /* one column */
    assert_int_equal(count_views(f.t, y), 1);
    tgc_free(f.t);
}

static void test_masks_survive_merging(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    struct uop *zero = uop_constf(f.t, DTYPE_F32, 0);
    /* a window over a padded axis, reversed, then one tap of it: the mask is projected backwards */
    struct uop *x = input(f.t, DIMS(C(5)), 1);
    struct uop *y = uop_pad(f.t, x, zero, DIMS(C(2)), DIMS(C(1)));
    y = uop_flip(f.t, uop_window(f.t, y, 0, C(3), C(2), 2, 1), 3);
    assert_int_equal(count_views(f.t, y), 2);
    y = uop_shrink(f.t, y, DIMS(C(0), C(1)), DIMS(C(3), C(1)));
    assert_int_equal(count_views(f.t, y), 1);
    struct totals sum = {0};
    check_chain(&(struct generator){.t = f.t}, y, &sum);
    assert_int_equal(sum.comparisons, 6);
    /* shifted by one: strides still fit the reshape, the mask does not */
    x = input(f.t, DIMS(C(4), C(6)), 2);
    y = uop_pad(f.t, x, zero, DIMS(C(0), C(1)), DIMS(C(0), C(0)));
    y = uop_shrink(f.t, y, DIMS(C(0), C(0)), DIMS(C(4), C(6)));
    y = uop_reshape(f.t, y, DIMS(C(24)), 1);
    assert_int_equal(count_views(f.t, y), 2);
    check_chain(&(struct generator){.t = f.t}, y, &sum);
    tgc_free(f.t);
}

static void test_slices(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    struct uop *offset, *x = input(f.t, DIMS(f.n, C(6), C(8)), 3);
    struct uop *y = uop_shrink(f.t, x, DIMS(C(0), C(2), C(0)), DIMS(f.n, C(3), C(8)));
    assert_int_equal(count_views(f.t, y), 1);
    assert_false(tracker_is_alias(track(f.t, y), &offset));
    struct uop *w = input(f.t, DIMS(C(5), C(6)), 2);
    y = uop_shrink(f.t, w, DIMS(C(2), C(0)), DIMS(C(2), C(6)));
    assert_true(tracker_is_alias(track(f.t, y), &offset));
    assert_true(uop_is_int(offset, 12));
    y = uop_reshape(f.t, y, DIMS(C(1), C(3), C(4)), 3);
    assert_true(tracker_is_alias(track(f.t, y), &offset));
    /* every second row: a window of one, strided */
    y = uop_window(f.t, w, 0, C(3), C(1), 2, 1);
    y = uop_reshape(f.t, y, DIMS(C(3), C(6)), 2);
    assert_int_equal(count_views(f.t, y), 1);
    /* a pad cut away again */
    y = uop_pad(f.t, w, uop_constf(f.t, DTYPE_F32, 0), DIMS(C(1), C(2)), DIMS(C(0), C(3)));
    y = uop_shrink(f.t, y, DIMS(C(1), C(2)), DIMS(C(5), C(6)));
    assert_true(tracker_is_contiguous(track(f.t, y)));
    tgc_free(f.t);
}

static void test_unrelated_axes_never_mix(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    struct uop *x = input(f.t, DIMS(f.n, C(12), C(1), C(7)), 4);
    struct uop *y = uop_reshape(f.t, x, DIMS(f.n, C(1), C(3), C(4), C(7)), 5);
    struct uop *index[5], *src[4], *valid;
    for (int a = 0; a < 5; a++)
        index[a] = uop_var(f.t, var_new(f.t, "i", 0, a == 0 ? 8 : a == 4 ? 6 : a == 3 ? 3 : 2));
    move_index(f.t, y, 0, index, src, &valid);
    assert_ptr_equal(src[0], index[0]);
    assert_ptr_equal(src[3], index[4]);
    assert_true(uop_is_int(src[2], 0));
    assert_ptr_equal(src[1], sym_add(f.t, sym_muli(f.t, index[2], 4), index[3]));
    assert_true(uop_is_int(valid, 1));
    tgc_free(f.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant_chains),
        cmocka_unit_test(test_symbolic_chains),
        cmocka_unit_test(test_convolution),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_transpose_and_back),
        cmocka_unit_test(test_masks_survive_merging),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_unrelated_axes_never_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
