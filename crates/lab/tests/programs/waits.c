// What programs wait for, and what they tell each other: files to be watched, sockets, timers, shared memory, locks of the dead. Each in a
// process of its own: how it ends. The same on any Linux.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "until.h"

extern char **environ;

// The first check that fails ends the process with its line.
#define CHECK(holds) do { if (!(holds)) { printf("line %d: %s (%d)\n", __LINE__, #holds, errno); fflush(stdout); _exit(99); } } while (0)

static int events(void) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7}, got[4];
    int set = epoll_create1(EPOLL_CLOEXEC), ends[2], file = open("/proc/self/exe", O_RDONLY);
    CHECK(set >= 0 && pipe(ends) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == -1 && errno == EEXIST);
    struct epoll_event alone = {.events = EPOLLIN | EPOLLEXCLUSIVE};
    int inner = epoll_create1(0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, inner, &alone) == -1 && errno == EINVAL);
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &alone) == -1 && errno == EINVAL);
    CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, ends[0], &alone) == 0);
    CHECK(epoll_ctl(inner, EPOLL_CTL_MOD, ends[0], &event) == -1 && errno == EINVAL);
    alone.events |= EPOLLPRI;
    CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, ends[1], &alone) == -1 && errno == EINVAL);
    close(inner);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, file, &event) == -1 && errno == EPERM);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, set, &event) == -1 && errno == EINVAL);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, ends[1], NULL) == -1 && errno == ENOENT);
    CHECK(epoll_wait(set, got, 4, 0) == 0 && epoll_wait(set, got, 0, 0) == -1 && errno == EINVAL);
    CHECK(write(ends[1], "ab", 2) == 2 && epoll_wait(set, got, 4, -1) == 1 && got[0].events == EPOLLIN && got[0].data.u64 == 7);
    // It stays so until it is read; an edge comes once for each write.
    CHECK(epoll_wait(set, got, 4, 0) == 1);
    event.events = EPOLLIN | EPOLLET;
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event) == 0 && epoll_wait(set, got, 4, 0) == 1 && epoll_wait(set, got, 4, 0) == 0);
    CHECK(write(ends[1], "c", 1) == 1 && epoll_wait(set, got, 4, 0) == 1 && epoll_wait(set, got, 4, 0) == 0);
    event.events = EPOLLIN | EPOLLONESHOT;
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event) == 0 && epoll_wait(set, got, 4, 0) == 1 && epoll_wait(set, got, 4, 0) == 0);
    // A set in a set, and a child who writes.
    int outer = epoll_create(1), count = eventfd(0, EFD_NONBLOCK);
    event.events = EPOLLIN;
    CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, set, &event) == 0 && epoll_ctl(set, EPOLL_CTL_ADD, count, &event) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, outer, &event) == -1 && errno == ELOOP);
    if (fork() == 0) {
        usleep(20000);
        _exit(eventfd_write(count, 5) != 0);
    }
    eventfd_t value = 0;
    CHECK(epoll_wait(outer, got, 4, LONG) == 1 && eventfd_read(count, &value) == 0 && value == 5 && eventfd_read(count, &value) == -1 && errno == EAGAIN);
    CHECK(epoll_wait(outer, got, 4, 10) == 0);
    close(ends[1]);
    event.events = EPOLLIN;
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event) == 0 && epoll_wait(set, got, 4, 0) == 1 && got[0].events == (EPOLLIN | EPOLLHUP));
    // What is closed is watched no more.
    close(ends[0]);
    CHECK(epoll_wait(set, got, 4, 0) == 0);
    int by_one = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK);
    CHECK(eventfd_read(by_one, &value) == 0 && value == 1 && eventfd_read(by_one, &value) == 0 && eventfd_read(by_one, &value) == -1);
    uint64_t most = UINT64_MAX;
    CHECK(write(by_one, &most, 8) == -1 && errno == EINVAL && write(by_one, &most, 4) == -1);
    return 0;
}

static void *serves(void *at) {
    int server = *(int *)at;
    for (int i = 0; i < 8; i++) {
        int client = accept(server, NULL, NULL);
        char buffer[256];
        ssize_t got;
        while ((got = read(client, buffer, sizeof buffer)) > 0)
            CHECK(write(client, buffer, got) == got);
        close(client);
    }
    return NULL;
}

// Eight clients, one after the other, of a server that says what it hears.
static void echoes(int family, const struct sockaddr *address, socklen_t len) {
    int server = socket(family, SOCK_STREAM, 0), one = 1;
    pthread_t thread;
    CHECK(server >= 0 && setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    CHECK(bind(server, address, len) == 0);
    struct sockaddr_storage bound;
    socklen_t bound_len = sizeof bound;
    CHECK(getsockname(server, (struct sockaddr *)&bound, &bound_len) == 0 && bound.ss_family == family);
    int early = socket(family, SOCK_STREAM, 0);
    CHECK(connect(early, (struct sockaddr *)&bound, bound_len) == -1 && errno == ECONNREFUSED);
    close(early);
    CHECK(listen(server, 4) == 0);
    CHECK(pthread_create(&thread, NULL, serves, &server) == 0);
    for (int i = 0; i < 8; i++) {
        int client = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), sum = 0;
        CHECK(connect(client, (struct sockaddr *)&bound, bound_len) == 0);
        for (int n = 0; n < 50; n++) {
            char out[100], in[100];
            memset(out, n, sizeof out);
            CHECK(send(client, out, sizeof out, MSG_NOSIGNAL) == sizeof out && recv(client, in, sizeof in, MSG_WAITALL) == sizeof in);
            sum += memcmp(in, out, sizeof out) != 0;
        }
        CHECK(sum == 0 && shutdown(client, SHUT_WR) == 0 && read(client, &sum, 4) == 0);
        close(client);
    }
    pthread_join(thread, NULL);
    int again = socket(family, SOCK_STREAM, 0);
    if (family != AF_UNIX || ((struct sockaddr_un *)address)->sun_path[0] == 0) CHECK(bind(again, (struct sockaddr *)&bound, bound_len) == -1 && errno == EADDRINUSE);
    CHECK(fcntl(server, F_SETFL, O_NONBLOCK) == 0 && accept(server, NULL, NULL) == -1 && errno == EAGAIN);
    close(server);
}

