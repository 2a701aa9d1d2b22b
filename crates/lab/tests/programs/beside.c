// What two threads do at once: of two that want the same one gets it and the other hears why not, and no byte is lost. A line for each pair of calls with
// how many checks failed.
//
//     beside [NAME [ROUNDS]]
#define _GNU_SOURCE
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "checks.h"
#include "until.h"

static int rounds = 100;

struct call {
    const char *name;
    void (*before)(void);
    long (*call)(int which);
    void (*after)(void);
    int error;      // what the one hears that comes second; -1: any, or both may succeed: `after` looks
};
static long answers[2];
static int errors[2];
static int fds[8], id;
static pthread_barrier_t begin, end;
static const struct call *now;

static void *does(void *which) {
    int me = which != 0;
    for (int round = 0; round < rounds; round++) {
        pthread_barrier_wait(&begin);
        errno = 0;
        answers[me] = now->call(me);
        errors[me] = errno;
        pthread_barrier_wait(&end);
    }
    return 0;
}

static void twice(const struct call *call) {
    pthread_t threads[2];
    now = call;
    pthread_barrier_init(&begin, 0, 3), pthread_barrier_init(&end, 0, 3);
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, does, (void *)i);
    for (int round = 0; round < rounds; round++) {
        if (call->before) call->before();
        pthread_barrier_wait(&begin);
        pthread_barrier_wait(&end);
        if (call->error >= 0) {
            int lost = answers[0] >= 0;
            CHECK(answers[!lost] >= 0 && answers[lost] == -1);
            if (errors[lost] != call->error) fprintf(stderr, "%s: %d\n", call->name, errors[lost]);
            CHECK(errors[lost] == call->error);
        }
        if (call->after) call->after();
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
}

static void touch(const char *name) { close(open(name, O_CREAT | O_WRONLY, 0600)); }
static void close_all(void) { for (int i = 0; i < 8; i++) if (fds[i] > 0) close(fds[i]), fds[i] = 0; }
static long size(const char *name) { struct stat s; return stat(name, &s) ? -1 : (long)s.st_size; }

static long makes(int i) { int fd = open("x", O_CREAT | O_EXCL | O_WRONLY, 0600); if (fd >= 0) close(fd); return fd; }
static void gone(void) { unlink("x"), rmdir("d"), unlink("y"); }
static long mkdirs(int i) { return mkdir("d", 0700); }
static void d(void) { mkdir("d", 0700); }
static long rmdirs(int i) { return rmdir("d"); }
static long into(int i) { return i ? rmdir("d") : mkdir("d/e", 0700); }
static void into_after(void) {
    if (answers[0] == 0) CHECK(answers[1] == -1 && errors[1] == ENOTEMPTY);
    else CHECK(answers[1] == 0 && errors[0] == ENOENT);
    rmdir("d/e"), rmdir("d");
}
static long symlinks(int i) { return symlink(i ? "1" : "0", "x"); }
static long links(int i) { return link(i ? "y" : "z", "x"); }
static void y_z(void) { touch("y"), touch("z"); }
static void two_links(void) { struct stat s; CHECK(stat("x", &s) == 0 && s.st_nlink == 2); unlink("x"), unlink("y"), unlink("z"); }
static long unlinks(int i) { return unlink("x"); }
static void x(void) { touch("x"); }
static long names(const char *name) { struct stat s; return stat(name, &s) == 0 ? (long)s.st_nlink : 0; }
static long moves(int i) { return rename("x", i ? "z" : "y"); }
static void moved(void) { CHECK(names("x") == 0 && names("y") + names("z") == 1); unlink("y"), unlink("z"); }
static long replaces_none(int i) { return syscall(SYS_renameat2, AT_FDCWD, i ? "z" : "y", AT_FDCWD, "x", 1 /* RENAME_NOREPLACE */); }
static void replaced_none(void) { CHECK(names("x") == 1 && names("y") + names("z") == 1); unlink("x"), unlink("y"), unlink("z"); }
static long moves_or_goes(int i) { return i ? unlink("x") : rename("x", "y"); }
static void moved_or_gone(void) { CHECK(names("x") == 0 && names("y") == (answers[0] == 0)); unlink("y"); }
static long links_or_goes(int i) { return i ? unlink("x") : link("x", "y"); }
static void linked_or_gone(void) {
    CHECK(answers[1] == 0 && (answers[0] == 0 || errors[0] == ENOENT) && names("x") == 0 && names("y") == (answers[0] == 0));
    unlink("y");
}

