/* tgtool.c - the tests' window on the text formats: reads a graph or a kernel, and prints it,
 * evaluates it, or runs one pass on it.
 *
 *   - [-O0] [-s SIDE] [-l] print FILE: the graph in primitive ops. Fails unless reading that
 *     again gives the same text.
 *   - [-O0] eval FILE: each output of a graph, as  name : dtype[dims] = values
 *   - [-B N] eval FILE: a linear program, by blocks of N threads. Fails if two of them race.
 *   - [-b] [-i ISA] [-t N] pass NAME FILE: what the pass makes of a graph, of a kernel's AST or
 *     of a linear program. A pass of the plan prints the plan of a graph after it; a later one, the
 *     schedule and its kernels. All passes before it are run, too. A kernel's AST has its variants
 *     if the pass needs them.
 *   - [-i ISA] [-t N] [-e TOLERANCE] run FILE: runs a graph's schedule, after all passes, and
 *     compares what it computes with the graph.
 *   - [-i ISA] [-t N] summary FILE: the passes' decisions for a graph (tiles, opts, threads, stack,
 *     predicted times); then, on standard error, their reports at DEBUG=2.
 *   - [-i ISA] [-t N] opts FILE: what the passes do to the loops of a kernel's AST.
 *   - [-i ISA] [-t N] loops FILE: and what they make of it.
 *   - [-t N] apply OPTS FILE: the AST after the opts that the file OPTS lists.
 *   - [-t N] -s FOLDER opencl OPTS FILE: net.c and net.h of a graph of one kernel, whose loops
 *     these opts make, not the passes.
 *   - -d DEVICE -s FOLDER cuda OPTS FILE: likewise, and net.cu and net.ptx, its kernel.
 *   - passes: the passes, their stages and names.
 *
 * Options:
 *
 *   - -O0: without folding. -l: with locations. -i: an instruction set; several times for several.
 *   - -s: weights beyond 4 elements go into SIDE. -d: for a device of devices.def.
 *   - -b: without the pass itself. -c: a cache of that many bytes. -E: the error that rewrites may
 *     add (--error).
 *   - -p: products by parts (--strassen). -w: the dtype of large weights (--weight-type).
 *   - -M: the dtype of factors (--math). -H: halves between kernels (--half-storage).
 *   - -I: images (--image).
 *
 * Inputs of eval hold 0.1 * (index % 7) - 0.2, and symbols are 2. Diagnostics go to standard error
 * as file:line:column: message, source line, caret; the status is 1 then.
 */
#include "backends/backend.h"
#include "ir/oracle.h"
#include "frontend/text/text.h"
#include "passes/plan/plan.h"
#include "passes/target/target.h"
#include "tests/ir/run.h"
#include "tests/ir/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void print_diagnostics(const struct tgc *t)
{
    for (int i = 0; i < t->ndiag; i++) {
        const struct diag *d = &t->diag[i];
        const char *slash = d->at.file ? strrchr(d->at.file, '/') : NULL;
        fprintf(stderr, "%s:%d:%d: %s\n",
                slash        ? slash + 1
                : d->at.file ? d->at.file
                             : "",
                d->at.line, d->at.column, d->message);
        if (d->at.source_line)
            fprintf(stderr, "    %s\n    %*s^\n", d->at.source_line, d->at.column - 1, "");
    }
}

static int print_graph(struct tgc *t, const struct graph *g, const char *path,
                       const char *side_path, bool locations)
{
    struct text out = {.t = t}, side = {.t = t}, again = {.t = t}, side_again = {.t = t};
    struct tg_write_options o = {
        .inline_nelem = side_path ? 4 : 0, .side_file = side_path, .no_locations = !locations};
    if (!tg_write(t, g, &o, &out, side_path ? &side : NULL))
        return 1;
    fwrite(out.s, 1, out.n, stdout);
    if (side_path && side.n) {
        const char *slash = strrchr(path, '/');
        const char *full = slash ? mem_printf(t, "%.*s/%s", (int)(slash - path), path, side_path)
                                 : side_path;
        FILE *f = fopen(full, "wb");
        if (!f || fwrite(side.s, 1, side.n, f) != side.n || fclose(f) != 0) {
            fprintf(stderr, "%s cannot be written\n", full);
            return 1;
        }
    }
    struct graph *second = tg_read_bytes(t, path, out.s, out.n, NULL);
    if (!second || !tg_write(t, second, &o, &again, side_path ? &side_again : NULL))
        return 1;
    if (again.n != out.n || memcmp(again.s, out.s, out.n) != 0) {
        fprintf(stderr, "print(parse(print(g))) differs from print(g):\n%s", again.s);
        return 1;
    }
    return 0;
}

