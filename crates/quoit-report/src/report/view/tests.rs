use super::*;
use crate::results::example;

#[test]
fn a_rival_that_beats_us_is_our_loss_and_comes_first() {
    let results = example::results();
    let all = all_judged(&results);
    let comparisons = results
        .cases
        .iter()
        .map(|case| case.comparisons.len())
        .sum::<usize>();
    assert_eq!(all.len(), comparisons);
    let standings: Vec<Verdict> = all.iter().map(Judged::for_quoit).collect();
    assert!(standings.is_sorted(), "{standings:?}");
    let floor = all.iter().find(|row| row.comparison.server == "floor/epoll");
    let floor = floor.expect("the floor takes part");
    assert_eq!((floor.verdict, floor.for_quoit()), (Verdict::Win, Verdict::Loss));
    // The worst of the losses is the first.
    assert!(all[0].case.name.contains("idle"), "{}", all[0].sentence());
}

#[test]
fn a_ratio_inside_the_band_is_a_tie_whatever_the_file_says() {
    let mut results = example::results();
    results.cases.truncate(1);
    let comparison = &mut results.cases[0].comparisons[0];
    comparison.cost = Ratio {
        median: 0.96,
        low: 0.95,
        high: 0.98,
    };
    comparison.verdict = Verdict::Win;
    let judged = |results: &Results, band| {
        let mut results = results.clone();
        results.cases[0].comparisons.truncate(1);
        results.cases[0].comparisons[0].band = band;
        all_judged(&results)[0].verdict
    };
    assert_eq!(judged(&results, Some(1.03)), Verdict::Tie);
    assert_eq!(judged(&results, None), Verdict::Unjudged);
    assert_eq!(judged(&results, Some(1.01)), Verdict::Win);
}

#[test]
fn too_few_pairs_are_not_judged_and_noted() {
    let example = example::results();
    assert_eq!(example.cases[0].comparisons[0].verdict, Verdict::Loss);
    assert_eq!(too_few_pairs(&example.cases[0]), None);
    let few = pairs::LEAST_PAIRS - 1;
    let judge = |change: &dyn Fn(&mut CaseResults)| {
        let mut case = example.cases[0].clone();
        change(&mut case);
        (verdict(&case, &case.comparisons[0]), warnings(&case).join("\n"))
    };
    let (verdict, note) = judge(&|case| case.comparisons[0].pairs = few);
    let server = &example.cases[0].comparisons[0].server;
    assert_eq!(verdict, Verdict::Unjudged);
    assert!(
        note.contains("Too few pairs to judge") && note.contains(&format!("{server} has {few}.")),
        "{note}"
    );
    let (verdict, note) = judge(&|case| case.controls[0].pairs = few);
    assert_eq!(verdict, Verdict::Unjudged);
    assert!(
        note.contains(&format!("control of quoit/epoll has {few}.")),
        "{note}"
    );
}

#[test]
fn our_servers_are_known_by_their_name() {
    assert!(
        [
            "quoit/uring",
            "quoit",
            "quoit/uring sqpoll",
            "netty-quoit-uring",
            "kestrel-quoit-epoll-inline",
            "go-nethttp-uring",
            "tls-quoit-epoll-inline",
            "client-quoit-uring",
            "go-event-each-uring"
        ]
        .into_iter()
        .all(is_ours)
    );
    assert!(
        ![
            "quoits/x",
            "floor/uring",
            "tokio quoit",
            "netty-uring",
            "tls-sockets",
            "kestrel-sockets-inline",
            "go-net"
        ]
        .into_iter()
        .any(is_ours)
    );
}

#[test]
fn what_was_not_judged_is_no_absence_of_losses() {
    let mut results = example::results();
    results.cases.truncate(1);
    let said = |results: &Results| no_loss(&all_judged(results));
    for comparison in &mut results.cases[0].comparisons {
        // Inside of every band.
        comparison.cost.median = 1.0;
        (comparison.cost.low, comparison.cost.high) = (0.999, 1.001);
    }
    assert_eq!(said(&results), "None beyond the noise.");
    results.cases[0].comparisons[0].band = None;
    assert!(said(&results).contains("among those"), "{}", said(&results));
    results.cases[0].controls.clear();
    assert!(said(&results).starts_with("Nothing"), "{}", said(&results));
}

#[test]
fn errors_lag_slips_and_spoiled_slices_are_said() {
    let mut results = example::results();
    let case = &mut results.cases[2];
    case.servers[0].figures.errors = 3;
    case.servers[0].figures.generator_lag_p99_ns = Some(1e9);
    case.servers[0].figures.compiling_share = Some(0.123);
    case.servers[1].figures.compiling_share = Some(0.009);
    let text = warnings(case).join("\n");
    let spoiled = format!("1 of {} slices", case.slices.len());
    for part in [
        "3 requests failed",
        "was late by 1.00 s",
        "its runtime was still compiling for 12.3 % of the window",
        "quoit/uring 1.2 % (without the gaps p99 is",
        &spoiled,
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(text.matches("compiling").count(), 1, "{text}");
}

#[test]
fn counters_are_those_of_a_unit_without_spoiled_slices() {
    let mut results = example::results();
    let case = &mut results.cases[0];
    let spoiled = case.slices.iter_mut().find(|slice| slice.spoiled.is_some());
    let spoiled = spoiled.expect("the example has one");
    spoiled.server = "quoit/uring".to_owned();
    spoiled.counters.insert("enters".to_owned(), 1e15);
    let counters = counters_per_unit(case, "quoit/uring").expect("it has counters");
    assert!((counters["enters"] - 0.136).abs() < 1e-9);
    assert!((counters["completions per enter"] - 2.0 / 0.136).abs() < 1e-6);
    assert_eq!(counters_per_unit(case, "tokio"), None);
}

#[test]
fn unsteadiness_and_what_reading_costs_are_said() {
    let mut results = example::results();
    let case = &mut results.cases[0];
    let said = reading_counters(case).expect("our servers show counters");
    assert!(
        said.contains("quoit/uring 160.0 µs of its processor time (0.0")
            && said.contains("90.0 µs of the lab"),
        "{said}"
    );
    assert!(!said.contains("tokio"), "{said}");
    let said = unsteadiness(case).expect("there are seconds");
    assert!(
        said.contains("tokio ") && said.contains("(deviation of all "),
        "{said}"
    );
    for slice in &mut case.slices {
        slice.samples.clear();
    }
    assert_eq!(unsteadiness(case), None);
    let said = reading_counters(case).expect("our servers show counters");
    assert!(said.contains("at the bounds of the window only"), "{said}");
}

#[test]
fn commits_are_shortened_and_stay_dirty() {
    assert_eq!(short_commit("0123456789abcdef-dirty"), "0123456789ab-dirty");
    assert_eq!(short_commit("ä"), "ä");
}
