/* test_load.c - the ONNX loader: hand-made and mutated bytes, hostile structures, exhausted memory.
 *
 * Models are written by a few functions that append protobuf fields to a buffer, so that each test
 * shows the bytes it is about. Every failure must come with a diagnostic that names what the test
 * expects; a crash is seen by running this under the sanitizers.
 */
#include "frontend/onnx/onnx.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT = 400 << 20 };

/* ---- writing protobuf */

struct bytes { uint8_t *p; size_t n, cap; };

static void put(struct bytes *b, const void *p, size_t n)
{
    if (!n)
        return;
    if (b->n + n > b->cap) {
        b->cap = 2 * (b->n + n);
        b->p = realloc(b->p, b->cap);
        assert_non_null(b->p);
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

static void put_varint(struct bytes *b, uint64_t v)
{
    do {
        uint8_t c = (uint8_t)((v & 127) | (v > 127 ? 128 : 0));
        put(b, &c, 1);
        v >>= 7;
    } while (v);
}

static void put_int(struct bytes *b, unsigned field, uint64_t v)
{
    put_varint(b, field << 3);
    put_varint(b, v);
}

static void put_data(struct bytes *b, unsigned field, const void *p, size_t n)
{
    put_varint(b, field << 3 | 2);
    put_varint(b, n);
    put(b, p, n);
}

static void put_str(struct bytes *b, unsigned field, const char *s)
{
    put_data(b, field, s, strlen(s));
}

/* Appends `inner` as a field and empties it. */
static void put_message(struct bytes *b, unsigned field, struct bytes *inner)
{
    put_data(b, field, inner->n ? inner->p : (const uint8_t *)"", inner->n);
    free(inner->p);
    *inner = (struct bytes){0};
}

/* A node from "name op_type in,in out,out". */
static void put_node(struct bytes *graph, const char *spec)
{
    char name[32], op[32], in[64], out[64];
    assert_int_equal(sscanf(spec, "%31s %31s %63s %63s", name, op, in, out), 4);
    struct bytes n = {0};
    for (char *save, *s = strtok_r(in, ",", &save); s; s = strtok_r(NULL, ",", &save))
        put_str(&n, 1, s);
    for (char *save, *s = strtok_r(out, ",", &save); s; s = strtok_r(NULL, ",", &save))
        put_str(&n, 2, s);
    put_str(&n, 3, name);
    put_str(&n, 4, op);
    put_message(graph, 1, &n);
}

static void put_value(struct bytes *graph, unsigned field, const char *name)
{
    struct bytes v = {0};
    put_str(&v, 1, name);
    put_message(graph, field, &v);
}

static struct bytes model_of(struct bytes *graph)
{
    struct bytes m = {0}, opset = {0};
    put_int(&m, 1, 8);
    put_int(&opset, 2, 18);
    put_message(&m, 8, &opset);
    put_message(&m, 7, graph);
    return m;
}

/* Input x, output y, these nodes. */
static struct bytes model_with(const char *const *spec, size_t n)
{
    struct bytes g = {0};
    put_value(&g, 11, "x");
    put_value(&g, 12, "y");
    for (size_t i = 0; i < n; i++)
        put_node(&g, spec[i]);
    return model_of(&g);
}

/* ---- loading */

struct load { struct tgc *t; struct onnx_model *m; bool stopped; };

static struct load load_limited(const struct bytes *b, size_t limit)
{
    struct load l = {.t = tgc_new(limit)};
    assert_non_null(l.t);
    struct load *volatile keep = &l;
    if (setjmp(l.t->stop) == 0)
        keep->m = onnx_load_bytes(keep->t, "m.onnx", b->p, b->n, NULL);
    else
        keep->stopped = true;
    return *keep;
}

static bool says(const struct tgc *t, const char *what)
{
    for (int i = 0; i < t->ndiag; i++) {
        const struct diag *d = &t->diag[i];
        if (strstr(d->message, what) || (d->at.text && strstr(d->at.text, what)))
            return true;
    }
    return false;
}

/* The bytes fail to load, and the diagnostics hold both texts. */
static void expect_failure(struct bytes *b, const char *what, const char *where)
{
    struct load l = load_limited(b, LIMIT);
    assert_null(l.m);
    assert_false(l.stopped);
    assert_true(l.t->nerror > 0);
    if (!says(l.t, what) || !says(l.t, where))
        fail_msg("wanted '%s' and '%s', got: %s: %s", what, where,
                 l.t->diag[0].at.text ? l.t->diag[0].at.text : "", l.t->diag[0].message);
    assert_string_equal(l.t->diag[0].at.file, "m.onnx");
    tgc_free(l.t);
    free(b->p);
}

static void expect_nodes_failure(const char *const *spec, size_t n, const char *what,
                                 const char *where)
{
    struct bytes b = model_with(spec, n);
    expect_failure(&b, what, where);
}

#define NODES(...)                                                                                 \
    (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

/* ---- tests: structure */

static void test_plain_model(void **state)
{
    (void)state;
    struct bytes b = model_with(NODES("a Relu x t", "b Relu t y"));
    struct load l = load_limited(&b, LIMIT);
    assert_non_null(l.m);
    assert_int_equal(l.t->nerror, 0);
    assert_int_equal(l.m->proto->graph->n_node, 2);
    assert_int_equal(onnx_opset(l.m, NULL, ""), 18);
    assert_int_equal(onnx_opset(l.m, NULL, "ai.onnx"), 18);
    /* not imported */
    assert_int_equal(onnx_opset(l.m, NULL, "ai.onnx.ml"), onnx_newest_opset("ai.onnx.ml"));
    assert_int_equal(onnx_opset(l.m, NULL, "org.example"), 0);
    struct place at = onnx_place_input(l.m, l.m->proto->graph->node[1], 0);
    assert_string_equal(at.text, "node 1 'b' (Relu), input 0 't'");
    tgc_free(l.t);
    free(b.p);
}

static void test_unsorted_is_sorted(void **state)
{
    (void)state;
    struct bytes b = model_with(NODES("c Relu t2 y", "b Relu t1 t2", "a Relu x t1"));
    struct load l = load_limited(&b, LIMIT);
    assert_non_null(l.m);
    assert_string_equal(l.m->proto->graph->node[0]->name, "a");
    assert_string_equal(l.m->proto->graph->node[2]->name, "c");
    /* numbers stay the file's */
    assert_int_equal(onnx_node_index(l.m, l.m->proto->graph->node[0]), 2);
    tgc_free(l.t);
    free(b.p);
}

static void test_bad_names(void **state)
{
    (void)state;
    expect_nodes_failure(NODES("a Relu t y", "b Relu y t"), "cycle of 2 nodes",
                         "node 0 'a' (Relu)");
    expect_nodes_failure(NODES("a Add x,y y"), "cycle of 1 node", "node 0 'a' (Add)");
    expect_nodes_failure(NODES("a Add x,q y"), "nothing defines this name",
                         "node 0 'a' (Add), input 1 'q'");
    expect_nodes_failure(NODES("a Relu x y", "b Relu x y"), "defined twice",
                         "node 1 'b' (Relu), output 0 'y'");
    expect_nodes_failure(NODES("a Relu x t"), "nothing defines this output", "graph output 'y'");
    struct bytes nul = {0};
    put_data(&nul, 1, "a\0b", 3);
    struct bytes g = {0};
    put_message(&g, 1, &nul);
    struct bytes b = model_of(&g);
    expect_failure(&b, "NUL", "NUL");
}

/* If(x) whose branch reads `inner`; the branch defines `then` by Relu. */
static struct bytes model_with_branch(const char *inner, const char *first, const char *last)
{
    struct bytes branch = {0}, a = {0}, n = {0}, g = {0};
    char spec[64];
    snprintf(spec, sizeof spec, "r Relu %s then", inner);
    put_node(&branch, spec);
    put_value(&branch, 12, "then");
    put_str(&a, 1, "then_branch");
    put_int(&a, 20, 5);
    put_message(&a, 6, &branch);
    put_str(&n, 1, "x");
    put_str(&n, 2, "y");
    put_str(&n, 3, "if_0");
    put_str(&n, 4, "If");
    put_message(&n, 5, &a);
    put_value(&g, 11, "x");
    put_value(&g, 12, "y");
    if (first)
        put_node(&g, first);
    put_message(&g, 1, &n);
    if (last)
        put_node(&g, last);
    return model_of(&g);
}

static void test_subgraph_scopes(void **state)
{
    (void)state;
    /* the branch reads what a later node makes */
    struct bytes b = model_with_branch("t", NULL, "late Relu x t");
    struct load l = load_limited(&b, LIMIT);
    assert_non_null(l.m);
    assert_string_equal(l.m->proto->graph->node[0]->name, "late");
    tgc_free(l.t);
    free(b.p);
    b = model_with_branch("q", NULL, NULL);
    expect_failure(&b, "nor of a graph around it",
                   "node 0 'if_0' (If), then_branch: node 0 'r' (Relu), input 0 'q'");
    b = model_with_branch("y", NULL, NULL); /* its own holder's result */
    expect_failure(&b, "cycle of 1 node", "node 0 'if_0' (If)");
}

static void test_attributes(void **state)
{
    (void)state;
    struct bytes a = {0}, n = {0}, g = {0};
    int64_t ints[2] = {3, -1};
    put_str(&a, 1, "axes");
    put_int(&a, 20, 7);
    for (int i = 0; i < 2; i++)
        put_int(&a, 8, (uint64_t)ints[i]);
    put_str(&n, 1, "x");
    put_str(&n, 2, "y");
    put_str(&n, 4, "Foo");
    put_message(&n, 5, &a);
    put_value(&g, 11, "x");
    put_value(&g, 12, "y");
    put_message(&g, 1, &n);
    struct bytes b = model_of(&g);
    struct load l = load_limited(&b, LIMIT);
    assert_non_null(l.m);
    const NodeProto *node = l.m->proto->graph->node[0];
    const int64_t *v;
    assert_int_equal(onnx_attr_ints(l.m, node, "axes", &v), 2);
    assert_int_equal(v[1], -1);
    assert_int_equal(onnx_attr_ints(l.m, node, "none", &v), -1);
    assert_int_equal(onnx_attr_int(l.m, node, "none", 7), 7);
    assert_int_equal(l.t->nerror, 0);
    assert_int_equal(onnx_attr_int(l.m, node, "axes", 7), 7);
    assert_true(says(l.t, "of type INTS; INT is expected") &&
                says(l.t, "node 0 '' (Foo), attribute 'axes'"));
    int64_t three[3];
    assert_false(onnx_attr_ints_n(l.m, node, "axes", 3, three, 1));
    assert_int_equal(three[2], 1);
    assert_true(says(l.t, "has 2 values; 3 are expected"));
    assert_false(onnx_attr_require(l.m, node, "axis"));
    tgc_free(l.t);
    free(b.p);
}

static void put_function(struct bytes *model, const char *name, const char *const *callee, size_t n)
{
    struct bytes f = {0}, opset = {0}, own = {0};
    put_str(&f, 1, name);
    put_str(&f, 10, "f");
    put_str(&f, 4, "x");
    put_str(&f, 5, "t0");
    for (size_t i = 0; i < n; i++) {
        struct bytes node = {0};
        char out[32];
        snprintf(out, sizeof out, "t%zu", i);
        put_str(&node, 1, "x");
        put_str(&node, 2, out);
        put_str(&node, 4, callee[i]);
        put_str(&node, 7, strcmp(callee[i], "Relu") ? "f" : "");
        put_message(&f, 7, &node);
    }
    put_int(&opset, 2, 18);
    put_message(&f, 9, &opset);
    put_str(&own, 1, "f");
    put_int(&own, 2, 1);
    put_message(&f, 9, &own);
    put_message(model, 25, &f);
}

static void test_functions(void **state)
{
    (void)state;
    struct bytes b = model_with(NODES("a Relu x y"));
    put_function(&b, "A", NODES("B"));
    put_function(&b, "B", NODES("A"));
    expect_failure(&b, "calls itself", "");
    b = model_with(NODES("a Relu x y"));
    put_function(&b, "A", NODES("Relu"));
    put_function(&b, "A", NODES("Relu"));
    expect_failure(&b, "defined twice", "function 'A'");
    struct bytes g = {0}, n = {0}; /* each calls the next twice: 2^40 nodes */
    put_str(&n, 2, "y");
    put_str(&n, 4, "F0");
    put_str(&n, 7, "f");
    put_message(&g, 1, &n);
    put_value(&g, 12, "y");
    b = model_of(&g);
    for (int i = 0; i < 40; i++) {
        char name[16], next[16];
        snprintf(name, sizeof name, "F%d", i);
        snprintf(next, sizeof next, "F%d", i + 1);
        put_function(&b, name, NODES(next, next));
    }
    put_function(&b, "F40", NODES("Relu"));
    expect_failure(&b, "functions inlined", "functions inlined");
}

/* ---- tests: bytes */

static void test_depth(void **state)
{
    (void)state;
    struct bytes type = {0};
    for (int i = 0; i < 5000; i++) { /* sequence of sequence of ...: each 2 levels */
        struct bytes sequence = {0}, outer = {0};
        put_message(&sequence, 1, &type);
        put_message(&outer, 4, &sequence);
        type = outer;
    }
    struct bytes v = {0}, g = {0};
    put_str(&v, 1, "x");
    put_message(&v, 2, &type);
    put_message(&g, 11, &v);
    struct bytes b = model_of(&g);
    expect_failure(&b, "nested more than 100 deep", "");
}

static void test_amplification(void **state)
{
    (void)state;
    struct bytes g = {0};
    for (int i = 0; i < 4000000; i++)
        put(&g, "\x0a\x00", 2); /* an empty node */
    struct bytes b = model_of(&g);
    expect_failure(&b, "memory limit", "");
}

static void test_not_a_model(void **state)
{
    (void)state;
    static const struct { const char *bytes, *what;
    } row[] = {
        {"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
        {"PK\x03\x04....", "zip"},
        {"", "no graph"},
        {"hello, world", "not a well-formed ModelProto"},
        {"\x08\x08", "no graph"},
        {"<html><body>", "HTML"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct bytes b = {0};
        put(&b, row[i].bytes, strlen(row[i].bytes));
        expect_failure(&b, row[i].what, "");
    }
}

static uint32_t random_next(uint32_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 17;
    return *s ^= *s << 5;
}

/* Every prefix, and many flips: nothing crashes, and a failure always says something. */
static void test_mutations(void **state)
{
    (void)state;
    struct bytes whole = model_with_branch("t", "a Relu x t", NULL);
    put_function(&whole, "A", NODES("Relu"));
    uint32_t seed = 12345;
    for (size_t i = 0; i < whole.n + 4000; i++) {
        struct bytes b = {0};
        put(&b, whole.p, i < whole.n ? i : whole.n);
        for (uint32_t k = 0; i >= whole.n && k < 1 + i % 4; k++)
            b.p[random_next(&seed) % b.n] ^= (uint8_t)(1u << random_next(&seed) % 8);
        struct load l = load_limited(&b, LIMIT);
        assert_false(l.stopped);
        assert_true(l.m || (l.t->ndiag > 0 && l.t->nerror > 0));
        tgc_free(l.t);
        free(b.p);
    }
    free(whole.p);
}

/* Every budget from nothing to enough: the compile ends by a diagnostic or by the hook, never
 * otherwise. */
static void test_exhausted_memory(void **state)
{
    (void)state;
    struct bytes b = model_with_branch("t", NULL, "late Relu x t");
    bool loaded = false;
    int nstopped = 0;
    for (size_t limit = 64; !loaded; limit += 48) {
        struct load l = load_limited(&b, limit);
        loaded = l.m;
        nstopped += l.stopped;
        assert_true(l.m || l.stopped || l.t->nerror > 0);
        tgc_free(l.t);
    }
    assert_true(nstopped > 10);
    free(b.p);
}

/* ---- tests: tensors */

struct decode { struct load l; struct bytes model; struct onnx_tensor x; bool ok; };

/* A tensor in an initializer, decoded. Empties `tensor`. */
static struct decode decode(struct bytes *tensor, const struct onnx_load_options *options,
                            const char *path)
{
    struct bytes g = {0};
    put_str(tensor, 8, "w");
    put_message(&g, 5, tensor);
    put_node(&g, "a Relu w y");
    put_value(&g, 12, "y");
    struct decode d = {.model = model_of(&g)};
    d.l.t = tgc_new(LIMIT);
    if (setjmp(d.l.t->stop))
        fail_msg("stopped");
    d.l.m = onnx_load_bytes(d.l.t, path, d.model.p, d.model.n, options);
    if (d.l.m) {
        struct place at = onnx_place_value(d.l.m, "initializer", "w");
        d.ok = onnx_decode_tensor(d.l.m, &at, d.l.m->proto->graph->initializer[0], &d.x);
    }
    return d;
}

static void decode_end(struct decode *d)
{
    tgc_free(d->l.t);
    free(d->model.p);
}

static struct bytes tensor_of(int type, const int64_t *dim, size_t ndim)
{
    struct bytes t = {0};
    for (size_t i = 0; i < ndim; i++)
        put_int(&t, 1, (uint64_t)dim[i]);
    put_int(&t, 2, (uint64_t)type);
    return t;
}

/* Type, shape, field and its bytes; the storage that must come out. */
static void expect_decoded(int type, int64_t n, unsigned field, const void *p, size_t nbytes,
                           const void *want, size_t nwant)
{
    struct bytes t = tensor_of(type, &n, 1);
    put_data(&t, field, p, nbytes);
    struct decode d = decode(&t, NULL, "m.onnx");
    if (!d.ok)
        fail_msg("type %d: %s", type, d.l.t->ndiag ? d.l.t->diag[0].message : "no diagnostic");
    assert_int_equal(d.x.nelem, n);
    assert_int_equal(d.x.nbytes, nwant);
    assert_memory_equal(d.x.data, want, nwant);
    decode_end(&d);
}

static void test_tensor_fields(void **state)
{
    (void)state;
    const float f[2] = {1.5f, -2};
    expect_decoded(1, 2, 9, f, 8, f, 8);
    expect_decoded(1, 2, 4, f, 8, f, 8);
    const int64_t l[2] = {-1, 5};
    expect_decoded(7, 2, 9, l, 16, l, 16);
    expect_decoded(7, 2, 7, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x05", 11, l, 16);
    /* i8 in int32_data */
    expect_decoded(3, 2, 5, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x05", 11, "\xff\x05", 2);
    /* f16 bits */
    expect_decoded(10, 1, 5, "\x80\x78", 2, "\x00\x3c", 2);
    /* bool */
    expect_decoded(9, 3, 9, "\x00\x01\x07", 3, "\x00\x01\x01", 3);
    /* u32 in uint64_data */
    expect_decoded(12, 1, 11, "\x05", 1, "\x05\x00\x00\x00", 4);
    /* i4: low nibble first */
    expect_decoded(22, 3, 9, "\x8f\x07", 2, "\xff\xf8\x07", 3);
    /* u4 */
    expect_decoded(21, 3, 9, "\x8f\x07", 2, "\x0f\x08\x07", 3);
    /* i4 in int32_data: packed bytes */
    expect_decoded(22, 3, 5, "\x8f\x01\x07", 3, "\xff\xf8\x07", 3);
    /* i2 */
    expect_decoded(26, 5, 9, "\xe4\x03", 2, "\x00\x01\xfe\xff\xff", 5);
    int64_t two = 2;
    struct bytes t = tensor_of(8, &two, 1);
    put_str(&t, 6, "ab");
    put_str(&t, 6, "");
    struct decode d = decode(&t, NULL, "m.onnx");
    assert_true(d.ok);
    assert_string_equal(((const char *const *)d.x.data)[0], "ab");
    assert_string_equal(((const char *const *)d.x.data)[1], "");
    decode_end(&d);
}

static void expect_undecoded(struct bytes *t, const char *what)
{
    struct decode d = decode(t, NULL, "m.onnx");
    assert_false(d.ok);
    if (!says(d.l.t, what) || !says(d.l.t, "initializer 'w'"))
        fail_msg("wanted '%s', got '%s'", what, d.l.t->ndiag ? d.l.t->diag[0].message : "nothing");
    decode_end(&d);
}

static void test_bad_tensors(void **state)
{
    (void)state;
    static const struct { int64_t dim[2]; int type; const char *what;
    } row[] = {
        {{3, 1}, 1, "raw_data holds 4 bytes"},
        {{-1, 1}, 1, "cannot be negative"},
        {{INT64_MAX, INT64_MAX}, 1, "more elements"},
        {{1, 1}, 99, "data_type 99"},
        {{1, 1}, 14, "complex"},
        {{1, 1}, 8, "strings cannot be in raw_data"},
        {{1LL << 62, 0}, 1, "more elements"},
        {{1LL << 40, 1LL << 30}, 22, "more elements"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct bytes t = tensor_of(row[i].type, row[i].dim, 2);
        put_data(&t, 9, "1234", 4);
        expect_undecoded(&t, row[i].what);
    }
    int64_t ones[17];
    for (int i = 0; i < 17; i++)
        ones[i] = 1;
    struct bytes t = tensor_of(1, ones, 17);
    expect_undecoded(&t, "rank 17");
    t = tensor_of(1, ones, 1);
    expect_undecoded(&t, "float_data holds 0 values");
}

static struct bytes external_tensor(const char *location, const char *offset, const char *length)
{
    int64_t n = 4;
    struct bytes t = tensor_of(1, &n, 1);
    const char *const entry[][2] = {{"location", location}, {"offset", offset}, {"length", length}};
    for (size_t i = 0; i < 3; i++) {
        struct bytes e = {0};
        if (!entry[i][1])
            continue;
        put_str(&e, 1, entry[i][0]);
        put_str(&e, 2, entry[i][1]);
        put_message(&t, 13, &e);
    }
    put_int(&t, 14, 1);
    return t;
}

static void write_file(const char *dir, const char *name, const void *p, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, p, n) == (ssize_t)n);
    close(fd);
}

static void test_external_data(void **state)
{
    (void)state;
    char dir[] = "test_load_XXXXXX", path[64], from[64], to[64];
    assert_non_null(mkdtemp(dir));
    const float v[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    write_file(dir, "data", v, sizeof v);
    write_file(dir, "linked", v, sizeof v);
    snprintf(path, sizeof path, "%s/m.onnx", dir);
    snprintf(to, sizeof to, "%s/link", dir);
    assert_int_equal(symlink("data", to), 0);
    snprintf(from, sizeof from, "%s/linked", dir);
    snprintf(to, sizeof to, "%s/hard", dir);
    assert_int_equal(link(from, to), 0);
    snprintf(to, sizeof to, "%s/fifo", dir);
    assert_int_equal(mkfifo(to, 0600), 0);
    snprintf(to, sizeof to, "%s/outside", dir);
    assert_int_equal(symlink("/", to), 0);
    static const struct { const char *location, *offset, *length, *what; } row[] = {
        {"data", "16", "16", NULL},
        {"data", "16", NULL, NULL},
        {"data", "17", "15", "15 bytes"},
        {"data", "24", "16", "beyond its end"},
        {"data", "18446744073709551615", "16", "beyond its end"},
        {"data", "18446744073709551616", "16", "a number of bytes is expected"},
        {"data", "-1", "16", "a number of bytes is expected"},
        {"../data", "0", "16", "not a path below"},
        {"/etc/hostname", "0", "16", "not a path below"},
        {"./data", "16", "16", NULL},
        {".//./data", "16", "16", NULL},
        {"data/", "16", "16", "not a path below"},
        {"./../data", "16", "16", "not a path below"},
        {"", "0", "16", "names no location"},
        {NULL, "0", "16", "names no location"},
        {"link", "0", "16", "symbolic link"},
        {"outside/etc/hostname", "0", "16", "symbolic link"},
        {"hard", "0", "16", "hard links"},
        {"fifo", "0", "16", "not a regular file"},
        {"none", "0", "16", "cannot be opened"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct bytes t = external_tensor(row[i].location, row[i].offset, row[i].length);
        struct decode d = decode(&t, NULL, path);
        if (row[i].what) {
            assert_false(d.ok);
            if (!says(d.l.t, row[i].what))
                fail_msg("%s: wanted '%s', got '%s'", row[i].location, row[i].what,
                         d.l.t->diag[0].message);
        } else {
            assert_true(d.ok);
            assert_memory_equal(d.x.data, v + 4, 16);
        }
        decode_end(&d);
    }
    struct bytes t = external_tensor("data", "16", "16");
    struct decode d = decode(&t, &(struct onnx_load_options){.no_external_data = true}, path);
    assert_true(!d.ok && says(d.l.t, "--no-external-data"));
    decode_end(&d);
    t = external_tensor("data", "16", "16");
    d = decode(&t, &(struct onnx_load_options){.external_data_dir = dir}, "elsewhere.onnx");
    assert_true(d.ok);
    decode_end(&d);
    static const char *const made[] = {"data", "linked", "link", "hard", "fifo", "outside"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        snprintf(to, sizeof to, "%s/%s", dir, made[i]);
        unlink(to);
    }
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_model),
        cmocka_unit_test(test_unsorted_is_sorted),
        cmocka_unit_test(test_bad_names),
        cmocka_unit_test(test_subgraph_scopes),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_amplification),
        cmocka_unit_test(test_not_a_model),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_exhausted_memory),
        cmocka_unit_test(test_tensor_fields),
        cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_external_data),
    };
    return cmocka_run_group_tests_name("load", tests, NULL, NULL);
}
