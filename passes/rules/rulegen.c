/* rulegen.c - compiles rule files into a matcher; a build-time program.
 *
 *      rulegen OUT.c FILE.rules...          the matcher, included by rewrite.c
 *
 *      rulegen --table OUT.c FILE.rules...  left sides as data, for test_rules.c
 *
 *      rulegen --z3 OUT.py FILE.rules...    rules as Python literals, for the prover
 *
 * This half reads: lines, tokens, precedence climbing over one grammar for patterns, right sides
 * and guards, then dtype inference by unification (so that `x < y` needs one class check, and a
 * right side knows what to build). rulegen_emit.c writes. The language is described in
 * docs/rules.md; every mistake ends the build with file:line:column and a caret. Nothing is freed:
 * it runs for a moment.
 */
#include "passes/rules/rulegen.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *id;
    int nsrc;
} ops[] = {
#define OP(name, text, class, nsrc, arg) {text, #name, nsrc},
#include "ir/ops.def"
#undef OP
};
enum {
#define OP(name, text, class, nsrc, arg) GEN_##name,
#include "ir/ops.def"
#undef OP
    GEN_COUNT
};
static const char *const classes[] = {
#define RULE_CLASS(name, text) #name,
#define RULE_GUARD(name, args, python)
#define RULE_HELPER(name, nargs)
#include "passes/rules/rules.def"
#undef RULE_CLASS
#undef RULE_GUARD
#undef RULE_HELPER
};
static const struct {
    const char *name, *args;
    int nargs;
} functions[] = {
#define RULE_CLASS(name, text)
#define RULE_GUARD(name, args, python) {#name, args, 0},
#define RULE_HELPER(name, nargs) {#name, NULL, nargs},
#include "passes/rules/rules.def"
#undef RULE_CLASS
#undef RULE_GUARD
#undef RULE_HELPER
};
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

const char *gen_op_name(int op) { return ops[op].name; }
const char *gen_op_id(int op) { return ops[op].id; }

/* As op_is_commutative() of ir/uop.c, which this program does not link: a test compares them. */
bool gen_op_commutes(int op)
{
    switch (op) {
    case GEN_ADD:
    case GEN_MUL:
    case GEN_MAX:
    case GEN_MIN:
    case GEN_AND:
    case GEN_OR:
    case GEN_XOR:
    case GEN_EQ:
    case GEN_NE: return true;
    default: return false;
    }
}

bool gen_op_compares(int op)
{
    return op == GEN_LT || op == GEN_EQ || op == GEN_NE || op == GEN_ISNAN;
}

const char *gen_guard_args(const char *name)
{
    if (!strcmp(name, "exact"))
        return "u";
    for (int i = 0; i < COUNT(functions); i++)
        if (functions[i].args && !strcmp(functions[i].name, name))
            return functions[i].args;
    return NULL;
}

static void *allocate(size_t nbytes)
{
    void *p = calloc(1, nbytes);
    if (!p) {
        fprintf(stderr, "rulegen: out of memory\n");
        exit(1);
    }
    return p;
}

/* ---- the source, and errors in it */

struct source {
    const char *file, *text;
};
enum part { PART_PATTERN, PART_RIGHT, PART_GUARD };
struct parser {
    struct source src;
    const char *p, *end; /* this rule's text */
    enum part part;
    struct rule *rule;
};
static struct source current; /* what errors point into; this program is no library */

_Noreturn void rule_error(const char *at, const char *format, ...)
{
    int line = 1;
    const char *start = current.text, *end;
    for (const char *p = current.text; p < at; p++)
        if (*p == '\n') {
            line++;
            start = p + 1;
        }
    end = start + strcspn(start, "\n");
    fprintf(stderr, "%s:%d:%d: error: ", current.file, line, (int)(at - start) + 1);
    va_list ap;
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fprintf(stderr, "\n  %.*s\n  %*s^\n", (int)(end - start), start, (int)(at - start), "");
    exit(1);
}

