/* opts_text.c - opts as text: what schedules are printed as, and read from.
 *
 *      cut 0 axis=1 n=192 from=192 to=1
 *      lanes 0 axis=1 n=4 kind=lane as=row
 *      divide 0.sum0 axis=0 n=8; decide 0
 */
#include "passes/opts.h"
#include "ir/device_ops.h"

#include <stdlib.h>
#include <string.h>

enum field {
    F_AXIS = 1,
    F_N = 2,
    F_FROM = 4,
    F_TO = 8,
    F_KIND = 16,
    F_AS = 32,
    F_OPERAND = 64,
    F_SPACE = 128,
    F_BY = 256,
    F_HOW = 512,
    NFIELD = 10
};
static const struct { const char *text; int fields; const char *does; } ops[OPT_COUNT] = {
#define OPT(name, text, fields, does) {text, fields, does},
#include "passes/opts.def"
};
static const char *const of_text[] = {"", ".stage", ".sum"};

const char *opt_name(enum opt_op op) { return ops[op].text; }
const char *opt_does(enum opt_op op) { return ops[op].does; }

void opt_print(struct text *out, const struct opt *o)
{
    int has = ops[o->op].fields;
    text_printf(out, "%s %d", ops[o->op].text, o->store);
    if (o->of != OF_STORE)
        text_printf(out, "%s%d", of_text[o->of], o->number);
    if (has & F_AXIS)
        text_printf(out, " axis=%d", o->axis);
    if (has & F_N)
        text_printf(out, " n=%lld", (long long)o->n);
    if (has & F_FROM)
        text_printf(out, " from=%lld", (long long)o->from);
    if (has & F_TO)
        text_printf(out, " to=%d", o->to);
    if (has & F_KIND)
        text_printf(out, " kind=%s", axis_name(o->kind));
    if (has & F_AS)
        text_printf(out, " as=%s", o->column ? "column" : "row");
    if (has & F_OPERAND)
        text_printf(out, " operand=%d", o->operand);
    if (has & F_SPACE)
        text_printf(out, " space=%s", space_name(o->space));
    if (has & F_BY)
        text_printf(out, " by=%s", matrix_row(o->by)->text);
    if (has & F_HOW)
        text_printf(out, " how=%s", transfer_name(o->how));
}

/* -------------------------------------------------------------------------------------- reading */

struct reader { struct tgc *t; const char *file, *line; int number; };
/* Stores, loops and operands are counted by int, also one beyond the last, or from another store
 * on. No kernel has as many. */
enum { PLACE_MAX = 1 << 20 };

static bool wrong(const struct reader *r, const char *at, const char *what)
{
    struct place place = {.file = r->file, .line = r->number, .column = (int)(at - r->line) + 1,
                          .source_line = r->line};
    return diag_error(r->t, &place, "%s", what);
}

/* Reads an integer from 0 to most; *at moves after it. */
static bool read_number(const struct reader *r, const char **at, int64_t most, int64_t *n)
{
    const char *s = *at;
    for (*n = 0; **at >= '0' && **at <= '9'; ++*at) {
        *n = sat_add(sat_mul(*n, 10), **at - '0');
        if (*n > most)
            return wrong(r, s, mem_printf(r->t, "a number of at most %lld is expected",
                                          (long long)most));
    }
    return *at > s || wrong(r, s, "a whole number is expected");
}

/* The length of the word at s, and the table's row that it is; -1: none. */
static int find_word(const char *s, size_t *length, const char *(*row)(int), int n)
{
    *length = strspn(s, "abcdefghijklmnopqrstuvwxyz_");
    for (int i = 0; i < n; i++)
        if (strlen(row(i)) == *length && !strncmp(row(i), s, *length))
            return i;
    return -1;
}

static const char *op_text(int i) { return ops[i].text; }
static const char *kind_text(int i) { return axis_name((enum axis)i); }
static const char *field_text(int i)
{
    static const char *const text[] = {"axis", "n", "from", "to", "kind", "as", "operand", "space",
                                       "by", "how"};
    return text[i];
}
static const char *as_text(int i) { return i ? "column" : "row"; }
static const char *space_text(int i) { return space_name((enum space)i); }
static const char *how_text(int i) { return transfer_name((enum transfer)i); }

/* The instruction at s, whose name has digits, too; -1: none. */
static int find_matrix(const char *s, size_t *length)
{
    *length = strcspn(s, " ");
    for (int i = 0; i < MATRIX_COUNT; i++) {
        const char *text = matrix_row((enum matrix_unit)i)->text;
        if (strlen(text) == *length && !strncmp(text, s, *length))
            return i;
    }
    return -1;
}

static const char *nest_text(int i) { return i ? "sum" : "stage"; }

