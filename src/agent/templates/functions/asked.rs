//! Functions of what is known outside the template: secrets, files, variables, the time.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::SystemTime;

use gotmpl::{FuncMap, TemplateError, Value};
use secrecy::ExposeSecret as _;
use serde_json::Value as Json;
use time::OffsetDateTime;

use super::Answer;
use super::arguments::Arguments;
use crate::agent::secrets::{How, SecretAnswer, SecretRequest};
use crate::agent::templates::Text;
use crate::agent::templates::round::{Known, Need, Shared};
use crate::agent::templates::value::{list, map, of_json, text};
use crate::words::rfc3339;

pub(super) const NAMES: [&str; 8] =
    ["env", "envOrDefault", "file", "mustEnv", "pkiCert", "secret", "secrets", "timestamp"];

type Function = dyn Fn(&[Value]) -> Answer + Send + Sync;

/// Adds the functions for one rendering.
pub(super) fn add(all: &mut FuncMap, source: &Text, round: &Shared) {
    let mut function = |name: &'static str, answer: Box<Function>| {
        all.insert(name.to_owned(), Arc::new(answer));
    };
    let shared = round.clone();
    function(
        "secret",
        Box::new(move |args| {
            let request = request("secret", args)?;
            Ok(known(&shared, request)?.map_or(Value::Nil, |answer| whole(&answer)))
        }),
    );
    let shared = round.clone();
    function(
        "secrets",
        Box::new(move |args| {
            let args = Arguments::exactly("secrets", args, 1)?;
            let request = SecretRequest { path: path(&args)?, how: How::List };
            let answer = known(&shared, request)?;
            let names = answer.as_ref().and_then(|answer| answer.data.whole().get("keys").map(of_json));
            Ok(names.unwrap_or_else(|| list([])))
        }),
    );
    let shared = round.clone();
    function(
        "pkiCert",
        Box::new(move |args| {
            let mut request = request("pkiCert", args)?;
            if request.how == How::Read {
                request.how = How::Write(BTreeMap::new());
            }
            Ok(known(&shared, request)?.map_or(Value::Nil, |answer| certificate(&answer)))
        }),
    );
    let variables = source.variables.clone();
    let variable = move |name: &str| variables.get(name).map(|value| text(value.expose_secret()));
    for name in ["env", "mustEnv"] {
        let variable = variable.clone();
        function(
            name,
            Box::new(move |args| {
                let args = Arguments::exactly(name, args, 1)?;
                let wanted = args.text(0)?;
                variable(wanted).ok_or_else(|| {
                args.fail(&format!(
                    "the variable {wanted} is not set or not passed; name it in the template's pass, or write envOrDefault"
                ))
            })
            }),
        );
    }
    function(
        "envOrDefault",
        Box::new(move |args| {
            let args = Arguments::exactly("envOrDefault", args, 2)?;
            Ok(variable(args.text(0)?).unwrap_or(text(args.text(1)?)))
        }),
    );
    let (shared, folders) = (round.clone(), source.folders.clone());
    function(
        "file",
        Box::new(move |args| {
            let args = Arguments::exactly("file", args, 1)?;
            let path = Path::new(args.text(0)?);
            let plain = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
            if !plain || !folders.iter().any(|folder| path.starts_with(folder)) {
                return Err(args
                    .fail("the path is below none of the template's read_folders, or not absolute, or has .. in it"));
            }
            match shared.known(Need::File(path.to_owned()))? {
                Some(Known::Text(its)) => Ok(text(its.expose_secret())),
                _ => Ok(Value::Nil),
            }
        }),
    );
    let shared = round.clone();
    function(
        "timestamp",
        Box::new(move |args| {
            let args = Arguments::between("timestamp", args, 0, 1)?;
            let now = shared.lock().now;
            Ok(text(if args.len() == 0 { rfc3339(now) } else { by_layout(now, args.text(0)?) }))
        }),
    );
}

/// A path and fields to write: `"PATH" "NAME=VALUE" ...`. With no field it is a read.
fn request(name: &str, args: &[Value]) -> Result<SecretRequest, TemplateError> {
    let args = Arguments::between(name, args, 1, usize::MAX)?;
    let mut fields = BTreeMap::new();
    for at in 1..args.len() {
        let field = args.shown(at)?;
        let (field, value) = field.split_once('=').ok_or_else(|| args.wrong(at, "a text NAME=VALUE"))?;
        fields.insert(field.to_owned(), value.to_owned());
    }
    let how = if fields.is_empty() { How::Read } else { How::Write(fields) };
    Ok(SecretRequest { path: path(&args)?, how })
}

