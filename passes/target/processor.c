/* processor.c - the rows of processors.def. */
#include "passes/target/target.h"

#include <string.h>

static const struct processor rows[] = {
#define PROCESSOR(name, architectures, isa, llvm, machine)                                         \
    {name, architectures, ISA_##isa, llvm, machine},
#include "passes/target/processors.def"
#undef PROCESSOR
};

const struct processor *processor_rows(int *n)
{
    *n = sizeof rows / sizeof *rows;
    return rows;
}

const struct processor *processor_find(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

bool processor_runs(const struct processor *p, const char *triple)
{
    size_t n = strcspn(triple, "-");
    for (const char *s = p->architectures; *s; s += *s == ' ') {
        size_t length = strcspn(s, " ");
        if (length == n && strncmp(s, triple, n) == 0)
            return true;
        s += length;
    }
    return false;
}
