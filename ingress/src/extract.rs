//! What handlers take from a request: a caller with the scope of the route, and a part of the path.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use tidegate_shared::store::Scope;

use crate::auth::Caller;
use crate::error::Problem;
use crate::service::{App, not_found};

/// Declares an extractor for each scope: a handler that takes one is open to its holders alone.
macro_rules! scoped {
    ($($(#[$doc:meta])* $name:ident = $scope:expr;)+) => {$(
        $(#[$doc])*
        #[allow(dead_code, reason = "some routes ask for a scope and not for who holds it")]
        pub(crate) struct $name(pub(crate) Arc<Caller>);

        impl FromRequestParts<Arc<App>> for $name {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
                let caller = app.auth.caller(&parts.headers).await?;
                let scope: Option<Scope> = $scope;
                scope.map_or(Ok(()), |scope| caller.need(scope))?;
                Ok(Self(caller))
            }
        }
    )+};
}

scoped! {
    /// Submits and reads its tenant's jobs.
    Jobs = Some(Scope::Jobs);
    /// Reads what operators see.
    Operator = Some(Scope::Read);
    /// Changes what operators may.
    Admin = Some(Scope::Admin);
    /// Has a valid key.
    Anybody = None;
}

/// A part of the path, decoded.
pub(crate) struct Segment(pub(crate) String);

impl FromRequestParts<Arc<App>> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        // What cannot be decoded names nothing of ours.
        let path = Path::<String>::from_request_parts(parts, app).await;
        path.map(|Path(text)| Self(text)).map_err(|_| not_found())
    }
}
