// What others may not, and what calls answer to those who ask for too much, or at the wrong place. A line for each part with how many checks failed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "until.h"

enum { NOBODY = 65534 };

static int lock(int file, int how, int kind, long start, long len) {
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    return fcntl(file, how, &lock);
}

// Whether the first lock that is in the way of all is this one.
static int first_is(int file, int kind, long start, long len) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};
    return fcntl(file, F_GETLK, &lock) == 0 && lock.l_type == kind && lock.l_start == start && lock.l_len == len && lock.l_pid == getppid();
}

// A child that holds bytes `start` to `start + 4` and, once it is told, waits for `len` bytes from `from` on; its end says how that went.
static pid_t holder(int file, int *told, long start, long from, long len) {
    char byte;
    pid_t pid = fork();
    if (pid) return pid;
    if (lock(file, F_SETLK, F_WRLCK, start, 5) || write(told[1], "x", 1) != 1 || read(told[2], &byte, 1) != 1) _exit(100);
    alarm(HANGS);
    _exit(lock(file, F_SETLKW, F_WRLCK, from, len) ? errno : 0);
}

static void locks(void) {
    int file = open("locked", O_RDWR | O_CREAT, 0600), status;
    // Those of one kind that touch are one, and the first is told.
    CHECK(lock(file, F_SETLK, F_WRLCK, 20, 5) == 0 && lock(file, F_SETLK, F_RDLCK, 5, 5) == 0 && lock(file, F_SETLK, F_RDLCK, 1, 4) == 0);
    pid_t pid = fork();
    if (!pid) _exit(!first_is(file, F_RDLCK, 1, 9));
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(lock(file, F_SETLK, F_UNLCK, 0, 8) == 0);
    if (!(pid = fork())) _exit(!first_is(file, F_RDLCK, 8, 2));
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(lock(file, F_SETLK, F_UNLCK, 0, 0) == 0);
    // Who lets go may leave two behind that wait for each other.
    int told[3][4];
    for (int i = 0; i < 3; i++) CHECK(pipe(told[i]) == 0 && pipe(told[i] + 2) == 0);
    pid_t all[3];
    for (int i = 0; i < 3; i++) {
        char byte;
        all[i] = holder(file, told[i], 10 * i, i == 1 ? 20 : 0, i == 1 ? 5 : 15);
        CHECK(read(told[i][0], &byte, 1) == 1);
    }
    // It is the third that hears of that, unless a busy machine lets the second come last.
    CHECK(write(told[1][3], "x", 1) == 1 && UNTIL(state_of(all[1]) == 'S') && usleep(10000) == 0);
    CHECK(write(told[2][3], "x", 1) == 1 && UNTIL(state_of(all[2]) == 'S') && usleep(10000) == 0);
    CHECK(kill(all[0], SIGKILL) == 0 && waitpid(all[0], &status, 0) == all[0]);
    int second, third;
    CHECK(waitpid(all[2], &third, 0) == all[2] && waitpid(all[1], &second, 0) == all[1]);
    CHECK(second + third == EDEADLK << 8 && (!second || !third));
    close(file), unlink("locked");
}

