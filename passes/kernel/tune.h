/* tune.h - choices as data: what could be chosen, what has been measured, what to choose.
 *
 * Where the cost model chooses among candidates (a nest's tile, a layer's Winograd tiles, the loop
 * that threads share) the choice has a key, made of the shape of what is compiled: equal for layers
 * of equal shapes, on any machine. Without a `struct tuning` in tgc.tuning the model's first choice
 * is taken. With one, what its entries say is taken instead, and every choice is noted with its
 * candidates: for tgc tune, which measures them, and tgc info --why.
 */
#ifndef TGC_TUNE_H
#define TGC_TUNE_H

#include "passes/kernel/tile.h"

enum tune_kind { TUNE_TILE, TUNE_WINOGRAD, TUNE_THREADS, TUNE_KIND_COUNT };

/* One line of a tune file, and one candidate of a choice. */
struct tuned {
    enum tune_kind kind;
    uint64_t key;
    enum isa isa;                /* TILE, THREADS */
    struct tile tile;            /* TILE: axes count from the nest's first range */
    int winograd[2];             /* WINOGRAD: the sides of the tiles; 0: no tiles along that one */
    int loop;                    /* THREADS: which of the nest's they share */
    double us, model_us;         /* measured: this, and the model's choice; 0: not known */
    int line;
    bool used;
};

/* A choice that a compile has made: its key, and what was taken, are in `taken`. */
struct choice {
    struct tuned taken;
    const struct tuned *by;      /* the entry that says so; NULL: the model */
    struct tuned *candidate; int n;        /* TILE, THREADS: best by the model first */
    int model;                   /* the candidate that the model takes */
    /* of store `nest` of the kernel; WINOGRAD: of the layer with this origin */
    struct kernel *kernel;
    int nest;
    const struct origin *origin;
    const char *title;           /* WINOGRAD: the layer's shape */
    double cost[16];             /* WINOGRAD: ns by the model, of each candidate */
    double share;                /* WINOGRAD: of the error that --error limits */
    bool refused;                /* WINOGRAD: the file's choice would be beyond that limit */
};

struct tuning {
    const char *file;
    struct tuned *entry; int nentry; size_t cap_entry;
    int width;                   /* candidates that are noted for each choice */
    struct choice *choice; int nchoice; size_t cap_choice;
};

/* Reads a tune file's text into entries. false: diagnostics name file and line. */
bool tune_read(struct tgc *t, const char *file, const char *text, size_t nbytes,
               struct tuning *tuning);
/* One line of such a file, without its remark. */
void tune_write(struct text *out, const struct tuned *e);
/* After a compile: an entry that fitted nothing is an error, if it is for one of these instruction
 * sets. */
bool tune_check(struct tgc *t, const struct tuning *tuning, isa_set isa);

/* The entry for a choice, marked as used; NULL: the model decides. */
struct tuned *tune_find(struct tgc *t, enum tune_kind kind, uint64_t key, enum isa isa);
void tune_note(struct tgc *t, struct choice c);
/* Keys. */
uint64_t tune_key_of_store(struct tgc *t, struct uop *store);
uint64_t tune_key_of_nest(const struct nest *m, const struct tile *like);
uint64_t tune_key_of_numbers(const int64_t *v, int n);
/* Says that an entry does not fit; returns false. */
bool tune_misfit(struct tgc *t, const struct tuned *e, const char *what);
/* Whether they say the same of the same kind of choice. */
bool tuned_are_equal(const struct tuned *a, const struct tuned *b);
bool tiles_are_equal(const struct tile *a, const struct tile *b);

#endif
