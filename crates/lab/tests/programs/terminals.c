// Terminals: lines and what is mended in them, signals that characters mean, sizes, whose a terminal is, and its end. And what has come of
// programs that were tried: buffers in a row at a place, pipes of other sizes, connections that nobody waits for, rights that are given up.
// Each in a process of its own: how it ends. The same on any Linux.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "until.h"

// The first check that fails ends the process with its line.
#define CHECK(holds) do { if (!(holds)) { printf("line %d: %s (%d)\n", __LINE__, #holds, errno); fflush(stdout); _exit(99); } } while (0)

static volatile int heard;
static void hear(int signal) { heard = signal; }

static int master(void) {
    int got = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(got >= 0 && grantpt(got) == 0 && unlockpt(got) == 0);
    return got;
}

static int slave_of(int master) {
    int got = open(ptsname(master), O_RDWR | O_NOCTTY);
    CHECK(got >= 0);
    return got;
}

// Whether this is there, and nothing else: it comes in pieces, as the kernel has time.
static int sees(int file, const char *wanted) {
    char text[9000];
    struct pollfd wait = {.fd = file, .events = POLLIN};
    int len = 0, all = strlen(wanted);
    while (poll(&wait, 1, len < all ? LONG : 200) == 1 && wait.revents & POLLIN) {
        int got = read(file, text + len, sizeof text - len);
        if (got <= 0) break;
        len += got;
    }
    int same = len == all && memcmp(text, wanted, len) == 0;
    if (!same) printf("there is '%.*s'\n", len, text);
    return same;
}

static void type(int master, const char *text) { CHECK(write(master, text, strlen(text)) == (ssize_t)strlen(text)); }

static int lines(void) {
    int m = master(), s = slave_of(m);
    char line[100];
    CHECK(isatty(s) && isatty(m) && strncmp(ptsname(m), "/dev/pts/", 9) == 0 && strcmp(ttyname(s), ptsname(m)) == 0);
    struct stat found;
    CHECK(fstat(s, &found) == 0 && S_ISCHR(found.st_mode) && found.st_rdev >> 8 == 136 && lseek(s, 0, SEEK_CUR) == -1 && errno == ESPIPE);
    type(m, "hex\177lp\rtwo wrong words\027\027\027a\tb\177\177c\nend\004");
    CHECK(sees(m, "hex\b \blp\r\ntwo wrong words\b \b\b \b\b \b\b \b\b \b\b \b\b \b\b \b\b \b\b \b\b \b\b \b\b \b\b \b\b \ba\tb\b \b\b\b\b\b\b\b\bc\r\nend"));
    CHECK(read(s, line, 3) == 3 && memcmp(line, "hel", 3) == 0 && read(s, line, 100) == 2 && memcmp(line, "p\n", 2) == 0);
    CHECK(read(s, line, 100) == 3 && memcmp(line, "ac\n", 3) == 0 && read(s, line, 100) == 3 && memcmp(line, "end", 3) == 0);
    type(m, "\004");
    CHECK(read(s, line, 100) == 0);
    CHECK(write(s, "a\nb\tc", 5) == 5 && sees(m, "a\r\nb\tc"));
    // As old programs have it.
    unsigned short old[9];
    CHECK(ioctl(s, 0x5405, old) == 0 && old[3] & ICANON && (unsigned char)old[4] == 0 && old[4] >> 8 == 3);
    old[3] &= ~ECHO;
    CHECK(ioctl(s, 0x5406, old) == 0);
    // Without lines.
    struct termios set;
    CHECK(tcgetattr(s, &set) == 0 && set.c_lflag & ICANON && !(set.c_lflag & ECHO) && set.c_cc[VMIN] == 1 && set.c_iflag & ICRNL && set.c_cc[VINTR] == 3);
    cfmakeraw(&set);
    set.c_cc[VMIN] = 0;
    CHECK(tcsetattr(s, TCSANOW, &set) == 0 && tcgetattr(m, &set) == 0 && !(set.c_lflag & ECHO));
    CHECK(read(s, line, 100) == 0);
    set.c_cc[VMIN] = 3;
    CHECK(tcsetattr(s, TCSANOW, &set) == 0);
    type(m, "x\r");
    int there = -1;
    struct pollfd look = {.fd = s, .events = POLLIN | POLLOUT};
    CHECK(UNTIL(ioctl(s, FIONREAD, &there) == 0 && there == 2));
    type(m, "\003");
    CHECK(poll(&look, 1, LONG) == 1 && look.revents == (POLLIN | POLLOUT) && read(s, line, 100) == 3 && memcmp(line, "x\r\003", 3) == 0);
    CHECK(fcntl(s, F_SETFL, O_NONBLOCK) == 0 && read(s, line, 100) == -1 && errno == EAGAIN);
    CHECK(write(s, "\n", 1) == 1 && sees(m, "\n"));
    set.c_cc[VMIN] = 0;
    set.c_cc[VTIME] = 1;
    CHECK(fcntl(s, F_SETFL, 0) == 0 && tcsetattr(s, TCSAFLUSH, &set) == 0 && read(s, line, 100) == 0);
    return 0;
}

