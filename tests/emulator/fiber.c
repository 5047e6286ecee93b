/* SPDX-License-Identifier: 0BSD */
/* fiber.c - stacks and switches: by hand on x86-64, where a switch is a few instructions, elsewhere
 * by ucontext, whose switches are calls of the system.
 *
 * Stacks are kept for the next fibers: a launch of a million work-items without barriers needs one.
 */
#define _GNU_SOURCE
#include "fiber.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK = FIBER_STACK, GUARD = 4096 };

struct fiber {
    struct fiber *next; /* the next free one */
    unsigned char *stack;
    void (*function)(void *);
    void *argument;
#ifdef __x86_64__
    void *own, *caller; /* stack pointers */
#else
    ucontext_t own, caller;
#endif
};

static struct fiber *unused;

/* Not inlined: getcontext() returns twice, and what it finds in registers then is not said. */
__attribute__((noinline)) static struct fiber *take(void)
{
    struct fiber *f = unused;
    if (f) {
        unused = f->next;
        return f;
    }
    f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED || mprotect(f->stack, GUARD, PROT_NONE) != 0) {
        free(f);
        return NULL;
    }
    return f;
}

void fiber_end(struct fiber *f)
{
    f->next = unused;
    unused = f;
}

__attribute__((destructor)) static void forget_unused(void)
{
    while (unused) {
        struct fiber *f = unused;
        unused = f->next;
        munmap(f->stack, STACK);
        free(f);
    }
}

uintptr_t fiber_stack;

#ifdef __x86_64__

/* Keeps what a call preserves on the stack, whose pointer becomes *from, and goes on from `to`. */
void emulator_switch(void **from, void *to);
__asm__(".text\n"
        ".hidden emulator_switch\n"
        ".globl emulator_switch\n"
        "emulator_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
        "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n"
        "    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n");

/* rbx has the fiber when it starts, rbp ends the chain of frames. */
__attribute__((used)) void emulator_begin(struct fiber *f);
void emulator_begin(struct fiber *f) { f->function(f->argument); }
void emulator_entry(void);
__asm__(".hidden emulator_entry\n"
        ".globl emulator_entry\n"
        "emulator_entry:\n"
        "    movq %rbx, %rdi\n"
        "    xorl %ebp, %ebp\n"
        "    call emulator_begin\n"
        "    ud2\n");

struct fiber *fiber_start(void (*function)(void *), void *argument)
{
    struct fiber *f = take();
    if (!f)
        return NULL;
    f->function = function;
    f->argument = argument;
    uint64_t *top = (uint64_t *)(void *)(f->stack + STACK) - 2; /* a call finds it aligned */
    *--top = (uint64_t)(uintptr_t)emulator_entry;
    *--top = 0;                      /* rbp */
    *--top = (uint64_t)(uintptr_t)f; /* rbx */
    for (int i = 0; i < 4; i++)
        *--top = 0;
    f->own = top;
    return f;
}

void fiber_enter(struct fiber *f)
{
    fiber_stack = (uintptr_t)f->stack;
    emulator_switch(&f->caller, f->own);
}

void fiber_leave(struct fiber *f) { emulator_switch(&f->own, f->caller); }

#else

static void begin(unsigned high, unsigned low)
{
    struct fiber *f = (struct fiber *)((uintptr_t)high << 16 << 16 | low);
    f->function(f->argument);
}

struct fiber *fiber_start(void (*function)(void *), void *argument)
{
    struct fiber *f = take();
    if (!f || getcontext(&f->own) != 0)
        return NULL;
    f->function = function;
    f->argument = argument;
    f->own.uc_stack.ss_sp = f->stack;
    f->own.uc_stack.ss_size = STACK;
    f->own.uc_link = NULL;
    makecontext(&f->own, (void (*)(void))begin, 2, (unsigned)((uintptr_t)f >> 16 >> 16),
                (unsigned)(uintptr_t)f);
    return f;
}

void fiber_enter(struct fiber *f)
{
    fiber_stack = (uintptr_t)f->stack;
    swapcontext(&f->caller, &f->own);
}

void fiber_leave(struct fiber *f) { swapcontext(&f->own, &f->caller); }

#endif
