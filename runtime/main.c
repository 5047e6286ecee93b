/* SPDX-License-Identifier: 0BSD */
/* Lines between "//? word" and "//? end" are a part of programs alone that have what the word says
 * (backends/program/selftest.c); those after "//? else" of the others. */
//@ main count_wrong fill_random fit_sizes
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A program around the library: reads .npy files, runs, writes .npy files; checks itself; measures
 * itself. */

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "%s: %s\n", what, detail);
    exit(1);
}

/* All memory lives as long as the program: a list of blocks. */
struct block {
    struct block *next;
};
static struct block *blocks;

static void *get_memory(size_t nbytes)
{
    struct block *b = nbytes < SIZE_MAX - 128 ? (struct block *)malloc(nbytes + 128) : NULL;
    if (!b)
        fail(model_describe()->name, "out of memory");
    b->next = blocks;
    blocks = b;
    return (void *)(((uintptr_t)b + sizeof *b + 63) / 64 * 64);
}

static void free_memory(void)
{
    while (blocks) {
        struct block *next = blocks->next;
        free(blocks);
        blocks = next;
    }
}

#ifdef _WIN32
/* Names of files are UTF-16 in Windows and UTF-8 here. These are the declarations of <windows.h>,
 * which also defines names that a model may have. */
#ifdef __cplusplus
extern "C" {
#endif
__declspec(dllimport) wchar_t *__stdcall GetCommandLineW(void);
__declspec(dllimport) wchar_t **__stdcall CommandLineToArgvW(const wchar_t *line, int *count);
__declspec(dllimport) int __stdcall WideCharToMultiByte(unsigned page, unsigned long flags,
                                                        const wchar_t *from, int length, char *to,
                                                        int size, const char *unknown, int *used);
__declspec(dllimport) int __stdcall MultiByteToWideChar(unsigned page, unsigned long flags,
                                                        const char *from, int length, wchar_t *to,
                                                        int size);
#ifdef __cplusplus
}
#endif
#ifdef _MSC_VER
#pragma comment(lib, "shell32")
#endif
enum { PAGE_UTF8 = 65001 };

static char **get_arguments(int *count)
{
    wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), count);
    if (!wide)
        fail(model_describe()->name, "out of memory");
    char **words = (char **)get_memory(sizeof(char *) * ((size_t)*count + 1));
    for (int i = 0; i < *count; i++) {
        int n = WideCharToMultiByte(PAGE_UTF8, 0, wide[i], -1, NULL, 0, NULL, NULL);
        words[i] = (char *)get_memory((size_t)n + 1);
        words[i][0] = 0;
        WideCharToMultiByte(PAGE_UTF8, 0, wide[i], -1, words[i], n, NULL, NULL);
    }
    return words;
}

static FILE *open_file(const char *path, const char *mode)
{
    int n = MultiByteToWideChar(PAGE_UTF8, 0, path, -1, NULL, 0);
    wchar_t *wide = (wchar_t *)get_memory(sizeof(wchar_t) * ((size_t)n + 1));
    wide[0] = 0;
    MultiByteToWideChar(PAGE_UTF8, 0, path, -1, wide, n);
    return _wfopen(wide, mode[0] == 'r' ? L"rb" : L"wb");
}
#else
static FILE *open_file(const char *path, const char *mode) { return fopen(path, mode); }
#endif

static void *read_file(const char *path, size_t *nbytes)
{
    FILE *f = open_file(path, "rb");
    if (!f)
        fail(path, strerror(errno));
    size_t n = 0, size = 1 << 16;
    char *data = (char *)get_memory(size);
    for (size_t got; (got = fread(data + n, 1, size - n, f)) > 0;) {
        n += got;
        if (n == size) {
            char *grown = (char *)get_memory(size *= 2);
            memcpy(grown, data, n);
            data = grown;
        }
    }
    if (ferror(f))
        fail(path, strerror(errno));
    fclose(f);
    *nbytes = n;
    return data;
}

/* A copy with the bytes of each element in reverse order. */
static void *reversed(const void *from, size_t element_bytes, size_t nbytes)
{
    const unsigned char *s = (const unsigned char *)from;
    unsigned char *data = (unsigned char *)get_memory(nbytes);
    for (size_t i = 0; i < nbytes; i += element_bytes)
        for (size_t k = 0; k < element_bytes; k++)
            data[i + k] = s[i + element_bytes - 1 - k];
    return data;
}

