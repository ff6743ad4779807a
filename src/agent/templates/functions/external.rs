//! Functions that read secrets, files, variables and the time.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::sync::Arc;

use gotmpl::{FuncMap, TemplateError as EngineError, Value};
use keyward_telemetry::time_format::format_rfc3339;

use super::FunctionResult;
use super::arguments::Arguments;
use super::go_time::format_time;
use super::pki_certificate::certificate_value;
use crate::secrets::{SecretOp, SecretRequest, SecretResponse};
use crate::templates::TemplateSource;
use crate::templates::evaluation::{Dependency, Resolved, SharedEvaluation};
use crate::templates::value::{from_json, list, map, text};

pub(super) const NAMES: [&str; 8] =
    ["env", "envOrDefault", "file", "mustEnv", "pkiCert", "secret", "secrets", "timestamp"];

type Function = dyn Fn(&[Value]) -> FunctionResult + Send + Sync;

/// Adds the functions, bound to one rendering.
pub(super) fn add(all: &mut FuncMap, source: &TemplateSource, evaluation: &SharedEvaluation) {
    add_secrets(all, evaluation);
    add_inputs(all, source, evaluation);
}

fn insert(all: &mut FuncMap, name: &str, function: Box<Function>) {
    all.insert(name.to_owned(), Arc::new(function));
}

/// Adds the functions that call the server.
fn add_secrets(all: &mut FuncMap, evaluation: &SharedEvaluation) {
    let shared = evaluation.clone();
    insert(
        all,
        "secret",
        Box::new(move |args| {
            let request = request("secret", args)?;
            Ok(secret(&shared, request)?.map_or(Value::Nil, |response| secret_value(&response)))
        }),
    );
    let shared = evaluation.clone();
    insert(
        all,
        "secrets",
        Box::new(move |args| {
            let args = Arguments::exactly("secrets", args, 1)?;
            let request = SecretRequest { path: path(&args)?, op: SecretOp::List };
            let response = secret(&shared, request)?;
            let names = response.as_ref().and_then(|response| response.data.as_map().get("keys").map(from_json));
            Ok(names.unwrap_or_else(|| list([])))
        }),
    );
    let shared = evaluation.clone();
    insert(
        all,
        "pkiCert",
        Box::new(move |args| {
            let mut request = request("pkiCert", args)?;
            if request.op == SecretOp::Read {
                request.op = SecretOp::Write(BTreeMap::new());
            }
            let Some(response) = secret(&shared, request)? else { return Ok(Value::Nil) };
            certificate_value(&response).map_err(|error| EngineError::Exec(format!("pkiCert: {error}")))
        }),
    );
}

/// Adds the functions that read variables, files and the time.
fn add_inputs(all: &mut FuncMap, source: &TemplateSource, evaluation: &SharedEvaluation) {
    let variables = source.variables.clone();
    let variable = move |name: &str| variables.get(name).map(|value| text(value.expose_secret()));
    for name in ["env", "mustEnv"] {
        let variable = variable.clone();
        insert(
            all,
            name,
            Box::new(move |args| {
                let args = Arguments::exactly(name, args, 1)?;
                let requested = args.text(0)?;
                variable(requested).ok_or_else(|| {
                args.fail(&format!(
                    "the variable {requested} is not set or not passed; name it in the template's pass_env, or write envOrDefault"
                ))
            })
            }),
        );
    }
    insert(
        all,
        "envOrDefault",
        Box::new(move |args| {
            let args = Arguments::exactly("envOrDefault", args, 2)?;
            Ok(variable(args.text(0)?).unwrap_or(text(args.text(1)?)))
        }),
    );
    let shared = evaluation.clone();
    let folders = source.folders.clone();
    insert(
        all,
        "file",
        Box::new(move |args| {
            let args = Arguments::exactly("file", args, 1)?;
            let path = Path::new(args.text(0)?);
            let is_plain = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
            if !is_plain || !folders.iter().any(|folder| path.starts_with(folder)) {
                return Err(args
                    .fail("the path is below none of the template's read_folders, or not absolute, or has .. in it"));
            }
            match shared.resolve(Dependency::File(path.to_owned()))? {
                Some(Resolved::Text(its)) => Ok(text(its.expose_secret())),
                _ => Ok(Value::Nil),
            }
        }),
    );
    let shared = evaluation.clone();
    insert(
        all,
        "timestamp",
        Box::new(move |args| {
            let args = Arguments::between("timestamp", args, 0, 1)?;
            let now = shared.lock().now;
            Ok(text(if args.len() == 0 { format_rfc3339(now) } else { format_time(now, args.text(0)?) }))
        }),
    );
}

