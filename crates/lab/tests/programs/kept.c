// What calls keep for whom it is meant: a signal for the thread whose call it comes of, bytes that did not go for whoever reads next, a lock
// for whoever waits. A line for each part with how many checks failed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "until.h"

static volatile int heard;
static void hear(int signal) { heard += signal > 0; }

// A thread that blocks a signal does what it comes of: it waits for this thread, though another would hear it.
static void *does(void *of) {
    int pipes[2], sockets[2], signal = *(int *)of;
    sigset_t one, waits;
    sigemptyset(&one), sigaddset(&one, signal);
    pthread_sigmask(SIG_BLOCK, &one, 0);
    CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    close(pipes[0]), close(sockets[0]);
    for (int turn = 0; turn < 2; turn++) {
        if (signal == SIGPIPE) FAILS(write(turn ? pipes[1] : sockets[1], "x", 1), EPIPE);
        if (signal == SIGXFSZ) FAILS(ftruncate(fileno(tmpfile()), 4096), EFBIG);
        siginfo_t info = {0};
        CHECK(sigpending(&waits) == 0 && sigismember(&waits, signal) == 1 && heard == 0);
        CHECK(sigtimedwait(&one, &info, &(struct timespec){0, 0}) == signal && info.si_code == SI_USER && info.si_pid == getpid());
    }
    close(pipes[1]), close(sockets[1]);
    return 0;
}

static void signals(void) {
    struct rlimit limit, old;
    getrlimit(RLIMIT_FSIZE, &old);
    limit = old, limit.rlim_cur = 100;
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int turn = 0; turn < 2; turn++) {
        int which = turn ? SIGXFSZ : SIGPIPE;
        struct sigaction action = {.sa_handler = hear};
        sigaction(which, &action, 0);
        pthread_t thread;
        CHECK(pthread_create(&thread, 0, does, &which) == 0 && pthread_join(thread, 0) == 0 && heard == 0);
    }
    setrlimit(RLIMIT_FSIZE, &old);
}

// What finds no room stays in the pipe.
static void bytes(void) {
    int sockets[2], pipes[2], left = 0;
    char all[4096] = {0};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets) == 0 && pipe(pipes) == 0);
    while (write(sockets[0], all, sizeof all) > 0) {}
    CHECK(write(pipes[1], "hello", 5) == 5);
    FAILS(splice(pipes[0], 0, sockets[0], 0, 5, SPLICE_F_NONBLOCK), EAGAIN);
    CHECK(ioctl(pipes[0], FIONREAD, &left) == 0 && left == 5 && read(pipes[0], all, 9) == 5 && !memcmp(all, "hello", 5));
    for (int i = 0; i < 2; i++) close(sockets[i]), close(pipes[i]);
}

static int lock(int file, int how, int kind, long at) {
    struct flock lock = {.l_type = kind, .l_start = at, .l_len = 1};
    return fcntl(file, how, &lock);
}

