/* Reads files that are larger than memory, each CPU its own, through a mapping: what `lru-file-mmap-read` does here, for Linux.

       reader DIR CPUS BYTES procs|threads

   BYTES is of all files together. Each word of each page is read, and has to be 0: the files are holes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *dir;
static size_t bytes;

static void need(int well, const char *what)
{
    if (!well) {
        perror(what);
        exit(1);
    }
}

static void *reader(void *cpu)
{
    long nth = (long)cpu;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(nth, &set);
    need(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");

    char path[4096];
    snprintf(path, sizeof path, "%s/%ld", dir, nth);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    need(file >= 0 && ftruncate(file, bytes) == 0, path);
    volatile const unsigned long *words = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    need(words != MAP_FAILED, "mmap");
    for (size_t i = 0; i < bytes / sizeof *words; i++)
        if (words[i]) {
            fprintf(stderr, "%s: word %zu is %lx\n", path, i, words[i]);
            exit(1);
        }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: reader DIR CPUS BYTES procs|threads\n");
        return 2;
    }
    dir = argv[1];
    long cpus = atol(argv[2]);
    bytes = atoll(argv[3]) / cpus & ~4095UL;

    if (strcmp(argv[4], "threads") == 0) {
        pthread_t threads[cpus];
        for (long i = 0; i < cpus; i++)
            need(pthread_create(&threads[i], NULL, reader, (void *)i) == 0, "pthread_create");
        for (long i = 0; i < cpus; i++)
            pthread_join(threads[i], NULL);
        return 0;
    }
    for (long i = 0; i < cpus; i++)
        if (fork() == 0) {
            reader((void *)i);
            _exit(0);
        }
    int well = 1, status;
    while (wait(&status) > 0)
        well &= status == 0;
    return !well;
}
