/* SPDX-License-Identifier: 0BSD */
/* leaving.c - the copy engine that stores boxes from shared memory to tensors, as a block's
 * work-items see it.
 *
 *      store   the store is in flight;
 *      left    the bytes are read when its work-item waits until they have left local memory,
 *              and are in the tensor when it waits for the whole store.
 *
 * So a store to the local memory that comes too early is found, by the bytes or as a race. So is a
 * work-item that ends without waiting.
 *
 * Work-items' stores must have been published before the barrier that precedes the bulk store: the
 * engine reads through another proxy.
 */
#include "emulator.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BOXES = 64 };

struct box {
    struct tensor_map map;
    int x[5];
    const unsigned char *from;
    unsigned char *bytes;
    size_t nbytes;
    uint32_t item;
    bool has_left;
};
struct leaving { struct box v[MOST_BOXES]; int n; };

API void emulator_bulk_store(const void *map, const void *from, int rank, const int *x);
API void emulator_bulk_left(bool all);

static _Noreturn void fail(const char *what)
{
    if (item_is_first())
        report("%s: %s: %s, at %s", launch_now()->kernel->signature.name,
               item_name(launch_now(), launch_now()->now->number), what, item_line());
    launch_abort();
}

void leaving_begin_block(struct block *b)
{
    for (int i = 0; b->leaving && i < b->leaving->n; i++)
        free(b->leaving->v[i].bytes);
    if (b->leaving)
        b->leaving->n = 0;
}

void leaving_free(struct block *b)
{
    leaving_begin_block(b);
    free(b->leaving);
    b->leaving = NULL;
}

bool leaving_end_block(const struct launch *l, const struct block *b)
{
    const int n = b->leaving ? b->leaving->n : 0;
    if (n)
        report("%s: %d boxes are on their way to tensors when their block ends: nobody has waited "
               "for them",
               l->kernel->signature.name, n);
    return n == 0;
}

void emulator_bulk_store(const void *map, const void *from, int rank, const int *x)
{
    struct launch *l = launch_now();
    struct box b = {.map = *(const struct tensor_map *)map, .from = from, .item = l->now->in_block};
    if (b.map.magic != TENSOR_MAP || b.map.rank != rank || b.map.type > 3)
        fail("no tensor map of so many axes");
    b.nbytes = (size_t)1 << b.map.type;
    for (int a = 0; a < rank; a++) {
        b.nbytes *= b.map.extent[a];
        b.x[a] = x[a];
    }
    if ((uintptr_t)from % 128 || (b.map.swizzle && b.nbytes % 128))
        fail("a box begins at no multiple of 128 bytes, or is no whole number of them");
    shadow_access(from, b.nbytes, ACCESS_READ);
    const struct memory *memory = shadow_memory(from);
    if (!memory || products_unpublished(l, memory))
        fail("a box leaves that is not in shared memory, or has been stored, and not published, "
             "before the barrier");
    if (!l->here->leaving && !(l->here->leaving = calloc(1, sizeof *l->here->leaving)))
        fail("no memory for boxes");
    if (l->here->leaving->n == MOST_BOXES || !(b.bytes = malloc(b.nbytes)))
        fail("more boxes are on their way than the emulator knows");
    memcpy(b.bytes, from, b.nbytes);
    l->here->leaving->v[l->here->leaving->n++] = b;
}

/* The place of the box's byte `at`, as it lies from `from` on: see swizzled() in bulk.c. */
static size_t place_of(const struct box *b, size_t at)
{
    const uintptr_t from = (uintptr_t)b->from, p = from + at;
    return b->map.swizzle ? (p ^ ((p >> 7 & ((1u << b->map.swizzle) - 1)) << 4)) - from : at;
}

/* Stores the elements that are within the tensor. */
static void deliver(const struct box *b)
{
    const struct tensor_map *m = &b->map;
    const size_t nbytes = (size_t)1 << m->type;
    for (size_t at = 0; at < b->nbytes; at += nbytes) {
        size_t rest = at / nbytes;
        uint64_t to = m->at;
        bool inside = true;
        for (int a = 0; a < m->rank; a++) {
            const int64_t x = b->x[a] + (int64_t)(rest % m->extent[a]);
            inside &= x >= 0 && x < (int64_t)m->size[a];
            to += (uint64_t)x * (a ? m->between_rows[a - 1] : nbytes);
            rest /= m->extent[a];
        }
        if (!inside)
            continue;
        shadow_access((const void *)(uintptr_t)to, nbytes, ACCESS_WRITE);
        memcpy((void *)(uintptr_t)to, b->bytes + place_of(b, at), nbytes);
    }
}

void emulator_bulk_left(bool all)
{
    const struct launch *l = launch_now();
    struct leaving *of = l->here->leaving;
    int left = 0;
    for (int i = 0; of && i < of->n; i++) {
        struct box *b = &of->v[i];
        const bool own = b->item == l->now->in_block;
        if (own && !b->has_left) {
            shadow_access(b->from, b->nbytes, ACCESS_READ);
            if (memcmp(b->bytes, b->from, b->nbytes) != 0)
                fail("memory has been stored to before a box has left it");
            b->has_left = true;
        }
        if (own && all) {
            deliver(b);
            free(b->bytes);
        } else {
            of->v[left++] = *b;
        }
    }
    if (of)
        of->n = left;
}
