/* weights.c - the model's weights: declared as one struct of pointers before the kernels, defined
 * at the end of the file.
 *
 *   - string: each weight is a union of bytes and its type, initialized by a string literal in
 *     ASCII: 2.7 characters a byte. gcc takes a megabyte in 0.5 s and 34 MB, an array of floats in
 *     3 s and 88 MB, of hexadecimal words in 3.3 s and 78 MB; clang 0.2, 4.7 and 1.4 s.
 *   - array: typed arrays of numbers, for people who want to read them.
 *   - incbin: NAME.weights, included by #embed where the compiler has it, else by the assembler.
 *   - file: NAME.weights, mapped or read by the caller and given to NAME_init. The only form that
 *     no linker limits.
 */
#include "backends/program/program.h"

#include <string.h>

enum { LINE_BYTES = 100, PIECE_BYTES = 1 << 20 };

enum weights_mode program_weights_mode(const struct schedule *s, enum weights_mode wanted)
{
    if (wanted != WEIGHTS_AUTO)
        return wanted;
    return s->weight_nbytes >= WEIGHTS_FILE_FROM     ? WEIGHTS_FILE
           : s->weight_nbytes >= WEIGHTS_INCBIN_FROM ? WEIGHTS_INCBIN
                                                     : WEIGHTS_STRING;
}

static bool is_string(const struct buffer *b) { return b->dtype == DTYPE_STRING; }

static size_t weight_nelem(const struct buffer *b) { return b->nbytes / dtype_nbytes(b->dtype); }

/* Equal weights share one place: the first of them holds the numbers. */
static const struct buffer *weight_holder(const struct buffer *b)
{
    return b->weight.same ? b->weight.same : b;
}

/* *packed: the copy that this takes, to be released. */
static const void *stored_bytes(struct tgc *t, const struct buffer *b, struct held **packed)
{
    void **copy;
    *packed = held_heap(t, &copy);
    const void *bytes = view_stored_bytes(b, copy);
    if (!bytes) {
        t->exhausted = true;
        diag_error(t, NULL, "out of memory while packing a weight of %zu bytes", b->nbytes);
        tgc_stop(t);
    }
    return bytes;
}

static void swap_numbers(unsigned char *p, size_t nbytes, size_t of_one)
{
    for (size_t at = 0; at < nbytes; at += of_one)
        for (size_t i = 0; i < of_one / 2; i++) {
            unsigned char low = p[at + i];
            p[at + i] = p[at + of_one - 1 - i];
            p[at + of_one - 1 - i] = low;
        }
}

/* What is not written as it is in memory is written in pieces, so that no large
 * weight is there twice. */
static bool write_stored(const struct buffer *b, const struct byte_sink *sink, unsigned char *piece)
{
    bool swapped = sink->swapped && dtype_nbytes(b->dtype) > 1;
    if (!b->storage && !swapped)
        return sink->write(sink->context, b->weight.data, b->nbytes);
    for (size_t at = 0, n; at < b->nbytes; at += n) {
        n = b->nbytes - at < PIECE_BYTES ? b->nbytes - at : PIECE_BYTES;
        view_copy_stored(b, at, n, piece);
        if (swapped)
            swap_numbers(piece, n, dtype_nbytes(b->dtype));
        if (!sink->write(sink->context, piece, n))
            return false;
    }
    return true;
}

/* The next one that has bytes of its own, from *i on; NULL: there is none. */
static const struct buffer *next_weight(const struct schedule *s, int *i)
{
    while (*i < s->nweight) {
        const struct buffer *b = s->weight[(*i)++];
        if (!is_string(b) && weight_holder(b) == b && b->nbytes)
            return b;
    }
    return NULL;
}

bool program_write_weights(struct tgc *t, const struct schedule *s, const struct byte_sink *sink)
{
    static const unsigned char zeros[4096] = {0};
    struct mem_mark mark = scratch_mark(t);
    unsigned char *piece = scratch_array(t, PIECE_BYTES, 1);
    size_t at = 0;
    int i = 0;
    for (const struct buffer *b; (b = next_weight(s, &i)); at += b->nbytes) {
        if (b->offset < at)
            TGC_BUG(t, "weight %d lies at %zu, before the end of the one before it", i - 1,
                    b->offset);
        while (at < b->offset) {
            size_t n = b->offset - at < sizeof zeros ? b->offset - at : sizeof zeros;
            if (!sink->write(sink->context, zeros, n))
                return false;
            at += n;
        }
        if (!write_stored(b, sink, piece))
            return false;
    }
    scratch_release(t, mark);
    return true;
}

