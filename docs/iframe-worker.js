// For pages that are opened from a folder: browsers start no workers there, and the search is one. A hidden frame does its
// work instead, with the messages of a worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inside = frame.contentWindow;
      const send = data => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.postMessage = data => setTimeout(send, 0, data);
      inside.addEventListener = (kind, listener) => { this.listener = listener; };
      this.ready = new Promise(done => {
        const script = inside.document.createElement("script");
        script.src = address;
        script.onload = done;
        inside.document.head.append(script);
      });
      this.inside = inside;
    }

    postMessage(data) {
      this.ready.then(() => this.listener({ data }));
    }
  };
}
