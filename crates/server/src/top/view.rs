//! What the screen of `nowait top` shows, and how keys change it. Draws with ratatui on any backend; knows no
//! terminal and no clock.

use std::collections::{BTreeMap, VecDeque};

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, TableState, Tabs, Wrap};
use serde_json::Value;

use super::sheet::{Sheet, SheetCell, Tone, printable};
use super::sheets::{self, Sample};

/// Points of a sparkline that are kept.
const HISTORY_MAX: usize = 512;

/// Rows whose history is kept; those of thousands of zones would fill the memory.
const HISTORIES_MAX: usize = 4096;

/// Columns between two cells.
const SPACE: u16 = 2;

/// What a key asks for beyond the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Stay,
    Quit,
}

/// The state of the screen.
pub struct View {
    /// Where reports come from.
    url: String,
    last: Option<Value>,
    sheets: Vec<Sheet>,
    totals: Vec<(&'static str, SheetCell)>,
    histories: BTreeMap<(String, String), VecDeque<f64>>,
    /// Why there is no newer report.
    trouble: Option<String>,
    tab: usize,
    /// The column that each tab is sorted by, and whether in reverse.
    orders: BTreeMap<usize, (usize, bool)>,
    selected: usize,
    /// No reports are taken.
    pub is_paused: bool,
}

impl View {
    /// Without a report.
    pub fn new(url: String) -> View {
        View {
            url,
            last: None,
            sheets: Vec::new(),
            totals: Vec::new(),
            histories: BTreeMap::new(),
            trouble: None,
            tab: 0,
            orders: BTreeMap::new(),
            selected: 0,
            is_paused: false,
        }
    }

    /// Takes a report, or the reason why there is none.
    pub fn take(&mut self, report: Result<Value, String>) {
        let report = match report {
            Ok(report) => report,
            Err(trouble) => {
                self.trouble = Some(trouble);
                return;
            }
        };
        self.trouble = None;
        let before = self.last.take();
        let sample = Sample::new(report, before.as_ref());
        let totals = sheets::totals(&sample);
        for (name, _, trend) in &totals {
            self.keep("", name, *trend);
        }
        self.totals = totals.into_iter().map(|(name, cell, _)| (name, cell)).collect();
        self.sheets = sheets::all(&sample);
        let points: Vec<(&str, String, Option<f64>)> = self
            .sheets
            .iter()
            .flat_map(|sheet| {
                sheet.rows.iter().map(|row| (sheet.title, row.key.clone(), row.trend))
            })
            .collect();
        for (title, key, trend) in points {
            self.keep(title, &key, trend);
        }
        self.last = Some(sample.now);
        self.sort();
    }

    fn keep(&mut self, title: &str, key: &str, point: Option<f64>) {
        let Some(point) = point else { return };
        let name = (title.to_owned(), key.to_owned());
        if self.histories.len() >= HISTORIES_MAX && !self.histories.contains_key(&name) {
            self.histories.clear();
        }
        let history = self.histories.entry(name).or_default();
        if history.len() == HISTORY_MAX {
            history.pop_front();
        }
        history.push_back(point);
    }

    fn sort(&mut self) {
        for (tab, sheet) in self.sheets.iter_mut().enumerate() {
            if let Some((column, is_reversed)) = self.orders.get(&tab) {
                sheet.sort(*column, *is_reversed);
            }
        }
    }

    fn sheet(&self) -> Option<&Sheet> {
        self.sheets.get(self.tab)
    }

