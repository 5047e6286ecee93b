/* SPDX-License-Identifier: 0BSD */
/* device.c - what the device is, by $TGC_EMULATOR_DEVICE: words such as "double=0 local=16384
 * name=Adreno".
 */
#define _GNU_SOURCE
#include "emulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct fact {
    const char *name;
    size_t offset;
    long usual;
} fact[] = {
    {"double", offsetof(struct device_facts, is_double), 1},
    {"half", offsetof(struct device_facts, is_half), 1},
    {"image", offsetof(struct device_facts, is_image), 1},
    {"local", offsetof(struct device_facts, local), 32768},
    {"group", offsetof(struct device_facts, group), 1024},
    {"axis", offsetof(struct device_facts, axis), 1024},
    {"subgroup", offsetof(struct device_facts, subgroup), 32},
    {"units", offsetof(struct device_facts, units), 4},
    {"devices", offsetof(struct device_facts, devices), 1},
    {"width", offsetof(struct device_facts, width), 16384},
    {"pixels", offsetof(struct device_facts, pixels), (long)1 << 27},
    {"pitch", offsetof(struct device_facts, pitch), 64},
    {"parameters", offsetof(struct device_facts, parameters), 1024},
    {"align", offsetof(struct device_facts, align), 128},
    {"memory", offsetof(struct device_facts, memory), (long)1 << 40},
    {"most", offsetof(struct device_facts, most), 0},
    {"unified", offsetof(struct device_facts, is_unified), 0},
    {"eager", offsetof(struct device_facts, is_eager), 0},
    {"family", offsetof(struct device_facts, family), 9},
    {"tier", offsetof(struct device_facts, tier), 2},
    {"resident", offsetof(struct device_facts, is_resident), 1},
    {"arch", offsetof(struct device_facts, arch), 80},
    {"banks", offsetof(struct device_facts, looks_at_banks), 0},
    {"driver", offsetof(struct device_facts, driver), 13000},
    {"code", offsetof(struct device_facts, takes_code), 1},
    {"placed", offsetof(struct device_facts, is_placed), 0},
    {"order", offsetof(struct device_facts, order), 0},
    {"wave", offsetof(struct device_facts, wave), 1},
    {"contracts", offsetof(struct device_facts, contracts), 0},
};

static struct {
    struct device_facts facts;
    char name[128], version[128];
    bool is_read;
} device;

static void read_word(const char *word)
{
    const char *value = strchr(word, '=');
    value = value ? value + 1 : "1";
    if (strncmp(word, "name=", 5) == 0)
        snprintf(device.name, sizeof device.name, "%s", value);
    else if (strncmp(word, "version=", 8) == 0)
        snprintf(device.version, sizeof device.version, "%s", value);
    else {
        for (size_t i = 0; i < sizeof fact / sizeof *fact; i++)
            if (strncmp(word, fact[i].name, strlen(fact[i].name)) == 0) {
                *(long *)(void *)((char *)&device.facts + fact[i].offset) = strtol(value, NULL, 0);
                return;
            }
        report("TGC_EMULATOR_DEVICE has the word '%s', which is no fact of a device", word);
    }
}

void device_read(void)
{
    for (size_t i = 0; i < sizeof fact / sizeof *fact; i++)
        *(long *)(void *)((char *)&device.facts + fact[i].offset) = fact[i].usual;
    snprintf(device.name, sizeof device.name, "emulator");
    snprintf(device.version, sizeof device.version, "1.0");
    const char *said = getenv("TGC_EMULATOR_DEVICE");
    char words[512], *rest = words;
    snprintf(words, sizeof words, "%s", said ? said : "");
    for (char *word = strtok_r(rest, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        read_word(word);
    device.facts.name = device.name;
    device.facts.version = device.version;
    device.is_read = true;
}

const struct device_facts *device_facts(void)
{
    if (!device.is_read)
        device_read();
    return &device.facts;
}
