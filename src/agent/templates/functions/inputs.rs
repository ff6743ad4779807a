//! Inputs of functions that need more than their arguments.

use super::FunctionResult;
use super::arguments::Arguments;
use crate::templates::TemplateSource;
use crate::templates::evaluation::Evaluation;

/// The template, and the results that the functions of one rendering read and record.
pub(super) struct Inputs<'a> {
    pub(super) source: &'a TemplateSource,
    pub(super) evaluation: &'a mut Evaluation,
}

/// Name, smallest and largest number of arguments, and function.
pub(super) type ExternalFunction = (&'static str, usize, usize, fn(&mut Inputs<'_>, &Arguments<'_>) -> FunctionResult);
