/* SPDX-License-Identifier: 0BSD */
/* tensors.c - which part of its buffer an argument is: what kernels get are buffers that hold many
 * tensors, and offsets. The comment above an emitted kernel has the tensors' shapes:
 *
 *       *   y   f32[B,128]  <- result
 *
 *      kernel void k(global uchar *y_in, ulong y_at, ..., long B_is)
 *
 * says that y_in is used from byte y_at on, for B * 128 floats, where B is B_is; a parameter of the
 * tensor's own name, y, points to its begin. What has no such
 * line (scratch, kernels by hand) may use its whole buffer. Where one function serves tensors of
 * several sizes, as in
 *
 *       * the same: conv_7, w f32[2,8]
 *
 * it uses none beyond the longest of them that its memory holds.
 */
#include "emulator.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name without that end; 0: it does not end so. */
static size_t stem(const char *name, const char *end)
{
    const size_t n = strlen(name), k = strlen(end);
    return n > k && strcmp(name + n - k, end) == 0 ? n - k : 0;
}

/* ---------------------------------------------------------------------------------------- comments
 */

/* The comment before a kernel's word; NULL: there is none. Attributes may lie between. */
static const char *comment_before(const char *text, const char *at)
{
    while (at - text >= 2 && !(at[-1] == '/' && at[-2] == '*'))
        if (strchr(";{}", *--at))
            return NULL;
    if (at - text < 2)
        return NULL;
    for (at -= 2; at > text; at--)
        if (at[-1] == '/' && at[0] == '*')
            return at - 1;
    return NULL;
}

/* Appends "f32[B,128]", which begins there, after a bar if it is not the first. */
static void add_tensor(const char *at, const char *end, char *tensor)
{
    const size_t had = strlen(tensor);
    const char *close = strchr(at, ']');
    if (close && close < end && strcspn(at, " [") < (size_t)(close - at))
        snprintf(tensor + had, MAX_NAME - had, "%s%.*s", had ? "|" : "", (int)(close + 1 - at), at);
}

/* From the lines of kernels that call the same function: the tensors of that name. */
static void read_others(const char *comment, const char *end, const char *name, size_t n,
                        char *tensor)
{
    char place[MAX_NAME + 8];
    snprintf(place, sizeof place, ", %.*s ", (int)n, name);
    for (const char *line = comment; (line = strstr(line, "\n * the same: ")) && line < end;) {
        line++;
        const char *at = strstr(line, place);
        if (at && at < line + strcspn(line, "\n"))
            add_tensor(at + strlen(place), end, tensor);
    }
}

/* A state that grows has the strides of its bounds there, which the line does not say: it may use
 * its whole buffer. */
static bool is_growing_state(const char *line)
{
    const char *close = strchr(line, ']'), *next = strchr(line, '\n'),
               *said = strstr(line, "  state \"");
    if (!close || !next || !said || said > next)
        return false;
    for (const char *at = strchr(line, '['); at && at < close; at++)
        if (isalpha((unsigned char)*at))
            return true;
    return false;
}

/* "f32[B,128]", of the line of that name. */
static void read_tensor(const char *comment, const char *end, const char *name, size_t n,
                        char *tensor)
{
    for (const char *line = comment; (line = strstr(line, "\n *   ")) && line < end;) {
        line += strlen("\n *   ");
        if (strncmp(line, name, n) != 0 || line[n] != ' ')
            continue;
        if (is_growing_state(line))
            return;
        add_tensor(line + n + strspn(line + n, " "), end, tensor);
        if (*tensor)
            read_others(comment, end, name, n, tensor);
        return;
    }
}

/* "u8[4096,items]": a share of each work-item, or "threads", of each of a block. */
static void read_scratch(const char *kernel, const char *name, size_t n, char *tensor)
{
    static const struct {
        const char *index, *count;
    } share[] = {
        {"part * ", "items"}, {"thread * ", "threads"}, {"(part * threads + thread) * ", "items"}};
    char place[2 * MAX_NAME + 16];
    snprintf(place, sizeof place, "(%s + %.*s_at + ", name, (int)n, name);
    const char *at = strstr(kernel, place), *other = strstr(kernel + 1, "\n}\n");
    if (!at) {
        snprintf(place, sizeof place, "((unsigned char *)%s + ", name);
        at = strstr(kernel, place);
    }
    for (size_t i = 0; at && (!other || at < other) && i < sizeof share / sizeof *share; i++) {
        const char *number = at + strlen(place) + strlen(share[i].index);
        if (strncmp(at + strlen(place), share[i].index, strlen(share[i].index)) == 0)
            snprintf(tensor, MAX_NAME, "u8[%lld,%s]", strtoll(number, NULL, 10), share[i].count);
    }
}

