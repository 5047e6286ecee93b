/* tune.h - choices as data: candidates, measurements, decisions.
 *
 * Where the cost model chooses among candidates, the choice has a key, a hash of the shapes: equal
 * for layers of equal shapes, on any machine. Choices are the opts of a nest, a layer's Winograd
 * tiles, and the loop that threads share. Without a `struct tuning` in tgc.tuning the cost model's
 * first choice is taken. With one, its entries take precedence, and every choice is noted with its
 * candidates: for tgc tune, which measures them, and tgc info --why. */
#ifndef TGC_TUNE_H
#define TGC_TUNE_H

#include "passes/passes.h"
#include "passes/target/target.h"

/* Position of the loop over panels: where the columns' range is, or first, or after the rows. */
enum panels { PANELS_THERE, PANELS_OUTSIDE, PANELS_INSIDE };

/* axis: in store->src, -1: none. vector 0: lanes stay loops of `columns` iterations. */
struct tile {
    int column_axis, row_axis;
    int64_t panel, columns, rows;
    int vector;
    enum panels panels;
    double gain;
};

/* Kinds in the order in which a compile decides them: keys depend on earlier choices. All but the
 * first are lists of opts. */
enum tune_kind {
    TUNE_WINOGRAD,
    TUNE_KEYS,
    TUNE_ROWS,
    TUNE_TILE,
    TUNE_GRID,
    TUNE_THREADS,
    TUNE_KIND_COUNT
};
enum { TUNE_OPTS_MAX = 256 };            /* of one line */

/* One line of a tune file, and one candidate of a choice. */
struct tuned {
    enum tune_kind kind;
    uint64_t key;
    enum isa isa;                /* TILE, THREADS */
    struct opts opts;            /* what is done to a nest: store 0 is its first */
    int winograd[2];             /* the sides of the tiles; 0: no tiles along that one */
    bool apart;                  /* WINOGRAD: one product for each tap instead */
    double us, model_us;  /* measured: of this, and of the cost model's choice; 0: not known */
    int line;
    bool used;
};

enum { TUNE_SIDES_MAX = 20 };
/* A choice that a compile has made: `taken` has its key, and the candidate taken. */
struct choice {
    struct tuned taken;
    const struct tuned *by;      /* the entry that decided; NULL: the cost model */
    struct tuned *candidate; int n;        /* best by the cost model first, but for WINOGRAD */
    struct tile *tile;           /* TILE: of each candidate; axes count from the first loop */
    int model;                   /* the candidate that the cost model takes */
    /* for store `nest` of the kernel; WINOGRAD: for the layer with this origin */
    struct kernel *kernel;
    int nest;
    const struct origin *origin;
    const char *title;           /* WINOGRAD: the layer's shape */
    double cost[TUNE_SIDES_MAX]; /* WINOGRAD: ns by the model, of each candidate */
    double share;                /* WINOGRAD: of the error that --error limits */
    bool refused;                /* WINOGRAD: the file's choice would exceed that limit */
};

struct tuning {
    const char *file;
    const char *machine;         /* the row over whose choices the entries gained; NULL: not said */
    struct tuned *entry; int nentry; size_t cap_entry;
    int width;                   /* most candidates that are noted for a choice */
    struct choice *choice; int nchoice; size_t cap_choice;
    /* what the choosers of a device's schedules compared, see compared.h; comparing: of the kernel
     * at hand, NULL: not recorded */
    bool compares;
    struct comparison *comparing, **compared; int ncompared; size_t cap_compared;
};

/* The first line of such a file. */
extern const char tune_head[];
/* The first word of a kind's lines; whether they say for which instruction set. */
const char *tune_kind_name(enum tune_kind kind);
bool tune_has_isa(enum tune_kind kind);
/* Reads a tune file's text into entries. Those that gained over another row's choices than this
 * compile's say nothing about these: there are none of them, and a warning. false: diagnostics name
 * file and line. */
bool tune_read(struct tgc *t, const char *file, const char *text, size_t nbytes,
               struct tuning *tuning);
/* Write a line of the file: "machine NAME", and an entry, without its remark. */
void tune_write_machine(struct text *out, const struct machine *m);
void tune_write(struct text *out, const struct tuned *e);
/* After a compile: reports entries for one of these instruction sets that matched nothing, as
 * errors. */
bool tune_check(struct tgc *t, const struct tuning *tuning, isa_set isa);

/* The entry for a choice, marked as used; NULL: the model decides. */
struct tuned *tune_find(struct tgc *t, enum tune_kind kind, uint64_t key, enum isa isa);
void tune_note(struct tgc *t, struct choice c);
/* Keys: of numbers; of a hash h and one number more. */
uint64_t tune_key_of_numbers(const int64_t *v, int n);
uint64_t tune_mix(uint64_t h, uint64_t v);
/* Reports that an entry does not fit; returns false. */
bool tune_misfit(struct tgc *t, const struct tuned *e, const char *what);
/* Whether they make the same choice of the same kind. */
bool tuned_are_equal(const struct tuned *a, const struct tuned *b);
bool tiles_are_equal(const struct tile *a, const struct tile *b);

#endif
