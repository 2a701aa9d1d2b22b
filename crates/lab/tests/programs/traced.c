// Processes that look into others and steer them (`ptrace`), and their memory: a line for each part with how many checks failed.
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"

// As the kernel has it: the C library gives what was peeked as the answer.
static long ask(long request, pid_t pid, unsigned long at, void *data) {
    return syscall(SYS_ptrace, request, pid, at, data);
}
enum { SYSCALL_INFO = 0x420e };

static int wait_for(pid_t pid) {
    int status = -1;
    if (waitpid(pid, &status, __WALL) != pid) return -1;
    return status;
}
// It may tell of a stop first.
static int dies(pid_t pid) {
    int status;
    do status = wait_for(pid);
    while (WIFSTOPPED(status));
    return status == SIGKILL;
}
#define STOPS(pid, code) CHECK(wait_for(pid) == ((code) << 8 | 0x7f))

static struct user_regs_struct registers(pid_t pid) {
    struct user_regs_struct all = {0};
    CHECK(ask(PTRACE_GETREGS, pid, 0, &all) == 0);
    return all;
}

static volatile int words[1024];
static const volatile int fixed[1024] = {42};

__attribute__((noinline)) static int adds(int x) { return words[0] + x; }

// Who asks to be traced, and is led from call to call.
static void calls(void) {
    pid_t child = fork();
    if (child == 0) {
        CHECK(ask(PTRACE_TRACEME, 0, 0, 0) == 0);
        FAILS(ask(PTRACE_TRACEME, 0, 0, 0), EPERM);
        raise(SIGSTOP);
        syscall(SYS_getppid);
        syscall(SYS_dup, 1000);
        syscall(SYS_dup, 2000);
        _exit(adds(3));
    }
    STOPS(child, SIGSTOP);
    siginfo_t info;
    memset(&info, 1, sizeof info);
    CHECK(ask(PTRACE_GETSIGINFO, child, 0, &info) == 0 && info.si_signo == SIGSTOP && info.si_code == SI_TKILL && info.si_pid == child);
    FAILS(ask(PTRACE_LISTEN, child, 0, 0), EIO);
    FAILS(ask(PTRACE_INTERRUPT, child, 0, 0), EIO);
    FAILS(ask(PTRACE_ATTACH, child, 0, 0), EPERM);
    FAILS(ask(9999, child, 0, 0), EIO);
    FAILS(ask(PTRACE_CONT, child, 0, (void *)99), EIO);
    FAILS(ask(PTRACE_SETOPTIONS, child, 0, (void *)0x4000000), EINVAL);
    FAILS(ask(PTRACE_CONT, getpid(), 0, 0), ESRCH);
    struct __ptrace_syscall_info said;
    CHECK(ask(SYSCALL_INFO, child, sizeof said, &said) == 24 && said.op == 0 && said.arch == 0xc000003e);
    CHECK(ask(PTRACE_SETOPTIONS, child, 0, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXIT)) == 0);
    int numbers[4] = {SYS_getppid, SYS_dup, SYS_dup, SYS_exit_group};
    for (int i = 0; i < 4; i++) {
        CHECK(ask(PTRACE_SYSCALL, child, 0, 0) == 0);
        STOPS(child, SIGTRAP | 0x80);
        struct user_regs_struct r = registers(child);
        CHECK((int)r.orig_rax == numbers[i] && r.rax == (unsigned long)-ENOSYS && r.cs == 0x33 && r.ss == 0x2b);
        CHECK(ask(SYSCALL_INFO, child, sizeof said, &said) == 80 && said.op == 1 && said.entry.nr == (unsigned)numbers[i]);
        CHECK(said.instruction_pointer == r.rip && said.stack_pointer == r.rsp && said.entry.args[0] == r.rdi);
        if (i == 1) CHECK(r.rdi == 1000);
        if (i == 2) {
            // Another call in its place.
            r.orig_rax = SYS_getpid;
            CHECK(ask(PTRACE_SETREGS, child, 0, &r) == 0);
        }
        if (i == 3) break;
        CHECK(ask(PTRACE_SYSCALL, child, 0, 0) == 0);
        STOPS(child, SIGTRAP | 0x80);
        long answers[3] = {getpid(), -EBADF, child};
        CHECK((long)registers(child).rax == answers[i]);
        CHECK(ask(SYSCALL_INFO, child, sizeof said, &said) == 33 && said.op == 2 && said.exit.rval == answers[i] && said.exit.is_error == (i == 1));
        errno = 0;
        CHECK(ptrace(PTRACE_PEEKUSER, child, offsetof(struct user_regs_struct, rax), 0) == answers[i] && errno == 0);
        CHECK(ask(PTRACE_GETSIGINFO, child, 0, &info) == 0 && info.si_code == (SIGTRAP | 0x80));
    }
    CHECK(ask(PTRACE_CONT, child, 0, 0) == 0);
    STOPS(child, SIGTRAP | PTRACE_EVENT_EXIT << 8);
    unsigned long message = 0;
    CHECK(ask(PTRACE_GETEVENTMSG, child, 0, &message) == 0 && message == 3 << 8);
    CHECK(ask(PTRACE_CONT, child, 0, 0) == 0);
    CHECK(wait_for(child) == 3 << 8);
    FAILS(ask(PTRACE_CONT, child, 0, 0), ESRCH);
    FAILS(waitpid(child, 0, __WALL), ECHILD);
}

