/* test_contraction.c - the roles of the axes of sums of products, for everything that the library
 * makes of them. The sum can be built again from them, and the loop nests that it becomes have
 * ranges of the same roles. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "passes/analysis/nest.h"
#include "ir/oracle.h"
#include "tests/unit/schedules.h"

/* The product's axes, a letter each; the moves above the bases. */
static const char letter[] = {[ROLE_NONE] = '.', [ROLE_BATCH] = 'b', [ROLE_ROW] = 'r',
                              [ROLE_COLUMN] = 'c', [ROLE_SUM] = 's', [ROLE_TAP] = 't'};
static const unsigned moves = MOVES_VIEW | MOVES_CAST;

static const char *roles_of(const struct contraction *c)
{
    struct text s = {.t = c->t};
    for (int p = 0; p < c->product->ndim; p++)
        text_putc(&s, letter[c->role[p]]);
    return s.s;
}

/* The k-th sum of products below u, from the outputs on; NULL: there are fewer. */
static struct uop *sum_below(struct fixture *f, struct uop *u, int k)
{
    int n;
    struct contraction c;
    assert_non_null(u);
    struct uop **order = uop_toposort(f->t, &u, 1, &n);
    for (int i = n - 1; i >= 0; i--)
        if (contraction_find(f->t, order[i], moves, &c) && k-- == 0)
            return order[i];
    return NULL;
}

static void check_equal(struct fixture *f, struct uop *a, struct uop *b)
{
    struct uop *root[2] = {a, b};
    struct tensor *value[2];
    struct eval_env env = {.leaf = f->leaf, .value = f->value, .n = f->nleaf, .var = f->var,
                           .nvar = 64, .budget = -1};
    assert_true(eval_graph(f->t, root, 2, &env, value));
    assert_int_equal(value[0]->nelem, value[1]->nelem);
    for (int64_t i = 0; i < value[0]->nelem; i++)
        assert_true(fabs(((double *)value[0]->data)[i] - ((double *)value[1]->data)[i]) < 1e-9);
}

/* How a sum comes back: as it was, in another form that is the same from then on, or not at all. */
enum back { SAME, NORMAL, NONE };

static void check_sum(struct fixture *f, struct uop *sum, const char *roles, enum back back)
{
    struct contraction c, again;
    assert_non_null(sum);
    assert_true(contraction_find(f->t, sum, moves, &c));
    assert_string_equal(roles_of(&c), roles);
    struct uop *built = contraction_build(&c);
    assert_int_equal(built == NULL, back == NONE);
    if (!built)
        return;
    if (back == SAME)
        assert_ptr_equal(built, sum);
    check_equal(f, built, sum);
    assert_true(contraction_find(f->t, built, moves, &again));
    assert_string_equal(roles_of(&again), roles);
    assert_ptr_equal(contraction_build(&again), built);
}

static void check_only(struct fixture *f, struct uop *u, const char *roles, enum back back)
{
    check_sum(f, sum_below(f, u, 0), roles, back);
    assert_null(sum_below(f, u, 1));
}

static void check_none(struct fixture *f, struct uop *u) { assert_null(sum_below(f, u, 0)); }

/* ------------------------------------------------------------------------------------- products */

static void test_matmul(void **state)
{
    struct fixture *f = *state;
    const struct lib *l = &f->l;
    struct uop *x = INPUT(f, 5, 7), *xt = INPUT(f, 7, 5);
    struct uop *w = WEIGHT(f, 7, 4), *wt = WEIGHT(f, 4, 7);
    check_only(f, lib_matmul(l, x, w), "rcs", SAME);
    check_only(f, lib_gemm(l, xt, w, NULL, 1, 0, true, false), "rcs", SAME);
    check_only(f, lib_gemm(l, x, wt, NULL, 1, 0, false, true), "rcs", SAME);
    check_only(f, lib_gemm(l, xt, wt, NULL, 1, 0, true, true), "rcs", SAME);
    check_only(f, lib_linear(l, x, wt, NULL), "rcs", SAME);
    /* the weight first: its rows are columns */
    check_only(f, lib_matmul(l, wt, INPUT(f, 7, 6)), "crs", SAME);
    check_only(f, lib_matmul(l, INPUT(f, 7), w), ".cs", SAME);
    /* whose columns are the last ones */
    check_only(f, lib_matmul(l, x, INPUT(f, 7, 4)), "rcs", SAME);
    check_only(f, lib_matmul(l, x, INPUT(f, 7)), "c.s", SAME);
}

