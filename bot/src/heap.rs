//! One heap for all threads: memory that a read needed is there for the next one.

/// Lets all threads take their memory from the same place. Threads of the runtime and of the
/// database's connections would else have one each, of which most lies fallow: 17 MiB after reads
/// (`tests/bench idle`). Only once, before there are threads.
#[allow(unsafe_code)]
#[cfg(target_env = "gnu")]
pub(crate) fn share() {
    // SAFETY: it sets a number of the C library, which no other thread reads yet.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Other C libraries have one heap.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn share() {}