/* NumPy's descr of a dtype; what NumPy has no name for travels as its bits. */
static const char *npy_descr(const char *dtype)
{
    static const char *const table[][2] = {
        {"f32", "<f4"}, {"f64", "<f8"}, {"f16", "<f2"}, {"bf16", "<u2"}, {"bool", "|b1"},
        {"i8", "|i1"},  {"i16", "<i2"}, {"i32", "<i4"}, {"i64", "<i8"},  {"u8", "|u1"},
        {"u16", "<u2"}, {"u32", "<u4"}, {"u64", "<u8"}, {"i4", "|i1"},   {"i2", "|i1"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i][0], dtype) == 0)
            return table[i][1];
    return "|u1";
}

//? bits
/* May the file hold the input's bits under another kind? As unsigned integers, or as ml_dtypes
 * writes what NumPy has no name for: V1, V2, f1. */
static int is_kind_of_bits(const char *dtype, const char *descr, const char *wanted)
{
    static const char *const unnamed[] = {"bf16", "f8", "f6", "f4", "i4", "i2", "u4", "u2"};
    if (descr[1] == 'u' && strchr("fb", wanted[1]))
        return 1;
    for (size_t i = 0; i < sizeof unnamed / sizeof *unnamed; i++)
        if (strncmp(dtype, unnamed[i], strlen(unnamed[i])) == 0)
            return descr[1] == 'V' || (descr[1] == 'f' && descr[2] == '1');
    return 0;
}

//? end
//? bits
/* ml_dtypes' int4 and int2 are bits below zeros; here they are bytes of their values. half: 8, 2 */
static void extend_sign(signed char *p, size_t n, int half)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (signed char)(((p[i] & (2 * half - 1)) ^ half) - half);
}

//? end
//? strings
/* NumPy keeps strings as rows of UCS-4, filled up with zeros; here they are UTF-8. */
static size_t put_utf8(char *to, uint32_t c)
{
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (char)(lead[more] | (unsigned char)(c >> 6 * more));
    for (int i = 1; i <= more; i++)
        to[i] = (char)(0x80 | (c >> 6 * (more - i) & 0x3f));
    return (size_t)more + 1;
}

static uint32_t get_utf8(const char **from)
{
    const unsigned char *s = (const unsigned char *)*from;
    int more = s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 1 : s[0] < 0xf0 ? 2 : 3;
    uint32_t c = more ? s[0] & (0x3fu >> more) : s[0];
    int i = 1;
    for (; i <= more && (s[i] & 0xc0) == 0x80; i++)
        c = c << 6 | (s[i] & 0x3f);
    *from += i;
    return c;
}

static const void *read_strings(const unsigned char *data, size_t count, size_t width)
{
    const char **string = (const char **)get_memory(count * sizeof *string + 1);
    char *text = (char *)get_memory(count * (4 * width + 1) + 1);
    for (size_t i = 0; i < count; i++) {
        string[i] = text;
        for (size_t k = 0; k < width; k++) {
            const unsigned char *s = data + 4 * (i * width + k);
            uint32_t c = s[0] | (uint32_t)s[1] << 8 | (uint32_t)s[2] << 16 | (uint32_t)s[3] << 24;
            if (c)
                text += put_utf8(text, c);
        }
        *text++ = 0;
    }
    return string;
}

//? end
static size_t bound_bytes(const struct model_tensor *t)
{
    size_t n = t->element_bytes;
    for (int a = 0; a < t->rank; a++)
        n *= (size_t)t->dim[a].size;
    return n;
}

//? symbols
/* Does a size of the input follow from one that only the context knows, such as a state's length?
 * Then a run may read more than another. */
static int grows(const struct model_tensor *t, const struct model_feed *feed)
{
    const struct model_info *info = model_describe();
    for (int a = 0; a < t->rank; a++)
        for (const char *s = feed->rule[a]; s && (s = strchr(s, '$')); s++)
            if (info->symbols[atoi(s + 1)].offset == (size_t)-1)
                return 1;
    return 0;
}

