/* arena_pack.c - offline dynamic storage allocation: packs places with known live ranges into one
 * arena.
 *
 *      offset
 *        ^   ┌────────────┐┌──────┐
 *        │   │     b      ││  d   │        a place is a rectangle: its live range by its size;
 *        │   ├────┬───┬───┴┴──────┤        two of them overlap in neither direction at once
 *        │   │ a  │   │     c     │
 *        └───┴────┴───┴───────────┴──> steps
 *
 * The problem is NP-hard. Places are put one after the other into the smallest gap that is free for
 * all of their live range, so the result depends on the order. Orders tried: by decreasing size, by
 * first use, and from the step of the greatest load on (the "hills": what is live at the peak is
 * packed tightly, the rest fits around it); Pisarchyk and Lee, "Efficient Memory Management for
 * Deep Neural Net Inference", 2020. If none of them reaches the lower bound, the best order is
 * improved: a place that reaches the top goes to the front, and the packing is done again. */
#include "passes/place/memory.h"

#include <stdlib.h>
#include <string.h>

/* A neighbour that is placed already: the bytes that the current place may not touch. */
struct neighbour {
    size_t begin, end;
    int item;
};

/* The state of one packing. Arrays are indexed as place[]. */
struct packing {
    struct tgc *t;
    const struct slot *place;
    int n;
    /* each place's neighbours are sorted when it is put; else all places put so far are kept in
     * order */
    bool sorts;
    int *placed; /* the places put so far, by offset, unless `sorts` */
    int nplaced;
    size_t *offset; /* SIZE_MAX: not yet */
    size_t *nbytes; /* aligned */
    bool *trails;   /* it may overlap another place, or another place may overlap it */
    size_t total;
    /* near[near_from[i]..near_from[i + 1]]: the places with a step in common with i; NULL: too many
     * pairs */
    int *near, *near_from;
    struct neighbour *nearby; /* of the current place */
    int *seen, round;         /* seen[i] == round: i is a neighbour of the current place */
    double work;              /* neighbours visited since the budget was given */
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

/* ----------------------------------------------------------------------------------- neighbours */

/* The most pairs of neighbours that are listed: four megabytes, more for many places. */
static size_t near_limit(int n) { return (1u << 20) + 64 * (size_t)n; }

struct birth { int step, item, end; };

static int compare_births(const void *pa, const void *pb)
{
    const struct birth *a = pa, *b = pb;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return a->item < b->item ? -1 : a->item > b->item;
}

/* Sweeps over the spans in order of birth and finds each pair with a common step. Counts in
 * from[item + 1], or, if near is given, writes both at --from[item + 1]. false: too many. */
static bool sweep_lives(const struct birth *birth, int nbirth, struct birth *alive, int *from,
                        int *near, size_t limit)
{
    size_t total = 0;
    int nalive = 0;
    for (int i = 0; i < nbirth; i++) {
        int kept = 0;
        for (int k = 0; k < nalive; k++)
            if (alive[k].end >= birth[i].step)
                alive[kept++] = alive[k];
        nalive = kept;
        total += 2 * (size_t)nalive;
        if (total > limit)
            return false;
        for (int k = 0; k < nalive; k++) {
            int a = birth[i].item, b = alive[k].item;
            if (near) {
                near[--from[a + 1]] = b;
                near[--from[b + 1]] = a;
            } else {
                from[a + 1]++;
                from[b + 1]++;
            }
        }
        alive[nalive++] = birth[i];
    }
    return true;
}

/* Removes repeated neighbours: live ranges of several spans meet several times. */
static void drop_twins(struct packing *p)
{
    int at = 0, begin = 0;
    for (int i = 0; i < p->n; i++) {
        int end = p->near_from[i + 1];
        p->round++;
        for (int k = begin; k < end; k++) {
            if (p->seen[p->near[k]] != p->round)
                p->near[at++] = p->near[k];
            p->seen[p->near[k]] = p->round;
        }
        begin = end;
        p->near_from[i + 1] = at;
    }
}

/* Lists each place's neighbours, unless the lists would be too long. */
static void list_near(struct packing *p)
{
    int nbirth = 0;
    for (int i = 0; i < p->n; i++)
        nbirth += p->place[i].nbytes ? p->place[i].nspan : 0;
    struct birth *birth = mem_array(p->t, (size_t)nbirth + 1, sizeof *birth),
                 *alive = mem_array(p->t, (size_t)nbirth + 1, sizeof *alive);
    nbirth = 0;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->place[i].nspan && p->place[i].nbytes; k++)
            birth[nbirth++] = (struct birth){p->place[i].span[k].begin, i,
                                             p->place[i].span[k].end};
    qsort(birth, (size_t)nbirth, sizeof *birth, compare_births);
    int *from = mem_array(p->t, (size_t)p->n + 2, sizeof *from);
    if (!sweep_lives(birth, nbirth, alive, from, NULL, near_limit(p->n)))
        return;
    for (int i = 0; i < p->n; i++)
        from[i + 1] += from[i];
    from[p->n + 1] = from[p->n];
    p->near = mem_array(p->t, (size_t)from[p->n] + 1, sizeof *p->near);
    sweep_lives(birth, nbirth, alive, from, p->near, near_limit(p->n));
    p->near_from = from + 1;
    drop_twins(p);
}

