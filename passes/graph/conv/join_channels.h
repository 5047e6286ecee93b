/* join_channels.h - for channels_last.c: windows over few channels as windows over pixels and
 * channels together. */
#ifndef TGC_JOIN_CHANNELS_H
#define TGC_JOIN_CHANNELS_H

#include "passes/analysis/contraction.h"

/* The same sum over a copy of the streamed factor's base. The copy's channels are padded with zeros
 * to 4 or 8 and joined with its last axis, so pixel p's channel c is at p*channels + c; the weights
 * are padded and joined alike. needs: the factors' moves are views, zeros around the base alone,
 * and casts. NULL: the sum is not over a window along the base's last axis and 3, or 5 to 7,
 * channels along another one. breaks: constants are to be folded. */
struct uop *channels_join(struct tgc *t, const struct contraction *c);

#endif
