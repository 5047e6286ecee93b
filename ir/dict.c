/* dict.c - tables from strings to pointers: names of values, identifiers in use.
 *
 * Open addressing with linear probing, half full at most; a slot keeps its key's hash, so that a
 * model with a million names that share a prefix is compared by numbers. The tables are looked up,
 * never iterated over: no output depends on the order of their slots.
 */
#include "ir/ir.h"

#include <string.h>

struct dict_slot { const char *key; uint64_t hash; void *value; };

/* FNV-1a, and a final mix of the high bits into the low ones, which choose the slot. */
static uint64_t hash_key(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return (h ^ h >> 29) * 0x9e3779b97f4a7c15u ^ h >> 32;
}

/* The key's slot, or the free slot where it would be inserted. */
static struct dict_slot *find_slot(const struct dict *d, const char *key, uint64_t hash)
{
    size_t i = hash & (d->nslot - 1);
    while (d->slot[i].key && (d->slot[i].hash != hash || strcmp(d->slot[i].key, key) != 0))
        i = (i + 1) & (d->nslot - 1);
    return &d->slot[i];
}

static void grow(struct tgc *t, struct dict *d)
{
    struct dict old = *d;
    d->nslot = old.nslot ? 2 * old.nslot : 64;
    d->slot = mem_array(t, d->nslot, sizeof *d->slot);
    for (size_t i = 0; i < old.nslot; i++)
        if (old.slot[i].key)
            *find_slot(d, old.slot[i].key, old.slot[i].hash) = old.slot[i];
}

bool dict_has(const struct dict *d, const char *key)
{
    return d->nslot && find_slot(d, key, hash_key(key))->key;
}

void *dict_get(const struct dict *d, const char *key)
{
    return d->nslot ? find_slot(d, key, hash_key(key))->value : NULL;
}

void **dict_enter(struct tgc *t, struct dict *d, const char *key)
{
    if (2 * (d->nkey + 1) > d->nslot)
        grow(t, d);
    uint64_t hash = hash_key(key);
    struct dict_slot *slot = find_slot(d, key, hash);
    if (!slot->key) {
        *slot = (struct dict_slot){.key = key, .hash = hash};
        d->nkey++;
    }
    return &slot->value;
}
