/* microsoft.h - shared by the lower_microsoft*.c files: com.microsoft operators, what ONNX
 * Runtime's optimizer and quantizer write. Their semantics are those of its CPU kernels.
 */
#ifndef TGC_ONNX_MICROSOFT_H
#define TGC_ONNX_MICROSOFT_H

#include "frontend/onnx/lower.h"

/* A view of a node with inputs of its own, read as an operator of another opset. */
struct node_view {
    struct node node;
    struct uop *in[MIN_SLOTS];
};
/* v->node shares n's outputs. needs: n has at most MIN_SLOTS inputs. */
bool node_view(const struct node *n, int opset, struct node_view *v);

/* Whether the inputs in `mask` are present; operators.def checks only the first ones. */
bool node_has_inputs(const struct node *n, uint32_t mask);

/* [n, spatial..., c] -> [n, c, spatial...] and back; NULL stays. */
struct uop *channels_first(const struct node *n, struct uop *x);
struct uop *channels_last(const struct node *n, struct uop *x);

/* x through the activation that a fused operator names ("" or absent: none) with its parameters,
 * in the operator's order; those that are missing have their defaults. NULL: reported. */
struct uop *fused_activation(const struct node *n, const char *name, const double *param,
                             int nparam, struct uop *x);
/* x through the activation that a fused convolution's attributes activation and
 * activation_params name. */
struct uop *conv_activation(const struct node *n, struct uop *x);

/* Attention of com.microsoft, once its operands are there. */
struct fused_attention {
    struct uop *q, *k, *v;   /* [b, h, s, e], [b, h, t, e], [b, h, t, ev] */
    struct uop *past_length; /* INDEX scalar */
    struct uop *bias;        /* added to the scores; NULL: none */
    struct uop *allowed;     /* bool; NULL: all */
    bool causal, last_sees_all;   /* see struct attention_attr */
};
/* Adds the padding mask of input k, in any of its five forms, to a->bias. */
bool fused_attention_mask(const struct node *n, int k, struct fused_attention *a);
/* [b, s, h * ev]; NULL: reported. */
struct uop *fused_attention(const struct node *n, const struct fused_attention *a);
/* q, k, v of a [b, s, 3 * hidden] projection, with `past` [2, b, h, p, e] (optional) before k and
 * v; out[1] is the present state if it is requested. */
bool fused_attention_project(struct node *n, struct uop *qkv, struct uop *past,
                             struct fused_attention *a);

#endif
