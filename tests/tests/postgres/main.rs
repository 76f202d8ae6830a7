//! What must hold on PostgreSQL beside what all other tests ask of both databases.

mod outage;
mod refusals;
mod schema;
mod upgrade;
mod writers;

use mayfly_orchestrator::db::{Db, Place, Server};

/// The database of this address, with copies made in this folder.
fn place(url: &str, copies: &std::path::Path) -> Place {
    let server = Server::parse(url, None).expect("an address");
    Place::Postgres(server.with_copies_in(copies, None))
}

async fn open(url: &str) -> Db {
    let opened = Db::open(&place(url, std::path::Path::new("/nowhere"))).await;
    opened.unwrap_or_else(|error| panic!("{error}"))
}
