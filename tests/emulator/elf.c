/* SPDX-License-Identifier: 0BSD */
/* elf.c - the extent of a loaded shared object, and its local variables: clang makes a static
 * variable "KERNEL.NAME" of each, or, in C++, "_ZZ6KERNELE4NAME", the numbers being lengths.
 */
#define _GNU_SOURCE
#include "emulator.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A word that follows its length; NULL: there is none. */
static const char *read_word(const char *s, size_t *n)
{
    char *end;
    *n = strtoul(s, &end, 10);
    return end > s && strlen(end) >= *n ? end : NULL;
}

/* Whether the symbol is a kernel's variable: both names. */
static bool read_name(const char *symbol, struct local_array *a)
{
    const char *dot = strchr(symbol, '.'), *kernel, *name;
    size_t nkernel, nname;
    if (strncmp(symbol, "_ZZ", 3) == 0) {
        kernel = read_word(symbol + 3, &nkernel);
        name = kernel && kernel[nkernel] == 'E' ? read_word(kernel + nkernel + 1, &nname) : NULL;
        if (!name)
            return false;
        snprintf(a->kernel, sizeof a->kernel, "%.*s", (int)nkernel, kernel);
        snprintf(a->name, sizeof a->name, "%.*s", (int)nname, name);
        return true;
    }
    if (!dot)
        return false;
    snprintf(a->kernel, sizeof a->kernel, "%.*s", (int)(dot - symbol), symbol);
    snprintf(a->name, sizeof a->name, "%s", dot + 1);
    return true;
}

bool module_add_local(struct module *m, const struct local_array *found, void *at, size_t nbytes)
{
    struct local_array *more = realloc(m->local, sizeof *more * (size_t)(m->nlocal + 1));
    if (!more)
        return false;
    m->local = more;
    struct local_array *a = &more[m->nlocal];
    *a = *found;
    a->memory = malloc(sizeof *a->memory);
    if (!a->memory || !memory_create(a->memory, at, nbytes)) {
        free(a->memory);
        return false;
    }
    m->nlocal++;
    return true;
}

static bool note_local(struct module *m, const char *name, unsigned char *at, size_t nbytes)
{
    struct local_array found;
    if (strcmp(name, "_ZL12block_memory") == 0) {
        m->placed = at;
        m->nplaced = nbytes;
    }
    return !read_name(name, &found) || module_add_local(m, &found, at, nbytes);
}

static bool read_symbols(struct module *m, const unsigned char *file, size_t size)
{
    const Elf64_Ehdr *head = (const void *)file;
    const Elf64_Shdr *section = (const void *)(file + head->e_shoff);
    if (head->e_shoff + head->e_shnum * sizeof *section > size)
        return false;
    for (int i = 0; i < head->e_shnum; i++) {
        if (section[i].sh_type != SHT_SYMTAB)
            continue;
        const Elf64_Sym *symbol = (const void *)(file + section[i].sh_offset);
        const char *names = (const char *)file + section[section[i].sh_link].sh_offset;
        for (size_t k = 0; k < section[i].sh_size / sizeof *symbol; k++) {
            const Elf64_Sym *s = &symbol[k];
            if (ELF64_ST_TYPE(s->st_info) == STT_OBJECT && s->st_shndx < head->e_shnum &&
                section[s->st_shndx].sh_flags & SHF_WRITE &&
                !note_local(m, names + s->st_name, (unsigned char *)m->begin + s->st_value,
                            s->st_size))
                return false;
        }
    }
    return true;
}

bool elf_read(struct module *m)
{
    struct link_map *map = NULL;
    if (dlinfo(m->library, RTLD_DI_LINKMAP, &map) != 0)
        return false;
    const int fd = open(m->path, O_RDONLY);
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat) != 0)
        return false;
    const size_t size = (size_t)stat.st_size;
    const unsigned char *file = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED)
        return false;
    const Elf64_Ehdr *head = (const void *)file;
    const Elf64_Phdr *segment = (const void *)(file + head->e_phoff);
    m->begin = (uintptr_t)map->l_addr;
    for (int i = 0; i < head->e_phnum; i++)
        if (segment[i].p_type == PT_LOAD &&
            m->begin + segment[i].p_vaddr + segment[i].p_memsz > m->end)
            m->end = m->begin + segment[i].p_vaddr + segment[i].p_memsz;
    const bool done = read_symbols(m, file, size);
    munmap((void *)file, size);
    return done;
}
