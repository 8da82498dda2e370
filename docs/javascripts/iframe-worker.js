// Browsers grant no workers to pages opened from disk; a hidden frame searches in their place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      const load = (address) => new Promise((done, fail) => {
        const script = inner.document.createElement("script");
        script.src = new URL(address, location.href).href;
        script.onload = done;
        script.onerror = fail;
        inner.document.body.append(script);
      });
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inner.importScripts = (...all) => all.reduce((before, next) => before.then(() => load(next)), Promise.resolve());
      this.inner = inner;
      this.ready = load(url);
    }
    postMessage(data) {
      // What a worker is told, it is told once it listens.
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
