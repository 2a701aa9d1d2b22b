// What calls say exactly: of bytes that went before the way was closed, of places that no number says, of rights that were given up, of packets of others, of
// who is at the other end, of children that have ended, of what there is to read. A line for each part with how many checks failed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "checks.h"
#include "until.h"

static volatile int heard;
static void hear(int signal) { heard += signal > 0; }

// What a child does says how many of its checks failed.
#define CHILD(...)                                                                      \
    ({                                                                                  \
        int status_ = -1;                                                               \
        pid_t child_ = fork();                                                          \
        if (!child_) {                                                                  \
            wrong = 0;                                                                  \
            __VA_ARGS__;                                                                \
            fflush(stderr);                                                             \
            _exit(wrong);                                                               \
        }                                                                               \
        CHECK(waitpid(child_, &status_, 0) == child_ && status_ == 0);                  \
    })

// Who has written some of it when the last reader goes hears of that by a signal too.
static void ways(void) {
    static char much[1 << 20];
    int pipes[2], status = -1;
    CHECK(pipe(pipes) == 0);
    FAILS(pread(pipes[1], much, 1, 0), ESPIPE);
    FAILS(pwrite(pipes[0], much, 1, 0), ESPIPE);
    int room = fcntl(pipes[1], F_GETPIPE_SZ);
    pid_t child = fork();
    if (!child) {
        wrong = 0;
        close(pipes[0]), signal(SIGPIPE, hear);
        CHECK(write(pipes[1], much, sizeof much) == room && heard == 1);
        FAILS(write(pipes[1], much, 1), EPIPE);
        CHECK(heard == 2);
        fflush(stderr);
        _exit(wrong);
    }
    CHECK(UNTIL(state_of(child) == 'S'));
    close(pipes[0]), close(pipes[1]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void places(void) {
    char name[] = "/tmp/exact-XXXXXX";
    int file = mkstemp(name), null = open("/dev/null", O_RDWR), counter = eventfd(0, EFD_NONBLOCK);
    const long last = 0x7fffffffffffffff;
    FAILS(pwrite(file, "hello", 5, last), EINVAL);
    FAILS(pread(file, name, 5, last - 2), EINVAL);
    CHECK(write(file, "hello", 5) == 5 && pwrite(null, "x", 1, 100) == 1 && pread(null, name, 0, 100) == 0);
    off_t at = last - 1;
    FAILS(sendfile(null, file, 0, -1), EINVAL);
    FAILS(sendfile(null, file, &at, 3), EINVAL);
    FAILS(open("/tmp", O_RDONLY | O_TRUNC), EISDIR);
    // Two numbers are two writes.
    unsigned long numbers[] = {3, 4}, sum = 0;
    struct iovec both[] = {{numbers, 8}, {numbers + 1, 8}};
    CHECK(writev(counter, both, 2) == 16 && read(counter, &sum, 8) == 8 && sum == 7);
    // Where nothing is to be set nothing need be.
    const struct timespec none[] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}}, one[] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
    CHECK(utimensat(AT_FDCWD, "/tmp/exact/none", none, 0) == 0);
    FAILS(utimensat(AT_FDCWD, "/tmp/exact/none", one, 0), ENOENT);
    unlink(name), close(file), close(null), close(counter);
    // As many names as there is room for that can be written.
    char *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int directory = open("/proc/self", O_RDONLY | O_DIRECTORY);
    CHECK(munmap(pages + 4096, 4096) == 0);
    long some = syscall(SYS_getdents64, directory, pages + 4096 - 100, 4096), all = some;
    CHECK(some > 0 && some <= 100);
    for (; some > 0; all += some) some = syscall(SYS_getdents64, directory, pages, 4096);
    lseek(directory, 0, SEEK_SET);
    for (; (some = syscall(SYS_getdents64, directory, pages, 4096)) > 0;) all -= some;
    CHECK(some == 0 && all == 0);
    lseek(directory, 0, SEEK_SET);
    FAILS(syscall(SYS_getdents64, directory, pages, 0x80000000), EINVAL);
    close(directory), munmap(pages, 4096);
}

static struct __user_cap_data_struct rights_now[2];
static struct __user_cap_header_struct own_rights = {_LINUX_CAPABILITY_VERSION_3, 0};

