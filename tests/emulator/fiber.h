/* SPDX-License-Identifier: 0BSD */
/* fiber.h - stacks of their own for work-items, and switches between them.
 */
#ifndef TGC_EMULATOR_FIBER_H
#define TGC_EMULATOR_FIBER_H

#include <stdbool.h>
#include <stdint.h>

struct fiber;

/* A fiber that will call function(argument); NULL: no memory. The function never returns: its last
 * act is fiber_leave(). */
struct fiber *fiber_start(void (*function)(void *), void *argument);
/* Runs the fiber until it calls fiber_leave(). */
void fiber_enter(struct fiber *f);
/* Goes back to who entered this fiber. */
void fiber_leave(struct fiber *f);
/* The fiber's stack may be another's now. */
void fiber_end(struct fiber *f);
/* The stack of the fiber that was entered last. */
enum { FIBER_STACK = 512 * 1024 };
extern uintptr_t fiber_stack __attribute__((visibility("hidden")));
static inline bool fiber_has(uintptr_t at) { return at - fiber_stack < FIBER_STACK; }

#endif
