/* round_factors.c - rounds the factors of sums of products, if the user allows it (--math).
 *
 *      sum over k  x[i, k] * w[k, j]     ->     sum over k  f32(bf16(x[i, k])) * f32(bf16(w[k, j]))
 *
 * Matrix units multiply f16, bf16 or tf32, and add in f32. Here each factor becomes what such a
 * unit reads, and all else stays in f32. Products of two rounded factors are exact in f32, so sums
 * differ by their order alone, and a target without such units computes the same values. The casts
 * round to nearest, half to even, those to tf32 half away from zero (ir/dtypes.def). In f16 a
 * factor beyond 65504 becomes infinite, and below 2^-25 it becomes 0; bf16 and tf32 have the range
 * of f32, but for the upper 0.2 % of its last binade in bf16.
 *
 * The user may leave nodes out (--math=NODE=f32): a pattern that no product's node has is a
 * mistake.
 *
 * Factors are rounded if both are f32 and one of them has a column: an axis of its own along which
 * the other is reused (contraction.h). That is a matrix product, a convolution, attention. A
 * depthwise convolution or a dot product, which no such unit computes faster, is left alone. A
 * factor is cast before the movement that spreads it, so that the kernel that stores it may round
 * it, once, and it is a half in memory; a weight is rounded here. With --math the sums of parts of
 * Winograd and Strassen are left out: they would round other values, and where they apply depends
 * on the target. */
#include "passes/analysis/contraction.h"
#include "passes/analysis/softmax.h"
#include "passes/passes.h"
#include "passes/target/target.h"

#include <math.h>
#include <string.h>

enum { MOVES_FACTOR = MOVES_VIEW | MOVES_ZEROS };

struct rounder {
    struct tgc *t;
    struct uop_map half;         /* what a factor is a view of -> the same in t->math */
    const char **node; int nnode; size_t cap_node;   /* of products, for a message */
    bool *left;                  /* by t->unrounded: some product's node has the name */
};

/* Whether the node of this product is among those that the user leaves out. */
static bool is_left(struct rounder *r, const struct uop *u)
{
    const struct origin *o = uop_get_origin(r->t, u);
    bool left = false;
    while (o && o->of)
        o = o->of;
    if (!o || !o->node || r->t->nunrounded == 0)
        return false;
    VEC_PUSH(r->t, r->node, r->nnode, r->cap_node, o->node);
    for (int i = 0; i < r->t->nunrounded; i++)
        if (name_matches(r->t->unrounded[i], o->node))
            r->left[i] = left = true;
    return left;
}

/* false: a name that no product's node has was reported. */
static bool check_names(struct rounder *r)
{
    enum { MOST = 12 };
    struct text known = {.t = r->t};
    int n = 0;
    for (int i = 0; i < r->nnode; i++) {
        bool again = false;
        for (int k = 0; k < i && !again; k++)
            again = strcmp(r->node[k], r->node[i]) == 0;
        if (!again && ++n <= MOST)
            text_printf(&known, "%s'%.100s'", n > 1 ? ", " : "", r->node[i]);
    }
    for (int i = 0; i < r->t->nunrounded; i++)
        if (!r->left[i])
            return diag_error(r->t, NULL,
                              "--math=%.100s=f32: no node of that name has products whose factors "
                              "are rounded; there %s %s%s",
                              r->t->unrounded[i], n == 1 ? "is" : "are",
                              n ? known.s : "none", n > MOST ? ", ..." : "");
    return true;
}

/* Whether a factor that is cast from this type is rounded already, or multiplied as it is. */
static bool is_exact(const struct tgc *t, enum dtype to, enum dtype from)
{
    return from == to || from == DTYPE_BOOL || dtype_is_byte(from) ||
           (to == DTYPE_TF32 && dtype_is_half(from)) ||
           (dtype_is_f8(from) && device_multiplies(t, from));
}

static struct uop *round_weight(struct rounder *r, const struct uop *u)
{
    struct tgc *t = r->t;
    const struct buffer *b = u->arg.p;
    size_t n = b->nbytes / sizeof(float), size = dtype_nbytes(t->math);
    const unsigned char *from = b->weight.data;
    unsigned char *to = mem_array(t, n + 1, size);
    int64_t dim[MAX_RANK];
    bool is_beyond = false;
    for (size_t i = 0; i < n; i++) {
        union scalar v = scalar_load(DTYPE_F32, from + i * sizeof(float));
        scalar_store(t->math, to + i * size, v);
        is_beyond |= isfinite(v.f) && isinf(scalar_load(t->math, to + i * size).f);
    }
    if (is_beyond)
        diag_warn(t, NULL,
                  "--math=%s: weight '%.100s' has an element beyond %s: it becomes infinite",
                  dtype_name(t->math), b->name ? b->name : "of the model",
                  t->math == DTYPE_F16 ? "65504" : "the largest number");
    for (int a = 0; a < u->ndim; a++)
        dim[a] = u->dim[a]->arg.i;
    return tensor_made_of(tensor_from_data(t, t->math, dim, u->ndim, to, n * size, b->name), b,
                          mem_printf(t, "%s (--math)", dtype_name(t->math)));
}

static bool is_weight(const struct uop *u)
{
    bool known = u->op == OP_BUFFER && known_buffer(u);
    for (int a = 0; known && a < u->ndim; a++)
        known = u->dim[a]->op == OP_CONST;
    return known;
}

/* The factor, rounded. */
static struct uop *rounded(struct rounder *r, struct uop *factor)
{
    struct tgc *t = r->t;
    struct path p = path_down(factor, MOVES_FACTOR);
    struct softmax s;
    if (p.base->op == OP_CAST && is_exact(t, t->math, p.base->src[0]->dtype))
        return factor;
    if (softmax_match(p.base, &s))       /* kept in scratch, summed as it is */
        return uop_cast(t, DTYPE_F32, uop_cast(t, t->math, factor));
    struct uop *half = map_get(&r->half, p.base);
    if (!half) {
        half = is_weight(p.base) ? round_weight(r, p.base) : uop_cast(t, t->math, p.base);
        map_set(&r->half, p.base, half);
    }
    return uop_cast(t, DTYPE_F32, path_up(t, &p, half));
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    struct contraction c;
    struct mem_mark mark = scratch_mark(t);
    bool found =
        u->op == OP_REDUCE && u->dtype == DTYPE_F32 && contraction_find(t, u, MOVES_FACTOR, &c);
    bool columns = false;
    for (int a = 0; found && a < c.product->ndim; a++)
        columns |= c.role[a] == ROLE_COLUMN;
    scratch_release(t, mark);
    if (!columns || is_left(ctx, u))
        return NULL;
    struct uop *x = rounded(ctx, u->src[0]->src[0]), *w = rounded(ctx, u->src[0]->src[1]);
    return x == u->src[0]->src[0] && w == u->src[0]->src[1] ? NULL : contraction_like(t, u, x, w);
}

bool pass_round_factors(struct tgc *t, struct graph *g)
{
    struct rounder r = {.t = t, .half = {.t = t}};
    if (t->math == DTYPE_VOID)
        return true;
    r.left = mem_array(t, (size_t)t->nunrounded + 1, sizeof *r.left);
    graph_rewrite(t, g, rewrite, &r);
    return check_names(&r);
}
