/* grid_winograd.c - which convolutions use Winograd's tiles on a device with a grid.
 *
 *       V = Bᵀ d B      a thread for each tile of a channel: reads its patch, stores its positions
 *       M = U V         positions x groups products of tiles by channels, in blocks of tiles
 *                       (grid_tile.c, grid_matrix.c)
 *       Aᵀ M A          a thread for each tile of a channel, with the elementwise epilogue
 *                       (tile_epilogue.c)
 *
 * The alternative is one kernel of sums of products. Winograd multiplies less and moves more: V and
 * M are stored and read. The model adds up the kernels' schedules, by the device's row; each kernel
 * is a launch. Convolutions with memory or factors rounded to halves are left alone: the transforms
 * would amplify errors that the error budget does not know. So are images, whose positions would be
 * pixels. */
#include "passes/kernel/grid_product.h"
#include "passes/passes.h"
#include "passes/target/cost.h"

#include <math.h>

/* Time of a transform's kernel: `tiles` of a channel each, each with `loads` values in and `stores`
 * out. */
static double transform_ns(const struct device_row *d, double tiles, double places, double loads,
                           double stores, double nelem)
{
    struct grid_work work = {
        .blocks = __builtin_ceil(tiles / d->wave),
        .threads = d->wave,
        .issued = (loads + stores) * cost_grid_load(d) + places * RATIO_GRID_PLACE,
        .cache_nbytes = tiles * (loads + stores) * sizeof(float),
        .memory_nbytes = nelem * sizeof(float),
    };
    return cost_of_grid(d, &work, NULL) + RATIO_GRID_LAUNCH;
}

/* Whether the transformed tiles and their products may be in memory beside everything else. layer:
 * bytes of the layer's inputs and outputs. */
static bool may_store(const struct tgc *t, double tiles, double layer, double beside)
{
    double most = RATIO_GRID_TILES > RATIO_GRID_TILES_MORE * layer ? RATIO_GRID_TILES
                                                                   : RATIO_GRID_TILES_MORE * layer;
    return tiles <= most && tiles + beside <= RATIO_GRID_TILES_ROOM * (double)mem_room(t);
}

static double layer_ns(struct tgc *t, const struct conv_work *w)
{
    const struct device_row *d = t->device;
    double in = w->groups * w->in, out = w->groups * w->out, x = w->pixels * in,
           y = w->pixels * out;
    double v = w->places == 1 ? x : w->rows * w->places * in,
           m = w->places == 1 ? y : w->rows * w->places * out;
    struct sums s = {
        .rows = w->rows,
        .columns = w->out,
        .rest = w->groups * w->places,
        .terms = w->in * w->taps,
        .last_terms = (int64_t)w->in,
        .of = DTYPE_F32,
        .nbytes = sizeof(float) * (v + m + w->places * w->taps * w->groups * w->in * w->out),
    };
    int64_t parts;
    if (w->places > 1 && !may_store(t, sizeof(float) * (v + m), sizeof(float) * (x + y), w->beside))
        return HUGE_VAL;
    double ns = grid_sums_ns(t, &s, &parts);
    if (w->places == 1)
        return ns;
    return ns + transform_ns(d, w->rows * in, w->places, w->places, w->places, x + v) +
           transform_ns(d, w->rows * out, w->places, w->places, w->outputs, m + y);
}

bool pass_grid_winograd(struct tgc *t, struct graph *g)
{
    bool rounded = t->math != DTYPE_VOID || t->half_storage || t->image;
    return !device_has_grid(t) || t->no_winograd || rounded || winograd_apply(t, g, 0, layer_ns);
}
