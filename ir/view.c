/* view.c - where the elements of a movement op come from: one op at one index, and stacks of views.
 *
 * move_index() maps one output coordinate through one movement op. Lowering walks from consumers to
 * producers with it, so it never needs a copy: what strides cannot express becomes a division and a
 * remainder in the index (tinygrad's rangeify).
 *
 * A tracker answers the questions that an index expression cannot: is this tensor contiguous, is it
 * a plain part of its base. It is a stack of views. A view maps logical coordinates i to the flat
 * offset `offset + sum of stride[a] * i[a]`. It is valid where mask_lo[a] <= i[a] < mask_hi[a] for
 * every axis. view[0] addresses the base; view[k+1] addresses the logical elements of view[k],
 * counted row-major:
 *
 *      coordinates --view[n-1]--> flat --unravel by view[n-2].dim--> coordinates --view[n-2]--> ...
 * --view[0]--> offset into the base
 *
 * The stack grows only where one view does not suffice: a reshape across a stride gap, a window
 * over a masked axis. After each op the two top views merge again if they can.
 *
 * Everything holds for symbolic dimensions. A proof that fails costs only precision: a cut not
 * seen, a mask half not dropped, views not merged. Correctness never depends on what the symbolic
 * rules can prove. */
#include "ir/ir.h"

#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- reshape */

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
 * hold the same number of elements. from_end: the last axes. */
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
    ARRAY_COPY(dst, from, n);
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

/* ----------------------------------------------------------------------------------- move_index */

/* 0 <= i < n as a bool, each half only where the caller or bounds do not prove it. */
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
    ARRAY_COPY(src_index, index, u->ndim);
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
        ARRAY_COPY(src_index, index, u->ndim); /* axes of size 1: below */
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
                uop_int(t, 0); /* the only coordinate, wherever the op is valid */
    }
}

static bool is_zero(const struct uop *v)
{
    return dtype_is_float(v->dtype) ? uop_is_constf(v, 0.0) || uop_is_constf(v, -0.0)
                                    : uop_is_int(v, 0);
}

bool move_is(const struct uop *v, unsigned moves)
{
    switch (v->op) {
    case OP_RESHAPE: case OP_PERMUTE: case OP_EXPAND: return moves & MOVES_SPREAD;
    case OP_WINDOW: case OP_FLIP: return moves & MOVES_WALK;
    case OP_SHRINK: return moves & MOVES_CUT;
    case OP_PAD: return moves & MOVES_PAD || (moves & MOVES_ZEROS && is_zero(v->src[1]));
    case OP_CAST: return moves & MOVES_CAST;
    default: return false;
    }
}

struct uop *value_behind(const struct uop *v, unsigned moves)
{
    while (move_is(v, moves))
        v = v->src[0];
    return (struct uop *)(uintptr_t)v;                /* uops are immutable in any case */
}

struct path path_down(struct uop *v, unsigned moves)
{
    struct path p = {.base = v};
    for (; p.n < PATH_MAX && move_is(p.base, moves); p.base = p.base->src[0])
        p.move[p.n++] = p.base;
    return p;
}

struct uop *path_up(struct tgc *t, const struct path *p, struct uop *x)
{
    for (int i = p->n - 1; i >= 0; i--) {
        const struct uop *m = p->move[i];
        struct uop **src = mem_copy(t, m->src, (size_t)m->nsrc * sizeof *src);
        src[0] = x;
        if (m->op == OP_PAD)
            src[1] = uop_cast(t, x->dtype, src[1]);
        x = uop_new(t, m->op, x->dtype, src, m->nsrc, m->arg);
    }
    return x;
}

struct uop *move_down(struct tgc *t, struct uop *v, unsigned moves, struct uop **at)
{
    struct uop *below[MAX_RANK], *valid;
    for (; move_is(v, moves); v = v->src[0]) {
        if (v->op == OP_CAST)
            continue;
        move_index(t, v, 0, at, below, &valid);
        ARRAY_COPY(at, below, v->src[0]->ndim);
    }
    return v;
}

/* ---------------------------------------------------------------------------------------- views */

