//! Who asks, and in which namespace: what most operations begin and end with.

use std::fmt::Display;
use std::sync::Arc;

use serde::Serialize;

use super::error::ApiError;
use super::request::Ask;
use super::response::{Changed, Done, Reply};
use super::state::Rooms;
use crate::acl::model::names::NamespaceName;
use crate::acl::service::caller::Caller;
use crate::acl::store::Freshness;

/// The caller of a request, and the namespace that it means.
#[derive(Debug)]
pub(super) struct Here {
    pub(super) caller: Arc<Caller>,
    pub(super) namespace: NamespaceName,
}

impl Here {
    /// Who asks to see something.
    ///
    /// # Errors
    /// The secret opens nothing, or the namespace is no name.
    pub(super) async fn reading(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Self, ApiError> {
        let caller = ask.caller(rooms, freshness).await?;
        let namespace = ask.namespace(&caller, None)?;
        Ok(Self { caller, namespace })
    }

    /// Who asks to change something; `stated` is the namespace of the body.
    ///
    /// # Errors
    /// The secret opens nothing, or the namespace is no name.
    pub(super) async fn writing(rooms: &Rooms, ask: &Ask, stated: Option<&str>) -> Result<Self, ApiError> {
        let caller = ask.caller(rooms, Freshness::Linearizable).await?;
        let namespace = ask.namespace(&caller, stated)?;
        Ok(Self { caller, namespace })
    }

    /// The answer to a change: how `what` is now.
    ///
    /// # Errors
    /// The view cannot be written as JSON.
    pub(super) fn changed(self, ask: &Ask, view: &impl Serialize, what: impl Display) -> Result<Changed, ApiError> {
        let reply = Reply::json(view, ask.pretty())?;
        Ok(Changed { reply, by: self.caller.accessor(), namespace: self.namespace, what: what.to_string() })
    }

    /// The answer to a deletion: whether there was something to delete.
    ///
    /// # Errors
    /// None that is known of: JSON has `true` and `false`.
    pub(super) fn deleted(self, ask: &Ask, deleted: bool, what: impl Display) -> Result<Done, ApiError> {
        let changed = self.changed(ask, &deleted, what)?;
        Ok(if deleted { Done::Changed(changed) } else { Done::Nothing(changed.reply) })
    }
}
