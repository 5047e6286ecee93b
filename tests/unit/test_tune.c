/* test_tune.c - tune files: what is read back is what was written, and what is refused; keys of
 * nests depend on shapes and on nothing else. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "passes/kernel/tile.h"
#include "passes/target/tune.h"

static void test_round_trip(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    static struct opt opt[] = {
        {.op = OPT_CUT, .n = 96, .from = 90, .to = 1},
        {.op = OPT_LANES, .store = 1, .axis = 2, .n = 8, .kind = AXIS_VECTOR, .column = true},
        {.op = OPT_PACK, .of = OF_SUM, .number = 3, .n = 8, .operand = 1, .space = SPACE_SCRATCH},
        {.op = OPT_THREAD, .axis = 3},
    };
    static const struct tuned entry[] = {
        {.kind = TUNE_WINOGRAD, .key = 0x0123456789abcdef, .winograd = {4, 4}, .us = 12.5},
        {.kind = TUNE_WINOGRAD, .key = 3, .winograd = {0, 6}, .us = 1},
        {.kind = TUNE_WINOGRAD, .key = 4, .apart = true},
        {.kind = TUNE_TILE, .key = UINT64_MAX, .isa = ISA_AVX2, .us = 0.25, .model_us = 1e5,
         .opts = {opt, 3}},
        {.kind = TUNE_TILE, .key = 1, .isa = ISA_GENERIC, .opts = {opt, 1}},
        {.kind = TUNE_TILE, .key = 1, .isa = ISA_NEON},
        {.kind = TUNE_KEYS, .key = 1},
        {.kind = TUNE_ROWS, .key = 1, .opts = {opt + 1, 1}, .us = 3},
        {.kind = TUNE_THREADS, .key = 2, .isa = ISA_AVX512, .opts = {opt + 3, 1}, .us = 7},
    };
    enum { N = sizeof entry / sizeof *entry };
    struct text x = {.t = t};
    struct tuning read = {0};
    text_puts(&x, "tgc-tune 3  # of a machine\n# a remark\n");
    tune_write_machine(&x, machine_of(t));
    for (int i = 0; i < N; i++) {
        tune_write(&x, &entry[i]);
        text_puts(&x, i ? "  # a title\r\n" : "\n");
    }
    assert_true(tune_read(t, "x.tune", x.s, x.n, &read));
    assert_int_equal(read.nentry, N);
    assert_string_equal(read.machine, machine_of(t)->text);
    for (int i = 0; i < N; i++) {
        const struct tuned *e = &read.entry[i];
        assert_int_equal(e->line, 4 + i);
        assert_true(e->kind == entry[i].kind && e->key == entry[i].key && e->us == entry[i].us &&
                    e->model_us == entry[i].model_us);
        assert_true(tuned_are_equal(e, &entry[i]) && !tuned_are_equal(e, &entry[(i + 1) % N]));
        assert_true(e->kind == TUNE_WINOGRAD || e->isa == entry[i].isa);
    }
    tgc_free(t);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "tgc-tune 2\n", "tgc-tune 4\n", "tgc-tune\n", "tgc-tune 3x\n",
        "tgc-tune 3\nvoodoo 0123456789abcdef side=4\n",
        "tgc-tune 3\nwinograd 0123456789abcde side=4\n",
        "tgc-tune 3\nwinograd 0123456789abcdefg side=4\n",
        "tgc-tune 3\nwinograd 0123456789abcdeg side=4\n",
        "tgc-tune 3\nwinograd 0123456789abcdef\n",
        "tgc-tune 3\nwinograd 0123456789abcdef side=7\n",
        "tgc-tune 3\nwinograd 0123456789abcdef side=\n",
        "tgc-tune 3\nwinograd 0123456789abcdef side=4x\n",
        "tgc-tune 3\nwinograd 0123456789abcdef side=4x1\n",
        "tgc-tune 3\nwinograd 0123456789abcdef side=4x22\n",
        "tgc-tune 3\nwinograd 0123456789abcdef side=aparts\n",
        "tgc-tune 3\nwinograd 0123456789abcdef side=4 us=nan\n",
        "tgc-tune 3\nwinograd 0123456789abcdef side=4 us=-1\n",
        "tgc-tune 3\nwinograd 0123456789abcdef side\n",
        "tgc-tune 3\nwinograd 0123456789abcdef side=4: lanes 0 axis=0 n=4 kind=lane as=row\n",
        "tgc-tune 3\nwinograd 0123456789abcdef side=4\nwinograd 0123456789abcdef side=2\n",
        "tgc-tune 3\nkeys 0123456789abcdef:\nkeys 0123456789abcdef: decide 0\n",
        "tgc-tune 3\nkeys 0123456789abcdef isa=avx2:\n",
        "tgc-tune 3\nrows 0123456789abcdef\n",
        "tgc-tune 3\nthreads 0123456789abcdef: thread 0 axis=1\n",
        "tgc-tune 3\nthreads 0123456789abcdef isa=avx2\n",
        "tgc-tune 3\ntile 0123456789abcdef isa=avx2\n",
        "tgc-tune 3\ntile 0123456789abcdef isa=avx2 columns=8@0:\n",
        "tgc-tune 3\ntile 0123456789abcdef isa=z80: decide 0\n",
        "tgc-tune 3\ntile 0123456789abcdef isa=avx2: lanes\n",
        "tgc-tune 3\ntile 0123456789abcdef isa=avx2: decide 0; lines 0\n",
        "tgc-tune 3\ntile 0123456789abcdef isa=avx2: decide 0 decide 1\n",
        "tgc-tune 3\ntile 0123456789abcdef isa=avx2: divide 0 axis=1 n=99999999999999999999\n",
        "tgc-tune 3\ntile 0123456789abcdef isa=avx2: divide 0 axis=-1 n=2\n",
        "tgc-tune 3\nmachine\n", "tgc-tune 3\nmachine zen4 zen5\n",
        "tgc-tune 3\nmachine zen4\nmachine zen4\n", "tgc-tune 3\nmachine: zen4\n",
        "tgc-tune 3\n: decide 0\n", "tgc-tune 3\ntile: decide 0\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tgc *t = tgc_new(0);
        struct tuning read = {0};
        if (tune_read(t, "x.tune", bad[i], strlen(bad[i]), &read))
            fail_msg("taken: %s", bad[i]);
        assert_int_equal(t->nerror, 1);
        assert_string_equal(t->diag[0].at.file, "x.tune");
        assert_true(t->diag[0].at.line >= 1);
        tgc_free(t);
    }
}

/* The store of a matrix product over ranges of its own. */
static struct uop *store_of(struct tgc *t, int64_t rows, int64_t columns, int64_t steps,
                            bool swapped, enum buffer_kind kind)
{
    struct uop *size[3] = {uop_int(t, rows), uop_int(t, columns), uop_int(t, steps)}, *r[3];
    for (int k = 0; k < 3; k++)
        r[k] = uop_range(t, size[k], t->next_range++);
    struct uop *out = uop_buffer(t, buffer_new(t, BUFFER_OUTPUT, DTYPE_F32, size, 2, NULL));
    struct uop *a_dim[2] = {size[0], size[2]}, *b_dim[2] = {size[2], size[1]};
    struct uop *a[2] = {uop_buffer(t, buffer_new(t, BUFFER_INPUT, DTYPE_F32, a_dim, 2, "a")),
                        sym_add(t, sym_muli(t, r[0], steps), r[2])};
    struct uop *b[2] = {uop_buffer(t, buffer_new(t, kind, DTYPE_F32, b_dim, 2, "b")),
                        sym_add(t, sym_muli(t, r[2], columns), r[1])};
    struct uop *load[2];
    load[swapped] = uop_intern(t, OP_LOAD, DTYPE_F32, a, 2, (union arg){0});
    load[!swapped] = uop_intern(t, OP_LOAD, DTYPE_F32, b, 2, (union arg){0});
    struct uop *sum[2] = {uop_intern(t, OP_MUL, DTYPE_F32, load, 2, (union arg){0}), r[2]};
    struct uop *src[5] = {out, sym_add(t, sym_muli(t, r[0], columns), r[1]),
                          uop_intern(t, OP_REDUCE, DTYPE_F32, sum, 2,
                                     (union arg){.i = ARG_PACK(REDUCE, OP_ADD, 0)}),
                          r[0], r[1]};
    return uop_intern(t, OP_STORE, DTYPE_VOID, src, 5, (union arg){0});
}

