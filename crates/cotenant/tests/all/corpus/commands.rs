//! Results of invocations: exit codes, errors of one line, and the keys of JSON; one line of text each.

use crate::world::{self, Pin, State};
use cotenant_testing::{Player, TempDir};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The place of a command's JSON.
#[derive(Clone, Copy, PartialEq)]
enum Json {
    No,
    Out,
    /// Around a command that Cotenant starts, its own words go to standard error.
    Err,
}
use Json::{Err, No, Out};

/// Name, arguments, and where JSON is. The working folder has the corpus' `inputs`, `data` and `recordings`.
const CASES: &[(&str, &str, Json)] = &[
    // Nothing, and nonsense.
    ("nothing", "", No),
    ("version", "--version", No),
    ("help", "help run", No),
    ("unknown", "no-such-command", No),
    // run
    ("run", "run --json -- sh -c exit${IFS}7", Err),
    ("run-policy", "run --json --policy static --map {map} --record new.rec -- sleep 0.2", Err),
    ("run-metric", "run --json --metric cmd:echo${IFS}5,name=a,every=20ms,higher -- sleep 0.2", Err),
    ("run-settings", "run -q --config settings.toml -- true", No),
    ("run-settings-atom", "run -q --config settings-atom.toml -- true", No),
    ("run-machine-profile", "run -q --policy auto --profile machine.toml --profiles apps.toml -- true", No),
    ("run-missing", "run -q -- /proc/nonexistent", No),
    ("run-directory", "run -q -- /", No),
    ("run-killed", "run -q -- sh -c kill${IFS}-9${IFS}$$", No),
    ("run-no-command", "run", No),
    ("run-bad-option", "run --no-such -- true", No),
    ("run-bad-policy", "run --policy no-such -- true", No),
    ("run-bad-map", "run --policy static -- true", No),
    ("run-bad-pin", "run --pin core -- true", No),
    ("run-bad-interval", "run --interval 0 -- true", No),
    ("run-bad-cpus", "run --cpus 9000 -- true", No),
    ("run-bad-sam", "run --policy sam --sam no-such -- true", No),
    ("run-bad-atom", "run --policy atom --atom rounds=x -- true", No),
    ("run-bad-metric", "run --metric no-such:1 -- true", No),
    ("run-bad-collector", "run --collector no-such -- true", No),
    ("run-bad-budget", "run --collector-budget 101 -- true", No),
    ("run-bad-config", "run --config machine.toml -- true", No),
    ("run-bad-record", "run --record missing/a.rec -- true", No),
    ("run-record-occupied", "run --record apps.toml -- true", No),
    ("run-record-small", "run --record b.rec --record-limit 10 -- true", No),
    ("run-jobs-policy", "run --policy mas -- true", No),
    // attach, compare, record
    ("attach", "attach --json --policy static --map {map} --pin cpu --cpus {cpu} -p {pid}", Err),
    ("attach-nobody", "attach", No),
    ("attach-missing", "attach -p 4000000", No),
    ("attach-no-group", "attach --cgroup /proc/nonexistent", No),
    ("compare", "compare --json --runs 2 --policy none -- true", Out),
    ("compare-fails", "compare -q --runs 2 -- false", No),
    ("compare-few", "compare --runs 1 -- true", No),
    ("record", "record --json -o record.rec -- sleep 0.3", Err),
    ("record-fails", "record -q -o fails.rec -- sh -c exit${IFS}3", No),
    // Readers of recordings.
    ("replay", "replay --json recordings/sim-sam.rec", Out),
    ("replay-other", "replay --json --policy none --threshold coherence_per_cycle=1 recordings/sim-sam.rec", Out),
    ("replay-qos", "replay --json recordings/sim-qos-tracking.rec", Out),
    ("replay-missing", "replay no-such.rec", No),
    ("replay-no-recording", "replay apps.toml", No),
    ("replay-bad-policy", "replay --policy no-such recordings/sim-sam.rec", No),
    ("replay-bad-times", "replay --from 2s --to 1s recordings/sim-sam.rec", No),
    ("why-app", "why --json recordings/sim-sam.rec app:1", Out),
    ("why-time", "why --json recordings/sim-sam.rec 0s..1s", Out),
    ("why-nap", "why --json recordings/sim-qos-targeted.rec app:1", Out),
    ("why-at", "why --json --at 1s recordings/sim-sam.rec app:1", Out),
    ("why-nobody", "why recordings/sim-sam.rec no-such-name", No),
    ("why-missing", "why no-such.rec app:1", No),
    ("report", "report -o a.html recordings/sim-sam.rec sim.json reproduce.json regions.toml", No),
    ("report-missing", "report no-such.rec", No),
    ("report-no-report", "report apps.toml", No),
    // Commands independent of the machine.
    ("decide", "decide --json --machine ivy-bridge-2s --snapshot snapshot.json --policy sam", Out),
    ("decide-settings", "decide --machine ivy-bridge-2s --snapshot snapshot.json --config settings-decide.toml", No),
    ("decide-no-snapshot", "decide --machine ivy-bridge-2s --snapshot no-such.json", No),
    ("decide-no-machine", "decide --machine no-such --snapshot snapshot.json", No),
    ("topo", "topo --json --from ivy-bridge-2s", Out),
    ("topo-nodes", "topo --json --from opteron-48", Out),
    ("topo-profile", "topo --json --from opteron-48 --profile distances.toml", Out),
    ("topo-missing", "topo --from no-such-machine", No),
    ("sim", "sim --json --seeds 1 --policy none,sam,qos,optimal --evaluations 5 scenario.toml", Out),
    ("sim-mix", "sim --json --machine nehalem-i7-920 --mix mcf06,lbm06", Out),
    ("sim-csv", "sim --csv --seeds 1 scenario.toml", No),
    ("sim-missing", "sim no-such.toml", No),
    ("sim-no-scenario", "sim apps.toml", No),
    ("sim-bad-policy", "sim --policy no-such scenario.toml", No),
    ("bench-simulated", "bench --json bench-simulated.toml", Out),
    ("bench", "bench --json bench.toml", Out),
    ("bench-fails", "bench bench-fails.toml", No),
    ("bench-missing", "bench no-such.toml", No),
    ("reproduce", "reproduce --json --quick --seeds 1 sam-fig1 tumanov-distance resense-small", Out),
    ("reproduce-list", "reproduce --list", No),
    ("reproduce-unknown", "reproduce no-such", No),
    // This machine.
    ("topo-live", "topo --json", Out),
    ("doctor", "doctor --json", Out),
    ("doctor-bad", "doctor no-such", No),
    ("restore", "restore --json", Out),
    ("restore-bad", "restore no-such", No),
    ("kernel-list", "kernel --list --json", Out),
    ("kernel", "kernel --json --units 1000 cpu", Out),
    ("kernel-sharing", "kernel --json --units 1000 hubench", Out),
    ("kernel-unknown", "kernel no-such", No),
    ("kernel-bad-size", "kernel --units 1 --size 0 chase", No),
    ("calibrate", "calibrate --json --quick --only clock -o clock.toml", Out),
    ("calibrate-bad", "calibrate --only no-such", No),
    (
        "characterize",
        "characterize --json -q -n busy --runs 2 --only corun --kernels bst-4mb --by cpu-time \
      -o busy.toml -- sh busy.sh",
        Out,
    ),
    ("characterize-bad", "characterize --only no-such -- true", No),
    ("regions", "regions -q --source cachegrind -o walk.toml -- true", No),
    ("regions-bad", "regions --source no-such -- true", No),
    ("cc-no-clang", "cc --cotenant-clang=/proc/nonexistent a.c", No),
    ("c++-no-clang", "c++ --cotenant-clang=/proc/nonexistent a.c", No),
    // The store.
    ("profiles", "profiles --json --machine corpus list", Out),
    ("profiles-show", "profiles --json --machine corpus show busy", Out),
    ("profiles-export", "profiles --json --machine corpus export", Out),
    ("profiles-import", "profiles --machine corpus import apps.toml", No),
    ("profiles-rm-unknown", "profiles --machine corpus rm no-such", No),
    ("profiles-unknown", "profiles --machine corpus show no-such", No),
    ("profiles-bad", "profiles no-such", No),
    // Throttling and queues.
    ("qos", "qos --json --high sleep${IFS}0.5 --low sleep${IFS}0.4 --metric cmd:echo${IFS}5,every=20ms", Err),
    ("qos-nobody", "qos", No),
    ("qos-rules", "qos --config rules.toml", No),
    ("qos-bad-controller", "qos --high true --low true --controller no-such", No),
    ("qos-bad-goal", "qos --high true --low true --goal 2", No),
    ("qos-bad-means", "qos --high true --low true --means no-such", No),
    ("schedule", "schedule --json jobs.toml", Out),
    ("schedule-mas", "schedule --json --policy mas --quantum 10ms --logs mas jobs.txt", Out),
    ("schedule-missing", "schedule no-such.toml", No),
    ("schedule-bad", "schedule settings.toml", No),
    ("schedule-bad-policy", "schedule --policy sam jobs.txt", No),
];

