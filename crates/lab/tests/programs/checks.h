// What programs of checks have in common: parts, each of which says in a line how many of its checks failed; which, on standard error.
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int wrong;

static void check(int right, const char *what) {
    if (!right) {
        wrong++;
        fprintf(stderr, "%s: not so (%s)\n", what, strerror(errno));
    }
}
#define CHECK(x) check((x), #x)
#define FAILS(x, error) check((errno = 0, (long)(x) == -1 && errno == (error)), #x)

struct part {
    const char *name;
    void (*part)(void);
};

// All of them in this order, or the one that is named on the command line.
static void play(const struct part *parts, unsigned many, int count, char **arguments) {
    for (unsigned i = 0; i < many; i++) {
        if (count > 1 && strcmp(arguments[1], parts[i].name)) continue;
        wrong = 0;
        parts[i].part();
        printf("%s: %d\n", parts[i].name, wrong);
        fflush(stdout);
    }
}
#define PLAY(parts, count, arguments) play(parts, sizeof parts / sizeof *parts, count, arguments)
