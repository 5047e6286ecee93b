/* SPDX-License-Identifier: 0BSD */
/* bulk.c - an engine that copies boxes of tensors to shared memory, and the barriers in memory that tell of its
 * copies, as a block's work-items see them.
 *
 *      copy    the bytes are on their way: what they are to replace is unknown until
 *      wait    their phase has ended, which it does when all have arrived that it counts, and all bytes have been
 *              sent that it expects. So who reads without waiting, or waits for another phase, is found.
 *
 * A copy is a write of who starts it, so one that nothing orders with who reads is a race. What orders them: a wave arrives
 * behind its own barrier, its number tells what it had done, and who waits for the phase knows that from then on.
 *
 * Blocks run one by one: of a cluster each one copies the other blocks' parts of its boxes itself, and arrives for them.
 */
#include "emulator.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BARRIERS = 64, MOST_COPIES = 256, MOST_ITEMS = 1024, MOST_WAVES = 32 };

struct sent { unsigned char *to, *bytes; size_t nbytes; struct memory *memory; };
struct barrier {
    uint64_t *at;
    unsigned count, missing, phase;
    int64_t expected;            /* bytes, less those that were sent */
    struct sent sent[MOST_COPIES];
    int nsent;
    uint32_t arrived[MOST_WAVES], ended[MOST_WAVES]; /* what who has arrived knows of each wave; in the phase that has ended last */
};
/* Those of the block that runs. */
static struct barrier barrier[MOST_BARRIERS];
static int nbarrier;
static uint32_t known[MOST_ITEMS][MOST_WAVES]; /* by work-item, of each wave: what it had done before its barrier of this number */

API void emulator_bulk_init(uint64_t *at, int n, unsigned count);
API void emulator_bulk_arrive(uint64_t *at, unsigned nbytes);
API void emulator_bulk_release(uint64_t *at, int blocks);
API void emulator_bulk_meet(void);
API void emulator_bulk_copy_part(void *to, const void *map, uint64_t *at, int rank, const int *x, int blocks, int axis, int rows, int nbytes);
API void emulator_bulk_wait(uint64_t *at, unsigned parity);
API void emulator_bulk_copy(void *to, const void *map, uint64_t *at, int rank, const int *x);

static const char *kernel(void) { return launch_now()->kernel->signature.name; }

static _Noreturn void fail(const char *what)
{
    if (item_is_first())
        report("%s: %s: %s, at %s", kernel(), item_name(launch_now(), launch_now()->now->number), what, item_line());
    launch_abort();
}

static void forget(struct barrier *b)
{
    for (int i = 0; i < b->nsent; i++)
        free(b->sent[i].bytes);
    b->nsent = 0;
}

void bulk_begin_block(void)
{
    for (int i = 0; i < nbarrier; i++)
        forget(&barrier[i]);
    if (nbarrier)
        memset(known, 0, sizeof known);
    nbarrier = 0;
}

bool bulk_end_block(void)
{
    int n = 0;
    for (int i = 0; i < nbarrier; i++)
        n += barrier[i].nsent;
    if (n)
        report("%s: %d copies are on their way when their block ends: nobody has waited for them", kernel(), n);
    return n == 0;
}

static struct barrier *find(uint64_t *at)
{
    int i = 0;
    while (i < nbarrier && barrier[i].at != at)
        i++;
    if (i == nbarrier)
        fail("a barrier in memory that has not begun");
    shadow_access(at, sizeof *at, ACCESS_ATOMIC);
    return &barrier[i];
}

void emulator_bulk_init(uint64_t *at, int n, unsigned count)
{
    const struct item *item = launch_now()->now;
    for (int i = 0; i < n && item->in_block == 0; i++) {
        for (int k = 0; k < nbarrier; k++)
            if (barrier[k].at == at + i)
                fail("a barrier in memory begins twice");
        if ((uintptr_t)at % sizeof *at || nbarrier == MOST_BARRIERS)
            fail("a barrier in memory at no multiple of 8 bytes, or more of them than the emulator knows");
        shadow_access(at + i, sizeof *at, ACCESS_WRITE);
        barrier[nbarrier] = (struct barrier){.at = at + i, .count = count, .missing = count};
        nbarrier++;
    }
}

