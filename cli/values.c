/* values.c - the values inside of two models, or of one in two builds, compared (verify --value).
 *
 * Two sums of the same products in another order differ in their last bits. A sum halfway between
 * two integers may be rounded to either of them. After that rounding the difference is more than
 * last bits, and a deep network amplifies it, although no build is wrong. So each value is judged
 * by itself. Where the second model has rounded to integers, it continues from the first model's
 * integers, which become inputs of its graph.
 *
 *      first     x -> conv -> q -> conv -> r -> y
 *                             |            |
 *      second    x -> conv -> q'  conv -> r'  y'        q' is compared with q, r' with r, y' with y
 */
#include "cli/cli.h"

#include <string.h>

/* A twentieth: more than roundings of sums in another order are, less than a wrong rounding is. */
enum { ROUNDED_SHARE = 20 };

static bool is_constant(const struct uop *v)
{
    return value_behind(v, MOVES_VIEW)->op == OP_CONST;
}

/* Whether v is a rounded float, clamped and shifted by constants, or that as an integer, whose zero
 * point may be computed. */
static bool is_rounded(const struct uop *v)
{
    v = value_behind(v, MOVES_VIEW);
    bool any = dtype_is_int(v->dtype);
    unsigned moves = MOVES_VIEW | (any ? MOVES_CAST : 0);
    if (any && (v->op != OP_CAST || !dtype_is_float(v->src[0]->dtype)))
        return false;
    if (any)
        v = value_behind(v->src[0], moves);
    while (v->op == OP_MIN || v->op == OP_MAX || v->op == OP_ADD) {
        int k = value_behind(v->src[1], moves)->op == OP_ROUND;
        if (!any && !is_constant(v->src[1 - k]))
            return false;
        v = value_behind(v->src[k], moves);
    }
    return v->op == OP_ROUND;
}

struct name_list values_rounded(struct tgc *t, const struct graph *g)
{
    struct name_list names = {.name = mem_array(t, (size_t)g->noutput + 1, sizeof *names.name)};
    for (int i = 0; i < g->noutput; i++)
        if (is_rounded(g->output[i].value))
            names.name[names.n++] = g->output[i].name;
    return names;
}

bool name_list_has(const struct name_list *names, const char *name)
{
    int i = 0;
    while (i < names->n && strcmp(names->name[i], name) != 0)
        i++;
    return i < names->n;
}

bool values_are_rounded(struct tgc *t, const struct graph *g)
{
    struct uop **root = mem_array(t, (size_t)g->noutput + 1, sizeof *root);
    bool rounds = false;
    int n;
    for (int i = 0; i < g->noutput; i++)
        root[i] = g->output[i].value;
    struct mem_mark mark = scratch_mark(t);
    struct uop **order = uop_toposort(t, root, g->noutput, &n);
    for (int i = 0; i < n && !rounds; i++)
        rounds = is_rounded(order[i]);
    scratch_release(t, mark);
    return rounds;
}

/* ------------------------------------------------------------- going on from the first's values */

static const struct array *find_array(const struct array *v, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(v[i].name, name) == 0)
            return &v[i];
    return NULL;
}

static bool has_shape(const struct uop *u, const struct array *v)
{
    int64_t size;
    bool same = u->dtype == v->dtype && u->ndim == v->ndim;
    for (int i = 0; i < u->ndim && same; i++)
        same = uop_const_int(u->dim[i], &size) && size == v->dim[i];
    return same;
}

/* An input of the graph that holds v. */
static struct uop *give(struct tgc *t, struct graph *g, const struct uop *u, const struct array *v,
                        struct feed *f)
{
    const char *name = mem_printf(t, "%s of the first model", v->name);
    struct uop *b = uop_buffer(t, buffer_new(t, BUFFER_INPUT, u->dtype, u->dim, u->ndim, name));
    g->input[g->ninput++] = b;
    f->input[f->n] = (struct model_input){.name = name, .dtype = u->dtype};
    f->value[f->n] = *v;
    f->source[f->n++] = name;
    return b;
}

/* Room for n more. */
static void widen(struct tgc *t, struct graph *g, struct feed *f, int n)
{
    struct feed wide = {.n = f->n};
    size_t count = (size_t)f->n, all = count + (size_t)n + 1;
    struct uop **input = mem_array(t, (size_t)(g->ninput + n) + 1, sizeof *input);
    ARRAY_COPY(input, g->input, g->ninput);
    g->input = input;
    wide.input = mem_array(t, all, sizeof *wide.input);
    wide.value = mem_array(t, all, sizeof *wide.value);
    wide.source = mem_array(t, all, sizeof *wide.source);
    ARRAY_COPY(wide.input, f->input, count);
    ARRAY_COPY(wide.value, f->value, count);
    ARRAY_COPY(wide.source, f->source, count);
    *f = wide;
}

