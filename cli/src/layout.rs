//! `reshard layout`: the algebra of layouts, from the command line.

use std::io::{self, Write};

use reshard_draw::{Scene, composed, layout as drawn_layout};
use reshard_layout::expression::{Value, evaluate};
use reshard_layout::{Answer, Error, ErrorCode};
use serde_json::{Value as Json, json};

use super::Status;
use super::arguments::Format;
use super::console::{Console, Versioned, error_json};
use super::error::{printable, shortened};
use super::guard::guarded;
use super::lines::{self, Next};
use super::pictures::PictureArgs;

/// Evaluate an expression of the layout algebra.
///
/// composition((6,2):(8,2), (4,3):(3,1))  is  ((2,2),3):((24,2),8).
/// Strides may name axes: coalesce((4,2):(1@tp,4@tp))  is  8:1@tp
#[derive(clap::Args, Debug)]
#[command(mut_arg("draw", |arg| arg.conflicts_with("batch")), mut_arg("svg", |arg| arg.conflicts_with("batch")))]
pub(crate) struct LayoutArgs {
    /// Expression, like 'complement((2,3):(1,4), 24)' or '(4,2):(2,1)(5)'
    #[arg(required_unless_present = "batch", conflicts_with = "batch", allow_hyphen_values = true)]
    expr: Option<String>,

    #[command(flatten)]
    format: Format,

    #[command(flatten)]
    pictures: PictureArgs,

    /// Read one expression per line of stdin, and answer one JSON object per line
    #[arg(long)]
    batch: bool,
}

/// The status of invalid input.
const REFUSED: Status = Status(2);
/// The status of a failed run.
const FAILED: Status = Status(1);

/// Runs the command.
pub(crate) fn run(args: &LayoutArgs, console: &mut Console<'_>) -> Status {
    let done = if args.batch { batch(console) } else { single(args, console) };
    match done {
        Ok(code) => code,
        // A reader that closes stdout early is not an error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Status(0),
        Err(error) => {
            let _ = writeln!(console.err, "error: {}", shortened(&error.to_string()));
            if args.format.json {
                let object = json!({"error": {"kind": "io", "message": error.to_string()}});
                let _ = writeln!(console.out, "{}", Versioned::new(&object).line());
            }
            FAILED
        }
    }
}

/// The answer as a JSON object.
fn object(value: &Value) -> Json {
    match value {
        Value::Integer(value) => json!({ "value": value }),
        Value::Bool(value) => json!({ "value": value }),
        Value::Answer(Answer::Yes) => json!({ "value": true }),
        Value::Answer(Answer::No) => json!({ "value": false }),
        Value::Answer(Answer::Unknown) => json!({ "value": null }),
        Value::Tuple(tuple) => json!({ "tuple": tuple.to_string() }),
        Value::Layout(layout) => json!({ "layout": layout.to_string(), "size": layout.size() }),
        Value::Named(named) => json!({ "layout": named.to_string(), "size": named.layout().size() }),
        Value::Pairs(pairs) => json!({ "layout": pairs.to_string(), "size": pairs.layout().size() }),
        Value::Points(points) if points.is_scalar() => json!({ "value": points.to_string() }),
        Value::Points(points) => json!({ "tuple": points.to_string() }),
        Value::Composed(composed) => json!({ "composed": composed.to_string(), "size": composed.size() }),
        Value::Swizzle(swizzle) => json!({ "swizzle": swizzle.to_string() }),
        Value::Tiler(tiler) => json!({ "tiler": tiler.to_string() }),
        Value::Pattern(pattern) => json!({ "pattern": pattern.to_string() }),
    }
}

/// The error as a JSON object.
fn error_object(error: &Error) -> Json {
    json!({"error": {"kind": error.code(), "message": shortened(&error.to_string())}})
}

/// The drawing of a value, if it can be drawn.
fn drawing(value: &Value) -> Result<Option<Scene>, Error> {
    let layout = value.as_layout().map(drawn_layout);
    layout.or_else(|| value.as_composed().map(composed)).transpose()
}