/* The phase ends if nothing is missing: what was sent is there. */
static bool end_phase(struct barrier *b)
{
    if (b->missing || b->expected)
        return false;
    for (int i = 0; i < b->nsent; i++) {
        const struct sent *s = &b->sent[i];
        const size_t from = (size_t)(s->to - s->memory->at);
        for (size_t k = 0; k < s->nbytes; k++) {         /* by the bytes' own places, see swizzled() */
            s->memory->at[from + k] = s->bytes[k];
            s->memory->known[from + k] = 1;
            shadow_forget_writer(s->memory, from + k);
        }
    }
    forget(b);
    memcpy(b->ended, b->arrived, sizeof b->ended);
    b->missing = b->count;
    b->phase++;
    return true;
}

static void tell(uint32_t *whom, const uint32_t *what)
{
    for (int i = 0; i < MOST_WAVES; i++)
        whom[i] = what[i] > whom[i] ? what[i] : whom[i];
}

void emulator_bulk_arrive(uint64_t *at, unsigned nbytes)
{
    struct barrier *b = find(at);
    const int nsent = b->nsent;
    if (end_phase(b) && nsent)
        fail("the next phase of a barrier begins, and nobody has waited for the copies of this one");
    if (b->missing == 0)
        fail("more threads arrive than the barrier in memory counts, or bytes of its phase are still missing");
    b->missing--;
    b->expected += nbytes;
    tell(b->arrived, known[launch_now()->now->in_block % MOST_ITEMS]);
}

void emulator_bulk_release(uint64_t *at, int blocks)
{
    const struct item *item = launch_now()->now;
    const uint32_t wave = item->in_block / launch_now()->nsubgroup;
    item_wait(true, 1, NULL);
    if (item->in_block % launch_now()->nsubgroup)
        return;
    if (wave < MOST_WAVES)
        known[item->in_block % MOST_ITEMS][wave] = item->subphase;
    for (int i = 0; i < blocks; i++)
        emulator_bulk_arrive(at, 0);
}

void emulator_bulk_meet(void) { item_wait(false, 3, NULL); }

bool bulk_orders(const struct item *item, uint32_t wave, uint32_t subphase)
{
    return nbarrier && wave < MOST_WAVES && subphase < known[item->in_block % MOST_ITEMS][wave];
}

bool bulk_has_ended(const uint64_t *at, unsigned parity)
{
    for (int i = 0; i < nbarrier; i++)
        if (barrier[i].at == at) {
            if ((barrier[i].phase & 1) == (parity & 1))
                end_phase(&barrier[i]);
            return (barrier[i].phase & 1) != (parity & 1);
        }
    return false;
}

void bulk_report_stuck(const struct launch *l, const struct item *item)
{
    for (int i = 0; i < nbarrier; i++)
        if (barrier[i].at == item->polled)
            report("%s: %s waits for the end of a phase, for which %u threads and %lld bytes are missing, at %s", l->kernel->signature.name,
                   item_name(l, item->number), barrier[i].missing, (long long)barrier[i].expected, report_line(l->module, item->site));
}

void emulator_bulk_wait(uint64_t *at, unsigned parity)
{
    const struct barrier *b = find(at);
    if (!bulk_has_ended(at, parity))
        item_poll(at, parity);
    tell(known[launch_now()->now->in_block % MOST_ITEMS], b->ended);
}

/* The place of the byte at `at`: chunks of 16 bytes are exchanged by the bits of their address above 128. */
static uintptr_t swizzled(uintptr_t at, int swizzle)
{
    return swizzle ? at ^ ((at >> 7 & ((1u << swizzle) - 1)) << 4) : at;
}

