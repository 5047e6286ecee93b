/* test_clang.c - which lines of an emitted file belong to which kernel, and that what libclang says
 * of a line is reported at the kernel's nodes.
 */
#include "backends/clang/clang.h"
#include "frontend/text/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct emitted { struct tgc *t; struct schedule *s; struct text c, h; struct program_lines lines; };

static const char source[] = "tg 1\ngraph \"net\"\ninput %x : f32[512, 64] as \"x\"\n"
                             "weight %w1 : f32[256, 64] = uniform(low=-0.1, high=0.1, seed=1)\n"
                             "weight %b1 : f32[256] = uniform(low=-0.1, high=0.1, seed=2)\n"
                             "weight %w2 : f32[64, 256] = uniform(low=-0.1, high=0.1, seed=3)\n"
                             "weight %b2 : f32[64] = uniform(low=-0.1, high=0.1, seed=4)\n"
                             "%first = linear(%x, %w1, %b1)\n%h = tanh(%first)\n"
                             "%second : f32[512, 64] = linear(%h, %w2, %b2)\n"
                             "output %second as \"y\"\n";

static void emit_two(struct emitted *e, int threads)
{
    struct tgc *t = tgc_new(0);
    *e = (struct emitted){.t = t, .c = {.t = t}, .h = {.t = t}};
    if (setjmp(t->stop))
        fail_msg("%s", t->ndiag ? t->diag[0].message : "stopped");
    passes_init(t);
    struct compile_options o = {.level = 2, .threads = threads, .isa = isa_all(),
                                .name = "net"};
    struct graph *g = tg_read_bytes(t, "net.tg", source, sizeof source - 1, NULL);
    if (!g)
        fail_msg("%s", t->diag[0].message);
    e->s = passes_run(t, g, &o);
    assert_non_null(e->s);
    assert_true(e->s->nkernel >= 2);
    struct program_options po = {.name = "net", .model = "net.tg", .producer = "tgc test",
                                 .no_main = true, .lines = &e->lines};
    bool beside;
    assert_true(program_write_c(t, e->s, &po, &e->c, &e->h, &beside));
}

/* The text of a range. */
static const char *text_of(const struct emitted *e, const struct program_range *r)
{
    const char *s = e->c.s;
    for (size_t line = 1; line < r->from; line++)
        s = strchr(s, '\n') + 1;
    const char *end = s;
    for (size_t line = r->from; line <= r->to; line++)
        end = strchr(end, '\n') + 1;
    return mem_printf(e->t, "%.*s", (int)(end - s), s);
}

/* A range begins and ends with what was written for the kernel, and nothing else. */
static void check_lines(int threads)
{
    struct emitted e;
    emit_two(&e, threads);
    for (int i = 0; i < e.s->nkernel; i++) {
        const struct kernel *k = e.s->kernel[i];
        int nfunction = 0, nvariant = 0, ncall = 0, ntask = 0;
        for (size_t j = 0; j < e.lines.n; j++) {
            const struct program_range *r = &e.lines.range[j];
            const char *s = text_of(&e, r);
            if (strcmp(r->title, k->title) != 0)
                continue;
            assert_string_equal(program_line_title(&e.lines, r->from), k->title);
            assert_string_equal(program_line_title(&e.lines, r->to), k->title);
            nfunction += strncmp(s, "/* ", 3) == 0 && strstr(s, k->title) == s + 3 &&
                         strstr(s, "static void ") && !strstr(s, "\n}\n\n/*");
            nvariant +=
                strncmp(s, "/* ", 3) == 0 && strstr(s, ", for ") && strstr(s, "static void ");
            ntask += strncmp(s, "struct ", 7) == 0 && strstr(s, "_task");
            ncall += strncmp(s, mem_printf(e.t, "    step(self, %d);\n", k->index), 18) == 0;
        }
        assert_int_equal(nfunction, 1);
        assert_int_equal(nvariant, k->nvariant);
        assert_int_equal(ncall, 1);
        assert_int_equal(ntask, k->is_shared);
    }
    assert_null(program_line_title(&e.lines, 1));
    tgc_free(e.t);
}

