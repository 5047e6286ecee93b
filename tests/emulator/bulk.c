/* SPDX-License-Identifier: 0BSD */
/* bulk.c - the copy engine that copies boxes of tensors to shared memory, and the barriers in
 * memory that signal completion (mbarrier), as a block's work-items see them.
 *
 *      copy    the copy is in flight: the bytes that it will replace are unknown;
 *      wait    the phase is complete: all that it counts have arrived, and all bytes that it
 *              expects have been sent.
 *
 * So a read without a wait, or after a wait for another phase, is found.
 *
 * A copy is a write by the work-item that starts it, so a copy that nothing orders with a reader is
 * a race. Barriers in memory order them: a wave arrives after its own barrier, and the arrival
 * carries the number of that barrier. Who waits for the phase knows from then on what each wave had
 * done.
 *
 * Blocks of a cluster copy to each other's memory, and arrive at each other's barriers, at the
 * addresses of their own. An access to a block that has ended is found. So is a block that ends
 * before it knows that others have arrived for the last time.
 */
#include "emulator.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_BARRIERS = 64,
    MOST_COPIES = 256,
    MOST_ITEMS = 1024,
    MOST_WAVES = 32,
    ALL_WAVES = CLUSTER_MOST * MOST_WAVES
};
/* Of sm_90: registers of a multiprocessor, which a lone block has; of a work-item; the work-items
 * of a warpgroup. */
enum { FILE_OF_REGISTERS = 65536, REGISTERS_OF_ITEM = 255, GROUP_OF_WARPS = 128 };

struct sent { unsigned char *bytes; size_t at, nbytes; struct memory *memory; };
struct barrier {
    uint64_t *at;
    unsigned count, missing, phase;
    int64_t expected;            /* bytes, less those that were sent */
    struct sent sent[MOST_COPIES];
    int nsent;
    uint32_t arrived[ALL_WAVES], ended[ALL_WAVES]; /* what the arrived ones know of each wave; as of
                                                    * the last phase that ended */
};
/* The barriers of a block. */
struct barriers {
    struct barrier v[MOST_BARRIERS];
    int n;
    uint32_t told[ALL_WAVES];    /* for each wave, what it had done before its last arrival here */
    int registers[MOST_ITEMS];   /* by work-item: its registers after it has released or acquired
                                  * some; 0: as at first */
    uint32_t known[][ALL_WAVES]; /* by work-item, for each wave: the number of the barrier up to
                                  * which its accesses are known */
};

API void emulator_bulk_init(uint64_t *at, int n, unsigned count);
API void emulator_bulk_arrive(uint64_t *at, unsigned nbytes);
API void emulator_bulk_release(uint64_t *at, int blocks);
API void emulator_bulk_registers(int n, bool more);
API void emulator_bulk_meet(void);
API void emulator_bulk_role(unsigned n);
API void emulator_bulk_copy_part(void *to, const void *map, uint64_t *at, int rank, const int *x,
                                 int blocks, int axis, int rows, int nbytes);
API void emulator_bulk_wait(uint64_t *at, unsigned parity);
API void emulator_bulk_copy(void *to, const void *map, uint64_t *at, int rank, const int *x);

static const char *kernel(void) { return launch_now()->kernel->signature.name; }

static _Noreturn void fail(const char *what)
{
    if (item_is_first())
        report("%s: %s: %s, at %s", kernel(), item_name(launch_now(), launch_now()->now->number),
               what, item_line());
    launch_abort();
}

static void forget(struct barrier *b)
{
    for (int i = 0; i < b->nsent; i++)
        free(b->sent[i].bytes);
    b->nsent = 0;
}

static void forget_all(struct barriers *all)
{
    for (int i = 0; i < all->n; i++)
        forget(&all->v[i]);
    all->n = 0;
}

void bulk_begin_block(const struct launch *l, struct block *b)
{
    if (!b->barriers)
        return;
    forget_all(b->barriers);
    memset(b->barriers->told, 0, sizeof b->barriers->told);
    memset(b->barriers->registers, 0, sizeof b->barriers->registers);
    memset(b->barriers->known, 0, l->nitem * sizeof *b->barriers->known);
}

void bulk_free(struct block *b)
{
    if (b->barriers)
        forget_all(b->barriers);
    free(b->barriers);
    b->barriers = NULL;
}

/* The registers with which each work-item of the block begins. */
static int first_registers(const struct launch *l)
{
    const int n = FILE_OF_REGISTERS / (int)l->nitem;
    return (n < REGISTERS_OF_ITEM ? n : REGISTERS_OF_ITEM) / 8 * 8;
}

