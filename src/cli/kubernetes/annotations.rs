//! `keyward kubernetes annotations`: the annotations of pods.

use clap::Args;
use keyward_injector::annotation_rows;

use crate::cli::{Exit, Format, print_line};

/// List the annotations of pods.
#[derive(Debug, Args)]
pub(super) struct Annotations {
    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: Format,
}

impl Annotations {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let rows = annotation_rows();
        if self.format == Format::Json {
            print_line(&serde_json::to_string_pretty(&rows)?);
            return Ok(Exit::Ok);
        }
        let (taken, refused): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.is_taken);
        print_line("Taken:");
        for row in taken {
            let names: Vec<String> = [row.keyward, row.vault].into_iter().filter(|name| !name.is_empty()).collect();
            print_line(&format!("  {}\n      {}", names.join(", "), row.meaning));
        }
        print_line("\nRefused:");
        for row in refused {
            print_line(&format!("  {}\n      {}", row.vault, row.meaning));
        }
        Ok(Exit::Ok)
    }
}
