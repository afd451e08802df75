//! The terminal: what is typed comes in, what is drawn goes out, and at the end it is as before.

use crate::Options;
use crate::keys::Controls;
use crate::pace::{Pace, cpu_time};
use crate::tables::Choice;
use crate::view::Scene;
use crate::watch::Watch;
use crossterm::event::{self, Event, KeyEventKind};
use ratatui::DefaultTerminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for a key while nothing else is due: how late a signal to stop is seen.
const WAIT_MAX: Duration = Duration::from_millis(250);
/// The same while answers are awaited: how late they are shown.
const WAIT_ASKING: Duration = Duration::from_millis(30);

impl Options {
    fn choice(&self) -> Choice {
        Choice {
            sort: self.sort,
            is_reversed: false,
            filter: self.filter.clone(),
            is_merged: self.is_merged,
        }
    }
}

/// Shows the processes on the terminal until `q` is typed or `stop` is set.
///
/// # Errors
/// When the terminal refuses; it is put back as it was.
pub fn show(options: &Options, stop: &AtomicBool) -> io::Result<()> {
    let mut watch = Watch::start(&options.targets, &options.credentials)?;
    let mut terminal = ratatui::try_init()?;
    let result = Screen::new(options, &mut watch).run(&mut terminal, stop);
    ratatui::try_restore()?;
    result
}

/// Prints the processes `count` times, without end if that is `None`. True when each of them
/// answered the last time.
///
/// # Errors
/// When nobody reads any more, or a thread cannot be started.
pub fn print(
    options: &Options,
    count: Option<u32>,
    stop: &AtomicBool,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let mut watch = Watch::start(&options.targets, &options.credentials)?;
    let choice = options.choice();
    let mut pace = Pace::new(options.interval, cpu_time());
    watch.round();
    let mut left = count.unwrap_or(u32::MAX);
    while left > 0 {
        wait(pace.interval(), stop);
        if stop.load(Ordering::Relaxed) {
            break;
        }
        watch.round();
        pace.on_round(cpu_time());
        out.write_all(crate::plain::page(watch.seen(), &choice, Instant::now()).as_bytes())?;
        left -= u32::from(count.is_some());
        if left > 0 {
            out.write_all(b"\n")?;
        }
        out.flush()?;
    }
    Ok(watch.seen().iter().all(|seen| seen.gone.is_none()))
}

/// Waits, in steps that let `stop` be seen.
fn wait(time: Duration, stop: &AtomicBool) {
    let until = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(WAIT_MAX));
    }
}

/// What a wait for the keyboard came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    /// Something was typed, or the size changed.
    There,
    None,
    /// The terminal is no more.
    Gone,
}

/// Waits for input here and not in crossterm, which reads on and on, and never returns, once the
/// terminal has hung up.
fn await_input(wait: Duration) -> io::Result<Input> {
    let stdin = io::stdin();
    let mut wanted = [PollFd::new(&stdin, PollFlags::IN)];
    let nanoseconds = i64::from(wait.subsec_nanos());
    let wait = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: nanoseconds };
    match poll(&mut wanted, Some(&wait)) {
        Ok(0) => Ok(Input::None),
        Ok(_) => {
            let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
            let is_gone = wanted[0].revents().intersects(gone);
            Ok(if is_gone { Input::Gone } else { Input::There })
        }
        // A signal: perhaps that of another size.
        Err(Errno::INTR) => Ok(Input::There),
        Err(error) => Err(error.into()),
    }
}

struct Screen<'w> {
    watch: &'w mut Watch,
    controls: Controls,
    pace: Pace,
    next_round: Instant,
    is_plain: bool,
    is_stale: bool,
}

impl<'w> Screen<'w> {
    fn new(options: &Options, watch: &'w mut Watch) -> Screen<'w> {
        Screen {
            watch,
            controls: Controls::new(options.choice(), options.interval),
            pace: Pace::new(options.interval, cpu_time()),
            next_round: Instant::now(),
            is_plain: options.is_plain,
            is_stale: true,
        }
    }

    fn run(&mut self, terminal: &mut DefaultTerminal, stop: &AtomicBool) -> io::Result<()> {
        while !self.controls.is_over && !stop.load(Ordering::Relaxed) {
            self.begin_round();
            self.is_stale |= self.watch.take(Duration::ZERO);
            if self.is_stale {
                self.draw(terminal)?;
            }
            self.take_events()?;
        }
        Ok(())
    }

    fn begin_round(&mut self) {
        let now = Instant::now();
        if self.controls.is_paused || now < self.next_round {
            return;
        }
        self.pace.on_round(cpu_time());
        self.watch.ask();
        self.next_round = now + self.pace.interval();
        // The clock in the head goes on also when nobody answers.
        self.is_stale = true;
    }

    fn draw(&mut self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        let interval = (self.pace.interval(), self.pace.is_slowed());
        let mut scroll_max = 0;
        terminal.draw(|frame| {
            let scene = Scene {
                seen: self.watch.seen(),
                controls: &self.controls,
                interval,
                is_plain: self.is_plain,
                now: Instant::now(),
            };
            scroll_max = scene.draw(frame.area(), frame.buffer_mut());
        })?;
        self.controls.scroll = self.controls.scroll.min(scroll_max);
        self.is_stale = false;
        Ok(())
    }

    /// Waits for what is typed, until something else is due.
    fn take_events(&mut self) -> io::Result<()> {
        let until_round = self.next_round.saturating_duration_since(Instant::now());
        let most = if self.watch.is_asking() { WAIT_ASKING } else { WAIT_MAX };
        let paused = self.controls.is_paused;
        let typed = await_input(if paused { most } else { most.min(until_round) })?;
        self.controls.is_over |= typed == Input::Gone;
        while typed == Input::There && event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => self.on_key(key),
                _ => {}
            }
            self.is_stale = true;
        }
        Ok(())
    }

    fn on_key(&mut self, key: event::KeyEvent) {
        let before = self.controls.interval;
        self.controls.on_key(key);
        if self.controls.interval != before {
            self.pace.wanted = self.controls.interval;
            self.next_round = Instant::now() + self.pace.interval();
        }
    }
}
