/* loader.c - ELF objects become code in this process, without LLVM: a fresh compile and one out of
 * the cache run by the same means.
 *
 *      one mapping   | text of all objects, stubs | read-only data, GOT | writable data |
 *                      read, execute                read                  read, write
 *
 * Everything is within 2 GB, as the small code model wants. What the objects do not define may be
 * anywhere: they read its address from the global offset table (GOT), or call a stub that jumps
 * there. Tables are read by copies and every offset, size and index is checked, since a file may be
 * damaged. relocate.c has what differs between processors. source: System V ABI.
 */
#include "backends/llvm/loader.h"
#include "backends/llvm/relocate.h"

#include <elf.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* TEXT, READ, WRITE: parts of the mapping, in this order */
enum part { PART_TEXT, PART_READ, PART_WRITE, PART_COUNT, PART_NONE = PART_COUNT };
enum { GOT_NBYTES = 8, MAX_ALIGN = 4096 };
static const uint64_t max_nbytes = (uint64_t)1 << 30;

struct section { enum part part; uint64_t address, nbytes; };
/* in_got: it has an entry of the GOT; has_stub: and a stub, which reads the entry. */
struct symbol {
    const char *name;
    const struct section *in;              /* NULL: not in a section that is loaded */
    uint64_t address, nbytes;
    bool is_defined, is_global, is_function, in_got, has_stub;
    uint64_t got, stub;
};
struct unit {
    const unsigned char *bytes; size_t nbytes;
    Elf64_Ehdr head;
    struct section *section;
    struct symbol *symbol; size_t nsymbol;
    const char *names; size_t names_nbytes;
};
struct loaded_code {
    unsigned char *memory; size_t nbytes;
    uint64_t begin[PART_COUNT + 1];        /* offsets of the parts */
    struct unit *unit; int nunit;
    struct code_object *image;             /* copies of the objects, which units point to */
    const struct symbol **global; size_t nglobal;              /* that are defined, by name */
    struct code_error *error;              /* while it is linked */
};

static bool refuse(struct loaded_code *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool refuse(struct loaded_code *c, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(c->error->text, sizeof c->error->text, format, ap);
    va_end(ap);
    return false;
}

/* ------------------------------------------------------------------------------------- reading */

static bool is_inside(uint64_t offset, uint64_t nbytes, uint64_t limit)
{
    return offset <= limit && nbytes <= limit - offset;
}

static Elf64_Shdr section_header(const struct unit *u, unsigned i)
{
    Elf64_Shdr s;
    memcpy(&s, u->bytes + u->head.e_shoff + (size_t)i * sizeof s, sizeof s);
    return s;
}

static bool read_head(struct loaded_code *c, struct unit *u)
{
    Elf64_Ehdr *h = &u->head;
    if (u->nbytes < sizeof *h)
        return refuse(c, "it has %zu bytes, which is no ELF file", u->nbytes);
    memcpy(h, u->bytes, sizeof *h);
    if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 || h->e_ident[EI_CLASS] != ELFCLASS64 ||
        h->e_ident[EI_DATA] != ELFDATA2LSB || h->e_type != ET_REL)
        return refuse(c, "it is no relocatable ELF file of 64 bits");
    if (h->e_machine != relocation_machine)
        return refuse(c, "it is for machine %d, this one is %d", h->e_machine, relocation_machine);
    if (h->e_shentsize != sizeof(Elf64_Shdr) || h->e_shnum == 0 || h->e_shnum >= SHN_LORESERVE ||
        !is_inside(h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr), u->nbytes))
        return refuse(c, "its table of %d sections is not in the file", h->e_shnum);
    return true;
}

/* Where a section belongs (an empty one, too: a table of no elements has an address); false:
 * nowhere that is known. */
static bool classify(struct loaded_code *c, const Elf64_Shdr *s, unsigned i, enum part *part)
{
    bool writes = s->sh_flags & SHF_WRITE, runs = s->sh_flags & SHF_EXECINSTR;
    *part = !(s->sh_flags & SHF_ALLOC) ? PART_NONE
            : runs                     ? PART_TEXT
            : writes                   ? PART_WRITE
                                       : PART_READ;
    if (*part == PART_NONE)
        return true;
    if ((writes && runs) || s->sh_flags & (SHF_TLS | SHF_COMPRESSED))
        return refuse(c, "section %u has flags 0x%llx, which have no place here", i,
                      (unsigned long long)s->sh_flags);
    if (s->sh_addralign > MAX_ALIGN || (s->sh_addralign & (s->sh_addralign - 1)))
        return refuse(c, "section %u wants an alignment of %llu", i,
                      (unsigned long long)s->sh_addralign);
    return true;
}

