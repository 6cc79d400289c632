//! The settings of single policies: one map, by policy and key.

use super::Policy;
use crate::parse;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A setting that a policy does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("settings of {section}: {why}")]
pub struct SettingError {
    /// Whose setting.
    pub section: String,
    /// What is wrong.
    pub why: String,
}

/// Of policies that nothing can be set of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

/// Settings by [`Policy::SECTION`] and key. What is absent has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Settings(BTreeMap<String, Value>);

impl Settings {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The policies that something is set of.
    pub fn sections(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Sets all settings of a policy at once.
    ///
    /// # Panics
    /// Where they cannot be written as JSON, which settings of plain values can.
    pub fn put(&mut self, section: &str, settings: &impl Serialize) {
        let value = serde_json::to_value(settings).expect("settings are plain values");
        self.0.insert(section.to_owned(), value);
    }

    /// Builder form of [`Self::put`], with the settings of `P`.
    #[must_use]
    pub fn with<P: Policy>(mut self, settings: &P::Settings) -> Self {
        self.put(P::SECTION, settings);
        self
    }

    /// Sets one key of a policy. `value` is a number, `true`, `false`, or text as a user writes it.
    pub fn set(&mut self, section: &str, key: &str, value: Value) {
        let entry = self.0.entry(section.to_owned()).or_insert(Value::Null);
        if !entry.is_object() {
            *entry = Value::Object(Map::new());
        }
        entry[key] = value;
    }

    /// The settings of `P`.
    ///
    /// # Errors
    /// [`SettingError`] for unknown keys and values that it does not take.
    pub fn of<P: Policy>(&self) -> Result<P::Settings, SettingError> {
        match self.0.get(P::SECTION) {
            None | Some(Value::Null) => Ok(P::Settings::default()),
            Some(value) => P::Settings::deserialize(value)
                .map_err(|why| SettingError { section: P::SECTION.to_owned(), why: why.to_string() }),
        }
    }
}

/// A value as the user writes it: a number, `true` or `false`, else text.
pub fn value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Bool(_) | Value::Number(_))) => value,
        _ => Value::String(text.to_owned()),
    }
}

/// A value, where it is in range.
///
/// # Errors
/// Where it is not.
pub fn within<T: PartialOrd + Display, E: Error>(value: T, range: &RangeInclusive<T>) -> Result<T, E> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(E::custom(format_args!("{value} is out of range: {} to {}", range.start(), range.end())))
}

/// Reads a part of a whole: a number, or text such as `25%`.
///
/// # Errors
/// Where it is neither.
pub fn fraction<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let value = Value::deserialize(from)?;
    let percent = || value.as_str()?.strip_suffix('%')?.parse::<f64>().ok();
    let number = value.as_f64().or_else(|| Some(percent()? / 100.0));
    number.ok_or_else(|| D::Error::custom(format_args!("{value} is no part of a whole; write for example 0.25 or 25%")))
}

