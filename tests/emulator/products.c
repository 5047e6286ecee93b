/* SPDX-License-Identifier: 0BSD */
/* products.c - asynchronous matrix products of factors that the unit reads from local memory itself
 * (CUDA's wgmma): finds what can be wrong with them.
 *
 *      63 62        46          32        30          16        14           0
 *      | 1 |  ...   |   stride   |   ...   |  leading  |   ...   |   begins   |
 *                                                                    in units of 16 bytes
 *
 * The bits are decoded as the unit does: rows of 128 bytes, eight of them 1024 bytes, with 16-byte
 * chunks swizzled by the address bits above them.
 *
 * The factors are read when a product is issued, and again when it is waited for. So bytes that
 * nobody wrote, or that another work-item writes meanwhile, are found as for any access. Until the
 * wait the sums are no numbers. Work-items' stores must have been published before the barrier,
 * since the unit reads through another proxy. An engine must not replace what products in flight
 * read. For a factor in registers each work-item takes the rows of its sums from the lanes that
 * hold them, when the product is issued.
 */
#include "emulator.h"

#include <stdlib.h>
#include <string.h>

API void *emulator_local(uint32_t at);

enum {
    MOST = 64,
    MOST_SUMS = 128 /* of 256 columns */,
    MEMORIES = 8,
    ADDRESS = 0x3ffff,
    GROUP = 128,
    OWN_ROWS = 2,
    OWN_TERMS = 16,
    LINES = 256,
    TERMS = 32
};

struct factor { uint64_t bits, across; };
/* own: of a in registers */
struct product {
    const struct matrix_row *row;
    void *sum;
    struct factor factor[2];
    float own[OWN_ROWS][OWN_TERMS];
};
struct products {
    struct product product[MOST];
    int n, group[MOST], ngroup; /* the end of each committed group: the index after
                                 * its last product */
    struct saved { void *sum; uint32_t value[MOST_SUMS]; } saved[MOST]; /* what sums were before */
    int nsaved;
    bool has_begun;
    uint32_t issued, ntold;
    struct factor told[MOST][2]; /* by the first of its four warps: the factors of
                                  * the last products */
    const struct memory *stored[MEMORIES]; /* since it was published last */
    const struct memory *unpublished[MEMORIES]; /* unpublished at the last barrier */
};

static struct products *own(struct launch *l)
{
    if (!l->here->products && !(l->here->products = calloc(l->nitem, sizeof *l->here->products))) {
        report("no memory for products");
        launch_abort();
    }
    return &l->here->products[l->now->in_block];
}

void products_reset(struct launch *l)
{
    for (uint32_t i = 0; l->here->products && i < l->nitem; i++) {
        struct products *p = &l->here->products[i];
        p->n = p->ngroup = p->nsaved = 0;
        p->has_begun = false;
        p->issued = p->ntold = 0;
        memset(p->stored, 0, sizeof p->stored);
        memset(p->unpublished, 0, sizeof p->unpublished);
    }
}

void products_stored(struct launch *l, const struct memory *m)
{
    struct products *p = own(l);
    int i = 0;
    while (i < MEMORIES && p->stored[i] && p->stored[i] != m)
        i++;
    if (i < MEMORIES)
        p->stored[i] = m;
}

void products_barrier(struct launch *l, const struct item *item)
{
    if (l->here->products)
        memcpy(l->here->products[item->in_block].unpublished,
               l->here->products[item->in_block].stored, sizeof l->here->products->stored);
}

static void wrong(struct launch *l, const char *text, const char *what)
{
    if (item_is_first())
        report("%s: %s: %s %s, at %s", l->kernel->signature.name, what,
               item_name(l, l->now->number), text, item_line());
}

void products_end(struct launch *l, const struct item *item)
{
    if (l->here->products && l->here->products[item->in_block].n) {
        report("%s: %s ends before its products are waited for", l->kernel->signature.name,
               item_name(l, item->number));
        l->has_failed = true;
    }
}

