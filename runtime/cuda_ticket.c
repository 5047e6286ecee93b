/* SPDX-License-Identifier: 0BSD */
/* cuda_ticket.c - blocks count themselves, and the last of them goes on with what the others have stored (the pattern of CUDA's
 * threadFenceReduction sample). The barrier puts what all threads have stored before the first one's fence, which is a release and an acquire for
 * the whole device; the second one puts what that has seen before what the others load.
 */
#include <stdbool.h>

//@ cuda_ticket
/* Whether the block is the last of n at the counter, which is 0 again then; all of its threads call this. */
static inline bool ticket(unsigned *counter, unsigned n)
{
    int last = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicInc(counter, n - 1) == n - 1;
        __threadfence();
    }
    return __syncthreads_or(last) != 0;
}
