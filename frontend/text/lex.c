/* lex.c - tokens of a .tg file, one ahead, and the places that messages point at.
 *
 * Line ends are blanks: every construct ends by itself. '#' begins a comment. The text is of
 * unknown origin: it may hold any byte, a token may be as long as the file; nothing here recurses
 * or copies more than the token.
 */
#include "frontend/text/reader.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_LINE = 240, LONGEST_TOKEN = 60 };

struct place lex_place(const struct reader *r, const struct token *at)
{
    const char *begin = at->start - (at->column - 1), *end = begin;
    struct place p = {
        .file = r->path, .text = r->within, .line = at->line, .column = at->column};
    while (end < r->end && *end != '\n' && end - begin < LONGEST_LINE)
        end++;
    if (at->column <= LONGEST_LINE) {
        p.source_line = mem_printf(r->t, "%.*s", (int)(end - begin), begin);
    }
    return p;
}

bool read_error(struct reader *r, const struct token *at, const char *format, ...)
{
    char message[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(message, sizeof message, format, ap);
    va_end(ap);
    struct place p = lex_place(r, at);
    return diag_error(r->t, &p, "%s", message);
}

const char *token_describe(struct reader *r, const struct token *t)
{
    if (t->kind == TOKEN_END)
        return "the end of the file";
    if (t->kind == TOKEN_PUNCT && !isprint((unsigned char)t->punct))
        return mem_printf(r->t, "byte 0x%02x", (unsigned char)t->punct);
    int n = t->nbytes < LONGEST_TOKEN ? (int)t->nbytes : LONGEST_TOKEN;
    return mem_printf(r->t, "'%.*s%s'", n, t->start, t->nbytes > LONGEST_TOKEN ? "..." : "");
}

static bool is_name_start(char c) { return isalpha((unsigned char)c) || c == '_'; }
static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

static void skip_blanks(struct reader *r)
{
    for (; r->at < r->end; r->at++) {
        if (*r->at == '#') {
            while (r->at < r->end && *r->at != '\n')
                r->at++;
            if (r->at == r->end)
                return;
        }
        if (*r->at == '\n') {
            r->line++;
            r->line_start = r->at + 1;
        } else if (*r->at != ' ' && *r->at != '\t' && *r->at != '\r') {
            return;
        }
    }
}

static char *copy(struct reader *r, const char *from, const char *to)
{
    char *s = mem_alloc(r->t, (size_t)(to - from) + 1);
    if (to > from)
        memcpy(s, from, (size_t)(to - from));
    return s;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* A quoted string from the quote on; escapes: \" \' \\ \n \t \xHH (not 00). */
static bool lex_quoted(struct reader *r, struct token *tok)
{
    char quote = *r->at++;
    const char *s = r->at;
    while (s < r->end && *s != quote && *s != '\n')
        s += *s == '\\' && s + 1 < r->end && s[1] != '\n' ? 2 : 1;
    char *out = mem_alloc(r->t, (size_t)(s - r->at) + 1);
    size_t n = 0;
    bool bad = s >= r->end || *s != quote;
    for (const char *p = r->at; p < s && !bad; p++) {
        char c = *p;
        if (c == '\\') {
            c = *++p;
            int hi, lo;
            if (c == 'x' && s - p > 2 && (hi = hex_digit(p[1])) >= 0 &&
                (lo = hex_digit(p[2])) >= 0 && hi + lo > 0) {
                c = (char)(hi * 16 + lo);
                p += 2;
            } else if (c == 'n' || c == 't') {
                c = c == 'n' ? '\n' : '\t';
            } else if (c != '\\' && c != '"' && c != '\'') {
                bad = true;
            }
        }
        bad |= c == 0;
        out[n++] = c;
    }
    tok->text = out;
    r->at = s < r->end && *s == quote ? s + 1 : s;
    tok->nbytes = (size_t)(r->at - tok->start);
    if (bad)
        tok->kind = TOKEN_BAD;
    if (bad && !r->is_search) {
        read_error(r, tok,
                   "a string that does not end on its line, or with an escape other than \\\" \\' "
                   "\\\\ \\n \\t \\xHH");
    }
    return !bad;
}

static void lex_number(struct reader *r, struct token *tok)
{
    const char *s = r->at;
    while (s < r->end && (isalnum((unsigned char)*s) || *s == '.' ||
                          ((*s == '-' || *s == '+') && strchr("eEpP", s[-1]) && s > r->at)))
        s++;
    tok->kind = TOKEN_NUMBER;
    tok->text = copy(r, r->at, s);
    r->at = s;
}

void lex_next(struct reader *r)
{
    r->last_end = r->at;
    skip_blanks(r);
    struct token *tok = &r->token;
    *tok = (struct token){.kind = TOKEN_END,
                          .start = r->at,
                          .line = r->line,
                          .column = (int)(r->at - r->line_start) + 1,
                          .text = ""};
    if (r->at == r->end)
        return;
    char c = *r->at;
    const char *s = r->at;
    if (c == '%' && s + 1 < r->end && s[1] == '"') {
        tok->kind = TOKEN_REF;
        r->at++;
        lex_quoted(r, tok);
    } else if (c == '%' && s + 1 < r->end && is_name(s[1])) {
        tok->kind = TOKEN_REF;
        while (++s < r->end && is_name(*s))
            ;
        tok->text = copy(r, r->at + 1, s);
        r->at = s;
    } else if (c == '"' || c == '\'') {
        tok->kind = c == '"' ? TOKEN_STRING : TOKEN_SYMBOL;
        lex_quoted(r, tok);
    } else if (is_name_start(c)) {
        tok->kind = TOKEN_NAME;
        while (s < r->end && is_name(*s))
            s++;
        tok->text = copy(r, r->at, s);
        r->at = s;
    } else if (isdigit((unsigned char)c) ||
               (c == '.' && s + 1 < r->end && isdigit((unsigned char)s[1]))) {
        lex_number(r, tok);
    } else if (c == '<' && s + 1 < r->end && s[1] == '=') {
        tok->kind = TOKEN_LE;
        r->at += 2;
    } else {
        tok->kind = TOKEN_PUNCT;
        tok->punct = c;
        r->at++;
    }
    tok->nbytes = (size_t)(r->at - tok->start);
}

void lex_start(struct reader *r, const char *bytes, size_t nbytes)
{
    r->at = r->line_start = bytes;
    r->end = bytes + nbytes;
    r->line = 1;
    lex_next(r);
}

struct lex_mark lex_mark(const struct reader *r)
{
    return (struct lex_mark){r->at, r->line_start, r->line, r->token};
}

void lex_return(struct reader *r, const struct lex_mark *mark)
{
    r->at = mark->at;
    r->line_start = mark->line_start;
    r->line = mark->line;
    r->token = mark->token;
}

bool accept(struct reader *r, char punct)
{
    if (r->token.kind != TOKEN_PUNCT || r->token.punct != punct)
        return false;
    lex_next(r);
    return true;
}

bool accept_word(struct reader *r, const char *word)
{
    if (r->token.kind != TOKEN_NAME || strcmp(r->token.text, word) != 0)
        return false;
    lex_next(r);
    return true;
}

bool expect(struct reader *r, char punct, const char *where)
{
    if (accept(r, punct))
        return true;
    return r->token.kind == TOKEN_BAD ? false
                                      : read_error(r, &r->token, "found %s, expected '%c' %s",
                                                   token_describe(r, &r->token), punct, where);
}

bool token_number(const struct token *t, double *v)
{
    char *end;
    if (t->kind == TOKEN_NAME && (!strcmp(t->text, "inf") || !strcmp(t->text, "nan"))) {
        *v = t->text[0] == 'i' ? __builtin_inf() : __builtin_nan("");
        return true;
    }
    if (t->kind != TOKEN_NUMBER)
        return false;
    *v = strtod(t->text, &end);
    return *end == 0 && end != t->text;
}

bool token_int(const struct token *t, int64_t *v)
{
    char *end;
    if (t->kind != TOKEN_NUMBER)
        return false;
    errno = 0;
    unsigned long long u = strtoull(t->text, &end, 0);
    if (*end || end == t->text || errno ||
        (t->text[0] == '0' && isdigit((unsigned char)t->text[1])))
        return false;
    *v = (int64_t)u;                                  /* up to 2^64 - 1: u64 travels as its bits */
    return true;
}
