/* embed.c - turns runtime/ into tables of C strings for backends/program/snippets.c. Runs at build
 * time: embed OUT FILE...
 *
 * A file of runtime/ is C that compiles by itself (except main.c). A line "//@ name need need"
 * begins a piece, which ends at the next such line. What precedes the first piece (includes and
 * typedefs, for compiling the file by itself) is left out. Each piece becomes
 *      SNIPPET(file, name, needs, text)
 *
 * A line "//@for f32:float i64:int64_t" repeats the pieces up to the next such line for each pair:
 * _T at the end of a word becomes _f32, the word T becomes float.
 *
 * as_T(v) and as_bits_T(v) reinterpret bits, as OpenCL C's functions do. A piece that calls them is
 * embedded twice: for C with casts, (T)v, and as it is, with the prefix opencl_.
 *
 * embed --code OUT FILE... writes the pieces as C instead, with PROGRAM_ for MODEL_: tgc calls them
 * itself. Pieces that need one of a file that is not given are left out. Where PIECE is defined,
 * the file consists of PIECE(name) for each piece that is a function.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char OPENCL[] = "opencl_";

struct type { char suffix[32], word[32]; };

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* For --code: the names of the pieces so far, and which are functions. */
enum { MOST_PIECES = 1024, MOST_NAME = 64, MOST_TYPES = 24 };
static struct { char name[MOST_NAME]; bool is_function; } piece_list[MOST_PIECES];
static int npiece;

/* The length of as_T or as_bits_T, if a call of that begins here; else 0. */
static int cast_length(const char *s, const char *p, const char *end)
{
    int n = 0;
    while (p + n < end && is_word(p[n]))
        n++;
    bool is_whole = (p == s || !is_word(p[-1])) && p + n < end && p[n] == '(';
    return is_whole && n > 3 && strncmp(p, "as_", 3) == 0 && p[n - 1] == 'T' ? n : 0;
}

/* Returns the position after the parenthesis that closes the one at p. */
static const char *behind(const char *p)
{
    int depth = 0;
    do
        depth += *p == '(' ? 1 : *p == ')' ? -1 : 0;
    while (*p++ && depth > 0);
    return p;
}

/* Is the text a word, or a call of one? */
static bool is_primary(const char *s, const char *end)
{
    const char *p = s;
    while (p < end && is_word(*p))
        p++;
    return p > s && (p == end || (*p == '(' && behind(p) == end));
}

static void put_text(FILE *out, const char *s, const char *end, const struct type *t, bool code,
                     bool casts);

/* Writes a call of as_T, whose name has n letters, as a cast. Returns the
 * position after the call. */
static const char *put_cast(FILE *out, const char *p, int n, const struct type *t, bool code)
{
    const char *stop = behind(p + n);
    bool bare = is_primary(p + n + 1, stop - 1);
    fputc('(', out);
    put_text(out, p + 3, p + n, t, code, false);
    fputc(')', out);
    put_text(out, p + n + bare, stop - bare, t, code, true);
    return stop;
}

/* Writes the text up to `end`, with T replaced. With `code` MODEL_ is replaced, otherwise quotes
 * are escaped. casts: calls of as_T become casts. */
static void put_text(FILE *out, const char *s, const char *end, const struct type *t, bool code,
                     bool casts)
{
    for (const char *p = s; p < end; p++) {
        int cast = casts && t ? cast_length(s, p, end) : 0;
        if (cast) {
            p = put_cast(out, p, cast, t, code) - 1;
            continue;
        }
        if (code && end - p > 6 && strncmp(p, "MODEL_", 6) == 0 && (p == s || !is_word(p[-1]))) {
            fputs("PROGRAM_", out);
            p += 5;
            continue;
        }
        bool ends_word = *p == 'T' && t && (p + 1 == end || !is_word(p[1]));
        if (ends_word && p > s && p[-1] == '_' && p > s + 1 && is_word(p[-2])) {
            fputs(t->suffix, out);
        } else if (ends_word && (p == s || !is_word(p[-1]))) {
            fputs(t->word, out);
        } else {
            if (!code && (*p == '"' || *p == '\\' || *p == '?'))
                fputc('\\', out);
            fputc(*p, out);
        }
    }
}

static void put_piece(FILE *out, const char *file, const char *head, const char *body,
                      const char *end, const struct type *t, const char *prefix)
{
    size_t name = strcspn(head, " \n"), line = strcspn(head, "\n");
    const char *needs = head[name] == ' ' ? head + name + 1 : head + name;
    bool casts = !*prefix && strncmp(head, OPENCL, strlen(OPENCL)) != 0;
    while (end > body && end[-1] == '\n')
        end--;
    fprintf(out, "SNIPPET(\"%s\", \"%s", file, prefix);
    put_text(out, head, head + name, t, false, false);
    fputs("\", \"", out);
    put_text(out, needs, head + line, t, false, false);
    fputs("\",", out);
    if (body >= end)             /* another piece, which it needs, defines it */
        fputs("\"\"", out);
    while (body < end) {
        const char *stop = memchr(body, '\n', (size_t)(end - body));
        stop = stop ? stop : end;
        fputs("\n    \"", out);
        put_text(out, body, stop, t, false, casts);
        fputs("\\n\"", out);
        body = stop + 1;
    }
    fputs(")\n", out);
}

/* A name with T replaced. */
static void name_of(char *name, const char *s, size_t n, const struct type *t)
{
    if (t && n > 2 && s[n - 1] == 'T' && s[n - 2] == '_')
        snprintf(name, MOST_NAME, "%.*s%s", (int)n - 1, s, t->suffix);
    else if (t && n == 1 && *s == 'T')
        snprintf(name, MOST_NAME, "%s", t->word);
    else
        snprintf(name, MOST_NAME, "%.*s", (int)n, s);
}