void program_copy_weights(const struct schedule *s, unsigned char *to, bool swapped)
{
    size_t at = 0;
    int i = 0;
    for (const struct buffer *b; (b = next_weight(s, &i)); at = b->offset + b->nbytes) {
        memset(to + at, 0, b->offset - at);
        view_copy_stored(b, 0, b->nbytes, to + b->offset);
        if (swapped && dtype_nbytes(b->dtype) > 1)
            swap_numbers(to + b->offset, b->nbytes, dtype_nbytes(b->dtype));
    }
    memset(to + at, 0, s->weight_nbytes - at);
}

/* ----------------------------------------------------------------------------------- the struct */

void weights_write_declaration(struct program *p, struct text *out)
{
    if (p->s->nweight == 0)
        return;
    if (p->weights == WEIGHTS_OBJECT)
        text_puts(out, "/* The model's weights, which the kernels' object holds. */\n");
    else if (p->weights == WEIGHTS_INCBIN || p->weights == WEIGHTS_FILE)
        text_printf(out, "/* The model's weights, which %s.weights holds. */\n", p->name);
    else
        text_puts(out, "/* The model's weights; their numbers stand at the end of this file. */\n");
    text_puts(out, "struct weights {\n");
    for (int i = 0; i < p->s->nweight; i++) {
        const struct buffer *b = p->s->weight[i];
        size_t start = out->n;
        text_printf(out, "    %s%s;", const_pointer(b->dtype), p->buffer_name[b->id]);
        text_pad(out, start, 40);
        text_printf(out, " /* %s", dtype_name(b->dtype));
        text_dims(out, b->dim, b->ndim, "[", "]");
        if (b->name && strcmp(b->name, p->buffer_name[b->id]) != 0) {
            text_puts(out, " \"");
            text_comment(out, b->name);
            text_putc(out, '"');
        }
        text_puts(out, " */\n");
    }
    text_puts(out, "};\n");
    if (p->weights == WEIGHTS_FILE)
        text_puts(out, "static struct weights place_weights(const unsigned char *base);\n\n");
    else
        text_puts(out, "static const struct weights *get_weights(void);\n\n");
}

/* ------------------------------------------------------------------------------------- the data */

static void write_as_string(struct program *p, struct text *out, const struct buffer *b)
{
    size_t n = weight_nelem(b) > 0 ? weight_nelem(b) : 1;
    text_printf(out,
                "alignas(64) static const union { unsigned char byte[%zu]; %s value[%zu]; } %s_data "
                "WEIGHTS_PLACE = {",
                b->nbytes + 1, dtype_ctype(b->dtype), n, p->buffer_name[b->id]);
    struct held *packed;
    text_literal(out, stored_bytes(p->t, b, &packed), b->nbytes);
    held_release(packed);
    text_puts(out, "};\n");
}

static void write_number(struct text *out, const struct buffer *b, const unsigned char *bytes,
                         size_t i)
{
    const unsigned char *at = bytes + i * dtype_nbytes(b->dtype);
    uint16_t half;
    if (b->dtype == DTYPE_F32 || b->dtype == DTYPE_TF32) {
        text_float(out, (float)scalar_load(b->dtype, at).f);
    } else if (b->dtype == DTYPE_F64) {
        text_double(out, scalar_load(b->dtype, at).f);
    } else if (dtype_is_float(b->dtype)) {
        half = at[0];
        if (dtype_nbytes(b->dtype) == 2)
            memcpy(&half, at, 2);
        text_printf(out, "0x%x", half);
    } else if (b->dtype == DTYPE_U64) {
        text_printf(out, "UINT64_C(%llu)", (unsigned long long)scalar_load(b->dtype, at).i);
    } else {
        int64_t v = scalar_load(b->dtype, at).i;
        bool narrow = v > INT32_MIN && v <= INT32_MAX;
        text_printf(out,
                    v == INT64_MIN ? "INT64_MIN"
                    : narrow       ? "%lld"
                                   : "INT64_C(%lld)",
                    (long long)v);
    }
}

static void write_as_array(struct program *p, struct text *out, const struct buffer *b)
{
    size_t n = weight_nelem(b);
    struct held *packed;
    const unsigned char *bytes = stored_bytes(p->t, b, &packed);
    text_printf(out, "alignas(64) static const %s %s_data[%zu] WEIGHTS_PLACE = {",
                dtype_ctype(b->dtype), p->buffer_name[b->id], n > 0 ? n : 1);
    size_t start = out->n;
    for (size_t i = 0; i < n || i == 0; i++) {
        if (i == 0 || out->n - start > LINE_BYTES - 16) {
            text_puts(out, "\n    ");
            start = out->n;
        }
        if (n == 0)
            text_puts(out, "0");
        else
            write_number(out, b, bytes, i);
        if (i + 1 < n)
            text_puts(out, ", ");
    }
    text_puts(out, "};\n");
    held_release(packed);
}

