/* linear_groups.c - which stores of a kernel have loops in common, for linear_order.c.
 */
#include "passes/analysis/access.h"
#include "passes/analysis/linear.h"

#include <string.h>

int linear_count_bands(const struct uop *store)
{
    int first = store_first_range(store), n = 0;
    while (first + n < store->nsrc && range_is(store->src[first + n], AXIS_BAND))
        n++;
    return n;
}

static bool share_bands(const struct uop *a, const struct uop *b)
{
    int n = linear_count_bands(a);
    return n == linear_count_bands(b) &&
           !memcmp(a->src + store_first_range(a), b->src + store_first_range(b),
                   (size_t)n * sizeof *a->src);
}

static bool reads_own_result(struct tgc *t, struct uop *store)
{
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOAD && order[i]->src[0] == store->src[0])
            return true;
    return false;
}

static int count_ranges(struct tgc *t, struct uop *store)
{
    int n, nrange = 0;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++)
        nrange += order[i]->op == OP_RANGE;
    return nrange;
}

/* How many of the first loops the two stores have in common. */
static int count_shared(struct tgc *t, struct uop *a, struct uop *b)
{
    int n = 0, first = store_first_range(a);
    if (first != store_first_range(b) || a->src[0] != b->src[0])
        return 0;
    while (first + n < a->nsrc && first + n < b->nsrc && a->src[first + n] == b->src[first + n] &&
           !range_is_lane(a->src[first + n]))
        n++;
    return n && !reads_own_result(t, a) && !reads_own_result(t, b) ? n : 0;
}

int linear_find_group(struct tgc *t, struct uop *const *store, int n, int *nshared)
{
    int found = 1, nrange = count_ranges(t, store[0]);
    *nshared = 0;
    for (; found < n && share_bands(store[0], store[found]); found++) {
        int shared = count_shared(t, store[0], store[found]);
        nrange += count_ranges(t, store[found]);
        if (shared == 0 || nrange > 64)
            break;
        *nshared = *nshared == 0 || shared < *nshared ? shared : *nshared;
    }
    return found;
}