/// Keys that depend on the machine or on the moment, and are therefore not compared.
const VARIES: &[(&str, &str)] = &[
    ("", ".not_applied."),
    ("", ".usage"),
    ("", ".behind"),
    ("", ".access_distance"),
    ("", ".speeds"),
    ("topo-live", "."),
    ("doctor", ".tier."),
    ("doctor", ".rivals"),
    ("", ".stamp."),
    ("calibrate", ".left_out[]"),
    ("calibrate", ".figures[]"),
    ("characterize", ".left_out[]"),
    ("characterize", ".profile.bus_per_ms"),
    ("characterize", ".profile.sharing"),
    ("characterize", ".profile.footprint_per_ms"),
    ("characterize", ".profile.per_cpu_s"),
    ("characterize", ".profile.contentiousness_model"),
    ("schedule-mas", ".gap_us"),
];

/// The program that has a command: experiments belong to the laboratory's, built beside it. `None`, with a message, if
/// it is missing.
pub fn program(subcommand: &str) -> Option<PathBuf> {
    let binary = PathBuf::from(world::binary());
    if subcommand != "reproduce" {
        return Some(binary);
    }
    let lab = Some(binary.with_file_name("cotenant-lab")).filter(|lab| lab.is_file());
    if lab.is_none() {
        world::skip_in_part("reproduce: there is no cotenant-lab beside cotenant; cargo build -p cotenant-lab");
    }
    lab
}

