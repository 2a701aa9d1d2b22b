// Memory that does not suffice. `short swap MIB`: three children write more than there is together, each reads what it wrote, in memory of its own and in
// memory that they share. `short end`: one takes without end and is ended; the others have what they wrote, and so has who reads into fresh memory.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define CHILDREN 3

static uint64_t word(uint64_t page, uint64_t of) { return (page * 0x9e3779b97f4a7c15 ^ of << 56) | 1; }

static void fill(uint64_t *at, uint64_t pages, uint64_t of) {
    for (uint64_t i = 0; i < pages; i++) at[i * PAGE / 8 + i % 512] = word(i, of);
}

static uint64_t wrong_in(const uint64_t *at, uint64_t pages, uint64_t of) {
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < pages; i++) wrong += at[i * PAGE / 8 + i % 512] != word(i, of) || at[i * PAGE / 8 + (i + 1) % 512] != 0;
    return wrong;
}

static void *map(uint64_t pages, int how) {
    void *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) perror("mmap"), exit(2);
    return at;
}

static int swaps(uint64_t pages) {
    uint64_t *shared = map(pages, MAP_SHARED), *before = map(pages / 4, MAP_PRIVATE);
    fill(before, pages / 4, 9);
    for (uint64_t child = 0; child < CHILDREN; child++)
        if (fork() == 0) {
            uint64_t *own = map(pages, MAP_PRIVATE), part = pages / CHILDREN, wrong = 0;
            uint64_t *mine = shared + child * part * PAGE / 8;
            fill(mine, part, child);
            for (int round = 0; round < 2; round++) {
                fill(own, pages, child + 3);
                wrong += wrong_in(own, pages, child + 3) + wrong_in(mine, part, child) + wrong_in(before, pages / 4, 9);
            }
            _exit(wrong ? 1 : 0);
        }
    int ended, bad = 0;
    while (wait(&ended) > 0) bad += ended != 0;
    for (uint64_t child = 0; child < CHILDREN; child++) bad += wrong_in(shared + child * (pages / CHILDREN) * PAGE / 8, pages / CHILDREN, child) != 0;
    bad += wrong_in(before, pages / 4, 9) != 0;
    printf("swap: %d wrong\n", bad);
    return bad != 0;
}

static int ends(void) {
    enum { OWN = 128 };
    int files = open("/dev/zero", O_RDONLY), begin[2], status;
    if (pipe(begin)) return 2;
    pid_t others[CHILDREN];
    for (int child = 0; child < CHILDREN; child++)
        if ((others[child] = fork()) == 0) {
            char go;
            uint64_t *own = map(OWN, MAP_PRIVATE);
            fill(own, OWN, child);
            close(begin[1]);
            // Until there is no memory, and while there is none: what they have stays, and they get more.
            while (read(begin[0], &go, 1) != 0) {}
            uint64_t wrong = wrong_in(own, OWN, child);
            uint64_t *more = map(OWN, MAP_PRIVATE);
            // The kernel writes there first.
            wrong += read(files, more, OWN * PAGE) != OWN * PAGE;
            fill(more, OWN, child);
            _exit(wrong + wrong_in(more, OWN, child) ? 1 : 0);
        }
    pid_t first = fork();
    if (first == 0) {
        close(begin[0]), close(begin[1]);
        for (;;) fill(map(256, MAP_PRIVATE), 256, 7);
    }
    if (waitpid(first, &status, 0) != first) return 2;
    printf("end: signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    // By a call: what a read writes to is fresh.
    pid_t second = fork();
    if (second == 0) {
        close(begin[0]), close(begin[1]);
        for (;;) if (read(files, map(256, MAP_PRIVATE), 256 * PAGE) != 256 * PAGE) _exit(1);
    }
    if (waitpid(second, &status, 0) != second) return 2;
    printf("end in a call: signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    close(begin[0]), close(begin[1]);
    int bad = 0;
    for (int child = 0; child < CHILDREN; child++) bad += waitpid(others[child], &status, 0) != others[child] || status != 0;
    printf("others: %d wrong\n", bad);
    return bad != 0;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc == 3 && !strcmp(argv[1], "swap")) return swaps((uint64_t)atoi(argv[2]) * 256 / (CHILDREN + 1));
    if (argc == 2 && !strcmp(argv[1], "end")) return ends();
    return 2;
}