static char *place;
static void a_place(void) { place = mmap(0, 16384, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); munmap(place, 16384); }
static long maps(int i) { return mmap(place, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED ? -1 : i; }
static void unmaps(void) { munmap(place, 16384); }
static char *pieces[2];
static long maps_any(int i) {
    long len = 4096 * (1 + i);
    pieces[i] = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pieces[i] == MAP_FAILED) return -1;
    memset(pieces[i], 1 + i, len);
    return 0;
}
static void apart(void) {
    CHECK(answers[0] == 0 && answers[1] == 0 && pieces[0][0] == 1 && pieces[1][0] == 2 && pieces[1][4096] == 2);
    CHECK(munmap(pieces[0], 4096) == 0 && munmap(pieces[1], 8192) == 0);
}
static long brks(int i) { return (long)sbrk(4096) == -1 ? -1 : 0; }

static long shms(int i) { return id = shmget(77, 4096, IPC_CREAT | IPC_EXCL | 0600); }
static void shm_gone(void) { shmctl(shmget(77, 0, 0), IPC_RMID, 0); }
static long sems(int i) { return semget(77, 2, IPC_CREAT | IPC_EXCL | 0600); }
static void sem_gone(void) { semctl(semget(77, 0, 0), 0, IPC_RMID); }
static long msgs(int i) { return msgget(77, IPC_CREAT | IPC_EXCL | 0600); }
static void msg_gone(void) { msgctl(msgget(77, 0), IPC_RMID, 0); }
static void sem_one(void) { id = semget(IPC_PRIVATE, 1, 0600); semctl(id, 0, SETVAL, 1); }
static long sem_takes(int i) { struct sembuf down = {0, -1, IPC_NOWAIT | SEM_UNDO}; return semop(id, &down, 1); }
static void sem_none(void) { CHECK(semctl(id, 0, GETVAL) == 0); semctl(id, 0, IPC_RMID); }
struct letter { long kind; char text[8]; };
static void msg_one(void) { id = msgget(IPC_PRIVATE, 0600); struct letter l = {1, "hello"}; CHECK(msgsnd(id, &l, 8, 0) == 0); }
static long msg_takes(int i) { struct letter l; return msgrcv(id, &l, 8, 0, IPC_NOWAIT); }
static void msg_none(void) { msgctl(id, IPC_RMID, 0); }
static long sem_removes(int i) { return semctl(id, 0, IPC_RMID); }
static long shm_removes(int i) { return shmdt(place); }
static void shm_one(void) { id = shmget(IPC_PRIVATE, 4096, 0600); place = shmat(id, 0, 0); shmctl(id, IPC_RMID, 0); }

