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

static void network(int *ends, int *listens) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    *listens = socket(AF_INET, SOCK_STREAM, 0), ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(*listens, (void *)&at, len) == 0 && listen(*listens, 1) == 0 && getsockname(*listens, (void *)&at, &len) == 0);
    CHECK(connect(ends[0], (void *)&at, len) == 0 && (ends[1] = accept(*listens, 0, 0)) >= 0);
}

// Sends a byte, and what goes along with it.
static long sends(int socket, const char *byte, int kind, const void *more, int len) {
    char control[64] = {0};
    struct iovec bytes = {(void *)byte, 1};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(len)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = kind, head->cmsg_len = CMSG_LEN(len);
    memcpy(CMSG_DATA(head), more, len);
    return sendmsg(socket, &message, 0);
}

// What came: how many bytes, and how long what came along with it is, which `control` has.
static long comes(int socket, char *control, unsigned *room, int *flags) {
    char some[64];
    struct iovec bytes = {some, sizeof some};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = *room};
    long len = recvmsg(socket, &message, MSG_DONTWAIT);
    *room = message.msg_controllen, *flags = message.msg_flags;
    return len;
}

static void along(void) {
    char control[256];
    unsigned room = sizeof control;
    int ends[2], flags, on = 1, one = 1, packets = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    // What comes with a file is the last that comes at once.
    CHECK(sends(ends[0], "a", SCM_RIGHTS, &one, 4) == 1 && write(ends[0], "b", 1) == 1 && sends(ends[0], "c", SCM_RIGHTS, &one, 4) == 1);
    CHECK(write(ends[0], "d", 1) == 1 && comes(ends[1], control, &room, &flags) == 1 && room == CMSG_SPACE(4));
    close(*(int *)CMSG_DATA((struct cmsghdr *)control));
    room = sizeof control;
    CHECK(comes(ends[1], control, &room, &flags) == 2 && room == CMSG_SPACE(4));
    close(*(int *)CMSG_DATA((struct cmsghdr *)control));
    room = sizeof control;
    CHECK(comes(ends[1], control, &room, &flags) == 1 && room == 0);
    // Who sends.
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, 4) == 0 && write(ends[0], "x", 1) == 1);
    room = sizeof control;
    CHECK(comes(ends[1], control, &room, &flags) == 1 && room == CMSG_SPACE(12) && flags == 0);
    struct cmsghdr *head = (void *)control;
    struct ucred *who = (void *)CMSG_DATA(head);
    CHECK(head->cmsg_type == SCM_CREDENTIALS && head->cmsg_len == CMSG_LEN(12) && who->pid == getpid() && who->uid == getuid() && who->gid == getgid());
    CHECK(sends(ends[0], "x", SCM_RIGHTS, &one, 4) == 1);
    room = sizeof control;
    CHECK(comes(ends[1], control, &room, &flags) == 1 && room == CMSG_SPACE(12) + CMSG_SPACE(4) && flags == 0);
    close(*(int *)CMSG_DATA((struct cmsghdr *)(control + CMSG_SPACE(12))));
    CHECK(write(ends[0], "x", 1) == 1);
    room = 20;
    CHECK(comes(ends[1], control, &room, &flags) == 1 && room == 20 && flags == MSG_CTRUNC);
    int status = -1;
    pid_t pid = fork();
    if (!pid) {
        struct ucred other = {getpid(), 4321, 4321}, own = {getpid(), 1234, 1234};
        if (setresgid(1234, 1234, 1234) || setresuid(1234, 1234, 1234)) _exit(1);
        _exit(sends(ends[0], "x", SCM_CREDENTIALS, &other, 12) != -1 || errno != EPERM || sends(ends[0], "x", SCM_CREDENTIALS, &own, 12) != 1);
    }
    room = sizeof control;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0 && comes(ends[1], control, &room, &flags) == 1 && who->pid == pid && who->uid == 1234);
    // Several at once: each is waited for, or the first alone, or as long as there is time.
    struct iovec byte = {control, 1};
    struct mmsghdr several[3] = {0};
    struct timespec times[] = {{0, 0}, {-1, 0}, {LONG, 0}};
    CHECK((pid = fork()) >= 0);
    if (!pid) {
        CHECK(write(ends[0], "x", 1) == 1 && UNTIL(state_of(getppid()) == 'S') && write(ends[0], "y", 1) == 1);
        _exit(wrong);
    }
    for (int i = 0; i < 3; i++) several[i].msg_hdr = (struct msghdr){.msg_iov = &byte, .msg_iovlen = 1};
    CHECK(recvmmsg(ends[1], several, 2, MSG_CMSG_CLOEXEC, 0) == 2 && several[1].msg_len == 1 && control[0] == 'y');
    CHECK(several[1].msg_hdr.msg_flags == (MSG_CMSG_CLOEXEC | MSG_CTRUNC));
    CHECK(waitpid(pid, &status, 0) == pid && status == 0 && write(ends[0], "xyz", 3) == 3);
    CHECK(recvmmsg(ends[1], several, 3, 0, times) == 1 && control[0] == 'x' && times[0].tv_sec == 0 && times[0].tv_nsec == 0);
    CHECK(recvmmsg(ends[1], several, 3, MSG_WAITFORONE, times + 2) == 2 && control[0] == 'z' && times[2].tv_sec < LONG && times[2].tv_sec > LONG / 2);
    FAILS(recvmmsg(ends[1], several, 3, MSG_DONTWAIT, times + 1), EINVAL);
    times[2] = (struct timespec){LONG, 0};
    FAILS(recvmmsg(ends[1], several, 3, MSG_DONTWAIT, times + 2), EAGAIN);
    CHECK(times[2].tv_sec == LONG && times[2].tv_nsec == 0);
    // When it came, and where to.
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    CHECK(bind(packets, (void *)&at, len) == 0 && getsockname(packets, (void *)&at, &len) == 0);
    CHECK(setsockopt(packets, IPPROTO_IP, IP_PKTINFO, &on, 4) == 0 && setsockopt(packets, SOL_SOCKET, SO_TIMESTAMP, &on, 4) == 0);
    CHECK(sendto(packets, "x", 1, 0, (void *)&at, len) == 1);
    room = sizeof control;
    CHECK(comes(packets, control, &room, &flags) == 1 && room == CMSG_SPACE(16) + CMSG_SPACE(12));
    struct timeval *when = (void *)CMSG_DATA(head);
    CHECK(head->cmsg_type == SCM_TIMESTAMP && when->tv_usec < 1000000 && labs(time(0) - when->tv_sec) < 100);
    struct in_pktinfo *where = (void *)CMSG_DATA((struct cmsghdr *)(control + CMSG_SPACE(16)));
    CHECK(where->ipi_ifindex == 1 && where->ipi_addr.s_addr == htonl(INADDR_LOOPBACK));
    close(ends[0]), close(ends[1]), close(packets);
}

