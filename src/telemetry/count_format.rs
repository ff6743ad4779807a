//! Formats counts for people.

use std::fmt::Display;

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
