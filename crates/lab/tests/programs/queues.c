// Queues of messages with names, reads and writes that are heard of later, and what the network says of itself: each with checks of its own, and a
// line for each part with how many failed.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/aio_abi.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <mqueue.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "until.h"

static volatile sig_atomic_t heard, by, with;
static void hear(int signal, siginfo_t *info, void *unused) {
    (void)unused;
    heard = signal, by = info->si_code == SI_MESGQ && info->si_pid == getpid(), with = info->si_value.sival_int;
}

static volatile int woken;
static void wakes(union sigval value) { __atomic_store_n(&woken, value.sival_int, __ATOMIC_SEQ_CST); }

static struct timespec in(long ms) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += ms * 1000000;
    at.tv_sec += at.tv_nsec / 1000000000, at.tv_nsec %= 1000000000;
    return at;
}

static void mailboxes(void) {
    char text[64];
    unsigned urgency;
    struct mq_attr small = {.mq_maxmsg = 3, .mq_msgsize = 16}, found;
    mq_unlink("/quietmm");
    FAILS(mq_open("/quietmm", O_RDWR), ENOENT);
    FAILS(mq_open("/a/b", O_RDWR | O_CREAT, 0600, NULL), EACCES);
    struct mq_attr none = {.mq_maxmsg = 0, .mq_msgsize = 16};
    FAILS(mq_open("/quietmm", O_RDWR | O_CREAT, 0600, &none), EINVAL);
    mqd_t q = mq_open("/quietmm", O_RDWR | O_CREAT | O_EXCL, 0600, &small);
    CHECK(q >= 0);
    FAILS(mq_open("/quietmm", O_RDWR | O_CREAT | O_EXCL, 0600, &small), EEXIST);
    CHECK(mq_getattr(q, &found) == 0 && found.mq_maxmsg == 3 && found.mq_msgsize == 16 && found.mq_curmsgs == 0 && found.mq_flags == 0);
    FAILS(mq_send(q, "0123456789abcdefg", 17, 0), EMSGSIZE);
    FAILS(mq_send(q, "x", 1, 32768), EINVAL);
    FAILS(mq_receive(q, text, 15, &urgency), EMSGSIZE);
    CHECK(mq_send(q, "one", 3, 1) == 0 && mq_send(q, "two", 3, 7) == 0 && mq_send(q, "three", 5, 7) == 0);
    CHECK(mq_getattr(q, &found) == 0 && found.mq_curmsgs == 3);
    struct timespec soon = in(30);
    FAILS(mq_timedsend(q, "x", 1, 0, &soon), ETIMEDOUT);
    struct pollfd polled = {.fd = q, .events = POLLIN | POLLOUT};
    CHECK(poll(&polled, 1, 0) == 1 && polled.revents == POLLIN);
    CHECK(mq_receive(q, text, sizeof text, &urgency) == 3 && urgency == 7 && !memcmp(text, "two", 3));
    CHECK(mq_receive(q, text, sizeof text, &urgency) == 5 && urgency == 7 && !memcmp(text, "three", 5));
    CHECK(poll(&polled, 1, 0) == 1 && polled.revents == (POLLIN | POLLOUT));
    CHECK(mq_receive(q, text, sizeof text, NULL) == 3);
    soon = in(30);
    FAILS(mq_timedreceive(q, text, sizeof text, NULL, &soon), ETIMEDOUT);
    soon.tv_nsec = 1000000000;
    FAILS(mq_timedreceive(q, text, sizeof text, NULL, &soon), EINVAL);
    mqd_t reads = mq_open("/quietmm", O_RDONLY | O_NONBLOCK);
    FAILS(mq_receive(reads, text, sizeof text, NULL), EAGAIN);
    FAILS(mq_send(reads, "x", 1, 0), EBADF);
    struct mq_attr flags = {.mq_flags = 0};
    CHECK(mq_setattr(reads, &flags, &found) == 0 && found.mq_flags == O_NONBLOCK && mq_getattr(reads, &found) == 0 && found.mq_flags == 0);
    CHECK(mq_close(reads) == 0);
    FAILS(mq_receive(STDERR_FILENO, text, sizeof text, NULL), EBADF);

    // One process sends, and waits where there is no room; the other hears all in order.
    pid_t child = fork();
    if (child == 0) {
        mqd_t w = mq_open("/quietmm", O_WRONLY);
        for (int i = 0; i < 500; i++)
            if (mq_send(w, (char *)&i, sizeof i, 0)) _exit(1);
        _exit(0);
    }
    int order = 0, number = -1, status;
    for (int i = 0; i < 500; i++) order += mq_receive(q, text, sizeof text, NULL) == 4 && (memcpy(&number, text, 4), number == i);
    CHECK(order == 500);
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    struct sigaction action = {.sa_sigaction = hear, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 42};
    CHECK(mq_notify(q, &event) == 0);
    FAILS(mq_notify(q, &event), EBUSY);
    CHECK(mq_send(q, "a", 1, 0) == 0);
    CHECK(UNTIL(heard == SIGUSR1) && by && with == 42);
    heard = 0;
    CHECK(mq_notify(q, &event) == 0 && mq_send(q, "b", 1, 0) == 0 && mq_notify(q, NULL) == 0);
    CHECK(!heard);
    while (mq_getattr(q, &found) == 0 && found.mq_curmsgs) mq_receive(q, text, sizeof text, NULL);
    struct sigevent thread = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = wakes, .sigev_value.sival_int = 9};
    CHECK(mq_notify(q, &thread) == 0 && mq_send(q, "c", 1, 0) == 0);
    CHECK(UNTIL(__atomic_load_n(&woken, __ATOMIC_SEQ_CST) == 9));
    // No signal has the place as well, and who has closed it has it no more, whichever of its numbers that was.
    event.sigev_signo = 0;
    CHECK(mq_notify(q, &event) == 0);
    FAILS(mq_notify(q, &event), EBUSY);
    CHECK(close(dup(q)) == 0 && mq_notify(q, &event) == 0 && mq_notify(q, NULL) == 0);
    CHECK(mq_unlink("/quietmm") == 0);
    FAILS(mq_unlink("/quietmm"), ENOENT);
    CHECK(mq_receive(q, text, sizeof text, NULL) == 1 && mq_close(q) == 0);
}

