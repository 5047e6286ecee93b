/* driver.c - runs the passes in the order of passes.def. Before each it checks the facts that the
 * pass needs; after each it verifies the graph, the ASTs or the programs.
 *
 * Consecutive passes of a kernel stage all run for one kernel, then for the next; a twin follows
 * the kernel that it is like.
 */
#include "passes/dump.h"
#include "passes/place/memory.h"
#include "passes/plan/plan.h"
#include "passes/target/target.h"

#include <string.h>

enum pass_when { pass_opt, pass_always, pass_cpu, pass_then };
enum facts {
#define FACT(name, text) name = 1 << FACT_##name,
#include "passes/passes.def"
};

static const char *const facts[FACT_COUNT] = {
#define FACT(name, text) text,
#include "passes/passes.def"
};

static const struct pass passes[] = {
#define ROW(name, stage, when, needs, makes, breaks, text, of)                                     \
    {#name, text, stage, pass_##when == pass_always, pass_##when == pass_cpu,                      \
     pass_##when == pass_then, needs, makes, breaks, of},
#define GRAPH_PASS(name, when, needs, makes, breaks, text)                                         \
    ROW(name, STAGE_GRAPH, when, needs, makes, breaks, text, .graph = pass_##name)
#define PLAN_PASS(name, when, needs, makes, breaks, text)                                          \
    ROW(name, STAGE_PLAN, when, needs, makes, breaks, text, .plan = plan_##name)
#define SCHEDULE_PASS(name, when, needs, makes, breaks, text)                                      \
    ROW(name, STAGE_SCHEDULE, when, needs, makes, breaks, text, .schedule = pass_##name)
#define KERNEL_PASS(name, when, needs, makes, breaks, text)                                        \
    ROW(name, STAGE_KERNEL, when, needs, makes, breaks, text, .kernel = pass_##name)
#define CODE_PASS(name, when, needs, makes, breaks, text)                                          \
    ROW(name, STAGE_CODE, when, needs, makes, breaks, text, .kernel = pass_##name)
#include "passes/passes.def"
};
enum { NPASS = sizeof passes / sizeof passes[0] };

const char *fact_text(enum pass_fact f) { return facts[f]; }

const char *stage_name(enum stage_of s)
{
    static const char *const name[] = {"graph", "plan", "schedule", "kernel", "code"};
    return name[s];
}

const struct pass *pass_at(int i) { return i >= 0 && i < NPASS ? &passes[i] : NULL; }

int pass_count(void) { return NPASS; }

const struct pass *pass_find(const char *name)
{
    for (int i = 0; i < NPASS; i++)
        if (!strcmp(passes[i].name, name))
            return &passes[i];
    return NULL;
}

/* --------------------------------------------------------------------------------------- checks */

static bool verify_form(struct tgc *t, const struct uop *ast, struct uop *const *linear, int n,
                        const char *after)
{
    return linear ? linear_verify(t, linear, n, after) : kernel_verify(t, ast, after);
}

static bool verify_kernel(struct tgc *t, const struct kernel *k, const char *after)
{
    bool ok = verify_form(t, k->ast, k->linear, k->nlinear, after);
    for (int j = 0; j < k->nvariant && ok; j++) {
        const struct variant *v = &k->variant[j];
        if (v->linear || v->ast != k->ast)            /* else it is what was verified above */
            ok = verify_form(t, v->ast, v->linear, v->nlinear, after);
    }
    return ok;
}

/* Once, when the programs are final but for the widths of their offsets. */
static void verify_scratch(struct tgc *t, const struct schedule *s)
{
    struct scratch_proof sum = {0};
    for (int i = 0; i < s->nkernel; i++) {
        const struct kernel *k = s->kernel[i];
        if (k->like)
            continue;
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

/* A lower bound of the number of elements that a movement op makes: of an axis, or of all of them.
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

/* Sizes that wrap would look small. memory.c finds all that no memory can hold, except for
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

/* Inputs that no memory holds, before any cost model counts them. */
static bool check_inputs(struct tgc *t, const struct graph *g)
{
    for (int i = 0; i < graph_count_inputs(g); i++) {
        struct buffer copy = *(const struct buffer *)g->input[i]->arg.p;
        if (!buffer_set_size(t, &copy))
            return false;
    }
    return true;
}

/* Facts that an `opt` pass left out at -O0 would make count as made. */
static void check_facts(struct tgc *t, const struct passing *p, const struct pass *pass)
{
    for (int f = 0; f < FACT_COUNT; f++)
        if ((pass->needs & ~p->facts) >> f & 1)
            TGC_BUG(t, "pass %s needs %s", pass->name, facts[f]);
}

/* -------------------------------------------------------------------------------------- running */

struct start { double seconds; size_t uops, nbytes; };

static struct start start_pass(struct tgc *t, struct passing *p, int i)
{
    tgc_poll(t);
    if (p->log)
        pass_log_enter(t, p->log, i);
    return (struct start){clock_seconds(), t->nuop, t->mem_used};
}

static void note(const struct tgc *t, struct passing *p, int i, struct start start, bool changed)
{
    if (!p->record)
        return;
    p->record[i].seconds += clock_seconds() - start.seconds;
    p->record[i].uops += t->nuop - start.uops;
    p->record[i].nbytes += t->mem_used - start.nbytes;
    p->record[i].runs++;
    p->record[i].changes += changed;
}

/* A hash of a graph's or kernel's uops, in order, which tells whether a pass changed it. */
static uint64_t hash_uops(uint64_t h, struct uop *const *u, int n)
{
    return n ? hash_bytes(h, u, (size_t)n * sizeof *u) : h;
}

static uint64_t graph_mark(struct tgc *t, const struct graph *g)
{
    int n;
    struct uop **root = graph_roots(t, g, &n);
    return hash_uops(1, root, n);
}

static uint64_t kernel_mark(const struct kernel *k)
{
    uint64_t h = hash_uops(hash_uops(1, &k->ast, 1), k->linear, k->nlinear);
    for (int i = 0; i < k->nvariant; i++) {
        h = hash_uops(h, &k->variant[i].ast, 1);
        h = hash_uops(h, k->variant[i].linear, k->variant[i].nlinear);
    }
    return h;
}

static bool run_graph_pass(struct tgc *t, struct passing *p, int i)
{
    struct start start = start_pass(t, p, i);
    uint64_t before = graph_mark(t, p->graph);
    if (!passes[i].graph(t, p->graph))
        return false;
    note(t, p, i, start, before != graph_mark(t, p->graph));
    if (p->dump && before != graph_mark(t, p->graph))
        dump_graph(t, p->dump, p->graph, passes[i].name);
    return graph_verify(t, p->graph, passes[i].name);
}

static bool verify_all(struct tgc *t, struct passing *p, const char *after)
{
    for (int i = 0; i < p->schedule->nkernel; i++) {
        if (p->schedule->kernel[i]->like)
            continue;
        if (!verify_kernel(t, p->schedule->kernel[i], after))
            return false;
        if (p->dump)
            dump_kernel(t, p->dump, p->schedule->kernel[i], after);
    }
    return true;
}

static bool run_plan_pass(struct tgc *t, struct passing *p, int i)
{
    struct start start = start_pass(t, p, i);
    int before = t->nerror;
    passes[i].plan(p->plan);
    note(t, p, i, start, true);
    if (p->dump && t->nerror == before && p->schedule->nkernel == 0)    /* it is no kernels yet */
        dump_plan(t, p->dump, p->plan, passes[i].name);
    return t->nerror == before && verify_all(t, p, passes[i].name);
}

static bool run_schedule_pass(struct tgc *t, struct passing *p, int i)
{
    struct start start = start_pass(t, p, i);
    int nkernel = p->schedule->nkernel;
    if (!passes[i].schedule(t, p->schedule))
        return false;
    note(t, p, i, start, nkernel != p->schedule->nkernel);
    return verify_all(t, p, passes[i].name);
}

static bool run_kernel_pass(struct tgc *t, struct passing *p, int i, struct kernel *k)
{
    struct mem_mark mark = scratch_mark(t);
    struct start start = start_pass(t, p, i);
    uint64_t before = kernel_mark(k);
    bool ok = passes[i].kernel(t, p->schedule, k);
    scratch_release(t, mark);
    bool changed = before != kernel_mark(k);
    note(t, p, i, start, changed);
    if (ok && changed && p->dump)
        dump_kernel(t, p->dump, k, passes[i].name);
    return ok && (!changed || verify_kernel(t, k, passes[i].name));
}

static bool is_left_out(const struct tgc *t, const struct passing *p, int i)
{
    return (p->noopt && !passes[i].always) || (passes[i].cpu && device_has_grid(t));
}

/* Is the pass, of a kernel or NULL, left out by TGC_OPT_LIMIT? */
static bool is_beyond_limit(struct tgc *t, int i, const struct kernel *k)
{
    const struct pass *pass = &passes[i];
    if (!t->limit)
        return false;
    t->limit->pass = pass->name;
    if (pass->always || pass->then)
        return false;
    return !(k ? limit_takes(t, "pass %s, kernel '%s'", pass->name, k->name)
               : limit_takes(t, "pass %s", pass->name));
}

static void change_facts(struct tgc *t, struct passing *p, int i)
{
    if (!is_left_out(t, p, i))
        check_facts(t, p, &passes[i]);
    p->facts |= passes[i].makes;
    p->facts &= ~(is_left_out(t, p, i) ? 0 : passes[i].breaks);
}

/* Runs the kernel passes of one stage, from `first` on, for each kernel; returns the next pass, or
 * -1. */
static int run_kernel_passes(struct tgc *t, struct passing *p, int first, int last)
{
    int end = first;
    for (; end <= last && passes[end].stage == passes[first].stage; end++)
        change_facts(t, p, end);
    for (int j = 0; j < p->schedule->nkernel; j++) {
        struct kernel *k = p->schedule->kernel[j];
        for (int i = first; i < end && !k->like; i++)
            if (!is_left_out(t, p, i) && !is_beyond_limit(t, i, k) &&
                !run_kernel_pass(t, p, i, k))
                return -1;
        if (k->like)
            twin_follow(t, k);
    }
    return end;
}

bool passes_run_rows(struct tgc *t, struct passing *p, const char *first, const char *last)
{
    const struct pass *from = pass_find(first), *to = pass_find(last);
    if (!from || !to)
        TGC_BUG(t, "no pass %s or %s", first, last);
    for (int i = (int)(from - passes), end = (int)(to - passes); i <= end; i++) {
        bool ok = true;
        if (passes[i].kernel) {
            i = run_kernel_passes(t, p, i, end) - 1;
            if (i < 0)
                return false;
            continue;
        }
        change_facts(t, p, i);
        if (is_left_out(t, p, i) || is_beyond_limit(t, i, NULL))
            continue;
        if (passes[i].plan && !p->plan) {
            p->plan = plan_new(t, p->graph, p->noopt);
            p->schedule = p->plan->schedule;
            p->schedule->isa = p->isa;
            p->schedule->threads = p->threads;
            p->schedule->on_device = p->on_device;
            p->schedule->thread_gain_ns = p->thread_gain_ns;
        }
        ok = passes[i].graph  ? run_graph_pass(t, p, i)
             : passes[i].plan ? run_plan_pass(t, p, i)
                              : run_schedule_pass(t, p, i);
        if (!ok)
            return false;
    }
    return true;
}

struct schedule *passes_run(struct tgc *t, struct graph *g, const struct compile_options *o)
{
    struct passing p = {.graph = g,
                        .noopt = o->noopt,
                        .isa = o->isa,
                        .threads = o->threads,
                        .on_device = o->on_device,
                        .thread_gain_ns = o->on_device ? 0 : machine_of(t)->wake_ns,
                        .facts = TENSORS,
                        .record = o->record,
                        .log = o->log};
    t->threads = o->threads;
    t->device = o->device;
    t->architectures = o->architectures;
    t->by_llvm = o->by_llvm;
    t->scalar = !(o->isa & ~(1u << isa_portable()));
    if (!check_sizes(t, g) || !check_inputs(t, g) || !graph_verify(t, g, "the frontend"))
        return NULL;
    if (t->debug >= 4 || o->log) {
        p.dump = dump_new(t, t->debug >= 4 ? NULL : o->log);
        dump_graph(t, p.dump, g, "the frontend");
    }
    if (!passes_run_rows(t, &p, passes[0].name, "separate_twins"))
        return NULL;
    verify_scratch(t, p.schedule);
    if (!passes_run_rows(t, &p, "join_stores", passes[NPASS - 1].name))
        return NULL;
    if (t->debug >= 2)
        fprintf(stderr, "uops: %zu, %zu MB of memory\n", t->nuop, t->mem_used >> 20);
    return p.schedule;
}
