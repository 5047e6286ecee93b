/* held.c - what a compile holds besides its arena: maps, open files, libraries, unfinished outputs.
 *
 * A compile may end anywhere, by tgc_stop(). So each such thing is entered in a list before it is
 * acquired (entering may end the compile, too), and tgc_free() releases what is still held, the
 * latest first.
 */
#include "ir/ir.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct held { struct held *before; void (*release)(void *what); void *what; };

struct held *held_add(struct tgc *t, void (*release)(void *what), void *what)
{
    struct held *h = MEM_NEW(t, struct held);
    *h = (struct held){t->held, release, what};
    t->held = h;
    return h;
}

void held_release(struct held *h)
{
    void (*release)(void *what) = h ? h->release : NULL;
    if (release) {
        h->release = NULL;
        release(h->what);
    }
}

void held_forget(struct held *h) { h->release = NULL; }

struct held *held_last(const struct tgc *t) { return t->held; }

void held_forget_since(struct tgc *t, const struct held *last)
{
    for (struct held *h = t->held; h && h != last; h = h->before)
        held_forget(h);
}

void held_release_all(struct tgc *t)
{
    while (t->held) {
        struct held *last = t->held;
        t->held = last->before;
        held_release(last);
    }
}

void held_pass(struct tgc *from, struct tgc *to, void (*release)(void *what), size_t nbytes)
{
    for (struct held *h = from->held; h; h = h->before) {
        if (h->release != release)
            continue;
        held_add(to, release, mem_copy(to, h->what, nbytes));
        held_forget(h);
    }
}

/* ---------------------------------------------------------------------------------------- files */

struct opened { FILE *file; int fd; };

static void close_opened(void *what)
{
    struct opened *o = what;
    if (o->file)
        fclose(o->file);
    else if (o->fd >= 0)
        close(o->fd);
}

static struct held *hold_opened(struct tgc *t, struct opened **o)
{
    *o = MEM_NEW(t, struct opened);
    (*o)->fd = -1;
    return held_add(t, close_opened, *o);
}

FILE *held_fopen(struct tgc *t, const char *path, const char *mode, struct held **h)
{
    struct opened *o;
    *h = hold_opened(t, &o);
    return o->file = fopen(path, mode);
}

struct held *held_fd(struct tgc *t, int **fd)
{
    struct opened *o;
    struct held *h = hold_opened(t, &o);
    *fd = &o->fd;
    return h;
}

/* --------------------------------------------------------------------------------------- memory */

static void unmap(void *what)
{
    struct held_map *map = what;
    if (map->base)
        munmap(map->base, map->nbytes);
}

struct held *held_map(struct tgc *t, struct held_map **map)
{
    *map = MEM_NEW(t, struct held_map);
    return held_add(t, unmap, *map);
}

void held_pass_maps(struct tgc *from, struct tgc *to)
{
    held_pass(from, to, unmap, sizeof(struct held_map));
}

static void free_block(void *what) { free(*(void **)what); }

struct held *held_heap(struct tgc *t, void ***block)
{
    *block = MEM_NEW(t, void *);
    return held_add(t, free_block, *block);
}
