/* embed.c - writes files as arrays of bytes, those in a row with one extension as one array,
 * page_EXTENSION. Runs at build time: embed OUT FILE... */
#include <stdio.h>
#include <string.h>

static const char *extension(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : "";
}

int main(int argc, char **argv)
{
    FILE *out = argc > 2 ? fopen(argv[1], "w") : NULL;
    if (!out) {
        fputs("usage: embed OUT FILE...\n", stderr);
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        FILE *in = fopen(argv[i], "rb");
        if (!in) {
            perror(argv[i]);
            return 1;
        }
        if (i == 2 || strcmp(extension(argv[i - 1]), extension(argv[i])) != 0)
            fprintf(out, "%sstatic const char page_%s[] = {", i > 2 ? "\n};\n" : "",
                    extension(argv[i]));
        for (int c, n = 0; (c = fgetc(in)) != EOF; n++)
            fprintf(out, "%s%d,", n % 24 ? "" : "\n    ", c < 128 ? c : c - 256);
        if (ferror(in) | fclose(in))
            return 1;
    }
    fputs("\n};\n", out);
    return fclose(out) != 0;
}
