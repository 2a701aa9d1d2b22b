// Whoever waits hears of what somebody else does meanwhile. A line for each part with how many checks failed; what is not heard of hangs.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "checks.h"
#include "until.h"

// A process that does this, and is asleep in it; it is to end with 0.
#define SLEEPS(does) \
    ({ \
        pid_t pid_ = fork(); \
        if (!pid_) _exit(!(does)); \
        CHECK(UNTIL(state_of(pid_) == 'S')); \
        pid_; \
    })

static void ends_well(pid_t pid) {
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static int set_of(int of, unsigned events) {
    struct epoll_event event = {.events = events};
    int set = epoll_create1(0);
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, of, &event) == 0);
    return set;
}

static unsigned hears(int set, int time) {
    struct epoll_event event = {0};
    return epoll_wait(set, &event, 1, time) == 1 ? event.events : 0;
}

// A timer that is set, or is watched, only while somebody waits for it already.
static void timers(void) {
    struct itimerspec soon = {{0, 0}, {0, 5000000}}, later = {{0, 0}, {100000, 0}};
    struct epoll_event event = {.events = EPOLLIN};
    long many;
    for (int how = 0; how < 4; how++) {
        int timer = timerfd_create(CLOCK_MONOTONIC, 0), set = how < 3 ? set_of(timer, EPOLLIN) : epoll_create1(0);
        if (how == 1) CHECK(timerfd_settime(timer, 0, &later, 0) == 0);
        if (how == 3) CHECK(timerfd_settime(timer, 0, &soon, 0) == 0);
        pid_t pid = how == 2 ? SLEEPS(read(timer, &many, 8) == 8 && many == 1) : SLEEPS(hears(set, -1) == EPOLLIN);
        if (how < 3) CHECK(timerfd_settime(timer, 0, &soon, 0) == 0);
        else CHECK(epoll_ctl(set, EPOLL_CTL_ADD, timer, &event) == 0);
        ends_well(pid);
        close(timer), close(set);
    }
}

static volatile int rung[2];
static void rings(int signal) { rung[signal == SIGUSR2]++; }
static long ns_of(struct timespec time) { return time.tv_sec * 1000000000 + time.tv_nsec; }

