/* process.h - processes that work for this one: a program, or a copy of this one (child.h). */
#ifndef TGC_PROCESS_H
#define TGC_PROCESS_H

#include "ir/ir.h"

#include <sys/types.h>

/* word: up to NULL, the first one is found on PATH. folder: where it runs; temporary: where it puts
 * its own temporary files; NULL: as this process. file: its standard input, output and error; -1:
 * this process's. */
struct process {
    const char *const *word;
    const char *folder, *temporary;
    int file[3];
};
/* Runs it to its end. Returns its exit status, 128 and the signal, or -errno if it was not
 * started. */
int process_run(struct tgc *t, const struct process *p);

/* What every process begins and ends with. A listener that hears of processes gets each in a
 * process group of its own, so that it can end it together with what it has started; it hears of it
 * before a signal can end this process. The new process has the signals' usual actions, and does
 * live(what) alone. Returns its number; -1: errno says why there is none. */
pid_t process_fork(struct tgc *t, void (*live)(void *what), void *what);
/* Waits for its end, which with `kills` is now. Returns what waitpid() says of it; -1: errno. */
int process_end(const struct tgc *t, pid_t pid, bool kills);

#endif
