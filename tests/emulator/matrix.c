/* SPDX-License-Identifier: 0BSD */
/* matrix.c - what an instruction of ir/matrix.def does, by its row: every lane of the wave passes
 * the others what it holds of the two factors, and computes its own sums.
 *
 * All lanes of a whole wave must come here, at the same place of the code: item_wait() reports
 * those that do not.
 */
#include "emulator.h"

#include <math.h>
#include <string.h>

API void emulator_matrix(const char *row, void *sum, const void *a, const void *b);

static const unsigned nbytes_of[] = {2, 2, 4, 4, 1, 1, 4, 1, 1, 1, 1};
static const struct matrix_row rows[] = {
#define MATRIX(name, text, lanes, m, n, k, a, b, sum, of_a, of_b, of_sum) \
    {text, lanes, {m, n, k}, {a, b, sum}, {of_a, of_b, of_sum}},
#include "../../ir/matrix.def"
#undef MATRIX
};

enum { ROWS = sizeof rows / sizeof *rows };

/* Which bits of m, n, k a number of a lane or of an element sets; returns how many such
 * numbers the layout has. */
static int decode(const char *layout, bool is_element, int number, unsigned char at[3])
{
    int bit = 0;
    const char *end = strchr(layout, '|');
    const char *s = is_element ? end + 1 : layout;
    memset(at, 0, 3 * sizeof *at);
    for (; *s && (is_element || s < end); s++) {
        if (*s == ' ')
            continue;
        const int set = number >> bit++ & 1;
        if (*s != '-') {
            at[*s == 'm' ? 0 : *s == 'n' ? 1 : 2] |= (unsigned char)(set << (s[1] - '0'));
            s++;
        }
    }
    return 1 << bit;
}

const struct matrix_places *matrix_places(const struct matrix_row *r, enum matrix_part part)
{
    static struct matrix_places known[ROWS][PARTS]; /* decoded when they are needed first */
    struct matrix_places *p = &known[r - rows][part];
    if (p->n == 0) {
        for (uint32_t lane = 0; lane < r->lanes; lane++)
            (void)decode(r->layout[part], false, (int)lane, p->lane[lane]);
        p->n = decode(r->layout[part], true, 0, p->element[0]);
        for (int i = 1; i < p->n; i++)
            (void)decode(r->layout[part], true, i, p->element[i]);
    }
    return p;
}

int matrix_coordinate(const struct matrix_places *p, uint32_t lane, int element, int of)
{
    return p->lane[lane][of] | p->element[element][of];
}

static float half_of(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff);
    uint32_t bits = sign | ((rest << 13) + 0x38000000u);
    float v;
    if (rest >= 0x7c00)
        bits = sign | 0x7f800000u | (rest & 0x3ff) << 13;
    if (rest < 0x400) {
        v = (float)rest * 0x1p-24f;
        return sign ? -v : v;
    }
    memcpy(&v, &bits, sizeof v);
    return v;
}

