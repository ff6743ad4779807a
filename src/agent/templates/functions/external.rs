//! Functions that read secrets, files, variables and the time.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::sync::Arc;

use keyward_machine::secret_string::SecretString;
use keyward_telemetry::time_format::format_rfc3339;
use serde_json::Value as Json;

use super::arguments::Arguments;
use super::go_time::format_time;
use super::inputs::{ExternalFunction, Inputs};
use super::pki_certificate::certificate_value;
use super::write_file;
use super::{FunctionResult, MANY};
use crate::secrets::{SecretOp, SecretRequest, SecretResponse};
use crate::templates::engine::{Failure, MapType, Value};
use crate::templates::evaluation::{Dependency, Resolved};
use crate::templates::value::from_answer;

pub(super) const FUNCTIONS: &[ExternalFunction] = &[
    ("env", 1, 1, variable),
    ("envOrDefault", 2, 2, |inputs, args| {
        let value = inputs.source.variables.get(args.text(0)?).map(SecretString::expose_secret);
        Ok(Value::text(value.unwrap_or(args.text(1)?)))
    }),
    ("file", 1, 1, file),
    ("mustEnv", 1, 1, variable),
    ("pkiCert", 1, MANY, |inputs, args| {
        let mut request = request(args)?;
        if request.op == SecretOp::Read {
            request.op = SecretOp::Write(BTreeMap::new());
        }
        let Some(response) = secret(inputs, request)? else { return Ok(Value::Nil) };
        certificate_value(&response).map_err(|problem| args.fail(problem))
    }),
    ("secret", 1, MANY, |inputs, args| {
        Ok(secret(inputs, request(args)?)?.map_or(Value::Nil, |response| secret_value(&response)))
    }),
    ("secrets", 1, 1, |inputs, args| {
        let request = SecretRequest { path: path(args)?, op: SecretOp::List };
        let response = secret(inputs, request)?;
        let names = response.as_ref().and_then(|response| response.data.as_map().get("keys").and_then(Json::as_array));
        Ok(Value::texts(names.into_iter().flatten().filter_map(Json::as_str)))
    }),
    (write_file::NAME, 5, 6, write_file::record),
    ("timestamp", 0, 1, |inputs, args| {
        let now = inputs.evaluation.now;
        Ok(Value::text(if args.len() == 0 { format_rfc3339(now) } else { format_time(now, args.text(0)?) }))
    }),
];

fn variable(inputs: &mut Inputs<'_>, args: &Arguments<'_>) -> FunctionResult {
    let value = inputs.source.variables.get(args.text(0)?).map(|value| Value::text(value.expose_secret()));
    value.ok_or_else(|| {
        args.fail("the variable is not set or not passed; name it in the template's pass_env, or write envOrDefault")
    })
}

fn file(inputs: &mut Inputs<'_>, args: &Arguments<'_>) -> FunctionResult {
    let path = Path::new(args.text(0)?);
    let is_plain = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
    if !is_plain || !inputs.source.folders.iter().any(|folder| path.starts_with(folder)) {
        return Err(
            args.fail("the path is below none of the template's read_folders, or not absolute, or has .. in it")
        );
    }
    match inputs.evaluation.resolve(Dependency::File(path.to_owned()))? {
        Some(Resolved::Text(its)) => Ok(Value::text(its.expose_secret())),
        _ => Ok(Value::Nil),
    }
}

/// Parses a path and fields to write: `"PATH" "NAME=VALUE" ...`. Without fields, the request is a read.
fn request(args: &Arguments<'_>) -> Result<SecretRequest, Failure> {
    let mut fields = BTreeMap::new();
    for at in 1..args.len() {
        let field = args.format_argument(at)?;
        let (field, value) = field.split_once('=').ok_or_else(|| args.type_error(at, "a string NAME=VALUE"))?;
        fields.insert(field.to_owned(), value.to_owned());
    }
    let op = if fields.is_empty() { SecretOp::Read } else { SecretOp::Write(fields) };
    let path = path(args)?;
    if op != SecretOp::Read && makes_token(&path) {
        return Err(args.fail(MAKES_TOKEN));
    }
    Ok(SecretRequest { path, op })
}

/// Parses a path of the server, which is encoded when it is sent. Refuses paths that could lead elsewhere.
fn path(args: &Arguments<'_>) -> Result<String, Failure> {
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
    let (path, _) = path.split_once('?').unwrap_or((path, ""));
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    (0..segments.len()).any(|from| match &segments[from..] {
        ["auth", "token", call, ..] => matches!(*call, "create" | "create-orphan"),
        ["auth", rest @ ..] => rest.contains(&"login"),
        _ => false,
    })
}

fn secret(inputs: &mut Inputs<'_>, request: SecretRequest) -> Result<Option<Arc<SecretResponse>>, Failure> {
    match inputs.evaluation.resolve(Dependency::Secret(request))? {
        Some(Resolved::Secret(response)) => Ok(Some(response)),
        _ => Ok(None),
    }
}

/// Converts a secret, with the field names of Vault's Go client.
fn secret_value(response: &SecretResponse) -> Value {
    let data = Value::map(response.data.as_map().iter().map(|(name, value)| (name.as_str(), from_answer(value))));
    let lease = response.lease.as_ref();
    let duration = lease.map(|lease| lease.lease.ttl).or(response.suggested_ttl).unwrap_or_default();
    let fields = [
        ("Data", data),
        ("LeaseID", Value::text(lease.map_or("", |lease| &lease.id))),
        ("LeaseDuration", Value::Int(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX))),
        ("Renewable", Value::Bool(lease.is_some_and(|lease| lease.lease.renewable))),
    ];
    Value::map_of(MapType::Struct("*dependency.Secret"), fields)
}
