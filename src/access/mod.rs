//! The access-control service: tokens, roles, namespaces, and the login that turns a cloud identity into a token.