static int servers(void) {
    struct sockaddr_un path = {AF_UNIX, "/tmp/waits-socket"}, abstract = {AF_UNIX, "\0waits"};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    struct stat it;
    unlink(path.sun_path);
    echoes(AF_UNIX, (struct sockaddr *)&path, sizeof path);
    CHECK(stat(path.sun_path, &it) == 0 && S_ISSOCK(it.st_mode) && open(path.sun_path, O_RDONLY) == -1 && errno == ENXIO);
    CHECK(unlink(path.sun_path) == 0);
    echoes(AF_UNIX, (struct sockaddr *)&abstract, offsetof(struct sockaddr_un, sun_path) + 6);
    echoes(AF_INET, (struct sockaddr *)&four, sizeof four);

    int none = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(none, (struct sockaddr *)&path, sizeof path) == -1 && errno == ENOENT);
    CHECK(write(none, "x", 1) == -1 && errno == ENOTCONN && listen(0, 1) == -1 && errno == ENOTSOCK);
    return 0;
}

// Packets keep their borders, and files go along.
static int packets(void) {
    int ends[2], pair[2];
    char buffer[32] = {0}, control[CMSG_SPACE(sizeof(int))];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(send(ends[0], "hello", 5, 0) == 5 && send(ends[0], "you", 3, 0) == 3);
    CHECK(recv(ends[1], buffer, 3, MSG_PEEK) == 3 && recv(ends[1], buffer, 3, MSG_TRUNC) == 5 && recv(ends[1], buffer, 32, 0) == 3 && !memcmp(buffer, "you", 3));
    CHECK(recv(ends[1], buffer, 32, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    *head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &pipes[1], sizeof(int));
    CHECK(sendmsg(pair[0], &message, 0) == 1 && close(pipes[1]) == 0);
    memset(control, 0, sizeof control);
    part.iov_base = buffer;
    message.msg_controllen = sizeof control;
    CHECK(recvmsg(pair[1], &message, 0) == 1 && message.msg_controllen == sizeof control && buffer[0] == 'x');
    memcpy(&pipes[1], CMSG_DATA(head), sizeof(int));
    CHECK(write(pipes[1], "by", 2) == 2 && read(pipes[0], buffer, 32) == 2);
    struct pollfd all[2] = {{pair[0], POLLIN | POLLOUT, 0}, {pair[1], POLLIN, 0}};
    CHECK(poll(all, 2, 0) == 1 && all[0].revents == POLLOUT);
    // As much as fits, and no more; then the end.
    int sent = 0, one = 1;
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    while (write(pair[0], buffer, 32) > 0) sent += 32;
    CHECK(errno == EAGAIN && sent > 1000);
    all[0].events = POLLOUT;
    CHECK(poll(all, 1, 0) == 0 && poll(all + 1, 1, 0) == 1);
    while (sent > 0) sent -= read(pair[1], control, sizeof control);
    CHECK(poll(all, 1, 0) == 1);
    signal(SIGPIPE, SIG_IGN);
    close(pair[1]);
    CHECK(write(pair[0], "x", 1) == -1 && errno == EPIPE && read(pair[0], buffer, 1) == 0);
    CHECK(poll(all, 1, 0) == 1 && all[0].revents & POLLHUP);
    socklen_t len = sizeof one;
    CHECK(getsockopt(ends[0], SOL_SOCKET, SO_TYPE, &one, &len) == 0 && one == SOCK_DGRAM);
    int udp = socket(AF_INET, SOCK_DGRAM, 0), to = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, from;
    CHECK(bind(to, (struct sockaddr *)&address, sizeof address) == 0);
    len = sizeof address;
    CHECK(getsockname(to, (struct sockaddr *)&address, &len) == 0 && address.sin_port != 0);
    CHECK(sendto(udp, "four", 4, 0, (struct sockaddr *)&address, sizeof address) == 4);
    len = sizeof from;
    CHECK(recvfrom(to, buffer, 32, 0, (struct sockaddr *)&from, &len) == 4 && from.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && from.sin_port != 0);
    CHECK(socket(AF_INET, 77, 0) == -1);
    return 0;
}

static volatile int rung, overruns;
static void ring(int signal, siginfo_t *info, void *context) { rung += info->si_value.sival_int; }
static void called(union sigval value) { __atomic_fetch_add(&rung, value.sival_int, __ATOMIC_SEQ_CST); }

static int timers(void) {
    struct itimerspec each = {{0, 5000000}, {0, 5000000}}, left;
    uint64_t count = 0, sum = 0;
    int file = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    CHECK(file >= 0 && read(file, &count, 8) == -1 && errno == EAGAIN);
    CHECK(timerfd_settime(file, 0, &each, NULL) == 0 && fcntl(file, F_SETFL, 0) == 0);
    for (int i = 0; i < 3; i++) CHECK(read(file, &count, 8) == 8 && count > 0);
    struct pollfd polled = {file, POLLIN, 0};
    CHECK(poll(&polled, 1, LONG) == 1 && timerfd_gettime(file, &left) == 0 && left.it_interval.tv_nsec == 5000000);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int real = timerfd_create(CLOCK_REALTIME, 0);
    each = (struct itimerspec){{0, 0}, {now.tv_sec, now.tv_nsec}};
    CHECK(timerfd_settime(real, TFD_TIMER_ABSTIME, &each, NULL) == 0 && read(real, &count, 8) == 8 && count == 1);
    // By signals, and by a thread of the library's.
    struct sigaction action = {.sa_sigaction = ring, .sa_flags = SA_SIGINFO};
    sigaction(SIGRTMIN + 1, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1, .sigev_value.sival_int = 1};
    timer_t timer, other;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    each = (struct itimerspec){{0, 2000000}, {0, 2000000}};
    CHECK(timer_settime(timer, 0, &each, NULL) == 0);
    while (rung < 3) pause();
    CHECK(timer_delete(timer) == 0 && timer_gettime(timer, &left) == -1 && errno == EINVAL);
    rung = 0;
    event = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = called, .sigev_value.sival_int = 10};
    CHECK(timer_create(CLOCK_REALTIME, &event, &other) == 0);
    each.it_interval.tv_nsec = 0;
    CHECK(timer_settime(other, 0, &each, NULL) == 0);
    CHECK(UNTIL(rung == 10));
    // Those for real time are queued, the others are not.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 2);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 1; i <= 3; i++) {
        union sigval value = {.sival_int = i};
        CHECK(sigqueue(getpid(), SIGRTMIN + 2, value) == 0 && kill(getpid(), SIGUSR1) == 0);
    }
    int signals = signalfd(-1, &set, SFD_NONBLOCK);
    struct signalfd_siginfo info[8];
    polled.fd = signals;
    CHECK(poll(&polled, 1, 0) == 1);
    CHECK(read(signals, info, sizeof info) == 4 * sizeof *info && info[0].ssi_signo == SIGUSR1 && info[0].ssi_pid == (unsigned)getpid());
    for (int i = 1; i <= 3; i++) sum += info[i].ssi_int == i && info[i].ssi_signo == (unsigned)SIGRTMIN + 2;
    CHECK(sum == 3 && read(signals, info, sizeof info) == -1 && errno == EAGAIN);
    return 0;
}