    /// A key was pressed.
    pub fn press(&mut self, key: KeyEvent) -> Action {
        let tabs = self.sheets.len().max(1);
        let rows = self.sheet().map_or(0, |sheet| sheet.rows.len());
        let last = rows.saturating_sub(1);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Action::Quit;
            }
            KeyCode::Tab | KeyCode::Right => self.choose((self.tab + 1) % tabs),
            KeyCode::BackTab | KeyCode::Left => self.choose((self.tab + tabs - 1) % tabs),
            KeyCode::Char(digit @ '1'..='9') => {
                let tab = digit as usize - '1' as usize;
                if tab < tabs {
                    self.choose(tab);
                }
            }
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::PageDown => self.selected = (self.selected + 10).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(10),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            KeyCode::Char('s') => {
                self.order(|column, columns| (column.map_or(0, |at| (at + 1) % columns), false))
            }
            KeyCode::Char('r') => {
                let old = self.orders.get(&self.tab).copied().unwrap_or((0, true));
                self.order(|_, _| (old.0, !old.1));
            }
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            _ => {}
        }
        Action::Stay
    }

    fn choose(&mut self, tab: usize) {
        (self.tab, self.selected) = (tab, 0);
    }

    /// Sorts by another column, which `next` makes of the present one and their number.
    fn order(&mut self, next: impl FnOnce(Option<usize>, usize) -> (usize, bool)) {
        let columns = self.sheet().map_or(0, |sheet| sheet.columns.len());
        if columns > 0 {
            let column = self.orders.get(&self.tab).map(|(column, _)| *column);
            self.orders.insert(self.tab, next(column, columns));
            self.sort();
        }
    }

    /// Draws everything.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(3),
            Constraint::Length(1),
            Constraint::Min(3),
            Constraint::Length(4),
            Constraint::Length(1),
        ]);
        let [head, totals, tabs, table, trend, foot] = areas.areas(frame.area());
        frame.render_widget(self.head(), head);
        self.draw_totals(frame, totals);
        let titles =
            self.sheets.iter().enumerate().map(|(at, sheet)| format!("{} {}", at + 1, sheet.title));
        let chosen = Style::new().add_modifier(Modifier::REVERSED);
        frame.render_widget(Tabs::new(titles).select(self.tab).highlight_style(chosen), tabs);
        self.draw_table(frame, table);
        self.draw_trend(frame, trend);
        let keys = "Tab 1-9 tables  arrows rows  s sort  r reverse  p pause  q quit";
        frame.render_widget(Line::styled(keys, Style::new().add_modifier(Modifier::DIM)), foot);
    }

    fn head(&self) -> Line<'_> {
        let state = match (&self.trouble, self.is_paused, &self.last) {
            (Some(trouble), ..) => Span::styled(printable(trouble), style(Tone::Bad)),
            (None, true, _) => Span::styled("paused", style(Tone::Warning)),
            (None, false, None) => Span::raw("waiting for the first report"),
            (None, false, Some(report)) => {
                let version = report["version"].as_str().unwrap_or("-");
                let text = format!(
                    "{version}, configuration {}, process {}",
                    report["generation"], report["pid"]
                );
                Span::raw(printable(&text))
            }
        };
        let url = Span::styled(&*self.url, Style::new().add_modifier(Modifier::BOLD));
        Line::from(vec![url, Span::raw("  "), state])
    }

    fn draw_totals(&self, frame: &mut Frame<'_>, area: Rect) {
        if self.totals.is_empty() {
            return;
        }
        let parts = vec![Constraint::Ratio(1, self.totals.len() as u32); self.totals.len()];
        let areas = Layout::horizontal(parts).spacing(1).split(area);
        for ((name, cell), area) in self.totals.iter().zip(areas.iter()) {
            let [title, value, line] = Layout::vertical([Constraint::Length(1); 3]).areas(*area);
            frame.render_widget(
                Line::styled(*name, Style::new().add_modifier(Modifier::DIM)),
                title,
            );
            let bold = Style::new().add_modifier(Modifier::BOLD);
            frame.render_widget(Line::styled(&*cell.text, bold), value);
            self.draw_sparkline(frame, line, "", name);
        }
    }

    fn draw_table(&self, frame: &mut Frame<'_>, area: Rect) {
        let Some(sheet) = self.sheet() else { return };
        if sheet.rows.is_empty() {
            frame.render_widget(Paragraph::new(sheet.empty).wrap(Wrap { trim: true }), area);
            return;
        }
        let widths = sheet.widths();
        let order = self.orders.get(&self.tab);
        let heads = sheet.columns.iter().zip(&widths).enumerate().map(
            |(at, ((title, is_number), width))| {
                let is_sorted = order.is_some_and(|(column, _)| *column == at);
                let style =
                    if is_sorted { Modifier::UNDERLINED | Modifier::BOLD } else { Modifier::BOLD };
                Cell::from(Span::styled(
                    aligned(title, *width, *is_number),
                    Style::new().add_modifier(style),
                ))
            },
        );
        let rows = sheet.rows.iter().map(|row| {
            Row::new(row.cells.iter().zip(sheet.columns.iter().zip(&widths)).map(
                |(cell, ((_, is_number), width))| {
                    Cell::from(Span::styled(
                        aligned(&cell.text, *width, *is_number),
                        style(cell.tone),
                    ))
                },
            ))
        });
        let last = widths.len().saturating_sub(1);
        let constraints = widths.iter().enumerate().map(|(at, width)| match at == last {
            true => Constraint::Fill(1),
            false => {
                Constraint::Length(u16::try_from(*width).unwrap_or(u16::MAX).min(area.width / 3))
            }
        });
        let table = Table::new(rows, constraints)
            .header(Row::new(heads))
            .column_spacing(SPACE)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let mut state =
            TableState::new().with_selected(Some(self.selected.min(sheet.rows.len() - 1)));
        frame.render_stateful_widget(table, area, &mut state);
    }

    /// The trend of the selected row, or its whole text where there is none.
    fn draw_trend(&self, frame: &mut Frame<'_>, area: Rect) {
        let Some(sheet) = self.sheet() else { return };
        let Some(row) = sheet.rows.get(self.selected.min(sheet.rows.len().saturating_sub(1)))
        else {
            return;
        };
        if row.trend.is_none() {
            let text: Vec<&str> = row.cells.iter().map(|cell| &*cell.text).collect();
            let text = Paragraph::new(text.join("  ")).wrap(Wrap { trim: true });
            frame.render_widget(text, area);
            return;
        }
        let name = row.cells.first().map_or("", |cell| &*cell.text);
        let block = Block::new().title(format!("{name}: {}", sheet.trend));
        let inner = block.inner(area);
        frame.render_widget(block, area);
        self.draw_sparkline(frame, inner, sheet.title, &row.key);
    }

    fn draw_sparkline(&self, frame: &mut Frame<'_>, area: Rect, title: &str, key: &str) {
        let Some(history) = self.histories.get(&(title.to_owned(), key.to_owned())) else { return };
        let shown = history.len().saturating_sub(usize::from(area.width));
        let points: Vec<f64> = history.iter().skip(shown).copied().collect();
        let top = points.iter().copied().fold(0.0, f64::max);
        // Sparklines take whole numbers.
        let scale = |point: &f64| if top > 0.0 { (point / top * 1000.0) as u64 } else { 0 };
        let data: Vec<u64> = points.iter().map(scale).collect();
        let line = Sparkline::default().data(&data).max(1000).style(Style::new().fg(Color::Cyan));
        frame.render_widget(line, area);
    }
}

