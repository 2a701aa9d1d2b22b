"""Chromium without a window, asked over a pipe: pages are laid out, looked at and asked, one after another, by one browser.

The protocol is Chrome's DevTools protocol (https://chromedevtools.github.io/devtools-protocol/): JSON, each message ended by a zero byte.
"""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Seconds, on a busy host, for one answer.
PATIENCE = 120


def find():
    """The browser, if there is one. BROWSER names another."""
    names = [os.environ["BROWSER"]] if os.environ.get("BROWSER") else NAMES
    return next((path for path in map(shutil.which, names) if path), None)


class Browser:
    """One process, for all pages."""

    def __init__(self, path):
        self.profile = tempfile.mkdtemp(prefix="quietmm-browser-")
        # The child has 3 to read from and 4 to write to. Ours are moved out of their way first, so that none is closed by another's coming.
        pipes = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (*os.pipe(), *os.pipe())]
        child_reads, self.to, self.answers, child_writes = pipes
        # Root has no sandbox of its own to give up.
        root = ["--no-sandbox"] if os.getuid() == 0 else []
        words = [path, "--headless=new", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--user-data-dir=" + self.profile,
                 "--remote-debugging-pipe", *root]

        def ends():
            os.dup2(child_reads, 3)
            os.dup2(child_writes, 4)

        self.process = subprocess.Popen(words, preexec_fn=ends, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(child_reads)
        os.close(child_writes)
        self.asked, self.rest, self.events = 0, b"", []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.answers)
        # Its children may still be writing.
        shutil.rmtree(self.profile, ignore_errors=True)

    def read(self, until):
        """The next message."""
        while b"\0" not in self.rest:
            if not select.select([self.answers], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser did not answer")
            more = os.read(self.answers, 1 << 20)
            if not more:
                raise EOFError("the browser ended")
            self.rest += more
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, session=None, **params):
        """Asks, and returns what it answers. Events that come meanwhile are kept."""
        self.asked += 1
        message = {"id": self.asked, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        words = json.dumps(message).encode() + b"\0"
        while words:
            words = words[os.write(self.to, words):]
        until = time.monotonic() + PATIENCE
        while True:
            got = self.read(until)
            if got.get("id") == self.asked:
                if "error" in got:
                    raise RuntimeError("%s: %s" % (method, got["error"]["message"]))
                return got["result"]
            if "method" in got:
                self.events.append(got)

    def page(self):
        """An empty page."""
        return Page(self)


class Page:
    """A page: what it says, what it loads, and how it looks."""

    def __init__(self, browser):
        self.browser = browser
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def window(self, width, height=900, **media):
        """So wide, in this scheme (`prefers_color_scheme`), and for print if `medium` says so."""
        medium = media.pop("medium", "")
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", media=medium, features=features)

    def events(self, *methods):
        """What came so far, of these kinds, of this page."""
        return [event["params"] for event in self.browser.events
                if event.get("sessionId") == self.session and event["method"] in methods]

    def open(self, url):
        """Loads a page, to its end."""
        self.browser.events.clear()
        said = self.call("Page.navigate", url=url)
        if said.get("errorText"):
            raise RuntimeError("%s: %s" % (url, said["errorText"]))
        until = time.monotonic() + PATIENCE
        while not self.events("Page.loadEventFired"):
            got = self.browser.read(until)
            if "method" in got:
                self.browser.events.append(got)

    def complaints(self):
        """What the console was told since the page was opened, by whomever."""
        lines = []
        for said in self.events("Runtime.consoleAPICalled"):
            lines.append("console.%s: %s" % (said["type"], " ".join(str(one.get("value", one.get("description"))) for one in said["args"])))
        for said in self.events("Runtime.exceptionThrown"):
            details = said["exceptionDetails"]
            lines.append("exception: " + details.get("exception", {}).get("description", details["text"]))
        for said in self.events("Log.entryAdded"):
            lines.append("%s: %s" % (said["entry"]["source"], said["entry"]["text"]))
        return lines

    def loaded(self):
        """What was asked for beside the page itself."""
        return [said["request"]["url"] for said in self.events("Network.requestWillBeSent") if said.get("type") != "Document"]

    def ask(self, expression):
        """What this JavaScript comes to; it may be a promise."""
        said = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            details = said["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return said["result"].get("value")

    def picture(self, path, whole=True):
        """A screenshot, of all of the page or of the window."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def printed(self):
        """The page as a PDF."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"])

    def tree(self):
        """What a screen reader is told: role and name of each thing that it is told of."""
        self.call("Accessibility.enable")
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        self.call("Accessibility.disable")
        value = lambda node, key: str(node.get(key, {}).get("value", ""))
        return [(value(node, "role"), value(node, "name")) for node in nodes if not node.get("ignored")]
