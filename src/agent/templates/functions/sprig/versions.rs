//! Semantic versions, and ranges of them.

use std::cmp::Ordering;

use crate::templates::engine::{MapType, Value};
use crate::templates::functions::NamedFunction;

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("sprig_semver", 1, 1, |args| {
        let version = Version::parse(args.text(0)?).ok_or_else(|| args.fail("the argument is not a version"))?;
        let [major, minor, patch] = version.numbers;
        let text = version.format();
        let fields = [
            ("Major", Value::Uint64(major)),
            ("Minor", Value::Uint64(minor)),
            ("Patch", Value::Uint64(patch)),
            ("Prerelease", Value::text(version.prerelease)),
            ("Metadata", Value::text(version.metadata)),
            ("Original", Value::text(args.text(0)?)),
            ("String", Value::text(text)),
        ];
        Ok(Value::map_of(MapType::Struct("*semver.Version"), fields))
    }),
    ("sprig_semverCompare", 2, 2, |args| {
        let version = Version::parse(args.text(1)?).ok_or_else(|| args.fail("argument 2 is not a version"))?;
        let error = || args.fail("argument 1 is not a range of versions");
        let mut fits = false;
        for alternative in args.text(0)?.split("||") {
            fits |= fits_all(alternative, &version).ok_or_else(error)?;
        }
        Ok(Value::Bool(fits))
    }),
];

#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    numbers: [u64; 3],
    prerelease: String,
    metadata: String,
}

impl Version {
    /// Parses a version; missing numbers are 0.
    fn parse(text: &str) -> Option<Self> {
        let (version, count) = Self::parse_partial(text)?;
        (count > 0).then_some(version)
    }

    /// Parses a version, and returns how many of its numbers are given; `x` and `*` are not.
    fn parse_partial(text: &str) -> Option<(Self, usize)> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (text, metadata) = text.split_once('+').unwrap_or((text, ""));
        let (text, prerelease) = text.split_once('-').unwrap_or((text, ""));
        let mut numbers = [0; 3];
        let mut count = 0;
        let parts: Vec<&str> = text.split('.').collect();
        if parts.len() > 3 {
            return None;
        }
        for (at, part) in parts.iter().enumerate() {
            if ["x", "X", "*"].contains(part) {
                break;
            }
            numbers[at] = part.parse().ok()?;
            count = at + 1;
        }
        Some((Self { numbers, prerelease: prerelease.to_owned(), metadata: metadata.to_owned() }, count))
    }

    fn format(&self) -> String {
        let [major, minor, patch] = self.numbers;
        let with = |mark: &str, text: &str| if text.is_empty() { String::new() } else { format!("{mark}{text}") };
        format!("{major}.{minor}.{patch}{}{}", with("-", &self.prerelease), with("+", &self.metadata))
    }

    fn compare(&self, other: &Self) -> Ordering {
        let prerelease = match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => compare_prereleases(&self.prerelease, &other.prerelease),
        };
        self.numbers.cmp(&other.numbers).then(prerelease)
    }
}

fn compare_prereleases(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.split('.'), right.split('.'));
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(left), Some(right)) => match (left.parse::<u64>(), right.parse::<u64>()) {
                (Ok(left), Ok(right)) => left.cmp(&right),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => left.cmp(right),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Returns true if a version fits all conditions, which commas or spaces separate; `None` if one is malformed.
fn fits_all(conditions: &str, version: &Version) -> Option<bool> {
    if let Some((from, to)) = conditions.split_once(" - ") {
        return Some(fits(&format!(">={}", from.trim()), version)? && fits(&format!("<={}", to.trim()), version)?);
    }
    let mut all = true;
    let joined = conditions.replace(',', " ");
    let mut parts = joined.split_whitespace().peekable();
    while let Some(part) = parts.next() {
        // An operator may stand apart from its version.
        let is_operator = part.bytes().all(|byte| b"=!<>~^".contains(&byte));
        let condition = if is_operator { format!("{part}{}", parts.next()?) } else { part.to_owned() };
        all &= fits(&condition, version)?;
    }
    Some(all)
}

fn fits(condition: &str, version: &Version) -> Option<bool> {
    let end = condition.find(|c: char| !"=!<>~^".contains(c))?;
    let (operator, text) = condition.split_at(end);
    let (wanted, count) = Version::parse_partial(text)?;
    // A version before a release fits only a range that names one.
    if !version.prerelease.is_empty() && wanted.prerelease.is_empty() {
        return Some(false);
    }
    let order = version.compare(&wanted);
    let is_same = |numbers: usize| version.numbers[..numbers] == wanted.numbers[..numbers];
    Some(match operator {
        "" | "=" if count < 3 => is_same(count),
        "" | "=" => order.is_eq(),
        "!=" if count < 3 => !is_same(count),
        "!=" => order.is_ne(),
        ">" if count < 3 => order.is_gt() && !is_same(count),
        ">" => order.is_gt(),
        ">=" | "=>" => order.is_ge(),
        "<" => order.is_lt(),
        "<=" | "=<" if count < 3 => order.is_le() || is_same(count),
        "<=" | "=<" => order.is_le(),
        "~" | "~>" => order.is_ge() && is_same(count.min(2)),
        // Compatible: the first number that is not zero stays.
        "^" => {
            let first = wanted.numbers.iter().position(|number| *number != 0).unwrap_or(2);
            order.is_ge() && is_same((first + 1).min(count))
        }
        _ => return None,
    })
}
