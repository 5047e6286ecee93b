/* rulegen_emit.c - writes what rulegen.c has read as matchers in C.
 *
 * A matcher is one function per op, of each named set and of what fires when a uop is built; in it,
 * one `do { checks; build; return } while (0)` per rule and variant, in file order. A variant is a
 * way to swap the operands of commutative ops. The first rules put constants on the right, so
 * variants with a constant on the left are not written, nor swaps that give the same rule. */
#include "passes/rules/rulegen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VARIANT = 64 };

static bool is_constant(const struct node *n)
{
    return n->kind == NODE_CONST || n->kind == NODE_INT || n->kind == NODE_FLOAT;
}

static int count_name(const struct node *n, const char *name)
{
    int k = n->kind == NODE_VAR && !strcmp(n->name, name);
    for (int i = 0; i < n->nchild; i++)
        k += count_name(n->child[i], name);
    return k;
}

/* ---- variants */

static bool same_but_swapped(const struct node *a, const struct node *b, const char *x,
                             const char *y)
{
    if (a->kind != b->kind || a->nchild != b->nchild || a->op != b->op || a->i != b->i)
        return false;
    if (a->name && a->kind != NODE_TEST) {
        const char *name = a->kind != NODE_VAR   ? a->name
                           : !strcmp(a->name, x) ? y
                           : !strcmp(a->name, y) ? x
                                                 : a->name;
        if (strcmp(name, b->name))
            return false;
    }
    if (a->nchild == 2 && a->kind == NODE_OP && gen_op_commutes(a->op) &&
        same_but_swapped(a->child[0], b->child[1], x, y) &&
        same_but_swapped(a->child[1], b->child[0], x, y))
        return true;
    for (int i = 0; i < a->nchild; i++)
        if (!same_but_swapped(a->child[i], b->child[i], x, y))
            return false;
    return true;
}

/* Whether swapping the operands of n gives another rule. Helpers handle both orders of plain
 * operands themselves. */
static bool swap_matters(const struct rule *r, const struct node *n)
{
    if (n->kind != NODE_OP || !gen_op_commutes(n->op) || is_constant(n->child[0]) ||
        is_constant(n->child[1]))
        return false;
    const struct node *a = n->child[0], *b = n->child[1];
    if (a->kind != NODE_VAR || b->kind != NODE_VAR)
        return true;
    if (n == r->lhs && r->rhs->kind == NODE_CALL)
        return false;
    if (!strcmp(a->name, b->name))
        return false;
    if (count_name(r->lhs, a->name) > 1 || count_name(r->lhs, b->name) > 1)
        return true;
    return !same_but_swapped(r->rhs, r->rhs, a->name, b->name) ||
           (r->guard && !same_but_swapped(r->guard, r->guard, a->name, b->name));
}

static int collect_swaps(const struct rule *r, struct node *n, struct node **swap, int k)
{
    if (swap_matters(r, n))
        swap[k++] = n;
    for (int i = 0; i < n->nchild; i++)
        k = collect_swaps(r, n->child[i], swap, k);
    return k;
}

static void swap_children(struct node *n)
{
    struct node *c = n->child[0];
    n->child[0] = n->child[1];
    n->child[1] = c;
}

/* ---- matching */

struct writer {
    FILE *f;
    struct rule *r;
    char path[MAX_NODE][64];            /* by node id: the C expression of what it matched */
    char outer[64];                     /* that of the part behind movement, with it */
    const struct node *first[MAX_NODE]; /* names seen so far */
    int nfirst, next;
    bool as_written;                    /* right sides are not simplified */
};

static void match_literal(struct writer *w, const struct node *n, const char *path)
{
    const char *class = gen_class(w->r, n, w->r->lhs);
    if (n->kind == NODE_FLOAT && n->f != n->f)
        fprintf(w->f, "        if (!rule_is_nan(%s)) break;\n", path);
    else if (n->kind == NODE_FLOAT && isinf(n->f))
        fprintf(w->f, "        if (!uop_is_constf(%s, %s)) break;\n", path,
                n->f < 0 ? "-INFINITY" : "INFINITY");
    else if (n->kind == NODE_FLOAT || gen_is_float(w->r, n))
        fprintf(w->f, "        if (!uop_is_constf(%s, %.17g%s)) break;\n", path, n->f,
                n->f == floor(n->f) ? ".0" : "");
    else
        fprintf(w->f, "        if (!%s(%s, %lld)) break;\n",
                strcmp(class, "any") ? "uop_is_int" : "rule_is_number", path, (long long)n->i);
}

