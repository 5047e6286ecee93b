/* api.c - tgc.h used as its comments say, from C99.   api CASE ARGUMENT... */
#include "check.h"

#include <dirent.h>
#include <pthread.h>

/* files KIND MODEL FOLDER [NAME=VALUE]...: writes what tgc_compile_memory() makes into FOLDER. */
static void set_words(tgc_compiler *c, int n, char **word)
{
    for (int i = 0; i < n; i++) {
        char *equals = strchr(word[i], '=');
        if (equals)
            *equals = 0;
        EXPECT(c, tgc_set(c, word[i], equals ? equals + 1 : NULL), TGC_OK);
    }
}

static void case_files(int n, char **word)
{
    tgc_compiler *c = compiler_for(word[1]);
    tgc_files *files;
    set_words(c, n - 3, word + 3);
    EXPECT(c, tgc_compile_memory(c, word[0], &files), TGC_OK);
    tgc_compiler_free(c);
    CHECK(tgc_files_count(files) >= 1 && !tgc_files_get(files, tgc_files_count(files)).bytes);
    for (size_t i = 0; i < tgc_files_count(files); i++) {
        tgc_file f = tgc_files_get(files, i);
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", word[2], f.name);
        FILE *to = fopen(path, "wb");
        CHECK(to && fwrite(f.bytes, 1, f.nbytes, to) == f.nbytes && fclose(to) == 0);
    }
    tgc_files_free(files);
}

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    CHECK(f && fseek(f, 0, SEEK_END) == 0);
    *n = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*n + 1);
    CHECK(bytes && fread(bytes, 1, *n, f) == *n && fclose(f) == 0);
    return bytes;
}

/* What NAME_info begins with, and where the bytes of an arena stand in it: NAME.h has all of it. */
struct info_head {
    int version;
    const char *name, *producer, *target;
    int input_count, output_count, symbol_count, kernel_count;
    const void *inputs, *outputs, *symbols, *kernels;
    size_t arena_bytes, arena_align;
};

/* A model is open in two arenas of the caller's. */
static void run_twice_at_once(const tgc_model *m)
{
    tgc_functions f;
    void *self[2], *arena[2];
    CHECK(tgc_model_functions(m, &f) == TGC_OK && f.run && f.close && *f.strerror(1));
    const struct info_head *info = f.info;
    CHECK(info->version >= 2 && info->input_count == 1 && info->arena_align <= 4096);
    for (int i = 0; i < 2; i++) {
        CHECK(posix_memalign(&arena[i], 4096, info->arena_bytes) == 0);
        CHECK(tgc_model_init(m, &self[i], arena[i], info->arena_bytes, NULL) == 0 && self[i]);
    }
    CHECK(tgc_model_init(m, &self[0], arena[0], 1, NULL) != 0);
    CHECK(f.run(self[1], NULL, NULL) != 0);
    for (int i = 0; i < 2; i++) {
        f.close(self[i]);
        free(arena[i]);
    }
}

/* run MODEL INPUT SIZE OUT [NAME=VALUE]...: of a model with one input, in memory, whose first axis
 * has SIZE elements in this run. */
static void case_run(int n, char **word)
{
    size_t nmodel, nx, nbytes = 1;
    char *model = read_file(word[0], &nmodel), *x = read_file(word[1], &nx);
    const char *dot = strrchr(word[0], '.');
    tgc_compiler *c = tgc_compiler_new();
    tgc_model *m;
    int64_t shape[16];
    EXPECT(c, tgc_source_memory(c, strcmp(dot, ".tg") ? "onnx" : "tg", model, nmodel), TGC_OK);
    set_words(c, n - 4, word + 4);
    EXPECT(c, tgc_open(c, &m), TGC_OK);
    tgc_compiler_free(c);
    free(model);
    const tgc_tensor *in = tgc_input(m, 0), *out = tgc_output(m, 0);
    CHECK(tgc_input_count(m) == 1 && !tgc_input(m, 1) && in->rank >= 1 && in->rank <= 16);
    CHECK(tgc_run(m) == TGC_FAILED && strstr(tgc_model_message(m), "has not been set"));
    memcpy(shape, in->shape, (size_t)in->rank * sizeof *shape);
    shape[0] = in->shape[0] + 1;
    CHECK(tgc_set_input(m, 0, x, shape) == TGC_MISUSE && strstr(tgc_model_message(m), in->name));
    run_twice_at_once(m);
    for (int again = 0; again < 2; again++) {
        shape[0] = atoi(word[2]);
        CHECK(tgc_set_input(m, 0, x, shape) == TGC_OK);
        CHECK(tgc_run(m) == TGC_OK);
    }
    for (int i = 0; i < out->rank; i++)
        nbytes *= (size_t)out->shape[i];
    FILE *to = fopen(word[3], "wb");
    nbytes *= out->element_bytes;
    CHECK(to && fwrite(tgc_output_data(m, 0), 1, nbytes, to) == nbytes && fclose(to) == 0);
    printf("%s\n", tgc_model_maker(m));
    tgc_model_free(m);
    free(x);
}