//? end
/* The bytes of one tensor, and its shape as the file says. */
//? symbols
static const void *read_npy(const char *path, const struct model_tensor *t,
                            const struct model_feed *feed, int64_t *shape)
//? else
static const void *read_npy(const char *path, const struct model_tensor *t, int64_t *shape)
//? end
{
    size_t n, header, at;
    const unsigned char *s = (const unsigned char *)read_file(path, &n);
    if (n < 12 || memcmp(s, "\x93NUMPY", 6) != 0)
        fail(path, "not a .npy file");
    header = s[6] == 1 ? s[8] + 256u * s[9] : s[8] + 256u * s[9] + 65536u * s[10];
    at = s[6] == 1 ? 10 : 12;
    char text[1024];
    if (header >= sizeof text || at + header > n)
        fail(path, "the .npy header is too long");
    memcpy(text, s + at, header);
    text[header] = 0;
    const char *descr = strstr(text, "'descr': '"), *dims = strstr(text, "'shape': (");
    if (!descr || !dims || strstr(text, "'fortran_order': True"))
        fail(path, "the .npy header has no descr or shape, or the array is not in C order");
    const char *wanted = npy_descr(t->dtype);
    descr += 10;
    size_t count = 1, size = t->element_bytes;
//? strings
    int is_string = strcmp(t->dtype, "string") == 0;
    size_t width = is_string ? (size_t)strtoul(descr + 2, NULL, 10) : 0;
    size = is_string ? 4 * width : size;
    if (is_string && strncmp(descr, "<U", 2) != 0)
        fail(path, "the array's dtype is not the input's, strings");
    wanted = is_string ? descr : wanted;
//? end
//? bits
    if (descr[1] != wanted[1] && !is_kind_of_bits(t->dtype, descr, wanted))
        fail(path, "the array's dtype is not the input's");
    if (strncmp(descr + 2, wanted + 2, 1) != 0)
//? else
    if (strncmp(descr + 1, wanted + 1, 2) != 0)
//? end
        fail(path, "the array's dtype is not the input's");
    dims += 10;
    for (int a = 0; a < t->rank; a++) {
        char *end;
        shape[a] = strtoll(dims, &end, 10);
        if (end == dims || shape[a] < 0 || shape[a] > t->dim[a].size ||
            (!t->dim[a].symbol && shape[a] != t->dim[a].size))
            fail(path, "the array's shape is not the input's");
        count *= (size_t)shape[a];
        dims = end + strspn(end, ", ");
    }
    if (*dims != ')')
        fail(path, "the array has more axes than the input");
    size_t nbytes = count * size, room = bound_bytes(t);
    if (nbytes / (size ? size : 1) != (size ? count : 0) || nbytes > n - at - header)
        fail(path, "the file ends before its array");
    if (nbytes < n - at - header)
        fail(path, "the file is longer than its array");
//? strings
    if (is_string)
        return read_strings(s + at + header, count, width);
//? end
    const void *elements = s + at + header;
    if (size > 1 && is_little_endian() != (descr[0] != '>'))
        elements = reversed(elements, size, nbytes);
//? symbols
    if (!grows(t, feed) || room < nbytes)
        room = nbytes;
//? else
    room = nbytes;
//? end
    char *data = (char *)get_memory(room);
    memcpy(data, elements, nbytes);
    memset(data + nbytes, 0, room - nbytes);
//? bits
    if (descr[1] == 'V' && t->dtype[0] == 'i')
        extend_sign((signed char *)data, nbytes, t->dtype[1] == '4' ? 8 : 2);
//? end
    return data;
}

//? strings
/* Strings as rows of UCS-4; *width: of the longest one. */
static const void *strings_as_npy(const char *const *string, size_t count, size_t *width)
{
    *width = 1;
    for (size_t i = 0; i < count; i++) {
        size_t n = 0;
        for (const char *s = string[i] ? string[i] : ""; *s; n++)
            get_utf8(&s);
        *width = n > *width ? n : *width;
    }
    unsigned char *data = (unsigned char *)get_memory(4 * count * *width + 1);
    memset(data, 0, 4 * count * *width);
    for (size_t i = 0; i < count; i++) {
        unsigned char *to = data + 4 * i * *width;
        for (const char *s = string[i] ? string[i] : ""; *s; to += 4) {
            uint32_t c = get_utf8(&s);
            for (int k = 0; k < 4; k++)
                to[k] = (unsigned char)(c >> 8 * k);
        }
    }
    return data;
}