/// All lines; those of commands that cannot be tried here are missing, and their names returned.
pub fn lines(corpus: &Path) -> (BTreeSet<String>, Vec<&'static str>) {
    let folder = TempDir::new("corpus-commands");
    for part in ["inputs/.", "data", "recordings"] {
        assert!(Command::new("cp").arg("-r").arg(corpus.join(part)).arg(folder.path()).status().unwrap().success());
    }
    let (mut lines, mut skipped) = (BTreeSet::new(), Vec::new());
    let pin = Pin::find();
    if let Some(pin) = &pin {
        // A map has a letter for each CPU.
        let path = folder.path().join("settings.toml");
        let text = fs::read_to_string(&path).unwrap().replace("XX", &pin.map);
        fs::write(path, text.replace("0-1", &pin.own)).unwrap();
    }
    let valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    for (name, words, json) in CASES {
        if *name == "regions" && !valgrind.as_ref().is_ok_and(std::process::ExitStatus::success) {
            world::skip_in_part("regions: there is no valgrind");
            skipped.push(*name);
            continue;
        }
        let (Some(pin), Some(program)) = (&pin, program(words.split(' ').next().unwrap_or_default())) else {
            skipped.push(*name);
            continue;
        };
        let words = words.replace("{cpu}", &pin.cpu).replace("{map}", &pin.map);
        lines.extend(of_case(name, &program, &words, *json, folder.path()));
    }
    (lines, skipped)
}

