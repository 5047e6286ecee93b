/* schema.c - checks a node against its operator's signature in schemas.def: optional and required
 * attributes, their types, and the numbers of inputs and outputs.
 *
 * Names that begin with two underscores are notes of tools and are ignored, as ONNX's checker does.
 * In a function's body an attribute may refer to one of the call: its value is checked when the
 * function is inlined.
 */
#include "frontend/onnx/lower.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *name; int newest; } domains[] = {
#define DOMAIN(name, newest) {name, newest},
#define SCHEMA(domain, name, since, until, inputs, outputs, attributes)
#include "frontend/onnx/schemas.def"
#undef SCHEMA
#undef DOMAIN
};

const char *operator_domain(const char *domain) { return strcmp(domain, "ai.onnx") ? domain : ""; }

int onnx_newest_opset(const char *domain)
{
    domain = operator_domain(domain);
    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++)
        if (strcmp(domains[i].name, domain) == 0)
            return domains[i].newest;
    return 0;
}

static const struct schema schemas[] = {
#define DOMAIN(name, newest)
#define SCHEMA(domain, name, since, until, inputs, outputs, attributes)                            \
    {domain, name, since, until, inputs, outputs, attributes},
#include "frontend/onnx/schemas.def"
#undef SCHEMA
#undef DOMAIN
};
enum { NSCHEMA = sizeof schemas / sizeof *schemas };

static int by_name(const void *a, const void *b)
{
    const struct schema *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->domain, y->domain);
}

/* The rows of one operator. */
struct rows { const struct schema *first; int n; };

static struct rows find_rows(const char *domain, const char *name)
{
    struct schema key = {.domain = domain, .name = name};
    const struct schema *any = bsearch(&key, schemas, NSCHEMA, sizeof *schemas, by_name);
    struct rows r = {any, 0};
    while (any && r.first > schemas && by_name(r.first - 1, &key) == 0)
        r.first--;
    while (any && r.first + r.n < schemas + NSCHEMA && by_name(r.first + r.n, &key) == 0)
        r.n++;
    return r;
}

const struct schema *schema_find(const char *domain, const char *name, int opset)
{
    struct rows r = find_rows(domain, name);
    for (int i = 0; i < r.n; i++)
        if (opset >= r.first[i].since && (!r.first[i].until || opset <= r.first[i].until))
            return &r.first[i];
    return NULL;
}

/* A word of a signature: "kernel_shape:ints!" is a name, a type and a mark, "B?" has no type. */
struct word { const char *name, *type; int nname, ntype; char mark; };

static bool next_word(const char **s, struct word *w)
{
    const char *p = *s;
    while (*p == ' ')
        p++;
    *w = (struct word){.name = p};
    while (*p == '_' || isalnum((unsigned char)*p))
        p++;
    w->nname = (int)(p - w->name);
    if (*p == ':') {
        w->type = ++p;
        while (*p == '_' || isalpha((unsigned char)*p))
            p++;
        w->ntype = (int)(p - w->type);
    }
    if (*p && *p != ' ')
        w->mark = *p++;
    *s = p;
    return w->nname > 0;
}

static bool word_is(const char *word, int n, const char *s)
{
    return strncmp(word, s, (size_t)n) == 0 && !s[n];
}

static bool find_attribute(const struct schema *s, const char *name, struct word *w)
{
    const char *rest = s->attributes;
    while (next_word(&rest, w))
        if (word_is(w->name, w->nname, name))
            return true;
    return false;
}

/* The name of an attribute type in schemas.def; "" if there is none. */
static const char *type_text(struct tgc *t, AttributeProto__AttributeType type)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(
        &attribute_proto__attribute_type__descriptor, (int)type);
    char *text = mem_printf(t, "%s", v ? v->name : "");
    for (char *c = text; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return text;
}

static const char *operator_text(struct tgc *t, const struct schema *s, int opset)
{
    return mem_printf(t, "%s%s%s of opset %d", s->domain, *s->domain ? "." : "", s->name, opset);
}

