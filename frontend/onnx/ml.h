/* ml.h - what the lowering of ai.onnx.ml shares: lists of attributes, class labels, transforms of
 * scores. */
#ifndef TGC_ONNX_ML_H
#define TGC_ONNX_ML_H

#include "frontend/onnx/lower.h"

/* ----------------------------------------------------------------------------------- lower_ml.c */

/* A list of an attribute, 8 bytes an element: int64_t, double or const char *. */
struct ml_list { enum dtype dtype; void *data; int64_t count; };
/* The first that is there of NAME_strings, NAME_int64s, NAME_floats and NAME_tensor; the list's
 * dtype is VOID if none is. false: reported. */
bool ml_list(const struct node *n, const char *name, struct ml_list *list);
/* Numbers of attribute `floats`, or else of the tensor `tensor`; count 0 if neither is there. */
bool ml_numbers(const struct node *n, const char *floats, const char *tensor, struct ml_list *list);
/* The list as a weight of rank 1; numbers as dtype d. */
struct uop *ml_weight(const struct node *n, enum dtype d, const struct ml_list *list);
struct uop *ml_ints(const struct node *n, enum dtype d, const int64_t *v, int64_t count);
/* Numbers of [n, f], or of [f] as one row, in dtype d; NULL: reported. */
struct uop *ml_rows(const struct node *n, int k, enum dtype d);

enum ml_transform { ML_NONE, ML_SOFTMAX, ML_LOGISTIC, ML_SOFTMAX_ZERO, ML_PROBIT };
bool ml_post_transform(const struct node *n, enum ml_transform *t);
/* Scores [n, e] to outputs. */
struct uop *ml_transformed(const struct node *n, struct uop *score, enum ml_transform t);
/* One score of the positive class [n, 1] to those of both. positive: it is a probability, the other
 * one's is 1 - score; else -score. */
struct uop *ml_both_classes(const struct node *n, struct uop *score, bool positive,
                            enum ml_transform t);
/* Class numbers [n] to labels, of attributes `ints` or `strings`. */
struct uop *ml_labels(const struct node *n, struct uop *number, const char *ints,
                      const char *strings);
/* How many labels there are. */
int64_t ml_label_count(const struct node *n, const char *ints, const char *strings);

#endif
