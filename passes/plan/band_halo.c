/* band_halo.c - the part of a padded tensor that a band keeps: its border and its inside.
 *
 *      padded   0 0 x x x x x x x 0 0        two before, two behind seven
 *      band       [. . . . . .]              reads 6 elements from `begin` on
 *      inside     [0 x x x x x x]            stores 6 elements, from `from` on, shifted so
 *                                            that all of them exist; scratch has a slot
 *                                            more for them
 *
 * So the producer's loops have the same lengths in all bands, and no conditions. The part of the
 * border that a band reads is stored first, by loops that are mostly empty: their lengths depend on
 * the band.
 */
#include "passes/plan/plan.h"

static struct uop *clamp(struct tgc *t, struct uop *u, int64_t least, int64_t most)
{
    if (u->vmin < least)
        u = sym_max(t, u, uop_int(t, least));
    return u->vmax > most ? sym_min(t, u, uop_int(t, most)) : u;
}

/* Elements of the border before (after) axis a; 0 if the node is no PAD. */
static int64_t border(const struct node *n, int a, bool behind)
{
    int64_t size = 0;
    return n->u->op == OP_PAD && uop_const_int(n->u->src[2 + 2 * a + behind], &size) ? size : 0;
}

/* Whether the border's size is constant; a symbolic one is known only at run time. */
static bool has_fixed_border(const struct node *n)
{
    for (int k = 2; k < n->u->nsrc && n->u->op == OP_PAD; k++)
        if (n->u->src[k]->op != OP_CONST || n->u->src[k]->arg.i < 0)
            return false;
    return true;
}

/* The same along an axis of a size known only at run time: one element, without a border. */
static bool part_of_unknown(struct tgc *t, struct kept *kept, int axis, int64_t border,
                            struct band *part)
{
    if (border || kept->extent > 1)
        return false;
    part->axis = axis;
    part->start = kept->start = kept->begin;
    part->extent = kept->slots = 1;
    part->inner = uop_int(t, 0);
    return true;
}

bool halo_part(struct tgc *t, const struct node *pad, const struct segment *inside, int axis,
               struct kept *kept, struct band *part)
{
    int64_t size, lo = border(pad, axis, false), hi = border(pad, axis, true);
    if (inside->axis[axis]->op != OP_RANGE || !has_fixed_border(pad))
        return false;
    if (!uop_const_int(pad->u->dim[axis], &size))
        return part_of_unknown(t, kept, axis, lo + hi, part);
    if (kept->extent >= size)
        return false;
    int64_t length = size - lo - hi, extent = kept->extent < length ? kept->extent : length;
    kept->begin = clamp(t, kept->begin, 0, size - kept->extent);
    int64_t below = kept->begin->vmax - lo - (length - extent), above = lo - kept->begin->vmin;
    below = below > 0 ? below : 0;
    above = (above > 0 ? above : 0) + extent;
    part->axis = axis;
    part->start = clamp(t, sym_addi(t, kept->begin, -lo), 0, length - extent);
    part->extent = extent;
    part->inner = uop_int(t, 0);
    if (extent > 1)
        part->inner = uop_range(t, uop_int(t, extent), t->next_range++);
    kept->start = sym_addi(t, kept->begin, -below);
    kept->slots = below + (above > kept->extent ? above : kept->extent);
    return true;
}

static int band_of(const struct band *part, int nband, int axis)
{
    for (int k = 0; k < nband; k++)
        if (part[k].axis == axis)
            return k;
    return -1;
}

/* The border along an axis that has bands: the part that the band reads. At most `most` elements:
 * the border, or all that the band reads if that is less. */
static void fill_part(struct tgc *t, const struct node *pad, const struct kept *kept, bool behind,
                      struct band *b)
{
    int64_t size = pad->u->dim[b->axis]->arg.i, lo = border(pad, b->axis, false),
            hi = border(pad, b->axis, true), most = behind ? hi : lo;
    most = most < kept->extent ? most : kept->extent;
    struct uop *end = uop_int(t, size - hi);
    struct uop *n = behind ? sym_sub(t, sym_addi(t, kept->begin, kept->extent), end)
                           : sym_sub(t, uop_int(t, lo), kept->begin);
    b->start = behind ? sym_max(t, kept->begin, end) : kept->begin;
    b->extent = most;
    b->inner = uop_range(t, clamp(t, n, 0, most), t->next_range++);
}

/* Stores the border before (after) axis a, over all that the band keeps along the other axes. */
static struct segment *fill_along(struct plan *p, const struct node *pad, const struct kept *kept,
                                  const struct band *part, int nband, const struct segment *inside,
                                  int a, bool behind)
{
    struct tgc *t = p->t;
    struct uop *v = pad->u, *dim[MAX_RANK];
    struct uop **start = mem_array(t, (size_t)v->ndim, sizeof *start);
    int own = band_of(part, nband, a);
    for (int k = 0; k < v->ndim; k++) {
        start[k] = uop_int(t, 0);
        dim[k] = v->dim[k];
    }
    if (own < 0) {
        dim[a] = v->src[2 + 2 * a + behind];
        if (behind)
            start[a] = sym_add(t, v->src[2 + 2 * a], v->src[0]->dim[a]);
    }
    struct segment *s = plan_segment(p, inside->block, inside->pos,
                                     tensor_full(t, v->src[1], dim, v->ndim), inside->dest);
    s->start = start;
    s->nband = nband;
    for (int k = 0; k < nband; k++) {
        s->band[k] = part[k];
        s->band[k].start = kept[k].begin;
        s->band[k].extent = kept[k].extent;
        s->band[k].inner = uop_int(t, 0);
        if (k == own)
            fill_part(t, pad, &kept[k], behind, &s->band[k]);
        else if (kept[k].extent > 1)
            s->band[k].inner = uop_range(t, uop_int(t, kept[k].extent), t->next_range++);
    }
    return s;
}

struct segment *halo_fill(struct plan *p, const struct node *pad, const struct kept *kept,
                          const struct band *part, int nband, struct segment *inside)
{
    struct segment *first = inside;
    for (int k = 0; k < 2 * pad->u->ndim; k++) {
        if (border(pad, k / 2, k % 2) < 1)
            continue;
        struct segment *s = fill_along(p, pad, kept, part, nband, inside, k / 2, k % 2);
        s->next = first;
        first->absorbed = true;
        first = s;
    }
    return first;
}