static struct sockaddr_in free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    bind(s, (void *)&at, sizeof at), getsockname(s, (void *)&at, &len), close(s);
    return at;
}
static struct sockaddr_in at;
static struct sockaddr_un un = {AF_UNIX, "sock"};
static void two_tcp(void) { at = free_port(); fds[0] = socket(AF_INET, SOCK_STREAM, 0), fds[1] = socket(AF_INET, SOCK_STREAM, 0); }
static long binds(int i) { return bind(fds[i], (void *)&at, sizeof at); }
static void two_un(void) { fds[0] = socket(AF_UNIX, SOCK_STREAM, 0), fds[1] = socket(AF_UNIX, SOCK_STREAM, 0); }
static long binds_un(int i) { return bind(fds[i], (void *)&un, sizeof un); }
static void un_gone(void) { close_all(), unlink("sock"); }
static void listens(void) {
    fds[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(fds[0], (void *)&un, sizeof un) == 0 && listen(fds[0], 5) == 0);
    fds[1] = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(fds[1], (void *)&un, sizeof un) == 0);
}
static long accepts(int i) { return fds[2 + i] = accept(fds[0], 0, 0); }
static void tcp_listens(void) {
    socklen_t len = sizeof at;
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(fds[0], (void *)&at, sizeof at) == 0 && listen(fds[0], 5) == 0 && getsockname(fds[0], (void *)&at, &len) == 0);
    fds[1] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fds[1], (void *)&at, sizeof at) == 0);
}
static long connects(int i) { return connect(fds[1], (void *)&at, sizeof at); }
static void tcp_connects(void) {
    tcp_listens(), close(fds[1]);
    fds[1] = socket(AF_INET, SOCK_STREAM, 0);
}
static void one_tcp(void) { fds[0] = socket(AF_INET, SOCK_STREAM, 0), at = free_port(), at.sin_port = 0; }
static long binds_one(int i) { return bind(fds[0], (void *)&at, sizeof at); }
static void udp(void) {
    socklen_t len = sizeof at;
    fds[0] = socket(AF_INET, SOCK_DGRAM, 0), fds[1] = socket(AF_INET, SOCK_DGRAM, 0);
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    CHECK(bind(fds[1], (void *)&at, sizeof at) == 0 && getsockname(fds[1], (void *)&at, &len) == 0);
}
static long sends_to(int i) { return sendto(fds[0], "x", 1, 0, (void *)&at, sizeof at); }
static void sent(void) {
    struct sockaddr_in from[2];
    for (int i = 0; i < 2; i++) {
        socklen_t len = sizeof from[i];
        char byte;
        CHECK(answers[i] == 1 && recvfrom(fds[1], &byte, 1, 0, (void *)&from[i], &len) == 1);
    }
    CHECK(from[0].sin_port == from[1].sin_port && from[0].sin_port != 0);
    close_all();
}
static void packet(void) { CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, fds) == 0 && write(fds[0], "hello", 5) == 5); }
static long receives(int i) { char text[9]; return recv(fds[1], text, 9, 0); }
static void event_one(void) { fds[1] = eventfd(1, EFD_NONBLOCK); }
static void event_sem(void) { fds[1] = eventfd(1, EFD_NONBLOCK | EFD_SEMAPHORE); }
static long reads8(int i) { uint64_t n; return read(fds[1], &n, 8); }
static void timer_one(void) {
    fds[1] = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec soon = {{0, 0}, {0, 1}};
    timerfd_settime(fds[1], 0, &soon, 0);
    struct pollfd p = {fds[1], POLLIN, 0};
    CHECK(poll(&p, 1, LONG) == 1);
}
static void event_full(void) { fds[1] = eventfd(0, EFD_NONBLOCK); uint64_t n = -3; CHECK(write(fds[1], &n, 8) == 8); }
static long writes8(int i) { uint64_t n = 1; return write(fds[1], &n, 8); }
static void signal_one(void) { sigset_t s; sigemptyset(&s), sigaddset(&s, SIGUSR2); fds[1] = signalfd(-1, &s, SFD_NONBLOCK); kill(getpid(), SIGUSR2); }
static long reads_signal(int i) { struct signalfd_siginfo info; return read(fds[1], &info, sizeof info); }
static long waits_signal(int i) { sigset_t s; sigemptyset(&s), sigaddset(&s, SIGUSR2); return sigtimedwait(&s, 0, &(struct timespec){0, 0}); }
static void signal_sent(void) { kill(getpid(), SIGUSR2); }
static void pipe_one(void) { CHECK(pipe2(fds, O_NONBLOCK) == 0 && write(fds[1], "hello", 5) == 5); }
static long reads_pipe(int i) { char t[9]; return read(fds[0], t, 9); }
static void pipe_room(void) {
    char some[4096] = {0};
    CHECK(pipe2(fds, O_NONBLOCK) == 0);
    while (write(fds[1], some, 4096) == 4096) {}
    CHECK(read(fds[0], some, 4096) == 4096);
}
static long writes_pipe(int i) { char some[4096] = {0}; return write(fds[1], some, 4096); }
static mqd_t queue;
static void mq_one(void) { struct mq_attr a = {.mq_maxmsg = 1, .mq_msgsize = 8}; queue = mq_open("/q", O_CREAT | O_RDWR | O_NONBLOCK, 0600, &a); mq_unlink("/q"); CHECK(mq_send(queue, "x", 1, 0) == 0); }
static void mq_none(void) { struct mq_attr a = {.mq_maxmsg = 1, .mq_msgsize = 8}; queue = mq_open("/q", O_CREAT | O_RDWR | O_NONBLOCK, 0600, &a); mq_unlink("/q"); }
static long mq_takes(int i) { char t[8]; return mq_receive(queue, t, 8, 0); }
static long mq_puts(int i) { return mq_send(queue, "x", 1, 0); }
static void mq_end(void) { mq_close(queue); }
static long mq_makes(int i) { mqd_t q = mq_open("/qq", O_CREAT | O_EXCL | O_RDWR, 0600, 0); if (q >= 0) mq_close(q); return q; }
static void mq_made(void) { mq_unlink("/qq"); }
static void child(void) { pid_t pid = fork(); if (!pid) _exit(3); CHECK(pid > 0); siginfo_t s; CHECK(waitid(P_PID, pid, &s, WEXITED | WNOWAIT) == 0); id = pid; }
static long reaps(int i) { return waitpid(-1, 0, 0); }
static long reaps_it(int i) { siginfo_t s; return waitid(P_PID, id, &s, WEXITED); }
static void two_opens(void) { fds[0] = open("x", O_CREAT | O_RDWR, 0600), fds[1] = open("x", O_RDWR); }
static long flocks(int i) { return flock(fds[i], LOCK_EX | LOCK_NB); }
static long ofds(int i) { struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10}; return fcntl(fds[i], F_OFD_SETLK, &l); }
static long closes(int i) { return close(fds[0]); }
static void one_open(void) { fds[0] = open("x", O_CREAT | O_RDWR, 0600); id = fds[0]; }
static void forget(void) { fds[0] = 0; unlink("x"); }
static void watch(void) { fds[0] = epoll_create1(0), fds[1] = eventfd(1, 0); }
static long adds(int i) { struct epoll_event e = {EPOLLIN, {.fd = i}}; return epoll_ctl(fds[0], EPOLL_CTL_ADD, fds[1], &e); }
static void watched(void) { watch(); struct epoll_event e = {EPOLLIN | EPOLLONESHOT, {.fd = 0}}; CHECK(epoll_ctl(fds[0], EPOLL_CTL_ADD, fds[1], &e) == 0); }
static void watched_edge(void) { watch(); struct epoll_event e = {EPOLLIN | EPOLLET, {.fd = 0}}; CHECK(epoll_ctl(fds[0], EPOLL_CTL_ADD, fds[1], &e) == 0); }
static long once(int i) { struct epoll_event e; return epoll_wait(fds[0], &e, 1, 0); }
static void one_told(void) { CHECK(answers[0] + answers[1] == 1); close_all(); }
static long removes(int i) { return epoll_ctl(fds[0], EPOLL_CTL_DEL, fds[1], 0); }
static long sets(int i) { return setxattr("x", "user.a", &i, 4, XATTR_CREATE); }
static long unsets(int i) { return removexattr("x", "user.a"); }
static void with_attribute(void) { touch("x"); CHECK(setxattr("x", "user.a", "b", 1, 0) == 0); }
static long cuts(int i) { char some[5000] = {1}; return i ? ftruncate(fds[0], 0) : pwrite(fds[0], some, 5000, 0); }
static void cut(void) { long s = size("x"); CHECK(answers[0] == 5000 && answers[1] == 0 && (s == 0 || s == 5000)); close_all(), unlink("x"); }
static long seals(int i) {
    if (i) return fcntl(fds[0], F_ADD_SEALS, F_SEAL_WRITE);
    void *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    return p == MAP_FAILED ? -1 : (place = p, 0);
}
static void sealable(void) { fds[0] = memfd_create("m", MFD_ALLOW_SEALING); place = 0; CHECK(ftruncate(fds[0], 4096) == 0); }
static void sealed(void) {
    if (answers[0] == 0) CHECK(answers[1] == -1 && errors[1] == EBUSY), munmap(place, 4096);
    else CHECK(answers[1] == 0 && errors[0] == EPERM);
    close_all();
}
static void appendable(void) { fds[0] = open("x", O_CREAT | O_WRONLY | O_APPEND | O_TRUNC, 0600), fds[1] = open("x", O_WRONLY | O_APPEND); }
static long appends(int i) { char some[3000]; memset(some, 'a' + i, 3000); return write(fds[i], some, i ? 3000 : 1000); }
static void appended(void) {
    char all[4000];
    int fd = open("x", O_RDONLY);
    CHECK(read(fd, all, 4000) == 4000 && size("x") == 4000);
    int first = all[0] == 'a' ? 1000 : 3000;
    for (int i = 0; i < 4000; i++) if (all[i] != (i < first) * all[0] + (i >= first) * ('a' + 'b' - all[0])) { CHECK(!"in one piece"); break; }
    close(fd), close_all(), unlink("x");
}
static void shared_offset(void) { fds[0] = open("x", O_CREAT | O_WRONLY | O_TRUNC, 0600), fds[1] = dup(fds[0]); }
static long queued_signals;
static void rt_before(void) { queued_signals = 0; }
static long rt_sends(int i) { for (int n = 0; n < 5; n++) if (sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = i})) return -1; return 0; }
static void rt_after(void) {
    sigset_t s; sigemptyset(&s), sigaddset(&s, SIGRTMIN + 1);
    while (sigtimedwait(&s, 0, &(struct timespec){0, 0}) > 0) queued_signals++;
    CHECK(queued_signals == 10);
}
static void room_for_one(void) {
    struct rlimit l;
    getrlimit(RLIMIT_NOFILE, &l);
    int low = dup(0); close(low);
    l.rlim_cur = low + 1;
    CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0);
}
static long dups(int i) { return fds[i] = dup(0); }
static void much_room(void) { struct rlimit l; close_all(); getrlimit(RLIMIT_NOFILE, &l); l.rlim_cur = 1000; setrlimit(RLIMIT_NOFILE, &l); }
static atomic_int fuse;
static void fuse_zero(void) { fuse = 0; }
static long pi_takes(int i) { return syscall(SYS_futex, &fuse, 8 /* TRYLOCK_PI */, 0, 0, 0, 0); }
static void dir_replaced(void) { mkdir("d", 0700), mkdir("e", 0700); }
static long renames_dir(int i) { return i ? mkdir("d/in", 0700) : rename("e", "d"); }
static void renamed_dir(void) {
    if (answers[0] == 0 && answers[1] == 0) CHECK(rmdir("d/in") == 0);
    else CHECK(answers[0] == -1 ? errors[0] == ENOTEMPTY && answers[1] == 0 : errors[1] == ENOENT);
    rmdir("d/in"), rmdir("d"), rmdir("e");
}
static long crosses(int i) { return i ? rename("d", "e/d") : rename("e", "d/e"); }
static void crossed(void) {
    CHECK((answers[0] == 0) + (answers[1] == 0) == 1);
    if (answers[0] != 0) CHECK(errors[0] == ENOENT || errors[0] == EINVAL);
    if (answers[1] != 0) CHECK(errors[1] == ENOENT || errors[1] == EINVAL);
    rmdir("d/e"), rmdir("e/d"), rmdir("d"), rmdir("e");
}

