/* check.h - what the programs here have in common: a wrong answer ends them with its line. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <tgc.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline void print_messages(const tgc_compiler *c)
{
    for (size_t i = 0; i < tgc_message_count(c); i++) {
        const tgc_message *m = tgc_message_get(c, i);
        fprintf(stderr, "%d %s:%d:%d [%s] %s\n", (int)m->severity, m->file ? m->file : "", m->line,
                m->column, m->place ? m->place : "", m->text);
    }
}

/* A status that should be this one. */
static inline void expect_status(int line, const tgc_compiler *c, tgc_status got, tgc_status want)
{
    if (got == want)
        return;
    fprintf(stderr, "line %d: status %d (%s), %d is expected\n", line, (int)got,
            tgc_status_text(got), (int)want);
    print_messages(c);
    exit(1);
}
#define EXPECT(c, got, want) expect_status(__LINE__, (c), (got), (want))

/* Some message contains the text. */
static inline int says(const tgc_compiler *c, const char *text)
{
    for (size_t i = 0; i < tgc_message_count(c); i++)
        if (strstr(tgc_message_get(c, i)->text, text))
            return 1;
    print_messages(c);
    return 0;
}

/* Whether a process has worked for this one, as LLVM's does. */
static inline int had_process(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_CHILDREN, &usage) == 0);
    return usage.ru_maxrss > 0;
}

static inline tgc_compiler *compiler_for(const char *model)
{
    tgc_compiler *c = tgc_compiler_new();
    CHECK(c);
    EXPECT(c, tgc_source_file(c, model), TGC_OK);
    return c;
}

#endif
