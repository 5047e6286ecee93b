/* driver.c - the loader's functions, as words of a command line, for loader_test.py.
 *
 *      driver WORD...      most=N          sets most_nbytes
 *                          open AS PATH    AS "-" is NULL
 *                          try AS PATH     the same; prints the error and goes on
 *                          target=NAME     sets target_column
 *                          classes         prints the names of classes
 *                          train           what is open becomes `classes` of what is opened next
 *                          list            prints each array: name type dims nbytes
 *                          save NAME FILE  the elements as they are
 *                          close
 *                          cut AS PATH TEMPORARY           opens each beginning of the file
 *                          turn AS PATH TEMPORARY N SEED   opens N copies with changed bytes
 *                          inflate PATH    of each stream in the file, after its length in 4 bytes
 *                                          (little-endian): status, length and CRC-32 of its data
 *                          gather NAME TYPE FILE I,I,...
 *                          order SEED EPOCH N FILE
 *                          height=N width=N channels=N     of pictures
 *                          inside=FOLDER   `cut` and `turn` open this, where TEMPORARY is within
 *                          batch=N seed=N epoch=N step=N epochs=N in_order no_thread
 *                                          options of the streams that follow
 *                          field NAME TYPE     what they deliver
 *                          augment=LIST layout=LAYOUT to=LAYOUT    of the last field
 *                          evaluates       nothing is drawn
 *                          shape           prints what a stream delivers
 *                          stream FILE N       up to N batches: prints epoch, step, n, is_last and
 *                                          indices of each; appends the K-th field to FILE.K
 *                          starve AS PATH  opens, gathers and streams, each allocation failing in
 *                                          turn; prints how many there are
 *                          slow            batches are asked for after a while
 *
 * An error is printed to standard output, and the exit status is 1. With LOADER_TEXT the loader is
 * the text of that file, as a program carries it.
 */
#ifdef LOADER_TEXT
#define LOADER_API static inline
/* as backends/program/statuses.def has them, for the decoders */
enum {
    PROGRAM_OK,
    PROGRAM_DIM_OUT_OF_RANGE = 6,
    PROGRAM_TOO_MANY_RESULTS = 9,
    PROGRAM_NO_DECODER = 15
};
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Allocations before the one that fails; below 0: none fails. */
static long allocations_left = -1;
static bool fails(void) { return allocations_left >= 0 && allocations_left-- == 0; }
static void *driver_malloc(size_t n) { return fails() ? NULL : malloc(n); }
static void *driver_calloc(size_t n, size_t size) { return fails() ? NULL : calloc(n, size); }
static void *driver_realloc(void *old, size_t n) { return fails() ? NULL : realloc(old, n); }
#define malloc driver_malloc
#define calloc driver_calloc
#define realloc driver_realloc
#include LOADER_TEXT
#undef malloc
#undef calloc
#undef realloc
#else
static long allocations_left = -1;
#include "runtime/loader/parts.h"
#endif

#include <time.h>

enum { FIELDS = 4 };

struct driver {
    struct dataset d, train;
    char **word, **end;
    struct stream_options options;
    struct stream_field field[FIELDS];
    bool is_slow, shows_shape;
    const char *inside;
};

static _Noreturn void stop(const char *what)
{
    printf("driver: %s\n", what);
    exit(2);
}

static char *next(struct driver *v)
{
    if (v->word == v->end)
        stop("a word is missing");
    return *v->word++;
}

static void check(struct driver *v, bool ok)
{
    if (ok)
        return;
    puts(v->d.error);
    dataset_close(&v->d);
    dataset_close(&v->train);
    exit(1);
}

static const struct dataset_array *array(struct driver *v)
{
    const char *name = next(v);
    const struct dataset_array *a = dataset_find(&v->d, name);
    if (!a)
        stop(name);
    return a;
}

static void write_file(const char *path, const void *data, size_t nbytes)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, nbytes, f) != nbytes || fclose(f) != 0)
        stop(path);
}

static char *read_file(const char *path, size_t *nbytes)
{
    FILE *f = fopen(path, "rb");
    char *data = malloc(1 << 20);
    if (!f || !data)
        stop(path);
    *nbytes = fread(data, 1, 1 << 20, f);
    fclose(f);
    return data;
}

static bool open_as(struct driver *v, const char *as, const char *path)
{
    return dataset_open(&v->d, path, strcmp(as, "-") == 0 ? NULL : as);
}