/* A row of the box, from element x of the tensor on, as its axes but the first say: 0 beyond the tensor. */
static void read_row(const struct tensor_map *m, const int64_t *x, unsigned char *to)
{
    const size_t nbytes = (size_t)1 << m->type;
    uint64_t from = m->at;
    bool inside = true;
    for (int a = 1; a < m->rank; a++) {
        inside &= x[a] >= 0 && x[a] < (int64_t)m->size[a];
        from += (uint64_t)x[a] * m->between_rows[a - 1];
    }
    const int64_t begin = x[0] < 0 ? -x[0] : 0, left = (int64_t)m->size[0] - x[0],
                  end = left < (int64_t)m->extent[0] ? left : (int64_t)m->extent[0];
    memset(to, 0, m->extent[0] * nbytes);
    if (!inside || begin >= end)
        return;
    const void *row = (const void *)(uintptr_t)(from + (uint64_t)((x[0] + begin) * (int64_t)nbytes));
    shadow_access(row, (size_t)(end - begin) * nbytes, ACCESS_READ);
    memcpy(to + (size_t)begin * nbytes, row, (size_t)(end - begin) * nbytes);
}

/* The box as it will lie in shared memory, from `to` on. */
static void read_box(const struct tensor_map *m, const int *x, const unsigned char *to, unsigned char *box, size_t nbytes)
{
    const size_t row = m->extent[0] << m->type;
    unsigned char *line = malloc(row);
    for (size_t at = 0; line && at < nbytes; at += row) {
        int64_t of[5] = {x[0]};
        size_t rest = at / row;
        for (int a = 1; a < m->rank; a++) {
            of[a] = x[a] + (int64_t)(rest % m->extent[a]);
            rest /= m->extent[a];
        }
        read_row(m, of, line);
        for (size_t k = 0; k < row; k++)
            box[swizzled((uintptr_t)to + at + k, m->swizzle) - (uintptr_t)to] = line[k];
    }
    free(line);
}

void emulator_bulk_copy(void *to, const void *map, uint64_t *at, int rank, const int *x)
{
    const struct tensor_map *m = map;
    struct barrier *b = find(at);
    size_t nbytes = (size_t)1 << (m->type < 4 ? m->type : 0);
    if (m->magic != TENSOR_MAP || m->rank != rank)
        fail("no tensor map of so many axes");
    for (int a = 0; a < rank; a++)
        nbytes *= m->extent[a];
    if ((uintptr_t)to % 128 || (m->swizzle && nbytes % 128))
        fail("a box begins at no multiple of 128 bytes, or is no whole number of them");
    if (b->nsent == MOST_COPIES)
        fail("more copies are on their way than the emulator knows");
    products_replaced(launch_now(), to, nbytes);
    shadow_access(to, nbytes, ACCESS_WRITE);
    struct memory *memory = shadow_memory(to);
    if (!memory)
        fail("a box that is not copied to shared memory");
    unsigned char *bytes = malloc(nbytes);
    if (!bytes)
        fail("no memory for a box");
    read_box(m, x, to, bytes, nbytes);
    memset(memory->known + ((unsigned char *)to - memory->at), 0, nbytes);
    memset(to, 0xa5, nbytes);
    b->sent[b->nsent++] = (struct sent){to, bytes, nbytes, memory};
    b->expected -= (int64_t)nbytes;
}

void emulator_bulk_copy_part(void *to, const void *map, uint64_t *at, int rank, const int *x, int blocks, int axis, int rows, int nbytes)
{
    const struct tensor_map *m = map;
    int from[5] = {0};
    if (m->magic != TENSOR_MAP || rank > 5 || axis >= rank || m->extent[axis] != (uint32_t)rows)
        fail("a part of a box that its tensor map does not have");
    memcpy(from, x, (size_t)rank * sizeof *x);
    for (int i = 0; i < blocks; i++, from[axis] += rows)
        emulator_bulk_copy((unsigned char *)to + (size_t)i * (size_t)nbytes, map, at, rank, from);
}
