/* runtime.c - what only a run knows: values that become dimensions or positions, and conditions
 * that must hold.
 *
 *      element of a tensor --host step read_dim--> a symbol with bounds, a dimension like any other
 *      condition           --host step require---> a status if it does not hold
 *                          --host step expect----> the same at the end of a device's run, where no
 *                                                  size and no branch depends on it
 *
 * A symbol's bounds come from the operator, from --dim, or from what the model declares. A declared
 * dimension that is fixed gives the symbol's value: the symbol becomes a constant, and the run
 * checks it. Symbols are created while nodes are lowered, declarations are read later; so what they
 * say is kept (struct fact), and the model is lowered again with it, until nothing new is learned.
 *
 * A condition belongs to its node's block: lower_take_checks() hands the conditions of a branch or
 * a loop's body to the code that builds the IF or the LOOP, which makes them a result of it.
 */
#include "frontend/onnx/lower.h"

#include <inttypes.h>
#include <string.h>

/* the bound of a symbol that has none yet */
enum { OPEN_MAX = INT32_MAX };

/* ----------------------------------------------------------------------------------- conditions */

struct uop *node_all(const struct node *n, struct uop *cond)
{
    if (!cond || cond->ndim == 0)
        return cond;
    return uop_reshape(n->t, uop_reduce(n->t, OP_AND, cond, lib_all_axes(cond)), NULL, 0);
}

static bool add_check(const struct node *n, int input, struct uop *cond, bool is_late,
                      const char *rule)
{
    struct lower *l = n->lower;
    if (!(cond = node_all(n, cond)))
        return false;
    if (cond->op != OP_CONST)
        cond = lib_fold(&n->lib, cond);
    struct uop *known = tensor_element(n->t, cond, NULL);
    if (known && uop_is_int(known, 1))
        return true;
    if (known && uop_is_int(known, 0))
        return node_error(n, input, "%s", rule);
    for (int i = 0; i < l->ncheck; i++)
        if (l->check[i].cond == cond) {
            l->check[i].is_late &= is_late;
            return true;
        }
    VEC_PUSH(n->t, l->check, l->ncheck, l->cap_check, ((struct check){cond, is_late}));
    return true;
}

bool node_require(const struct node *n, int input, struct uop *cond, const char *rule)
{
    return add_check(n, input, cond, false, rule);
}

bool node_expect(const struct node *n, int input, struct uop *cond, const char *rule)
{
    return add_check(n, input, cond, true, rule);
}

struct uop *lower_take_checks(struct lower *l, int mark)
{
    struct uop *all = uop_bool(l->t, true);
    while (l->ncheck > mark)
        all = uop_binary(l->t, OP_AND, all, l->check[--l->ncheck].cond);
    return all;
}

static bool add_index_check(const struct node *n, int input, struct uop *index, struct uop *dim,
                            bool is_late)
{
    struct tgc *t = n->t;
    if (!index || !dim || index->dtype == DTYPE_BOOL)
        return index && dim;
    int64_t none = 0;
    for (int a = 0; a < index->ndim; a++)
        none |= uop_is_int(index->dim[a], 0);
    if (none || (index->vmin >= -dim->vmin && index->vmax < dim->vmin))
        return true;
    index = uop_cast(t, DTYPE_INDEX, index);
    struct uop *low = uop_binary(t, OP_LT, index, sym_sub(t, uop_int(t, 0), dim)),
               *high = uop_binary(t, OP_LT, index, dim);
    return add_check(n, input, uop_binary(t, OP_AND, uop_not(t, low), high), is_late,
                     "an index is outside of its tensor");
}

bool node_expect_index(const struct node *n, int input, struct uop *index, struct uop *dim)
{
    return add_index_check(n, input, index, dim, true);
}

bool node_require_index(const struct node *n, int input, struct uop *index, struct uop *dim)
{
    return add_index_check(n, input, index, dim, false);
}

void lower_add_host(struct lower *l, struct uop *host)
{
    VEC_PUSH(l->t, l->host, l->nhost, l->cap_host, host);
}