static void write_strings(struct program *p, struct text *out, const struct buffer *b)
{
    const char *const *s = b->weight.data;
    size_t n = weight_nelem(b);
    text_printf(out, "static const char *const %s_data[%zu] = {", p->buffer_name[b->id],
                n > 0 ? n : 1);
    for (size_t i = 0; i < n; i++) {
        text_puts(out, "\n    ");
        text_string(out, s[i]);
        text_putc(out, ',');
    }
    text_puts(out, n > 0 ? "\n};\n" : "\"\"};\n");
}

static const char *weight_address(struct program *p, const struct buffer *b, const char *base)
{
    const char *data = p->buffer_name[weight_holder(b)->id];
    if (is_string(b) || p->weights == WEIGHTS_ARRAY)
        return mem_printf(p->t, "%s_data", data);
    if (p->weights == WEIGHTS_STRING)
        return mem_printf(p->t, "%s_data.value", data);
    return mem_printf(p->t, "(const %s *)(const void *)(%s + %zu)", dtype_ctype(b->dtype), base,
                      b->offset);
}

static void write_pointers(struct program *p, struct text *out, const char *base)
{
    for (int i = 0; i < p->s->nweight; i++)
        text_printf(out, "        %s,\n", weight_address(p, p->s->weight[i], base));
}

/* Numbers in a C file have the target's byte order; bytes need a fixed one. */
static const char order_text[] =
    "#if defined __BYTE_ORDER__ && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__\n"
    "#error \"these weights are bytes, the least significant first: let tgc write numbers by "
    "--weights=array\"\n#endif\n\n";

/* Microsoft's compiler says only that a string is too big. */
enum { STRING_MOST = 65535 };
static const char string_text[] =
    "#if defined _MSC_VER && !defined __clang__\n"
    "#error \"strings of more than 65,535 bytes: let tgc write the weights by --weights=array or "
    "file\"\n#endif\n\n";

static const char place_text[] =
    "/* -DMODEL_WEIGHTS_SECTION='\".flash\"' puts them into a section of the linker's. */\n"
    "#ifdef MODEL_WEIGHTS_SECTION\n"
    "#define WEIGHTS_PLACE __attribute__((section(MODEL_WEIGHTS_SECTION)))\n"
    "#else\n#define WEIGHTS_PLACE\n#endif\n\n";

static bool has_long_string(const struct schedule *s)
{
    int i = 0;
    for (const struct buffer *b; (b = next_weight(s, &i));)
        if (b->nbytes >= STRING_MOST)
            return true;
    return false;
}

/* Definitions that the data below needs. */
static void write_data_prelude(struct program *p, struct text *out)
{
    bool has_numbers = false;
    for (int i = 0; i < p->s->nweight; i++)
        has_numbers |= !is_string(p->s->weight[i]);
    if (!has_numbers)
        return;
    if (p->weights == WEIGHTS_OBJECT) {
        text_printf(out, "extern const unsigned char %s_weights_data[] "
                         "__attribute__((visibility(\"hidden\")));\n",
                    p->name);
        return;
    }
    if (p->weights != WEIGHTS_ARRAY)
        text_puts(out, order_text);
    if (p->weights == WEIGHTS_STRING && has_long_string(p->s))
        text_puts(out, string_text);
    if (p->weights != WEIGHTS_FILE)
        program_write_text(p, out, place_text);
    if (p->weights == WEIGHTS_INCBIN)
        program_write_text(p, out, snippet_find("incbin")->text);
}

void weights_write_data(struct program *p, struct text *out)
{
    if (p->s->nweight == 0)
        return;
    text_puts(
        out,
        "/* -------------------------------------------------------------------------------------- "
        "weights */\n\n");
    write_data_prelude(p, out);
    for (int i = 0; i < p->s->nweight; i++) {
        const struct buffer *b = p->s->weight[i];
        if (weight_holder(b) != b)
            continue;
        if (is_string(b))
            write_strings(p, out, b);
        else if (p->weights == WEIGHTS_STRING)
            write_as_string(p, out, b);
        else if (p->weights == WEIGHTS_ARRAY)
            write_as_array(p, out, b);
    }
    if (p->weights == WEIGHTS_FILE) {
        text_puts(out, "\nstatic struct weights place_weights(const unsigned char *base)\n{\n    "
                       "const struct weights table = {\n");
        write_pointers(p, out, "base");
        text_puts(out, "    };\n    return table;\n}\n\n");
        return;
    }
    text_puts(out, "\nstatic const struct weights *get_weights(void)\n{\n    static const struct "
                   "weights table = {\n");
    write_pointers(p, out, mem_printf(p->t, "%s_weights_data", p->name));
    text_puts(out, "    };\n    return &table;\n}\n\n");
}
