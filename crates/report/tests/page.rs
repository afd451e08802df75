//! The page in a real browser: what it shows against the result it was made of, on a desk and on
//! a phone, by day and by night.

mod sample;

use keyway_report::{Run, html, read, write};
use keyway_testkit::{TempDir, run_tool, skipped_for_want_of, tool_is_installed};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// The page of [`sample::proxies`], and its result as any program would read it.
struct Page {
    directory: TempDir,
    json: Value,
}

impl Page {
    fn of(run: &Run) -> Page {
        let directory = TempDir::new();
        let file = directory.path().join("result.json");
        write(run, &file).expect("a result that can be written");
        let run = read(&file).expect("what was written can be read");
        directory.write("page.html", html(&run).expect("plots that can be drawn"));
        let json = std::fs::read(file).expect("the file was written");
        Page { directory, json: serde_json::from_slice(&json).expect("it is JSON") }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// What the browser makes of a file in the directory, once its scripts are done.
    fn dom(&self, name: &str, options: &[&str]) -> String {
        let profile = format!("--user-data-dir={}", self.path().join("profile").display());
        let address = format!("file://{}", self.path().join(name).display());
        let mut arguments = vec![
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--allow-file-access-from-files",
            "--virtual-time-budget=5000",
            profile.as_str(),
        ];
        arguments.extend(options);
        arguments.extend(["--dump-dom", address.as_str()]);
        let output = run_tool("chromium", &arguments, b"", Duration::from_secs(60));
        output.expect_success("chromium").stdout
    }
}

/// Without a browser nothing can be seen; `make test` installs one.
fn has_browser(test: &str) -> bool {
    let is_there = tool_is_installed("chromium");
    if !is_there {
        skipped_for_want_of("chromium", test);
    }
    is_there
}

/// What lies between `from` and `to`, every time.
fn between<'a>(text: &'a str, from: &'a str, to: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(from).skip(1).filter_map(move |rest| Some(rest.split_once(to)?.0))
}

/// The figures in the tables of a part of the page, in order.
fn figures(part: &str) -> Vec<f64> {
    between(part, "data-value=\"", "\"").map(|text| text.parse().expect("a number")).collect()
}

fn section<'a>(dom: &'a str, id: &'a str) -> &'a str {
    let start = format!("<section id=\"{id}\">");
    let rest = dom.split_once(&start).unwrap_or_else(|| panic!("there is no {id} in {dom}")).1;
    rest.split_once("</section>").expect("sections end").0
}

/// The rounds of a system on an item.
fn rounds<'a>(json: &'a Value, system: &str, item: &str) -> Vec<&'a Value> {
    let cells = json["cells"].as_array().expect("cells");
    let cell = cells.iter().find(|cell| cell["system"] == system && cell["item"] == item);
    let rounds = cell.expect("the cell is there")["rounds"].as_array().expect("rounds");
    rounds.iter().map(|round| &round["measured"]).collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    assert!(values.len() % 2 == 1, "the samples have an odd number of rounds");
    values[values.len() / 2]
}

fn rate(round: &Value) -> f64 {
    round["requests"].as_f64().unwrap() / round["seconds"].as_f64().unwrap()
}

fn tested_cpu(round: &Value) -> f64 {
    let tested =
        round["processes"].as_array().unwrap().iter().filter(|one| one["role"] == "tested");
    tested
        .map(|one| one["user_seconds"].as_f64().unwrap() + one["system_seconds"].as_f64().unwrap())
        .sum()
}

/// The median over the rounds of each of the two systems, for every item in order.
fn by_item(json: &Value, figure: impl Fn(&Value) -> f64) -> Vec<f64> {
    let items = json["items"].as_array().unwrap();
    let pairs = items.iter().flat_map(|item| {
        ["twemproxy", "keyway"].map(|system| rounds(json, system, item["id"].as_str().unwrap()))
    });
    pairs.map(|rounds| median(rounds.into_iter().map(&figure))).collect()
}

fn assert_near(found: &[f64], wanted: &[f64], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}: {found:?} and {wanted:?}");
    for (nth, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!((found / wanted - 1.0).abs() < 1e-9, "{what}, {nth}: {found} and not {wanted}");
    }
}

