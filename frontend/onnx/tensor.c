/* tensor.c - decodes a TensorProto of any dtype into tgc's storage format.
 *
 * A tensor's elements are in one of these places, as the specification's comment on TensorProto
 * says:
 *
 *      raw_data, external data     little-endian elements; sub-byte kinds packed, first element
 *                                  in the low bits;
 *      float_data   f32;                           int64_data    i64;
 *      double_data  f64;                           uint64_data   u32 u64;
 *      int32_data   i32 i16 i8 u16 u8 bool, the bits of f16 bf16, fp8 and fp6 kinds,
 *                   bytes of packed elements of 2 and 4 bits;
 *      string_data  strings.
 *
 * Raw bytes, and typed fields whose C type is the storage type, are used in place. The rest is
 * converted into the arena: sub-byte elements to one byte each (signed kinds sign-extended, floats
 * as their bits), bool to 0 or 1.
 */
#include "frontend/onnx/onnx.h"

#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors are used in place: a little-endian host is required"
#endif

enum { MAX_SPARSE_NBYTES = 1 << 30 };

struct source { struct onnx_model *m; const struct place *at; const TensorProto *p; };

static void shape_text(struct text *x, const struct onnx_tensor *out)
{
    text_printf(x, "%s[", dtype_name(out->dtype));
    for (int i = 0; i < out->ndim; i++)
        text_printf(x, i ? ",%lld" : "%lld", (long long)out->dim[i]);
    text_putc(x, ']');
}

const char *onnx_dtype_hint(int data_type)
{
    return data_type == 14 || data_type == 15
               ? " (complex; give real and imaginary parts as a last axis of two, as DFT does)"
           : data_type == 0 ? " (undefined)"
                            : "";
}

/* Dims, dtype, element count. */
static bool decode_header(const struct source *s, struct onnx_tensor *out)
{
    struct tgc *t = s->m->tgc;
    const TensorProto *p = s->p;
    *out = (struct onnx_tensor){.name = p->name, .dtype = dtype_from_onnx(p->data_type)};
    if (out->dtype == DTYPE_VOID)
        return diag_error(t, s->at, "the tensor has data_type %d%s, which is not supported",
                          p->data_type, onnx_dtype_hint(p->data_type));
    if (p->segment)
        return diag_error(
            t, s->at,
            "the tensor is a segment of a larger one, which is not supported; save it whole");
    if (p->n_dims > MAX_RANK)
        return diag_error(t, s->at, "the tensor has rank %zu; at most %d is supported", p->n_dims,
                          MAX_RANK);
    out->ndim = (int)p->n_dims;
    out->nelem = 1;
    for (int i = 0; i < out->ndim; i++) {
        out->dim[i] = p->dims[i];
        if (p->dims[i] < 0)
            return diag_error(t, s->at, "dimension %d of the tensor is %lld; it cannot be negative",
                              i, (long long)p->dims[i]);
        if (p->dims[i] == 0)
            out->nelem = 0;
    }
    for (int i = 0; i < out->ndim && out->nelem; i++)
        if (!size_mul(out->nelem, (size_t)out->dim[i], &out->nelem) ||
            out->nelem > PTRDIFF_MAX / 16)
            return diag_error(t, s->at,
                              "the tensor's shape has more elements than can be addressed");
    /* cannot overflow: a dtype has at most 16 bytes */
    out->nbytes = out->nelem * dtype_nbytes(out->dtype);
    return true;
}

static bool wrong_count(const struct source *s, const struct onnx_tensor *out, const char *field,
                        size_t found, size_t expected)
{
    struct text x = {.t = s->m->tgc};
    shape_text(&x, out);
    return diag_error(s->m->tgc, s->at, "%s holds %zu %s; a tensor %s needs %zu", field, found,
                      strstr(field, "raw") || strstr(field, "external") ? "bytes" : "values", x.s,
                      expected);
}

/* A stream of bits, the low ones of each byte first: an element of 6 may begin in one byte and end
 * in the next. */
static void unpack_bits(struct onnx_tensor *out, const uint8_t *packed, uint8_t *to)
{
    unsigned bits = (unsigned)dtype_bits(out->dtype), sign = 1u << (bits - 1);
    bool is_signed = dtype_kind(out->dtype) == 'I';
    for (size_t i = 0; i < out->nelem; i++) {
        size_t byte = i / 8 * bits + i % 8 * bits / 8;
        unsigned shift = (unsigned)(i % 8) * bits % 8, v = packed[byte] >> shift;
        if (shift + bits > 8)
            v |= (unsigned)packed[byte + 1] << (8 - shift);
        v &= (1u << bits) - 1;
        to[i] = (uint8_t)(is_signed ? (v ^ sign) - sign : v);
    }
    out->data = to;
}

