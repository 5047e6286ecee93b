/* driver.c - the loader's functions, as words of a command line, for loader_test.py.
 *
 *      driver WORD...      most=N          sets most_nbytes
 *                          open AS PATH    AS "-" is NULL
 *                          try AS PATH     the same; prints the error and goes on
 *                          list            prints each array: name type dims nbytes
 *                          save NAME FILE  the elements as they are
 *                          close
 *                          cut AS PATH TEMPORARY           opens each beginning of the file
 *                          turn AS PATH TEMPORARY N SEED   opens N copies with changed bytes
 *                          inflate PATH    of each stream in the file, after its length in 4 bytes
 *                                          (little-endian): status, length and CRC-32 of its data
 *
 * An error is printed to standard output, and the exit status is 1. With LOADER_TEXT the loader is
 * the text of that file, as a program carries it.
 */
#ifdef LOADER_TEXT
#define LOADER_API static
#include LOADER_TEXT
#else
#include "runtime/loader/parts.h"
#endif

struct driver {
    struct dataset d;
    char **word, **end;
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
 * leave nothing. */
static void consume(struct driver *v, bool opened)
{
    unsigned sum = 0;
    for (int i = 0; i < v->d.narray; i++)
        for (size_t k = 0; v->d.array[i].data && k < v->d.array[i].nbytes; k++)
            sum += ((const unsigned char *)v->d.array[i].data)[k];
    if (!opened && (!*v->d.error || v->d.narray || v->d.block || v->d.used_nbytes))
        stop("an error without a text, or one that left something");
    if (sum == 1)
        puts("sum 1");
    dataset_close(&v->d);
}

/* Prints for how many beginnings of a file it was opened, and the longest that was not. */
static void cut(struct driver *v)
{
    const char *as = next(v), *path = next(v), *temporary = next(v);
    size_t nbytes, opened = 0, longest = 0;
    char *data = read_file(path, &nbytes);
    for (size_t n = 0; n <= nbytes; n++) {
        write_file(temporary, data, n);
        bool ok = open_as(v, as, temporary);
        opened += ok;
        longest = ok ? longest : n;
        consume(v, ok);
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
        bool ok = open_as(v, as, temporary);
        opened += ok;
        consume(v, ok);
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

int main(int argc, char **argv)
{
    static struct driver v;
    v.word = argv + 1;
    v.end = argv + argc;
    while (v.word < v.end) {
        const char *word = next(&v), *value = word + strcspn(word, "=");
        value += *value == '=';
        if (strncmp(word, "most=", 5) == 0) {
            v.d.most_nbytes = (size_t)strtoull(value, NULL, 10);
        } else if (strcmp(word, "open") == 0) {
            const char *as = next(&v);
            check(&v, open_as(&v, as, next(&v)));
        } else if (strcmp(word, "try") == 0) {
            const char *as = next(&v);
            puts(open_as(&v, as, next(&v)) ? "opened" : v.d.error);
        } else if (strcmp(word, "list") == 0) {
            list(&v.d);
        } else if (strcmp(word, "save") == 0) {
            const struct dataset_array *a = array(&v);
            write_file(next(&v), a->data, a->nbytes);
        } else if (strcmp(word, "close") == 0) {
            dataset_close(&v.d);
        } else if (strcmp(word, "cut") == 0) {
            cut(&v);
        } else if (strcmp(word, "turn") == 0) {
            turn(&v);
        } else if (strcmp(word, "inflate") == 0) {
            inflate(&v);
        } else {
            stop(word);
        }
    }
    dataset_close(&v.d);
    return 0;
}
