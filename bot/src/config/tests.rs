use std::path::Path;

use super::*;

fn sources(file: Option<&str>, environment: &[(&str, &str)]) -> (Sources, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mayfly.toml");
    if let Some(text) = file {
        std::fs::write(&path, text).unwrap();
    }
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let sources = Sources {
        file: file.map(|_| path),
        environment: environment.iter().map(own).collect(),
        ..Sources::default()
    };
    (sources, dir)
}

fn refused(file: &str, environment: &[(&str, &str)]) -> Faults {
    let (sources, _dir) = sources(Some(file), environment);
    load(&sources).unwrap_err()
}

fn read(file: &str, environment: &[(&str, &str)]) -> Loaded {
    let (sources, _dir) = sources(Some(file), environment);
    load(&sources).unwrap()
}

#[test]
fn nothing_configured_is_the_default() {
    let loaded = load(&Sources::default()).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert!(loaded.warnings.is_empty());
    let (of_host, others): (Vec<&Entry>, _) = loaded
        .entries
        .iter()
        .partition(|entry| entry.key == "worker.memory_mib");
    assert!(others.iter().all(|entry| entry.origin == "default"));
    assert_eq!(of_host[0].origin, "this host");
    assert!(of_host[0].value.as_u64() > Some(0), "{of_host:?}");
}

#[test]
fn cf_01_an_unknown_file_key_fails_with_name_and_nearest_match() {
    let faults = refused("[worker]\nmax_runing = 2\n", &[]);
    let text = faults.to_string();
    assert!(
        text.contains("unknown key \"max_runing\" in [worker]"),
        "{text}"
    );
    assert!(text.contains("did you mean \"max_running\"?"), "{text}");
    assert!(text.contains("mayfly.toml"), "{text}");
}

#[test]
fn cf_01_a_key_in_the_wrong_table_is_sent_to_the_right_one() {
    let text = refused("[http]\nmax_running = 2\n", &[]).to_string();
    assert!(
        text.contains("in [http]") && text.contains("belongs into [worker]"),
        "{text}"
    );
    let text = refused("[profiles.coder]\nwall_clock_s = 2\n", &[]).to_string();
    assert!(text.contains("in [profiles.coder]"), "{text}");
    assert!(
        text.contains("belongs into [profiles.shell.limits]"),
        "{text}"
    );
}

#[test]
fn cf_01_an_unknown_name_of_ours_in_the_environment_warns() {
    let set = [
        ("MAYFLY__WORKER__MAX_RUNING", "2"),
        ("MAYFLY_WORKER__MAX_RUNNING", "2"),
        ("MAYFLY_LOG_LEVEL", "debug"),
        ("OTHER__WORKER__MAX", "2"),
    ];
    let loaded = read("", &set);
    assert_eq!(loaded.config, Config::default());
    assert_eq!(loaded.warnings.len(), 3, "{:?}", loaded.warnings);
    let near = |part: &str| loaded.warnings.iter().filter(|w| w.contains(part)).count();
    assert_eq!(near("did you mean MAYFLY__WORKER__MAX_RUNNING?"), 2);
    assert_eq!(near("did you mean MAYFLY__LOG__LEVEL?"), 1);
}

#[test]
fn cf_01_every_value_is_shown_with_its_origin() {
    let loaded = read(
        "[worker]\nmax_running = 2\nattempts = 5\n",
        &[
            ("MAYFLY__WORKER__ATTEMPTS", "7"),
            ("DOCKER_HOST", "tcp://proxy:2375"),
        ],
    );
    let shown = |key: &str| {
        let entry = loaded
            .entries
            .iter()
            .find(|entry| entry.key == key)
            .unwrap();
        format!("{} {}", entry.value, entry.origin)
    };
    assert!(shown("worker.max_running").starts_with("2 file /"));
    assert_eq!(
        shown("worker.attempts"),
        "7 environment MAYFLY__WORKER__ATTEMPTS"
    );
    assert_eq!(
        shown("docker.host"),
        "\"tcp://proxy:2375\" environment DOCKER_HOST"
    );
    assert_eq!(shown("disk.floor_mib"), "1024 default");
}

