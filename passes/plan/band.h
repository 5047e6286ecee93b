/* band.h - private to band.c and band_cost.c: layers that may become one kernel. */
#ifndef TGC_BAND_H
#define TGC_BAND_H

#include "passes/plan/plan.h"

enum { MEMBERS_MAX = 6 };

/* A segment, and which part of its value one band is. */
struct member {
    struct segment *s;
    struct node *node;           /* whose buffer becomes scratch; NULL: the last segment's stays */
    struct band part[BANDS_MAX];
    struct kept kept[BANDS_MAX]; /* of the node */
};

struct group { int nband; double nbands; struct member member[MEMBERS_MAX]; int n; };

/* chooses: axes of its value whose coordinate decides what is computed. columns: those that its
 * weights know, too, a tile's columns. repeats: those along which some sum stays the same. */
struct work {
    bool known;
    bool rewritten; /* it reads a tensor of its own layer: a rewrite made them of one */
    double flop, weights, reads;
    uint32_t chooses, columns, repeats;
    const struct buffer **buffer; int nbuffer;   /* of the arena, that it touches */
};

/* When a buffer of the arena is made and read for the last time: positions. */
struct life { int begin, end; };

struct banding {
    struct plan *p;
    struct node **candidate; int ncandidate; size_t cap;         /* by position */
    struct segment **producer;   /* of each candidate */
    size_t cap_producer;
    struct work *work;           /* by segment */
    bool tried;                  /* something was lowered */
    double budget;               /* cycles that may be lost for the room, beside each group's own */
    double room; /* 0: bands have to save time; else to need no more bytes than that */
    bool partly;                 /* or fewer than `most`, which are alive otherwise */
    double most;
    bool plain;                  /* none of its layers is rewritten: less time may be lost */
    struct life *life; size_t nlife, cap_life;   /* by buffer id */
    const struct segment *sink;  /* what is looked at */
    const struct node *replaced; /* an input whose place its result may take, or NULL */
    struct segment *beside[MEMBERS_MAX]; int nbeside;    /* others that fill the same buffer then */
    double *alive; int nalive;   /* by position: bytes made before and read behind it */
};

/* ---------------------------------------------------------------------------------- band_cost.c */

const struct work *band_work(struct banding *w, struct segment *s);
/* Bytes that a segment reads of a buffer, if it is one of the plan's: of the largest of the tensors
 * in it. */
double band_read_by(const struct plan *p, const struct segment *s, const struct buffer *b);
/* Whether the coordinate along axis a of a segment's value decides what is computed. */
bool band_chooses(struct banding *w, struct segment *s, int a);
/* Whether some sum would be computed anew in each band along axis a. */
bool band_repeats(struct banding *w, struct segment *s, int a);
/* Whether bands along axis a would leave a layer few columns. */
bool band_is_column(struct banding *w, struct segment *s, int a);
/* What lies behind one another in memory: the axes of the stored value, outermost first. */
int band_stored_axes(const struct buffer *b, int *axis);
/* The axis of v's buffer that is v's axis a: a reduction's buffer does without what it leaves. */
int band_stored_axis(const struct uop *v, int a);
/* The axis of a segment's value that lies innermost in memory: vectors run along it. */
int band_innermost(const struct segment *s);
bool node_is_read_by(const struct node *n, const struct segment *s);
void band_find_rewritten(struct banding *w);
/* What the group knows of a segment; NULL: it is none of its own. */
const struct member *group_member(const struct group *g, const struct segment *s);
/* What is alive at each position, as the plan stands. */
void band_find_alive(struct banding *w);
/* What of the model there is beside the last segment of groups to be. */
void band_find_sink(struct banding *w, struct segment *s);
/* The most that is alive while a group runs, or where one of its rewritten layers is made of which
 * it reads a part. group_leaves_excess(): whether that is more than there is room, by such
 * layers. */
double group_most(struct banding *w, const struct group *g);
bool group_leaves_excess(struct banding *w, const struct group *g, double room);
/* Whether more is alive while a group runs than there is room. */
bool group_exceeds(struct banding *w, const struct group *g, double room);
/* Scratch for one band. */
double group_scratch(const struct group *g);
bool group_is_too_large(struct banding *w, const struct group *g);
void band_find_budget(struct banding *w);
/* Takes from the budget what a group loses that was made to keep to the room. */
void group_spend(struct banding *w, const struct group *g);
/* Cycles saved by a group; 0 or less: leave it. */
double group_gain(struct banding *w, const struct group *g);

#endif
