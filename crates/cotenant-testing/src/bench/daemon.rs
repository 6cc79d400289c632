//! A daemon with a configuration of its own.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A daemon, ended by SIGTERM on drop so that it undoes its changes.
pub struct Daemon(Child);

impl Daemon {
    /// Starts this `cotenant` with configuration, socket and state in the folder.
    pub fn start(cotenant: &str, folder: &Path, config: &str, log: impl Into<Stdio>) -> Self {
        let file = folder.join("cotenant.toml");
        fs::write(&file, config).expect("a configuration");
        let mut command = command(cotenant, folder, &["daemon", "--config"], Some(&file));
        Self(command.stdout(Stdio::null()).stderr(log).spawn().expect("the daemon starts"))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

/// A command of this `cotenant` to the daemon of that folder.
pub fn command(cotenant: &str, folder: &Path, args: &[&str], file: Option<&Path>) -> Command {
    let mut command = Command::new(cotenant);
    command.args(args).args(file).arg("--socket").arg(folder.join("socket")).stdin(Stdio::null());
    command.env("XDG_RUNTIME_DIR", folder).env("XDG_DATA_HOME", folder.join("data"));
    command
}

/// The number of CPUs of this machine, as this `cotenant` sees it.
pub fn cpus(cotenant: &str) -> usize {
    let out = Command::new(cotenant).args(["topo", "--json"]).output().expect("it starts");
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
