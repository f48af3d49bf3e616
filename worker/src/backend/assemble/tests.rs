#![allow(clippy::unwrap_used)]

use serde_json::Value;

use super::*;

fn chat() -> Assembler {
    Assembler::new(Endpoint::ChatCompletions, 1, 1_000_000)
}

fn fed(mut assembler: Assembler, chunks: &[&str]) -> Assembler {
    for chunk in chunks {
        assembler.add(chunk.as_bytes()).unwrap();
    }
    assembler
}

fn body(assembler: &Assembler) -> String {
    String::from_utf8(assembler.body()).unwrap()
}

#[test]
fn a_streamed_chat_becomes_the_plain_body() {
    let whole = fed(
        chat(),
        &[
            r#"{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":null,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}"#,
            r#"{"id":"c1","object":"chat.completion.chunk","created":2,"model":"m","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"Hé\n"},"logprobs":null,"finish_reason":null}],"usage":null}"#,
            r#"{"id":"c1","object":"chat.completion.chunk","created":2,"model":"m","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"\"llo\""},"logprobs":null,"finish_reason":"stop","stop_reason":7}],"usage":null}"#,
            r#"{"id":"c1","object":"chat.completion.chunk","created":2,"model":"m","choices":[],"usage":{"prompt_tokens":1e3,"completion_tokens":2,"total_tokens":1002}}"#,
        ],
    );
    assert_eq!(
        body(&whole),
        r#"{"id":"c1","object":"chat.completion","created":1,"model":"m","system_fingerprint":"fp","choices":[{"index":0,"message":{"role":"assistant","content":"Hé\n\"llo\""},"logprobs":null,"finish_reason":"stop","stop_reason":7}],"usage":{"prompt_tokens":1e3,"completion_tokens":2,"total_tokens":1002}}"#
    );
    assert!(whole.is_whole());
    assert_eq!(whole.finish_reasons(), ["stop"]);
    assert_eq!((whole.pieces(), whole.output_tokens()), (2, 2));
}

#[test]
fn a_streamed_completion_becomes_the_plain_body() {
    let whole = fed(
        Assembler::new(Endpoint::Completions, 2, 1_000_000),
        &[
            r#"{"id":"t","object":"text_completion","created":1,"model":"m","choices":[{"index":1,"text":"b","logprobs":{"tokens":["b"],"token_logprobs":[-0.10000000000000001],"text_offset":[ ]},"finish_reason":null}]}"#,
            r#"{"id":"t","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":"length"}]}"#,
            r#"{"id":"t","object":"text_completion","created":1,"model":"m","choices":[{"index":1,"text":"c","logprobs":{"tokens":["c"],"token_logprobs":[-1E-7],"text_offset":[3]},"finish_reason":"stop"}]}"#,
        ],
    );
    assert_eq!(
        body(&whole),
        r#"{"id":"t","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":"length"},{"index":1,"text":"bc","logprobs":{"tokens":["b","c"],"token_logprobs":[-0.10000000000000001,-1E-7],"text_offset":[3]},"finish_reason":"stop"}]}"#
    );
    assert_eq!(whole.finish_reasons(), ["length", "stop"]);
}

#[test]
fn tool_calls_are_merged_by_index() {
    let whole = fed(
        chat(),
        &[
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{}"}},{"index":0,"function":{"arguments":": 1}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
        ],
    );
    assert_eq!(
        body(&whole),
        r#"{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#
    );
}

#[test]
fn tool_calls_without_an_index_are_told_apart_by_id() {
    let whole = fed(
        chat(),
        &[
            r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"1"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"2"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"id":"b","function":{"name":"f","arguments":"3"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"arguments":"4"}}]}}]}"#,
        ],
    );
    let json: Value = serde_json::from_slice(&whole.body()).unwrap();
    let calls = &json["choices"][0]["message"]["tool_calls"];
    assert_eq!(
        (
            &calls[0]["function"]["arguments"],
            &calls[1]["function"]["arguments"]
        ),
        (&"124".into(), &"3".into())
    );
}

#[test]
fn unknown_members_are_kept() {
    let whole = fed(
        chat(),
        &[
            r#"{"x_top":{"a":1.0},"choices":[{"index":0,"delta":{"reasoning_content":"th","x_list":[1],"refusal":null,"token_ids":[1]},"x_choice":"a","token_ids":[5]}]}"#,
            r#"{"x_top":{"a":2.0},"choices":[{"index":0,"delta":{"reasoning_content":"ink","x_list":[2],"x_obj":{"b":[]},"function_call":{"name":"f","arguments":"{"}},"x_choice":"b","token_ids":[6,7]}]}"#,
            r#"{"choices":[{"index":0,"delta":{"function_call":{"arguments":"}"},"audio":{"id":"i","data":"AA","expires_at":1}}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"audio":{"id":"i","data":"BB"}}}]}"#,
        ],
    );
    assert_eq!(
        body(&whole),
        r#"{"x_top":{"a":2.0},"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":null,"reasoning_content":"think","x_list":[2],"refusal":null,"token_ids":[1],"x_obj":{"b":[]},"function_call":{"name":"f","arguments":"{}"},"audio":{"id":"i","data":"AABB","expires_at":1}},"x_choice":"b","token_ids":[5,6,7],"finish_reason":null}]}"#
    );
}

#[test]
fn a_surrogate_pair_split_over_two_chunks_is_one_character_again() {
    let whole = fed(
        chat(),
        &[
            r#"{"choices":[{"index":0,"delta":{"content":"\ud83d"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"\ude00"},"finish_reason":"stop"}]}"#,
        ],
    );
    let json: Value = serde_json::from_slice(&whole.body()).unwrap();
    assert_eq!(json["choices"][0]["message"]["content"], "😀");
}

