/* web.c - the JavaScript beside a WebAssembly module: runtime/web.mjs with the program's names. It
 * depends on nothing else of the model, whose NAME_describe() it reads. */
#include "backends/program/program.h"

#include <string.h>

#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Woverlength-strings"
#endif

static const char text[] =
#define SNIPPET(file, name, needs, body) body
#include "runtime/web.inc"
#undef SNIPPET
    ;

/* A file's stem as a part of a URL, which strings and comments of JavaScript hold as it is. */
static void write_stem(struct text *out, const char *s)
{
    for (; *s; s++)
        if ((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') ||
            strchr("._~-", *s))
            text_putc(out, *s);
        else
            text_printf(out, "%%%02X", (unsigned char)*s);
}

void program_write_web(const char *name, const char *stem, bool has_file, struct text *out)
{
    static const char words[][16] = {"MODEL_FILE", "MODEL_NAME", "WEIGHTS_FILE"};
    for (const char *s = text; *s;) {
        size_t word = 0;
        while (word < 3 && strncmp(s, words[word], strlen(words[word])) != 0)
            word++;
        if (word == 0)
            write_stem(out, stem);
        else if (word < 3)
            text_puts(out, word == 1 ? name : has_file ? "true" : "false");
        else
            text_putc(out, *s);
        s += word < 3 ? strlen(words[word]) : 1;
    }
}
