/* tiles.c - tiles in a kernel's text. Which register holds which: tile_registers.c.
 *
 *      static const unsigned char shape[16] = {16, 64, 16, 64, ...};    rows, bytes of each
 *      begin_tiles(shape);
 *      ... zero_tile(0);
 *          for (...) {
 *              load_tile(1, &x[at], 256);
 *              load_tile(2, &w[at2], 256);
 *              tile_dot(0, 1, 2);
 *          }
 *          store_tile(0, &tile[0], 64);
 *      end_tiles();
 */
#include "backends/cstyle/writer.h"

static const char *access_of(struct writer *w, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    struct expr src[2] = {{0}, {0}};
    writer_operands(w, u, 2, src);
    w->f->is_used[writer_place(w, b)] = true;
    return mem_printf(w->t, "&%s[%s], %lld", writer_place_name(w, b), src[1].s,
                      (long long)(TILE_STRIDE(u->arg.i) * (int64_t)dtype_nbytes(b->dtype)));
}

void tiles_write(struct writer *w, const struct uop *u)
{
    struct tgc *t = w->t;
    struct tile_registers *r = &w->f->tiles;
    const char *line = NULL;
    int at = w->position;
    switch (u->op) {
    case OP_SPLAT:
        if (!uop_is_int(u->src[0], 0) && !uop_is_constf(u->src[0], 0))
            TGC_BUG(t, "a tile of a number other than 0");
        break;
    case OP_ACC:
        line = mem_printf(t, "zero_tile(%d);", tile_take(r, u, at));
        break;
    case OP_LOAD:
        line = mem_printf(t, "load_tile(%d, %s);", tile_take(r, u, at), access_of(w, u));
        break;
    case OP_INTRINSIC:
        line = mem_printf(t, "%s(%d, %d, %d);", isa_function(w->f->v->isa, INTRINSIC_ROW(u->arg.i)),
                          tile_register(r, u->src[0], at), tile_register(r, u->src[1], at),
                          tile_register(r, u->src[2], at));
        break;
    case OP_ASSIGN:
        if (!uop_is_tile(u->src[1]) || u->src[1]->op != OP_INTRINSIC ||
            u->src[1]->src[0] != u->src[0])
            TGC_BUG(t, "a tile that becomes another one");
        break;
    default:
        line =
            mem_printf(t, "store_tile(%d, %s);", tile_register(r, u->src[2], at), access_of(w, u));
        break;
    }
    if (line)
        writer_put(w, line, false);
}

void tiles_begin(struct function *f, struct text *out)
{
    const char *shape = parameter_name(f, "shape");
    text_printf(out, "    static const unsigned char %s[16] = {", shape);
    for (int r = 0; r < TILE_REGISTERS; r++)
        text_printf(out, "%s%d, %d", r ? ", " : "", f->tiles.shape[r].rows,
                    f->tiles.shape[r].nbytes);
    text_printf(out, "};\n    begin_tiles(%s);\n", shape);
}
