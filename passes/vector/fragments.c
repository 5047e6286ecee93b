/* fragments.c - keeps in registers a tile that a subgroup multiplies with each row (or column) of
 * tiles, so that it is loaded once.
 *
 *      for row < 4                              for column < 4
 *        a = x[row..]                             b = y[column..]
 *        for column < 4                           kept[column] := b
 *          sum[row][column] += a y[column..]    for row < 4
 *                                                 a = x[row..]
 *                                                 for column < 4
 *                                                   sum[row][column] += a kept[column]
 *
 * A device's compiler does not hoist the load if it is inline assembly (ldmatrix). The nest may
 * contain nothing else that stores, waits or loads; operands that matrix units read from shared
 * memory (panels) are in no register. */
#include "passes/analysis/nest.h"
#include "passes/passes.h"
#include "ir/device_ops.h"

struct fragments {
    struct tgc *t;
    struct uop *const *in; int nin;
    struct uop **out; int nout; size_t cap;
    int next_id;
};

/* A nest of two loops over lanes: outer..end, inner..inner_end, in which the LOAD at `tile` does
 * not depend on the outer one. */
struct tile_nest { int outer, inner, inner_end, end, tile; };

static bool is_lanes(const struct uop *u)
{
    return u->op == OP_RANGE && range_is_lane(u) && RANGE_WORKER(u->arg.i) == WORKER_EACH &&
           range_fixed_size(u) > 1;
}

static bool is_tile(const struct uop *u)
{
    return u->op == OP_LOAD && TILE_IS(u->arg.i) && !uop_buffer_of(u->src[0])->scratch.panel &&
           !uop_buffer_of(u->src[0])->scratch.is_own;
}

static int end_of(const struct fragments *f, int at)
{
    int end = at + 1;
    while (end < f->nin && (f->in[end]->op != OP_END || f->in[end]->src[0] != f->in[at]))
        end++;
    return end;
}

/* Whether the loop at `at` begins such a nest. */
static bool find_nest(const struct fragments *f, int at, struct tile_nest *n)
{
    *n = (struct tile_nest){.outer = at, .inner = -1, .end = end_of(f, at), .tile = -1};
    if (!is_lanes(f->in[at]))
        return false;
    for (int i = at + 1; i < n->end; i++) {
        struct uop *u = f->in[i];
        bool inside = n->inner >= 0 && i < n->inner_end;
        if (is_lanes(u) && n->inner < 0)
            n->inner = i, n->inner_end = end_of(f, i);
        else if (is_tile(u) && inside && n->tile < 0 && !uop_depends_on(f->t, u->src[1], f->in[at]))
            n->tile = i;
        else if (!op_is_elementwise(u->op) && !is_tile(u) && u->op != OP_MATRIX &&
                 i != n->inner_end)
            return false;
    }
    return n->tile >= 0;
}

static void push(struct fragments *f, struct uop *u) { VEC_PUSH(f->t, f->out, f->nout, f->cap, u); }

/* Whether the tile's offset is computed from u. */
static bool places(const struct fragments *f, const struct tile_nest *n, const struct uop *u)
{
    return op_is_elementwise(u->op) && uop_depends_on(f->t, f->in[n->tile]->src[1], u);
}

/* Whether a tile that stays in the nest needs u, too. */
static bool is_needed(const struct fragments *f, const struct tile_nest *n, const struct uop *u)
{
    bool needed = false;
    for (int i = n->outer + 1; i < n->end; i++)
        needed |= i != n->tile && is_tile(f->in[i]) && uop_depends_on(f->t, f->in[i]->src[1], u);
    return needed;
}

/* Writes the nest, with the tile that is kept. */
static void push_nest(struct fragments *f, const struct tile_nest *n, struct uop *kept)
{
    for (int i = n->outer; i <= n->end; i++) {
        struct uop *u = f->in[i], *src[3];
        if (i == n->tile || (op_is_elementwise(u->op) && !is_needed(f, n, u)))
            continue;
        for (int k = 0; k < u->nsrc && u->op == OP_MATRIX; k++)
            src[k] = u->src[k] == f->in[n->tile] ? kept : u->src[k];
        push(f, u->op == OP_MATRIX ? uop_intern(f->t, u->op, u->dtype, src, u->nsrc, u->arg) : u);
    }
}

static void keep_tile(struct fragments *f, const struct tile_nest *n)
{
    struct uop *tile = f->in[n->tile], *lanes = f->in[n->inner],
               *none = uop_consti(f->t, tile->dtype, 0);
    struct uop *many =
                   uop_intern(f->t, OP_SPLAT, tile->dtype, &none, 1, (union arg){.i = tile->lanes}),
               *of[2] = {many, lanes};
    struct uop *kept = uop_intern(f->t, OP_ACC, tile->dtype, of, 2, (union arg){.i = f->next_id++}),
               *both[2] = {kept, tile};
    push(f, many);
    push(f, kept);
    push(f, lanes);
    for (int i = n->outer + 1; i < n->tile; i++)
        if (places(f, n, f->in[i]))
            push(f, f->in[i]);
    push(f, tile);
    push(f, uop_intern(f->t, OP_ASSIGN, tile->dtype, both, 2, (union arg){0}));
    push(f, f->in[n->inner_end]);
    push_nest(f, n, kept);
}

static void keep_tiles(struct tgc *t, struct uop ***linear, int *nlinear)
{
    struct fragments f = {.t = t, .in = *linear, .nin = *nlinear};
    struct tile_nest nest;
    bool any = false;
    for (int i = 0; i < f.nin; i++)
        if (f.in[i]->op == OP_ACC || f.in[i]->op == OP_GUARD || f.in[i]->op == OP_BARRIER)
            f.next_id = BARRIER_ID(f.in[i]->arg.i) >= f.next_id ? BARRIER_ID(f.in[i]->arg.i) + 1
                                                                : f.next_id;
    for (int i = 0; i < f.nin; i++) {
        if (!find_nest(&f, i, &nest)) {
            push(&f, f.in[i]);
            continue;
        }
        keep_tile(&f, &nest);
        i = nest.end;
        any = true;
    }
    if (any)
        *linear = f.out, *nlinear = f.nout;
}

bool pass_fragments(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    struct mem_mark mark = scratch_mark(t);
    if (device_has_grid(t)) {
        keep_tiles(t, &k->linear, &k->nlinear);
        for (int i = 0; i < k->nvariant; i++)
            keep_tiles(t, &k->variant[i].linear, &k->variant[i].nlinear);
    }
    scratch_release(t, mark);
    return true;
}
