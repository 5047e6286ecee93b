/* test_render.c - schedules built by hand become C that compiles without a warning, runs, and says
 * what it should. */
#include "backends/backend.h"
#include "backends/program/program.h"

#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ----------------------------------------------------------------------------- building kernels */

struct build { struct tgc *t; struct kernel *k; size_t cap; };

static struct uop *add(struct build *b, struct uop *u)
{
    VEC_PUSH(b->t, b->k->linear, b->k->nlinear, b->cap, u);
    return u;
}

static struct uop *op(struct build *b, enum op o, enum dtype d, int n, struct uop **src,
                      int64_t arg)
{
    return add(b, uop_intern(b->t, o, d, src, n, (union arg){.i = arg}));
}

static struct uop *op1(struct build *b, enum op o, struct uop *a)
{
    return op(b, o, a->dtype, 1, &a, 0);
}

static struct uop *op2(struct build *b, enum op o, struct uop *x, struct uop *y)
{
    return op(b, o, o == OP_LT || o == OP_EQ || o == OP_NE ? DTYPE_BOOL : x->dtype, 2,
              (struct uop *[]){x, y}, 0);
}

static struct uop *cast(struct build *b, enum dtype d, struct uop *a)
{
    return op(b, OP_CAST, d, 1, &a, 0);
}

static struct uop *where(struct build *b, struct uop *c, struct uop *x, struct uop *y)
{
    return op(b, OP_WHERE, x->dtype, 3, (struct uop *[]){c, x, y}, 0);
}

static struct uop *integer(struct build *b, int64_t v) { return uop_int(b->t, v); }
static struct uop *addi(struct build *b, struct uop *x, int64_t v)
{
    return op2(b, OP_ADD, x, integer(b, v));
}
static struct uop *muli(struct build *b, struct uop *x, int64_t v)
{
    return op2(b, OP_MUL, x, integer(b, v));
}

static struct uop *range(struct build *b, struct uop *size, const char *name)
{
    struct uop *r = add(b, uop_range(b->t, size, b->t->next_range++));
    if (name)
        uop_name_axes(b->t, r, name);
    return r;
}

static struct uop *load(struct build *b, struct buffer *x, struct uop *at)
{
    return op(b, OP_LOAD, x->dtype, 2, (struct uop *[]){uop_buffer(b->t, x), at}, 0);
}

static void store(struct build *b, struct buffer *y, struct uop *at, struct uop *v)
{
    op(b, OP_STORE, DTYPE_VOID, 3, (struct uop *[]){uop_buffer(b->t, y), at, v}, 0);
}

static void end(struct build *b, struct uop *r) { op(b, OP_END, DTYPE_VOID, 1, &r, 0); }
static struct uop *acc(struct build *b, struct uop *init, int id)
{
    return op(b, OP_ACC, init->dtype, 1, &init, id);
}
static void assign(struct build *b, struct uop *a, struct uop *v)
{
    op(b, OP_ASSIGN, a->dtype, 2, (struct uop *[]){a, v}, 0);
}

