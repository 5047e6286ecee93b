/* SPDX-License-Identifier: 0BSD */
/* blocks.c - a launch: block after block. In each block work-items run one at a time, each until it
 * waits or returns.
 *
 *      item 0  ───┐ barrier          ┌─── ...
 *      item 1     └──┐ barrier       │
 *      item 2        └──┐ barrier ───┘     all wait at one place: the next phase
 *
 * The blocks of a cluster alternate: each runs until none of its work-items can continue. The first
 * or the last block begins. Clusters run one after the other, in the order of the device, or
 * several alternate from barrier to barrier. The addresses of local memory are those of the
 * kernels' code, so they belong to the block that runs; its contents are swapped in first.
 *
 * Races between work-items are found by phases (shadow.c), not by the order in which they run. A
 * work-item that never waits needs no stack beyond the one that the last item left.
 */
#include "emulator.h"
#include "fiber.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct launch *running;

struct launch *launch_now(void) { return running; }

const char *item_name(const struct launch *l, uint32_t number)
{
    static char text[2][96]; /* a report names two */
    static int turn;
    turn = !turn;
    snprintf(text[turn], sizeof *text, "work-item %u of block %u", number % l->nitem,
             number / l->nitem);
    return text[turn];
}

/* Walks the chain of frames to the first that is code of the kernels; built-ins are not. */
static const void *item_code(void)
{
    const struct launch *l = running;
    const uintptr_t *frame = __builtin_frame_address(0);
    for (int i = 0; i < 64 && frame && fiber_has((uintptr_t)frame); i++) {
        if (frame[1] >= l->module->begin && frame[1] < l->module->end)
            return (const void *)frame[1];
        frame = (const uintptr_t *)frame[0];
    }
    return NULL;
}

const char *item_line(void) { return report_line(running->module, item_code()); }

bool item_is_first(void)
{
    struct launch *l = running;
    const void *code = item_code();
    l->has_failed = true;
    for (int i = 0; i < l->nreported; i++)
        if (l->reported[i] == code)
            return false;
    if (l->nreported == (int)(sizeof l->reported / sizeof *l->reported))
        return false;
    l->reported[l->nreported++] = code;
    return true;
}

void item_wait(enum wait whom, unsigned flags, const void *site)
{
    struct item *item = running->now;
    if (whom != FOR_SUBGROUP)
        products_barrier(running, item);
    item->state = ITEM_WAITS;
    item->waits = whom;
    item->flags = flags;
    item->site = site ? site : item_code();
    fiber_leave(item->fiber);
}

void item_poll(const uint64_t *at, unsigned parity)
{
    struct item *item = running->now;
    item->state = ITEM_POLLS;
    item->polled = at;
    item->parity = parity;
    item->site = item_code();
    fiber_leave(item->fiber);
}

void launch_abort(void)
{
    struct item *item = running->now;
    running->has_failed = true;
    item->state = ITEM_DONE;
    running->now = NULL;
    fiber_leave(item->fiber);
    abort();
}

static void run_item(void *argument)
{
    struct item *item = argument;
    running->kernel->call(running->argument);
    products_end(running, item);
    item->state = ITEM_DONE;
    fiber_leave(item->fiber);
}

/* Runs the item until it waits or ends; false: the launch is over. */
static bool step(struct launch *l, struct item *item)
{
    if (!item->fiber)
        item->fiber = fiber_start(run_item, item);
    if (!item->fiber) {
        report("no memory for the stack of a work-item");
        l->has_failed = true;
        return false;
    }
    l->now = item;
    fiber_enter(item->fiber);
    const bool goes_on = l->now != NULL;
    l->now = NULL;
    if (item->state == ITEM_DONE) {
        fiber_end(item->fiber);
        item->fiber = NULL;
    }
    return goes_on;
}

/* Do all items from..to of the block wait, at one place, for the same? If some do
 * not, reports who. */
