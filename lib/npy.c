/* npy.c - tensors in files: NumPy's .npy, and ONNX's TensorProto.
 *
 *      \x93NUMPY major minor | length of header, 2 bytes (version 1) or 4 | header | elements
 *      header: {'descr': '<f4', 'fortran_order': False, 'shape': (1, 8), } padded with blanks, a
 *      newline last
 *
 * A file is data of unknown origin: the header's length, the shape and the file's size must agree
 * before anything is allocated. source: numpy.lib.format. dtypes that NumPy lacks are stored as
 * integers with their bits, strings as rows of UCS-4 ('U' and the number of characters), padded
 * with zeros.
 */
#include "lib/lib.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_HEADER = 1 << 16, MAX_STRING = 1 << 24 };

/* A dtype in the file: NumPy's kind and the bytes of an element. */
static char npy_kind(enum dtype d)
{
    switch (dtype_kind(d)) {
    case 'B':
        return 'b';
    case 'I':
        return 'i';
    case 'U':
        return 'u';
    default:
        return d == DTYPE_F16 || d == DTYPE_F32 || d == DTYPE_F64 ? 'f' : 'u';
    }
}

/* The dtype of a kind and size alone; VOID: none. */
static enum dtype npy_dtype(char kind, int size)
{
    static const enum dtype natural[] = {DTYPE_BOOL, DTYPE_I8,  DTYPE_I16, DTYPE_I32,
                                         DTYPE_I64,  DTYPE_U8,  DTYPE_U16, DTYPE_U32,
                                         DTYPE_U64,  DTYPE_F16, DTYPE_F32, DTYPE_F64};
    for (size_t i = 0; i < sizeof natural / sizeof *natural; i++)
        if (npy_kind(natural[i]) == kind && (int)dtype_nbytes(natural[i]) == size)
            return natural[i];
    return DTYPE_VOID;
}

/* Whether NumPy lacks d. ml_dtypes writes such elements as bytes without a kind, '<V1', '<V2', and
 * f8e5m2 as '<f1'. */
static bool is_kind_of_bits(enum dtype d, char kind, int size)
{
    return npy_dtype(npy_kind(d), (int)dtype_nbytes(d)) != d &&
           (kind == 'V' || (kind == 'f' && size == 1));
}

struct header { bool swap, fortran; char kind; int size; int ndim; int64_t dim[MAX_RANK]; };

/* The text after 'key': in a dict; NULL: it is not there. */
static const char *find_key(const char *s, const char *key)
{
    for (const char *p = s; (p = strstr(p, key)); p++) {
        if (p == s || (p[-1] != '\'' && p[-1] != '"'))
            continue;
        const char *after = p + strlen(key);
        if (*after != '\'' && *after != '"')
            continue;
        after += 1 + strspn(after + 1, " ");
        return *after == ':' ? after + 1 + strspn(after + 1, " ") : NULL;
    }
    return NULL;
}

static const char *parse_descr(const char *s, struct header *h)
{
    if (!s || (*s != '\'' && *s != '"'))
        return "its header has no element type";
    char order = *++s;
    if (order != '<' && order != '>' && order != '|' && order != '=')
        return "its elements are no plain numbers";
    h->kind = s[1];
    char *end;
    bool is_text = h->kind == 'U';
    long size = isdigit((unsigned char)s[2]) ? strtol(s + 2, &end, 10) : -1;
    if (size < !is_text || size > (is_text ? MAX_STRING : 16) || (*end != '\'' && *end != '"'))
        return "its elements are no plain numbers or strings";
    h->size = (int)size;
    h->swap = order == '>' && (size > 1 || is_text);
    return NULL;
}

static const char *parse_shape(const char *s, struct header *h)
{
    if (!s || *s++ != '(')
        return "its header has no shape";
    for (;;) {
        s += strspn(s, " ,");
        if (*s == ')')
            return NULL;
        char *end;
        errno = 0;
        long long n = isdigit((unsigned char)*s) ? strtoll(s, &end, 10) : -1;
        if (n < 0 || errno || h->ndim == MAX_RANK)
            return "its shape is malformed, or of rank over 16";
        h->dim[h->ndim++] = n;
        s = end + (*end == 'L');
    }
}

