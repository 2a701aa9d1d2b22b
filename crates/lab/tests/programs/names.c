// Names: of ports at addresses, of files that have none or have lost theirs, of what is open, and who may do what with them: each with checks of
// its own, and a line for each part with how many failed.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/select.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "until.h"

static struct sockaddr_in at(const char *host, int port) {
    struct sockaddr_in all = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &all.sin_addr);
    return all;
}

static int same(struct sockaddr_in a, struct sockaddr_in b) {
    return a.sin_family == b.sin_family && a.sin_port == b.sin_port && a.sin_addr.s_addr == b.sin_addr.s_addr;
}

typedef int (*Asks)(int, struct sockaddr *, socklen_t *);
static struct sockaddr_in asked(Asks asks, int fd) {
    struct sockaddr_in found = {0};
    socklen_t len = sizeof found;
    CHECK(asks(fd, (struct sockaddr *)&found, &len) == 0 && len == sizeof found);
    return found;
}

static int bound(int kind, const char *host, int port) {
    int fd = socket(AF_INET, kind, 0);
    struct sockaddr_in own = at(host, port);
    if (bind(fd, (struct sockaddr *)&own, sizeof own) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int option(int fd, int level, int what) {
    int value = -1;
    socklen_t len = sizeof value;
    return getsockopt(fd, level, what, &value, &len) == 0 ? value : -errno;
}

// A line of the table of streams with this port of its own, in this state.
static int listed(int port, const char *state) {
    char line[256], wanted[8];
    int count = 0;
    snprintf(wanted, sizeof wanted, ":%04X", port);
    FILE *table = fopen("/proc/net/tcp", "r");
    while (table && fgets(line, sizeof line, table)) {
        char *own = strchr(line, ':');
        own = own ? strchr(own + 1, ':') : NULL;
        count += own && !strncmp(own, wanted, 5) && !strncmp(own + 20, state, 2);
    }
    if (table)
        fclose(table);
    return count;
}

static void ports(void) {
    int one = bound(SOCK_STREAM, "127.0.0.1", 0);
    struct sockaddr_in first = asked(getsockname, one);
    int port = ntohs(first.sin_port);
    CHECK(listen(one, 5) == 0 && listed(port, "0A") == 1);
    FAILS(bound(SOCK_STREAM, "127.0.0.1", port), EADDRINUSE);
    FAILS(bound(SOCK_STREAM, "0.0.0.0", port), EADDRINUSE);
    int two = bound(SOCK_STREAM, "127.0.0.2", port);
    CHECK(two >= 0 && listen(two, 5) == 0);
    int long_one = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_loopback};
    if (long_one >= 0 && bind(long_one, (struct sockaddr *)&six, sizeof six) != 0)
        CHECK(errno == EADDRNOTAVAIL);
    close(long_one);
    // Whoever connects knows to whom, and is found where it went.
    int client = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in second = at("127.0.0.2", port);
    CHECK(connect(client, (struct sockaddr *)&second, sizeof second) == 0);
    CHECK(same(asked(getpeername, client), second));
    CHECK(listed(port, "01") == 1);
    struct pollfd polled = {.fd = one, .events = POLLIN};
    CHECK(poll(&polled, 1, 0) == 0);
    int taken = accept(two, NULL, NULL);
    CHECK(same(asked(getsockname, taken), second) && same(asked(getpeername, taken), asked(getsockname, client)));
    int own = ntohs(asked(getsockname, client).sin_port);
    CHECK(listed(own, "01") == 1 && listed(port, "01") == 1);
    CHECK(shutdown(client, SHUT_WR) == 0);
    CHECK(UNTIL(listed(own, "05") == 1) && listed(port, "08") == 1);
    char none[40];
    socklen_t len = sizeof none;
    CHECK(getsockopt(client, IPPROTO_IP, IP_OPTIONS, none, &len) == 0 && len == 0);
    CHECK(option(client, SOL_SOCKET, SO_RCVLOWAT) == 1 && option(client, IPPROTO_TCP, TCP_KEEPIDLE) == 7200);
    CHECK(option(client, IPPROTO_TCP, TCP_KEEPINTVL) == 75 && option(client, IPPROTO_TCP, TCP_KEEPCNT) == 9);
    CHECK(fcntl(client, F_GETFL) == O_RDWR && fcntl(taken, F_SETFL, O_NONBLOCK) == 0 && fcntl(taken, F_GETFL) == (O_RDWR | O_NONBLOCK));
    close(client), close(taken), close(one), close(two);
    // Packets: at this address first, then at all.
    int any = socket(AF_INET, SOCK_DGRAM, 0), here = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    setsockopt(any, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), setsockopt(here, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in all = at("0.0.0.0", 0);
    CHECK(bind(any, (struct sockaddr *)&all, sizeof all) == 0);
    port = ntohs(asked(getsockname, any).sin_port);
    int talks = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = at("127.0.0.1", port);
    CHECK(connect(talks, (struct sockaddr *)&to, sizeof to) == 0 && same(asked(getpeername, talks), to));
    CHECK(send(talks, "a", 1, 0) == 1);
    char byte = 0;
    CHECK(UNTIL(recv(any, &byte, 1, MSG_DONTWAIT) == 1) && byte == 'a');
    CHECK(bind(here, (struct sockaddr *)&to, sizeof to) == 0);
    CHECK(send(talks, "b", 1, 0) == 1 && UNTIL(recv(here, &byte, 1, MSG_DONTWAIT) == 1) && byte == 'b');
    CHECK(recv(any, &byte, 1, MSG_DONTWAIT) == -1);
    close(here);
    CHECK(send(talks, "c", 1, 0) == 1 && UNTIL(recv(any, &byte, 1, MSG_DONTWAIT) == 1) && byte == 'c');
    close(any), close(talks);
}

static int ready(int fd) {
    struct pollfd polled = {.fd = fd, .events = POLLIN | POLLRDHUP};
    return poll(&polled, 1, 0) == 1 ? polled.revents : 0;
}

static void joined(int ends[2]) {
    int listener = bound(SOCK_STREAM, "127.0.0.1", 0);
    struct sockaddr_in own = asked(getsockname, listener);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listen(listener, 1) == 0 && connect(ends[0], (struct sockaddr *)&own, sizeof own) == 0);
    ends[1] = accept(listener, NULL, NULL);
    close(listener);
}

// The other end is closed: in peace, with something unread, at once, before it was taken in.
static void ended(void) {
    int ends[2];
    char bytes[8];
    joined(ends), close(ends[1]);
    CHECK(UNTIL(ready(ends[0]) == (POLLIN | POLLRDHUP)) && recv(ends[0], bytes, 8, 0) == 0);
    CHECK(send(ends[0], "x", 1, MSG_NOSIGNAL) == 1);
    CHECK(UNTIL(ready(ends[0]) == (POLLIN | POLLRDHUP | POLLHUP | POLLERR)));
    FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(recv(ends[0], bytes, 8, 0) == 0), close(ends[0]);
    joined(ends);
    CHECK(send(ends[0], "x", 1, 0) == 1 && send(ends[1], "bye", 3, 0) == 3);
    CHECK(UNTIL(ready(ends[0]) == POLLIN && ready(ends[1]) == POLLIN)), close(ends[1]);
    CHECK(UNTIL(ready(ends[0]) == (POLLIN | POLLRDHUP | POLLHUP | POLLERR)));
    CHECK(recv(ends[0], bytes, 8, 0) == 3);
    FAILS(recv(ends[0], bytes, 8, 0), ECONNRESET);
    CHECK(recv(ends[0], bytes, 8, 0) == 0 && ready(ends[0]) == (POLLIN | POLLRDHUP | POLLHUP));
    FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE), close(ends[0]);
    joined(ends);
    struct linger at_once = {.l_onoff = 1};
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0), close(ends[1]);
    CHECK(UNTIL(ready(ends[0]) == (POLLIN | POLLRDHUP | POLLHUP | POLLERR)));
    CHECK(option(ends[0], SOL_SOCKET, SO_ERROR) == ECONNRESET && option(ends[0], SOL_SOCKET, SO_ERROR) == 0);
    CHECK(read(ends[0], bytes, 8) == 0), close(ends[0]);
    int listener = bound(SOCK_STREAM, "127.0.0.1", 0);
    struct sockaddr_in own = asked(getsockname, listener);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listen(listener, 1) == 0 && connect(ends[0], (struct sockaddr *)&own, sizeof own) == 0), close(listener);
    CHECK(UNTIL(ready(ends[0]) == (POLLIN | POLLRDHUP | POLLHUP | POLLERR)));
    FAILS(read(ends[0], bytes, 8), ECONNRESET), close(ends[0]);
    joined(ends);
    CHECK(shutdown(ends[1], SHUT_RD) == 0 && send(ends[0], "x", 1, MSG_NOSIGNAL) == 1), usleep(1000);
    CHECK(send(ends[0], "x", 1, MSG_NOSIGNAL) == 1), close(ends[0]), close(ends[1]);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && send(ends[0], "x", 1, 0) == 1), close(ends[1]);
    CHECK((ready(ends[0]) & POLLHUP) != 0);
    FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    FAILS(recv(ends[0], bytes, 8, 0), ECONNRESET);
    CHECK(recv(ends[0], bytes, 8, 0) == 0), close(ends[0]);
}

