//! Pages of the ACL server: lists, records with what depends on them, and what a token may do.

mod kind;
mod list;
mod record;
mod explain;

use maud::{Markup, html};

pub(crate) use explain::{Explained, api_path as explain_path, page as explain_page, request_body};
pub(crate) use kind::AclKind;
pub(crate) use list::{find, page as list_page};
pub(crate) use record::page as record_page;

/// Builds the navigation between the kinds of records.
fn kinds(current: AclKind, namespace: &str) -> Markup {
    html! {
        nav.tabs.kinds aria-label="Kinds of records" {
            ul {
                @for kind in AclKind::ALL {
                    li { a href=(kind.list_link(namespace)) aria-current=[(kind == current).then_some("page")] { (kind.title()) } }
                }
            }
        }
    }
}
