/* view.h - how movement ops read their source: views, trackers, and paths of such ops (view.c). A
 * part of ir.h, which includes it.
 */
#ifndef TGC_VIEW_H
#define TGC_VIEW_H

/* A view: logical coordinates -> offset, where strides[] and mask hold. A tracker: a stack of
 * views, view[n-1] the outermost. */
struct view {
    int ndim;
    struct uop *dim[MAX_RANK], *stride[MAX_RANK];
    struct uop *offset;
    /* valid where lo <= i < hi, if has_mask; NULL otherwise */
    struct uop *mask_lo[MAX_RANK], *mask_hi[MAX_RANK];
    bool has_mask;
    /* derived: strides proved row-major; the stride of an axis of size 1 does not matter */
    bool row_major;
};
/* The last element that a view reaches. needs: constant sizes, and strides that are not negative.
 * false: it is no such view, or there are more elements than can be counted. */
bool view_last_element(const struct view *v, int64_t *last);
/* Copies bytes [begin, begin + nbytes) of a weight in stored order; whole elements. needs:
 * storage's dimensions, strides and offset are constants. */
void view_copy_stored(const struct buffer *b, size_t begin, size_t nbytes, unsigned char *to);
/* A weight's bytes in stored order: b->data itself where storage is NULL, else packed into memory
 * that the caller frees through *packed (set to NULL otherwise). NULL: no memory. needs: storage's
 * dims and strides are constants. */
const void *view_stored_bytes(const struct buffer *b, void **packed);
/* Copies u's elements, row-major, if u is a weight seen through views without padding. `to` has
 * room for them. false: they must be computed. */
bool view_copy_weight(struct tgc *t, struct uop *u, void *to);
struct tracker { int nview; struct view *view; };
struct tracker *tracker_contiguous(struct tgc *t, struct uop *const *dim, int ndim);
/* The tracker after a movement op u (RESHAPE..WINDOW, not CONCAT) whose src[0] has tracker tr; NULL
 * for ops that are no views. A tracker knows where a PAD is, not its value: pads of different
 * values must not share one if the values are wanted. */
struct tracker *tracker_apply(struct tgc *t, const struct tracker *tr, const struct uop *u);
/* index[ndim] -> flat offset into the base and a bool validity (CONST true where always valid). */
void tracker_index(struct tgc *t, const struct tracker *tr, struct uop *const *index,
                   struct uop **offset, struct uop **valid);
/* one view, row-major, no mask, offset 0 */
bool tracker_is_contiguous(const struct tracker *tr);
/* contiguous but for an offset */
bool tracker_is_alias(const struct tracker *tr, struct uop **offset);

/* One movement op at one index: maps output coordinates of u to coordinates of its source k, and
 * the validity; what lowering, folding and tensor_element share. For CONCAT k picks the source.
 * src_index has room for MAX_RANK. */
void move_index(struct tgc *t, const struct uop *u, int k, struct uop *const *index,
                struct uop **src_index, struct uop **valid);
/* The ops that a walk from a value down to its base passes, always by src[0]. */
enum moves {
    MOVES_SPREAD = 1 << 0,  /* RESHAPE, PERMUTE, EXPAND: all elements, rearranged or repeated */
    MOVES_WALK = 1 << 1,         /* WINDOW, FLIP: strided, or reversed */
    MOVES_CUT = 1 << 2,          /* SHRINK: a part of them */
    MOVES_ZEROS = 1 << 3,        /* PAD with zeros */
    MOVES_PAD = 1 << 4,          /* PAD with any value */
    MOVES_CAST = 1 << 5,         /* CAST: no movement, but elements stay where they are */
    MOVES_PLACES = MOVES_SPREAD | MOVES_WALK,
    MOVES_VIEW = MOVES_PLACES | MOVES_CUT,            /* elements of the base alone, no padding */
    MOVES_ANY = MOVES_VIEW | MOVES_PAD,               /* every movement with one source */
    MOVES_OPERAND = MOVES_ANY | MOVES_CAST  /* down to a factor of a product, or to a buffer */
};
/* Whether v is an op of this set. */
bool move_is(const struct uop *v, unsigned moves);
/* The value under v's ops of this set; v itself if it has none. */
struct uop *value_behind(const struct uop *v, unsigned moves);
/* value_behind() that also maps at[MAX_RANK], v's coordinates, to the base's. needs: no padding is
 * passed, or the caller does not ask whether the element exists. */
struct uop *move_down(struct tgc *t, struct uop *v, unsigned moves, struct uop **at);
/* The ops on the way down, outermost first, at most PATH_MAX of them. */
enum { PATH_MAX = 24 };
struct path { struct uop *base, *move[PATH_MAX]; int n; };
struct path path_down(struct uop *v, unsigned moves);
/* Applies the path's ops to x, which has the base's shape; a PAD's value is cast to x's dtype. */
struct uop *path_up(struct tgc *t, const struct path *p, struct uop *x);

#endif
