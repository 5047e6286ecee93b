/* library_window.h - private to the library: sliding windows over the spatial axes of [n, c,
 * spatial...], of convolutions and pools. */
#ifndef TGC_LIBRARY_WINDOW_H
#define TGC_LIBRARY_WINDOW_H

#include "frontend/library.h"

struct window_plan {
    int64_t stride[MAX_SPATIAL], dilation[MAX_SPATIAL];
    struct uop *lo[MAX_SPATIAL], *hi[MAX_SPATIAL];       /* as the model has them */
    /* beyond hi, so that the last window of ceil_mode fits */
    struct uop *extra[MAX_SPATIAL];
    struct uop *nout[MAX_SPATIAL];
};

const char *window_axis_name(int nspatial, int i);       /* "z" "y" "x" */
/* Fills stride and dilation, checked; lo, hi, extra 0. */
bool window_steps(const struct lib *l, const char *what, const struct uop *x,
                  const struct window_attr *a, struct window_plan *p);
/* All of it, for windows of kernel[i]. */
bool window_plan(const struct lib *l, const char *what, const struct uop *x,
                 struct uop *const *kernel, const struct window_attr *a, struct window_plan *p);
struct uop *window_pad(const struct lib *l, struct uop *x, struct uop *value,
                       const struct window_plan *p);
/* Padded x -> [n, c, o1, k1, o2, k2, ...] */
struct uop *window_view(const struct lib *l, struct uop *x, struct uop *const *nout,
                        struct uop *const *kernel, const int64_t *stride, const int64_t *dilation);

#endif