static struct tensor *test_input(struct tgc *t, const struct uop *u, const int64_t *var, int nvar)
{
    struct tensor *x = MEM_NEW(t, struct tensor);
    *x = (struct tensor){.dtype = u->dtype, .ndim = u->ndim, .nelem = 1};
    for (int a = 0; a < u->ndim; a++) {
        sym_eval(u->dim[a], var, nvar, &x->dim[a]);
        x->nelem *= x->dim[a];
    }
    x->data = mem_array(t, (size_t)x->nelem + 1, 8);
    for (int64_t i = 0; i < x->nelem; i++)
        if (dtype_is_float(u->dtype))
            ((double *)x->data)[i] = scalar_cast(u->dtype, DTYPE_F64,
                                                 (union scalar){.f = 0.1 * (double)(i % 7) - 0.2})
                                         .f;
        else
            ((int64_t *)x->data)[i] = i % (u->dtype == DTYPE_BOOL ? 2 : 7);
    return x;
}

static void print_tensor(const char *name, const struct tensor *x)
{
    printf("%s : %s", name, dtype_name(x->dtype));
    for (int a = 0; a < x->ndim; a++)
        printf("%s%lld", a ? ", " : "[", (long long)x->dim[a]);
    printf("%s =", x->ndim ? "]" : "");
    for (int64_t i = 0; i < x->nelem; i++)
        if (dtype_is_float(x->dtype))
            printf(" %.*g", x->dtype == DTYPE_F64 ? 17 : 9, ((const double *)x->data)[i]);
        else
            printf(" %lld", (long long)((const int64_t *)x->data)[i]);
    printf("\n");
}

static int eval_outputs(struct tgc *t, const struct graph *g)
{
    int64_t *var = mem_array(t, (size_t)t->next_var + 1, sizeof *var);
    for (int i = 0; i < t->next_var; i++)
        var[i] = 2;
    struct eval_env env = {.n = g->ninput,
                           .var = var,
                           .nvar = t->next_var,
                           .budget = -1,
                           .host = g->host,
                           .nhost = g->nhost};
    env.leaf = mem_array(t, (size_t)g->ninput + 1, sizeof *env.leaf);
    env.value = mem_array(t, (size_t)g->ninput + 1, sizeof *env.value);
    for (int i = 0; i < g->ninput; i++) {
        env.leaf[i] = g->input[i];
        env.value[i] = test_input(t, g->input[i], var, t->next_var);
    }
    struct uop **root = mem_array(t, (size_t)g->noutput, sizeof *root);
    struct tensor **value = mem_array(t, (size_t)g->noutput, sizeof *value);
    for (int i = 0; i < g->noutput; i++)
        root[i] = g->output[i].value;
    if (!eval_graph(t, root, g->noutput, &env, value)) {
        fprintf(stderr, "the graph cannot be evaluated\n");
        return 1;
    }
    for (int i = 0; i < g->noutput; i++)
        print_tensor(g->output[i].name, value[i]);
    return 0;
}

enum { MAX_STATES = 4 };
struct command {
    bool noopt, locations, before, strassen, half_storage, image;
    const char *side, *verb, *pass, *opts, *path;
    enum isa isa;                /* the last one named */
    isa_set isas;
    int threads, block;
    size_t cache;
    enum dtype weights, math;
    double tolerance, error;
    const struct machine *machine;
    const struct device_row *device;
    const char *state[MAX_STATES]; int nstate;
};

/* -------------------------------------------------------------------------------------- kernels */

static void print_text(struct text *out, struct tgc *t, const struct kernel_text *k)
{
    if (k->ast)
        kernel_print(out, t, k->ast);
    else
        program_print(out, t, k->linear, k->nlinear);
}

