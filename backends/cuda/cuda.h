/* cuda.h - private to backends/cuda/, except for what the command line needs to know
 * of the compiler. */
#ifndef TGC_CUDA_H
#define TGC_CUDA_H

#include "backends/device/device.h"

/* An architecture by NVIDIA's name. "sm_90a" is 90 and `exact`: no other architecture has
 * its instructions. */
struct cuda_arch { const char *text; int number; bool exact; };
/* false: the text is none, such as sm_80 or sm_90a. */
bool cuda_arch_read(const char *text, size_t n, struct cuda_arch *a, struct tgc *t);

/* nvrtc.c: machine code of one architecture, or PTX, which drivers compile for
 * it and newer ones. */
struct cuda_image { struct cuda_arch arch; bool is_ptx; const unsigned char *code; size_t nbytes; };
struct nvrtc;
/* The value of TGC_NVRTC; NULL: there is none, or it is empty. */
const char *nvrtc_wanted(void);
/* NVIDIA's compiler as a library; NULL: reported. */
struct nvrtc *nvrtc_open(struct tgc *t);
void nvrtc_close(struct nvrtc *c);
/* false: reported, with the compiler's words. name: of the text, in them. */
bool nvrtc_compile(struct nvrtc *c, const char *text, const char *name, struct cuda_image *image);
const char *nvrtc_version(const struct nvrtc *c);                 /* "12.9" */

#endif
