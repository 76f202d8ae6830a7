#![doc = include_str!("../README.md")]

pub mod agent;
pub mod backup;
pub mod bases;
pub mod command;
pub mod gateway;
pub mod images;
pub mod inbox;
pub mod outbox;
pub mod queue;
pub mod reconcile;
pub mod retention;
pub mod sandbox;
pub mod service;
pub mod snapshot;
pub mod tick;
pub mod trouble;
pub mod worker;

pub mod bell;
pub mod blobs;
pub mod clock;
pub mod db;
pub mod faults;
pub mod observe;
pub mod supervise;
pub mod view;
