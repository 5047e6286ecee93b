/* names.c - identifiers without collisions, and one escaping function for each language that model
 * names are written into.
 *
 * Names come from models and are hostile: they may contain comment ends, line splices, trigraphs,
 * bidirectional controls, or a megabyte of blanks. Nothing else in backends/ writes a name; these
 * functions decide what reaches the output.
 */
#include "backends/program/program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_LENGTH = 48, COMMENT_MAX_LENGTH = 160, LITERAL_LINE = 100 };

/* --------------------------------------------------------------------------------------- scopes */

struct names *names_new(struct tgc *t, const struct names *parent)
{
    struct names *n = MEM_NEW(t, struct names);
    n->t = t;
    n->parent = parent;
    return n;
}

bool names_has(const struct names *n, const char *s)
{
    for (; n; n = n->parent) {
        const struct name *name = dict_get(&n->name, s);
        if (name && name->state != NAME_FREE)
            return true;
    }
    return false;
}

static struct name *enter(struct names *n, const char *s)
{
    struct name *name = dict_get(&n->name, s);
    if (!name) {
        name = MEM_NEW(n->t, struct name);
        *dict_enter(n->t, &n->name, mem_str(n->t, s)) = name;
    }
    return name;
}

void names_add(struct names *n, const char *s) { enter(n, s)->state = NAME_TAKEN; }

void names_hold(struct names *n, const char *s) { enter(n, s)->state = NAME_HELD; }

void names_release(struct names *n, const char *s) { enter(n, s)->state = NAME_FREE; }

const char *names_number(struct names *n, const char *base, const char *separator)
{
    struct name *first = enter(n, base);
    bool held = false;
    for (int k = first->next + 1;; k++) {
        const char *s = k == 1 ? base : mem_printf(n->t, "%s%s%d", base, separator, k);
        if (!names_has(n, s))
            return s;
        const struct name *taken = dict_get(&n->name, s);
        held |= taken && taken->state == NAME_HELD;
        if (!held)
            first->next = k;
    }
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Runs of other characters become one underscore, with none at the ends, so that no name like __x
 * or _X results. */
const char *name_mangle(struct tgc *t, const char *s)
{
    char out[NAME_MAX_LENGTH + 1];
    size_t n = 0;
    bool gap = false;
    for (; s && *s && n < NAME_MAX_LENGTH; s++) {
        if (!is_word(*s)) {
            gap = true;
            continue;
        }
        if (gap && n > 0 && n + 1 < NAME_MAX_LENGTH)
            out[n++] = '_';
        gap = false;
        out[n++] = *s;
    }
    out[n] = 0;
    if (n > 0 && out[0] >= '0' && out[0] <= '9')
        return mem_printf(t, "n%s", out);
    return mem_str(t, out);
}

/* Whether a macro of the program may have this name. */
static bool is_of_macros(const struct names *n, const char *s)
{
    while (n->parent)
        n = n->parent;
    return n->macros && strncmp(s, n->macros, strlen(n->macros)) == 0;
}

const char *names_unique(struct names *n, const char *wanted, const char *fallback)
{
    const char *base = name_mangle(n->t, wanted);
    if (!*base)
        base = fallback;
    if (is_of_macros(n, base))
        base = mem_printf(n->t, "n_%s", base);
    const char *s = names_number(n, base, "_");
    names_add(n, s);
    return s;
}

const char *name_upper(struct tgc *t, const char *s)
{
    char *u = mem_str(t, s);
    for (char *p = u; *p; p++)
        if (*p >= 'a' && *p <= 'z')
            *p = (char)(*p - 'a' + 'A');
    return u;
}

struct names *names_reserved(struct tgc *t)
{
    static const char *const word[] = {
#define RESERVED(word) #word,
#include "backends/program/reserved.def"
#undef RESERVED
    };
    struct names *n = names_new(t, NULL);
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        names_add(n, word[i]);
    return n;
}

/* ------------------------------------------------------------------------------------- escaping */

/* Reads one UTF-8 character at s. Returns its length, or 0 for invalid UTF-8 (overlong forms and
 * surrogates included). */
static int utf8_read(const char *s, uint32_t *code)
{
    const unsigned char *p = (const unsigned char *)s;
    int n = p[0] < 0x80                   ? 1
            : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
            : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
            : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                          : 0;
    if (n < 2) {
        *code = p[0];
        return n;
    }
    uint32_t c = p[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3fu);
    }
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    *code = c;
    return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

/* A character that is visible and has no effect on its neighbours: no controls, no bidirectional or
 * invisible formatting. */
static bool is_plain(uint32_t c)
{
    if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad)
        return false;
    if (c == 0x61c || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
        (c >= 0x2060 && c <= 0x206f))
        return false;
    return c != 0xfeff && !(c >= 0xfff0 && c <= 0xfffb) && !(c >= 0xe000 && c <= 0xf8ff) &&
           c < 0xe0000;
}

