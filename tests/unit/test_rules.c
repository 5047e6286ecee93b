/* test_rules.c - every rewrite rule, fired from its own left side and compared by evaluation.
 *
 * rulegen writes the left sides as data (rules_table.inc). For each rule, instances are built from
 * random operands: scalars or tensors, of random dtypes of the rule's class, integers with bounds,
 * floats with NaN, infinities and both zeros. Inner nodes are built as any builder does, so a rule
 * whose left side is never in normal form never fires, and that fails. Where the rule fires, both
 * sides are evaluated at random values: bit for bit, except under fast_math, which gets tame floats
 * and a tolerance. A rule of a named set is asked as a pass does, with what is known of bounds; its
 * sides may differ as rules.def says of the set. */
#include "passes/analysis/rule_facts.h"
#include "passes/passes.h"
#include "passes/rules/rules.h"
#include "tests/unit/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum node_kind { NODE_VAR, NODE_CONST, NODE_INT, NODE_FLOAT, NODE_OP };
struct rule_node {
    enum node_kind kind;
    int op, nchild, rest, child[6];
    int moved;  /* may be under movement ops */
    int spread; /* a constant that may be repeated */
    const char *name, *class;
    int type;
    int64_t i;
    double f;
};
struct rule_info {
    const char *name, *file;
    int line, level, root, set; /* set: -1: fires when a uop is built */
};
#include "rules_table.inc"

enum equality { EXACT, ZERO, ROUNDED };
static const enum equality set_equal[] = {
#define RULE_SET(name, equal, build, text) equal,
#include "passes/rules/rules.def"
};

enum {
    NRULE = sizeof rule_infos / sizeof *rule_infos,
    TRIES = 30000,    /* instances tried per rule at most */
    WANTED = 60,      /* fired instances per rule */
    SAMPLES = 12,     /* evaluations of each */
    PER_COMPILE = 100 /* instances built in one struct tgc */
};

/* ---- evaluation: VARs and RANGEs by number, memory by a hash of (buffer, offset, sample) */

struct env {
    struct tgc *t;
    uint64_t seed;
    bool tame; /* floats of moderate size, > 0 */
    int64_t var[64], range[64];
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return x ^ x >> 32;
}

static union scalar memory(const struct env *e, const struct buffer *b, int64_t offset)
{
    static const double specials[] = {0.0, -0.0, 1.0,    -1.0,    INFINITY, -INFINITY,
                                      NAN, 0.5,  1e-320, -2.5e-7, 3e38,     -65504.0};
    struct random r = {mix(e->seed ^ mix((uint64_t)b->id * 8191 + (uint64_t)offset)) | 1};
    union scalar v = {.i = 0};
    if (b->kind == BUFFER_WEIGHT)
        return scalar_load(b->dtype,
                           (const char *)b->weight.data + (size_t)offset * dtype_nbytes(b->dtype));
    pick(&r, 2);
    if (dtype_is_float(b->dtype)) {
        double f = pick(&r, 3) ? (double)between(&r, -80, 80) / 8 : specials[pick(&r, 12)];
        if (e->tame)
            f = 0.5 + (double)pick(&r, 1000) / 800;
        return scalar_cast(b->dtype, DTYPE_F64, (union scalar){.f = f});
    }
    v.i = pick(&r, 3) ? between(&r, -9, 9) : (int64_t)mix(r.s);
    return scalar_cast(b->dtype, DTYPE_I64,
                       b->dtype == DTYPE_BOOL ? (union scalar){.i = v.i & 1} : v);
}

static bool value(struct env *e, struct uop *u, const int64_t *at, union scalar *r);

static bool value_int(struct env *e, struct uop *u, int64_t *v)
{
    union scalar r;
    bool ok = value(e, u, NULL, &r);
    *v = r.i;
    return ok;
}

static bool value_load(struct env *e, struct uop *u, union scalar *r)
{
    int64_t offset, valid = 1;
    if (u->nsrc > 2 && !value_int(e, u->src[2], &valid))
        return false;
    if (!valid)
        return value(e, u->src[3], NULL, r);
    if (!value_int(e, u->src[1], &offset))
        return false;
    *r = memory(e, uop_buffer_of(u->src[0]), offset);
    return true;
}