static int ready(int end) {
    struct pollfd one = {end, POLLIN | POLLOUT | POLLRDHUP, 0};
    return poll(&one, 1, 0) < 0 ? -1 : one.revents;
}

// How much a socket takes until somebody receives.
static long takes(int socket) {
    static char some[1000];
    long sum = 0, more;
    while ((more = send(socket, some, sizeof some, MSG_DONTWAIT)) > 0) sum += more;
    CHECK(more == -1 && errno == EAGAIN);
    return sum;
}

// Room, as both ends of a connection say, and of others who sends.
static void rooms(void) {
    int ends[2], listens, few = 4096, many = 65536, said;
    socklen_t len = sizeof few;
    static char all[300000];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    long before = takes(ends[0]);
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &few, sizeof few) == 0 && getsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &said, &len) == 0 && said == 2 * few);
    long less = takes(ends[1]);
    CHECK(before > 65536 && less > 0 && less <= 2 * few);
    // Whoever waits for room has it once there is more.
    pid_t pid = fork();
    if (!pid) _exit(send(ends[1], all, 100, 0) != 100);
    CHECK(UNTIL(state_of(pid) == 'S') && setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &many, sizeof many) == 0);
    CHECK(waitpid(pid, &said, 0) == pid && said == 0 && takes(ends[1]) > less);
    close(ends[0]), close(ends[1]);
    // Of the network both count, and who is taken in is as who listens.
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    len = sizeof at;
    listens = socket(AF_INET, SOCK_STREAM, 0), ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(listens, SOL_SOCKET, SO_RCVBUF, &few, sizeof few) == 0 && setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &few, sizeof few) == 0);
    CHECK(bind(listens, (void *)&at, len) == 0 && listen(listens, 1) == 0 && getsockname(listens, (void *)&at, &len) == 0);
    CHECK(connect(ends[0], (void *)&at, len) == 0);
    less = takes(ends[0]);
    CHECK((ends[1] = accept(listens, 0, 0)) >= 0);
    len = sizeof said;
    CHECK(getsockopt(ends[1], SOL_SOCKET, SO_RCVBUF, &said, &len) == 0 && said == 2 * few);
    CHECK(less > 0 && less <= 40000);
    close(ends[0]), close(ends[1]), close(listens);
    // A packet that is too long for anybody.
    many = 212992;
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0 && setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &many, sizeof many) == 0);
    CHECK(send(ends[0], all, sizeof all, 0) == sizeof all && recv(ends[1], all, sizeof all, 0) == sizeof all);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &few, sizeof few) == 0);
    FAILS(send(ends[0], all, 2 * few - 31, 0), EMSGSIZE);
    close(ends[0]), close(ends[1]);
    ends[0] = socket(AF_INET, SOCK_DGRAM, 0), at.sin_port = 0, len = sizeof at;
    CHECK(bind(ends[0], (void *)&at, sizeof at) == 0 && getsockname(ends[0], (void *)&at, &len) == 0 && connect(ends[0], (void *)&at, len) == 0);
    FAILS(send(ends[0], all, 65508, 0), EMSGSIZE);
    CHECK(send(ends[0], all, 65507, 0) == 65507);
    // Whoever is connected to nobody hears that nobody was there only if it wants to.
    ends[1] = socket(AF_INET, SOCK_DGRAM, 0), close(ends[0]);
    CHECK(sendto(ends[1], all, 1, 0, (void *)&at, sizeof at) == 1 && ready(ends[1]) == POLLOUT && sendto(ends[1], all, 1, 0, (void *)&at, sizeof at) == 1);
    CHECK(setsockopt(ends[1], IPPROTO_IP, IP_RECVERR, &few, sizeof few) == 0 && sendto(ends[1], all, 1, 0, (void *)&at, sizeof at) == 1);
    CHECK(UNTIL(ready(ends[1]) & POLLERR));
    FAILS(recv(ends[1], all, 1, MSG_DONTWAIT), ECONNREFUSED);
    FAILS(recv(ends[1], all, 1, MSG_DONTWAIT), EAGAIN);
    close(ends[1]);
}

