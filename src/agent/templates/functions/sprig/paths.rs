//! Paths and URLs.

use crate::templates::engine::Value;
use crate::templates::functions::arguments::Arguments;
use crate::templates::functions::{FunctionResult, NamedFunction};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("sprig_base", 1, 1, base),
    ("sprig_clean", 1, 1, |args| Ok(Value::text(clean(args.text(0)?)))),
    ("sprig_dir", 1, 1, dir),
    ("sprig_ext", 1, 1, ext),
    ("sprig_isAbs", 1, 1, |args| Ok(Value::Bool(args.text(0)?.starts_with('/')))),
    ("sprig_osBase", 1, 1, base),
    ("sprig_osClean", 1, 1, |args| Ok(Value::text(clean(args.text(0)?)))),
    ("sprig_osDir", 1, 1, dir),
    ("sprig_osExt", 1, 1, ext),
    ("sprig_osIsAbs", 1, 1, |args| Ok(Value::Bool(args.text(0)?.starts_with('/')))),
    ("sprig_urlJoin", 1, 1, join_url),
    ("sprig_urlParse", 1, 1, |args| Ok(parse_url(args.text(0)?))),
];

fn base(args: &Arguments<'_>) -> FunctionResult {
    let path = args.text(0)?;
    let trimmed = path.trim_end_matches('/');
    Ok(Value::text(match (path, trimmed) {
        ("", _) => ".",
        (_, "") => "/",
        _ => trimmed.rsplit('/').next().unwrap_or(trimmed),
    }))
}

fn dir(args: &Arguments<'_>) -> FunctionResult {
    let path = args.text(0)?;
    let folder = path.rfind('/').map_or("", |slash| &path[..=slash]);
    Ok(Value::text(clean(folder)))
}

fn ext(args: &Arguments<'_>) -> FunctionResult {
    let name = args.text(0)?.rsplit('/').next().unwrap_or_default();
    Ok(Value::text(name.rfind('.').map_or("", |dot| &name[dot..])))
}

/// Removes `.`, `..` and repeated slashes from a path, without looking at files.
fn clean(path: &str) -> String {
    let is_absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if is_absolute => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (is_absolute, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

/// Splits a URL into its parts, by the names that `urlJoin` takes.
fn parse_url(url: &str) -> Value {
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let (scheme, rest) = rest.split_once(':').filter(|(scheme, _)| is_scheme(scheme)).unwrap_or(("", rest));
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    let is_opaque = !scheme.is_empty() && !rest.starts_with('/') && !rest.is_empty();
    let (userinfo, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let hostname = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    Value::map(
        [
            ("scheme", scheme.to_ascii_lowercase().as_str()),
            ("userinfo", userinfo),
            ("host", host),
            ("hostname", hostname),
            ("path", if is_opaque { "" } else { path }),
            ("opaque", if is_opaque { path } else { "" }),
            ("query", query),
            ("fragment", fragment),
        ]
        .map(|(name, value)| (name, Value::text(value))),
    )
}

fn join_url(args: &Arguments<'_>) -> FunctionResult {
    let parts = args.map(0)?;
    let part = |name: &str| match parts.get(name) {
        Some(Value::Text(text)) => text.to_string(),
        _ => String::new(),
    };
    let mut url = String::new();
    if !part("scheme").is_empty() {
        url.push_str(&part("scheme"));
        url.push(':');
    }
    if part("opaque").is_empty() {
        if !part("scheme").is_empty() || !part("host").is_empty() || !part("userinfo").is_empty() {
            url.push_str("//");
        }
        if !part("userinfo").is_empty() {
            url.push_str(&part("userinfo"));
            url.push('@');
        }
        url.push_str(&part("host"));
        if !part("path").is_empty() && !part("path").starts_with('/') && !part("host").is_empty() {
            url.push('/');
        }
        url.push_str(&part("path"));
    } else {
        url.push_str(&part("opaque"));
    }
    for (mark, name) in [('?', "query"), ('#', "fragment")] {
        if !part(name).is_empty() {
            url.push(mark);
            url.push_str(&part(name));
        }
    }
    Ok(Value::text(url))
}