// Memory and registers of whoever is stopped.
static void memory(void) {
    static int text_of_child[1];
    char *nothing = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(nothing, "hidden");
    CHECK(mprotect(nothing, 4096, PROT_NONE) == 0);
    int (*volatile function)(int) = adds;
    pid_t child = fork();
    if (child == 0) {
        ask(PTRACE_TRACEME, 0, 0, 0);
        words[0] = 7;
        raise(SIGSTOP);
        text_of_child[0] = fixed[0];
        register double x __asm__("xmm3") = 1.5;
        __asm__ volatile("int3" : "+x"(x));
        _exit(x == 2.5 ? text_of_child[0] + function(words[0]) : 99);
    }
    STOPS(child, SIGSTOP);
    errno = 0;
    CHECK((int)ptrace(PTRACE_PEEKDATA, child, words, 0) == 7 && errno == 0);
    CHECK(words[0] == 0);
    // What may only be read, and code, become the child's own.
    CHECK(ask(PTRACE_POKEDATA, child, (unsigned long)fixed, (void *)20L) == 0 && fixed[0] == 42);
    char path[64], bytes[8192];
    sprintf(path, "/proc/%d/mem", child);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    CHECK(pread(fd, bytes, 4, (off_t)words) == 4 && *(int *)bytes == 7);
    CHECK(pread(fd, bytes, 6, (off_t)nothing) == 6 && !memcmp(bytes, "hidden", 6));
    int ten = 10;
    CHECK(pwrite(fd, &ten, 4, (off_t)words) == 4);
    FAILS(pread(fd, bytes, 4, 16), EIO);
    FAILS(pwrite(fd, bytes, 4, 16), EIO);
    CHECK(lseek(fd, (off_t)words, SEEK_SET) == (off_t)words && read(fd, bytes, sizeof bytes) > 0 && *(int *)bytes == 10);
    FAILS(ptrace(PTRACE_PEEKDATA, child, 16, 0), EIO);
    FAILS(ptrace(PTRACE_POKEDATA, child, 16, 0), EIO);
    // The function returns 5 whatever is asked.
    unsigned char code[] = {0xb8, 5, 0, 0, 0, 0xc3};
    CHECK(pwrite(fd, code, sizeof code, (off_t)adds) == sizeof code);
    words[0] = 1;
    CHECK(function(2) == 3);
    struct iovec own = {bytes, 4}, other = {(void *)fixed, 4};
    CHECK(process_vm_readv(child, &own, 1, &other, 1, 0) == 4 && *(int *)bytes == 20);
    FAILS(process_vm_writev(child, &own, 1, &(struct iovec){(void *)adds, 4}, 1, 0), EFAULT);
    CHECK(close(fd) == 0);
    CHECK(ask(PTRACE_CONT, child, 0, 0) == 0);
    STOPS(child, SIGTRAP);
    siginfo_t info;
    CHECK(ask(PTRACE_GETSIGINFO, child, 0, &info) == 0 && info.si_code == SI_KERNEL);
    struct user_fpregs_struct floats;
    struct iovec set = {&floats, sizeof floats};
    CHECK(ask(PTRACE_GETREGSET, child, NT_PRFPREG, &set) == 0 && set.iov_len == 512);
    double x;
    memcpy(&x, &floats.xmm_space[12], 8);
    CHECK(x == 1.5);
    x = 2.5;
    memcpy(&floats.xmm_space[12], &x, 8);
    CHECK(ask(PTRACE_SETREGSET, child, NT_PRFPREG, &set) == 0);
    struct user_fpregs_struct again;
    CHECK(ask(PTRACE_GETFPREGS, child, 0, &again) == 0 && !memcmp(&again.xmm_space, &floats.xmm_space, 256));
    struct user_regs_struct r;
    set = (struct iovec){&r, sizeof r};
    CHECK(ask(PTRACE_GETREGSET, child, NT_PRSTATUS, &set) == 0 && set.iov_len == sizeof r && (long)r.orig_rax == -1);
    CHECK(ask(PTRACE_SETREGSET, child, NT_PRSTATUS, &set) == 0);
    FAILS(ask(PTRACE_GETREGSET, child, 0x7777, &set), EINVAL);
    CHECK(ask(PTRACE_CONT, child, 0, 0) == 0);
    CHECK(wait_for(child) == 25 << 8);
    munmap(nothing, 4096);
}

