/* start.c - what a bare Cortex-M4 begins with: its stack, and floats turned on. */
#include <stdint.h>

extern void _start(void);               /* newlib's */

static void reset(void)
{
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20;
    _start();
}

__attribute__((section(".vectors"), used))
static void (*const vectors[])(void) = {(void (*)(void))0x20400000, reset};