/// Parses a path and fields to write: `"PATH" "NAME=VALUE" ...`. Without fields, the request is a read.
fn request(name: &str, args: &[Value]) -> Result<SecretRequest, EngineError> {
    let args = Arguments::between(name, args, 1, usize::MAX)?;
    let mut fields = BTreeMap::new();
    for at in 1..args.len() {
        let field = args.format_argument(at)?;
        let (field, value) = field.split_once('=').ok_or_else(|| args.type_error(at, "a string NAME=VALUE"))?;
        fields.insert(field.to_owned(), value.to_owned());
    }
    let op = if fields.is_empty() { SecretOp::Read } else { SecretOp::Write(fields) };
    let path = path(&args)?;
    if op != SecretOp::Read && makes_token(&path) {
        return Err(args.fail(MAKES_TOKEN));
    }
    Ok(SecretRequest { path, op })
}

/// Parses a path of the server, which is encoded when it is sent. Refuses paths that could lead elsewhere.
fn path(args: &Arguments<'_>) -> Result<String, EngineError> {
    let path = args.text(0)?.trim_start_matches('/').trim_end_matches('/');
    let (path_only, _) = path.split_once('?').unwrap_or((path, ""));
    let error = if path_only.is_empty() {
        "argument 1 is not the path of a secret: it is empty"
    } else if path_only.split('/').any(|part| ["", ".", ".."].contains(&part)) {
        "argument 1 is not the path of a secret: it has an empty segment, or . or .."
    } else if path_only.contains(['#', '\\', '%']) {
        "argument 1 is not the path of a secret: it contains #, \\ or %; write it without encoding"
    } else if path.chars().any(char::is_control) {
        "argument 1 is not the path of a secret: it contains a control character"
    } else {
        return Ok(path.to_owned());
    };
    Err(args.fail(error))
}

/// Reason why a write is not sent: each one would make another token.
pub(super) const MAKES_TOKEN: &str =
    "this path makes a token, which no template can renew or revoke; use [sink.NAME.derived_token] for tokens";

/// Returns true for a path at which a write makes a token: a login, or the creation of a token. A path may begin with a namespace.
pub(super) fn makes_token(path: &str) -> bool {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    (0..segments.len()).any(|from| match &segments[from..] {
        ["auth", "token", call, ..] => matches!(*call, "create" | "create-orphan"),
        ["auth", _, rest @ ..] => rest.contains(&"login"),
        _ => false,
    })
}

fn secret(evaluation: &SharedEvaluation, request: SecretRequest) -> Result<Option<Arc<SecretResponse>>, EngineError> {
    match evaluation.resolve(Dependency::Secret(request))? {
        Some(Resolved::Secret(response)) => Ok(Some(response)),
        _ => Ok(None),
    }
}

/// Converts a secret, with the field names of Vault's Go client.
fn secret_value(response: &SecretResponse) -> Value {
    let data = map(response.data.as_map().iter().map(|(name, value)| (name, from_json(value))));
    let lease = response.lease.as_ref();
    let duration = lease.map(|lease| lease.lease.ttl).or(response.suggested_ttl).unwrap_or_default();
    map([
        ("Data", data),
        ("LeaseID", text(lease.map_or("", |lease| &lease.id))),
        ("LeaseDuration", Value::Int(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX))),
        ("Renewable", Value::Bool(lease.is_some_and(|lease| lease.lease.renewable))),
    ])
}