static int print_kernel(struct tgc *t, const struct kernel_text *k, const char *path)
{
    struct text out = {.t = t}, again = {.t = t};
    struct kernel_text second;
    print_text(&out, t, k);
    fwrite(out.s, 1, out.n, stdout);
    if (!tg_read_kernel(t, path, out.s, out.n, &second))
        return 1;
    print_text(&again, t, &second);
    if (again.n == out.n && memcmp(again.s, out.s, out.n) == 0)
        return 0;
    fprintf(stderr, "print(parse(print(k))) differs from print(k):\n%s", again.s);
    return 1;
}

/* What a kernel reads and writes: test inputs, and the same in what it writes. */
static struct eval_env kernel_memory(struct tgc *t, const struct kernel_text *k)
{
    int64_t *var = mem_array(t, (size_t)t->next_var + 1, sizeof *var);
    for (int i = 0; i < t->next_var; i++)
        var[i] = 2;
    struct eval_env env = {.var = var, .nvar = t->next_var, .budget = 1 << 26};
    env.leaf = mem_array(t, (size_t)k->nbuffer + 1, sizeof *env.leaf);
    env.value = mem_array(t, (size_t)k->nbuffer + 1, sizeof *env.value);
    for (int i = 0; i < k->nbuffer; i++) {
        struct buffer *b = k->buffer[i];
        if (b->kind == BUFFER_SCRATCH || (b->kind == BUFFER_WEIGHT && b->weight.data))
            continue;
        env.leaf[env.n] = uop_buffer(t, b);
        env.value[env.n] = test_input(t, env.leaf[env.n], var, t->next_var);
        env.n++;
    }
    return env;
}

static bool is_stored(const struct kernel_text *k, const struct buffer *b)
{
    bool stored = false;
    for (int i = 0; k->ast && i < k->ast->nsrc; i++)
        stored |= uop_buffer_of(k->ast->src[i]->src[0]) == b;
    for (int i = 0; i < k->nlinear; i++)
        stored |= ((k->linear[i]->op == OP_STORE || k->linear[i]->op == OP_PUT) &&
                   uop_buffer_of(k->linear[i]->src[0]) == b) ||
                  (k->linear[i]->op == OP_BULK_STORE && uop_buffer_of(k->linear[i]->src[2]) == b);
    return stored;
}

/* Where a race is noted, and of each element who has accessed it. */
static void look_for_races(struct tgc *t, struct eval_env *env)
{
    env->race = MEM_NEW(t, struct race);
    env->touch = mem_array(t, (size_t)env->n + 1, sizeof *env->touch);
    for (int i = 0; i < env->n; i++)
        env->touch[i] = mem_array(t, (size_t)env->value[i]->nelem + 1, sizeof **env->touch);
}

static int eval_text(struct tgc *t, const struct command *c, const struct kernel_text *k)
{
    struct eval_env env = kernel_memory(t, k);
    env.block = c->block;
    if (c->block)
        look_for_races(t, &env);
    bool ok = k->ast ? eval_kernel(t, k->ast, &env) : eval_linear(t, k->linear, k->nlinear, &env);
    if (!ok) {
        fprintf(stderr, "the kernel cannot be evaluated\n");
        return 1;
    }
    if (env.race && env.race->buffer) {
        fprintf(stderr, "threads %d and %d of a block meet at element %lld of %s memory\n",
                env.race->thread[1], env.race->thread[0], (long long)env.race->element,
                space_name(buffer_space(env.race->buffer)));
        return 1;
    }
    for (int i = 0; i < env.n; i++)
        if (is_stored(k, env.leaf[i]->arg.p))
            print_tensor(mem_printf(t, "%d", ((const struct buffer *)env.leaf[i]->arg.p)->id),
                         env.value[i]);
    return 0;
}

/* --------------------------------------------------------------------------------------- passes */

