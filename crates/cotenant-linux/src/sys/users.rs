//! Users by name, and the owners of subordinate users.

use super::{check, owned};
use crate::bounded::{self, Limit};
use std::ffi::c_int;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A user's name in `/etc/passwd`, otherwise the number.
pub fn user_name(uid: u32) -> String {
    bounded::text("/etc/passwd", Limit::Machine).map_or_else(|_| uid.to_string(), |passwd| name_in(&passwd, uid))
}

/// Names and numbers of users.
fn users(passwd: &str) -> impl Iterator<Item = (&str, u32)> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        Some((name, fields.nth(1)?.parse().ok()?))
    })
}

fn name_in(passwd: &str, uid: u32) -> String {
    let name = users(passwd).find(|(_, of)| *of == uid).map(|(name, _)| cotenant_model::text::name(name.as_bytes()));
    name.unwrap_or_else(|| uid.to_string())
}

/// Subordinate users: `/etc/subuid` (subuid(5)).
#[derive(Debug, Default)]
pub struct Subuids {
    /// First id, number, owner.
    ranges: Vec<(u32, u32, u32)>,
    /// Which file that was.
    stamp: Option<(u64, i64, i64, u64)>,
}

impl Subuids {
    const fn none() -> Self {
        Self { ranges: Vec::new(), stamp: None }
    }

    fn real(&self, uid: u32) -> u32 {
        match self.owner(uid) {
            Some((0, first)) => first,
            Some((owner, _)) => owner,
            None => uid,
        }
    }

    /// Reads a changed file. While it, or the users' names, cannot be read, the previous content holds.
    pub fn refresh(&mut self) {
        self.refresh_from(Path::new("/etc"));
    }

    fn refresh_from(&mut self, folder: &Path) {
        let stamp = |meta: fs::Metadata| (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.size());
        let stamp = fs::metadata(folder.join("subuid")).ok().map(stamp);
        if stamp == self.stamp {
            return;
        }
        let text = |name: &str| match bounded::text(folder.join(name), Limit::Machine) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            read => read,
        };
        if let (Ok(subuid), Ok(passwd)) = (text("subuid"), text("passwd")) {
            *self = Self { stamp, ..Self::parse(&subuid, &passwd) };
        }
    }

    /// Lines of the two files: `NAME:FIRST:COUNT`, where the name may be a number.
    pub fn parse(subuid: &str, passwd: &str) -> Self {
        let range = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?.trim();
            let (first, many) = (fields.next()?.trim().parse().ok()?, fields.next()?.trim().parse().ok()?);
            let owner = users(passwd).find(|(of, _)| *of == name).map(|(_, uid)| uid).or_else(|| name.parse().ok())?;
            Some((first, many, owner))
        };
        Self { ranges: subuid.lines().filter_map(range).collect(), stamp: None }
    }

    /// The owner of a subordinate user id, and the first id of the range; `None` for a real user.
    pub fn owner(&self, uid: u32) -> Option<(u32, u32)> {
        let has = |(first, many, _): &&(u32, u32, u32)| uid.checked_sub(*first).is_some_and(|at| at < *many);
        self.ranges.iter().find(has).map(|(first, _, owner)| (*owner, *first))
    }
}

/// The owner of a user id by `/etc/subuid`, or the first id of the range if that is root; else the user itself.
/// Limits per user apply to real ones, since one may act as 65,536.
pub fn real_user(uid: u32) -> u32 {
    /// The table changes rarely, and each answer to many processes takes one.
    const FRESH: Duration = Duration::from_secs(1);
    static KNOWN: Mutex<(Option<Instant>, Subuids)> = Mutex::new((None, Subuids::none()));
    if uid == 0 || uid == super::euid() {
        return uid;
    }
    let (read, subuids) = &mut *KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if read.is_none_or(|read| read.elapsed() > FRESH) {
        *read = Some(Instant::now());
        subuids.refresh();
    }
    subuids.real(uid)
}

/// The user namespace of a process, if it differs from this one's: among those around it, the one directly below this
/// one, by its inode, and its maker. `None` if it is the same, or unknown.
pub fn inner_user_namespace(pid: u32) -> Option<(u64, u32)> {
    // ioctl_nsfs(2)
    const PARENT: u32 = 0xb702;
    const OWNER: u32 = 0xb704;
    let ours = fs::metadata("/proc/self/ns/user").ok()?.ino();
    let mut inner = File::open(format!("/proc/{pid}/ns/user")).ok()?;
    let mut inode = inner.metadata().ok()?.ino();
    if inode == ours {
        return None;
    }
    loop {
        // SAFETY: takes no pointers; the descriptor is open. It returns a new descriptor of ours.
        let around = File::from(owned(check(unsafe { libc::ioctl(inner.as_raw_fd(), PARENT as _) }).ok()?));
        let next = around.metadata().ok()?.ino();
        if next == ours {
            break;
        }
        (inner, inode) = (around, next);
    }
    owner_of(&inner, OWNER).ok().map(|owner| (inode, owner))
}

