/* banks.c - bank conflicts in shared memory. It has 32 banks of four-byte words, each of which
 * delivers one word at a time. Accesses to different words of one bank are serialized.
 *
 * Lanes are served together up to 128 bytes: 32 lanes of a word, 8 lanes of 16 bytes; eight rows of
 * a tile. */
#include "passes/analysis/banks.h"

enum { BANKS = 32, WORD_NBYTES = 4, LINE_NBYTES = BANKS * WORD_NBYTES, LANES_MAX = 64 };

/* Serialized accesses beyond the first, for n lanes of `nbytes` each at these byte offsets. */
static int conflicts(const int64_t *at, int n, int64_t nbytes)
{
    int of_bank[BANKS] = {0}, most = 0;
    for (int i = 0; i < n; i++) {
        int bank = (int)(at[i] % LINE_NBYTES / nbytes);
        bool again = false;
        for (int k = 0; k < i && !again; k++)
            again = at[k] / nbytes == at[i] / nbytes;
        of_bank[bank] += !again;
        most = of_bank[bank] > most ? of_bank[bank] : most;
    }
    return most - 1;
}

int banks_of_tile(const struct matrix_row *r, enum matrix_part part, bool along_k, int64_t stride,
                  bool by_rows)
{
    int64_t nbytes = dtype_bits(r->dtype[part]) / 8, at[LANES_MAX], step[MATRIX_NONE + 1] = {0};
    int n = matrix_elements(r, part), extra = 0, place[MATRIX_NONE + 1],
        each = along_k && nbytes < WORD_NBYTES ? WORD_NBYTES / (int)nbytes : 1;
    enum matrix_coordinate side = part == MATRIX_A ? MATRIX_M : MATRIX_N;
    if (by_rows) {
        for (int i = 0; i < 8; i++)
            at[i] = i * stride * nbytes;
        return conflicts(at, 8, COPY_NBYTES_MOST) * (int)(n * nbytes / WORD_NBYTES);
    }
    step[side] = along_k ? stride : 1;
    step[MATRIX_K] = along_k ? 1 : stride;
    for (int i = 0; i < n; i += each) {
        for (int lane = 0; lane < r->lanes; lane++) {
            matrix_place(r, part, lane, i, place);
            at[lane] = (place[side] * step[side] + place[MATRIX_K] * step[MATRIX_K]) * nbytes;
        }
        extra += conflicts(at, r->lanes < BANKS ? r->lanes : BANKS, WORD_NBYTES);
    }
    return extra;
}

int banks_of_copy(int64_t row, int64_t stride, int64_t nbytes)
{
    int64_t at[BANKS], each = nbytes < WORD_NBYTES ? WORD_NBYTES : nbytes;
    int extra = 0, together = (int)(LINE_NBYTES / each), in_row = (int)(row / nbytes);
    for (int first = 0; first < BANKS && in_row > 0; first += together) {
        for (int i = 0; i < together; i++)
            at[i] = (first + i) / in_row * stride + (first + i) % in_row * nbytes;
        extra += conflicts(at, together, each);
    }
    return extra;
}
