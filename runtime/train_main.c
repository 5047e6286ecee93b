/* SPDX-License-Identifier: 0BSD */
/* train_main.c - the -DMODEL_MAIN program of a model that trains: files -> epochs -> a block of
 * parameters. It does what tgc train does, without tgc. Not compiled by itself: the loader's pieces
 * and constants that backends/program/training.c writes come before.
 *
 * Several processes make each step together, of their own by --devices or of mpirun: each has its
 * rows of the batch, whose gradients model_update() adds up by add_up(). Rank 0 writes. What all
 * of them would find wrong is looked at before there are several. */

//@ train_main loader_stream loader_dataset ranks_fork ranks_mpi
#include <errno.h>
#include <limits.h>
#include <time.h>

/* A run takes MAIN_SAMPLES samples. What is fewer repeats the others with weight 0: the loss does
 * not see them, and statistics are those of real samples. A loss of the model's own has one weight,
 * the run's share of the step. */
struct trainer {
    struct dataset data, valid;
    int ndata, nvalid, epochs;
    const char *augment, *output, *start, *weights;
    void *weights_memory, *start_block;
    int64_t batch;
    uint64_t seed, init;
    double rate;
    model_options options;
    model_self *self;
    model_train_inputs in;
    int devices, nrank;
    int64_t own;                        /* rows of a batch: this rank's */
    struct stream_field field[MAIN_INPUTS + 1], valid_field[MAIN_INPUTS + 1];
    size_t row_nbytes[MAIN_INPUTS + 1];
    void *buffer[MAIN_INPUTS + 1];      /* [MAIN_SAMPLES][row_nbytes]; the last: the target's */
    int nfield;
    MAIN_VALUE weight[MAIN_SAMPLES];
};

alignas(MODEL_PARAMS_ALIGN) static unsigned char main_params[MODEL_PARAMS_BYTES];
alignas(MODEL_GRADIENTS_ALIGN) static unsigned char main_gradients[MODEL_GRADIENTS_BYTES];
alignas(MODEL_OPTIMIZER_ALIGN) static unsigned char main_optimizer[MODEL_OPTIMIZER_BYTES];
alignas(MODEL_ARENA_ALIGN) static unsigned char main_arena[MODEL_ARENA_BYTES];

static struct ranks main_ranks;
static void *main_scratch;              /* of ranks_sum() */

static void fail(const char *what, const char *why)
{
    ranks_say(&main_ranks, why);
    fprintf(stderr, "%s: %s\n", what, why);
    ranks_close(&main_ranks, false);
    exit(1);
}

static void check(int status, const char *what)
{
    if (status != MODEL_OK)
        fail(what, model_strerror(status));
}

static void *get_memory(size_t nbytes)
{
    void *p = malloc(nbytes ? nbytes : 1);
    if (!p)
        fail("MODEL_FILE", "out of memory");
    return p;
}

/* ---- ranks */

/* sum_ranks of model_options */
static int add_up(void *user, void *x, size_t n, size_t element_bytes)
{
    (void)user;
    if (!ranks_sum(&main_ranks, x, n, element_bytes == sizeof(double), main_scratch))
        fail("MODEL_FILE", main_ranks.error);
    return 0;
}

static void add_up_numbers(double *x, size_t n)
{
    if (main_ranks.size > 1)
        (void)add_up(NULL, x, n, sizeof *x);
}

/* The ranks that a launcher has started. */
static void join_ranks(struct trainer *r)
{
    const int launched = ranks_launched();
    main_ranks.size = 1;
    if (launched > 1 && r->devices > 1)
        fail("--devices", "a launcher has started processes already: leave out one of the two");
    if (launched > 1 && !ranks_join_mpi(&main_ranks, launched))
        fail("MODEL_FILE", main_ranks.error);
    r->nrank = r->devices > 1 ? r->devices : main_ranks.size;
}

/* Those of --devices. Before there are threads. */
static void begin_ranks(struct trainer *r)
{
    if (r->devices > 1 && !ranks_fork(&main_ranks, r->devices))
        fail("MODEL_FILE", main_ranks.error);
    if (main_ranks.size == 1)
        return;
    const size_t most = (sizeof main_gradients + sizeof main_params) / sizeof(double) + 64;
    main_scratch = get_memory(ranks_sum_scratch(&main_ranks, most, true));
    r->options.sum_ranks = add_up;
    r->options.ranks = main_ranks.size;
    r->options.rank = main_ranks.rank;
}

