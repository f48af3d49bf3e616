//! A Redis Cluster of private servers on loopback.

use std::time::Duration;

use super::{LocalError, LocalOptions, LocalServer};

/// A node that is silent so long is taken for dead.
const NODE_TIMEOUT_MS: &str = "1000";
/// A cluster that does not agree by then has failed.
const AGREE_TIMEOUT: Duration = Duration::from_secs(20);
const SLOTS: usize = 16_384;

/// A running cluster. It ends with this value.
#[derive(Debug)]
pub struct LocalCluster {
    nodes: Vec<LocalServer>,
    primaries: usize,
}

impl LocalCluster {
    /// Starts so many primaries, each with so many replicas, and waits until all of them agree. Ports are chosen here,
    /// whatever `options` say. Blocks.
    ///
    /// # Errors
    /// Where no server is installed, one does not start, or they do not agree.
    pub fn start(
        primaries: usize,
        replicas: usize,
        options: &LocalOptions,
    ) -> Result<Self, LocalError> {
        let mut nodes = Vec::new();
        for _ in 0..primaries * (1 + replicas) {
            nodes.push(node(options)?);
        }
        let cluster = Self { nodes, primaries };
        for (number, node) in cluster.nodes.iter().enumerate() {
            node.ask(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1))?;
            if number < primaries {
                let first = SLOTS * number / primaries;
                let last = SLOTS * (number + 1) / primaries - 1;
                node.ask(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"))?;
            }
            let (port, bus) = ports(node);
            cluster.nodes[0].ask(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"))?;
        }
        cluster.agree()?;
        for number in primaries..cluster.nodes.len() {
            let primary = cluster.nodes[number % primaries].ask("CLUSTER MYID")?;
            let replicate = format!("CLUSTER REPLICATE {primary}");
            cluster.nodes[number].ask(&replicate)?;
        }
        cluster.wait("replicas follow", |node| {
            let text = node.ask("INFO replication").unwrap_or_default();
            text.contains("role:master") || text.contains("master_link_status:up")
        })?;
        Ok(cluster)
    }

    /// Addresses of all nodes for `store.url`.
    pub fn url(&self) -> String {
        let urls: Vec<String> = self.nodes.iter().map(LocalServer::url).collect();
        urls.join(",")
    }

    /// The nodes: first the first primaries, then their replicas, in turn.
    pub fn nodes(&mut self) -> &mut [LocalServer] {
        &mut self.nodes
    }

    /// The first primaries.
    pub fn primaries(&self) -> usize {
        self.primaries
    }

    fn agree(&self) -> Result<(), LocalError> {
        let (slots, known) = (
            format!("cluster_slots_ok:{SLOTS}\r"),
            format!("cluster_known_nodes:{}\r", self.nodes.len()),
        );
        self.wait("the cluster agrees", |node| {
            let text = node.ask("CLUSTER INFO").unwrap_or_default();
            text.contains("cluster_state:ok") && text.contains(&slots) && text.contains(&known)
        })
    }

    fn wait(&self, what: &str, there: impl Fn(&LocalServer) -> bool) -> Result<(), LocalError> {
        super::wait(what, AGREE_TIMEOUT, || self.nodes.iter().all(&there))
    }
}

fn node(options: &LocalOptions) -> Result<LocalServer, LocalError> {
    super::with_ports(|[port, bus]: [u16; 2]| {
        let mut options = options.clone();
        options.port = Some(port);
        for (name, value) in [
            ("cluster-enabled", "yes"),
            ("cluster-config-file", "nodes.conf"),
            ("cluster-node-timeout", NODE_TIMEOUT_MS),
            ("cluster-port", &bus.to_string()),
        ] {
            options.settings.push((name.into(), value.into()));
        }
        LocalServer::start(options)
    })
}

fn ports(node: &LocalServer) -> (u16, String) {
    let bus = node
        .options
        .settings
        .iter()
        .find(|(name, _)| name == "cluster-port");
    (
        node.options.port.unwrap_or_default(),
        bus.map(|(_, port)| port.clone()).unwrap_or_default(),
    )
}