// What somebody without rights finds in a directory of another's: how many checks failed.
static int as_nobody(pid_t above, mqd_t queue) {
    wrong = 0;
    struct sched_param first = {1}, usual = {0};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(1023), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct { void *head; } *head;
    cpu_set_t cpus;
    size_t len;
    struct stat is;
    CHECK(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
    FAILS(sched_setscheduler(0, SCHED_FIFO, &first), EPERM);
    FAILS(sched_setparam(above, &usual), EPERM);
    FAILS(sched_setaffinity(above, sizeof cpus, &cpus), EPERM);
    FAILS(setpriority(PRIO_PROCESS, above, 5), EPERM);
    FAILS(setpriority(PRIO_PROCESS, 0, -1), EACCES);
    CHECK(setpriority(PRIO_PROCESS, 0, 1) == 0);
    FAILS(syscall(SYS_get_robust_list, above, &head, &len), EPERM);
    FAILS(bind(socket(AF_INET, SOCK_STREAM, 0), (void *)&at, sizeof at), EACCES);
    FAILS(open("its", O_RDONLY | O_NOATIME), EPERM);
    FAILS(mknod("mine/zero", S_IFCHR | 0666, makedev(1, 5)), EPERM);
    FAILS(mq_unlink("/ruled"), EACCES);
    FAILS(mq_open("/ruled", O_RDONLY), EACCES);
    int other = syscall(SYS_pidfd_open, above, 0);
    FAILS(syscall(SYS_pidfd_getfd, other, queue, 0), EPERM);
    // Of a group in which it is not.
    CHECK(chmod("mine", 02755) == 0 && stat("mine", &is) == 0 && (is.st_mode & 07777) == 0755);
    return wrong;
}

static void others(void) {
    struct mq_attr room = {.mq_maxmsg = 1, .mq_msgsize = 8};
    mqd_t queue = mq_open("/ruled", O_RDWR | O_CREAT, 0600, &room);
    int status, file = open("its", O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct sched_param first = {10}, now;
    struct stat is;
    if (geteuid()) {
        fprintf(stderr, "others: only root can be somebody else\n");
        return;
    }
    CHECK(queue >= 0 && file >= 0 && mkdir("mine", 0700) == 0 && chown("mine", NOBODY, 12345) == 0);
    pid_t me = getpid(), pid = fork();
    if (!pid) {
        if (setgid(NOBODY) || setuid(NOBODY)) _exit(2);
        _exit(as_nobody(me, queue));
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    // What makes devices may be kept from root too; one behind which there is nothing is not opened.
    int made = mknod("none", S_IFBLK | 0600, makedev(250, 7)) == 0;
    CHECK(made || errno == EPERM);
    if (made) {
        CHECK(stat("none", &is) == 0 && S_ISBLK(is.st_mode) && is.st_rdev == makedev(250, 7));
        FAILS(open("none", O_RDONLY), ENXIO);
    }
    FAILS(mknod("bad", S_IFMT, 0), EINVAL);
    // Who has ended is there until somebody has waited, and is served as usual.
    if (sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first) == 0) {
        if (!(pid = fork())) _exit(0);
        CHECK(UNTIL(state_of(pid) == 'Z') && sched_getscheduler(pid) == SCHED_OTHER && sched_getparam(pid, &now) == 0 && now.sched_priority == 0);
        waitpid(pid, &status, 0);
        first.sched_priority = 0, CHECK(sched_setscheduler(0, SCHED_OTHER, &first) == 0);
    }
    struct rlimit limit, most = {RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (setrlimit(RLIMIT_MEMLOCK, &most) == 0) CHECK(getrlimit(RLIMIT_MEMLOCK, &most) == 0 && most.rlim_cur == RLIM_INFINITY);
    setrlimit(RLIMIT_MEMLOCK, &limit);
    mq_close(queue), mq_unlink("/ruled"), close(file), unlink("its"), unlink("none"), rmdir("mine");
}

static void places(void) {
    char some[64] = "";
    struct iovec bytes = {some, sizeof some};
    int ends[2], file = open("long", O_RDWR | O_CREAT, 0644), here = open(".", O_RDONLY | O_DIRECTORY);
    struct stat is;
    CHECK(pipe(ends) == 0);
    FAILS(pread(here, some, 8, 0), EISDIR);
    FAILS(preadv(here, &bytes, 1, 0), EISDIR);
    FAILS(pread(ends[1], some, 8, 0), ESPIPE);
    FAILS(pwritev(ends[0], &bytes, 1, 0), ESPIPE);
    FAILS(pwrite(ends[0], some, 8, -1), EINVAL);
    FAILS(fallocate(file, FALLOC_FL_KEEP_SIZE, 1L << 62, 1L << 62), EFBIG);
    FAILS(fallocate(file, 0, -1, 5), EINVAL);
    FAILS(fallocate(file, 0, 0, 0), EINVAL);
    FAILS(fstatat(here, "long", &is, 9999), EINVAL);
    FAILS(fchmodat(file, "", 0600, 0), ENOENT);
    FAILS(openat(file, "", O_RDONLY), ENOENT);
    FAILS(fchmodat(file, "long", 0600, 0), ENOTDIR);
    // What is open only as a place is no socket either.
    int place = open("long", O_PATH);
    FAILS(accept(place, 0, 0), EBADF);
    close(place), close(here), close(file), close(ends[0]), close(ends[1]), unlink("long");
}

static void *rests(void *told) {
    *(volatile pid_t *)told = gettid();
    for (;;) pause();
}

// A thread makes a child that is to end with it, and ends.
static void *makes(void *child) {
    int ends[2];
    char byte;
    if (pipe(ends)) return 0;
    pid_t pid = fork();
    if (!pid) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && write(ends[1], "x", 1) == 1)
            for (;;) pause();
        _exit(1);
    }
    if (read(ends[0], &byte, 1) == 1) *(pid_t *)child = pid;
    close(ends[0]), close(ends[1]);
    return 0;
}

static volatile int heard;
static void hear(int signal) { heard = signal; }

static void signals(void) {
    volatile pid_t tid = 0;
    pthread_t thread;
    siginfo_t info;
    int status;
    CHECK(signal(SIGUSR1, hear) != SIG_ERR && pthread_create(&thread, 0, rests, (void *)&tid) == 0 && UNTIL(tid));
    // Its process hears what is sent to a thread's number.
    CHECK(kill(tid, SIGUSR1) == 0 && UNTIL(heard == SIGUSR1));
    memset(&info, 0, sizeof info);
    info.si_code = SI_QUEUE, info.si_pid = getpid(), heard = 0;
    CHECK(syscall(SYS_rt_sigqueueinfo, tid, SIGUSR1, &info) == -1 || UNTIL(heard == SIGUSR1));
    // As an open file, a process says whether whoever waits for it waits.
    pid_t pid = fork();
    if (!pid) {
        pause();
        _exit(0);
    }
    int number = syscall(SYS_pidfd_open, pid, O_NONBLOCK);
    FAILS(waitid(P_PIDFD, number, &info, WEXITED), EAGAIN);
    info.si_signo = SIGUSR2;
    FAILS(syscall(SYS_pidfd_send_signal, number, SIGKILL, &info, 0), EINVAL);
    CHECK(kill(pid, SIGKILL) == 0 && UNTIL(waitid(P_PIDFD, number, &info, WEXITED) == 0));
    close(number);
    pthread_t maker;
    pid_t child = 0;
    CHECK(pthread_create(&maker, 0, makes, &child) == 0 && pthread_join(maker, 0) == 0 && child > 0);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == SIGKILL);
    // What is usual for a child is what its parent has.
    CHECK(prctl(PR_SET_TIMERSLACK, 70000) == 0);
    if (!(pid = fork())) _exit(prctl(PR_SET_TIMERSLACK, 1000) || prctl(PR_SET_TIMERSLACK, 0) || prctl(PR_GET_TIMERSLACK) != 70000);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(prctl(PR_SET_TIMERSLACK, 0) == 0 && prctl(PR_GET_TIMERSLACK) == 50000);
}

