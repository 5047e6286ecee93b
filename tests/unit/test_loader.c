/* test_loader.c - backends/llvm/loader.c: an object that LLVM has made runs here, and one that is
 * damaged, at any byte or cut at any place, is refused or linked, and nothing else happens.
 */
#include "backends/llvm/loader.h"

#include "backends/llvm/llvm.h"
#include "frontend/text/text.h"

#include <elf.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fixture { struct tgc *t; struct llvm_output out; struct code_object object; };

/* A function of runtime/ that works for the host is called, and the weights are data. */
static const char source[] =
    "tg 1\ngraph \"net\"\ninput %x : f32[4] as \"x\"\n"
    "weight %w : f32[4] = uniform(low=-1, high=1, seed=1)\n"
    "%s = add(%x, %w)\n%y = erf(%s)\n"
    "%top, %_i = topk(%y) {k=1}\noutput %y as \"y\"\noutput %top as \"top\"\n";

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct tgc *t = f->t = tgc_new(0);
    *state = f;
    if (!llvm_found(t))
        return 0;
    if (setjmp(t->stop))
        fail_msg("%s", t->ndiag ? t->diag[0].message : "stopped");
    passes_init(t);
    struct compile_options o = {.level = 2, .threads = 1, .isa = 1u << ISA_GENERIC, .name = "net"};
    struct graph *g = tg_read_bytes(t, "net.tg", source, sizeof source - 1, NULL);
    struct schedule *s = g ? passes_run(t, g, &o) : NULL;
    struct llvm_request r = {.file = LLVM_FILE_OBJECT, .name = "net", .producer = "tgc test"};
    if (!s || !llvm_write(t, s, &r, &f->out))
        fail_msg("%s", t->ndiag ? t->diag[0].message : "no object");
    f->object = (struct code_object){f->out.code.s, f->out.code.n};
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    tgc_free(f->t);
    free(f);
    return 0;
}

static uint64_t address_of(void (*function)(void)) { return (uint64_t)(uintptr_t)function; }

/* Functions of runtime/ have the program's prefix in objects; others are libm's and libc's. */
static uint64_t find(void *user, const char *name)
{
    static const char prefix[] = "net_piece_";
    const struct { const char *name; void (*function)(void); } known[] = {
        {"erff", (void (*)(void))erff}, {"fmaf", (void (*)(void))fmaf},
        {"memcpy", (void (*)(void))memcpy}, {"memset", (void (*)(void))memset}};
    (void)user;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return address_of(known[i].function);
    bool is_piece = strncmp(name, prefix, sizeof prefix - 1) == 0;
    void (*function)(void) = is_piece ? llvm_piece(name + sizeof prefix - 1) : NULL;
    return function ? address_of(function) : 0;
}

static uint64_t find_nothing(void *user, const char *name)
{
    ++*(int *)user;
    assert_non_null(name);
    return 0;
}

static struct loaded_code *link_bytes(const void *bytes, size_t n, struct code_error *why)
{
    const struct code_object object = {bytes, n};
    const struct code_outside outside = {find, NULL};
    return code_link(&object, 1, &outside, why);
}

static void *function_of(const struct loaded_code *c, const char *name)
{
    return (void *)(uintptr_t)code_find(c, name);
}

static void count_function(void *user, const char *name, uint64_t address, uint64_t nbytes)
{
    int *n = user;
    assert_non_null(name);
    assert_true(address != 0 && nbytes != 0);
    ++*n;
}

static void run_object(const struct code_object *object, int n)
{
    int (*init)(void **, void *, size_t, const void *), (*run)(void *, const void *, void *);
    const struct code_outside outside = {find, NULL};
    struct code_error why;
    struct loaded_code *c = code_link(object, n, &outside, &why);
    if (!c)
        fail_msg("%s", why.text);
    void *p = function_of(c, "net_init"), *q = function_of(c, "net_run"), *model;
    assert_non_null(p);
    assert_non_null(q);
    assert_int_equal(code_find(c, "net_nothing"), 0);
    memcpy(&init, &p, sizeof p);
    memcpy(&run, &q, sizeof q);
    float x[2][4] = {{0, 0, 0, 0}, {1, 2, 3, 4}}, y[2][4], top;
    static _Alignas(64) unsigned char arena[1 << 16];
    assert_int_equal(init(&model, arena, sizeof arena, NULL), PROGRAM_OK);
    for (int i = 0; i < 2; i++) {
        const void *in[] = {x[i]};
        void *out[] = {y[i], &top};
        assert_int_equal(run(model, in, out), PROGRAM_OK);
        assert_true(top == fmaxf(fmaxf(y[i][0], y[i][1]), fmaxf(y[i][2], y[i][3])));
    }
    for (int k = 0; k < 4; k++) {     /* the weights from the first run, by which the second is
                                       * right */
        double w = 0;
        for (int step = 0; step < 60; step++)                      /* Newton's, of erf(w) = y */
            w -= (erf(w) - (double)y[0][k]) / (1.1283791670955126 * exp(-w * w));
        assert_true(fabs(erf(w + k + 1) - (double)y[1][k]) < 1e-5 && y[0][k] != 0);
    }
    int nfunction = 0, nimage;
    code_each_function(c, count_function, &nfunction);
    assert_true(nfunction >= 3);
    assert_non_null(code_images(c, &nimage));
    assert_int_equal(nimage, n);
    code_free(c);
}