static struct buffer *buffer(struct tgc *t, enum buffer_kind kind, enum dtype d, const int64_t *dim,
                             int n, const char *name)
{
    struct uop *u[MAX_RANK];
    size_t nbytes = dtype_nbytes(d);
    for (int i = 0; i < n; i++) {
        u[i] = uop_int(t, dim[i]);
        nbytes *= (size_t)dim[i];
    }
    struct buffer *b = buffer_new(t, kind, d, u, n, name);
    b->nbytes = nbytes;
    return b;
}
#define DIMS(...)                                                                                  \
    (const int64_t[]){__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static struct build kernel_new(struct tgc *t, const char *name, const char *title)
{
    struct build b = {.t = t, .k = MEM_NEW(t, struct kernel)};
    b.k->name = name;
    b.k->title = b.k->nodes = title;
    return b;
}

static void kernel_buffers(struct build *b, int noutput, struct buffer **buf, int n)
{
    b->k->buffer = mem_copy(b->t, buf, (size_t)n * sizeof *buf);
    b->k->nbuffer = n;
    b->k->noutput = noutput;
}

/* Legal programs, everything in its list, places one after the other. */
static struct schedule *schedule_of(struct tgc *t, struct kernel **k, int nkernel,
                                    struct buffer **buf, int nbuf)
{
    struct schedule *s = MEM_NEW(t, struct schedule);
    size_t cap_in = 0, cap_out = 0, cap_weight = 0, cap_buffer = 0;
    s->kernel = mem_copy(t, k, (size_t)nkernel * sizeof *k);
    s->nkernel = s->nstep = nkernel;
    s->step = mem_array(t, (size_t)nkernel, sizeof *s->step);
    for (int i = 0; i < nkernel; i++) {
        k[i]->index = i;
        assert_true(pass_legalize(t, s, k[i]));
        assert_true(pass_widths(t, s, k[i]));
        s->step[i] = (struct step){.kind = STEP_KERNEL, .kernel = k[i]};
    }
    for (int i = 0; i < nbuf; i++) {
        struct buffer *b = buf[i];
        if (b->kind == BUFFER_INPUT) {
            VEC_PUSH(t, s->input, s->ninput, cap_in, b);
        } else if (b->kind == BUFFER_OUTPUT) {
            VEC_PUSH(t, s->output, s->noutput, cap_out, b);
        } else if (b->kind == BUFFER_WEIGHT) {
            b->offset = (s->weight_nbytes + 63) / 64 * 64;
            s->weight_nbytes = b->offset + b->nbytes;
            VEC_PUSH(t, s->weight, s->nweight, cap_weight, b);
        } else {
            b->offset = (s->arena_nbytes + 63) / 64 * 64;
            s->arena_nbytes = b->offset + b->nbytes;
            VEC_PUSH(t, s->buffer, s->nbuffer, cap_buffer, b);
        }
    }
    return s;
}

/* --------------------------------------------------------------------------- compiling, running */

static const char warnings[] =
    "-Wall -Wextra -pedantic -Wconversion -Wshadow -Wvla -Wundef -Werror";

static void write_file(const char *folder, const char *name, const char *s, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(s, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static bool sink_to_text(void *context, const void *p, size_t n)
{
    text_write(context, p, n);
    return true;
}

static void shell(const char *folder, const char *command)
{
    char line[2048];
    snprintf(line, sizeof line, "cd %s && %s", folder, command);
    if (system(line) != 0)
        fail_msg("failed: %s", line);
}

static bool have(const char *program)
{
    char line[128];
    snprintf(line, sizeof line, "command -v %s >/dev/null", program);
    return system(line) == 0;
}

/* Emits, compiles with every compiler and language at hand, and runs the caller's check, a main()
 * that returns 0. */
static void emit_and_run(struct tgc *t, const struct schedule *s, enum weights_mode mode,
                         const char *check, struct text *c)
{
    static const char *const builds[] = {
        "gcc -std=c11 -O2",
        "clang -std=c11 -O2",
        "g++ -x c++ -std=c++17 -O2",
        "gcc -std=c11 -O0 -fsanitize=address,undefined -fno-sanitize-recover=all",
    };
    struct program_options o = {
        .name = "net", .model = "net.onnx", .producer = "tgc test", .weights = mode};
    struct text h = {.t = t}, weights = {.t = t};
    bool beside;
    char folder[] = "/tmp/test_render_XXXXXX", line[1024];
    assert_non_null(mkdtemp(folder));
    assert_true(program_write_c(t, s, &o, c, &h, &beside));
    write_file(folder, "net.c", c->s, c->n);
    write_file(folder, "net.h", h.s, h.n);
    write_file(folder, "check.c", check, strlen(check));
    if (beside) {
        assert_true(
            program_write_weights(t, s, &(struct byte_sink){sink_to_text, &weights, false}));
        write_file(folder, "net.weights", weights.s, weights.n);
    }
    if (getenv("SHOW"))
        printf("%s", c->s);
    for (size_t i = 0; i < sizeof builds / sizeof *builds; i++) {
        char compiler[16];
        snprintf(compiler, sizeof compiler, "%.*s", (int)strcspn(builds[i], " "), builds[i]);
        if (!have(compiler))
            continue;
        snprintf(line, sizeof line,
                 "%s %s -c net.c -o net.o && %s -c -DNET_MAIN %s net.c -o main.o && %s check.c -x "
                 "none net.o -o check && ./check",
                 builds[i], warnings, builds[i], warnings, builds[i]);
        shell(folder, line);
    }
    snprintf(line, sizeof line, "rm -rf %s", folder);
    assert_int_equal(system(line), 0);
}

static struct tgc *compile_new(void)
{
    struct tgc *t = tgc_new(0);
    assert_non_null(t);
    if (setjmp(t->stop)) {
        for (int i = 0; i < t->ndiag; i++)
            print_error("%s\n", t->diag[i].message);
        fail_msg("the compile stopped");
    }
    return t;
}

/* ---------------------------------------------------------------------------------------- tests */

/* y[o] = max(0, bias + sum over taps of w * x padded by 1): accumulator, guarded load, weights. */
static struct schedule *convolution(struct tgc *t)
{
    static const float w[2 * 3] = {1, 2, 3, -1, 0.5f, 0.1f}, bias[2] = {0.25f, -0.5f};
    struct buffer *x = buffer(t, BUFFER_INPUT, DTYPE_F32, DIMS(8), "image/*data*/");
    struct buffer *y = buffer(t, BUFFER_OUTPUT, DTYPE_F32, DIMS(2, 8), "int");
    struct buffer *wb = buffer(t, BUFFER_WEIGHT, DTYPE_F32, DIMS(2, 3), "conv.weight"),
                  *bb = buffer(t, BUFFER_WEIGHT, DTYPE_F32, DIMS(2), "conv.bias");
    wb->weight.data = w;
    bb->weight.data = bias;
    struct build b = kernel_new(t, "conv_1", "Conv \"conv*/\\\", Relu \"?" "?/relu\": f32[2,8]");
    kernel_buffers(&b, 1, (struct buffer *[]){y, x, wb, bb}, 4);
    struct uop *oc = range(&b, integer(&b, 2), "oc"), *ox = range(&b, integer(&b, 8), "ox");
    struct uop *sum = acc(&b, load(&b, bb, oc), 0), *kx = range(&b, integer(&b, 3), "kx");
    struct uop *ix = addi(&b, op2(&b, OP_ADD, ox, kx), -1);
    struct uop *valid = op2(&b, OP_AND, op2(&b, OP_LT, integer(&b, -1), ix),
                            op2(&b, OP_LT, ix, integer(&b, 8)));
    struct uop *xv = op(&b, OP_LOAD, DTYPE_F32, 4,
                        (struct uop *[]){uop_buffer(t, x), ix, valid, uop_constf(t, DTYPE_F32, 0)},
                        0);
    struct uop *wv = load(&b, wb, op2(&b, OP_ADD, muli(&b, oc, 3), kx));
    assign(&b, sum, op2(&b, OP_ADD, sum, op2(&b, OP_MUL, xv, wv)));
    end(&b, kx);
    store(&b, y, op2(&b, OP_ADD, muli(&b, oc, 8), ox),
          op2(&b, OP_MAX, sum, uop_constf(t, DTYPE_F32, 0)));
    end(&b, ox);
    end(&b, oc);
    b.k->flop = 96;
    b.k->nbytes = 128;
    return schedule_of(t, &b.k, 1, (struct buffer *[]){x, y, wb, bb}, 4);
}

static const char convolution_check[] =
    "#include \"net.h\"\n#include <stdlib.h>\n#include <string.h>\n#include <stdio.h>\n"
    "#include <stdalign.h>\n"
    "int main(void)\n{\n    alignas(64) static unsigned char arena[NET_ARENA_BYTES];\n"
    "    float x[8] = {1, 2, 3, 4, 5, 6, 7, -8}, y[16];\n    const float w[6] = {1, 2, 3, -1, "
    "0.5f, 0.1f};\n"
    "    net *m; net_inputs in = {x}; net_outputs out = {y};\n"
    "    if (net_init(&m, NULL, sizeof arena, NULL) != NET_NULL_ARGUMENT || net_init(&m, arena + "
    "1, sizeof arena, NULL) != NET_ARENA_MISALIGNED ||\n"
    "        net_init(&m, arena, 10, NULL) != NET_ARENA_TOO_SMALL || net_init(&m, arena, sizeof "
    "arena, NULL) != 0) return 1;\n"
    "    if (net_run(m, &in, &out) != 0) return 2;\n"
    "    for (int o = 0; o < 2; o++) for (int i = 0; i < 8; i++) {\n        float s = o ? -0.5f : "
    "0.25f;\n"
    "        for (int k = 0; k < 3; k++) if (i + k >= 1 && i + k < 9) s += x[i + k - 1] * w[o * 3 "
    "+ k];\n"
    "        s = s > 0 ? s : 0;\n        if (s - y[o * 8 + i] > 1e-6f || y[o * 8 + i] - s > 1e-6f) "
    "{ printf(\"%d %d %g %g\\n\", o, i, s, y[o * 8 + i]); return 3; }\n    }\n"
    "    const struct net_info *d = net_describe();\n"
    "    if (strcmp(d->inputs[0].name, \"image/*data*/\") || d->outputs[0].dim[1].size != 8 || "
    "d->kernel_count != 1) return 4;\n"
    "    in.image_data = NULL;\n    if (net_run(m, &in, &out) != NET_MISSING_INPUT || "
    "strlen(net_strerror(4)) < 5) return 5;\n"
    "    net_close(m);\n    return net_run(m, &in, &out) == NET_NOT_INITIALIZED ? 0 : 6;\n}\n";

static void test_convolution(void **state)
{
    (void)state;
    for (enum weights_mode mode = WEIGHTS_STRING; mode <= WEIGHTS_INCBIN; mode++) {
        struct tgc *t = compile_new();
        struct text c = {.t = t};
        emit_and_run(t, convolution(t), mode, convolution_check, &c);
        assert_non_null(strstr(c.s, "for (int oc = 0; oc < 2; oc++)"));
        assert_non_null(strstr(c.s, "sum += "));
        assert_non_null(strstr(c.s, "float (*restrict y)[8], const float *restrict x"));
        assert_non_null(strstr(c.s, "/* Conv \"conv* /\\\", Relu"));
        tgc_free(t);
    }
}

/* Integer arithmetic at its edges: what C leaves undefined is defined, and what bounds prove stays
 * plain. */
static struct schedule *integers(struct tgc *t)
{
    struct buffer *a = buffer(t, BUFFER_INPUT, DTYPE_I32, DIMS(8), "a"),
                  *b8 = buffer(t, BUFFER_INPUT, DTYPE_U8, DIMS(8), "b");
    struct buffer *y = buffer(t, BUFFER_OUTPUT, DTYPE_I32, DIMS(8), "y"),
                  *z = buffer(t, BUFFER_OUTPUT, DTYPE_U8, DIMS(8), "z");
    struct buffer *f = buffer(t, BUFFER_OUTPUT, DTYPE_F16, DIMS(8), "f");
    struct build b = kernel_new(t, "int", NULL);
    kernel_buffers(&b, 3, (struct buffer *[]){y, z, f, a, b8}, 5);
    struct uop *i = range(&b, integer(&b, 8), NULL), *x = load(&b, a, i), *u = load(&b, b8, i);
    struct uop *wide = cast(&b, DTYPE_I32, u),
               *zero = op2(&b, OP_EQ, wide, uop_consti(t, DTYPE_I32, 0));
    struct uop *sum = op2(&b, OP_ADD, op2(&b, OP_MUL, x, x), op2(&b, OP_DIV, x, wide));
    store(&b, y, i, where(&b, zero, op1(&b, OP_NEG, x), sum));
    store(&b, z, i, op2(&b, OP_SUB, op2(&b, OP_ADD, u, u), uop_consti(t, DTYPE_U8, 7)));
    struct uop *h = cast(&b, DTYPE_F16, wide);
    store(&b, f, i, op2(&b, OP_DIV, op2(&b, OP_MUL, h, h), uop_constf(t, DTYPE_F16, 3)));
    end(&b, i);
    return schedule_of(t, &b.k, 1, (struct buffer *[]){a, b8, y, z, f}, 5);
}

static const char integers_check[] =
    "#include \"net.h\"\n#include <stdalign.h>\n#include <stdio.h>\n#include <limits.h>\n"
    "int main(void)\n{\n    alignas(64) static unsigned char arena[NET_ARENA_BYTES];\n"
    "    int32_t a[8] = {0, 5, -5, INT_MIN, INT_MIN, INT_MAX, 7, 100000}, y[8];\n    uint8_t b[8] "
    "= {0, 0, 2, 0, 1, 255, 3, 200}, z[8];\n    uint16_t f[8];\n"
    "    const int32_t want[8] = {0, -5, 23, INT_MIN, INT_MIN, 8421505, 51, 1410065908};\n    "
    "const uint16_t half[8] = {0, 0, 0x3d55, 0, 0x3555, 0x754b, 0x4200, 0x7283};\n"
    "    net *m; net_inputs in = {a, b}; net_outputs out = {y, z, f};\n"
    "    if (net_init(&m, arena, sizeof arena, NULL) != 0 || net_run(m, &in, &out) != 0) return "
    "1;\n"
    "    for (int i = 0; i < 8; i++) if (y[i] != want[i] || z[i] != (uint8_t)(2 * b[i] - 7) || "
    "f[i] != half[i]) { printf(\"%d: %d %d %x\\n\", i, y[i], z[i], f[i]); return 2 + i; }\n"
    "    return 0;\n}\n";

static void test_integers(void **state)
{
    (void)state;
    struct tgc *t = compile_new();
    struct text c = {.t = t};
    emit_and_run(t, integers(t), WEIGHTS_STRING, integers_check, &c);
    assert_non_null(strstr(c.s, "add_i32"));
    assert_non_null(strstr(c.s, "(uint8_t)("));
    tgc_free(t);
}

/* An accumulator is read, then assigned: a use of the value before must not move after the
 * assignment. Prefix sums of x * n, n a run-time dimension, in place. */
static struct schedule *prefix_sums(struct tgc *t)
{
    struct var *n = var_new(t, "N*", 1, 16);
    struct uop *dim = uop_var(t, n);
    struct buffer *x = buffer_new(t, BUFFER_INPUT, DTYPE_F32, &dim, 1, "x"),
                  *y = buffer_new(t, BUFFER_OUTPUT, DTYPE_F32, &dim, 1, "y");
    struct buffer *s = buffer_new(t, BUFFER_TEMP, DTYPE_F32, &dim, 1, NULL);
    s->nbytes = 64;
    struct build b = kernel_new(t, "prefix", "CumSum"),
                 c = kernel_new(t, "double", "Mul, in place");
    kernel_buffers(&b, 1, (struct buffer *[]){s, x}, 2);
    kernel_buffers(&c, 1, (struct buffer *[]){y, s}, 2);
    struct uop *sum = acc(&b, uop_constf(t, DTYPE_F32, 0), 0), *i = range(&b, dim, NULL),
               *v = load(&b, x, i);
    struct uop *before = op2(&b, OP_MUL, sum, uop_constf(t, DTYPE_F32, 2));
    assign(&b, sum, op2(&b, OP_ADD, sum, v));
    store(&b, s, i, op2(&b, OP_ADD, before, cast(&b, DTYPE_F32, dim)));
    end(&b, i);
    b.k->var = mem_copy(t, &n, sizeof n);
    b.k->nvar = 1;
    struct uop *j = range(&c, dim, NULL), *last = op2(&c, OP_SUB, addi(&c, dim, -1), j);
    store(&c, y, j, load(&c, s, last));
    end(&c, j);
    c.k->var = b.k->var;
    c.k->nvar = 1;
    struct schedule *r = schedule_of(t, (struct kernel *[]){b.k, c.k}, 2,
                                     (struct buffer *[]){x, s, y}, 3);
    r->var = b.k->var;
    r->nvar = 1;
    /* run the second kernel only if x[0] > 0, three times at most */
    struct uop *first = uop_intern(t, OP_LOAD, DTYPE_F32,
                                   (struct uop *[]){uop_buffer(t, x), uop_int(t, 0)}, 2,
                                   (union arg){.i = 0});
    struct uop *positive = uop_binary(t, OP_LT, uop_constf(t, DTYPE_F32, 0), first);
    struct var *counter = var_new(t, "iteration", 0, 3);
    counter->is_counter = true;
    struct step steps[] = {
        {.kind = STEP_KERNEL, .kernel = b.k},
        {.kind = STEP_LOOP, .counter = counter, .trip = uop_int(t, 3)},
        {.kind = STEP_BREAK_UNLESS, .cond = positive},
        {.kind = STEP_KERNEL, .kernel = c.k},
        {.kind = STEP_ENDLOOP},
    };
    r->step = mem_copy(t, steps, sizeof steps);
    r->nstep = 5;
    return r;
}

static const char prefix_check[] =
    "#include \"net.h\"\n#include <stdalign.h>\n#include <stdio.h>\n"
    "int main(void)\n{\n    alignas(64) static unsigned char arena[NET_ARENA_BYTES];\n"
    "    float x[16] = {1, 2, 3, 4}, y[16] = {0};\n    net *m; net_inputs in = {x, 4}; net_outputs "
    "out = {y};\n"
    "    if (net_init(&m, arena, sizeof arena, NULL) != 0 || net_run(m, &in, &out) != 0) return "
    "1;\n"
    "    if (y[3] != 4 || y[2] != 6 || y[1] != 10 || y[0] != 16 || out.y_shape[0] != 4) { "
    "printf(\"%g %g %g %g\\n\", y[0], y[1], y[2], y[3]); return 2; }\n"
    "    x[0] = -1; y[0] = 77;\n    if (net_run(m, &in, &out) != 0 || y[0] != 77) return 3;\n"
    "    in.dim_N = 17; if (net_run(m, &in, &out) != NET_DIM_OUT_OF_RANGE) return 4;\n"
    "    in.dim_N = NET_MAX_N; return net_run(m, &in, &out) != 0;\n}\n";

static void test_order_and_control(void **state)
{
    (void)state;
    struct tgc *t = compile_new();
    struct text c = {.t = t};
    emit_and_run(t, prefix_sums(t), WEIGHTS_STRING, prefix_check, &c);
    tgc_free(t);
}

/* Names of models are hostile; none may end a comment, a string or a line, or make two names
 * one. */
static void test_names(void **state)
{
    (void)state;
    struct tgc *t = compile_new();
    static const struct { const char *name, *comment, *string; } table[] = {
        {"conv1.weight", "conv1.weight", "\"conv1.weight\""},
        {"a*/b/*c", "a* /b/ *c", "\"a*/b/*c\""},
        {"line\nbreak", "line<U+000A>break", "\"line\\012break\""},
        {"ends in \\", "ends in <U+005C>", "\"ends in \\\\\""},
        {"tri\077\077/graph", "tri? ?/graph", "\"tri\\?\\?/graph\""},
        {"\"quoted\"", "\"quoted\"", "\"\\\"quoted\\\"\""},
        {"%s%n$1", "%s%n$1", "\"%s%n$1\""},
        {"bidi\342\200\256x", "bidi<U+202E>x", "\"bidi\\342\\200\\256x\""},
        {"bad\377utf", "bad<0xFF>utf", "\"bad\\377utf\""},
        {"\303\274ber", "\303\274ber", "\"\303\274ber\""},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct text comment = {.t = t}, string = {.t = t};
        text_comment(&comment, table[i].name);
        text_string(&string, table[i].name);
        assert_string_equal(comment.s, table[i].comment);
        assert_string_equal(string.s, table[i].string);
    }
    struct names *n = names_new(t, names_reserved(t));
    assert_string_equal(names_unique(n, "a.b", "x"), "a_b");
    assert_string_equal(names_unique(n, "a_b", "x"), "a_b_2");
    assert_string_equal(names_unique(n, "a_b_2", "x"), "a_b_2_2");
    assert_string_equal(names_unique(n, "int", "x"), "int_2");
    assert_string_equal(names_unique(n, "7up", "x"), "n7up");
    assert_string_equal(names_unique(n, "", "x"), "x");
    assert_string_equal(names_unique(n, "\342\202\254", "x"), "x_2");
    assert_string_equal(names_unique(n, "__init__", "x"), "init");
    assert_string_equal(program_name(t, "while"), "while_model");
    tgc_free(t);
}

/* What is larger than code can reach is not linked, unless the user says so. */
static void test_weights_by_size(void **state)
{
    static const struct { size_t nbytes; enum weights_mode mode; } by_size[] = {
        {0, WEIGHTS_STRING},
        {WEIGHTS_INCBIN_FROM - 1, WEIGHTS_STRING},
        {WEIGHTS_INCBIN_FROM, WEIGHTS_INCBIN},
        {(size_t)1535 << 20, WEIGHTS_INCBIN},
        {(size_t)1536 << 20, WEIGHTS_FILE},
        {(size_t)1 << 31, WEIGHTS_FILE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof by_size / sizeof by_size[0]; i++) {
        struct schedule s = {.weight_nbytes = by_size[i].nbytes};
        assert_int_equal(program_weights_mode(&s, WEIGHTS_AUTO), by_size[i].mode);
        assert_int_equal(program_weights_mode(&s, WEIGHTS_INCBIN), WEIGHTS_INCBIN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolution),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_order_and_control),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_weights_by_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