void values_give(struct tgc *t, struct graph *g, const struct array *first, int nfirst,
                 struct feed *f)
{
    int nroot = g->noutput + g->nhost, inner = g->noutput - g->ninner, n;
    struct uop **root = mem_array(t, (size_t)nroot + 1, sizeof *root);
    struct uop_map given = {.t = t}, made = {.t = t};
    widen(t, g, f, g->ninner);
    for (int i = 0; i < g->noutput; i++) {
        struct uop *u = root[i] = g->output[i].value;
        const struct array *v = i < inner ? NULL : find_array(first, nfirst, g->output[i].name);
        if (v && is_rounded(u) && has_shape(u, v) && !map_get(&given, u))
            map_set(&given, u, give(t, g, u, v, f));
    }
    for (int i = 0; i < g->nhost; i++)
        root[g->noutput + i] = g->host[i];
    struct mem_mark mark = scratch_mark(t);
    struct uop **order = uop_toposort(t, root, nroot, &n);
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i], **src = mem_array(t, (size_t)u->nsrc + 1, sizeof *src);
        for (int k = 0; k < u->nsrc; k++)
            if (!(src[k] = map_get(&given, u->src[k])))
                src[k] = map_get(&made, u->src[k]);
        map_set(&made, u, uop_replace_src(t, u, src));
    }
    scratch_release(t, mark);
    for (int i = 0; i < g->noutput; i++)
        g->output[i].value = map_get(&made, root[i]);
    for (int i = 0; i < g->nhost; i++)
        g->host[i] = map_get(&made, root[g->noutput + i]);
}

/* ----------------------------------------------------------------------------------- comparing */

/* How the values compare. */
struct parting {
    int nsame, nbad, nalone, nrounded;
    size_t nstep;                       /* elements that are rounded to the neighbour */
    const char *first, *from, *how;     /* the first that differs; NULL: none does */
};

void instance_print_maker(const struct instance *p, const struct instance *other)
{
    bool two = other && strcmp(other->made_by, p->made_by) != 0;
    printf("ran by %s%s%s\n", p->made_by, two ? "; the second one by " : "",
           two ? other->made_by : "");
}

void print_comparison(struct tgc *t, bool agrees, const struct array *got, const char *how)
{
    printf("%s ", agrees ? "ok      " : "MISMATCH");
    print_escaped(stdout, got->name);
    printf(": %s: ", array_type_text(t, got));
    print_escaped(stdout, how);
    putchar('\n');
}

bool values_agree_rounded(struct tgc *t, struct text *out, const struct array *got,
                          const struct array *want, size_t *nstep)
{
    size_t nmore = 0;
    *nstep = array_has_type(got, want) ? array_count_steps(got, want, &nmore) : 0;
    if (!*nstep || nmore)
        return array_compare(t, out, got, want, 0, 0);
    bool agrees = *nstep <= 1 + want->nelem / ROUNDED_SHARE;
    text_printf(out, "%zu of %zu elements %s rounded to the neighbour, one step away%s", *nstep,
                want->nelem, *nstep == 1 ? "is" : "are",
                agrees ? "" : ": too many for sums in another order");
    return agrees;
}

/* Elements that nearly cancel differ by much of themselves: what counts is the largest one. */
static void compare_inner(struct tgc *t, const struct options *o, const struct array *got,
                          const struct array *want, bool rounded, const char *from,
                          struct parting *r)
{
    struct text x = {.t = t};
    double largest = array_largest(want);
    size_t nstep = 0;
    const double rtol = o->rtol < 0 ? 1e-3 : o->rtol, atol = o->atol < 0 ? 1e-7 : o->atol;
    bool agrees = rounded ? values_agree_rounded(t, &x, got, want, &nstep)
                             : array_compare(t, &x, got, want, 0, atol + rtol * largest);
    print_comparison(t, agrees, got, x.s);
    r->nsame += agrees;
    r->nbad += !agrees;
    r->nrounded += rounded;
    r->nstep += agrees ? nstep : 0;
    if (!agrees && !r->first) {
        r->first = want->name;
        r->from = from;
        r->how = x.s;
    }
}

static void print_parting(const struct parting *r)
{
    if (r->first) {
        fputs("first to differ: ", stdout);
        print_escaped(stdout, r->first);
        fputs(", made by ", stdout);
        print_escaped(stdout, r->from);
        printf(": %s\n", r->how);
    }
    if (r->nrounded)
        printf("rounded to integers: %d values, from which both models go on alike; %zu of their "
               "elements are rounded to the neighbour\n", r->nrounded, r->nstep);
    printf("values inside: %d agree, %d differ", r->nsame, r->nbad);
    if (r->nalone)
        printf("; %d in one model alone, not compared", r->nalone);
    putchar('\n');
}

int values_compare(struct tgc *t, const struct options *o, const struct array *want,
                   const char *const *from, int nwant, const struct array *got, int ngot,
                   const struct name_list *rounded)
{
    struct parting r = {.nalone = nwant + ngot};
    for (int i = 0; i < nwant; i++) {
        const struct array *v = find_array(got, ngot, want[i].name);
        if (!v)
            continue;
        r.nalone -= 2;
        compare_inner(t, o, v, &want[i], name_list_has(rounded, v->name), from[i], &r);
    }
    print_parting(&r);
    return r.nbad;
}