struct node *gen_new(enum node_kind kind, const char *at)
{
    struct node *n = allocate(sizeof *n);
    n->kind = kind;
    n->at = at;
    n->type = -1;
    n->id = -1;
    return n;
}

/* ---- tokens */

static void skip_space(struct parser *s)
{
    while (s->p < s->end && (isspace((unsigned char)*s->p) || *s->p == '#')) {
        if (*s->p == '#')
            while (s->p < s->end && *s->p != '\n')
                s->p++;
        else
            s->p++;
    }
}

static bool peek(struct parser *s, const char *word)
{
    skip_space(s);
    size_t n = strlen(word);
    if ((size_t)(s->end - s->p) < n || strncmp(s->p, word, n))
        return false;
    if (isalpha((unsigned char)word[0]))
        return !isalnum((unsigned char)s->p[n]) && s->p[n] != '_';
    return true;
}

static bool accept(struct parser *s, const char *word)
{
    if (!peek(s, word))
        return false;
    s->p += strlen(word);
    return true;
}

static void expect(struct parser *s, const char *word)
{
    if (!accept(s, word))
        rule_error(s->p, "expected '%s'", word);
}

static const char *word(struct parser *s)
{
    skip_space(s);
    const char *start = s->p;
    while (s->p < s->end && (isalnum((unsigned char)*s->p) || *s->p == '_'))
        s->p++;
    if (s->p == start || isdigit((unsigned char)*start))
        rule_error(start, "expected a name");
    char *w = allocate((size_t)(s->p - start) + 1);
    memcpy(w, start, (size_t)(s->p - start));
    return w;
}

/* ---- expressions */

/* clang-format off */
/* Operators by binding strength; '>' and the like exist in guards alone, as do && and ||. */
static const struct infix { const char *text; int level, op; bool guard_only; } operators[] = {
    {"||", 1, -1, true}, {"&&", 2, -1, true},
    {"==", 6, GEN_EQ, false}, {"!=", 6, GEN_NE, false}, {"<=", 7, -1, true}, {">=", 7, -1, true},
    {"<<", 8, GEN_SHL, false}, {">>", 8, GEN_SHR, false}, {"//", 10, GEN_FLOORDIV, false},
    {"|", 3, GEN_OR, false}, {"^", 4, GEN_XOR, false}, {"&", 5, GEN_AND, false},
    {"<", 7, GEN_LT, false}, {">", 7, -1, true},
    {"+", 9, GEN_ADD, false}, {"-", 9, GEN_SUB, false},
    {"*", 10, GEN_MUL, false}, {"/", 10, GEN_DIV, false}, {"%", 10, GEN_FLOORMOD, false},
};
/* clang-format on */

static struct node *parse_expr(struct parser *s, int level);

static const struct infix *peek_operator(struct parser *s)
{
    if (peek(s, "=>"))
        return NULL;
    for (int i = 0; i < COUNT(operators); i++)
        if (peek(s, operators[i].text))
            return &operators[i];
    return NULL;
}

static struct node *parse_number(struct parser *s, bool negative)
{
    const char *start = s->p;
    char *end;
    if (accept(s, "inf") || accept(s, "nan")) {
        struct node *n = gen_new(NODE_FLOAT, start);
        n->f = *start == 'n' ? (double)NAN : negative ? -(double)INFINITY : (double)INFINITY;
        return n;
    }
    double f = strtod(s->p, &end);
    bool fraction =
        memchr(s->p, '.', (size_t)(end - s->p)) || memchr(s->p, 'e', (size_t)(end - s->p));
    struct node *n = gen_new(fraction ? NODE_FLOAT : NODE_INT, start);
    n->f = negative ? -f : f;
    n->i = fraction ? 0 : strtoll(s->p, NULL, 0);
    n->i = negative ? -n->i : n->i;
    s->p = end;
    return n;
}

static void parse_arguments(struct parser *s, struct node *n)
{
    expect(s, "(");
    while (!accept(s, ")")) {
        if (n->nchild || n->rest)
            expect(s, ",");
        if (accept(s, "...")) {
            n->rest = true;
            continue;
        }
        if (n->nchild == MAX_CHILD)
            rule_error(s->p, "more than %d arguments", MAX_CHILD);
        n->child[n->nchild++] = parse_expr(s, 1);
    }
}

