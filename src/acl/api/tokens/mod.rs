//! `/v1/acl/token...`.

mod view;
mod draft;
mod change;
mod expanded;
mod read;
mod list;

pub(super) use change::{clone, create, delete, update};
pub(super) use list::list;
pub(super) use read::{read, read_self};
pub(super) use view::{TokenView, view};

use super::error::ApiError;
use super::request::Ask;
use crate::acl::model::id::Id;

/// The accessor that the path names.
fn path_id(ask: &Ask) -> Result<Id, ApiError> {
    ask.id_called("token", "AccessorID")
}
