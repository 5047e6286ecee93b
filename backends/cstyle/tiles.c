/* tiles.c - tiles in a kernel's text: which of the processor's registers holds which, since
 * instructions name them by a constant.
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
 *
 * A register keeps its shape in all of the kernel. One is free again behind the last use of its
 * value, or behind the loops in which that is used but not computed.
 */
#include "backends/cstyle/writer.h"

static int step_of(const struct uop *u)
{
    return u->op == OP_RANGE || u->op == OP_GUARD        ? 1
           : u->op == OP_END || u->op == OP_ENDGUARD ? -1
                                                     : 0;
}

/* The last position at which u, computed at the present one, is in its register. */
static int last_use(const struct writer *w, const struct uop *u)
{
    int last = w->position, depth = 0;
    bool used = false;               /* in a loop that is open */
    for (int i = w->position + 1; i < w->nlinear && w->linear[i] != u; i++) {
        const struct uop *x = w->linear[i];
        for (int k = 0; k < x->nsrc; k++)
            used |= x->src[k] == u;
        depth += step_of(x);
        if (depth < 0)
            break;
        if (used)
            last = i;
        used &= depth > 0;
    }
    return last;
}

static int register_of(struct writer *w, const struct uop *u)
{
    for (int r = 0; r < TILE_REGISTERS; r++)
        if (w->in_tile[r].of == u && w->in_tile[r].until >= w->position)
            return r;
    TGC_BUG(w->t, "kernel %s: a tile that is in no register", w->f->k->name);
}

/* A register of that shape for u; preferably one that has it already. */
static int take(struct writer *w, const struct uop *u, int rows, int nbytes)
{
    struct tile_shape *shape = w->f->tile;
    int found = -1;
    for (int r = TILE_REGISTERS - 1; r >= 0; r--) {
        bool fits = shape[r].rows == rows && shape[r].nbytes == nbytes,
             is_free = !w->in_tile[r].of || w->in_tile[r].until < w->position;
        if (is_free && (fits || (shape[r].rows == 0 && (found < 0 || shape[found].rows == 0))))
            found = r;
    }
    if (found < 0)
        TGC_BUG(w->t, "kernel %s: more tiles at once than registers", w->f->k->name);
    shape[found] = (struct tile_shape){rows, nbytes};
    w->in_tile[found] = (struct in_tile){u, last_use(w, u)};
    return found;
}

/* The rows of a sum: by the product that is added to it. */
static int rows_of(const struct writer *w, const struct uop *acc)
{
    for (int i = w->position; i < w->nlinear; i++)
        if (uop_is_intrinsic(w->linear[i], INTRINSIC_TILE_DOT) && w->linear[i]->src[0] == acc)
            return (int)INTRINSIC_PARAM(w->linear[i]->arg.i, 0);
    TGC_BUG(w->t, "kernel %s: a tile without a product", w->f->k->name);
}

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
    const char *line = NULL;
    int rows, nbytes;
    switch (u->op) {
    case OP_SPLAT:
        if (!uop_is_int(u->src[0], 0))
            TGC_BUG(t, "a tile of a number other than 0");
        break;
    case OP_ACC:
        rows = rows_of(w, u);
        nbytes = u->lanes / rows * (int)sizeof(int32_t);
        line = mem_printf(t, "zero_tile(%d);", take(w, u, rows, nbytes));
        break;
    case OP_LOAD:
        nbytes = TILE_COLUMNS(u->arg.i) * (int)dtype_nbytes(u->dtype);
        rows = take(w, u, TILE_ROWS(u->arg.i), nbytes);
        line = mem_printf(t, "load_tile(%d, %s);", rows, access_of(w, u));
        break;
    case OP_INTRINSIC:
        line = mem_printf(t, "%s(%d, %d, %d);", isa_function(w->f->v->isa, INTRINSIC_ROW(u->arg.i)),
                          register_of(w, u->src[0]), register_of(w, u->src[1]),
                          register_of(w, u->src[2]));
        break;
    case OP_ASSIGN:
        if (!uop_is_intrinsic(u->src[1], INTRINSIC_TILE_DOT) || u->src[1]->src[0] != u->src[0])
            TGC_BUG(t, "a tile that becomes another one");
        break;
    default:
        line = mem_printf(t, "store_tile(%d, %s);", register_of(w, u->src[2]), access_of(w, u));
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
        text_printf(out, "%s%d, %d", r ? ", " : "", f->tile[r].rows, f->tile[r].nbytes);
    text_printf(out, "};\n    begin_tiles(%s);\n", shape);
}

bool tiles_are_used(const struct function *f) { return f->tile[0].rows > 0; }