// A byte is taken and put back all the time: whoever waits for it is told that it is there, and not that nothing is.
static void pipe_byte(void) { CHECK(pipe(fds) == 0 && write(fds[1], "x", 1) == 1); }
static long polls(int i) {
    char byte;
    for (int n = 0; n < 100; n++) {
        struct pollfd p = {fds[0], POLLIN, 0};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fds[0], &set);
        if (i) CHECK(read(fds[0], &byte, 1) == 1 && write(fds[1], "x", 1) == 1);
        else CHECK((n & 1 ? poll(&p, 1, -1) : select(fds[0] + 1, &set, 0, 0, 0)) == 1);
    }
    return 0;
}
static void two_places(void) { fds[0] = open("x", O_CREAT | O_WRONLY | O_TRUNC, 0600), fds[1] = open("x", O_WRONLY); }
static long appends_once(int i) {
    char some[3000];
    struct iovec piece = {memset(some, 'a' + i, 3000), i ? 3000 : 1000};
    return pwritev2(fds[i], &piece, 1, i ? -1 : 0, RWF_APPEND);
}
static long grows(int i) { char some[9000] = {1}; return i ? fallocate(fds[0], 0, 0, 5000) : pwrite(fds[0], some, 9000, 0); }
static void grown(void) { CHECK(answers[0] == 9000 && answers[1] == 0 && size("x") == 9000); close_all(), unlink("x"); }
// Whatever was sent comes before the end.
static void stream(void) { CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0); }
static void tcp_stream(void) { tcp_listens(), fds[2] = fds[0], fds[0] = accept(fds[2], 0, 0); }
static long sends_or_ends(int i) {
    char some[4096];
    long all = 0;
    if (!i) {
        while (send(fds[0], "x", 1, MSG_NOSIGNAL) == 1) all++;
        CHECK(errno == EPIPE);
        return all;
    }
    for (int n = 0; n < 3; n++) all += read(fds[1], some, 7);
    CHECK(shutdown(fds[0], SHUT_WR) == 0);
    for (ssize_t count; (count = read(fds[1], some, sizeof some)) > 0;) all += count;
    return all;
}
static void all_came(void) { char byte; CHECK(answers[0] == answers[1] && recv(fds[1], &byte, 1, MSG_DONTWAIT) == 0); close_all(); }
static void file_and_full_pipe(void) {
    char some[5000] = {1};
    pipe_room();
    while (write(fds[1], some, 1) == 1) {}
    fds[2] = open("x", O_CREAT | O_RDWR | O_TRUNC, 0600);
    CHECK(write(fds[2], some, 5000) == 5000 && lseek(fds[2], 0, SEEK_SET) == 0);
}
static long seeks_or_sends(int i) {
    for (int n = 0; n < 50; n++) {
        if (i) CHECK(lseek(fds[2], 0, SEEK_SET) == 0);
        else CHECK(sendfile(fds[1], fds[2], 0, 5000) == -1 && errno == EAGAIN);
    }
    return 0;
}
static void within(void) { off_t at = lseek(fds[2], 0, SEEK_CUR); CHECK(at >= 0 && at <= 5000); close_all(), unlink("x"); }
static void two_wait(void) {
    listens();
    fds[2] = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(fds[2], (void *)&un, sizeof un) == 0);
    room_for_one();
}
static long accepts_one(int i) { return fds[3 + i] = accept(fds[0], 0, 0); }
static void one_waits(void) {
    struct rlimit l;
    getrlimit(RLIMIT_NOFILE, &l), l.rlim_cur = 1000, setrlimit(RLIMIT_NOFILE, &l);
    CHECK((fds[5] = accept(fds[0], 0, 0)) >= 0);
    un_gone();
}
static long locks_or_closes(int i) {
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    return i ? close(fds[0]) : fcntl(fds[0], F_SETLK, &l);
}
static void unlocked(void) {
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    CHECK((answers[0] == 0 || errors[0] == EBADF) && answers[1] == 0);
    fds[0] = open("x", O_RDWR);
    CHECK(fcntl(fds[0], F_OFD_GETLK, &l) == 0 && l.l_type == F_UNLCK);
    close_all(), unlink("x");
}
static void two_udp(void) { at = free_port(); fds[0] = socket(AF_INET, SOCK_DGRAM, 0), fds[1] = socket(AF_INET, SOCK_DGRAM, 0); }
static long binds_or_connects(int i) { return i ? connect(fds[1], (void *)&at, sizeof at) : bind(fds[0], (void *)&at, sizeof at); }
static void is_peer(void) {
    struct sockaddr_in peer = {0};
    socklen_t len = sizeof peer;
    CHECK(answers[0] == 0 && answers[1] == 0 && getpeername(fds[1], (void *)&peer, &len) == 0 && len == sizeof peer && peer.sin_port == at.sin_port);
    close_all();
}
static long flags(int i) {
    for (int n = 0; n < 50; n++) {
        if (i) CHECK(ioctl(fds[0], FIONBIO, &(int){n & 1}) == 0);
        else CHECK(fcntl(fds[0], F_SETFL, n & 1 ? 0 : O_APPEND) == 0 && (fcntl(fds[0], F_GETFL) & O_APPEND) == (n & 1 ? 0 : O_APPEND));
    }
    return 0;
}
static void close_x(void) { close_all(), unlink("x"); }
static void timer_set(void) { fds[1] = timerfd_create(CLOCK_MONOTONIC, 0); struct itimerspec t = {{0, 0}, {1000, 0}}; timerfd_settime(fds[1], 0, &t, 0); }
static long sets_timer(int i) {
    struct itimerspec t = {{0, 0}, {3000 + 1000 * i, 0}}, old;
    return timerfd_settime(fds[1], 0, &t, &old) ? -1 : old.it_value.tv_sec / 1000 + (old.it_value.tv_sec % 1000 > 900);
}
// Each finds what was there before, or what the other has set.
static void timers_set(void) { CHECK(answers[0] == 1 ? answers[1] == 3 : answers[0] == 4 && answers[1] == 1); close_all(); }
static long limits(int i) {
    struct rlimit l;
    getrlimit(RLIMIT_NOFILE, &l);
    l.rlim_cur = 500 + 100 * i;
    return setrlimit(RLIMIT_NOFILE, &l);
}
static void limited(void) {
    struct rlimit l;
    getrlimit(RLIMIT_NOFILE, &l);
    CHECK(fcntl(0, F_DUPFD, l.rlim_cur) == -1 && errno == EINVAL);
    CHECK((fds[0] = fcntl(0, F_DUPFD, l.rlim_cur - 1)) == (int)l.rlim_cur - 1);
    much_room();
}
static void in_d(void) { CHECK(mkdir("d", 0700) == 0 && chdir("d") == 0); }
static long moves_or_asks(int i) {
    for (int n = 0; n < 20; n++) {
        char path[4096];
        if (i) CHECK(rename(n & 1 ? "../e" : "../d", n & 1 ? "../d" : "../e") == 0);
        else if (getcwd(path, sizeof path)) CHECK(strlen(path) >= 2 && (!strcmp(path + strlen(path) - 2, "/d") || !strcmp(path + strlen(path) - 2, "/e")));
        else CHECK(!"there");
    }
    return 0;
}
static void out_of_d(void) { CHECK(chdir("..") == 0 && rmdir("d") == 0); }