static bool all_wait(const struct block *b, uint32_t from, uint32_t to, enum wait whom,
                     uint32_t *at, uint32_t *other)
{
    const struct item *first = NULL;
    for (uint32_t i = from; i < to; i++)
        if (b->item[i].state == ITEM_WAITS && b->item[i].waits == whom) {
            first = &b->item[i];
            break;
        }
    if (!first)
        return false;
    *at = first->in_block;
    for (uint32_t i = from; i < to; i++) {
        const struct item *item = &b->item[i];
        *other = i;
        if (item->state != ITEM_WAITS || item->waits != whom || item->site != first->site)
            return false;
    }
    return true;
}

static void report_divergence(struct launch *l, const struct item *a, const struct item *b)
{
    static const char *const what[] = {"operation of a sub-group", "barrier",
                                       "barrier of a cluster", "barrier of a role"};
    char where[512], there[512];
    snprintf(where, sizeof where, "%s", report_line(l->module, a->site));
    if (b->state == ITEM_WAITS)
        snprintf(there, sizeof there, "waits at %s", report_line(l->module, b->site));
    else
        snprintf(there, sizeof there, "has returned");
    report("%s: divergent %s: %s waits at %s; %s %s", l->kernel->signature.name, what[a->waits],
           item_name(l, a->number), where, item_name(l, b->number), there);
}

/* All work-items of the block continue after a barrier. */
static void pass(const struct launch *l, struct block *b)
{
    for (int space = 0; space < 2; space++)
        b->phase[space] += (b->item[0].flags >> space & 1);
    b->any[b->phase[0] & 1] = 0;
    for (uint32_t i = 0; i < l->nitem; i++)
        b->item[i].state = ITEM_READY;
}

/* If all first n work-items of a role barrier have come, they continue; false: some are missing. */
static bool release_role(const struct launch *l, struct block *b)
{
    const uint32_t n = b->item[0].of;
    uint32_t at = 0, other = 0;
    if (b->item[0].waits != FOR_ROLE || !all_wait(b, 0, n, FOR_ROLE, &at, &other))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        b->item[i].state = ITEM_READY;
        b->item[i].subphase++;
    }
    bulk_met_role(l, b, n);
    return true;
}

/* Lets work-items continue that all wait at one barrier; false: there are none. */
static bool release(struct launch *l)
{
    const uint32_t size = l->nsubgroup;
    struct block *b = l->here;
    uint32_t at = 0, other = 0;
    if (all_wait(b, 0, l->nitem, FOR_BLOCK, &at, &other)) {
        pass(l, b);
        return true;
    }
    bool any = release_role(l, b);
    for (uint32_t from = 0; from < l->nitem; from += size) {
        const uint32_t to = from + size < l->nitem ? from + size : l->nitem;
        if (!all_wait(b, from, to, FOR_SUBGROUP, &at, &other))
            continue;
        any = true;
        for (uint32_t i = from; i < to; i++) {
            b->item[i].state = ITEM_READY;
            b->item[i].subphase += b->item[i].flags != 0;
        }
    }
    return any;
}

/* release() for the cluster's barrier. */
static bool release_cluster(struct launch *l)
{
    uint32_t at = 0, other = 0;
    for (uint32_t i = 0; i < l->ncluster; i++)
        if (!all_wait(&l->cluster[i], 0, l->nitem, FOR_CLUSTER, &at, &other))
            return false;
    for (uint32_t i = 0; i < l->ncluster; i++) {
        pass(l, &l->cluster[i]);
        for (uint32_t k = 0; k < l->nitem; k++)
            l->cluster[i].item[k].subphase++;
    }
    bulk_met(l);
    return true;
}

/* Reports who waits for the cluster in vain, and for whom. */
static void find_apart(struct launch *l)
{
    const struct item *waits = NULL, *other = NULL;
    for (uint32_t i = 0; i < l->ncluster * l->nitem; i++) {
        const struct item *item = &l->cluster[i / l->nitem].item[i % l->nitem];
        const bool meets = item->state == ITEM_WAITS && item->waits == FOR_CLUSTER;
        *(meets ? &waits : &other) = item;
    }
    if (waits && other)
        report_divergence(l, waits, other);
}

