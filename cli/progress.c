/* progress.c - a line on the terminal about long work: it replaces the one before, and is removed
 * when the work is done. There is none if stderr is not a terminal.
 */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool progress_is_wanted(const struct options *o)
{
    const char *terminal = getenv("TERM");
    return isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0 && !o->verbose &&
           !o->diagnostics_json;
}

void progress(const struct options *o, const char *format, ...)
{
    va_list ap;
    if (!o->progress)
        return;
    fputs("\r\033[K", stderr);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fflush(stderr);
}

void progress_end(const struct options *o) { progress(o, "%s", ""); }
