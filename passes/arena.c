/* arena.c - offline dynamic storage allocation: places with known lifetimes, packed into one arena.
 *
 *      offset
 *        ^   ┌────────────┐┌──────┐
 *        │   │     b      ││  d   │        a place is a rectangle: its lifetime by its size;
 *        │   ├────┬───┬───┴┴──────┤        two of them overlap in neither direction at once
 *        │   │ a  │   │     c     │
 *        └───┴────┴───┴───────────┴──> steps
 *
 * The problem is NP-hard. Places are put one after the other into the smallest gap that is free for
 * all their life; all depends on the order. Tried are: by decreasing size, by first use, and by the
 * step of the greatest load first (the "hills": what is alive at the peak is packed tightly, the
 * rest fits around it); Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
 * Inference", 2020. If none of them reaches the lower bound, the best order is improved: a place
 * that reaches the top goes to the front, and the packing is done again. */
#include "passes/memory.h"

#include <stdlib.h>
#include <string.h>

/* Something placed already: bytes that the place that is being put may not touch. */
struct neighbour {
    size_t begin, end;
    int item;
};

/* What one packing knows. Everything lies by index into place[]. */
struct packing {
    struct tgc *t;
    const struct slot *place;
    int n;
    int *placed; /* by offset, those that have a place already; without alive[] only */
    int nplaced;
    size_t *offset; /* SIZE_MAX: not yet */
    size_t total;
    int *alive, *alive_from; /* NULL, or alive[alive_from[s]..alive_from[s + 1]] live in step s */
    struct neighbour *nearby; /* of the one that is being put */
    int *seen, round;         /* seen[i] == round: is in nearby[] already */
};

bool slots_conflict(const struct slot *a, const struct slot *b)
{
    int i = 0, j = 0;
    if (!a->nbytes || !b->nbytes)
        return false;
    while (i < a->nspan && j < b->nspan) {
        if (a->span[i].end < b->span[j].begin)
            i++;
        else if (b->span[j].end < a->span[i].begin)
            j++;
        else
            return true;
    }
    return false;
}

size_t arena_saves(const struct slot *under, const struct slot *over)
{
    size_t below = over->ahead < 0 ? (size_t)-over->ahead : 0, n, m;
    if (!size_align(under->nbytes, ARENA_ALIGN, &n) || !size_align(over->nbytes, ARENA_ALIGN, &m))
        return 0;
    size_t all = over->backwards ? (m + below > n ? m + below : n)
                                 : (n + below > m ? n + below : m);
    return n + m > all ? n + m - all : 0;
}

bool arena_loads(const struct slot *place, int n, size_t *load)
{
    for (int i = 0; i < n; i++) {
        size_t nbytes;
        if (!size_align(place[i].nbytes, ARENA_ALIGN, &nbytes))
            return false;
        for (int k = 0; k < place[i].nspan; k++) {
            for (int s = place[i].span[k].begin; s <= place[i].span[k].end; s++) {
                if (!size_add(load[s], nbytes, &load[s]))
                    return false;
            }
        }
    }
    for (int i = 0; i < n; i++) {
        if (place[i].over && place[i].nspan)
            load[place[i].span[0].begin] -= arena_saves(&place[place[i].over - 1], &place[i]);
    }
    return true;
}

size_t arena_live_nbytes(struct tgc *t, const struct slot *place, int n, int nstep)
{
    size_t *load = mem_array(t, (size_t)nstep + 1, sizeof *load), most = 0;
    if (!arena_loads(place, n, load))
        return SIZE_MAX;
    for (int s = 0; s < nstep; s++)
        most = load[s] > most ? load[s] : most;
    return most;
}

/* Who lives in each step, unless these lists would be longer than is worth it. */
static void list_alive(struct packing *p, int nstep)
{
    size_t total = 0, limit = 64 * (size_t)p->n + 4096;
    int *from = mem_array(p->t, (size_t)nstep + 2, sizeof *from);
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->place[i].nspan; k++) {
            const struct span *s = &p->place[i].span[k];
            total += (size_t)(s->end - s->begin + 1);
            if (total > limit)
                return;
            for (int step = s->begin; step <= s->end; step++)
                from[step + 1]++;
        }
    for (int s = 0; s < nstep; s++)
        from[s + 1] += from[s];
    p->alive = mem_array(p->t, total, sizeof *p->alive);
    for (int i = p->n - 1; i >= 0; i--)
        for (int k = 0; k < p->place[i].nspan; k++)
            for (int s = p->place[i].span[k].begin; s <= p->place[i].span[k].end; s++)
                p->alive[--from[s + 1]] = i;
    from[nstep + 1] = (int)total;
    p->alive_from = from + 1;
    p->seen = mem_array(p->t, (size_t)p->n, sizeof *p->seen);
}