static void moved(void) {
    static char large[200000] __attribute__((aligned(4096)));
    char some[64];
    struct iovec bytes = {large, sizeof large}, one = {some, 1};
    int ends[2], more[2], event = eventfd(0, 0), zero = open("/dev/zero", O_RDONLY), alone = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(pipe(ends) == 0 && pipe(more) == 0);
    // What has no room is not waited for, once something went.
    alarm(HANGS);
    CHECK(vmsplice(ends[1], &bytes, 1, 0) == 65536);
    FAILS(vmsplice(ends[1], &bytes, 1, SPLICE_F_NONBLOCK), EAGAIN);
    CHECK(read(ends[0], large, sizeof large) == 65536);
    FAILS(vmsplice(event, &one, 1, 0), EBADF);
    unsigned long context = 0;
    FAILS(syscall(SYS_io_setup, -1, &context), EINVAL);
    FAILS(syscall(SYS_io_cancel, 0, 0, 0), EFAULT);
    // That it cannot go there is said before anything is waited for.
    FAILS(splice(ends[0], 0, event, 0, 1, 0), EINVAL);
    CHECK(splice(zero, 0, more[1], 0, 8072, 0) == 8072 && read(more[0], large, sizeof large) == 8072 && !large[8071]);
    // A read that does not wait, whatever the file says: of pipes on newer hosts.
    CHECK(preadv2(ends[0], &one, 1, -1, RWF_NOWAIT) == -1 && (errno == EAGAIN || errno == EOPNOTSUPP));
    // Who is connected to nobody hears nothing, ever.
    FAILS(splice(alone, 0, more[1], 0, 1, 0), EINVAL);
    alarm(0);
    close(ends[0]), close(ends[1]), close(more[0]), close(more[1]), close(event), close(zero), close(alone);
}

