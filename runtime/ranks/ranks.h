/* SPDX-License-Identifier: 0BSD */
/* ranks.h - processes that do one work together: ranks 0 to size - 1.
 *
 *      transport   exchange(): messages between ranks     mpi.c   started by mpirun
 *                                                         fork.c  started by the program itself
 *      collective  ranks_sum(), ranks_share() ...         sum.c   over any transport
 *
 * Every rank calls the same functions in the same order, with as many bytes. A rank that ends, or
 * that does not come within the time-out, is an error of every other rank, which names it; after
 * that nothing else may be called but ranks_close(). It needs libc alone; libmpi is opened where a
 * launcher has started the program. Nothing here prints or exits.
 *
 * The files of this folder are also pieces that a program can carry (runtime/embed.c). There
 * RANKS_API is `static inline`. MODEL_NO_RANKS: there is one rank alone.
 */
//@ ranks_interface
#ifndef RANKS_H
#define RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef RANKS_API
#define RANKS_API
#endif

enum { RANKS_ERROR_NBYTES = 512, RANKS_MOST = 1024 };

/* Bytes from or to the rank `peer`. Between two ranks messages keep their order. */
struct ranks_message {
    int peer;
    bool sends;
    void *data;
    size_t nbytes;
};

/* Begins as all zeros, with a timeout. */
struct ranks {
    int rank, size;
    double timeout; /* seconds that one call waits for others */
    void *own;      /* the transport's; NULL: one rank */
    bool (*exchange)(struct ranks *r, struct ranks_message *m, int n);
    void (*close)(struct ranks *r, bool is_done);
    char error[RANKS_ERROR_NBYTES]; /* of a call that has failed */
};

/* ---------------------------------------------------------------------------------------- sum.c */

/* to[n] += from[n], of f32, or f64 where is_wide. */
RANKS_API void ranks_add(void *to, const void *from, size_t n, bool is_wide);

/* Bytes of scratch that ranks_sum() needs. */
RANKS_API size_t ranks_sum_scratch(const struct ranks *r, size_t n, bool is_wide);
/* x[n] becomes the sum over all ranks, the same bits in each, by the tree ((0+1) + (2+3)) + ...
 * of ranks. Each rank adds up one part of x; 2 (size - 1) / size of x's bytes leave
 * and reach a rank, as few as possible. */
RANKS_API bool ranks_sum(struct ranks *r, void *x, size_t n, bool is_wide, void *scratch);
/* data[nbytes] becomes rank 0's. */
RANKS_API bool ranks_share(struct ranks *r, void *data, size_t nbytes);
/* all[size * nbytes] becomes what each rank has in data. */
RANKS_API bool ranks_gather(struct ranks *r, const void *data, size_t nbytes, void *all);

/* ---------------------------------------------------------------------------- mpi.c, fork.c */

/* What started this program: how many ranks there shall be by the environment of mpirun, srun or
 * mpiexec; 1: nothing that is known here. */
RANKS_API int ranks_launched(void);
/* Joins the ranks that a launcher has started. false: r->error */
RANKS_API bool ranks_join_mpi(struct ranks *r, int expected);
/* This process becomes rank 0, and its copies ranks 1 to size - 1; each goes on from here. needs:
 * no threads. false: r->error */
RANKS_API bool ranks_fork(struct ranks *r, int size);
/* Last words of a rank that is to end, which others are told; NULL-terminated text. */
RANKS_API void ranks_say(struct ranks *r, const char *text);
/* is_done: the work is done, and all ranks come here. Otherwise others are left to notice. Rank 0
 * of ranks_fork() waits for the others' end. */
RANKS_API void ranks_close(struct ranks *r, bool is_done);

#endif
