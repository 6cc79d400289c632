//! Containers and their control groups, listed by the bridge to the container runtime.
//!
//! A list replaces the previous one, so that restarts on either side do not matter. Invalid entries are dropped with a
//! remark; the rest counts.

use cotenant_model::metric::MetricSource;
use cotenant_model::text;
use cotenant_setup::args::{self, MetricArg};
use cotenant_setup::units;
use cotenant_status::class::Class;
use cotenant_status::identity::Identity;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Limit of known containers; a kubelet runs some hundred.
pub(crate) const CONTAINERS: usize = 2_048;

/// Limits: bytes of a control group's path, of a name in Kubernetes (RFC 1123), and of a label's name and value; labels
/// of a container.
const PATH: usize = 1_024;
const NAME: usize = 253;
const KEY: usize = 317;
const VALUE: usize = 63;
const LABELS: usize = 64;

/// Remarks about a list.
const REMARKS: usize = 16;

/// A container in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Told {
    /// Its control group, as in `/proc/PID/cgroup` of the host.
    pub cgroup: String,
    pub namespace: String,
    pub pod: String,
    pub container: String,
    /// Its workload, whose replicas share one profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Those of its pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Requests by annotations, effective only if a rule allows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Whether the kubelet gave it exclusive CPUs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// Whether it is a job of Slurm, whose prolog lists nothing else.
    #[serde(skip)]
    pub job: bool,
}

/// Requests by annotations and by the kubelet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Asked {
    pub class: Option<Class>,
    pub goal: Option<f64>,
    pub metric: Option<MetricArg>,
    /// Whether it has exclusive CPUs, on which it is left alone.
    pub exclusive: bool,
}

/// A container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Container {
    pub cgroup: String,
    pub identity: Identity,
    pub labels: BTreeMap<String, String>,
    pub asked: Asked,
}

/// The result of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Taken {
    pub taken: usize,
    /// Dropped entries and the reasons.
    pub remarks: Vec<String>,
}

/// All containers, by control group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Containers(HashMap<String, Arc<Container>>);

impl Containers {
    /// Takes over a list.
    pub fn new(told: Vec<Told>) -> (Self, Taken) {
        let mut known = HashMap::new();
        let mut remarks = Vec::new();
        let mut remark = |text: String| {
            if remarks.len() < REMARKS {
                remarks.push(text::within(&text, text::LINE).into_owned());
            }
        };
        if told.len() > CONTAINERS {
            remark(format!("{} containers were reported; the first {CONTAINERS} are used", told.len()));
        }
        for told in told.into_iter().take(CONTAINERS) {
            let name = format!("{}/{}/{}", told.namespace, told.pod, told.container);
            match Container::new(told, |why| remark(format!("{name}: {why}"))) {
                Ok(container) if known.contains_key(&container.cgroup) => {
                    remark(format!("{name}: another container has the control group {}", container.cgroup));
                }
                Ok(container) => drop(known.insert(container.cgroup.clone(), Arc::new(container))),
                Err(why) => remark(format!("{name}: {why}; the container is left out")),
            }
        }
        let taken = known.len();
        (Self(known), Taken { taken, remarks })
    }

