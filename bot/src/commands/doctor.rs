//! `mayfly doctor`: what this host lacks, each with its mend.

use crate::{
    cli::Context,
    exit::{Exit, Failure},
};

pub(crate) async fn run(_context: &Context) -> Result<Exit, Failure> {
    Ok(Exit::Ok)
}
