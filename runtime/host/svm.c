/* SPDX-License-Identifier: 0BSD */
/* svm.c - support vector classification from the kernel's values: one decision for each pair of
 * classes, their votes, and the probabilities that agree with the pairs best.
 *
 * Probabilities: Wu, Lin, Weng, Probability estimates for multi-class classification by pairwise
 * coupling (2004), second method.
 */
#include <math.h>
#include <stdint.h>

static float exp_f32(float x) { return expf(x); }

//@ svm_decide
/* kernel[rows][vectors], coefficient[classes - 1][vectors], first[classes + 1]: where each class's
 * vectors begin -> score[rows][pairs], winner[rows]: the class with the most votes. */
static int svm_decide(const float *kernel, const float *coefficient, const int64_t *first,
                      const float *rho, float *score, int64_t *winner, int64_t *votes, int64_t rows,
                      int64_t vectors, int64_t classes)
{
    for (int64_t r = 0; r < rows; r++, kernel += vectors) {
        for (int64_t c = 0; c < classes; c++)
            votes[c] = 0;
        for (int64_t i = 0, pair = 0; i < classes; i++)
            for (int64_t j = i + 1; j < classes; j++, pair++, score++) {
                double sum = (double)rho[pair];
                for (int64_t k = first[i]; k < first[i + 1]; k++)
                    sum += (double)coefficient[(j - 1) * vectors + k] * (double)kernel[k];
                for (int64_t k = first[j]; k < first[j + 1]; k++)
                    sum += (double)coefficient[i * vectors + k] * (double)kernel[k];
                *score = (float)sum;
                votes[sum > 0 ? i : j]++;
            }
        winner[r] = 0;
        for (int64_t c = 1; c < classes; c++)
            winner[r] = votes[c] > votes[winner[r]] ? c : winner[r];
    }
    return 0;
}

//@ svm_couple
/* p[classes][classes], p[i][j] the probability of i against j -> estimate[classes]. q and qp are
 * room. */
static void svm_couple(const float *p, float *estimate, float *q, float *qp, int64_t classes)
{
    for (int64_t i = 0; i < classes; i++) {
        estimate[i] = 1.0f / (float)classes;
        q[i * classes + i] = 0;
        for (int64_t j = 0; j < classes; j++)
            if (j != i) {
                q[i * classes + i] += p[j * classes + i] * p[j * classes + i];
                q[i * classes + j] = -p[j * classes + i] * p[i * classes + j];
            }
    }
    for (int round = 0; round < 100; round++) {
        float square = 0, worst = 0;
        for (int64_t i = 0; i < classes; i++) {
            qp[i] = 0;
            for (int64_t j = 0; j < classes; j++)
                qp[i] += q[i * classes + j] * estimate[j];
            square += estimate[i] * qp[i];
        }
        for (int64_t i = 0; i < classes; i++)
            worst = fabsf(qp[i] - square) > worst ? fabsf(qp[i] - square) : worst;
        if (worst < 0.005f / (float)classes)
            break;
        for (int64_t i = 0; i < classes; i++) {
            float own = q[i * classes + i], step = (square - qp[i]) / own;
            estimate[i] += step;
            square = (square + step * (step * own + 2 * qp[i])) / (1 + step) / (1 + step);
            for (int64_t j = 0; j < classes; j++) {
                qp[j] = (qp[j] + step * q[i * classes + j]) / (1 + step);
                estimate[j] /= 1 + step;
            }
        }
    }
}

//@ svm_probability svm_couple exp_f32
/* score[rows][pairs] -> y[rows][classes], by the pairs' sigmoids of a * score + b. room: 2
 * classes^2
 * + classes. */
static int svm_probability(const float *score, const float *a, const float *b, float *y,
                           float *room, int64_t rows, int64_t classes)
{
    float *p = room, *q = room + classes * classes, *qp = q + classes * classes;
    for (int64_t r = 0; r < rows; r++, y += classes) {
        for (int64_t i = 0, pair = 0; i < classes; i++)
            for (int64_t j = i + 1; j < classes; j++, pair++, score++) {
                float v = 1 / (1 + exp_f32(a[pair] * *score + b[pair]));
                v = v < 1e-7f ? 1e-7f : v > 1 - 1e-7f ? 1 - 1e-7f : v;
                p[i * classes + j] = v;
                p[j * classes + i] = 1 - v;
            }
        svm_couple(p, y, q, qp, classes);
    }
    return 0;
}
