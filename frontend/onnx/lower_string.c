/* lower_string.c - tensors of strings, and operators that look up tokens: all host steps.
 *
 * A tensor of strings is one of pointers. The characters of strings that a program creates are in a
 * reserved part of the arena (`text`), STRING_BYTES per string, shared by all strings of a tensor;
 * a run that needs more returns a status. So does one that splits a string into more than
 * MAX_PARTS, if maxsplit does not limit them.
 */
#include <stdlib.h>
#include <string.h>

#include "frontend/onnx/lower.h"
#include "frontend/onnx/regex.h"

enum { STRING_BYTES = 256, NUMBER_BYTES = 32, MAX_PARTS = 64 };

static struct host_output tensor_output(enum dtype d, struct uop *const *dim, int ndim)
{
    struct host_output out = {.dtype = d, .ndim = ndim};
    ARRAY_COPY(out.dim, dim, ndim);
    return out;
}

/* Memory for the characters of `count` strings. */
static struct host_output text_output(const struct node *n, struct uop *count, int each,
                                      struct uop **nbytes)
{
    *nbytes = sym_muli(n->t, count, each);
    return (struct host_output){.dtype = DTYPE_U8, .ndim = 1, .dim = {*nbytes}, .kept = true};
}

static struct uop *nelem_of(const struct node *n, const struct uop *x)
{
    return sym_prod(n->t, x->dim, x->ndim);
}

static struct uop *weight(const struct node *n, enum dtype d, const void *data, int64_t count)
{
    return tensor_from_data(n->t, d, &count, 1, count ? data : "", (size_t)count * dtype_nbytes(d),
                            NULL);
}

/* A symbol that the run finds. */
static struct var *found_var(struct node *n, const char *name, int64_t most)
{
    struct lower *l = n->lower;
    struct var *v = var_new(n->t, name, 0, most);
    VEC_PUSH(n->t, l->var, l->nvar, l->cap_var, v);
    return v;
}

static bool is_string(const struct node *n, int k)
{
    return n->in[k]->dtype == DTYPE_STRING ||
           node_error(n, k, "strings are expected, found %s", shape_text(n, n->in[k]));
}

bool lower_string_concat(struct node *n)
{
    struct uop *in[2] = {n->in[0], n->in[1]}, *dim[MAX_RANK], *nbytes;
    int ndim;
    if (!is_string(n, 0) || !is_string(n, 1))
        return false;
    if (!tensor_broadcast_dims(n->t, in, 2, dim, &ndim))
        return node_error(n, 1, "%s and %s do not broadcast", shape_text(n, in[0]),
                          shape_text(n, in[1]));
    for (int k = 0; k < 2; k++)
        in[k] = lib_broadcast_to(&n->lib, in[k], dim, ndim);
    struct uop *count = sym_prod(n->t, dim, ndim);
    struct host_output out[2] = {tensor_output(DTYPE_STRING, dim, ndim),
                                 text_output(n, count, STRING_BYTES, &nbytes)};
    struct uop *param[2] = {count, nbytes};
    struct uop *call = lib_host(&n->lib, "string_concat", in, 2, out, 2, param, 2, NULL, 0);
    return node_set(n, 0, lib_get(&n->lib, call, 0));
}

/* The dtype in which a number is written or read, before a cast to d. */
static enum dtype number_dtype(enum dtype d, bool read)
{
    if (d == DTYPE_F32 || (dtype_is_float(d) && d != DTYPE_F64 && !read))
        return DTYPE_F32;
    return dtype_is_float(d) || (d == DTYPE_BOOL && read) ? DTYPE_F64
           : d == DTYPE_U64                               ? DTYPE_U64
                                                          : DTYPE_I64;
}

struct uop *node_to_string(const struct node *n, struct uop *x)
{
    struct uop *nbytes, *count = nelem_of(n, x);
    enum dtype d = number_dtype(x->dtype, false);
    struct host_output out[2] = {tensor_output(DTYPE_STRING, x->dim, x->ndim),
                                 text_output(n, count, NUMBER_BYTES, &nbytes)};
    struct uop *in = lib_cast(&n->lib, d, x), *param[2] = {count, nbytes};
    const char *name = mem_printf(n->t, "to_string_%s", dtype_name(d));
    return lib_get(&n->lib, lib_host(&n->lib, name, &in, 1, out, 2, param, 2, NULL, 0), 0);
}

struct uop *node_from_string(const struct node *n, enum dtype to, struct uop *x)
{
    enum dtype d = number_dtype(to, true);
    struct host_output out = tensor_output(d, x->dim, x->ndim);
    struct uop *count = nelem_of(n, x);
    const char *name = mem_printf(n->t, "from_string_%s", dtype_name(d));
    struct uop *call = lib_host(&n->lib, name, &x, 1, &out, 1, &count, 1, NULL, 0);
    return lib_cast(&n->lib, to, lib_get(&n->lib, call, 0));
}