// A byte that does not wait until those before it are read.
static void urgent(void) {
    int ends[2];
    char bytes[8] = {0};
    joined(ends);
    FAILS(recv(ends[1], bytes, 8, MSG_OOB), EINVAL);
    CHECK(send(ends[0], "abc", 3, 0) == 3 && send(ends[0], "de!", 3, MSG_OOB) == 3);
    struct pollfd polled = {.fd = ends[1], .events = POLLPRI};
    CHECK(poll(&polled, 1, LONG) == 1 && polled.revents == POLLPRI);
    fd_set reads, excepts;
    struct timeval now = {0};
    FD_ZERO(&reads);
    FD_ZERO(&excepts);
    FD_SET(ends[1], &reads);
    FD_SET(ends[1], &excepts);
    CHECK(select(ends[1] + 1, &reads, NULL, &excepts, &now) == 2 && FD_ISSET(ends[1], &excepts));
    CHECK(recv(ends[1], bytes, 8, MSG_OOB) == 1 && bytes[0] == '!');
    CHECK(poll(&polled, 1, 0) == 0);
    CHECK(recv(ends[1], bytes, 8, 0) == 5 && !memcmp(bytes, "abcde", 5));
    close(ends[0]), close(ends[1]);
}

// A number behind a word in what is said of an open file; -1: no such word.
static long long said(int fd, const char *word, int base) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    int in = open(path, O_RDONLY);
    ssize_t len = in < 0 ? 0 : read(in, text, sizeof text - 1);
    close(in);
    text[len < 0 ? 0 : len] = 0;
    char *found = strstr(text, word);
    return found ? strtoll(found + strlen(word), NULL, base) : -1;
}