#[test]
fn all_faults_are_told_at_once() {
    let file = "data_dir = \"relative\"\nfloor = 1\n[worker]\nmax_running = 0\nattempts = \"x\"\n\
                [log]\nlevel = \"loud\"\n[profiles.Bad]\ncommand = []\n";
    let faults = refused(file, &[("MAYFLY__DISK__FLOOR_MIB", "many")]);
    let text = faults.to_string();
    for part in [
        "data_dir (file",
        "\"floor\"",
        "worker.max_running (file",
        "worker.attempts (file",
        "expected u32",
        "log.level (file",
        "profiles.Bad",
        "profiles.Bad.command (file",
        "disk.floor_mib (environment MAYFLY__DISK__FLOOR_MIB): a whole number is wanted",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert_eq!(faults.faults.len(), 8, "{text}");
    assert!(!faults.only_data_dir);
    assert!(refused("data_dir = \"/a,b\"", &[]).only_data_dir);
}

#[test]
fn a_profile_takes_what_it_does_not_say_from_the_defaults() {
    let file = "[profiles.coder]\nsandbox = \"docker:img:1\"\nenv = { Path_X = \"1\" }\n\
                [profiles.coder.limits]\nmemory_mib = 64\n";
    let profiles = read(file, &[]).config.profiles;
    assert_eq!(profiles.0.len(), 2);
    let coder = &profiles.0["coder"];
    assert_eq!(coder.sandbox.to_string(), "docker:img:1");
    assert_eq!(coder.limits.memory_mib, 64);
    assert_eq!(coder.limits.pids, 256);
    assert_eq!(coder.env["Path_X"], "1");
}

#[test]
fn a_list_and_a_profile_can_come_from_the_environment() {
    let loaded = read(
        "",
        &[
            ("MAYFLY__PROFILES__SHELL__COMMAND", "[\"cat\", \"-\"]"),
            ("MAYFLY__PROFILES__SMALL__LIMITS__CPUS", "0.5"),
        ],
    );
    assert_eq!(loaded.config.profiles.0["shell"].command, ["cat", "-"]);
    assert_eq!(loaded.config.profiles.0["small"].limits.cpus, 0.5);
}

#[test]
fn names_that_people_chose_keep_their_letters_in_the_environment() {
    let loaded = read(
        "",
        &[
            ("MAYFLY__SLACK__CHANNELS__C0AbZ9__ALLOWED_USERS", "[\"U1\"]"),
            ("MAYFLY__SLACK__CHANNELS__C0AbZ9__PROFILE", "shell"),
            ("MAYFLY__PROFILES__SHELL__ENV__Http_Proxy", "p"),
        ],
    );
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let rule = &loaded.config.slack.access.channels["C0AbZ9"];
    assert_eq!(rule.allowed_users, Some(vec!["U1".to_owned()]));
    assert_eq!(rule.profile.as_deref(), Some("shell"));
    assert_eq!(loaded.config.profiles.0["shell"].env["Http_Proxy"], "p");
    let wrong = [("MAYFLY__SLACK__CHANNELS__C1__ADMINS", "U1")];
    let told = refused("", &wrong).to_string();
    assert!(told.contains("a list like"), "{told}");
}

#[test]
fn se_06_a_channel_that_an_empty_list_closes_is_told_at_the_start() {
    let file = "[telegram]\nallowed_users = [\"1\"]\nallowed_channels = [\"everyone\"]\n\
                [telegram.channels.\"-100\"]\nallowed_users = []\n\
                [telegram.channels.\"-200\"]\nprofile = \"shell\"\n";
    let loaded = read(file, &[("TELEGRAM_BOT_TOKEN", TELEGRAM)]);
    let told = loaded.warnings.join("\n");
    assert!(told.contains("nobody may speak in channel -100"), "{told}");
    assert_eq!(loaded.warnings.len(), 1, "{told}");
}

#[test]
fn secrets_are_never_shown() {
    let file = "[profiles.shell.env]\nAPI_KEY = \"hunter2\"\nMONKEY_BARS = \"a\"\n";
    let loaded = read(file, &[]);
    let text = serde_json::to_string(&loaded.entries).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
    assert!(text.contains("(set)"));
    assert!(loaded.warnings[0].contains("looks like a secret"));
    for secret in [
        "slack.bot_token",
        "a.secret",
        "x.PASSWORD",
        "y.API_KEYS",
        "z.apikey",
    ] {
        assert!(show::is_secret(secret), "{secret}");
    }
    for plain in ["limits.output_bytes", "log.level", "http.listen"] {
        assert!(!show::is_secret(plain), "{plain}");
    }
}

#[test]
fn of_a_webhook_only_scheme_and_host_are_shown() {
    for (url, shown) in [
        (
            "https://b.example:8443/hooks/telegram/s3cr3t?k=s3cr3t",
            "https://b.example:8443/…",
        ),
        ("https://u:s3cr3t@b.example?s3cr3t", "https://b.example/…"),
        ("https://b.example", "https://b.example"),
        ("s3cr3t", "(set)"),
    ] {
        let config = Config {
            telegram: TelegramSection {
                webhook_url: url.to_owned(),
                ..TelegramSection::default()
            },
            ..Config::default()
        };
        let entries = show::entries(&config, &Default::default());
        let entry = entries.iter().find(|e| e.key == "telegram.webhook_url");
        assert_eq!(entry.unwrap().value, shown);
        assert!(!serde_json::to_string(&entries).unwrap().contains("s3cr3t"));
    }
}

#[test]
fn a_missing_or_broken_file_is_named() {
    let missing = Sources {
        file: Some(PathBuf::from("/nonexistent/mayfly.toml")),
        ..Sources::default()
    };
    let text = load(&missing).unwrap_err().to_string();
    assert!(text.contains("/nonexistent/mayfly.toml"), "{text}");
    assert!(
        refused("[worker\n", &[])
            .to_string()
            .contains("not valid TOML")
    );
    let text = refused("worker = 3\n", &[]).to_string();
    assert!(text.contains("write [worker]"), "{text}");
}

#[test]
fn a_number_whose_default_is_none_can_come_from_the_environment() {
    let loaded = read(
        "",
        &[
            ("MAYFLY__WORKER__MEMORY_MIB", "4096"),
            ("MAYFLY__WORKER__MAX_PER_USER", "2"),
            ("MAYFLY__PROFILES__SHELL__MAX_CONCURRENT", "3"),
            ("MAYFLY__DOCKER__RUNTIME", "7"),
        ],
    );
    let config = loaded.config;
    assert_eq!(config.worker.memory_mib, Some(4096));
    assert_eq!(config.worker.max_per_user, Some(2));
    assert_eq!(config.profiles.0["shell"].max_concurrent, Some(3));
    assert_eq!(config.docker.runtime.as_deref(), Some("7"));
    let faults = refused("", &[("MAYFLY__WORKER__MEMORY_MIB", "much")]).to_string();
    assert!(faults.contains("worker.memory_mib"), "{faults}");
}

/// Uncommented, the example says the defaults, and every key is in it.
#[test]
fn the_example_never_lies() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/mayfly.example.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let plain = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => rest.to_owned(),
        _ => line.to_owned(),
    };
    let uncommented: Vec<String> = text.lines().map(plain).collect();
    let loaded = read(&uncommented.join("\n"), &[]);
    assert_eq!(loaded.config, Config::default());
    let unsaid = |entry: &&Entry| entry.origin == "default" && !entry.value.is_null();
    let unsaid: Vec<_> = loaded.entries.iter().filter(unsaid).collect();
    assert!(unsaid.is_empty(), "not in the example: {unsaid:?}");
    for absent in loaded.entries.iter().filter(|entry| entry.value.is_null()) {
        let key = absent.key.rsplit('.').next().unwrap();
        assert!(
            text.contains(&format!("# {key} = ")),
            "{} is missing",
            absent.key
        );
    }
    assert_eq!(read(&text, &[]).config, Config::default());
}