bool lower_string_split(struct node *n)
{
    struct uop *x = n->in[0], *dim[MAX_RANK + 1], *nbytes;
    int64_t most = node_int(n, "maxsplit", -1);
    if (!is_string(n, 0))
        return false;
    if (x->ndim == MAX_RANK)
        return node_error(n, 0, "the result would have rank %d", MAX_RANK + 1);
    if (node_has(n, "maxsplit") && most < 0)
        return node_error(n, -1, "maxsplit is %lld; it must not be negative", (long long)most);
    int64_t bound = most >= 0 && most < MAX_PARTS ? most + 1 : MAX_PARTS;
    struct var *width = found_var(n, "parts", bound);
    ARRAY_COPY(dim, x->dim, x->ndim);
    dim[x->ndim] = uop_var(n->t, width);
    const char **mark = MEM_NEW(n->t, const char *);
    *mark = node_string(n, "delimiter", "");
    struct uop *count = nelem_of(n, x), *in[2] = {x, weight(n, DTYPE_STRING, mark, 1)};
    struct host_output out[3] = {tensor_output(DTYPE_STRING, dim, x->ndim + 1),
                                 tensor_output(DTYPE_I64, x->dim, x->ndim),
                                 text_output(n, count, STRING_BYTES, &nbytes)};
    struct uop *param[4] = {count, uop_int(n->t, most), uop_int(n->t, bound), nbytes};
    struct uop *call = lib_host(&n->lib, "string_split", in, 2, out, 3, param, 4, &width, 1);
    return node_set(n, 0, lib_get(&n->lib, call, 0)) && node_set(n, 1, lib_get(&n->lib, call, 1));
}

bool lower_string_normalizer(struct node *n)
{
    struct uop *x = n->in[0], *dim[2], *nbytes;
    const char *change = node_string(n, "case_change_action", "NONE");
    bool sensitive = node_int(n, "is_case_sensitive", 0) != 0;
    int64_t to = !strcmp(change, "LOWER") ? -1 : !strcmp(change, "UPPER") ? 1 : 0;
    if (!is_string(n, 0))
        return false;
    if (!to && strcmp(change, "NONE"))
        return node_error(n, -1, "case_change_action must be LOWER, UPPER or NONE, found '%s'",
                          change);
    if (x->ndim < 1 || x->ndim > 2 || (x->ndim == 2 && !uop_is_int(x->dim[0], 1)))
        return node_error(n, 0, "[c] or [1, c] is expected, found %s", shape_text(n, x));
    struct uop *count = nelem_of(n, x), *stop = node_string_weight(n, "stopwords");
    struct var *kept = found_var(n, "kept", count->vmax > 1 ? count->vmax : 1);
    dim[0] = dim[x->ndim - 1] = uop_var(n->t, kept);
    if (x->ndim == 2)
        dim[0] = uop_int(n->t, 1);
    struct uop *in[2] = {x, stop};
    struct host_output out[2] = {tensor_output(DTYPE_STRING, dim, x->ndim),
                                 text_output(n, count, STRING_BYTES, &nbytes)};
    struct uop *param[5] = {count, stop->dim[0], uop_int(n->t, to), uop_int(n->t, sensitive),
                            nbytes};
    struct uop *call = lib_host(&n->lib, "string_normalize", in, 2, out, 2, param, 5, &kept, 1);
    return node_set(n, 0, lib_get(&n->lib, call, 0));
}

bool lower_regex_full_match(struct node *n)
{
    struct uop *x = n->in[0];
    struct regex r = {.t = n->t};
    const char *pattern = node_string(n, "pattern", NULL);
    if (!is_string(n, 0))
        return false;
    if (!pattern)
        return node_error(n, -1, "needs the attribute 'pattern'");
    if (!regex_compile(&r, pattern))
        return node_error(n, -1, "pattern '%s': %s at byte %d", pattern, r.error, r.where);
    struct uop *in[3] = {x, weight(n, DTYPE_I32, r.code, 3 * (int64_t)r.ncode),
                         weight(n, DTYPE_I32, r.range, 2 * (int64_t)r.nrange)};
    struct uop *ncode = uop_int(n->t, r.ncode), *room = uop_int(n->t, 4 * (int64_t)r.ncode);
    struct host_output out[2] = {tensor_output(DTYPE_BOOL, x->dim, x->ndim),
                                 tensor_output(DTYPE_I64, &room, 1)};
    struct uop *param[2] = {nelem_of(n, x), ncode};
    struct uop *call = lib_host(&n->lib, "regex_full_match", in, 3, out, 2, param, 2, NULL, 0);
    return node_set(n, 0, lib_get(&n->lib, call, 0));
}

/* ----------------------------------------------------------------------------------- looking up */

