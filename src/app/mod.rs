//! The composition root: `Options` -> build (binds) -> run (serves) -> stop; reload.
