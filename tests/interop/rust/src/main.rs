//! A rust-libp2p peer with gossipsub as a process: one request a line of JSON on stdin, `{op, …}`, one answer a line on stdout,
//! `{result}` or `{error}`, as the programs beside it in JavaScript and Go. Messages come back as their SHA-256.

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use futures::StreamExt;
use libp2p::gossipsub::{self, IdentTopic, MessageAuthenticity, MessageId, ValidationMode};
use libp2p::swarm::{NetworkBehaviour, SwarmEvent};
use libp2p::{identify, identity::Keypair, noise, ping, tcp, yamux, Multiaddr, Swarm, SwarmBuilder};
use serde_json::{json, Value};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

type Fault = Box<dyn Error + Send + Sync>;

#[derive(NetworkBehaviour)]
struct Behaviour {
    gossipsub: gossipsub::Behaviour,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
}

struct Node {
    swarm: Swarm<Behaviour>,
    listening: Vec<String>,
    received: Vec<String>,
    identified: HashMap<String, Value>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Fault> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut output = tokio::io::stdout();
    let mut node = Node::start()?;
    loop {
        tokio::select! {
            line = lines.next_line() => {
                let Some(line) = line? else { return Ok(()) };
                let request: Value = serde_json::from_str(&line)?;
                let answer = match node.answer(&request) {
                    Ok(result) => json!({ "result": result }),
                    Err(error) => json!({ "error": error.to_string() }),
                };
                output.write_all(format!("{answer}\n").as_bytes()).await?;
                output.flush().await?;
            }
            event = node.swarm.select_next_some() => node.take(event),
        }
    }
}

impl Node {
    fn start() -> Result<Self, Fault> {
        let swarm = SwarmBuilder::with_existing_identity(Keypair::generate_ed25519())
            .with_tokio()
            .with_tcp(tcp::Config::default(), noise::Config::new, yamux::Config::default)?
            .with_behaviour(|key| {
                let config = gossipsub::ConfigBuilder::default()
                    .validation_mode(ValidationMode::Anonymous)
                    .message_id_fn(|message| MessageId::from(Sha256::digest(&message.data).to_vec()))
                    .build()?;
                Ok::<_, Fault>(Behaviour {
                    gossipsub: gossipsub::Behaviour::new(MessageAuthenticity::Anonymous, config)?,
                    identify: identify::Behaviour::new(identify::Config::new("interop/1".into(), key.public())),
                    ping: ping::Behaviour::default(),
                })
            })?
            .with_swarm_config(|config| config.with_idle_connection_timeout(Duration::from_secs(600)))
            .build();
        Ok(Node { swarm, listening: vec![], received: vec![], identified: HashMap::new() })
    }

    fn answer(&mut self, request: &Value) -> Result<Value, Fault> {
        let text = |name: &str| request[name].as_str().ok_or(format!("no {name}"));
        match text("op")? {
            "start" => {
                for address in request["listen"].as_array().into_iter().flatten() {
                    self.swarm.listen_on(address.as_str().unwrap_or_default().parse()?)?;
                }
            }
            "startPubsub" => {
                let topic = IdentTopic::new(text("topic")?);
                let gossipsub = &mut self.swarm.behaviour_mut().gossipsub;
                if request["partial"].as_bool().unwrap_or(false) {
                    gossipsub.enable_partials_for_topic(topic.hash(), true);
                }
                gossipsub.subscribe(&topic)?;
            }
            "dial" => self.swarm.dial(text("address")?.parse::<Multiaddr>()?)?,
            "publish" => {
                let topic = IdentTopic::new(text("topic")?);
                self.swarm.behaviour_mut().gossipsub.publish(topic, hex::decode(text("data")?)?)?;
            }
            "state" => {}
            other => return Err(format!("unknown op {other}").into()),
        }
        Ok(self.state())
    }

    fn state(&self) -> Value {
        let peers = self.swarm.behaviour().gossipsub.all_peers();
        let subscribers: Vec<_> = peers.filter(|(_, topics)| !topics.is_empty()).map(|(peer, _)| peer.to_string()).collect();
        json!({
            "peer": self.swarm.local_peer_id().to_string(),
            "addresses": self.listening,
            "subscribers": subscribers,
            "received": self.received,
            "identified": self.identified,
        })
    }

    fn take(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::NewListenAddr { address, .. } => {
                self.listening.push(format!("{address}/p2p/{}", self.swarm.local_peer_id()));
            }
            SwarmEvent::Behaviour(BehaviourEvent::Gossipsub(gossipsub::Event::Message { message, .. })) => {
                self.received.push(hex::encode(Sha256::digest(&message.data)));
            }
            SwarmEvent::Behaviour(BehaviourEvent::Identify(identify::Event::Received { peer_id, info, .. })) => {
                let seen = json!({ "observed": info.observed_addr.to_string(), "agent": info.agent_version });
                self.identified.insert(peer_id.to_string(), seen);
            }
            _ => {}
        }
    }
}