static void handler(int signal) { words[1] += signal; }

static char state_of(pid_t pid, int *tracer) {
    char path[64], line[256], state = 0;
    sprintf(path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        sscanf(line, "State: %c", &state);
        sscanf(line, "TracerPid: %d", tracer);
    }
    if (file) fclose(file);
    return state;
}

// However long it takes until it is so.
static int comes_to(pid_t pid, char state, pid_t by) {
    int tracer = -1;
    for (int tries = 0; tries < 60000; tries++) {
        if (state_of(pid, &tracer) == state && tracer == by) return 1;
        usleep(1000);
    }
    return 0;
}

// Signals: taken away, made others, and sent to whoever waits.
static void signals(void) {
    volatile int *hit = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0) {
        ask(PTRACE_TRACEME, 0, 0, 0);
        signal(SIGUSR1, handler);
        raise(SIGUSR1);
        raise(SIGTERM);
        raise(SIGWINCH);
        signal(SIGUSR2, SIG_IGN);
        raise(SIGUSR2);
        struct timespec begin, end, time = {0, 300000000};
        long ns;
        int slept, polled;
        // Again if it was not asleep when it was meant to be: on a busy machine that takes its time.
        do {
            clock_gettime(CLOCK_MONOTONIC, &begin);
            slept = nanosleep(&time, 0);
            clock_gettime(CLOCK_MONOTONIC, &end);
            ns = (end.tv_sec - begin.tv_sec) * 1000000000L + end.tv_nsec - begin.tv_nsec;
        } while (!hit[0]);
        do polled = poll(0, 0, 300);
        while (!hit[1]);
        _exit(slept == 0 && ns >= 300000000 && polled == 0 ? words[1] : 99);
    }
    STOPS(child, SIGUSR1);
    CHECK(ask(PTRACE_CONT, child, 0, (void *)SIGUSR1) == 0);
    STOPS(child, SIGTERM);
    CHECK(ask(PTRACE_CONT, child, 0, (void *)SIGUSR1) == 0);
    STOPS(child, SIGWINCH);
    CHECK(ask(PTRACE_CONT, child, 0, 0) == 0);
    STOPS(child, SIGUSR2);
    CHECK(ask(PTRACE_CONT, child, 0, (void *)SIGUSR2) == 0);
    for (int i = 0; i < 2; i++) {
        // Who sleeps goes on sleeping, as long as it wanted to.
        for (int tries = 0; tries < 6000 && !hit[i]; tries++) {
            usleep(10000);
            CHECK(comes_to(child, 'S', getpid()));
            kill(child, SIGWINCH);
            STOPS(child, SIGWINCH);
            struct user_regs_struct r = registers(child);
            hit[i] = (long)r.rax == -516 && ((int)r.orig_rax == (i == 0 ? SYS_clock_nanosleep : SYS_poll));
            CHECK(ask(PTRACE_CONT, child, 0, 0) == 0);
        }
        CHECK(hit[i]);
        hit[i] = 1;
    }
    CHECK(wait_for(child) == (2 * SIGUSR1) << 8);
    // It ends by a signal, whatever it does.
    child = fork();
    if (child == 0) {
        ask(PTRACE_TRACEME, 0, 0, 0);
        *(volatile int *)16 = 1;
        _exit(1);
    }
    STOPS(child, SIGSEGV);
    siginfo_t info;
    CHECK(ask(PTRACE_GETSIGINFO, child, 0, &info) == 0 && info.si_code == SEGV_MAPERR && info.si_addr == (void *)16);
    kill(child, SIGKILL);
    CHECK(wait_for(child) == SIGKILL);
    munmap((void *)hit, 4096);
}