static void match_node(struct writer *w, const struct node *n, const char *path)
{
    if (n->moved) {
        snprintf(w->outer, sizeof w->outer, "%.60s", path);
        fprintf(w->f, "        const struct path p = path_down(%s, MOVES_VIEW);\n", path);
        path = "p.base";
    }
    for (int i = 0; (n->kind == NODE_VAR || n->kind == NODE_CONST) && i < w->nfirst; i++)
        if (!strcmp(w->first[i]->name, n->name)) {
            fprintf(w->f, "        if (%s != %s) break;\n", path, w->path[w->first[i]->id]);
            snprintf(w->path[n->id], sizeof w->path[0], "%s", path);
            return;
        }
    snprintf(w->path[n->id], sizeof w->path[0], "%s", path);
    if (n->spread) {
        snprintf(w->path[n->id], sizeof w->path[0], "n%d", n->id);
        fprintf(w->f, "        struct uop *const n%d = rule_element(%s);\n", n->id, path);
        path = w->path[n->id];
    }
    switch (n->kind) {
    case NODE_CONST:
        fprintf(w->f, "        if (%s->op != OP_CONST) break;\n", path);
        w->first[w->nfirst++] = n;
        return;
    case NODE_VAR: w->first[w->nfirst++] = n; return;
    case NODE_INT:
    case NODE_FLOAT: match_literal(w, n, path); return;
    default: break;
    }
    if (n != w->r->lhs) {
        snprintf(w->path[n->id], sizeof w->path[0], "n%d", n->id);
        fprintf(w->f, "        struct uop *const n%d = %s;\n        if (n%d->op != OP_%s) break;\n",
                n->id, path, n->id, gen_op_id(n->op));
    }
    if (n->rest)
        fprintf(w->f, "        if (%s->nsrc < %d) break;\n", w->path[n->id], n->nchild);
    else if (n->op >= 0 && n->nchild && !gen_op_commutes(n->op) && n->nchild != 2)
        fprintf(w->f, "        if (%s->nsrc != %d) break;\n", w->path[n->id], n->nchild);
    /* operands that are a single comparison are checked first */
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n->nchild; i++)
            if ((n->child[i]->kind == NODE_OP) == pass) {
                char child[64 + 16];
                snprintf(child, sizeof child, "%.50s->src[%d]", w->path[n->id], i);
                match_node(w, n->child[i], child);
            }
}

/* One check for each dtype variable. A bool is checked wherever a pattern does not imply it: `x ==
 * true` is, whatever x is. */
static void check_classes(struct writer *w, const struct node *n, bool *done)
{
    int type = gen_type(w->r, n->type);
    if (type == TYPE_BOOL && (n->kind != NODE_OP || !gen_op_compares(n->op)))
        fprintf(w->f, "        if (!rule_is_bool(%s)) break;\n", w->path[n->id]);
    if (type >= TYPE_FREE && !done[type]) {
        const char *class = gen_class(w->r, n, w->r->lhs);
        done[type] = true;
        if (strcmp(class, "any"))
            fprintf(w->f, "        if (!rule_is_%s(%s)) break;\n", class, w->path[n->id]);
    }
    for (int i = 0; i < n->nchild; i++)
        check_classes(w, n->child[i], done);
}

/* ---- guards */

static void write_exact(struct writer *w, const struct node *n)
{
    bool arithmetic = n->kind == NODE_OP &&
                      (!strcmp(gen_op_id(n->op), "ADD") || !strcmp(gen_op_id(n->op), "SUB") ||
                       !strcmp(gen_op_id(n->op), "MUL") || !strcmp(gen_op_id(n->op), "NEG"));
    for (int i = 0; i < n->nchild; i++)
        write_exact(w, n->child[i]);
    if (arithmetic)
        fprintf(w->f, "rule_exact(%s) && ", w->path[n->id]);
}