/* Places the sections; address is an offset in the part as yet. */
static bool read_sections(struct loaded_code *c, struct unit *u, uint64_t nbytes[PART_COUNT])
{
    u->section = calloc(u->head.e_shnum, sizeof *u->section);
    if (!u->section)
        return refuse(c, "out of memory");
    for (unsigned i = 0; i < u->head.e_shnum; i++) {
        Elf64_Shdr s = section_header(u, i);
        struct section *to = &u->section[i];
        if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL &&
            !is_inside(s.sh_offset, s.sh_size, u->nbytes))
            return refuse(c, "section %u is not in the file", i);
        if (!classify(c, &s, i, &to->part))
            return false;
        if (to->part == PART_NONE)
            continue;
        uint64_t align = s.sh_addralign ? s.sh_addralign : 1, *n = &nbytes[to->part];
        *n = (*n + align - 1) / align * align;
        if (s.sh_size > max_nbytes || *n > max_nbytes - s.sh_size)
            return refuse(c, "its sections take more than %llu MB",
                          (unsigned long long)(max_nbytes >> 20));
        to->address = *n;
        to->nbytes = s.sh_size;
        *n += s.sh_size;
    }
    return true;
}

static bool read_symbol(struct loaded_code *c, struct unit *u, const Elf64_Sym *from, size_t i)
{
    struct symbol *to = &u->symbol[i];
    unsigned kind = ELF64_ST_TYPE(from->st_info), at = from->st_shndx;
    if (from->st_name >= u->names_nbytes)
        return refuse(c, "the name of symbol %zu is not in the file", i);
    if (kind == STT_TLS || kind == STT_GNU_IFUNC)
        return refuse(c, "symbol %zu is of kind %u, which has no place here", i, kind);
    *to = (struct symbol){.name = u->names + from->st_name, .nbytes = from->st_size,
                          .is_defined = at != SHN_UNDEF, .is_function = kind == STT_FUNC,
                          .is_global = ELF64_ST_BIND(from->st_info) != STB_LOCAL};
    if (at == SHN_UNDEF)
        return true;
    if (at == SHN_ABS) {
        to->address = from->st_value;
        to->is_function = false;
        return true;
    }
    if (at >= u->head.e_shnum)
        return refuse(c, "symbol %zu is in section %u, and there are %d", i, at, u->head.e_shnum);
    const struct section *s = &u->section[at];
    if (s->part == PART_NONE) {                   /* of a debugger */
        to->is_defined = to->is_global = to->is_function = false;
        return true;
    }
    if (!is_inside(from->st_value, from->st_size, s->nbytes))
        return refuse(c, "symbol %zu is beyond its section", i);
    to->in = s;
    to->address = from->st_value;
    return true;
}

static bool read_symbols(struct loaded_code *c, struct unit *u)
{
    for (unsigned i = 0; i < u->head.e_shnum; i++) {
        Elf64_Shdr s = section_header(u, i);
        if (s.sh_type != SHT_SYMTAB)
            continue;
        if (u->symbol || s.sh_entsize != sizeof(Elf64_Sym) || s.sh_link >= u->head.e_shnum)
            return refuse(c, "its table of symbols is damaged");
        Elf64_Shdr names = section_header(u, s.sh_link);
        if (names.sh_type != SHT_STRTAB || names.sh_size == 0 ||
            u->bytes[names.sh_offset + names.sh_size - 1] != 0)
            return refuse(c, "its table of names is damaged");
        u->names = (const char *)u->bytes + names.sh_offset;
        u->names_nbytes = names.sh_size;
        u->nsymbol = s.sh_size / sizeof(Elf64_Sym);
        u->symbol = calloc(u->nsymbol + 1, sizeof *u->symbol);
        if (!u->symbol)
            return refuse(c, "out of memory");
        for (size_t k = 0; k < u->nsymbol; k++) {
            Elf64_Sym sym;
            memcpy(&sym, u->bytes + s.sh_offset + k * sizeof sym, sizeof sym);
            if (!read_symbol(c, u, &sym, k))
                return false;
        }
    }
    return true;
}