// Gives one up.
static void without(int right) {
    CHECK(syscall(SYS_capget, &own_rights, rights_now) == 0);
    rights_now[right / 32].effective &= ~(1U << right % 32);
    CHECK(syscall(SYS_capset, &own_rights, rights_now) == 0);
}

static void rights(void) {
    char directory[] = "/tmp/exact-XXXXXX", value[8], names[64];
    if (geteuid()) return;
    CHECK(mkdtemp(directory) != 0 && chdir(directory) == 0 && chmod(".", 0777) == 0);
    int file = open("file", O_CREAT | O_RDWR, 0644);
    CHILD({
        CHECK(fchmod(file, 0) == 0 && mkdir("closed", 0) == 0);
        CHECK(access("file", R_OK | W_OK) == 0 && open("file", O_RDWR) >= 0 && open("closed/new", O_CREAT | O_RDWR, 0600) >= 0);
        without(CAP_DAC_OVERRIDE);
        FAILS(open("file", O_RDWR), EACCES);
        FAILS(unlink("closed/new"), EACCES);
        CHECK(open("file", O_RDONLY) >= 0 && open("closed", O_RDONLY) >= 0 && access("file", W_OK) == 0);
        without(CAP_DAC_READ_SEARCH);
        FAILS(chroot("closed"), EACCES);
        without(CAP_SYS_CHROOT);
        FAILS(chroot("."), EPERM);
        FAILS(open("file", O_RDONLY), EACCES);
        FAILS(open("closed/new", O_RDONLY), EACCES);
        CHECK(chown("file", 1234, 1234) == 0);
        without(CAP_FOWNER);
        FAILS(chmod("file", 0600), EPERM);
        without(CAP_CHOWN);
        FAILS(chown("file", 1, 1), EPERM);
    });
    CHECK(unlink("closed/new") == 0 && rmdir("closed") == 0 && fchmod(file, 0644) == 0 && fchown(file, 0, 0) == 0);
    // Attributes are for whoever may use the file; some of them for root alone.
    if (fsetxattr(file, "user.a", "x", 1, 0) == 0 && fsetxattr(file, "trusted.a", "y", 1, 0) == 0) {
        CHECK(listxattr("file", names, 64) == 17);
        CHILD({
            CHECK(setresuid(1234, 1234, 1234) == 0 && getxattr("file", "user.a", value, 8) == 1 && listxattr("file", names, 64) == 7);
            FAILS(setxattr("file", "user.a", "z", 1, 0), EACCES);
            FAILS(removexattr("file", "user.a"), EACCES);
            FAILS(getxattr("file", "trusted.a", value, 8), ENODATA);
            FAILS(setxattr("file", "trusted.a", "z", 1, 0), EPERM);
            FAILS(setxattr("file", "security.a", "z", 1, 0), EPERM);
        });
        CHECK(fchmod(file, 0600) == 0);
        CHILD({
            CHECK(setresuid(1234, 1234, 1234) == 0);
            FAILS(getxattr("file", "user.a", value, 8), EACCES);
        });
    }
    CHECK(unlink("file") == 0 && chdir("/") == 0 && rmdir(directory) == 0);
    close(file);
}

static int packets_at(struct sockaddr_in *at) {
    socklen_t len = sizeof *at;
    int made = socket(AF_INET, SOCK_DGRAM, 0);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    CHECK(bind(made, (void *)at, len) == 0 && getsockname(made, (void *)at, &len) == 0);
    return made;
}

static struct sockaddr_in own_of(int socket) {
    struct sockaddr_in own = {0};
    socklen_t len = sizeof own;
    CHECK(getsockname(socket, (void *)&own, &len) == 0);
    return own;
}

static int events(int socket) {
    struct pollfd one = {socket, POLLIN | POLLOUT | POLLRDHUP, 0};
    return poll(&one, 1, 0) < 0 ? -1 : one.revents;
}