/* What decides the calls that ranks make together, and what they compute. */
static void compare_ranks(const struct trainer *r)
{
    const int64_t own[] = {r->batch,          r->epochs,      (int64_t)r->seed,
                           (int64_t)r->init,  r->data.nsample, r->nvalid ? r->valid.nsample : -1,
                           MAIN_SAMPLES,      (int64_t)MODEL_OPTIMIZER_BYTES};
    struct block_head head[2];
    unsigned char mine[sizeof own + sizeof head + sizeof r->rate], *all;
    memset(mine, 0, sizeof mine);
    for (int i = 0; i < 2; i++)
        head[i] = block_info[2 * i].head;
    memcpy(mine, own, sizeof own);
    memcpy(mine + sizeof own, head, sizeof head);
    memcpy(mine + sizeof own + sizeof head, &r->rate, sizeof r->rate);
    all = (unsigned char *)get_memory(sizeof mine * (size_t)main_ranks.size);
    if (!ranks_gather(&main_ranks, mine, sizeof mine, all))
        fail("MODEL_FILE", main_ranks.error);
    for (int i = 1; i < main_ranks.size; i++)
        if (memcmp(all, all + (size_t)i * sizeof mine, sizeof mine) != 0)
            fail("ranks", "they have different models, data or options that decide the steps");
    free(all);
}

/* All ranks have rank 0's parameters. */
static void share_params(struct trainer *r)
{
    (void)r;
    if (main_ranks.size == 1)
        return;
    compare_ranks(r);
    if (!ranks_share(&main_ranks, main_params, sizeof main_params))
        fail("MODEL_FILE", main_ranks.error);GIVE_TO_DEVICE
}

/* This rank's rows of batches of `each` rows for a rank. */
static void set_own_rows(struct stream_options *o, int64_t each)
{
    if (main_ranks.size == 1)
        return;
    o->first_row = main_ranks.rank * each;
    o->nrow = each;
}

/* ---- the data */

/* The layout of an input's pictures, and its sizes. */
static const char *layout_of_input(const struct model_tensor *x, int64_t *dim)
{
    for (int a = 0; a < x->rank && a < LOADER_RANK; a++)
        dim[a] = x->dim[a].size;
    return x->rank <= LOADER_RANK ? loader_layout(x->rank, dim) : NULL;
}

/* NAME=FILE, or a FILE that names its arrays. */
static void open_data(struct trainer *r, struct dataset *d, const char *word)
{
    int64_t dim[LOADER_RANK];
    const char *equals = strchr(word, '='), *slash = strchr(word, '/');
    const char *layout =
        MAIN_INPUTS == 1 ? layout_of_input(&model_describe()->inputs[0], dim) : NULL;
    char *name = NULL;
    d->classes = d == &r->valid ? &r->data : NULL;
    for (int a = 1; layout && layout[a]; a++)
        *(layout[a] == 'H'   ? &d->picture_height
          : layout[a] == 'W' ? &d->picture_width
                             : &d->picture_channels) = dim[a];
    if (layout && !strchr(layout, 'C'))
        d->picture_channels = 1;
    if (equals && equals != word && !(slash && slash < equals)) {
        name = (char *)get_memory((size_t)(equals - word) + 1);
        memcpy(name, word, (size_t)(equals - word));
        name[equals - word] = 0;
        word = equals + 1;
    }
    if (!dataset_open(d, word, name))
        fail("--data", d->error);
    free(name);
}

static enum loader_type type_of(const char *dtype)
{
    int t = 0;
    while (t < LOADER_NTYPE && strcmp(loader_type_name((enum loader_type)t), dtype) != 0)
        t++;
    if (t == LOADER_NTYPE)
        fail(dtype, "no file of --data holds elements of this type");
    return (enum loader_type)t;
}

static const struct dataset_array *find_array(const struct dataset *d, const char *name,
                                              int is_only)
{
    const struct dataset_array *a = dataset_find(d, name);
    a = a || !is_only ? a : dataset_find(d, "input");
    if (!a)
        fail(name, "--data or --valid has nothing for it: give NAME=FILE");
    return a;
}

