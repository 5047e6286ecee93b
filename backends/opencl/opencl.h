/* opencl.h - private to backends/opencl/. */
#ifndef TGC_OPENCL_H
#define TGC_OPENCL_H

#include "backends/device/device.h"

/* images.c: of programs whose kernels read images, tables, and the pieces that they have instead of
 * others */
void opencl_image_tables(struct program *p, struct text *out);
void opencl_use_images(struct program *p);

#endif