static int compare_begins(const void *pa, const void *pb)
{
    const struct neighbour *a = pa, *b = pb;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->item < b->item ? -1 : a->item > b->item;
}

/* Whether a may overlap b if it begins at most a number of bytes behind b's begin. */
static bool may_trail(const struct packing *p, int a, int b)
{
    const struct slot *x = &p->place[a], *y = &p->place[b];
    return (x->over == b + 1 && !x->backwards) || (y->over == a + 1 && y->backwards);
}

/* What a place that is put may not touch of one that has its offset. (The sums were checked when
 * that one was put.) */
static struct neighbour neighbour_of(const struct packing *p, int item, int other)
{
    const struct slot *me = &p->place[item], *it = &p->place[other];
    size_t begin = p->offset[other], end, nbytes;
    size_align(begin + it->nbytes, ARENA_ALIGN, &end);
    size_align(me->nbytes, ARENA_ALIGN, &nbytes);
    int64_t ahead = me->over == other + 1 ? me->ahead : it->ahead;
    if (may_trail(p, item, other)) {                  /* beginning ahead of it is allowed */
        size_t to = begin + nbytes + (size_t)ahead;
        return (struct neighbour){to < end ? to : end, end, other};
    }
    if (may_trail(p, other, item)) {
        size_t before = ahead > 0 ? (size_t)ahead : 0;
        end = ahead < 0 ? begin + (size_t)-ahead : begin > before ? begin - before : 0;
    }
    return (struct neighbour){begin, end, other};
}

/* The placed neighbours of one place by offset, from the lists of the steps of its life. */
static int collect_nearby(struct packing *p, int item)
{
    const struct slot *me = &p->place[item];
    int n = 0;
    p->round++;
    for (int k = 0; k < me->nspan; k++) {
        int end = p->alive_from[me->span[k].end + 1];
        for (int i = p->alive_from[me->span[k].begin]; i < end; i++) {
            int other = p->alive[i];
            if (p->offset[other] == SIZE_MAX || p->seen[other] == p->round)
                continue;
            p->seen[other] = p->round;
            p->nearby[n++] = neighbour_of(p, item, other);
        }
    }
    qsort(p->nearby, (size_t)n, sizeof *p->nearby, compare_begins);
    return n;
}

/* The same by comparing it with all of them. */
static int search_nearby(struct packing *p, int item)
{
    int n = 0;
    for (int k = 0; k < p->nplaced; k++) {
        int other = p->placed[k];
        if (slots_conflict(&p->place[item], &p->place[other]))
            p->nearby[n++] = neighbour_of(p, item, other);
    }
    if (p->place[item].over)
        qsort(p->nearby, (size_t)n, sizeof *p->nearby, compare_begins);
    return n;
}

/* The smallest gap between conflicting places that fits; the end of the last of them if none
 * does. */
static bool put(struct packing *p, int item)
{
    const struct slot *me = &p->place[item];
    size_t nbytes, top = 0, best = SIZE_MAX, best_room = SIZE_MAX, end;
    if (!size_align(me->nbytes, ARENA_ALIGN, &nbytes))
        return false;
    int near = p->alive_from ? collect_nearby(p, item) : search_nearby(p, item);
    for (int k = 0; k < near; k++) {
        size_t begin = p->nearby[k].begin;
        if (begin > top && begin - top >= nbytes && begin - top < best_room) {
            best = top;
            best_room = begin - top;
        }
        top = p->nearby[k].end > top ? p->nearby[k].end : top;
    }
    if (best == SIZE_MAX)
        best = top;
    if (!size_add(best, nbytes, &end))
        return false;
    p->offset[item] = best;
    p->total = end > p->total ? end : p->total;
    if (p->alive_from)
        return true;
    int k = p->nplaced++;
    for (; k > 0 && p->offset[p->placed[k - 1]] > best; k--)
        p->placed[k] = p->placed[k - 1];
    p->placed[k] = item;
    return true;
}

static bool pack_in_order(struct packing *p, const int *order)
{
    p->nplaced = 0;
    p->total = 0;
    for (int i = 0; i < p->n; i++)
        p->offset[i] = SIZE_MAX;
    for (int i = 0; i < p->n; i++) {
        if (p->place[order[i]].nbytes && !put(p, order[i]))
            return false;
    }
    return true;
}

