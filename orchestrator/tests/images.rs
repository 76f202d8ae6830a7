//! Images in use on an engine that loses them when told to.

use std::{path::PathBuf, sync::Arc};

use mayfly_domain::{AgentId, BaseId, InstallationId, SandboxRef, ThreadKey};
use mayfly_orchestrator::{
    clock::{Lease, unix_ms},
    db::{Db, Place, agents::Agent},
    images::Images,
    sandbox::{Backend, BackendError, BaseFacts, fake::Fake},
    supervise::Supervisor,
    worker::host_disk::{DiskConfig, HostDisk},
};

struct Stage {
    dir: tempfile::TempDir,
    db: Db,
    fake: Arc<Fake>,
    installation: InstallationId,
    image: String,
}

impl Stage {
    /// One agent on one image.
    async fn new() -> (Stage, AgentId) {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(&Place::embedded(dir.path())).await.unwrap();
        let fake = Arc::new(Fake::new(Supervisor::default(), Lease::default()));
        let reference: SandboxRef = "docker:some/image".parse().unwrap();
        let image = fake.resolve(&reference).await.unwrap().id;
        let installation = InstallationId::new();
        let facts = BaseFacts {
            uid: 1000,
            gid: 1000,
            notes: Vec::new(),
        };
        let base = BaseId::new();
        db.insert_base(&base, &image, &facts).await.unwrap();
        let agent = Agent {
            id: AgentId::new(),
            profile: "shell".into(),
            sandbox: None,
            image: image.clone(),
            base,
            head: None,
            forked_from: None,
            created_at: unix_ms(),
        };
        let thread = ThreadKey::local(installation, agent.id);
        db.insert_agent(&agent, &thread).await.unwrap();
        let stage = Stage {
            dir,
            db,
            fake,
            installation,
            image,
        };
        (stage, agent.id)
    }

    /// As a fresh start has it.
    fn images(&self) -> Images {
        self.images_with(0)
    }

    fn images_with(&self, floor_mib: u64) -> Images {
        let config = DiskConfig {
            floor_mib,
            ballast_mib: 0,
        };
        let disk = HostDisk::new(self.dir.path().to_owned(), config);
        let backend = self.fake.clone();
        let dir = self.dir.path();
        Images::new(self.db.clone(), backend, self.installation, dir, disk)
    }

    fn archive(&self) -> PathBuf {
        let name = format!("images/{}.tar", &self.image[7..19]);
        self.dir.path().join(name)
    }

    /// The agent was made long ago.
    async fn settled(&self) {
        let path = self.dir.path().join("mayfly.db");
        let output = std::process::Command::new("sqlite3")
            .arg(path)
            .arg("PRAGMA busy_timeout = 5000; UPDATE bases SET created_at = 0")
            .output()
            .expect("sqlite3");
        assert!(output.status.success(), "{output:?}");
    }

    fn kept(&self) -> Vec<String> {
        self.fake.kept(self.installation)
    }

    fn lose(&self) {
        self.fake
            .script(|script| script.lost.extend([self.image.clone()]));
    }

    async fn resolve(&self) -> Result<String, BackendError> {
        let reference: SandboxRef = format!("docker:{}", self.image).parse().unwrap();
        let image = self.images().resolve(&reference).await?;
        assert_eq!(image.id, self.image);
        Ok(image.id)
    }
}

#[tokio::test]
async fn an_image_that_no_registry_has_is_archived_once_and_brought_back() {
    let (stage, _) = Stage::new().await;
    let images = stage.images();
    images.keep(true).await.unwrap();
    assert_eq!(stage.kept(), [&*stage.image]);
    assert!(!stage.archive().exists(), "the first message comes first");

    stage.settled().await;
    images.keep(true).await.unwrap();
    assert!(stage.archive().exists());
    let written = std::fs::metadata(stage.archive()).unwrap().modified();
    images.keep(true).await.unwrap();
    images.forget().await.unwrap();
    let now = std::fs::metadata(stage.archive()).unwrap().modified();
    assert_eq!(written.unwrap(), now.unwrap());

    stage.lose();
    stage.fake.release(stage.installation, &[]).await.unwrap();
    images.keep(true).await.unwrap();
    assert_eq!(stage.kept(), Vec::<String>::new());
    stage.resolve().await.unwrap();
    assert_eq!(stage.kept(), [&*stage.image]);
}

