/* schedules.c - see schedules.h */
#include "tests/unit/schedules.h"
#include "ir/oracle.h"
#include "tests/ir/run.h"
#include "frontend/text/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

bool cases_are(const char *how)
{
    const char *said = getenv("TGC_CASES");
    return said && strcmp(said, how) == 0;
}

uint64_t next_random(struct fixture *f)
{
    f->seed ^= f->seed << 13;
    f->seed ^= f->seed >> 7;
    f->seed ^= f->seed << 17;
    return f->seed;
}

int pick(struct fixture *f, int n) { return (int)(next_random(f) % (uint64_t)n); }

struct fixture *fixture_new(uint64_t seed)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->t = tgc_new(0);
    f->seed = seed * 0x9E3779B97F4A7C15u + 1;
    f->l = (struct lib){f->t, NULL};
    f->g = (struct graph){.name = "test", .input = f->input, .output = f->output};
    if (setjmp(f->t->stop))
        return f;
    passes_init(f->t);
    return f;
}

void fixture_free(struct fixture *f)
{
    tgc_free(f->t);
    free(f);
}

int64_t extent(const struct fixture *f, const struct uop *d)
{
    int64_t v = 0;
    assert_true(sym_eval(d, f->var, 64, &v));
    return v;
}

static struct tensor *tensor_for(struct fixture *f, const struct buffer *b)
{
    struct tensor *x = MEM_NEW(f->t, struct tensor);
    x->dtype = b->dtype;
    x->ndim = b->ndim;
    x->nelem = 1;
    for (int a = 0; a < b->ndim; a++)
        x->nelem *= x->dim[a] = extent(f, b->dim[a]);
    x->data = mem_array(f->t, (size_t)x->nelem + 1, 8);
    return x;
}

struct tensor *value_of(struct fixture *f, struct buffer *b)
{
    const struct uop *u = uop_buffer(f->t, b);
    for (int i = 0; i < f->nleaf; i++)
        if (f->leaf[i] == u)
            return f->value[i];
    assert_true(f->nleaf < MAX_LEAF);
    f->leaf[f->nleaf] = u;
    return f->value[f->nleaf++] = tensor_for(f, b);
}

struct uop *make_input(struct fixture *f, enum dtype d, struct uop *const *dim, int ndim)
{
    struct buffer *b = buffer_new(f->t, BUFFER_INPUT, d, dim, ndim, "x");
    struct tensor *x = value_of(f, b);
    for (int64_t i = 0; i < x->nelem; i++)
        if (dtype_is_float(d))
            ((double *)x->data)[i] = (double)(pick(f, 401) - 200) / 64.0;
        else
            ((int64_t *)x->data)[i] =
                scalar_cast(d, DTYPE_I64,
                            (union scalar){.i = d == DTYPE_BOOL ? pick(f, 2) : pick(f, 9) - 4})
                    .i;
    return f->input[f->g.ninput++] = uop_buffer(f->t, b);
}

struct uop *make_inputi(struct fixture *f, enum dtype d, int n, const int *size)
{
    struct uop *dim[MAX_RANK];
    for (int a = 0; a < n; a++)
        dim[a] = uop_int(f->t, size[a]);
    return make_input(f, d, dim, n);
}

/* A weight of random f32 bytes, so that PACK has something to rewrite. */
struct uop *make_weight(struct fixture *f, int n, const int *size)
{
    int64_t dim[MAX_RANK], nelem = 1;
    for (int a = 0; a < n; a++)
        nelem *= dim[a] = size[a];
    float *data = mem_array(f->t, (size_t)nelem, sizeof *data);
    for (int64_t i = 0; i < nelem; i++)
        data[i] = (float)(pick(f, 401) - 200) / 64.0f;
    return tensor_from_data(f->t, DTYPE_F32, dim, n, data, (size_t)nelem * sizeof *data, "w");
}

void add_output(struct fixture *f, struct uop *u)
{
    for (int i = 0; i < f->t->ndiag; i++)
        print_message("%s\n", f->t->diag[i].message);
    assert_non_null(u);
    f->output[f->g.noutput++] = (struct graph_output){"y", u};
}

/* ---- running a schedule on the interpreter */

static int64_t scalar_of(struct fixture *f, struct uop *u)
{
    if (u->op == OP_LOAD)
        return ((int64_t *)value_of(f, (struct buffer *)(uintptr_t)u->src[0]->arg.p)->data)[0];
    return extent(f, u);
}

