//! Layouts of the store: one node, a cluster, or behind Sentinel.

use std::path::PathBuf;

use tidegate_shared::local::{LocalCluster, LocalOptions, LocalSentinel, LocalServer, MASTER_NAME};

use crate::rig::Rig;
use crate::wait::{LONG, until};

/// How the store of a rig is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One node.
    #[default]
    Single,
    /// Three primaries, each with a replica.
    Cluster,
    /// A primary with two replicas, and three Sentinels.
    Sentinel,
}

impl Layout {
    /// What `TIDEGATE_TEST_STORE` says; one node where it says nothing.
    ///
    /// # Panics
    /// When it says something else.
    pub fn asked() -> Self {
        match std::env::var("TIDEGATE_TEST_STORE").as_deref() {
            Err(_) | Ok("" | "single") => Self::Single,
            Ok("cluster") => Self::Cluster,
            Ok("sentinel") => Self::Sentinel,
            Ok(other) => panic!("TIDEGATE_TEST_STORE is {other:?}"),
        }
    }

    pub(crate) fn mode(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Cluster => "cluster",
            Self::Sentinel => "sentinel",
        }
    }
}

/// The servers of a layout other than one node.
#[derive(Debug)]
pub(crate) enum Servers {
    Cluster(LocalCluster),
    Sentinel(LocalSentinel),
}

impl Servers {
    pub(crate) fn start(layout: Layout, options: &LocalOptions) -> Option<Self> {
        Some(match layout {
            Layout::Single => return None,
            Layout::Cluster => {
                Self::Cluster(LocalCluster::start(3, 1, options).expect("a private cluster"))
            }
            Layout::Sentinel => {
                Self::Sentinel(LocalSentinel::start(2, options).expect("private Sentinels"))
            }
        })
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Cluster(cluster) => cluster.url(),
            Self::Sentinel(sentinel) => sentinel.url(),
        }
    }

    pub(crate) fn all(&mut self) -> &mut [LocalServer] {
        match self {
            Self::Cluster(cluster) => cluster.nodes(),
            Self::Sentinel(sentinel) => sentinel.servers(),
        }
    }
}

fn is_primary(server: &LocalServer) -> bool {
    let role = server.ask("ROLE").unwrap_or_default();
    role.lines().next() == Some("master")
}

impl Rig {
    /// Makes a replica the primary of the pool's keys: in a cluster by agreement, behind Sentinel by killing the primary,
    /// which comes back as a replica. Returns once another serves.
    ///
    /// # Panics
    /// When there is no other, or it takes too long.
    pub async fn lose_primary(&mut self) {
        let servers = self.servers.as_mut().expect("one node has no other");
        let by_agreement = matches!(servers, Servers::Cluster(_));
        let all = servers.all();
        let has_pool = |server: &LocalServer| {
            let keys = server.ask("EXISTS tg1:{default}:pool");
            is_primary(server) && keys.is_ok_and(|count| count == "1")
        };
        let old = all.iter().position(has_pool).expect("the pool is there");
        if by_agreement {
            // Each replica follows the primary three places before it, and takes its place back from there.
            let heir = (old + 3) % 6;
            all[heir].ask("CLUSTER FAILOVER").expect("it follows");
        } else {
            all[old].kill();
        }
        until(LONG, "another serves", async || {
            let other = all
                .iter()
                .enumerate()
                .find(|(at, server)| *at != old && has_pool(server));
            other.map(|_| ())
        })
        .await;
        if !by_agreement {
            tokio::task::block_in_place(|| all[old].restart()).expect("it starts again");
        }
    }

    /// The address of the store for commands of the line.
    pub(crate) fn store_list(&self) -> String {
        match &self.servers {
            None => self.store.url(),
            Some(servers) => servers.url(),
        }
    }

    /// Arguments of the store's own client, for each server with keys of ours.
    pub(crate) fn redis_at(&mut self) -> Vec<Vec<String>> {
        let Some(servers) = &mut self.servers else {
            let socket: PathBuf = self.store.url().trim_start_matches("unix://").into();
            return vec![vec!["-s".into(), socket.display().to_string()]];
        };
        let primaries = servers.all().iter().filter(|server| is_primary(server));
        primaries
            .map(|server| vec!["-u".into(), server.url()])
            .collect()
    }

    /// How the program is told of the layout.
    pub(crate) fn layout_env(&self) -> [(&'static str, &'static str); 2] {
        let mode = self.options.layout.mode();
        // Only Sentinels have a name for it.
        let name = match self.options.layout {
            Layout::Sentinel => MASTER_NAME,
            Layout::Single | Layout::Cluster => "mymaster",
        };
        [
            ("TIDEGATE_STORE__MODE", mode),
            ("TIDEGATE_STORE__MASTER_NAME", name),
        ]
    }
}
