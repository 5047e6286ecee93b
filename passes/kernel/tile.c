/* tile.c - tiles the nests of a kernel's variants.
 *
 * A contraction (matmul, convolution) keeps a tile of rows x columns accumulators, so that each
 * value it loads is used several times:
 *
 *      acc[4][16] = 0
 *      for k: for row: for column: acc[row][column] += a[i + row, k] * b[k, j + column]
 *
 * The portable kernel's lanes stay loops, which compilers vectorize; for each instruction set a
 * variant is made whose columns are vectors. Other nests are vectorized, too, wherever their loads
 * and operations allow it.
 */
#include "passes/kernel/tile.h"

/* like: by store, a tile whose panel is kept. */
static void tile_stores(struct tgc *t, struct kernel *k, struct variant *v, struct tile *like)
{
    for (int i = 0, at = 0, n = v->ast->nsrc; i < n; i++)
        at = tile_nest(t, k, v, at, i, &like[i]);
}

bool pass_tile(struct tgc *t, struct schedule *s, struct kernel *k)
{
    int nstore = k->ast->nsrc;
    struct variant portable = kernel_variant(t, k, isa_portable());
    struct tile *like = scratch_array(t, (size_t)nstore, sizeof *like);
    for (int i = 0; i < nstore; i++)
        like[i].column_axis = -1;
    for (int j = 0; j < k->nvariant; j++)
        tile_stores(t, k, &k->variant[j], like);
    tile_stores(t, k, &portable, like);
    if (s->on_device && k->nvariant)                  /* it is all that a device runs */
        portable = k->variant[0];
    k->ast = portable.ast;
    k->opts = portable.opts;
    kernel_collect_buffers(t, k);
    return true;
}