static size_t packed_nbytes(const struct onnx_tensor *out)
{
    size_t bits = (size_t)dtype_bits(out->dtype);
    return out->nelem / 8 * bits + (out->nelem % 8 * bits + 7) / 8;
}

static bool is_sub_byte(enum dtype d) { return dtype_bits(d) < 8; }

static bool decode_raw(const struct source *s, const char *field, const void *raw, size_t nraw,
                       struct onnx_tensor *out)
{
    struct tgc *t = s->m->tgc;
    if (out->dtype == DTYPE_STRING)
        return diag_error(t, s->at, "strings cannot be in %s; string_data is expected", field);
    size_t expected = is_sub_byte(out->dtype) ? packed_nbytes(out) : out->nbytes;
    if (nraw != expected)
        return wrong_count(s, out, field, nraw, expected);
    if (nraw == 0)
        return true;
    const uint8_t *bytes = raw;
    if (is_sub_byte(out->dtype)) {
        unpack_bits(out, bytes, mem_alloc(t, out->nelem));
    } else if (out->dtype == DTYPE_BOOL) {
        size_t i = 0;
        while (i < nraw && bytes[i] < 2)
            i++;
        out->data = raw;
        if (i < nraw) {
            uint8_t *to = mem_copy(t, raw, nraw);
            for (; i < nraw; i++)
                to[i] = to[i] != 0;
            out->data = to;
        }
    } else {
        bool aligned = (uintptr_t)raw % dtype_nbytes(out->dtype) == 0;
        out->data = aligned ? raw : mem_copy(t, raw, nraw);
    }
    return true;
}

static bool decode_int32(const struct source *s, struct onnx_tensor *out)
{
    struct tgc *t = s->m->tgc;
    const TensorProto *p = s->p;
    bool packed = is_sub_byte(out->dtype) && 8 % dtype_bits(out->dtype) == 0;
    size_t expected = packed ? packed_nbytes(out) : out->nelem;
    if (p->n_int32_data != expected)
        return wrong_count(s, out, "int32_data", p->n_int32_data, expected);
    if (out->dtype == DTYPE_I32) {
        out->data = p->int32_data;
        return true;
    }
    size_t width = dtype_nbytes(out->dtype);
    uint8_t *to = mem_alloc(t, expected * width);
    for (size_t i = 0; i < expected; i++) {
        uint32_t v = (uint32_t)p->int32_data[i];
        if (out->dtype == DTYPE_BOOL)
            v = v != 0;
        memcpy(to + i * width, &v, width); /* the low bytes: little-endian */
    }
    out->data = to;
    if (packed)
        unpack_bits(out, to, mem_alloc(t, out->nelem));
    return true;
}

static bool decode_uint64(const struct source *s, struct onnx_tensor *out)
{
    const TensorProto *p = s->p;
    if (p->n_uint64_data != out->nelem)
        return wrong_count(s, out, "uint64_data", p->n_uint64_data, out->nelem);
    out->data = p->uint64_data;
    if (out->dtype == DTYPE_U64)
        return true;
    uint32_t *to = mem_array(s->m->tgc, out->nelem, sizeof *to);
    for (size_t i = 0; i < out->nelem; i++)
        to[i] = (uint32_t)p->uint64_data[i];
    out->data = to;
    return true;
}

static bool decode_strings(const struct source *s, struct onnx_tensor *out)
{
    struct tgc *t = s->m->tgc;
    const TensorProto *p = s->p;
    if (p->n_string_data != out->nelem)
        return wrong_count(s, out, "string_data", p->n_string_data, out->nelem);
    const char **to = mem_array(t, out->nelem, sizeof *to);
    for (size_t i = 0; i < out->nelem; i++) {
        const ProtobufCBinaryData *b = &p->string_data[i];
        if (b->len && memchr(b->data, 0, b->len))
            return diag_error(
                t, s->at, "string %zu holds a NUL character; strings with NULs are not supported",
                i);
        char *copy = mem_alloc(t, b->len + 1);
        if (b->len)
            memcpy(copy, b->data, b->len);
        to[i] = copy;
    }
    out->data = to;
    return true;
}

static bool decode_typed(const struct source *s, struct onnx_tensor *out)
{
    const TensorProto *p = s->p;
    switch (out->dtype) {
    case DTYPE_F32:
        out->data = p->float_data;
        return p->n_float_data == out->nelem
                   ? true
                   : wrong_count(s, out, "float_data", p->n_float_data, out->nelem);
    case DTYPE_F64:
        out->data = p->double_data;
        return p->n_double_data == out->nelem
                   ? true
                   : wrong_count(s, out, "double_data", p->n_double_data, out->nelem);
    case DTYPE_I64:
        out->data = p->int64_data;
        return p->n_int64_data == out->nelem
                   ? true
                   : wrong_count(s, out, "int64_data", p->n_int64_data, out->nelem);
    case DTYPE_U32:
    case DTYPE_U64:
        return decode_uint64(s, out);
    case DTYPE_STRING:
        return decode_strings(s, out);
    default:
        return decode_int32(s, out);
    }
}