// What the queues of a user take, counted as if they were full (`RLIMIT_MSGQUEUE`).
static void room_for_mailboxes(void) {
    struct rlimit limit, two = {2 * 4 * (1024 + 96), 2 * 4 * (1024 + 96)};
    struct mq_attr small = {.mq_maxmsg = 4, .mq_msgsize = 1024};
    CHECK(getrlimit(RLIMIT_MSGQUEUE, &limit) == 0);
    if (fork() == 0) {
        // Whatever other queues root has are not this user's.
        CHECK(setresuid(4242, 4242, 4242) == 0 && setrlimit(RLIMIT_MSGQUEUE, &two) == 0);
        mqd_t one = mq_open("/quietmm-1", O_RDWR | O_CREAT | O_EXCL, 0600, &small);
        mqd_t other = mq_open("/quietmm-2", O_RDWR | O_CREAT | O_EXCL, 0600, &small);
        CHECK(one >= 0 && other >= 0);
        FAILS(mq_open("/quietmm-3", O_RDWR | O_CREAT, 0600, &small), EMFILE);
        CHECK(mq_open("/quietmm-2", O_RDONLY) >= 0);
        CHECK(close(one) == 0 && mq_unlink("/quietmm-1") == 0);
        CHECK(mq_open("/quietmm-3", O_RDWR | O_CREAT, 0600, &small) >= 0);
        CHECK(mq_unlink("/quietmm-2") == 0 && mq_unlink("/quietmm-3") == 0);
        _exit(0);
    }
    int how;
    CHECK(wait(&how) > 0 && how == 0);
}

static long submit(aio_context_t context, long count, struct iocb **list) { return syscall(SYS_io_submit, context, count, list); }