/* Of all elements of a source of one axis: what byte_products() makes. */
static bool value_sum(struct env *e, struct uop *u, union scalar *r)
{
    union scalar v;
    int64_t n;
    assert_true(REDUCE_OP(u->arg.i) == OP_ADD && u->src[0]->ndim == 1 &&
                uop_const_int(u->src[0]->dim[0], &n));
    r->f = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!value(e, u->src[0], &i, &v))
            return false;
        r->f = scalar_cast(u->dtype, DTYPE_F64, (union scalar){.f = r->f + v.f}).f;
    }
    return true;
}

static bool value_move(struct env *e, struct uop *u, const int64_t *at, union scalar *r)
{
    struct uop *index[MAX_RANK], *src_index[MAX_RANK], *valid;
    int64_t src_at[MAX_RANK], ok;
    if (u->op == OP_IOTA) {
        r->i = at[0];
        return true;
    }
    for (int a = 0; a < u->ndim; a++)
        index[a] = uop_int(e->t, at[a]);
    for (int k = 0; k < (u->op == OP_CONCAT ? u->nsrc : 1); k++) {
        move_index(e->t, u, k, index, src_index, &valid);
        if (!value_int(e, valid, &ok))
            return false;
        for (int a = 0; ok && a < u->src[k]->ndim; a++)
            if (!value_int(e, src_index[a], &src_at[a]))
                return false;
        if (ok)
            return value(e, u->src[k], src_at, r);
    }
    assert_int_equal(u->op, OP_PAD);
    return value(e, u->src[1], NULL, r);
}

/* false: the IR leaves the value open. */
static bool value(struct env *e, struct uop *u, const int64_t *at, union scalar *r)
{
    union scalar v[3];
    switch (u->op) {
    case OP_CONST: r->i = u->arg.i; return true;
    case OP_VAR: r->i = e->var[((const struct var *)u->arg.p)->id]; return true;
    case OP_RANGE: r->i = e->range[u->arg.i]; return r->i >= 0;
    case OP_LOAD: return value_load(e, u, r);
    case OP_CONTIGUOUS: return value(e, u->src[0], at, r);
    case OP_GET: {
        struct uop *choice = u->src[0];
        return value(e, choice->src[0], NULL, v) &&
               value(e, choice->src[1 + u->arg.i + (v[0].i ? 0 : choice->arg.i)], at, r);
    }
    case OP_BUFFER: {
        int64_t offset = 0, n;
        for (int a = 0; a < u->ndim; a++) {
            if (!value_int(e, u->dim[a], &n))
                return false;
            offset = offset * n + at[a];
        }
        *r = memory(e, u->arg.p, offset);
        return true;
    }
    case OP_NEAREST:
        if (!value(e, u->src[0], at, v))
            return false;
        *r = scalar_cast(u->dtype, u->src[0]->dtype, (union scalar){.f = rint(v[0].f)});
        return true;
    case OP_MULACC:
        for (int i = 0; i < 3; i++)
            if (!value(e, u->src[i], u->src[i]->ndim ? at : NULL, &v[i]))
                return false;
        *r = scalar_cast(u->dtype, DTYPE_F64, (union scalar){.f = v[0].f * v[1].f + v[2].f});
        return true;
    case OP_REDUCE: return value_sum(e, u, r);
    default: break;
    }
    if (op_class(u->op) == CLASS_MOVE)
        return value_move(e, u, at, r);
    if (u->op == OP_STACK) {
        if (!value(e, u->src[0], u->src[0]->ndim ? at : NULL, &v[0]))
            return false;
        int64_t k = v[0].i < 0 ? 0 : v[0].i < u->nsrc - 1 ? v[0].i : u->nsrc - 2;
        return value(e, u->src[1 + k], u->src[1 + k]->ndim ? at : NULL, r);
    }
    assert_true(op_is_elementwise(u->op));
    for (int i = 0; i < u->nsrc; i++)
        if (!value(e, u->src[i], u->src[i]->ndim ? at : NULL, &v[i]))
            return false;
    return scalar_apply(u->op, u->dtype, u->src[u->op == OP_WHERE]->dtype, v, r);
}

/* ---- operands */

