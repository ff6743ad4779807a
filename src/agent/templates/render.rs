//! Renders a template from resolved dependencies: a text, a list of further dependencies, or an error. Reads nothing itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use gotmpl::{MissingKey, TemplateError as EngineError, Value};
use zeroize::Zeroizing;

use super::compile::Template;
use super::error::TemplateError;
use super::evaluation::{Dependency, Evaluation, Resolved, WrittenFile};
use super::functions;

/// Result of a rendering.
#[derive(Debug)]
pub enum Rendered {
    /// The rendered text.
    Complete {
        /// The text.
        text: Zeroizing<String>,
        /// Further files that it writes, by path.
        files: BTreeMap<PathBuf, WrittenFile>,
    },
    /// Dependencies that must be resolved first.
    Unresolved(BTreeSet<Dependency>),
    /// The template fails.
    Failed(TemplateError),
}

impl Template {
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
        let shared = Evaluation::start(resolved, now);
        let mut template = gotmpl::Template::new("")
            .missing_key(if self.source.allows_missing_keys { MissingKey::Invalid } else { MissingKey::Error })
            .max_range_iters(MAX_ITERATIONS)
            .funcs(functions::all(&self.source, &shared));
        for (name, tree) in &self.trees {
            template = template.add_parse_tree(name, tree.clone());
        }
        let mut output = BoundedText { text: Zeroizing::new(String::with_capacity(4 * 1024)), is_full: false };
        let result = template.execute_template_fmt(&mut output, "", &Value::Nil);
        let mut evaluation = shared.lock();
        let used = std::mem::take(&mut evaluation.used);
        let unresolved = std::mem::take(&mut evaluation.unresolved);
        let rendered = match result {
            // An error may follow from a dependency that is not resolved yet.
            _ if !unresolved.is_empty() => Rendered::Unresolved(unresolved),
            Ok(()) => Rendered::Complete { text: output.text, files: std::mem::take(&mut evaluation.files) },
            Err(_) if output.is_full => {
                let error = EngineError::Exec(format!("the rendered text exceeds {} MiB", MAX_BYTES >> 20));
                Rendered::Failed(TemplateError::from_rendering(&self.source.text, evaluation.offset, &error))
            }
            Err(error) => Rendered::Failed(TemplateError::from_rendering(&self.source.text, evaluation.offset, &error)),
        };
        (rendered, used)
    }
}

/// A text of bounded size that is zeroed when it grows or is dropped.
struct BoundedText {
    text: Zeroizing<String>,
    is_full: bool,
}

impl std::fmt::Write for BoundedText {
    fn write_str(&mut self, more: &str) -> std::fmt::Result {
        let needed = self.text.len() + more.len();
        if needed > MAX_BYTES {
            self.is_full = true;
            return Err(std::fmt::Error);
        }
        if needed > self.text.capacity() {
            let mut larger = Zeroizing::new(String::with_capacity(needed.max(2 * self.text.capacity())));
            larger.push_str(&self.text);
            self.text = larger;
        }
        self.text.push_str(more);
        Ok(())
    }
}

/// Bounds the rendered text, in bytes.
const MAX_BYTES: usize = 16 << 20;

/// Bounds the iterations of all loops in a rendering.
const MAX_ITERATIONS: u64 = 1_000_000;
