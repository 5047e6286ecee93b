/* SPDX-License-Identifier: 0BSD */
/* transfer.c - asynchronous copies to local memory. Until the work-item waits for a copy, nobody
 * has written the bytes, so a read that comes too early is reported. The wait makes it a write by
 * the work-item, so a read by another without a barrier after it is a race.
 */
#include "emulator.h"

#include <stdlib.h>
#include <string.h>

API void emulator_copy(void *to, const void *from, uint32_t nbytes, uint32_t valid);
API void emulator_commit(void);
API void emulator_wait(uint32_t n);

/* In the order in which they were begun; their group counts the commits before. */
struct transfers {
    struct transfer { unsigned char *to; unsigned char byte[16]; uint32_t nbytes, group; } *v;
    size_t n, size;
    uint32_t groups;
};

static struct transfers *of_item(void)
{
    struct item *item = launch_now()->now;
    if (!item->transfers)
        item->transfers = calloc(1, sizeof *item->transfers);
    if (!item->transfers) {
        report("no memory for asynchronous copies");
        launch_abort();
    }
    return item->transfers;
}

void transfers_begin(struct item *item)
{
    if (item->transfers)
        item->transfers->n = item->transfers->groups = 0;
}

void transfers_free(struct item *item)
{
    if (item->transfers)
        free(item->transfers->v);
    free(item->transfers);
}

void emulator_copy(void *to, const void *from, uint32_t nbytes, uint32_t valid)
{
    struct transfers *all = of_item();
    struct transfer new = {.to = to, .nbytes = nbytes, .group = all->groups};
    if (valid) {
        shadow_aligned(from, nbytes, ACCESS_READ);
        memcpy(new.byte, from, nbytes);
    }
    banks_look(to, nbytes, "copies to local memory are");
    shadow_aligned(to, nbytes, ACCESS_WRITE);
    shadow_forget(to, nbytes);
    if (all->n == all->size) {
        const size_t size = all->size ? 2 * all->size : 16;
        struct transfer *v = realloc(all->v, size * sizeof *v);
        if (!v) {
            report("no memory for asynchronous copies");
            launch_abort();
        }
        all->v = v;
        all->size = size;
    }
    all->v[all->n++] = new;
}

void emulator_commit(void) { of_item()->groups++; }

void emulator_wait(uint32_t n)
{
    struct transfers *all = of_item();
    size_t arrived = 0;
    while (arrived < all->n && all->v[arrived].group + n < all->groups) {
        const struct transfer *now = &all->v[arrived++];
        shadow_access(now->to, now->nbytes, ACCESS_WRITE);
        memcpy(now->to, now->byte, now->nbytes);
    }
    all->n -= arrived;
    memmove(all->v, all->v + arrived, all->n * sizeof *all->v);
}
