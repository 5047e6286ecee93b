/* weight.c - the contents of a weight.
 *
 *      init = "[" values "]"                          numbers, true, false, inf, nan; nested as
 *      they like; row-major
 *           | "base64" "(" string ")"                 the elements' bytes, little-endian, one byte
 *           each for sub-byte kinds
 *           | "file" "(" string [ "," string ] [ "," "offset" "=" integer ] ")"     with a name: of
 *           a safetensors file; else raw bytes
 *           | name "(" [ attribute "=" number { "," ... } ] ")"                     an initializer:
 *
 *      zeros()  ones()  full(value=)  rand(seed=)  randn(seed=)  uniform(low=, high=, seed=)
 *      normal(mean=, std=, seed=)
 *      glorot_uniform(seed=): +-sqrt(6 / (fan_in + fan_out))     glorot_normal(seed=): std sqrt(2 /
 *      (fan_in + fan_out))
 *      kaiming_uniform(seed=): +-sqrt(6 / fan_in)                kaiming_normal(seed=): std sqrt(2
 *      / fan_in)
 *
 * for a weight [out, in, kernel...]. Random numbers are counter-based and the same everywhere: see
 * frontend/library.h.
 */
#include "frontend/text/reader.h"
#include "frontend/confine.h"

#include <math.h>
#include <string.h>

/* unless the data is in a file: a line of text must not ask for more */
static const size_t max_nbytes = (size_t)1 << 30;

struct weight {
    struct reader *r;
    const struct type *type;
    int64_t dim[MAX_RANK];
    size_t nelem, nbytes;
    char *data;
};

struct side_file { struct side_file *next; const char *location; struct confined map; };

static bool measure(struct weight *w)
{
    w->nelem = 1;
    for (int a = 0; a < w->type->ndim; a++) {
        if (!uop_const_int(w->type->dim[a], &w->dim[a]))
            return read_error(w->r, &w->type->at,
                              "axis %d of a weight is a symbol; it must be a number", a);
        if (!size_mul(w->nelem, (size_t)w->dim[a], &w->nelem))
            return read_error(w->r, &w->type->at, "the weight has too many elements");
    }
    if (w->type->dtype == DTYPE_STRING)
        return read_error(w->r, &w->type->at, "weights of strings are not supported");
    if (!size_mul(w->nelem, dtype_nbytes(w->type->dtype), &w->nbytes))
        return read_error(w->r, &w->type->at, "the weight has too many bytes");
    return true;
}

static bool allocate(struct weight *w)
{
    if (w->nbytes > max_nbytes)
        return read_error(
            w->r, &w->type->at,
            "a weight of %zu bytes; at most %zu can be written in the text, put it into a file",
            w->nbytes, max_nbytes);
    w->data = mem_alloc(w->r->t, w->nbytes + 1);
    return true;
}

static void put(struct weight *w, size_t i, union scalar v)
{
    scalar_store(w->type->dtype, w->data + i * dtype_nbytes(w->type->dtype), v);
}

/* ---- values */

static bool read_element(struct weight *w, union scalar *v)
{
    struct reader *r = w->r;
    enum dtype d = w->type->dtype;
    bool minus = accept(r, '-');
    struct token at = r->token;
    if (d == DTYPE_BOOL && at.kind == TOKEN_NAME &&
        (!strcmp(at.text, "true") || !strcmp(at.text, "false"))) {
        v->i = at.text[0] == 't';
    } else if (dtype_is_float(d)) {
        if (!token_number(&at, &v->f))
            return at.kind == TOKEN_BAD
                       ? false
                       : read_error(r, &at, "found %s, expected a number", token_describe(r, &at));
        v->f = minus ? -v->f : v->f;
    } else {
        if (!token_int(&at, &v->i))
            return at.kind == TOKEN_BAD
                       ? false
                       : read_error(r, &at, "found %s, expected an element of dtype %s",
                                    token_describe(r, &at), dtype_name(d));
        v->i = minus ? (int64_t)(0 - (uint64_t)v->i) : v->i;
        if (!int_fits(d, v->i))
            return read_error(r, &at, "%s%s does not fit into %s", minus ? "-" : "",
                              token_describe(r, &at), dtype_name(d));
    }
    lex_next(r);
    return true;
}

/* The opening '[' was read. Nesting is not checked against the shape: the order of the values is
 * what counts. */