static void described(void) {
    int file = open("described", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(write(file, "12345", 5) == 5);
    CHECK(said(file, "pos:", 10) == 5 && said(file, "flags:", 8) == (O_RDWR | O_CLOEXEC | 0100000));
    struct stat stat;
    CHECK(fstat(file, &stat) == 0 && (said(file, "ino:", 10) == (long long)stat.st_ino || said(file, "ino:", 10) == -1));
    int event = eventfd(0x1234, EFD_SEMAPHORE);
    CHECK(said(event, "eventfd-count:", 16) == 0x1234 && said(event, "flags:", 8) == O_RDWR && fcntl(event, F_GETFL) == O_RDWR);
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1), sigaddset(&set, SIGHUP);
    CHECK(said(signalfd(-1, &set, 0), "sigmask:", 16) == 0x201);
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec ask = {.it_value.tv_sec = 1000, .it_interval.tv_nsec = 7};
    CHECK(timerfd_settime(timer, 0, &ask, NULL) == 0);
    CHECK(said(timer, "clockid:", 10) == 1 && said(timer, "it_value: (", 10) / 100 == 9 && said(timer, "it_interval: (0,", 10) == 7);
    int set_of = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLIN, .data.u64 = 0xabc};
    CHECK(epoll_ctl(set_of, EPOLL_CTL_ADD, event, &wanted) == 0);
    CHECK(said(set_of, "tfd:", 10) == event && said(set_of, "data:", 16) == 0xabc);
    int ends[2];
    CHECK(pipe(ends) == 0 && fcntl(ends[0], F_GETFL) == O_RDONLY && fcntl(ends[1], F_GETFL) == O_WRONLY);
    CHECK(said(99, "pos:", 10) == -1 && access("/proc/self/fdinfo/99", F_OK) != 0);
    char path[64], text[128] = {0};
    CHECK(readlink("/proc/self/fd/0", text, sizeof text) > 0);
    int memory = memfd_create("mine", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    memset(text, 0, sizeof text);
    CHECK(readlink(path, text, sizeof text - 1) > 0 && !strcmp(text, "/memfd:mine (deleted)"));
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    unlink("described");
    memset(text, 0, sizeof text);
    CHECK(readlink(path, text, sizeof text - 1) >= 20 && !strcmp(text + strlen(text) - 20, "/described (deleted)"));
    CHECK(access("/proc/self/net/tcp", R_OK) == 0 && access("/proc/self/uid_map", R_OK) == 0);
    for (int fd = 3; fd < 20; fd++)
        close(fd);
}

