//! Suggests a name for one that was misspelled.

/// Suggests the nearest existing name, as `did you mean NAME?`. Returns `None` if more than a third of its characters differ.
pub fn did_you_mean<T: AsRef<str>>(name: &str, names: &[T]) -> Option<String> {
    let distance =
        |candidate: &T| strsim::damerau_levenshtein(&name.chars().take(64).collect::<String>(), candidate.as_ref());
    let nearest = names.iter().min_by_key(|candidate| distance(candidate))?;
    (distance(nearest) <= (nearest.as_ref().len() / 3).max(1)).then(|| format!("did you mean {}?", nearest.as_ref()))
}