static struct kernel *kernel_of(struct tgc *t, const struct kernel_text *text, enum isa isa)
{
    struct kernel *k = MEM_NEW(t, struct kernel);
    struct variant *v = MEM_NEW(t, struct variant);
    *k = (struct kernel){.name = "kernel", .title = "", .ast = text->ast};
    *v = (struct variant){.isa = isa, .linear = text->linear, .nlinear = text->nlinear};
    if (text->linear) {                          /* the portable program, and a variant of it */
        k->linear = text->linear;
        k->nlinear = text->nlinear;
        k->variant = v;
        k->nvariant = 1;
    }
    k->buffer = mem_array(t, (size_t)text->nbuffer + 1, sizeof *k->buffer);
    k->scratch = mem_array(t, (size_t)text->nbuffer + 1, sizeof *k->scratch);
    for (int stored = 1; stored >= 0; stored--) {
        for (int i = 0; i < text->nbuffer; i++) {
            struct buffer *b = text->buffer[i];
            if (b->kind == BUFFER_SCRATCH && stored)
                k->scratch[k->nscratch++] = b;
            else if (b->kind != BUFFER_SCRATCH && is_stored(text, b) == stored)
                k->buffer[k->nbuffer++] = b;
        }
        k->noutput = stored ? k->nbuffer : k->noutput;
    }
    return k;
}

static void print_kernels(struct tgc *t, const struct schedule *s)
{
    struct text out = {.t = t};
    for (int i = 0; i < s->nkernel; i++) {
        const struct kernel *k = s->kernel[i];
        if (k->like)             /* it is printed already */
            continue;
        if (k->linear && k->nvariant == 0)
            program_print(&out, t, k->linear, k->nlinear);
        else if (!k->linear)
            kernel_print(&out, t, k->ast);
        for (int j = 0; j < k->nvariant; j++) {
            text_printf(&out, "# %s\n", isa_table[k->variant[j].isa].text);
            if (k->variant[j].linear)
                program_print(&out, t, k->variant[j].linear, k->variant[j].nlinear);
            else
                kernel_print(&out, t, k->variant[j].ast);
        }
    }
    fwrite(out.s, 1, out.n, stdout);
}

static int pass_on_kernel(struct tgc *t, const struct command *c, const struct pass *pass,
                          const struct kernel_text *text)
{
    struct kernel *k = kernel_of(t, text, c->isa);
    struct step step = {.kind = STEP_KERNEL, .kernel = k};
    struct schedule s = {.kernel = &k, .nkernel = 1, .step = &step, .nstep = 1,
                         .threads = c->threads, .isa = c->isas};
    bool takes = pass->kernel ? (pass->stage == STAGE_CODE) == (text->linear != NULL)
                              : pass->schedule && text->ast;
    if (!takes) {
        fprintf(stderr, "pass %s does not take this: it is one of the stage %s\n", pass->name,
                stage_name(pass->stage));
        return 2;
    }
    if (text->ast && pass->needs >> FACT_VARIANTS & 1 &&
        !pass_find("make_variants")->kernel(t, &s, k))
        return 1;
    if (!c->before && !(pass->kernel ? pass->kernel(t, &s, k) : pass->schedule(t, &s)))
        return 1;
    if (k->linear)
        linear_verify(t, k->linear, k->nlinear, pass->name);
    else
        kernel_verify(t, k->ast, pass->name);
    for (int i = 0; i < k->nvariant; i++)
        if (k->variant[i].linear)
            linear_verify(t, k->variant[i].linear, k->variant[i].nlinear, pass->name);
        else
            kernel_verify(t, k->variant[i].ast, pass->name);
    print_kernels(t, &s);
    return 0;
}

static void print_behind(struct tgc *t, const struct passing *p, const struct pass *pass)
{
    struct text out = {.t = t};
    if (pass->plan && p->plan->nnode && p->schedule->nkernel == 0)
        plan_print(&out, p->plan);
    else if (pass->schedule)
        schedule_print(&out, t, p->schedule);
    fwrite(out.s, 1, out.n, stdout);
    if (p->schedule &&
        (pass->kernel || !strcmp(pass->name, "emit_steps") || !strcmp(pass->name, "part")))
        print_kernels(t, p->schedule);
}

static void print_opts(struct text *out, enum isa isa, const struct opts *list)
{
    text_printf(out, "# %s\n", isa_table[isa].text);
    for (int i = 0; i < list->n; i++) {
        opt_print(out, &list->v[i]);
        text_putc(out, '\n');
    }
}

