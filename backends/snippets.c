/* snippets.c - the pieces of runtime/ that emitted programs carry, and the set of them that one
 * program uses.
 *
 * The table is made from runtime/ at build time by runtime/embed.c. A program carries a piece only
 * if something in it calls it.
 */
#include "backends/program.h"

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
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t n = strlen(word);
    for (int i = 0; i < NSNIPPET; i++)
        for (const char *s = table[i].text; *s; s += strcspn(s, letters)) {
            size_t length = strspn(s, letters);
            if (length == n && memcmp(s, word, n) == 0)
                return true;
            s += length;
            if (!*s)
                break;
        }
    return false;
}

/* Closed by repeated sweeps instead of recursion: the table is small and needs are shallow. */
void snippet_use(struct snippet_set *s, const char *name)
{
    if (!s->used)
        s->used = mem_array(s->t, NSNIPPET, sizeof *s->used);
    const struct snippet *p = snippet_find(name);
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
                const struct snippet *q = *word ? snippet_find(word) : NULL;
                if (*word && !q)
                    TGC_BUG(s->t, "runtime/%s.c: '%s' needs the unknown piece '%s'", table[i].file, table[i].name, word);
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

static bool ends_with(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && strcmp(s + n - m, suffix) == 0;
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
