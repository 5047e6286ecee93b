/* tile_epilogue.c - on devices, computes the elementwise epilogue of Winograd's outputs where the
 * tiles are stored.
 *
 *      y = contiguous(Aᵀ M A)            [n, c, ty, 4, tx, 4]    4 outputs of a tile along an axis
 *      relu(shrink(reshape(y)) + b)      [n, c, 14, 14]
 *  ->  z = contiguous(relu(Aᵀ M A + b))
 *      shrink(reshape(z))
 *
 * So bias, residual and activation need no kernel of their own, which would read all outputs again.
 * The other operands are read in the form of tiles: reshaped, and padded where tiles reach beyond
 * the image. An operand that is invariant along an axis is not padded there. (On processors these
 * kernels are one, band by band.) */
#include "passes/graph/conv/winograd.h"
#include "passes/target/target.h"

#include <string.h>

enum { MOVES_MOST = 8, STACK_MOST = 64 };

/* uses: of the graph's uops, sources first, and `of` of those that took their places; made: the
 * CONTIGUOUS uops of this pass. */
struct epilogues { const int *uses; int at; struct uop_map of, made; };

/* The moves from an operand down to the CONTIGUOUS of its tiles, the outermost first. */
struct way { struct uop *move[MOVES_MOST]; int n; struct uop *tiles; };

/* Whether u has one user; uops that are not in the map were made here. */
static bool is_used_once(const struct epilogues *e, const struct uop *u)
{
    return (uintptr_t)map_get(&e->of, u) <= 1;
}

static bool begins_at_zero(const struct uop *shrink)
{
    for (int a = 0; a < shrink->ndim; a++)
        if (!uop_is_int(shrink->src[1 + 2 * a], 0))
            return false;
    return true;
}

static bool find_way(const struct epilogues *e, struct uop *v, struct way *w)
{
    for (w->n = 0; w->n < MOVES_MOST && is_used_once(e, v); v = v->src[0]) {
        w->tiles = v;
        if (v->op == OP_CONTIGUOUS)
            return v->src[0]->op == OP_STACK || map_get(&e->made, v);
        if (v->op != OP_RESHAPE && !(v->op == OP_SHRINK && begins_at_zero(v)))
            return false;
        w->move[w->n++] = v;
    }
    return false;
}

/* --------------------------------------------------------------------------- the other operands */

/* A value of the shape `dim`, along some axes of which it has one element that is
 * the same everywhere. */
struct spread { struct uop *x, *dim[MAX_RANK]; int ndim; };

static bool is_spread(const struct spread *s, int axis) { return s->x->dim[axis] != s->dim[axis]; }

/* The ends of the next axes of both shapes that have equally many elements; false: they have
 * not. */
static bool next_group(const struct spread *s, const struct uop *to, int *from_end, int *to_end)
{
    int i = *from_end, k = *to_end;
    int64_t n = 1, m = 1;
    if (i < s->ndim && k < to->ndim && s->dim[i] == to->dim[k]) {      /* expressions, too */
        *from_end = i + 1, *to_end = k + 1;
        return true;
    }
    do {
        bool left = k == to->ndim || (i < s->ndim && n <= m);
        const struct uop *dim = left ? (i < s->ndim ? s->dim[i++] : NULL) : to->dim[k++];
        if (!dim || dim->op != OP_CONST)
            return false;
        *(left ? &n : &m) *= dim->arg.i;
    } while (n != m);
    *from_end = i, *to_end = k;
    return true;
}

/* The spread value in another shape: groups of axes along which it is the same keep one element. */
static bool reshape_spread(struct tgc *t, struct spread *s, const struct uop *to)
{
    struct uop *full[MAX_RANK], *dim[MAX_RANK];
    int from = 0, at = 0;
    for (int a = 0; a < s->ndim; a++)
        full[a] = s->x->dim[a];
    while (from < s->ndim || at < to->ndim) {
        int i = from, k = at;
        bool any = false;
        if (!next_group(s, to, &from, &at))
            return false;
        for (int a = i; a < from; a++)
            any |= !is_spread(s, a) && !uop_is_int(s->dim[a], 1);
        for (int a = i; a < from && any; a++)
            full[a] = s->dim[a];
        for (; k < at; k++)
            dim[k] = any ? to->dim[k] : uop_int(t, 1);
    }
    s->x = uop_reshape(t, uop_expand(t, s->x, full), dim, to->ndim);
    s->ndim = to->ndim;
    ARRAY_COPY(s->dim, to->dim, to->ndim);
    return true;
}

static void pad_spread(struct tgc *t, struct spread *s, const struct uop *to)
{
    struct uop *lo[MAX_RANK], *hi[MAX_RANK];
    for (int a = 0; a < s->ndim; a++) {
        lo[a] = uop_int(t, 0);
        hi[a] = is_spread(s, a) ? lo[a] : sym_sub(t, to->dim[a], s->dim[a]);
        s->dim[a] = to->dim[a];
    }
    s->x = uop_pad(t, s->x, uop_constf(t, s->x->dtype, 0.0), lo, hi);
}

