//! The system calls, by number.

mod attributes;
mod clocks;
mod control;
mod epoll;
mod filters;
mod futex;
mod hearers;
mod keeps;
mod keys;
mod listing;
mod load;
mod locks;
mod mailboxes;
mod names;
mod number;
mod poll;
mod ptrace;
mod queues;
mod remote;
mod requests;
mod shared;
mod signals;
mod sockets;
mod tasks;
pub(crate) mod terminals;
mod time;
mod timers;
pub(crate) mod transfer;
mod waitv;
mod watches;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use attributes::Of;
use filters::Passed;
use keeps::keeps;
use names::Times;
pub use number::name;
use number::number as n;
use tasks::users::Which;

use crate::errno::{Answer, Errno};
use crate::frame::Frame;
use crate::kernel::{Flow, Linux, RESTART, Unknown, is_again};
use crate::layout::text;
use crate::machine::Machine;
use crate::process::{Lock, Thread};

/// Whether a call that went well has set all registers itself.
pub fn replaces_registers(number: u64) -> bool {
    matches!(number, n::execve | n::execveat | n::rt_sigreturn)
}

/// "The current directory", where a directory's number is meant.
const HERE: u64 = -100_i64 as u64;

/// The call by which one is made again whose time goes on.
pub(crate) const RESTART_CALL: u64 = n::restart_syscall;