fn owner_of(namespace: &File, request: u32) -> io::Result<u32> {
    let mut owner: libc::uid_t = 0;
    // SAFETY: the number is writable; the descriptor is open.
    let done: c_int = unsafe { libc::ioctl(namespace.as_raw_fd(), request as _, &raw mut owner) };
    check(done).map(|_| owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise daemon/real-users: Limits for each user count subordinate user ids as their owner's.
    #[test]
    fn budgets_are_of_those_who_are_real() {
        let subuids = Subuids::parse("alice:100000:65536\nroot:200000:65536\n", "root:x:0:0\nalice:x:1000:1000\n");
        assert_eq!([1_000, 100_000, 165_535, 165_536].map(|uid| subuids.real(uid)), [1_000, 1_000, 1_000, 165_536]);
        assert_eq!([200_000, 200_001].map(|uid| subuids.real(uid)), [200_000; 2], "they are not root");
        assert_eq!([0, crate::sys::euid()].map(real_user), [0, crate::sys::euid()]);
    }

    const USERS: &str =
        "root:x:0:0::/root:/bin/sh\n:x:7:7::/:/bin/false\nalice:x:1000:1000:Alice:/home/alice:/bin/sh\n";

    #[test]
    fn users_have_names_where_the_table_has_them() {
        assert_eq!([0, 1_000, 7, 1_001].map(|uid| name_in(USERS, uid)), ["root", "alice", "7", "1001"]);
        assert_eq!(user_name(0), "root");
    }

    #[test]
    fn a_subordinate_user_is_its_owners() {
        let table = "alice:100000:65536\n1001:165536:65536\n# no\nbob:1:1\nalice:4294967290:100\nalice:x:1\n";
        let table = Subuids::parse(table, USERS);
        let owner = |uid| table.owner(uid);
        assert_eq!([99_999, 100_000, 165_535].map(owner), [None, Some((1_000, 100_000)), Some((1_000, 100_000))]);
        assert_eq!([165_536, 231_071, 231_072].map(|uid| owner(uid).map(|of| of.0)), [Some(1_001), Some(1_001), None]);
        assert_eq!((owner(1), owner(u32::MAX)), (None, Some((1_000, 4_294_967_290))), "nobody is called bob");
    }

    #[test]
    fn what_cannot_be_read_does_not_forget_who_may_act_as_whom() {
        let etc = cotenant_testing::TempDir::new("subuid");
        etc.write("subuid", "alice:100000:65536\n");
        etc.write("passwd", USERS);
        let mut known = Subuids::default();
        known.refresh_from(etc.path());
        let owner = |known: &Subuids| known.owner(100_000).map(|of| of.0);
        assert_eq!(owner(&known), Some(1_000));
        etc.write("subuid", b"\xff");
        known.refresh_from(etc.path());
        assert_eq!(owner(&known), Some(1_000), "it is no text");
        etc.write("subuid", "1001:100000:65536\n");
        known.refresh_from(etc.path());
        assert_eq!(owner(&known), Some(1_001));
        fs::remove_file(etc.path().join("subuid")).unwrap();
        known.refresh_from(etc.path());
        assert_eq!(owner(&known), None, "there is none any more");
    }

    #[test]
    fn a_namespace_is_its_makers() {
        assert_eq!(inner_user_namespace(std::process::id()), None);
        let mut inside = std::process::Command::new("unshare");
        inside.args(["--user", "unshare", "--user", "cat"]).stdin(std::process::Stdio::piped());
        let mut inside = inside.stderr(std::process::Stdio::null()).spawn().unwrap();
        let mut found = None;
        let mut ended = false;
        cotenant_testing::eventually("it is inside, or may not be", || {
            found = inner_user_namespace(inside.id());
            ended = inside.try_wait().unwrap().is_some();
            found.is_some() || ended
        });
        if ended {
            eprintln!("skipped: no user namespace can be made here");
            return;
        }
        assert_eq!(found.map(|of| of.1), Some(super::super::euid()));
        let _ = inside.kill();
        inside.wait().unwrap();
    }
}