// Who talks to one hears nothing of others.
static void packets(void) {
    struct sockaddr_in where[3];
    int all[3], ends[2], pair[2];
    char byte;
    for (int i = 0; i < 3; i++) all[i] = packets_at(where + i);
    CHECK(sendto(all[2], "a", 1, 0, (void *)where, sizeof *where) == 1 && connect(all[0], (void *)(where + 1), sizeof *where) == 0);
    CHECK(sendto(all[2], "b", 1, 0, (void *)where, sizeof *where) == 1 && sendto(all[1], "c", 1, 0, (void *)where, sizeof *where) == 1);
    // What had come before is there.
    CHECK(recv(all[0], &byte, 1, 0) == 1 && byte == 'a' && recv(all[0], &byte, 1, 0) == 1 && byte == 'c');
    FAILS(recv(all[0], &byte, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(connect(all[0], (void *)(where + 2), sizeof *where) == 0 && sendto(all[2], "d", 1, 0, (void *)where, sizeof *where) == 1);
    CHECK(recv(all[0], &byte, 1, 0) == 1 && byte == 'd');
    CHECK(connect(all[2], (void *)(where + 1), sizeof *where) == 0 && send(all[0], "e", 1, 0) == 1);
    FAILS(recv(all[0], &byte, 1, 0), ECONNREFUSED);
    for (int i = 0; i < 3; i++) close(all[i]);
    // One that is connected hears that nobody is there, whomever it names; a port that there is not is nobody's.
    all[0] = packets_at(where), all[1] = packets_at(where + 1), all[2] = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(connect(all[0], (void *)(where + 1), sizeof *where) == 0 && close(all[1]) == 0 && sendto(all[0], "x", 1, 0, (void *)(where + 1), sizeof *where) == 1);
    FAILS(recv(all[0], &byte, 1, 0), ECONNREFUSED);
    where[2] = where[0], where[2].sin_port = 0;
    FAILS(sendto(all[0], "x", 1, 0, (void *)(where + 2), sizeof *where), EINVAL);
    // Where one is that its program has put nowhere: at a port once it sends, at an address as long as it is connected.
    CHECK(sendto(all[2], "x", 1, 0, (void *)where, sizeof *where) == 1 && own_of(all[2]).sin_addr.s_addr == 0 && own_of(all[2]).sin_port != 0);
    CHECK(connect(all[2], (void *)where, sizeof *where) == 0 && own_of(all[2]).sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    struct sockaddr_in nobody = {.sin_family = AF_UNSPEC};
    CHECK(connect(all[2], (void *)&nobody, sizeof nobody) == 0 && own_of(all[2]).sin_addr.s_addr == 0 && own_of(all[2]).sin_port == 0);
    socklen_t len = sizeof *where;
    CHECK(connect(all[2], (void *)(where + 2), len) == 0);
    FAILS(getpeername(all[2], (void *)&nobody, &len), ENOTCONN);
    int on = 1;
    FAILS(setsockopt(all[2], IPPROTO_IPV6, IPV6_V6ONLY, &on, 4), ENOPROTOOPT);
    close(all[0]), close(all[2]);
    // Raw ones of the Unix kind are packets.
    len = sizeof on;
    CHECK(socketpair(AF_UNIX, SOCK_RAW, 0, pair) == 0 && getsockopt(pair[0], SOL_SOCKET, SO_TYPE, &on, &len) == 0 && on == SOCK_DGRAM);
    close(pair[0]), close(pair[1]);
    // Nobody gets what is sent to one that hears no more; one that has closed both ways is hung up.
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && shutdown(pair[0], SHUT_RD) == 0);
    FAILS(send(pair[1], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(events(pair[0]) == (POLLIN | POLLOUT | POLLRDHUP) && shutdown(pair[0], SHUT_WR) == 0 && events(pair[0]) == (POLLIN | POLLOUT | POLLRDHUP | POLLHUP));
    close(pair[0]);
    FAILS(send(pair[1], "x", 1, MSG_NOSIGNAL), ECONNREFUSED);
    close(pair[1]);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    // A time before it begins is over.
    struct timeval before = {-1, 0};
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &before, sizeof before) == 0);
    FAILS(recv(ends[0], &byte, 1, 0), EAGAIN);
    close(ends[0]), close(ends[1]);
}

// Bytes of a connection that are cut go nowhere.
static void cut(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    char into[8] = "........";
    int listens = socket(AF_INET, SOCK_STREAM, 0), end = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listens, (void *)&at, len) == 0 && listen(listens, 1) == 0 && getsockname(listens, (void *)&at, &len) == 0 && connect(end, (void *)&at, len) == 0);
    int other = accept(listens, 0, 0);
    CHECK(send(end, "hello", 5, 0) == 5 && recv(other, into, 3, MSG_TRUNC) == 3 && !memcmp(into, "........", 8));
    CHECK(recv(other, into, 8, 0) == 2 && !memcmp(into, "lo......", 8) && send(end, "x", 1, 0) == 1 && recv(other, 0, 1, MSG_TRUNC) == 1);
    close(listens), close(end), close(other);
}