static int signals(void) {
    int m = master();
    pid_t child = fork();
    if (child == 0) {
        char line[10];
        struct sigaction action = {.sa_handler = hear};
        int group, none = open("/dev/tty", O_RDWR), back;
        CHECK(none >= 0 || errno == ENXIO);
        CHECK(setsid() == getpid() && open("/dev/tty", O_RDWR) == -1 && errno == ENXIO);
        int s = open(ptsname(m), O_RDWR);
        CHECK(s >= 0 && tcgetpgrp(s) == getpid() && tcgetsid(s) == getpid() && ioctl(s, TIOCSCTTY, 0) == 0);
        CHECK((back = open("/dev/tty", O_RDWR)) >= 0 && isatty(back) && write(back, "OPN", 3) == 3);
        CHECK(ioctl(m, TIOCGPGRP, &group) == 0 && group == getpid());
        CHECK(sigaction(SIGINT, &action, 0) == 0 && sigaction(SIGWINCH, &action, 0) == 0 && sigaction(SIGTTOU, &action, 0) == 0);
        CHECK(write(s, "r", 1) == 1 && read(s, line, 10) == -1 && errno == EINTR && heard == SIGINT);
        CHECK(write(s, "w", 1) == 1 && read(s, line, 10) == -1 && errno == EINTR && heard == SIGWINCH);
        struct winsize size;
        struct termios set;
        CHECK(tcgetattr(s, &set) == 0);
        CHECK(ioctl(s, TIOCGWINSZ, &size) == 0 && size.ws_row == 7 && size.ws_col == 9);
        // A group behind may not read, and stops.
        pid_t behind = fork();
        if (behind == 0) {
            signal(SIGTTOU, SIG_DFL);
            setpgid(0, 0);
            CHECK(tcsetattr(s, TCSANOW, &set) == 0);
            char byte;
            char both[2];
            int got = read(s, both, 2);
            got += read(s, both + 1, 1);
            (void)byte;
            _exit(got == 3 ? both[0] + both[1] : 98);
        }
        setpgid(behind, behind);
        int status;
        CHECK(waitpid(behind, &status, WUNTRACED) == behind && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTOU);
        // In front it goes on; behind again, it may not read.
        CHECK(tcsetpgrp(s, behind) == 0 && kill(-behind, SIGCONT) == 0);
        signal(SIGTTOU, SIG_IGN);
        CHECK(UNTIL(state_of(behind) == 'S'));
        CHECK(tcsetpgrp(s, getpid()) == 0);
        type(back, "b");
        CHECK(waitpid(behind, &status, WUNTRACED) == behind && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTIN);
        CHECK(sigaction(SIGTTOU, &action, 0) == 0);
        CHECK(tcsetpgrp(s, behind) == 0 && kill(-behind, SIGCONT) == 0 && write(back, "f", 1) == 1);
        CHECK(waitpid(behind, &status, 0) == behind && WIFEXITED(status) && WEXITSTATUS(status) == 'g' + '-');
        // Who sets the group from behind is told to stop, unless nobody would let it go on, or it does not hear.
        CHECK(tcsetpgrp(s, getpid()) == -1 && errno == ENOTTY && tcsetattr(s, TCSANOW, &set) == -1 && errno == EIO);
        signal(SIGTTOU, SIG_IGN);
        CHECK(tcsetpgrp(s, getpid()) == 0 && tcsetpgrp(s, 999999) == -1 && errno == ESRCH);
        CHECK(write(back, "e", 1) == 1);
        pause();
        _exit(97);
    }
    char got[10];
    struct winsize size = {.ws_row = 7, .ws_col = 9};
    struct pollfd wait = {.fd = m, .events = POLLIN};
    const char *all = "OPNrwbfe";
    for (const char *next = all; *next;) {
        CHECK(poll(&wait, 1, LONG) == 1 && read(m, got, 1) == 1);
        // What is typed is there as well.
        if (*got != *next) continue;
        next++;
        // A signal that comes before it reads interrupts nothing.
        if (*got == 'r' || *got == 'w') CHECK(UNTIL(state_of(child) == 'S'));
        if (*got == 'r') type(m, "\003");
        if (*got == 'w') CHECK(ioctl(m, TIOCSWINSZ, &size) == 0);
        if (*got == 'b') type(m, "-\n");
        if (*got == 'f') type(m, "g\n");
        if (*got == 'e') break;
    }
    usleep(50000);
    type(m, "\034");
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGQUIT);
    return 0;
}

