/* images.c - what a device's kernels read as images (--image).
 *
 *      load.4 x[4*i + k*132]      ->      the pixel i + k*33 of x
 *
 * A tensor becomes an image of RGBA pixels, four contiguous elements each, on three conditions. It
 * lies in the program's own memory. The kernel reads it only by aligned vectors of four. The kernel
 * does not store it, since a kernel's reads of an image do not see its writes. Inputs and outputs
 * (which may be the caller's buffers), states, parts of other tensors, and tensors larger than the
 * device's images stay buffers. Conditional pixels, which are zeros otherwise, need no selection:
 * they read a row outside of the image. */
#include "passes/analysis/access.h"
#include "passes/passes.h"
#include "passes/target/target.h"

/* The program of a kernel that a device runs. */
struct code { struct uop **linear; int n; };

static struct code code_of(struct kernel *k)
{
    struct variant *v = k->nvariant > 0 ? k->variant : NULL;
    return v ? (struct code){v->linear, v->nlinear} : (struct code){k->linear, k->nlinear};
}

static bool is_pixel(struct tgc *t, const struct uop *u)
{
    return VECTOR_LANES(u->arg.i) == 4 && VECTOR_PART(u->arg.i) == 0 &&
           VECTOR_STRIDE(u->arg.i) == 1 && !VECTOR_IS_GROUPS(u->arg.i) && !TILE_IS(u->arg.i) &&
           index_divisor(t, u->src[1]) % 4 == 0;
}

static bool may_be_image(const struct tgc *t, const struct buffer *b)
{
    size_t most = (size_t)buffer_most_nbytes(b) / dtype_nbytes(b->dtype);
    return (b->kind == BUFFER_TEMP || b->kind == BUFFER_WEIGHT) && !b->base && !b->port.state &&
           (b->dtype == DTYPE_F32 || b->dtype == DTYPE_F16) && most > 0 &&
           device_image_shift(t, most) >= 0;
}

/* Whether the program reads the buffer by pixels alone. */
static bool reads_pixels(struct tgc *t, const struct code *c, const struct buffer *b)
{
    int nload = 0;
    for (int i = 0; i < c->n; i++) {
        const struct uop *u = c->linear[i];
        for (int k = 0; k < u->nsrc; k++)
            if (u->src[k]->op == OP_BUFFER && u->src[k]->arg.p == b) {
                if (u->op != OP_LOAD || !is_pixel(t, u))
                    return false;
                nload++;
            }
    }
    return nload > 0;
}

/* The program, with its loads of images. */
static void mark_loads(struct tgc *t, struct code *c, const struct kernel *k)
{
    struct mem_mark mark = scratch_mark(t);
    struct uop_map now = {.t = t, .scratch = true};
    for (int i = 0; i < c->n; i++) {
        struct uop *u = c->linear[i], **src = scratch_array(t, (size_t)u->nsrc + 1, sizeof *src);
        bool changed = false;
        union arg arg = u->arg;
        for (int j = 0; j < u->nsrc; j++) {
            src[j] = map_get(&now, u->src[j]);
            changed |= src[j] != NULL;
            src[j] = src[j] ? src[j] : u->src[j];
        }
        for (int j = 0; u->op == OP_LOAD && u->src[0]->op == OP_BUFFER && j < k->nbuffer; j++)
            if (k->is_image[j] && k->buffer[j] == u->src[0]->arg.p)
                arg.i = arg_with(arg.i, ARG_VECTOR_IS_PIXEL, true);
        if (!changed && arg.i == u->arg.i)
            continue;
        c->linear[i] = uop_intern(t, u->op, u->dtype, src, u->nsrc, arg);
        uop_set_origin(t, c->linear[i], u);
        if (u->op == OP_RANGE && uop_get_axes(t, u))
            uop_name_axes(t, c->linear[i], uop_get_axes(t, u));
        map_set(&now, u, c->linear[i]);
    }
    scratch_release(t, mark);
}

static void find_images(struct tgc *t, struct kernel *k)
{
    struct code c = code_of(k);
    bool any = false;
    k->is_image = mem_array(t, (size_t)k->nbuffer + 1, sizeof *k->is_image);
    for (int i = k->noutput; i < k->nbuffer; i++) {
        k->is_image[i] = may_be_image(t, k->buffer[i]) && reads_pixels(t, &c, k->buffer[i]);
        any |= k->is_image[i];
    }
    if (any)
        mark_loads(t, &c, k);
}

bool pass_images(struct tgc *t, struct schedule *s)
{
    for (int i = 0; i < s->nkernel && t->image; i++) {
        struct kernel *k = s->kernel[i];
        if (k->like)
            /* by position, like the parameters of its program */
            k->is_image = k->like->kernel->is_image;
        else
            find_images(t, k);
        for (int j = 0; j < k->nbuffer; j++)
            k->buffer[j]->is_image |= k->is_image[j];
    }
    return true;
}
