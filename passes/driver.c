/* driver.c - runs the passes in the order of passes.def; verifies after each of them, dumps at
 * DEBUG=4. */
#include "passes/passes.h"

#include <stdlib.h>
#include <string.h>

typedef bool (*graph_pass)(struct tgc *, struct graph *);
typedef bool (*schedule_pass)(struct tgc *, struct schedule *);
enum pass_when { pass_always, pass_opt };

static const struct {
    const char *name;
    enum pass_when when;
    graph_pass graph;
    schedule_pass schedule;
} passes[] = {
#define GRAPH_PASS(function, name, when) {name, pass_##when, function, NULL},
#define SCHEDULE_PASS(function, name, when) {name, pass_##when, NULL, function},
#include "passes/passes.def"
#undef GRAPH_PASS
#undef SCHEDULE_PASS
};
enum { NPASS = sizeof passes / sizeof passes[0] };

/* ------------------------------------------------------------------------------------- DEBUG=4 */

/* What was last printed of the graph (key "") or of a kernel, so that a pass shows what it changed
 * alone: a UOp has its number for good, so one that stays has its line. */
struct dumped { const char *key, *text; };
struct dump { struct dumped *v; size_t n, cap; };

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The lines of a text, sorted if asked for; the text is cut up. */
static const char **cut_lines(struct tgc *t, const char *text, bool sorted, size_t *n)
{
    const char **line = NULL;
    size_t cap = 0;
    *n = 0;
    for (char *s = mem_str(t, text), *end; *s; s = end + 1) {
        end = s + strcspn(s, "\n");
        VEC_PUSH(t, line, *n, cap, s);
        if (!*end)
            break;
        *end = 0;
    }
    if (sorted && *n)
        qsort(line, *n, sizeof *line, compare_lines);
    return line;
}

/* Lines of `of` that `among` lacks. */
static int print_lacking(struct tgc *t, const char *of, const char *among, const char *sign)
{
    size_t n, nknown;
    const char **line = cut_lines(t, of, false, &n), **known = cut_lines(t, among, true, &nknown);
    int count = 0;
    for (size_t i = 0; i < n; i++) {
        if (nknown && bsearch(&line[i], known, nknown, sizeof *known, compare_lines))
            continue;
        fprintf(stderr, "%s%s\n", sign, line[i]);
        count++;
    }
    return count;
}

static void dump_text(struct tgc *t, struct dump *d, const char *key, const char *title,
                      const char *text)
{
    size_t i = 0;
    while (i < d->n && strcmp(d->v[i].key, key) != 0)
        i++;
    if (i == d->n) {
        VEC_PUSH(t, d->v, d->n, d->cap, ((struct dumped){key, text}));
        fprintf(stderr, "*** %s\n%s", title, text);
        return;
    }
    if (strcmp(d->v[i].text, text) == 0)
        return;
    fprintf(stderr, "*** %s: what changed\n", title);
    if (print_lacking(t, d->v[i].text, text, "- ") + print_lacking(t, text, d->v[i].text, "+ ") == 0)
        fputs("(the order)\n", stderr);
    d->v[i].text = text;
}

static void dump_graph(struct tgc *t, struct dump *d, const struct graph *g, const char *after)
{
    struct text x = {.t = t};
    graph_print(&x, t, g);
    dump_text(t, d, "", mem_printf(t, "graph after %s", after), x.s ? x.s : "");
}

static void dump_kernel(struct tgc *t, struct dump *d, const struct kernel *k, const char *isa,
                        struct uop *const *linear, int n, const char *after)
{
    struct text x = {.t = t};
    linear_print(&x, t, linear, n);
    dump_text(t, d, mem_printf(t, "%s (%s)", k->name, isa),
              mem_printf(t, "%s (%s) after %s: %s", k->name, isa, after, k->title), x.s ? x.s : "");
}

static void dump_kernels(struct tgc *t, struct dump *d, const struct schedule *s, const char *after)
{
    for (int i = 0; i < s->nkernel; i++) {
        const struct kernel *k = s->kernel[i];
        dump_kernel(t, d, k, isa_name(isa_portable()), k->linear, k->nlinear, after);
        for (int j = 0; j < k->nvariant; j++)
            dump_kernel(t, d, k, isa_name(k->variant[j].isa), k->variant[j].linear,
                        k->variant[j].nlinear, after);
    }
}

/* ------------------------------------------------------------------------------------------------ */

static bool verify_kernels(struct tgc *t, const struct schedule *s, const char *after)
{
    for (int i = 0; i < s->nkernel; i++) {
        const struct kernel *k = s->kernel[i];
        bool ok = k->linear ? linear_verify(t, k->linear, k->nlinear, after)
                            : kernel_verify(t, k->ast, after);
        for (int j = 0; j < k->nvariant && ok; j++) {
            const struct variant *v = &k->variant[j];
            ok = v->linear ? linear_verify(t, v->linear, v->nlinear, after)
                           : kernel_verify(t, v->ast, after);
        }
        if (!ok)
            return false;
    }
    return true;
}

