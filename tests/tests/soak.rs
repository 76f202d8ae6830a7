//! People write on all three platforms without end, and the program stays as large as it is: for a
//! minute, for an hour with `MAYFLY_TESTS_FULL=1`.

use std::time::{Duration, Instant};

use mayfly_tests::{
    bench::{flat::Sizes, memory::Memory},
    full,
    server::Server,
    traffic::{self, Way},
};

/// Posts of a round on each platform; the next round waits until all is quiet, so a slow machine does
/// less and nothing piles up.
const ROUND: usize = 30;
/// MiB that may stay between the second and the last third: allocator and caches are not still.
const SLACK_MIB: f64 = 3.0;
/// Bytes that may stay for each event beside it.
const EACH: f64 = 256.0;

fn span() -> Duration {
    match full() {
        true => Duration::from_secs(60 * 60),
        false => Duration::from_secs(60),
    }
}

#[test]
fn memory_is_flat_while_all_three_write() {
    let crowds = [Way::SlackSocket, Way::Discord, Way::TelegramPolling].map(Way::crowd);
    let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"));
    server.set_env("MAYFLY__LOG__LEVEL", "warn");
    for crowd in &crowds {
        for (name, value) in crowd.environment() {
            server.set_env(name, &value);
        }
    }
    server.start();
    crowds.iter().for_each(|crowd| crowd.reach(&server));
    let (mut sizes, since, mut n) = (Sizes::default(), Instant::now(), 0);
    while since.elapsed() < span() || sizes.looks() < 9 {
        let came = traffic::events(&server);
        for _ in 0..ROUND {
            crowds
                .iter()
                .for_each(|crowd| traffic::post(crowd.as_ref(), n));
            n += 1;
        }
        traffic::quiet(&server, came + (crowds.len() * ROUND) as u64);
        sizes.add(traffic::events(&server), Memory::of(server.pid()).anonymous);
    }
    let course = sizes.course().expect("enough looks");
    println!(
        "{} rounds, {course:?}: {:.0} B each",
        sizes.looks(),
        course.each()
    );
    let allowed = SLACK_MIB + EACH * course.work as f64 / 1024.0 / 1024.0;
    assert!(
        course.growth() <= allowed,
        "{:.2} MiB stay, at most {allowed:.2} may: {course:?}",
        course.growth()
    );
    assert!(server.running());
    let troubles = server.log().matches(" WARN ").count();
    assert!(troubles < 20, "{}", server.log());
    server.kill();
}
