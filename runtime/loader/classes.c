/* SPDX-License-Identifier: 0BSD */
/* classes.c - targets that are names in a file: classes, numbered in the order of their bytes.
 *
 * Data to validate with has the numbers of the training data (dataset.classes), although it may not
 * have a sample of each class.
 */
#include "runtime/loader/parts.h"

//@ loader_class loader_array
/* The place of a name among n sorted ones; -1: it is not there. */
static int64_t loader_find_class(char *const *name, int64_t n, const char *wanted)
{
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(name[middle], wanted);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

static int loader_compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

LOADER_API void loader_sort_texts(char **text, int64_t n)
{
    if (n > 1)
        qsort(text, (size_t)n, sizeof *text, loader_compare_texts);
}

/* Copies of the different ones of n sorted names become the data set's classes. */
static bool loader_keep_classes(struct dataset *d, const char *where, char *const *name, int64_t n)
{
    size_t nbytes = 0;
    int64_t nclass = 0;
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || strcmp(name[i], name[i - 1]) != 0) {
            nbytes += strlen(name[i]) + 1;
            nclass++;
        }
    char **kept = (char **)loader_take(d, where, (size_t)nclass * sizeof *kept);
    char *text = kept ? (char *)loader_take(d, where, nbytes) : NULL;
    if (!text)
        return false;
    nclass = 0;
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || strcmp(name[i], name[i - 1]) != 0) {
            size_t length = strlen(name[i]) + 1;
            kept[nclass++] = (char *)memcpy(text, name[i], length);
            text += length;
        }
    d->class_name = kept;
    d->nclass = nclass;
    return true;
}

LOADER_API bool loader_number_classes(struct dataset *d, const char *where, char *const *name,
                                      char **sorted, int64_t n, int64_t *number)
{
    const struct dataset *other = d->classes;
    memcpy(sorted, name, (size_t)n * sizeof *sorted);
    loader_sort_texts(sorted, n);
    if (!loader_keep_classes(d, where, other ? other->class_name : sorted,
                             other ? other->nclass : n))
        return false;
    for (int64_t i = 0; i < n; i++) {
        number[i] = loader_find_class(d->class_name, d->nclass, name[i]);
        if (number[i] < 0)
            return loader_fail(d->error,
                               "%s: sample %lld is of class '%.100s', which %s does not "
                               "have; correct it, or add samples of it there",
                               where, (long long)i, name[i],
                               other->narray ? other->array[0].file : "the training data");
    }
    return true;
}