/* Do the warpgroups' registers fit into those that the block began with? */
static bool registers_fit(const struct launch *l, const int *registers)
{
    const int nitem = (int)l->nitem, first = first_registers(l);
    int sum = 0;
    for (int i = 0; i < nitem && i < MOST_ITEMS; i++) {
        sum += registers[i] ? registers[i] : first;
        if (registers[i] == registers[i / GROUP_OF_WARPS * GROUP_OF_WARPS])
            continue;
        report("%s: not all of four warps have given registers, or taken them", kernel());
        return false;
    }
    if (sum > first * nitem)
        report("%s: the block's work-items have taken %d registers, of %d", kernel(), sum,
               first * nitem);
    return sum <= first * nitem;
}

/* A wave whose arrival at the block's barriers none of the block's work-items knew of. It may come
 * after the block has ended. */
static int find_late(const struct launch *l, const struct barriers *all)
{
    for (int wave = 0; wave < ALL_WAVES; wave++) {
        bool known = all->told[wave] == 0;
        for (uint32_t i = 0; i < l->nitem && !known; i++)
            known = all->known[i][wave] >= all->told[wave];
        if (!known)
            return wave;
    }
    return -1;
}

bool bulk_end_block(const struct launch *l, struct block *b)
{
    struct barriers *all = b->barriers;
    int n = 0;
    for (int i = 0; all && i < all->n; i++)
        n += all->v[i].nsent;
    if (n)
        report("%s: %d copies are on their way when their block ends: nobody has waited for them",
               kernel(), n);
    const int late = all && l->ncluster > 1 ? find_late(l, all) : -1;
    if (late >= 0)
        report("%s: block %u ends, and nothing says that wave %d of block %u has arrived at its "
               "barriers before",
               kernel(), b->number, late % MOST_WAVES,
               l->cluster->number + (uint32_t)late / MOST_WAVES);
    return (!all || registers_fit(l, all->registers)) && n == 0 && late < 0;
}

static struct barriers *barriers_of(const struct launch *l, struct block *b)
{
    if (!b->barriers &&
        !(b->barriers = calloc(1, sizeof *b->barriers + l->nitem * sizeof *b->barriers->known)))
        fail("no memory for barriers in memory");
    return b->barriers;
}

/* What the work-item that runs knows of all waves. */
static uint32_t *own_known(void)
{
    const struct launch *l = launch_now();
    return barriers_of(l, l->here)->known[l->now->in_block];
}

/* The number of its wave in the cluster. */
static uint32_t own_wave_number(const struct launch *l)
{
    return (l->here->number - l->cluster->number) * MOST_WAVES + l->now->in_block / l->nsubgroup;
}

/* The block's barrier at this address. */
static struct barrier *find(struct block *b, uint64_t *at)
{
    struct barriers *all = barriers_of(launch_now(), b);
    int i = 0;
    while (i < all->n && all->v[i].at != at)
        i++;
    if (b->has_ended)
        fail("copies to a block of its cluster that has ended, or arrives there");
    if (i == all->n)
        fail("a barrier in memory that has not begun");
    block_access(launch_now(), b, at, sizeof *at, ACCESS_ATOMIC);
    return &all->v[i];
}

void emulator_bulk_init(uint64_t *at, int n, unsigned count)
{
    struct launch *l = launch_now();
    struct barriers *all = barriers_of(l, l->here);
    for (int i = 0; i < n && l->now->in_block == 0; i++) {
        for (int k = 0; k < all->n; k++)
            if (all->v[k].at == at + i)
                fail("a barrier in memory begins twice");
        if ((uintptr_t)at % sizeof *at || all->n == MOST_BARRIERS)
            fail("a barrier in memory at no multiple of 8 bytes, or more of them than the emulator "
                 "knows");
        shadow_access(at + i, sizeof *at, ACCESS_WRITE);
        all->v[all->n] = (struct barrier){.at = at + i, .count = count, .missing = count};
        all->n++;
    }
}

/* Ends the phase of the block's barrier if nothing is missing; the bytes that were
 * sent become visible. */
