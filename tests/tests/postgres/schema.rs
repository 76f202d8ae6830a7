//! Both databases have the same migrations, tables, columns and indexes, and treat text alike.

use std::{collections::BTreeMap, path::Path};

use mayfly_domain::Mark;
use mayfly_orchestrator::db::{Db, Place};
use mayfly_tests::{engine::run, postgres};

fn migrations(dialect: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations");
    let entries = std::fs::read_dir(folder.join(dialect)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Rows `key|value...` by key.
fn table(rows: &str) -> BTreeMap<&str, &str> {
    rows.lines().filter_map(|row| row.split_once('|')).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn both_databases_have_the_same_tables_columns_and_indexes() {
    assert_eq!(migrations("postgres"), migrations("sqlite"));
    let folder = tempfile::tempdir().unwrap();
    Db::open(&Place::embedded(folder.path()))
        .await
        .unwrap()
        .close()
        .await;
    super::open(&postgres::url_of(folder.path()))
        .await
        .close()
        .await;
    let file = folder.path().join("mayfly.db");
    let sqlite = |query: &str| run("sqlite3", &[file.to_str().unwrap(), query]);
    let columns = sqlite(
        "SELECT m.name || '.' || p.name, replace(p.type, ' GENERATED ALWAYS', '') || ' ' || p.\"notnull\"
         FROM sqlite_master m JOIN pragma_table_xinfo(m.name) p WHERE m.type = 'table'
         AND m.name NOT LIKE '%sql%'",
    );
    let theirs = postgres::sql(
        folder.path(),
        "SELECT table_name || '.' || column_name,
           CASE data_type WHEN 'bytea' THEN 'BLOB' ELSE upper(data_type) END
           || CASE is_nullable WHEN 'NO' THEN ' 1' ELSE ' 0' END
         FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT LIKE '%sql%'",
    );
    assert!(table(&columns).len() > 100);
    assert_eq!(table(&theirs), table(&columns));
    let indexes = sqlite(
        "SELECT name || '|' || tbl_name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL",
    );
    let theirs = postgres::sql(
        folder.path(),
        "SELECT indexname || '|' || tablename FROM pg_indexes WHERE schemaname = 'public'
         AND indexname NOT LIKE '%_pkey' AND indexname NOT LIKE '%_key'",
    );
    assert_eq!(table(&theirs), table(&indexes));
    let foreign_order = postgres::sql(
        folder.path(),
        "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'public'
         AND table_name NOT LIKE '%sql%' AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'",
    );
    assert_eq!(foreign_order, "0", "text that is not compared by its bytes");
    postgres::forget(folder.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nul_in_a_text_is_kept_as_its_sign_and_found_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let embedded = Db::open(&Place::embedded(folder.path())).await.unwrap();
    let server = super::open(&postgres::url_of(folder.path())).await;
    for db in [embedded, server] {
        let mark = Mark {
            platform: "chat".to_owned(),
            name: "a\0b".to_owned(),
            value: "\0c".to_owned(),
        };
        db.take_events(&[], Some(&mark)).await.unwrap();
        let (value, _) = db.mark("chat", "a\0b").await.unwrap().expect("it is found");
        assert_eq!(value, "\u{2400}c");
        db.close().await;
    }
    postgres::forget(folder.path());
}
