/* SPDX-License-Identifier: 0BSD */
/* tickets.c - ticket counters: blocks count themselves by an atomic operation, and the last block
 * reads what the others have stored.
 *
 *      block a   stores ... | fence, count            what all its work-items did before the
 *                                                     barrier is released with the count;
 *      block b              | count, fence | loads    who counts acquires that after its fence,
 *                                                     its block after the next barrier.
 *
 * So blocks' accesses of the same bytes are a race if a fence, a barrier or the count is missing.
 * Fences have device scope, and are of the work-item that counts. They release what the block's
 * other work-items did only after a barrier. A launch must leave its counters 0.
 */
#include "emulator.h"

#include <stdlib.h>

/* Who has counted where. is_released: there was a fence, so what its block did in earlier
 * phases is released. */
struct count { uint32_t *at; uint32_t block, item, phase; bool is_released; };
/* What another block is known to have done: to the reader, and to the reader's block from
 * the next phase on. */
struct known { uint32_t block, item, phase, reader, reader_item, since; };
struct tickets {
    struct count *count;
    struct known *known;
    size_t ncount, nknown, cap_count, cap_known;
};

API void emulator_fence(void);
API unsigned emulator_count(uint32_t *at, unsigned last);
API int emulator_any(int value);

/* false: no memory. */
static bool grow(void **v, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return true;
    const size_t more = *cap ? 2 * *cap : 64;
    void *now = realloc(*v, more * size);
    if (!now)
        return false;
    *v = now;
    *cap = more;
    return true;
}

static struct tickets *tickets_of(struct launch *l)
{
    if (!l->tickets)
        l->tickets = calloc(1, sizeof *l->tickets);
    if (!l->tickets)
        abort();
    return l->tickets;
}

void emulator_fence(void)
{
    struct launch *l = launch_now();
    struct item *item = l->now;
    struct tickets *t = tickets_of(l);
    const uint32_t phase = l->here->phase[1];
    for (size_t i = 0; i < t->ncount && item->counted; i++) {
        const struct count *c = &t->count[i];
        if (c->at != item->counted || c->block == l->here->number || !c->is_released)
            continue;
        if (!grow((void **)&t->known, t->nknown, &t->cap_known, sizeof *t->known))
            abort();
        t->known[t->nknown++] =
            (struct known){c->block, c->item, c->phase, l->here->number, item->number, phase};
    }
    item->counted = NULL;
    item->fenced = phase + 1;
}

unsigned emulator_count(uint32_t *at, unsigned last)
{
    struct launch *l = launch_now();
    struct item *item = l->now;
    struct tickets *t = tickets_of(l);
    shadow_aligned(at, sizeof *at, ACCESS_ATOMIC);
    const uint32_t phase = l->here->phase[1];
    if (!grow((void **)&t->count, t->ncount, &t->cap_count, sizeof *t->count))
        abort();
    t->count[t->ncount++] =
        (struct count){at, l->here->number, item->number, phase, item->fenced == phase + 1};
    item->counted = at;
    const unsigned old = *at;
    *at = old >= last ? 0 : old + 1;
    return old;
}

int emulator_any(int value)
{
    struct launch *l = launch_now();
    struct block *b = l->here;
    const uint32_t turn = b->phase[0] & 1;
    b->any[turn] |= value != 0;
    item_wait(FOR_BLOCK, 3, NULL);
    return b->any[turn];
}

bool tickets_order(const struct launch *l, uint32_t block, uint32_t item, uint32_t phase,
                   uint32_t phases)
{
    const struct tickets *t = l->tickets;
    for (size_t i = 0; t && i < t->nknown; i++) {
        const struct known *k = &t->known[i];
        const uint32_t behind = (k->phase - phase) & (phases - 1);
        const bool is_reader = k->reader_item == l->now->number ||
                               (k->reader == l->here->number && l->here->phase[1] > k->since);
        if (k->block == block && is_reader && behind < phases / 2 &&
            (behind > 0 || k->item == item))
            return true;
    }
    return false;
}

bool tickets_end(struct launch *l)
{
    struct tickets *t = l->tickets;
    bool all = true;
    for (size_t i = 0; t && i < t->ncount && !l->has_failed && all; i++)
        all = *t->count[i].at == 0;
    if (!all)
        report("%s: a counter of blocks is not 0 when the launch has ended",
               l->kernel->signature.name);
    if (t) {
        free(t->count);
        free(t->known);
        free(t);
    }
    l->tickets = NULL;
    return all;
}
