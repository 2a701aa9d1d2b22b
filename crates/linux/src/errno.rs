//! Errors as programs see them.

use quietmm::Error;

/// A number of `errno.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub u16);

/// What a system call answers.
pub type Answer = Result<u64, Errno>;

macro_rules! numbers {
    ($($name:ident = $number:literal, $what:literal;)*) => {
        impl Errno { $(#[doc = $what] pub const $name: Errno = Errno($number);)* }
    };
}

numbers! {
    EPERM = 1, "Not permitted.";
    ENOENT = 2, "No such file.";
    ESRCH = 3, "No such process.";
    EINTR = 4, "A signal came first.";
    EIO = 5, "The device failed.";
    ENXIO = 6, "No such device, or nothing there.";
    E2BIG = 7, "Too many arguments.";
    ENOEXEC = 8, "Not a program.";
    EBADF = 9, "Not an open file.";
    ECHILD = 10, "No child to wait for.";
    EAGAIN = 11, "Not now.";
    ENOMEM = 12, "No memory, or nothing is mapped there.";
    EACCES = 13, "No right to.";
    EFAULT = 14, "A bad pointer.";
    EBUSY = 16, "Somebody uses it.";
    EEXIST = 17, "It exists.";
    ENODEV = 19, "No such device.";
    ENOTDIR = 20, "Not a directory.";
    EISDIR = 21, "A directory.";
    EINVAL = 22, "An argument makes no sense.";
    EMFILE = 24, "Too many open files.";
    ENOTTY = 25, "Not a terminal.";
    ETXTBSY = 26, "It runs, or is written to.";
    EFBIG = 27, "Too large a file.";
    ENOSPC = 28, "No room.";
    ESPIPE = 29, "Not a file with places in it.";
    EXDEV = 18, "Not on the same device.";
    EROFS = 30, "Nothing can be written there.";
    EPIPE = 32, "Nobody reads.";
    EDEADLK = 35, "It would wait for itself.";
    EDOM = 33, "Not a number that can be.";
    ERANGE = 34, "Too small a buffer.";
    ENOLCK = 37, "Too many locks.";
    ENODATA = 61, "No such attribute.";
    ENAMETOOLONG = 36, "Too long a name.";
    ENOMSG = 42, "No such message.";
    EIDRM = 43, "It is gone.";
    ENOSYS = 38, "No such system call here.";
    ENOTEMPTY = 39, "The directory is not empty.";
    ELOOP = 40, "Too many symbolic links.";
    ELIBBAD = 80, "An interpreter that is none.";
    EOVERFLOW = 75, "Too large a number.";
    ENOTSOCK = 88, "Not a socket.";
    EDESTADDRREQ = 89, "Nobody to send it to.";
    EMSGSIZE = 90, "Too long for one piece.";
    EPROTOTYPE = 91, "A socket of another kind.";
    ENOPROTOOPT = 92, "No such option.";
    EPROTONOSUPPORT = 93, "No such protocol.";
    ESOCKTNOSUPPORT = 94, "No such kind of socket.";
    EDQUOT = 122, "More than one may have.";
    ENOKEY = 126, "No such key.";
    EKEYREVOKED = 128, "The key is not good any more.";
    EOPNOTSUPP = 95, "Not of this kind of file.";
    EAFNOSUPPORT = 97, "No such kind of network.";
    EADDRINUSE = 98, "Somebody has this address.";
    EADDRNOTAVAIL = 99, "Not an address of this machine.";
    ENETUNREACH = 101, "There is no way there.";
    ECONNABORTED = 103, "It has come to nothing.";
    EISCONN = 106, "It is connected.";
    ENOTCONN = 107, "It is not connected.";
    ECONNRESET = 104, "The other end broke off.";
    ECONNREFUSED = 111, "Nobody listens there.";
    ETIMEDOUT = 110, "The time is over.";
    EINPROGRESS = 115, "It goes on.";
}

impl Errno {
    /// As a register has it.
    pub fn register(self) -> u64 {
        -i64::from(self.0) as u64
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        match error {
            Error::OutOfMemory | Error::TooMany | Error::MapCount { .. } | Error::NotMapped(_) => {
                Errno::ENOMEM
            }
            Error::Overlaps(_) => Errno::EEXIST,
            Error::NotMappable(_) => Errno::EPERM,
            Error::NotPermitted(_) => Errno::EACCES,
            Error::Device | Error::SwapDevice(_) => Errno::EIO,
            Error::Busy => Errno::EAGAIN,
            _ => Errno::EINVAL,
        }
    }
}
