/* band.h - private to band.c and band_cost.c: layers that may become one kernel. */
#ifndef TGC_BAND_H
#define TGC_BAND_H

#include "passes/plan/plan.h"

enum { MEMBERS_MAX = 6 };

/* A segment, and the part of its value that one band computes. */
struct member {
    struct segment *s;
    /* the node whose buffer becomes scratch; NULL: the last segment, which keeps its buffer */
    struct node *node;
    struct band part[BANDS_MAX];
    struct kept kept[BANDS_MAX]; /* of the node */
};

struct group { int nband; double nbands; struct member member[MEMBERS_MAX]; int n; };

/* chooses: axes of the value on which a comparison depends, so their coordinate decides what is
 * computed. columns: axes on which its weights depend. repeats: axes along which some sum is
 * invariant. */
struct work {
    bool known;
    bool rewritten; /* it reads a tensor of the same layer: a rewrite split the layer in two */
    double flop, weights, reads;
    uint32_t chooses, columns, repeats;
    const struct buffer **buffer; int nbuffer;   /* buffers in the arena that it accesses */
};

/* Live range of a buffer in the arena, as positions. */
struct life { int begin, end; };

struct banding {
    struct plan *p;
    struct segment **producer;   /* by node: what fills a candidate's buffer; NULL: it is none */
    struct work *work;           /* by segment */
    /* cycles that all groups together may lose to save memory, beyond each group's own share */
    double budget;
    double room; /* 0: bands have to save time; else bytes that a group may need */
    bool partly;  /* also accept groups that need fewer bytes than `most`, the need without them */
    double most;
    bool plain;                  /* no member is a rewritten layer: less time may be lost */
    struct life *life; size_t nlife, cap_life;   /* by buffer id */
    const struct segment *sink;  /* the segment at which a group would end */
    const struct node *replaced; /* an input whose place its result may take, or NULL */
    /* other segments that fill the same buffer at the same time */
    struct segment *beside[MEMBERS_MAX]; int nbeside;
    double *alive; int nalive;   /* by position: bytes written before and read after it */
};

/* ---------------------------------------------------------------------------------- band_cost.c */

const struct work *band_work(struct banding *w, struct segment *s);
/* Bytes that a segment reads of a buffer that the plan knows: of the largest of the tensors in
 * it. */
double band_read_by(const struct segment *s, const struct buffer *b);
/* Whether the coordinate along axis a of a segment's value decides what is computed. */
bool band_chooses(struct banding *w, struct segment *s, int a);
/* Whether bands along axis a would recompute some sum in each band. */
bool band_repeats(struct banding *w, struct segment *s, int a);
/* Whether bands along axis a would leave a layer few columns. */
bool band_is_column(struct banding *w, struct segment *s, int a);
/* The axes of the stored value in memory, outermost first; returns their number. */
int band_stored_axes(const struct buffer *b, int *axis);
/* The axis of v's buffer that is v's axis a: a reduction's buffer lacks the reduced axes. */
int band_stored_axis(const struct uop *v, int a);
/* The axis of a segment's value that is innermost in memory: vectors run along it. */
int band_innermost(const struct segment *s);
/* The segment that fills the node's buffer, if bands may keep it; else NULL. */
struct segment *band_producer(const struct banding *w, const struct node *n);
void band_find_rewritten(struct banding *w);
/* The group's member for a segment; NULL: it is not in the group. */
const struct member *group_member(const struct group *g, const struct segment *s);
/* Finds what is live at each position of the present plan. */
void band_find_alive(struct banding *w);
/* Finds the input of segment s whose buffer its output may reuse, and the segments that are
 * scheduled together with s, for groups whose last segment is s. */
void band_find_sink(struct banding *w, struct segment *s);
/* The largest live set while a group runs, or while a rewritten layer runs of which the group reads
 * a part. group_leaves_excess(): whether such layers exceed the room. */
double group_most(struct banding *w, const struct group *g);
bool group_leaves_excess(struct banding *w, const struct group *g, double room);
/* Whether the live set while a group runs exceeds the room. */
bool group_exceeds(struct banding *w, const struct group *g, double room);
/* Scratch for one band. */
double group_scratch(const struct group *g);
bool group_is_too_large(struct banding *w, const struct group *g);
void band_find_budget(struct banding *w);
/* Takes the time that a group loses in order to save memory from the budget. */
void group_spend(struct banding *w, const struct group *g);
/* The time that a group saves; 0 or less: do not make it. */
double group_gain(struct banding *w, const struct group *g);

#endif