static int shared(void) {
    int id = shmget(IPC_PRIVATE, 10000, IPC_CREAT | 0600), key = shmget(0x1234, 4096, IPC_CREAT | IPC_EXCL | 0600);
    CHECK(id >= 0 && key >= 0 && shmget(0x1234, 4096, IPC_CREAT | IPC_EXCL) == -1 && errno == EEXIST && shmget(0x1234, 0, 0) == key);
    CHECK(shmget(0x1234, 9999, 0) == -1 && errno == EINVAL && shmget(0x4321, 1, 0) == -1 && errno == ENOENT);
    int *a = shmat(id, NULL, 0), *b = shmat(id, NULL, SHM_RDONLY), *late;
    CHECK(a != (void *)-1 && b != a);
    struct shmid_ds state;
    CHECK(shmctl(id, IPC_STAT, &state) == 0 && state.shm_segsz == 10000 && state.shm_nattch == 2);
    if (fork() == 0) {
        a[5] = 55;
        _exit(shmdt(a) != 0 || shmdt(a) != -1);
    }
    int status = 1;
    wait(&status);
    // Removed, it is there for as long as somebody shows it.
    CHECK(shmctl(id, IPC_RMID, NULL) == 0 && shmctl(id, IPC_STAT, &state) == 0 && state.shm_perm.mode & SHM_DEST && (late = shmat(id, NULL, 0)) != (void *)-1 && late[5] == 55 && shmdt(late) == 0);
    CHECK(status == 0 && b[5] == 55 && a[5] == 55 && shmdt(b) == 0 && shmdt(b + 1) == -1 && errno == EINVAL);
    CHECK(shmdt(a) == 0 && shmat(id, NULL, 0) == (void *)-1 && errno == EINVAL && shmctl(key, IPC_RMID, NULL) == 0 && shmget(0x1234, 0, 0) == -1);
    // By name, and without one; what is mapped stays when the name goes.
    int file = shm_open("/waits", O_CREAT | O_RDWR, 0600);
    CHECK(file >= 0 && ftruncate(file, 8192) == 0);
    int *c = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), *d = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 4096);
    CHECK(shm_unlink("/waits") == 0 && (c[1024] = 9) == 9 && d[0] == 9);
    int memory = memfd_create("x", MFD_CLOEXEC);
    CHECK(memory >= 0 && write(memory, "abc", 3) == 3 && lseek(memory, 0, SEEK_END) == 3);
    // A semaphore between two, and one by name.
    sem_t *both = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *named = sem_open("/waits", O_CREAT, 0600, 0);
    CHECK(named != SEM_FAILED && sem_init(both, 1, 0) == 0);
    if (fork() == 0) {
        sem_post(both);
        _exit(sem_wait(named));
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LONG / 1000;
    CHECK(sem_timedwait(both, &until) == 0 && sem_post(named) == 0 && wait(&status) > 0 && status == 0);
    until.tv_sec -= LONG / 1000 + 1;
    CHECK(sem_timedwait(both, &until) == -1 && errno == ETIMEDOUT && sem_unlink("/waits") == 0);
    return 0;
}

static pthread_mutex_t *lock;
static void *dies(void *_) {
    pthread_mutex_lock(lock);
    return NULL;
}

static int counted;
static void *counts(void *_) {
    for (int i = 0; i < 2000; i++) {
        pthread_mutex_lock(lock);
        counted++;
        if (i % 100 == 0) sched_yield();
        pthread_mutex_unlock(lock);
    }
    return NULL;
}

static void *locks_once(void *none) {
    pthread_mutex_lock(lock);
    counted++;
    pthread_mutex_unlock(lock);
    return none;
}

// A lock whose word names its owner, between four.
static int inherits(void) {
    pthread_mutexattr_t kind;
    pthread_t threads[4];
    pthread_mutex_t own;
    lock = &own;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    CHECK(pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT) == 0 && pthread_mutex_init(lock, &kind) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, counts, NULL) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    CHECK(counted == 8000 && pthread_mutex_lock(lock) == 0 && pthread_mutex_lock(lock) == EDEADLK && pthread_mutex_unlock(lock) == 0);
    CHECK(pthread_mutex_unlock(lock) == EPERM);
    // Owners that end as soon as they have let go: whoever comes then finds no owner, and not one that has died.
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, locks_once, NULL) == 0);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    }
    CHECK(pthread_mutex_trylock(lock) == 0 && pthread_mutex_unlock(lock) == 0);
    return 0;
}

// Whoever holds a lock dies, as a thread and as a process.
static int heirs(void) {
    pthread_mutexattr_t kind;
    pthread_t thread;
    lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(lock, &kind);
    pthread_create(&thread, NULL, dies, NULL);
    pthread_join(thread, NULL);
    CHECK(pthread_mutex_lock(lock) == EOWNERDEAD && pthread_mutex_consistent(lock) == 0 && pthread_mutex_unlock(lock) == 0);
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        pthread_mutex_lock(lock);
        CHECK(write(ends[1], "x", 1) == 1);
        usleep(30000);
        kill(getpid(), SIGKILL);
    }
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1 && pthread_mutex_lock(lock) == EOWNERDEAD);
    return 0;
}

static int spawns(void) {
    char *words[] = {"sh", "-c", "read a; echo got $a; exit 6", NULL}, line[64];
    int in[2], out[2], status;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    CHECK(pipe(in) == 0 && pipe(out) == 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_addclose(&actions, in[1]);
    CHECK(posix_spawnp(&pid, "sh", &actions, NULL, words, environ) == 0 && write(in[1], "it\n", 3) == 3);
    int process = syscall(SYS_pidfd_open, pid, 0);
    struct pollfd polled = {process, POLLIN, 0};
    siginfo_t info;
    CHECK(process >= 0 && poll(&polled, 1, LONG) == 1 && waitid(P_PIDFD, process, &info, WEXITED | WNOWAIT) == 0 && info.si_status == 6);
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 6);
    CHECK(read(out[0], line, sizeof line) == 7 && !memcmp(line, "got it", 6));
    FILE *from = popen("echo one; exit 3", "r");
    CHECK(fgets(line, sizeof line, from) && pclose(from) == 3 << 8 && system("exit 9") == 9 << 8);
    words[0] = "nobody-has-this";
    CHECK(posix_spawnp(&pid, words[0], NULL, NULL, words, environ) == ENOENT);
    return 0;
}