static int compare_begins(const void *pa, const void *pb)
{
    const struct neighbour *a = pa, *b = pb;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->item < b->item ? -1 : a->item > b->item;
}

/* Whether a may overlap b by beginning up to `ahead` bytes after b's begin. */
static bool may_trail(const struct packing *p, int a, int b)
{
    const struct slot *x = &p->place[a], *y = &p->place[b];
    return (x->over == b + 1 && !x->backwards) || (y->over == a + 1 && y->backwards);
}

/* The bytes of `other`, which has an offset, that `item` may not touch. (The sums were checked when
 * `other` was put.) */
static struct neighbour neighbour_of(const struct packing *p, int item, int other)
{
    const struct slot *me = &p->place[item], *it = &p->place[other];
    size_t begin = p->offset[other], end = begin + p->nbytes[other], nbytes = p->nbytes[item];
    if (!p->trails[item] || !p->trails[other])
        return (struct neighbour){begin, end, other};
    int64_t ahead = me->over == other + 1 ? me->ahead : it->ahead;
    if (may_trail(p, item, other)) {                  /* item may begin below it */
        size_t to = begin + nbytes + (size_t)ahead;
        return (struct neighbour){to < end ? to : end, end, other};
    }
    if (may_trail(p, other, item)) {
        size_t before = ahead > 0 ? (size_t)ahead : 0;
        end = ahead < 0 ? begin + (size_t)-ahead : begin > before ? begin - before : 0;
    }
    return (struct neighbour){begin, end, other};
}

/* Insertion sort: what is taken from placed[] is almost in order, since `ahead` moves few. */
static void insert_in_order(struct neighbour *a, int n)
{
    for (int i = 1; i < n; i++) {
        struct neighbour x = a[i];
        int k = i;
        for (; k > 0 && compare_begins(&a[k - 1], &x) > 0; k--)
            a[k] = a[k - 1];
        a[k] = x;
    }
}

static int log2_of(int n)
{
    int log = 1;
    while (log < 31 && n >> log)
        log++;
    return log;
}

/* Below this, insertion is faster than qsort(). */
enum { FEW = 16 };

/* The neighbours of one place that have offsets, by sorting them. */
static int sort_nearby(struct packing *p, int item)
{
    int n = 0;
    for (int i = p->near_from[item]; i < p->near_from[item + 1]; i++)
        if (p->offset[p->near[i]] != SIZE_MAX)
            p->nearby[n++] = neighbour_of(p, item, p->near[i]);
    if (n <= FEW)
        insert_in_order(p->nearby, n);
    else
        qsort(p->nearby, (size_t)n, sizeof *p->nearby, compare_begins);
    p->work += p->near_from[item + 1] - p->near_from[item] + (double)n * log2_of(n);
    return n;
}

/* sort_nearby() by walking all placed ones in order. */
static int search_nearby(struct packing *p, int item)
{
    int n = 0;
    p->round++;
    for (int i = p->near ? p->near_from[item] : 0; p->near && i < p->near_from[item + 1]; i++)
        p->seen[p->near[i]] = p->round;
    for (int k = 0; k < p->nplaced; k++) {
        int other = p->placed[k];
        if (p->near ? p->seen[other] == p->round
                    : slots_conflict(&p->place[item], &p->place[other]))
            p->nearby[n++] = neighbour_of(p, item, other);
    }
    if (p->trails[item])
        insert_in_order(p->nearby, n);
    p->work += p->nplaced + n;
    return n;
}