    /// These and others; for a control group in both, these take precedence.
    pub fn and(&self, others: &Self) -> Self {
        let mut both = others.0.clone();
        both.extend(self.0.iter().map(|(cgroup, container)| (cgroup.clone(), container.clone())));
        Self(both)
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The container that a control group belongs to: its own, or the innermost one around it.
    pub fn around(&self, cgroup: &str) -> Option<&Arc<Container>> {
        if self.0.is_empty() {
            return None;
        }
        let mut paths = std::iter::successors(Some(cgroup), |path| path.rsplit_once('/').map(|(folder, _)| folder));
        paths.find_map(|path| self.0.get(path))
    }
}

impl Container {
    /// `remark` gets the invalid parts.
    fn new(told: Told, mut remark: impl FnMut(String)) -> Result<Self, String> {
        let Told { cgroup, namespace, pod, container, workload, mut labels, class, goal, metric, exclusive, job } =
            told;
        let parts = cgroup.strip_prefix('/').map(|path| path.split('/').collect::<Vec<_>>()).unwrap_or_default();
        // A top-level group contains far more than a container.
        let is_path = (2..=64).contains(&parts.len()) && cgroup.len() <= PATH && !cgroup.contains(char::is_control);
        if !is_path || parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
            return Err(format!("'{cgroup}' is not a path of a container's control group"));
        }
        for (what, name) in [("namespace", &namespace), ("pod", &pod), ("container", &container)] {
            if !is_name(name) {
                return Err(format!("'{name}' is not a name of a {what}"));
            }
        }
        let workload = workload.filter(|name| {
            // The prolog's marks replace characters other than letters, digits and hyphens.
            let is = is_name(&name.replace('_', "-"));
            if !is {
                remark(format!("'{name}' is not a name of a workload"));
            }
            is
        });
        let there = labels.len();
        labels.retain(|key, value| key.len() <= KEY && value.len() <= VALUE && is_label(key) && is_label(value));
        while labels.len() > LABELS {
            labels.pop_last();
        }
        if labels.len() < there {
            remark(format!("{} of its labels are left out", there - labels.len()));
        }
        let mut read = |key: &str, why: String| remark(format!("{key}: {why}"));
        let asked = Asked {
            class: class.and_then(|text| {
                let class = Class::named(&text);
                if class.is_none() {
                    read("class", format!("'{text}' is none of high, low, normal and ignore"));
                }
                class
            }),
            goal: goal.and_then(|text| units::share(&text).map_err(|why| read("goal", why)).ok()),
            metric: metric.and_then(|text| speed(&text).map_err(|why| read("metric", why)).ok()),
            exclusive,
        };
        Ok(Self { cgroup, identity: Identity { namespace, pod, container, workload, job }, labels, asked })
    }

    /// Its name for users.
    pub fn name(&self) -> String {
        let Identity { namespace, pod, container, .. } = &self.identity;
        format!("{namespace}/{pod}/{container}")
    }
}

/// The speed from a pod's annotation. Authors of pods may lack the right to run programs as the daemon's user, or to
/// send its passwords to any address.
fn speed(text: &str) -> Result<MetricArg, String> {
    let mut metric = args::speed(text)?;
    if let Some(outside) = &mut metric.outside {
        if matches!(outside.source, MetricSource::Command(_)) {
            return Err("a command is taken from a rule alone".to_owned());
        }
        outside.foreign = true;
    }
    Ok(metric)
}

/// Names of namespaces, pods, containers and their owners in Kubernetes.
fn is_name(text: &str) -> bool {
    (1..=NAME).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
}

