/* filter.c - see filter.h. */
#include "backends/filter.h"
#include "backends/process.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { IN, OUT, SAID, FILES };

static struct text read_all(struct tgc *t, FILE *file)
{
    struct text s = {.t = t};
    char part[4096];
    rewind(file);
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;)
        text_write(&s, part, n);
    return s;
}

static bool run(struct tgc *t, const char *const *word, FILE *const *file, const void *in,
                size_t nbytes, struct filtered *f)
{
    struct process p = {.word = word,
                        .file = {fileno(file[IN]), fileno(file[OUT]), fileno(file[SAID])}};
    if (fwrite(in, 1, nbytes, file[IN]) != nbytes || fflush(file[IN]) != 0 ||
        fseek(file[IN], 0, SEEK_SET) != 0)
        return diag_error(t, NULL, "no room for a temporary file: %s", strerror(errno));
    int status = process_run(t, &p);
    if (status < 0)
        return diag_error(t, NULL, "cannot run '%s': %s", word[0], strerror(-status));
    *f = (struct filtered){status, read_all(t, file[OUT]), read_all(t, file[SAID])};
    return true;
}

bool filter_run(struct tgc *t, const char *const *word, const void *in, size_t nbytes,
                struct filtered *f)
{
    FILE *file[FILES] = {NULL};
    bool done = true;
    for (int i = 0; i < FILES && done; i++) {
        file[i] = tmpfile();
        done = file[i] != NULL;
    }
    done = done ? run(t, word, file, in, nbytes, f)
                : diag_error(t, NULL, "no temporary file for '%s': %s", word[0], strerror(errno));
    for (int i = 0; i < FILES; i++)
        if (file[i])
            fclose(file[i]);
    return done;
}
