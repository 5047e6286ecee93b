/* relocate.h - what the loader's objects need of this processor: relocations, stubs, the machine's
 * number in ELF. */
#ifndef TGC_LLVM_RELOCATE_H
#define TGC_LLVM_RELOCATE_H

#include <stdbool.h>
#include <stdint.h>

/* In ELF (e_machine). */
extern const int relocation_machine;

/* What a relocation writes, and of what: of a symbol, of its entry in the global offset table
 * (GOT), or of the stub by which it is called if it is far. */
enum form {
    FORM_UNKNOWN, FORM_ABS64, FORM_REL32, FORM_REL64, FORM_CALL32, FORM_GOT32,
    FORM_CALL26, FORM_PAGE21, FORM_GOT_PAGE21, FORM_LOW12, FORM_GOT_LOW12
};
/* By its number in ELF. *shift: of the address's bits within an instruction. */
enum form form_of(uint32_t type, unsigned *shift);
bool form_reads_got(enum form f);
bool form_calls(enum form f);
uint64_t form_nbytes(enum form f);                               /* that it writes */
/* Makes the bytes at `place` refer to the address v. NULL: done; else why it cannot, as a
 * predicate. */
const char *form_put(enum form f, unsigned shift, uint64_t place, uint64_t v);

/* A jump to the address that is at `got`, at most 2 GB away. */
enum { STUB_NBYTES = 16 };
void stub_write(uint64_t place, uint64_t got);

#endif