/// Names of labels and their values in Kubernetes.
fn is_label(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./%".contains(&b))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// `/pods/POD/CONTAINER` with a label.
    pub fn told(namespace: &str, pod: &str, container: &str) -> Told {
        Told {
            cgroup: format!("/pods/{pod}/{container}"),
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            container: container.to_owned(),
            workload: Some("web".to_owned()),
            labels: [("app".to_owned(), pod.to_owned())].into(),
            class: None,
            goal: None,
            metric: None,
            exclusive: false,
            job: false,
        }
    }

    /// Holds cluster/containers.
    #[test]
    fn a_group_belongs_to_the_innermost_container_around_it() {
        let (known, taken) = Containers::new(vec![told("shop", "db-0", "postgres"), told("shop", "db-0", "proxy")]);
        assert_eq!((taken.taken, taken.remarks), (2, vec![]));
        let of = |path: &str| known.around(path).map(|container| container.name());
        assert_eq!(of("/pods/db-0/postgres").unwrap(), "shop/db-0/postgres");
        assert_eq!(of("/pods/db-0/proxy/inner/one").unwrap(), "shop/db-0/proxy");
        assert_eq!(["/pods/db-0", "/pods/db-0/postgres2", "/", ""].map(of), [None, None, None, None]);
    }

    /// Holds cluster/containers.
    #[test]
    fn what_is_no_container_is_left_out_and_the_rest_counts() {
        let mut list = vec![told("shop", "a", "b")];
        for cgroup in ["", "/", "/pods", "pods/a/b", "/pods//b", "/pods/../b", "/pods/a\nb/c"] {
            list.push(Told { cgroup: cgroup.to_owned(), ..told("shop", "x", "y") });
        }
        list.push(Told { cgroup: format!("/pods/{}", "x".repeat(PATH)), ..told("shop", "x", "y") });
        list.extend([
            told("a b", "x", "y"),
            told("shop", "x\u{1b}[2J", "y"),
            told("shop", "x", ""),
            told("shop", "a", "b"),
        ]);
        let there = list.len();
        let (known, taken) = Containers::new(list);
        assert_eq!((known.len(), taken.taken, taken.remarks.len()), (1, 1, there - 1));
        assert!(taken.remarks.iter().all(|text| !text.contains(char::is_control)), "{:?}", taken.remarks);
        let many = (0..CONTAINERS + 7).map(|i| told("shop", &format!("p{i}"), "c")).collect();
        let (known, taken) = Containers::new(many);
        assert_eq!((known.len(), taken.remarks.len()), (CONTAINERS, 1));
    }

    /// Holds cluster/containers.
    #[test]
    fn what_annotations_ask_for_is_read_and_what_is_wrong_with_it_said() {
        let ask = |class: &str, goal: &str, metric: &str| {
            let [class, goal, metric] = [class, goal, metric].map(|text| Some(text.to_owned()));
            let (known, taken) = Containers::new(vec![Told { class, goal, metric, ..told("shop", "a", "b") }]);
            (known.around("/pods/a/b").unwrap().asked.clone(), taken.remarks)
        };
        let (asked, remarks) = ask("high", "80%", "ipc");
        assert_eq!((asked.class, asked.goal, remarks), (Some(Class::High), Some(0.8), vec![]));
        assert_eq!(asked.metric.unwrap().name(), "ipc");
        let (asked, _) = ask("high", "80%", "postgres:db:5432:p99,user=root");
        assert!(asked.metric.unwrap().outside.unwrap().foreign, "it gets none of the daemon's passwords");
        let (asked, remarks) = ask("low", "90%", "cmd:id");
        assert_eq!(
            (asked.metric, &*remarks),
            (None, &["shop/a/b: metric: a command is taken from a rule alone".to_owned()][..])
        );
        let (asked, remarks) = ask("best", "110%", "x:");
        assert_eq!((asked, remarks.len()), (Asked::default(), 3));
        assert!(remarks[0].contains("shop/a/b: class: 'best' is none of"), "{remarks:?}");
    }

    #[test]
    fn what_comes_once_is_learnt_by_its_workload() {
        let learnt = |told: Told| Container::new(told, |_| ()).unwrap().identity.learnt();
        let pod = told("shop", "web-7f9c", "main");
        assert_eq!(learnt(pod.clone()), "shop/web/main");
        assert_eq!(learnt(Told { workload: None, ..pod }), "shop/web-7f9c/main");
        let workload = Some("alice.sort".to_owned());
        assert_eq!(learnt(Told { workload, job: true, ..told("big", "7", "sort") }), "alice.sort");
    }

    /// Holds cluster/containers.
    #[test]
    fn labels_are_bounded() {
        let labels: BTreeMap<String, String> = (0..LABELS + 8).map(|i| (format!("k{i:03}"), "v".to_owned())).collect();
        let long = [("v".to_owned(), "x".repeat(VALUE + 1)), ("e\u{202e}".to_owned(), "x".to_owned())];
        let labels = labels.into_iter().chain(long).collect();
        let (known, taken) = Containers::new(vec![Told { labels, ..told("shop", "a", "b") }]);
        assert_eq!(known.around("/pods/a/b").unwrap().labels.len(), LABELS);
        assert_eq!(taken.remarks, ["shop/a/b: 10 of its labels are left out"]);
    }
}