void text_comment(struct text *out, const char *s)
{
    char before = ' ';
    int length = 0;
    while (*s) {
        uint32_t code;
        int n = utf8_read(s, &code);
        if (++length > COMMENT_MAX_LENGTH) {
            text_puts(out, "...");
            return;
        }
        if (n == 0) {
            text_printf(out, "<0x%02X>", code);
            n = 1;
        } else if (!is_plain(code) || (code == '\\' && s[1] == 0)) {
            text_printf(out, "<U+%04X>", code);
        } else {
            if ((before == '*' && code == '/') || (before == '/' && code == '*') ||
                (before == '?' && code == '?'))
                text_putc(out, ' ');
            text_write(out, s, (size_t)n);
        }
        before = *s;
        s += n;
    }
}

void text_string(struct text *out, const char *s)
{
    text_putc(out, '"');
    while (*s) {
        uint32_t code;
        int n = utf8_read(s, &code);
        if (code == '"' || code == '\\')
            text_printf(out, "\\%c", (char)code);
        else if (code == '?')
            text_puts(out, "\\?");
        else if (n > 0 && is_plain(code))
            text_write(out, s, (size_t)n);
        else
            for (int i = 0; i < (n > 0 ? n : 1); i++)
                text_printf(out, "\\%03o", (unsigned)(unsigned char)s[i]);
        s += n > 0 ? n : 1;
    }
    text_putc(out, '"');
}

void text_json(struct text *out, const char *s)
{
    text_putc(out, '"');
    while (*s) {
        uint32_t code;
        int n = utf8_read(s, &code);
        if (n == 0)
            text_puts(out, "\\ufffd");
        else if (code == '"' || code == '\\')
            text_printf(out, "\\%c", (char)code);
        else if (code < 0x10000 && (!is_plain(code) || code == '<'))
            text_printf(out, "\\u%04x", code);
        else
            text_write(out, s, (size_t)n);
        s += n > 0 ? n : 1;
    }
    text_putc(out, '"');
}

void text_html(struct text *out, const char *s, size_t most)
{
    const char *begin = s, *entity;
    while (*s && (size_t)(s - begin) < most) {
        uint32_t code;
        int n = utf8_read(s, &code);
        entity = *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : *s == '&' ? "&amp;"
               : *s == '"' ? "&quot;" : *s == '\'' ? "&#39;" : NULL;
        if (n == 0)
            text_puts(out, "\xef\xbf\xbd");
        else if (entity)
            text_puts(out, entity);
        else if (is_plain(code) || code == '\n' || code == '\t')
            text_write(out, s, (size_t)n);
        else
            text_printf(out, "[U+%04X]", code);
        s += n > 0 ? n : 1;
    }
    if (*s)
        text_printf(out, "\xe2\x80\xa6 (%zu bytes)", strlen(begin));
}

void text_dot(struct text *out, const char *s)
{
    while (*s) {
        uint32_t code;
        int n = utf8_read(s, &code);
        if (code == '"' || code == '\\')
            text_printf(out, "\\%c", (char)code);
        else if (code == '\n')
            text_puts(out, "\\n");
        else if (n > 0 && is_plain(code) && code != '<' && code != '>')
            text_write(out, s, (size_t)n);
        else
            text_putc(out, '_');
        s += n > 0 ? n : 1;
    }
}

/* Bytes as a string literal of several lines. An octal escape has as few digits as the next
 * character allows. */
