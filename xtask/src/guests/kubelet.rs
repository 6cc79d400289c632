//! A guest with what a node of a Kubernetes cluster runs: containerd with Debian's runc, and a kubelet without an API
//! server, which takes its pods from a folder. One of these pods is the agent that the chart installs.

use super::contents::Contents;

pub const CONTENTS: Contents = Contents {
    packages: &["runc", "libseccomp2", "libc6"],
    programs: &["usr/sbin/runc"],
    built: &["containerd", "containerd-shim-runc-v2", "ctr", "kubelet"],
    ours: Some("cotenant-node"),
    libraries: &["ld-linux-x86-64.so.2", "libc.so.6", "libseccomp.so.2"],
    units: &[],
    folders: &["var/lib", "var/log", "pods", "etc/kubernetes/manifests"],
    files: FILES,
    links: &[
        ("lib64", "/lib/x86_64-linux-gnu"),
        ("usr/bin/cotenant", "/bin/cotenant"),
        ("usr/bin/runc", "/usr/sbin/runc"),
    ],
};

const FILES: &[(&str, &str)] = &[
    ("etc/passwd", "root:x:0:0::/root:/bin/sh\n"),
    ("etc/hosts", "127.0.0.1 localhost\n"),
    ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
    ("etc/containerd.toml", include_str!("scenarios/kubelet/containerd.toml")),
    ("etc/kubernetes/kubelet.yaml", include_str!("scenarios/kubelet/kubelet.yaml")),
    ("etc/cotenant/cotenant.toml", include_str!("scenarios/kubelet/cotenant.toml")),
    ("scenarios/node.sh", include_str!("scenarios/node.sh")),
    ("pods/agent.yaml", include_str!("scenarios/kubelet/agent.yaml")),
    ("pods/batch.yaml", include_str!("scenarios/kubelet/batch.yaml")),
    ("pods/database.yaml", include_str!("scenarios/kubelet/database.yaml")),
    ("pods/own.yaml", include_str!("scenarios/kubelet/own.yaml")),
    ("pods/web.yaml", include_str!("scenarios/kubelet/web.yaml")),
];
