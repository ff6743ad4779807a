//! `keyward acl templated-policy`.

use clap::{Args, Subcommand};
use keyward_acl::client::QueryOptions;

use super::connection::AclConnection;
use super::failure::CommandFailure;
use super::output::{self, Fields};
use super::records;
use super::templated_policy_flags::pair;
use crate::cli::print_line;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the templates
    #[command(after_help = "Example:\n  keyward acl templated-policy list")]
    List,
    /// Show a template and the variables that it takes
    #[command(after_help = "Example:\n  keyward acl templated-policy read builtin/service")]
    Read(NameArgument),
    /// Show the policy that a template generates; stores nothing
    #[command(after_help = "Example:\n  keyward acl templated-policy preview builtin/service --var name:web")]
    Preview(Preview),
}

/// The template that a command reads.
#[derive(Debug, Args)]
pub(super) struct NameArgument {
    /// Name of the template, such as builtin/service
    name: String,
}

/// Show the policy that a template makes.
#[derive(Debug, Args)]
pub(super) struct Preview {
    /// Name of the template, such as builtin/service
    name: String,
    /// Variable of the template; repeatable
    #[arg(long = "var", value_name = "NAME:VALUE", value_parser = pair)]
    vars: Vec<(String, String)>,
}

impl Command {
    pub(super) async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        let client = &service.client;
        let query = QueryOptions::default();
        match self {
            Self::List => {
                let all = client.list_templates(&query).await?.value;
                service.show(&all, || {
                    let rows =
                        all.values().map(|template| [template.template_name.clone(), template.description.clone()]);
                    output::table(["Name", "Description"], rows);
                });
            }
            Self::Read(target) => {
                let template = client.read_template(&target.name, &query).await?.value;
                service.show(&template, || {
                    let description = Some(&template.description).filter(|text| !text.is_empty());
                    Fields::default()
                        .add("Name", &template.template_name)
                        .optional("Description", description)
                        .add("Variables", if template.schema.is_empty() { "none" } else { "as this schema says" })
                        .print();
                    output::print_indented(&template.schema);
                    print_line("Template:");
                    output::print_indented(&template.template);
                });
            }
            Self::Preview(preview) => {
                let vars = preview.vars.into_iter().map(|(name, value)| (name, value.into())).collect();
                records::show(service, &client.preview_template(&preview.name, &vars).await?);
            }
        }
        Ok(())
    }
}
