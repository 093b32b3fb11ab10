//! Writes first inputs for every fuzz target into `seeds/`: from the frozen bytes, the golden scripts and the
//! policy files of the other crates. `cargo run --example seeds`.

mod script;

use prost::Message;
use script::Script;
use std::error::Error;
use std::path::{Path, PathBuf};
use weir_admission::{Operation, Stamp, State};
use weir_fuzz::plan::Plan;
use weir_fuzz::wire::{Request, request};
use weir_fuzz::{client_frame, peer_frame, policy_file, snapshot, stored};
use weir_proto::peer::v1::Envelope;
use weir_proto::stored::{decode_batch, encode_batch};
use weir_proto::v1;
use weir_proto::v1::session_operation::Operation as Wire;
use weir_raft::seam::{self, PeerBody, VERSION};
use weir_raft::snapshot::Loaded;
use weir_raft::types::{SnapshotMeta, StoredMembership};

type Failure = Box<dyn Error>;

/// Bytes of a piece of a snapshot.
const PIECE_BYTES: usize = 250;

fn main() -> Result<(), Failure> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = fuzz.parent().ok_or("no root")?;
    let seeds = Seeds {
        dir: fuzz.join("seeds"),
    };
    let state = State::decode(&std::fs::read(
        root.join("admission/tests/fixtures/state_v1.bin"),
    )?)?;
    seeds.state("frozen", &state)?;
    for (name, bytes) in files(&root.join("proto/tests/fixtures/v1"))? {
        seeds.put(
            "stored",
            &name,
            Some(kind(&stored::KINDS, stored::Kind::Batch)),
            &bytes,
        )?;
        let (_, operations) = decode_batch(&bytes)?;
        seeds.operations(&name, &operations)?;
        if name.starts_with("mixed") {
            seeds.peers(&bytes, &state)?;
        }
    }
    for (name, text) in files(&root.join("admission/tests/scripts"))? {
        seeds.script(&name, &String::from_utf8(text)?)?;
    }
    for file in ["deploy/config/policy.toml", "node/src/dev/sample.toml"] {
        let name = file.replace('/', "-");
        seeds.put("policy_file", &name, None, &std::fs::read(root.join(file))?)?;
    }
    Ok(())
}

/// Files of a directory, in order of their names.
fn files(dir: &Path) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().ok_or("no name")?.to_string_lossy();
        files.push((name.into_owned(), std::fs::read(&path)?));
    }
    files.sort();
    Ok(files)
}

/// The byte that stands for a kind.
fn kind<T: PartialEq>(kinds: &[T], kind: T) -> u8 {
    let place = kinds.iter().position(|listed| *listed == kind);
    place.map_or(0, |place| place as u8)
}

struct Seeds {
    dir: PathBuf,
}

impl Seeds {
    fn put(&self, target: &str, name: &str, kind: Option<u8>, bytes: &[u8]) -> Result<(), Failure> {
        let dir = self.dir.join(target);
        std::fs::create_dir_all(&dir)?;
        let bytes: Vec<u8> = kind.into_iter().chain(bytes.iter().copied()).collect();
        Ok(std::fs::write(dir.join(name), bytes)?)
    }

    fn state(&self, name: &str, state: &State) -> Result<(), Failure> {
        let of = |of| Some(kind(&snapshot::KINDS, of));
        let bytes = state.encode();
        self.put("snapshot", name, of(snapshot::Kind::State), &bytes)?;
        let loaded = Loaded {
            meta: SnapshotMeta {
                last_log_id: None,
                last_membership: StoredMembership::default(),
            },
            state: bytes.into(),
        };
        let meta = seam::meta_of(&loaded)?;
        let file = seam::file_of(&meta, &loaded.state)?;
        let name = format!("{name}-file");
        self.put("snapshot", &name, of(snapshot::Kind::File), &file)?;
        let body = [&[u8::try_from(meta.len())?], &meta[..], &loaded.state].concat();
        let name = format!("{name}-body");
        self.put("snapshot", &name, of(snapshot::Kind::Body), &body)
    }

