/* SPDX-License-Identifier: 0BSD */
/* blocks.c - a launch: block after block, in each of them work-items in turn, each until it waits
 * or returns.
 *
 *      item 0  ───┐ barrier          ┌─── ...
 *      item 1     └──┐ barrier       │
 *      item 2        └──┐ barrier ───┘     all wait at one place: the next phase
 *
 * Who meets whom without a barrier between is found by phases (shadow.c), not by the order in which
 * they run. A work-item that never waits needs no stack beyond the one that the last item left.
 */
#include "emulator.h"
#include "fiber.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct launch *running;

struct launch *launch_now(void) { return running; }

bool item_has_stack(const struct item *item, uintptr_t at) { return fiber_has(item->fiber, at); }

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
    for (int i = 0; i < 64 && frame && item_has_stack(l->now, (uintptr_t)frame); i++) {
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

void item_wait(bool for_subgroup, unsigned flags, const void *site)
{
    struct item *item = running->now;
    if (!for_subgroup)
        products_barrier(running, item);
    item->state = ITEM_WAITS;
    item->for_subgroup = for_subgroup;
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

/* The items from..to: whether all of them wait, at one place, for the same. If some do not, says
 * who. */
static bool all_wait(const struct launch *l, uint32_t from, uint32_t to, bool for_subgroup,
                     uint32_t *at, uint32_t *other)
{
    const struct item *first = NULL;
    for (uint32_t i = from; i < to; i++)
        if (l->item[i].state == ITEM_WAITS && l->item[i].for_subgroup == for_subgroup) {
            first = &l->item[i];
            break;
        }
    if (!first)
        return false;
    *at = first->in_block;
    for (uint32_t i = from; i < to; i++) {
        const struct item *item = &l->item[i];
        *other = i;
        if (item->state != ITEM_WAITS || item->for_subgroup != for_subgroup ||
            item->site != first->site)
            return false;
    }
    return true;
}

static void report_divergence(struct launch *l, uint32_t at, uint32_t other, bool for_subgroup)
{
    const struct item *a = &l->item[at], *b = &l->item[other];
    const uint32_t base = a->number - a->in_block;
    char where[512], there[512];
    snprintf(where, sizeof where, "%s", report_line(l->module, a->site));
    if (b->state == ITEM_WAITS)
        snprintf(there, sizeof there, "waits at %s", report_line(l->module, b->site));
    else
        snprintf(there, sizeof there, "has returned");
    report("%s: divergent %s: %s waits at %s; %s %s", l->kernel->signature.name,
           for_subgroup ? "operation of a sub-group" : "barrier", item_name(l, base + at), where,
           item_name(l, base + other), there);
    l->has_failed = true;
}

/* Lets the work-items go on that wait for each other; false: nobody can. */
static bool release(struct launch *l)
{
    const uint32_t size = l->nsubgroup;
    uint32_t at = 0, other = 0;
    if (all_wait(l, 0, l->nitem, false, &at, &other)) {
        const unsigned flags = l->item[0].flags;
        for (int space = 0; space < 2; space++)
            l->phase[space] += (flags >> space & 1);
        for (uint32_t i = 0; i < l->nitem; i++)
            l->item[i].state = ITEM_READY;
        return true;
    }
    bool any = false;
    for (uint32_t from = 0; from < l->nitem; from += size) {
        const uint32_t to = from + size < l->nitem ? from + size : l->nitem;
        if (!all_wait(l, from, to, true, &at, &other))
            continue;
        any = true;
        for (uint32_t i = from; i < to; i++) {
            l->item[i].state = ITEM_READY;
            l->item[i].subphase += l->item[i].flags != 0;
        }
    }
    return any;
}

/* Who waits in vain, and for whom. */
static void find_divergence(struct launch *l)
{
    uint32_t at = 0, other = 0;
    for (uint32_t from = 0; from < l->nitem; from += l->nsubgroup) {
        const uint32_t to = from + l->nsubgroup < l->nitem ? from + l->nsubgroup : l->nitem;
        bool waits = false;
        for (uint32_t i = from; i < to; i++)
            waits |= l->item[i].state == ITEM_WAITS && l->item[i].for_subgroup;
        if (waits && !all_wait(l, from, to, true, &at, &other)) {
            report_divergence(l, at, other, true);
            return;
        }
    }
    if (!all_wait(l, 0, l->nitem, false, &at, &other))
        report_divergence(l, at, other, false);
}

static void begin_block(struct launch *l, uint32_t block)
{
    for (uint32_t i = 0; i < l->nitem; i++) {
        struct item *item = &l->item[i];
        *item = (struct item){.number = block * l->nitem + i, .in_block = i, .transfers = item->transfers};
        transfers_begin(item);
        item->local[0] = i % l->block[0];
        item->local[1] = i / l->block[0] % l->block[1];
        item->local[2] = i / l->block[0] / l->block[1];
    }
    products_reset(l);
    bulk_begin_block();
    l->phase[0] = l->phase[1] = 0;
    for (int i = 0; i < l->nwindow; i++)
        if (l->window[i].is_local) {
            struct memory *m = l->window[i].memory;
            memset(m->at, 0xa5, m->nbytes);
            memset(m->known, 0, m->nbytes);
        }
}

/* Why nobody goes on. */
static void find_stuck(struct launch *l)
{
    for (uint32_t i = 0; i < l->nitem; i++)
        if (l->item[i].state == ITEM_POLLS) {
            bulk_report_stuck(l, &l->item[i]);
            l->has_failed = true;
            return;
        }
    find_divergence(l);
}

/* false: the launch is over. */
static bool run_block(struct launch *l, uint32_t block)
{
    begin_block(l, block);
    for (;;) {
        uint32_t done = 0;
        bool goes_on = false;
        for (uint32_t i = 0; i < l->nitem; i++) {
            struct item *item = &l->item[i];
            if (item->state == ITEM_POLLS && bulk_has_ended(item->polled, item->parity))
                item->state = ITEM_READY;
            goes_on |= item->state == ITEM_READY;
            if (item->state == ITEM_READY && !step(l, item))
                return false;
            done += item->state == ITEM_DONE;
        }
        if (done == l->nitem) {
            l->has_failed |= !bulk_end_block();
            return true;
        }
        if (!release(l) && !goes_on) {
            find_stuck(l);
            return false;
        }
    }
}

/* What items of a launch that was ended have left. */
static void end_items(struct launch *l)
{
    for (uint32_t i = 0; i < l->nitem; i++) {
        if (l->item[i].fiber)
            fiber_end(l->item[i].fiber);
        transfers_free(&l->item[i]);
    }
    free(l->item);
    free(l->products);
}

bool launch_run(struct launch *l)
{
    size_t count[3];
    for (int a = 0; a < 3; a++)
        count[a] = l->global[a] / l->block[a];
    l->nitem = (uint32_t)(l->block[0] * l->block[1] * l->block[2]);
    l->item = calloc(l->nitem, sizeof *l->item);
    if (!l->item) {
        report("no memory for a block of %u work-items", l->nitem);
        return false;
    }
    for (int i = 0; i < l->nwindow; i++)
        for (int k = 0; k < l->nwindow; k++)
            l->window[i].is_written |=
                l->window[k].memory == l->window[i].memory && l->window[k].is_writable;
    l->epoch = shadow_epoch(l->order);
    running = l;
    uint32_t block = 0;
    bool goes_on = true;
    for (size_t z = 0; z < count[2] && goes_on; z++)
        for (size_t y = 0; y < count[1] && goes_on; y++)
            for (size_t x = 0; x < count[0] && goes_on; x++) {
                l->group[0] = x;
                l->group[1] = y;
                l->group[2] = z;
                goes_on = run_block(l, block++);
            }
    running = NULL;
    end_items(l);
    return !l->has_failed;
}
