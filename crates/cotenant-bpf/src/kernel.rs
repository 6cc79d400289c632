//! What all objects need of the kernel: whether it takes them, and why not.

use aya::maps::Map;
use aya::programs::{BtfTracePoint, Program, ProgramError};
use aya::{Btf, Ebpf};
use std::fs;
use std::io;
use std::path::Path;

/// Below this version of Linux nothing was tried.
const OLDEST: (u32, u32) = (6, 1);

/// Why nothing can be seen by BPF here, with the remedy where there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blind {
    /// The rights are missing.
    #[error(
        "bpf(2) is not allowed: it needs the capabilities BPF and PERFMON (root has them, containers often do not), and a \
         system-call filter that lets it pass"
    )]
    NotAllowed,
    /// The kernel is locked down.
    #[error("the kernel is locked down (confidentiality): it lets no BPF program read its memory")]
    LockedDown,
    /// The kernel does not describe itself.
    #[error("this kernel has no /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF)")]
    NoBtf,
    /// The kernel is older than what was tried.
    #[error("Linux {0} is too old for it: it needs {major}.{minor}", major = OLDEST.0, minor = OLDEST.1)]
    TooOld(String),
    /// Anything else, as the kernel says it.
    #[error("{what}: {why}")]
    Refused {
        /// What was refused.
        what: String,
        /// By which error.
        why: String,
    },
}

/// Loads an object, where this kernel may take one.
pub fn loading<T>(load: impl FnOnce() -> Result<T, Error>) -> Result<T, Blind> {
    // A version that cannot be read is tried.
    if let Ok(release) = fs::read_to_string("/proc/sys/kernel/osrelease")
        && version(&release).is_some_and(|version| version < OLDEST)
    {
        return Err(Blind::TooOld(release.trim().to_owned()));
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Blind::NoBtf);
    }
    let loaded = load().map_err(|why| refused(&why));
    // What it took to find the kernel's structures, tens of megabytes, goes back at once.
    // SAFETY: returns memory that nothing uses to the kernel.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
    loaded
}

/// Attaches each program to its tracepoint. Returns the tracepoints that this kernel does not have or refuses, with its
/// reason; without one of the first `needed` nothing works.
pub fn attach_all(
    object: &mut Ebpf,
    points: &[(&'static str, &str)],
    needed: usize,
    btf: &Btf,
) -> Result<Vec<String>, Error> {
    let mut missing = Vec::new();
    for (i, (program, point)) in points.iter().enumerate() {
        match attach(object, program, point, btf) {
            Ok(()) => {}
            Err(why) if i < needed => return Err(why),
            Err(why) => missing.push(format!("{point}: {}", refused(&why))),
        }
    }
    Ok(missing)
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Btf(#[from] aya::BtfError),
    #[error(transparent)]
    Object(#[from] aya::EbpfError),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("the object has no program {0}")]
    NoProgram(&'static str),
}

pub fn program<'a>(object: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Program, Error> {
    object.program_mut(name).ok_or(Error::NoProgram(name))
}

pub fn map<'a>(object: &'a mut Ebpf, name: &str) -> io::Result<&'a mut Map> {
    object.map_mut(name).ok_or_else(|| io::Error::other(format!("the object has no map {name}")))
}

fn attach(object: &mut Ebpf, name: &'static str, point: &str, btf: &Btf) -> Result<(), Error> {
    let program: &mut BtfTracePoint = program(object, name)?.try_into()?;
    program.load(point, btf)?;
    program.attach()?;
    Ok(())
}

pub fn io_error(why: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    match errno(&why) {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::other(why),
    }
}

/// The number of the kernel's error, wherever it is in the chain.
fn errno(why: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut next = Some(why);
    while let Some(why) = next {
        if let Some(errno) = why.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(errno);
        }
        next = why.source();
    }
    None
}

/// In words for the user.
fn refused(why: &Error) -> Blind {
    match errno(why) {
        Some(libc::EPERM | libc::EACCES) if is_locked_down() => Blind::LockedDown,
        Some(libc::EPERM) => Blind::NotAllowed,
        errno => {
            let what = why.to_string();
            let why = errno.map_or_else(|| deepest(why), |errno| io::Error::from_raw_os_error(errno).to_string());
            Blind::Refused { what, why }
        }
    }
}

fn deepest(why: &dyn std::error::Error) -> String {
    why.source().map_or_else(|| why.to_string(), deepest)
}

fn is_locked_down() -> bool {
    fs::read_to_string("/sys/kernel/security/lockdown").is_ok_and(|state| state.contains("[confidentiality]"))
}

/// `6.18.44-fc` → (6, 18)
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
