//! Work on external data in a child process, whose failures do not harm this one.

use super::{check, kill, owned, poll_readable, set_parent_death_signal};
use crate::bounded::{self, Limit};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, IntoRawFd};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It took too long.
    Time,
    /// It took too much memory.
    Memory,
    /// It crashed, or its answer was too long.
    Crash,
    /// It could not be started.
    Start,
}

/// The result of `work` in a child process, which ends after this time. The child may use this many bytes of memory
/// more than this process does; files mapped for reading do not count.
///
/// No program is executed: the child has a copy of this process's memory, and of its calling thread only. A lock held
/// by another thread stays locked until the time limit; the allocators of glibc and musl handle forks.
///
/// # Errors
/// There is none.
pub fn confined(memory: u64, time: Duration, work: impl FnOnce() -> Vec<u8>) -> Result<Vec<u8>, Failed> {
    let deadline = Instant::now() + time;
    let (answer, theirs) = pipe().map_err(|_| Failed::Start)?;
    // SAFETY: the child goes on with a copy of everything, see above, and ends in `child` without unwinding.
    let pid = check(unsafe { libc::fork() }).map_err(|_| Failed::Start)?;
    if pid == 0 {
        drop(answer);
        child(memory, theirs, work);
    }
    drop(theirs);
    // A pipe holds 64 KiB: it is read while the child writes, and only complete output is used.
    let mut said = Deadline { file: answer, deadline };
    let bytes = bounded::rest(&mut said, Limit::Named);
    let _ = kill(pid.cast_unsigned(), libc::SIGKILL); // it has ended, or must end
    let status = wait(pid);
    let late = bytes.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::TimedOut);
    match (bytes, status) {
        _ if late => Err(Failed::Time),
        (Ok(bytes), Some(status)) if status.success() => Ok(bytes),
        // Without memory, the standard library aborts.
        (_, Some(status)) if status.signal() == Some(libc::SIGABRT) => Err(Failed::Memory),
        _ => Err(Failed::Crash),
    }
}

fn child(memory: u64, mut answer: File, work: impl FnOnce() -> Vec<u8>) -> ! {
    let done = catch_unwind(AssertUnwindSafe(|| {
        set_parent_death_signal(libc::SIGKILL)?;
        for (what, most) in [(libc::RLIMIT_CORE, 0), (libc::RLIMIT_DATA, memory.saturating_add(data()?))] {
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            // SAFETY: the structure is readable.
            check(unsafe { libc::setrlimit(what, &raw const limit) })?;
        }
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            // SAFETY: no handler runs. The runtime's would abort at the end of the stack, like running out of memory.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        // Output of libraries, and of the runtime at a crash, on such files is discarded.
        let null = File::options().write(true).open("/dev/null")?.into_raw_fd();
        // SAFETY: takes plain numbers; both descriptors are open or the call fails.
        check(unsafe { libc::dup2(null, 2) })?;
        answer.write_all(&work())
    }));
    let code = i32::from(!matches!(done, Ok(Ok(()))));
    // SAFETY: ends this process at once; exit handlers belong to its parent.
    unsafe { libc::_exit(code) }
}

/// Memory of this process counted by `RLIMIT_DATA`, bytes.
fn data() -> io::Result<u64> {
    let status = bounded::text("/proc/self/status", Limit::Value)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.ok_or(io::ErrorKind::InvalidData)? << 10)
}

fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: the array is writable for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok((owned(ends[0]).into(), owned(ends[1]).into()))
}

fn wait(pid: libc::pid_t) -> Option<ExitStatus> {
    let mut status = 0;
    loop {
        // SAFETY: the status is writable.
        match check(unsafe { libc::waitpid(pid, &raw mut status, 0) }) {
            Ok(_) => return Some(ExitStatus::from_raw(status)),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None, // it was reaped elsewhere
        }
    }
}

/// A file readable until then.
struct Deadline {
    file: File,
    deadline: Instant,
}

impl io::Read for Deadline {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match poll_readable([Some(self.file.as_fd())], left)? {
                [true] => return self.file.read(buffer),
                [false] if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
                [false] => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Mapping;
    use cotenant_testing::TempDir;

    const LONG: Duration = Duration::from_secs(60);
    const MEMORY: u64 = 64 << 20;

    #[test]
    fn the_answer_is_that_of_the_work() {
        let answer: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(confined(MEMORY, LONG, || answer.clone()), Ok(answer.clone()), "more than a pipe takes");
        assert_eq!(confined(MEMORY, LONG, Vec::new), Ok(Vec::new()));
    }

    #[test]
    fn what_does_harm_does_it_to_the_child() {
        // Far more than available: without the limit only a write would fail.
        assert_eq!(confined(MEMORY, LONG, || vec![0; 1 << 30]), Err(Failed::Memory));
        assert_eq!(confined(MEMORY, LONG, || panic!("no answer")), Err(Failed::Crash));
        let dir = TempDir::new("cut");
        dir.write("file", "its content");
        let cut = || {
            let file = File::options().read(true).write(true).open(dir.path().join("file")).unwrap();
            let content = Mapping::new(&file, 11, false).unwrap().forever();
            file.set_len(0).unwrap();
            content.to_vec()
        };
        assert_eq!(confined(MEMORY, LONG, cut), Err(Failed::Crash));
        let killed = || kill(std::process::id(), libc::SIGKILL).map(|()| Vec::new()).unwrap();
        assert_eq!(confined(MEMORY, LONG, killed), Err(Failed::Crash), "no answer is not an empty one");
        let endless = || loop {
            std::thread::park();
        };
        assert_eq!(confined(MEMORY, Duration::from_millis(50), endless), Err(Failed::Time));
    }
}
