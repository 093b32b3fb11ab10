//! The product against the model: every answer, everything an operator may see, and all invariants.

use crate::history::{Driver, Entry, History, Scope, cases, history, tell};
use crate::model::Model;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use weir_admission::{Stamp, State, TargetName};

/// Entries between two times that the state is written down and read back.
const READ_BACK_EVERY: u64 = 7;

/// What was compared so far, for the reader of a failure.
struct Compared {
    model: Model,
    told: String,
}

impl Compared {
    fn entry(&mut self, driver: &mut Driver<'_>, entry: &Entry) -> Result<(), TestCaseError> {
        self.told += &tell(entry);
        let stamp = Stamp::from_micros(entry.now);
        let expected = self.model.apply(entry.index, stamp, &entry.batch);
        for (offset, (product, model)) in entry.outcomes.iter().zip(&expected).enumerate() {
            if product != model {
                let index = entry.index;
                return self.fails(&format!("{index}.{offset}: the model answers {model:?}"));
            }
        }
        for name in ["api/x", "api/y"] {
            let name = TargetName::new(name).unwrap();
            let (product, model) = (driver.state.view(&name), self.model.view(&name));
            if product != model {
                return self.fails(&format!("view: {product:#?}\nthe model sees: {model:#?}"));
            }
        }
        if let Err(invariant) = driver.state.check() {
            return self.fails(&format!("broken: {invariant}"));
        }
        if entry.index.is_multiple_of(READ_BACK_EVERY) {
            self.read_back(driver)?;
        }
        Ok(())
    }

    /// The history goes on with what was read back.
    fn read_back(&self, driver: &mut Driver<'_>) -> Result<(), TestCaseError> {
        let bytes = driver.state.encode();
        match State::decode(&bytes) {
            Err(error) => self.fails(&format!("does not read back: {error:?}")),
            Ok(again) if again.encode() != bytes || again.digest() != driver.state.digest() => {
                self.fails("reads back differently")
            }
            Ok(again) => {
                driver.state = again;
                Ok(())
            }
        }
    }

    fn fails(&self, what: &str) -> Result<(), TestCaseError> {
        Err(TestCaseError::fail(format!("{}{what}", self.told)))
    }
}

fn compare(history: &History) -> Result<(), TestCaseError> {
    let (mut driver, first) = Driver::start(history);
    let mut compared = Compared {
        model: Model::default(),
        told: String::new(),
    };
    compared.entry(&mut driver, &first)?;
    for step in &history.steps {
        if let Some(entry) = driver.step(step) {
            compared.entry(&mut driver, &entry)?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn answers_like_the_model(history in history(Scope::Everything, 120)) {
        compare(&history)?;
    }
}