// Two timers that are due at once have both rung when either is heard, and before a sleep ends that began later.
static void together(void) {
    struct sigaction action = {.sa_handler = rings};
    struct sigevent event[2] = {{.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1}, {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2}};
    struct itimerspec soon = {{0, 0}, {0, 0}};
    struct timespec now, span = {0, 20000000};
    timer_t timers[2];
    sigset_t set, old;
    sigemptyset(&set), sigaddset(&set, SIGUSR1), sigaddset(&set, SIGUSR2);
    for (int i = 0; i < 2; i++) CHECK(sigaction(event[i].sigev_signo, &action, 0) == 0 && timer_create(CLOCK_MONOTONIC, &event[i], &timers[i]) == 0);
    for (int tries = 0; tries < 5; tries++) {
        rung[0] = rung[1] = 0;
        clock_gettime(CLOCK_MONOTONIC, &now);
        soon.it_value.tv_sec = now.tv_sec, soon.it_value.tv_nsec = now.tv_nsec + 20000000;
        if (soon.it_value.tv_nsec >= 1000000000) soon.it_value.tv_sec++, soon.it_value.tv_nsec -= 1000000000;
        sigprocmask(SIG_BLOCK, &set, &old);
        for (int i = 0; i < 2; i++) CHECK(timer_settime(timers[i], TIMER_ABSTIME, &soon, 0) == 0);
        // As long from now: later than both.
        CHECK(nanosleep(&span, 0) == 0);
        sigprocmask(SIG_SETMASK, &old, 0);
        CHECK(rung[0] == 1 && rung[1] == 1);
    }
    // How often one has expired is so when it is heard.
    struct itimerspec often = {{0, 1000}, {0, 1000}};
    struct timespec then;
    siginfo_t info;
    sigprocmask(SIG_BLOCK, &set, &old);
    CHECK(timer_settime(timers[0], 0, &often, 0) == 0 && clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    for (int i = 0; i < 5; i++) {
        do clock_gettime(CLOCK_MONOTONIC, &then);
        while (ns_of(then) - ns_of(now) < 300000);
        CHECK(sigwaitinfo(&set, &info) == SIGUSR1 && info.si_overrun >= (ns_of(then) - ns_of(now)) / 1000 - 2);
        CHECK(timer_getoverrun(timers[0]) == info.si_overrun);
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    for (int i = 0; i < 2; i++) CHECK(timer_delete(timers[i]) == 0);
    CHECK(sigtimedwait(&set, &info, &(struct timespec){0, 0}) <= SIGUSR1);
    sigprocmask(SIG_SETMASK, &old, 0);
}

// Of those that wait at a word who has the highest priority for real time is woken first, and of these who came first.
static void urgent(void) {
    enum { MANY = 4 };
    struct sched_param some = {.sched_priority = 1};
    int may = sched_setscheduler(0, SCHED_FIFO, &some) == 0;
    if (may) sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0});
    static const int priorities[MANY] = {1, 2, 0, 2}, order[MANY] = {1, 3, 0, 2};
    volatile int *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t all[MANY];
    for (int i = 0; i < MANY; i++) {
        all[i] = fork();
        if (!all[i]) {
            some.sched_priority = priorities[i];
            if (may && priorities[i] && sched_setscheduler(0, SCHED_FIFO, &some)) _exit(1);
            long waited = syscall(SYS_futex, shared, FUTEX_WAIT, 0, 0, 0, 0);
            shared[2 + shared[1]] = i;
            __atomic_fetch_add(&shared[1], 1, __ATOMIC_SEQ_CST);
            _exit(waited != 0);
        }
        CHECK(UNTIL(state_of(all[i]) == 'S'));
    }
    for (int i = 0; i < MANY; i++) {
        CHECK(syscall(SYS_futex, shared, FUTEX_WAKE, 1, 0, 0, 0) == 1 && UNTIL(shared[1] == i + 1));
        if (may) CHECK(shared[2 + i] == order[i]);
    }
    for (int i = 0; i < MANY; i++) ends_well(all[i]);
    munmap((void *)shared, 4096);
}

// A name with a pipe behind it that is opened for both.
static void fifos(void) {
    CHECK(mkfifo("woken.fifo", 0600) == 0);
    pid_t pid = SLEEPS(open("woken.fifo", O_RDONLY) >= 0);
    int both = open("woken.fifo", O_RDWR);
    ends_well(pid);
    close(both);
    pid = SLEEPS(open("woken.fifo", O_WRONLY) >= 0);
    both = open("woken.fifo", O_RDWR);
    ends_well(pid);
    close(both), unlink("woken.fifo");
}

// The other end of a terminal goes.
static void terminals(void) {
    int master, slave;
    CHECK(openpty(&master, &slave, 0, 0, 0) == 0);
    int set = set_of(slave, EPOLLIN | EPOLLOUT | EPOLLET);
    CHECK(hears(set, 0) == EPOLLOUT && hears(set, 0) == 0);
    close(master);
    unsigned events = hears(set, LONG);
    CHECK((events & EPOLLHUP) && hears(set, 0) == 0);
    close(slave), close(set);
}

static volatile pid_t reader;

