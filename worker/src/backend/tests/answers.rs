//! Answers that are whole.

use tokio_util::sync::CancellationToken;

use super::rig::*;
use crate::backend::{CallRequest, Endpoint, Usage};

const USAGE: &str = r#"{"id":"c","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}"#;

#[tokio::test]
async fn a_stream_becomes_one_body_and_is_heard_on_the_way() {
    let server = serve(|mut conn| async move {
        let request = conn.request().await;
        conn.send(SSE_HEAD).await;
        for data in [
            piece("Hel"),
            piece("lo"),
            finish("stop"),
            USAGE.to_owned(),
            "[DONE]".to_owned(),
        ] {
            conn.event(&data).await;
        }
        conn.send("0\r\n\r\n").await;
        request
    })
    .await;
    let heard = Heard::default();
    let request = CallRequest {
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        ..request(Endpoint::ChatCompletions, r#"{"model":"m","seed":1e3}"#)
    };
    let answer = answer(
        backend(&server.url)
            .call(&request, NO_HURRY, &heard, &CancellationToken::new())
            .await,
    );
    assert_eq!(
        answer.body,
        r#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}"#
    );
    assert_eq!(
        (answer.status, answer.content_type.as_str(), answer.streamed),
        (200, "application/json", true)
    );
    assert_eq!(
        answer.usage,
        Usage {
            input_tokens: 7,
            output_tokens: 5,
            total_tokens: 12,
            estimated: false
        }
    );
    assert_eq!(answer.finish_reasons, ["stop"]);
    assert_eq!(
        *heard.chunks.lock().unwrap(),
        [piece("Hel"), piece("lo"), finish("stop")]
    );
    assert_eq!(*heard.output_tokens.lock().unwrap(), [1, 2, 5]);

    let sent = server.done().await;
    assert_eq!(
        sent.body,
        r#"{"model":"m","seed":1e3,"stream":true,"stream_options":{"include_usage":true}}"#
    );
    for header in [
        "post /v1/chat/completions http/1.1\r\n",
        "x-request-id: r-1\r\n",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n",
        "accept-encoding: identity\r\n",
        "content-type: application/json\r\n",
    ] {
        assert!(sent.head.contains(header), "{header} in {}", sent.head);
    }
}

#[tokio::test]
async fn a_caller_who_asks_for_the_usage_chunk_hears_it() {
    let server = say(closing_stream(&[&finish("stop"), USAGE, "[DONE]"])).await;
    let heard = Heard::default();
    let request = request(
        Endpoint::ChatCompletions,
        r#"{"stream_options":{"include_usage":true}}"#,
    );
    answer(
        backend(&server.url)
            .call(&request, NO_HURRY, &heard, &CancellationToken::new())
            .await,
    );
    assert_eq!(
        heard.chunks.lock().unwrap().last().map(String::as_str),
        Some(USAGE)
    );
}

#[tokio::test]
async fn a_stream_cut_into_single_bytes_is_the_same_answer() {
    let events = [piece("ä€😀"), finish("length"), "[DONE]".to_owned()];
    let whole = events
        .iter()
        .map(|data| format!(": ping\r\ndata: {data}\r\n\r\n"))
        .collect::<String>();
    let server = serve(move |mut conn| async move {
        conn.request().await;
        conn.send(SSE_HEAD).await;
        for byte in whole.as_bytes() {
            conn.chunk([*byte]).await;
        }
    })
    .await;
    let answer = answer(chat(&server.url, NO_HURRY).await);
    assert!(
        std::str::from_utf8(&answer.body)
            .unwrap()
            .contains(r#""content":"ä€😀""#)
    );
    assert_eq!(
        (
            answer.usage.output_tokens,
            answer.usage.estimated,
            answer.odd_usage
        ),
        (1, true, false)
    );
}

#[tokio::test]
async fn a_plain_answer_to_a_streaming_request_is_taken_byte_for_byte() {
    let body = "{ \"choices\" : [ {\"finish_reason\":\"stop\", \"message\":{\"content\":\"x\"},\"logprob\":-0.10000000000000001} ] }\n";
    for headers in [
        "content-type: application/json; charset=utf-8\r\n",
        "content-type: text/plain\r\n",
        "",
    ] {
        let server = say(plain("200 OK", headers, body)).await;
        let answer = answer(chat(&server.url, NO_HURRY).await);
        assert_eq!(
            (answer.body.as_ref(), answer.streamed),
            (body.as_bytes(), false),
            "{headers}"
        );
    }
    let server = say(plain("200 OK", "", &format!("\u{feff}{body}"))).await;
    assert_eq!(answer(chat(&server.url, NO_HURRY).await).body, body);
}

#[tokio::test]
async fn a_stream_without_a_content_type_is_known_by_its_first_bytes() {
    let server =
        say(closing_stream(&[&finish("stop")]).replace("content-type: text/event-stream\r\n", ""))
            .await;
    assert!(answer(chat(&server.url, NO_HURRY).await).streamed);
}

#[tokio::test]
async fn embeddings_go_out_untouched_and_come_back_untouched() {
    let body = "{\"object\":\"list\",\"data\":[{\"embedding\":[0.10000000000000001,1e-45]}],\"usage\":{\"prompt_tokens\":3,\"total_tokens\":3}}";
    let server = say(plain("200 OK", "content-type: application/json\r\n", body)).await;
    let asked = r#"{ "model":"m", "input":[1,2,3] }"#;
    let request = request(Endpoint::Embeddings, asked);
    let answer = answer(
        backend(&server.url)
            .call(&request, NO_HURRY, &(), &CancellationToken::new())
            .await,
    );
    assert_eq!(answer.body, body);
    assert_eq!(
        answer.usage,
        Usage {
            input_tokens: 3,
            output_tokens: 0,
            total_tokens: 3,
            estimated: false
        }
    );
    let sent = server.done().await;
    assert_eq!(sent.body, asked);
    assert!(sent.head.starts_with("post /v1/embeddings "));
}

#[tokio::test]
async fn odd_usage_is_reported_and_not_believed() {
    let odd =
        r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":-5,"total_tokens":2}}"#;
    let server = say(closing_stream(&[
        &piece("a"),
        &piece("b"),
        &finish("stop"),
        odd,
        "[DONE]",
    ]))
    .await;
    let answer = answer(chat(&server.url, NO_HURRY).await);
    assert_eq!(
        answer.usage,
        Usage {
            input_tokens: 7,
            output_tokens: 2,
            total_tokens: 9,
            estimated: true
        }
    );
    assert!(answer.odd_usage);
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_whole_answer() {
    let server = serve(|mut conn| async move {
        for _ in 0..2 {
            conn.request().await;
            let mut bytes = SSE_HEAD.to_owned();
            for data in [finish("stop").as_str(), "[DONE]"] {
                bytes.push_str(&format!("{:x}\r\ndata: {data}\n\n\r\n", data.len() + 8));
            }
            conn.send(bytes + "0\r\n\r\n").await;
        }
    })
    .await;
    let backend = backend(&server.url);
    let request = request(Endpoint::ChatCompletions, "{}");
    for _ in 0..2 {
        // The listener takes one connection only, so the second answer can come over the first one alone.
        answer(
            backend
                .call(&request, NO_HURRY, &(), &CancellationToken::new())
                .await,
        );
    }
    server.done().await;
}

#[tokio::test]
async fn a_compressed_answer_is_unpacked_whole_or_streamed() {
    let body = r#"{"choices":[{"finish_reason":"stop"}]}"#;
    let server = say(compressed("application/json", &gzipped(body.as_bytes()))).await;
    assert_eq!(answer(chat(&server.url, NO_HURRY).await).body, body);

    let heard = std::sync::Arc::new(Heard::default());
    let listener = std::sync::Arc::clone(&heard);
    let server = serve(|mut conn| async move {
        use std::io::Write;
        conn.request().await;
        conn.send(SSE_HEAD.replace("\r\n\r\n", "\r\ncontent-encoding: gzip\r\n\r\n"))
            .await;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        for (count, data) in [piece("a"), finish("stop")].iter().enumerate() {
            write!(encoder, "data: {data}\n\n").unwrap();
            encoder.flush().unwrap();
            conn.chunk(std::mem::take(encoder.get_mut())).await;
            // Each event is heard before the next is sent.
            listener.until(count + 1).await;
        }
        conn.chunk(encoder.finish().unwrap()).await;
        conn.send("0\r\n\r\n").await;
    })
    .await;
    let request = request(Endpoint::ChatCompletions, "{}");
    let never = CancellationToken::new();
    let answer = answer(
        backend(&server.url)
            .call(&request, NO_HURRY, &*heard, &never)
            .await,
    );
    assert_eq!(answer.finish_reasons, ["stop"]);
    server.done().await;
}
