//! A headless Chromium, driven through a pipe by its own protocol.

use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A page in a browser of its own, which is ended on drop.
pub struct Browser {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    profile: PathBuf,
    session: Value,
    next: u64,
    /// Exceptions and console messages of the page so far.
    pub complaints: Vec<String>,
}

impl Browser {
    /// Starts one. Without Chromium it prints `skipped: …` and returns `None`.
    pub fn start(test: &str) -> Option<Self> {
        let profile = std::env::temp_dir().join(format!("cotenant-browser-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&profile);
        fs::create_dir_all(&profile).unwrap();
        let found = Command::new("chromium").arg("--version").output().is_ok_and(|out| out.status.success());
        if !found {
            eprintln!("skipped: chromium cannot be started; install the package chromium");
            return None;
        }
        // It reads from descriptor 3 and writes to 4.
        let script = "exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
            --no-first-run --disable-extensions --disable-background-networking --remote-debugging-pipe \
            --user-data-dir=\"$0\" about:blank 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null";
        let mut process = Command::new("sh")
            .args(["-c", script])
            .arg(&profile)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut browser = Self { process, to, from, profile, session: Value::Null, next: 0, complaints: Vec::new() };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", &json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].clone();
        browser.call("Emulation.setFocusEmulationEnabled", &json!({ "enabled": true }));
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// Calls a method of the protocol and returns its result.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        self.to.write_all(message.to_string().as_bytes()).unwrap();
        self.to.write_all(&[0]).unwrap();
        loop {
            let mut text = Vec::new();
            self.from.read_until(0, &mut text).unwrap();
            assert!(text.pop() == Some(0), "chromium has ended");
            let said: Value = serde_json::from_slice(&text).unwrap();
            self.listen(&said);
            if said["id"] == id {
                assert!(said["error"].is_null(), "{method}: {said}");
                return said["result"].clone();
            }
        }
    }

    fn listen(&mut self, said: &Value) {
        let what = &said["params"];
        match said["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.complaints.push(what["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") => self.complaints.push(what["args"].to_string()),
            Some("Log.entryAdded") => self.complaints.push(what["entry"].to_string()),
            _ => {}
        }
    }

    /// Sets width and height in pixels, and the dark or light colour scheme.
    pub fn dress(&mut self, (width, height): (u32, u32), dark: bool) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// Loads a page.
    pub fn go(&mut self, url: &str) {
        let to = self.call("Page.navigate", &json!({ "url": url }));
        assert!(to["errorText"].is_null(), "{url}: {to}");
    }

    /// Evaluates a JavaScript expression on the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", &asked);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until a JavaScript expression is true on the page.
    pub fn until(&mut self, expression: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        // While a page is loading, it is empty.
        let tried = format!("(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()");
        while self.value(&tried) != true {
            assert!(Instant::now() < deadline, "not within a minute: {expression}; {:?}", self.complaints);
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses a key, such as `Tab`, `Enter`, `ArrowLeft`.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            " " => (32, " "),
            "ArrowLeft" => (37, ""),
            "ArrowRight" => (39, ""),
            "Home" => (36, ""),
            "End" => (35, ""),
            "PageUp" => (33, ""),
            "PageDown" => (34, ""),
            other => panic!("{other} is no key"),
        };
        let event = |kind: &str, text: &str| json!({ "type": kind, "key": key, "code": key, "text": text, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", &event(if text.is_empty() { "rawKeyDown" } else { "keyDown" }, text));
        self.call("Input.dispatchKeyEvent", &event("keyUp", ""));
    }

    /// Types a text.
    pub fn types(&mut self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// A screenshot as PNG, with these parameters of `Page.captureScreenshot`.
    pub fn png(&mut self, of: &Value) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", of);
        base64(shot["data"].as_str().unwrap())
    }

    /// Writes screenshots of the page from top to bottom into the folder `COTENANT_SCREENSHOTS`, if that is set.
    pub fn shoot(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("COTENANT_SCREENSHOTS") else { return };
        fs::create_dir_all(&folder).unwrap();
        let [width, height] = ["Width", "Height"].map(|side| {
            self.value(&format!("document.documentElement.scroll{side}")).as_f64().unwrap() //
        });
        for (i, top) in (0..).map(|i| (i, f64::from(i) * SLICE)).take_while(|(_, top)| *top < height) {
            let clip = json!({ "x": 0, "y": top, "width": width, "height": (height - top).min(SLICE), "scale": 1 });
            let png = self.png(&json!({ "captureBeyondViewport": true, "clip": clip }));
            fs::write(Path::new(&folder).join(format!("{name}-{i}.png")), png).unwrap();
        }
    }

    /// A screenshot from the top of the page, limited to this height in pixels.
    pub fn whole(&mut self, most: f64) -> Vec<u8> {
        let [width, height] = ["Width", "Height"].map(|side| {
            self.value(&format!("document.documentElement.scroll{side}")).as_f64().unwrap() //
        });
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height.min(most), "scale": 1 });
        self.png(&json!({ "captureBeyondViewport": true, "clip": clip }))
    }

    /// Texts on the page whose contrast is below the limit of WCAG 2 AA, each with its contrast.
    pub fn pale(&mut self) -> Vec<Value> {
        self.value(CONTRAST).as_array().unwrap().clone()
    }

    /// The plots on the page by name, each with the number of pixels that are drawn.
    pub fn plots(&mut self) -> Vec<(String, u64)> {
        let counted = self.value(PIXELS);
        let pair = |pair: &Value| (pair[0].as_str().unwrap().to_owned(), pair[1].as_u64().unwrap());
        counted.as_array().unwrap().iter().map(pair).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // Its own children write to the folder until they notice.
        for _ in 0..50 {
            if fs::remove_dir_all(&self.profile).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Height of a screenshot in pixels.
const SLICE: f64 = 1_200.0;

const PIXELS: &str = "[...document.querySelectorAll('figure[data-plot]')].map(figure => {
    const canvas = figure.querySelector('canvas');
    if (!canvas || canvas.width === 0) return [figure.dataset.plot, 0];
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let inked = 0;
    for (let i = 3; i < data.length; i += 4) inked += data[i] > 0;
    return [figure.dataset.plot, inked];
})";

/// For each element with text of its own: resulting colours over its background.
const CONTRAST: &str = "(() => {
    const parse = text => {
        const found = text.match(/^color\\(srgb ([^)]+)\\)/);
        if (found) {
            const [r, g, b, , a] = found[1].split(/[ ]+/).map(Number);
            return [r * 255, g * 255, b * 255, a ?? 1];
        }
        const [r, g, b, a] = text.match(/[\\d.]+/g).map(Number);
        return [r, g, b, a ?? 1];
    };
    const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
    const behind = element => {
        if (!element) return parse(getComputedStyle(document.body).backgroundColor);
        const own = parse(getComputedStyle(element).backgroundColor);
        return own[3] >= 1 ? own : over(own, behind(element.parentElement));
    };
    const light = ([r, g, b]) => {
        const part = value => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
        return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
    };
    // Text of a drawing is on the last rectangle drawn there, otherwise on the background of the drawing.
    const boxes = new Map();
    const drawn = element => {
        const style = getComputedStyle(element);
        if (style.fill === 'none') return [0, 0, 0, 0];
        const [r, g, b, a] = parse(style.fill);
        return [r, g, b, a * style.opacity * style.fillOpacity];
    };
    const beneath = text => {
        const svg = text.ownerSVGElement;
        if (!boxes.has(svg)) {
            boxes.set(svg, [...svg.querySelectorAll('rect')].map(rect => [rect, rect.getBoundingClientRect()]));
        }
        const own = text.getBoundingClientRect();
        const [x, y] = [(own.left + own.right) / 2, (own.top + own.bottom) / 2];
        return boxes.get(svg)
            .filter(([, box]) => box.left <= x && x <= box.right && box.top <= y && y <= box.bottom)
            .filter(([rect]) => rect.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING)
            .reduce((below, [rect]) => over(drawn(rect), below), behind(svg));
    };
    const pale = [];
    for (const element of document.querySelectorAll('body *')) {
        const own = [...element.childNodes].filter(node => node.nodeType === 3).map(node => node.textContent.trim()).join('');
        if (!own || !element.checkVisibility() || element.closest('title, desc, noscript, script, style')) continue;
        const style = getComputedStyle(element);
        const inside = element.ownerSVGElement;
        const below = inside ? beneath(element) : behind(element);
        const ink = inside ? drawn(element) : parse(style.color);
        const [one, other] = [light(over(ink, below)), light(below)].sort((a, b) => b - a);
        const contrast = (one + 0.05) / (other + 0.05);
        const large = parseFloat(style.fontSize) >= 24 || parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700;
        if (contrast < (large ? 3 : 4.5)) pale.push([own.slice(0, 60), contrast]);
    }
    return pale;
})()";

fn base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => u32::from(c - b'A'),
        b'a'..=b'z' => u32::from(c - b'a' + 26),
        b'0'..=b'9' => u32::from(c - b'0' + 52),
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let all = four.iter().fold(0, |all, c| all << 6 | digit(*c)) << (6 * (4 - four.len()));
        bytes.extend(&all.to_be_bytes()[1..four.len()]);
    }
    bytes
}