static void write_guard(struct writer *w, const struct node *n);

static void write_guard_call(struct writer *w, const struct node *n)
{
    if (!strcmp(n->name, "exact")) {
        fprintf(w->f, "(");
        write_exact(w, n->child[0]);
        fprintf(w->f, "true)");
        return;
    }
    const char *args = gen_guard_args(n->name);
    fprintf(w->f, gen_guard_asks(n->name) ? "fact_%s(facts, " : "rule_%s(", n->name);
    for (int i = 0; i < n->nchild; i++) {
        fprintf(w->f, i ? ", " : "");
        if (args[i] == 'u')
            fprintf(w->f, "%s", n->outer >> i & 1 ? w->outer : w->path[n->child[i]->id]);
        else
            write_guard(w, n->child[i]);
    }
    fprintf(w->f, ")");
}

/* The first occurrence of a name. needs: the left side has it, which rulegen_types.c has checked */
static const struct node *name_node(struct writer *w, const char *name)
{
    int i = 0;
    while (strcmp(w->first[i]->name, name))
        i++;
    return w->first[i];
}

static const char *name_path(struct writer *w, const char *name)
{
    return w->path[name_node(w, name)->id];
}

/* Whether a part of a guard is computed in floats. */
static bool is_float_guard(struct writer *w, const struct node *n)
{
    bool any = n->kind == NODE_FLOAT || (n->kind == NODE_CALL && gen_guard_is_float(n->name)) ||
               (n->kind == NODE_CONST && gen_is_float(w->r, name_node(w, n->name)));
    for (int i = 0; n->kind == NODE_TEST && i < n->nchild; i++)
        any |= is_float_guard(w, n->child[i]);
    return any;
}

static void write_guard(struct writer *w, const struct node *n)
{
    static const char *const calls[][2] = {{"+", "sat_add"},
                                           {"-", "rule_sub"},
                                           {"*", "sat_mul"},
                                           {"//", "int_floordiv"},
                                           {"%", "int_floormod"}};
    switch (n->kind) {
    case NODE_INT: fprintf(w->f, "%lld", (long long)n->i); return;
    case NODE_FLOAT:
        fprintf(w->f, isinf(n->f) ? n->f < 0 ? "-INFINITY" : "INFINITY" : "%.17g", n->f);
        return;
    case NODE_CONST:
        fprintf(w->f, is_float_guard(w, n) ? "%s->arg.f" : "%s->arg.i", name_path(w, n->name));
        return;
    case NODE_CALL: write_guard_call(w, n); return;
    default: break;
    }
    bool counted = n->nchild == 2 && !is_float_guard(w, n);
    for (size_t i = 0; counted && i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(n->name, calls[i][0])) {
            fprintf(w->f, "%s(", calls[i][1]);
            write_guard(w, n->child[0]);
            fprintf(w->f, ", ");
            write_guard(w, n->child[1]);
            fprintf(w->f, ")");
            return;
        }
    fprintf(w->f, "(");
    if (n->nchild == 1 && !strcmp(n->name, "-") && !is_float_guard(w, n))
        fprintf(w->f, "rule_sub(0, ");
    else if (n->nchild == 1)
        fprintf(w->f, "%s(", n->name);
    write_guard(w, n->child[0]);
    if (n->nchild == 2) {
        fprintf(w->f, " %s ", n->name);
        write_guard(w, n->child[1]);
    }
    fprintf(w->f, n->nchild == 1 ? "))" : ")");
}

/* ---- right sides: temporaries in order, so that uops are created in the same order by every
 * compiler */

static const struct node *typed_node(struct writer *w, const struct node *in, int type)
{
    if (gen_type(w->r, in->type) == type)
        return in;
    for (int i = 0; i < in->nchild; i++) {
        const struct node *found = typed_node(w, in->child[i], type);
        if (found)
            return found;
    }
    return NULL;
}

static void write_dtype(struct writer *w, const struct node *n)
{
    int type = gen_type(w->r, n->type);
    const struct node *like = type < TYPE_FREE ? NULL : typed_node(w, w->r->lhs, type);
    if (type == TYPE_BOOL)
        fprintf(w->f, "DTYPE_BOOL");
    else if (type == TYPE_INDEX)
        fprintf(w->f, "DTYPE_INDEX");
    else
        fprintf(w->f, "%s->dtype", w->path[like->id]);
}