static void row_major_strides(struct tgc *t, struct uop *const *dim, int ndim, struct uop **stride)
{
    struct uop *s = uop_int(t, 1);
    for (int a = ndim - 1; a >= 0; a--) {
        stride[a] = s;
        s = sym_mul(t, s, dim[a]);
    }
}

static struct view view_contiguous(struct tgc *t, struct uop *const *dim, int ndim)
{
    struct view v = {.ndim = ndim, .offset = uop_int(t, 0)};
    ARRAY_COPY(v.dim, dim, ndim);
    row_major_strides(t, dim, ndim, v.stride);
    v.row_major = true;
    return v;
}

/* True if axis a of v is valid everywhere along itself. */
static bool axis_is_full(struct tgc *t, const struct view *v, int a)
{
    return !v->has_mask || (uop_is_int(v->mask_lo[a], 0) && sym_equal(t, v->mask_hi[a], v->dim[a]));
}

/* Masks exist on every axis or on none. */
static void view_open_mask(struct tgc *t, struct view *v)
{
    if (v->has_mask)
        return;
    v->has_mask = true;
    for (int a = 0; a < v->ndim; a++) {
        v->mask_lo[a] = uop_int(t, 0);
        v->mask_hi[a] = v->dim[a];
    }
}

static void view_drop_full_mask(struct tgc *t, struct view *v)
{
    for (int a = 0; a < v->ndim; a++) {
        if (!axis_is_full(t, v, a))
            return;
    }
    v->has_mask = false;
    memset(v->mask_lo, 0, sizeof v->mask_lo);
    memset(v->mask_hi, 0, sizeof v->mask_hi);
}

/* Axis `to` of dst becomes axis `from` of v, whole. */
static void copy_axis(struct view *dst, int to, const struct view *v, int from)
{
    dst->dim[to] = v->dim[from];
    dst->stride[to] = v->stride[from];
    dst->mask_lo[to] = v->mask_lo[from];
    dst->mask_hi[to] = v->mask_hi[from];
}

static void view_permute(struct view *v, int64_t perm)
{
    struct view old = *v;
    for (int a = 0; a < v->ndim; a++)
        copy_axis(v, a, &old, PERM_GET(perm, a));
}

static void view_expand(struct tgc *t, struct view *v, struct uop *const *dim)
{
    for (int a = 0; a < v->ndim; a++) {
        if (!uop_is_int(v->dim[a], 1))
            continue;
        v->stride[a] = uop_int(t, 0);
        v->dim[a] = dim[a];
        if (v->has_mask) { /* of 0 and 1: nothing or everything */
            v->mask_lo[a] = sym_mul(t, v->mask_lo[a], dim[a]);
            v->mask_hi[a] = sym_mul(t, v->mask_hi[a], dim[a]);
        }
    }
}

static void view_pad(struct tgc *t, struct view *v, struct uop *const *amount)
{
    view_open_mask(t, v);
    for (int a = 0; a < v->ndim; a++) {
        struct uop *lo = amount[2 * a], *hi = amount[2 * a + 1];
        v->offset = sym_sub(t, v->offset, sym_mul(t, v->stride[a], lo));
        v->dim[a] = sym_add(t, sym_add(t, v->dim[a], lo), hi);
        v->mask_lo[a] = sym_add(t, v->mask_lo[a], lo);
        v->mask_hi[a] = sym_add(t, v->mask_hi[a], lo);
    }
}

static void view_shrink(struct tgc *t, struct view *v, struct uop *const *box)
{
    for (int a = 0; a < v->ndim; a++) {
        struct uop *begin = box[2 * a], *size = box[2 * a + 1], *zero = uop_int(t, 0);
        v->offset = sym_add(t, v->offset, sym_mul(t, v->stride[a], begin));
        v->dim[a] = size;
        if (v->has_mask) {
            v->mask_lo[a] = sym_max(t, sym_sub(t, v->mask_lo[a], begin), zero);
            v->mask_hi[a] = sym_min(t, sym_sub(t, v->mask_hi[a], begin), size);
        }
    }
}