/* In a guard, the u-arguments of a function are patterns of the left side, not arithmetic. */
static struct node *parse_guard_call(struct parser *s, struct node *n, const char *args)
{
    expect(s, "(");
    for (const char *a = args; *a; a++) {
        if (a != args)
            expect(s, ",");
        s->part = *a == 'u' ? PART_PATTERN : PART_GUARD;
        n->child[n->nchild++] = parse_expr(s, 1);
        s->part = PART_GUARD;
    }
    expect(s, ")");
    return n;
}

static struct node *parse_call(struct parser *s, const char *name, const char *at)
{
    struct node *n = gen_new(NODE_CALL, at);
    n->name = name;
    if (s->part == PART_GUARD) {
        const char *args = gen_guard_args(name);
        if (!args)
            rule_error(at, "'%s' is no guard function; they are listed in passes/rules/rules.def", name);
        return parse_guard_call(s, n, args);
    }
    parse_arguments(s, n);
    for (int i = 0; s->part == PART_RIGHT && i < COUNT(functions); i++)
        if (!functions[i].args && !strcmp(functions[i].name, name)) {
            if (n->nchild != functions[i].nargs)
                rule_error(at, "helper '%s' takes %d arguments, not %d", name, functions[i].nargs,
                           n->nchild);
            return n;
        }
    for (int i = 0; i < COUNT(ops); i++)
        if (!strcmp(ops[i].name, name)) {
            if (ops[i].nsrc >= 0 && n->nchild != ops[i].nsrc && !n->rest)
                rule_error(at, "'%s' takes %d operands, not %d", name, ops[i].nsrc, n->nchild);
            n->kind = NODE_OP;
            n->op = i;
            return n;
        }
    rule_error(at, "'%s' is neither an op nor a helper; helpers are listed in passes/rules/rules.def",
               name);
}

static struct node *parse_name(struct parser *s)
{
    const char *at = s->p, *name = word(s);
    if (peek(s, "("))
        return parse_call(s, name, at);
    if (!strcmp(name, "true") || !strcmp(name, "false")) {
        struct node *n = gen_new(NODE_INT, at);
        n->i = *name == 't';
        n->f = (double)n->i;
        n->type = TYPE_BOOL;
        return n;
    }
    bool constant = name[0] == 'c' && isdigit((unsigned char)name[1]);
    struct node *n = gen_new(constant ? NODE_CONST : NODE_VAR, at);
    n->name = name;
    return n;
}

/* x:int, cast(x):float */
static struct node *parse_class(struct parser *s, struct node *n)
{
    if (s->part != PART_PATTERN || !accept(s, ":"))
        return n;
    skip_space(s);
    const char *at = s->p;
    bool known = false;
    n->class = word(s);
    for (int i = 0; i < COUNT(classes); i++)
        known |= !strcmp(classes[i], n->class);
    if (!known)
        rule_error(at, "'%s' is no dtype class; they are listed in passes/rules/rules.def", n->class);
    return n;
}

static struct node *make_op(struct parser *s, int op, const char *text, struct node *a,
                            struct node *b, const char *at)
{
    struct node *n = gen_new(s->part == PART_GUARD ? NODE_TEST : NODE_OP, at);
    n->op = op;
    n->name = text;
    n->child[n->nchild++] = a;
    if (b)
        n->child[n->nchild++] = b;
    return n;
}

static struct node *parse_unary(struct parser *s)
{
    skip_space(s);
    const char *at = s->p;
    if (s->p == s->end)
        rule_error(at, "expected an expression");
    if (accept(s, "(")) {
        struct node *n = parse_expr(s, 1);
        expect(s, ")");
        return parse_class(s, n);
    }
    if (accept(s, "-")) {
        skip_space(s);
        if (isdigit((unsigned char)*s->p) || peek(s, "inf"))
            return parse_number(s, true);
        return make_op(s, GEN_NEG, "-", parse_unary(s), NULL, at);
    }
    if (!peek(s, "!=") && accept(s, "!"))
        return make_op(s, GEN_NOT, "!", parse_unary(s), NULL, at);
    if (isdigit((unsigned char)*s->p) || peek(s, "inf") || peek(s, "nan"))
        return parse_number(s, false);
    return parse_class(s, parse_name(s));
}

