//! Entry point of the fuzz target `selector`.

use super::selector::Selector;
use super::verified_claims::VerifiedClaims;

/// Parses a selector, and evaluates it with the values and lists of a login.
pub fn select(text: &str, values: &[(&str, &str)], lists: &[(&str, &[&str])]) -> Result<bool, String> {
    let text_of = |text: &&str| (*text).to_owned();
    let claims = VerifiedClaims {
        values: values.iter().map(|(name, value)| (text_of(name), text_of(value))).collect(),
        lists: lists.iter().map(|(name, list)| (text_of(name), list.iter().map(text_of).collect())).collect(),
    };
    Selector::parse(text, &claims).map(|selector| selector.matches(&claims)).map_err(|error| error.to_string())
}
