use super::*;

/// One of everything.
fn full() -> Metrics {
    let metrics = Metrics::new("1.2.3");
    let class = ClassGauges {
        queued: 4,
        scheduled: 3,
        running: 2,
        dead: 1,
        oldest_age_seconds: 1.5,
        slots_used: 2,
        slots_limit: 8,
    };
    let gauges = PoolGauges {
        class_names: vec!["interactive".into()],
        classes: BTreeMap::from([("batch".to_owned(), class)]),
        demand_jobs: 9,
        held_tokens: 100,
        gates: vec![("paused", false)],
    };
    metrics.set_gauges(&BTreeMap::from([("gpu".to_owned(), gauges)]));
    metrics.submitted("gpu", "batch");
    metrics.finished("gpu", "batch", Outcome::Dead);
    metrics.refused("gpu", "queue_full");
    metrics.observe_wait("gpu", "batch", Duration::from_millis(7));
    metrics.observe_run("gpu", "batch", Duration::from_secs(90_000));
    metrics.leases_expired("gpu", 2);
    metrics.stale_write("gpu", "settle");
    metrics.observe_step("claim", Duration::from_micros(300));
    metrics.tokens_used("gpu", 11, 22);
    metrics.dead_letters_evicted("gpu", 5);
    metrics.poisoned("gpu", 1);
    metrics.store_epochs("gpu", 1);
    metrics.store_error("timeout");
    metrics
}

#[test]
fn every_documented_name_is_exposed_as_it_is_written() {
    let text = full().encode();
    for name in metric::ALL {
        let sample = if name.ends_with("_seconds") && !name.contains("oldest") {
            format!("{name}_count{{")
        } else {
            format!("{name}{{")
        };
        assert!(
            text.lines().any(|line| line.starts_with(&sample)),
            "{sample}\n{text}"
        );
    }
    assert!(text.ends_with("# EOF\n"));
    assert!(!text.contains("_total_total"));
}

#[test]
fn samples_carry_the_documented_labels_and_values() {
    let text = full().encode();
    for line in [
        "tidegate_jobs_submitted_total{pool=\"gpu\",class=\"batch\"} 1",
        "tidegate_jobs_finished_total{pool=\"gpu\",class=\"batch\",outcome=\"dead\"} 1",
        "tidegate_admission_refusals_total{pool=\"gpu\",reason=\"queue_full\"} 1",
        "tidegate_queue_jobs{pool=\"gpu\",class=\"batch\",state=\"queued\"} 4",
        "tidegate_queue_jobs{pool=\"gpu\",class=\"batch\",state=\"scheduled\"} 3",
        "tidegate_queue_jobs{pool=\"gpu\",class=\"batch\",state=\"running\"} 2",
        "tidegate_queue_jobs{pool=\"gpu\",class=\"batch\",state=\"dead\"} 1",
        "tidegate_pool_demand_jobs{pool=\"gpu\"} 9",
        "tidegate_queue_oldest_age_seconds{pool=\"gpu\",class=\"batch\"} 1.5",
        "tidegate_slots{pool=\"gpu\",class=\"batch\",kind=\"used\"} 2",
        "tidegate_slots{pool=\"gpu\",class=\"batch\",kind=\"limit\"} 8",
        "tidegate_held_tokens{pool=\"gpu\"} 100",
        "tidegate_job_wait_seconds_bucket{le=\"0.005\",pool=\"gpu\",class=\"batch\"} 0",
        "tidegate_job_wait_seconds_bucket{le=\"0.01\",pool=\"gpu\",class=\"batch\"} 1",
        "tidegate_job_run_seconds_bucket{le=\"7200.0\",pool=\"gpu\",class=\"batch\"} 0",
        "tidegate_job_run_seconds_bucket{le=\"+Inf\",pool=\"gpu\",class=\"batch\"} 1",
        "tidegate_lease_expirations_total{pool=\"gpu\"} 2",
        "tidegate_stale_writes_total{pool=\"gpu\",step=\"settle\"} 1",
        "tidegate_store_step_seconds_count{step=\"claim\"} 1",
        "tidegate_gate_open{pool=\"gpu\",reason=\"paused\"} 0",
        "tidegate_tokens_total{pool=\"gpu\",direction=\"input\"} 11",
        "tidegate_tokens_total{pool=\"gpu\",direction=\"output\"} 22",
        "tidegate_dead_letters_evicted_total{pool=\"gpu\"} 5",
        "tidegate_poisoned_jobs_total{pool=\"gpu\"} 1",
        "tidegate_store_epochs_total{pool=\"gpu\"} 1",
        "tidegate_store_errors_total{class=\"timeout\"} 1",
        "tidegate_build_info{version=\"1.2.3\"} 1",
    ] {
        assert!(text.lines().any(|sample| sample == line), "{line}\n{text}");
    }
}

