// SPDX-License-Identifier: GPL-2.0-only
//! The dispatcher's side of the bargain, fact by fact: what is decided, when, and what outcomes do.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod model;

use hearth::cpuset::CpuSet;
use hearth::event::{CpuStatus, Event, Outcome, Runnable, Why};
use hearth::ids::CpuId;
use hearth::lifecycle::State;
use hearth::limits::{LINE_CHECK_NS, MAX_RETRIES, START_CHECK_NS};
use hearth::reason::Reason;
use hearth::topology::Topology;
use model::facts::{MS, config, dispatcher, poll_all, status, task, wakeup};

fn busy(cpu: u32) -> Event {
    Event::Cpu(CpuStatus { other: true, ..status(cpu, None, 0) })
}

#[test]
fn two_that_wake_together_get_two_cpus() {
    for policy in ["fifo", "vtime"] {
        let mut d = dispatcher(Topology::grid(1, 2, 1), policy, config(8));
        d.handle(1, &Event::Runnable(wakeup(task(0, 1), 1, 0)));
        d.handle(1, &Event::Runnable(wakeup(task(1, 1), 1, 0)));
        let (a, b) = (d.poll(1).unwrap(), d.poll(1).unwrap());
        assert_eq!((a.cpu, b.cpu), (CpuId(0), CpuId(1)), "{policy}");
    }
}

#[test]
fn a_reading_from_before_does_not_free_a_cpu_that_was_given_away() {
    let mut d = dispatcher(Topology::grid(1, 1, 1), "fifo", config(8));
    d.handle(5, &Event::Runnable(wakeup(task(0, 1), 1, 0)));
    let command = d.poll(5).unwrap();
    // The answer is still out: nothing that is read now can know of it.
    d.handle(6, &Event::Cpu(status(0, None, 0)));
    assert!(!d.view().is_idle(CpuId(0)));
    d.committed(7, &command, Outcome::Done);
    assert!(!d.view().is_idle(CpuId(0)));
    // It has run and slept between two readings.
    d.handle(8, &Event::Cpu(status(0, None, 0)));
    assert!(d.view().is_idle(CpuId(0)));
    assert_eq!(d.state_of(task(0, 1)), Some(State::Blocked));
}

#[test]
fn an_old_run_is_not_taken_for_the_start_of_the_new_one() {
    let mut d = dispatcher(Topology::grid(1, 1, 1), "fifo", config(8));
    d.handle(100, &Event::Runnable(wakeup(task(0, 1), 1, 0)));
    poll_all(&mut d, 100);
    d.handle(110, &Event::Cpu(CpuStatus { since_ns: 90, ..status(0, Some(task(0, 1)), 1) }));
    assert_eq!(d.state_of(task(0, 1)), Some(State::Committed));
    d.handle(120, &Event::Cpu(CpuStatus { since_ns: 101, ..status(0, Some(task(0, 1)), 0) }));
    assert_eq!(d.state_of(task(0, 1)), Some(State::Running));
}

#[test]
fn a_stale_decision_frees_its_cpu_for_another() {
    let mut d = dispatcher(Topology::grid(1, 1, 1), "vtime", config(8));
    for idx in 0..2 {
        d.handle(1, &Event::Runnable(wakeup(task(idx, 1), 1, 0)));
    }
    let first = d.poll(1).unwrap();
    assert_eq!(d.poll(1), None);
    d.committed(2, &first, Outcome::Stale);
    assert_eq!(d.state_of(first.task), Some(State::Blocked));
    assert!(d.deadline().is_some_and(|at| at <= 2), "the driver is to come back at once");
    let second = d.poll(2).unwrap();
    assert_ne!(second.task, first.task);
    assert!(matches!(second.reason, Reason::FirstInOrder { .. }));
}