/* a == b, where both are expressions of dimensions alone. */
static bool is_match(struct tgc *t, struct uop *cond)
{
    if (cond->op != OP_EQ || cond->ndim || cond->src[0]->dtype != DTYPE_INDEX)
        return false;
    struct mem_mark mark = scratch_mark(t);
    int n;
    struct uop **term = uop_toposort(t, &cond, 1, &n);
    bool yes = true;
    for (int i = 0; i < n; i++)
        yes &= term[i]->op == OP_CONST || term[i]->op == OP_VAR || op_is_elementwise(term[i]->op);
    scratch_release(t, mark);
    return yes;
}

void lower_emit_checks(struct lower *l)
{
    struct lib lib = {.t = l->t};
    for (int i = 0; i < l->ncheck; i++) {
        struct uop *c = l->check[i].cond;
        const char *function = l->check[i].is_late ? "expect" : "require";
        lower_add_host(l, is_match(l->t, c)
                              ? lib_host(&lib, "match_dims", NULL, 0, NULL, 0, c->src, 2, NULL, 0)
                              : lib_host(&lib, function, &c, 1, NULL, 0, NULL, 0, NULL, 0));
    }
}

/* ---------------------------------------------------------------------------------------- facts */

static struct fact *fact_find(const struct lower *l, const char *name, enum fact_kind kind)
{
    for (int i = 0; i < l->facts->n; i++)
        if (l->facts->v[i].kind == kind && !strcmp(l->facts->v[i].name, name))
            return &l->facts->v[i];
    return NULL;
}

/* Known facts are narrowed. */
static void learn(struct lower *l, struct fact f)
{
    struct fact *old = fact_find(l, f.name, f.kind);
    if (old && f.min <= old->min && f.max >= old->max)
        return;
    if (old) {
        old->min = f.min > old->min ? f.min : old->min;
        old->max = f.max < old->max ? f.max : old->max;
    } else {
        VEC_PUSH(l->t, l->facts->v, l->facts->n, l->facts->cap, f);
    }
    l->learned = true;
}

/* The option for a symbol: by its own name, or by the one that the model declares for it. */
static const struct onnx_dim_option *option_of(const struct lower *l, const char *name)
{
    const struct fact *alias = fact_find(l, name, FACT_ALIAS);
    for (int i = 0; l->options && i < l->options->ndim; i++) {
        const struct onnx_dim_option *o = &l->options->dim[i];
        if (!strcmp(o->name, name) || (alias && !strcmp(o->name, alias->dim))) {
            l->option_used[i] = true;
            return o;
        }
    }
    return NULL;
}

/* -------------------------------------------------------------------------------------- symbols */

/* The depth to which an element is followed through the graph, and the number of uops: uops that
 * are used twice at every level multiply. */
enum { ELEMENT_DEPTH = 48, ELEMENT_STEPS = 4096 };

/* Element i of x, such that equal elements are equal uops: through movement down to its source. */
static struct uop *element_scalar(struct tgc *t, struct uop *x, struct uop *const *index, int depth,
                                  int *steps)
{
    struct uop *from[MAX_RANK], *valid, *one[MAX_RANK], *src[3];
    bool move = op_class(x->op) == CLASS_MOVE && x->op != OP_IOTA;
    for (int k = 0; move && k < (x->op == OP_CONCAT ? x->nsrc : 1); k++) {
        move_index(t, x, k, index, from, &valid);
        if (uop_is_int(valid, 1) && depth < ELEMENT_DEPTH && (*steps)++ < ELEMENT_STEPS)
            return element_scalar(t, x->src[k], from, depth + 1, steps);
    }
    if (op_is_elementwise(x->op) && depth < ELEMENT_DEPTH && x->ndim &&
        (*steps)++ < ELEMENT_STEPS) {
        for (int k = 0; k < x->nsrc; k++)
            src[k] = x->src[k]->ndim ? element_scalar(t, x->src[k], index, depth + 1, steps)
                                     : x->src[k];
        return uop_replace_src(t, x, src);
    }
    if (x->ndim == 0)
        return x;
    for (int a = 0; a < x->ndim; a++)
        one[a] = uop_int(t, 1);
    return uop_reshape(t, uop_shrink(t, x, index, one), NULL, 0);
}

