// What threads and processes use of CPUs, and who hears of it: only who runs uses any. A line for each part with how many checks failed.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "checks.h"
#include "until.h"

enum { MS = 1000000, MANY = 6 };

static long now_by(clockid_t clock) {
    struct timespec now = {0};
    CHECK(clock_gettime(clock, &now) == 0);
    return now.tv_sec * 1000l * MS + now.tv_nsec;
}

static void runs_for(long ns, clockid_t clock) {
    for (long end = now_by(clock) + ns; now_by(clock) < end;) {}
}

static void *runs(void *of) {
    runs_for((long)of, CLOCK_THREAD_CPUTIME_ID);
    return 0;
}

static void one_cpu(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
}

// However many take turns on one CPU, they use no more than there is of it, but for the moment in which each comes to it.
static void turns(void) {
    cpu_set_t all;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    pthread_t threads[MANY];
    one_cpu();
    long began = now_by(CLOCK_MONOTONIC), before = now_by(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < MANY; i++) CHECK(pthread_create(threads + i, 0, runs, (void *)(20l * MS)) == 0);
    for (int i = 0; i < MANY; i++) pthread_join(threads[i], 0);
    long used = now_by(CLOCK_PROCESS_CPUTIME_ID) - before, passed = now_by(CLOCK_MONOTONIC) - began;
    CHECK(used >= MANY * 20l * MS && used < 2 * passed);
    // The same of processes, as their parent hears of it.
    struct rusage usage, first;
    getrusage(RUSAGE_CHILDREN, &first);
    began = now_by(CLOCK_MONOTONIC);
    for (int i = 0; i < MANY; i++)
        if (!fork()) runs_for(20l * MS, CLOCK_PROCESS_CPUTIME_ID), _exit(0);
    for (int i = 0; i < MANY; i++) CHECK(wait(0) > 0);
    passed = now_by(CLOCK_MONOTONIC) - began, getrusage(RUSAGE_CHILDREN, &usage);
    used = (usage.ru_utime.tv_sec - first.ru_utime.tv_sec + usage.ru_stime.tv_sec - first.ru_stime.tv_sec) * 1000l * MS;
    used += (usage.ru_utime.tv_usec - first.ru_utime.tv_usec + usage.ru_stime.tv_usec - first.ru_stime.tv_usec) * 1000l;
    CHECK(used >= MANY * 19l * MS && used < 2 * passed);
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
}

static long counted(const char *name) {
    char line[65536];
    long count = -1;
    FILE *file = fopen("/proc/stat", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ' ') count = atol(line + strlen(name));
    if (file) fclose(file);
    return count;
}

// Each sleep is a change to another task and back, and an interrupt ends it.
static void changes(void) {
    long interrupts = counted("intr"), switches = counted("ctxt");
    CHECK(interrupts > 0 && switches > 0);
    for (int i = 0; i < 20; i++) usleep(1000);
    CHECK(counted("intr") >= interrupts + 20 && counted("ctxt") >= switches + 20);
}

static volatile int rang, go;
static volatile long told;
static clockid_t of_sleeper;
static pid_t sleeper;

static void rings(int signal, siginfo_t *info, void *state) {
    (void)signal, (void)state;
    told = info->si_value.sival_int;
    rang++;
}

static void *sleeps(void *gate) {
    CHECK(pthread_getcpuclockid(pthread_self(), &of_sleeper) == 0);
    sleeper = (pid_t)syscall(SYS_gettid);
    pthread_mutex_lock(gate), pthread_mutex_unlock(gate);
    while (!rang) {}
    return 0;
}

// Timers of what one thread uses, and of what a process does: they ring for who runs.
static void timers(void) {
    struct sigaction action = {.sa_sigaction = rings, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGUSR1, &action, 0);
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&gate);
    pthread_t thread;
    CHECK(pthread_create(&thread, 0, sleeps, &gate) == 0 && UNTIL(sleeper && state_of_thread(sleeper) == 'S'));
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 42};
    struct itimerspec soon = {{0, 0}, {0, 2 * MS}}, left, far = {{0, 0}, {1000, 0}};
    timer_t by_thread, by_process;
    FAILS(timer_create(10, &event, &by_thread), EINVAL);
    CHECK(timer_create(of_sleeper, &event, &by_thread) == 0 && timer_settime(by_thread, 0, &soon, 0) == 0);
    // Whatever others use, and however long it sleeps.
    runs_for(30 * MS, CLOCK_THREAD_CPUTIME_ID);
    usleep(10000);
    CHECK(rang == 0 && timer_gettime(by_thread, &left) == 0 && left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 2 * MS);
    pthread_mutex_unlock(&gate);
    CHECK(pthread_join(thread, 0) == 0 && rang == 1 && told == 42);
    CHECK(timer_delete(by_thread) == 0);
    // Of a process: once all of its threads have used so much.
    event.sigev_value.sival_int = 43, rang = 0;
    CHECK(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &by_process) == 0 && timer_settime(by_process, 0, &far, 0) == 0);
    runs_for(5 * MS, CLOCK_PROCESS_CPUTIME_ID);
    CHECK(timer_gettime(by_process, &left) == 0 && left.it_value.tv_sec < 1000 && left.it_value.tv_sec > 0);
    soon.it_value.tv_nsec = 20 * MS;
    long before = now_by(CLOCK_PROCESS_CPUTIME_ID);
    CHECK(timer_settime(by_process, 0, &soon, &left) == 0 && left.it_value.tv_sec < 1000);
    pthread_t threads[MANY];
    for (int i = 0; i < MANY; i++) CHECK(pthread_create(threads + i, 0, runs, (void *)(10l * MS)) == 0);
    for (int i = 0; i < MANY; i++) pthread_join(threads[i], 0);
    CHECK(UNTIL(rang) && rang == 1 && told == 43 && now_by(CLOCK_PROCESS_CPUTIME_ID) >= before + 20 * MS);
    // One at a time of that clock which is over already.
    soon.it_value = (struct timespec){0, 1}, rang = 0;
    CHECK(timer_settime(by_process, TIMER_ABSTIME, &soon, 0) == 0 && UNTIL(rang) && rang == 1);
    CHECK(timer_delete(by_process) == 0);
}

