//! The clock of SQLite itself, as a simulation sets it: the statements under test stay what they are.

#![allow(unsafe_code)]

use std::{
    ffi::c_int,
    ptr,
    sync::{
        Once,
        atomic::{AtomicI64, Ordering},
    },
};

use libsqlite3_sys::{
    SQLITE_OK, sqlite3_int64, sqlite3_vfs, sqlite3_vfs_find, sqlite3_vfs_register,
};

/// Unix milliseconds at SQLite's day 0.
const DAY_0: i64 = -210_866_760_000_000;

static NOW: AtomicI64 = AtomicI64::new(0);

/// Connections that this process opens from now on read this clock.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the default file system lives as long as the process, as does the copy of its table with
        // another name and another clock, which is registered as the default.
        let answer = unsafe {
            let real = sqlite3_vfs_find(ptr::null());
            assert!(!real.is_null(), "SQLite has a file system");
            let ours = sqlite3_vfs {
                pNext: ptr::null_mut(),
                zName: c"simulated".as_ptr(),
                xCurrentTimeInt64: Some(tell),
                ..ptr::read(real)
            };
            sqlite3_vfs_register(Box::into_raw(Box::new(ours)), 1)
        };
        assert_eq!(answer, SQLITE_OK, "SQLite takes a file system");
    });
}

/// The time from now on.
pub(crate) fn set(unix_ms: i64) {
    NOW.store(unix_ms, Ordering::SeqCst);
}

unsafe extern "C" fn tell(_: *mut sqlite3_vfs, into: *mut sqlite3_int64) -> c_int {
    // SAFETY: SQLite passes a place for the answer.
    unsafe { *into = NOW.load(Ordering::SeqCst) - DAY_0 };
    SQLITE_OK
}