// One instruction after the other.
static void steps(void) {
    pid_t child = fork();
    if (child == 0) {
        ask(PTRACE_TRACEME, 0, 0, 0);
        __asm__ volatile("int3; nop; nop; mov $39, %%eax; syscall; nop" ::: "rax", "rcx", "r11", "memory");
        signal(SIGUSR1, handler);
        __asm__ volatile("int3");
        _exit(4);
    }
    STOPS(child, SIGTRAP);
    unsigned long begin = registers(child).rip;
    int lengths[] = {1, 1, 5, 2, 1};
    for (int i = 0; i < 5; i++) {
        CHECK(ask(PTRACE_SINGLESTEP, child, 0, 0) == 0);
        STOPS(child, SIGTRAP);
        begin += lengths[i];
        struct user_regs_struct r = registers(child);
        CHECK(r.rip == begin && (r.eflags & 0x100) == 0);
        if (i == 3) CHECK((int)r.rax == child);
    }
    CHECK(ask(PTRACE_CONT, child, 0, 0) == 0);
    STOPS(child, SIGTRAP);
    // To the first instruction of a handler.
    CHECK(ask(PTRACE_SINGLESTEP, child, 0, (void *)SIGUSR1) == 0);
    STOPS(child, SIGTRAP);
    struct user_regs_struct r = registers(child);
    CHECK(r.rip == (unsigned long)handler && r.rdi == SIGUSR1);
    CHECK(ask(PTRACE_CONT, child, 0, 0) == 0);
    CHECK(wait_for(child) == 4 << 8);
}

static void *thread(void *unused) {
    words[2] = 1;
    return unused;
}

