/* host_machine.c - --machine=host: the machine at hand, for the cost models.
 *
 * It is a copy of the row of machines.def that names the processor, or of the first row, with the
 * caches as Linux describes them: sizes, ways, lines; of a cache that several cores share, a core's
 * share. Facts that no system reports (units, latencies, bytes a cycle) are the row's. On other
 * systems than Linux it is the row.
 */
#include "lib/lib.h"

#include <stdlib.h>
#include <string.h>
#if defined __x86_64__
#include <cpuid.h>
#endif

#define CACHES "/sys/devices/system/cpu/cpu0/cache/index%d/%s"

/* The first line of a small file; false: there is none. */
static bool read_line(const char *path, char *line, int size)
{
    FILE *f = fopen(path, "r");
    bool any = f && fgets(line, size, f);
    if (f)
        fclose(f);
    if (any)
        line[strcspn(line, "\n")] = 0;
    return any;
}

/* The processor as machines.def names it: vendor-family-model of x86, implementer-part of ARM. */
static const char *processor_name(struct tgc *t)
{
#if defined __x86_64__
    unsigned a, b, c, d;
    char vendor[13] = {0};
    if (!__get_cpuid(0, &a, &b, &c, &d))
        return "";
    memcpy(vendor, &b, 4);
    memcpy(vendor + 4, &d, 4);
    memcpy(vendor + 8, &c, 4);
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return "";
    unsigned family = a >> 8 & 15, model = a >> 4 & 15;
    model |= family == 6 || family == 15 ? (a >> 16 & 15) << 4 : 0;
    family += family == 15 ? a >> 20 & 255 : 0;
    return mem_printf(t, "%s-%u-%u", vendor, family, model);
#else
    char line[64];
    if (!read_line("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1", line, sizeof line))
        return "";
    unsigned long midr = strtoul(line, NULL, 0);
    return mem_printf(t, "0x%lx-0x%lx", midr >> 24 & 0xff, midr >> 4 & 0xfff);
#endif
}

static bool is_listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; n && (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == 0 || at[n] == ' '))
            return true;
    return false;
}

static bool read_cache_line(int index, const char *what, char *line, int size)
{
    char path[128];
    snprintf(path, sizeof path, CACHES, index, what);
    return read_line(path, line, size);
}

static long read_cache_number(int index, const char *what)
{
    char line[64];
    return read_cache_line(index, what, line, sizeof line) ? strtol(line, NULL, 10) : 0;
}

/* The number of processors in a list of Linux's: 0-3,8. */
static int count_processors(const char *s)
{
    int n = 0;
    for (char *end; *s; s = *end ? end + 1 : end) {
        long first = strtol(s, &end, 10), last = first;
        if (end == s)
            break;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        n += (int)(last - first) + 1;
    }
    return n > 0 ? n : 1;
}

static void read_cache(struct machine *m, int index)
{
    enum { WAY_LEAST = 1024 };           /* less, or a single set, is not plausible */
    char type[32], size[32], shared[256];
    long level = read_cache_number(index, "level"), line, ways;
    if (level < 1 || level > 3 || !read_cache_line(index, "type", type, sizeof type) ||
        strcmp(type, "Instruction") == 0 || !read_cache_line(index, "size", size, sizeof size))
        return;
    char *unit;
    double nbytes = (double)strtol(size, &unit, 10);
    nbytes *= *unit == 'K' ? 1 << 10 : *unit == 'M' ? 1 << 20 : 1;
    if (read_cache_line(index, "shared_cpu_list", shared, sizeof shared))
        nbytes /= count_processors(shared);
    line = read_cache_number(index, "coherency_line_size");
    ways = read_cache_number(index, "ways_of_associativity");
    int at = LEVEL_L1 + (int)level - 1;
    if (nbytes < WAY_LEAST)
        return;
    m->level[at].nbytes = nbytes;
    if (ways > 0 && ways < WAY_LEAST && nbytes / (double)ways >= WAY_LEAST)
        m->level[at].ways = (int)ways;
    if (level == 1 && line >= 16 && line <= 256)
        m->line = (int)line;
}

const struct machine *host_machine(struct tgc *t)
{
    enum { INDICES = 8 };
    int n;
    const struct machine *rows = machine_rows(&n), *row = rows;
    const char *name = processor_name(t);
    for (int i = 0; i < n; i++)
        if (is_listed(rows[i].processors, name))
            row = &rows[i];
    struct machine *m = mem_copy(t, row, sizeof *row);
    for (int i = 0; i < INDICES; i++)
        read_cache(m, i);
    m->title = mem_printf(t, "%s, the row %s", *name ? name : "a processor without a name",
                          row->text);
    m->text = mem_printf(t, "host/%s", row->text);
    return m;
}
