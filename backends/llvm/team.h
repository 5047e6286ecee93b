/* team.h - the threads of a program in this process. */
#ifndef TGC_LLVM_TEAM_H
#define TGC_LLVM_TEAM_H

enum { PROGRAM_THREADS = 1024 }; /* the most that a team has, its caller among them */

struct team;
/* A team of `workers` threads beside the caller, which wait for work. NULL: the system gives no
 * more threads, or no memory. */
struct team *team_new(int workers);
void team_free(struct team *team);
/* Runs body(context, 0) ... body(context, workers), each in a thread. saves: nanoseconds that
 * sharing saves, roughly. One caller at a time. */
void team_share(struct team *team, void (*body)(void *context, int part), void *context,
                long saves);

#endif