static bool read_values(struct weight *w)
{
    struct reader *r = w->r;
    struct token begin = r->token;
    size_t n = 0;
    int depth = 1;
    bool after = false;                               /* an element or a list is complete */
    if (w->nelem > (size_t)(r->end - r->token.start))  /* an element takes a character at least */
        return read_error(r, &begin, "the list is shorter than the shape's %zu elements", w->nelem);
    if (!allocate(w))
        return false;
    while (depth) {
        if (r->token.kind == TOKEN_PUNCT && r->token.punct == ']') {
            depth--;
            after = true;
            lex_next(r);
        } else if (after) {
            if (!expect(r, ',', "or ']' in the list of values"))
                return false;
            after = false;
        } else if (accept(r, '[')) {
            if (++depth > MAX_NESTING)
                return read_error(r, &r->token, "lists nested more than %d deep", MAX_NESTING);
        } else {
            union scalar v;
            struct token at = r->token;
            if (!read_element(w, &v))
                return false;
            if (n == w->nelem)
                return read_error(r, &at, "more values than the shape has elements, %zu", w->nelem);
            put(w, n++, v);
            after = true;
        }
    }
    return n == w->nelem
               ? true
               : read_error(r, &begin, "found %zu values, the shape has %zu elements", n, w->nelem);
}

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static bool read_base64(struct weight *w)
{
    struct reader *r = w->r;
    if (!expect(r, '(', "after base64"))
        return false;
    struct token at = r->token;
    if (at.kind != TOKEN_STRING)
        return at.kind == TOKEN_BAD ? false
                                    : read_error(r, &at, "found %s, expected the bytes as a string",
                                                 token_describe(r, &at));
    size_t length = strlen(at.text), n = 0;
    while (length && at.text[length - 1] == '=')
        length--;
    if (length * 3 / 4 != w->nbytes || length % 4 == 1)
        return read_error(r, &at, "the string holds %zu bytes, the weight has %zu", length * 3 / 4,
                          w->nbytes);
    if (!allocate(w))
        return false;
    uint32_t bits = 0;
    for (size_t i = 0; i < length; i++) {
        int digit = base64_digit(at.text[i]);
        if (digit < 0)
            return read_error(r, &at, "character %zu of the string is not of base64", i + 1);
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4)
            w->data[n++] = (char)(bits >> (6 - 2 * (i % 4)));
    }
    lex_next(r);
    return expect(r, ')', "after the string");
}

/* ---- files */

static bool find_file(struct reader *r, const struct token *at, const char *location,
                     struct side_file **file)
{
    struct place place = lex_place(r, at);
    if (r->options.no_external_data)
        return read_error(
            r, at, "it is in another file, and --no-external-data forbids to read it");
    if (!r->options.external_data_dir && !strcmp(r->path, "<stdin>"))
        return read_error(r, at,
                          "it is in another file, and the graph came from standard input; "
                          "name its directory with "
                          "--external-data-dir");
    for (*file = r->side; *file; *file = (*file)->next)
        if (!strcmp((*file)->location, location))
            return true;
    const char *dir = r->options.external_data_dir ? r->options.external_data_dir
                                                   : confine_directory(r->t, r->path);
    struct side_file *f = MEM_NEW(r->t, struct side_file);
    f->location = location;
    if (!confine_map(r->t, &place, dir, location, r->path, &f->map))
        return false;
    if (r->options.on_file)
        r->options.on_file(r->options.user,
                           strcmp(dir, ".") ? mem_printf(r->t, "%s/%s", dir, location) : location);
    f->next = r->side;
    *file = r->side = f;
    return true;
}

bool map_file(struct reader *r, const struct token *at, const char *location, void **base,
              size_t *nbytes)
{
    struct side_file *file;
    if (!find_file(r, at, location, &file))
        return false;
    *base = file->map.base;
    *nbytes = file->map.nbytes;
    return true;
}

static bool check_safetensor(struct weight *w, const struct token *at, const struct safetensor *s)
{
    bool same = s->dtype == w->type->dtype && s->ndim == w->type->ndim;
    for (int a = 0; same && a < s->ndim; a++)
        same = s->dim[a] == w->dim[a];
    if (same && s->nbytes == w->nbytes)
        return true;
    struct text have = {.t = w->r->t};
    for (int a = 0; a < s->ndim; a++)
        text_printf(&have, "%s%lld", a ? ", " : "", (long long)s->dim[a]);
    return read_error(w->r, at,
                      "the file has it as %s[%s] in %zu bytes, which is not what is declared",
                      dtype_name(s->dtype), have.n ? have.s : "", s->nbytes);
}

