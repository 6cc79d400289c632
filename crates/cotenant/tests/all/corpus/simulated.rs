//! Recordings of simulated machines: every policy gets signals and places that a small live machine does not have.
//!
//! The binary records no simulation. The library of the same release does, by the code that writes the binary's
//! recordings.

use cotenant_cli::machine_arg;
use cotenant_model::host::{Mode, drive};
use cotenant_model::profile;
use cotenant_record::{DEFAULTS, Header, HostDescription, RecordWriter};
use cotenant_sim::host::SimHost;
use cotenant_sim::kernel::Kernel;
use cotenant_sim::scenario::Scenario;
use cotenant_sim::world::World;

/// A service that is to keep its speed, sharers and memory-bound programs, on two sockets.
const SOCKETS: &str = r#"
machine = "ivy-bridge-2s"
end_s = 3
policy = { map = "AAAAAABBBBBBBBCCCCCC....................", atom = "turn=200ms,rounds=1,classes=4,settle=80%" }
observation = { noise = 0.02, gaps = 0.05 }
[[app]]
program = "webSearch"
threads = 4
work_s = 20
latency_sensitive = true
[[app]]
program = "hubench"
threads = 6
work_s = 1
[[app]]
program = "membench"
threads = 6
arrival_s = 0.4
work_s = 20
"#;

/// The same for `qos`, whose phases take time.
const GOAL: &str = r#"
machine = "ivy-bridge-2s"
end_s = 6
policy = { qos = "CONTROLLER", goal = 0.95, pin = "cpu" }
[[app]]
program = "webSearch"
threads = 4
work_s = 100
latency_sensitive = true
[[app]]
program = "membench"
threads = 16
work_s = 100
"#;

/// Threads with memory on their first node.
const NODES: &str = r#"
machine = "opteron-48"
end_s = 2
policy = { pin = "cpu" }
observation = { page_scan_ns = 20 }
[[app]]
program = "membench"
threads = 10
work_s = 20
[[app]]
program = "streamcluster"
threads = 8
work_s = 20
arrival_s = 0.3
"#;

/// Only separated sharers, counted exactly, so that trials of `auto` show.
const CALM: &str = r#"
machine = "ivy-bridge-2s"
end_s = 6
[[app]]
program = "hubench"
threads = 6
work_s = 20
[[app]]
program = "membench"
threads = 8
work_s = 20
"#;

/// More jobs than CPUs.
const QUEUE: &str = r#"
machine = "phenom-x4"
end_s = 4
policy = { quantum_ms = 100 }
[[app]]
program = "mcf06"
[[app]]
program = "milc06"
[[app]]
program = "povray06"
[[app]]
program = "lbm06"
[[app]]
program = "gcc06"
[[app]]
program = "bzip206"
work_s = 0.5
"#;

/// Name of a recording, scenario and policy.
fn cases() -> Vec<(String, String, &'static str)> {
    let scenario = |name: &str| -> String {
        match name {
            "weighted" | "brute-force" | "assignment" | "overhead" => NODES,
            "numad" => return NODES.replace("end_s = 2", "end_s = 60").replace("work_s = 20", "work_s = 600"),
            "auto" | "shapes" => CALM,
            "fifo" | "mas" | "cas" | "das" => QUEUE,
            _ => SOCKETS,
        }
        .to_owned()
    };
    let registry = cotenant_policies::standard();
    let named = registry.names().map(|name| (format!("sim-{name}"), scenario(name), name));
    let qos = ["tracking", "targeted", "balanced"]
        .map(|controller| (format!("sim-qos-{controller}"), GOAL.replace("CONTROLLER", controller), "qos"));
    let sam = ["paper", "mph"].map(|with| {
        (format!("sim-sam-{with}"), SOCKETS.replace("policy = {", &format!("policy = {{ sam = \"{with}\",")), "sam")
    });
    named.chain(sam).chain(qos).collect()
}

/// Records all of them; `apps` are profiles of their applications.
pub fn recordings(apps: &str) -> Vec<(String, Vec<u8>)> {
    let apps = profile::parse_apps(apps).unwrap();
    cases().into_iter().map(|(name, scenario, policy)| (name, record(&scenario, policy, &apps))).collect()
}

fn record(text: &str, name: &str, apps: &std::collections::BTreeMap<String, profile::AppProfile>) -> Vec<u8> {
    let find = |name: &str| machine_arg::resolve(Some(name)).map(|found| found.machine).map_err(|e| e.to_string());
    let mut scenario = Scenario::parse(text, find).unwrap();
    scenario.know(apps);
    if name == "heuristic" {
        scenario.characterize(scenario.kernel).unwrap();
    }
    scenario.config.move_pages = ["numad", "dino", "assignment"].contains(&name);
    let policy = cotenant_policies::standard().make(name, &scenario.config).unwrap();
    let ctx = scenario.ctx();
    policy.check(&ctx).unwrap();
    let header = Header {
        cotenant: env!("CARGO_PKG_VERSION").to_owned(),
        topology: ctx.topology.clone(),
        machine: ctx.machine.clone(),
        apps: ctx.apps.clone(),
        config: ctx.config.clone(),
        defaults: DEFAULTS,
        policy: name.to_owned(),
        rules: Vec::new(),
        mode: Mode::Enforce,
        seeds: vec![1],
        host: HostDescription { kernel: "simulated".to_owned(), tier: "simulated".to_owned() },
        command: Vec::new(),
        started_unix_s: None,
        redacted: false,
    };
    let world = World::new(scenario.sim.clone(), scenario.apps.clone(), Kernel::new(scenario.kernel), 1);
    let mut host = SimHost::new(world, scenario.observation, 1, scenario.end);
    let mut writer = RecordWriter::new(Vec::new(), &header, u64::MAX).unwrap();
    let mut orders = 0;
    drive(&mut host, &*policy, &ctx, Mode::Enforce, |round| {
        orders += round.orders.len();
        writer.round(round).unwrap();
    })
    .unwrap();
    // These only cost time, without moves.
    assert!(orders > 0 || ["none", "overhead"].contains(&name), "{name} decides nothing: the scenario tries nothing");
    writer.finish().unwrap()
}