// Connections at their ends.
static void ends(void) {
    char some[16];
    int ends[2], listens, word;
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    network(ends, &listens);
    CHECK(write(ends[0], "hello", 5) == 5 && recvfrom(ends[1], some, sizeof some, 0, (void *)&from, &len) == 5 && len == 0);
    // What was there before nobody hears any more is heard.
    CHECK(write(ends[0], "abc", 3) == 3 && UNTIL(ioctl(ends[1], FIONREAD, &word) == 0 && word == 3));
    CHECK(shutdown(ends[1], SHUT_RD) == 0 && recv(ends[1], some, sizeof some, MSG_DONTWAIT) == 3 && recv(ends[1], some, sizeof some, MSG_DONTWAIT) == 0);
    FAILS(ioctl(listens, FIONREAD, &word), EINVAL);
    close(ends[0]), close(ends[1]);
    // Who cannot have one open more leaves it where it waits.
    struct rlimit limit, old;
    len = sizeof from;
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    int on = 1, kept = 0;
    CHECK(setsockopt(listens, SOL_SOCKET, SO_KEEPALIVE, &on, 4) == 0 && setsockopt(listens, IPPROTO_TCP, TCP_NODELAY, &on, 4) == 0);
    CHECK(getsockname(listens, (void *)&from, &len) == 0 && connect(ends[0], (void *)&from, len) == 0 && getrlimit(RLIMIT_NOFILE, &old) == 0);
    limit = old, limit.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &limit);
    FAILS(accept(listens, 0, 0), EMFILE);
    setrlimit(RLIMIT_NOFILE, &old);
    CHECK((ends[1] = accept(listens, 0, 0)) >= 0);
    // It is as who listens.
    len = 4;
    CHECK(getsockopt(ends[1], SOL_SOCKET, SO_KEEPALIVE, &kept, &len) == 0 && kept == 1 && getsockopt(ends[1], IPPROTO_TCP, TCP_NODELAY, &kept, &len) == 0 && kept == 1);
    len = sizeof(struct sockaddr_in);
    close(ends[0]), close(ends[1]);
    // Who does not wait to be taken in is told later.
    int many[6];
    for (int i = 0; i < 6; i++) {
        many[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        FAILS(connect(many[i], (void *)&from, len), EINPROGRESS);
    }
    for (int i = 0; i < 6; i++) close(many[i]);
    close(listens);
    // As many wait as was said, and one.
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "\0kept"};
    listens = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listens, (void *)&at, sizeof at) == 0 && listen(listens, 0) == 0);
    for (int i = 0; i < 3; i++) many[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(setsockopt(listens, SOL_SOCKET, SO_PASSCRED, &on, 4) == 0);
    CHECK(connect(many[0], (void *)&at, sizeof at) == 0);
    FAILS(connect(many[1], (void *)&at, sizeof at), EAGAIN);
    CHECK(listen(listens, -1) == 0 && connect(many[1], (void *)&at, sizeof at) == 0 && connect(many[2], (void *)&at, sizeof at) == 0);
    len = sizeof from;
    CHECK((ends[0] = accept(listens, 0, 0)) >= 0 && write(ends[0], "x", 1) == 1 && recvfrom(many[0], some, 1, 0, (void *)&from, &len) == 1 && len == sizeof at);
    FAILS(sendto(ends[0], "x", 1, 0, (void *)&at, sizeof at), EISCONN);
    len = 4, kept = 0;
    CHECK(getsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &kept, &len) == 0 && kept == 1);
    close(ends[0]), close(listens);
    for (int i = 0; i < 3; i++) close(many[i]);
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0 && write(ends[0], "abc", 3) == 3);
    len = sizeof from;
    CHECK(recvfrom(ends[1], some, sizeof some, 0, (void *)&from, &len) == 3 && len == 0);
    int alone = socket(AF_UNIX, SOCK_STREAM, 0), five = 5, got = 0;
    FAILS(recv(alone, some, 1, MSG_DONTWAIT), EINVAL);
    FAILS(sendto(alone, "x", 1, 0, (void *)&at, sizeof at), EOPNOTSUPP);
    FAILS(setsockopt(alone, IPPROTO_TCP, TCP_NODELAY, &five, 4), EOPNOTSUPP);
    len = 4;
    CHECK(setsockopt(alone, SOL_SOCKET, SO_KEEPALIVE, &five, 4) == 0 && getsockopt(alone, SOL_SOCKET, SO_KEEPALIVE, &got, &len) == 0 && got == 1);
    FAILS(setsockopt(alone, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 1000000}, sizeof(struct timeval)), EDOM);
    len = -1;
    FAILS(getsockopt(alone, SOL_SOCKET, SO_TYPE, &got, &len), EINVAL);
    close(alone), close(ends[0]), close(ends[1]);
}