static void requests(void) {
    static char bytes[3][4096];
    aio_context_t context = 0;
    FAILS(syscall(SYS_io_setup, 0, &context), EINVAL);
    CHECK(syscall(SYS_io_setup, 8, &context) == 0 && context != 0);
    FAILS(syscall(SYS_io_setup, 8, &context), EINVAL);
    int file = open("queues.tmp", O_RDWR | O_CREAT | O_TRUNC, 0600), event = eventfd(0, 0);
    memset(bytes[0], 'a', 4096), memset(bytes[1], 'b', 4096);
    struct iocb all[3] = {
        {.aio_data = 7, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = file, .aio_buf = (uintptr_t)bytes[0], .aio_nbytes = 4096, .aio_offset = 0},
        {.aio_data = 8, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = file, .aio_buf = (uintptr_t)bytes[1], .aio_nbytes = 4096, .aio_offset = 4096,
         .aio_flags = IOCB_FLAG_RESFD, .aio_resfd = event},
        {.aio_data = 9, .aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = file, .aio_buf = (uintptr_t)bytes[2], .aio_nbytes = 4096, .aio_offset = 6144},
    };
    struct iocb *list[3] = {&all[0], &all[1], &all[2]};
    struct io_event events[4];
    struct timespec nothing = {0, 0};
    CHECK(submit(context, 2, list) == 2);
    CHECK(syscall(SYS_io_getevents, context, 2, 4, events, NULL) == 2);
    CHECK(events[0].data + events[1].data == 15 && events[0].res == 4096 && events[1].res == 4096);
    CHECK(events[0].obj == (uintptr_t)&all[events[0].data - 7]);
    uint64_t count = 0;
    CHECK(read(event, &count, 8) == 8 && count == 1);
    CHECK(lseek(file, 0, SEEK_CUR) == 0 && lseek(file, 0, SEEK_END) == 8192);
    CHECK(submit(context, 1, &list[2]) == 1);
    CHECK(syscall(SYS_io_getevents, context, 1, 4, events, NULL) == 1 && events[0].res == 2048 && events[0].data == 9);
    CHECK(bytes[2][0] == 'b' && bytes[2][2047] == 'b' && bytes[2][2048] == 0);
    CHECK(syscall(SYS_io_getevents, context, 0, 4, events, &nothing) == 0);
    struct timespec soon = {0, 20000000};
    CHECK(syscall(SYS_io_getevents, context, 1, 4, events, &soon) == 0);
    FAILS(syscall(SYS_io_getevents, context, 3, 2, events, &nothing), EINVAL);
    // With a mask of signals meanwhile: where it lies, and how long it is.
    uint64_t none = 0, mask[2] = {(uint64_t)(uintptr_t)&none, 8};
    CHECK(syscall(SYS_io_pgetevents, context, 0, 4, events, &nothing, mask) == 0 && syscall(SYS_io_pgetevents, context, 1, 4, events, &soon, NULL) == 0);
    mask[1] = 4;
    FAILS(syscall(SYS_io_pgetevents, context, 0, 4, events, &nothing, mask), EINVAL);
    all[2].aio_fildes = 999;
    FAILS(submit(context, 1, &list[2]), EBADF);
    all[2].aio_fildes = file, all[2].aio_lio_opcode = 99;
    FAILS(submit(context, 1, &list[2]), EINVAL);
    CHECK(submit(context, 3, list) == 2);
    all[2].aio_lio_opcode = IOCB_CMD_FSYNC;
    FAILS(submit(context, 1, &list[2]), EINVAL);
    all[2].aio_buf = all[2].aio_nbytes = all[2].aio_offset = 0;
    CHECK(submit(context, 1, &list[2]) == 1);
    CHECK(syscall(SYS_io_getevents, context, 3, 4, events, NULL) == 3);
    CHECK(syscall(SYS_io_destroy, context) == 0);
    FAILS(syscall(SYS_io_destroy, context), EINVAL);
    FAILS(submit(context, 1, list), EINVAL);
    close(file), close(event), unlink("queues.tmp");
}

static void network(void) {
    struct ifaddrs *all;
    int four = 0, link = 0;
    CHECK(getifaddrs(&all) == 0);
    for (struct ifaddrs *at = all; at; at = at->ifa_next) {
        if (strcmp(at->ifa_name, "lo")) continue;
        CHECK(at->ifa_flags & IFF_LOOPBACK && at->ifa_flags & IFF_UP);
        if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET) {
            four += ((struct sockaddr_in *)at->ifa_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK);
            four += ((struct sockaddr_in *)at->ifa_netmask)->sin_addr.s_addr == htonl(0xff000000);
        }
        link += at->ifa_addr && at->ifa_addr->sa_family == AF_PACKET;
    }
    CHECK(four == 2 && link == 1);
    freeifaddrs(all);
    CHECK(if_nametoindex("lo") == 1);
    FAILS(socket(AF_NETLINK, SOCK_STREAM, 0), ESOCKTNOSUPPORT);
    int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    struct sockaddr_nl own = {.nl_family = AF_NETLINK}, from;
    socklen_t len = sizeof own;
    CHECK(bind(s, (struct sockaddr *)&own, sizeof own) == 0 && getsockname(s, (struct sockaddr *)&own, &len) == 0 && len == 12 && own.nl_pid != 0);
    struct {
        struct nlmsghdr head;
        struct ifinfomsg link;
    } ask = {{.nlmsg_len = sizeof ask, .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST, .nlmsg_seq = 5}, {.ifi_index = 99999}};
    static char answer[8192];
    len = sizeof from;
    CHECK(send(s, &ask, sizeof ask, 0) == sizeof ask);
    CHECK(recvfrom(s, answer, sizeof answer, 0, (struct sockaddr *)&from, &len) > 0 && len == 12 && from.nl_family == AF_NETLINK && from.nl_pid == 0);
    struct nlmsghdr *said = (struct nlmsghdr *)answer;
    CHECK(said->nlmsg_type == NLMSG_ERROR && said->nlmsg_seq == 5 && said->nlmsg_pid == own.nl_pid && ((struct nlmsgerr *)NLMSG_DATA(said))->error == -ENODEV);
    ask.link.ifi_index = 1;
    CHECK(send(s, &ask, sizeof ask, 0) == sizeof ask && recv(s, answer, sizeof answer, 0) > 0 && said->nlmsg_type == RTM_NEWLINK);
    CHECK(((struct ifinfomsg *)NLMSG_DATA(said))->ifi_index == 1);
    close(s);
}