static struct node *parse_expr(struct parser *s, int level)
{
    struct node *left = parse_unary(s);
    const struct infix *o;
    while ((o = peek_operator(s)) && o->level >= level) {
        const char *at = s->p;
        if (o->guard_only && s->part != PART_GUARD)
            rule_error(at, "'%s' has no place in a pattern: write it with '<', '!' or in the guard",
                       o->text);
        s->p += strlen(o->text);
        left = make_op(s, o->op, o->text, left, parse_expr(s, o->level + 1), at);
    }
    return left;
}

/* ---- dtypes */

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
    case GEN_LT:
    case GEN_EQ:
    case GEN_NE:
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
    case GEN_BITCAST: break;
    case GEN_LOAD:
        unify(r, n->child[1]->type, TYPE_INDEX, n->at);
        if (n->nchild == 4) {
            unify(r, n->child[2]->type, TYPE_BOOL, n->at);
            unify(r, n->child[3]->type, t, n->at);
        }
        break;
    case GEN_RESHAPE:
    case GEN_PERMUTE:
    case GEN_EXPAND:
    case GEN_SHRINK:
    case GEN_FLIP:
    case GEN_PAD:
    case GEN_WINDOW:
    case GEN_CONTIGUOUS: unify(r, n->child[0]->type, t, n->at); break;
    case GEN_IOTA:
    case GEN_CONCAT:
    case GEN_RANGE:
    case GEN_IF:
    case GEN_GET:
    case GEN_LOOP:
    case GEN_HOST: break;
    default:
        for (int i = 0; i < n->nchild; i++)
            unify(r, n->child[i]->type, t, n->at);
    }
}