static void sockets(void) {
    int packets = socket(AF_INET, SOCK_DGRAM, 0), stream = socket(AF_INET, SOCK_STREAM, 0), value;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct msghdr message = {.msg_name = &at, .msg_namelen = -1};
    socklen_t len = sizeof value;
    FAILS(sendto(packets, "x", 1, MSG_OOB, (void *)&at, sizeof at), EOPNOTSUPP);
    FAILS(sendto(packets, (void *)-1, 8, 0, (void *)&at, sizeof at), EFAULT);
    FAILS(recvmsg(packets, &message, MSG_DONTWAIT), EINVAL);
    FAILS(getsockname(packets, 0, &len), EFAULT);
    FAILS(getsockopt(stream, 500, SO_OOBINLINE, &value, &len), EOPNOTSUPP);
    FAILS(getsockopt(stream, IPPROTO_IP, -1, &value, &len), ENOPROTOOPT);
    FAILS(getsockopt(stream, IPPROTO_TCP, -1, &value, &len), ENOPROTOOPT);
    FAILS(setsockopt(stream, IPPROTO_TCP, -1, &value, 4), ENOPROTOOPT);
    // Of a stream nobody is told who sends: what would take that is not looked at.
    int ends[3] = {socket(AF_INET, SOCK_STREAM, 0), stream, 0};
    char byte;
    at.sin_port = 0, len = sizeof at;
    CHECK(bind(ends[0], (void *)&at, sizeof at) == 0 && listen(ends[0], 1) == 0 && getsockname(ends[0], (void *)&at, &len) == 0);
    CHECK(connect(stream, (void *)&at, len) == 0 && (ends[2] = accept(ends[0], 0, 0)) >= 0 && write(stream, "x", 1) == 1);
    CHECK(recvfrom(ends[2], &byte, 1, 0, (void *)-1, &len) == 1 && len == 0);
    for (int i = 0; i < 3; i++) close(ends[i]);
    close(packets);
}

// Whether what comes next is this, or nothing.
static int tells(int watches, unsigned what) {
    char all[4096];
    long len = read(watches, all, sizeof all);
    struct inotify_event *event = (void *)all;
    return what ? len >= (long)sizeof *event && event->mask == what : len < 0 && errno == EAGAIN;
}

