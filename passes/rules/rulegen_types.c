/* rulegen_types.c - checks a rule that rulegen.c has read. Dtypes are inferred by unification, so
 * that `x < y` needs one class check and a right side knows what to build; names and the patterns
 * in guards must occur on the left side.
 */
#include "passes/rules/rulegen.h"

#include <string.h>

/* Ops by name, for infer_op(). */
enum {
#define OP(name, text, class, nsrc, arg) GEN_##name,
#include "ir/ops.def"
#undef OP
    GEN_COUNT
};

int gen_type(struct rule *r, int type)
{
    while (r->type_of[type] != type)
        type = r->type_of[type];
    return type;
}

static void unify(struct rule *r, int a, int b, const char *at)
{
    a = gen_type(r, a);
    b = gen_type(r, b);
    if (a == b)
        return;
    if (a < TYPE_FREE && b < TYPE_FREE)
        rule_error(at, "a bool where an integer is needed, or the reverse");
    r->type_of[a < b ? b : a] = a < b ? a : b;
}

static int fresh(struct rule *r, const char *at)
{
    if (r->ntype == MAX_NODE)
        rule_error(at, "a rule of more than %d parts", MAX_NODE);
    r->type_of[r->ntype] = r->ntype;
    return r->ntype++;
}

static struct node *find_name(struct node *n, const char *name)
{
    if ((n->kind == NODE_VAR || n->kind == NODE_CONST) && !strcmp(n->name, name))
        return n;
    for (int i = 0; i < n->nchild; i++) {
        struct node *found = find_name(n->child[i], name);
        if (found)
            return found;
    }
    return NULL;
}

static void infer_op(struct rule *r, struct node *n)
{
    int t = n->type;
    switch (n->op) {
    case GEN_LT: case GEN_EQ: case GEN_NE:
        unify(r, t, TYPE_BOOL, n->at);
        unify(r, n->child[0]->type, n->child[1]->type, n->at);
        break;
    case GEN_WHERE:
        unify(r, n->child[0]->type, TYPE_BOOL, n->child[0]->at);
        unify(r, n->child[1]->type, n->child[2]->type, n->at);
        unify(r, n->child[1]->type, t, n->at);
        break;
    case GEN_ISNAN: unify(r, t, TYPE_BOOL, n->at); break;
    case GEN_CAST:
    case GEN_BITCAST:
    case GEN_NEAREST: break;
    case GEN_LOAD:
        unify(r, n->child[1]->type, TYPE_INDEX, n->at);
        if (n->nchild == 4) {
            unify(r, n->child[2]->type, TYPE_BOOL, n->at);
            unify(r, n->child[3]->type, t, n->at);
        }
        break;
    case GEN_RESHAPE: case GEN_PERMUTE: case GEN_EXPAND: case GEN_SHRINK: case GEN_FLIP:
    case GEN_PAD: case GEN_WINDOW:
    case GEN_CONTIGUOUS: unify(r, n->child[0]->type, t, n->at); break;
    case GEN_IOTA: case GEN_CONCAT: case GEN_RANGE: case GEN_IF: case GEN_GET: case GEN_LOOP:
    case GEN_HOST: break;
    default:
        for (int i = 0; i < n->nchild; i++)
            unify(r, n->child[i]->type, t, n->at);
    }
}

static void infer(struct rule *r, struct node *n, bool left)
{
    if (!left && n->id >= 0)
        return;                               /* a named part of the left side */
    struct node *bound =
        n->kind == NODE_VAR || n->kind == NODE_CONST ? find_name(r->lhs, n->name) : NULL;
    if (bound && bound != n && bound->type >= 0) {
        n->type = bound->type;
        return;
    }
    if (!left && (n->kind == NODE_VAR || n->kind == NODE_CONST))
        rule_error(n->at, "'%s' does not stand on the left side", n->name);
    if (n->type < 0)
        n->type = fresh(r, n->at);
    for (int i = 0; i < n->nchild; i++)
        infer(r, n->child[i], left);
    if (n->kind == NODE_OP)
        infer_op(r, n);
}

