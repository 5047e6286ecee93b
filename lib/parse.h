/* parse.h - what the files that read options share: the rows of options.def, and the reader. */
#ifndef TGC_PARSE_H
#define TGC_PARSE_H

#include "lib/lib.h"

/* option_rows.c */
enum option_kind { FLAG, VALUE, LIST };
struct option_row { const char *spelling, *value; enum option_kind kind; const char *commands; };
struct command_row { const char *name; char letter; };
struct emit_row { const char *extension, *text; bool built; };
struct target_row { const char *name, *variable; bool built; };
extern const struct option_row option_rows[OPTION_COUNT];
extern const struct command_row command_rows[COMMAND_COUNT];
extern const struct emit_row emit_rows[EMIT_COUNT];
extern const struct target_row target_rows[TARGET_COUNT];

/* options.c */
struct given { enum option_id id; const char *value; };
struct parser {
    struct tgc *t;
    const char *(*getenv_)(const char *);
    struct options *o;
    const char **word; size_t nword, cap_word;
    struct given *given; size_t ngiven, cap_given;
    const char *operand[3]; int noperand;
};
/* Records wrong usage; false. */
bool usage(struct parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Splits the text of a file of options. false: an open quote. */
bool split_words(struct parser *p, const char *s, const char ***word, size_t *n);

/* environment.c */
/* Reads the variables of options.def into p->o. needs: the command line has been read. */
bool environment_apply(struct parser *p, bool has_target, bool has_level);

/* option_values.c */
/* Reads an option's value into p->o. false: wrong usage. */
bool option_apply(struct parser *p, const struct given *g);
/* option_training.c: of tgc train alone; --data, which verify has, too; what must be given. */
bool option_apply_training(struct parser *p, const struct given *g);
void option_apply_data(struct parser *p, const struct given *g);
bool options_check_training(struct parser *p);
/* What --train needs and excludes; no option of a training is given without it. */
bool options_check_emitted_training(struct parser *p);
/* from: who names it, for messages. */
bool set_target(struct parser *p, const char *name, const char *from);
bool set_emit(struct parser *p, const char *kind, const char *from);

#endif
