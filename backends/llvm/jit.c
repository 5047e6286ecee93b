/* jit.c - what the objects of a program use of this process, and the tools that are told of its
 * code. */
#include "backends/llvm/jit.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct outside_names { const struct llvm_name *name; int n; };

static uint64_t find_outside(void *user, const char *name)
{
    const struct outside_names *names = user;
    for (int i = 0; i < names->n; i++)
        if (strcmp(names->name[i].name, name) == 0)
            return names->name[i].address;
    void (*piece)(void) = llvm_piece(name);
    return piece ? (uint64_t)(uintptr_t)piece : (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, name);
}

static void write_line(void *user, const char *name, uint64_t address, uint64_t nbytes)
{
    fprintf(user, "%llx %llx %s\n", (unsigned long long)address, (unsigned long long)nbytes, name);
}

/* perf looks for the names of such code in this file. It is only a help: no error if it cannot be
 * written. */
static void tell_perf(const struct loaded_code *c)
{
    char path[64];
    const char *asked = getenv("TGC_PERF");
    if (!asked || strcmp(asked, "1") != 0)
        return;
    snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "a");
    if (!f)
        return;
    code_each_function(c, write_line, f);
    fclose(f);
}

struct loaded_code *jit_link(const struct code_object *object, int n, const struct llvm_name *name,
                      int nname, struct llvm_name *function, int nfunction, struct code_error *why)
{
    struct outside_names names = {name, nname};
    struct code_outside outside = {find_outside, &names};
    struct loaded_code *c = code_link(object, n, &outside, why);
    for (int i = 0; c && i < nfunction; i++) {
        function[i].address = code_find(c, function[i].name);
        if (function[i].address)
            continue;
        snprintf(why->text, sizeof why->text, "it has no function %.100s", function[i].name);
        code_free(c);
        return NULL;
    }
    if (c) {
        tell_perf(c);
        debugger_tell(c);
    }
    return c;
}

void jit_free(struct loaded_code *c)
{
    if (c)
        debugger_forget(c);
    code_free(c);
}
