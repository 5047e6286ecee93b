/* debugger.c - registers code that was made in this process with gdb, by its JIT Compilation
 * Interface (the manual's chapter of that name): a list of object files, and a function with gdb's
 * breakpoint.
 *
 * The list is the one variable of the process here: its name and place are gdb's. A lock guards it.
 */
#include "backends/llvm/jit.h"

#include <pthread.h>
#include <stdlib.h>

struct jit_code_entry {
    struct jit_code_entry *next, *prev;
    const void *symfile_addr;
    uint64_t symfile_size;
};
struct jit_descriptor {
    uint32_t version, action_flag;
    struct jit_code_entry *relevant_entry, *first_entry;
};
enum { JIT_NOACTION, JIT_REGISTER, JIT_UNREGISTER };

struct jit_descriptor __jit_debug_descriptor = {.version = 1};
void __jit_debug_register_code(void);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) void __jit_debug_register_code(void)
{
    __asm__ volatile("" ::: "memory");
}

/* needs: the lock */
static void announce(struct jit_code_entry *entry, uint32_t action)
{
    __jit_debug_descriptor.relevant_entry = entry;
    __jit_debug_descriptor.action_flag = action;
    __jit_debug_register_code();
    __jit_debug_descriptor.action_flag = JIT_NOACTION;
    __jit_debug_descriptor.relevant_entry = NULL;
}

void debugger_tell(const struct loaded_code *c)
{
    int n;
    const struct code_object *image = code_images(c, &n);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++) {
        struct jit_code_entry *entry = malloc(sizeof *entry);
        if (!entry)
            break;                                    /* gdb sees less */
        struct jit_code_entry *first = __jit_debug_descriptor.first_entry;
        *entry = (struct jit_code_entry){first, NULL, image[i].bytes, image[i].nbytes};
        if (first)
            first->prev = entry;
        __jit_debug_descriptor.first_entry = entry;
        announce(entry, JIT_REGISTER);
    }
    pthread_mutex_unlock(&lock);
}

static bool is_of(const struct jit_code_entry *entry, const struct code_object *image, int n)
{
    for (int i = 0; i < n; i++)
        if (entry->symfile_addr == image[i].bytes)
            return true;
    return false;
}

void debugger_forget(const struct loaded_code *c)
{
    int n;
    const struct code_object *image = code_images(c, &n);
    pthread_mutex_lock(&lock);
    for (struct jit_code_entry *entry = __jit_debug_descriptor.first_entry, *next; entry;
         entry = next) {
        next = entry->next;
        if (!is_of(entry, image, n))
            continue;
        if (next)
            next->prev = entry->prev;
        if (entry->prev)
            entry->prev->next = next;
        else
            __jit_debug_descriptor.first_entry = next;
        announce(entry, JIT_UNREGISTER);
        free(entry);
    }
    pthread_mutex_unlock(&lock);
}
