/* SPDX-License-Identifier: 0BSD */
/* cuda_ticket.c - the ticket counter by which the last-arriving block goes on with what the others
 * have stored (the pattern of CUDA's threadFenceReduction sample). The first barrier orders the
 * stores of all threads before the first fence; the fences are release and acquire at device scope.
 * The second barrier orders the second fence before the threads' loads.
 */
#include <stdbool.h>

//@ cuda_ticket
/* Is this block the last of n to arrive? The counter wraps to 0 then. All threads of the
 * block call this. */
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
