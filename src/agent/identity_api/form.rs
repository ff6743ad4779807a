//! The forms: one table for their paths, their handlers and the audit.

use super::request::{FormError, FormRequest, FormResponse};
use super::{app_service, aws, oauth, token};

/// A form, in which the clients of an ecosystem ask for the machine's identity.
pub(super) struct Form {
    /// Last segment of its path, and its name in metrics, logs and the audit.
    pub(super) name: &'static str,
    /// Its parameters are a form in the body of a POST request; otherwise the query of a GET request.
    pub(super) is_post: bool,
    pub(super) respond: fn(&FormRequest<'_>) -> Result<FormResponse, FormError>,
    /// Writes an error as the form's clients show it.
    pub(super) write_error: fn(&FormError) -> FormResponse,
}

const FORMS: [Form; 4] = [
    Form { name: "app-service", is_post: false, respond: app_service::respond, write_error: app_service::write_error },
    Form { name: "aws", is_post: false, respond: aws::respond, write_error: aws::write_error },
    Form { name: "oauth", is_post: true, respond: oauth::respond, write_error: oauth::write_error },
    Form { name: "token", is_post: false, respond: token::respond, write_error: token::write_error },
];

/// Start of every path.
const BASE: &str = "/identity/v1/";

impl Form {
    /// Returns the form of a path, and the name of the identity in it.
    pub(super) fn find(path: &str) -> Option<(&'static Self, &str)> {
        let (identity, form) = path.strip_prefix(BASE)?.split_once('/')?;
        FORMS.iter().find(|known| known.name == form).map(|form| (form, identity))
    }
}

/// Returns the path of an identity's endpoint of this form.
pub fn endpoint_path(identity: &str, form: &str) -> String {
    format!("{BASE}{identity}/{form}")
}

/// Names the use of a path for the audit.
pub fn audited_route(path: &str) -> Option<&'static str> {
    Form::find(path).map(|_| "identity")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_an_identity_and_a_form() {
        let check = |path: &str, expected: Option<(&str, &str)>| {
            assert_eq!(Form::find(path).map(|(form, identity)| (identity, form.name)), expected, "{path}");
        };
        check(&endpoint_path("azure", "app-service"), Some(("azure", "app-service")));
        check("/identity/v1/azure/other", None);
        check("/identity/v1/azure", None);
        check("/identity/v1/azure/app-service/", None);
        check("/identity/v1/a/b/app-service", None);
        check("/agent/v1/token", None);
    }
}
