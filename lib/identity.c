/* identity.c - on what code for a run here depends besides the model: this tgc, the processor, and
 * which libLLVM the loader would find. It is found out without loading LLVM, since a hit in the
 * cache must not.
 */
#include "lib/kept.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined __x86_64__ || defined __i386__
#include <cpuid.h>
#endif

bool identity_add_file(struct digest *d, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uintmax_t)st.st_size < SIZE_MAX;
    size_t n = ok ? (size_t)st.st_size : 0;
    int flags = MAP_PRIVATE;
#ifdef MAP_POPULATE
    flags |= MAP_POPULATE;
#endif
    void *p = n ? mmap(NULL, n, PROT_READ, flags, fd, 0) : NULL;
    close(fd);
    ok = ok && p != MAP_FAILED;
    if (ok)
        digest_add(d, p, n);
    if (ok && n)
        munmap(p, n);
    return ok;
}

/* A file's version, without reading it. */
static void add_stamp(struct digest *d, const char *path)
{
    struct stat st = {0};
    bool found = stat(path, &st) == 0;
    digest_add_number(d, found);
    digest_add_number(d, found ? (uint64_t)st.st_size : 0);
    digest_add_number(d, found ? (uint64_t)st.st_ino : 0);
    digest_add_number(d, found ? (uint64_t)st.st_mtim.tv_sec : 0);
    digest_add_number(d, found ? (uint64_t)st.st_mtim.tv_nsec : 0);
}

/* The program's own file, or that of the library that this is in: two builds of a version
 * differ. */
static bool add_build(struct digest *d)
{
    const char *path = "/proc/self/exe";
#ifdef __GLIBC__
    Dl_info info;
    struct link_map *map = NULL;
    bool (*here)(struct digest *) = add_build;
    void *address;
    memcpy(&address, &here, sizeof address);
    if (dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) && map && map->l_name &&
        map->l_name[0])
        path = map->l_name;
#endif
    return identity_add_file(d, path);
}

#if defined __x86_64__ || defined __i386__
/* All that CPUID says of the kind of processor, and what the system keeps of its registers (XCR0);
 * but not which of the processors this is. */
static void add_processor(struct digest *d)
{
    static const struct { unsigned leaf, part; } asked[] = {
        {0, 0}, {1, 0}, {4, 0}, {4, 1}, {4, 2}, {4, 3}, {7, 0}, {7, 1}, {7, 2}, {0xd, 1}, {0x14, 0},
        {0x19, 0}, {0x1e, 0}, {0x24, 0}, {0x80000000, 0}, {0x80000001, 0}, {0x80000008, 0}};
    enum { HAS_XGETBV = 1 << 27 };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        unsigned r[4] = {0};
        bool known = __get_cpuid_count(asked[i].leaf, asked[i].part, &r[0], &r[1], &r[2], &r[3]);
        if (asked[i].leaf == 1)
            r[1] &= 0xffff;                           /* the rest has its number */
        for (int k = 0; k < 4; k++)
            digest_add_number(d, known ? r[k] : 0);
        if (known && asked[i].leaf == 1 && (r[2] & HAS_XGETBV)) {
            unsigned low, high;
            __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
            digest_add_number(d, (uint64_t)high << 32 | low);
        }
    }
}
#else
static void add_processor(struct digest *d)
{
    unsigned char text[1 << 16];
    int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && (n = read(fd, text, sizeof text)) > 0;)
        digest_add(d, text, (size_t)n);
    if (fd >= 0)
        close(fd);
}
#endif

bool identity_add(struct digest *d)
{
    digest_add_string(d, getenv("TGC_LLVM"));
    digest_add_string(d, getenv("LD_LIBRARY_PATH"));
    add_stamp(d, "/etc/ld.so.cache");
    add_processor(d);
    return add_build(d);
}

void identity_add_library(struct digest *d, const char *path)
{
    digest_add_string(d, path);
    add_stamp(d, path);
}