#[test]
fn the_figures_under_the_plots_are_the_results() {
    if !has_browser("the page's figures against the JSON") {
        return;
    }
    let page = Page::of(&sample::proxies(5));
    let dom = page.dom("page.html", &["--window-size=1280,900"]);

    let rates = by_item(&page.json, rate);
    assert_near(&figures(section(&dom, "throughput")), &rates, "requests a second");
    let costs = by_item(&page.json, |round| tested_cpu(round) * 1e6 / rate(round) / 12.0);
    assert_near(&figures(section(&dom, "cpu")), &costs, "microseconds for a request");

    // Every row of the tables: the own columns of the report, then what it leaves out.
    let all = figures(section(&dom, "tables"));
    let rows: Vec<&[f64]> = all.chunk_by(|_, next| !rates.contains(next)).collect();
    assert_eq!(rows.len(), 16);
    let per_cpu = by_item(&page.json, |round| rate(round) * 12.0 / tested_cpu(round));
    for (nth, row) in rows.iter().enumerate() {
        // Ops/sec, latency, KB/sec, four of CPU, requests by CPU-second, and two ratios.
        assert_eq!(row.len(), if nth % 2 == 0 { 8 } else { 10 }, "row {nth}: {row:?}");
        assert_near(&[row[0], row[7]], &[rates[nth], per_cpu[nth]], "the table");
        let parts = row[3] + row[4] + row[5];
        assert!((parts / row[6] - 1.0).abs() < 0.05, "row {nth}: CPU {row:?}");
    }
    assert!(dom.contains("not measured: codis-proxy is not installed"));
}

#[test]
fn lines_are_drawn_where_the_figures_are() {
    if !has_browser("the page's curves against the JSON") {
        return;
    }
    let page = Page::of(&sample::proxies(5));
    let dom = page.dom("page.html", &["--window-size=1280,900"]);
    let throughput = section(&dom, "throughput");
    let rates = by_item(&page.json, rate);
    let svgs: Vec<&str> = between(throughput, "<svg", "</svg>").collect();
    assert_eq!(svgs.len(), 2, "one with a pipeline, one without");
    for (nth, svg) in svgs.iter().enumerate() {
        let curves: Vec<Vec<(f64, f64)>> = between(svg, "<polyline", ">")
            .filter(|line| line.contains("stroke-width=\"5\""))
            .map(|line| places(between(line, "points=\"", "\"").next().expect("points")))
            .collect();
        assert_eq!(curves.len(), 2);
        // The words along the axis say what a height means.
        let ticks = ticks(svg);
        let (zero, most) = (ticks[0], *ticks.last().expect("an axis has ticks"));
        assert_eq!(zero.1, 0.0, "the axis begins at nought");
        let slope = (most.0 - zero.0) / most.1;
        for (system, curve) in curves.iter().enumerate() {
            let figures = rates[nth * 8..][..8].iter().skip(system).step_by(2);
            assert_eq!(curve.len(), 4);
            for ((_, height), figure) in curve.iter().zip(figures) {
                let wanted = zero.0 + figure * slope;
                assert!((height - wanted).abs() <= 1.5, "{figure} at {height} and not {wanted}");
            }
        }
    }
}

/// The heights of the ticks of the axis to the left, and what stands there, from below.
fn ticks(svg: &str) -> Vec<(f64, f64)> {
    let words = svg.split("<text ").skip(1).filter(|text| text.contains("text-anchor=\"end\""));
    let tick = |text: &str| {
        let height = between(text, " y=\"", "\"").next().expect("a height").parse();
        let word = between(text, ">", "<").next().expect("a word").trim();
        let figure = match word.strip_suffix('k') {
            Some(thousands) => thousands.parse::<f64>().map(|figure| figure * 1000.0),
            None => word.parse(),
        };
        (height.expect("a number"), figure.expect("a number"))
    };
    words.map(tick).collect()
}

fn places(points: &str) -> Vec<(f64, f64)> {
    let place = |pair: &str| {
        let (x, y) = pair.split_once(',').expect("two numbers");
        (x.parse().expect("a number"), y.parse().expect("a number"))
    };
    points.split_whitespace().map(place).collect()
}