/// Reads a time: text with a unit as users write it (a bare number is milliseconds), or as recordings hold it.
///
/// # Errors
/// Where it is neither, or out of range.
pub fn duration<'de, D: Deserializer<'de>>(from: D, range: &RangeInclusive<Duration>) -> Result<Duration, D::Error> {
    let time = match Value::deserialize(from)? {
        Value::String(text) => parse::duration(&text).map_err(D::Error::custom)?,
        Value::Number(ms) => parse::duration(&ms.to_string()).map_err(D::Error::custom)?,
        parts => Duration::deserialize(parts).map_err(D::Error::custom)?,
    };
    if range.contains(&time) {
        return Ok(time);
    }
    Err(D::Error::custom(format_args!("{time:?} is out of range: {:?} to {:?}", range.start(), range.end())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{
        Atom, AtomConfig, CoSchedule, Config, Dino, Qos, QuantumSettings, Registry, Sam, SamConfig, Static,
    };

    #[test]
    fn keys_are_set_one_by_one() {
        let mut settings = Settings::default();
        assert_eq!(settings.of::<Sam>(), Ok(SamConfig::default()));
        settings.set("sam", "cooldown", value("false"));
        settings.set("atom", "turn", value("2s"));
        settings.set("atom", "settle", value("25%"));
        settings.set("atom", "rounds", value("7"));
        settings.set("quantum", "quantum", value("50"));
        settings.set("static", "map", value("X*X*"));
        assert_eq!(settings.of::<Sam>(), Ok(SamConfig { cooldown: false, ..SamConfig::default() }));
        let atom = AtomConfig { turn: Duration::from_secs(2), settle: 0.25, rounds: 7, ..AtomConfig::default() };
        assert_eq!(settings.of::<Atom>(), Ok(atom));
        assert_eq!(settings.of::<CoSchedule>(), Ok(QuantumSettings { quantum: Duration::from_millis(50) }));
        assert_eq!(settings.of::<Static>().unwrap().map.as_deref(), Some("X*X*"));
        let stored: Settings = serde_json::from_str(&serde_json::to_string(&settings).unwrap()).unwrap();
        assert_eq!((stored.of::<Atom>(), &stored), (Ok(atom), &settings));
    }

    #[test]
    fn what_a_policy_does_not_take_is_refused() {
        let wrong = |section: &str, key: &str, text: &str| {
            let mut settings = Settings::default();
            settings.set(section, key, value(text));
            Registry::standard().check(section, &settings).unwrap_err().to_string()
        };
        assert!(
            wrong("sam", "coldown", "false").starts_with("settings of sam: unknown field `coldown`, expected one of")
        );
        assert!(wrong("sam", "cooldown", "no").contains("expected a boolean"));
        assert!(wrong("dino", "x", "1").contains("unknown field `x`"));
        assert!(wrong("atom", "rounds", "0").contains("0 is out of range: 1 to 1000"));
        assert!(wrong("atom", "classes", "1").contains("out of range: 2 to 10000"));
        assert!(wrong("atom", "settle", "1").contains("1 is out of range: 0 to 0.9"));
        assert!(wrong("atom", "turn", "soon").contains("is no unit of time"));
        assert!(wrong("quantum", "quantum", "0").contains("out of range: 1ms to 86400s"));
    }

    #[test]
    fn names_lead_to_sections() {
        let registry = Registry::standard();
        assert_eq!((registry.section("cas"), registry.section("quantum")), (Ok("quantum"), Ok("quantum")));
        assert_eq!(registry.section("qos"), Ok("qos"));
        assert!(registry.section("auto").unwrap_err().contains("those of sam and atom"));
        assert!(registry.section("nope").unwrap_err().starts_with("there is no policy 'nope'; known: none, static"));
    }

    /// What recordings held before settings were one map.
    #[test]
    fn settings_of_older_recordings_are_read() {
        let text = r#"{"interval":{"secs":0,"nanos":5},"pin":"cpu","foreign_busy":0.2,"map":"XX","sam":{"cooldown":false},
                       "quantum":{"secs":1,"nanos":0},"atom":{"turn":{"secs":3,"nanos":0},"execute":null},"move_pages":true}"#;
        let config: Config = serde_json::from_str(text).unwrap();
        let settings = &config.settings;
        assert_eq!((config.interval, config.foreign_busy, config.move_pages), (Duration::from_nanos(5), 0.2, true));
        assert_eq!(settings.of::<Static>().unwrap().map.as_deref(), Some("XX"));
        assert!(!settings.of::<Sam>().unwrap().cooldown);
        assert_eq!(settings.of::<CoSchedule>().unwrap().quantum, Duration::from_secs(1));
        assert_eq!(settings.of::<Atom>(), Ok(AtomConfig { turn: Duration::from_secs(3), ..AtomConfig::default() }));
        assert_eq!((settings.of::<Qos>(), settings.of::<Dino>().is_ok()), (Ok(None), true));
        let again: Config = serde_json::from_value(serde_json::to_value(&config).unwrap()).unwrap();
        assert_eq!(again, config);
        assert_eq!(serde_json::to_value(Config::default()).unwrap().get("settings"), None);
    }
}
