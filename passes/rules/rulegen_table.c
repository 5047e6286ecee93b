/* rulegen_table.c - writes what rulegen.c has read for the tests: left sides as data, to build
 * instances of them (test_rules.c), or whole rules as Python literals, to prove them (prove.py).
 */
#include "passes/rules/rulegen.h"

#include <math.h>
#include <stdlib.h>

static int table_node(FILE *f, struct rule *r, const struct node *n, int *next)
{
    int child[MAX_CHILD] = {0};
    static const char *const kinds[] = {"NODE_VAR", "NODE_CONST", "NODE_INT", "NODE_FLOAT",
                                        "NODE_OP"};
    for (int i = 0; i < n->nchild; i++)
        child[i] = table_node(f, r, n->child[i], next);
    fprintf(f, "    {%s, %s%s, %d, %d, {", kinds[n->kind], n->kind == NODE_OP ? "OP_" : "0",
            n->kind == NODE_OP ? gen_op_id(n->op) : "", n->nchild, n->rest);
    for (int i = 0; i < MAX_CHILD; i++)
        fprintf(f, "%s%d", i ? ", " : "", child[i]);
    fprintf(f, "}, %d, %d, \"%s\", \"%s\", %d, %lld, ", n->moved, n->spread,
            n->kind == NODE_VAR || n->kind == NODE_CONST ? n->name : "", gen_class(r, n, r->lhs),
            gen_type(r, n->type), (long long)n->i);
    fprintf(f,
            isinf(n->f)                  ? n->f < 0 ? "-INFINITY},\n" : "INFINITY},\n"
            : n->f != n->f               ? "NAN},\n"
            : n->f == 0 && signbit(n->f) ? "-0.0},\n"
                                         : "%.17g},\n",
            n->f);
    return (*next)++;
}

void emit_table(FILE *f, struct rule *rule, int nrule)
{
    int next = 0, *root = calloc((size_t)nrule + 1, sizeof *root);
    if (!root)
        exit(1);
    fprintf(f, "/* Written by rulegen: left sides of the rules, for test_rules.c. */\n\nstatic "
               "const struct rule_node rule_nodes[] = {\n");
    for (int i = 0; i < nrule; i++)
        root[i] = table_node(f, &rule[i], rule[i].lhs, &next);
    fprintf(f, "};\n\nstatic const struct rule_info rule_infos[] = {\n");
    for (int i = 0; i < nrule; i++)
        fprintf(f, "    {\"%s\", \"%s\", %d, %d, %d, %s%s},\n", rule[i].name, rule[i].file,
                rule[i].line, (int)rule[i].level, root[i], rule[i].set ? "RULES_" : "",
                rule[i].set ? rule[i].set : "-1");
    fprintf(f, "};\n\nstatic const unsigned char rule_commutes[OP_COUNT] = {\n");
    int op = 0;
#define OP(name, text, class, nsrc, arg) \
    if (gen_op_commutes(op++)) \
        fprintf(f, "    [OP_" #name "] = 1,\n");
#include "ir/ops.def"
#undef OP
    fprintf(f, "};\n");
    free(root);
}

/* ---- Python */

static void python_node(FILE *f, struct rule *r, const struct node *n)
{
    static const char *const kinds[] = {"var", "const", "int", "float", "op", "call", "test"};
    fprintf(f, "('%s', ", kinds[n->kind]);
    switch (n->kind) {
    case NODE_INT: fprintf(f, "%lld", (long long)n->i); break;
    case NODE_FLOAT: fprintf(f, "'%.17g'", n->f); break;
    case NODE_OP: fprintf(f, "'%s'", gen_op_id(n->op)); break;
    default: fprintf(f, "'%s'", n->name);
    }
    for (int i = 0; i < n->nchild; i++) {
        fprintf(f, ", ");
        python_node(f, r, n->child[i]);
    }
    fprintf(f, ")");
}

static void python_types(FILE *f, struct rule *r, const struct node *n)
{
    if (n->kind == NODE_VAR || n->kind == NODE_CONST)
        fprintf(f, "'%s': '%s', ", n->name, gen_class(r, n, r->lhs));
    for (int i = 0; i < n->nchild; i++)
        python_types(f, r, n->child[i]);
}

void emit_python(FILE *f, struct rule *rule, int nrule)
{
    fprintf(f, "# Written by rulegen: the rules, for tests/rules/prove.py.\nrules = [\n");
    for (int i = 0; i < nrule; i++) {
        struct rule *r = &rule[i];
        fprintf(f, "    {'name': '%s', 'at': '%s:%d', 'class': '%s', 'types': {", r->name,
                r->file, r->line, gen_class(r, r->lhs, r->lhs));
        python_types(f, r, r->lhs);
        fprintf(f, "},\n     'left': ");
        python_node(f, r, r->lhs);
        fprintf(f, ",\n     'right': ");
        python_node(f, r, r->rhs);
        fprintf(f, ",\n     'guard': ");
        if (r->guard)
            python_node(f, r, r->guard);
        else
            fprintf(f, "None");
        fprintf(f, "},\n");
    }
    fprintf(f, "]\n");
}
