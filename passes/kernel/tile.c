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

static bool has_lanes(const struct uop *ast)
{
    for (int i = 0; i < ast->nsrc; i++)
        for (int k = store_first_range(ast->src[i]); k < ast->src[i]->nsrc; k++)
            if (range_is_lane(ast->src[i]->src[k]))
                return true;
    return false;
}

/* The ast with all sizes at their bounds; *name: one of those that only the run knows, or NULL. */
static struct uop *fix_sizes(struct tgc *t, struct uop *ast, const char **name)
{
    struct uop_map by = {.t = t, .scratch = true};
    int n;
    struct uop **order = uop_toposort(t, &ast, 1, &n);
    *name = NULL;
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_VAR) {
            const struct var *v = order[i]->arg.p;
            *name = *name ? *name : v->name;
            map_set(&by, order[i], uop_int(t, v->max));
        }
    return *name ? uop_substitute_all(t, ast, &by) : ast;
}

/* Warns of a kernel without lanes that would have a tile if its sizes were known. */
static void warn_of_open(struct tgc *t, const struct kernel *k, struct uop *before, enum isa isa,
                         const struct uop *after)
{
    enum { STEPS_MIN = 1 << 21 };                    /* less takes no time worth a warning */
    const char *name;
    if (t->noopt || has_lanes(after))
        return;
    struct uop *fixed = fix_sizes(t, before, &name);
    for (int i = 0; name && i < fixed->nsrc; i++) {
        struct nest m;
        double steps = 1;
        if (!nest_find(t, fixed->src[i], &m) || !m.contraction)
            continue;
        for (int a = 0; a < m.naxis; a++)
            steps *= (double)m.axis[a].range->src[0]->vmax;
        if (steps < STEPS_MIN || tile_choose(&m, isa, NULL, 0).column_axis < 0)
            continue;
        diag_warn(t, NULL,
                  "%.100s is computed element by element, since only the run knows '%.40s': "
                  "no form for open sizes suits it. A fixed size is faster: --dim %.40s=N",
                  k->title ? k->title : k->name, name, name);
        return;
    }
}

bool pass_tile(struct tgc *t, struct schedule *s, struct kernel *k)
{
    int nstore = k->ast->nsrc;
    struct uop *before = k->ast;
    struct variant portable = kernel_variant(t, k, isa_portable());
    struct tile *like = scratch_array(t, (size_t)nstore, sizeof *like);
    for (int i = 0; i < nstore; i++)
        like[i].column_axis = -1;
    for (int j = 0; j < k->nvariant; j++)
        tile_stores(t, k, &k->variant[j], like);
    tile_stores(t, k, &portable, like);
    if (!s->on_device)
        warn_of_open(t, k, before, k->nvariant ? k->variant[0].isa : isa_portable(),
                     k->nvariant ? k->variant[0].ast : portable.ast);
    if (s->on_device && k->nvariant)                  /* it is all that a device runs */
        portable = k->variant[0];
    k->ast = portable.ast;
    k->opts = portable.opts;
    kernel_collect_buffers(t, k);
    return true;
}
