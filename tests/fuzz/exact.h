/* exact.h - for sanitized builds of an emitted program: put before it with -include.
 *
 * The program takes its memory in blocks with room to spare at both ends, which hides small
 * overruns. malloc() here leaves of a block just what get_memory() in runtime/main.c hands out.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sanitizer/asan_interface.h>

static void *exact_malloc(size_t nbytes)
{
    char *block = (char *)malloc(nbytes);
    if (block && nbytes >= 128) {
        char *given = (char *)(((uintptr_t)block + sizeof(void *) + 63) / 64 * 64);
        char *end = given + (nbytes - 128);
        ASAN_POISON_MEMORY_REGION(block + sizeof(void *), (size_t)(given - block) - sizeof(void *));
        ASAN_POISON_MEMORY_REGION(end, (size_t)(block + nbytes - end));
    }
    return block;
}
#define malloc exact_malloc
