/* grid_raster.c - tile rasterization: the order of a product's blocks, for L2 reuse. A device
 * starts blocks along the grid's innermost dimension first. Concurrent blocks should share as many
 * row and column panels as possible.
 *
 *      for row < 64, column < 32             132 blocks at once: 5 panels of rows, 32 of columns
 *      for q < 8, column < 32, row < 8       in groups of 8 rows: 8 panels of rows, 17 of columns
 *
 * The grid's first axis is the store's innermost loop. The order matters only if the operands
 * exceed the shared cache. The group size is chosen so that concurrent blocks, one for each unit,
 * read least. */
#include "passes/kernel/grid.h"
#include "passes/target/target.h"

enum { GROUP_MOST = 32 };

/* Bytes of both operands that concurrent blocks read, in groups of `group` rows. */
static double read_at_once(const struct raster *r, int64_t group)
{
    int64_t columns = ceil_div(r->at_once, group),
            rows = group * ceil_div(r->at_once, group * r->n[1]);
    return (double)(rows < r->n[0] ? rows : r->n[0]) * r->nbytes[0] +
           (double)(columns < r->n[1] ? columns : r->n[1]) * r->nbytes[1];
}

int64_t grid_raster(const struct device_row *d, const struct raster *r)
{
    int64_t best = 1;
    double all = (double)r->n[0] * r->nbytes[0] + (double)r->n[1] * r->nbytes[1];
    if (d->cache_nbytes <= 0 || all <= (double)d->cache_nbytes)
        return 1;
    for (int64_t group = 2; group <= GROUP_MOST && r->n[0] % group == 0; group *= 2)
        if (read_at_once(r, group) < read_at_once(r, best))
            best = group;
    return best;
}

void list_raster(struct opt_list *l, int rows, int columns, int64_t n, int64_t group, int tag)
{
    if (group == 1)
        return;
    list_divide(l, rows, n, group, tag);
    list_order(l, columns, list_position(l, rows));
}