// Nobody waits for itself, and who waits for more has let go of what it had.
static void locks(void) {
    char name[] = "kept.XXXXXX";
    int file = mkstemp(name), other = open(name, O_RDWR), pipes[2], status = -1;
    unlink(name);
    CHECK(file >= 0 && other >= 0 && pipe(pipes) == 0);
    CHECK(flock(file, LOCK_SH) == 0 && flock(other, LOCK_SH) == 0);
    FAILS(flock(file, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    CHECK(flock(other, LOCK_EX | LOCK_NB) == 0);
    FAILS(flock(file, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    CHECK(flock(other, LOCK_UN) == 0 && flock(file, LOCK_EX | LOCK_NB) == 0);
    int more[2];
    CHECK(pipe(more) == 0 && flock(pipes[0], LOCK_EX | LOCK_NB) == 0 && flock(more[0], LOCK_EX | LOCK_NB) == 0);
    CHECK(lock(file, F_SETLK, F_WRLCK, 0) == 0);
    pid_t pid = fork();
    if (!pid) {
        alarm(HANGS);
        char well = lock(file, F_SETLK, F_WRLCK, 1) == 0;
        _exit(write(pipes[1], &well, 1) != 1 || lock(file, F_SETLKW, F_WRLCK, 0) != 0);
    }
    char well = 0;
    CHECK(read(pipes[0], &well, 1) == 1 && well && UNTIL(state_of(pid) == 'S'));
    FAILS(lock(file, F_SETLKW, F_WRLCK, 1), EDEADLK);
    FAILS(lock(file, F_SETLK, F_RDLCK, 1), EAGAIN);
    CHECK(lock(file, F_SETLK, F_UNLCK, 0) == 0 && waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(lock(file, F_SETLKW, F_WRLCK, 1) == 0);
    close(file), close(other);
    for (int i = 0; i < 2; i++) close(pipes[i]), close(more[i]);
}

// A slash behind a name says that a directory is meant, and follows no link.
static void slashes(void) {
    struct stat found;
    char to[10];
    CHECK(mkdir("kept.in", 0755) == 0 && chdir("kept.in") == 0);
    close(creat("file", 0644));
    CHECK(mkdir("in", 0755) == 0 && symlink("file", "to.file") == 0 && symlink("in", "to.in") == 0 && symlink("none", "to.none") == 0);
    FAILS(unlink("file/"), ENOTDIR);
    FAILS(unlink("to.file/"), ENOTDIR);
    FAILS(rmdir("to.in/"), ENOTDIR);
    FAILS(unlink("to.in/"), ENOTDIR);
    FAILS(unlink("in/"), EISDIR);
    FAILS(unlink("none/"), ENOENT);
    FAILS(rmdir("file/"), ENOTDIR);
    FAILS(rmdir("/"), EBUSY);
    FAILS(rename("file", "new/"), ENOTDIR);
    FAILS(rename("file/", "new"), ENOTDIR);
    FAILS(rename("to.in/", "new"), ENOTDIR);
    CHECK(rename("in", "new/") == 0 && rename("new/", "in") == 0);
    FAILS(mkdir("to.none/", 0755), EEXIST);
    FAILS(mkdir("to.in/", 0755), EEXIST);
    FAILS(symlink("x", "new/"), ENOENT);
    FAILS(link("file", "new/"), ENOENT);
    FAILS(link("file/", "new"), ENOTDIR);
    FAILS(mknod("new/", S_IFREG | 0644, 0), ENOENT);
    FAILS(readlink("to.file/", to, sizeof to), ENOTDIR);
    CHECK(lstat("to.in/", &found) == 0 && S_ISDIR(found.st_mode) && mkdir("new/", 0755) == 0 && rmdir("new/") == 0);
    close(creat("in/file", 0644));
    // Behind the name in a link, too, and nothing is made by such a name.
    const char *leads[] = {"file/", "in/", "none/", "to.file/", "in/."};
    for (unsigned i = 0; i < sizeof leads / sizeof *leads; i++) {
        int is = i % 3 == 1 ? 0 : i == 2 ? ENOENT : ENOTDIR;
        CHECK(unlink("leads") == (i ? 0 : -1) && symlink(leads[i], "leads") == 0);
        CHECK(is ? open("leads", O_RDONLY) == -1 && errno == is : close(open("leads", O_RDONLY)) == 0);
        CHECK(is ? stat("leads", &found) == -1 && errno == is : stat("leads", &found) == 0 && S_ISDIR(found.st_mode));
        CHECK(lstat("leads", &found) == 0 && S_ISLNK(found.st_mode) && close(open("leads", O_PATH | O_NOFOLLOW)) == 0);
        FAILS(open("leads", O_CREAT | O_WRONLY, 0644), EISDIR);
        FAILS(open(leads[i], O_CREAT | O_RDONLY, 0644), EISDIR);
        FAILS(open(leads[i], O_CREAT | O_EXCL | O_RDONLY, 0644), i == 4 ? EEXIST : EISDIR);
    }
    FAILS(open("none", O_PATH | O_CREAT | O_EXCL, 0644), ENOENT);
    CHECK(unlink("leads") == 0 && close(open("in", O_PATH | O_CREAT | O_EXCL | O_TRUNC | O_RDWR, 0644)) == 0);
    FAILS(rename("in/file", "in"), ENOTEMPTY);
    FAILS(open("new", O_CREAT | O_DIRECTORY, 0755), EINVAL);
    umask(0);
    CHECK(mkdir("new", 06777) == 0 && lstat("new", &found) == 0 && found.st_mode == (S_IFDIR | 0777));
    int here = open("new", O_RDONLY), file = open("file", O_RDWR);
    CHECK(rmdir("new") == 0 && write(file, "hello", 5) == 5 && open("file", O_RDONLY | O_TRUNC) >= 0 && fstat(file, &found) == 0 && found.st_size == 0);
    FAILS(syscall(SYS_getdents64, here, to, sizeof to), ENOENT);
    close(file), close(here);
    CHECK(unlink("in/file") == 0 && rmdir("in") == 0 && unlink("file") == 0 && unlink("to.file") == 0 && unlink("to.in") == 0 && unlink("to.none") == 0);
    CHECK(chdir("..") == 0 && rmdir("kept.in") == 0);
}

// What is open only to be named.
static void named(void) {
    char name[] = "kept.XXXXXX", to[64];
    int file = mkstemp(name), only = open(name, O_PATH), here = open(".", O_PATH), set = epoll_create1(0), pipes[2];
    CHECK(symlink(name, "kept.link") == 0 && pipe(pipes) == 0);
    int link = open("kept.link", O_PATH | O_NOFOLLOW);
    CHECK(readlinkat(link, "", to, sizeof to) == (long)strlen(name) && !memcmp(to, name, strlen(name)));
    FAILS(readlinkat(only, "", to, sizeof to), ENOENT);
    FAILS(syscall(SYS_getdents64, here, to, sizeof to), EBADF);
    FAILS(fchown(only, 0, 0), EBADF);
    FAILS(fcntl(only, F_SETFL, 0), EBADF);
    FAILS(lock(only, F_SETLK, F_RDLCK, 0), EBADF);
    CHECK((fcntl(only, F_GETFL) & O_PATH) && fcntl(only, F_SETFD, FD_CLOEXEC) == 0 && fcntl(only, F_GETFD) == FD_CLOEXEC);
    FAILS(syncfs(only), EBADF);
    FAILS(fgetxattr(only, "user.x", to, sizeof to), EBADF);
    CHECK(posix_fadvise(only, 0, 0, 0) == EBADF && posix_fadvise(file, 0, -1, 0) == EINVAL);
    FAILS(readahead(only, 0, 10), EBADF);
    FAILS(sendfile(pipes[1], only, 0, 10), EBADF);
    FAILS(copy_file_range(only, 0, file, 0, 10, 0), EBADF);
    FAILS(splice(only, 0, pipes[1], 0, 1, 0), EBADF);
    FAILS(futimens(only, 0), EBADF);
    struct epoll_event event = {.events = EPOLLIN};
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, only, &event), EBADF);
    int null = open("/dev/null", O_RDWR);
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, null, &event), EPERM);
    FAILS(fallocate(null, 0, 0, 10), ENODEV);
    FAILS(fallocate(pipes[1], 0, 0, 10), ESPIPE);
    FAILS(fallocate(pipes[0], 0, 0, 10), EBADF);
    FAILS(dup3(-1, -1, 0), EINVAL);
    struct pollfd one = {only, POLLIN, 0};
    CHECK(poll(&one, 1, 0) == 1 && one.revents == POLLNVAL);
    CHECK(unlink(name) == 0 && unlink("kept.link") == 0);
    int all[] = {file, only, here, set, link, null, pipes[0], pipes[1]};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) close(all[i]);
    // What is set before it has a name is so of what has its name.
    struct sockaddr_un at = {AF_UNIX, "kept.socket"};
    struct stat is;
    int bound = socket(AF_UNIX, SOCK_STREAM, 0);
    umask(022);
    CHECK(fstat(bound, &is) == 0 && is.st_mode == (S_IFSOCK | 0777) && fchmod(bound, 0622) == 0 && fstat(bound, &is) == 0 && is.st_mode == (S_IFSOCK | 0622));
    CHECK(bind(bound, (void *)&at, sizeof at) == 0 && stat("kept.socket", &is) == 0 && is.st_mode == (S_IFSOCK | 0600) && unlink("kept.socket") == 0);
    close(bound);
}

