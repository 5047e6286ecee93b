/* view.c - where the elements of a movement op come from: one op at one index, and stacks of views.
 *
 * move_index() maps one output coordinate through one movement op. Lowering walks from consumers to
 * producers with it, so it never needs a copy: what strides cannot say is a division and a
 * remainder in the index (tinygrad's rangeify).
 *
 * A tracker answers the questions that an index expression cannot: is this tensor contiguous, is it
 * a plain part of its base. It is a stack of views; a view maps logical coordinates i to a flat
 * offset by  offset + sum of stride[a] * i[a]  and is valid where mask_lo[a] <= i[a] < mask_hi[a]
 * for every axis. view[0] addresses the base; view[k+1] addresses the logical elements of view[k],
 * counted row-major:
 *
 *      coordinates --view[n-1]--> flat --unravel by view[n-2].dim--> coordinates --view[n-2]--> ...
 * --view[0]--> offset into the base
 *
 * The stack grows only for what one view cannot say: a reshape across a stride gap, a window over a
 * masked axis. After each op the two top views merge again if they can.
 *
 * Everything holds for symbolic dimensions. A proof that fails costs only precision: a cut not
 * seen, a mask half not dropped, views not merged. Nothing here depends on what the symbolic rules
 * can prove to be correct. */
#include "ir/ir.h"

#include <string.h>

/* -------------------------------------------------------------------------------------------------------
 * reshape */

/* Corresponding axes of the two shapes of a reshape: source axes src[0..nsrc) hold as many elements
 * as output axes out[0..nout). Axes of size 1 are in no group. */
struct reshape_group {
    int nsrc, nout;
    int src[MAX_RANK], out[MAX_RANK];
};

struct axis_list {
    int n, axis[MAX_RANK];
};

static void axes_above_one(struct uop *const *dim, int ndim, struct axis_list *list)
{
    list->n = 0;
    for (int a = 0; a < ndim; a++) {
        if (!uop_is_int(dim[a], 1))
            list->axis[list->n++] = a;
    }
}

/* Looks for the smallest na, nb >= 1 such that the first na axes of `a` and the first nb of `b`
 * (the last ones if `from_end`) hold the same number of elements. */
static bool find_cut(struct tgc *t, struct uop *const *adim, const struct axis_list *a,
                     struct uop *const *bdim, const struct axis_list *b, bool from_end, int *na,
                     int *nb)
{
    struct uop *bprod[MAX_RANK];
    for (int j = 0; j < b->n; j++) {
        struct uop *d = bdim[b->axis[from_end ? b->n - 1 - j : j]];
        bprod[j] = j ? sym_mul(t, bprod[j - 1], d) : d;
    }
    struct uop *aprod = NULL;
    for (int i = 0; i < a->n; i++) {
        struct uop *d = adim[a->axis[from_end ? a->n - 1 - i : i]];
        aprod = aprod ? sym_mul(t, aprod, d) : d;
        for (int j = 0; j < b->n; j++) {
            if (sym_equal(t, aprod, bprod[j])) {
                *na = i + 1;
                *nb = j + 1;
                return true;
            }
        }
    }
    return false;
}

/* Moves n axes from one end of `list` to dst. */
static void take_axes(struct axis_list *list, int n, bool from_end, int *dst)
{
    const int *from = from_end ? list->axis + list->n - n : list->axis;
    memcpy(dst, from, (size_t)n * sizeof *dst);
    list->n -= n;
    if (!from_end)
        memmove(list->axis, list->axis + n, (size_t)list->n * sizeof *dst);
}

/* Factors a reshape into minimal groups, from the left, then from the right; what is left in the
 * middle is one group. */
static int find_groups(struct tgc *t, struct uop *const *sdim, int nsdim, struct uop *const *odim,
                       int nodim, struct reshape_group *group)
{
    struct axis_list s, o;
    axes_above_one(sdim, nsdim, &s);
    axes_above_one(odim, nodim, &o);
    int n = 0;
    for (int from_end = 0; from_end < 2; from_end++) {
        int ns, no;
        while (s.n && o.n && find_cut(t, sdim, &s, odim, &o, from_end, &ns, &no)) {
            group[n].nsrc = ns;
            group[n].nout = no;
            take_axes(&s, ns, from_end, group[n].src);
            take_axes(&o, no, from_end, group[n].out);
            n++;
        }
    }
    if (s.n || o.n) {
        group[n].nsrc = s.n;
        group[n].nout = o.n;
        take_axes(&s, s.n, false, group[n].src);
        take_axes(&o, o.n, false, group[n].out);
        n++;
    }
    return n;
}

