//! Azure's environment variables as a value.

use std::collections::BTreeMap;

/// Environment variables of the identity sources, captured when the configuration was read.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AzureEnv(BTreeMap<String, String>);

impl AzureEnv {
    /// Selects Azure's variables (`AZURE_*`, `IDENTITY_*`, `IMDS_*`, `MSI_*`) from `all`. Empty ones are treated as unset.
    pub fn from_vars(all: impl IntoIterator<Item = (String, String)>) -> Self {
        // Only these are kept, so that no other secret of the environment stays in memory.
        let is_azure =
            |name: &str| ["AZURE_", "IDENTITY_", "IMDS_", "MSI_"].iter().any(|prefix| name.starts_with(prefix));
        Self(all.into_iter().filter(|(name, value)| is_azure(name) && !value.is_empty()).collect())
    }

    /// Returns all variables by name. Values may be secrets.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns a variable's value, if it is set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl std::fmt::Debug for AzureEnv {
    /// Prints names only: values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