struct builder {
    struct tgc *t;
    struct random r;
    bool tensor, tame;
    bool bounded; /* floats of which something is known */
    struct uop *var[3], *range[4], *dim[2];
    enum dtype dtype[64]; /* by the rule's dtype variables */
};

static void builder_symbols(struct builder *b)
{
    struct tgc *t = b->t;
    for (int i = 0; i < 3; i++) {
        int64_t lo = i < 2 ? pick(&b->r, 2) : between(&b->r, -4, 2);
        b->var[i] = uop_var(t, var_new(t, "n", lo, lo + between(&b->r, 1, 8)));
    }
    for (int i = 0; i < 4; i++) {
        struct uop *size = i < 2 ? b->var[i] : uop_int(t, between(&b->r, 2, 9));
        b->range[i] = uop_range(t, size, i);
    }
    b->dim[0] = uop_int(t, 2);
    b->dim[1] = uop_int(t, 3);
}

static struct uop *small(struct builder *b) { return uop_int(b->t, between(&b->r, -3, 12)); }

static struct uop *index_leaf(struct builder *b, int depth)
{
    static const enum op ops[] = {OP_ADD,      OP_ADD,      OP_MUL, OP_MUL, OP_SUB,
                                  OP_FLOORDIV, OP_FLOORMOD, OP_MIN, OP_MAX};
    if (depth == 0 || pick(&b->r, 3) == 0)
        return pick(&b->r, 3) ? b->range[pick(&b->r, 4)] : b->var[pick(&b->r, 3)];
    struct uop *x = index_leaf(b, depth - 1);
    struct uop *y = pick(&b->r, 2) ? small(b) : index_leaf(b, depth - 1);
    return uop_binary(b->t, ops[pick(&b->r, 9)], x, y);
}

static struct uop *scalar_buffer(struct builder *b, enum dtype d)
{
    return uop_buffer(b->t, buffer_new(b->t, BUFFER_INPUT, d, NULL, 0, "x"));
}

static struct uop *constant(struct builder *b, enum dtype d)
{
    static const double floats[] = {2, -0.5, 0.25, 1, 0, -0.0, 3, -1, 0.1, 1024};
    if (dtype_is_float(d)) {
        double f = floats[pick(&b->r, 10)];
        return uop_constf(b->t, d, b->tame && !(f > 0) ? 1.5 : f);
    }
    return uop_consti(b->t, d,
                      d == DTYPE_BOOL  ? pick(&b->r, 2)
                      : pick(&b->r, 8) ? between(&b->r, -4, 12)
                                       : (int64_t)1 << pick(&b->r, 62));
}

/* A byte as a float, or what is made of one: a number, often a whole one. */
/* A sum of three products of bytes, without their scales. */
static struct uop *byte_products(struct builder *b)
{
    struct uop *dim = uop_int(b->t, 3), *factor[2];
    for (int k = 0; k < 2; k++) {
        struct buffer *bytes =
            buffer_new(b->t, BUFFER_INPUT, k ? DTYPE_I8 : DTYPE_U8, &dim, 1, k ? "y" : "x");
        factor[k] = uop_cast(b->t, DTYPE_F32, uop_buffer(b->t, bytes));
    }
    return tensor_sum(b->t, uop_binary(b->t, OP_MUL, factor[0], factor[1]), 1, false);
}

static struct uop *bounded_float(struct builder *b)
{
    if (b->bounded && pick(&b->r, 8) == 0)
        return byte_products(b);
    enum dtype byte = pick(&b->r, 2) ? DTYPE_U8 : DTYPE_I8;
    struct uop *x = uop_cast(b->t, DTYPE_F32, scalar_buffer(b, byte));
    switch (pick(&b->r, 4)) {
    case 0: return uop_binary(b->t, OP_MUL, x, constant(b, DTYPE_F32));
    case 1:
        x = uop_binary(b->t, OP_MUL, x, uop_constf(b->t, DTYPE_F32, pick(&b->r, 2) ? 0.3 : 4e5));
        return uop_unary(b->t, OP_ROUND, x);
    default: return x;
    }
}

