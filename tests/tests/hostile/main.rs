//! Agents that attack, each in a real sandbox. An attack is refused, or ended at its deadline, and
//! it is shown to work where it may, so that a script that breaks is not taken for a refusal.
//!
//! The scripts are in `tests/hostile`. What they try independently of each other is a table: one
//! tick tries all of it and prints one line for each attack.

mod deadlines;
mod disk;
mod evidence;
mod links;
mod reach;
mod table;
