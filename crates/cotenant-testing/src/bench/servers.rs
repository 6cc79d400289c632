//! Redis and `PostgreSQL`, started for a benchmark and ended after it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The port of the server.
pub const PORT: u16 = 26_379;

/// Whether a program is in `PATH`.
pub fn is_there(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// A server and its folder; ended and removed on drop.
pub struct Server(Option<Child>, PathBuf);

impl Server {
    /// Starts the server that a name begins with, `redis` or `postgres`, and fills it. For other names there is nothing
    /// to start; `None` means that the server did not start.
    pub fn of(name: &str) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("study-{}.server", std::process::id()));
        let data = folder.display();
        let line = match name.split('-').next() {
            Some("redis") => format!("exec redis-server --port {PORT} --save '' --dir {data}"),
            // PostgreSQL refuses root.
            Some("postgres") => format!(
                "PATH=$PATH:$(echo /usr/lib/postgresql/*/bin); cd /; chown postgres {data}; exec setpriv --reuid postgres --regid postgres --clear-groups sh -c \
                 'initdb -A trust -D {data}/db >&2 && exec postgres -D {data}/db -p {PORT} -k {data}'"
            ),
            _ => return Some(Self(None, folder)),
        };
        std::fs::create_dir_all(&folder).ok()?;
        let child = shell(&line, None).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let server = Self(Some(child), folder);
        let ready = format!(
            "for i in $(seq 60); do {} >/dev/null 2>&1 && exit; sleep 0.5; done; exit 1",
            if name.starts_with("redis") {
                format!("redis-cli -p {PORT} ping")
            } else {
                "psql -c 'select 1'".to_owned()
            }
        );
        let fill = if name.starts_with("postgres") { "&& pgbench -i -q 2>/dev/null" } else { "" };
        let filled = shell(&format!("({ready}) {fill}"), None).stdout(Stdio::null()).status();
        filled.is_ok_and(|status| status.success()).then_some(server)
    }

    /// Its process id.
    pub fn pid(&self) -> Option<u32> {
        self.0.as_ref().map(Child::id)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
            let _ = child.wait();
            let _ = std::fs::remove_dir_all(&self.1);
        }
    }
}

/// A shell that runs this line on the CPUs of the list.
pub fn shell(line: &str, cpus: Option<&str>) -> Command {
    let mut command = Command::new(if cpus.is_some() { "taskset" } else { "sh" });
    if let Some(cpus) = cpus {
        command.args(["-c", cpus, "sh"]);
    }
    command.args(["-c", line]).stdin(Stdio::null());
    address(&mut command);
    command
}

/// Lets the clients of `PostgreSQL` find the server.
pub fn address(command: &mut Command) {
    let port = PORT.to_string();
    let postgres = [("PGHOST", "127.0.0.1"), ("PGPORT", &port), ("PGUSER", "postgres"), ("PGDATABASE", "postgres")];
    command.envs(postgres);
}
