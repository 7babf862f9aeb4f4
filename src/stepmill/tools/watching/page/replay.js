// The last seconds of an env once more, from the pictures that this page was shown anyway: nobody else keeps them.
"use strict";

const replay = {
  seconds: 10,
  most: 64e6, // bytes of pictures, of all envs together
  kept: new Map(), // by env id: its pictures, oldest first
  bytes: 0,
  on: null, // what is replayed: { pictures, at (seconds since the first one), playing, drawn (when, by the clock of frames) }

  // ---- keeping ----------------------------------------------------------------------------------

  // What an answer says of an env: a new picture of it, or none.
  keep({ id, picture }) {
    if (!picture || (!picture.png && !picture.text)) return;
    if (!this.kept.has(id)) this.kept.set(id, []);
    const pictures = this.kept.get(id), last = pictures[pictures.length - 1];
    if (last && last.number >= picture.number) return;
    const bytes = (picture.png || picture.text).length;
    pictures.push({ ...picture, bytes, taken: performance.now() / 1000 - picture.age });
    this.bytes += bytes;
    const newest = pictures[pictures.length - 1].taken;
    while (newest - pictures[0].taken > this.seconds) this.drop(pictures);
    while (this.bytes > this.most) this.drop(this.oldest());
  },

  drop(pictures) {
    this.bytes -= pictures.shift().bytes;
  },

  oldest() {
    const all = [...this.kept.values()].filter((one) => one.length);
    return all.reduce((first, one) => (one[0].taken < first[0].taken ? one : first));
  },

  // Envs that are on the page no more.
  forgetOthers(wanted) {
    for (const [id, pictures] of this.kept)
      if (!wanted.has(id)) { while (pictures.length) this.drop(pictures); this.kept.delete(id); }
  },

  // ---- showing ----------------------------------------------------------------------------------

  // Follows the picked env, or what is replayed of it. Called for every answer.
  show(anyPictures) {
    const pictures = this.on ? this.on.pictures : this.kept.get(view.picked) || [];
    const span = spanOf(pictures), canReplay = pictures.length > 1;
    $("replay").hidden = !anyPictures;
    $("moment").max = span || 1;
    if (!this.on) $("moment").value = span || 1;
    for (const id of ["replay-play", "moment"]) $(id).disabled = !canReplay;
    const idle = span < 1 ? "Replay" : `Last ${Math.round(span)} s`;
    $("replay-play").textContent = !this.on ? idle : this.on.playing ? "Pause" : "Play";
    $("live").setAttribute("aria-pressed", String(!this.on));
    $("moment").setAttribute("aria-valuetext", this.on ? `${(span - this.on.at).toFixed(1)} s back` : "live");
    $("panel").classList.toggle("replaying", Boolean(this.on));
    charts.moments($("moments"), pictures, span);
  },

  // The picture of the moment that is replayed.
  draw() {
    const { pictures, at } = this.on, first = pictures[0].taken;
    const shown = pictures.findLast((one) => one.taken - first <= at + 1e-6) || pictures[0];
    setPicture($("picked-image"), $("picked-text"), shown);
    $("moment").value = at;
    $("back").textContent = `${(spanOf(pictures) - at).toFixed(1)} s back`;
    const what = shown.step === null ? "" : `Step ${shown.step} of episode ${shown.episode + 1}. `;
    $("picked-every").textContent = `${what}What is below is live.`;
    this.show(true);
  },

  // ---- what the user does -----------------------------------------------------------------------

  begin(at) {
    const pictures = (this.kept.get(view.picked) || []).slice();
    if (pictures.length < 2) return false;
    this.on = { pictures, at, playing: false, drawn: null };
    return true;
  },

  toggle() {
    if (!this.on && !this.begin(0)) return;
    this.on.playing = !this.on.playing;
    if (this.on.playing && this.on.at >= spanOf(this.on.pictures)) this.on.at = 0; // once more
    this.on.drawn = null;
    if (this.on.playing) requestAnimationFrame((now) => this.go(now));
    this.draw();
  },

  go(now) {
    if (!this.on || !this.on.playing) return;
    const span = spanOf(this.on.pictures);
    if (this.on.drawn !== null) this.on.at = Math.min(span, this.on.at + (now - this.on.drawn) / 1000);
    this.on.drawn = now;
    this.on.playing = this.on.at < span;
    this.draw();
    if (this.on.playing) requestAnimationFrame((later) => this.go(later));
  },

  moveTo(at) {
    if (!this.on && !this.begin(at)) return;
    Object.assign(this.on, { at, playing: false });
    this.draw();
  },

  goLive() {
    if (!this.on) return;
    this.on = null;
    const newest = (this.kept.get(view.picked) || []).at(-1);
    setPicture($("picked-image"), $("picked-text"), newest);
    if (view.state) showPicked(view.state.picked, view.state.pictures);
  },
};

function spanOf(pictures) {
  return pictures.length ? pictures[pictures.length - 1].taken - pictures[0].taken : 0;
}

$("replay-play").addEventListener("click", () => replay.toggle());
$("moment").addEventListener("input", () => replay.moveTo(Number($("moment").value)));
$("live").addEventListener("click", () => replay.goLive());