/* Reads up to the first element. NULL: success, else what is wrong. */
static const char *read_header(struct tgc *t, FILE *f, struct header *h)
{
    unsigned char start[12];
    *h = (struct header){0};
    if (fread(start, 1, 10, f) != 10 || memcmp(start, "\x93NUMPY", 6) != 0)
        return "it is no .npy file";
    if (start[6] < 1 || start[6] > 3)
        return "its version of the .npy format is not known";
    size_t n = start[8] | (size_t)start[9] << 8;
    if (start[6] > 1) {
        if (fread(start + 10, 1, 2, f) != 2)
            return "it is cut off";
        n |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    }
    if (n > MAX_HEADER)
        return "its header is absurdly long";
    char *text = mem_alloc(t, n + 1);
    if (fread(text, 1, n, f) != n)
        return "it is cut off";
    const char *fault = parse_descr(find_key(text, "descr"), h);
    if (!fault)
        fault = parse_shape(find_key(text, "shape"), h);
    const char *fortran = find_key(text, "fortran_order");
    h->fortran = fortran && strncmp(fortran, "True", 4) == 0;
    return fault;
}

static void swap_bytes(struct array *v)
{
    size_t width = dtype_nbytes(v->dtype);
    for (size_t i = 0; i < v->nelem; i++) {
        unsigned char *p = (unsigned char *)v->data + i * width;
        for (size_t a = 0, b = width - 1; a < b; a++, b--) {
            unsigned char c = p[a];
            p[a] = p[b];
            p[b] = c;
        }
    }
}

/* ml_dtypes' int4 and int2 are bits below zeros; here they are bytes of their values. */
static void extend_sign(struct array *v)
{
    int half = 1 << (dtype_bits(v->dtype) - 1);
    signed char *p = v->data;
    for (size_t i = 0; i < v->nelem; i++)
        p[i] = (signed char)(((p[i] & (2 * half - 1)) ^ half) - half);
}

/* Column-major to row-major, walking the file's order with a counter. */
static bool reorder(struct tgc *t, struct array *v)
{
    size_t width = dtype_nbytes(v->dtype), stride[MAX_RANK + 1];
    struct array to = *v;
    if (!array_allocate(t, &to))
        return false;
    stride[v->ndim] = 1;
    for (int i = v->ndim - 1; i >= 0; i--)
        stride[i] = stride[i + 1] * (size_t)v->dim[i];
    int64_t at[MAX_RANK] = {0};
    size_t offset = 0;
    for (size_t i = 0; i < v->nelem; i++) {
        memcpy((char *)to.data + offset * width, (const char *)v->data + i * width, width);
        for (int axis = 0; axis < v->ndim; axis++) {
            offset += stride[axis + 1];
            if (++at[axis] < v->dim[axis])
                break;
            offset -= stride[axis];
            at[axis] = 0;
        }
    }
    *v = to;
    return true;
}

/* needs: room for 4 bytes. */
static size_t put_utf8(char *to, uint32_t c)
{
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    to[0] = (char)(lead[more] | c >> 6 * more);
    for (int i = 1; i <= more; i++)
        to[i] = (char)(0x80 | (c >> 6 * (more - i) & 0x3f));
    return (size_t)more + 1;
}

/* The next character; invalid UTF-8 gives some character, and the end is never passed. */
static uint32_t get_utf8(const char **from)
{
    const unsigned char *s = (const unsigned char *)*from;
    int more = s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 1 : s[0] < 0xf0 ? 2 : 3, i = 1;
    uint32_t c = more ? s[0] & (0x3fu >> more) : s[0];
    for (; i <= more && (s[i] & 0xc0) == 0x80; i++)
        c = c << 6 | (s[i] & 0x3f);
    *from += i;
    return c;
}

static bool read_strings(struct tgc *t, const struct place *at, FILE *f, const struct header *h,
                         struct array *v)
{
    size_t width = (size_t)h->size;
    unsigned char *row = mem_alloc(t, 4 * width + 1);
    char *utf8 = mem_alloc(t, 4 * width + 1);
    for (size_t i = 0; i < v->nelem; i++) {
        size_t n = 0;
        if (fread(row, 4, width, f) != width)
            return diag_error(t, at, "it is cut off");
        for (size_t k = 0; k < width; k++) {
            const unsigned char *s = row + 4 * k;
            uint32_t c = h->swap ? (uint32_t)s[0] << 24 | (uint32_t)s[1] << 16 |
                                       (uint32_t)s[2] << 8 | s[3]
                                 : (uint32_t)s[3] << 24 | (uint32_t)s[2] << 16 |
                                       (uint32_t)s[1] << 8 | s[0];
            if (c > 0x10ffff)
                return diag_error(t, at, "string %zu has a character beyond Unicode", i);
            n += c ? put_utf8(utf8 + n, c) : 0;
        }
        utf8[n] = 0;
        ((char **)v->data)[i] = mem_copy(t, utf8, n + 1);
    }
    return true;
}

