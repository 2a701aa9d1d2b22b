// Calls that are filtered (`seccomp`) and what a user may have: a line for each part with how many checks failed.
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"

#define LOAD(what) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, what))
#define SAY(what) BPF_STMT(BPF_RET | BPF_K, (what))
#define IF(what, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (what), (yes), (no))
#define ADD(flags, ...) add(flags, (struct sock_filter[]){__VA_ARGS__}, sizeof((struct sock_filter[]){__VA_ARGS__}) / sizeof(struct sock_filter))

static long seccomp(unsigned what, unsigned flags, void *with) { return syscall(SYS_seccomp, what, flags, with); }

static long add(unsigned flags, struct sock_filter *steps, unsigned short many) {
    struct sock_fprog program = {many, steps};
    return seccomp(SECCOMP_SET_MODE_FILTER, flags, &program);
}

// This call is answered so, all others are made.
static long answers(long call, unsigned what) { return ADD(0, LOAD(nr), IF(call, 0, 1), SAY(what), SAY(SECCOMP_RET_ALLOW)); }

// How a child ends, as `wait` says it.
static int child(int (*work)(void)) {
    pid_t pid = fork();
    if (pid == 0) {
        wrong = 0;
        int code = work();
        _exit(code + 100 * wrong);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}
#define EXITS(work, code) CHECK(child(work) == (code) << 8)
#define ENDS(work, signal) CHECK((child(work) & 0x7f) == (signal))

// A line of what the kernel says of this process.
static int status_of(const char *name) {
    char line[256];
    int value = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':') value = atoi(line + strlen(name) + 1);
    if (file) fclose(file);
    return value;
}

static int one_error(void) {
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && status_of("NoNewPrivs") == 1 && status_of("Seccomp") == 0);
    CHECK(answers(SYS_getppid, SECCOMP_RET_ERRNO | EXDEV) == 0 && prctl(PR_GET_SECCOMP) == 2);
    CHECK(status_of("Seccomp") == 2 && status_of("Seccomp_filters") == 1);
    FAILS(syscall(SYS_getppid), EXDEV);
    CHECK(syscall(SYS_getpid) > 0);
    // The hardest counts, and of equals the newest. An error 0 is the answer 0.
    CHECK(answers(SYS_getppid, SECCOMP_RET_ALLOW) == 0 && status_of("Seccomp_filters") == 2);
    FAILS(syscall(SYS_getppid), EXDEV);
    CHECK(answers(SYS_getppid, SECCOMP_RET_ERRNO | 0) == 0 && syscall(SYS_getppid) == 0);
    CHECK(answers(SYS_getppid, SECCOMP_RET_ERRNO | 60000) == 0 && (errno = 0, syscall(SYS_getppid) == -1 && errno == 4095));
    // A child has them too, and what it runs.
    if (fork() == 0) _exit(syscall(SYS_getppid) == -1);
    int status;
    CHECK(wait(&status) > 0 && WEXITSTATUS(status) == 1);
    return 5;
}

// What a filter sees: arguments, from where, and for which kind of machine.
static int what_is_seen(void) {
    CHECK(ADD(0, LOAD(arch), IF(AUDIT_ARCH_X86_64, 1, 0), SAY(SECCOMP_RET_KILL_PROCESS), LOAD(nr), IF(SYS_dup, 0, 7), LOAD(args[0]), IF(77, 1, 0),
              SAY(SECCOMP_RET_ALLOW), BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5]) + 4), BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 1),
              BPF_STMT(BPF_ALU | BPF_OR | BPF_K, SECCOMP_RET_ERRNO), BPF_STMT(BPF_RET | BPF_A, 0), SAY(SECCOMP_RET_ALLOW)) == 0);
    FAILS(syscall(SYS_dup, 77, 0, 0, 0, 0, 11UL << 32), 12);
    FAILS(syscall(SYS_dup, -1), EBADF);
    // Words that are kept, two registers, and the length of what is seen.
    CHECK(ADD(0, LOAD(nr), IF(SYS_getsid, 0, 8), BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_STMT(BPF_ST, 3), BPF_STMT(BPF_LD | BPF_IMM, 5),
              BPF_STMT(BPF_MISC | BPF_TAX, 0), BPF_STMT(BPF_LD | BPF_MEM, 3), BPF_STMT(BPF_ALU | BPF_DIV | BPF_X, 0),
              BPF_STMT(BPF_ALU | BPF_XOR | BPF_K, SECCOMP_RET_ERRNO), BPF_STMT(BPF_RET | BPF_A, 0), SAY(SECCOMP_RET_ALLOW)) == 0);
    FAILS(syscall(SYS_getsid, 0), 64 / 5);
    return 5;
}

