/* test_npy.c - .npy files read and written; comparing tensors; files that appear whole or not at
 * all. */
#include "cli/cli.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "test_npy_XXXXXX";

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    directory_remove(dir);
    return 0;
}

static const char *path_of(const char *name)
{
    static char path[256]; /* one at a time */
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void put_file(const char *path, const void *p, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, p, n) == (ssize_t)n);
    close(fd);
}

/* Writes a file of version 1 with this header and these elements, and reads it. */
static bool read_made(struct tgc *t, const char *header, const void *p, size_t n, enum dtype wanted,
                      struct array *v)
{
    uint8_t file[1024] = "\x93NUMPY\x01\x00";
    size_t length = strlen(header);
    assert_true(10 + length + n <= sizeof file);
    file[8] = (uint8_t)length;
    file[9] = (uint8_t)(length >> 8);
    memcpy(file + 10, header, length);
    if (n)
        memcpy(file + 10 + length, p, n);
    put_file(path_of("x.npy"), file, 10 + length + n);
    return npy_read(t, path_of("x.npy"), wanted, v);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    static const enum dtype kinds[] = {DTYPE_BOOL,     DTYPE_I4,  DTYPE_I8,  DTYPE_I16, DTYPE_I32,
                                       DTYPE_I64,      DTYPE_U8,  DTYPE_U64, DTYPE_F16, DTYPE_BF16,
                                       DTYPE_F8E4M3FN, DTYPE_F32, DTYPE_F64};
    static const struct {
        int ndim;
        int64_t dim[3];
    } shapes[] = {{0, {0}}, {1, {5}}, {1, {0}}, {3, {2, 3, 4}}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            struct array v = {.name = "x", .dtype = kinds[k], .ndim = shapes[i].ndim}, back;
            memcpy(v.dim, shapes[i].dim, sizeof shapes[i].dim);
            assert_true(array_allocate(t, &v));
            array_fill_random(&v, 0, 0, 1);
            FILE *f = fopen(path_of("x.npy"), "w");
            assert_true(npy_write(t, f, "x.npy", &v));
            /* elements begin at a multiple of 64 */
            assert_int_equal((ftell(f) - (long)v.nbytes) % 64, 0);
            fclose(f);
            assert_true(npy_read(t, path_of("x.npy"), kinds[k], &back));
            assert_int_equal(back.ndim, v.ndim);
            assert_memory_equal(back.dim, v.dim, (size_t)v.ndim * sizeof *v.dim);
            assert_int_equal(back.nbytes, v.nbytes);
            if (v.nbytes)
                assert_memory_equal(back.data, v.data, v.nbytes);
        }
    }
    tgc_free(t);
}

/* What ml_dtypes writes for formats that NumPy lacks. */
static void test_unnamed(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    struct array v;
    const uint8_t bits[] = {0x3c, 0x40, 0x44, 0x48}, low_four[] = {0xfc, 0x00, 0x04, 0xf8};
    static const struct { const char *descr; enum dtype dtype; int n; bool fits; } row[] = {
        {"<f1", DTYPE_F8E5M2, 4, true},    {"<V1", DTYPE_F8E4M3FN, 4, true},
        {"|V1", DTYPE_F8E8M0, 4, true},    {"<V2", DTYPE_BF16, 2, true},
        {"<V1", DTYPE_I4, 4, true},        {"<f2", DTYPE_BF16, 2, false},
        {"<V2", DTYPE_U16, 2, false},      {"<V1", DTYPE_U8, 4, false},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char text[96];
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }\n",
                 row[i].descr, row[i].n);
        assert_int_equal(read_made(t, text, bits, sizeof bits, row[i].dtype, &v), row[i].fits);
        if (row[i].fits)               /* of an int4 the low bits count, with their sign */
            assert_memory_equal(v.data, row[i].dtype == DTYPE_I4 ? low_four : bits, sizeof bits);
    }
    tgc_free(t);
}