// What TCP says a connection does: 1 all of it, 5 it has said all, 7 nothing, 8 it has heard all.
static int does_what(int end) {
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    return getsockopt(end, IPPROTO_TCP, TCP_INFO, &info, &len) ? -1 : info.tcpi_state;
}

// Connections that are broken off: bytes that came before are read, then it is said once, and it leads nowhere any more.
static void breaks(void) {
    char some[16];
    int ends[2], listens, error, status = -1;
    struct sockaddr_storage to;
    socklen_t len;
    for (int bytes = 0; bytes < 2; bytes++) {
        network(ends, &listens);
        CHECK(does_what(listens) == 10 && does_what(ends[0]) == 1);
        CHECK(setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)) == 0);
        CHECK(!bytes || write(ends[1], "bytes", 5) == 5);
        close(ends[1]);
        CHECK(UNTIL(does_what(ends[0]) == 7) && ready(ends[0]) == (POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP));
        len = sizeof to;
        FAILS(getpeername(ends[0], (void *)&to, &len), ENOTCONN);
        FAILS(shutdown(ends[0], SHUT_RD), ENOTCONN);
        CHECK(getsockname(ends[0], (void *)&to, &len) == 0);
        CHECK(!bytes || recv(ends[0], some, sizeof some, 0) == 5);
        FAILS(recv(ends[0], some, sizeof some, 0), ECONNRESET);
        CHECK(recv(ends[0], some, sizeof some, 0) == 0 && ready(ends[0]) == (POLLIN | POLLOUT | POLLHUP | POLLRDHUP));
        FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
        close(ends[0]), close(listens);
    }
    // Whoever has said all and hears nothing answers what is sent with a break; so does nobody.
    for (int closes = 0; closes < 2; closes++) {
        for (int asks = 0; asks < 2; asks++) {
            network(ends, &listens);
            CHECK(shutdown(ends[1], SHUT_RDWR) == 0);
            if (closes) close(ends[1]);
            CHECK(UNTIL(does_what(ends[0]) == 8 && (closes || does_what(ends[1]) == 5)));
            pid_t pid = fork();
            if (!pid) {
                // Whoever waits for nothing else hears of it too.
                struct pollfd one = {ends[0], 0, 0};
                _exit(poll(&one, 1, LONG) != 1 || one.revents != (POLLERR | POLLHUP));
            }
            CHECK(UNTIL(state_of(pid) == 'S') && send(ends[0], "x", 1, MSG_NOSIGNAL) == 1 && waitpid(pid, &status, 0) == pid && status == 0);
            CHECK(UNTIL(does_what(ends[0]) == 7) && ready(ends[0]) == (POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP));
            // It has heard all, and goes on to hear just that.
            CHECK(recv(ends[0], some, sizeof some, 0) == 0);
            len = sizeof error, error = 0;
            if (asks) CHECK(getsockopt(ends[0], SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == EPIPE);
            if (!asks) FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
            CHECK(ready(ends[0]) == (POLLIN | POLLOUT | POLLHUP | POLLRDHUP));
            FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
            close(ends[0]), close(listens);
            if (!closes) close(ends[1]);
        }
    }
    // Whoever only hears nothing takes what is sent.
    network(ends, &listens);
    CHECK(shutdown(ends[1], SHUT_RD) == 0 && send(ends[0], "x", 1, MSG_NOSIGNAL) == 1 && send(ends[0], "x", 1, MSG_NOSIGNAL) == 1 && does_what(ends[0]) == 1);
    close(ends[0]), close(ends[1]), close(listens);
    // Both have said all.
    network(ends, &listens);
    CHECK(shutdown(ends[0], SHUT_WR) == 0 && UNTIL(does_what(ends[1]) == 8 && does_what(ends[0]) == 5) && shutdown(ends[1], SHUT_WR) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(UNTIL(does_what(ends[i]) == 7));
        len = sizeof to;
        FAILS(getpeername(ends[i], (void *)&to, &len), ENOTCONN);
        FAILS(shutdown(ends[i], SHUT_WR), ENOTCONN);
        close(ends[i]);
    }
    close(listens);
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
    static const struct part parts[] = {{"signals", signals}, {"bytes", bytes}, {"locks", locks}, {"slashes", slashes}, {"named", named}, {"texts", texts}, {"along", along}, {"rooms", rooms}, {"ends", ends}, {"breaks", breaks}, {"waiters", waiters}, {"seldom", seldom}, {"rights", rights}};
    PLAY(parts, count, arguments);
    return 0;
}
