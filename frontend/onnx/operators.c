/* operators.c - the table of operators.def, and finding the row that serves a version. */
#include "frontend/onnx/lower.h"

#include <string.h>

static const struct operator operators[] = {
#define OPERATOR(domain, name, since, until, function, param, min_in, max_in, kinds, limits) \
    {domain, name, since, until, function, param, min_in, max_in, kinds, limits},
#include "frontend/onnx/operators.def"
#undef OPERATOR
};

int operator_count(void) { return (int)(sizeof operators / sizeof *operators); }

const struct operator *operator_at(int i) { return &operators[i]; }

const struct operator *operator_find(const char *domain, const char *name, int opset, bool *known_elsewhere)
{
    int lo = 0, hi = operator_count();
    bool seen = false;
    while (lo < hi) {                       /* the first row of that name: rows are sorted by name, domain, since */
        int mid = lo + (hi - lo) / 2;
        int order = strcmp(operators[mid].name, name);
        if (order == 0)
            order = strcmp(operators[mid].domain, domain);
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    const struct operator *found = NULL;
    for (int i = lo; i < operator_count() && !strcmp(operators[i].name, name) && !strcmp(operators[i].domain, domain); i++) {
        seen = true;
        if (opset >= operators[i].since && (!operators[i].until || opset <= operators[i].until))
            found = &operators[i];
    }
    if (known_elsewhere)
        *known_elsewhere = seen;
    return found;
}
