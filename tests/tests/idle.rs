//! Idle agents cost next to nothing, and a read costs what it shows: statements are counted, and the
//! database is asked how it would carry each of them out.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    fs,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use mayfly_domain::{AgentId, TickId};
use mayfly_orchestrator::{
    command::RequestError,
    sandbox::fake::Fake,
    snapshot::{DiffWanted, Listed},
    view::Wanted,
};
use mayfly_tests::{
    bench::{
        load::{Door, Load},
        memory::Memory,
    },
    crowd::Crowd,
    engine,
    server::Server,
    world::{Setup, World},
};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// Every statement that the database has carried out.
#[derive(Clone, Default)]
struct Statements(Arc<Mutex<Vec<String>>>);

impl Statements {
    /// From now on, in this process.
    fn heard() -> Statements {
        let statements = Statements::default();
        let heard = tracing_subscriber::registry().with(statements.clone());
        tracing::subscriber::set_global_default(heard).expect("one test per process");
        statements
    }

    /// Those since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl<S: tracing::Subscriber> Layer<S> for Statements {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "sqlx::query" {
            let mut text = Text::default();
            event.record(&mut text);
            // A short one is its own summary.
            let statement = match text.whole.trim() {
                "" => text.summary,
                whole => whole.to_owned(),
            };
            self.0.lock().unwrap().push(statement);
        }
    }
}

#[derive(Default)]
struct Text {
    whole: String,
    summary: String,
}

impl Visit for Text {
    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "db.statement" => value.clone_into(&mut self.whole),
            "summary" => value.clone_into(&mut self.summary),
            _ => {}
        }
    }
}

/// Tables of the schema that grow with what is done here.
fn tables(world: &World) -> BTreeSet<String> {
    let names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '%sql%'
                 AND name NOT IN ('installation', 'workers', 'clock', 'pins')";
    world.sql(names).lines().map(str::to_owned).collect()
}

/// Indexes that hold nothing but what their one reader shows.
const PARKED: [&str; 2] = ["INDEX messages_parked", "INDEX deliveries_parked"];

/// Names under which a statement reads tables from one end to the other.
fn scanned(world: &World, statement: &str) -> Vec<String> {
    let tables = tables(world);
    let mut named: Vec<(String, String)> = Vec::new();
    let words: Vec<&str> = statement
        .split(|c: char| c.is_whitespace() || "(),".contains(c))
        .filter(|word| !word.is_empty())
        .collect();
    for pair in words.windows(3) {
        if ["FROM", "JOIN", "UPDATE"].contains(&pair[0]) && tables.contains(pair[1]) {
            named.push((pair[2].to_owned(), pair[1].to_owned()));
            named.push((pair[1].to_owned(), pair[1].to_owned()));
        }
    }
    let plan = world.sql(&format!("EXPLAIN QUERY PLAN {statement}"));
    let lines = plan.lines();
    let lines = lines.filter(|line| !PARKED.iter().any(|index| line.contains(index)));
    let scans = lines.filter_map(|line| line.split("SCAN ").nth(1));
    let scans = scans.filter_map(|rest| rest.split_whitespace().next());
    let of_table = |name: &&str| named.iter().any(|(alias, _)| alias == name);
    scans.filter(of_table).map(str::to_owned).collect()
}

