/* listen.c - tells those who listen what is being done. */
#include "lib/lib.h"

#include <stdarg.h>

void progress(struct tgc *t, const char *format, ...)
{
    char what[256];
    va_list ap;
    tgc_poll(t);
    if (!t->listener || !t->listener->on_progress)
        return;
    va_start(ap, format);
    vsnprintf(what, sizeof what, format, ap);
    va_end(ap);
    t->listener->on_progress(t->listener->user, what);
}

void progress_end(struct tgc *t)
{
    if (t->listener && t->listener->on_progress)
        t->listener->on_progress(t->listener->user, "");
}

void report_stage(const struct tgc *t, const char *what, double since)
{
    if (t->listener && t->listener->on_stage)
        t->listener->on_stage(t->listener->user, what, clock_seconds() - since, t->mem_used);
}

void report_text(const struct tgc *t, const char *text)
{
    if (t->listener && t->listener->on_text)
        t->listener->on_text(t->listener->user, text);
}