// Reads once, and says who has sent that.
static long reads(int socket, struct ucred *who) {
    char some[64], control[64];
    struct iovec bytes = {some, sizeof some};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    long len = recvmsg(socket, &message, MSG_DONTWAIT);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head) memcpy(who, CMSG_DATA(head), sizeof *who);
    return len;
}

static struct ucred other_end(int socket) {
    struct ucred who = {-1, -1, -1};
    socklen_t len = sizeof who;
    CHECK(getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && len == sizeof who);
    return who;
}

// Who has sent something is noted if somebody asks for that, and what one has sent does not come with what another has.
static void senders(void) {
    int ends[2], on = 1, status = -1;
    struct ucred who = {-1, -1, -1};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && write(ends[0], "ab", 2) == 2 && setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, 4) == 0);
    CHECK(write(ends[0], "cde", 3) == 3 && reads(ends[1], &who) == 2 && who.pid == 0 && who.uid == 65534 && who.gid == 65534);
    CHECK(reads(ends[1], &who) == 3 && who.pid == getpid() && who.uid == getuid());
    pid_t child = fork();
    if (!child) _exit(write(ends[0], "f", 1) != 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0 && write(ends[0], "g", 1) == 1);
    CHECK(reads(ends[1], &who) == 1 && who.pid == child && reads(ends[1], &who) == 1 && who.pid == getpid());
    char control[CMSG_SPACE(sizeof who)] = {0}, byte = 'x';
    struct iovec bytes = {&byte, 1};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_CREDENTIALS, head->cmsg_len = CMSG_LEN(sizeof who);
    who = (struct ucred){child, geteuid(), getegid()};
    memcpy(CMSG_DATA(head), &who, sizeof who);
    if (geteuid() == 0) FAILS(sendmsg(ends[0], &message, 0), ESRCH);
    close(ends[0]), close(ends[1]);
    // The other end is who it was when it connected or began to listen, whoever it is now.
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    socklen_t len = sizeof(sa_family_t);
    int listens = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listens, (void *)&at, len) == 0 && (len = sizeof at, getsockname(listens, (void *)&at, &len)) == 0);
    CHECK(other_end(listens).pid == 0 && listen(listens, 1) == 0 && other_end(listens).pid == getpid());
    child = fork();
    if (!child) {
        if (geteuid() == 0 && setresuid(4321, 4321, 4321)) _exit(1);
        int end = socket(AF_UNIX, SOCK_STREAM, 0);
        _exit(connect(end, (void *)&at, len) || other_end(end).pid != getppid());
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0 && (ends[0] = accept(listens, 0, 0)) >= 0);
    who = other_end(ends[0]);
    CHECK(who.pid == child && who.uid == (geteuid() ? getuid() : 4321));
    close(ends[0]), close(listens);
}

static int stays(void *pipes) {
    char byte;
    return read(*(int *)pipes, &byte, 1) != 1;
}

