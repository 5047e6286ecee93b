/* machine.c - the facts of a machine's row that can be measured, as passes/target/machines.def has
 * them. A program of its own:
 *
 *      cc -O2 -march=native bench/machine.c -o machine && ./machine 48K 1280K 24M
 *
 * The arguments are the sizes of L1, L2 and a core's part of L3. Each figure is the best of many
 * short turns, so other work on the machine makes it take longer, not wrong. What it cannot tell
 * (decoded instructions, strided stores, waking threads) is explained in docs/adding-a-machine.md.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined __AVX512F__
enum { LANES = 16 };
#elif defined __AVX__
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef float vec __attribute__((vector_size(LANES * sizeof(float))));
#if defined __aarch64__
#define KEEP(v) __asm__ volatile("" : "+w"(v))
#else
#define KEEP(v) __asm__ volatile("" : "+v"(v))
#endif

enum { TURNS = 400, STEPS = 2000 };
#define EACH_OF_8(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define EACH_OF_12(X) EACH_OF_8(X) X(8) X(9) X(10) X(11)
#define EACH_OF_1(X) X(0)

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* An addition that waits for the one before takes a cycle. */
static double ns_of_cycle(void)
{
    double best = 1e9;
    for (int turn = 0; turn < TURNS; turn++) {
        uint64_t x = 1;
        double start = now();
        for (int i = 0; i < STEPS; i++) {
#define ADD(k)                                                                                     \
    x += x;                                                                                        \
    __asm__ volatile("" : "+r"(x));
            EACH_OF_8(ADD)
        }
        double time = (now() - start) / STEPS / 8;
        best = time < best ? time : best;
    }
    return best;
}

/* ns of one operation, where `n` chains of them run beside each other. */
#define CHAIN_STEP(k, expression)                                                                  \
    v##k = expression;                                                                             \
    KEEP(v##k);
#define CHAIN(name, n, STEP)                                                                       \
    static double name(void)                                                                       \
    {                                                                                              \
        vec a = (vec){0} + 0.5f;                                                                   \
        double best = 1e9;                                                                         \
        KEEP(a);                                                                                   \
        EACH_OF_##n(DECLARE)                                                                       \
        for (int turn = 0; turn < TURNS; turn++) {                                                 \
            double start = now();                                                                  \
            for (int i = 0; i < STEPS; i++) {                                                      \
                EACH_OF_##n(STEP)                                                                  \
            }                                                                                      \
            double time = (now() - start) / STEPS / (n);                                           \
            best = time < best ? time : best;                                                      \
        }                                                                                          \
        return best;                                                                               \
    }
#define DECLARE(k) vec v##k = a;
#define FMA(k) CHAIN_STEP(k, v##k * a + a)
#define ADDITION(k) CHAIN_STEP(k, v##k + a)
#define DIVISION(k) CHAIN_STEP(k, a / v##k)
CHAIN(ns_of_fma, 12, FMA)
CHAIN(ns_of_latency, 1, FMA)
CHAIN(ns_of_addition, 12, ADDITION)
CHAIN(ns_of_division, 12, DIVISION)

/* ns a byte, read from front to back again and again. */
static double ns_of_byte(size_t nbytes)
{
    size_t n = nbytes / sizeof(vec) / 8 * 8, again = nbytes < 1 << 20 ? (4 << 20) / nbytes : 1;
    vec *data = aligned_alloc(64, n * sizeof(vec)), a = {0};
    EACH_OF_8(DECLARE)
    double best = 1e9, until = now() + 1e9;
    if (!data)
        exit(1);
    memset(data, 0, n * sizeof(vec));
    for (int turn = 0; turn < 20 || now() < until; turn++) {
        double start = now();
        for (size_t r = 0; r < again; r++)
            for (size_t i = 0; i < n; i += 8) {
#define READ(k)                                                                                    \
    v##k += data[i + k];                                                                           \
    KEEP(v##k);
                EACH_OF_8(READ)
            }
        double time = (now() - start) / (double)(n * sizeof(vec)) / (double)again;
        best = time < best ? time : best;
    }
    free(data);
    return best;
}

static size_t size_of(const char *s)
{
    char *unit;
    size_t n = strtoul(s, &unit, 10);
    return *unit == 'K' ? n << 10 : *unit == 'M' ? n << 20 : n;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "machine L1 L2 L3, as 48K 1280K 24M\n");
        return 2;
    }
    double cycle = ns_of_cycle(), bytes[4], size[4];
    for (int i = 0; i < 3; i++)
        size[i] = (double)size_of(argv[i + 1]);
    size[3] = 8 * size[2];
    for (int i = 0; i < 4; i++)
        bytes[i] = cycle / ns_of_byte((size_t)(i < 3 ? size[i] * 0.6 : size[i]));
    double addition = ns_of_addition();
    printf("lanes of a vector   %d\n", LANES);
    printf(".ns_cycle           %.3f\n", cycle);
    printf(".fma_cycle          %.2f\n", cycle / ns_of_fma());
    printf(".fma_latency        %.1f\n", ns_of_latency() / cycle);
    printf(".loads_cycle        %.2f at least\n", bytes[0] / (double)sizeof(vec));
    printf(".level bytes        %.0f %.0f %.1f %.1f\n", bytes[0], bytes[1], bytes[2], bytes[3]);
    printf(".division           %.1f\n", ns_of_division() / addition);
    return 0;
}