fn aligned(text: &str, width: usize, is_number: bool) -> String {
    if is_number { format!("{text:>width$}") } else { text.to_owned() }
}

fn style(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Warning => Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD),
        Tone::Bad => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    fn drawn(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
    }

    fn press(view: &mut View, code: KeyCode) -> Action {
        view.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn report(time_ms: u64, requests: u64) -> Value {
        let pool = |name: &str, waiting: u64| json!({ "name": name, "busy": 1, "threads": 2, "waiting": waiting, "max_queue": 10, "clients": waiting, "operations": {} });
        json!({
            "pid": 7, "version": "nowait/0.1.0", "generation": 3, "time_ms": time_ms,
            "requests": { "total": requests }, "connections": { "active": 5, "writing": 1 },
            "findings": [], "thread_pools": [pool("default", 0), pool("slow", 9)],
            "events": [{ "number": 1, "time_ms": 0, "severity": "info", "count": 1, "text": "configuration 3\u{1b}[2J is in use" }],
        })
    }

    #[test]
    fn the_screen_follows_the_reports() {
        let mut view = View::new("http://a:80/status/".to_owned());
        assert!(drawn(&view, 80, 20).contains("waiting for the first report"));
        view.take(Ok(report(1000, 0)));
        view.take(Ok(report(2000, 50)));
        let text = drawn(&view, 100, 20);
        for part in [
            "nowait/0.1.0, configuration 3, process 7",
            "nothing calls for attention",
            "Requests/s",
            "50",
            "1 Overview",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        view.take(Err("http://a:80/status/: no server listens there".to_owned()));
        let text = drawn(&view, 100, 20);
        assert!(
            text.contains("no server listens there") && text.contains("nothing calls"),
            "{text}"
        );
    }

    #[test]
    fn keys_choose_sort_and_scroll() {
        let mut view = View::new("u".to_owned());
        view.take(Ok(report(1000, 0)));
        press(&mut view, KeyCode::Char('3'));
        let names = |view: &View| {
            let rows = &view.sheet().unwrap().rows;
            rows.iter().map(|row| row.cells[0].text.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&view), ["default", "slow"]);
        // By name, then by the fourth column: the tasks that wait.
        for _ in 0..4 {
            press(&mut view, KeyCode::Char('s'));
        }
        assert_eq!(names(&view), ["slow", "default"]);
        press(&mut view, KeyCode::Char('r'));
        assert_eq!(names(&view), ["default", "slow"]);
        // The order outlives reports.
        press(&mut view, KeyCode::Char('r'));
        view.take(Ok(report(2000, 0)));
        assert_eq!(names(&view), ["slow", "default"]);
        let text = drawn(&view, 160, 20);
        assert!(text.contains("slow: waiting tasks"), "{text}");
        press(&mut view, KeyCode::End);
        assert!(drawn(&view, 160, 20).contains("default: waiting tasks"));
        press(&mut view, KeyCode::Up);
        press(&mut view, KeyCode::BackTab);
        assert_eq!(view.sheet().unwrap().title, "Disks");
        assert!(drawn(&view, 80, 20).contains("no file was used yet"));
        press(&mut view, KeyCode::Char('p'));
        assert!(view.is_paused && drawn(&view, 80, 20).contains("paused"));
        assert_eq!(press(&mut view, KeyCode::Char('x')), Action::Stay);
        assert_eq!(press(&mut view, KeyCode::Char('q')), Action::Quit);
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.press(control), Action::Quit);
    }

    #[test]
    fn nothing_steers_the_terminal_and_no_size_is_too_small() {
        let mut view = View::new("u".to_owned());
        view.take(Ok(report(1000, 0)));
        press(&mut view, KeyCode::Char('9'));
        assert!(!drawn(&view, 120, 20).contains('\u{1b}'));
        for (width, height) in [(1, 1), (2, 40), (200, 2), (20, 8)] {
            for _ in 0..9 {
                drawn(&view, width, height);
                press(&mut view, KeyCode::Tab);
            }
        }
    }

    #[test]
    fn histories_are_bounded() {
        let mut view = View::new("u".to_owned());
        for n in 0..HISTORIES_MAX + 10 {
            view.keep("t", &n.to_string(), Some(1.0));
        }
        assert!(view.histories.len() <= HISTORIES_MAX);
        (0..2 * HISTORY_MAX).for_each(|_| view.keep("t", "one", Some(1.0)));
        assert_eq!(view.histories[&("t".to_owned(), "one".to_owned())].len(), HISTORY_MAX);
    }
}