static int all_ends(void) {
    answers(SYS_getppid, SECCOMP_RET_KILL_PROCESS);
    syscall(SYS_getppid);
    return 5;
}

static int one_ends(void) {
    answers(SYS_getppid, SECCOMP_RET_KILL_THREAD);
    syscall(SYS_getppid);
    return 5;
}

static int nobody_knows(void) {
    answers(SYS_getppid, 0x1230000);
    syscall(SYS_getppid);
    return 5;
}

static void *falls(void *unused) {
    answers(SYS_getppid, SECCOMP_RET_KILL_THREAD);
    syscall(SYS_getppid);
    exit(9);
}

// A thread that is ended, and its process goes on; its own filter is its own.
static int a_thread_ends(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, 0, falls, 0) == 0 && pthread_join(thread, 0) == 0);
    CHECK(syscall(SYS_getppid) > 0);
    return 5;
}

static siginfo_t heard;
static long was_rax;

static void on(int signal, siginfo_t *info, void *context) {
    heard = *info;
    was_rax = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX];
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 321;
}

// A trap says which call it was, and the handler answers in its stead.
static int traps(void) {
    struct sigaction action = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSYS, &action, 0) == 0 && answers(SYS_getppid, SECCOMP_RET_TRAP | 1234) == 0);
    CHECK(syscall(SYS_getppid) == 321 && was_rax == SYS_getppid);
    CHECK(heard.si_signo == SIGSYS && heard.si_code == 1 && heard.si_errno == 1234);
    CHECK(heard.si_syscall == SYS_getppid && heard.si_arch == AUDIT_ARCH_X86_64 && heard.si_call_addr != 0);
    return 5;
}

static int traps_unheard(void) {
    answers(SYS_getppid, SECCOMP_RET_TRAP);
    syscall(SYS_getppid);
    return 5;
}

static int strict_writes(void) {
    int pipes[2];
    char byte = 0;
    CHECK(pipe(pipes) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    CHECK(write(pipes[1], "x", 1) == 1 && read(pipes[0], &byte, 1) == 1 && byte == 'x');
    syscall(SYS_exit, wrong ? 9 : 6);
    return 9;
}

static int strict_asks(void) {
    seccomp(SECCOMP_SET_MODE_STRICT, 0, 0);
    syscall(SYS_getppid);
    return 9;
}

static int not_root(void) {
    if (getuid() == 0) CHECK(setuid(4321) == 0);
    FAILS(ADD(0, SAY(SECCOMP_RET_ALLOW)), EACCES);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ADD(0, SAY(SECCOMP_RET_ALLOW)) == 0);
    FAILS(seccomp(SECCOMP_SET_MODE_STRICT, 0, 0), EINVAL);
    return 5;
}

static void filters(void) {
    EXITS(one_error, 5);
    EXITS(what_is_seen, 5);
    ENDS(all_ends, SIGSYS);
    ENDS(one_ends, SIGSYS);
    ENDS(nobody_knows, SIGSYS);
    EXITS(a_thread_ends, 5);
    EXITS(traps, 5);
    ENDS(traps_unheard, SIGSYS);
    EXITS(strict_writes, 6);
    ENDS(strict_asks, SIGKILL);
    EXITS(not_root, 5);
}

