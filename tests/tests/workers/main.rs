//! Several processes of one installation, as roles and as equals: who dies, freezes or ends hands over, and no
//! message is lost, run beside itself or answered twice.

mod fleet;
mod hand_over;
mod roles;
mod storm;
