//! The file: its shape, what is wrong with it, and the `Options` that it turns into.