/* What feeds an input, or where x is NULL the target. */
static void add_field(struct trainer *r, const struct model_tensor *x, const char *name,
                      const char *dtype, size_t row_nbytes)
{
    int64_t dim[LOADER_RANK];
    int k = r->nfield++, is_only = x && MAIN_INPUTS == 1;
    const struct dataset_array *a = find_array(&r->data, name, is_only);
    struct stream_field *f = &r->field[k];
    f->name = a->name;
    f->type = type_of(dtype);
    if (x && a->rank >= 3 && (r->augment || a->pictures)) {
        f->augment = r->augment;
        f->layout = a->pictures ? "NHWC" : loader_layout(a->rank, a->dim);
        f->to_layout = a->pictures ? layout_of_input(x, dim) : f->layout;
        if (!f->layout || !f->to_layout)
            fail(name, "where the channels of a picture are cannot be told: they are 1, 3 or 4");
    }
    r->valid_field[k] = *f;
    if (r->nvalid)
        r->valid_field[k].name = find_array(&r->valid, name, is_only)->name;
    r->row_nbytes[k] = row_nbytes;
    r->buffer[k] = get_memory(row_nbytes * MAIN_SAMPLES);
}

static void match_data(struct trainer *r)
{
    const struct model_info *info = model_describe();
    for (int i = 0; i < info->input_count; i++) {
        const struct model_tensor *x = &info->inputs[i];
        size_t nbytes = x->element_bytes;
        for (int a = 1; a < x->rank; a++)
            nbytes *= (size_t)x->dim[a].size;
        add_field(r, x, x->name, x->dtype, nbytes);
        memcpy((char *)&r->in.data + x->offset, &r->buffer[i], sizeof r->buffer[i]);
    }
    if (MAIN_TARGET_BYTES > 0)
        add_field(r, NULL, "target", MAIN_TARGET_DTYPE, MAIN_TARGET_BYTES);
    for (int i = 0; i < info->symbol_count; i++)
        if (info->symbols[i].offset != (size_t)-1)
            memcpy((char *)&r->in.data + info->symbols[i].offset, &info->symbols[i].max,
                   sizeof info->symbols[i].max);
}

static void start_stream(const struct trainer *r, struct stream *s, const struct dataset *d,
                         const struct stream_field *field, struct stream_options o)
{
    memset(s, 0, sizeof *s);
    o.field = field;
    o.nfield = r->nfield;
    if (!dataset_stream_start(s, d, &o))
        fail("--data", s->error);
    for (int k = 0; k < r->nfield; k++)
        if ((size_t)s->array[k].row_nelem * loader_type_nbytes(field[k].type) != r->row_nbytes[k])
            fail(field[k].name, "its samples have another size than the model's input or target");
}

/* Copies n samples of the batch, from `at` on, each of which counts 1 / total. */
static void take_samples(struct trainer *r, const struct stream_batch *b, int64_t at, int64_t n,
                         double total)
{
    const double weight = (MAIN_TARGET_BYTES > 0 ? 1 : (double)n) / total;
    for (int k = 0; k < r->nfield; k++)
        for (int64_t i = 0; i < MAIN_SAMPLES; i++)
            memcpy((char *)r->buffer[k] + (size_t)i * r->row_nbytes[k],
                   (const char *)b->data[k] + (size_t)(at + i % n) * r->row_nbytes[k],
                   r->row_nbytes[k]);
    for (int64_t i = 0; i < MAIN_SAMPLES; i++)
        r->weight[i] = i < n ? (MAIN_VALUE)weight : 0;
    r->in.sample_weight = r->weight;
}

/* ---- training */

static double train_step(struct trainer *r, const struct stream_batch *b)
{
    const MAIN_TARGET *target = (const MAIN_TARGET *)r->buffer[r->nfield - 1];
    const int64_t from = main_ranks.rank * r->own, stop = from + r->own;
    const int64_t end = b->n < stop ? b->n : stop;
    const int is_one_run = r->batch <= MAIN_SAMPLES && main_ranks.size == 1;
    double sum = 0;
    MAIN_LOSS loss = 0;
    r->in.step++;
    for (int64_t at = from; at < end; at += MAIN_SAMPLES) {
        const int64_t n = end - at < MAIN_SAMPLES ? end - at : (int64_t)MAIN_SAMPLES;
        take_samples(r, b, at, n, (double)b->n);
        if (is_one_run)
            check(model_train(r->self, &r->in, target, &loss), "a step");
        else
            check(model_gradients(r->self, &r->in, target, &loss), "a run of a step");
        sum += (double)loss;
    }
    add_up_numbers(&sum, 1);
    if (!is_one_run)
        check(model_update(r->self, &r->in), "the update of a step");
    if (!(sum - sum == 0))
        fail("the loss is not finite", "a lower --lr may help; inputs may be far from 0 to 1");
    return sum;
}