//? end
static void write_npy(const char *folder, const struct model_tensor *t, const int64_t *shape,
                      const void *data)
{
    char path[4096], name[240], header[512];        /* file systems end names at 255 bytes */
    size_t length = 0, n = 0, nbytes = t->element_bytes;
    for (const char *s = t->name; *s && length + 1 < sizeof name; s++) {
        char c = *s;
        if (((unsigned char)c & 0xc0) == 0x80)      /* a character of several bytes becomes one _ */
            continue;
        int plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '.' || c == '_' || c == '-';
        name[length++] = plain ? c : '_';
    }
    name[length] = 0;
    if (snprintf(path, sizeof path, "%s/%s.npy", folder, name) >= (int)sizeof path)
        fail(folder, "the path is too long");
//? strings
    int is_string = strcmp(t->dtype, "string") == 0;
    if (is_string) {
        size_t count = 1, width;
        for (int a = 0; a < t->rank; a++)
            count *= (size_t)shape[a];
        data = strings_as_npy((const char *const *)data, count, &width);
        nbytes = 4 * width;
        n += (size_t)snprintf(header, sizeof header, "{'descr': '<U%lld', ",
                              (long long)width);
    } else {
        n += (size_t)snprintf(header, sizeof header, "{'descr': '%s', ", npy_descr(t->dtype));
    }
//? else
    n += (size_t)snprintf(header, sizeof header, "{'descr': '%s', ", npy_descr(t->dtype));
//? end
    n += (size_t)snprintf(header + n, sizeof header - n, "'fortran_order': False, 'shape': (");
    for (int a = 0; a < t->rank; a++) {
        n += (size_t)snprintf(header + n, sizeof header - n, a + 1 < t->rank ? "%lld, " : "%lld,",
                              (long long)shape[a]);
        nbytes *= (size_t)shape[a];
    }
//? strings
    if (!is_string && !is_little_endian())
//? else
    if (!is_little_endian())
//? end
        data = reversed(data, t->element_bytes, nbytes);
    n += (size_t)snprintf(header + n, sizeof header - n, "), }");
    while ((n + 11) % 64 != 0)
        header[n++] = ' ';
    header[n++] = '\n';
    const unsigned char magic[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(n & 255), (unsigned char)(n >> 8)};
    FILE *f = open_file(path, "wb");
    if (!f)
        fail(path, strerror(errno));
    if (fwrite(magic, 1, 10, f) != 10 || fwrite(header, 1, n, f) != n ||
        fwrite(data, 1, nbytes, f) != nbytes || fclose(f) != 0)
        fail(path, strerror(errno));
}

/* ---- a run on any inputs */

struct session {
    model_self *self;
    model_inputs *in;
    model_outputs *out;
//? entries
    int entry;                   /* that runs; -1: each in turn, or the model has none */
//? end
};

static void check(int status, const char *what)
{
    if (status != 0)
        fail(what, model_strerror(status));
}

//? entries
/* One run, or one of each entry. */
static int run_once(struct session *s)
{
    const struct model_info *info = model_describe();
    int64_t from = s->entry < 0 ? 0 : s->entry, to = s->entry >= 0 ? from + 1 : info->entry_count;
    int status = info->entry_count ? 0 : model_run(s->self, s->in, s->out);
    for (int64_t e = from; info->entry_count && e < to && status == 0; e++) {
        memcpy((char *)s->in + info->entry_offset, &e, sizeof e);
        status = model_run(s->self, s->in, s->out);
    }
    return status;
}
//? else
static int run_once(struct session *s) { return model_run(s->self, s->in, s->out); }
//? end

/* Runs again; if a state is full, resets all states and repeats the run. */
static void run_again(struct session *s)
{
    int status = run_once(s);
//? states
    if (status == MODEL_STATE_FULL) {
        check(model_reset(s->self), "reset");
        status = run_once(s);
    }
//? end
    check(status, "run");
}

