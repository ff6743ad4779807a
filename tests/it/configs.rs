//! Configuration files: the examples are clean, and every kind of mistake is told in the words that stand here.

mod examples;