fn of_case(name: &str, program: &Path, words: &str, json: Json, folder: &Path) -> Vec<String> {
    let state = State::new("corpus-command");
    let mut target: Option<Player> = words.contains("{pid}").then(world::sleeper);
    let pid = target.as_ref().map(|t| t.pid().to_string()).unwrap_or_default();
    let fill = |word: &str| word.replace("{pid}", &pid).replace("${IFS}", " ");
    let args: Vec<String> = words.split_whitespace().map(fill).collect();
    let mut command = if program.ends_with("cotenant-lab") {
        let mut command = Command::new(program);
        command.args(&args);
        command
    } else {
        state.cotenant(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    command.current_dir(folder).env("XDG_DATA_HOME", folder.join("data")).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    if let Some(target) = &mut target {
        cotenant_testing::eventually("there is a journal", || state.journals() > 0);
        target.kill();
    }
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    let code = out.status.code().map_or("signal".to_owned(), |code| code.to_string());
    let mut lines = vec![format!("exit {name} {code}")];
    let ours = said.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>();
    if let ([line], No) = (&ours[..], json)
        && let Some(message) = line.strip_prefix("cotenant: ")
        && code != "0"
    {
        // An error about a file or an option begins with it, a file with line and column.
        let about = message.split(' ').next().filter(|word| word.contains(".toml:") || word.starts_with("--"));
        lines.push(format!("error {name} in one line {}", about.unwrap_or_default()).trim_end().to_owned());
    }
    let printed = match json {
        No => return lines,
        Out => String::from_utf8_lossy(&out.stdout),
        Err => said.clone(),
    };
    // Remarks may precede it.
    let starts = printed.lines().position(|line| line.starts_with(['{', '['])).unwrap_or_default();
    let text = printed.lines().skip(starts).collect::<Vec<_>>().join("\n");
    let mut values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let Some(Ok(value)) = values.next() else {
        lines.push(format!("no JSON from {name}: {}", (printed.to_string() + &said).trim_end()));
        return lines;
    };
    let mut keys = BTreeSet::new();
    keys_of(&value, "", &mut keys);
    let varies = |key: &str| VARIES.iter().any(|(of, part)| (of.is_empty() || *of == name) && key.contains(part));
    lines.extend(keys.iter().filter(|key| !varies(key)).map(|key| format!("key {name} {key}")));
    lines
}

/// The path of each key; members of a list share one.
fn keys_of(value: &Value, path: &str, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                let path = format!("{path}.{key}");
                keys_of(member, &path, keys);
                keys.insert(path);
            }
        }
        Value::Array(members) => members.iter().for_each(|member| keys_of(member, &format!("{path}[]"), keys)),
        _ => {}
    }
}

/// JSON that `cotenant report` reads, written by the binary under test into a folder.
pub fn write_reports(folder: &Path) {
    for (file, words) in [
        ("sim.json", "sim --json --seeds 2 --policy none,sam scenario.toml"),
        ("reproduce.json", "reproduce --json --quick --seeds 1 sam-fig1 sam-fig5 tumanov-heatmap tumanov-distance"),
    ] {
        let program = program(words.split(' ').next().unwrap()).unwrap();
        let out = Command::new(program).args(words.split(' ')).current_dir(folder).output().unwrap();
        assert!(out.status.success(), "{words}: {}", String::from_utf8_lossy(&out.stderr));
        fs::write(folder.join(file), out.stdout).unwrap();
    }
}
