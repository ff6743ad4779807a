//! Words in messages: a count with its noun, and the nearest name to one that was misspelled.

use std::fmt::Display;

/// Suggests the nearest existing name, as `did you mean NAME?`. Returns `None` if more than a third of its characters differ.
pub fn did_you_mean<T: AsRef<str>>(name: &str, names: &[T]) -> Option<String> {
    let distance =
        |candidate: &T| strsim::damerau_levenshtein(&name.chars().take(64).collect::<String>(), candidate.as_ref());
    let nearest = names.iter().min_by_key(|candidate| distance(candidate))?;
    (distance(nearest) <= (nearest.as_ref().len() / 3).max(1)).then(|| format!("did you mean {}?", nearest.as_ref()))
}

/// Formats a count with its noun, whose plural is regular: `1 failure`, `2 failures`.
pub fn format_count(count: impl Into<u64> + Display + Copy, noun: &str) -> String {
    let ending = if count.into() == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular() {
        assert_eq!(format_count(0_u32, "login"), "0 logins");
        assert_eq!(format_count(1_u32, "login"), "1 login");
        assert_eq!(format_count(2_u64, "login"), "2 logins");
    }
}