static int heard(int in, const char *what) {
    char bytes[4096] __attribute__((aligned(8))), all[512] = "";
    ssize_t len = read(in, bytes, sizeof bytes);
    for (ssize_t i = 0; i < len;) {
        struct inotify_event *event = (struct inotify_event *)(bytes + i);
        snprintf(all + strlen(all), sizeof all - strlen(all), "%x:%s ", event->mask, event->len ? event->name : "");
        i += sizeof *event + event->len;
    }
    if (strcmp(all, what) != 0)
        fprintf(stderr, "heard %s, not %s\n", all, what);
    return !strcmp(all, what);
}

static void watched(void) {
    CHECK(mkdir("watched", 0700) == 0);
    int in = inotify_init1(IN_NONBLOCK);
    CHECK(inotify_add_watch(in, "watched", IN_ATTRIB | IN_MODIFY | IN_CREATE | IN_DELETE) == 1);
    int fd = open("watched/a", O_RDWR | O_CREAT, 0600);
    CHECK(heard(in, "100:a "));
    close(open("watched/b", O_WRONLY | O_CREAT | O_TRUNC, 0600));
    CHECK(heard(in, "100:b ") && unlink("watched/b") == 0 && heard(in, "200:b "));
    CHECK(chmod("watched/a", 0640) == 0 && heard(in, "4:a "));
    CHECK(fchmod(fd, 0600) == 0 && heard(in, "4:a "));
    CHECK(chown("watched/a", getuid(), -1) == 0 && heard(in, "4:a "));
    CHECK(utimensat(AT_FDCWD, "watched/a", NULL, 0) == 0 && heard(in, "4:a "));
    CHECK(ftruncate(fd, 10) == 0 && heard(in, "2:a "));
    CHECK(truncate("watched/a", 3) == 0 && heard(in, "2:a "));
    CHECK(chmod("watched", 0755) == 0 && heard(in, "40000004: "));
    close(open("watched/a", O_WRONLY | O_TRUNC));
    CHECK(heard(in, "2:a "));
    CHECK(unlink("watched/a") == 0 && heard(in, "200:a "));
    close(fd), close(in);
    CHECK(rmdir("watched") == 0);
}

static void nameless(void) {
    char path[64];
    struct stat found;
    unlink("named");
    int fd = open(".", O_TMPFILE | O_RDWR, 0640);
    CHECK(fd >= 0 && write(fd, "abc", 3) == 3 && fstat(fd, &found) == 0 && found.st_nlink == 0 && (found.st_mode & 0777) == 0640);
    FAILS(open(".", O_TMPFILE | O_RDONLY, 0600), EINVAL);
    FAILS(open("none", O_TMPFILE | O_RDWR, 0600), ENOENT);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    FAILS(linkat(AT_FDCWD, path, AT_FDCWD, "named", 0), EXDEV);
    CHECK(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW) == 0);
    CHECK(stat("named", &found) == 0 && found.st_nlink == 1 && found.st_size == 3);
    CHECK(unlink("named") == 0);
    FAILS(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW), ENOENT);
    int never = open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600);
    snprintf(path, sizeof path, "/proc/self/fd/%d", never);
    FAILS(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW), ENOENT);
    CHECK(fchmod(fd, 0600) == 0);
    close(fd), close(never);
}

