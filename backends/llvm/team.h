/* team.h - the threads of a program in this process. */
#ifndef TGC_LLVM_TEAM_H
#define TGC_LLVM_TEAM_H

enum { PROGRAM_THREADS = 1024 }; /* the most that a team has, its caller among them */

struct team;
/* So many threads beside the caller, that wait for work. NULL: the system gives no more of
 * them, or no memory. */
struct team *team_new(int workers);
void team_free(struct team *team);
/* Runs body(context, 0) ... body(context, workers), each in a thread, which saves so many
 * nanoseconds, more or less. One caller at a time. */
void team_share(struct team *team, void (*body)(void *context, int part), void *context,
                long saves);

#endif
