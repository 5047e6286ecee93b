/* SPDX-License-Identifier: 0BSD */
/* shadow.c - what each access of a kernel is checked against: clang's instrumentation of addresses
 * calls emulator_loadN() and emulator_storeN() before each of them.
 *
 * A byte that work-items share has a cell: who wrote it last, and two who read it. Each of them is
 * a stamp:
 *
 *      63      48 47     46    40 39   24 23          0
 *      |  epoch  |atomic|subphase| phase |  work-item |
 *
 * Two accesses of different work-items, one of them a write, race unless something orders them.
 * Different epochs do (launches of one queue, or of several that events order). So do different
 * phases of one block, different subphases of one sub-group, and barriers in memory (bulk.c). Two
 * readers are enough: of three that are not ordered with a write, two are kept, of different blocks
 * if there are such.
 */
#define _GNU_SOURCE
#include "emulator.h"
#include "fiber.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct cell {
    uint64_t writer, reader[2];
};

enum { ITEM_BITS = 24, PHASE_BITS = 16, SUBPHASE_BITS = 7 };
static const uint64_t ATOMIC = (uint64_t)1 << 47;

/* --------------------------------------------------------------------------------------- memory */

static void *map(size_t nbytes)
{
    void *at = mmap(NULL, nbytes ? nbytes : 1, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* All that there are, and the number of the last launch. */
static struct {
    struct memory *first;
    uint32_t epoch;
    struct { uint32_t queue, number; } when[1 << 16];        /* by epoch */
} shadow;

bool memory_create(struct memory *m, void *at, size_t nbytes)
{
    *m = (struct memory){.at = at, .nbytes = nbytes, .next = shadow.first};
    shadow.first = m;
    if (nbytes <= SIZE_MAX / 2 / sizeof *m->cell) {
        m->cell = map(nbytes * sizeof *m->cell);
        m->known = map(nbytes);
    }
    if (m->cell && m->known)
        return true;
    memory_release(m);
    return false;
}

void memory_release(struct memory *m)
{
    struct memory **at = &shadow.first;
    while (*at && *at != m)
        at = &(*at)->next;
    if (*at)
        *at = m->next;
    if (m->cell)
        munmap(m->cell, m->nbytes ? m->nbytes * sizeof *m->cell : 1);
    if (m->known)
        munmap(m->known, m->nbytes ? m->nbytes : 1);
    m->cell = NULL;
    m->known = NULL;
}

uint32_t shadow_epoch(const struct order *o)
{
    enum { LAST = 0xffff };
    if (shadow.epoch == LAST) { /* numbers are reused: all cells are cleared */
        for (struct memory *m = shadow.first; m; m = m->next)
            madvise(m->cell, m->nbytes * sizeof *m->cell, MADV_DONTNEED);
        shadow.epoch = 0;
    }
    shadow.epoch++;
    shadow.when[shadow.epoch].queue = o ? o->queue : 0;
    shadow.when[shadow.epoch].number = o ? o->number : 0;
    return shadow.epoch;
}

/* Is the access that left the stamp, in another launch, unordered with the one that comes now? */
static bool is_unordered(const struct order *o, uint64_t old)
{
    const uint32_t epoch = (uint32_t)(old >> 48);
    return o && epoch && shadow.when[epoch].number > o->before[shadow.when[epoch].queue];
}

/* --------------------------------------------------------------------------------------- stamps */

static uint64_t stamp(const struct launch *l, bool in_shared, bool is_atomic)
{
    const uint64_t phase = l->here->phase[in_shared ? 0 : 1] & ((1u << PHASE_BITS) - 1);
    const uint64_t subphase = l->now->subphase & ((1u << SUBPHASE_BITS) - 1);
    return (uint64_t)l->epoch << 48 | (is_atomic ? ATOMIC : 0) |
           subphase << (ITEM_BITS + PHASE_BITS) | phase << ITEM_BITS | l->now->number;
}

static uint32_t stamp_item(uint64_t s) { return s & ((1u << ITEM_BITS) - 1); }
static uint64_t stamp_phase(uint64_t s) { return s >> ITEM_BITS & ((1u << PHASE_BITS) - 1); }

/* Do barriers in memory order the old stamp's access, by a wave of a block of the cluster, before
 * the one that comes now? */
static bool is_told(const struct launch *l, uint64_t old)
{
    const uint32_t item = stamp_item(old) % l->nitem,
                   block = stamp_item(old) / l->nitem - l->cluster->number;
    const uint32_t count = l->cluster[block].item[item].subphase,
                   ago = (count - (uint32_t)(old >> (ITEM_BITS + PHASE_BITS))) &
                         ((1u << SUBPHASE_BITS) - 1);
    return bulk_orders(l, block, item / l->nsubgroup, count - ago);
}

/* Are two accesses unordered, one of them a write? Each block has local memory of its own, to which
 * only blocks of its cluster can write. */
static bool races(const struct launch *l, bool in_shared, uint64_t old, uint64_t now)
{
    const uint32_t a = stamp_item(old), b = stamp_item(now);
    if (old >> 48 != now >> 48)
        return !in_shared && is_unordered(l->order, old);
    if (a == b || (old & now & ATOMIC))
        return false;
    if (a / l->nitem != b / l->nitem && !in_shared)
        return !tickets_order(l, a / l->nitem, a, (uint32_t)stamp_phase(old), 1u << PHASE_BITS);
    if (a / l->nitem != b / l->nitem)
        return a / l->nitem >= l->cluster->number && !is_told(l, old);
    if (stamp_phase(old) != stamp_phase(now))
        return false;
    const uint64_t parts = ((1u << SUBPHASE_BITS) - 1) * ((uint64_t)1 << (ITEM_BITS + PHASE_BITS));
    const bool same = a % l->nitem / l->nsubgroup == b % l->nitem / l->nsubgroup;
    if (!same && in_shared && is_told(l, old))
        return false;
    return !same || (old & parts) == (now & parts);
}

/* Notes a reader: in its own slot, in the slot of a stale reader or of one that it follows, or in
 * the second slot.
 */
static void note_reader(const struct launch *l, bool in_shared, struct cell *cell, uint64_t now)
{
    for (int i = 0; i < 2; i++)
        if (stamp_item(cell->reader[i]) == stamp_item(now) ||
            !races(l, in_shared, cell->reader[i], now)) {
            cell->reader[i] = now;
            return;
        }
    if (stamp_item(cell->reader[0]) / l->nitem == stamp_item(cell->reader[1]) / l->nitem)
        cell->reader[1] = now;
}

/* -------------------------------------------------------------------------------------- reports */

static const char *verb(enum access kind)
{
    return kind == ACCESS_READ ? "reads" : kind == ACCESS_WRITE ? "writes" : "updates";
}

static const char *space(const struct window *w)
{
    return w->in_shared ? "shared memory" : "memory";
}

static void report_race(struct launch *l, const struct window *w, size_t at, size_t nbytes,
                        enum access kind, uint64_t old, bool old_wrote)
{
    const bool same = stamp_item(old) / l->nitem == l->now->number / l->nitem;
    if (item_is_first())
        report(
            "%s: race: %s %s byte %zu (element %zu of %zu bytes) of %s '%s', which %s %s %s, at %s",
            l->kernel->signature.name, item_name(l, l->now->number), verb(kind), at - w->from,
            (at - w->from) / nbytes, nbytes, space(w), w->name, item_name(l, stamp_item(old)),
            old_wrote ? "writes" : "reads",
            old >> 48 != l->epoch ? "in a launch of another queue that no event orders"
            : same || w->in_shared ? "without a barrier between"
                                  : "in the same launch",
            item_line());
}

/* The window that is nearest to an address. */
static const struct window *nearest(const struct launch *l, uintptr_t at, size_t *distance)
{
    const struct window *best = NULL;
    *distance = SIZE_MAX;
    for (int i = 0; i < l->nwindow; i++) {
        const struct window *w = &l->window[i];
        const uintptr_t from = (uintptr_t)w->memory->at + w->from,
                        to = (uintptr_t)w->memory->at + w->to;
        const size_t d = at < from ? from - at : at >= to ? at - to : 0;
        if (d < *distance) {
            *distance = d;
            best = w;
        }
    }
    return best;
}

static _Noreturn void report_bounds(struct launch *l, uintptr_t at, size_t nbytes, enum access kind)
{
    size_t distance;
    const struct window *w = nearest(l, at, &distance);
    const char *name = l->kernel->signature.name, *who = item_name(l, l->now->number);
    if (!w || distance > (size_t)1 << 30)
        report("%s: out of bounds: %s %s %zu bytes at an address that is none of its arguments', "
               "at %s",
               name, who, verb(kind), nbytes, item_line());
    else if (at >= (uintptr_t)w->memory->at + w->to)
        report(
            "%s: out of bounds: %s %s %zu bytes, %zu bytes behind the end of %s '%s' (%zu bytes), "
            "at %s",
            name, who, verb(kind), nbytes, distance, space(w), w->name, w->to - w->from,
            item_line());
    else if (at < (uintptr_t)w->memory->at + w->from)
        report("%s: out of bounds: %s %s %zu bytes, %zu bytes before %s '%s', at %s", name, who,
               verb(kind), nbytes, distance, space(w), w->name, item_line());
    else if (at - (uintptr_t)w->memory->at + nbytes > w->to)
        report("%s: out of bounds: %s %s %zu bytes, over the end of %s '%s' (%zu bytes), at %s",
               name, who, verb(kind), nbytes, space(w), w->name, w->to - w->from, item_line());
    else
        report("%s: %s %s %zu bytes of %s '%s', which it may only read, at %s", name, who,
               verb(kind), nbytes, space(w), w->name, item_line());
    launch_abort();
}

static _Noreturn void report_alignment(const struct launch *l, const struct window *w, size_t at,
                                       size_t nbytes, enum access kind)
{
    report("%s: misaligned: %s %s %zu bytes at byte %zu of %s '%s', at %s",
           l->kernel->signature.name, item_name(l, l->now->number), verb(kind), nbytes,
           at - w->from, space(w), w->name, item_line());
    launch_abort();
}

/* --------------------------------------------------------------------------------------- access */

static const struct window *find(const struct launch *l, uintptr_t at, size_t nbytes, bool writes)
{
    for (int i = 0; i < l->nwindow; i++) {
        const struct window *w = &l->window[i];
        const uintptr_t offset = at - (uintptr_t)w->memory->at;
        if (offset >= w->from && offset < w->to && nbytes <= w->to - offset &&
            (!writes || w->is_writable))
            return w;
    }
    return NULL;
}

/* Tables of the kernels' text are in its module. */
static bool is_constant(const struct launch *l, uintptr_t at)
{
    if (at < l->module->begin || at >= l->module->end)
        return false;
    for (int i = 0; i < l->module->nlocal; i++)
        if (at - (uintptr_t)l->module->local[i].memory->at < l->module->local[i].memory->nbytes)
            return false;
    return true;
}

/* false: something was found, which is enough to know of this access. */
static bool check_byte(struct launch *l, const struct window *w, size_t at, size_t nbytes,
                       enum access kind, uint64_t now)
{
    struct cell *cell = &w->memory->cell[at];
    if (races(l, w->in_shared, cell->writer, now)) {
        report_race(l, w, at, nbytes, kind, cell->writer, true);
        return false;
    }
    if (kind == ACCESS_READ) {
        note_reader(l, w->in_shared, cell, now);
        return true;
    }
    for (int i = 0; i < 2; i++)
        if (races(l, w->in_shared, cell->reader[i], now)) {
            report_race(l, w, at, nbytes, kind, cell->reader[i], false);
            return false;
        }
    cell->writer = now;
    return true;
}

static void check_known(struct launch *l, const struct window *w, size_t at, size_t nbytes)
{
    if (!memchr(w->memory->known + at, 0, nbytes))
        return;
    for (size_t i = 0; i < nbytes; i++)
        if (!w->memory->known[at + i]) {
            if (item_is_first())
                report(
                    "%s: %s reads byte %zu (element %zu of %zu bytes) of %s '%s', which nobody has "
                    "written, at %s",
                    l->kernel->signature.name, item_name(l, l->now->number), at - w->from,
                    (at - w->from) / nbytes, nbytes, space(w), w->name, item_line());
            return;
        }
}

static bool cell_is_same(const struct cell *a, const struct cell *b)
{
    return a->writer == b->writer && a->reader[0] == b->reader[0] && a->reader[1] == b->reader[1];
}

static void check_access(const void *address, size_t nbytes, size_t alignment, enum access kind)
{
    struct launch *l = launch_now();
    const uintptr_t at = (uintptr_t)address;
    if (!l || !l->now || nbytes == 0 || fiber_has(at))
        return;
    const struct window *w = find(l, at, nbytes, kind != ACCESS_READ);
    if (!w && kind == ACCESS_READ && is_constant(l, at))
        return;
    if (!w)
        report_bounds(l, at, nbytes, kind);
    const size_t offset = at - (uintptr_t)w->memory->at;
    if (at % alignment)
        report_alignment(l, w, offset, nbytes, kind);
    if (kind != ACCESS_WRITE)
        check_known(l, w, offset, nbytes);
    if (kind != ACCESS_READ)
        memset(w->memory->known + offset, 1, nbytes);
    if (kind != ACCESS_READ && w->in_shared && !l->by_engine)
        products_stored(l, w->memory);
    if (!w->is_written && !(l->order && l->order->several))
        return;
    const uint64_t now = stamp(l, w->in_shared, kind == ACCESS_ATOMIC);
    struct cell before = {0}, after = {0};
    for (size_t i = 0; i < nbytes; i++) { /* what a cell becomes depends on what it was: bytes of a
                                           * number are mostly alike */
        struct cell *cell = &w->memory->cell[offset + i];
        if (i && cell_is_same(cell, &before)) {
            *cell = after;
            continue;
        }
        before = *cell;
        if (!check_byte(l, w, offset + i, nbytes, kind, now))
            return;
        after = *cell;
    }
}

void shadow_transfer(struct memory *m, size_t from, size_t nbytes, bool writes,
                     const struct order *o)
{
    const uint64_t now = (uint64_t)shadow_epoch(o) << 48;
    bool is_told = false;
    for (size_t i = from; i < from + nbytes; i++) {
        struct cell *cell = &m->cell[i];
        const bool wrote = is_unordered(o, cell->writer);
        const bool read =
            writes && (is_unordered(o, cell->reader[0]) || is_unordered(o, cell->reader[1]));
        if ((wrote || read) && !is_told)
            report("race: a copy %s byte %zu of memory, which a command of another queue that no "
                   "event orders %s",
                   writes ? "writes" : "reads", i, wrote ? "writes" : "reads");
        is_told |= wrote || read;
        if (writes)
            cell->writer = now;
        else
            cell->reader[is_unordered(o, cell->reader[0])] = now;
    }
}

void shadow_access(const void *address, size_t nbytes, enum access kind)
{
    check_access(address, nbytes, 1, kind);
}

void shadow_aligned(const void *address, size_t nbytes, enum access kind)
{
    check_access(address, nbytes, nbytes, kind);
}

void shadow_forget(const void *address, size_t nbytes)
{
    const struct window *w = find(launch_now(), (uintptr_t)address, nbytes, true);
    if (w)
        memset(w->memory->known + ((uintptr_t)address - (uintptr_t)w->memory->at), 0, nbytes);
}

struct memory *shadow_memory(const void *at)
{
    const struct window *w = find(launch_now(), (uintptr_t)at, 1, true);
    return w && w->in_shared ? w->memory : NULL;
}

void shadow_forget_writer(struct memory *m, size_t at) { m->cell[at].writer = 0; }

/* --------------------------------------------------------------------------------------- hooks */

/* An access of a number or of a vector up to 16 bytes is aligned to its size. Most are of the
 * work-item's own stack. */
#define HOOKS(size)                                                                                \
    API void emulator_load##size(const void *at);                                                  \
    void emulator_load##size(const void *at)                                                       \
    {                                                                                              \
        if (!fiber_has((uintptr_t)at))                                                             \
            check_access(at, size, size, ACCESS_READ);                                             \
    }                                                                                              \
    API void emulator_store##size(const void *at);                                                 \
    void emulator_store##size(const void *at)                                                      \
    {                                                                                              \
        if (!fiber_has((uintptr_t)at))                                                             \
            check_access(at, size, size, ACCESS_WRITE);                                            \
    }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

/* Vectors of 32 bytes and more are, too; smaller ones come here if the compiler has made them of
 * narrower ones. */
static size_t alignment_of(size_t nbytes)
{
    return nbytes >= 32 && (nbytes & (nbytes - 1)) == 0 ? nbytes : 1;
}

API void emulator_loadN(const void *at, size_t nbytes);
void emulator_loadN(const void *at, size_t nbytes)
{
    check_access(at, nbytes, alignment_of(nbytes), ACCESS_READ);
}

API void emulator_storeN(const void *at, size_t nbytes);
void emulator_storeN(const void *at, size_t nbytes)
{
    check_access(at, nbytes, alignment_of(nbytes), ACCESS_WRITE);
}

API void *emulator_memset(void *to, int value, size_t nbytes);
void *emulator_memset(void *to, int value, size_t nbytes)
{
    shadow_access(to, nbytes, ACCESS_WRITE);
    return memset(to, value, nbytes);
}

API void *emulator_memcpy(void *to, const void *from, size_t nbytes);
void *emulator_memcpy(void *to, const void *from, size_t nbytes)
{
    shadow_access(from, nbytes, ACCESS_READ);
    shadow_access(to, nbytes, ACCESS_WRITE);
    return memcpy(to, from, nbytes);
}

API void *emulator_memmove(void *to, const void *from, size_t nbytes);
void *emulator_memmove(void *to, const void *from, size_t nbytes)
{
    shadow_access(from, nbytes, ACCESS_READ);
    shadow_access(to, nbytes, ACCESS_WRITE);
    return memmove(to, from, nbytes);
}

/* What the instrumentation calls first; a program that is checked itself has its own. */
__attribute__((weak)) API void __asan_init(void);
void __asan_init(void) {}
