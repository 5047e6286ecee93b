/* SPDX-License-Identifier: 0BSD */
/* cuda_async.c - copies from global to shared memory that no thread waits for while they are made: zeros where
 * `valid` is false. They are there when wait_copies() of their group has returned, for the thread that has made them;
 * for others behind a barrier more. Sixteen bytes go past the first cache.
 *
 * TGC_COPY_MODEL(to, from, nbytes, valid), TGC_COMMIT_MODEL() and TGC_WAIT_MODEL(n), if they are defined, do the same.
 */
#include <stdbool.h>

//@ cuda_copy_async4
static inline void copy_async4(void *to, const void *from, bool valid)
{
#ifdef TGC_COPY_MODEL
    TGC_COPY_MODEL(to, from, 4, valid);
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(valid ? 4 : 0) : "memory");
#endif
}

//@ cuda_copy_async8
static inline void copy_async8(void *to, const void *from, bool valid)
{
#ifdef TGC_COPY_MODEL
    TGC_COPY_MODEL(to, from, 8, valid);
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(valid ? 8 : 0) : "memory");
#endif
}

//@ cuda_copy_async16
static inline void copy_async16(void *to, const void *from, bool valid)
{
#ifdef TGC_COPY_MODEL
    TGC_COPY_MODEL(to, from, 16, valid);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(valid ? 16 : 0) : "memory");
#endif
}

//@ cuda_commit_copies
/* The thread's copies since the last call are a group. */
static inline void commit_copies()
{
#ifdef TGC_COMMIT_MODEL
    TGC_COMMIT_MODEL();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

//@ cuda_wait_copies
/* Until all but the thread's n newest groups are there. */
template <int n> static inline void wait_copies()
{
#ifdef TGC_WAIT_MODEL
    TGC_WAIT_MODEL(n);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}