// A pipe with a name: each end waits for the other, and both at once for nobody.
static int named(void) {
    char buffer[16], name[] = "/tmp/waits-fifo";
    unlink(name);
    CHECK(mkfifo(name, 0600) == 0 && mkfifo(name, 0600) == -1 && errno == EEXIST);
    CHECK(open(name, O_WRONLY | O_NONBLOCK) == -1 && errno == ENXIO);
    int early = open(name, O_RDONLY | O_NONBLOCK);
    CHECK(early >= 0 && read(early, buffer, 1) == 0 && close(early) == 0);
    if (fork() == 0) {
        int to = open(name, O_WRONLY);
        usleep(10000);
        _exit(write(to, "hello", 5) != 5);
    }
    int from = open(name, O_RDONLY), status = 1;
    CHECK(from >= 0 && read(from, buffer, 16) == 5 && read(from, buffer, 16) == 0 && wait(&status) > 0 && status == 0);
    int both = open(name, O_RDWR);
    CHECK(write(both, "ab", 2) == 2 && read(both, buffer, 16) == 2 && fcntl(from, F_SETFL, O_NONBLOCK) == 0 && read(from, buffer, 16) == -1 && errno == EAGAIN);
    struct stat it;
    CHECK(stat(name, &it) == 0 && S_ISFIFO(it.st_mode) && unlink(name) == 0);
    return 0;
}

// Bytes go from one file to another without the program.
static int carries(void) {
    char name[] = "/tmp/waits-XXXXXX", other[] = "/tmp/waits-XXXXXX", buffer[32] = {0};
    int a = mkstemp(name), b = mkstemp(other), ends[2], pair[2];
    CHECK(write(a, "0123456789", 10) == 10 && pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    off_t at = 2;
    CHECK(sendfile(ends[1], a, &at, 3) == 3 && at == 5 && read(ends[0], buffer, 32) == 3 && !memcmp(buffer, "234", 3));
    CHECK(lseek(a, 7, SEEK_SET) == 7 && sendfile(pair[0], a, NULL, 100) == 3 && read(pair[1], buffer, 32) == 3 && lseek(a, 0, SEEK_CUR) == 10);
    loff_t from = 1, to = 4;
    CHECK(copy_file_range(a, &from, b, &to, 4, 0) == 4 && from == 5 && to == 8 && lseek(b, 0, SEEK_CUR) == 0 && pread(b, buffer, 32, 0) == 8 && !memcmp(buffer, "\0\0\0\0001234", 8));
    CHECK(copy_file_range(a, NULL, ends[1], NULL, 4, 0) == -1 && errno == EINVAL);
    from = 0;
    CHECK(splice(a, &from, ends[1], NULL, 6, 0) == 6 && from == 6 && splice(ends[0], NULL, b, NULL, 100, 0) == 6 && lseek(b, 0, SEEK_CUR) == 6);
    CHECK(splice(ends[0], NULL, b, NULL, 1, SPLICE_F_NONBLOCK) == -1 && errno == EAGAIN && splice(a, NULL, b, NULL, 1, 0) == -1 && errno == EINVAL);
    CHECK(unlink(name) == 0 && unlink(other) == 0 && access("/tmp", X_OK) == 0 && access("/proc/self/maps", X_OK) == -1 && errno == EACCES);
    return 0;
}

// Locks bind others: parts of a file by process, the whole by what is open.
static int locks(void) {
    char name[] = "/tmp/waits-XXXXXX";
    int a = mkstemp(name), b = open(name, O_RDWR), status = 1, ends[2];
    struct flock part = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10}, ask = part;
    CHECK(fcntl(a, F_SETLK, &part) == 0 && fcntl(b, F_SETLK, &part) == 0 && flock(a, LOCK_EX) == 0 && flock(b, LOCK_SH | LOCK_NB) == -1 && errno == EAGAIN);
    CHECK(pipe(ends) == 0);
    if (fork() == 0) {
        struct flock own = part;
        CHECK(fcntl(a, F_GETLK, &own) == 0 && own.l_type == F_WRLCK && own.l_pid == getppid() && own.l_start == 10 && own.l_len == 10);
        own = part;
        CHECK(fcntl(a, F_SETLK, &own) == -1 && (errno == EAGAIN || errno == EACCES));
        own.l_start = 20;
        CHECK(fcntl(a, F_SETLK, &own) == 0 && write(ends[1], "x", 1) == 1);
        own.l_start = 10;
        CHECK(fcntl(a, F_SETLKW, &own) == 0);
        _exit(0);
    }
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1);
    ask.l_start = 0;
    ask.l_len = 0;
    CHECK(fcntl(a, F_GETLK, &ask) == 0 && ask.l_type == F_WRLCK && ask.l_start == 20);
    part.l_type = F_UNLCK;
    usleep(10000);
    CHECK(fcntl(a, F_SETLK, &part) == 0 && wait(&status) > 0 && status == 0);
    CHECK(flock(a, LOCK_UN) == 0 && flock(b, LOCK_EX | LOCK_NB) == 0 && close(b) == 0 && flock(a, LOCK_SH | LOCK_NB) == 0);
    // What is sealed stays as it is.
    int memory = memfd_create("x", MFD_ALLOW_SEALING);
    CHECK(write(memory, "abc", 3) == 3 && fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0 && fcntl(memory, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW));
    CHECK(ftruncate(memory, 1) == -1 && errno == EPERM && write(memory, "d", 1) == -1 && errno == EPERM && pwrite(memory, "x", 1, 0) == 1);
    CHECK(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) == 0 && pwrite(memory, "x", 1, 0) == -1 && fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE) == -1 && errno == EPERM);
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0) == MAP_FAILED && errno == EPERM);
    CHECK(fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2) == -1 && errno == EPERM);
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    CHECK(open(path, O_RDWR | O_TRUNC) == -1 && errno == EPERM && lseek(memory, 0, SEEK_END) == 3);
    // Nor while somebody could write to it; and what shows it only to be read stays so.
    int seen = memfd_create("x", MFD_ALLOW_SEALING);
    CHECK(ftruncate(seen, 4096) == 0);
    char *can = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, seen, 0);
    CHECK(fcntl(seen, F_ADD_SEALS, F_SEAL_WRITE) == -1 && errno == EBUSY && pwrite(seen, "x", 1, 0) == 1);
    CHECK(fcntl(seen, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0 && (can[1] = 'y') == 'y' && pwrite(seen, "x", 1, 0) == -1 && errno == EPERM);
    CHECK(munmap(can, 4096) == 0 && fcntl(seen, F_ADD_SEALS, F_SEAL_WRITE) == 0);
    int only = open(name, O_RDONLY);
    CHECK(ftruncate(a, 4096) == 0 && (can = mmap(NULL, 4096, PROT_READ, MAP_SHARED, only, 0)) != MAP_FAILED);
    CHECK(mprotect(can, 4096, PROT_READ | PROT_WRITE) == -1 && errno == EACCES && pread(a, path, 1, -1) == -1 && errno == EINVAL);
    return unlink(name);
}

