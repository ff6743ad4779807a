//! Renders a template from resolved dependencies: a text, a list of further dependencies, or an error. Reads nothing itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::compile::Template;
use super::engine::{Options, execute};
use super::error::TemplateError;
use super::evaluation::{Dependency, Evaluation, Resolved, WrittenFile};
use super::functions::Functions;
use crate::secrets::SecretRequest;

/// Result of a rendering.
#[derive(Debug)]
pub enum Rendered {
    /// The rendered text.
    Complete {
        /// The text.
        text: String,
        /// Further files that it writes, by path.
        files: BTreeMap<PathBuf, WrittenFile>,
    },
    /// Dependencies that must be resolved first.
    Unresolved(BTreeSet<Dependency>),
    /// The template fails.
    Failed(TemplateError),
}

impl Template {
    /// Returns the requests of secrets that it makes before it knows any secret, at the time `now`.
    pub fn first_requests(&self, now: SystemTime) -> Vec<SecretRequest> {
        let Rendered::Unresolved(needs) = self.render(Arc::default(), now) else { return Vec::new() };
        let request = |need| match need {
            Dependency::Secret(request) => Some(request),
            Dependency::File(_) => None,
        };
        needs.into_iter().filter_map(request).collect()
    }

    /// Renders the template with the results of its dependencies, at the time `now`.
    pub fn render(&self, resolved: Arc<BTreeMap<Dependency, Resolved>>, now: SystemTime) -> Rendered {
        self.render_and_list(resolved, now).0
    }

    /// Renders the template, and lists the dependencies that this used, whatever its result.
    pub(super) fn render_and_list(
        &self,
        resolved: Arc<BTreeMap<Dependency, Resolved>>,
        now: SystemTime,
    ) -> (Rendered, BTreeSet<Dependency>) {
        let options = Options { is_absent_key_an_error: !self.source.allows_missing_keys };
        let mut evaluation = Evaluation::start(resolved, now);
        let result = execute(&self.trees, &mut Functions::new(&self.source, &mut evaluation), options);
        let Evaluation { used, unresolved, files, .. } = evaluation;
        let rendered = match result {
            // An error may follow from a dependency that is not resolved yet.
            _ if !unresolved.is_empty() => Rendered::Unresolved(unresolved),
            Ok(text) => Rendered::Complete { text, files },
            Err(failure) => Rendered::Failed(TemplateError::new(&self.source.text, failure)),
        };
        (rendered, used)
    }
}