static bool end_phase(struct launch *l, const struct block *of, struct barrier *b)
{
    if (b->missing || b->expected)
        return false;
    for (int i = 0; i < b->nsent; i++) {
        const struct sent *s = &b->sent[i];
        struct memory *to = block_memory(l, of, s->memory);
        /* by the bytes' own places, see swizzled() */
        for (size_t k = s->at; k < s->at + s->nbytes; k++) {
            to->at[k] = s->bytes[k - s->at];
            to->known[k] = 1;
            shadow_forget_writer(to, k);
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
    for (int i = 0; i < ALL_WAVES; i++)
        whom[i] = what[i] > whom[i] ? what[i] : whom[i];
}

static void arrive(struct block *of, uint64_t *at, unsigned nbytes)
{
    struct launch *l = launch_now();
    struct barrier *b = find(of, at);
    const int nsent = b->nsent;
    if (end_phase(l, of, b) && nsent)
        fail(
            "the next phase of a barrier begins, and nobody has waited for the copies of this one");
    if (b->missing == 0)
        fail("more threads arrive than the barrier in memory counts, or bytes of its phase are "
             "still missing");
    b->missing--;
    b->expected += nbytes;
    tell(b->arrived, own_known());
    if (of != l->here)
        of->barriers->told[own_wave_number(l)] = l->now->subphase;
}

void emulator_bulk_arrive(uint64_t *at, unsigned nbytes) { arrive(launch_now()->here, at, nbytes); }

void emulator_bulk_release(uint64_t *at, int blocks)
{
    struct launch *l = launch_now();
    item_wait(FOR_SUBGROUP, 1, NULL);
    if (l->now->in_block % l->nsubgroup)
        return;
    own_known()[own_wave_number(l)] = l->now->subphase;
    if (blocks > 1 && (uint32_t)blocks != l->ncluster)
        fail("a cluster of another number of blocks");
    for (int i = 0; blocks > 1 && i < blocks; i++)
        arrive(&l->cluster[i], at, 0);
    if (blocks == 1)
        arrive(l->here, at, 0);
}

void emulator_bulk_registers(int n, bool more)
{
    const struct launch *l = launch_now();
    const int first = first_registers(l);
    item_wait(FOR_SUBGROUP, 0, NULL);
    if (n < 24 || n > 256 || n % 8 || (more ? n < first : n > first))
        fail("a number of registers that no work-item may have, or that is no more, or no fewer, "
             "than before");
    barriers_of(l, l->here)->registers[l->now->in_block % MOST_ITEMS] = n;
}

/* The barrier is relaxed: it tells nobody what others have done before. */
void emulator_bulk_meet(void) { item_wait(FOR_CLUSTER, 0, NULL); }

/* Barriers that were initialized are known: mbar_init()'s fence has published
 * them to the cluster. */
void bulk_met(struct launch *l)
{
    for (uint32_t i = 0; i < l->ncluster; i++)
        for (int k = 0; l->cluster[i].barriers && k < l->cluster[i].barriers->n; k++) {
            unsigned char *at = (unsigned char *)l->cluster[i].barriers->v[k].at;
            struct memory *m = shadow_memory(at);
            for (size_t byte = 0; m && byte < sizeof(uint64_t); byte++)
                shadow_forget_writer(block_memory(l, &l->cluster[i], m),
                                     (size_t)(at - m->at) + byte);
        }
}

void emulator_bulk_role(unsigned n)
{
    const struct launch *l = launch_now();
    if (n == 0 || n % l->nsubgroup || n > l->nitem || l->now->in_block >= n)
        fail("a barrier of threads that are no whole waves of the block, or of which this one is "
             "none");
    barriers_of(l, l->here);
    l->now->of = n;
    item_wait(FOR_ROLE, 1, NULL);
}

void bulk_met_role(const struct launch *l, struct block *b, uint32_t n)
{
    const uint32_t block = b->number - l->cluster->number;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t first = 0; first < n; first += l->nsubgroup)
            b->barriers->known[i][block * MOST_WAVES + first / l->nsubgroup] =
                b->item[first].subphase;
}

bool bulk_orders(const struct launch *l, uint32_t block, uint32_t wave, uint32_t subphase)
{
    return l->here->barriers && wave < MOST_WAVES &&
           subphase < l->here->barriers->known[l->now->in_block][block * MOST_WAVES + wave];
}

bool bulk_has_ended(struct launch *l, const uint64_t *at, unsigned parity)
{
    struct barriers *all = l->here->barriers;
    for (int i = 0; all && i < all->n; i++)
        if (all->v[i].at == at) {
            if ((all->v[i].phase & 1) == (parity & 1))
                end_phase(l, l->here, &all->v[i]);
            return (all->v[i].phase & 1) != (parity & 1);
        }
    return false;
}

void bulk_report_stuck(const struct launch *l, const struct block *b, const struct item *item)
{
    for (int i = 0; i < b->barriers->n; i++)
        if (b->barriers->v[i].at == item->polled)
            report("%s: %s waits for the end of a phase, for which %u threads and %lld bytes are "
                   "missing, at %s",
                   l->kernel->signature.name, item_name(l, item->number), b->barriers->v[i].missing,
                   (long long)b->barriers->v[i].expected, report_line(l->module, item->site));
}

void emulator_bulk_wait(uint64_t *at, unsigned parity)
{
    struct launch *l = launch_now();
    const struct barrier *b = find(l->here, at);
    if (!bulk_has_ended(l, at, parity))
        item_poll(at, parity);
    tell(own_known(), b->ended);
}

/* The place of the byte at `at` under the XOR swizzle: chunks of 16 bytes are permuted by the
 * address bits above 128. */
static uintptr_t swizzled(uintptr_t at, int swizzle)
{
    return swizzle ? at ^ ((at >> 7 & ((1u << swizzle) - 1)) << 4) : at;
}

/* Rounds floats to 10 bits of mantissa, to nearest even, as an engine was observed to do (Triton's
 * test_host_tensor_descriptor_round_f32_to_tf32, on an RTX PRO 6000). Infinities and NaNs stay. */
static void round_to_tf32(unsigned char *bytes, size_t nbytes)
{
    enum { DROPPED = 13 };
    for (size_t i = 0; i < nbytes; i += sizeof(uint32_t)) {
        uint32_t u;
        memcpy(&u, bytes + i, sizeof u);
        if ((u & 0x7f800000) != 0x7f800000)
            u = (u + (1u << (DROPPED - 1)) - 1 + (u >> DROPPED & 1)) & ~((1u << DROPPED) - 1);
        memcpy(bytes + i, &u, sizeof u);
    }
}

/* A row of the box, from element x of the tensor on, as its axes but the first say: 0
 * beyond the tensor. */
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
    const void *row =
        (const void *)(uintptr_t)(from + (uint64_t)((x[0] + begin) * (int64_t)nbytes));
    shadow_access(row, (size_t)(end - begin) * nbytes, ACCESS_READ);
    memcpy(to + (size_t)begin * nbytes, row, (size_t)(end - begin) * nbytes);
    if (m->rounds)
        round_to_tf32(to, m->extent[0] * nbytes);
}