static bool read_file(struct weight *w)
{
    struct reader *r = w->r;
    struct side_file *file = NULL;
    struct token at, key = {0};
    int64_t offset = 0;
    const void *data = NULL;
    if (!expect(r, '(', "after file"))
        return false;
    at = r->token;
    if (at.kind != TOKEN_STRING)
        return at.kind == TOKEN_BAD
                   ? false
                   : read_error(r, &at, "found %s, expected the file's name in double quotes",
                                token_describe(r, &at));
    lex_next(r);
    while (accept(r, ',')) {
        if (r->token.kind == TOKEN_STRING && !key.text) {
            key = r->token;
            lex_next(r);
        } else if (accept_word(r, "offset")) {
            if (!expect(r, '=', "after offset") || !token_int(&r->token, &offset) || offset < 0)
                return read_error(r, &r->token, "found %s, expected a number of bytes",
                                  token_describe(r, &r->token));
            lex_next(r);
        } else {
            return read_error(r, &r->token,
                              "found %s, expected a tensor's name in double quotes or offset=",
                              token_describe(r, &r->token));
        }
    }
    if (!expect(r, ')', "after the file") || !find_file(r, &at, at.text, &file))
        return false;
    if (key.text) {
        struct safetensor s;
        const char *error;
        if (!safetensors_find(file->map.base, file->map.nbytes, key.text, &s, &error))
            return read_error(r, &key, "%s", error);
        if (!check_safetensor(w, &key, &s))
            return false;
        data = s.data;
    } else {
        size_t end;
        if (!size_add((size_t)offset, w->nbytes, &end) || end > file->map.nbytes)
            return read_error(r, &at,
                              "the file has %zu bytes; %zu from offset %lld go beyond its end",
                              file->map.nbytes, w->nbytes, (long long)offset);
        data = file->map.base ? (const char *)file->map.base + offset : NULL;
    }
    if (!w->nbytes || (uintptr_t)data % dtype_nbytes(w->type->dtype) == 0) {
        /* read-only from here on: buffers hold it as const */
        w->data = (char *)(uintptr_t)data;
        return true;
    }
    w->data = mem_alloc(r->t, w->nbytes);
    memcpy(w->data, data, w->nbytes);
    return true;
}

/* ---- initializers */

enum { PARAM_VALUE, PARAM_LOW, PARAM_HIGH, PARAM_MEAN, PARAM_STD, PARAM_SEED, PARAM_COUNT };
enum distribution { CONSTANT, UNIFORM, NORMAL };
static const char *const param_names[] = {"value", "low", "high", "mean", "std", "seed"};
static const struct initializer {
    const char *name;
    enum distribution distribution;
    unsigned params;
} initializers[] = {
    {"zeros", CONSTANT, 0},
    {"ones", CONSTANT, 0},
    {"full", CONSTANT, 1u << PARAM_VALUE},
    {"rand", UNIFORM, 1u << PARAM_SEED},
    {"randn", NORMAL, 1u << PARAM_SEED},
    {"uniform", UNIFORM, 1u << PARAM_LOW | 1u << PARAM_HIGH | 1u << PARAM_SEED},
    {"normal", NORMAL, 1u << PARAM_MEAN | 1u << PARAM_STD | 1u << PARAM_SEED},
    {"glorot_uniform", UNIFORM, 1u << PARAM_SEED},
    {"glorot_normal", NORMAL, 1u << PARAM_SEED},
    {"kaiming_uniform", UNIFORM, 1u << PARAM_SEED},
    {"kaiming_normal", NORMAL, 1u << PARAM_SEED},
};