struct uop *node_element(const struct node *n, struct uop *x, int64_t i)
{
    struct uop *index[MAX_RANK];
    int steps = 0;
    for (int a = x->ndim - 1; a >= 0; a--) {
        int64_t d = 1;
        uop_const_int(x->dim[a], &d);
        index[a] = uop_int(n->t, i % d);
        i /= d;
    }
    return element_scalar(n->t, x, index, 0, &steps);
}

/* e with the symbols found before: equal sizes become equal expressions. */
static struct uop *substitute(const struct lower *l, struct uop *e, int depth)
{
    struct uop *src[3];
    bool changed = false;
    for (int i = 0; i < l->nfound; i++)
        if (l->found[i].e == e)
            return l->found[i].symbol;
    if (!op_is_elementwise(e->op) || e->ndim || depth == ELEMENT_DEPTH / 4)
        return e;
    for (int k = 0; k < e->nsrc; k++) {
        src[k] = substitute(l, e->src[k], depth + 1);
        changed |= src[k] != e->src[k];
    }
    return changed ? uop_replace_src(l->t, e, src) : e;
}

struct uop *node_found(const struct node *n, struct uop *e)
{
    return substitute(n->lower, uop_cast(n->t, DTYPE_INDEX, e), 0);
}

/* A symbol that was read as max(e, 0) is e, if e must not be negative. */
static struct uop *found_as_max(const struct lower *l, struct uop *e)
{
    struct uop *max = uop_binary(l->t, OP_MAX, e, uop_int(l->t, 0));
    for (int i = 0; i < l->nfound && max != e; i++)
        if (l->found[i].e == max)
            return l->found[i].symbol;
    return NULL;
}

/* The memory of which a scalar is just an element; x itself if it is not. */
static struct uop *memory_of(struct tgc *t, struct uop *x, int64_t *at)
{
    struct uop *index[MAX_RANK], *from[MAX_RANK], *valid, *u = x;
    while (u->op == OP_RESHAPE || u->op == OP_SHRINK || u->op == OP_PERMUTE) {
        move_index(t, u, 0, index, from, &valid);
        u = u->src[0];
        memcpy(index, from, sizeof index);
    }
    *at = 0;
    if (u->op != OP_BUFFER && u->op != OP_GET && u->op != OP_PARAM)
        return x;
    for (int a = 0; a < u->ndim; a++) {
        int64_t d, i;
        if (!uop_const_int(u->dim[a], &d) || !uop_const_int(index[a], &i)) {
            *at = 0;
            return x;
        }
        *at = *at * d + i;
    }
    return u;
}

/* A unique name for a symbol, for messages and options. */
static const char *unique_name(struct lower *l, const char *name)
{
    int n = 1;
    for (int i = 0; i < l->nfound; i++)
        n += !strcmp(l->found[i].stem, name);
    return n == 1 ? name : mem_printf(l->t, "%s_%d", name, n);
}

/* A symbol that the run reads from the scalar e. */
static struct uop *read_symbol(const struct node *n, struct uop *e, const char *name, int64_t lo,
                               struct uop *hi, int64_t max)
{
    struct tgc *t = n->t;
    struct var *v = var_new(t, name, lo, max);
    int64_t at;
    v->is_found = true;
    struct uop *x = memory_of(t, e, &at), *param[3] = {uop_int(t, at), uop_int(t, lo), hi};
    if (hi->vmax > max)
        param[2] = sym_min(t, hi, uop_int(t, max));
    lower_add_host(n->lower, lib_host(&n->lib, "read_dim", &x, 1, NULL, 0, param, 3, &v, 1));
    return uop_var(t, v);
}

static struct uop *symbol_fits(struct tgc *t, struct uop *r, int64_t lo, struct uop *hi)
{
    struct uop *fits = uop_not(t, sym_lt(t, r, uop_int(t, lo)));
    return hi ? uop_binary(t, OP_AND, fits, uop_not(t, sym_lt(t, hi, r))) : fits;
}

