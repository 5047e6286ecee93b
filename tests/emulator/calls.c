/* SPDX-License-Identifier: 0BSD */
/* calls.c - what all drivers' functions share: a lock, a count, failures on demand, a list.
 *
 *      TGC_EMULATOR_FAIL=7      the 7th call that can fail does
 *      TGC_EMULATOR_FAIL=7+     and all that follow: the device is lost
 *      TGC_EMULATOR_FAIL=7:-6   with that status
 *      TGC_EMULATOR_LOG=FILE    appends a line for each call: its name, and its status if any
 */
#define _GNU_SOURCE
#include "emulator.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
    pthread_mutex_t lock;
    const char *now; /* the function that runs */
    long count, fail_at;
    int32_t fail_by;
    bool fails_on;
    FILE *log;
} calls = {.lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};

void emulator_reset(void)
{
    const char *fail = getenv("TGC_EMULATOR_FAIL"), *log = getenv("TGC_EMULATOR_LOG");
    char *end = NULL;
    device_read();
    report_reset();
    calls.count = 0;
    calls.fail_at = fail ? strtol(fail, &end, 10) : 0;
    calls.fails_on = end && *end == '+';
    calls.fail_by = end && *end == ':' ? (int32_t)strtol(end + 1, NULL, 10) : 0;
    if (calls.log)
        fclose(calls.log);
    calls.log = log ? fopen(log, "a") : NULL;
}

__attribute__((constructor)) static void begin(void) { emulator_reset(); }

__attribute__((destructor)) static void end(void)
{
    if (calls.log)
        fclose(calls.log);
}

long emulator_calls(void) { return calls.count; }

void call_enter(const char *name)
{
    pthread_mutex_lock(&calls.lock);
    calls.now = name;
}

int32_t call_leave(const char *name, int32_t status)
{
    if (calls.log) {
        fprintf(calls.log, "%s %d\n", name, status);
        fflush(calls.log);
    }
    pthread_mutex_unlock(&calls.lock);
    return status;
}

void call_note(const char *name)
{
    calls.now = name;
    if (calls.log) {
        fprintf(calls.log, "%s\n", name);
        fflush(calls.log);
    }
}

int32_t call_count(int32_t failure, int32_t later)
{
    const long n = failure ? ++calls.count : 0;
    const bool is_later = calls.fails_on && calls.fail_at > 0 && n > calls.fail_at;
    if (n == 0 || (n != calls.fail_at && !is_later))
        return 0;
    return calls.fail_by ? calls.fail_by : is_later ? later : failure;
}

bool device_is_lost(void)
{
    return calls.fails_on && calls.fail_at > 0 && calls.count >= calls.fail_at;
}

int32_t misuse(int32_t status, const char *format, ...)
{
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    report("%s: %s", calls.now, line);
    return status;
}