    /// What clients and operators send.
    fn operations(&self, name: &str, operations: &[Operation]) -> Result<(), Failure> {
        let of = |of| Some(kind(&client_frame::KINDS, of));
        let mut frame = v1::ClientFrame::default();
        for (number, operation) in (1..).zip(operations) {
            match request(operation) {
                Some(Request::Session(wire)) => {
                    let (kind, unary) = unary(&wire);
                    self.put(
                        "client_frame",
                        &format!("{name}-{number}"),
                        of(kind),
                        &unary,
                    )?;
                    frame.operations.push(v1::SessionOperation {
                        sequence: number,
                        timeout_us: 0,
                        operation: Some(wire),
                    });
                }
                Some(Request::Put(put)) => {
                    let bytes = put.encode_to_vec();
                    self.put("client_frame", name, of(client_frame::Kind::Put), &bytes)?;
                    if let Some(policy) = &put.policy {
                        let file = policy_file::file(&put.target, policy);
                        self.put("policy_file", name, None, file.as_bytes())?;
                    }
                }
                Some(Request::Delete(delete)) => {
                    let bytes = delete.encode_to_vec();
                    self.put("client_frame", name, of(client_frame::Kind::Delete), &bytes)?;
                }
                None => {}
            }
        }
        let message = v1::session_request::Message::Frame(frame);
        let request = v1::SessionRequest {
            message: Some(message),
        };
        let name = format!("{name}-frame");
        let bytes = request.encode_to_vec();
        self.put(
            "client_frame",
            &name,
            of(client_frame::Kind::Session),
            &bytes,
        )
    }

    fn peers(&self, batch: &[u8], state: &State) -> Result<(), Failure> {
        let of = |of| Some(kind(&peer_frame::KINDS, of));
        let state = state.encode();
        for (body, bytes) in seam::samples(batch.to_vec().into(), &state)? {
            let name = format!("{body:?}");
            self.put(
                "peer_frame",
                &name,
                of(peer_frame::Kind::Body(body)),
                &bytes,
            )?;
            let envelope = Envelope {
                cluster_id: "c".into(),
                from: 2,
                to: 1,
                group: 0,
                version: VERSION,
                sequence: kind(&PeerBody::ALL, body).into(),
                body: bytes.clone(),
                directory: 1,
            };
            let (name, envelope) = (format!("{name}-envelope"), envelope.encode_to_vec());
            self.put(
                "peer_frame",
                &name,
                of(peer_frame::Kind::Envelope),
                &envelope,
            )?;
            if body == PeerBody::SnapshotHeader {
                let pieces = std::iter::once(&bytes[..]).chain(state.chunks(PIECE_BYTES));
                let pieces: Vec<u8> = pieces
                    .flat_map(|piece| [&[piece.len() as u8], piece].concat())
                    .collect();
                self.put(
                    "peer_frame",
                    "pieces",
                    of(peer_frame::Kind::Snapshot),
                    &pieces,
                )?;
            }
            if body == PeerBody::Append {
                for (number, entry) in seam::appended(VERSION, &bytes)?.iter().enumerate() {
                    let record = seam::record_of(entry).ok_or("no record")?;
                    let of = kind(&stored::KINDS, stored::Kind::Record);
                    self.put("stored", &format!("record-{number}"), Some(of), &record)?;
                }
            }
        }
        let hard = seam::hard_state().ok_or("no hard state")?;
        let of = kind(&stored::KINDS, stored::Kind::HardState);
        self.put("stored", "hard-state", Some(of), &hard)
    }

    /// A golden script as a plan, what it says to a node, and the state it ends in.
    fn script(&self, name: &str, text: &str) -> Result<(), Failure> {
        let bytes = Script::plan(text)?;
        self.put("apply", name, None, &bytes)?;
        let mut plan = Plan::new(&bytes);
        let (mut state, mut operations) = (State::default(), Vec::new());
        while let Some(entry) = plan.entry() {
            plan.note(&state.apply(entry.index, entry.stamp, &entry.batch));
            operations.extend(entry.batch);
        }
        self.state(name, &state)?;
        self.operations(name, &operations)?;
        let batch = encode_batch(Stamp::ZERO, &operations)?;
        let of = kind(&stored::KINDS, stored::Kind::Batch);
        self.put("stored", name, Some(of), &batch)
    }
}

/// An operation of a session as a unary call.
fn unary(wire: &Wire) -> (client_frame::Kind, Vec<u8>) {
    match wire {
        Wire::Admit(request) => (client_frame::Kind::Admit, request.encode_to_vec()),
        Wire::Release(request) => (client_frame::Kind::Release, request.encode_to_vec()),
        Wire::Cancel(request) => (client_frame::Kind::Cancel, request.encode_to_vec()),
        Wire::Extend(request) => (client_frame::Kind::Extend, request.encode_to_vec()),
        Wire::Report(call) => {
            let request = v1::ReportRequest {
                calls: vec![call.clone()],
            };
            (client_frame::Kind::Report, request.encode_to_vec())
        }
    }
}