/* --------------------------------------------------------------------------------- relocations */

/* A relocation with all that it names, checked. */
struct relocation {
    enum form form;
    unsigned shift;
    uint64_t place;
    int64_t addend;
    struct symbol *symbol;
};

static bool read_relocation(struct loaded_code *c, struct unit *u, const struct section *target,
                            const Elf64_Rela *from, struct relocation *r)
{
    uint32_t type = (uint32_t)ELF64_R_TYPE(from->r_info);
    uint64_t symbol = ELF64_R_SYM(from->r_info);
    r->form = form_of(type, &r->shift);
    if (r->form == FORM_UNKNOWN)
        return refuse(c, "it has a relocation of kind %u, which is not known here", type);
    if (symbol >= u->nsymbol)
        return refuse(c, "a relocation names symbol %llu, and there are %zu",
                      (unsigned long long)symbol, u->nsymbol);
    if (!is_inside(from->r_offset, form_nbytes(r->form), target->nbytes))
        return refuse(c, "a relocation is beyond its section");
    r->symbol = &u->symbol[symbol];
    r->place = target->address + from->r_offset;
    r->addend = from->r_addend;
    return true;
}

typedef bool visitor(struct loaded_code *c, const struct relocation *r);

static bool each_relocation(struct loaded_code *c, struct unit *u, visitor *visit)
{
    for (unsigned i = 0; i < u->head.e_shnum; i++) {
        Elf64_Shdr s = section_header(u, i);
        if (s.sh_type != SHT_REL && s.sh_type != SHT_RELA)
            continue;
        if (s.sh_info >= u->head.e_shnum)
            return refuse(c, "relocations of section %u, and there are %d", s.sh_info,
                          u->head.e_shnum);
        const struct section *target = &u->section[s.sh_info];
        if (target->part == PART_NONE)
            continue;
        if (s.sh_type == SHT_REL || s.sh_entsize != sizeof(Elf64_Rela))
            return refuse(c, "its relocations have an unknown form");
        for (size_t k = 0; k < s.sh_size / sizeof(Elf64_Rela); k++) {
            Elf64_Rela from;
            struct relocation r;
            memcpy(&from, u->bytes + s.sh_offset + k * sizeof from, sizeof from);
            if (!read_relocation(c, u, target, &from, &r) || !visit(c, &r))
                return false;
        }
    }
    return true;
}

/* Whether a call of it goes by a stub; that of another object would not need one, for a jump
 * more. */
static bool is_far(const struct symbol *s) { return !s->is_defined; }

static bool note_needs(struct loaded_code *c, const struct relocation *r)
{
    (void)c;
    r->symbol->has_stub |= form_calls(r->form) && is_far(r->symbol);
    r->symbol->in_got |= form_reads_got(r->form) || r->symbol->has_stub;
    return true;
}

static bool apply(struct loaded_code *c, const struct relocation *r)
{
    const struct symbol *s = r->symbol;
    uint64_t of = form_reads_got(r->form)                   ? s->got
                  : s->has_stub && form_calls(r->form) ? s->stub
                                                       : s->address;
    const char *why = form_put(r->form, r->shift, r->place, of + (uint64_t)r->addend);
    return !why || refuse(c, "'%.80s' %s", s->name, why);
}

/* -------------------------------------------------------------------------------------- memory */

/* Gives each unit's symbols their stubs and entries of the GOT, as offsets. */
static bool count_tables(struct loaded_code *c, uint64_t nbytes[PART_COUNT])
{
    nbytes[PART_TEXT] = (nbytes[PART_TEXT] + STUB_NBYTES - 1) / STUB_NBYTES * STUB_NBYTES;
    nbytes[PART_READ] = (nbytes[PART_READ] + GOT_NBYTES - 1) / GOT_NBYTES * GOT_NBYTES;
    for (int i = 0; i < c->nunit; i++) {
        if (!each_relocation(c, &c->unit[i], note_needs))
            return false;
        for (size_t k = 0; k < c->unit[i].nsymbol; k++) {
            struct symbol *s = &c->unit[i].symbol[k];
            s->stub = nbytes[PART_TEXT];
            nbytes[PART_TEXT] += s->has_stub ? STUB_NBYTES : 0;
            s->got = nbytes[PART_READ];
            nbytes[PART_READ] += s->in_got ? GOT_NBYTES : 0;
        }
    }
    return nbytes[PART_TEXT] <= max_nbytes && nbytes[PART_READ] <= max_nbytes
               ? true
               : refuse(c, "it takes more than %llu MB", (unsigned long long)(max_nbytes >> 20));
}

