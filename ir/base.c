/* base.c - what everything stands on: the compile's arena, checked sizes, strings, diagnostics.
 *
 * One arena per compile, freed as a whole. Exhaustion never returns to the caller: it records a
 * diagnostic and ends the compile through the one hook, tgc_stop(). The block list is the only
 * place in tgc that calls malloc for compile-time data.
 */
#include "ir/ir.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct mem_block {
    struct mem_block *next;
    size_t used, size;
    _Alignas(16) unsigned char data[];
};

enum { MEM_BLOCK_NBYTES = 1 << 20 };

/* An address sanitizer knows blocks alone. What of them is not handed out is poisoned, so that it
 * reports accesses beyond an array, or to scratch memory that was released. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
enum { REDZONE_NBYTES = 32 };           /* between two arrays */
#define MEM_FORBID(p, nbytes) ASAN_POISON_MEMORY_REGION(p, nbytes)
#define MEM_ALLOW(p, nbytes) ASAN_UNPOISON_MEMORY_REGION(p, nbytes)
#else
enum { REDZONE_NBYTES = 0 };
#define MEM_FORBID(p, nbytes) ((void)(p), (void)(nbytes))
#define MEM_ALLOW(p, nbytes) ((void)(p), (void)(nbytes))
#endif

bool size_add(size_t a, size_t b, size_t *r)
{
    if (a > SIZE_MAX - b)
        return false;
    *r = a + b;
    return true;
}

bool size_mul(size_t a, size_t b, size_t *r)
{
    if (b != 0 && a > SIZE_MAX / b)
        return false;
    *r = a * b;
    return true;
}

bool size_align(size_t a, size_t align, size_t *r)
{
    size_t sum;
    if (!size_add(a, align - 1, &sum))
        return false;
    *r = sum & ~(align - 1);
    return true;
}

double clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int64_t sat_add(int64_t a, int64_t b)
{
    int64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return a < 0 ? INT64_MIN : INT64_MAX;
    return r;
}

int64_t sat_mul(int64_t a, int64_t b)
{
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return (a < 0) != (b < 0) ? INT64_MIN : INT64_MAX;
    return r;
}

struct tgc *tgc_new(size_t mem_limit)
{
    struct tgc *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->mem_limit = mem_limit ? mem_limit : SIZE_MAX;
    t->cache_nbytes = CACHE_OF_MACHINE;
    t->error_limit = ERROR_LIMIT;
    return t;
}

static void blocks_free(struct mem_block *b)
{
    for (struct mem_block *next; b; b = next) {
        next = b->next;
        free(b);
    }
}

void tgc_free(struct tgc *t)
{
    if (!t)
        return;
    held_release_all(t);
    blocks_free(t->mem);
    blocks_free(t->scratch);
    blocks_free(t->spare);
    free(t);
}

/* The message must not allocate from the arena that is full. */
static _Noreturn void mem_exhausted(struct tgc *t)
{
    struct diag full = {
        .severity = SEVERITY_ERROR,
        .message = "out of memory: the model needs more than the compile may use (--max-memory)"};
    if (t->current_origin) {
        const struct origin *o = t->origin[t->current_origin - 1];
        snprintf(t->last_node, sizeof t->last_node, "node %d '%.150s' (%.50s)", o->index, o->node,
                 o->op_type);
        full.at.text = t->last_node;
    }
    if (t->cap_diag > (size_t)t->ndiag)
        t->diag[t->ndiag++] = full;
    t->nerror++;
    t->exhausted = true;
    tgc_stop(t);
}

size_t mem_room(const struct tgc *t)
{
    return t->mem_used < t->mem_limit ? t->mem_limit - t->mem_used : 0;
}

static struct mem_block *block_new(struct tgc *t, size_t nbytes)
{
    size_t total;
    tgc_poll(t);
    if (!size_add(nbytes, sizeof(struct mem_block), &total) || total > mem_room(t))
        mem_exhausted(t);
    struct mem_block *b = calloc(1, total);
    if (!b)
        mem_exhausted(t);
    t->mem_used += total;
    b->size = nbytes;
    MEM_FORBID(b->data, nbytes);
    return b;
}

/* What an array takes of a block. */
static size_t block_share(struct tgc *t, size_t nbytes)
{
    size_t need;
    if (!size_add(nbytes ? nbytes : 1, REDZONE_NBYTES, &need) || !size_align(need, 16, &need))
        mem_exhausted(t);
    return need;
}

static void *block_take(struct mem_block *b, size_t nbytes, size_t need)
{
    void *p = b->data + b->used;
    b->used += need;
    MEM_ALLOW(p, nbytes);
    return p;
}