static double power_of_two(int exponent)
{
    const uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* An 8-bit float with that many bits of mantissa: 2^-bias times the exponent. finite: no
 * infinities. nuz: also one NaN, in the place of -0. */
static double narrow_of(uint32_t bits, int mantissa, int bias, bool finite, bool nuz)
{
    const uint32_t rest = bits & 0x7f, exponent = rest >> mantissa,
                   steps = rest & ((1u << mantissa) - 1);
    const bool is_last = exponent == 0x7fu >> mantissa;
    double v = (double)(exponent ? steps + (1u << mantissa) : steps) *
               power_of_two((int)(exponent ? exponent : 1) - bias - mantissa);
    if (nuz ? bits == 0x80 : finite ? rest == 0x7f : is_last && steps)
        v = NAN;
    else if (!finite && is_last)
        v = INFINITY;
    return bits & 0x80 ? -v : v;
}

unsigned matrix_nbytes(enum matrix_type type) { return nbytes_of[type]; }

double matrix_number(enum matrix_type type, const void *from, int i)
{
    const unsigned char *at = (const unsigned char *)from + (size_t)i * nbytes_of[type];
    uint32_t bits = 0;
    float v;
    memcpy(&bits, at, nbytes_of[type]);
    switch (type) {
    case F16: return half_of((uint16_t)bits);
    case I8: return (int8_t)bits;
    case U8: return (uint8_t)bits;
    case I32: return (int32_t)bits;
    case F8E4M3FN: return narrow_of(bits, 3, 7, true, false);
    case F8E5M2: return narrow_of(bits, 2, 15, false, false);
    case F8E4M3FNUZ: return narrow_of(bits, 3, 8, true, true);
    case F8E5M2FNUZ: return narrow_of(bits, 2, 16, true, true);
    case BF16: bits <<= 16; break;
    case TF32: bits &= 0xffffe000; break;     /* the unit reads no more */
    default: break;
    }
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Gathers, from the elements that each lane has passed, the lines that the lane's own sums need.
 * side: the coordinate other than k. */
static void gather(const struct matrix_row *r, enum matrix_part part, const void *own,
                   const bool *needed, double *to)
{
    unsigned char of_lane[32];
    const struct matrix_places *p = matrix_places(r, part);
    const int side = part == B;
    const uint32_t nbytes = (uint32_t)p->n * nbytes_of[r->type[part]];
    emulator_give(own, nbytes);
    for (uint32_t lane = 0; lane < r->lanes; lane++) {
        bool is_taken = false;
        for (int i = 0; i < p->n; i++) {
            const int line = matrix_coordinate(p, lane, i, side);
            if (!needed[line])
                continue;
            if (!is_taken)
                emulator_take(of_lane, nbytes, lane);
            is_taken = true;
            to[line * r->size[2] + matrix_coordinate(p, lane, i, 2)] =
                matrix_number(r->type[part], of_lane, i);
        }
    }
}

void matrix_add(const struct matrix_row *r, void *sum, int i, const double *a, const double *b)
{
    float *f = (float *)sum + i;
    int32_t *whole = (int32_t *)sum + i;
    for (int k = 0; k < r->size[2]; k++)
        if (r->type[SUM] == F32)
            *f = (float)(*f + a[k] * b[k]);
        else
            *whole = (int32_t)((uint32_t)*whole + (uint32_t)(int32_t)(a[k] * b[k]));
}

/* A synchronous product, of fragments. */
static void multiply(const struct matrix_row *r, void *sum, const void *a, const void *b)
{
    enum { MOST = 32 };
    double left[MOST * MOST], right[MOST * MOST];
    bool needed[2][MOST] = {{0}};
    if (emulator_subgroup(0) != r->lanes) {
        if (item_is_first())
            report("%s: %s in a wave of %u work-items, not of %u, at %s",
                   launch_now()->kernel->signature.name, r->text, emulator_subgroup(0), r->lanes,
                   item_line());
        launch_abort();
    }
    const struct matrix_places *sums = matrix_places(r, SUM);
    const uint32_t lane = emulator_subgroup(2);
    for (int i = 0; i < sums->n; i++)
        for (int side = 0; side < 2; side++)
            needed[side][matrix_coordinate(sums, lane, i, side)] = true;
    gather(r, A, a, needed[0], left);
    gather(r, B, b, needed[1], right);
    for (int i = 0; i < sums->n; i++)
        matrix_add(r, sum, i, left + matrix_coordinate(sums, lane, i, 0) * r->size[2],
                   right + matrix_coordinate(sums, lane, i, 1) * r->size[2]);
}

void emulator_matrix(const char *what, void *sum, const void *a, const void *b)
{
    const struct matrix_row *r = NULL;
    for (size_t i = 0; i < ROWS && !r; i++)
        r = strcmp(rows[i].text, what) == 0 ? &rows[i] : NULL;
    if (r && strcmp(r->layout[B], "shared") != 0)
        multiply(r, sum, a, b);
    else
        products_do(what, r, sum, a, b);
}