/* The mean loss, and the share of samples that are right; -1: there are no classes. */
static double evaluate(struct trainer *r, int is_valid, double *accuracy)
{
    const MAIN_TARGET *target = (const MAIN_TARGET *)r->buffer[r->nfield - 1];
    const struct dataset *d = is_valid ? &r->valid : &r->data;
    struct stream_options o;
    struct stream_batch b;
    struct stream s;
    double sum[2] = {0, 0};             /* the loss; what is right */
    enum stream_status status;
    memset(&o, 0, sizeof o);
    set_own_rows(&o, MAIN_SAMPLES);
    o.batch = (int64_t)MAIN_SAMPLES * main_ranks.size;
    o.epochs = 1, o.in_order = true, o.evaluates = true;
    start_stream(r, &s, d, is_valid ? r->valid_field : r->field, o);
    while ((status = dataset_stream_next(&s, &b)) == STREAM_BATCH) {
        MAIN_LOSS loss = 0, correct = 0;
        const int64_t left = b.n - o.first_row;
        const int64_t n = left < MAIN_SAMPLES ? left : (int64_t)MAIN_SAMPLES;
        if (n <= 0)
            continue;
        take_samples(r, &b, o.first_row, n, 1);
        check(model_evaluate(r->self, &r->in, target, &loss, &correct), "an evaluation");
        sum[0] += (double)loss;
        sum[1] += (double)correct;
    }
    if (status == STREAM_FAILED)
        fail("--data", s.error);
    dataset_stream_stop(&s);
    add_up_numbers(sum, 2);
    *accuracy = MAIN_HAS_CLASSES ? sum[1] / (double)d->nsample : -1;
    return sum[0] / (double)d->nsample;
}

static void print_measure(FILE *out, const char *prefix, double loss, double accuracy)
{
    if (main_ranks.rank > 0)
        return;
    fprintf(out, ", %sloss %.6g", prefix, loss);
    if (accuracy >= 0)
        fprintf(out, ", %saccuracy %.4f", prefix, accuracy);
}

static void train(struct trainer *r)
{
    struct stream_options o;
    struct stream_batch b;
    struct stream s;
    double sum = 0, accuracy;
    clock_t start = clock();
    memset(&o, 0, sizeof o);
    o.batch = r->batch, o.seed = r->seed, o.epochs = r->epochs;
    set_own_rows(&o, r->own);
    start_stream(r, &s, &r->data, r->field, o);
    for (int epoch = 1; epoch <= r->epochs;) {
        if (dataset_stream_next(&s, &b) != STREAM_BATCH)
            fail("--data", s.error);
        sum += train_step(r, &b) * (double)b.n;
        if (!b.is_last)
            continue;
        if (main_ranks.rank == 0)
            fprintf(stderr, "epoch %d/%d", epoch, r->epochs);
        print_measure(stderr, "", sum / (double)r->data.nsample, -1);
        if (r->nvalid) {
            const double loss = evaluate(r, 1, &accuracy);
            print_measure(stderr, "valid_", loss, accuracy);
        }
        if (main_ranks.rank == 0)
            fprintf(stderr, ", %.2f s of the processor\n",
                    (double)(clock() - start) / CLOCKS_PER_SEC);
        start = clock();
        sum = 0;
        epoch++;
    }
    dataset_stream_stop(&s);
}

/* ---- the block */

/* Weights that are not in the program: at a multiple of 64 bytes. */
static void read_weights(struct trainer *r, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0)
        fail(path, "the model's weights cannot be read; --weights=FILE says where they are");
    const long n = ftell(f);
    rewind(f);
    r->weights_memory = get_memory((size_t)n + 64);
    char *at = (char *)r->weights_memory + (64 - (uintptr_t)r->weights_memory % 64) % 64;
    if (n < 0 || fread(at, 1, (size_t)n, f) != (size_t)n)
        fail(path, "the model's weights cannot be read");
    fclose(f);
    r->options.weights = at;
    r->options.weights_bytes = (size_t)n;
}

static void read_params(struct trainer *r, const char *path)
{
    const size_t n = sizeof main_params;
    FILE *f = fopen(path, "rb");
    r->start_block = get_memory(n);
    if (!f || fread(r->start_block, 1, n, f) != n || fgetc(f) != EOF)
        fail(path, "is no block of this model's parameters");
    fclose(f);
}