/// Does what is asked.
pub fn call<M: Machine>(
    linux: &Linux<'_, M>,
    thread: &Arc<Thread>,
    frame: &mut Frame,
    number: u64,
) -> Answer {
    let all = frame.arguments();
    let [a, b, c, d, e, f] = all;
    let process = &thread.process;
    if keeps(number) && !linux.machine.has_room(0) {
        return Err(Errno::ENOMEM);
    }
    match number {
        n::read => linux.read(thread, a, &[(b, c)], None),
        n::write => linux.write(thread, a, &[(b, c)], None),
        n::pread64 => linux.read(thread, a, &[(b, c)], Some(d)),
        n::pwrite64 => linux.write(thread, a, &[(b, c)], Some(d)),
        n::readv => linux.read(thread, a, &linux.vectors(b, c)?, None),
        n::writev => linux.write(thread, a, &linux.vectors(b, c)?, None),
        n::preadv => linux.read(thread, a, &linux.vectors(b, c)?, Some(d)),
        n::pwritev => linux.write(thread, a, &linux.vectors(b, c)?, Some(d)),
        // How urgent it is, and that it reaches the disk: nothing outlives the machine.
        n::preadv2 if f as u32 & !0xf != 0 => Err(Errno::EOPNOTSUPP),
        n::pwritev2 if f as u32 & !0x7 != 0 && f as u32 & !0x17 == 0 => {
            linux.append(thread, a, &linux.vectors(b, c)?, d)
        }
        n::pwritev2 if f as u32 & !0x7 != 0 => Err(Errno::EOPNOTSUPP),
        n::preadv2 => linux.read_as(thread, a, &linux.vectors(b, c)?, (d != u64::MAX).then_some(d), f),
        n::pwritev2 => linux.write(thread, a, &linux.vectors(b, c)?, (d != u64::MAX).then_some(d)),
        n::sendfile => linux.sendfile(thread, all),
        n::splice => linux.splice(thread, all),
        n::vmsplice => linux.vmsplice(thread, [a, b, c, d]),
        n::tee => linux.tee(thread, [a, b, c, d]),
        n::copy_file_range => linux.copy_file_range(thread, all),
        n::lseek => linux.lseek(thread, a, b as i64, c),
        n::ftruncate => linux.ftruncate(thread, a, b),
        n::truncate => linux.truncate(thread, a, b),
        n::fallocate => linux.fallocate(thread, a, b, c, d),
        n::fsync | n::fdatasync => linux.fsync(thread, a),
        n::sync => Ok(0),
        n::syncfs => linux.open_used(thread, a).map(|_| 0),
        n::readahead => linux.readahead(thread, a),
        n::sync_file_range => linux.sync_file_range(thread, [a, b, c, d]),
        n::fadvise64 => linux.fadvise(thread, all),
        n::getdents64 => linux.getdents(thread, a, b, c, false),
        n::getdents => linux.getdents(thread, a, b, c, true),

        n::open => linux.open(thread, HERE, a, b as u32, c as u32),
        n::openat => linux.open(thread, a, b, c as u32, d as u32),
        n::openat2 => linux.open_how(thread, [a, b, c, d]),
        n::creat => linux.open(thread, HERE, a, 0o1101, b as u32),
        n::close => linux.close(thread, a),
        n::close_range => linux.close_range(thread, a, b, c),
        n::dup => linux.dup(thread, a),
        n::dup2 => linux.dup_to(thread, a, b, 0, true),
        n::dup3 => linux.dup_to(thread, a, b, c, false),
        n::fcntl => linux.fcntl(thread, a, b, c),
        n::flock => linux.flock(thread, a, b),
        n::ioctl => linux.ioctl(thread, a, b, c),
        n::pipe => linux.pipe(thread, a, 0),
        n::pipe2 => linux.pipe(thread, a, b as u32),
        n::eventfd | n::eventfd2 => {
            linux.eventfd(thread, a, if number == n::eventfd2 { b as u32 } else { 0 })
        }
        n::memfd_create => linux.memfd(thread, a, b),
        n::epoll_create if a as i32 <= 0 => Err(Errno::EINVAL),
        n::epoll_create => linux.epoll_create(thread, 0),
        n::epoll_create1 => linux.epoll_create(thread, a as u32),
        n::epoll_ctl => linux.epoll_ctl(thread, [a, b, c, d]),
        n::epoll_wait | n::epoll_pwait => {
            let mask = if number == n::epoll_wait { None } else { linux.load_mask(e, f)? };
            linux.epoll_wait(
                thread,
                [a, b, c],
                (d as i32 >= 0).then(|| u64::from(d as u32) * 1_000_000),
                mask,
            )
        }
        n::epoll_pwait2 => {
            let time = if d == 0 { None } else { Some(linux.time(d)?) };
            let mask = linux.load_mask(e, f)?;
            linux.epoll_wait(thread, [a, b, c], time, mask)
        }
        n::inotify_init => linux.inotify(thread, 0),
        n::inotify_init1 => linux.inotify(thread, a),
        n::inotify_add_watch => linux.add_watch(thread, a, b, c),
        n::inotify_rm_watch => linux.leave_watch(thread, a, b),
        n::timer_create => linux.timer_create(thread, a, b, c),
        n::timer_settime => linux.timer_settime(thread, [a, b, c, d]),
        n::timer_gettime => linux.timer_gettime(thread, a, b),
        n::timer_getoverrun => linux.timer_getoverrun(thread, a),
        n::timer_delete => linux.timer_delete(thread, a),
        n::shmget => linux.shmget(thread, a, b, c),
        n::shmat => linux.shmat(thread, a, b, c),
        n::semget => linux.semget(thread, a, b, c),
        n::semop => linux.semop(thread, [a, b, c, 0]),
        n::semtimedop => linux.semop(thread, [a, b, c, d]),
        n::semctl => linux.semctl(thread, [a, b, c, d]),
        n::msgget => linux.msgget(thread, a, b),
        n::msgsnd => linux.msgsnd(thread, [a, b, c, d]),
        n::msgrcv => linux.msgrcv(thread, all),
        n::msgctl => linux.msgctl(thread, a, b, c),
        n::mq_open => linux.mq_open(thread, [a, b, c, d]),
        n::mq_unlink => linux.mq_unlink(thread, a),
        n::mq_timedsend => linux.mq_send(thread, [a, b, c, d, e]),
        n::mq_timedreceive => linux.mq_receive(thread, [a, b, c, d, e]),
        n::mq_notify => linux.mq_notify(thread, a, b),
        n::mq_getsetattr => linux.mq_attributes(thread, a, b, c),
        n::io_setup => linux.io_setup(thread, a, b),
        n::io_destroy => linux.io_destroy(thread, a),
        n::io_submit => linux.io_submit(thread, a, b, c),
        n::io_getevents => linux.io_getevents(thread, [a, b, c, d, e]),
        n::io_pgetevents => linux.io_getevents_masked(thread, all),
        // What was asked for is done by then.
        n::io_cancel => linux.load_word(b + 8).and(Err(Errno::EINVAL)),
        n::shmdt => linux.shmdt(thread, a),
        n::shmctl => linux.shmctl(thread, a, b, c),
        n::pidfd_open => linux.pidfd_open(thread, a, b),
        n::pidfd_getfd => linux.pidfd_getfd(thread, [a, b, c]),
        n::process_madvise => linux.process_madvise(thread, [a, b, c, d, e]),
        n::pidfd_send_signal => linux.pidfd_send_signal(thread, [a, b, c, d]),
        n::timerfd_create => linux.timerfd(thread, a, b as u32),
        n::timerfd_settime => linux.timerfd_settime(thread, [a, b, c, d]),
        n::timerfd_gettime => linux.timerfd_gettime(thread, a, b),
        n::signalfd => linux.signalfd(thread, [a, b, c, 0]),
        n::signalfd4 => linux.signalfd(thread, [a, b, c, d]),
        n::poll => {
            linux.poll(thread, a, b, (c as i32 >= 0).then(|| u64::from(c as u32) * 1_000_000), 0, None)
        }
        n::ppoll => {
            let time = if c == 0 { None } else { Some(linux.time(c)?) };
            let mask = linux.load_mask(d, e)?;
            linux.poll(thread, a, b, time, c, mask)
        }
        n::select | n::pselect6 => linux.select(thread, all, number == n::pselect6),

        n::stat => linux.stat(thread, HERE, a, b, 0),
        n::lstat => linux.stat(thread, HERE, a, b, 0x100),
        n::fstat => linux.fstat(thread, a, b),
        n::newfstatat => linux.stat(thread, a, b, c, d),
        n::statx => linux.statx(thread, all),
        n::statfs => linux.statfs(thread, a, b),
        n::fstatfs => linux.fstatfs(thread, a, b),
        n::access => linux.access(thread, HERE, [a, b, 0]),
        n::faccessat => linux.access(thread, a, [b, c, 0]),
        n::faccessat2 => linux.access(thread, a, [b, c, d]),
        n::mknod => linux.mknod(thread, [HERE, a, b, c]),
        n::mknodat => linux.mknod(thread, [a, b, c, d]),
        n::readlink => linux.readlink(thread, HERE, a, b, c),
        n::readlinkat => linux.readlink(thread, a, b, c, d),
        n::getcwd => linux.getcwd(thread, a, b),
        n::chdir => linux.chdir(thread, a),
        n::fchdir => linux.fchdir(thread, a),
        n::umask => {
            Ok(process.place.with(|place| core::mem::replace(&mut place.umask, a as u32 & 0o777)).into())
        }
        n::mkdir => linux.mkdir(thread, HERE, a, b as u32),
        n::mkdirat => linux.mkdir(thread, a, b, c as u32),
        n::rmdir => linux.unlink(thread, HERE, a, true),
        n::unlink => linux.unlink(thread, HERE, a, false),
        n::unlinkat if c & !0x200 != 0 => Err(Errno::EINVAL),
        n::unlinkat => linux.unlink(thread, a, b, c & 0x200 != 0),
        n::rename => linux.rename(thread, [HERE, a, HERE, b, 0]),
        n::renameat => linux.rename(thread, [a, b, c, d, 0]),
        n::renameat2 => linux.rename(thread, [a, b, c, d, e]),
        n::link => linux.link(thread, [HERE, a, HERE, b, 0]),
        n::linkat => linux.link(thread, [a, b, c, d, e]),
        n::symlink => linux.symlink(thread, a, HERE, b),
        n::symlinkat => linux.symlink(thread, a, b, c),
        n::chmod => linux.chmod(thread, HERE, a, b as u32),
        n::fchmodat => linux.chmod(thread, a, b, c as u32),
        // On a link itself nobody can.
        n::fchmodat2 if d & !0x1100 != 0 => Err(Errno::EINVAL),
        n::fchmodat2 if d & 0x100 != 0 => Err(Errno::EOPNOTSUPP),
        n::fchmodat2 if d & 0x1000 != 0 && linux.load_path(b)?.is_empty() => {
            linux.fchmod(thread, a, c as u32)
        }
        n::fchmodat2 => linux.chmod(thread, a, b, c as u32),
        n::fchmod => linux.fchmod(thread, a, b as u32),
        n::chown => linux.chown(thread, HERE, a, [b, c], 0),
        n::lchown => linux.chown(thread, HERE, a, [b, c], 0x100),
        n::fchownat => linux.chown(thread, a, b, [c, d], e),
        n::fchown => linux.open_used(thread, a).and_then(|_| linux.chown(thread, a, 0, [b, c], 0x1000)),
        n::utimensat => linux.utimens(thread, [a, b, c, d], Times::Nanoseconds),
        n::futimesat => linux.utimens(thread, [a, b, c, 0], Times::Microseconds),
        n::utimes => linux.utimens(thread, [HERE, a, b, 0], Times::Microseconds),
        n::utime => linux.utimens(thread, [HERE, a, b, 0], Times::Seconds),
        n::setxattr | n::lsetxattr => {
            linux.set_attribute(thread, Of::path(a, number == n::setxattr), [b, c, d, e])
        }
        n::fsetxattr => linux.set_attribute(thread, Of::Open(a), [b, c, d, e]),
        n::getxattr | n::lgetxattr => {
            linux.get_attribute(thread, Of::path(a, number == n::getxattr), [b, c, d])
        }
        n::fgetxattr => linux.get_attribute(thread, Of::Open(a), [b, c, d]),
        n::listxattr | n::llistxattr => {
            linux.list_attributes(thread, Of::path(a, number == n::listxattr), b, c)
        }
        n::flistxattr => linux.list_attributes(thread, Of::Open(a), b, c),
        n::removexattr | n::lremovexattr => {
            linux.remove_attribute(thread, Of::path(a, number == n::removexattr), b)
        }
        n::fremovexattr => linux.remove_attribute(thread, Of::Open(a), b),

        n::mmap => linux.mmap(thread, all),
        n::munmap => linux.munmap(thread, all),
        n::mprotect => linux.mprotect(thread, all),
        n::brk => linux.brk(thread, all),
        n::mremap => linux.mremap(thread, all),
        n::remap_file_pages => linux.remap_file_pages(thread, all),
        n::madvise => linux.madvise(thread, all),
        n::process_vm_readv => linux.copy_remote(thread, all, false),
        n::process_vm_writev => linux.copy_remote(thread, all, true),
        n::mincore => linux.mincore(thread, all),
        n::msync => linux.msync(thread, all),
        n::mlock => linux.mlock(thread, a, b, Lock::All),
        n::mlock2 if c & !1 != 0 => Err(Errno::EINVAL),
        n::mlock2 => linux.mlock(thread, a, b, if c == 1 { Lock::Used } else { Lock::All }),
        n::munlock => linux.munlock(thread, a, b),
        n::mlockall => linux.mlockall(thread, a, frame.registers.rsp),
        n::munlockall => linux.munlockall(thread),

        n::fork => linux.clone_(thread, frame, &tasks::Clone::fork()),
        n::vfork => linux.clone_(thread, frame, &tasks::Clone::vfork()),
        n::clone => linux.clone_(thread, frame, &tasks::Clone::plain([a, b, c, d, e])),
        n::clone3 => {
            let ask = linux.clone_arguments(thread, a, b)?;
            linux.clone_(thread, frame, &ask)
        }
        n::execve => linux.execve(thread, frame, [HERE, a, b, c, 0]),
        n::execveat => linux.execve(thread, frame, [a, b, c, d, e]),
        n::exit => linux.exit(thread, a),
        n::exit_group => linux.exit_group(process, a),
        n::wait4 => linux.wait4(thread, [a, b, c, d]),
        n::waitid => linux.waitid(thread, all),
        n::futex => linux.futex(thread, all),
        n::kcmp => linux.kcmp(thread, [a, b, c, d, e]),
        n::futex_waitv => linux.futex_waitv(thread, [a, b, c, d, e]),
        n::set_tid_address => {
            thread.clear_tid.store(a, Ordering::SeqCst);
            Ok(thread.tid.into())
        }
        n::set_robust_list if b != 24 => Err(Errno::EINVAL),
        n::set_robust_list => {
            thread.robust.store(a, Ordering::SeqCst);
            Ok(0)
        }
        n::get_robust_list => linux.get_robust_list(thread, [a, b, c]),
        n::rseq => Err(Errno::ENOSYS),
        n::sched_yield => {
            linux.machine.cond_resched();
            Ok(0)
        }
        n::sched_getaffinity => linux.get_affinity(thread, a, b, c),
        n::sched_setaffinity => linux.set_affinity(thread, a, b, c),
        n::sched_getscheduler => linux.scheduling(thread, a, None).map(|(how, _)| how.into()),
        n::sched_setscheduler => {
            linux.scheduling(thread, a, Some((Some(b as u32), linux.load_word(c)?))).map(|_| 0)
        }
        n::sched_getparam if b == 0 => Err(Errno::EINVAL),
        n::sched_getparam => {
            let (_, priority) = linux.scheduling(thread, a, None)?;
            linux.machine.write_user(b, &priority.to_le_bytes()).map(|()| 0)
        }
        n::sched_setparam if b == 0 => Err(Errno::EINVAL),
        n::sched_setparam => linux.scheduling(thread, a, Some((None, linux.load_word(b)?))).map(|_| 0),
        n::setpriority => linux.set_priority(thread, a, b, c),
        n::getpriority => linux.get_priority(thread, a, b),
        n::sched_getattr => linux.get_scheduling(thread, [a, b, c, d]),
        n::sched_setattr => linux.set_scheduling(thread, [a, b, c]),
        n::sched_get_priority_max if a > 6 || a == 4 => Err(Errno::EINVAL),
        n::sched_get_priority_min if a > 6 || a == 4 => Err(Errno::EINVAL),
        n::sched_get_priority_max => Ok(if a == 1 || a == 2 { 99 } else { 0 }),
        n::sched_get_priority_min => Ok(u64::from(a == 1 || a == 2)),
        n::getcpu => linux.getcpu(a, b),
        n::gettid => Ok(thread.tid.into()),
        n::getpid => Ok(process.pid.into()),
        // Of who has lost its parent, it is the first process.
        n::getppid => {
            let least = u32::from(process.pid != 1);
            Ok(process.parent.load(Ordering::Relaxed).max(least).into())
        }
        n::getpgrp => Ok(process.group.load(Ordering::Relaxed).into()),
        n::getpgid => linux.group_of(thread, a),
        n::setpgid => linux.set_group(thread, a, b),
        n::getsid => linux.session_of(thread, a),
        n::setsid => linux.set_session(thread),
        n::getuid => Ok(linux.ids(thread, Which::User)[0].into()),
        n::geteuid => Ok(linux.ids(thread, Which::User)[1].into()),
        n::getgid => Ok(linux.ids(thread, Which::Group)[0].into()),
        n::getegid => Ok(linux.ids(thread, Which::Group)[1].into()),
        n::setuid => linux.set_id(thread, Which::User, a),
        n::setgid => linux.set_id(thread, Which::Group, a),
        n::setreuid => linux.set_two_ids(thread, Which::User, [a, b]),
        n::setregid => linux.set_two_ids(thread, Which::Group, [a, b]),
        n::setresuid => linux.set_all_ids(thread, Which::User, [a, b, c]),
        n::setresgid => linux.set_all_ids(thread, Which::Group, [a, b, c]),
        n::setfsuid => linux.set_file_id(thread, Which::User, a),
        n::setfsgid => linux.set_file_id(thread, Which::Group, a),
        n::getresuid => linux.get_all_ids(thread, Which::User, [a, b, c]),
        n::getresgid => linux.get_all_ids(thread, Which::Group, [a, b, c]),
        n::getgroups => linux.get_groups(thread, a, b),
        n::setgroups => linux.set_groups(thread, a, b),
        n::capget => linux.capget(thread, a, b),
        n::capset => linux.capset(thread, a, b),
        n::arch_prctl => linux.arch_prctl(thread, a, b),
        n::prctl => linux.prctl(thread, [a, b, c, d, e]),
        n::prlimit64 => linux.prlimit(thread, [a, b, c, d]),
        n::getrlimit => linux.prlimit(thread, [0, a, 0, b]),
        n::setrlimit => linux.prlimit(thread, [0, a, b, 0]),
        n::getrusage => linux.getrusage(thread, a, b),
        n::sysinfo => linux.sysinfo(a),
        n::times => linux.times(thread, a),
        n::uname => linux.uname(a),
        n::sethostname => linux.set_host_name(thread, a, b),
        n::getrandom => linux.getrandom(a, b, c),

        n::clock_gettime => linux.clock_gettime(thread, a, b),
        n::adjtimex => linux.adjtimex(a),
        n::clock_adjtime => linux.adjtimex(b),
        n::clock_getres => linux.clock_getres(thread, a, b),
        n::gettimeofday => linux.gettimeofday(a, b),
        n::time => linux.time_of_day(a),
        n::nanosleep => linux.sleep(thread, [1, 0, a, b]),
        n::clock_nanosleep => linux.sleep(thread, [a, b, c, d]),
        n::alarm => linux
            .set_alarm(thread, u64::from(a as u32) * 1_000_000_000, 0)
            // The nearest second, but not none of what is left.
            .map(|(left, _)| ((left + 500_000_000) / 1_000_000_000).max(left.min(1))),
        n::setitimer => linux.setitimer(thread, a, b, c),
        n::getitimer => linux.getitimer(thread, a, b),

        n::rt_sigaction => linux.sigaction(thread, [a, b, c, d]),
        n::rt_sigprocmask => linux.sigprocmask(thread, [a, b, c, d]),
        n::rt_sigreturn => linux.sigreturn(thread, frame),
        n::rt_sigsuspend if b != 8 => Err(Errno::EINVAL),
        n::rt_sigsuspend => linux.sigsuspend(thread, a),
        n::rt_sigpending if b > 8 => Err(Errno::EINVAL),
        n::rt_sigpending => linux.sigpending(thread, a),
        n::rt_sigtimedwait if d != 8 => Err(Errno::EINVAL),
        n::rt_sigtimedwait => linux.sigtimedwait(thread, [a, b, c]),
        n::pause => linux.pause(thread),
        n::sigaltstack => linux.sigaltstack(thread, frame.registers.rsp, a, b),
        n::kill => linux.kill_call(thread, a as i32, b as u32),
        n::tgkill | n::tkill if a as i32 <= 0 || number == n::tgkill && b as i32 <= 0 => Err(Errno::EINVAL),
        n::tkill => linux.tgkill(thread, None, a as u32, b as u32),
        n::tgkill => linux.tgkill(thread, Some(a as u32), b as u32, c as u32),
        n::rt_sigqueueinfo => linux.sigqueue(thread, None, [a, b, c]),
        n::rt_tgsigqueueinfo => linux.sigqueue(thread, Some(b), [a, c, d]),
        n::restart_syscall => match thread.restarts.load(Ordering::Relaxed) {
            0 => Err(Errno::EINTR),
            number => {
                let answer = call(linux, thread, frame, number);
                // Whatever interrupts it once more, it is that call that is made again.
                if answer != Err(RESTART) {
                    thread.restarts.store(0, Ordering::Relaxed);
                }
                answer
            }
        },
        n::seccomp => linux.seccomp(thread, a, b, c),
        n::membarrier => linux.membarrier(thread, a, b),
        n::socket => linux.socket(thread, a, b, c),
        n::socketpair => linux.socketpair(thread, [a, b, c, d]),
        n::bind => linux.bind(thread, a, b, c),
        n::listen => linux.listen(thread, a, b),
        n::accept => linux.accept(thread, [a, b, c, 0]),
        n::accept4 => linux.accept(thread, [a, b, c, d]),
        n::connect => linux.connect(thread, a, b, c),
        n::getsockname => linux.socket_name(thread, [a, b, c], false),
        n::getpeername => linux.socket_name(thread, [a, b, c], true),
        n::sendto => linux.sendto(thread, all),
        n::recvfrom => linux.recvfrom(thread, all),
        n::sendmsg => linux.sendmsg(thread, a, b, c),
        n::recvmsg => linux.recvmsg(thread, a, b, c),
        n::sendmmsg => linux.sendmmsg(thread, [a, b, c, d]),
        n::recvmmsg => linux.recvmmsg(thread, [a, b, c, d, e]),
        n::shutdown => linux.shutdown(thread, a, b),
        n::setsockopt => linux.setsockopt(thread, [a, b, c, d, e]),
        n::getsockopt => linux.getsockopt(thread, [a, b, c, d, e]),
        // As on a machine whose CPUs have no such keys, and for whoever may not.
        n::pkey_alloc if a != 0 || b & !3 != 0 => Err(Errno::EINVAL),
        n::pkey_alloc => Err(Errno::ENOSPC),
        n::pkey_free => Err(Errno::EINVAL),
        n::pkey_mprotect if d as i32 == -1 => linux.mprotect(thread, all),
        n::pkey_mprotect => Err(Errno::EINVAL),
        n::reboot if a as u32 != 0xfee1_dead => Err(Errno::EINVAL),
        n::io_uring_setup | n::userfaultfd | n::bpf | n::perf_event_open | n::reboot => Err(Errno::EPERM),
        n::add_key => linux.add_key(thread, [a, b, c, d, e]),
        n::request_key => linux.request_key(thread, [a, b]),
        n::keyctl => linux.keyctl(thread, [a, b, c, d, e]),
        n::ptrace => linux.ptrace(thread, [a, b, c, d]),
        n::ioprio_get | n::ioprio_set => linux.io_priority(thread, [a, b, c], number == n::ioprio_set),
        n::sched_rr_get_interval => linux.get_turn(thread, a, b),
        // How addresses are chosen, and the like: one way only. It is kept.
        n::personality if a as u32 == u32::MAX => Ok(process.personality.load(Ordering::Relaxed).into()),
        n::personality => Ok(process.personality.swap(a as u32, Ordering::Relaxed).into()),
        n::vhangup => linux.hang_up(thread),
        n::chroot => linux.chroot(thread, a),
        // There is one node.
        n::set_mempolicy | n::mbind => linux.set_policy(thread, number == n::mbind, all),
        n::get_mempolicy => linux.get_policy(thread, all),
        n::move_pages => linux.move_pages(thread, all),
        // From the only node to the only node.
        n::migrate_pages => linux.process_of(thread, a).map(|_| 0),
        n::set_mempolicy_home_node if d != 0 || c != 0 => Err(Errno::EINVAL),
        n::set_mempolicy_home_node => Ok(0),
        n::process_mrelease => linux.process_mrelease(thread, a, b),
        n::clock_settime => linux.clock_settime(thread, a, b),
        // What nobody may who has not got the machine for itself.
        n::mount
        | n::umount2
        | n::pivot_root
        | n::swapon
        | n::swapoff
        | n::setdomainname
        | n::settimeofday
        | n::setns
        | n::init_module
        | n::finit_module
        | n::delete_module
        | n::kexec_load
        | n::acct
        | n::quotactl
        | n::iopl
        | n::ioperm
        | n::syslog
        | n::fanotify_init
        | n::open_by_handle_at
        | n::fsopen
        | n::fspick
        | n::fsmount
        | n::fsconfig
        | n::open_tree
        | n::move_mount
        | n::mount_setattr
        | n::quotactl_fd
        | n::kexec_file_load => Err(Errno::EPERM),
        // None of their sets can be made, nor their rings.
        n::fanotify_mark | n::io_uring_enter | n::io_uring_register => Err(Errno::EBADF),
        n::unshare => linux.unshare(thread, a),
        n::name_to_handle_at => Err(Errno::EOPNOTSUPP),
        // What no Linux answers any more, or only one that is newer than most, or was told to: whoever asks does without.
        n::uselib
        | n::_sysctl
        | n::create_module
        | n::get_kernel_syms
        | n::query_module
        | n::nfsservctl
        | n::getpmsg
        | n::putpmsg
        | n::afs_syscall
        | n::tuxcall
        | n::security
        | n::set_thread_area
        | n::get_thread_area
        | n::lookup_dcookie
        | n::epoll_ctl_old
        | n::epoll_wait_old
        | n::vserver
        | n::memfd_secret
        | n::landlock_create_ruleset
        | n::landlock_add_rule
        | n::landlock_restrict_self
        | 451.. => Err(Errno::ENOSYS),
        // A tracer has put it there so that nothing is done.
        _ if number as i32 <= 0 => Err(Errno::ENOSYS),
        _ => {
            linux.note_unknown(thread, number);
            Err(Errno::ENOSYS)
        }
    }
}