/* Whether the elements are in one place only. */
static bool has_one_store(const struct source *s)
{
    const TensorProto *p = s->p;
    bool external = p->data_location == TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    const struct { const char *name; bool used; } store[] = {
        {"external data", external},
        {"raw_data", p->has_raw_data && p->raw_data.len},
        {"float_data", p->n_float_data},
        {"int32_data", p->n_int32_data},
        {"string_data", p->n_string_data},
        {"int64_data", p->n_int64_data},
        {"double_data", p->n_double_data},
        {"uint64_data", p->n_uint64_data},
    };
    const char *found = NULL;
    for (size_t i = 0; i < sizeof store / sizeof *store; i++) {
        if (!store[i].used)
            continue;
        if (found)
            return diag_error(s->m->tgc, s->at,
                              "the tensor '%.100s' has %s and %s; one of them is expected",
                              p->name ? p->name : "", found, store[i].name);
        found = store[i].name;
    }
    return true;
}

bool onnx_decode_tensor(struct onnx_model *m, const struct place *at, const TensorProto *p,
                        struct onnx_tensor *out)
{
    struct source s = {m, at, p};
    if (!decode_header(&s, out) || !has_one_store(&s))
        return false;
    bool ok;
    if (p->data_location == TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
        const void *data;
        size_t nbytes;
        ok = onnx_map_external(m, at, p, &data, &nbytes) &&
             decode_raw(&s, "the external data", data, nbytes, out);
    } else if (p->has_raw_data && !(p->raw_data.len == 0 && out->nelem)) {
        ok = decode_raw(&s, "raw_data", p->raw_data.data, p->raw_data.len, out);
    } else {
        /* also where writers set an empty raw_data next to the typed field */
        ok = decode_typed(&s, out);
    }
    static const double nothing[2]; /* an empty tensor's data is no null pointer */
    if (ok && !out->nelem)
        out->data = nothing;
    return ok;
}

/* Flat position of entry k, from linear indices [nnz] or coordinates [nnz, rank]. */
static bool sparse_position(const struct onnx_tensor *out, const struct onnx_tensor *index,
                            size_t k, size_t *position)
{
    const int64_t *v = index->data;
    if (index->ndim == 1) {
        *position = (size_t)v[k];
        return v[k] >= 0 && (size_t)v[k] < out->nelem;
    }
    *position = 0;
    for (int i = 0; i < out->ndim; i++) {
        int64_t c = v[k * (size_t)out->ndim + (size_t)i];
        if (c < 0 || c >= out->dim[i])
            return false;
        *position = *position * (size_t)out->dim[i] + (size_t)c;
    }
    return true;
}

bool onnx_decode_sparse_tensor(struct onnx_model *m, const struct place *at,
                               const SparseTensorProto *p, struct onnx_tensor *out)
{
    struct tgc *t = m->tgc;
    struct onnx_tensor values, index;
    if (!p->values || !p->indices)
        return diag_error(t, at, "the sparse tensor lacks its values or its indices");
    if (!onnx_decode_tensor(m, at, p->values, &values) ||
        !onnx_decode_tensor(m, at, p->indices, &index))
        return false;
    TensorProto header = TENSOR_PROTO__INIT;
    header.name = p->values->name;
    header.data_type = p->values->data_type;
    header.dims = p->dims;
    header.n_dims = p->n_dims;
    if (!decode_header(&(struct source){m, at, &header}, out))
        return false;
    bool linear = index.ndim == 1, coordinates = index.ndim == 2 && index.dim[1] == out->ndim;
    if (values.ndim != 1 || index.dtype != DTYPE_I64 || !(linear || coordinates) ||
        index.dim[0] != values.dim[0])
        return diag_error(t, at,
                          "the sparse tensor's indices must be int64 of shape [n] or [n, rank], "
                          "its values of shape [n]");
    if (out->nbytes > MAX_SPARSE_NBYTES || out->dtype == DTYPE_STRING)
        return diag_error(
            t, at,
            "the sparse tensor has %zu elements, too many to store densely, or is of strings",
            out->nelem);
    size_t width = dtype_nbytes(out->dtype);
    uint8_t *to = mem_alloc(t, out->nbytes);
    for (size_t k = 0, last = 0; k < values.nelem; k++) {
        size_t position;
        if (!sparse_position(out, &index, k, &position))
            return diag_error(t, at, "index %zu of the sparse tensor is outside its shape", k);
        if (k && position <= last)
            return diag_error(t, at, "index %zu of the sparse tensor is not above the one before; "
                                     "indices ascend, and none comes twice", k);
        last = position;
        memcpy(to + position * width, (const uint8_t *)values.data + k * width, width);
    }
    out->data = to;
    return true;
}
