/* loader.h - relocatable objects become code in this process. */
#ifndef TGC_LLVM_LOADER_H
#define TGC_LLVM_LOADER_H

#include <stddef.h>
#include <stdint.h>

/* An ELF file of type ET_REL, for this processor; any alignment. It may be damaged or hostile. */
struct code_object { const void *bytes; size_t nbytes; };

/* The address of what the objects use and do not define; 0: there is none. */
struct code_outside { uint64_t (*find)(void *user, const char *name); void *user; };

/* Why objects are no code, for a person. */
struct code_error { char text[200]; };

struct loaded_code;
/* Maps and links the objects: pages are writable or executable, never both. They may call
 * each other's global functions. Touches nothing but what it is given, so threads may link at
 * the same time. NULL: *error says why; nothing is left mapped. The objects' bytes are not
 * needed afterwards. */
struct loaded_code *code_link(const struct code_object *object, int n,
                              const struct code_outside *outside, struct code_error *error);
/* The address of a global function or of data; 0: there is none of that name. */
uint64_t code_find(const struct loaded_code *c, const char *name);
/* Calls for each function, in no order, with its address and size. */
void code_each_function(const struct loaded_code *c,
                        void (*call)(void *user, const char *name, uint64_t address,
                                     uint64_t nbytes),
                        void *user);
/* The objects as a debugger reads them: with their sections' addresses. */
const struct code_object *code_images(const struct loaded_code *c, int *n);
void code_free(struct loaded_code *c);

#endif