#[test]
fn the_password_of_the_database_is_never_shown_and_does_not_stand_in_the_file() {
    let url = (
        "MAYFLY__DATABASE__URL",
        "postgres://me:hidden%2F1@db/mayfly",
    );
    let loaded = read("", &[url]);
    assert_eq!(loaded.config.database.url, "postgres://me@db/mayfly");
    assert_eq!(loaded.config.database.password, "hidden/1");
    assert!(!format!("{:?}", loaded.entries).contains("hidden"));
    assert_eq!(loaded.config.secrets(), ["hidden/1"]);
    let place = loaded.config.database.place(Path::new("/d")).unwrap();
    assert!(!format!("{place} {place:?}").contains("hidden"));
    for text in [
        "[database]\nurl = 'postgres://me:hidden@db/mayfly'\n",
        "[database]\nurl = 'postgres://me@db/mayfly'\npassword = 'hidden'\n",
        "[database]\nurl = 'postgres://me:hidden@db'\n",
    ] {
        let told = refused(text, &[]).to_string();
        assert!(!told.contains("hidden"), "{told}");
        assert!(told.contains("database."), "{told}");
    }
    let told = refused(
        "[database]\nurl = 'postgres://me@db/x'\npassword_file = '/none'\n",
        &[],
    );
    assert!(told.to_string().contains("/none"), "{told}");
}

