// Sockets, and what a connection says of itself: what comes along with bytes, how much room there is, and how it ends. A line for each part with how many
// checks failed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "until.h"

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
    // Of packets as many go as are half as long as what may be on its way, and no third.
    len = sizeof said;
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0 && getsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &said, &len) == 0 && said / 2 <= (int)sizeof all);
    for (int i = 0; i < 2; i++) CHECK(send(ends[0], all, said / 2, MSG_DONTWAIT) == said / 2);
    FAILS(send(ends[0], all, said / 2, MSG_DONTWAIT), EAGAIN);
    close(ends[0]), close(ends[1]);
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

// Where the reader is: how many bytes a read gives, whether the urgent byte is the next, and what it is ready for.
static int stands(int end, int bytes, int at_mark, int ready) {
    int left = -1, is_at_mark = -1;
    struct pollfd polled = {end, POLLIN | POLLPRI, 0};
    return ioctl(end, FIONREAD, &left) == 0 && ioctl(end, SIOCATMARK, &is_at_mark) == 0 && poll(&polled, 1, 0) >= 0 && left == bytes && is_at_mark == at_mark && polled.revents == ready;
}

static int reads(int end, int most, int flags, const char *text) {
    char bytes[16];
    int len = strlen(text);
    return recv(end, bytes, most, flags | MSG_DONTWAIT) == len && !memcmp(bytes, text, len);
}

// A read ends before the urgent byte, and the next goes past it, taken or not, unless it is to be read like all others.
static void marks(void) {
    int pair[2], listens, one = 1;
    for (int among = 0; among < 2; among++) {
        network(pair, &listens);
        int from = pair[0], to = pair[1];
        const int both = POLLIN | POLLPRI;
        CHECK(setsockopt(from, IPPROTO_TCP, TCP_NODELAY, &one, 4) == 0 && setsockopt(to, SOL_SOCKET, SO_OOBINLINE, &among, 4) == 0 && stands(to, 0, 0, 0));
        CHECK(send(from, "hello", 5, MSG_OOB) == 5 && send(from, "world", 5, 0) == 5);
        CHECK(UNTIL(stands(to, among ? 10 : 4, 0, both)) && reads(to, 16, MSG_PEEK, "hell") && reads(to, 16, MSG_WAITALL, "hell") && stands(to, among ? 6 : 0, 1, both));
        if (among) {
            FAILS(recv(to, (char[1]){0}, 1, MSG_OOB), EINVAL);
            CHECK(reads(to, 2, MSG_PEEK, "ow") && reads(to, 2, 0, "ow") && stands(to, 4, 0, POLLIN) && reads(to, 16, 0, "orld"));
        } else {
            CHECK(reads(to, 1, MSG_OOB | MSG_PEEK, "o") && reads(to, 1, MSG_OOB, "o") && stands(to, 0, 1, POLLIN));
            FAILS(recv(to, (char[1]){0}, 1, MSG_OOB), EINVAL);
            CHECK(reads(to, 2, MSG_PEEK, "wo") && reads(to, 2, 0, "wo") && stands(to, 3, 0, POLLIN) && reads(to, 16, 0, "rld"));
        }
        // The next urgent byte makes the one before it one of many; but who stands there does not read it.
        CHECK(send(from, "ab", 2, MSG_OOB) == 2 && send(from, "cd", 2, MSG_OOB) == 2 && UNTIL(stands(to, among ? 4 : 3, 0, both)));
        CHECK(reads(to, 16, 0, "abc") && send(from, "ef", 2, MSG_OOB) == 2 && UNTIL(stands(to, among ? 3 : 1, 0, both)) && reads(to, 16, 0, among ? "de" : "e"));
        // A read that finds no other byte loses it.
        CHECK(stands(to, among, 1, among ? both : POLLPRI));
        if (among)
            CHECK(reads(to, 16, 0, "f"));
        else
            FAILS(recv(to, (char[16]){0}, 16, MSG_DONTWAIT), EAGAIN);
        CHECK(stands(to, 0, 0, 0) && send(from, "g", 1, MSG_OOB) == 1 && shutdown(from, SHUT_WR) == 0 && UNTIL(stands(to, among, 1, both)));
        CHECK(reads(to, 16, 0, among ? "g" : "") && reads(to, 16, 0, ""));
        close(from), close(to), close(listens);
    }
    // Whoever sends urgent bytes that nobody reads waits like others, and hears that nobody is there.
    network(pair, &listens);
    int little = 4096;
    long many = 0;
    CHECK(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &little, 4) == 0 && send(pair[0], "x", 1, 0) == 1);
    while (many < 10000000 && send(pair[0], "y", 1, MSG_OOB | MSG_DONTWAIT) == 1) many++;
    CHECK(errno == EAGAIN && many > 0 && many < 10000000);
    CHECK(shutdown(pair[0], SHUT_WR) == 0);
    FAILS(send(pair[0], "z", 1, MSG_OOB | MSG_NOSIGNAL), EPIPE);
    close(pair[0]), close(pair[1]), close(listens);
}

int main(int count, char **arguments) {
    static const struct part parts[] = {{"along", along}, {"rooms", rooms}, {"ends", ends}, {"breaks", breaks}, {"marks", marks}};
    PLAY(parts, count, arguments);
    return 0;
}
