/* opencl.h - private to backends/opencl/. */
#ifndef TGC_OPENCL_H
#define TGC_OPENCL_H

#include "backends/cstyle/cstyle.h"

/* places.c: where each buffer lies. false: reported, what devices do not have */
bool opencl_begin(struct program *p);

/* kernel.c: a kernel; then all of them, behind the pieces of runtime/ that they use. */
void opencl_kernel(struct program *p, const struct kernel *k, const struct variant *v,
                   struct text *out);
const char *opencl_text(struct program *p, const char *kernels);

/* launch.c: a run as a list. Of a tensor, the index of its place (struct place of the program), and
 * the byte there where it begins; a state's varies. */
enum { PLACE_MEMORY, PLACE_WEIGHTS, PLACE_FIRST_INPUT };
int opencl_place(const struct program *p, const struct buffer *b);
const char *opencl_offset(struct program *p, const struct buffer *b, bool *varies);
int opencl_count_places(const struct schedule *s);
/* The work-items of a work-group, in each dimension. */
void opencl_block(const struct kernel *k, int block[GRID_RANK]);
/* launch_of[] and argument_of[] */
void opencl_write_list(struct program *p, struct text *out);
/* The statements for the kernels from this step on that are launched at once; returns their number. */
int opencl_launches(struct program *p, int step, struct text *out);

#endif
