/* lower_microsoft_nchwc.c - com.microsoft.nchwc: models that ONNX Runtime has saved with all of its
 * optimizations.
 *
 * Its tensors [n, c, h, w] are [n, c / block, h, w, block] in memory, with c rounded up to the
 * block, 8 or 16 by the processor that optimized the model. Here only its logical form exists, so
 * that ReorderInput pads channels and ReorderOutput cuts them; but the weights of convolutions are
 * stored in blocks and put back in order:
 *
 *      input channels >= block    [o / block, i / block, h, w, i % block, o % block]
 *      fewer                      [o / block, i, h, w, o % block]
 *
 * The model does not state the block size. If its channels do not imply it, an option has to.
 */
#include "frontend/onnx/microsoft.h"

#include <string.h>

static const char domain_nchwc[] = "com.microsoft.nchwc";

/* The size of the first axis of the initializer `name`; 0: there is none. */
static int64_t initializer_rows(const GraphProto *g, const char *name)
{
    for (size_t i = 0; i < g->n_initializer; i++)
        if (!strcmp(g->initializer[i]->name, name) && g->initializer[i]->n_dims)
            return g->initializer[i]->dims[0];
    return 0;
}

/* The node that computes a node's input; NULL: none in g. */
static const NodeProto *producer(const GraphProto *g, const char *name)
{
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_output; k++)
            if (!strcmp(g->node[i]->output[k], name))
                return g->node[i];
    return NULL;
}

/* The block size that the model implies: a convolution with a number of channels that 16 does not
 * divide has blocks of 8; one that was padded by 8 or more has blocks of 16. 0: neither. */
static int block_shown(const struct node *n)
{
    const struct onnx_model *m = lower_model(n->lower);
    const GraphProto *g = m->proto->graph;
    int found = 0;
    for (size_t i = 0; i < g->n_node && !found; i++) {
        const NodeProto *p = g->node[i];
        if (strcmp(p->domain, domain_nchwc))
            continue;
        if (!strcmp(p->op_type, "Conv") && p->n_input > 1) {
            int64_t rows = initializer_rows(g, p->input[1]);
            found = rows % 16 ? 8 : 0;
        } else if (!strcmp(p->op_type, "ReorderOutput") && p->n_input > 0) {
            const NodeProto *from = producer(g, p->input[0]);
            int64_t channels = onnx_attr_int(m, p, "channels", 0);
            if (from && !strcmp(from->op_type, "Conv") && from->n_input > 1 && channels > 0 &&
                initializer_rows(g, from->input[1]) - channels >= 8)
                found = 16;
        }
    }
    return found;
}

/* 0: reported. */
static int block_of(const struct node *n)
{
    const struct onnx_graph_options *o = n->lower->options;
    int block = o ? o->nchwc_block : 0;
    if (!block)
        block = n->lower->nchwc_block;
    if (!block)
        block = n->lower->nchwc_block = block_shown(n);
    if (!block)
        node_error(n, -1,
                   "this model was optimized for one kind of processor, and its numbers of "
                   "channels do not tell which; add --nchwc-block 16 if that one has "
                   "AVX-512, --nchwc-block 8 if not, or optimize the model at the level "
                   "'extended' instead");
    return block;
}

/* x with `channels` channels: truncated, or padded with zeros. */
static struct uop *with_channels(const struct node *n, struct uop *x, struct uop *channels)
{
    struct uop *dim[MAX_RANK];
    if (!x || x->ndim < 2)
        return x;
    ARRAY_COPY(dim, x->dim, x->ndim);
    dim[1] = channels;
    return tensor_fit(n->t, x, dim);
}

/* Stored weights in their logical order. */
static struct uop *ordered_weights(const struct node *n, struct uop *w, int block)
{
    struct tgc *t = n->t;
    int64_t rows, depth;
    if (w->ndim != 4 || !uop_const_int(w->dim[0], &rows) || !uop_const_int(w->dim[1], &depth) ||
        rows % block || (depth >= block && depth % block)) {
        node_error(n, 1, "weights in blocks of %d are expected, found %s", block, shape_text(n, w));
        return NULL;
    }
    struct uop *b = uop_int(t, block), *tall = uop_int(t, rows / block), *r;
    if (depth < block) {
        struct uop *dim[5] = {tall, w->dim[1], w->dim[2], w->dim[3], b};
        r = uop_permute(t, uop_reshape(t, w, dim, 5), (int[]){0, 4, 1, 2, 3});
    } else {
        struct uop *dim[6] = {tall, uop_int(t, depth / block), w->dim[2], w->dim[3], b, b};
        r = uop_permute(t, uop_reshape(t, w, dim, 6), (int[]){0, 5, 1, 4, 2, 3});
    }
    return lib_fold(&n->lib, uop_reshape(t, r, w->dim, 4));
}

/* act(conv(x, w) + b + sum) */
bool lower_nchwc_conv(struct node *n)
{
    struct window_attr a;
    int block = block_of(n);
    if (!block || !node_rank(n, 0, 4, 4) || !window_attributes(n, n->in[0], &a))
        return false;
    struct uop *w = ordered_weights(n, n->in[1], block);
    if (!w)
        return false;
    struct uop *x = with_channels(n, n->in[0], sym_muli(n->t, w->dim[1], a.group));
    struct uop *y = lib_conv(&n->lib, x, w, n->in[2], &a);
    if (n->in[3])
        y = lib_add(&n->lib, y, with_channels(n, n->in[3], w->dim[0]));
    return node_set(n, 0, conv_activation(n, y));
}

bool lower_nchwc_reorder_input(struct node *n)
{
    int block = block_of(n);
    if (!block || !node_rank(n, 0, 3, MAX_RANK))
        return false;
    struct uop *x = node_int(n, "channels_last", 0) ? channels_first(n, n->in[0]) : n->in[0];
    struct uop *channels = sym_muli(n->t, sym_ceildiv(n->t, x->dim[1], block), block);
    return node_set(n, 0, with_channels(n, x, channels));
}

bool lower_nchwc_reorder_output(struct node *n)
{
    int64_t channels = node_int(n, "channels", 0);
    if (!node_rank(n, 0, 3, MAX_RANK) || channels < 1)
        return node_error(n, 0, "a positive number of channels is expected");
    struct uop *x = with_channels(n, n->in[0], uop_int(n->t, channels));
    return node_set(n, 0, node_int(n, "channels_last", 0) ? channels_last(n, x) : x);
}

/* By integer factors; with the coordinates of Resize if linear. */
bool lower_nchwc_upsample(struct node *n)
{
    struct resize_attr a = {0};
    struct uop *x = n->in[0];
    const int64_t *scale;
    int count = node_ints(n, "scales", &scale);
    if (!node_rank(n, 0, 4, 4) || !resize_modes(n, &a))
        return false;
    if (count != 4)
        return node_error(n, -1, "4 scales are expected, found %d", count < 0 ? 0 : count);
    for (int i = 0; i < 4; i++) {
        if (scale[i] < 1 || scale[i] > INT32_MAX)
            return node_error(n, -1, "scale %d is %lld; it must be positive", i,
                              (long long)scale[i]);
        a.scale[i] = (double)scale[i];
        a.size[i] = sym_muli(n->t, x->dim[i], scale[i]);
    }
    return node_set(n, 0, lib_resize(&n->lib, x, &a));
}