struct uop *node_symbol(const struct node *n, int input, struct uop *e, const char *name,
                        int64_t lo, struct uop *hi)
{
    struct lower *l = n->lower;
    struct tgc *t = n->t;
    int64_t told;
    if (!e)
        return NULL;
    e = uop_cast(t, DTYPE_INDEX, e);
    struct uop *raw = e, *r = NULL;
    e = substitute(l, e, 0);
    struct uop *known = tensor_element(t, e, NULL);
    if (known) {
        r = known_index(t, known);
        if (uop_const_int(r, &told) && told < lo) {
            node_error(n, input, "%s is %lld, but must be at least %lld", name, (long long)told,
                       (long long)lo);
            return NULL;
        }
        bool fits = (r->vmin >= lo || raw->vmin >= lo) && (!hi || r->vmax <= hi->vmin);
        return e == raw || fits || node_require(n, input, symbol_fits(t, r, lo, hi),
                                                "is out of its range")
                   ? r
                   : NULL;
    }
    if (lo >= 0 && !hi && (r = found_as_max(l, e)))
        return node_require(n, input, uop_binary(t, OP_EQ, e, r), "is negative") ? r : NULL;
    lo = e->vmin > lo ? e->vmin : lo;
    int64_t max = hi && hi->vmax < e->vmax ? hi->vmax : e->vmax;
    for (int i = 0; i < l->nfound; i++)
        if (l->found[i].e == e && l->found[i].hi == hi && l->found[i].lo == lo)
            return l->found[i].symbol;
    const char *stem = name;
    name = unique_name(l, name);
    const struct fact *is = fact_find(l, name, FACT_VALUE), *same = fact_find(l, name, FACT_SAME);
    const struct onnx_dim_option *o = option_of(l, name);
    bool open = max >= OPEN_MAX;
    if (o && o->min == o->max)
        r = uop_int(t, o->max);
    else if (is && is->min == is->max)
        r = uop_int(t, is->min);
    else if (same)
        r = lower_dim_named(l, same->dim);
    else if (open && !o && (known = tensor_element(t, lower_assume(l, e), NULL)) &&
             uop_const_int(known, &told))
        r = uop_int(t, told);
    if (r) {
        if (r->vmin < lo || r->vmax > max) {
            node_error(n, input, "%s is %lld .. %lld, but must be at least %lld and at most %lld",
                       name, (long long)r->vmin, (long long)r->vmax, (long long)lo, (long long)max);
            return NULL;
        }
        if (!node_require(n, input, uop_binary(t, OP_EQ, e, r),
                          "is not what the model declares its result to be"))
            return NULL;
        if (hi && hi->op != OP_CONST &&
            !node_require(n, input, uop_not(t, sym_lt(t, hi, r)), "is larger than it may be"))
            return NULL;
    } else {
        if (is) {
            max = is->max < max ? is->max : max;
            lo = is->min > lo ? is->min : lo;
            open = false;
        }
        if (o) {
            max = o->max < max ? o->max : max;
            lo = o->min > lo && o->min > 1 ? o->min : lo;
            open = false;
        } else if (open && l->options && l->options->default_max > 0) {
            max = l->options->default_max;
            open = false;
        }
        max = max > OPEN_MAX ? OPEN_MAX : max;
        if (max < lo) {
            node_error(n, input, "%s must be at least %lld and at most %lld", name, (long long)lo,
                       (long long)max);
            return NULL;
        }
        r = read_symbol(n, e, name, lo, hi ? hi : uop_int(t, max), max);
    }
    VEC_PUSH(t, l->found, l->nfound, l->cap_found,
             ((struct found){.e = e, .hi = hi, .lo = lo, .stem = stem, .name = name, .symbol = r,
                             .open = open && r->op == OP_VAR,
                             .at = onnx_place_node(l->model, n->proto)}));
    return r;
}

struct var *node_count_symbol(const struct node *n, const char *name, int64_t most)
{
    struct lower *l = n->lower;
    const char *stem = name;
    name = unique_name(l, name);
    const struct fact *is = fact_find(l, name, FACT_VALUE);
    const struct onnx_dim_option *o = option_of(l, name);
    int64_t least = o && o->min == o->max ? o->max : is ? is->min : 0;
    most = o && o->max < most ? o->max : most;
    most = is && is->max < most ? is->max : most;
    if (least > most) {
        node_error(n, -1, "%s is to be %lld, but it is at most %lld", name, (long long)least,
                   (long long)most);
        return NULL;
    }
    struct var *v = var_new(n->t, name, least, most);
    v->is_found = true;
    VEC_PUSH(n->t, l->found, l->nfound, l->cap_found,
             ((struct found){.stem = stem, .name = name, .symbol = uop_var(n->t, v),
                             .at = onnx_place_node(l->model, n->proto)}));
    return v;
}

