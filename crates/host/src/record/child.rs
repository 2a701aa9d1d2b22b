//! The program to be recorded, as a child that waits before it begins, so that nothing of it is missed.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{AccessFlags, ForkResult, Pid, access, execvp, fork, pipe2};

use super::RecordError;

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// A child that has not begun its program yet, or that runs it.
pub struct Child {
    pub pid: i32,
    go: Option<File>,
    /// What it says if the program cannot be begun.
    failed: File,
    name: String,
}

impl Child {
    /// Makes the child. It waits.
    pub fn hold(words: &[OsString]) -> Result<Child, RecordError> {
        let name = words.first().map_or(String::new(), |word| word.to_string_lossy().into_owned());
        let strings: Result<Vec<CString>, _> =
            words.iter().map(|word| CString::new(word.clone().into_vec())).collect();
        let strings = strings.map_err(|_| RecordError::Program("a zero byte in the command line".into()))?;
        let first = strings.first().ok_or_else(|| RecordError::Program("no command to record".into()))?;
        let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from);
        let ((wait, go), (failed, tell)) = (pipe()?, pipe()?);
        // SAFETY: until it runs the program the child calls nothing but read, write, execvp and _exit, which may be
        // called after a fork whatever other threads did; it allocates nothing that `execvp` does not.
        match unsafe { fork() }.map_err(io::Error::from)? {
            ForkResult::Child => begin(&wait, go, &tell, first, &strings),
            ForkResult::Parent { child } => {
                let failed = File::from(failed);
                drop((wait, tell));
                Ok(Child { pid: child.as_raw(), go: Some(File::from(go)), failed, name })
            }
        }
    }

    /// Lets it begin its program.
    pub fn release(&mut self) -> io::Result<()> {
        match self.go.take() {
            Some(mut go) => go.write_all(b"g"),
            None => Ok(()),
        }
    }

    /// Why the program could not be begun, if it was so. To be asked once the child has ended, or runs the program.
    pub fn failure(&mut self) -> Option<RecordError> {
        let mut code = [0; 4];
        self.failed.read_exact(&mut code).ok()?;
        let error = io::Error::from_raw_os_error(i32::from_le_bytes(code));
        Some(RecordError::Program(format!("{}: {error}", self.name)))
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> io::Result<Option<Ended>> {
        match waitpid(Pid::from_raw(self.pid), Some(WaitPidFlag::WNOHANG)).map_err(io::Error::from)? {
            WaitStatus::Exited(_, code) => Ok(Some(Ended::Code(code))),
            WaitStatus::Signaled(_, signal, _) => Ok(Some(Ended::Signal(signal as i32))),
            _ => Ok(None),
        }
    }

    /// It is not recorded any more. One that waits ends; one that runs is left to itself.
    pub fn abandon(mut self) {
        if self.go.take().is_some() {
            let _ = waitpid(Pid::from_raw(self.pid), None);
        }
    }
}

/// Whether there is such a program, where `execvp` looks for it.
pub fn there(words: &[OsString]) -> Result<(), RecordError> {
    let Some(name) = words.first() else { return Ok(()) };
    let runs = |path: &Path| access(path, AccessFlags::X_OK);
    let found = if name.as_bytes().contains(&b'/') {
        runs(Path::new(name))
    } else {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        std::env::split_paths(&path)
            .map(|folder| runs(&folder.join(name)))
            .find(Result::is_ok)
            .unwrap_or(Err(Errno::ENOENT))
    };
    found.map_err(|error| {
        RecordError::Program(format!("{}: {}", name.to_string_lossy(), io::Error::from(error)))
    })
}

/// The child's way to its program.
fn begin(wait: &OwnedFd, go: OwnedFd, tell: &OwnedFd, program: &CString, words: &[CString]) -> ! {
    drop(go);
    let mut byte = [0];
    let released = nix::unistd::read(wait, &mut byte) == Ok(1);
    if released {
        // Returns only if it fails.
        let error = execvp(program, words).err().map_or(0, |error| error as i32);
        let _ = nix::unistd::write(tell, &error.to_le_bytes());
    }
    // SAFETY: ends this process; nothing of the parent's is run down.
    unsafe { libc::_exit(if released { 127 } else { 0 }) }
}

/// Whether a descriptor has something to read within so many milliseconds; `true` after a signal too.
pub fn wait_for(descriptors: &[&dyn AsRawFd], milliseconds: i32) -> io::Result<()> {
    let mut polled: Vec<libc::pollfd> = descriptors
        .iter()
        .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    // SAFETY: the array is as long as it says, and lives through the call.
    let done = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, milliseconds) };
    match io::Error::last_os_error() {
        error if done < 0 && error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}