static void build_node(struct writer *w, const struct node *n, char *path, size_t cap);

/* "[x]": what was built for x, moved as what matched. */
static void build_moved(struct writer *w, const struct node *n, char *path, size_t cap)
{
    struct node inner = *n;
    char arg[64];
    inner.moved = false;
    build_node(w, &inner, arg, sizeof arg);
    snprintf(path, cap, "r%d", w->next);
    fprintf(w->f, "        struct uop *r%d = path_up(t, &p, %s);\n", w->next++, arg);
}

static void build_node(struct writer *w, const struct node *n, char *path, size_t cap)
{
    if (n->moved) {
        build_moved(w, n, path, cap);
        return;
    }
    if (n->id >= 0 || n->kind == NODE_VAR || n->kind == NODE_CONST) {
        snprintf(path, cap, "%s", n->id >= 0 ? w->path[n->id] : name_path(w, n->name));
        return;
    }
    char arg[MAX_CHILD][64];
    for (int i = 0; i < n->nchild; i++)
        build_node(w, n->child[i], arg[i], sizeof arg[i]);
    snprintf(path, cap, "r%d", w->next);
    fprintf(w->f, "        struct uop *r%d = ", w->next++);
    if (n->kind == NODE_CALL) {
        fprintf(w->f, "%s(t, u", n->name);
    } else if (n->kind == NODE_OP) {
        fprintf(w->f, "rule_%s%d(t, OP_%s, ", w->as_written ? "intern" : "build", n->nchild,
                gen_op_id(n->op));
        write_dtype(w, n);
    } else if (n->kind == NODE_FLOAT && !isfinite(n->f)) {
        fprintf(w->f, "uop_constf(t, ");
        write_dtype(w, n);
        fprintf(w->f, ", %s", n->f != n->f ? "NAN" : n->f < 0 ? "-INFINITY" : "INFINITY");
    } else {
        fprintf(w->f, "rule_number(t, ");
        write_dtype(w, n);
        fprintf(w->f, ", %lld, %s%.17g", (long long)n->i, n->f == 0 && signbit(n->f) ? "-" : "",
                fabs(n->f) * (n->f < 0 ? -1 : 1));
    }
    for (int i = 0; i < n->nchild; i++)
        fprintf(w->f, ", %s", arg[i]);
    fprintf(w->f, ");\n");
}

static bool is_as_written(const char *set)
{
    enum { SIMPLIFIED, AS_WRITTEN };
    static const struct { const char *name; int build; } sets[] = {
#define RULE_SET(name, equal, build, text) {#name, build},
#include "passes/rules/rules.def"
    };
    for (size_t i = 0; set && i < sizeof sets / sizeof *sets; i++)
        if (!strcmp(sets[i].name, set))
            return sets[i].build == AS_WRITTEN;
    return false;
}

static void emit_variant(FILE *f, struct rule *r, int index)
{
    struct writer w = {.f = f, .r = r, .as_written = is_as_written(r->set)};
    bool done[MAX_NODE] = {false};
    char result[64];
    fprintf(f, "    do { /* %s:%d %s */\n", r->file, r->line, r->name);
    match_node(&w, r->lhs, "u");
    check_classes(&w, r->lhs, done);
    if (r->guard) {
        fprintf(f, "        if (!");
        if (r->guard->kind != NODE_TEST)
            fprintf(f, "(");
        write_guard(&w, r->guard);
        fprintf(f, r->guard->kind != NODE_TEST ? ")) break;\n" : ") break;\n");
    }
    build_node(&w, r->rhs, result, sizeof result);
    if (r->rhs->kind == NODE_CALL)
        fprintf(f, "        if (!%s || %s == u) break;\n", result, result);
    fprintf(f, "        *rule = %d;\n        return rule_result(t, u, %s);\n    } while (0);\n",
            index, result);
}