/* state MODEL: an accumulator; the state goes on, and is what it was at first after a reset. */
static void case_state(int n, char **word)
{
    tgc_compiler *c = compiler_for(word[0]);
    tgc_model *m;
    float one = 1;
    set_words(c, n - 1, word + 1);
    EXPECT(c, tgc_set(c, "state", "sum=before"), TGC_OK);
    EXPECT(c, tgc_open(c, &m), TGC_OK);
    tgc_compiler_free(c);
    CHECK(tgc_input_count(m) == 1 && tgc_set_input(m, 0, &one, NULL) == TGC_OK);
    for (int k = 1; k <= 3; k++)
        CHECK(tgc_run(m) == TGC_OK && *(const float *)tgc_output_data(m, 0) == 2 * (float)k);
    CHECK(tgc_reset(m) == TGC_OK && tgc_run(m) == TGC_OK);
    CHECK(*(const float *)tgc_output_data(m, 0) == 2);
    tgc_model_free(m);
}

/* entries MODEL: add(x) -> sum, and look() -> twice, over one sum. */
static void case_entries(int n, char **word)
{
    tgc_compiler *c = compiler_for(word[0]);
    tgc_model *m;
    float one = 1;
    set_words(c, n - 1, word + 1);
    EXPECT(c, tgc_open(c, &m), TGC_OK);
    CHECK(tgc_entry_count(m) == 2 && tgc_input_count(m) == 1 && tgc_output_count(m) == 2);
    tgc_entry add = tgc_entry_get(m, 0), look = tgc_entry_get(m, 1);
    CHECK(!strcmp(add.name, "add") && add.input == 0 && add.input_count == 1 &&
          add.output_count == 1);
    CHECK(!strcmp(look.name, "look") && look.input_count == 0 && look.output == 1 &&
          !tgc_entry_get(m, 2).name);
    /* needs no input */
    CHECK(tgc_run_entry(m, 1) == TGC_OK && *(const float *)tgc_output_data(m, 1) == 0);
    CHECK(tgc_run_entry(m, 0) == TGC_FAILED &&
          strstr(tgc_model_message(m), "'x' has not been set"));
    CHECK(tgc_run(m) == TGC_MISUSE && strstr(tgc_model_message(m), "tgc_run_entry"));
    CHECK(tgc_run_entry(m, 2) == TGC_MISUSE && tgc_run_entry(NULL, 0) == TGC_MISUSE &&
          tgc_entry_count(NULL) == 0);
    CHECK(tgc_set_input(m, 0, &one, NULL) == TGC_OK);
    for (int k = 1; k <= 3; k++)
        CHECK(tgc_run_entry(m, 0) == TGC_OK && *(const float *)tgc_output_data(m, 0) == (float)k);
    CHECK(tgc_run_entry(m, 1) == TGC_OK && *(const float *)tgc_output_data(m, 1) == 6);
    tgc_model_free(m);
    EXPECT(c, tgc_set(c, "entry", "look"), TGC_OK);
    EXPECT(c, tgc_open(c, &m), TGC_OK);
    CHECK(tgc_run(m) == TGC_OK && *(const float *)tgc_output_data(m, 1) == 0);
    tgc_model_free(m);
    EXPECT(c, tgc_set(c, "entry", "lok"), TGC_OK);
    EXPECT(c, tgc_open(c, &m), TGC_FAILED);
    CHECK(says(c, "no entry 'lok'"));
    tgc_compiler_free(c);
}