static void view_flip(struct tgc *t, struct view *v, int64_t axes)
{
    for (int a = 0; a < v->ndim; a++) {
        if (!(axes >> a & 1))
            continue;
        struct uop *last = sym_addi(t, v->dim[a], -1);
        v->offset = sym_add(t, v->offset, sym_mul(t, v->stride[a], last));
        v->stride[a] = sym_muli(t, v->stride[a], -1);
        if (v->has_mask) {
            struct uop *lo = v->mask_lo[a];
            v->mask_lo[a] = sym_sub(t, v->dim[a], v->mask_hi[a]);
            v->mask_hi[a] = sym_sub(t, v->dim[a], lo);
        }
    }
}

/* A mask over a window is not a box. It is kept only if it does not restrict the window's axis. */
static bool view_window(struct tgc *t, struct view *v, const struct uop *u)
{
    int axis = WINDOW_AXIS(u->arg.i);
    if (v->ndim + 1 > MAX_RANK || !axis_is_full(t, v, axis))
        return false;
    struct view old = *v;
    v->ndim++;
    for (int a = v->ndim - 1; a > axis + 1; a--)
        copy_axis(v, a, &old, a - 1);
    int64_t step[2] = {WINDOW_STRIDE(u->arg.i), WINDOW_DILATION(u->arg.i)};
    for (int k = 0; k < 2; k++) {
        v->dim[axis + k] = u->src[1 + k];
        v->stride[axis + k] = sym_muli(t, old.stride[axis], step[k]);
        if (v->has_mask) {
            v->mask_lo[axis + k] = uop_int(t, 0);
            v->mask_hi[axis + k] = u->src[1 + k];
        }
    }
    return true;
}

/* ------------------------------------------------------------------------------- views: reshape */

/* Axes of a group seen as one: a single stride, and a mask that is a box in it. */
struct merged_axis {
    struct uop *dim, *stride, *mask_lo, *mask_hi;
};

/* mergedim: source axes of g with stride[k] == stride[k+1] * dim[k+1] are one axis. Only the first
 * of them may be masked. */
static bool merge_axes(struct tgc *t, const struct view *v, const struct reshape_group *g,
                       struct merged_axis *m)
{
    int last = g->src[g->nsrc - 1], first = g->src[0];
    struct uop *inner = uop_int(t, 1); /* elements within one step of the first axis */
    for (int k = g->nsrc - 2; k >= 0; k--) {
        int a = g->src[k], b = g->src[k + 1];
        if (!sym_equal(t, v->stride[a], sym_mul(t, v->stride[b], v->dim[b])) ||
            !axis_is_full(t, v, b))
            return false;
        inner = sym_mul(t, v->dim[b], inner);
    }
    m->dim = sym_mul(t, v->dim[first], inner);
    m->stride = v->stride[last];
    m->mask_lo = v->has_mask ? sym_mul(t, v->mask_lo[first], inner) : NULL;
    m->mask_hi = v->has_mask ? sym_mul(t, v->mask_hi[first], inner) : NULL;
    return true;
}

/* Splits m over the output axes of g. A mask goes to the first of them, if it is a whole number of
 * its steps. */
static bool split_axis(struct tgc *t, const struct merged_axis *m, const struct reshape_group *g,
                       bool masked, struct view *out)
{
    struct uop *inner = uop_int(t, 1);
    for (int k = g->nout - 1; k > 0; k--) {
        int a = g->out[k];
        out->stride[a] = sym_mul(t, m->stride, inner);
        inner = sym_mul(t, inner, out->dim[a]);
    }
    int first = g->out[0];
    out->stride[first] = sym_mul(t, m->stride, inner);
    if (!masked)
        return true;
    if (!uop_is_int(sym_mod(t, m->mask_lo, inner), 0) ||
        !uop_is_int(sym_mod(t, m->mask_hi, inner), 0))
        return false;
    out->mask_lo[first] = sym_div(t, m->mask_lo, inner);
    out->mask_hi[first] = sym_div(t, m->mask_hi, inner);
    return true;
}

