//! What several processes share, each behind a network that can be cut.

use std::net::TcpListener;

use mayfly_tests::{
    cutter::Cutter, postgres::Cluster, redis_server::RedisServer, s3_server::S3Server,
    server::Server,
};

const DATABASE: &str = "matrix";

/// See the module.
pub(crate) struct Stores {
    pub(crate) postgres: Cluster,
    pub(crate) redis: RedisServer,
    /// Of layers and files.
    objects: S3Server,
    pub(crate) to_postgres: Cutter,
    pub(crate) to_redis: Cutter,
    pub(crate) to_objects: Cutter,
}

impl Stores {
    pub(crate) fn start() -> Stores {
        let [postgres_port, redis_port] = [free_port(), free_port()];
        let listen = [
            "listen_addresses=127.0.0.1",
            &format!("port={postgres_port}"),
        ];
        let postgres = Cluster::start(&listen);
        postgres.database(DATABASE);
        let redis = RedisServer::start(&["--port", &redis_port, "--bind", "127.0.0.1"]);
        let objects = S3Server::start();
        Stores {
            to_postgres: Cutter::before(&format!("127.0.0.1:{postgres_port}")),
            to_redis: Cutter::before(&format!("127.0.0.1:{redis_port}")),
            to_objects: Cutter::before(objects.address()),
            postgres,
            redis,
            objects,
        }
    }

    /// The database, past its network.
    pub(crate) fn rows(&self) -> String {
        self.postgres.url(DATABASE)
    }

    pub(crate) fn used_by(&self, server: Server) -> Server {
        let database = format!(
            "postgres://mayfly@{}/{DATABASE}",
            self.to_postgres.address()
        );
        let queue = format!("redis://{}", self.to_redis.address());
        let objects = self.objects.config(self.to_objects.address());
        server
            .env("MAYFLY__DATABASE__URL", &database)
            .env("MAYFLY__QUEUE__URL", &queue)
            .env("MAYFLY__STORE__URL", &objects.url)
            .env("MAYFLY__STORE__ENDPOINT", &objects.endpoint)
            .env("MAYFLY__STORE__ACCESS_KEY_ID", &objects.access_key_id)
            .env(
                "MAYFLY__STORE__SECRET_ACCESS_KEY",
                &objects.secret_access_key,
            )
    }
}

fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener
        .local_addr()
        .expect("it has an address")
        .port()
        .to_string()
}
