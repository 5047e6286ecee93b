/* write.h - what the files that write a graph as .tg text share. */
#ifndef TGC_TEXT_WRITE_H
#define TGC_TEXT_WRITE_H

#include "frontend/text/reader.h"

enum owner { SHARED = -1, NEEDED_BY_NONE = -2 };

struct region { struct loop *loop; const struct uop *node; int depth; };

struct writer {
    struct tgc *t;
    const struct graph *g;
    const struct tg_write_options *o;
    struct text *out, *side;
    struct uop **order;
    int norder;
    struct region *loop;                 /* every LOOP of the graph */
    int nloop, nword;
    size_t cap_loop;
    uint64_t **free;                     /* by place in order: loops it depends on from inside */
    int *at;                             /* by uop id: place in order */
    int *home;                           /* by place in order: the innermost of them, -1: none */
    int *owner;                          /* by place in order: the entry that needs it,
                                          * or one of enum owner */
    int entry;                           /* that is being written; SHARED: what several need, and
                                          * graphs without */
    struct uop_map name;                 /* without '%' */
    struct dict taken;            /* names; to what is not NULL */
    int next_value, next_weight;
    struct uop_map declared;             /* symbols whose bounds were written */
    struct buffer **side_weight;
    const char **side_name;
    int nside, nside_name;
    size_t cap_side, cap_side_name;
    bool failed;
};

/* A symbol with its bounds: 1<=N<=8. */
void write_bounds(struct writer *w, const struct uop *symbol);

/* write_symbols.c: a line for each symbol that no type declares; with entries for all of inputs and
 * values, since entries share them. */
void write_symbols(struct writer *w);

#endif