/* errors BAD_ONNX BAD_TG GOOD */
static void case_errors(int n, char **word)
{
    tgc_compiler *c = tgc_compiler_new();
    tgc_files *files = (tgc_files *)1;
    tgc_model *m = (tgc_model *)1;
    const char *json = "";
    (void)n;
    EXPECT(c, tgc_compile_memory(c, "c", &files), TGC_MISUSE);
    CHECK(!files && says(c, "tgc_source_file()"));
    EXPECT(c, tgc_set(c, "cpu", "avx9"), TGC_MISUSE);
    CHECK(says(c, "avx9"));
    EXPECT(c, tgc_set(c, "thraeds", "2"), TGC_MISUSE);
    CHECK(says(c, "is 'threads' meant?"));
    EXPECT(c, tgc_set(c, "fast-math", "1"), TGC_MISUSE);
    EXPECT(c, tgc_set(c, "threads", NULL), TGC_MISUSE);
    EXPECT(c, tgc_set(c, "help", NULL), TGC_MISUSE);
    EXPECT(c, tgc_set(c, "o", "x.c"), TGC_MISUSE);
    const char *good[] = {"--cpu", "native", "--fast-math", "--dim=batch=8"}, *wrong[][2] = {
        {"--fast-math", "--cpu=avx9"}, {"--fast-math", "x.onnx"}, {"-o", "x.c"}, {"-O9", "-g"}};
    EXPECT(c, tgc_set_words(c, good, 4), TGC_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        EXPECT(c, tgc_set_words(c, wrong[i], 2), TGC_MISUSE);
    tgc_set_defaults(c);
    EXPECT(c, tgc_source_file(c, "/no/such/model.onnx"), TGC_OK);
    CHECK(tgc_message_count(c) == 0);
    EXPECT(c, tgc_open(c, &m), TGC_FAILED);
    CHECK(!m && strcmp(tgc_message_get(c, 0)->file, "/no/such/model.onnx") == 0);
    EXPECT(c, tgc_source_file(c, word[0]), TGC_OK);
    EXPECT(c, tgc_info_json(c, &json), TGC_FAILED);
    CHECK(!json && tgc_message_count(c) == 1);
    CHECK(tgc_message_get(c, 0)->severity == TGC_ERROR &&
          strstr(tgc_message_get(c, 0)->place, "node"));
    EXPECT(c, tgc_source_file(c, word[1]), TGC_OK);
    EXPECT(c, tgc_open(c, &m), TGC_FAILED);
    CHECK(tgc_message_get(c, 0)->line == 3 && tgc_message_get(c, 0)->column > 1);
    EXPECT(c, tgc_source_file(c, word[2]), TGC_OK);
    EXPECT(c, tgc_compile_file(c, "no/such/folder/x.c"), TGC_FAILED);
    EXPECT(c, tgc_compile_file(c, "x.nothing"), TGC_MISUSE);
    EXPECT(c, tgc_set(c, "max-memory", "100K"), TGC_OK);
    EXPECT(c, tgc_open(c, &m), TGC_NO_MEMORY);
    CHECK(says(c, "--max-memory"));
    tgc_set_defaults(c);
    EXPECT(c, tgc_info_json(c, &json), TGC_OK);
    CHECK(json && json[0] == '{' && tgc_message_count(c) == 0);
    tgc_compiler_free(c);
}

/* Every function, with nothing. */
static void case_nothing(int n, char **word)
{
    tgc_files *files;
    tgc_model *m;
    const char *json;
    (void)n, (void)word;
    CHECK(strcmp(tgc_version(), TGC_VERSION) == 0);
    for (int status = -1; status <= TGC_DEFECT + 1; status++)
        CHECK(*tgc_status_text((tgc_status)status));
    CHECK(tgc_set(NULL, "cpu", "native") == TGC_MISUSE &&
          tgc_set_words(NULL, NULL, 0) == TGC_MISUSE);
    tgc_set_defaults(NULL);
    tgc_on_progress(NULL, NULL, NULL);
    tgc_on_cancel(NULL, NULL, NULL);
    CHECK(tgc_source_file(NULL, "x") == TGC_MISUSE);
    CHECK(tgc_source_memory(NULL, "tg", "", 0) == TGC_MISUSE);
    CHECK(tgc_message_count(NULL) == 0 && !tgc_message_get(NULL, 0));
    CHECK(tgc_compile_file(NULL, "x.c") == TGC_MISUSE);
    CHECK(tgc_compile_memory(NULL, "c", &files) == TGC_MISUSE);
    CHECK(tgc_files_count(NULL) == 0 && !tgc_files_get(NULL, 0).name);
    CHECK(tgc_info_json(NULL, &json) == TGC_MISUSE && tgc_open(NULL, &m) == TGC_MISUSE);
    CHECK(!tgc_model_maker(NULL) && !tgc_model_message(NULL));
    CHECK(tgc_input_count(NULL) == 0 && !tgc_input(NULL, 0) && tgc_output_count(NULL) == 0);
    CHECK(!tgc_output(NULL, 0) && !tgc_output_data(NULL, 0));
    CHECK(tgc_set_input(NULL, 0, "", NULL) == TGC_MISUSE);
    CHECK(tgc_run(NULL) == TGC_MISUSE && tgc_reset(NULL) == TGC_MISUSE);
    CHECK(tgc_model_functions(NULL, NULL) == TGC_MISUSE &&
          tgc_model_init(NULL, NULL, NULL, 0, NULL) != 0);
    tgc_files_free(NULL);
    tgc_model_free(NULL);
    tgc_compiler_free(NULL);
    tgc_compiler *c = tgc_compiler_new();
    CHECK(c && tgc_set(c, NULL, "x") == TGC_MISUSE && tgc_source_file(c, NULL) == TGC_MISUSE);
    CHECK(tgc_source_memory(c, "pb", "", 0) == TGC_MISUSE && tgc_open(c, NULL) == TGC_MISUSE);
    CHECK(tgc_compile_memory(c, NULL, &files) == TGC_MISUSE &&
          tgc_info_json(c, NULL) == TGC_MISUSE);
    tgc_compiler_free(c);
}

/* ----------------------------------------------------------------------------- cancel, progress */

struct patience { long asked, limit; int progress, open; };

static int is_cancelled(void *user)
{
    struct patience *p = user;
    return ++p->asked > p->limit;
}

static void on_progress(void *user, const char *what)
{
    struct patience *p = user;
    p->progress++;
    p->open = *what != 0;
}

/* cancel MODEL FOLDER: at each time that it is asked; FOLDER stays empty until it is not. */
static void case_cancel(int n, char **word)
{
    tgc_compiler *c = compiler_for(word[0]);
    struct patience p = {0};
    char path[4096];
    (void)n;
    snprintf(path, sizeof path, "%s/net.c", word[1]);
    tgc_on_cancel(c, is_cancelled, &p);
    tgc_on_progress(c, on_progress, &p);
    tgc_status status = TGC_CANCELLED;
    for (; status == TGC_CANCELLED; p.limit++) {
        p.asked = 0;
        status = tgc_compile_file(c, path);
        FILE *f = fopen(path, "r");
        CHECK(status == TGC_OK || !f);
        if (f)
            fclose(f);
        CHECK(tgc_message_count(c) == 0);
    }
    EXPECT(c, status, TGC_OK);
    CHECK(p.limit > 10 && p.progress >= 2 && !p.open);
    tgc_compiler_free(c);
}

/* -------------------------------------------------------------------------------------- threads */

struct job { const char *model; char *c; size_t n; float y; };

static void *do_job(void *user)
{
    struct job *job = user;
    for (int k = 0; k < 4; k++) {
        tgc_compiler *c = compiler_for(job->model);
        tgc_files *files;
        tgc_model *m;
        EXPECT(c, tgc_compile_memory(c, "c", &files), TGC_OK);
        tgc_file f = tgc_files_get(files, 0);
        CHECK(!job->c || (job->n == f.nbytes && memcmp(job->c, f.bytes, f.nbytes) == 0));
        free(job->c);
        job->c = malloc(job->n = f.nbytes);
        memcpy(job->c, f.bytes, f.nbytes);
        tgc_files_free(files);
        tgc_status status = tgc_open(c, &m);
        if (status == TGC_OK) {
            for (size_t i = 0; i < tgc_input_count(m); i++) {
                const tgc_tensor *v = tgc_input(m, i);
                size_t nbytes = v->element_bytes;
                for (int a = 0; a < v->rank; a++)
                    nbytes *= (size_t)v->shape[a];
                void *zero = calloc(1, nbytes);
                CHECK(tgc_set_input(m, i, zero, NULL) == TGC_OK);
                free(zero);
            }
            CHECK(tgc_run(m) == TGC_OK);
            job->y = *(const float *)tgc_output_data(m, 0);
            tgc_model_free(m);
        } else {
            CHECK(says(c, "libLLVM is not installed") || says(c, "without the LLVM target"));
        }
        tgc_compiler_free(c);
    }
    return NULL;
}

/* threads MODEL: two at once make what one makes. */
static void case_threads(int n, char **word)
{
    struct job job[2] = {{.model = word[0]}, {.model = word[0]}}, alone = {.model = word[0]};
    pthread_t thread[2];
    (void)n;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&thread[i], NULL, do_job, &job[i]) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    do_job(&alone);
    for (int i = 0; i < 2; i++) {
        CHECK(job[i].n == alone.n && memcmp(job[i].c, alone.c, alone.n) == 0);
        CHECK(job[i].y == alone.y);
        free(job[i].c);
    }
    free(alone.c);
}

