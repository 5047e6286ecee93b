/* slice.c - names for parts of an output, and what a program says of itself: both are data that
 * NAME_describe() returns, and change nothing that is computed.
 *
 *      output %y as "policy" {plan=990, desire_state=8, pad=2}   contiguous along the last axis
 *      meta "frequency" = "20"
 */
#include "frontend/text/reader.h"

#include <string.h>

bool read_meta(struct reader *r)
{
    struct token at = r->token;
    struct graph_meta m;
    if (!read_text(r, &m.key, "a key") || !expect(r, '=', "and its value") ||
        !read_text(r, &m.value, "its value"))
        return false;
    if (r->region)
        return read_error(r, &at, "meta inside an entry or a region: it is of the whole program");
    for (int i = 0; i < r->nmeta; i++)
        if (!strcmp(r->meta[i].key, m.key))
            return read_error(r, &at, "there is a value of \"%.100s\" already", m.key);
    VEC_PUSH(r->t, r->meta, r->nmeta, r->cap_meta, m);
    return true;
}

/* name "=" size */
static bool read_slice(struct reader *r, const struct graph_output *output, struct graph_slice *s)
{
    struct token at = r->token;
    if (at.kind != TOKEN_NAME)
        return at.kind == TOKEN_BAD
                   ? false
                   : read_error(r, &at, "found %s, expected the name of a part of the output",
                                token_describe(r, &at));
    s->name = at.text;
    for (int i = 0; i < output->nslice; i++)
        if (!strcmp(output->slice[i].name, s->name))
            return read_error(r, &at, "there is a part '%.100s' already", s->name);
    lex_next(r);
    if (!expect(r, '=', "and how many elements it has"))
        return false;
    at = r->token;
    if (!token_int(&at, &s->size) || s->size < 1)
        return at.kind == TOKEN_BAD ? false
                                    : read_error(r, &at, "found %s, expected a number of elements",
                                                 token_describe(r, &at));
    lex_next(r);
    return true;
}

bool read_slices(struct reader *r, struct graph_output *output)
{
    struct token at = r->token;
    int64_t n, sum = 0;
    size_t cap = 0;
    if (!accept(r, '{'))
        return true;
    if (output->value->ndim == 0 || !uop_const_int(output->value->dim[output->value->ndim - 1], &n))
        return read_error(r, &at, "an output has parts along a last axis of fixed size");
    do {
        struct graph_slice s = {.begin = sum};
        if (!read_slice(r, output, &s))
            return false;
        if (s.size > n - sum)
            return read_error(r, &at,
                              "the parts have more elements than the last axis, which has %lld",
                              (long long)n);
        sum += s.size;
        VEC_PUSH(r->t, output->slice, output->nslice, cap, s);
    } while (accept(r, ','));
    if (sum < n)
        return read_error(
            r, &at,
            "the parts have %lld of the %lld elements of the last axis: name the others, too",
            (long long)sum, (long long)n);
    return expect(r, '}', "after the parts");
}