#[tokio::test]
async fn many_who_ask_at_once_bring_it_back_once() {
    let (stage, _) = Stage::new().await;
    stage.settled().await;
    let images = stage.images();
    images.keep(true).await.unwrap();
    stage.lose();
    let reference: SandboxRef = format!("docker:{}", stage.image).parse().unwrap();
    let asking = (0..8).map(|_| images.resolve(&reference));
    for found in futures_util::future::join_all(asking).await {
        assert_eq!(found.unwrap().id, stage.image);
    }
}

#[tokio::test]
async fn a_reference_with_name_and_id_is_brought_back_by_its_id() {
    let (stage, _) = Stage::new().await;
    stage.settled().await;
    stage.images().keep(true).await.unwrap();
    stage.lose();
    let name = "docker:some/image".parse().unwrap();
    let error = stage.images().resolve(&name).await.unwrap_err();
    assert!(matches!(error, BackendError::NoImage(_)), "{error}");
    let both = format!("docker:some/image@{}", stage.image)
        .parse()
        .unwrap();
    assert_eq!(stage.images().resolve(&both).await.unwrap().id, stage.image);
}

#[tokio::test]
async fn without_an_archive_or_with_a_wrong_one_the_image_stays_missing() {
    let (stage, _) = Stage::new().await;
    stage.lose();
    let error = stage.resolve().await.unwrap_err();
    assert!(matches!(error, BackendError::NoImage(_)), "{error}");
    std::fs::create_dir(stage.archive().parent().unwrap()).unwrap();
    std::fs::write(stage.archive(), "sha256:other").unwrap();
    let error = stage.resolve().await.unwrap_err();
    assert!(matches!(error, BackendError::NoImage(_)), "{error}");
}

#[tokio::test]
async fn what_a_registry_has_is_not_archived_and_comes_from_there() {
    let (stage, _) = Stage::new().await;
    stage.settled().await;
    stage.fake.script(|script| script.registry = true);
    stage.images().keep(true).await.unwrap();
    assert!(!stage.archive().exists());
    stage.lose();
    stage.resolve().await.unwrap();
}

#[tokio::test]
async fn no_archive_is_written_below_the_floor_or_too_early_on_a_busy_host() {
    let (stage, _) = Stage::new().await;
    stage.settled().await;
    stage.images_with(1 << 30).keep(true).await.unwrap();
    assert!(!stage.archive().exists());
    stage.images().keep(false).await.unwrap();
    assert!(stage.archive().exists(), "it cannot wait for ever");
}

#[tokio::test]
async fn what_no_agent_needs_is_forgotten_and_half_archives_too() {
    let (stage, agent) = Stage::new().await;
    stage.settled().await;
    stage.images().keep(true).await.unwrap();
    let half = stage.archive().with_extension("part");
    std::fs::write(&half, "x").unwrap();
    stage.images().forget().await.unwrap();
    assert!(stage.archive().exists() && !half.exists());

    let asked = stage.images();
    let reference = format!("docker:{}", stage.image).parse().unwrap();
    asked.resolve(&reference).await.unwrap();
    assert!(stage.db.remove_agent(agent).await.unwrap());
    asked.forget().await.unwrap();
    assert!(stage.archive().exists(), "somebody just asked for it");
    stage.images().forget().await.unwrap();
    assert!(!stage.archive().exists());
    assert_eq!(stage.kept(), Vec::<String>::new());
}

#[tokio::test]
async fn an_engine_that_is_down_forgets_nothing() {
    let (stage, _) = Stage::new().await;
    stage.settled().await;
    stage.images().keep(true).await.unwrap();
    stage.fake.script(|script| script.down = true);
    assert!(stage.images().keep(true).await.is_err());
    assert!(stage.images().forget().await.is_err());
    assert!(stage.archive().exists());
    assert!(matches!(
        stage.resolve().await.unwrap_err(),
        BackendError::Down { .. }
    ));
}