/* Which other versions know the attribute, or which attributes exist. */
static void hint_attribute(struct text *x, const struct schema *s, const char *name)
{
    struct word w;
    struct rows r = find_rows(s->domain, s->name);
    int nother = 0, nown = 0;
    for (int i = 0; i < r.n; i++)
        if (find_attribute(&r.first[i], name, &w)) {
            const struct schema *o = &r.first[i];
            text_printf(x, "%s%d %s", nother++ ? ", " : "it is one of opset ", o->since,
                        o->until ? mem_printf(x->t, "to %d", o->until) : "and later");
        }
    if (nother)
        return;
    for (const char *rest = s->attributes; next_word(&rest, &w); nown++)
        text_printf(x, "%s%.*s", nown ? ", " : "it has ", w.nname, w.name);
    if (!nown)
        text_puts(x, "it has none: remove it");
}

static bool check_attribute(const struct onnx_model *m, const NodeProto *p, const struct schema *s,
                            int opset, const AttributeProto *a)
{
    struct tgc *t = m->tgc;
    struct word w;
    if (strncmp(a->name, "__", 2) == 0)
        return true;
    if (!find_attribute(s, a->name, &w)) {
        struct place at = onnx_place_attr(m, p, a->name);
        struct text hint = {.t = t};
        hint_attribute(&hint, s, a->name);
        return diag_error(t, &at, "%s has no such attribute; %s", operator_text(t, s, opset),
                          hint.s);
    }
    bool is_open = a->ref_attr_name[0] && a->type == ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED;
    const char *type = type_text(t, a->type);
    if (is_open || word_is(w.type, w.ntype, type))
        return true;
    struct place at = onnx_place_attr(m, p, a->name);
    return diag_error(t, &at, "the attribute is of type %s; %s expects %.*s", type,
                      operator_text(t, s, opset), w.ntype, w.type);
}

bool schema_check_attributes(const struct onnx_model *m, const NodeProto *p, const struct schema *s,
                             int opset)
{
    bool ok = true;
    for (size_t i = 0; i < p->n_attribute; i++)
        ok = check_attribute(m, p, s, opset, p->attribute[i]) && ok;
    const char *rest = s->attributes;
    for (struct word w; next_word(&rest, &w);) {
        bool given = w.mark != '!';
        for (size_t i = 0; i < p->n_attribute && !given; i++)
            given = word_is(w.name, w.nname, p->attribute[i]->name);
        if (given)
            continue;
        struct place at = onnx_place_node(m, p);
        ok = diag_error(m->tgc, &at, "the attribute '%.*s' is missing; %s requires it", w.nname,
                        w.name, operator_text(m->tgc, s, opset));
    }
    return ok;
}

/* How many there may be; -1: any number. */
static int count_formals(const char *formals)
{
    int n = 0;
    for (struct word w; next_word(&formals, &w); n++)
        if (w.mark == '+' || w.mark == '*')
            return -1;
    return n;
}

bool schema_check_counts(const struct onnx_model *m, const NodeProto *p, const struct schema *s,
                         int opset)
{
    const struct { const char *what, *formals; size_t n; } side[] = {
        {"inputs", s->inputs, p->n_input}, {"outputs", s->outputs, p->n_output}};
    for (int i = 0; i < 2; i++) {
        int most = count_formals(side[i].formals);
        if (most < 0 || side[i].n <= (size_t)most)
            continue;
        struct place at = onnx_place_node(m, p);
        return diag_error(m->tgc, &at, "has %zu %s; %s takes at most %d%s%s", side[i].n,
                          side[i].what, operator_text(m->tgc, s, opset), most, most ? ": " : "",
                          side[i].formals);
    }
    return true;
}

bool schema_check_presence(const struct node *n, const struct schema *s)
{
    const char *rest = s->inputs;
    struct word w = {0};
    for (int k = 0; next_word(&rest, &w); k++)
        if ((!w.mark || w.mark == '+') && (k >= n->nin || !n->value_in[k]))
            return node_error(n, k, "input %d '%.*s' is missing; %s requires it", k, w.nname,
                              w.name, operator_text(n->t, s, n->opset));
    return true;
}
