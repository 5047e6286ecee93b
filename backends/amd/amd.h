/* amd.h - private to backends/amd/, and what the command line says of the compiler. */
#ifndef TGC_AMD_H
#define TGC_AMD_H

#include "backends/device/device.h"

/* A linked code object of one architecture, as hipModuleLoadData takes it. */
struct amd_code {
    const char *arch;            /* "gfx1100" */
    const unsigned char *code; size_t nbytes;
    const char *made_by;         /* "clang 19.1.7", "LLVM 19" */
};

/* clang.c: HIP C by the newest clang on PATH, without any header or library of HIP's. text: of
 * NAME.hip. false: reported, with clang's words. */
bool amd_clang_compile(struct tgc *t, const char *text, struct amd_code *code);

#endif