static void test_layouts(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    struct array v;
    const uint8_t big[] = {0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6};
    assert_true(read_made(t, "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n", big,
                          12, DTYPE_I16, &v));
    static const int16_t want[] = {1, 3, 5, 2, 4, 6};
    assert_memory_equal(v.data, want, sizeof want);
    assert_true(read_made(t, "{'shape': (2L,), 'fortran_order': False, 'descr': '|b1'}", "\x02\x00",
                          2, DTYPE_BOOL, &v));
    assert_memory_equal(v.data, "\x01\x00", 2);
    assert_true(read_made(t, "{'descr': '|V2', 'fortran_order': False, 'shape': (1,)}", "\x80\x3f",
                          2, DTYPE_BF16, &v));
    assert_true(read_made(t, "{'descr': '<f4', 'fortran_order': False, 'shape': ()}",
                          "\0\0\x80\x3f", 4, DTYPE_VOID, &v));
    assert_int_equal(v.dtype, DTYPE_F32);
    tgc_free(t);
}

static void test_bad_files(void **state)
{
    (void)state;
    static const struct { const char *header; size_t n; const char *what;
    } row[] = {
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", 8, "'f4' (f32) is expected"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (1,)}", 4, "'f4' (f32) is expected"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 4, "no plain numbers"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4, "no element type"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 4, "needs 8"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 5, "needs 4"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 4, "malformed"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}",
         4, "rank over 16"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, "
         "9223372036854775807)}",
         4, "addressed"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}", 4,
         "needs 4000000000000"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1", 4, "malformed"},
        {"{'descr': '<f4", 4, "no plain numbers"},
        {"{'descr", 4, "no element type"},
        {"", 4, "no element type"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct tgc *t = tgc_new(0);
        struct array v;
        assert_false(read_made(t, row[i].header, "12345678", row[i].n, DTYPE_F32, &v));
        if (!strstr(t->diag[0].message, row[i].what))
            fail_msg("%s: wanted '%s', got '%s'", row[i].header, row[i].what, t->diag[0].message);
        assert_non_null(strstr(t->diag[0].at.file, "x.npy"));
        tgc_free(t);
    }
    static const char *const raw[] = {"", "\x93NUM", "\x93NUMPY\x09\x00\x10\x00",
                                      "\x93NUMPY\x02\x00\xff\xff\xff\xff", "hello, world"};
    for (size_t i = 0; i < sizeof raw / sizeof *raw; i++) {
        struct tgc *t = tgc_new(0);
        struct array v;
        put_file(path_of("x.npy"), raw[i], i == 2 ? 10 : i == 3 ? 12 : strlen(raw[i]));
        assert_false(npy_read(t, path_of("x.npy"), DTYPE_F32, &v));
        assert_int_equal(t->nerror, 1);
        tgc_free(t);
    }
}

static bool agree(enum dtype d, const void *got, const void *want, double rtol, double atol)
{
    struct tgc *t = tgc_new(0);
    struct array a = {.dtype = d, .ndim = 1, .dim = {1}, .nelem = 1}, b = a;
    uint8_t x[8], y[8];
    memcpy(x, got, dtype_nbytes(d));
    memcpy(y, want, dtype_nbytes(d));
    a.data = x;
    b.data = y;
    struct text text = {.t = t};
    bool result = array_compare(t, &text, &a, &b, rtol, atol);
    tgc_free(t);
    return result;
}

static void test_compare(void **state)
{
    (void)state;
    const float one = 1, near_one = 1.0005f, far = 1.002f, nan = NAN, inf = INFINITY,
                minus_inf = -INFINITY, zero = 0, minus_zero = -0.0f;
    assert_true(agree(DTYPE_F32, &near_one, &one, 1e-3, 0));
    assert_false(agree(DTYPE_F32, &far, &one, 1e-3, 0));
    assert_true(agree(DTYPE_F32, &far, &one, 0, 0.01));
    assert_true(agree(DTYPE_F32, &nan, &nan, 0, 0));
    assert_false(agree(DTYPE_F32, &nan, &one, 1, 1));
    assert_false(agree(DTYPE_F32, &one, &nan, 1, 1));
    assert_true(agree(DTYPE_F32, &inf, &inf, 0, 0));
    assert_false(agree(DTYPE_F32, &inf, &minus_inf, 1, 1));
    assert_false(agree(DTYPE_F32, &one, &inf, 1, 1));
    assert_true(agree(DTYPE_F32, &zero, &minus_zero, 0, 0));
    const int32_t a = 5, b = 6;
    assert_true(agree(DTYPE_I32, &a, &a, 0, 0));
    assert_false(agree(DTYPE_I32, &a, &b, 1, 10)); /* integers are exact, whatever the tolerance */
}

