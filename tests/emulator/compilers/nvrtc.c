/* SPDX-License-Identifier: 0BSD */
/* nvrtc.c - a stand-in for NVRTC, for thousands of programs on the emulated device, which runs
 * kernels from their text. What it makes of any text, as PTX or machine code, names the
 * architecture and has no kernels.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
enum { INVALID_INPUT = 3, INVALID_OPTION = 5 };

struct program {
    char ptx[64];
    unsigned char code[64]; /* an ELF header: its flags have the architecture */
};

API int nvrtcVersion(int *major, int *minor);
int nvrtcVersion(int *major, int *minor)
{
    *major = 11;
    *minor = 2;
    return 0;
}

API int nvrtcCreateProgram(struct program **made, const char *text, const char *name, int nheader,
                           const char *const *header, const char *const *include);
int nvrtcCreateProgram(struct program **made, const char *text, const char *name, int nheader,
                       const char *const *header, const char *const *include)
{
    (void)name, (void)header, (void)include;
    *made = text && nheader == 0 ? calloc(1, sizeof **made) : NULL;
    return *made ? 0 : INVALID_INPUT;
}

API int nvrtcCompileProgram(struct program *p, int n, const char *const *option);
int nvrtcCompileProgram(struct program *p, int n, const char *const *option)
{
    enum { FLAGS_AT = 48 };
    uint32_t arch = 0;
    bool contracts = true;
    for (int i = 0; i < n; i++)
        contracts &= strcmp(option[i], "--fmad=false") != 0;
    for (int i = 0; i < n && !contracts; i++)
        if (sscanf(option[i], "--gpu-architecture=compute_%u", &arch) == 1 ||
            sscanf(option[i], "--gpu-architecture=sm_%u", &arch) == 1)
            break;
    snprintf(p->ptx, sizeof p->ptx, "//\n.version 7.1\n.target sm_%u\n", arch);
    memcpy(p->code, "\x7f" "ELF", 4);
    memcpy(p->code + FLAGS_AT, &arch, sizeof arch);
    return arch ? 0 : INVALID_OPTION;
}

API int nvrtcGetProgramLogSize(struct program *p, size_t *size);
int nvrtcGetProgramLogSize(struct program *p, size_t *size)
{
    (void)p;
    *size = 1;
    return 0;
}

API int nvrtcGetProgramLog(struct program *p, char *log);
int nvrtcGetProgramLog(struct program *p, char *log)
{
    (void)p;
    *log = '\0';
    return 0;
}

API int nvrtcGetPTXSize(struct program *p, size_t *size);
int nvrtcGetPTXSize(struct program *p, size_t *size)
{
    *size = strlen(p->ptx) + 1;
    return 0;
}

API int nvrtcGetPTX(struct program *p, char *ptx);
int nvrtcGetPTX(struct program *p, char *ptx)
{
    strcpy(ptx, p->ptx);
    return 0;
}

API int nvrtcGetCUBINSize(struct program *p, size_t *size);
int nvrtcGetCUBINSize(struct program *p, size_t *size)
{
    *size = sizeof p->code;
    return 0;
}

API int nvrtcGetCUBIN(struct program *p, char *cubin);
int nvrtcGetCUBIN(struct program *p, char *cubin)
{
    memcpy(cubin, p->code, sizeof p->code);
    return 0;
}

API int nvrtcDestroyProgram(struct program **p);
int nvrtcDestroyProgram(struct program **p)
{
    free(*p);
    *p = NULL;
    return 0;
}