/* Within a group: flatten the output coordinates, divide by the source's row-major strides. */
static void reshape_group_index(struct tgc *t, const struct reshape_group *g,
                                struct uop *const *sdim, struct uop *const *odim,
                                struct uop *const *index, struct uop **src_index)
{
    if (g->nsrc == 1 && g->nout == 1) {
        src_index[g->src[0]] = index[g->out[0]];
        return;
    }
    struct uop *flat = uop_int(t, 0), *stride = uop_int(t, 1);
    for (int k = g->nout - 1; k >= 0; k--) {
        flat = sym_add(t, sym_mul(t, index[g->out[k]], stride), flat);
        stride = sym_mul(t, stride, odim[g->out[k]]);
    }
    stride = uop_int(t, 1);
    for (int k = g->nsrc - 1; k >= 0; k--) {
        int a = g->src[k];
        struct uop *i = sym_div(t, flat, stride);
        src_index[a] = k ? sym_mod(t, i, sdim[a]) : i;
        stride = sym_mul(t, stride, sdim[a]);
    }
}

static void reshape_index(struct tgc *t, struct uop *const *sdim, int nsdim,
                          struct uop *const *odim, int nodim, struct uop *const *index,
                          struct uop **src_index)
{
    struct reshape_group group[2 * MAX_RANK + 1];
    int n = find_groups(t, sdim, nsdim, odim, nodim, group);
    for (int a = 0; a < nsdim; a++)
        src_index[a] = uop_int(t, 0);
    for (int k = 0; k < n; k++)
        reshape_group_index(t, &group[k], sdim, odim, index, src_index);
}

/* ----------------------------------------------------------------------------------------------------
 * move_index */

/* 0 <= i < n as a bool, each half only if it is not known: from the caller's knowledge or from
 * bounds. */
static struct uop *within(struct tgc *t, struct uop *i, struct uop *n, bool check_low,
                          bool check_high)
{
    struct uop *valid = uop_bool(t, true);
    if (check_low && i->vmin < 0)
        valid = sym_lt(t, uop_int(t, -1), i);
    if (check_high && i->vmax >= n->vmin)
        valid = sym_and(t, valid, sym_lt(t, i, n));
    return valid;
}

static void pad_index(struct tgc *t, const struct uop *u, struct uop *const *index,
                      struct uop **src_index, struct uop **valid)
{
    const struct uop *x = u->src[0];
    for (int a = 0; a < u->ndim; a++) {
        struct uop *lo = u->src[2 + 2 * a], *hi = u->src[3 + 2 * a];
        src_index[a] = sym_sub(t, index[a], lo);
        *valid = sym_and(
            t, *valid, within(t, src_index[a], x->dim[a], !uop_is_int(lo, 0), !uop_is_int(hi, 0)));
    }
}

static void concat_index(struct tgc *t, const struct uop *u, int k, struct uop *const *index,
                         struct uop **src_index, struct uop **valid)
{
    int axis = (int)u->arg.i;
    struct uop *start = uop_int(t, 0);
    for (int i = 0; i < k; i++)
        start = sym_add(t, start, u->src[i]->dim[axis]);
    memcpy(src_index, index, (size_t)u->ndim * sizeof *index);
    src_index[axis] = sym_sub(t, index[axis], start);
    *valid = within(t, src_index[axis], u->src[k]->dim[axis], k > 0, k < u->nsrc - 1);
}

void move_index(struct tgc *t, const struct uop *u, int k, struct uop *const *index,
                struct uop **src_index, struct uop **valid)
{
    const struct uop *x = u->src[k];
    *valid = uop_bool(t, true);
    switch (u->op) {
    case OP_RESHAPE:
        reshape_index(t, x->dim, x->ndim, u->dim, u->ndim, index, src_index);
        break;
    case OP_PERMUTE:
        for (int a = 0; a < u->ndim; a++)
            src_index[PERM_GET(u->arg.i, a)] = index[a];
        break;
    case OP_EXPAND:
        memcpy(src_index, index, (size_t)u->ndim * sizeof *index); /* axes of size 1: below */
        break;
    case OP_PAD:
        pad_index(t, u, index, src_index, valid);
        break;
    case OP_SHRINK:
        for (int a = 0; a < u->ndim; a++)
            src_index[a] = sym_add(t, index[a], u->src[1 + 2 * a]);
        break;
    case OP_FLIP:
        for (int a = 0; a < u->ndim; a++)
            src_index[a] =
                (u->arg.i >> a & 1) ? sym_sub(t, sym_addi(t, u->dim[a], -1), index[a]) : index[a];
        break;
    case OP_WINDOW: {
        int axis = WINDOW_AXIS(u->arg.i);
        for (int a = 0; a < x->ndim; a++)
            src_index[a] = index[a <= axis ? a : a + 1];
        src_index[axis] = sym_add(t, sym_muli(t, index[axis], WINDOW_STRIDE(u->arg.i)),
                                  sym_muli(t, index[axis + 1], WINDOW_DILATION(u->arg.i)));
        break;
    }
    case OP_CONCAT:
        concat_index(t, u, k, index, src_index, valid);
        break;
    default:
        TGC_BUG(t, "move_index: %s is no movement of its source", op_name(u->op));
    }
    for (int a = 0; a < x->ndim; a++) {
        if (uop_is_int(x->dim[a], 1))
            src_index[a] =
                uop_int(t, 0); /* the only coordinate there is, wherever the op is valid */
    }
}