static int count_banded(const struct uop *ast)
{
    int n = 0;
    for (int i = 0; i < ast->nsrc; i++)
        for (int k = 3; k < ast->src[i]->nsrc; k++)
            if (range_is(ast->src[i]->src[k], AXIS_BAND)) {
                n++;
                break;
            }
    return n;
}

/* What is printed is read as something that prints alike. */
static void read_again(struct fixture *f, const struct uop *ast, struct uop *const *linear, int n)
{
    struct text one = {.t = f->t}, two = {.t = f->t};
    struct kernel_text k;
    if (ast)
        kernel_print(&one, f->t, ast);
    else
        program_print(&one, f->t, linear, n);
    bool ok = tg_read_kernel(f->t, "printed", one.s, one.n, &k);
    if (ok && k.ast)
        kernel_print(&two, f->t, k.ast);
    else if (ok)
        program_print(&two, f->t, k.linear, k.nlinear);
    if (ok && one.n == two.n && memcmp(one.s, two.s, one.n) == 0)
        return;
    for (int i = 0; i < f->t->ndiag; i++)
        print_message("%d:%d: %s\n", f->t->diag[i].at.line, f->t->diag[i].at.column,
                      f->t->diag[i].message);
    fprintf(stderr, "%s---- read again:\n%s", one.s, two.s ? two.s : "");
    fail_msg("a kernel's text is not read as what it was");
}

/* Runs the program, or an AST if there is one, from the same memory; what it wrote. */
static struct tensor **run_form(struct fixture *f, const struct kernel *k, const struct uop *ast,
                                struct uop *const *linear, int n, bool shared)
{
    struct tensor **result = mem_array(f->t, (size_t)k->noutput, sizeof *result);
    struct eval_env env = {
        .leaf = f->leaf, .value = f->value, .n = f->nleaf, .var = f->var, .nvar = 64, .budget = -1};
    /* the parts of a shared kernel in some other order than that of its loops */
    env.parts = shared ? f->threads : 0;
    for (int i = 0; i < k->noutput; i++) {
        struct tensor *x = value_of(f, k->buffer[i]);
        result[i] = mem_copy(f->t, x, sizeof *x);
        result[i]->data = mem_copy(f->t, x->data, (size_t)x->nelem * 8);
    }
    struct race race = {0};
    env.race = env.parts > 0 ? &race : NULL;
    env.touch = mem_array(f->t, (size_t)f->nleaf + 1, sizeof *env.touch);
    for (int i = 0; i < f->nleaf && env.race; i++) {
        const struct buffer *b = f->leaf[i]->arg.p;
        if (b->kind != BUFFER_SCRATCH)
            env.touch[i] = mem_array(f->t, (size_t)f->value[i]->nelem + 1, sizeof **env.touch);
    }
    for (env.part = env.parts > 0 ? env.parts - 1 : 0; env.part >= 0; env.part--) {
        /* no thread may need what another one left in scratch */
        for (int i = 0; i < k->nscratch; i++)
            spoil(value_of(f, k->scratch[i]));
        assert_true(ast ? eval_kernel(f->t, ast, &env) : eval_linear(f->t, linear, n, &env));
    }
    for (int i = 0; i < k->noutput; i++) { /* as before, and what is new apart */
        struct tensor *x = value_of(f, k->buffer[i]);
        void *old = result[i]->data;
        result[i]->data = x->data;
        x->data = old;
    }
    return result;
}

static void compare_forms(struct fixture *f, const struct kernel *k, struct tensor **want,
                          const struct uop *ast, bool shared, double tolerance, const char *what)
{
    read_again(f, ast, NULL, 0);
    struct tensor **got = run_form(f, k, ast, NULL, 0, shared);
    for (int i = 0; i < k->noutput; i++)
        if (!equal(want[i], got[i], tolerance)) {
            struct text text = {.t = f->t};
            kernel_print(&text, f->t, ast);
            fprintf(stderr, "%s", text.s);
            fail_msg("%s: the AST %s and the linear program differ", k->name, what);
        }
}