/// Returns the reason why a value is not drawn.
fn not_drawn(value: &Value) -> String {
    if let Some(named) = value.as_named() {
        return format!(
            "cannot draw {named}: it has strides along {}; give every axis an integer stride",
            named.names().collect::<Vec<_>>().join(", ")
        );
    }
    if let Some(pairs) = value.as_pairs() {
        return format!("cannot draw {pairs}: it is a layout of pairs; draw each side before zip");
    }
    format!("cannot draw {value}: it is not a layout")
}

/// Returns the text and the caret line of a parse error.
fn caret(error: &Error) -> Option<String> {
    let rendered = error.render();
    rendered.strip_prefix(&error.to_string())?.strip_prefix('\n').map(str::to_owned)
}

fn single(args: &LayoutArgs, console: &mut Console<'_>) -> io::Result<Status> {
    let mut refuse = |message: &str, place: Option<&str>, object: &Json| {
        if args.format.json {
            writeln!(console.out, "{}", Versioned::new(object).line())?;
        }
        // The message, and below it the indented line with the caret.
        writeln!(console.err, "error: {}", shortened(message))?;
        for line in place.into_iter().flat_map(str::lines) {
            writeln!(console.err, "  {}", printable(line))?;
        }
        Ok(REFUSED)
    };
    let value = match evaluate(args.expr.as_deref().unwrap_or_default()) {
        Ok(value) => value,
        Err(error) => return refuse(&error.to_string(), caret(&error).as_deref(), &error_object(&error)),
    };
    let drawing = if args.pictures.are_asked() {
        match drawing(&value) {
            Ok(Some(drawing)) => Some(drawing),
            Ok(None) => {
                let message = not_drawn(&value);
                let object = json!({"error": {"kind": ErrorCode::Inadmissible.as_str(), "message": message}});
                return refuse(&message, None, &object);
            }
            Err(error) => return refuse(&error.to_string(), None, &error_object(&error)),
        }
    } else {
        None
    };
    if let Some(drawing) = &drawing {
        args.pictures.write(drawing).map_err(|error| io::Error::other(error.to_string()))?;
    }
    let colour = console.colour;
    let out = &mut *console.out;
    match (&drawing, args.format.json) {
        (_, true) => writeln!(out, "{}", Versioned::new(&object(&value)).line())?,
        (Some(drawing), false) if args.pictures.are_printed() => write!(out, "{}", drawing.text(colour))?,
        (_, false) => writeln!(out, "{value}")?,
    }
    Ok(Status(0))
}

/// The answer to one line.
fn answer(line: &[u8]) -> Json {
    match std::str::from_utf8(line) {
        Ok(text) => match evaluate(text.trim_end_matches(['\n', '\r'])) {
            Ok(value) => object(&value),
            Err(error) => error_object(&error),
        },
        Err(error) => {
            let message = format!("the line is not UTF-8 at byte {}", error.valid_up_to());
            json!({"error": {"kind": ErrorCode::Parse.as_str(), "message": message}})
        }
    }
}

fn batch(console: &mut Console<'_>) -> io::Result<Status> {
    let mut input = io::BufReader::new(&mut *console.input);
    let mut out = io::BufWriter::new(&mut *console.out);
    let mut line = Vec::new();
    loop {
        let answer = match lines::next(&mut input, &mut line)? {
            Next::End => break,
            Next::TooLong => {
                json!({"error": {"kind": ErrorCode::TooLarge.as_str(), "message": lines::too_long()}})
            }
            Next::Line => guarded(|| Ok(answer(&line))).unwrap_or_else(|error| error_json(&error)),
        };
        writeln!(out, "{answer}")?;
        // A caller that writes line by line may wait for each answer; buffered input is answered at once.
        if input.buffer().is_empty() {
            out.flush()?;
        }
    }
    out.flush()?;
    Ok(Status(0))
}
