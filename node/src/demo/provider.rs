//! A mock provider on loopback: an OpenAI-shaped chat endpoint with requests and tokens per window.
//!
//! It differs from a real one in three ways. Tokens are counted as bytes over four, not by a tokenizer.
//! What a call will complete to is drawn when it arrives and counted at once, so that its books are exact
//! at every instant. And there is one limit for everybody, not one per model. It keeps the books that the
//! report is made from.

use super::book::{Book, Counts};
use super::limits::{LABEL_BYTES_MAX, REQUEST_BYTES_MAX};
use super::window::{Limiter, Verdict, Window, WindowKind};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What the provider enforces and how fast it is.
#[derive(Clone, Debug)]
pub struct ProviderConfig {
    /// Calls per window.
    pub cap_requests: u64,
    /// Tokens per window.
    pub cap_tokens: u64,
    /// Length of the window.
    pub window: Duration,
    /// How the window moves.
    pub kind: WindowKind,
    /// True if a call answered with 429 counts as a request.
    pub rejected_counts: bool,
    /// Shortest and longest service time; each call draws between them.
    pub latency: (Duration, Duration),
    /// Least and most of `max_tokens` that a completion takes, in percent.
    pub completion_percent: (u64, u64),
    /// Seed of service times, completions and of the phase of fixed windows.
    pub seed: u64,
}

/// A running provider. It stops when it is dropped.
#[derive(Debug)]
pub struct Provider {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    config: ProviderConfig,
    epoch: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    book: Book,
    draws: StdRng,
    calls: u64,
}

impl Provider {
    /// Serves on a free loopback port, on a thread of its own so that a busy fleet does not blur its
    /// clock.
    pub fn start(config: ProviderConfig) -> io::Result<Provider> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared::new(config));
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("provider".into())
            .spawn(move || {
                if let Err(error) = runtime.block_on(serve(listener, served, stopped)) {
                    tracing::error!(%error, "the mock provider stopped");
                }
            })?;
        Ok(Provider {
            address,
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its books so far.
    pub fn counts(&self) -> Counts {
        self.shared.lock().book.counts()
    }

    /// The instant from which its seconds count.
    pub fn epoch(&self) -> Instant {
        self.shared.epoch
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The other side is gone only if the server has stopped by itself.
            let _stopped = stop.send(());
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the mock provider's thread panicked");
        }
    }
}

async fn serve(
    listener: std::net::TcpListener,
    shared: Arc<Shared>,
    stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::warn!(%error, "no TCP_NODELAY");
        }
    });
    let app = Router::new()
        .route("/v1/chat/completions", post(complete))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(shared);
    tokio::select! {
        served = axum::serve(listener, app).into_future() => served,
        _ = stopped => Ok(()),
    }
}

impl Shared {
    fn new(config: ProviderConfig) -> Shared {
        let mut draws = StdRng::seed_from_u64(config.seed);
        let period_us = micros(config.window);
        let phase_us = draws.random_range(0..period_us.max(1));
        let window = |cap| Window::new(config.kind, cap, period_us, phase_us);
        let book = Book::new(Limiter {
            requests: window(config.cap_requests),
            tokens: window(config.cap_tokens),
            rejected_counts: config.rejected_counts,
        });
        let inner = Mutex::new(Inner {
            book,
            draws,
            calls: 0,
        });
        Shared {
            config,
            epoch: Instant::now(),
            inner,
        }
    }

    /// The books are plain counters: they stay true whatever happened to a thread that held them.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one call at this instant and decides it.
    fn arrive(&self, request: &ChatRequest, prompt_tokens: u64) -> Arrival {
        let (least, most) = self.config.completion_percent;
        let (shortest, longest) = self.config.latency;
        let inner = &mut *self.lock();
        let percent = inner.draws.random_range(least..=most.max(least));
        let completion_tokens = (request.max_tokens * percent / 100).max(1);
        let service = inner.draws.random_range(shortest..=longest.max(shortest));
        inner.calls += 1;
        // Read under the lock: arrivals are counted in the order of their times.
        let now = micros(self.epoch.elapsed());
        let tokens = prompt_tokens + completion_tokens;
        let (tenant, priority) = (label(&request.user), label(&request.metadata.priority));
        let verdict = inner.book.arrive(now, tenant, priority, tokens);
        let headers = limit_headers(inner.book.limiter(), now);
        Arrival {
            verdict,
            completion_tokens,
            service,
            headers,
            number: inner.calls,
        }
    }
}

