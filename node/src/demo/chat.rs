//! The HTTP call that every worker makes, gated or not.

use super::fleet::Call;
use super::limits::HTTP_TIMEOUT;
use serde::Deserialize;
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;

/// The provider as the workers of one process see it.
#[derive(Clone, Debug)]
pub struct Chat {
    http: reqwest::Client,
    url: String,
}

/// What the provider said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Served, with the tokens it used.
    Served {
        /// Prompt and completion.
        total_tokens: u64,
    },
    /// 429.
    Throttled {
        /// Its Retry-After; zero if it has none.
        retry_after: Duration,
    },
    /// Anything else.
    Failed,
}

#[derive(Deserialize)]
struct Completion {
    usage: Usage,
}

#[derive(Deserialize)]
struct Usage {
    total_tokens: u64,
}

impl Chat {
    /// Connections are made at the first call and kept.
    pub fn new(provider: SocketAddr) -> reqwest::Result<Chat> {
        let http = reqwest::Client::builder()
            .timeout(HTTP_TIMEOUT)
            .no_proxy()
            .build()?;
        Ok(Chat {
            http,
            url: format!("http://{provider}/v1/chat/completions"),
        })
    }

    /// Makes one call.
    pub async fn send<M>(&self, call: &Call<M>) -> Reply {
        let sent = self.http.post(&self.url).json(&body(call)).send().await;
        let answer = match sent {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(%error, "the provider did not answer");
                return Reply::Failed;
            }
        };
        match answer.status().as_u16() {
            200 => match answer.json::<Completion>().await {
                Ok(completion) => Reply::Served {
                    total_tokens: completion.usage.total_tokens,
                },
                Err(error) => {
                    tracing::warn!(%error, "the provider's answer has no usage");
                    Reply::Failed
                }
            },
            429 => Reply::Throttled {
                retry_after: retry_after(answer.headers()),
            },
            status => {
                tracing::warn!(status, "the provider failed");
                Reply::Failed
            }
        }
    }
}

fn body<M>(call: &Call<M>) -> serde_json::Value {
    // The provider counts four bytes as a token.
    let bytes = usize::try_from(call.prompt_tokens.saturating_mul(4)).unwrap_or(usize::MAX);
    json!({
        "model": "mock",
        "messages": [{ "role": "user", "content": "a".repeat(bytes) }],
        "max_tokens": call.max_tokens,
        "user": call.tenant,
        "metadata": { "priority": call.priority },
    })
}

/// The finer header wins, as in the provider's own SDKs.
fn retry_after(headers: &reqwest::header::HeaderMap) -> Duration {
    let number = |name| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    let finer = number("retry-after-ms").map(Duration::from_millis);
    finer
        .or_else(|| number("retry-after").map(Duration::from_secs))
        .unwrap_or_default()
}