static void test_lines(void **state)
{
    (void)state;
    check_lines(1);
    check_lines(4);
}

/* e's C with a statement at the begin of kernel i's portable function, on the line of its brace. */
static void spoil(struct emitted *e, int i, const char *statement)
{
    const char *title = mem_printf(e->t, "/* %s\n", e->s->kernel[i]->title);
    char *at = strstr(strstr(e->c.s, title), "\n{\n");
    struct text c = {.t = e->t};
    text_write(&c, e->c.s, (size_t)(at + 2 - e->c.s));
    text_puts(&c, statement);
    text_puts(&c, at + 2);
    e->c = c;
}

static bool check(struct emitted *e)
{
    struct clang_source s = {"net.tg", "net.c", "net.h", &e->c, &e->h, &e->lines, NULL};
    return clang_check(clang_open(e->t, NULL), &s);
}

/* Whether there is a libclang for the clang program. */
static bool clang_is_here(void)
{
    struct tgc *t = tgc_new(0);
    const char *program = clang_found(t);
    bool here = clang_library_found(t, program ? atoi(program) : 0) != NULL;
    tgc_free(t);
    return here;
}

/* The statements' diagnostics are at the kernel, and there are no others. */
static void test_diagnostics(void **state)
{
    (void)state;
    static const struct { const char *statement, *what; bool is_error; } cases[] = {
        {"", NULL, false},
        {" nothing_of_this_name;", "nothing_of_this_name", true},
        {" int not_used;", "not_used", false},
    };
    if (!clang_is_here())
        skip();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        for (int i = 0; i < 2; i++) {
            struct emitted e;
            emit_two(&e, 1);
            if (cases[n].what)
                spoil(&e, i, cases[n].statement);
            assert_int_equal(check(&e), !cases[n].is_error);
            assert_int_equal(e.t->ndiag, cases[n].what != NULL);
            if (cases[n].what) {
                const struct diag *d = &e.t->diag[0];
                assert_int_equal(d->severity == SEVERITY_ERROR, cases[n].is_error);
                assert_string_equal(d->at.text, e.s->kernel[i]->title);
                assert_non_null(strstr(d->message, cases[n].what));
                assert_ptr_equal(strstr(d->message, "net.c:"), d->message);
            }
            tgc_free(e.t);
        }
}

#if defined __GLIBC__ && !defined __SANITIZE_ADDRESS__
#include <malloc.h>

/* A check, with a diagnostic, in a compile that has `room` bytes left. Whether that was enough. */
static bool check_within(size_t room)
{
    struct emitted e;
    emit_two(&e, 1);
    spoil(&e, 0, " int not_used;");
    struct clang *l = clang_open(e.t, NULL);
    struct clang_source s = {"net.tg", "net.c", "net.h", &e.c, &e.h, &e.lines, NULL};
    e.t->mem_limit = e.t->mem_used + 4096;   /* near it, blocks are as large as what is asked for */
    for (size_t used = e.t->mem_used; e.t->mem_used == used;)
        mem_alloc(e.t, 16);
    e.t->mem_limit = e.t->mem_used + room;
    volatile bool done = false;
    if (setjmp(e.t->stop) == 0)
        done = clang_check(l, &s);
    tgc_free(e.t);
    return done;
}

/* A compile that ends in the middle of a check leaves nothing of libclang behind, whose parse of a
 * file takes megabytes. The first one that comes to an end has filled libclang's own tables. */
static void test_stops(void **state)
{
    (void)state;
    enum { STEP = 300 };
    if (!clang_is_here())
        skip();
    assert_true(check_within(1 << 20));
    size_t before = mallinfo2().uordblks, nstop = 0, stopped = 0;
    for (size_t room = 0; !check_within(room); room += STEP) {
        nstop++;
        stopped = mallinfo2().uordblks;
    }
    assert_true(nstop > 3);
    assert_true(stopped < before + (nstop << 17));
}
#else
static void test_stops(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines),
                                       cmocka_unit_test(test_diagnostics),
                                       cmocka_unit_test(test_stops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