// What somebody may who is not root, nor anybody else; nothing is looked at where this program is not root.
static void rights(void) {
    if (geteuid() != 0)
        return;
    umask(0);
    CHECK(mkdir("/tmp/quietmm-names", 0755) == 0 && mkdir("/tmp/quietmm-names/open", 01777) == 0 && mkdir("/tmp/quietmm-names/closed", 0700) == 0);
    CHECK(chdir("/tmp/quietmm-names") == 0);
    close(open("secret", O_WRONLY | O_CREAT, 0600)), close(open("shared", O_WRONLY | O_CREAT, 0644)), close(open("open/theirs", O_WRONLY | O_CREAT, 0666));
    close(open("closed/x", O_WRONLY | O_CREAT, 0666)), close(open("grouped", O_WRONLY | O_CREAT, 0640)), close(open("run", O_WRONLY | O_CREAT, 0744));
    CHECK(chown("grouped", 0, 1234) == 0);
    FAILS(access("secret", X_OK), EACCES);
    CHECK(access("secret", R_OK | W_OK) == 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        wrong = 0;
        gid_t group = 1234;
        CHECK(setgroups(1, &group) == 0 && setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0);
        FAILS(open("secret", O_RDONLY), EACCES);
        FAILS(open("shared", O_WRONLY), EACCES);
        FAILS(open("shared", O_RDONLY | O_TRUNC), EACCES);
        FAILS(truncate("shared", 0), EACCES);
        CHECK(open("shared", O_RDONLY) >= 0 && open("grouped", O_RDONLY) >= 0 && open("secret", O_PATH) >= 0);
        FAILS(open("grouped", O_RDWR), EACCES);
        FAILS(access("secret", R_OK), EACCES);
        FAILS(access("shared", W_OK), EACCES);
        FAILS(access("run", X_OK), EACCES);
        FAILS(execl("run", "run", NULL), EACCES);
        CHECK(access("shared", R_OK) == 0 && access("closed", F_OK) == 0);
        FAILS(access("closed/x", F_OK), EACCES);
        FAILS(open("closed/none", O_RDONLY), EACCES);
        FAILS(chdir("closed"), EACCES);
        FAILS(open("closed", O_RDONLY | O_DIRECTORY), EACCES);
        FAILS(open("new", O_WRONLY | O_CREAT, 0600), EACCES);
        FAILS(mkdir("new", 0700), EACCES);
        FAILS(mkdir("open", 0700), EEXIST);
        FAILS(symlink("a", "new"), EACCES);
        FAILS(unlink("shared"), EACCES);
        FAILS(rename("shared", "open/mine"), EACCES);
        FAILS(unlink("open/theirs"), EPERM);
        FAILS(rename("open/theirs", "open/mine"), EPERM);
        FAILS(chmod("shared", 0666), EPERM);
        FAILS(utimensat(AT_FDCWD, "shared", NULL, 0), EACCES);
        CHECK(utimensat(AT_FDCWD, "open/theirs", NULL, 0) == 0);
        FAILS(kill(getppid(), 0), EPERM);
        FAILS(kill(getppid(), SIGTERM), EPERM);
        FAILS(sigqueue(getppid(), SIGTERM, (union sigval){0}), EPERM);
        CHECK(kill(getppid(), SIGCONT) == 0 && kill(getpid(), 0) == 0);
        struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
        FAILS(utimensat(AT_FDCWD, "open/theirs", times, 0), EPERM);
        int mine = open("open/mine", O_RDWR | O_CREAT | O_EXCL, 0);
        CHECK(mine >= 0);
        FAILS(open("open/mine", O_RDONLY), EACCES);
        CHECK(chmod("open/mine", 0600) == 0 && rename("open/mine", "open/other") == 0 && unlink("open/other") == 0);
        _exit(wrong);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(unlink("secret") == 0 && unlink("shared") == 0 && unlink("open/theirs") == 0 && unlink("closed/x") == 0 && unlink("grouped") == 0);
    CHECK(unlink("run") == 0 && rmdir("open") == 0 && rmdir("closed") == 0 && chdir("/") == 0 && rmdir("/tmp/quietmm-names") == 0);
}

int main(int count, char **arguments) {
    const struct part parts[] = {{"ports", ports}, {"ended", ended}, {"urgent", urgent}, {"described", described}, {"watched", watched}, {"nameless", nameless}, {"rights", rights}};
    PLAY(parts, count, arguments);
    return 0;
}
