//! The store that a test runs against, of the layout that `TIDEGATE_TEST_STORE` says: `single`, `cluster` or `sentinel`.

use crate::config::{StoreConfig, StoreMode, StoreUrl};
use crate::local::{LocalCluster, LocalOptions, LocalSentinel, LocalServer, MASTER_NAME};

/// A store of private servers. It ends with this value.
pub(crate) enum Place {
    Single(LocalServer),
    Cluster(LocalCluster),
    Sentinel(LocalSentinel),
}

impl Place {
    /// Starts the layout that was asked for; one node where none was.
    pub(crate) fn start(options: LocalOptions) -> Self {
        match std::env::var("TIDEGATE_TEST_STORE").as_deref() {
            Err(_) | Ok("" | "single") => Self::Single(LocalServer::start(options).unwrap()),
            Ok("cluster") => Self::Cluster(LocalCluster::start(3, 0, &options).unwrap()),
            Ok("sentinel") => Self::Sentinel(LocalSentinel::start(1, &options).unwrap()),
            Ok(other) => panic!("TIDEGATE_TEST_STORE is {other:?}"),
        }
    }

    /// How to reach it.
    pub(crate) fn config(&self) -> StoreConfig {
        let (mode, url) = match self {
            Self::Single(server) => (StoreMode::Single, server.url()),
            Self::Cluster(cluster) => (StoreMode::Cluster, cluster.url()),
            Self::Sentinel(sentinel) => (StoreMode::Sentinel, sentinel.url()),
        };
        StoreConfig {
            url: StoreUrl::new(url),
            mode,
            master_name: MASTER_NAME.into(),
            ..StoreConfig::default()
        }
    }

    /// Its servers, the Sentinels apart.
    pub(crate) fn servers(&mut self) -> &mut [LocalServer] {
        match self {
            Self::Single(server) => std::slice::from_mut(server),
            Self::Cluster(cluster) => cluster.nodes(),
            Self::Sentinel(sentinel) => sentinel.servers(),
        }
    }

    /// Kills every server.
    pub(crate) fn kill(&mut self) {
        self.servers().iter_mut().for_each(LocalServer::kill);
    }

    /// Starts them again on the same data.
    pub(crate) fn restart(&mut self) {
        for server in self.servers() {
            server.restart().unwrap();
        }
    }
}
