/* rulegen.c - compiles rule files into a matcher; a build-time program.
 *
 *      rulegen OUT.c FILE.rules...          what fires when a uop is built, included by rewrite.c
 *
 *      rulegen --sets OUT.c FILE.rules...   the named sets, included by sets.c
 *
 *      rulegen --table OUT.c FILE.rules...  left sides as data, for test_rules.c
 *
 *      rulegen --z3 OUT.py FILE.rules...    rules as Python literals, for the prover
 *
 * This part reads: lines, tokens, precedence climbing over one grammar for patterns, right sides
 * and guards. rulegen_types.c infers dtypes and checks, rulegen_emit.c and rulegen_table.c write.
 * The language is described in docs/rules.md; every mistake ends the build with file:line:column
 * and a caret. Nothing is freed: it runs for a moment.
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
#include "passes/rules/rules.def"
};
static const char *const sets[] = {
#define RULE_SET(name, equal, build, text) #name,
#include "passes/rules/rules.def"
};
static const struct {
    const char *name, *args;
    int nargs;
    bool is_float, asks;
} functions[] = {
#define RULE_GUARD(name, args, python) {#name, args, 0, false, false},
#define RULE_FACT(name, type, text) {#name, "u", 0, #type[0] == 'd', true},
#define RULE_HELPER(name, nargs) {#name, NULL, nargs, false, false},
#include "passes/rules/rules.def"
};
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

const char *gen_op_name(int op) { return ops[op].name; }
const char *gen_op_id(int op) { return ops[op].id; }

/* As op_is_commutative() of ir/uop.c, which this program does not link: a test compares them. */
bool gen_op_commutes(int op)
{
    switch (op) {
    case GEN_ADD: case GEN_MUL: case GEN_MAX: case GEN_MIN: case GEN_AND: case GEN_OR: case GEN_XOR:
    case GEN_EQ:
    case GEN_NE: return true;
    default: return false;
    }
}

bool gen_op_compares(int op)
{
    return op == GEN_LT || op == GEN_EQ || op == GEN_NE || op == GEN_ISNAN;
}

static int find_guard(const char *name)
{
    for (int i = 0; i < COUNT(functions); i++)
        if (functions[i].args && !strcmp(functions[i].name, name))
            return i;
    return -1;
}

const char *gen_guard_args(const char *name)
{
    int i = find_guard(name);
    return !strcmp(name, "exact") ? "u" : i < 0 ? NULL : functions[i].args;
}

bool gen_guard_is_float(const char *name)
{
    int i = find_guard(name);
    return i >= 0 && functions[i].is_float;
}

bool gen_guard_asks(const char *name)
{
    int i = find_guard(name);
    return i >= 0 && functions[i].asks;
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
enum { MAX_ALIAS = 8 }; /* name@pattern in one rule */
enum part { PART_PATTERN, PART_RIGHT, PART_GUARD };
struct parser {
    struct source src;
    const char *p, *end; /* this rule's text */
    enum part part;
    struct rule *rule;
    struct { const char *name; struct node *node; } alias[MAX_ALIAS];
    int nalias, moved;
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

static struct node *parse_unary(struct parser *s);
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
            rule_error(at, "'%s' is no guard function; they are listed in passes/rules/rules.def",
                       name);
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
    rule_error(at,
               "'%s' is neither an op nor a helper; helpers are listed in passes/rules/rules.def",
               name);
}

/* name@pattern: the name stands for what matched, on the right side and in the guard. */
static struct node *parse_alias(struct parser *s, const char *name)
{
    int k = s->nalias++;
    if (k >= MAX_ALIAS)
        rule_error(s->p, "more than %d names of patterns", MAX_ALIAS);
    s->alias[k].name = name;
    return s->alias[k].node = parse_unary(s);
}

static struct node *parse_name(struct parser *s)
{
    const char *at = s->p, *name = word(s);
    if (peek(s, "("))
        return parse_call(s, name, at);
    if (s->part == PART_PATTERN && s->rule->lhs == NULL && accept(s, "@"))
        return parse_alias(s, name);
    for (int i = 0; i < s->nalias; i++)
        if (!strcmp(s->alias[i].name, name))
            return s->alias[i].node;
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
        rule_error(at, "'%s' is no dtype class; they are listed in passes/rules/rules.def",
                   n->class);
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
    if (accept(s, "[")) {
        struct node *n = parse_expr(s, 1);
        expect(s, "]");
        bool on_left = s->part == PART_PATTERN && !s->rule->lhs;
        if (on_left && s->moved++)
            rule_error(at, "more than one part behind movement");
        if (!s->moved)
            rule_error(at, "the left side has no part behind movement");
        n->moved = true;
        return n;
    }
    if (s->part == PART_PATTERN && accept(s, "~")) {
        struct node *n = parse_unary(s);
        if (n->kind != NODE_CONST && n->kind != NODE_INT && n->kind != NODE_FLOAT)
            rule_error(at, "'~' stands before a constant: one that may be repeated");
        n->spread = true;
        return n;
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
    gen_check(r);
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

static void parse_directive(struct parser *s, enum level *level, const char **class,
                            const char **set)
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
    for (int i = 0; i < COUNT(sets) && !strcmp(what, "set"); i++)
        if (!strcmp(sets[i], value)) {
            *set = sets[i];
            known = true;
        }
    if (strcmp(what, "level") && strcmp(what, "class") && strcmp(what, "set"))
        rule_error(at, "unknown directive '%s': @level, @class and @set exist", what);
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
    const char *class = "any", *set = NULL;
    current = (struct source){name, read_file(name)};
    int line = 1;
    for (const char *p = current.text, *end; *p; p = end) {
        end = rule_end(p);
        struct parser s = {.src = current, .p = p, .end = end};
        skip_space(&s);
        if (s.p < s.end && *s.p == '@') {
            parse_directive(&s, &level, &class, &set);
        } else if (s.p < s.end) {
            if (!(*rule = realloc(*rule, (size_t)(*nrule + 1) * sizeof **rule)))
                exit(1);
            s.rule = &(*rule)[(*nrule)++];
            *s.rule = (struct rule){
                .file = base_name(name), .line = line, .level = level, .class = class, .set = set};
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
    bool known = !*mode || !strcmp(mode, "--sets") || !strcmp(mode, "--table") ||
                 !strcmp(mode, "--z3");
    if (argc < a + 2 || !known) {
        fprintf(stderr, "usage: rulegen [--sets | --table | --z3] OUT FILE.rules...\n");
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
        emit_matcher(out, rule, nrule, *mode);
    return fclose(out) ? 1 : 0;
}