static void list(const struct dataset *d)
{
    for (int i = 0; i < d->narray; i++) {
        const struct dataset_array *a = &d->array[i];
        printf("%s %s ", a->name, loader_type_name(a->type));
        for (int k = 0; k < a->rank; k++)
            printf("%s%lld", k ? "," : "", (long long)a->dim[k]);
        printf(" %zu\n", a->nbytes);
    }
}

/* Reads what was opened, so that sanitizers see it, and closes. Errors must say something, and
 * leave nothing. Returns whether all rows could be read. */
static bool consume(struct driver *v, bool opened)
{
    unsigned sum = 0;
    bool ok = opened;
    for (int i = 0; i < v->d.narray; i++) {
        const struct dataset_array *a = &v->d.array[i];
        for (size_t k = 0; a->data && k < a->nbytes; k++)
            sum += ((const unsigned char *)a->data)[k];
        void *out = a->pictures ? malloc(a->nbytes) : NULL;
        for (int64_t k = 0; out && k < a->dim[0]; k++)
            ok = ok && dataset_gather(&v->d, a, &k, 1, out, a->type);
        free(out);
    }
    if (!opened && (!*v->d.error || v->d.narray || v->d.block || v->d.used_nbytes))
        stop("an error without a text, or one that left something");
    if (sum == 1)
        puts("sum 1");
    dataset_close(&v->d);
    return ok;
}

/* Prints for how many beginnings of a file it was opened, and the longest that was not. */
static void cut(struct driver *v)
{
    const char *as = next(v), *path = next(v), *temporary = next(v);
    size_t nbytes, opened = 0, longest = 0;
    char *data = read_file(path, &nbytes);
    for (size_t n = 0; n <= nbytes; n++) {
        write_file(temporary, data, n);
        bool ok = consume(v, open_as(v, as, v->inside ? v->inside : temporary));
        opened += ok;
        longest = ok ? longest : n;
    }
    free(data);
    printf("%zu %zu %zu\n", opened, longest, nbytes);
}

/* Prints of how many copies with one to three changed bytes the file was opened. */
static void turn(struct driver *v)
{
    const char *as = next(v), *path = next(v), *temporary = next(v);
    long count = atol(next(v)), opened = 0;
    unsigned long long seed = strtoull(next(v), NULL, 10);
    size_t nbytes;
    char *data = read_file(path, &nbytes);
    for (long i = 0; i < count; i++) {
        char old[3];
        size_t at[3];
        for (int k = 0; k < 3; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            at[k] = (size_t)(seed >> 33) % nbytes;
            old[k] = data[at[k]];
            if (k <= i % 3)
                data[at[k]] = (char)(seed >> 24 & 1 ? seed >> 40 : seed >> 25 & 1 ? 255 : 0);
        }
        write_file(temporary, data, nbytes);
        opened += consume(v, open_as(v, as, v->inside ? v->inside : temporary));
        for (int k = 2; k >= 0; k--)
            data[at[k]] = old[k];
    }
    free(data);
    printf("%ld\n", opened);
}

static void inflate(struct driver *v)
{
    size_t n, used;
    uint8_t *data = (uint8_t *)read_file(next(v), &n);
    for (size_t at = 0; at + 4 <= n;) {
        size_t size = (size_t)loader_uint(data + at, 4, false);
        struct loader_output out = {NULL, 0, 0, 1 << 20};
        uint8_t *copy = malloc(size ? size : 1); /* so that its end is where sanitizers see it */
        if (!copy || size > n - at - 4)
            stop("inflate");
        memcpy(copy, data + at + 4, size);
        int status = (int)loader_inflate(copy, size, &used, &out);
        printf("%d %zu %u %zu\n", status, out.n, (unsigned)loader_crc(out.data, out.n), used);
        free(out.data);
        free(copy);
        at += 4 + size;
    }
    free(data);
}

static enum loader_type read_type(struct driver *v)
{
    const char *name = next(v);
    for (int i = 0; i < LOADER_NTYPE; i++)
        if (strcmp(loader_type_name((enum loader_type)i), name) == 0)
            return (enum loader_type)i;
    stop(name);
}