static void heard_of(void) {
    int watches = inotify_init1(IN_NONBLOCK), file = open("seen", O_RDWR | O_CREAT, 0600);
    char line[512], path[64];
    unsigned mask = 0;
    CHECK(mkdir("below", 0700) == 0);
    // Nothing of what has no name any more.
    CHECK(inotify_add_watch(watches, ".", IN_MODIFY | IN_EXCL_UNLINK) > 0);
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", watches);
    FILE *info = fopen(path, "r");
    while (info && fgets(line, sizeof line, info)) sscanf(line, "inotify wd:%*d ino:%*x sdev:%*x mask:%x", &mask);
    if (info) fclose(info);
    CHECK((mask & (IN_MODIFY | IN_EXCL_UNLINK)) == (IN_MODIFY | IN_EXCL_UNLINK));
    CHECK(write(file, "x", 1) == 1 && tells(watches, IN_MODIFY) && unlink("seen") == 0 && write(file, "x", 1) == 1 && tells(watches, 0));
    // That a directory was moved itself is said as of any file.
    CHECK(inotify_add_watch(watches, "below", IN_MOVE_SELF) > 0 && rename("below", "elsewhere") == 0 && tells(watches, IN_MOVE_SELF));
    close(watches), close(file), rmdir("elsewhere");
}

// As many children at once as a machine with 256 MiB must have room for.
static void crowd(void) {
    int many = 0, status;
    pid_t all[400], pid = 1;
    while (many < 400 && (pid = fork()) > 0) all[many++] = pid;
    if (!pid)
        for (;;) pause();
    CHECK(many == 400);
    for (int i = 0; i < many; i++) CHECK(kill(all[i], SIGKILL) == 0 && waitpid(all[i], &status, 0) == all[i]);
}

enum { SOMEBODY = 1234 };

