/* process.h - another program that works for this one. */
#ifndef TGC_PROCESS_H
#define TGC_PROCESS_H

#include "ir/ir.h"

/* word: up to NULL, the first one is found on PATH. folder: where it runs; temporary: where it puts
 * its own temporary files; NULL: as this process. file: its standard input, output and error; -1:
 * this process's. */
struct process {
    const char *const *word;
    const char *folder, *temporary;
    int file[3];
};
/* Runs it to its end. Returns its exit status, 128 and the signal, or -errno: it was not started. A
 * listener that hears of processes gets it in a process group of its own, so that it can end it
 * together with what it has started. */
int process_run(struct tgc *t, const struct process *p);

#endif
