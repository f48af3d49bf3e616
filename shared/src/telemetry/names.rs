//! Every name of a metric, span and attribute, once.
//!
//! Attribute names follow the OpenTelemetry semantic conventions for messaging and for generative AI; what has no
//! standard name is under `tidegate.`. No prompt, key or caller-chosen string is an attribute by default.

/// Names of metrics as Prometheus shows them, and of their labels.
pub mod metric {
    /// Jobs accepted; `{pool,class}`.
    pub const JOBS_SUBMITTED: &str = "tidegate_jobs_submitted_total";
    /// Jobs that reached a terminal; `{pool,class,outcome}`.
    pub const JOBS_FINISHED: &str = "tidegate_jobs_finished_total";
    /// Submits refused; `{pool,reason}`.
    pub const ADMISSION_REFUSALS: &str = "tidegate_admission_refusals_total";
    /// Jobs by state, from the store; `{pool,class,state}`.
    pub const QUEUE_JOBS: &str = "tidegate_queue_jobs";
    /// Everything owed that counts for scaling, from the store; `{pool}`.
    pub const POOL_DEMAND_JOBS: &str = "tidegate_pool_demand_jobs";
    /// Age of the oldest waiting job in seconds, from the store; `{pool,class}`.
    pub const QUEUE_OLDEST_AGE_SECONDS: &str = "tidegate_queue_oldest_age_seconds";
    /// Slots used and their limit, from the store; `{pool,class,kind}`.
    pub const SLOTS: &str = "tidegate_slots";
    /// Tokens set aside, from the store; `{pool}`.
    pub const HELD_TOKENS: &str = "tidegate_held_tokens";
    /// From due to claimed, in seconds; `{pool,class}`.
    pub const JOB_WAIT_SECONDS: &str = "tidegate_job_wait_seconds";
    /// From claimed to settled, in seconds; `{pool,class}`.
    pub const JOB_RUN_SECONDS: &str = "tidegate_job_run_seconds";
    /// Leases that lapsed; `{pool}`.
    pub const LEASE_EXPIRATIONS: &str = "tidegate_lease_expirations_total";
    /// Writes refused because their delivery was no longer current; `{pool,step}`.
    pub const STALE_WRITES: &str = "tidegate_stale_writes_total";
    /// Time of one step at the store, in seconds; `{step}`.
    pub const STORE_STEP_SECONDS: &str = "tidegate_store_step_seconds";
    /// Whether claims go on, 1 or 0; `{pool,reason}`.
    pub const GATE_OPEN: &str = "tidegate_gate_open";
    /// Tokens used; `{pool,direction}`.
    pub const TOKENS: &str = "tidegate_tokens_total";
    /// Dead letters given up because there were too many; `{pool}`.
    pub const DEAD_LETTERS_EVICTED: &str = "tidegate_dead_letters_evicted_total";
    /// Jobs dead because their leases kept being lost; `{pool}`.
    pub const POISONED_JOBS: &str = "tidegate_poisoned_jobs_total";
    /// Times that the pool's server was found restarted or replaced; `{pool}`.
    pub const STORE_EPOCHS: &str = "tidegate_store_epochs_total";
    /// Failed commands of the store; `{class}`: what kind of failure.
    pub const STORE_ERRORS: &str = "tidegate_store_errors_total";
    /// Always 1; `{version}`.
    pub const BUILD_INFO: &str = "tidegate_build_info";

    /// Every name above.
    pub const ALL: [&str; 20] = [
        JOBS_SUBMITTED,
        JOBS_FINISHED,
        ADMISSION_REFUSALS,
        QUEUE_JOBS,
        POOL_DEMAND_JOBS,
        QUEUE_OLDEST_AGE_SECONDS,
        SLOTS,
        HELD_TOKENS,
        JOB_WAIT_SECONDS,
        JOB_RUN_SECONDS,
        LEASE_EXPIRATIONS,
        STALE_WRITES,
        STORE_STEP_SECONDS,
        GATE_OPEN,
        TOKENS,
        DEAD_LETTERS_EVICTED,
        POISONED_JOBS,
        STORE_EPOCHS,
        STORE_ERRORS,
        BUILD_INFO,
    ];
}

/// Names of spans.
pub mod span {
    /// Taking a job in: `send jobs.{pool}`.
    pub fn send(pool: &str) -> String {
        format!("send jobs.{pool}")
    }

    /// One delivery, linked to the submitter's span: `process jobs.{pool}`.
    pub fn process(pool: &str) -> String {
        format!("process jobs.{pool}")
    }

    /// Closing a delivery: `settle jobs.{pool}`.
    pub fn settle(pool: &str) -> String {
        format!("settle jobs.{pool}")
    }

