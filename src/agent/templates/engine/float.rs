//! Floating-point numbers as Go's package `strconv` writes them.

/// Formats a number by the verb `e`, `f` or `g`; without a precision, with the fewest digits that give the same number again.
/// `keep_zeros` is the flag `#` of `g`.
pub(in crate::templates) fn format_float(number: f64, verb: u8, precision: Option<usize>, keep_zeros: bool) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    let sign = if number.is_sign_negative() { "-" } else { "" };
    let number = number.abs();
    if number.is_infinite() {
        return if sign.is_empty() { "+Inf".to_owned() } else { "-Inf".to_owned() };
    }
    let body = match (verb.to_ascii_lowercase(), precision) {
        (b'e', None) => with_exponent(&format!("{number:e}")),
        (b'e', Some(precision)) => with_exponent(&format!("{number:.precision$e}")),
        (b'f', None) => format!("{number}"),
        (b'f', Some(precision)) => format!("{number:.precision$}"),
        (_, precision) => format_general(number, precision, keep_zeros),
    };
    let body = if verb.is_ascii_uppercase() { body.to_ascii_uppercase() } else { body };
    format!("{sign}{body}")
}

/// Writes the exponent with its sign and at least two digits.
fn with_exponent(number: &str) -> String {
    let Some((mantissa, exponent)) = number.split_once('e') else { return number.to_owned() };
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

fn format_general(number: f64, precision: Option<usize>, keep_zeros: bool) -> String {
    let significant = precision.unwrap_or(6).max(1);
    let written = match precision {
        None if !keep_zeros => format!("{number:e}"),
        _ => format!("{number:.*e}", significant - 1),
    };
    let Some((mantissa, exponent)) = written.split_once('e') else { return written };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let trimmed = if keep_zeros || !mantissa.contains('.') {
        mantissa
    } else {
        mantissa.trim_end_matches('0').trim_end_matches('.')
    };
    let digits = trimmed.len() - usize::from(trimmed.contains('.'));
    let bound = i32::try_from(significant).unwrap_or(i32::MAX);
    if exponent < -4 || exponent >= bound {
        return with_exponent(&format!("{trimmed}e{exponent}"));
    }
    let decimals = i32::try_from(digits).unwrap_or(i32::MAX) - 1 - exponent;
    format!("{number:.*}", usize::try_from(decimals).unwrap_or_default())
}

/// Formats a number as Go's JSON does.
pub(in crate::templates) fn format_json(number: f64) -> String {
    let absolute = number.abs();
    if absolute > 0.0 && !(1e-6..1e21).contains(&absolute) {
        // An exponent of one digit stays one: 1e-9.
        let written = format_float(number, b'e', None, false);
        return match written.split_once("e-0") {
            Some((mantissa, digit)) => format!("{mantissa}e-{digit}"),
            None => written,
        };
    }
    format_float(number, b'f', None, false)
}