static bool map_memory(struct loaded_code *c, const uint64_t nbytes[PART_COUNT])
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = 0;
    for (int p = 0; p < PART_COUNT; p++) {
        c->begin[p] = at;
        at += (nbytes[p] + page - 1) / page * page;
    }
    c->begin[PART_COUNT] = at;
    void *memory =
        mmap(NULL, at ? at : page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return refuse(c, "out of memory: %llu bytes for code", (unsigned long long)at);
    c->memory = memory;
    c->nbytes = at ? at : page;
    return true;
}

/* Offsets become addresses, and the sections' bytes are copied. */
static void place_sections(struct loaded_code *c, struct unit *u)
{
    uint64_t base = (uintptr_t)c->memory;
    for (unsigned i = 0; i < u->head.e_shnum; i++) {
        struct section *s = &u->section[i];
        if (s->part == PART_NONE)
            continue;
        Elf64_Shdr h = section_header(u, i);
        s->address += base + c->begin[s->part];
        if (h.sh_type != SHT_NOBITS)
            memcpy((void *)(uintptr_t)s->address, u->bytes + h.sh_offset, s->nbytes);
    }
}

static bool protect(struct loaded_code *c)
{
    static const int access[PART_COUNT] = {PROT_READ | PROT_EXEC, PROT_READ,
                                           PROT_READ | PROT_WRITE};
    __builtin___clear_cache((char *)c->memory, (char *)c->memory + c->begin[PART_READ]);
    for (int p = 0; p < PART_COUNT; p++)
        if (c->begin[p + 1] > c->begin[p] &&
            mprotect(c->memory + c->begin[p], c->begin[p + 1] - c->begin[p], access[p]) != 0)
            return refuse(c, "the system refuses pages that hold code");
    return true;
}

/* ------------------------------------------------------------------------------------- linking */

static int compare_symbols(const void *a, const void *b)
{
    const struct symbol *x, *y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return strcmp(x->name, y->name);
}

/* Offsets in sections become addresses. */
static bool place_symbols(struct loaded_code *c)
{
    size_t n = 0;
    for (int i = 0; i < c->nunit; i++)
        n += c->unit[i].nsymbol;
    c->global = calloc(n + 1, sizeof *c->global);
    if (!c->global)
        return refuse(c, "out of memory");
    for (int i = 0; i < c->nunit; i++)
        for (size_t k = 0; k < c->unit[i].nsymbol; k++) {
            struct symbol *s = &c->unit[i].symbol[k];
            s->address += s->in ? s->in->address : 0;
            if (s->is_global && s->is_defined)
                c->global[c->nglobal++] = s;
        }
    qsort(c->global, c->nglobal, sizeof *c->global, compare_symbols);
    return true;
}

uint64_t code_find(const struct loaded_code *c, const char *name)
{
    const struct symbol wanted = {.name = name}, *key = &wanted;
    const struct symbol *const *found =
        bsearch(&key, c->global, c->nglobal, sizeof *c->global, compare_symbols);
    return found ? (*found)->address : 0;
}

/* What another object defines, then what is outside. */
static bool resolve(struct loaded_code *c, struct symbol *s, const struct code_outside *outside)
{
    s->address = code_find(c, s->name);
    if (!s->address)
        s->address = outside->find(outside->user, s->name);
    return s->address ? true : refuse(c, "it needs '%.100s', which is not here", s->name);
}