/* Once, when the programs are what they stay. */
static void verify_scratch(struct tgc *t, const struct schedule *s)
{
    struct scratch_proof sum = {0};
    for (int i = 0; i < s->nkernel; i++) {
        const struct kernel *k = s->kernel[i];
        struct scratch_proof proof = {0};
        scratch_verify(t, k->linear, k->nlinear, k->name, &proof);
        for (int j = 0; j < k->nvariant; j++)
            scratch_verify(t, k->variant[j].linear, k->variant[j].nlinear, k->name, &proof);
        if (t->debug >= 2 && proof.open)
            fprintf(stderr, "scratch: %s: %d loads of %d are not proved\n", k->name, proof.open,
                    proof.open + proof.proved);
        sum.proved += proof.proved;
        sum.open += proof.open;
    }
    if (t->debug >= 2 && sum.proved + sum.open)
        fprintf(stderr, "scratch: %d loads proved to read what was stored, %d not\n", sum.proved,
                sum.open);
}

/* The least size that a movement op makes of its source's: of an axis, or of all of them.
 * INT64_MAX: more than can be counted. */
static int64_t least_size(const struct uop *u)
{
    int64_t most = 0, size = 1;
    for (int a = 0; u->op == OP_RESHAPE && a < u->src[0]->ndim; a++)
        size = sat_mul(size, u->src[0]->dim[a]->vmin > 0 ? u->src[0]->dim[a]->vmin : 0);
    for (int a = 0; u->op == OP_PAD && a < u->ndim; a++) {
        size = sat_add(u->src[0]->dim[a]->vmin,
                       sat_add(u->src[2 + 2 * a]->vmin, u->src[3 + 2 * a]->vmin));
        most = size > most ? size : most;
    }
    for (int k = 0; u->op == OP_CONCAT && k < u->nsrc; k++)
        most = sat_add(most, u->src[k]->dim[u->arg.i]->vmin);
    return size > most ? size : most;
}

/* Sizes that wrap would look like others: what no memory can hold is found by memory.c, but for
 * these. */
static bool check_sizes(struct tgc *t, const struct graph *g)
{
    int nroot, n;
    struct uop **root = graph_roots(t, g, &nroot);
    struct mem_mark mark = scratch_mark(t);
    struct uop **order = uop_toposort(t, root, nroot, &n);
    const struct uop *found = NULL;
    for (int i = 0; i < n && !found; i++)
        if (op_class(order[i]->op) == CLASS_MOVE && least_size(order[i]) == INT64_MAX)
            found = order[i];
    scratch_release(t, mark);
    const struct origin *o = found ? uop_get_origin(t, found) : NULL;
    return !found || diag_error(t, NULL,
                                "%s%.100s%s makes a size of 2^63 or more, which cannot be "
                                "counted: give its dimensions smaller bounds",
                                o ? "node '" : "the graph", o ? o->node : "", o ? "'" : "");
}

struct schedule *passes_run(struct tgc *t, struct graph *g, const struct compile_options *o)
{
    bool dump = t->debug >= 4;
    struct dump dumped = {0};
    t->threads = o->threads;
    t->scalar = !(o->isa & ~(1u << isa_portable()));
    struct schedule *s = NULL;
    if (!check_sizes(t, g) || !graph_verify(t, g, "the frontend"))
        return NULL;
    if (dump)
        dump_graph(t, &dumped, g, "the frontend");
    for (int i = 0; i < NPASS; i++) {
        if (passes[i].when == pass_opt && o->noopt)
            continue;
        if (passes[i].graph) {
            if (!passes[i].graph(t, g) || !graph_verify(t, g, passes[i].name))
                return NULL;
            if (dump)
                dump_graph(t, &dumped, g, passes[i].name);
            continue;
        }
        if (!s && (!(s = schedule_graph(t, g, o->noopt)) || !verify_kernels(t, s, "lower")))
            return NULL;
        s->isa = o->isa;
        s->threads = o->threads;
        s->on_device = o->on_device;
        s->thread_gain_ns = o->on_device ? 0 : machine_of(t)->wake_ns;
        if (!passes[i].schedule(t, s) || !verify_kernels(t, s, passes[i].name))
            return NULL;
        if (dump && (passes[i].schedule == pass_linearize || passes[i].schedule == pass_expand))
            dump_kernels(t, &dumped, s, passes[i].name);
    }
    verify_scratch(t, s);
    if (t->debug >= 2)
        fprintf(stderr, "uops: %zu, %zu MB of memory\n", t->nuop, t->mem_used >> 20);
    return s;
}
