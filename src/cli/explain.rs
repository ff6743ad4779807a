//! `keyward explain`: cause and remedy of an error code.

use clap::Args;
use keyward_telemetry::error_code::{ErrorCode, Explanation};

use super::output::{json, table};
use super::{Exit, Format, print_line};

/// Explain an error code.
#[derive(Debug, Args)]
pub(super) struct Explain {
    /// Code of the error, such as KW-1003 [default: list all]
    code: Option<ErrorCode>,
    /// Output format; json is an array
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: Format,
}

impl Explain {
    pub(super) fn run(self) -> Exit {
        let codes = self.code.map_or_else(|| ErrorCode::ALL.to_vec(), |code| vec![code]);
        let explanations: Vec<Explanation> = codes.into_iter().map(ErrorCode::explain).collect();
        match (self.format, self.code, explanations.as_slice()) {
            (Format::Json, ..) => json(&explanations),
            (Format::Text, Some(_), [one]) => {
                print_line(&format!("{}: {}", one.code, one.title));
                print_line(&format!("cause:  {}", one.cause));
                print_line(&format!("remedy: {}", one.remedy));
            }
            (Format::Text, ..) => {
                table(["Code", "Error"], explanations.iter().map(|one| [one.code.to_string(), one.title.to_owned()]));
            }
        }
        Exit::Ok
    }
}