static void infer(struct rule *r, struct node *n, bool left)
{
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

/* What a guard names must stand on the left side: names, and the patterns that are arguments of its
 * functions. */
static void check_guard(struct rule *r, struct node *n)
{
    if (n->kind == NODE_VAR)
        rule_error(n->at,
                   "a guard computes with integers: '%s' is a uop; vmin(), vmax() give its bounds",
                   n->name);
    if (n->kind == NODE_CONST && !find_name(r->lhs, n->name))
        rule_error(n->at, "'%s' does not stand on the left side", n->name);
    const char *args = n->kind == NODE_CALL ? gen_guard_args(n->name) : NULL;
    for (int i = 0; i < n->nchild; i++) {
        if (!args || args[i] == 'i') {
            check_guard(r, n->child[i]);
            continue;
        }
        struct node *found = find_pattern(r->lhs, n->child[i]);
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

/* What a right side builds must have a dtype that something on the left side has. */
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

/* ---- files */

static void parse_rule(struct parser *s)
{
    struct rule *r = s->rule;
    s->part = PART_PATTERN;
    r->name = word(s);
    expect(s, ":");
    skip_space(s);
    r->lhs = parse_expr(s, 1);
    if (r->lhs->kind != NODE_OP)
        rule_error(r->lhs->at, "the left side of a rule must be an op");
    expect(s, "=>");
    s->part = PART_RIGHT;
    r->rhs = parse_expr(s, 1);
    if (accept(s, "if")) {
        s->part = PART_GUARD;
        r->guard = parse_expr(s, 1);
    }
    skip_space(s);
    if (s->p != s->end)
        rule_error(s->p, "expected the end of the rule");
    r->type_of[TYPE_BOOL] = TYPE_BOOL;
    r->type_of[TYPE_INDEX] = TYPE_INDEX;
    r->ntype = TYPE_FREE;
    infer(r, r->lhs, true);
    infer(r, r->rhs, false);
    if (r->rhs->kind != NODE_CALL)
        unify(r, r->lhs->type, r->rhs->type, r->rhs->at);
    check_types(r, r->rhs);
    int next = 0;
    number(r->lhs, &next);
    if (r->guard)
        check_guard(r, r->guard);
}

static char *read_file(const char *name)
{
    FILE *f = fopen(name, "rb");
    size_t n = 0, cap = 1 << 16;
    char *text = allocate(cap);
    if (!f) {
        fprintf(stderr, "rulegen: cannot read %s\n", name);
        exit(1);
    }
    for (size_t got; (got = fread(text + n, 1, cap - n - 1, f)) > 0;) {
        n += got;
        if (n + 1 == cap && !(text = realloc(text, cap *= 2)))
            exit(1);
    }
    text[n] = 0;
    fclose(f);
    return text;
}

static void parse_directive(struct parser *s, enum level *level, const char **class)
{
    static const char *const levels[] = {"always", "optimize", "fast_math"};
    const char *at = ++s->p, *what = word(s);
    skip_space(s);
    const char *value_at = s->p, *value = word(s);
    bool known = false;
    for (int i = 0; i < COUNT(levels) && !strcmp(what, "level"); i++)
        if (!strcmp(levels[i], value)) {
            *level = (enum level)i;
            known = true;
        }
    for (int i = 0; i < COUNT(classes) && !strcmp(what, "class"); i++)
        if (!strcmp(classes[i], value)) {
            *class = classes[i];
            known = true;
        }
    if (strcmp(what, "level") && strcmp(what, "class"))
        rule_error(at, "unknown directive '%s': @level and @class exist", what);
    if (!known)
        rule_error(value_at, "unknown %s '%s'", what, value);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A rule is a line and the indented lines after it. */
static const char *rule_end(const char *p)
{
    do {
        p += strcspn(p, "\n");
        p += *p == '\n';
    } while (*p == ' ' || *p == '\t');
    return p;
}

static void parse_file(const char *name, struct rule **rule, int *nrule)
{
    enum level level = LEVEL_OPTIMIZE;
    const char *class = "any";
    current = (struct source){name, read_file(name)};
    int line = 1;
    for (const char *p = current.text, *end; *p; p = end) {
        end = rule_end(p);
        struct parser s = {current, p, end, PART_PATTERN, NULL};
        skip_space(&s);
        if (s.p < s.end && *s.p == '@') {
            parse_directive(&s, &level, &class);
        } else if (s.p < s.end) {
            if (!(*rule = realloc(*rule, (size_t)(*nrule + 1) * sizeof **rule)))
                exit(1);
            s.rule = &(*rule)[(*nrule)++];
            *s.rule = (struct rule){
                .file = base_name(name), .line = line, .level = level, .class = class};
            const char *at = s.p;
            parse_rule(&s);
            for (int i = 0; i < *nrule - 1; i++)
                if (!strcmp((*rule)[i].name, s.rule->name))
                    rule_error(at, "a rule of this name stands at %s:%d", (*rule)[i].file,
                               (*rule)[i].line);
        }
        for (const char *q = p; q < end; q++)
            line += *q == '\n';
    }
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 && argv[1][0] == '-' ? argv[1] : "";
    int a = *mode ? 2 : 1, nrule = 0;
    struct rule *rule = NULL;
    if (argc < a + 2 || (*mode && strcmp(mode, "--table") && strcmp(mode, "--z3"))) {
        fprintf(stderr, "usage: rulegen [--table | --z3] OUT FILE.rules...\n");
        return 2;
    }
    for (int i = a + 1; i < argc; i++)
        parse_file(argv[i], &rule, &nrule);
    FILE *out = fopen(argv[a], "wb");
    if (!out) {
        fprintf(stderr, "rulegen: cannot write %s\n", argv[a]);
        return 1;
    }
    if (!strcmp(mode, "--table"))
        emit_table(out, rule, nrule);
    else if (!strcmp(mode, "--z3"))
        emit_python(out, rule, nrule);
    else
        emit_matcher(out, rule, nrule);
    return fclose(out) ? 1 : 0;
}
