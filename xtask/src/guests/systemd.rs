//! A guest with Debian's systemd as its first process: the needed parts, and the daemon's packaged unit and
//! configuration, which a scenario installs.

use super::contents::Contents;

pub const CONTENTS: Contents = Contents {
    packages: PACKAGES,
    programs: PROGRAMS,
    built: &[],
    ours: None,
    libraries: LIBRARIES,
    units: UNITS,
    folders: &["var/log", "var/lib", "home", "usr/bin"],
    files: FILES,
    links: LINKS,
};

/// systemd and the libraries that its programs here are linked with.
#[rustfmt::skip] // a line per item would add nothing
const PACKAGES: &[&str] = &[
    "systemd", "libsystemd-shared", "libacl1", "libapparmor1", "libaudit1", "libblkid1", "libc6", "libcap-ng0",
    "libcap2", "libcrypt1", "libgcrypt20", "libgpg-error0", "libip4tc2", "libkmod2", "liblz4-1", "liblzma5",
    "libmount1", "libpam0g", "libpcre2-8-0", "libseccomp2", "libselinux1", "libssl3", "libzstd1",
];

#[rustfmt::skip]
const PROGRAMS: &[&str] = &[
    "lib/systemd/systemd", "lib/systemd/systemd-journald", "bin/systemctl", "bin/journalctl", "usr/bin/systemd-run",
    "usr/lib/x86_64-linux-gnu/systemd/libsystemd-core-252.so",
    "usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so",
];

#[rustfmt::skip]
const LIBRARIES: &[&str] = &[
    "ld-linux-x86-64.so.2", "libacl.so.1", "libapparmor.so.1", "libaudit.so.1", "libblkid.so.1", "libc.so.6",
    "libcap-ng.so.0", "libcap.so.2", "libcrypt.so.1", "libcrypto.so.3", "libgcrypt.so.20", "libgpg-error.so.0",
    "libip4tc.so.2", "libkmod.so.2", "liblz4.so.1", "liblzma.so.5", "libm.so.6", "libmount.so.1", "libpam.so.0",
    "libpcre2-8.so.0", "libseccomp.so.2", "libselinux.so.1", "libzstd.so.1",
];

/// Its units: only those needed by a service, so that a guest boots in seconds.
#[rustfmt::skip]
const UNITS: &[&str] = &[
    "basic.target", "local-fs.target", "multi-user.target", "paths.target", "shutdown.target", "slices.target",
    "sockets.target", "swap.target", "sysinit.target", "timers.target", "umount.target", "systemd-journald.service",
    "systemd-journald.socket", "systemd-journald-dev-log.socket",
];

const FILES: &[(&str, &str)] = &[
    ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
    ("etc/os-release", "ID=guest\nNAME=guest\n"),
    ("etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n"),
    ("etc/group", "root:x:0:\nalice:x:1000:\n"),
    ("etc/systemd/system.conf", "[Manager]\nShowStatus=no\nLogTarget=journal\nDefaultTimeoutStopSec=60s\n"),
    // A log in memory without losses.
    ("etc/systemd/journald.conf", "[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\nReadKMsg=no\nAudit=no\n"),
    ("etc/systemd/system/guest.service", include_str!("scenarios/guest.service")),
    ("scenarios/units.sh", include_str!("scenarios/units.sh")),
    ("packaging/cotenant.service", include_str!("../../../packaging/systemd/cotenant.service")),
    ("packaging/throttle.conf", include_str!("../../../packaging/systemd/throttle.conf")),
    ("packaging/cotenant.toml", include_str!("../../../packaging/cotenant.toml")),
];

const LINKS: &[(&str, &str)] = &[
    ("etc/systemd/system/default.target", "/lib/systemd/system/multi-user.target"),
    ("etc/systemd/system/multi-user.target.wants/guest.service", "/etc/systemd/system/guest.service"),
    ("lib/systemd/system/sysinit.target.wants/systemd-journald.service", "../systemd-journald.service"),
    ("lib/systemd/system/sockets.target.wants/systemd-journald.socket", "../systemd-journald.socket"),
    ("lib/systemd/system/sockets.target.wants/systemd-journald-dev-log.socket", "../systemd-journald-dev-log.socket"),
    ("lib64", "/lib/x86_64-linux-gnu"),
    ("usr/bin/cotenant", "/bin/cotenant"),
];