// Of who has ended there is no news but that; who has threads shares with them.
static void children(void) {
    siginfo_t info;
    static char stack[65536] __attribute__((aligned(16)));
    int pipes[2], status;
    pid_t child = fork();
    if (!child) _exit(3);
    CHECK(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0 && info.si_status == 3);
    FAILS(waitid(P_PID, child, &info, WSTOPPED), ECHILD);
    FAILS(waitid(P_PID, child, &info, WCONTINUED | WNOHANG), ECHILD);
    CHECK(waitpid(child, &status, 0) == child && pipe(pipes) == 0);
    // Whoever is not to wait for a process that is open hears so.
    child = fork();
    if (!child) _exit(stays(pipes));
    int process = syscall(SYS_pidfd_open, child, O_NONBLOCK);
    FAILS(waitid(P_PIDFD, process, &info, WEXITED), EAGAIN);
    CHECK(waitid(P_PIDFD, process, &info, WEXITED | WNOHANG) == 0 && write(pipes[1], "x", 1) == 1 && fcntl(process, F_SETFL, 0) == 0);
    CHECK(waitid(P_PIDFD, process, &info, WEXITED) == 0 && info.si_pid == child && close(process) == 0);
    close(pipes[0]), close(pipes[1]);
    sigset_t one;
    sigemptyset(&one), sigaddset(&one, SIGUSR1), sigprocmask(SIG_BLOCK, &one, 0);
    siginfo_t with = {.si_signo = SIGUSR1, .si_code = SI_QUEUE, .si_errno = 77};
    CHECK(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &with) == 0 && sigwaitinfo(&one, &info) == SIGUSR1 && info.si_errno == 77);
    sigprocmask(SIG_UNBLOCK, &one, 0);
    CHILD({
        CHECK(pipe(pipes) == 0 && unshare(CLONE_VM | CLONE_SIGHAND | CLONE_THREAD) == 0);
        int thread = clone(stays, stack + sizeof stack, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD, pipes);
        CHECK(thread > 0 && kill(thread, 0) == 0 && getpgid(thread) == getpgid(0) && getsid(thread) == getsid(0));
        FAILS(setpgid(thread, 0), EINVAL);
        CHECK(syscall(SYS_pidfd_open, thread, 0) == -1);
        char from = 'f', to = 't';
        struct iovec own = {&to, 1}, other = {&from, 1};
        CHECK(process_vm_readv(thread, &own, 1, &other, 1, 0) == 1 && to == 'f');
        FAILS(unshare(CLONE_THREAD), EINVAL);
        FAILS(unshare(CLONE_VM), EINVAL);
        CHECK(unshare(CLONE_FS) == 0 && write(pipes[1], "x", 1) == 1);
    });
}

// What there is to read comes, and is not waited for by who does not; a word of 32 bits has no more.
static void words(void) {
    static char much[1 << 17], back[1 << 17];
    int pipes[2], pair[2], from = memfd_create("from", 0), to = memfd_create("to", 0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && timer >= 0);
    memset(much, 'x', sizeof much);
    CHECK(fcntl(pipes[0], F_SETPIPE_SZ, sizeof much) == sizeof much && write(pipes[1], much, sizeof much) == sizeof much);
    CHECK(read(pipes[0], back, sizeof back) == sizeof back && memcmp(much, back, sizeof back) == 0);
    CHECK(write(pipes[1], much, 70000) == 70000 && read(pipes[0], back, sizeof back) == 70000);
    // Some Linux knows nothing of that where it is no file.
    struct iovec place = {back, 5};
    CHECK(preadv2(pipes[0], &place, 1, -1, RWF_NOWAIT) == -1 && (errno == EAGAIN || errno == EOPNOTSUPP));
    CHECK(preadv2(pair[0], &place, 1, -1, RWF_NOWAIT) == -1 && (errno == EAGAIN || errno == EOPNOTSUPP));
    CHECK(preadv2(timer, &place, 1, -1, RWF_NOWAIT) == -1);
    long above = 5l << 32;
    off_t at = 3;
    CHECK(write(from, "foobarbaz", 9) == 9 && syscall(SYS_copy_file_range, from, &at, to, 0, 3l, above) == 3 && at == 6);
    CHECK(pread(to, back, 9, 0) == 3 && memcmp(back, "bar", 3) == 0);
    CHECK(syscall(SYS_splice, from, &at, pipes[1], 0, 3l, above) == 3 && at == 9 && read(pipes[0], back, 9) == 3 && memcmp(back, "baz", 3) == 0);
    CHECK(syscall(SYS_preadv2, from, &place, 1l, 0l, 0l, above) == 5 && syscall(SYS_pwritev2, to, &place, 1l, 0l, 0l, above) == 5);
    for (int i = 0; i < 2; i++) close(pipes[i]), close(pair[i]);
    close(from), close(to), close(timer);
}

// Whether this is a Linux before 6.10.
static int is_old(void) {
    struct utsname name;
    int version = 0, part = 0;
    return uname(&name) == 0 && sscanf(name.release, "%d.%d", &version, &part) == 2 && version * 100 + part < 610;
}