static int ends(void) {
    int m = master(), s = slave_of(m);
    struct pollfd look = {.fd = m, .events = POLLIN | POLLOUT};
    char text[100];
    CHECK(write(s, "last", 4) == 4 && close(s) == 0);
    CHECK(poll(&look, 1, LONG) == 1 && look.revents == (POLLIN | POLLOUT | POLLHUP));
    CHECK(read(m, text, 100) == 4 && read(m, text, 100) == -1 && errno == EIO);
    s = slave_of(m);
    CHECK(fcntl(m, F_SETFL, O_NONBLOCK) == 0 && read(m, text, 100) == -1 && errno == EAGAIN);
    char name[64];
    strcpy(name, ptsname(m));
    pid_t child = fork();
    if (child == 0) {
        close(m);
        CHECK(setsid() == getpid() && ioctl(s, TIOCSCTTY, 0) == 0 && write(s, "x", 1) == 1);
        for (;;) pause();
    }
    fcntl(m, F_SETFL, 0);
    CHECK(read(m, text, 100) == 1 && close(m) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGHUP);
    look.fd = s;
    CHECK(read(s, text, 100) == 0 && write(s, "x", 1) == -1 && errno == EIO && open(name, O_RDWR) == -1 && !isatty(s));
    CHECK(poll(&look, 1, 0) == 1 && look.revents == (POLLIN | POLLOUT | POLLERR | POLLHUP));
    // One that nobody has said may be opened.
    m = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    CHECK(m >= 0 && open(ptsname(m), O_RDWR | O_NOCTTY) == -1 && errno == EIO);
    return 0;
}

static int in_a_row(void) {
    char name[] = "/tmp/row-XXXXXX", a[5] = {0}, b[5] = {0};
    int file = mkstemp(name), pipes[2];
    CHECK(file >= 0 && unlink(name) == 0);
    struct iovec out[] = {{"one", 3}, {"", 0}, {"two!", 4}}, in[] = {{a, 2}, {b, 4}}, bad[] = {{"ab", 2}, {(void *)8, 2}};
    CHECK(pwritev(file, out, 3, 2) == 7 && lseek(file, 0, SEEK_CUR) == 0 && preadv(file, in, 2, 3) == 6 && strcmp(a, "ne") == 0 && strcmp(b, "two!") == 0);
    CHECK(writev(file, out, 3) == 7 && writev(file, bad, 2) == 2 && lseek(file, 0, SEEK_CUR) == 9);
    CHECK(preadv2(file, in, 2, 0, 0) == 6 && memcmp(a, "on", 2) == 0 && memcmp(b, "etwo", 4) == 0 && preadv2(file, in, 2, 0, 1 << 20) == -1 && errno == EOPNOTSUPP);
    off_t wrong = -1;
    CHECK(sendfile(file, file, &wrong, 1) == -1 && errno == EINVAL);
    // Few bytes go into a pipe in one piece, from however many places they come.
    CHECK(pipe(pipes) == 0 && fcntl(pipes[0], F_GETPIPE_SZ) == 65536 && fcntl(pipes[1], F_SETPIPE_SZ, 5000) == 8192 && fcntl(pipes[0], F_GETPIPE_SZ) == 8192);
    static char much[8192];
    CHECK(fcntl(pipes[1], F_SETFL, O_NONBLOCK) == 0 && write(pipes[1], much, 8192) == 8192 && write(pipes[1], much, 1) == -1 && errno == EAGAIN);
    CHECK(fcntl(pipes[1], F_SETPIPE_SZ, 4096) == -1 && errno == EBUSY && read(pipes[0], much, 4096) == 4096 && read(pipes[0], much, 4096) == 4096);
    CHECK(fcntl(pipes[0], F_SETPIPE_SZ, 4096) == 4096 && write(pipes[1], much, 4094) == 4094 && writev(pipes[1], out, 3) == -1 && errno == EAGAIN);
    CHECK(fcntl(file, F_GETPIPE_SZ) == -1 && errno == EBADF);
    cpu_set_t set;
    CHECK(sched_getaffinity(-1, sizeof set, &set) == -1 && errno == ESRCH);
    return 0;
}