/* Reads the box as it will be in shared memory from `to` on. */
static void read_box(const struct tensor_map *m, const int *x, const unsigned char *to,
                     unsigned char *box, size_t nbytes)
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

/* Starts a copy of the box to the block's memory, and to its barrier. */
static void copy(struct block *of, void *to, const struct tensor_map *m, uint64_t *at, int rank,
                 const int *x)
{
    struct launch *l = launch_now();
    struct barrier *b = find(of, at);
    size_t nbytes = (size_t)1 << (m->type < 4 ? m->type : 0);
    if (m->magic != TENSOR_MAP || m->rank != rank)
        fail("no tensor map of so many axes");
    for (int a = 0; a < rank; a++)
        nbytes *= m->extent[a];
    if ((uintptr_t)to % 128 || (m->swizzle && nbytes % 128))
        fail("a box begins at no multiple of 128 bytes, or is no whole number of them");
    if (b->nsent == MOST_COPIES)
        fail("more copies are on their way than the emulator knows");
    products_replaced(l, of, to, nbytes);
    l->by_engine = true;
    block_access(l, of, to, nbytes, ACCESS_WRITE);
    l->by_engine = false;
    struct memory *memory = shadow_memory(to);
    if (!memory)
        fail("a box that is not copied to shared memory");
    unsigned char *bytes = malloc(nbytes);
    if (!bytes)
        fail("no memory for a box");
    read_box(m, x, to, bytes, nbytes);
    const size_t first = (size_t)((unsigned char *)to - memory->at);
    memset(block_memory(l, of, memory)->known + first, 0, nbytes);
    memset(block_memory(l, of, memory)->at + first, 0xa5, nbytes);
    b->sent[b->nsent++] = (struct sent){bytes, first, nbytes, memory};
    b->expected -= (int64_t)nbytes;
}

void emulator_bulk_copy(void *to, const void *map, uint64_t *at, int rank, const int *x)
{
    copy(launch_now()->here, to, map, at, rank, x);
}

void emulator_bulk_copy_part(void *to, const void *map, uint64_t *at, int rank, const int *x,
                             int blocks, int axis, int rows, int nbytes)
{
    struct launch *l = launch_now();
    const struct tensor_map *m = map;
    const uint32_t part = l->here->number - l->cluster->number;
    int from[5] = {0};
    if (m->magic != TENSOR_MAP || rank > 5 || axis >= rank || m->extent[axis] != (uint32_t)rows)
        fail("a part of a box that its tensor map does not have");
    if ((uint32_t)blocks != l->ncluster)
        fail("a cluster of another number of blocks");
    memcpy(from, x, (size_t)rank * sizeof *x);
    from[axis] += (int)part * rows;
    for (int i = 0; i < blocks; i++)
        copy(&l->cluster[i], (unsigned char *)to + (size_t)part * (size_t)nbytes, map, at, rank,
             from);
}
