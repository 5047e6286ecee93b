/* array.c - tensors in memory: allocated, filled, described and compared. */
#include "lib/lib.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/fill.c"

void *pages_allocate(struct tgc *t, size_t nbytes, const char *what)
{
    size_t total;
    bool fits = size_add(t->run_used, nbytes, &total) && (!t->run_limit || total <= t->run_limit);
    if (!fits) {
        t->exhausted = true;
        diag_error(t, NULL,
                   "%s would take %zu MB, and a run here may take %zu MB, of which %zu are taken; "
                   "%s=BYTES allows more",
                   what, nbytes >> 20, t->run_limit >> 20, t->run_used >> 20,
                   option_spelling(OPTION_MAX_MEMORY));
        return NULL;
    }
    struct held_map *map;
    held_map(t, &map);
    void *p = mmap(NULL, nbytes ? nbytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    if (p == MAP_FAILED) {
        t->exhausted = true;
        diag_error(t, NULL, "%zu bytes for %s cannot be allocated", nbytes, what);
        return NULL;
    }
    t->run_used = total;
    *map = (struct held_map){p, nbytes ? nbytes : 1};
    return p;
}

bool array_allocate(struct tgc *t, struct array *v)
{
    v->nelem = 1;
    bool ok = true;
    for (int i = 0; i < v->ndim && ok; i++)
        ok = v->dim[i] >= 0 && size_mul(v->nelem, (size_t)v->dim[i], &v->nelem);
    if (!ok || !size_mul(v->nelem, dtype_nbytes(v->dtype), &v->nbytes) || v->nbytes > PTRDIFF_MAX)
        return diag_error(t, NULL, "the tensor '%.100s' is too large to be held here",
                          v->name ? v->name : "");
    v->data = pages_allocate(t, v->nbytes,
                             mem_printf(t, "the tensor '%.100s' %s", v->name ? v->name : "",
                                        array_type_text(t, v)));
    return v->data;
}

bool array_convert(struct tgc *t, struct array *v, enum dtype d)
{
    enum dtype from = v->dtype;
    size_t size = dtype_nbytes(from), to = dtype_nbytes(d);
    char *data = v->data;
    if (d == from)
        return true;
    for (size_t i = 0; i < v->nelem; i++) {
        union scalar x = scalar_load(from, data + i * size);
        scalar_store(d, data + i * to, x);
        if (isfinite(x.f) && !isfinite(scalar_load(d, data + i * to).f))
            return diag_error(t, NULL, "'%.100s' has the element %g, which is beyond %s",
                              v->name ? v->name : "", x.f, dtype_name(d));
    }
    v->dtype = d;
    v->nbytes = v->nelem * to;
    return true;
}

void array_fill_random(struct array *v, int index, int64_t least, int64_t most)
{
    fill_random(dtype_name(v->dtype), v->data, dtype_nbytes(v->dtype), v->nelem,
                (uint32_t)index + 1, least, most);
}

const char *array_type_text(struct tgc *t, const struct array *v)
{
    struct text x = {.t = t};
    text_printf(&x, "%s[", dtype_name(v->dtype));
    for (int i = 0; i < v->ndim; i++)
        text_printf(&x, i ? ",%" PRId64 : "%" PRId64, v->dim[i]);
    text_putc(&x, ']');
    return x.s;
}

static const void *element(const struct array *v, size_t i)
{
    return (const char *)v->data + i * dtype_nbytes(v->dtype);
}

static void put_element(struct text *out, const struct array *v, size_t i)
{
    if (v->dtype == DTYPE_STRING) {
        const char *s;
        memcpy(&s, element(v, i), sizeof s);
        text_printf(out, "'%.40s'", s ? s : "");
    } else if (dtype_is_float(v->dtype)) {
        text_printf(out, "%.6g", scalar_load(v->dtype, element(v, i)).f);
    } else if (v->dtype == DTYPE_U64) {
        text_printf(out, "%" PRIu64, (uint64_t)scalar_load(v->dtype, element(v, i)).i);
    } else {
        text_printf(out, "%" PRId64, scalar_load(v->dtype, element(v, i)).i);
    }
}

static double as_double(const struct array *v, size_t i)
{
    union scalar s = scalar_load(v->dtype, element(v, i));
    return dtype_is_float(v->dtype) ? s.f
           : v->dtype == DTYPE_U64  ? (double)(uint64_t)s.i
                                    : (double)s.i;
}

void array_summary(struct text *out, const struct array *v)
{
    enum { SHOWN = 6 };
    text_putc(out, '[');
    for (size_t i = 0; i < v->nelem && i < SHOWN; i++) {
        text_puts(out, i ? " " : "");
        put_element(out, v, i);
    }
    text_puts(out, v->nelem > SHOWN ? " ...]" : "]");
    if (v->dtype == DTYPE_STRING || v->nelem <= SHOWN)
        return;
    double sum = 0;
    size_t least = 0, greatest = 0, nnan = 0;
    for (size_t i = 0; i < v->nelem; i++) {
        double x = as_double(v, i);
        nnan += isnan(x) ? 1 : 0;
        sum += isnan(x) ? 0 : x;
        if (!(as_double(v, least) <= x))
            least = i;
        if (!(as_double(v, greatest) >= x))
            greatest = i;
    }
    text_puts(out, " min ");
    put_element(out, v, least);
    text_printf(out, " at %zu, max ", least);
    put_element(out, v, greatest);
    text_printf(out, " at %zu, mean %.6g", greatest, sum / (double)v->nelem);
    if (nnan)
        text_printf(out, ", %zu NaN", nnan);
}

static bool elements_agree(const struct array *got, const struct array *want, size_t i, double rtol,
                           double atol)
{
    if (want->dtype == DTYPE_STRING) {
        const char *a, *b;
        memcpy(&a, element(got, i), sizeof a);
        memcpy(&b, element(want, i), sizeof b);
        return strcmp(a ? a : "", b ? b : "") == 0;
    }
    union scalar a = scalar_load(got->dtype, element(got, i)),
                 b = scalar_load(want->dtype, element(want, i));
    if (!dtype_is_float(want->dtype))
        return a.i == b.i;
    return (isnan(a.f) && isnan(b.f)) || a.f == b.f ||
           (isfinite(b.f) && fabs(a.f - b.f) <= atol + rtol * fabs(b.f));
}

bool array_has_type(const struct array *v, const struct array *as)
{
    bool same = v->dtype == as->dtype && v->ndim == as->ndim;
    for (int i = 0; i < v->ndim && same; i++)
        same = v->dim[i] == as->dim[i];
    return same;
}

size_t array_count_steps(const struct array *a, const struct array *b, size_t *nmore)
{
    size_t count = 0;
    *nmore = 0;
    for (size_t i = 0; i < a->nelem; i++) {
        double x = as_double(a, i), y = as_double(b, i);
        bool same = x == y || (isnan(x) && isnan(y)), near = fabs(x - y) == 1;
        count += near ? 1 : 0;
        *nmore += same || near ? 0 : 1;
    }
    return count;
}

double array_largest(const struct array *v)
{
    double largest = 0;
    for (size_t i = 0; i < v->nelem && v->dtype != DTYPE_STRING; i++) {
        double x = fabs(as_double(v, i));
        if (isfinite(x) && x > largest)
            largest = x;
    }
    return largest;
}

size_t array_count_special(enum dtype d, const void *data, size_t n)
{
    size_t count = 0, size = dtype_nbytes(d);
    for (size_t i = 0; i < n && dtype_is_float(d); i++)
        count += isfinite(scalar_load(d, (const char *)data + i * size).f) ? 0 : 1;
    return count;
}

/* A step of the format, as a fraction of a power of two. */
static double step_of(enum dtype d)
{
    switch (d) {
    case DTYPE_F64: case DTYPE_F32: return 0x1p-23;
    case DTYPE_F16: return 0x1p-10;
    case DTYPE_BF16: return 0x1p-7;
    default: return d == DTYPE_F8E4M3FN || d == DTYPE_F8E4M3FNUZ ? 0x1p-3 : 0x1p-2;
    }
}

void array_tolerances(const struct array *want, double given_rtol, double given_atol, double *rtol,
                      double *atol)
{
    const double least = 2e-4;
    *rtol = given_rtol < 0 ? 1e-3 : given_rtol;
    *atol = given_atol < 0 ? 1e-7 : given_atol;
    if (given_rtol < 0 && given_atol < 0 && dtype_is_float(want->dtype))
        *atol = fmax(*atol, fmax(least, step_of(want->dtype)) * array_largest(want));
}

bool array_compare(struct tgc *t, struct text *out, const struct array *got,
                   const struct array *want, double rtol, double atol)
{
    if (!array_has_type(got, want)) {
        text_printf(out, "is %s; %s is expected", array_type_text(t, got),
                    array_type_text(t, want));
        return false;
    }
    bool is_float = dtype_is_float(want->dtype), is_number = want->dtype != DTYPE_STRING;
    size_t nbad = 0, first = 0;
    double largest = 0;
    for (size_t i = 0; i < want->nelem; i++) {
        if (!elements_agree(got, want, i, rtol, atol) && nbad++ == 0)
            first = i;
        double d = is_number ? fabs(as_double(got, i) - as_double(want, i)) : 0;
        if (d > largest)
            largest = d;
    }
    if (nbad) {
        text_printf(out, "%zu of %zu elements differ; element %zu is ", nbad, want->nelem, first);
        put_element(out, got, first);
        text_puts(out, ", expected ");
        put_element(out, want, first);
        text_puts(out, is_number ? ", " : "");
    }
    double size = is_number ? array_largest(want) : 0;
    if (is_float || (nbad && is_number))
        text_printf(out, "largest difference %.3g", largest);
    else if (!nbad)
        text_puts(out, "equal");
    if (is_float && largest > 0 && size > 0)
        text_printf(out, ", %.2g of the largest element, %.3g", largest / size, size);
    return nbad == 0;
}