// What /proc shows is made anew for who reads it from its start, and kept for who reads on.
static void texts(void) {
    static char first[4096], second[4096];
    int status = open("/proc/self/stat", O_RDONLY), size = open("/proc/self/statm", O_RDONLY);
    long len = read(size, first, sizeof first - 1);
    char *more = mmap(0, 1 << 24, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(len > 0 && more != MAP_FAILED && lseek(size, 0, SEEK_SET) == 0 && read(size, second, sizeof second - 1) > 0);
    CHECK(strtol(second, 0, 10) == strtol(first, 0, 10) + (1 << 12) && munmap(more, 1 << 24) == 0);
    CHECK(pread(size, second, sizeof second - 1, 0) == len && strtol(second, 0, 10) == strtol(first, 0, 10));
    pid_t pid = fork();
    if (!pid) {
        // It was opened by another, and tells of that one.
        _exit(read(status, first, 20) <= 0 || strtol(first, 0, 10) != getppid());
    }
    int code = -1;
    CHECK(waitpid(pid, &code, 0) == pid && code == 0);
    pid = fork();
    if (!pid) _exit(pause());
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int other = open(path, O_RDONLY);
    CHECK(other >= 0 && read(other, first, 10) == 10 && kill(pid, SIGKILL) == 0 && waitpid(pid, &code, 0) == pid);
    FAILS(pread(other, first, 10, 0), ESRCH);
    // What tells of a number that is its own by now.
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", size);
    int itself = open(path, O_RDONLY);
    CHECK(itself >= 0 && dup2(itself, size) == size && read(size, first, sizeof first - 1) > 0 && !memcmp(first, "pos:", 4));
    close(status), close(size), close(other), close(itself);
}

static __thread volatile int mine;
static volatile int over;
static void count_mine(int signal) { mine += signal > 0; }

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

// A wait at a word that ends by a signal has had a handler run in its own thread, whoever else was awake; and the next wait takes as long as it is to.
static void *waits(void *which) {
    int kind = *(int *)which, set = epoll_create1(0), sems = semget(IPC_PRIVATE, 1, 0600), queue = msgget(IPC_PRIVATE, 0600), word = 0;
    sigset_t none;
    sigemptyset(&none), sigaddset(&none, SIGUSR2);
    while (!over) {
        struct timespec soon = {0, 3000000}, at;
        struct epoll_event event;
        struct sembuf less = {0, -1, 0};
        int before = mine;
        errno = 0;
        if (kind == 0) epoll_wait(set, &event, 1, 3);
        if (kind == 1) semtimedop(sems, &less, 1, &soon);
        if (kind == 2) sigtimedwait(&none, 0, &soon);
        if (kind == 3) {
            clock_gettime(CLOCK_MONOTONIC, &at);
            at.tv_nsec += 3000000;
            if (at.tv_nsec >= 1000000000) at.tv_sec++, at.tv_nsec -= 1000000000;
            syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &at, 0, -1);
        }
        CHECK(kind != 3 || errno != EINTR || mine != before);
        double begin = now();
        soon = (struct timespec){0, 2000000};
        CHECK(nanosleep(&soon, 0) != 0 || now() - begin >= 0.002);
    }
    semctl(sems, 0, IPC_RMID), msgctl(queue, IPC_RMID, 0), close(set);
    return 0;
}

