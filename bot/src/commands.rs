//! What each verb does: asks through the client, shows a view.

pub(crate) mod adopt;
pub(crate) mod agent;
pub(crate) mod check;
pub(crate) mod doctor;
pub(crate) mod parked;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod tick;