/* --------------------------------------------------------------------------------- nothing left */

static int count_descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    CHECK(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Lines of /proc/self/maps; anonymous memory is the allocator's own business. */
static int count_maps(void)
{
    int n = 0;
    char line[4096];
    FILE *f = fopen("/proc/self/maps", "r");
    CHECK(f);
    while (fgets(line, sizeof line, f))
        n += strchr(line, '/') != NULL;
    fclose(f);
    return n;
}

static void use_all(const char *model, const char *bad, const char *path)
{
    tgc_compiler *c = compiler_for(model);
    tgc_files *files;
    tgc_model *m;
    const char *json;
    EXPECT(c, tgc_compile_file(c, path), TGC_OK);
    EXPECT(c, tgc_compile_memory(c, "so", &files), TGC_OK);
    EXPECT(c, tgc_info_json(c, &json), TGC_OK);
    EXPECT(c, tgc_set(c, "target", "c"), TGC_OK);
    EXPECT(c, tgc_open(c, &m), TGC_OK);
    tgc_model_free(m);
    tgc_set_defaults(c);
    tgc_open(c, &m);                 /* by LLVM, if it is here */
    tgc_model_free(m);
    tgc_files_free(files);
    EXPECT(c, tgc_source_file(c, bad), TGC_OK);
    EXPECT(c, tgc_compile_file(c, path), TGC_FAILED);
    EXPECT(c, tgc_source_file(c, model), TGC_OK);
    for (const char *limit[] = {"1M", "2M", "3M", "4M", "6M", NULL}, **s = limit; *s; s++) {
        EXPECT(c, tgc_set(c, "max-memory", *s), TGC_OK);
        tgc_compile_file(c, path);
        tgc_open(c, &m);
        tgc_model_free(m);
    }
    tgc_compiler_free(c);
}

/* Bytes of this process in memory that no file has. */
static long anonymous_nbytes(void)
{
    char line[256];
    long kilobytes = -1;
    FILE *f = fopen("/proc/self/status", "r");
    CHECK(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "RssAnon:", 8) == 0)
            kilobytes = atol(line + 8);
    fclose(f);
    CHECK(kilobytes >= 0);
    return kilobytes * 1024;
}

