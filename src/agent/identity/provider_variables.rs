//! The environment variables of a cloud provider as a value.

use std::collections::BTreeMap;

/// Environment variables of the identity sources of one provider, captured when the configuration was read.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProviderVariables(BTreeMap<String, String>);

impl ProviderVariables {
    /// Selects Azure's variables (`AZURE_*`, `IDENTITY_*`, `IMDS_*`, `MSI_*`) from `all`. Empty ones are treated as unset.
    pub fn of_azure(all: impl IntoIterator<Item = (String, String)>) -> Self {
        Self::with_prefixes(all, &["AZURE_", "IDENTITY_", "IMDS_", "MSI_"])
    }

    /// Selects the variables of AWS (`AWS_*`) from `all`.
    pub fn of_aws(all: impl IntoIterator<Item = (String, String)>) -> Self {
        Self::with_prefixes(all, &["AWS_"])
    }

    /// Selects the variables of Google Cloud (`GOOGLE_*`, `GCE_METADATA_*`) from `all`.
    pub fn of_gcp(all: impl IntoIterator<Item = (String, String)>) -> Self {
        Self::with_prefixes(all, &["GOOGLE_", "GCE_METADATA_"])
    }

    /// Selects the variables by which a CI system gives tokens to its jobs (`ACTIONS_ID_TOKEN_REQUEST_*` of GitHub, two `SYSTEM_*` of
    /// Azure DevOps), and the one of this name, from `all`.
    pub fn of_ci(all: impl IntoIterator<Item = (String, String)>, variable: Option<&str>) -> Self {
        let system = ["ACTIONS_ID_TOKEN_REQUEST_", "SYSTEM_OIDCREQUESTURI", "SYSTEM_ACCESSTOKEN"];
        let all = all.into_iter();
        match variable {
            Some(variable) => Self(all.filter(|(name, value)| name == variable && !value.is_empty()).collect()),
            None => Self::with_prefixes(all, &system),
        }
    }

    /// Only these are kept, so that no other secret of the environment stays in memory.
    fn with_prefixes(all: impl IntoIterator<Item = (String, String)>, prefixes: &[&str]) -> Self {
        let is_kept = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
        Self(all.into_iter().filter(|(name, value)| is_kept(name) && !value.is_empty()).collect())
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

impl std::fmt::Debug for ProviderVariables {
    /// Prints names only: values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