static bool fill_tables(struct loaded_code *c, const struct code_outside *outside)
{
    uint64_t base = (uintptr_t)c->memory;
    for (int i = 0; i < c->nunit; i++)
        for (size_t k = 1; k < c->unit[i].nsymbol; k++) {
            struct symbol *s = &c->unit[i].symbol[k];
            if (!s->is_defined && s->is_global && !resolve(c, s, outside))
                return false;
            s->got += base + c->begin[PART_READ];
            s->stub += base + c->begin[PART_TEXT];
            if (s->in_got)
                memcpy((void *)(uintptr_t)s->got, &s->address, GOT_NBYTES);
            if (s->has_stub)
                stub_write(s->stub, s->got);
        }
    return true;
}

/* A debugger finds a section by its address in the image. */
static void write_addresses(struct unit *u, unsigned char *image)
{
    for (unsigned i = 0; i < u->head.e_shnum; i++) {
        Elf64_Shdr s = section_header(u, i);
        s.sh_addr = u->section[i].part == PART_NONE ? 0 : u->section[i].address;
        memcpy(image + u->head.e_shoff + (size_t)i * sizeof s, &s, sizeof s);
    }
}

static bool link_units(struct loaded_code *c, const struct code_outside *outside)
{
    uint64_t nbytes[PART_COUNT] = {0};
    for (int i = 0; i < c->nunit; i++)
        if (!read_head(c, &c->unit[i]) || !read_sections(c, &c->unit[i], nbytes) ||
            !read_symbols(c, &c->unit[i]))
            return false;
    if (!count_tables(c, nbytes) || !map_memory(c, nbytes))
        return false;
    for (int i = 0; i < c->nunit; i++)
        place_sections(c, &c->unit[i]);
    if (!place_symbols(c) || !fill_tables(c, outside))
        return false;
    for (int i = 0; i < c->nunit; i++)
        if (!each_relocation(c, &c->unit[i], apply))
            return false;
    return protect(c);
}

/* Copies, since a file that is mapped may change under the checks. */
static bool copy_objects(struct loaded_code *c, const struct code_object *object, int n)
{
    c->unit = calloc((size_t)n + 1, sizeof *c->unit);
    c->image = calloc((size_t)n + 1, sizeof *c->image);
    if (!c->unit || !c->image)
        return refuse(c, "out of memory");
    for (int i = 0; i < n; i++) {
        void *copy = malloc(object[i].nbytes + 1);
        if (!copy)
            return refuse(c, "out of memory: %zu bytes of an object", object[i].nbytes);
        memcpy(copy, object[i].bytes, object[i].nbytes);
        c->image[i] = (struct code_object){copy, object[i].nbytes};
        c->unit[i] = (struct unit){.bytes = copy, .nbytes = object[i].nbytes};
        c->nunit++;
    }
    return true;
}

struct loaded_code *code_link(const struct code_object *object, int n,
                              const struct code_outside *outside, struct code_error *error)
{
    struct loaded_code *c = calloc(1, sizeof *c);
    *error = (struct code_error){""};
    if (!c) {
        snprintf(error->text, sizeof error->text, "out of memory");
        return NULL;
    }
    c->error = error;
    if (!copy_objects(c, object, n) || !link_units(c, outside)) {
        code_free(c);
        return NULL;
    }
    for (int i = 0; i < n; i++)
        write_addresses(&c->unit[i], (unsigned char *)(uintptr_t)c->image[i].bytes);
    c->error = NULL;
    return c;
}

void code_each_function(const struct loaded_code *c,
                        void (*call)(void *user, const char *name, uint64_t address,
                                     uint64_t nbytes),
                        void *user)
{
    for (int i = 0; i < c->nunit; i++)
        for (size_t k = 0; k < c->unit[i].nsymbol; k++) {
            const struct symbol *s = &c->unit[i].symbol[k];
            if (s->is_function && s->in)
                call(user, s->name, s->address, s->nbytes);
        }
}

const struct code_object *code_images(const struct loaded_code *c, int *n)
{
    *n = c->nunit;
    return c->image;
}

void code_free(struct loaded_code *c)
{
    if (!c)
        return;
    if (c->memory)
        munmap(c->memory, c->nbytes);
    for (int i = 0; i < c->nunit; i++) {
        free(c->unit[i].section);
        free(c->unit[i].symbol);
        free((void *)(uintptr_t)c->image[i].bytes);
    }
    free(c->unit);
    free(c->image);
    free(c->global);
    free(c);
}
