/* test_options.c - the command line: what is read, what is refused and how it is said; help names
 * every option. */
#include "cli/cli.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *no_variable(const char *name)
{
    (void)name;
    return NULL;
}

static const char *cuda_noopt(const char *name)
{
    return strcmp(name, "CUDA") == 0 || strcmp(name, "NOOPT") == 0 ? "1"
           : strcmp(name, "DEBUG") == 0                            ? "2"
                                                                   : NULL;
}

struct parsed { struct tgc *t; struct options o; bool ok; };

enum { MAX_WORDS = 32 };

/* Words separated by blanks. */
static struct parsed parse_with(const char *line, const char *(*variable)(const char *))
{
    struct parsed p = {.t = tgc_new(0)};
    assert_non_null(p.t);
    char *copy = mem_str(p.t, line), *save;
    const char *word[MAX_WORDS] = {"tgc"};
    int n = 1;
    for (char *s = strtok_r(copy, " ", &save); s; s = strtok_r(NULL, " ", &save))
        word[n++] = s;
    if (setjmp(p.t->stop))
        fail_msg("stopped");
    p.ok = options_parse(p.t, n, word, variable, &p.o);
    return p;
}

static struct parsed parse(const char *line) { return parse_with(line, no_variable); }

static void expect_refused(const char *line, const char *what)
{
    struct parsed p = parse(line);
    bool said = false;
    for (int i = 0; i < p.t->ndiag; i++)
        said |= strstr(p.t->diag[i].message, what) != NULL;
    if (p.ok || !said)
        fail_msg("'%s': wanted '%s', got '%s'", line, what,
                 p.t->ndiag ? p.t->diag[0].message : "nothing");
    tgc_free(p.t);
}

static void test_compile(void **state)
{
    (void)state;
    struct parsed p = parse("m.onnx -o net.c --dim batch=2 --dim=n<=8 --shape x=1x3x?x4 -O0 "
                            "--weights=array --threads 3 -MD -MFd.d");
    assert_true(p.ok);
    assert_int_equal(p.o.command, COMMAND_COMPILE);
    assert_string_equal(p.o.model, "m.onnx");
    assert_string_equal(p.o.output, "net.c");
    assert_int_equal(p.o.emit, EMIT_C);
    assert_int_equal(p.o.ndim, 2);
    assert_string_equal(p.o.dim[0].name, "batch");
    assert_true(p.o.dim[0].min == 2 && p.o.dim[0].max == 2);
    assert_string_equal(p.o.dim[1].name, "n");
    assert_true(p.o.dim[1].min == 0 && p.o.dim[1].max == 8);
    assert_int_equal(p.o.shape[0].ndim, 4);
    assert_true(p.o.shape[0].dim[2] == -1 && p.o.shape[0].dim[3] == 4);
    assert_int_equal(p.o.level, 0);
    assert_int_equal(p.o.weights, WEIGHTS_ARRAY);
    assert_int_equal(p.o.threads, 3);
    assert_true(p.o.depfile);
    assert_string_equal(p.o.depfile_name, "d.d");
    tgc_free(p.t);
    p = parse("m.onnx -o net.c --target=opencl --cpu=pocl");
    assert_true(p.ok && p.o.device == device_find("pocl"));
    assert_int_equal(p.o.threads, p.o.device->units);
    tgc_free(p.t);
    p = parse("m.onnx -o net.c --target=cuda --cpu=sm_90a,sm_80");
    assert_true(p.ok && p.o.device == device_find("sm_90a"));
    assert_string_equal(p.o.architectures, "sm_90a,sm_80");
    tgc_free(p.t);
    p = parse("m.onnx -o net.c --target=opencl --cpu=pocl --threads=1");
    assert_true(p.ok && p.o.threads == 1);
    tgc_free(p.t);
}

