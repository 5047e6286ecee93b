/* embed.c - writes files as arrays of bytes, page_NAME_EXTENSION. Runs at build time: embed OUT
 * FILE... */
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    FILE *out = argc > 2 ? fopen(argv[1], "w") : NULL;
    if (!out) {
        fputs("usage: embed OUT FILE...\n", stderr);
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        const char *slash = strrchr(argv[i], '/'), *name = slash ? slash + 1 : argv[i];
        FILE *in = fopen(argv[i], "rb");
        if (!in) {
            perror(argv[i]);
            return 1;
        }
        fputs("static const char page_", out);
        for (; *name; name++)
            fputc(*name == '.' ? '_' : *name, out);
        fputs("[] = {", out);
        for (int c, n = 0; (c = fgetc(in)) != EOF; n++)
            fprintf(out, "%s%d,", n % 24 ? "" : "\n    ", c < 128 ? c : c - 256);
        fputs("\n};\n", out);
        if (ferror(in) | fclose(in))
            return 1;
    }
    return fclose(out) != 0;
}