/// Loads the page into a frame as wide as a screen, and writes down what a person would see.
const LOOK: &str = r#"<!doctype html><iframe id=f style="border:0;height:800px"></iframe>
<pre id=seen></pre><script>
const width = Number(location.hash.slice(1)), frame = document.getElementById('f');
frame.style.width = width + 'px';
frame.onload = () => {
  const page = frame.contentDocument, view = frame.contentWindow, style = e => view.getComputedStyle(e);
  const root = page.documentElement, plots = [...page.querySelectorAll('.plot svg')];
  const wide = [...page.querySelectorAll('body *')].filter(e =>
    !e.closest('.scroll') && !e.closest('svg') && e.getBoundingClientRect().right > width + 0.5);
  const shown = plots.filter(e => e.getBoundingClientRect().width > 0);
  const words = shown.flatMap(e => [...e.querySelectorAll('text')]);
  const outside = words.filter(t => {
    const box = t.getBoundingClientRect(), plot = t.closest('svg').getBoundingClientRect();
    return box.left < plot.left - 1 || box.right > plot.right + 1
      || box.top < plot.top - 1 || box.bottom > plot.bottom + 1;
  });
  const same = (a, b) => { const x = a.getBoundingClientRect(), y = b.getBoundingClientRect();
    return x.left < y.right - 1 && y.left < x.right - 1 && x.top < y.bottom - 3 && y.top < x.bottom - 3; };
  const over = shown.flatMap(e => { const t = [...e.querySelectorAll('text')];
    return t.flatMap((a, n) => t.slice(n + 1).filter(b => same(a, b)).map(b => a.textContent.trim() + '|' + b.textContent.trim())); });
  document.getElementById('seen').textContent = JSON.stringify({
    view: root.clientWidth, scroll: root.scrollWidth, wide: wide.map(e => e.outerHTML.slice(0, 80)),
    plots: plots.length, shown: shown.length, named: page.querySelectorAll('.plot[role=img][aria-label]').length,
    letters: Math.min(...words.map(t => t.getBoundingClientRect().height)), outside: outside.map(t => t.textContent.trim()), over,
    paper: style(page.body).backgroundColor, ink: style(page.body).color,
    word: style(words[0]).fill, line: style(page.querySelector('.plot polyline[stroke-width="5"]')).stroke,
    loads: view.performance.getEntriesByType('resource').length,
  });
};
frame.src = 'page.html';
</script>"#;

/// What a person sees on a screen of that width.
fn seen(page: &Page, width: u32, is_dark: bool) -> Value {
    page.directory.write("look.html", LOOK);
    let scheme = format!("--blink-settings=preferredColorScheme={}", u8::from(!is_dark));
    let dom = page.dom(&format!("look.html#{width}"), &["--window-size=1400,900", &scheme]);
    let text = between(&dom, "<pre id=\"seen\">", "</pre>").next().expect("the frame was loaded");
    let text = text.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_phone_and_a_desk_show_all_of_it_by_day_and_by_night() {
    if !has_browser("the page on a phone and on a desk") {
        return;
    }
    let page = Page::of(&sample::proxies(3));
    for width in [360, 1280] {
        let mut papers = Vec::new();
        for is_dark in [false, true] {
            let seen = seen(&page, width, is_dark);
            let view = seen["view"].as_f64().unwrap();
            assert!((f64::from(width) - 20.0..=f64::from(width)).contains(&view), "{seen}");
            assert_eq!(seen["scroll"], seen["view"], "the page scrolls sideways: {seen}");
            assert_eq!(seen["wide"], serde_json::json!([]), "wider than the screen");
            assert_eq!(seen["outside"], serde_json::json!([]), "words cut off");
            assert_eq!(seen["over"], serde_json::json!([]), "words on each other");
            assert_eq!(seen["plots"], seen["named"], "{seen}");
            assert!(seen["shown"].as_u64().unwrap() >= 14, "{seen}");
            assert!(seen["letters"].as_f64().unwrap() >= 9.0, "too small to read: {seen}");
            assert_eq!(seen["loads"], 0, "the page asked for something");
            for colour in ["ink", "word", "line"] {
                let contrast = contrast(&seen[colour], &seen["paper"]);
                assert!(contrast >= 4.5, "{colour} is hard to see ({contrast}): {seen}");
            }
            papers.push(seen["paper"].clone());
        }
        assert_ne!(papers[0], papers[1], "the night looks like the day");
    }
}

#[test]
fn every_report_has_a_page_that_fits_a_phone() {
    if !has_browser("the other reports' pages on a phone") {
        return;
    }
    for run in sample::others() {
        let seen = seen(&Page::of(&run), 360, false);
        assert_eq!(seen["scroll"], seen["view"], "{}: {seen}", run.scenario);
        for what in ["wide", "outside", "over"] {
            assert_eq!(seen[what], serde_json::json!([]), "{}: {what}", run.scenario);
        }
    }
}

/// The contrast of two colours as WCAG 2 has it, from 1 to 21.
fn contrast(one: &Value, other: &Value) -> f64 {
    let light = |colour: &Value| {
        let parts = colour.as_str().unwrap().trim_start_matches("rgb(").trim_end_matches(')');
        let parts = parts.split(',').map(|part| part.trim().parse::<f64>().unwrap() / 255.0);
        let curve = |share: f64| {
            if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
        };
        parts.zip([0.2126, 0.7152, 0.0722]).map(|(part, weight)| curve(part) * weight).sum::<f64>()
    };
    let (one, other) = (light(one), light(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}
