/* fold_move.c - movement ops over movement ops: what rule patterns cannot express, because these
 * ops have any number of operands.
 *
 * A tensor that repeats a scalar has one form, EXPAND(RESHAPE(scalar)) or RESHAPE(scalar); every
 * movement of it is that form again. A permutation that moves only axes of size 1 is a reshape.
 */
#include "passes/rules/rules.h"

#include <string.h>

static bool same_dims(const struct uop *a, const struct uop *b) { return rule_same_shape(a, b); }

/* The scalar that a tensor repeats, or NULL. */
static struct uop *repeated_scalar(struct uop *x)
{
    if (x->op == OP_EXPAND)
        x = x->src[0];
    return x->op == OP_RESHAPE && x->src[0]->ndim == 0 ? x->src[0] : NULL;
}

struct uop *fold_uniform(struct tgc *t, struct uop *u, struct uop *x)
{
    struct uop *s = repeated_scalar(x);
    return s ? tensor_full(t, s, u->dim, u->ndim) : NULL;
}

static bool is_one(const struct uop *dim) { return uop_is_int(dim, 1); }

struct uop *fold_reshape(struct tgc *t, struct uop *u, struct uop *x)
{
    if (same_dims(u, x))
        return x;
    if (x->op == OP_RESHAPE)
        return uop_reshape(t, x->src[0], u->dim, u->ndim);
    if (x->op == OP_EXPAND)
        return fold_uniform(t, u, x);
    return NULL;
}

struct uop *fold_permute(struct tgc *t, struct uop *u, struct uop *x)
{
    int perm[MAX_RANK], last = -1;
    bool ordered = true;
    for (int a = 0; a < u->ndim; a++) {
        perm[a] = PERM_GET(u->arg.i, a);
        if (is_one(u->dim[a]))
            continue;
        ordered &= perm[a] > last;
        last = perm[a];
    }
    if (ordered)
        return uop_reshape(t, x, u->dim, u->ndim);
    if (x->op != OP_PERMUTE)
        return fold_uniform(t, u, x);
    for (int a = 0; a < u->ndim; a++)
        perm[a] = PERM_GET(x->arg.i, perm[a]);
    return uop_permute(t, x->src[0], perm);
}

struct uop *fold_expand(struct tgc *t, struct uop *u, struct uop *x)
{
    if (same_dims(u, x))
        return x;
    return x->op == OP_EXPAND ? uop_expand(t, x->src[0], u->dim) : NULL;
}

/* ---- shrink */

static struct uop *shrink_begin(const struct uop *u, int a) { return u->src[1 + 2 * a]; }

static struct uop *shrink_of_shrink(struct tgc *t, struct uop *u, struct uop *x)
{
    struct uop *begin[MAX_RANK];
    for (int a = 0; a < u->ndim; a++)
        begin[a] = sym_add(t, shrink_begin(x, a), shrink_begin(u, a));
    return uop_shrink(t, x->src[0], begin, u->dim);
}

static bool at_most(struct tgc *t, struct uop *a, struct uop *b)
{
    return uop_is_int(sym_lt(t, b, a), 0);
}

static struct uop *shrink_of_pad(struct tgc *t, struct uop *u, struct uop *x)
{
    struct uop *begin[MAX_RANK], *in = x->src[0];
    for (int a = 0; a < u->ndim; a++) {
        begin[a] = sym_sub(t, shrink_begin(u, a), x->src[2 + 2 * a]);
        if (begin[a]->vmin < 0 || !at_most(t, sym_add(t, begin[a], u->dim[a]), in->dim[a]))
            return NULL;
    }
    return uop_shrink(t, in, begin, u->dim);
}

static struct uop *shrink_of_expand(struct tgc *t, struct uop *u, struct uop *x)
{
    struct uop *begin[MAX_RANK], *size[MAX_RANK], *in = x->src[0];
    for (int a = 0; a < u->ndim; a++) {
        bool repeated = is_one(in->dim[a]);
        begin[a] = repeated ? uop_int(t, 0) : shrink_begin(u, a);
        size[a] = repeated ? uop_int(t, 1) : u->dim[a];
    }
    return uop_expand(t, uop_shrink(t, in, begin, size), u->dim);
}

/* A box within one of the concatenated sources. */
static struct uop *shrink_of_concat(struct tgc *t, struct uop *u, struct uop *x)
{
    int axis = (int)x->arg.i;
    struct uop *begin[MAX_RANK], *from = uop_int(t, 0), *want = shrink_begin(u, axis);
    for (int k = 0; k < x->nsrc; k++) {
        struct uop *to = sym_add(t, from, x->src[k]->dim[axis]);
        if (at_most(t, from, want) && at_most(t, sym_add(t, want, u->dim[axis]), to)) {
            for (int a = 0; a < u->ndim; a++)
                begin[a] = a == axis ? sym_sub(t, want, from) : shrink_begin(u, a);
            return uop_shrink(t, x->src[k], begin, u->dim);
        }
        from = to;
    }
    return NULL;
}

struct uop *fold_shrink(struct tgc *t, struct uop *u, struct uop *x)
{
    bool whole = same_dims(u, x);
    for (int a = 0; a < u->ndim && whole; a++)
        whole = uop_is_int(shrink_begin(u, a), 0);
    if (whole)
        return x;
    struct uop *uniform = fold_uniform(t, u, x);
    if (uniform)
        return uniform;
    switch (x->op) {
    case OP_SHRINK: return shrink_of_shrink(t, u, x);
    case OP_PAD: return shrink_of_pad(t, u, x);
    case OP_EXPAND: return shrink_of_expand(t, u, x);
    case OP_CONCAT: return shrink_of_concat(t, u, x);
    default: return NULL;
    }
}