static bool view_reshape(struct tgc *t, struct view *v, struct uop *const *dim, int ndim)
{
    struct reshape_group group[2 * MAX_RANK + 1];
    int n = find_groups(t, v->dim, v->ndim, dim, ndim, group);
    struct view out = view_contiguous(t, dim, ndim);
    out.offset = v->offset;
    if (v->has_mask)
        view_open_mask(t, &out);
    for (int a = 0; a < v->ndim; a++) {
        if (uop_is_int(v->dim[a], 1) && !axis_is_full(t, v, a))
            return false; /* this axis is in no group, so its emptiness would be lost */
    }
    for (int k = 0; k < n; k++) {
        const struct reshape_group *g = &group[k];
        struct merged_axis m;
        if (!g->nsrc || !g->nout)
            return false; /* a symbol that must be 1, though we cannot prove it */
        if (!merge_axes(t, v, g, &m) || !split_axis(t, &m, g, v->has_mask, &out))
            return false;
    }
    *v = out;
    return true;
}

/* ------------------------------------------------------------------------------- views: merging */

/* A flat number as coordinates of a shape: sum of digit[a] * row-major stride[a]. The digits of a
 * stride are the change of the coordinates per step of its index. Any digits with the right sum are
 * a candidate; the caller proves their ranges, which makes them unique. Negative numbers get the
 * negated digits. */
static bool find_digits(struct tgc *t, struct uop *number, const struct view *inner,
                        struct uop *const *stride, struct uop **digit)
{
    bool negative = number->vmax < 0;
    struct uop *rest = negative ? sym_muli(t, number, -1) : number;
    for (int a = 0; a < inner->ndim; a++) {
        digit[a] = uop_int(t, 0);
        int64_t n, s;
        bool constant = uop_const_int(rest, &n) && uop_const_int(stride[a], &s) && s > 0;
        if (uop_is_int(rest, 0) || uop_is_int(inner->dim[a], 1))
            continue;
        if (!constant && !uop_is_int(sym_mod(t, rest, stride[a]), 0))
            continue;
        digit[a] = sym_div(t, rest, stride[a]);
        rest = sym_mod(t, rest, stride[a]);
    }
    for (int a = 0; negative && a < inner->ndim; a++)
        digit[a] = sym_muli(t, digit[a], -1);
    return uop_is_int(rest, 0);
}

/* Outer coordinates as inner coordinates: inner[j] = at_lo[j] + sum over k of step[k][j] *
 * (outer[k] - lo[k]), lo the corner of the outer view's mask. */
struct projection {
    struct uop *lo[MAX_RANK], *hi[MAX_RANK]; /* of the outer view: its mask, or everything */
    struct uop *at_lo[MAX_RANK];
    struct uop *step[MAX_RANK][MAX_RANK];
};

/* The corner is an element of the inner view, so its digits are its coordinates; the offset's need
 * not be (a pad makes it negative). */
static bool find_projection(struct tgc *t, const struct view *inner, const struct view *outer,
                            struct projection *p)
{
    struct uop *stride[MAX_RANK], *corner = outer->offset;
    row_major_strides(t, inner->dim, inner->ndim, stride);
    for (int k = 0; k < outer->ndim; k++) {
        p->lo[k] = outer->has_mask ? outer->mask_lo[k] : uop_int(t, 0);
        p->hi[k] = outer->has_mask ? outer->mask_hi[k] : outer->dim[k];
        corner = sym_add(t, corner, sym_mul(t, outer->stride[k], p->lo[k]));
        bool fixed = uop_is_int(outer->dim[k], 1);
        if (!find_digits(t, fixed ? uop_int(t, 0) : outer->stride[k], inner, stride, p->step[k]))
            return false;
    }
    return find_digits(t, corner, inner, stride, p->at_lo);
}

/* Bounds of the inner coordinate on axis j. An empty outer box gives arbitrary bounds, which do no
 * harm. */
static void projected_range(struct tgc *t, const struct projection *p, int nouter, int j,
                            struct uop **least, struct uop **greatest)
{
    *least = *greatest = p->at_lo[j];
    for (int k = 0; k < nouter; k++) {
        struct uop *step = p->step[k][j];
        struct uop *way = sym_mul(t, step, sym_addi(t, sym_sub(t, p->hi[k], p->lo[k]), -1));
        if (step->vmax > 0)
            *greatest = sym_add(t, *greatest, way);
        if (step->vmin < 0)
            *least = sym_add(t, *least, way);
    }
}

