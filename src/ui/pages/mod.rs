//! The pages: each a function from what a part has answered to HTML. Pure.

mod text;
mod layout;
mod times;
mod timeline;
mod problems;
mod certificates;
mod events;
pub(super) mod sign_in;
pub(super) mod agent;
pub(super) mod codes;
pub(super) mod search;
pub(super) mod acl;
pub(super) mod gateway;
pub(super) mod history;

pub(super) use events::EventFilter;
pub(super) use layout::{Frame, error_page};