/* Whether sorting is less work than keeping an order, which moves half of the placed ones per
 * insertion. */
static bool is_sorting_less(const struct packing *p)
{
    double sorting = 0;
    for (int i = 0; i < p->n && p->near; i++) {
        int n = p->near_from[i + 1] - p->near_from[i];
        sorting += (double)n * log2_of(n);
    }
    return p->near && sorting < 0.75 * p->n * p->n;
}

/* Puts the item into the smallest gap between its neighbours that fits, else after the last. */
static bool put(struct packing *p, int item)
{
    size_t nbytes = p->nbytes[item], top = 0, best = SIZE_MAX, best_room = SIZE_MAX, end;
    int near = p->sorts ? sort_nearby(p, item) : search_nearby(p, item);
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
    if (p->sorts)
        return true;
    int k = p->nplaced++;
    for (; k > 0 && p->offset[p->placed[k - 1]] > best; k--)
        p->placed[k] = p->placed[k - 1];
    p->placed[k] = item;
    p->work += p->nplaced - k;
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

/* Sort keys: `major` decreasing, then `minor` decreasing, then the original order. */
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
        default: /* the greatest load during its live range */
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

/* Moves the place that ends at the top, and was put last of those, to the front of the order.
 * false: it is there already. */
static bool promote_topmost(const struct packing *p, int *order)
{
    int at = -1;
    for (int i = 0; i < p->n; i++) {
        size_t offset = p->offset[order[i]];
        if (offset != SIZE_MAX && offset + p->nbytes[order[i]] == p->total)
            at = i;
    }
    if (at <= 0)
        return false;
    int item = order[at];
    memmove(order + 1, order, (size_t)at * sizeof *order);
    order[0] = item;
    return true;
}

/* The most tries of each order; together they take ARENA_WORK, some hundredths of a second. */
enum { IMPROVE_ROUNDS = 400 };

bool arena_pack(struct tgc *t, struct slot *place, int n, int nstep, size_t *total, double *work)
{
    struct packing p = {.t = t, .place = place, .n = n};
    p.placed = mem_array(t, (size_t)n, sizeof *p.placed);
    p.offset = mem_array(t, (size_t)n, sizeof *p.offset);
    p.nearby = mem_array(t, (size_t)n, sizeof *p.nearby);
    p.seen = mem_array(t, (size_t)n, sizeof *p.seen);
    p.nbytes = mem_array(t, (size_t)n, sizeof *p.nbytes);
    p.trails = mem_array(t, (size_t)n, sizeof *p.trails);
    for (int i = 0; i < n; i++) {
        if (!size_align(place[i].nbytes, ARENA_ALIGN, &p.nbytes[i]))
            return false;
        if (place[i].over)
            p.trails[i] = p.trails[place[i].over - 1] = true;
    }
    list_near(&p);
    p.sorts = is_sorting_less(&p);
    size_t *load = mem_array(t, (size_t)nstep + 1, sizeof *load);
    int *order = mem_array(t, (size_t)n, sizeof *order);
    if (!arena_loads(place, n, load))
        return false;
    size_t bound = arena_live_nbytes(t, place, n, nstep), best = SIZE_MAX;
    double done = 0;
    for (int kind = 0; kind < ORDER_COUNT && best > bound; kind++) {
        make_order(&p, (enum order_kind)kind, load, order);
        done += p.work;
        p.work = 0;
        for (int r = 0; r <= IMPROVE_ROUNDS && best > bound; r++) {
            if (r && (p.work > (double)ARENA_WORK / ORDER_COUNT || !promote_topmost(&p, order)))
                break;
            if (!pack_in_order(&p, order))
                break; /* overflows size_t: another order may fit */
            if (p.total >= best)
                continue;
            best = p.total;
            for (int i = 0; i < n; i++)
                place[i].offset = p.offset[i];
        }
    }
    *total = best;
    if (work)
        *work = done + p.work;
    return best != SIZE_MAX;
}
