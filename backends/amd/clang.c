/* clang.c - compiles HIP C to code objects by the clang program. Its AMDGPU target needs nothing of
 * ROCm: kernels use built-ins alone, and ld.lld, which clang runs, is in the same folder.
 */
#include "backends/amd/amd.h"
#include "backends/clang/clang.h"
#include "backends/filter.h"

#include <stdlib.h>
#include <string.h>

/* The first that knows gfx1100 is 15, gfx942 17, gfx1201 19; newer ones are tried first. */
enum { NEWEST = 30, OLDEST = 15 };

static const char *find_clang(struct tgc *t)
{
    const char *wanted = getenv("TGC_CLANG");
    for (int v = NEWEST; v >= OLDEST; v--) {
        const char *name = mem_printf(t, "clang-%d", v);
        if ((!wanted || atoi(wanted) == v) && program_is_on_path(t, name))
            return name;
    }
    return program_is_on_path(t, "clang") ? "clang" : NULL;
}

/* "19.1.7", of what clang -dumpversion says. */
static const char *version_of(struct tgc *t, const char *clang)
{
    const char *const word[] = {clang, "-dumpversion", NULL};
    struct filtered f;
    if (!filter_run(t, word, "", 0, &f) || f.status != 0 || f.out.n == 0)
        return "";
    return mem_printf(t, " %.*s", (int)f.out.n - 1, f.out.s);
}

bool amd_clang_compile(struct tgc *t, const char *text, struct amd_code *code)
{
    const char *clang = find_clang(t);
    if (!clang)
        return diag_error(
            t, NULL,
            "--target=amd needs libLLVM and ld.lld for code objects, or clang, which is not on "
            "PATH, either: install them "
            "(Debian: apt-get install libllvm19 lld-19); -o NAME.hip needs no compiler");
    const char *const word[] = {clang,
                                "-x",
                                "hip",
                                "--cuda-device-only",
                                "--no-gpu-bundle-output",
                                mem_printf(t, "--offload-arch=%s", code->arch),
                                "-nogpuinc",
                                "-nogpulib",
                                "-fuse-cuid=none",
                                "-mcode-object-version=4",
                                "-std=c++17",
                                "-O3",
                                "-ffp-contract=off",
                                "-w",
                                "-",
                                "-o",
                                "-",
                                NULL};
    struct filtered f;
    code->made_by = mem_printf(t, "clang%s", version_of(t, clang));
    if (!filter_run(t, word, text, strlen(text), &f))
        return false;
    if (f.status != 0 || f.out.n == 0)
        return diag_error(t, NULL, "%s does not compile the kernels for %s: %.2000s", code->made_by,
                          code->arch, f.said.n ? f.said.s : "it does not say why");
    code->code = (const unsigned char *)f.out.s;
    code->nbytes = f.out.n;
    return true;
}