void text_literal(struct text *out, const void *p, size_t n)
{
    const unsigned char *s = p;
    for (size_t i = 0; i < n || i == 0;) {
        size_t start = out->n;
        text_puts(out, "\n    \"");
        for (; i < n && out->n - start < LITERAL_LINE; i++) {
            unsigned c = s[i];
            if (c == '"' || c == '\\' || c == '?') {
                text_putc(out, '\\');
                text_putc(out, (char)c);
            } else if (c >= 0x20 && c < 0x7f) {
                text_putc(out, (char)c);
            } else {
                bool digit_follows = i + 1 < n && s[i + 1] >= '0' && s[i + 1] <= '9';
                char octal[5] = {'\\', (char)('0' + (c >> 6)), (char)('0' + (c >> 3 & 7)),
                                 (char)('0' + (c & 7)), 0};
                int skip = digit_follows ? 0 : c < 8 ? 2 : c < 64 ? 1 : 0;
                text_putc(out, '\\');
                text_puts(out, octal + 1 + skip);
            }
        }
        text_putc(out, '"');
        if (n == 0)
            break;
    }
}

/* ---------------------------------------------------------------------------------------- lines */

void text_pad(struct text *out, size_t column_start, size_t width)
{
    while (out->n - column_start < width)
        text_putc(out, ' ');
}

void text_lines(struct text *out, const char *lines, int depth)
{
    for (const char *s = lines; s && *s;) {
        size_t n = strcspn(s, "\n");
        for (int i = 0; i < depth && n > 0; i++)
            text_puts(out, "    ");
        text_write(out, s, n);
        text_putc(out, '\n');
        s += n + (s[n] == '\n');
    }
}

void list_put(struct text_list *l, const char *s)
{
    struct text *out = l->out;
    size_t separator = strlen(l->separator) + 1, width = out->n - l->line;
    if (l->any && width + separator + strlen(s) + l->tail > LINE_WIDTH) {
        text_printf(out, "%s\n", l->separator);
        l->line = out->n;
        text_pad(out, l->line, l->indent);
    } else if (l->any) {
        text_printf(out, "%s ", l->separator);
    }
    text_puts(out, s);
    l->any = true;
}

/* -------------------------------------------------------------------------------------- numbers */

static void put_number(struct text *out, const char *s)
{
    text_puts(out, s);
    if (!strpbrk(s, ".e"))
        text_puts(out, ".0");
}

void text_double(struct text *out, double v)
{
    if (isnan(v) || isinf(v)) {
        text_puts(out, isnan(v) ? "NAN" : v < 0 ? "-INFINITY" : "INFINITY");
        return;
    }
    char s[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, v);
        if (strtod(s, NULL) == v)
            break;
    }
    put_number(out, s);
}

void text_float(struct text *out, float v)
{
    if (isnan(v) || isinf(v)) {
        text_double(out, (double)v);
        return;
    }
    char s[40];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, (double)v);
        if (strtof(s, NULL) == v)
            break;
    }
    put_number(out, s);
    text_putc(out, 'f');
}

const char *text_si(struct tgc *t, double v, const char *unit)
{
    static const char prefix[] = " kMGTPE";
    int k = 0;
    while (v >= 999.5 && k < 6) {
        v /= 1000;
        k++;
    }
    return k == 0 ? mem_printf(t, "%.3g %s", v, unit)
                  : mem_printf(t, "%.3g %c%s", v, prefix[k], unit);
}

void text_bytes(struct text *out, double nbytes)
{
    text_puts(out, text_si(out->t, nbytes, nbytes >= 999.5 ? "B" : "bytes"));
}

void text_narrowing(struct text *out, const struct narrowing *n)
{
    bool scaled = n->dtype == DTYPE_I8;
    text_printf(out, "%d of them %s stored as %s, ", n->nweight, n->nweight == 1 ? "is" : "are",
                scaled ? "int8" : dtype_name(n->dtype));
    text_bytes(out, (double)n->to_nbytes);
    text_puts(out, " in place of ");
    text_bytes(out, (double)n->from_nbytes);
    text_printf(out, "; rounding errs by %.2g of their size (root mean square), at most by %.2g of "
                     "%s",
                n->rms_error, n->max_error, scaled ? "a channel's largest" : "a value");
}

void text_dims(struct text *out, struct uop *const *dim, int ndim, const char *open,
               const char *close)
{
    text_puts(out, open);
    for (int a = 0; a < ndim; a++) {
        struct text one = {.t = out->t};
        int64_t v;
        if (a > 0)
            text_putc(out, ',');
        if (uop_const_int(dim[a], &v))
            text_printf(&one, "%lld", (long long)v);
        else if (dim[a]->op == OP_VAR)
            text_puts(&one, ((const struct var *)dim[a]->arg.p)->name);
        else
            uop_print(&one, dim[a]);
        text_comment(out, one.s ? one.s : "");
    }
    text_puts(out, close);
}