// What processes make is traced too.
static void made(void) {
    pid_t child = fork();
    if (child == 0) {
        ask(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        pid_t other = fork();
        if (other == 0) _exit(7);
        int status;
        waitpid(other, &status, 0);
        pthread_t one;
        pthread_create(&one, 0, thread, 0);
        pthread_join(one, 0);
        if (vfork() == 0) _exit(8);
        wait(&status);
        execl("/proc/self/exe", "traced", "said", (char *)0);
        _exit(1);
    }
    STOPS(child, SIGSTOP);
    long options = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEVFORKDONE;
    CHECK(ask(PTRACE_SETOPTIONS, child, 0, (void *)options) == 0);
    int events[] = {PTRACE_EVENT_FORK, PTRACE_EVENT_CLONE, PTRACE_EVENT_VFORK, PTRACE_EVENT_VFORK_DONE, PTRACE_EVENT_EXEC};
    for (int i = 0; i < 5; i++) {
        CHECK(ask(PTRACE_CONT, child, 0, 0) == 0);
        int status;
        for (;;) {
            status = wait_for(child);
            if (status != (SIGCHLD << 8 | 0x7f)) break;
            CHECK(ask(PTRACE_CONT, child, 0, (void *)SIGCHLD) == 0);
        }
        CHECK(status == ((SIGTRAP | events[i] << 8) << 8 | 0x7f));
        unsigned long message = 0;
        CHECK(ask(PTRACE_GETEVENTMSG, child, 0, &message) == 0);
        if (i < 3) {
            STOPS((pid_t)message, SIGSTOP);
            CHECK(ask(PTRACE_CONT, message, 0, 0) == 0);
            // The child waits for it only once it goes on itself; a thread ends by itself.
            if (i == 1) CHECK(ask(PTRACE_CONT, child, 0, 0) == 0);
            CHECK(wait_for(message) == (i == 0 ? 7 : i == 1 ? 0 : 8) << 8);
            if (i == 1) {
                // It goes on by itself to the next event.
                i++;
                for (;;) {
                    status = wait_for(child);
                    if (status != (SIGCHLD << 8 | 0x7f)) break;
                    CHECK(ask(PTRACE_CONT, child, 0, (void *)SIGCHLD) == 0);
                }
                CHECK(status == ((SIGTRAP | PTRACE_EVENT_VFORK << 8) << 8 | 0x7f));
                CHECK(ask(PTRACE_GETEVENTMSG, child, 0, &message) == 0);
                STOPS((pid_t)message, SIGSTOP);
                CHECK(ask(PTRACE_CONT, message, 0, 0) == 0);
                CHECK(wait_for(message) == 8 << 8);
            }
        } else if (i == 4) {
            CHECK((pid_t)message == child && (int)registers(child).orig_rax == SYS_execve);
        }
    }
    CHECK(ask(PTRACE_CONT, child, 0, 0) == 0);
    CHECK(wait_for(child) == 12 << 8);
    // Without options a new program begins with a signal.
    child = fork();
    if (child == 0) {
        ask(PTRACE_TRACEME, 0, 0, 0);
        execl("/proc/self/exe", "traced", "said", (char *)0);
        _exit(1);
    }
    STOPS(child, SIGTRAP);
    CHECK(ask(PTRACE_DETACH, child, 0, 0) == 0);
    CHECK(wait_for(child) == 12 << 8);
}

// Whoever runs already: by a signal, and without.
static void others(void) {
    pid_t child = fork();
    if (child == 0)
        for (;;) pause();
    int tracer = -1;
    CHECK(comes_to(child, 'S', 0));
    CHECK(ask(PTRACE_ATTACH, child, 0, 0) == 0);
    STOPS(child, SIGSTOP);
    CHECK(state_of(child, &tracer) == 't' && tracer == getpid());
    CHECK(ask(PTRACE_DETACH, child, 0, 0) == 0);
    CHECK(comes_to(child, 'S', 0));
    FAILS(ask(PTRACE_SEIZE, child, 1, 0), EIO);
    CHECK(ask(PTRACE_SEIZE, child, 0, (void *)PTRACE_O_EXITKILL) == 0);
    FAILS(ask(PTRACE_GETREGS, child, 0, 0), ESRCH);
    CHECK(waitpid(child, 0, WNOHANG) == 0);
    CHECK(ask(PTRACE_INTERRUPT, child, 0, 0) == 0);
    STOPS(child, SIGTRAP | PTRACE_EVENT_STOP << 8);
    struct user_regs_struct r = registers(child);
    CHECK((int)r.orig_rax == SYS_pause && (long)r.rax == -514);
    CHECK(ask(PTRACE_CONT, child, 0, 0) == 0);
    // A stop of the whole process, which its tracer lets last.
    kill(child, SIGSTOP);
    STOPS(child, SIGSTOP);
    CHECK(ask(PTRACE_CONT, child, 0, (void *)SIGSTOP) == 0);
    STOPS(child, SIGSTOP | PTRACE_EVENT_STOP << 8);
    siginfo_t info;
    CHECK(ask(PTRACE_GETSIGINFO, child, 0, &info) == 0 && info.si_signo == SIGSTOP && info.si_code == (SIGSTOP | PTRACE_EVENT_STOP << 8));
    CHECK(ask(PTRACE_LISTEN, child, 0, 0) == 0);
    CHECK(waitpid(child, 0, WNOHANG) == 0);
    FAILS(ask(PTRACE_CONT, child, 0, 0), ESRCH);
    kill(child, SIGCONT);
    STOPS(child, SIGTRAP | PTRACE_EVENT_STOP << 8);
    CHECK(ask(PTRACE_CONT, child, 0, 0) == 0);
    STOPS(child, SIGCONT);
    CHECK(ask(PTRACE_CONT, child, 0, (void *)SIGCONT) == 0);
    kill(child, SIGKILL);
    CHECK(wait_for(child) == SIGKILL);
    // One that is stopped already; `waitid` tells of what it is.
    child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        _exit(5);
    }
    int status;
    CHECK(waitpid(child, &status, WUNTRACED) == child && status == (SIGSTOP << 8 | 0x7f));
    CHECK(ask(PTRACE_SEIZE, child, 0, 0) == 0);
    memset(&info, 0, sizeof info);
    CHECK(waitid(P_PID, child, &info, WSTOPPED | WNOWAIT) == 0 && info.si_pid == child && info.si_code == CLD_TRAPPED);
    CHECK(info.si_status == (SIGSTOP | PTRACE_EVENT_STOP << 8));
    STOPS(child, SIGSTOP | PTRACE_EVENT_STOP << 8);
    kill(child, SIGCONT);
    CHECK(ask(PTRACE_CONT, child, 0, 0) == 0);
    STOPS(child, SIGTRAP | PTRACE_EVENT_STOP << 8);
    CHECK(ask(PTRACE_CONT, child, 0, 0) == 0);
    STOPS(child, SIGCONT);
    CHECK(ask(PTRACE_DETACH, child, 0, 0) == 0);
    CHECK(wait_for(child) == 5 << 8);
    // Whoever attaches to one that is stopped need not wait for it.
    if ((child = fork()) == 0) {
        raise(SIGSTOP);
        _exit(5);
    }
    CHECK(waitpid(child, &status, WUNTRACED) == child && status == (SIGSTOP << 8 | 0x7f));
    CHECK(ask(PTRACE_ATTACH, child, 0, 0) == 0 && registers(child).rip != 0);
    kill(child, SIGKILL);
    CHECK(dies(child));
}