static uint64_t key_of(struct tgc *t, int64_t rows, int64_t columns, int64_t steps, bool swapped,
                       enum buffer_kind kind)
{
    struct nest m;
    assert_true(nest_find(t, store_of(t, rows, columns, steps, swapped, kind), &m));
    return tune_key_of_store(t, m.store);
}

static void test_keys(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0), *other = tgc_new(0);
    passes_init(t);
    passes_init(other);
    uint64_t key = key_of(t, 8, 64, 32, false, BUFFER_WEIGHT);
    assert_true(key == key_of(t, 8, 64, 32, false, BUFFER_WEIGHT));
    assert_true(key != key_of(t, 8, 64, 32, true, BUFFER_WEIGHT));  /* operands have numbers */
    assert_true(key != key_of(t, 8, 64, 32, false, BUFFER_INPUT));
    assert_true(key != key_of(t, 9, 64, 32, false, BUFFER_WEIGHT));
    assert_true(key != key_of(t, 8, 64, 31, false, BUFFER_WEIGHT));
    (void)key_of(other, 3, 5, 7, true, BUFFER_INPUT); /* other numbers for everything */
    assert_true(key == key_of(other, 8, 64, 32, false, BUFFER_WEIGHT));
    tgc_free(t);
    tgc_free(other);
}