const char *node_input_name(const struct node *n, int k, int64_t i, int64_t count)
{
    const char *name = k < (int)n->proto->n_input ? n->proto->input[k] : "";
    return count == 1 ? name : mem_printf(n->t, "%s_%" PRId64, name, i);
}

const char *node_output_dim_name(const struct node *n, int k, int axis)
{
    return mem_printf(n->t, "%s_dim%d", k < (int)n->proto->n_output ? n->proto->output[k] : "",
                      axis);
}

/* --------------------------------------------------------------------------------- declarations */

static const TensorShapeProto *declared_shape(const GraphProto *g, const char *name)
{
    const ValueInfoProto *v = NULL;
    for (size_t i = 0; i < g->n_output && !v; i++)
        v = !strcmp(g->output[i]->name, name) ? g->output[i] : NULL;
    for (size_t i = 0; i < g->n_value_info && !v; i++)
        v = !strcmp(g->value_info[i]->name, name) ? g->value_info[i] : NULL;
    return v && v->type && v->type->value_case == TYPE_PROTO__VALUE_TENSOR_TYPE
               ? v->type->tensor_type->shape
               : NULL;
}

/* The only symbol in an expression that the run finds; NULL: none, or several. */
static const struct var *only_found(struct tgc *t, struct uop *e)
{
    int n;
    const struct var *found = NULL;
    struct uop **part = uop_toposort(t, &e, 1, &n);
    for (int i = 0; i < n; i++) {
        if (part[i]->op != OP_VAR)
            continue;
        const struct var *v = part[i]->arg.p;
        if (found || !v->is_found)
            return NULL;
        found = v;
    }
    return found;
}

static bool value_at(struct tgc *t, const struct uop *e, const struct var *v, int64_t at,
                     int64_t *value)
{
    struct mem_mark mark = scratch_mark(t);
    int64_t *all = scratch_array(t, (size_t)v->id + 1, sizeof *all);
    all[v->id] = at;
    bool ok = sym_eval(e, all, v->id + 1, value);
    scratch_release(t, mark);
    return ok;
}

/* The interval lo .. hi of v with e(v) = c, for an e that is monotone in v; false: it is empty, or
 * e is not. */
static bool solve(struct tgc *t, const struct uop *e, const struct var *v, int64_t c, int64_t *lo,
                  int64_t *hi)
{
    int64_t at_min, at_max, value;
    if (!value_at(t, e, v, v->min, &at_min) || !value_at(t, e, v, v->max, &at_max) ||
        at_min == at_max)
        return false;
    bool falls = at_max < at_min;
    *lo = v->min;
    *hi = v->max;
    for (int side = 0; side < 2; side++) {      /* the first v with e(v) >= c, the last with <= c */
        int64_t from = v->min, to = v->max;
        while (from < to) {
            int64_t mid = from + (to - from + side) / 2;
            if (!value_at(t, e, v, mid, &value))
                return false;
            bool beyond = falls ? value <= c : value >= c;
            if (side)
                beyond = falls ? value < c : value > c;
            if (beyond)
                to = mid - side;
            else
                from = mid + !side;
        }
        *(side ? hi : lo) = from;
    }
    return value_at(t, e, v, *lo, &value) && value == c && value_at(t, e, v, *hi, &value) &&
           value == c && (*lo == v->min || (value_at(t, e, v, *lo - 1, &value) && value != c)) &&
           (*hi == v->max || (value_at(t, e, v, *hi + 1, &value) && value != c));
}

static bool has_found(const struct uop *u)
{
    for (int a = 0; a < u->ndim; a++)
        if (u->dim[a]->op != OP_CONST)
            return true;
    return false;
}

