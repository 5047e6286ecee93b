/* SPDX-License-Identifier: 0BSD */
/* fit.c - checks sizes of inputs against the model's rules, for tgc and for the emitted program. A
 * rule is a size in postfix, see struct NAME_feed: "$0 2 mul" is twice symbols[0]. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

//@ fit_sizes
/* A size with at most one unknown symbol: base + slope * symbol. Arithmetic wraps. */
struct fit_value {
    uint64_t base, slope;
};
/* What a rule evaluates to. A symbol of -1: none is unknown. The last field: the size is not linear
 * in the unknown symbol, or has several of them. */
struct fit_rule {
    struct fit_value value;
    int symbol, is_open;
};
/* A size of an input, and its rule; NULL: it is fixed. */
struct fit_size {
    const char *rule;
    int64_t size;
};

static uint64_t fit_number(const char *s)
{
    uint64_t v = 0;
    for (const char *d = s + (*s == '-'); *d >= '0' && *d <= '9'; d++)
        v = 10 * v + (uint64_t)(*d - '0');
    return *s == '-' ? 0 - v : v;
}

static int64_t fit_divide(int64_t a, int64_t b)
{
    if (b == 0 || b == -1)                   /* the least integer has no opposite */
        return b ? (int64_t)(0 - (uint64_t)a) : 0;
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* Applies an operator to two known sizes. */
static int64_t fit_apply(const char *op, int64_t a, int64_t b)
{
    if (strncmp(op, "floordiv", 8) == 0)
        return fit_divide(a, b);
    if (strncmp(op, "floormod", 8) == 0)
        return b ? a - fit_divide(a, b) * b : 0;
    if (strncmp(op, "min", 3) == 0)
        return a < b ? a : b;
    return a > b ? a : b;
}

static void fit_word(struct fit_rule *r, const char *op, struct fit_value *a,
                     const struct fit_value *b)
{
    if (strncmp(op, "add", 3) == 0) {
        a->base += b->base;
        a->slope += b->slope;
    } else if (strncmp(op, "sub", 3) == 0) {
        a->base -= b->base;
        a->slope -= b->slope;
    } else if (strncmp(op, "mul", 3) == 0 && (a->slope == 0 || b->slope == 0)) {
        a->slope = a->slope * b->base + b->slope * a->base;
        a->base *= b->base;
    } else if (a->slope == 0 && b->slope == 0) {
        a->base = (uint64_t)fit_apply(op, (int64_t)a->base, (int64_t)b->base);
    } else {
        r->is_open = 1;
    }
}

/* symbol[]: values, -1: unknown. */
static struct fit_rule fit_read(const char *rule, const int64_t *symbol)
{
    struct fit_value stack[256];
    struct fit_rule r = {{0, 0}, -1, 0};
    int n = 0;
    memset(stack, 0, sizeof stack[0]);
    for (const char *s = rule; *s && n < 256; s += strcspn(s, " "), s += *s == ' ') {
        struct fit_value v = {0, 0};
        if (*s == '$') {
            int k = (int)fit_number(s + 1);
            int unknown = symbol[k] < 0;
            r.is_open |= unknown && r.symbol >= 0 && r.symbol != k;
            r.symbol = unknown ? k : r.symbol;
            v.base = unknown ? 0 : (uint64_t)symbol[k];
            v.slope = (uint64_t)unknown;
            stack[n++] = v;
        } else if (*s == '-' || (*s >= '0' && *s <= '9')) {
            v.base = fit_number(s);
            stack[n++] = v;
        } else if (strncmp(s, "neg", 3) == 0 && n >= 1) {
            stack[n - 1].base = 0 - stack[n - 1].base;
            stack[n - 1].slope = 0 - stack[n - 1].slope;
        } else if (n >= 2) {
            n--;
            fit_word(&r, s, &stack[n - 1], &stack[n]);
        }
    }
    r.is_open |= n != 1;
    r.value = stack[0];
    return r;
}

/* Solves for the unknown symbols (-1) by n sizes, and checks the sizes against the rules. Returns
 * the first size that does not fit, or n. *expected: what that size should be, or -1 if no value of
 * its symbol gives it. Symbols that no size determines stay -1. */
static size_t fit_sizes(const struct fit_size *at, size_t n, int64_t *symbol, int64_t *expected)
{
    int found = 0;
    for (int pass = 0; pass < 2 || found; pass++) {          /* rules of one symbol alone first */
        found = 0;
        for (size_t i = 0; i < n; i++) {
            if (!at[i].rule || (pass == 0 && strchr(at[i].rule, ' ')))
                continue;
            const struct fit_rule r = fit_read(at[i].rule, symbol);
            if (r.is_open)
                continue;
            int64_t slope = (int64_t)r.value.slope,
                    rest = (int64_t)((uint64_t)at[i].size - r.value.base);
            if (slope != 0 && rest != INT64_MIN && rest % slope == 0 && rest / slope >= 0) {
                symbol[r.symbol] = rest / slope;
                found = 1;
            } else if (rest != 0 || at[i].size < 0) {
                *expected = slope ? -1 : (int64_t)r.value.base;
                return i;
            }
        }
    }
    return n;
}
