//! A client that runs beside others while a test goes on.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_testkit::eventually;

/// Beyond what any check waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two lines of a client's input.
const LINE_INTERVAL: Duration = Duration::from_millis(10);

/// A client that runs until its input ends, or that is ended. Its input has a numbered line every few milliseconds.
pub(crate) struct RunningClient {
    name: &'static str,
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
    is_over: Arc<AtomicBool>,
    feeding: JoinHandle<u64>,
    hearing: [JoinHandle<()>; 2],
}

impl RunningClient {
    /// Starts a program whose output is read line by line.
    pub(crate) fn start(name: &'static str, program: &[String]) -> Self {
        let mut command = Command::new("stdbuf");
        command.arg("-oL").args(program).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (said, is_over) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicBool::new(false)));
        let (mut input, over) = (child.stdin.take().unwrap(), is_over.clone());
        let feeding = std::thread::spawn(move || {
            let mut lines = 0;
            // A client that takes no input closes it.
            while !over.load(Ordering::Acquire) && writeln!(input, "{name} {lines}").is_ok() {
                lines += 1;
                std::thread::sleep(LINE_INTERVAL);
            }
            lines
        });
        let hear = |output: Box<dyn std::io::Read + Send>| {
            let into = said.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    into.lock().unwrap().push(line);
                }
            })
        };
        let hearing = [hear(Box::new(child.stdout.take().unwrap())), hear(Box::new(child.stderr.take().unwrap()))];
        Self { name, child, said, is_over, feeding, hearing }
    }

    fn count(&self, text: &str) -> usize {
        self.said.lock().unwrap().iter().filter(|line| line.contains(text)).count()
    }

    /// Waits until it has said `text` this many times more.
    pub(crate) fn goes_on(&self, text: &str, times: usize) {
        let before = self.count(text);
        eventually(&format!("{} says {text} {times} times more", self.name), || self.count(text) >= before + times);
    }

    /// Ends its input and waits for its end: the number of lines that it was given, and those that it has said.
    pub(crate) fn end(mut self) -> (u64, Vec<String>) {
        self.is_over.store(true, Ordering::Release);
        let given = self.feeding.join().unwrap();
        eventually(&format!("{} ends", self.name), || self.child.try_wait().unwrap().is_some());
        self.hearing.into_iter().for_each(|hearing| hearing.join().unwrap());
        let said = std::mem::take(&mut *self.said.lock().unwrap());
        (given, said)
    }

    /// The same for a client that never ends by itself.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.end().1
    }
}