static void test_batch(void **state)
{
    struct fixture *f = *state;
    const struct lib *l = &f->l;
    struct uop *x = INPUT(f, 3, 5, 7);
    check_only(f, lib_matmul(l, x, WEIGHT(f, 3, 7, 4)), "brcs", SAME);
    check_only(f, lib_matmul(l, x, WEIGHT(f, 7, 4)), "rrcs", SAME);
    check_only(f, lib_matmul(l, x, WEIGHT(f, 2, 1, 7, 4)), "crrcs", SAME);
    check_only(f, lib_matmul(l, INPUT(f, 2, 1, 5, 7), INPUT(f, 3, 7, 4)), "rcrcs", SAME);
}

static void test_standing(void **state)
{
    struct fixture *f = *state;
    struct contraction c;
    struct uop *x = INPUT(f, 5, 7), *w = WEIGHT(f, 7, 4);
    assert_true(contraction_find(f->t, sum_below(f, lib_matmul(&f->l, x, w), 0), moves, &c));
    assert_int_equal(c.factor[c.streamed].standing, STREAMED);
    assert_int_equal(c.factor[c.stationary].standing, KNOWN);
    assert_ptr_equal(c.factor[c.streamed].base, x);
    assert_ptr_equal(c.factor[c.stationary].base, w);
    assert_true(contraction_extent(&c, ROLE_ROW) == 5 && contraction_extent(&c, ROLE_COLUMN) == 4 &&
                contraction_extent(&c, ROLE_SUM) == 7 && contraction_extent(&c, ROLE_BATCH) == 1);
    /* what quantization stands for is the same in all runs, but not data that is there */
    struct uop *scaled = lib_mul(&f->l, w, WEIGHT(f, 1, 4));
    assert_true(contraction_find(f->t, sum_below(f, lib_matmul(&f->l, x, scaled), 0), moves, &c));
    assert_int_equal(c.factor[c.stationary].standing, STATIONARY);
}

static void test_einsum(void **state)
{
    struct fixture *f = *state;
    const struct lib *l = &f->l;
    struct uop *q[2] = {INPUT(f, 2, 3, 5, 8), INPUT(f, 2, 7, 3, 8)};
    struct uop *m[2] = {INPUT(f, 5, 7), INPUT(f, 4, 7)}, *p[2] = {INPUT(f, 5, 7), WEIGHT(f, 5, 7)};
    check_only(f, lib_einsum(l, "bhqd,bkhd->bhqk", q, 2), "bbrcs", SAME);
    check_only(f, lib_einsum(l, "bhqd,bkhd->bkqh", q, 2), "brcbs", SAME);
    check_only(f, lib_einsum(l, "ij,kj->ik", m, 2), "rcs", SAME);
    check_only(f, lib_einsum(l, "ij,kj->ki", m, 2), "rcs", SAME);
    check_only(f, lib_einsum(l, "ij,ij->i", p, 2), "bs", SAME);
    check_only(f, lib_einsum(l, "ij,ij->", p, 2), "ss", SAME);
    check_only(f, lib_einsum(l, "ij,ik->kj", p, 2), "crs", SAME);
}

