/* test_target.c - rows of machines.def are machines, costs are what their facts say, questions
 * about instruction sets are answered for each of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "passes/target/cost.h"
#include "ir/device_ops.h"

static bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

static void check_row(const struct machine *m)
{
    const char *text = m->text;
    if (m->ns_cycle < 0.1 || m->ns_cycle > 20 || m->fma_cycle <= 0 || m->fma_latency < 1 ||
        m->loads_cycle <= 0 || m->decoded_cycle < 1 || m->lanes < 4 || m->flop_lanes < 1)
        fail_msg("%s: a core's facts are no core's", text);
    if (!is_power_of_two(m->line) || m->division < 1 || m->function < 1 || m->lookup < 1 ||
        m->strided_cycles <= 0 || m->nest_cycles < 0 || m->wake_ns < 0)
        fail_msg("%s: what operations take is missing", text);
    for (int i = LEVEL_L1; i < LEVEL_COUNT; i++) {
        if (m->level[i].bytes_cycle <= 0 ||
            (i > LEVEL_L1 && m->level[i].bytes_cycle > m->level[i - 1].bytes_cycle))
            fail_msg("%s: level %d is faster than the one before", text, i);
        if (i < LEVEL_MEMORY && (m->level[i].ways < 1 ||
                                 (i > LEVEL_L1 && m->level[i].nbytes < m->level[i - 1].nbytes)))
            fail_msg("%s: level %d is smaller than the one before", text, i);
    }
    if (!is_power_of_two(machine_way_nbytes(m, LEVEL_L1)) || cost_alias_nbytes(m) < m->line)
        fail_msg("%s: an L1 of %d ways has no sets", text, m->level[LEVEL_L1].ways);
}

/* Each element of a matrix is held by some lane, and by one alone but for bits of the lane that are
 * of no coordinate. */
static void check_fragment(const struct matrix_row *r, enum matrix_part part)
{
    enum { MOST = 64 * 256 };
    static const enum matrix_coordinate side[3][2] = {
        {MATRIX_M, MATRIX_K}, {MATRIX_K, MATRIX_N}, {MATRIX_M, MATRIX_N}};
    unsigned char held[MOST] = {0};
    int rows = r->size[side[part][0]], columns = r->size[side[part][1]],
        n = matrix_elements(r, part), at[MATRIX_NONE + 1];
    if (rows * columns > MOST || r->lanes * n % (rows * columns))
        fail_msg("%s: the lanes hold another number of elements", r->text);
    for (int lane = 0; lane < r->lanes; lane++)
        for (int i = 0; i < n; i++) {
            matrix_place(r, part, lane, i, at);
            int row = at[side[part][0]], column = at[side[part][1]];
            if (row >= rows || column >= columns)
                fail_msg("%s: lane %d holds what is not there", r->text, lane);
            held[row * columns + column]++;
        }
    for (int i = 0; i < rows * columns; i++)
        assert_int_equal(held[i], r->lanes * n / (rows * columns));
}

static void test_matrices(void **state)
{
    (void)state;
    enum matrix_unit of;
    int n;
    double gflops;
    struct tgc t = {.device = NULL};
    const struct device_row *device = device_rows(&n);
    for (int i = 0; i < MATRIX_COUNT; i++) {
        const struct matrix_row *r = matrix_row((enum matrix_unit)i);
        assert_true(matrix_find(r->text, &of) && of == (enum matrix_unit)i);
        for (int part = 0; part < 3; part++)
            if (!matrix_in_shared(r, (enum matrix_part)part))
                check_fragment(r, (enum matrix_part)part);
        assert_true((!matrix_in_shared(r, MATRIX_A) || matrix_in_shared(r, MATRIX_B)) &&
                    !matrix_in_shared(r, MATRIX_SUM));
    }
    for (int i = 0; i < n; i++) {
        t.device = &device[i];
        for (int k = 0; device_matrix(&t, k, &of, &gflops); k++)
            if (matrix_row(of)->lanes % device[i].wave || gflops < device[i].gflops)
                fail_msg("%s: %s is of another wave, or slower than without it", device[i].text,
                         matrix_row(of)->text);
    }
    t.device = NULL;
    assert_false(device_multiplies(&t, DTYPE_F16));
    t.device = device_find("gfx90a");
    t.architectures = "gfx90a,gfx942";
    assert_true(device_multiplies(&t, DTYPE_F16));
    t.architectures = "gfx90a,gfx942,gfx1100";
    assert_false(device_multiplies(&t, DTYPE_F16));
}

static void test_rows(void **state)
{
    (void)state;
    int n;
    const struct machine *rows = machine_rows(&n);
    assert_true(n > 1);
    for (int i = 0; i < n; i++) {
        check_row(&rows[i]);
        assert_ptr_equal(machine_find(rows[i].text), &rows[i]);
        assert_string_not_equal(rows[i].text, "host");
    }
    assert_null(machine_find("zen9"));
}

