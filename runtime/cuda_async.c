/* SPDX-License-Identifier: 0BSD */
/* cuda_async.c - asynchronous copies from global to shared memory (cp.async); zeros where `valid`
 * is false. wait_copies() makes a group's copies visible to the thread that issued them; other
 * threads need a barrier, too. Copies of 16 bytes bypass L1.
 *
 * TGC_COPY_MODEL(to, from, nbytes, valid), TGC_COMMIT_MODEL() and TGC_WAIT_MODEL(n), if defined,
 * replace the instructions: the emulator's models of them.
 */
#include <stdbool.h>

//@ cuda_copy_async4
static inline void copy_async4(void *to, const void *from, bool valid)
{
#ifdef TGC_COPY_MODEL
    TGC_COPY_MODEL(to, from, 4, valid);
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 ::"r"((unsigned)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(valid ? 4 : 0) : "memory");
#endif
}

//@ cuda_copy_async8
static inline void copy_async8(void *to, const void *from, bool valid)
{
#ifdef TGC_COPY_MODEL
    TGC_COPY_MODEL(to, from, 8, valid);
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                 ::"r"((unsigned)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(valid ? 8 : 0) : "memory");
#endif
}

//@ cuda_copy_async16
static inline void copy_async16(void *to, const void *from, bool valid)
{
#ifdef TGC_COPY_MODEL
    TGC_COPY_MODEL(to, from, 16, valid);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"((unsigned)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(valid ? 16 : 0) : "memory");
#endif
}

//@ cuda_commit_copies
/* Makes a group of the thread's copies since the last call. */
static inline void commit_copies()
{
#ifdef TGC_COMMIT_MODEL
    TGC_COMMIT_MODEL();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

//@ cuda_wait_copies
/* Waits until at most the thread's n newest groups are pending. */
template <int n> static inline void wait_copies()
{
#ifdef TGC_WAIT_MODEL
    TGC_WAIT_MODEL(n);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}