void tensors_read(const char *text, const char *kernel, struct signature *s)
{
    const char *comment = comment_before(text, kernel);
    for (int i = 0; comment && i < s->n; i++) {
        struct parameter *p = &s->parameter[i];
        const size_t n = stem(p->name, "_in");
        if (n > 0 || p->kind == PARAMETER_GLOBAL)
            read_tensor(comment, kernel, p->name, n > 0 ? n : strlen(p->name), p->tensor);
        if (n > 0 && !*p->tensor)
            read_scratch(kernel, p->name, n, p->tensor);
    }
}

/* -------------------------------------------------------------------------------------- numbers */

/* What an expression of sizes is read from. */
struct reader {
    const char *at;
    const struct launch_values *v;
    bool is_unknown;
};

/* The number argument of a name: B_is of B. */
static bool find_number(const struct launch_values *v, const char *name, size_t n, const char *end,
                        int64_t *to)
{
    for (int i = 0; i < v->signature->n; i++) {
        const char *own = v->signature->parameter[i].name;
        if (v->value[i] && stem(own, end) == n && strncmp(own, name, n) == 0) {
            memcpy(to, v->value[i], sizeof *to);
            return true;
        }
    }
    return false;
}

static bool is_word(const char *name, size_t n, const char *word)
{
    return strlen(word) == n && strncmp(name, word, n) == 0;
}

static bool find_size(const struct launch_values *v, const char *name, size_t n, int64_t *to)
{
    if (is_word(name, n, "items"))
        *to = (int64_t)v->items;
    else if (is_word(name, n, "threads"))
        *to = (int64_t)v->threads;
    else
        return find_number(v, name, n, "_is", to);
    return true;
}

static int64_t read_sum(struct reader *r);

static int64_t read_factor(struct reader *r)
{
    int64_t x = 0;
    r->at += strspn(r->at, " ");
    if (*r->at == '(') {
        r->at++;
        x = read_sum(r);
        r->is_unknown |= *r->at != ')';
        r->at += *r->at == ')';
    } else if (isdigit((unsigned char)*r->at)) {
        char *end;
        x = strtoll(r->at, &end, 10);
        r->at = end;
    } else {
        size_t n = 0;
        while (isalnum((unsigned char)r->at[n]) || r->at[n] == '_')
            n++;
        r->is_unknown |= n == 0 || !find_size(r->v, r->at, n, &x);
        r->at += n;
    }
    r->at += strspn(r->at, " ");
    return x;
}

static int64_t read_product(struct reader *r)
{
    int64_t x = read_factor(r);
    while (!r->is_unknown && (*r->at == '*' || *r->at == '/')) {
        const bool divides = *r->at++ == '/';
        const int64_t y = read_factor(r);
        r->is_unknown |= divides && y == 0;
        if (!r->is_unknown)
            x = divides ? x / y : x * y;
    }
    return x;
}

static int64_t read_sum(struct reader *r)
{
    int64_t x = read_product(r);
    while (!r->is_unknown && (*r->at == '+' || *r->at == '-')) {
        const bool subtracts = *r->at++ == '-';
        const int64_t y = read_product(r);
        x = subtracts ? x - y : x + y;
    }
    return x;
}

/* Bytes of an element: the first number of the dtype's name are its bits. */
static size_t element_bytes(const char *dtype)
{
    const long bits = strtol(dtype + strcspn(dtype, "0123456789["), NULL, 10);
    return bits > 8 ? (size_t)bits / 8 : 1;
}

/* The bytes of "f32[B,128]". */
static bool tensor_bytes(const struct launch_values *v, const char *tensor, size_t *nbytes)
{
    struct reader r = {strchr(tensor, '['), v, !strchr(tensor, '[')};
    *nbytes = element_bytes(tensor);
    for (r.at += !r.is_unknown; !r.is_unknown && *r.at != ']'; r.at += *r.at == ',') {
        const int64_t size = read_sum(&r);
        r.is_unknown |= (*r.at != ',' && *r.at != ']') ||
                        __builtin_mul_overflow(*nbytes, size > 0 ? (size_t)size : 0, nbytes);
    }
    return !r.is_unknown;
}

bool tensor_extent(const struct launch_values *v, int i, size_t *from, size_t *nbytes)
{
    const struct parameter *p = &v->signature->parameter[i];
    const size_t named = stem(p->name, "_in");
    int64_t at = 0;
    size_t least = SIZE_MAX, most = 0;
    if (named > 0 && !find_number(v, p->name, named, "_at", &at) && !v->is_pointer)
        return false;
    for (const char *one = p->tensor; one; one = strchr(one, '|')) {
        size_t n;
        one += *one == '|';
        if (!tensor_bytes(v, one, &n))
            return false;
        least = n < least ? n : least;
        if (at >= 0 && (size_t)at <= *nbytes && n <= *nbytes - (size_t)at && n > most)
            most = n;
    }
    *from = (size_t)at;
    *nbytes = most ? most : least;
    return true;
}
