/* child.h - work that may end the process in which it is done, so that it has one of its own. */
#ifndef TGC_CHILD_H
#define TGC_CHILD_H

#include "ir/base.h"

/* serve(socket, user): what the process does; it ends with it. All memory is a copy of the
 * caller's, and what it answers are blocks of bytes. limit: bytes of addresses that it may take
 * beyond the caller's; 0: as many as there are. who: of whom errors say that it does not start. */
struct child_work {
    const char *who;
    void (*serve)(int socket, void *user);
    void *user;
    size_t limit;
};
struct child;
/* It ends at the latest when t is freed, or by a signal that ends the caller. NULL: reported. */
struct child *child_start(struct tgc *t, const struct child_work *w);
void child_end(struct child *c);
/* The parent's side. false: the process has ended; then child_why() says how, in words. While it
 * waits the listener may end the compile. */
bool child_ask(struct child *c, const void *block, size_t nbytes);
bool child_hear(struct child *c, void *block, size_t nbytes);
const char *child_why(struct child *c);
/* The process's own side; it ends if the parent has. */
void child_read(int socket, void *block, size_t nbytes);
void child_write(int socket, const void *block, size_t nbytes);

#endif
