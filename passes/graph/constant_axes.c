/* constant_axes.c - finds the axes along which a constant varies, and constants that are
 * expressions of the index.
 *
 * A constant that is invariant along an axis is stored without it and read through EXPAND. Where
 * the graph shows that (varying_axes), the axis is not even evaluated; where only the data do
 * (drop_equal_axes), the copies are removed afterwards.
 *
 * Coordinates are integer expressions of IOTA, and most of them take a few instructions (a clamped
 * border, a stride, a reflection). They become a table only if that is shorter than the expression.
 * A join of coordinates of several axes is not stored either, since the tables of each axis are
 * much shorter.
 */
#include "passes/passes.h"

#include <string.h>

/* coordinates up to this size always become a table */
enum { TABLE_NBYTES = 256 };
/* the most additions in a coordinate's expression; a division counts as several */
enum { INDEX_COST = 12, DIVISION_COST = 3 };

/* Minimal groups of axes, from the left, with equal numbers of elements: if no axis of a group
 * varies before the reshape, none does after it. needs: no dimension is 0. */
static uint32_t varying_after_reshape(const struct uop *u, uint32_t before)
{
    const struct uop *x = u->src[0];
    uint32_t varying = 0;
    for (int i = 0, k = 0; i < x->ndim || k < u->ndim;) {
        int64_t from = 1, to = 1;
        uint32_t sources = 0, results = 0;
        do {
            bool is_source = k == u->ndim || (i < x->ndim && from <= to);
            int64_t *product = is_source ? &from : &to;
            *product = sat_mul(*product, is_source ? x->dim[i]->arg.i : u->dim[k]->arg.i);
            if (is_source)
                sources |= 1u << i++;
            else
                results |= 1u << k++;
        } while (from != to && (i < x->ndim || k < u->ndim));
        varying |= sources & before ? results : 0;
    }
    return varying;
}

static uint32_t varying_after_move(const struct uop *u, uint32_t before)
{
    uint32_t varying = 0;
    switch (u->op) {
    case OP_RESHAPE:
        return varying_after_reshape(u, before);
    case OP_PERMUTE:
        for (int a = 0; a < u->ndim; a++)
            varying |= (before >> PERM_GET(u->arg.i, a) & 1) << a;
        return varying;
    case OP_WINDOW:
        for (int a = 0; a < u->ndim; a++) {
            int from = a - (a > WINDOW_AXIS(u->arg.i));
            varying |= (before >> from & 1) << a;
        }
        return varying;
    case OP_PAD:
        for (int a = 0; a < u->ndim; a++)
            if (u->dim[a] != u->src[0]->dim[a])
                before |= 1u << a;
        return before;
    default: /* EXPAND, SHRINK, FLIP: axes stay where they are */
        return before;
    }
}

uint32_t varying_axes(const struct uop *u, const uint32_t *of)
{
    uint32_t varying = 0, sizes = 0;
    for (int a = 0; a < u->ndim; a++) {
        if (uop_is_int(u->dim[a], 0))
            return ~0u;
        sizes |= uop_is_int(u->dim[a], 1) ? 0 : 1u << a;
    }
    switch (u->op) {
    case OP_CONST:
        return 0;
    case OP_IOTA:
        return sizes;
    case OP_REDUCE:
        varying = of[0];
        break;
    case OP_INDEX:
        for (int k = 1; k < u->nsrc; k++)
            varying |= of[k];
        break;
    case OP_CONCAT:
        varying = 1u << u->arg.i;
        for (int k = 0; k < u->nsrc; k++)
            varying |= of[k];
        break;
    default:
        if (op_class(u->op) == CLASS_MOVE)
            varying = varying_after_move(u, of[0]);
        else if (!op_is_elementwise(u->op))
            varying = ~0u;
        for (int k = 0; op_is_elementwise(u->op) && k < u->nsrc; k++)
            varying |= u->src[k]->ndim ? of[k] : 0;
    }
    return varying & sizes;
}

/* -------------------------------------------------------------------------- equal along an axis */

/* Whether the n rows of `stride` bytes are equal, in each of `outer` blocks. */
static bool rows_are_equal(const char *data, size_t outer, size_t n, size_t stride)
{
    for (size_t o = 0; o < outer; o++)
        for (size_t i = 1; i < n; i++)
            if (memcmp(data + o * n * stride, data + (o * n + i) * stride, stride) != 0)
                return false;
    return true;
}

uint32_t equal_axes(const void *data, const int64_t *dim, int ndim, size_t size)
{
    size_t outer = 1, inner = size;
    uint32_t equal = 0;
    for (int a = 0; a < ndim; a++)
        inner *= (size_t)dim[a];
    if (inner == 0)
        return 0;
    for (int a = 0; a < ndim; a++) {
        inner /= (size_t)dim[a];
        if (dim[a] > 1 && rows_are_equal(data, outer, (size_t)dim[a], inner))
            equal |= 1u << a;
        outer *= (size_t)dim[a];
    }
    return equal;
}

size_t drop_axes(void *data, int64_t *dim, int ndim, size_t size, uint32_t axes)
{
    char *bytes = data;
    size_t outer = 1, inner = size;
    for (int a = 0; a < ndim; a++)
        inner *= (size_t)dim[a];
    for (int a = 0; a < ndim; a++) {
        size_t n = (size_t)dim[a];
        inner /= n;
        if (axes >> a & 1) {
            for (size_t o = 1; o < outer; o++)
                memmove(bytes + o * inner, bytes + o * n * inner, inner);
            dim[a] = 1;
        }
        outer *= (size_t)dim[a];
    }
    return outer * size;
}

/* --------------------------------------------------------------------- expressions of the index */

int index_cost(const struct uop *u, const int *of)
{
    bool divides = u->op == OP_FLOORDIV || u->op == OP_FLOORMOD;
    int cost = 0;
    int64_t by;
    for (int k = 0; k < u->nsrc && u->op != OP_IOTA; k++)
        if (op_is_elementwise(u->op) || (k == 0 && op_class(u->op) == CLASS_MOVE))
            cost = of[k] < 0 || cost < 0 ? -1 : cost + of[k];
    switch (u->op) {
    case OP_CONST:
        return u->dtype == DTYPE_INDEX || u->dtype == DTYPE_BOOL ? 0 : -1;
    case OP_IOTA: case OP_RESHAPE: case OP_PERMUTE: case OP_EXPAND: case OP_SHRINK: case OP_FLIP:
    case OP_WINDOW:
        break;
    case OP_ADD: case OP_SUB: case OP_MUL: case OP_MAX: case OP_MIN: case OP_NEG: case OP_ABS:
    case OP_LT: case OP_EQ: case OP_NE: case OP_AND: case OP_OR: case OP_NOT: case OP_WHERE:
        cost += cost >= 0;
        break;
    default:
        if (!divides || cost < 0 || !uop_const_int(u->src[1], &by) || by <= 0)
            return -1;
        cost += DIVISION_COST;
    }
    bool whole = u->dtype == DTYPE_INDEX || u->dtype == DTYPE_BOOL;
    return whole && cost <= INDEX_COST ? cost : -1;
}

bool is_no_table(const struct uop *u, int64_t nbytes, int cost, uint32_t varying,
                 const uint32_t *of)
{
    bool joins = op_is_elementwise(u->op) && u->nsrc > 1;
    if (u->dtype != DTYPE_INDEX || !op_is_elementwise(u->op) || nbytes <= TABLE_NBYTES)
        return false;
    for (int k = 0; k < u->nsrc; k++)
        joins &= u->src[k]->ndim == 0 || (of[k] & varying) != varying;
    return cost >= 0 || joins;
}
