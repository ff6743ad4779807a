//! Commands on records: once for all kinds. A kind adds by [`CommandRecord`] how it is shown.

use keyward_acl::client::{AclRecord, QueryOptions};
use serde::Serialize;

use super::connection::AclConnection;
use super::failure::CommandFailure;
use super::output;
use crate::cli::{Exit, print_line};

/// Kind of record that commands manage.
pub(super) trait CommandRecord: AclRecord + Serialize {
    /// Prints a record for people.
    fn print(&self);

    /// Prints a table of records for people.
    fn print_table(list: &[Self]);
}

pub(super) async fn create<R: CommandRecord>(service: &AclConnection, new: &R::New) -> Result<(), CommandFailure> {
    show::<R>(service, &service.client.create(new).await?);
    Ok(())
}

pub(super) async fn read<R: CommandRecord>(service: &AclConnection, id: &R::Id) -> Result<(), CommandFailure> {
    show::<R>(service, &service.client.read(id, &QueryOptions::default()).await?.value);
    Ok(())
}

/// Reads a record, and replaces it by what `change` makes of it.
pub(super) async fn update<R: CommandRecord>(
    service: &AclConnection,
    id: &R::Id,
    change: impl AsyncFnOnce(R) -> Result<R::Update, CommandFailure>,
) -> Result<(), CommandFailure> {
    let current = service.client.read(id, &QueryOptions::default()).await?.value;
    show::<R>(service, &service.client.update(id, &change(current).await?).await?);
    Ok(())
}

/// Deletes a record; `name` is its id or name in the output.
pub(super) async fn delete<R: AclRecord>(
    service: &AclConnection,
    id: &R::Id,
    name: &str,
) -> Result<(), CommandFailure> {
    let kind = R::KIND;
    if !service.client.delete::<R>(id).await? {
        return Err(CommandFailure::new(Exit::Missing, format!("no {kind} {name}: nothing was deleted")));
    }
    print_line(&format!("{kind} {name} is deleted"));
    Ok(())
}

pub(super) async fn list<R: CommandRecord>(service: &AclConnection, filter: &R::Filter) -> Result<(), CommandFailure> {
    let read = service.client.list::<R>(filter, &QueryOptions::default()).await?;
    service.show(&read.value, || R::print_table(&read.value));
    output::note_omitted(&read);
    Ok(())
}

/// Prints a record as JSON or for people.
pub(super) fn show<R: CommandRecord>(service: &AclConnection, record: &R) {
    service.show(record, || record.print());
}
