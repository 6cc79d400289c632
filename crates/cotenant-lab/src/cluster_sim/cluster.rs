//! The simulated cluster: the place of each pod, its slowdown, and its end.

use cotenant_sim::app::{LINE, Phase, Program, known};
use cotenant_sim::machine::SimMachine;
use cotenant_sim::mix::{MixError, steady};
use cotenant_sim::scenario::unknown;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Limits: pods at a time; bytes of a name; seconds of work; cached mixes.
const PODS: usize = 100_000;
const NAME: usize = 253;
const WORK_S: f64 = 1e9;
const MIXES: usize = 100_000;

/// Figures of a program in a mix.
#[derive(Clone, Copy, Debug)]
struct Does {
    /// Time together over time alone.
    slowdown: f64,
    /// Bytes per second missed in the last-level cache: daemons count these for memory and cache alike.
    missed: f64,
}

#[derive(Clone, Debug)]
struct Pod {
    node: String,
    program: String,
    /// Remaining and initial work, in seconds alone.
    left_s: f64,
    work_s: f64,
    begun_s: f64,
    does: Does,
}

pub(super) struct Cluster {
    machine: SimMachine,
    own: BTreeMap<String, Program>,
    at_s: f64,
    pods: BTreeMap<String, Pod>,
    /// The pods of each node that is not empty.
    nodes: BTreeMap<String, Vec<String>>,
    /// Figures of each program of a mix; mixes are sorted lists of programs.
    mixes: BTreeMap<Vec<String>, BTreeMap<String, Does>>,
    alone: BTreeMap<String, f64>,
}

/// The simulated time.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Now {
    at_s: f64,
}

/// The simulated time, and the pods that just ended.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Advanced {
    pub at_s: f64,
    pub ended: Vec<Ended>,
}

/// A pod that has done its work.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Ended {
    pub pod: String,
    pub node: String,
    pub ran_s: f64,
    /// Its duration over its duration alone.
    pub slowdown: f64,
}

impl Cluster {
    /// A cluster of nodes of that kind, all empty; `own` are programs besides the known ones.
    ///
    /// # Errors
    /// If the result would depend on where programs run on such a machine.
    pub fn new(machine: SimMachine, own: BTreeMap<String, Program>) -> Result<Self, MixError> {
        if let Some(program) = known("mcf06") {
            steady(&machine, &[&program.phases[0]])?;
        }
        let (pods, nodes, mixes, alone) = Default::default();
        Ok(Self { machine, own, at_s: 0.0, pods, nodes, mixes, alone })
    }

    pub fn start(&mut self, node: &str, pod: &str, program: &str, work_s: f64) -> Result<Now, String> {
        if [node, pod].iter().any(|name| name.is_empty() || name.len() > NAME) {
            return Err(format!("a name has 1 to {NAME} bytes"));
        }
        if !(work_s > 0.0 && work_s <= WORK_S) {
            return Err(format!("work_s is {work_s}; give seconds up to {WORK_S}"));
        }
        if self.pods.contains_key(pod) {
            return Err(format!("there is a pod '{pod}' already"));
        }
        if self.pods.len() >= PODS {
            return Err(format!("there are {PODS} pods already"));
        }
        let there = self.nodes.get(node).cloned().unwrap_or_default();
        let mix = mix_of(there.iter().map(|pod| &*self.pods[pod].program).chain([program]));
        // A mix without a prediction changes nothing.
        let does = *self.does(&mix)?.get(program).ok_or("a program of a mix does something")?;
        let begun_s = self.at_s;
        let (node, program) = (node.to_owned(), program.to_owned());
        self.nodes.entry(node.clone()).or_default().push(pod.to_owned());
        self.pods.insert(pod.to_owned(), Pod { node: node.clone(), program, left_s: work_s, work_s, begun_s, does });
        self.settle(&node)?;
        Ok(Now { at_s: self.at_s })
    }

