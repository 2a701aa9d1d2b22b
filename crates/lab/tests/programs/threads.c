/* Maps and unmaps from all threads, and looks at every page: static, by the C library of the host.
 *
 *     threads churn THREADS ROUNDS    each has its own memory: mapped, written, moved, protected, unmapped, looked at
 *     threads remap THREADS ROUNDS    all read a page that one of them maps anew: none may see what was there before
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096L
#define OWN (MAP_PRIVATE | MAP_ANONYMOUS)

static int threads, rounds;
static atomic_long wrong;

static char *map(void *at, long pages, int flags) {
    char *p = mmap(at, pages * PAGE, PROT_READ | PROT_WRITE, OWN | flags, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    return p;
}

static void *churn(void *argument) {
    long id = (long)argument;
    unsigned seed = id * 7919 + 1;
    for (int round = 0; round < rounds; round++) {
        long pages = 3 + rand_r(&seed) % 61;
        char *p = map(NULL, pages, 0);
        for (long i = 0; i < pages; i++) {
            wrong += p[i * PAGE] != 0;
            p[i * PAGE] = (char)(id + i + round);
        }
        if (round % 3 == 0) {
            munmap(p + PAGE, PAGE);
            map(p + PAGE, 1, MAP_FIXED);
            wrong += p[PAGE] != 0;
            p[PAGE] = (char)(id + 1 + round);
        }
        if (round % 5 == 0) {
            mprotect(p, pages * PAGE, PROT_READ);
            mprotect(p, pages * PAGE, PROT_READ | PROT_WRITE);
        }
        if (round % 7 == 0) {
            p = mremap(p, pages * PAGE, (pages + 8) * PAGE, MREMAP_MAYMOVE);
            if (p == MAP_FAILED) exit(2);
            wrong += p[pages * PAGE] != 0;
            munmap(p + pages * PAGE, 8 * PAGE);
        }
        if (round % 4 == 0) {
            madvise(p + 2 * PAGE, PAGE, MADV_DONTNEED);
            wrong += p[2 * PAGE] != 0;
            p[2 * PAGE] = (char)(id + 2 + round);
        }
        for (long i = 0; i < pages; i++) wrong += p[i * PAGE] != (char)(id + i + round);
        munmap(p, pages * PAGE);
    }
    return NULL;
}

static volatile long *shared;
/* Even: the page shows the round; odd: it was mapped anew, and shows 0. */
static atomic_long step;
static atomic_long seen;

static void *reader(void *argument) {
    (void)argument;
    for (long now = 1; now <= 2L * rounds; now++) {
        while (atomic_load(&step) < now) {}
        long value = *shared;
        wrong += value != (now % 2 ? now : 0);
        atomic_fetch_add(&seen, 1);
    }
    return NULL;
}

static void remap(void) {
    shared = (volatile long *)map(NULL, 1, 0);
    pthread_t all[64];
    for (int i = 0; i < threads; i++) pthread_create(&all[i], NULL, reader, NULL);
    for (long now = 1; now <= 2L * rounds; now++) {
        if (now % 2) *shared = now;
        else map((void *)shared, 1, MAP_FIXED);
        atomic_store(&step, now);
        while (atomic_load(&seen) < now * threads) {}
    }
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
}

int main(int count, char **words) {
    if (count != 4) return 2;
    threads = atoi(words[2]);
    rounds = atoi(words[3]);
    if (threads < 1 || threads > 64) return 2;
    if (!strcmp(words[1], "remap")) {
        remap();
    } else {
        pthread_t all[64];
        for (long i = 0; i < threads; i++)
            if (pthread_create(&all[i], NULL, churn, (void *)i)) return 2;
        for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    }
    printf("%s: %d threads, %d rounds, %ld wrong\n", words[1], threads, rounds, atomic_load(&wrong));
    return wrong != 0;
}