/* All passes that change the kernel's loops. */
static int loops_of_kernel(struct tgc *t, const struct command *c, const struct kernel_text *text)
{
    struct kernel *k = kernel_of(t, text, c->isa);
    struct schedule s = {.kernel = &k, .nkernel = 1, .threads = c->threads, .isa = c->isas};
    struct text out = {.t = t};
    if (text->linear) {
        fprintf(stderr, "a linear program's loops stay what they are\n");
        return 2;
    }
    for (const struct pass *p = pass_find("merge_ranges"); strcmp(p->name, "linearize") != 0; p++)
        if (p->kernel && (!p->kernel(t, &s, k) || !kernel_verify(t, k->ast, p->name)))
            return 1;
    for (int i = 0; i <= k->nvariant; i++) {
        const struct variant *v = i ? &k->variant[i - 1] : NULL;
        if (!strcmp(c->verb, "opts")) {
            print_opts(&out, v ? v->isa : isa_portable(), v ? &v->opts : &k->opts);
            continue;
        }
        text_printf(&out, "# %s\n", isa_table[v ? v->isa : isa_portable()].text);
        kernel_print(&out, t, v ? v->ast : k->ast);
    }
    fwrite(out.s, 1, out.n, stdout);
    return 0;
}

/* Which opt of a list that is refused, for that reason, is it: the last one of the shortest list
 * that is for the same. */
static int find_refused(struct tgc *t, const struct kernel *k, const struct opts *list,
                        const char *reason)
{
    for (int n = 1; n < list->n; n++) {
        struct kernel trial = *k;
        struct refusal refusal;
        if (!opt_apply(t, &trial, NULL, list->v, n, &refusal) && !strcmp(refusal.why, reason))
            return n - 1;
    }
    return list->n - 1;
}

static int apply_to_kernel(struct tgc *t, const struct command *c, const struct kernel_text *text)
{
    struct kernel *k = kernel_of(t, text, c->isa);
    struct opts list = {0};
    struct text out = {.t = t}, line = {.t = t};
    struct refusal refusal;
    const char *bytes;
    size_t nbytes;
    if (!(bytes = tg_load(t, c->opts, &nbytes)) || !opts_read(t, c->opts, 1, bytes, nbytes, &list))
        return 1;
    if (text->linear) {
        fprintf(stderr, "a linear program's loops stay what they are\n");
        return 2;
    }
    if (!opt_apply(t, k, NULL, list.v, list.n, &refusal)) {
        opt_print(&line, &list.v[find_refused(t, k, &list, refusal.why)]);
        fprintf(stderr, "refused: %s: %s\n", line.s, refusal.why);
        return 1;
    }
    kernel_verify(t, k->ast, "opts");
    kernel_print(&out, t, k->ast);
    fwrite(out.s, 1, out.n, stdout);
    return 0;
}

static bool write_file(struct tgc *t, const char *folder, const char *name, const struct text *text)
{
    FILE *f = fopen(mem_printf(t, "%s/%s", folder, name), "wb");
    return f && fwrite(text->s, 1, text->n, f) == text->n && fclose(f) == 0;
}

/* The device's program of a graph, its loops by opts; of CUDA the kernels' text, too, of
 * which PTX was made. */
static int program_of_graph(struct tgc *t, const struct command *c, struct graph *g)
{
    bool cuda = !strcmp(c->verb, "cuda");
    struct passing p = {.graph = g, .isa = 1u << isa_portable(), .threads = c->threads,
                        .on_device = true, .facts = 1u << FACT_TENSORS};
    struct program_options o = {.name = "net", .backend = backend_find(c->verb), .model = "net",
                                .producer = "tgtool", .weights = WEIGHTS_STRING,
                                .vectors_mode = VECTORS_NEVER,
                                .architectures = cuda && c->device ? c->device->text : NULL};
    struct opts list = {0};
    struct text source = {.t = t}, header = {.t = t}, kernels = {.t = t}, ptx = {.t = t};
    o.kernels = cuda ? &kernels : NULL;
    o.device_code = cuda ? &ptx : NULL;
    struct refusal refusal;
    const char *bytes;
    size_t nbytes;
    bool beside;
    if (!(bytes = tg_load(t, c->opts, &nbytes)) ||
        !opts_read(t, c->opts, 1, bytes, nbytes, &list) ||
        !passes_run_rows(t, &p, pass_at(0)->name, "decide_stacks"))
        return 1;
    struct kernel *k = p.schedule->kernel[0];
    if (p.schedule->nkernel != 1 || !opt_apply(t, k, NULL, list.v, list.n, &refusal)) {
        fprintf(stderr, "refused: %s\n",
                p.schedule->nkernel != 1 ? "several kernels" : refusal.why);
        return 1;
    }
    for (int i = 0; i < list.n; i++)
        k->is_shared |= list.v[i].op == OPT_THREAD;
    kernel_note_grid(t, k);
    schedule_collect_buffers(t, p.schedule);             /* scratch is new */
    p.facts |= cuda ? 1u << FACT_TILED : 0;              /* by the opts */
    bool lowered = kernel_verify(t, k->ast, "opts") &&
                   passes_run_rows(t, &p, "linearize", cuda ? "widths" : "linearize") &&
                   (cuda || passes_run_rows(t, &p, "legalize", "weights"));
    return lowered && program_write_c(t, p.schedule, &o, &source, &header, &beside) &&
                   write_file(t, c->side, "net.c", &source) &&
                   write_file(t, c->side, "net.h", &header) &&
                   (!cuda || (write_file(t, c->side, "net.cu", &kernels) &&
                              write_file(t, c->side, "net.ptx", &ptx)))
               ? 0
               : 1;
}

