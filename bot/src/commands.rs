//! What each verb does: asks through the client, shows a view.

pub(crate) mod adopt;
pub(crate) mod agent;
pub(crate) mod attach;
pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod doctor;
pub(crate) mod gc;
pub(crate) mod page;
pub(crate) mod pair;
pub(crate) mod parked;
pub(crate) mod platform;
pub(crate) mod portable;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod states;
pub(crate) mod tick;