#[test]
fn retry_asks_again_and_not_for_ever() {
    let mut d = dispatcher(Topology::grid(1, 2, 1), "fifo", config(8));
    d.handle(1, &Event::Runnable(wakeup(task(0, 1), 1, 0)));
    for i in 0..=MAX_RETRIES {
        let command = d.poll(1).unwrap_or_else(|| panic!("retry {i}"));
        assert_eq!(d.poll(1), None);
        d.committed(1, &command, Outcome::Retry);
    }
    assert_eq!((d.poll(1), d.deadline(), d.stats().left_to_rescan), (None, None, 1));
}

#[test]
fn the_latest_wakeup_counts() {
    let mut d = dispatcher(Topology::grid(1, 2, 1), "fifo", config(8));
    let id = task(0, 1);
    d.handle(1, &Event::Runnable(wakeup(id, 5, 0)));
    let old = d.poll(1).unwrap();
    // It was taken over, ran, and is queued anew before the old decision is answered.
    d.handle(2, &Event::Runnable(wakeup(id, 6, 0)));
    let new = d.poll(2).unwrap();
    assert_eq!((old.seq, new.seq), (5, 6));
    d.committed(3, &old, Outcome::Stale);
    assert_eq!(d.state_of(id), Some(State::Queued), "the old answer changes nothing");
    d.committed(3, &new, Outcome::Done);
    assert_eq!(d.state_of(id), Some(State::Committed));
    // The same once more is an anomaly, an older one is late, and neither is acted on.
    d.handle(4, &Event::Runnable(wakeup(id, 6, 0)));
    d.handle(4, &Event::Runnable(wakeup(id, 4, 0)));
    assert_eq!((d.poll(4), d.stats().anomalies, d.stats().outdated), (None, 1, 1));
}

#[test]
fn rescans_are_taken_once_and_again_after_a_resync() {
    let mut d = dispatcher(Topology::grid(1, 1, 1), "vtime", config(8));
    d.handle(1, &busy(0));
    let rescan = Event::Runnable(Runnable { why: Why::Rescan, ..wakeup(task(0, 1), 3, 0) });
    d.handle(1, &rescan);
    assert_eq!(d.poll(1), None);
    d.handle(2, &rescan);
    assert_eq!((d.stats().known_rescans, d.stats().runnable), (1, 1));
    d.handle(3, &Event::Resync);
    assert_eq!(d.state_of(task(0, 1)), Some(State::Blocked));
    assert!(!d.wants_asks());
    d.handle(3, &rescan);
    assert_eq!((d.stats().known_rescans, d.stats().runnable), (1, 2));
    d.handle(4, &Event::Cpu(status(0, None, 0)));
    assert_eq!(poll_all(&mut d, 4).len(), 1);
}

#[test]
fn a_cpu_that_runs_dry_pulls_the_first_waiter_of_the_longest_line() {
    let mut d = dispatcher(Topology::grid(2, 2, 1), "fifo", config(16));
    (0..4).for_each(|cpu| d.handle(1, &busy(cpu)));
    // One waits for CPU 1, two for CPU 2 in the other domain; task 1 may not leave.
    for (idx, cpus) in [(0, vec![0, 1]), (1, vec![2]), (2, vec![0, 2]), (3, vec![1, 3])] {
        d.handle(1, &Event::Affinity(task(idx, 1), CpuSet::of(4, cpus.iter().map(|&c| CpuId(c)))));
        let prev = if idx == 0 { 1 } else { 2 };
        d.handle(1, &Event::Runnable(wakeup(task(idx, 1), 1, prev)));
    }
    let placed: Vec<u32> = poll_all(&mut d, 1).iter().map(|c| c.cpu.0).collect();
    assert_eq!(placed, [1, 2, 0, 3]);
    assert!(d.wants_asks());
    // CPU 0 runs dry after it has served task 2: the waiter of its own domain goes first.
    d.handle(2, &Event::Cpu(status(0, None, 0)));
    let pulled = d.poll(2).unwrap();
    assert_eq!((pulled.task, pulled.cpu, pulled.recalled_from), (task(0, 1), CpuId(0), Some(CpuId(1))));
    assert_eq!(pulled.reason, Reason::Pulled { from: CpuId(1) });
    // The kernel says: try again. It waits where it was, and is pulled again.
    d.committed(3, &pulled, Outcome::Retry);
    assert_eq!(d.state_of(task(0, 1)), Some(State::Committed));
    let again = d.poll(3).unwrap();
    assert_eq!((again.task, again.recalled_from), (task(0, 1), Some(CpuId(1))));
    d.committed(3, &again, Outcome::Done);
    assert_eq!(d.poll(3), None, "CPU 0 is taken");
}