static bool read_params(struct reader *r, const struct initializer *init, double *param,
                        uint64_t *seed)
{
    if (!expect(r, '(', "after the initializer"))
        return false;
    if (accept(r, ')'))
        return true;
    do {
        struct token at = r->token;
        int k = 0;
        while (k < PARAM_COUNT && (at.kind != TOKEN_NAME || strcmp(param_names[k], at.text) != 0 ||
                                   !(init->params >> k & 1)))
            k++;
        if (k == PARAM_COUNT)
            return read_error(r, &at, "%s has no parameter %s", init->name, token_describe(r, &at));
        lex_next(r);
        if (!expect(r, '=', "after the parameter"))
            return false;
        bool minus = accept(r, '-');
        int64_t whole;
        at = r->token;
        if (k == PARAM_SEED ? minus || !token_int(&at, &whole) : !token_number(&at, &param[k]))
            return read_error(r, &at, "found %s, expected a number", token_describe(r, &at));
        if (k == PARAM_SEED)
            *seed = (uint64_t)whole;
        param[k] = minus ? -param[k] : param[k];
        lex_next(r);
    } while (accept(r, ','));
    return expect(r, ')', "after the parameters");
}

/* Sets low and high, or mean and std, of the scaled ones. source: Glorot and Bengio 2010; He et al.
 * 2015 */
static void scale_params(const struct weight *w, const struct initializer *init, double *param)
{
    double in = 1, out = 1, n = 0;
    for (int a = 0; a < w->type->ndim; a++) {
        in *= a == 0 && w->type->ndim > 1 ? 1 : (double)w->dim[a];
        out *= a == 1 ? 1 : (double)w->dim[a];
    }
    if (!strncmp(init->name, "glorot", 6))
        n = in + out;
    else if (!strncmp(init->name, "kaiming", 7))
        n = in;
    if (n > 0) {
        param[PARAM_HIGH] = sqrt(6 / n);
        param[PARAM_LOW] = -param[PARAM_HIGH];
        param[PARAM_STD] = sqrt(2 / n);
    }
}

static bool read_initializer(struct weight *w, const struct token *name)
{
    double param[PARAM_COUNT] = {[PARAM_HIGH] = 1, [PARAM_STD] = 1};
    uint64_t seed = 0;
    const struct initializer *init = NULL;
    for (size_t i = 0; i < sizeof initializers / sizeof *initializers; i++)
        if (!strcmp(initializers[i].name, name->text))
            init = &initializers[i];
    if (!init)
        return read_error(w->r, name,
                          "%s is no initializer: there are [...], file, base64, zeros, ones, full, "
                          "rand, randn, uniform, normal, "
                          "glorot_uniform, glorot_normal, kaiming_uniform, kaiming_normal",
                          token_describe(w->r, name));
    if (!read_params(w->r, init, param, &seed) || !allocate(w))
        return false;
    scale_params(w, init, param);
    if (!strcmp(init->name, "ones"))
        param[PARAM_VALUE] = 1;
    if (init->distribution != CONSTANT && !dtype_is_float(w->type->dtype))
        return read_error(w->r, name, "%s is for floating weights", init->name);
    for (size_t i = 0; i < w->nelem; i++) {
        union scalar v = {.f = param[PARAM_VALUE]};
        if (init->distribution == UNIFORM)
            v.f = param[PARAM_LOW] +
                  (param[PARAM_HIGH] - param[PARAM_LOW]) * lib_random_uniform_at(seed, i);
        else if (init->distribution == NORMAL)
            v.f = param[PARAM_MEAN] + param[PARAM_STD] * lib_random_normal_at(seed, i);
        put(w, i, scalar_cast(w->type->dtype, DTYPE_F64, v));
    }
    return true;
}

bool read_weight(struct reader *r, const struct type *type, const char *name, enum weight_use use,
                 struct uop **result)
{
    struct weight w = {.r = r, .type = type};
    struct token at = r->token;
    bool ok;
    if (!measure(&w))
        return false;
    if (accept(r, '['))
        ok = read_values(&w);
    else if (accept_word(r, "base64"))
        ok = read_base64(&w);
    else if (accept_word(r, "file"))
        ok = read_file(&w);
    else if (at.kind == TOKEN_NAME) {
        lex_next(r);
        ok = read_initializer(&w, &at);
    } else {
        ok = at.kind == TOKEN_BAD
                 ? false
                 : read_error(
                       r, &at,
                       "found %s, expected [values], file(...), base64(...) or an initializer",
                       token_describe(r, &at));
    }
    if (!ok)
        return false;
    const char *data = w.data ? w.data : "";
    *result = type->ndim == 0 && use == WEIGHT_CONSTANT
                  ? uop_const(r->t, type->dtype, scalar_load(type->dtype, data))
                  : tensor_weight(r->t, type->dtype, w.dim, type->ndim, data, w.nbytes, name,
                                  use == WEIGHT_PARAM);
    return true;
}
