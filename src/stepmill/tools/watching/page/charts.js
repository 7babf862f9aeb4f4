// Small charts on canvases, in the colours of the page.
"use strict";

const charts = {
  // A canvas that is ready to be drawn on: its size in CSS pixels, whatever the screen. Null if it is not visible.
  prepare(canvas) {
    const style = getComputedStyle(canvas);
    const width = canvas.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const height = canvas.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
    if (width < 4 || height < 4) return null;
    const ratio = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const colour = (name) => style.getPropertyValue(name).trim();
    return { pen, width, height, colour };
  },

  // A line from left to right. Gaps (null) are bridged.
  line(canvas, values, fromZero) {
    const at = this.prepare(canvas);
    if (!at) return;
    const points = values.map((value, i) => [i, value]).filter(([, value]) => value !== null);
    if (points.length < 2) return;
    const { pen, width, height, colour } = at;
    const ys = points.map(([, value]) => value);
    const high = Math.max(...ys), low = fromZero ? Math.min(0, ...ys) : Math.min(...ys);
    const span = high - low || 1;
    const x = (i) => (i / (values.length - 1)) * (width - 2) + 1;
    const y = (value) => height - 3 - ((value - low) / span) * (height - 6);
    pen.beginPath();
    points.forEach(([i, value], n) => (n ? pen.lineTo(x(i), y(value)) : pen.moveTo(x(i), y(value))));
    pen.lineWidth = 1.75;
    pen.lineJoin = "round";
    pen.strokeStyle = colour("--accent");
    pen.stroke();
    pen.lineTo(x(points[points.length - 1][0]), height);
    pen.lineTo(x(points[0][0]), height);
    pen.fillStyle = colour("--accent-soft");
    pen.fill();
  },

  // Rewards, as steps from the line of zero; the ends of episodes are marked.
  rewards(canvas, given, ends) {
    const at = this.prepare(canvas);
    const values = given.map((value) => value ?? 0); // null: not a number
    if (!at || !values.length) return;
    const { pen, width, height, colour } = at;
    const high = Math.max(0, ...values), low = Math.min(0, ...values);
    const span = high - low || 1;
    const y = (value) => (high === low ? height - 2 : 2 + ((high - value) / span) * (height - 4));
    const step = width / Math.max(values.length, 30);
    const from = width - step * values.length;
    pen.fillStyle = colour("--warn");
    pen.globalAlpha = 0.7;
    for (const end of ends) pen.fillRect(Math.round(from + (end + 1) * step) - 1, 0, 1, height);
    pen.globalAlpha = 1;
    pen.beginPath();
    values.forEach((value, i) => {
      pen.lineTo(from + i * step, y(value));
      pen.lineTo(from + (i + 1) * step, y(value));
    });
    pen.lineWidth = 1.25;
    pen.strokeStyle = colour("--accent");
    pen.stroke();
    pen.lineTo(width, y(0));
    pen.lineTo(from, y(0));
    pen.fillStyle = colour("--accent-soft");
    pen.fill();
    pen.fillStyle = colour("--line");
    pen.fillRect(0, y(0) - 0.5, width, 1);
  },

  // When pictures were taken, over the given seconds; where an episode begins, the mark is taller.
  moments(canvas, pictures, span) {
    const at = this.prepare(canvas);
    if (!at || !span) return;
    const { pen, width, height, colour } = at;
    const x = (one) => ((one.taken - pictures[0].taken) / span) * (width - 2);
    pictures.forEach((one, i) => {
      const begins = i > 0 && one.episode !== pictures[i - 1].episode;
      pen.fillStyle = colour(begins ? "--warn" : "--quiet");
      pen.globalAlpha = begins ? 1 : 0.7;
      const tall = begins ? height : height / 2;
      pen.fillRect(x(one), height - tall, begins ? 2 : 1, tall);
    });
    pen.globalAlpha = 1;
  },
};