// The next that was told of what is watched; 0: nothing.
static unsigned told(int watches) {
    struct inotify_event event;
    return read(watches, &event, sizeof event) == sizeof event ? event.mask : 0;
}

// Whoever watches hears of an open file before it is cut, and of a time as of what it is the time of.
static void watched(void) {
    char name[] = "watched.XXXXXX";
    int file = mkstemp(name), watches = inotify_init1(IN_NONBLOCK);
    CHECK(write(file, "words", 5) == 5 && inotify_add_watch(watches, name, IN_ALL_EVENTS) > 0);
    struct timespec read_at[2] = {{7, 7}, {0, UTIME_OMIT}}, written_at[2] = {{0, UTIME_OMIT}, {8, 8}}, both[2] = {{7, 7}, {8, 8}};
    CHECK(futimens(file, read_at) == 0 && told(watches) == IN_ACCESS);
    CHECK(futimens(file, written_at) == 0 && told(watches) == IN_MODIFY);
    CHECK(futimens(file, both) == 0 && told(watches) == IN_ATTRIB && told(watches) == 0);
    int again = open(name, O_WRONLY | O_TRUNC);
    unsigned first = told(watches), second = told(watches);
    // Before 6.10 Linux told of the cut first.
    CHECK(first == IN_OPEN ? second == IN_MODIFY : second == IN_OPEN && first == IN_MODIFY && is_old());
    CHECK(told(watches) == 0 && close(again) == 0 && told(watches) == IN_CLOSE_WRITE);
    close(file), close(watches), unlink(name);
}

// A pipe that was opened by its name is the file of that name.
static void fifos(void) {
    char bytes[4];
    struct stat file, open_one;
    CHECK(mkfifo("exact.fifo", 0640) == 0 && chmod("exact.fifo", 0640) == 0 && stat("exact.fifo", &file) == 0);
    int watches = inotify_init1(IN_NONBLOCK);
    CHECK(inotify_add_watch(watches, "exact.fifo", IN_ALL_EVENTS) > 0);
    for (int both = 0; both < 2; both++) {
        int end = open("exact.fifo", (both ? O_RDWR : O_RDONLY) | O_NONBLOCK);
        CHECK(told(watches) == IN_OPEN && fstat(end, &open_one) == 0 && open_one.st_ino == file.st_ino && open_one.st_dev == file.st_dev);
        CHECK(open_one.st_mode == (S_IFIFO | 0640) && open_one.st_nlink == 1 && fchmod(end, 0600) == 0 && stat("exact.fifo", &open_one) == 0);
        CHECK(open_one.st_mode == (S_IFIFO | 0600) && fchmod(end, 0640) == 0 && told(watches) == IN_ATTRIB);
        struct timespec times[2] = {{5, 0}, {6, 0}};
        CHECK(futimens(end, times) == 0 && stat("exact.fifo", &open_one) == 0 && open_one.st_atime == 5 && open_one.st_mtime == 6 && told(watches) == IN_ATTRIB);
        if (both) {
            CHECK(write(end, "abc", 3) == 3 && told(watches) == IN_MODIFY && read(end, bytes, 4) == 3 && told(watches) == IN_ACCESS);
            CHECK(fstat(end, &open_one) == 0 && open_one.st_atime > 6 && open_one.st_mtime > 6);
        }
        CHECK(posix_fadvise(end, 0, 0, POSIX_FADV_NORMAL) == ESPIPE && told(watches) == 0);
        CHECK(close(end) == 0 && told(watches) == (both ? IN_CLOSE_WRITE : IN_CLOSE_NOWRITE));
    }
    close(watches), unlink("exact.fifo");
}

// When a file was made stays, whatever is said of its times.
static void born(void) {
    char name[] = "born.XXXXXX";
    int file = mkstemp(name);
    struct statx before, after;
    struct timespec early[2] = {{5, 0}, {6, 0}}, late[2] = {{4000000000, 0}, {4000000001, 0}};
    CHECK(statx(file, "", AT_EMPTY_PATH, STATX_ALL, &before) == 0 && futimens(file, early) == 0);
    CHECK(statx(file, "", AT_EMPTY_PATH, STATX_ALL, &after) == 0 && after.stx_mtime.tv_sec == 6);
    CHECK(!memcmp(&before.stx_btime, &after.stx_btime, sizeof before.stx_btime) && futimens(file, late) == 0);
    CHECK(statx(file, "", AT_EMPTY_PATH, STATX_ALL, &after) == 0 && !memcmp(&before.stx_btime, &after.stx_btime, sizeof before.stx_btime));
    close(file), unlink(name);
}