/* Reports who waits in vain, and for whom. */
static bool find_divergence(struct launch *l, const struct block *b)
{
    uint32_t at = 0, other = 0;
    for (uint32_t from = 0; from < l->nitem; from += l->nsubgroup) {
        const uint32_t to = from + l->nsubgroup < l->nitem ? from + l->nsubgroup : l->nitem;
        bool waits = false;
        for (uint32_t i = from; i < to; i++)
            waits |= b->item[i].state == ITEM_WAITS && b->item[i].waits == FOR_SUBGROUP;
        if (waits && !all_wait(b, from, to, FOR_SUBGROUP, &at, &other)) {
            report_divergence(l, &b->item[at], &b->item[other]);
            return true;
        }
    }
    for (uint32_t i = 0; i < l->nitem; i++) {
        const enum wait whom = b->item[i].waits;
        if (b->item[i].state != ITEM_WAITS || (whom != FOR_BLOCK && whom != FOR_ROLE))
            continue;
        if (!all_wait(b, 0, whom == FOR_BLOCK ? l->nitem : b->item[i].of, whom, &at, &other))
            report_divergence(l, &b->item[at], &b->item[other]);
        return true;
    }
    return false;
}

/* -------------------------------------------------------------------- local memory of a cluster */

struct memory *block_memory(struct launch *l, const struct block *b, struct memory *m)
{
    for (int i = 0; b != l->here && i < l->nwindow; i++)
        if (l->window[i].memory == m)
            return &b->own[i];
    return m;
}

/* Swaps the shadow cells of local memory with the block's own copy. */
static void exchange_cells(struct launch *l, const struct block *b)
{
    for (int i = 0; i < l->nwindow; i++)
        if (l->window[i].in_shared) {
            struct memory *now = l->window[i].memory, *own = &b->own[i], was = *now;
            now->cell = own->cell, now->known = own->known;
            own->cell = was.cell, own->known = was.known;
        }
}

void block_access(struct launch *l, const struct block *b, const void *at, size_t nbytes,
                  enum access kind)
{
    if (b == l->here) {
        shadow_access(at, nbytes, kind);
        return;
    }
    exchange_cells(l, l->here);
    exchange_cells(l, b);
    shadow_access(at, nbytes, kind);
    exchange_cells(l, b);
    exchange_cells(l, l->here);
}

/* Makes this block the one that runs. */
static void enter_block(struct launch *l, struct block *b)
{
    l->here = b;
    for (int i = 0; b->own && i < l->nwindow; i++)
        if (l->window[i].in_shared)
            memcpy(l->window[i].memory->at, b->own[i].at, b->own[i].nbytes);
    if (b->own)
        exchange_cells(l, b);
}

static void leave_block(struct launch *l)
{
    struct block *b = l->here;
    for (int i = 0; b->own && i < l->nwindow; i++)
        if (l->window[i].in_shared)
            memcpy(b->own[i].at, l->window[i].memory->at, b->own[i].nbytes);
    if (b->own)
        exchange_cells(l, b);
    l->here = NULL;
}

/* false: no memory. */
static bool create_own(struct launch *l, struct block *b)
{
    b->own = calloc((size_t)l->nwindow + 1, sizeof *b->own);
    for (int i = 0; b->own && i < l->nwindow; i++) {
        const size_t nbytes = l->window[i].memory->nbytes;
        unsigned char *at = l->window[i].in_shared ? malloc(nbytes + 1) : NULL;
        if (l->window[i].in_shared && (!at || !memory_create(&b->own[i], at, nbytes))) {
            free(at);
            b->own[i].at = NULL;
            return false;
        }
    }
    return b->own != NULL;
}

static void free_own(const struct launch *l, struct block *b)
{
    for (int i = 0; b->own && i < l->nwindow; i++)
        if (b->own[i].at) {
            memory_release(&b->own[i]);
            free(b->own[i].at);
        }
    free(b->own);
}

/* ----------------------------------------------------------------------------- blocks, clusters */