static struct sockaddr_in loop(int port) { return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}}; }

static int at_port(int kind, int option, int *port) {
    int s = socket(AF_INET, kind, 0), one = 1;
    struct sockaddr_in own = loop(*port);
    socklen_t len = sizeof own;
    if (option && setsockopt(s, SOL_SOCKET, option, &one, sizeof one)) return -1;
    if (bind(s, (struct sockaddr *)&own, sizeof own) || getsockname(s, (struct sockaddr *)&own, &len)) return close(s), -1;
    *port = ntohs(own.sin_port);
    return s;
}

static int error_of(int s) {
    int error = -1;
    socklen_t len = sizeof error;
    return getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &len) ? -1 : error;
}

// Ports that several sockets have, and packets that nobody is there for.
static void ports(void) {
    int port = 0, other = 0, none = 0;
    int first = at_port(SOCK_DGRAM, SO_REUSEADDR, &port), second = at_port(SOCK_DGRAM, SO_REUSEADDR, &port);
    int a = at_port(SOCK_DGRAM, 0, &other);
    CHECK(first >= 0 && second >= 0 && a >= 0);
    FAILS(at_port(SOCK_DGRAM, 0, &port), EADDRINUSE);
    struct sockaddr_in to = loop(port), back = loop(other);
    char bytes[8];
    CHECK(sendto(a, "new", 3, 0, (struct sockaddr *)&to, sizeof to) == 3 && recv(second, bytes, 8, 0) == 3);
    // Whoever talks to the sender has what it sends.
    CHECK(connect(first, (struct sockaddr *)&back, sizeof back) == 0);
    CHECK(sendto(a, "old", 3, 0, (struct sockaddr *)&to, sizeof to) == 3 && recv(first, bytes, 8, 0) == 3);
    FAILS(recv(second, bytes, 8, MSG_DONTWAIT), EAGAIN);
    close(first), close(second);
    // Listeners that share a port, and one that does not.
    int shared = 0, listeners[2] = {at_port(SOCK_STREAM, SO_REUSEPORT, &shared)};
    listeners[1] = at_port(SOCK_STREAM, SO_REUSEPORT, &shared);
    CHECK(listeners[0] >= 0 && listeners[1] >= 0 && listen(listeners[0], 5) == 0 && listen(listeners[1], 5) == 0);
    FAILS(at_port(SOCK_STREAM, 0, &shared), EADDRINUSE);
    FAILS(at_port(SOCK_STREAM, SO_REUSEADDR, &shared), EADDRINUSE);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in there = loop(shared);
    CHECK(connect(client, (struct sockaddr *)&there, sizeof there) == 0);
    struct pollfd both[2] = {{listeners[0], POLLIN, 0}, {listeners[1], POLLIN, 0}};
    CHECK(poll(both, 2, LONG) == 1 && both[0].revents + both[1].revents == POLLIN);
    close(client), close(listeners[0]), close(listeners[1]);
    // Nobody is there: whoever asks next hears of it, once.
    close(at_port(SOCK_DGRAM, 0, &none));
    struct sockaddr_in nobody = loop(none);
    CHECK(connect(a, (struct sockaddr *)&nobody, sizeof nobody) == 0 && send(a, "x", 1, 0) == 1);
    struct pollfd lost = {a, POLLIN, 0};
    CHECK(poll(&lost, 1, LONG) == 1 && lost.revents == POLLERR);
    FAILS(recv(a, bytes, 8, 0), ECONNREFUSED);
    FAILS(recv(a, bytes, 8, MSG_DONTWAIT), EAGAIN);
    CHECK(send(a, "x", 1, 0) == 1 && poll(&lost, 1, LONG) == 1 && error_of(a) == ECONNREFUSED && error_of(a) == 0);
    CHECK(send(a, "x", 1, 0) == 1 && poll(&lost, 1, LONG) == 1);
    FAILS(send(a, "x", 1, 0), ECONNREFUSED);
    close(a);
}

int main(int count, char **arguments) {
    const struct part parts[] = {{"mailboxes", mailboxes}, {"room for mailboxes", room_for_mailboxes}, {"requests", requests}, {"network", network}, {"ports", ports}};
    PLAY(parts, count, arguments);
    return 0;
}