/* All passes up to this one, or to the one before it. */
static int passes_up_to(struct tgc *t, const struct command *c, struct graph *g)
{
    struct passing p = {.graph = g, .isa = c->isas, .threads = c->threads,
                        .facts = 1u << FACT_TENSORS};
    const struct pass *pass = pass_find(c->pass), *last = c->before ? pass - 1 : pass;
    if (!passes_run_rows(t, &p, pass_at(0)->name, last->name))
        return 1;
    if (p.plan)
        print_behind(t, &p, pass);
    return 0;
}

/* ------------------------------------------------------------------------------------ schedules */

static bool is_close(const struct tensor *want, const struct tensor *have, double tolerance)
{
    bool close = want->nelem == have->nelem;
    for (int64_t i = 0; i < want->nelem && close; i++) {
        double a = ((const double *)want->data)[i], b = ((const double *)have->data)[i];
        if (dtype_is_float(want->dtype))
            close = a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * (1 + fabs(a));
        else
            close = ((const int64_t *)want->data)[i] == ((const int64_t *)have->data)[i];
    }
    return close;
}

/* The values of the graph's outputs, followed by the states' parts as a whole. */
static bool graph_values(struct tgc *t, const struct graph *g, struct memory_of_run *m,
                         struct tensor **want)
{
    struct eval_env env = {.leaf = m->leaf, .value = m->value, .n = m->n, .var = m->var,
                           .nvar = m->nvar, .budget = -1, .host = g->host, .nhost = g->nhost};
    struct uop **root = mem_array(t, (size_t)g->noutput + 1, sizeof *root);
    state_whole_values(t, g, root);
    for (int k = 0; k < g->npart; k++) {
        struct uop **value = &root[g->noutput - g->npart + k];
        if (g->part[k]->past)
            *value = uop_concat(t, (struct uop *[]){g->part[k]->past, *value}, 2,
                                g->part[k]->axis);
    }
    return eval_graph(t, root, g->noutput, &env, want);
}

static bool have_value(const struct tensor *want, const struct tensor *have, double tolerance)
{
    if (is_close(want, have, tolerance))
        return true;
    print_tensor("the graph's", want);
    print_tensor("the kernels'", have);
    return false;
}