/* Byte `at` of local memory, whose addresses have 18 bits. */
static unsigned char *local_at(struct launch *l, uint32_t at, const struct memory **memory)
{
    for (int i = 0; i < l->nwindow; i++) {
        const struct memory *m = l->window[i].memory;
        const uint32_t offset = (at - (uint32_t)(uintptr_t)m->at) & ADDRESS;
        if (l->window[i].in_shared && offset < m->nbytes) {
            *memory = m;
            return m->at + offset;
        }
    }
    wrong(l, "lets the unit read outside of local memory", "out of bounds");
    launch_abort();
}

/* Element x, k of the factor: x is its row, or its column. */
static const unsigned char *element(struct launch *l, const struct factor *f, unsigned nbytes,
                                    int x, int k, const struct memory **memory)
{
    const uint32_t begins = (uint32_t)(f->bits & 0x3fff) << 4,
                   leading = (uint32_t)(f->bits >> 16 & 0x3fff) << 4,
                   stride = (uint32_t)(f->bits >> 32 & 0x3fff) << 4;
    const int line = f->across ? k : x, byte = (f->across ? x : k) * (int)nbytes;
    uint32_t at =
        begins + (uint32_t)(line / 8) * stride + (uint32_t)(line % 8) * 128 + (uint32_t)byte % 128;
    at += f->across ? (uint32_t)(byte / 128) * leading : 0;
    return local_at(l, at ^ (at >> 7 & 7) << 4, memory);
}

bool products_unpublished(const struct launch *l, const struct memory *m)
{
    for (uint32_t i = 0; l->here->products && i < l->nitem; i++)
        for (int k = 0; k < MEMORIES; k++)
            if (l->here->products[i].unpublished[k] == m)
                return true;
    return false;
}

/* The warp reads its part of the factor: its rows of a, all of b. Two of its lanes read each piece
 * of 16 contiguous bytes, so any concurrent writer is another work-item than one of the readers. */
static void read_factor(struct launch *l, const struct product *p, int part)
{
    const struct matrix_row *r = p->row;
    const struct factor *f = &p->factor[part];
    const unsigned nbytes = matrix_nbytes(r->type[part]);
    const int from = part == A ? (int)(l->now->in_block % GROUP) / 32 * 16 : 0,
              to = part == A ? from + 16 : r->size[1], piece = 16 / (int)nbytes,
              share = (int)l->now->in_block % 16;
    int number = 0;
    for (int x = from; x < to; x += f->across ? piece : 1)
        for (int k = 0; k < r->size[2]; k += f->across ? 1 : piece) {
            if (number++ % 16 != share)
                continue;
            const struct memory *m = NULL;
            shadow_access(element(l, f, nbytes, x, k, &m), 16, ACCESS_READ);
            if (x == from && k == 0 && products_unpublished(l, m))
                wrong(l,
                      "lets the unit read what was stored, and not published, before the barrier",
                      "unpublished");
        }
}

static bool is_own(const struct matrix_row *r, int part)
{
    return strcmp(r->layout[part], "shared") != 0;
}

/* The row of a, among the work-item's own, of element m of its sums: rows are eight apart. */
static int own_row(int m) { return m / 8 % OWN_ROWS; }

/* Gathers what the lanes of the warp hold of the rows of the work-item's own sums. */
static void take_own(struct launch *l, struct product *p, const void *words)
{
    const struct matrix_row *r = p->row;
    unsigned char of_lane[32];
    const struct matrix_places *places = matrix_places(r, A);
    const uint32_t nbytes = (uint32_t)places->n * matrix_nbytes(r->type[A]),
                   warp = l->now->in_block % GROUP / 32 * 32;
    const int mine = matrix_coordinate(matrix_places(r, SUM), l->now->in_block % GROUP, 0, 0);
    emulator_give(words, nbytes);
    for (uint32_t lane = 0; lane < 32; lane++) {
        emulator_take(of_lane, nbytes, lane);
        for (int i = 0; i < places->n; i++) {
            const int row = matrix_coordinate(places, warp + lane, i, 0);
            if (row % 8 == mine % 8)
                p->own[own_row(row)][matrix_coordinate(places, warp + lane, i, 2)] =
                    (float)matrix_number(r->type[A], of_lane, i);
        }
    }
}

