//! Functions of sprig, under the names that consul-template gives them. The piped value is the last argument.

// 0: conversions
mod cast;
mod decimal;
mod wrap;

// 1: functions
mod lists;
mod maps;
mod numbers;
mod paths;
mod regex;
mod texts;
mod times;
mod types;
mod versions;

use super::NamedFunction;

pub(super) const FUNCTIONS: [&[NamedFunction]; 9] = [
    lists::FUNCTIONS,
    maps::FUNCTIONS,
    numbers::FUNCTIONS,
    paths::FUNCTIONS,
    regex::FUNCTIONS,
    texts::FUNCTIONS,
    times::FUNCTIONS,
    types::FUNCTIONS,
    versions::FUNCTIONS,
];
