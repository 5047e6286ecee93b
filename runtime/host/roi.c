/* SPDX-License-Identifier: 0BSD */
/* roi.c - regions of feature maps in boxes of one size: RoiAlign, where the size of a region says
 * how many samples are taken of it, and MaxRoiPool. A region that is no number, or so large that it
 * would have more than 2^16 samples along a side of a box, is a status; so is an image that there
 * is not. source: He et al., Mask R-CNN, 2017; Girshick, Fast R-CNN, 2015
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum { MODEL_OK, MODEL_BAD_VALUE = 10 };
typedef float T;

//@for f32:float f64:double
//@ roi_align_T
/* The plane between its points: the sum of the four around (p[0], p[1]), or the largest weighted
 * one. 0 outside. */
static T roi_sample_T(const T *plane, const int64_t size[2], const T p[2], int64_t largest)
{
    int64_t at[2][2]; /* [axis][before, after] */
    T w[2][2], result = 0;
    for (int a = 0; a < 2; a++) {
        T v = p[a];
        if (!size[a] || v < (T)-1 || v > (T)size[a])
            return 0;
        v = v < 0 ? 0 : v;
        at[a][0] = (int64_t)v < size[a] - 1 ? (int64_t)v : size[a] - 1;
        at[a][1] = at[a][0] < size[a] - 1 ? at[a][0] + 1 : at[a][0];
        w[a][1] = at[a][0] < size[a] - 1 ? v - (T)at[a][0] : 0;
        w[a][0] = 1 - w[a][1];
    }
    for (int y = 0; y < 2; y++)
        for (int x = 0; x < 2; x++) {
            T part = w[0][y] * w[1][x] * plane[at[0][y] * size[1] + at[1][x]];
            if (!largest)
                result += part;
            else if ((y == 0 && x == 0) || part > result)
                result = part;
        }
    return result;
}

/* The point of sample k along an axis; points ascend. */
static T roi_point_T(T corner, T part, int64_t k) { return corner + ((T)k + (T)0.5) * part; }

/* How many of `count` samples lie before an image's pixels, and how many do or lie in it. */
static void roi_inside_T(T corner, T part, int64_t count, int64_t size, int64_t *first,
                         int64_t *end)
{
    *first = 0;
    *end = count;
    if (!count || (roi_point_T(corner, part, 0) >= (T)-1 &&
                   roi_point_T(corner, part, count - 1) <= (T)size))
        return;
    for (int64_t hi = count; *first < hi;) {
        int64_t middle = *first + (hi - *first) / 2;
        if (roi_point_T(corner, part, middle) >= (T)-1)
            hi = middle;
        else
            *first = middle + 1;
    }
    for (int64_t lo = *first; lo < *end;) {
        int64_t middle = lo + (*end - lo) / 2;
        if (roi_point_T(corner, part, middle) > (T)size)
            *end = middle;
        else
            lo = middle + 1;
    }
}

/* x [images][channels][height][width], rois [count][4] as x1 y1 x2 y2, image [count] ->
 * y [count][channels][oh][ow]: the mean or the largest of the samples of each box. half: points lie
 * in the middle of their pixels; otherwise a region is 1 wide at least. */