static void start_by_params(struct trainer *r, const char *path)
{
    (void)path;
    memcpy(main_params, r->start_block, sizeof main_params);UPLOAD
}

/* The block appears by rename: a program that is killed leaves the older one. */
static char *open_part(const char *path, FILE **f)
{
    const size_t n = strlen(path);
    char *part = (char *)get_memory(n + 6);
    memcpy(part, path, n);
    memcpy(part + n, ".part", 6);
    *f = fopen(part, "wb");
    if (!*f)
        fail(part, strerror(errno));
    return part;
}

static void check_output(const char *path)
{
    FILE *f = fopen(path, "r+b");
    if (!f && errno == EISDIR)
        fail(path, "is a directory; a file to write is expected");
    if (f)
        fclose(f);
    char *part = open_part(path, &f);
    fclose(f);
    remove(part);
    free(part);
}

static void write_params(const char *path)
{
    FILE *f;
    char *part = open_part(path, &f);
    if (fwrite(main_params, 1, sizeof main_params, f) != sizeof main_params || fclose(f) != 0 ||
        rename(part, path) != 0) {
        remove(part);
        fail(path, "cannot be written; what was there stays");
    }
    free(part);
}

static int usage(FILE *out, int status)
{
    fprintf(out,
            "usage: MODEL_FILE --data NAME=FILE|FILE... -o BLOCK [options]\n"
            "       --data, --valid NAME=FILE  samples of an input or of `target`: .npy, IDX, .csv, .gz\n"
            "                       FILE       of these, too: .npz, .csv, a folder of pictures by class\n"
            "       --target-column=NAME       of a .csv\n"
            "       --epochs=N --batch=N --lr=X --seed=N --threads=N\n"
            "       --devices=N     processes that share each step; mpirun -n N does the same\n"
            "       --timeout=S     seconds that one waits for the others, 300 otherwise\n"
            "       --init=SEED     weights that are drawn; the model's otherwise\n"
            "       --params=BLOCK  weights of a block\n"
            "       --weights=FILE  where MODEL_FILE.weights is, of a program that was made so\n"
            "       --augment=shift:N,flip,crop:HxW,normalize:MEAN:STD\n"
            "tgc weights MODEL --params BLOCK -o OUT.onnx makes a model of the block.\n");
    return status;
}

/* The value of --name=VALUE or --name VALUE; NULL: the word is another one. */
static const char *value_of(const char *name, char **argv, int argc, int *i)
{
    const size_t n = strlen(name);
    if (strncmp(argv[*i], name, n) != 0 || (argv[*i][n] != 0 && argv[*i][n] != '='))
        return NULL;
    if (argv[*i][n] == '=')
        return argv[*i] + n + 1;
    return *i + 1 < argc ? argv[++*i] : NULL;
}

/* The whole number, not negative, that is the value of an option. */
static int64_t whole(const char *option, const char *s)
{
    char *end;
    errno = 0;
    const long long n = strtoll(s, &end, 10);
    if (end == s || *end || errno || n < 0)
        fail(option, "a whole number is expected, not negative");
    return n;
}

static int whole_int(const char *option, const char *s)
{
    const int64_t n = whole(option, s);
    if (n > INT_MAX)
        fail(option, "is too large a number");
    return (int)n;
}

static double positive(const char *option, const char *s)
{
    char *end;
    const double v = strtod(s, &end);
    if (end == s || *end || !(v > 0) || !(v - v == 0))
        fail(option, "a positive number is expected");
    return v;
}

/* false: no such option. The files are opened when all options are known. */
static int read_option(struct trainer *r, char **argv, int argc, int *i)
{
    const char *v;
    if ((v = value_of("--data", argv, argc, i)))
        r->ndata++;
    else if ((v = value_of("--valid", argv, argc, i)))
        r->nvalid++;
    else if ((v = value_of("-o", argv, argc, i)))
        r->output = v;
    else if ((v = value_of("--target-column", argv, argc, i)))
        r->data.target_column = r->valid.target_column = v;
    else if ((v = value_of("--epochs", argv, argc, i)))
        r->epochs = whole_int("--epochs", v);
    else if ((v = value_of("--batch", argv, argc, i)))
        r->batch = whole("--batch", v);
    else if ((v = value_of("--lr", argv, argc, i)))
        r->rate = positive("--lr", v);
    else if ((v = value_of("--seed", argv, argc, i)))
        r->seed = (uint64_t)whole("--seed", v);
    else if ((v = value_of("--init", argv, argc, i)))
        r->init = (uint64_t)whole("--init", v);
    else if ((v = value_of("--params", argv, argc, i)))
        r->start = v;
    else if ((v = value_of("--weights", argv, argc, i)))
        r->weights = v;
    else if ((v = value_of("--augment", argv, argc, i)))
        r->augment = v;
    else if ((v = value_of("--devices", argv, argc, i)))
        r->devices = whole_int("--devices", v);
    else if ((v = value_of("--timeout", argv, argc, i)))
        main_ranks.timeout = positive("--timeout", v);
    else if ((v = value_of("--threads", argv, argc, i)))
        r->options.threads = whole_int("--threads", v);
    return v != NULL;
}