impl<M: Machine> Linux<'_, M> {
    /// A system call of the program that runs here.
    pub fn syscall(&self, thread: &Arc<Thread>, frame: &mut Frame) -> Flow {
        // The upper half of the register says nothing.
        let mut number = u64::from(frame.registers.error as u32);
        let mut skips = false;
        if thread.traced.is() {
            frame.registers.rax = Errno::ENOSYS.register();
            if thread.traced.follows_calls() {
                if !self.stop_for_call(thread, frame, true) {
                    return self.leave(thread, frame, None);
                }
                // The tracer may have it make another call, or none.
                number = u64::from(frame.registers.error as u32);
                skips = number as i32 == -1;
            }
        }
        let mut answered = skips.then_some(frame.registers.rax);
        if !skips && thread.filtering.how() != crate::filtering::FREE {
            match self.pass_filters(thread, frame, number) {
                Passed::Made(other) => number = other,
                Passed::Answered(value) => answered = Some(value),
            }
        }
        let arguments = frame.arguments();
        let answer = answered.map_or_else(|| call(self, thread, frame, number), Ok);
        self.settle();
        self.hear(thread);
        if self.notes_calls.load(Ordering::Relaxed) {
            self.note_call(thread, arguments, number, answer);
        }
        let again = answer.is_err_and(is_again);
        match answer {
            // The registers are another program's, or those that a handler has kept.
            Ok(value) if answered.is_none() && replaces_registers(number) => {
                let _ = value;
            }
            Ok(value) => frame.registers.rax = value,
            Err(error) => frame.registers.rax = error.register(),
        }
        let again = again.then_some(number);
        if thread.traced.is() {
            if thread.traced.follows_calls() {
                let _ = self.stop_for_call(thread, frame, false);
            }
            self.step_of_call(thread, frame);
            let again = Self::again_of(thread, frame, again);
            return self.leave(thread, frame, again);
        }
        self.leave(thread, frame, again)
    }

    /// System calls that were asked for and are not there.
    pub fn unknown(&self) -> Vec<Unknown> {
        self.unknown.with(|all| {
            let entry = |((number, by), count): (&(u64, Vec<u8>), &u64)| {
                let name = name(*number).map_or_else(|| alloc::format!("number {number}"), String::from);
                Unknown { name, by: text(by), count: *count }
            };
            all.iter().map(entry).collect()
        })
    }

    fn note_call(&self, thread: &Thread, arguments: [u64; 6], number: u64, answer: Answer) {
        let name = name(number).unwrap_or("?");
        let [a, b, c, d, ..] = arguments;
        match answer {
            Ok(value) => self
                .machine
                .note(format_args!("{}: {name}({a:#x}, {b:#x}, {c:#x}, {d:#x}) = {value:#x}", thread.tid)),
            Err(error) => {
                self.machine.note(format_args!(
                    "{}: {name}({a:#x}, {b:#x}, {c:#x}, {d:#x}): error {}",
                    thread.tid, error.0
                ));
            }
        }
    }
}