static void *takes_signal(void *of) {
    struct signalfd_siginfo info;
    reader = (pid_t)syscall(SYS_gettid);
    return (void *)(long)(read(*(int *)of, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR2);
}

// Signals that are read become others.
static void signals(void) {
    sigset_t one, both;
    sigemptyset(&both), sigaddset(&both, SIGUSR1), sigaddset(&both, SIGUSR2);
    sigprocmask(SIG_BLOCK, &both, 0);
    sigemptyset(&one), sigaddset(&one, SIGUSR1);
    int reads = signalfd(-1, &one, 0);
    pid_t pid = fork();
    if (!pid) {
        pthread_t thread;
        void *right = 0;
        CHECK(pthread_create(&thread, 0, takes_signal, &reads) == 0);
        CHECK(UNTIL(reader && state_of_thread(reader) == 'S'));
        sigemptyset(&one), sigaddset(&one, SIGUSR2);
        CHECK(signalfd(reads, &one, 0) == reads && kill(getpid(), SIGUSR2) == 0 && pthread_join(thread, &right) == 0);
        _exit(wrong || !right);
    }
    ends_well(pid);
    sigprocmask(SIG_UNBLOCK, &both, 0);
    close(reads);
}

// Packets that are lost want no room; others have it with somebody else.
static void packets(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    int takes = socket(AF_INET, SOCK_DGRAM, 0), sends = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(bind(takes, (void *)&at, len) == 0 && getsockname(takes, (void *)&at, &len) == 0 && connect(sends, (void *)&at, len) == 0);
    struct pollfd room = {sends, POLLOUT, 0};
    for (int i = 0; i < 5000; i++) CHECK(send(sends, "packet", 6, 0) == 6);
    CHECK(poll(&room, 1, LONG) == 1 && room.revents == POLLOUT);
    close(takes), close(sends);
    struct sockaddr_un full = {AF_UNIX, "woken.full"}, empty = {AF_UNIX, "woken.empty"};
    int first = socket(AF_UNIX, SOCK_DGRAM, 0), second = socket(AF_UNIX, SOCK_DGRAM, 0);
    sends = socket(AF_UNIX, SOCK_DGRAM, 0), room.fd = sends;
    CHECK(bind(first, (void *)&full, sizeof full) == 0 && bind(second, (void *)&empty, sizeof empty) == 0 && connect(sends, (void *)&full, sizeof full) == 0);
    while (send(sends, "packet", 6, MSG_DONTWAIT) == 6) {}
    int set = set_of(sends, EPOLLOUT | EPOLLET);
    if (poll(&room, 1, 0) == 0) {
        pid_t pid = SLEEPS(poll(&room, 1, -1) == 1 && room.revents == POLLOUT);
        CHECK(connect(sends, (void *)&empty, sizeof empty) == 0);
        ends_well(pid);
        CHECK(hears(set, LONG) == EPOLLOUT);
    }
    close(first), close(second), close(sends), close(set), unlink("woken.full"), unlink("woken.empty");
}

// Who listens takes in more than before.
static void backlogs(void) {
    struct sockaddr_un at = {AF_UNIX, "woken.listens"};
    int listens = socket(AF_UNIX, SOCK_STREAM, 0), first = socket(AF_UNIX, SOCK_STREAM, 0), second = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listens, (void *)&at, sizeof at) == 0 && listen(listens, 0) == 0 && connect(first, (void *)&at, sizeof at) == 0);
    pid_t pid = SLEEPS(connect(second, (void *)&at, sizeof at) == 0);
    CHECK(listen(listens, 8) == 0);
    ends_well(pid);
    close(listens), close(first), close(second), unlink("woken.listens");
}

// Whatever is waited for, the end is heard of.
static void ends(void) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    int set = set_of(pair[0], EPOLLIN | EPOLLRDHUP | EPOLLET);
    CHECK(shutdown(pair[1], SHUT_WR) == 0 && hears(set, LONG) == (EPOLLIN | EPOLLRDHUP) && hears(set, 0) == 0);
    CHECK(shutdown(pair[1], SHUT_RD) == 0 && hears(set, LONG) == (EPOLLIN | EPOLLRDHUP | EPOLLHUP) && hears(set, 0) == 0);
    close(pair[0]), close(pair[1]), close(set);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    set = set_of(pair[0], EPOLLOUT | EPOLLET);
    CHECK(hears(set, 0) == EPOLLOUT && shutdown(pair[0], SHUT_WR) == 0);
    hears(set, 0);
    CHECK(shutdown(pair[1], SHUT_WR) == 0 && (hears(set, LONG) & EPOLLHUP));
    close(pair[0]), close(pair[1]), close(set);
}