// A tracer that is not the parent hears first of the end; one that ends takes along what it was told to.
static void apart(void) {
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(pipes[1]);
        read(pipes[0], &byte, 1);
        _exit(6);
    }
    pid_t tracer = fork();
    if (tracer == 0) {
        CHECK(ask(PTRACE_SEIZE, child, 0, 0) == 0);
        close(pipes[1]);
        CHECK(wait_for(child) == 6 << 8);
        _exit(wrong);
    }
    CHECK(comes_to(child, 'S', tracer));
    close(pipes[0]);
    close(pipes[1]);
    int status = -1;
    CHECK(waitpid(tracer, &status, 0) == tracer && status == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 6 << 8);
    child = fork();
    if (child == 0)
        for (;;) pause();
    tracer = fork();
    if (tracer == 0) {
        CHECK(ask(PTRACE_SEIZE, child, 0, (void *)PTRACE_O_EXITKILL) == 0);
        _exit(wrong);
    }
    CHECK(waitpid(tracer, &status, 0) == tracer && status == 0);
    CHECK(waitpid(child, &status, 0) == child && status == SIGKILL);
    child = fork();
    if (child == 0)
        for (;;) pause();
    tracer = fork();
    if (tracer == 0) {
        CHECK(ask(PTRACE_ATTACH, child, 0, 0) == 0);
        STOPS(child, SIGSTOP);
        _exit(wrong);
    }
    CHECK(waitpid(tracer, &status, 0) == tracer && status == 0);
    CHECK(comes_to(child, 'S', 0) && waitpid(child, &status, WNOHANG) == 0);
    kill(child, SIGTERM);
    CHECK(waitpid(child, &status, 0) == child && status == SIGTERM);
}

