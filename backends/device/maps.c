/* maps.c - tensor maps: descriptors of tensors for the copy engine (OP_BULK, OP_BULK_STORE). The
 * host encodes them where it knows the tensor's address. Each map is an argument of its kernel;
 * argument_of[] lists it as the address that it is made of.
 */
#include "backends/device/device.h"
#include "ir/device_ops.h"

enum { TYPE_TF32 = 11 };        /* CU_TENSOR_MAP_DATA_TYPE_TFLOAT32: f32, rounded as it is copied */

static int log2_of(int64_t n)
{
    int k = 0;
    while (n >> (k + 1))
        k++;
    return k;
}

/* {argument, log2 of an element's bytes or TYPE_TF32, rank, {sizes}, {bytes between rows},
 * {extents}, swizzle} */
static void write_map(const struct uop *u, int argument, struct text *out)
{
    const int64_t nbytes =
        (int64_t)dtype_nbytes(uop_buffer_of(u->src[bulk_source(u, BULK_FROM)])->dtype);
    const int rank = bulk_rank(u);
    text_printf(out, "    {%d, %d, %d, {", argument, bulk_rounds(u) ? TYPE_TF32 : log2_of(nbytes),
                rank);
    for (int a = 0; a < rank; a++)
        text_printf(out, "%s%lld", a ? ", " : "", (long long)bulk_axis(u, a).size);
    text_puts(out, "}, {");
    for (int a = 1; a < rank; a++)
        text_printf(out, "%s%lld", a > 1 ? ", " : "", (long long)(bulk_axis(u, a).stride * nbytes));
    text_puts(out, rank > 1 ? "}, {" : "0}, {");
    for (int a = 0; a < rank; a++)
        text_printf(out, "%s%lld", a ? ", " : "", (long long)bulk_part_extent(u, a));
    text_printf(out, "}, %d},\n",
                BULK_SWIZZLE(u->arg.i) ? log2_of(BULK_SWIZZLE(u->arg.i) / 16) : 0);
}

int device_write_maps(struct program *p, struct text *out)
{
    int first = 0, nmap = 0;
    for (int i = 0; i < p->s->nkernel; i++) {
        int n;
        const struct parameter *a = kernel_parameters(p->t, p->s->kernel[i], &n);
        for (int k = 0; k < n; k++)
            if (a[k].map && out)
                write_map(a[k].map, first + k, out);
        for (int k = 0; k < n; k++)
            nmap += a[k].map != NULL;
        first += n;
    }
    return nmap;
}