static void test_commands(void **state)
{
    (void)state;
    struct parsed p = parse("run -i a=b=f.npy m.onnx --shape s=");
    assert_true(p.ok);
    assert_int_equal(p.o.command, COMMAND_RUN);
    assert_string_equal(p.o.input[0].name, "a=b");
    assert_string_equal(p.o.input[0].path, "f.npy");
    assert_int_equal(p.o.shape[0].ndim, 0);
    tgc_free(p.t);
    p = parse("verify m.onnx --data d --rtol 1e-4 --atol=0");
    assert_true(p.ok && p.o.rtol == 1e-4 && p.o.atol == 0);
    tgc_free(p.t);
    p = parse("m.onnx -o net.so -- ");
    assert_true(p.ok && p.o.emit == EMIT_SHARED);
    tgc_free(p.t);
    p = parse("-o - -x onnx -");
    assert_true(p.ok && p.o.emit == EMIT_C && p.o.format == FORMAT_ONNX);
    tgc_free(p.t);
    p = parse("-o net.c -- -odd.onnx");
    assert_true(p.ok);
    assert_string_equal(p.o.model, "-odd.onnx");
    tgc_free(p.t);
    p = parse("m.onnx -o x.c --max-memory=3G");
    assert_true(p.ok && p.o.max_memory == (size_t)3 << 30);
    tgc_free(p.t);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct { const char *line, *what;
    } row[] = {
        {"", "no model is given"},
        {"m.onnx", "-o OUT is required"},
        {"m.onnx n.onnx -o m.c", "'n.onnx' is a second operand"},
        {"m.onnx -o", "-o needs a value"},
        {"m.onnx -o m", "there is none"},
        {"m.onnx -o dir.d/m", "there is none"},
        {"m.onnx -o m.docx", "docx"},
        {"m.onnx -o m.ptx", "written by --target=cuda"},
        {"m.onnx -o m.c --frobnicate", "--frobnicate"},
        {"m.onnx -o m.c --weight=array", "--weights"},
        {"m.onnx -o m.c --weights=lead", "'lead'; string|array|incbin|file is expected"},
        {"m.onnx -o m.c --dim batch", "'batch'"},
        {"m.onnx -o m.c --dim =2", "'=2'"},
        {"m.onnx -o m.c --dim <=2", "'<=2'"},
        {"m.onnx -o m.c --dim n=-2", "'n=-2'"},
        {"m.onnx -o m.c --dim n=99999999999", "99999999999"},
        {"m.onnx -o m.c --dim n=..99999999999", "a dimension is a number to 2147483647"},
        {"m.onnx -o m.c --dim n<=0",
         "'n<=0'; a dimension is a number to 2147483647, and a bound begins with 1"},
        {"m.onnx -o m.c --dim n=..", "NAME=N|NAME=..N|NAME=N..N is expected"},
        {"m.onnx -o m.c --dim n=2..", "'n=2..'"},
        {"m.onnx -o m.c --dim n=8..2", "'n=8..2'; a dimension is a number to 2147483647, and a "
                                       "bound begins with 1, or with the least size"},
        {"m.onnx -o m.c --dim n=2..8..9", "'n=2..8..9'"},
        {"m.onnx -o m.c --dim n<=2..8", "'n<=2..8'"},
        {"m.onnx -o m.c --dim n=..0", "'n=..0'"},
        {"m.onnx -o m.c --shape x=1x", "'x=1x'"},
        {"m.onnx -o m.c --shape x=1y2", "'x=1y2'"},
        {"m.onnx -o m.c --shape x=1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1", "--shape"},
        {"m.onnx -o m.c -O4", "-O"},
        {"m.onnx -o m.c --threads 0", "--threads"},
        {"m.onnx -o m.c --target=abacus", "abacus"},
        {"m.onnx -o m.c --cpu=zen9", "zen9"},
        {"m.onnx -o m.c --cpu=znver", "near: znver1 znver2"},
        {"m.onnx -o m.c --cpu=cortexa72", "cortex-a72"},
        {"m.onnx -o m.c --cpu=opencl4", "opencl4"},
        {"m.onnx -o m.c --target=opencl --cpu=adreno630 --threads=2",
         "--threads is for processors"},
        {"m.onnx -o m.c --cpu=pocl", "is a device"},
        {"m.onnx -o m.c --target=opencl --cpu=sm_80",
         "is a device of --target=cuda; --target=opencl has generic-gpu pocl intel-xe adreno630"},
        {"m.onnx -o m.c --target=cuda --cpu=pocl", "--target=cuda has sm_80 sm_86 sm_87 sm_89"},
        {"m.onnx -o m.c --target=cuda --cpu=sm_80,pocl",
         "a list is of architectures of CUDA or AMD, and pocl is none"},
        {"m.onnx -o m.c --target=amd --cpu=gfx1100,sm_80",
         "gfx1100 is of --target=amd, and sm_80 of --target=cuda"},
        {"m.onnx -o m.c --target=amd --cpu=gfx1100,gfx1", "gfx1 is not known"},
        {"m.onnx -o m.c --target=amd --cpu=sm_80",
         "is a device of --target=cuda; --target=amd has gfx1100 gfx1201 gfx90a gfx942"},
        {"m.onnx -o m.hip --target=cuda", "'.hip' is written by --target=amd"},
        {"m.onnx -o m.c --target=cuda --cpu=sm_80,sm_1", "sm_1 is not known"},
        {"m.onnx -o m.c --target=cuda --cpu=sm_90",
         "sm_120: a card of sm_90 runs what --cpu=sm_90a compiles"},
        {"m.onnx -o m.c --target=cuda --cpu=sm_100",
         "a card of sm_100 runs what --cpu=sm_90a compiles"},
        {"m.onnx -o m.c --target=cuda --cpu=sm_80,sm_121",
         "a card of sm_121 runs what --cpu=sm_120 compiles"},
        {"m.onnx -o m.c --target=cuda --cpu=sm_75", "older cards run --target=opencl"},
        {"m.onnx -o m.c --target=cuda --cpu=sm_80,", "names stand between commas"},
        {"m.onnx -o m.c --target=cuda --cpu=sm_80,,sm_89", "names stand between commas"},
        {"m.onnx -o m.c --target=amd --cpu=gfx1101",
         "a code object runs on its own architecture alone"},
        {"m.onnx -o m.ptx --target=cuda --cpu=sm_80,sm_89", "several"},
        {"m.onnx -o m.metal", "'.metal' is written by --target=metal"},
        {"m.onnx -o m.c --target=metal --cpu=sm_80",
         "is a device of --target=cuda; --target=metal has m1 m1-pro m1-max"},
        {"m.onnx -o m.cu --target=opencl", "'.cu' is written by --target=cuda"},
        {"m.onnx -o m.c --target=opencl --cpu=zen9", "generic-gpu pocl intel-xe adreno630"},
        {"m.onnx -o m.c --target=opencl --cpu=avx2",
         "known are generic-gpu pocl intel-xe adreno630"},
        {"m.onnx -o m.c --machine=zen9", "'zen9' is not known; known are host common small"},
        {"m.onnx -o m.c --name=1x", "not a C identifier"},
        {"m.onnx -o m.c --name=double", "identifier"},
        {"m.onnx -o m.c --max-memory=12Q", "--max-memory"},
        {"info m.onnx -o x.c", "does not take -o"},
        {"m.onnx -o m.c --json", "does not take --json"},
        {"verify m.onnx", "--data"},
        {"verify m.onnx --data d --rtol=-1", "--rtol"},
        {"verify m.onnx --data d --rtol=nan", "--rtol"},
        {"run -", "-x onnx"},
        {"run m.onnx -i x", "-i"},
        {"ops Conv m.onnx", "takes one name"},
        {"ops --max-memory=3G", "does not take --max-memory"},
        {"tune m.onnx", "needs -o FILE"},
        {"tune m.onnx -o -", "needs -o FILE"},
        {"tune m.onnx -o m.tune -O0", "-O0 makes none"},
        {"m.onnx -o m.c --tune=", "--tune has an empty name"},
        {"m.onnx -o m.c --weight-type=f16", "'f16'; f32|bf16|int8 is expected"},
        {"m.onnx -o m.c @/nonexistent/options", "/nonexistent/options"},
        {"m.onnx -x onnx -o - -MD", "-MF FILE"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        expect_refused(row[i].line, row[i].what);
}

static void test_all_faults_at_once(void **state)
{
    (void)state;
    struct parsed p = parse("m.onnx -o m.docx --frob -O9 --dim x");
    assert_false(p.ok);
    assert_true(p.t->nerror >= 4);
    tgc_free(p.t);
}

static void test_environment(void **state)
{
    (void)state;
    struct parsed p = parse_with("m.onnx -o m.c", cuda_noopt);
    assert_true(p.ok);
    assert_int_equal(p.o.target, TARGET_CUDA);
    assert_int_equal(p.o.level, 0);
    assert_int_equal(p.o.debug, 2);
    tgc_free(p.t);
    p = parse_with("m.onnx -o m.c --target=c -O3", cuda_noopt); /* options win */
    assert_true(p.ok);
    assert_int_equal(p.o.level, 3);
    tgc_free(p.t);
}

static void test_option_file(void **state)
{
    (void)state;
    char path[] = "test_options_XXXXXX", line[128];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    static const char text[] = "# a comment\n-o 'net one.c'\n--name \"other\" --shape x\\=1=2x2\n";
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    snprintf(line, sizeof line, "m.onnx @%s", path);
    struct parsed p = parse(line);
    assert_true(p.ok);
    assert_string_equal(p.o.output, "net one.c");
    assert_string_equal(p.o.name, "other");
    assert_string_equal(p.o.shape[0].input, "x=1");
    tgc_free(p.t);
    assert_int_equal(write(fd, " 'open", 6), 6);
    expect_refused(line, "not closed");
    assert_int_equal(ftruncate(fd, 0), 0);
    snprintf(line, sizeof line, "@%s", path);
    assert_int_equal(pwrite(fd, line, strlen(line), 0), strlen(line));
    expect_refused(line, "deep"); /* it names itself */
    close(fd);
    unlink(path);
}

static void test_help_is_whole(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    struct text help = {.t = t}, man = {.t = t}, bash = {.t = t}, fish = {.t = t},
                version = {.t = t};
    help_write(&help, COMMAND_COUNT);
    man_write(&man);
    completion_write(&bash, "bash");
    completion_write(&fish, "fish");
    version_write(&version);
    for (int i = 0; i < OPTION_COUNT; i++) {
        assert_non_null(strstr(help.s, option_spelling((enum option_id)i)));
        assert_non_null(strstr(bash.s, option_spelling((enum option_id)i)));
    }
    for (int i = 0; i < COMMAND_COUNT; i++) {
        assert_non_null(strstr(man.s, command_name((enum command)i)));
        assert_non_null(strstr(fish.s, command_name((enum command)i)));
    }
    for (const char *line = help.s, *end; (end = strchr(line, '\n')); line = end + 1)
        assert_true(end - line <= 100);
    tgc_free(t);
}

/* Every option has a meaning: none falls through to the bug at the end of apply(). */
static void test_every_option_is_read(void **state)
{
    (void)state;
    for (int i = 0; i < OPTION_COUNT; i++) {
        char line[128];
        snprintf(line, sizeof line, "m.onnx %s 1", option_spelling((enum option_id)i));
        struct parsed p = parse(line);
        assert_false(p.t->bug);
        tgc_free(p.t);
    }
}

static void test_escaping(void **state)
{
    (void)state;
    static const struct { const char *in, *out; } row[] = {
        {"plain", "plain"},
        {"gr\xc3\xb6\xc3\x9f" "e", "gr\xc3\xb6\xc3\x9f" "e"},
        {"a\x1b[31mb\n", "a\\x1b[31mb\\x0a"},
        {"\xff\xfe", "\\xff\\xfe"},
        {"\xe2\x80\xae" "x", "\\xe2\\x80\\xaex"},     /* right-to-left override */
        {"\xc0\xaf", "\\xc0\\xaf"},                     /* overlong */
        {"\xe2\x80", "\\xe2\\x80"},                     /* cut off */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char got[64] = {0};
        FILE *f = fmemopen(got, sizeof got, "w");
        assert_non_null(f);
        print_escaped(f, row[i].in);
        fclose(f);
        assert_string_equal(got, row[i].out);
    }
}

/* The processor's sets are what Linux says of it; the best of them is one. */
static void test_named_processor(void **state)
{
    (void)state;
    struct parsed p = parse("m.onnx -o m.o --target=llvm --cpu=icelake-server");
    assert_true(p.ok && p.o.isa == options_with_base(ISA_AVX512VNNI));
    assert_string_equal(p.o.processor->name, "icelake-server");
    assert_string_equal(p.o.machine->text, "icelake-sp");
    tgc_free(p.t);
    p = parse("m.onnx -o m.o --machine=common --cpu=icelake-server");
    assert_true(p.ok);
    assert_string_equal(p.o.machine->text, "common");
    tgc_free(p.t);
    p = parse("m.onnx -o m.c --cpu=cortex-m4");
    assert_string_equal(p.o.machine->text, "cortex-m4");
    tgc_free(p.t);
    p = parse("m.onnx -o m.c --cpu=generic");
    assert_string_equal(p.o.machine->text, "small");
    tgc_free(p.t);
    p = parse("m.onnx -o m.c --cpu=generic --machine=common");
    assert_string_equal(p.o.machine->text, "common");
    tgc_free(p.t);
    p = parse("m.onnx -o m.c -Os");
    assert_true(p.o.small && p.o.level == 2 && !p.o.machine);
    tgc_free(p.t);
    p = parse("m.onnx -o m.c -Os -O3");
    assert_true(!p.o.small && p.o.level == 3);
    tgc_free(p.t);
    p = parse("m.onnx -o m.c --cpu=icelake-server --cpu=cortex-a72");
    assert_true(p.ok && p.o.isa == options_with_base(ISA_NEON) && !p.o.machine);
    tgc_free(p.t);
    p = parse("m.onnx -o m.c --cpu=cortex-a72 --cpu=avx2");
    assert_true(p.ok && p.o.isa == options_with_base(ISA_AVX2) && !p.o.processor);
    tgc_free(p.t);
    int n;
    const struct processor *row = processor_rows(&n);
    for (int i = 0; i < n; i++)
        assert_true(!*row[i].machine || machine_find(row[i].machine));
    assert_true(processor_runs(processor_find("cortex-m4"), "thumbv7m-none-unknown-eabi"));
    assert_false(processor_runs(processor_find("cortex-m3"), "thumbv7em-none-unknown-eabi"));
}

static void test_processor(void **state)
{
    (void)state;
    static const struct { const char *flag; enum isa isa; } row[] = {
        {" avx2 ", ISA_AVX2}, {" avx512bw ", ISA_AVX512}, {" avx512_vnni ", ISA_AVX512VNNI},
        {" avx512_bf16 ", ISA_AVX512BF16},        {" amx_int8 ", ISA_AMX},
    };
    isa_set host = options_host_isa(), native = options_native_isa();
    char line[1 << 14];
    FILE *f = fopen("/proc/cpuinfo", "re");
    assert_true(host & 1 && native && (native & ~host) == 0);
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "flags", 5) != 0)
            continue;
        line[strcspn(line, "\n")] = ' ';
        for (size_t i = 0; i < sizeof row / sizeof *row; i++)
            assert_int_equal(host >> row[i].isa & 1, strstr(line, row[i].flag) != NULL);
        break;
    }
    if (f)
        fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compile),       cmocka_unit_test(test_commands),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_all_faults_at_once),
        cmocka_unit_test(test_environment),   cmocka_unit_test(test_option_file),
        cmocka_unit_test(test_help_is_whole), cmocka_unit_test(test_every_option_is_read),
        cmocka_unit_test(test_escaping),      cmocka_unit_test(test_processor),
        cmocka_unit_test(test_named_processor),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