/* --------------------------------------------------------------------------------------- orders */

/* What to sort by: `major` decreasing, then `minor` decreasing, then as they came. */
struct rank {
    size_t major, minor;
    int item;
};

static int compare_ranks(const void *pa, const void *pb)
{
    const struct rank *a = pa, *b = pb;
    if (a->major != b->major)
        return a->major < b->major ? 1 : -1;
    if (a->minor != b->minor)
        return a->minor < b->minor ? 1 : -1;
    return a->item < b->item ? -1 : 1;
}

static size_t life_of(const struct slot *p)
{
    return (size_t)(p->span[p->nspan - 1].end - p->span[0].begin + 1);
}

enum order_kind { ORDER_SIZE, ORDER_FIRST_USE, ORDER_HILL, ORDER_AREA, ORDER_COUNT };

static void make_order(struct packing *p, enum order_kind kind, const size_t *load, int *order)
{
    struct rank *rank = mem_array(p->t, (size_t)p->n, sizeof *rank);
    for (int i = 0; i < p->n; i++) {
        const struct slot *a = &p->place[i];
        struct rank *r = &rank[i];
        r->item = i;
        r->minor = a->nbytes;
        if (!a->nspan)
            continue;
        switch (kind) {
        case ORDER_SIZE:
            r->major = a->nbytes;
            r->minor = life_of(a);
            break;
        case ORDER_FIRST_USE:
            r->major = (size_t)(INT32_MAX - a->span[0].begin);
            break;
        case ORDER_AREA:
            if (!size_mul(a->nbytes, life_of(a), &r->major))
                r->major = SIZE_MAX;
            break;
        default: /* the greatest load during its life */
            for (int k = 0; k < a->nspan; k++) {
                for (int s = a->span[k].begin; s <= a->span[k].end; s++)
                    r->major = load[s] > r->major ? load[s] : r->major;
            }
        }
    }
    qsort(rank, (size_t)p->n, sizeof *rank, compare_ranks);
    for (int i = 0; i < p->n; i++)
        order[i] = rank[i].item;
}

/* The place that ends at the top and was put last moves to the front. false: it is there
 * already. */
static bool promote_topmost(const struct packing *p, int *order)
{
    int at = -1;
    for (int i = 0; i < p->n; i++) {
        const struct slot *a = &p->place[order[i]];
        size_t end = 0;
        if (p->offset[order[i]] != SIZE_MAX &&
            size_align(p->offset[order[i]] + a->nbytes, ARENA_ALIGN, &end) && end == p->total)
            at = i;
    }
    if (at <= 0)
        return false;
    int item = order[at];
    memmove(order + 1, order, (size_t)at * sizeof *order);
    order[0] = item;
    return true;
}

/* Comparisons of two places that the improvement of an order may cost: some tenths of a second. */
static const double IMPROVE_WORK = 3e7;

static int improvement_rounds(int n)
{
    double rounds = IMPROVE_WORK / ((double)n * n + 1);
    return rounds > 400 ? 400 : (int)rounds;
}

bool arena_pack(struct tgc *t, struct slot *place, int n, int nstep, size_t *total)
{
    struct packing p = {.t = t, .place = place, .n = n};
    p.placed = mem_array(t, (size_t)n, sizeof *p.placed);
    p.offset = mem_array(t, (size_t)n, sizeof *p.offset);
    p.nearby = mem_array(t, (size_t)n, sizeof *p.nearby);
    list_alive(&p, nstep);
    size_t *load = mem_array(t, (size_t)nstep + 1, sizeof *load);
    int *order = mem_array(t, (size_t)n, sizeof *order);
    if (!arena_loads(place, n, load))
        return false;
    size_t bound = arena_live_nbytes(t, place, n, nstep), best = SIZE_MAX;
    int rounds = improvement_rounds(n);
    for (int kind = 0; kind < ORDER_COUNT && best > bound; kind++) {
        make_order(&p, (enum order_kind)kind, load, order);
        for (int r = 0; r <= rounds && best > bound; r++) {
            if (r && !promote_topmost(&p, order))
                break;
            if (!pack_in_order(&p, order))
                break; /* beyond size_t: another order may fit */
            if (p.total >= best)
                continue;
            best = p.total;
            for (int i = 0; i < n; i++)
                place[i].offset = p.offset[i];
        }
    }
    *total = best;
    return best != SIZE_MAX;
}