static bool is_known(const char *name)
{
    for (int i = 0; i < npiece; i++)
        if (strcmp(piece_list[i].name, name) == 0)
            return true;
    return false;
}

/* Does the text define the function `name`: does `name(` follow a blank or a star? */
static bool defines(const char *body, const char *end, const char *name, size_t n)
{
    for (const char *p = body; p + n + 1 < end; p++)
        if (p > body && (p[-1] == ' ' || p[-1] == '*') && strncmp(p, name, n) == 0 && p[n] == '(')
            return true;
    return false;
}

static bool has_casts(const char *body, const char *end)
{
    for (const char *p = body; p < end; p++)
        if (cast_length(body, p, end))
            return true;
    return false;
}

static void put_code(FILE *out, const char *head, const char *body, const char *end,
                     const struct type *t)
{
    size_t n = strcspn(head, " \n");
    char name[MOST_NAME], need[MOST_NAME];
    if (strncmp(head, OPENCL, strlen(OPENCL)) == 0)
        return;
    for (const char *s = head + n; *s == ' ';) {
        size_t length = strcspn(++s, " \n");
        name_of(need, s, length, t);
        if (!is_known(need))
            return;
        s += length;
    }
    name_of(name, head, n, t);
    if (npiece == MOST_PIECES || is_known(name))
        return;
    piece_list[npiece].is_function = defines(body, end, head, n);
    strcpy(piece_list[npiece++].name, name);
    put_text(out, body, end, t, true, true);
    fputc('\n', out);
}

static int read_types(const char *s, struct type *type, int most)
{
    int n = 0;
    char line[1024];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(s, "\n"), s);
    for (char *word = strtok(line, " "); word && n < most; word = strtok(NULL, " "), n++) {
        char *colon = strchr(word, ':');
        if (!colon)
            return 0;
        *colon = 0;
        snprintf(type[n].suffix, sizeof type[n].suffix, "%s", word);
        snprintf(type[n].word, sizeof type[n].word, "%s", colon + 1);
    }
    return n;
}

/* The file's name without its extension; "host" for all of host/. */
static void stem_of(const char *path, char *stem, size_t size)
{
    static const char *const folders[] = {"host", "loader", "ranks"};
    const char *slash = strrchr(path, '/');
    for (size_t i = 0; i < sizeof folders / sizeof *folders && slash; i++) {
        size_t n = strlen(folders[i]);
        if ((size_t)(slash - path) >= n && strncmp(slash - n, folders[i], n) == 0) {
            snprintf(stem, size, "%s", folders[i]);
            return;
        }
    }
    snprintf(stem, size, "%s", slash ? slash + 1 : path);
    char *dot = strrchr(stem, '.');
    if (dot)
        *dot = 0;
}

/* The pieces of text[0..end), once for each type. */
static void embed_section(FILE *out, const char *file, const char *text, const char *end,
                          const struct type *type, bool code)
{
    const char *piece = strstr(text, "//@ ");
    while (piece && piece < end) {
        const char *next = strstr(piece + 4, "\n//@ ");
        next = next && next < end ? next + 1 : end;
        const char *head = piece + 4, *body = head + strcspn(head, "\n");
        if (code)
            put_code(out, head, body + (*body == '\n'), next, type);
        else
            put_piece(out, file, head, body + (*body == '\n'), next, type, "");
        if (!code && strncmp(head, OPENCL, strlen(OPENCL)) != 0 && has_casts(body, next))
            put_piece(out, file, head, body + (*body == '\n'), next, type, OPENCL);
        piece = next;
    }
}

static void embed_text(FILE *out, const char *file, const char *text, bool code)
{
    struct type type[MOST_TYPES];
    int ntype = 0;
    while (*text) {
        const char *next = strstr(text, "//@for "), *end = next ? next : text + strlen(text);
        for (int k = 0; k < (ntype > 0 ? ntype : 1); k++)
            embed_section(out, file, text, end, ntype > 0 ? &type[k] : NULL, code);
        if (next)
            ntype = read_types(next + strlen("//@for "), type, MOST_TYPES);
        text = end + (next ? strcspn(next, "\n") : 0);
    }
}

static int embed(FILE *out, const char *path, bool code)
{
    char stem[128];
    FILE *in = fopen(path, "rb");
    if (!in) {
        perror(path);
        return 1;
    }
    size_t cap = 1 << 20, n;
    char *text = malloc(cap);
    n = text ? fread(text, 1, cap - 1, in) : 0;
    if (!text || n == cap - 1 || ferror(in)) {
        fprintf(stderr, "%s: cannot be read whole\n", path);
        return 1;
    }
    text[n] = 0;
    stem_of(path, stem, sizeof stem);
    embed_text(out, stem, text, code);
    free(text);
    return fclose(in) != 0;
}

int main(int argc, char **argv)
{
    bool code = argc > 1 && strcmp(argv[1], "--code") == 0;
    argc -= code;
    argv += code;
    if (argc < 3) {
        fputs("usage: embed [--code] OUT FILE...\n", stderr);
        return 2;
    }
    FILE *out = fopen(argv[1], "w");
    if (!out) {
        perror(argv[1]);
        return 1;
    }
    int failed = 0;
    if (code)
        fputs("#ifndef PIECE\n", out);
    for (int i = 2; i < argc; i++)
        failed |= embed(out, argv[i], code);
    if (code)
        fputs("#else\n", out);
    for (int i = 0; i < npiece; i++)
        if (piece_list[i].is_function)
            fprintf(out, "PIECE(%s)\n", piece_list[i].name);
    if (code)
        fputs("#endif\n", out);
    return (fclose(out) != 0) | failed;
}
