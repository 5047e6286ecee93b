/* snippets.c - the pieces of runtime/ that emitted programs carry, the set of them that one program
 * uses, and how they are written: with the program's name in place of model_.
 *
 * The table is made from runtime/ at build time by runtime/embed.c. A program carries a piece only
 * if something in it calls it.
 */
#include "backends/program/program.h"

#include <string.h>

#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Woverlength-strings"
#endif

static const struct snippet table[] = {
#define SNIPPET(file, name, needs, text) {file, name, needs, text},
#include "runtime/snippets.inc"
#undef SNIPPET
};
enum { NSNIPPET = sizeof table / sizeof *table };

/* Not strspn(), which makes a table of its set in every call. */
static size_t word_length(const char *s)
{
    size_t n = 0;
    for (char c; (c = s[n]) == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                 (c >= '0' && c <= '9');)
        n++;
    return n;
}

const struct snippet *snippet_find(const char *name)
{
    for (int i = 0; i < NSNIPPET; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

void snippets_reserve(struct names *n)
{
    for (int i = 0; i < NSNIPPET; i++)
        names_add(n, table[i].name);
}

bool snippets_mention(const char *word)
{
    size_t n = strlen(word);
    for (int i = 0; i < NSNIPPET; i++)
        for (const char *s = table[i].text; *s;) {
            size_t length = word_length(s);
            if (length == n && memcmp(s, word, n) == 0)
                return true;
            s += length ? length : 1;
        }
    return false;
}

/* The piece of that name in the set's language. */
static const struct snippet *find_in(struct snippet_set *s, const char *name)
{
    const struct snippet *found = dict_get(&s->found, name);
    if (found)
        return found;
    if (s->language)
        found = snippet_find(mem_printf(s->t, "%s_%s", s->language, name));
    if (!found && s->family)
        found = snippet_find(mem_printf(s->t, "%s_%s", s->family, name));
    found = found ? found : snippet_find(name);
    if (found)
        *dict_enter(s->t, &s->found, mem_str(s->t, name)) = (void *)(uintptr_t)found;
    return found;
}

void snippet_replace(struct snippet_set *s, const char *name, const char *by)
{
    const struct snippet *piece = snippet_find(by);
    if (!piece)
        TGC_BUG(s->t, "no piece of runtime/ is called '%s'", by);
    *dict_enter(s->t, &s->found, mem_str(s->t, name)) = (void *)(uintptr_t)piece;
}

bool snippet_is_known(struct snippet_set *s, const char *name) { return find_in(s, name) != NULL; }

/* Closes the set by repeated sweeps instead of recursion: the table is small and needs are
 * shallow. */
void snippet_use(struct snippet_set *s, const char *name)
{
    if (!s->used)
        s->used = mem_array(s->t, NSNIPPET, sizeof *s->used);
    const struct snippet *p = find_in(s, name);
    if (!p)
        TGC_BUG(s->t, "no piece of runtime/ is called '%s'", name);
    if (s->used[p - table])
        return;
    s->used[p - table] = true;
    for (bool grew = true; grew;) {
        grew = false;
        for (int i = 0; i < NSNIPPET; i++) {
            if (!s->used[i])
                continue;
            char needs[256];
            snprintf(needs, sizeof needs, "%s", table[i].needs);
            for (char *word = needs, *end; *word; word = end) {
                word += strspn(word, " ");
                end = word + strcspn(word, " ");
                if (*end)
                    *end++ = 0;
                const struct snippet *q = *word ? find_in(s, word) : NULL;
                if (*word && !q)
                    TGC_BUG(s->t, "runtime/%s.c: '%s' needs the unknown piece '%s'", table[i].file,
                            table[i].name, word);
                if (q && !s->used[q - table]) {
                    s->used[q - table] = true;
                    grew = true;
                }
            }
        }
    }
}

bool snippets_any(const struct snippet_set *s, const char *file)
{
    for (int i = 0; s->used && i < NSNIPPET; i++)
        if (s->used[i] && strcmp(table[i].file, file) == 0)
            return true;
    return false;
}

/* ----------------------------------------------------------------- text with the program's name */

/* Blanks before a comment: as many as keep its column where names are longer or shorter than their
 * placeholders. */
static size_t write_gap(struct text *out, const char *s, size_t column, size_t line_start)
{
    size_t n = strspn(s, " ");
    if (n < 2 || strncmp(s + n, "/*", 2) != 0 || out->n == line_start) {
        text_write(out, s, n);
        return n;
    }
    text_putc(out, ' ');
    while (out->n - line_start < column + n)
        text_putc(out, ' ');
    return n;
}

/* Length of the comment, literal or #include that begins at s, or 0. */
static size_t literal_length(const char *s)
{
    if (!strncmp(s, "#include", 8))
        return strcspn(s, "\n");
    if (s[0] == '/' && s[1] == '*') {
        const char *end = strstr(s + 2, "*/");
        return end ? (size_t)(end + 2 - s) : strlen(s);
    }
    if (*s != '"' && *s != '\'')
        return 0;
    size_t n = 1;
    while (s[n] && s[n] != *s)
        n += s[n] == '\\' && s[n + 1] ? 2 : 1;
    return n + (s[n] != 0);
}

/* Where in a text of ours a word stands. of_head: the program's name is among the words of the
 * template that began last, before its body: a type. */
struct reading { bool in_struct, in_body, in_head, of_head; };

static bool is_program_name(const struct program *p, const char *s, size_t n)
{
    return n == strlen(p->name) && strncmp(s, p->name, n) == 0;
}

static void read_code(const struct program *p, struct reading *r, const char *s, size_t n)
{
    if (n == 8 && !strncmp(s, "template", n))
        r->in_head = true, r->of_head = false;
    else if (n == 6 && !strncmp(s, "struct", n))
        r->in_struct = !strncmp(s + n + strcspn(s + n, ";{(),=*"), "{", 1);
    else if (*s == '{')
        r->in_body = r->in_struct, r->in_head = false;
    else if (*s == '}')
        r->in_struct = r->in_body = r->of_head = false;
    r->of_head |= r->in_head && is_program_name(p, s, n);
}

static bool is_directive(const char *text, const char *s)
{
    while (s > text && s[-1] == ' ')
        s--;
    return s > text && s[-1] == '#';
}

/* Whether the word at s, in a text of ours, would hide the program's own name or be hidden by it.
 * Fields are not: they follow a point or an arrow, or are in a struct's body, where only the tags
 * of other structs count, and types of a template's head. */
static bool is_name_of_ours(const struct program *p, const char *text, const char *s, size_t n,
                            const struct reading *r)
{
    if (!is_program_name(p, s, n) || is_directive(text, s))
        return false;
    if (r->in_body && !r->of_head)
        return s - text >= 7 && !strncmp(s - 7, "struct ", 7);
    return !(s > text && s[-1] == '.') && !(s - text >= 2 && s[-2] == '-' && s[-1] == '>');
}

/* Writes the text with the program's name for model_; words of the text that collide with that name
 * are changed. */
void program_write_text(const struct program *p, struct text *out, const char *text)
{
    const char *s = text, *line = s;
    size_t line_start = out->n, inside = 0;
    struct reading r = {0};
    while (*s) {
        size_t n = word_length(s);
        if (inside == 0)
            inside = literal_length(s);
        bool code = inside == 0;
        if (code)
            read_code(p, &r, s, n);
        if (*s == ' ') {
            n = write_gap(out, s, (size_t)(s - line), line_start);
        } else if (*s == '\n') {
            text_putc(out, *s);
            n = 1;
            line = s + 1;
            line_start = out->n;
        } else if (*s == '\\' && s[1] &&
                   s[1] != '\n') { /* an escape's letter does not belong to a word */
            text_write(out, s, n = 2);
        } else if (n > 6 && !strncmp(s, "DMODEL_", 7) && s > text && s[-1] == '-') {
            text_putc(out, *s);                        /* a compiler's option */
            n = 1;
        } else if (n == 0) {
            text_write(out, s, n = 1);
        } else if (n == 10 && !strncmp(s, "model_self", n)) {
            text_puts(out, p->name);
        } else if (!strncmp(s, "model_", 6) || !strncmp(s, "MODEL_", 6)) {
            text_puts(out, *s == 'm' ? p->name : p->upper);
            text_write(out, s + 5, n == 6 ? 0 : n - 5);
        } else {
            text_write(out, s, n);
            if (code && is_name_of_ours(p, text, s, n, &r))
                text_putc(out, '_');
        }
        s += n;
        inside = inside > n ? inside - n : 0;
    }
}

void program_write_words(const struct program *p, struct text *out, const char *s,
                         const struct text_word *word)
{
    struct text x = {.t = p->t};
    while (*s) {
        const struct text_word *w = word;
        size_t n = 0;
        for (; w->name; w++) {
            for (n = 0; w->name[n] && s[n] == w->name[n]; n++)
                continue;
            if (!w->name[n])
                break;
        }
        if (w->name)
            text_puts(&x, w->text);
        else
            text_putc(&x, *s);
        s += w->name ? n : 1;
    }
    program_write_text(p, out, x.s);
}

static bool ends_with(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && strcmp(s + n - m, suffix) == 0;
}

void snippets_leave_out(struct snippet_set *s, const struct snippet_set *written)
{
    for (int i = 0; s->used && written->used && i < NSNIPPET; i++)
        s->used[i] &= !written->used[i];
}

void snippets_write(const struct program *p, struct text *out, const char *file, const char *suffix)
{
    const struct snippet_set *s = &p->snippets;
    for (int i = 0; s->used && i < NSNIPPET; i++) {
        if (s->used[i] && strcmp(table[i].file, file) == 0 &&
            (!suffix || ends_with(table[i].name, suffix))) {
            program_write_text(p, out, table[i].text);
            text_putc(out, '\n');
        }
    }
}
