/* message.c - prints diagnostics, as text for people or one JSON object a line for tools.
 *
 *      model.onnx: node 17 'conv_3' (Conv), input 1 'w': error: what was found, what was expected,
 *      what to do net.tg:12:9: error: ...
 *          %1 = relu(%x)
 *               ^
 * Names of the model reach the terminal here, so control characters, invalid UTF-8 and characters
 * that change the direction of writing are shown as \xNN.
 */
#include "cli/cli.h"
#include "backends/program/program.h"

#include <string.h>

/* The length of a well-formed UTF-8 sequence at s; 0: there is none. */
static size_t utf8_length(const unsigned char *s, uint32_t *code)
{
    size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    if (!n)
        return 0;
    *code = n == 1 ? s[0] : s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6 != 2)
            return 0;
        *code = *code << 6 | (s[i] & 63u);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    return *code < least[n] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000) ? 0 : n;
}

static bool is_printable(uint32_t c)
{
    bool is_control = (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0);
    bool is_direction = c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
                        (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
    return !is_control && !is_direction;
}

void print_escaped(FILE *to, const char *s)
{
    for (const unsigned char *p = (const unsigned char *)s; *p;) {
        uint32_t code;
        size_t n = utf8_length(p, &code);
        if (n && is_printable(code) && code != '\n') {
            fwrite(p, 1, n, to);
        } else {
            n = n ? n : 1;
            for (size_t i = 0; i < n; i++)
                fprintf(to, "\\x%02x", p[i]);
        }
        p += n;
    }
}

void print_lines_escaped(FILE *to, const char *s)
{
    for (const char *end; *s; s = end) {
        char piece[512];
        size_t n = strcspn(s, "\n\t");
        for (n = n < sizeof piece ? n : sizeof piece - 1; n > 1 && (s[n] & 0xc0) == 0x80; n--)
            continue; /* not inside a character */
        memcpy(piece, s, n);
        piece[n] = 0;
        end = s + n;
        print_escaped(to, piece);
        if (*end == '\n' || *end == '\t')
            fputc(*end++, to);
    }
}

static const char *const severity_name[] = {"note", "warning", "error"};
static const char *const severity_color[] = {"\033[36m", "\033[35m", "\033[31m"};

static void print_caret(const struct place *at, FILE *to)
{
    fputs("    ", to);
    print_escaped(to, at->source_line);
    fputs("\n    ", to);
    for (int i = 1; i < at->column && at->source_line[i - 1]; i++)
        fputc(at->source_line[i - 1] == '\t' ? '\t' : ' ', to);
    fputs("^\n", to);
}

static void print_text(const struct diag *d, const char *subject, bool color, FILE *to)
{
    fputs(color ? "\033[1m" : "", to);
    print_escaped(to, d->at.file ? d->at.file : subject ? subject : "tgc");
    if (d->at.line)
        fprintf(to, ":%d:%d", d->at.line, d->at.column);
    fputs(": ", to);
    if (d->at.text) {
        print_escaped(to, d->at.text);
        fputs(": ", to);
    }
    fprintf(to, "%s%s:%s ", color ? severity_color[d->severity] : "", severity_name[d->severity],
            color ? "\033[0m" : "");
    for (const char *s = d->message; *s; s++) { /* our own line breaks are kept */
        const char *line_end = s + strcspn(s, "\n");
        char line[512];
        while (s < line_end) {
            size_t n = (size_t)(line_end - s) < sizeof line - 1 ? (size_t)(line_end - s)
                                                                : sizeof line - 1;
            while (n > 1 && s + n < line_end && ((unsigned char)s[n] >> 6) == 2)
                n--; /* not inside a character */
            memcpy(line, s, n);
            line[n] = 0;
            print_escaped(to, line);
            s += n;
        }
        fputc('\n', to);
        if (!*s)
            break;
    }
    if (d->at.line && d->at.source_line)
        print_caret(&d->at, to);
}

/* JSON is written without the arena: it may be full. */
static void print_json_string(FILE *to, const char *key, const char *s)
{
    fprintf(to, "\"%s\":\"", key);
    for (const unsigned char *p = (const unsigned char *)(s ? s : ""); *p;) {
        uint32_t code;
        size_t n = utf8_length(p, &code);
        if (!n)
            fprintf(to, "\\ufffd");
        else if (*p == '"' || *p == '\\')
            fprintf(to, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            fprintf(to, "\\u%04x", *p);
        else
            fwrite(p, 1, n, to);
        p += n ? n : 1;
    }
    fputc('"', to);
}

static void print_json(const struct diag *d, const char *subject, FILE *to)
{
    fprintf(to, "{\"severity\":\"%s\",", severity_name[d->severity]);
    print_json_string(to, "file", d->at.file ? d->at.file : subject);
    if (d->at.line)
        fprintf(to, ",\"line\":%d,\"column\":%d", d->at.line, d->at.column);
    if (d->at.text) {
        fputc(',', to);
        print_json_string(to, "place", d->at.text);
    }
    fputc(',', to);
    print_json_string(to, "message", d->message);
    fputs("}\n", to);
}

void messages_print(const struct tgc *t, const struct options *o, FILE *to)
{
    bool has_error = false;
    for (int i = 0; i < t->ndiag; i++) {
        has_error |= t->diag[i].severity == SEVERITY_ERROR;
        if (o->diagnostics_json)
            print_json(&t->diag[i], o->subject, to);
        else
            print_text(&t->diag[i], o->subject, o->color, to);
    }
    /* The one failure that may be unable to allocate its message. */
    static const struct diag full = {
        SEVERITY_ERROR, {0}, "out of memory; --max-memory sets the limit"};
    if (t->nerror && !has_error && o->diagnostics_json)
        print_json(&full, o->subject, to);
    else if (t->nerror && !has_error)
        print_text(&full, o->subject, o->color, to);
}
