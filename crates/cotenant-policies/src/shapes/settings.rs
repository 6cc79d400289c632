//! Settings of `shapes`.

use super::shape::Shape;
use cotenant_model::policy::settings;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

/// Settings of `shapes`; see `docs/policies/shapes.md`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShapesSettings {
    /// The maximized value; `None`: the speed of the latency-sensitive application if there is one, otherwise the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<Objective>,
    /// Largest allowed loss of an application against the kernel's placement, 0–0.9; `None`: no limit.
    #[serde(deserialize_with = "guard")]
    pub guard: Option<f64>,
    /// Fraction of time that trials may cost, 0–0.5.
    #[serde(deserialize_with = "regret")]
    pub regret: f64,
    /// Seed of random draws.
    pub seed: u64,
    /// Former best shapes on this machine, tried first when the same programs run again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<KnownShape>,
}

/// The best shape found for some programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Unordered")]
pub struct KnownShape {
    /// In ascending order: a run's own order depends on the start of its programs.
    pub groups: Vec<KnownGroup>,
    pub(super) shape: Shape,
}

/// Identity of a group of threads across runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "GroupText")]
pub struct KnownGroup {
    /// The application's name.
    pub app: String,
    /// The threads' name, if the application has several groups.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// Its number of threads.
    pub threads: usize,
}

/// A known shape in any order.
#[derive(Deserialize)]
struct Unordered {
    groups: Vec<KnownGroup>,
    shape: Shape,
}

/// A group as written now, or formerly with one name for both.
#[derive(Deserialize)]
#[serde(untagged)]
enum GroupText {
    Old(String, usize),
    New {
        app: String,
        #[serde(default)]
        part: String,
        threads: usize,
    },
}

impl From<GroupText> for KnownGroup {
    fn from(text: GroupText) -> Self {
        match text {
            GroupText::Old(app, threads) => Self { app, part: String::new(), threads },
            GroupText::New { app, part, threads } => Self { app, part, threads },
        }
    }
}

impl From<Unordered> for KnownShape {
    fn from(Unordered { groups, shape }: Unordered) -> Self {
        Self::new(&groups, &shape)
    }
}

impl KnownShape {
    /// For groups in any order, which the shape shares.
    pub(super) fn new(groups: &[KnownGroup], shape: &Shape) -> Self {
        let order = ascending(groups);
        let shape = shape.reordered(&order).unwrap_or_else(|| shape.clone());
        Self { groups: order.into_iter().map(|g| groups[g].clone()).collect(), shape }
    }

    /// The shape for these groups in their order; `None` for other groups.
    pub(super) fn of(&self, groups: &[KnownGroup]) -> Option<Shape> {
        let order = ascending(groups);
        if !order.iter().map(|&g| &groups[g]).eq(&self.groups) {
            return None;
        }
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, &g)| back[g] = at);
        self.shape.reordered(&back)
    }
}

/// Indexes of groups in ascending order.
fn ascending(groups: &[KnownGroup]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|&g| &groups[g]);
    order
}

impl Default for ShapesSettings {
    fn default() -> Self {
        Self { objective: None, guard: Some(0.05), regret: 0.01, seed: 1, known: Vec::new() }
    }
}

/// The maximized value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// The geometric mean of the applications' speeds: `mean`.
    #[default]
    Mean,
    /// The least speed over that under the kernel's placement: `fair`.
    Fair,
    /// One application's speed: `app=NAME`.
    App(String),
}

/// A text that is not an objective.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an objective; write mean, fair or app=NAME")]
pub struct ObjectiveError(String);

impl FromStr for Objective {
    type Err = ObjectiveError;

    fn from_str(text: &str) -> Result<Self, ObjectiveError> {
        match text.split_once('=') {
            None if text == "mean" => Ok(Self::Mean),
            None if text == "fair" => Ok(Self::Fair),
            Some(("app", name)) if !name.is_empty() => Ok(Self::App(name.to_owned())),
            _ => Err(ObjectiveError(text.to_owned())),
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mean => f.write_str("mean"),
            Self::Fair => f.write_str("fair"),
            Self::App(name) => write!(f, "app={name}"),
        }
    }
}

impl Serialize for Objective {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Objective {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

fn guard<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    match Value::deserialize(from)? {
        Value::Null => Ok(None),
        Value::String(text) if text == "off" => Ok(None),
        value => settings::within(settings::fraction(value).map_err(D::Error::custom)?, &(0.0..=0.9)).map(Some),
    }
}

fn regret<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    settings::within(settings::fraction(from)?, &(0.0..=0.5))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_are_read_and_bounded() {
        let read = |json: Value| serde_json::from_value::<ShapesSettings>(json).map_err(|e| e.to_string());
        let usual = ShapesSettings::default();
        assert_eq!(read(json!({})), Ok(usual.clone()));
        assert_eq!(read(json!({ "guard": "off" })), Ok(ShapesSettings { guard: None, ..usual.clone() }));
        assert_eq!(read(json!({ "guard": "2%", "regret": 0.02 })).unwrap().guard, Some(0.02));
        let app = Some(Objective::App("redis".into()));
        assert_eq!(read(json!({ "objective": "app=redis" })).unwrap().objective, app);
        for bad in
            [json!({ "guard": 1 }), json!({ "regret": "60%" }), json!({ "objective": "app=" }), json!({ "x": 1 })]
        {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
        let set = ShapesSettings { objective: app, guard: None, ..usual };
        assert_eq!(read(serde_json::to_value(&set).unwrap()), Ok(set));
    }
}
