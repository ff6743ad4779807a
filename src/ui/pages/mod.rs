//! The pages: each a function from what a part has answered to HTML. Pure.

mod layout;
mod times;
mod timeline;
pub(super) mod sign_in;
pub(super) mod agent;
pub(super) mod acl;
pub(super) mod gateway;
pub(super) mod history;

pub(super) use layout::{Frame, error_page};
