//! The ring and the pool under a model checker: `src/bin/models`, bounded here, with one interruption more in
//! `make torture`.
//!
//! In: the bounds. Out: no order broke a rule, and there were many.

use std::process::Command;

use profiler_tests::process::run;

use crate::scenario::{LIMIT, half_turn};

/// Check that no order in which writers, reader and closer meet tears a record, loses a count or frees what is in use.
#[test]
fn torture_by_every_order_of_threads() {
    let long = std::env::var_os("TORTURE_SECONDS").is_some();
    let mut command = Command::new(env!("CARGO_BIN_EXE_models"));
    command.args(if long { ["preemptions=4", "seconds=60"] } else { ["preemptions=2", "seconds=5"] });
    let _turn = half_turn();
    let orders = run(&mut command, LIMIT * 2).unwrap().json().unwrap();
    for (model, orders) in orders.as_object().unwrap() {
        assert!(orders.as_u64().unwrap() > 50, "{model}: only {orders} orders");
    }
}