static bool same_pattern(const struct node *a, const struct node *b)
{
    if (a->kind != b->kind || a->nchild != b->nchild || a->op != b->op || a->i != b->i ||
        a->rest != b->rest)
        return false;
    if ((a->kind == NODE_VAR || a->kind == NODE_CONST) && strcmp(a->name, b->name))
        return false;
    for (int i = 0; i < a->nchild; i++)
        if (!same_pattern(a->child[i], b->child[i]))
            return false;
    return true;
}

static struct node *find_pattern(struct node *in, const struct node *pattern)
{
    if (same_pattern(in, pattern))
        return in;
    for (int i = 0; i < in->nchild; i++) {
        struct node *found = find_pattern(in->child[i], pattern);
        if (found)
            return found;
    }
    return NULL;
}

/* Names in a guard, and patterns that are arguments of its functions, must occur on the left
 * side. */
static void check_guard(struct rule *r, struct node *n)
{
    if (n->kind == NODE_VAR)
        rule_error(n->at,
                   "a guard computes with integers: '%s' is a uop; vmin(), vmax() give its bounds",
                   n->name);
    if (n->kind == NODE_CONST && !find_name(r->lhs, n->name))
        rule_error(n->at, "'%s' does not stand on the left side", n->name);
    const char *args = n->kind == NODE_CALL ? gen_guard_args(n->name) : NULL;
    if (args && gen_guard_asks(n->name) && !r->set)
        rule_error(n->at, "'%s' needs what a pass knows: it has its place in a named set", n->name);
    for (int i = 0; i < n->nchild; i++) {
        if (!args || args[i] == 'i') {
            check_guard(r, n->child[i]);
            continue;
        }
        struct node *found = find_pattern(r->lhs, n->child[i]);
        n->outer |= (uint32_t)n->child[i]->moved << i;
        if (!found)
            rule_error(n->child[i]->at, "this does not stand on the left side");
        n->child[i] = found;
    }
}

static bool has_type(struct rule *r, const struct node *n, int type)
{
    bool found = gen_type(r, n->type) == type;
    for (int i = 0; i < n->nchild && !found; i++)
        found = has_type(r, n->child[i], type);
    return found;
}

/* The dtype of all that a right side builds must occur on the left side. */
static void check_types(struct rule *r, struct node *n)
{
    int type = gen_type(r, n->type);
    bool built = n->kind == NODE_OP || n->kind == NODE_INT || n->kind == NODE_FLOAT;
    if (built && type >= TYPE_FREE && !has_type(r, r->lhs, type))
        rule_error(n->at, "the left side does not say what dtype this has");
    for (int i = 0; i < n->nchild; i++)
        check_types(r, n->child[i]);
}

static void number(struct node *n, int *next)
{
    n->id = (*next)++;
    for (int i = 0; i < n->nchild; i++)
        number(n->child[i], next);
}

const char *gen_class(struct rule *r, const struct node *n, const struct node *in)
{
    int type = gen_type(r, n->type);
    if (type == TYPE_BOOL)
        return "bool";
    if (type == TYPE_INDEX)
        return "index";
    if (in->class && gen_type(r, in->type) == type)
        return in->class;
    for (int i = 0; i < in->nchild; i++) {
        const char *c = gen_class(r, n, in->child[i]);
        if (c)
            return c;
    }
    return in == r->lhs ? r->class : NULL;
}

bool gen_is_float(struct rule *r, const struct node *n)
{
    const char *class = gen_class(r, n, r->lhs);
    return !strcmp(class, "float") || !strcmp(class, "f32");
}

void gen_check(struct rule *r)
{
    int next = 0;
    r->type_of[TYPE_BOOL] = TYPE_BOOL;
    r->type_of[TYPE_INDEX] = TYPE_INDEX;
    r->ntype = TYPE_FREE;
    infer(r, r->lhs, true);
    number(r->lhs, &next);
    infer(r, r->rhs, false);
    if (r->rhs->kind != NODE_CALL)
        unify(r, r->lhs->type, r->rhs->type, r->rhs->at);
    check_types(r, r->rhs);
    if (r->guard)
        check_guard(r, r->guard);
}