static void emit_rule(FILE *f, struct rule *r, int index)
{
    struct node *swap[MAX_NODE];
    int nswap = collect_swaps(r, r->lhs, swap, 0);
    if (nswap > 6) {
        fprintf(stderr, "%s:%d: error: rule '%s' has more than %d variants\n", r->file, r->line,
                r->name, MAX_VARIANT);
        exit(1);
    }
    for (int mask = 0; mask < 1 << nswap; mask++) {
        for (int i = 0; i < nswap; i++)
            if (mask >> i & 1)
                swap_children(swap[i]);
        emit_variant(f, r, index);
        for (int i = 0; i < nswap; i++)
            if (mask >> i & 1)
                swap_children(swap[i]);
    }
}

static bool is_of(const struct rule *r, const char *set, int op)
{
    return r->lhs->op == op && (set == r->set || (set && r->set && !strcmp(set, r->set)));
}

static bool has_rules(const struct rule *rule, int nrule, const char *set, int op)
{
    for (int i = 0; i < nrule; i++)
        if (is_of(&rule[i], set, op))
            return true;
    return false;
}

static int count_ops(void)
{
    int n = 0;
#define OP(name, text, class, nsrc, arg) n++;
#include "ir/ops.def"
#undef OP
    return n;
}

static const char facts_parameter[] = "struct rule_facts *";

static void emit_op(FILE *f, struct rule *rule, int nrule, const char *set, int op)
{
    static const char *const tests[] = {"true", "!t->noopt", "t->fast_math && !t->noopt"};
    int level = LEVEL_ALWAYS;
    fprintf(f, "static struct uop *%s_%s(struct tgc *t, %s%sstruct uop *u, int *rule)\n{\n",
            set ? set : "match", gen_op_id(op), set ? facts_parameter : "", set ? "facts, " : "");
    if (set)
        fprintf(f, "    (void)facts;\n");
    for (int i = 0; i < nrule; i++) {
        if (!is_of(&rule[i], set, op))
            continue;
        if ((int)rule[i].level != level) {
            fprintf(f, level != LEVEL_ALWAYS ? "    }\n" : "");
            level = (int)rule[i].level;
            if (level != LEVEL_ALWAYS)
                fprintf(f, "    if (%s) {\n", tests[level]);
        }
        emit_rule(f, &rule[i], i);
    }
    fprintf(f, "%s    return NULL;\n}\n\n", level != LEVEL_ALWAYS ? "    }\n" : "");
}

/* The functions of a set, then a table of them by op. */
static void emit_set(FILE *f, struct rule *rule, int nrule, const char *set)
{
    for (int op = 0; op < count_ops(); op++)
        if (has_rules(rule, nrule, set, op))
            emit_op(f, rule, nrule, set, op);
    fprintf(f, "static struct uop *(*const rule_%s[OP_COUNT])(struct tgc *, %s%sstruct uop *, "
               "int *) = {\n", set ? set : "match", set ? facts_parameter : "", set ? ", " : "");
    for (int op = 0; op < count_ops(); op++)
        if (has_rules(rule, nrule, set, op))
            fprintf(f, "    [OP_%s] = %s_%s,\n", gen_op_id(op), set ? set : "match", gen_op_id(op));
    fprintf(f, "};\n\n");
}

/* Of all rules, by the number that matchers set. */
static void emit_rows(FILE *f, const struct rule *rule, int nrule)
{
    fprintf(f, "static const struct rule_row rule_rows[] = {\n");
    for (int i = 0; i < nrule; i++) {
        const char *slash = strrchr(rule[i].file, '/');
        fprintf(f, "    {\"%s\", \"%s\", %d},\n", rule[i].name, slash ? slash + 1 : rule[i].file,
                rule[i].line);
    }
    fprintf(f, "};\n");
}

void emit_matcher(FILE *f, struct rule *rule, int nrule, bool sets)
{
    static const char *const names[] = {
#define RULE_SET(name, equal, build, text) #name,
#include "passes/rules/rules.def"
    };
    fprintf(f, "/* Written by rulegen from the rule files; included by %s. */\n\n",
            sets ? "sets.c" : "rewrite.c");
    if (!sets) {
        emit_set(f, rule, nrule, NULL);
        emit_rows(f, rule, nrule);
    }
    for (size_t i = 0; sets && i < sizeof names / sizeof *names; i++)
        emit_set(f, rule, nrule, names[i]);
}