/* Whether a sum is below v that nobody else needs, or that is v: the kernel of the tiles would
 * compute it, and be no straight-line code. */
static bool is_over_sum(const struct epilogues *e, const struct uop *v)
{
    const struct uop *stack[STACK_MOST];
    int n = 0;
    stack[n++] = v;
    while (n > 0) {
        const struct uop *u = stack[--n];
        bool moves = op_class(u->op) == CLASS_MOVE && u->op != OP_IOTA;
        if (u->op == OP_REDUCE || n + 3 > STACK_MOST)
            return true;
        for (int k = 0; k < u->nsrc && k < (moves ? 1 : 3) && (moves || op_is_elementwise(u->op)) &&
                        (u == v || is_used_once(e, u));
             k++)
            stack[n++] = u->src[k];
    }
    return false;
}

/* The operand as tiles; NULL: its shape has no such form, or it is a sum that is
 * read elsewhere, too. */
static struct uop *as_tiles(struct tgc *t, const struct epilogues *e, const struct way *w,
                            struct uop *v)
{
    struct spread s = {.x = v->op == OP_EXPAND ? v->src[0] : v, .ndim = v->ndim};
    if (v->ndim == 0)
        return v;
    if (is_over_sum(e, s.x)) {                        /* a layer of its own */
        if (!is_used_once(e, s.x))
            return NULL;
        s.x = uop_new(t, OP_CONTIGUOUS, s.x->dtype, &s.x, 1, (union arg){0});
    }
    ARRAY_COPY(s.dim, v->dim, v->ndim);
    for (int i = 0; i < w->n; i++) {
        const struct uop *to = w->move[i]->src[0];
        if (w->move[i]->op == OP_SHRINK)
            pad_spread(t, &s, to);
        else if (!reshape_spread(t, &s, to))
            return NULL;
    }
    return uop_expand(t, s.x, w->tiles->dim);
}

/* ------------------------------------------------------------------------------------- the pass */

/* u, one operand of which is stored in tiles, as moves of what is computed in tiles; NULL:
 * it is no such value. */
static struct uop *store_in_tiles(struct tgc *t, struct epilogues *e, struct uop *u, int of)
{
    struct way w;
    struct uop *src[3], *begin[MAX_RANK];
    if (!find_way(e, u->src[of], &w))
        return NULL;
    for (int k = 0; k < u->nsrc; k++) {
        src[k] = k == of                         ? w.tiles->src[0]
                 : u->src[k]->dtype == DTYPE_F32 ? as_tiles(t, e, &w, u->src[k])
                                                 : NULL;
        if (!src[k])
            return NULL;
    }
    struct uop *v = uop_new(t, u->op, u->dtype, src, u->nsrc, u->arg);
    uop_set_origin(t, v, u);
    v = uop_new(t, OP_CONTIGUOUS, v->dtype, &v, 1, (union arg){0});
    uop_set_origin(t, v, u);
    map_set(&e->made, v, v);
    for (int a = 0; a < MAX_RANK; a++)
        begin[a] = uop_int(t, 0);
    for (int i = w.n - 1; i >= 0; i--)
        v = w.move[i]->op == OP_SHRINK ? uop_shrink(t, v, begin, w.move[i]->dim)
                                       : uop_reshape(t, v, w.move[i]->dim, w.move[i]->ndim);
    return v;
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    struct epilogues *e = ctx;
    struct uop *v = NULL;
    int uses = e->uses[e->at++];
    for (int k = 0; k < u->nsrc && !v && op_is_elementwise(u->op) && u->dtype == DTYPE_F32; k++)
        v = store_in_tiles(t, e, u, k);
    map_set(&e->of, v ? v : u, (void *)(uintptr_t)uses);
    return v;
}

/* How often each of the graph's uops is an operand or a result, sources first. */
static int *count_uses(struct tgc *t, struct uop **root, int nroot)
{
    int n;
    struct uop_map place = {.t = t};
    struct uop **order = uop_toposort(t, root, nroot, &n);
    int *uses = scratch_array(t, (size_t)n + 1, sizeof *uses);
    for (int i = 0; i < n; i++) {
        map_set(&place, order[i], &uses[i]);
        for (int k = 0; k < order[i]->nsrc; k++)
            ++*(int *)map_get(&place, order[i]->src[k]);
    }
    for (int i = 0; i < nroot; i++)
        ++*(int *)map_get(&place, root[i]);
    return uses;
}

bool pass_tile_epilogue(struct tgc *t, struct graph *g)
{
    int nroot;
    struct uop **root = graph_roots(t, g, &nroot);
    struct mem_mark mark = scratch_mark(t);
    struct epilogues e = {.uses = count_uses(t, root, nroot), .of = {.t = t}, .made = {.t = t}};
    if (device_has_grid(t))
        graph_rewrite(t, g, rewrite, &e);
    scratch_release(t, mark);
    return true;
}
