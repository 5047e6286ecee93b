/* gradient.h - private to the library: reverse mode, one context for each region of the graph.
 *
 * A context is a graph between its anchors and its roots: all of it between the variables and the
 * result, the body of a LOOP, or a side of an IF. gradient_run() goes through it from its roots to
 * its anchors; the files below have the rules, which give each source its part.
 */
#ifndef TGC_GRADIENT_H
#define TGC_GRADIENT_H

#include "frontend/library.h"

struct gradient {
    const struct lib *l;
    struct tgc *t;
    struct uop_map adjoint;              /* of a uop: the sum of what its consumers gave so far */
    struct uop_map depends;              /* uops that depend on an anchor */
    struct uop_map stop;                 /* the anchors: nothing is propagated further */
    struct uop *const *order, *const *root;          /* all of the context, sources first */
    int norder, nroot;
    struct uop_map axes;                 /* gradient_axes_of(): 2 * mask + 1 */
    const struct uop *at;                /* the uop that has no derivative, and what to say of it */
    const char *why, *cure;
};

/* ------------------------------------------------------------------------- library_gradient.c */
struct uop *gradient_full_like(const struct gradient *g, const struct uop *x, double v);
/* A sum in the dtype that sums have. */
struct uop *gradient_sum(const struct gradient *g, struct uop *x, uint32_t axes, bool keep);
/* Adds d to x's adjoint; if x is a scalar next to tensors, the sum of d. d NULL: nothing. */
void gradient_give(struct gradient *g, struct uop *x, struct uop *d);
/* Whether the adjoint of x is wanted. */
bool gradient_wants(const struct gradient *g, const struct uop *x);
/* Notes why there is no derivative, and what to do; false. */
bool gradient_refuse(struct gradient *g, const char *why, const char *cure);
/* Marks what depends on the marked ones and the anchors of g, and carries a derivative. */
void gradient_mark(struct gradient *g);
/* From adjoints of the roots to those of the anchors. false: refused. */
bool gradient_run(struct gradient *g);

/* Each gives d, the adjoint of u, to u's sources. false: refused, or (why NULL) no rule. */
/* ---------------------------------------------------------------------------- gradient_move.c */
bool gradient_moved(struct gradient *g, const struct uop *u, struct uop *d);
/* The axes on whose coordinates x's elements may depend. */
uint32_t gradient_axes_of(struct gradient *g, struct uop *x);
/* A value as a sum of products, over the last `nsum` axes: those of a REDUCE below reshapes and
 * permutations, which become the factors'. b NULL: a alone. */
struct gradient_sum { struct uop *a, *b; int nsum; };
struct gradient_sum gradient_sum_of(const struct gradient *g, struct uop *d);
/* --------------------------------------------------------------------- gradient_elementwise.c */
bool gradient_elementwise(struct gradient *g, struct uop *u, struct uop *d);
bool gradient_reduced(struct gradient *g, struct uop *u, struct uop *d);
/* --------------------------------------------------------------------------- gradient_index.c */
bool gradient_indexed(struct gradient *g, struct uop *u, struct uop *d);
/* A GET of a HOST that only selects. */
bool gradient_selected(struct gradient *g, const struct uop *u, struct uop *d);
/* ------------------------------------------------------------------------ gradient_control.c */
/* A context within g's. */
struct gradient gradient_inner(const struct gradient *g);
/* Refuses as the inner context did; false. */
bool gradient_refuse_as(struct gradient *g, const struct gradient *inner);
/* The adjoint of result k, of dtype d, of an IF or a LOOP; NULL: none. */
struct uop *gradient_of_result(const struct gradient *g, struct uop *node, int k, enum dtype d);
bool gradient_branch(struct gradient *g, struct uop *u);
/* A loop like `from` with nscan stacked results; `by` gets its counter and carried values. */
struct loop *gradient_copy_loop(struct tgc *t, const struct loop *from, int nscan,
                                struct uop_map *by);
/* --------------------------------------------------------------------------- gradient_loop.c */
bool gradient_loop(struct gradient *g, struct uop *u);

#endif