static int limits(void) {
    struct rlimit limit, now;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= 256);
    limit.rlim_cur = 20;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0 && getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == 20);
    int last = 0, next;
    while ((next = dup(0)) >= 0) last = next;
    CHECK(errno == EMFILE && last == 19 && fcntl(0, F_DUPFD, 20) == -1 && errno == EINVAL);
    limit.rlim_cur = limit.rlim_max = 1 << 28;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0 && mmap(NULL, 1 << 29, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    CHECK(malloc(1 << 20) != NULL);
    struct sched_param priority = {.sched_priority = 5};
    CHECK(sched_setscheduler(0, SCHED_RR, &priority) == 0 || errno == EPERM);
    return 0;
}

static int sets[2];

static void *circles(void *way) {
    struct epoll_event event = {.events = EPOLLIN};
    int outer = sets[way == NULL], inner = sets[way != NULL];
    for (int i = 0; i < 2000; i++) {
        epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event);
        epoll_wait(outer, &event, 1, 0);
        epoll_ctl(outer, EPOLL_CTL_DEL, inner, &event);
    }
    return NULL;
}

// Sets in sets, in circles if they can; and sockets that lie in each other when the last one is closed.
static int nested(void) {
    struct epoll_event event = {.events = EPOLLIN};
    pthread_t threads[4];
    int chain[300], deep = 0, last = dup(0), many = 0;
    for (int i = 0; i < 300; i++) chain[i] = epoll_create1(0);
    for (int i = 0; i < 299; i++) deep += epoll_ctl(chain[i], EPOLL_CTL_ADD, chain[i + 1], &event) == 0;
    CHECK(deep > 2 && epoll_wait(chain[0], &event, 1, 0) == 0);
    for (int i = 0; i < 300; i++) close(chain[i]);
    for (int i = 0; i < 2; i++) sets[i] = epoll_create1(0);
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, circles, (void *)(i & 1));
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (; many < 5000; many++) {
        int pair[2];
        char control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec part = {"x", 1};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) break;
        *CMSG_FIRSTHDR(&message) = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &last, sizeof(int));
        if (sendmsg(pair[0], &message, 0) != 1) break;
        close(pair[0]);
        close(last);
        last = pair[1];
    }
    close(last);
    return many > 100 ? 0 : 98;
}

// Timers that expire with each nanosecond, or after longer than any clock goes: others run all the same.
static int storms(void) {
    struct itimerspec each = {{0, 1}, {0, 1}}, never = {{INT64_MAX, 999999999}, {0, 1}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3};
    struct timespec at_most = {LONG / 1000, 0}, nap = {0, 30000000};
    timer_t timer, rare;
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 3);
    sigprocmask(SIG_BLOCK, &set, NULL);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_create(CLOCK_MONOTONIC, &event, &rare) == 0);
    CHECK(timer_settime(timer, 0, &each, NULL) == 0 && timer_settime(rare, 0, &never, NULL) == 0);
    nanosleep(&nap, NULL);
    // What it would have said more often, it says once, and how often.
    CHECK(sigtimedwait(&set, &info, &at_most) == SIGRTMIN + 3 && info.si_overrun >= 10 && timer_delete(timer) == 0 && timer_delete(rare) == 0);
    // A wait for something else than that it expires.
    int file = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), all = epoll_create1(0);
    struct epoll_event watched = {.events = EPOLLIN | EPOLLONESHOT}, got;
    struct pollfd other = {file, POLLOUT, 0};
    CHECK(timerfd_settime(file, 0, &each, NULL) == 0 && poll(&other, 1, 30) == 0);
    CHECK(epoll_ctl(all, EPOLL_CTL_ADD, file, &watched) == 0 && epoll_wait(all, &got, 1, -1) == 1 && epoll_wait(all, &got, 1, 30) == 0);
    CHECK(timerfd_settime(file, 0, &never, NULL) == 0);
    other.events = POLLIN;
    CHECK(poll(&other, 1, LONG) == 1 && nanosleep(&nap, NULL) == 0);
    uint64_t count;
    CHECK(read(file, &count, 8) == 8 && count == 1 && read(file, &count, 8) == -1 && errno == EAGAIN);
    return 0;
}

// Who reads hears of what comes, and not of what it has left itself.
static int edges(void) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLET}, got;
    int all = epoll_create1(0), ends[2], pair[2], count = eventfd(0, EFD_SEMAPHORE);
    char buffer[8];
    CHECK(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    int reads[] = {ends[0], pair[0], count}, writes[] = {ends[1], pair[1], count};
    for (int i = 0; i < 3; i++) {
        uint64_t two = 2;
        CHECK(epoll_ctl(all, EPOLL_CTL_ADD, reads[i], &event) == 0 && write(writes[i], &two, 8) == 8);
        CHECK(epoll_wait(all, &got, 1, 0) == 1 && read(reads[i], buffer, i < 2 ? 4 : 8) > 0 && epoll_wait(all, &got, 1, 0) == 0);
        CHECK(write(writes[i], &two, 8) == 8 && epoll_wait(all, &got, 1, 0) == 1 && epoll_wait(all, &got, 1, 0) == 0);
        CHECK(epoll_ctl(all, EPOLL_CTL_DEL, reads[i], NULL) == 0);
    }
    // Sets that watch all the same sets: there are more ways down than there is time.
    int floors[5][12];
    for (int i = 0; i < 60; i++) floors[i / 12][i % 12] = epoll_create1(0);
    event.events = EPOLLIN;
    for (int i = 0; i < 48; i++)
        for (int n = 0; n < 12; n++) epoll_ctl(floors[i / 12][i % 12], EPOLL_CTL_ADD, floors[i / 12 + 1][n], &event);
    for (int i = 0; i < 12; i++) CHECK(epoll_wait(floors[0][i], &got, 1, 0) == 0);
    return 0;
}

