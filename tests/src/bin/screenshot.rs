//! The picture of the README: a page as a browser shows it, written as PNG.
//!
//! In: the address of a page and the path of the picture, as `screenshot http://127.0.0.1:6060/ docs/images/page.png` while
//! `make demo` runs. Out: the picture, once the page has shown its first answer.

use std::process::ExitCode;

use profiler_tests::browser::Browser;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, path] = arguments.as_slice() else { return fail("usage: screenshot URL FILE") };
    match picture(url).and_then(|png| Ok(std::fs::write(path, png)?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn picture(url: &str) -> profiler_tests::Result<Vec<u8>> {
    let mut browser = Browser::start(1600, 900)?;
    browser.open(url)?;
    browser.wait_until("window.profilerPage && window.profilerPage.state().answers > 0")?;
    browser.screenshot()
}

#[expect(clippy::print_stderr, reason = "a program says on standard error why it failed")]
fn fail(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::FAILURE
}