// A lock goes with a file that was sent and could not be handed over.
static void locks(void) {
    int pair[2], file = open("woken.lock", O_RDWR | O_CREAT, 0600);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && flock(file, LOCK_EX) == 0);
    char control[CMSG_SPACE(4)] = {0}, byte = 'x';
    struct iovec bytes = {&byte, 1};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(4);
    memcpy(CMSG_DATA(head), &file, 4);
    pid_t pid = fork();
    if (!pid) {
        close(file), close(pair[0]), close(pair[1]), file = open("woken.lock", O_RDWR);
        _exit(flock(file, LOCK_EX) != 0);
    }
    CHECK(UNTIL(state_of(pid) == 'S') && sendmsg(pair[0], &message, 0) == 1 && close(file) == 0);
    message.msg_control = 0, message.msg_controllen = 0;
    CHECK(recvmsg(pair[1], &message, 0) == 1 && message.msg_flags == MSG_CTRUNC);
    ends_well(pid);
    close(pair[0]), close(pair[1]), unlink("woken.lock");
}

// A process ends that has a file open under two numbers: it is closed once.
static void closes(void) {
    char about[1024];
    int watches = inotify_init1(0), file = open("woken.file", O_RDWR | O_CREAT, 0600);
    CHECK(inotify_add_watch(watches, "woken.file", IN_CLOSE_WRITE) > 0);
    pid_t pid = fork();
    if (!pid) {
        int own = open("woken.file", O_WRONLY);
        _exit(close(file) != 0 || dup2(own, 1) != 1 || dup2(own, 2) != 2);
    }
    ends_well(pid);
    struct pollfd come = {watches, POLLIN, 0};
    CHECK(poll(&come, 1, LONG) == 1 && read(watches, about, sizeof about) == sizeof(struct inotify_event));
    CHECK(((struct inotify_event *)about)->mask == IN_CLOSE_WRITE && poll(&come, 1, 0) == 0);
    close(file), close(watches), unlink("woken.file");
}

struct asked {
    aio_context_t context;
    pid_t waits;
    int file, pipe;
};

// The second of two that it asks for waits.
static void *submits(void *of) {
    struct asked *asked = of;
    char bytes[2];
    struct iocb first = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = asked->file, .aio_buf = (unsigned long)bytes, .aio_nbytes = 1, .aio_data = 42};
    struct iocb second = first, *both[] = {&first, &second};
    second.aio_fildes = asked->pipe, second.aio_buf++, second.aio_data++;
    CHECK(UNTIL(state_of_thread(asked->waits) == 'S') && syscall(SYS_io_submit, asked->context, 2, both) == 2);
    return 0;
}

// What is done is heard of before the rest is.
static void requests(void) {
    struct asked asked = {0, (pid_t)syscall(SYS_gettid), open("woken.file", O_RDWR | O_CREAT, 0600), 0};
    struct io_event event = {0};
    int ends[2];
    pthread_t thread;
    CHECK(pipe(ends) == 0 && write(asked.file, "x", 1) == 1 && syscall(SYS_io_setup, 2, &asked.context) == 0);
    asked.pipe = ends[0];
    CHECK(pthread_create(&thread, 0, submits, &asked) == 0);
    CHECK(syscall(SYS_io_getevents, asked.context, 1, 1, &event, 0) == 1 && event.data == 42 && event.res == 1);
    CHECK(write(ends[1], "y", 1) == 1 && pthread_join(thread, 0) == 0);
    CHECK(syscall(SYS_io_getevents, asked.context, 1, 1, &event, 0) == 1 && event.data == 43 && event.res == 1);
    CHECK(syscall(SYS_io_destroy, asked.context) == 0);
    close(ends[0]), close(ends[1]), close(asked.file), unlink("woken.file");
}

int main(int count, char **arguments) {
    static const struct part parts[] = {{"timers", timers}, {"together", together}, {"urgent", urgent}, {"fifos", fifos}, {"terminals", terminals}, {"signals", signals}, {"packets", packets}, {"backlogs", backlogs}, {"ends", ends}, {"locks", locks}, {"closes", closes}, {"requests", requests}};
    alarm(HANGS);
    PLAY(parts, count, arguments);
    return 0;
}
