//! Contents of a guest besides a kernel, busybox and our binary.

use super::contents::Contents;
use super::{kubelet, systemd};

/// Software of a guest besides its scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// Nothing; the first process is a script.
    Bare,
    /// systemd, which is the first process.
    Systemd,
    /// containerd, and a kubelet that takes its pods from a folder.
    Kubelet,
}

impl System {
    pub const fn contents(self) -> Option<&'static Contents> {
        match self {
            Self::Bare => None,
            Self::Systemd => Some(&systemd::CONTENTS),
            Self::Kubelet => Some(&kubelet::CONTENTS),
        }
    }

    /// Its name in messages and folders.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Systemd => "systemd",
            Self::Kubelet => "kubelet",
        }
    }
}
