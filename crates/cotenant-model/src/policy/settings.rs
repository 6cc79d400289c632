//! Settings of single policies: one map, by policy and key.

use crate::parse;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("settings of {section}: {why}")]
pub struct SettingError {
    /// The section.
    pub section: String,
    /// The error.
    pub why: String,
}

/// For policies without settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

/// Settings by [`Policy::SECTION`](super::Policy::SECTION) and key. Absent ones have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Settings(BTreeMap<String, Value>);

impl Settings {
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The policies with settings.
    pub fn sections(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Sets all settings of a policy at once.
    ///
    /// # Panics
    /// If they cannot be written as JSON, which plain values can.
    pub fn put(&mut self, section: &str, settings: &impl Serialize) {
        let value = serde_json::to_value(settings).expect("settings are plain values");
        self.0.insert(section.to_owned(), value);
    }

    /// Adds other settings, key by key.
    pub fn merge(&mut self, other: &Self) {
        for (section, keys) in &other.0 {
            for (key, value) in keys.as_object().into_iter().flatten() {
                self.set(section, key, value.clone());
            }
        }
    }

    /// Sets one key of a policy. `value` is a number, `true`, `false`, or text as a user writes it.
    pub fn set(&mut self, section: &str, key: &str, value: Value) {
        self.section(section).insert(key.to_owned(), value);
    }

    /// The same, unless the key is set.
    pub fn set_missing(&mut self, section: &str, key: &str, value: Value) {
        self.section(section).entry(key).or_insert(value);
    }

    /// Unsets a key.
    pub fn remove(&mut self, section: &str, key: &str) {
        let Some(keys) = self.0.get_mut(section).and_then(Value::as_object_mut) else { return };
        keys.remove(key);
        if keys.is_empty() {
            self.0.remove(section);
        }
    }

    /// The settings of a policy, if any.
    pub(super) fn get(&self, section: &str) -> Option<&Value> {
        self.0.get(section)
    }

    fn section(&mut self, section: &str) -> &mut Map<String, Value> {
        let entry = self.0.entry(section.to_owned()).or_insert(Value::Null);
        if !entry.is_object() {
            *entry = Value::Object(Map::new());
        }
        entry.as_object_mut().expect("it is one by now")
    }
}

/// A value in the user's notation: a number, `true` or `false`, otherwise text.
pub fn value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Bool(_) | Value::Number(_))) => value,
        _ => Value::String(text.to_owned()),
    }
}

/// A value in range.
///
/// # Errors
/// If it is out of range.
pub fn within<T: PartialOrd + Display, E: Error>(value: T, range: &RangeInclusive<T>) -> Result<T, E> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(E::custom(format_args!("{value} is out of range: {} to {}", range.start(), range.end())))
}

/// Parses a fraction: a number, or text such as `25%`.
///
/// # Errors
/// If it is neither.
pub fn fraction<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let value = Value::deserialize(from)?;
    let percent = || value.as_str()?.strip_suffix('%')?.parse::<f64>().ok();
    let number = value.as_f64().or_else(|| Some(percent()? / 100.0));
    number.ok_or_else(|| {
        D::Error::custom(format_args!(
            "{value} is not a part of a whole; write for example 0.25 or \
         25%"
        ))
    })
}

/// Parses a time: text with a unit (a bare number is milliseconds), or the form in recordings.
///
/// # Errors
/// If it is neither, or out of range.
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
