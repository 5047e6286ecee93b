/* SPDX-License-Identifier: 0BSD */
/* nms.c - non-maximum suppression: boxes by falling score, each kept unless it overlaps one that
 * was kept before it. source: ONNX NonMaxSuppression
 */
#include <stdbool.h>
#include <stdint.h>

enum { MODEL_OK, MODEL_DIM_OUT_OF_RANGE = 6, MODEL_TOO_MANY_RESULTS = 9 };

//@ nms
/* Whether two boxes overlap by more than the threshold: corners in any order, or center and
 * size. */
static bool nms_overlap(const float *a, const float *b, int64_t center, float threshold)
{
    float lo[2][2], hi[2][2]; /* [box][axis] */
    for (int k = 0; k < 2; k++) {
        const float *box = k ? b : a;
        for (int i = 0; i < 2; i++) {
            float p = center ? box[i] - box[2 + i] / 2.0f : box[i],
                  q = center ? box[i] + box[2 + i] / 2.0f : box[2 + i];
            lo[k][i] = p < q ? p : q;
            hi[k][i] = p < q ? q : p;
        }
    }
    float common = 1, area[2];
    for (int i = 0; i < 2; i++) {
        float from = lo[0][i] > lo[1][i] ? lo[0][i] : lo[1][i],
              to = hi[0][i] < hi[1][i] ? hi[0][i] : hi[1][i];
        if (!(to > from))
            return false;
        common *= to - from;
    }
    for (int k = 0; k < 2; k++)
        area[k] = (hi[k][0] - lo[k][0]) * (hi[k][1] - lo[k][1]);
    return common / (area[0] + area[1] - common) > threshold;
}

static bool nms_before(const float *score, int64_t a, int64_t b)
{
    return score[a] > score[b] || (score[a] == score[b] && a < b);
}

/* Heapsort of order[n] by falling score. */
static void nms_sort(const float *score, int64_t *order, int64_t n)
{
    for (int64_t start = n / 2, end = n; end > 1;) {
        int64_t moved, hole;
        if (start > 0) {
            moved = order[hole = --start];
        } else {
            moved = order[--end];
            order[end] = order[0];
            hole = 0;
        }
        for (int64_t child; (child = 2 * hole + 1) < end; hole = child) {
            if (child + 1 < end && nms_before(score, order[child], order[child + 1]))
                child++;
            if (!nms_before(score, moved, order[child]))
                break;
            order[hole] = order[child];
        }
        order[hole] = moved;
    }
}

/* boxes[batch][nbox][4], scores[batch][nclass][nbox] -> selected [count][3]: batch, class, box;
 * order [nbox] is room to work. */
static int nms(const float *boxes, const float *scores, const int64_t *most_a_class,
               const float *iou_threshold, const float *score_threshold, int64_t *selected,
               int64_t *order, int64_t nbatch, int64_t nclass, int64_t nbox, int64_t center,
               int64_t least, int64_t most, int64_t *count)
{
    *count = 0;
    for (int64_t c = 0; c < nbatch * nclass && *most_a_class > 0; c++) {
        const float *score = scores + c * nbox, *box = boxes + c / nclass * nbox * 4;
        int64_t n = 0, begin = *count;
        for (int64_t i = 0; i < nbox; i++)
            if (score[i] > *score_threshold)
                order[n++] = i;
        nms_sort(score, order, n);
        for (int64_t i = 0; i < n && *count - begin < *most_a_class; i++) {
            bool keep = true;
            for (int64_t k = begin; k < *count && keep; k++)
                keep = !nms_overlap(box + order[i] * 4, box + selected[k * 3 + 2] * 4, center,
                                    *iou_threshold);
            if (!keep)
                continue;
            if (*count == most)
                return MODEL_TOO_MANY_RESULTS;
            selected[*count * 3] = c / nclass;
            selected[*count * 3 + 1] = c % nclass;
            selected[(*count)++ * 3 + 2] = order[i];
        }
    }
    return *count < least ? MODEL_DIM_OUT_OF_RANGE : MODEL_OK;
}
