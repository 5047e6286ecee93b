/* test_storage.c - weights in another order, as they are stored or seen, against an
 * element at a time. */
#include "passes/passes.h"
#include "ir/oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint32_t next_random(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

/* A weight whose elements say where they are, seen through a permutation of its axes, some of them
 * cut and reversed. */
struct sample { struct buffer b; struct view v; int64_t dim[MAX_RANK], stride[MAX_RANK], nelem; };

static void make_sample(struct tgc *t, struct sample *s, enum dtype dtype, uint32_t *state)
{
    int ndim = (int)next_random(state, 5), order[MAX_RANK];
    int64_t size[MAX_RANK], total = 1, offset = 0;
    size_t width = dtype_nbytes(dtype);
    s->nelem = 1;
    for (int a = 0; a < ndim; a++) {
        size[a] = 1 + next_random(state, a % 2 ? 40 : 5);
        total *= size[a];
        order[a] = a;
    }
    for (int a = ndim - 1; a > 0; a--) {
        int k = (int)next_random(state, (uint32_t)a + 1), was = order[a];
        order[a] = order[k];
        order[k] = was;
    }
    for (int a = 0; a < ndim; a++) {
        int64_t below = 1;
        for (int k = order[a] + 1; k < ndim; k++)
            below *= size[k];
        bool is_reversed = next_random(state, 4) == 0;
        s->dim[a] = size[order[a]] - next_random(state, 2) * (size[order[a]] > 1);
        s->stride[a] = is_reversed ? -below : below;
        offset += is_reversed ? (s->dim[a] - 1) * below : 0;
        s->v.dim[a] = uop_int(t, s->dim[a]);
        s->v.stride[a] = uop_int(t, s->stride[a]);
        s->nelem *= s->dim[a];
    }
    s->v.ndim = ndim;
    s->v.offset = uop_int(t, offset);
    unsigned char *data = mem_array(t, (size_t)total, width);
    for (size_t i = 0; i < (size_t)total * width; i++)
        data[i] = (unsigned char)next_random(state, 256);
    s->b = (struct buffer){
        .dtype = dtype, .weight.data = data, .nbytes = (size_t)s->nelem * width, .storage = &s->v};
}

static const unsigned char *element(const struct sample *s, int64_t i)
{
    int64_t offset = s->v.offset->arg.i;
    for (int a = s->v.ndim - 1; a >= 0; i /= s->dim[a--])
        offset += i % s->dim[a] * s->stride[a];
    return (const unsigned char *)s->b.weight.data + offset * (int64_t)dtype_nbytes(s->b.dtype);
}

static void test_parts_of_stored_weights(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_U8, DTYPE_F16, DTYPE_F32, DTYPE_F64};
    uint32_t seed = 1;
    for (int turn = 0; turn < 2000; turn++) {
        struct tgc *t = tgc_new(0);
        struct sample s = {.nelem = 0};
        make_sample(t, &s, dtypes[turn % 4], &seed);
        size_t width = dtype_nbytes(s.b.dtype);
        uint32_t begin = next_random(&seed, (uint32_t)s.nelem),
                 n = next_random(&seed, (uint32_t)s.nelem - begin + 1);
        if (turn % 3 == 0)
            begin = 0, n = (uint32_t)s.nelem;
        unsigned char *to = mem_alloc(t, n * width + 1);
        to[n * width] = 77;
        view_copy_stored(&s.b, begin * width, n * width, to);
        for (uint32_t i = 0; i < n; i++)
            assert_memory_equal(to + i * width, element(&s, begin + i), width);
        assert_int_equal(to[n * width], 77);
        tgc_free(t);
    }
}

static void test_weights_that_are_seen(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    passes_init(t);
    float data[6 * 35], seen[6 * 35], wanted[6 * 35];
    int64_t size[] = {6, 5, 7};
    for (int i = 0; i < 6 * 35; i++)
        data[i] = (float)i;
    struct uop *w = tensor_from_data(t, DTYPE_F32, size, 3, data, sizeof data, NULL);
    struct uop *views[] = {
        w, uop_permute(t, w, (int[]){2, 0, 1}),
        uop_shrink(t, w, (struct uop *[]){uop_int(t, 1), uop_int(t, 0), uop_int(t, 3)},
                   (struct uop *[]){uop_int(t, 4), uop_int(t, 5), uop_int(t, 2)}),
        uop_flip(t, w, 5), uop_reshape(t, w, (struct uop *[]){uop_int(t, 30), uop_int(t, 7)}, 2)};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        struct eval_env env = {.budget = -1};
        int64_t n = 1;
        for (int a = 0; a < views[i]->ndim; a++)
            n *= views[i]->dim[a]->arg.i;
        assert_true(eval_store(t, views[i], n, &env, wanted, NULL));
        assert_true(view_copy_weight(t, views[i], seen));
        assert_memory_equal(seen, wanted, (size_t)n * sizeof *seen);
    }
    struct uop *zero = uop_constf(t, DTYPE_F32, 0),
               *one[] = {uop_int(t, 1), uop_int(t, 1), uop_int(t, 1)};
    assert_false(view_copy_weight(t, uop_pad(t, w, zero, one, one), seen));
    assert_false(view_copy_weight(t, uop_binary(t, OP_ADD, w, w), seen));
    tgc_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_of_stored_weights),
        cmocka_unit_test(test_weights_that_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
