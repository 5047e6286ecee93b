/* SPDX-License-Identifier: 0BSD */
/* mpi.c - ranks that mpirun has started, on one or several machines: Open MPI's library, which is
 * opened where the environment says that a launcher is there.
 *
 * Messages are non-blocking, and are polled until the time is over: a collective of MPI's would
 * wait for ever for a rank that hangs. Errors are returned, not fatal (MPI_ERRORS_RETURN).
 */
#include "runtime/ranks/parts.h"

//@ ranks_mpi ranks_parts ranks_sum
/* The largest of the numbers of ranks that launchers' environments say. */
RANKS_API int ranks_launched(void)
{
    static const char *const name[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    int most = 1;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        const char *value = getenv(name[i]);
        const long n = value ? strtol(value, NULL, 10) : 1;
        most = n > most && n < 1000000 ? (int)n : most;
    }
    return most;
}

#ifdef MODEL_NO_RANKS
RANKS_API bool ranks_join_mpi(struct ranks *r, int expected)
{
    (void)expected;
    return ranks_fail(r, "this program was built without MPI");
}
#else
#include <dlfcn.h>
#ifdef __linux__
/* In a library of its own before glibc 2.34: a program that is linked without it runs, as one. */
#pragma weak dlopen
#pragma weak dlsym
#endif

/* source: MPI 3.1; handles are pointers, as Open MPI's mpi.h has them */
struct ranks_mpi {
    int (*init)(int *argc, char ***argv, int required, int *provided);
    int (*finalize)(void);
    int (*comm_rank)(void *comm, int *rank);
    int (*comm_size)(void *comm, int *size);
    int (*comm_set_errhandler)(void *comm, void *handler);
    int (*isend)(const void *data, int n, void *type, int peer, int tag, void *comm,
                 void **request);
    int (*irecv)(void *data, int n, void *type, int peer, int tag, void *comm, void **request);
    int (*test)(void **request, int *is_done, void *status);
    int (*error_string)(int error, char *text, int *length);
    void *world, *byte, *errors_return;
};

enum { RANKS_MPI_CHUNK = 1 << 30, RANKS_MPI_TAG = 7 };

static bool ranks_mpi_failed(struct ranks *r, int peer, int error)
{
    const struct ranks_mpi *f = (const struct ranks_mpi *)r->own;
    char text[1024] = ""; /* MPI_MAX_ERROR_STRING is 256 in Open MPI, 512 in MPICH */
    int length = 0;
    (void)f->error_string(error, text, &length);
    return ranks_fail(r, "MPI, with rank %d: %.256s", peer, text);
}

/* Begins the chunk of a message at `at`. */
static int ranks_mpi_begin(const struct ranks_mpi *f, const struct ranks_message *m, size_t at,
                           void **request)
{
    const size_t left = m->nbytes - at;
    const int n = left < RANKS_MPI_CHUNK ? (int)left : (int)RANKS_MPI_CHUNK;
    char *data = (char *)m->data + at;
    return m->sends ? f->isend(data, n, f->byte, m->peer, RANKS_MPI_TAG, f->world, request)
                    : f->irecv(data, n, f->byte, m->peer, RANKS_MPI_TAG, f->world, request);
}

/* Tests a message, and begins its next chunk where there is one. Returns MPI's error, or 0. */
static int ranks_mpi_advance(const struct ranks_mpi *f, const struct ranks_message *m, size_t *at,
                             void **request, bool *is_done)
{
    int arrived = 0, error = f->test(request, &arrived, NULL);
    if (error || !arrived)
        return error;
    *at = m->nbytes - *at < RANKS_MPI_CHUNK ? m->nbytes : *at + RANKS_MPI_CHUNK;
    *is_done = *at == m->nbytes;
    return *is_done ? 0 : ranks_mpi_begin(f, m, *at, request);
}

