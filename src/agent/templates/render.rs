//! Renders a template of what is known: bytes, or what it needs besides, or what is wrong with it. Reads nothing itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use gotmpl::{MissingKey, TemplateError as EngineError, Value};
use zeroize::Zeroizing;

use super::compile::Template;
use super::error::TemplateError;
use super::evaluation::{Dependency, Evaluation, Resolved};
use super::functions;

/// What rendering gave.
#[derive(Debug)]
pub enum Rendered {
    /// The whole, and what it was made of.
    Complete {
        /// The bytes.
        text: Zeroizing<String>,
        /// What was asked for.
        used: BTreeSet<Dependency>,
    },
    /// It cannot be made before this is known.
    Unresolved(BTreeSet<Dependency>),
    /// It cannot be made.
    Failed(TemplateError),
}

impl Template {
    /// Renders it of what is known, at the time `now`.
    pub fn render(&self, known: Arc<BTreeMap<Dependency, Resolved>>, now: SystemTime) -> Rendered {
        let shared = Evaluation::begin(known, now);
        let mut template = gotmpl::Template::new("")
            .missing_key(MissingKey::Error)
            .max_range_iters(MAX_ITERATIONS)
            .funcs(functions::all(&self.source, &shared));
        for (name, tree) in &self.trees {
            template = template.add_parse_tree(name, tree.clone());
        }
        let mut written = BoundedText { text: Zeroizing::new(String::with_capacity(4 * 1024)), full: false };
        let done = template.execute_template_fmt(&mut written, "", &Value::Nil);
        let mut evaluation = shared.lock();
        let (used, unknown) = (std::mem::take(&mut evaluation.used), std::mem::take(&mut evaluation.unknown));
        match done {
            // What went wrong after something was unknown may have gone wrong for that.
            _ if !unknown.is_empty() => Rendered::Unresolved(unknown),
            Ok(()) => Rendered::Complete { text: written.text, used },
            Err(_) if written.full => {
                let error = EngineError::Exec(format!("it renders to more than {} MiB", MAX_BYTES >> 20));
                Rendered::Failed(TemplateError::at(&self.source.text, evaluation.at, &error))
            }
            Err(error) => Rendered::Failed(TemplateError::at(&self.source.text, evaluation.at, &error)),
        }
    }
}

/// A text that takes so much and no more, and leaves no copy behind where it grows.
struct BoundedText {
    text: Zeroizing<String>,
    full: bool,
}

impl std::fmt::Write for BoundedText {
    fn write_str(&mut self, more: &str) -> std::fmt::Result {
        let needed = self.text.len() + more.len();
        if needed > MAX_BYTES {
            self.full = true;
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

/// The largest file that is rendered.
const MAX_BYTES: usize = 16 << 20;

/// How often the bodies of all loops of a rendering may run.
const MAX_ITERATIONS: u64 = 1_000_000;