// How a marked program is run by somebody: it says as whom it acts.
static int acts(int program, int mode, int bound) {
    int status = -1;
    CHECK(fchown(program, NOBODY, NOBODY) == 0 && fchmod(program, mode) == 0);
    pid_t child = fork();
    if (!child) {
        if (setgroups(0, 0) || setresgid(SOMEBODY, SOMEBODY, SOMEBODY) || setresuid(SOMEBODY, SOMEBODY, SOMEBODY)) _exit(99);
        if (bound) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        syscall(SYS_execveat, program, "", (char *[]){"ruled", "acts", 0}, (char *[]){0}, AT_EMPTY_PATH);
        _exit(98);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int belongs(pid_t process, const char *below, uid_t user, gid_t group) {
    char path[64];
    struct stat is;
    snprintf(path, sizeof path, "/proc/%d/%s", process, below);
    return lstat(path, &is) == 0 && is.st_uid == user && is.st_gid == group;
}

// What is below /proc of a process belongs to whom it acts as; if nobody may look into it, only directories that are open to all do.
static void shown(void) {
    int on[2], up[2], status = -1;
    char byte;
    if (geteuid()) return;
    CHECK(pipe(on) == 0 && pipe(up) == 0);
    pid_t child = fork();
    if (!child) {
        close(on[1]);
        if (setresgid(SOMEBODY, NOBODY, SOMEBODY) || setresuid(SOMEBODY, NOBODY, SOMEBODY) || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)) _exit(1);
        if (write(up[1], "x", 1) != 1 || read(on[0], &byte, 1) != 1) _exit(2);
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) || write(up[1], "x", 1) != 1) _exit(3);
        _exit(read(on[0], &byte, 1) != 1);
    }
    close(up[1]);
    CHECK(read(up[0], &byte, 1) == 1);
    for (const char **below = (const char *[]){"", "stat", "exe", "fd", "task", "comm", "mem", 0}; *below; below++) CHECK(belongs(child, *below, NOBODY, NOBODY));
    CHECK(write(on[1], "x", 1) == 1 && read(up[0], &byte, 1) == 1);
    CHECK(belongs(child, "", NOBODY, NOBODY) && belongs(child, "task", NOBODY, NOBODY));
    for (const char **below = (const char *[]){"stat", "exe", "fd", "comm", "mem", 0}; *below; below++) CHECK(belongs(child, *below, 0, 0));
    CHECK(write(on[1], "x", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
    close(on[0]), close(on[1]), close(up[0]);
}

static int rights_of(int file) {
    char path[64];
    struct stat is;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return file >= 0 && lstat(path, &is) == 0 && S_ISLNK(is.st_mode) ? (int)(is.st_mode & 07777) : -1;
}

// Links to what is open say by their rights for what it is open.
static void ways(void) {
    int files[] = {open("way", O_RDWR | O_CREAT, 0644), open("way", O_RDONLY), open("way", O_WRONLY), open("way", O_PATH), open(".", O_RDONLY)}, ends[2];
    const int rights[] = {0700, 0500, 0300, 0, 0500};
    for (int i = 0; i < 5; i++) CHECK(rights_of(files[i]) == rights[i] && close(files[i]) == 0);
    CHECK(pipe(ends) == 0 && rights_of(ends[0]) == 0500 && rights_of(ends[1]) == 0300);
    close(ends[0]), close(ends[1]), unlink("way");
}

enum { AS_USER = 1, AS_GROUP = 2, SECURE = 4 };
static int whom(void) {
    uid_t users[3];
    gid_t groups[3];
    if (getresuid(&users[0], &users[1], &users[2]) || getresgid(&groups[0], &groups[1], &groups[2])) return 90;
    if (users[0] != SOMEBODY || groups[0] != SOMEBODY || users[1] != users[2] || groups[1] != groups[2]) return 91;
    return (users[1] == NOBODY) * AS_USER + (groups[1] == NOBODY) * AS_GROUP + getauxval(AT_SECURE) * SECURE;
}

// Programs act as the owner and the group of their files where these are marked so, unless who runs them wants no more rights.
static void marks(void) {
    struct statvfs system;
    char part[4096];
    // Not everybody can mark files, and not everywhere.
    if (geteuid() || statvfs(".", &system) || system.f_flag & ST_NOSUID) return;
    int own = open("/proc/self/exe", O_RDONLY), copy = open("marked", O_WRONLY | O_CREAT | O_TRUNC, 0755);
    for (ssize_t bytes; (bytes = read(own, part, sizeof part)) > 0;) CHECK(write(copy, part, bytes) == bytes);
    close(own), close(copy);
    int program = open("marked", O_RDONLY);
    CHECK(program >= 0);
    CHECK(acts(program, 0755, 0) == 0);
    CHECK(acts(program, 04755, 0) == AS_USER + SECURE);
    CHECK(acts(program, 02755, 0) == AS_GROUP + SECURE);
    CHECK(acts(program, 06755, 0) == AS_USER + AS_GROUP + SECURE);
    // Without the group's right to run it.
    CHECK(acts(program, 02745, 0) == 0);
    CHECK(acts(program, 06755, 1) == 0);
    close(program), unlink("marked");
}

// What a child does as somebody with a marked file that all may write to; how it ends. The file's rights afterwards are `left`.
#define MARKED(mode, left, ...) ({ \
    int status = -1; \
    struct stat file_; \
    CHECK(fchmod(file, mode) == 0); \
    pid_t child = fork(); \
    if (!child) { \
        if (setgroups(0, 0) || setresgid(SOMEBODY, SOMEBODY, SOMEBODY) || setresuid(SOMEBODY, SOMEBODY, SOMEBODY)) _exit(99); \
        _exit((__VA_ARGS__) ? errno : 0); \
    } \
    CHECK(waitpid(child, &status, 0) == child && fstat(file, &file_) == 0); \
    check((file_.st_mode & 07777) == (left), #mode " " #__VA_ARGS__); \
    status >> 8; })

