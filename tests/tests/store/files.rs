//! A reply of several files, one of which has to wait for the store.

use std::fs;

use crate::{Shared, folder, keeping::age, sha256, world};

/// Longer than anything lives that no row names.
#[tokio::test(flavor = "multi_thread")]
async fn all_files_of_a_reply_that_waits_for_hours_are_sent() {
    let shared = Shared::folder();
    let world = world(shared.config()).await;
    let agent = world.shell().await;
    let [first, second] = ["first\n", "second\n"].map(|text| sha256(text.as_bytes()));
    // Where the folder of the second one should be there is a file.
    let blobs = folder(&shared).join("blobs");
    fs::create_dir_all(&blobs).expect("it is ours");
    let in_the_way = blobs.join(&second[..2]);
    fs::write(&in_the_way, "").expect("it is ours");
    let send = "mkdir send; echo first > send/a; echo second > send/b; echo ok";
    let posted = world.post(agent, send).await;
    let kept = "SELECT count(*) FROM pins WHERE reason = 'reply'";
    world.until_sql(kept, "1").await;
    age(&world
        .data_dir()
        .join("blobs")
        .join(&first[..2])
        .join(&first));
    let tools = &world.service().worker().tools;
    assert_eq!(world.gc().await.blobs, 0, "a tick needs it");
    fs::remove_file(&in_the_way).expect("it is ours");
    let files = world.outcome(&posted).await.reply.expect("a reply").files;
    assert_eq!(files.len(), 2);
    for file in &files {
        let content = tools.blobs.get(&file.blob).await.expect("it is here");
        assert_eq!(sha256(&content), file.blob.as_str());
    }
    // And the row has it from now on.
    world.gc().await;
    assert_eq!(world.sql(kept), "0");
    world.end().await;
}