static bool ranks_mpi_exchange(struct ranks *r, struct ranks_message *m, int n)
{
    const struct ranks_mpi *f = (const struct ranks_mpi *)r->own;
    const double end = ranks_seconds() + r->timeout;
    void *request[2 * RANKS_MOST];
    size_t at[2 * RANKS_MOST] = {0};
    bool is_done[2 * RANKS_MOST];
    int left = 0, error = 0;
    for (int i = 0; i < n; i++) {
        is_done[i] = m[i].nbytes == 0;
        left += !is_done[i];
        error = is_done[i] ? 0 : ranks_mpi_begin(f, &m[i], 0, &request[i]);
        if (error)
            return ranks_mpi_failed(r, m[i].peer, error);
    }
    for (int turn = 0; left; turn++) {
        for (int i = 0; i < n; i++) {
            if (is_done[i])
                continue;
            error = ranks_mpi_advance(f, &m[i], &at[i], &request[i], &is_done[i]);
            if (error)
                return ranks_mpi_failed(r, m[i].peer, error);
            left -= is_done[i];
        }
        if (left && ranks_seconds() > end)
            return ranks_too_late(r, m, is_done, n);
        if (turn > 100) { /* other ranks may need this processor */
            const struct timespec some = {0, turn < 1000 ? 1000 : 100000};
            (void)nanosleep(&some, NULL);
        }
    }
    return true;
}

/* Without MPI_Finalize(), which would wait for others, the launcher ends all ranks. */
static void ranks_mpi_close(struct ranks *r, bool is_done)
{
    struct ranks_mpi *f = (struct ranks_mpi *)r->own;
    if (is_done) {
        (void)f->finalize();
        free(f);
    }
}

static void *ranks_mpi_open(void)
{
    static const char *const name[] = {"libmpi.so.40", "libmpi.so", "libmpi.40.dylib",
                                       "libmpi.dylib"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof name / sizeof *name && !library; i++)
        library = dlopen(name[i], RTLD_NOW | RTLD_GLOBAL); /* its plugins need its symbols */
    return library;
}

static bool ranks_mpi_load(struct ranks_mpi *f, void *library)
{
    const struct { const char *name; void *to; } function[] = {
        {"MPI_Init_thread", &f->init},
        {"MPI_Finalize", &f->finalize},
        {"MPI_Comm_rank", &f->comm_rank},
        {"MPI_Comm_size", &f->comm_size},
        {"MPI_Comm_set_errhandler", &f->comm_set_errhandler},
        {"MPI_Isend", &f->isend},
        {"MPI_Irecv", &f->irecv},
        {"MPI_Test", &f->test},
        {"MPI_Error_string", &f->error_string}};
    for (size_t i = 0; i < sizeof function / sizeof *function; i++) {
        void *symbol = dlsym(library, function[i].name);
        memcpy(function[i].to, &symbol, sizeof symbol);
        if (!symbol)
            return false;
    }
    f->world = dlsym(library, "ompi_mpi_comm_world");
    f->byte = dlsym(library, "ompi_mpi_byte");
    f->errors_return = dlsym(library, "ompi_mpi_errors_return");
    return f->world && f->byte && f->errors_return;
}

RANKS_API bool ranks_join_mpi(struct ranks *r, int expected)
{
    enum { FUNNELED = 1 };
#ifdef __linux__
    if (!dlopen || !dlsym)
        return ranks_fail(r, "mpirun has started %d ranks, and this program cannot open MPI: link "
                          "it with -ldl", expected);
#endif
    void *library = ranks_mpi_open();
    if (!library)
        return ranks_fail(r, "%d ranks were started, and there is no libmpi.so.40 to join them: "
                          "install Open MPI (Debian and Ubuntu: openmpi-bin; Fedora: openmpi)",
                          expected);
    struct ranks_mpi *f = (struct ranks_mpi *)calloc(1, sizeof *f);
    if (!f || !ranks_mpi_load(f, library)) {
        free(f);
        return ranks_fail(r, "the libmpi that is found is not Open MPI's, which alone is known "
                          "here: start the ranks by Open MPI's mpirun");
    }
    int provided = 0, rank = 0, size = 0;
    if (f->init(NULL, NULL, FUNNELED, &provided) || f->comm_rank(f->world, &rank) ||
        f->comm_size(f->world, &size) || f->comm_set_errhandler(f->world, f->errors_return)) {
        free(f);
        return ranks_fail(r, "MPI_Init_thread fails");
    }
    r->rank = rank, r->size = size, r->own = f;
    r->exchange = ranks_mpi_exchange;
    r->close = ranks_mpi_close;
    if (size > RANKS_MOST)
        return ranks_fail(r, "%d ranks; at most %d are possible", size, (int)RANKS_MOST);
    return size == expected ||
           ranks_fail(r, "the launcher has started %d ranks, and MPI knows of %d: they are of two "
                      "installations; start the ranks by Open MPI's mpirun", expected, size);
}
#endif
