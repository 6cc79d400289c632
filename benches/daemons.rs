//! Shared by benchmarks of the daemon: it runs with a configuration of its own, and gives everything back when it is
//! dropped.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub struct Daemon(Child);

impl Daemon {
    /// With configuration, socket and state in this folder.
    pub fn start(folder: &Path, config: &str, log: impl Into<Stdio>) -> Self {
        let file = folder.join("cotenant.toml");
        fs::write(&file, config).expect("a configuration");
        let mut command = told(folder, &["daemon", "--config"], Some(&file));
        Self(command.stdout(Stdio::null()).stderr(log).spawn().expect("the daemon starts"))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

/// A command about the daemon of that folder.
pub fn told(folder: &Path, args: &[&str], file: Option<&Path>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    command.args(args).args(file).arg("--socket").arg(folder.join("socket")).stdin(Stdio::null());
    command.env("XDG_RUNTIME_DIR", folder).env("XDG_DATA_HOME", folder.join("data"));
    command
}

/// CPUs of this machine.
#[allow(dead_code)] // not every benchmark maps
pub fn cpus() -> usize {
    let out = Command::new(env!("CARGO_BIN_EXE_cotenant")).args(["topo", "--json"]).output().expect("it starts");
    let topo: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    topo["cpus"].as_u64().expect("a count") as usize
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().is_ok_and(|s| s.success()) {
            let _ = self.0.wait();
        }
    }
}