// A number that comes back is one that has a name.
static long opens_terminal(int i) {
    for (int n = 0; n < 20; n++) {
        char name[64];
        int master = posix_openpt(O_RDWR | O_NOCTTY), slave;
        CHECK(master >= 0 && unlockpt(master) == 0 && ptsname_r(master, name, sizeof name) == 0);
        CHECK((slave = open(name, O_RDWR | O_NOCTTY)) >= 0);
        close(slave), close(master);
    }
    return 0;
}

// Bytes go from a socket to a pipe that others fill meanwhile, by a thread that signals interrupt.
enum { BYTES = 1 << 20 };
static int sockets[2], pipes[2];
static atomic_int over;
static void *sends(void *unused) {
    char piece[1000];
    memset(piece, 's', sizeof piece);
    for (long left = BYTES; left > 0;) {
        ssize_t sent = write(sockets[0], piece, left < 1000 ? (size_t)left : 1000);
        left -= sent > 0 ? sent : 0;
    }
    shutdown(sockets[0], SHUT_WR);
    return unused;
}
static void *fills(void *unused) {
    char piece[4096];
    memset(piece, 'f', sizeof piece);
    while (!over) CHECK(write(pipes[1], piece, sizeof piece) == sizeof piece);
    return unused;
}
static void *interrupts(void *thread) {
    while (!over) pthread_kill(*(pthread_t *)thread, SIGUSR1), usleep(300);
    return 0;
}
static atomic_long arrived;
static void *reads(void *unused) {
    char some[3000];
    for (ssize_t count; (count = read(pipes[0], some, sizeof some)) > 0;)
        for (ssize_t i = 0; i < count; i++) arrived += some[i] == 's';
    return unused;
}
static void heard(int signal) { (void)signal; }

