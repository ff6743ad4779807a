//! Sorts the annotations of a pod by their meaning, under both prefixes.

use std::collections::BTreeMap;

use super::annotations::{KEYWARD, Key, REFUSED, STATUS, TAKEN, Taken, VAULT, VAULT_STATUS};
use super::values;

/// An annotation with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    /// Its full name, for messages.
    pub(crate) annotation: String,
    pub(crate) value: String,
}

impl Given {
    /// Returns true for one of the Vault Agent injector's.
    pub(crate) fn is_vault(&self) -> bool {
        self.annotation.starts_with(VAULT)
    }
}

/// Annotations of a pod, by their meaning.
#[derive(Debug, Default)]
pub(crate) struct GivenAnnotations {
    single: BTreeMap<Key, Given>,
    /// Those that name a file, by that name.
    files: BTreeMap<String, BTreeMap<Key, Given>>,
    /// Reasons why annotations are not taken.
    pub(crate) refused: Vec<String>,
}

impl GivenAnnotations {
    /// Sorts the annotations of a pod.
    pub(crate) fn sort(annotations: &BTreeMap<String, String>, with_vault: bool) -> Self {
        let mut sorted = Self::default();
        let mut named = Vec::new();
        for (annotation, value) in annotations {
            let given = Given { annotation: annotation.clone(), value: value.clone() };
            let (is_vault, name) = match (annotation.strip_prefix(KEYWARD), annotation.strip_prefix(VAULT)) {
                _ if annotation == STATUS || annotation == VAULT_STATUS => continue,
                (Some(name), _) => (false, name),
                (None, Some(name)) if with_vault => (true, name),
                _ => continue,
            };
            match find(name, value, is_vault) {
                Found::One(key) => sorted.insert(key, given),
                Found::Named(key, file) => named.push((key, file.to_owned(), given)),
                Found::Ignored => {}
                Found::Nothing(why) => sorted.refused.push(format!("annotation {annotation} is not taken: {why}")),
            }
        }
        sorted.insert_named(named);
        sorted
    }

    fn insert(&mut self, key: Key, given: Given) {
        if let Some(other) = self.single.get(&key)
            && other.value != given.value
        {
            self.refused.push(given_twice(other, &given));
        }
        self.single.insert(key, given);
    }

    /// Sorts the annotations that name a file. The Vault Agent injector ignores capitals of names, unless told otherwise.
    fn insert_named(&mut self, named: Vec<(Key, String, Given)>) {
        let is_true = |given: &Given| values::boolean(&given.value) == Ok(true);
        let keeps_case = self.single.get(&Key::PreserveCase).is_some_and(is_true);
        let keeping: Vec<String> = named
            .iter()
            .filter(|(key, _, given)| *key == Key::NamedPreserveCase && is_true(given))
            .map(|(_, file, _)| file.clone())
            .collect();
        for (key, file, given) in named {
            let file =
                if given.is_vault() && !keeps_case && !keeping.contains(&file) { file.to_lowercase() } else { file };
            let annotations = self.files.entry(file).or_default();
            if let Some(other) = annotations.insert(key, given.clone())
                && other.value != given.value
            {
                self.refused.push(given_twice(&other, &given));
            }
        }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Given> {
        self.single.get(&key)
    }

    /// Returns the annotations that name a file, by that name.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&String, &BTreeMap<Key, Given>)> {
        self.files.iter()
    }
}

fn given_twice(first: &Given, second: &Given) -> String {
    format!("annotations {} and {} differ; remove one of them", first.annotation, second.annotation)
}

/// Meaning of an annotation's name.
enum Found<'a> {
    One(Key),
    /// With the name of a file.
    Named(Key, &'a str),
    /// It asks for nothing.
    Ignored,
    /// No annotation that is taken, and what to do.
    Nothing(String),
}

/// Finds the meaning of a name after its prefix. The longest name that fits counts.
fn find<'a>(name: &'a str, value: &str, is_vault: bool) -> Found<'a> {
    let own = |taken: &'static Taken| if is_vault { taken.vault } else { taken.keyward };
    if let Some(taken) = TAKEN.iter().find(|taken| !taken.is_named && !own(taken).is_empty() && own(taken) == name) {
        return Found::One(taken.key);
    }
    let after = |start: &str| name.strip_prefix(start)?.strip_prefix('-').filter(|file| !file.is_empty());
    let taken = TAKEN.iter().filter(|taken| taken.is_named && !own(taken).is_empty());
    let taken = taken.filter_map(|taken| Some((own(taken).len(), taken.key, after(own(taken))?)));
    let taken = taken.max_by_key(|(length, ..)| *length);
    let refused = REFUSED.iter().filter(|refused| {
        is_vault && if refused.is_named { after(refused.vault).is_some() } else { refused.vault == name }
    });
    let refused = refused.max_by_key(|refused| refused.vault.len());
    match (taken, refused) {
        (Some((length, key, file)), refused) if refused.is_none_or(|refused| refused.vault.len() < length) => {
            Found::Named(key, file)
        }
        (_, Some(refused)) if refused.neutral.contains(&value) => Found::Ignored,
        (_, Some(refused)) => Found::Nothing(refused.advice.to_owned()),
        _ if is_vault => Found::Nothing("keyward has nothing of its meaning; remove it".to_owned()),
        _ => Found::Nothing("it is unknown; `keyward kubernetes annotations` lists all".to_owned()),
    }
}