//? symbols
static void set_symbol(struct session *s, int index, int64_t value)
{
    const struct model_symbol *symbol = &model_describe()->symbols[index];
    if (symbol->offset != (size_t)-1)
        memcpy((char *)s->in + symbol->offset, &value, sizeof value);
}

//? end
enum { RANKS = 16 };

//? symbols
/* Finds the run-time dimensions from the shapes of the files, which are those of the inputs
 * from `first` on. */
static void settle_symbols(struct session *s, int first, int nfile, char **file,
                           int64_t (*shape)[RANKS])
{
    const struct model_info *info = model_describe();
    size_t n = (size_t)nfile * RANKS, count = (size_t)info->symbol_count;
    struct fit_size *at = (struct fit_size *)get_memory((n + 1) * sizeof *at);
    int64_t *symbol = (int64_t *)get_memory((count + 1) * sizeof *symbol), expected = 0;
    memset(at, 0, (n + 1) * sizeof *at);
    memset(symbol, 0xff, (count + 1) * sizeof *symbol);          /* -1 */
    for (int i = 0; i < nfile; i++)
        for (int a = 0; a < info->inputs[first + i].rank; a++) {
            at[i * RANKS + a].rule = info->feeds[first + i].rule[a];
            at[i * RANKS + a].size = shape[i][a];
        }
    size_t bad = fit_sizes(at, n, symbol, &expected);
    if (bad < n) {
        const struct model_tensor *t = &info->inputs[first + (int)(bad / RANKS)];
        fprintf(stderr, "%s: dimension %d of input '%s', %s, is %lld", file[bad / RANKS],
                (int)(bad % RANKS), t->name, t->dim[bad % RANKS].symbol, (long long)at[bad].size);
        if (expected < 0)
            fprintf(stderr, ", which no value of its symbol makes\n");
        else
            fprintf(stderr, "; the other sizes make it %lld\n", (long long)expected);
        exit(1);
    }
    for (int i = 0; i < info->symbol_count; i++) {
        const struct model_symbol *known = &info->symbols[i];
        if (known->offset != (size_t)-1 && symbol[i] > known->max)
            fail(known->name, "this dimension is beyond the bound that the model was compiled for");
        set_symbol(s, i, symbol[i]);
    }
}

//? end
static void *get_pointer(const void *structure, size_t offset)
{
    void *p;
    memcpy(&p, (const char *)structure + offset, sizeof p);
    return p;
}

static void set_pointer(void *structure, size_t offset, const void *p)
{
    memcpy((char *)structure + offset, &p, sizeof p);
}

static void get_shape(const struct session *s, const struct model_tensor *t, int64_t *shape)
{
    for (int a = 0; a < t->rank; a++)
        shape[a] = t->dim[a].size;
    if (t->shape_offset != (size_t)-1)
        memcpy(shape, (const char *)s->out + t->shape_offset, (size_t)t->rank * sizeof *shape);
}

static void open_session(struct session *s, const char *weights_path, const model_options *hooks)
{
    const struct model_info *info = model_describe();
    model_options options;
    memset(&options, 0, sizeof options);
//? entries
    s->entry = -1;
//? end
    s->in = (model_inputs *)get_memory(info->inputs_bytes);
    s->out = (model_outputs *)get_memory(info->outputs_bytes);
    memset(s->in, 0, info->inputs_bytes);
    memset(s->out, 0, info->outputs_bytes);
    if (hooks)
        options = *hooks;
    if (info->weights_external)
        options.weights = read_file(weights_path, &options.weights_bytes);
    check(model_init(&s->self, get_memory(info->arena_bytes), info->arena_bytes, &options), "init");
//? symbols
    for (int i = 0; i < info->symbol_count; i++)
        if (info->symbols[i].offset != (size_t)-1) {
            int64_t unknown = -1;
            memcpy((char *)s->in + info->symbols[i].offset, &unknown, sizeof unknown);
        }
//? end
    for (int i = 0; i < info->output_count; i++)
        set_pointer(s->out, info->outputs[i].offset, get_memory(bound_bytes(&info->outputs[i])));
}

