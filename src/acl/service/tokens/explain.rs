//! Explanations of what a token may do.

use super::create::Tokens;
use crate::model::authorize::{Access, Explanation, Grants, Resource};
use crate::model::names::NamespaceName;
use crate::model::token::TokenRecord;
use crate::service::error::ServiceError;
use crate::store::Freshness;

/// Rules of a token, loaded to explain decisions.
#[derive(Debug)]
pub(crate) struct ExplainedToken {
    grants: Grants,
}

impl Tokens<'_> {
    /// Loads the rules of a token.
    pub(crate) async fn explain(
        self,
        token: &TokenRecord,
        freshness: Freshness,
    ) -> Result<ExplainedToken, ServiceError> {
        Ok(ExplainedToken { grants: self.service.authenticator().load_grants(token, freshness).await? })
    }
}

impl ExplainedToken {
    /// Decides an access to a resource in a namespace, and says why.
    pub(crate) fn explain(&self, resource: &Resource<'_>, access: Access, namespace: &NamespaceName) -> Explanation {
        self.grants.explain(resource, access, &namespace.key())
    }
}
