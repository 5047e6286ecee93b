/* opencl.h - private to backends/opencl/. */
#ifndef TGC_OPENCL_H
#define TGC_OPENCL_H

#include "backends/cstyle/cstyle.h"

/* opencl.c: where each buffer lies. false: reported, what devices do not have */
bool opencl_begin(struct program *p);

/* kernel.c: a kernel as a string, one of those of kernel_text[]; then that table, and the pieces of
 * runtime/ that kernels use. */
void opencl_kernel(struct program *p, const struct kernel *k, const struct variant *v,
                   struct text *out);
void opencl_write_text(struct program *p, const char *kernels, struct text *out);

/* host.c: a kernel's launch; all else of the host */
void opencl_call(struct program *p, const struct kernel *k, struct text *out);
extern const struct device opencl_device;

#endif