    pub fn stop(&mut self, pod: &str) -> Result<Now, String> {
        let gone = self.remove(pod).ok_or_else(|| format!("there is no pod '{pod}'"))?;
        self.settle(&gone.node)?;
        Ok(Now { at_s: self.at_s })
    }

    pub fn advance(&mut self, to_s: f64) -> Result<Advanced, String> {
        if !(to_s.is_finite() && to_s >= self.at_s) {
            return Err(format!("to_s is {to_s}; it is {} already", self.at_s));
        }
        let takes = |pod: &Pod| pod.left_s * pod.does.slowdown;
        let next = self.pods.values().map(takes).min_by(f64::total_cmp).filter(|next| self.at_s + next <= to_s);
        let by = next.unwrap_or(to_s - self.at_s);
        let mut ended = Vec::new();
        for (name, pod) in &mut self.pods {
            // A pod due within a nanosecond ends now: otherwise rounding separates equal pods.
            if next.is_some() && takes(pod) <= by + 1e-9 {
                ended.push(name.clone());
            }
            pod.left_s = (pod.left_s - by / pod.does.slowdown).max(0.0);
        }
        self.at_s = if next.is_some() { self.at_s + by } else { to_s };
        let gone: Vec<(String, Pod)> =
            ended.into_iter().filter_map(|name| self.remove(&name).map(|pod| (name, pod))).collect();
        for (_, pod) in &gone {
            self.settle(&pod.node)?;
        }
        let ended = gone.into_iter().map(|(name, pod)| {
            let ran_s = self.at_s - pod.begun_s;
            Ended { pod: name, node: pod.node, ran_s, slowdown: ran_s / pod.work_s }
        });
        Ok(Advanced { at_s: self.at_s, ended: ended.collect() })
    }

    /// A node in the format of `cotenant daemon` (`node` of its control socket), plus what no daemon knows of each pod:
    /// its current slowdown and finished work, in seconds alone.
    pub fn node(&self, node: &str) -> Value {
        let pods: Vec<(&String, &Pod)> =
            self.nodes.get(node).into_iter().flatten().map(|name| (name, &self.pods[name])).collect();
        let sum = |of: fn(&Does) -> f64| pods.iter().map(|(_, pod)| of(&pod.does)).sum::<f64>();
        let missed = sum(|does| does.missed);
        let (memory, cache) = (self.machine.exhausted_per_s() * LINE, self.machine.caches[0].bytes);
        let cpus = self.machine.topology.usable().len();
        let containers = pods.iter().map(|(name, pod)| {
            json!({
                "namespace": "default", "pod": name, "container": "main", "workload": pod.program, "class": "normal",
                "use": { "cores": 1.0, "memory": pod.does.missed, "cache": pod.does.missed },
                "slowdown": pod.does.slowdown, "done_s": pod.work_s - pod.left_s,
            })
        });
        json!({
            "version": env!("CARGO_PKG_VERSION"), "mode": "observe", "age_s": 0.0, "at_s": self.at_s,
            "shared": [
                { "what": "cores", "name": "cores", "capacity": cpus, "use": pods.len() },
                { "what": "memory", "name": "package 0", "capacity": memory, "use": missed },
                { "what": "cache", "name": "llc 0", "capacity": cache, "use": missed },
            ],
            "containers": containers.collect::<Vec<_>>(), "interference": [],
        })
    }

    fn remove(&mut self, pod: &str) -> Option<Pod> {
        let gone = self.pods.remove(pod)?;
        if let Some(there) = self.nodes.get_mut(&gone.node) {
            there.retain(|name| name != pod);
            if there.is_empty() {
                self.nodes.remove(&gone.node);
            }
        }
        Some(gone)
    }

    /// Each pod of a node is slowed by the pods that run there now.
    fn settle(&mut self, node: &str) -> Result<(), String> {
        let there = self.nodes.get(node).cloned().unwrap_or_default();
        if there.is_empty() {
            return Ok(());
        }
        let mix = mix_of(there.iter().map(|pod| &*self.pods[pod].program));
        let does = self.does(&mix)?.clone();
        for name in there {
            if let Some(pod) = self.pods.get_mut(&name) {
                pod.does = does[&pod.program];
            }
        }
        Ok(())
    }