static void gather(struct driver *v)
{
    const struct dataset_array *a = array(v);
    enum loader_type type = read_type(v);
    const char *path = next(v);
    char *list_of = next(v);
    int64_t index[1024], n = 0;
    for (char *word = strtok(list_of, ","); word && n < 1024; word = strtok(NULL, ","))
        index[n++] = atoll(word);
    size_t nbytes = (size_t)(n * a->row_nelem) * loader_type_nbytes(type);
    void *out = malloc(nbytes + 1);
    bool ok = out && dataset_gather(&v->d, a, index, n, out, type);
    if (ok)
        write_file(path, out, nbytes);
    free(out);
    check(v, ok);
}

static void order(struct driver *v)
{
    unsigned long long seed = strtoull(next(v), NULL, 10);
    int64_t epoch = atoll(next(v)), n = atoll(next(v));
    int64_t *to = malloc((size_t)n * sizeof *to);
    if (!to)
        stop("memory");
    dataset_order(seed, epoch, n, to);
    write_file(next(v), to, (size_t)n * sizeof *to);
    free(to);
}

static void put_batch(const struct stream *s, const struct stream_batch *b, int nfield,
                      const char *path)
{
    printf("%lld %lld %lld %d", (long long)b->epoch, (long long)b->step, (long long)b->n,
           b->is_last);
    for (int64_t i = 0; i < b->n; i++)
        printf(" %lld", (long long)b->index[i]);
    puts("");
    for (int k = 0; k < nfield; k++) {
        char name[512];
        size_t nbytes = (size_t)s->array[k].row_nelem * loader_type_nbytes(s->array[k].type);
        snprintf(name, sizeof name, "%s.%d", path, k);
        FILE *f = fopen(name, "ab");
        if (!f || fwrite(b->data[k], nbytes, (size_t)b->n, f) != (size_t)b->n || fclose(f) != 0)
            stop(name);
    }
}

static void stream(struct driver *v)
{
    const char *path = next(v);
    long most = atol(next(v));
    static struct stream s;
    struct stream_batch b;
    v->options.field = v->field;
    bool ok = dataset_stream_start(&s, &v->d, &v->options);
    enum stream_status status = ok ? STREAM_BATCH : STREAM_FAILED;
    for (int k = 0; ok && v->shows_shape && k < v->options.nfield; k++) {
        printf("shape");
        for (int i = 0; i < s.array[k].rank; i++)
            printf(" %lld", (long long)s.array[k].dim[i]);
        puts("");
    }
    for (long i = 0; status == STREAM_BATCH && i < most; i++) {
        const struct timespec while_ = {0, i % 3 * 2000000};
        if (v->is_slow)
            nanosleep(&while_, NULL);
        status = dataset_stream_next(&s, &b);
        if (status == STREAM_BATCH)
            put_batch(&s, &b, v->options.nfield, path);
    }
    if (status == STREAM_ENDED)
        puts("end");
    if (status == STREAM_FAILED && dataset_stream_next(&s, &b) != STREAM_FAILED)
        stop("a failed stream goes on");
    memcpy(v->d.error, s.error, sizeof s.error);
    dataset_stream_stop(&s);
    dataset_stream_stop(&s);
    check(v, status != STREAM_FAILED);
}

/* A word of a stream's options. */
static bool set_option(struct driver *v, const char *word, const char *value)
{
    struct stream_field *last = v->options.nfield ? &v->field[v->options.nfield - 1] : NULL;
    const struct {
        const char *name;
        int64_t *to;
    } number[] = {
        {"batch=", &v->options.batch},         {"epoch=", &v->options.epoch},
        {"step=", &v->options.step},           {"epochs=", &v->options.epochs},
        {"height=", &v->d.picture_height},     {"width=", &v->d.picture_width},
        {"channels=", &v->d.picture_channels},
    };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (strncmp(word, number[i].name, strlen(number[i].name)) == 0) {
            *number[i].to = atoll(value);
            return true;
        }
    if (strncmp(word, "most=", 5) == 0)
        v->d.most_nbytes = (size_t)strtoull(value, NULL, 10);
    else if (strncmp(word, "target=", 7) == 0)
        v->d.target_column = value;
    else if (strncmp(word, "inside=", 7) == 0)
        v->inside = value;
    else if (strncmp(word, "seed=", 5) == 0)
        v->options.seed = strtoull(value, NULL, 10);
    else if (last && strncmp(word, "augment=", 8) == 0)
        last->augment = value;
    else if (last && strncmp(word, "layout=", 7) == 0)
        last->layout = value;
    else if (last && strncmp(word, "to=", 3) == 0)
        last->to_layout = value;
    else if (strcmp(word, "evaluates") == 0)
        v->options.evaluates = true;
    else if (strcmp(word, "shape") == 0)
        v->shows_shape = true;
    else if (strcmp(word, "in_order") == 0)
        v->options.in_order = true;
    else if (strcmp(word, "no_thread") == 0)
        v->options.no_thread = true;
    else if (strcmp(word, "slow") == 0)
        v->is_slow = true;
    else
        return false;
    return true;
}