static void splices(void) {
    struct sigaction action = {.sa_handler = heard};
    sigset_t mine;
    sigemptyset(&mine), sigaddset(&mine, SIGUSR1);
    sigaction(SIGUSR1, &action, 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0 && pipe(pipes) == 0);
    // Only this thread hears it.
    pthread_sigmask(SIG_BLOCK, &mine, 0);
    pthread_t self = pthread_self(), threads[4];
    pthread_create(&threads[0], 0, sends, 0), pthread_create(&threads[1], 0, fills, 0), pthread_create(&threads[2], 0, interrupts, &self);
    pthread_create(&threads[3], 0, reads, 0);
    pthread_sigmask(SIG_UNBLOCK, &mine, 0);
    long went = 0;
    for (ssize_t count; (count = splice(sockets[1], 0, pipes[1], 0, 20000, 0)) != 0;) {
        CHECK(count > 0 || errno == EINTR);
        went += count > 0 ? count : 0;
    }
    over = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    close(pipes[1]);
    pthread_join(threads[3], 0);
    CHECK(went == BYTES && arrived == BYTES);
}

int main(int count, char **arguments) {
    static const struct call calls[] = {
        {"open", 0, makes, gone, EEXIST}, {"mkdir", 0, mkdirs, gone, EEXIST}, {"rmdir", d, rmdirs, 0, ENOENT}, {"rmdir, mkdir", d, into, into_after, -1},
        {"symlink", 0, symlinks, gone, EEXIST}, {"link", y_z, links, two_links, EEXIST}, {"unlink", x, unlinks, 0, ENOENT},
        {"rename", x, moves, moved, ENOENT}, {"RENAME_NOREPLACE", y_z, replaces_none, replaced_none, EEXIST},
        {"rename, unlink", x, moves_or_goes, moved_or_gone, ENOENT}, {"link, unlink", x, links_or_goes, linked_or_gone, -1},
        {"rename, mkdir", dir_replaced, renames_dir, renamed_dir, -1}, {"rename into", dir_replaced, crosses, crossed, -1},
        {"mmap", a_place, maps, unmaps, EEXIST}, {"mmap anywhere", 0, maps_any, apart, -1}, {"sbrk", 0, brks, 0, -1},
        {"shmget", 0, shms, shm_gone, EEXIST}, {"semget", 0, sems, sem_gone, EEXIST}, {"msgget", 0, msgs, msg_gone, EEXIST},
        {"semop", sem_one, sem_takes, sem_none, EAGAIN}, {"msgrcv", msg_one, msg_takes, msg_none, ENOMSG}, {"IPC_RMID", sem_one, sem_removes, 0, EINVAL},
        {"shmdt", shm_one, shm_removes, 0, EINVAL},
        {"bind", two_tcp, binds, close_all, EADDRINUSE}, {"bind a path", two_un, binds_un, un_gone, EADDRINUSE}, {"accept", listens, accepts, un_gone, EAGAIN},
        {"accept by TCP", tcp_listens, accepts, close_all, EAGAIN}, {"connect", tcp_connects, connects, close_all, EISCONN}, {"recv", packet, receives, close_all, EAGAIN},
        {"bind of one socket", one_tcp, binds_one, close_all, EINVAL}, {"sendto", udp, sends_to, sent, -1},
        {"eventfd", event_one, reads8, close_all, EAGAIN}, {"eventfd that counts", event_sem, reads8, close_all, EAGAIN}, {"eventfd that is full", event_full, writes8, close_all, EAGAIN},
        {"timerfd", timer_one, reads8, close_all, EAGAIN}, {"signalfd", signal_one, reads_signal, close_all, EAGAIN}, {"sigtimedwait", signal_sent, waits_signal, 0, EAGAIN},
        {"sigqueue", rt_before, rt_sends, rt_after, -1},
        {"read of a pipe", pipe_one, reads_pipe, close_all, EAGAIN}, {"write to a pipe", pipe_room, writes_pipe, close_all, EAGAIN},
        {"mq_receive", mq_one, mq_takes, mq_end, EAGAIN}, {"mq_send", mq_none, mq_puts, mq_end, EAGAIN}, {"mq_open", 0, mq_makes, mq_made, EEXIST},
        {"waitpid", child, reaps, 0, ECHILD}, {"waitid", child, reaps_it, 0, ECHILD},
        {"flock", two_opens, flocks, close_all, EAGAIN}, {"OFD_SETLK", two_opens, ofds, close_all, EAGAIN}, {"close", one_open, closes, forget, EBADF},
        {"EPOLL_CTL_ADD", watch, adds, close_all, EEXIST}, {"EPOLL_CTL_DEL", watched, removes, close_all, ENOENT}, {"EPOLLONESHOT", watched, once, one_told, -1}, {"EPOLLET", watched_edge, once, one_told, -1},
        {"setxattr", x, sets, gone, EEXIST}, {"removexattr", with_attribute, unsets, gone, ENODATA}, {"ftruncate", one_open, cuts, cut, -1}, {"F_ADD_SEALS", sealable, seals, sealed, -1},
        {"O_APPEND", appendable, appends, appended, -1}, {"one offset", shared_offset, appends, appended, -1}, {"dup", room_for_one, dups, much_room, EMFILE},
        {"TRYLOCK_PI", fuse_zero, pi_takes, 0, EAGAIN}, {"poll", pipe_byte, polls, close_all, -1}, {"RWF_APPEND", two_places, appends_once, appended, -1}, {"fallocate", one_open, grows, grown, -1},
        {"shutdown", stream, sends_or_ends, all_came, -1}, {"shutdown of TCP", tcp_stream, sends_or_ends, all_came, -1}, {"sendfile, lseek", file_and_full_pipe, seeks_or_sends, within, -1},
        {"accept of the last number", two_wait, accepts_one, one_waits, EMFILE}, {"F_SETLK, close", one_open, locks_or_closes, unlocked, -1}, {"bind, connect", two_udp, binds_or_connects, is_peer, -1},
        {"FIONBIO, F_SETFL", one_open, flags, close_x, -1}, {"timerfd_settime", timer_set, sets_timer, timers_set, -1}, {"setrlimit", 0, limits, limited, -1}, {"getcwd, rename", in_d, moves_or_asks, out_of_d, -1},
        {"ptmx", 0, opens_terminal, 0, -1},
    };
    static const struct part parts[] = {{"splice of a socket", splices}};
    sigset_t s;
    sigemptyset(&s), sigaddset(&s, SIGUSR2), sigaddset(&s, SIGRTMIN + 1), sigprocmask(SIG_BLOCK, &s, 0);
    alarm(HANGS);
    if (count > 2) rounds = atoi(arguments[2]);
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (count > 1 && strcmp(arguments[1], calls[i].name)) continue;
        wrong = 0;
        twice(&calls[i]);
        printf("%s: %d\n", calls[i].name, wrong);
        fflush(stdout);
    }
    PLAY(parts, count, arguments);
    return 0;
}
