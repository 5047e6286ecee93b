/* test_index_values.c - index arithmetic by its values (passes/analysis/index_values.c): means over
 * the blocks of a grid and the iterations of a loop, and how long units take for blocks that
 * differ, against plain loops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "passes/analysis/index_values.h"
#include "passes/passes.h"

enum { HEADS = 3, TILES = 7 };

struct grid { struct tgc *t; struct places p; struct uop *head, *tile; };

static struct uop *loop_over(struct tgc *t, struct uop *size)
{
    return uop_axis(t, size, AXIS_LOOP, WORKER_EACH);
}

/* head < 3, tile < 7 */
static struct grid new_grid(void)
{
    struct grid g = {.t = tgc_new(0)};
    passes_init(g.t);
    g.head = loop_over(g.t, uop_int(g.t, HEADS)), g.tile = loop_over(g.t, uop_int(g.t, TILES));
    g.p = (struct places){{g.head, g.tile}, 2};
    return g;
}

/* (tile * 192 + 192 + 127) / 128, at most 9 */
static struct uop *turns_of_tile(struct grid *g)
{
    struct tgc *t = g->t;
    return sym_min(t, sym_div(t, sym_addi(t, sym_muli(t, g->tile, 192), 319), uop_int(t, 128)),
                   uop_int(t, 9));
}

static int64_t turns(int64_t tile)
{
    return (tile * 192 + 319) / 128 < 9 ? (tile * 192 + 319) / 128 : 9;
}

static void means(void **state)
{
    (void)state;
    struct grid g = new_grid();
    struct uop *end = turns_of_tile(&g), *block = loop_over(g.t, end), *last;
    double mean, sum = 0, cut = 0;
    for (int64_t i = 0; i < TILES; i++)
        for (int64_t k = 0; k < turns(i); k++)
            sum++, cut += k + 2 > turns(i);
    assert_true(index_mean(g.t, end, &g.p, NULL, &mean));
    assert_true(mean == sum / TILES);
    last = sym_lt(g.t, end, sym_addi(g.t, block, 2));
    assert_true(index_mean(g.t, last, &g.p, block, &mean));
    assert_true(mean == cut / sum);
    tgc_free(g.t);
}

/* Of memory, and of a loop that is none of the grid's, nothing is known. */
static void unknown(void **state)
{
    (void)state;
    struct grid g = new_grid();
    double mean;
    struct uop *other = loop_over(g.t, uop_int(g.t, 5)), *dim = uop_int(g.t, 8);
    struct uop *src[2] = {
        uop_buffer(g.t, buffer_new(g.t, BUFFER_INPUT, DTYPE_INDEX, &dim, 1, "lengths")), g.tile};
    struct uop *load = uop_intern(g.t, OP_LOAD, DTYPE_INDEX, src, 2, (union arg){0});
    assert_false(index_mean(g.t, sym_add(g.t, g.tile, other), &g.p, NULL, &mean));
    assert_true(index_mean(g.t, sym_add(g.t, g.tile, other), &g.p, other, &mean));
    assert_false(index_mean(g.t, sym_add(g.t, g.tile, load), &g.p, NULL, &mean));
    assert_true(index_rounds(g.t, load, &g.p, 2) == 0);
    tgc_free(g.t);
}

/* Blocks of 1 .. 4, by two units: 1, 2 + 4 and 1 + 3, 4 */
static void rounds(void **state)
{
    (void)state;
    const double grows[] = {1, 2, 3, 4}, falls[] = {4, 3, 2, 1}, alike[] = {1, 1, 1};
    assert_true(blocks_rounds(grows, 4, 2) == 6 / 2.5);
    assert_true(blocks_rounds(falls, 4, 2) == 5 / 2.5);
    assert_true(blocks_rounds(alike, 3, 2) == 2);
    assert_true(blocks_rounds(alike, 3, 1 << 20) == 0);
    struct grid g = new_grid();
    double done[2] = {0}, sum = 0;
    for (int64_t i = 0; i < HEADS * TILES; i++) {
        done[done[1] < done[0]] += (double)turns(i % TILES);
        sum += (double)turns(i % TILES);
    }
    double last = done[0] > done[1] ? done[0] : done[1],
           found = index_rounds(g.t, turns_of_tile(&g), &g.p, 2);
    assert_true(found > 0.999 * last / (sum / (HEADS * TILES)) &&
                found < 1.001 * last / (sum / (HEADS * TILES)));
    tgc_free(g.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(means), cmocka_unit_test(unknown),
                                       cmocka_unit_test(rounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