static void test_random_is_fixed(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    struct array a = {.name = "x", .dtype = DTYPE_F32, .ndim = 1, .dim = {100}}, b = a, c = a;
    c.name = "y";
    assert_true(array_allocate(t, &a) && array_allocate(t, &b) && array_allocate(t, &c));
    array_fill_random(&a, 0, 0, 1);
    array_fill_random(&b, 0, 0, 1);
    array_fill_random(&c, 1, 0, 1);
    assert_memory_equal(a.data, b.data, a.nbytes);
    assert_memory_not_equal(a.data, c.data, a.nbytes);
    for (int i = 0; i < 100; i++)
        assert_true(fabsf(((float *)a.data)[i]) <= 1);
    tgc_free(t);
}

static void test_file_names(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    assert_string_equal(file_name_of(t, "a/b:c.1-_"), "a_b_c.1-_");
    assert_string_equal(file_name_of(t, "gr\xc3\xb6\xc3\x9f" "e"), "gr__e");
    assert_string_equal(file_name_of(t, ""), "_");
    tgc_free(t);
}

static void get_file(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, size - 1, f)] = 0;
    fclose(f);
}

static int count_files(void)
{
    int n = 0;
    char command[300];
    snprintf(command, sizeof command, "ls -A %s | wc -l", dir);
    FILE *f = popen(command, "r");
    assert_int_equal(fscanf(f, "%d", &n), 1);
    pclose(f);
    return n;
}

static void test_outputs(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    char text[64], a[256], b[256], l[256];
    unlink(path_of("x.npy"));
    snprintf(a, sizeof a, "%s", path_of("a"));
    snprintf(b, sizeof b, "%s", path_of("b"));
    snprintf(l, sizeof l, "%s", path_of("link"));
    put_file(a, "older", 5);
    chmod(a, 0640);
    assert_int_equal(symlink("b", l), 0);
    put_file(b, "older", 5);
    struct outputs *s = outputs_new(t);
    fputs("new", outputs_open(s, a));
    fputs("new", outputs_open(s, l));
    get_file(a, text, sizeof text);
    assert_string_equal(text, "older"); /* until the commit */
    outputs_discard(s);
    get_file(a, text, sizeof text);
    assert_string_equal(text, "older");
    assert_int_equal(count_files(), 3); /* nothing is left behind */
    fputs("new", outputs_open(s, a));
    fputs("new", outputs_open(s, l));
    assert_true(outputs_commit(s));
    get_file(a, text, sizeof text);
    assert_string_equal(text, "new");
    get_file(b, text, sizeof text);
    assert_string_equal(text, "new"); /* through the link, which stays one */
    struct stat st;
    assert_true(lstat(l, &st) == 0 && S_ISLNK(st.st_mode));
    assert_true(stat(a, &st) == 0 && (st.st_mode & 0777) == 0640);
    assert_null(outputs_open(s, dir));
    assert_null(outputs_open(s, path_of("no/such")));
    assert_int_equal(t->nerror, 2);
    fputs("new", outputs_open(s, "/dev/null")); /* written, not replaced */
    assert_true(outputs_commit(s));
    assert_true(lstat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
    FILE *full = outputs_open(s, "/dev/full");
    fputs("new", full);
    fputs("new", outputs_open(s, a));
    assert_false(outputs_commit(s)); /* one that fails keeps the others from being replaced */
    assert_int_equal(count_files(), 3);
    tgc_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_unnamed),
        cmocka_unit_test(test_layouts),    cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_compare),    cmocka_unit_test(test_random_is_fixed),
        cmocka_unit_test(test_file_names), cmocka_unit_test(test_outputs),
    };
    return cmocka_run_group_tests_name("npy", tests, make_dir, remove_dir);
}