void *mem_alloc(struct tgc *t, size_t nbytes)
{
    size_t need = block_share(t, nbytes);
    struct mem_block *b = t->mem;
    /* large: a block of its own, so that the current one stays in use */
    if (need > MEM_BLOCK_NBYTES / 4) {
        struct mem_block *own = block_new(t, need);
        if (b) {
            own->next = b->next;
            b->next = own;
        } else {
            t->mem = own;
        }
        return block_take(own, nbytes, need);
    }
    if (!b || b->size - b->used < need) {
        /* near the limit, blocks are only as large as needed */
        size_t room = mem_room(t);
        size_t size = room > 2 * (size_t)MEM_BLOCK_NBYTES ? MEM_BLOCK_NBYTES : need;
        b = block_new(t, size);
        b->next = t->mem;
        t->mem = b;
    }
    return block_take(b, nbytes, need);
}

/* ---- scratch */

struct mem_mark scratch_mark(struct tgc *t)
{
    return (struct mem_mark){t->scratch, t->scratch ? t->scratch->used : 0};
}

void scratch_release(struct tgc *t, struct mem_mark mark)
{
    while (t->scratch != mark.block) {
        struct mem_block *b = t->scratch;
        t->scratch = b->next;
        b->next = t->spare;
        t->spare = b;
        MEM_FORBID(b->data, b->size);
    }
    if (!t->scratch)
        return;
    MEM_FORBID(t->scratch->data + mark.used, t->scratch->used - mark.used);
    t->scratch->used = mark.used;
}

/* A spare block that is large enough, else a new one. */
static struct mem_block *scratch_block(struct tgc *t, size_t need)
{
    for (struct mem_block **at = &t->spare; *at; at = &(*at)->next)
        if ((*at)->size >= need) {
            struct mem_block *b = *at;
            *at = b->next;
            return b;
        }
    size_t room = mem_room(t);
    return block_new(t, need < MEM_BLOCK_NBYTES && room > 2 * (size_t)MEM_BLOCK_NBYTES
                            ? MEM_BLOCK_NBYTES
                            : need);
}

void *scratch_array(struct tgc *t, size_t n, size_t size)
{
    size_t nbytes;
    if (!size_mul(n, size, &nbytes))
        mem_exhausted(t);
    size_t need = block_share(t, nbytes);
    if (!t->scratch || t->scratch->size - t->scratch->used < need) {
        struct mem_block *b = scratch_block(t, need);
        b->used = 0;
        b->next = t->scratch;
        t->scratch = b;
    }
    return memset(block_take(t->scratch, nbytes, need), 0, nbytes);
}

void *mem_array(struct tgc *t, size_t n, size_t size)
{
    size_t nbytes;
    if (!size_mul(n, size, &nbytes))
        mem_exhausted(t);
    return mem_alloc(t, nbytes);
}

void *mem_copy(struct tgc *t, const void *p, size_t nbytes)
{
    void *r = mem_alloc(t, nbytes);
    if (nbytes)
        memcpy(r, p, nbytes);
    return r;
}

char *mem_str(struct tgc *t, const char *s) { return mem_copy(t, s, strlen(s) + 1); }

char *mem_vprintf(struct tgc *t, const char *format, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, format, ap);
    char *s = mem_alloc(t, n < 0 ? 1 : (size_t)n + 1);
    if (n >= 0)
        vsnprintf(s, (size_t)n + 1, format, again);
    va_end(again);
    return s;
}

char *mem_printf(struct tgc *t, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    char *s = mem_vprintf(t, format, ap);
    va_end(ap);
    return s;
}

static size_t grown_capacity(struct tgc *t, size_t capacity, size_t need)
{
    size_t cap = capacity ? capacity : 8;
    while (cap < need)
        if (!size_mul(cap, 2, &cap))
            mem_exhausted(t);
    return cap;
}

void *mem_grow(struct tgc *t, void *old, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return old;
    size_t cap = grown_capacity(t, *capacity, need);
    void *p = mem_array(t, cap, size);
    if (*capacity)
        memcpy(p, old, *capacity * size);
    *capacity = cap;
    return p;
}

void *scratch_grow(struct tgc *t, void *old, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return old;
    size_t cap = grown_capacity(t, *capacity, need);
    void *p = scratch_array(t, cap, size);
    if (*capacity)
        memcpy(p, old, *capacity * size);
    *capacity = cap;
    return p;
}

void text_write(struct text *x, const void *p, size_t nbytes)
{
    x->s = mem_grow(x->t, x->s, &x->cap, x->n + nbytes + 1, 1);
    if (nbytes)
        memcpy(x->s + x->n, p, nbytes);
    x->n += nbytes;
    x->s[x->n] = 0;
}

void text_putc(struct text *x, char c) { text_write(x, &c, 1); }
void text_puts(struct text *x, const char *s) { text_write(x, s, strlen(s)); }

void text_printf(struct text *x, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    char small[256];
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, format, ap);
    if (n >= 0 && (size_t)n < sizeof small)
        text_write(x, small, (size_t)n);
    else if (n >= 0)
        text_puts(x, mem_vprintf(x->t, format, again));
    va_end(again);
    va_end(ap);
}

static uint64_t hash_word(uint64_t h, const unsigned char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    h = (h ^ word) * 0x100000001b3u;
    return h ^ h >> 29;
}