static void begin_items(const struct launch *l, struct block *b)
{
    for (uint32_t i = 0; i < l->nitem; i++) {
        struct item *item = &b->item[i];
        *item = (struct item){
            .number = b->number * l->nitem + i, .in_block = i, .transfers = item->transfers};
        transfers_begin(item);
        item->local[0] = i % l->block[0];
        item->local[1] = i / l->block[0] % l->block[1];
        item->local[2] = i / l->block[0] / l->block[1];
    }
}

static void begin_block(struct launch *l, struct block *b, const size_t first[3],
                        const size_t cluster[3])
{
    const size_t i = (size_t)(b - l->cluster);
    b->number = l->nblock++;
    b->group[0] = first[0] + i % cluster[0];
    b->group[1] = first[1] + i / cluster[0] % cluster[1];
    b->group[2] = first[2] + i / cluster[0] / cluster[1];
    b->has_ended = false;
    b->phase[0] = b->phase[1] = 0;
    b->any[0] = b->any[1] = 0;
    begin_items(l, b);
    enter_block(l, b);
    products_reset(l);
    bulk_begin_block(l, b);
    leaving_begin_block(b);
    for (int k = 0; k < l->nwindow; k++)
        if (l->window[k].in_shared) {
            struct memory *m = l->window[k].memory;
            memset(m->at, 0xa5, m->nbytes);
            memset(m->known, 0, m->nbytes);
        }
    leave_block(l);
}

/* Reports why nobody can continue. */
static void find_stuck(struct launch *l)
{
    l->has_failed = true;
    for (uint32_t k = 0; k < l->ncluster; k++)
        for (uint32_t i = 0; i < l->nitem; i++)
            if (l->cluster[k].item[i].state == ITEM_POLLS) {
                bulk_report_stuck(l, &l->cluster[k], &l->cluster[k].item[i]);
                return;
            }
    for (uint32_t k = 0; k < l->ncluster; k++)
        if (find_divergence(l, &l->cluster[k]))
            return;
    find_apart(l);
}

/* Runs the block's work-items until none can continue, or, if other clusters run meanwhile, to a
 * barrier. *moved: one did. false: the launch is over. */
static bool run_block(struct launch *l, struct block *b, bool *moved)
{
    bool goes_on = true;
    for (int turn = 0; goes_on && (turn == 0 || l->nwave == 1); turn++) {
        uint32_t done = 0;
        goes_on = false;
        for (uint32_t i = 0; i < l->nitem; i++) {
            struct item *item = &b->item[i];
            if (item->state == ITEM_POLLS && bulk_has_ended(l, item->polled, item->parity))
                item->state = ITEM_READY;
            goes_on |= item->state == ITEM_READY;
            if (item->state == ITEM_READY && !step(l, item))
                return false;
            done += item->state == ITEM_DONE;
        }
        if (done == l->nitem) {
            b->has_ended = true;
            l->has_failed |= !bulk_end_block(l, b) | !leaving_end_block(l, b);
            goes_on = false;
            *moved = true;
        } else {
            goes_on |= release(l);
            *moved |= goes_on;
        }
    }
    return true;
}

/* A turn of the cluster's blocks. *ended: all have. false: the launch is over. */
static bool run_cluster(struct launch *l, bool *ended)
{
    const bool backwards = l->cluster->number / l->ncluster % 2;
    bool moved = false;
    uint32_t nended = 0;
    for (uint32_t i = 0; i < l->ncluster; i++) {
        struct block *b = &l->cluster[backwards ? l->ncluster - 1 - i : i];
        if (!b->has_ended) {
            enter_block(l, b);
            const bool goes_on = run_block(l, b, &moved);
            leave_block(l);
            if (!goes_on)
                return false;
        }
        nended += b->has_ended;
    }
    *ended = nended == l->ncluster;
    if (!moved && !release_cluster(l)) {
        find_stuck(l);
        return false;
    }
    return true;
}

