/* taken.c - finds the names that emitted C uses, as a table for backends/program/naming.c: no
 * tensor or dimension gets such a name. Runs at build time: taken OUT FILE...
 *
 * Emitted text is in string literals: those of snippets.inc, which has runtime/, and those of
 * backends/. Each word is listed once:
 *
 *      TAKEN(word)       what a #define names
 *      TAKEN_FILE(word)  functions and objects of file scope: what a line that begins with
 *                        `static` declares
 *      TAKEN_MAIN(word)  the same, where only the program around the model has it
 *      TAKEN_CALL(word)  a driver's field, which TRY(word, ...) names: not a name of the program
 *      TAKEN_OWN(word)   from MODEL_word or %s_word: a macro or enumerator that begins with the
 *                        program's name
 */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096, LENGTH = 80 };
static char found[MOST][LENGTH];
static int nfound;

static size_t word_length(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return n;
}

/* Adds macro(word), unless it is there; false: the table is full. */
static bool put(FILE *out, const char *macro, const char *s, size_t n)
{
    char row[LENGTH];
    if (nfound == MOST || snprintf(row, sizeof row, "%s(%.*s)", macro, (int)n, s) >= LENGTH)
        return false;
    for (int i = 0; i < nfound; i++)
        if (strcmp(found[i], row) == 0)
            return true;
    strcpy(found[nfound++], row);
    fprintf(out, "%s\n", row);
    return true;
}

static bool is_capital(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (islower((unsigned char)s[i]))
            return false;
    return n > 0 && isupper((unsigned char)*s);
}

/* The last word before the first of "(=[;" in the line; NULL: there is none, or a format's
 * directive is a part of it. */
static const char *declared(const char *line, size_t *n)
{
    size_t end = strcspn(line, "(=[;\n");
    while (end > 0 && line[end - 1] == ' ')
        end--;
    size_t begin = end;
    while (begin > 0 && (isalnum((unsigned char)line[begin - 1]) || line[begin - 1] == '_'))
        begin--;
    *n = end - begin;
    bool whole = *n > 0 && begin > 0 && !isdigit((unsigned char)line[begin]) &&
                 memchr(line, '%', begin) != line + begin - 1 &&
                 (begin < 2 || line[begin - 2] != '%') && strncmp(line + begin, "model_", 6) != 0;
    return whole ? line + begin : NULL;
}

/* Lists the words of emitted text. A word that touches a % is a part of one. */
static bool scan(FILE *out, const char *text)
{
    const char *s = text;
    bool defines = false, fits = true, of_main = false;
    for (const char *line = s; line; line = strchr(line, '\n'), line += line != NULL) {
        size_t n = 0;
        const char *word = strncmp(line, "static ", 7) == 0 ? declared(line, &n) : NULL;
        if (*line == '\f')
            of_main = strncmp(line + 1, "main", 4) == 0 || strncmp(line + 1, "fill", 4) == 0 ||
                      strncmp(line + 1, "fit", 3) == 0 || strncmp(line + 1, "check", 5) == 0 ||
                      strncmp(line + 1, "loader", 6) == 0 ||
                      strncmp(line + 1, "train_main", 10) == 0;
        if (word)
            fits &= put(out, of_main ? "TAKEN_MAIN" : "TAKEN_FILE", word, n);
    }
    while (*s) {
        size_t own = strncmp(s, "MODEL_", 6) == 0 ? 6 : strncmp(s, "%s_", 3) == 0 ? 3 : 0;
        size_t n = word_length(s + own);
        bool whole = n > 0 && s[own + n] != '%';
        if (own && whole && is_capital(s + own, n))
            fits &= put(out, "TAKEN_OWN", s + own, n);
        else if (!own && whole && defines && !isdigit((unsigned char)*s))
            fits &= put(out, "TAKEN", s, n);
        size_t call = own                             ? 0
                      : strncmp(s, "TRY(", 4) == 0    ? 4
                      : strncmp(s, "TRY_AS(", 7) == 0 ? 7
                                                      : 0;
        if (call && word_length(s + call) > 0)
            fits &= put(out, "TAKEN_CALL", s + call, word_length(s + call));
        defines = (own + n == 6 && s > text && strncmp(s - 1, "#define", 7) == 0) ||
                  (own + n == 0 && defines && *s == ' ');
        s += own + n ? own + n : 1;
    }
    return fits;
}

/* The length of the comment or literal that begins at s, or 0. */
static size_t unit_length(const char *s)
{
    size_t n = 1;
    if (s[0] == '/' && s[1] == '*') {
        const char *end = strstr(s + 2, "*/");
        return end ? (size_t)(end + 2 - s) : strlen(s);
    }
    if (*s != '"' && *s != '\'')
        return 0;
    while (s[n] && s[n] != *s)
        n += s[n] == '\\' && s[n + 1] ? 2 : 1;
    return n + (s[n] != 0);
}

/* Joins a file's string literals; escapes become blanks, except newlines. The first three of a
 * SNIPPET (file, name, needs) become a line of their own that begins with a form feed. to: room
 * for 1.5 times s. */
static void join_literals(const char *s, char *to)
{
    int heads = 0;
    for (size_t n; *s; s += n ? n : 1) {
        n = unit_length(s);
        if (strncmp(s, "SNIPPET(", 8) == 0) {
            *to++ = '\n';
            *to++ = '\f';
            heads = 3;
        }
        for (size_t i = 1; *s == '"' && i + 1 < n; i++) {
            bool escape = s[i] == '\\';
            *to++ = !escape ? s[i] : s[i + 1] == 'n' ? '\n' : ' ';
            i += escape;
        }
        if (*s == '"' && heads > 0 && --heads == 0)
            *to++ = '\n';
    }
    *to = 0;
}

static int read_file(FILE *out, const char *path)
{
    FILE *in = fopen(path, "rb");
    size_t cap = 1 << 22, n = 0;
    char *text = malloc(cap), *literals = malloc(cap + cap / 2);
    bool ok =
        in && text && literals && (n = fread(text, 1, cap - 1, in)) < cap - 1 && fclose(in) == 0;
    if (ok) {
        text[n] = 0;
        join_literals(text, literals);
        ok = scan(out, literals);
    }
    if (!ok)
        fprintf(stderr, "%s: cannot be read whole, or has too many words\n", path);
    free(text);
    free(literals);
    return !ok;
}

int main(int argc, char **argv)
{
    FILE *out = argc > 2 ? fopen(argv[1], "w") : NULL;
    int failed = out == NULL;
    for (int i = 2; i < argc && out; i++)
        failed |= read_file(out, argv[i]);
    return (out && fclose(out) != 0) | failed;
}