// One that comes again and again, for who runs.
static void profiles(void) {
    struct sigaction action = {.sa_sigaction = rings, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct itimerval every = {{0, 10000}, {0, 10000}}, none = {{0, 0}, {0, 0}};
    sigaction(SIGPROF, &action, 0);
    rang = 0;
    CHECK(setitimer(ITIMER_PROF, &every, 0) == 0);
    while (rang < 3) {}
    CHECK(setitimer(ITIMER_PROF, &none, &every) == 0 && every.it_interval.tv_usec == 10000);
}

static void *comes_and_goes(void *of) {
    for (int i = 0; i < 100; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, 0, runs, (void *)100000l) == 0 && pthread_join(thread, 0) == 0);
    }
    go = 0;
    // Its clock is there as long as it is.
    while (!go) {}
    return of;
}

// No clock runs backwards, whoever looks at it.
static void forward(void) {
    pthread_t thread;
    clockid_t of_thread;
    go = 1;
    CHECK(pthread_create(&thread, 0, comes_and_goes, 0) == 0 && pthread_getcpuclockid(thread, &of_thread) == 0);
    long process = 0, other = 0, back = 0;
    while (go) {
        long now = now_by(CLOCK_PROCESS_CPUTIME_ID), use = now_by(of_thread);
        back += now < process, back += use < other;
        process = now, other = use;
    }
    go = 1;
    CHECK(back == 0 && pthread_join(thread, 0) == 0);
}

// Uses a CPU until it is told to stop.
static void *spins(void *of) {
    while (go) {}
    return of;
}

// The same, and interrupts a thread now and then: before it sleeps that is in vain.
static void *interrupts(void *sleeper) {
    while (go) {
        runs_for(5l * MS, CLOCK_THREAD_CPUTIME_ID);
        pthread_kill((pthread_t)sleeper, SIGUSR1);
    }
    return 0;
}

// Sleep by what is used of CPUs.
static void sleep_by(void) {
    clockid_t own;
    struct timespec span = {0, 10 * MS}, at;
    CHECK(pthread_getcpuclockid(pthread_self(), &own) == 0);
    CHECK(clock_nanosleep(own, 0, &span, 0) == EINVAL && clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &span, 0) == EINVAL);
    pthread_t thread;
    long before = now_by(CLOCK_PROCESS_CPUTIME_ID);
    go = 1;
    CHECK(pthread_create(&thread, 0, spins, 0) == 0 && clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &span, 0) == 0);
    CHECK(now_by(CLOCK_PROCESS_CPUTIME_ID) >= before + 10 * MS);
    go = 0;
    CHECK(pthread_join(thread, 0) == 0);
    // What is left is what nobody has used yet when it was interrupted.
    struct sigaction action = {.sa_sigaction = rings, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, 0);
    go = 1;
    CHECK(pthread_create(&thread, 0, interrupts, (void *)pthread_self()) == 0);
    CHECK(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &(struct timespec){1000, 0}, &at) == EINTR && at.tv_sec < 1000 && at.tv_sec > 0);
    go = 0;
    CHECK(pthread_join(thread, 0) == 0);
    at = (struct timespec){0, 1};
    CHECK(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &at, 0) == 0);
    // Nobody uses any.
    pid_t pid = fork();
    if (!pid) {
        clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &(struct timespec){1000, 0}, 0);
        _exit(1);
    }
    CHECK(UNTIL(state_of(pid) == 'S') && kill(pid, SIGKILL) == 0 && waitpid(pid, 0, 0) == pid);
}

int main(int count, char **arguments) {
    static const struct part parts[] = {{"turns", turns}, {"changes", changes}, {"timers", timers}, {"profiles", profiles}, {"forward", forward}, {"sleeps", sleep_by}};
    alarm(HANGS);
    PLAY(parts, count, arguments);
    return 0;
}
