/* value.c - classifies values of tensors: their size, whether they are layers, or computed from
 * weights or coordinates alone. Each question visits only a few ops below the value.
 */
#include "passes/analysis/value.h"
#include "passes/analysis/contraction.h"
#include "passes/analysis/stationary.h"
#include "passes/target/cost.h"

double dim_extent(const struct uop *dim) { return dim->vmax < 0 ? 0.0 : (double)dim->vmax; }

double value_nelem(const struct uop *u)
{
    double n = 1;
    for (int a = 0; a < u->ndim; a++)
        n *= dim_extent(u->dim[a]);
    return n;
}

double buffer_most_nbytes(const struct buffer *b)
{
    double n = (double)dtype_nbytes(b->dtype);
    for (int a = 0; a < b->ndim; a++)
        n *= b->dim[a]->vmax > 0 ? (double)b->dim[a]->vmax : 0;
    return n;
}

int64_t kernel_local_nbytes(const struct kernel *k)
{
    int64_t nbytes = 0, over = 0;
    for (int i = 0; i < k->nscratch; i++) {
        const struct buffer *b = k->scratch[i];
        int64_t own = b->scratch.space == SPACE_SHARED
                          ? sat_mul(b->dim[0]->vmax, (int64_t)dtype_nbytes(b->dtype))
                          : 0;
        over = b->scratch.is_alias && own > over ? own : over;
        nbytes = sat_add(nbytes, b->scratch.is_alias ? 0 : own);
    }
    return nbytes > over ? nbytes : over;
}

bool value_is_leaf(const struct uop *v)
{
    return v->op == OP_BUFFER || v->op == OP_PARAM || v->op == OP_GET || v->op == OP_CONST ||
           v->op == OP_VAR;
}

bool value_outgrows_factors(const struct uop *m)
{
    for (int k = 0; k < 2; k++)
        if (value_nelem(m) <= 1.5 * value_nelem(value_behind(m->src[k], MOVES_OPERAND)))
            return false;
    return true;
}

bool value_is_contraction(const struct uop *v)
{
    const struct uop *m = summed_product_behind(v, MOVES_OPERAND);
    return m && value_behind(m->src[0], MOVES_OPERAND)->ndim &&
           value_behind(m->src[1], MOVES_OPERAND)->ndim && value_outgrows_factors(m);
}

/* Whether v is an expression of depth `depth` at most, of ops that `operands` accepts: it returns
 * how many sources to visit, 0 at a leaf, -1 for an op that it rejects. */
static bool is_made_of(const struct uop *v, int (*operands)(const struct uop *), int depth)
{
    int n = operands(v);
    if (n <= 0 || depth == 0)
        return n == 0;
    for (int k = 0; k < n; k++)
        if (!is_made_of(v->src[k], operands, depth - 1))
            return false;
    return true;
}

bool value_contracts_weight(const struct uop *v)
{
    const struct uop *m = value_behind(v->src[0], MOVES_OPERAND);
    for (int k = 0; k < 2; k++)
        if (value_is_stationary(m->src[k]) &&
            value_behind(m->src[k], MOVES_OPERAND)->op != OP_CONST)
            return true;
    return false;
}

static int operands_like_index(const struct uop *v)
{
    bool moves = op_class(v->op) == CLASS_MOVE;
    if (v->op == OP_CONST || v->op == OP_VAR || v->op == OP_IOTA)
        return 0;
    if ((!moves && !op_is_elementwise(v->op)) || cost_class_of(v->op) == COST_FUNCTION)
        return -1;
    return !moves || v->op == OP_CONCAT ? v->nsrc : v->op == OP_PAD ? 2 : 1;
}

bool value_is_index_like(const struct uop *v)
{
    enum { DEPTH = 8 };
    return is_made_of(v, operands_like_index, DEPTH);
}

static int operands_of_places(const struct uop *v)
{
    const struct buffer *b = v->op == OP_BUFFER ? v->arg.p : NULL;
    bool table = b && buffer_is_stationary(b) && b->dtype == DTYPE_INDEX;
    return table ? 0 : operands_like_index(v);
}

bool value_is_mask_of_places(const struct uop *v)
{
    enum { DEPTH = 14 };
    return v->dtype == DTYPE_BOOL && is_made_of(v, operands_of_places, DEPTH);
}

bool value_is_widened_weight(const struct uop *v)
{
    if (v->op != OP_CAST || dtype_nbytes(v->src[0]->dtype) >= dtype_nbytes(v->dtype))
        return false;
    const struct uop *base = value_behind(v->src[0], MOVES_OPERAND);
    return base->op == OP_BUFFER && buffer_is_stationary(base->arg.p);
}

bool value_streams_weight(const struct machine *m, const struct uop *v)
{
    return summed_product_behind(v, MOVES_OPERAND) && value_contracts_weight(v) &&
           value_nelem(v->src[0]) >= (double)cost_fit_nelem(m, FIT_OPERAND);
}

bool value_contains(struct tgc *t, struct uop *u, enum op a, enum op b)
{
    struct mem_mark mark = scratch_mark(t);
    int n;
    bool any = false;
    struct uop **order = uop_toposort(t, &u, 1, &n);
    for (int i = 0; i < n && !any; i++)
        any = order[i]->op == a || order[i]->op == b;
    scratch_release(t, mark);
    return any;
}