static int later(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listens = socket(AF_INET, SOCK_STREAM, 0), guest = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), error = -1;
    CHECK(bind(listens, (void *)&at, len) == 0 && listen(listens, 5) == 0 && getsockname(listens, (void *)&at, &len) == 0);
    CHECK(connect(guest, (void *)&at, len) == -1 && errno == EINPROGRESS);
    struct pollfd look = {.fd = guest, .events = POLLOUT};
    CHECK(poll(&look, 1, LONG) == 1 && look.revents == POLLOUT && connect(guest, (void *)&at, len) == 0 && connect(guest, (void *)&at, len) == -1 && errno == EISCONN);
    CHECK(close(listens) == 0);
    guest = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(connect(guest, (void *)&at, len) == -1 && errno == EINPROGRESS);
    look = (struct pollfd){.fd = guest, .events = POLLIN | POLLOUT};
    CHECK(poll(&look, 1, LONG) == 1 && look.revents == (POLLIN | POLLOUT | POLLERR | POLLHUP));
    len = sizeof error;
    CHECK(getsockopt(guest, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNREFUSED);
    CHECK(getsockopt(guest, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
    CHECK(connect(guest, (void *)&at, sizeof at) == -1 && errno == ECONNABORTED);
    guest = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(guest, (void *)&at, sizeof at) == -1 && errno == ECONNREFUSED);
    static struct pollfd many[1000];
    for (int i = 0; i < 1000; i++) many[i] = (struct pollfd){.fd = -1};
    CHECK(poll(many, 1000, 0) == 0);
    return 0;
}

static int rights(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct now[2], none[2] = {{0}};
    CHECK(syscall(SYS_capget, &head, now) == 0);
    if (getuid() != 0) return 0;
    CHECK(now[0].effective & 1 << CAP_SETUID && now[0].permitted & 1 << CAP_CHOWN && prctl(PR_CAPBSET_READ, CAP_CHOWN) == 1);
    now[0].effective &= ~(1 << CAP_CHOWN);
    now[0].permitted &= ~(1 << CAP_CHOWN);
    CHECK(syscall(SYS_capset, &head, now) == 0);
    now[0].permitted |= 1 << CAP_CHOWN;
    CHECK(syscall(SYS_capset, &head, now) == -1 && errno == EPERM);
    CHECK(prctl(PR_CAPBSET_DROP, CAP_KILL) == 0 && prctl(PR_CAPBSET_READ, CAP_KILL) == 0);
    CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0 && prctl(PR_GET_KEEPCAPS) == 1 && setresuid(5, 5, 5) == 0);
    CHECK(syscall(SYS_capget, &head, now) == 0 && now[0].effective == 0 && now[0].permitted & 1 << CAP_SETUID);
    // Who has the right to may be of another group, whoever it is.
    now[0].effective = 1 << CAP_SETGID;
    CHECK(syscall(SYS_capset, &head, now) == 0 && setresgid(6, 6, 6) == 0 && setresuid(6, 6, 6) == -1 && errno == EPERM);
    CHECK(syscall(SYS_capset, &head, none) == 0 && syscall(SYS_capget, &head, now) == 0 && now[0].permitted == 0);
    head.version = 1;
    CHECK(syscall(SYS_capget, &head, now) == -1 && errno == EINVAL && head.version == _LINUX_CAPABILITY_VERSION_3);
    return 0;
}

