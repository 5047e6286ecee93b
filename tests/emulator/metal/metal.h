/* SPDX-License-Identifier: 0BSD */
/* metal.h - before a text in the Metal Shading Language: what the emulator adds to metal_stdlib,
 * which the text includes itself. A static variable of a kernel is the threadgroup's.
 */
#include "metal_stdlib"

extern "C" {
__attribute__((const)) uint64_t emulator_place(uint32_t what, uint32_t d);
}
__attribute__((always_inline)) static inline metal::uint3 emulator_dims(uint32_t what)
{
    return {(unsigned)emulator_place(what, 0), (unsigned)emulator_place(what, 1),
            (unsigned)emulator_place(what, 2)};
}
/* The text stands in extern "C" { }, so that its kernels have their names. */
#define template extern "C++" template
