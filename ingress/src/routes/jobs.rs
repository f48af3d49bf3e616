//! The Jobs API.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, RawQuery, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use tidegate_shared::config::names;
use tidegate_shared::domain::{Job, State as JobState};
use tidegate_shared::telemetry::trace;

use super::{Answer, json};
use crate::auth::Caller;
use crate::connection::Hangup;
use crate::error::{Code, Problem, retry_after_s};
use crate::events;
use crate::extract::{Jobs, Segment};
use crate::input::headers::{self, MAX_WAIT_S, PREFERENCE_APPLIED};
use crate::input::query::Query;
use crate::input::submission;
use crate::service::{App, Ask, Filter, job_id};
use crate::wire::job::{JobBody, View, code, message};
use crate::wire::list::List;

/// The job was made by the same request earlier.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Most elements of a page, and how many without asking.
const MAX_PAGE: u64 = 100;
const PAGE: u64 = 20;

/// `POST /v1/jobs`
pub(super) async fn submit(
    Jobs(caller): Jobs,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    Query::read(query.as_deref(), &[])?;
    let ask = Ask {
        idempotency_key: headers::idempotency_key(&headers)?,
        traceparent: traceparent(&headers),
    };
    let max_depth = app.max_depth;
    let submission = app
        .reader
        .read(&headers, body, move |bytes| {
            submission::judge(bytes, max_depth)
        })
        .await?;
    let taken = app.submit(&caller, submission, ask).await?;
    let (mut view, mut applied) = (taken.view, None);
    if let Some(seconds) = headers::prefer_wait_s(&headers).filter(|_| !view.is_terminal()) {
        let waited = app
            .wait(&view.job.id, caller.sees(), Duration::from_secs(seconds))
            .await;
        // It is accepted: trouble while waiting must not read like a refusal.
        view = waited.unwrap_or(view);
        applied = view.is_terminal().then(|| format!("wait={seconds}"));
    }
    let done = view.is_terminal() && (applied.is_some() || taken.replayed);
    let shown = app
        .shown(&view)
        .await
        .unwrap_or_else(|_| JobBody::new(&view));
    let mut response = json(&shown);
    *response.status_mut() = if done {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    let headers = response.headers_mut();
    headers.insert(LOCATION, value(&format!("/v1/jobs/{}", view.job.id)));
    if let Some(applied) = applied {
        headers.insert(PREFERENCE_APPLIED, value(&applied));
    }
    if taken.replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    come_back(&view, headers);
    Ok(response)
}

/// A header's value out of text of our own.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// When to look again at a job that is not over.
fn come_back(view: &View, headers: &mut HeaderMap) {
    if !view.is_terminal() {
        headers.insert(
            RETRY_AFTER,
            HeaderValue::from(retry_after_s(view.eta_ms().unwrap_or(0))),
        );
    }
}

/// The caller's trace context; what is malformed is ignored.
fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(trace::TRACEPARENT)?.to_str().ok()?.trim();
    trace::parse_traceparent(text).map(|_| text.to_owned())
}