/* ---- pad, flip, concat */

struct uop *fold_pad(struct tgc *t, struct uop *u, struct uop *x, struct uop *value)
{
    struct uop *lo[MAX_RANK], *hi[MAX_RANK];
    bool none = true;
    for (int a = 0; a < u->ndim; a++) {
        lo[a] = u->src[2 + 2 * a];
        hi[a] = u->src[3 + 2 * a];
        none &= uop_is_int(lo[a], 0) && uop_is_int(hi[a], 0);
    }
    if (none)
        return x;
    if (repeated_scalar(x) == value)
        return fold_uniform(t, u, x);
    if (x->op != OP_PAD || x->src[1] != value)
        return NULL;
    for (int a = 0; a < u->ndim; a++) {
        lo[a] = sym_add(t, lo[a], x->src[2 + 2 * a]);
        hi[a] = sym_add(t, hi[a], x->src[3 + 2 * a]);
    }
    return uop_pad(t, x->src[0], value, lo, hi);
}

struct uop *fold_flip(struct tgc *t, struct uop *u, struct uop *x)
{
    uint32_t axes = (uint32_t)u->arg.i, kept = axes;
    for (int a = 0; a < u->ndim; a++)
        if (is_one(u->dim[a]))
            kept &= ~(1u << a);
    if (x->op == OP_FLIP)
        return uop_flip(t, x->src[0], kept ^ (uint32_t)x->arg.i);
    return kept != axes ? uop_flip(t, x, kept) : fold_uniform(t, u, x);
}

/* Adjacent boxes of one tensor: shrink(x, b, s) followed by shrink(x, b + s, s'). */
static struct uop *join_shrinks(struct tgc *t, struct uop *p, struct uop *q, int axis)
{
    struct uop *begin[MAX_RANK], *size[MAX_RANK];
    if (p->op != OP_SHRINK || q->op != OP_SHRINK || p->src[0] != q->src[0])
        return NULL;
    for (int a = 0; a < p->ndim; a++) {
        begin[a] = shrink_begin(p, a);
        size[a] = p->dim[a];
        if (a != axis && (shrink_begin(q, a) != begin[a] || q->dim[a] != size[a]))
            return NULL;
    }
    if (sym_add(t, begin[axis], size[axis]) != shrink_begin(q, axis))
        return NULL;
    size[axis] = sym_add(t, size[axis], q->dim[axis]);
    return uop_shrink(t, p->src[0], begin, size);
}

/* Flattens nested concats, drops empty sources, joins adjacent boxes. */
struct uop *fold_concat(struct tgc *t, struct uop *u)
{
    int axis = (int)u->arg.i, n = 0;
    size_t cap = 0;
    struct uop **src = NULL, *joined, *scalar = repeated_scalar(u->src[0]);
    for (int i = 0; i < u->nsrc; i++) {
        struct uop *x = u->src[i];
        bool nested = x->op == OP_CONCAT && x->arg.i == u->arg.i;
        for (int k = 0; k < (nested ? x->nsrc : 1); k++) {
            struct uop *s = nested ? x->src[k] : x;
            if (uop_is_int(s->dim[axis], 0))
                continue;
            if (n && (joined = join_shrinks(t, src[n - 1], s, axis)))
                src[n - 1] = joined;
            else
                VEC_PUSH(t, src, n, cap, s);
        }
        if (repeated_scalar(x) != scalar)
            scalar = NULL;
    }
    if (scalar)
        return tensor_full(t, scalar, u->dim, u->ndim);
    if (n == 0)
        return u->src[0];
    bool same = n == u->nsrc && !memcmp(src, u->src, (size_t)n * sizeof *src);
    return same ? NULL : uop_concat(t, src, n, axis);
}

/* Sources that the index cannot choose go; one alone, or the same again and again, is the
 * result. */
struct uop *fold_stack(struct tgc *t, struct uop *u)
{
    struct uop *index = u->src[0];
    int64_t last = u->nsrc - 2, lo = index->vmin < 0 ? 0 : index->vmin,
            hi = index->vmax > last ? last : index->vmax;
    bool same = true;
    lo = lo > last ? last : lo;
    hi = hi < lo ? lo : hi;
    for (int64_t k = lo; k < hi && same; k++)
        same = u->src[1 + k] == u->src[2 + k];
    if (same)
        return u->src[1 + lo]->ndim || !u->ndim ? u->src[1 + lo]
                                                : tensor_full(t, u->src[1 + lo], u->dim, u->ndim);
    if (lo == 0 && hi == last)
        return NULL;
    index = lo ? uop_binary(t, OP_SUB, index, uop_int(t, lo)) : index;
    return uop_stack(t, index, u->src + 1 + lo, (int)(hi - lo + 1));
}

/* GET k of IF(constant, then[n], else[n]). The branches may differ in shape; then this stays. */
struct uop *fold_branch(struct tgc *t, struct uop *u)
{
    const struct uop *choice = u->src[0];
    (void)t;
    struct uop *r = choice->src[1 + u->arg.i + (choice->src[0]->arg.i ? 0 : choice->arg.i)];
    return same_dims(u, r) ? r : NULL;
}
