/* embed.c - turns runtime/ into tables of C strings for backends/snippets.c. Runs at build time: embed OUT FILE...
 *
 * A file of runtime/ is C that compiles by itself. A line "//@ name need need" opens a piece, which ends at the next such line; what
 * stands before the first one (includes, for compiling alone) is left out. Each piece becomes  SNIPPET(file, name, needs, text).
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void put_line(FILE *out, const char *s)
{
    fputs("\n    \"", out);
    for (; *s && *s != '\n'; s++) {
        if (*s == '"' || *s == '\\' || *s == '?')
            fputc('\\', out);
        fputc(*s, out);
    }
    fputs("\\n\"", out);
}

static void stem_of(const char *path, char *stem, size_t size)
{
    const char *slash = strrchr(path, '/');
    snprintf(stem, size, "%s", slash ? slash + 1 : path);
    char *dot = strrchr(stem, '.');
    if (dot)
        *dot = 0;
}

static int embed(FILE *out, const char *path)
{
    FILE *in = fopen(path, "r");
    if (!in) {
        perror(path);
        return 1;
    }
    char line[1024], stem[128], blank = 0;
    bool open = false;
    stem_of(path, stem, sizeof stem);
    while (fgets(line, sizeof line, in)) {
        if (strncmp(line, "//@ ", 4) == 0) {
            line[strcspn(line, "\n")] = 0;
            char *name = line + 4, *needs = strchr(name, ' ');
            if (needs)
                *needs++ = 0;
            fprintf(out, "%sSNIPPET(\"%s\", \"%s\", \"%s\",", open ? ")\n" : "", stem, name, needs ? needs : "");
            open = true;
            blank = 0;
            fputs("\n    \"\"", out);
        } else if (open && line[0] == '\n') {
            blank = 1;                     /* blank lines at the end of a piece are dropped */
        } else if (open) {
            if (blank)
                put_line(out, "");
            blank = 0;
            put_line(out, line);
        }
    }
    if (open)
        fputs(")\n", out);
    return fclose(in) != 0;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fputs("usage: embed OUT FILE...\n", stderr);
        return 2;
    }
    FILE *out = fopen(argv[1], "w");
    if (!out) {
        perror(argv[1]);
        return 1;
    }
    int failed = 0;
    for (int i = 2; i < argc; i++)
        failed |= embed(out, argv[i]);
    return (fclose(out) != 0) | failed;
}