static bool proved_at_most(struct tgc *t, struct uop *a, struct uop *b)
{
    return sym_sub(t, b, a)->vmin >= 0;
}

/* The inner mask of axis j as a mask on the one outer axis that moves it: narrows lo, hi of that
 * axis in `out`. */
static bool project_mask(struct tgc *t, const struct projection *p, const struct view *inner, int j,
                         struct view *out)
{
    int axis = -1;
    for (int k = 0; k < out->ndim; k++) {
        if (uop_is_int(p->step[k][j], 0))
            continue;
        if (axis >= 0)
            return false;
        axis = k;
    }
    int64_t step;
    if (axis < 0 || !uop_const_int(p->step[axis][j], &step))
        return false;
    struct uop *origin = sym_sub(t, p->at_lo[j], sym_muli(t, p->lo[axis], step));
    /* step * i must be in [to_lo, to_hi) */
    struct uop *to_lo = sym_sub(t, inner->mask_lo[j], origin);
    struct uop *to_hi = sym_sub(t, inner->mask_hi[j], origin);
    struct uop *lo, *hi;
    if (step > 0) {
        lo = sym_ceildiv(t, to_lo, step);
        hi = sym_ceildiv(t, to_hi, step);
    } else {
        struct uop *back = uop_int(t, -step);
        lo = sym_addi(t, sym_div(t, sym_muli(t, to_hi, -1), back), 1);
        hi = sym_addi(t, sym_div(t, sym_muli(t, to_lo, -1), back), 1);
    }
    view_open_mask(t, out);
    out->mask_lo[axis] = sym_max(t, out->mask_lo[axis], lo);
    out->mask_hi[axis] = sym_min(t, out->mask_hi[axis], hi);
    return true;
}

/* One view that does what `outer` after `inner` does; false if there is none, or it cannot be
 * proved. */
static bool merge_views(struct tgc *t, const struct view *inner, const struct view *outer,
                        struct view *merged)
{
    struct projection p;
    if (!find_projection(t, inner, outer, &p))
        return false;
    struct view out = *outer;
    out.offset = inner->offset;
    for (int k = 0; k < outer->ndim; k++)
        out.stride[k] = uop_int(t, 0);
    for (int j = 0; j < inner->ndim; j++) {
        struct uop *least, *greatest, *origin = p.at_lo[j];
        projected_range(t, &p, outer->ndim, j, &least, &greatest);
        struct uop *last = sym_addi(t, inner->dim[j], -1);
        if (!proved_at_most(t, uop_int(t, 0), least) || !proved_at_most(t, greatest, last))
            return false;
        for (int k = 0; k < outer->ndim; k++) {
            struct uop *step = p.step[k][j];
            out.stride[k] = sym_add(t, out.stride[k], sym_mul(t, step, inner->stride[j]));
            origin = sym_sub(t, origin, sym_mul(t, step, p.lo[k]));
        }
        out.offset = sym_add(t, out.offset, sym_mul(t, origin, inner->stride[j]));
        if (axis_is_full(t, inner, j))
            continue;
        bool inside = proved_at_most(t, inner->mask_lo[j], least) &&
                      proved_at_most(t, sym_addi(t, greatest, 1), inner->mask_hi[j]);
        if (!inside && !project_mask(t, &p, inner, j, &out))
            return false;
    }
    *merged = out;
    return true;
}

/* ------------------------------------------------------------------------------------- trackers */

static void tracker_push(struct tgc *t, struct tracker *tr, struct view v)
{
    struct view *view = mem_array(t, (size_t)tr->nview + 1, sizeof *view);
    ARRAY_COPY(view, tr->view, tr->nview);
    view[tr->nview++] = v;
    tr->view = view;
}