/* The first n clusters in turns. false: the launch is over. */
static bool run_wave(struct launch *l, uint32_t n)
{
    bool ended[WAVE_MOST] = {false};
    for (uint32_t left = n, i = 0; left > 0; i = (i + 1) % n) {
        if (ended[i])
            continue;
        l->cluster = &l->blocks[i * l->ncluster];
        if (!run_cluster(l, &ended[i]))
            return false;
        left -= ended[i];
    }
    return true;
}

/* Frees what the blocks of an ended launch have left. */
static void end_blocks(struct launch *l)
{
    for (uint32_t k = 0; k < l->nwave * l->ncluster; k++) {
        struct block *b = &l->blocks[k];
        for (uint32_t i = 0; b->item && i < l->nitem; i++) {
            if (b->item[i].fiber)
                fiber_end(b->item[i].fiber);
            transfers_free(&b->item[i]);
        }
        free(b->item);
        free(b->products);
        bulk_free(b);
        leaving_free(b);
        free_own(l, b);
    }
}

/* false: no memory. */
static bool create_blocks(struct launch *l, const size_t cluster[3])
{
    const long wave = device_facts()->wave;
    l->nitem = (uint32_t)(l->block[0] * l->block[1] * l->block[2]);
    l->ncluster = (uint32_t)(cluster[0] * cluster[1] * cluster[2]);
    l->nwave = wave < 1 ? 1 : wave > WAVE_MOST ? WAVE_MOST : (uint32_t)wave;
    l->cluster = l->blocks;
    const uint32_t n = l->nwave * l->ncluster;
    for (uint32_t k = 0; k < n; k++) {
        struct block *b = &l->blocks[k];
        b->item = calloc(l->nitem, sizeof *b->item);
        if (!b->item || (n > 1 && !create_own(l, b))) {
            report("no memory for %u blocks of %u work-items at once", n, l->nitem);
            return false;
        }
    }
    return true;
}

static size_t common_divisor(size_t a, size_t b)
{
    while (b) {
        const size_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Which of n clusters is the i-th to run: by a seed those at a distance that has no divisor in
 * common with n, from some place on, so each is one time. */
static size_t place_of(size_t i, size_t n)
{
    const size_t seed = (size_t)device_facts()->order;
    if (seed < 2)
        return seed ? n - 1 - i : i;
    size_t distance = (seed * 40503 + 12345) % n;
    while (common_divisor(distance, n) != 1)
        distance++;
    return (seed * 2654435761u % n + i * distance) % n;
}

/* The clusters, until one ends the launch. */
static void run_clusters(struct launch *l, const size_t cluster[3])
{
    size_t count[3], first[3], n = 1;
    bool goes_on = true;
    for (int a = 0; a < 3; a++)
        n *= count[a] = l->global[a] / l->block[a] / cluster[a];
    for (size_t i = 0; i < n && goes_on; i += l->nwave) {
        const uint32_t some = n - i < l->nwave ? (uint32_t)(n - i) : l->nwave;
        for (uint32_t w = 0; w < some; w++) {
            const size_t at = place_of(i + w, n);
            first[0] = at % count[0] * cluster[0];
            first[1] = at / count[0] % count[1] * cluster[1];
            first[2] = at / count[0] / count[1] * cluster[2];
            l->cluster = &l->blocks[w * l->ncluster];
            for (uint32_t k = 0; k < l->ncluster; k++)
                begin_block(l, &l->cluster[k], first, cluster);
        }
        goes_on = run_wave(l, some);
    }
}

bool launch_run(struct launch *l)
{
    size_t cluster[3];
    for (int a = 0; a < 3; a++)
        cluster[a] = l->kernel->signature.cluster[a] ? l->kernel->signature.cluster[a] : 1;
    bool done = create_blocks(l, cluster);
    for (int i = 0; i < l->nwindow; i++)
        for (int k = 0; k < l->nwindow; k++)
            l->window[i].is_written |=
                l->window[k].memory == l->window[i].memory && l->window[k].is_writable;
    l->epoch = shadow_epoch(l->order);
    running = l;
    if (done)
        run_clusters(l, cluster);
    running = NULL;
    end_blocks(l);
    l->has_failed |= !tickets_end(l);
    return done && !l->has_failed;
}