#[test]
fn nobody_is_pulled_off_the_cpu_it_is_about_to_start_on() {
    let mut d = dispatcher(Topology::grid(1, 2, 1), "fifo", config(8));
    d.handle(1, &Event::Runnable(wakeup(task(0, 1), 1, 0)));
    poll_all(&mut d, 1);
    d.handle(2, &Event::Cpu(status(1, None, 0)));
    d.handle(2, &Event::Ask(CpuId(1)));
    assert_eq!(d.poll(2), None);
}

#[test]
fn an_idle_domain_steals_by_the_others_order() {
    let mut d = dispatcher(Topology::grid(2, 1, 1), "vtime", config(8));
    (0..2).for_each(|cpu| d.handle(1, &busy(cpu)));
    for idx in 0..2 {
        d.handle(1, &Event::Affinity(task(idx, 1), CpuSet::of(2, (0..=idx).map(CpuId))));
        d.handle(1, &Event::Runnable(wakeup(task(idx, 1), 1, 0)));
    }
    assert_eq!(d.poll(1), None);
    // Both wait in the other domain; the first may not use CPU 1.
    d.handle(2, &Event::Cpu(status(1, None, 0)));
    let stolen = poll_all(&mut d, 2);
    assert_eq!(stolen.iter().map(|c| c.task).collect::<Vec<_>>(), [task(1, 1)]);
    assert!(matches!(stolen[0].reason, Reason::Stolen { .. }));
}

#[test]
fn a_higher_class_takes_a_cpu_and_its_waiters_leave() {
    for policy in ["fifo", "vtime"] {
        let mut d = dispatcher(Topology::grid(1, 2, 1), policy, config(8));
        d.handle(1, &Event::Runnable(wakeup(task(0, 1), 1, 0)));
        d.handle(1, &Event::Affinity(task(1, 1), CpuSet::of(2, [CpuId(0)])));
        assert_eq!(poll_all(&mut d, 1)[0].cpu, CpuId(0));
        d.handle(1, &busy(1));
        d.handle(2, &Event::Cpu(CpuStatus { held: true, ..status(0, None, 1) }));
        let left = poll_all(&mut d, 2);
        assert_eq!(left.len(), 1, "{policy}");
        assert_eq!((left[0].cpu, left[0].recalled_from), (CpuId(1), Some(CpuId(0))), "{policy}");
        // Nothing new goes there, but for a task that has no choice.
        d.handle(3, &Event::Runnable(wakeup(task(2, 1), 1, 0)));
        assert!(poll_all(&mut d, 3).iter().all(|c| c.cpu == CpuId(1)), "{policy}");
    }
}

#[test]
fn nobody_is_left_in_the_ordered_queue_of_a_held_cpu() {
    // Bound to CPU 0, or to CPUs 0 and 2, which are no whole domain; everything is busy, so both wait in order.
    for allowed in [vec![0], vec![0, 2]] {
        let mut d = dispatcher(Topology::grid(2, 2, 1), "vtime", config(8));
        (0..4).for_each(|cpu| d.handle(1, &busy(cpu)));
        let set = CpuSet::of(4, allowed.iter().map(|&cpu| CpuId(cpu)));
        d.handle(1, &Event::Affinity(task(1, 1), set));
        d.handle(1, &Event::Runnable(wakeup(task(1, 1), 1, 0)));
        assert_eq!(poll_all(&mut d, 1), [], "{allowed:?}: it waits in order");
        d.handle(2, &Event::Cpu(CpuStatus { held: true, ..status(0, None, 0) }));
        let moved = poll_all(&mut d, 2);
        if allowed.len() == 1 {
            // No other choice: into the CPU's own queue, where the kernel's deadline server finds it.
            assert_eq!(moved.iter().map(|c| c.cpu).collect::<Vec<_>>(), [CpuId(0)]);
        } else {
            d.handle(3, &Event::Cpu(status(2, None, 0)));
            assert_eq!(poll_all(&mut d, 3).iter().map(|c| c.cpu).collect::<Vec<_>>(), [CpuId(2)]);
        }
    }
}