/* What is asked for twice takes twice as long; beyond a cache it takes longer; a machine of half
 * the frequency takes twice as long. */
static void test_costs(void **state)
{
    (void)state;
    int n;
    const struct machine *rows = machine_rows(&n);
    for (int i = 0; i < n; i++) {
        struct machine slow = rows[i];
        slow.ns_cycle *= 2;
        double one = cost_of_flop(&rows[i], FLOP_TILES, 1000);
        assert_true(one > 0 && cost_of_flop(&rows[i], FLOP_TILES, 2000) == 2 * one);
        assert_true(cost_of_flop(&slow, FLOP_TILES, 1000) == 2 * one);
        assert_true(cost_of_bytes(&rows[i], LEVEL_L2, 64) <
                    cost_of_bytes(&rows[i], LEVEL_MEMORY, 64));
        struct cost_step step = {12, 7, 2, 0, 8, true}, more = step;
        more.work = 24;
        assert_true(cost_of_step(&rows[i], &step) < cost_of_step(&rows[i], &more));
        struct cost_step spilled = step;       /* a store and a load take a cycle */
        spilled.spilled = 1;
        double cycles = cost_to_cycles(
            &rows[i], cost_of_step(&rows[i], &spilled) - cost_of_step(&rows[i], &step));
        assert_true(cycles > 0.999 && cycles < 1.001);
        assert_true(cost_in_additions(&rows[i], OP_ADD) == 1);
        assert_true(cost_in_additions(&rows[i], OP_DIV) > 1);
        assert_true(cost_to_cycles(&rows[i], cost_of_cycles(&rows[i], 8)) == 8);
    }
}

static void test_cache(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    struct machine m = *machine_of(t);
    assert_true(cost_cache_nbytes(t) == m.level[LEVEL_L2].nbytes);
    m.level[LEVEL_L2].nbytes = 512 << 10;
    t->machine = &m;
    assert_true(cost_cache_nbytes(t) == 512 << 10);
    t->cache_nbytes = 0;
    assert_true(cost_cache_nbytes(t) == 0);
    /* another L2 is seen by all that ask what fits it, and by nothing else */
    const struct machine *large = machine_with_l2(t, &m, 4 << 20);
    assert_true(cost_fit(large, FIT_OPERAND) == 8 * cost_fit(&m, FIT_OPERAND));
    assert_true(cost_fit(large, FIT_FAR) == cost_fit(&m, FIT_FAR));
    assert_true(cost_alias_nbytes(large) == cost_alias_nbytes(&m));
    tgc_free(t);
}

static void test_devices(void **state)
{
    (void)state;
    int n;
    const struct device_row *d = device_rows(&n);
    assert_string_equal(d->text, "generic-gpu");
    assert_null(device_find("generic"));
    for (int i = 0; i < n; i++, d++) {
        enum isa isa;
        assert_true(device_find(d->text) == d);
        assert_false(isa_find(d->text, &isa));
        assert_true(isa_is_portable(d->isa) || isa_is_of_device(d->isa));
        assert_false(isa_is_of_device(d->isa) && (isa_all() >> d->isa & 1));
        assert_true(d->group >= d->wave && d->wave > 0 && d->registers > 0 && d->units > 0);
        assert_true(d->gflops > 0 && d->gbytes > 0 && d->local_nbytes >= 0);
        assert_true(d->image_pitch > 0 && (d->image_pitch & (d->image_pitch - 1)) == 0);
    }
}

static void test_isas(void **state)
{
    (void)state;
    enum isa isa = isa_last();
    for (int n = 1; !isa_is_portable(isa); n++, isa = isa_before(isa)) {
        enum isa found;
        assert_true(isa_find(isa_name(isa), &found) && found == isa);
        assert_true(isa_half_lanes(isa) == 0 || 2 * isa_half_lanes(isa) == isa_lanes(isa));
        assert_int_equal(isa_register_nbytes(isa), isa_registers(isa) * isa_lanes(isa) * 4);
        assert_true(isa_lanes(isa_base(isa)) == isa_lanes(isa));
        assert_true(n < ISA_COUNT);
    }
    assert_true(isa == isa_portable() && isa_before(isa) == isa);
    assert_true(isa_centers_bytes(ISA_NEONDOT) && !isa_centers_bytes(ISA_NEONI8MM));
    assert_true(isa_adds(ISA_AVX512VNNI, DTYPE_I8) && !isa_adds(ISA_AVX2, DTYPE_I8));
    assert_true(isa_has_tiles(ISA_AMX) && isa_adds(ISA_AMX, DTYPE_I8) &&
                !isa_has_tiles(ISA_AVX512VNNI));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_matrices),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_isas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
