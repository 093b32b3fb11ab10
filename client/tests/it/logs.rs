//! An outage is one warning when it begins and one line when it ends, however many calls meet it.

use super::fake::Fake;
use super::net::Link;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;
use weir_client::Call;
use weir_client::limits::UNGATED_MAX;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Lines;

    fn make_writer(&self) -> Lines {
        self.clone()
    }
}

impl Lines {
    fn of(&self, part: &str) -> usize {
        let text = self.0.lock().unwrap();
        String::from_utf8_lossy(&text)
            .lines()
            .filter(|line| line.contains(part))
            .count()
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_told_twice() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(lines.clone())
        .with_env_filter("weir_client=info")
        .without_time()
        .with_ansi(false)
        .finish();
    // A place in the code asks who watches it once, when it is first passed: in whatever thread, and while there is
    // only one subscriber it asks that thread's (tracing-core 0.1). With two it asks both, also in other tests.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _scope = tracing::subscriber::set_default(subscriber);
    // What asked just before is asked again.
    tracing::callsite::rebuild_interest_cache();
    let fake = Fake::start();
    let client = fake.client();
    let call = || Call::new("openai/gpt-5", "acme", "p1").cost("requests", 1);
    client
        .admit_wait(&call())
        .await
        .unwrap()
        .not_sent()
        .await
        .unwrap();
    for outage in 1..=2 {
        fake.net.set_all(Link::Dead);
        for _ in 0..UNGATED_MAX + 50 {
            drop(client.admit_wait(&call()).await.unwrap());
        }
        assert_eq!(
            lines.of("WARN"),
            2 * outage,
            "the outage, and the full queue"
        );
        assert_eq!(lines.of("does not answer"), outage);
        assert_eq!(lines.of("INFO"), outage - 1);
        fake.net.set_all(Link::Up);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(lines.of("answers again"), outage);
        assert_eq!(lines.of(&format!("ungated={}", UNGATED_MAX + 50)), outage);
    }
    assert_eq!((lines.of("WARN"), lines.of("INFO")), (4, 2));
}
