// What a munmap that frees a page table costs its caller where the other CPU has the space loaded: nothing there, at work, asleep most of the time.
// For docs/replays.md; needs two CPUs.
//
//     cc -O2 -pthread -o idle idle.c && ./idle
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 3000, TABLE = 2 << 20, NS_BETWEEN = 100000 };

static atomic_bool stop, sleeps;
static volatile char *shared;

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void *other(void *nothing) {
    pin(1);
    while (!stop) {
        shared[0]++;
        if (sleeps) usleep(300);
    }
    return nothing;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Half of the calls took no longer, in nanoseconds.
static double median(char *place) {
    static double took[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        char *at = mmap(place, TABLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        madvise(at, TABLE, MADV_NOHUGEPAGE);
        at[0] = 1;
        for (double begin = now(); now() - begin < NS_BETWEEN;) {}
        double begin = now();
        munmap(at, TABLE);
        took[i] = now() - begin;
    }
    qsort(took, ROUNDS, sizeof *took, compare);
    return took[ROUNDS / 2];
}

int main(void) {
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *room = mmap(NULL, 4 * TABLE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *place = (char *)(((unsigned long)room + 2 * TABLE - 1) / TABLE * TABLE);
    pin(0);
    printf("nobody there: %.0f ns\n", median(place));
    for (int how = 0; how < 2; how++) {
        pthread_t thread;
        stop = false;
        sleeps = how;
        pthread_create(&thread, NULL, other, NULL);
        usleep(20000);
        printf("%s: %.0f ns\n", how ? "asleep most of the time" : "at work", median(place));
        stop = true;
        pthread_join(thread, NULL);
    }
    return 0;
}
