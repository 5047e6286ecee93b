"""A headless Chromium, driven by its DevTools protocol over a WebSocket of our own (RFC 6455), so that tests need no driver; and a
headless Firefox by WebDriver BiDi over the same, with less of it.

    with Browser() as b:
        b.open(path, "#graph", width=1400, height=900, scheme="dark")
        b.run("document.title"); b.key("ArrowDown"); b.shot("page.png"); b.complaints
"""

import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser():
    return next((path for path in map(shutil.which, NAMES) if path), None)


def find_firefox():
    return next((path for path in map(shutil.which, ("firefox-esr", "firefox")) if path), None)


class _Socket:
    def __init__(self, url):
        host, _, path = url.removeprefix("ws://").partition("/")
        name, _, port = host.partition(":")
        self.s = socket.create_connection((name, int(port)), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.s.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                       f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.s.recv(1)
        assert b" 101 " in head, head

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        n = len(data)
        head = struct.pack(">BB", 0x81, 0x80 | n) if n < 126 else struct.pack(">BBH", 0x81, 0xfe, n) if n < 65536 else struct.pack(">BBQ", 0x81, 0xff, n)
        self.s.sendall(head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def exactly(self, n):
        parts = []
        while n:
            part = self.s.recv(min(n, 1 << 20))
            assert part, "the browser has closed the connection"
            parts.append(part)
            n -= len(part)
        return b"".join(parts)

    def receive(self):
        """A message; of its frames the last one has the first bit."""
        text = b""
        while True:
            first, n = self.exactly(2)
            n &= 127
            n = struct.unpack(">H", self.exactly(2))[0] if n == 126 else struct.unpack(">Q", self.exactly(8))[0] if n == 127 else n
            text += self.exactly(n)
            if first & 0x80:
                return text.decode()


class Browser:
    def __enter__(self):
        self.profile = tempfile.mkdtemp(prefix="browser-")
        self.process = subprocess.Popen([find_browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
                                         "--remote-allow-origins=*", f"--user-data-dir={self.profile}", "about:blank"],
                                        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        port = next(line.split("ws://")[1].split("/")[0] for line in self.process.stderr if "DevTools listening" in line)
        pages = json.load(urllib.request.urlopen(f"http://{port}/json", timeout=60))
        self.socket = _Socket(next(p["webSocketDebuggerUrl"] for p in pages if p["type"] == "page"))
        self.number, self.complaints, self.asked = 0, [], []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == self.number:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]
            kind = message.get("method")
            if kind in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
                self.complaints.append(json.dumps(message["params"])[:500])
            elif kind == "Network.requestWillBeSent":
                self.asked.append(message["params"]["request"]["url"][:200])

    def open(self, path, hash="", width=1400, height=900, scheme="light", script=True):
        """script: whether the page's own runs."""
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=Path(path).resolve().as_uri() + hash)
        while self.run("document.readyState + location.protocol") != "completefile:":
            time.sleep(0.02)
        if script:
            self.frame()

    def frame(self):
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def run(self, script):
        """The value of an expression, or of the promise that it is."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, f"{script}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **({"text": key} if len(key) == 1 and kind == "keyDown" else {}))
        self.frame()

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.frame()

    def drag(self, x, y, dx, dy, steps=10):
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", clickCount=1)
        for i in range(1, steps + 1):
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + dx * i / steps, y=y + dy * i / steps, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=x + dx, y=y + dy, button="left", clickCount=1)
        self.frame()

    def shot(self, path):
        """A .png, or a .webp, which is a fifth of its size."""
        kind = Path(path).suffix[1:]
        time.sleep(0.2)
        Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format=kind, **({"quality": 85} if kind == "webp" else {}))["data"]))


class Firefox:
    """complaints: what the console says, and what the page's policy has refused."""

    WATCH = "() => addEventListener('securitypolicyviolation', e => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`))"

    def __enter__(self):
        self.profile = tempfile.mkdtemp(prefix="browser-")
        self.process = subprocess.Popen([find_firefox(), "--headless", "--no-remote", "--profile", self.profile, "--remote-debugging-port", "0", "about:blank"],
                                        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        url = next(line.split("listening on ")[1].strip() for line in self.process.stderr if "WebDriver BiDi listening" in line)
        self.socket = _Socket(f"{url}/session")
        self.number, self.complaints = 0, []
        self.call("session.new", capabilities={})
        self.context = self.call("browsingContext.getTree")["contexts"][0]["context"]
        self.call("session.subscribe", events=["log.entryAdded"])
        self.call("script.addPreloadScript", functionDeclaration=self.WATCH)
        return self

    __exit__ = Browser.__exit__

    def call(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == self.number:
                assert message["type"] == "success", f"{method}: {message}"
                return message["result"]
            if message.get("method") == "log.entryAdded":
                self.complaints.append(json.dumps(message["params"])[:500])

    def open(self, path, hash="", width=1400, height=900):
        self.call("browsingContext.setViewport", context=self.context, viewport={"width": width, "height": height})
        self.call("browsingContext.navigate", context=self.context, url="about:blank", wait="complete")
        self.call("browsingContext.navigate", context=self.context, url=Path(path).resolve().as_uri() + hash, wait="complete")
        self.frame()

    def frame(self):
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def run(self, expression):
        """Its value, or that of the promise that it is, by way of JSON."""
        result = self.call("script.evaluate", expression=f"(async () => JSON.stringify(await ({expression})) || 'null')()",
                           target={"context": self.context}, awaitPromise=True)
        assert result["type"] == "success", f"{expression}: {result}"
        return json.loads(result["result"]["value"])

    def key(self, key):
        keys = {"Enter": "\ue007", "ArrowUp": "\ue013", "ArrowDown": "\ue015", "ArrowLeft": "\ue012", "ArrowRight": "\ue014", "Escape": "\ue00c"}
        key = keys.get(key, key)
        self.call("input.performActions", context=self.context, actions=[{"type": "key", "id": "keys", "actions": [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]}])
        self.frame()

    def shot(self, path):
        Path(path).write_bytes(base64.b64decode(self.call("browsingContext.captureScreenshot", context=self.context)["data"]))
