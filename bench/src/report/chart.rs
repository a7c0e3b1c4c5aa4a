//! The charts, as SVG: one of all ratios, and one of the values of every scenario.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::results::{Results, ScenarioResult, VariantResult};
use crate::server::Side;

const WIDTH: u32 = 820;
const LABEL_WIDTH: i32 = 290;
const BAR_HEIGHT: i32 = 16;
const BAR_GAP: i32 = 8;
const FONT: &str = "sans-serif";

const NGINX: RGBColor = RGBColor(150, 158, 168);
const PEER: RGBColor = RGBColor(214, 146, 62);
const FLOOR: RGBColor = RGBColor(205, 208, 212);
const NOWAIT: RGBColor = RGBColor(37, 121, 196);
const INK: RGBColor = RGBColor(40, 44, 52);
const SPREAD: RGBColor = RGBColor(90, 96, 106);

/// One bar: label, value and spread.
struct Bar {
    label: String,
    side: Side,
    median: f64,
    /// Ends of the range that is drawn over the bar.
    low: f64,
    high: f64,
    text: String,
}

/// A title over bars, all on one scale.
struct BarGroup {
    title: String,
    bars: Vec<Bar>,
}

/// Draws `ratio.svg` and one `SCENARIO.svg` each.
pub fn draw(results: &Results, order: &[&str], directory: &Path) -> Result<(), String> {
    let outcomes = order.iter().filter_map(|name| Some((*name, results.scenarios.get(*name)?)));
    let mut ratios = Vec::new();
    for (name, outcome) in outcomes {
        if outcome.rows.is_empty() {
            continue;
        }
        let title = format!("{}: {}", outcome.title, outcome.unit);
        let bars = outcome.rows.iter().map(value_bar).collect();
        draw_blocks(&directory.join(format!("{name}.svg")), &[BarGroup { title, bars }], None)?;
        if outcome.unit.contains("CPU") {
            ratios.push(ratio_block(outcome));
        }
    }
    if ratios.is_empty() {
        return Ok(());
    }
    let title = "Server CPU per request, relative to nginx's best setting (shorter is better)";
    ratios.insert(0, BarGroup { title: title.to_owned(), bars: Vec::new() });
    draw_blocks(&directory.join("ratio.svg"), &ratios, Some(1.0))
}

fn value_bar(row: &VariantResult) -> Bar {
    let value = row.value;
    let digits = if value.median < 100.0 { 1 } else { 0 };
    Bar {
        label: row.label.clone(),
        side: row.side,
        median: value.median,
        low: value.range().0,
        high: value.range().1,
        text: format!("{:.digits$}", value.median),
    }
}

/// Server CPU relative to nginx's best setting. Of many settings only these are drawn: nginx's
/// best and its usual one, Nowait with the usual one, the best of other servers, and the floor.
fn ratio_block(outcome: &ScenarioResult) -> BarGroup {
    let best_peer = outcome.best_peer().map(|row| row.label.as_str());
    let drawn = |row: &&VariantResult| match &outcome.usual {
        _ if matches!(row.side, Side::Peer(_)) => Some(row.label.as_str()) == best_peer,
        None => true,
        Some(usual) if row.side == Side::Nginx => {
            [usual, outcome.reference.as_ref().unwrap_or(usual)].contains(&&row.label)
        }
        Some(_) => row.side == Side::Floor || row.label.ends_with("open_file_cache"),
    };
    let bars = outcome.rows.iter().filter(drawn).filter_map(|row| {
        let ratio = row.ratio?;
        let (side, label) = (row.side, row.label.clone());
        let text = format!("{:.2}", ratio.median);
        let (low, high) = ratio.range();
        Some(Bar { label, side, median: ratio.median, low, high, text })
    });
    BarGroup { title: outcome.title.clone(), bars: bars.collect() }
}

/// Draws blocks under each other; `line` marks a value.
fn draw_blocks(path: &Path, blocks: &[BarGroup], line: Option<f64>) -> Result<(), String> {
    let step = BAR_HEIGHT + BAR_GAP;
    let height: i32 =
        20 + blocks.iter().map(|block| 44 + step * block.bars.len() as i32).sum::<i32>();
    let area = SVGBackend::new(path, (WIDTH, height as u32)).into_drawing_area();
    paint(&area, blocks, line)
        .and_then(|()| area.present())
        .map_err(|error| format!("{}: {error}", path.display()))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Painted = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn paint(area: &Area<'_>, blocks: &[BarGroup], line: Option<f64>) -> Painted {
    let left = |vertical| Pos::new(HPos::Left, vertical);
    let heading = (FONT, 19).into_font().color(&INK).pos(left(VPos::Top));
    let label = (FONT, 16).into_font().color(&INK).pos(Pos::new(HPos::Right, VPos::Center));
    let number = (FONT, 16).into_font().color(&INK).pos(left(VPos::Center));
    // Room for the number behind the longest bar.
    let room = f64::from(WIDTH as i32 - LABEL_WIDTH - 80);

    area.fill(&WHITE)?;
    let mut y = 16;
    for block in blocks {
        let top = block.bars.iter().map(|bar| bar.high).fold(line.unwrap_or(0.0), f64::max);
        let x = |value: f64| LABEL_WIDTH + (value / top * room) as i32;
        area.draw(&Text::new(block.title.as_str(), (12, y), heading.clone()))?;
        y += 26;
        let first = y;
        for bar in &block.bars {
            let middle = y + BAR_HEIGHT / 2;
            let color = match bar.side {
                Side::Nginx => NGINX,
                Side::Nowait | Side::Against => NOWAIT,
                Side::Peer(_) => PEER,
                Side::Floor => FLOOR,
            };
            let corners = [(LABEL_WIDTH, y), (x(bar.median), y + BAR_HEIGHT)];
            area.draw(&Text::new(bar.label.as_str(), (LABEL_WIDTH - 8, middle), label.clone()))?;
            area.draw(&Rectangle::new(corners, color.filled()))?;
            area.draw(&PathElement::new(
                vec![(x(bar.low), middle), (x(bar.high), middle)],
                SPREAD,
            ))?;
            for end in [x(bar.low), x(bar.high)] {
                area.draw(&PathElement::new(vec![(end, middle - 3), (end, middle + 3)], SPREAD))?;
            }
            let at = (x(bar.high) + 6, middle);
            area.draw(&Text::new(bar.text.as_str(), at, number.clone()))?;
            y += BAR_HEIGHT + BAR_GAP;
        }
        if let Some(value) = line.filter(|_| y > first) {
            area.draw(&PathElement::new(vec![(x(value), first - 4), (x(value), y)], INK))?;
        }
        y += 18;
    }
    Ok(())
}