// Where a process is may have a longer path than any call takes.
static void far(void) {
    enum { DEEP = 20, LONG = 250 };
    char name[LONG + 1], small[8], whole[DEEP * LONG + 4096];
    memset(name, 'f', LONG), name[LONG] = 0;
    int start = open(".", O_RDONLY);
    for (int i = 0; i < DEEP; i++) CHECK(mkdir(name, 0700) == 0 && chdir(name) == 0);
    FAILS(syscall(SYS_getcwd, whole, sizeof whole), ENAMETOOLONG);
    FAILS(syscall(SYS_getcwd, small, sizeof small), ENAMETOOLONG);
    for (int i = 0; i < DEEP; i++) CHECK(chdir("..") == 0 && rmdir(name) == 0);
    FAILS(syscall(SYS_getcwd, small, 1), ERANGE);
    CHECK(fchdir(start) == 0 && close(start) == 0);
}

static volatile int deep;
static void falls(int signal) {
    if (deep++ < 1000) raise(signal);
}

// Handlers stay on their stack, or do not run.
static void stacks(void) {
    enum { BYTES = 65536 };
    int status = 0;
    pid_t child = fork();
    if (!child) {
        char *all = mmap(0, 16 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        stack_t stack = {.ss_sp = all + 15 * BYTES, .ss_size = BYTES};
        struct sigaction action = {.sa_handler = falls, .sa_flags = SA_ONSTACK | SA_NODEFER};
        if (sigaltstack(&stack, 0) || sigaction(SIGUSR1, &action, 0)) _exit(1);
        raise(SIGUSR1);
        _exit(2);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

// Whether a file below /proc/self has these bytes.
static int has(const char *name, const char *bytes, int len) {
    char path[32], text[256];
    sprintf(path, "/proc/self/%s", name);
    int file = open(path, O_RDONLY), got = read(file, text, sizeof text);
    return close(file) == 0 && got == len && !memcmp(text, bytes, len);
}

// A process has written over its arguments, which others see, and further: then all up to a zero is its title.
static void title(int count, char **arguments, char **environment) {
    wrong = 0;
    char *start = arguments[0], own[64];
    CHECK(count == 3 && environment[0] == start + 14 && has("cmdline", "exact\0title\0x\0", 14) && has("environ", "A=b\0CD=ef\0", 10));
    arguments[1][0] = 'T';
    CHECK(has("cmdline", "exact\0Title\0x\0", 14));
    memset(start, 0, 14), strcpy(start, "new");
    CHECK(has("cmdline", "new\0\0\0\0\0\0\0\0\0\0\0", 14));
    memset(start, 'q', 14);
    CHECK(has("cmdline", "qqqqqqqqqqqqqqA=b\0", 18));
    memset(start, 'q', 20), start[20] = 0;
    CHECK(has("cmdline", "qqqqqqqqqqqqqqqqqqqq\0", 21) && has("environ", "qqqqqq\0ef\0", 10));
    memset(start, 'q', 24), memset(own, 'q', 24);
    CHECK(has("cmdline", own, 24));
    start[1] = 0;
    CHECK(has("cmdline", "q\0", 2));
    CHILD(strcpy(start, "child"); CHECK(has("cmdline", "child\0", 6)));
    CHECK(has("cmdline", "q\0", 2));
    fflush(stderr);
    _exit(wrong);
}

static void titles(void) {
    int status = -1;
    pid_t child = fork();
    if (!child) execve("/proc/self/exe", (char *[]){"exact", "title", "x", 0}, (char *[]){"A=b", "CD=ef", 0}), _exit(99);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

// Which file system has a file: who looks for names may be told to stay in one.
static void systems(void) {
    struct stat one, other;
    struct statfs system;
    struct statx more;
    CHECK(stat("/", &one) == 0 && stat("/proc", &other) == 0 && one.st_dev != other.st_dev);
    static const char *const there[] = {"/proc/meminfo", "/proc/sys/kernel", "/proc/sys/kernel/pid_max", "/proc/self/status", "/proc/self/task", "/proc/net/tcp"};
    for (unsigned i = 0; i < sizeof there / sizeof *there; i++) {
        CHECK(stat(there[i], &one) == 0 && one.st_dev == other.st_dev && statfs(there[i], &system) == 0 && system.f_type == 0x9fa0 && system.f_blocks == 0);
    }
    CHECK(lstat("/proc/self", &one) == 0 && one.st_dev == other.st_dev);
    CHECK(statx(AT_FDCWD, "/proc/uptime", 0, STATX_BASIC_STATS, &more) == 0 && makedev(more.stx_dev_major, more.stx_dev_minor) == other.st_dev);
    CHECK(stat("/dev/null", &one) == 0 && one.st_dev != other.st_dev && stat("/tmp", &one) == 0 && one.st_dev != other.st_dev);
}

// Processes that were made so have one table of open files, until one runs another program or asks for its own; the last of them closes what is open.
static void tables(void) {
    int own[2], to_child[2], status = -1, file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    char byte, number[16];
    CHECK(pipe(own) == 0 && pipe(to_child) == 0 && file >= 0);
    pid_t child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
    if (!child) {
        int opened = open("/dev/null", O_RDONLY);
        close(own[0]), dup2(own[1], 99);
        _exit(opened);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && fcntl(WEXITSTATUS(status), F_GETFD) == 0 && close(WEXITSTATUS(status)) == 0);
    FAILS(close(own[0]), EBADF);
    CHECK(close(own[1]) == 0 && fcntl(99, F_GETFD) == 0 && close(99) == 0);
    child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
    if (!child) {
        char *const given[] = {"exact", "tables", "x", (sprintf(number, "%d", file), number), 0};
        execve("/proc/self/exe", given, environ);
        _exit(99);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0 && fcntl(file, F_GETFD) == FD_CLOEXEC);
    child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
    if (!child) _exit(unshare(CLONE_FILES) != 0 || close(file) != 0 || close_range(3, ~0U, 0) != 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0 && fcntl(file, F_GETFD) == FD_CLOEXEC);
    child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
    if (!child) _exit(syscall(SYS_close_range, 3, ~0U, 2) != 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0 && fcntl(file, F_GETFD) == FD_CLOEXEC);
    CHECK(pipe(own) == 0);
    child = fork();
    if (!child) {
        if (syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0) == 0) close(to_child[1]), read(to_child[0], &byte, 1);
        _exit(0);
    }
    struct pollfd ready = {.fd = own[0], .events = POLLIN};
    CHECK(close(own[1]) == 0 && waitpid(child, &status, 0) == child && status == 0 && poll(&ready, 1, 20) == 0);
    CHECK(write(to_child[1], "x", 1) == 1 && read(own[0], &byte, 1) == 0);
    close(own[0]), close(to_child[0]), close(to_child[1]), close(file);
}

static int score_with(const char *adjust) {
    char said[16] = "";
    int file = open("/proc/self/oom_score_adj", O_WRONLY), length = strlen(adjust);
    CHECK(file >= 0 && write(file, adjust, length) == length && close(file) == 0);
    file = open("/proc/self/oom_score", O_RDONLY);
    CHECK(file >= 0 && read(file, said, sizeof said - 1) > 0 && close(file) == 0);
    return atoi(said);
}

// What speaks against a process when memory is short: it has little.
static void scores(void) {
    int status = -1;
    pid_t child = fork();
    if (!child) {
        int usual = score_with("0"), more = score_with("500"), most = score_with("1000");
        _exit(!(usual >= 666 && usual < 730 && more >= 990 && more < 1070 && most >= 1320 && most < 1400));
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int count, char **arguments) {
    static const struct part parts[] = {{"ways", ways}, {"places", places}, {"rights", rights}, {"packets", packets}, {"cut", cut}, {"senders", senders}, {"children", children}, {"stacks", stacks}, {"words", words}, {"watched", watched}, {"titles", titles}, {"fifos", fifos}, {"born", born}, {"far", far}, {"systems", systems}, {"tables", tables}, {"scores", scores}};
    if (count == 4) _exit(fcntl(atoi(arguments[3]), F_GETFD) != -1);
    if (count == 3) title(count, arguments, environ);
    PLAY(parts, count, arguments);
    return 0;
}
