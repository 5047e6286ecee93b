/* dying_nvrtc.c - stands for NVRTC as it is where there is no memory: what it cannot allocate ends
 * the process. DIES: it gets none; GROWS: it takes more until there is none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *need(size_t n)
{
    void *p = getenv("DIES") ? NULL : malloc(n);
    if (!p)
        abort();
    return p;
}

int nvrtcVersion(int *major, int *minor)
{
    *major = 12;
    *minor = 9;
    return 0;
}

int nvrtcCreateProgram(char **program, const char *text, const char *name, int nheader,
                       const char *const *header, const char *const *include)
{
    (void)text, (void)name, (void)nheader, (void)header, (void)include;
    *program = need(64);
    return 0;
}

int nvrtcCompileProgram(char *program, int n, const char *const *option)
{
    (void)n, (void)option;
    while (getenv("GROWS"))
        memset(need(1 << 20), 0, 1);
    free(need(1000));
    strcpy(program, "//\n.version 8.5\n.target sm_80\n");
    return 0;
}

int nvrtcGetPTXSize(char *program, size_t *size)
{
    *size = strlen(program) + 1;
    return 0;
}

int nvrtcGetPTX(char *program, char *to)
{
    strcpy(to, program);
    return 0;
}

int nvrtcGetProgramLogSize(char *program, size_t *size) { return nvrtcGetPTXSize(program, size); }
int nvrtcGetProgramLog(char *program, char *to) { return nvrtcGetPTX(program, to); }
int nvrtcGetCUBINSize(char *program, size_t *size) { return nvrtcGetPTXSize(program, size); }
int nvrtcGetCUBIN(char *program, char *to) { return nvrtcGetPTX(program, to); }

int nvrtcDestroyProgram(char **program)
{
    free(*program);
    return 0;
}