void lower_learn(struct lower *l, const struct scope *s, const char *name, const struct uop *u)
{
    if (!l->nfound || !has_found(u) || !s->graph)
        return;
    const TensorShapeProto *shape = declared_shape(s->graph, name);
    if (!shape || (int)shape->n_dim != u->ndim)
        return;
    for (int a = 0; a < u->ndim; a++) {
        const TensorShapeProto__Dimension *d = shape->dim[a];
        const struct var *v = only_found(l->t, u->dim[a]);
        int64_t lo, hi;
        if (!v)
            continue;
        if (d->value_case == TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0) {
            if (solve(l->t, u->dim[a], v, d->dim_value, &lo, &hi) &&
                (hi < v->max || v->max < OPEN_MAX))
                learn(l, (struct fact){v->name, FACT_VALUE, lo, hi, NULL});
        } else if (d->value_case == TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
                   *d->dim_param && u->dim[a]->op == OP_VAR) {
            bool input = lower_dim_named(l, d->dim_param) != NULL;
            if (input && v->max >= OPEN_MAX)
                learn(l, (struct fact){v->name, FACT_SAME, 0, 0, d->dim_param});
            else if (!input)
                learn(l, (struct fact){v->name, FACT_ALIAS, 0, 0, d->dim_param});
        }
    }
}

bool node_learn_shape(const struct node *n, int k, struct uop *const *dim, int ndim)
{
    struct uop shape = {.ndim = ndim, .dim = (struct uop **)(uintptr_t)dim};
    bool before = n->lower->learned;
    n->lower->learned = false;
    if (k < (int)n->proto->n_output)
        lower_learn(n->lower, n->scope, n->proto->output[k], &shape);
    bool now = n->lower->learned;
    n->lower->learned |= before;
    return now;
}

