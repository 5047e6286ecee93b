/* main.c - runs the models of CMakeLists.txt on the same picture; prints the sum of what they
 * say. */
#include <stdio.h>

#include "hidden.h"
#include "object.h"
#include "plain.h"
#include "dynamic.h"
#include "threads.h"
#include "tuned.h"

#define RUN(name, NAME)                                                                    \
    static double run_##name(const float *picture)                                         \
    {                                                                                      \
        static _Alignas(NAME##_ARENA_ALIGN) unsigned char arena[NAME##_ARENA_BYTES];       \
        float p[10];                                                                       \
        double sum = 0;                                                                    \
        name *model;                                                                       \
        name##_inputs in = {picture};                                                      \
        name##_outputs out = {p};                                                          \
        if (name##_init(&model, arena, sizeof arena, NULL) || name##_run(model, &in, &out)) \
            return -1;                                                                     \
        for (int i = 0; i < 10; i++)                                                       \
            sum += (double)p[i];                                                           \
        name##_close(model);                                                               \
        return sum;                                                                        \
    }

RUN(plain, PLAIN)
RUN(tuned, TUNED)
RUN(dynamic, DYNAMIC)
RUN(object, OBJECT)
RUN(threads, THREADS)
RUN(hidden, HIDDEN)

int main(void)
{
    float picture[64] = {0};
    printf("%.3f %.3f %.3f %.3f %.3f %.3f\n", run_plain(picture), run_tuned(picture),
           run_dynamic(picture), run_object(picture), run_threads(picture), run_hidden(picture));
    return 0;
}
