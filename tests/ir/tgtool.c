/* tgtool.c - the tests' window on the text format: reads a .tg graph and prints it, or evaluates
 * it.
 *
 *      tgtool [-O0] [-s SIDE] [-l] print FILE     the graph in primitive ops; fails unless reading
 *      that again gives the same text
 *      tgtool [-O0] eval FILE                     each output, as  name : dtype[dims] = values
 *
 * -O0: without folding. -s: weights beyond 4 elements go into SIDE. -l: with locations. Inputs of
 * eval hold 0.1 * (index % 7) - 0.2, and symbols are 2. Diagnostics go to standard error as
 * file:line:column: message, source line, caret; the status is 1 then.
 */
#include "frontend/text/text.h"
#include "passes/passes.h"

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

struct command { bool noopt, locations; const char *side, *verb, *path; };

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
        if (b->kind == BUFFER_SCRATCH || (b->kind == BUFFER_WEIGHT && b->data))
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
        stored |= k->linear[i]->op == OP_STORE && uop_buffer_of(k->linear[i]->src[0]) == b;
    return stored;
}

static int eval_text(struct tgc *t, const struct kernel_text *k)
{
    struct eval_env env = kernel_memory(t, k);
    bool ok = k->ast ? eval_kernel(t, k->ast, &env) : eval_linear(t, k->linear, k->nlinear, &env);
    if (!ok) {
        fprintf(stderr, "the kernel cannot be evaluated\n");
        return 1;
    }
    for (int i = 0; i < env.n; i++)
        if (is_stored(k, env.leaf[i]->arg.p))
            print_tensor(mem_printf(t, "%d", ((const struct buffer *)env.leaf[i]->arg.p)->id),
                         env.value[i]);
    return 0;
}

static int run_kernel(struct tgc *t, const struct command *c, const char *bytes, size_t nbytes)
{
    struct kernel_text k;
    if (!tg_read_kernel(t, c->path, bytes, nbytes, &k))
        return 1;
    return !strcmp(c->verb, "eval") ? eval_text(t, &k) : print_kernel(t, &k, c->path);
}

static int run(struct tgc *t, const struct command *c)
{
    size_t nbytes;
    if (setjmp(t->stop))
        return 1;
    t->noopt = c->noopt;
    passes_init(t);
    const char *bytes = tg_load(t, c->path, &nbytes);
    if (bytes && tg_is_kernel(bytes, nbytes))
        return run_kernel(t, c, bytes, nbytes);
    struct graph *g = tg_read(t, c->path, NULL);
    if (!g || !graph_verify(t, g, "reading"))
        return 1;
    int status = !strcmp(c->verb, "eval") ? eval_outputs(t, g)
                                          : print_graph(t, g, c->path, c->side, c->locations);
    return t->nerror ? 1 : status;
}

int main(int argc, char **argv)
{
    struct command c = {0};
    int i = 1;
    for (; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
        c.noopt |= !strcmp(argv[i], "-O0");
        c.locations |= !strcmp(argv[i], "-l");
        if (!strcmp(argv[i], "-s") && i + 1 < argc)
            c.side = argv[++i];
    }
    struct tgc *t = tgc_new((size_t)1 << 30);
    if (!t || i + 2 != argc) {
        fprintf(stderr, "usage: tgtool [-O0] [-s SIDE] [-l] print|eval FILE\n");
        return 2;
    }
    c.verb = argv[i];
    c.path = argv[i + 1];
    int status = run(t, &c);
    print_diagnostics(t);
    tgc_free(t);
    return status;
}