#[test]
fn deadlines_are_there_while_someone_waits() {
    let mut d = dispatcher(Topology::grid(1, 1, 1), "fifo", config(8));
    assert_eq!((d.deadline(), d.wants_asks()), (None, false));
    d.handle(MS, &Event::Runnable(wakeup(task(0, 1), 1, 0)));
    poll_all(&mut d, MS);
    // It is about to start; that is looked after, but not soon.
    assert_eq!(d.poll(MS), None);
    d.handle(MS, &Event::Timer);
    assert_eq!(d.deadline(), Some(MS + START_CHECK_NS));
    d.handle(MS, &Event::Cpu(status(0, Some(task(0, 1)), 0)));
    assert_eq!((d.deadline(), d.wants_asks()), (None, false));
    // A second one waits behind it.
    d.handle(2 * MS, &Event::Runnable(wakeup(task(1, 1), 1, 0)));
    poll_all(&mut d, 2 * MS);
    d.poll(2 * MS);
    // Asks are wanted from now on: a CPU that ran dry just before said nothing, so look again at once.
    assert!(d.wants_asks() && d.deadline() == Some(2 * MS));
    d.handle(2 * MS, &Event::Timer);
    assert_eq!(d.deadline(), Some(2 * MS + LINE_CHECK_NS));
}

#[test]
fn an_ask_that_contradicts_the_last_reading_is_looked_into_at_once() {
    let mut d = dispatcher(Topology::grid(1, 1, 1), "vtime", config(8));
    d.handle(1, &busy(0));
    d.handle(1, &Event::Runnable(wakeup(task(0, 1), 1, 0)));
    assert_eq!(d.poll(1), None);
    d.handle(1, &Event::Timer);
    assert_eq!(d.deadline(), None);
    // The CPU's status was read before it became idle, or it asked before it got something: only a reading can tell.
    d.handle(2, &Event::Ask(CpuId(0)));
    assert_eq!((d.poll(2), d.deadline(), d.stats().asks_doubted), (None, Some(2), 1));
    d.handle(3, &Event::Cpu(status(0, None, 0)));
    d.handle(3, &Event::Timer);
    assert_eq!(poll_all(&mut d, 3).len(), 1);
}

#[test]
fn an_exit_takes_a_task_out_of_wherever_it_is() {
    for policy in ["fifo", "vtime"] {
        let mut d = dispatcher(Topology::grid(1, 1, 1), policy, config(8));
        for idx in 0..4 {
            d.handle(1, &Event::Runnable(wakeup(task(idx, 1), 1, 0)));
        }
        let first = d.poll(1).unwrap();
        d.handle(2, &Event::Exit(task(3, 1))); // undecided
        d.handle(2, &Event::Exit(first.task)); // decided, not answered
        d.committed(2, &first, Outcome::Gone);
        let rest = poll_all(&mut d, 3);
        assert!(rest.iter().all(|c| c.task == task(1, 1) || c.task == task(2, 1)), "{policy} {rest:?}");
        d.handle(4, &Event::Exit(task(1, 1)));
        d.handle(4, &Event::Exit(task(2, 1)));
        d.handle(4, &Event::Cpu(status(0, None, 0)));
        assert_eq!((d.poll(4), d.wants_asks(), d.stats().anomalies), (None, false, 0), "{policy}");
        d.handle(5, &Event::Exit(task(2, 1)));
        assert_eq!(d.stats().anomalies, 1, "a second exit cannot be");
    }
}