/* Positions of keys in order; of equal ones the first stays first. */
struct key { const void *at; int64_t place, length; };

static int compare_text(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    for (int64_t i = 0; i < x->length && i < y->length; i++) {
        int order = strcmp(((const char *const *)x->at)[i], ((const char *const *)y->at)[i]);
        if (order)
            return order;
    }
    return (x->place > y->place) - (x->place < y->place);
}

static int compare_ints(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    for (int64_t i = 0; i < x->length && i < y->length; i++) {
        int64_t v = ((const int64_t *)x->at)[i], w = ((const int64_t *)y->at)[i];
        if (v != w)
            return v < w ? -1 : 1;
    }
    return (x->place > y->place) - (x->place < y->place);
}

static int compare_floats(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    double v = *(const double *)x->at, w = *(const double *)y->at;
    int vn = v != v, wn = w != w;
    int order = vn || wn ? vn - wn : (v > w) - (v < w);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

/* The position of each element of x among the keys, `count` if it is none of them. keys: int64_t,
 * double or const char *, as x is. */
struct uop *node_find(const struct node *n, struct uop *x, const void *keys, int64_t count)
{
    enum dtype d = x->dtype == DTYPE_STRING     ? DTYPE_STRING
                   : !dtype_is_float(x->dtype)  ? DTYPE_I64
                   : x->dtype == DTYPE_F64      ? DTYPE_F64
                                                : DTYPE_F32;
    struct key *key = mem_array(n->t, (size_t)count + 1, sizeof *key);
    for (int64_t i = 0; i < count; i++)
        key[i] = (struct key){(const char *)keys + 8 * i, i, 1};
    qsort(key, (size_t)count, sizeof *key,
          d == DTYPE_STRING ? compare_text : d == DTYPE_I64 ? compare_ints : compare_floats);
    int64_t *place = mem_array(n->t, (size_t)count + 1, sizeof *place);
    unsigned char *sorted = mem_array(n->t, (size_t)count + 1, 8);
    for (int64_t i = 0; i < count; i++) {
        place[i] = key[i].place;
        if (d == DTYPE_F32) {
            float v = (float)*(const double *)key[i].at;
            memcpy(sorted + 4 * i, &v, 4);
        } else {
            memcpy(sorted + 8 * i, key[i].at, 8);
        }
    }
    place[count] = count;
    struct uop *in[2] = {d == DTYPE_STRING ? x : uop_cast(n->t, d, x), weight(n, d, sorted, count)};
    struct host_output out = tensor_output(DTYPE_I64, x->dim, x->ndim);
    struct uop *param[2] = {nelem_of(n, x), uop_int(n->t, count)};
    const char *name = mem_printf(n->t, "find_%s", d == DTYPE_STRING ? "str" : dtype_name(d));
    struct uop *at =
        lib_get(&n->lib, lib_host(&n->lib, name, in, 2, &out, 1, param, 2, NULL, 0), 0);
    return lib_gather(&n->lib, weight(n, DTYPE_I64, place, count + 1), at, 0);
}

/* ------------------------------------------------------------------------------ TfIdfVectorizer */

struct pool {
    const void *item; int64_t nitem;     /* 8 bytes each */
    const int64_t *begin; int nsize;     /* ngram_counts: where the n-grams of each size begin */
    const int64_t *index; int64_t ngram; /* ngram_indexes */
    int64_t *gram, *place, *first;       /* what tfidf_T takes */
    int64_t width;
};

/* Sorts the pool's n-grams by size and content. */
static bool sort_pool(const struct node *n, struct pool *p, bool text)
{
    int64_t count = 0;
    struct key *key = mem_array(n->t, (size_t)p->ngram + 1, sizeof *key);
    p->gram = mem_array(n->t, (size_t)p->ngram + 1, sizeof *p->gram);
    p->place = mem_array(n->t, (size_t)p->ngram + 1, sizeof *p->place);
    p->first = mem_array(n->t, (size_t)p->nsize + 1, sizeof *p->first);
    for (int s = 0; s < p->nsize; s++) {
        int64_t begin = p->begin[s], end = s + 1 < p->nsize ? p->begin[s + 1] : p->nitem;
        if (begin < 0 || end < begin || end > p->nitem || (end - begin) % (s + 1))
            return node_error(n, -1, "ngram_counts[%d]: %lld to %lld is no range of %d-grams in a "
                              "pool of %lld", s, (long long)begin, (long long)end, s + 1,
                              (long long)p->nitem);
        p->first[s] = count;
        for (; begin < end; begin += s + 1, count++) {
            if (count >= p->ngram)
                return node_error(n, -1, "ngram_indexes has %lld elements, but the pool has more "
                                  "n-grams", (long long)p->ngram);
            key[count] = (struct key){(const char *)p->item + 8 * begin, count, s + 1};
        }
        qsort(key + p->first[s], (size_t)(count - p->first[s]), sizeof *key,
              text ? compare_text : compare_ints);
    }
    p->first[p->nsize] = count;
    for (int64_t i = 0; i < p->ngram; i++) {
        if (p->index[i] < 0 || p->index[i] >= 1 << 28)
            return node_error(n, -1, "ngram_indexes[%lld] is %lld", (long long)i,
                              (long long)p->index[i]);
        p->width = p->index[i] >= p->width ? p->index[i] + 1 : p->width;
    }
    for (int64_t i = 0; i < count; i++) {
        p->gram[i] = ((const char *)key[i].at - (const char *)p->item) / 8;
        p->place[i] = p->index[key[i].place];
    }
    return true;
}

/* IDF: the weight where the count is not 0; TFIDF: weight times count. */
static struct uop *weighted(const struct node *n, struct uop *count, const char *mode,
                            const struct pool *p)
{
    const float *given;
    int ngiven = node_floats(n, "weights", &given);
    struct uop *some = lib_binary(&n->lib, OP_LT, lib_scalar(&n->lib, count, 0), count);
    if (!strcmp(mode, "TF"))
        return count;
    float *w = mem_array(n->t, (size_t)p->width, sizeof *w);
    for (int64_t i = 0; i < p->ngram; i++)
        w[p->index[i]] = ngiven <= 0 ? 1 : i < ngiven ? given[i] : 0;
    struct uop *scale = weight(n, DTYPE_F32, w, p->width);
    if (!strcmp(mode, "TFIDF"))
        return lib_mul(&n->lib, count, scale);
    return lib_where(&n->lib, some, scale, lib_scalar(&n->lib, count, 0));
}

bool lower_tfidf(struct node *n)
{
    struct uop *x = n->in[0], *dim[2] = {NULL, NULL};
    const char *mode = node_string(n, "mode", "TF");
    const int64_t *pool_ints = NULL;
    const char *const *pool_text = NULL;
    bool text = node_has(n, "pool_strings");
    struct pool p = {0};
    p.nitem = text ? node_strings(n, "pool_strings", &pool_text)
                   : node_ints(n, "pool_int64s", &pool_ints);
    p.item = text ? (const void *)pool_text : pool_ints;
    p.nsize = node_ints(n, "ngram_counts", &p.begin);
    p.ngram = node_ints(n, "ngram_indexes", &p.index);
    int64_t shortest = node_int(n, "min_gram_length", 1),
            longest = node_int(n, "max_gram_length", 1), skip = node_int(n, "max_skip_count", 0);
    if (p.nitem < 1 || p.nsize < 1 || p.ngram < 1)
        return node_error(n, -1, "needs a pool, ngram_counts and ngram_indexes");
    if (strcmp(mode, "TF") && strcmp(mode, "IDF") && strcmp(mode, "TFIDF"))
        return node_error(n, -1, "mode must be TF, IDF or TFIDF, found '%s'", mode);
    if (shortest < 1 || longest < shortest || skip < 0 || skip > INT32_MAX)
        return node_error(n, -1, "min_gram_length, max_gram_length and max_skip_count do not fit");
    if (text != (x->dtype == DTYPE_STRING) || !node_rank(n, 0, 0, 2))
        return node_error(n, 0, "%s are expected, [c] or [n, c], found %s",
                          text ? "strings" : "integers", shape_text(n, x));
    if (!sort_pool(n, &p, text))
        return false;
    longest = longest < p.nsize ? longest : p.nsize;
    struct uop *columns = x->ndim ? x->dim[x->ndim - 1] : uop_int(n->t, 1);
    struct uop *rows = x->ndim == 2 ? x->dim[0] : uop_int(n->t, 1);
    dim[0] = rows;
    dim[x->ndim == 2] = uop_int(n->t, p.width);
    struct uop *in[5] = {text ? x : uop_cast(n->t, DTYPE_I64, x),
                         weight(n, text ? DTYPE_STRING : DTYPE_I64, p.item, p.nitem),
                         weight(n, DTYPE_I64, p.gram, p.ngram),
                         weight(n, DTYPE_I64, p.place, p.ngram),
                         weight(n, DTYPE_I64, p.first, p.nsize + 1)};
    struct host_output out = tensor_output(DTYPE_F32, dim, x->ndim == 2 ? 2 : 1);
    struct uop *param[6] = {rows, columns, uop_int(n->t, p.width), uop_int(n->t, shortest),
                            uop_int(n->t, longest), uop_int(n->t, skip)};
    struct uop *call = lib_host(&n->lib, text ? "tfidf_str" : "tfidf_i64", in, 5, &out, 1, param, 6,
                                NULL, 0);
    struct uop *count = lib_get(&n->lib, call, 0);
    return count && node_set(n, 0, weighted(n, count, mode, &p));
}