/* Has a factor, whose rows are whole groups of eight times 128 bytes, any of these bytes
 * of local memory? */
static bool reaches(const struct product *x, int part, uint32_t from, size_t nbytes)
{
    const struct matrix_row *r = x->row;
    if (is_own(r, part))
        return false;
    const struct factor *f = &x->factor[part];
    const uint32_t leading = (uint32_t)(f->bits >> 16 & 0x3fff) << 4,
                   stride = (uint32_t)(f->bits >> 32 & 0x3fff) << 4;
    const unsigned side = (unsigned)r->size[part], lines = f->across ? (unsigned)r->size[2] : side,
                   panels = f->across ? (side * matrix_nbytes(r->type[part]) + 127) / 128 : 1;
    for (unsigned p = 0; p < panels; p++)
        for (unsigned line = 0; line < lines; line += 8) {
            const uint32_t at =
                (((uint32_t)(f->bits & 0x3fff) << 4) + p * leading + line / 8 * stride) &
                ~(uint32_t)1023;
            if (((at - from) & ADDRESS) < nbytes || ((from - at) & ADDRESS) < 1024)
                return true;
        }
    return false;
}

void products_replaced(struct launch *l, const struct block *of, const void *at, size_t nbytes)
{
    for (uint32_t i = 0; of->products && i < l->nitem; i++)
        for (int j = 0; j < of->products[i].n; j++)
            if (reaches(&of->products[i].product[j], A, (uint32_t)(uintptr_t)at & ADDRESS,
                        nbytes) ||
                reaches(&of->products[i].product[j], B, (uint32_t)(uintptr_t)at & ADDRESS,
                        nbytes)) {
                wrong(l, "lets memory be replaced that products read which nobody has waited for",
                      "copy");
                return;
            }
}

/* Do all lanes of the warpgroup pass the same descriptors for product number `issued`? The first
 * that comes sets them. */
static void compare(struct launch *l, uint32_t issued, const struct product *p)
{
    struct products *first = &l->here->products[l->now->in_block / GROUP * GROUP];
    struct factor *told = first->told[issued % MOST];
    if (issued >= first->ntold) {
        memcpy(told, p->factor, sizeof p->factor);
        first->ntold = issued + 1;
    } else if (first->ntold - issued <= MOST && memcmp(told, p->factor, sizeof p->factor) != 0) {
        wrong(l, "tells other places than another one of its four warps", "divergent products");
    }
}

static void save(struct products *p, void *sum, int n)
{
    for (int i = 0; i < p->nsaved; i++)
        if (p->saved[i].sum == sum)
            return;
    struct saved *s = &p->saved[p->nsaved++];
    s->sum = sum;
    memcpy(s->value, sum, (size_t)n * sizeof *s->value);
    memset(sum, 0xff, (size_t)n * sizeof *s->value);
}

static void issue(struct launch *l, struct products *p, const struct matrix_row *r, void *sum,
                  const void *a, const uint64_t *b)
{
    struct product new = {.row = r, .sum = sum, .factor = {{0}, {b[0], b[1]}}};
    if (!is_own(r, A))
        memcpy(&new.factor[A], a, sizeof new.factor[A]);
    if (l->nsubgroup != 32 || l->nitem % GROUP) {
        wrong(l, "is of no four whole warps", r->text);
        launch_abort();
    }
    if (!p->has_begun)
        wrong(l, "adds to sums that were used since, without a begin", r->text);
    for (int i = is_own(r, A); i < 2; i++)
        if (new.factor[i].bits >> 62 != 1 || (new.factor[i].bits >> 49 & 7) ||
            (new.factor[i].across &&matrix_nbytes(r->type[i]) != 2))
            wrong(l, "tells another order than that of 128 bytes", r->text);
    if (p->n == MOST || p->nsaved == MOST) {
        wrong(l, "issues more products than are emulated", r->text);
        launch_abort();
    }
    if (is_own(r, A))
        take_own(l, &new, a);
    p->product[p->n++] = new;
    compare(l, p->issued++, &new);
    for (int i = is_own(r, A); i < 2; i++)
        read_factor(l, &new, i);
    save(p, sum, matrix_places(r, SUM)->n);
}

