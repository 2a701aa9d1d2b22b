//! Which calls are refused when the kernel's own memory is short.

use super::n;

/// Whether a call has the kernel keep something for the program: what is open, named, mapped, sent or run.
pub(super) fn keeps(number: u64) -> bool {
    matches!(
        number,
        n::open
            | n::openat
            | n::openat2
            | n::creat
            | n::dup
            | n::dup2
            | n::dup3
            | n::fcntl
            | n::pipe
            | n::pipe2
            | n::eventfd
            | n::eventfd2
            | n::memfd_create
            | n::epoll_create
            | n::epoll_create1
            | n::epoll_ctl
            | n::timerfd_create
            | n::signalfd
            | n::signalfd4
            | n::timer_create
            | n::shmget
            | n::shmat
            | n::semget
            | n::semop
            | n::semtimedop
            | n::msgget
            | n::msgsnd
            | n::add_key
            | n::keyctl
            | n::mq_open
            | n::mq_timedsend
            | n::io_setup
            | n::pidfd_open
            | n::pidfd_getfd
            | n::inotify_init
            | n::inotify_init1
            | n::inotify_add_watch
            | n::socket
            | n::socketpair
            | n::accept
            | n::accept4
            | n::bind
            | n::connect
            | n::sendto
            | n::sendmsg
            | n::sendmmsg
            | n::setxattr
            | n::lsetxattr
            | n::fsetxattr
            | n::mkdir
            | n::mknod
            | n::mknodat
            | n::splice
            | n::mkdirat
            | n::link
            | n::linkat
            | n::symlink
            | n::symlinkat
            | n::rename
            | n::renameat
            | n::renameat2
            | n::mmap
            | n::mremap
            | n::mprotect
            | n::pkey_mprotect
            | n::brk
            | n::clone
            | n::clone3
            | n::fork
            | n::vfork
            | n::execve
            | n::execveat
    )
}
