/* SPDX-License-Identifier: 0BSD */
/* regex.c - matches whole strings against a regular expression, in time proportional to their
 * length.
 *
 * The expression is a program for Thompson's machine (1968), whose threads all stand at the same
 * character. An instruction is (operation, a, b); jumps are relative:
 *
 *      0  match
 *      1  split: go on at +a and at +b
 *      2  jump +a
 *      3  one character of the ranges [a, b)
 *      4  only at the beginning
 *      5  only at the end
 *      6  only where a word begins or ends
 *      7  only where none does
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef const char *string_t;
static string_t bytes_of(string_t s) { return s ? s : ""; }
static int32_t utf8_next(const char *s, int64_t *n) { return *n = 1, *s; }

//@ regex_follow
/* Adds the instructions that consume a character, or match, and are reached from `start` without
 * consuming one. here: bit k is set where operation 4 + k may pass. stack[] and when[] have an
 * element for each instruction; when[] is the step at which it was reached. */
static int64_t regex_follow(const int32_t *code, int64_t start, int64_t step, int here,
                            int64_t *list, int64_t count, int64_t *stack,
                            int64_t *when)
{
    int64_t depth = 0;
    if (when[start] != step)
        stack[depth++] = start;
    when[start] = step;
    while (depth > 0) {
        int64_t at = stack[--depth], next[2] = {-1, -1};
        const int32_t *in = code + 3 * at;
        if (in[0] == 0 || in[0] == 3)
            list[count++] = at;
        else if (in[0] == 1 || in[0] == 2)
            next[0] = at + in[1], next[1] = in[0] == 1 ? at + in[2] : -1;
        else if (here >> (in[0] - 4) & 1)
            next[0] = at + 1;
        for (int k = 0; k < 2; k++)
            if (next[k] >= 0 && when[next[k]] != step) {
                when[next[k]] = step;
                stack[depth++] = next[k];
            }
    }
    return count;
}

//@ regex_here
static bool regex_is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

static int regex_here(const char *begin, const char *s)
{
    bool edge = (s > begin && regex_is_word(s[-1])) != regex_is_word(*s);
    return (s == begin) | (!*s) << 1 | edge << 2 | !edge << 3;
}

//@ regex_full_match regex_follow regex_here utf8_next bytes_of
/* x[count] -> y[count]; code[ncode][3], range[][2]; room[4][ncode] */
static int regex_full_match(const string_t *x, const int32_t *code, const int32_t *range,
                            uint8_t *y, int64_t *room, int64_t count, int64_t ncode)
{
    int64_t *now = room, *next = room + ncode, *stack = room + 2 * ncode, *when = room + 3 * ncode;
    int64_t step = 1, n = 0;
    for (int64_t k = 0; k < ncode; k++)
        when[k] = 0;
    for (int64_t i = 0; i < count; i++) {
        const char *const begin = bytes_of(x[i]), *s = begin;
        int64_t alive = regex_follow(code, 0, ++step, regex_here(begin, s), now, 0, stack, when);
        for (; *s && alive > 0; s += n) {
            int32_t c = utf8_next(s, &n);
            int64_t later = 0;
            step++;
            for (int64_t k = 0; k < alive; k++) {
                const int32_t *in = code + 3 * now[k];
                bool hit = false;
                for (int32_t r = in[1]; in[0] == 3 && r < in[2] && !hit; r++)
                    hit = range[2 * r] <= c && c <= range[2 * r + 1];
                if (hit)
                    later = regex_follow(code, now[k] + 1, step, regex_here(begin, s + n), next,
                                         later, stack, when);
            }
            int64_t *swap = now;
            now = next;
            next = swap;
            alive = later;
        }
        y[i] = 0;
        for (int64_t k = 0; k < alive && !*s; k++)
            y[i] |= code[3 * now[k]] == 0;
    }
    return 0;
}