/* The graph's outputs, and what its schedule stores, after all passes. */
static int run_graph(struct tgc *t, const struct command *c, struct graph *g)
{
    struct memory_of_run m = {.t = t, .nvar = t->next_var + 64}, first = m;
    struct tensor **want = mem_array(t, (size_t)g->noutput + 1, sizeof *want);
    struct compile_options o = {.threads = c->threads, .isa = c->isas, .name = "test",
                                .on_device = c->device != NULL};
    bool same = true;
    first.var = m.var = mem_array(t, (size_t)m.nvar, sizeof *m.var);
    for (int i = 0; i < t->next_var; i++)
        m.var[i] = 2;
    for (int i = 0; i < g->ninput; i++) {
        first.leaf[i] = g->input[i];
        first.value[first.n++] = test_input(t, g->input[i], m.var, t->next_var);
    }
    if (!graph_values(t, g, &first, want))
        return 1;
    const struct schedule *s = passes_run(t, g, &o);
    for (int i = 0; s && i < g->ninput; i++) {
        m.leaf[m.n] = g->input[i];
        if (i < g->ninput - g->nstate)
            m.value[m.n++] = first.value[i];
        else
            run_place_state(&m, g->state[i - g->ninput + g->nstate], first.value[i]);
    }
    if (!s || !run_steps(&m, s)) {
        fprintf(stderr, "the schedule cannot be run\n");
        return 1;
    }
    for (int i = 0; i < s->noutput; i++)
        same &= have_value(want[i], run_value_of(&m, s->output[i]), c->tolerance);
    for (int k = 0; k < g->npart; k++) {
        const struct tensor *whole = want[g->noutput - g->npart + k];
        same &= have_value(whole, run_stored(&m, g->part[k], whole), c->tolerance);
    }
    return same ? 0 : 1;
}

static int pass_on_graph(struct tgc *t, const struct command *c, const struct pass *pass,
                         struct graph *g)
{
    struct text out = {.t = t};
    if (!pass->graph)
        return passes_up_to(t, c, g);
    if (!c->before && (!pass->graph(t, g) || !graph_verify(t, g, pass->name)))
        return 1;
    if (!tg_write(t, g, &(struct tg_write_options){.no_locations = true}, &out, NULL))
        return 1;
    fwrite(out.s, 1, out.n, stdout);
    return 0;
}

static int summarize(struct tgc *t, const struct command *c, struct graph *g)
{
    struct text out = {.t = t};
    struct summary_options o = {.isa = c->isas, .threads = c->threads};
    t->debug = 2;                                    /* passes report to standard error */
    if (!summary_print(&out, t, g, &o))
        return 1;
    fwrite(out.s, 1, out.n, stdout);
    return 0;
}

static int list_passes(void)
{
    const struct pass *p;
    for (int i = 0; (p = pass_at(i)) != NULL; i++)
        printf("%-8s %s\n", stage_name(p->stage), p->name);
    return 0;
}

static int run_kernel(struct tgc *t, const struct command *c, const char *bytes, size_t nbytes)
{
    struct kernel_text k;
    if (!tg_read_kernel(t, c->path, bytes, nbytes, &k))
        return 1;
    if (c->pass)
        return pass_on_kernel(t, c, pass_find(c->pass), &k);
    if (c->opts)
        return apply_to_kernel(t, c, &k);
    if (!strcmp(c->verb, "opts") || !strcmp(c->verb, "loops"))
        return loops_of_kernel(t, c, &k);
    return !strcmp(c->verb, "eval") ? eval_text(t, c, &k) : print_kernel(t, &k, c->path);
}

static int run(struct tgc *t, const struct command *c)
{
    size_t nbytes;
    if (setjmp(t->stop))
        return 1;
    t->noopt = c->noopt;
    t->strassen = c->strassen;
    t->half_storage = c->half_storage;
    t->image = c->image;
    t->cache_nbytes = c->cache;
    t->error_limit = c->error >= 0 ? c->error : t->error_limit;
    t->weight_dtype = c->weights;
    t->math = c->math;
    t->threads = c->threads;
    t->machine = c->machine;
    t->device = c->device;
    passes_init(t);
    const char *bytes = tg_load(t, c->path, &nbytes);
    if (bytes && tg_is_kernel(bytes, nbytes))
        return run_kernel(t, c, bytes, nbytes);
    const char *path = strcmp(c->path, "-") ? c->path : "<stdin>";
    struct graph *g = bytes ? tg_read_bytes(t, path, bytes, nbytes, NULL) : NULL;
    if (!g || !graph_verify(t, g, "reading"))
        return 1;
    if (!state_apply(t, g, c->state, c->nstate, path))
        return 1;
    if (c->pass)
        return pass_on_graph(t, c, pass_find(c->pass), g);
    if (!strcmp(c->verb, "opencl") || !strcmp(c->verb, "cuda"))
        return program_of_graph(t, c, g);
    if (!strcmp(c->verb, "run"))
        return run_graph(t, c, g);
    if (!strcmp(c->verb, "summary"))
        return summarize(t, c, g);
    int status = !strcmp(c->verb, "eval") ? eval_outputs(t, g)
                                          : print_graph(t, g, c->path, c->side, c->locations);
    return t->nerror ? 1 : status;
}