#[test]
fn a_name_that_is_not_configured_never_becomes_a_label() {
    let metrics = full();
    metrics.submitted("gpu", "tell me a secret");
    metrics.submitted("nobody's pool", "batch");
    metrics.refused("nobody's pool", "model_not_found");
    let text = metrics.encode();
    assert!(
        text.contains("tidegate_jobs_submitted_total{pool=\"gpu\",class=\"other\"} 1"),
        "{text}"
    );
    assert!(
        text.contains("tidegate_jobs_submitted_total{pool=\"other\",class=\"other\"} 1"),
        "{text}"
    );
    assert!(
        !text.contains("secret") && !text.contains("nobody"),
        "{text}"
    );
}

#[test]
fn gauges_of_pools_and_classes_that_are_gone_go_with_the_next_snapshot() {
    let metrics = full();
    let classes = BTreeMap::from([("default".to_owned(), ClassGauges::default())]);
    let pools = BTreeMap::from([(
        "new".to_owned(),
        PoolGauges {
            classes,
            ..PoolGauges::default()
        },
    )]);
    let text = metrics.scrape(Some(&pools));
    assert!(
        text.contains("tidegate_queue_jobs{pool=\"new\",class=\"default\",state=\"queued\"} 0"),
        "{text}"
    );
    assert!(!text.contains("tidegate_queue_jobs{pool=\"gpu\""), "{text}");
    assert!(!text.contains("tidegate_gate_open{"), "{text}");
    let text = metrics.scrape(None);
    assert!(
        !text.contains("tidegate_queue_jobs{"),
        "absent, not zero, when the store cannot say\n{text}"
    );
    assert!(
        text.contains("tidegate_jobs_submitted_total{pool=\"gpu\",class=\"batch\"} 1"),
        "counters stay\n{text}"
    );
}

#[test]
fn the_number_of_labels_is_bounded_and_what_lies_beyond_adds_up() {
    let metrics = Metrics::new("1");
    let one = ClassGauges {
        queued: 1,
        oldest_age_seconds: 2.0,
        ..ClassGauges::default()
    };
    let classes: BTreeMap<String, ClassGauges> =
        (0..40).map(|n| (format!("c{n:02}"), one)).collect();
    metrics.set_pool_gauges(
        "p",
        &PoolGauges {
            classes,
            ..PoolGauges::default()
        },
    );
    let text = metrics.encode();
    assert!(
        text.contains("tidegate_queue_jobs{pool=\"p\",class=\"other\",state=\"queued\"} 8"),
        "{text}"
    );
    for n in 0..300 {
        metrics.allow(&format!("p{n}"), []);
        metrics.refused(&format!("p{n}"), "paused");
    }
    let series = metrics
        .encode()
        .lines()
        .filter(|line| line.starts_with("tidegate_admission_refusals_total"))
        .count();
    assert_eq!(series, 256, "255 pools beside the first, and other");
}

#[test]
fn every_metric_has_a_help_text_and_a_type() {
    let text = full().encode();
    for name in metric::ALL {
        let family = name.strip_suffix("_total").unwrap_or(name);
        assert!(text.contains(&format!("# HELP {family} ")), "{family}");
        assert!(text.contains(&format!("# TYPE {family} ")), "{family}");
    }
}

#[test]
fn counters_keep_their_classes_where_gauges_are_of_the_pool_as_a_whole() {
    let metrics = Metrics::new("test");
    let gauges = PoolGauges {
        classes: BTreeMap::from([("all".to_owned(), ClassGauges::default())]),
        class_names: vec!["interactive".into(), "batch".into()],
        ..PoolGauges::default()
    };
    metrics.scrape(Some(&BTreeMap::from([("default".to_owned(), gauges)])));
    metrics.submitted("default", "batch");
    let text = metrics.encode();
    assert!(
        text.contains(r#"tidegate_jobs_submitted_total{pool="default",class="batch"} 1"#),
        "{text}"
    );
}