static void waiters(void) {
    pthread_t all[8];
    int kinds[8];
    struct sigaction action = {.sa_handler = count_mine};
    sigaction(SIGUSR1, &action, 0);
    for (int i = 0; i < 8; i++) kinds[i] = i % 4, pthread_create(&all[i], 0, waits, &kinds[i]);
    for (int i = 0; i < 4000; i++) kill(getpid(), SIGUSR1), usleep(50);
    over = 1;
    for (int i = 0; i < 8; i++) pthread_join(all[i], 0);
}

// What is seldom asked of clocks, turns, children and nodes.
static void seldom(void) {
    struct timespec soon = {0, 700000000}, turn = {9, 9};
    alarm(10), nanosleep(&soon, 0);
    CHECK(alarm(0) == 9);
    soon = (struct timespec){0, 1000};
    for (int clock = CLOCK_MONOTONIC_RAW; clock <= CLOCK_MONOTONIC_COARSE; clock++) {
        timer_t timer;
        FAILS(syscall(SYS_clock_nanosleep, clock, 0, &soon, 0), EOPNOTSUPP);
        FAILS(timer_create(clock, 0, &timer), EOPNOTSUPP);
    }
    FAILS(syscall(SYS_clock_nanosleep, CLOCK_THREAD_CPUTIME_ID, 0, &soon, 0), EOPNOTSUPP);
    FAILS(syscall(SYS_clock_nanosleep, 99, 0, &soon, 0), EINVAL);
    FAILS(sched_rr_get_interval(-1, &turn), EINVAL);
    FAILS(sched_rr_get_interval(9999999, &turn), ESRCH);
    FAILS(sched_getparam(0, 0), EINVAL);
    struct sched_param high = {5}, usual = {0};
    if (sched_setscheduler(0, SCHED_RR, &high) == 0) CHECK(sched_rr_get_interval(0, &turn) == 0 && turn.tv_sec == 0 && turn.tv_nsec > 0);
    if (sched_setscheduler(0, SCHED_FIFO, &high) == 0) CHECK(sched_rr_get_interval(0, &turn) == 0 && turn.tv_nsec == 0);
    CHECK(sched_setscheduler(0, SCHED_OTHER, &usual) == 0);
    FAILS(waitid(P_ALL, 0, 0, WEXITED | 0x10000), EINVAL);
    FAILS(waitid(P_ALL, 0, 0, WEXITED), ECHILD);
    FAILS(setpgid(0, -1), EINVAL);
    int place[2] = {9, 9};
    struct timeval time;
    CHECK(syscall(SYS_gettimeofday, &time, place) == 0 && !place[0] && !place[1]);
    char *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pages[0] = 1;
    void *all[] = {pages, pages + 4096};
    int status[2] = {99, 99}, self = syscall(SYS_pidfd_open, getpid(), 0);
    CHECK(syscall(SYS_move_pages, 0, 2, all, 0, status, 0) == 0 && status[0] == 0 && status[1] == -ENOENT);
    FAILS(syscall(SYS_move_pages, 0, 2, all, 0, status, 1), EINVAL);
    FAILS(syscall(SYS_move_pages, 9999999, 2, all, 0, status, 0), ESRCH);
    FAILS(syscall(SYS_process_mrelease, self, 1), EINVAL);
    FAILS(syscall(SYS_process_mrelease, self, 0), EINVAL);
    FAILS(syscall(SYS_process_mrelease, -1, 0), EBADF);
    CHECK(munmap(pages, 8192) == 0);
    // Who watches a file hears that it is gone, whatever was asked for.
    char name[] = "kept.XXXXXX";
    struct inotify_event event = {0};
    int file = mkstemp(name), watches = inotify_init1(IN_NONBLOCK), watch = inotify_add_watch(watches, name, IN_MODIFY);
    close(file);
    CHECK(unlink(name) == 0 && read(watches, &event, sizeof event) == sizeof event && event.wd == watch && event.mask == IN_IGNORED);
    FAILS(inotify_rm_watch(watches, watch), EINVAL);
    close(watches);
    int stream = socket(AF_INET, SOCK_STREAM, 0), hops = 0;
    socklen_t len = sizeof hops;
    char how[16];
    CHECK(getsockopt(stream, IPPROTO_IP, IP_TTL, &hops, &len) == 0 && hops == 64);
    struct tcp_info info;
    len = sizeof info;
    CHECK(getsockopt(stream, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && len > 100 && info.tcpi_state == TCP_CLOSE);
    len = sizeof how;
    CHECK(getsockopt(stream, IPPROTO_TCP, TCP_CONGESTION, how, &len) == 0 && len == 16 && !how[15]);
    close(stream), close(self);
    // Who can have no more open makes nothing.
    struct rlimit limit, none;
    getrlimit(RLIMIT_NOFILE, &limit);
    none = limit, none.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    FAILS(open("nothing", O_CREAT | O_WRONLY, 0600), EMFILE);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    FAILS(access("nothing", F_OK), ENOENT);
}

// Who may use semaphores and messages by number.
static void rights(void) {
    struct semid_ds set;
    struct msqid_ds kept;
    union { int value; struct semid_ds *set; } with = {.set = &set};
    int key = 0x6b0000 | (getpid() & 0xffff), sems = semget(key, 1, IPC_CREAT | 0640), queue = msgget(key, IPC_CREAT | 0640), status = -1;
    CHECK(semctl(sems, 0, IPC_STAT, with) == 0 && set.sem_perm.mode == 0640 && set.sem_perm.uid == geteuid() && set.sem_perm.__key == key);
    CHECK(msgctl(queue, IPC_STAT, &kept) == 0 && kept.msg_perm.mode == 0640 && kept.msg_perm.cuid == geteuid());
    for (int turn = 0; turn < 2; turn++) {
        pid_t pid = fork();
        if (!pid) {
            struct { long kind; char text[4]; } message = {1, "abc"};
            struct sembuf more = {0, 1, 0}, looks = {0, 0, 0}, behind = {5, 1, 0};
            wrong = 0;
            CHECK(setresgid(2000, 2000, 2000) == 0 && setresuid(2000, 2000, 2000) == 0 && semget(key, 1, 0) == sems);
            FAILS(semget(key, 5, 0), EINVAL);
            FAILS(semget(key, 1, IPC_CREAT | IPC_EXCL | 0600), EEXIST);
            FAILS(semop(sems, &behind, 1), EFBIG);
            if (turn) {
                // It is given to them.
                CHECK(semget(key, 1, 0600) == sems && semop(sems, &more, 1) == 0 && semctl(sems, 0, GETVAL) == 1 && semctl(sems, 0, SETVAL, 0) == 0);
                CHECK(msgsnd(queue, &message, 4, IPC_NOWAIT) == 0 && msgrcv(queue, &message, 4, 0, IPC_NOWAIT) == 4);
                CHECK(semctl(sems, 0, IPC_RMID) == 0 && msgctl(queue, IPC_RMID, 0) == 0);
                _exit(wrong);
            }
            FAILS(semget(key, 1, 0600), EACCES);
            FAILS(semop(sems, &more, 1), EACCES);
            FAILS(semop(sems, &looks, 1), EACCES);
            FAILS(semctl(sems, 0, GETVAL), EACCES);
            FAILS(semctl(sems, 0, SETVAL, 1), EACCES);
            FAILS(semctl(sems, 0, IPC_STAT, with), EACCES);
            FAILS(semctl(sems, 0, IPC_SET, with), EPERM);
            FAILS(semctl(sems, 0, IPC_RMID), EPERM);
            FAILS(msgget(key, 0600), EACCES);
            FAILS(msgsnd(queue, &message, 4, IPC_NOWAIT), EACCES);
            FAILS(msgrcv(queue, &message, 4, 0, IPC_NOWAIT), EACCES);
            FAILS(msgctl(queue, IPC_STAT, &kept), EACCES);
            FAILS(msgctl(queue, IPC_RMID, 0), EPERM);
            _exit(wrong);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        set.sem_perm.uid = kept.msg_perm.uid = 2000, set.sem_perm.mode = kept.msg_perm.mode = 0600;
        if (!turn) CHECK(semctl(sems, 0, IPC_SET, with) == 0 && msgctl(queue, IPC_SET, &kept) == 0 && semctl(sems, 0, IPC_STAT, with) == 0);
        if (!turn) CHECK(set.sem_perm.mode == 0600 && set.sem_perm.uid == 2000 && set.sem_perm.cuid == geteuid());
    }
    FAILS(semctl(sems, 0, GETVAL), EINVAL);
    FAILS(msgctl(queue, IPC_STAT, &kept), EINVAL);
}

int main(int count, char **arguments) {
    static const struct part parts[] = {{"signals", signals}, {"bytes", bytes}, {"locks", locks}, {"slashes", slashes}, {"named", named}, {"texts", texts}, {"waiters", waiters}, {"seldom", seldom}, {"rights", rights}};
    PLAY(parts, count, arguments);
    return 0;
}