/* open MODEL [OPTION...]: opens it from its file, then from memory; prints whether LLVM compiled
 * it, the bytes that the open models take, and the first output for an input of zeros. */
static void case_open(int n, char **word)
{
    size_t nmodel;
    char *model = read_file(word[0], &nmodel);
    const char *dot = strrchr(word[0], '.');
    tgc_model *m[2];
    tgc_compiler *c = compiler_for(word[0]);
    long before = anonymous_nbytes();
    set_words(c, n - 1, word + 1);
    EXPECT(c, tgc_open(c, &m[0]), TGC_OK);
    EXPECT(c, tgc_source_memory(c, strcmp(dot, ".tg") ? "onnx" : "tg", model, nmodel), TGC_OK);
    EXPECT(c, tgc_open(c, &m[1]), TGC_OK);
    tgc_compiler_free(c);
    printf("%d %ld", had_process(), anonymous_nbytes() - before);
    for (int i = 0; i < 2; i++) {
        const tgc_tensor *in = tgc_input(m[i], 0);
        size_t nbytes = in->element_bytes;
        for (int a = 0; a < in->rank; a++)
            nbytes *= (size_t)in->shape[a];
        void *x = calloc(1, nbytes);
        CHECK(x && tgc_set_input(m[i], 0, x, NULL) == TGC_OK && tgc_run(m[i]) == TGC_OK);
        printf(" %a", *(const float *)tgc_output_data(m[i], 0));
        free(x);
    }
    printf("\n");
    tgc_model_free(m[0]);
    tgc_model_free(m[1]);
    free(model);
}

