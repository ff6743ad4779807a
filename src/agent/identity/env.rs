//! The provider's environment variables, as a value.

use std::collections::BTreeMap;

/// The variables that the sources read, as they stood when the configuration was read; never the process's own later.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Keeps the provider's variables (`AZURE_*`, `IDENTITY_*`, `IMDS_*`, `MSI_*`) out of `all`. An empty one counts as absent.
    pub fn of(all: impl IntoIterator<Item = (String, String)>) -> Self {
        let ours = |name: &str| ["AZURE_", "IDENTITY_", "IMDS_", "MSI_"].iter().any(|prefix| name.starts_with(prefix));
        Self(all.into_iter().filter(|(name, value)| ours(name) && !value.is_empty()).collect())
    }

    /// All of them by name. Values may be secrets.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A variable's value, if it is there.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl std::fmt::Debug for Variables {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
