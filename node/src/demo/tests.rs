//! The parts together over real HTTP: the provider's answers, and both kinds of fleet against it.

use super::chat::{Chat, Reply};
use super::fleet::{Activity, Call, Fleet, Step};
use super::limits::DRAIN_MAX;
use super::plan::Plan;
use super::provider::{Provider, ProviderConfig};
use super::report::{Failover, Measured, Report, wrapped};
use super::run::run_ungated;
use super::window::WindowKind;
use super::workload::Workload;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

fn provider_config(cap_requests: u64, cap_tokens: u64) -> ProviderConfig {
    ProviderConfig {
        cap_requests,
        cap_tokens,
        // Longer than any test: nothing leaves the window in between.
        window: Duration::from_secs(600),
        kind: WindowKind::Sliding,
        rejected_counts: true,
        latency: (Duration::ZERO, Duration::from_millis(1)),
        completion_percent: (50, 50),
        seed: 3,
    }
}

fn request(content: &str, max_tokens: u64) -> Value {
    json!({
        "model": "mock",
        "messages": [{ "role": "user", "content": content }],
        "max_tokens": max_tokens,
        "user": "aster",
        "metadata": { "priority": "p1" },
    })
}

async fn post(provider: &Provider, body: String) -> reqwest::Response {
    let url = format!("http://{}/v1/chat/completions", provider.address());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    client.post(url).body(body).send().await.unwrap()
}

fn header<'a>(answer: &'a reqwest::Response, name: &str) -> &'a str {
    answer
        .headers()
        .get(name)
        .unwrap_or_else(|| panic!("no {name}"))
        .to_str()
        .unwrap()
}

#[tokio::test]
async fn provider_serves_counts_and_refuses_like_a_real_one() {
    let provider = Provider::start(provider_config(2, 1_000)).unwrap();
    let served = post(&provider, request("12345678", 100).to_string()).await;
    assert_eq!(served.status(), 200);
    assert_eq!(header(&served, "x-ratelimit-limit-requests"), "2");
    assert_eq!(header(&served, "x-ratelimit-limit-tokens"), "1000");
    assert_eq!(header(&served, "x-ratelimit-remaining-requests"), "1");
    assert_eq!(header(&served, "x-ratelimit-remaining-tokens"), "948");
    assert!(header(&served, "x-ratelimit-reset-tokens").ends_with("ms"));
    let body: Value = served.json().await.unwrap();
    let usage = json!({ "prompt_tokens": 2, "completion_tokens": 50, "total_tokens": 52 });
    assert_eq!(body["usage"], usage);
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(body["choices"][0]["message"]["role"], "assistant");

    assert_eq!(
        post(&provider, request("a", 100).to_string())
            .await
            .status(),
        200
    );
    let refused = post(&provider, request("a", 100).to_string()).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "x-ratelimit-remaining-requests"), "0");
    let after_ms: u64 = header(&refused, "retry-after-ms").parse().unwrap();
    let after_s: u64 = header(&refused, "retry-after").parse().unwrap();
    assert!((590_000..=600_000).contains(&after_ms), "{after_ms}");
    assert_eq!(after_s, after_ms.div_ceil(1_000));
    let body: Value = refused.json().await.unwrap();
    assert_eq!(body["error"]["code"], "rate_limit_exceeded");
    assert_eq!(body["error"]["type"], "requests");

    let counts = provider.counts();
    let all = counts.total(
        |account| account.tenant == "aster" && account.priority == "p1",
        0..9,
    );
    assert_eq!((all.accepted, all.throttled, all.tokens), (2, 1, 103));
    assert_eq!(counts.worst_requests, 1.5, "the refused call counts");
}

#[tokio::test]
async fn provider_refuses_what_it_cannot_read() {
    let provider = Provider::start(provider_config(2, 1_000)).unwrap();
    let bad = [
        String::new(),
        "{".to_owned(),
        request("a", 0).to_string(),
        request("a", u64::MAX).to_string(),
        json!({ "model": "mock", "max_tokens": 5 }).to_string(),
    ];
    for body in bad {
        let answer = post(&provider, body.clone()).await;
        assert_eq!(answer.status(), 400, "{body}");
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["error"]["type"], "invalid_request_error");
    }
    assert_eq!(
        post(&provider, request(&"a".repeat(100_000), 5).to_string())
            .await
            .status(),
        413
    );
    assert!(provider.counts().accounts.is_empty());
}

/// Lets one call through every so often, and defers the others to their turn.
struct Pacer {
    chat: Chat,
    every: Duration,
    next: Mutex<Instant>,
}

impl Activity for Pacer {
    /// The call's turn, once it has one.
    type Memory = Option<Instant>;