static int bad_filters(void) {
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    FAILS(add(0, 0, 0), EINVAL);
    FAILS(add(0, 0, 4097), EINVAL);
    FAILS(add(0, (void *)8, 1), EFAULT);
    FAILS(seccomp(SECCOMP_SET_MODE_FILTER, 0, (void *)8), EFAULT);
    FAILS(seccomp(99, 0, 0), EINVAL);
    FAILS(seccomp(SECCOMP_SET_MODE_STRICT, 1, 0), EINVAL);
    FAILS(prctl(PR_SET_SECCOMP, 9, 0), EINVAL);
    FAILS(ADD(0x100, SAY(SECCOMP_RET_ALLOW)), EINVAL);
    // It does not end, reads beside what is seen, or what was not kept, divides by nothing, or is no such program.
    FAILS(ADD(0, LOAD(nr)), EINVAL);
    FAILS(ADD(0, IF(0, 1, 0), SAY(0)), EINVAL);
    FAILS(ADD(0, BPF_STMT(BPF_JMP | BPF_JA, 1), SAY(0)), EINVAL);
    FAILS(ADD(0, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64), SAY(0)), EINVAL);
    FAILS(ADD(0, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), SAY(0)), EINVAL);
    FAILS(ADD(0, BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), SAY(0)), EINVAL);
    FAILS(ADD(0, BPF_STMT(BPF_LD | BPF_MEM, 3), SAY(0)), EINVAL);
    FAILS(ADD(0, IF(0, 0, 1), BPF_STMT(BPF_ST, 3), BPF_STMT(BPF_LD | BPF_MEM, 3), SAY(0)), EINVAL);
    FAILS(ADD(0, BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0), SAY(0)), EINVAL);
    FAILS(ADD(0, BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 32), SAY(0)), EINVAL);
    FAILS(ADD(0, BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, 3), SAY(0)), EINVAL);
    // What may be said.
    unsigned is = SECCOMP_RET_TRAP, is_not = 0x1230000;
    CHECK(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &is) == 0);
    FAILS(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &is_not), EOPNOTSUPP);
    // So many that no more go in.
    struct sock_filter many[4096];
    for (int i = 0; i < 4096; i++) many[i] = (struct sock_filter)SAY(SECCOMP_RET_ALLOW);
    int went = 0;
    while (went < 20 && add(0, many, 4000) == 0) went++;
    CHECK(went > 1 && went < 9 && errno == ENOMEM);
    return 5;
}

static int told[2], asked[2];

static void *waits(void *unused) {
    char byte;
    CHECK(write(told[1], "x", 1) == 1 && read(asked[0], &byte, 1) == 1);
    // Filtered by another thread meanwhile.
    return (void *)(syscall(SYS_getppid) == -1 && errno == EXDEV && prctl(PR_GET_SECCOMP) == 2 ? 1L : 2L);
}

static void *differs(void *unused) {
    char byte;
    CHECK(ADD(0, SAY(SECCOMP_RET_ALLOW)) == 0 && write(told[1], "x", 1) == 1 && read(asked[0], &byte, 1) == 1);
    return 0;
}

// All threads at once, or none if one has filters of its own.
static int together(void) {
    pthread_t thread;
    char byte;
    void *answer = 0;
    CHECK(pipe(told) == 0 && pipe(asked) == 0);
    CHECK(pthread_create(&thread, 0, waits, 0) == 0 && read(told[0], &byte, 1) == 1);
    CHECK(ADD(SECCOMP_FILTER_FLAG_TSYNC, LOAD(nr), IF(SYS_getppid, 0, 1), SAY(SECCOMP_RET_ERRNO | EXDEV), SAY(SECCOMP_RET_ALLOW)) == 0);
    CHECK(write(asked[1], "x", 1) == 1 && pthread_join(thread, &answer) == 0 && answer == (void *)1);
    CHECK(pthread_create(&thread, 0, differs, 0) == 0 && read(told[0], &byte, 1) == 1);
    CHECK(ADD(SECCOMP_FILTER_FLAG_TSYNC, SAY(SECCOMP_RET_ALLOW)) > 1);
    FAILS(ADD(SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH, SAY(SECCOMP_RET_ALLOW)), ESRCH);
    CHECK(write(asked[1], "x", 1) == 1 && pthread_join(thread, 0) == 0);
    return 5;
}

static int asks_tracer(void) {
    answers(SYS_getppid, SECCOMP_RET_TRACE | 77);
    // Nobody traces it yet: such a call is not there.
    FAILS(syscall(SYS_getppid), ENOSYS);
    CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0 && raise(SIGSTOP) == 0);
    CHECK(syscall(SYS_getppid) == getpid());
    errno = 0;
    CHECK(syscall(SYS_getppid) == 55);
    return 5;
}

