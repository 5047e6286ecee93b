/* plugin.c - calls a model from a shared object, which needs position-independent code. */
#include "plain.h"

const char *plugin_says(int status);
const char *plugin_says(int status) { return plain_strerror(status); }