static void run_kernel(struct fixture *f, const struct kernel *k)
{
    const struct uop *ast = k->ast;
    bool vectors = false;
    f->nband += count_banded(k->ast);
    for (int i = 0; i < k->nbuffer; i++)
        if (k->buffer[i]->kind != BUFFER_WEIGHT)
            value_of(f, k->buffer[i]);
    for (int i = 0; i < k->nscratch; i++)
        value_of(f, k->scratch[i]);
    struct uop *const *linear = k->linear;
    int nlinear = k->nlinear;
    for (int i = 0; i < k->nvariant; i++)
        if (k->variant[i].isa == f->isa) {
            linear = k->variant[i].linear;
            nlinear = k->variant[i].nlinear;
            ast = k->variant[i].ast;
            vectors = true;
            f->nvariant++;
        }
    assert_true(linear_verify(f->t, linear, nlinear, "test"));
    f->nshared += k->is_shared;
    read_again(f, NULL, linear, nlinear);
    struct tensor **result = run_form(f, k, NULL, linear, nlinear, k->is_shared);
    /* vectors sum up in another order */
    compare_forms(f, k, result, ast, k->is_shared, vectors ? 1e-9 : 0, "as tiled");
    compare_forms(f, k, result, f->lowered[k->index], false, 1e-9, "as lowered");
    for (int i = 0; i < k->noutput; i++) {
        struct tensor *x = value_of(f, k->buffer[i]);
        memcpy(x->data, result[i]->data, (size_t)x->nelem * 8);
    }
}

static void run_schedule(struct fixture *f, const struct schedule *s)
{
    int loop_at[8], nloop = 0;
    int64_t trip[8];
    for (int i = 0; i < s->nstep; i++) {
        const struct step *st = &s->step[i];
        switch (st->kind) {
        case STEP_KERNEL: run_kernel(f, st->kernel); break;
        case STEP_HOST: fail(); break;
        case STEP_IF:
            if (!scalar_of(f, st->cond))
                i = region_end(s, i + 1);
            break;
        case STEP_ELSE: i = region_end(s, i + 1); break;
        case STEP_ENDIF: break;
        case STEP_LOOP:
            f->var[st->counter->id] = 0;
            trip[nloop] = scalar_of(f, st->trip);
            loop_at[nloop++] = i;
            if (trip[nloop - 1] <= 0) {
                i = region_end(s, i + 1);
                nloop--;
            }
            break;
        case STEP_BREAK_UNLESS:
            if (!scalar_of(f, st->cond)) {
                i = region_end(s, i + 1);
                nloop--;
            }
            break;
        case STEP_ENDLOOP:
            if (++f->var[st->counter->id] < trip[nloop - 1])
                i = loop_at[nloop - 1];
            else
                nloop--;
        }
    }
}

void show(struct fixture *f, bool noopt)
{
    struct text text = {.t = f->t};
    graph_print(&text, f->t, &f->g);
    for (int i = 0; f->schedule && i < f->schedule->nstep; i++) {
        const struct step *st = &f->schedule->step[i];
        text_printf(&text, "---- step %d, kind %d\n", i, (int)st->kind);
        if (!st->kernel)
            continue;
        linear_print(&text, f->t, st->kernel->linear, st->kernel->nlinear);
        for (int j = 0; j < st->kernel->nvariant; j++) {
            const struct variant *v = &st->kernel->variant[j];
            text_printf(&text, "-- %s\n", isa_table[v->isa].text);
            linear_print(&text, f->t, v->linear, v->nlinear);
        }
    }
    /* print_message() cuts long texts */
    fprintf(stderr, "%s%s, %s:\n%s", f->g.name, noopt ? ", -O0" : "", isa_table[f->isa].text,
            text.s);
}

bool equal(const struct tensor *want, const struct tensor *got, double tolerance)
{
    assert_int_equal(want->nelem, got->nelem);
    for (int64_t i = 0; i < want->nelem; i++) {
        if (!dtype_is_float(want->dtype)) {
            if (((int64_t *)want->data)[i] == ((int64_t *)got->data)[i])
                continue;
            print_message("element %lld is %lld, expected %lld\n", (long long)i,
                          (long long)((int64_t *)got->data)[i],
                          (long long)((int64_t *)want->data)[i]);
            return false;
        }
        double a = ((double *)want->data)[i], b = ((double *)got->data)[i];
        if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * (1 + fabs(a)))
            continue;
        print_message("element %lld is %.17g, expected %.17g\n", (long long)i, b, a);
        return false;
    }
    return true;
}

