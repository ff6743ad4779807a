//! Exact arithmetic on the decimal forms of floating-point numbers: 0.1 and 0.2 are 0.3.

use crate::templates::engine::format_float;

/// A decimal number: an integer, and how many of its digits are decimals.
#[derive(Clone, Copy)]
struct Decimal {
    digits: i128,
    scale: u32,
}

fn parse(number: f64) -> Option<Decimal> {
    let text = format_float(number, b'f', None, false);
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits = format!("{whole}{fraction}").parse().ok()?;
    Some(Decimal { digits, scale: u32::try_from(fraction.len()).ok()? })
}

impl Decimal {
    fn with_scale(self, scale: u32) -> Option<i128> {
        self.digits.checked_mul(10_i128.checked_pow(scale.checked_sub(self.scale)?)?)
    }

    fn to_float(self) -> Option<f64> {
        format!("{}e-{}", self.digits, self.scale).parse().ok()
    }
}

fn combine(left: f64, right: f64, sign: i128) -> Option<f64> {
    let (left, right) = (parse(left)?, parse(right)?);
    let scale = left.scale.max(right.scale);
    let digits = left.with_scale(scale)?.checked_add(right.with_scale(scale)?.checked_mul(sign)?)?;
    Decimal { digits, scale }.to_float()
}

pub(super) fn add(left: f64, right: f64) -> f64 {
    combine(left, right, 1).unwrap_or(left + right)
}

pub(super) fn subtract(left: f64, right: f64) -> f64 {
    combine(left, right, -1).unwrap_or(left - right)
}

pub(super) fn multiply(left: f64, right: f64) -> f64 {
    let exact = || {
        let (left, right) = (parse(left)?, parse(right)?);
        let digits = left.digits.checked_mul(right.digits)?;
        Decimal { digits, scale: left.scale.checked_add(right.scale)? }.to_float()
    };
    exact().unwrap_or(left * right)
}

/// Divides to 16 decimals; `None` for a division by zero.
pub(super) fn divide(left: f64, right: f64) -> Option<f64> {
    const DECIMALS: u32 = 16;
    let exact = || {
        let (left, right) = (parse(left)?, parse(right)?);
        let scale = left.scale.max(right.scale);
        let divisor = right.with_scale(scale)?;
        let dividend = left.with_scale(scale)?.checked_mul(10_i128.checked_pow(DECIMALS)?)?;
        let (quotient, rest) = (dividend.checked_div(divisor)?, dividend.checked_rem(divisor)?);
        let is_up = rest.unsigned_abs().checked_mul(2)? >= divisor.unsigned_abs();
        let step = if (dividend < 0) == (divisor < 0) { 1 } else { -1 };
        Decimal { digits: if is_up { quotient.checked_add(step)? } else { quotient }, scale: DECIMALS }.to_float()
    };
    (right.abs() > 0.0).then(|| exact().unwrap_or(left / right))
}