static void test_check(void **state)
{
    (void)state;
    static const char text[] = "tgc-tune 3\n"
                               "tile 0123456789abcdef isa=avx2: decide 0\n";
    struct tgc *t = tgc_new(0);
    struct tuning tuning = {0};
    t->tuning = &tuning;
    assert_true(tune_read(t, "x.tune", text, sizeof text - 1, &tuning));
    assert_true(tune_check(t, &tuning, 1u << ISA_AVX512 | 1));   /* another processor's */
    assert_false(tune_check(t, &tuning, 1u << ISA_AVX2 | 1));
    assert_int_equal(t->diag[0].at.line, 2);
    assert_null(tune_find(t, TUNE_TILE, 0x0123456789abcdef, ISA_AVX512));
    assert_null(tune_find(t, TUNE_WINOGRAD, 0x0123456789abcdef, ISA_AVX2));
    assert_non_null(tune_find(t, TUNE_TILE, 0x0123456789abcdef, ISA_AVX2));
    assert_true(tune_check(t, &tuning, 1u << ISA_AVX2 | 1));
    tgc_free(t);
}

/* Which loop of 8 rows and 64 columns a list's columns were, wherever the opts before have moved
 * it: a loop of which lanes or a cut leave one iteration is gone. */
static void test_columns(void **state)
{
    (void)state;
    enum { ROWS, COLUMNS, NONE = -1 };
    const struct opt rows = {.op = OPT_LANES, .n = 8, .kind = AXIS_LANE},
                     half = {.op = OPT_LANES, .n = 4, .kind = AXIS_LANE},
                     two = {.op = OPT_LANES, .n = 2, .kind = AXIS_LANE},
                     first = {.op = OPT_LANES, .n = 16, .kind = AXIS_VECTOR, .column = true},
                     second = {.op = OPT_LANES, .axis = 1, .n = 16, .column = true},
                     panel = {.op = OPT_PANEL, .n = 32}, swap = {.op = OPT_ORDER, .axis = 1},
                     back = {.op = OPT_ORDER, .to = 1}, away = {.op = OPT_ORDER, .to = 2},
                     one = {.op = OPT_CUT, .n = 1, .from = 1, .to = 1},
                     four = {.op = OPT_CUT, .n = 4, .from = 4, .to = 1},
                     sum = {.op = OPT_LANES, .of = OF_SUM, .n = 16, .column = true},
                     other = {.op = OPT_LANES, .store = 1, .n = 16, .column = true},
                     third = {.op = OPT_LANES, .axis = 2, .n = 16, .column = true};
    const struct { struct opt opt[3]; int n, axis, panel; } cases[] = {
        {{rows}, 0, NONE, 0}, {{rows}, 1, NONE, 0}, {{first}, 1, ROWS, 16},
        {{second}, 1, COLUMNS, 16}, {{panel}, 1, ROWS, 32}, {{rows, first}, 2, COLUMNS, 16},
        {{half, first}, 2, ROWS, 16}, {{half, two, first}, 3, COLUMNS, 16},
        {{swap, panel}, 2, COLUMNS, 32}, {{back, panel}, 2, COLUMNS, 32},
        {{swap, second}, 2, ROWS, 16}, {{swap, swap, panel}, 3, ROWS, 32},
        {{away, panel}, 2, ROWS, 32}, {{one, panel}, 2, COLUMNS, 32},
        {{four, panel}, 2, ROWS, 32}, {{four, half, panel}, 3, COLUMNS, 32},
        {{sum, second}, 2, COLUMNS, 16}, {{other, second}, 2, COLUMNS, 16},
        {{third}, 1, NONE, 0}, {{rows, second}, 2, NONE, 0},
    };
    struct tgc *t = tgc_new(0);
    passes_init(t);
    struct uop *store = store_of(t, 8, 64, 32, false, BUFFER_WEIGHT);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct opt opt[3];
        memcpy(opt, cases[i].opt, sizeof opt);
        struct tile tile = opts_columns(store, &(struct opts){opt, cases[i].n});
        int axis = tile.column_axis < 0 ? NONE : tile.column_axis - 3;
        if (axis != cases[i].axis || tile.panel != cases[i].panel)
            fail_msg("case %zu: axis %d, panel %d", i, axis, (int)tile.panel);
    }
    tgc_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
