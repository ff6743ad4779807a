//! The emulated secrets server: login, look-up, renewal, revocation, wrapping.