static bool read_nest(const struct reader *r, const char **at, struct opt *o)
{
    int64_t n;
    size_t length;
    if (!read_number(r, at, PLACE_MAX, &n))
        return false;
    o->store = (int)n;
    if (**at != '.')
        return true;
    int of = find_word(++*at, &length, nest_text, 2);
    if (of < 0)
        return wrong(r, *at, "'stage' or 'sum' is expected");
    *at += length;
    if (!read_number(r, at, PLACE_MAX, &n))
        return false;
    o->of = of ? OF_SUM : OF_STAGE;
    o->number = (int)n;
    return true;
}

static bool read_value(const struct reader *r, const char **at, int field, struct opt *o)
{
    int64_t n = 0;
    size_t length;
    int found = 0;
    switch (1 << field) {
    case F_KIND: found = find_word(*at, &length, kind_text, AXIS_COUNT); break;
    case F_AS: found = find_word(*at, &length, as_text, 2); break;
    case F_SPACE: found = find_word(*at, &length, space_text, SPACE_COUNT); break;
    case F_BY: found = find_matrix(*at, &length); break;
    case F_HOW: found = find_word(*at, &length, how_text, TRANSFER_COUNT); break;
    default:
        if (!read_number(r, at, 1 << field & (F_N | F_FROM) ? INT64_MAX / 16 : PLACE_MAX, &n))
            return false;
        length = 0;
    }
    if (found < 0)
        return wrong(r, *at, 1 << field == F_KIND ? "a kind of loop is expected"
                             : 1 << field == F_AS ? "'row' or 'column' is expected"
                             : 1 << field == F_BY ? "an instruction of matrix.def is expected"
                             : 1 << field == F_HOW ? "a transfer of transfers.def is expected"
                                                  : "a space of spaces.def is expected");
    *at += length;
    switch (1 << field) {
    case F_AXIS: o->axis = (int)n; break;
    case F_N: o->n = n; break;
    case F_FROM: o->from = n; break;
    case F_TO: o->to = (int)n; break;
    case F_KIND: o->kind = (enum axis)found; break;
    case F_OPERAND: o->operand = (int)n; break;
    case F_SPACE: o->space = (enum space)found; break;
    case F_BY: o->by = (enum matrix_unit)found; break;
    case F_HOW: o->how = (enum transfer)found; break;
    default: o->column = found; break;
    }
    return true;
}

static bool read_opt(const struct reader *r, const char *at, struct opt *o)
{
    size_t length;
    int op = find_word(at, &length, op_text, OPT_COUNT), seen = 0;
    if (op < 0)
        return wrong(r, at, "this is no opt");
    *o = (struct opt){.op = (enum opt_op)op};
    at += length + strspn(at + length, " ");
    if (!read_nest(r, &at, o))
        return false;
    while (*(at += strspn(at, " "))) {
        int field = find_word(at, &length, field_text, NFIELD);
        if (field < 0 || at[length] != '=' || !(ops[op].fields >> field & 1) || seen >> field & 1)
            return wrong(r, at, mem_printf(r->t, "this is no argument of '%s', or not the first",
                                           ops[op].text));
        seen |= 1 << field;
        at += length + 1;
        if (!read_value(r, &at, field, o))
            return false;
        if (*at && *at != ' ')
            return wrong(r, at, "a space is expected");
    }
    for (int field = 0; field < NFIELD; field++)
        if ((ops[op].fields & ~seen) >> field & 1)
            return wrong(r, at, mem_printf(r->t, "'%s' lacks %s=", ops[op].text,
                                           field_text(field)));
    return true;
}

bool opts_read(struct tgc *t, const char *file, int line, const char *bytes, size_t nbytes,
               struct opts *list)
{
    struct reader r = {.t = t, .file = file, .number = line - 1};
    for (size_t at = 0; at < nbytes;) {
        const char *newline = memchr(bytes + at, '\n', nbytes - at);
        size_t n = (newline ? (size_t)(newline - bytes) : nbytes) - at;
        char *text = mem_alloc(t, n + 1), *end = text;
        memcpy(text, bytes + at, n);
        text[n] = 0;
        text[strcspn(text, "#\r")] = 0;
        at += n + 1;
        r.number++;
        for (char *first = text; first; first = end ? end + 1 : NULL) {
            struct opt o;
            end = strchr(first, ';');
            if (end)
                *end = 0;
            r.line = first;
            first += strspn(first, " ");
            if (!*first)
                continue;
            if (!read_opt(&r, first, &o))
                return false;
            VEC_PUSH(t, list->v, list->n, list->cap, o);
        }
    }
    return true;
}

bool opts_are_equal(const struct opts *a, const struct opts *b)
{
    bool equal = a->n == b->n;
    for (int i = 0; i < a->n && equal; i++) {
        const struct opt *x = &a->v[i], *y = &b->v[i];
        equal = x->op == y->op && x->store == y->store && x->of == y->of &&
                x->number == y->number && x->axis == y->axis && x->n == y->n &&
                x->from == y->from && x->to == y->to && x->operand == y->operand &&
                x->space == y->space && x->kind == y->kind && x->column == y->column &&
                x->by == y->by && x->how == y->how;
    }
    return equal;
}
