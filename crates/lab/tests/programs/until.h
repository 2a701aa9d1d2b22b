// Waiting until something is so, however long a busy machine takes: whatever is slept for a time may come late. What has not come after minutes
// never does.
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define UNTIL(holds) ({ int so_ = 0; for (int tries_ = 0; tries_ < 240000 && !(so_ = (holds) != 0); tries_++) usleep(1000); so_; })

// For `poll` and its like, in milliseconds; and for an `alarm`, which ends what never ends, in seconds.
enum { LONG = 240000, HANGS = 900 };

// How a process is, or a thread of this one, as `/proc` says it: `S` is asleep. 0: it is not there.
static char state_in(const char *path) {
    char line[512];
    FILE *file = fopen(path, "r");
    size_t len = file ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file) fclose(file);
    line[len] = 0;
    char *end = strrchr(line, ')');
    return end ? end[2] : 0;
}

__attribute__((unused)) static char state_of(pid_t pid) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    return state_in(path);
}

__attribute__((unused)) static char state_of_thread(pid_t tid) {
    char path[48];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    return state_in(path);
}
