/* limits.c - how much memory a compile and a run may take, unless --max-memory says so. */
#include "frontend/confine.h"
#include "lib/lib.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A hostile file of a few megabytes may use less than half a gigabyte; a real model gets memory for
 * copies of its weights. */
static const size_t base_memory = (size_t)400 << 20;
enum { MEMORY_PER_BYTE = 12, MEMORY_PER_EXTERNAL_BYTE = 2 };
/* standard input that is not a file: its size is unknown */
static const size_t stream_memory = (size_t)4 << 30;

static size_t memory_for(size_t nbytes)
{
    size_t limit = base_memory, more;
    return size_mul(nbytes, MEMORY_PER_BYTE, &more) && size_add(limit, more, &limit) ? limit
                                                                                     : SIZE_MAX;
}

/* The bytes of the model's file that are no holes. Standard input is as large as it says: it may
 * not be moved in. */
static size_t stored(const char *path, size_t nbytes)
{
    int fd = path && strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return nbytes;
    nbytes = confine_stored(fd, nbytes);
    close(fd);
    return nbytes;
}

static size_t default_memory(const struct options *o)
{
    struct stat st;
    bool is_stdin = !o->model || strcmp(o->model, "-") == 0;
    if (o->bytes)
        return memory_for(o->nbytes);
    if ((is_stdin ? fstat(0, &st) : stat(o->model, &st)) != 0 || !S_ISREG(st.st_mode))
        return is_stdin && o->model ? stream_memory : base_memory;
    return memory_for(stored(o->model, (size_t)st.st_size));
}

/* A quarter of the machine's memory is left to others. */
static size_t default_run_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), nbytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && nbytes > 0 ? (size_t)pages / 4 * 3 * (size_t)nbytes : 0;
}

void limits_set(struct tgc *t, struct options *o)
{
    t->mem_limit = o->max_memory ? o->max_memory : default_memory(o);
    t->run_limit = o->max_memory ? o->max_memory : default_run_memory();
    o->load.budget_per_external_byte = o->max_memory ? 0 : MEMORY_PER_EXTERNAL_BYTE;
}
