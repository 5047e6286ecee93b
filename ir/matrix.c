/* matrix.c - the rows of matrix.def: which lane of a subgroup holds which element of the matrices
 * that an instruction multiplies.
 *
 *      "k1 k2 m0 m1 m2 | k0 m3 k3"      lane 0b00101, element 0b010 of a:
 *        1  0  1  0  0 |  0  1  0       k1 = 1, m0 = 1, m3 = 1: row 9, column 2
 */
#include <string.h>

#include "ir/device_ops.h"

static const struct matrix_row rows[MATRIX_COUNT] = {
#define MATRIX(name, text, lanes, m, n, k, a, b, sum, of_a, of_b, of_sum)                          \
    {text, lanes, {m, n, k}, {DTYPE_##a, DTYPE_##b, DTYPE_##sum}, {of_a, of_b, of_sum}},
#include "ir/matrix.def"
#undef MATRIX
};

const struct matrix_row *matrix_row(enum matrix_unit of) { return &rows[of]; }

bool matrix_find(const char *text, enum matrix_unit *of)
{
    for (int i = 0; i < MATRIX_COUNT; i++)
        if (strcmp(rows[i].text, text) == 0) {
            *of = (enum matrix_unit)i;
            return true;
        }
    return false;
}

bool matrix_in_shared(const struct matrix_row *r, enum matrix_part part)
{
    return strcmp(r->layout[part], "shared") == 0;
}

int matrix_bits(const struct matrix_row *r, enum matrix_part part, bool of_lane,
                struct matrix_bit *bit)
{
    if (matrix_in_shared(r, part))
        return 0;
    const char *s = r->layout[part], *bar = strchr(s, '|');
    int n = 0;
    for (s = of_lane ? s : bar + 1; *s && *s != '|'; s++)
        if (*s != ' ') {
            bit[n++] = *s == '-' ? (struct matrix_bit){MATRIX_NONE, 0}
                                 : (struct matrix_bit){*s == 'm'   ? MATRIX_M
                                                       : *s == 'n' ? MATRIX_N
                                                                   : MATRIX_K,
                                                       s[1] - '0'};
            s += *s != '-';
        }
    return n;
}

int matrix_elements(const struct matrix_row *r, enum matrix_part part)
{
    struct matrix_bit bit[MATRIX_BITS_MAX];
    return matrix_in_shared(r, part) ? 0 : 1 << matrix_bits(r, part, false, bit);
}

int matrix_words(const struct matrix_row *r, enum matrix_part part)
{
    enum { WORD = 32 };
    return matrix_elements(r, part) * dtype_bits(r->dtype[part]) / WORD;
}

void matrix_place(const struct matrix_row *r, enum matrix_part part, int lane, int element,
                  int at[MATRIX_NONE + 1])
{
    struct matrix_bit bit[MATRIX_BITS_MAX];
    memset(at, 0, (MATRIX_NONE + 1) * sizeof *at);
    for (int of_lane = 0; of_lane < 2; of_lane++)
        for (int i = 0, n = matrix_bits(r, part, of_lane, bit); i < n; i++)
            at[bit[i].of] |= ((of_lane ? lane : element) >> i & 1) << bit[i].bit;
}

int matrix_own_element(const struct matrix_row *r, enum matrix_part part, int element)
{
    struct matrix_bit bit[MATRIX_BITS_MAX];
    int n = matrix_bits(r, part, false, bit), at = 0, to = 0;
    for (int of_row = 0; of_row < 2; of_row++)
        for (int b = 0; b < MATRIX_BITS_MAX; b++)
            for (int i = 0; i < n; i++)
                if ((bit[i].of != MATRIX_K) == of_row && bit[i].bit == b)
                    at |= (element >> i & 1) << to++;
    return at;
}

const struct uop *matrix_of_tile(struct uop *const *linear, int n, const struct uop *tile,
                                 int *factor)
{
    const struct uop *kept = tile;
    for (int i = 0; i < n; i++) {
        if (linear[i]->op == OP_ASSIGN && linear[i]->src[1] == tile)
            kept = linear[i]->src[0];
        for (*factor = 0; linear[i]->op == OP_MATRIX && *factor < 2; ++*factor)
            if (linear[i]->src[1 + *factor] == tile || linear[i]->src[1 + *factor] == kept)
                return linear[i];
    }
    return NULL;
}

const struct uop *matrix_kept_tile(struct uop *const *linear, int n, const struct uop *acc)
{
    for (int i = 0; i < n && acc->op == OP_ACC && acc->lanes > 1; i++)
        if (linear[i]->op == OP_ASSIGN && linear[i]->src[0] == acc &&
            linear[i]->src[1]->op == OP_LOAD && TILE_IS(linear[i]->src[1]->arg.i))
            return linear[i]->src[1];
    return NULL;
}
