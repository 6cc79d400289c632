//! A rule as it is written.

use cotenant_status::class::Class;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// `[[rule]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", expecting = "a table, begun by [[rule]]")]
pub(crate) struct RuleText {
    #[serde(default)]
    pub name: String,
    #[serde(default, rename = "match")]
    pub matches: MatchText,
    #[serde(default)]
    pub class: Class,
    pub goal: Option<Spanned<String>>,
    pub metric: Option<Spanned<String>>,
    pub policy: Option<Spanned<String>>,
    #[serde(default)]
    pub annotations: Vec<Annotation>,
    // Those of config.toml, which are read until 0.2.0.
    pub executable: Option<Spanned<String>>,
    pub cgroup: Option<Spanned<String>>,
    pub role: Option<Role>,
}

/// What a container may say of itself by an annotation `cotenant.dev/…`, where its rule allows that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Annotation {
    Class,
    Goal,
    Metric,
}

/// `match`: all that is given must hold.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[serde(expecting = "a table such as { unit = \"NAME\" }")]
pub(crate) struct MatchText {
    pub unit: Option<Spanned<String>>,
    pub cgroup: Option<Spanned<String>>,
    pub command: Option<Spanned<String>>,
    pub user: Option<Spanned<String>>,
    pub namespace: Option<Spanned<String>>,
    pub pod: Option<Spanned<String>>,
    pub container: Option<Spanned<String>>,
    pub label: BTreeMap<String, Spanned<String>>,
}

/// What `class` is now.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    High,
    Low,
}