//? symbols
/* Pseudo-random inputs; symbols that nothing set take `symbol` of the selftest, or their bound. */
static void fill_session(struct session *s, const int64_t *symbol)
//? else
/* Pseudo-random inputs. */
static void fill_session(struct session *s)
//? end
{
    const struct model_info *info = model_describe();
//? symbols
    for (int i = 0; i < info->symbol_count; i++)
        if (info->symbols[i].offset != (size_t)-1)
            set_symbol(s, i, symbol ? symbol[i] : info->symbols[i].max);
//? end
    for (int i = 0; i < info->input_count; i++) {
        const struct model_tensor *t = &info->inputs[i];
        size_t nbytes = bound_bytes(t);
        void *data = get_memory(nbytes);
        fill_random(t->dtype, data, t->element_bytes, nbytes / t->element_bytes, (uint32_t)i + 1,
                    info->feeds[i].least, info->feeds[i].most);
        set_pointer(s->in, t->offset, data);
    }
}

/* ---- the commands */

//? entries
/* The entry of that name, with its inputs and outputs; without entries, all of the model's. */
static struct model_entry find_entry(const char *name, int *index)
{
    const struct model_info *info = model_describe();
    struct model_entry all = {"", 0, 0, 0, 0};
    all.input_count = info->input_count;
    all.output_count = info->output_count;
    *index = -1;
    if (info->entry_count == 0 && !name)
        return all;
    for (int e = 0; e < info->entry_count; e++)
        if (name && strcmp(info->entries[e].name, name) == 0) {
            *index = e;
            return info->entries[e];
        }
    fail(name ? name : info->name,
         name ? "there is no such entry" : "has several entries: give --entry NAME");
    return all;
}

//? end
//? entries
static int run_files(char **file, int nfile, const char *folder, const char *weights_path,
                     long steps, const char *entry, const model_options *options)
{
    const struct model_info *info = model_describe();
    struct session s;
    int index;
    const struct model_entry has = find_entry(entry, &index);
    open_session(&s, weights_path, options);
    s.entry = index;
//? else
static int run_files(char **file, int nfile, const char *folder, const char *weights_path,
                     long steps, const model_options *options)
{
    const struct model_info *info = model_describe();
    struct session s;
    const struct { int input, input_count, output, output_count; } has = {
        0, info->input_count, 0, info->output_count};
    open_session(&s, weights_path, options);
//? end
    if (nfile != has.input_count) {
        fprintf(stderr, "%s takes %d inputs, %d were given:", info->name, has.input_count, nfile);
        for (int i = 0; i < has.input_count; i++)
            fprintf(stderr, " %s.npy", info->inputs[has.input + i].name);
        fprintf(stderr, "\n");
        return 2;
    }
    int64_t(*shape)[RANKS] = (int64_t(*)[RANKS])get_memory(((size_t)nfile + 1) * sizeof *shape);
    for (int i = 0; i < nfile; i++) {
        const struct model_tensor *t = &info->inputs[has.input + i];
//? symbols
        set_pointer(s.in, t->offset, read_npy(file[i], t, &info->feeds[has.input + i], shape[i]));
    }
    settle_symbols(&s, has.input, nfile, file, shape);
//? else
        set_pointer(s.in, t->offset, read_npy(file[i], t, shape[i]));
    }
//? end
    for (long i = 0; i < steps; i++)
        check(run_once(&s), "run");
    for (int i = 0; i < has.output_count; i++) {
        const struct model_tensor *t = &info->outputs[has.output + i];
        int64_t made[RANKS] = {0};
        get_shape(&s, t, made);
        write_npy(folder, t, made, get_pointer(s.out, t->offset));
    }
    model_close(s.self);
    return 0;
}