/// `GET /v1/jobs/{id}?wait=N`
pub(super) async fn read(
    Jobs(caller): Jobs,
    Segment(id): Segment,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Answer {
    let query = Query::read(query.as_deref(), &["wait"])?;
    let wait = query.integer("wait", 0, MAX_WAIT_S)?.unwrap_or(0);
    let view = app
        .wait(&job_id(&id)?, caller.sees(), Duration::from_secs(wait))
        .await?;
    let mut response = json(&app.shown(&view).await?);
    come_back(&view, response.headers_mut());
    Ok(response)
}

/// `GET /v1/jobs/{id}/result`
pub(super) async fn result(
    Jobs(caller): Jobs,
    Segment(id): Segment,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Answer {
    Query::read(query.as_deref(), &[])?;
    let view = app.read(&job_id(&id)?, caller.sees()).await?;
    let job = &view.job;
    match job.state {
        JobState::Succeeded => {}
        JobState::Scheduled | JobState::Queued | JobState::Running => {
            let detail = format!("the job is {} and has no result yet", job.state);
            return Err(
                Problem::new(Code::NotFinished, detail).retry_after_ms(view.eta_ms().unwrap_or(0))
            );
        }
        JobState::Failed | JobState::Cancelled | JobState::Expired => {
            return Err(without_result(job));
        }
    }
    let kept = if job.result_expired {
        None
    } else {
        app.result(&job.id).await?
    };
    let Some((bytes, body)) = kept else {
        return Err(Problem::new(
            Code::Expired,
            "the result is no longer kept; its retention is over",
        ));
    };
    let content_type = job
        .content_type
        .as_deref()
        .and_then(|text| HeaderValue::from_str(text).ok());
    let content_type = content_type.unwrap_or(HeaderValue::from_static("application/json"));
    let nosniff = (
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
    let length = (CONTENT_LENGTH, HeaderValue::from(bytes));
    Ok(([(CONTENT_TYPE, content_type), length, nosniff], body).into_response())
}

/// The answer in place of a result that will never be: the model server's own refusal (4xx) with its status, 502 for
/// whatever else went wrong behind us, 409 where the job was ended from this side.
fn without_result(job: &Job) -> Problem {
    let code = code(job).unwrap_or_default();
    let detail = message(job, &code);
    let error = job.error.clone().unwrap_or_default();
    let refused = error
        .upstream_status
        .and_then(|status| StatusCode::from_u16(status).ok());
    let status = match (job.state, refused) {
        (JobState::Cancelled | JobState::Expired, _) => StatusCode::CONFLICT,
        (_, Some(status)) if status.is_client_error() => status,
        _ => StatusCode::BAD_GATEWAY,
    };
    Problem::of_job(status, code, error.kind, error.param, detail)
}

/// `GET /v1/jobs/{id}/events`
pub(super) async fn events(
    Jobs(caller): Jobs,
    Segment(id): Segment,
    State(app): State<Arc<App>>,
    hangup: Option<Extension<Hangup>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    Query::read(query.as_deref(), &[])?;
    let after = headers::last_event_id(&headers)?;
    let hangup = hangup.map(|Extension(hangup)| hangup).unwrap_or_default();
    events::stream(&app, job_id(&id)?, caller.sees(), after, hangup).await
}

/// `POST /v1/jobs/{id}/cancel`
pub(super) async fn cancel(
    Jobs(caller): Jobs,
    Segment(id): Segment,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Answer {
    Query::read(query.as_deref(), &[])?;
    let view = app.cancel(&job_id(&id)?, caller.sees()).await?;
    let shown = app
        .shown(&view)
        .await
        .unwrap_or_else(|_| JobBody::new(&view));
    Ok(json(&shown))
}

/// `GET /v1/jobs`
pub(super) async fn list(
    Jobs(caller): Jobs,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Answer {
    let known = ["status", "pool", "class", "tenant", "limit", "after"];
    let query = Query::read(query.as_deref(), &known)?;
    let page = app.page(&filter(&caller, &query)?).await?;
    let last = page.jobs.last().map(|job| job.id.to_string());
    let data: Vec<JobBody> = page
        .jobs
        .into_iter()
        .map(|job| JobBody::new(&View::of(job)))
        .collect();
    Ok::<Response, _>(json(&List::new(data, page.has_more, last)))
}

/// The filter of a query, within what the caller may see.
pub(super) fn filter(caller: &Caller, query: &Query) -> Result<Filter, Problem> {
    if query.get("tenant").is_some() && !caller.is_admin() {
        return Err(Problem::field(
            Code::Forbidden,
            "tenant",
            "is for keys with the scope `admin`",
        ));
    }
    let right = |right: &'static str| right.to_owned();
    let name = |judge: fn(&str) -> Result<(), &'static str>| {
        move |text: &str| judge(text).map(|()| text.to_owned()).map_err(right)
    };
    let tenant = query.parsed("tenant", name(names::tenant_name))?;
    let states = || {
        format!(
            "one of {}",
            JobState::ALL
                .iter()
                .map(|s| s.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        )
    };
    let limit = query.integer("limit", 1, MAX_PAGE)?.unwrap_or(PAGE);
    Ok(Filter {
        pool: query
            .parsed("pool", name(names::pool_name))?
            .and_then(|pool| pool.parse().ok()),
        tenant: caller.sees().or(tenant),
        state: query.parsed("status", |text| {
            text.parse::<JobState>().map_err(|_| states())
        })?,
        class: query.parsed("class", name(names::class_name))?,
        dead: false,
        after: query.parsed("after", |text| {
            text.parse()
                .map_err(|_| "the id of a job of this list".to_owned())
        })?,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::job::tests::job;

    #[test]
    fn a_job_without_a_result_answers_with_its_error() {
        let refused = r#"{"code":"upstream_refused","message":"no","upstream_status":404}"#;
        let broken = r#"{"code":"upstream_error","message":"no","upstream_status":500}"#;
        for (state, error, status, code) in [
            ("failed", refused, 404, "upstream_refused"),
            ("failed", broken, 502, "upstream_error"),
            ("failed", "", 502, "upstream_error"),
            ("cancelled", "", 409, "cancelled"),
            ("cancelled", refused, 409, "upstream_refused"),
            ("expired", "", 409, "deadline_exceeded"),
        ] {
            let problem = without_result(&job(&[("state", state), ("error", error)]));
            assert_eq!(
                (problem.status().as_u16(), problem.code()),
                (status, code),
                "{state}"
            );
        }
    }

    #[test]
    fn a_malformed_trace_context_is_ignored() {
        let with = |text: &'static str| {
            traceparent(&HeaderMap::from_iter([(
                HeaderName::from_static("traceparent"),
                HeaderValue::from_static(text),
            )]))
        };
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(with(good).as_deref(), Some(good));
        assert_eq!(with("00-zz-b7-01"), None);
    }
}
