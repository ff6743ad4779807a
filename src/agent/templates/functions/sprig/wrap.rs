//! Long texts: lines of a length, and ellipses.

use crate::templates::engine::Value;
use crate::templates::functions::FunctionResult;
use crate::templates::functions::arguments::{Arguments, join};

/// Breaks a text at spaces, so that lines have at most this many bytes. A longer word is a line of its own.
pub(super) fn wrap(text: &str, length: usize, line_end: &str) -> FunctionResult {
    let length = length.max(1);
    let mut lines = Vec::new();
    let mut rest = text;
    while rest.len() > length {
        if let Some(trimmed) = rest.strip_prefix(' ') {
            rest = trimmed;
            continue;
        }
        let head = (0..=length.saturating_add(1).min(rest.len())).rev().find(|end| rest.is_char_boundary(*end));
        let head = &rest[..head.unwrap_or_default()];
        let Some(space) = head.rfind(' ').or_else(|| rest.find(' ')) else { break };
        lines.push(&rest[..space]);
        rest = &rest[space + 1..];
    }
    lines.push(rest);
    join(&lines, line_end)
}

/// Shortens a text to a width in bytes; what is left out after the end, or before the offset, becomes an ellipsis.
pub(super) fn abbreviate(args: &Arguments<'_>, text: &str, offset: usize, width: usize) -> FunctionResult {
    if text.len() <= width {
        return Ok(Value::text(text));
    }
    let cut =
        |range: std::ops::Range<usize>| text.get(range).ok_or_else(|| args.fail("the cut would split a character"));
    let kept = width - 3;
    let offset = offset.min(text.len()).min(text.len() - kept.min(text.len()));
    if offset <= 4 {
        return Ok(Value::text(format!("{}...", cut(0..kept)?)));
    }
    if offset + kept >= text.len() {
        return Ok(Value::text(format!("...{}", cut(text.len() - kept..text.len())?)));
    }
    let inner = kept.saturating_sub(3);
    Ok(Value::text(format!("...{}...", cut(offset..offset + inner)?)))
}