/// A path of the server: what could lead elsewhere is refused.
fn path(args: &Arguments<'_>) -> Result<String, TemplateError> {
    let path = args.text(0)?.trim_start_matches('/').trim_end_matches('/');
    let (only, _) = path.split_once('?').unwrap_or((path, ""));
    let plain = !only.is_empty()
        && only.split('/').all(|part| !["", ".", ".."].contains(&part))
        && path.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'#' | b'\\' | b'%'));
    if plain { Ok(path.to_owned()) } else { Err(args.fail("argument 1 is no path of a secret")) }
}

fn known(round: &Shared, request: SecretRequest) -> Result<Option<Arc<SecretAnswer>>, TemplateError> {
    match round.known(Need::Secret(request))? {
        Some(Known::Secret(answer)) => Ok(Some(answer)),
        _ => Ok(None),
    }
}

/// The whole answer, named as Go's client names it.
fn whole(answer: &SecretAnswer) -> Value {
    let data = map(answer.data.whole().iter().map(|(name, value)| (name, of_json(value))));
    let lease = answer.lease.as_ref();
    let seconds = lease.map_or(0, |lease| lease.lease.ttl.as_secs());
    map([
        ("Data", data),
        ("LeaseID", text(lease.map_or("", |lease| &lease.id))),
        ("LeaseDuration", Value::Int(i64::try_from(seconds).unwrap_or(i64::MAX))),
        ("Renewable", Value::Bool(lease.is_some_and(|lease| lease.lease.renewable))),
    ])
}

/// A certificate with its key, named as consul-template names them.
fn certificate(answer: &SecretAnswer) -> Value {
    let data = answer.data.whole();
    let field = |name: &str| data.get(name).and_then(Json::as_str).map_or(Value::Nil, text);
    let ca = match field("issuing_ca") {
        Value::Nil => field("ca"),
        ca => ca,
    };
    let parts = [("Cert", field("certificate")), ("Key", field("private_key")), ("CA", ca)];
    let chain = data.get("ca_chain").map_or_else(|| list([]), of_json);
    map(parts.clone().into_iter().chain([("CAChain", chain), ("Data", map(parts))]))
}

/// A time by a layout of Go's: the moment 2006-01-02 15:04:05 written as the time is wanted, in UTC. `unix` is seconds.
fn by_layout(now: SystemTime, layout: &str) -> String {
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    if layout == "unix" {
        return seconds.to_string();
    }
    let time = i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let time = time.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (month, day) = (time.month().to_string(), time.weekday().to_string());
    let hour12 = (time.hour() + 11) % 12 + 1;
    // Longer forms stand before those that they begin with.
    let parts = [
        ("2006", time.year().to_string()),
        ("January", month.clone()),
        ("Jan", month.chars().take(3).collect()),
        ("Monday", day.clone()),
        ("Mon", day.chars().take(3).collect()),
        ("MST", "UTC".to_owned()),
        ("Z07:00", "Z".to_owned()),
        ("-07:00", "+00:00".to_owned()),
        ("-0700", "+0000".to_owned()),
        ("01", format!("{:02}", u8::from(time.month()))),
        ("02", format!("{:02}", time.day())),
        ("03", format!("{hour12:02}")),
        ("04", format!("{:02}", time.minute())),
        ("05", format!("{:02}", time.second())),
        ("06", format!("{:02}", time.year() % 100)),
        ("15", format!("{:02}", time.hour())),
        ("PM", if time.hour() < 12 { "AM" } else { "PM" }.to_owned()),
    ];
    let (mut rest, mut written) = (layout, String::new());
    while let Some(first) = rest.chars().next() {
        if let Some((part, value)) = parts.iter().find(|(part, _)| rest.starts_with(part)) {
            written.push_str(value);
            rest = &rest[part.len()..];
        } else {
            written.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_is_written_as_its_layout_shows() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let check = |layout, wanted: &str| assert_eq!(by_layout(now, layout), wanted);
        check("unix", "1700000000");
        check("2006-01-02T15:04:05Z07:00", "2023-11-14T22:13:20Z");
        check("Mon, 02 Jan 2006 03:04 PM MST", "Tue, 14 Nov 2023 10:13 PM UTC");
        check("Monday, January 06 ü", "Tuesday, November 23 ü");
    }
}