static void test_attention(void **state)
{
    struct fixture *f = *state;
    struct attention_attr a = {0};
    struct uop *y = lib_attention(&f->l, INPUT(f, 2, 3, 5, 8), INPUT(f, 2, 3, 7, 8),
                                  INPUT(f, 2, 3, 7, 6), NULL, &a);
    check_sum(f, sum_below(f, y, 0), "bb.rcs", NORMAL);
    check_sum(f, sum_below(f, y, 1), "bb.rcs", NORMAL);
    /* two heads of queries for each of keys: rows */
    y = lib_attention(&f->l, INPUT(f, 2, 6, 5, 8), INPUT(f, 2, 3, 7, 8), INPUT(f, 2, 3, 7, 6), NULL,
                      &a);
    check_sum(f, sum_below(f, y, 0), "bbrrcs", NORMAL);
    check_sum(f, sum_below(f, y, 1), "bbrrcs", NORMAL);
}

/* --------------------------------------------------------------------------------- convolutions */

static struct uop *convolve(struct fixture *f, struct uop *x, struct uop *w, int64_t pad,
                            int64_t stride, int64_t dilation, int64_t group)
{
    struct window_attr a = {.group = group};
    for (int i = 0; i < x->ndim - 2; i++) {
        a.stride[i] = stride, a.dilation[i] = dilation;
        a.lo[i] = a.hi[i] = uop_int(f->t, pad);
    }
    return lib_conv(&f->l, x, w, NULL, &a);
}

static void test_convolution(void **state)
{
    struct fixture *f = *state;
    struct uop *x = INPUT(f, 2, 3, 8, 9), *w = WEIGHT(f, 4, 3, 3, 3);
    check_only(f, convolve(f, x, w, 0, 1, 1, 1), "rcrrstt", SAME);
    check_only(f, convolve(f, x, w, 1, 1, 1, 1), "rcrrstt", SAME);
    check_only(f, convolve(f, x, w, 1, 2, 1, 1), "rcrrstt", SAME);
    check_only(f, convolve(f, x, w, 2, 1, 2, 1), "rcrrstt", SAME);
    check_only(f, convolve(f, INPUT(f, 1, 3, 8, 9), w, 1, 1, 1, 1), ".crrstt", SAME);
    check_only(f, convolve(f, x, WEIGHT(f, 4, 3, 1, 1), 0, 1, 1, 1), "rcrrs..", NORMAL);
    check_only(f, convolve(f, INPUT(f, 2, 3, 9), WEIGHT(f, 4, 3, 3), 1, 1, 1, 1), "rcrst", SAME);
    /* windows that meet nowhere are parts of an image in order: no taps */
    check_only(f, convolve(f, INPUT(f, 2, 3, 8, 8), WEIGHT(f, 4, 3, 2, 2), 0, 2, 1, 1), "rcrrsss",
               NORMAL);
    /* weights that a run computes */
    check_only(f, convolve(f, x, INPUT(f, 4, 3, 3, 3), 0, 1, 1, 1), "rcrrstt", SAME);
}

static void test_groups(void **state)
{
    struct fixture *f = *state;
    struct uop *x = INPUT(f, 2, 4, 8, 8);
    check_only(f, convolve(f, x, WEIGHT(f, 6, 2, 3, 3), 0, 1, 1, 2), "rbcrrstt", SAME);
    check_only(f, convolve(f, x, WEIGHT(f, 4, 1, 3, 3), 0, 1, 1, 4), "rb.rr.tt", NORMAL);
    check_only(f, convolve(f, x, WEIGHT(f, 8, 1, 3, 3), 1, 2, 1, 4), "rbcrr.tt", NORMAL);
}

static void test_transposed(void **state)
{
    struct fixture *f = *state;
    struct window_attr a = {.group = 1, .stride = {2, 2}, .dilation = {1, 1}};
    struct uop *x = INPUT(f, 2, 3, 5, 5);
    struct uop *y = lib_conv_transpose(&f->l, x, WEIGHT(f, 3, 4, 4, 4), NULL, &a);
    check_only(f, y, "rcrrstt", NONE);
    a.stride[0] = a.stride[1] = 1;
    y = lib_conv_transpose(&f->l, x, WEIGHT(f, 3, 4, 3, 3), NULL, &a);
    check_only(f, y, "rcrrstt", NONE);                 /* the kernel is mirrored */
}

