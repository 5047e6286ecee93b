/* base.h - what everything stands on: memory, what a compile holds, dictionaries, diagnostics. ir.h
 * includes it. */
#ifndef TGC_BASE_H
#define TGC_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <setjmp.h>

/* ------------------------------------------------------------------------------- base.c: memory */

/* One arena per compile. Never returns NULL: exhaustion (budget or malloc) ends the compile through
 * tgc_stop(). */
struct tgc;
/* zeroed, 16-byte aligned, lives as long as the compile */
void *mem_alloc(struct tgc *t, size_t nbytes);
void *mem_copy(struct tgc *t, const void *p, size_t nbytes);
char *mem_str(struct tgc *t, const char *s);
char *mem_printf(struct tgc *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *mem_vprintf(struct tgc *t, const char *format, va_list ap);
#define MEM_NEW(t, type) ((type *)mem_alloc((t), sizeof(type)))
void *mem_array(struct tgc *t, size_t n, size_t size);            /* checked n * size */

/* Bytes that the limit still allows; 0 where it was set below what is in use. */
size_t mem_room(const struct tgc *t);

/* Seconds by a clock that only goes forwards, from some beginning: for differences. */
double clock_seconds(void);

/* Scratch: a stack separate from the arena, for a function's temporary data. scratch_release()
 * frees all that was taken since the mark. */
struct mem_mark { struct mem_block *block; size_t used; };
struct mem_mark scratch_mark(struct tgc *t);
void scratch_release(struct tgc *t, struct mem_mark mark);
void *scratch_array(struct tgc *t, size_t n, size_t size);        /* zeroed, like mem_array() */

/* Grows a vector in the arena: returns storage for at least `need` elements, with the old
 * contents. */
void *mem_grow(struct tgc *t, void *old, size_t *capacity, size_t need, size_t size);
/* the same on the scratch stack */
void *scratch_grow(struct tgc *t, void *old, size_t *capacity, size_t need, size_t size);
#define SCRATCH_PUSH(t, v, n, cap, item) \
    ((v) = scratch_grow((t), (v), &(cap), (size_t)(n) + 1, sizeof *(v)), (v)[(n)++] = (item))
#define VEC_PUSH(t, v, n, cap, item) \
    ((v) = mem_grow((t), (v), &(cap), (size_t)(n) + 1, sizeof *(v)), (v)[(n)++] = (item))

/* Copies n elements. Arrays of none may be NULL, which memcpy() does not allow. */
#define ARRAY_COPY(to, from, n) \
    ((n) ? (void)memcpy((to), (from), (size_t)(n) * sizeof *(to)) : (void)0)

/* Checked arithmetic on sizes: false on overflow, *r untouched then. */
bool size_add(size_t a, size_t b, size_t *r);
bool size_mul(size_t a, size_t b, size_t *r);
bool size_align(size_t a, size_t align, size_t *r);               /* align: power of two */
int64_t sat_add(int64_t a, int64_t b);                            /* saturating, for bounds */
int64_t sat_mul(int64_t a, int64_t b);

/* A growing byte string, NUL-terminated; used by every writer. */
struct text { struct tgc *t; char *s; size_t n, cap; };
void text_putc(struct text *x, char c);
void text_puts(struct text *x, const char *s);
void text_write(struct text *x, const void *p, size_t nbytes);
void text_printf(struct text *x, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "Did you mean": of the words offered, the one with the least edit distance (insertions,
 * deletions, replacements, swaps of neighbours; case does not count) from what was written, if it
 * is close enough to be meant; else NULL. */
struct nearest { const char *word, *best; int distance; };
struct nearest nearest_to(const char *word);
void nearest_offer(struct nearest *n, const char *word);

/* FNV-1a over words of 8 bytes, continuing from h; not for hostile keys. */
uint64_t hash_bytes(uint64_t h, const void *data, size_t nbytes);

/* --------------------------------------------------------------------------------------- held.c */

/* What a compile holds besides its arena. Entered before it is acquired: what has not been acquired
 * is not released. tgc_free() releases what is still held, the latest first. */
struct held;
/* release(what) at the end; `what` is in the arena. */
struct held *held_add(struct tgc *t, void (*release)(void *what), void *what);
void held_release(struct held *h);                                /* now; NULL: nothing */
void held_forget(struct held *h);
/* The latest entry; forgets all after it: what they hold can no longer be released safely. */
struct held *held_last(const struct tgc *t);
void held_forget_since(struct tgc *t, const struct held *last);
void held_release_all(struct tgc *t);
/* What `from` holds with this function, of nbytes, is held by `to` from now on. */
void held_pass(struct tgc *from, struct tgc *to, void (*release)(void *what), size_t nbytes);
/* fopen() to be closed by held_release(*h). NULL: errno says why. */
FILE *held_fopen(struct tgc *t, const char *path, const char *mode, struct held **h);
/* A file descriptor that is to be stored in **fd. */
struct held *held_fd(struct tgc *t, int **fd);
/* A map or a block of the heap, to be stored in (*map)->base, or in **block. */
struct held_map { void *base; size_t nbytes; };
struct held *held_map(struct tgc *t, struct held_map **map);
void held_pass_maps(struct tgc *from, struct tgc *to);
struct held *held_heap(struct tgc *t, void ***block);

/* --------------------------------------------------------------------------------------- dict.c */

/* Strings to pointers; all zeros: an empty one. */
struct dict { struct dict_slot *slot; size_t nslot, nkey; };
bool dict_has(const struct dict *d, const char *key);
/* NULL: the key is not there, or nothing was stored. */
void *dict_get(const struct dict *d, const char *key);
/* Where the key's value is stored (NULL in it: the key is new); valid until the next key is
 * entered. A new key is not copied. */
void **dict_enter(struct tgc *t, struct dict *d, const char *key);

/* -------------------------------------------------------------------------- base.c: diagnostics */

enum severity { SEVERITY_NOTE, SEVERITY_WARNING, SEVERITY_ERROR };
struct place {              /* where in the user's input; zeros where unknown */
    const char *file;
    const char *text;       /* "node 17 'conv_3' (Conv), input 1 'w'" */
    int line, column;       /* 1-based, for .tg files */
    const char *source_line;/* for the caret */
};
struct diag { enum severity severity; struct place at; const char *message; };
/* Records a diagnostic; always returns false, so that `return diag_error(...)` reads well. Nothing
 * is printed here: cli/ does. */
bool diag_error(struct tgc *t, const struct place *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void diag_note(struct tgc *t, const struct place *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void diag_warn(struct tgc *t, const struct place *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Forgets all but the first n diagnostics, since what failed has another way: the message of the
 * first error among them; NULL: there is none. */
const char *diag_take_back(struct tgc *t, int n);
/* Who hears of the work (lib/listen.c). Each may be NULL. */
struct listener {
    void *user;
    /* long work that begins; "": it is done */
    void (*on_progress)(void *user, const char *what);
    /* a stage that is over, with its time and the compile's memory */
    void (*on_stage)(void *user, const char *what, double seconds, size_t mem_used);
    /* what DEBUG asks for */
    void (*on_text)(void *user, const char *text);
    /* a temporary file or directory that appears, or is gone */
    void (*on_temporary)(void *user, const char *path, bool is_directory, bool appears);
    /* a program that works for this process, in a process group of its own, and its end */
    void (*on_process)(void *user, long pid, bool begins);
    /* until begins is false a signal that ends the process has to wait; not nested */
    void (*on_critical)(void *user, bool begins);
    /* asked often; false: the compile ends */
    bool (*go_on)(void *user);
};
/* Asks the listener, and ends the compile if it says so. */
void tgc_poll(struct tgc *t);
/* limit.c: steps of optimization, which TGC_OPT_LIMIT=N lets happen up to the N-th. */
struct opt_limit {
    long most, n;                /* allowed; asked for so far */
    const char *pass;            /* the pass that runs */
    const char *last, *next;     /* step number `most`, and the one after it: what it does */
};
void limit_set(struct tgc *t, long most);
/* May the next step be made? format: what it does. */
bool limit_takes(struct tgc *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Tells the listener where what is on disk must not be left as it is. needs: no
 * allocation between. */
void tgc_critical(struct tgc *t, bool begins);
/* ends the compile: longjmp to t->stop */
_Noreturn void tgc_stop(struct tgc *t);
_Noreturn void tgc_bug(struct tgc *t, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define TGC_BUG(t, ...) tgc_bug((t), __FILE__, __LINE__, __VA_ARGS__)

/* Whether a name is what the pattern says, where '*' stands for any characters. */
bool name_matches(const char *pattern, const char *name);

#endif
