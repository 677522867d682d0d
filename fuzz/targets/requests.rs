//! Answers arbitrary batches of requests: no panic, status 0, and one JSON object for each line.
//!
//! The first byte picks the subcommand.

use reshard_cli::Console;

const SUBCOMMANDS: [&str; 5] = ["shards", "plan", "view", "propagate", "layout"];

/// Limit on the digits of numbers: larger numbers make answers long, which is not the target.
const DIGITS: usize = 4;

/// Checks a batch, and returns `true` if any request is answered; `None` where it is skipped.
pub(crate) fn run(data: &[u8]) -> Option<bool> {
    let [pick, lines @ ..] = data else { return None };
    if lines.split(|b| !b.is_ascii_digit()).any(|run| run.len() > DIGITS) {
        return None;
    }
    let subcommand = SUBCOMMANDS[usize::from(*pick) % SUBCOMMANDS.len()];
    let (mut input, mut out, mut err) = (lines, Vec::new(), Vec::new());
    let mut console =
        Console { input: &mut input, out: &mut out, err: &mut err, colour: false, progress: false };
    let status = reshard_cli::run(["reshard", subcommand, "--batch"], &mut console);
    assert_eq!(status.code(), 0, "{}", String::from_utf8_lossy(&err));
    let count = lines.split_inclusive(|&b| b == b'\n').count();
    let answers: Vec<&[u8]> = out.split_inclusive(|&b| b == b'\n').collect();
    assert_eq!(answers.len(), count);
    let mut answered = false;
    for answer in answers {
        let answer: serde_json::Value = serde_json::from_slice(answer).expect("JSON");
        answered |= !answer.as_object().expect("an object").contains_key("error");
    }
    Some(answered)
}