/* left MODEL BAD OUT: after everything, good and bad, files and maps are as before. */
static void case_left(int n, char **word)
{
    (void)n;
    use_all(word[0], word[1], word[2]);
    int descriptors = count_descriptors(), maps = count_maps();
    use_all(word[0], word[1], word[2]);
    CHECK(count_descriptors() == descriptors);
    CHECK(count_maps() == maps);
}

static void expect_run(tgc_model *m, int64_t n, const float *x)
{
    CHECK(tgc_run(m) == TGC_OK);
    const tgc_tensor *out = tgc_output(m, 0);
    CHECK(out->shape[0] == n && out->shape[1] == 2 * n);
    for (int64_t i = 0; i < 2 * n * n; i++)
        CHECK(((const float *)tgc_output_data(m, 0))[i] == 2 * x[i]);
}

/* sizes MODEL: x f32[n<=8, 2*n] and z f32[m<=8, n+m] -> 2x and 2z. A call that is
 * refused changes nothing. */
static void case_sizes(int n, char **word)
{
    tgc_compiler *c = compiler_for(word[0]);
    tgc_model *m;
    float x[128], zero[128] = {0};
    const int64_t right[2] = {2, 4}, other[2] = {3, 5};
    const int64_t wrong[][2] = {{8, 9}, {3, 5}, {8, 0}, {2, 5}, {9, 18}, {-1, -2}, {2, -4}};
    for (int i = 0; i < 128; i++)
        x[i] = (float)i;
    set_words(c, n - 1, word + 1);
    EXPECT(c, tgc_open(c, &m), TGC_OK);
    tgc_compiler_free(c);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)         /* before any is set */
        CHECK(tgc_set_input(m, 0, zero, wrong[i]) == TGC_MISUSE);
    CHECK(tgc_run(m) == TGC_FAILED && strstr(tgc_model_message(m), "has not been set"));
    CHECK(tgc_set_input(m, 0, x, right) == TGC_OK && tgc_set_input(m, 1, x, other) == TGC_OK);
    expect_run(m, 2, x);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(tgc_set_input(m, 0, zero, wrong[i]) == TGC_MISUSE &&
              strstr(tgc_model_message(m), "'x'"));
        CHECK(tgc_set_input(m, 7, zero, wrong[i]) == TGC_MISUSE &&
              tgc_set_input(m, 0, NULL, right) == TGC_MISUSE);
        expect_run(m, 2, x);
    }
    CHECK(tgc_set_input(m, 1, x, (const int64_t[]){3, 6}) == TGC_OK);
    CHECK(tgc_run(m) == TGC_FAILED &&
          strstr(tgc_model_message(m), "dimension 1 of the input 'z' is 6"));
    CHECK(tgc_output(m, 0)->shape[0] == 2);
    CHECK(tgc_set_input(m, 1, x, other) == TGC_OK);
    expect_run(m, 2, x);
    tgc_model_free(m);
}

int main(int argc, char **argv)
{
    static const struct { const char *name; int least; void (*f)(int n, char **word);
    } cases[] = {
        {"files", 3, case_files},     {"run", 4, case_run},         {"state", 1, case_state},
        {"entries", 1, case_entries}, {"errors", 3, case_errors},   {"nothing", 0, case_nothing},
        {"cancel", 2, case_cancel},   {"threads", 1, case_threads}, {"left", 3, case_left},
        {"sizes", 1, case_sizes},     {"open", 1, case_open}};
    for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(argv[1], cases[i].name) == 0 && argc - 2 >= cases[i].least) {
            cases[i].f(argc - 2, argv + 2);
            return 0;
        }
    fputs("api: no such case\n", stderr);
    return 2;
}