    async fn run(
        &self,
        _worker: usize,
        call: &mut Call<Option<Instant>>,
        _stop: &CancellationToken,
    ) -> Step {
        let now = Instant::now();
        let turn = *call.memory.get_or_insert_with(|| {
            let mut next = self.next.lock().unwrap();
            let turn = (*next).max(now);
            *next = turn + self.every;
            turn
        });
        if turn > now {
            return Step::Again(turn - now);
        }
        match self.chat.send(call).await {
            Reply::Served { .. } => Step::Done,
            Reply::Throttled { .. } | Reply::Failed => Step::Again(Duration::from_secs(1)),
        }
    }
}

/// Short runs against a provider with windows of a second.
fn short_plan() -> Plan {
    let provider = ProviderConfig {
        cap_requests: 60,
        cap_tokens: 60 * 400,
        window: Duration::from_secs(1),
        latency: (Duration::from_millis(5), Duration::from_millis(15)),
        completion_percent: (10, 70),
        ..provider_config(1, 1)
    };
    let workload = Workload::cross_priority(5);
    Plan {
        workload,
        provider,
        seconds: 5,
        warm_seconds: 1,
        kill_leader: false,
    }
}

async fn run_paced(plan: &Plan) -> Measured {
    let provider = Provider::start(plan.provider.clone()).unwrap();
    let chat = Chat::new(provider.address()).unwrap();
    // Two thirds of the cap: timers that fire late together still fit.
    let pacer = Pacer {
        chat,
        every: Duration::from_millis(25),
        next: Mutex::new(Instant::now()),
    };
    let warm = provider.epoch() + Duration::from_secs(plan.warm_seconds);
    let fleet = Fleet::start(plan.workload.clone(), Arc::new(pacer), warm).unwrap();
    tokio::time::sleep_until(provider.epoch() + Duration::from_secs(plan.seconds)).await;
    let counts = provider.counts();
    let figures = fleet.stop(DRAIN_MAX).await;
    let asks = counts.total(|_| true, 0..99).accepted;
    Measured {
        counts,
        figures,
        asks,
        span: plan.span(),
        failover: None,
    }
}

#[tokio::test]
async fn both_fleets_run_against_the_provider() {
    let plan = short_plan();
    let (ungated, paced) = tokio::join!(run_ungated(&plan), run_paced(&plan));
    let ungated = ungated.unwrap();
    let window = plan.provider.window;
    let (raw, gated) = (
        ungated.summary(&plan.workload, window),
        paced.summary(&plan.workload, window),
    );
    assert!(raw.share_429 > 0.1, "{raw:?}");
    assert!(raw.asks_per_ok > 1.1, "{raw:?}");
    assert!(raw.slot_ms > gated.slot_ms, "{raw:?} {gated:?}");
    assert_eq!(gated.share_429, 0.0, "{gated:?}");
    assert!(gated.worst_window <= 1.0, "{gated:?}");
    assert!(gated.cap_used > 0.3, "{gated:?}");
    assert!(paced.figures.done() > 50, "{:?}", paced.figures);

    let gap = Duration::from_millis(1_234);
    let workload = plan.workload.clone();
    let failover = Some(Failover { gap });
    let report = Report {
        workload,
        window,
        weir: paced,
        ungated,
        failover,
        ungated_calls: 0,
    };
    has_exactly_the_keys(&report);
    let words = report.words();
    assert!(
        words.contains("1234 ms") && words.contains("No call went out"),
        "{words}"
    );
    let lines = wrapped(&words);
    assert!(
        lines
            .lines()
            .all(|line| line.len() <= 90 && line == line.trim()),
        "{lines}"
    );
    assert_eq!(lines.replace('\n', " "), words);
    assert!(report.notes().contains("first 1 s"), "{}", report.notes());
    assert!(
        report.tables().contains("p3 (weight 2)"),
        "{}",
        report.tables()
    );
}

fn has_exactly_the_keys(report: &Report) {
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let json = serde_json::to_value(report.summary()).unwrap();
    assert_eq!(
        keys(&json),
        ["failover_ms", "ungated", "ungated_calls", "weir"]
    );
    let figures = [
        "asks_per_ok",
        "cap_used",
        "class_error_max",
        "longest_wait_s",
        "p1_p95_ms",
        "share_429",
        "slot_ms",
        "worst_window",
    ];
    for fleet in ["weir", "ungated"] {
        assert_eq!(keys(&json[fleet]), figures);
        assert!(
            json[fleet]
                .as_object()
                .unwrap()
                .values()
                .all(Value::is_number),
            "{json}"
        );
    }
    assert_eq!(json["failover_ms"], 1234.0);
}