    /// The call of the model: `{operation} {model}`, e.g. `chat llama-3-8b`. The operation is one of
    /// [`super::operation`].
    pub fn model_call(operation: &str, model: &str) -> String {
        format!("{operation} {model}")
    }

    /// `tracing` span of [`send`]; a span's static name, while `otel.name` carries the full one.
    pub const SEND: &str = "send";
    /// `tracing` span of [`process`].
    pub const PROCESS: &str = "process";
    /// `tracing` span of [`settle`].
    pub const SETTLE: &str = "settle";
    /// `tracing` span of [`model_call`].
    pub const MODEL_CALL: &str = "model_call";
}

/// Values of [`attribute::GEN_AI_OPERATION_NAME`].
pub mod operation {
    /// `/v1/chat/completions`.
    pub const CHAT: &str = "chat";
    /// `/v1/completions`.
    pub const TEXT_COMPLETION: &str = "text_completion";
    /// `/v1/embeddings`.
    pub const EMBEDDINGS: &str = "embeddings";
}

/// Names of attributes.
pub mod attribute {
    /// Name of the span as exporters show it (read by the OpenTelemetry layer).
    pub const OTEL_NAME: &str = "otel.name";
    /// Kind of the span: `producer`, `consumer`, `client` (read by the OpenTelemetry layer).
    pub const OTEL_KIND: &str = "otel.kind";
    /// `ERROR` on failure (read by the OpenTelemetry layer).
    pub const OTEL_STATUS_CODE: &str = "otel.status_code";
    /// The service.
    pub const SERVICE_NAME: &str = "service.name";
    /// Its version.
    pub const SERVICE_VERSION: &str = "service.version";
    /// Its instance: random for each process life.
    pub const SERVICE_INSTANCE_ID: &str = "service.instance.id";
    /// Always `tidegate`.
    pub const MESSAGING_SYSTEM: &str = "messaging.system";
    /// `jobs.{pool}`.
    pub const MESSAGING_DESTINATION_NAME: &str = "messaging.destination.name";
    /// `send`, `process`, `settle`.
    pub const MESSAGING_OPERATION_NAME: &str = "messaging.operation.name";
    /// The same in the convention's words: `send`, `process`, `settle`.
    pub const MESSAGING_OPERATION_TYPE: &str = "messaging.operation.type";
    /// The job's id.
    pub const MESSAGING_MESSAGE_ID: &str = "messaging.message.id";
    /// Bytes of the request's body.
    pub const MESSAGING_MESSAGE_BODY_SIZE: &str = "messaging.message.body.size";
    /// Value of [`MESSAGING_SYSTEM`].
    pub const SYSTEM_TIDEGATE: &str = "tidegate";
    /// One of [`super::operation`].
    pub const GEN_AI_OPERATION_NAME: &str = "gen_ai.operation.name";
    /// Always `openai`: the interface, not the vendor.
    pub const GEN_AI_PROVIDER_NAME: &str = "gen_ai.provider.name";
    /// Model asked for.
    pub const GEN_AI_REQUEST_MODEL: &str = "gen_ai.request.model";
    /// Model that answered.
    pub const GEN_AI_RESPONSE_MODEL: &str = "gen_ai.response.model";
    /// Why the model stopped.
    pub const GEN_AI_RESPONSE_FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
    /// Tokens read.
    pub const GEN_AI_USAGE_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
    /// Tokens written.
    pub const GEN_AI_USAGE_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
    /// Host of the model server.
    pub const SERVER_ADDRESS: &str = "server.address";
    /// Port of the model server.
    pub const SERVER_PORT: &str = "server.port";
    /// Status of the model server's answer.
    pub const HTTP_RESPONSE_STATUS_CODE: &str = "http.response.status_code";
    /// Code of a failure, from the documented list.
    pub const ERROR_TYPE: &str = "error.type";
    /// Pool of the job.
    pub const POOL: &str = "tidegate.pool";
    /// Class of the job.
    pub const CLASS: &str = "tidegate.class";
    /// Tenant of the job.
    pub const TENANT: &str = "tidegate.tenant";
    /// Fence of the delivery.
    pub const FENCE: &str = "tidegate.fence";
    /// Attempts charged so far.
    pub const ATTEMPT: &str = "tidegate.attempt";
    /// How the delivery ended: the verdict.
    pub const VERDICT: &str = "tidegate.verdict";
    /// The worker's id, random for each process life.
    pub const WORKER: &str = "tidegate.worker";
    /// What the store answered to the settlement.
    pub const OUTCOME: &str = "tidegate.outcome";
}
