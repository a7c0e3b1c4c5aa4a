//! The terminal: takes keys and reports, and draws the [`View`].
//!
//! Reports are fetched on a thread of its own, so that keys are obeyed while a server does not respond.

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::Value;

use super::status_client::StatusUrl;
use super::view::{Action, View};

/// How long a key waits for the screen at most.
const POLL: Duration = Duration::from_millis(100);

/// Reports that wait to be shown.
const REPORTS_MAX: usize = 2;

/// Shows reports until the user quits.
///
/// # Errors
/// Standard output is no terminal, or can't be used as one.
pub fn run(url: &StatusUrl, interval: Duration) -> Result<(), String> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err("this is no terminal; --once prints the tables, --json the report".to_owned());
    }
    // Fails at once if there is no status.
    let first = url.fetch()?;
    let reports = fetch(url.clone(), interval);
    let mut view = View::new(url.to_string());
    view.take(Ok(first));
    let mut terminal = ratatui::try_init().map_err(|error| format!("the terminal: {error}"))?;
    let result = follow(&mut terminal, &mut view, &reports);
    ratatui::restore();
    result
}

/// Reports of a thread, which ends when nobody takes them.
fn fetch(url: StatusUrl, interval: Duration) -> Receiver<Result<Value, String>> {
    let (sender, receiver) = sync_channel(REPORTS_MAX);
    thread::spawn(move || {
        let send = |sender: &SyncSender<_>| sender.send(url.fetch()).is_ok();
        loop {
            thread::sleep(interval);
            if !send(&sender) {
                return;
            }
        }
    });
    receiver
}

fn follow(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    reports: &Receiver<Result<Value, String>>,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("the terminal: {error}");
    loop {
        terminal.draw(|frame| view.draw(frame)).map_err(failed)?;
        if event::poll(POLL).map_err(failed)?
            && let Event::Key(key) = event::read().map_err(failed)?
            && key.kind == KeyEventKind::Press
            && view.press(key) == Action::Quit
        {
            return Ok(());
        }
        match reports.try_recv() {
            Ok(report) if !view.is_paused => view.take(report),
            Ok(_) | Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Err("no reports arrive".to_owned()),
        }
    }
}