//? reference
static int selftest(const char *weights_path, const model_options *options)
{
    const struct model_info *info = model_describe();
    struct session s;
    open_session(&s, weights_path, options);
//? symbols
    fill_session(&s, selftest_symbol);
//? else
    fill_session(&s);
//? end
    check(run_once(&s), "run");
//? states
    /* the reference has one run; a second one may change the states, which are then reset
     */
    int status = run_once(&s);
    check(status == MODEL_STATE_FULL ? MODEL_OK : status, "run");
    check(model_reset(s.self), "reset");
    check(run_once(&s), "run");
//? end
    int failed = 0;
    for (int i = 0; i < info->output_count; i++) {
        const struct model_tensor *t = &info->outputs[i];
        int64_t shape[16];
        size_t n = 1;
        get_shape(&s, t, shape);
        for (int a = 0; a < t->rank; a++)
            n *= (size_t)shape[a];
        int sized = n * t->element_bytes == selftest_output[i].nbytes;
        const void *made = get_pointer(s.out, t->offset);
        size_t wrong = sized ? count_wrong(t->dtype, t->element_bytes, made,
                                           selftest_output[i].data, n)
                             : n;
        printf("%-24s %lld of %lld elements agree with the reference\n", t->name,
               (long long)(n - wrong), (long long)n);
        failed |= wrong > 0 || !sized;
    }
    model_close(s.self);
    printf("%s: selftest %s\n", info->name, failed ? "FAILED" : "passed");
    return failed;
}
//? else
static int selftest(const char *weights_path, const model_options *options)
{
    (void)weights_path;
    (void)options;
    printf("%s: carries no reference vectors: %s\n", model_describe()->name, selftest_why);
    return 77;
}
//? end

/* Seconds since the first call, and how many are long compared with the clock's resolution. */
#ifdef _WIN32
#ifdef __cplusplus
extern "C" {
#endif
union _LARGE_INTEGER; /* 64 bits */
__declspec(dllimport) int __stdcall QueryPerformanceCounter(union _LARGE_INTEGER *count);
__declspec(dllimport) int __stdcall QueryPerformanceFrequency(union _LARGE_INTEGER *in_a_second);
#ifdef __cplusplus
}
#endif
static const double long_time = 1e-4;

static double now(void)
{
    static int64_t first;
    int64_t count = 0, rate = 1;
    QueryPerformanceFrequency((union _LARGE_INTEGER *)&rate);
    QueryPerformanceCounter((union _LARGE_INTEGER *)&count);
    first = first ? first : count;
    return (double)(count - first) / (double)rate;
}
#elif defined TIME_UTC
static const double long_time = 1e-4;

static double now(void)
{
    static time_t first;
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    first = first ? first : t.tv_sec;
    return (double)(t.tv_sec - first) + 1e-9 * (double)t.tv_nsec;
}
#else /* newlib, and other libraries before C11 */
static const double long_time = 100.0 / (double)CLOCKS_PER_SEC;

static double now(void)
{
    return (double)clock() / (double)CLOCKS_PER_SEC;
}
#endif

struct profile {
    double *seconds, *least; /* of each kernel: in this run, and in its fastest run */
    double since;
    int kernel;
};

static void on_kernel(void *user, int index, const char *kernel)
{
    struct profile *p = (struct profile *)user;
    double t = now();
    if (p->kernel >= 0)
        p->seconds[p->kernel] += t - p->since;
    p->kernel = kernel ? index : -1;
    p->since = t;
}

static int bench(const char *weights_path, double seconds, const model_options *options)
{
    const struct model_info *info = model_describe();
    struct session s;
    double best = 1e30, total = 0;
    int runs = 0, at_once = 1; /* until they take a long time */
    open_session(&s, weights_path, options);
//? symbols
    fill_session(&s, NULL);
//? else
    fill_session(&s);
//? end
    run_again(&s);
    while (total < seconds || runs < 3) {
        double start = now();
        for (int i = 0; i < at_once; i++)
            run_again(&s);
        double t = now() - start;
        if (t < long_time && at_once < 1 << 20) {
            at_once *= 2;
            continue;
        }
        best = t < best * at_once ? t / at_once : best;
        total += t;
        runs += at_once;
    }
    printf("%s: best %.4g us, mean %.4g us of %d runs; %.3g GFLOP, %.3g GFLOP/s\n", info->name,
           1e6 * best, 1e6 * total / runs, runs, 1e-9 * info->flop,
           best > 0 ? 1e-9 * info->flop / best : 0.0);
    model_close(s.self);

    int count = info->kernel_count;
    double *times = (double *)get_memory(2 * sizeof(double) * ((size_t)count + 1));
    struct profile p = {times, times + count, 0, -1};
    model_options hooks = *options;
    hooks.on_kernel = on_kernel;
    hooks.user = &p;
    open_session(&s, weights_path, &hooks);
//? symbols
    fill_session(&s, NULL);
//? else
    fill_session(&s);
//? end
    for (int r = 0; r < runs; r++) {
        p.kernel = -1;
        for (int i = 0; i < count; i++)
            p.seconds[i] = 0;
        run_again(&s);
        for (int i = 0; i < count; i++)
            p.least[i] = r == 0 || p.seconds[i] < p.least[i] ? p.seconds[i] : p.least[i];
    }
    printf("%10s %10s  kernel\n", "us", "GFLOP/s");
    for (int i = 0; i < count; i++) {
        double t = p.least[i];
        printf("%10.3f %10.2f  %s\n", 1e6 * t, t > 0 ? 1e-9 * info->kernels[i].flop / t : 0.0,
               info->kernels[i].name);
    }
    model_close(s.self);
    return 0;
}

