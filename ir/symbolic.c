/* symbolic.c - integer expressions over dimensions and loop counters: thin builders, equality,
 * evaluation.
 *
 * An expression is an ordinary INDEX-typed uop. Parts of it may be of other dtypes, floats too: it
 * is then what their arithmetic makes of it, wherever it is evaluated. The fold rules
 * (passes/rules/index.rules) bring it to normal form: they expand and order polynomials, so these
 * builders only build.
 */
#include "ir/ir.h"

#include <stdlib.h>

/* clang-format off */
struct uop *sym_add(struct tgc *t, struct uop *a, struct uop *b)
{ return uop_binary(t, OP_ADD, a, b); }
struct uop *sym_sub(struct tgc *t, struct uop *a, struct uop *b)
{ return uop_binary(t, OP_SUB, a, b); }
struct uop *sym_mul(struct tgc *t, struct uop *a, struct uop *b)
{ return uop_binary(t, OP_MUL, a, b); }
struct uop *sym_div(struct tgc *t, struct uop *a, struct uop *b)
{ return uop_binary(t, OP_FLOORDIV, a, b); }
struct uop *sym_mod(struct tgc *t, struct uop *a, struct uop *b)
{ return uop_binary(t, OP_FLOORMOD, a, b); }
struct uop *sym_addi(struct tgc *t, struct uop *a, int64_t b)
{ return sym_add(t, a, uop_int(t, b)); }
struct uop *sym_muli(struct tgc *t, struct uop *a, int64_t b)
{ return sym_mul(t, a, uop_int(t, b)); }
struct uop *sym_min(struct tgc *t, struct uop *a, struct uop *b)
{ return uop_binary(t, OP_MIN, a, b); }
struct uop *sym_max(struct tgc *t, struct uop *a, struct uop *b)
{ return uop_binary(t, OP_MAX, a, b); }
struct uop *sym_lt(struct tgc *t, struct uop *a, struct uop *b)
{ return uop_binary(t, OP_LT, a, b); }
struct uop *sym_and(struct tgc *t, struct uop *a, struct uop *b)
{ return uop_binary(t, OP_AND, a, b); }
/* clang-format on */

struct uop *sym_ceildiv(struct tgc *t, struct uop *a, int64_t b)
{
    return sym_div(t, sym_addi(t, a, b - 1), uop_int(t, b));
}

struct uop *sym_prod(struct tgc *t, struct uop *const *v, int n)
{
    struct uop *r = uop_int(t, 1);
    for (int i = 0; i < n; i++)
        r = sym_mul(t, r, v[i]);
    return r;
}

bool sym_equal(struct tgc *t, struct uop *a, struct uop *b)
{
    return a == b || uop_is_int(sym_sub(t, a, b), 0);
}

bool sym_must_equal(struct tgc *t, struct uop *a, struct uop *b)
{
    return sym_must_broadcast(t, a, b, 0) == SIZES_EQUAL;
}

enum agreement sym_must_broadcast(struct tgc *t, struct uop *a, struct uop *b, int stretch)
{
    return sym_equal(t, a, b) ? SIZES_EQUAL
           : t->agree         ? t->agree(t, t->agree_ctx, a, b, stretch)
                              : SIZES_DIFFER;
}

/* Post-order over an explicit stack: a frame gathers its sources' values. */
struct frame {
    const struct uop *u;
    int next;
    union scalar v[3];
};

static bool eval_leaf(const struct uop *u, const int64_t *value, int nvalue, union scalar *r)
{
    if (u->op == OP_CONST) {
        r->i = u->arg.i;
        return true;
    }
    if (u->op != OP_VAR)
        return false;
    const struct var *v = u->arg.p;
    if (v->id < 0 || v->id >= nvalue)
        return false;
    r->i = value[v->id];
    return true;
}

static bool eval_apply(const struct frame *f, union scalar *r)
{
    const struct uop *u = f->u;
    if (!op_is_elementwise(u->op))
        return false;
    return scalar_apply(u->op, u->dtype, u->src[u->op == OP_WHERE]->dtype, f->v, r);
}

bool sym_eval(const struct uop *u, const int64_t *value, int nvalue, int64_t *result)
{
    size_t depth = 0, cap = 64;
    struct frame *stack = malloc(cap * sizeof *stack);
    union scalar r = {0};
    bool ok = stack != NULL;
    if (ok)
        stack[depth++] = (struct frame){.u = u};
    while (ok && depth) {
        struct frame *f = &stack[depth - 1];
        if (f->u->nsrc > 3) {
            ok = false;
        } else if (f->next < f->u->nsrc) {
            if (depth == cap) {
                struct frame *grown = realloc(stack, (cap *= 2) * sizeof *stack);
                ok = grown != NULL;
                stack = ok ? grown : stack;
            }
            if (ok) {
                const struct frame *top = &stack[depth - 1];
                stack[depth++] = (struct frame){.u = top->u->src[top->next]};
            }
        } else {
            ok = f->u->nsrc ? eval_apply(f, &r) : eval_leaf(f->u, value, nvalue, &r);
            if (--depth)
                stack[depth - 1].v[stack[depth - 1].next++] = r;
        }
    }
    free(stack);
    if (ok)
        *result = r.i;
    return ok;
}
