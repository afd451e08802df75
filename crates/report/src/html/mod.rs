//! One page that holds everything: no script, no request to anywhere, and a policy that lets
//! the browser make none.

mod figures;
mod sections;
mod style;

use crate::layouts::{facts, tables};
use crate::plot::{DrawError, MARKS};
use crate::result::Run;
use crate::table::{Align, Table, Value};
use figures::Figure;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// What a browser may load for the page: nothing. Styles and plots are part of it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The page.
///
/// # Errors
/// When a plot cannot be drawn, which no result that was read makes happen.
pub fn html(run: &Run) -> Result<String, DrawError> {
    let sections = sections::all(run)?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (run.heading()) }
                style { (PreEscaped(style::sheet())) }
            }
            body {
                (head(run))
                (contents(&sections))
                main {
                    section id="tables" { h2 { "Tables" } @for one in tables(run) { (table(&one)) } }
                    @for section in &sections { (section_of(run, section)) }
                }
                footer { p.soft {
                    "Made by keyway bench report; the figures are the result's own. How to read "
                    "them, and how to measure: docs/bench-reports.md."
                } }
            }
        }
    };
    Ok(page.into_string())
}

fn head(run: &Run) -> Markup {
    html! {
        header {
            h1 { (run.heading()) }
            @if run.interrupted {
                p.warning { "The run was interrupted: this is what had been measured." }
            }
            @let said = sections::summary(run);
            @if !said.is_empty() { ul { @for line in said { li { (line) } } } }
            details open {
                summary { "What ran, when and where" }
                dl.facts {
                    @for (name, value) in facts(run) { dt { (name) } dd { (value) } }
                }
            }
        }
    }
}

fn contents(sections: &[sections::Section]) -> Markup {
    html! {
        nav aria-label="Contents" {
            ul {
                li { a href="#tables" { "Tables" } }
                @for one in sections { li { a href={ "#" (one.id) } { (one.title) } } }
            }
        }
    }
}

fn section_of(run: &Run, section: &sections::Section) -> Markup {
    html! {
        section id=(section.id) {
            h2 { (section.title) }
            @for line in &section.says { p.soft { (line) } }
            @if section.id == "heat" { (heat_legend()) }
            @for fold in &section.folds {
                @if fold.title.is_empty() { (grid(run, &fold.figures)) }
                @else {
                    details open[fold.is_open] {
                        summary { (fold.title) }
                        (grid(run, &fold.figures))
                    }
                }
            }
        }
    }
}

fn grid(run: &Run, figures: &[Figure]) -> Markup {
    html! { div.grid { @for one in figures { (figure(run, one)) } } }
}

fn figure(run: &Run, figure: &Figure) -> Markup {
    html! {
        figure {
            figcaption {
                h3 { (figure.title) }
                @if !figure.says.is_empty() { p { (figure.says) } }
                @if figure.systems.len() > 1 {
                    ul.legend aria-label="Systems" {
                        @for nth in &figure.systems {
                            li {
                                span class={ "mark s" (nth % MARKS.len()) } aria-hidden="true" {
                                    (MARKS[nth % MARKS.len()])
                                }
                                " " (run.systems[*nth].name)
                            }
                        }
                    }
                }
            }
            div.plot role="img" aria-label=(figure.described) { (PreEscaped(&figure.svg)) }
            details {
                summary { "Figures of this plot" }
                (table(&figure.table))
            }
        }
    }
}

/// What the colours of heat maps mean.
fn heat_legend() -> Markup {
    html! {
        ul.legend aria-label="Colours: share of a second's requests" {
            @for level in 0..crate::plot::HEAT.len() {
                li {
                    span class={ "swatch h" (level) } aria-hidden="true" {}
                    @let least = crate::plot::heat::least_percent(level);
                    @if level == 0 { "fewer" }
                    @else if least < 1.0 - 1e-9 { "from " (format!("{least:.1}")) " %" }
                    @else { "from " (format!("{least:.0}")) " %" }
                }
            }
        }
    }
}

/// A table that scrolls by itself where it is wider than the page.
fn table(table: &Table) -> Markup {
    let words = table.columns.iter().take_while(|one| one.align == Align::Left).count().max(1);
    let align = |nth: usize| match table.columns.get(nth).map(|column| column.align) {
        Some(Align::Right) => Some("right"),
        _ => None,
    };
    let cell = |nth: usize, value: &Value| {
        html! {
            @if nth < words { th scope="row" class=[align(nth)] { (value.text) } }
            @else {
                td class=[align(nth)] data-value=[value.number] {
                    (value.text)
                    @if let Some(spread) = &value.spread { " " span.spread { (spread) } }
                }
            }
        }
    };
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label(table)) {
            table {
                @if !table.title.is_empty() { caption { (table.title) } }
                thead { tr { @for (nth, column) in table.columns.iter().enumerate() {
                    th scope="col" class={ (align(nth).unwrap_or_default()) (wrap(&column.title)) } {
                        (column.title)
                    }
                } } }
                tbody { @for row in &table.rows { tr {
                    @for (nth, value) in row.values.iter().enumerate() { (cell(nth, value)) }
                    @if let Some(remark) = &row.remark {
                        td colspan=(table.columns.len().saturating_sub(row.values.len()).max(1)) {
                            (remark)
                        }
                    }
                } } }
            }
        }
        @for note in &table.notes { p.soft { (note) } }
    }
}

/// Short heads stay in one line: `CPU-s` is one word.
fn wrap(title: &str) -> &'static str {
    if title.chars().count() <= 15 { " short" } else { "" }
}

fn label(table: &Table) -> &str {
    if table.title.is_empty() { "Table of figures" } else { &table.title }
}
