/* child.h - work that may end the process in which it is done, so that it has one of its own. */
#ifndef TGC_CHILD_H
#define TGC_CHILD_H

#include "ir/base.h"

struct child;
/* Starts a process that runs serve(socket, wanted) and ends with it. What it is asked and what it
 * answers are blocks of bytes; it must not use t, whose errors are another process's. It ends at
 * the latest when t is freed. NULL: reported; who: of whom the report says that. */
struct child *child_start(struct tgc *t, const char *who,
                          void (*serve)(int socket, const char *wanted), const char *wanted);
void child_end(struct child *c);
/* The parent's side. false: the process has ended; then child_why() says how, in words. */
bool child_ask(struct child *c, const void *block, size_t nbytes);
bool child_hear(struct child *c, void *block, size_t nbytes);
const char *child_why(struct child *c);
/* The process's own side; it ends if the parent has. */
void child_read(int socket, void *block, size_t nbytes);
void child_write(int socket, const void *block, size_t nbytes);

#endif