const SLACK: &str = "xoxb-4200000001-4200000002-FakeTokenOfNobody0123456789";
const TELEGRAM: &str = "4200000001:AAFake-token_of_nobody_0123456789abcdefg";

#[test]
fn cf_02_a_platform_is_switched_on_by_names_people_know_and_closed_until_it_is_opened() {
    let loaded = read(
        "",
        &[
            ("TELEGRAM_BOT_TOKEN", TELEGRAM),
            ("MAYFLY__TELEGRAM__BOT_TOKEN", ""),
        ],
    );
    assert_eq!(loaded.config.telegram.bot_token, TELEGRAM);
    let told = loaded.warnings.join("\n");
    assert!(
        told.contains("nobody may speak") && told.contains("only direct messages"),
        "{told}"
    );
    assert!(!format!("{:?}", loaded.entries).contains(TELEGRAM));
    assert!(loaded.config.secrets().contains(&TELEGRAM.to_owned()));
}

#[test]
fn a_platform_that_could_not_work_is_refused_in_a_sentence_without_its_token() {
    let rule = "[telegram.channels.\"-100\"]\nprofile = \"nowhere\"\n";
    for (file, environment, told) in [
        (
            "",
            ("SLACK_BOT_TOKEN", SLACK),
            "set SLACK_APP_TOKEN (Socket Mode) or SLACK_SIGNING_SECRET",
        ),
        ("", ("TELEGRAM_BOT_TOKEN", SLACK), "wrong kind"),
        (
            "[telegram]\napi_url = \"https://u:hunter2@x.io\"",
            ("A", ""),
            "without user and password",
        ),
        (rule, ("A", ""), "no profile \"nowhere\""),
        (
            "[slack]\nallowed_user = []",
            ("A", ""),
            "did you mean \"allowed_users\"",
        ),
    ] {
        let faults = refused(file, &[environment]).to_string();
        assert!(faults.contains(told), "{told}: {faults}");
        assert!(
            !faults.contains(SLACK) && !faults.contains("hunter2"),
            "{faults}"
        );
    }
}

/// A shell that starts a bot has variables of others, and agents have settings that only sound like secrets.
#[test]
fn only_a_known_key_of_a_model_refuses_a_bot_and_what_sounds_like_one_is_a_warning() {
    let shared = [
        ("MAYFLY__SERVE__ROLE", "bot"),
        ("MAYFLY__DATABASE__URL", "postgres://me@db/mayfly"),
        ("MAYFLY__QUEUE__URL", "redis://queue"),
        ("MAYFLY__STORE__URL", "file:///srv/mayfly"),
    ];
    let with = |more: &[(&'static str, &'static str)]| [&shared, more].concat();
    let others = with(&[
        ("ANTHROPIC_API_KEY", "sk-none"),
        ("GITHUB_TOKEN", "none"),
        ("MAYFLY__PROFILES__SHELL__ENV__OPENAI_API_KEY", ""),
        ("MAYFLY__PROFILES__SHELL__ENV__MAX_TOKENS", "100"),
    ]);
    let loaded = read("", &others);
    let warned = |key: &str| loaded.warnings.iter().any(|told| told.contains(key));
    assert!(
        warned("env.MAX_TOKENS looks like a secret"),
        "{:?}",
        loaded.warnings
    );
    for key in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GITHUB_TOKEN"] {
        assert!(!warned(key), "{:?}", loaded.warnings);
    }
    let key = [("MAYFLY__PROFILES__SHELL__ENV__ANTHROPIC_API_KEY", "sk-none")];
    let told = refused("", &with(&key)).to_string();
    assert!(
        told.contains("env.ANTHROPIC_API_KEY") && told.contains("role bot"),
        "{told}"
    );
    assert!(!told.contains("sk-none"), "{told}");
}