/* Reads the terms of a row of a, or of a column of b. */
static void read_line(struct launch *l, const struct product *x, int part, int line, double *to)
{
    const struct matrix_row *r = x->row;
    const unsigned nbytes = matrix_nbytes(r->type[part]);
    const struct memory *m;
    for (int k = 0; k < r->size[2]; k++)
        to[k] = is_own(r, part)
                    ? (double)x->own[own_row(line)][k]
                    : matrix_number(r->type[part],
                                    element(l, &x->factor[part], nbytes, line, k, &m), 0);
}

/* Adds the product to its sum. */
static void add_product(struct launch *l, const struct product *x)
{
    static double line[2][LINES][TERMS]; /* the lines that the work-item's sums need; no other
                                          * work-item runs meanwhile */
    bool is_read[2][LINES] = {{0}};
    const struct matrix_row *r = x->row;
    const struct matrix_places *sums = matrix_places(r, SUM);
    for (int i = is_own(r, A); i < 2; i++)
        read_factor(l, x, i);
    for (int i = 0; i < sums->n; i++) {
        const double *of[2];
        for (int part = A; part <= B; part++) {
            const int at = matrix_coordinate(sums, l->now->in_block % GROUP, i, part);
            if (!is_read[part][at])
                read_line(l, x, part, at, line[part][at]);
            is_read[part][at] = true;
            of[part] = line[part][at];
        }
        matrix_add(r, x->sum, i, of[A], of[B]);
    }
}

/* Completes the products of all groups but the `left` newest. Sums that pending products accumulate
 * into become no numbers again. */
static void finish(struct launch *l, struct products *p, int left)
{
    int ngroup = p->ngroup > left ? p->ngroup - left : 0, ndone = ngroup ? p->group[ngroup - 1] : 0;
    if ((p->ngroup ? p->group[p->ngroup - 1] : 0) != p->n) {
        wrong(l, "waits for products that are in no group", "wait");
        ngroup = p->ngroup, ndone = p->n;
    }
    for (int i = 0; i < p->nsaved; i++) {
        const struct product *of = p->product;
        while (of->sum != p->saved[i].sum)
            of++;
        memcpy(of->sum, p->saved[i].value,
               (size_t)matrix_places(of->row, SUM)->n * sizeof(uint32_t));
    }
    for (int j = 0; j < ndone; j++)
        add_product(l, &p->product[j]);
    p->n -= ndone;
    p->ngroup -= ngroup;
    memmove(p->product, p->product + ndone, (size_t)p->n * sizeof *p->product);
    for (int i = 0; i < p->ngroup; i++)
        p->group[i] = p->group[i + ngroup] - ndone;
    p->nsaved = 0;
    for (int j = 0; j < p->n; j++)
        save(p, p->product[j].sum, matrix_places(p->product[j].row, SUM)->n);
    p->has_begun = false;
}

/* A warp's lanes wait together. */
static void wait_for(struct launch *l, struct products *p, int left)
{
    item_wait(FOR_SUBGROUP, 1, NULL);
    finish(l, p, left);
}

static void commit(struct launch *l, struct products *p)
{
    if (p->ngroup == MOST) {
        wrong(l, "commits more groups than are emulated", "commit");
        launch_abort();
    }
    p->group[p->ngroup++] = p->n;
}

void *emulator_local(uint32_t at)
{
    const struct memory *m;
    return local_at(launch_now(), at, &m);
}

void products_do(const char *what, const struct matrix_row *r, void *sum, const void *a,
                 const uint64_t *b)
{
    struct launch *l = launch_now();
    struct products *p = own(l);
    if (r)
        issue(l, p, r, sum, a, b);
    else if (!strcmp(what, "begin"))
        p->has_begun = true;
    else if (!strcmp(what, "commit"))
        commit(l, p);
    else if (!strcmp(what, "wait"))
        wait_for(l, p, (int)*(const uint64_t *)a);
    else
        memset(p->stored, 0, sizeof p->stored);
}