static void field(struct driver *v)
{
    if (v->options.nfield == FIELDS)
        stop("too many fields");
    struct stream_field *f = &v->field[v->options.nfield++];
    f->name = next(v);
    f->type = read_type(v);
}

/* Opens a file, and reads a batch of each array. Where something fails, error has the text. */
static bool use(struct driver *v, const char *as, const char *path, char **error)
{
    static struct stream s;
    struct stream_batch b;
    int64_t index = 0;
    v->options.nfield = 0;
    *error = v->d.error;
    bool ok = open_as(v, as, path);
    for (int k = 0; ok && k < v->d.narray; k++) {
        const struct dataset_array *a = &v->d.array[k];
        const struct stream_field f = {
            .name = a->name, .type = a->type, .augment = a->pictures ? "crop:1x1" : NULL};
        void *out = calloc((size_t)a->row_nelem, 8);
        ok = out && dataset_gather(&v->d, a, &index, 1, out, LOADER_F32);
        free(out);
        v->field[v->options.nfield++] = f;
    }
    if (!ok)
        return false;
    v->options.field = v->field;
    v->options.no_thread = true;
    *error = s.error;
    ok = dataset_stream_start(&s, &v->d, &v->options) && dataset_stream_next(&s, &b) > 0;
    dataset_stream_stop(&s);
    return ok;
}

static void starve(struct driver *v)
{
    const char *as = next(v), *path = next(v);
    long n = 0;
    v->options.batch = 2;
    for (bool ok = false; !ok; n++) {
        char *error;
        allocations_left = n;
        ok = use(v, as, path, &error);
        if (ok ? allocations_left < 0 : !strstr(error, "memory"))
            stop(ok ? "an allocation failed unseen" : error);
        allocations_left = -1;
        dataset_close(&v->d);
    }
    printf("%ld\n", n);
}

static void open_word(struct driver *v)
{
    const char *as = next(v);
    check(v, open_as(v, as, next(v)));
}

static void try_word(struct driver *v)
{
    const char *as = next(v);
    puts(open_as(v, as, next(v)) ? "opened" : v->d.error);
}

static void save(struct driver *v)
{
    const struct dataset_array *a = array(v);
    write_file(next(v), a->data, a->nbytes);
}

static void classes(struct driver *v)
{
    for (int64_t i = 0; i < v->d.nclass; i++)
        puts(v->d.class_name[i]);
}

static void train(struct driver *v)
{
    v->train = v->d;
    memset(&v->d, 0, sizeof v->d);
    v->d.target_column = v->train.target_column;
    v->d.classes = &v->train;
}

static void list_word(struct driver *v) { list(&v->d); }
static void close_word(struct driver *v) { dataset_close(&v->d); }

int main(int argc, char **argv)
{
    static const struct {
        const char *word;
        void (*run)(struct driver *v);
    } table[] = {
        {"open", open_word},   {"try", try_word},    {"list", list_word}, {"save", save},
        {"close", close_word}, {"cut", cut},         {"turn", turn},      {"inflate", inflate},
        {"gather", gather},    {"order", order},     {"field", field},    {"stream", stream},
        {"starve", starve},    {"classes", classes}, {"train", train},
    };
    static struct driver v;
    v.word = argv + 1;
    v.end = argv + argc;
    while (v.word < v.end) {
        const char *word = next(&v), *value = word + strcspn(word, "=");
        size_t i = 0;
        if (set_option(&v, word, value + (*value == '=')))
            continue;
        while (i < sizeof table / sizeof *table && strcmp(table[i].word, word) != 0)
            i++;
        if (i == sizeof table / sizeof *table)
            stop(word);
        table[i].run(&v);
    }
    dataset_close(&v.d);
    dataset_close(&v.train);
    return 0;
}