static bool read_elements(struct tgc *t, const struct place *at, FILE *f, const struct header *h,
                          struct array *v)
{
    struct stat st;
    bool is_text = v->dtype == DTYPE_STRING;
    size_t need = is_text ? 4 * (size_t)h->size : dtype_nbytes(v->dtype);
    v->ndim = h->ndim;
    for (int i = 0; i < h->ndim; i++) {
        v->dim[i] = h->dim[i];
        if (!size_mul(need, (size_t)h->dim[i], &need))
            return diag_error(t, at, "its shape has more elements than can be addressed");
    }
    long position = ftell(f);
    bool is_regular = fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode) && position >= 0;
    if (is_regular && (size_t)(st.st_size - position) != need)
        return diag_error(t, at, "%zu bytes of elements follow its header; its shape %s needs %zu",
                          (size_t)(st.st_size - position), array_type_text(t, v), need);
    if (!array_allocate(t, v) || (is_text && !read_strings(t, at, f, h, v)))
        return false;
    if (!is_text && fread(v->data, 1, v->nbytes, f) != v->nbytes)
        return diag_error(t, at, "it is cut off: its shape %s needs %zu bytes",
                          array_type_text(t, v), v->nbytes);
    if (h->swap && !is_text)
        swap_bytes(v);
    if (v->dtype == DTYPE_BOOL)
        for (size_t i = 0; i < v->nelem; i++)
            ((uint8_t *)v->data)[i] = ((uint8_t *)v->data)[i] != 0;
    if (h->kind == 'V' && dtype_kind(v->dtype) == 'I')
        extend_sign(v);
    return h->fortran && v->ndim > 1 && v->nelem ? reorder(t, v) : true;
}

bool npy_read(struct tgc *t, const char *path, enum dtype wanted, struct array *v)
{
    struct place at = {.file = path};
    struct held *held;
    FILE *f = held_fopen(t, path, "re", &held);
    struct header h;
    if (!f)
        return diag_error(t, &at, "cannot be opened: %s", strerror(errno));
    const char *fault = read_header(t, f, &h);
    bool ok = !fault;
    if (fault)
        diag_error(t, &at, "%s; a .npy file is expected", fault);
    *v = (struct array){.dtype = wanted != DTYPE_VOID || !ok ? wanted
                                 : h.kind == 'U'             ? DTYPE_STRING
                                                             : npy_dtype(h.kind, h.size)};
    if (ok && v->dtype == DTYPE_VOID)
        ok = diag_error(t, &at,
                        "it holds elements of the kind '%c%d', which no tensor here has", h.kind,
                        h.size);
    bool is_text = v->dtype == DTYPE_STRING;
    bool fits = ok && (is_text ? h.kind == 'U'
                               : h.size == (int)dtype_nbytes(v->dtype) &&
                                     (h.kind == npy_kind(v->dtype) ||
                                      is_kind_of_bits(v->dtype, h.kind, h.size)));
    if (ok && !fits && is_text)
        ok = diag_error(t, &at, "its elements are '%c%d'; strings ('U') are expected", h.kind,
                        h.size);
    else if (ok && !fits)
        ok = diag_error(t, &at, "its elements are '%c%d'; '%c%d' (%s) is expected", h.kind, h.size,
                        npy_kind(v->dtype), (int)dtype_nbytes(v->dtype), dtype_name(v->dtype));
    ok = ok && read_elements(t, &at, f, &h, v);
    held_release(held);
    return ok;
}

static const char *string_at(const struct array *v, size_t i)
{
    const char *s = ((const char *const *)v->data)[i];
    return s ? s : "";
}

/* The length of the longest string; at least 1, as in NumPy. */
static size_t longest_string(const struct array *v)
{
    size_t longest = 1;
    for (size_t i = 0; i < v->nelem; i++) {
        size_t n = 0;
        for (const char *s = string_at(v, i); *s; n++)
            get_utf8(&s);
        longest = n > longest ? n : longest;
    }
    return longest;
}

static bool write_strings(FILE *to, const struct array *v, size_t width)
{
    bool ok = true;
    for (size_t i = 0; i < v->nelem && ok; i++) {
        const char *s = string_at(v, i);
        for (size_t k = 0; k < width && ok; k++) {
            uint32_t c = *s ? get_utf8(&s) : 0;
            const unsigned char bytes[4] = {(unsigned char)c, (unsigned char)(c >> 8),
                                            (unsigned char)(c >> 16), (unsigned char)(c >> 24)};
            ok = fwrite(bytes, 1, sizeof bytes, to) == sizeof bytes;
        }
    }
    return ok;
}