static void test_runs(void **state)
{
    struct fixture *f = *state;
    struct contraction c;
    struct uop *y = convolve(f, INPUT(f, 2, 4, 9, 9), WEIGHT(f, 6, 2, 3, 3), 1, 2, 1, 2);
    assert_true(contraction_find(f->t, sum_below(f, y, 0), MOVES_VIEW | MOVES_ZEROS, &c));
    const struct factor *x = &c.factor[c.streamed];
    struct run channels = contraction_run(&c, x, 1), rows = contraction_run(&c, x, 2);
    assert_true(channels.whole && channels.n == 2);
    assert_true(channels.axis[0] == 1 && channels.stride[0] == 2 && channels.axis[1] == 5);
    assert_true(!rows.whole && rows.n == 2 && rows.begin == -1);
    assert_true(rows.axis[0] == 3 && rows.stride[0] == 2);
    assert_true(rows.axis[1] == 6 && rows.stride[1] == 1);
    assert_false(uop_is_int(x->valid, 1));
    assert_true(uop_is_int(c.factor[c.stationary].valid, 1));
}

/* Rebuilt from its contraction, a slice of an axis begins where it did. Windows with reversed taps
 * cannot be rebuilt by movement operations. */
static void test_parts(void **state)
{
    struct fixture *f = *state;
    struct tgc *t = f->t;
    struct uop *begin[2] = {uop_int(t, 0), uop_int(t, 2)},
               *size[2] = {uop_int(t, 5), uop_int(t, 7)};
    struct uop *part = uop_shrink(t, INPUT(f, 5, 10), begin, size);
    check_only(f, lib_matmul(&f->l, part, WEIGHT(f, 7, 4)), "rcs", SAME);
    struct uop *window = uop_window(t, INPUT(f, 5, 9), 1, uop_int(t, 7), uop_int(t, 3), 1, 1);
    struct uop *product = lib_mul(&f->l, uop_flip(t, window, 1u << 2), WEIGHT(f, 3));
    check_only(f, lib_reduce(&f->l, REDUCE_SUM, product, 4, false), "rrt", NONE);
}

/* ------------------------------------------------------------------------------------- movement */

static void test_moves(void **state)
{
    struct fixture *f = *state;
    struct tgc *t = f->t;
    struct uop *x = make_inputi(f, DTYPE_I8, 2, (int[]){5, 6}), *c = uop_cast(t, DTYPE_F32, x);
    struct uop *zero = uop_int(t, 0), *one = uop_int(t, 1), *two = uop_int(t, 2);
    struct uop *five = uop_int(t, 5), *pad[2] = {zero, one}, *none[2] = {zero, zero};
    struct uop *p = uop_pad(t, c, uop_constf(t, DTYPE_F32, 0), none, pad);
    struct uop *w = uop_window(t, p, 1, five, two, 1, 2);
    struct uop *s = uop_shrink(t, w, (struct uop *[]){one, zero, zero},
                               (struct uop *[]){two, five, two});
    struct uop *v = uop_permute(t, s, (int[]){2, 0, 1});
    assert_ptr_equal(value_behind(v, 0), v);
    assert_ptr_equal(value_behind(v, MOVES_SPREAD), s);
    assert_ptr_equal(value_behind(v, MOVES_PLACES), s);
    assert_ptr_equal(value_behind(v, MOVES_VIEW), p);
    assert_ptr_equal(value_behind(v, MOVES_VIEW | MOVES_ZEROS), c);
    assert_ptr_equal(value_behind(v, MOVES_OPERAND), x);
    p = uop_pad(t, c, uop_constf(t, DTYPE_F32, 1), none, pad);
    assert_ptr_equal(value_behind(p, MOVES_VIEW | MOVES_ZEROS), p);
    assert_ptr_equal(value_behind(p, MOVES_ANY), c);
    struct path down = path_down(v, MOVES_VIEW | MOVES_ZEROS);
    assert_int_equal(down.n, 4);
    assert_ptr_equal(down.base, c);
    assert_ptr_equal(path_up(t, &down, c), v);
    assert_ptr_not_equal(path_up(t, &down, uop_unary(t, OP_NEG, c)), v);
    assert_int_equal(axes_of_base(t, v, MOVES_SPREAD), 7);
    /* what repeats does not change its base's coordinates */
    struct uop *twice[3] = {x->dim[0], x->dim[1], two};
    v = uop_expand(t, tensor_insert_axis(t, x, 2), twice);
    assert_int_equal(axes_of_base(t, v, MOVES_SPREAD), 3);
}

