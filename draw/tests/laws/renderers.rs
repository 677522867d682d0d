//! Renderers, each once: they write all content of a scene, and no text of a scene acts as markup or on a
//! terminal.

use quick_xml::Reader;
use quick_xml::events::Event;
use reshard_draw::{
    Bar, Bundle, Cell, Direction, Flow, Grid, Group, Head, Lane, Lanes, Limits, NOTEBOOK_BYTES, Page, Paint,
    Part, Scene, Section, Style, notebook,
};

const EVIL: &str = "<script>&\"'\u{1b}[31m\u{202e}";

/// A scene with one of everything, each text of it once.
fn everything(text: &str) -> Scene {
    let cell = |name: &str| Cell {
        text: format!("{name}{text}"),
        paint: Paint::Hues(vec![1, 2]),
        ranks: vec![1, 2],
        hint: format!("hint{text}"),
    };
    let mut grid = Grid::of_rows(vec![vec![cell("a"), cell("b"), cell("c")]; 2]);
    grid.rows[1] = Head { label: format!("row{text}"), gap: 1, cut: Some(format!("cut{text}")), left_out: 0 };
    grid.columns[1] = Head { left_out: 7, ..Head::default() };
    let ruled = Grid { style: Style::Ruled, ..grid.clone() };
    let table = Grid::table(&["head"], vec![vec![cell("d")]]);
    let flow = Flow {
        left: vec![cell("from")],
        right: vec![cell("to")],
        bundles: vec![Bundle { from: vec![0], to: vec![0], text: format!("bytes{text}") }],
    };
    let bar = Bar { from: 0.0, to: 4.0, kind: 0, text: format!("bar{text}"), is_strong: true };
    let lanes = Lanes {
        unit: "us".to_owned(),
        until: 4.0,
        kinds: vec![(format!("kind{text}"), 'k')],
        lanes: vec![Lane {
            label: format!("lane{text}"),
            end: format!("end{text}"),
            bars: vec![bar],
            ranks: vec![3],
        }],
        marks: vec![(2.0, format!("mark{text}"))],
    };
    let group = Group {
        title: format!("group{text}"),
        way: Direction::Across,
        is_boxed: true,
        parts: vec![Part::Grid(grid), Part::Grid(ruled), Part::Grid(table)],
    };
    Scene::new(format!("title{text}"), format!("about{text}"))
        .with(Part::Line(format!("line{text}")))
        .with(Part::Group(group))
        .with(Part::Flow(flow))
        .with(Part::Lanes(lanes))
        .noted(format!("note{text}"))
}

const WORDS: [&str; 17] = [
    "title", "line", "group", "a", "c", "row", "cut", "head", "d", "from", "to", "bytes", "lane", "end",
    "kind", "mark", "note",
];

#[test]
fn text_says_everything_and_nothing_acts() {
    let plain = everything("!").text(false);
    for word in WORDS {
        let seen = if word == "head" { word.to_owned() } else { format!("{word}!") };
        assert!(plain.contains(&seen), "{seen} in {plain}");
    }
    assert!(!plain.contains("b!") && plain.contains(".."), "{plain}");
    let evil = everything(EVIL).text(false);
    assert!(!evil.contains('\u{1b}') && !evil.contains('\u{202e}'));
    // In colour the only sequences are those of colours, and without them it is the same.
    let coloured = everything(EVIL).text(true);
    assert!(coloured.contains("\u{1b}[48;2;") && coloured.contains("\u{1b}[0m"));
    let mut stripped = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        let (sequence, after) = after.split_once('m').expect("a colour");
        assert!(sequence.chars().all(|c| c.is_ascii_digit() || c == ';'), "{sequence}");
        stripped.push_str(before);
        rest = after;
    }
    stripped.push_str(rest);
    assert_eq!(stripped, evil);
}

/// The texts of well-formed markup, except those in `style` and `script`, and the names of its elements.
fn read(markup: &str) -> (String, Vec<String>) {
    let mut reader = Reader::from_str(markup);
    reader.config_mut().check_end_names = true;
    let (mut texts, mut names, mut open) = (String::new(), Vec::new(), 0i32);
    loop {
        match reader.read_event().expect("it is well-formed") {
            Event::Start(start) => {
                open += 1;
                names.push(start.name().as_ref().to_owned());
                for attribute in start.attributes() {
                    let attribute = attribute.expect("an attribute");
                    assert!(!attribute.key.as_ref().starts_with("on"), "{attribute:?}");
                }
            }
            Event::End(_) => open -= 1,
            Event::Text(text) => texts.push_str(&text),
            Event::GeneralRef(name) => texts.extend(["&", &*name, ";"]),
            Event::Eof => break,
            Event::Empty(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_) => {}
        }
    }
    assert_eq!(open, 0);
    (texts, names)
}

#[test]
fn svg_says_everything_and_nothing_is_markup() {
    let (texts, names) = read(&everything("!").svg());
    for word in WORDS.iter().chain(&["about", "hint", "bar"]) {
        let seen = if *word == "head" { (*word).to_owned() } else { format!("{word}!") };
        assert!(texts.contains(&seen), "{seen}");
    }
    let evil = everything(EVIL).svg();
    let (_, evil_names) = read(&evil);
    assert_eq!(names, evil_names);
    assert!(!evil.contains("<script") && !evil.contains('\u{1b}') && !evil.contains('\u{202e}'));
}

#[test]
fn a_page_says_everything_asks_for_nothing_and_nothing_is_markup() {
    let page = |text: &str| {
        let mut page = Page::new(format!("page{text}"))
            .with(Section::new(format!("section{text}"), vec![everything(text)]))
            .with(Section::of_steps("steps", vec![everything(text), everything(text)]));
        page.words = vec![format!("words{text}")];
        page.held = vec![(3, format!("held{text}"))];
        page.html()
    };
    // The content of the script is the page's, and is not markup.
    let without_script = |html: &str| {
        let (before, rest) = html.split_once("<script>").expect("a script");
        let (script, after) = rest.split_once("</script>").expect("its end");
        assert!(!script.contains("http"));
        format!("{before}<script></script>{after}")
    };
    let html = without_script(&page("!"));
    let (texts, names) = read(&html);
    for word in WORDS.iter().chain(&["page", "section", "words", "held", "about"]) {
        let seen = if *word == "head" { (*word).to_owned() } else { format!("{word}!") };
        assert!(texts.contains(&seen), "{seen}");
    }
    for elsewhere in ["src=", "url(", "@import", "http://", "https://"] {
        let own = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!own.contains(elsewhere), "{elsewhere}");
    }
    let (_, evil_names) = read(&without_script(&page(EVIL)));
    assert_eq!(names, evil_names);
}

#[test]
fn what_a_notebook_is_given_is_small() {
    let rows = |limits: Limits| {
        Grid::of_rows(vec![vec![Cell::hued("0123456789", 3); limits.side * 40]; limits.side])
    };
    let html = notebook(|limits| Scene::new("cells", "").with(Part::Grid(rows(limits))));
    assert!(html.len() <= NOTEBOOK_BYTES && html.contains("<svg") && html.len() > NOTEBOOK_BYTES / 8);
    let long = "x".repeat(1 << 20);
    let html = notebook(|_| {
        Scene::new(long.clone(), long.clone()).with(Part::Line(long.clone())).noted(long.clone())
    });
    assert!(html.len() <= NOTEBOOK_BYTES && html.contains("too large"));
}
