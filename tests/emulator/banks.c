/* SPDX-License-Identifier: 0BSD */
/* banks.c - bank conflicts of local memory, which has 32 banks of four-byte words and serves one
 * word of each at once. Lanes are served together as long as they access 128 bytes or less between
 * them. Each further word of one bank costs another cycle. ldmatrix reads eight rows at once.
 */
#include "emulator.h"

#include <string.h>

enum { LINE = 128 };
API void emulator_rows(uint32_t *words, const void *row, uint32_t n, uint32_t across);

/* Are two of the addresses in the same banks, and different? */
static bool conflict(const uintptr_t *at, uint32_t n, uint32_t nbytes)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (at[i] != at[k] && at[i] % LINE / nbytes == at[k] % LINE / nbytes)
                return true;
    return false;
}

static void look(const uintptr_t *at, uint32_t lanes, uint32_t nbytes, const char *what)
{
    const uint32_t together = LINE / nbytes;
    for (uint32_t i = 0; i + together <= lanes; i += together)
        if (conflict(at + i, together, nbytes) && emulator_subgroup(2) == 0 && item_is_first())
            report("%s: %s in the same banks, at %s", launch_now()->kernel->signature.name, what,
                   item_line());
}

static void take_all(const void *own, uintptr_t *at)
{
    const uintptr_t mine = (uintptr_t)own;
    emulator_give(&mine, sizeof mine);
    for (uint32_t lane = 0; lane < 32; lane++)
        emulator_take(&at[lane], sizeof at[lane], lane);
}

void banks_look(const void *own, uint32_t nbytes, const char *what)
{
    uintptr_t at[32];
    if (device_facts()->looks_at_banks < 2)
        return;
    take_all(own, at);
    look(at, 32, nbytes, what);
}

/* ldmatrix: n matrices of eight rows of 16 bytes. Lanes 8 * i ... pass the row addresses of matrix
 * i. A lane gets word lane % 4 of row lane / 4. across (.trans): it gets the halves of rows 2 *
 * (lane % 4) and the next one in column lane / 4. */
void emulator_rows(uint32_t *words, const void *row, uint32_t n, uint32_t across)
{
    const uint32_t lane = emulator_subgroup(2);
    uintptr_t at[32];
    take_all(row, at);
    for (uint32_t i = 0; i < n; i++) {
        const uintptr_t *of = at + 8 * i;
        if (device_facts()->looks_at_banks)
            look(of, 8, 16, "rows of a tile are");
        shadow_aligned((const void *)of[lane % 8], 16, ACCESS_READ);
        for (uint32_t half = 0; half < 2; half++) {
            const uintptr_t from = across ? of[lane % 4 * 2 + half] + lane / 4 * 2
                                          : of[lane / 4] + lane % 4 * 4 + half * 2;
            memcpy((unsigned char *)&words[i] + 2 * half, (const void *)from, 2);
        }
    }
}