/* Of the instance's shape, or a scalar. */
static struct uop *weight(struct builder *b)
{
    int64_t n = b->tensor ? b->dim[0]->arg.i * b->dim[1]->arg.i : 1;
    float *v = mem_array(b->t, (size_t)n, sizeof *v);
    struct buffer *w = buffer_new(b->t, BUFFER_WEIGHT, DTYPE_F32, b->dim, b->tensor ? 2 : 0, "w");
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)between(&b->r, -80, 80) / 8;
    w->weight.data = v;
    w->nbytes = (size_t)n * sizeof *v;
    return uop_buffer(b->t, w);
}

/* Any uop of the dtype: unknown memory, or an integer with bounds; of the instance's shape if it is
 * a tensor. */
static struct uop *operand(struct builder *b, enum dtype d)
{
    struct tgc *t = b->t;
    if (d == DTYPE_F32 && b->bounded && pick(&b->r, 8) == 0)
        return weight(b);
    if (d == DTYPE_F32 && pick(&b->r, b->bounded ? 3 : 6) > (b->bounded ? 0 : 4))
        return bounded_float(b);
    if (b->tensor && pick(&b->r, 3))
        return uop_buffer(t, buffer_new(t, BUFFER_INPUT, d, b->dim, 2, "x"));
    if (d == DTYPE_BOOL && pick(&b->r, 2)) {
        struct uop *c = sym_lt(t, index_leaf(b, 1), small(b));
        return pick(&b->r, 3) ? c : uop_not(t, c);
    }
    if (d == DTYPE_INDEX && pick(&b->r, 6))
        return index_leaf(b, (int)pick(&b->r, 3));
    if (dtype_is_int(d) && pick(&b->r, 2))
        return uop_cast(t, d, index_leaf(b, 1));
    if (d == DTYPE_I32 && pick(&b->r, 3) == 0)
        return uop_unary(t, OP_ABS, scalar_buffer(b, d));
    return scalar_buffer(b, d);
}

