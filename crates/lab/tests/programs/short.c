// Memory that does not suffice. `short swap MIB`: three children write more than there is together, each reads what it wrote, in memory of its own and in
// memory that they share. `short end`: one takes without end and is ended. Then one has most and sleeps, and is ended when another one, which has less, wants
// more than there is: that one gets it, by its own writes and by calls that write there. Three more have what they wrote.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
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

static int ended_by(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child) exit(2);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

static int ends(void) {
    enum { OWN = 128 };
    int zero = open("/dev/zero", O_RDONLY), begin[2], ready[2];
    char word;
    if (pipe(begin) || pipe(ready)) return 2;
    pid_t others[CHILDREN];
    for (int child = 0; child < CHILDREN; child++)
        if ((others[child] = fork()) == 0) {
            uint64_t *own = map(OWN, MAP_PRIVATE);
            fill(own, OWN, child);
            close(begin[1]);
            while (read(begin[0], &word, 1) != 0) {}
            _exit(wrong_in(own, OWN, child) ? 1 : 0);
        }
    pid_t first = fork();
    if (first == 0)
        for (;;) fill(map(256, MAP_PRIVATE), 256, 7);
    printf("without end: %d\n", ended_by(first));

    struct sysinfo there;
    if (sysinfo(&there)) return 2;
    uint64_t free = (there.freeram + there.freeswap) * there.mem_unit / PAGE, most = free / 20 * 14, less = free / 20 * 9;
    pid_t sleeper = fork();
    if (sleeper == 0) {
        fill(map(most, MAP_PRIVATE), most, 8);
        if (write(ready[1], "", 1) != 1) _exit(1);
        for (;;) pause();
    }
    if (read(ready[0], &word, 1) != 1) return 2;
    pid_t taker = fork();
    if (taker == 0) {
        uint64_t *own = map(less, MAP_PRIVATE);
        for (uint64_t i = 0; i < less; i += 2)
            if (read(zero, own + i * PAGE / 8, PAGE) != PAGE) _exit(1);
        fill(own, less, 9);
        _exit(wrong_in(own, less, 9) ? 3 : 0);
    }
    printf("has less: %d\n", ended_by(taker));
    kill(sleeper, SIGTERM);
    printf("has most: %d\n", ended_by(sleeper));
    close(begin[0]), close(begin[1]);
    int bad = 0;
    for (int child = 0; child < CHILDREN; child++) bad += ended_by(others[child]) != 0;
    printf("others: %d wrong\n", bad);
    return bad != 0;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc == 3 && !strcmp(argv[1], "swap")) return swaps((uint64_t)atoi(argv[2]) * 256 / (CHILDREN + 1));
    if (argc == 2 && !strcmp(argv[1], "end")) return ends();
    return 2;
}
