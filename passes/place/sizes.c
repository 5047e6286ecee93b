/* sizes.c - how many bytes each buffer has at most. */
#include "passes/place/memory.h"
#include "passes/target/target.h"
#include "passes/passes.h"

#include <string.h>

static const char *describe(struct tgc *t, const struct buffer *b)
{
    struct text x = {.t = t};
    text_printf(&x, "%s[", dtype_name(b->dtype));
    for (int a = 0; a < b->ndim; a++)
        text_printf(&x, "%s%lld", a ? "," : "", (long long)b->dim[a]->vmax);
    text_printf(&x, "]%s%s%s", b->name ? " '" : "", b->name ? b->name : "", b->name ? "'" : "");
    return x.s;
}

/* Bytes at the dimensions' upper bounds. */
bool buffer_set_size(struct tgc *t, struct buffer *b)
{
    size_t nbytes = dtype_nbytes(b->dtype);
    bool empty = false;
    for (int a = 0; a < b->ndim; a++)
        empty |= b->dim[a]->vmax <= 0;
    for (int a = 0; a < b->ndim && !empty; a++) {
        if ((uint64_t)b->dim[a]->vmax > PTRDIFF_MAX ||
            !size_mul(nbytes, (size_t)b->dim[a]->vmax, &nbytes) || nbytes > PTRDIFF_MAX)
            return diag_error(t, NULL,
                              "a tensor may be as large as %s, more than memory can address: give "
                              "its dimensions smaller bounds",
                              describe(t, b));
    }
    b->nbytes = empty ? 0 : nbytes;
    return true;
}

bool place_nbytes(const struct tgc *t, const struct buffer *b, size_t *nbytes)
{
    int shift = device_image_shift(t, b->nbytes / dtype_nbytes(b->dtype));
    if (!t->image)
        return true;
    return (shift < 0 || size_align(*nbytes, (4 * dtype_nbytes(b->dtype)) << shift, nbytes)) &&
           size_align(*nbytes, IMAGE_ALIGN, nbytes);
}

static bool size_buffers(struct tgc *t, struct buffer *const *b, int n)
{
    for (int i = 0; i < n; i++) {
        if (!buffer_set_size(t, b[i]))
            return false;
    }
    return true;
}

bool pass_sizes(struct tgc *t, struct schedule *s)
{
    return size_buffers(t, s->buffer, s->nbuffer) && size_buffers(t, s->input, s->ninput) &&
           size_buffers(t, s->output, s->noutput);
}