static void *moves(void *way) {
    for (int i = 0; i < 3000; i++) way ? rename("/tmp/waits-a", "/tmp/waits-b/x") : rename("/tmp/waits-b", "/tmp/waits-a/y");
    return NULL;
}

static void *steals(void *way) {
    for (int i = 0; i < 3000; i++) way ? rmdir("/tmp/waits-c") : mkdir("/tmp/waits-c/d", 0700), mkdir("/tmp/waits-c", 0700), rmdir("/tmp/waits-c/d");
    return NULL;
}

// Two directories are moved into each other, and one is taken away while it gets another.
static int moving(void) {
    pthread_t threads[2];
    char path[256];
    for (int turn = 0; turn < 20; turn++) {
        CHECK(mkdir("/tmp/waits-a", 0700) == 0 && mkdir("/tmp/waits-b", 0700) == 0);
        int a = open("/tmp/waits-a", O_RDONLY), b = open("/tmp/waits-b", O_RDONLY);
        for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, moves, (void *)i);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        // One hangs in the other, and that where it was.
        CHECK(fchdir(a) == 0 && getcwd(path, sizeof path) && fchdir(b) == 0 && getcwd(path, sizeof path));
        CHECK((rmdir("/tmp/waits-b/x") == 0) + (rmdir("/tmp/waits-a/y") == 0) == 1 && (rmdir("/tmp/waits-a") == 0) + (rmdir("/tmp/waits-b") == 0) == 1);
        CHECK(chdir("/tmp") == 0 && close(a) == 0 && close(b) == 0);
    }
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, steals, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    rmdir("/tmp/waits-c/d");
    mkdir("/tmp/waits-c", 0700);
    CHECK(chdir("/tmp/waits-c") == 0 && rmdir("/tmp/waits-c") == 0 && getcwd(path, sizeof path) == NULL && errno == ENOENT && mkdir("x", 0700) == -1 && errno == ENOENT);
    return 0;
}

static void nothing(int signal) {}

static int *word;
static void *owns(void *_) {
    CHECK(syscall(SYS_futex, word, FUTEX_LOCK_PI, 0, NULL) == 0);
    CHECK(UNTIL(*(volatile int *)word & FUTEX_WAITERS));
    return NULL;
}

static void *collects(void *into) {
    int *got = into, status;
    pid_t pid = waitpid(-1, &status, 0);
    if (pid > 0) __atomic_fetch_add(got, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

// Whoever waits hears that what it waits for is gone, and can be killed.
static int wakes(void) {
    int status, ends[2], gate[2];
    char byte;
    pid_t borrower;
    CHECK(pipe(ends) == 0);
    // One whose memory is lent to its child, with a signal before the last one.
    pid_t lender = fork();
    if (lender == 0) {
        signal(SIGUSR1, nothing);
        if (vfork() == 0) {
            close(ends[0]);
            pid_t own = syscall(SYS_getpid);
            syscall(SYS_write, ends[1], &own, sizeof own);
            for (;;) syscall(SYS_pause);
        }
        _exit(0);
    }
    CHECK(read(ends[0], &borrower, sizeof borrower) == sizeof borrower && kill(lender, SIGUSR1) == 0);
    usleep(20000);
    CHECK(kill(lender, SIGKILL) == 0 && waitpid(lender, &status, 0) == lender && WIFSIGNALED(status) && kill(borrower, SIGKILL) == 0);
    // A lock whose owner is gone.
    pthread_t threads[2];
    word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_create(&threads[0], NULL, owns, NULL);
    while (!*(volatile int *)word) usleep(1000);
    CHECK(syscall(SYS_futex, word, FUTEX_LOCK_PI, 0, NULL) == 0 && *word & FUTEX_OWNER_DIED && (*word & FUTEX_TID_MASK) == getpid());
    pthread_join(threads[0], NULL);
    // Of two threads that wait for a child one gets it.
    for (int i = 0; i < 30; i++) {
        int got = 0;
        if (fork() == 0) _exit(0);
        for (int n = 0; n < 2; n++) pthread_create(&threads[n], NULL, collects, &got);
        for (int n = 0; n < 2; n++) pthread_join(threads[n], NULL);
        CHECK(got == 1);
    }
    // Another file gets the number of one that was locked.
    char name[] = "/tmp/waits-XXXXXX";
    struct flock part = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int file = mkstemp(name);
    CHECK(fcntl(file, F_SETLK, &part) == 0 && pipe(gate) == 0);
    pid_t waits = fork();
    if (waits == 0) {
        CHECK(write(gate[1], "x", 1) == 1 && fcntl(file, F_SETLKW, &part) == 0);
        _exit(5);
    }
    CHECK(read(gate[0], &byte, 1) == 1 && UNTIL(state_of(waits) == 'S'));
    CHECK(dup2(0, file) == file && waitpid(waits, &status, 0) == waits && WEXITSTATUS(status) == 5 && unlink(name) == 0);
    // Nobody is taken in any more.
    struct sockaddr_un address = {AF_UNIX, "\0waits-closes"};
    struct timeval soon = {0, 20000};
    int listens = socket(AF_UNIX, SOCK_STREAM, 0), some[8];
    CHECK(bind(listens, (struct sockaddr *)&address, sizeof address) == 0 && listen(listens, 1) == 0);
    int late = 0;
    for (int i = 0; i < 8 && !late; i++) {
        some[i] = socket(AF_UNIX, SOCK_STREAM, 0);
        setsockopt(some[i], SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
        late = connect(some[i], (struct sockaddr *)&address, sizeof address) == -1;
        CHECK(!late || errno == EAGAIN);
    }
    CHECK(late);
    pid_t client = fork();
    if (client == 0) {
        int one = socket(AF_UNIX, SOCK_STREAM, 0);
        close(listens);
        CHECK(write(gate[1], "x", 1) == 1 && connect(one, (struct sockaddr *)&address, sizeof address) == -1);
        _exit(errno == ECONNREFUSED ? 6 : 99);
    }
    CHECK(read(gate[0], &byte, 1) == 1 && UNTIL(state_of(client) == 'S'));
    CHECK(close(listens) == 0 && waitpid(client, &status, 0) == client && WEXITSTATUS(status) == 6);
    listens = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listens, (struct sockaddr *)&address, sizeof address) == 0 && listen(listens, 1) == 0);
    client = fork();
    if (client == 0) {
        CHECK(write(gate[1], "x", 1) == 1 && accept(listens, NULL, NULL) == -1);
        _exit(errno == EINVAL ? 7 : 99);
    }
    CHECK(read(gate[0], &byte, 1) == 1 && UNTIL(state_of(client) == 'S'));
    CHECK(shutdown(listens, SHUT_RDWR) == 0 && waitpid(client, &status, 0) == client && WEXITSTATUS(status) == 7);
    return 0;
}

static void brings(int to, int what) {
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    *CMSG_FIRSTHDR(&message) = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &what, sizeof what);
    CHECK(sendmsg(to, &message, 0) == 1);
}