/// One call after it was counted.
struct Arrival {
    verdict: Verdict,
    completion_tokens: u64,
    service: Duration,
    headers: HeaderMap,
    number: u64,
}

#[derive(Deserialize)]
struct ChatRequest {
    model: String,
    messages: Vec<Message>,
    max_tokens: u64,
    #[serde(default)]
    user: String,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Message {
    content: String,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    priority: String,
}

/// Tokens that the provider counts for a prompt of this many bytes.
pub fn prompt_tokens(content_bytes: usize) -> u64 {
    u64::try_from(content_bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

async fn complete(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let request: ChatRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return bad_request(&error.to_string()),
    };
    if request.max_tokens == 0 || request.max_tokens > REQUEST_BYTES_MAX as u64 {
        return bad_request("max_tokens is out of range");
    }
    let prompt = request
        .messages
        .iter()
        .map(|message| prompt_tokens(message.content.len()))
        .sum();
    let arrival = shared.arrive(&request, prompt);
    match arrival.verdict {
        Verdict::Accepted => {
            tokio::time::sleep(arrival.service).await;
            let body = completion(&request.model, &arrival, prompt);
            (StatusCode::OK, arrival.headers, axum::Json(body)).into_response()
        }
        Verdict::Rejected {
            dimension,
            retry_after_us,
        } => too_many(
            &shared.config,
            arrival.headers,
            dimension.name(),
            retry_after_us,
        ),
        Verdict::Overrun => error_body(
            StatusCode::SERVICE_UNAVAILABLE,
            "the mock provider's books are full",
            "server_error",
            Value::Null,
        )
        .into_response(),
    }
}

fn completion(model: &str, arrival: &Arrival, prompt_tokens: u64) -> Value {
    json!({
        "id": format!("chatcmpl-{:016x}", arrival.number),
        "object": "chat.completion",
        "model": model,
        "choices": [{
            "index": 0,
            "message": { "role": "assistant", "content": "…" },
            "finish_reason": "stop",
        }],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": arrival.completion_tokens,
            "total_tokens": prompt_tokens + arrival.completion_tokens,
        },
    })
}

fn too_many(
    config: &ProviderConfig,
    mut headers: HeaderMap,
    dimension: &'static str,
    retry_after_us: u64,
) -> Response {
    let retry_after_ms = retry_after_us.div_ceil(1_000);
    headers.insert("retry-after-ms", HeaderValue::from(retry_after_ms));
    headers.insert(
        "retry-after",
        HeaderValue::from(retry_after_ms.div_ceil(1_000)),
    );
    let message = format!(
        "Rate limit reached on {dimension} per {} s. Please try again in {retry_after_ms}ms.",
        config.window.as_secs_f64(),
    );
    let code = Value::from("rate_limit_exceeded");
    (
        headers,
        error_body(StatusCode::TOO_MANY_REQUESTS, &message, dimension, code),
    )
        .into_response()
}

fn bad_request(message: &str) -> Response {
    error_body(
        StatusCode::BAD_REQUEST,
        message,
        "invalid_request_error",
        Value::Null,
    )
    .into_response()
}

fn error_body(
    status: StatusCode,
    message: &str,
    kind: &str,
    code: Value,
) -> (StatusCode, axum::Json<Value>) {
    let error = json!({ "message": message, "type": kind, "param": null, "code": code });
    (status, axum::Json(json!({ "error": error })))
}

fn limit_headers(limiter: &mut Limiter, now: u64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut put = |name: &'static str, value: HeaderValue| {
        headers.insert(HeaderName::from_static(name), value);
    };
    let reset = |us: u64| {
        // Digits and letters are always a header value.
        HeaderValue::try_from(format!("{}ms", us.div_ceil(1_000))).ok()
    };
    put("x-ratelimit-limit-requests", limiter.requests.cap().into());
    put("x-ratelimit-limit-tokens", limiter.tokens.cap().into());
    put(
        "x-ratelimit-remaining-requests",
        limiter.requests.remaining(now).into(),
    );
    put(
        "x-ratelimit-remaining-tokens",
        limiter.tokens.remaining(now).into(),
    );
    if let Some(value) = reset(limiter.requests.reset_in(now)) {
        put("x-ratelimit-reset-requests", value);
    }
    if let Some(value) = reset(limiter.tokens.reset_in(now)) {
        put("x-ratelimit-reset-tokens", value);
    }
    headers
}

/// Cuts a caller's label to a bounded length, at a character's edge.
fn label(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LABEL_BYTES_MAX))
        .unwrap_or(text)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