// They lose their marks when somebody writes to them, and not to nothing; whoever asks that nobody else has a file may be anybody.
static void unmarked(void) {
    if (geteuid()) return;
    int file = open("marked", O_RDWR | O_CREAT, 0777);
    CHECK(file >= 0 && fchown(file, NOBODY, NOBODY) == 0);
    CHECK(MARKED(06777, 0777, write(file, "x", 1) != 1) == 0);
    CHECK(MARKED(04666, 0666, pwrite(file, "x", 1, 5) != 1) == 0);
    CHECK(MARKED(02676, 0676, ftruncate(file, 3)) == 0);
    CHECK(MARKED(06755, 0755, fallocate(file, 0, 0, 100)) == 0);
    CHECK(MARKED(06777, 06777, write(file, "", 0)) == 0);
    CHECK(MARKED(06777, 06777, fchown(file, -1, -1)) == EPERM);
    CHECK(MARKED(01777, 01777, fchown(file, -1, -1)) == 0);
    CHECK(MARKED(01777, 01777, fchown(file, -1, NOBODY)) == EPERM);
    struct stat before, after;
    CHECK(fchmod(file, 06777) == 0 && write(file, "x", 1) == 1 && fstat(file, &after) == 0 && (after.st_mode & 07777) == 06777);
    // A file whose name another one takes has changed.
    CHECK(link("marked", "marked.too") == 0 && mknod("marked.new", S_IFREG | 0600, 0) == 0 && fstat(file, &before) == 0);
    usleep(20000);
    CHECK(rename("marked.new", "marked") == 0 && fstat(file, &after) == 0 && after.st_nlink == 1);
    CHECK(after.st_ctim.tv_sec > before.st_ctim.tv_sec || (after.st_ctim.tv_sec == before.st_ctim.tv_sec && after.st_ctim.tv_nsec > before.st_ctim.tv_nsec));
    close(file), unlink("marked"), unlink("marked.too");
}

// A directory is written to when it comes to lie in another one.
static void elsewhere(void) {
    if (geteuid()) return;
    int status = -1;
    CHECK(mkdir("one", 0755) == 0 && mkdir("other", 0755) == 0 && mkdir("one/below", 0755) == 0 && mkdir("other/own", 0755) == 0);
    CHECK(chown("one", SOMEBODY, SOMEBODY) == 0 && chown("other", SOMEBODY, SOMEBODY) == 0 && chown("other/own", SOMEBODY, SOMEBODY) == 0);
    int one = open("one", O_RDONLY | O_DIRECTORY), other = open("other", O_RDONLY | O_DIRECTORY);
    pid_t child = fork();
    if (!child) {
        wrong = setgroups(0, 0) || setresgid(SOMEBODY, SOMEBODY, SOMEBODY) || setresuid(SOMEBODY, SOMEBODY, SOMEBODY);
        FAILS(renameat(one, "below", other, "below"), EACCES);
        FAILS(renameat(one, "below", other, "own"), EACCES);
        FAILS(syscall(SYS_renameat2, other, "own", one, "below", 2), EACCES);
        CHECK(renameat(one, "below", one, "beside") == 0 && renameat(other, "own", one, "own") == 0);
        _exit(wrong);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(renameat(one, "beside", other, "below") == 0 && unlinkat(other, "below", AT_REMOVEDIR) == 0 && unlinkat(one, "own", AT_REMOVEDIR) == 0);
    CHECK(rmdir("one") == 0 && rmdir("other") == 0);
    close(one), close(other);
}

int main(int count, char **arguments) {
    static const struct part parts[] = {{"locks", locks}, {"others", others}, {"places", places}, {"signals", signals},
                                        {"moved", moved}, {"sockets", sockets}, {"heard", heard_of}, {"marks", marks}, {"unmarked", unmarked}, {"elsewhere", elsewhere}, {"shown", shown}, {"ways", ways}};
    static const struct part apart[] = {{"crowd", crowd}};
    if (count > 1 && !strcmp(arguments[1], "acts")) return whom();
    if (count > 1) PLAY(apart, count, arguments);
    PLAY(parts, count, arguments);
    return 0;
}
