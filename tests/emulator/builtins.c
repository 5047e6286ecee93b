/* SPDX-License-Identifier: 0BSD */
/* builtins.c - what built-ins of a language ask: where a work-item is, what the others of its
 * sub-group have, where a pixel is.
 */
#include "emulator.h"

#include <string.h>

enum { BORDER = 0xa5 };

/* Called by generated code alone. */
API uint64_t emulator_place(uint32_t what, uint32_t d);
API void emulator_barrier(uint32_t flags);
API void emulator_subgroup_barrier(uint32_t flags);
API void emulator_atomic(const void *at, uint32_t nbytes);
API void *__translate_sampler_initializer(int32_t bits);
API uint32_t emulator_sampler(const void *sampler);
API void *emulator_texel(const struct image *i, uint32_t sampler, int32_t x, int32_t y,
                         uint32_t use, uint32_t *is_half);
API int32_t emulator_side(const struct image *i, uint32_t axis);

uint64_t emulator_place(uint32_t what, uint32_t d)
{
    enum { ID, SIZE, LOCAL_ID, LOCAL_SIZE, GROUP, GROUPS, OFFSET, DIMENSIONS };
    const struct launch *l = launch_now();
    if (what == DIMENSIONS)
        return (uint64_t)l->dimensions;
    if (d > 2)
        return what == SIZE || what == LOCAL_SIZE || what == GROUPS;
    switch (what) {
    case ID:
        return l->offset[d] + l->here->group[d] * l->block[d] + l->now->local[d];
    case SIZE:
        return l->global[d];
    case LOCAL_ID:
        return l->now->local[d];
    case LOCAL_SIZE:
        return l->block[d];
    case GROUP:
        return l->here->group[d];
    case GROUPS:
        return l->global[d] / l->block[d];
    default:
        return l->offset[d];
    }
}

void emulator_barrier(uint32_t flags) { item_wait(FOR_BLOCK, flags, NULL); }

uint32_t emulator_subgroup(uint32_t what)
{
    enum { SIZE, MOST, LANE, NUMBER, COUNT };
    const struct launch *l = launch_now();
    const uint32_t most = l->nsubgroup, at = l->now->in_block, begin = at / most * most;
    switch (what) {
    case SIZE:
        return begin + most < l->nitem ? most : l->nitem - begin;
    case MOST:
        return most;
    case LANE:
        return at - begin;
    case NUMBER:
        return at / most;
    default:
        return (l->nitem + most - 1) / most;
    }
}

void emulator_subgroup_barrier(uint32_t flags) { item_wait(FOR_SUBGROUP, flags, NULL); }

void emulator_give(const void *value, uint32_t nbytes)
{
    struct item *item = launch_now()->now;
    item->turn = !item->turn;
    memcpy(item->given[item->turn], value, nbytes);
    item_wait(FOR_SUBGROUP, 0, NULL);
}

/* A lane that there is not gives bytes that no sum hides. */
void emulator_take(void *value, uint32_t nbytes, uint32_t lane)
{
    const struct launch *l = launch_now();
    const struct item *item = l->now;
    const uint32_t begin = item->in_block / l->nsubgroup * l->nsubgroup;
    if (lane < emulator_subgroup(0))
        memcpy(value, l->here->item[begin + lane].given[item->turn], nbytes);
    else
        memset(value, BORDER, nbytes);
}

void emulator_atomic(const void *at, uint32_t nbytes) { shadow_access(at, nbytes, ACCESS_ATOMIC); }

/* A sampler is its bits. */
void *__translate_sampler_initializer(int32_t bits) { return (void *)(uintptr_t)(uint32_t)bits; }
uint32_t emulator_sampler(const void *sampler) { return (uint32_t)(uintptr_t)sampler; }

static int32_t clamp(int32_t x, size_t n)
{
    return x < 0 ? 0 : (size_t)x >= n ? (int32_t)n - 1 : x;
}

void *emulator_texel(const struct image *i, uint32_t sampler, int32_t x, int32_t y, uint32_t use,
                     uint32_t *is_half)
{
    enum { NORMALIZED = 1, MODES = 0xe, EDGE = 2, CLAMP = 4, LINEAR = 0x20 };
    const struct launch *l = launch_now();
    *is_half = i->is_half;
    if (sampler & (NORMALIZED | LINEAR)) {
        report(
            "%s: a sampler with normalized coordinates or linear filter, which are not emulated, "
            "at %s",
            l->kernel->signature.name, item_line());
        launch_abort();
    }
    const bool outside = x < 0 || y < 0 || (size_t)x >= i->width || (size_t)y >= i->height;
    if (outside && (sampler & MODES) == CLAMP)
        return NULL;
    if (outside && (sampler & MODES) == EDGE) {
        x = clamp(x, i->width);
        y = clamp(y, i->height);
    } else if (outside) {
        report("%s: out of bounds: %s %s pixel (%d, %d) of image '%s' of %zu x %zu, at %s",
               l->kernel->signature.name, item_name(l, l->now->number), use ? "writes" : "reads", x,
               y, i->name, i->width, i->height, item_line());
        launch_abort();
    }
    return i->memory->at + i->from + (size_t)y * i->pitch + (size_t)x * (i->is_half ? 8 : 16);
}

int32_t emulator_side(const struct image *i, uint32_t axis)
{
    return (int32_t)(axis ? i->height : i->width);
}