bool npy_write(struct tgc *t, FILE *to, const char *path, const struct array *v)
{
    struct text x = {.t = t};
    bool is_text = v->dtype == DTYPE_STRING;
    size_t width = is_text ? longest_string(v) : dtype_nbytes(v->dtype);
    text_printf(&x, "{'descr': '%c%c%zu', 'fortran_order': False, 'shape': (",
                is_text || width > 1 ? '<' : '|', is_text ? 'U' : npy_kind(v->dtype), width);
    for (int i = 0; i < v->ndim; i++)
        text_printf(&x, v->ndim == 1 ? "%lld," : i ? ", %lld" : "%lld", (long long)v->dim[i]);
    text_puts(&x, "), }");
    while ((10 + x.n + 1) % 64)
        text_putc(&x, ' ');
    text_putc(&x, '\n');
    const unsigned char start[] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(x.n & 255), (unsigned char)(x.n >> 8)};
    bool ok = fwrite(start, 1, sizeof start, to) == sizeof start &&
              fwrite(x.s, 1, x.n, to) == x.n &&
              (is_text ? write_strings(to, v, width)
                       : fwrite(v->data, 1, v->nelem * width, to) == v->nelem * width);
    return ok ? true
              : diag_error(t, &(struct place){.file = path}, "writing failed: %s", strerror(errno));
}

/* file systems limit names to 255 bytes, and so does the emitted program */
enum { FILE_NAME_MAX_NBYTES = 239 };

const char *file_name_of(struct tgc *t, const char *tensor)
{
    struct text x = {.t = t};
    for (const unsigned char *p = (const unsigned char *)tensor; *p && x.n < FILE_NAME_MAX_NBYTES;
         p++)
        if (*p >> 6 != 2) /* a character of several bytes becomes one _ */
            text_putc(&x, isalnum(*p) || strchr("._-", *p) ? (char)*p : '_');
    return x.n ? x.s : "_";
}

static bool take_tensor(struct tgc *t, const char *path, const TensorProto *p, struct array *v)
{
    struct place at = {.file = path};
    struct onnx_model source = {.tgc = t, .path = path, .options = {.no_external_data = true}};
    struct onnx_tensor x;
    if (!onnx_decode_tensor(&source, &at, p, &x))
        return false;
    *v = (struct array){.name = x.name, .dtype = x.dtype, .ndim = x.ndim};
    memcpy(v->dim, x.dim, sizeof v->dim);
    if (!array_allocate(t, v))
        return false;
    memcpy(v->data, x.data, v->nbytes);
    return true;
}

static bool take_tensors(struct tgc *t, const char *path, TensorProto *const *p, size_t n,
                         struct recorded *r)
{
    r->n = (int)n;
    r->item = mem_array(t, n + 1, sizeof *r->item);
    for (size_t i = 0; i < n; i++)
        if (!take_tensor(t, path, p[i], &r->item[i]))
            return false;
    return true;
}

static bool take_sequence(struct tgc *t, const char *path, const SequenceProto *s,
                          struct recorded *r)
{
    if (s->n_sparse_tensor_values)
        return diag_error(t, &(struct place){.file = path},
                          "holds sparse tensors; a sequence of tensors is expected");
    return take_tensors(t, path, s->tensor_values, s->n_tensor_values, r);
}

bool pb_read(struct tgc *t, const char *path, bool is_optional, bool is_sequence,
             struct recorded *r)
{
    const ProtobufCMessageDescriptor *type = is_optional   ? &optional_proto__descriptor
                                             : is_sequence ? &sequence_proto__descriptor
                                                           : &tensor_proto__descriptor;
    ProtobufCMessage *p = onnx_load_message(t, path, type);
    *r = (struct recorded){0};
    if (!p)
        return false;
    if (is_optional) {
        OptionalProto *o = (OptionalProto *)p;
        r->is_absent = !o->tensor_value && !o->sequence_value;
        return r->is_absent           ? true
               : is_sequence && o->sequence_value ? take_sequence(t, path, o->sequence_value, r)
               : !is_sequence && o->tensor_value  ? take_tensors(t, path, &o->tensor_value, 1, r)
                   : diag_error(t, &(struct place){.file = path}, "holds %s; %s is expected",
                                is_sequence ? "a tensor" : "a sequence",
                                is_sequence ? "a sequence" : "a tensor");
    }
    TensorProto *one = (TensorProto *)p;
    return is_sequence ? take_sequence(t, path, (const SequenceProto *)p, r)
                       : take_tensors(t, path, &one, 1, r);
}
