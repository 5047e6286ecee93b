/* panels.c - the layout of SWIZZLE: panels of 128-byte rows, with XOR-swizzled chunks of 16 bytes.
 *
 *      row 0    0 1 2 3 4 5 6 7        chunks of 16 bytes, of a panel's row of 128 bytes
 *      row 1    1 0 3 2 5 4 7 6        chunk c of row r is at c ^ r % 8
 *      row 2    2 3 0 1 6 7 4 5
 *      ...
 *
 * In an AST the offsets of such memory are those of its rows, one after the other, as without
 * SWIZZLE: strides stay to be read, by matrix.c and box.c. Linear programs have the offsets in
 * panels. The length of a row is not stored: all rows of a copy, or of a pipeline's stage, fill
 * whole panels. */
#include "passes/analysis/panels.h"
#include "passes/analysis/access.h"

struct layout buffer_layout(const struct buffer *b)
{
    const int64_t panel = b->scratch.panel, stages = b->scratch.pipeline.stages,
                  in_panel = PANEL_ROW_NBYTES / (int64_t)dtype_nbytes(b->dtype);
    if (!panel)
        return (struct layout){0};
    return (struct layout){b->dim[0]->vmax / (stages ? stages : 1) / panel * in_panel, in_panel,
                           panel};
}

struct uop *panels_in_order(struct tgc *t, const struct layout *l, struct uop *at)
{
    struct uop *n = uop_int(t, l->row), *in_panel = uop_int(t, l->in_panel),
               *row = sym_div(t, at, n), *x = sym_mod(t, at, n), *panel = sym_div(t, x, in_panel);
    at = sym_add(t, sym_muli(t, row, l->in_panel), sym_mod(t, x, in_panel));
    return sym_add(t, at, sym_muli(t, panel, l->panel));
}

struct uop *panels_offset(struct tgc *t, const struct layout *l, struct uop *at)
{
    const int64_t of_chunk = l->in_panel * PANEL_CHUNK_NBYTES / PANEL_ROW_NBYTES;
    at = panels_in_order(t, l, at);
    struct uop *in_row = uop_int(t, l->in_panel), *in_chunk = uop_int(t, of_chunk),
               *row = sym_div(t, at, in_row), *x = sym_mod(t, at, in_row);
    struct uop *chunk =
        uop_binary(t, OP_XOR, sym_div(t, x, in_chunk), sym_mod(t, row, uop_int(t, PANEL_ROWS)));
    return sym_add(t, sym_mul(t, row, in_row),
                   sym_add(t, sym_mul(t, chunk, in_chunk), sym_mod(t, x, in_chunk)));
}

/* The memory that u loads from or stores to; NULL: it does neither, or by a tile. */
static const struct buffer *accessed(const struct uop *u)
{
    if (u->op == OP_STAGE)
        return uop_buffer_of(u);
    return (u->op == OP_LOAD && !TILE_IS(u->arg.i)) || u->op == OP_STORE
               ? uop_buffer_of(u->src[0])
               : NULL;
}

struct uop *panels_linear_store(struct tgc *t, struct uop *store)
{
    struct uop_map by = {.t = t, .scratch = true};
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++) {
        const struct uop *u = order[i];
        const struct buffer *b = accessed(u);
        if (!b || !b->scratch.panel)
            continue;
        const struct layout l = buffer_layout(b);
        struct uop **src = mem_copy(t, u->src, (size_t)u->nsrc * sizeof *src);
        for (int k = 0; k < u->nsrc && by.used; k++)
            src[k] = uop_substitute_all(t, src[k], &by);
        src[1] = panels_offset(t, &l, src[1]);
        map_set(&by, u, uop_intern(t, u->op, u->dtype, src, u->nsrc, u->arg));
    }
    return by.used ? uop_substitute_all(t, store, &by) : store;
}