static enum dtype choose_dtype(struct builder *b, const char *class)
{
    static const enum dtype all[] = {DTYPE_BOOL, DTYPE_I8,  DTYPE_U8,  DTYPE_I32,
                                     DTYPE_U32,  DTYPE_I64, DTYPE_U64, DTYPE_BF16,
                                     DTYPE_F16,  DTYPE_F32, DTYPE_F64};
    if (b->tame && strcmp(class, "f32") && strcmp(class, "byte"))
        return !strcmp(class, "bool") ? DTYPE_BOOL : DTYPE_F64;
    for (;;) {
        enum dtype d = all[pick(&b->r, 11)];
        struct uop like = {.dtype = d};
#define RULE_CLASS(name, text)                                                                     \
    if (!strcmp(class, #name) && rule_is_##name(&like))                                            \
        return d;
#define rule_is_any(u) true
#include "passes/rules/rules.def"
    }
}

/* ---- movement ops with random arguments */

static struct uop *tensor_leaf(struct builder *b, enum dtype d)
{
    struct uop *dim[3];
    int n = 1 + (int)pick(&b->r, 3);
    for (int a = 0; a < n; a++)
        dim[a] = uop_int(b->t, 1 + pick(&b->r, 4));
    if (pick(&b->r, 3) == 0)
        return tensor_full(b->t, pick(&b->r, 2) ? constant(b, d) : scalar_buffer(b, d), dim, n);
    return uop_buffer(b->t, buffer_new(b->t, BUFFER_INPUT, d, dim, n, "x"));
}

static int64_t extent(const struct uop *x, int a) { return x->dim[a]->arg.i; }

static struct uop *random_move(struct builder *b, enum op op, struct uop *x, struct uop *value,
                               bool raw);

static struct uop *moved(struct builder *b, struct uop *x)
{
    static const enum op ops[] = {OP_RESHAPE, OP_PERMUTE, OP_EXPAND, OP_SHRINK,
                                  OP_PAD,     OP_FLIP,    OP_CONCAT};
    return pick(&b->r, 3) ? random_move(b, ops[pick(&b->r, 7)], x, NULL, false) : x;
}

/* Sources first, then one call; `raw`: interned without folding. */
static struct uop *random_move(struct builder *b, enum op op, struct uop *x, struct uop *value,
                               bool raw)
{
    struct tgc *t = b->t;
    struct uop *src[2 + 2 * MAX_RANK] = {x};
    int n = 1, perm[MAX_RANK];
    int64_t bits = 0;
    switch (op) {
    case OP_RESHAPE: {
        int64_t total = 1, k;
        for (int a = 0; a < x->ndim; a++)
            total *= extent(x, a);
        if (pick(&b->r, 4) == 0) {
            for (int a = 0; a < x->ndim; a++)
                src[n++] = x->dim[a];
            break;
        }
        for (k = total; n < 4 && k > 1; k /= src[n++]->arg.i) {
            int64_t f = between(&b->r, 1, k);
            while (k % f)
                f--;
            src[n] = uop_int(t, n == 3 ? k : f);
        }
        if (k > 1)
            src[n++] = uop_int(t, k);
        if (pick(&b->r, 2))
            src[n++] = uop_int(t, 1);
        break;
    }
    case OP_PERMUTE:
        for (int a = 0; a < x->ndim; a++) {
            int k = (int)pick(&b->r, (uint32_t)a + 1);
            perm[a] = perm[k];
            perm[k] = a;
        }
        bits = perm_pack(perm, x->ndim);
        break;
    case OP_EXPAND:
        for (int a = 0; a < x->ndim; a++)
            src[n++] =
                extent(x, a) == 1 && pick(&b->r, 2) ? uop_int(t, 1 + pick(&b->r, 3)) : x->dim[a];
        break;
    case OP_SHRINK:
        for (int a = 0; a < x->ndim; a++) {
            int64_t begin = between(&b->r, 0, extent(x, a) - 1);
            begin = pick(&b->r, 2) ? 0 : begin;
            src[n++] = uop_int(t, begin);
            src[n++] = uop_int(t, pick(&b->r, 2) ? extent(x, a) - begin
                                                 : between(&b->r, 1, extent(x, a) - begin));
        }
        break;
    case OP_PAD:
        src[n++] = value ? value : uop_consti(t, x->dtype, 1);
        for (int a = 0; a < 2 * x->ndim; a++)
            src[n++] = uop_int(t, pick(&b->r, 2) ? 0 : pick(&b->r, 3));
        break;
    case OP_FLIP: bits = pick(&b->r, 1u << x->ndim); break;
    case OP_CONCAT: {
        int axis = (int)pick(&b->r, (uint32_t)x->ndim);
        bits = axis;
        if (pick(&b->r, 3) == 0 && extent(x, axis) > 1) { /* split, to be joined */
            struct uop *begin[MAX_RANK], *size[MAX_RANK];
            for (int part = 0; part < 2; part++) {
                for (int a = 0; a < x->ndim; a++) {
                    begin[a] = uop_int(t, a == axis && part);
                    size[a] = a != axis ? x->dim[a] : uop_int(t, part ? extent(x, a) - 1 : 1);
                }
                src[part] = uop_shrink(t, x, begin, size);
            }
        } else {
            src[1] =
                pick(&b->r, 2)
                    ? x
                    : uop_buffer(t, buffer_new(t, BUFFER_INPUT, x->dtype, x->dim, x->ndim, "y"));
        }
        n = 2;
        break;
    }
    case OP_WINDOW: {
        int axis = (int)pick(&b->r, (uint32_t)x->ndim);
        int64_t stride = between(&b->r, 1, 2), k = between(&b->r, 1, extent(x, axis));
        src[n++] = uop_int(t, (extent(x, axis) - k) / stride + 1);
        src[n++] = uop_int(t, k);
        bits = ARG_PACK(WINDOW, axis, stride, 1);
        break;
    }
    default: break;
    }
    union arg arg = {.i = bits};
    return raw ? uop_intern(t, op, x->dtype, src, n, arg) : uop_new(t, op, x->dtype, src, n, arg);
}

/* ---- instances of left sides */

struct names {
    int n;
    const char *name[16];
    struct uop *u[16];
};

static struct uop *named(struct names *names, const struct rule_node *n, struct uop *fresh)
{
    for (int i = 0; i < names->n; i++)
        if (!strcmp(names->name[i], n->name))
            return names->u[i];
    if (!fresh)
        return NULL;
    names->name[names->n] = n->name;
    names->u[names->n++] = fresh;
    return fresh;
}

static struct uop *instance(struct builder *b, struct names *names, int node, bool raw,
                            enum op parent);
static struct uop *instance_at(struct builder *b, struct names *names, int node, bool raw,
                               enum op parent);

/* A constant of the node, which may be a tensor that repeats it. */
static struct uop *repeated(struct builder *b, const struct rule_node *n, struct uop *c)
{
    return n->spread && b->tensor && pick(&b->r, 2) ? tensor_full(b->t, c, b->dim, 2) : c;
}

static struct uop *instance_leaf(struct builder *b, struct names *names, const struct rule_node *n,
                                 enum op parent)
{
    enum dtype d = b->dtype[n->type];
    struct uop *u = named(names, n, NULL);
    if (u)
        return u;
    if (n->kind == NODE_CONST)
        return named(names, n, repeated(b, n, constant(b, d)));
    if (parent == OP_LOAD)
        u = uop_buffer(b->t, buffer_new(b->t, BUFFER_INPUT, d, b->dim, 2, "x"));
    else if (op_class(parent) == CLASS_MOVE && parent != OP_IOTA)
        u = parent == OP_CONCAT || parent == OP_SHRINK || pick(&b->r, 2)
                ? moved(b, tensor_leaf(b, d))
                : random_move(b, parent, tensor_leaf(b, d), constant(b, d), false);
    else if (parent == OP_IOTA)
        u = uop_int(b->t, 1 + pick(&b->r, 2));
    else
        u = operand(b, d);
    return named(names, n, u);
}

/* Of up to five sources, some of which are the same, by an index of any bounds. */
static struct uop *random_stack(struct builder *b, struct uop *x, bool raw)
{
    struct uop *src[6] = {operand(b, DTYPE_INDEX), x}, *dim[MAX_RANK];
    int n = 2 + (int)pick(&b->r, 5);
    for (int k = 2; k < n; k++)
        src[k] = pick(&b->r, 2) ? src[k - 1] : operand(b, x->dtype);
    if (pick(&b->r, 4) == 0)
        src[0] = uop_int(b->t, between(&b->r, -2, 6));
    for (int a = 0; a < x->ndim; a++)
        dim[a] = x->dim[a];
    if (x->ndim && pick(&b->r, 2))
        src[0] = tensor_full(b->t, uop_int(b->t, between(&b->r, -1, 5)), dim, x->ndim);
    for (int k = 0; k < n; k++)
        if (src[k]->ndim && x->ndim && src[k]->ndim != x->ndim)
            return NULL;
    return raw ? uop_intern(b->t, OP_STACK, x->dtype, src, n, (union arg){0})
               : uop_stack(b->t, src[0], src + 1, n - 1);
}

/* A node under movement ops to the instance's shape: rows or columns that repeat, reversed ones. */
static struct uop *instance_moved(struct builder *b, struct names *names, int node, enum op parent)
{
    struct uop *dim[2] = {b->dim[0], b->dim[1]};
    int form = (int)pick(&b->r, 3);
    if (form < 2)
        b->dim[form] = uop_int(b->t, 1);
    struct uop *u = instance_at(b, names, node, false, parent);
    b->dim[0] = dim[0];
    b->dim[1] = dim[1];
    if (!u || !u->ndim)
        return u;
    return form < 2 ? uop_expand(b->t, u, dim) : uop_flip(b->t, u, 1 + pick(&b->r, 3));
}

static struct uop *instance(struct builder *b, struct names *names, int node, bool raw,
                            enum op parent)
{
    return rule_nodes[node].moved && b->tensor && pick(&b->r, 2)
               ? instance_moved(b, names, node, parent)
               : instance_at(b, names, node, raw, parent);
}

static struct uop *instance_at(struct builder *b, struct names *names, int node, bool raw,
                               enum op parent)
{
    const struct rule_node *n = &rule_nodes[node];
    struct uop *src[6];
    switch (n->kind) {
    case NODE_VAR:
    case NODE_CONST: return instance_leaf(b, names, n, parent);
    case NODE_INT:
    case NODE_FLOAT: return repeated(b, n, rule_number(b->t, b->dtype[n->type], n->i, n->f));
    default: break;
    }
    enum op op = (enum op)n->op;
    bool commute =
        op_is_commutative(op) && pick(&b->r, 2) && rule_nodes[n->child[1]].kind == NODE_VAR;
    for (int i = 0; i < n->nchild; i++) {
        int k = commute ? 1 - i : i;
        enum op role = op == OP_LOAD && k > 0                       ? OP_SINK
                       : (op == OP_PAD || op == OP_WINDOW) && k > 0 ? OP_SINK
                                                                    : op;
        src[k] = instance(b, names, n->child[k], false, role);
        if (!src[k])
            return NULL;
    }
    if (op_class(op) == CLASS_MOVE && op != OP_IOTA) {
        if (op == OP_PAD && (src[1]->ndim || src[1]->dtype != src[0]->dtype))
            return NULL;
        return src[0]->ndim ? random_move(b, op, src[0], op == OP_PAD ? src[1] : NULL, raw) : NULL;
    }
    if (op == OP_CONTIGUOUS && !src[0]->ndim)
        return NULL;
    if (op == OP_STACK)
        return random_stack(b, src[1], raw);
    for (int i = 0; op == OP_LOAD && i < n->nchild; i++)
        if (i && src[i]->ndim)
            return NULL;
    if (op == OP_IF) {
        enum dtype d = choose_dtype(b, "any");
        for (int k = 1; k < 5; k++)
            src[k] = uop_buffer(b->t, buffer_new(b->t, BUFFER_INPUT, d, b->dim, 2, "x"));
        return uop_new(b->t, op, DTYPE_VOID, src, 5, (union arg){.i = 2});
    }
    if (op == OP_GET)
        return uop_intern(b->t, op, src[0]->src[1]->dtype, src, 1,
                          (union arg){.i = pick(&b->r, 2)});
    return raw ? uop_intern(b->t, op, b->dtype[n->type], src, n->nchild, (union arg){0})
               : uop_new(b->t, op, b->dtype[n->type], src, n->nchild, (union arg){0});
}

static struct uop *match_rule(struct tgc *t, const struct rule_info *rule, struct uop *u,
                              int *number)
{
    struct rule_facts facts = {.bounds = {.t = t}, .most = {.t = t, .most = true}};
    return rule->set < 0 ? rewrite_match(t, u, number)
                         : rules_match(t, (enum rule_set)rule->set, &facts, u, number);
}

static bool mentions(int node, enum op op)
{
    const struct rule_node *n = &rule_nodes[node];
    bool found = n->kind == NODE_OP && n->op == (int)op;
    for (int i = 0; i < n->nchild; i++)
        found |= mentions(n->child[i], op);
    return found;
}

static void choose_dtypes(struct builder *b, int node)
{
    const struct rule_node *n = &rule_nodes[node];
    if (b->dtype[n->type] == DTYPE_VOID)
        b->dtype[n->type] = choose_dtype(b, n->class);
    for (int i = 0; i < n->nchild; i++)
        choose_dtypes(b, n->child[i]);
}

/* ---- comparison */

static bool same_value(enum dtype d, union scalar x, union scalar y, bool tame, enum equality as)
{
    if (!dtype_is_float(d))
        return x.i == y.i;
    if (as == ZERO && x.f == y.f)
        return true;
    if (as == ROUNDED)
        return fabs(x.f - y.f) <= 1e-5 * (1 + fabs(x.f));
    if (tame)
        return fabs(x.f - y.f) <= 1e-9 * (1 + fabs(x.f));
    return x.i == y.i || (x.f != x.f && y.f != y.f);
}

static void sample(struct env *e, struct builder *b)
{
    e->seed = b->r.s;
    pick(&b->r, 2);
    for (int i = 0; i < 3; i++) {
        const struct var *v = b->var[i]->arg.p;
        e->var[v->id] = between(&b->r, v->min, v->max);
    }
    for (int i = 0; i < 4; i++) {
        int64_t n = 0;
        assert_true(value_int(e, b->range[i]->src[0], &n));
        e->range[i] = n ? between(&b->r, 0, n - 1) : -1; /* -1: no iteration */
    }
}

static void check_equal(struct builder *b, const struct rule_info *rule, struct uop *left,
                        struct uop *right)
{
    struct env e = {.t = b->t, .tame = b->tame};
    int64_t at[MAX_RANK], n;
    enum equality as = rule->set < 0 ? EXACT : set_equal[rule->set];
    if (left->dtype != right->dtype || left->ndim != right->ndim)
        fail_msg("%s (%s:%d): %s of rank %d became %s of rank %d", rule->name, rule->file,
                 rule->line, dtype_name(left->dtype), left->ndim, dtype_name(right->dtype),
                 right->ndim);
    for (int s = 0; s < SAMPLES; s++) {
        union scalar x, y;
        sample(&e, b);
        for (int a = 0; a < left->ndim; a++) {
            assert_true(sym_equal(b->t, left->dim[a], right->dim[a]));
            assert_true(uop_const_int(left->dim[a], &n) && n > 0);
            at[a] = between(&b->r, 0, n - 1);
        }
        if (!value(&e, left, at, &x) || !value(&e, right, at, &y))
            continue;
        if ((b->tame || as == ROUNDED) && dtype_is_float(left->dtype) &&
            (!isfinite(x.f) || !isfinite(y.f)))
            continue;
        if (!same_value(left->dtype, x, y, b->tame, as))
            fail_msg("%s (%s:%d), %s: %.17g became %.17g (%lld, %lld)", rule->name, rule->file,
                     rule->line, dtype_name(left->dtype), x.f, y.f, (long long)x.i, (long long)y.i);
    }
}

/* Constants and bounds fold before the rules: such an instance says nothing of the rule. */
static bool folds_before(const struct uop *u)
{
    bool constant = op_is_elementwise(u->op), counted = rule_is_int(u) || u->dtype == DTYPE_BOOL;
    for (int i = 0; i < u->nsrc; i++)
        constant &= u->src[i]->op == OP_CONST;
    return constant || (op_is_elementwise(u->op) && counted && u->vmin == u->vmax);
}

static int fire_rule(struct tgc *t, int index, struct random *r, int wanted, int tries)
{
    const struct rule_info *rule = &rule_infos[index];
    struct builder b = {
        .t = t, .r = *r, .tame = rule->level == 2, .bounded = rule->set >= 0};
    int fired = 0;
    builder_symbols(&b);
    for (int k = 0; k < tries && fired < wanted; k++) {
        struct names names = {0};
        int number = -1;
        memset(b.dtype, 0, sizeof b.dtype);
        b.dtype[0] = DTYPE_BOOL;
        b.dtype[1] = DTYPE_INDEX;
        choose_dtypes(&b, rule->root);
        b.tensor =
            pick(&b.r, 3) == 0 && !mentions(rule->root, OP_LOAD); /* LOADs are kernel scalars */
        struct uop *u = instance(&b, &names, rule->root, true, OP_SINK);
        if (!u || folds_before(u))
            continue;
        struct uop *by = match_rule(t, rule, u, &number);
        if (!by || number != index)
            continue;
        fired++;
        check_equal(&b, rule, u, by);
    }
    *r = b.r;
    return fired;
}

/* setjmp() stands in the frame that calls what may jump. */
static int fire_in_a_compile(int index, struct random *r, int wanted)
{
    struct tgc *t = tgc_new(0);
    assert_non_null(t);
    if (setjmp(t->stop))
        fail_msg("%s: %s", rule_infos[index].name,
                 t->ndiag ? t->diag[t->ndiag - 1].message : "stopped");
    passes_init(t);
    t->fast_math = rule_infos[index].level == 2;
    int fired = fire_rule(t, index, r, wanted, PER_COMPILE);
    tgc_free(t);
    return fired;
}

static void every_rule_fires(void **state)
{
    (void)state;
    int nfired = 0;
    for (int i = 0; i < NRULE; i++) {
        struct random r = {(uint64_t)i * 0x9E3779B97F4A7C15u + 12345};
        int fired = 0;
        for (int tries = 0; tries < TRIES && fired < WANTED; tries += PER_COMPILE)
            fired += fire_in_a_compile(i, &r, WANTED - fired);
        if (!fired)
            print_error("%s (%s:%d) never fires\n", rule_infos[i].name, rule_infos[i].file,
                        rule_infos[i].line);
        nfired += fired > 0;
    }
    print_message("figure: %d rules, %d fired\n", NRULE, nfired);
    assert_int_equal(nfired, NRULE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_rule_fires)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