// Who opens a pipe with a name before anybody writes there waits for bytes, and has not come to their end.
static int before(void) {
    char name[] = "/tmp/named-XXXXXX", byte;
    CHECK(mkdtemp(name) && chdir(name) == 0 && mkfifo("f", 0600) == 0);
    int reads = open("f", O_RDONLY | O_NONBLOCK), set = epoll_create1(0);
    struct pollfd look = {.fd = reads, .events = POLLIN};
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(poll(&look, 1, 0) == 0 && epoll_ctl(set, EPOLL_CTL_ADD, reads, &event) == 0 && epoll_wait(set, &event, 1, 0) == 0 && read(reads, &byte, 1) == 0);
    int writes = open("f", O_WRONLY);
    CHECK(poll(&look, 1, 0) == 0 && read(reads, &byte, 1) == -1 && errno == EAGAIN && write(writes, "x", 1) == 1 && poll(&look, 1, LONG) == 1 && look.revents == POLLIN);
    CHECK(read(reads, &byte, 1) == 1 && close(writes) == 0 && poll(&look, 1, LONG) == 1 && look.revents == POLLHUP && epoll_wait(set, &event, 1, 0) == 1 && event.events == EPOLLHUP);
    int again = open("f", O_RDONLY | O_NONBLOCK);
    look.fd = again;
    CHECK(poll(&look, 1, 0) == 0 && unlink("f") == 0 && rmdir(name) == 0);
    return 0;
}

// Who wants to hears that its parent has ended.
static int orphans(void) {
    int pipes[2], told = -1, status;
    char byte;
    CHECK(pipe(pipes) == 0);
    pid_t child = fork();
    if (child == 0) {
        pid_t below = fork();
        if (below == 0) {
            signal(SIGUSR1, hear);
            CHECK(prctl(PR_SET_PDEATHSIG, SIGUSR1) == 0 && prctl(PR_GET_PDEATHSIG, &told) == 0 && told == SIGUSR1 && prctl(PR_SET_PDEATHSIG, 65) == -1 && errno == EINVAL);
            CHECK(write(pipes[1], "r", 1) == 1);
            CHECK(UNTIL(heard == SIGUSR1) && write(pipes[1], "h", 1) == 1);
            _exit(0);
        }
        CHECK(read(pipes[0], &byte, 1) == 1 && byte == 'r');
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0 && read(pipes[0], &byte, 1) == 1 && byte == 'h');
    CHECK(syscall(SYS_reboot, 1, 2, 3, 4) == -1 && (errno == EINVAL || errno == EPERM));
    return 0;
}

// What the master reads begins with a byte that says what it is.
static int packets(void) {
    int m = posix_openpt(O_RDWR | O_NOCTTY), on = 1, off = 0, now = 0;
    char got[8];
    CHECK(m >= 0 && grantpt(m) == 0 && unlockpt(m) == 0);
    int s = open(ptsname(m), O_RDWR | O_NOCTTY);
    CHECK(s >= 0 && ioctl(m, TIOCPKT, &on) == 0 && ioctl(m, TIOCGPKT, &now) == 0 && now == 1);
    CHECK(write(s, "ab", 2) == 2 && read(m, got, 8) == 3 && got[0] == TIOCPKT_DATA && got[1] == 'a' && got[2] == 'b');
    CHECK(ioctl(m, TIOCPKT, &off) == 0 && write(s, "c", 1) == 1 && read(m, got, 8) == 1 && got[0] == 'c');
    CHECK(ioctl(s, TIOCPKT, &on) == -1 && errno == ENOTTY);
    return 0;
}

int main(void) {
    // Whoever starts this may ignore some, as a shell does for what runs behind.
    for (int each = 1; each < 32; each++) signal(each, SIG_DFL);
    const struct { const char *name; int (*run)(void); } all[] = {{"lines", lines}, {"signals", signals}, {"ends", ends}, {"in a row", in_a_row}, {"before", before}, {"later", later}, {"rights", rights}, {"orphans", orphans}, {"packets", packets}};
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
