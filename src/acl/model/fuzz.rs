//! Entry point of the fuzz target `selector`.

use super::selector::Selector;
use super::verified_claims::VerifiedClaims;

/// Parses a selector, and evaluates it with the values and lists of a login. `None` is a claim that the token lacks.
pub fn select(text: &str, values: &[(&str, Option<&str>)], lists: &[(&str, Option<&[&str]>)]) -> Result<bool, String> {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    let claims = VerifiedClaims {
        values: values.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned))).collect(),
        lists: lists.iter().map(|(name, list)| ((*name).to_owned(), list.map(texts))).collect(),
    };
    Selector::parse(text, &claims).map(|selector| selector.matches(&claims)).map_err(|error| error.to_string())
}
