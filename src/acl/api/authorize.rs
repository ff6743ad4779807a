//! `POST /v1/internal/acl/authorize`: what the caller may do, told without doing it.

use serde::Serialize;

use super::error::ApiError;
use super::json::Fields;
use super::request::{Ask, stated};
use super::response::Reply;
use super::state::Rooms;
use crate::acl::model::authorize::{Access, Resource};
use crate::acl::store::Freshness;

/// Most questions of one request.
const MOST: usize = 64;

/// One question, and what the answer repeats of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Question {
    resource: String,
    access: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    segment: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Ruling {
    #[serde(flatten)]
    question: Question,
    allow: bool,
}

fn question(mut fields: Fields) -> Result<Question, ApiError> {
    let namespace = stated(&mut fields)?;
    let mut text = |name| fields.text(name).map(Option::unwrap_or_default);
    let question =
        Question { resource: text("Resource")?, access: text("Access")?, segment: text("Segment")?, namespace };
    fields.finish()?;
    Ok(question)
}

impl Question {
    /// The access and the resource that are meant.
    fn meant(&self) -> Result<(Access, Resource<'_>), ApiError> {
        let access = match self.access.as_str() {
            "read" => Access::Read,
            "list" => Access::List,
            "write" => Access::Write,
            other => return Err(unknown("Access", other)),
        };
        let resource = Resource::named(&self.resource, &self.segment);
        Ok((access, resource.ok_or_else(|| unknown("Resource", &self.resource))?))
    }
}

fn unknown(field: &str, found: &str) -> ApiError {
    let found: String = found.chars().take(128).collect();
    ApiError::Invalid(format!("Invalid {field} {found:?}"))
}

/// No privilege is asked for: a caller may know what it may do. Each question may name a namespace.
pub(super) async fn authorize(rooms: &Rooms, ask: &mut Ask) -> Result<Reply, ApiError> {
    let questions = Fields::read_all(&ask.bytes().await?, "Authorization")?;
    if questions.len() > MOST {
        return Err(ApiError::Invalid(format!(
            "{} questions are too many, at most {MOST} are answered",
            questions.len()
        )));
    }
    let questions = questions.into_iter().map(question).collect::<Result<Vec<_>, _>>()?;
    let caller = ask.caller(rooms, Freshness::Linearizable).await?;
    let mut rulings = Vec::with_capacity(questions.len());
    for question in questions {
        let namespace = ask.namespace(&caller, question.namespace.as_deref())?;
        let (access, resource) = question.meant()?;
        let allow = caller.may(&resource, access, &namespace);
        rulings.push(Ruling { question, allow });
    }
    Ok(Reply::json(&rulings, ask.pretty())?)
}