int64_t lower_declared_dim(const GraphProto *g, const char *name, int axis)
{
    const TensorShapeProto *shape = g ? declared_shape(g, name) : NULL;
    if (!shape || axis >= (int)shape->n_dim ||
        shape->dim[axis]->value_case != TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
        return -1;
    return shape->dim[axis]->dim_value;
}

int64_t node_declared_dim(const struct node *n, int k, int axis)
{
    return k < (int)n->proto->n_output
               ? lower_declared_dim(n->scope->graph, n->proto->output[k], axis)
               : -1;
}

int64_t node_bound(const struct node *n, int k, int axis, int64_t most)
{
    struct lower *l = n->lower;
    const char *name = node_output_dim_name(n, k, axis);
    const struct onnx_dim_option *o = option_of(l, name);
    const TensorShapeProto *shape = n->scope->graph && k < (int)n->proto->n_output
                                        ? declared_shape(n->scope->graph, n->proto->output[k])
                                        : NULL;
    int64_t declared = node_declared_dim(n, k, axis);
    struct uop *same = NULL;
    if (shape && axis < (int)shape->n_dim &&
        shape->dim[axis]->value_case == TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM) {
        learn(l, (struct fact){name, FACT_ALIAS, 0, 0, shape->dim[axis]->dim_param});
        same = lower_dim_named(l, shape->dim[axis]->dim_param);
        o = o ? o : option_of(l, name);
    }
    int64_t bound = o ? o->max : declared >= 0 ? declared : same ? same->vmax : most;
    if (bound < OPEN_MAX)
        return bound;
    if (l->options && l->options->default_max > 0)
        return l->options->default_max;
    const struct fact *alias = fact_find(l, name, FACT_ALIAS);
    struct text option = {.t = n->t};
    put_dim_option(&option, alias ? alias->dim : name, "..8");
    node_error(
        n, -1,
        "axis %d of output %d is known only at run time, and nothing bounds it; give a bound (a "
        "larger one is a status at run time) with\n   %s",
        axis, k, option.s);
    return -1;
}

bool lower_fits_declared(const struct node *n, int k, const struct uop *u)
{
    const char *name = k < (int)n->proto->n_output ? n->proto->output[k] : "";
    const TensorShapeProto *shape = n->scope->graph ? declared_shape(n->scope->graph, name) : NULL;
    if (!shape || !u)
        return true;
    if ((int)shape->n_dim != u->ndim)
        return false;
    for (int a = 0; a < u->ndim; a++) {
        const TensorShapeProto__Dimension *d = shape->dim[a];
        if (d->value_case == TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0 &&
            (d->dim_value < u->dim[a]->vmin || d->dim_value > u->dim[a]->vmax))
            return false;
    }
    return true;
}

/* ----------------------------------------------------------------------------------- at the end */

struct walk { struct uop **stack; size_t cap; int depth; uint32_t mark; };

static void walk_push(struct lower *l, struct walk *w, struct uop *u)
{
    if (u->mark == w->mark)
        return;
    u->mark = w->mark;
    VEC_PUSH(l->t, w->stack, w->depth, w->cap, u);
}

/* The next uop, after pushing all that it needs: sources, dimensions, and the host calls of
 * symbols. */
static struct uop *walk_next(struct lower *l, struct walk *w)
{
    if (!w->depth)
        return NULL;
    struct uop *u = w->stack[--w->depth];
    const struct host_call *h = u->op == OP_HOST ? u->arg.p : NULL;
    for (int k = 0; k < u->nsrc; k++)
        walk_push(l, w, u->src[k]);
    for (int k = 0; k < u->ndim; k++)
        walk_push(l, w, u->dim[k]);
    for (int k = 0; h && k < h->nparam; k++)
        walk_push(l, w, h->param[k]);
    for (int i = 0; i < l->nhost && u->op == OP_VAR; i++) {
        const struct host_call *finder = l->host[i]->arg.p;
        for (int k = 0; k < finder->nresult; k++)
            if (finder->result[k] == u->arg.p)
                walk_push(l, w, l->host[i]);
    }
    return u;
}

bool lower_depends_on(struct lower *l, struct uop *u, const struct loop *loop)
{
    struct walk w = {.mark = ++l->t->mark};
    if (u->op == OP_CONST)
        return false;
    walk_push(l, &w, u);
    while ((u = walk_next(l, &w))) {
        bool of_it = (u->op == OP_VAR && u->arg.p == loop->counter) ||
                     (u->op == OP_PARAM && ((const struct loop_param *)u->arg.p)->loop == loop);
        if (of_it)
            return true;
    }
    return false;
}

/* Marks everything that a run needs, by t->mark. */
static void mark_needed(struct lower *l, const struct graph *g)
{
    struct walk w = {.mark = ++l->t->mark};
    for (int i = 0; i < g->noutput; i++)
        walk_push(l, &w, g->output[i].value);
    for (int i = 0; i < l->nhost; i++)
        if (uop_is_check(l->host[i]))
            walk_push(l, &w, l->host[i]);
    while (walk_next(l, &w))
        continue;
}

static void list_open(struct lower *l, bool all, struct text *what, struct text *bound, int *count)
{
    *count = 0;
    for (int i = 0; i < l->nfound; i++) {
        const struct found *f = &l->found[i];
        if (!f->open || (!all && f->symbol->mark != l->t->mark))
            continue;
        const struct fact *alias = fact_find(l, f->name, FACT_ALIAS);
        const char *name = alias ? alias->dim : f->name;
        text_printf(what, "%s'%s' (%s)", (*count)++ ? ", " : "", name, f->at.text);
        put_dim_option(bound, name, "..8");
    }
}

bool lower_close_found(struct lower *l, struct graph *g)
{
    struct text what = {.t = l->t}, bound = {.t = l->t};
    int count;
    struct place at = onnx_place_model(l->model);
    mark_needed(l, g);
    list_open(l, false, &what, &bound, &count);
    if (count)
        return diag_error(l->t, &at,
                          "%s known only at run time, and nothing bounds %s: %s; give %s (a larger "
                          "one is a status at run time) with\n   %s",
                          count == 1 ? "this dimension is" : "these dimensions are",
                          count == 1 ? "it" : "them", what.s,
                          count == 1 ? "a bound" : "bounds", bound.s);
    for (int i = 0; i < l->nhost; i++)
        if (l->host[i]->mark == l->t->mark)
            g->nhost++;
    g->host = mem_array(l->t, (size_t)g->nhost + 1, sizeof(struct uop *));
    for (int i = 0, k = 0; i < l->nhost; i++)
        if (l->host[i]->mark == l->t->mark)
            g->host[k++] = l->host[i];
    return true;
}

void lower_hint_found(struct lower *l)
{
    struct text what = {.t = l->t}, bound = {.t = l->t};
    int count;
    struct place at = onnx_place_model(l->model);
    list_open(l, true, &what, &bound, &count);
    if (count)
        diag_warn(
            l->t, &at,
            "known only at run time: %s; if the model only holds together for some sizes, fix "
            "or bound them, as with\n   %s",
            what.s, bound.s);
}
