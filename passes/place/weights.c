/* weights.c - where weights lie: in the order of their first use, equal ones in one place. */
#include "passes/place/memory.h"
#include "passes/target/target.h"
#include "passes/passes.h"

#include <string.h>

struct weight_entry {
    const struct buffer *weight;
    uint64_t hash;
};

/* The entry of an equal weight, or the free entry where w is to be inserted. */
static struct weight_entry *find_weight(struct weight_entry *table, size_t size,
                                        const struct buffer *w, uint64_t hash)
{
    size_t i = hash & (size - 1);
    for (; table[i].weight; i = (i + 1) & (size - 1)) {
        const struct buffer *other = table[i].weight;
        if (table[i].hash == hash && other->dtype == w->dtype && other->nbytes == w->nbytes &&
            other->storage == w->storage &&
            (other->weight.data == w->weight.data ||
             !memcmp(other->weight.data, w->weight.data, w->nbytes)))
            break;
    }
    return &table[i];
}

/* Weights are placed in order of first use; equal ones share a place. */
bool pass_weights(struct tgc *t, struct schedule *s)
{
    size_t size = 16, total = 0;
    while (size < 2 * (size_t)s->nweight)
        size *= 2;
    struct weight_entry *table = mem_array(t, size, sizeof *table);
    for (int i = 0; i < s->nweight; i++) {
        struct buffer *w = s->weight[i];
        size_t given = w->nbytes;
        if (!buffer_set_size(t, w))
            return false;
        if (given != w->nbytes && given)
            TGC_BUG(t, "weight %s has %zu bytes, not %zu", w->name ? w->name : "", given,
                    w->nbytes);
        w->offset = total;
        if (!w->nbytes || w->dtype == DTYPE_STRING)
            continue; /* strings are pointers: the backend writes them separately */
        uint64_t hash = hash_bytes(0xcbf29ce484222325u ^ w->nbytes, w->weight.data, w->nbytes);
        struct weight_entry *found = find_weight(table, size, w, hash);
        if (found->weight) {
            w->offset = found->weight->offset;
            w->weight.same = found->weight;
            continue;
        }
        *found = (struct weight_entry){w, hash};
        size_t nbytes = w->nbytes;
        if (!size_align(total, t->image ? IMAGE_ALIGN : ARENA_ALIGN, &w->offset) ||
            !place_nbytes(t, w, &nbytes) || !size_add(w->offset, nbytes, &total))
            return diag_error(t, NULL,
                              "the weights together need more memory than can be addressed");
    }
    s->weight_nbytes = total;
    return true;
}
