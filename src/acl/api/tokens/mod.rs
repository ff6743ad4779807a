//! Handlers of `/v1/acl/token` and `/v1/acl/tokens`.

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
use super::request::ApiRequest;
use crate::model::id::Id;

/// Parses the accessor in the path.
fn accessor_from_path(request: &ApiRequest) -> Result<Id, ApiError> {
    request.id_from_path_as("token", "AccessorID")
}
