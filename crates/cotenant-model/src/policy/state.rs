//! State of any policy between rounds.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::any::Any;
use std::borrow::Cow;
use std::fmt::Debug;

/// Requirements of a state: plain and serialisable, so that any situation can be tested and replayed.
pub trait PolicyState:
    Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<S: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static> PolicyState for S {}

/// A policy's state. In the loop it is the policy's own type in a box; from a recording or a snapshot it stays JSON
/// until its policy takes it, so that reading does not depend on policies.
///
/// In JSON: `"empty"`, or an object with one key, the policy's [`Policy::SECTION`](super::Policy::SECTION).
#[derive(Clone, Debug, Default)]
pub struct State(Content);

#[derive(Clone, Debug, Default)]
enum Content {
    #[default]
    Empty,
    Typed(&'static str, Box<dyn Remembered>),
    Json(String, Value),
}

/// A boxed [`PolicyState`].
trait Remembered: Any + Debug + erased_serde::Serialize + Send + Sync {
    fn boxed_clone(&self) -> Box<dyn Remembered>;
    fn equals(&self, other: &dyn Remembered) -> bool;
}

impl<S: PolicyState> Remembered for S {
    fn boxed_clone(&self) -> Box<dyn Remembered> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn Remembered) -> bool {
        (other as &dyn Any).downcast_ref::<S>() == Some(self)
    }
}

impl Clone for Box<dyn Remembered> {
    fn clone(&self) -> Self {
        (**self).boxed_clone()
    }
}

impl State {
    /// A state under a policy's name; empty for a type without content.
    pub(super) fn typed<S: PolicyState>(section: &'static str, state: S) -> Self {
        if size_of::<S>() == 0 {
            return Self::default();
        }
        Self(Content::Typed(section, Box::new(state)))
    }

    /// A state as JSON, under a policy's [`Policy::SECTION`](super::Policy::SECTION).
    pub fn json(section: &str, state: Value) -> Self {
        Self(Content::Json(section.to_owned(), state))
    }

    /// Takes it as a state of this type, of the policy of this name; an empty one is the default.
    pub(super) fn take_as<S: PolicyState>(self, wanted: &str) -> Result<S, String> {
        match self.0 {
            Content::Empty => Ok(S::default()),
            Content::Typed(section, state) if section == wanted => match (state as Box<dyn Any>).downcast() {
                Ok(state) => Ok(*state),
                Err(_) => Err("its state is of another type".to_owned()),
            },
            Content::Json(section, state) if section == wanted => {
                serde_json::from_value(state).map_err(|why| format!("its state cannot be read ({why})"))
            }
            Content::Typed(..) | Content::Json(..) => {
                Err(format!("the state is of {}", self.section().unwrap_or_default()))
            }
        }
    }

    /// Borrows it like [`Self::take_as`]; `None` if it cannot be taken, or is empty.
    pub(super) fn read_as<S: PolicyState>(&self, wanted: &str) -> Option<Cow<'_, S>> {
        match &self.0 {
            Content::Typed(_, state) => (&**state as &dyn Any).downcast_ref().map(Cow::Borrowed),
            Content::Json(section, state) if section == wanted => S::deserialize(state).ok().map(Cow::Owned),
            Content::Empty | Content::Json(..) => None,
        }
    }

    /// The [`Policy::SECTION`](super::Policy::SECTION) of its policy; `None` for an empty state.
    pub fn section(&self) -> Option<&str> {
        self.parts().map(|(section, _)| section)
    }

    fn parts(&self) -> Option<(&str, &dyn erased_serde::Serialize)> {
        match &self.0 {
            Content::Empty => None,
            Content::Typed(section, state) => Some((section, &**state)),
            Content::Json(section, state) => Some((section, state)),
        }
    }

    fn to_json(&self) -> Option<Value> {
        serde_json::to_value(self.parts()?.1).ok()
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Content::Typed(_, a), Content::Typed(_, b)) => a.equals(&**b),
            _ => self.section() == other.section() && self.to_json() == other.to_json(),
        }
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.parts() {
            None => serializer.serialize_str("empty"),
            Some(entry) => serializer.collect_map([entry]),
        }
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) if text == "empty" => Ok(Self::default()),
            Value::Object(map) if map.len() == 1 => {
                let (section, state) = map.into_iter().next().unwrap_or_default();
                Ok(Self(Content::Json(section, state)))
            }
            _ => Err(D::Error::custom("a state is \"empty\", or an object with one key, the policy's")),
        }
    }
}