/* ---------------------------------------------------------------------------------- no products */

static void test_others(void **state)
{
    struct fixture *f = *state;
    const struct lib *l = &f->l;
    struct uop *x = INPUT(f, 5, 7), *w = WEIGHT(f, 5, 7), *product = lib_mul(l, x, w);
    check_none(f, lib_reduce(l, REDUCE_MAX, product, 2, false));
    check_none(f, lib_reduce(l, REDUCE_SUM, x, 2, false));
    check_none(f, lib_reduce(l, REDUCE_SUM_SQUARE, x, 2, false));
    check_none(f, lib_reduce(l, REDUCE_SUM, lib_binaryf(l, OP_MUL, x, 3), 2, false));
    check_none(f, lib_reduce(l, REDUCE_SUM, lib_add(l, x, w), 2, false));
    check_none(f, product);
    check_only(f, lib_reduce(l, REDUCE_SUM, product, 2, false), "bs", SAME);
}

/* ---------------------------------------------------------------------------------- loop nests */

/* The roles of a store's ranges and, after a dash, of its sum's, outermost first. */
static const char *roles_of_nest(const struct nest *m)
{
    struct text s = {.t = m->t};
    for (int k = m->first; k < m->store->nsrc; k++)
        text_putc(&s, letter[nest_axis(m, m->store->src[k]).role]);
    text_putc(&s, '-');
    for (int k = 1; k < m->reduce->nsrc; k++)
        text_putc(&s, letter[nest_axis(m, m->reduce->src[k]).role]);
    return s.s;
}

/* The one sum of products among the kernels that compute y, as they are before they are tiled. */
static void check_nest(struct fixture *f, struct uop *y, const char *roles, bool weights)
{
    int found = 0;
    add_output(f, y);
    int nkernel = check(f, false);
    for (int i = 0; i < nkernel; i++)
        for (int k = 0; k < f->lowered[i]->nsrc; k++) {
            struct nest m;
            if (!nest_find(f->t, f->lowered[i]->src[k], &m) || !m.contraction)
                continue;
            assert_string_equal(roles_of_nest(&m), roles);
            for (int a = 0; a < m.naxis; a++)
                assert_int_equal(m.axis[a].weights, weights && m.axis[a].role != ROLE_ROW);
            found++;
        }
    assert_int_equal(found, 1);
}

static void test_nest_of_matmul(void **state)
{
    struct fixture *f = *state;
    check_nest(f, lib_matmul(&f->l, INPUT(f, 5, 7), WEIGHT(f, 7, 4)), "rc-s", true);
}

static void test_nest_of_batch(void **state)
{
    struct fixture *f = *state;
    check_nest(f, lib_matmul(&f->l, INPUT(f, 3, 5, 7), WEIGHT(f, 3, 7, 4)), "brc-s", true);
}

