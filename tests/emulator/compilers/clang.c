/* SPDX-License-Identifier: 0BSD */
/* clang.c - a stand-in for clang, for thousands of programs on AMD's emulated device, which runs
 * kernels from their text. The code object that it makes of HIP C names the architecture and the
 * kernels, and has no code.
 *
 *      header | four sections' heads | 64 bytes a kernel | a symbol a kernel, NAME.kd | names
 */
#define _GNU_SOURCE
#include "../emulator.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SYMBOLS = 1,
    NAMES,
    DESCRIPTORS,
    NSECTION,
    DESCRIPTOR = 64,
    ARGUMENTS_AT = 8,
    AMDGPU = 224,
    MOST = 4096
};

static const struct word word[] = {{"__global__", WORD_KERNEL},
                                   {"const", WORD_CONST},
                                   {"__restrict__", WORD_SKIP},
                                   {"__launch_bounds__", WORD_BOUND},
                                   {NULL, WORD_SKIP}};

static const struct { const char *name; uint32_t flags; } machines[] = {
#define MACHINE(NAME, FLAGS) {NAME, FLAGS},
#include "../amd/machines.def"
#undef MACHINE
};

static uint32_t machine_of(int n, char **argument)
{
    static const char offload[] = "--offload-arch=";
    for (int i = 1; i < n; i++)
        for (size_t k = 0; k < sizeof machines / sizeof *machines; k++)
            if (strncmp(argument[i], offload, sizeof offload - 1) == 0 &&
                strcmp(argument[i] + sizeof offload - 1, machines[k].name) == 0)
                return machines[k].flags;
    return 0;
}

/* The symbols, their names after a NUL, and how many there are. */
static Elf64_Word read_kernels(const char *text, Elf64_Sym *symbol, char *names, size_t *nnames)
{
    static struct signature s;
    Elf64_Word n = 0;
    *nnames = 1;
    while (n < MOST && signature_next(word, &text, &s)) {
        symbol[n] = (Elf64_Sym){.st_name = (Elf64_Word)*nnames,
                                .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
                                .st_shndx = DESCRIPTORS,
                                .st_value = n * DESCRIPTOR,
                                .st_size = DESCRIPTOR};
        n++;
        *nnames += (size_t)sprintf(names + *nnames, "%s.kd", s.name) + 1;
    }
    return n;
}

static bool write_object(const char *text, uint32_t machine)
{
    static Elf64_Sym symbol[MOST];
    static char names[MOST * (MAX_NAME + 4)];
    size_t nnames;
    const Elf64_Word n = read_kernels(text, symbol, names, &nnames);
    const Elf64_Off at = sizeof(Elf64_Ehdr) + NSECTION * sizeof(Elf64_Shdr);
    const Elf64_Off symbols = at + n * DESCRIPTOR, strings = symbols + n * sizeof *symbol;
    const Elf64_Ehdr head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                             .e_type = ET_DYN,
                             .e_machine = AMDGPU,
                             .e_version = EV_CURRENT,
                             .e_flags = machine,
                             .e_shoff = sizeof head,
                             .e_ehsize = sizeof head,
                             .e_shentsize = sizeof(Elf64_Shdr),
                             .e_shnum = NSECTION};
    const Elf64_Shdr section[NSECTION] = {
        [SYMBOLS] = {.sh_type = SHT_DYNSYM,
                     .sh_offset = symbols,
                     .sh_size = n * sizeof *symbol,
                     .sh_link = NAMES,
                     .sh_entsize = sizeof *symbol},
        [NAMES] = {.sh_type = SHT_STRTAB, .sh_offset = strings, .sh_size = nnames},
        [DESCRIPTORS] = {.sh_type = SHT_PROGBITS, .sh_offset = at, .sh_size = n * DESCRIPTOR}};
    const uint32_t arguments = UINT32_MAX;      /* as many bytes as there may be */
    unsigned char descriptor[DESCRIPTOR] = {0};
    memcpy(descriptor + ARGUMENTS_AT, &arguments, sizeof arguments);
    bool done = fwrite(&head, sizeof head, 1, stdout) == 1 &&
                fwrite(section, sizeof section, 1, stdout) == 1;
    for (Elf64_Word i = 0; i < n; i++)
        done &= fwrite(descriptor, sizeof descriptor, 1, stdout) == 1;
    return done && fwrite(symbol, sizeof *symbol, n, stdout) == n &&
           fwrite(names, 1, nnames, stdout) == nnames && fflush(stdout) == 0;
}

int main(int n, char **argument)
{
    char *text = NULL;
    size_t size = 0;
    if (n == 2 && strcmp(argument[1], "-dumpversion") == 0)
        return puts("0.0") < 0;
    const uint32_t machine = machine_of(n, argument);
    const bool done =
        machine && getdelim(&text, &size, 0, stdin) >= 0 && write_object(text, machine);
    free(text);
    return !done;
}