/* Runs the graph both ways; returns the number of kernels. */
int check(struct fixture *f, bool noopt)
{
    struct uop *root[16];
    struct tensor *want[16];
    for (int i = 0; i < f->g.noutput; i++)
        root[i] = f->output[i].value;
    struct eval_env env = {
        .leaf = f->leaf, .value = f->value, .n = f->nleaf, .var = f->var, .nvar = 64, .budget = -1};
    if (setjmp(f->t->stop)) {
        show(f, noopt);
        for (int i = 0; i < f->t->ndiag; i++)
            print_message("%s\n", f->t->diag[i].message);
        fail();
    }
    assert_true(graph_verify(f->t, &f->g, "test"));
    assert_true(eval_graph(f->t, root, f->g.noutput, &env, want));
    if (!noopt)
        assert_true(pass_byte_sums(f->t, &f->g) && pass_onehot(f->t, &f->g) &&
                    graph_verify(f->t, &f->g, "integer, onehot"));
    if (f->tile && !noopt) {
        assert_true(winograd_apply(f->t, &f->g, f->tile, NULL));
        assert_true(graph_verify(f->t, &f->g, "winograd"));
        assert_ptr_not_equal(f->output[0].value, root[0]);
    }
    if (f->bands)
        f->t->cache_nbytes = 0;
    f->t->threads = f->threads;
    struct passing p = {.graph = &f->g,
                        .noopt = noopt,
                        .isa = 1u << f->isa,
                        .threads = f->threads,
                        .facts = 1u << FACT_TENSORS};
    assert_true(passes_run_rows(f->t, &p, "nodes", "part"));
    struct schedule *s = p.schedule;
    f->lowered = mem_array(f->t, (size_t)s->nkernel + 1, sizeof *f->lowered);
    for (int i = 0; i < s->nkernel; i++)
        f->lowered[i] = s->kernel[i]->ast;
    assert_true(passes_run_rows(f->t, &p, "twins", "linearize"));
    f->schedule = s;
    assert_true(passes_run_rows(f->t, &p, "prefetch_panel", "legalize"));
    for (int i = 0; i < s->nkernel; i++) {
        f->ntwin += s->kernel[i]->like != NULL;
        kernel_own_programs(f->t, s->kernel[i]);
    }
    run_schedule(f, s);
    for (int i = 0; i < f->g.noutput; i++)
        /* its weights are rounded to f32 */
        if (!equal(want[i], value_of(f, s->output[i]), f->tile ? 1e-4 : 1e-9)) {
            show(f, noopt);
            fail_msg("%s: output %d", f->g.name, i);
        }
    return s->nkernel;
}

/* ---- layers */

/* a matrix times the rows that say where a key equals a count from `first` on */
struct uop *onehot(struct fixture *f, enum dtype d, int first, struct uop *matrix)
{
    enum { COUNT = 9 };
    struct uop *key = make_inputi(f, d, 2, (int[]){3, 5}), *count;
    struct uop *dim[3] = {uop_int(f->t, 3), uop_int(f->t, 5), uop_int(f->t, COUNT)};
    struct uop *one[3] = {dim[0], dim[1], uop_int(f->t, 1)};
    int32_t *data = mem_array(f->t, COUNT, sizeof *data);
    for (int i = 0; i < COUNT; i++)
        data[i] = first + i;
    count = d == DTYPE_I32 ? tensor_from_data(f->t, d, (int64_t[]){1, 1, COUNT}, 3, data,
                                              COUNT * sizeof *data, "count")
                           : tensor_iota(f->t, dim, 3, 2);
    count = lib_binary(&f->l, OP_EQ, lib_reshape(&f->l, key, one, 3), count);
    return lib_matmul(&f->l, uop_cast(f->t, DTYPE_F32, count), matrix);
}

/* mask: NULL or something added to the scores */
struct uop *attention(struct fixture *f, int rows, int keys, struct uop *mask)
{
    struct uop *q = INPUT(f, 1, 3, rows, 4), *k = INPUT(f, 1, 3, keys, 4),
               *v = INPUT(f, 1, 3, keys, 4);
    struct uop *s = lib_binaryf(
        &f->l, OP_MUL, lib_matmul(&f->l, q, lib_permute(&f->l, k, (int64_t[]){0, 1, 3, 2}, 4)),
        0.5);
    if (mask)
        s = lib_add(&f->l, s, mask);
    return lib_matmul(&f->l, lib_softmax(&f->l, s, 8), v);
}

/* the transposed result of a product, cut off: a Fourier transform in two steps */
struct uop *digits(struct fixture *f, int columns, int rows, int size)
{
    int weight[] = {12, columns};
    struct uop *y = lib_matmul(&f->l, INPUT(f, 5, rows, 12), make_weight(f, 2, weight));
    struct uop *dim[2] = {uop_int(f->t, 5), uop_int(f->t, rows * columns)};
    y = lib_reshape(&f->l, lib_permute(&f->l, y, (int64_t[]){0, 2, 1}, 3), dim, 2);
    return lib_slice(&f->l, y, 1, uop_int(f->t, 0), uop_int(f->t, size), 1);
}

struct uop *case_digits(struct fixture *f) { return digits(f, 20, 16, 161); }
struct uop *case_digits_rest(struct fixture *f) { return digits(f, 7, 9, 62); }