/// Two agents of which the second has more of everything.
async fn lived(world: &World) -> (AgentId, AgentId) {
    let (small, large) = (world.shell().await, world.shell().await);
    for (agent, ticks) in [(small, 3), (large, 14)] {
        for n in 0..ticks {
            world.reply(agent, &format!("echo {n} > f{n}")).await;
        }
        world.commands().rollback(agent, None).await.unwrap();
        world.reply(agent, "echo on > f").await;
    }
    for _ in 0..4 {
        world.commands().fork(large, None).await.unwrap();
    }
    (small, large)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_takes_as_many_statements_however_much_it_shows_and_scans_no_table() {
    let statements = Statements::heard();
    let world = World::fake(Setup::default(), Fake::new).await;
    let (small, large) = lived(&world).await;
    world
        .until_sql("SELECT count(*) FROM deliveries WHERE state = 'owed'", "0")
        .await;
    world.rest().await;
    let commands = world.commands();
    let last = async |agent| -> TickId { commands.ticks(agent).await.unwrap().last().unwrap().id };
    let ticks = [(small, last(small).await), (large, last(large).await)];
    let page = |most| Wanted { after: None, most };
    // A base is measured once.
    commands.agent_with_disk(small).await.unwrap();
    statements.take();
    // What states cost is added up once.
    commands.agent_with_disk(large).await.unwrap();
    let first = statements.take();
    assert!(first.len() <= 7, "{first:#?}");
    let mut wrong = Vec::new();
    let mut counted = |what: &str, most: usize| {
        let taken = statements.take();
        if taken.len() > most {
            wrong.push(format!("{what}: {} statements: {taken:#?}", taken.len()));
        }
        for statement in taken {
            for table in scanned(&world, &statement) {
                wrong.push(format!("{what} scans {table}: {statement}"));
            }
        }
    };
    for most in [1, 100] {
        let wanted = Wanted { after: None, most };
        let agents = commands.agents(wanted).await.unwrap();
        assert!(agents.items.len() == most.min(6) as usize);
        counted("agents", 1);
    }
    for (agent, tick) in ticks {
        let found = commands.find_agent(&agent.to_string()[30..]).await.unwrap();
        assert_eq!(found, agent);
        counted("an agent by its last digits", 1);
        commands.find_tick(&tick.to_string()).await.unwrap();
        counted("a tick by its id", 1);
        commands.agent_with_disk(agent).await.unwrap();
        counted("an agent", 2);
        commands.ticks_page(agent, page(100)).await.unwrap();
        counted("ticks", 2);
        let detail = commands.tick(tick).await.unwrap();
        counted("a tick", 1);
        assert!(detail.tick.in_head);
        commands.message(detail.tick.message).await.unwrap();
        counted("a message", 2);
        commands.newest_ticks(agent, page(100)).await.unwrap();
        counted("newest ticks", 2);
        let all = Wanted {
            after: None,
            most: 100,
        };
        commands.newest_messages(agent, all).await.unwrap();
        counted("newest messages", 3);
        commands.graph(agent).await.unwrap();
        counted("the graph", 4);
        commands.parked().await.unwrap();
        counted("parked", 1);
        let listed = Listed {
            recursive: false,
            most: 100,
            after: None,
        };
        let look = async |tick| -> Result<_, RequestError> {
            commands
                .look(agent, tick, b"/work".to_vec(), listed.clone())
                .await
        };
        look(None).await.unwrap();
        counted("files", 2);
        look(Some(tick)).await.unwrap();
        counted("files after a tick", 3);
        let wanted = DiffWanted {
            most: 10,
            renames: true,
            text: false,
        };
        commands.diff(agent, None, None, wanted).await.unwrap();
        counted("a diff", 4);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Reading has written nothing.
    assert_eq!(world.sql("SELECT count(*) FROM pins"), "0");
    world.end().await;
}

/// What housekeeping asks again and again looks at what it asks for, not at all agents; and of all agents it takes
/// a portion at a time.
#[tokio::test(flavor = "multi_thread")]
async fn housekeeping_among_many_agents_asks_as_fast_as_among_few() {
    let world = World::fake(Setup::default(), Fake::new).await;
    let agent = world.shell().await;
    world.reply(agent, "echo here > f").await;
    let db = &world.service().worker().tools.db;
    let median = async || -> [Duration; 2] {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..101 {
            let began = Instant::now();
            let family = db.family(agent).await.unwrap();
            times[0].push(began.elapsed());
            assert_eq!(family.members.len(), 1);
            let began = Instant::now();
            let images = db.images_in_use().await.unwrap();
            times[1].push(began.elapsed());
            assert_eq!(images.len(), 1);
        }
        times.map(|mut times| {
            times.sort_unstable();
            times[50]
        })
    };
    let few = median().await;
    world.change(
        "INSERT INTO agents (id, profile, sandbox, image, base, generation, created_at)
         WITH RECURSIVE k (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM k WHERE n < 30000)
         SELECT substr(id, 1, 30) || printf('%06x', n), profile, sandbox, image, base, generation, created_at
           FROM agents, k",
    );
    let many = median().await;
    for (what, few, many) in [("a family", few[0], many[0]), ("images", few[1], many[1])] {
        let most = 3 * few + Duration::from_millis(2);
        assert!(
            many < most,
            "{what}: {many:?} among many, {few:?} among few"
        );
    }
    let mut reached = None;
    let mut seen = 0;
    loop {
        let origins = db.origins(reached, 500).await.unwrap();
        assert!(origins.len() <= 500);
        seen += origins.len();
        reached = origins.last().copied();
        if reached.is_none() {
            break;
        }
    }
    assert_eq!(seen, 30_001);
    world.end().await;
}

/// The program as tests build it is larger than the shipped one: `tests/bench idle` measures that.
const MEMORY: f64 = 90.0;
/// Milliseconds that a start may take longer with a thousand agents than with two.
const LONGER: u128 = 1500;

#[test]
fn a_thousand_idle_agents_make_a_start_no_longer_and_memory_stays_small() {
    let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"));
    let door = Door::of(server.data_dir());
    server.start();
    let agent = server.agent();
    for n in 0..14 {
        server.json(&["agent", "send", &agent, &format!("echo {n} > f{n}")]);
    }
    let fork = server.json(&["agent", "fork", &agent]);
    assert!(fork["id"].is_string(), "{fork}");
    server.stop();
    let start = |server: &mut Server| {
        let began = Instant::now();
        server.spawn();
        while door.status("/readyz") != Some(200) {
            let waited = began.elapsed();
            assert!(waited < Duration::from_secs(60), "{}", server.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        began.elapsed().as_millis()
    };
    let few = start(&mut server);
    server.stop();
    let crowd = Crowd {
        copies: 497,
        deep: 4,
        times: 20,
        of: &agent,
    };
    crowd.make(server.data_dir()).expect("the copies are made");
    assert_eq!(server.sql("SELECT count(*) FROM agents"), "1000");
    let layers = server.sql("SELECT count(*) FROM layers");
    let many = start(&mut server);
    assert!(many <= few + LONGER, "{many} ms, with two agents {few} ms");
    let agents = engine::sql(
        &server.data_dir().join("mayfly.db"),
        "SELECT id FROM agents LIMIT 50",
    );
    let ids: Vec<&str> = agents.lines().collect();
    let of = |path: &dyn Fn(&str) -> String| ids.iter().map(|id| path(id)).collect::<Vec<_>>();
    let paths = [
        of(&|_| "/v1/agents".to_owned()),
        of(&|id| format!("/v1/agents/{id}")),
        of(&|id| format!("/v1/agents/{id}/ticks")),
        of(&|id| format!("/v1/agents/{id}/files/work?list=true")),
    ];
    Load::of(&door, 4, Duration::from_secs(5), &paths);
    let memory = Memory::of(server.pid());
    assert!(memory.rss <= MEMORY, "{} MiB", memory.rss);
    // The copies are whole: nothing of them was taken for what a crash left.
    server.stop();
    assert_eq!(server.sql("SELECT count(*) FROM layers"), layers);
    let folders = fs::read_dir(server.data_dir().join("l")).unwrap().count();
    assert_eq!(folders.to_string(), layers);
}
