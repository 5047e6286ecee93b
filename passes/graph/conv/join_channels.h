/* join_channels.h - for turn_inputs.c: windows over few channels as windows over pixels and channels together. */
#ifndef TGC_JOIN_CHANNELS_H
#define TGC_JOIN_CHANNELS_H

#include "passes/analysis/contraction.h"

/* The same sum, of a copy of the streamed factor's base whose last axis is pixels times channels, these padded to 4 or 8 with zeros, and so
 * are the weights. needs: the factors' moves are views, zeros around the base alone, and casts. NULL: the sum is not over a window along the
 * base's last axis and 3, or 5 to 7, channels along another one. breaks: constants are to be folded. */
struct uop *channels_join(struct tgc *t, const struct contraction *c);

#endif
