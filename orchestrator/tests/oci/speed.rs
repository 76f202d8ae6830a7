//! How fast an export is, beside `tar | zstd -1` on the same tree. Run with `--run-ignored all`, in
//! release: prints figures, asserts nothing.

use std::{fs, path::Path, process::Command, time::Instant};

use mayfly_orchestrator::snapshot::oci::Compress;
use rand::{RngCore, SeedableRng, rngs::StdRng};

use crate::{
    archive::{export, import_within},
    world::World,
};

/// Half text, half noise: what a working folder compresses to.
fn fill(work: &Path, files: usize, bytes: usize) {
    let mut random = StdRng::seed_from_u64(1);
    for n in 0..files {
        let dir = work.join(format!("d{}", n / 100));
        fs::create_dir_all(&dir).unwrap();
        let mut content = vec![0; bytes / 2];
        random.fill_bytes(&mut content);
        content.extend(b"some text of a file. ".iter().cycle().take(bytes / 2));
        fs::write(dir.join(format!("f{n}")), content).unwrap();
    }
}

#[test]
#[ignore = "prints figures"]
fn speed() {
    for (files, bytes) in [(10_000, 6_500), (100, 10 << 20)] {
        let mut world = World::new(|work| fill(work, files, bytes));
        world.tick(|work| fs::write(work.join("x"), "x").unwrap());
        let base = world.path("b").join(world.base.as_str()).join("work");
        let total = (files * bytes) as f64 / 1e6;
        for round in 0..2 {
            let to = world.path("tar.zst");
            let began = Instant::now();
            let line = format!(
                "tar -C {} -cf - . | zstd -q -1 -f -o {}",
                base.display(),
                to.display()
            );
            assert!(
                Command::new("sh")
                    .args(["-c", &line])
                    .status()
                    .unwrap()
                    .success()
            );
            let tar = began.elapsed().as_secs_f64();
            let mut told = format!(
                "{files} files, {total:.0} MB: tar|zstd -1 {:.0} MB/s",
                total / tar
            );
            for compress in [Compress::Zstd, Compress::Gzip, Compress::None] {
                let out = world.path(format!("out-{compress:?}-{round}"));
                let began = Instant::now();
                export(&world, compress, &out);
                let took = began.elapsed().as_secs_f64();
                told += &format!(", {compress:?} {:.0} MB/s", total / took);
                let mut other = World::empty();
                let began = Instant::now();
                import_within(&mut other, &out, 1 << 40, 1 << 20).unwrap();
                let took = began.elapsed().as_secs_f64();
                told += &format!(" (import {:.0})", total / took);
            }
            println!("{told}");
        }
    }
}