    /// The behaviour of each program of a mix.
    fn does(&mut self, mix: &[String]) -> Result<&BTreeMap<String, Does>, String> {
        if !self.mixes.contains_key(mix) {
            if self.mixes.len() >= MIXES {
                self.mixes.clear();
            }
            let does = self.simulate(mix)?;
            self.mixes.insert(mix.to_vec(), does);
        }
        Ok(&self.mixes[mix])
    }

    fn simulate(&mut self, mix: &[String]) -> Result<BTreeMap<String, Does>, String> {
        let find = |name: &String| -> Result<Phase, String> {
            let program = self.own.get(name).or_else(|| known(name));
            Ok(program.ok_or_else(|| unknown(name, self.own.keys()))?.phases[0].clone())
        };
        let phases = mix.iter().map(find).collect::<Result<Vec<Phase>, _>>()?;
        let together = steady(&self.machine, &phases.iter().collect::<Vec<_>>()).map_err(|why| why.to_string())?;
        let mut does = BTreeMap::new();
        for ((name, phase), share) in mix.iter().zip(&phases).zip(&together.shares) {
            let alone = match self.alone.get(name) {
                Some(cpi) => *cpi,
                None => steady(&self.machine, &[phase]).map_err(|why| why.to_string())?.shares[0].cpi,
            };
            self.alone.insert(name.clone(), alone);
            let slowdown = (share.cpi / alone).max(1.0);
            let missed = share.gbs * 1e9 / (1.0 + phase.writeback_ratio);
            does.insert(name.clone(), Does { slowdown, missed });
        }
        Ok(does)
    }
}