#[test]
fn first_chunks_that_say_nothing_give_way() {
    let whole = fed(
        chat(),
        &[
            r#"{"id":"","created":0,"model":"","choices":[]}"#,
            r#"{"id":"c","created":5,"model":"m","choices":[]}"#,
        ],
    );
    assert_eq!(
        body(&whole),
        r#"{"id":"c","created":5,"model":"m","object":"chat.completion","choices":[]}"#
    );
}

#[test]
fn an_answer_is_whole_only_when_every_choice_has_finished() {
    let finish = |index: u64| {
        format!(r#"{{"choices":[{{"index":{index},"delta":{{}},"finish_reason":"stop"}}]}}"#)
    };
    let mut two = Assembler::new(Endpoint::ChatCompletions, 2, 1_000);
    assert!(!two.is_whole());
    two.add(finish(0).as_bytes()).unwrap();
    assert!(!two.is_whole(), "the second is missing");
    two.add(br#"{"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":""}]}"#)
        .unwrap();
    assert!(!two.is_whole(), "an empty reason is none");
    two.note_done();
    assert!(!two.is_whole(), "an end marker finishes no choice");
    assert_eq!(
        two.missing(),
        "the stream ended with 1 of 2 choices finished, though it says [DONE]"
    );
    two.add(finish(1).as_bytes()).unwrap();
    assert!(two.is_whole());

    let mut ignores_n = Assembler::new(Endpoint::ChatCompletions, 2, 1_000);
    ignores_n.add(finish(0).as_bytes()).unwrap();
    ignores_n.note_done();
    assert!(
        ignores_n.is_whole(),
        "a server that ends its stream is believed about how many there are"
    );

    let mut nothing = chat();
    nothing.note_done();
    assert!(!nothing.is_whole(), "an end marker alone is no answer");
}

#[test]
fn what_is_no_chunk_is_refused() {
    for chunk in [
        "",
        "[]",
        "7",
        r#"{"choices":[{"index":0,"logprobs":{"content":[{"logprob":NaN}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"x"}]}"#,
        r#"{"choices":{}}"#,
        r#"{"choices":[7]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[7]}}]}"#,
        "{\"choices\":[{\"delta\":{\"content\":\"\u{1}\"}}]}",
    ] {
        assert!(
            matches!(chat().add(chunk.as_bytes()), Err(BadChunk::Invalid(_))),
            "{chunk}"
        );
    }
    assert!(matches!(
        chat().add(b"{\"choices\":[{\"delta\":{\"content\":\"\xff\"}}]}"),
        Err(BadChunk::Invalid(_))
    ));
}

#[test]
fn an_error_in_the_stream_is_an_error_whatever_its_shape() {
    for chunk in [
        r#"{"error":{"message":"x"}}"#,
        r#"{"error":"x","choices":[]}"#,
        r#"{"object":"error","message":"x"}"#,
    ] {
        assert_eq!(
            chat().add(chunk.as_bytes()),
            Err(BadChunk::Error),
            "{chunk}"
        );
    }
    for chunk in [
        r#"{"error":null,"choices":[]}"#,
        r#"{"error":{},"choices":[]}"#,
        r#"{"error":""}"#,
    ] {
        assert!(chat().add(chunk.as_bytes()).is_ok(), "{chunk}");
    }
}

#[test]
fn the_answer_is_bounded_by_what_is_kept() {
    let mut small = Assembler::new(Endpoint::ChatCompletions, 1, 200);
    let chunk = br#"{"id":"c","choices":[{"index":0,"delta":{"content":"ten bytes."}}]}"#;
    let taken = (0..100).take_while(|_| small.add(chunk).is_ok()).count();
    assert!(
        (10..20).contains(&taken),
        "{taken} pieces of ten bytes in 200"
    );
    assert_eq!(small.add(chunk), Err(BadChunk::TooLarge));

    // A value that is replaced does not count twice.
    let mut replaced = Assembler::new(Endpoint::ChatCompletions, 1, 200);
    for _ in 0..100 {
        replaced
            .add(br#"{"x":"0123456789","choices":[],"usage":{"completion_tokens":1}}"#)
            .unwrap();
    }
}

#[test]
fn progress_and_usage_chunks_are_told_apart() {
    let mut assembler = chat();
    let mut brought = |chunk: &str| {
        let brought = assembler.add(chunk.as_bytes()).unwrap();
        (brought.progress, brought.usage_only)
    };
    assert_eq!(
        brought(r#"{"choices":[{"index":0,"delta":{}}]}"#),
        (true, false)
    );
    assert_eq!(
        brought(r#"{"choices":[],"usage":{"completion_tokens":3}}"#),
        (true, true)
    );
    assert_eq!(
        brought(r#"{"choices":[{"index":0,"delta":{}}],"usage":{"completion_tokens":3}}"#),
        (true, false)
    );
    assert_eq!(brought(r#"{"choices":[],"usage":null}"#), (false, false));
    assert_eq!(brought(r#"{"type":"ping"}"#), (false, false));
}

#[test]
fn tokens_are_estimated_until_the_server_counts() {
    let piece = r#"{"choices":[{"index":0,"delta":{"content":"x"}},{"index":1,"delta":{"reasoning":"y"}}]}"#;
    let mut assembler = fed(
        chat(),
        &[
            piece,
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
        ],
    );
    assert_eq!(assembler.output_tokens(), 2);
    assembler
        .add(br#"{"choices":[],"usage":{"completion_tokens":9}}"#)
        .unwrap();
    assert_eq!(assembler.output_tokens(), 9);
    assembler
        .add(br#"{"choices":[],"usage":{"completion_tokens":-9}}"#)
        .unwrap();
    assert_eq!(
        (assembler.output_tokens(), assembler.reported().odd),
        (2, true)
    );
}