static int roi_align_T(const T *x, const T *rois, const int64_t *image, const T *scale, T *y,
                       int64_t images, int64_t channels, int64_t height, int64_t width,
                       int64_t count, int64_t oh, int64_t ow, int64_t half, int64_t largest)
{
    const int64_t size[2] = {height, width}, out[2] = {oh, ow};
    for (int64_t r = 0; r < count; r++) {
        T start[2], step[2], part[2];
        int64_t samples[2];
        if (image[r] < 0 || image[r] >= images)
            return MODEL_BAD_VALUE;
        for (int a = 0; a < 2; a++) {
            T shift = half ? (T)0.5 : 0, lo = rois[4 * r + 1 - a] * *scale - shift,
              extent = rois[4 * r + 3 - a] * *scale - shift - lo;
            extent = !half && extent < 1 ? 1 : extent;
            start[a] = lo;
            step[a] = extent / (T)out[a];
            if (!(step[a] <= 65536) || !(step[a] >= -65536) || !(lo - lo == 0))
                return MODEL_BAD_VALUE;
            samples[a] = step[a] > 0 ? (int64_t)step[a] : 0;
            samples[a] += (T)samples[a] < step[a];
            part[a] = samples[a] ? step[a] / (T)samples[a] : 0;
        }
        for (int64_t i = 0; i < channels * oh * ow; i++) {
            const T *plane = x + (image[r] * channels + i / (oh * ow)) * height * width;
            const int64_t box[2] = {i / ow % oh, i % ow};
            int64_t first[2], end[2];
            T sum = 0, corner[2];
            for (int a = 0; a < 2; a++) { /* those inside of the image: others are 0 */
                corner[a] = start[a] + (T)box[a] * step[a];
                roi_inside_T(corner[a], part[a], samples[a], size[a], &first[a], &end[a]);
            }
            bool outside = first[0] + first[1] > 0, some = outside;
            outside |= end[0] < samples[0] || end[1] < samples[1];
            for (int64_t v = first[0]; v < end[0]; v++)
                for (int64_t u = first[1]; u < end[1]; u++) {
                    const T p[2] = {roi_point_T(corner[0], part[0], v),
                                    roi_point_T(corner[1], part[1], u)};
                    T sample = roi_sample_T(plane, size, p, largest);
                    if (!largest)
                        sum += sample;
                    else if (!some || sample > sum)
                        sum = sample;
                    some = true;
                }
            if (largest && outside && 0 > sum)
                sum = 0;
            if (!largest && samples[0] * samples[1] > 0)
                sum /= (T)(samples[0] * samples[1]);
            y[r * channels * oh * ow + i] = sum;
        }
    }
    return MODEL_OK;
}

//@ roi_max_T
/* x [images][channels][height][width], rois [count][5] as image x1 y1 x2 y2 ->
 * y [count][channels][oh][ow]: the largest of the pixels that each box touches, 0 where there is
 * none. Corners are rounded to pixels, half away from zero; a region is 1 wide at least. */
static int roi_max_T(const T *x, const T *rois, const T *scale, T *y, int64_t images,
                     int64_t channels, int64_t height, int64_t width, int64_t count, int64_t oh,
                     int64_t ow)
{
    const int64_t size[2] = {height, width}, out[2] = {oh, ow};
    for (int64_t r = 0; r < count; r++) {
        const T *roi = rois + 5 * r;
        int64_t start[2], extent[2];
        if (!(roi[0] >= 0) || !(roi[0] < (T)images))
            return MODEL_BAD_VALUE;
        for (int a = 0; a < 2; a++) {
            int64_t corner[2];
            for (int k = 0; k < 2; k++) {
                T v = roi[2 - a + 2 * k] * *scale;
                if (!(v > -1e9f) || !(v < 1e9f))
                    return MODEL_BAD_VALUE;
                corner[k] = v < 0 ? -(int64_t)((T)0.5 - v) : (int64_t)(v + (T)0.5);
            }
            start[a] = corner[0];
            extent[a] = corner[1] - corner[0] < 0 ? 1 : corner[1] - corner[0] + 1;
        }
        for (int64_t i = 0; i < channels * oh * ow; i++) {
            const T *plane = x + ((int64_t)roi[0] * channels + i / (oh * ow)) * height * width;
            const int64_t at[2] = {i / ow % oh, i % ow};
            int64_t lo[2], hi[2];
            for (int a = 0; a < 2; a++) {
                lo[a] = start[a] + at[a] * extent[a] / out[a];
                hi[a] = start[a] + ((at[a] + 1) * extent[a] + out[a] - 1) / out[a];
                lo[a] = lo[a] < 0 ? 0 : lo[a];
                hi[a] = hi[a] > size[a] ? size[a] : hi[a];
            }
            T best = 0;
            for (int64_t v = lo[0]; v < hi[0]; v++)
                for (int64_t u = lo[1]; u < hi[1]; u++)
                    if ((v == lo[0] && u == lo[1]) || plane[v * width + u] > best)
                        best = plane[v * width + u];
            y[r * channels * oh * ow + i] = best;
        }
    }
    return MODEL_OK;
}