/* Long data is hashed in four independent lanes of words, which the processor
 * computes in parallel. */
uint64_t hash_bytes(uint64_t h, const void *data, size_t nbytes)
{
    enum { LANES = 4, WORD = sizeof h };
    const unsigned char *p = data;
    if (nbytes >= 4 * LANES * WORD) {
        uint64_t lane[LANES] = {h, h + 1, h + 2, h + 3};
        for (; nbytes >= LANES * WORD; nbytes -= LANES * WORD, p += LANES * WORD)
            for (int i = 0; i < LANES; i++)
                lane[i] = hash_word(lane[i], p + i * WORD);
        for (int i = 0; i < LANES; i++)
            h = (h ^ lane[i]) * 0x100000001b3u;
    }
    for (; nbytes >= WORD; nbytes -= WORD, p += WORD)
        h = hash_word(h, p);
    for (; nbytes; nbytes--, p++)
        h = (h ^ *p) * 0x100000001b3u;
    return h;
}

static char lower_case(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* The optimal string alignment distance of the words, ignoring case: row[0] is the current row,
 * row[1] and row[2] the two before it. source: Damerau (1964), Wagner, Fischer (1974). */
static int edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 32 };
    int row[3][LONGEST + 1] = {0}, na = (int)strnlen(a, LONGEST), nb = (int)strnlen(b, LONGEST);
    for (int j = 0; j <= nb; j++)
        row[0][j] = j;
    for (int i = 1; i <= na; i++) {
        memcpy(row[2], row[1], sizeof *row);
        memcpy(row[1], row[0], sizeof *row);
        row[0][0] = i;
        for (int j = 1; j <= nb; j++) {
            char x = lower_case(a[i - 1]), y = lower_case(b[j - 1]);
            int best = row[1][j - 1] + (x != y);
            best = row[1][j] + 1 < best ? row[1][j] + 1 : best;
            best = row[0][j - 1] + 1 < best ? row[0][j - 1] + 1 : best;
            bool swapped = i > 1 && j > 1 && x == lower_case(b[j - 2]) && lower_case(a[i - 2]) == y;
            row[0][j] = swapped && row[2][j - 2] + 1 < best ? row[2][j - 2] + 1 : best;
        }
    }
    return row[0][nb];
}

struct nearest nearest_to(const char *word)
{
    return (struct nearest){.word = word, .distance = (int)strlen(word) / 3 + 1};
}

void nearest_offer(struct nearest *n, const char *word)
{
    int distance = edit_distance(n->word, word);
    if (distance < n->distance) {
        n->distance = distance;
        n->best = word;
    }
}

static void diag_add(struct tgc *t, enum severity severity, const struct place *at,
                     const char *format, va_list ap)
{
    struct diag d = {severity, {0}, mem_vprintf(t, format, ap)};
    if (at)
        d.at = *at;
    VEC_PUSH(t, t->diag, t->ndiag, t->cap_diag, d);
    if (severity == SEVERITY_ERROR)
        t->nerror++;
}

bool diag_error(struct tgc *t, const struct place *at, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    diag_add(t, SEVERITY_ERROR, at, format, ap);
    va_end(ap);
    return false;
}

void diag_note(struct tgc *t, const struct place *at, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    diag_add(t, SEVERITY_NOTE, at, format, ap);
    va_end(ap);
}

void diag_warn(struct tgc *t, const struct place *at, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    diag_add(t, SEVERITY_WARNING, at, format, ap);
    va_end(ap);
}

const char *diag_take_back(struct tgc *t, int n)
{
    const char *first = NULL;
    for (int i = n; i < t->ndiag; i++) {
        bool error = t->diag[i].severity == SEVERITY_ERROR;
        first = error && !first ? t->diag[i].message : first;
        t->nerror -= error;
    }
    t->ndiag = t->ndiag > n ? n : t->ndiag;
    return first;
}

void tgc_critical(struct tgc *t, bool begins)
{
    if (t->listener && t->listener->on_critical)
        t->listener->on_critical(t->listener->user, begins);
}

void tgc_poll(struct tgc *t)
{
    const struct listener *l = t->listener;
    if (!l || !l->go_on || t->cancelled || l->go_on(l->user))
        return;
    t->cancelled = true;
    tgc_stop(t);
}

void tgc_stop(struct tgc *t) { longjmp(t->stop, 1); }

void tgc_bug(struct tgc *t, const char *file, int line, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    struct text x = {.t = t};
    text_printf(&x, "%s:%d: %s", file, line, mem_vprintf(t, format, ap));
    va_end(ap);
    diag_error(t, NULL, "%s", x.s);
    t->bug = true;
    tgc_stop(t);
}

bool name_matches(const char *pattern, const char *name)
{
    const char *star = NULL, *again = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = ++pattern;
            again = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star;
            name = ++again;
        } else {
            return false;
        }
    }
    return !pattern[strspn(pattern, "*")];
}
