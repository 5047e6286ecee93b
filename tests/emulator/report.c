/* SPDX-License-Identifier: 0BSD */
/* report.c - what was found, a line each.
 */
#define _GNU_SOURCE
#include "emulator.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 1024, MOST = 50 };

static struct {
    char line[MOST][LINE];
    int n;
} reported;

int emulator_reports(void) { return reported.n; }

void report_reset(void) { reported.n = 0; }

void report(const char *format, ...)
{
    char line[LINE];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    for (int i = 0; i < reported.n && i < MOST; i++)
        if (strcmp(reported.line[i], line) == 0)
            return;
    if (reported.n < MOST)
        memcpy(reported.line[reported.n], line, sizeof line);
    reported.n++;
    if (reported.n > MOST)
        return;
    const char *path = getenv("TGC_EMULATOR_REPORT");
    FILE *out = path && *path ? fopen(path, "a") : stderr;
    fprintf(out ? out : stderr, "emulator: %s\n", line);
    if (out && out != stderr)
        fclose(out);
}

/* Line `number` of a file, without the white space around it. */
static void read_line(const char *path, long number, char *line, size_t size)
{
    FILE *file = fopen(path, "r");
    *line = '\0';
    for (long i = 0; file && i < number; i++)
        if (!fgets(line, (int)size, file))
            *line = '\0';
    if (file)
        fclose(file);
    size_t begin = strspn(line, " \t"), end = strlen(line);
    while (end > begin && strchr(" \t\n", line[end - 1]))
        end--;
    memmove(line, line + begin, end - begin);
    line[end - begin] = '\0';
}

const char *report_line(const struct module *m, const void *code)
{
    static char text[LINE];
    char command[2 * sizeof m->path], place[LINE] = "", line[LINE / 2] = "";
    snprintf(text, sizeof text, "an unknown line");
    if (!code)
        return text;
    /* a return address is the next instruction's */
    snprintf(command, sizeof command, "addr2line -e '%s' 0x%zx 2>/dev/null", m->path,
             (size_t)((uintptr_t)code - m->begin - 1));
    FILE *pipe = popen(command, "r");
    if (pipe && !fgets(place, sizeof place, pipe))
        *place = '\0';
    if (pipe)
        pclose(pipe);
    char *colon = strrchr(place, ':');
    long number = colon ? strtol(colon + 1, NULL, 10) : 0;
    if (number <= 0)
        return text;
    *colon = '\0';
    read_line(place, number, line, sizeof line);
    snprintf(text, sizeof text, "line %ld: %s", number, line);
    return text;
}