static bool read_isa(const char *s, struct command *c)
{
    for (int i = 0; i < ISA_COUNT; i++)
        if (!strcmp(isa_table[i].text, s)) {
            c->isa = (enum isa)i;
            c->isas |= 1u << i;
            return true;
        }
    return false;
}

static int usage(void)
{
    fprintf(
        stderr,
        "usage: tgtool [-O0] [-s SIDE] [-l] print|eval FILE\n"
        "       tgtool [-b] [-p] [-H] [-I] [-i ISA] [-t N] [-c N] [-w DTYPE] [-E E] [-m MACHINE] "
        "[-S OUT=IN] pass NAME FILE\n"
        "       tgtool [...] [-e TOLERANCE] run|summary FILE\n"
        "       tgtool [-i ISA] [-t N] opts|loops FILE\n"
        "       tgtool [-t N] apply OPTS FILE\n"
        "       tgtool [-B N] eval FILE\n"
        "       tgtool [-t N] -s FOLDER opencl OPTS FILE\n"
        "       tgtool -d DEVICE -s FOLDER cuda OPTS FILE\n"
        "       tgtool passes\n");
    return 2;
}

/* Options with a value. false: there is no such value. */
static bool read_value(struct command *c, const char *option, const char *value)
{
    switch (option[1]) {
    case 's': c->side = value; return true;
    case 'i': return read_isa(value, c);
    case 't': c->threads = atoi(value); return true;
    case 'B': c->block = atoi(value); return true;
    case 'c': c->cache = (size_t)atoi(value) + 1; return true;       /* 0: as it is */
    case 'w': return dtype_parse(value, &c->weights);
    case 'M': return dtype_parse(value, &c->math);
    case 'e': c->tolerance = atof(value); return true;
    case 'E': c->error = atof(value); return true;
    case 'd': return (c->device = device_find(value)) != NULL;
    case 'm': return (c->machine = machine_find(value)) != NULL;
    case 'S':
        if (c->nstate == MAX_STATES)
            return false;
        c->state[c->nstate++] = value;
        return true;
    default: return false;
    }
}

int main(int argc, char **argv)
{
    struct command c = {.isa = isa_portable(), .threads = 1, .tolerance = 1e-5, .error = -1};
    int i = 1;
    bool ok = true;
    for (; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
        bool *flag = !strcmp(argv[i], "-O0") ? &c.noopt
                     : !strcmp(argv[i], "-l") ? &c.locations
                     : !strcmp(argv[i], "-b") ? &c.before
                     : !strcmp(argv[i], "-p") ? &c.strassen
                     : !strcmp(argv[i], "-H") ? &c.half_storage
                     : !strcmp(argv[i], "-I") ? &c.image
                                              : NULL;
        if (flag)
            *flag = true;
        else if (++i < argc)
            ok &= read_value(&c, argv[i - 1], argv[i]);
    }
    if (i + 1 == argc && !strcmp(argv[i], "passes"))
        return list_passes();
    bool pass = i < argc && !strcmp(argv[i], "pass");
    bool program = i < argc && (!strcmp(argv[i], "opencl") || !strcmp(argv[i], "cuda"));
    bool apply = program || (i < argc && !strcmp(argv[i], "apply"));
    if (!ok || i + 2 + pass + apply != argc || (program && !c.side))
        return usage();
    c.isas = c.isas ? c.isas : 1u << c.isa;
    c.verb = argv[i];
    c.pass = pass ? argv[i + 1] : NULL;
    c.opts = apply ? argv[i + 1] : NULL;
    c.path = argv[i + 1 + pass + apply];
    if (pass && !pass_find(c.pass)) {
        fprintf(stderr, "there is no pass %s\n", c.pass);
        return 2;
    }
    struct tgc *t = tgc_new((size_t)1 << 30);
    if (!t)
        return 1;
    c.cache = c.cache ? c.cache - 1 : t->cache_nbytes;
    c.weights = c.weights ? c.weights : t->weight_dtype;
    int status = run(t, &c);
    print_diagnostics(t);
    tgc_free(t);
    return status;
}
