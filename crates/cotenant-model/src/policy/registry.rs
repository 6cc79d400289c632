//! The named policies.

use super::{Config, DynPolicy, Policy, SettingError, Settings};

/// Makes a policy from the settings of a run.
type Make = Box<dyn Fn(&Settings) -> Result<Box<dyn DynPolicy>, SettingError> + Send + Sync>;

/// A named policy.
pub struct Entry {
    name: &'static str,
    reads: Vec<&'static str>,
    listed: bool,
    make: Make,
}

impl Entry {
    /// A policy, by its constructor from settings.
    pub fn new<P: Policy + 'static>(
        name: &'static str,
        make: impl Fn(P::Settings) -> P + Send + Sync + 'static,
    ) -> Self {
        Self::composed(name, [P::SECTION], move |settings| Ok(make(settings.of::<P>()?)))
    }

    /// A policy made of others, by the sections of its settings.
    pub fn composed<P: Policy + 'static, const N: usize>(
        name: &'static str,
        reads: [&'static str; N],
        make: impl Fn(&Settings) -> Result<P, SettingError> + Send + Sync + 'static,
    ) -> Self {
        let make = move |settings: &Settings| Ok(Box::new(make(settings)?) as Box<dyn DynPolicy>);
        Self { name, reads: reads.to_vec(), listed: true, make: Box::new(make) }
    }

    /// The same, hidden from users' choice of names.
    #[must_use]
    pub fn unlisted(self) -> Self {
        Self { listed: false, ..self }
    }

    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The sections of its settings.
    pub fn reads(&self) -> &[&'static str] {
        &self.reads
    }
}

/// All named policies: ours, and those added by a program.
pub struct Registry(Vec<Entry>);

impl Registry {
    /// These policies.
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Self {
        Self(entries.into_iter().collect())
    }

    /// Adds a policy; replaces one of the same name.
    #[must_use]
    pub fn with(mut self, entry: Entry) -> Self {
        self.0.retain(|before| before.name != entry.name);
        self.0.push(entry);
        self
    }

    /// The names that users can choose from.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().filter(|entry| entry.listed).map(Entry::name)
    }

    /// The policy of that name.
    ///
    /// # Errors
    /// A line that lists the known names.
    pub fn find(&self, name: &str) -> Result<&Entry, String> {
        self.0.iter().find(|entry| entry.name == name).ok_or_else(|| {
            format!("there is no policy '{name}'; known: {}", self.names().collect::<Vec<_>>().join(", "))
        })
    }

    /// Makes the policy of that name with the settings of a run.
    ///
    /// # Errors
    /// A line with the known names, or the wrong setting.
    pub fn make(&self, name: &str, config: &Config) -> Result<Box<dyn DynPolicy>, String> {
        (self.find(name)?.make)(&config.settings).map_err(|why| why.to_string())
    }

    /// Checks settings with the policies of a section.
    ///
    /// # Errors
    /// [`SettingError`] if they are invalid.
    pub fn check(&self, section: &str, settings: &Settings) -> Result<(), SettingError> {
        let entry = self.0.iter().find(|entry| entry.reads.contains(&section));
        entry.map_or(Ok(()), |entry| (entry.make)(settings).map(drop))
    }

    /// The section of settings for the name of a policy or of a section.
    ///
    /// # Errors
    /// A line that lists the known names.
    pub fn section(&self, name: &str) -> Result<&'static str, String> {
        let is_section = |entry: &&Entry| entry.reads.len() == 1 && entry.reads[0] == name;
        match self.0.iter().find(is_section) {
            Some(entry) => Ok(entry.reads[0]),
            Option::None => match self.find(name)?.reads[..] {
                [section] => Ok(section),
                _ => Err(format!(
                    "{name} has no settings of its own, it uses those of {}",
                    self.find(name)?.reads.join(" and ")
                )),
            },
        }
    }
}
