/* test_digest.c - lib/digest.c: every byte, place and length counts, small or large, and so does
 * the key. SHA-256 itself is right: what is below a chunk goes there alone, with known answers.
 */
#include "lib/digest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct made { unsigned char byte[DIGEST_NBYTES]; };

static struct made digest_of(const char *secret, const unsigned char *data, size_t n)
{
    struct digest_key *key = malloc(sizeof *key);
    struct digest d;
    struct made made;
    digest_key(key, secret, strlen(secret));
    digest_begin(&d, key);
    digest_add(&d, data, n);
    digest_end(&d, made.byte);
    free(key);
    return made;
}

static bool same(struct made a, struct made b) { return memcmp(&a, &b, sizeof a) == 0; }

/* SHA-256 of the first words of the key, a length and the data, by another implementation. */
static void test_known(void **state)
{
    static const unsigned char expected[DIGEST_NBYTES] = {
        0x2d, 0x0e, 0xdd, 0x58, 0xa4, 0x53, 0x6b, 0xb1, 0x89, 0x8b, 0xf4, 0xc1, 0x27, 0xe9,
        0xe0, 0x2d, 0xed, 0x4d, 0xe3, 0xfd, 0x52, 0x4e, 0x74, 0x0c, 0x08, 0x0d, 0x1e, 0x16,
        0x00, 0x81, 0x4b, 0x5a};
    (void)state;
    assert_memory_equal(digest_of("secret", (const unsigned char *)"abc", 3).byte, expected,
                        sizeof expected);
}

static void test_every_byte(void **state)
{
    enum { CHUNK = 8 * CHUNK_NWORD };
    const size_t sizes[] = {1, 63, 64, 200, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 17};
    unsigned char *data = malloc(4 * CHUNK);
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t n = sizes[k];
        memset(data, 0, 4 * CHUNK);
        struct made whole = digest_of("a", data, n);
        assert_true(same(whole, digest_of("a", data, n)));
        assert_false(same(whole, digest_of("b", data, n)));
        assert_false(same(whole, digest_of("a", data, n + 1)));
        for (size_t i = 0; i < n; i += n < 300 ? 1 : 97) {
            data[i] ^= (unsigned char)(1 << i % 8);
            assert_false(same(whole, digest_of("a", data, n)));
            data[i] = 0;
        }
    }
    /* words that change places, and the same sum in other words */
    for (int i = 0; i < CHUNK; i++)
        data[i] = (unsigned char)(i / 8);
    struct made first = digest_of("a", data, CHUNK);
    for (size_t i = 0; i + 24 <= CHUNK; i += 8) {
        unsigned char word[8];
        memcpy(word, data + i, 8);
        memmove(data + i, data + i + 16, 8);
        memcpy(data + i + 16, word, 8);
        bool equal = memcmp(data + i, word, 8) == 0;
        assert_true(equal == same(first, digest_of("a", data, CHUNK)));
        memmove(data + i + 16, data + i, 8);
        memcpy(data + i, word, 8);
    }
    free(data);
}

static void test_items(void **state)
{
    struct digest_key *key = malloc(sizeof *key);
    const char *two[][2] = {{"ab", "c"}, {"a", "bc"}, {"abc", ""}, {"abc", NULL}, {NULL, "abc"}};
    struct made made[5];
    (void)state;
    digest_key(key, "a", 1);
    for (int i = 0; i < 5; i++) {
        struct digest d;
        digest_begin(&d, key);
        digest_add_string(&d, two[i][0]);
        digest_add_string(&d, two[i][1]);
        digest_end(&d, made[i].byte);
        for (int k = 0; k < i; k++)
            assert_false(same(made[i], made[k]));
    }
    free(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
