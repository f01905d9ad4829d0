//! The backoff by itself: waits, budget, causes.

use super::*;

const RETRY: Retry = Retry {
    initial: Duration::from_secs(1),
    max: Duration::from_secs(8),
    budget: Duration::from_secs(60),
    max_age: Duration::from_secs(3600),
};

const LATER: Setback = Setback::Later(None);

/// Why each of these setbacks of one request, met with at so many seconds, gives it up.
fn causes<const N: usize>(setbacks: [(u64, Setback); N]) -> [Option<Cause>; N] {
    let (start, mut backoff) = (Instant::now(), Backoff::new(RETRY));
    setbacks.map(|(second, setback)| backoff.fail(1, setback, start + Duration::from_secs(second)).given_up)
}

/// Check that the ceiling of the waits doubles up to its maximum, and that waits differ.
#[test]
fn waits_grow_to_the_maximum_and_are_jittered() {
    let now = Instant::now();
    let runs: Vec<Vec<Duration>> = (0..200)
        .map(|_| {
            let mut backoff = Backoff::new(RETRY);
            (0..6).map(|_| backoff.fail(1, LATER, now).wait).collect()
        })
        .collect();
    for (attempt, ceiling) in [1, 2, 4, 8, 8, 8].into_iter().enumerate() {
        let ceiling = Duration::from_secs(ceiling);
        let longest = runs.iter().map(|run| run[attempt]).max().unwrap();
        let shortest = runs.iter().map(|run| run[attempt]).min().unwrap();
        // 200 uniform draws: none above 3/4, or none below 1/4, has probability 1e-25.
        assert!(longest <= ceiling && longest > ceiling.mul_f64(0.75), "attempt {attempt}: {longest:?}");
        assert!(shortest < ceiling.mul_f64(0.25), "attempt {attempt}: {shortest:?}");
    }
}

/// Check that a request is given up once its budget is over, and that the next one has a budget of its own while
/// the backoff goes on.
#[test]
fn each_request_has_its_own_budget() {
    let start = Instant::now();
    let mut backoff = Backoff::new(RETRY);
    let mut fail = |request, second| backoff.fail(request, LATER, start + Duration::from_secs(second)).given_up;
    assert_eq!([fail(1, 0), fail(1, 59)], [None; 2]);
    assert_eq!(fail(1, 60), Some(Cause::Unreachable));
    assert_eq!(fail(2, 61), None);
    assert_eq!(backoff.ceiling, RETRY.max);
    backoff.reset(3);
    assert_eq!(backoff.ceiling, RETRY.initial);
    let mut fail = |request, second| backoff.fail(request, LATER, start + Duration::from_secs(second)).given_up;
    assert_eq!(fail(2, 121), Some(Cause::Unreachable), "what became of another one is nothing to it");
}

/// Check that a peer that is away uses none of the budget, however long, and that it runs on when the peer is reached again: what
/// makes a peer fall over is not sent for ever.
#[test]
fn the_budget_runs_while_the_peer_is_reached() {
    const AWAY: Setback = Setback::Unreached;
    assert_eq!(causes([(0, AWAY), (3000, AWAY), (3001, LATER), (3060, LATER)]), [None; 4]);
    let falling_over = [(0, LATER), (30, AWAY), (500, LATER), (529, AWAY), (530, LATER), (531, LATER)];
    assert_eq!(causes(falling_over), [None, None, None, None, None, Some(Cause::Unreachable)]);
    assert_eq!(causes([(0, LATER), (90, AWAY)]), [None; 2], "nobody is there to have had enough of it");
}

/// Check that a request that once went without an answer is told from those that surely did not arrive.
#[test]
fn what_may_have_arrived_is_told_apart() {
    let unanswered = [(0, Setback::Unanswered), (60, LATER)];
    assert_eq!(causes(unanswered), [None, Some(Cause::Unanswered)]);
    assert_eq!(causes([(0, LATER), (60, LATER)]), [None, Some(Cause::Unreachable)]);
}

/// Check that a request that is throttled is sent twice again and no more, whatever else happens in between.
#[test]
fn what_is_throttled_is_sent_twice_again() {
    const MUCH: Setback = Setback::Throttled;
    assert_eq!(causes([(0, MUCH), (1, MUCH), (2, MUCH)]), [None, None, Some(Cause::Rejected)]);
    let between = [(0, MUCH), (1, LATER), (2, MUCH), (3, Setback::Unreached), (4, MUCH)];
    assert_eq!(causes(between), [None, None, None, None, Some(Cause::Rejected)]);
}

/// Check that what is on disk is not given up for being throttled, however often, before its budget is used.
#[test]
fn what_is_on_disk_waits_while_it_is_throttled() {
    let (start, mut backoff) = (Instant::now(), Backoff::new(RETRY));
    let causes = [0, 1, 2, 3, 4, 59, 60]
        .map(|second| backoff.fail_kept(1, Setback::Throttled, start + Duration::from_secs(second)).given_up);
    assert_eq!(causes, [None, None, None, None, None, None, Some(Cause::Rejected)]);
}

/// Check that the peer's wish is a lower bound, and that an absurd one is cut.
#[test]
fn the_peers_wish_is_obeyed_within_reason() {
    let mut backoff = Backoff::new(RETRY);
    let mut wait = |asked| backoff.fail(1, Setback::Later(Some(asked)), Instant::now()).wait;
    let asked = Duration::from_secs(20);
    let obeyed = wait(asked);
    assert!(obeyed >= asked && obeyed <= asked + RETRY.initial, "{obeyed:?}");
    let obeyed = wait(Duration::MAX);
    assert!(obeyed <= LONGEST_OBEYED + RETRY.initial, "{obeyed:?}");
}

/// Check that a peer that asks for no time at all does not turn the growing waits off.
#[test]
fn waits_grow_where_the_peer_asks_for_none() {
    let longest = (0..200).map(|_| {
        let mut backoff = Backoff::new(RETRY);
        let waits = [(); 4].map(|()| backoff.fail(1, Setback::Later(Some(Duration::ZERO)), Instant::now()).wait);
        waits[3]
    });
    // 200 uniform draws up to 8 s: none above 6 s has probability 1e-25.
    assert!(longest.max().unwrap() > RETRY.max.mul_f64(0.75));
}

/// How many attempts with a request on disk it takes until it is given up, of a hundred at most, one each `round` seconds, in each of which a live one meets with
/// `setback` and then is accepted.
fn attempts(round: u64, setback: Setback) -> Option<u64> {
    let (start, mut backoff) = (Instant::now(), Backoff::new(RETRY));
    let at = |second| start + Duration::from_secs(second);
    (1..=100).find(|attempt| {
        let second = attempt * round;
        let given_up = backoff.fail_kept(u64::MAX, Setback::Unanswered, at(second)).given_up;
        backoff.fail(*attempt, setback, at(second + round / 2));
        backoff.reset(*attempt);
        given_up == Some(Cause::Unanswered)
    })
}

/// Check that a request on disk with which the peer falls over is given up, although a live one fails each time the peer comes up again.
#[test]
fn a_live_request_does_not_restore_the_budget_of_one_on_disk() {
    for setback in [Setback::Unreached, Setback::Unanswered, LATER] {
        assert_eq!(attempts(6, setback), Some(11), "ten times six seconds are the budget");
    }
}

/// Check that an outage that only live requests met with costs one on disk no more than the longest wait.
#[test]
fn an_outage_between_two_attempts_does_not_use_up_the_budget() {
    // Eight seconds a time: the budget of sixty ends with the eighth.
    assert_eq!(attempts(3000, Setback::Unreached), Some(9));
}