static int usage(FILE *out, int status)
{
    const struct model_info *info = model_describe();
    fprintf(out, "usage: %s IN.npy... -o DIR     run; writes DIR/NAME.npy for each output\n",
            info->name);
//? entries
    for (int e = 0; e < info->entry_count; e++)
        fprintf(out, "       --entry %s\n", info->entries[e].name);
//? end
//? states
    fprintf(out, "       --steps N      run N times, on the same inputs; states go on from one "
                 "to the next\n");
//? end
    fprintf(out, "       %s --selftest           compare with the embedded reference vectors\n",
            info->name);
    fprintf(out, "       %s --bench [SECONDS]    measure runs, and the least time of each kernel\n",
            info->name);
    fprintf(out, "       --threads N    at most so many, and at most as compiled\n");
//? file
    fprintf(out, "       --weights FILE where %s.weights is, if not here\n", info->name);
//? end
DEVICE_USAGE    for (int k = 0; k < 2; k++)
        for (int i = 0; i < (k ? info->output_count : info->input_count); i++) {
            const struct model_tensor *t = k ? &info->outputs[i] : &info->inputs[i];
            fprintf(out, "  %s %s: %s[", k ? "output" : "input ", t->name, t->dtype);
            for (int a = 0; a < t->rank; a++) {
//? symbols
                if (t->dim[a].symbol)
                    fprintf(out, "%s%s<=", a ? "," : "", t->dim[a].symbol);
                fprintf(out, t->dim[a].symbol || !a ? "%lld" : ",%lld", (long long)t->dim[a].size);
//? else
                fprintf(out, a ? ",%lld" : "%lld", (long long)t->dim[a].size);
//? end
            }
            fprintf(out, "]\n");
        }
    return status;
}

DEVICE_FUNCTIONSint main(int argc, char **argv)
{
    atexit(free_memory);
#ifdef _WIN32
    argv = get_arguments(&argc);
#endif
    const char *folder = NULL, *weights_path = "MODEL_FILE.weights", *command = NULL;
//? entries
    const char *entry = NULL;
//? end
    double seconds = 1;
    long steps = 1;
    char **file = (char **)get_memory(sizeof(char *) * (size_t)(argc + 1));
    int nfile = 0;
    model_options options;
    memset(&options, 0, sizeof options);
DEVICE_HOOKS    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-o") == 0 && i + 1 < argc)
            folder = argv[++i];
        else if (strcmp(argv[i], "--weights") == 0 && i + 1 < argc)
            weights_path = argv[++i];
        else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            options.threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc)
            steps = atol(argv[++i]);
//? entries
        else if (strcmp(argv[i], "--entry") == 0 && i + 1 < argc)
            entry = argv[++i];
//? end
DEVICE_FLAGS        else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "--selftest") == 0 ||
                 strcmp(argv[i], "--bench") == 0)
            command = argv[i];
        else if (command && strcmp(command, "--bench") == 0)
            seconds = atof(argv[i]);
        else if (argv[i][0] == '-')
            return usage(stderr, 2);
        else
            file[nfile++] = argv[i];
    }
    if (command && strcmp(command, "--help") == 0)
        return usage(stdout, 0);
    if (command && strcmp(command, "--selftest") == 0)
        return selftest(weights_path, &options);
    if (command)
        return bench(weights_path, seconds, &options);
    if (!folder || steps < 1)
        return usage(stderr, 2);
//? entries
    return run_files(file, nfile, folder, weights_path, steps, entry, &options);
//? else
    return run_files(file, nfile, folder, weights_path, steps, &options);
//? end
}