/* The rows of each rank. */
static void divide_batch(struct trainer *r)
{
    char why[160];
    r->own = r->batch / r->nrank;
    if (r->own * r->nrank == r->batch)
        return;
    if (r->data.nsample < r->nrank)
        fail("--data", "there are fewer samples than processes");
    const int64_t below = r->own * r->nrank, above = below + r->nrank;
    const int is_below = below && (r->batch - below < above - r->batch || above > r->data.nsample);
    (void)snprintf(why, sizeof why,
                   "a batch of %lld samples does not divide by %d processes: give --batch=%lld",
                   (long long)r->batch, r->nrank, (long long)(is_below ? below : above));
    fail("--batch", why);
}

static void open_all(struct trainer *r, char **argv, int argc)
{
    const char *v;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 1; i < argc; i++)
            if ((v = value_of(pass ? "--valid" : "--data", argv, argc, &i)))
                open_data(r, pass ? &r->valid : &r->data, v);
    if (!r->batch)
        r->batch = r->data.nsample < MAIN_BATCH ? r->data.nsample : (int64_t)MAIN_BATCH;
    if (r->batch > r->data.nsample)
        fail("--batch", "is more than the samples of --data");
    divide_batch(r);
    match_data(r);
    if (model_describe()->weights_external)
        read_weights(r, r->weights ? r->weights : "MODEL_FILE.weights");
    if (r->start && main_ranks.rank == 0)
        read_params(r, r->start);
    if (main_ranks.rank == 0)
        check_output(r->output);
}

static void open_model(struct trainer *r)
{
    r->options.params = main_params;
    r->options.gradients = main_gradients;
    r->options.optimizer = main_optimizer;
    check(model_init(&r->self, main_arena, sizeof main_arena, &r->options), "MODEL_FILE");
    check(model_params_init(r->self, r->init), "MODEL_FILE");
    if (r->start && main_ranks.rank == 0)
        start_by_params(r, r->start);
    share_params(r);
    r->in.learning_rate = (float)r->rate;
    r->in.weight_decay = MODEL_WEIGHT_DECAY;
}

int main(int argc, char **argv)
{
    struct trainer *r = (struct trainer *)get_memory(sizeof *r);
    double accuracy;
    memset(r, 0, sizeof *r);
    r->epochs = 10;
    r->rate = (double)MODEL_LEARNING_RATE;
    main_ranks.timeout = 300;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0)
            return usage(stdout, 0);
        if (!read_option(r, argv, argc, &i))
            return usage(stderr, 2);
    }
    if (!r->ndata || !r->output || r->epochs < 1)
        return usage(stderr, 2);
    join_ranks(r);
    open_all(r, argv, argc);
    begin_ranks(r);
    open_model(r);
    train(r);
    if (main_ranks.rank == 0)
        printf("%s: epoch %d, step %lld", r->output, r->epochs, (long long)r->in.step);
    const double loss = evaluate(r, 0, &accuracy);
    print_measure(stdout, "", loss, accuracy);
    if (r->nvalid) {
        const double valid = evaluate(r, 1, &accuracy);
        print_measure(stdout, "valid_", valid, accuracy);
    }
    if (main_ranks.rank == 0) {
        printf("\n");DOWNLOAD
        write_params(r->output);
    }
    ranks_close(&main_ranks, true);
    model_close(r->self);
    for (int k = 0; k < r->nfield; k++)
        free(r->buffer[k]);
    dataset_close(&r->data);
    dataset_close(&r->valid);
    free(main_scratch);
    free(r->weights_memory);
    free(r->start_block);
    free(r);
    return 0;
}
