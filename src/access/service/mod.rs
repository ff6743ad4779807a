//! What the service does: keeps tokens, and makes them for those who prove a cloud identity. It knows no HTTP.

pub mod keys;
pub mod login;
pub mod policies;
pub mod seal;
pub mod tokens;