static void test_runs(void **state)
{
    const struct fixture *f = *state;
    if (!f->object.nbytes)
        skip();
    run_object(&f->object, 1);
    /* of two definitions the first is found */
    const struct code_object two[] = {f->object, f->object};
    run_object(two, 2);
}

/* At an odd address, as in the middle of a file. */
static void test_any_alignment(void **state)
{
    const struct fixture *f = *state;
    if (!f->object.nbytes)
        skip();
    unsigned char *copy = malloc(f->object.nbytes + 1);
    memcpy(copy + 1, f->object.bytes, f->object.nbytes);
    run_object(&(struct code_object){copy + 1, f->object.nbytes}, 1);
    free(copy);
}

static void test_missing(void **state)
{
    const struct fixture *f = *state;
    struct code_error why;
    if (!f->object.nbytes)
        skip();
    int asked = 0;
    assert_null(code_link(&f->object, 1, &(struct code_outside){find_nothing, &asked}, &why));
    assert_int_equal(asked, 1);
    assert_non_null(strstr(why.text, "it needs 'net_piece_"));
    const struct code_object nothing = {"", 0};
    assert_null(code_link(&nothing, 1, &(struct code_outside){find, NULL}, &why));
    assert_non_null(strstr(why.text, "no ELF file"));
}

/* Links it, whatever comes of it; the code is not run. */
static bool try_bytes(const unsigned char *bytes, size_t n)
{
    struct code_error why;
    struct loaded_code *c = link_bytes(bytes, n, &why);
    assert_true(c || why.text[0]);
    code_free(c);
    return c != NULL;
}

static void test_cut(void **state)
{
    const struct fixture *f = *state;
    if (!f->object.nbytes)
        skip();
    for (size_t n = 0; n < f->object.nbytes; n += n < 4096 ? 1 : 7) {
        unsigned char *part = malloc(n ? n : 1);       /* exactly so long, for sanitizers */
        memcpy(part, f->object.bytes, n);
        assert_false(try_bytes(part, n));              /* the table of sections is at the end */
        free(part);
    }
}

/* Whether a byte belongs to the header or to tables: those of sections, symbols, names and
 * relocations. */
static bool is_of_tables(const unsigned char *bytes, size_t at)
{
    Elf64_Ehdr h;
    memcpy(&h, bytes, sizeof h);
    if (at < sizeof h || at >= h.e_shoff)
        return true;
    for (unsigned i = 0; i < h.e_shnum; i++) {
        Elf64_Shdr s;
        memcpy(&s, bytes + h.e_shoff + i * sizeof s, sizeof s);
        bool tables = s.sh_type == SHT_SYMTAB || s.sh_type == SHT_STRTAB || s.sh_type == SHT_RELA;
        if (tables && at >= s.sh_offset && at - s.sh_offset < s.sh_size)
            return true;
    }
    return false;
}

static void test_damaged(void **state)
{
    const struct fixture *f = *state;
    if (!f->object.nbytes)
        skip();
    static const unsigned char change[] = {0x01, 0x08, 0x40, 0x80, 0xff};
    size_t n = f->object.nbytes, tried = 0, refused = 0;
    unsigned char *bytes = malloc(n);
    memcpy(bytes, f->object.bytes, n);
    for (size_t at = 0; at < n; at++)
        for (size_t k = 0; k < sizeof change && is_of_tables(f->object.bytes, at); k++) {
            bytes[at] ^= change[k];
            refused += !try_bytes(bytes, n);
            bytes[at] ^= change[k];
            tried++;
        }
    assert_true(tried > 5000 && refused > tried / 4);
    assert_true(try_bytes(bytes, n));
    free(bytes);
}

/* Several bytes at once, all over the tables. */
static void test_damaged_at_random(void **state)
{
    const struct fixture *f = *state;
    if (!f->object.nbytes)
        skip();
    size_t n = f->object.nbytes;
    unsigned char *bytes = malloc(n);
    uint64_t random = 1;
    for (int i = 0; i < 4000; i++) {
        memcpy(bytes, f->object.bytes, n);
        for (int k = 0; k < 1 + i % 8; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            size_t at = (size_t)(random >> 20) % n;
            if (is_of_tables(f->object.bytes, at))
                bytes[at] = (unsigned char)(random >> 12);
        }
        try_bytes(bytes, n);
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_any_alignment, setup, teardown),
        cmocka_unit_test_setup_teardown(test_missing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_at_random, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