fn mix_of<'a>(programs: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut mix: Vec<String> = programs.map(str::to_owned).collect();
    mix.sort_unstable();
    mix
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_sim::app::parse_programs;
    use cotenant_sim::flat_machine;

    const MACHINE: &str = "name = 'three'\ncores = 3\nclock_ghz = 2.0\nllc_bytes = 8388608\nllc_ns = 25\n\
                           memory_ns = 82\nmemory_gbs = 12\n";

    fn cluster() -> Cluster {
        let quiet = "[program.quiet]\ncpi = 1\nllc_apki = 0\nfootprint_bytes = 1e3\nmiss_ratio = [[1e3, 0.0]]\n";
        let machine = SimMachine::new(&flat_machine::parse(MACHINE).unwrap()).unwrap();
        Cluster::new(machine, parse_programs(quiet).unwrap()).unwrap()
    }

    fn slowdowns(cluster: &Cluster, node: &str) -> Vec<f64> {
        let node = cluster.node(node);
        node["containers"].as_array().unwrap().iter().map(|pod| pod["slowdown"].as_f64().unwrap()).collect()
    }

    fn ended(advanced: &Advanced) -> Vec<(&str, f64, f64)> {
        advanced.ended.iter().map(|pod| (&*pod.pod, pod.ran_s, pod.slowdown)).collect()
    }

    /// Holds cluster/pays.
    #[test]
    fn who_asks_nothing_of_cache_and_memory_runs_as_alone() {
        let mut cluster = cluster();
        for (node, pod, work_s) in [("n1", "a", 10.0), ("n1", "b", 30.0), ("n2", "c", 10.0)] {
            cluster.start(node, pod, "quiet", work_s).unwrap();
        }
        assert_eq!(cluster.advance(4.0).unwrap(), Advanced { at_s: 4.0, ended: vec![] });
        let first = cluster.advance(1e6).unwrap();
        assert_eq!((first.at_s, ended(&first)), (10.0, vec![("a", 10.0, 1.0), ("c", 10.0, 1.0)]));
        cluster.start("n2", "d", "quiet", 5.0).unwrap();
        assert_eq!(ended(&cluster.advance(1e6).unwrap()), [("d", 5.0, 1.0)]);
        assert_eq!(ended(&cluster.advance(1e6).unwrap()), [("b", 30.0, 1.0)]);
        assert_eq!(cluster.advance(1e6).unwrap(), Advanced { at_s: 1e6, ended: vec![] });
    }

    /// The second one comes after 10 s and both slow each other until the first ends; then the second is alone.
    /// Holds cluster/pays.
    #[test]
    fn slowdowns_are_those_of_the_mix_at_each_moment() {
        let mut cluster = cluster();
        cluster.start("n1", "a", "lbm06", 30.0).unwrap();
        assert_eq!(slowdowns(&cluster, "n1"), [1.0]);
        cluster.advance(10.0).unwrap();
        cluster.start("n1", "b", "lbm06", 30.0).unwrap();
        let both = slowdowns(&cluster, "n1");
        let slow = both[0];
        assert!(slow > 1.05 && both[1] == slow, "two that are bound by memory: {both:?}");
        // It has 20 s of work left, which now take longer.
        let first = cluster.advance(1e6).unwrap();
        let ran = 10.0 + 20.0 * slow;
        assert!((first.at_s - ran).abs() < 1e-6, "{first:?}");
        assert!((first.ended[0].slowdown - ran / 30.0).abs() < 1e-9 && first.ended[0].pod == "a");
        assert_eq!(slowdowns(&cluster, "n1"), [1.0]);
        let second = cluster.advance(1e6).unwrap();
        assert!((second.at_s - (ran + 10.0)).abs() < 1e-6, "10 of its 30 s are left: {second:?}");
    }

    #[test]
    fn a_node_is_told_as_its_daemon_would() {
        let mut cluster = cluster();
        cluster.start("n1", "a", "lbm06", 30.0).unwrap();
        cluster.start("n1", "b", "quiet", 30.0).unwrap();
        let node = cluster.node("n1");
        let shared = |i: usize| (node["shared"][i]["capacity"].as_f64().unwrap(), node["shared"][i]["use"].as_f64());
        // Of 12 GB/s a third is written back, and the threshold lies 20 % below the rest.
        assert_eq!((shared(0), shared(1).0, shared(2).0), ((3.0, Some(2.0)), 6.4e9, 8_388_608.0));
        let missed = node["containers"][0]["use"]["memory"].as_f64();
        assert!(missed > Some(1e9), "{node}");
        assert_eq!([shared(1).1, shared(2).1], [missed; 2], "the other one misses nothing");
        assert_eq!(node["containers"][1]["use"]["memory"], 0.0);
        cluster.advance(12.0).unwrap();
        assert_eq!(cluster.node("n1")["containers"][1]["done_s"], 12.0);
        assert_eq!(cluster.node("n2")["containers"], json!([]));
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let mut cluster = cluster();
        for pod in ["a", "b", "c"] {
            cluster.start("n1", pod, "quiet", 10.0).unwrap();
        }
        let long = "x".repeat(NAME + 1);
        for (node, pod, program, work_s, why) in [
            ("n1", "d", "quiet", 1.0, "4 programs, but there are 3 cores"),
            ("n2", "a", "quiet", 1.0, "there is a pod 'a' already"),
            ("n2", "d", "nobody", 1.0, "there is no program 'nobody'"),
            ("n2", "d", "quiet", 0.0, "work_s is 0"),
            ("n2", "d", "quiet", f64::NAN, "work_s is NaN"),
            ("n2", &*long, "quiet", 1.0, "a name has"),
            ("", "d", "quiet", 1.0, "a name has"),
        ] {
            let refused = cluster.start(node, pod, program, work_s).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        assert!(
            cluster.stop("d").is_err() && cluster.advance(-1.0).is_err() && cluster.advance(f64::INFINITY).is_err()
        );
        assert_eq!((cluster.pods.len(), cluster.nodes.len()), (3, 1));
        cluster.stop("b").unwrap();
        assert_eq!(ended(&cluster.advance(1e6).unwrap()), [("a", 10.0, 1.0), ("c", 10.0, 1.0)]);
        assert!(cluster.nodes.is_empty());
    }
}