static bool strides_are_row_major(struct tgc *t, const struct view *v)
{
    struct uop *stride[MAX_RANK];
    row_major_strides(t, v->dim, v->ndim, stride);
    for (int a = 0; a < v->ndim; a++) {
        if (!uop_is_int(v->dim[a], 1) && !sym_equal(t, v->stride[a], stride[a]))
            return false;
    }
    return true;
}

/* Makes the top of the stack as simple as can be proved. */
static void tracker_settle(struct tgc *t, struct tracker *tr)
{
    view_drop_full_mask(t, &tr->view[tr->nview - 1]);
    struct view merged;
    while (tr->nview > 1 &&
           merge_views(t, &tr->view[tr->nview - 2], &tr->view[tr->nview - 1], &merged)) {
        view_drop_full_mask(t, &merged);
        tr->view[--tr->nview - 1] = merged;
    }
    struct view *top = &tr->view[tr->nview - 1];
    top->row_major = strides_are_row_major(t, top);
}

struct tracker *tracker_contiguous(struct tgc *t, struct uop *const *dim, int ndim)
{
    struct tracker *tr = MEM_NEW(t, struct tracker);
    tracker_push(t, tr, view_contiguous(t, dim, ndim));
    return tr;
}

struct tracker *tracker_apply(struct tgc *t, const struct tracker *old, const struct uop *u)
{
    struct tracker *tr = MEM_NEW(t, struct tracker);
    tr->nview = old->nview - 1;
    tr->view = old->view;
    tracker_push(t, tr, old->view[old->nview - 1]); /* a copy of the stack */
    struct view *top = &tr->view[tr->nview - 1];
    switch (u->op) {
    case OP_RESHAPE:
        if (!view_reshape(t, top, u->dim, u->ndim))
            tracker_push(t, tr, view_contiguous(t, u->dim, u->ndim));
        break;
    case OP_PERMUTE:
        view_permute(top, u->arg.i);
        break;
    case OP_EXPAND:
        view_expand(t, top, u->dim);
        break;
    case OP_PAD:
        view_pad(t, top, u->src + 2);
        break;
    case OP_SHRINK:
        view_shrink(t, top, u->src + 1);
        break;
    case OP_FLIP:
        view_flip(t, top, u->arg.i);
        break;
    case OP_WINDOW:
        if (!view_window(t, top, u)) {
            struct view v = view_contiguous(t, top->dim, top->ndim);
            view_window(t, &v, u);
            tracker_push(t, tr, v);
        }
        break;
    default:
        return NULL;
    }
    tracker_settle(t, tr);
    return tr;
}

void tracker_index(struct tgc *t, const struct tracker *tr, struct uop *const *index,
                   struct uop **offset, struct uop **valid)
{
    struct uop *at[MAX_RANK], *flat = uop_int(t, 0);
    *valid = uop_bool(t, true);
    for (int n = tr->nview - 1; n >= 0; n--) {
        const struct view *v = &tr->view[n];
        struct uop *stride[MAX_RANK];
        row_major_strides(t, v->dim, v->ndim, stride);
        for (int a = 0; a < v->ndim; a++) {
            at[a] = n == tr->nview - 1 ? index[a] : sym_div(t, flat, stride[a]);
            if (a && n < tr->nview - 1)
                at[a] = sym_mod(t, at[a], v->dim[a]);
        }
        flat = v->offset;
        for (int a = 0; a < v->ndim; a++) {
            flat = sym_add(t, flat, sym_mul(t, at[a], v->stride[a]));
            if (axis_is_full(t, v, a))
                continue;
            *valid = sym_and(t, *valid, sym_lt(t, sym_addi(t, v->mask_lo[a], -1), at[a]));
            *valid = sym_and(t, *valid, sym_lt(t, at[a], v->mask_hi[a]));
        }
    }
    *offset = flat;
}

bool tracker_is_alias(const struct tracker *tr, struct uop **offset)
{
    const struct view *v = &tr->view[0];
    if (tr->nview > 1 || v->has_mask || !v->row_major)
        return false;
    *offset = v->offset;
    return true;
}

bool tracker_is_contiguous(const struct tracker *tr)
{
    struct uop *offset;
    return tracker_is_alias(tr, &offset) && uop_is_int(offset, 0);
}
