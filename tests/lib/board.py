"""What a program on a bare Cortex-M begins with: its vectors, and the registers of floats."""

START = """#include <stdint.h>
extern void _start(void);
static void reset(void)
{
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20;
    _start();
}
__attribute__((section(".vectors"), used))
static void (*const vectors[])(void) = {(void (*)(void))STACK, reset};
"""
