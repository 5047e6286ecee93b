/* driver.c - runs the passes in the order of passes.def; verifies after each of them, dumps at
 * DEBUG=4. */
#include "passes/passes.h"

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

static void dump_graph(struct tgc *t, const struct graph *g, const char *after)
{
    struct text x = {.t = t};
    graph_print(&x, t, g);
    fprintf(stderr, "*** graph after %s\n%s", after, x.s ? x.s : "");
}

static void dump_kernel(struct tgc *t, const struct kernel *k, const char *isa,
                        struct uop *const *linear, int n, const char *after)
{
    struct text x = {.t = t};
    linear_print(&x, t, linear, n);
    fprintf(stderr, "*** %s (%s) after %s: %s\n%s", k->name, isa, after, k->title, x.s ? x.s : "");
}

static void dump_kernels(struct tgc *t, const struct schedule *s, const char *after)
{
    for (int i = 0; i < s->nkernel; i++) {
        const struct kernel *k = s->kernel[i];
        dump_kernel(t, k, isa_table[ISA_GENERIC].text, k->linear, k->nlinear, after);
        for (int j = 0; j < k->nvariant; j++)
            dump_kernel(t, k, isa_table[k->variant[j].isa].text, k->variant[j].linear,
                        k->variant[j].nlinear, after);
    }
}

static bool verify_kernels(struct tgc *t, const struct schedule *s, const char *after)
{
    for (int i = 0; i < s->nkernel; i++) {
        const struct kernel *k = s->kernel[i];
        if (k->linear && !linear_verify(t, k->linear, k->nlinear, after))
            return false;
        for (int j = 0; j < k->nvariant && k->variant[j].linear; j++)
            if (!linear_verify(t, k->variant[j].linear, k->variant[j].nlinear, after))
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
    t->threads = o->threads;
    t->scalar = !(o->isa & ~(1u << ISA_GENERIC));
    struct schedule *s = NULL;
    if (!check_sizes(t, g) || !graph_verify(t, g, "the frontend"))
        return NULL;
    if (dump)
        dump_graph(t, g, "the frontend");
    for (int i = 0; i < NPASS; i++) {
        if (passes[i].when == pass_opt && o->noopt)
            continue;
        if (passes[i].graph) {
            if (!passes[i].graph(t, g) || !graph_verify(t, g, passes[i].name))
                return NULL;
            if (dump)
                dump_graph(t, g, passes[i].name);
            continue;
        }
        if (!s && !(s = schedule_graph(t, g, o->noopt)))
            return NULL;
        s->isa = o->isa;
        s->threads = o->threads;
        s->thread_gain_ns = THREAD_GAIN_NS;
        if (!passes[i].schedule(t, s) || !verify_kernels(t, s, passes[i].name))
            return NULL;
        if (dump && (passes[i].schedule == pass_linearize || passes[i].schedule == pass_expand))
            dump_kernels(t, s, passes[i].name);
    }
    verify_scratch(t, s);
    return s;
}