// Sockets that lie in each other, with the end of a pipe: nobody can receive it any more. And packets of the network, which may be lost.
static int losses(void) {
    int a[2], b[2], ends[2];
    char byte, bytes[1000] = {0};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, a) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, b) == 0 && pipe(ends) == 0);
    brings(a[0], b[1]);
    brings(b[0], a[1]);
    brings(b[0], ends[1]);
    for (int i = 0; i < 2; i++) close(a[i]), close(b[i]);
    close(ends[1]);
    // Linux looks for such circles when another socket is closed, and some time after that.
    for (struct pollfd gone = {ends[0], POLLIN, 0}; poll(&gone, 1, 10) == 0;) {
        int c[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, c) == 0 && close(c[0]) == 0 && close(c[1]) == 0);
    }
    CHECK(read(ends[0], &byte, 1) == 0);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, nobody = here;
    socklen_t len = sizeof here;
    int to = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0), got = 0;
    CHECK(bind(to, (struct sockaddr *)&here, len) == 0 && getsockname(to, (struct sockaddr *)&here, &len) == 0);
    for (int i = 0; i < 2000; i++) CHECK(sendto(from, bytes, sizeof bytes, 0, (struct sockaddr *)&here, len) == sizeof bytes);
    // Some are kept, which may not have arrived yet.
    while (recv(to, bytes, sizeof bytes, got <= 10 ? 0 : MSG_DONTWAIT) > 0) got++;
    CHECK(got > 10 && got < 2000);
    nobody.sin_port = htons(9);
    CHECK(sendto(from, "x", 1, 0, (struct sockaddr *)&nobody, len) == 1 && connect(from, (struct sockaddr *)&nobody, len) == 0);
    return 0;
}