// A tracer looks at what a filter has it look at, makes another call of it, or answers itself.
static void tracers(void) {
    pid_t pid = fork();
    if (pid == 0) {
        wrong = 0;
        int code = asks_tracer();
        _exit(code + 100 * wrong);
    }
    int status = -1;
    unsigned long message = 0;
    struct user_regs_struct registers;
    CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    CHECK(ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL) == 0 && ptrace(PTRACE_CONT, pid, 0, 0) == 0);
    for (int turn = 0; turn < 2; turn++) {
        CHECK(waitpid(pid, &status, 0) == pid && status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8));
        CHECK(ptrace(PTRACE_GETEVENTMSG, pid, 0, &message) == 0 && message == 77);
        CHECK(ptrace(PTRACE_GETREGS, pid, 0, &registers) == 0 && registers.orig_rax == SYS_getppid);
        registers.orig_rax = turn ? -1 : SYS_getpid;
        if (turn) registers.rax = 55;
        CHECK(ptrace(PTRACE_SETREGS, pid, 0, &registers) == 0 && ptrace(PTRACE_CONT, pid, 0, 0) == 0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 5 << 8);
}

static void refused(void) {
    EXITS(bad_filters, 5);
    EXITS(together, 5);
}

static int stays_asleep(void) {
    pause();
    return 0;
}

// As many as a user may have, whatever they are; who has too many runs no other program. Root has as many as there can be.
static int has_two(void) {
    struct rlimit two = {2, 3}, more = {2, 4}, last;
    CHECK(setrlimit(RLIMIT_NPROC, &two) == 0);
    if (getuid() == 0) {
        for (int i = 0; i < 3; i++) {
            pid_t pid = fork();
            if (pid == 0) _exit(0);
            CHECK(pid > 0 && waitpid(pid, 0, 0) == pid);
        }
        CHECK(setuid(54321) == 0);
    }
    FAILS(setrlimit(RLIMIT_NPROC, &more), EPERM);
    pid_t first = fork();
    if (first == 0) _exit(stays_asleep());
    CHECK(first > 0);
    FAILS(fork(), EAGAIN);
    pthread_t thread;
    CHECK(pthread_create(&thread, 0, falls, 0) == EAGAIN);
    // Who has ended is one still, until somebody has waited for it.
    CHECK(kill(first, SIGKILL) == 0);
    siginfo_t info;
    CHECK(waitid(P_PID, first, &info, WEXITED | WNOWAIT) == 0);
    FAILS(fork(), EAGAIN);
    CHECK(waitpid(first, 0, 0) == first);
    pid_t second = fork();
    if (second == 0) _exit(0);
    CHECK(second > 0 && waitpid(second, 0, 0) == second && getrlimit(RLIMIT_NPROC, &last) == 0 && last.rlim_max == 3);
    return 5;
}

static int too_many_to_run(void) {
    struct rlimit one = {1, 1};
    char *arguments[] = {"none", 0};
    pid_t others[2];
    int are[2];
    char byte;
    CHECK(pipe(are) == 0);
    for (int i = 0; i < 2; i++) {
        if ((others[i] = fork()) == 0) {
            CHECK(setuid(54322) == 0 && write(are[1], "x", 1) == 1);
            _exit(stays_asleep());
        }
        CHECK(read(are[0], &byte, 1) == 1);
    }
    CHECK(setrlimit(RLIMIT_NPROC, &one) == 0 && setuid(54322) == 0);
    FAILS(execv("/nowhere", arguments), EAGAIN);
    for (int i = 0; i < 2; i++) CHECK(kill(others[i], SIGKILL) == 0 && waitpid(others[i], 0, 0) == others[i]);
    FAILS(execv("/nowhere", arguments), ENOENT);
    return 5;
}

static void many(void) {
    // Of whoever is not root nobody knows here how many there are already.
    if (getuid()) return;
    EXITS(has_two, 5);
    EXITS(too_many_to_run, 5);
}

int main(int count, char **arguments) {
    const struct part parts[] = {{"filters", filters}, {"refused", refused}, {"tracers", tracers}, {"many", many}};
    PLAY(parts, count, arguments);
    return 0;
}