// What is said of signals that wait is looked at, and they wait on.
static void waiting(void) {
    pid_t child = fork();
    if (child == 0) {
        sigset_t all;
        sigfillset(&all);
        CHECK(ask(PTRACE_TRACEME, 0, 0, 0) == 0 && sigprocmask(SIG_BLOCK, &all, 0) == 0);
        for (int i = 0; i < 3; i++) CHECK(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 10 + i}) == 0);
        CHECK(syscall(SYS_tgkill, getpid(), getpid(), SIGUSR1) == 0);
        raise(SIGSTOP);
        _exit(wrong);
    }
    STOPS(child, SIGSTOP);
    siginfo_t infos[4];
    struct __ptrace_peeksiginfo_args asked = {.off = 1, .flags = PTRACE_PEEKSIGINFO_SHARED, .nr = 4};
    CHECK(ask(PTRACE_PEEKSIGINFO, child, (unsigned long)&asked, infos) == 2);
    CHECK(infos[0].si_signo == SIGRTMIN && infos[0].si_value.sival_int == 11 && infos[0].si_code == SI_QUEUE && infos[1].si_value.sival_int == 12);
    asked.off = 3;
    CHECK(ask(PTRACE_PEEKSIGINFO, child, (unsigned long)&asked, infos) == 0);
    asked = (struct __ptrace_peeksiginfo_args){.flags = PTRACE_PEEKSIGINFO_SHARED, .nr = 2};
    CHECK(ask(PTRACE_PEEKSIGINFO, child, (unsigned long)&asked, infos) == 2 && infos[0].si_value.sival_int == 10);
    FAILS(ask(PTRACE_PEEKSIGINFO, child, (unsigned long)&asked, (void *)8), EFAULT);
    FAILS(ask(PTRACE_PEEKSIGINFO, child, 8, infos), EFAULT);
    asked.flags = 0;
    CHECK(ask(PTRACE_PEEKSIGINFO, child, (unsigned long)&asked, infos) == 1 && infos[0].si_signo == SIGUSR1 && infos[0].si_code == SI_TKILL);
    asked.flags = 2;
    FAILS(ask(PTRACE_PEEKSIGINFO, child, (unsigned long)&asked, infos), EINVAL);
    asked.flags = 0, asked.nr = -1;
    FAILS(ask(PTRACE_PEEKSIGINFO, child, (unsigned long)&asked, infos), EINVAL);
    int status = -1;
    CHECK(ask(PTRACE_CONT, child, 0, 0) == 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "said")) return 12;
    const struct part parts[] = {{"calls", calls}, {"memory", memory}, {"signals", signals}, {"steps", steps}, {"made", made}, {"others", others}, {"apart", apart}, {"waiting", waiting}};
    PLAY(parts, count, arguments);
    return 0;
}