static int *counters;
static void *spins(void *at) {
    for (;;) __atomic_fetch_add((int *)at, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static int listed(pid_t pid) {
    DIR *all = opendir("/proc");
    int found = 0;
    for (struct dirent *one; (one = readdir(all));) found += atoi(one->d_name) == pid;
    closedir(all);
    return found;
}

static int step(int set, int which, int by, int flags) {
    struct sembuf one = {which, by, flags};
    return semop(set, &one, 1);
}

struct said {
    long kind;
    char text[64];
};

// Semaphores and messages of System V.
static int queues(void) {
    int set = semget(IPC_PRIVATE, 3, IPC_CREAT | 0600), status, key = semget(0x5151, 1, IPC_CREAT | IPC_EXCL | 0600);
    struct sembuf both[2] = {{0, -2, 0}, {1, -1, 0}};
    struct timespec soon = {0, 10000000};
    CHECK(set >= 0 && key >= 0 && semget(0x5151, 1, IPC_CREAT | IPC_EXCL) == -1 && errno == EEXIST && semget(0x5151, 2, 0) == -1 && errno == EINVAL && semget(0x5151, 0, 0) == key);
    CHECK(semctl(key, 0, IPC_RMID) == 0 && semget(0x5151, 0, 0) == -1 && errno == ENOENT && semctl(key, 0, GETVAL) == -1 && errno == EINVAL);
    CHECK(step(set, 0, -1, IPC_NOWAIT) == -1 && errno == EAGAIN && step(set, 3, 1, 0) == -1 && errno == EFBIG && semtimedop(set, both, 2, &soon) == -1 && errno == EAGAIN);
    pid_t child = fork();
    if (child == 0) _exit(semop(set, both, 2) == 0 ? 3 : 99);
    while (semctl(set, 0, GETNCNT) != 1) usleep(1000);
    // One of two is not enough.
    CHECK(step(set, 0, 2, 0) == 0);
    usleep(10000);
    CHECK(waitpid(child, &status, WNOHANG) == 0 && semctl(set, 0, GETVAL) == 2 && step(set, 1, 1, 0) == 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
    CHECK(semctl(set, 0, GETVAL) == 0 && semctl(set, 1, GETVAL) == 0 && semctl(set, 0, GETPID) == child);
    struct seminfo info;
    CHECK(semctl(0, 0, SEM_INFO, &info) >= 0 && info.semusz >= 1 && info.semaem >= 3 && semctl(0, 0, IPC_INFO, &info) >= 0 && info.semvmx == 32767);
    // What a process had is given back when it ends; and what was set since is left.
    unsigned short values[3] = {5, 0, 7};
    CHECK(semctl(set, 0, SETALL, values) == 0);
    child = fork();
    if (child == 0) {
        CHECK(step(set, 0, -3, SEM_UNDO) == 0 && step(set, 2, -7, SEM_UNDO) == 0 && semctl(set, 2, SETVAL, 1) == 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0 && semctl(set, 0, GETALL, values) == 0 && values[0] == 5 && values[2] == 1);
    // Who waits has it, even if it lasts for a moment only.
    pid_t more[2];
    for (int i = 0; i < 2; i++) if ((more[i] = fork()) == 0) _exit(step(set, 2, 0, 0) == 0 ? 5 : 99);
    while (semctl(set, 2, GETZCNT) != 2) usleep(1000);
    CHECK(step(set, 2, -1, 0) == 0 && step(set, 2, 1, 0) == 0 && semctl(set, 2, GETZCNT) == 0);
    for (int i = 0; i < 2; i++) CHECK(waitpid(more[i], &status, 0) == more[i] && WEXITSTATUS(status) == 5);
    child = fork();
    if (child == 0) _exit(step(set, 0, 0, 0) == -1 && errno == EIDRM ? 4 : 99);
    while (semctl(set, 0, GETZCNT) != 1) usleep(1000);
    struct semid_ds about;
    CHECK(semctl(set, 0, IPC_STAT, &about) == 0 && about.sem_nsems == 3 && semctl(set, 0, IPC_RMID) == 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 4);
    // Messages by their kinds.
    int queue = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    struct said out = {5, "five"}, in;
    CHECK(queue >= 0 && msgsnd(queue, &out, 5, 0) == 0 && (out.kind = 3) && msgsnd(queue, &out, 6, 0) == 0 && (out.kind = 0) == 0 && msgsnd(queue, &out, 1, 0) == -1 && errno == EINVAL);
    CHECK(msgrcv(queue, &in, 64, 4, IPC_NOWAIT) == -1 && errno == ENOMSG && msgrcv(queue, &in, 2, -4, 0) == -1 && errno == E2BIG);
    CHECK(msgrcv(queue, &in, 2, -4, MSG_NOERROR) == 2 && in.kind == 3 && msgrcv(queue, &in, 64, 0, 0) == 5 && in.kind == 5 && !strcmp(in.text, "five"));
    child = fork();
    if (child == 0) {
        struct said more = {1, "more"};
        for (int i = 0; i < 600; i++) CHECK(msgsnd(queue, &more, 64, 0) == 0);
        _exit(msgrcv(queue, &more, 64, 2, 0) == 5 ? 6 : 99);
    }
    struct msqid_ds full;
    // It has to wait until there is room.
    do {
        usleep(1000);
        CHECK(msgctl(queue, IPC_STAT, &full) == 0);
    } while (full.__msg_cbytes + 64 <= full.msg_qbytes);
    for (int i = 0; i < 600; i++) CHECK(msgrcv(queue, &in, 64, 1, 0) == 64 && in.kind == 1);
    out.kind = 2;
    CHECK(msgsnd(queue, &out, 5, 0) == 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 6);
    child = fork();
    if (child == 0) _exit(msgrcv(queue, &in, 64, 0, 0) == -1 && errno == EIDRM ? 7 : 99);
    CHECK(UNTIL(state_of(child) == 'S'));
    CHECK(msgctl(queue, IPC_RMID, NULL) == 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    return 0;
}

// Children that are stopped, and go on.
static int stops(void) {
    int status, before[2];
    siginfo_t info;
    sigset_t set;
    struct timespec at_most = {LONG / 1000, 0}, nap = {0, 200000000};
    pthread_t thread;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    counters = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0) {
        pthread_create(&thread, NULL, spins, counters);
        spins(counters + 1);
    }
    for (int turn = 0; turn < 2; turn++) {
        while (counters[0] == 0 || counters[1] == 0) usleep(1000);
        CHECK(kill(child, SIGSTOP) == 0 && waitid(P_PID, child, &info, WSTOPPED | WNOWAIT) == 0 && info.si_code == CLD_STOPPED && info.si_status == SIGSTOP);
        CHECK(sigtimedwait(&set, &info, &at_most) == SIGCHLD && info.si_code == CLD_STOPPED && info.si_pid == child);
        CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP && waitpid(child, &status, WUNTRACED | WNOHANG) == 0);
        // Both threads stand still, as soon as their CPUs have heard of it.
        CHECK(state_of(child) == 'T' && listed(child) == 1);
        int looks = 0;
        do {
            memcpy(before, counters, sizeof before);
            usleep(30000);
        } while (memcmp(before, counters, sizeof before) && ++looks < 100);
        CHECK(memcmp(before, counters, sizeof before) == 0 && kill(child, SIGCONT) == 0 && waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status));
        CHECK(sigtimedwait(&set, &info, &at_most) == SIGCHLD && info.si_code == CLD_CONTINUED);
        counters[0] = counters[1] = 0;
    }
    CHECK(kill(child, SIGSTOP) == 0 && waitpid(child, &status, WUNTRACED) == child && kill(child, SIGKILL) == 0 && waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
    CHECK(state_of(child) == 'Z' && waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGKILL && state_of(child) == 0 && listed(child) == 0 && listed(getpid()) == 1);
    // Who sleeps meanwhile has slept; a handler, or nothing, stops nobody; a group that nobody looks after is not stopped by a terminal.
    child = fork();
    if (child == 0) {
        signal(SIGTSTP, nothing);
        signal(SIGTTIN, SIG_IGN);
        CHECK(raise(SIGTSTP) == 0 && raise(SIGTTIN) == 0);
        // Once more until it was stopped in its sleep.
        volatile int *sleeps = counters + 2, *stopped = counters + 3;
        int slept;
        do {
            *sleeps = 1;
            slept = nanosleep(&nap, NULL) == 0;
            *sleeps = 0;
        } while (!*stopped);
        CHECK(setpgid(0, 0) == 0 && signal(SIGTSTP, SIG_DFL) != SIG_ERR);
        raise(SIGTSTP);
        if (fork() == 0) {
            setsid();
            raise(SIGTTOU);
            _exit(3);
        }
        wait(&status);
        _exit(slept ? 4 + WEXITSTATUS(status) : 99);
    }
    volatile int *sleeps = counters + 2, *stopped = counters + 3;
    while (!*stopped) {
        CHECK(UNTIL(*sleeps && state_of(child) == 'S'));
        CHECK(kill(child, SIGSTOP) == 0 && waitpid(child, &status, WUNTRACED) == child && WSTOPSIG(status) == SIGSTOP);
        usleep(10000);
        *stopped = *sleeps;
        CHECK(kill(child, SIGCONT) == 0);
    }
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTSTP);
    CHECK(kill(-child, SIGCONT) == 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    CHECK(waitid(P_ALL, 0, &info, WNOHANG) == -1 && errno == EINVAL);
    return 0;
}

int main(void) {
    const struct { const char *name; int (*run)(void); } all[] = {{"events", events}, {"servers", servers}, {"packets", packets}, {"timers", timers}, {"shared", shared}, {"inherits", inherits}, {"heirs", heirs}, {"spawns", spawns}, {"named", named}, {"carries", carries}, {"locks", locks}, {"limits", limits}, {"nested", nested}, {"storms", storms}, {"edges", edges}, {"moving", moving}, {"wakes", wakes}, {"losses", losses}, {"stops", stops}, {"queues", queues}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            alarm(HANGS);
            exit(all[i].run());
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status)) printf("%s: signal %d\n", all[i].name, WTERMSIG(status));
        else printf("%s: %d\n", all[i].name, WEXITSTATUS(status));
    }
    return 0;
}
