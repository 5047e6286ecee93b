/* gpu_link.c - makes a code object of an object by ld.lld, since AMD's drivers load linked ones.
 * LLVM has the linker as a program alone.
 */
#include "backends/filter.h"
#include "backends/llvm/machine.h"

#include <stdlib.h>
#include <string.h>

/* Debian's packages have the version in the name; that of LLVM itself is the best, a newer one
 * does. NULL: there is none. */
static const char *find_linker(struct tgc *t, int version)
{
    enum { NEWEST = 30 };
    const char *own = mem_printf(t, "ld.lld-%d", version);
    if (program_is_on_path(t, own))
        return own;
    for (int i = NEWEST; i > version; i--)
        if (program_is_on_path(t, mem_printf(t, "ld.lld-%d", i)))
            return mem_printf(t, "ld.lld-%d", i);
    return program_is_on_path(t, "ld.lld") ? "ld.lld" : NULL;
}

const char *gpu_linker_found(struct tgc *t)
{
    const char *version = llvm_found(t);
    return version ? find_linker(t, atoi(version)) : NULL;
}

bool gpu_link(struct tgc *t, struct llvm_gpu_code *code, int version)
{
    const char *linker = find_linker(t, version);
    if (!linker)
        return diag_error(
            t, NULL,
            "code objects for AMD's devices are linked by ld.lld, and no directory of PATH "
            "has one: install lld (Debian: apt-get install lld-%d)",
            version);
    const char *const word[] = {linker, "-shared", "/dev/stdin", "-o", "-", NULL};
    struct filtered f;
    if (!filter_run(t, word, code->bytes, code->nbytes, &f))
        return false;
    if (f.status == 0 && (f.out.n < 4 || memcmp(f.out.s, "\177ELF", 4) != 0))
        return diag_error(t, NULL,
                          "'%s' does not link the kernels: what it writes is no ELF file; "
                          "--version should say LLD %d or newer",
                          linker, version);
    if (f.status != 0)
        return diag_error(t, NULL, "'%s' does not link the kernels: %.2000s", linker,
                          f.said.n ? f.said.s : "it does not say why");
    code->bytes = (const unsigned char *)f.out.s;
    code->nbytes = f.out.n;
    return true;
}
