/* tile_registers.c - allocates the processor's tile registers to the values of a linear program,
 * since instructions name them by a constant. For C and for LLVM.
 *
 * A register keeps its shape in all of the kernel. It is free again after the last use of its
 * value, or after the loops that use the value but do not compute it.
 */
#include "backends/cstyle/cstyle.h"

static int step_of(const struct uop *u)
{
    return u->op == OP_RANGE || u->op == OP_GUARD        ? 1
           : u->op == OP_END || u->op == OP_ENDGUARD ? -1
                                                     : 0;
}

/* The last position at which u, computed at `position`, is in its register. */
static int last_use(const struct tile_registers *r, const struct uop *u, int position)
{
    int last = position, depth = 0;
    bool used = false;               /* in a loop that is open */
    for (int i = position + 1; i < r->nlinear && r->linear[i] != u; i++) {
        const struct uop *x = r->linear[i];
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

int tile_register(const struct tile_registers *r, const struct uop *u, int position)
{
    for (int i = 0; i < TILE_REGISTERS; i++)
        if (r->in[i].of == u && r->in[i].until >= position)
            return i;
    TGC_BUG(r->t, "kernel %s: a tile that is in no register", r->kernel);
}

/* The rows of a sum: by the product that is added to it. */
static int rows_of(const struct tile_registers *r, const struct uop *acc, int position)
{
    for (int i = position; i < r->nlinear; i++)
        if (r->linear[i]->op == OP_INTRINSIC && uop_is_tile(r->linear[i]) &&
            r->linear[i]->src[0] == acc)
            return (int)INTRINSIC_PARAM(r->linear[i]->arg.i, 0);
    TGC_BUG(r->t, "kernel %s: a tile without a product", r->kernel);
}

static struct tile_shape shape_of(const struct tile_registers *r, const struct uop *u, int position)
{
    if (u->op == OP_LOAD)
        return (struct tile_shape){TILE_ROWS(u->arg.i),
                                   TILE_COLUMNS(u->arg.i) * (int)dtype_nbytes(u->dtype)};
    int rows = rows_of(r, u, position);
    return (struct tile_shape){rows, u->lanes / rows * (int)sizeof(int32_t)};
}

/* Preferably one that has the shape already. */
int tile_take(struct tile_registers *r, const struct uop *u, int position)
{
    struct tile_shape *shape = r->shape, wanted = shape_of(r, u, position);
    int found = -1;
    for (int i = TILE_REGISTERS - 1; i >= 0; i--) {
        bool fits = shape[i].rows == wanted.rows && shape[i].nbytes == wanted.nbytes,
             is_free = !r->in[i].of || r->in[i].until < position;
        if (is_free && (fits || (shape[i].rows == 0 && (found < 0 || shape[found].rows == 0))))
            found = i;
    }
    if (found < 0)
        TGC_BUG(r->t, "kernel %s: more tiles at once than registers", r->kernel);
    shape[found] = wanted;
    r->in[found] = (struct in_tile){u, last_use(r, u, position)};
    return found;
}

bool tiles_are_used(const struct tile_registers *r) { return r->shape[0].rows > 0; }