/* without weights the columns are those of the last range that one operand has alone */
static void test_nest_of_values(void **state)
{
    struct fixture *f = *state;
    struct uop *v[2] = {INPUT(f, 2, 3, 5, 8), INPUT(f, 2, 7, 3, 8)};
    check_nest(f, lib_einsum(&f->l, "bhqd,bkhd->bhqk", v, 2), "bbrc-s", false);
}

static void test_nest_of_convolution(void **state)
{
    struct fixture *f = *state;
    struct uop *y = convolve(f, INPUT(f, 2, 3, 8, 9), WEIGHT(f, 4, 3, 3, 3), 0, 1, 1, 1);
    check_nest(f, y, "rcrr-stt", true);
}

/* rows that are two apart meet the taps that are two apart, and the others do not */
static void test_nest_of_dilation(void **state)
{
    struct fixture *f = *state;
    struct uop *y = convolve(f, INPUT(f, 2, 3, 9, 9), WEIGHT(f, 4, 3, 3, 3), 0, 2, 2, 1);
    check_nest(f, y, "rcrr-stt", true);
}

/* windows that meet nowhere are sums, as in the graph */
static void test_nest_of_patches(void **state)
{
    struct fixture *f = *state;
    struct uop *y = convolve(f, INPUT(f, 2, 3, 8, 8), WEIGHT(f, 4, 3, 2, 2), 0, 2, 1, 1);
    check_nest(f, y, "rcrr-sss", true);
}

static void test_nest_of_groups(void **state)
{
    struct fixture *f = *state;
    struct uop *y = convolve(f, INPUT(f, 2, 4, 8, 8), WEIGHT(f, 4, 1, 3, 3), 0, 1, 1, 4);
    check_nest(f, y, "rbrr-tt", true);
}

/* weights of the sum's ranges alone: no columns */
static void test_nest_of_one_column(void **state)
{
    struct fixture *f = *state;
    check_nest(f, lib_matmul(&f->l, INPUT(f, 5, 7), WEIGHT(f, 7)), "r-s", true);
}

/* one of two sums of a store, whatever the other one is */
static void test_nest_of_two_sums(void **state)
{
    struct fixture *f = *state;
    struct tgc *t = f->t;
    struct nest m;
    const struct lib *l = &f->l;
    struct uop *x = INPUT(f, 5, 7);
    struct uop *mean = lib_reduce(l, REDUCE_MEAN, x, 2, true);
    add_output(f, lib_add(l, lib_matmul(l, x, WEIGHT(f, 7, 4)), mean));
    int nkernel = check(f, false), found = 0, n;
    for (int i = 0; i < nkernel; i++) {
        struct uop *store = f->lowered[i]->src[0];
        struct uop **order = uop_toposort(t, &store, 1, &n);
        for (int k = 0; k < n; k++)
            if (order[k]->op == OP_REDUCE && nest_find_sum(t, store, order[k], &m) &&
                m.contraction) {
                assert_string_equal(roles_of_nest(&m), "rc-s");
                found++;
            }
    }
    assert_int_equal(found, 1);
}

static int setup(void **state)
{
    *state = fixture_new(7);
    return 0;
}

static int teardown(void **state)
{
    fixture_free(*state);
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_matmul),
        CASE(test_batch),
        CASE(test_standing),
        CASE(test_einsum),
        CASE(test_attention),
        CASE(test_convolution),
        CASE(test_groups),
        CASE(test_transposed),
        CASE(test_runs),
        CASE(test_parts),
        CASE(test_moves),
        CASE(test_others),
        CASE(test_nest_of_matmul),
        CASE(test_nest_of_batch),
        CASE(test_nest_of_values),
        CASE(test_nest_of_convolution),
        CASE(test_nest_of_dilation),
        CASE(test_nest_of_patches),
        CASE(test_nest_of_groups),
        CASE(test_nest_of_one_column),
        CASE(test_nest_of_two_sums),
    };
    return cmocka_run_group_tests_name("contraction", tests, NULL, NULL);
}
